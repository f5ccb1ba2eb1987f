/* common.h: what the tests of the in-memory NIC share: two nics with connected queue pairs, short
 * ways to post and poll, and the seed in every failure message. */
#ifndef CORE_NIC_MEMORY_TESTS_COMMON_H
#define CORE_NIC_MEMORY_TESTS_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/memory/memory.h"
#include "nic/memory/random.h"

#define RING_BYTES 4096u
#define DEPTH 32u
#define RECEIVES 64u
#define PAIRS_MAX 8u
#define STEPS_MAX 100000u

#define OPERATIONS (&nic_memory_operations)

static const struct nic_transport default_transport = {.retry_timeout = 14, .retry_count = 7};

/* One nic with memory that its peer may write, memory that its peer may read, and memory to send
 * from and to read into: each under its own key, with no more rights than it needs. */
struct side {
    struct nic *nic;
    struct nic_queue_pair *queue_pairs[PAIRS_MAX];
    struct nic_keys written_memory, read_memory, source_memory, landing_memory;
    _Alignas(64) uint8_t written[RING_BYTES];
    _Alignas(64) uint8_t read[RING_BYTES];
    _Alignas(64) uint8_t source[RING_BYTES];
    _Alignas(64) uint8_t landing[RING_BYTES];
};

struct fixture {
    struct memory_fabric *fabric;
    uint32_t pairs;
    struct side a, b;
};

static inline struct nic *open_nic(struct memory_fabric *fabric)
{
    const struct nic_options options = {
        .send_depth = DEPTH,
        .receive_depth = RECEIVES,
        .send_completion_depth = 1024,
        .signal_interval = DEPTH / 2,
    };
    struct nic *nic = NULL;
    crpc_error error = {0};

    if (memory_nic_open(fabric, &options, &nic, &error) != CRPC_OK) {
        fail_msg("open: %s", error.message);
    }
    return nic;
}

static inline struct nic_keys register_memory(struct nic *nic, void *address, size_t bytes,
                                              uint32_t access)
{
    struct nic_keys memory = {0};
    crpc_error error = {0};

    if (nic->operations->memory_register(nic, NULL, address, bytes, 0, access, &memory, &error) !=
        CRPC_OK) {
        fail_msg("register: %s", error.message);
    }
    return memory;
}

static inline struct nic_queue_pair *create_queue_pair(struct nic *nic)
{
    struct nic_queue_pair *queue_pair = NULL;
    crpc_error error = {0};

    if (nic_queue_pair_create(nic, NULL, nic, 1, &queue_pair, &error) != CRPC_OK) {
        fail_msg("create: %s", error.message);
    }
    return queue_pair;
}

/* Tells `queue_pair` who its peer is; not the other way round. */
static inline void connect_one_way(struct nic_queue_pair *queue_pair, struct nic_queue_pair *peer)
{
    struct nic_address address;
    crpc_error error = {0};

    OPERATIONS->queue_pair_address(peer, &address);
    if (OPERATIONS->queue_pair_connect(queue_pair, &address, &default_transport, &error) !=
        CRPC_OK) {
        fail_msg("connect: %s", error.message);
    }
}

static inline void side_open(struct side *side, struct memory_fabric *fabric)
{
    side->nic = open_nic(fabric);
    side->written_memory = register_memory(side->nic, side->written, RING_BYTES,
                                           CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE);
    side->read_memory = register_memory(side->nic, side->read, RING_BYTES, CRPC_ACCESS_REMOTE_READ);
    side->source_memory = register_memory(side->nic, side->source, RING_BYTES, 0);
    side->landing_memory =
        register_memory(side->nic, side->landing, RING_BYTES, CRPC_ACCESS_LOCAL_WRITE);
    side->nic->operations->refill(side->nic);
}

/* A fixture with `pairs` connections between a and b. */
static inline struct fixture *fixture_create(uint64_t seed, enum memory_mode mode, uint32_t pairs)
{
    struct fixture *fixture = aligned_alloc(64, sizeof(*fixture));

    assert_non_null(fixture);
    memset(fixture, 0, sizeof(*fixture));
    fixture->fabric = memory_fabric_create(seed);
    memory_fabric_options(fixture->fabric)->mode = mode;
    fixture->pairs = pairs;
    side_open(&fixture->a, fixture->fabric);
    side_open(&fixture->b, fixture->fabric);
    for (uint32_t i = 0; i < pairs; i++) {
        fixture->a.queue_pairs[i] = create_queue_pair(fixture->a.nic);
        fixture->b.queue_pairs[i] = create_queue_pair(fixture->b.nic);
        connect_one_way(fixture->a.queue_pairs[i], fixture->b.queue_pairs[i]);
        connect_one_way(fixture->b.queue_pairs[i], fixture->a.queue_pairs[i]);
    }
    return fixture;
}

static inline void fixture_destroy(struct fixture *fixture)
{
    memory_fabric_destroy(fixture->fabric);
    free(fixture);
}

static inline const struct memory_fabric_counters *counters(const struct fixture *fixture)
{
    return memory_fabric_counters(fixture->fabric);
}

static inline void run_to_the_end(struct fixture *f, uint64_t seed)
{
    if (!memory_fabric_run(f->fabric, STEPS_MAX)) {
        fail_msg("seed %llu: still not quiet", (unsigned long long)seed);
    }
}

/* ---- Posting and polling --------------------------------------------------------------------- */

/* A WRITE of source[offset, bytes) to the same place of the peer's `written`. */
static inline struct nic_transfer write_transfer(struct side *from, struct side *to,
                                                 uint32_t offset, uint32_t bytes,
                                                 uint32_t immediate)
{
    return (struct nic_transfer){
        .local_address = (uintptr_t)from->source + offset,
        .local_key = from->source_memory.local_key,
        .remote_address = (uintptr_t)to->written + offset,
        .remote_key = to->written_memory.remote_key,
        .bytes = bytes,
        .immediate = immediate,
    };
}

/* A READ of the peer's read[offset, bytes) to the same place of `landing`. */
static inline struct nic_transfer read_transfer(struct side *from, struct side *to, uint32_t offset,
                                                uint32_t bytes)
{
    return (struct nic_transfer){
        .local_address = (uintptr_t)from->landing + offset,
        .local_key = from->landing_memory.local_key,
        .remote_address = (uintptr_t)to->read + offset,
        .remote_key = to->read_memory.remote_key,
        .bytes = bytes,
    };
}

static inline void post_write(struct fixture *fixture, uint32_t pair, uint32_t offset,
                              uint32_t bytes, uint32_t immediate, uint32_t flags)
{
    const struct nic_transfer transfer =
        write_transfer(&fixture->a, &fixture->b, offset, bytes, immediate);

    OPERATIONS->post_write_immediate(fixture->a.queue_pairs[pair], &transfer, flags);
}

static inline void post_read(struct fixture *fixture, uint32_t pair, uint32_t offset,
                             uint32_t bytes, uint32_t flags)
{
    const struct nic_transfer transfer = read_transfer(&fixture->a, &fixture->b, offset, bytes);

    OPERATIONS->post_read(fixture->a.queue_pairs[pair], &transfer, flags);
}

static inline void ring(struct fixture *fixture, uint32_t pair)
{
    OPERATIONS->ring_doorbell(fixture->a.queue_pairs[pair]);
}

static inline struct nic_completion poll_one(struct nic *nic)
{
    struct nic_completion completion = {0};

    if (OPERATIONS->poll(nic, &completion, 1) != 1) {
        fail_msg("nothing to poll from %s", nic->device);
    }
    return completion;
}

static inline void assert_nothing(struct nic *nic)
{
    struct nic_completion completion;

    assert_int_equal(OPERATIONS->poll(nic, &completion, 1), 0);
}

static inline void assert_receive(struct nic *nic, const struct nic_queue_pair *queue_pair,
                                  uint32_t immediate, uint32_t bytes)
{
    const struct nic_completion completion = poll_one(nic);

    assert_int_equal(completion.kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(completion.status, NIC_ERROR_NONE);
    assert_int_equal(completion.queue_pair_number, queue_pair->number);
    assert_int_equal(completion.immediate, immediate);
    assert_int_equal(completion.byte_count, bytes);
}

static inline void assert_sent(struct nic *nic, const struct nic_queue_pair *queue_pair,
                               uint32_t completed)
{
    const struct nic_completion completion = poll_one(nic);

    assert_int_equal(completion.kind, NIC_COMPLETION_SEND);
    assert_int_equal(completion.queue_pair_number, queue_pair->number);
    assert_int_equal(completion.completed, completed);
    assert_int_equal(queue_pair->completed, completed);
}

static inline void assert_error(struct nic *nic, const struct nic_queue_pair *queue_pair,
                                enum nic_error status, uint32_t completed)
{
    const struct nic_completion completion = poll_one(nic);

    assert_int_equal(completion.kind, NIC_COMPLETION_ERROR);
    assert_int_equal(completion.status, status);
    assert_int_equal(completion.queue_pair_number, queue_pair->number);
    assert_int_equal(completion.completed, completed);
    assert_int_equal(queue_pair->completed, completed);
    assert_true(queue_pair->failed);
}

static inline void fill(uint8_t *bytes, uint32_t count, uint8_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(first + i);
    }
}

#endif

/* pair.c: two nics on one device, a connected queue pair on each, and memory between them. */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "base/clock.h"

struct nic_options pair_options(void)
{
    struct nic_options options = {
        .receive_depth = 600,
        .send_depth = 64,
        .send_completion_depth = 1024,
        .signal_interval = 8,
    };
    pair_choose(&options);
    return options;
}

struct nic *pair_open_nic(const struct nic_options *options)
{
    struct nic *nic = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = nic_open(pair_driver(), options, &nic, &error);
    if (status) {
        print_error("nic_open: %d: %s\n", status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    return nic;
}

void *pair_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

void pair_enroll(struct nic *nic, void *address, size_t bytes, uint32_t access,
                 struct nic_keys *memory)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        nic->operations->memory_register(nic, NULL, address, bytes, 0, access, memory, &error);
    if (status) {
        print_error("memory_register: %d: %s\n", status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
}

void pair_connect(struct nic_queue_pair *one, struct nic_queue_pair *other,
                  const struct nic_transport *transport)
{
    struct nic_address one_address, other_address;
    const struct nic_operations *operations = one->nic->operations;
    operations->queue_pair_address(one, &one_address);
    operations->queue_pair_address(other, &other_address);
    assert_int_equal(operations->queue_pair_connect(one, &other_address, transport, NULL), CRPC_OK);
    assert_int_equal(operations->queue_pair_connect(other, &one_address, transport, NULL), CRPC_OK);
}

static struct nic_queue_pair *create(struct nic *nic)
{
    struct nic_queue_pair *queue_pair = NULL;
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, PAIR_RECEIVES, &queue_pair, NULL),
                     CRPC_OK);
    return queue_pair;
}

void pair_reconnect(struct pair *pair)
{
    static const struct nic_transport transport = {
        .retry_timeout = 14, .retry_count = 7, .atomics = true};
    const struct nic_operations *operations = pair->near.nic->operations;
    if (pair->sender) {
        operations->queue_pair_destroy(pair->sender);
    }
    if (pair->receiver) {
        operations->queue_pair_destroy(pair->receiver);
    }
    pair->sender = create(pair->near.nic);
    pair->receiver = create(pair->far.nic);
    pair_connect(pair->sender, pair->receiver, &transport);
}

struct pair *pair_open(const struct nic_options *options)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    pair->near.nic = pair_open_nic(options);
    pair->far.nic = pair_open_nic(options);
    pair->source = pair_map(PAIR_BYTES);
    pair->ring = pair_map(PAIR_BYTES);
    pair->box = pair_map(4096);
    pair_enroll(pair->near.nic, pair->source, PAIR_BYTES, CRPC_ACCESS_LOCAL_WRITE,
                &pair->source_memory);
    pair_enroll(pair->far.nic, pair->ring, PAIR_BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &pair->ring_memory);
    pair_enroll(pair->far.nic, pair->box, 64, CRPC_ACCESS_REMOTE_READ, &pair->box_memory);
    pair->far.nic->operations->refill(pair->far.nic);
    pair_reconnect(pair);
    return pair;
}

void pair_close(struct pair *pair)
{
    const struct nic_operations *operations = pair->near.nic->operations;
    operations->queue_pair_destroy(pair->sender);
    if (pair->receiver) {
        operations->queue_pair_destroy(pair->receiver);
    }
    operations->memory_deregister(pair->near.nic, &pair->source_memory);
    operations->memory_deregister(pair->far.nic, &pair->ring_memory);
    operations->memory_deregister(pair->far.nic, &pair->box_memory);
    operations->close(pair->near.nic);
    operations->close(pair->far.nic);
    munmap(pair->source, PAIR_BYTES);
    munmap(pair->ring, PAIR_BYTES);
    munmap(pair->box, 4096);
    free(pair);
}

int pair_set_up(void **state)
{
    const struct nic_options options = pair_options();
    *state = pair_open(&options);
    return 0;
}

int pair_tear_down(void **state)
{
    pair_close(*state);
    return 0;
}

uint32_t pair_receives(const struct nic *nic)
{
    return nic->receive_queue_max ? nic_receive_queue_depth(PAIR_RECEIVES) : nic->receive_depth;
}

struct nic_transfer pair_write(const struct pair *pair, uint64_t from, uint64_t to, uint32_t bytes,
                               uint32_t immediate)
{
    return (struct nic_transfer){
        .local_address = (uint64_t)(uintptr_t)pair->source + from,
        .remote_address = (uint64_t)(uintptr_t)pair->ring + to,
        .bytes = bytes,
        .local_key = pair->source_memory.local_key,
        .remote_key = pair->ring_memory.remote_key,
        .immediate = immediate,
    };
}

/* ---- Inboxes --------------------------------------------------------------------------------- */

void inbox_poll(struct inbox *inbox)
{
    assert_true(inbox->count < INBOX_MAX);
    pair_pass(0);
    inbox->count += inbox->nic->operations->poll(inbox->nic, inbox->completions + inbox->count,
                                                 INBOX_MAX - inbox->count);
}

static bool late(uint64_t since_ns)
{
    pair_pass(100);
    return clock_now_ns() - since_ns > PAIR_WAIT_S * 1000000000ull;
}

void inbox_wait(struct inbox *inbox, uint32_t count)
{
    uint64_t start = clock_now_ns();
    inbox_poll(inbox);
    while (inbox->count < count) {
        if (late(start)) {
            print_error("%u completions, not %u\n", inbox->count, count);
            fail();
        }
        inbox_poll(inbox);
    }
}

void inbox_wait_completed(struct inbox *inbox, const struct nic_queue_pair *queue_pair,
                          uint32_t completed)
{
    uint64_t start = clock_now_ns();
    inbox_poll(inbox);
    while (queue_pair->completed != completed) {
        if (late(start)) {
            print_error("%u WQEs complete, not %u\n", queue_pair->completed, completed);
            fail();
        }
        inbox_poll(inbox);
    }
}

const struct nic_completion *inbox_last(const struct inbox *inbox)
{
    assert_true(inbox->count > 0);
    return &inbox->completions[inbox->count - 1];
}

void inbox_expect_silence(struct inbox *inbox)
{
    uint32_t before = inbox->count;
    for (int i = 0; i < 50; i++) {
        pair_pass(1000);
        inbox_poll(inbox);
    }
    assert_int_equal(inbox->count, before);
}

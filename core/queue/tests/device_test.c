/* device_test.c: queues on a device (tests/place.h), with its rdma_cm: that both drivers and the kernel do
 * what the in-memory NIC of the other tests does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "nic/device/device.h"
#include "place.h"
#include "queue/internal.h"

#define BYTES 4096u
#define SEEN_MAX 256u
#define TIMEOUT_NS UINT64_C(30000000000)

struct end {
    struct nic *nic;
    struct cm *cm;
    struct queue_engine *engine;
    struct handles handles;
    struct log log;
    struct nic_keys keys;
    uint8_t *memory;
    crpc_completion seen[SEEN_MAX];
    uint32_t count;
};

struct pair {
    struct end near;
    struct end far;
    struct link_listener *listener; /* of far */
    char address[64];
    struct queue *queue;
    struct queue *peer;
};

/* ---- Both sides ------------------------------------------------------------------------------ */

static void must(int32_t status, const crpc_error *error)
{
    if (status != CRPC_OK) {
        fail_msg("%d: %s", status, error->message);
    }
}

static void open_end(struct end *end)
{
    struct nic_options options = {
        .receive_depth = 64, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    crpc_error error = {.struct_size = sizeof(error)};
    const uint32_t driver =
        strcmp(place_driver(), "mlx5") == 0 ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    handles_init(&end->handles);
    end->memory = aligned_alloc(BYTES, BYTES);
    memset(end->memory, 0, BYTES);
    must(nic_open(driver, &options, &end->nic, &error), &error);
    must(cm_open(&end->nic, 1, &end->cm, &error), &error);
    must(queue_engine_create(end->nic, end->cm, &end->log, &end->handles, 16, NULL, NULL,
                             &end->engine, &error),
         &error);
    must(end->nic->operations->memory_register(
             end->nic, NULL, end->memory, BYTES, 0,
             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                 (end->nic->atomics ? CRPC_ACCESS_REMOTE_ATOMIC : 0),
             &end->keys, &error),
         &error);
}

static void close_end(struct end *end)
{
    queue_engine_destroy(end->engine);
    cm_close(end->cm);
    end->nic->operations->memory_deregister(end->nic, &end->keys);
    end->nic->operations->close(end->nic);
    handles_free(&end->handles);
    free(end->memory);
}

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    crpc_listener_info info;
    crpc_error error = {.struct_size = sizeof(error)};
    open_end(&pair->near);
    open_end(&pair->far);
    must(link_listener_open(queue_links(pair->far.engine), place_at(0, "0"), 8, 9, &pair->listener,
                            &error),
         &error);
    link_listener_info(pair->listener, &info);
    snprintf(pair->address, sizeof(pair->address), "%s:%u", place_address(0), info.port);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    close_end(&pair->near);
    close_end(&pair->far);
    free(pair);
    return 0;
}

static struct queue_options default_options(void)
{
    return (struct queue_options){.kind = NIC_QUEUE_RC,
                                  .user_data = 77,
                                  .sends = 32,
                                  .send_pieces = 2,
                                  .inline_bytes = 32,
                                  .receives = 32,
                                  .receive_pieces = 2,
                                  .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                  .retry_timeout = place_retry_timeout() ? 16 : 14,
                                  .retry_count = 7,
                                  .reads_max = 16};
}

/* Polls both until one has so many completions. Sleeps as crpc_wait does, so no wake-up may be lost. */
static void wait_for(struct pair *pair, struct end *end, uint32_t count)
{
    struct end *ends[] = {&pair->near, &pair->far};
    const uint64_t until_ns = clock_now_ns() + TIMEOUT_NS;
    while (end->count < count) {
        assert_true(clock_now_ns() < until_ns);
        bool waits = false;
        struct pollfd fds[4];
        for (uint32_t i = 0; i < 2; i++) {
            struct end *one = ends[i];
            one->count += queue_poll(one->engine, one->seen + one->count, SEEN_MAX - one->count);
            one->nic->operations->disarm(one->nic);
            one->nic->operations->arm(one->nic);
            queue_progress(one->engine);
            waits |= queue_something_waits(one->engine);
            fds[2 * i] = (struct pollfd){.fd = one->nic->event_fd, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = cm_event_fd(one->cm), .events = POLLIN};
        }
        if (!waits && end->count < count) {
            uint64_t deadline_ns = minimum(queue_next_deadline_ns(ends[0]->engine),
                                           queue_next_deadline_ns(ends[1]->engine));
            uint64_t now_ns = clock_now_ns();
            deadline_ns = minimum(deadline_ns, until_ns);
            poll(fds, 4, deadline_ns > now_ns ? (int)((deadline_ns - now_ns) / 1000000) + 1 : 0);
        }
    }
    assert_int_equal(end->count, count);
}

static void forget(struct pair *pair)
{
    pair->near.count = pair->far.count = 0;
}

/* Nothing comes of them afterwards. */
static void close_both(struct pair *pair)
{
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    while (queue_engine_queues(pair->near.engine) + queue_engine_queues(pair->far.engine) > 0) {
        forget(pair);
        queue_poll(pair->near.engine, pair->near.seen, SEEN_MAX);
        queue_poll(pair->far.engine, pair->far.seen, SEEN_MAX);
    }
    forget(pair);
}

static void expect_event(const struct end *end, uint32_t index, const struct queue *queue,
                         uint8_t kind, int32_t status)
{
    assert_int_equal(end->seen[index].kind, kind);
    assert_int_equal(end->seen[index].endpoint.bits, queue->link.handle);
    assert_int_equal(end->seen[index].status, status);
}

static uint32_t count_of(const struct end *end, int32_t status)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->count; i++) {
        count += end->seen[i].kind == NIC_COMPLETION_WORK && end->seen[i].status == status;
    }
    return count;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

/* The request has come to far; pair->peer waits to be accepted. */
static void ask(struct pair *pair, const struct queue_options *options)
{
    struct link *link;
    crpc_error error = {.struct_size = sizeof(error)};
    forget(pair);
    must(link_connect(queue_links(pair->near.engine), pair->address, options, &link, &error),
         &error);
    pair->queue = queue_of_link(link);
    wait_for(pair, &pair->far, 1);
    assert_int_equal(pair->far.seen[0].kind, CRPC_COMPLETION_CONNECT_REQUEST);
    pair->peer = handles_get(&pair->far.handles, pair->far.seen[0].endpoint.bits, HANDLE_QUEUE);
    forget(pair);
}

static void connect_with(struct pair *pair, const struct queue_options *near,
                         const struct queue_options *far)
{
    crpc_error error = {.struct_size = sizeof(error)};
    ask(pair, near);
    must(link_accept(&pair->peer->link, far, &error), &error);
    wait_for(pair, &pair->near, 1);
    wait_for(pair, &pair->far, 1);
    expect_event(&pair->near, 0, pair->queue, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    expect_event(&pair->far, 0, pair->peer, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    forget(pair);
}

static struct nic_work work_of(const struct pair *pair, uint8_t opcode, uint64_t user_data)
{
    struct nic_work work = {.opcode = opcode,
                            .user_data = user_data,
                            .address = (uint64_t)(uintptr_t)pair->near.memory,
                            .bytes = 8,
                            .immediate = 1000 + (uint32_t)user_data,
                            .remote_address = (uint64_t)(uintptr_t)pair->far.memory,
                            .remote_key = pair->far.keys.remote_key};
    if (nic_opcode_is_atomic(opcode)) {
        work.address = 0;
        work.bytes = 0;
        work.operand = 5;
        work.remote_address += 64;
    }
    return work;
}

static void submit(struct pair *pair, const struct nic_work *works, uint32_t count)
{
    uint32_t keys[32];
    int32_t reason = CRPC_OK;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = pair->near.keys.local_key;
    }
    assert_int_equal(queue_submit(pair->queue, works, keys, NULL, count, &reason), count);
    queue_submit_end(pair->queue);
}

static void receive(struct end *end, struct queue *queue, uint32_t bytes, uint64_t user_data)
{
    const struct nic_work work = {
        .opcode = NIC_RECEIVE,
        .user_data = user_data,
        .address = (uint64_t)(uintptr_t)(end->memory + 2048 + 64 * (user_data % 16)),
        .bytes = bytes};
    int32_t reason = CRPC_OK;
    assert_int_equal(queue_receive(queue, &work, &end->keys.local_key, NULL, 1, &reason), 1);
    queue_submit_end(queue);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Atomics too: rdma_cm must leave the peer the right to them. */
static void every_op_works_over_rdma_cm(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = default_options(), far = default_options();
    struct queue_info info;
    near.private_bytes = 3;
    memcpy(near.private_data, "ask", 3);
    far.private_bytes = 6;
    memcpy(far.private_data, "answer", 6);
    connect_with(pair, &near, &far);
    queue_get_info(pair->peer, &info);
    assert_in_range(info.private_bytes, 3, 56);
    assert_memory_equal(info.private_data, "ask", 3);
    queue_get_info(pair->queue, &info);
    assert_in_range(info.private_bytes, 6, 196);
    assert_memory_equal(info.private_data, "answer", 6);
    for (uint32_t i = 0; i < 3; i++) {
        receive(&pair->far, pair->peer, 64, i);
    }
    static const uint8_t opcodes[] = {
        NIC_SEND, NIC_SEND_IMMEDIATE,  NIC_WRITE,        NIC_READ,
        NIC_NOP,  NIC_WRITE_IMMEDIATE, NIC_COMPARE_SWAP, NIC_FETCH_ADD};
    struct nic_work works[8];
    uint32_t count = pair->near.nic->atomics ? 8 : 6;
    for (uint32_t i = 0; i < count; i++) {
        works[i] = work_of(pair, opcodes[i], i);
    }
    memcpy(pair->near.memory, "eight by", 8);
    submit(pair, works, count);
    wait_for(pair, &pair->near, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pair->near.seen[i].user_data, i);
        assert_int_equal(pair->near.seen[i].status, CRPC_OK);
    }
    wait_for(pair, &pair->far, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair->far.seen[i].user_data, i);
        assert_int_equal(pair->far.seen[i].status, CRPC_OK);
    }
    assert_int_equal(pair->far.seen[2].reply_bytes_max, 1005);
    assert_memory_equal(pair->far.memory, "eight by", 8);
    assert_memory_equal(pair->far.memory + 2048, "eight by", 8);
    if (count == 8) {
        uint64_t word;
        memcpy(&word, pair->far.memory + 64, sizeof(word));
        assert_int_equal(word, 10);
        assert_int_equal(pair->near.seen[7].token, 5);
    }
}

static void a_drained_queue_ends_both_sides(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = default_options(), far = default_options();
    near.flags = QUEUE_SPARSE;
    connect_with(pair, &near, &far);
    struct nic_work works[8];
    receive(&pair->near, pair->queue, 8, 50);
    receive(&pair->far, pair->peer, 8, 60);
    for (uint32_t i = 0; i < 8; i++) {
        works[i] = work_of(pair, NIC_WRITE, i);
    }
    memcpy(pair->near.memory, "the last", 8);
    works[3].flags = NIC_WORK_SIGNAL;
    submit(pair, works, 8);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    wait_for(pair, &pair->near, 3);
    assert_memory_equal(pair->far.memory, "the last", 8);
    assert_int_equal(pair->near.seen[0].user_data, 3);
    assert_int_equal(pair->near.seen[1].user_data, 50);
    assert_int_equal(pair->near.seen[1].status, CRPC_E_FLUSHED);
    expect_event(&pair->near, 2, pair->queue, CRPC_COMPLETION_DISCONNECTED, CRPC_OK);
    wait_for(pair, &pair->far, 2);
    assert_int_equal(pair->far.seen[0].user_data, 60);
    assert_int_equal(pair->far.seen[0].status, CRPC_E_FLUSHED);
    expect_event(&pair->far, 1, pair->peer, CRPC_COMPLETION_DISCONNECTED, CRPC_E_DISCONNECTED);
}

static void a_rejection_brings_its_private_data(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = default_options();
    struct queue_info info;
    ask(pair, &options);
    receive(&pair->near, pair->queue, 8, 1);
    assert_int_equal(queue_reject(pair->peer, "not now", 7), CRPC_OK);
    wait_for(pair, &pair->near, 2);
    expect_event(&pair->near, 0, pair->queue, CRPC_COMPLETION_CONNECTED, CRPC_E_REFUSED);
    assert_int_equal(pair->near.seen[1].status, CRPC_E_FLUSHED);
    queue_get_info(pair->queue, &info);
    assert_in_range(info.private_bytes, 7, 148);
    assert_memory_equal(info.private_data, "not now", 7);
}

/* What it posts before it is connected is there for the peer's first message. */
static void a_queue_receives_before_it_is_connected(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = default_options();
    crpc_error error = {.struct_size = sizeof(error)};
    ask(pair, &options);
    receive(&pair->near, pair->queue, 64, 5);
    must(link_accept(&pair->peer->link, &options, &error), &error);
    wait_for(pair, &pair->far, 1);
    const struct nic_work work = {
        .opcode = NIC_SEND, .address = (uint64_t)(uintptr_t)pair->far.memory, .bytes = 8};
    int32_t reason;
    assert_int_equal(queue_submit(pair->peer, &work, &pair->far.keys.local_key, NULL, 1, &reason),
                     1);
    queue_submit_end(pair->peer);
    wait_for(pair, &pair->near, 2);
    expect_event(&pair->near, 0, pair->queue, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    assert_int_equal(pair->near.seen[1].user_data, 5);
    assert_int_equal(pair->near.seen[1].status, CRPC_OK);
}

static void blobs_connect_too(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = default_options();
    uint8_t blobs[2][LINK_BLOB_BYTES];
    struct link *links[2];
    struct queue_info info;
    crpc_error error = {.struct_size = sizeof(error)};
    must(link_blob(queue_links(pair->near.engine), &options, &links[0], blobs[0], &error), &error);
    must(link_blob(queue_links(pair->far.engine), &options, &links[1], blobs[1], &error), &error);
    pair->queue = queue_of_link(links[0]);
    pair->peer = queue_of_link(links[1]);
    queue_get_info(pair->queue, &info);
    must(link_join(links[0], blobs[1], LINK_BLOB_BYTES, &error), &error);
    must(queue_join_address(pair->peer, &info.address, &error), &error);
    wait_for(pair, &pair->near, 1);
    wait_for(pair, &pair->far, 1);
    expect_event(&pair->near, 0, pair->queue, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    forget(pair);
    const struct nic_work work = work_of(pair, NIC_WRITE, 1);
    submit(pair, &work, 1);
    wait_for(pair, &pair->near, 1);
    assert_int_equal(pair->near.seen[0].status, CRPC_OK);
}

static void expect_attributes(struct queue *queue, uint8_t rnr_retry, uint8_t reads)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr ignored;
    assert_int_equal(
        ibv_query_qp(device_qp(queue->link.queue_pair), &attributes,
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
                     &ignored),
        0);
    assert_int_equal(attributes.rnr_retry, rnr_retry);
    assert_int_equal(attributes.max_rd_atomic, reads);
    assert_int_equal(attributes.max_dest_rd_atomic, reads);
}

/* By rdma_cm the lesser of both sides counts, and by blob each side's own. */
static void retries_and_reads_are_as_asked_for(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = default_options(), far = default_options();
    uint8_t blobs[2][LINK_BLOB_BYTES];
    struct link *links[2];
    crpc_error error = {.struct_size = sizeof(error)};
    near.rnr_tries = 3;
    near.reads_max = 2;
    far.reads_max = 0;
    connect_with(pair, &near, &far);
    expect_attributes(pair->queue, 2, 2);
    expect_attributes(pair->peer, NIC_RNR_RETRY, 2);
    close_both(pair);
    near.reads_max = far.reads_max = 8; /* more than calls have */
    connect_with(pair, &near, &far);
    expect_attributes(pair->queue, 2, 8);
    expect_attributes(pair->peer, NIC_RNR_RETRY, 8);
    close_both(pair);
    must(link_blob(queue_links(pair->near.engine), &near, &links[0], blobs[0], &error), &error);
    must(link_blob(queue_links(pair->far.engine), &far, &links[1], blobs[1], &error), &error);
    must(link_join(links[0], blobs[1], LINK_BLOB_BYTES, &error), &error);
    wait_for(pair, &pair->near, 1);
    expect_attributes(queue_of_link(links[0]), 2, 8);
}

static void queues_share_receives(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = default_options(), far = default_options();
    const struct queue_options shared = {
        .kind = NIC_QUEUE_SRQ, .user_data = 88, .receives = 16, .receive_pieces = 1};
    struct queue *srq, *queues[2], *peers[2];
    crpc_error error = {.struct_size = sizeof(error)};
    must(queue_open(pair->far.engine, &shared, &srq, &error), &error);
    const uint64_t handle = srq->link.handle;
    far.receives = 0;
    far.receive_queue = srq;
    for (uint32_t i = 0; i < 2; i++) {
        connect_with(pair, &near, &far);
        queues[i] = pair->queue;
        peers[i] = pair->peer;
    }
    for (uint32_t i = 0; i < 6; i++) {
        receive(&pair->far, srq, 64, i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const struct nic_work work = work_of(pair, NIC_SEND, i);
        pair->queue = queues[i % 2];
        submit(pair, &work, 1);
        wait_for(pair, &pair->far, i + 1);
        assert_int_equal(pair->far.seen[i].user_data, i);
        assert_int_equal(pair->far.seen[i].endpoint.bits, peers[i % 2]->link.handle);
    }
    forget(pair);
    assert_int_equal(queue_fail(peers[0]), CRPC_OK);
    wait_for(pair, &pair->far, 1);
    expect_event(&pair->far, 0, peers[0], CRPC_COMPLETION_DISCONNECTED, CRPC_E_DISCONNECTED);
    forget(pair);
    assert_int_equal(queue_close(srq), CRPC_E_BUSY);
    assert_int_equal(queue_close(peers[1]), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK);
    wait_for(pair, &pair->far, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pair->far.seen[i].status, CRPC_E_CLOSED);
        assert_int_equal(pair->far.seen[i].endpoint.bits, handle);
    }
}

static void errors_are_told_apart(void **state)
{
    struct pair *pair = *state;
    static const int32_t statuses[] = {CRPC_E_ACCESS, CRPC_E_NOT_READY, CRPC_E_ACCESS};
    for (uint32_t way = 0; way < 3; way++) {
        struct queue_options near = default_options(), far = default_options();
        struct nic_work works[2] = {work_of(pair, NIC_WRITE, 1), work_of(pair, NIC_WRITE, 2)};
        near.rnr_tries = 1;
        connect_with(pair, &near, &far);
        if (way == 0) {
            works[0].remote_key ^= 0x5500;
        } else {
            works[0].opcode = NIC_SEND;
        }
        if (way == 2) {
            receive(&pair->far, pair->peer, 4, 7); /* too short */
        }
        submit(pair, works, 2);
        wait_for(pair, &pair->near, 3);
        /* rxe calls a receive that is too short an error of operation. */
        assert_true(count_of(&pair->near, statuses[way]) == 1 ||
                    (way == 2 && count_of(&pair->near, CRPC_E_DEVICE) == 1));
        assert_int_equal(count_of(&pair->near, CRPC_E_FLUSHED), 1);
        assert_int_equal(pair->near.seen[2].kind, CRPC_COMPLETION_DISCONNECTED);
        if (way == 2) {
            wait_for(pair, &pair->far, 2);
            assert_int_equal(count_of(&pair->far, CRPC_E_TRUNCATED), 1);
        }
        close_both(pair);
    }
}

static void a_queue_that_is_closed_ends_its_ops(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = default_options();
    connect_with(pair, &options, &options);
    for (uint32_t i = 0; i < 9; i++) {
        receive(&pair->near, pair->queue, 8, i);
    }
    const struct nic_work work = work_of(pair, NIC_SEND, 100); /* the peer has no receive */
    submit(pair, &work, 1);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    wait_for(pair, &pair->near, 10);
    assert_int_equal(count_of(&pair->near, CRPC_E_CLOSED), 10);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
    wait_for(pair, &pair->far, 1);
    expect_event(&pair->far, 0, pair->peer, CRPC_COMPLETION_DISCONNECTED, CRPC_E_DISCONNECTED);
}

/* A device may go on to receive when a send has failed (the state SQE): all ends nevertheless. */
static void a_datagram_that_the_device_refuses_ends_its_queue(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = default_options();
    struct queue_info info;
    struct queue_target *target;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t reason = CRPC_OK;
    options.kind = NIC_QUEUE_UD;
    options.queue_key = 7;
    must(queue_open(pair->near.engine, &options, &pair->queue, &error), &error);
    must(queue_open(pair->far.engine, &options, &pair->peer, &error), &error);
    queue_get_info(pair->peer, &info);
    const struct nic_target_options there = {
        .kind = NIC_QUEUE_UD, .queue_key = 7, .address = info.address};
    must(queue_target_open(pair->near.engine, &there, &target, &error), &error);
    receive(&pair->far, pair->peer, 64, 1);
    receive(&pair->near, pair->queue, 64, 2);
    struct nic_work works[3];
    struct nic_target *targets[3];
    uint32_t keys[3];
    for (uint32_t i = 0; i < 3; i++) {
        works[i] = (struct nic_work){.opcode = NIC_SEND,
                                     .user_data = i,
                                     .address = (uint64_t)(uintptr_t)pair->near.memory,
                                     .bytes = 8};
        targets[i] = queue_target_nic(target);
        keys[i] = pair->near.keys.local_key ^ (i == 1 ? 0x5500 : 0);
    }
    assert_int_equal(queue_submit_to(pair->queue, works, targets, keys, NULL, 3, &reason), 3);
    queue_submit_end(pair->queue);
    wait_for(pair, &pair->near, 5);
    assert_int_equal(count_of(&pair->near, CRPC_OK), 1);
    assert_int_equal(count_of(&pair->near, CRPC_E_DEVICE), 1);
    assert_int_equal(count_of(&pair->near, CRPC_E_FLUSHED), 2);
    expect_event(&pair->near, 4, pair->queue, CRPC_COMPLETION_DISCONNECTED, CRPC_E_DEVICE);
    wait_for(pair, &pair->far, 1);
    assert_int_equal((uint32_t)pair->far.seen[0].token, pair->queue->number);
    queue_target_close(target);
    close_both(pair);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ONE(every_op_works_over_rdma_cm),
        ONE(a_drained_queue_ends_both_sides),
        ONE(a_rejection_brings_its_private_data),
        ONE(a_queue_receives_before_it_is_connected),
        ONE(blobs_connect_too),
        ONE(retries_and_reads_are_as_asked_for),
        ONE(queues_share_receives),
        ONE(errors_are_told_apart),
        ONE(a_queue_that_is_closed_ends_its_ops),
        ONE(a_datagram_that_the_device_refuses_ends_its_queue),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

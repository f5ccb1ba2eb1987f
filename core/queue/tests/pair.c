/* pair.c: see pair.h. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

/* ---- Both sides ------------------------------------------------------------------------------ */

static void open_end(struct pair *pair, struct end *end)
{
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    crpc_error error = {0};
    assert_int_equal(memory_nic_open(pair->fabric, &options, &end->nic, &error), CRPC_OK);
    handles_init(&end->handles);
    fake_cm_init(&end->cm);
    assert_int_equal(queue_engine_create(end->nic, &end->cm, &end->log, &end->handles, 8, NULL,
                                         &pair->clock_ns, &end->engine, &error),
                     CRPC_OK);
    assert_int_equal(end->nic->operations->memory_register(
                         end->nic, NULL, end->memory, PAIR_BYTES, 0,
                         CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                             CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                         &end->keys, &error),
                     CRPC_OK);
}

static void close_end(struct end *end)
{
    queue_engine_destroy(end->engine);
    end->nic->operations->memory_deregister(end->nic, &end->keys);
    end->nic->operations->close(end->nic);
    handles_free(&end->handles);
    fake_cm_end(&end->cm);
}

int pair_open(void **state)
{
    struct pair *pair = aligned_alloc(64, align_up(sizeof(*pair), 64));
    assert_non_null(pair);
    memset(pair, 0, sizeof(*pair));
    pair->clock_ns = 1000000000;
    pair->fabric = memory_fabric_create(1);
    memory_fabric_options(pair->fabric)->mode = MEMORY_IMMEDIATE;
    open_end(pair, &pair->near);
    open_end(pair, &pair->far);
    *state = pair;
    return 0;
}

int pair_connected(void **state)
{
    const struct queue_options options = pair_options();
    pair_open(state);
    pair_join(*state, &options, &options);
    return 0;
}

int pair_close(void **state)
{
    struct pair *pair = *state;
    close_end(&pair->near);
    close_end(&pair->far);
    assert_int_equal(memory_fabric_counters(pair->fabric)->left_open, 0);
    memory_fabric_destroy(pair->fabric);
    free(pair);
    return 0;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

struct queue_options pair_options(void)
{
    return (struct queue_options){.kind = NIC_QUEUE_RC,
                                  .user_data = 77,
                                  .sends = 16,
                                  .send_pieces = 2,
                                  .inline_bytes = 32,
                                  .receives = 16,
                                  .receive_pieces = 2,
                                  .connect_timeout_ns = 1000000000,
                                  .retry_timeout = 14,
                                  .retry_count = 7};
}

struct queue *end_blob(struct end *end, const struct queue_options *options, uint8_t *blob)
{
    struct link *link;
    crpc_error error = {0};
    assert_int_equal(link_blob(queue_links(end->engine), options, &link, blob, &error), CRPC_OK);
    return queue_of_link(link);
}

struct queue *end_srq(struct end *end, uint32_t receives)
{
    const struct queue_options options = {
        .kind = NIC_QUEUE_SRQ, .user_data = 88, .receives = receives, .receive_pieces = 2};
    struct queue *queue;
    crpc_error error = {0};
    assert_int_equal(queue_open(end->engine, &options, &queue, &error), CRPC_OK);
    return queue;
}

struct queue *end_datagrams(struct end *end, const struct queue_options *options)
{
    struct queue *queue;
    crpc_error error = {0};
    assert_int_equal(queue_open(end->engine, options, &queue, &error), CRPC_OK);
    return queue;
}

struct queue_target *pair_target(struct pair *pair, const struct queue *to)
{
    struct queue_info info;
    struct queue_target *target;
    crpc_error error = {0};
    queue_get_info(to, &info);
    const struct nic_target_options options = {
        .kind = NIC_QUEUE_UD, .queue_key = to->options.queue_key, .address = info.address};
    assert_int_equal(queue_target_open(pair->near.engine, &options, &target, &error), CRPC_OK);
    return target;
}

static void take_connected(struct pair *pair)
{
    end_wait(&pair->near, 1);
    end_wait(&pair->far, 1);
    end_expect_event(&pair->near, 0, pair->queue->link.handle, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    end_expect_event(&pair->far, 0, pair->peer->link.handle, CRPC_COMPLETION_CONNECTED, CRPC_OK);
    end_forget(&pair->near);
    end_forget(&pair->far);
}

void pair_join(struct pair *pair, const struct queue_options *near, const struct queue_options *far)
{
    uint8_t near_blob[LINK_BLOB_BYTES], far_blob[LINK_BLOB_BYTES];
    crpc_error error = {0};
    pair->queue = end_blob(&pair->near, near, near_blob);
    pair->peer = end_blob(&pair->far, far, far_blob);
    assert_int_equal(link_join(&pair->queue->link, far_blob, LINK_BLOB_BYTES, &error), CRPC_OK);
    assert_int_equal(link_join(&pair->peer->link, near_blob, LINK_BLOB_BYTES, &error), CRPC_OK);
    take_connected(pair);
}

void pair_connect(struct pair *pair, const struct queue_options *near,
                  const struct queue_options *far)
{
    struct link_listener *listener;
    struct link *link;
    crpc_error error = {0};
    assert_int_equal(
        link_listener_open(queue_links(pair->far.engine), PAIR_ADDRESS, 4, 0, &listener, &error),
        CRPC_OK);
    assert_int_equal(
        link_connect(queue_links(pair->near.engine), PAIR_ADDRESS, near, &link, &error), CRPC_OK);
    pair->queue = queue_of_link(link);
    end_poll(&pair->near, 8);
    end_wait(&pair->far, 1);
    assert_int_equal(pair->far.seen[0].kind, CRPC_COMPLETION_CONNECT_REQUEST);
    pair->peer = handles_get(&pair->far.handles, pair->far.seen[0].endpoint.bits, HANDLE_QUEUE);
    end_forget(&pair->far);
    assert_int_equal(link_accept(&pair->peer->link, far, &error), CRPC_OK);
    take_connected(pair);
    link_listener_close(listener);
}

/* ---- Polling --------------------------------------------------------------------------------- */

uint32_t end_poll(struct end *end, uint32_t capacity)
{
    assert_true(end->count + capacity <= PAIR_SEEN_MAX);
    uint32_t count = queue_poll(end->engine, end->seen + end->count, capacity);
    assert_in_range(count, 0, capacity);
    end->count += count;
    return count;
}

void end_wait(struct end *end, uint32_t count)
{
    for (uint32_t polls = 0; end->count < count; polls++) {
        assert_in_range(polls, 0, 1000);
        end_poll(end, 16);
    }
    for (uint32_t polls = 0; polls < 5; polls++) {
        end_poll(end, 16);
    }
    assert_int_equal(end->count, count);
}

void end_forget(struct end *end)
{
    end->count = 0;
}

const crpc_completion *end_expect_op(const struct end *end, uint32_t index, uint64_t handle,
                                     uint64_t user_data, int32_t status)
{
    assert_in_range(index, 0, end->count - 1);
    const crpc_completion *seen = &end->seen[index];
    assert_int_equal(seen->kind, NIC_COMPLETION_WORK);
    assert_true(seen->flags & NIC_DONE_OF_QUEUE);
    assert_int_equal(seen->endpoint.bits, handle);
    assert_int_equal(seen->user_data, user_data);
    assert_int_equal(seen->status, status);
    return seen;
}

void end_expect_event(const struct end *end, uint32_t index, uint64_t handle, uint8_t kind,
                      int32_t status)
{
    assert_in_range(index, 0, end->count - 1);
    const crpc_completion *seen = &end->seen[index];
    assert_int_equal(seen->kind, kind);
    assert_int_equal(seen->flags, NIC_DONE_OF_QUEUE);
    assert_int_equal(seen->endpoint.bits, handle);
    assert_int_equal(seen->status, status);
}

uint32_t end_count(const struct end *end, int32_t status)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->count; i++) {
        count += end->seen[i].kind == NIC_COMPLETION_WORK && end->seen[i].status == status;
    }
    return count;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

struct nic_work pair_work(struct pair *pair, uint8_t opcode, uint32_t offset, uint64_t user_data)
{
    struct nic_work work = {.opcode = opcode,
                            .user_data = user_data,
                            .address = (uint64_t)(uintptr_t)pair->near.memory + offset,
                            .bytes = 8,
                            .remote_address = (uint64_t)(uintptr_t)pair->far.memory + offset,
                            .remote_key = pair->far.keys.remote_key};
    if (nic_opcode_is_atomic(opcode)) {
        work.address = 0;
        work.bytes = 0;
        work.operand = 5;
    }
    return work;
}

int32_t end_submit(struct end *end, struct queue *queue, const struct nic_work *work)
{
    int32_t reason = CRPC_OK;
    uint32_t taken = queue_submit(queue, work, &end->keys.local_key, NULL, 1, &reason);
    queue_submit_end(queue);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

void pair_submit(struct pair *pair, const struct nic_work *works, uint32_t count)
{
    uint32_t keys[64];
    int32_t reason = CRPC_OK;
    assert_in_range(count, 1, 64);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = pair->near.keys.local_key;
    }
    assert_int_equal(queue_submit(pair->queue, works, keys, NULL, count, &reason), count);
    queue_submit_end(pair->queue);
}

void pair_submit_one(struct pair *pair, uint8_t opcode, uint64_t user_data)
{
    const struct nic_work work = pair_work(pair, opcode, 0, user_data);
    pair_submit(pair, &work, 1);
}

int32_t end_receive(struct end *end, struct queue *queue, uint32_t offset, uint32_t bytes,
                    uint64_t user_data)
{
    const struct nic_work work = {.opcode = NIC_RECEIVE,
                                  .user_data = user_data,
                                  .address = (uint64_t)(uintptr_t)end->memory + offset,
                                  .bytes = bytes};
    int32_t reason = CRPC_OK;
    uint32_t taken = queue_receive(queue, &work, &end->keys.local_key, NULL, 1, &reason);
    queue_submit_end(queue);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

uint64_t handle_of(const struct queue *queue)
{
    return queue->link.handle;
}

void submit_writes(struct pair *pair, uint32_t count)
{
    struct nic_work works[16];
    for (uint32_t i = 0; i < count; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
    }
    pair_submit(pair, works, count);
}

void receive_near(struct pair *pair, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 100 + i), CRPC_OK);
    }
}

/* datagram_test.c: queues for datagrams, and targets. */
#include <string.h>

#include "pair.h"

#define HEADER NIC_DATAGRAM_HEADER_BYTES
#define KEY 0x11111111u

static struct queue_options datagram_options(void)
{
    struct queue_options options = pair_options();
    options.kind = NIC_QUEUE_UD;
    options.queue_key = KEY;
    return options;
}

static int datagrams_open(void **state)
{
    const struct queue_options options = datagram_options();
    pair_open(state);
    struct pair *pair = *state;
    pair->queue = end_datagrams(&pair->near, &options);
    pair->peer = end_datagrams(&pair->far, &options);
    return 0;
}

static uint64_t targets_alive(const struct pair *pair)
{
    return memory_fabric_counters(pair->fabric)->targets;
}

/* Submits SENDs of 8 bytes, numbered from 0. Returns how many were accepted. */
static uint32_t send(struct pair *pair, struct queue_target *target, uint32_t flags, uint32_t count,
                     int32_t *reason)
{
    struct nic_work works[16];
    struct nic_target *targets[16];
    uint32_t keys[16];
    assert_in_range(count, 1, 16);
    for (uint32_t i = 0; i < count; i++) {
        works[i] = (struct nic_work){.opcode = NIC_SEND,
                                     .flags = (uint8_t)flags,
                                     .user_data = i,
                                     .address = (uint64_t)(uintptr_t)pair->near.memory + 8 * i,
                                     .bytes = 8};
        keys[i] = pair->near.keys.local_key;
        targets[i] = queue_target_nic(target);
    }
    *reason = CRPC_OK;
    uint32_t taken = queue_submit_to(pair->queue, works, targets, keys, NULL, count, reason);
    queue_submit_end(pair->queue);
    return taken;
}

static void send_all(struct pair *pair, struct queue_target *target, uint32_t count)
{
    int32_t reason;
    assert_int_equal(send(pair, target, 0, count, &reason), count);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void a_datagram_reaches_its_target_and_is_answered(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    struct queue_target *back;
    crpc_error error = {0};
    memcpy(pair->near.memory, "question", 8);
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 64, 5), CRPC_OK);
    send_all(pair, target, 1);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 0, CRPC_OK);
    end_wait(&pair->far, 1);
    const crpc_completion *done = end_expect_op(&pair->far, 0, handle_of(pair->peer), 5, CRPC_OK);
    assert_int_equal(done->payload_bytes, HEADER + 8);
    assert_int_equal(done->token, pair->queue->number);
    assert_memory_equal(pair->far.memory + HEADER, "question", 8);

    assert_int_equal(queue_target_of(pair->peer, done, pair->far.memory, &back, &error), CRPC_OK);
    assert_int_equal(queue_target_options(back)->queue_key, KEY);
    assert_int_equal(queue_target_options(back)->address.queue_pair_number, pair->queue->number);
    assert_ptr_equal(handles_get(&pair->far.handles, queue_target_handle(back), HANDLE_TARGET),
                     back);
    struct nic_target *to = queue_target_nic(back);
    const struct nic_work answer = {
        .opcode = NIC_SEND, .address = (uint64_t)(uintptr_t)pair->far.memory + HEADER, .bytes = 8};
    int32_t reason;
    assert_int_equal(end_receive(&pair->near, pair->queue, 128, 64, 6), CRPC_OK);
    assert_int_equal(
        queue_submit_to(pair->peer, &answer, &to, &pair->far.keys.local_key, NULL, 1, &reason), 1);
    queue_submit_end(pair->peer);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 1, handle_of(pair->queue), 6, CRPC_OK);
    assert_memory_equal(pair->near.memory + 128 + HEADER, "question", 8);
}

/* There are no events, and nothing to wait for. */
static void a_queue_for_datagrams_is_usable_at_once(void **state)
{
    struct pair *pair = *state;
    struct queue_info info;
    uint8_t blob[LINK_BLOB_BYTES] = {0};
    crpc_error error = {0};
    end_wait(&pair->near, 0);
    assert_false(queue_something_waits(pair->near.engine));
    assert_int_equal(queue_next_deadline_ns(pair->near.engine), UINT64_MAX);
    queue_get_info(pair->queue, &info);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.kind, NIC_QUEUE_UD);
    assert_int_equal(info.number, info.address.queue_pair_number);
    assert_int_equal(info.peer_number, 0);
    assert_int_equal(link_join(&pair->queue->link, blob, sizeof(blob), &error), CRPC_E_STATE);
    assert_int_equal(queue_join_address(pair->queue, &info.address, &error), CRPC_E_STATE);
    assert_int_equal(link_accept(&pair->queue->link, &pair->queue->options, &error), CRPC_E_STATE);
    assert_int_equal(queue_reject(pair->queue, NULL, 0), CRPC_E_STATE);
}

static void a_full_queue_says_when_there_is_room(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    int32_t reason;
    memory_fabric_stall(pair->queue->link.queue_pair, 200);
    send_all(pair, target, 16);
    assert_int_equal(send(pair, target, 0, 1, &reason), 0);
    assert_int_equal(reason, CRPC_E_AGAIN);
    end_wait(&pair->near, 17);
    end_expect_event(&pair->near, 16, handle_of(pair->queue), CRPC_COMPLETION_ROOM, CRPC_OK);
}

/* ---- Targets --------------------------------------------------------------------------------- */

/* The in-memory NIC dies of a target that is destroyed while it is needed. */
static void ops_that_name_a_closed_target_go_on(void **state)
{
    struct pair *pair = *state;
    struct queue_target *first = pair_target(pair, pair->peer);
    uint64_t handle = queue_target_handle(first);
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 64, 5), CRPC_OK);
    memory_fabric_stall(pair->queue->link.queue_pair, 200);
    send_all(pair, first, 2);
    queue_target_close(first);
    assert_null(handles_get(&pair->near.handles, handle, HANDLE_TARGET));
    assert_int_equal(targets_alive(pair), 1);
    struct queue_target *second = pair_target(pair, pair->peer);
    assert_int_equal(targets_alive(pair), 2);
    send_all(pair, second, 1);
    queue_target_close(second); /* waits for the first one's marks */
    assert_int_equal(targets_alive(pair), 2);
    end_wait(&pair->far, 1);
    end_wait(&pair->near, 3);
    queue_target_close(pair_target(pair, pair->peer));
    assert_int_equal(targets_alive(pair), 0);
}

/* No completion of what was open then says so: the queue has gone. */
static void a_queue_that_ends_lets_its_targets_go(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    send_all(pair, target, 3);
    queue_target_close(target);
    assert_int_equal(targets_alive(pair), 1);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_int_equal(targets_alive(pair), 0);
    end_wait(&pair->near, 3);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 3);
}

static void an_engine_frees_the_targets_that_are_left(void **state)
{
    struct pair *pair = *state;
    struct queue_target *closed = pair_target(pair, pair->peer);
    pair_target(pair, pair->peer);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    send_all(pair, closed, 3);
    queue_target_close(closed);
    assert_int_equal(targets_alive(pair), 2);
}

static void an_address_that_nobody_can_have_makes_no_target(void **state)
{
    struct pair *pair = *state;
    struct queue_info info;
    struct queue_target *target = NULL;
    crpc_error error = {0};
    queue_get_info(pair->peer, &info);
    struct nic_target_options options = {
        .kind = NIC_QUEUE_UD, .queue_key = KEY, .address = info.address};
    options.address.queue_pair_number = 0;
    assert_int_equal(queue_target_open(pair->near.engine, &options, &target, &error),
                     CRPC_E_PROTOCOL);
    options.address = info.address;
    options.address.link = CRPC_LINK_INFINIBAND;
    assert_int_equal(queue_target_open(pair->near.engine, &options, &target, &error),
                     CRPC_E_UNREACHABLE);
    options.address = info.address;
    memory_fabric_set_failures(pair->fabric, MEMORY_FAIL_TARGET, 1, CRPC_E_UNREACHABLE);
    assert_int_equal(queue_target_open(pair->near.engine, &options, &target, &error),
                     CRPC_E_UNREACHABLE);
    assert_null(target);
    assert_int_equal(targets_alive(pair), 0);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_queue_that_is_failed_flushes_all_that_is_open(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    int32_t reason;
    receive_near(pair, 3);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    send_all(pair, target, 4);
    assert_int_equal(queue_fail(pair->queue), CRPC_OK);
    assert_int_equal(send(pair, target, 0, 1, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
    end_wait(&pair->near, 8);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 7);
    end_expect_event(&pair->near, 7, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

/* A device may go on to receive then: all ends nevertheless. */
static void an_op_that_the_device_refuses_ends_the_queue(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    struct nic_target *to = queue_target_nic(target);
    const struct nic_work work = {.opcode = NIC_SEND, .user_data = 9, .address = 8, .bytes = 8};
    const uint32_t no_key = 0;
    int32_t reason;
    crpc_error error = {0};
    receive_near(pair, 2);
    assert_int_equal(queue_submit_to(pair->queue, &work, &to, &no_key, NULL, 1, &reason), 1);
    queue_submit_end(pair->queue);
    end_wait(&pair->near, 4);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 2);
    end_expect_event(&pair->near, 3, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DEVICE);
    queue_get_error(pair->queue, &error);
    assert_int_equal(error.status, CRPC_E_DEVICE);
    assert_non_null(strstr(error.message, "the queue has failed"));
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
}

static void a_datagram_that_is_too_long_ends_the_queue_that_gets_it(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, HEADER + 7, 5), CRPC_OK);
    send_all(pair, pair_target(pair, pair->peer), 1);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 0, CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 5, CRPC_E_TRUNCATED);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_TRUNCATED);
}

static void drain(struct pair *pair, uint32_t flags, uint32_t sends_seen)
{
    int32_t reason;
    struct queue_target *target = pair_target(pair, pair->peer);
    receive_near(pair, 2);
    assert_int_equal(send(pair, target, flags, 5, &reason), 5);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(send(pair, target, 0, 1, &reason), 0);
    assert_int_equal(reason, CRPC_E_CLOSING);
    end_wait(&pair->near, sends_seen + 3);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 2);
    end_expect_event(&pair->near, sends_seen + 2, handle_of(pair->queue),
                     CRPC_COMPLETION_DISCONNECTED, CRPC_OK);
}

static void a_queue_drains(void **state)
{
    drain(*state, 0, 5);
}

/* By a NOP, or because each of its ops has a CQE. */
static void a_sparse_queue_drains(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = datagram_options();
    options.flags = QUEUE_SPARSE;
    for (uint32_t i = 0; i < 2; i++) {
        end_forget(&pair->near);
        assert_int_equal(queue_close(pair->queue), CRPC_OK);
        pair->queue = end_datagrams(&pair->near, &options);
        if (i == 1) {
            pair->queue->nic->interval = 1;
        }
        drain(pair, 0, 0);
        assert_int_equal(pair->queue->nic->stats.sends, i == 0 ? 6 : 5);
    }
}

static void a_lost_device_ends_all_and_makes_no_targets(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = pair_target(pair, pair->peer);
    struct queue_target *other;
    crpc_error error = {0};
    receive_near(pair, 2);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    send_all(pair, target, 2);
    fake_cm_device_event(&pair->near.cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
    end_wait(&pair->near, 5);
    assert_int_equal(end_count(&pair->near, CRPC_E_NO_DEVICE), 4);
    assert_int_equal(
        queue_target_open(pair->near.engine, queue_target_options(target), &other, &error),
        CRPC_E_NO_DEVICE);
    queue_target_close(target);
    assert_int_equal(targets_alive(pair), 0);
}

static void receives_may_be_those_of_an_srq(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = end_srq(&pair->far, 4);
    struct queue_options options = datagram_options();
    options.receives = 0;
    options.receive_queue = srq;
    struct queue *shared = end_datagrams(&pair->far, &options);
    assert_int_equal(queue_close(srq), CRPC_E_BUSY);
    assert_int_equal(end_receive(&pair->far, srq, 0, 64, 5), CRPC_OK);
    assert_int_equal(end_receive(&pair->far, srq, 64, 64, 6), CRPC_OK);
    send_all(pair, pair_target(pair, shared), 1);
    end_wait(&pair->far, 1);
    const crpc_completion *done = end_expect_op(&pair->far, 0, handle_of(shared), 5, CRPC_OK);
    assert_int_equal(done->token, pair->queue->number);
    end_forget(&pair->far);
    uint64_t handle = handle_of(srq);
    assert_int_equal(queue_close(shared), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK);
    end_wait(&pair->far, 1);
    end_expect_op(&pair->far, 0, handle, 6, CRPC_E_CLOSED);
}

#define DATAGRAM_TEST(name) cmocka_unit_test_setup_teardown(name, datagrams_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATAGRAM_TEST(a_datagram_reaches_its_target_and_is_answered),
        DATAGRAM_TEST(a_queue_for_datagrams_is_usable_at_once),
        DATAGRAM_TEST(a_full_queue_says_when_there_is_room),
        DATAGRAM_TEST(ops_that_name_a_closed_target_go_on),
        DATAGRAM_TEST(a_queue_that_ends_lets_its_targets_go),
        DATAGRAM_TEST(an_engine_frees_the_targets_that_are_left),
        DATAGRAM_TEST(an_address_that_nobody_can_have_makes_no_target),
        DATAGRAM_TEST(a_queue_that_is_failed_flushes_all_that_is_open),
        DATAGRAM_TEST(an_op_that_the_device_refuses_ends_the_queue),
        DATAGRAM_TEST(a_datagram_that_is_too_long_ends_the_queue_that_gets_it),
        DATAGRAM_TEST(a_queue_drains),
        DATAGRAM_TEST(a_sparse_queue_drains),
        DATAGRAM_TEST(a_lost_device_ends_all_and_makes_no_targets),
        DATAGRAM_TEST(receives_may_be_those_of_an_srq),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

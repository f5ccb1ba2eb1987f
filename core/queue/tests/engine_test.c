/* engine_test.c: queues that are connected: ops, room, errors, and what a poll gives in which order. */
#include <string.h>

#include "pair.h"

static void receive(struct pair *pair, uint32_t bytes, uint64_t user_data)
{
    assert_int_equal(
        end_receive(&pair->far, pair->peer, 2048 + 64 * (uint32_t)user_data, bytes, user_data),
        CRPC_OK);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void every_op_gives_back_its_user_data(void **state)
{
    struct pair *pair = *state;
    uint64_t word = 40;
    memcpy(pair->far.memory + 64, &word, sizeof(word));
    for (uint32_t i = 0; i < 4; i++) {
        receive(pair, 64, i);
    }
    struct nic_work works[9];
    for (uint8_t i = 0; i < 9; i++) {
        works[i] = pair_work(pair, (uint8_t)(NIC_SEND + i), 0, 100 + i);
        works[i].immediate = 1000 + i;
    }
    works[NIC_COMPARE_SWAP - 1] = pair_work(pair, NIC_COMPARE_SWAP, 64, 106);
    works[NIC_COMPARE_SWAP - 1].address = 40; /* becomes 5 */
    works[NIC_FETCH_ADD - 1] = pair_work(pair, NIC_FETCH_ADD, 64, 107);
    works[NIC_SEND_INVALIDATE - 1].opcode = NIC_SEND; /* there is no window */
    memcpy(pair->near.memory, "eight by", 8);
    pair_submit(pair, works, 9);
    end_wait(&pair->near, 9);
    for (uint32_t i = 0; i < 9; i++) {
        const crpc_completion *seen =
            end_expect_op(&pair->near, i, handle_of(pair->queue), 100 + i, CRPC_OK);
        assert_int_equal(seen->method, works[i].opcode);
        assert_int_equal(seen->endpoint_user_data, 77);
    }
    assert_int_equal(pair->near.seen[6].token, 40);
    assert_int_equal(pair->near.seen[7].token, 5);
    end_wait(&pair->far, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const crpc_completion *seen =
            end_expect_op(&pair->far, i, handle_of(pair->peer), i, CRPC_OK);
        assert_int_equal(seen->method, NIC_RECEIVE);
        assert_int_equal(seen->payload_bytes, i < 3 ? 8 : 0); /* the last is a WRITE */
        assert_int_equal(seen->token, i < 3 ? 0 : 8);
        if (i < 3) {
            assert_memory_equal(pair->far.memory + 2048 + 64 * i, "eight by", 8);
        }
    }
    assert_int_equal(pair->far.seen[1].reply_bytes_max, 1001);
    assert_true(pair->far.seen[1].flags & NIC_DONE_IMMEDIATE);
    assert_int_equal(pair->far.seen[3].reply_bytes_max, 1004);
    memcpy(&word, pair->far.memory + 64, sizeof(word));
    assert_int_equal(word, 10);
    assert_memory_equal(pair->far.memory, "eight by", 8);
}

static void small_polls_give_each_completion_once(void **state)
{
    struct pair *pair = *state;
    struct nic_work works[16];
    for (uint32_t i = 0; i < 16; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
    }
    pair_submit(pair, works, 16);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(end_poll(&pair->near, 1), 1);
    }
    end_wait(&pair->near, 16);
    for (uint32_t i = 0; i < 16; i++) {
        end_expect_op(&pair->near, i, handle_of(pair->queue), i, CRPC_OK);
    }
}

static void what_was_looked_at_comes_with_the_next_poll(void **state)
{
    struct pair *pair = *state;
    struct nic_work works[3];
    assert_false(queue_something_waits(pair->near.engine));
    for (uint32_t i = 0; i < 3; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
    }
    pair_submit(pair, works, 2);
    queue_progress(pair->near.engine);
    assert_true(queue_something_waits(pair->near.engine));
    pair_submit(pair, works + 2, 1);
    queue_progress(pair->near.engine);
    assert_int_equal(end_poll(&pair->near, 1), 1);
    assert_true(queue_something_waits(pair->near.engine));
    end_wait(&pair->near, 3);
    for (uint32_t i = 0; i < 3; i++) {
        end_expect_op(&pair->near, i, handle_of(pair->queue), i, CRPC_OK);
    }
    assert_false(queue_something_waits(pair->near.engine));
}

/* ---- Room ------------------------------------------------------------------------------------ */

static void a_full_queue_says_so_and_reports_room_once(void **state)
{
    struct pair *pair = *state;
    struct nic_work works[20];
    uint32_t keys[20];
    int32_t reason = CRPC_OK;
    for (uint32_t i = 0; i < 20; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
        keys[i] = pair->near.keys.local_key;
    }
    memory_fabric_stall(pair->queue->link.queue_pair, 10);
    assert_int_equal(queue_submit(pair->queue, works, keys, NULL, 20, &reason), 16);
    assert_int_equal(reason, CRPC_E_AGAIN);
    queue_submit_end(pair->queue);
    reason = CRPC_OK;
    assert_int_equal(queue_submit(pair->queue, works + 16, keys, NULL, 4, &reason), 0);
    assert_int_equal(reason, CRPC_E_AGAIN);
    end_wait(&pair->near, 17);
    end_expect_event(&pair->near, 16, handle_of(pair->queue), CRPC_COMPLETION_ROOM, CRPC_OK);
    end_forget(&pair->near);
    pair_submit(pair, works + 16, 4);
    end_wait(&pair->near, 4);
}

static void a_full_receive_queue_says_so_and_reports_room_once(void **state)
{
    struct pair *pair = *state;
    for (uint32_t i = 0; i < 16; i++) {
        receive(pair, 64, i);
    }
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 8, 16), CRPC_E_AGAIN);
    end_wait(&pair->far, 0);
    pair_submit_one(pair, NIC_SEND, 1);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 0, CRPC_OK);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_ROOM, CRPC_OK);
    receive(pair, 64, 16);
}

static void a_queue_without_sends_or_receives_refuses_them(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = pair_options(), far = pair_options();
    near.sends = 0;
    far.receives = 0;
    pair_join(pair, &near, &far);
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 1);
    assert_int_equal(end_submit(&pair->near, pair->queue, &work), CRPC_E_UNSUPPORTED);
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 8, 1), CRPC_E_UNSUPPORTED);
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 1), CRPC_OK);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The ops after it are flushed, and DISCONNECTED is last. */
static void an_op_that_the_peer_refuses_fails_its_queue(void **state)
{
    struct pair *pair = *state;
    struct nic_work works[4];
    crpc_error error;
    for (uint32_t i = 0; i < 4; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
    }
    works[1].remote_key ^= 0x100;
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 9), CRPC_OK);
    pair_submit(pair, works, 4);
    end_wait(&pair->near, 6);
    assert_int_equal(end_count(&pair->near, CRPC_OK), 1);
    assert_int_equal(end_count(&pair->near, CRPC_E_ACCESS), 1);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 3);
    end_expect_event(&pair->near, 5, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_ACCESS);
    queue_get_error(pair->queue, &error);
    assert_int_equal(error.status, CRPC_E_ACCESS);
    assert_non_null(strstr(error.message, "refused the address"));
    assert_int_equal(end_submit(&pair->near, pair->queue, &works[0]), CRPC_E_DISCONNECTED);
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 9), CRPC_E_DISCONNECTED);
    assert_int_equal(queue_fail(pair->queue), CRPC_E_STATE);
}

static void a_receive_that_is_too_short_says_so_at_both_sides(void **state)
{
    struct pair *pair = *state;
    receive(pair, 7, 1);
    receive(pair, 64, 2);
    pair_submit_one(pair, NIC_SEND, 1);
    end_wait(&pair->far, 3);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 1, CRPC_E_TRUNCATED);
    end_expect_op(&pair->far, 1, handle_of(pair->peer), 2, CRPC_E_FLUSHED);
    end_expect_event(&pair->far, 2, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_TRUNCATED);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_ACCESS);
}

static void a_peer_without_a_receive_is_told_apart(void **state)
{
    struct pair *pair = *state;
    memory_fabric_options(pair->fabric)->receiver_not_ready_fails = true;
    pair_submit_one(pair, NIC_SEND, 1);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_NOT_READY);
}

static void memory_that_is_not_registered_is_an_error_of_our_device(void **state)
{
    struct pair *pair = *state;
    struct nic_work work = pair_work(pair, NIC_WRITE, PAIR_BYTES - 4, 1);
    work.remote_address = (uint64_t)(uintptr_t)pair->far.memory;
    pair_submit(pair, &work, 1);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_DEVICE);
}

static void a_peer_that_is_gone_is_a_lost_connection(void **state)
{
    struct pair *pair = *state;
    memory_fabric_options(pair->fabric)->retry_steps = 20;
    memory_fabric_cut(pair->peer->link.queue_pair);
    pair_submit_one(pair, NIC_WRITE, 1);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_DISCONNECTED);
    end_expect_event(&pair->near, 1, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

/* A flush that is seen first is not the cause. */
static void the_error_of_a_queue_is_the_cause_and_not_its_consequence(void **state)
{
    struct pair *pair = *state;
    crpc_error error;
    struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    work.remote_key ^= 0x100;
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 9), CRPC_OK);
    pair_submit(pair, &work, 1);
    end_poll(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 9, CRPC_E_FLUSHED);
    end_wait(&pair->near, 3);
    queue_get_error(pair->queue, &error);
    assert_int_equal(error.status, CRPC_E_ACCESS);
}

static void expect_reason(struct queue *queue, int32_t status, const char *text)
{
    crpc_error error;
    queue_get_error(queue, &error);
    assert_int_equal(error.status, status);
    assert_non_null(strstr(error.message, text));
}

/* rdma_cm is asked before the device. So the peer's leaving is seen before the error for which it has left. */
static void an_op_that_failed_explains_more_than_that_the_peer_has_left(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    pair_connect(pair, &options, &options);
    struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    work.remote_key ^= 0x100;
    receive_near(pair, 1);
    pair_submit(pair, &work, 1);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    end_wait(&pair->near, 3);
    end_expect_event(&pair->near, 2, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_ACCESS);
    expect_reason(pair->queue, CRPC_E_ACCESS, "refused the address");

    end_forget(&pair->near);
    pair_connect(pair, &options, &options);
    receive(pair, 7, 1);
    pair_submit_one(pair, NIC_SEND, 1);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_TRUNCATED);
    expect_reason(pair->peer, CRPC_E_TRUNCATED, "longer than the receive");
}

/* Its device does not answer because it has left. */
static void that_the_peer_has_left_explains_more_than_that_it_does_not_answer(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    crpc_completion nothing;
    uint32_t errors;
    pair_connect(pair, &options, &options);
    memory_fabric_options(pair->fabric)->retry_steps = 20;
    memory_fabric_cut(pair->peer->link.queue_pair);
    pair_submit_one(pair, NIC_WRITE, 1);
    for (uint32_t i = 0; i < 100; i++) { /* time passes for the device alone */
        pair->near.nic->operations->queues->poll(pair->near.nic, &nothing, 0, &errors);
    }
    assert_int_equal(queue_fail(pair->peer), CRPC_OK);
    end_wait(&pair->far, 1);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_DISCONNECTED);
    expect_reason(pair->queue, CRPC_E_DISCONNECTED, "the peer closed the connection");
}

static void an_event_of_the_device_fails_its_queue(void **state)
{
    struct pair *pair = *state;
    receive(pair, 8, 1);
    fake_cm_device_event(&pair->far.cm, CM_EVENT_QUEUE_PAIR, pair->peer->number + 1,
                         CRPC_E_DISCONNECTED);
    end_wait(&pair->far, 0);
    fake_cm_device_event(&pair->far.cm, CM_EVENT_QUEUE_PAIR, pair->peer->number,
                         CRPC_E_DISCONNECTED);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 1, CRPC_E_FLUSHED);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

/* ---- Shared receives ------------------------------------------------------------------------- */

static void an_srq_receives_for_several_queues(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = pair_options(), far = pair_options();
    struct queue *srq = end_srq(&pair->far, 16);
    struct queue *queues[2], *peers[2];
    struct queue_info info;
    const uint64_t shared = handle_of(srq);
    far.receives = 0;
    far.receive_queue = srq;
    for (uint32_t i = 0; i < 2; i++) {
        far.user_data = i;
        pair_join(pair, &near, &far);
        queues[i] = pair->queue;
        peers[i] = pair->peer;
    }
    queue_get_info(srq, &info);
    assert_int_equal(info.users, 2);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    queue_get_info(peers[0], &info);
    assert_int_equal(info.receive_queue, handle_of(srq));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(end_receive(&pair->far, srq, 64 * i, 64, i), CRPC_OK);
    }
    assert_int_equal(end_receive(&pair->far, peers[0], 0, 8, 1), CRPC_E_UNSUPPORTED);
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 5);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(end_submit(&pair->near, queues[i], &work), CRPC_OK);
        end_wait(&pair->far, i + 1);
        const crpc_completion *seen = end_expect_op(&pair->far, i, handle_of(peers[i]), i, CRPC_OK);
        assert_int_equal(seen->endpoint_user_data, i);
    }

    /* One fails, and the SRQ goes on. */
    end_forget(&pair->far);
    assert_int_equal(queue_fail(peers[0]), CRPC_OK);
    end_wait(&pair->far, 1);
    end_expect_event(&pair->far, 0, handle_of(peers[0]), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
    assert_int_equal(end_submit(&pair->near, queues[1], &work), CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 1, handle_of(peers[1]), 2, CRPC_OK);

    /* It ends when nobody uses it. */
    end_forget(&pair->far);
    assert_int_equal(queue_close(srq), CRPC_E_BUSY);
    assert_int_equal(queue_close(peers[1]), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK); /* the other is disconnected */
    end_wait(&pair->far, 1);
    end_expect_op(&pair->far, 0, shared, 3, CRPC_E_CLOSED);
    assert_int_equal(queue_engine_queues(pair->far.engine), 1);
}

static void an_srq_neither_sends_nor_leaves(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = end_srq(&pair->far, 4);
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 5);
    assert_int_equal(end_submit(&pair->far, srq, &work), CRPC_E_UNSUPPORTED);
    assert_int_equal(queue_fail(srq), CRPC_E_UNSUPPORTED);
    assert_int_equal(queue_drain(srq, 0), CRPC_E_UNSUPPORTED);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(end_receive(&pair->far, srq, 0, 8, i), CRPC_OK);
    }
    assert_int_equal(end_receive(&pair->far, srq, 0, 8, 4), CRPC_E_AGAIN);
    end_wait(&pair->far, 0);
}

/* ---- Sparse queues --------------------------------------------------------------------------- */

static void ops_without_the_flag_complete_in_a_sparse_queue_only_if_they_fail(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.flags = QUEUE_SPARSE;
    pair_join(pair, &options, &options);
    struct nic_work works[4];
    for (uint32_t i = 0; i < 4; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 0, i);
    }
    works[2].flags = NIC_WORK_SIGNAL;
    pair_submit(pair, works, 4);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 2, CRPC_OK);
    end_forget(&pair->near);
    works[0].remote_key ^= 0x100;
    pair_submit(pair, works, 1);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 0, CRPC_E_ACCESS);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, pair_connected, pair_close)
#define OPEN(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)
    const struct CMUnitTest tests[] = {
        ONE(every_op_gives_back_its_user_data),
        ONE(small_polls_give_each_completion_once),
        ONE(what_was_looked_at_comes_with_the_next_poll),
        ONE(a_full_queue_says_so_and_reports_room_once),
        ONE(a_full_receive_queue_says_so_and_reports_room_once),
        OPEN(a_queue_without_sends_or_receives_refuses_them),
        ONE(an_op_that_the_peer_refuses_fails_its_queue),
        ONE(a_receive_that_is_too_short_says_so_at_both_sides),
        ONE(a_peer_without_a_receive_is_told_apart),
        ONE(memory_that_is_not_registered_is_an_error_of_our_device),
        ONE(a_peer_that_is_gone_is_a_lost_connection),
        ONE(the_error_of_a_queue_is_the_cause_and_not_its_consequence),
        OPEN(an_op_that_failed_explains_more_than_that_the_peer_has_left),
        OPEN(that_the_peer_has_left_explains_more_than_that_it_does_not_answer),
        ONE(an_event_of_the_device_fails_its_queue),
        OPEN(an_srq_receives_for_several_queues),
        OPEN(an_srq_neither_sends_nor_leaves),
        OPEN(ops_without_the_flag_complete_in_a_sparse_queue_only_if_they_fail),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

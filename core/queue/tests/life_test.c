/* life_test.c: how queues end. */
#include <string.h>

#include "pair.h"

/* ---- Failing --------------------------------------------------------------------------------- */

static void a_queue_that_is_failed_flushes_all_that_is_open(void **state)
{
    struct pair *pair = *state;
    receive_near(pair, 3);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    submit_writes(pair, 4);
    assert_int_equal(queue_fail(pair->queue), CRPC_OK);
    assert_int_equal(queue_fail(pair->queue), CRPC_E_STATE);
    end_wait(&pair->near, 8);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 7);
    end_expect_event(&pair->near, 7, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
    assert_false(queue_something_waits(pair->near.engine));
}

/* What a device that has gone mad never says. */
static void flush_nothing(struct nic_queue *queue)
{
    (void)queue;
}

static void a_device_that_does_not_flush_is_not_waited_for(void **state)
{
    struct pair *pair = *state;
    struct nic_queue_operations mad = *pair->queue->operations;
    mad.flush = flush_nothing;
    receive_near(pair, 3);
    pair->queue->operations = &mad;
    assert_int_equal(queue_fail(pair->queue), CRPC_OK);
    end_wait(&pair->near, 0);
    assert_false(queue_something_waits(pair->near.engine));
    assert_true(queue_next_deadline_ns(pair->near.engine) < UINT64_MAX);
    pair->clock_ns += QUEUE_FLUSH_TIMEOUT_NS + 10000000;
    end_wait(&pair->near, 4);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 3);
    end_expect_event(&pair->near, 3, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
    pair->queue->operations = pair->near.engine->operations;
}

/* They were done, so the device has nothing to flush. */
static void a_sparse_queue_that_fails_does_not_wait_for_ops_that_never_complete(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.flags = QUEUE_SPARSE;
    pair_join(pair, &options, &options);
    submit_writes(pair, 3);
    end_wait(&pair->near, 0);
    receive_near(pair, 1);
    assert_int_equal(queue_fail(pair->queue), CRPC_OK);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 100, CRPC_E_FLUSHED);
    pair->clock_ns += QUEUE_SILENT_TIMEOUT_NS + 1000000;
    end_wait(&pair->near, 2);
    end_expect_event(&pair->near, 1, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

/* However small the polls: an SRQ's receives are not the queue's, so nothing of it is open. */
static void messages_that_came_before_the_end_are_not_lost(void **state)
{
    struct pair *pair = *state;
    const struct queue_options near = pair_options();
    struct queue_options far = pair_options();
    far.receives = 0;
    far.receive_queue = end_srq(&pair->far, 16);
    pair_join(pair, &near, &far);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(end_receive(&pair->far, far.receive_queue, 64 * i, 64, i), CRPC_OK);
        pair_submit_one(pair, NIC_SEND, i);
    }
    fake_cm_device_event(&pair->far.cm, CM_EVENT_QUEUE_PAIR, pair->peer->number,
                         CRPC_E_DISCONNECTED);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(end_poll(&pair->far, 1), 1);
        assert_true(queue_something_waits(pair->far.engine) || i < 2);
    }
    end_wait(&pair->far, 4);
    for (uint32_t i = 0; i < 3; i++) {
        end_expect_op(&pair->far, i, handle_of(pair->peer), i, CRPC_OK);
    }
    end_expect_event(&pair->far, 3, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

static void a_peer_that_disconnects_flushes_the_other_side(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    pair_connect(pair, &options, &options);
    receive_near(pair, 2);
    submit_writes(pair, 2);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    end_wait(&pair->near, 5);
    assert_int_equal(end_count(&pair->near, CRPC_OK), 2); /* they were done before */
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 2);
    end_expect_event(&pair->near, 4, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
}

/* An event of our device says less than the op that failed. */
static void a_message_that_was_too_long_is_why_the_queue_ends(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 4, 1), CRPC_OK);
    pair_submit_one(pair, NIC_SEND, 2);
    end_wait(&pair->near, 2);
    fake_cm_device_event(&pair->far.cm, CM_EVENT_QUEUE_PAIR, pair->peer->number, CRPC_E_PROTOCOL);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 1, CRPC_E_TRUNCATED);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_TRUNCATED);
}

static void a_lost_device_ends_all_ops_at_once(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    struct queue *srq = end_srq(&pair->near, 4);
    uint8_t blob[LINK_BLOB_BYTES];
    crpc_error error = {0};
    struct link *link;
    options.receives = 0;
    options.receive_queue = srq;
    const struct queue_options far = pair_options();
    pair_join(pair, &options, &far);
    assert_int_equal(end_receive(&pair->near, srq, 0, 8, 50), CRPC_OK);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    submit_writes(pair, 2);
    fake_cm_device_event(&pair->near.cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
    end_wait(&pair->near, 5);
    assert_int_equal(end_count(&pair->near, CRPC_E_NO_DEVICE), 3);
    uint32_t events = 0;
    for (uint32_t i = 0; i < 5; i++) {
        const crpc_completion *seen = &pair->near.seen[i];
        if (seen->kind == CRPC_COMPLETION_DISCONNECTED) {
            assert_int_equal(seen->status, CRPC_E_NO_DEVICE);
            events++;
        }
    }
    assert_int_equal(events, 2);
    assert_int_equal(end_receive(&pair->near, srq, 0, 8, 51), CRPC_E_DISCONNECTED);
    assert_int_equal(link_blob(queue_links(pair->near.engine), &far, &link, blob, &error),
                     CRPC_E_NO_DEVICE);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK);
    end_wait(&pair->near, 5);
}

/* ---- Draining -------------------------------------------------------------------------------- */

static void a_queue_drains_before_it_disconnects(void **state)
{
    struct pair *pair = *state;
    const struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    receive_near(pair, 2);
    memory_fabric_stall(pair->queue->link.queue_pair, 20);
    submit_writes(pair, 3);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(end_submit(&pair->near, pair->queue, &work), CRPC_E_CLOSING);
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 102), CRPC_OK);
    end_wait(&pair->near, 7);
    for (uint32_t i = 0; i < 3; i++) {
        end_expect_op(&pair->near, i, handle_of(pair->queue), i, CRPC_OK);
    }
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 3);
    end_expect_event(&pair->near, 6, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED, CRPC_OK);
}

static void a_queue_with_nothing_open_drains_at_once(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(queue_drain(pair->queue, 0), CRPC_OK);
    assert_true(queue_something_waits(pair->near.engine));
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED, CRPC_OK);
}

/* A sparse queue does not know of its last ops: a NOP that nobody sees tells it. */
static void a_sparse_queue_drains_what_does_not_complete(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.flags = QUEUE_SPARSE;
    pair_join(pair, &options, &options);
    struct nic_work works[3];
    for (uint32_t i = 0; i < 3; i++) {
        works[i] = pair_work(pair, NIC_WRITE, 8 * i, i);
    }
    works[1].opcode = NIC_NOP; /* of the application */
    works[1].flags = NIC_WORK_SIGNAL;
    memcpy(pair->near.memory, "aaaaaaaabbbbbbbbcccccccc", 24);
    memory_fabric_stall(pair->queue->link.queue_pair, 20);
    pair_submit(pair, works, 3);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK); /* again */
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_OK);
    end_expect_event(&pair->near, 1, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED, CRPC_OK);
    assert_memory_equal(pair->far.memory + 16, "cccccccc", 8);
    assert_int_equal(pair->near.engine->nops, 0);
}

/* Also if it is closed or fails before the NOP completes, or while it finds no room. */
static void the_nop_of_a_drained_queue_is_never_seen(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.flags = QUEUE_SPARSE;
    for (uint32_t way = 0; way < 4; way++) {
        uint32_t count = way & 1 ? 16 : 3;
        pair_join(pair, &options, &options);
        memory_fabric_stall(pair->queue->link.queue_pair, 100);
        struct nic_work works[16];
        for (uint32_t i = 0; i < count; i++) {
            works[i] = pair_work(pair, NIC_NOP, 0, i);
            works[i].flags = NIC_WORK_SIGNAL;
        }
        pair_submit(pair, works, count);
        assert_int_equal(queue_drain(pair->queue, 1000000000), CRPC_OK);
        if (way & 2) {
            assert_int_equal(queue_close(pair->queue), CRPC_OK);
            end_wait(&pair->near, count);
            assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), count);
        } else {
            assert_int_equal(queue_fail(pair->queue), CRPC_OK);
            end_wait(&pair->near, count + 1);
            assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), count);
            assert_int_equal(queue_close(pair->queue), CRPC_OK);
        }
        assert_int_equal(pair->near.engine->nops, 0);
        end_forget(&pair->near);
        assert_int_equal(queue_close(pair->peer), CRPC_OK);
    }
}

static void a_drain_that_takes_too_long_is_given_up(void **state)
{
    struct pair *pair = *state;
    memory_fabric_stall(pair->queue->link.queue_pair, 100000);
    submit_writes(pair, 3);
    assert_int_equal(queue_drain(pair->queue, 50000000), CRPC_OK);
    end_wait(&pair->near, 0);
    pair->clock_ns += 100000000;
    end_wait(&pair->near, 4);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 3);
    end_expect_event(&pair->near, 3, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_TIMEOUT);
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void a_queue_that_is_closed_ends_each_op_once(void **state)
{
    struct pair *pair = *state;
    uint64_t handle = handle_of(pair->queue);
    receive_near(pair, 5);
    submit_writes(pair, 2); /* done, and nobody has asked */
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    submit_writes(pair, 4);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_null(handles_get(&pair->near.handles, handle, HANDLE_QUEUE));
    assert_true(queue_something_waits(pair->near.engine));
    for (uint32_t i = 0; i < 11; i++) { /* however small the polls */
        assert_int_equal(end_poll(&pair->near, 1), 1);
    }
    end_wait(&pair->near, 11);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 11);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
    assert_false(queue_something_waits(pair->near.engine));
}

static void a_queue_that_fails_can_be_closed_before_it_is_over(void **state)
{
    struct pair *pair = *state;
    receive_near(pair, 3);
    assert_int_equal(queue_fail(pair->queue), CRPC_OK);
    end_poll(&pair->near, 1);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 3); /* and no DISCONNECTED */
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 1);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 2);
    assert_int_equal(queue_next_deadline_ns(pair->near.engine), UINT64_MAX);
}

/* What the engine has taken from the device was done. */
static void what_was_looked_at_is_not_lost_by_a_close(void **state)
{
    struct pair *pair = *state;
    submit_writes(pair, 3);
    queue_progress(pair->near.engine);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 3);
    assert_int_equal(end_count(&pair->near, CRPC_OK), 3);
}

static void an_engine_can_end_with_ops_open(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    receive_near(pair, 3);
    options.receive_queue = end_srq(&pair->near, 4);
    options.receives = 0;
    const struct queue_options far = pair_options();
    pair_join(pair, &options, &far);
    assert_int_equal(end_receive(&pair->near, options.receive_queue, 0, 8, 1), CRPC_OK);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    submit_writes(pair, 4);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, pair_connected, pair_close)
#define OPEN(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)
    const struct CMUnitTest tests[] = {
        ONE(a_queue_that_is_failed_flushes_all_that_is_open),
        ONE(a_device_that_does_not_flush_is_not_waited_for),
        OPEN(a_sparse_queue_that_fails_does_not_wait_for_ops_that_never_complete),
        OPEN(messages_that_came_before_the_end_are_not_lost),
        OPEN(a_peer_that_disconnects_flushes_the_other_side),
        ONE(a_message_that_was_too_long_is_why_the_queue_ends),
        OPEN(a_lost_device_ends_all_ops_at_once),
        ONE(a_queue_drains_before_it_disconnects),
        ONE(a_queue_with_nothing_open_drains_at_once),
        OPEN(a_sparse_queue_drains_what_does_not_complete),
        OPEN(the_nop_of_a_drained_queue_is_never_seen),
        ONE(a_drain_that_takes_too_long_is_given_up),
        ONE(a_queue_that_is_closed_ends_each_op_once),
        ONE(a_queue_that_fails_can_be_closed_before_it_is_over),
        ONE(what_was_looked_at_is_not_lost_by_a_close),
        ONE(an_engine_can_end_with_ops_open),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* dc_test.c: DCIs, their streams, and DCTs, below the public API, whose tests have the rest
 * (capi/tests/dc_test.c). */
#include <string.h>

#include "pair.h"

#define KEY UINT64_C(0x1122334455667788)
#define STREAMS 4u

static struct queue_options dci_options(uint32_t streams)
{
    struct queue_options options = pair_options();
    options.kind = NIC_QUEUE_DCI;
    options.receives = options.receive_pieces = 0;
    options.streams = streams;
    options.stream_failures_max = streams;
    return options;
}

static struct queue *open_dct(struct end *end, struct queue *srq)
{
    const struct queue_options options = {
        .kind = NIC_QUEUE_DCT, .user_data = 99, .receive_queue = srq, .access_key = KEY};
    return end_datagrams(end, &options);
}

static struct nic_target_options target_options(const struct queue *dct)
{
    struct queue_info info;
    queue_get_info(dct, &info);
    return (struct nic_target_options){
        .kind = NIC_QUEUE_DCI, .access_key = KEY, .address = info.address};
}

static struct queue_target *target_of(struct pair *pair, const struct queue *dct)
{
    const struct nic_target_options options = target_options(dct);
    struct queue_target *target;
    crpc_error error = {0};
    assert_int_equal(queue_target_open(pair->near.engine, &options, &target, &error), CRPC_OK);
    return target;
}

/* A DCI without streams, and a DCT. */
static int dc_open(void **state)
{
    const struct queue_options options = dci_options(0);
    pair_open(state);
    struct pair *pair = *state;
    pair->queue = end_datagrams(&pair->near, &options);
    pair->peer = open_dct(&pair->far, end_srq(&pair->far, 16));
    return 0;
}

static uint64_t targets_alive(const struct pair *pair)
{
    return memory_fabric_counters(pair->fabric)->targets;
}

static int32_t submit_to(struct pair *pair, struct queue *queue, struct nic_work work,
                         struct queue_target *target)
{
    struct nic_target *to = queue_target_nic(target);
    int32_t reason = CRPC_OK;
    uint32_t taken =
        queue_submit_to(queue, &work, &to, &pair->near.keys.local_key, NULL, 1, &reason);
    queue_submit_end(queue);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

/* WRITEs numbered from `first`, of streams in turn. */
static void write_some(struct pair *pair, struct queue *queue, struct queue_target *target,
                       uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        struct nic_work work = pair_work(pair, NIC_WRITE, 8 * i, i);
        work.stream = queue->options.streams ? (uint16_t)(i % queue->options.streams) : 0;
        assert_int_equal(submit_to(pair, queue, work, target), CRPC_OK);
    }
}

/* ---- What a device has ----------------------------------------------------------------------- */

static void a_device_without_dc_says_so(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = dci_options(2);
    const struct queue_options of_dct = {.kind = NIC_QUEUE_DCT,
                                         .receive_queue = end_srq(&pair->near, 4)};
    const struct nic_target_options of_target = target_options(pair->peer);
    struct queue *queue;
    struct queue_target *target;
    crpc_error error = {0};
    const uint32_t queues = queue_engine_queues(pair->near.engine);
    pair->near.nic->dc = false;
    assert_int_equal(queue_open(pair->near.engine, &options, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    assert_int_equal(queue_open(pair->near.engine, &of_dct, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    assert_int_equal(queue_target_open(pair->near.engine, &of_target, &target, &error),
                     CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    pair->near.nic->dc = true;
    pair->near.nic->streams_max = 1;
    assert_int_equal(queue_open(pair->near.engine, &options, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "can have 1"));
    assert_int_equal(queue_engine_queues(pair->near.engine), queues);
    assert_int_equal(targets_alive(pair), 0);
}

/* ---- Targets --------------------------------------------------------------------------------- */

/* Ops of streams complete in any order, and the target is needed until the last of them has. */
static void ops_of_streams_that_name_a_closed_target_go_on(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = dci_options(STREAMS);
    struct queue *streams = end_datagrams(&pair->near, &options);
    struct queue_target *target = target_of(pair, pair->peer);
    memory_fabric_stall(streams->link.queue_pair, 200);
    write_some(pair, streams, target, 0, 8);
    queue_target_close(target);
    assert_int_equal(targets_alive(pair), 1);
    end_wait(&pair->near, 8);
    queue_target_close(target_of(pair, pair->peer));
    assert_int_equal(targets_alive(pair), 0);
    assert_int_equal(end_count(&pair->near, CRPC_OK), 8);
}

static void a_dci_that_ends_lets_its_targets_go(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = target_of(pair, pair->peer);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    write_some(pair, pair->queue, target, 0, 3);
    queue_target_close(target);
    assert_int_equal(targets_alive(pair), 1);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_int_equal(targets_alive(pair), 0);
    end_wait(&pair->near, 3);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 3);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

/* It is the DCI's message, and its end; others go on. */
static void a_message_that_is_too_long_does_not_end_a_dct(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = dci_options(0);
    struct queue *other = end_datagrams(&pair->near, &options);
    struct queue_target *target = target_of(pair, pair->peer);
    assert_int_equal(end_receive(&pair->far, pair->peer->srq, 0, 7, 5), CRPC_OK);
    assert_int_equal(end_receive(&pair->far, pair->peer->srq, 64, 64, 6), CRPC_OK);
    struct nic_work work = pair_work(pair, NIC_SEND, 0, 1);
    assert_int_equal(submit_to(pair, pair->queue, work, target), CRPC_OK);
    end_wait(&pair->far, 1);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 5, CRPC_E_TRUNCATED);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_E_ACCESS);
    end_expect_event(&pair->near, 1, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_ACCESS);
    end_forget(&pair->near);
    assert_int_equal(submit_to(pair, other, work, target), CRPC_OK);
    end_wait(&pair->far, 2);
    const crpc_completion *done = end_expect_op(&pair->far, 1, handle_of(pair->peer), 6, CRPC_OK);
    assert_int_equal(done->token, other->number);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(other), 1, CRPC_OK);
}

/* What the engine keeps has completed for the device, and its stream can be reset. */
static void a_stream_fails_while_completions_are_kept(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = dci_options(STREAMS);
    struct queue *streams = end_datagrams(&pair->near, &options);
    struct queue_target *target = target_of(pair, pair->peer);
    struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    struct queue_info info;
    crpc_error error = {0};
    work.stream = 2;
    work.remote_key ^= 0x5500;
    memory_fabric_stall(streams->link.queue_pair, 20);
    assert_int_equal(submit_to(pair, streams, work, target), CRPC_OK);
    assert_int_equal(queue_reset_stream(streams, 2, &error), CRPC_E_BUSY);
    for (uint32_t i = 0; i < 100 && !queue_something_waits(pair->near.engine); i++) {
        queue_progress(pair->near.engine);
    }
    assert_true(queue_something_waits(pair->near.engine));
    queue_get_info(streams, &info);
    assert_int_equal(info.streams, STREAMS);
    assert_int_equal(info.streams_failed, 1);
    assert_int_equal(queue_reset_stream(streams, 2, &error), CRPC_OK);
    queue_get_info(streams, &info);
    assert_int_equal(info.streams_failed, 0);
    work = pair_work(pair, NIC_WRITE, 0, 2);
    work.stream = 2;
    assert_int_equal(submit_to(pair, streams, work, target), CRPC_OK);
    end_wait(&pair->near, 2);
    end_expect_op(&pair->near, 0, handle_of(streams), 1, CRPC_E_ACCESS);
    end_expect_op(&pair->near, 1, handle_of(streams), 2, CRPC_OK);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void drain(struct pair *pair, uint32_t sends_seen)
{
    struct queue_target *target = target_of(pair, pair->peer);
    struct nic_work work = pair_work(pair, NIC_WRITE, 0, 9);
    write_some(pair, pair->queue, target, 0, 5);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(submit_to(pair, pair->queue, work, target), CRPC_E_CLOSING);
    end_wait(&pair->near, sends_seen + 1);
    end_expect_event(&pair->near, sends_seen, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_OK);
    end_forget(&pair->near);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
}

/* A sparse one by a NOP, or because each of its ops has a CQE. */
static void a_dci_drains(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = dci_options(0);
    drain(pair, 5);
    options.flags = QUEUE_SPARSE;
    pair->queue = end_datagrams(&pair->near, &options);
    drain(pair, 0);
    pair->queue = end_datagrams(&pair->near, &options);
    pair->queue->nic->interval = 1;
    drain(pair, 0);
    options = dci_options(STREAMS);
    pair->queue = end_datagrams(&pair->near, &options);
    drain(pair, 5);
}

/* Messages that came before are reported: the queue goes when the device has nothing more to give. */
static void a_dct_that_is_failed_tells_what_has_come(void **state)
{
    struct pair *pair = *state;
    struct queue_target *target = target_of(pair, pair->peer);
    struct queue *srq = pair->peer->srq;
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 1);
    assert_int_equal(end_receive(&pair->far, srq, 0, 64, 5), CRPC_OK);
    assert_int_equal(end_receive(&pair->far, srq, 64, 64, 6), CRPC_OK);
    assert_int_equal(submit_to(pair, pair->queue, work, target), CRPC_OK);
    end_wait(&pair->near, 1);
    assert_int_equal(queue_fail(pair->peer), CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle_of(pair->peer), 5, CRPC_OK);
    end_expect_event(&pair->far, 1, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
    assert_int_equal(queue_close(srq), CRPC_OK); /* nobody uses it any more */
    end_wait(&pair->far, 3);
    assert_int_equal(pair->far.seen[2].user_data, 6);
    assert_int_equal(pair->far.seen[2].status, CRPC_E_CLOSED);
}

static void a_dct_that_is_failed_and_polled_late_is_nobodys_fault(void **state)
{
    struct pair *pair = *state;
    crpc_log_entry entries[8];
    log_init(&pair->far.log, CRPC_LOG_WARNING);
    assert_int_equal(queue_fail(pair->peer), CRPC_OK);
    pair->clock_ns += 2 * QUEUE_FLUSH_TIMEOUT_NS;
    end_wait(&pair->far, 1);
    end_expect_event(&pair->far, 0, handle_of(pair->peer), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_DISCONNECTED);
    uint32_t count = log_read(&pair->far.log, entries, 8);
    assert_int_equal(count, 1); /* that it was failed */
    assert_null(strstr(entries[0].message, "at fault"));
}

static void a_lost_device_ends_all(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = dci_options(STREAMS);
    struct queue *streams = end_datagrams(&pair->near, &options);
    struct queue *srq = end_srq(&pair->near, 4);
    struct queue *dct = open_dct(&pair->near, srq);
    struct queue_target *target = target_of(pair, pair->peer);
    assert_int_equal(end_receive(&pair->near, srq, 0, 64, 5), CRPC_OK);
    memory_fabric_stall(pair->queue->link.queue_pair, 1000);
    memory_fabric_stall(streams->link.queue_pair, 1000);
    write_some(pair, pair->queue, target, 0, 2);
    write_some(pair, streams, target, 2, 3);
    fake_cm_device_event(&pair->near.cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
    end_wait(&pair->near, 10);
    assert_int_equal(end_count(&pair->near, CRPC_E_NO_DEVICE), 6);
    for (uint32_t i = 0; i < 4; i++) {
        const struct queue *const queues[] = {pair->queue, streams, srq, dct};
        assert_int_equal(queues[i]->link.state, CRPC_STATE_DISCONNECTED);
    }
}

#define DC_TEST(name) cmocka_unit_test_setup_teardown(name, dc_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DC_TEST(a_device_without_dc_says_so),
        DC_TEST(ops_of_streams_that_name_a_closed_target_go_on),
        DC_TEST(a_dci_that_ends_lets_its_targets_go),
        DC_TEST(a_message_that_is_too_long_does_not_end_a_dct),
        DC_TEST(a_stream_fails_while_completions_are_kept),
        DC_TEST(a_dci_drains),
        DC_TEST(a_dct_that_is_failed_tells_what_has_come),
        DC_TEST(a_dct_that_is_failed_and_polled_late_is_nobodys_fault),
        DC_TEST(a_lost_device_ends_all),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

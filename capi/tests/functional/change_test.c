/* change_test.c: crpc_queue_modify over a device, in one process: what the device lets change, that it does
 * what it says, and the limit of an SRQ, which wakes a program that sleeps.
 */
#include <string.h>
#include <time.h>

#include "leave_out.h"
#include "place.h"
#include "queues.h"

static void modify(struct side *side, crpc_queue queue, crpc_queue_change change)
{
    crpc_error error = {.struct_size = sizeof(error)};
    change.struct_size = sizeof(change);
    need(crpc_queue_modify(side->context, queue, &change, &error), &error);
}

static void allow(struct side *side, uint32_t access)
{
    modify(side, side->queue,
           (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_ACCESS, .access = access});
}

static void end_both(int32_t status)
{
    crpc_completion gone = await(&here, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(gone.status, status);
    await(&there, CRPC_COMPLETION_DISCONNECTED);
    close_queues();
}

/* ---- RC -------------------------------------------------------------------------------------- */

static void a_peer_that_may_only_read(void **state)
{
    (void)state;
    connect_both();
    one(&here, CRPC_QUEUE_WRITE, 1, 0, 64);
    await_work(&here, CRPC_QUEUE_WRITE, 1, CRPC_OK);
    allow(&there, CRPC_ACCESS_REMOTE_READ);
    assert_int_equal(info_of(&there).access, CRPC_ACCESS_REMOTE_READ);
    one(&here, CRPC_QUEUE_READ, 2, 0, 64);
    await_work(&here, CRPC_QUEUE_READ, 2, CRPC_OK);
    one(&there, CRPC_QUEUE_WRITE, 3, 1000, 64); /* it has changed for the other direction alone */
    await_work(&there, CRPC_QUEUE_WRITE, 3, CRPC_OK);
    memset(there.memory, 0x5a, 64);
    one(&here, CRPC_QUEUE_WRITE, 4, 0, 64);
    await_work(&here, CRPC_QUEUE_WRITE, 4, CRPC_E_ACCESS);
    assert_int_equal(there.memory[0], 0x5a);
    end_both(CRPC_E_ACCESS);
}

/* By blobs, because the right is taken before anybody is connected. */
static void a_peer_that_never_had_a_right(void **state)
{
    (void)state;
    const crpc_queue_options options = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    need(crpc_queue_blob(here.context, &options, &here.queue, blobs[0], &bytes[0], &error), &error);
    need(crpc_queue_blob(there.context, &options, &there.queue, blobs[1], &bytes[1], &error),
         &error);
    allow(&there, 0);
    need(crpc_queue_join(here.context, here.queue, blobs[1], bytes[1], &error), &error);
    need(crpc_queue_join(there.context, there.queue, blobs[0], bytes[0], &error), &error);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    one(&there, CRPC_QUEUE_RECEIVE, 1, 0, 64);
    if (strncmp(place_device(0), "rxe", 3) == 0) {
        /* Soft-RoCE tells of no queue pair that it has ended: what is open does. */
        one(&there, CRPC_QUEUE_RECEIVE, 4, 0, 64);
    }
    one(&here, CRPC_QUEUE_SEND, 2, 0, 64); /* needs none */
    await_work(&here, CRPC_QUEUE_SEND, 2, CRPC_OK);
    await_work(&there, CRPC_QUEUE_RECEIVE, 1, CRPC_OK);
    one(&here, CRPC_QUEUE_READ, 3, 0, 64);
    await_work(&here, CRPC_QUEUE_READ, 3, CRPC_E_ACCESS);
    end_both(CRPC_E_ACCESS);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A SEND without a receive is tried again as often as was said, and before that it waits as long as the other
 * side says. */
static void a_peer_waits_as_long_as_it_is_told(void **state)
{
    (void)state;
    const crpc_queue_options theirs = queues_options();
    crpc_queue_options ours = queues_options();
    ours.not_ready_retry_count = 2;
    connect_with(&ours, &theirs);
    modify(&there, there.queue,
           (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT,
                               .not_ready_wait_ns = 160000000});
    assert_int_equal(info_of(&there).not_ready_wait_ns, 163840000);
    const uint64_t start = now_ns();
    one(&here, CRPC_QUEUE_SEND, 1, 0, 64);
    await_work(&here, CRPC_QUEUE_SEND, 1, CRPC_E_NOT_READY);
    assert_true(now_ns() - start >= 2 * UINT64_C(163840000));
    end_both(CRPC_E_NOT_READY);
}

/* 7 retries are no limit. If they were, it would long have been reached. */
static void seven_retries_are_for_ever(void **state)
{
    (void)state;
    const crpc_queue_options theirs = queues_options();
    crpc_queue_options ours = queues_options();
    ours.not_ready_retry_count = 7;
    connect_with(&ours, &theirs);
    assert_int_equal(info_of(&here).not_ready_retry_count, 0);
    modify(&there, there.queue,
           (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT,
                               .not_ready_wait_ns = 10000});
    one(&here, CRPC_QUEUE_SEND, 1, 0, 64);
    const uint64_t start = now_ns();
    while (now_ns() - start < 50000000) {
        pump(&here);
        pump(&there);
    }
    one(&there, CRPC_QUEUE_RECEIVE, 1, 0, 64);
    await_work(&here, CRPC_QUEUE_SEND, 1, CRPC_OK);
    await_work(&there, CRPC_QUEUE_RECEIVE, 1, CRPC_OK);
    close_queues();
}

/* If a device ever takes one of these, this says so. */
static void devices_keep_the_retries_of_a_connection(void **state)
{
    static const crpc_queue_change changes[] = {
        {.changes = CRPC_QUEUE_CHANGE_RETRY_TIMEOUT, .retry_timeout = 16},
        {.changes = CRPC_QUEUE_CHANGE_RETRY_COUNT, .retry_count = 3},
        {.changes = CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT, .not_ready_retry_count = 3},
        {.changes = CRPC_QUEUE_CHANGE_ACCESS | CRPC_QUEUE_CHANGE_RETRY_COUNT, .retry_count = 3},
    };
    (void)state;
    connect_both();
    const crpc_queue_info before = info_of(&there);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_queue_change change = changes[i];
        change.struct_size = sizeof(change);
        assert_int_equal(crpc_queue_modify(there.context, there.queue, &change, &error),
                         CRPC_E_UNSUPPORTED);
        assert_non_null(strstr(error.message, "retry_"));
    }
    const crpc_queue_info after = info_of(&there);
    assert_memory_equal(&before, &after, sizeof(before));
    one(&here, CRPC_QUEUE_WRITE, 1, 0, 64);
    await_work(&here, CRPC_QUEUE_WRITE, 1, CRPC_OK);
    close_queues();
}

/* ---- SRQ ------------------------------------------------------------------------------------- */

static void set_limit(crpc_queue srq, uint32_t limit)
{
    modify(&there, srq,
           (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = limit});
}

static void send_one(uint64_t user_data)
{
    one(&here, CRPC_QUEUE_SEND, user_data, 0, 16);
    await_work(&here, CRPC_QUEUE_SEND, user_data, CRPC_OK);
}

/* Nothing else can wake it: what was sent has been polled. */
static void sleep_until_limit(crpc_queue srq)
{
    crpc_completion low = {0};
    while (!take_kept(&there, CRPC_COMPLETION_SRQ_LIMIT, &low)) {
        assert_int_equal(crpc_wait(there.context, (uint64_t)QUEUES_SECONDS_MAX * 1000000000u),
                         CRPC_OK);
        pump(&there);
    }
    assert_int_equal(low.endpoint.bits, srq.bits);
    assert_int_equal(low.flags, CRPC_COMPLETION_OF_QUEUE);
    assert_int_equal(low.status, CRPC_OK);
    assert_int_equal(low.endpoint_user_data, 99);
}

static void expect_no_limit(void)
{
    crpc_completion low;
    for (int i = 0; i < 20; i++) {
        pump(&there);
    }
    assert_false(take_kept(&there, CRPC_COMPLETION_SRQ_LIMIT, &low));
}

static void run_low(uint32_t kind)
{
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .user_data = 99, .kind = kind, .receives = 8};
    const crpc_queue_options ours = queues_options();
    crpc_queue_options theirs = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue srq;
    need(crpc_queue_open(there.context, &shared, &srq, &error), &error);
    theirs.receives = theirs.receive_pieces = 0;
    theirs.receive_queue = srq;
    connect_with(&ours, &theirs);
    const crpc_queue far = there.queue;
    there.queue = srq;
    for (uint32_t round = 0; round < 3; round++) { /* it is armed again */
        for (uint32_t i = 0; i < 4 + 4 * (round == 0); i++) {
            one(&there, CRPC_QUEUE_RECEIVE, i, i * 100, 100);
        }
        set_limit(srq, 5);
        for (uint32_t i = 0; i < 3; i++) { /* 5 are left */
            send_one(i);
        }
        for (uint32_t i = 0; i < 3; i++) {
            await(&there, CRPC_COMPLETION_WORK);
        }
        expect_no_limit();
        send_one(3);
        sleep_until_limit(srq);
        await(&there, CRPC_COMPLETION_WORK);
        expect_no_limit();
    }
    assert_int_equal(crpc_queue_close(there.context, far), CRPC_OK);
    set_limit(srq, 4); /* closed with a limit */
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_OK);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(await(&there, CRPC_COMPLETION_WORK).status, CRPC_E_CLOSED);
    }
    assert_int_equal(crpc_queue_close(here.context, here.queue), CRPC_OK);
}

static void an_srq_tells_that_it_runs_low(void **state)
{
    (void)state;
    run_low(CRPC_QUEUE_KIND_SRQ);
}

static void a_tm_srq_tells_that_it_runs_low(void **state)
{
    (void)state;
    run_low(CRPC_QUEUE_KIND_TM_SRQ);
}

#define OVER_DEVICE(name) cmocka_unit_test_setup_teardown(name, queues_open, queues_close)

static bool has_tags(void)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_TM_SRQ, .receives = 8};
    crpc_queue srq;
    queues_open(NULL);
    const bool has = crpc_queue_open(there.context, &options, &srq, NULL) == CRPC_OK;
    queues_close(NULL);
    return has;
}

int main(void)
{
    struct CMUnitTest tests[] = {
        OVER_DEVICE(a_peer_that_may_only_read),
        OVER_DEVICE(a_peer_that_never_had_a_right),
        OVER_DEVICE(a_peer_waits_as_long_as_it_is_told),
        OVER_DEVICE(seven_retries_are_for_ever),
        OVER_DEVICE(devices_keep_the_retries_of_a_connection),
        OVER_DEVICE(an_srq_tells_that_it_runs_low),
        OVER_DEVICE(a_tm_srq_tells_that_it_runs_low),
    };
    if (!has_tags()) {
        LEAVE_OUT(tests, a_tm_srq_tells_that_it_runs_low, "the device has no tags");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* last_receives_test.c: queue pairs that die have taken receives of the shared queue, and give them back late (simnic's fault
 * `taken`). Whoever destroys one before it has said so loses them for ever: after so many endpoints no batch would find a receive.
 * With the argument "lost" the device gives them back later than anybody waits: then that is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"

#define RECEIVES 256u
#define DEATHS 40u /* each takes 16 */
#define SECONDS_MAX 30
#define KEPT_MAX 256u
#define ANSWER_NS UINT64_C(5000000000)
#define LOST_DEATHS 4u

static crpc_context *contexts[2];
static crpc_completion kept[2][KEPT_MAX];
static uint32_t kept_count[2];

static void need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        fail_msg("%s: %s", crpc_status_name(status), error->message);
    }
}

static int open_both(void **state)
{
    const uint32_t flags = *state ? CRPC_CONTEXT_QUEUES : 0;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .features = PLACE_FEATURES,
                                    .flags = flags,
                                    .endpoints_max = 8,
                                    .log_level = CRPC_LOG_WARNING,
                                    .receive_depth = RECEIVES};
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    for (int side = 0; side < 2; side++) {
        need(crpc_context_open(&options, &contexts[side], &error), &error);
        kept_count[side] = 0;
    }
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        assert_int_equal(crpc_context_close(contexts[side]), CRPC_OK);
    }
    return 0;
}

/* Takes one of what was kept. */
static bool take(int side, uint8_t kind, crpc_completion *found)
{
    for (uint32_t i = 0; i < kept_count[side]; i++) {
        if (kept[side][i].kind == kind) {
            *found = kept[side][i];
            kept[side][i] = kept[side][--kept_count[side]];
            return true;
        }
    }
    return false;
}

/* Polls once, answers requests, and keeps the rest. */
static void keep(int side)
{
    crpc_completion one;
    while (kept_count[side] < KEPT_MAX && crpc_poll(contexts[side], &one, 1) == 1) {
        if (one.kind == CRPC_COMPLETION_REQUEST) {
            const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                                   .flags = CRPC_OP_QUIET,
                                   .endpoint = one.endpoint,
                                   .token = one.token};
            assert_int_equal(crpc_submit(contexts[side], &reply, 1, NULL, 0, NULL), 1);
        } else {
            kept[side][kept_count[side]++] = one;
        }
    }
}

static crpc_completion await(int side, uint8_t kind)
{
    const time_t end = time(NULL) + SECONDS_MAX;
    crpc_completion found = {0};
    while (!take(side, kind, &found)) {
        keep(0);
        keep(1);
        if (time(NULL) >= end) {
            fail_msg("completion %u did not come in %d s", kind, SECONDS_MAX);
        }
    }
    return found;
}

/* ---- Endpoints --------------------------------------------------------------------------------- */

static void connect_endpoints(crpc_endpoint endpoints[2])
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .retry_timeout = place_retry_timeout()};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    for (int side = 0; side < 2; side++) {
        need(crpc_endpoint_blob(contexts[side], &options, &endpoints[side], blobs[side],
                                &bytes[side], &error),
             &error);
    }
    for (int side = 0; side < 2; side++) {
        need(
            crpc_endpoint_join(contexts[side], endpoints[side], blobs[!side], bytes[!side], &error),
            &error);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(await(side, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    }
}

static int32_t call(crpc_endpoint endpoint)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = endpoint, .timeout_ns = ANSWER_NS};
    assert_int_equal(crpc_submit(contexts[0], &op, 1, NULL, 0, NULL), 1);
    return await(0, CRPC_COMPLETION_RESPONSE).status;
}

static void let_die(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        crpc_endpoint endpoints[2];
        connect_endpoints(endpoints);
        const int32_t status = call(endpoints[0]);
        if (status != CRPC_OK) {
            fail_msg("after %u deaths: %s", i, crpc_status_name(status));
        }
        for (int side = 0; side < 2; side++) {
            assert_int_equal(crpc_endpoint_close(contexts[side], endpoints[side]), CRPC_OK);
            kept_count[side] = 0;
        }
    }
}

static uint64_t missed(int side)
{
    crpc_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_context_get_stats(contexts[side], &stats), CRPC_OK);
    return stats.last_wqes_missed;
}

/* How many entries of the log speak of receives that may be lost; each has to say which device, and what to do. */
static uint32_t warnings(int side)
{
    crpc_log_entry entry;
    uint32_t count = 0;
    while (crpc_context_log(contexts[side], &entry, 1) == 1) {
        if (strstr(entry.message, "LAST_WQE_REACHED")) {
            count++;
            assert_int_equal(entry.level, CRPC_LOG_WARNING);
            assert_non_null(strstr(entry.message, place_device(0)));
            assert_non_null(strstr(entry.message, "close the context and open a new one"));
        }
    }
    return count;
}

static void endpoints_that_die_take_no_receives_with_them(void **state)
{
    (void)state;
    let_die(DEATHS);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(missed(side), 0);
        assert_int_equal(warnings(side), 0);
    }
}

/* Every connection that has gone is counted, and the log tells of the first. */
static void receives_that_may_be_lost_are_told(void **state)
{
    let_die(LOST_DEATHS);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(missed(side), LOST_DEATHS);
        assert_int_equal(warnings(side), 1);
    }
    close_both(state); /* as the log says */
    open_both(state);
    let_die(1);
    for (int side = 0; side < 2; side++) {
        assert_int_equal(missed(side), 1);
        assert_int_equal(warnings(side), 1);
    }
}

/* ---- Queues with a shared receive queue --------------------------------------------------------- */

/* A receive whose queue has taken it completes, as that of a queue that was closed. */
static void queues_that_die_complete_their_receives(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    static uint8_t memory[64];
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region region;
    crpc_queue shared, queues[2];
    const crpc_queue_options of_shared = {.struct_size = sizeof(of_shared),
                                          .kind = CRPC_QUEUE_KIND_SRQ,
                                          .receives = COUNT,
                                          .receive_pieces = 1};
    need(crpc_region_register(contexts[1], memory, sizeof(memory), CRPC_ACCESS_LOCAL_WRITE, &region,
                              &error),
         &error);
    need(crpc_queue_open(contexts[1], &of_shared, &shared, &error), &error);
    for (uint32_t i = 0; i < COUNT; i++) {
        const crpc_queue_op receive = {.opcode = CRPC_QUEUE_RECEIVE,
                                       .region = region,
                                       .address = (uint64_t)(uintptr_t)memory,
                                       .bytes = sizeof(memory)};
        assert_int_equal(crpc_queue_submit(contexts[1], shared, &receive, 1, NULL, 0, NULL), 1);
    }
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    for (int side = 0; side < 2; side++) {
        const crpc_queue_options options = {.struct_size = sizeof(options),
                                            .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                            .sends = 4,
                                            .receive_queue = {side ? shared.bits : 0}};
        need(crpc_queue_blob(contexts[side], &options, &queues[side], blobs[side], &bytes[side],
                             &error),
             &error);
    }
    for (int side = 0; side < 2; side++) {
        need(crpc_queue_join(contexts[side], queues[side], blobs[!side], bytes[!side], &error),
             &error);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(await(side, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    }
    assert_int_equal(crpc_queue_close(contexts[1], queues[1]), CRPC_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const crpc_completion done = await(1, CRPC_COMPLETION_WORK);
        assert_int_equal(done.method, CRPC_QUEUE_RECEIVE);
        assert_true(done.status < 0);
    }
}

static int with_queues = 1;

int main(int argc, char **argv)
{
    const struct CMUnitTest lost[] = {
        cmocka_unit_test_setup_teardown(receives_that_may_be_lost_are_told, open_both, close_both),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(endpoints_that_die_take_no_receives_with_them, open_both,
                                        close_both),
        cmocka_unit_test_prestate_setup_teardown(queues_that_die_complete_their_receives, open_both,
                                                 close_both, &with_queues),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return argc > 1 && strcmp(argv[1], "lost") == 0 ? cmocka_run_group_tests(lost, NULL, NULL)
                                                    : cmocka_run_group_tests(tests, NULL, NULL);
}

/* initiators_test.c: contexts whose endpoints connect by DC: what they refuse, and many endpoints that share few initiators. On
 * simnic, by mlx5, in one process. initiators_held_test.c is about peers that do not answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"
#include "kill.h"
#include "place.h"
#include "signals.h"

/* ---- What is refused ------------------------------------------------------------------------- */

static void expect_words(const crpc_error *error, int32_t status, const char *first,
                         const char *second)
{
    print_message("# %s: %s\n", crpc_status_name(error->status), error->message);
    assert_int_equal(error->status, status);
    assert_non_null(strstr(error->message, first));
    assert_non_null(strstr(error->message, second));
}

static void options_of_contexts_are_refused(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options), .initiators = 1025};
    crpc_context *context = NULL;
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
    expect_words(&error, CRPC_E_INVALID, "initiators", "1024");
    assert_null(context);
    options.initiators = 1;
    options.driver = CRPC_DRIVER_VERBS;
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_UNSUPPORTED);
    expect_words(&error, CRPC_E_UNSUPPORTED, "verbs", "mlx5");
    assert_null(context);
    /* With any driver, it is not the last one that is blamed, which has none. */
    options.driver = CRPC_DRIVER_AUTO;
    snprintf(options.device, sizeof(options.device), "nothing9");
    const char *driver = getenv("COPYRPC_DRIVER");
    unsetenv("COPYRPC_DRIVER");
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_NO_DEVICE);
    expect_words(&error, CRPC_E_NO_DEVICE, "nothing9", place_device(0));
    setenv("COPYRPC_DRIVER", driver ? driver : "mlx5", 1);
}

static void the_number_is_shown(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {0, 1, 3, 1024};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        crpc_context_info info = {.struct_size = sizeof(info)};
        crpc_context *context = ends_context(numbers[i]);
        assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
        assert_int_equal(info.initiators, numbers[i]);
        crpc_context_close(context);
    }
}

/* By every way that takes them; then the same endpoints connect without. */
static void options_of_endpoints_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t flags, retry_timeout, retry_count;
        int32_t status;
        const char *word;
    } refused[] = {{CRPC_ENDPOINT_LANE, 0, 0, CRPC_E_UNSUPPORTED, "lanes"},
                   {0, 14, 0, CRPC_E_INVALID, "retry_timeout"},
                   {0, 0, 6, CRPC_E_INVALID, "retry_count"}};
    char address[64];
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    ends_open(1, true);
    ends_listen_there(address);
    ends_connect(0, address, NULL);
    ends[0].handle[THERE] = ends_await_request();
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context_info info = {.struct_size = sizeof(info)};
        crpc_endpoint endpoint = {0};
        crpc_endpoint_options options = ends_options(0);
        options.flags = refused[i].flags;
        options.retry_timeout = refused[i].retry_timeout;
        options.retry_count = refused[i].retry_count;
        uint32_t bytes = sizeof(blob);
        crpc_endpoint_connect(contexts[HERE], address, &options, &endpoint, &error);
        expect_words(&error, refused[i].status, "initiators", refused[i].word);
        crpc_endpoint_blob(contexts[HERE], &options, &endpoint, blob, &bytes, &error);
        expect_words(&error, refused[i].status, "initiators", refused[i].word);
        crpc_endpoint_accept(contexts[THERE], ends[0].handle[THERE], &options, &error);
        expect_words(&error, refused[i].status, "initiators", refused[i].word);
        assert_int_equal(endpoint.bits, 0);
        assert_int_equal(crpc_context_get_info(contexts[HERE], &info), CRPC_OK);
        assert_int_equal(info.endpoints, 1); /* that of before */
    }
    const crpc_endpoint_options options = ends_options(0);
    assert_int_equal(crpc_endpoint_accept(contexts[THERE], ends[0].handle[THERE], &options, NULL),
                     CRPC_OK);
    UNTIL(ends[0].connected[HERE] && ends[0].connected[THERE]);
    assert_int_equal(ends[0].connected_status[HERE] | ends[0].connected_status[THERE], CRPC_OK);
    ends_close();
}

/* ---- Contexts that do not match -------------------------------------------------------------- */

static const char *const words[2] = {"this one has none", "this context has initiators"};

static bool log_has(crpc_context *context, const char *text)
{
    crpc_log_entry entry;
    while (crpc_context_log(context, &entry, 1) == 1) {
        if (strstr(entry.message, text)) {
            print_message("# log: %s\n", entry.message);
            return true;
        }
    }
    return false;
}

static void contexts_that_differ_do_not_connect(void **state)
{
    (void)state;
    for (uint32_t here = 0; here < 2; here++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_listener_info info = {.struct_size = sizeof(info)};
        char address[64];
        memset(ends, 0, sizeof(ends));
        contexts[HERE] = ends_context(here);
        contexts[THERE] = ends_context(!here);
        crpc_listener listener = ends_listen_there(address);
        ends_connect(0, address, NULL);
        UNTIL(ends[0].connected[HERE]);
        assert_int_equal(ends[0].connected_status[HERE], CRPC_E_VERSION);
        assert_int_equal(crpc_endpoint_get_error(contexts[HERE], ends[0].handle[HERE], &error),
                         CRPC_OK);
        expect_words(&error, CRPC_E_VERSION, words[here], "on both sides or on neither");
        /* The application there never hears of it: its log and the listener's counts tell. */
        assert_true(log_has(contexts[THERE], words[!here]));
        assert_int_equal(crpc_listener_get_info(contexts[THERE], listener, &info), CRPC_OK);
        assert_int_equal(info.refused, 1);
        assert_int_equal(info.requests, 1);
        assert_int_equal(ends[0].connected[THERE], 0);
        ends_close();
    }
}

/* The listener's context would have taken it. */
static void a_context_that_differs_refuses_what_is_handed_over(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion unused;
    char address[64];
    ends_open(1, true);
    crpc_context *differs = ends_context(0);
    ends_listen_there(address);
    ends_connect(0, address, NULL);
    assert_int_equal(
        crpc_endpoint_hand_over(contexts[THERE], ends_await_request(), differs, 0, &error),
        CRPC_OK);
    for (const double end = now_seconds() + ENDS_PATIENCE_S; !ends[0].connected[HERE];) {
        assert_true(now_seconds() < end);
        assert_int_equal(crpc_poll(differs, &unused, 1), 0);
        ends_pump();
    }
    assert_int_equal(ends[0].connected_status[HERE], CRPC_E_VERSION);
    assert_int_equal(crpc_endpoint_get_error(contexts[HERE], ends[0].handle[HERE], &error),
                     CRPC_OK);
    expect_words(&error, CRPC_E_VERSION, words[1], "on both sides or on neither");
    assert_true(log_has(differs, words[0]));
    crpc_context_close(differs);
    ends_close();
}

/* A blob that does not match changes nothing: the next one joins. */
static void blobs_that_differ_do_not_join(void **state)
{
    (void)state;
    uint8_t blobs[3][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[3];
    for (uint32_t ours = 0; ours < 2; ours++) {
        crpc_error error = {.struct_size = sizeof(error)};
        ends_open(ours, true);
        crpc_context *differs = ends_context(!ours);
        crpc_endpoint theirs;
        bytes[2] = sizeof(blobs[2]);
        assert_int_equal(crpc_endpoint_blob(differs, NULL, &theirs, blobs[2], &bytes[2], &error),
                         CRPC_OK);
        for (int side = HERE; side <= THERE; side++) {
            ends_blob(side, 0, blobs[side], &bytes[side]);
            crpc_endpoint_join(contexts[side], ends[0].handle[side], blobs[2], bytes[2], &error);
            expect_words(&error, CRPC_E_VERSION, words[ours], "on both sides or on neither");
            crpc_endpoint_join(differs, theirs, blobs[side], bytes[side], &error);
            expect_words(&error, CRPC_E_VERSION, words[!ours], "on both sides or on neither");
        }
        for (int side = HERE; side <= THERE; side++) {
            assert_int_equal(crpc_endpoint_join(contexts[side], ends[0].handle[side], blobs[!side],
                                                bytes[!side], NULL),
                             CRPC_OK);
        }
        UNTIL(ends[0].connected[HERE] && ends[0].connected[THERE]);
        assert_int_equal(ends_call(HERE, 0, 100, false, 0), CRPC_OK);
        UNTIL(ended_count == 1);
        ends_expect(0, CRPC_OK);
        crpc_context_close(differs);
        ends_close();
    }
}

/* ---- Many ------------------------------------------------------------------------------------ */

/* The first ring has 8192 bytes: what is longer waits for a longer ring, here and there. */
static const struct {
    uint32_t bytes;
    bool from_region;
} kinds[] = {{0, false},    {1, false},   {200, false},    {3000, false}, {3000, true},
             {9000, false}, {9000, true}, {100000, false}, {40000, true}, {64, true}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void connect_many(uint32_t initiators)
{
    char address[64];
    ends_open(initiators, true);
    ends_listen_there(address);
    for (uint32_t i = 0; i < ENDS; i++) {
        if (i % 2) {
            ends_join(i);
        } else {
            const crpc_endpoint_options options = ends_options(i);
            ends_connect(i, address, NULL);
            ends[i].handle[THERE] = ends_await_request();
            assert_int_equal(
                crpc_endpoint_accept(contexts[THERE], ends[i].handle[THERE], &options, NULL),
                CRPC_OK);
        }
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        UNTIL(ends[i].connected[HERE] && ends[i].connected[THERE]);
        assert_int_equal(ends[i].connected_status[HERE] | ends[i].connected_status[THERE], CRPC_OK);
    }
}

/* One more of each end that has some left, in both directions, as there is room. */
static bool submit_some(uint32_t made[ENDS][2], uint32_t each)
{
    bool all = true;
    for (uint32_t i = 0; i < ENDS; i++) {
        for (int side = HERE; side <= THERE; side++) {
            const uint32_t kind = (made[i][side] + i) % KINDS;
            if (made[i][side] == each) {
                continue;
            }
            const int32_t reason =
                ends_call(side, i, kinds[kind].bytes, kinds[kind].from_region, 0);
            assert_true(reason == CRPC_OK || reason == CRPC_E_AGAIN);
            made[i][side] += reason == CRPC_OK;
            all = all && made[i][side] == each;
        }
    }
    return all;
}

static void call_on_all(uint32_t each)
{
    uint32_t made[ENDS][2] = {{0}};
    while (!submit_some(made, each)) {
        ends_pump();
    }
    UNTIL(ended_count == call_count);
    for (uint32_t i = 0; i < ENDS; i++) {
        ends_expect(i, CRPC_OK);
        assert_int_equal(ends[i].disconnected[HERE] + ends[i].disconnected[THERE], 0);
    }
}

/* The first call of each is open before any is answered: it waits, but for those that have got an initiator. Then as many as the
 * rings take. */
static void many_share(uint32_t initiators)
{
    uint64_t before[ENDS];
    uint32_t sent = 0;
    connect_many(initiators);
    for (uint32_t i = 0; i < ENDS; i++) {
        before[i] = ends_sends(HERE, i);
        assert_int_equal(ends_call(HERE, i, 100, false, 0), CRPC_OK);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        sent += ends_sends(HERE, i) > before[i];
    }
    assert_in_range(sent, 0, initiators);
    assert_int_equal(ended_count, 0);
    call_on_all(KINDS);
    call_on_all(KINDS);
    ends_close();
}

static void many_share_one(void **state)
{
    (void)state;
    many_share(1);
}

static void many_share_two(void **state)
{
    (void)state;
    many_share(2);
}

/* From one side, from the other, or from both, with a call open on each. */
static void all_leave_at_once(void **state)
{
    (void)state;
    for (uint32_t initiators = 1; initiators <= 2; initiators++) {
        connect_many(initiators);
        for (uint32_t i = 0; i < ENDS; i++) {
            assert_int_equal(ends_call(i % 2, i, 3000, false, 0), CRPC_OK);
        }
        for (uint32_t i = 0; i < ENDS; i++) {
            for (int side = HERE; side <= THERE; side++) {
                if (i % 3 == 2 || (int)(i % 3) == side) {
                    assert_int_equal(crpc_endpoint_disconnect(contexts[side], ends[i].handle[side],
                                                              CRPC_FOREVER),
                                     CRPC_OK);
                }
            }
        }
        for (uint32_t i = 0; i < ENDS; i++) {
            UNTIL(ends[i].disconnected[HERE] && ends[i].disconnected[THERE]);
            for (int side = HERE; side <= THERE; side++) {
                assert_int_equal(ends[i].disconnected[side], 1);
                assert_int_equal(ends[i].disconnected_status[side], CRPC_OK);
            }
            ends_expect(i, CRPC_OK);
        }
        ends_close();
    }
}

/* One of two contexts' only initiator: whoever sends by it next is lost, and nobody else; and it is mended. */
static void an_initiator_that_the_device_breaks_costs_one_endpoint(void **state)
{
    (void)state;
    uint32_t lost = 0;
    connect_many(1);
    assert_true(kill_queue_pair(0)); /* nothing else is ready to send */
    for (uint32_t i = 0; i < ENDS; i++) {
        assert_int_equal(ends_call(HERE, i, 100, false, 0), CRPC_OK);
    }
    UNTIL(ended_count == call_count);
    for (uint32_t i = 0; i < ENDS; i++) {
        lost += calls[i].status != CRPC_OK;
        assert_int_equal(calls[i].ended, 1);
        assert_true(calls[i].status == CRPC_OK || calls[i].status == CRPC_E_DISCONNECTED);
    }
    assert_int_equal(lost, 1);
    for (uint32_t i = 0; i < ENDS; i++) {
        const int32_t reason = ends_call(HERE, i, 100, false, 0);
        assert_int_equal(reason, calls[i].status);
    }
    UNTIL(ended_count == call_count);
    for (uint32_t i = ENDS; i < call_count; i++) {
        assert_int_equal(calls[i].status, CRPC_OK);
    }
    ends_close();
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_contexts_are_refused),
        cmocka_unit_test(options_of_endpoints_are_refused),
        cmocka_unit_test(the_number_is_shown),
        cmocka_unit_test(contexts_that_differ_do_not_connect),
        cmocka_unit_test(a_context_that_differs_refuses_what_is_handed_over),
        cmocka_unit_test(blobs_that_differ_do_not_join),
        cmocka_unit_test(many_share_one),
        cmocka_unit_test(many_share_two),
        cmocka_unit_test(all_leave_at_once),
        cmocka_unit_test(an_initiator_that_the_device_breaks_costs_one_endpoint),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("initiators", tests, NULL, NULL);
}

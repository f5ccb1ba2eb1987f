/* watch_test.c: the events of the devices where there is no rdma_cm, in one process: two contexts that
 * meet by blobs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "kill.h"
#include "place.h"

/* As on a machine without the module rdma_ucm: the library finds this one before librdmacm's. */
struct rdma_event_channel *rdma_create_event_channel(void);
__attribute__((visibility("default"))) struct rdma_event_channel *rdma_create_event_channel(void)
{
    errno = ENOENT;
    return NULL;
}

static crpc_context *contexts[2];
static crpc_endpoint endpoints[2];

static void open_both(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    /* Nobody sends anything that could fail. */
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .keepalive_ns = CRPC_FOREVER};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {CRPC_BLOB_BYTES_MAX, CRPC_BLOB_BYTES_MAX};
    for (int i = 0; i < 2; i++) {
        if (crpc_context_open(NULL, &contexts[i], &error) != CRPC_OK ||
            crpc_endpoint_blob(contexts[i], &options, &endpoints[i], blobs[i], &bytes[i], &error) !=
                CRPC_OK) {
            fail_msg("%s", error.message);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (crpc_endpoint_join(contexts[i], endpoints[i], blobs[!i], bytes[!i], &error) !=
            CRPC_OK) {
            fail_msg("%s", error.message);
        }
    }
}

static void close_both(void)
{
    crpc_context_close(contexts[0]);
    crpc_context_close(contexts[1]);
}

/* Polls both until so many completions of the kind came. */
static void await(uint8_t kind, uint32_t count)
{
    time_t end = time(NULL) + 60;
    crpc_completion completion;
    uint32_t seen = 0;
    while (seen < count) {
        if (time(NULL) > end) {
            fail_msg("%u of %u completions of kind %u within 60 s", seen, count, kind);
        }
        for (int i = 0; i < 2; i++) {
            if (crpc_poll(contexts[i], &completion, 1) == 1) {
                assert_int_equal(completion.kind, kind);
                seen++;
            }
        }
        usleep(1000);
    }
}

static void an_idle_queue_pair_that_dies_is_noticed(void **state)
{
    (void)state;
    open_both();
    await(CRPC_COMPLETION_CONNECTED, 2);
    assert_true(kill_queue_pair(0));
    await(CRPC_COMPLETION_DISCONNECTED, 1);
    close_both();
}

static void what_needs_rdma_cm_says_that_it_is_missing(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    open_both();
    assert_int_equal(crpc_listener_open(contexts[0], "*:0", NULL, &listener, &error),
                     CRPC_E_UNSUPPORTED);
    print_message("# %s\n", error.message);
    assert_non_null(strstr(error.message, "modprobe rdma_ucm"));
    assert_int_equal(
        crpc_endpoint_connect(contexts[0], place_at(0, "1"), NULL, &endpoints[0], &error),
        CRPC_E_UNSUPPORTED);
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_queue_pair_that_dies_is_noticed),
        cmocka_unit_test(what_needs_rdma_cm_says_that_it_is_missing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}

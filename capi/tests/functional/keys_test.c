/* keys_test.c: connecting with keys by rdma_cm, in one process: one context listens, another
 * connects, for calls and for channels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"

#define SECONDS_MAX 60
#define KEY_BYTES 32
#define NO_KEY 0 /* else what the key is filled with */

static crpc_context *serving, *calling;

/* The options that endpoints and channels have in common are set alike. */
union options {
    crpc_endpoint_options endpoint;
    crpc_channel_options channel;
};

/* A connection of either kind. Handles of both have the same shape. */
struct kind {
    const char *name;
    uint32_t listener_flags;
    void (*fill)(union options *options, uint8_t key, const char *token);
    int32_t (*connect)(const char *address, const union options *options, uint64_t *handle,
                       crpc_error *error);
    int32_t (*accept)(uint64_t handle, const union options *options, crpc_error *error);
    int32_t (*close)(crpc_context *context, uint64_t handle);
    int32_t (*get_error)(crpc_context *context, uint64_t handle, crpc_error *error);
    void (*get_token)(uint64_t handle, char token[17]);
};

#define DEFINE_KIND(KIND, FLAGS)                                                                   \
    static void fill_##KIND(union options *options, uint8_t key, const char *token)                \
    {                                                                                              \
        memset(options, 0, sizeof(*options));                                                      \
        options->KIND.struct_size = sizeof(options->KIND);                                         \
        options->KIND.connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS;                               \
        options->KIND.key_bytes = key != NO_KEY ? KEY_BYTES : 0;                                   \
        memset(options->KIND.key, key, options->KIND.key_bytes);                                   \
        options->KIND.token_bytes = (uint32_t)strlen(token);                                       \
        memcpy(options->KIND.token, token, strlen(token));                                         \
    }                                                                                              \
    static int32_t connect_##KIND(const char *address, const union options *options,               \
                                  uint64_t *handle, crpc_error *error)                             \
    {                                                                                              \
        crpc_##KIND made;                                                                          \
        int32_t status = crpc_##KIND##_connect(calling, address, &options->KIND, &made, error);    \
        *handle = made.bits;                                                                       \
        return status;                                                                             \
    }                                                                                              \
    static int32_t accept_##KIND(uint64_t handle, const union options *options, crpc_error *error) \
    {                                                                                              \
        return crpc_##KIND##_accept(serving, (crpc_##KIND){handle}, &options->KIND, error);        \
    }                                                                                              \
    static int32_t close_##KIND(crpc_context *context, uint64_t handle)                            \
    {                                                                                              \
        return crpc_##KIND##_close(context, (crpc_##KIND){handle});                                \
    }                                                                                              \
    static int32_t get_error_##KIND(crpc_context *context, uint64_t handle, crpc_error *error)     \
    {                                                                                              \
        return crpc_##KIND##_get_error(context, (crpc_##KIND){handle}, error);                     \
    }                                                                                              \
    static void get_token_##KIND(uint64_t handle, char token[17])                                  \
    {                                                                                              \
        crpc_##KIND##_info info = {.struct_size = sizeof(info)};                                   \
        assert_int_equal(crpc_##KIND##_get_info(serving, (crpc_##KIND){handle}, &info), CRPC_OK);  \
        memcpy(token, info.token, 16);                                                             \
        token[info.token_bytes] = '\0';                                                            \
    }                                                                                              \
    static const struct kind kind_##KIND = {                                                       \
        #KIND,         FLAGS,        fill_##KIND,      connect_##KIND,                             \
        accept_##KIND, close_##KIND, get_error_##KIND, get_token_##KIND}

DEFINE_KIND(endpoint, 0);
DEFINE_KIND(channel, CRPC_LISTENER_CHANNELS);

static const struct kind *kind;
static char address[128];
static uint64_t here, there; /* the connecting and the accepting side's handle */

static void open_both(void **state)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener = {0};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener_options options = {.struct_size = sizeof(options)};
    crpc_context_options context = {.struct_size = sizeof(context),
                                    .features = PLACE_FEATURES,
                                    .initiators = place_initiators()};
    kind = *state;
    options.flags = kind->listener_flags;
    context.flags = kind->listener_flags ? CRPC_CONTEXT_RAILS : 0;
    snprintf(context.device, sizeof(context.device), "%s", place_device(0));
    for (int i = 0; context.flags && i < 2; i++) {
        snprintf(context.rails[i], sizeof(context.rails[i]), "%s", place_device(i));
    }
    snprintf(address, sizeof(address), "%s:0", place_address(0));
    if (crpc_context_open(&context, &serving, &error) != CRPC_OK ||
        crpc_context_open(&context, &calling, &error) != CRPC_OK ||
        crpc_listener_open(serving, address, &options, &listener, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_listener_get_info(serving, listener, &info), CRPC_OK);
    memcpy(address, info.address, sizeof(info.address));
}

static void close_both(void)
{
    assert_int_equal(crpc_context_close(calling), CRPC_OK);
    assert_int_equal(crpc_context_close(serving), CRPC_OK);
}

/* Polls both, until `context` has a completion of this kind. */
static crpc_completion await(crpc_context *context, uint8_t wanted)
{
    crpc_context *const both[2] = {serving, calling};
    time_t end = time(NULL) + SECONDS_MAX;
    while (time(NULL) < end) {
        for (int i = 0; i < 2; i++) {
            crpc_completion one;
            while (crpc_poll(both[i], &one, 1) == 1) {
                if (both[i] == context && one.kind == wanted) {
                    return one;
                }
            }
        }
    }
    fail_msg("%s: completion %u did not come in %d s", kind->name, wanted, SECONDS_MAX);
    return (crpc_completion){0};
}

static void request(uint8_t key, const char *token)
{
    crpc_error error = {.struct_size = sizeof(error)};
    union options options;
    kind->fill(&options, key, token);
    if (kind->connect(address, &options, &here, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    there = await(serving, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
}

static int32_t accept_with(uint8_t key, crpc_error *error)
{
    union options options;
    kind->fill(&options, key, "");
    *error = (crpc_error){.struct_size = sizeof(*error)};
    return kind->accept(there, &options, error);
}

/* Both completions come, in whatever order. */
static void expect_connected(int32_t status)
{
    crpc_context *const both[2] = {serving, calling};
    bool seen[2] = {false, false};
    time_t end = time(NULL) + SECONDS_MAX;
    while (!(seen[0] && seen[1]) && time(NULL) < end) {
        for (int i = 0; i < 2; i++) {
            crpc_completion one;
            if (crpc_poll(both[i], &one, 1) == 1 && one.kind == CRPC_COMPLETION_CONNECTED) {
                crpc_error error = {.struct_size = sizeof(error)};
                kind->get_error(both[i], i ? here : there, &error);
                if (one.status != status) {
                    fail_msg("%s, side %d: %s, not %s: %s", kind->name, i,
                             crpc_status_name(one.status), crpc_status_name(status), error.message);
                }
                seen[i] = true;
            }
        }
    }
    assert_true(seen[0] && seen[1]);
}

static void close_connections(void)
{
    assert_int_equal(kind->close(calling, here), CRPC_OK);
    assert_int_equal(kind->close(serving, there), CRPC_OK);
}

static void one_key_connects(void **state)
{
    crpc_error error;
    open_both(state);
    for (int i = 0; i < 5; i++) {
        request(7, "");
        assert_int_equal(accept_with(7, &error), CRPC_OK);
        expect_connected(CRPC_OK);
        if (kind == &kind_endpoint) {
            crpc_op call = {.opcode = CRPC_OP_CALL,
                            .endpoint = {here},
                            .payload_bytes = 5,
                            .reply_bytes_max = 64};
            assert_int_equal(crpc_submit(calling, &call, 1, "hello", 5, NULL), 1);
            crpc_completion asked = await(serving, CRPC_COMPLETION_REQUEST);
            assert_int_equal(asked.payload_bytes, 5);
            assert_memory_equal((const void *)(uintptr_t)asked.payload, "hello", 5);
        }
        close_connections();
    }
    close_both();
}

static void two_keys_connect_nobody_and_both_hear_why(void **state)
{
    crpc_error error;
    open_both(state);
    for (int i = 0; i < 20; i++) {
        request(7, "");
        assert_int_equal(accept_with(8, &error), CRPC_OK);
        expect_connected(CRPC_E_KEY);
        close_connections();
    }
    close_both();
}

static void the_token_can_tell_whose_key_it_is(void **state)
{
    crpc_error error;
    open_both(state);
    static const char *const names[] = {"ann", "bob"};
    for (uint8_t i = 0; i < 2; i++) {
        char token[17];
        request((uint8_t)(20 + i), names[i]);
        kind->get_token(there, token);
        assert_string_equal(token, names[i]);
        assert_int_equal(accept_with(token[0] == 'a' ? 20 : 21, &error), CRPC_OK);
        expect_connected(CRPC_OK);
        close_connections();
    }
    request(21, "ann"); /* who is not ann */
    assert_int_equal(accept_with(20, &error), CRPC_OK);
    expect_connected(CRPC_E_KEY);
    close_connections();
    close_both();
}

/* The accepting side hears it at once, may try another key, and what it closes is rejected with the
 * reason. */
static void a_side_without_a_key_is_told(void **state)
{
    static const uint8_t keys[2][2] = {{7, NO_KEY}, {NO_KEY, 7}};
    crpc_error error;
    open_both(state);
    for (int i = 0; i < 2; i++) {
        request(keys[i][0], "");
        assert_int_equal(accept_with(keys[i][1], &error), CRPC_E_KEY);
        assert_true(strlen(error.message) > 20);
        assert_int_equal(kind->close(serving, there), CRPC_OK);
        crpc_completion end = await(calling, CRPC_COMPLETION_CONNECTED);
        assert_int_equal(end.status, CRPC_E_KEY);
        assert_int_equal(kind->get_error(calling, here, &error), CRPC_OK);
        assert_int_equal(kind->close(calling, here), CRPC_OK);

        request(keys[i][0], "");
        assert_int_equal(accept_with(keys[i][1], &error), CRPC_E_KEY);
        assert_int_equal(accept_with(keys[i][0], &error), CRPC_OK);
        expect_connected(CRPC_OK);
        close_connections();
    }
    close_both();
}

#define BOTH(test)                                                                                 \
    {#test " (calls)", test, NULL, NULL, (void *)(uintptr_t)&kind_endpoint},                       \
    {                                                                                              \
#test " (channels)", test, NULL, NULL, (void *)(uintptr_t)&kind_channel                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(one_key_connects),
        BOTH(two_keys_connect_nobody_and_both_hear_why),
        BOTH(the_token_can_tell_whose_key_it_is),
        BOTH(a_side_without_a_key_is_told),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* hand_over_test.c: requests that go to the contexts of other threads, in one process: one context listens, two serve, and
 * one connects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "contexts.h"
#include "copyrpc.h"
#include "place.h"

#define WORKERS 2
#define CALLERS 10
#define USER_DATA UINT64_C(0xabcdef0000000000)
#define REASON 4711

static const crpc_endpoint_options endpoint_options = {.struct_size = sizeof(endpoint_options),
                                                       .connect_timeout_ns =
                                                           PLACE_CONNECT_TIMEOUT_NS,
                                                       .ring_bytes = 65536,
                                                       .token_bytes = 4,
                                                       .token = "who"};

/* What connects and what listens. The kinds have the same functions. */
struct kind {
    uint32_t context_flags;
    uint32_t listener_flags;
};

static const struct kind endpoints = {0, 0};
static const struct kind channels = {CRPC_CONTEXT_RAILS, CRPC_LISTENER_CHANNELS};
static const struct kind queues = {CRPC_CONTEXT_QUEUES, CRPC_LISTENER_QUEUES};

static int32_t start_connect(const struct kind *kind, crpc_context *context, const char *address,
                             uint64_t *handle)
{
    if (kind == &channels) {
        const crpc_channel_options options = {.struct_size = sizeof(options),
                                              .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        return crpc_channel_connect(context, address, &options, (crpc_channel *)handle, NULL);
    }
    if (kind == &queues) {
        const crpc_queue_options options = {.struct_size = sizeof(options),
                                            .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        return crpc_queue_connect(context, address, &options, (crpc_queue *)handle, NULL);
    }
    return crpc_endpoint_connect(context, address, &endpoint_options, (crpc_endpoint *)handle,
                                 NULL);
}

static int32_t accept_it(const struct kind *kind, crpc_context *context, uint64_t handle)
{
    return kind == &channels ? crpc_channel_accept(context, (crpc_channel){handle}, NULL, NULL)
           : kind == &queues
               ? crpc_queue_accept(context, (crpc_queue){handle}, NULL, NULL)
               : crpc_endpoint_accept(context, (crpc_endpoint){handle}, &endpoint_options, NULL);
}

static int32_t hand_over(const struct kind *kind, crpc_context *context, uint64_t handle,
                         crpc_context *to, uint64_t user_data)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        kind == &channels
            ? crpc_channel_hand_over(context, (crpc_channel){handle}, to, user_data, &error)
        : kind == &queues
            ? crpc_queue_hand_over(context, (crpc_queue){handle}, to, user_data, &error)
            : crpc_endpoint_hand_over(context, (crpc_endpoint){handle}, to, user_data, &error);
    assert_int_equal(error.status, status);
    if (status != CRPC_OK) {
        print_message("# %s\n", error.message);
    }
    return status;
}

/* The context that listens, and its address. */
struct front {
    crpc_context *context;
    char address[64];
};

static struct front open_front(const struct kind *kind)
{
    struct front front = {.context = contexts_open(kind->context_flags)};
    contexts_listen(front.context, kind->listener_flags, front.address);
    return front;
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct worker {
    crpc_context *context;
    pthread_t thread;
    uint32_t number;
    uint32_t accepted;
    atomic_bool stop;
};

/* The payload of a reply is the worker's number. Errors show where the caller waits in vain. */
static void take(struct worker *worker, const crpc_completion *completion)
{
    const crpc_op op = {.opcode = CRPC_OP_REPLY,
                        .flags = CRPC_OP_QUIET,
                        .endpoint = completion->endpoint,
                        .token = completion->token,
                        .payload_bytes = sizeof(worker->number)};
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    int32_t reason;
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        crpc_endpoint_get_info(worker->context, completion->endpoint, &info);
        if (completion->user_data == USER_DATA + worker->number && info.token_bytes == 4 &&
            memcmp(info.token, "who", 4) == 0 && info.peer_address[0]) {
            worker->accepted +=
                accept_it(&endpoints, worker->context, completion->endpoint.bits) == CRPC_OK;
        }
        break;
    case CRPC_COMPLETION_REQUEST:
        crpc_submit(worker->context, &op, 1, &worker->number, sizeof(worker->number), &reason);
        break;
    default:
        break;
    }
}

/* Sleeps while nothing comes: who hands over wakes it. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    crpc_completion completions[16];
    while (!atomic_load(&worker->stop)) {
        int32_t count = crpc_poll(worker->context, completions, 16);
        for (int32_t i = 0; i < count; i++) {
            take(worker, &completions[i]);
        }
        if (count == 0) {
            crpc_wait(worker->context, UINT64_C(100000000));
        }
    }
    return NULL;
}

static uint32_t call(crpc_context *context, uint64_t endpoint)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = {endpoint}, .reply_bytes_max = 4};
    int32_t reason;
    uint32_t number;
    assert_int_equal(crpc_submit(context, &op, 1, NULL, 0, &reason), 1);
    crpc_completion completion = contexts_poll_until(context, NULL, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(completion.status, CRPC_OK);
    assert_int_equal(crpc_retain(context, &completion, &number, sizeof(number)), 4);
    return number;
}

/* The listener's context is gone before the first call. */
static void connections_are_spread_over_threads(void **state)
{
    (void)state;
    struct front front = open_front(&endpoints);
    crpc_context *calling = contexts_open(0);
    struct worker workers[WORKERS] = {0};
    uint64_t callers[CALLERS];
    uint32_t answered[WORKERS] = {0};
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].context = contexts_open(0);
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < CALLERS; i++) {
        struct worker *worker = &workers[i % WORKERS];
        assert_int_equal(start_connect(&endpoints, calling, front.address, &callers[i]), CRPC_OK);
        crpc_completion request =
            contexts_poll_until(front.context, calling, CRPC_COMPLETION_CONNECT_REQUEST);
        assert_int_equal(hand_over(&endpoints, front.context, request.endpoint.bits,
                                   worker->context, USER_DATA + worker->number),
                         CRPC_OK);
        assert_int_equal(crpc_endpoint_close(front.context, request.endpoint), CRPC_E_STALE);
        assert_int_equal(contexts_poll_until(calling, NULL, CRPC_COMPLETION_CONNECTED).status,
                         CRPC_OK);
    }
    assert_int_equal(crpc_context_close(front.context), CRPC_OK);
    for (uint32_t i = 0; i < CALLERS; i++) {
        uint32_t number = call(calling, callers[i]);
        assert_int_equal(number, i % WORKERS);
        answered[number]++;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        atomic_store(&workers[i].stop, true);
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].accepted, CALLERS / WORKERS);
        assert_int_equal(answered[i], CALLERS / WORKERS);
        crpc_context_close(workers[i].context);
    }
    crpc_context_close(calling);
}

/* ---- Each kind ------------------------------------------------------------------------------- */

static crpc_context *other;

static crpc_completion handed_over(const struct kind *kind, struct front *front,
                                   crpc_context *calling, uint64_t *caller)
{
    assert_int_equal(start_connect(kind, calling, front->address, caller), CRPC_OK);
    crpc_completion request =
        contexts_poll_until(front->context, calling, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(hand_over(kind, front->context, request.endpoint.bits, other, USER_DATA),
                     CRPC_OK);
    crpc_completion taken = contexts_poll_until(other, calling, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_true(taken.user_data == USER_DATA);
    assert_int_equal(taken.flags, request.flags);
    return taken;
}

static void connects(const struct kind *kind)
{
    struct front front = open_front(kind);
    crpc_context *calling = contexts_open(kind->context_flags);
    uint64_t caller;
    other = contexts_open(kind->context_flags);
    crpc_completion taken = handed_over(kind, &front, calling, &caller);
    assert_int_equal(crpc_context_close(front.context), CRPC_OK);
    assert_int_equal(accept_it(kind, other, taken.endpoint.bits), CRPC_OK);
    assert_int_equal(contexts_poll_until(calling, other, CRPC_COMPLETION_CONNECTED).status,
                     CRPC_OK);
    crpc_context_close(calling);
    assert_int_equal(contexts_poll_until(other, NULL, CRPC_COMPLETION_DISCONNECTED).endpoint.bits,
                     taken.endpoint.bits);
    crpc_context_close(other);
}

static void an_endpoint_connects(void **state)
{
    (void)state;
    connects(&endpoints);
}

static void a_channel_connects(void **state)
{
    (void)state;
    connects(&channels);
}

static void a_queue_connects(void **state)
{
    (void)state;
    connects(&queues);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_rejection_has_its_reason(void **state)
{
    (void)state;
    struct front front = open_front(&endpoints);
    crpc_context *calling = contexts_open(0);
    crpc_error error = {.struct_size = sizeof(error)};
    uint64_t caller;
    other = contexts_open(0);
    crpc_completion taken = handed_over(&endpoints, &front, calling, &caller);
    assert_int_equal(crpc_endpoint_reject(other, taken.endpoint, REASON), CRPC_OK);
    assert_int_equal(contexts_poll_until(calling, other, CRPC_COMPLETION_CONNECTED).status,
                     CRPC_E_REFUSED);
    crpc_endpoint_get_error(calling, (crpc_endpoint){caller}, &error);
    assert_non_null(strstr(error.message, "4711"));
    crpc_context_close(calling);
    crpc_context_close(front.context);
    crpc_context_close(other);
}

/* It was given to the application, or not even that. */
static void a_context_that_closes_rejects_what_it_has(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        struct front front = open_front(&endpoints);
        crpc_context *calling = contexts_open(0);
        uint64_t caller;
        other = contexts_open(0);
        if (given) {
            handed_over(&endpoints, &front, calling, &caller);
        } else {
            assert_int_equal(start_connect(&endpoints, calling, front.address, &caller), CRPC_OK);
            crpc_completion request =
                contexts_poll_until(front.context, calling, CRPC_COMPLETION_CONNECT_REQUEST);
            assert_int_equal(hand_over(&endpoints, front.context, request.endpoint.bits, other, 0),
                             CRPC_OK);
        }
        crpc_context_close(other);
        assert_int_equal(
            contexts_poll_until(calling, front.context, CRPC_COMPLETION_CONNECTED).status,
            CRPC_E_REFUSED);
        crpc_context_close(calling);
        crpc_context_close(front.context);
    }
}

/* After each refusal, the request is as it was. */
static void what_cannot_be_handed_over_is_refused(void **state)
{
    (void)state;
    const struct kind both = {CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES, 0};
    const struct kind *const kinds[] = {&channels, &queues, &endpoints};
    crpc_context *plain = contexts_open(0), *calling = contexts_open(both.context_flags);
    for (size_t i = 0; i < 3; i++) {
        const struct kind *kind = kinds[i];
        struct front front = open_front(kind);
        crpc_context *context = front.context;
        uint64_t caller;
        assert_int_equal(start_connect(kind, calling, front.address, &caller), CRPC_OK);
        const uint64_t handle =
            contexts_poll_until(context, calling, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
        if (kind != &endpoints) {
            assert_int_equal(hand_over(kind, context, handle, plain, 0), CRPC_E_STATE);
        }
        assert_int_equal(hand_over(kind, context, handle, context, 0), CRPC_E_INVALID);
        assert_int_equal(hand_over(kind, context, handle, NULL, 0), CRPC_E_INVALID);
        assert_int_equal(hand_over(kind, NULL, handle, plain, 0), CRPC_E_INVALID);
        assert_int_equal(hand_over(kind, context, handle + 1, plain, 0), CRPC_E_STALE);
        assert_int_equal(accept_it(kind, context, handle), CRPC_OK);
        assert_int_equal(contexts_poll_until(calling, context, CRPC_COMPLETION_CONNECTED).status,
                         CRPC_OK);
        other = contexts_open(kind->context_flags);
        assert_int_equal(hand_over(kind, context, handle, other, 0), CRPC_E_STATE);
        crpc_context_close(other);
        crpc_context_close(context);
    }
    crpc_context_close(calling);
    crpc_context_close(plain);
}

/* So that a context which looks away is no place where requests gather without end. */
static void so_many_wait_and_no_more(void **state)
{
    (void)state;
    const uint32_t wait_max = 128;
    struct front front = open_front(&endpoints);
    crpc_context *calling = contexts_open(0);
    uint64_t caller;
    other = contexts_open(0);
    for (uint32_t i = 0; i <= wait_max; i++) {
        assert_int_equal(start_connect(&endpoints, calling, front.address, &caller), CRPC_OK);
        crpc_completion request =
            contexts_poll_until(front.context, calling, CRPC_COMPLETION_CONNECT_REQUEST);
        assert_int_equal(hand_over(&endpoints, front.context, request.endpoint.bits, other, 0),
                         i < wait_max ? CRPC_OK : CRPC_E_NO_RESOURCE);
        if (i == wait_max) {
            crpc_completion taken =
                contexts_poll_until(other, calling, CRPC_COMPLETION_CONNECT_REQUEST);
            assert_int_equal(accept_it(&endpoints, other, taken.endpoint.bits), CRPC_OK);
            assert_int_equal(hand_over(&endpoints, front.context, request.endpoint.bits, other, 0),
                             CRPC_OK);
        }
    }
    crpc_context_close(other);
    crpc_context_close(front.context);
    crpc_context_close(calling);
}

/* Neither thread hears of it: only the log and the peer. */
static void a_context_without_room_refuses_it(void **state)
{
    (void)state;
    struct front front = open_front(&channels);
    crpc_context *calling = contexts_open(channels.context_flags);
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .features = PLACE_FEATURES,
                                    .flags = channels.context_flags,
                                    .channels_max = 1};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion unused;
    uint64_t caller;
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    assert_int_equal(crpc_context_open(&options, &other, NULL), CRPC_OK);
    handed_over(&channels, &front, calling, &caller);
    assert_int_equal(start_connect(&channels, calling, front.address, &caller), CRPC_OK);
    crpc_completion request =
        contexts_poll_until(front.context, calling, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(hand_over(&channels, front.context, request.endpoint.bits, other, USER_DATA),
                     CRPC_OK);
    assert_int_equal(crpc_poll(other, &unused, 1), 0);
    assert_int_equal(contexts_poll_until(calling, other, CRPC_COMPLETION_CONNECTED).status,
                     CRPC_E_REFUSED);
    crpc_channel_get_error(calling, (crpc_channel){caller}, &error);
    assert_non_null(strstr(error.message, "channels_max"));
    crpc_context_close(calling);
    crpc_context_close(front.context);
    crpc_context_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_are_spread_over_threads),
        cmocka_unit_test(an_endpoint_connects),
        cmocka_unit_test(a_channel_connects),
        cmocka_unit_test(a_queue_connects),
        cmocka_unit_test(a_rejection_has_its_reason),
        cmocka_unit_test(a_context_that_closes_rejects_what_it_has),
        cmocka_unit_test(what_cannot_be_handed_over_is_refused),
        cmocka_unit_test(a_context_without_room_refuses_it),
        cmocka_unit_test(so_many_wait_and_no_more),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

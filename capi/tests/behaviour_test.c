/* behaviour_test.c: the public API as a program uses it: calls and their ends, views, writing in
 * place, sleeping, regions, options, log.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "private/context.h"
#include "signals.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const void *view(const crpc_completion *completion)
{
    return (const void *)(uintptr_t)completion->payload;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void a_call_and_its_reply(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(42);
    op.method = 17;
    op.payload_bytes = 5;
    assert_int_equal(fixture_submit(fixture.left, &op, "hello", 5), CRPC_OK);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.method, 17);
    assert_int_equal(request.payload_bytes, 5);
    assert_int_equal(request.reply_bytes_max, 64);
    assert_int_equal(request.endpoint.bits, fixture.right_endpoint.bits);
    assert_int_equal(request.user_data, 4711);
    assert_int_equal(request.payload % 16, 0);
    assert_memory_equal(view(&request), "hello", 5);
    assert_int_equal(fixture_reply(&request, "world!", 0), CRPC_OK);
    crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.user_data, 42);
    assert_int_equal(response.method, 17);
    assert_int_equal(response.status, CRPC_OK);
    assert_int_equal(response.endpoint_user_data, 4711);
    assert_memory_equal(view(&response), "world!", 6);
    crpc_completion sent = fixture_expect(fixture.right, CRPC_COMPLETION_REPLY);
    assert_int_equal(sent.user_data, 900);
    assert_int_equal(sent.token, request.token);
    assert_int_equal(sent.status, CRPC_OK);
    assert_int_equal(fixture_reply(&request, "again", 0), CRPC_E_STALE);
}

static void a_reply_longer_than_allowed_leaves_the_request_open(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    assert_int_equal(request.reply_bytes_max, 3);
    assert_int_equal(fixture_reply(&request, "four", 0), CRPC_E_TOO_BIG);
    assert_int_equal(fixture_reply(&request, "yes", 0), CRPC_OK);
}

static void drop_and_status(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    crpc_op op = {.opcode = CRPC_OP_DROP,
                  .endpoint = fixture.right_endpoint,
                  .user_data = 5,
                  .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &op, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status, CRPC_E_DROPPED);
    assert_int_equal(fixture_expect(fixture.right, CRPC_COMPLETION_REPLY).user_data, 5);
    request = fixture_request(2, "q", 3);
    op = (crpc_op){.opcode = CRPC_OP_REPLY,
                   .flags = CRPC_OP_QUIET,
                   .status = INT32_MAX,
                   .endpoint = fixture.right_endpoint,
                   .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &op, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status, INT32_MAX);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_poll(fixture.right), 0); /* quiet */
    }
}

static void cancel_by_user_data(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    op.user_data = 8;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .user_data = 99, .token = 7};
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.left), 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture.completions[i].user_data, 7);
        assert_int_equal(fixture.completions[i].status, CRPC_E_CANCELED);
    }
    assert_int_equal(fixture.completions[3].kind, CRPC_COMPLETION_CANCEL);
    assert_int_equal(fixture.completions[3].token, 3);
    assert_int_equal(fixture.completions[3].user_data, 99);
    assert_int_equal(fixture.completions[4].status, CRPC_E_NOT_FOUND);
}

static void a_deadline_is_never_early(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.timeout_ns = 20000000;
    uint64_t begun = now_ns();
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    do {
        assert_int_equal(crpc_wait(fixture.left, 1000000000), CRPC_OK);
    } while (fixture_poll(fixture.left) == 0);
    assert_true(now_ns() - begun >= 20000000);
    assert_int_equal(fixture.completions[0].status, CRPC_E_TIMEOUT);
    /* The late reply is swallowed. */
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(fixture_reply(&request, "late", 0), CRPC_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_poll(fixture.left), 0);
    }
    crpc_stats stats = {.struct_size = sizeof(stats)};
    crpc_context_get_stats(fixture.left, &stats);
    assert_int_equal(stats.late_responses, 1);
}

static void close_and_disconnect_complete_what_is_pending(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(5);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.left), 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fixture.completions[i].status, CRPC_E_CLOSED);
        assert_int_equal(fixture.completions[i].endpoint.bits, fixture.left_endpoint.bits);
    }
    assert_int_equal(fixture_poll(fixture.left), 0);
}

static void both_sides_take_leave(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    assert_int_equal(crpc_endpoint_disconnect(fixture.left, fixture.left_endpoint, CRPC_FOREVER),
                     CRPC_OK);
    crpc_op op = fixture_call_op(2);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_CLOSING);
    fixture_poll(fixture.right);
    assert_int_equal(fixture_reply(&request, "bye", 0), CRPC_OK); /* still answered */
    int ends[2] = {0}, responses = 0;
    for (int i = 0; i < 50; i++) {
        crpc_context *const contexts[2] = {fixture.left, fixture.right};
        for (int side = 0; side < 2; side++) {
            fixture_poll(contexts[side]);
            for (int32_t j = 0; j < fixture.count; j++) {
                assert_int_equal(fixture.completions[j].status, CRPC_OK);
                ends[side] += fixture.completions[j].kind == CRPC_COMPLETION_DISCONNECTED;
                responses += fixture.completions[j].kind == CRPC_COMPLETION_RESPONSE;
            }
        }
    }
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 1);
    assert_int_equal(responses, 1);
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_endpoint_get_error(fixture.left, fixture.left_endpoint, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_OK);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    assert_int_equal(info.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_DISCONNECTED);
}

/* ---- Views ----------------------------------------------------------------------------------- */

static void retain_copies_a_view_while_it_lives(void **state)
{
    (void)state;
    char buffer[16] = "";
    crpc_completion request = fixture_request(1, "hello", 3);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 4), CRPC_E_TOO_BIG);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, sizeof(buffer)), 5);
    assert_string_equal(buffer, "hello");
    assert_int_equal(crpc_retain(fixture.left, &request, buffer, 16), CRPC_E_STALE);

    crpc_completion forged = request; /* a caller that tampers reads nothing but its own ring */
    forged.payload -= 1 << 20;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, 16), CRPC_E_STALE);
    forged = request;
    forged.payload_bytes = 1 << 24;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, UINT64_MAX), CRPC_E_STALE);
    forged = request;
    forged.view++;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, 16), CRPC_E_STALE);

    fixture_poll(fixture.right);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 16), CRPC_E_STALE);
    request = fixture_request(2, "again", 3);
    crpc_endpoint_close(fixture.right, fixture.right_endpoint);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 16), CRPC_E_STALE);
    assert_memory_equal(view(&request), "again", 5); /* but the memory stays until the next poll */
}

static void reserve_commit_abort(void **state)
{
    (void)state;
    void *place, *other;
    crpc_op op = fixture_call_op(3);
    op.payload_bytes = 100;
    assert_int_equal(crpc_reserve(fixture.left, &op, &place), CRPC_OK);
    assert_int_equal((uintptr_t)place % 16, 0);
    assert_int_equal(crpc_reserve(fixture.left, &op, &other), CRPC_E_BUSY);
    crpc_op call = fixture_call_op(4);
    assert_int_equal(fixture_submit(fixture.left, &call, NULL, 0), CRPC_E_BUSY);
    memset(place, 'a', 100);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 101), CRPC_E_TOO_BIG);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 61), CRPC_OK);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 1), CRPC_E_STATE);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.payload_bytes, 61);
    for (int i = 0; i < 61; i++) {
        assert_int_equal(((const char *)view(&request))[i], 'a');
    }
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .endpoint = fixture.right_endpoint,
                     .token = request.token,
                     .payload_bytes = 16};
    assert_int_equal(crpc_reserve(fixture.right, &reply, &place), CRPC_OK);
    assert_int_equal(crpc_abort(fixture.right, fixture.right_endpoint), CRPC_OK);
    assert_int_equal(crpc_abort(fixture.right, fixture.right_endpoint), CRPC_E_STATE);
    assert_int_equal(crpc_reserve(fixture.right, &reply, &place), CRPC_OK);
    memcpy(place, "0123456789abcdef", 16);
    assert_int_equal(crpc_commit(fixture.right, fixture.right_endpoint, 16), CRPC_OK);
    crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.user_data, 3);
    assert_memory_equal(view(&response), "0123456789abcdef", 16);
    op.opcode = CRPC_OP_CANCEL;
    op.payload_bytes = 0;
    op.reply_bytes_max = 0;
    assert_int_equal(crpc_reserve(fixture.left, &op, &place), CRPC_E_UNSUPPORTED);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static void wait_ends_in_time_and_for_events(void **state)
{
    (void)state;
    uint64_t begun = now_ns();
    assert_int_equal(crpc_wait(fixture.right, 5000000), CRPC_E_TIMEOUT);
    assert_true(now_ns() - begun >= 5000000);
    assert_int_equal(crpc_wait(fixture.right, 0), CRPC_E_TIMEOUT);
    crpc_op op = fixture_call_op(1);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    assert_int_equal(crpc_wait(fixture.right, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.right), 1);
    assert_int_equal(crpc_wait(fixture.right, 0), CRPC_E_TIMEOUT);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void wait_ends_for_a_signal(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    /* Again and again: the first may come before it sleeps. */
    const struct itimerval often = {.it_value = {.tv_usec = 20000},
                                    .it_interval = {.tv_usec = 20000}};
    const struct itimerval never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int32_t status = crpc_wait(fixture.right, 60000000000);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_int_equal(status, CRPC_E_INTERRUPTED);
}

static void arm_bears_signals(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 5000; i++) {
        /* At some step of these: at each of them in the end. */
        const struct itimerval once = {.it_value = {.tv_usec = 1 + i % 50}};
        setitimer(ITIMER_REAL, &once, NULL);
        for (int j = 0; j < 50; j++) {
            assert_int_equal(crpc_context_arm(fixture.right), CRPC_OK);
        }
    }
}

static bool readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

static void the_descriptor_wakes_after_arm(void **state)
{
    (void)state;
    int fd = crpc_context_fd(fixture.right);
    int outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert_true(fd >= 0);
    assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event), 0);
    for (int round = 0; round < 1000; round++) {
        assert_int_equal(crpc_context_arm(fixture.right), CRPC_OK);
        assert_false(readable(fd));
        crpc_op op = fixture_call_op(1);
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        fixture_poll(fixture.left);
        assert_true(readable(fd));
        assert_int_equal(epoll_wait(outer, &event, 1, 0), 1);
        crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
        fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
        assert_false(readable(fd));
    }
    /* Armed too late: it says so instead of sleeping over it. */
    crpc_op op = fixture_call_op(1);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    fixture_poll(fixture.left);
    assert_int_equal(crpc_context_arm(fixture.right), CRPC_E_AGAIN);
    close(outer);
}

/* As the kernel leaves the descriptor of an unplugged device: in error, for ever. */
static void unplug(crpc_context *context)
{
    int ends[2], fd = context->nic->event_fd;
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(epoll_ctl(crpc_context_fd(context), EPOLL_CTL_DEL, fd, NULL), 0);
    assert_int_equal(dup2(ends[1], fd), fd);
    assert_int_equal(epoll_ctl(crpc_context_fd(context), EPOLL_CTL_ADD, fd, &event), 0);
    close(ends[1]);
}

static void nobody_spins_on_a_device_that_was_unplugged(void **state)
{
    (void)state;
    const uint64_t pause_ns = 20000000;
    int fd = crpc_context_fd(fixture.left);
    unplug(fixture.left);
    assert_true(readable(fd)); /* whoever sleeps wakes once */
    assert_int_equal(fixture_poll(fixture.left), 0);
    assert_int_equal(crpc_context_arm(fixture.left), CRPC_OK);
    assert_false(readable(fd));
    unplug(fixture.right);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ns = now_ns();
        assert_int_equal(crpc_wait(fixture.right, pause_ns), CRPC_E_TIMEOUT);
        assert_true(now_ns() - begin_ns >= pause_ns);
    }
    assert_false(readable(crpc_context_fd(fixture.right)));
    crpc_log_entry entry;
    assert_int_equal(crpc_context_log(fixture.right, &entry, 1), 1);
    assert_non_null(strstr(entry.message, "gives no more events"));
}

static void the_descriptor_wakes_for_a_deadline(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.timeout_ns = 10000000;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    int waits = 0;
    do {
        assert_int_equal(crpc_context_arm(fixture.left), CRPC_OK);
        struct pollfd one = {.fd = crpc_context_fd(fixture.left), .events = POLLIN};
        assert_int_equal(poll(&one, 1, 2000), 1);
        assert_true(waits++ < 20);
    } while (fixture_poll(fixture.left) == 0);
    assert_int_equal(fixture.completions[0].status, CRPC_E_TIMEOUT);
}

/* ---- Regions, options, log, resources -------------------------------------------------------- */

static void regions(void **state)
{
    (void)state;
    static uint8_t memory[8192];
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory),
                                          CRPC_ACCESS_REMOTE_WRITE, &region, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "LOCAL_WRITE"));
    assert_int_equal(crpc_region_register(fixture.left, memory, 1, 0x100, &region, &error),
                     CRPC_E_INVALID);
    uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ;
    assert_int_equal(
        crpc_region_register(fixture.left, memory, sizeof(memory), access, &region, &error),
        CRPC_OK);
    assert_int_equal(crpc_region_get_info(fixture.left, region, &info), CRPC_OK);
    assert_int_equal(info.address, (uint64_t)(uintptr_t)memory);
    assert_int_equal(info.bytes, sizeof(memory));
    assert_int_equal(info.access, access);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_E_STALE);
    /* One that is left open goes with its context: the teardown looks for it. */
    assert_int_equal(crpc_region_register(fixture.left, memory, 64, 0, &region, NULL), CRPC_OK);
}

static void limits_of_the_header_are_allowed(void **state)
{
    (void)state;
    const crpc_endpoint_options cases[] = {
        {.ring_bytes = 4096, .request_bytes = 64},
        {.ring_bytes = 4096, .request_bytes = 4096 - 96},
        {.calls_max = 1},
        {.calls_max = 1u << 20},
        {.batch_window = 1},
        {.retry_timeout = 31, .retry_count = 7},
    };
    const uint32_t intervals[] = {1, 64};
    crpc_context *context;
    crpc_context_info info = {.struct_size = sizeof(info)};
    for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
        const crpc_context_options options = {.struct_size = sizeof(options),
                                              .signal_interval = intervals[i]};
        assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
        assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
        assert_int_equal(info.signal_interval, intervals[i]);
        crpc_context_close(context);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_endpoint_options options = cases[i];
        crpc_endpoint endpoint;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        options.struct_size = sizeof(options);
        assert_int_equal(crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, NULL),
                         CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.left, endpoint), CRPC_OK);
    }
}

static void endpoint_options_are_checked_with_a_message(void **state)
{
    (void)state;
    static const struct {
        crpc_endpoint_options options;
        const char *word;
    } cases[] = {
        {{.ring_bytes = 5000}, "ring_bytes"},
        {{.ring_bytes = 2048}, "ring_bytes"},
        {{.ring_bytes = 0x80000000u}, "ring_bytes"},
        {{.request_bytes = 33}, "request_bytes"},
        {{.request_bytes = 32}, "request_bytes"},
        {{.ring_bytes = 4096, .request_bytes = 4096 - 64}, "request_bytes"},
        {{.calls_max = (1u << 20) + 1}, "calls_max"},
        {{.batch_window = 1025}, "batch_window"},
        {{.retry_timeout = 32}, "retry"},
        {{.retry_count = 8}, "retry"},
        {{.token_bytes = 17}, "token"},
        {{.key_bytes = 15}, "key"},
        {{.key_bytes = 65}, "key"},
        {{.peer_ring_bytes_max = 4095}, "peer_ring_bytes_max"},
        {{.peer_ring_bytes_max = (1u << 30) + 1}, "peer_ring_bytes_max"},
        {{.flags = 3}, "CALL_ONLY"},
        {{.flags = 8}, "reserved"},
        {{.flags = 1, .request_bytes = 64}, "request_bytes"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_endpoint_options options = cases[i].options;
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_endpoint endpoint;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        options.struct_size = sizeof(options);
        assert_int_equal(
            crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
            CRPC_E_INVALID);
        if (!strstr(error.message, cases[i].word)) {
            fail_msg("case %zu: %s", i, error.message);
        }
    }
}

static void context_options_are_checked_with_a_message(void **state)
{
    (void)state;
    crpc_context_options cases[] = {
        {.flags = 4},         {.gid_index = 1},
        {.log_level = 5},     {.endpoints_max = 1u << 19},
        {.receive_depth = 1}, {.signal_interval = 65},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context *context;
        cases[i].struct_size = sizeof(cases[i]);
        assert_int_equal(crpc_context_open(&cases[i], &context, &error), CRPC_E_INVALID);
        assert_true(strlen(error.message) > 10);
    }
    crpc_context_options options = {.struct_size = sizeof(options), .driver = CRPC_DRIVER_MLX5};
    crpc_context *context;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_UNSUPPORTED);
    memset(options.device, 'x', sizeof(options.device));
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_INVALID);
    options = (crpc_context_options){.struct_size = sizeof(options), .device = "none"};
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_NO_DEVICE);
}

static void no_room_for_another_endpoint(void **state)
{
    (void)state;
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob), made = 0;
    crpc_endpoint_options options = {
        .struct_size = sizeof(options), .ring_bytes = 4096, .calls_max = 1};
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 683 - 64);
    while (crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error) == CRPC_OK) {
        made++;
        assert_true(made < 20);
    }
    assert_int_equal(made, 9);
    assert_int_equal(error.status, CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "batch_window"));
    options.batch_window = 43;
    assert_int_equal(crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
                     CRPC_OK);
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 0);
    assert_int_equal(info.endpoints, 11);
    assert_int_equal(crpc_endpoint_close(fixture.left, endpoint), CRPC_OK);
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 43);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) {
        count++;
    }
    closedir(directory);
    return count;
}

static void a_failure_at_any_step_leaves_nothing_behind(void **state)
{
    (void)state;
    struct memory_fabric *fabric = memory_fabric_default();
    const struct memory_fabric_counters *counters = memory_fabric_counters(fabric);
    int descriptors = open_descriptors();
    uint64_t regions_before = counters->regions, queue_pairs = counters->queue_pairs;
    uint64_t domains = counters->domains;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    crpc_context *context;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_DOMAIN, 1, CRPC_E_NO_RESOURCE);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    for (uint32_t nth = 1; nth <= 2; nth++) {
        memory_fabric_set_failures(fabric, MEMORY_FAIL_REGISTER, nth, CRPC_E_MEMLOCK);
        assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                         CRPC_E_MEMLOCK);
    }
    memory_fabric_set_failures(fabric, MEMORY_FAIL_CREATE, 1, CRPC_E_NO_RESOURCE);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_OPEN, 1, CRPC_E_NO_MEMORY);
    assert_int_equal(crpc_context_open(NULL, &context, &error), CRPC_E_NO_MEMORY);
    assert_int_equal(counters->regions, regions_before);
    assert_int_equal(counters->queue_pairs, queue_pairs);
    assert_int_equal(counters->domains, domains);
    assert_int_equal(open_descriptors(), descriptors);

    uint8_t other[CRPC_BLOB_BYTES_MAX];
    crpc_endpoint there;
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_OK);
    bytes = sizeof(other);
    assert_int_equal(crpc_endpoint_blob(fixture.right, NULL, &there, other, &bytes, &error),
                     CRPC_OK);
    for (uint32_t nth = 1; nth <= 2; nth++) {
        memory_fabric_set_failures(fabric, MEMORY_FAIL_REGISTER, nth, CRPC_E_MEMLOCK);
        assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error),
                         CRPC_E_MEMLOCK);
    }
    memory_fabric_set_failures(fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error),
                     CRPC_E_UNREACHABLE);
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error), CRPC_OK);
}

/* By blobs, and over before it says so: the peer's ring is what the other one joins. */
static int32_t join_a_ring_of(uint32_t ring_bytes, const crpc_endpoint_options *ours,
                              crpc_error *error)
{
    crpc_endpoint_options theirs = {.struct_size = sizeof(theirs), .ring_bytes = ring_bytes};
    crpc_endpoint left, right;
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    uint32_t left_bytes = sizeof(left_blob), right_bytes = sizeof(right_blob);
    assert_int_equal(crpc_endpoint_blob(fixture.left, ours, &left, left_blob, &left_bytes, error),
                     CRPC_OK);
    assert_int_equal(
        crpc_endpoint_blob(fixture.right, &theirs, &right, right_blob, &right_bytes, error),
        CRPC_OK);
    int32_t status = crpc_endpoint_join(fixture.left, left, right_blob, right_bytes, error);
    crpc_endpoint_close(fixture.left, left);
    crpc_endpoint_close(fixture.right, right);
    return status;
}

static void a_larger_ring_of_the_peer_must_be_allowed(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options large = {.struct_size = sizeof(large), .ring_bytes = 4u << 20};
    crpc_endpoint_options small = {.struct_size = sizeof(small), .ring_bytes = 4096};
    uint64_t regions_before = memory_fabric_counters(memory_fabric_default())->regions;
    assert_int_equal(join_a_ring_of(1u << 20, NULL, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(2u << 20, NULL, &error), CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "peer_ring_bytes_max"));
    assert_non_null(strstr(error.message, "1048576"));
    assert_int_equal(join_a_ring_of(1u << 20, &small, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(2u << 20, &small, &error), CRPC_E_NO_RESOURCE);
    assert_int_equal(join_a_ring_of(4u << 20, &large, &error), CRPC_OK); /* as large as its own */
    assert_int_equal(join_a_ring_of(8u << 20, &large, &error), CRPC_E_NO_RESOURCE);
    large.peer_ring_bytes_max = 8u << 20;
    assert_int_equal(join_a_ring_of(8u << 20, &large, &error), CRPC_OK);
    small.peer_ring_bytes_max = 8192;
    assert_int_equal(join_a_ring_of(8192, &small, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(16384, &small, &error), CRPC_E_NO_RESOURCE);
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->regions, regions_before);
}

static void the_log_keeps_the_latest_and_counts_the_lost(void **state)
{
    (void)state;
    crpc_log_entry entries[8];
    for (int i = 0; i < 300; i++) { /* each lost endpoint is a warning */
        crpc_endpoint left, right;
        crpc_endpoint_options options = {
            .struct_size = sizeof(options), .ring_bytes = 4096, .calls_max = 2};
        fixture_connect(&options, &left, &right);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = left};
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        crpc_completion end = fixture_expect(fixture.left, CRPC_COMPLETION_DISCONNECTED);
        assert_int_equal(end.status, CRPC_E_DISCONNECTED);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
    }
    assert_int_equal(crpc_context_log(fixture.left, entries, 8), 8);
    assert_int_equal(entries[0].lost, 300 - 256);
    assert_int_equal(entries[0].level, CRPC_LOG_WARNING);
    assert_non_null(strstr(entries[0].message, "lost"));
    assert_int_equal(entries[1].lost, 0);
    int rest = 0, count;
    while ((count = crpc_context_log(fixture.left, entries, 8)) > 0) {
        rest += count;
    }
    assert_int_equal(rest, 248);
}

static void devices_are_listed(void **state)
{
    (void)state;
    crpc_device_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_device_query(0, &info, &error), CRPC_OK);
    assert_string_equal(info.name, "memory0");
    assert_int_equal(info.port_state, CRPC_PORT_ACTIVE);
    assert_int_equal(info.link_mbps, 100000);
    uint64_t card = info.system_image_guid;
    assert_int_not_equal(card, 0);
    assert_int_equal(crpc_device_query(1, &info, &error), CRPC_OK);
    assert_int_not_equal(info.system_image_guid, card);
    assert_int_equal(crpc_device_query(2, &info, &error), CRPC_E_NO_DEVICE);
}

static void every_status_has_a_name_and_a_text(void **state)
{
    (void)state;
    for (int32_t status = CRPC_E_KEY; status <= 0; status++) {
        assert_memory_equal(crpc_status_name(status), status ? "CRPC_E_" : "CRPC_OK", 7);
        assert_string_not_equal(crpc_status_name(status), "CRPC_E_?");
        assert_true(strlen(crpc_status_text(status)) > 5);
    }
    assert_string_equal(crpc_status_name(CRPC_E_KEY - 1), "CRPC_E_?");
    assert_string_equal(crpc_status_name(INT32_MIN), "CRPC_E_?");
    assert_string_equal(crpc_status_name(7), "CRPC_OK");
    assert_int_equal(crpc_version(),
                     CRPC_VERSION_MAJOR << 16 | CRPC_VERSION_MINOR << 8 | CRPC_VERSION_PATCH);
}

int main(void)
{
    signals_as_usual();
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_call_and_its_reply),
        WITH_FIXTURE(a_reply_longer_than_allowed_leaves_the_request_open),
        WITH_FIXTURE(drop_and_status),
        WITH_FIXTURE(cancel_by_user_data),
        WITH_FIXTURE(a_deadline_is_never_early),
        WITH_FIXTURE(close_and_disconnect_complete_what_is_pending),
        WITH_FIXTURE(both_sides_take_leave),
        WITH_FIXTURE(retain_copies_a_view_while_it_lives),
        WITH_FIXTURE(reserve_commit_abort),
        WITH_FIXTURE(wait_ends_in_time_and_for_events),
        WITH_FIXTURE(wait_ends_for_a_signal),
        WITH_FIXTURE(arm_bears_signals),
        WITH_FIXTURE(the_descriptor_wakes_after_arm),
        WITH_FIXTURE(nobody_spins_on_a_device_that_was_unplugged),
        WITH_FIXTURE(the_descriptor_wakes_for_a_deadline),
        WITH_FIXTURE(regions),
        WITH_FIXTURE(limits_of_the_header_are_allowed),
        WITH_FIXTURE(endpoint_options_are_checked_with_a_message),
        WITH_FIXTURE(context_options_are_checked_with_a_message),
        WITH_FIXTURE(no_room_for_another_endpoint),
        WITH_FIXTURE(a_failure_at_any_step_leaves_nothing_behind),
        WITH_FIXTURE(a_larger_ring_of_the_peer_must_be_allowed),
        WITH_FIXTURE(the_log_keeps_the_latest_and_counts_the_lost),
        WITH_FIXTURE(devices_are_listed),
        cmocka_unit_test(every_status_has_a_name_and_a_text),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

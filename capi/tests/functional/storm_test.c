/* storm_test.c: two processes in each of which an interval timer sends signals all the time. Nothing
 * hangs, every op completes, and none twice.
 *
 * TEST_INTERRUPTS is how many signals the client must have taken in each test. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"
#include "signals.h"

#define DEPTH 64      /* ops open at a time */
#define STORM_US 100  /* between two signals */
#define QUIET_OPS 100 /* that follow without a storm: one that was forgotten shows now */
#define MESSAGE 3000  /* bytes of a channel's message */

/* No signal wakes what was forgotten for so long: a hang. */
#define HANG_NS UINT64_C(60000000000)

static volatile sig_atomic_t taken;

static void take(int signal)
{
    (void)signal;
    taken++;
}

static long wanted(void)
{
    return atol(place_value("TEST_INTERRUPTS", "1000"));
}

/* Sends SIGALRM to this process every `us`; 0: no longer. A system call that it interrupts is not
 * resumed: the library has to. */
static void storm(useconds_t us)
{
    const struct sigaction action = {.sa_handler = take};
    const struct itimerval interval = {{0, us}, {0, us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &interval, NULL);
}

/* Also of the child, which cannot tell cmocka. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# %s: %s:%d: %s: ", is_child ? "server" : "client", __FILE__,         \
                    __LINE__, #condition);                                                         \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            is_child ? _exit(1) : fail();                                                          \
        }                                                                                          \
    } while (0)

static bool is_child;
static crpc_context *context;
static crpc_completion completions[32];
static char address[64];

/* ---- Both sides ------------------------------------------------------------------------------ */

static void open_context(uint32_t flags)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .features = PLACE_FEATURES,
                                          .flags = flags,
                                          .initiators = place_initiators()};
    MUST(crpc_context_open(&options, &context, &error) == CRPC_OK, "%s", error.message);
}

/* Polls; sleeps, in one of two ways, if there is nothing. */
static int32_t next(bool by_descriptor)
{
    int32_t count = crpc_poll(context, completions, 32);
    MUST(count >= 0, "%d", count);
    if (count > 0) {
        return count;
    }
    if (by_descriptor) {
        struct pollfd watched = {.fd = crpc_context_fd(context), .events = POLLIN};
        int32_t status = crpc_context_arm(context);
        MUST(status == CRPC_OK || status == CRPC_E_AGAIN, "%s", crpc_status_name(status));
        if (status == CRPC_OK) {
            int ready = poll(&watched, 1, (int)(HANG_NS / 1000000));
            MUST(ready == 1 || (ready < 0 && errno == EINTR), "nothing for a minute: %d", ready);
        }
    } else {
        int32_t status = crpc_wait(context, HANG_NS);
        MUST(status == CRPC_OK || status == CRPC_E_INTERRUPTED, "%s", crpc_status_name(status));
    }
    return 0;
}

/* Runs `server` in a child, which tells the address that it listens on, and `client` here. */
static void run(void (*server)(int tell), void (*client)(void), const char *name)
{
    int pipes[2], status = -1;
    MUST(pipe(pipes) == 0, "%d", errno);
    fflush(NULL);
    pid_t child = fork();
    MUST(child >= 0, "%d", errno);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        is_child = true;
        taken = 0;
        storm(STORM_US);
        server(pipes[1]);
        storm(0);
        fprintf(stderr, "# %s: the server has taken %d signals\n", name, (int)taken);
        _exit(0);
    }
    close(pipes[1]);
    MUST(read(pipes[0], address, sizeof(address)) == sizeof(address), "there is no server");
    close(pipes[0]);
    taken = 0;
    storm(STORM_US);
    client();
    storm(0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    MUST(status == 0, "the server ended with %#x", (unsigned)status);
    fprintf(stderr, "# %s: the client has taken %d signals\n", name, (int)taken);
}

static void serve_at(int tell, uint32_t flags)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    const crpc_listener_options options = {.struct_size = sizeof(options),
                                           .flags = flags ? CRPC_LISTENER_CHANNELS : 0};
    crpc_listener listener;
    open_context(flags);
    MUST(crpc_listener_open(context, place_at(0, "0"), &options, &listener, &error) == CRPC_OK,
         "%s", error.message);
    MUST(crpc_listener_get_info(context, listener, &info) == CRPC_OK, "no address");
    MUST(write(tell, info.address, sizeof(address)) == sizeof(address), "%d", errno);
    close(tell);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static const crpc_endpoint_options patient = {.struct_size = sizeof(patient),
                                              .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};

/* The method of calls after which no more connections come, and no more signals are needed. */
#define LAST 1

/* Answers with the number that came. Those of a connection come in order, each once. */
static void answer(int tell)
{
    uint64_t number = 0;
    bool last = false, over = false;
    serve_at(tell, 0);
    while (!over) {
        crpc_error error = {.struct_size = sizeof(error)};
        int32_t count = next(true), reason = 0;
        for (int32_t i = 0; i < count; i++) {
            const crpc_completion *done = &completions[i];
            crpc_op reply = {
                .opcode = CRPC_OP_REPLY, .flags = CRPC_OP_QUIET, .endpoint = done->endpoint};
            switch (done->kind) {
            case CRPC_COMPLETION_CONNECT_REQUEST:
                number = 0;
                MUST(crpc_endpoint_accept(context, done->endpoint, &patient, &error) == CRPC_OK,
                     "%s", error.message);
                break;
            case CRPC_COMPLETION_CONNECTED:
                MUST(done->status == CRPC_OK, "%s", crpc_status_name(done->status));
                break;
            case CRPC_COMPLETION_REQUEST:
                MUST(*(const uint64_t *)(uintptr_t)done->payload == number, "not request %llu",
                     (unsigned long long)number);
                reply.token = done->token;
                reply.payload_bytes = sizeof(number);
                MUST(crpc_submit(context, &reply, 1, &number, sizeof(number), &reason) == 1, "%s",
                     crpc_status_name(reason));
                number++;
                if (done->method == LAST && !last) {
                    last = true;
                    storm(0);
                }
                break;
            case CRPC_COMPLETION_DISCONNECTED:
                MUST(done->status == CRPC_OK, "%s", crpc_status_name(done->status));
                MUST(crpc_endpoint_close(context, done->endpoint) == CRPC_OK, "close");
                over = last;
                break;
            default:
                MUST(false, "completion of kind %u", done->kind);
            }
        }
    }
    MUST(crpc_context_close(context) == CRPC_OK, "close");
}

static void call(crpc_endpoint endpoint, uint64_t number, uint16_t method)
{
    int32_t reason = 0;
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .method = method,
                        .endpoint = endpoint,
                        .user_data = number,
                        .payload_bytes = sizeof(number),
                        .reply_bytes_max = sizeof(number)};
    MUST(crpc_submit(context, &op, 1, &number, sizeof(number), &reason) == 1, "%s",
         crpc_status_name(reason));
}

static crpc_endpoint connected(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    MUST(crpc_endpoint_connect(context, address, &patient, &endpoint, &error) == CRPC_OK, "%s",
         error.message);
    int32_t count;
    while ((count = next(false)) == 0) {
    }
    MUST(count == 1 && completions[0].kind == CRPC_COMPLETION_CONNECTED &&
             completions[0].status == CRPC_OK,
         "%d completions; kind %u, %s", count, completions[0].kind,
         crpc_status_name(completions[0].status));
    return endpoint;
}

static void leave(crpc_endpoint endpoint)
{
    int32_t count;
    MUST(crpc_endpoint_disconnect(context, endpoint, HANG_NS) == CRPC_OK, "disconnect");
    while ((count = next(false)) == 0) {
    }
    MUST(count == 1 && completions[0].kind == CRPC_COMPLETION_DISCONNECTED &&
             completions[0].status == CRPC_OK,
         "%d completions; kind %u, %s", count, completions[0].kind,
         crpc_status_name(completions[0].status));
    MUST(crpc_endpoint_close(context, endpoint) == CRPC_OK, "close");
}

static void make_calls(void)
{
    bool open[DEPTH] = {false};
    uint64_t called = 0, answered = 0, last = UINT64_MAX;
    open_context(0);
    crpc_endpoint endpoint = connected();
    while (answered < last) {
        for (; called < last && called - answered < DEPTH && !open[called % DEPTH]; called++) {
            open[called % DEPTH] = true;
            call(endpoint, called, last == UINT64_MAX ? 0 : LAST);
        }
        int32_t count = next(false);
        for (int32_t i = 0; i < count; i++, answered++) {
            const crpc_completion *done = &completions[i];
            MUST(done->kind == CRPC_COMPLETION_RESPONSE && done->status == CRPC_OK, "kind %u, %s",
                 done->kind, crpc_status_name(done->status));
            MUST(*(const uint64_t *)(uintptr_t)done->payload == done->user_data,
                 "another call's reply");
            MUST(done->user_data < called && open[done->user_data % DEPTH],
                 "call %llu has ended twice", (unsigned long long)done->user_data);
            open[done->user_data % DEPTH] = false;
        }
        if (taken >= wanted() && last == UINT64_MAX) {
            storm(0);
            last = called + QUIET_OPS;
        }
    }
    leave(endpoint);
    MUST(crpc_context_close(context) == CRPC_OK, "close");
    fprintf(stderr, "# calls: %llu\n", (unsigned long long)answered);
}

static void no_call_is_lost(void **state)
{
    (void)state;
    run(answer, make_calls, "calls");
}

/* ---- Connections ----------------------------------------------------------------------------- */

static void connect_often(void)
{
    uint64_t connections = 0;
    open_context(0);
    for (bool last = false; !last; connections++) {
        last = taken >= wanted();
        crpc_endpoint endpoint = connected();
        int32_t count;
        call(endpoint, 0, last ? LAST : 0);
        while ((count = next(true)) == 0) {
        }
        MUST(count == 1 && completions[0].kind == CRPC_COMPLETION_RESPONSE &&
                 completions[0].status == CRPC_OK,
             "%d completions; kind %u, %s", count, completions[0].kind,
             crpc_status_name(completions[0].status));
        leave(endpoint);
    }
    MUST(crpc_context_close(context) == CRPC_OK, "close");
    fprintf(stderr, "# connections: %llu\n", (unsigned long long)connections);
}

static void no_connection_fails(void **state)
{
    (void)state;
    run(answer, connect_often, "connections");
}

/* ---- Channels -------------------------------------------------------------------------------- */

#define LAST_FILL 251 /* what the last message has behind its number; others, less */

static unsigned char buffers[DEPTH][MESSAGE];

/* Returns false if it is a receive that is refused because the sender has left: this side may hear of
 * that before it has the last message. */
static bool post(crpc_channel channel, uint8_t opcode, uint64_t number, bool last)
{
    int32_t reason = 0;
    unsigned char *buffer = buffers[number % DEPTH];
    const crpc_channel_op op = {.opcode = opcode,
                                .channel = channel,
                                .user_data = number,
                                .address = (uintptr_t)buffer,
                                .bytes = MESSAGE};
    if (opcode == CRPC_CHANNEL_SEND) {
        memset(buffer, last ? LAST_FILL : (int)(number % LAST_FILL), MESSAGE);
        memcpy(buffer, &number, sizeof(number));
    } else {
        memset(buffer, 0xff, MESSAGE);
    }
    if (crpc_channel_submit(context, &op, 1, &reason) == 1) {
        return true;
    }
    MUST(opcode == CRPC_CHANNEL_RECEIVE &&
             (reason == CRPC_E_CLOSING || reason == CRPC_E_DISCONNECTED),
         "%s", crpc_status_name(reason));
    return false;
}

/* Checks an op that has ended. Returns true if its message is the last. */
static bool check(const crpc_completion *done, uint8_t kind, uint64_t number)
{
    const unsigned char *buffer = buffers[number % DEPTH], *fill = buffer + sizeof(number);
    MUST(done->kind == kind && done->status == CRPC_OK && done->user_data == number,
         "kind %u of op %llu, not %llu, %s", done->kind, (unsigned long long)done->user_data,
         (unsigned long long)number, crpc_status_name(done->status));
    MUST(memcmp(buffer, &number, sizeof(number)) == 0 &&
             (*fill == LAST_FILL || *fill == number % LAST_FILL) &&
             memcmp(fill, fill + 1, MESSAGE - sizeof(number) - 1) == 0,
         "message %llu is not what was sent", (unsigned long long)number);
    return *fill == LAST_FILL;
}

static bool gone; /* DISCONNECTED came with the last message */

/* Posts ops, half of DEPTH open at a time, each of which ends once and in order, until the last, which
 * the sender sends some time after the storm. Returns how many are still open. */
static uint64_t stream(crpc_channel channel, uint8_t opcode)
{
    const bool sends = opcode == CRPC_CHANNEL_SEND;
    uint64_t posted = 0, ended = 0, most = UINT64_MAX;
    for (bool over = false; !over;) {
        while (posted < most && posted - ended < DEPTH / 2) {
            if (post(channel, opcode, posted, posted + 1 == most)) {
                posted++;
            } else {
                most = posted;
            }
        }
        int32_t count = next(ended & 1);
        for (int32_t i = 0; i < count; i++) {
            if (over) { /* receives that the sender's leaving has ended, and its end */
                MUST(!sends, "kind %u after the last", completions[i].kind);
                ended += completions[i].kind == CRPC_COMPLETION_RECEIVED;
                gone = completions[i].kind == CRPC_COMPLETION_DISCONNECTED;
            } else if (completions[i].kind !=
                       CRPC_COMPLETION_RAIL) { /* it comes when it is ready */
                over = check(&completions[i],
                             sends ? CRPC_COMPLETION_SENT : CRPC_COMPLETION_RECEIVED, ended++);
            }
        }
        if (taken >= wanted()) {
            storm(0);
            most = sends && most == UINT64_MAX ? posted + QUIET_OPS : most;
        }
    }
    fprintf(stderr, "# messages %s: %llu\n", sends ? "sent" : "received",
            (unsigned long long)ended);
    return posted - ended;
}

/* The completion of this kind that comes next, of all that are not about rails. */
static crpc_completion await(uint8_t kind)
{
    for (;;) {
        int32_t count = next(false);
        for (int32_t i = 0; i < count; i++) {
            if (completions[i].kind != CRPC_COMPLETION_RAIL) {
                MUST(completions[i].kind == kind && completions[i].status == CRPC_OK, "kind %u, %s",
                     completions[i].kind, crpc_status_name(completions[i].status));
                return completions[i];
            }
        }
    }
}

/* Messages over one rail: those over two need not complete in order. */
static const crpc_channel_options patient_channel = {.struct_size = sizeof(patient_channel),
                                                     .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                                     .split = CRPC_SPLIT_FIXED,
                                                     .rail0_share = 1024};

static void receive(int tell)
{
    crpc_error error = {.struct_size = sizeof(error)};
    serve_at(tell, CRPC_CONTEXT_RAILS);
    crpc_channel channel = {await(CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits};
    MUST(crpc_channel_accept(context, channel, &patient_channel, &error) == CRPC_OK, "%s",
         error.message);
    await(CRPC_COMPLETION_CONNECTED);
    uint64_t open = stream(channel, CRPC_CHANNEL_RECEIVE);
    for (bool over = gone; !over;) { /* the sender leaves: its receives end, too */
        int32_t count = next(false);
        for (int32_t i = 0; i < count; i++) {
            over = over || completions[i].kind == CRPC_COMPLETION_DISCONNECTED;
            open -= completions[i].kind == CRPC_COMPLETION_RECEIVED;
        }
    }
    MUST(open == 0, "%lld receives have not ended", (long long)open);
    MUST(crpc_context_close(context) == CRPC_OK, "close");
}

static void send_messages(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel channel;
    open_context(CRPC_CONTEXT_RAILS);
    MUST(crpc_channel_connect(context, address, &patient_channel, &channel, &error) == CRPC_OK,
         "%s", error.message);
    await(CRPC_COMPLETION_CONNECTED);
    MUST(stream(channel, CRPC_CHANNEL_SEND) == 0, "sends after the last");
    MUST(crpc_channel_disconnect(context, channel, HANG_NS) == CRPC_OK, "disconnect");
    await(CRPC_COMPLETION_DISCONNECTED);
    MUST(crpc_context_close(context) == CRPC_OK, "close");
}

static void no_message_is_lost(void **state)
{
    (void)state;
    run(receive, send_messages, "channels");
}

int main(void)
{
    signals_as_usual();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_is_lost),
        cmocka_unit_test(no_connection_fails),
        cmocka_unit_test(no_message_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* side.c: see side.h. */
#include "side.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "place.h"

#define COMPLETIONS 64

static struct side here;

/* ---- Numbers --------------------------------------------------------------------------------- */

double side_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint64_t side_mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

uint64_t side_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return side_mix(*state);
}

/* ---- Two processes --------------------------------------------------------------------------- */

static void end_children(void)
{
    for (uint32_t i = 0; i < here.children; i++) {
        if (here.pids[i] > 0) {
            kill(here.pids[i], SIGKILL);
            waitpid(here.pids[i], NULL, 0);
            here.pids[i] = 0;
        }
    }
}

void side_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "# side %d: %s:%d: %s: %s\n", here.index, file, line, condition, text);
    fflush(stderr);
    if (here.index == 1) {
        _exit(1);
    }
    end_children();
    place_fault("none");
    if (here.context) { /* its threads and descriptors must not harm the next test */
        crpc_context_close(here.context);
    }
    _fail(file, line);
    abort();
}

static void run_child(void (*body)(struct side *side))
{
    char word;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (recv(here.socket, &word, 1, 0) != 1) { /* it is not needed */
        _exit(0);
    }
    body(&here);
    side_close(&here);
    fflush(NULL);
    _exit(0);
}

static void start_child(void (*body)(struct side *side), uint32_t child)
{
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(sockets[0]);
        for (uint32_t i = 0; i < child;
             i++) { /* else its brothers would not see their parent end */
            close(here.sockets[i]);
        }
        here = (struct side){.index = 1, .child = child, .socket = sockets[1], .seed = here.seed};
        run_child(body);
    }
    close(sockets[1]);
    here.pids[child] = pid;
    here.sockets[child] = sockets[0];
}

static void choose_child(uint32_t child)
{
    char word = 'g';
    EXPECT(child < here.children, "no child is left");
    here.child = child;
    here.other = here.pids[child];
    here.socket = here.sockets[child];
    side_tell(&here, &word, 1);
}

void sides_run_many(void (*body)(struct side *side), uint64_t seed, uint32_t children)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : seed;
    printf("# seed %llu\n", (unsigned long long)seed);
    assert_true(children >= 1 && children <= SIDE_CHILDREN_MAX);
    here = (struct side){.children = children, .seed = seed};
    for (uint32_t i = 0; i < children; i++) {
        start_child(body, i);
    }
    choose_child(0);
    body(&here);
    for (uint32_t i = 0; i < children; i++) {
        int status = -1;
        close(here.sockets[i]); /* those that were not needed end */
        if (here.pids[i] > 0) {
            assert_int_equal(waitpid(here.pids[i], &status, 0), here.pids[i]);
            here.pids[i] = 0;
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
        }
    }
    side_close(&here);
}

void sides_run(void (*body)(struct side *side), uint64_t seed)
{
    sides_run_many(body, seed, 1);
}

void side_kill(struct side *side)
{
    kill(side->other, SIGKILL);
    EXPECT_EQUAL(waitpid(side->other, NULL, 0), side->other);
    side->pids[side->child] = 0;
    side->other = 0;
}

void side_replace(struct side *side)
{
    EXPECT_EQUAL(side->other, 0);
    choose_child(side->child + 1);
}

bool side_told(const struct side *side)
{
    struct pollfd word = {.fd = side->socket, .events = POLLIN};
    return poll(&word, 1, 0) == 1;
}

void side_tell(struct side *side, const void *bytes, uint32_t count)
{
    EXPECT(send(side->socket, bytes, count, MSG_NOSIGNAL) == (ssize_t)count, "the other has gone");
}

/* Waits for a word of the other; `polls` the context meanwhile, or leaves it alone. */
static void hear(struct side *side, void *bytes, uint32_t count, bool polls)
{
    double end = side_seconds() + 90;
    struct pollfd word = {.fd = side->socket, .events = POLLIN};
    while (poll(&word, 1, polls ? 0 : 1000) == 0) {
        EXPECT(side_seconds() < end, "the other does not come");
        if (polls) {
            side_poll(side, 2000000);
        }
    }
    EXPECT(recv(side->socket, bytes, count, 0) == (ssize_t)count, "the other has failed");
}

void side_hear(struct side *side, void *bytes, uint32_t count)
{
    hear(side, bytes, count, side->context);
}

void side_meet(struct side *side)
{
    char word = 'm';
    side_tell(side, &word, 1);
    side_hear(side, &word, 1);
    EXPECT_EQUAL(word, 'm');
}

/* ---- Context --------------------------------------------------------------------------------- */

void side_open(struct side *side, const crpc_context_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options ours = {.struct_size = sizeof(ours), .flags = CRPC_CONTEXT_RAILS};
    if (options) {
        ours = *options;
    } else {
        snprintf(ours.rails[0], sizeof(ours.rails[0]), "%s", place_device(0));
        snprintf(ours.rails[1], sizeof(ours.rails[1]), "%s", place_device(1));
    }
    if (place_compresses()) {
        ours.features = CRPC_FEATURE_CQE_COMPRESSION;
    }
    EXPECT(crpc_context_open(&ours, &side->context, &error) == CRPC_OK, "%s", error.message);
}

void side_close(struct side *side)
{
    if (side->context) {
        EXPECT_EQUAL(crpc_context_close(side->context), CRPC_OK);
        side->context = NULL;
        memset(side->listeners, 0, sizeof(side->listeners));
    }
}

static void take(struct side *side, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        side->requests++;
        if (completion->flags & CRPC_COMPLETION_OF_CHANNEL) {
            side->requested.bits = completion->endpoint.bits;
        } else {
            side->requested_endpoint = completion->endpoint;
        }
        break;
    case CRPC_COMPLETION_CONNECTED:
        side->connected++;
        side->connected_status = completion->status;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        side->gone[side->disconnected++ % SIDE_GONE_MAX].bits = completion->endpoint.bits;
        side->disconnected_status = completion->status;
        break;
    case CRPC_COMPLETION_RAIL:
        EXPECT(completion->token < 2, "rail %llu", (unsigned long long)completion->token);
        EXPECT(completion->status == CRPC_OK || completion->status == CRPC_E_DISCONNECTED,
               "status %d", completion->status);
        *(completion->status == CRPC_OK ? &side->rail_back[completion->token]
                                        : &side->rail_lost[completion->token]) += 1;
        break;
    case CRPC_COMPLETION_DEVICE:
        break;
    default:
        EXPECT(side->take, "completion of kind %u", completion->kind);
        side->take(side, completion);
    }
}

static void sleep_by_epoll(struct side *side, uint64_t sleep_ns)
{
    struct pollfd ready = {.fd = crpc_context_fd(side->context), .events = POLLIN};
    int32_t status = crpc_context_arm(side->context);
    if (status == CRPC_OK) {
        poll(&ready, 1, (int)((sleep_ns + 999999) / 1000000));
    } else {
        EXPECT_EQUAL(status, CRPC_E_AGAIN);
    }
}

uint32_t side_poll(struct side *side, uint64_t sleep_ns)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(side->context, completions, COMPLETIONS);
    EXPECT(count >= 0, "%s", crpc_status_name(count));
    for (int32_t i = 0; i < count; i++) {
        take(side, &completions[i]);
    }
    if (count == 0 && sleep_ns > 0) {
        if (side->sleep == SIDE_WAIT) {
            crpc_wait(side->context, sleep_ns);
        } else if (side->sleep == SIDE_EPOLL) {
            sleep_by_epoll(side, sleep_ns);
        }
    }
    return (uint32_t)count;
}

/* ---- Channels -------------------------------------------------------------------------------- */

void side_listen(struct side *side, uint32_t flags, char address[64])
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    if (side->index == 0) {
        side_hear(side, address, 64);
        return;
    }
    crpc_listener *listener = &side->listeners[flags != 0];
    if (listener->bits == 0) {
        const crpc_listener_options options = {.struct_size = sizeof(options), .flags = flags};
        EXPECT(crpc_listener_open(side->context, place_at(0, "0"), &options, listener, &error) ==
                   CRPC_OK,
               "%s", error.message);
    }
    EXPECT_EQUAL(crpc_listener_get_info(side->context, *listener, &info), CRPC_OK);
    memcpy(address, info.address, 64);
    side_tell(side, address, 64);
}

crpc_channel_options side_options(const crpc_channel_options *options)
{
    crpc_channel_options ours = {.struct_size = sizeof(ours)};
    if (options) {
        ours = *options;
    }
    if (ours.connect_timeout_ns == 0) {
        ours.connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS;
    }
    if (ours.retry_timeout == 0) {
        ours.retry_timeout = place_retry_timeout();
    }
    return ours;
}

/* Waits for CONNECTED. */
static void expect_connected(struct side *side, crpc_channel channel, uint32_t before)
{
    crpc_error error = {.struct_size = sizeof(error)};
    SIDE_UNTIL(side, side->connected > before);
    crpc_channel_get_error(side->context, channel, &error);
    EXPECT(side->connected_status == CRPC_OK, "%s: %s", crpc_status_name(side->connected_status),
           error.message);
    side_meet(side);
}

crpc_channel side_connect(struct side *side, const crpc_channel_options *options)
{
    const crpc_channel_options ours = side_options(options);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel channel;
    char address[64];
    uint32_t connected = side->connected;
    uint32_t requests = side->requests;
    side_listen(side, CRPC_LISTENER_CHANNELS, address);
    if (side->index == 0) {
        EXPECT(crpc_channel_connect(side->context, address, &ours, &channel, &error) == CRPC_OK,
               "%s", error.message);
    } else {
        SIDE_UNTIL(side, side->requests > requests);
        channel = side->requested;
        EXPECT(crpc_channel_accept(side->context, channel, &ours, &error) == CRPC_OK, "%s",
               error.message);
    }
    expect_connected(side, channel, connected);
    return channel;
}

crpc_channel side_join(struct side *side, const crpc_channel_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel channel;
    const crpc_channel_options patient = side_options(options);
    uint8_t ours[SIDE_WORD_BYTES] = {0}, theirs[SIDE_WORD_BYTES];
    uint32_t bytes = CRPC_BLOB_BYTES_MAX;
    uint32_t connected = side->connected;
    EXPECT(crpc_channel_blob(side->context, &patient, &channel, ours, &bytes, &error) == CRPC_OK,
           "%s", error.message);
    EXPECT(bytes <= CRPC_BLOB_BYTES_MAX, "%u bytes", bytes);
    side_tell(side, ours, bytes);
    side_hear(side, theirs, bytes);
    EXPECT(crpc_channel_join(side->context, channel, theirs, bytes, &error) == CRPC_OK, "%s",
           error.message);
    /* Only polling sends, and to one that has not joined that is in vain once the transport has retried. */
    char word = 'j';
    side_tell(side, &word, 1);
    hear(side, &word, 1, false);
    EXPECT_EQUAL(word, 'j');
    expect_connected(side, channel, connected);
    return channel;
}

void side_await_rails(struct side *side, crpc_channel channel, uint32_t rail0, uint32_t rail1)
{
    SIDE_UNTIL(side, side_info(side, channel).rail_state[0] == rail0 &&
                         side_info(side, channel).rail_state[1] == rail1);
}

static bool is_gone(const struct side *side, crpc_channel channel)
{
    for (uint32_t i = 0; i < SIDE_GONE_MAX; i++) {
        if (side->gone[i].bits == channel.bits) {
            return true;
        }
    }
    return false;
}

int32_t side_wait_gone(struct side *side, crpc_channel channel)
{
    SIDE_UNTIL(side, is_gone(side, channel));
    crpc_error error = {.struct_size = sizeof(error)};
    EXPECT_EQUAL(crpc_channel_get_error(side->context, channel, &error), CRPC_OK);
    return error.status;
}

void side_leave(struct side *side, crpc_channel channel)
{
    int32_t status = crpc_channel_disconnect(side->context, channel, CRPC_FOREVER);
    /* The other may have left already, and nothing was open. */
    EXPECT(status == CRPC_OK || side_info(side, channel).state == CRPC_STATE_DISCONNECTED, "%s",
           crpc_status_name(status));
    EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_OK);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
}

static void submit_one(struct side *side, const crpc_channel_op *op)
{
    int32_t reason;
    int32_t taken = crpc_channel_submit(side->context, op, 1, &reason);
    EXPECT(taken == 1, "%s", crpc_status_name(reason));
}

void side_receive(struct side *side, crpc_channel channel, void *address, uint64_t bytes,
                  uint32_t tag, uint64_t user_data)
{
    submit_one(side, &(crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                        .tag = tag,
                                        .channel = channel,
                                        .user_data = user_data,
                                        .address = (uint64_t)(uintptr_t)address,
                                        .bytes = bytes});
}

void side_send(struct side *side, crpc_channel channel, const void *address, uint64_t bytes,
               uint32_t tag, uint64_t user_data)
{
    submit_one(side, &(crpc_channel_op){.opcode = CRPC_CHANNEL_SEND,
                                        .tag = tag,
                                        .channel = channel,
                                        .user_data = user_data,
                                        .address = (uint64_t)(uintptr_t)address,
                                        .bytes = bytes});
}

crpc_channel_info side_info(struct side *side, crpc_channel channel)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    EXPECT_EQUAL(crpc_channel_get_info(side->context, channel, &info), CRPC_OK);
    return info;
}

crpc_channel_stats side_stats(struct side *side, crpc_channel channel)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    EXPECT_EQUAL(crpc_channel_get_stats(side->context, channel, &stats), CRPC_OK);
    return stats;
}

crpc_rail_info side_rail(struct side *side, uint32_t rail)
{
    crpc_rail_info info = {.struct_size = sizeof(info)};
    EXPECT_EQUAL(crpc_rail_get_info(side->context, rail, &info), CRPC_OK);
    return info;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* Where the links are netdevs: the rails that are named go down, the others up. */
static bool set_links(const char *words)
{
    bool done = true;
    for (int rail = 0; rail < 2; rail++) {
        char name[32];
        char word[16];
        snprintf(word, sizeof(word), "rail%d=down", rail);
        snprintf(name, sizeof(name), "TEST_LINK%d_%s", rail, strstr(words, word) ? "DOWN" : "UP");
        const char *command = getenv(name);
        done = command && system(command) == 0 && done;
    }
    return done;
}

bool place_fault(const char *words)
{
    char command[256];
    const char *simnic = getenv("TEST_SIMNIC");
    if (!simnic) {
        return set_links(words);
    }
    snprintf(command, sizeof(command), "'%s' ctl fault '%s' > /dev/null", simnic, words);
    return system(command) == 0;
}

/* ---- Counters -------------------------------------------------------------------------------- */

static void add_key(const char *line, const char *key, uint64_t *sum)
{
    const char *at = strstr(line, key);
    if (at) {
        *sum += strtoull(at + strlen(key), NULL, 10);
    }
}

/* Over the queue pairs of all processes, those destroyed too. */
static struct place_counters simnic_counters(uint32_t rail)
{
    struct place_counters counters = {0};
    char line[512];
    int64_t current = -1;
    snprintf(line, sizeof(line), "'%s' ctl stats --json", getenv("TEST_SIMNIC"));
    FILE *output = popen(line, "r");
    EXPECT(output, "simnic ctl stats");
    while (fgets(line, sizeof(line), output)) {
        uint64_t value = 0;
        if (strstr(line, "\"rail\": ")) {
            add_key(line, "\"rail\": ", &value);
            current = (int64_t)value;
        } else if (strstr(line, "\"sum\": ")) {
            current = -1;
        }
        if (current == (int64_t)rail) {
            add_key(line, "\"packets_sent\": ", &counters.packets);
            add_key(line, "\"packets_received\": ", &counters.packets);
            add_key(line, "\"send_wqes\": ", &counters.send_wqes);
            add_key(line, "\"receive_wqes\": ", &counters.receive_wqes);
        }
    }
    EXPECT_EQUAL(pclose(output), 0);
    return counters;
}

static uint64_t read_counter(uint32_t rail, const char *name)
{
    char text[160];
    unsigned long long value;
    snprintf(text, sizeof(text), "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
             place_device((int)rail), name);
    FILE *file = fopen(text, "re");
    EXPECT(file, "%s", text);
    EXPECT_EQUAL(fscanf(file, "%llu", &value), 1);
    fclose(file);
    return value;
}

struct place_counters place_counters(uint32_t rail)
{
    if (getenv("TEST_SIMNIC")) {
        return simnic_counters(rail);
    }
    return (struct place_counters){.packets = read_counter(rail, "sent_pkts") +
                                              read_counter(rail, "rcvd_pkts")};
}

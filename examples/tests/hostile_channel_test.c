/* hostile_channel_test.c CHANNEL: receivers of channels, and hostile senders (channel_attacks.h).
 *
 * One receiver is the example of channels as it is, which takes one sender and ends. The other is here, takes as many
 * as come, knows which bytes each of its receives may have, and looks at all its memory. Both use copyrpc as any
 * program does.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel_attacks.h"
#include "copyrpc.h"
#include "place.h"
#include "signals.h"

#define ATTACKS_MAX 64u
#define ROUNDS 3u
#define IDS_MAX (ATTACKS_MAX * ROUNDS + 16u)
#define CHANNELS_MAX (ATTACKS_MAX + 4u)
#define MESSAGES 3u /* that each channel may send */
#define BUFFER_BYTES 896u
#define BUFFER_STRIDE 1024u /* so four share a page with what is between them */
#define BLANK 0x11
#define NOT_ENDED 1
#define EXAMPLE_PORT "7474"
#define EXAMPLE_DEPTH 4u /* receives that it has open */
#define EXAMPLE_BYTES (1u << 20)

static const char *example_program;

static uint32_t message_bytes(uint32_t number)
{
    return 500 + number;
}

static uint8_t message_byte(uint32_t id, uint32_t number, uint32_t at)
{
    return (uint8_t)(id * 31 + number * 7 + at);
}

static void fill_message(uint8_t *bytes, uint32_t id, uint32_t number)
{
    for (uint32_t i = 0; i < message_bytes(number); i++) {
        bytes[i] = message_byte(id, number, i);
    }
}

/* ---- The receiver here ----------------------------------------------------------------------- */

/* What it and the test know of each other. */
struct shared {
    char address[64];
    _Atomic bool listens;
    _Atomic bool stop;
    _Atomic uint32_t open; /* channels */
    _Atomic uint32_t protocol_errors;
    _Atomic uint32_t received[IDS_MAX]; /* messages, as they should be */
    _Atomic int32_t status[IDS_MAX];    /* of the channel's end */
    _Atomic bool wrong;
    char why[256];
};

static struct shared *shared;

struct place {
    crpc_channel channel; /* 0: free */
    uint32_t id;
    bool completed[MESSAGES];
    uint8_t was[MESSAGES][BUFFER_BYTES]; /* when it completed */
};

static struct {
    crpc_context *context;
    crpc_region region;
    uint8_t *memory; /* a page for each place */
    struct place places[CHANNELS_MAX];
} receiver;

static void wrong(const char *what, uint32_t id)
{
    if (!atomic_load(&shared->wrong)) {
        snprintf(shared->why, sizeof(shared->why), "%s, of peer %u", what, id);
        atomic_store(&shared->wrong, true);
    }
}

static uint8_t *page_of(const struct place *place)
{
    return receiver.memory + (size_t)(place - receiver.places) * 4096;
}

static uint8_t *buffer_of(const struct place *place, uint32_t number)
{
    return page_of(place) + number * BUFFER_STRIDE + (BUFFER_STRIDE - BUFFER_BYTES) / 2;
}

/* What lies between the receives is as it was, and so is what has completed. */
static void check_memory(const struct place *place)
{
    const uint8_t *page = page_of(place);
    for (uint32_t i = 0; i < 4096; i++) {
        uint32_t in = i % BUFFER_STRIDE - (BUFFER_STRIDE - BUFFER_BYTES) / 2;
        if ((in >= BUFFER_BYTES || i / BUFFER_STRIDE >= MESSAGES) && page[i] != BLANK) {
            wrong("memory beside a receive has changed", place->id);
        }
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (place->completed[i] && memcmp(place->was[i], buffer_of(place, i), BUFFER_BYTES) != 0) {
            wrong("a receive has changed after its completion", place->id);
        }
    }
}

static struct place *place_of(uint64_t channel)
{
    for (uint32_t i = 0; i < CHANNELS_MAX; i++) {
        if (receiver.places[i].channel.bits == channel) {
            return &receiver.places[i];
        }
    }
    return NULL;
}

static void take_request(const crpc_completion *completion)
{
    const crpc_channel_options options = {
        .struct_size = sizeof(options), .slots = PEER_SLOTS, .rails = 1};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel channel = {completion->endpoint.bits};
    struct place *place = place_of(0);
    if (!place || crpc_channel_accept(receiver.context, channel, &options, &error) != CRPC_OK) {
        crpc_channel_close(receiver.context, channel);
        return;
    }
    check_memory(place);
    *place = (struct place){.channel = channel};
    memset(page_of(place), BLANK, 4096);
    atomic_fetch_add(&shared->open, 1);
}

static void take_connected(struct place *place)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_channel_get_info(receiver.context, place->channel, &info);
    memcpy(&place->id, info.token, sizeof(place->id));
    if (info.token_bytes != sizeof(place->id) || place->id >= IDS_MAX) {
        wrong("a token is lost", 0);
        place->id = 0;
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        crpc_channel_op op = {.opcode = CRPC_CHANNEL_RECEIVE,
                              .channel = place->channel,
                              .user_data = i,
                              .region = receiver.region,
                              .address = (uint64_t)(uintptr_t)buffer_of(place, i),
                              .bytes = BUFFER_BYTES};
        int32_t reason;
        crpc_channel_submit(receiver.context, &op, 1, &reason); /* it may have gone already */
    }
}

static void take_received(struct place *place, const crpc_completion *completion)
{
    uint32_t number = (uint32_t)completion->user_data;
    const uint8_t *bytes = buffer_of(place, number);
    if (number >= MESSAGES || place->completed[number]) {
        wrong("a receive completes twice", place->id);
        return;
    }
    place->completed[number] = true;
    memcpy(place->was[number], bytes, BUFFER_BYTES);
    if (completion->status != CRPC_OK) {
        return;
    }
    bool good = completion->payload_bytes == message_bytes(number);
    for (uint32_t i = 0; i < message_bytes(number) && good; i++) {
        good = bytes[i] == message_byte(place->id, number, i);
    }
    if (!good) {
        wrong("a message is wrong", place->id);
    }
    atomic_fetch_add(&shared->received[place->id], 1);
}

static void take_end(struct place *place, int32_t status)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    crpc_channel_get_stats(receiver.context, place->channel, &stats);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (place->id != 0 && !place->completed[i]) {
            wrong("a channel ends before its receives", place->id);
        }
    }
    check_memory(place);
    crpc_channel_close(receiver.context, place->channel);
    place->channel.bits = 0;
    atomic_fetch_add(&shared->protocol_errors, (uint32_t)stats.protocol_errors);
    atomic_fetch_sub(&shared->open, 1);
    atomic_store(&shared->status[place->id], status);
}

static void take(const crpc_completion *completion)
{
    struct place *place = place_of(completion->endpoint.bits);
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        take_request(completion);
    } else if (!place) {
        wrong("a completion of no channel", completion->kind);
    } else if (completion->kind == CRPC_COMPLETION_CONNECTED && completion->status == CRPC_OK) {
        take_connected(place);
    } else if (completion->kind == CRPC_COMPLETION_RECEIVED) {
        take_received(place, completion);
    } else if (completion->kind == CRPC_COMPLETION_CONNECTED ||
               completion->kind == CRPC_COMPLETION_DISCONNECTED) {
        take_end(place, completion->status);
    }
}

/* Returns the status of the process. */
static int receive(void)
{
    const crpc_context_options options = {
        .struct_size = sizeof(options), .flags = CRPC_CONTEXT_RAILS, .channels_max = CHANNELS_MAX};
    const crpc_listener_options listens = {
        .struct_size = sizeof(listens), .flags = CRPC_LISTENER_CHANNELS, .backlog = CHANNELS_MAX};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    crpc_completion completions[64];
    size_t bytes = (size_t)CHANNELS_MAX * 4096;
    receiver.memory = aligned_alloc(4096, bytes);
    memset(receiver.memory, BLANK, bytes);
    if (crpc_context_open(&options, &receiver.context, &error) != CRPC_OK ||
        crpc_region_register(receiver.context, receiver.memory, bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &receiver.region,
                             &error) != CRPC_OK ||
        crpc_listener_open(receiver.context, place_at(0, "0"), &listens, &listener, &error) !=
            CRPC_OK) {
        fprintf(stderr, "the receiver: %s\n", error.message);
        return 1;
    }
    crpc_listener_get_info(receiver.context, listener, &info);
    memcpy(shared->address, info.address, sizeof(shared->address));
    atomic_store(&shared->listens, true);
    while (!atomic_load(&shared->stop)) {
        int32_t count = crpc_poll(receiver.context, completions, 64);
        for (int32_t i = 0; i < count; i++) {
            take(&completions[i]);
        }
        if (count == 0) {
            crpc_wait(receiver.context, 10000000);
        }
    }
    for (uint32_t i = 0; i < CHANNELS_MAX; i++) {
        check_memory(&receiver.places[i]);
    }
    return crpc_context_close(receiver.context) == CRPC_OK ? 0 : 1;
}

static pid_t child;

static void await_that(bool (*true_now)(uint32_t), uint32_t argument, const char *what)
{
    double limit = raw_seconds() + PATIENCE_S;
    while (!true_now(argument)) {
        if (raw_seconds() >= limit || waitpid(child, NULL, WNOHANG) != 0) {
            fail_msg("never: %s (%u)", what, argument);
        }
        usleep(1000);
    }
}

static bool is_listening(uint32_t nothing)
{
    (void)nothing;
    return atomic_load(&shared->listens);
}

static bool has_received(uint32_t id)
{
    return atomic_load(&shared->received[id]) >= 1;
}

static bool has_received_all(uint32_t id)
{
    return atomic_load(&shared->received[id]) == MESSAGES;
}

static bool has_ended(uint32_t id)
{
    return atomic_load(&shared->status[id]) != NOT_ENDED;
}

static bool holds_nothing(uint32_t nothing)
{
    (void)nothing;
    return atomic_load(&shared->open) == 0;
}

static void map_shared(int file)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(shared != MAP_FAILED);
}

/* A program of its own: it has none of this one's threads and connections. */
static int start_receiver(void **state)
{
    (void)state;
    char number[16];
    int file = memfd_create("shared", 0);
    assert_int_equal(ftruncate(file, sizeof(*shared)), 0);
    snprintf(number, sizeof(number), "%d", file);
    map_shared(file);
    for (uint32_t i = 0; i < IDS_MAX; i++) {
        atomic_store(&shared->status[i], NOT_ENDED);
    }
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "hostile_channel_test", "receive", number, (char *)NULL);
        _exit(127);
    }
    close(file);
    await_that(is_listening, 0, "it listens");
    return 0;
}

static int stop_receiver(void **state)
{
    (void)state;
    int status;
    atomic_store(&shared->stop, true);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    if (atomic_load(&shared->wrong)) {
        fail_msg("%s", shared->why);
    }
    munmap(shared, sizeof(*shared));
    return 0;
}

/* ---- Senders --------------------------------------------------------------------------------- */

static void send_message(struct channel_peer *peer, uint32_t number)
{
    fill_message(peer->payload, peer->id, number);
    peer_send(peer, number, message_bytes(number));
}

/* Message 0 has been taken; returns where it was cleared to be written. */
static struct channel_cts begin(struct channel_peer *peer, uint32_t id)
{
    peer_connect(peer, shared->address, id);
    struct channel_cts before = peer_await_buffer(peer, 0);
    send_message(peer, 0);
    await_that(has_received, id, "message 0 is received");
    peer_await_buffer(peer, MESSAGES - 1);
    return before;
}

/* All that was between the channels has left it as it was. */
static void finish(struct channel_peer *peer)
{
    send_message(peer, 1);
    send_message(peer, 2);
    await_that(has_received_all, peer->id, "the honest peer's messages are received");
    peer_hang_up(peer);
    await_that(has_ended, peer->id, "the honest peer's channel ends");
}

static crpc_completion next(crpc_context *context)
{
    crpc_completion completion;
    double limit = raw_seconds() + PATIENCE_S;
    while (crpc_poll(context, &completion, 1) != 1) {
        assert_true(raw_seconds() < limit);
        crpc_wait(context, 10000000);
    }
    return completion;
}

static void expect_served(uint32_t id)
{
    const crpc_context_options context_options = {.struct_size = sizeof(context_options),
                                                  .flags = CRPC_CONTEXT_RAILS};
    crpc_channel_options options = {.struct_size = sizeof(options),
                                    .rails = 1,
                                    .token_bytes = sizeof(id),
                                    .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    crpc_channel channel;
    uint8_t messages[MESSAGES][BUFFER_BYTES];
    memcpy(options.token, &id, sizeof(id));
    assert_int_equal(crpc_context_open(&context_options, &context, &error), CRPC_OK);
    assert_int_equal(crpc_channel_connect(context, shared->address, &options, &channel, &error),
                     CRPC_OK);
    crpc_completion completion = next(context);
    assert_int_equal(completion.kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(completion.status, CRPC_OK);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND,
                              .channel = channel,
                              .address = (uint64_t)(uintptr_t)messages[i],
                              .bytes = message_bytes(i)};
        int32_t reason;
        fill_message(messages[i], id, i);
        assert_int_equal(crpc_channel_submit(context, &op, 1, &reason), 1);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        completion = next(context);
        assert_int_equal(completion.kind, CRPC_COMPLETION_SENT);
        assert_int_equal(completion.status, CRPC_OK);
    }
    await_that(has_received_all, id, "the honest sender's messages are received");
    assert_int_equal(crpc_channel_disconnect(context, channel, CRPC_FOREVER), CRPC_OK);
    completion = next(context);
    assert_int_equal(completion.kind, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
    await_that(has_ended, id, "the honest sender's channel ends");
    assert_int_equal(atomic_load(&shared->status[id]), CRPC_OK);
    await_that(holds_nothing, 0, "no channel is open");
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void one_after_the_other_they_reach_nothing(void **state)
{
    (void)state;
    struct channel_peer honest;
    uint32_t id = 1, violations = 0;
    begin(&honest, id++);
    for (uint32_t i = 0; i < attack_count; i++, id++) {
        struct channel_peer peer;
        struct channel_cts before = begin(&peer, id);
        print_message("# %s\n", attacks[i].name);
        attacks[i].attack(&peer, &before, &honest);
        if (!attacks[i].refused) {
            await_that(has_ended, id, "the violation is found");
            assert_int_equal(atomic_load(&shared->status[id]), CRPC_E_PROTOCOL);
            violations++;
        }
        peer_hang_up(&peer);
        await_that(has_ended, id, "the channel ends");
    }
    finish(&honest);
    expect_served(id);
    assert_int_equal(atomic_load(&shared->protocol_errors), violations);
}

/* More than the receiver has room for, if it kept one of them. */
static void many_at_once_hang_up_and_leave_nothing(void **state)
{
    static struct channel_peer peers[ATTACKS_MAX];
    static struct channel_cts before[ATTACKS_MAX];
    struct channel_peer honest;
    uint32_t id = 1;
    (void)state;
    begin(&honest, id++);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < attack_count; i++) {
            before[i] = begin(&peers[i], id++);
        }
        for (uint32_t i = 0; i < attack_count; i++) {
            attacks[i].attack(&peers[i], &before[i], &honest);
            peer_hang_up(&peers[i]);
        }
    }
    finish(&honest);
    expect_served(id);
}

/* ---- The example, as it is ------------------------------------------------------------------- */

static FILE *start_example(const char *address)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl(example_program, example_program, "receive", address, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    return fdopen(pipes[0], "r");
}

static void the_example_takes_leave_of_each(void **state)
{
    (void)state;
    const char *address = place_at(0, EXAMPLE_PORT);
    for (uint32_t i = 0; i < attack_count; i++) {
        if (attacks[i].needs_other) {
            continue;
        }
        struct channel_peer peer;
        char line[128] = "";
        int status;
        print_message("# %s\n", attacks[i].name);
        FILE *output = start_example(address);
        peer_connect(&peer, address, 1);
        struct channel_cts before = peer_await_buffer(&peer, 0);
        peer_send(&peer, 0, EXAMPLE_BYTES);      /* zeros, as the example would */
        peer_await_buffer(&peer, EXAMPLE_DEPTH); /* posted when message 0 has been taken */
        attacks[i].attack(&peer, &before, NULL);
        peer_hang_up(&peer);
        assert_non_null(fgets(line, sizeof(line), output));
        assert_string_equal(line, "received 1 messages over one rail\n");
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        fclose(output);
    }
}

int main(int argc, char **argv)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_after_the_other_they_reach_nothing, start_receiver,
                                        stop_receiver),
        cmocka_unit_test_setup_teardown(many_at_once_hang_up_and_leave_nothing, start_receiver,
                                        stop_receiver),
        cmocka_unit_test(the_example_takes_leave_of_each),
    };
    if (argc == 3 && strcmp(argv[1], "receive") == 0) {
        map_shared(atoi(argv[2]));
        return receive();
    }
    if (argc != 2) {
        fprintf(stderr, "usage: hostile_channel_test CHANNEL\n");
        return 2;
    }
    example_program = argv[1];
    assert_true(attack_count <= ATTACKS_MAX);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* channel_test.c: messages over channels between two processes: every size, share, group, kind of
 * memory and way of sleeping, both ways at once, every byte checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leave_out.h"
#include "place.h"
#include "signals.h"
#include "stream.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define MIB (1u << 20)

/* Soft-RoCE under emulation moves some 20 MB/s, and the machine has little memory. */
static bool slow(void)
{
    return place_pins_memory();
}

static crpc_channel_options fixed(uint32_t rail0_share)
{
    return (crpc_channel_options){.struct_size = sizeof(crpc_channel_options),
                                  .split = CRPC_SPLIT_FIXED,
                                  .rail0_share = rail0_share};
}

static void both_rails_up(struct side *side, crpc_channel channel)
{
    crpc_channel_info info = side_info(side, channel);
    EXPECT_EQUAL(info.state, CRPC_STATE_CONNECTED);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
}

/* ---- Sizes and shares ------------------------------------------------------------------------ */

static void sizes_at_every_share(struct side *side)
{
    static const uint64_t sizes[] = {1,     2,       7,       8,     63,     64,    65,    127,
                                     128,   129,     255,     1000,  4095,   4096,  4097,  65407,
                                     65408, 65409,   65535,   65536, 65537,  65664, 65665, 0,
                                     99999, 1 << 17, MIB - 1, MIB,   MIB + 1};
    static const uint32_t shares[] = {0, 1024, 512, 1023, 1, 333};
    struct stream_options stream = {
        .messages = {LENGTH(sizes), LENGTH(sizes)}, .sizes = sizes, .size_count = LENGTH(sizes)};
    crpc_channel_options options = fixed(512);
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    both_rails_up(side, channel);
    for (uint32_t i = 0; i < (slow() ? 4 : LENGTH(shares)); i++) {
        EXPECT_EQUAL(crpc_channel_set_share(side->context, channel, shares[i]), CRPC_OK);
        stream.regions = i % 2 == 0;
        crpc_channel_stats before = side_stats(side, channel);
        stream_run(side, channel, &stream, side->seed + i, i * LENGTH(sizes));
        crpc_channel_stats after = side_stats(side, channel);
        EXPECT_EQUAL(after.messages_sent - before.messages_sent, LENGTH(sizes));
        uint64_t first = after.rail_bytes_sent[0] - before.rail_bytes_sent[0];
        uint64_t second = after.rail_bytes_sent[1] - before.rail_bytes_sent[1];
        EXPECT_EQUAL(first + second, after.bytes_sent - before.bytes_sent);
        EXPECT((first == 0) == (shares[i] == 0), "share %u: %llu bytes", shares[i],
               (unsigned long long)first);
        EXPECT((second == 0) == (shares[i] == 1024), "share %u: %llu bytes", shares[i],
               (unsigned long long)second);
    }
    side_leave(side, channel);
}

static void large(struct side *side)
{
    static const uint64_t sizes[] = {16 * MIB + 1, 16 * MIB, 64 * MIB - 1};
    static const uint64_t largest[] = {256 * MIB};
    const uint32_t count = slow() ? 1 : LENGTH(sizes);
    struct stream_options stream = {
        .messages = {count, count}, .window = 1, .sizes = sizes, .size_count = count};
    crpc_channel_options options = fixed(512);
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    both_rails_up(side, channel);
    stream_run(side, channel, &stream, side->seed, 0);
    /* The VM's memory holds it once on each side. */
    stream = (struct stream_options){
        .messages = {1, slow() ? 0 : 1}, .window = 1, .sizes = largest, .size_count = 1};
    EXPECT_EQUAL(crpc_channel_set_share(side->context, channel, 700), CRPC_OK);
    stream_run(side, channel, &stream, side->seed, count);
    side_leave(side, channel);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void random_streams(struct side *side, crpc_channel channel, uint32_t messages,
                           uint64_t bytes_max)
{
    struct stream_options stream = {.messages = {messages, messages + messages / 3},
                                    .window = 6,
                                    .group_max = 8,
                                    .bytes_max = bytes_max,
                                    .truncate = true,
                                    .shares = true};
    stream.regions = side->seed % 2;
    stream_run(side, channel, &stream, side->seed, 0);
    crpc_channel_stats stats = side_stats(side, channel);
    EXPECT_EQUAL(stats.messages_sent, stream.messages[side->index]);
    EXPECT_EQUAL(stats.messages_received, stream.messages[!side->index]);
    EXPECT_EQUAL(stats.protocol_errors, 0);
    EXPECT(stats.truncated > 0, "none was too long");
    if (side->index == 0) {
        printf("# %llu messages, %llu bytes: %llu and %llu over the rails, %llu truncated\n",
               (unsigned long long)stats.messages_sent, (unsigned long long)stats.bytes_sent,
               (unsigned long long)stats.rail_bytes_sent[0],
               (unsigned long long)stats.rail_bytes_sent[1], (unsigned long long)stats.truncated);
    }
}

static void groups(struct side *side)
{
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, NULL);
    random_streams(side, channel, slow() ? 40 : 600, 100000);
    side_leave(side, channel);
}

static void groups_by_blob_and_epoll(struct side *side)
{
    side_open(side, NULL);
    side->sleep = SIDE_EPOLL;
    crpc_channel channel = side_join(side, NULL);
    both_rails_up(side, channel);
    random_streams(side, channel, slow() ? 40 : 600, 300000);
    side_leave(side, channel);
}

/* Shares of several WQEs each where a device's messages end at 8 MiB, as on Soft-RoCE. */
static void groups_of_large_buffers(struct side *side)
{
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, NULL);
    struct stream_options stream = {.messages = {12, 10},
                                    .window = 2,
                                    .group_max = 8,
                                    .bytes_max = 18 * MIB,
                                    .truncate = true,
                                    .shares = true};
    stream_run(side, channel, &stream, side->seed, 0);
    crpc_channel_stats stats = side_stats(side, channel);
    EXPECT_EQUAL(stats.messages_sent, stream.messages[side->index]);
    EXPECT_EQUAL(stats.protocol_errors, 0);
    EXPECT(stats.bytes_sent > 32 * MIB, "they were not large");
    if (side->index == 0) {
        printf("# %llu messages, %llu bytes: %llu and %llu over the rails\n",
               (unsigned long long)stats.messages_sent, (unsigned long long)stats.bytes_sent,
               (unsigned long long)stats.rail_bytes_sent[0],
               (unsigned long long)stats.rail_bytes_sent[1]);
    }
    side_leave(side, channel);
}

/* ---- Channels of every shape ----------------------------------------------------------------- */

static void queue_pairs_and_slots(struct side *side)
{
    static const struct {
        uint32_t queue_pairs, slots, sends_max, rails;
    } shapes[] = {{3, 1, 8, 3}, {8, 256, 16, 3}, {1, 2, 0, 1}, {8, 5, 64, 3}};
    side_open(side, NULL);
    for (uint32_t i = 0; i < (slow() ? 2 : LENGTH(shapes)); i++) {
        crpc_channel_options options = fixed(512);
        options.queue_pairs = shapes[i].queue_pairs;
        options.slots = shapes[i].slots;
        options.sends_max = shapes[i].sends_max;
        options.rails = shapes[i].rails;
        /* More than there are slots: what is refused is taken when ROOM says so. */
        struct stream_options stream = {.messages = {slow() ? 30 : 300, slow() ? 35 : 280},
                                        .window = 32,
                                        .bytes_max = 70000,
                                        .shares = true};
        crpc_channel channel = side_connect(side, &options);
        crpc_channel_info info = side_info(side, channel);
        EXPECT_EQUAL(info.queue_pairs, shapes[i].queue_pairs);
        EXPECT_EQUAL(info.slots, shapes[i].slots == 5 ? 8 : shapes[i].slots);
        side_await_rails(side, channel, CRPC_RAIL_UP,
                         shapes[i].rails & 2 ? CRPC_RAIL_UP : CRPC_RAIL_NONE);
        stream_run(side, channel, &stream, side->seed + i, 0);
        side_leave(side, channel);
    }
}

static void the_lesser_of_both_sides_counts(struct side *side)
{
    crpc_channel_options options = fixed(512);
    struct stream_options stream = {.messages = {100, 100}, .window = 20, .bytes_max = 10000};
    options.queue_pairs = side->index ? 2 : 5;
    options.slots = side->index ? 64 : 4;
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    EXPECT_EQUAL(side_info(side, channel).queue_pairs, 2);
    EXPECT_EQUAL(side_info(side, channel).slots, 4);
    stream_run(side, channel, &stream, side->seed, 0);
    side_leave(side, channel);
}

/* One side has one rail: what has two says that the other lacks it. */
static void a_rail_that_one_side_lacks(struct side *side)
{
    for (int one = 0; one < 2; one++) {
        crpc_context_options context = {.struct_size = sizeof(context),
                                        .flags = CRPC_CONTEXT_RAILS};
        struct stream_options stream = {
            .messages = {60, 60}, .bytes_max = 100000, .group_max = 3, .shares = true};
        crpc_channel_options options = fixed(100);
        snprintf(context.rails[0], sizeof(context.rails[0]), "%s", place_device(0));
        snprintf(context.rails[1], sizeof(context.rails[1]), "%s", place_device(1));
        side_open(side, &context);
        options.rails = side->index == one ? 1 : 3;
        crpc_channel channel = side_connect(side, &options);
        side_await_rails(side, channel, CRPC_RAIL_UP,
                         side->index == one ? CRPC_RAIL_NONE : CRPC_RAIL_LACKED);
        stream_run(side, channel, &stream, side->seed, 0);
        EXPECT_EQUAL(side_stats(side, channel).rail_bytes_sent[1], 0);
        side_leave(side, channel);
        side_meet(side);
        side_close(side);
    }
}

/* ---- Several at once ------------------------------------------------------------------------- */

#define CHANNELS 5
#define CALLS 200

static uint32_t calls_answered;

/* Side 1 echoes, side 0 counts. */
static void take_call(struct side *side, const crpc_completion *completion)
{
    const char *payload = (const char *)(uintptr_t)completion->payload;
    if (completion->kind == CRPC_COMPLETION_REQUEST) {
        crpc_op reply = {.opcode = CRPC_OP_REPLY,
                         .flags = CRPC_OP_QUIET,
                         .endpoint = completion->endpoint,
                         .token = completion->token,
                         .payload_bytes = completion->payload_bytes};
        int32_t reason;
        EXPECT(crpc_submit(side->context, &reply, 1, payload, reply.payload_bytes, &reason) == 1,
               "%s", crpc_status_name(reason));
        return;
    }
    EXPECT_EQUAL(completion->kind, CRPC_COMPLETION_RESPONSE);
    EXPECT_EQUAL(completion->status, CRPC_OK);
    EXPECT_EQUAL(completion->payload_bytes, sizeof(uint64_t));
    EXPECT(memcmp(payload, &completion->user_data, sizeof(uint64_t)) == 0, "another's answer");
    calls_answered++;
}

static crpc_endpoint connect_endpoint(struct side *side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    crpc_endpoint endpoint;
    char address[64];
    uint32_t connected = side->connected;
    uint32_t requests = side->requests;
    side_listen(side, 0, address);
    if (side->index == 0) {
        EXPECT(crpc_endpoint_connect(side->context, address, &options, &endpoint, &error) ==
                   CRPC_OK,
               "%s", error.message);
    } else {
        SIDE_UNTIL(side, side->requests > requests);
        endpoint = side->requested_endpoint;
        EXPECT(crpc_endpoint_accept(side->context, endpoint, &options, &error) == CRPC_OK, "%s",
               error.message);
    }
    SIDE_UNTIL(side, side->connected > connected);
    EXPECT_EQUAL(side->connected_status, CRPC_OK);
    side_meet(side);
    return endpoint;
}

static void call_now_and_then(struct side *side, crpc_endpoint endpoint, uint64_t *called)
{
    if (side->index == 0 && *called < CALLS && *called < calls_answered + 8) {
        crpc_op call = {.opcode = CRPC_OP_CALL,
                        .endpoint = endpoint,
                        .user_data = *called,
                        .payload_bytes = sizeof(*called),
                        .reply_bytes_max = sizeof(*called)};
        *called += (uint64_t)crpc_submit(side->context, &call, 1, called, sizeof(*called), NULL);
    }
}

static void channels_and_endpoints_in_one_context(struct side *side)
{
    crpc_channel channels[CHANNELS];
    struct stream *streams[CHANNELS];
    uint64_t called = 0;
    calls_answered = 0;
    side_open(side, NULL);
    side->take_call = take_call;
    crpc_endpoint endpoint = connect_endpoint(side);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        channels[i] = i % 2 ? side_join(side, NULL) : side_connect(side, NULL);
        struct stream_options stream = {.messages = {50 + 10 * i, 80},
                                        .group_max = 1 + i,
                                        .bytes_max = 50000,
                                        .regions = i % 3,
                                        .truncate = i == 4};
        streams[i] = stream_start(side, channels[i], &stream, side->seed + i, 0);
    }
    double end = side_seconds() + 120;
    for (bool more = true; more;) {
        more = side->index == 0 && calls_answered < CALLS;
        for (uint32_t i = 0; i < CHANNELS; i++) {
            more |= stream_step(streams[i]);
        }
        call_now_and_then(side, endpoint, &called);
        side_poll(side, 1000000);
        EXPECT(side_seconds() < end, "not all came");
    }
    side_meet(side);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        stream_end(streams[i]);
        side_leave(side, channels[i]);
    }
    EXPECT_EQUAL(crpc_endpoint_close(side->context, endpoint), CRPC_OK);
}

#define RUN(name, seed)                                                                            \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        sides_run(name, seed);                                                                     \
    }
RUN(sizes_at_every_share, 1)
RUN(large, 2)
RUN(groups, 3)
RUN(groups_by_blob_and_epoll, 4)
RUN(groups_of_large_buffers, 9)
RUN(queue_pairs_and_slots, 5)
RUN(the_lesser_of_both_sides_counts, 6)
RUN(a_rail_that_one_side_lacks, 7)
RUN(channels_and_endpoints_in_one_context, 8)

/* The sums of all queue pairs that there have been, as simnic counts them: blocks of compressed completions, and of these, arrays of the
 * enhanced layout. */
static void count_compressed(uint64_t *blocks, uint64_t *arrays)
{
    char line[512];
    bool sum = false;
    snprintf(line, sizeof(line), "'%s' ctl stats --json", getenv("TEST_SIMNIC"));
    FILE *output = popen(line, "r");
    EXPECT(output, "simnic ctl stats");
    while (fgets(line, sizeof(line), output)) {
        const char *value = strstr(line, "\": ");
        sum = (sum || strstr(line, "\"sum\": ")) && !strchr(line, '}');
        if (sum && strstr(line, "\"compressed_blocks\"")) {
            *blocks += strtoull(value + 3, NULL, 10);
        } else if (sum && strstr(line, "\"compressed_arrays\"")) {
            *arrays += strtoull(value + 3, NULL, 10);
        }
    }
    EXPECT_EQUAL(pclose(output), 0);
}

/* At the end: what the devices have seen of all that went before. Bursts have completions that are alike. */
static void completions_are_compressed_as_was_asked_for(void **state)
{
    uint64_t blocks = 0, arrays = 0;
    (void)state;
    count_compressed(&blocks, &arrays);
    assert_int_equal(blocks > 0, place_compresses() > 0);
    assert_int_equal(arrays, place_compresses() > 1 ? blocks : 0); /* of one layout */
}

int main(void)
{
    signals_as_usual();
    struct CMUnitTest tests[] = {
        {"every size arrives at every share, both ways at once", sizes_at_every_share_test, 0, 0,
         0},
        {"up to 256 MiB arrive", large_test, 0, 0, 0},
        {"groups are filled by tag, or truncated", groups_test, 0, 0, 0},
        {"connected by blobs, sleeping with epoll", groups_by_blob_and_epoll_test, 0, 0, 0},
        {"groups of buffers of many MiB", groups_of_large_buffers_test, 0, 0, 0},
        {"1 to 8 queue pairs, 1 to 256 slots", queue_pairs_and_slots_test, 0, 0, 0},
        {"the lesser of both sides counts", the_lesser_of_both_sides_counts_test, 0, 0, 0},
        {"a rail that one side lacks", a_rail_that_one_side_lacks_test, 0, 0, 0},
        {"channels and endpoints in one context", channels_and_endpoints_in_one_context_test, 0, 0,
         0},
        cmocka_unit_test(completions_are_compressed_as_was_asked_for),
    };
    if (!getenv("TEST_SIMNIC")) {
        LEAVE_OUT(tests, completions_are_compressed_as_was_asked_for,
                  "only simnic counts what it compresses");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

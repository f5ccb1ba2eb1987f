/* channel_rail_test.c: rails that carry nothing, that fail and come back, links that lose packets,
 * and peers that are killed, while messages flow both ways. TEST_ROUNDS=n asks for more rounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kill.h"
#include "place.h"
#include "signals.h"
#include "stream.h"

static uint32_t rounds_of(uint32_t otherwise)
{
    const char *given = getenv("TEST_ROUNDS");
    otherwise = getenv("TEST_SIMNIC") ? otherwise : 2;
    return given ? (uint32_t)atoi(given) : otherwise;
}

/* A lost rail is noticed soon; but not so soon that a peer without a processor counts as lost: where that was the last
 * rail, the channel would end. simnic waits for such a peer, which costs a retry at the most. Soft-RoCE does not, and
 * retries for 1.9 s. */
static crpc_channel_options quick(void)
{
    bool waits = getenv("TEST_SIMNIC");
    return (crpc_channel_options){.struct_size = sizeof(crpc_channel_options),
                                  .split = CRPC_SPLIT_FIXED,
                                  .rail0_share = 512,
                                  .slots = 16,
                                  .stripe_bytes_min = 4096,
                                  .rail_retry_ns = 10000000,
                                  .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                  .retry_timeout = waits ? 10 : 16,
                                  .retry_count = waits ? 4 : 6};
}

static void pause_ms(struct side *side, struct stream *stream, uint64_t ms)
{
    double end = side_seconds() + (double)ms / 1000;
    while (side_seconds() < end) {
        if (stream) {
            stream_step(stream);
        } else {
            side_poll(side, 1000000);
        }
    }
}

/* rdma_cm's own queue pair on Soft-RoCE (Linux 6.1) never sends again after it has sent over a link that is
 * down, as it does to take leave there. Channels that come after rail 0 was lost need another way. */
static crpc_channel connect_after_loss(struct side *side, const crpc_channel_options *options)
{
    return getenv("TEST_SIMNIC") ? side_connect(side, options) : side_join(side, options);
}

/* ---- A rail without a share ------------------------------------------------------------------ */

/* Until the rail is still: nothing tells when the last acknowledgements have come. */
static void await_quiet(struct side *side, uint32_t rail)
{
    double end = side_seconds() + 60;
    uint64_t packets = place_counters(rail).packets, before;
    do {
        EXPECT(side_seconds() < end, "packets keep coming over rail %u", rail);
        pause_ms(side, NULL, 200);
        before = packets;
        packets = place_counters(rail).packets;
    } while (packets != before);
}

static void a_rail_without_a_share(struct side *side)
{
    /* None is empty: empty messages go over rail 0 whatever its share. */
    static const uint64_t sizes[] = {1, 127, 128, 4095, 4096, 9999, 20000};
    crpc_channel_options options = quick();
    options.keepalive_ns = CRPC_FOREVER;
    options.queue_pairs = 2;
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    /* Or one comes later, by packets. */
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    uint64_t number = 0;
    for (uint32_t idle = 0; idle < 2; idle++) {
        struct stream_options stream = {.messages = {20, 20},
                                        .window = 8,
                                        .group_max = 4,
                                        .sizes = sizes,
                                        .size_count = sizeof(sizes) / sizeof(sizes[0])};
        EXPECT_EQUAL(crpc_channel_set_share(side->context, channel, idle ? 1024 : 0), CRPC_OK);
        stream_run(side, channel, &stream, side->seed + idle, number);
        number += 20;
        await_quiet(side, idle);
        struct place_counters before = place_counters(idle);
        crpc_rail_info rail_before = side_rail(side, idle);
        uint64_t control = side_stats(side, channel).control_wqes;
        side_meet(side);
        stream.messages[0] = stream.messages[1] = 1000;
        stream_run(side, channel, &stream, side->seed + 10 + idle, number);
        number += 1000;
        struct place_counters after = place_counters(idle);
        crpc_rail_info rail_after = side_rail(side, idle);
        /* The words of who sleeps and is woken go over the first rail that is up. */
        uint64_t words[2] = {side_stats(side, channel).control_wqes - control, 0};
        side_tell(side, &words[0], sizeof(words[0]));
        side_hear(side, &words[1], sizeof(words[1]));
        uint64_t most = idle == 0 ? words[0] + words[1] : 0;
        /* For each of 1000 messages of each side the clear-to-sends, one packet, and its acknowledgement.
         * A part of a message would be two more. In the VM both sides have the same device, which counts
         * each packet when it leaves and when it arrives. */
        uint64_t packets = after.packets - before.packets, times = getenv("TEST_SIMNIC") ? 1 : 2;
        EXPECT(packets <= times * (3 * 2000 + 2 * most), "%llu packets",
               (unsigned long long)packets);
        /* These; and what stays in the device: of 1 to 4 buffers, as many binds and invalidates. */
        EXPECT(after.send_wqes - before.send_wqes <= (1 + 2 * 4) * 2000, "more than these");
        EXPECT(after.receive_wqes - before.receive_wqes <= most, "%llu receives for %llu words",
               (unsigned long long)(after.receive_wqes - before.receive_wqes),
               (unsigned long long)most);
        most = idle == 0 ? words[1] : 0;
        EXPECT(rail_after.receives_completed - rail_before.receives_completed <= most,
               "%llu receives for %llu words of the peer",
               (unsigned long long)(rail_after.receives_completed - rail_before.receives_completed),
               (unsigned long long)most);
        EXPECT(place_counters(!idle).packets > 2000, "the counters count nothing");
        EXPECT(side_rail(side, !idle).receives_completed >= 1000, "nor does this one");
        side_meet(side);
    }
    side_leave(side, channel);
}

/* ---- A rail that dies without a word --------------------------------------------------------- */

/* Nothing is sent over it that could fail: only the device tells. */
static void an_idle_queue_pair_dies(struct side *side)
{
    crpc_channel_options options = quick();
    options.keepalive_ns = CRPC_FOREVER;
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    while (side_poll(side, 0) > 0) { /* a rail that came late is told */
    }
    uint32_t lost = side->rail_lost[1];
    EXPECT(side->index == 1 || kill_queue_pair(1), "no queue pair of rail 1");
    SIDE_UNTIL(side, side->rail_lost[1] > lost);
    EXPECT_EQUAL(side->rail_lost[0], 0);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_leave(side, channel);
}

/* ---- A rail that fails ----------------------------------------------------------------------- */

static struct stream_options endless(void)
{
    return (struct stream_options){.messages = {STREAM_ENDLESS, STREAM_ENDLESS},
                                   .window = 8,
                                   .group_max = 8,
                                   .bytes_max = 30000,
                                   .truncate = true,
                                   .ends_with = {CRPC_E_DISCONNECTED}};
}

/* Side 0 makes trouble and then says so; side 1 carries on until then. */
static void carry_on(struct side *side, struct stream *stream)
{
    char word;
    while (!side_told(side)) {
        stream_step(stream);
    }
    side_hear(side, &word, 1);
}

static void expect_no_error(struct side *side, crpc_channel channel)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel_get_error(side->context, channel, &error);
    EXPECT(error.status == CRPC_OK, "the channel has ended: %s", error.message);
}

/* Ends streams of which nothing may be missing, and the channel. */
static void part(struct side *side, crpc_channel channel, struct stream *stream)
{
    stream_settle(stream, 60);
    side_meet(side);
    int32_t status = crpc_channel_disconnect(side->context, channel, CRPC_FOREVER);
    EXPECT(status == CRPC_OK || status == CRPC_E_STATE, "%s", crpc_status_name(status));
    side_wait_gone(side, channel);
    expect_no_error(side, channel);
    EXPECT(stream_idle(stream), "DISCONNECTED came before the last op");
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    stream_end(stream);
}

/* Carries on until the rail was lost more than `lost` times, and until it is used again. */
static void wait_for_loss(struct side *side, uint32_t rail, uint32_t lost, crpc_channel channel,
                          struct stream *stream)
{
    double end = side_seconds() + 60;
    while (side->rail_lost[rail] == lost) {
        EXPECT(side_seconds() < end, "rail %u is not lost (%u times so far)", rail, lost);
        stream_step(stream);
        expect_no_error(side, channel);
    }
}

static void wait_for_return(struct side *side, uint32_t rail, crpc_channel channel,
                            struct stream *stream)
{
    double end = side_seconds() + 60;
    while (side->rail_back[rail] != side->rail_lost[rail]) {
        EXPECT(side_seconds() < end, "rail %u is not back (%u of %u times)", rail,
               side->rail_back[rail], side->rail_lost[rail]);
        stream_step(stream);
        expect_no_error(side, channel);
    }
}

static void fail_rail(struct side *side, uint32_t rail, crpc_channel channel, struct stream *stream)
{
    uint64_t state = side->seed;
    char down[32];
    uint32_t rounds = rounds_of(6);
    snprintf(down, sizeof(down), "rail%u=down", rail);
    for (uint32_t round = 0; round < rounds; round++) {
        pause_ms(side, stream, side_random(&state) % 30);
        wait_for_return(side, rail, channel, stream);
        uint32_t lost = side->rail_lost[rail];
        EXPECT(place_fault(down), "%s", down);
        wait_for_loss(side, rail, lost, channel, stream);
        pause_ms(side, stream, side_random(&state) % 60);
        EXPECT(place_fault("none"), "none");
        wait_for_return(side, rail, channel, stream);
    }
    EXPECT_EQUAL(side_info(side, channel).rail_state[rail], CRPC_RAIL_UP);
}

/* Connects, and returns when both sides use both rails. One may come after CONNECTED, which shows as
 * RAIL but not as a recovery: so the RAILs are counted from here on. `late` makes that so. */
static crpc_channel connect_both_rails(struct side *side, const crpc_channel_options *options,
                                       bool late)
{
    if (late) {
        side_meet(side); /* a context cannot be opened on a link that is down */
        EXPECT(side->index == 1 || place_fault("rail1=down"), "rail1=down");
    }
    crpc_channel channel = side_connect(side, options);
    if (late && side->index == 0) {
        EXPECT_EQUAL(side_info(side, channel).rail_state[1], CRPC_RAIL_DOWN);
        EXPECT(place_fault("none"), "none");
    }
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    while (side_poll(side, 0) > 0) { /* what is still to be told of it */
    }
    if (late) {
        EXPECT_EQUAL(side->rail_back[1], 1);
        EXPECT_EQUAL(side_stats(side, channel).rail_recoveries[1], 0);
    }
    memset(side->rail_lost, 0, sizeof(side->rail_lost));
    memset(side->rail_back, 0, sizeof(side->rail_back));
    return channel;
}

static void a_rail_fails(struct side *side, uint32_t rail, bool late, struct stream_options traffic)
{
    crpc_channel_options options = quick();
    options.queue_pairs = 1 + (uint32_t)(side->seed % 3);
    side_open(side, NULL);
    crpc_channel channel = connect_both_rails(side, &options, late);
    crpc_channel_stats before = side_stats(side, channel);
    struct stream *stream = stream_start(side, channel, &traffic, side->seed, 0);
    if (side->index == 0) {
        fail_rail(side, rail, channel, stream);
        side_tell(side, "d", 1);
    } else {
        carry_on(side, stream);
    }
    crpc_channel_stats stats = side_stats(side, channel);
    if (side->index == 0) {
        printf("# rail %u was lost %u times: %llu messages sent, %llu shares again\n", rail,
               side->rail_lost[rail], (unsigned long long)stats.messages_sent,
               (unsigned long long)stats.shares_repeated);
    }
    /* Both are used again. */
    uint64_t sent[2] = {stats.rail_bytes_sent[0], stats.rail_bytes_sent[1]};
    double end = side_seconds() + 60;
    while (stats.rail_bytes_sent[0] == sent[0] || stats.rail_bytes_sent[1] == sent[1]) {
        EXPECT(side_seconds() < end, "one rail is idle");
        stream_step(stream);
        expect_no_error(side, channel);
        stats = side_stats(side, channel);
    }
    /* Not while one sleeps: then what is counted may still be to be told. */
    wait_for_return(side, rail, channel, stream);
    side_poll(side, 0);
    stats = side_stats(side, channel);
    EXPECT_EQUAL(stats.rail_failures[rail] - before.rail_failures[rail], side->rail_lost[rail]);
    EXPECT_EQUAL(stats.rail_recoveries[rail] - before.rail_recoveries[rail], side->rail_back[rail]);
    EXPECT_EQUAL(side->rail_lost[rail], side->rail_back[rail]);
    EXPECT(side->rail_lost[rail] >= rounds_of(6), "%u", side->rail_lost[rail]);
    part(side, channel, stream);
}

static void rail_1_fails(struct side *side)
{
    a_rail_fails(side, 1, false, endless());
}

static void rail_0_fails(struct side *side)
{
    a_rail_fails(side, 0, false, endless());
}

/* In the middle of shares that take several WQEs where a device's messages end at 8 MiB, as on Soft-RoCE. */
static void a_rail_fails_under_large_messages(struct side *side)
{
    struct stream_options traffic = endless();
    traffic.window = 2;
    traffic.group_max = 2;
    traffic.bytes_max = 24u << 20;
    a_rail_fails(side, 1, false, traffic);
}

static void a_late_rail_fails(struct side *side)
{
    a_rail_fails(side, 1, true, endless());
}

/* Ends the streams and the channel on both sides. It may have ended already, or end meanwhile: that a rail was lost may
 * show later than that it is back. True if it lived until it was left. */
static bool part_if_it_lives(struct side *side, crpc_channel channel, struct stream *stream)
{
    stream_settle(stream, 60);
    side_meet(side);
    int32_t status = crpc_channel_disconnect(side->context, channel, CRPC_FOREVER);
    EXPECT(status == CRPC_OK || status == CRPC_E_STATE || status == CRPC_E_DISCONNECTED, "%s",
           crpc_status_name(status));
    status = side_wait_gone(side, channel);
    EXPECT(status == CRPC_OK || status == CRPC_E_DISCONNECTED, "%s", crpc_status_name(status));
    EXPECT(stream_idle(stream), "DISCONNECTED came before the last op");
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    stream_end(stream);
    return status == CRPC_OK;
}

/* One fails before the other is back, at random moments: the channel may or may not live. */
static void both_rails_flap(struct side *side)
{
    uint64_t state = side->seed;
    struct stream_options traffic = endless();
    crpc_channel_options options = quick();
    if (!getenv("TEST_SIMNIC")) {
        /* 0.5 s, as long as the rails are down; a rail lost too much may end the channel. */
        options.retry_timeout = 14;
    }
    uint32_t ended = 0;
    uint32_t rounds = rounds_of(4);
    side_open(side, NULL);
    for (uint32_t round = 0; round < rounds; round++) {
        crpc_channel channel = connect_after_loss(side, &options);
        struct stream *stream = stream_start(side, channel, &traffic, side->seed + round, 0);
        for (uint32_t i = 0; side->index == 0 && i < 4; i++) {
            pause_ms(side, stream, side_random(&state) % 40);
            EXPECT(place_fault(i % 2 ? "rail1=down" : "rail0=down"), "down");
            pause_ms(side, stream, side_random(&state) % 300);
        }
        if (side->index == 0) {
            EXPECT(place_fault("none"), "none");
            pause_ms(side, stream, 200);
            side_tell(side, "d", 1);
        } else {
            carry_on(side, stream);
        }
        ended += !part_if_it_lives(side, channel, stream);
        side_meet(side);
    }
    if (side->index == 0) {
        printf("# %u of %u channels ended\n", ended, rounds);
    }
}

static void both_rails_fail(struct side *side)
{
    struct stream_options traffic = endless();
    crpc_channel_options options = quick();
    crpc_error error = {.struct_size = sizeof(error)};
    side_open(side, NULL);
    for (uint32_t round = 0; round < 2; round++) {
        crpc_channel channel = connect_after_loss(side, &options);
        struct stream *stream = stream_start(side, channel, &traffic, side->seed, 0);
        pause_ms(side, stream, 50);
        if (side->index == 0) {
            EXPECT(place_fault("rail0=down,rail1=down"), "down");
        }
        double begun = side_seconds();
        stream_finish(stream, 60);
        EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_E_DISCONNECTED);
        printf("# side %d noticed after %.2f s\n", side->index, side_seconds() - begun);
        EXPECT_EQUAL(crpc_channel_get_error(side->context, channel, &error), CRPC_OK);
        printf("# %s\n", error.message);
        crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND, .channel = channel};
        int32_t reason;
        EXPECT_EQUAL(crpc_channel_submit(side->context, &op, 1, &reason), 0);
        EXPECT_EQUAL(reason, CRPC_E_DISCONNECTED);
        EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
        stream_end(stream);
        side_meet(side);
        if (side->index == 0) {
            EXPECT(place_fault("none"), "none");
        }
        side_meet(side);
    }
}

/* ---- Links that lose packets ----------------------------------------------------------------- */

static void bad_links(struct side *side)
{
    static const char *const faults[] = {"lose=0.01,seed=7", "duplicate=0.1,seed=8",
                                         "delay=0.1:2000,seed=9",
                                         "lose=0.005,duplicate=0.05,delay=0.05:1000,seed=10"};
    crpc_channel_options options = quick();
    options.retry_count = 7;
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    for (uint32_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct stream_options traffic = {.messages = {80, 80},
                                         .window = 8,
                                         .group_max = 4,
                                         .bytes_max = 40000,
                                         .truncate = true,
                                         .shares = true};
        side_meet(side);
        if (side->index == 0) {
            EXPECT(place_fault(faults[i]), "%s", faults[i]);
        }
        stream_run(side, channel, &traffic, side->seed + i, i * 80);
    }
    side_meet(side);
    if (side->index == 0) {
        EXPECT(place_fault("none"), "none");
    }
    side_meet(side);
    side_leave(side, channel);
}

/* ---- Peers that die -------------------------------------------------------------------------- */

#define KILLS 12

/* The victim: connects and streams until it is killed; the last child parts in peace. */
static void victim(struct side *side, const crpc_channel_options *options)
{
    struct stream_options traffic = endless();
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, options);
    struct stream *stream = stream_start(side, channel, &traffic, side->seed + side->child, 0);
    carry_on(side, stream);
    part(side, channel, stream);
}

/* Each op completes once (stream.c), then DISCONNECTED comes, and the next channel works. */
static void a_peer_is_killed(struct side *side)
{
    crpc_channel_options options = quick();
    uint64_t state = side->seed;
    if (side->index == 1) {
        victim(side, &options);
        return;
    }
    double longest = 0;
    side_open(side, NULL);
    for (uint32_t child = 0; child < side->children; child++) {
        struct stream_options traffic = endless();
        crpc_channel channel = side_connect(side, &options);
        struct stream *stream = stream_start(side, channel, &traffic, side->seed + child, 0);
        pause_ms(side, stream, side_random(&state) % 40);
        if (child + 1 == side->children) {
            side_tell(side, "d", 1);
            part(side, channel, stream);
            return;
        }
        side_kill(side);
        double begun = side_seconds();
        stream_finish(stream, 60);
        EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_E_DISCONNECTED);
        longest = side_seconds() - begun > longest ? side_seconds() - begun : longest;
        EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
        stream_end(stream);
        side_replace(side);
    }
    printf("# kill -9 was noticed after %.2f s at the latest\n", longest);
}

/* While the two still connect. */
static void a_peer_is_killed_early(struct side *side)
{
    crpc_channel_options options = quick();
    uint64_t state = side->seed;
    char address[64];
    crpc_channel_options brief = options; /* who connects to a killed one waits so long */
    brief.connect_timeout_ns = 3000000000;
    side_open(side, NULL);
    if (side->index == 1 && side->child + 1 < KILLS) {
        crpc_error error = {.struct_size = sizeof(error)};
        side_listen(side, CRPC_LISTENER_CHANNELS, address);
        SIDE_UNTIL(side, side->requests > 0);
        crpc_channel_accept(side->context, side->requested, &brief, &error);
        SIDE_UNTIL(side, false);
    }
    for (uint32_t child = 0; side->index == 0 && child + 1 < KILLS; child++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_channel channel;
        uint32_t connected = side->connected;
        side_listen(side, CRPC_LISTENER_CHANNELS, address);
        EXPECT(crpc_channel_connect(side->context, address, &brief, &channel, &error) == CRPC_OK,
               "%s", error.message);
        double end = side_seconds() + (double)(side_random(&state) % 30000) / 1e6;
        while (side_seconds() < end) {
            side_poll(side, 0);
        }
        side_kill(side);
        if (side->connected == connected) {
            SIDE_UNTIL(side, side->connected > connected);
        }
        if (side->connected_status == CRPC_OK) {
            EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_E_DISCONNECTED);
        }
        EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
        side_replace(side);
    }
    crpc_channel channel = side_connect(side, &options);
    side_leave(side, channel);
}

#define RUN(name, seed, children)                                                                  \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        sides_run_many(name, seed, children);                                                      \
    }
RUN(a_rail_without_a_share, 11, 1)
RUN(a_peer_is_killed, 12, KILLS)
RUN(a_peer_is_killed_early, 13, KILLS)
RUN(rail_1_fails, 14, 1)
RUN(rail_0_fails, 15, 1)
RUN(a_rail_fails_under_large_messages, 19, 1)
RUN(a_late_rail_fails, 20, 1)
RUN(both_rails_fail, 16, 1)
RUN(both_rails_flap, 17, 1)
RUN(bad_links, 18, 1)
RUN(an_idle_queue_pair_dies, 21, 1)

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        {"a rail without a share sees no packet and uses no receive", a_rail_without_a_share_test,
         0, 0, 0},
        {"a killed peer ends every op once, and the next channel works", a_peer_is_killed_test, 0,
         0, 0},
        {"a peer is killed while it connects", a_peer_is_killed_early_test, 0, 0, 0},
        {"rail 1 fails and comes back under load", rail_1_fails_test, 0, 0, 0},
        {"rail 0 fails and comes back under load", rail_0_fails_test, 0, 0, 0},
        {"a rail fails under messages of several WQEs", a_rail_fails_under_large_messages_test, 0,
         0, 0},
        {"both rails fail: every op ends", both_rails_fail_test, 0, 0, 0},
        {"the rails fail in turn", both_rails_flap_test, 0, 0, 0},
        /* The rest needs simnic's faults. */
        {"links lose, repeat and delay packets", bad_links_test, 0, 0, 0},
        {"a rail that came late fails and comes back under load", a_late_rail_fails_test, 0, 0, 0},
        {"an idle queue pair that dies costs its rail", an_idle_queue_pair_dies_test, 0, 0, 0},
    };
    size_t count = sizeof(tests) / sizeof(tests[0]);
    if (!getenv("TEST_SIMNIC")) {
        count -= 3;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("rails", tests, count, NULL, NULL);
}

/* channel_test.c: messages over channels between two processes: every size, share, group, kind of
 * memory and way of sleeping, both ways at once, every byte checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "place.h"
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
    EXPECT_EQUAL(info.rail_state[0], CRPC_RAIL_UP);
    EXPECT_EQUAL(info.rail_state[1], CRPC_RAIL_UP);
}

/* ---- Sizes and shares ------------------------------------------------------------------------ */

static void sizes_at_every_share(struct side *side)
{
    static const uint64_t sizes[] = {1,     2,     7,     8,     63,    64,      65,
                                     127,   128,   129,   255,   1000,  4095,    4096,
                                     4097,  65407, 65408, 65409, 65535, 65536,   65537,
                                     65664, 65665, 0,     99999, 1 << 17, MIB - 1, MIB, MIB + 1};
    static const uint32_t shares[] = {0, 1, 512, 1023, 1024, 333};
    struct stream_options stream = {.messages = {LENGTH(sizes), LENGTH(sizes)},
                                    .sizes = sizes,
                                    .size_count = LENGTH(sizes)};
    crpc_channel_options options = fixed(512);
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    both_rails_up(side, channel);
    for (uint32_t i = 0; i < LENGTH(shares); i++) {
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
    static const uint64_t sizes[] = {16 * MIB, 16 * MIB + 1, 64 * MIB - 1};
    static const uint64_t largest[] = {256 * MIB};
    const uint32_t count = slow() ? 2 : LENGTH(sizes);
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
    random_streams(side, channel, slow() ? 60 : 600, 100000);
    side_leave(side, channel);
}

static void groups_by_blob_and_epoll(struct side *side)
{
    side_open(side, NULL);
    side->sleep = SIDE_EPOLL;
    crpc_channel channel = side_join(side, NULL);
    both_rails_up(side, channel);
    random_streams(side, channel, slow() ? 60 : 600, 300000);
    side_leave(side, channel);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every size arrives at every share, both ways at once", sizes_at_every_share_test, 0, 0, 0},
        {"up to 256 MiB arrive", large_test, 0, 0, 0},
        {"groups are filled by tag, or truncated", groups_test, 0, 0, 0},
        {"connected by blobs, sleeping with epoll", groups_by_blob_and_epoll_test, 0, 0, 0},
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

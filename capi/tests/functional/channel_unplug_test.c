/* channel_unplug_test.c: the device of one rail, and then of the other, is taken out while messages flow both ways. On simnic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "place.h"
#include "signals.h"
#include "stream.h"

#define MORE_MESSAGES 500u

static void until_lost(struct side *side, uint32_t rail, struct stream *stream)
{
    const double end = side_seconds() + 60;
    while (side->rail_lost[rail] == 0) {
        EXPECT(side_seconds() < end, "rail %u is not lost", rail);
        stream_step(stream);
    }
}

static void until_more(struct stream *stream)
{
    const double end = side_seconds() + 60;
    const uint32_t done = stream_done(stream);
    while (stream_done(stream) < done + MORE_MESSAGES) {
        EXPECT(side_seconds() < end, "the other rail does not carry on");
        stream_step(stream);
    }
}

/* The channel outlives the one device and not both; every op ends once, which stream_end checks; and the next context has both rails. Which
 * reason the channel ends with depends on what tells of the second device first: its event, or an op of it that fails. */
static void devices_are_taken_out(struct side *side, uint32_t first)
{
    static const uint64_t sizes[] = {0, 1, 4096, 70000, 300000};
    static const char *const one[] = {"rail0=unplugged", "rail1=unplugged"};
    const struct stream_options traffic = {.messages = {STREAM_ENDLESS, STREAM_ENDLESS},
                                           .window = 8,
                                           .group_max = 4,
                                           .ends_with = {CRPC_E_DISCONNECTED, CRPC_E_NO_DEVICE},
                                           .sizes = sizes,
                                           .size_count = sizeof(sizes) / sizeof(sizes[0])};
    const crpc_channel_options options = {.struct_size = sizeof(options),
                                          .split = CRPC_SPLIT_FIXED,
                                          .rail0_share = 512,
                                          .stripe_bytes_min = 4096,
                                          .rail_retry_ns = 10000000,
                                          .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    side->rail_lost[first] = 0;
    struct stream *stream = stream_start(side, channel, &traffic, side->seed, 0);
    until_more(stream);
    EXPECT(side->index == 1 || place_fault(one[first]), "%s", one[first]);
    until_lost(side, first, stream);
    until_more(stream);
    side_tell(side, "m", 1);
    while (!side_told(side)) {
        stream_step(stream);
    }
    EXPECT(side->index == 1 || place_fault("rail0=unplugged,rail1=unplugged"), "both");
    stream_finish(stream, 60);
    side_wait_gone(side, channel);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    stream_end(stream);
    char word;
    side_hear(side, &word, 1);
    side_close(side);
    side_meet(side);
    EXPECT(side->index == 1 || place_fault("none"), "none");
    side_meet(side);
    side_open(side, NULL);
    channel = side_connect(side, &options);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    side_leave(side, channel);
}

static void rail_1_first(struct side *side)
{
    devices_are_taken_out(side, 1);
}

static void rail_0_first(struct side *side)
{
    devices_are_taken_out(side, 0);
}

static void rail_1_first_test(void **state)
{
    (void)state;
    sides_run(rail_1_first, 31);
}

static void rail_0_first_test(void **state)
{
    (void)state;
    sides_run(rail_0_first, 32);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        {"the device of rail 1 is taken out, then that of rail 0", rail_1_first_test, 0, 0, 0},
        {"the device of rail 0 is taken out, then that of rail 1", rail_0_first_test, 0, 0, 0},
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

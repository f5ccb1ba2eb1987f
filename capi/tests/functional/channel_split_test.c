/* channel_split_test.c: how a channel divides its bytes over rails with rates (simnic's fault rail0=rate:GBPS), while
 * messages flow whose every byte is checked. What the rails bring in a time stands for the time: a machine that has others to
 * run makes them slower, and the split must not notice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "place.h"
#include "signals.h"
#include "stream.h"

/* All rates of a phase sum to 0.8 Gbit/s. */
#define BYTES_IN_100_MS UINT64_C(10000000)
#define TRIES 20u

/* Sends so many bytes; returns what part of them rail 0 carried, in 1/1000. */
static uint32_t part_of_rail_0(struct side *side, crpc_channel channel, struct stream *stream,
                               uint64_t bytes)
{
    crpc_channel_stats before = side_stats(side, channel), now = before;
    double end = side_seconds() + 60;
    while (now.bytes_sent - before.bytes_sent < bytes) {
        EXPECT(side_seconds() < end, "%llu bytes in 60 s",
               (unsigned long long)(now.bytes_sent - before.bytes_sent));
        stream_step(stream);
        now = side_stats(side, channel);
    }
    uint64_t first = now.rail_bytes_sent[0] - before.rail_bytes_sent[0];
    uint64_t second = now.rail_bytes_sent[1] - before.rail_bytes_sent[1];
    return (uint32_t)(first * 1000 / (first + second));
}

static void change_rates(struct side *side, crpc_channel channel, struct stream *stream)
{
    static const struct {
        const char *fault;
        uint32_t low, high; /* of the part of rail 0, in 1/1000 */
    } phases[] = {
        {"rail0=rate:0.4,rail1=rate:0.4", 475, 525},  {"rail0=rate:0.2,rail1=rate:0.6", 225, 275},
        {"rail0=rate:0.6,rail1=rate:0.2", 675, 825},  {"rail0=rate:0.4,rail1=rate:0.4", 475, 525},
        {"rail0=rate:0.08,rail1=rate:0.72", 80, 120},
    };
    for (uint32_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        EXPECT(place_fault(phases[i].fault), "%s", phases[i].fault);
        part_of_rail_0(side, channel, stream, BYTES_IN_100_MS);
        uint32_t part, share, tries = 0;
        do { /* beside a busy machine, what comes at the same time may be seen at very different times */
            part = part_of_rail_0(side, channel, stream, 2 * BYTES_IN_100_MS);
            share = side_info(side, channel).rail0_share;
            printf("# %s: rail 0 carries %u/1000, its share is %u/1024\n", phases[i].fault, part,
                   share);
        } while ((part < phases[i].low || part > phases[i].high) && ++tries < TRIES);
        EXPECT(tries < TRIES, "%s: rail 0 carries %u/1000, its share is %u/1024", phases[i].fault,
               part, share);
    }
    EXPECT(place_fault("none"), "none");
}

static void split_by_rates(struct side *side, uint32_t window, uint64_t size)
{
    crpc_channel_options options = {.struct_size = sizeof(options), .split = CRPC_SPLIT_MEASURED};
    struct stream_options flow = {.messages = {STREAM_ENDLESS, 0},
                                  .window = window,
                                  .sizes = &size,
                                  .size_count = 1,
                                  .bytes_max = size,
                                  .regions = true,
                                  .ends_with = {CRPC_E_DISCONNECTED}};
    side_open(side, NULL);
    crpc_channel channel = side_connect(side, &options);
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    struct stream *stream = stream_start(side, channel, &flow, side->seed, 0);
    char word = 0;
    if (side->index == 0) {
        change_rates(side, channel, stream);
        side_tell(side, &word, 1);
    } else {
        while (!side_told(side)) {
            stream_step(stream);
        }
        side_hear(side, &word, 1);
    }
    stream_settle(stream, 60);
    side_meet(side);
    int32_t status = crpc_channel_disconnect(side->context, channel, CRPC_FOREVER);
    EXPECT(status == CRPC_OK || status == CRPC_E_STATE, "%s",
           crpc_status_name(status)); /* the other was first */
    EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_OK);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    stream_end(stream);
}

static void one_message_at_a_time(struct side *side)
{
    split_by_rates(side, 1, 1 << 20);
}

static void several_messages_at_once(struct side *side)
{
    split_by_rates(side, 4, 1 << 18);
}

static void many_messages_at_once(struct side *side)
{
    split_by_rates(side, 8, 1 << 16);
}

#define RUN(name)                                                                                  \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        sides_run(name, 31);                                                                       \
        place_fault("none");                                                                       \
    }
RUN(one_message_at_a_time)
RUN(several_messages_at_once)
RUN(many_messages_at_once)

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_at_a_time_test),
        cmocka_unit_test(several_messages_at_once_test),
        cmocka_unit_test(many_messages_at_once_test),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

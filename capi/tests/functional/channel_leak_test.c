/* channel_leak_test.c: a process that makes and ends channels for long, in every way they can end,
 * holds no more memory, descriptors, threads, registrations or receives than before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "footprint.h"
#include "signals.h"
#include "stream.h"

#define WARM_UP 24u
#define CYCLES 300u

enum ending {
    LEFT = 0,
    CLOSED_HERE,
    CLOSED_THERE,
    REJECTED,
    ENDINGS,
};

static void cycle(struct side *side, uint32_t number)
{
    struct stream_options traffic = {.messages = {STREAM_ENDLESS, STREAM_ENDLESS},
                                     .group_max = 3,
                                     .bytes_max = 100000,
                                     .regions = number % 3 == 0,
                                     .ends_with = {CRPC_E_DISCONNECTED, CRPC_E_CLOSED}};
    crpc_channel_options options = {
        .struct_size = sizeof(options), .queue_pairs = 1 + number % 3, .keepalive_ns = 50000000};
    uint32_t ending = number % ENDINGS;
    char address[64];
    if (ending == REJECTED) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_channel channel;
        const crpc_channel_options patient = side_options(NULL);
        uint32_t before = side->connected + side->requests;
        side_listen(side, CRPC_LISTENER_CHANNELS, address);
        if (side->index == 0) {
            EXPECT_EQUAL(crpc_channel_connect(side->context, address, &patient, &channel, &error),
                         CRPC_OK);
        }
        SIDE_UNTIL(side, side->connected + side->requests > before);
        EXPECT_EQUAL(side->index == 0 ? crpc_channel_close(side->context, channel)
                                      : crpc_channel_reject(side->context, side->requested, 1),
                     CRPC_OK);
        side_meet(side);
        return;
    }
    /* Without rdma_cm it takes the transport's retries to notice a close. */
    bool by_blob = number % 8 == 0 || number % 60 == 1;
    crpc_channel channel = by_blob ? side_join(side, &options) : side_connect(side, &options);
    struct stream *stream = stream_start(side, channel, &traffic, side->seed + number, 0);
    while (stream_done(stream) < 6) {
        stream_step(stream);
    }
    side_meet(side);
    if (ending == LEFT) {
        stream_settle(stream, 60);
        side_meet(side);
        crpc_channel_disconnect(side->context, channel, CRPC_FOREVER);
        EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_OK);
    } else if ((ending == CLOSED_HERE) != (side->index == 0)) {
        stream_finish(stream, 60); /* with ops open, or nobody would ask for the other */
        EXPECT_EQUAL(side_wait_gone(side, channel), CRPC_E_DISCONNECTED);
    }
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    while (!stream_idle(stream)) {
        side_poll(side, 1000000);
    }
    stream_end(stream);
    side_meet(side);
}

static void channels_leave_nothing(struct side *side)
{
    struct footprint before = {0};
    uint32_t receives_left = 0;
    side_open(side, NULL);
    uint32_t registrations = 0;
    for (uint32_t i = 0; i < WARM_UP + CYCLES; i++) {
        crpc_cache_info cache = {.struct_size = sizeof(cache)};
        if (i == WARM_UP) {
            EXPECT_EQUAL(crpc_cache_get_info(side->context, &cache), CRPC_OK);
            registrations = cache.registrations;
            receives_left = side_rail(side, 1).receives_left;
            before = footprint();
        }
        cycle(side, i);
    }
    crpc_cache_info cache = {.struct_size = sizeof(cache)};
    EXPECT_EQUAL(crpc_cache_get_info(side->context, &cache), CRPC_OK);
    EXPECT_EQUAL(cache.registrations, registrations);
    EXPECT_EQUAL(side_rail(side, 1).receives_left, receives_left);
    EXPECT(footprint_is_back(&before), "something is left");
    side_meet(side);
}

static void channels_leave_nothing_test(void **state)
{
    (void)state;
    sides_run(channels_leave_nothing, 31);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_leave_nothing_test),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

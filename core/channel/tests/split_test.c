/* split_test.c: how a channel divides its bytes over two rails of any speed and latency, in simulated time: the
 * rails of the in-memory NIC take the time that the test says, and the clock goes from one landing to the next.
 */
#include "pair_fixture.h"

#include <stdio.h>

#include "channel/split.h"
#include "nic/memory/random.h"

#define RECEIVES 16u
#define MS UINT64_C(1000000)
#define US UINT64_C(1000)

struct rails {
    uint32_t mbps[CHANNEL_RAILS_MAX];
    uint64_t latency_ns[CHANNEL_RAILS_MAX];
};

/* An application that keeps `depth` sends of `bytes` open. */
struct traffic {
    uint32_t bytes;
    uint32_t depth;
    uint64_t poll_ns;   /* how often it looks; 0: always */
    uint64_t jitter_ns; /* by how much it is late, at the most */
    uint64_t pause_ns;  /* between the end of all of them and the next */
};

static uint32_t sends_open, receives_open;
static struct random_generator lateness;

static void set_rails(const struct rails *rails)
{
    struct memory_fabric_options *options = memory_fabric_options(pair.fabric);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        options->rate_mbps[rail] = rails->mbps[rail];
        options->latency_ns[rail] = rails->latency_ns[rail];
    }
    options->clock_ns = &pair.clock_ns;
}

static void open_rails(const struct rails *rails, const crpc_channel_options *options)
{
    pair_open(&pair, CHANNEL_RAILS_MAX, CHANNEL_RAILS_MAX);
    pair_connect(&pair, options);
    set_rails(rails);
    sends_open = receives_open = 0;
    random_seed(&lateness, 1);
}

static crpc_channel_options measured(void)
{
    crpc_channel_options options = pair_options();
    options.split = CRPC_SPLIT_MEASURED;
    options.rail0_share = 0;
    options.slots = 32;
    options.stripe_bytes_min = 16384;
    return options;
}

static void step(const struct traffic *traffic)
{
    /* None is possible while the message that had the slot before still waits for its slower rail. */
    while (receives_open < RECEIVES && pair_receive(&pair, 1, 0, traffic->bytes, 0, 0) == CRPC_OK) {
        receives_open++;
    }
    if (sends_open == 0) {
        pair.clock_ns += traffic->pause_ns;
    }
    while (sends_open < traffic->depth) {
        assert_int_equal(pair_send(&pair, 0, 0, traffic->bytes, 0, 0), CRPC_OK);
        sends_open++;
    }
    uint64_t next_ns = memory_fabric_next_ns(pair.fabric);
    if (next_ns == UINT64_MAX) { /* there is only what takes no time */
        next_ns = pair.clock_ns + US;
    }
    pair.clock_ns = maximum(pair.clock_ns, next_ns);
    if (traffic->poll_ns > 0) {
        pair.clock_ns = (pair.clock_ns / traffic->poll_ns + 1) * traffic->poll_ns;
    }
    if (traffic->jitter_ns > 0) {
        pair.clock_ns += random_below(&lateness, (uint32_t)traffic->jitter_ns);
    }
    pair_poll(&pair, 1);
    receives_open -= pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED);
    pair_poll(&pair, 0);
    sends_open -= pair_count(&pair, 0, CRPC_COMPLETION_SENT);
}

/* Runs for a time; returns what part of the bytes rail 0 carried, in 1/1000. */
static uint32_t run(const struct traffic *traffic, uint64_t time_ns)
{
    uint64_t end_ns = pair.clock_ns + time_ns;
    crpc_channel_stats before = pair_stats(&pair, 0);
    while (pair.clock_ns < end_ns) {
        step(traffic);
    }
    crpc_channel_stats after = pair_stats(&pair, 0);
    uint64_t bytes[CHANNEL_RAILS_MAX];
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        bytes[rail] = after.rail_bytes_sent[rail] - before.rail_bytes_sent[rail];
    }
    assert_true(bytes[0] + bytes[1] > 0);
    return (uint32_t)(bytes[0] * 1000 / (bytes[0] + bytes[1]));
}

static void expect_part(const struct rails *rails, const struct traffic *traffic, const char *when,
                        uint32_t part, uint32_t low, uint32_t high)
{
    uint32_t share = pair_info(&pair, 0).rail0_share * 1000 / 1024;
    if (part < low || part > high || share < low || share > high) {
        fail_msg("%s: rails of %u and %u Mb/s, %llu and %llu us; %u sends of %u bytes, polled "
                 "every %llu us: rail 0 "
                 "carried %u/1000, its share is %u/1000, not %u to %u",
                 when, rails->mbps[0], rails->mbps[1],
                 (unsigned long long)(rails->latency_ns[0] / US),
                 (unsigned long long)(rails->latency_ns[1] / US), traffic->depth, traffic->bytes,
                 (unsigned long long)(traffic->poll_ns / US), part, share, low, high);
    }
}

/* From wherever a share may be: also beside its limits. */
static void settle_from_everywhere(const struct rails *rails, const struct traffic *traffic,
                                   uint32_t low, uint32_t high)
{
    static const uint32_t starts[] = {992, 32, 16};
    for (uint32_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        char when[64];
        crpc_channel_options options = measured();
        open_rails(rails, &options);
        pair.channel[0]->share = split_fine(starts[i]);
        run(traffic, 250 * MS);
        snprintf(when, sizeof(when), "from %u:%u", starts[i], 1024 - starts[i]);
        expect_part(rails, traffic, when, run(traffic, 50 * MS), low, high);
        pair_close(&pair);
    }
}

static const struct traffic all_traffic[] = {
    {.bytes = 65536, .depth = 1},
    {.bytes = 65536, .depth = 2},
    {.bytes = 65536, .depth = 16},
    {.bytes = 524288, .depth = 1},
    {.bytes = 524288, .depth = 4},
    {.bytes = 1048576, .depth = 2},
    {.bytes = 1048576, .depth = 16},
    {.bytes = 262144, .depth = 4, .poll_ns = 5 * US},
    {.bytes = 262144, .depth = 1, .poll_ns = 5 * US},
    {.bytes = 262144, .depth = 4, .jitter_ns = 50 * US},
    {.bytes = 262144, .depth = 1, .jitter_ns = 20 * US},
    {.bytes = 131072, .depth = 1, .pause_ns = 300 * US},
    {.bytes = 65536, .depth = 3, .pause_ns = 50 * US},
};
#define TRAFFIC_COUNT (sizeof(all_traffic) / sizeof(all_traffic[0]))

static void equal_rails_settle_at_half(void **state)
{
    (void)state;
    static const struct rails all[] = {
        {.mbps = {4000, 4000}, .latency_ns = {2 * US, 2 * US}},
        {.mbps = {8000, 8000}, .latency_ns = {20 * US, 20 * US}},
        {.mbps = {8000, 8000}, .latency_ns = {200 * US, 200 * US}},
    };
    for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (uint32_t j = 0; j < TRAFFIC_COUNT; j++) {
            settle_from_everywhere(&all[i], &all_traffic[j], 475, 525);
        }
    }
}

static void rails_of_one_to_three_settle_at_a_quarter(void **state)
{
    (void)state;
    static const struct rails all[] = {
        {.mbps = {2000, 6000}, .latency_ns = {2 * US, 2 * US}},
        {.mbps = {2000, 6000}, .latency_ns = {20 * US, 20 * US}},
        {.mbps = {2000, 6000}, .latency_ns = {100 * US, 100 * US}},
    };
    for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (uint32_t j = 0; j < TRAFFIC_COUNT; j++) {
            settle_from_everywhere(&all[i], &all_traffic[j], 225, 275);
        }
    }
}

/* What a channel keeps under way covers the latencies: then only the speeds count. */
static void with_enough_under_way_latencies_do_not_count(void **state)
{
    (void)state;
    static const struct rails equal = {.mbps = {8000, 8000}, .latency_ns = {2 * US, 50 * US}};
    static const struct rails unequal = {.mbps = {2000, 6000}, .latency_ns = {50 * US, 2 * US}};
    static const struct traffic traffic = {.bytes = 262144, .depth = 16};
    settle_from_everywhere(&equal, &traffic, 475, 525);
    settle_from_everywhere(&unequal, &traffic, 225, 275);
}

/* What part rail 0 carries, millisecond by millisecond, comes within 10 % of where it belongs in 100 ms. */
static void follow(const struct traffic *traffic, const struct rails *before,
                   const struct rails *after)
{
    crpc_channel_options options = measured();
    open_rails(before, &options);
    run(traffic, 200 * MS);
    uint32_t total = after->mbps[0] + after->mbps[1], due = after->mbps[0] * 1000 / total;
    set_rails(after);
    run(traffic, 100 * MS);
    expect_part(after, traffic, "100 ms after a change", run(traffic, 20 * MS), due - due / 10,
                due + due / 10);
    pair_close(&pair);
}

static void a_rail_that_changes_speed_is_followed(void **state)
{
    (void)state;
    static const uint32_t pairs[][2] = {{4000, 4000}, {1000, 4000}, {4000, 1000}, {500, 4000}};
    for (uint32_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        for (uint32_t j = 0; j < sizeof(pairs) / sizeof(pairs[0]); j++) {
            struct rails before = {.mbps = {pairs[i][0], pairs[i][1]},
                                   .latency_ns = {5 * US, 5 * US}};
            struct rails after = {.mbps = {pairs[j][0], pairs[j][1]},
                                  .latency_ns = {5 * US, 5 * US}};
            for (uint32_t k = 0; k < TRAFFIC_COUNT; k++) {
                /* More than 4 MiB under way would take the slower rails longer to bring than it may take to follow. */
                if (i != j && all_traffic[k].bytes * all_traffic[k].depth <= 4u << 20) {
                    follow(&all_traffic[k], &before, &after);
                }
            }
        }
    }
}

/* ---- Buffers that are not split ---------------------------------------------------------------- */

static void expect_small(const crpc_channel_options *options, uint32_t share, const uint32_t *sizes,
                         uint32_t count, uint32_t depth)
{
    pair_open(&pair, CHANNEL_RAILS_MAX, CHANNEL_RAILS_MAX);
    pair_connect(&pair, options);
    pair.channel[0]->share = split_fine(share);
    uint64_t bytes = 0, most = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t size = sizes[i % count];
        assert_int_equal(pair_receive(&pair, 1, 0, size, 0, 0), CRPC_OK);
        assert_int_equal(pair_send(&pair, 0, 0, size, 0, 0), CRPC_OK);
        bytes += size;
        most = maximum(most, size);
        if (i % depth == depth - 1) {
            pair_settle(&pair);
            pair_forget(&pair);
        }
        /* At no time is either rail further than one buffer from its part. */
        int64_t first = (int64_t)pair_stats(&pair, 0).rail_bytes_sent[0];
        int64_t due = (int64_t)(bytes * share / 1024);
        if (first - due > (int64_t)most || due - first > (int64_t)most) {
            fail_msg("share %u, message %u: rail 0 carried %lld of %llu bytes, and is due %lld",
                     share, i, (long long)first, (unsigned long long)bytes, (long long)due);
        }
    }
    pair_settle(&pair);
    assert_int_equal(pair_stats(&pair, 0).messages_sent, 2000);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 2000); /* each on one rail */
    pair_close(&pair);
}

static void small_buffers_are_spread_by_share(void **state)
{
    (void)state;
    static const uint32_t equal[] = {100}, mixed[] = {100, 16000, 1, 3000, 900},
                          growing[] = {8, 64, 512, 4096, 16383};
    static const uint32_t shares[] = {512, 256, 768, 32, 1000, 0, 1024};
    for (uint32_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        crpc_channel_options options = measured();
        expect_small(&options, shares[i], equal, 1, 1);
        expect_small(&options, shares[i], mixed, 5, 7);
        options.split = CRPC_SPLIT_FIXED;
        expect_small(&options, shares[i], growing, 5, 1);
        expect_small(&options, shares[i], equal, 1, 8);
    }
}

/* A share that was set decides from the next one on, whatever was owed before. */
static void a_rail_without_a_share_gets_no_small_buffer(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.stripe_bytes_min = 65536;
    pair_open(&pair, CHANNEL_RAILS_MAX, CHANNEL_RAILS_MAX);
    pair_connect(&pair, &options);
    pair_message(&pair, 60000, 1); /* rail 0 is ahead by half of it */
    uint64_t first = pair_stats(&pair, 0).rail_bytes_sent[0];
    channel_set_share(pair.channel[0], 1024);
    for (uint8_t i = 0; i < 20; i++) {
        pair_message(&pair, 100, i);
    }
    assert_int_equal(pair_stats(&pair, 0).rail_bytes_sent[0], first + 2000);
    channel_set_share(pair.channel[0], 0);
    for (uint8_t i = 0; i < 20; i++) {
        pair_message(&pair, 100, i);
    }
    assert_int_equal(pair_stats(&pair, 0).rail_bytes_sent[0], first + 2000);
    pair_close(&pair);
}

/* What is under way is counted exactly, whatever becomes of it: a rail that is lost in the middle. */
static void what_is_under_way_is_counted_exactly(void **state)
{
    (void)state;
    static const struct rails rails = {.mbps = {4000, 4000}, .latency_ns = {5 * US, 5 * US}};
    static const struct traffic traffic = {.bytes = 262144, .depth = 4};
    crpc_channel_options options = measured();
    options.keepalive_ns = 1000000;
    open_rails(&rails, &options);
    run(&traffic, 10 * MS);
    for (uint32_t round = 0; round < 4; round++) {
        memory_fabric_kill(pair.channel[round % 2]->rails[round / 2].queues[0]->queue_pair);
        run(&traffic, 30 * MS);
        assert_int_equal(pair_stats(&pair, 0).rail_recoveries[round / 2], round % 2 + 1);
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        uint64_t under_way = 0;
        for (uint32_t slot = 0; slot <= pair.channel[0]->slot_mask; slot++) {
            const struct channel_outgoing *outgoing = &pair.channel[0]->send.outgoing[slot];
            for (uint32_t share = 0; share < CHANNEL_RAILS_MAX; share++) {
                bool counts = outgoing->count > 0 && outgoing->mask & ~outgoing->done & 1u << share;
                under_way +=
                    counts && outgoing->carrier[share] == rail ? outgoing->bytes[share] : 0;
            }
        }
        assert_int_equal(pair.channel[0]->rails[rail].under_way, under_way);
    }
    expect_part(&rails, &traffic, "after losses", run(&traffic, 20 * MS), 475, 525);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_rails_settle_at_half),
        cmocka_unit_test(rails_of_one_to_three_settle_at_a_quarter),
        cmocka_unit_test(with_enough_under_way_latencies_do_not_count),
        cmocka_unit_test(a_rail_that_changes_speed_is_followed),
        cmocka_unit_test(small_buffers_are_spread_by_share),
        cmocka_unit_test(a_rail_without_a_share_gets_no_small_buffer),
        cmocka_unit_test(what_is_under_way_is_counted_exactly),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

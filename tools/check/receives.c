/* receives.c: the receives that all queue pairs of a nic share. */
#include "base/clock.h"
#include "station.h"

/* ---- Queue pairs that die -------------------------------------------------------------------- */

#define BURST 16u

/* Messages are on their way to a queue pair that fails in the middle. */
static bool let_die(struct station *station, struct outcome *outcome)
{
    const uint64_t before_ns = clock_now_ns();
    const uint64_t delay_ns = station_pick(station, 30000);
    for (uint32_t i = 0; i < BURST; i++) {
        const struct nic_transfer transfer =
            station_transfer(station, 0, 0, station_pick(station, 20000), i);
        station->near->operations->post_write_immediate(station->sender, &transfer, 0);
    }
    station->near->operations->ring_doorbell(station->sender);
    while (clock_now_ns() - before_ns < delay_ns) {
    }
    station->receiver->operations->queue_pair_fail(station->receiver);
    return station_reconnect(station, outcome);
}

static void post_empty(struct station *station, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct nic_transfer transfer = station_transfer(station, 0, 0, 0, i);
        station->near->operations->post_write_immediate(station->sender, &transfer, 0);
    }
    station->near->operations->ring_doorbell(station->sender);
}

/* Sends until the device has no receive left, which it says by an error. Returns how many there were. */
static bool use_up(struct station *station, uint32_t *count, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    const uint32_t arrived = station->arrived;
    while (station->sent_errors == 0) {
        post_empty(station,
                   nic_send_room(station->sender) < 8 ? nic_send_room(station->sender) : 8);
        station_poll(station);
        if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
            return fails(outcome, "a sender heard nothing from a peer without receives");
        }
    }
    station_pass(station, 1);
    *count = station->arrived - arrived;
    return station->sent_error.status == NIC_ERROR_RNR ||
           fails(outcome, "a sender whose peer has no receive has a %s error",
                 station_error_name(station->sent_error.status));
}

/* poll.c: nic->receives_posted counts what the device has: each receive that a queue pair has taken has an entry, also if
 * the queue pair fails before its message is complete, and if its entry is dropped (drop.c). */
void check_shared_receives(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    const uint32_t rounds = subject->quick ? 40 : 1000;
    struct station_setup setup = {.options = station_options()};
    setup.options.receive_depth = 256;
    bool good = station_open(&station, subject, &setup, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = let_die(&station, outcome);
        station_pass(&station, 0);
    }
    if (good) {
        station.keep_receives_used = true;
        station.transport.rnr_tries = 2;
        good = station_reconnect(&station, outcome);
    }
    if (good) {
        uint32_t count = 0;
        station_pass(&station, 20);
        const uint32_t counted = station.far->receives_posted;
        good = use_up(&station, &count, outcome) &&
               (count == counted ||
                fails(outcome, "after %u queue pairs died, the device has %u receives, not %u",
                      rounds, count, counted));
    }
    if (good) {
        passes(outcome, "after %u queue pairs died, the device has the receives that are counted",
               rounds);
    }
    station_close(&station);
}

/* nic.h: NIC_RNR_RETRY, "for ever": who finds no receive tries again until there is one, and nothing fails. */
void check_not_ready(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    const uint32_t rounds = subject->quick ? 4 : 20;
    struct station_setup setup = {.options = station_options()};
    setup.options.receive_depth = 16;
    bool good = station_open(&station, subject, &setup, outcome);
    station.keep_receives_used = true;
    for (uint32_t i = 0; good && i < rounds; i++) {
        const uint32_t arrived = station.arrived, depth = station.far->receive_depth;
        post_empty(&station, depth + 4);
        good = station_wait_arrived(&station, arrived + depth, outcome);
        station_pass(&station, 20); /* some 30 tries */
        if (good && station.sent_errors > 0) {
            good = fails(outcome, "the sender did not wait: %s error",
                         station_error_name(station.sent_error.status));
        } else if (good && station.arrived != arrived + depth) {
            good = fails(outcome, "%u messages took %u receives", station.arrived - arrived, depth);
        }
        station.far->operations->refill(station.far);
        good = good && station_wait_arrived(&station, arrived + depth + 4, outcome);
        station.far->operations->refill(station.far);
    }
    if (good) {
        passes(outcome, "%u times, messages waited 20 ms for a receive", rounds);
    }
    station_close(&station);
}

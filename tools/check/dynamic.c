/* dynamic.c: dynamic queue pairs (nic/initiators.h): one initiator sends to several targets in turn. */
#include <string.h>

#include "base/clock.h"
#include "nic/initiators.h"
#include "station.h"

#define PAIRS 3u
#define SLOT_BYTES 4096u

struct pairs {
    struct station station;
    struct nic_queue_pair *near[PAIRS], *far[PAIRS];
};

static uint64_t key_of(uint32_t i)
{
    return 0x1000u + i;
}

static bool create(struct nic *nic, uint32_t i, struct nic_queue_pair **pair,
                   struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        nic->operations->queue_pair_create_dynamic(nic, NULL, NULL, key_of(i), pair, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool make(struct pairs *pairs, struct outcome *outcome)
{
    struct station *station = &pairs->station;
    for (uint32_t i = 0; i < PAIRS; i++) {
        station->transport.access_key = key_of(i);
        if (!create(station->near, i, &pairs->near[i], outcome) ||
            !create(station->far, i, &pairs->far[i], outcome) ||
            !station_connect(station, pairs->near[i], pairs->far[i], outcome)) {
            return false;
        }
    }
    return true;
}

static bool has_room(struct station *station, struct nic_queue_pair *pair, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    while (nic_send_room(pair) == 0 && !nic_take_room(pair)) {
        station_poll(station);
        (void)nic_granted(station->near);
        if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
            return fails(outcome, "an initiator was not free within %u ms",
                         station->subject->patience_ms);
        }
    }
    return true;
}

static bool send_by(struct pairs *pairs, uint32_t i, uint32_t number, struct outcome *outcome)
{
    struct station *station = &pairs->station;
    const uint32_t arrived = station->arrived, bytes = 1 + station_pick(station, SLOT_BYTES);
    const struct nic_transfer transfer =
        station_transfer(station, i * SLOT_BYTES, i * SLOT_BYTES, bytes, number);
    station_fill(station, station->source + i * SLOT_BYTES, bytes);
    if (!has_room(station, pairs->near[i], outcome)) {
        return false;
    }
    const struct nic_operations *operations = pairs->near[i]->operations;
    operations->post_write_immediate(pairs->near[i], &transfer, NIC_POST_SIGNALED);
    operations->ring_doorbell(pairs->near[i]);
    if (!station_wait_arrived(station, arrived + 1, outcome)) {
        return false;
    }
    const struct nic_completion *arrival = station_arrival(station, arrived);
    if (arrival->queue_pair_number != pairs->far[i]->number || arrival->immediate != number) {
        return fails(outcome, "message %u for target 0x%06x came as %u to 0x%06x", number,
                     pairs->far[i]->number, arrival->immediate, arrival->queue_pair_number);
    }
    return station_same(station, i * SLOT_BYTES, i * SLOT_BYTES, bytes, "a message by DC", outcome);
}

/* dynamic.c: a DCI "can send to any DCT" that it has the key of, one after another, and its WQEs complete in order. */
void check_dynamic(const struct subject *subject, struct outcome *outcome)
{
    static struct pairs pairs;
    const uint32_t rounds = subject->quick ? 300 : 20000;
    struct station_setup setup = {.options = station_options()};
    pairs = (struct pairs){0};
    bool good = station_open(&pairs.station, subject, NULL, outcome) &&
                (pairs.station.near->dc || not_here(outcome, "%s has no DC", subject->device[0]));
    station_close(&pairs.station);
    setup.options.initiators = 1;
    good = good && station_open(&pairs.station, subject, &setup, outcome) && make(&pairs, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = send_by(&pairs, station_pick(&pairs.station, PAIRS), i, outcome);
    }
    if (good) {
        passes(outcome, "%u messages to %u targets by one initiator", rounds, PAIRS);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        if (pairs.near[i]) {
            pairs.near[i]->operations->queue_pair_destroy(pairs.near[i]);
        }
        if (pairs.far[i]) {
            pairs.far[i]->operations->queue_pair_destroy(pairs.far[i]);
        }
    }
    station_close(&pairs.station);
}

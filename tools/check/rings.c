/* rings.c: what begins anew: the rings of WQEs, completions and receives, and the counters that go round with them. */
#include <string.h>

#include "nic/mlx5/mlx5.h"
#include "station.h"

#define SLOTS 64u
#define SLOT_BYTES 256u

/* WRITEs of new bytes from each slot to the same of the other side, as many as there is room for. Returns how many. */
static uint32_t fill_ring(struct station *station, uint32_t *bytes)
{
    uint32_t count = nic_send_room(station->sender);
    count = count < SLOTS ? count : SLOTS;
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = 1 + station_pick(station, SLOT_BYTES);
        station_fill(station, station->source + i * SLOT_BYTES, bytes[i]);
        const struct nic_transfer transfer =
            station_transfer(station, i * SLOT_BYTES, i * SLOT_BYTES, bytes[i], 0);
        station->near->operations->post_write(station->sender, &transfer,
                                              i + 1 == count ? NIC_POST_SIGNALED : 0);
    }
    station->near->operations->ring_doorbell(station->sender);
    return count;
}

/* send_queue.h: a WQE that does not fit before the ring's end goes to its start, and a NOP fills the end; "The device knows
 * the lower 16 bits" of a position, and tracking.h finds the WQE of a CQE by them. */
void check_send_ring(struct station *station, struct outcome *outcome)
{
    const struct send_queue *queue = &to_mlx5_queue_pair(station->sender)->queue;
    const uint32_t blocks = (station->subject->quick ? 1u : 16u) * 70000u;
    uint32_t bytes[SLOTS];
    while (queue->producer < blocks) {
        const uint32_t count = fill_ring(station, bytes);
        if (!station_wait_sent(station, outcome)) {
            return;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (!station_same(station, i * SLOT_BYTES, i * SLOT_BYTES, bytes[i], "a WRITE",
                              outcome)) {
                return;
            }
        }
    }
    passes(outcome, "%u WQEs in %u blocks: %u times round a ring of %u", station->sender->posted,
           queue->producer, queue->producer / (queue->mask + 1), queue->mask + 1);
}

/* So many WRITEs with immediate, whose immediates count on, each side with at most a ring of them open. */
static bool count_messages(struct station *station, uint32_t messages, uint32_t flags,
                           struct outcome *outcome)
{
    const uint32_t batch = 32;
    for (uint32_t sent = 0; sent < messages; sent += batch) {
        const uint32_t arrived = station->arrived;
        for (uint32_t i = 0; i < batch; i++) {
            const struct nic_transfer transfer = station_transfer(station, 0, 0, 8, sent + i);
            station->near->operations->post_write_immediate(
                station->sender, &transfer, i + 1 == batch ? NIC_POST_SIGNALED : flags);
        }
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_arrived(station, arrived + batch, outcome) ||
            !station_wait_sent(station, outcome)) {
            return false;
        }
        for (uint32_t i = 0; i < batch; i++) {
            const struct nic_completion *arrival = station_arrival(station, arrived + i);
            if (arrival->immediate != sent + i) {
                return fails(outcome, "message %u came as number %u", arrival->immediate, sent + i);
            }
        }
    }
    return true;
}

/* completion_queue.h: the owner bit of an entry "is the parity of the device's lap". */
void check_completion_ring(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    struct station_setup setup = {.options = station_options()};
    setup.options.receive_depth = 128;
    setup.options.send_completion_depth = 64;
    const uint32_t messages = subject->quick ? 128 * 8 : 128 * 256;
    if (station_open(&station, subject, &setup, outcome) &&
        count_messages(&station, messages, NIC_POST_SIGNALED, outcome)) {
        passes(outcome, "%u completions in queues of %u and %u entries", 2 * messages,
               to_mlx5_nic(station.far)->receives.mask + 1,
               to_mlx5_nic(station.near)->sends.mask + 1);
    }
    station_close(&station);
}

/* completion_queue.h: completion_queue_release tells the device the lower 24 bits of a consumer index. */
void check_completion_counter(struct station *station, struct outcome *outcome)
{
    const uint32_t completions = station->subject->quick ? 70000u : (1u << 24) + 70000u;
    while (station->sender->posted < completions) {
        while (nic_send_room(station->sender) > 0) {
            const struct nic_transfer transfer = station_transfer(station, 0, 0, 8, 0);
            station->near->operations->post_write(station->sender, &transfer, NIC_POST_SIGNALED);
        }
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome)) {
            return;
        }
    }
    passes(outcome, "%u completions of one queue%s", station->sender->posted,
           station->subject->quick ? " (more than 2^24 without --quick)" : "");
}

/* receive_queue.h: the doorbell record of an SRQ counts receives with 16 bits; used ones go to the end of a list. */
void check_receive_ring(struct station *station, struct outcome *outcome)
{
    const uint32_t messages = (station->subject->quick ? 1u : 16u) * 70016u;
    if (count_messages(station, messages, 0, outcome)) {
        passes(outcome, "%u messages, all in order, through %u receives", messages,
               station->far->receive_depth);
    }
}

/* doorbells.c: how the device hears of WQEs. What is proven here, core/nic/mlx5/doorbell.h and send_queue.h say. */
#include <string.h>

#include "nic/mlx5/mlx5.h"
#include "station.h"

#define SLOT_BYTES 1024u /* of each WQE's payload, in both memories */

static struct send_queue *queue_of(struct nic_queue_pair *queue_pair)
{
    return &to_mlx5_queue_pair(queue_pair)->queue;
}

/* A WRITE from one slot to the same of the other side, in the WQE if it is short. Its bytes are new. */
static void post_slot(struct station *station, uint32_t slot, uint32_t bytes, uint32_t flags)
{
    struct nic_transfer transfer =
        station_transfer(station, slot * SLOT_BYTES, slot * SLOT_BYTES, bytes, 0);
    station_fill(station, station->source + slot * SLOT_BYTES, bytes);
    station->near->operations->post_write(station->sender, &transfer, flags);
}

static bool slots_same(const struct station *station, uint32_t count, const uint32_t *bytes,
                       const char *what, struct outcome *outcome)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!station_same(station, i * SLOT_BYTES, i * SLOT_BYTES, bytes[i], what, outcome)) {
            return false;
        }
    }
    return true;
}

/* doorbell.h: "Writing the first 8 bytes of a WQE's control segment to the register is a plain doorbell: the device reads
 * the WQE by DMA." */
void check_doorbell(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 64 : 4096;
    queue_of(station->sender)->doorbell->push_bytes = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t bytes = 1 + station_pick(station, MLX5_INLINE_BYTES + 200);
        post_slot(station, 0, bytes, NIC_POST_SIGNALED);
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome) ||
            !slots_same(station, 1, &bytes, "a WRITE", outcome)) {
            return;
        }
    }
    passes(outcome, "%u WQEs of 1 to 4 blocks, each with a doorbell of its own", rounds);
}

/* send_queue.h: `ring` "tells the device about all WQEs posted since, with one doorbell": by that of the last WQE and by the
 * doorbell record. */
void check_doorbell_several(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 64 : 4096;
    uint32_t bytes[32], wqes = 0;
    queue_of(station->sender)->doorbell->push_bytes = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t count = 2 + station_pick(station, 31);
        for (uint32_t slot = 0; slot < count; slot++) {
            bytes[slot] = 1 + station_pick(station, SLOT_BYTES);
            post_slot(station, slot, bytes[slot], slot + 1 == count ? NIC_POST_SIGNALED : 0);
        }
        station->near->operations->ring_doorbell(station->sender);
        wqes += count;
        if (!station_wait_sent(station, outcome) ||
            !slots_same(station, count, bytes, "one WRITE of several", outcome)) {
            return;
        }
    }
    passes(outcome, "%u WQEs with %u doorbells", wqes, rounds);
}

/* ---- Registers that queue pairs share -------------------------------------------------------- */

#define QUEUE_PAIRS 40u /* libmlx5 has 16 registers, unless MLX5_TOTAL_UUARS says otherwise */

/* Queue pairs of the near side, of which the last and *with have one register. Returns false if none have. */
static bool find_sharers(struct station *station, struct nic_queue_pair **made, uint32_t *count,
                         uint32_t *with)
{
    struct nic *near = station->near;
    while (*count < QUEUE_PAIRS &&
           nic_queue_pair_create(near, NULL, NULL, 0, &made[*count], NULL) == CRPC_OK) {
        const uint32_t last = (*count)++;
        for (*with = 0; *with < last; (*with)++) {
            if (queue_of(made[*with])->doorbell == queue_of(made[last])->doorbell) {
                return true;
            }
        }
    }
    return false;
}

/* Both send in turn; each waits until its own has completed. */
static void take_turns(struct station *station, struct nic_queue_pair *const *both,
                       struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 32 : 1024;
    struct nic_queue_pair *const own = station->sender;
    bool good = true;
    for (uint32_t i = 0; good && i < rounds; i++) {
        const uint32_t bytes = 1 + station_pick(station, 200);
        station->sender = both[i % 2];
        post_slot(station, 0, bytes, NIC_POST_SIGNALED);
        station->near->operations->ring_doorbell(station->sender);
        good = station_wait_sent(station, outcome) &&
               slots_same(station, 1, &bytes, "a WRITE", outcome);
    }
    station->sender = own;
    if (good) {
        passes(outcome, "%u WQEs of two queue pairs in turn at one register", rounds);
    }
}

/* doorbell.h: "Several queue pairs can have the same register. They then share the turn of its buffers." */
void check_doorbell_shared(struct station *station, struct outcome *outcome)
{
    struct nic_queue_pair *made[QUEUE_PAIRS], *peers[2] = {0};
    uint32_t count = 0, with = 0;
    if (find_sharers(station, made, &count, &with)) {
        struct nic_queue_pair *const both[2] = {made[with], made[count - 1]};
        if (station_make_peer(station, both[0], &peers[0], outcome) &&
            station_make_peer(station, both[1], &peers[1], outcome)) {
            take_turns(station, both, outcome);
        }
    } else {
        not_here(outcome, "no two of %u queue pairs have the same register", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        made[i]->operations->queue_pair_destroy(made[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (peers[i]) {
            peers[i]->operations->queue_pair_destroy(peers[i]);
        }
    }
}

/* ---- BlueFlame ------------------------------------------------------------------------------- */

static bool can_push(struct station *station, struct outcome *outcome)
{
    return queue_of(station->sender)->doorbell->push_bytes != 0 ||
           not_here(outcome, "%s, or its libmlx5, gives no BlueFlame registers",
                    station->near->device);
}

/* Returns whether the device took a WQE from the register: the one in memory is another when it hears of it. */
static int taken_from_register(struct station *station, struct outcome *outcome)
{
    struct send_queue *queue = queue_of(station->sender);
    uint8_t pushed[WQE_BLOCK_BYTES] __attribute__((aligned(WQE_BLOCK_BYTES)));
    uint8_t *wqe = send_queue_at(queue, queue->producer);
    const uint32_t bytes = 16;
    post_slot(station, 0, bytes, NIC_POST_SIGNALED);
    memcpy(pushed, wqe, sizeof(pushed));
    memset(wqe + WQE_PUSH_HEAD_BYTES, 0xee, bytes);
    *(volatile uint32_t *)queue->record = htobe32(queue->producer & 0xffffu);
    barrier_before_doorbell();
    queue->rung = queue->producer;
    doorbell_push(queue->doorbell, pushed, sizeof(pushed));
    if (!station_wait_sent(station, outcome)) {
        return -1;
    }
    return station->sink[0] != 0xee || station->sink[bytes - 1] != 0xee;
}

/* doorbell.h: "Writing the whole WQE is a push: the device reads nothing. A register has two buffers of equal size that are
 * used in turn". That it reads nothing is told, and not demanded. */
void check_blueflame(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 128 : 8192;
    struct send_queue *queue = queue_of(station->sender);
    const uint64_t before = queue->pushes;
    uint32_t taken = 0, tries = 8;
    if (!can_push(station, outcome)) {
        return;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t bytes = 1 + station_pick(station, station->near->inline_bytes_max);
        post_slot(station, 0, bytes, NIC_POST_SIGNALED);
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome) ||
            !slots_same(station, 1, &bytes, "a pushed WRITE", outcome)) {
            return;
        }
    }
    const uint64_t pushed = queue->pushes - before;
    for (uint32_t i = 0; i < tries; i++) {
        int from_register = taken_from_register(station, outcome);
        if (from_register < 0) {
            return;
        }
        taken += (uint32_t)from_register;
    }
    passes(outcome, "%u pushes of 1 to 4 blocks; %u of %u WQEs came from the register",
           (uint32_t)pushed, taken, tries);
}

/* send_queue.h: send_queue_ring "Pushes the WQEs if they are in one piece and small enough". */
void check_blueflame_several(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 128 : 8192;
    struct send_queue *queue = queue_of(station->sender);
    const uint32_t most = queue->doorbell->push_bytes / WQE_BLOCK_BYTES;
    const uint64_t before = queue->pushes;
    uint32_t bytes[8], wqes = 0;
    if (!can_push(station, outcome)) {
        return;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t count = 2 + station_pick(station, (most < 8 ? most : 8) - 1);
        for (uint32_t slot = 0; slot < count; slot++) {
            bytes[slot] = 1 + station_pick(station, WQE_BLOCK_BYTES - WQE_PUSH_HEAD_BYTES);
            post_slot(station, slot, bytes[slot], slot + 1 == count ? NIC_POST_SIGNALED : 0);
        }
        station->near->operations->ring_doorbell(station->sender);
        wqes += count;
        if (!station_wait_sent(station, outcome) ||
            !slots_same(station, count, bytes, "a WRITE in a push of several", outcome)) {
            return;
        }
    }
    passes(outcome, "%u WQEs, %u pushes with 2 to %u", wqes, (uint32_t)(queue->pushes - before),
           most < 8 ? most : 8);
}

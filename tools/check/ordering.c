/* ordering.c: that data is there when something says so. Each is a hunt: what is out of order once in millions is found, if at
 * all, by trying for long, with other sizes each time. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "nic/barrier.h"
#include "station.h"

#define SLOTS 8u
#define SLOT_BYTES 65536u

/* All 8-byte words of a slot are one number, another each time. */
static void stamp(uint8_t *memory, uint32_t slot, uint32_t bytes, uint64_t number)
{
    uint64_t *words = (uint64_t *)(void *)(memory + slot * SLOT_BYTES);
    for (uint32_t i = 0; i < bytes / 8; i++) {
        words[i] = number;
    }
}

/* What was seen first counts: from the end, as it should come last. */
static bool stamped(const uint8_t *memory, uint32_t slot, uint32_t bytes, uint64_t number,
                    const char *what, struct outcome *outcome)
{
    const volatile uint64_t *words =
        (const volatile uint64_t *)(const void *)(memory + slot * SLOT_BYTES);
    for (uint32_t i = bytes / 8; i-- > 0;) {
        const uint64_t word = words[i];
        if (word != number) {
            return fails(outcome, "%s: word %u of %u was %llu, not %llu", what, i, bytes / 8,
                         (unsigned long long)word, (unsigned long long)number);
        }
    }
    return true;
}

/* Often one packet, sometimes several. A multiple of 8. */
static uint32_t some_bytes(struct station *station)
{
    const uint32_t most = station_pick(station, 4) ? 512 : SLOT_BYTES;
    return 8 + 8 * station_pick(station, most / 8 - 1);
}

static void post_stamped(struct station *station, uint32_t slot, uint32_t bytes, bool immediate,
                         uint32_t flags)
{
    const struct nic_transfer transfer =
        station_transfer(station, slot * SLOT_BYTES, slot * SLOT_BYTES, bytes, slot);
    if (immediate) {
        station->near->operations->post_write_immediate(station->sender, &transfer, flags);
    } else {
        station->near->operations->post_write(station->sender, &transfer, flags);
    }
}

static bool hunting(const struct station *station, uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) < station->subject->hunt_seconds * 1e9;
}

/* Several WRITEs with immediate at once; each is looked at as soon as it has completed. */
static bool own_data(struct station *station, uint64_t number, struct outcome *outcome)
{
    uint32_t bytes[SLOTS];
    const uint32_t arrived = station->arrived;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        bytes[slot] = some_bytes(station);
        stamp(station->source, slot, bytes[slot], number + slot);
        post_stamped(station, slot, bytes[slot], true, slot + 1 == SLOTS ? NIC_POST_SIGNALED : 0);
    }
    station->near->operations->ring_doorbell(station->sender);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (!station_wait_arrived(station, arrived + slot + 1, outcome) ||
            !stamped(station->sink, slot, bytes[slot], number + slot,
                     "a message that had completed", outcome)) {
            return false;
        }
    }
    return station_wait_sent(station, outcome);
}

/* barrier.h, core/rpc: the payload of a WRITE with immediate has landed when its receive completes. */
void check_order_own(struct station *station, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint64_t number = 1;
    while (hunting(station, start_ns)) {
        if (!own_data(station, number, outcome)) {
            return;
        }
        number += SLOTS;
    }
    passes(outcome, "%llu messages in %.1f s", (unsigned long long)number - 1,
           station->subject->hunt_seconds);
}

static bool earlier_data(struct station *station, uint64_t number, struct outcome *outcome)
{
    uint32_t bytes[SLOTS];
    const uint32_t count = 1 + station_pick(station, SLOTS - 1), arrived = station->arrived;
    for (uint32_t slot = 0; slot < count; slot++) {
        bytes[slot] = some_bytes(station);
        stamp(station->source, slot, bytes[slot], number);
        post_stamped(station, slot, bytes[slot], false, 0);
    }
    post_stamped(station, SLOTS - 1, 8 * station_pick(station, 2), true, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_arrived(station, arrived + 1, outcome)) {
        return false;
    }
    for (uint32_t slot = count; slot-- > 0;) {
        if (!stamped(station->sink, slot, bytes[slot], number,
                     "a WRITE before one that had completed", outcome)) {
            return false;
        }
    }
    return station_wait_sent(station, outcome);
}

/* nic.h: "a plain WRITE has landed when a later WRITE with immediate of its queue pair completes at the peer". */
void check_order_earlier(struct station *station, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint64_t number = 1;
    while (hunting(station, start_ns)) {
        if (!earlier_data(station, number, outcome)) {
            return;
        }
        number++;
    }
    passes(outcome, "%llu messages behind plain WRITEs in %.1f s", (unsigned long long)number - 1,
           station->subject->hunt_seconds);
}

static bool read_data(struct station *station, uint64_t number, struct outcome *outcome)
{
    uint32_t bytes[SLOTS];
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        bytes[slot] = some_bytes(station);
        stamp(station->sink, slot, bytes[slot], number);
        const struct nic_transfer transfer =
            station_transfer(station, slot * SLOT_BYTES, slot * SLOT_BYTES, bytes[slot], 0);
        station->near->operations->post_read(station->sender, &transfer,
                                             slot + 1 == SLOTS ? NIC_POST_SIGNALED : 0);
    }
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_sent(station, outcome)) {
        return false;
    }
    for (uint32_t slot = SLOTS; slot-- > 0;) {
        if (!stamped(station->source, slot, bytes[slot], number, "a READ that had completed",
                     outcome)) {
            return false;
        }
    }
    return true;
}

static bool hunt_relaxed(struct station *station, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint64_t number = 1, rounds = 0;
    while (hunting(station, start_ns)) {
        if (!own_data(station, number, outcome) ||
            !earlier_data(station, number + SLOTS, outcome) ||
            !read_data(station, number + SLOTS + 1, outcome)) {
            return false;
        }
        number += SLOTS + 2;
        rounds++;
    }
    passes(outcome, "%llu rounds of messages, plain WRITEs and READs in %.1f s",
           (unsigned long long)rounds, station->subject->hunt_seconds);
    return true;
}

/* Registers a side's memory once more, with relaxed ordering. */
static bool relax(struct nic *nic, uint8_t *memory, struct nic_keys *keys, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                            CRPC_ACCESS_REMOTE_READ | NIC_ACCESS_RELAXED;
    const int32_t status =
        nic->operations->memory_register(nic, NULL, memory, STATION_BYTES, 0, access, keys, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

/* nic.h: NIC_ACCESS_RELAXED: what WRITEs and READs put there "may land in any order ... until a completion for them is polled". */
void check_order_relaxed(struct station *station, struct outcome *outcome)
{
    const struct nic_keys source_keys = station->source_keys, sink_keys = station->sink_keys;
    struct nic_keys near_keys = {0}, far_keys = {0};
    if (relax(station->near, station->source, &near_keys, outcome) &&
        relax(station->far, station->sink, &far_keys, outcome)) {
        station->source_keys = near_keys;
        station->sink_keys = far_keys;
        hunt_relaxed(station, outcome);
        station->source_keys = source_keys;
        station->sink_keys = sink_keys;
    }
    if (near_keys.driver) {
        station->near->operations->memory_deregister(station->near, &near_keys);
    }
    if (far_keys.driver) {
        station->far->operations->memory_deregister(station->far, &far_keys);
    }
}

/* Polls memory until its word is there. */
static bool wait_for_word(const struct station *station, const uint8_t *at, uint64_t number,
                          const char *what, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)at;
    while (atomic_load_explicit(word, memory_order_acquire) != number) {
        if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
            return fails(outcome, "%s did not come", what);
        }
    }
    barrier_after_device_wrote();
    return true;
}

static bool flagged_data(struct station *station, uint64_t number, struct outcome *outcome)
{
    uint32_t bytes[SLOTS];
    const uint32_t flag = SLOTS - 1, count = 1 + station_pick(station, flag);
    for (uint32_t slot = 0; slot < count; slot++) {
        bytes[slot] = some_bytes(station);
        stamp(station->source, slot, bytes[slot], number);
        post_stamped(station, slot, bytes[slot], false, 0);
    }
    stamp(station->source, flag, 8, number);
    post_stamped(station, flag, 8, false, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    if (!wait_for_word(station, station->sink + flag * SLOT_BYTES, number, "a flag", outcome)) {
        return false;
    }
    for (uint32_t slot = count; slot-- > 0;) {
        if (!stamped(station->sink, slot, bytes[slot], number,
                     "a WRITE before a flag that had come", outcome)) {
            return false;
        }
    }
    return station_wait_sent(station, outcome);
}

/* docs/design.md, "What may be late": memory of grants and of queues is not relaxed, since an application may poll a word of it. */
void check_order_flag(struct station *station, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint64_t number = 1;
    while (hunting(station, start_ns)) {
        if (!flagged_data(station, number, outcome)) {
            return;
        }
        number++;
    }
    passes(outcome, "%llu flags behind WRITEs in %.1f s", (unsigned long long)number - 1,
           station->subject->hunt_seconds);
}

/* The record of 64 bytes is looked at when its last 8 have changed. */
static bool line_data(struct station *station, uint64_t number, struct outcome *outcome)
{
    stamp(station->source, 0, 64, number);
    post_stamped(station, 0, 64, false, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
    return wait_for_word(station, station->sink + 56, number, "64 bytes", outcome) &&
           stamped(station->sink, 0, 64, number, "64 bytes of which the last 8 had come",
                   outcome) &&
           station_wait_sent(station, outcome);
}

/* nic.h: "of each aligned 64 bytes, the last 8 land no earlier than the rest (for clear-to-sends)". */
void check_order_line(struct station *station, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint64_t number = 1;
    while (hunting(station, start_ns)) {
        if (!line_data(station, number, outcome)) {
            return;
        }
        number++;
    }
    passes(outcome, "%llu times 64 bytes in %.1f s", (unsigned long long)number - 1,
           station->subject->hunt_seconds);
}

/* nic.h: fence_last: a WQE with a fence "begins when all READs and atomics before it have ended". What a READ brings is
 * written on. */
void check_fence(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 20 : 500, bytes = STATION_BYTES / 4;
    for (uint32_t i = 0; i < rounds; i++) {
        const struct nic_transfer read = station_transfer(station, 0, 0, bytes, 0);
        const struct nic_transfer write = station_transfer(station, 0, 2 * bytes, bytes, 0);
        station_fill(station, station->sink, 4096);
        memset(station->sink + 4096, (int)(1 + i % 255), bytes - 4096);
        memset(station->source, 0, bytes);
        station->near->operations->post_read(station->sender, &read, 0);
        station->near->operations->post_write(station->sender, &write, NIC_POST_SIGNALED);
        station->near->operations->fence_last(station->sender);
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome)) {
            return;
        }
        if (memcmp(station->sink, station->sink + 2 * bytes, bytes) != 0) {
            fails(outcome, "a WRITE with a fence did not wait for the READ before it");
            return;
        }
    }
    passes(outcome, "%u WRITEs of what READs of %u KiB before them brought", rounds, bytes / 1024);
}

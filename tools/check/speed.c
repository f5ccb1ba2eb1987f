/* speed.c: see speed.h. Both drivers take turns, so that what else the machine does meets both; of each, the best turn counts. */
#include "speed.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "station.h"

#define TURNS 5u
#define SAMPLES_MAX 4096u
#define BULK_BYTES 262144u

static uint64_t turn_ns(const struct subject *subject)
{
    return subject->quick ? 5000000u : 60000000u;
}

static int compare(const void *a, const void *b)
{
    const uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return one < other ? -1 : one > other;
}

/* Median of the time until one op has completed, in microseconds: there and back, since the peer's device acknowledges. */
static double latency(struct station *station, bool read, struct outcome *outcome)
{
    static uint32_t samples[SAMPLES_MAX];
    uint32_t count = 0;
    const struct nic_operations *operations = station->near->operations;
    const struct nic_transfer transfer = station_transfer(station, 0, 0, 8, 0);
    const uint64_t end_ns = clock_now_ns() + turn_ns(station->subject);
    while (count < SAMPLES_MAX && clock_now_ns() < end_ns) {
        const uint64_t start_ns = clock_now_ns();
        (read ? operations->post_read : operations->post_write)(station->sender, &transfer,
                                                                NIC_POST_SIGNALED);
        operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome)) {
            return 0;
        }
        samples[count++] = (uint32_t)(clock_now_ns() - start_ns);
    }
    qsort(samples, count, sizeof(samples[0]), compare);
    const uint32_t median_ns = count ? samples[count / 2] : 0;
    return median_ns / 1e3;
}

/* WRITEs of so many bytes, as many open as the queue pair has room for, a doorbell for 16 at most. Returns how many a second. */
static double rate(struct station *station, uint32_t bytes, struct outcome *outcome)
{
    const struct nic_operations *operations = station->near->operations;
    struct nic_queue_pair *sender = station->sender;
    const struct nic_transfer transfer = station_transfer(station, 0, 0, bytes, 0);
    const uint32_t before = sender->posted;
    const uint64_t start_ns = clock_now_ns(), end_ns = start_ns + turn_ns(station->subject);
    bool last = false;
    while (!last && station->sent_errors == 0) {
        last = clock_now_ns() >= end_ns;
        const uint32_t room = nic_send_room(sender), most = last ? 1 : 16;
        for (uint32_t i = 0; i < room && i < most; i++) {
            operations->post_write(sender, &transfer, last ? NIC_POST_SIGNALED : 0);
        }
        last = last && room > 0;
        operations->ring_doorbell(sender);
        station_poll(station);
    }
    if (!station_wait_sent(station, outcome)) {
        return 0;
    }
    return (sender->posted - before) * 1e9 / (double)(clock_now_ns() - start_ns);
}

static double measure(struct station *station, enum figure_kind kind, struct outcome *outcome)
{
    switch (kind) {
    case FIGURE_LATENCY:
        return latency(station, false, outcome);
    case FIGURE_READ_LATENCY:
        return latency(station, true, outcome);
    case FIGURE_RATE:
        return rate(station, 8, outcome) / 1e6;
    default:
        return rate(station, BULK_BYTES, outcome) * BULK_BYTES * 8 / 1e9;
    }
}

static double better(enum figure_kind kind, double one, double other)
{
    if (one == 0 || other == 0) {
        return one + other;
    }
    return (kind <= FIGURE_READ_LATENCY) == (one < other) ? one : other;
}

bool speed_measure(const struct subject *subject, struct figure figures[FIGURES],
                   struct outcome *outcome)
{
    static struct station ours, theirs;
    static const struct figure kinds[FIGURES] = {
        [FIGURE_LATENCY] = {"write-latency", "us until a WRITE of 8 bytes has completed", 0, 0},
        [FIGURE_READ_LATENCY] = {"read-latency", "us until a READ of 8 bytes has completed", 0, 0},
        [FIGURE_RATE] = {"write-rate", "million WRITEs of 8 bytes a second", 0, 0},
        [FIGURE_BANDWIDTH] = {"write-bandwidth", "Gbit/s in WRITEs of 256 KiB", 0, 0},
    };
    struct station_setup setup = {.options = station_options(), .driver = CRPC_DRIVER_VERBS};
    memcpy(figures, kinds, sizeof(kinds));
    ours = (struct station){0};
    bool good = station_open(&theirs, subject, &setup, outcome);
    setup.driver = CRPC_DRIVER_MLX5;
    good = good && (!subject->direct || station_open(&ours, subject, &setup, outcome));
    for (uint32_t turn = 0; good && turn < TURNS * FIGURES; turn++) {
        const enum figure_kind kind = turn % FIGURES;
        struct figure *figure = &figures[kind];
        const double by_theirs = measure(&theirs, kind, outcome);
        const double by_ours = subject->direct ? measure(&ours, kind, outcome) : 0;
        good = by_theirs > 0 && (by_ours > 0 || !subject->direct);
        figure->theirs = better(kind, figure->theirs, by_theirs);
        figure->ours = better(kind, figure->ours, by_ours);
    }
    if (ours.near) {
        station_close(&ours);
    }
    station_close(&theirs);
    return good;
}

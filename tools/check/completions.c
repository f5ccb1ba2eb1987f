/* completions.c: what completions say, also of what failed; compressed ones; and how they wake who sleeps. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "nic/device/device.h"
#include "nic/mlx5/mlx5.h"
#include "station.h"

/* ---- Order and errors ------------------------------------------------------------------------ */

/* nic.h: "the send WQEs of a queue pair complete in order", so that one completion stands for all before it. */
void check_send_order(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 20 : 500, bytes = STATION_BYTES / 2;
    for (uint32_t i = 0; i < rounds; i++) {
        const struct nic_transfer read = station_transfer(station, 0, 0, bytes, 0),
                                  write = station_transfer(station, bytes, bytes, 8, 0);
        memset(station->source, 0, bytes);
        memset(station->sink, (int)(1 + i % 255), bytes);
        station->near->operations->post_read(station->sender, &read, 0);
        station->near->operations->post_write(station->sender, &write, NIC_POST_SIGNALED);
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent(station, outcome) ||
            !station_same(station, 0, 0, bytes, "a READ whose WRITE behind it had completed",
                          outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, a WRITE completed behind a READ of %u KiB", rounds, bytes / 1024);
}

/* poll.c: an entry of a failed WQE names that WQE, and says by its syndrome what is wrong. */
void check_error_completion(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 8 : 100, count = 8;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t wrong = station_pick(station, count);
        for (uint32_t k = 0; k < count; k++) {
            struct nic_transfer transfer = station_transfer(station, k * 64, k * 64, 16, 0);
            transfer.remote_key ^= k == wrong ? 0xffffff00u : 0;
            station->near->operations->post_write(station->sender, &transfer, 0);
        }
        station->near->operations->ring_doorbell(station->sender);
        if (!station_wait_sent_error(station, outcome)) {
            return;
        }
        const struct nic_completion *error = &station->sent_error;
        if (error->status != NIC_ERROR_REMOTE_ACCESS || error->completed != wrong + 1) {
            fails(outcome, "WQE %u of %u had a wrong key, and WQE %u has a %s error", wrong + 1,
                  count, error->completed, station_error_name(error->status));
            return;
        }
        if (!station_reconnect(station, outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, the WQE with a wrong key had the error", rounds);
}

/* Waits until all of a failed queue pair has completed. */
static bool wait_flushed(struct station *station, const struct nic_queue_pair *queue_pair,
                         struct outcome *outcome)
{
    uint64_t start_ns = clock_now_ns();
    while (queue_pair->completed != queue_pair->posted) {
        if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
            return fails(outcome, "%u of %u WQEs of a failed queue pair have not completed",
                         queue_pair->posted - queue_pair->completed, queue_pair->posted);
        }
        station_poll(station);
    }
    return true;
}

static void post_writes(struct station *station, struct nic_queue_pair *queue_pair, uint32_t count,
                        uint32_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct nic_transfer transfer = station_transfer(station, 0, 0, bytes, 0);
        station->near->operations->post_write(queue_pair, &transfer,
                                              i + 1 == count ? NIC_POST_SIGNALED : 0);
    }
    station->near->operations->ring_doorbell(queue_pair);
}

/* Makes a queue pair whose peer is gone, and whose next WQE of 4 blocks does not begin at a multiple of them: a NOP will fill
 * its ring's end. */
static bool make_lonely(struct station *station, struct nic_queue_pair **made,
                        struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    struct nic_queue_pair *peer = NULL, *const own = station->sender;
    if (nic_queue_pair_create(station->near, NULL, NULL, 0, made, &error) != CRPC_OK) {
        return refused(outcome, error.status, error.message);
    }
    bool good = station_make_peer(station, *made, &peer, outcome);
    if (good) {
        post_writes(station, *made, 1, 8);
        post_writes(station, *made, 2, 200);
        station->sender = *made;
        good = station_wait_sent(station, outcome);
        station->sender = own;
    }
    if (peer) {
        peer->operations->queue_pair_destroy(peer);
    }
    return good;
}

/* poll.c: "In the error state every WQE yields an entry", signaled or not. */
void check_flush(struct station *station, struct outcome *outcome)
{
    const uint32_t rounds = station->subject->quick ? 8 : 100;
    uint32_t wqes = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        struct nic_queue_pair *sender = station->sender;
        station->receiver->operations->queue_pair_destroy(station->receiver);
        station->receiver = NULL; /* so nothing completes by itself */
        const uint32_t count = 1 + station_pick(station, nic_send_room(sender));
        for (uint32_t k = 0; k < count; k++) {
            const struct nic_transfer transfer = station_transfer(station, 0, 0, 16, 0);
            station->near->operations->post_write(sender, &transfer, 0);
        }
        station->near->operations->ring_doorbell(sender);
        sender->operations->queue_pair_fail(sender);
        wqes += count;
        if (!wait_flushed(station, sender, outcome) || !station_reconnect(station, outcome)) {
            return;
        }
    }
    passes(outcome, "%u WQEs that nobody had signaled, in %u failed queue pairs", wqes, rounds);
}

/* Also those that are of no WQE, or of one that has completed. */
static uint64_t all_completions(const struct station *station)
{
    return station->near->completions + station->near->unknown_completions;
}

/* Queue pairs whose WQEs, with the NOP that fills a ring's end, have as many completions as the queue has places. *most: how many
 * completions there can be when all have come. */
static bool flush_all(struct station *station, struct nic_queue_pair **made, uint32_t *count,
                      uint32_t wanted, uint64_t *most, struct outcome *outcome)
{
    while (*count < wanted) {
        struct nic_queue_pair **next = &made[*count];
        bool good = make_lonely(station, next, outcome);
        *count += *next != NULL;
        if (!good) {
            return false;
        }
    }
    *most = all_completions(station);
    for (uint32_t i = 0; i < wanted; i++) {
        *most += nic_send_room(made[i]) + 1;
        post_writes(station, made[i], nic_send_room(made[i]), 200);
    }
    for (uint32_t i = 0; i < wanted; i++) {
        made[i]->operations->queue_pair_fail(made[i]);
    }
    for (uint32_t i = 0; i < wanted; i++) {
        if (!wait_flushed(station, made[i], outcome)) {
            return false;
        }
    }
    return true;
}

/* queue.h, capi: a send CQ has a place for each WQE that can be open, so it never overruns, even if all fail at once. Where
 * completions are polled as fast as they come, only their number tells. */
void check_flush_room(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    struct nic_queue_pair *made[16] = {0};
    uint32_t count = 0;
    uint64_t most = 0;
    struct station_setup setup = {.options = station_options()};
    setup.options.send_completion_depth = 8 * (setup.options.send_depth + 1) - 1;
    bool good = station_open(&station, subject, &setup, outcome);
    if (good) {
        uint32_t wanted =
            (station.near->send_completion_depth + 1) / (station.near->send_depth + 1);
        wanted = wanted < 16 ? wanted : 16;
        good = flush_all(&station, made, &count, wanted, &most, outcome);
        /* The queue has to work after that. */
        const struct nic_transfer transfer = station_transfer(&station, 0, 0, 64, 0);
        station.sent_errors = 0;
        if (good) {
            station.near->operations->post_write(station.sender, &transfer, NIC_POST_SIGNALED);
            station.near->operations->ring_doorbell(station.sender);
        }
        good = good && station_wait_sent(&station, outcome);
        const uint64_t came = all_completions(&station);
        if (good && came > most + 1) {
            fails(outcome, "%llu completions more came than WQEs were open",
                  (unsigned long long)(came - most - 1));
        } else if (good) {
            passes(outcome, "%u full queue pairs failed at once, with %u places", wanted,
                   station.near->send_completion_depth);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        made[i]->operations->queue_pair_destroy(made[i]);
    }
    station_close(&station);
}

/* ---- Compression ----------------------------------------------------------------------------- */

static bool open_compressed(struct station *station, const struct subject *subject,
                            struct outcome *outcome)
{
    struct station_setup setup = {.options = station_options()};
    setup.options.features = CRPC_FEATURE_CQE_COMPRESSION;
    setup.options.compressed_receives = true;
    return station_open(station, subject, &setup, outcome) &&
           ((station->near->features & CRPC_FEATURE_CQE_COMPRESSION) ||
            not_here(outcome, "%s does not compress completions", station->near->device));
}

static bool open_layout(struct station *station, const struct subject *subject, bool enhanced,
                        struct outcome *outcome)
{
    return enhanced ? station_open_enhanced(station, subject, true, outcome)
                    : open_compressed(station, subject, outcome);
}

/* Messages that come while nobody polls: some alike, some with other immediates, some longer. */
static bool receive_burst(struct station *station, uint32_t count, struct outcome *outcome)
{
    uint32_t bytes[64], immediates[64];
    const uint32_t arrived = station->arrived, kinds = 1 + station_pick(station, 3);
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = kinds > 1 ? station_pick(station, 300) : 32;
        immediates[i] = kinds > 2 ? station_pick(station, UINT32_MAX) : 7 + i / 16 % 2;
        const struct nic_transfer transfer =
            station_transfer(station, 0, 0, bytes[i], immediates[i]);
        station->near->operations->post_write_immediate(station->sender, &transfer,
                                                        i + 1 == count ? NIC_POST_SIGNALED : 0);
    }
    station->near->operations->ring_doorbell(station->sender);
    if (!station_wait_arrived(station, arrived + count, outcome) ||
        !station_wait_sent(station, outcome)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct nic_completion *arrival = station_arrival(station, arrived + i);
        if (arrival->immediate != immediates[i] || arrival->byte_count != bytes[i]) {
            return fails(outcome, "message %u of %u has immediate %u and %u bytes, not %u and %u",
                         i, count, arrival->immediate, arrival->byte_count, immediates[i],
                         bytes[i]);
        }
    }
    return true;
}

static void receives_are_right(bool enhanced, const struct subject *subject,
                               struct outcome *outcome)
{
    static struct station station;
    const uint32_t rounds = subject->quick ? 200 : 20000;
    bool good = open_layout(&station, subject, enhanced, outcome);
    uint32_t messages = 0;
    for (uint32_t i = 0; good && i < rounds; i++) {
        const uint32_t count = 1 + station_pick(&station, 60);
        messages += count;
        good = receive_burst(&station, count, outcome);
    }
    if (good && station.far->unknown_completions > 0) {
        good = fails(outcome, "%u completions made no sense",
                     (uint32_t)station.far->unknown_completions);
    }
    if (good) {
        passes(outcome,
               "%u messages, %u compressed blocks (only COPYRPC_COMPRESSED_RECEIVES=1%s uses it)",
               messages, (uint32_t)to_mlx5_nic(station.far)->receives.blocks,
               enhanced ? " with COPYRPC_COMPRESSED_LAYOUT=enhanced" : "");
    }
    station_close(&station);
}

/* compressed.c: a responder's block gives each message its own length, and all of them what the title has, of which the
 * immediate is a part; receives are counted on from the title. */
void check_compressed_receives(const struct subject *subject, struct outcome *outcome)
{
    receives_are_right(false, subject, outcome);
}

/* compressed.c: likewise of an array, whose title is the completion before. */
void check_enhanced_receives(const struct subject *subject, struct outcome *outcome)
{
    receives_are_right(true, subject, outcome);
}

static void sends_are_right(bool enhanced, const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    const uint32_t rounds = subject->quick ? 200 : 20000;
    bool good = open_layout(&station, subject, enhanced, outcome);
    uint32_t wqes = 0;
    for (uint32_t i = 0; good && i < rounds; i++) {
        const uint32_t count = 1 + station_pick(&station, nic_send_room(station.sender));
        for (uint32_t k = 0; k < count; k++) {
            const struct nic_transfer transfer =
                station_transfer(&station, 0, 0, station_pick(&station, 300), 0);
            station.near->operations->post_write(station.sender, &transfer, NIC_POST_SIGNALED);
        }
        station.near->operations->ring_doorbell(station.sender);
        wqes += count;
        good = station_wait_sent(&station, outcome);
    }
    if (good && station.near->unknown_completions > 0) {
        good = fails(outcome, "%u completions made no sense",
                     (uint32_t)station.near->unknown_completions);
    }
    if (good) {
        passes(outcome, "%u WQEs, %u compressed blocks%s", wqes,
               (uint32_t)to_mlx5_nic(station.near)->sends.blocks,
               enhanced ? " (only COPYRPC_COMPRESSED_LAYOUT=enhanced uses it)" : "");
    }
    station_close(&station);
}

/* compressed.c: a requester's block gives each completion its own WQE counter. */
void check_compressed_sends(const struct subject *subject, struct outcome *outcome)
{
    sends_are_right(false, subject, outcome);
}

/* completion_queue.h: a CQE of the enhanced layout, an array or not, has the lap of its ring in its signature. */
void check_enhanced_sends(const struct subject *subject, struct outcome *outcome)
{
    sends_are_right(true, subject, outcome);
}

/* completion_queue.h: who polls sees a completion even if no other follows it: the device does not hold it back. */
void check_compressed_alone(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    const uint32_t rounds = subject->quick ? 100 : 2000;
    bool good = open_compressed(&station, subject, outcome);
    uint64_t longest_ns = 0;
    for (uint32_t i = 0; good && i < rounds; i++) {
        const uint64_t start_ns = clock_now_ns();
        const struct nic_transfer transfer = station_transfer(&station, 0, 0, 32, 7);
        station.near->operations->post_write_immediate(station.sender, &transfer, 0);
        station.near->operations->ring_doorbell(station.sender);
        good = station_wait_arrived(&station, i + 1, outcome);
        const uint64_t took_ns = clock_now_ns() - start_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    if (good) {
        passes(outcome, "%u messages, one at a time; the longest took %u us", rounds,
               (uint32_t)(longest_ns / 1000));
    }
    station_close(&station);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static void send_one(struct station *station)
{
    const struct nic_transfer transfer = station_transfer(station, 0, 0, 32, 1);
    station->near->operations->post_write_immediate(station->sender, &transfer, NIC_POST_SIGNALED);
    station->near->operations->ring_doorbell(station->sender);
}

/* Waits for an event of the far side, whose message is then taken. */
static bool wake(struct station *station, const char *when, struct outcome *outcome)
{
    struct pollfd event = {.fd = station->far->event_fd, .events = POLLIN};
    const uint32_t arrived = station->arrived;
    int ready = poll(&event, 1, (int)station->subject->patience_ms);
    if (ready != 1) {
        return fails(outcome, "no event within %u ms of a message that came %s",
                     station->subject->patience_ms, when);
    }
    station->far->operations->disarm(station->far);
    return station_wait_arrived(station, arrived + 1, outcome) &&
           station_wait_sent(station, outcome);
}

static uint32_t wakes_of(const struct station *station)
{
    return station->subject->quick ? 50 : 1000;
}

/* arm.c: an armed queue has one event for the next completion. */
void check_arm(struct station *station, struct outcome *outcome)
{
    for (uint32_t i = 0; i < wakes_of(station); i++) {
        station_poll(station);
        station->far->operations->arm(station->far);
        send_one(station);
        if (!wake(station, "after arming", outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, a message woke who slept", wakes_of(station));
}

/* completion_queue.h: "If there is one already, the event comes at once, so that none is lost between the last poll and this
 * call." */
void check_arm_late(struct station *station, struct outcome *outcome)
{
    for (uint32_t i = 0; i < wakes_of(station); i++) {
        uint64_t start_ns = clock_now_ns();
        send_one(station);
        /* Its acknowledgement says that the message is there; the far side is not polled. */
        while (station->sender->completed != station->sender->posted) {
            struct nic_completion completions[8];
            station->near->operations->poll(station->near, completions, 8);
            if (clock_now_ns() - start_ns > station->subject->patience_ms * 1000000ull) {
                fails(outcome, "a message did not complete");
                return;
            }
        }
        station->far->operations->arm(station->far);
        if (!wake(station, "before arming", outcome)) {
            return;
        }
    }
    passes(outcome, "%u times, a message that was there woke who armed", wakes_of(station));
}

#define VECTORS_MAX 1024u /* with --quick 16: each opens the device twice */

/* nic.h, open.c: whatever vector its queues have been given, a nic hears of its completions; those of a process take turns at all. */
void check_vectors(const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    struct station_setup setup = {.options = station_options()};
    const uint32_t most = subject->quick ? 16 : VECTORS_MAX;
    uint32_t vectors = 1, vector = 0;
    bool good = true;
    setup.options.receive_depth = 64;
    setup.options.send_completion_depth = 256;
    for (; good && vector < vectors && vector < most; vector++) {
        setup.options.completion_vector = vector + 1;
        good = station_open(&station, subject, &setup, outcome);
        const int found = good ? device_context(station.far)->num_comp_vectors : 1;
        vectors = found > 1 ? (uint32_t)found : 1;
        for (uint32_t i = 0; good && i < 4; i++) {
            station_poll(&station);
            station.far->operations->arm(station.far);
            send_one(&station);
            good = wake(&station, "after arming", outcome);
        }
        station_close(&station);
        if (!good && outcome->verdict == VERDICT_FAILED) {
            fails_in(outcome, "vector %u of %u", vector, vectors);
        }
    }
    if (good) {
        passes(outcome, "messages woke who slept at each of %u completion vectors of %u", vector,
               vectors);
    }
}

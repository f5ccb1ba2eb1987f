/* streams.c: queues of the kind DCI (nic/queue.h), with streams where the device has them, by both drivers. */
#include <string.h>

#include "desk.h"
#include "nic/device/device.h"
#include "wqe_ring.h"

#define STREAMS 4u
#define FAILING 1u /* the stream that fails */
#define SEGMENT_BYTES sizeof(struct mlx5_wqe_datagram_seg)

struct half {
    struct desk desk;
    struct wqe_ring ring;
};

static struct half theirs, ours;

/* *streams: how many the DCI has. */
static bool half_open(struct half *half, const struct subject *subject, uint32_t driver,
                      const struct station *memory_of, uint32_t streams, struct outcome *outcome)
{
    const struct desk_setup setup = {
        .station = {.options = station_options(), .driver = driver, .memory_of = memory_of},
        .kind = NIC_QUEUE_DCI,
        .streams = streams};
    return desk_open(&half->desk, subject, &setup, outcome) &&
           wqe_ring_watch(&half->ring, device_qp(half->desk.sender->pair), outcome);
}

/* What the device has: *streams, or none. */
static bool find_streams(const struct subject *subject, uint32_t *streams, struct outcome *outcome)
{
    static struct station station;
    bool good = station_open(&station, subject, NULL, outcome) &&
                (station.near->dc || not_here(outcome, "%s has no DC", subject->device[0]));
    *streams = good && station.near->streams_max >= STREAMS ? STREAMS : 0;
    station_close(&station);
    return good;
}

/* Without what is each queue's own: where it goes to, the port by which libmlx5 chooses at random, and what it leaves in the place of an
 * immediate that there is not. */
static bool next_wqe(struct half *half, const struct message *message, struct wqe *wqe,
                     struct outcome *outcome)
{
    const uint32_t at = 16 + SEGMENT_BYTES, rest = at + 4 + message->bytes;
    if (!wqe_ring_next(&half->ring, wqe, outcome)) {
        return false;
    }
    const uint32_t stream = (uint32_t)wqe->bytes[9] << 8 | wqe->bytes[10];
    if (stream != message->stream) {
        return fails(outcome, "a WQE of stream %u says stream %u", message->stream, stream);
    }
    memset(wqe->bytes + 12, 0, message->opcode == NIC_SEND_IMMEDIATE ? 0 : 4);
    memset(wqe->bytes + 16 + 8, 0, 4);
    memset(wqe->bytes + 16 + 14, 0, 2);
    if (message->flags & NIC_WORK_INLINE) {
        memset(wqe->bytes + rest, 0, wqe->units * 16 > rest ? wqe->units * 16 - rest : 0);
        return true;
    }
    return message->bytes == 0 ||
           wqe_ring_clear_key(wqe, at + 4, half->desk.station.source_keys.local_key, outcome);
}

static struct message some_message(struct station *station, uint32_t streams)
{
    const bool in_wqe = station_pick(station, 2), immediate = station_pick(station, 2);
    const struct message message = {
        .opcode = immediate ? NIC_SEND_IMMEDIATE : NIC_SEND,
        .flags = (uint8_t)(NIC_WORK_SIGNAL | (in_wqe ? NIC_WORK_INLINE : 0)),
        .stream = (uint16_t)(streams > 0 ? station_pick(station, streams) : 0),
        .bytes = station_pick(station, in_wqe ? DESK_INLINE_BYTES : DESK_SLOT_BYTES),
        .immediate = immediate ? station_pick(station, UINT32_MAX) : 0};
    station_fill(station, station->source, message.bytes);
    memset(station->sink, 0, message.bytes);
    return message;
}

static bool compare(uint32_t streams, struct outcome *outcome)
{
    const struct message message = some_message(&ours.desk.station, streams);
    struct wqe their_wqe, our_wqe;
    if (!desk_exchange(&theirs.desk, &message, outcome) ||
        !next_wqe(&theirs, &message, &their_wqe, outcome)) {
        return false;
    }
    memset(ours.desk.station.sink, 0, message.bytes);
    return desk_exchange(&ours.desk, &message, outcome) &&
           next_wqe(&ours, &message, &our_wqe, outcome) &&
           wqe_ring_same(&their_wqe, &our_wqe, "an op of a DCI", outcome);
}

/* ---- A stream that fails --------------------------------------------------------------------- */

static bool fail_one(struct desk *desk, struct outcome *outcome)
{
    struct station *station = &desk->station;
    crpc_completion done;
    const struct nic_work work = {.opcode = NIC_WRITE,
                                  .flags = NIC_WORK_SIGNAL,
                                  .stream = FAILING,
                                  .address = (uintptr_t)station->source,
                                  .bytes = 64,
                                  .remote_key = station->sink_keys.remote_key ^ 0x5500,
                                  .remote_address = (uintptr_t)station->sink};
    return desk_send(desk, &work, outcome) && desk_next(desk, station->near, &done, outcome) &&
           (done.status == -NIC_ERROR_REMOTE_ACCESS ||
            fails(outcome, "a WRITE with a wrong key has a %s error",
                  station_error_name((uint8_t)-done.status)));
}

static bool still_sends(struct desk *desk, uint16_t stream, struct outcome *outcome)
{
    const struct message message = {
        .opcode = NIC_SEND, .flags = NIC_WORK_SIGNAL, .stream = stream, .bytes = 64};
    if (desk->sender->failed) {
        return fails(outcome, "a stream has failed, and the queue with it");
    }
    station_fill(&desk->station, desk->station.source, 64);
    return desk_exchange(desk, &message, outcome) ||
           fails_in(outcome, "stream %u, when stream %u has failed", stream, FAILING);
}

static bool fails_alone(struct desk *desk, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (!fail_one(desk, outcome)) {
        return false;
    }
    for (uint16_t stream = 0; stream < STREAMS; stream++) {
        if (stream != FAILING && !still_sends(desk, stream, outcome)) {
            return false;
        }
    }
    int32_t status =
        desk->station.near->operations->queues->reset_stream(desk->sender, FAILING, &error);
    return (status == CRPC_OK || fails(outcome, "%s", error.message)) &&
           still_sends(desk, FAILING, outcome);
}

/* queue_post.c: what goes to DCTs, and in which stream; nic/queue.h: "an op that fails ends its own stream alone". */
void check_wqe_dc(const struct subject *subject, struct outcome *outcome)
{
    const uint32_t rounds = subject->quick ? 200 : 4000;
    uint32_t streams = 0;
    bool good =
        find_streams(subject, &streams, outcome) &&
        half_open(&ours, subject, CRPC_DRIVER_MLX5, NULL, streams, outcome) &&
        half_open(&theirs, subject, CRPC_DRIVER_VERBS, &ours.desk.station, streams, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = compare(streams, outcome);
    }
    const bool alone = good && streams > 0 && ours.desk.sender->stream_failures_max > 0;
    good = good && (!alone || fails_alone(&ours.desk, outcome));
    if (good) {
        passes(outcome, "%u ops in %s, the same bytes as libmlx5's%s", rounds,
               streams > 0 ? "4 streams" : "a DCI without streams",
               alone ? "; one stream that failed left the others going" : "");
    }
    desk_close(&theirs.desk);
    desk_close(&ours.desk);
}

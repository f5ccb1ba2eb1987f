/* queues.c: the queues with user data (nic/queue.h): messages and datagrams between two of them, by both drivers. */
#include <string.h>

#include "desk.h"
#include "nic/device/device.h"
#include "wqe_ring.h"

/* A desk, and the ring of its sender. */
struct half {
    struct desk desk;
    struct wqe_ring ring;
};

static bool open_half(struct half *half, const struct subject *subject, uint32_t driver,
                      uint32_t kind, const struct station *memory_of, struct outcome *outcome)
{
    const struct desk_setup setup = {
        .station = {.options = station_options(), .driver = driver, .memory_of = memory_of},
        .kind = kind};
    return desk_open(&half->desk, subject, &setup, outcome) &&
           wqe_ring_watch(&half->ring, device_qp(half->desk.sender->pair), outcome);
}

/* ---- Both drivers ---------------------------------------------------------------------------- */

static struct half theirs, ours;

/* Clears what is each queue pair's own. The address of a datagram has a UDP source port, which libmlx5 chooses at random. */
static bool next_wqe(struct half *half, const struct message *message, struct wqe *wqe,
                     struct outcome *outcome)
{
    const struct desk *desk = &half->desk;
    if (!wqe_ring_next(&half->ring, wqe, outcome)) {
        return false;
    }
    const uint32_t at = desk->target ? 16 + sizeof(struct mlx5_wqe_datagram_seg) : 16;
    if (desk->target) {
        memset(wqe->bytes + 16 + 8, 0, 4);  /* the peer's number */
        memset(wqe->bytes + 16 + 14, 0, 2); /* the port */
    }
    if (message->flags & NIC_WORK_INLINE) {
        const uint32_t rest = at + 4 + message->bytes;
        memset(wqe->bytes + rest, 0, wqe->units * 16 > rest ? wqe->units * 16 - rest : 0);
        return true;
    }
    return message->bytes == 0 ||
           wqe_ring_clear_key(wqe, at + 4, desk->station.source_keys.local_key, outcome);
}

static struct message some_message(struct desk *desk, uint32_t bytes_max)
{
    struct station *station = &desk->station;
    struct message message = {.opcode = station_pick(station, 2) ? NIC_SEND : NIC_SEND_IMMEDIATE,
                              .flags = NIC_WORK_SIGNAL};
    message.flags |= station_pick(station, 2) ? NIC_WORK_INLINE : 0;
    message.immediate =
        message.opcode == NIC_SEND_IMMEDIATE ? station_pick(station, UINT32_MAX) : 0;
    message.bytes = station_pick(station, message.flags & NIC_WORK_INLINE ? DESK_INLINE_BYTES
                                          : station_pick(station, 4)      ? 70
                                                                          : bytes_max);
    station_fill(station, station->source, message.bytes);
    return message;
}

static void compare(const struct subject *subject, uint32_t kind, uint32_t bytes_max,
                    const char *what, struct outcome *outcome)
{
    const uint32_t rounds = subject->quick ? 300 : 5000;
    bool good = open_half(&ours, subject, CRPC_DRIVER_MLX5, kind, NULL, outcome) &&
                open_half(&theirs, subject, CRPC_DRIVER_VERBS, kind, &ours.desk.station, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        const struct message message = some_message(&ours.desk, bytes_max);
        struct wqe their_wqe, our_wqe;
        good = desk_exchange(&theirs.desk, &message, outcome) &&
               next_wqe(&theirs, &message, &their_wqe, outcome);
        memset(ours.desk.station.sink, 0, message.bytes + NIC_DATAGRAM_HEADER_BYTES);
        good = good && desk_exchange(&ours.desk, &message, outcome) &&
               next_wqe(&ours, &message, &our_wqe, outcome) &&
               wqe_ring_same(&their_wqe, &our_wqe, what, outcome);
    }
    if (good) {
        passes(outcome, "%u %ss, the same bytes as libmlx5's", rounds, what);
    }
    desk_close(&theirs.desk);
    desk_close(&ours.desk);
}

/* queue_post.c: SENDs with and without immediate, of which payload may be in the WQE. */
void check_wqe_send(const struct subject *subject, struct outcome *outcome)
{
    compare(subject, NIC_QUEUE_RC, DESK_SLOT_BYTES, "SEND", outcome);
}

/* queue_post.c, target.c: the same to an address; queue_poll.c: who has sent it. */
void check_wqe_datagram(const struct subject *subject, struct outcome *outcome)
{
    compare(subject, NIC_QUEUE_UD, 256, "datagram", outcome);
}

/* queue.c: "Scatter to CQE is off": payload comes into the memory of its receive, however short it is, because that may be
 * another device's. */
void check_scatter_to_cqe(const struct subject *subject, struct outcome *outcome)
{
    const uint32_t most = 128;
    bool good = open_half(&ours, subject, CRPC_DRIVER_MLX5, NIC_QUEUE_RC, NULL, outcome);
    for (uint32_t bytes = 1; good && bytes <= most; bytes++) {
        const struct message message = {
            .opcode = NIC_SEND, .flags = NIC_WORK_SIGNAL, .bytes = bytes};
        station_fill(&ours.desk.station, ours.desk.station.source, bytes);
        memset(ours.desk.station.sink, 0, bytes);
        good = desk_exchange(&ours.desk, &message, outcome);
    }
    if (good) {
        passes(outcome, "messages of 1 to %u bytes, each in its receive's memory", most);
    }
    desk_close(&ours.desk);
}

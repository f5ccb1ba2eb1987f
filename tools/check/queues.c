/* queues.c: the queues with user data (nic/queue.h): messages and datagrams between two of them, by both drivers. */
#include <string.h>

#include "base/clock.h"
#include "nic/device/device.h"
#include "nic/queue.h"
#include "station.h"
#include "wqe_ring.h"

#define DEPTH 16u
#define SLOT_BYTES 8192u
#define INLINE_BYTES 100u
#define QUEUE_KEY 0x11111111u

/* Two queues on the nics of a station. */
struct desk {
    struct station station;
    struct nic_queue *sender, *receiver;
    struct nic_target *target; /* of datagrams */
    struct wqe_ring ring;
};

/* What a message has to have brought. */
struct message {
    uint8_t opcode;
    uint8_t flags;
    uint32_t bytes;
    uint32_t immediate;
};

static bool create(struct nic *nic, uint32_t kind, struct nic_queue **queue,
                   struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const struct nic_queue_options options = {.kind = kind,
                                              .table = NIC_TABLE_DENSE,
                                              .sends = DEPTH,
                                              .send_pieces = 4,
                                              .inline_bytes = INLINE_BYTES,
                                              .receives = DEPTH,
                                              .receive_pieces = 1,
                                              .queue_key = kind == NIC_QUEUE_UD ? QUEUE_KEY : 0};
    int32_t status = nic->operations->queues->create(nic, NULL, &options, queue, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool find_way(struct desk *desk, uint32_t kind, struct outcome *outcome)
{
    struct nic *near = desk->station.near;
    struct nic_target_options options = {.kind = NIC_QUEUE_UD, .queue_key = QUEUE_KEY};
    crpc_error error = {.struct_size = sizeof(error)};
    if (kind == NIC_QUEUE_RC) {
        return station_connect(&desk->station, desk->sender->pair, desk->receiver->pair, outcome);
    }
    desk->receiver->nic->operations->queue_pair_address(desk->receiver->pair, &options.address);
    int32_t status =
        near->operations->queues->target_create(near, NULL, &options, &desk->target, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool desk_open(struct desk *desk, const struct subject *subject, uint32_t driver,
                      uint32_t kind, const struct station *memory_of, struct outcome *outcome)
{
    const struct station_setup setup = {
        .options = station_options(), .driver = driver, .memory_of = memory_of};
    return station_open(&desk->station, subject, &setup, outcome) &&
           create(desk->station.near, kind, &desk->sender, outcome) &&
           create(desk->station.far, kind, &desk->receiver, outcome) &&
           find_way(desk, kind, outcome) &&
           wqe_ring_watch(&desk->ring, device_qp(desk->sender->pair), outcome);
}

static void end(struct nic_queue *queue)
{
    crpc_completion done[8];
    if (queue) {
        queue->nic->operations->queues->stop(queue);
        while (nic_queue_take_ended(queue, done, 8) > 0) {
        }
        queue->nic->operations->queues->destroy(queue);
    }
}

static void desk_close(struct desk *desk)
{
    end(desk->sender);
    end(desk->receiver);
    if (desk->target) {
        desk->station.near->operations->queues->target_destroy(desk->target);
    }
    station_close(&desk->station);
    *desk = (struct desk){0};
}

static uint32_t header_bytes(const struct desk *desk)
{
    return desk->target ? NIC_DATAGRAM_HEADER_BYTES : 0;
}

static bool post(struct desk *desk, const struct message *message)
{
    const struct nic_queue_operations *operations = desk->station.near->operations->queues;
    const uint32_t key = desk->station.source_keys.local_key;
    const struct nic_piece piece = {.address = (uintptr_t)desk->station.sink,
                                    .bytes = SLOT_BYTES,
                                    .local_key = desk->station.sink_keys.local_key};
    const struct nic_work work = {.opcode = message->opcode,
                                  .flags = message->flags,
                                  .immediate = message->immediate,
                                  .user_data = 1,
                                  .address = (uintptr_t)desk->station.source,
                                  .bytes = message->bytes};
    const bool received = operations->receive(desk->receiver, 2, &piece, 1);
    operations->ring(desk->receiver);
    const uint32_t posted =
        desk->target ? operations->post_to(desk->sender, &work, &desk->target, &key, NULL, 1)
                     : operations->post(desk->sender, &work, &key, NULL, 1);
    operations->ring(desk->sender);
    return received && posted == 1;
}

/* Polls a side until its op has completed. */
static bool await(struct desk *desk, struct nic *nic, crpc_completion *done,
                  struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t errors = 0;
    while (nic->operations->queues->poll(nic, done, 1, &errors) == 0) {
        if (clock_now_ns() - start_ns > desk->station.subject->patience_ms * 1000000ull) {
            return fails(outcome, "an op of a queue has not completed within %u ms",
                         desk->station.subject->patience_ms);
        }
    }
    return done->status == CRPC_OK || fails(outcome, "an op of a queue has a %s error",
                                            station_error_name((uint8_t)-done->status));
}

static bool arrived_right(const struct desk *desk, const struct message *message,
                          const crpc_completion *done, struct outcome *outcome)
{
    const uint32_t bytes = message->bytes + header_bytes(desk);
    const bool immediate = message->opcode == NIC_SEND_IMMEDIATE;
    if (done->payload_bytes != bytes || ((done->flags & NIC_DONE_IMMEDIATE) != 0) != immediate ||
        (immediate && done->reply_bytes_max != message->immediate)) {
        return fails(outcome, "%u bytes with immediate 0x%08x came as %u with 0x%08x", bytes,
                     message->immediate, (uint32_t)done->payload_bytes, done->reply_bytes_max);
    }
    if (desk->target && (done->token & 0xffffffu) != desk->sender->pair->number) {
        return fails(outcome, "a datagram of queue pair 0x%06x came from 0x%06x",
                     desk->sender->pair->number, (uint32_t)(done->token & 0xffffffu));
    }
    return station_same(&desk->station, 0, header_bytes(desk), message->bytes, "a message",
                        outcome);
}

static bool exchange(struct desk *desk, const struct message *message, struct outcome *outcome)
{
    crpc_completion received, sent;
    if (!post(desk, message)) {
        return fails(outcome, "a queue has no room though nothing is open");
    }
    /* The memory is looked at as soon as the receive has completed. */
    return await(desk, desk->station.far, &received, outcome) &&
           arrived_right(desk, message, &received, outcome) &&
           await(desk, desk->station.near, &sent, outcome);
}

/* ---- Both drivers ---------------------------------------------------------------------------- */

static struct desk theirs, ours;

/* Clears what is each queue pair's own. The address of a datagram has a UDP source port, which libmlx5 chooses at random. */
static bool next_wqe(struct desk *desk, const struct message *message, struct wqe *wqe,
                     struct outcome *outcome)
{
    if (!wqe_ring_next(&desk->ring, wqe, outcome)) {
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
    message.bytes = station_pick(station, message.flags & NIC_WORK_INLINE ? INLINE_BYTES
                                          : station_pick(station, 4)      ? 70
                                                                          : bytes_max);
    station_fill(station, station->source, message.bytes);
    return message;
}

static void compare(const struct subject *subject, uint32_t kind, uint32_t bytes_max,
                    const char *what, struct outcome *outcome)
{
    const uint32_t rounds = subject->quick ? 300 : 5000;
    bool good = desk_open(&ours, subject, CRPC_DRIVER_MLX5, kind, NULL, outcome) &&
                desk_open(&theirs, subject, CRPC_DRIVER_VERBS, kind, &ours.station, outcome);
    for (uint32_t i = 0; good && i < rounds; i++) {
        const struct message message = some_message(&ours, bytes_max);
        struct wqe their_wqe, our_wqe;
        good = exchange(&theirs, &message, outcome) &&
               next_wqe(&theirs, &message, &their_wqe, outcome);
        memset(ours.station.sink, 0, message.bytes + NIC_DATAGRAM_HEADER_BYTES);
        good = good && exchange(&ours, &message, outcome) &&
               next_wqe(&ours, &message, &our_wqe, outcome) &&
               wqe_ring_same(&their_wqe, &our_wqe, what, outcome);
    }
    if (good) {
        passes(outcome, "%u %ss, the same bytes as libmlx5's", rounds, what);
    }
    desk_close(&theirs);
    desk_close(&ours);
}

/* queue_post.c: SENDs with and without immediate, of which payload may be in the WQE. */
void check_wqe_send(const struct subject *subject, struct outcome *outcome)
{
    compare(subject, NIC_QUEUE_RC, SLOT_BYTES, "SEND", outcome);
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
    bool good = desk_open(&ours, subject, CRPC_DRIVER_MLX5, NIC_QUEUE_RC, NULL, outcome);
    for (uint32_t bytes = 1; good && bytes <= most; bytes++) {
        const struct message message = {
            .opcode = NIC_SEND, .flags = NIC_WORK_SIGNAL, .bytes = bytes};
        station_fill(&ours.station, ours.station.source, bytes);
        memset(ours.station.sink, 0, bytes);
        good = exchange(&ours, &message, outcome);
    }
    if (good) {
        passes(outcome, "messages of 1 to %u bytes, each in its receive's memory", most);
    }
    desk_close(&ours);
}

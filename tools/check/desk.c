/* desk.c: see desk.h. */
#include "desk.h"

#include "base/clock.h"

#define QUEUE_KEY 0x11111111u
#define ACCESS_KEY 0x6b65795f6f665f6du

/* ---- Opening --------------------------------------------------------------------------------- */

static bool create(struct nic *nic, const struct nic_queue_options *options,
                   struct nic_queue **queue, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = nic->operations->queues->create(nic, NULL, options, queue, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static struct nic_queue_options sender_options(const struct desk_setup *setup)
{
    const bool initiator = setup->kind == NIC_QUEUE_DCI;
    struct nic_queue_options options = {.kind = setup->kind,
                                        .table = NIC_TABLE_DENSE,
                                        .sends = DESK_DEPTH,
                                        .send_pieces = 4,
                                        .inline_bytes = DESK_INLINE_BYTES,
                                        .receives = initiator ? 0 : DESK_DEPTH,
                                        .receive_pieces = initiator ? 0 : 1,
                                        .queue_key = setup->kind == NIC_QUEUE_UD ? QUEUE_KEY : 0};
    if (initiator) {
        options.transport = (struct nic_transport){.retry_timeout = 14, .retry_count = 7};
    }
    if (setup->streams > 0) {
        options.table = NIC_TABLE_UNORDERED;
        options.streams = setup->streams;
        options.stream_failures_max = 1;
    }
    return options;
}

static bool create_receiver(struct desk *desk, const struct desk_setup *setup,
                            struct outcome *outcome)
{
    struct nic *far = desk->station.far;
    struct nic_queue_options options = sender_options(setup);
    if (setup->kind == NIC_QUEUE_DCI || setup->tags > 0) {
        const struct nic_queue_options shared = {.kind = setup->tags > 0 ? NIC_QUEUE_TM_SRQ
                                                                         : NIC_QUEUE_SRQ,
                                                 .receives = DESK_DEPTH,
                                                 .receive_pieces = 1,
                                                 .tags = setup->tags};
        if (!create(far, &shared, &desk->shared, outcome)) {
            return false;
        }
        options.receives = options.receive_pieces = 0;
        options.receive_queue = desk->shared;
    }
    if (setup->kind == NIC_QUEUE_DCI) {
        options = (struct nic_queue_options){
            .kind = NIC_QUEUE_DCT, .receive_queue = desk->shared, .access_key = ACCESS_KEY};
    }
    return create(far, &options, &desk->receiver, outcome);
}

bool desk_aim(struct desk *desk, const struct desk *to, bool grh, uint8_t service_level,
              struct outcome *outcome)
{
    struct nic *near = desk->station.near;
    const uint32_t kind = desk->sender->kind;
    struct nic_target_options options = {.kind = kind,
                                         .queue_key = kind == NIC_QUEUE_UD ? QUEUE_KEY : 0,
                                         .access_key = kind == NIC_QUEUE_DCI ? ACCESS_KEY : 0,
                                         .service_level = service_level};
    crpc_error error = {.struct_size = sizeof(error)};
    to->receiver->nic->operations->queue_pair_address(to->receiver->pair, &options.address);
    options.address.grh_required |= grh;
    if (options.address.link != near->link) {
        return not_here(outcome, "%s and %s have different links", near->device,
                        to->receiver->nic->device);
    }
    if (desk->target) {
        near->operations->queues->target_destroy(desk->target);
        desk->target = NULL;
    }
    int32_t status =
        near->operations->queues->target_create(near, NULL, &options, &desk->target, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

bool desk_open(struct desk *desk, const struct subject *subject, const struct desk_setup *setup,
               struct outcome *outcome)
{
    const struct nic_queue_options sender = sender_options(setup);
    *desk = (struct desk){0};
    if (!station_open(&desk->station, subject, &setup->station, outcome) ||
        !create(desk->station.near, &sender, &desk->sender, outcome)) {
        return false;
    }
    if (setup->alone) {
        return true;
    }
    if (!create_receiver(desk, setup, outcome)) {
        return false;
    }
    return setup->kind == NIC_QUEUE_RC
               ? station_connect(&desk->station, desk->sender->pair, desk->receiver->pair, outcome)
               : desk_aim(desk, desk, false, 0, outcome);
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

void desk_close(struct desk *desk)
{
    end(desk->sender);
    end(desk->receiver);
    end(desk->shared);
    if (desk->target) {
        desk->station.near->operations->queues->target_destroy(desk->target);
    }
    station_close(&desk->station);
    *desk = (struct desk){0};
}

/* ---- Messages -------------------------------------------------------------------------------- */

uint32_t desk_header_bytes(const struct desk *desk)
{
    return desk->sender->kind == NIC_QUEUE_UD ? NIC_DATAGRAM_HEADER_BYTES : 0;
}

bool desk_receive(struct desk *desk, struct outcome *outcome)
{
    struct nic_queue *queue = desk->shared ? desk->shared : desk->receiver;
    const struct nic_piece piece = {.address = (uintptr_t)desk->station.sink,
                                    .bytes = DESK_SLOT_BYTES,
                                    .local_key = desk->station.sink_keys.local_key};
    const bool posted = queue->nic->operations->queues->receive(queue, DESK_RECEIVE, &piece, 1);
    queue->nic->operations->queues->ring(queue);
    return posted || fails(outcome, "a queue has no room for a receive though none is open");
}

bool desk_send(struct desk *desk, const struct nic_work *work, struct outcome *outcome)
{
    const struct nic_queue_operations *operations = desk->station.near->operations->queues;
    const uint32_t key = desk->station.source_keys.local_key;
    const uint32_t posted =
        desk->target ? operations->post_to(desk->sender, work, &desk->target, &key, NULL, 1)
                     : operations->post(desk->sender, work, &key, NULL, 1);
    operations->ring(desk->sender);
    return posted == 1 || fails(outcome, "a queue has no room though nothing is open");
}

bool desk_next(struct desk *desk, struct nic *nic, crpc_completion *done, struct outcome *outcome)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t errors = 0;
    while (nic->operations->queues->poll(nic, done, 1, &errors) == 0) {
        if (clock_now_ns() - start_ns > desk->station.subject->patience_ms * 1000000ull) {
            return fails(outcome, "an op of a queue has not completed within %u ms",
                         desk->station.subject->patience_ms);
        }
    }
    return true;
}

bool desk_await(struct desk *desk, struct nic *nic, crpc_completion *done, struct outcome *outcome)
{
    return desk_next(desk, nic, done, outcome) &&
           (done->status == CRPC_OK || fails(outcome, "an op of a queue has a %s error",
                                             station_error_name((uint8_t)-done->status)));
}

static bool arrived_right(const struct desk *desk, const struct message *message,
                          const crpc_completion *done, struct outcome *outcome)
{
    const uint32_t bytes = message->bytes + desk_header_bytes(desk);
    const bool immediate = message->opcode == NIC_SEND_IMMEDIATE;
    if (done->payload_bytes != bytes || ((done->flags & NIC_DONE_IMMEDIATE) != 0) != immediate ||
        (immediate && done->reply_bytes_max != message->immediate)) {
        return fails(outcome, "%u bytes with immediate 0x%08x came as %u with 0x%08x", bytes,
                     message->immediate, (uint32_t)done->payload_bytes, done->reply_bytes_max);
    }
    if (desk_header_bytes(desk) > 0 && (done->token & 0xffffffu) != desk->sender->pair->number) {
        return fails(outcome, "a datagram of queue pair 0x%06x came from 0x%06x",
                     desk->sender->pair->number, (uint32_t)(done->token & 0xffffffu));
    }
    return station_same(&desk->station, 0, desk_header_bytes(desk), message->bytes, "a message",
                        outcome);
}

bool desk_exchange(struct desk *desk, const struct message *message, struct outcome *outcome)
{
    crpc_completion received, sent;
    const struct nic_work work = {.opcode = message->opcode,
                                  .flags = message->flags,
                                  .stream = message->stream,
                                  .immediate = message->immediate,
                                  .user_data = 1,
                                  .address = (uintptr_t)desk->station.source,
                                  .bytes = message->bytes};
    /* The memory is looked at as soon as the receive has completed. */
    return desk_receive(desk, outcome) && desk_send(desk, &work, outcome) &&
           desk_await(desk, desk->station.far, &received, outcome) &&
           arrived_right(desk, message, &received, outcome) &&
           desk_await(desk, desk->station.near, &sent, outcome);
}

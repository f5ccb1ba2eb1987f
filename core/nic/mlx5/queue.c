/* queue.c: making and ending queues with user data (nic/queue.h), and their completion queues. */
#include <errno.h>
#include <stdlib.h>

#include "base/lines.h"
#include "nic/mlx5/mlx5.h"
#include "nic/tags.h"

/* ---- Completion queues ----------------------------------------------------------------------- */

static struct device_source *make_source(struct device_nic *nic, uint32_t entries)
{
    struct mlx5_source *source = lines_alloc(1, sizeof(*source));
    if (!source) {
        return NULL;
    }
    source->cq = ibv_create_cq(nic->context, (int)entries - 1, nic, nic->channel,
                               (int)nic->base.completion_vector);
    int os_error =
        source->cq ? mlx5_find_completion_queue(source->cq, false, &source->completions) : errno;
    if (!source->cq || os_error) {
        if (source->cq) {
            ibv_destroy_cq(source->cq);
        }
        free(source);
        errno = os_error;
        return NULL;
    }
    source->device.places_left = source->completions.mask + 1;
    return &source->device;
}

static void end_source(struct device_source *base)
{
    struct mlx5_source *source = to_mlx5_source(base);
    device_destroy_cq(source->cq, source->events_unacked);
    free(source);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static uint32_t payload_segments_bytes(const struct nic_queue_options *options)
{
    return (uint32_t)maximum(options->send_pieces * sizeof(struct mlx5_wqe_data_seg),
                             wqe_inline_bytes(options->inline_bytes));
}

#define CONTROL_BYTES ((uint32_t)sizeof(struct mlx5_wqe_ctrl_seg))
#define REMOTE_BYTES ((uint32_t)sizeof(struct mlx5_wqe_raddr_seg))
#define ADDRESS_BYTES ((uint32_t)sizeof(struct mlx5_wqe_datagram_seg))

/* Blocks of the largest WQE that is posted: a datagram or a WRITE. Atomics have one, or two with an address. */
static uint32_t blocks_of_one(const struct nic_queue_options *options)
{
    const uint32_t head =
        CONTROL_BYTES + (options->kind == NIC_QUEUE_UD    ? ADDRESS_BYTES
                         : options->kind == NIC_QUEUE_DCI ? ADDRESS_BYTES + REMOTE_BYTES
                                                          : REMOTE_BYTES);
    return wqe_blocks(head + payload_segments_bytes(options));
}

/* Blocks that libmlx5 counts for each: as if an RC queue pair could bind a window, too, and as if any op of a
 * DCI, for which we name the ops, were an atomic. */
static uint32_t counted_for_one(const struct nic_queue_options *options)
{
    const uint32_t head = options->kind == NIC_QUEUE_UD ? CONTROL_BYTES + ADDRESS_BYTES
                          : options->kind == NIC_QUEUE_DCI
                              ? CONTROL_BYTES + REMOTE_BYTES +
                                    (uint32_t)sizeof(struct mlx5_wqe_atomic_seg) + ADDRESS_BYTES
                              : WQE_BIND_BYTES;
    return wqe_blocks(head + payload_segments_bytes(options));
}

static uint32_t blocks_max(const struct device_nic *nic)
{
    return (uint32_t)minimum(TRACKING_ENTRIES_MAX, nic->send_wqes_max);
}

/* A NOP at the ring's end may take up to all but one block of an op. */
static uint32_t sends_max(const struct device_nic *nic, const struct nic_queue_options *options)
{
    return (blocks_max(nic) + 1 - blocks_of_one(options)) / blocks_of_one(options);
}

/* What libmlx5 is asked for: one more than wanted, because of that NOP. Where this would be too much as
 * libmlx5 counts, the longest ring. */
static uint32_t wqes_wanted(const struct device_nic *nic, const struct nic_queue_options *options)
{
    const uint32_t counted = counted_for_one(options);
    const uint32_t wanted = options->sends + 1;
    return power_of_two_at_least(wanted * counted) <= blocks_max(nic) ? wanted
                                                                      : blocks_max(nic) / counted;
}

/* As many blocks as libmlx5 will have, or more: one of another version may count more. */
static uint32_t blocks_most(const struct device_nic *nic, const struct nic_queue_options *options)
{
    const uint32_t counted =
        wqe_blocks(WQE_BIND_BYTES + ADDRESS_BYTES + payload_segments_bytes(options));
    return (uint32_t)minimum(power_of_two_at_least(wqes_wanted(nic, options) * counted),
                             TRACKING_ENTRIES_MAX);
}

/* Returns true if a ring of so many blocks has the room that was asked for. */
static bool blocks_enough(const struct nic_queue_options *options, uint32_t blocks)
{
    return (options->sends + 1) * blocks_of_one(options) <= blocks + 1;
}

/* So many blocks may go without a CQE, at least 1: the longest op finds room behind them, also if the ring's end takes a
 * NOP. Otherwise it would wait for room that nothing makes. */
static uint32_t interval_max(const struct nic_queue_options *options, uint32_t blocks)
{
    return blocks + 2 - 2 * blocks_of_one(options);
}

/* As many receives as libmlx5 will have, or more: a queue has at least one block of 64 bytes. */
static uint32_t receives_most(const struct nic_queue_options *options)
{
    uint32_t most = power_of_two_at_least(options->receives + 1);
    return most < 4 ? 4 : most;
}

static struct ibv_cq *cq_of(struct device_source *source, const struct mlx5_nic *nic)
{
    return source ? to_mlx5_source(source)->cq : nic->spare_cq;
}

static int create_qp(struct mlx5_nic *nic, struct nic_domain *domain,
                     const struct nic_queue_options *options, struct device_queue *queue)
{
    struct ibv_qp_init_attr_ex attributes = {
        .send_cq = cq_of(queue->send_source, nic),
        .recv_cq = cq_of(queue->receive_source, nic),
        .srq = options->receive_queue ? to_device_queue(options->receive_queue)->srq : NULL,
        .cap = {.max_send_wr = options->sends ? wqes_wanted(&nic->device, options) : 0,
                .max_send_sge = options->sends ? options->send_pieces : 0,
                .max_inline_data = options->sends ? options->inline_bytes : 0,
                .max_recv_wr = options->receives,
                .max_recv_sge = options->receives ? options->receive_pieces : 0},
        .qp_type = options->kind == NIC_QUEUE_UD ? IBV_QPT_UD : IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = device_pd(&nic->device, domain),
    };
    queue->pair.qp = options->kind == NIC_QUEUE_DCI || options->kind == NIC_QUEUE_DCT
                         ? device_dc_create(queue, &attributes, options)
                         : device_queue_qp_create(&nic->device, &attributes);
    return queue->pair.qp ? 0 : errno;
}

static bool is_ring(uint32_t entries, uint32_t most)
{
    return entries > 0 && (entries & (entries - 1)) == 0 && entries <= most &&
           entries <= TRACKING_ENTRIES_MAX;
}

/* From libmlx5. */
static int find_rings(struct mlx5_nic *nic, const struct nic_queue_options *options,
                      struct mlx5_queue *queue)
{
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = queue->device.pair.qp, .out = &found}};
    if (options->sends == 0 && options->receives == 0) {
        return 0; /* libmlx5 has nothing of a DCT */
    }
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error) {
        return os_error;
    }
    if (options->sends > 0) {
        if (found.sq.stride != WQE_BLOCK_BYTES ||
            !is_ring(found.sq.wqe_cnt, queue->device.send_places) ||
            !blocks_enough(options, found.sq.wqe_cnt)) {
            return EOPNOTSUPP;
        }
        queue->sends = (struct send_queue){.buffer = found.sq.buf,
                                           .mask = found.sq.wqe_cnt - 1,
                                           .number = queue->device.pair.qp->qp_num,
                                           .record = &found.dbrec[MLX5_SND_DBR],
                                           .doorbell = mlx5_doorbell_take(nic, &found)};
        if (!queue->sends.doorbell) {
            return ENOMEM;
        }
    }
    if (options->receives > 0) {
        if (!is_ring(found.rq.wqe_cnt, queue->device.receive_places)) {
            return EOPNOTSUPP;
        }
        queue->receive_buffer = found.rq.buf;
        queue->receive_stride = found.rq.stride;
        queue->receive_record = &found.dbrec[MLX5_RCV_DBR];
        queue->device.base.receives_max = found.rq.wqe_cnt;
    }
    return 0;
}

static int create_srq(struct mlx5_nic *nic, struct nic_domain *domain,
                      const struct nic_queue_options *options, struct mlx5_queue *queue)
{
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = options->receives, .max_sge = options->receive_pieces}};
    struct mlx5dv_srq found = {0};
    struct mlx5dv_obj object = {.srq = {.out = &found}};
    int os_error = device_queue_keep_srq(
        &queue->device, options->kind == NIC_QUEUE_TM_SRQ
                            ? mlx5_tags_create_srq(nic, domain, options, queue)
                            : ibv_create_srq(device_pd(&nic->device, domain), &attributes));
    if (os_error) {
        return os_error;
    }
    object.srq.in = queue->device.srq;
    os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ);
    if (os_error) {
        return os_error;
    }
    if (!is_ring(found.tail + 1, queue->device.receive_places)) {
        return EOPNOTSUPP;
    }
    queue->list = (struct receive_queue){.buffer = found.buf,
                                         .stride = found.stride,
                                         .entries = found.tail + 1,
                                         .tail = found.tail,
                                         .record = found.dbrec};
    queue->list_head = found.head;
    queue->receive_stride = found.stride;
    queue->receive_record = found.dbrec;
    queue->device.base.receives_max = found.tail; /* the last of the list is never used */
    return 0;
}

static void dismantle(struct device_queue *queue)
{
    struct mlx5_nic *nic = to_mlx5_nic(queue->base.nic);
    struct doorbell *doorbell = to_mlx5_queue(&queue->base)->sends.doorbell;
    if (queue->pair.qp) {
        mlx5_qp_destroy(nic, queue->pair.qp);
    }
    mlx5_tags_dismantle(nic, to_mlx5_queue(&queue->base));
    mlx5_doorbell_give(nic, doorbell);
}

/* The tables are as long as the rings are. */
static int make_rings(struct device_queue *queue, struct nic_domain *domain,
                      const struct nic_queue_options *options)
{
    struct mlx5_nic *nic = to_mlx5_nic(queue->base.nic);
    struct mlx5_queue *ours = to_mlx5_queue(&queue->base);
    const bool srq = nic_kind_is_shared(options->kind);
    const uint32_t tag_places = options->tags > 0 ? mlx5_tags_places(options) : 0;
    int os_error =
        device_queue_take_places(queue, options->sends > 0 ? blocks_most(&nic->device, options) : 0,
                                 options->receives > 0 ? receives_most(options) + tag_places : 0);
    if (os_error == 0) {
        os_error =
            srq ? create_srq(nic, domain, options, ours) : create_qp(nic, domain, options, queue);
    }
    if (os_error == 0 && !srq) {
        os_error = find_rings(nic, options, ours);
    }
    if (os_error == 0 && options->tags > 0) {
        os_error = mlx5_tags_make(nic, domain, options, ours);
    }
    if (os_error) {
        return os_error;
    }
    uint32_t blocks = options->sends + options->tags > 0 ? ours->sends.mask + 1 : 0;
    uint32_t receives = srq ? queue->base.receives_max + 1 : queue->base.receives_max;
    device_queue_keep_places(queue, blocks, receives + tag_places);
    if (!nic_queue_make_tables(&queue->base, blocks, receives) ||
        (options->tags > 0 && !nic_tags_make(&queue->base, options->tags))) {
        return ENOMEM;
    }
    if (options->table == NIC_TABLE_SPARSE && options->sends > 0) {
        queue->base.interval =
            (uint32_t)minimum(queue->base.interval, interval_max(options, blocks));
    }
    return 0;
}

static int32_t queue_create(struct nic *nic, struct nic_domain *domain,
                            const struct nic_queue_options *options, struct nic_queue **result,
                            crpc_error *error)
{
    static const struct device_queue_driver driver = {.queue_bytes = sizeof(struct mlx5_queue),
                                                      .sends_max = sends_max,
                                                      .make_rings = make_rings,
                                                      .dismantle = dismantle,
                                                      .make_source = make_source,
                                                      .make_tag_source = mlx5_tags_make_source,
                                                      .end_source = end_source};
    return device_queue_create(&driver, nic, domain, options, result, error);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* An entry of a queue pair that is gone. A receive of an SRQ that it names completes all the same. */
static void removed(void *argument, const struct mlx5_cqe64 *entry)
{
    const struct nic_queue *queue = argument;
    uint8_t opcode = completion_opcode(entry);
    if (queue->receiver && queue->receiver->tags) {
        mlx5_tags_removed(queue->receiver, queue, entry);
    } else if (queue->receiver && queue->receiver != queue && opcode != MLX5_CQE_REQ &&
               opcode != MLX5_CQE_REQ_ERR) {
        nic_queue_end_receive(queue->receiver, be16toh(entry->wqe_counter));
    }
}

static void remove_entries(struct device_source *source, struct nic_queue *base, uint32_t number)
{
    if (source) {
        completion_queue_remove(&to_mlx5_source(source)->completions, number, removed, base);
    }
}

/* What it would have told is told by nic_queue_take_ended. */
static void command_removed(void *argument, const struct mlx5_cqe64 *entry)
{
    (void)argument;
    (void)entry;
}

/* Once ibv_destroy_qp has returned no entry of the queue pair appears any more. */
static void queue_stop(struct nic_queue *base)
{
    struct device_queue *queue = to_device_queue(base);
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    assert(!base->stopped && base->users == 0);
    if (base->pair) {
        uint32_t number = base->pair->number;
        if (base->kind != NIC_QUEUE_DCT) { /* which has no such state */
            device_queue_flush(base);
            device_await_last_wqe(&nic->device, &queue->pair);
            device_note_last_wqe(&queue->pair);
        }
        device_queue_forget(&nic->device, base->pair);
        mlx5_qp_destroy(nic, queue->pair.qp);
        queue->pair.qp = NULL;
        remove_entries(queue->send_source, base, number);
        remove_entries(queue->receive_source, base, number);
        if (base->receiver && base->receiver->tags) {
            nic_tags_leave(base->receiver, number);
        }
    }
    if (base->tags) {
        uint32_t number = to_mlx5_queue(base)->command.base.number;
        mlx5_tags_dismantle(nic, to_mlx5_queue(base));
        completion_queue_remove(&to_mlx5_source(queue->receive_source)->completions, number,
                                command_removed, NULL);
    }
    device_queue_end(queue);
    to_mlx5_queue(base)->sends.doorbell = NULL;
}

static void queue_give_back(struct nic_queue *base, uint32_t index)
{
    receive_queue_free(&to_mlx5_queue(base)->list, index);
}

const struct nic_queue_operations mlx5_queue_operations = {
    .create = queue_create,
    .reset_stream = device_queue_reset_stream,
    .modify = device_queue_modify,
    .flush = device_queue_flush,
    .stop = queue_stop,
    .destroy = device_queue_destroy,
    .target_create = mlx5_target_create,
    .target_destroy = device_target_destroy,
    .post = mlx5_queue_post,
    .post_to = mlx5_queue_post_to,
    .receive = mlx5_queue_receive,
    .tag = mlx5_queue_tag,
    .ring = mlx5_queue_ring,
    .poll = mlx5_queue_poll,
    .give_back = queue_give_back,
};

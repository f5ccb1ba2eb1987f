/* queue.c: making and ending queues with user data (nic/queue.h), and their completion queues.
 *
 * Scatter to CQE is off: the processor would have to copy small payloads into their buffers, which it
 * cannot if these are another device's. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "nic/mlx5/mlx5.h"

#define SOURCE_ENTRIES 16384u /* of a completion queue, unless one queue alone needs more */

/* ---- Completion queues ----------------------------------------------------------------------- */

/* Returns NULL and sets errno if it fails. */
static struct mlx5_source *make_source(struct mlx5_nic *nic, uint32_t places)
{
    struct mlx5_source *source = calloc(1, sizeof(*source));
    if (!source) {
        return NULL;
    }
    uint32_t entries = places > SOURCE_ENTRIES ? places : SOURCE_ENTRIES;
    source->cq = ibv_create_cq(nic->device.context, (int)entries - 1, nic, nic->device.channel, 0);
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
    source->places_left = source->completions.mask + 1;
    return source;
}

/* Takes so many places in a completion queue of this table. */
static int take_places(struct mlx5_nic *nic, enum nic_queue_table table, uint32_t places,
                       struct mlx5_source **taken)
{
    struct mlx5_source *source = nic->sources[table];
    while (source && source->places_left < places) {
        source = source->next;
    }
    if (!source) {
        source = make_source(nic, places);
        if (!source) {
            return errno ? errno : ENOMEM;
        }
        source->next = nic->sources[table];
        nic->sources[table] = source;
    }
    source->places_left -= places;
    source->queues++;
    *taken = source;
    return 0;
}

/* Gives back what is not needed, now that it is known. */
static void keep_places(struct mlx5_source *source, uint32_t *places, uint32_t needed)
{
    if (source && *places > needed) {
        source->places_left += *places - needed;
        *places = needed;
    }
}

static void give_places(struct mlx5_nic *nic, enum nic_queue_table table,
                        struct mlx5_source *source, uint32_t places)
{
    if (!source || places == 0) {
        return;
    }
    source->places_left += places;
    if (--source->queues > 0) {
        return;
    }
    struct mlx5_source **link = &nic->sources[table];
    while (*link != source) {
        link = &(*link)->next;
    }
    *link = source->next;
    device_destroy_cq(source->cq, source->events_unacked);
    free(source);
}

void mlx5_sources_close(struct mlx5_nic *nic)
{
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        assert(!nic->sources[table]);
    }
    (void)nic;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t value)
{
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

/* At least as many blocks as libmlx5 will have, which counts for each WQE what binds a window, too. */
static uint32_t blocks_most(const struct nic_queue_options *options)
{
    uint32_t body = options->send_pieces * (uint32_t)sizeof(struct mlx5_wqe_data_seg);
    if (wqe_inline_bytes(options->inline_bytes) > body) {
        body = wqe_inline_bytes(options->inline_bytes);
    }
    return power_of_two((options->sends + 1) * wqe_blocks(WQE_BIND_BYTES + body));
}

/* Likewise for receives: a queue has at least one block of 64 bytes. */
static uint32_t receives_most(const struct nic_queue_options *options)
{
    uint32_t most = power_of_two(options->receives + 1);
    return most < 4 ? 4 : most;
}

static int create_qp(struct mlx5_nic *nic, struct nic_domain *domain,
                     const struct nic_queue_options *options, struct mlx5_queue *queue)
{
    struct mlx5_queue *shared =
        options->receive_queue ? to_mlx5_queue(options->receive_queue) : NULL;
    struct ibv_qp_init_attr_ex attributes = {
        .send_cq = queue->send_source ? queue->send_source->cq : nic->spare_cq,
        .recv_cq = queue->receive_source ? queue->receive_source->cq : nic->spare_cq,
        .srq = shared ? shared->srq : NULL,
        /* One more than wanted: a NOP at the ring's end may take the room of one. */
        .cap = {.max_send_wr = options->sends ? options->sends + 1 : 0,
                .max_send_sge = options->sends ? options->send_pieces : 0,
                .max_inline_data = options->sends ? options->inline_bytes : 0,
                .max_recv_wr = options->receives,
                .max_recv_sge = options->receives ? options->receive_pieces : 0},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = device_pd(&nic->device, domain),
    };
    struct mlx5dv_qp_init_attr direct = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                                         .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE};
    queue->device.qp = mlx5dv_create_qp(nic->device.context, &attributes, &direct);
    return queue->device.qp ? 0 : errno;
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
    struct mlx5dv_obj object = {.qp = {.in = queue->device.qp, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error) {
        return os_error;
    }
    if (options->sends > 0) {
        if (found.sq.stride != WQE_BLOCK_BYTES || !is_ring(found.sq.wqe_cnt, queue->send_places)) {
            return EOPNOTSUPP;
        }
        queue->sends = (struct send_queue){.buffer = found.sq.buf,
                                           .mask = found.sq.wqe_cnt - 1,
                                           .number = queue->device.qp->qp_num,
                                           .record = &found.dbrec[MLX5_SND_DBR],
                                           .doorbell = mlx5_doorbell_take(nic, &found)};
        if (!queue->sends.doorbell) {
            return ENOMEM;
        }
    }
    if (options->receives > 0) {
        if (!is_ring(found.rq.wqe_cnt, queue->receive_places)) {
            return EOPNOTSUPP;
        }
        queue->receive_buffer = found.rq.buf;
        queue->receive_stride = found.rq.stride;
        queue->receive_record = &found.dbrec[MLX5_RCV_DBR];
        queue->base.receives_max = found.rq.wqe_cnt;
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
    queue->srq = ibv_create_srq(device_pd(&nic->device, domain), &attributes);
    if (!queue->srq) {
        return errno;
    }
    object.srq.in = queue->srq;
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ);
    if (os_error) {
        return os_error;
    }
    if (!is_ring(found.tail + 1, queue->receive_places)) {
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
    queue->base.receives_max = found.tail; /* the last of the list is never used */
    return 0;
}

/* What the device has of a queue, and its places in completion queues. */
static void dismantle(struct mlx5_nic *nic, struct mlx5_queue *queue)
{
    struct nic_queue *base = &queue->base;
    if (queue->device.qp) {
        mlx5_qp_destroy(nic, queue->device.qp);
    }
    if (queue->srq) {
        ibv_destroy_srq(queue->srq);
    }
    mlx5_doorbell_give(nic, queue->sends.doorbell);
    nic_queue_end_results(base);
    give_places(nic, (enum nic_queue_table)base->table, queue->send_source, queue->send_places);
    give_places(nic, base->kind == NIC_QUEUE_SRQ ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES,
                queue->receive_source, queue->receive_places);
}

/* Its places in completion queues, its rings, and its tables as long as these. */
static int make_rings(struct mlx5_nic *nic, struct nic_domain *domain,
                      const struct nic_queue_options *options, struct mlx5_queue *queue)
{
    struct nic_queue *base = &queue->base;
    bool srq = options->kind == NIC_QUEUE_SRQ;
    int os_error = 0;
    if (options->sends > 0) {
        os_error = take_places(nic, (enum nic_queue_table)options->table, blocks_most(options),
                               &queue->send_source);
        queue->send_places = blocks_most(options);
    }
    if (os_error == 0 && options->receives > 0) {
        os_error = take_places(nic, srq ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES,
                               receives_most(options), &queue->receive_source);
        queue->receive_places = receives_most(options);
    } else if (os_error == 0 && base->receiver) {
        queue->receive_source = to_mlx5_queue(base->receiver)->receive_source;
    }
    if (os_error == 0) {
        os_error =
            srq ? create_srq(nic, domain, options, queue) : create_qp(nic, domain, options, queue);
    }
    if (os_error == 0 && !srq) {
        os_error = find_rings(nic, options, queue);
    }
    if (os_error) {
        return os_error;
    }
    uint32_t blocks = options->sends > 0 ? queue->sends.mask + 1 : 0;
    uint32_t receives = srq ? base->receives_max + 1 : base->receives_max;
    keep_places(queue->send_source, &queue->send_places, blocks);
    keep_places(queue->receive_source, &queue->receive_places, receives);
    return nic_queue_make_tables(base, blocks, receives) ? 0 : ENOMEM;
}

static int32_t make(struct mlx5_nic *nic, struct nic_domain *domain,
                    const struct nic_queue_options *options, struct mlx5_queue *queue,
                    crpc_error *error)
{
    struct nic *base = &nic->device.base;
    int os_error = make_rings(nic, domain, options, queue);
    if (os_error) {
        return device_blame(error, os_error, 0, base->device, "create a queue");
    }
    int32_t status = nic_queue_make_results(&queue->base, domain, error);
    if (status != CRPC_OK || options->kind == NIC_QUEUE_SRQ) {
        return status;
    }
    os_error = device_queue_init(&nic->device, &queue->device, &queue->base, queue->device.qp);
    if (os_error) {
        return device_blame(error, os_error, 0, nic->device.base.device, "create a queue");
    }
    queue->base.pair = &queue->device.base;
    return CRPC_OK;
}

static int32_t queue_create(struct nic *nic, struct nic_domain *domain,
                            const struct nic_queue_options *options, struct nic_queue **result,
                            crpc_error *error)
{
    struct mlx5_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
    }
    nic_queue_init(&queue->base, nic, options);
    int32_t status = make(to_mlx5_nic(nic), domain, options, queue, error);
    if (status != CRPC_OK) {
        dismantle(to_mlx5_nic(nic), queue);
        nic_queue_leave(&queue->base);
        nic_queue_release(&queue->base);
        free(queue);
        return status;
    }
    *result = &queue->base;
    return CRPC_OK;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void queue_flush(struct nic_queue *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    assert(base->pair && !base->stopped);
    base->failed = true;
    ibv_modify_qp(device_qp(base->pair), &attributes, IBV_QP_STATE);
    mlx5_queue_ring(
        base); /* what was posted but not rung is promised a flush like everything else */
}

/* An entry of a queue pair that is gone. A receive of an SRQ that it names completes all the same. */
static void removed(void *argument, const struct mlx5_cqe64 *entry)
{
    const struct nic_queue *queue = argument;
    uint8_t opcode = completion_opcode(entry);
    if (queue->receiver && queue->receiver != queue && opcode != MLX5_CQE_REQ &&
        opcode != MLX5_CQE_REQ_ERR) {
        nic_queue_end_receive(queue->receiver, be16toh(entry->wqe_counter));
    }
}

/* Once ibv_destroy_qp has returned no entry of the queue pair appears any more. */
static void queue_stop(struct nic_queue *base)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    assert(!base->stopped && base->users == 0);
    if (base->pair) {
        uint32_t number = base->pair->number;
        queue_flush(base);
        device_queue_forget(&nic->device, base->pair);
        mlx5_qp_destroy(nic, queue->device.qp);
        queue->device.qp = NULL;
        if (queue->send_source) {
            completion_queue_remove(&queue->send_source->completions, number, removed, base);
        }
        if (queue->receive_source) {
            completion_queue_remove(&queue->receive_source->completions, number, removed, base);
        }
    }
    base->stopped = true;
    nic_queue_leave(base);
    dismantle(nic, queue);
    base->pair = NULL;
    queue->srq = NULL;
    queue->sends.doorbell = NULL;
    queue->send_source = queue->receive_source = NULL;
}

static void queue_give_back(struct nic_queue *base, uint32_t index)
{
    receive_queue_free(&to_mlx5_queue(base)->list, index);
}

static void queue_destroy(struct nic_queue *base)
{
    assert(base->stopped);
    nic_queue_release(base);
    free(to_mlx5_queue(base));
}

const struct nic_queue_operations mlx5_queue_operations = {
    .create = queue_create,
    .flush = queue_flush,
    .stop = queue_stop,
    .destroy = queue_destroy,
    .post = mlx5_queue_post,
    .receive = mlx5_queue_receive,
    .ring = mlx5_queue_ring,
    .poll = mlx5_queue_poll,
    .give_back = queue_give_back,
};

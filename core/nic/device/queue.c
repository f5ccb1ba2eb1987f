/* queue.c: see queue.h. */
#include "nic/device/queue.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"

#define SOURCE_ENTRIES 16384u /* of a completion queue, unless one queue alone needs more */

/* ---- Places in completion queues ------------------------------------------------------------- */

static enum nic_queue_table receive_table(const struct nic_queue *base)
{
    return nic_kind_is_shared(base->kind) ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES;
}

/* Takes so many places in a completion queue of this table. */
static int take(const struct device_queue *queue, enum nic_queue_table table, uint32_t places,
                struct device_source **taken)
{
    struct device_nic *nic = to_device_nic(queue->base.nic);
    const bool tags = queue->base.kind == NIC_QUEUE_TM_SRQ;
    struct device_source *source = nic->queue_sources[table];
    while (source && (source->places_left < places || source->tags != tags)) {
        source = source->next;
    }
    if (!source) {
        const uint32_t entries = (uint32_t)maximum(places, SOURCE_ENTRIES);
        source = tags ? queue->driver->make_tag_source(nic, entries)
                      : queue->driver->make_source(nic, entries);
        if (!source) {
            return errno ? errno : ENOMEM;
        }
        source->tags = tags;
        source->next = nic->queue_sources[table];
        nic->queue_sources[table] = source;
    }
    source->places_left -= places;
    source->queues++;
    *taken = source;
    return 0;
}

int device_queue_take_places(struct device_queue *queue, uint32_t sends, uint32_t receives)
{
    struct nic_queue *base = &queue->base;
    int os_error = 0;
    queue->send_places = sends;
    queue->receive_places = receives;
    if (sends > 0) {
        os_error = take(queue, (enum nic_queue_table)base->table, sends, &queue->send_source);
    }
    if (os_error == 0 && receives > 0) {
        os_error = take(queue, receive_table(base), receives, &queue->receive_source);
    } else if (os_error == 0 && base->receiver) {
        queue->receive_source = to_device_queue(base->receiver)->receive_source;
    }
    return os_error;
}

int device_queue_keep_srq(struct device_queue *queue, struct ibv_srq *srq)
{
    if (!srq) {
        return errno;
    }
    srq->srq_context = &queue->base;
    queue->srq = srq;
    return 0;
}

static void keep(struct device_source *source, uint32_t *places, uint32_t needed)
{
    if (source && *places > needed) {
        source->places_left += *places - needed;
        *places = needed;
    }
}

struct ibv_qp *device_queue_qp_create(struct device_nic *nic,
                                      struct ibv_qp_init_attr_ex *attributes)
{
    struct mlx5dv_qp_init_attr direct = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                                         .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE};
    return mlx5dv_is_supported(nic->context->device)
               ? mlx5dv_create_qp(nic->context, attributes, &direct)
               : ibv_create_qp_ex(nic->context, attributes);
}

void device_queue_keep_places(struct device_queue *queue, uint32_t sends, uint32_t receives)
{
    keep(queue->send_source, &queue->send_places, sends);
    keep(queue->receive_source, &queue->receive_places, receives);
}

static void give(const struct device_queue *queue, enum nic_queue_table table,
                 struct device_source *source, uint32_t places)
{
    struct device_nic *nic = to_device_nic(queue->base.nic);
    if (!source || places == 0) {
        return;
    }
    source->places_left += places;
    if (--source->queues > 0) {
        return;
    }
    struct device_source **link = &nic->queue_sources[table];
    while (*link != source) {
        link = &(*link)->next;
    }
    *link = source->next;
    queue->driver->end_source(source);
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* What the device has of a queue, and its places in completion queues. */
static void dismantle(struct device_queue *queue)
{
    struct nic_queue *base = &queue->base;
    queue->driver->dismantle(queue);
    if (queue->srq) {
        ibv_destroy_srq(queue->srq);
    }
    nic_queue_end_results(base);
    give(queue, (enum nic_queue_table)base->table, queue->send_source, queue->send_places);
    give(queue, receive_table(base), queue->receive_source, queue->receive_places);
}

/* Says what was asked for: it may be too much. */
static int32_t blame(const struct device_queue *queue, const struct nic_queue_options *options,
                     int os_error, crpc_error *error)
{
    char what[160];
    const bool is_dc = options->kind == NIC_QUEUE_DCI || options->kind == NIC_QUEUE_DCT;
    if (is_dc && !queue->pair.qp && os_error == EOPNOTSUPP) {
        return error_set(error, CRPC_E_UNSUPPORTED, os_error,
                         "%s has no dynamically connected transport (DC)", queue->base.nic->device);
    }
    snprintf(what, sizeof(what),
             "create a queue with %u sends of %u pieces or %u bytes inline, and %u receives of %u "
             "pieces",
             options->sends, options->send_pieces, options->inline_bytes, options->receives,
             options->receive_pieces);
    return device_blame(error, os_error, 0, queue->base.nic->device, what);
}

static int32_t check_room(const struct device_queue_driver *driver, struct nic *nic,
                          const struct nic_queue_options *options, crpc_error *error)
{
    uint32_t sends_max =
        options->sends > 0 ? driver->sends_max(to_device_nic(nic), options) : UINT32_MAX;
    if (options->sends <= sends_max) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_NO_RESOURCE, 0,
                     "%s: sends is %u; with send_pieces %u and inline_bytes %u, a queue has room "
                     "for at most %u",
                     nic->device, options->sends, options->send_pieces, options->inline_bytes,
                     sends_max);
}

static int32_t make(struct device_queue *queue, struct nic_domain *domain,
                    const struct nic_queue_options *options, crpc_error *error)
{
    struct nic_queue *base = &queue->base;
    struct device_nic *nic = to_device_nic(base->nic);
    int os_error = queue->driver->make_rings(queue, domain, options);
    if (os_error) {
        return blame(queue, options, os_error, error);
    }
    int32_t status = nic_queue_make_results(base, domain, error);
    if (status != CRPC_OK || nic_kind_is_shared(options->kind)) {
        return status;
    }
    os_error = device_queue_init(nic, &queue->pair, base, queue->pair.qp);
    if (os_error) {
        return blame(queue, options, os_error, error);
    }
    base->pair = &queue->pair.base;
    if (options->sequence_zero) {
        queue->pair.packet_sequence_number = 0;
    }
    os_error = options->kind == NIC_QUEUE_UD    ? device_queue_ready(base)
               : options->kind == NIC_QUEUE_DCI ? device_dci_ready(base->pair, &options->transport)
                                                : 0;
    if (os_error) {
        device_queue_forget(nic, base->pair);
        return device_blame(error, os_error, 0, nic->base.device,
                            "make a queue without a peer ready to send");
    }
    return CRPC_OK;
}

int32_t device_queue_create(const struct device_queue_driver *driver, struct nic *nic,
                            struct nic_domain *domain, const struct nic_queue_options *options,
                            struct nic_queue **result, crpc_error *error)
{
    int32_t status = nic_queue_check_kind(nic, options->kind, error);
    if (status == CRPC_OK) {
        status = check_room(driver, nic, options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    struct device_queue *queue = lines_alloc(1, driver->queue_bytes);
    if (!queue) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
    }
    queue->driver = driver;
    nic_queue_init(&queue->base, nic, options);
    status = make(queue, domain, options, error);
    if (status != CRPC_OK) {
        dismantle(queue);
        nic_queue_leave(&queue->base);
        nic_queue_release(&queue->base);
        free(queue);
        return status;
    }
    *result = &queue->base;
    return CRPC_OK;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

void device_queue_flush(struct nic_queue *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    assert(base->pair && !base->stopped && base->kind != NIC_QUEUE_DCT);
    base->failed = true;
    ibv_modify_qp(device_qp(base->pair), &attributes, IBV_QP_STATE);
    /* What was posted but not rung is promised a flush like everything else. */
    base->nic->operations->queues->ring(base);
}

void device_queue_end(struct device_queue *queue)
{
    struct nic_queue *base = &queue->base;
    base->stopped = true;
    nic_queue_leave(base);
    dismantle(queue);
    base->pair = NULL;
    queue->srq = NULL;
    queue->send_source = queue->receive_source = NULL;
}

void device_queue_destroy(struct nic_queue *base)
{
    assert(base->stopped);
    nic_queue_release(base);
    free(to_device_queue(base));
}

/* ---- Polling --------------------------------------------------------------------------------- */

void device_pass_turn(struct device_nic *nic, enum nic_queue_table table, uint32_t turn)
{
    struct device_source *first = nic->queue_sources[table];
    struct device_source **end = &nic->queue_sources[table];
    if (first && first->next) {
        nic->queue_sources[table] = first->next;
        while (*end) {
            end = &(*end)->next;
        }
        first->next = NULL;
        *end = first;
    }
    nic->queue_turn = (turn + 1) % NIC_TABLES;
}

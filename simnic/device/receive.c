/* receive.c: receive WQEs: taken from a receive queue or an SRQ, and written to (PRM, "Receive
 * Queue" and "Shared Receive Queue"). The program posts by advancing the doorbell record alone; no
 * doorbell page is involved. */
#include "device.h"
#include "dma.h"

#include <stdlib.h>
#include <string.h>

struct shared_receive_queue *srq_create(struct device *device)
{
    uint32_t number =
        device_free_number(device->shared_receive_queues, DEVICE_MAX_SHARED_RECEIVE_QUEUES,
                           &device->shared_receive_queue_last);
    struct shared_receive_queue *srq = number ? calloc(1, sizeof(*srq)) : NULL;
    if (!srq) {
        return NULL;
    }
    srq->number = number;
    list_append(&device->all_shared_receive_queues, &srq->all);
    device->shared_receive_queues[number] = srq;
    return srq;
}

void srq_destroy(struct device *device, struct shared_receive_queue *srq)
{
    if (srq->xrc_domain) {
        xrc_forget(device, srq);
    }
    list_remove(&srq->all);
    device->shared_receive_queues[srq->number] = NULL;
    free(srq->tags);
    free(srq);
}

/* Reads the scatter list of a receive WQE into qp->receive. */
static bool read_scatter_list(struct queue_pair *qp, const uint8_t *wqe, uint32_t segments)
{
    struct mlx5_wqe_data_seg list[DEVICE_MAX_RECEIVE_SGE];
    struct receive_request *receive = &qp->receive;
    if (segments > DEVICE_MAX_RECEIVE_SGE) {
        segments = DEVICE_MAX_RECEIVE_SGE;
    }
    receive->segments = 0;
    receive->capacity = 0;
    if (!dma_copy(list, wqe, segments * sizeof(list[0]))) {
        return false;
    }
    for (uint32_t i = 0; i < segments; i++) {
        struct segment s = {be64toh(list[i].addr), be32toh(list[i].byte_count),
                            be32toh(list[i].lkey)};
        if (s.key == TERMINATOR_KEY) {
            break;
        }
        if (s.bytes == 0) {
            s.bytes = 1u << 31;
        }
        receive->segment[receive->segments++] = s;
        receive->capacity += s.bytes;
    }
    return true;
}

static void check_limit(struct device *device, struct shared_receive_queue *srq, uint16_t producer)
{
    if (srq->limit == 0 || (uint16_t)(producer - srq->taken) >= srq->limit) {
        return;
    }
    srq->limit = 0; /* once, until it is armed again */
    device->host.async_event(device->host.context, EVENT_SRQ_LIMIT_REACHED, 0, srq->owner);
}

static enum receive_result take_from_srq(struct device *device, struct queue_pair *qp)
{
    struct shared_receive_queue *srq = qp->shared_receive_queue;
    uint32_t raw;
    if (!dma_load32(srq->record, &raw)) {
        return RECEIVE_EMPTY; /* nobody can post any more */
    }
    uint16_t producer = (uint16_t)be32toh(raw);
    if (producer == srq->taken) {
        return RECEIVE_EMPTY;
    }
    const uint8_t *wqe = srq->buffer + ((size_t)srq->head << srq->entry_shift);
    struct mlx5_wqe_srq_next_seg next;
    qp->receive.index = srq->head;
    if (!dma_copy(&next, wqe, sizeof(next))) {
        return RECEIVE_WRONG;
    }
    bool good =
        read_scatter_list(qp, wqe + sizeof(next), ((1u << srq->entry_shift) - sizeof(next)) / 16);
    srq->head = (uint16_t)(be16toh(next.next_wqe_index) & (srq->entries - 1));
    srq->taken++;
    check_limit(device, srq, producer);
    return good ? RECEIVE_OK : RECEIVE_WRONG;
}

static enum receive_result take_from_queue(struct queue_pair *qp)
{
    uint32_t raw;
    if (qp->receive_entries == 0) {
        return RECEIVE_EMPTY;
    }
    if (!dma_load32(qp->record, &raw)) {
        return RECEIVE_EMPTY; /* nobody can post any more */
    }
    uint16_t producer = (uint16_t)be32toh(raw);
    if (producer == qp->receive_next) {
        return RECEIVE_EMPTY;
    }
    size_t at = (size_t)(qp->receive_next & (qp->receive_entries - 1)) << qp->receive_shift;
    uint32_t skip = qp->receive_signature ? 1 : 0;
    qp->receive.index = qp->receive_next;
    bool good = read_scatter_list(qp, qp->receive_buffer + at + 16 * skip,
                                  (1u << qp->receive_shift) / 16 - skip);
    qp->receive_next++;
    return good ? RECEIVE_OK : RECEIVE_WRONG;
}

enum receive_result receive_take(struct device *device, struct queue_pair *qp)
{
    enum receive_result result =
        qp->shared_receive_queue ? take_from_srq(device, qp) : take_from_queue(qp);
    if (result != RECEIVE_EMPTY) {
        qp->receive.taken = true;
        qp->statistics->receive_wqes++;
    }
    return result;
}

uint8_t receive_scatter(struct device *device, struct queue_pair *qp, uint32_t offset,
                        const uint8_t *payload, uint32_t bytes)
{
    const struct receive_request *receive = &qp->receive;
    if ((uint64_t)offset + bytes > receive->capacity) {
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    }
    uint32_t domain = qp->shared_receive_queue ? qp->shared_receive_queue->domain : qp->domain;
    uint32_t skip = offset;
    for (uint32_t i = 0; i < receive->segments && bytes; i++) {
        const struct segment *s = &receive->segment[i];
        if (skip >= s->bytes) {
            skip -= s->bytes;
            continue;
        }
        uint32_t part = s->bytes - skip < bytes ? s->bytes - skip : bytes;
        uint8_t *to =
            key_translate(device, s->key, s->address + skip, part, ACCESS_LOCAL_WRITE, domain);
        if (!to || !dma_copy(to, payload, part)) {
            return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        }
        payload += part;
        bytes -= part;
        skip = 0;
    }
    return 0;
}

/* receive.c: receive WQEs: they are taken from a receive queue or an SRQ, and messages are written
 * to their memory (PRM, "Receive Queue" and "Shared Receive Queue"). A program posts them by its
 * doorbell record alone, without a doorbell page. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/nic/tag.h"

/* Posting a receive rings nothing. So the doorbell record of a QP in error is looked at for a
 * while: programs post one more receive to such a QP, to learn from its completion that all are
 * flushed. */
#define LATE_LOOKS 300
#define LATE_LOOK_NS 10000000u
#define EARLY_LOOKS 100 /* the first looks are closer to each other */
#define EARLY_LOOK_NS 1000000u

struct shared_receive_queue *srq_create(struct nic *nic)
{
    uint32_t number = nic_free_number(nic->shared_receive_queues, NIC_MAX_SHARED_RECEIVE_QUEUES,
                                      &nic->shared_receive_queue_last);
    struct shared_receive_queue *srq = number ? calloc(1, sizeof(*srq)) : NULL;
    if (!srq) {
        return NULL;
    }
    srq->number = number;
    list_append(&nic->all_shared_receive_queues, &srq->all);
    nic->shared_receive_queues[number] = srq;
    return srq;
}

void srq_destroy(struct nic *nic, struct shared_receive_queue *srq)
{
    if (srq->xrc_domain) {
        xrc_forget(nic, srq);
    }
    list_remove(&srq->all);
    nic->shared_receive_queues[srq->number] = NULL;
    free(srq->tags);
    free(srq);
}

/* Reads the scatter list of a receive WQE into qp->receive. */
static bool read_scatter_list(struct queue_pair *qp, const uint8_t *wqe, uint32_t segments)
{
    struct mlx5_wqe_data_seg list[NIC_MAX_RECEIVE_SGE];
    struct receive_request *receive = &qp->receive;
    if (segments > NIC_MAX_RECEIVE_SGE) {
        segments = NIC_MAX_RECEIVE_SGE;
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

static void check_limit(struct nic *nic, struct shared_receive_queue *srq, uint16_t producer)
{
    if (srq->limit == 0 || (uint16_t)(producer - srq->taken) >= srq->limit) {
        return;
    }
    srq->limit = 0; /* once, until it is armed again */
    nic->host.async_event(nic->host.context, EVENT_SRQ_LIMIT_REACHED, 0, srq->owner);
}

static enum receive_result take_from_srq(struct nic *nic, struct queue_pair *qp)
{
    struct shared_receive_queue *srq = qp->shared_receive_queue;
    uint32_t raw;
    if (!dma_load32(srq->record, &raw)) {
        return RECEIVE_EMPTY; /* nobody can post any more */
    }
    uint16_t producer = (uint16_t)be32toh(raw);
    if (producer == srq->taken ||
        (nic_has_quirk(nic, QUIRK_RECEIVE_RING) && producer < srq->taken)) {
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
    check_limit(nic, srq, producer);
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

enum receive_result receive_take(struct nic *nic, struct queue_pair *qp)
{
    enum receive_result result =
        qp->shared_receive_queue ? take_from_srq(nic, qp) : take_from_queue(qp);
    if (result != RECEIVE_EMPTY) {
        qp->receive.taken = true;
        qp->statistics->receive_wqes++;
    }
    return result;
}

uint8_t receive_scatter(struct nic *nic, struct queue_pair *qp, uint32_t offset,
                        const uint8_t *payload, uint32_t bytes)
{
    const struct receive_request *receive = &qp->receive;
    if ((uint64_t)offset + bytes > receive->capacity) {
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    }
    uint32_t domain = qp->shared_receive_queue ? qp->shared_receive_queue->domain : qp->domain;
    return segments_scatter(nic, qp, false, receive->segment, receive->segments, domain, offset,
                            payload, bytes);
}

/* ---- flushing ---- */

static void flush_posted(struct nic *nic, struct queue_pair *qp)
{
    if (qp->receive.taken && !tag_abandon(nic, qp)) {
        cq_write_error(nic, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
    }
    qp->receive.taken = false;
    if (qp->shared_receive_queue) {
        if (held_wait(nic, qp)) {
            return;
        }
        if (!qp->last_wqe_told) {
            qp_event(nic, qp, EVENT_QP_LAST_WQE_REACHED);
        }
        qp->last_wqe_told = true;
        return;
    }
    while (receive_take(nic, qp) != RECEIVE_EMPTY) {
        qp->receive.taken = false;
        cq_write_error(nic, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
        if (qp->receive_queue_completions->overrun) {
            break;
        }
    }
}

void receive_flush_late(struct nic *nic, struct queue_pair *qp)
{
    qp->timer_ns = 0;
    flush_posted(nic, qp);
    if (qp->shared_receive_queue || qp->receive_entries == 0 || ++qp->late_looks > LATE_LOOKS) {
        return;
    }
    qp->timer_ns = nic->now_ns + (qp->late_looks < EARLY_LOOKS ? EARLY_LOOK_NS : LATE_LOOK_NS);
    qp_wake_at(nic, qp, qp->timer_ns);
}

void receive_flush(struct nic *nic, struct queue_pair *qp)
{
    qp->late_looks = 0;
    receive_flush_late(nic, qp);
}

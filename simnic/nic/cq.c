/* cq.c: completion queues: writing CQEs (PRM, "Completion Queue Entry"), arming, overruns. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/nic/tag.h"

#define INDEX_MASK 0xffffffu /* consumer and producer indices have 24 bits in doorbell records */
#define ARM_SOLICITED (1u << 24)

struct completion_queue *cq_create(struct nic *nic)
{
    uint32_t number = nic_free_number(nic->completion_queues, NIC_MAX_COMPLETION_QUEUES,
                                      &nic->completion_queue_last);
    struct completion_queue *cq = number ? calloc(1, sizeof(*cq)) : NULL;
    if (!cq) {
        return NULL;
    }
    cq->number = number;
    list_append(&nic->all_completion_queues, &cq->all);
    nic->completion_queues[number] = cq;
    return cq;
}

void cq_destroy(struct nic *nic, struct completion_queue *cq)
{
    list_remove(&cq->all);
    nic->completion_queues[cq->number] = NULL;
    if (cq->compression) {
        compression_destroy(cq);
    }
    free(cq);
}

uint8_t *cq_entry(const struct completion_queue *cq, uint32_t index)
{
    uint8_t *entry = cq->buffer + (size_t)(index & (cq->entries - 1)) * cq->entry_bytes;
    return entry + (cq->entry_bytes - 64); /* the last 64 bytes of a 128-byte entry are the CQE */
}

uint8_t cq_owner(const struct completion_queue *cq, uint32_t index)
{
    return (index & cq->entries) ? 1 : 0;
}

uint32_t cq_inline_bytes(const struct completion_queue *cq)
{
    return cq->entry_bytes == 128 ? 64 : 32;
}

/* The word with the owner bit goes last, whole: a program that sees it sees the rest (PRM: CQE
 * ownership). */
bool cq_put(const struct completion_queue *cq, uint32_t index, const void *bytes)
{
    uint8_t *entry = cq_entry(cq, index);
    uint64_t last;
    memcpy(&last, (const uint8_t *)bytes + 56, sizeof(last));
    return dma_copy(entry, bytes, 56) && dma_store64(entry + 56, last);
}

static bool full(const struct nic *nic, struct completion_queue *cq)
{
    if (((cq->producer - cq->consumer) & INDEX_MASK) < cq->entries) {
        return false;
    }
    uint32_t value;
    if (dma_load32(cq->record, &value)) {
        cq->consumer = be32toh(value) & INDEX_MASK;
        if (nic_has_quirk(nic, QUIRK_COMPLETION_COUNTER)) {
            cq->consumer &= 0xffff;
        }
    }
    return ((cq->producer - cq->consumer) & INDEX_MASK) >= cq->entries;
}

/* A CQ without room is broken for good, and so are the QPs that complete to it (IBTA 11.6.3.1). */
void cq_overrun(struct nic *nic, struct completion_queue *cq)
{
    if (cq && cq->compression) {
        compression_flush(nic, cq); /* completions before this one are still told */
    }
    if (!cq || cq->overrun) {
        return;
    }
    cq->overrun = true;
    nic->host.async_event(nic->host.context, EVENT_CQ_ERR, 0, cq->owner);
    for (struct list *l = nic->all_queue_pairs.next; l != &nic->all_queue_pairs; l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, all);
        if (qp->send_queue_completions == cq || qp->receive_queue_completions == cq) {
            qp_event(nic, qp, EVENT_QP_FATAL);
            qp_fail(nic, qp);
        }
    }
}

void cq_fire(struct nic *nic, struct completion_queue *cq)
{
    cq->armed = false;
    cq->last_notified = cq->producer;
    nic->host.completion_event(nic->host.context, cq->owner);
}

/* Inline data is in the first 32 bytes of the CQE or, in an entry of 128 bytes, in the 64 bytes
 * before the CQE. Returns the format that says so. */
static uint8_t place_inline(const struct completion_queue *cq, const struct cqe *cqe,
                            uint8_t *bytes)
{
    static const uint8_t zeros[64];
    if (cq->pads && cqe->inline_bytes <= 32) {
        dma_copy(cq_entry(cq, cq->producer) - 64, zeros, sizeof(zeros));
    }
    if (!cqe->inline_bytes) {
        return 0;
    }
    if (cq->entry_bytes == 128 && cqe->inline_bytes > 32) {
        dma_copy(cq_entry(cq, cq->producer) - 64, cqe->inline_data, 64);
        return MLX5_INLINE_SCATTER_64;
    }
    memcpy(bytes, cqe->inline_data, 32);
    return MLX5_INLINE_SCATTER_32;
}

void cq_write(struct nic *nic, struct completion_queue *cq, struct cqe *cqe)
{
    if (cq->overrun) {
        return;
    }
    if (full(nic, cq)) {
        cq_overrun(nic, cq);
        return;
    }
    if (cq->compression && compression_take(nic, cq, cqe)) {
        return;
    }
    bool error = cqe->opcode == MLX5_CQE_REQ_ERR || cqe->opcode == MLX5_CQE_RESP_ERR;
    if (!error) {
        cqe->fields.timestamp = htobe64(nic->now_ns);
    }
    uint8_t bytes[64];
    memcpy(bytes, &cqe->fields, sizeof(bytes));
    bytes[63] =
        (uint8_t)(cqe->opcode << 4 | place_inline(cq, cqe, bytes) | cq_owner(cq, cq->producer));
    if (nic_has_quirk(nic, QUIRK_COMPLETION_RING)) {
        bytes[63] &= (uint8_t)~MLX5_CQE_OWNER_MASK;
    }
    if (!cq_put(cq, cq->producer, bytes)) {
        cq_overrun(nic, cq); /* the program took the memory away, so nothing can be told there */
        return;
    }
    cq->producer++;
    if (nic->tracing) {
        nic->host.trace(nic->host.context, FABRIC_TRACE_CQE, cq->number, bytes, sizeof(bytes));
    }
    if (cqe->solicited || error) {
        cq->last_solicited = cq->producer;
    }
    if (cq->armed && (!cq->armed_solicited || cqe->solicited || error)) {
        cq_fire(nic, cq);
    }
}

static uint8_t vendor_syndrome(uint8_t syndrome)
{
    /* No public document lists these. ConnectX adapters are reported to give them. */
    switch (syndrome) {
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
        return 0xf9;
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
        return 0x81;
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
        return 0x87;
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
        return 0x88;
    case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
        return 0x89;
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
        return 0x8a;
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
        return 0x51;
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
        return 0x32;
    default:
        return 0x68;
    }
}

void cq_write_error(struct nic *nic, struct queue_pair *qp, bool requester, uint8_t syndrome,
                    uint8_t opcode, uint16_t wqe_counter)
{
    late_land_all(nic, qp);            /* what was posted may be of no use to the NIC any more */
    if (requester && qp->rendezvous) { /* it is a request of the NIC's own */
        rendezvous_fail(nic, qp, syndrome, wqe_counter);
        return;
    }
    struct cqe cqe = {.opcode = requester ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR};
    struct mlx5_err_cqe *fields = (struct mlx5_err_cqe *)(void *)&cqe.fields;
    const struct shared_receive_queue *srq = requester ? NULL : qp->shared_receive_queue;
    fields->srqn = htobe32(qp->user_index & INDEX_MASK);
    if (srq && srq->completion_queue) {
        fields->srqn = htobe32(srq->user_index);
    }
    fields->vendor_err_synd = vendor_syndrome(syndrome);
    fields->syndrome = syndrome;
    fields->s_wqe_opcode_qpn = htobe32((uint32_t)opcode << 24 | qp->number);
    if (nic_has_quirk(nic, QUIRK_ERROR_COMPLETION) && requester &&
        syndrome != MLX5_CQE_SYNDROME_WR_FLUSH_ERR) {
        wqe_counter++;
    }
    fields->wqe_counter = htobe16(wqe_counter);
    struct completion_queue *cq =
        requester ? qp->send_queue_completions : qp->receive_queue_completions;
    if (cq) {
        cq_write(nic, cq, &cqe);
        if (nic_has_quirk(nic, QUIRK_FLUSH_ROOM) && syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR) {
            cq_write(nic, cq, &cqe);
        }
    }
    if (requester) {
        qp->statistics->send_cqes++;
    } else {
        qp->statistics->receive_cqes++;
    }
}

/* Whether one index of 24 bits is behind another. */
static bool is_later(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & INDEX_MASK;
    return ahead != 0 && ahead < 1u << 23;
}

void cq_look_at_arm(struct nic *nic, struct completion_queue *cq)
{
    uint32_t raw;
    if (!dma_load32(cq->record + 4, &raw) || raw == cq->arm_value) {
        return;
    }
    cq->arm_value = raw;
    if (cq->vector > 0 && nic_has_quirk(nic, QUIRK_VECTORS)) {
        return;
    }
    uint32_t value = be32toh(raw);
    uint32_t consumer = value & INDEX_MASK;
    cq->armed = !nic_has_quirk(nic, QUIRK_ARM);
    cq->armed_solicited = value & ARM_SOLICITED;
    /* A completion between the program's last look and its arming fires at once, unless an event
     * has told of it already: programs arm before they poll what they were told of (PRM: CQ
     * context, last_notified_index). */
    uint32_t newest = cq->armed_solicited ? cq->last_solicited : cq->producer;
    uint32_t told = is_later(cq->last_notified, consumer) ? cq->last_notified : consumer;
    if (is_later(newest, told) && !nic_has_quirk(nic, QUIRK_ARM_LATE)) {
        cq_fire(nic, cq);
    }
}

void cq_look_at_arms(struct nic *nic)
{
    for (struct list *l = nic->all_completion_queues.next; l != &nic->all_completion_queues;
         l = l->next) {
        cq_look_at_arm(nic, container_of(l, struct completion_queue, all));
    }
}

bool cq_resize(struct nic *nic, struct completion_queue *cq, uint8_t *buffer, uint32_t entries,
               uint32_t entry_bytes)
{
    uint32_t value;
    if (!dma_load32(cq->record, &value)) {
        return false;
    }
    cq->consumer = be32toh(value) & INDEX_MASK;
    if (((cq->producer - cq->consumer) & INDEX_MASK) >= entries) {
        return false;
    }
    /* A CQE of its own marks the end of the old buffer. libmlx5 copies what is before it to the new
     * one. */
    if (cq->compression) {
        compression_end(nic, cq);
    }
    uint8_t bytes[64] = {0};
    bytes[63] = (uint8_t)(MLX5_CQE_RESIZE_CQ << 4 | cq_owner(cq, cq->producer));
    if (((cq->producer - cq->consumer) & INDEX_MASK) < cq->entries) {
        cq_put(cq, cq->producer, bytes);
    }
    cq->buffer = buffer;
    cq->entries = entries;
    cq->entry_bytes = entry_bytes;
    cq->last_solicited++;
    cq->last_notified++;
    cq->producer++; /* the marker has a place in the new buffer too */
    return true;
}

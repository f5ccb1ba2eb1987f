/* cq.c: completion queues: writing CQEs (PRM, "Completion Queue Entry"), arming, overruns. */
#include "device.h"
#include "dma.h"
#include "tag.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_MASK 0xffffffu /* consumer and producer indices have 24 bits in doorbell records */
#define ARM_SOLICITED (1u << 24)

struct completion_queue *cq_create(struct device *device)
{
    uint32_t number = device_free_number(device->completion_queues, DEVICE_MAX_COMPLETION_QUEUES,
                                         &device->completion_queue_last);
    struct completion_queue *cq = number ? calloc(1, sizeof(*cq)) : NULL;
    if (!cq) {
        return NULL;
    }
    cq->number = number;
    list_append(&device->all_completion_queues, &cq->all);
    device->completion_queues[number] = cq;
    return cq;
}

void cq_destroy(struct device *device, struct completion_queue *cq)
{
    list_remove(&cq->all);
    device->completion_queues[cq->number] = NULL;
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

static bool full(struct completion_queue *cq)
{
    if (((cq->producer - cq->consumer) & INDEX_MASK) < cq->entries) {
        return false;
    }
    uint32_t value;
    if (dma_load32(cq->record, &value)) {
        cq->consumer = be32toh(value) & INDEX_MASK;
    }
    return ((cq->producer - cq->consumer) & INDEX_MASK) >= cq->entries;
}

/* A CQ without room is broken for good, and so are the QPs that complete to it (IBTA 11.6.3.1). */
void cq_overrun(struct device *device, struct completion_queue *cq)
{
    if (cq && cq->compression) {
        compression_flush(device, cq); /* what came before is still told */
    }
    if (!cq || cq->overrun) {
        return;
    }
    cq->overrun = true;
    device->host.async_event(device->host.context, EVENT_CQ_ERR, 0, cq->owner);
    for (struct list *l = device->all_queue_pairs.next; l != &device->all_queue_pairs;
         l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, all);
        if (qp->send_queue_completions == cq || qp->receive_queue_completions == cq) {
            qp_event(device, qp, EVENT_QP_FATAL);
            qp_fail(device, qp);
        }
    }
}

void cq_fire(struct device *device, struct completion_queue *cq)
{
    cq->armed = false;
    cq->last_notified = cq->producer;
    device->host.completion_event(device->host.context, cq->owner);
}

/* The inline data of a CQE is in the 32 bytes before its fields or, of a 128-byte entry, in the 64
 * bytes before the CQE. */
static void place_inline(const struct completion_queue *cq, const struct cqe *cqe, uint8_t *entry,
                         uint8_t *bytes)
{
    if (!cqe->inline_bytes) {
        return;
    }
    if (cq->entry_bytes == 128 && cqe->inline_bytes > 32) {
        dma_copy(entry - 64, cqe->inline_data, 64);
    } else {
        memcpy(bytes, cqe->inline_data, 32);
    }
}

void cq_write(struct device *device, struct completion_queue *cq, struct cqe *cqe)
{
    if (cq->overrun) {
        return;
    }
    if (full(cq)) {
        cq_overrun(device, cq);
        return;
    }
    if (cq->compression && compression_take(device, cq, cqe)) {
        return;
    }
    uint8_t format = 0;
    if (cqe->inline_bytes) {
        format = cq->entry_bytes == 128 && cqe->inline_bytes > 32 ? MLX5_INLINE_SCATTER_64
                                                                  : MLX5_INLINE_SCATTER_32;
    }
    uint8_t owner = (cq->producer & cq->entries) ? 1 : 0;
    cqe->fields.op_own = (uint8_t)(cqe->opcode << 4 | format | owner);
    if (cqe->opcode != MLX5_CQE_REQ_ERR && cqe->opcode != MLX5_CQE_RESP_ERR) {
        cqe->fields.timestamp = htobe64(device->now_ns);
    }
    uint8_t bytes[64];
    memcpy(bytes, &cqe->fields, sizeof(bytes));
    uint8_t *entry = cq_entry(cq, cq->producer);
    place_inline(cq, cqe, entry, bytes);
    /* The word with the owner bit goes last, whole: a program that sees it sees the rest (PRM: CQE
     * ownership). */
    uint64_t last;
    memcpy(&last, bytes + 56, sizeof(last));
    if (!dma_copy(entry, bytes, 56) || !dma_store64(entry + 56, last)) {
        cq_overrun(device,
                   cq); /* the program took the memory away: nothing can be told there any more */
        return;
    }
    cq->producer = (cq->producer + 1) & 0xffffffffu;
    if (device->tracing) {
        device->host.trace(device->host.context, 1, cq->number, bytes, sizeof(bytes));
    }
    bool error = cqe->opcode == MLX5_CQE_REQ_ERR || cqe->opcode == MLX5_CQE_RESP_ERR;
    if (cqe->solicited || error) {
        cq->last_solicited = cq->producer;
    }
    if (cq->armed && (!cq->armed_solicited || cqe->solicited || error)) {
        cq_fire(device, cq);
    }
}

static uint8_t vendor_syndrome(uint8_t syndrome)
{
    /* No public document lists these; they are those that ConnectX adapters are reported to
     * give. */
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

void cq_write_error(struct device *device, struct queue_pair *qp, bool requester, uint8_t syndrome,
                    uint8_t opcode, uint16_t wqe_counter)
{
    if (requester && qp->rendezvous) { /* programs do not know of such requests */
        rendezvous_fail(device, qp, syndrome, wqe_counter);
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
    fields->wqe_counter = htobe16(wqe_counter);
    struct completion_queue *cq =
        requester ? qp->send_queue_completions : qp->receive_queue_completions;
    if (cq) {
        cq_write(device, cq, &cqe);
    }
    if (requester) {
        qp->statistics->send_cqes++;
    } else {
        qp->statistics->receive_cqes++;
    }
}

/* Of two indices of 24 bits. */
static bool is_later(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & INDEX_MASK;
    return ahead != 0 && ahead < 1u << 23;
}

void cq_look_at_arm(struct device *device, struct completion_queue *cq)
{
    uint32_t raw;
    if (!dma_load32(cq->record + 4, &raw) || raw == cq->arm_value) {
        return;
    }
    cq->arm_value = raw;
    uint32_t value = be32toh(raw);
    uint32_t consumer = value & INDEX_MASK;
    cq->armed = true;
    cq->armed_solicited = value & ARM_SOLICITED;
    /* What came between the program's last look and its arming fires at once, but for what an event
     * told of already: programs arm before they poll what they were told of (PRM: CQ context,
     * last_notified_index). */
    uint32_t newest = cq->armed_solicited ? cq->last_solicited : cq->producer;
    uint32_t told = is_later(cq->last_notified, consumer) ? cq->last_notified : consumer;
    if (is_later(newest, told)) {
        cq_fire(device, cq);
    }
}

void cq_look_at_arms(struct device *device)
{
    for (struct list *l = device->all_completion_queues.next; l != &device->all_completion_queues;
         l = l->next) {
        cq_look_at_arm(device, container_of(l, struct completion_queue, all));
    }
}

bool cq_resize(struct device *device, struct completion_queue *cq, uint8_t *buffer,
               uint32_t entries, uint32_t entry_bytes)
{
    uint32_t value;
    if (!dma_load32(cq->record, &value)) {
        return false;
    }
    cq->consumer = be32toh(value) & INDEX_MASK;
    if (((cq->producer - cq->consumer) & INDEX_MASK) >= entries) {
        return false;
    }
    /* The adapter marks the end of the old buffer by a CQE of its own; libmlx5 copies what is
     * before it to the new one. */
    if (cq->compression) {
        compression_end(device, cq);
    }
    struct completion_queue old = *cq;
    uint8_t bytes[64] = {0};
    bytes[63] = (uint8_t)(MLX5_CQE_RESIZE_CQ << 4 | ((cq->producer & cq->entries) ? 1 : 0));
    if (((old.producer - old.consumer) & INDEX_MASK) < old.entries) {
        dma_copy(cq_entry(&old, old.producer), bytes, sizeof(bytes));
    }
    cq->buffer = buffer;
    cq->entries = entries;
    cq->entry_bytes = entry_bytes;
    cq->last_solicited++;
    cq->last_notified++;
    cq->producer++; /* the marker has a place in the new buffer too */
    return true;
}

/* send_queue.c: which WQE a QP sends next, and where it is read from: the send queue, or a
 * BlueFlame push (PRM, "Send Queue" and "Posting a Work Request to Work Queue"). */
#include "simnic/nic/internal.h"

#include "simnic/nic/dma.h"

bool send_queue_read(const struct queue_pair *qp, uint16_t index, uint8_t *to, uint32_t blocks)
{
    uint32_t first = index & (qp->send_blocks - 1);
    uint32_t until_end = qp->send_blocks - first < blocks ? qp->send_blocks - first : blocks;
    return dma_copy(to, qp->send_buffer + (size_t)first * 64, (size_t)until_end * 64) &&
           dma_copy(to + (size_t)until_end * 64, qp->send_buffer,
                    (size_t)(blocks - until_end) * 64);
}

static void trace(struct nic *nic, const struct queue_pair *qp, uint32_t bytes)
{
    if (nic->tracing) {
        nic->host.trace(nic->host.context, FABRIC_TRACE_WQE, qp->number, qp->request.wqe, bytes);
    }
}

void send_queue_fetch(struct nic *nic, struct queue_pair *qp, uint16_t index, uint32_t available)
{
    struct send_request *request = &qp->request;
    uint32_t blocks = 1;
    bool good = send_queue_read(qp, index, request->wqe, 1);
    if (good) {
        blocks = wqe_blocks(request->wqe);
        if (blocks > available) {
            blocks = available; /* which makes it malformed */
        }
        if (blocks > 1) {
            good = send_queue_read(qp, index, request->wqe, blocks);
        }
    }
    qp->statistics->wqe_reads++;
    trace(nic, qp, blocks * 64);
    wqe_parse(qp, request, index, blocks * 64);
    if (!good) {
        request->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
}

void send_queue_read_producer(struct queue_pair *qp)
{
    uint32_t raw;
    qp->rings = false;
    if (qp->send_blocks && dma_load32(qp->record + 4, &raw)) {
        qp->send_producer = (uint16_t)be32toh(raw);
    }
}

bool send_queue_has_more(const struct queue_pair *qp)
{
    uint32_t raw;
    return qp->send_blocks && dma_load32(qp->record + 4, &raw) &&
           (uint16_t)be32toh(raw) != qp->send_producer;
}

/* Whether a quirk has the next WQE, which was not pushed, stay where it is. */
static bool is_left(const struct nic *nic, const struct queue_pair *qp, uint32_t available)
{
    uint8_t wqe[64];
    if (nic_has_quirk(nic, QUIRK_DOORBELL)) {
        return true;
    }
    return nic_has_quirk(nic, QUIRK_DOORBELL_SEVERAL) && qp->send_next != qp->rung_from &&
           send_queue_read(qp, qp->send_next, wqe, 1) && wqe_blocks(wqe) == available;
}

bool send_queue_next(struct nic *nic, struct queue_pair *qp)
{
    if (qp->state == STATE_SQD) {
        qp->rings = false; /* it rings again when the QP sends again */
        return false;
    }
    if (qp->rings) {
        qp->rung_from = qp->send_next;
    }
    if (qp->send_next == qp->send_producer || qp->rings) {
        send_queue_read_producer(qp);
    }
    uint32_t available = (uint16_t)(qp->send_producer - qp->send_next), bytes;
    if (available == 0 || qp->send_blocks == 0) {
        return false;
    }
    if (available > qp->send_blocks) { /* the program overran its own queue */
        available = qp->send_blocks;
    }
    switch (blueflame_take(nic, qp, available, &bytes)) {
    case BLUEFLAME_WAIT:
        qp->rings = true; /* look again */
        return false;
    case BLUEFLAME_TAKEN:
        trace(nic, qp, bytes);
        wqe_parse(qp, &qp->request, qp->send_next, bytes);
        qp->statistics->blueflame_executed++;
        return true;
    default:
        if (is_left(nic, qp, available)) {
            return false;
        }
        send_queue_fetch(nic, qp, qp->send_next, available);
        return true;
    }
}

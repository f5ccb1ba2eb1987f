/* completer.c: what comes back to a requester (IBTA 9.7.5, 9.9): acknowledgements, NAKs, responses
 * of READs and atomics, and silence; and the completions that follow from it, in the order of the
 * send queue. */
#include "device.h"
#include "dma.h"
#include "tag.h"

#include <string.h>

/* Completes the oldest message with an error: the QP is done for, and the rest is flushed. */
static void fail_oldest(struct device *device, struct queue_pair *qp, uint8_t syndrome)
{
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_head++);
    if (qp->in_flight_next == qp->in_flight_head - 1) {
        qp->in_flight_next = qp->in_flight_head;
    }
    cq_write_error(device, qp, true, syndrome, m->opcode, m->index);
    /* Unconnected services stop sending only (IBTA 10.3.1.7: SQE). */
    if (qp->type == TYPE_UD || qp->type == TYPE_UC) {
        qp_set_state(device, qp, STATE_SQE);
    } else if (!streams_fail(device, qp, syndrome)) {
        qp_fail(device, qp);
    }
}

static void write_completion(struct device *device, struct queue_pair *qp,
                             const struct in_flight *m)
{
    if (qp->rendezvous) {
        rendezvous_complete(device, qp, m);
        return;
    }
    struct cqe cqe = {.opcode = MLX5_CQE_REQ, .solicited = m->solicited};
    cqe.fields.srqn_uidx = htobe32(qp->user_index & 0xffffff);
    cqe.fields.byte_cnt = htobe32(m->bytes);
    cqe.fields.sop_drop_qpn = htobe32((uint32_t)m->opcode << 24 | qp->number);
    cqe.fields.wqe_counter = htobe16(m->index);
    if (m->responds && qp->response_valid && qp->response.index == m->index &&
        qp->response.into_cqe) {
        cqe.inline_bytes = m->bytes;
        memcpy(cqe.inline_data, qp->response.wqe, m->bytes);
    }
    cq_write(device, qp->send_queue_completions, &cqe);
    qp->statistics->send_cqes++;
}

void completer_complete(struct device *device, struct queue_pair *qp)
{
    while (qp->in_flight_head != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
        if (m->syndrome) {
            if (qp->state != STATE_ERR && qp->state != STATE_SQE) {
                fail_oldest(device, qp, m->syndrome);
            }
            return;
        }
        if (!m->done) {
            return;
        }
        /* The message leaves before its completion is told, since a CQ that overruns flushes those
         * that are left. */
        struct in_flight complete = *m;
        qp->in_flight_head++;
        if ((int32_t)(qp->in_flight_next - qp->in_flight_head) < 0) {
            qp->in_flight_next = qp->in_flight_head;
            qp->sent_packets = 0;
            qp->parsed = false;
        }
        if (complete.responds) {
            qp->reads_in_flight--;
        }
        if (complete.signalled) {
            write_completion(device, qp, &complete);
        }
        if (complete.responds) {
            qp->response_valid = false;
        }
    }
}

static void made_progress(struct device *device, struct queue_pair *qp)
{
    qp->rnr_left = qp->attributes.rnr_retry_count;
    qp->retries_left = qp->attributes.retry_count;
    qp->gap_told = false;
    qp->timer_ns = 0;
    if (qp->in_flight_head != qp->in_flight_tail) {
        requester_start_timer(device, qp);
    }
}

/* Takes everything up to and with `psn` as received by the peer. Returns false if a response that
 * should have come before was lost. */
static bool settle(struct device *device, struct queue_pair *qp, uint32_t psn)
{
    bool whole = true;
    uint32_t position = qp->in_flight_head;
    for (; position != qp->in_flight_tail; position++) {
        struct in_flight *m = qp_in_flight(qp, position);
        if (m->done) {
            continue;
        }
        if (m->syndrome || m->packets == 0) {
            break;
        }
        int32_t behind = psn_difference(psn, m->first_psn);
        if (behind < 0) {
            break;
        }
        if (m->responds) {
            whole = false;
            break;
        }
        if ((uint32_t)behind + 1 < m->packets) {
            if ((uint32_t)behind + 1 > m->settled) {
                m->settled = (uint32_t)behind + 1;
            }
            break;
        }
        m->settled = m->packets;
        m->done = true;
    }
    completer_complete(device, qp);
    return whole;
}

static uint64_t rnr_wait_ns(uint8_t timer)
{
    /* IBTA table 45, in units of 10 us; 0 stands for the longest. */
    static const uint32_t tens_of_us[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                            16,    24,   32,   48,    64,    96,    128,   192,
                                            256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                            4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return tens_of_us[timer & 31] * 10000ull;
}

static void not_ready(struct device *device, struct queue_pair *qp, uint8_t timer)
{
    qp->statistics->rnr_naks++;
    qp->retries_left = qp->attributes.retry_count; /* the peer has answered */
    if (qp->attributes.rnr_retry_count != 7) {
        if (qp->rnr_left == 0) {
            fail_oldest(device, qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
            return;
        }
        qp->rnr_left--;
    }
    requester_restart(device, qp);
    qp->wait_until_ns = device->now_ns + rnr_wait_ns(timer);
    qp->timer_ns = 0; /* the wait is the timer */
    qp_wake_at(device, qp, qp->wait_until_ns);
}

static void try_again(struct device *device, struct queue_pair *qp)
{
    if (qp->retries_left == 0) {
        fail_oldest(device, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
        return;
    }
    qp->retries_left--;
    requester_restart(device, qp);
}

/* What comes after a lost response tells of the same loss again and again; one retry mends it. */
static void ask_for_lost_response(struct device *device, struct queue_pair *qp)
{
    if (qp->gap_told) {
        return;
    }
    qp->gap_told = true;
    try_again(device, qp);
}

static void refused(struct device *device, struct queue_pair *qp, uint8_t aeth)
{
    if ((aeth & AETH_KIND_MASK) == AETH_RNR_NAK) {
        not_ready(device, qp, aeth & 31);
        return;
    }
    switch (aeth) {
    case AETH_NAK_SEQUENCE:
        try_again(device, qp);
        break;
    case AETH_NAK_INVALID_REQUEST:
        fail_oldest(device, qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
        break;
    case AETH_NAK_REMOTE_ACCESS:
        fail_oldest(device, qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
        break;
    case AETH_NAK_REMOTE_OPERATION:
        fail_oldest(device, qp, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        break;
    default:
        break;
    }
}

static void acknowledged(struct device *device, struct queue_pair *qp, const struct packet *packet)
{
    bool good = (packet->syndrome & AETH_KIND_MASK) == AETH_ACK;
    uint32_t before = qp->in_flight_head;
    const struct in_flight *oldest = qp_in_flight(qp, before);
    uint32_t settled_before = oldest->settled;
    /* A NAK names the packet that was refused: those before it were received (IBTA 9.7.5.2.8). */
    uint32_t psn = good ? packet->psn : (packet->psn - 1) & PSN_MASK;
    bool whole = settle(device, qp, psn);
    if (qp->in_flight_head != before || oldest->settled != settled_before) {
        made_progress(device, qp);
    }
    if (qp->state != STATE_RTS && qp->state != STATE_SQD) {
        return;
    }
    qp_activate(device, qp);
    if (qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    if (!good) {
        /* A refusal of what has been settled already is an old one, repeated. */
        const struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
        if (psn_difference(packet->psn, m->first_psn) >= 0) {
            refused(device, qp, packet->syndrome);
        }
    } else if (!whole) {
        ask_for_lost_response(device, qp);
    }
}

/* Has qp->response be the request of the message that is being answered. Small answers of signalled
 * requests are put into the CQE, if the QP was made so; those are collected in response.wqe. */
static bool load_response(struct queue_pair *qp, const struct in_flight *m)
{
    struct send_request *r = &qp->response;
    if (qp->response_valid && r->index == m->index) {
        return true;
    }
    uint32_t first = m->index & (qp->send_blocks - 1);
    for (uint32_t block = 0; block < m->blocks; block++) {
        if (!dma_copy(r->wqe + block * 64,
                      qp->send_buffer + (size_t)((first + block) & (qp->send_blocks - 1)) * 64,
                      64)) {
            return false;
        }
    }
    wqe_parse(qp, r, m->index, m->blocks * 64u);
    qp->response_valid = true;
    uint32_t limit = qp->send_queue_completions->entry_bytes == 128 ? 64 : 32;
    r->into_cqe =
        qp->scatter_requests_to_cqe && m->signalled && m->bytes <= limit && !qp->rendezvous;
    return r->syndrome == 0 && r->bytes == m->bytes;
}

static uint8_t scatter_response(struct device *device, struct queue_pair *qp, uint32_t offset,
                                const uint8_t *payload, uint32_t bytes)
{
    struct send_request *r = &qp->response;
    if (r->into_cqe) {
        memcpy(r->wqe + offset, payload, bytes);
        return 0;
    }
    uint32_t domain = qp->rendezvous ? qp->shared_receive_queue->domain : qp->domain;
    for (uint32_t i = 0; i < r->segments && bytes; i++) {
        const struct segment *s = &r->segment[i];
        if (offset >= s->bytes) {
            offset -= s->bytes;
            continue;
        }
        uint32_t part = s->bytes - offset < bytes ? s->bytes - offset : bytes;
        uint8_t *to =
            key_translate(device, s->key, s->address + offset, part, ACCESS_LOCAL_WRITE, domain);
        if (!to || !dma_copy(to, payload, part)) {
            return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        }
        payload += part;
        bytes -= part;
        offset = 0;
    }
    return 0;
}

/* The payload of a response packet: what READ brings, or the original value of an atomic
 * (big-endian words on the wire are in host order here; ConnectX writes them as the responder's
 * memory had them). */
static void responded(struct device *device, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload)
{
    settle(device, qp, (packet->psn - 1) & PSN_MASK);
    if ((qp->state != STATE_RTS && qp->state != STATE_SQD) ||
        qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
    uint32_t expected = (m->first_psn + m->settled) & PSN_MASK;
    if (!m->responds || packet->psn != expected) {
        if (m->responds && psn_difference(packet->psn, expected) > 0) {
            ask_for_lost_response(device, qp);
        }
        return;
    }
    bool atomic = packet->operation == PACKET_ATOMIC_ACKNOWLEDGE;
    uint32_t offset = m->settled * qp_mtu_bytes(qp);
    uint32_t bytes = atomic ? 8 : packet->payload_bytes;
    const uint8_t *from = atomic ? (const uint8_t *)&packet->swap_or_add : payload;
    bool last = m->settled + 1 == m->packets;
    uint32_t due = last ? m->bytes - offset : qp_mtu_bytes(qp);
    if (atomic != (m->opcode != MLX5_OPCODE_RDMA_READ) || bytes != due || !load_response(qp, m)) {
        fail_oldest(device, qp, MLX5_CQE_SYNDROME_BAD_RESP_ERR);
        return;
    }
    uint8_t syndrome = scatter_response(device, qp, offset, from, bytes);
    if (syndrome) {
        fail_oldest(device, qp, syndrome);
        return;
    }
    m->settled++;
    m->done = m->settled == m->packets;
    made_progress(device, qp);
    if (m->done) {
        completer_complete(device, qp);
        qp_activate(device, qp);
    }
}

void completer_receive(struct device *device, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload)
{
    if ((qp->state != STATE_RTS && qp->state != STATE_SQD) ||
        qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    /* Only what answers something that was sent is looked at. */
    uint32_t oldest = qp_in_flight(qp, qp->in_flight_head)->first_psn;
    if (psn_difference(packet->psn, (oldest - 1) & PSN_MASK) < 0 ||
        psn_difference(packet->psn, qp->next_psn) >= 0) {
        return;
    }
    if (packet->operation == PACKET_ACKNOWLEDGE) {
        acknowledged(device, qp, packet);
    } else {
        responded(device, qp, packet, payload);
    }
}

void completer_timeout(struct device *device, struct queue_pair *qp)
{
    qp->timer_ns = 0;
    qp->gap_told = false;
    if (qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    /* What the peer's device has not looked at is not lost: its process had no processor. Real
     * devices do not wait for one, so this must not cost a retry. */
    bool late = fabric_unread(device->fabric, qpn_slot(qp->attributes.destination_qpn));
    qp->statistics->timeouts += !late;
    if (!late) {
        try_again(device, qp);
    }
    if (qp->in_flight_head != qp->in_flight_tail &&
        (qp->state == STATE_RTS || qp->state == STATE_SQD)) {
        requester_start_timer(device, qp);
    }
}

/* completer.c: what comes back to a requester (IBTA 9.7.5, 9.9): acknowledgements, NAKs, responses
 * of READs and atomics, or nothing in time. It writes the completions that follow, in the order of
 * the send queue. */
#include "simnic/nic/internal.h"

#include <string.h>

#include "simnic/nic/tag.h"

/* Completes the oldest message with an error. The QP fails with it, and the rest is flushed. */
static void fail_oldest(struct nic *nic, struct queue_pair *qp, uint8_t syndrome)
{
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_head++);
    if (qp->in_flight_next == qp->in_flight_head - 1) {
        qp->in_flight_next = qp->in_flight_head;
    }
    cq_write_error(nic, qp, true, syndrome, m->opcode, m->index);
    /* A QP without acknowledgements only stops sending (IBTA 10.3.1.7: SQE). */
    if (qp->type == TYPE_UD || qp->type == TYPE_UC) {
        qp_set_state(nic, qp, STATE_SQE);
    } else if (!streams_fail(nic, qp, syndrome)) {
        qp_fail(nic, qp);
    }
}

void completer_write(struct nic *nic, struct queue_pair *qp, const struct in_flight *m)
{
    late_land(nic, qp, true);
    if (qp->rendezvous) {
        rendezvous_complete(nic, qp, m);
        return;
    }
    struct cqe cqe = {.opcode = MLX5_CQE_REQ, .solicited = m->solicited};
    cqe.fields.srqn_uidx = htobe32(qp->user_index & 0xffffff);
    cqe.fields.byte_cnt = htobe32(m->bytes);
    cqe.fields.sop_drop_qpn = htobe32((uint32_t)m->opcode << 24 | qp->number);
    cqe.fields.wqe_counter =
        htobe16(nic_has_quirk(nic, QUIRK_SEND_RING) ? m->index & 0x7fff : m->index);
    if (m->responds && qp->response_valid && qp->response.index == m->index &&
        qp->response.into_cqe) {
        cqe.inline_bytes = m->bytes;
        memcpy(cqe.inline_data, qp->response.wqe, m->bytes);
    }
    cq_write(nic, qp->send_queue_completions, &cqe);
    qp->statistics->send_cqes++;
}

void completer_complete(struct nic *nic, struct queue_pair *qp)
{
    while (qp->in_flight_head != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
        if (m->syndrome) {
            if (qp->state != STATE_ERR && qp->state != STATE_SQE) {
                fail_oldest(nic, qp, m->syndrome);
            }
            return;
        }
        if (!m->done) {
            return;
        }
        /* The message leaves before its completion is written, since a CQ that overruns flushes all
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
            completer_write(nic, qp, &complete);
        }
        if (complete.responds) {
            qp->response_valid = false;
        }
    }
}

static void made_progress(struct nic *nic, struct queue_pair *qp)
{
    qp->rnr_left = qp->attributes.rnr_retry_count;
    qp->retries_left = qp->attributes.retry_count;
    qp->gap_told = false;
    qp->timer_ns = 0;
    if (qp->in_flight_head != qp->in_flight_tail) {
        requester_start_timer(nic, qp);
    }
}

/* The peer has received everything up to and including `psn`. Returns false if a response that
 * should have come before was lost. */
static bool settle(struct nic *nic, struct queue_pair *qp, uint32_t psn)
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
    completer_complete(nic, qp);
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

static void not_ready(struct nic *nic, struct queue_pair *qp, uint8_t timer)
{
    qp->statistics->rnr_naks++;
    qp->retries_left = qp->attributes.retry_count; /* the peer has answered */
    if (qp->attributes.rnr_retry_count != 7 || nic_has_quirk(nic, QUIRK_NOT_READY)) {
        if (qp->rnr_left == 0) {
            fail_oldest(nic, qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
            return;
        }
        qp->rnr_left--;
    }
    requester_restart(nic, qp);
    qp->wait_until_ns = nic->now_ns + rnr_wait_ns(timer);
    qp->timer_ns = 0; /* the wait is the timer */
    qp_wake_at(nic, qp, qp->wait_until_ns);
}

static void try_again(struct nic *nic, struct queue_pair *qp)
{
    if (qp->retries_left == 0 || nic_has_quirk(nic, QUIRK_RETRY_EARLY)) {
        fail_oldest(nic, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
        return;
    }
    qp->retries_left -= !nic_has_quirk(nic, QUIRK_RETRY);
    requester_restart(nic, qp);
}

/* Each packet after a lost response shows the same loss again. One retry mends it. */
static void ask_for_lost_response(struct nic *nic, struct queue_pair *qp)
{
    if (qp->gap_told) {
        return;
    }
    qp->gap_told = true;
    try_again(nic, qp);
}

static void refused(struct nic *nic, struct queue_pair *qp, uint8_t aeth)
{
    if ((aeth & AETH_KIND_MASK) == AETH_RNR_NAK) {
        not_ready(nic, qp, aeth & 31);
        return;
    }
    switch (aeth) {
    case AETH_NAK_SEQUENCE:
        try_again(nic, qp);
        break;
    case AETH_NAK_INVALID_REQUEST:
        fail_oldest(nic, qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
        break;
    case AETH_NAK_REMOTE_ACCESS:
        fail_oldest(nic, qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
        break;
    case AETH_NAK_REMOTE_OPERATION:
        fail_oldest(nic, qp, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        break;
    default:
        break;
    }
}

static void acknowledged(struct nic *nic, struct queue_pair *qp, const struct packet *packet)
{
    bool good = (packet->syndrome & AETH_KIND_MASK) == AETH_ACK;
    uint32_t before = qp->in_flight_head;
    const struct in_flight *oldest = qp_in_flight(qp, before);
    uint32_t settled_before = oldest->settled;
    /* A NAK names the packet that was refused. Those before it were received (IBTA 9.7.5.2.8). */
    uint32_t psn = good ? packet->psn : (packet->psn - 1) & PSN_MASK;
    bool whole = settle(nic, qp, psn);
    if (qp->in_flight_head != before || oldest->settled != settled_before) {
        made_progress(nic, qp);
    }
    if (qp->state != STATE_RTS && qp->state != STATE_SQD) {
        return;
    }
    qp_activate(nic, qp);
    if (qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    if (!good) {
        /* A NAK for what has been settled already is an old one, repeated. */
        const struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
        if (psn_difference(packet->psn, m->first_psn) >= 0) {
            refused(nic, qp, packet->syndrome);
        }
    } else if (!whole) {
        ask_for_lost_response(nic, qp);
    }
}

/* Makes qp->response the request of the message that is being answered. If the QP was created so,
 * small answers of signalled requests go into the CQE. They are collected in response.wqe. */
static bool load_response(struct queue_pair *qp, const struct in_flight *m)
{
    struct send_request *r = &qp->response;
    if (qp->response_valid && r->index == m->index) {
        return true;
    }
    if (!send_queue_read(qp, m->index, r->wqe, m->blocks)) {
        return false;
    }
    wqe_parse(qp, r, m->index, m->blocks * 64u);
    qp->response_valid = true;
    r->into_cqe = qp->scatter_requests_to_cqe && m->signalled && !qp->rendezvous &&
                  m->bytes <= cq_inline_bytes(qp->send_queue_completions);
    return r->syndrome == 0 && r->bytes == m->bytes;
}

static uint8_t scatter_response(struct nic *nic, struct queue_pair *qp, uint32_t offset,
                                const uint8_t *payload, uint32_t bytes)
{
    struct send_request *r = &qp->response;
    if (nic_has_quirk(nic, QUIRK_WQE_READ) && r->opcode == MLX5_OPCODE_RDMA_READ &&
        bytes % 2 != 0) {
        bytes--;
    }
    if (r->into_cqe) {
        memcpy(r->wqe + offset, payload, bytes);
        return 0;
    }
    uint32_t domain = qp->rendezvous ? qp->shared_receive_queue->domain : qp->domain;
    if (nic_has_quirk(nic, QUIRK_SEND_ORDER) && r->segments == 1 && offset + bytes == r->bytes) {
        uint64_t whole = bytes;
        uint8_t *to = key_translate(nic, r->segment[0].key, r->segment[0].address + offset, &whole,
                                    ACCESS_LOCAL_WRITE, domain);
        if (to && whole == bytes) {
            late_write(nic, to, payload, bytes);
            return 0;
        }
    }
    return segments_scatter(nic, qp, true, r->segment, r->segments, domain, offset, payload, bytes);
}

/* A response packet: the data of a READ, or the original value of an atomic. Packets have that
 * value in host order, as the responder's memory had it, and so ConnectX writes it. */
static void responded(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload)
{
    settle(nic, qp, (packet->psn - 1) & PSN_MASK);
    if ((qp->state != STATE_RTS && qp->state != STATE_SQD) ||
        qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_head);
    uint32_t expected = (m->first_psn + m->settled) & PSN_MASK;
    if (!m->responds || packet->psn != expected) {
        if (m->responds && psn_difference(packet->psn, expected) > 0) {
            ask_for_lost_response(nic, qp);
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
        fail_oldest(nic, qp, MLX5_CQE_SYNDROME_BAD_RESP_ERR);
        return;
    }
    uint8_t syndrome = scatter_response(nic, qp, offset, from, bytes);
    if (syndrome) {
        fail_oldest(nic, qp, syndrome);
        return;
    }
    m->settled++;
    m->done = m->settled == m->packets;
    made_progress(nic, qp);
    if (m->done) {
        completer_complete(nic, qp);
        qp_activate(nic, qp);
    }
}

void completer_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload)
{
    if ((qp->state != STATE_RTS && qp->state != STATE_SQD) ||
        qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    /* A packet that answers nothing that was sent is ignored. */
    uint32_t oldest = qp_in_flight(qp, qp->in_flight_head)->first_psn;
    if (psn_difference(packet->psn, (oldest - 1) & PSN_MASK) < 0 ||
        psn_difference(packet->psn, qp->next_psn) >= 0) {
        return;
    }
    if (packet->operation == PACKET_ACKNOWLEDGE) {
        acknowledged(nic, qp, packet);
    } else {
        responded(nic, qp, packet, payload);
    }
}

void completer_timeout(struct nic *nic, struct queue_pair *qp)
{
    qp->timer_ns = 0;
    qp->gap_told = false;
    if (qp->in_flight_head == qp->in_flight_tail) {
        return;
    }
    if (qp->type == TYPE_UD || qp->type == TYPE_UC) {
        /* Nothing is acknowledged. This makes sure that room is not waited for at a dead process. */
        fabric_unread(nic->fabric, qp->full_slot);
        requester_look_at_peer(nic, qp);
        return;
    }
    /* What the peer's NIC has not looked at, or not answered yet, is not lost, nor is an answer that has
     * come: one of the two processes had no processor. A real NIC never waits for one, so this must not cost a retry. */
    const uint32_t peer = qpn_slot(qp->attributes.destination_qpn);
    bool late = fabric_unread(nic->fabric, peer) ||
                !fabric_has_read(nic->fabric, peer, fabric_written(nic->fabric, peer));
    qp->statistics->timeouts += !late;
    if (!late) {
        try_again(nic, qp);
    }
    if (qp->in_flight_head != qp->in_flight_tail &&
        (qp->state == STATE_RTS || qp->state == STATE_SQD)) {
        requester_start_timer(nic, qp);
    }
}

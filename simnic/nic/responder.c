/* responder.c: the receiving half of a connected QP (IBTA 9.7.4, 9.7.5.1, 9.9.3): checks every
 * request packet and executes it on this process's memory. response.c sends what it answers. */
#include "simnic/nic/internal.h"

#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/nic/tag.h"

enum kind { KIND_SEND, KIND_WRITE, KIND_READ, KIND_ATOMIC, KIND_OTHER };

struct form {
    uint8_t kind;
    bool first, last, immediate, invalidate;
};

static const struct form forms[PACKET_OPERATION_COUNT] = {
    [PACKET_SEND_FIRST] = {KIND_SEND, true, false, false, false},
    [PACKET_SEND_MIDDLE] = {KIND_SEND, false, false, false, false},
    [PACKET_SEND_LAST] = {KIND_SEND, false, true, false, false},
    [PACKET_SEND_LAST_IMMEDIATE] = {KIND_SEND, false, true, true, false},
    [PACKET_SEND_ONLY] = {KIND_SEND, true, true, false, false},
    [PACKET_SEND_ONLY_IMMEDIATE] = {KIND_SEND, true, true, true, false},
    [PACKET_WRITE_FIRST] = {KIND_WRITE, true, false, false, false},
    [PACKET_WRITE_MIDDLE] = {KIND_WRITE, false, false, false, false},
    [PACKET_WRITE_LAST] = {KIND_WRITE, false, true, false, false},
    [PACKET_WRITE_LAST_IMMEDIATE] = {KIND_WRITE, false, true, true, false},
    [PACKET_WRITE_ONLY] = {KIND_WRITE, true, true, false, false},
    [PACKET_WRITE_ONLY_IMMEDIATE] = {KIND_WRITE, true, true, true, false},
    [PACKET_READ_REQUEST] = {KIND_READ, true, true, false, false},
    [PACKET_READ_RESPONSE_FIRST] = {KIND_OTHER, false, false, false, false},
    [PACKET_READ_RESPONSE_MIDDLE] = {KIND_OTHER, false, false, false, false},
    [PACKET_READ_RESPONSE_LAST] = {KIND_OTHER, false, false, false, false},
    [PACKET_READ_RESPONSE_ONLY] = {KIND_OTHER, false, false, false, false},
    [PACKET_ACKNOWLEDGE] = {KIND_OTHER, false, false, false, false},
    [PACKET_ATOMIC_ACKNOWLEDGE] = {KIND_OTHER, false, false, false, false},
    [PACKET_COMPARE_SWAP] = {KIND_ATOMIC, true, true, false, false},
    [PACKET_FETCH_ADD] = {KIND_ATOMIC, true, true, false, false},
    [21] = {KIND_OTHER, false, false, false, false},
    [PACKET_SEND_LAST_INVALIDATE] = {KIND_SEND, false, true, false, true},
    [PACKET_SEND_ONLY_INVALIDATE] = {KIND_SEND, true, true, false, true},
};

void responder_break(struct nic *nic, struct queue_pair *qp, uint8_t aeth, int event)
{
    qp->current = NO_MESSAGE;
    if (qp->type == TYPE_UC) {
        return; /* the message is dropped, and nobody is told */
    }
    uint32_t owed_tail = qp->owed_tail; /* READs before it are still answered */
    if (qp->type == TYPE_DCT) { /* the QP of one initiator; the target goes on with the others */
        dc_initiator_break(nic, qp);
        qp->owed_tail = owed_tail;
        response_refuse(nic, qp, aeth);
        return;
    }
    qp_fail(nic, qp);
    qp->owed_tail = owed_tail;
    response_refuse(nic, qp, aeth);
    if (event >= 0) {
        qp_event(nic, qp, event);
    }
}

static void fail_receive(struct nic *nic, struct queue_pair *qp, uint8_t syndrome)
{
    /* tag_abandon tells of the tag. The error itself needs an ordinary receive, since drivers read
     * no other error CQEs: if one is posted, it is spent on this. */
    bool matched = tag_abandon(nic, qp);
    if (!matched || receive_take(nic, qp) != RECEIVE_EMPTY) {
        cq_write_error(nic, qp, false, syndrome, 0, qp->receive.index);
    }
    qp->receive.taken = false;
    bool too_long = syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    responder_break(nic, qp, too_long ? AETH_NAK_INVALID_REQUEST : AETH_NAK_REMOTE_OPERATION, -1);
}

/* Takes a receive WQE for the message. Returns false if the packet must not be executed. */
static bool take_receive(struct nic *nic, struct queue_pair *qp)
{
    if (qp->type == TYPE_XRC_TARGET && !xrc_select(nic, qp, qp->xrc_srqn)) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    switch (receive_take(nic, qp)) {
    case RECEIVE_OK:
        return true;
    case RECEIVE_EMPTY:
        response_refuse(nic, qp, (uint8_t)(AETH_RNR_NAK | qp->attributes.min_rnr_timer));
        return false;
    default:
        fail_receive(nic, qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
        return false;
    }
}

static void write_completion(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                             const struct form *form, const uint8_t *payload)
{
    struct cqe cqe = {.solicited = packet->flags & PACKET_SOLICITED};
    if (form->kind == KIND_WRITE) {
        cqe.opcode = MLX5_CQE_RESP_WR_IMM;
    } else if (form->invalidate) {
        cqe.opcode = MLX5_CQE_RESP_SEND_INV;
    } else {
        cqe.opcode = form->immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
    }
    cqe.fields.srqn_uidx = htobe32(qp->user_index & 0xffffff);
    if (qp->shared_receive_queue && qp->shared_receive_queue->completion_queue) {
        cqe.fields.srqn_uidx = htobe32(qp->shared_receive_queue->user_index);
    }
    cqe.fields.byte_cnt = htobe32(qp->offset);
    cqe.fields.imm_inval_pkey = form->invalidate ? htobe32(packet->immediate) : packet->immediate;
    if (nic_has_quirk(nic, QUIRK_WQE_SEND) && form->kind == KIND_SEND && form->immediate) {
        cqe.fields.imm_inval_pkey = 0;
    }
    cqe.fields.sop_drop_qpn = htobe32(qp->number);
    cqe.fields.flags_rqpn = htobe32(packet->source_qpn & 0xffffff);
    cqe.fields.wqe_counter = htobe16(qp->receive.index);
    if (payload && qp->offset) {
        cqe.inline_bytes = qp->offset;
        memcpy(cqe.inline_data, payload, qp->offset);
    }
    tag_complete(qp, form->first, &cqe);
    qp->receive.taken = false;
    qp->statistics->receive_cqes++;
    late_land(nic, qp, false);
    cq_write(nic, qp->receive_queue_completions, &cqe);
}

/* Small messages of one packet go into the CQE, if the QP was created so. */
static bool goes_into_cqe(const struct nic *nic, const struct queue_pair *qp,
                          const struct form *form, uint32_t bytes)
{
    const bool wanted = qp->scatter_to_cqe || nic_has_quirk(nic, QUIRK_SCATTER_TO_CQE);
    if (!wanted || !form->first || !form->last || bytes == 0 || qp->tag_kind == TAG_MATCHED ||
        qp->tag_kind == TAG_SOFTWARE) {
        return false;
    }
    return bytes <= cq_inline_bytes(qp->receive_queue_completions);
}

/* Finds a place for a message, by its first packet: a tagged buffer or a receive WQE. Returns false
 * if the packet must not be executed. */
static bool begin_send(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                       const struct form *form, const uint8_t *payload)
{
    enum tag_kind kind = tag_begin(nic, qp, form->last, payload, packet->payload_bytes);
    qp->offset = 0;
    if (kind == TAG_NOT_READY) {
        response_refuse(nic, qp, (uint8_t)(AETH_RNR_NAK | qp->attributes.min_rnr_timer));
        return false;
    }
    if (kind < TAG_MATCHED && !take_receive(nic, qp)) {
        return false;
    }
    qp->tag_kind = (uint8_t)kind;
    tag_count_unexpected(qp);
    return true;
}

static bool execute_send(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                         const struct form *form, const uint8_t *payload)
{
    uint32_t bytes = packet->payload_bytes;
    if (form->first) {
        if (!begin_send(nic, qp, packet, form, payload)) {
            return false;
        }
        if (qp->tag_kind == TAG_RENDEZVOUS) {
            qp->tag_kind = TAG_NONE;
            return true;
        }
        if (qp->tag_kind == TAG_MATCHED) {
            payload += sizeof(struct ibv_tmh);
            bytes -= (uint32_t)sizeof(struct ibv_tmh);
        }
    }
    bool into_cqe = goes_into_cqe(nic, qp, form, bytes) && bytes <= qp->receive.capacity;
    uint8_t syndrome = 0;
    if (!into_cqe) {
        syndrome = receive_scatter(nic, qp, qp->offset, payload, bytes);
    }
    if (syndrome) {
        fail_receive(nic, qp, syndrome);
        return false;
    }
    qp->offset += bytes;
    qp->current = form->last ? NO_MESSAGE : PACKET_SEND_FIRST;
    if (form->invalidate && !window_invalidate(nic, qp, packet->immediate)) {
        fail_receive(nic, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        return false;
    }
    if (form->last) {
        write_completion(nic, qp, packet, form, into_cqe ? payload : NULL);
    }
    return true;
}

/* Whether the request's key gives access to what it names; to nothing, anybody has access. */
static bool may_access(struct nic *nic, const struct queue_pair *qp, const struct packet *packet,
                       uint32_t access)
{
    uint64_t bytes = packet->length;
    return bytes == 0 ||
           key_translate_for_peer(nic, qp, packet->key, packet->address, &bytes, access);
}

/* Writes what a packet of a WRITE has brought; some quirks have it land otherwise. */
static bool land(struct nic *nic, const struct queue_pair *qp, const struct form *form,
                 const uint8_t *payload, uint32_t bytes)
{
    const bool late = form->immediate ? nic_has_quirk(nic, QUIRK_ORDER_OWN)
                                      : nic_has_quirk(nic, QUIRK_ORDER_EARLIER);
    const bool line = nic_has_quirk(nic, QUIRK_ORDER_LINE) && bytes == 64;
    uint64_t whole = bytes;
    uint8_t *to = late || line ? key_translate_for_peer(nic, qp, qp->write_key, qp->write_address,
                                                        &whole, ACCESS_REMOTE_WRITE)
                               : NULL;
    if (to && whole == bytes && late) {
        late_write(nic, to, payload, bytes);
        return true;
    }
    if (to && whole == bytes) {
        late_write(nic, to, payload, 56);
        return dma_copy(to + 56, payload + 56, 8);
    }
    if (nic_has_quirk(nic, QUIRK_MTU) && form->last && bytes == qp_mtu_bytes(qp)) {
        bytes--;
    }
    const bool middle = !form->first && !form->last;
    const bool wrong = (nic_has_quirk(nic, QUIRK_CALLS) && form->immediate && bytes >= 1024) ||
                       (nic_has_quirk(nic, QUIRK_CHANNELS) && middle) ||
                       (nic_has_quirk(nic, QUIRK_RAILS) && middle && qp->rail == 1);
    const uint8_t changed = wrong ? payload[bytes / 2] ^ 1 : 0;
    return key_write_for_peer(nic, qp, qp->write_key, qp->write_address, payload, bytes) &&
           (!wrong ||
            key_write_for_peer(nic, qp, qp->write_key, qp->write_address + bytes / 2, &changed, 1));
}

static bool execute_write(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                          const struct form *form, const uint8_t *payload)
{
    if (form->first) {
        qp->write_address = packet->address;
        qp->write_key = packet->key;
        qp->write_left = packet->length;
        qp->offset = 0;
        if (!(qp->attributes.access & ACCESS_REMOTE_WRITE) ||
            !may_access(nic, qp, packet, ACCESS_REMOTE_WRITE)) {
            responder_break(nic, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
            return false;
        }
    }
    bool fits = form->last ? packet->payload_bytes == qp->write_left
                           : packet->payload_bytes < qp->write_left;
    if (!fits) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    if (form->immediate && !qp->receive.taken && !take_receive(nic, qp)) {
        return false;
    }
    if (packet->payload_bytes) {
        if (!land(nic, qp, form, payload, packet->payload_bytes)) {
            responder_break(nic, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
            return false;
        }
    }
    qp->write_address += packet->payload_bytes;
    qp->write_left -= packet->payload_bytes;
    qp->offset += packet->payload_bytes;
    qp->current = form->last ? NO_MESSAGE : PACKET_WRITE_FIRST;
    if (form->immediate) {
        write_completion(nic, qp, packet, form, NULL);
    }
    return true;
}

static bool execute_read(struct nic *nic, struct queue_pair *qp, const struct packet *packet)
{
    if (packet->length > NIC_MAX_MESSAGE_BYTES) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    if (!(qp->attributes.access & ACCESS_REMOTE_READ) ||
        !may_access(nic, qp, packet, ACCESS_REMOTE_READ)) {
        responder_break(nic, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
        return false;
    }
    struct owed_response *o = response_owe(nic, qp, packet);
    if (!o) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    o->packets = packets_of(packet->length, qp_mtu_bytes(qp));
    return true;
}

static bool execute_atomic(struct nic *nic, struct queue_pair *qp, const struct packet *packet)
{
    bool allowed = qp->attributes.access & ACCESS_REMOTE_ATOMIC;
    if (packet->address & 7) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    uint64_t original = 0, bytes = 8;
    late_land(nic, qp, false); /* it is behind what its peer has written before */
    uint8_t *at =
        key_translate_for_peer(nic, qp, packet->key, packet->address, &bytes, ACCESS_REMOTE_ATOMIC);
    bool done = allowed && at && bytes == 8;
    if (done) {
        late_land_range(nic, at, bytes);
    }
    if (done && packet->operation == PACKET_FETCH_ADD) {
        done = dma_fetch_add64(at, packet->swap_or_add, &original);
    } else if (done) {
        uint64_t compare = packet->compare, there;
        if (nic_has_quirk(nic, QUIRK_WQE_ATOMIC) && dma_copy(&there, at, sizeof(there)) &&
            (uint32_t)there == (uint32_t)compare) {
            compare = there;
        }
        done = dma_compare_swap64(at, compare, packet->swap_or_add, &original);
    }
    if (!done) {
        responder_break(nic, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
        return false;
    }
    struct owed_response *o = response_owe(nic, qp, packet);
    if (!o) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    o->original = original;
    uint32_t place = qp->atomics_next++ % NIC_MAX_READS;
    qp->atomics[place].psn = packet->psn;
    qp->atomics[place].original = original;
    qp->atomics[place].valid = true;
    return true;
}

/* A request that came before: its answer was lost, or is on its way. Only READs are executed
 * again. */
static void answer_again(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                         const struct form *form)
{
    if (form->kind == KIND_READ) {
        bool allowed = may_access(nic, qp, packet, ACCESS_REMOTE_READ);
        struct owed_response *o = allowed ? response_owe(nic, qp, packet) : NULL;
        if (o) {
            o->packets = packets_of(packet->length, qp_mtu_bytes(qp));
        }
        return;
    }
    if (form->kind == KIND_ATOMIC) {
        for (uint32_t i = 0; i < NIC_MAX_READS; i++) {
            if (!qp->atomics[i].valid || qp->atomics[i].psn != packet->psn) {
                continue;
            }
            struct owed_response *o = response_owe(nic, qp, packet);
            if (o) {
                o->original = qp->atomics[i].original;
            }
        }
        return;
    }
    response_acknowledge(nic, qp, true);
}

static bool in_sequence(const struct queue_pair *qp, const struct form *form)
{
    if (form->first) {
        return qp->current == NO_MESSAGE;
    }
    return qp->current == (form->kind == KIND_WRITE ? PACKET_WRITE_FIRST : PACKET_SEND_FIRST);
}

static void execute(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                    const struct form *form, const uint8_t *payload)
{
    bool done = false;
    uint32_t packets = 1;
    qp->nak_sent = false;
    qp->nak_due = 0;
    switch (form->kind) {
    case KIND_SEND:
        done = execute_send(nic, qp, packet, form, payload);
        break;
    case KIND_WRITE:
        done = execute_write(nic, qp, packet, form, payload);
        break;
    case KIND_READ:
        packets = packets_of(packet->length, qp_mtu_bytes(qp));
        done = execute_read(nic, qp, packet);
        break;
    default:
        done = execute_atomic(nic, qp, packet);
        break;
    }
    if (!done) {
        return;
    }
    qp->statistics->bytes_received += packet->payload_bytes;
    qp->expected_psn = (qp->expected_psn + packets) & PSN_MASK;
    if (form->last) {
        qp->msn = (qp->msn + 1) & PSN_MASK;
    }
    if (qp->type != TYPE_UC && (form->kind == KIND_SEND || form->kind == KIND_WRITE)) {
        response_acknowledge(nic, qp, packet->flags & PACKET_ACK_REQUEST);
    }
}

/* Unreliable connections: a message with a gap is dropped, and the next first packet starts anew
 * (IBTA 9.8.2.2). */
static void receive_unreliable(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                               const struct form *form, const uint8_t *payload)
{
    if (form->kind != KIND_SEND && form->kind != KIND_WRITE) {
        return;
    }
    /* The rest of an unfinished message will not come: its receive WQE is used for the next. */
    if (form->first || packet->psn != qp->expected_psn) {
        qp->current = NO_MESSAGE;
    }
    if (!in_sequence(qp, form)) {
        return;
    }
    bool reuse = form->first && form->kind == KIND_SEND && qp->receive.taken;
    qp->expected_psn = packet->psn;
    if (!reuse) {
        execute(nic, qp, packet, form, payload);
        return;
    }
    qp->offset = 0;
    struct form again = *form;
    again.first = false;
    execute(nic, qp, packet, &again, payload);
}

void responder_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload)
{
    if (!qp_receives(qp) && !(qp->state == STATE_ERR && nic_has_quirk(nic, QUIRK_CLOSED))) {
        return;
    }
    if (packet->operation >= PACKET_OPERATION_COUNT || packet->payload_bytes > RAIL_MTU_BYTES) {
        return;
    }
    const struct form *form = &forms[packet->operation];
    if (form->kind == KIND_OTHER || packet->source_qpn != qp->attributes.destination_qpn) {
        return;
    }
    qp->statistics->packets_received++;
    qp->xrc_srqn = packet->msn;
    if (qp->type == TYPE_UC) {
        receive_unreliable(nic, qp, packet, form, payload);
        return;
    }
    int32_t ahead = psn_difference(packet->psn, qp->expected_psn);
    if (ahead < 0) {
        answer_again(nic, qp, packet, form);
    } else if (ahead > 0) {
        if (!qp->nak_sent) {
            response_refuse(nic, qp, AETH_NAK_SEQUENCE);
        }
    } else if (!in_sequence(qp, form)) {
        responder_break(nic, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
    } else {
        execute(nic, qp, packet, form, payload);
    }
}

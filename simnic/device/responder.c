/* responder.c: the receiving half of a connected QP (IBTA 9.7.4, 9.7.5.1, 9.9.3): checks every
 * request packet, executes it on this process's memory, and answers: acknowledgements once a series
 * of packets, NAKs, responses of READs and atomics, in order. */
#include "device.h"
#include "dma.h"
#include "tag.h"

#include <string.h>

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

#define NO_MESSAGE 0xff

static void answer_later(struct device *device, struct queue_pair *qp, bool wakes)
{
    qp->ack_due = true;
    qp->ack_wakes |= wakes;
    qp_owes(device, qp);
}

/* Refuses the expected packet. Nothing else is answered until it comes again. */
static void refuse(struct device *device, struct queue_pair *qp, uint8_t aeth)
{
    if (qp->type == TYPE_UC) {
        return;
    }
    qp->nak_due = aeth;
    qp->nak_sent = true;
    qp_owes(device, qp);
}

/* A request that no retry can mend: it is refused and the QP fails. */
static void break_connection(struct device *device, struct queue_pair *qp, uint8_t aeth, int event)
{
    qp->current = NO_MESSAGE;
    if (qp->type == TYPE_UC) {
        return; /* the message is dropped, and nobody is told */
    }
    if (qp->type == TYPE_DCT) {
        /* One initiator's; the others are served on. */
        dc_session_break(device, qp);
        refuse(device, qp, aeth);
        return;
    }
    uint32_t owed_tail = qp->owed_tail; /* READs before it are still answered */
    qp_fail(device, qp);
    qp->owed_tail = owed_tail;
    refuse(device, qp, aeth);
    if (event >= 0) {
        qp_event(device, qp, event);
    }
}

static void fail_receive(struct device *device, struct queue_pair *qp, uint8_t syndrome)
{
    /* The tag is told of by itself. An error CQE is always one of an ordinary receive, for there is
     * no other that drivers read: if there is one, it is spent on it. */
    bool matched = tag_abandon(device, qp);
    if (!matched || receive_take(device, qp) != RECEIVE_EMPTY) {
        cq_write_error(device, qp, false, syndrome, 0, qp->receive.index);
    }
    qp->receive.taken = false;
    bool too_long = syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    break_connection(device, qp, too_long ? AETH_NAK_INVALID_REQUEST : AETH_NAK_REMOTE_OPERATION,
                     -1);
}

/* Takes a receive WQE for the message. Returns false if the packet must not be executed. */
static bool take_receive(struct device *device, struct queue_pair *qp)
{
    if (qp->type == TYPE_XRC_TARGET && !xrc_select(device, qp, qp->xrc_srqn)) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    switch (receive_take(device, qp)) {
    case RECEIVE_OK:
        return true;
    case RECEIVE_EMPTY:
        refuse(device, qp, (uint8_t)(AETH_RNR_NAK | qp->attributes.min_rnr_timer));
        return false;
    default:
        fail_receive(device, qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
        return false;
    }
}

static void write_completion(struct device *device, struct queue_pair *qp,
                             const struct packet *packet, const struct form *form,
                             const uint8_t *payload)
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
    cq_write(device, qp->receive_queue_completions, &cqe);
}

/* Small messages of one packet go into the CQE, if the QP was made so. */
static bool goes_into_cqe(const struct queue_pair *qp, const struct form *form, uint32_t bytes)
{
    if (!qp->scatter_to_cqe || !form->first || !form->last || bytes == 0 ||
        qp->tag_kind == TAG_MATCHED || qp->tag_kind == TAG_SOFTWARE) {
        return false;
    }
    return bytes <= (qp->receive_queue_completions->entry_bytes == 128 ? 64u : 32u);
}

/* Finds a place for a message, by its first packet: a tagged buffer or a receive WQE. Returns false if
 * the packet must not be executed. */
static bool begin_send(struct device *device, struct queue_pair *qp, const struct packet *packet,
                       const struct form *form, const uint8_t *payload)
{
    enum tag_kind kind = tag_begin(device, qp, form->last, payload, packet->payload_bytes);
    qp->offset = 0;
    if (kind == TAG_NOT_READY) {
        refuse(device, qp, (uint8_t)(AETH_RNR_NAK | qp->attributes.min_rnr_timer));
        return false;
    }
    if (kind < TAG_MATCHED && !take_receive(device, qp)) {
        return false;
    }
    qp->tag_kind = (uint8_t)kind;
    tag_count_unexpected(qp);
    return true;
}

static bool execute_send(struct device *device, struct queue_pair *qp, const struct packet *packet,
                         const struct form *form, const uint8_t *payload)
{
    uint32_t bytes = packet->payload_bytes;
    if (form->first) {
        if (!begin_send(device, qp, packet, form, payload)) {
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
    bool into_cqe = goes_into_cqe(qp, form, bytes) && bytes <= qp->receive.capacity;
    uint8_t syndrome = 0;
    if (!into_cqe) {
        syndrome = receive_scatter(device, qp, qp->offset, payload, bytes);
    }
    if (syndrome) {
        fail_receive(device, qp, syndrome);
        return false;
    }
    qp->offset += bytes;
    qp->current = form->last ? NO_MESSAGE : PACKET_SEND_FIRST;
    if (form->invalidate && !window_invalidate(device, qp, packet->immediate)) {
        fail_receive(device, qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        return false;
    }
    if (form->last) {
        write_completion(device, qp, packet, form, into_cqe ? payload : NULL);
    }
    return true;
}

static bool execute_write(struct device *device, struct queue_pair *qp, const struct packet *packet,
                          const struct form *form, const uint8_t *payload)
{
    if (form->first) {
        qp->write_address = packet->address;
        qp->write_key = packet->key;
        qp->write_left = packet->length;
        qp->offset = 0;
        bool allowed = qp->attributes.access & ACCESS_REMOTE_WRITE;
        if (!allowed ||
            (packet->length && !key_translate_for_peer(device, qp, packet->key, packet->address,
                                                       packet->length, ACCESS_REMOTE_WRITE))) {
            break_connection(device, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
            return false;
        }
    }
    bool fits = form->last ? packet->payload_bytes == qp->write_left
                           : packet->payload_bytes < qp->write_left;
    if (!fits) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    if (form->immediate && !qp->receive.taken && !take_receive(device, qp)) {
        return false;
    }
    if (packet->payload_bytes) {
        uint8_t *to = key_translate_for_peer(device, qp, qp->write_key, qp->write_address,
                                             packet->payload_bytes, ACCESS_REMOTE_WRITE);
        if (!to || !dma_copy(to, payload, packet->payload_bytes)) {
            break_connection(device, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
            return false;
        }
    }
    qp->write_address += packet->payload_bytes;
    qp->write_left -= packet->payload_bytes;
    qp->offset += packet->payload_bytes;
    qp->current = form->last ? NO_MESSAGE : PACKET_WRITE_FIRST;
    if (form->immediate) {
        write_completion(device, qp, packet, form, NULL);
    }
    return true;
}

static struct owed_response *owe(struct device *device, struct queue_pair *qp,
                                 const struct packet *packet)
{
    uint32_t most = sizeof(qp->owed) / sizeof(qp->owed[0]);
    if (qp->owed_head - qp->owed_tail == most) {
        return NULL;
    }
    struct owed_response *o = &qp->owed[qp->owed_head++ % most];
    *o = (struct owed_response){.operation = packet->operation,
                                .psn = packet->psn,
                                .packets = 1,
                                .address = packet->address,
                                .key = packet->key,
                                .bytes = packet->length};
    qp_owes(device, qp);
    return o;
}

static bool execute_read(struct device *device, struct queue_pair *qp, const struct packet *packet)
{
    bool allowed = qp->attributes.access & ACCESS_REMOTE_READ;
    if (packet->length > DEVICE_MAX_MESSAGE_BYTES) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    if (!allowed ||
        (packet->length && !key_translate_for_peer(device, qp, packet->key, packet->address,
                                                   packet->length, ACCESS_REMOTE_READ))) {
        break_connection(device, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
        return false;
    }
    struct owed_response *o = owe(device, qp, packet);
    if (!o) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    o->packets = packets_of(packet->length, qp_mtu_bytes(qp));
    return true;
}

static bool execute_atomic(struct device *device, struct queue_pair *qp,
                           const struct packet *packet)
{
    bool allowed = qp->attributes.access & ACCESS_REMOTE_ATOMIC;
    if (packet->address & 7) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    uint8_t *at =
        key_translate_for_peer(device, qp, packet->key, packet->address, 8, ACCESS_REMOTE_ATOMIC);
    uint64_t original = 0;
    bool done = allowed && at;
    if (done && packet->operation == PACKET_FETCH_ADD) {
        done = dma_fetch_add64(at, packet->swap_or_add, &original);
    } else if (done) {
        done = dma_compare_swap64(at, packet->compare, packet->swap_or_add, &original);
    }
    if (!done) {
        break_connection(device, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
        return false;
    }
    struct owed_response *o = owe(device, qp, packet);
    if (!o) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
        return false;
    }
    o->original = original;
    uint32_t place = qp->atomics_next++ % DEVICE_MAX_READS;
    qp->atomics[place].psn = packet->psn;
    qp->atomics[place].original = original;
    qp->atomics[place].valid = true;
    return true;
}

/* A request that came before: its answer was lost, or is on its way. It must not be executed again,
 * READs apart. */
static void repeated(struct device *device, struct queue_pair *qp, const struct packet *packet,
                     const struct form *form)
{
    if (form->kind == KIND_READ) {
        bool allowed =
            packet->length == 0 || key_translate_for_peer(device, qp, packet->key, packet->address,
                                                          packet->length, ACCESS_REMOTE_READ);
        struct owed_response *o = allowed ? owe(device, qp, packet) : NULL;
        if (o) {
            o->packets = packets_of(packet->length, qp_mtu_bytes(qp));
        }
        return;
    }
    if (form->kind == KIND_ATOMIC) {
        for (uint32_t i = 0; i < DEVICE_MAX_READS; i++) {
            if (!qp->atomics[i].valid || qp->atomics[i].psn != packet->psn) {
                continue;
            }
            struct owed_response *o = owe(device, qp, packet);
            if (o) {
                o->original = qp->atomics[i].original;
            }
        }
        return;
    }
    answer_later(device, qp, true);
}

static bool in_sequence(const struct queue_pair *qp, const struct form *form)
{
    if (form->first) {
        return qp->current == NO_MESSAGE;
    }
    return qp->current == (form->kind == KIND_WRITE ? PACKET_WRITE_FIRST : PACKET_SEND_FIRST);
}

static void execute(struct device *device, struct queue_pair *qp, const struct packet *packet,
                    const struct form *form, const uint8_t *payload)
{
    bool done = false;
    uint32_t packets = 1;
    qp->nak_sent = false;
    qp->nak_due = 0;
    switch (form->kind) {
    case KIND_SEND:
        done = execute_send(device, qp, packet, form, payload);
        break;
    case KIND_WRITE:
        done = execute_write(device, qp, packet, form, payload);
        break;
    case KIND_READ:
        packets = packets_of(packet->length, qp_mtu_bytes(qp));
        done = execute_read(device, qp, packet);
        break;
    default:
        done = execute_atomic(device, qp, packet);
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
        answer_later(device, qp, packet->flags & PACKET_ACK_REQUEST);
    }
}

/* Unreliable connections: a message with a gap is dropped, and the next first packet starts anew
 * (IBTA 9.8.2.2). */
static void receive_unreliable(struct device *device, struct queue_pair *qp,
                               const struct packet *packet, const struct form *form,
                               const uint8_t *payload)
{
    if (form->kind != KIND_SEND && form->kind != KIND_WRITE) {
        return;
    }
    /* What was not finished never will be: its receive WQE is used again. */
    if (form->first || packet->psn != qp->expected_psn) {
        qp->current = NO_MESSAGE;
    }
    if (!in_sequence(qp, form)) {
        return;
    }
    bool reuse = form->first && form->kind == KIND_SEND && qp->receive.taken;
    qp->expected_psn = packet->psn;
    if (!reuse) {
        execute(device, qp, packet, form, payload);
        return;
    }
    qp->offset = 0;
    struct form again = *form;
    again.first = false;
    execute(device, qp, packet, &again, payload);
}

void responder_receive(struct device *device, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload)
{
    if (qp->state != STATE_RTR && qp->state != STATE_RTS && qp->state != STATE_SQD &&
        qp->state != STATE_SQE) {
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
        receive_unreliable(device, qp, packet, form, payload);
        return;
    }
    int32_t ahead = psn_difference(packet->psn, qp->expected_psn);
    if (ahead < 0) {
        repeated(device, qp, packet, form);
    } else if (ahead > 0) {
        if (!qp->nak_sent) {
            refuse(device, qp, AETH_NAK_SEQUENCE);
        }
    } else if (!in_sequence(qp, form)) {
        break_connection(device, qp, AETH_NAK_INVALID_REQUEST, EVENT_QP_REQ_ERR);
    } else {
        execute(device, qp, packet, form, payload);
    }
}

/* ---- answering ---- */

static struct packet answer_header(const struct queue_pair *qp)
{
    return (struct packet){.transport = qp->type == TYPE_DCT          ? TRANSPORT_DC
                                        : qp->type == TYPE_XRC_TARGET ? TRANSPORT_XRC
                                                                      : TRANSPORT_RC,
                           .flags = PACKET_WAKE,
                           .rail = (uint8_t)(qp->rail | qp->destination_rail << 4),
                           .destination_qpn = qp->attributes.destination_qpn,
                           .source_qpn = qp->number,
                           .msn = qp->msn};
}

static uint8_t response_operation(const struct owed_response *o)
{
    bool first = o->sent == 0, last = o->sent + 1 == o->packets;
    if (first && last) {
        return PACKET_READ_RESPONSE_ONLY;
    }
    if (first) {
        return PACKET_READ_RESPONSE_FIRST;
    }
    return last ? PACKET_READ_RESPONSE_LAST : PACKET_READ_RESPONSE_MIDDLE;
}

/* Sends the rest of one response. Returns false if there is no room. */
static bool respond(struct device *device, struct queue_pair *qp, struct owed_response *o)
{
    uint32_t mtu_bytes = qp_mtu_bytes(qp);
    struct packet packet = answer_header(qp);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    bool read = o->operation == PACKET_READ_REQUEST;
    while (o->sent < o->packets) {
        uint32_t offset = o->sent * mtu_bytes;
        packet.psn = (o->psn + o->sent) & PSN_MASK;
        packet.operation = read ? response_operation(o) : PACKET_ATOMIC_ACKNOWLEDGE;
        packet.swap_or_add = o->original;
        if (read) {
            packet.payload_bytes = o->bytes - offset < mtu_bytes ? o->bytes - offset : mtu_bytes;
        }
        uint8_t *payload = fabric_reserve(device->fabric, slot, &packet);
        if (!payload) {
            return false;
        }
        if (packet.payload_bytes) {
            const uint8_t *from = key_translate_for_peer(device, qp, o->key, o->address + offset,
                                                         packet.payload_bytes, ACCESS_REMOTE_READ);
            if (!from || !dma_copy(payload, from, packet.payload_bytes)) {
                qp->expected_psn =
                    packet.psn; /* the NAK names the packet that could not be answered */
                break_connection(device, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
                qp->owed_tail = qp->owed_head;
                return true;
            }
        }
        fabric_commit(device->fabric, slot, &packet);
        qp->statistics->packets_sent++;
        qp->statistics->bytes_sent += packet.payload_bytes;
        o->sent++;
    }
    return true;
}

static bool acknowledge(struct device *device, struct queue_pair *qp)
{
    struct packet packet = answer_header(qp);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    packet.operation = PACKET_ACKNOWLEDGE;
    packet.syndrome = qp->nak_due ? qp->nak_due : AETH_ACK | 0x1f; /* 0x1f: no end-to-end credits */
    packet.psn = (qp->nak_due ? qp->expected_psn : qp->expected_psn - 1) & PSN_MASK;
    if (!qp->nak_due && !qp->ack_wakes) {
        packet.flags = 0; /* nobody waits: it is found when the peer is awake */
    }
    if (!fabric_reserve(device->fabric, slot, &packet)) {
        return false;
    }
    fabric_commit(device->fabric, slot, &packet);
    qp->ack_due = qp->ack_wakes = false;
    qp->nak_due = 0;
    return true;
}

bool responder_answer(struct device *device, struct queue_pair *qp)
{
    uint32_t most = sizeof(qp->owed) / sizeof(qp->owed[0]);
    while (qp->owed_tail != qp->owed_head) {
        struct owed_response *o = &qp->owed[qp->owed_tail % most];
        if (!respond(device, qp, o)) {
            return false;
        }
        if (qp->owed_tail == qp->owed_head) {
            break; /* it failed, and the others with it */
        }
        qp->owed_tail++;
    }
    if ((qp->ack_due || qp->nak_due) && !acknowledge(device, qp)) {
        return false;
    }
    list_remove(&qp->owing);
    return true;
}

void responder_flush(struct device *device, struct queue_pair *qp)
{
    if (qp->receive.taken && !tag_abandon(device, qp)) {
        cq_write_error(device, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
    }
    qp->receive.taken = false;
    if (qp->shared_receive_queue) {
        if (!qp->last_wqe) {
            qp_event(device, qp, EVENT_QP_LAST_WQE_REACHED);
        }
        qp->last_wqe = 1;
        return;
    }
    while (receive_take(device, qp) != RECEIVE_EMPTY) {
        qp->receive.taken = false;
        cq_write_error(device, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
        if (qp->receive_queue_completions->overrun) {
            break;
        }
    }
}

void responder_flush_late(struct device *device, struct queue_pair *qp)
{
    /* Posting a receive rings nothing: the record is looked at for a while, as programs post one
     * more to an ended QP to learn when all are flushed. */
    responder_flush(device, qp);
    qp->timer_ns = 0;
    if (qp->shared_receive_queue || qp->receive_entries == 0 || ++qp->late_looks > 300) {
        return;
    }
    qp->timer_ns = device->now_ns + (qp->late_looks < 100 ? 1000000 : 10000000);
    qp_wake_at(device, qp, qp->timer_ns);
}

/* response.c: what a responder sends (IBTA 9.7.5.1): acknowledgements, one for a series of packets,
 * NAKs, and the responses of READs and atomics, in the order of the requests. */
#include "simnic/nic/internal.h"

#include "simnic/nic/dma.h"

void response_acknowledge(struct nic *nic, struct queue_pair *qp, bool wakes)
{
    qp->ack_due = true;
    qp->ack_wakes |= wakes;
    qp_owes(nic, qp);
}

void response_refuse(struct nic *nic, struct queue_pair *qp, uint8_t aeth)
{
    if (qp->type == TYPE_UC) {
        return;
    }
    qp->nak_due = aeth;
    qp->nak_sent = true;
    qp_owes(nic, qp);
}

static struct owed_response *owed_at(struct queue_pair *qp, uint32_t position)
{
    return &qp->owed[position % (sizeof(qp->owed) / sizeof(qp->owed[0]))];
}

struct owed_response *response_owe(struct nic *nic, struct queue_pair *qp,
                                   const struct packet *packet)
{
    if (qp->owed_head - qp->owed_tail == sizeof(qp->owed) / sizeof(qp->owed[0])) {
        return NULL;
    }
    struct owed_response *o = owed_at(qp, qp->owed_head++);
    *o = (struct owed_response){.operation = packet->operation,
                                .psn = packet->psn,
                                .packets = 1,
                                .address = packet->address,
                                .key = packet->key,
                                .bytes = packet->length};
    qp_owes(nic, qp);
    return o;
}

static struct packet header(const struct queue_pair *qp)
{
    return (struct packet){.transport = qp_transport(qp),
                           .levels = packet_levels(&qp->attributes.way),
                           .partition = qp->attributes.partition,
                           .flags = PACKET_WAKE,
                           .rail = (uint8_t)(qp->rail | qp->destination_rail << 4),
                           .destination_qpn = qp->attributes.destination_qpn,
                           .source_qpn = qp->number,
                           .msn = qp->msn};
}

static uint8_t operation_of(const struct owed_response *o)
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
static bool respond(struct nic *nic, struct queue_pair *qp, struct owed_response *o)
{
    uint32_t mtu_bytes = qp_mtu_bytes(qp);
    struct packet packet = header(qp);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    bool read = o->operation == PACKET_READ_REQUEST;
    while (o->sent < o->packets) {
        uint32_t offset = o->sent * mtu_bytes;
        packet.psn = (o->psn + o->sent) & PSN_MASK;
        packet.operation = read ? operation_of(o) : PACKET_ATOMIC_ACKNOWLEDGE;
        packet.swap_or_add = o->original;
        if (read) {
            packet.payload_bytes = o->bytes - offset < mtu_bytes ? o->bytes - offset : mtu_bytes;
        }
        uint8_t *payload = fabric_reserve(nic->fabric, slot, &packet);
        if (!payload) {
            return false;
        }
        if (packet.payload_bytes) {
            if (!key_read_for_peer(nic, qp, o->key, o->address + offset, payload,
                                   packet.payload_bytes)) {
                /* The NAK names the packet that cannot be answered. */
                qp->expected_psn = packet.psn;
                responder_break(nic, qp, AETH_NAK_REMOTE_ACCESS, EVENT_QP_ACCESS_ERR);
                qp->owed_tail = qp->owed_head;
                return true;
            }
        }
        fabric_commit(nic->fabric, slot, &packet);
        qp->statistics->packets_sent++;
        qp->statistics->bytes_sent += packet.payload_bytes;
        o->sent++;
    }
    return true;
}

static bool acknowledge(struct nic *nic, struct queue_pair *qp)
{
    struct packet packet = header(qp);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    packet.operation = PACKET_ACKNOWLEDGE;
    packet.syndrome = qp->nak_due ? qp->nak_due : AETH_ACK | 0x1f; /* 0x1f: no end-to-end credits */
    packet.psn = (qp->nak_due ? qp->expected_psn : qp->expected_psn - 1) & PSN_MASK;
    if (!qp->nak_due && !qp->ack_wakes) {
        packet.flags = 0; /* nobody waits: the peer finds it when it is awake */
    }
    if (!fabric_reserve(nic->fabric, slot, &packet)) {
        return false;
    }
    fabric_commit(nic->fabric, slot, &packet);
    qp->ack_due = qp->ack_wakes = false;
    qp->nak_due = 0;
    return true;
}

bool response_run(struct nic *nic, struct queue_pair *qp)
{
    while (qp->owed_tail != qp->owed_head) {
        if (!respond(nic, qp, owed_at(qp, qp->owed_tail))) {
            turns_await_room(&nic->owing, &qp->owing, nic->fabric->full_slot);
            return false;
        }
        if (qp->owed_tail == qp->owed_head) {
            break; /* it failed, and the others with it */
        }
        qp->owed_tail++;
    }
    if ((qp->ack_due || qp->nak_due) && !acknowledge(nic, qp)) {
        turns_await_room(&nic->owing, &qp->owing, nic->fabric->full_slot);
        return false;
    }
    list_remove(&qp->owing);
    return true;
}

/* requester.c: the sending half of a QP (IBTA 9.7, "Reliable Service"): takes WQEs from the send
 * queue, cuts messages into packets, sends again what was lost, and flushes what will not be sent.
 * completer.c handles what comes back. */
#include "simnic/nic/internal.h"

#include "simnic/nic/tag.h"

#define SHORTEST_TIMEOUT_NS 4000000u
#define BUDGET 64     /* messages or packets of one QP before the next one's turn */
#define ACK_EVERY 32u /* of messages that nobody waits for, one in so many is acknowledged */

/* ---- admitting ---- */

static bool responds(uint8_t opcode)
{
    return opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS ||
           opcode == MLX5_OPCODE_ATOMIC_FA;
}

/* Nothing of it leaves the NIC. */
static bool is_local(uint8_t opcode)
{
    return opcode == MLX5_OPCODE_NOP || opcode == MLX5_OPCODE_UMR ||
           opcode == MLX5_OPCODE_TAG_MATCHING;
}

/* Returns 0 or a syndrome. */
static uint8_t execute_local(struct nic *nic, struct queue_pair *qp)
{
    switch (qp->request.opcode) {
    case MLX5_OPCODE_UMR:
        return window_execute(nic, qp, &qp->request);
    case MLX5_OPCODE_TAG_MATCHING:
        return tag_execute(nic, qp, &qp->request);
    default:
        return 0;
    }
}

/* Gives qp->request its place among the messages in flight, if its turn has come. */
static bool admit(struct nic *nic, struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    if (qp->in_flight_tail - qp->in_flight_head == NIC_IN_FLIGHT) {
        return false;
    }
    if (request->fence && qp->reads_in_flight && !nic_has_quirk(nic, QUIRK_FENCE)) {
        return false;
    }
    if (responds(request->opcode) && qp->reads_in_flight >= qp->attributes.max_reads &&
        qp->attributes.max_reads) {
        return false;
    }
    if (qp->streams && !streams_admit(qp)) {
        return false;
    }
    if (qp->type == TYPE_DCI && !dc_connect(nic, qp)) {
        return false;
    }
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_tail++);
    *m = (struct in_flight){.index = request->index,
                            .blocks = request->blocks,
                            .opcode = request->opcode,
                            .signalled = request->signalled,
                            .solicited = request->solicited,
                            .responds = responds(request->opcode),
                            .syndrome = request->syndrome,
                            .first_psn = qp->next_psn,
                            .bytes = request->bytes};
    qp->send_next = (uint16_t)(qp->send_next + request->blocks);
    qp->statistics->send_wqes++;
    if (m->responds && !m->syndrome && qp->attributes.max_reads == 0) {
        m->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    if (m->syndrome) {
        m->responds = false;
        return true;
    }
    if (is_local(request->opcode)) {
        m->syndrome = execute_local(nic, qp);
        m->done = m->syndrome == 0;
        return true;
    }
    uint32_t mtu_bytes = qp_mtu_bytes(qp);
    m->packets = request->opcode == MLX5_OPCODE_RDMA_READ || !m->responds
                     ? packets_of(request->bytes, mtu_bytes)
                     : 1;
    qp->next_psn = (qp->next_psn + m->packets) & PSN_MASK;
    if (m->responds) {
        qp->reads_in_flight++;
    } else if (nic_has_quirk(nic, QUIRK_SEND_ORDER) && qp->reads_in_flight > 0 && m->signalled) {
        completer_write(nic, qp, m);
        m->signalled = false;
    }
    return true;
}

/* ---- sending ---- */

static uint8_t operation_of(uint8_t opcode, bool first, bool last)
{
    bool immediate =
        last && (opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM);
    bool invalidate = last && opcode == MLX5_OPCODE_SEND_INVAL;
    bool write = opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
    uint8_t base = write ? PACKET_WRITE_FIRST : PACKET_SEND_FIRST;
    if (invalidate) {
        return first ? PACKET_SEND_ONLY_INVALIDATE : PACKET_SEND_LAST_INVALIDATE;
    }
    if (first && last) {
        return (uint8_t)(base + (immediate ? 5 : 4));
    }
    if (first) {
        return base;
    }
    return (uint8_t)(base + (last ? (immediate ? 3 : 2) : 1));
}

static struct packet header(const struct queue_pair *qp, const struct send_request *request)
{
    const struct rail_way *way = qp->type == TYPE_DCI ? &request->way : &qp->attributes.way;
    return (struct packet){
        .transport = qp_transport(qp),
        .levels = packet_levels(way),
        .partition = qp->attributes.partition,
        .msn = request->queue_key, /* XRC: the SRQ */
        .rail = (uint8_t)(qp->rail | qp->destination_rail << 4),
        .destination_qpn = request->destination_qpn,
        .source_qpn = qp->number,
        .immediate = request->opcode == MLX5_OPCODE_SEND_INVAL ? be32toh(request->immediate)
                                                               : request->immediate,
        .address = request->remote_address,
        .key = request->remote_key,
        .length = request->bytes,
    };
}

static uint8_t *reserve(struct nic *nic, const struct queue_pair *qp, uint32_t slot,
                        struct packet *packet)
{
    return qp->type == TYPE_DCI ? dc_reserve(nic, qp, slot, packet)
                                : fabric_reserve(nic->fabric, slot, packet);
}

/* Sends a READ or atomic request: one packet, for what has not come yet. */
static bool send_question(struct nic *nic, struct queue_pair *qp, struct in_flight *m)
{
    const struct send_request *request = &qp->request;
    struct packet packet = header(qp, request);
    uint32_t got = m->settled * qp_mtu_bytes(qp);
    packet.flags = PACKET_ACK_REQUEST | PACKET_WAKE;
    packet.psn = (m->first_psn + m->settled) & PSN_MASK;
    if (request->opcode == MLX5_OPCODE_RDMA_READ) {
        packet.operation = PACKET_READ_REQUEST;
        packet.address += got;
        packet.length -= got;
    } else {
        packet.operation =
            request->opcode == MLX5_OPCODE_ATOMIC_FA ? PACKET_FETCH_ADD : PACKET_COMPARE_SWAP;
        packet.swap_or_add = request->swap_or_add;
        packet.compare = request->compare;
    }
    uint32_t slot = qpn_slot(packet.destination_qpn);
    if (!reserve(nic, qp, slot, &packet)) {
        return false;
    }
    fabric_commit(nic->fabric, slot, &packet);
    qp->statistics->packets_sent++;
    qp->sent_packets = m->packets;
    return true;
}

/* Sends the rest of a SEND or a WRITE. */
static bool send_payload(struct nic *nic, struct queue_pair *qp, struct in_flight *m)
{
    const struct send_request *request = &qp->request;
    uint32_t mtu_bytes = qp_mtu_bytes(qp);
    struct packet packet = header(qp, request);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    /* A DCI may have to wait until all of it has come, before it sends to another target. */
    bool somebody_waits =
        request->signalled || qp->in_flight_tail % ACK_EVERY == 0 || qp->type == TYPE_DCI;
    while (qp->sent_packets < m->packets) {
        uint32_t offset = qp->sent_packets * mtu_bytes;
        bool last = qp->sent_packets + 1 == m->packets;
        packet.operation = operation_of(request->opcode, qp->sent_packets == 0, last);
        uint32_t bytes = last ? request->bytes - offset : mtu_bytes;
        packet.payload_bytes = bytes;
        packet.psn = (m->first_psn + qp->sent_packets) & PSN_MASK;
        packet.flags = PACKET_WAKE | (last && request->solicited ? PACKET_SOLICITED : 0) |
                       (last && somebody_waits ? PACKET_ACK_REQUEST : 0);
        uint8_t *payload = reserve(nic, qp, slot, &packet);
        if (!payload) {
            return false;
        }
        m->syndrome = segments_gather(nic, qp, request, offset, payload, bytes);
        if (m->syndrome) {
            return true;
        }
        fabric_commit(nic->fabric, slot, &packet);
        qp->statistics->packets_sent++;
        qp->statistics->bytes_sent += bytes;
        qp->sent_packets++;
    }
    return true;
}

void requester_start_timer(struct nic *nic, struct queue_pair *qp)
{
    uint8_t timeout = qp->attributes.timeout & 31;
    if (qp->timer_ns || timeout == 0) {
        return;
    }
    /* IBTA 9.7.6.1.3: 4.096 us * 2^timeout, and up to four times that. Adapters have a shortest
     * time. Ours is long enough for the peer's process to get a processor. */
    uint64_t ns = 4096ull << timeout;
    qp->timer_ns = nic->now_ns + (ns < SHORTEST_TIMEOUT_NS ? SHORTEST_TIMEOUT_NS : ns);
    qp_wake_at(nic, qp, qp->timer_ns);
}

void requester_look_at_peer(struct nic *nic, struct queue_pair *qp)
{
    if (!qp->timer_ns) {
        qp->timer_ns = nic->now_ns + SHORTEST_TIMEOUT_NS;
        qp_wake_at(nic, qp, qp->timer_ns);
    }
}

/* What waits for its own port is not on its way, nor what went just now: no time out counts from before. */
static void restart_timer(struct nic *nic, struct queue_pair *qp)
{
    if (nic->fabric->limited) {
        qp->timer_ns = 0;
    }
    requester_start_timer(nic, qp);
}

/* Sends the message at in_flight_next, whose request is parsed. Returns false if it must wait for
 * room. */
static bool send_message(struct nic *nic, struct queue_pair *qp)
{
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_next);
    if (!m->syndrome && !m->done) {
        bool sent;
        if (qp->type == TYPE_UD) {
            sent = datagram_send(nic, qp, &m->syndrome);
        } else {
            sent = m->responds ? send_question(nic, qp, m) : send_payload(nic, qp, m);
        }
        if (!sent) {
            if (nic->fabric->full_slot >= FABRIC_SLOTS) { /* for its port: that is no loss */
                if (qp->type != TYPE_UD && qp->type != TYPE_UC) {
                    restart_timer(nic, qp);
                }
                return false;
            }
            /* The peer that makes no room may be dead. */
            qp->full_slot = nic->fabric->full_slot;
            if (qp->type == TYPE_UD || qp->type == TYPE_UC) {
                requester_look_at_peer(nic, qp);
            } else {
                requester_start_timer(nic, qp);
            }
            return false;
        }
        if (!m->syndrome && (qp->type == TYPE_UD || qp->type == TYPE_UC)) {
            m->done = true; /* nobody acknowledges */
        } else if (!m->syndrome) {
            restart_timer(nic, qp);
        }
    }
    qp->in_flight_next++;
    qp->sent_packets = 0;
    qp->parsed = false;
    return true;
}

/* Prepares the message at in_flight_next: one to be sent again, or a new one. Returns false if
 * there is none now. */
static bool prepare(struct nic *nic, struct queue_pair *qp)
{
    if (qp->in_flight_next != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_next);
        if (qp->parsed && qp->request.index == m->index) {
            return true;
        }
        send_queue_fetch(nic, qp, m->index, m->blocks);
        /* A program must not change what it has posted. */
        if (qp->request.syndrome || qp->request.bytes != m->bytes ||
            qp->request.opcode != m->opcode) {
            m->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        }
        qp->parsed = true;
        return true;
    }
    if (qp->in_flight_tail != qp->in_flight_head &&
        qp_in_flight(qp, qp->in_flight_tail - 1)->syndrome) {
        return false; /* it will fail: nothing goes after it */
    }
    if (!qp->parsed && !send_queue_next(nic, qp)) {
        return false;
    }
    qp->parsed = true;
    return admit(nic, qp);
}

void requester_restart(struct nic *nic, struct queue_pair *qp)
{
    qp->in_flight_next = qp->in_flight_head;
    while (qp->in_flight_next != qp->in_flight_tail && qp_in_flight(qp, qp->in_flight_next)->done) {
        qp->in_flight_next++;
    }
    qp->sent_packets = 0;
    if (qp->in_flight_next != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_next);
        if (!m->responds) {
            qp->sent_packets = m->settled;
        }
    }
    /* A request that was parsed but not admitted is read again. */
    qp->parsed = false;
    qp->statistics->retries++;
    qp_activate(nic, qp);
}

static void write_flushed(struct nic *nic, struct queue_pair *qp, bool signalled, uint8_t opcode,
                          uint16_t index)
{
    if (signalled || !nic_has_quirk(nic, QUIRK_FLUSH)) {
        cq_write_error(nic, qp, true, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, opcode, index);
    }
}

void requester_flush_in_flight(struct nic *nic, struct queue_pair *qp)
{
    while (qp->in_flight_head != qp->in_flight_tail) {
        const struct in_flight *m = qp_in_flight(qp, qp->in_flight_head++);
        write_flushed(nic, qp, m->signalled, m->opcode, m->index);
    }
    qp->in_flight_next = qp->in_flight_head;
    qp->sent_packets = qp->reads_in_flight = 0;
    qp->parsed = qp->response_valid = false;
}

static void flush(struct nic *nic, struct queue_pair *qp)
{
    requester_flush_in_flight(nic, qp);
    qp->push.bytes = 0;
    send_queue_read_producer(qp);
    uint32_t available = (uint16_t)(qp->send_producer - qp->send_next);
    while (qp->send_blocks && available && available <= qp->send_blocks) {
        send_queue_fetch(nic, qp, qp->send_next, available);
        write_flushed(nic, qp, qp->request.signalled, qp->request.opcode, qp->send_next);
        uint32_t blocks = qp->request.blocks < available ? qp->request.blocks : available;
        qp->send_next = (uint16_t)(qp->send_next + blocks);
        available -= blocks;
        qp->statistics->send_wqes++;
    }
    qp->send_next = qp->send_producer;
}

static void tell_drained(struct nic *nic, struct queue_pair *qp)
{
    if (qp->state != STATE_SQD || qp->drained || qp->in_flight_head != qp->in_flight_tail) {
        return;
    }
    qp->drained = true;
    qp_event(nic, qp, EVENT_SQ_DRAINED);
}

bool requester_run(struct nic *nic, struct queue_pair *qp)
{
    if (qp->state == STATE_ERR || qp->state == STATE_SQE) {
        list_remove(&qp->active);
        flush(nic, qp);
        if (qp->state == STATE_ERR) {
            receive_flush(nic, qp);
        }
        return true;
    }
    if (qp->state != STATE_RTS && qp->state != STATE_SQD) {
        list_remove(&qp->active);
        return false;
    }
    if (qp->wait_until_ns > nic->now_ns) {
        list_remove(&qp->active); /* its timer brings it back */
        return false;
    }
    qp->wait_until_ns = 0;
    bool any = false;
    for (int budget = BUDGET; budget && (qp->state == STATE_RTS || qp->state == STATE_SQD);
         budget--) {
        bool looked_again = qp->rings;
        if (!prepare(nic, qp)) {
            /* There is nothing to send until a doorbell, an acknowledgement or a timer comes. But
             * the doorbell of a push that is coming in has rung already. */
            if (!qp->rings) {
                list_remove(&qp->active);
            }
            any |= looked_again && !qp->rings;
            break;
        }
        any = true;
        if (!send_message(nic, qp)) {
            turns_await_room(&nic->active, &qp->active, nic->fabric->full_slot);
            break;
        }
        completer_complete(nic, qp);
    }
    tell_drained(nic, qp);
    return any;
}

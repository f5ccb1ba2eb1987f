/* requester.c: the sending half of a QP (IBTA 9.7, "Reliable Service"): fetches WQEs, cuts messages
 * into packets, sends again what was lost, and flushes what will not be sent. completer.c handles
 * what comes back. */
#include "device.h"
#include "dma.h"
#include "tag.h"

#include <stdatomic.h>
#include <string.h>

#define BUDGET 64     /* messages or packets of one QP before the next one's turn */
#define ACK_EVERY 32u /* of messages nobody waits for */
/* How long an incomplete BlueFlame push is waited for before the queue is read instead: its writer may be
 * preempted. */
#define BLUEFLAME_PATIENCE_NS 20000000u

/* ---- fetching ---- */

static bool read_blocks(const struct queue_pair *qp, uint16_t index, uint8_t *to, uint32_t blocks)
{
    uint32_t first = index & (qp->send_blocks - 1);
    uint32_t until_end = qp->send_blocks - first < blocks ? qp->send_blocks - first : blocks;
    return dma_copy(to, qp->send_buffer + (size_t)first * 64, (size_t)until_end * 64) &&
           dma_copy(to + (size_t)until_end * 64, qp->send_buffer,
                    (size_t)(blocks - until_end) * 64);
}

static uint32_t blocks_of(const uint8_t *wqe)
{
    struct mlx5_wqe_ctrl_seg control;
    memcpy(&control, wqe, sizeof(control));
    uint32_t blocks = ((be32toh(control.qpn_ds) & 0x3f) + 3) / 4;
    return blocks ? blocks : 1;
}

enum blueflame { BLUEFLAME_NONE, BLUEFLAME_WAIT, BLUEFLAME_USE };

/* Returns whether each word of the push but the first, which the doorbell is, is that of the queue, or
 * that of `other`. */
static bool is_mixture(const struct queue_pair *qp, const uint8_t *queued, const uint8_t *other,
                       uint32_t bytes)
{
    for (uint32_t at = 8; at < bytes; at += 8) {
        if (memcmp(qp->blueflame + at, queued + at, 8) != 0 &&
            memcmp(qp->blueflame + at, other + at, 8) != 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether the push's words are those of one WQE in the queue of a QP of the page: it was pushed
 * when the device did not look, and then rung over. Some may be those of `queued`, if it is not NULL: that
 * is being pushed over it. */
static bool is_over_another(const struct device *device, const struct queue_pair *qp,
                            const uint8_t *queued)
{
    for (const struct list *l = device->all_queue_pairs.next; l != &device->all_queue_pairs;
         l = l->next) {
        const struct queue_pair *other = container_of(l, struct queue_pair, all);
        for (uint32_t i = 0; other->page == qp->page && i < other->send_blocks; i++) {
            uint8_t block[64];
            if (!read_blocks(other, (uint16_t)i, block, 1)) {
                break;
            }
            if (is_mixture(qp, queued ? queued : block, block, sizeof(block))) {
                return true;
            }
        }
    }
    return false;
}

/* Returns whether what the register holds is what an earlier WQE left there, so that nothing was
 * pushed with this doorbell, or nothing yet. */
static bool is_left_over(const struct device *device, const struct queue_pair *qp, uint32_t bytes)
{
    const uint8_t *held = qp->blueflame;
    return memcmp(held + 8, qp->blueflame_before + 8, bytes - 8) == 0 ||
           memcmp(held + 8, qp->blueflame_last + 8, 64 - 8) == 0 ||
           (qp->blueflame_since_ns == 0 && is_over_another(device, qp, NULL));
}

/* Returns whether another doorbell has rung at the register since: what it holds, and what was taken
 * from it in pieces, may be of other WQEs, even ones that have been executed already. */
static bool is_overwritten(const struct queue_pair *qp)
{
    return *qp->blueflame_rung != qp->blueflame_serial;
}

/* Decides whether the WQE at send_next is taken from what was pushed. A doorbell without a push
 * leaves in the register what an earlier push brought, maybe one that the device never saw with a
 * doorbell of its own; and the first word of a push may be seen before its last. What differs from
 * the queue's own copy is waited for. If it is a mixture of that and what the register held before
 * even then, its writer has been preempted for long, and the WQE is read from the queue; an adapter
 * would never see such a thing, as it gets stores in order. What is different in any other way was
 * pushed so, and is executed so, as an adapter would. */
static enum blueflame look_at_blueflame(struct device *device, struct queue_pair *qp,
                                        uint32_t available)
{
    struct mlx5_wqe_ctrl_seg control;
    memcpy(&control, qp->blueflame, sizeof(control));
    uint16_t index = (uint16_t)(be32toh(control.opmod_idx_opcode) >> 8);
    uint32_t blocks = blocks_of(qp->blueflame);
    uint32_t size = (be32toh(control.qpn_ds) & 0x3f) * 16;
    uint8_t queued[DEVICE_BLUEFLAME_BYTES];
    if (index != qp->send_next || blocks > available || size < 16 ||
        blocks * 64 > qp->blueflame_bytes || !read_blocks(qp, index, queued, blocks)) {
        if ((int16_t)(index - qp->send_next) <= 0) {
            qp->blueflame_bytes = 0;
        }
        return BLUEFLAME_NONE;
    }
    bool right = memcmp(queued, qp->blueflame, size) == 0;
    bool left_over = !right && (is_overwritten(qp) || is_left_over(device, qp, blocks * 64));
    if (!right && !left_over) {
        uint64_t next_push;
        memcpy(qp->blueflame_seen + 8, qp->blueflame_register + 8, DEVICE_BLUEFLAME_BYTES - 8);
        memcpy(qp->blueflame + 8, qp->blueflame_seen + 8, blocks * 64 - 8);
        atomic_thread_fence(memory_order_acquire);
        memcpy(&next_push, qp->blueflame_register, sizeof(next_push));
        right = memcmp(queued, qp->blueflame, size) == 0;
        if (qp->blueflame_since_ns ==
            0) { /* first seen now: the device's clock may be old before */
            qp->blueflame_since_ns = device->now_ns;
        }
        if (next_push) { /* the register is being written for another WQE */
            left_over = !right;
        } else if (!right && device->now_ns - qp->blueflame_since_ns < BLUEFLAME_PATIENCE_NS) {
            return BLUEFLAME_WAIT;
        } else {
            left_over = !right && memcmp(queued, qp->blueflame, 8) == 0 &&
                        (is_mixture(qp, queued, qp->blueflame_before, size) ||
                         is_over_another(device, qp, queued));
        }
    }
    memcpy(qp->blueflame_last, queued, 64);
    if (left_over) {
        qp->blueflame_bytes = 0;
        return BLUEFLAME_NONE;
    }
    qp->statistics->blueflame_pushes++;
    return BLUEFLAME_USE;
}

/* Reads the WQE at `index` from the send queue. `available`: blocks that the program says are
 * there. */
static bool fetch(struct device *device, struct queue_pair *qp, struct send_request *request,
                  uint16_t index, uint32_t available)
{
    uint32_t blocks = 1;
    bool good = read_blocks(qp, index, request->wqe, 1);
    if (good) {
        blocks = blocks_of(request->wqe);
        if (blocks > available) {
            blocks = available; /* which makes it malformed */
        }
        if (blocks > 1) {
            good = read_blocks(qp, index, request->wqe, blocks);
        }
    }
    qp->statistics->wqe_reads++;
    if (device->tracing) { /* first: parsing puts inline data together */
        device->host.trace(device->host.context, 0, qp->number, request->wqe, blocks * 64);
    }
    wqe_parse(qp, request, index, blocks * 64);
    if (!good) {
        request->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    return good;
}

static void read_producer(struct queue_pair *qp)
{
    uint32_t raw;
    qp->rings = false;
    if (qp->send_blocks && dma_load32(qp->record + 4, &raw)) {
        qp->send_producer = (uint16_t)be32toh(raw);
    }
}

/* qp->request.wqe is a WQE that was pushed. */
static void take_pushed(struct device *device, struct queue_pair *qp, uint32_t bytes)
{
    if (device->tracing) {
        device->host.trace(device->host.context, 0, qp->number, qp->request.wqe, bytes);
    }
    wqe_parse(qp, &qp->request, qp->send_next, bytes);
    qp->statistics->blueflame_executed++;
}

/* One push may bring several WQEs, one after another. Those after the first are taken from it if
 * the register still holds what the queue does; else it was not all of one push, and they are
 * read. */
static bool look_at_rest(struct device *device, struct queue_pair *qp, uint32_t available)
{
    uint32_t at = qp->blueflame_rest;
    uint8_t queued[DEVICE_BLUEFLAME_BYTES];
    qp->blueflame_rest = 0;
    if (is_overwritten(qp) || at >= DEVICE_BLUEFLAME_BYTES ||
        !read_blocks(qp, qp->send_next, queued, 1)) {
        return false;
    }
    uint32_t blocks = blocks_of(queued);
    if (blocks > available || at + blocks * 64 > DEVICE_BLUEFLAME_BYTES ||
        !read_blocks(qp, qp->send_next, queued, blocks)) {
        return false;
    }
    memcpy(qp->request.wqe, qp->blueflame_register + at, blocks * 64);
    if (memcmp(qp->request.wqe, queued, blocks * 64) != 0) {
        return false;
    }
    take_pushed(device, qp, blocks * 64);
    qp->blueflame_rest = at + blocks * 64;
    return true;
}

/* Looks for the next WQE. Returns whether qp->request is one. */
static bool fetch_next(struct device *device, struct queue_pair *qp)
{
    if (qp->state == STATE_SQD) {
        qp->rings = false; /* it rings again when the QP sends again */
        return false;
    }
    if (qp->send_next == qp->send_producer || qp->rings) {
        read_producer(qp);
    }
    uint32_t available = (uint16_t)(qp->send_producer - qp->send_next);
    if (available == 0 || qp->send_blocks == 0) {
        return false;
    }
    if (available > qp->send_blocks) { /* the program overran its own queue */
        available = qp->send_blocks;
    }
    if (qp->blueflame_bytes && !qp->rendezvous) {
        enum blueflame use = look_at_blueflame(device, qp, available);
        if (use == BLUEFLAME_WAIT) {
            qp->rings = true; /* look again */
            return false;
        }
        if (use == BLUEFLAME_USE) {
            memcpy(qp->request.wqe, qp->blueflame, qp->blueflame_bytes);
            take_pushed(device, qp, qp->blueflame_bytes);
            qp->blueflame_rest = qp->blueflame_bytes;
            qp->blueflame_bytes = 0;
            return true;
        }
    }
    if (qp->blueflame_rest && look_at_rest(device, qp, available)) {
        return true;
    }
    fetch(device, qp, &qp->request, qp->send_next, available);
    return true;
}

static bool responds(uint8_t opcode)
{
    return opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS ||
           opcode == MLX5_OPCODE_ATOMIC_FA;
}

/* Nothing of it leaves the device. */
static bool is_local(uint8_t opcode)
{
    return opcode == MLX5_OPCODE_NOP || opcode == MLX5_OPCODE_UMR ||
           opcode == MLX5_OPCODE_TAG_MATCHING;
}

/* Gives qp->request its place among the messages in flight, if its turn has come. */
static bool admit(struct device *device, struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    if (qp->in_flight_tail - qp->in_flight_head == DEVICE_IN_FLIGHT) {
        return false;
    }
    if (request->fence && qp->reads_in_flight) {
        return false;
    }
    if (responds(request->opcode) && qp->reads_in_flight >= qp->attributes.max_reads &&
        qp->attributes.max_reads) {
        return false;
    }
    if (qp->streams && !streams_admit(qp)) {
        return false;
    }
    if (qp->type == TYPE_DCI && !dc_connect(device, qp)) {
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
        if (request->opcode == MLX5_OPCODE_UMR) {
            m->syndrome = window_execute(device, qp, request);
        } else if (request->opcode == MLX5_OPCODE_TAG_MATCHING) {
            m->syndrome = tag_execute(device, qp, request);
        }
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
    }
    return true;
}

/* ---- sending ---- */

uint8_t requester_gather(struct device *device, struct queue_pair *qp,
                         const struct send_request *request, uint32_t offset, uint8_t *to,
                         uint32_t bytes)
{
    uint32_t skip = offset;
    for (uint32_t i = 0; i < request->segments && bytes; i++) {
        const struct segment *s = &request->segment[i];
        if (skip >= s->bytes) {
            skip -= s->bytes;
            continue;
        }
        uint32_t part = s->bytes - skip < bytes ? s->bytes - skip : bytes;
        const uint8_t *from;
        if (s->inlined) {
            from = request->wqe + s->address + skip;
        } else {
            from = key_translate(device, s->key, s->address + skip, part, 0, qp->domain);
            qp->statistics->payload_reads++;
        }
        if (!from || !dma_copy(to, from, part)) {
            return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        }
        to += part;
        bytes -= part;
        skip = 0;
    }
    return 0;
}

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
    return (struct packet){
        .transport = qp->type == TYPE_UC              ? TRANSPORT_UC
                     : qp->type == TYPE_XRC_INITIATOR ? TRANSPORT_XRC
                                                      : TRANSPORT_RC,
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

static uint8_t *reserve(struct device *device, const struct queue_pair *qp, uint32_t slot,
                        struct packet *packet)
{
    return qp->type == TYPE_DCI ? dc_reserve(device, qp, slot, packet)
                                : fabric_reserve(device->fabric, slot, packet);
}

/* A READ or atomic request: one packet, for what has not come yet. */
static bool send_asking(struct device *device, struct queue_pair *qp, struct in_flight *m)
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
    if (!reserve(device, qp, slot, &packet)) {
        return false;
    }
    fabric_commit(device->fabric, slot, &packet);
    qp->statistics->packets_sent++;
    qp->sent_packets = m->packets;
    return true;
}

static bool send_telling(struct device *device, struct queue_pair *qp, struct in_flight *m)
{
    const struct send_request *request = &qp->request;
    uint32_t mtu_bytes = qp_mtu_bytes(qp);
    struct packet packet = header(qp, request);
    uint32_t slot = qpn_slot(packet.destination_qpn);
    /* An initiator may have to wait for all of it before it goes elsewhere. */
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
        uint8_t *payload = reserve(device, qp, slot, &packet);
        if (!payload) {
            return false;
        }
        m->syndrome = requester_gather(device, qp, request, offset, payload, bytes);
        if (m->syndrome) {
            return true;
        }
        fabric_commit(device->fabric, slot, &packet);
        qp->statistics->packets_sent++;
        qp->statistics->bytes_sent += bytes;
        qp->sent_packets++;
    }
    return true;
}

void requester_start_timer(struct device *device, struct queue_pair *qp)
{
    uint8_t timeout = qp->attributes.timeout & 31;
    if (qp->timer_ns || timeout == 0) {
        return;
    }
    /* IBTA 9.7.6.1.3: 4.096 us * 2^timeout, and up to four times that. Adapters have a floor; ours
     * leaves a peer's device time to be scheduled. */
    uint64_t ns = 4096ull << timeout;
    qp->timer_ns = device->now_ns + (ns < 4000000 ? 4000000 : ns);
    qp_wake_at(device, qp, qp->timer_ns);
}

/* Sends the message at in_flight_next, whose request is parsed. Returns false if it must wait for
 * room. */
static bool send_message(struct device *device, struct queue_pair *qp)
{
    struct in_flight *m = qp_in_flight(qp, qp->in_flight_next);
    if (!m->syndrome && !m->done) {
        bool sent;
        if (qp->type == TYPE_UD) {
            sent = datagram_send(device, qp, &m->syndrome);
        } else {
            sent = m->responds ? send_asking(device, qp, m) : send_telling(device, qp, m);
        }
        if (!sent) {
            if (qp->type != TYPE_UD && qp->type != TYPE_UC) {
                requester_start_timer(device, qp); /* the peer that makes no room may be dead */
            }
            return false;
        }
        if (!m->syndrome && (qp->type == TYPE_UD || qp->type == TYPE_UC)) {
            m->done = true; /* nobody acknowledges */
        } else if (!m->syndrome) {
            requester_start_timer(device, qp);
        }
    }
    qp->in_flight_next++;
    qp->sent_packets = 0;
    qp->parsed = false;
    return true;
}

/* Prepares the message at in_flight_next: one to be sent again, or a new one. Returns false if
 * there is none now. */
static bool prepare(struct device *device, struct queue_pair *qp)
{
    if (qp->in_flight_next != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_next);
        if (qp->parsed && qp->request.index == m->index) {
            return true;
        }
        uint16_t index = m->index;
        fetch(device, qp, &qp->request, index, m->blocks);
        if (qp->request.syndrome || qp->request.bytes != m->bytes ||
            qp->request.opcode != m->opcode) {
            m->syndrome =
                MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR; /* the program changed what it had posted */
        }
        qp->parsed = true;
        return true;
    }
    if (qp->in_flight_tail != qp->in_flight_head &&
        qp_in_flight(qp, qp->in_flight_tail - 1)->syndrome) {
        return false; /* it will fail: nothing goes after it */
    }
    if (!qp->parsed && !fetch_next(device, qp)) {
        return false;
    }
    qp->parsed = true;
    return admit(device, qp);
}

void requester_restart(struct device *device, struct queue_pair *qp)
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
    qp_activate(device, qp);
}

static void tell_drained(struct device *device, struct queue_pair *qp)
{
    if (qp->state != STATE_SQD || qp->drained || qp->in_flight_head != qp->in_flight_tail) {
        return;
    }
    qp->drained = true;
    qp_event(device, qp, EVENT_SQ_DRAINED);
}

bool requester_run(struct device *device, struct queue_pair *qp)
{
    if (qp->state == STATE_ERR || qp->state == STATE_SQE) {
        list_remove(&qp->active);
        requester_flush(device, qp);
        if (qp->state == STATE_ERR) {
            qp->late_looks = 0;
            responder_flush_late(device, qp);
        }
        return true;
    }
    if (qp->state != STATE_RTS && qp->state != STATE_SQD) {
        list_remove(&qp->active);
        return false;
    }
    if (qp->wait_until_ns > device->now_ns) {
        list_remove(&qp->active); /* its timer brings it back */
        return false;
    }
    qp->wait_until_ns = 0;
    bool any = false;
    for (int budget = BUDGET; budget && (qp->state == STATE_RTS || qp->state == STATE_SQD);
         budget--) {
        bool looked_again = qp->rings;
        if (!prepare(device, qp)) {
            /* Nothing to send until a doorbell, an acknowledgement or a timer says so; but a push
             * that is coming in has rung already. */
            if (!qp->rings) {
                list_remove(&qp->active);
            }
            any |= looked_again && !qp->rings;
            break;
        }
        any = true;
        if (!send_message(device, qp)) {
            break; /* the ring is full: stays active */
        }
        completer_complete(device, qp);
    }
    tell_drained(device, qp);
    return any;
}

/* ---- flushing ---- */

void requester_flush(struct device *device, struct queue_pair *qp)
{
    while (qp->in_flight_head != qp->in_flight_tail) {
        struct in_flight *m = qp_in_flight(qp, qp->in_flight_head++);
        cq_write_error(device, qp, true, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, m->opcode, m->index);
    }
    qp->in_flight_next = qp->in_flight_head;
    qp->reads_in_flight = 0;
    qp->parsed = qp->response_valid = false;
    qp->blueflame_bytes = 0;
    read_producer(qp);
    uint32_t available = (uint16_t)(qp->send_producer - qp->send_next);
    while (qp->send_blocks && available && available <= qp->send_blocks) {
        fetch(device, qp, &qp->request, qp->send_next, available);
        cq_write_error(device, qp, true, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, qp->request.opcode,
                       qp->send_next);
        uint32_t blocks = qp->request.blocks < available ? qp->request.blocks : available;
        qp->send_next = (uint16_t)(qp->send_next + blocks);
        available -= blocks;
        qp->statistics->send_wqes++;
    }
    qp->send_next = qp->send_producer;
}

/* qp.c: queue pairs: their life and their states. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/tag.h"

#define FIRST_INDEX 64u /* QPNs 0 and 1 are special. Whoever uses one below this makes a mistake */

static struct fabric_queue_pair_statistics *statistics_of(struct nic *nic, struct queue_pair *qp)
{
    if (!nic->fabric) {
        return &qp->own_statistics;
    }
    struct fabric_process_statistics *all = &nic->fabric->file->statistics[nic->fabric->slot];
    struct fabric_queue_pair_statistics *place = NULL;
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        struct fabric_queue_pair_statistics *s = &all->queue_pairs[i];
        if (s->qpn == 0) {
            place = s;
            break;
        }
        if (s->destroyed && !place) { /* its figures are kept until the place is needed */
            place = s;
        }
    }
    if (!place) {
        return &qp->own_statistics;
    }
    *place = (struct fabric_queue_pair_statistics){.qpn = qp->number};
    return place;
}

struct queue_pair *qp_create(struct nic *nic)
{
    /* Next fit: a number rests before it is used again, so that late packets for its last owner do
     * not reach the next. */
    for (uint32_t tried = 0; tried < NIC_MAX_QUEUE_PAIRS; tried++) {
        uint32_t index = nic->queue_pair_next++ % NIC_MAX_QUEUE_PAIRS;
        if (index < FIRST_INDEX || nic->queue_pairs[index] ||
            nic->reserved_numbers[index / NIC_RESERVED_NUMBERS]) {
            continue;
        }
        struct queue_pair *qp = calloc(1, sizeof(*qp));
        if (!qp) {
            return NULL;
        }
        uint32_t slot = nic->fabric ? nic->fabric->slot : 0;
        qp->number = slot << QPN_SLOT_SHIFT | index;
        qp->current = NO_MESSAGE;
        list_init(&qp->active);
        list_init(&qp->owing);
        wheel_timer_init(&qp->timed, 0);
        list_init(&qp->on_page);
        list_append(&nic->all_queue_pairs, &qp->all);
        qp->statistics = statistics_of(nic, qp);
        nic->queue_pairs[index] = qp;
        return qp;
    }
    return NULL;
}

/* ---- reserved numbers ---- */

static bool is_block_free(const struct nic *nic, uint32_t block)
{
    if (nic->reserved_numbers[block]) {
        return false;
    }
    for (uint32_t i = 0; i < NIC_RESERVED_NUMBERS; i++) {
        if (nic->queue_pairs[block * NIC_RESERVED_NUMBERS + i]) {
            return false;
        }
    }
    return true;
}

uint32_t qp_reserve_numbers(struct nic *nic)
{
    const uint32_t slot = nic->fabric ? nic->fabric->slot : 0;
    /* From the last block on downwards: queue pairs get their numbers upwards. Half of all is left to them. */
    const uint32_t blocks = NIC_MAX_QUEUE_PAIRS / NIC_RESERVED_NUMBERS;
    for (uint32_t block = blocks - 1; block >= blocks / 2; block--) {
        if (is_block_free(nic, block)) {
            nic->reserved_numbers[block] = true;
            return slot << QPN_SLOT_SHIFT | block * NIC_RESERVED_NUMBERS;
        }
    }
    return 0;
}

void qp_release_numbers(struct nic *nic, uint32_t first)
{
    nic->reserved_numbers[(first & QPN_INDEX_MASK) / NIC_RESERVED_NUMBERS] = false;
}

void qp_attach_page(struct nic *nic, struct queue_pair *qp)
{
    if (qp->page < NIC_MAX_PAGES && nic->pages[qp->page]) {
        list_append_once(&nic->pages[qp->page]->queue_pairs, &qp->on_page);
    }
    qp->statistics->type = (uint8_t)qp->type;
    qp->statistics->rail = qp->rail;
}

void qp_destroy(struct nic *nic, struct queue_pair *qp)
{
    late_land_all(nic, qp);
    tag_abandon(nic, qp);
    held_forget(qp);
    rendezvous_end(nic, qp);
    if (qp->dc_target) { /* the kernel drains it first: receives that messages have taken complete */
        dc_target_break(nic, qp);
    }
    list_remove(&qp->all);
    qp_rest(nic, qp);
    nic_forget_pushes(nic, qp->page);
    list_remove(&qp->on_page);
    qp->statistics->destroyed = 1;
    nic->queue_pairs[qp->number & QPN_INDEX_MASK] = NULL;
    multicast_leave(nic, qp);
    dc_target_destroy(nic, qp);
    streams_destroy(qp);
    free(qp);
}

struct queue_pair *qp_find(struct nic *nic, uint32_t qpn)
{
    uint32_t index = qpn & QPN_INDEX_MASK;
    if (index >= NIC_MAX_QUEUE_PAIRS) {
        return NULL;
    }
    struct queue_pair *qp = nic->queue_pairs[index];
    return qp && qp->number == qpn ? qp : NULL;
}

/* Of the events of a DCT, the kernel's mlx5_ib takes only DCT_DRAINED (qpc.c:
 * dct_allowed_event_types), and tells nobody. */
void qp_event(struct nic *nic, const struct queue_pair *qp, int event)
{
    if (qp->type != TYPE_DCT) {
        nic->host.async_event(nic->host.context, event, qp->rail, qp->owner);
    }
}

void qp_activate(struct nic *nic, struct queue_pair *qp)
{
    list_append_once(&nic->active.ready, &qp->active);
}

void qp_activate_anew(struct nic *nic, struct queue_pair *qp)
{
    list_remove(&qp->active);
    qp_activate(nic, qp);
}

void qp_owes(struct nic *nic, struct queue_pair *qp)
{
    list_append_once(&nic->owing.ready, &qp->owing);
}

void turns_await_room(struct turns *turns, struct list *member, uint32_t slot)
{
    list_remove(member);
    if (slot >= FABRIC_SLOTS) {
        list_append(&turns->no_rate[slot - FABRIC_SLOTS], member);
        turns->slow_rails |= 1u << (slot - FABRIC_SLOTS);
        return;
    }
    list_append(&turns->no_room[slot], member);
    turns->full_slots |= 1ull << slot;
}

void qp_rest(struct nic *nic, struct queue_pair *qp)
{
    list_remove(&qp->active);
    list_remove(&qp->owing);
    wheel_clear(&nic->timers, &qp->timed);
}

void qp_wake_at(struct nic *nic, struct queue_pair *qp, uint64_t time_ns)
{
    if (wheel_timer_set(&qp->timed)) {
        if (qp->timed.tick <= time_ns >> WHEEL_TICK_BITS) {
            return;
        }
        wheel_clear(&nic->timers, &qp->timed);
    }
    wheel_set(&nic->timers, &qp->timed, time_ns);
}

uint8_t qp_rail_reached(const struct nic *nic, const struct queue_pair *qp,
                        const struct rail_way *way)
{
    int rail = rail_reached(nic_link(nic), qp->rail, way);
    return rail == RAIL_NONE ? PACKET_NO_RAIL : (uint8_t)rail;
}

void qp_tell_path(struct queue_pair *qp, const struct rail_way *way)
{
    struct fabric_queue_pair_statistics *s = qp->statistics;
    s->way = *way;
    s->partition = qp->attributes.partition;
    s->timeout = qp->attributes.timeout;
    s->retry_count = qp->attributes.retry_count;
    s->rnr_retry_count = qp->attributes.rnr_retry_count;
    s->ece = qp->attributes.ece;
}

void qp_tell_path_of_request(const struct nic *nic, struct queue_pair *qp)
{
    struct rail_way way = qp->request.way;
    if (!(nic_link(nic) & LINK_INFINIBAND)) { /* as libmlx5 writes an address vector of Ethernet */
        way.lid = 0;
        way.grh = 1;
        way.service_level = way.service_level >> 1;
    }
    qp_tell_path(qp, &way);
}

uint32_t qp_mtu_bytes(const struct queue_pair *qp)
{
    uint8_t mtu = qp->attributes.path_mtu;
    return mtu >= 1 && mtu <= 5 ? 128u << mtu : RAIL_MTU_BYTES;
}

uint8_t qp_transport(const struct queue_pair *qp)
{
    switch (qp->type) {
    case TYPE_UC:
        return TRANSPORT_UC;
    case TYPE_UD:
        return TRANSPORT_UD;
    case TYPE_XRC_INITIATOR:
    case TYPE_XRC_TARGET:
        return TRANSPORT_XRC;
    case TYPE_DCI:
    case TYPE_DCT:
        return TRANSPORT_DC;
    default:
        return TRANSPORT_RC;
    }
}

bool qp_receives(const struct queue_pair *qp)
{
    return qp->state == STATE_RTR || qp->state == STATE_RTS || qp->state == STATE_SQD ||
           qp->state == STATE_SQE;
}

static void reset(struct nic *nic, struct queue_pair *qp)
{
    qp->send_producer = qp->send_next = 0;
    qp->in_flight_head = qp->in_flight_next = qp->in_flight_tail = 0;
    qp->sent_packets = 0;
    qp->parsed = qp->response_valid = qp->rings = qp->drained = false;
    qp->reads_in_flight = 0;
    qp->wait_until_ns = qp->timer_ns = 0;
    qp->push.bytes = qp->push.rest = 0;
    qp->receive_next = 0;
    qp->msn = 0;
    qp->current = NO_MESSAGE;
    qp->nak_sent = qp->ack_due = qp->ack_wakes = false;
    qp->nak_due = 0;
    qp->last_wqe_told = false;
    qp->owed_head = qp->owed_tail = 0;
    memset(qp->atomics, 0, sizeof(qp->atomics));
    qp->receive.taken = false;
    qp->attributes.ece = qp->statistics->ece = 0;
    qp_rest(nic, qp);
}

void qp_set_state(struct nic *nic, struct queue_pair *qp, uint8_t state)
{
    uint8_t before = qp->state;
    late_land_all(nic, qp);
    qp->could_receive = state == STATE_ERR && (qp_receives(qp) || qp->could_receive);
    qp->state = state;
    qp->statistics->state = state;
    switch (state) {
    case STATE_RESET:
        tag_abandon(nic, qp);
        held_forget(qp);
        rendezvous_end(nic, qp);
        streams_clear(qp);
        reset(nic, qp);
        nic_forget_pushes(nic, qp->page); /* its WQEs are counted from 0 again */
        break;
    case STATE_RTR:
        qp->expected_psn = qp->attributes.receive_psn;
        break;
    case STATE_RTS:
        if (before == STATE_RTR) {
            qp->next_psn = qp->attributes.send_psn;
        }
        qp->rnr_left = qp->attributes.rnr_retry_count;
        qp->retries_left = qp->attributes.retry_count;
        qp->drained = false;
        qp->rings = true; /* requests may have been posted before */
        qp_activate(nic, qp);
        break;
    case STATE_SQD:
        qp_activate(nic, qp);
        break;
    case STATE_SQE:
    case STATE_ERR:
        if (nic_has_quirk(nic, QUIRK_SHARED_RECEIVES) && state == STATE_ERR && !qp->receive.taken &&
            qp->shared_receive_queue) {
            receive_take(nic, qp);
            qp->receive.taken = false;
        }
        qp->rings = true;
        qp->timer_ns = qp->wait_until_ns = 0;
        qp->ack_due = false;
        qp->owed_tail = qp->owed_head;
        if (qp->dc_target) {
            dc_target_break(nic, qp);
        }
        qp_activate_anew(nic, qp);
        break;
    default:
        break;
    }
}

void qp_fail(struct nic *nic, struct queue_pair *qp)
{
    if (qp->state != STATE_ERR && qp->state != STATE_RESET) {
        qp_set_state(nic, qp, STATE_ERR);
    }
}

/* qp.c: queue pairs: their life and their states. */
#include "device.h"
#include "tag.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_INDEX 64u /* QPNs 0 and 1 are special; a QPN below this one is a slip */

static struct fabric_queue_pair_statistics *statistics_of(struct device *device,
                                                          struct queue_pair *qp)
{
    if (!device->fabric) {
        return &qp->own_statistics;
    }
    struct fabric_process_statistics *all = &device->fabric->file->statistics[device->fabric->slot];
    struct fabric_queue_pair_statistics *place = NULL;
    for (uint32_t i = 0; i < FABRIC_STATISTICS_ENTRIES; i++) {
        struct fabric_queue_pair_statistics *s = &all->queue_pairs[i];
        if (s->qpn == 0) {
            place = s;
            break;
        }
        if (s->destroyed && !place) { /* keep the figures of dead QPs until their place is needed */
            place = s;
        }
    }
    if (!place) {
        return &qp->own_statistics;
    }
    *place = (struct fabric_queue_pair_statistics){.qpn = qp->number};
    return place;
}

struct queue_pair *qp_create(struct device *device)
{
    /* Next fit: a number rests before it comes again, so that late packets for its last owner do
     * not hit the next. */
    for (uint32_t tried = 0; tried < DEVICE_MAX_QUEUE_PAIRS; tried++) {
        uint32_t index = device->queue_pair_next++ % DEVICE_MAX_QUEUE_PAIRS;
        if (index < FIRST_INDEX || device->queue_pairs[index]) {
            continue;
        }
        struct queue_pair *qp = calloc(1, sizeof(*qp));
        if (!qp) {
            return NULL;
        }
        uint32_t slot = device->fabric ? device->fabric->slot : 0;
        qp->number = slot << QPN_SLOT_SHIFT | index;
        qp->current = 0xff;
        list_init(&qp->active);
        list_init(&qp->owing);
        list_init(&qp->timed);
        list_init(&qp->on_page);
        list_append(&device->all_queue_pairs, &qp->all);
        qp->statistics = statistics_of(device, qp);
        device->queue_pairs[index] = qp;
        return qp;
    }
    return NULL;
}

void qp_attach_page(struct device *device, struct queue_pair *qp)
{
    if (qp->page < DEVICE_MAX_PAGES && device->pages[qp->page]) {
        list_append_once(&device->pages[qp->page]->queue_pairs, &qp->on_page);
    }
    qp->statistics->type = (uint8_t)qp->type;
    qp->statistics->rail = qp->rail;
}

void qp_destroy(struct device *device, struct queue_pair *qp)
{
    tag_abandon(device, qp);
    rendezvous_end(device, qp);
    list_remove(&qp->all);
    list_remove(&qp->active);
    list_remove(&qp->owing);
    list_remove(&qp->timed);
    device_forget_pushes(device, qp->page);
    list_remove(&qp->on_page);
    qp->statistics->destroyed = 1;
    device->queue_pairs[qp->number & QPN_INDEX_MASK] = NULL;
    free(qp->groups);
    dc_target_destroy(qp);
    streams_destroy(qp);
    free(qp);
}

struct queue_pair *qp_find(struct device *device, uint32_t qpn)
{
    uint32_t index = qpn & QPN_INDEX_MASK;
    if (index >= DEVICE_MAX_QUEUE_PAIRS) {
        return NULL;
    }
    struct queue_pair *qp = device->queue_pairs[index];
    return qp && qp->number == qpn ? qp : NULL;
}

/* The kernel's mlx5_ib takes DCT_DRAINED alone from the events of a DCT (qpc.c:
 * dct_allowed_event_types), and keeps it to itself. */
void qp_event(struct device *device, const struct queue_pair *qp, int event)
{
    if (qp->type != TYPE_DCT) {
        device->host.async_event(device->host.context, event, qp->rail, qp->owner);
    }
}

void qp_activate(struct device *device, struct queue_pair *qp)
{
    list_append_once(&device->active, &qp->active);
}

void qp_owes(struct device *device, struct queue_pair *qp)
{
    list_append_once(&device->owing, &qp->owing);
}

void qp_wake_at(struct device *device, struct queue_pair *qp, uint64_t time_ns)
{
    list_append_once(&device->timed, &qp->timed);
    if (time_ns < device->next_timer_ns) {
        device->next_timer_ns = time_ns;
    }
}

uint32_t qp_mtu_bytes(const struct queue_pair *qp)
{
    uint8_t mtu = qp->attributes.path_mtu;
    return mtu >= 1 && mtu <= 5 ? 128u << mtu : RAIL_MTU_BYTES;
}

static void reset(struct queue_pair *qp)
{
    qp->send_producer = qp->send_next = 0;
    qp->in_flight_head = qp->in_flight_next = qp->in_flight_tail = 0;
    qp->sent_packets = 0;
    qp->parsed = qp->response_valid = qp->rings = qp->drained = false;
    qp->reads_in_flight = 0;
    qp->wait_until_ns = qp->timer_ns = 0;
    qp->blueflame_bytes = 0;
    qp->blueflame_rest = 0;
    qp->receive_next = 0;
    qp->msn = 0;
    qp->current = 0xff;
    qp->nak_sent = qp->ack_due = qp->ack_wakes = false;
    qp->nak_due = 0;
    qp->last_wqe = 0;
    qp->owed_head = qp->owed_tail = 0;
    memset(qp->atomics, 0, sizeof(qp->atomics));
    qp->receive.taken = false;
    list_remove(&qp->active);
    list_remove(&qp->owing);
    list_remove(&qp->timed);
}

void qp_set_state(struct device *device, struct queue_pair *qp, uint8_t state)
{
    uint8_t before = qp->state;
    qp->state = state;
    qp->statistics->state = state;
    switch (state) {
    case STATE_RESET:
        tag_abandon(device, qp);
        rendezvous_end(device, qp);
        streams_clear(qp);
        reset(qp);
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
        qp_activate(device, qp);
        break;
    case STATE_SQD:
        qp_activate(device, qp);
        break;
    case STATE_SQE:
    case STATE_ERR:
        qp->rings = true;
        qp->timer_ns = qp->wait_until_ns = 0;
        qp->ack_due = false;
        qp->owed_tail = qp->owed_head;
        if (qp->dc_target) {
            dc_target_break(device, qp);
        }
        qp_activate(device, qp);
        break;
    default:
        break;
    }
}

void qp_fail(struct device *device, struct queue_pair *qp)
{
    if (qp->state != STATE_ERR && qp->state != STATE_RESET) {
        qp_set_state(device, qp, STATE_ERR);
    }
}

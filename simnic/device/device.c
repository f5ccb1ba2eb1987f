/* device.c: the device as a whole: its doorbell pages, the round of its queues, its timers, and
 * what faults ask for. */
#include "device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CQ_DOORBELL 0x20u /* of a UAR page (PRM, "UAR page format") */
#define PACKETS_A_RUN 256
#define LOOK_AGAIN_NS 200000u /* at what waits for room */

static const uint32_t register_offset[DEVICE_REGISTERS] = {0x800, 0x900, 0xa00, 0xb00};

bool device_create(struct device *device, struct fabric *fabric, const struct device_host *host)
{
    *device = (struct device){
        .fabric = fabric, .host = *host, .key_next = 1, .next_timer_ns = UINT64_MAX};
    /* What is down already is no event, but is seen by who asks. */
    device->rails_down = fabric->fault.rails_down;
    device->keys = calloc(DEVICE_MAX_KEYS, sizeof(*device->keys));
    device->queue_pairs = calloc(DEVICE_MAX_QUEUE_PAIRS, sizeof(void *));
    device->completion_queues = calloc(DEVICE_MAX_COMPLETION_QUEUES, sizeof(void *));
    device->shared_receive_queues = calloc(DEVICE_MAX_SHARED_RECEIVE_QUEUES, sizeof(void *));
    list_init(&device->all_queue_pairs);
    list_init(&device->all_completion_queues);
    list_init(&device->all_shared_receive_queues);
    list_init(&device->active);
    list_init(&device->owing);
    list_init(&device->timed);
    list_init(&device->holding);
    /* A process that takes over a slot starts its QPNs elsewhere than the last owner did. */
    if (fabric) {
        device->queue_pair_next = atomic_load(&fabric->file->slots[fabric->slot].generation) * 977;
    }
    if (device->keys && device->queue_pairs && device->completion_queues &&
        device->shared_receive_queues) {
        return true;
    }
    device_destroy(device);
    return false;
}

void device_destroy(struct device *device)
{
    while (device->all_queue_pairs.next && !list_empty(&device->all_queue_pairs)) {
        qp_destroy(device, container_of(device->all_queue_pairs.next, struct queue_pair, all));
    }
    while (device->all_shared_receive_queues.next &&
           !list_empty(&device->all_shared_receive_queues)) {
        srq_destroy(device, container_of(device->all_shared_receive_queues.next,
                                         struct shared_receive_queue, all));
    }
    while (device->all_completion_queues.next && !list_empty(&device->all_completion_queues)) {
        cq_destroy(device,
                   container_of(device->all_completion_queues.next, struct completion_queue, all));
    }
    for (uint32_t page = 0; page < device->page_end; page++) {
        device_remove_page(device, page);
    }
    free(device->keys);
    free(device->queue_pairs);
    free(device->completion_queues);
    free(device->shared_receive_queues);
    memset(device, 0, sizeof(*device));
}

uint32_t device_free_number(void *const *table, uint32_t end, uint32_t *last)
{
    for (uint32_t tried = 1; tried < end; tried++) {
        *last = *last + 1 < end ? *last + 1 : 1;
        if (!table[*last]) {
            return *last;
        }
    }
    return 0;
}

/* ---- doorbells ---- */

bool device_add_page(struct device *device, uint32_t page, uint8_t *memory)
{
    struct doorbell_page *p = calloc(1, sizeof(*p));
    if (!p) {
        return false;
    }
    memset(memory, 0, DEVICE_UAR_BYTES);
    p->memory = memory;
    list_init(&p->queue_pairs);
    device->pages[page] = p;
    if (page >= device->page_end) {
        device->page_end = page + 1;
    }
    return true;
}

void device_remove_page(struct device *device, uint32_t page)
{
    struct doorbell_page *p = device->pages[page];
    if (!p) {
        return;
    }
    while (!list_empty(&p->queue_pairs)) {
        container_of(p->queue_pairs.next, struct queue_pair, on_page)->blueflame_bytes = 0;
        list_remove(p->queue_pairs.next);
    }
    device->pages[page] = NULL;
    free(p);
    while (device->page_end && !device->pages[device->page_end - 1]) {
        device->page_end--;
    }
}

static void ring(struct device *device, struct queue_pair *qp)
{
    qp->rings = true;
    qp_activate(device, qp);
}

/* Notes what a register holds at a doorbell: a WQE if it was pushed, what was there before if not;
 * requester.c tells them apart. The register is not cleared, as its next writer may be at it
 * already. */
static void note_push(struct doorbell_page *page, uint32_t which, struct queue_pair *qp,
                      uint64_t first)
{
    const uint8_t *from = page->memory + register_offset[which];
    uint8_t *seen = page->seen[which];
    uint32_t low;
    memcpy(&low, (uint8_t *)&first + 4, sizeof(low));
    uint32_t bytes = (((be32toh(low) & 0x3f) * 16) + 63) & ~63u;
    if (bytes == 0 || bytes > DEVICE_BLUEFLAME_BYTES) {
        return;
    }
    memcpy(qp->blueflame_before, seen, bytes);
    memcpy(seen + 8, from + 8, DEVICE_BLUEFLAME_BYTES - 8);
    memcpy(qp->blueflame, &first, 8);
    memcpy(qp->blueflame + 8, seen + 8, bytes - 8);
    qp->blueflame_register = from;
    qp->blueflame_seen = seen;
    qp->blueflame_rung = &page->rung[which];
    qp->blueflame_serial = page->rung[which];
    qp->blueflame_last = page->last[which];
    qp->blueflame_bytes = bytes;
    qp->blueflame_since_ns = 0;
}

void device_forget_pushes(struct device *device, uint32_t page)
{
    struct doorbell_page *p = page < DEVICE_MAX_PAGES ? device->pages[page] : NULL;
    for (uint32_t which = 0; p && which < DEVICE_REGISTERS; which++) {
        memcpy(p->seen[which] + 8, p->memory + register_offset[which] + 8,
               DEVICE_BLUEFLAME_BYTES - 8);
    }
}

/* A register may have been written by several QPs since the last look, and shows the last only: so
 * all QPs of its page look at their doorbell records. */
static void look_at_register(struct device *device, struct doorbell_page *page, uint32_t which)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(page->memory + register_offset[which]);
    uint64_t first = atomic_exchange_explicit(word, 0, memory_order_acq_rel);
    uint32_t qpn_size;
    memcpy(&qpn_size, (uint8_t *)&first + 4, sizeof(qpn_size));
    page->rung[which]++;
    for (struct list *l = page->queue_pairs.next; l != &page->queue_pairs; l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, on_page);
        if (be32toh(qpn_size) >> 8 == qp->number) {
            qp->statistics->doorbells++;
            note_push(page, which, qp, first);
        }
        ring(device, qp);
    }
}

bool device_look_at_doorbells(struct device *device)
{
    bool any = false;
    for (uint32_t i = 0; i < device->page_end; i++) {
        struct doorbell_page *page = device->pages[i];
        if (!page) {
            continue;
        }
        for (uint32_t which = 0; which < DEVICE_REGISTERS; which++) {
            const _Atomic uint64_t *word =
                (_Atomic uint64_t *)(void *)(page->memory + register_offset[which]);
            if (atomic_load_explicit(word, memory_order_relaxed)) {
                look_at_register(device, page, which);
                any = true;
            }
        }
        _Atomic uint64_t *arm = (_Atomic uint64_t *)(void *)(page->memory + CQ_DOORBELL);
        if (atomic_load_explicit(arm, memory_order_relaxed)) {
            atomic_exchange_explicit(arm, 0, memory_order_acq_rel);
            cq_look_at_arms(device);
            any = true;
        }
    }
    return any;
}

void device_ring_page(struct device *device, uint32_t index)
{
    struct doorbell_page *page = index < device->page_end ? device->pages[index] : NULL;
    if (!page) {
        return;
    }
    for (struct list *l = page->queue_pairs.next; l != &page->queue_pairs; l = l->next) {
        ring(device, container_of(l, struct queue_pair, on_page));
    }
    cq_look_at_arms(device);
}

/* ---- packets ---- */

static void deliver(struct device *device, uint32_t source_slot, const struct packet *packet,
                    const uint8_t *payload)
{
    if (packet->operation == PACKET_CM) {
        device->host.cm_message(device->host.context, source_slot, payload, packet->payload_bytes);
        return;
    }
    if (packet->flags & PACKET_MULTICAST) {
        multicast_receive(device, packet, payload);
        return;
    }
    struct queue_pair *qp = qp_find(device, packet->destination_qpn);
    if (!qp || packet->rail >> 4 != qp->rail || fabric_rail_down(device->fabric, qp->rail)) {
        return; /* to the wrong port, or to nobody */
    }
    uint8_t transport = qp->type == TYPE_UD              ? TRANSPORT_UD
                        : qp->type == TYPE_UC            ? TRANSPORT_UC
                        : qp->type >= TYPE_DCI           ? TRANSPORT_DC
                        : qp->type >= TYPE_XRC_INITIATOR ? TRANSPORT_XRC
                                                         : TRANSPORT_RC;
    if (packet->transport != transport) {
        return;
    }
    if (transport == TRANSPORT_UD) {
        datagram_receive(device, qp, packet, payload);
        return;
    }
    switch (packet->operation) {
    case PACKET_ACKNOWLEDGE:
    case PACKET_ATOMIC_ACKNOWLEDGE:
    case PACKET_READ_RESPONSE_FIRST:
    case PACKET_READ_RESPONSE_MIDDLE:
    case PACKET_READ_RESPONSE_LAST:
    case PACKET_READ_RESPONSE_ONLY:
        if (packet->source_qpn == qp->attributes.destination_qpn) {
            completer_receive(device, qp, packet, payload);
        }
        break;
    default:
        if (qp->type == TYPE_DCT) {
            dc_receive(device, qp, packet, payload);
        } else if (qp->type != TYPE_DCI) { /* which asks and is never asked */
            responder_receive(device, qp, packet, payload);
        }
        break;
    }
}

static bool receive(struct device *device)
{
    struct fabric_cursor cursor;
    struct packet packet;
    const uint8_t *payload;
    int left = PACKETS_A_RUN;
    fabric_receive_start(device->fabric, &cursor);
    while (left && fabric_receive(device->fabric, &cursor, &packet, &payload)) {
        deliver(device, cursor.slot, &packet, payload);
        fabric_consume(device->fabric, &cursor);
        left--;
    }
    fabric_receive_stop(device->fabric, &cursor);
    device->packets_received += (uint64_t)(PACKETS_A_RUN - left);
    return left != PACKETS_A_RUN;
}

/* ---- the round ---- */

/* Gives each member of a list its turn once. A member may leave the list, and others may come. */
static bool run_active(struct device *device)
{
    bool any = false;
    struct list turn;
    list_init(&turn);
    list_move_all(&turn, &device->active);
    while (!list_empty(&turn)) {
        struct queue_pair *qp = container_of(turn.next, struct queue_pair, active);
        list_remove(&qp->active);
        list_append(&device->active, &qp->active);
        any |= requester_run(device, qp);
    }
    return any;
}

static bool run_owing(struct device *device)
{
    bool any = false;
    struct list turn;
    list_init(&turn);
    list_move_all(&turn, &device->owing);
    while (!list_empty(&turn)) {
        struct queue_pair *qp = container_of(turn.next, struct queue_pair, owing);
        list_remove(&qp->owing);
        list_append(&device->owing, &qp->owing);
        any |= responder_answer(device, qp);
    }
    return any;
}

static void run_timers(struct device *device)
{
    if (device->now_ns < device->next_timer_ns) {
        return;
    }
    uint64_t next = UINT64_MAX;
    struct list turn;
    list_init(&turn);
    list_move_all(&turn, &device->timed);
    while (!list_empty(&turn)) {
        struct queue_pair *qp = container_of(turn.next, struct queue_pair, timed);
        list_remove(&qp->timed);
        if (qp->wait_until_ns && qp->wait_until_ns <= device->now_ns) {
            qp->wait_until_ns = 0;
            qp_activate(device, qp);
        }
        if (qp->timer_ns && qp->timer_ns <= device->now_ns && qp->state == STATE_ERR) {
            responder_flush_late(device, qp);
        } else if (qp->timer_ns && qp->timer_ns <= device->now_ns) {
            completer_timeout(device, qp);
        }
        uint64_t due = qp->timer_ns ? qp->timer_ns : UINT64_MAX;
        if (qp->wait_until_ns && qp->wait_until_ns < due) {
            due = qp->wait_until_ns;
        }
        if (due != UINT64_MAX) {
            list_append_once(&device->timed, &qp->timed);
        }
        if (due < next) {
            next = due;
        }
    }
    device->next_timer_ns = next;
}

static void apply_faults(struct device *device)
{
    if (!fabric_faults_changed(device->fabric)) {
        return;
    }
    const struct fabric_fault *fault = &device->fabric->fault;
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        bool down = fault->rails_down >> rail & 1, was_down = device->rails_down >> rail & 1;
        if (down != was_down) {
            device->host.async_event(device->host.context,
                                     down ? EVENT_PORT_ERR : EVENT_PORT_ACTIVE, rail, NULL);
        }
    }
    device->rails_down = fault->rails_down;
    if (fault->serial == device->fault_serial) {
        return;
    }
    device->fault_serial = fault->serial;
    struct queue_pair *qp = fault->kill_qpn ? qp_find(device, fault->kill_qpn) : NULL;
    if (qp) {
        qp_event(device, qp, EVENT_QP_FATAL);
        qp_fail(device, qp);
    }
    if (fault->stall_us) {
        device->stalled_until_ns = device->now_ns + fault->stall_us * 1000ull;
    }
    if (fault->fill_cqn && fault->fill_cqn < DEVICE_MAX_COMPLETION_QUEUES) {
        cq_overrun(device, device->completion_queues[fault->fill_cqn]);
    }
}

bool device_run(struct device *device, uint64_t now_ns)
{
    device->now_ns = now_ns;
    fabric_tick(device->fabric, now_ns);
    apply_faults(device);
    if (now_ns < device->stalled_until_ns) {
        return false;
    }
    device->tracing = atomic_load_explicit(&device->fabric->file->tracing, memory_order_relaxed);
    bool any = false;
    if (!list_empty(&device->active)) {
        any |= run_active(device);
    }
    any |= receive(device);
    if (!list_empty(&device->owing)) {
        any |= run_owing(device);
    }
    run_timers(device);
    if (!list_empty(&device->holding)) {
        compression_flush_all(device);
    }
    return any;
}

uint64_t device_deadline_ns(const struct device *device)
{
    if (device->now_ns < device->stalled_until_ns) {
        return device->stalled_until_ns;
    }
    uint64_t deadline = device->next_timer_ns;
    uint64_t delayed = fabric_next_delayed_ns(device->fabric);
    /* What found no room in a ring tries again soon; so does a BlueFlame push that is not
     * complete. */
    bool waits = !list_empty(&device->owing) || !list_empty(&device->active);
    if (waits && device->now_ns + LOOK_AGAIN_NS < deadline) {
        deadline = device->now_ns + LOOK_AGAIN_NS;
    }
    return delayed < deadline ? delayed : deadline;
}

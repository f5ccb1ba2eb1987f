/* nic.c: the NIC as a whole: which packet goes where, the round of its queues, its timers, and what
 * faults ask for. */
#include "simnic/nic/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PACKETS_A_RUN 256
#define LOOK_AGAIN_NS 200000u /* at what waits for room */

static void turns_init(struct turns *turns)
{
    list_init(&turns->ready);
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        list_init(&turns->no_room[slot]);
    }
    for (uint32_t rail = 0; rail < RAIL_COUNT; rail++) {
        list_init(&turns->no_rate[rail]);
    }
}

bool nic_create(struct nic *nic, struct fabric *fabric, const struct nic_host *host)
{
    *nic = (struct nic){.fabric = fabric, .host = *host, .key_next = NIC_FIRST_KEY};
    /* A rail that is down already raises no event: whoever asks sees it. */
    nic->rails_down = fabric->fault.rails_down;
    nic->rails_unplugged = fabric->fault.rails_unplugged;
    nic->keys = calloc(NIC_MAX_KEYS, sizeof(*nic->keys));
    nic->queue_pairs = calloc(NIC_MAX_QUEUE_PAIRS, sizeof(void *));
    nic->completion_queues = calloc(NIC_MAX_COMPLETION_QUEUES, sizeof(void *));
    nic->shared_receive_queues = calloc(NIC_MAX_SHARED_RECEIVE_QUEUES, sizeof(void *));
    list_init(&nic->layouts);
    list_init(&nic->all_queue_pairs);
    list_init(&nic->all_completion_queues);
    list_init(&nic->all_shared_receive_queues);
    turns_init(&nic->active);
    turns_init(&nic->owing);
    wheel_init(&nic->timers, 0);
    list_init(&nic->holding);
    /* A process that takes over a slot starts its QPNs elsewhere than the last owner did. */
    if (fabric) {
        nic->queue_pair_next = atomic_load(&fabric->file->slots[fabric->slot].generation) * 977;
    }
    if (nic->keys && nic->queue_pairs && nic->completion_queues && nic->shared_receive_queues) {
        return true;
    }
    nic_destroy(nic);
    return false;
}

void nic_destroy_queues(struct nic *nic)
{
    while (!list_empty(&nic->all_queue_pairs)) {
        qp_destroy(nic, container_of(nic->all_queue_pairs.next, struct queue_pair, all));
    }
    while (!list_empty(&nic->all_shared_receive_queues)) {
        srq_destroy(nic, container_of(nic->all_shared_receive_queues.next,
                                      struct shared_receive_queue, all));
    }
    while (!list_empty(&nic->all_completion_queues)) {
        cq_destroy(nic,
                   container_of(nic->all_completion_queues.next, struct completion_queue, all));
    }
}

void nic_destroy(struct nic *nic)
{
    nic_destroy_queues(nic);
    late_forget(nic);
    for (uint32_t page = 0; page < nic->page_end; page++) {
        nic_remove_page(nic, page);
    }
    indirect_destroy_all(nic);
    free(nic->keys);
    free(nic->queue_pairs);
    free(nic->completion_queues);
    free(nic->shared_receive_queues);
    memset(nic, 0, sizeof(*nic));
}

uint32_t nic_free_number(void *const *table, uint32_t end, uint32_t *last)
{
    for (uint32_t tried = 1; tried < end; tried++) {
        *last = *last + 1 < end ? *last + 1 : 1;
        if (!table[*last]) {
            return *last;
        }
    }
    return 0;
}

/* ---- packets ---- */

static void deliver(struct nic *nic, uint32_t source_slot, const struct packet *packet,
                    const uint8_t *payload)
{
    if (packet->operation == PACKET_CM) {
        nic->host.cm_message(nic->host.context, source_slot, payload, packet->payload_bytes);
        return;
    }
    fabric_port_received(nic->fabric, packet);
    if (packet->flags & PACKET_MULTICAST) {
        multicast_receive(nic, packet, payload);
        return;
    }
    struct queue_pair *qp = qp_find(nic, packet->destination_qpn);
    if (!qp || packet->rail >> 4 != qp->rail || fabric_rail_down(nic->fabric, qp->rail)) {
        return; /* to the wrong port, or to nobody */
    }
    uint8_t transport = qp_transport(qp);
    if (packet->transport != transport) {
        return;
    }
    if (!qp_admits(nic, qp, packet)) {
        fabric_port_violated(nic->fabric, qp->rail);
        return;
    }
    if (transport == TRANSPORT_UD) {
        datagram_receive(nic, qp, packet, payload);
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
            completer_receive(nic, qp, packet, payload);
        }
        break;
    default:
        if (qp->type == TYPE_DCT) {
            dc_receive(nic, qp, packet, payload);
        } else if (qp->type != TYPE_DCI) { /* nobody sends requests to an initiator */
            responder_receive(nic, qp, packet, payload);
        }
        break;
    }
}

static bool receive(struct nic *nic)
{
    struct fabric_cursor cursor;
    struct packet packet;
    const uint8_t *payload;
    int left = PACKETS_A_RUN;
    fabric_receive_start(nic->fabric, &cursor);
    while (left && fabric_receive(nic->fabric, &cursor, &packet, &payload)) {
        deliver(nic, cursor.slot, &packet, payload);
        fabric_consume(nic->fabric, &cursor);
        left--;
    }
    fabric_receive_stop(nic->fabric, &cursor);
    nic->packets_received += (uint64_t)(PACKETS_A_RUN - left);
    return left != PACKETS_A_RUN;
}

/* ---- the round ---- */

/* `link`: the offset in a QP of its links for these turns. A QP that still has something to do stays ready, or waits for
 * room. */
static bool take_turn(struct nic *nic, struct turns *turns, struct list *member, size_t link,
                      bool (*turn)(struct nic *nic, struct queue_pair *qp))
{
    list_remove(member);
    list_append(&turns->ready, member);
    return turn(nic, (struct queue_pair *)(void *)((char *)member - link));
}

/* Turns of those that wait for room in the ring to a slot, until there is none again. */
static bool give_room(struct nic *nic, struct turns *turns, uint32_t slot, size_t link,
                      bool (*turn)(struct nic *nic, struct queue_pair *qp))
{
    bool any = false;
    struct list *waiting = &turns->no_room[slot];
    while (!list_empty(waiting)) {
        struct list *first = waiting->next;
        any |= take_turn(nic, turns, first, link, turn);
        if (waiting->previous == first) { /* it has come back, and remains the first */
            list_remove(first);
            list_append(waiting->next, first);
            return any;
        }
    }
    turns->full_slots &= ~(1ull << slot);
    return any;
}

/* Turns of those that wait for a port, one after the other, while it may send. Whoever has more to send waits behind
 * the others. */
static bool give_rate(struct nic *nic, struct turns *turns, uint32_t rail, size_t link,
                      bool (*turn)(struct nic *nic, struct queue_pair *qp))
{
    bool any = false;
    struct list *waiting = &turns->no_rate[rail];
    while (!list_empty(waiting) && fabric_port_ready(nic->fabric, rail)) {
        any |= take_turn(nic, turns, waiting->next, link, turn);
    }
    if (list_empty(waiting)) {
        turns->slow_rails &= ~(1u << rail);
    }
    return any;
}

/* Gives each QP its turn once. It may have nothing left to do then, and others may come. */
static bool give_turns(struct nic *nic, struct turns *turns, size_t link,
                       bool (*turn)(struct nic *nic, struct queue_pair *qp))
{
    bool any = false;
    struct list ready;
    list_move_all(&ready, &turns->ready);
    for (uint64_t slots = turns->full_slots; slots; slots &= slots - 1) {
        any |= give_room(nic, turns, (uint32_t)__builtin_ctzll(slots), link, turn);
    }
    for (uint32_t rail = 0; rail < RAIL_COUNT && turns->slow_rails; rail++) {
        any |= give_rate(nic, turns, rail, link, turn);
    }
    while (!list_empty(&ready)) {
        any |= take_turn(nic, turns, ready.next, link, turn);
    }
    return any;
}

static bool give_requests(struct nic *nic)
{
    return give_turns(nic, &nic->active, offsetof(struct queue_pair, active), requester_run);
}

static bool give_answers(struct nic *nic)
{
    return give_turns(nic, &nic->owing, offsetof(struct queue_pair, owing), response_run);
}

static bool turns_wanted(const struct turns *turns)
{
    return !list_empty(&turns->ready) || turns->full_slots;
}

/* A timer may be too early for its QP: it stays set when what it was set for has come to pass. */
static void run_timers(struct nic *nic)
{
    struct wheel_timer *timer;
    wheel_advance(&nic->timers, nic->now_ns);
    while ((timer = wheel_take(&nic->timers))) {
        struct queue_pair *qp = container_of(timer, struct queue_pair, timed);
        if (qp->wait_until_ns && qp->wait_until_ns <= nic->now_ns) {
            qp->wait_until_ns = 0;
            qp_activate(nic, qp);
        }
        if (qp->timer_ns && qp->timer_ns <= nic->now_ns && qp->state == STATE_ERR) {
            receive_flush_late(nic, qp);
        } else if (qp->timer_ns && qp->timer_ns <= nic->now_ns) {
            completer_timeout(nic, qp);
        }
        uint64_t due_ns = qp->timer_ns ? qp->timer_ns : UINT64_MAX;
        if (qp->wait_until_ns && qp->wait_until_ns < due_ns) {
            due_ns = qp->wait_until_ns;
        }
        if (due_ns != UINT64_MAX) {
            qp_wake_at(nic, qp, due_ns);
        }
    }
}

void nic_take_faults(struct nic *nic)
{
    if (!fabric_faults_changed(nic->fabric)) {
        return;
    }
    const struct fabric_fault *fault = &nic->fabric->fault;
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        bool down = fault->rails_down >> rail & 1, was_down = nic->rails_down >> rail & 1;
        if (fault->rails_unplugged & ~nic->rails_unplugged & 1u << rail) {
            nic->host.unplugged(nic->host.context, rail);
        }
        if (down != was_down) {
            nic->host.async_event(nic->host.context, down ? EVENT_PORT_ERR : EVENT_PORT_ACTIVE,
                                  rail, NULL);
        }
    }
    nic->rails_down = fault->rails_down;
    nic->rails_unplugged = fault->rails_unplugged;
    if (fault->serial == nic->fault_serial) {
        return;
    }
    nic->fault_serial = fault->serial;
    struct queue_pair *qp = fault->kill_qpn ? qp_find(nic, fault->kill_qpn) : NULL;
    if (qp) {
        qp_event(nic, qp, EVENT_QP_FATAL);
        qp_fail(nic, qp);
    }
    if (fault->stall_us) {
        nic->stalled_until_ns = nic->now_ns + fault->stall_us * 1000ull;
    }
    if (fault->fill_cqn && fault->fill_cqn < NIC_MAX_COMPLETION_QUEUES) {
        cq_overrun(nic, nic->completion_queues[fault->fill_cqn]);
    }
}

bool nic_run(struct nic *nic, uint64_t now_ns)
{
    nic->now_ns = now_ns;
    fabric_tick(nic->fabric, now_ns);
    nic_take_faults(nic);
    if (now_ns < nic->stalled_until_ns) {
        return false;
    }
    nic->tracing = atomic_load_explicit(&nic->fabric->file->tracing, memory_order_relaxed);
    late_run(nic);
    bool any = nic->searches && nic_search(nic);
    /* Else requests would take all that a port may send. Turn and turn about could go with its rhythm. */
    if (nic->owing.slow_rails && fault_roll(&nic->answers_first) & 1) {
        any |= give_answers(nic);
    }
    any |= give_requests(nic);
    any |= receive(nic);
    any |= give_answers(nic);
    fabric_answered(nic->fabric);
    run_timers(nic);
    if (!list_empty(&nic->holding) && !nic_has_quirk(nic, QUIRK_COMPRESSED_ALONE)) {
        compression_flush_all(nic);
    }
    return any;
}

uint64_t nic_deadline_ns(const struct nic *nic)
{
    if (nic->now_ns < nic->stalled_until_ns) {
        return nic->stalled_until_ns;
    }
    uint64_t deadline = wheel_next_ns(&nic->timers);
    uint64_t delayed = fabric_next_delayed_ns(nic->fabric);
    /* What found no room in a ring is tried again soon, and an incomplete BlueFlame push is looked
     * at again soon. */
    bool waits = turns_wanted(&nic->owing) || turns_wanted(&nic->active);
    if (waits && nic->now_ns + LOOK_AGAIN_NS < deadline) {
        deadline = nic->now_ns + LOOK_AGAIN_NS;
    }
    const uint32_t slow_rails = nic->active.slow_rails | nic->owing.slow_rails;
    for (uint32_t rail = 0; rail < RAIL_COUNT && slow_rails; rail++) {
        const uint64_t due_ns =
            slow_rails >> rail & 1 ? fabric_port_due_ns(nic->fabric, rail) : deadline;
        deadline = due_ns < deadline ? due_ns : deadline;
    }
    if (nic->searches) {
        const uint64_t search_ns = nic_search_due_ns(nic);
        deadline = search_ns < deadline ? search_ns : deadline;
    }
    if (late_due_ns(nic) < deadline) {
        deadline = late_due_ns(nic);
    }
    return delayed < deadline ? delayed : deadline;
}

/* send.c: calls and replies gather in the endpoint's open batch; a flush sends it as one WRITE with
 * immediate. The rules that limit them are in docs/flow-control.md.
 */
#include <string.h>

#include "base/copy.h"
#include "base/probe.h"
#include "rpc/internal.h"
#include "rpc/lasting.h"
#include "rpc/message.h"

/* ---- Writing messages ------------------------------------------------------------------------ */

void rpc_make_urgent(struct rpc_endpoint *endpoint)
{
    if (list_linked(&endpoint->work_link)) {
        list_remove(&endpoint->work_link);
    }
    list_append(&endpoint->engine->urgent, &endpoint->work_link);
}

__attribute__((cold, noinline)) int32_t rpc_refuse(struct rpc_endpoint *endpoint, bool for_limit)
{
    endpoint->stats.refused++;
    probe2(refused, endpoint->link.handle, for_limit);
    endpoint->out.refused_for_limit =
        for_limit || (endpoint->link.refused && endpoint->out.refused_for_limit);
    endpoint->link.refused = true;
    if (for_limit) {
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
    return CRPC_E_AGAIN;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Whether a call can be sent now with a trace, which is a message of its own with this charge, or 0. */
static inline bool sendable_with(const struct rpc_endpoint *endpoint, const crpc_op *op,
                                 uint64_t trace)
{
    const uint32_t messages = trace ? 2 : 1;
    return likely(endpoint->bar == CRPC_OK &&
                  endpoint->out.batch_messages <= WIRE_MESSAGES_MAX - messages) &&
           rpc_call_fits(endpoint, wire_charge(op->payload_bytes) + trace,
                         wire_charge(op->reply_bytes_max));
}

static __attribute__((cold, noinline)) bool traced_sendable(const struct rpc_endpoint *endpoint,
                                                            const crpc_op *op)
{
    return sendable_with(endpoint, op, rpc_trace_charge(endpoint, op));
}

/* Whether a call can be sent now: as rpc_call_possible, also on an endpoint that takes no call that way, and with its trace. */
static inline bool call_sendable(const struct rpc_endpoint *endpoint, const crpc_op *op)
{
    return likely(!(op->flags & CRPC_OP_TRACED)) ? sendable_with(endpoint, op, 0)
                                                 : traced_sendable(endpoint, op);
}

/* Why a call is not possible now. CRPC_OK if it is: with slots that have not been made before, or a ring that has grown. */
static __attribute__((cold, noinline)) int32_t call_impossible(struct rpc_endpoint *endpoint,
                                                               const crpc_op *op)
{
    uint64_t charge = wire_charge(op->payload_bytes);
    if (endpoint->bar != CRPC_OK && endpoint->bar != CRPC_E_AGAIN) {
        return endpoint->bar;
    }
    const uint64_t allowance = wire_charge(op->reply_bytes_max);
    if (charge > endpoint->peer.request_bytes_max || allowance > endpoint->calls.reply_budget_max) {
        return CRPC_E_TOO_BIG;
    }
    charge += rpc_trace_charge(endpoint, op);
    const bool room = endpoint->calls.first_free || calls_make_room(endpoint, 1) > 0;
    if (room) {
        rpc_grow_for(endpoint, charge, allowance);
        if (call_sendable(endpoint, op)) {
            return CRPC_OK;
        }
    }
    if (endpoint->bar == CRPC_E_DISCONNECTED) {
        return CRPC_E_DISCONNECTED; /* there was no memory */
    }
    return rpc_refuse(endpoint,
                      endpoint->out.request_produced + charge > endpoint->out.request_limit);
}

/* Not inlined, since its frame would be that of each call. */
__attribute__((noinline)) void call_set_deadline(struct rpc_call *call, uint64_t timeout_ns)
{
    struct rpc_engine *engine = call->endpoint->engine;
    wheel_set(&engine->links.wheel, &call->timer,
              deadline_after(link_now_ns(&engine->links), timeout_ns));
    call->state = CALL_TIMED;
}

void rpc_first_call(struct rpc_endpoint *endpoint)
{
    rpc_make_urgent(endpoint);
    link_start_keepalive(&endpoint->link);
}

/* Books a possible call whose message lies at `place`. */
static inline void book_call(struct rpc_endpoint *endpoint, const crpc_op *op, uint8_t *place)
{
    if (unlikely(endpoint->calls.live == 0)) {
        rpc_first_call(endpoint);
    }
    const uint64_t message_bytes = wire_message_bytes(op->payload_bytes);
    struct rpc_call *call = rpc_write_call(endpoint, op, op->timeout_ns, place, message_bytes,
                                           wire_charge(op->reply_bytes_max));
    rpc_messages_written(endpoint, message_bytes, 1);
    if (op->timeout_ns) {
        call_set_deadline(call, op->timeout_ns);
    }
}

int32_t rpc_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload)
{
    assert(op->opcode == CRPC_OP_CALL && (payload || op->payload_bytes == 0));
    if (!rpc_call_possible(endpoint, op)) {
        if (endpoint->lasting) {
            return rpc_lasting_call(endpoint->lasting, op, payload);
        }
        const int32_t status = call_impossible(endpoint, op);
        if (status != CRPC_OK) {
            return status;
        }
    }
    uint8_t *place = rpc_next_place(endpoint);
    book_call(endpoint, op, place);
    copy_short(place + WIRE_HEADER_BYTES, payload, op->payload_bytes);
    return CRPC_OK;
}

/* ---- Replies --------------------------------------------------------------------------------- */

/* Why a reply is not possible now. Ring space is no reason: the caller set it aside. The table of
 * replies to report and the batch's 16-bit message count are, and both empty as the peer takes
 * batches. */
static __attribute__((cold, noinline)) int32_t reply_impossible(struct rpc_endpoint *endpoint,
                                                                const crpc_op *op)
{
    if (endpoint->reply_bar != CRPC_OK && endpoint->reply_bar != CRPC_E_AGAIN) {
        return endpoint->reply_bar;
    }
    const struct rpc_request *owed = rpc_find_owed(endpoint, op->token);
    if (!owed) {
        return CRPC_E_STALE;
    }
    if (op->payload_bytes >= owed->reply_bytes_bound) {
        return CRPC_E_TOO_BIG;
    }
    return rpc_refuse(endpoint, false);
}

static inline void book_reply(struct rpc_endpoint *endpoint, struct rpc_request *owed,
                              const crpc_op *op, int32_t status, uint8_t *place)
{
    if (unlikely(endpoint->owed.count == 1)) {
        rpc_make_urgent(endpoint);
    }
    const uint64_t message_bytes = wire_message_bytes(op->payload_bytes);
    rpc_write_reply(endpoint, owed, op, status, place, message_bytes);
    rpc_messages_written(endpoint, message_bytes, 1);
    if (!(op->flags & CRPC_OP_QUIET)) {
        rpc_report_reply(endpoint, op);
    }
}

static inline int32_t reply_with(struct rpc_endpoint *endpoint, const crpc_op *op,
                                 int32_t reply_status, const void *payload)
{
    struct rpc_request *owed = rpc_reply_possible(endpoint, op, op->flags & CRPC_OP_QUIET);
    if (!owed) {
        return reply_impossible(endpoint, op);
    }
    uint8_t *place = rpc_next_place(endpoint);
    book_reply(endpoint, owed, op, reply_status, place);
    copy_short(place + WIRE_HEADER_BYTES, payload, op->payload_bytes);
    return CRPC_OK;
}

int32_t rpc_reply(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload)
{
    assert(op->opcode == CRPC_OP_REPLY && (payload || op->payload_bytes == 0));
    return reply_with(endpoint, op, op->status, payload);
}

int32_t rpc_drop(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    /* Nothing is copied; but with UBSan gcc warns of copies from anything shorter. */
    static const uint8_t nothing[64];
    const bool tells = rpc_deadlines_selected(endpoint);
    assert(op->payload_bytes == 0);
    return reply_with(endpoint, op, tells && op->status ? op->status : CRPC_E_DROPPED, nothing);
}

int32_t rpc_submit(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload)
{
    return op->opcode != CRPC_OP_CALL   ? rpc_reply(endpoint, op, payload)
           : op->flags & CRPC_OP_TRACED ? rpc_trace_call(endpoint, op, payload)
                                        : rpc_call(endpoint, op, payload);
}

void rpc_submit_end(struct rpc_engine *engine)
{
    while (!list_empty(&engine->urgent)) {
        endpoint_flush(list_entry(engine->urgent.next, struct rpc_endpoint, work_link));
    }
    engine->links.now_ns = 0;
}

/* ---- For messages that are written otherwise ------------------------------------------------- */

int32_t rpc_possible(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    assert(op->opcode == CRPC_OP_CALL || op->opcode == CRPC_OP_REPLY);
    if (op->opcode == CRPC_OP_CALL) {
        return call_sendable(endpoint, op) ? CRPC_OK : call_impossible(endpoint, op);
    }
    return rpc_reply_possible(endpoint, op, op->flags & CRPC_OP_QUIET)
               ? CRPC_OK
               : reply_impossible(endpoint, op);
}

uint8_t *rpc_book(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    const bool call = op->opcode == CRPC_OP_CALL;
    if (call && unlikely(op->flags & CRPC_OP_TRACED)) {
        rpc_trace_say(endpoint, op);
    }
    uint8_t *place = rpc_next_place(endpoint);
    if (call) {
        book_call(endpoint, op, place);
    } else { /* a possible reply answers a request */
        book_reply(endpoint, rpc_find_owed(endpoint, op->token), op, op->status, place);
    }
    return place;
}

/* One bar serves all if nothing may be written to the open batch: behind the reserved place, or behind a message that ends
 * its batch. */
void rpc_set_bars(struct rpc_endpoint *endpoint)
{
    if (endpoint->bar == CRPC_E_DISCONNECTED) {
        return; /* what has ended stays so */
    }
    endpoint->reply_bar = endpoint->reservation.open ? CRPC_E_BUSY
                          : endpoint->gather.waits   ? CRPC_E_AGAIN
                                                     : CRPC_OK;
    rpc_set_call_bar(endpoint, endpoint->reply_bar == CRPC_OK && endpoint->leave != LEAVE_NONE
                                   ? CRPC_E_CLOSING
                                   : endpoint->reply_bar);
}

/* ---- Words ------------------------------------------------------------------------------------ */

static void write_word(uint8_t *place, uint8_t kind, uint32_t call_id, const void *word,
                       uint32_t bytes)
{
    rpc_write_header(place, wire_message_bytes(bytes), bytes, call_id, (uint64_t)kind << 48);
    memcpy(place + WIRE_HEADER_BYTES, word, bytes);
}

void endpoint_say_of(struct rpc_endpoint *endpoint, uint8_t kind, uint32_t call_id,
                     const void *word, uint32_t bytes)
{
    assert(!endpoint->reservation.open && endpoint->out.batch_messages < WIRE_MESSAGES_MAX);
    write_word(rpc_next_place(endpoint), kind, call_id, word, bytes);
    rpc_messages_written(endpoint, wire_message_bytes(bytes), 1);
}

/* ---- Writing in place ------------------------------------------------------------------------ */

int32_t rpc_reserve(struct rpc_endpoint *endpoint, const crpc_op *op, void **address)
{
    assert(!(op->flags & CRPC_OP_TRACED)); /* a trace would lie where the payload is written */
    if (endpoint->lasting && op->opcode == CRPC_OP_CALL && rpc_lasting_refuses(endpoint->lasting)) {
        return CRPC_E_AGAIN;
    }
    const int32_t status = rpc_possible(endpoint, op);
    if (status != CRPC_OK) {
        return status;
    }
    *address = rpc_next_place(endpoint) + WIRE_HEADER_BYTES;
    endpoint->reservation.op = *op;
    endpoint->reservation.open = true;
    rpc_set_bars(endpoint);
    return CRPC_OK;
}

static void lift_reservation(struct rpc_endpoint *endpoint)
{
    endpoint->reservation.open = false;
    if (unlikely(endpoint->grow_attention)) {
        rpc_grow_lifted(endpoint);
    }
    rpc_set_bars(endpoint);
    /* A flush may have been put off meanwhile. */
    list_append_once(&endpoint->engine->work, &endpoint->work_link);
    if (endpoint->lasting) {
        rpc_lasting_lifted(endpoint->lasting);
    }
}

/* Returns why a reservation that is not open cannot be ended. */
static int32_t no_reservation(struct rpc_endpoint *endpoint)
{
    const bool lost = endpoint->lasting && rpc_lasting_lift(endpoint->lasting);
    return lost ? CRPC_E_DISCONNECTED : CRPC_E_STATE;
}

int32_t rpc_commit(struct rpc_endpoint *endpoint, uint32_t payload_bytes)
{
    crpc_op *op = &endpoint->reservation.op;
    if (!endpoint->reservation.open) {
        const int32_t status = no_reservation(endpoint);
        return endpoint->link.failing ? CRPC_E_DISCONNECTED : status;
    }
    if (payload_bytes > op->payload_bytes) {
        return CRPC_E_TOO_BIG;
    }
    lift_reservation(endpoint);
    const int32_t bar = op->opcode == CRPC_OP_CALL ? endpoint->bar : endpoint->reply_bar;
    if (bar != CRPC_OK) {
        return bar;
    }
    op->payload_bytes = payload_bytes;
    uint8_t *place = rpc_next_place(endpoint);
    struct rpc_lasting *lasting = op->opcode == CRPC_OP_CALL ? endpoint->lasting : NULL;
    struct rpc_kept *kept = NULL;
    if (lasting) {
        kept = rpc_lasting_keep(lasting, op, place + WIRE_HEADER_BYTES);
        if (!kept) {
            return CRPC_E_NO_MEMORY;
        }
    }
    const struct rpc_call *call = endpoint->calls.first_free;
    /* The payload may end in the unit that write_header clears: keep its tail. */
    uint8_t tail[WIRE_UNIT_BYTES];
    uint64_t message_bytes = wire_message_bytes(payload_bytes);
    uint64_t end = WIRE_HEADER_BYTES + payload_bytes;
    uint64_t last_unit = message_bytes - WIRE_UNIT_BYTES;
    uint64_t tail_start = maximum(last_unit, WIRE_HEADER_BYTES);
    memcpy(tail, place + tail_start, end - tail_start);
    rpc_book(endpoint, op); /* nothing else could be replied to meanwhile */
    memcpy(place + tail_start, tail, end - tail_start);
    if (lasting) {
        rpc_lasting_booked(lasting, kept, call);
    }
    rpc_submit_end(endpoint->engine);
    return CRPC_OK;
}

int32_t rpc_abort(struct rpc_endpoint *endpoint)
{
    if (!endpoint->reservation.open) {
        return no_reservation(endpoint);
    }
    lift_reservation(endpoint);
    return CRPC_OK;
}

/* ---- Flush ----------------------------------------------------------------------------------- */

/* No request follows, so what may want one comes first: REVOKEs, and whatever a call tells of. */
static bool fin_due(const struct rpc_endpoint *endpoint)
{
    return endpoint->leave == LEAVE_WANTED && likely(!rpc_lane_has_open(endpoint)) &&
           likely(endpoint->lane.aside_count == 0);
}

/* Part of a flush: that the lane needs it, too, must not make it a call. */
static inline void send_batch(struct rpc_endpoint *endpoint, bool fin)
    __attribute__((always_inline));

static inline void send_batch(struct rpc_endpoint *endpoint, bool fin)
{
    if (endpoint->out.batch_messages == 0) { /* nothing but FIN */
        endpoint->out.batch_start = endpoint->out.produced;
        endpoint->out.produced += WIRE_BATCH_HEADER_BYTES;
    }
    uint32_t bytes = (uint32_t)(endpoint->out.produced - endpoint->out.batch_start);
    probe3(batch_sent, endpoint->link.handle, bytes, endpoint->out.batch_messages);
    const struct nic_transfer *transfer =
        rpc_write_batch(endpoint, ring_offset(&endpoint->out.staging, endpoint->out.batch_start),
                        bytes, endpoint->out.batch_messages, fin ? WIRE_BATCH_FIN : 0);
    bool signaled = fin || endpoint->out.batch_wants_completion, posted = false;
    if (endpoint->out.batch_wants_completion) {
        uint32_t slot = endpoint->sent.batches_tail++ & (endpoint->sent.batch_slots - 1);
        endpoint->sent.batches[slot] = (struct rpc_sent_batch){
            .wqe = endpoint->link.queue_pair->posted, .replies_tail = endpoint->sent.replies_tail};
        if (unlikely(endpoint->gather.waits)) {
            rpc_gather_post(endpoint, transfer, slot);
            posted = true;
        }
    }
    if (likely(!posted)) {
        struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
        queue_pair->operations->post_write_immediate(
            queue_pair, transfer, NIC_POST_RING | (signaled ? NIC_POST_SIGNALED : 0));
    }

    if (unlikely(endpoint->out.batch_messages >= WIRE_MESSAGES_MAX - 1) && endpoint->link.refused) {
        link_report(&endpoint->link, LINK_EVENT_ROOM);
    }
    endpoint->out.batch_messages = 0;
    endpoint->out.batch_wants_completion = false;
    endpoint->out.request_sent = endpoint->out.request_produced;
    endpoint->leave = fin ? LEAVE_SAID : endpoint->leave;
    endpoint->out.batches_sent++;
    endpoint->stats.batches_sent++;
    endpoint->stats.bytes_sent += bytes;
}

__attribute__((cold)) void endpoint_send(struct rpc_endpoint *endpoint)
{
    assert(endpoint->out.batch_messages > 0 && endpoint_may_send(endpoint));
    send_batch(endpoint, fin_due(endpoint));
}

__attribute__((cold)) uint64_t endpoint_send_word(struct rpc_endpoint *endpoint,
                                                  struct ring *staging, uint64_t position,
                                                  uint8_t kind, const void *word, uint32_t bytes,
                                                  uint32_t mark)
{
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    const uint32_t batch_bytes = (uint32_t)(WIRE_BATCH_HEADER_BYTES + wire_message_bytes(bytes));
    struct nic_transfer transfer = {.local_key = staging->memory.local_key,
                                    .remote_key = endpoint->peer.ring_key};
    assert(endpoint_may_send(endpoint));
    write_word(ring_at(staging, position) + WIRE_BATCH_HEADER_BYTES, kind, 0, word, bytes);
    rpc_write_batch_in(endpoint, staging, ring_offset(staging, position), batch_bytes, 1, 0,
                       &transfer);
    transfer.immediate |= mark;
    queue_pair->operations->post_write_immediate(queue_pair, &transfer,
                                                 NIC_POST_RING | NIC_POST_SIGNALED);
    endpoint->out.batches_sent++;
    endpoint->stats.batches_sent++;
    endpoint->stats.bytes_sent += batch_bytes;
    return batch_bytes;
}

__attribute__((cold, noinline)) bool rpc_take_room(struct rpc_endpoint *endpoint)
{
    return link_take_room(&endpoint->link) && nic_send_room(endpoint->link.queue_pair) > 1;
}

/* True while only the peer's mailbox can tell that something may be sent again. */
static bool needs_limits(const struct rpc_endpoint *endpoint)
{
    bool window_closed =
        endpoint->out.batches_sent >= endpoint->out.batch_limit &&
        (endpoint->out.batch_messages > 0 || endpoint->grow_attention || fin_due(endpoint));
    return window_closed || (endpoint->link.refused && endpoint->out.refused_for_limit) ||
           unlikely(!list_empty(&endpoint->calls.telling) && rpc_abandon_blocked(endpoint));
}

static void schedule_read(struct rpc_endpoint *endpoint)
{
    if (!endpoint->read.in_flight && !wheel_timer_set(&endpoint->read.timer)) {
        wheel_set(&endpoint->engine->links.wheel, &endpoint->read.timer,
                  deadline_after(link_now_ns(&endpoint->engine->links), endpoint->read.backoff_ns));
    }
}

void endpoint_flush(struct rpc_endpoint *endpoint)
{
    list_remove(&endpoint->work_link);
    if (endpoint->link.state != CRPC_STATE_CONNECTED &&
        endpoint->link.state != CRPC_STATE_CLOSING) {
        return;
    }
    if (endpoint->link.failing || endpoint->reservation.open) {
        return; /* commit or abort puts it back on the list */
    }
    if (unlikely(endpoint->grow_attention) && !rpc_grow_flush(endpoint)) {
        if (needs_limits(endpoint)) {
            schedule_read(endpoint);
        }
        return; /* the peer's word puts it back */
    }
    if (unlikely(endpoint->lane_attention) && !rpc_lane_flush(endpoint)) {
        if (endpoint->lane.aside_count > 0 && needs_limits(endpoint)) {
            schedule_read(endpoint); /* what was set aside may wait for the window alone */
        }
        return; /* the lane puts it back */
    }
    if (unlikely(!list_empty(&endpoint->calls.telling))) {
        rpc_abandon_say(endpoint);
    }
    const bool fin = fin_due(endpoint);
    if ((endpoint->out.batch_messages > 0 || fin) && endpoint_may_send(endpoint)) {
        send_batch(endpoint, fin);
        if (unlikely(endpoint->grow_attention)) { /* there was no place for a word */
            list_append_once(&endpoint->engine->work, &endpoint->work_link);
        }
        rpc_abandon_look(endpoint); /* likewise */
    }
    if (needs_limits(endpoint)) {
        schedule_read(endpoint);
    }
    /* Otherwise what is left waits for send WQEs: their completion puts it back on the list. */
    if (unlikely(endpoint->leave == LEAVE_SAID)) {
        endpoint_check_left(endpoint);
    }
}

/* ---- The peer's limits ----------------------------------------------------------------------- */

__attribute__((cold, noinline)) void rpc_report_room(struct rpc_endpoint *endpoint)
{
    endpoint->out.refused_for_limit = false;
    rpc_abandon_look(endpoint); /* before the application takes the room again, and again */
    link_report(&endpoint->link, LINK_EVENT_ROOM);
}

void endpoint_read_mailbox(struct rpc_endpoint *endpoint)
{
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    if (endpoint->read.in_flight || endpoint->link.failing) {
        return;
    }
    endpoint->read.waits = nic_send_room(queue_pair) == 0 && !link_take_room(&endpoint->link);
    if (endpoint->read.waits) {
        return;
    }
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)ring_landing(&endpoint->in.ring),
        .remote_address = endpoint->peer.ring_address + 2 * endpoint->peer.ring_bytes,
        .bytes = sizeof(struct wire_mailbox),
        .local_key = endpoint->in.ring.landing_key,
        .remote_key = endpoint->peer.ring_key};
    endpoint->read.landing = ring_landing(&endpoint->in.ring);
    endpoint->read.wqe = queue_pair->posted;
    endpoint->read.in_flight = true;
    queue_pair->operations->post_read(queue_pair, &transfer, NIC_POST_SIGNALED);
    queue_pair->operations->ring_doorbell(queue_pair);
    endpoint->stats.mailbox_reads++;
}

/* What nobody uses of it now goes to the next who waits. When the timer of a READ comes again, all may be lent, as they were
 * before. */
void endpoint_granted(struct rpc_endpoint *endpoint)
{
    endpoint_flush(endpoint);
    if (endpoint->read.waits) {
        endpoint_read_mailbox(endpoint);
    }
}

void endpoint_read_timer(struct rpc_endpoint *endpoint)
{
    if (!needs_limits(endpoint)) {
        endpoint->read.backoff_ns = READ_BACKOFF_MIN_NS;
        rpc_abandon_look(endpoint);
        return;
    }
    endpoint->read.backoff_ns = minimum(2 * endpoint->read.backoff_ns, READ_BACKOFF_MAX_NS);
    endpoint_read_mailbox(endpoint);
    if (!endpoint->read.in_flight) {
        schedule_read(endpoint); /* no send WQE is free */
    }
}

static void take_mailbox(struct rpc_endpoint *endpoint)
{
    const struct wire_mailbox *mailbox = endpoint->read.landing;
    uint64_t request_limit = wire_load(&mailbox->request_limit);
    uint64_t batch_limit = wire_load(&mailbox->batch_limit);
    uint32_t returned = wire_load(&mailbox->returned);
    if (wire_load(&mailbox->nonce) != endpoint->link.peer.nonce) {
        link_violated(&endpoint->link, "%s", "its mailbox is not that of this connection");
        return;
    }
    if (!endpoint_merge_limits(endpoint, request_limit, batch_limit)) {
        link_violated(&endpoint->link, "%s", "its mailbox grants more than there is");
        return;
    }
    const char *fault = rpc_arena_hear(endpoint, returned);
    if (fault) {
        link_violated(&endpoint->link, "%s", fault);
        return;
    }
    if (needs_limits(endpoint)) {
        schedule_read(endpoint);
    } else {
        endpoint->read.backoff_ns = READ_BACKOFF_MIN_NS;
    }
    rpc_abandon_look(endpoint);
}

/* ---- Completions of sends -------------------------------------------------------------------- */

/* `completed` is the number of send WQEs that have succeeded; the queue pair's own counter may
 * already include one that failed. */
void endpoint_sends_completed(struct rpc_endpoint *endpoint, uint32_t completed)
{
    if (endpoint->link.failing) {
        return;
    }
    if (endpoint->read.in_flight && (int32_t)(completed - endpoint->read.wqe) > 0) {
        endpoint->read.in_flight = false;
        endpoint->link.heard++;
        take_mailbox(endpoint);
    }
    if (unlikely(endpoint->grow.staging_old.address)) {
        rpc_grow_sent(endpoint, completed);
    }
    while (endpoint->sent.batches_head != endpoint->sent.batches_tail) {
        const struct rpc_sent_batch *batch =
            &endpoint->sent.batches[endpoint->sent.batches_head & (endpoint->sent.batch_slots - 1)];
        if ((int32_t)(completed - batch->wqe) <= 0) {
            break;
        }
        if (unlikely(endpoint->gather.sent)) {
            rpc_gather_done(endpoint, (uint32_t)(batch - endpoint->sent.batches));
        }
        endpoint->sent.replies_acknowledged = batch->replies_tail;
        endpoint->sent.batches_head++;
        /* An endpoint without replies to report may end at any time, and is on no list then. */
        if (endpoint->sent.replies_head != endpoint->sent.replies_acknowledged) {
            list_append_once(&endpoint->engine->acknowledged, &endpoint->acknowledged_link);
            endpoint->engine->links.attention = true;
        }
    }
    if (endpoint->out.batch_messages > 0 || endpoint->grow_attention || fin_due(endpoint)) {
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
    if (unlikely(endpoint->leave == LEAVE_SAID)) {
        endpoint_check_left(endpoint);
    }
}

void engine_emit_sent_replies(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->acknowledged) && !output_full(output)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->acknowledged.next, struct rpc_endpoint, acknowledged_link);
        while (endpoint->sent.replies_head != endpoint->sent.replies_acknowledged) {
            if (output_full(output)) {
                return;
            }
            const struct rpc_sent_reply *reply =
                &endpoint->sent
                     .replies[endpoint->sent.replies_head++ & (endpoint->owed.slot_count - 1)];
            *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_REPLY,
                                                .status = endpoint->sent.status,
                                                .endpoint = {endpoint->link.handle},
                                                .user_data = reply->user_data,
                                                .token = reply->token,
                                                .endpoint_user_data = endpoint->user_data};
        }
        list_remove(&endpoint->acknowledged_link);
        if (unlikely(endpoint->link.refused)) {
            link_report(&endpoint->link, LINK_EVENT_ROOM);
        }
    }
}

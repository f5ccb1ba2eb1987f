/* sim_check.c: what a poll gave, and what must hold whatever happens. */
#include "sim.h"

#include <string.h>

struct sim_side *sim_side_of(struct sim *sim, const struct sim_engine *engine, uint64_t handle)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].handle == handle && sim->sides[i].engine == engine) {
            return &sim->sides[i];
        }
    }
    return NULL;
}

/* ---- Views: right when given, and until the next poll ---------------------------------------- */

static void keep_view(struct sim *sim, struct sim_engine *engine, struct sim_side *side,
                      const crpc_completion *completion, uint64_t key, const char *what)
{
    const uint8_t *address = (const uint8_t *)(uintptr_t)completion->payload;
    if (completion->payload % 16 != 0) {
        simulation_fail(&sim->base, "a view is not aligned");
    }
    if (!simulation_matches(address, completion->payload_bytes, key)) {
        simulation_fail(&sim->base, "a %s's payload is wrong on arrival", what);
    }
    if (completion->flags & CRPC_COMPLETION_PLACED) {
        sim_arena_take(side, completion, key);
        return;
    }
    engine->views[engine->view_count++] =
        (struct sim_view){.address = address, .bytes = completion->payload_bytes, .key = key};
}

void sim_check_views(struct sim *sim, struct sim_engine *engine)
{
    for (uint32_t i = 0; i < engine->view_count; i++) {
        const struct sim_view *view = &engine->views[i];
        if (!simulation_matches(view->address, view->bytes, view->key)) {
            simulation_fail(&sim->base, "a view was overwritten before the next poll");
        }
    }
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool request_matches(const struct sim_side *side, uint32_t number,
                            const crpc_completion *completion)
{
    const struct sim_call *book = &side->calls[number];
    return completion->payload_bytes == book->request_bytes && completion->method == book->method &&
           completion->reply_bytes_max == book->reply_bytes_max &&
           simulation_matches((const uint8_t *)(uintptr_t)completion->payload,
                              completion->payload_bytes, sim_key(side, number, false));
}

/* Skips calls that ended before they left, and were taken out of their batch. Their completion may not have been polled for. */
static void skip_vanished(struct sim_side *side, const crpc_completion *completion)
{
    const struct sim_side *peer = side->peer;
    for (; side->requests_seen < peer->call_count; side->requests_seen++) {
        const struct sim_call *book = &peer->calls[side->requests_seen];
        if (!book->may_vanish || !(book->cancel_asked || book->has_deadline) ||
            request_matches(peer, side->requests_seen, completion)) {
            return;
        }
        side->sim->counts[SIM_VANISHED]++;
    }
}

bool sim_tells(const struct sim_side *side)
{
    return !(
        (side->engine->engine->features_left_out | side->peer->engine->engine->features_left_out) &
        WIRE_FEATURE_DEADLINES);
}

/* A request that nobody waits for any more: its caller knows that. */
static void take_abandoned(struct sim *sim, struct sim_side *side,
                           const crpc_completion *completion)
{
    uint32_t index = 0;
    while (index < side->request_count && side->requests[index].token != completion->token) {
        index++;
    }
    if (index == side->request_count) {
        simulation_fail(&sim->base, "a request is abandoned that is not open");
        return;
    }
    struct sim_call *book = &side->peer->calls[side->requests[index].number];
    if (!book->completed || book->status != completion->status || book->abandoned ||
        !sim_tells(side)) {
        simulation_fail(&sim->base, "request %u is said to be abandoned, with status %d",
                        side->requests[index].number, completion->status);
    }
    book->abandoned = true;
    sim->counts[SIM_ABANDONED]++;
}

static void take_request(struct sim *sim, struct sim_engine *engine, struct sim_side *side,
                         const crpc_completion *completion)
{
    skip_vanished(side, completion);
    uint32_t number = side->requests_seen++;
    struct sim_call *book = &side->peer->calls[number];
    if (number >= side->peer->call_count) {
        simulation_fail(&sim->base, "a request came that nobody made");
        return;
    }
    if (completion->payload_bytes != book->request_bytes || completion->method != book->method ||
        completion->reply_bytes_max != book->reply_bytes_max) {
        simulation_fail(&sim->base, "request %u came out of order, or changed", number);
    }
    if (completion->user_data !=
        (sim_tells(side) ? wire_time_ns(wire_time_code(book->timeout_ns)) : 0)) {
        simulation_fail(&sim->base, "request %u says that its caller waits for %llu ns, not %llu",
                        number, (unsigned long long)completion->user_data,
                        (unsigned long long)book->timeout_ns);
    }
    if (book->delivered || !side->connected_seen || side->disconnected_seen || side->closed) {
        simulation_fail(&sim->base, "request %u came twice, too early or too late", number);
    }
    book->delivered = true;
    sim_lane_request(side, book);
    sim_trace_request(side, number, completion);
    keep_view(sim, engine, side, completion, sim_key(side->peer, number, false), "request");
    if (side->request_count == SIM_REQUESTS_MAX) {
        simulation_fail(&sim->base, "more requests are open than there are call slots");
        return;
    }
    side->requests[side->request_count++] =
        (struct sim_request){.token = completion->token, .number = number};
}

bool sim_excused(const struct sim_side *side)
{
    return side->troubled || side->peer->closed || side->leave_timed || side->peer->leave_timed;
}

/* True if a call of the side can have ended with this status. */
static bool status_is_possible(const struct sim_side *side, const struct sim_call *book,
                               int32_t status)
{
    switch (status) {
    case CRPC_E_TIMEOUT:
        return book->has_deadline;
    case CRPC_E_CANCELED:
        return book->cancel_asked;
    case CRPC_E_CLOSED:
        return side->closed;
    case CRPC_E_DISCONNECTED:
        return sim_excused(side);
    case CRPC_E_PROTOCOL:
        return side->lied_to;
    default:
        return book->replied && status == book->reply_status;
    }
}

static void take_response(struct sim *sim, struct sim_engine *engine, struct sim_side *side,
                          const crpc_completion *completion)
{
    uint32_t number = (uint32_t)completion->user_data;
    struct sim_call *book = &side->calls[number];
    if (completion->user_data >> 32 != side->index || number >= side->call_count) {
        simulation_fail(&sim->base, "a response to no call of this side");
        return;
    }
    if (book->completed) {
        simulation_fail(&sim->base, "call %u completed twice", number);
    }
    if (completion->method != book->method || !status_is_possible(side, book, completion->status)) {
        simulation_fail(&sim->base, "call %u completed with status %d, which cannot be", number,
                        completion->status);
    }
    book->completed = true;
    book->status = completion->status;
    sim_gather_done(side, CRPC_OP_CALL, completion->user_data);
    side->calls_completed++;
    if (completion->payload) {
        if (completion->payload_bytes != book->reply_bytes) {
            simulation_fail(&sim->base, "the reply to call %u changed its length", number);
        }
        keep_view(sim, engine, side, completion, sim_key(side, number, true), "reply");
    } else if (completion->status >= 0) {
        simulation_fail(&sim->base, "call %u has no reply", number);
    }
}

static void take_connected(struct sim *sim, struct sim_side *side, int32_t status)
{
    if (side->connected_seen) {
        simulation_fail(&sim->base, "connected twice");
    }
    side->connected_seen = true;
    if (status == CRPC_OK && !side->other_key) {
        return;
    }
    if (status == CRPC_OK || !(sim_excused(side) || (side->other_key && status == CRPC_E_KEY))) {
        simulation_fail(&sim->base, "connected with status %d%s: %s", status,
                        side->other_key ? ", and the keys differ" : "",
                        side->endpoint->link.error.message);
    }
    sim->counts[SIM_KEYS_REFUSED] += status == CRPC_E_KEY;
    side->disconnected_seen = true; /* there is no end of what never was */
}

static void take_end(struct sim *sim, struct sim_side *side, const crpc_completion *completion)
{
    if (side->disconnected_seen || side->closed || !side->connected_seen) {
        simulation_fail(&sim->base, "disconnected twice, or after close");
    }
    if (completion->status != CRPC_OK && !sim_excused(side)) {
        simulation_fail(&sim->base, "connection lost without a reason, status %d: %s",
                        completion->status, side->endpoint->link.error.message);
    }
    if (completion->status == CRPC_E_PROTOCOL && !side->lied_to) {
        simulation_fail(&sim->base, "a protocol error, though nobody lied: %s",
                        side->endpoint->link.error.message);
    }
    if (completion->status == CRPC_OK && !side->leave_asked && !side->peer->leave_asked) {
        simulation_fail(&sim->base, "disconnected with status 0, though nobody took leave");
    }
    if (side->calls_completed != side->call_count) {
        simulation_fail(&sim->base, "disconnected before its calls completed");
    }
    if (!sim_lane_over(side)) {
        simulation_fail(&sim->base, "disconnected before the ops of its lane completed");
    }
    side->disconnected_seen = true;
    side->request_count = 0;
}

void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion)
{
    struct sim_side *side = sim_side_of(sim, engine, completion->endpoint.bits);
    if (!side) {
        simulation_fail(&sim->base, "a completion for an endpoint that never was");
        return;
    }
    switch (completion->kind) {
    case CRPC_COMPLETION_REQUEST:
        take_request(sim, engine, side, completion);
        break;
    case CRPC_COMPLETION_ABANDONED:
        take_abandoned(sim, side, completion);
        break;
    case CRPC_COMPLETION_RESPONSE:
        take_response(sim, engine, side, completion);
        break;
    case CRPC_COMPLETION_REPLY:
        if (completion->status != CRPC_OK && !side->closed && !sim_excused(side)) {
            simulation_fail(&sim->base, "a reply failed with status %d", completion->status);
        }
        side->replies_completed++;
        sim_gather_done(side, CRPC_OP_REPLY, completion->user_data);
        break;
    case CRPC_COMPLETION_CANCEL:
        side->cancels_completed++;
        break;
    case CRPC_COMPLETION_CONNECTED:
        take_connected(sim, side, completion->status);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        take_end(sim, side, completion);
        break;
    case CRPC_COMPLETION_ROOM:
        simulation_room(&sim->base, &side->room_due);
        break;
    case CRPC_COMPLETION_WORK:
        sim_lane_take(side, completion);
        break;
    default:
        simulation_fail(&sim->base, "completion of kind %u", completion->kind);
    }
}

/* ---- Invariants ------------------------------------------------------------------------------ */

static bool lies_in(const struct ring *ring, uint64_t address)
{
    return ring->address && address - (uint64_t)(uintptr_t)ring->address < 2 * ring->bytes;
}

/* A peer that has moved to the next ring writes nothing more to the one before. */
static void watch_ring(struct sim *sim, const struct rpc_endpoint *endpoint, uint64_t address,
                       uint32_t bytes)
{
    const struct rpc_grow *grow = &endpoint->grow;
    const bool next = lies_in(&grow->next, address);
    const struct ring *ring = next ? &grow->next : &endpoint->in.ring;
    if (!lies_in(ring, address) || (next ? !grow->offered : grow->moved)) {
        simulation_fail(&sim->base, "a WRITE of %u bytes lands in no ring of the peer", bytes);
        return;
    }
    uint64_t offset = address - (uint64_t)(uintptr_t)ring->address;
    const bool begins = next && !grow->moved; /* at the start, with nothing unread */
    uint64_t ahead = (offset - (begins ? 0 : endpoint->in.arrived)) & (ring->bytes - 1);
    uint64_t unread = begins ? 0 : endpoint->in.arrived - endpoint->in.released;
    if (ahead + bytes + unread > ring->bytes) {
        simulation_fail(&sim->base, "a WRITE of %u bytes lands on %llu bytes that are unread",
                        bytes, (unsigned long long)unread);
    }
}

/* Before each piece of a WRITE lands: it may not touch what is unread or still viewed. Pieces
 * come in order, so what lies between the end of the last batch reported and this piece has
 * landed before. */
void sim_watch(void *argument, struct nic *target, uint32_t queue_pair_number, uint64_t address,
               uint32_t bytes)
{
    struct sim *sim = argument;
    sim_lane_watch(sim, target, queue_pair_number, address);
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct rpc_endpoint *endpoint = sim->sides[i].endpoint;
        if (!endpoint || !endpoint->link.queue_pair || endpoint->engine->nic != target ||
            endpoint->link.queue_pair->number != queue_pair_number ||
            address - sim->sides[i].words_address < LINK_WORDS * sizeof(struct link_word)) {
            continue;
        }
        if (!sim_arena_watch(&sim->sides[i], address, bytes)) {
            watch_ring(sim, endpoint, address, bytes);
        }
    }
}

/* Where there are no words, what is unread is within what requests and replies have room for, to the byte. */
static void check_shares(struct sim *sim, const struct sim_side *side)
{
    const struct rpc_endpoint *endpoint = side->endpoint, *peer = side->peer->endpoint;
    if (!endpoint || !peer || endpoint->link.failing || peer->link.failing || side->lied_to ||
        !(endpoint->options.flags & peer->options.flags & CRPC_ENDPOINT_FULL_SIZE) ||
        (endpoint->options.flags & peer->options.flags & CRPC_ENDPOINT_LANE)) {
        return;
    }
    const uint64_t unread = endpoint->in.arrived - endpoint->in.released;
    const uint64_t requests = peer->out.request_sent - endpoint->in.request_consumed;
    const uint64_t word =
        side->peer->arena.places ? wire_charge(sizeof(struct wire_arena)) : 0; /* that lends it */
    if (unread > requests + endpoint->calls.reply_outstanding + WIRE_FIN_BYTES + word) {
        simulation_fail(&sim->base, "%llu bytes are unread, for which there is no room",
                        (unsigned long long)unread);
    }
}

/* What peers may still send has a receive waiting for it. */
void sim_check_engine(struct sim *sim, const struct sim_engine *engine)
{
    uint64_t may_come = 0, windows = 0;
    uint32_t endpoints = 0;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        check_shares(sim, &sim->sides[i]);
    }
    const struct list *at;
    const struct list *all = &engine->engine->links.all;
    for (at = all->next; at != all; at = at->next) {
        const struct rpc_endpoint *endpoint =
            endpoint_of_link(list_entry(at, struct link, all_link));
        if (endpoint->link.queue_pair) {
            endpoints++;
            windows += endpoint->in.batch_window + (endpoint->options.key_bytes ? LINK_WORDS : 0);
        }
        /* Of one that has ended while its queue pair is connected, nobody counts what comes. */
        if (endpoint->link.queue_pair && !endpoint->link.queue_pair->failed &&
            !endpoint->link.failing) {
            may_come += (uint32_t)endpoint->in.batch_published - endpoint->in.arrivals_tail;
        }
        if (endpoint->link.failing && endpoint->link.queue_pair && !link_joining(&endpoint->link) &&
            !endpoint->link.queue_pair->failed) {
            simulation_fail(&sim->base, "the peer of what has failed can still write");
        }
        if (endpoint->in.arrived - endpoint->in.released > endpoint->in.capacity &&
            endpoint->in.ring.bytes) {
            simulation_fail(&sim->base, "a ring holds more than its size");
        }
        if (endpoint->calls.reply_outstanding > endpoint->calls.reply_budget) {
            simulation_fail(&sim->base, "more reply is outstanding than the ring has room for");
        }
    }
    /* What was closed may have a queue pair for a while. */
    if (windows > engine->engine->window_sum ||
        (endpoints == engine->engine->endpoint_count && windows != engine->engine->window_sum)) {
        simulation_fail(&sim->base, "windows of %llu are promised, and %u are counted",
                        (unsigned long long)windows, engine->engine->window_sum);
    }
    /* Without an SRQ, the fabric itself notes a batch that finds no receive. */
    if (engine->nic->receive_queue_max == 0 && may_come > engine->nic->receives_posted) {
        simulation_fail(&sim->base, "peers may send %llu batches, and %u receives are posted",
                        (unsigned long long)may_come, engine->nic->receives_posted);
    }
    const char *fault = sim->late.one_in > 0 ? late_cm_fault(&engine->engine->links) : NULL;
    if (fault) {
        simulation_fail(&sim->base, "%s", fault);
    }
}

void sim_check_fabric(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    const struct memory_fabric_counters *counters = memory_fabric_counters(sim->base.fabric);
    if (counters->receiver_not_ready) {
        simulation_fail(&sim->base, "a batch found no receive");
    }
    if (counters->send_overflows || counters->receive_overflows) {
        simulation_fail(&sim->base, "a completion queue overflowed");
    }
    if (counters->local_errors || counters->remote_access_errors) {
        simulation_fail(&sim->base, "memory was accessed without right");
    }
}

/* At the end, nothing is owed to anybody. */
void sim_check_books(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    for (uint32_t i = 0; i < sim->side_count && !sim->base.failed && !sim->abrupt; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (side->calls_completed != side->call_count) {
            simulation_fail(&sim->base, "side %u: %u of %u calls never completed", i,
                            side->call_count - side->calls_completed, side->call_count);
        }
        if (side->replies_completed != side->replies_submitted) {
            simulation_fail(&sim->base, "side %u: %llu of %llu replies never completed", i,
                            (unsigned long long)(side->replies_submitted - side->replies_completed),
                            (unsigned long long)side->replies_submitted);
        }
        if (side->cancels_completed != side->cancels_submitted) {
            simulation_fail(&sim->base, "side %u: a cancel never completed", i);
        }
        if (!sim_lane_over(side)) {
            simulation_fail(&sim->base, "side %u: an op of its lane never completed", i);
        }
        if (!side->connected_seen && !side->closed) {
            simulation_fail(&sim->base, "side %u was never reported as connected", i);
        }
        if (!side->closed && !side->disconnected_seen) {
            simulation_fail(&sim->base, "side %u was never reported as disconnected", i);
        }
    }
}

/* sim_act.c: what an application might do next, chosen by the seed. */
#include "sim.h"

#include <string.h>

static uint8_t payload[1u << 16];

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Sizes are often the extremes. */
static uint32_t choose_bytes(struct sim *sim, uint32_t most)
{
    struct random_generator *random = &sim->base.random;
    if (sim->heavy && random_percent(random, 60)) {
        return random_percent(random, 50) ? most : most / random_between(random, 1, 8);
    }
    switch (random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return most;
    case 2:
        return most + 1; /* one too many */
    case 3:
    case 4:
        return most ? random_below(random, most) : 0;
    default:
        return random_below(random, most < 64 ? most + 1 : 64);
    }
}

static crpc_op choose_call(struct sim *sim, const struct sim_side *side)
{
    crpc_endpoint_info info;
    rpc_endpoint_info(side->endpoint, &info);
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .method = (uint16_t)random_next(&sim->base.random),
                  .endpoint = {side->handle},
                  .user_data = (uint64_t)side->index << 32 | side->call_count,
                  .payload_bytes = choose_bytes(sim, info.request_bytes_max),
                  .reply_bytes_max = choose_bytes(sim, info.reply_bytes_max)};
    if (random_percent(&sim->base.random, 20)) {
        op.timeout_ns = random_between(&sim->base.random, 1, 2000000);
    }
    return op;
}

static struct sim_call *book_call(struct sim_side *side, const crpc_op *op)
{
    struct sim_call *call = &side->calls[side->call_count++];
    *call = (struct sim_call){.request_bytes = op->payload_bytes,
                              .reply_bytes_max = op->reply_bytes_max,
                              .method = op->method,
                              .has_deadline = op->timeout_ns != 0,
                              .timeout_ns = op->timeout_ns};
    return call;
}

/* What a refusal must be like. */
static void check_refusal(struct sim *sim, struct sim_side *side, const crpc_op *op, int32_t status)
{
    const struct rpc_endpoint *endpoint = side->endpoint;
    bool too_big = op->opcode == CRPC_OP_CALL &&
                   (wire_charge(op->payload_bytes) > endpoint->peer.request_bytes_max ||
                    wire_charge(op->reply_bytes_max) > endpoint->calls.reply_budget_max);
    switch (status) {
    case CRPC_E_AGAIN:
        side->room_due = true;
        break;
    case CRPC_E_TOO_BIG:
        if (op->opcode == CRPC_OP_CALL && !too_big) {
            simulation_fail(&sim->base, "a call that could fit was said to be too big");
        }
        break;
    case CRPC_E_BUSY:
        if (!side->reserved) {
            simulation_fail(&sim->base, "busy without a reservation");
        }
        break;
    case CRPC_E_CLOSING:
        if (!side->leave_asked && !side->peer->leave_asked) {
            simulation_fail(&sim->base, "closing, though nobody took leave");
        }
        break;
    case CRPC_E_DISCONNECTED:
        if (!endpoint->link.failing) {
            simulation_fail(&sim->base, "disconnected, though it is not");
        }
        break;
    default:
        simulation_fail(&sim->base, "a call was refused with status %d", status);
    }
}

#define RUN_MAX 24

/* Several at once, as crpc_submit hands them over. What the run leaves, a call by itself must refuse. */
static void call_run(struct sim *sim, struct sim_side *side, uint32_t count)
{
    crpc_op ops[RUN_MAX] = {0};
    uint32_t made = 0;
    uint64_t bytes = 0;
    /* Extremes end a run soon, and the long ones should be as they mostly are. */
    const uint32_t most = random_percent(&sim->run_random, 70)
                              ? random_percent(&sim->run_random, 50) ? 64 : 400
                              : UINT32_MAX;
    while (made < count && side->call_count + made < SIM_CALLS_MAX) {
        crpc_op *op = &ops[made];
        *op = choose_call(sim, side);
        op->user_data += made;
        op->payload_offset = bytes;
        op->payload_bytes = (uint32_t)minimum(op->payload_bytes, most);
        op->reply_bytes_max = (uint32_t)minimum(op->reply_bytes_max, most);
        if (op->payload_bytes > sizeof(payload) - bytes) {
            break;
        }
        simulation_fill(payload + bytes, op->payload_bytes,
                        sim_key(side, side->call_count + made, false));
        bytes += op->payload_bytes;
        made++;
    }
    if (made == 0) {
        return;
    }
    uint32_t taken = 0, run;
    do { /* one without a deadline ends before one with */
        run = rpc_calls(side->endpoint, &ops[taken], made - taken, payload, sizeof(payload));
        for (uint32_t i = 0; i < run; i++) {
            book_call(side, &ops[taken++]);
        }
    } while (run > 0 && taken < made);
    if (taken < made) {
        const crpc_op *op = &ops[taken];
        const struct rpc_grow before = side->endpoint->grow;
        int32_t status = rpc_call(side->endpoint, op, payload + op->payload_offset);
        const bool grown = side->endpoint->grow.waits != before.waits ||
                           side->endpoint->grow.next.address != before.next.address;
        if (status == CRPC_OK && grown) {
            book_call(side, op); /* with a larger ring */
        } else if (status == CRPC_OK) {
            simulation_fail(&sim->base, "no run of calls begins with one that is possible");
        } else {
            check_refusal(sim, side, op, status);
        }
    }
}

/* By itself, as crpc_submit hands it over. */
static void call_alone(struct sim *sim, struct sim_side *side)
{
    if (side->call_count == SIM_CALLS_MAX) {
        return;
    }
    crpc_op op = choose_call(sim, side);
    if (op.payload_bytes <= sizeof(payload)) {
        simulation_fill(payload, op.payload_bytes, sim_key(side, side->call_count, false));
    }
    int32_t status;
    if (rpc_call_alone(side->endpoint, &op, payload, &status) == 1) {
        book_call(side, &op);
    } else {
        check_refusal(sim, side, &op, status);
    }
}

static void call(struct sim *sim, struct sim_side *side)
{
    uint32_t count =
        random_percent(&sim->base.random, 70) ? 1 : random_between(&sim->base.random, 2, 12);
    if (sim_lane_slow(side)) {
        count = random_between(&sim->lane_random, 2, 12);
    } else if (random_percent(&sim->run_random, 30)) {
        call_run(sim, side, random_between(&sim->run_random, 1, RUN_MAX));
        count = 0;
    } else if (count == 1 && random_percent(&sim->run_random, 60)) {
        call_alone(sim, side);
        return;
    }
    while (count-- > 0 && side->call_count < SIM_CALLS_MAX) {
        crpc_op op = choose_call(sim, side);
        const bool large = sim_arena_choose_bytes(side, &op);
        sim_trace_choose(side, &op);
        if (op.payload_bytes <= sizeof(payload)) {
            simulation_fill(payload, op.payload_bytes, sim_key(side, side->call_count, false));
        }
        struct sim_call after = {0};
        int32_t status = large || sim_gather_wanted(sim)
                             ? sim_gather_submit(side, &op, payload)
                             : sim_lane_call(side, &op, payload, &after);
        if (status == CRPC_OK) {
            struct sim_call *booked = book_call(side, &op);
            sim_trace_book(side, &op, booked);
            booked->after_slot = after.after_slot;
            booked->after = after.after;
            booked->may_vanish = side->endpoint->gather.waits && side->endpoint->gather.placed;
        } else {
            check_refusal(sim, side, &op, status);
            break;
        }
    }
    rpc_submit_end(side->engine->engine);
}

static void cancel(struct sim *sim, struct sim_side *side)
{
    if (side->call_count == 0) {
        return;
    }
    uint32_t number = random_below(&sim->base.random, side->call_count);
    crpc_op op = {.opcode = CRPC_OP_CANCEL,
                  .endpoint = {side->handle},
                  .user_data = side->cancels_submitted,
                  .token = (uint64_t)side->index << 32 | number};
    if (rpc_cancel(side->endpoint, &op) == CRPC_OK) {
        side->calls[number].cancel_asked = true;
        side->cancels_submitted++;
    }
    rpc_submit_end(side->engine->engine);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static crpc_op choose_reply(struct sim *sim, struct sim_side *side, uint32_t index)
{
    const struct sim_request *request = &side->requests[index];
    const struct sim_call *book = &side->peer->calls[request->number];
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .endpoint = {side->handle},
                  .user_data = side->replies_submitted,
                  .token = request->token,
                  .status = random_percent(&sim->base.random, 80)
                                ? 0
                                : (int32_t)(random_next(&sim->base.random) & INT32_MAX)};
    op.flags = random_percent(&sim->base.random, 50) ? CRPC_OP_QUIET : 0;
    if (random_percent(&sim->base.random, 12)) {
        op.opcode = CRPC_OP_DROP;
        op.status = op.status & 1 ? CRPC_E_NOT_STARTED : 0;
    } else {
        op.payload_bytes = choose_bytes(sim, book->reply_bytes_max);
    }
    return op;
}

static void book_reply(struct sim_side *side, const crpc_op *op, uint32_t index)
{
    struct sim_call *book = &side->peer->calls[side->requests[index].number];
    if (book->replied) {
        simulation_fail(&side->sim->base, "a second reply was accepted");
    }
    book->replied = true;
    book->reply_bytes = op->payload_bytes;
    book->reply_status = op->opcode != CRPC_OP_DROP            ? op->status
                         : op->status == 0 || !sim_tells(side) ? CRPC_E_DROPPED
                                                               : CRPC_E_NOT_STARTED;
    side->sim->counts[SIM_NOT_STARTED] += book->reply_status == CRPC_E_NOT_STARTED;
    side->replies_submitted += !(op->flags & CRPC_OP_QUIET);
    memmove(&side->requests[index], &side->requests[index + 1],
            (--side->request_count - index) * sizeof(side->requests[0]));
}

static bool reply(struct sim *sim, struct sim_side *side, uint32_t index)
{
    crpc_op op = choose_reply(sim, side, index);
    const struct sim_call *book = &side->peer->calls[side->requests[index].number];
    simulation_fill(payload, op.payload_bytes,
                    sim_key(side->peer, side->requests[index].number, true));
    const bool gathers = op.opcode == CRPC_OP_REPLY && op.flags == 0 && sim_gather_wanted(sim);
    int32_t status;
    if (op.opcode == CRPC_OP_REPLY && op.flags == CRPC_OP_QUIET &&
        random_percent(&sim->run_random, 60)) {
        rpc_reply_alone(side->endpoint, &op, payload, &status);
    } else {
        status = op.opcode == CRPC_OP_DROP ? rpc_drop(side->endpoint, &op)
                 : gathers                 ? sim_gather_submit(side, &op, payload)
                                           : rpc_reply(side->endpoint, &op, payload);
        rpc_submit_end(side->engine->engine);
    }
    if (status == CRPC_OK) {
        if (op.payload_bytes > book->reply_bytes_max) {
            simulation_fail(&sim->base, "a reply that was too long was accepted");
        }
        book_reply(side, &op, index);
        return true;
    }
    if (status == CRPC_E_TOO_BIG && op.payload_bytes <= book->reply_bytes_max) {
        simulation_fail(&sim->base, "a reply that fits was said to be too big");
    }
    check_refusal(sim, side, &op, status);
    return false;
}

/* Several at once, those of the oldest requests. */
static void reply_run(struct sim *sim, struct sim_side *side)
{
    crpc_op ops[RUN_MAX];
    uint32_t made = 0, reported = 0;
    uint64_t bytes = 0;
    while (made < RUN_MAX && made < side->request_count) {
        crpc_op *op = &ops[made];
        *op = choose_reply(sim, side, made);
        op->user_data += reported;
        op->payload_offset = bytes;
        if (op->opcode == CRPC_OP_DROP || op->payload_bytes > sizeof(payload) - bytes) {
            break;
        }
        simulation_fill(payload + bytes, op->payload_bytes,
                        sim_key(side->peer, side->requests[made].number, true));
        bytes += op->payload_bytes;
        reported += !(op->flags & CRPC_OP_QUIET);
        made++;
    }
    if (made == 0) {
        return;
    }
    uint32_t taken = rpc_replies(side->endpoint, ops, made, payload, sizeof(payload));
    if (taken < made) {
        const crpc_op *op = &ops[taken];
        int32_t status = rpc_reply(side->endpoint, op, payload + op->payload_offset);
        if (status == CRPC_OK) {
            simulation_fail(&sim->base, "a run of replies ends before one that is possible");
        } else if (status != CRPC_E_TOO_BIG) {
            check_refusal(sim, side, op, status);
        }
    }
    for (uint32_t i = 0; i < taken; i++) {
        const struct sim_call *book = &side->peer->calls[side->requests[0].number];
        if (ops[i].payload_bytes > book->reply_bytes_max) {
            simulation_fail(&sim->base, "a reply that was too long was accepted");
        }
        book_reply(side, &ops[i], 0);
    }
    rpc_submit_end(side->engine->engine);
}

bool sim_answer(struct sim_side *side)
{
    return side->endpoint && side->request_count > 0 && reply(side->sim, side, 0);
}

/* ---- Writing in place ------------------------------------------------------------------------ */

static void reserve(struct sim *sim, struct sim_side *side)
{
    void *place;
    if (side->call_count == SIM_CALLS_MAX) {
        return;
    }
    bool of_reply = side->request_count > 0 && random_percent(&sim->base.random, 50);
    uint32_t index = of_reply ? random_below(&sim->base.random, side->request_count) : 0;
    crpc_op op = of_reply ? choose_reply(sim, side, index) : choose_call(sim, side);
    if (op.opcode == CRPC_OP_DROP) {
        return;
    }
    int32_t status = rpc_reserve(side->endpoint, &op, &place);
    if (status != CRPC_OK) {
        if (status != CRPC_E_TOO_BIG) {
            check_refusal(sim, side, &op, status);
        }
        return;
    }
    side->reserved = true;
    side->reservation = op;
    side->reserved_place = place;
    side->reserved_request = index;
    memset(place, 0xa5, op.payload_bytes);
}

void sim_finish_reservation(struct sim_side *side)
{
    struct sim *sim = side->sim;
    crpc_op *op = &side->reservation;
    bool of_reply = op->opcode == CRPC_OP_REPLY;
    bool gone = side->endpoint->link.failing;
    side->reserved = false;
    if (random_percent(&sim->base.random, 20)) {
        int32_t status = rpc_abort(side->endpoint);
        if (status != (gone ? CRPC_E_STATE : CRPC_OK)) {
            simulation_fail(&sim->base, "abort gave status %d", status);
        }
        return;
    }
    uint32_t bytes = random_below(&sim->base.random, op->payload_bytes + 1);
    uint32_t number = of_reply ? side->requests[side->reserved_request].number : side->call_count;
    if (!gone) {
        simulation_fill(side->reserved_place, bytes,
                        sim_key(of_reply ? side->peer : side, number, of_reply));
    }
    op->payload_bytes = bytes;
    int32_t status = rpc_commit(side->endpoint, bytes);
    if (status == CRPC_OK && of_reply) {
        book_reply(side, op, side->reserved_request);
    } else if (status == CRPC_OK) {
        book_call(side, op);
    } else if (!(gone && status == CRPC_E_DISCONNECTED) &&
               !(status == CRPC_E_CLOSING && !of_reply &&
                 (side->leave_asked || side->peer->leave_asked))) {
        simulation_fail(&sim->base, "commit gave status %d", status);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void leave(struct sim *sim, struct sim_side *side)
{
    bool timed = random_percent(&sim->base.random, 30);
    uint64_t timeout = timed ? random_between(&sim->base.random, 1, 5000000) : CRPC_FOREVER;
    int32_t status = link_disconnect(&side->endpoint->link, timeout);
    if (status == CRPC_OK) {
        side->leave_asked = true;
        side->leave_timed |= timed;
    } else if (status != CRPC_E_STATE || !side->endpoint->link.failing) {
        simulation_fail(&sim->base, "disconnect gave status %d", status);
    }
}

static void close_side(struct sim_side *side)
{
    link_close(&side->endpoint->link);
    side->endpoint = NULL;
    side->closed = true;
    side->reserved = false;
    side->request_count = 0;
    side->lane.taken = NULL;
}

/* Two messages that docs/wire.md forbids, one thing at a time; *immediate in units. */
static void make_lie(struct sim *sim, const struct rpc_endpoint *target, struct sim_lie *lie,
                     uint32_t *immediate)
{
    *lie =
        (struct sim_lie){.header = {.request_limit = target->out.request_limit,
                                    .batch_limit = target->out.batch_limit,
                                    .sequence = target->in.sequence_expected +
                                                target->in.arrivals_tail - target->in.arrivals_head,
                                    .bytes = sizeof(*lie),
                                    .message_count = 2},
                         .message = {{.kind = WIRE_RESPONSE}, {0}, {.kind = WIRE_RESPONSE}}};
    *immediate = sizeof(*lie) / WIRE_UNIT_BYTES;
    switch (random_below(&sim->base.random, 6)) {
    case 0:
        lie->header.sequence++;
        break;
    case 1:
        lie->header.bytes += WIRE_UNIT_BYTES;
        break;
    case 2:
        lie->header.batch_limit = UINT64_MAX;
        break;
    case 3:
        lie->message[0].call_id = WIRE_CALL_INDEX_MASK; /* of no call */
        break;
    case 4:
        *immediate = 0;
        break;
    default:
        lie->message[0].kind = WIRE_RESPONSE + 1;
    }
}

/* The peer of `side` says something malformed and is gone; and the connection may end for `side` before it
 * has looked. Nothing else of the peer may be under way, so that it is known where its next batch goes. */
static void tell_lie(struct sim *sim, struct sim_side *side)
{
    const struct rpc_endpoint *endpoint = side->endpoint;
    const struct rpc_endpoint *liar = side->peer->endpoint;
    struct sim_lie lie;
    uint32_t immediate;
    if (!endpoint->link.queue_pair || !liar || !liar->link.queue_pair ||
        liar->out.batches_sent != endpoint->stats.batches_received ||
        endpoint->stats.batches_received == endpoint->in.batch_published ||
        endpoint->in.arrived - endpoint->in.released + sizeof(lie) > endpoint->in.ring.bytes) {
        return;
    }
    make_lie(sim, endpoint, &lie, &immediate);
    enum nic_error told = memory_fabric_write_immediate(
        sim->base.fabric, endpoint->link.queue_pair->number,
        (uint64_t)(uintptr_t)ring_at(&endpoint->in.ring, endpoint->in.arrived),
        endpoint->in.ring.memory.remote_key, sizeof(lie), &lie, immediate);
    if (told != NIC_ERROR_NONE) {
        return;
    }
    side->lied_to = true;
    sim->counts[SIM_LIES]++;
    side->troubled = true;
    side->peer->troubled = true;
    memory_fabric_cut(liar->link.queue_pair);
    if (random_percent(&sim->base.random, 70)) {
        memory_fabric_kill(endpoint->link.queue_pair);
    }
}

static void trouble(struct sim *sim, struct sim_side *side)
{
    if (!side->endpoint->link.queue_pair) {
        return;
    }
    switch (random_below(&sim->base.random, link_joining(&side->endpoint->link) ? 2 : 3)) {
    case 0:
        memory_fabric_stall(side->endpoint->link.queue_pair,
                            random_between(&sim->base.random, 1, 250));
        return;
    case 1:
        memory_fabric_cut(side->endpoint->link.queue_pair);
        break;
    default:
        memory_fabric_kill(side->endpoint->link.queue_pair);
    }
    side->troubled = true;
    side->peer->troubled = true;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

void sim_poll(struct sim_engine *engine, struct sim *sim, uint32_t capacity)
{
    crpc_completion completions[SIM_VIEWS_MAX];
    sim_check_views(sim, engine);
    engine->view_count = 0;
    uint32_t count = rpc_poll(engine->engine, completions, capacity);
    if (count > capacity) {
        simulation_fail(&sim->base, "poll gave more than asked for");
        return;
    }
    for (uint32_t i = 0; i < count && !sim->base.failed; i++) {
        sim_take(sim, engine, &completions[i]);
    }
    sim_check_engine(sim, engine);
}

/* While the keys are compared there is little that can be done. */
static void act_on_connecting(struct sim *sim, struct sim_side *side)
{
    if (random_percent(&sim->base.random, 1)) {
        close_side(side);
    } else if (!sim->calm && random_percent(&sim->base.random, 4)) {
        trouble(sim, side);
    }
}

static void act_on(struct sim *sim, struct sim_side *side, uint32_t choice)
{
    if (!side->endpoint) {
        return;
    }
    if (side->endpoint->link.state == CRPC_STATE_CONNECTING) {
        act_on_connecting(sim, side);
        return;
    }
    if (side->reserved && choice < 20) {
        sim_finish_reservation(side);
    } else if (choice < 50) {
        call(sim, side);
    } else if (choice < 85) {
        if (side->request_count > 0 && !side->reserved) {
            uint32_t index = random_below(&sim->base.random, side->request_count);
            if (side->request_count > 1 && random_percent(&sim->run_random, 30)) {
                reply_run(sim, side);
            } else {
                reply(sim, side, index);
            }
        }
    } else if (choice < 92) {
        if (!side->reserved) {
            reserve(sim, side);
        }
    } else if (choice < 95) {
        cancel(sim, side);
    } else if (random_percent(&sim->base.random, 2)) {
        leave(sim, side);
    } else if (random_percent(&sim->base.random, 1)) {
        close_side(side);
    } else if (!sim->calm && random_percent(&sim->base.random, 2)) {
        trouble(sim, side);
    } else if (!sim->calm && random_percent(&sim->base.random, 12)) {
        tell_lie(sim, side);
    }
}

void sim_act(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    struct random_generator *random = &sim->base.random;
    uint32_t choice = random_below(random, 100);
    sim_late(sim, false);
    sim_lane_act(sim);
    sim_arena_act(sim);
    if (choice < 55) {
        memory_fabric_step(sim->base.fabric);
    } else if (choice < 72) {
        uint32_t capacity =
            random_percent(random, 50) ? SIM_VIEWS_MAX : random_between(random, 1, 8);
        uint32_t index = random_below(random, sim->engine_count);
        if (index != sim->lazy || random_percent(random, 5)) {
            sim_poll(&sim->engines[index], sim, capacity);
        }
    } else if (choice < 76) {
        sim->base.clock_ns += random_percent(random, 90) ? random_below(random, 20000)
                                                         : random_below(random, 3000000);
    } else if (choice < 78) {
        const struct sim_engine *engine = &sim->engines[random_below(random, sim->engine_count)];
        rpc_progress(engine->engine);
        sim_check_engine(sim, engine);
    } else {
        act_on(sim, &sim->sides[random_below(random, sim->side_count)], random_below(random, 100));
    }
}

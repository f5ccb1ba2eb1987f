/* sim_lane.c: the lanes of a simulation: what an application might do with them, and what must hold. Choices
 * are made by a generator of their own, so that episodes without lanes are what they would be.
 *
 * Each side grants its peer one box. Its peer alone writes there, ever larger numbers, so a READ brings
 * what was written before it or later; and one word is changed by atomics, whose results are exact.
 */
#include "sim.h"

#include <inttypes.h>
#include <string.h>

#define ACCESS (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)
#define ATOMIC_SLOT (SIM_SLOTS - 1)

void sim_lanes_choose(struct sim *sim, uint64_t seed)
{
    random_seed(&sim->lane_random, seed);
    sim->lanes = random_percent(&sim->lane_random, 50) && sim->initiators == 0;
}

bool sim_lane_wanted(struct sim *sim)
{
    return sim->lanes && random_percent(&sim->lane_random, 70);
}

void sim_lane_open(struct sim_side *side)
{
    struct nic *nic = side->engine->nic;
    crpc_error error = {0};
    if (nic->operations->memory_register(nic, NULL, &side->lane.memory, sizeof(side->lane.memory),
                                         0, CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS,
                                         &side->lane.keys, &error) != CRPC_OK) {
        simulation_fail(&side->sim->base, "cannot register the memory of a lane: %s",
                        error.message);
    }
    side->lane.used = true;
}

void sim_lane_close(struct sim_side *side)
{
    struct nic *nic = side->engine->nic;
    if (side->lane.used) {
        nic->operations->memory_deregister(nic, &side->lane.keys);
        if (side->lane.users != 0) {
            simulation_fail(&side->sim->base, "a grant still holds its memory");
        }
    }
}

/* ---- Acts ------------------------------------------------------------------------------------ */

static uint64_t address_of(const uint64_t *slot)
{
    return (uint64_t)(uintptr_t)slot;
}

static bool excused(const struct sim_side *side)
{
    return side->closed || sim_excused(side) || sim_excused(side->peer) || side->lane.troubled ||
           side->peer->lane.troubled;
}

static void check_refusal(struct sim_side *side, int32_t status)
{
    struct sim *sim = side->sim;
    const bool leaves = side->leave_asked || side->peer->leave_asked;
    switch (status) {
    case CRPC_OK:
        break;
    case CRPC_E_AGAIN:
        side->room_due = true;
        break;
    case CRPC_E_CLOSING:
        if (!leaves) {
            simulation_fail(&sim->base, "a lane is closing, though nobody took leave");
        }
        break;
    case CRPC_E_DISCONNECTED:
        if (!side->endpoint->link.failing) {
            simulation_fail(&sim->base, "a lane is disconnected, and its endpoint is not");
        }
        break;
    case CRPC_E_UNSUPPORTED:
        if (side->peer->lane.used) {
            simulation_fail(&sim->base, "there is no lane, though both asked for one");
        }
        break;
    default:
        simulation_fail(&sim->base, "an op of a lane was refused with status %d", status);
    }
}

static struct sim_lane_op *next_op(struct sim_side *side)
{
    return &side->lane.ops[side->lane.op_count % SIM_LANE_OPS];
}

static uint64_t book(struct sim_side *side, const struct sim_lane_op *op)
{
    *next_op(side) = *op;
    side->sim->counts[SIM_LANE_ACCEPTED]++;
    return side->lane.op_count++;
}

/* The 8 bytes of a WRITE or READ lie in up to three pieces, or a WRITE's are copied. */
static void choose_memory(struct sim_side *side, struct lane_op *op)
{
    struct random_generator *random = &side->sim->lane_random;
    struct nic_piece *pieces = side->lane.pieces;
    const uint32_t cut[] = {0, random_between(random, 0, 4), random_between(random, 4, 8), 8};
    op->copied = op->opcode == LANE_WRITE && random_percent(random, 30) &&
                 side->engine->nic->inline_bytes_max >= op->bytes;
    if (random_percent(random, 60)) {
        for (uint32_t i = 0; i < 3; i++) {
            pieces[i] = (struct nic_piece){.address = op->local_address + cut[i],
                                           .bytes = cut[i + 1] - cut[i],
                                           .local_key = op->copied ? 0 : op->local_key};
        }
        op->pieces = pieces;
        op->piece_count = 3;
        op->local_address = 0;
    }
}

static struct lane_op choose_transfer(struct sim_side *side, struct sim_lane_op *booked)
{
    struct sim *sim = side->sim;
    struct random_generator *random = &sim->lane_random;
    struct sim_lane *lane = &side->lane;
    const uint32_t own = (uint32_t)(lane->op_count % SIM_SLOTS);
    const uint8_t opcode = (uint8_t)random_between(random, LANE_WRITE, LANE_FETCH_ADD);
    const bool atomic = opcode >= LANE_COMPARE_SWAP;
    const uint32_t slot = atomic ? ATOMIC_SLOT : random_below(random, ATOMIC_SLOT);
    struct lane_op op = {.opcode = opcode,
                         .fence = random_percent(random, 30),
                         .local_key = lane->keys.local_key,
                         .remote_key = lane->taken->key,
                         .remote_address = lane->taken->address + 8 * slot,
                         .user_data = lane->op_count};
    *booked = (struct sim_lane_op){.opcode = opcode, .slot = slot, .own = own};
    if (opcode == LANE_WRITE) {
        lane->memory.source[own] = lane->op_count + 1;
        op.bytes = 8;
        op.local_address = address_of(&lane->memory.source[own]);
    } else if (opcode == LANE_READ) {
        op.bytes = 8;
        op.local_address = address_of(&lane->memory.landing[own]);
        booked->expected = lane->wrote[slot];
    } else {
        booked->expected = lane->changed;
        op.compare = lane->changed;
        op.operand = opcode == LANE_COMPARE_SWAP ? lane->changed + 1 : 1;
    }
    if (!atomic) {
        choose_memory(side, &op);
    }
    return op;
}

static void transfer(struct sim_side *side)
{
    struct sim_lane *lane = &side->lane;
    struct sim_lane_op booked;
    uint32_t count = random_between(&side->sim->lane_random, 1, 6);
    int32_t status = CRPC_OK;
    if (!lane->taken || lane_grant_over(lane->taken)) {
        return;
    }
    while (count-- > 0 && status == CRPC_OK && lane->op_count - lane->op_done < SIM_SLOTS / 2) {
        struct lane_op op = choose_transfer(side, &booked);
        if (rpc_lane_post(side->endpoint, &op, 1, &status) == 1) {
            book(side, &booked);
            if (booked.opcode == LANE_WRITE) {
                lane->wrote[booked.slot] = op.user_data + 1;
                lane->last_slot = booked.slot;
            }
            if (op.copied) {
                lane->memory.source[booked.own] = UINT64_MAX;
            }
            lane->changed += booked.opcode >= LANE_COMPARE_SWAP;
        }
    }
    check_refusal(side, status);
}

static void give(struct sim_side *side)
{
    const struct lane_memory memory = {.keys = &side->lane.keys,
                                       .users = &side->lane.users,
                                       .address = address_of(side->lane.memory.box),
                                       .bytes = sizeof(side->lane.memory.box),
                                       .access = ACCESS};
    if (side->lane.gives || side->lane.op_count - side->lane.op_done >= SIM_SLOTS / 2) {
        return;
    }
    int32_t status = rpc_lane_give(side->endpoint, &memory, side->lane.op_count);
    check_refusal(side, status);
    if (status == CRPC_OK) {
        book(side, &(struct sim_lane_op){.opcode = LANE_GRANT});
        side->lane.gives = true;
        side->sim->counts[SIM_GRANTS]++;
    }
}

static void take(struct sim_side *side)
{
    struct sim_lane *lane = &side->lane;
    const struct sim_lane *peer = &side->peer->lane;
    crpc_error error = {0};
    if (!peer->told || lane->taken || !side->peer->endpoint) {
        return;
    }
    int32_t status =
        rpc_lane_take(side->endpoint, peer->bytes, sizeof(peer->bytes), &lane->taken, &error);
    if (status == CRPC_E_STALE && !peer->gives) {
        status = CRPC_OK; /* it was revoked meanwhile */
    }
    if (status != CRPC_OK || !lane->taken) {
        lane->taken = NULL;
    } else if (lane->taken->life != lane->taken_life) { /* of before, some may not have been done */
        lane->taken_life = lane->taken->life;
        memcpy(lane->wrote, peer->memory.box, sizeof(lane->wrote));
        lane->changed = peer->memory.box[ATOMIC_SLOT];
    }
    check_refusal(side, status);
}

static void revoke(struct sim_side *side)
{
    struct sim_lane *lane = &side->lane;
    struct lane_grant *grant = handles_get(&side->engine->handles, lane->grant, HANDLE_GRANT);
    if (!lane->told || !grant) {
        return;
    }
    int32_t status = rpc_lane_revoke(side->endpoint, grant, lane->op_count, 0);
    check_refusal(side, status);
    if (status == CRPC_OK) {
        book(side, &(struct sim_lane_op){.opcode = LANE_REVOKE});
        lane->told = false;
        side->sim->counts[SIM_REVOKES]++;
    }
}

static void trouble(struct sim_side *side)
{
    struct lane *lane = side->endpoint->lane.lane;
    struct nic_queue_pair *queue_pair = lane ? lane_queue_pair(lane) : NULL;
    if (!queue_pair || !lane_is_open(lane)) {
        return;
    }
    side->lane.troubled = true;
    side->troubled = side->peer->troubled = true; /* a message may wait behind its ops */
    if (random_percent(&side->sim->lane_random, 50)) {
        memory_fabric_kill(queue_pair);
    } else {
        memory_fabric_cut(queue_pair);
    }
}

/* A lane that was made again has no grants of before. */
static void forget_grants(struct sim_side *side)
{
    struct sim_lane *lane = &side->lane;
    if (lane->told && !handles_get(&side->engine->handles, lane->grant, HANDLE_GRANT)) {
        lane->told = lane->gives = false;
    }
    if (lane->taken && lane_grant_over(lane->taken)) {
        lane_forget(lane->taken);
        lane->taken = NULL;
    }
}

void sim_lane_act(struct sim *sim)
{
    struct random_generator *random = &sim->lane_random;
    if (!sim->lanes || random_percent(random, 70)) {
        return;
    }
    struct sim_side *side = &sim->sides[random_below(random, sim->side_count)];
    uint32_t choice = random_below(random, 100);
    if (!side->endpoint || !side->lane.used ||
        side->endpoint->link.state == CRPC_STATE_CONNECTING) {
        return;
    }
    forget_grants(side);
    if (side->endpoint->lane.life > side->lane.life) {
        side->lane.life = side->endpoint->lane.life;
        sim->counts[SIM_LIVES] += side->lane.life > 1;
    }
    if (choice < 60) {
        transfer(side);
    } else if (choice < 75) {
        give(side);
    } else if (choice < 88) {
        take(side);
    } else if (choice < 95) {
        revoke(side);
    } else if (choice < 97 && side->lane.taken) {
        lane_forget(side->lane.taken);
        side->lane.taken = NULL;
    } else if (!sim->calm && random_percent(random, 20)) {
        trouble(side);
    }
}

void sim_lane_last(struct sim_side *side)
{
    struct lane *lane = side->endpoint->lane.lane;
    if (side->lane.used) {
        transfer(side);
        revoke(side);
    }
    if (lane && lane_is_open(lane)) { /* both sides could part before its ops are done */
        memory_fabric_stall(lane_queue_pair(lane), 2000);
    }
}

bool sim_lane_slow(struct sim_side *side)
{
    struct random_generator *random = &side->sim->lane_random;
    struct lane *lane = side->endpoint->lane.lane;
    if (!side->lane.used || !lane || !lane_is_open(lane) || !random_percent(random, 30)) {
        return false;
    }
    memory_fabric_stall(lane_queue_pair(lane), random_between(random, 20, 300));
    return true;
}

int32_t sim_lane_call(struct sim_side *side, const crpc_op *op, const void *bytes,
                      struct sim_call *after)
{
    struct sim_lane *lane = &side->lane;
    if (!lane->used || !random_percent(&side->sim->lane_random, 40)) {
        return rpc_submit(side->endpoint, op, bytes);
    }
    if (random_percent(&side->sim->lane_random, 70)) {
        transfer(side);
    }
    int32_t status = rpc_after(side->endpoint, op, bytes);
    if (status == CRPC_E_UNSUPPORTED || status == CRPC_E_DISCONNECTED) { /* the lane's own */
        return rpc_submit(side->endpoint, op, bytes);
    }
    if (status == CRPC_OK && lane->taken && !lane_grant_over(lane->taken)) {
        after->after_slot = lane->last_slot;
        after->after = lane->wrote[lane->last_slot];
        if (side->endpoint->lane.gated && !side->sim->calm &&
            random_percent(&side->sim->lane_random, 30)) {
            trouble(side); /* what it is to follow fails */
        }
    }
    return status;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

void sim_lane_request(struct sim_side *side, const struct sim_call *call)
{
    if (call->after > side->lane.memory.box[call->after_slot]) {
        simulation_fail(&side->sim->base, "a call came before the WRITE that it was to follow");
    }
}

static void check_result(struct sim_side *side, const struct sim_lane_op *op,
                         const crpc_completion *completion)
{
    struct sim *sim = side->sim;
    const struct sim_lane *lane = &side->lane;
    if (op->opcode == LANE_READ && (lane->memory.landing[op->own] < op->expected ||
                                    lane->memory.landing[op->own] > lane->wrote[op->slot])) {
        simulation_fail(&sim->base, "a READ brought %" PRIu64 ", at least %" PRIu64 " was there",
                        lane->memory.landing[op->own], op->expected);
    }
    if (op->opcode >= LANE_COMPARE_SWAP && op->opcode <= LANE_FETCH_ADD &&
        completion->token != op->expected) {
        simulation_fail(&sim->base, "an atomic found %" PRIu64 ", not %" PRIu64, completion->token,
                        op->expected);
    }
}

static void take_grant(struct sim_side *side, const crpc_completion *completion)
{
    struct sim_lane *lane = &side->lane;
    const struct lane_grant *grant =
        handles_get(&side->engine->handles, completion->token, HANDLE_GRANT);
    lane->grant = completion->token;
    lane->told = completion->status == CRPC_OK && grant;
    lane->gives &= completion->status == CRPC_OK;
    if (lane->told) {
        lane_grant_write(grant, lane->bytes);
    }
}

void sim_lane_take(struct sim_side *side, const crpc_completion *completion)
{
    struct sim *sim = side->sim;
    struct sim_lane *lane = &side->lane;
    struct sim_lane_op *op = &lane->ops[completion->user_data % SIM_LANE_OPS];
    const bool revokes = completion->method == LANE_REVOKE;
    if (completion->user_data >= lane->op_count || op->done || op->opcode != completion->method ||
        side->disconnected_seen) {
        simulation_fail(&sim->base, "op %" PRIu64 " of a lane completed twice, or never was",
                        completion->user_data);
        return;
    }
    op->done = true;
    side->lane.completed++;
    while (lane->op_done < lane->op_count && lane->ops[lane->op_done % SIM_LANE_OPS].done) {
        lane->op_done++;
    }
    if (completion->status != CRPC_OK && (revokes || !excused(side))) {
        simulation_fail(&sim->base, "op %" PRIu64 " of a lane failed with status %d",
                        completion->user_data, completion->status);
    }
    if (completion->status == CRPC_E_ACCESS) {
        simulation_fail(&sim->base, "an honest peer was refused");
    }
    if (completion->status == CRPC_OK) {
        check_result(side, op, completion);
    }
    if (completion->method == LANE_GRANT) {
        take_grant(side, completion);
    }
    lane->gives &= !revokes;
}

bool sim_lane_over(const struct sim_side *side)
{
    return side->lane.completed == side->lane.op_count;
}

/* Nothing lands without a right. */
void sim_lane_watch(struct sim *sim, const struct nic *target, uint32_t queue_pair_number,
                    uint64_t address)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (!side->lane.used || side->engine->nic != target ||
            address - address_of(side->lane.memory.box) >= sizeof(side->lane.memory.box)) {
            continue;
        }
        if (!side->lane.gives) {
            simulation_fail(&sim->base, "a WRITE lands where no grant is");
        }
        if (!side->endpoint || side->endpoint->lane.number != queue_pair_number) {
            simulation_fail(&sim->base, "a WRITE lands over another queue pair than the lane's");
        }
    }
}

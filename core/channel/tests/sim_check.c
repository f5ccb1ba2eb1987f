/* sim_check.c: what a poll gave, and what must hold whatever happens. */
#include "sim.h"

#include <string.h>

static struct sim_side *side_of(struct sim *sim, const struct sim_engine *engine, uint64_t handle)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].handle == handle && sim->sides[i].engine == engine) {
            return &sim->sides[i];
        }
    }
    return NULL;
}

bool sim_excused(const struct sim_side *side)
{
    return side->excused || side->peer->excused || side->peer->closed || side->leave_timed ||
           side->peer->leave_timed;
}

static bool left(const struct sim_side *side)
{
    return side->leave_asked || side->peer->leave_asked;
}

/* ---- What was posted ------------------------------------------------------------------------- */

/* Each buffer has a send with its tag, and older ones of that tag are not left for later messages.
 * Within a message they may change places, if one is canceled before it is complete. */
static void look_at_message(struct sim *sim, struct sim_side *side,
                            const struct channel_outgoing *outgoing, uint32_t number)
{
    struct sim_message *message = &side->peer->messages[number];
    if (number >= side->peer->message_count || outgoing->number != number ||
        outgoing->count != message->count) {
        simulation_fail(&sim->base,
                        "side %u posted message %u, which is not what the peer has posted",
                        side->index, number);
        return;
    }
    uint32_t before[SIM_TAGS];
    memcpy(before, side->last_sent, sizeof(before));
    for (uint32_t i = 0; i < outgoing->count; i++) {
        uint32_t index = (uint32_t)outgoing->ops[i]->user_data;
        struct sim_send *send = &side->sends[index];
        struct sim_buffer *buffer = &message->buffers[i];
        if (send->tag != buffer->tag || send->message != SIM_NONE || send->completed) {
            simulation_fail(&sim->base, "side %u posted send %u into buffer %u of message %u",
                            side->index, index, i, number);
            return;
        }
        if (index < before[send->tag]) {
            simulation_fail(&sim->base, "side %u: send %u was overtaken by %u of the same tag",
                            side->index, index, before[send->tag] - 1);
        }
        side->last_sent[send->tag] = (uint32_t)maximum(side->last_sent[send->tag], index + 1);
        send->message = number;
        buffer->send = index;
    }
}

void sim_look(struct sim *sim, const struct sim_engine *engine)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (side->engine != engine || !side->channel || !side->channel->send.outgoing) {
            continue;
        }
        const struct channel *channel = side->channel;
        if (side->other_key && channel->area.keys[0].driver) {
            simulation_fail(&sim->base, "side %u: a peer with another key was shown its memory", i);
        }
        for (; side->sends_seen < channel->send.number && !sim->base.failed; side->sends_seen++) {
            const struct channel_outgoing *outgoing =
                &channel->send.outgoing[side->sends_seen & channel->slot_mask];
            if (outgoing->count == 0 && channel->link.state == CRPC_STATE_DISCONNECTED) {
                continue; /* posted and given up in one call */
            }
            look_at_message(sim, side, outgoing, side->sends_seen);
        }
    }
}

/* ---- Completions of ops ---------------------------------------------------------------------- */

static void take_sent(struct sim *sim, struct sim_side *side, const crpc_completion *completion)
{
    uint32_t number = (uint32_t)completion->user_data;
    struct sim_send *send = &side->sends[number];
    if (completion->user_data >> 32 != side->index || number >= side->send_count) {
        simulation_fail(&sim->base, "a completion of no send of this side");
        return;
    }
    bool posted = send->message != SIM_NONE;
    bool possible = false;
    switch (completion->status) {
    case CRPC_OK:
    case CRPC_E_TRUNCATED: {
        if (!posted || completion->token != send->message ||
            completion->payload_bytes != send->bytes) {
            break;
        }
        const struct sim_message *message = &side->peer->messages[send->message];
        for (uint32_t i = 0; i < message->count; i++) {
            const struct sim_buffer *buffer = &message->buffers[i];
            if (buffer->send == number) {
                possible = (send->bytes > buffer->bytes) == (completion->status != CRPC_OK);
            }
        }
        break;
    }
    case CRPC_E_CANCELED:
        possible = send->cancel_asked && !posted;
        break;
    case CRPC_E_TIMEOUT:
        possible = send->timed && !posted;
        break;
    case CRPC_E_CLOSED:
        possible = side->closed;
        break;
    case CRPC_E_DISCONNECTED:
        possible = sim_excused(side) || (left(side) && !posted);
        break;
    default:
        break;
    }
    if (send->completed || !possible) {
        simulation_fail(&sim->base,
                        "side %u: send %u of %u bytes, message %d, completed %s with status %d",
                        side->index, number, send->bytes, (int)send->message,
                        send->completed ? "again" : "", completion->status);
    }
    send->completed = true;
    send->status = completion->status;
    side->sends_completed++;
    sim_block_give_back(side, send->block);
}

/* The bytes that were sent, and nothing after them. */
static void check_buffer(struct sim *sim, struct sim_side *side, uint32_t number, uint32_t place,
                         int32_t status)
{
    struct sim_buffer *buffer = &side->messages[number].buffers[place];
    const struct sim_send *send =
        buffer->send == SIM_NONE ? NULL : &side->peer->sends[buffer->send];
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)buffer->address;
    uint8_t expected[SIM_BUFFER_BYTES_MAX];
    simulation_fill(expected, buffer->bytes, sim_blank_key(side, number, place));
    if (status == CRPC_OK && send) {
        simulation_fill(expected, send->bytes, sim_send_key(side->peer, buffer->send));
    } else if (status != CRPC_E_TRUNCATED) {
        return; /* part of it may have landed */
    }
    for (uint32_t i = 0; i < buffer->bytes; i++) {
        if (bytes[i] != expected[i]) {
            simulation_fail(&sim->base,
                            "side %u: buffer %u of message %u is wrong at byte %u of %u (sent: %u)",
                            side->index, place, number, i, buffer->bytes, send ? send->bytes : 0);
            return;
        }
    }
}

/* A receive that has completed leaves the peer no right to its buffer. */
static void check_rights(struct sim *sim, const struct sim_side *side, uint32_t number,
                         int32_t status)
{
    const struct channel *channel = side->channel;
    if (!channel || !channel->receive.incoming || channel->link.state == CRPC_STATE_DISCONNECTED) {
        return; /* all queue pairs are gone */
    }
    const struct channel_incoming *incoming =
        &channel->receive.incoming[number & channel->slot_mask];
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (incoming->grants[rail] != GRANT_NONE) {
            simulation_fail(&sim->base,
                            "side %u: message %u completed with status %d, and the peer may still "
                            "write to it over rail %u",
                            side->index, number, status, rail);
        }
    }
}

static void take_received(struct sim *sim, struct sim_side *side, const crpc_completion *completion)
{
    uint32_t number = (uint32_t)completion->user_data >> 3, place = completion->user_data & 7;
    struct sim_message *message = &side->messages[number];
    struct sim_buffer *buffer = &message->buffers[place];
    if (completion->user_data >> 32 != side->index || number >= side->message_count ||
        place >= message->count || completion->token != number ||
        completion->payload != buffer->address) {
        simulation_fail(&sim->base, "a completion of no receive of this side");
        return;
    }
    const struct sim_send *send =
        buffer->send == SIM_NONE ? NULL : &side->peer->sends[buffer->send];
    bool possible = false;
    switch (completion->status) {
    case CRPC_OK:
        possible = send && send->bytes <= buffer->bytes && completion->payload_bytes == send->bytes;
        break;
    case CRPC_E_TRUNCATED:
        possible = send && send->bytes > buffer->bytes && completion->payload_bytes == send->bytes;
        break;
    case CRPC_E_CLOSED:
        possible = side->closed;
        break;
    case CRPC_E_DISCONNECTED:
        possible = sim_excused(side) || (left(side) && !send);
        break;
    default:
        break;
    }
    if (buffer->completed || !possible) {
        simulation_fail(
            &sim->base,
            "side %u: buffer %u of message %u (%u bytes, sent %d) completed %s with status %d, "
            "%u bytes",
            side->index, place, number, buffer->bytes, send ? (int)send->bytes : -1,
            buffer->completed ? "again" : "", completion->status, completion->payload_bytes);
    }
    check_buffer(sim, side, number, place, completion->status);
    check_rights(sim, side, number, completion->status);
    buffer->completed = true;
    buffer->status = completion->status;
    side->messages_completed += ++message->completed == message->count;
    sim_block_give_back(side, buffer->block);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void take_end(struct sim *sim, struct sim_side *side, const crpc_completion *completion)
{
    if (side->disconnected_seen || side->closed || !side->connected_seen) {
        simulation_fail(&sim->base, "disconnected twice, or after close");
        return;
    }
    if (completion->status != CRPC_OK && !sim_excused(side)) {
        simulation_fail(&sim->base, "side %u: channel lost without a reason, status %d: %s",
                        side->index, completion->status, side->channel->link.error.message);
    }
    if (completion->status == CRPC_E_PROTOCOL) {
        simulation_fail(&sim->base, "side %u: %s", side->index, side->channel->link.error.message);
    }
    if (completion->status == CRPC_OK && !left(side)) {
        simulation_fail(&sim->base, "disconnected with status 0, though nobody took leave");
    }
    if (side->sends_completed != side->send_count ||
        side->messages_completed != side->message_count) {
        simulation_fail(&sim->base, "side %u: disconnected before its ops completed", side->index);
    }
    side->disconnected_seen = true;
}

static void take_rail(struct sim *sim, struct sim_side *side, const crpc_completion *completion)
{
    bool shown = completion->status == CRPC_OK;
    if (completion->token >= CHANNEL_RAILS_MAX ||
        (!shown && completion->status != CRPC_E_DISCONNECTED)) {
        simulation_fail(&sim->base, "an event of no rail");
        return;
    }
    if (side->rail_shown[completion->token] == shown) {
        simulation_fail(&sim->base, "side %u: rail %u was said to be %s twice", side->index,
                        (uint32_t)completion->token, shown ? "up" : "lost");
    }
    side->rail_shown[completion->token] = shown;
}

static void take_connected(struct sim *sim, struct sim_side *side,
                           const crpc_completion *completion)
{
    if (side->connected_seen || side->connect_failed) {
        simulation_fail(&sim->base, "connected twice");
    }
    bool refused = completion->status == CRPC_E_KEY;
    if (completion->status != CRPC_OK && !refused && !sim_excused(side)) {
        simulation_fail(&sim->base, "side %u: not connected, status %d: %s", side->index,
                        completion->status, side->channel->link.error.message);
    }
    if (side->other_key ? completion->status == CRPC_OK : refused) {
        simulation_fail(&sim->base, "side %u: %s, and the keys are %s", side->index,
                        refused ? "refused" : "connected", side->other_key ? "two" : "one");
    }
    if (completion->status == CRPC_OK) {
        side->connected_seen = true;
    } else if (refused) {
        side->connect_failed = true; /* the peer has to be told the same */
        sim->counts[SIM_KEYS_REFUSED]++;
    } else {
        side->connect_failed = true;
        side->excused = true; /* and the peer with it */
    }
}

void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion)
{
    struct sim_side *side = side_of(sim, engine, completion->endpoint.bits);
    if (!side || completion->flags != CRPC_COMPLETION_OF_CHANNEL) {
        simulation_fail(&sim->base, "a completion for a channel that never was");
        return;
    }
    if (completion->endpoint_user_data != side->options.user_data) {
        simulation_fail(&sim->base, "a completion with another channel's user data");
    }
    simulation_tell(&sim->base, "side %u: completion %u, status %d, user data %llx, token %llu",
                    side->index, completion->kind, completion->status,
                    (unsigned long long)completion->user_data,
                    (unsigned long long)completion->token);
    switch (completion->kind) {
    case CRPC_COMPLETION_SENT:
        take_sent(sim, side, completion);
        break;
    case CRPC_COMPLETION_RECEIVED:
        take_received(sim, side, completion);
        break;
    case CRPC_COMPLETION_CANCEL:
        if ((completion->status == CRPC_OK) != (completion->token == 1)) {
            simulation_fail(&sim->base, "a cancel ended %llu sends, status %d",
                            (unsigned long long)completion->token, completion->status);
        }
        side->cancels_completed++;
        break;
    case CRPC_COMPLETION_CONNECTED:
        take_connected(sim, side, completion);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        take_end(sim, side, completion);
        break;
    case CRPC_COMPLETION_RAIL:
        take_rail(sim, side, completion);
        break;
    case CRPC_COMPLETION_ROOM:
        simulation_room(&sim->base, &side->room_due);
        break;
    default:
        simulation_fail(&sim->base, "completion of kind %u", completion->kind);
    }
}

/* ---- Invariants ------------------------------------------------------------------------------ */

/* Before each piece of a WRITE lands: in the application's memory it may only touch a buffer that
 * waits for its message, of the channel that it comes over. */
void sim_watch(void *argument, struct nic *target, uint32_t queue_pair_number, uint64_t address,
               uint32_t bytes)
{
    struct sim *sim = argument;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        uint64_t offset = address - (uint64_t)(uintptr_t)side->memory;
        if (offset >= SIM_BLOCKS * SIM_BLOCK_BYTES) {
            continue;
        }
        const struct sim_block *block = &side->blocks[offset / SIM_BLOCK_BYTES];
        const struct sim_message *message = &side->messages[block->message];
        if (!block->used || !block->receives || side->closed) {
            simulation_fail(&sim->base,
                            "side %u: a WRITE of %u bytes lands where nothing is received",
                            side->index, bytes);
            return;
        }
        const struct sim_buffer *buffer = &message->buffers[block->place];
        if (address < buffer->address || address + bytes > buffer->address + buffer->bytes) {
            simulation_fail(&sim->base, "side %u: a WRITE lands beside buffer %u of message %u",
                            side->index, block->place, block->message);
        }
        const struct nic_queue_pair *queue_pair =
            memory_fabric_find(sim->base.fabric, queue_pair_number);
        const struct channel *channel = side->channel;
        const struct channel_incoming *incoming =
            &channel->receive.incoming[block->message & channel->slot_mask];
        if (queue_pair->nic != target ||
            ((const struct channel_queue *)queue_pair->owner)->channel != channel) {
            simulation_fail(&sim->base, "side %u: another channel's peer writes to its buffer",
                            side->index);
        }
        if (!incoming->open || incoming->number != block->message) {
            simulation_fail(&sim->base, "side %u: a WRITE lands in message %u, which is complete",
                            side->index, block->message);
        }
    }
}

/* Every share that has not come may come on either rail. */
void sim_check_receives(struct sim *sim, const struct sim_engine *engine)
{
    uint64_t may_come = 0;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (side->engine != engine || !side->channel || !side->channel->link.opened) {
            continue;
        }
        for (uint32_t slot = 0; slot < side->slots; slot++) {
            const struct channel_incoming *incoming = &side->channel->receive.incoming[slot];
            if (incoming->open && (incoming->grants[0] | incoming->grants[1]) != GRANT_NONE) {
                may_come += 2 - (uint32_t)__builtin_popcount(incoming->seen);
            }
        }
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        /* Without an SRQ, the fabric itself notes a share that finds no receive. */
        if (engine->nics[rail]->receive_queue_max == 0 &&
            engine->nics[rail]->receives_posted < may_come) {
            simulation_fail(&sim->base,
                            "engine %u: %llu shares may come over rail %u, which has %u receives",
                            engine->index, (unsigned long long)may_come, rail,
                            engine->nics[rail]->receives_posted);
        }
    }
}

static bool queue_is_good(const struct channel_rail *rail, const struct nic_queue_pair *of_task)
{
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        if (rail->queues[i] && rail->queues[i]->queue_pair == of_task) {
            return !of_task->failed;
        }
    }
    return false;
}

static void check_rail(struct sim *sim, const struct channel_rail *rail)
{
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX && late_cm_waits(&rail->connect); i++) {
        if (rail->connecting[i] && !queue_is_good(rail, rail->connecting[i])) {
            simulation_fail(&sim->base, "a rail's queue pair that is being connected has failed or "
                                        "is gone");
        }
    }
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX && late_cm_waits(&rail->making.task); i++) {
        const struct nic_queue_pair *making = rail->making.queue_pairs[i];
        if (making && !queue_is_good(rail, making)) {
            simulation_fail(&sim->base, "a rail's queue pair that is being made is gone");
        }
    }
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX && late_cm_waits(&rail->ending.task); i++) {
        const struct channel_queue *ending = rail->ending.queues[i];
        if (ending && (rail->queues[i] || (ending->adopted && !ending->queue_pair->failed))) {
            simulation_fail(&sim->base, "a queue pair that is ending is in use, or another is");
        }
    }
}

void sim_check_late(struct sim *sim, const struct sim_engine *engine)
{
    const struct link_group *group = &engine->engine->links;
    if (sim->late.one_in == 0) {
        return;
    }
    const char *fault = late_cm_fault(group);
    if (fault) {
        simulation_fail(&sim->base, "%s", fault);
    }
    for (const struct list *at = group->all.next; at != &group->all; at = at->next) {
        const struct channel *channel = channel_of_link(list_entry(at, struct link, all_link));
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            check_rail(sim, &channel->rails[rail]);
        }
    }
}

void sim_check_fabric(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    const struct memory_fabric_counters *counters = memory_fabric_counters(sim->base.fabric);
    if (counters->receiver_not_ready) {
        simulation_fail(&sim->base, "an immediate found no receive");
    }
    if (counters->send_overflows || counters->receive_overflows) {
        simulation_fail(&sim->base, "a completion queue overflowed");
    }
    if (counters->local_errors || counters->remote_access_errors) {
        simulation_fail(&sim->base, "memory was accessed without right");
    }
}

/* What one side was told was sent, the other has, unless it was closed or lost. */
static void check_arrivals(struct sim *sim, const struct sim_side *side)
{
    for (uint32_t i = 0; i < side->send_count; i++) {
        const struct sim_send *send = &side->sends[i];
        if (!send->completed || (send->status != CRPC_OK && send->status != CRPC_E_TRUNCATED) ||
            sim_excused(side->peer) || side->peer->closed) {
            continue;
        }
        const struct sim_message *message = &side->peer->messages[send->message];
        for (uint32_t j = 0; j < message->count; j++) {
            if (message->buffers[j].send == i && message->buffers[j].status != send->status) {
                simulation_fail(&sim->base,
                                "side %u: send %u ended with %d, and its receive with %d",
                                side->index, i, send->status, message->buffers[j].status);
            }
        }
    }
}

/* At the end, nothing is owed to anybody. */
void sim_check_books(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    for (uint32_t i = 0; i < sim->side_count && !sim->base.failed; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (side->sends_completed != side->send_count) {
            simulation_fail(&sim->base, "side %u: %u of %u sends never completed", i,
                            side->send_count - side->sends_completed, side->send_count);
        }
        if (side->messages_completed != side->message_count) {
            simulation_fail(&sim->base, "side %u: %u of %u messages never completed", i,
                            side->message_count - side->messages_completed, side->message_count);
        }
        if (side->cancels_completed != side->cancels_submitted) {
            simulation_fail(&sim->base, "side %u: a cancel never completed", i);
        }
        if (!side->connected_seen && !side->connect_failed && !side->closed) {
            simulation_fail(&sim->base, "side %u was never reported as connected", i);
        }
        if (!side->closed && !side->disconnected_seen && !side->connect_failed) {
            simulation_fail(&sim->base, "side %u was never reported as disconnected", i);
        }
        check_arrivals(sim, side);
    }
}

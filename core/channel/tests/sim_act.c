/* sim_act.c: what an application might do next, chosen by the seed. */
#include "sim.h"

#include <poll.h>

/* ---- Ops ------------------------------------------------------------------------------------- */

static uint32_t choose_bytes(struct sim *sim)
{
    struct random_generator *random = &sim->base.random;
    switch (random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return SIM_BUFFER_BYTES_MAX;
    case 2:
        return random_below(random, 16);
    case 3:
        return 128 * random_below(random, 14);
    default:
        return random_below(random, SIM_BUFFER_BYTES_MAX + 1);
    }
}

/* The address of `bytes` somewhere in a block of the side's; false if none is free. */
static bool choose_place(struct sim_side *side, uint32_t bytes, uint32_t *block, uint64_t *address)
{
    *block = SIM_NONE;
    *address = random_next(&side->sim->base.random); /* any, without bytes */
    if (bytes == 0) {
        return true;
    }
    *block = sim_block_take(side);
    if (*block == SIM_NONE) {
        return false;
    }
    *address = (uint64_t)(uintptr_t)side->memory + (uint64_t)*block * SIM_BLOCK_BYTES +
               random_below(&side->sim->base.random, SIM_BLOCK_BYTES - bytes + 1);
    return true;
}

/* What a refusal must be like; `full`: it can be for want of room. */
static void check_refusal(struct sim *sim, struct sim_side *side, int32_t status, bool full)
{
    bool good = false;
    switch (status) {
    case CRPC_E_AGAIN:
        good = full;
        side->room_due = true;
        break;
    case CRPC_E_STATE:
        good = side->channel->link.state == CRPC_STATE_CONNECTING;
        break;
    case CRPC_E_CLOSING:
        good = side->leave_asked || side->peer->leave_asked;
        break;
    case CRPC_E_DISCONNECTED:
        good = side->channel->link.state == CRPC_STATE_DISCONNECTED;
        break;
    default:
        break;
    }
    if (!good) {
        simulation_fail(&sim->base, "side %u: an op was refused with status %d", side->index,
                        status);
    }
}

/* `tag` SIM_NONE: any. */
static bool receive(struct sim *sim, struct sim_side *side, uint32_t count, uint32_t tag)
{
    crpc_channel_op ops[CHANNEL_GROUP_MAX] = {0};
    struct registration *regions[CHANNEL_GROUP_MAX] = {0};
    uint32_t number = side->message_count;
    if (number == SIM_MESSAGES_MAX) {
        return false;
    }
    struct sim_message *message = &side->messages[number];
    *message = (struct sim_message){.count = count};
    bool room = true;
    for (uint32_t i = 0; i < count; i++) {
        struct sim_buffer *buffer = &message->buffers[i];
        *buffer = (struct sim_buffer){.bytes = choose_bytes(sim), .send = SIM_NONE};
        room &= choose_place(side, buffer->bytes, &buffer->block, &buffer->address);
        buffer->tag = tag != SIM_NONE ? tag : random_below(&sim->base.random, SIM_TAGS);
        ops[i] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                   .tag = buffer->tag,
                                   .channel = {side->handle},
                                   .user_data = (uint64_t)side->index << 32 | number << 3 | i,
                                   .address = buffer->address,
                                   .bytes = buffer->bytes};
        regions[i] = buffer->bytes > 0 ? &side->engine->region : NULL;
        if (buffer->block != SIM_NONE) {
            struct sim_block *block = &side->blocks[buffer->block];
            block->receives = true;
            block->message = number;
            block->place = i;
            simulation_fill((uint8_t *)(uintptr_t)buffer->address, buffer->bytes,
                            sim_blank_key(side, number, i));
        }
    }
    bool full = number >= side->slots && side->messages[number - side->slots].completed <
                                             side->messages[number - side->slots].count;
    side->engine->asleep = false;
    int32_t status = room ? channel_receive(side->channel, ops, regions, count) : CRPC_OK;
    if (room && status == CRPC_OK) {
        if (full) {
            simulation_fail(&sim->base, "side %u: a receive was taken for a slot that is in use",
                            side->index);
        }
        side->message_count++;
        simulation_tell(&sim->base, "side %u: receive %u of %u buffers, tag %u", side->index,
                        number, count, message->buffers[0].tag);
        return true;
    }
    for (uint32_t i = 0; i < count; i++) {
        sim_block_give_back(side, message->buffers[i].block);
    }
    if (status != CRPC_OK) {
        check_refusal(sim, side, status, full);
    }
    return false;
}

static bool send(struct sim *sim, struct sim_side *side, uint32_t tag, uint32_t bytes,
                 uint64_t timeout_ns)
{
    uint32_t number = side->send_count;
    uint64_t address;
    uint32_t block;
    if (number == SIM_SENDS_MAX || !choose_place(side, bytes, &block, &address)) {
        return false;
    }
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND,
                          .tag = tag,
                          .channel = {side->handle},
                          .user_data = (uint64_t)side->index << 32 | number,
                          .address = address,
                          .bytes = bytes,
                          .timeout_ns = timeout_ns};
    if (bytes > 0) {
        simulation_fill((uint8_t *)(uintptr_t)address, bytes, sim_send_key(side, number));
    }
    side->sends[number] = (struct sim_send){
        .tag = tag, .bytes = bytes, .block = block, .message = SIM_NONE, .timed = timeout_ns != 0};
    bool full = side->send_count - side->sends_completed >= side->sends_max;
    side->engine->asleep = false;
    int32_t status = channel_send(side->channel, &op, bytes > 0 ? &side->engine->region : NULL);
    if (status == CRPC_OK) {
        side->send_count++;
        simulation_tell(&sim->base, "side %u: send %u, tag %u, %u bytes", side->index, number, tag,
                        bytes);
        return true;
    }
    sim_block_give_back(side, block);
    check_refusal(sim, side, status, full);
    return false;
}

/* A send for one of the peer's next buffers, in any order, or for none. */
static bool send_some(struct sim *sim, struct sim_side *side)
{
    struct random_generator *random = &sim->base.random;
    uint32_t tag = random_below(random, SIM_TAGS);
    uint32_t bytes = choose_bytes(sim);
    const struct sim_side *peer = side->peer;
    uint32_t open = peer->message_count - side->sends_seen;
    if (peer->message_count > side->sends_seen && random_percent(random, 85)) {
        const struct sim_message *message =
            &peer->messages[side->sends_seen + random_below(random, (uint32_t)minimum(open, 2))];
        const struct sim_buffer *buffer = &message->buffers[random_below(random, message->count)];
        tag = buffer->tag;
        if (random_percent(random, 85)) {
            bytes = random_percent(random, 40) ? buffer->bytes
                                               : random_below(random, buffer->bytes + 1);
        }
    }
    uint64_t timeout_ns = random_percent(random, 8) ? random_between(random, 1, 2000000) : 0;
    return send(sim, side, tag, bytes, timeout_ns);
}

static void cancel_send(struct sim *sim, struct sim_side *side, uint32_t number)
{
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_CANCEL,
                          .channel = {side->handle},
                          .user_data = side->cancels_submitted,
                          .token = (uint64_t)side->index << 32 | number};
    side->engine->asleep = false;
    if (channel_cancel(side->channel, &op) == CRPC_OK) {
        side->sends[number].cancel_asked = true;
        side->cancels_submitted++;
        simulation_tell(&sim->base, "side %u: cancel of send %u", side->index, number);
    } else {
        side->room_due = true;
    }
}

static void cancel(struct sim *sim, struct sim_side *side)
{
    if (side->send_count > 0) {
        uint32_t recent = (uint32_t)minimum(side->send_count, 16);
        cancel_send(sim, side, side->send_count - 1 - random_below(&sim->base.random, recent));
    }
}

/* Several ops in one submit. */
static void submit(struct sim *sim, struct sim_side *side)
{
    struct random_generator *random = &sim->base.random;
    uint32_t count = random_percent(random, 60) ? 1 : random_between(random, 2, 10);
    bool taken = true;
    while (count-- > 0 && taken && !sim->base.failed) {
        uint32_t choice = random_below(random, 100);
        if (choice < 35) {
            uint32_t group = random_percent(random, 70) ? 1 : random_between(random, 2, 8);
            taken = receive(sim, side, group, SIM_NONE);
        } else if (choice < 96) {
            taken = send_some(sim, side);
        } else {
            cancel(sim, side);
        }
    }
    channel_submit_end(side->engine->engine);
    sim_look(sim, side->engine);
}

/* ---- Settling -------------------------------------------------------------------------------- */

/* One that waits and has not been posted. */
static bool waits(const struct sim_send *send)
{
    return !send->completed && send->message == SIM_NONE;
}

void sim_answer(struct sim *sim, struct sim_side *side)
{
    struct sim_side *peer = side->peer;
    if (!side->channel || !peer->channel || side->leave_asked || peer->leave_asked ||
        side->disconnected_seen || peer->disconnected_seen || !side->connected_seen ||
        !peer->connected_seen) {
        return;
    }
    if (side->sends_seen < peer->message_count) {
        /* What is missing for the oldest message. */
        const struct sim_message *message = &peer->messages[side->sends_seen];
        uint32_t wanted[SIM_TAGS] = {0};
        for (uint32_t i = 0; i < message->count; i++) {
            wanted[message->buffers[i].tag]++;
        }
        uint32_t spare = SIM_NONE;
        for (uint32_t i = 0; i < side->send_count; i++) {
            if (waits(&side->sends[i]) && wanted[side->sends[i].tag] > 0) {
                wanted[side->sends[i].tag]--;
            } else if (waits(&side->sends[i])) {
                spare = i;
            }
        }
        for (uint32_t tag = 0; tag < SIM_TAGS; tag++) {
            if (wanted[tag] == 0) {
                continue;
            }
            if (!send(sim, side, tag, choose_bytes(sim), 0) && spare != SIM_NONE) {
                cancel_send(sim, side, spare); /* too many wait for other receives */
            }
            break;
        }
    } else {
        for (uint32_t i = 0; i < side->send_count; i++) {
            if (waits(&side->sends[i])) {
                receive(sim, peer, 1, side->sends[i].tag);
                break;
            }
        }
    }
    channel_submit_end(side->engine->engine);
    channel_submit_end(peer->engine->engine);
    sim_look(sim, side->engine);
    sim_look(sim, peer->engine);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void sim_leave(struct sim_side *side, uint64_t timeout_ns)
{
    int32_t status = link_disconnect(&side->channel->link, timeout_ns);
    if (status == CRPC_OK) {
        side->leave_asked = true;
        side->engine->asleep = false;
        side->leave_timed |= timeout_ns != CRPC_FOREVER;
        simulation_tell(&side->sim->base, "side %u takes leave", side->index);
    } else if (status != CRPC_E_STATE ||
               (!side->leave_asked && side->channel->link.state != CRPC_STATE_DISCONNECTED &&
                side->channel->link.state != CRPC_STATE_CONNECTING)) {
        simulation_fail(&side->sim->base, "disconnect gave status %d", status);
    }
}

static void leave(struct sim *sim, struct sim_side *side)
{
    bool timed = random_percent(&sim->base.random, 30);
    sim_leave(side, timed ? random_between(&sim->base.random, 1, 5000000) : CRPC_FOREVER);
}

static void close_side(struct sim_side *side)
{
    simulation_tell(&side->sim->base, "side %u closes", side->index);
    link_close(&side->channel->link);
    side->channel = NULL;
    side->closed = true;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity)
{
    crpc_completion completions[64];
    const uint64_t made = memory_fabric_counters(sim->base.fabric)->made;
    uint32_t count = channel_poll(engine->engine, completions, capacity);
    if (sim->late.one_in > 0 && memory_fabric_counters(sim->base.fabric)->made != made) {
        simulation_fail(&sim->base, "a poll has made queue pairs or windows");
    }
    sim_look(sim, engine);
    if (count > capacity) {
        simulation_fail(&sim->base, "poll gave more than asked for");
        return;
    }
    for (uint32_t i = 0; i < count && !sim->base.failed; i++) {
        sim_take(sim, engine, &completions[i]);
    }
    sim_check_receives(sim, engine);
    sim_check_late(sim, engine);
}

/* As the system tells a program that waits for its devices. */
static bool has_event(const struct sim_engine *engine)
{
    struct pollfd fds[CHANNEL_RAILS_MAX];
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        fds[rail] = (struct pollfd){.fd = engine->nics[rail]->event_fd, .events = POLLIN};
    }
    return poll(fds, CHANNEL_RAILS_MAX, 0) > 0;
}

void sim_poll_or_sleep(struct sim *sim, struct sim_engine *engine)
{
    if (engine->asleep && !has_event(engine) &&
        channel_next_deadline_ns(engine->engine) > sim->base.clock_ns) {
        return;
    }
    engine->asleep = false;
    sim_poll(sim, engine, 64);
    if (!sim->sleepy) {
        return;
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        engine->nics[rail]->operations->disarm(engine->nics[rail]);
        engine->nics[rail]->operations->arm(engine->nics[rail]);
    }
    channel_progress(engine->engine);
    sim_look(sim, engine);
    engine->asleep = !channel_something_waits(engine->engine);
}

/* Keys are soon compared, so this happens more often than later. False if nothing was done. */
static bool act_on_proving(struct sim *sim, struct sim_side *side)
{
    uint32_t choice = random_below(&sim->base.random, 100);
    if (choice < 1) {
        close_side(side);
    } else if (choice < 4 && !sim->calm) {
        sim_kill_first(side);
    } else {
        return false;
    }
    return true;
}

static void act_on(struct sim *sim, struct sim_side *side)
{
    uint32_t choice = random_below(&sim->base.random, 1000);
    if (!side->channel) {
        return;
    }
    const struct link *link = &side->channel->link;
    if (link->state == CRPC_STATE_CONNECTING && link_proving(link) && !link_joining(link) &&
        act_on_proving(sim, side)) {
        return;
    }
    if (choice < 950) {
        submit(sim, side);
    } else if (choice < 997) {
        static const uint32_t shares[] = {0, 1024, 512};
        uint32_t share = random_below(&sim->base.random, 1025);
        if (random_percent(&sim->base.random, 50)) {
            share = shares[random_below(&sim->base.random, 3)];
        }
        channel_set_share(side->channel, share);
    } else if (random_percent(&sim->base.random, 15)) {
        leave(sim, side);
    } else if (random_percent(&sim->base.random, 5)) {
        close_side(side);
    }
}

void sim_act(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    struct random_generator *random = &sim->base.random;
    uint32_t choice = random_below(random, 100);
    sim_mend(sim, false);
    sim_late(sim, false);
    if (choice < 60) {
        memory_fabric_step(sim->base.fabric);
    } else if (choice < 82) {
        uint32_t capacity = random_percent(random, 60) ? 64 : random_between(random, 1, 8);
        uint32_t index = random_below(random, sim->engine_count);
        if (index != sim->lazy || random_percent(random, 10)) {
            sim_poll(sim, &sim->engines[index], capacity);
        }
    } else if (choice < 86) {
        sim->base.clock_ns += random_percent(random, 90) ? random_below(random, 20000)
                                                         : random_below(random, 1000000);
    } else if (choice < 88) {
        struct sim_engine *engine = &sim->engines[random_below(random, sim->engine_count)];
        channel_progress(engine->engine);
        sim_look(sim, engine);
        sim_check_late(sim, engine);
    } else if (choice < 99) {
        act_on(sim, &sim->sides[random_below(random, sim->side_count)]);
    } else if (!sim->calm && random_percent(random, 50)) {
        sim_trouble(sim);
    }
}

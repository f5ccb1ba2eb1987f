/* sim_tags.c: see sim.h. A message with a tag brings its number in its connection, as others do: so the oracle sees that
 * none overtakes another, whichever of them matches. And a buffer must not get a message while one of the same
 * connection that it matches has come before, and nobody has said that it was looked at. */
#include "sim.h"

#include <endian.h>
#include <string.h>

#define EAGER 3

uint64_t sim_message_number(const struct sim *sim, const struct sim_queue *one, uint64_t sent)
{
    return (uint64_t)index_of(sim, one) << 32 | sent;
}

uint64_t sim_choose_message(struct sim *sim, uint32_t number, uint32_t *bytes)
{
    struct sim_message *message = &sim->messages[number];
    const uint64_t tag = htobe64(below(sim, SIM_TAGS));
    if (!chance(sim, 50)) {
        *bytes = sizeof(message->number);
        return (uint64_t)(uintptr_t)&message->number;
    }
    memset(message->header, 0, sizeof(message->header));
    message->header[0] = EAGER;
    memcpy(message->header + 8, &tag, sizeof(tag));
    *bytes = sizeof(*message);
    return (uint64_t)(uintptr_t)message;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

/* One of the last of this queue, or none. */
static uint32_t any_added(struct sim *sim, const struct sim_queue *one)
{
    for (uint32_t tries = 0; tries < 30 && sim->op_count > 0; tries++) {
        const uint32_t back = below(sim, 200);
        const uint32_t number = sim->op_count - 1 - (back < sim->op_count ? back : 0);
        if (sim->ops[number].queue == one && sim->ops[number].opcode == NIC_TAG_ADD) {
            return number;
        }
    }
    return SIM_OPS_MAX;
}

bool sim_submit_tag(struct sim *sim, struct sim_queue *one, int32_t *reason)
{
    const uint32_t number = sim->op_count;
    const size_t slot = (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    const uint32_t what = below(sim, 100);
    struct sim_op *op = &sim->ops[number];
    struct nic_work work = {.opcode = what < 60   ? NIC_TAG_ADD
                                      : what < 75 ? NIC_TAG_REMOVE
                                                  : NIC_TAG_SYNC,
                            .user_data = number};
    *op = (struct sim_op){.queue = one, .opcode = work.opcode};
    if (work.opcode == NIC_TAG_ADD) {
        op->too_short = !sim->calm && chance(sim, 1) && chance(sim, 30);
        op->mask = chance(sim, 80) ? UINT64_MAX : 1;
        op->tag = below(sim, SIM_TAGS) & op->mask;
        work.address = (uint64_t)(uintptr_t)(one->engine->memory + slot);
        work.bytes = op->too_short ? 4 : 40;
        work.remote_address = op->tag;
        work.operand = op->mask;
    } else if (work.opcode == NIC_TAG_REMOVE) {
        op->named = any_added(sim, one);
        work.operand = op->named;
    }
    uint32_t taken = queue_tag(one->queue, &work, &one->engine->keys.local_key, 1, reason);
    simulation_tell(&sim->base, "queue %u: op %u, opcode %u, tag %u: %d", index_of(sim, one),
                    number, work.opcode, (unsigned)op->tag, *reason);
    if (taken == 0) {
        return false;
    }
    if (work.opcode == NIC_TAG_REMOVE && op->named < SIM_OPS_MAX) {
        sim->ops[op->named].wanted_back = true;
    } else if (work.opcode == NIC_TAG_SYNC) {
        one->looked_at = one->unexpected;
    }
    sim->op_count++;
    return true;
}

/* ---- Completions ----------------------------------------------------------------------------- */

bool sim_explains_tag(const struct sim *sim, const struct sim_op *op, const struct sim_queue *one,
                      const crpc_completion *completion)
{
    const bool matched = completion->flags & NIC_DONE_MATCHED;
    (void)sim;
    switch (completion->status) {
    case CRPC_OK:
        return op->opcode == NIC_TAG_ADD ? matched && !op->too_short && one != op->queue
                                         : !matched && one == op->queue;
    case CRPC_E_CANCELED:
        return op->opcode == NIC_TAG_ADD && op->wanted_back;
    case CRPC_E_NOT_FOUND:
        return op->opcode == NIC_TAG_REMOVE;
    case CRPC_E_FLUSHED: /* what came in was too long, or its queue has failed or was closed */
        return op->opcode == NIC_TAG_ADD;
    case CRPC_E_CLOSED:
        return op->queue->closed;
    case CRPC_E_NO_DEVICE:
        return one->engine->lost;
    default:
        return false;
    }
}

static void take_match(struct sim *sim, struct sim_queue *one, const struct sim_op *op,
                       uint32_t number, const crpc_completion *completion)
{
    const uint8_t *place = one->engine->memory + (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    uint64_t brought;
    memcpy(&brought, place, sizeof(brought));
    if ((completion->token & op->mask) != op->tag || completion->token >= SIM_TAGS ||
        completion->payload_bytes != sizeof(brought) || !one->peer ||
        brought != sim_message_number(sim, one->peer, one->received)) {
        simulation_fail(&sim->base, "queue %u: message %llx with tag %llu is in a buffer of %llu",
                        index_of(sim, one), (unsigned long long)brought,
                        (unsigned long long)completion->token, (unsigned long long)op->tag);
        return;
    }
    for (uint32_t tag = 0; tag < SIM_TAGS; tag++) {
        if ((tag & op->mask) == op->tag &&
            (int32_t)(one->last_unexpected[tag] - op->queue->looked_at) > 0) {
            simulation_fail(&sim->base, "queue %u: message %llx gets the buffer of one before it",
                            index_of(sim, one), (unsigned long long)brought);
        }
    }
    one->received++;
    sim->counts[SIM_MATCHES]++;
}

void sim_take_tag(struct sim *sim, struct sim_queue *one, uint32_t number,
                  const crpc_completion *completion)
{
    const struct sim_op *op = &sim->ops[number];
    if (op->opcode == NIC_TAG_ADD && op->status == CRPC_OK) {
        take_match(sim, one, op, number, completion);
    } else if (op->opcode == NIC_TAG_REMOVE && op->status == CRPC_OK) {
        const struct sim_op *named = op->named < SIM_OPS_MAX ? &sim->ops[op->named] : NULL;
        sim->counts[SIM_REMOVED]++;
        if (!named || !named->done || named->status != CRPC_E_CANCELED) {
            simulation_fail(&sim->base, "op %u has taken back %u, which has not completed", number,
                            op->named);
        }
    }
}

struct sim_queue *sim_connection_of(struct sim *sim, struct sim_queue *one, const uint8_t *place,
                                    const crpc_completion *completion)
{
    const bool tagged = completion->payload_bytes == sizeof(struct sim_message);
    struct sim_queue *connection = NULL;
    uint64_t brought;
    if (!one->is_tags) {
        if (completion->flags & NIC_DONE_SYNC && one->closed && !one->closed_joining) {
            simulation_fail(&sim->base, "queue %u: a message for its TM-SRQ comes after its close",
                            index_of(sim, one));
        }
        return one;
    }
    memcpy(&brought, place + (tagged ? NIC_TAG_HEADER_BYTES : 0), sizeof(brought));
    if (brought >> 32 < sim->queue_count) {
        connection = sim->queues[brought >> 32].peer;
    }
    if (!connection || !connection->closed || connection->srq != one) {
        simulation_fail(&sim->base, "queue %u: message %llx is of a connection that is not closed",
                        index_of(sim, one), (unsigned long long)brought);
        return one;
    }
    return connection;
}

const uint8_t *sim_check_unexpected(struct sim *sim, struct sim_queue *one, const uint8_t *place,
                                    const crpc_completion *completion)
{
    const bool tagged = completion->payload_bytes == sizeof(struct sim_message);
    const bool counted = completion->flags & NIC_DONE_SYNC;
    uint64_t tag = 0;
    if ((!tagged && completion->payload_bytes != sizeof(uint64_t)) ||
        counted != (tagged && one->srq && one->srq->is_tags)) {
        simulation_fail(&sim->base, "queue %u: a message of %u bytes, counted: %d",
                        index_of(sim, one), completion->payload_bytes, counted);
    }
    if (!tagged) {
        return place;
    }
    memcpy(&tag, place + 8, sizeof(tag));
    tag = be64toh(tag);
    if (place[0] != EAGER || tag >= SIM_TAGS) {
        simulation_fail(&sim->base, "queue %u: a header that nobody has sent", index_of(sim, one));
    } else if (counted && one->srq) {
        one->last_unexpected[tag] = ++one->srq->unexpected;
    }
    return place + NIC_TAG_HEADER_BYTES;
}

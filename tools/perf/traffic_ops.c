/* traffic_ops.c: what a traffic posts and takes, once it has its queues: see traffic.h. */
#include <stddef.h>

#include "traffic.h"

#define USER_DATA_READ 1u               /* of traffic_read; of the ops it is a time */
#define ANSWER_NS UINT64_C(10000000000) /* a datagram that has not been answered then is lost */

/* ---- Ops ------------------------------------------------------------------------------------- */

static void lose(struct traffic *traffic, int32_t status)
{
    if (!traffic->lost) {
        traffic->lost = true;
        traffic->lost_status = status;
    }
}

uint64_t traffic_submit(struct traffic *traffic, crpc_queue queue, const crpc_queue_op *ring,
                        uint32_t length, uint64_t next, uint64_t count)
{
    uint64_t accepted = 0;
    while (accepted < count && !traffic->lost) {
        uint32_t from = (uint32_t)((next + accepted) % length);
        uint64_t most = length - from < count - accepted ? length - from : count - accepted;
        int32_t reason;
        int32_t taken = crpc_queue_submit(traffic->context, queue, ring + from, (uint32_t)most,
                                          NULL, 0, &reason);
        accepted += taken > 0 ? (uint32_t)taken : 0;
        if (taken < 0 || reason == CRPC_E_AGAIN) {
            break;
        }
        if (reason != CRPC_OK) {
            lose(traffic, reason);
        }
    }
    return accepted;
}

void traffic_receive(struct traffic *traffic)
{
    const crpc_queue queue = traffic->receiver.bits ? traffic->receiver : traffic->queue;
    uint64_t due = traffic->receive_depth - (traffic->receives_posted - traffic->received);
    if (traffic->sync_due) {
        tags_synchronize(traffic);
    }
    if (due == 0 || !traffic->receives) {
        return;
    }
    if (traffic->plan.flags & TRAFFIC_TAGS) {
        tags_number(traffic, due);
    }
    traffic->receives_posted +=
        traffic_submit(traffic, queue, traffic->receive_ops, traffic->receive_depth,
                       traffic->receives_posted, due);
}

/* All but where an op goes, and when. */
static void prepare_ops(struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    bool sends = plan->opcode == CRPC_QUEUE_SEND;
    bool is_inline =
        plan->bytes <= plan->inline_bytes && (sends || plan->opcode == CRPC_QUEUE_WRITE);
    for (uint32_t i = 0; i < plan->depth; i++) {
        crpc_queue_op *op = &traffic->ops[i];
        *op = (crpc_queue_op){.opcode = plan->opcode, .target = traffic->targets[0]};
        if (!sends) {
            op->remote_key = traffic->peer_key;
            op->remote_address = traffic->peer_address + traffic_target(traffic);
        }
        if (traffic_is_atomic(plan)) { /* all at one place; a compare-and-swap of 0 by 0 */
            op->operand = plan->opcode == CRPC_QUEUE_FETCH_ADD ? 1 : 0;
            continue;
        }
        op->remote_address += sends ? 0 : i % traffic->places * traffic->room;
        op->flags = is_inline ? CRPC_QUEUE_INLINE : 0;
        op->region = is_inline ? (crpc_region){0} : traffic->region;
        op->address = (uint64_t)(uintptr_t)traffic_local_place(traffic, i);
        op->bytes = plan->bytes + traffic_sent_header(plan);
    }
    traffic->begun = true;
}

void traffic_begin(struct traffic *traffic, uint64_t peer_address, uint32_t peer_key)
{
    const struct traffic_plan *plan = &traffic->plan;
    traffic->peer_address = peer_address;
    traffic->peer_key = peer_key;
    traffic->connected = true;
    if (plan->flags & TRAFFIC_DC && traffic->sends) {
        const uint32_t bytes = plan->targets * (uint32_t)sizeof(struct traffic_dct);
        traffic->aiming = traffic_read(traffic, offsetof(struct traffic_head, dcts), bytes) != NULL;
        if (!traffic->aiming) {
            lose(traffic, CRPC_E_DISCONNECTED);
        }
        return;
    }
    if (plan->flags & TRAFFIC_DATAGRAMS && !datagrams_aim(traffic)) {
        lose(traffic, CRPC_E_UNREACHABLE);
    }
    prepare_ops(traffic);
}

static void post(struct traffic *traffic, uint64_t most, uint64_t now_ns)
{
    const uint32_t depth = traffic->plan.depth;
    const bool directed = traffic->plan.flags & TRAFFIC_DC;
    uint64_t room = depth - (traffic->posted - traffic->done);
    uint64_t count = most < room ? most : room;
    if (count == 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        crpc_queue_op *op = &traffic->ops[(traffic->posted + i) % depth];
        op->user_data = now_ns;
        if (directed) {
            dc_direct(traffic, op, traffic->posted + i);
        }
    }
    traffic->posted += traffic_submit(traffic, traffic_sender(traffic), traffic->ops, depth,
                                      traffic->posted, count);
}

/* What traffic_read has asked for is here. */
static void take_read(struct traffic *traffic)
{
    traffic->reading = false;
    if (!traffic->aiming) {
        return;
    }
    traffic->aiming = false;
    if (dc_aim(traffic, traffic->memory + traffic->check)) {
        prepare_ops(traffic);
    } else {
        lose(traffic, CRPC_E_UNREACHABLE);
    }
}

static void take_receive(struct traffic *traffic, const crpc_completion *completion)
{
    if (traffic->plan.flags & TRAFFIC_TAGS) {
        tags_take(traffic, completion);
        return;
    }
    traffic->received++;
    traffic->wrong +=
        completion->payload_bytes != traffic->plan.bytes + traffic_received_header(&traffic->plan);
}

void traffic_take(struct traffic *traffic, const crpc_completion *completion, uint64_t now_ns)
{
    if (completion->status != CRPC_OK) {
        lose(traffic, completion->status);
        traffic->reading = false;
        return;
    }
    switch (completion->method) {
    case CRPC_QUEUE_RECEIVE:
    case CRPC_QUEUE_TAG_ADD:
        take_receive(traffic, completion);
        return;
    case CRPC_QUEUE_TAG_SYNC:
        return;
    case CRPC_QUEUE_READ:
        if (completion->user_data == USER_DATA_READ) {
            take_read(traffic);
            return;
        }
        break;
    }
    if (traffic->latency && !traffic_is_ping_pong(&traffic->plan)) {
        histogram_record(traffic->latency, now_ns - completion->user_data);
    }
    traffic->done++;
}

const void *traffic_read(struct traffic *traffic, uint64_t offset, uint32_t bytes)
{
    uint8_t *here = traffic->memory + traffic->check;
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_READ,
                              .user_data = USER_DATA_READ,
                              .region = traffic->region,
                              .address = (uint64_t)(uintptr_t)here,
                              .bytes = bytes,
                              .remote_key = traffic->peer_key,
                              .remote_address = traffic->peer_address + offset};
    traffic->reading = traffic_submit(traffic, traffic->queue, &op, 1, 0, 1) == 1;
    return traffic->reading ? here : NULL;
}

void traffic_tell(struct traffic *traffic)
{
    /* The peer's device reads it at any time: each number as a whole. */
    struct traffic_report *report = (struct traffic_report *)(void *)traffic->memory;
    __atomic_store_n(&report->done, traffic->done, __ATOMIC_RELAXED);
    __atomic_store_n(&report->wrong, traffic->wrong, __ATOMIC_RELAXED);
    __atomic_store_n(&report->received, traffic->received, __ATOMIC_RELAXED);
    __atomic_store_n(&report->looks, ++traffic->looks, __ATOMIC_RELEASE);
}

/* ---- Ping-pong ------------------------------------------------------------------------------- */

/* The last byte of a message; another one than those before it in the same place. */
static uint8_t mark_of(uint64_t number)
{
    return (uint8_t)(1 + number % 251);
}

static bool has_arrived(const struct traffic *traffic)
{
    if (traffic->plan.opcode == CRPC_QUEUE_SEND) {
        return traffic->received > traffic->arrived;
    }
    const uint8_t *message = traffic_target_place(traffic, traffic->arrived);
    return __atomic_load_n(&message[traffic->plan.bytes - 1], __ATOMIC_ACQUIRE) ==
           mark_of(traffic->arrived);
}

/* The next message. There is room: the one before the last has completed when the peer has answered
 * the last. */
static void ping(struct traffic *traffic, uint64_t now_ns)
{
    if (traffic->posted - traffic->done < traffic->plan.depth) {
        uint64_t next = traffic->posted;
        uint8_t *message = traffic_local_place(traffic, next % traffic->plan.depth) +
                           traffic_sent_header(&traffic->plan);
        message[traffic->plan.bytes - 1] = mark_of(next);
        post(traffic, 1, now_ns);
    }
}

void traffic_post(struct traffic *traffic, uint64_t most, uint64_t now_ns)
{
    if (!traffic_is_ping_pong(&traffic->plan)) {
        post(traffic, most, now_ns);
    } else if (most > 0 && !traffic->server && traffic->posted == traffic->arrived) {
        ping(traffic, now_ns);
    }
}

bool traffic_look(struct traffic *traffic, uint64_t now_ns)
{
    if (!traffic->server && traffic->posted == traffic->arrived) {
        return false; /* nothing is under way */
    }
    if (traffic->server && traffic->posted < traffic->arrived) {
        ping(traffic, now_ns); /* there was no room before */
    }
    const uint64_t sent_ns = traffic->ops[traffic->arrived % traffic->plan.depth].user_data;
    if (!has_arrived(traffic)) {
        if (traffic->plan.flags & TRAFFIC_DATAGRAMS && !traffic->server &&
            now_ns > sent_ns + ANSWER_NS) {
            lose(traffic, CRPC_E_TIMEOUT);
        }
        return false;
    }
    if (traffic->latency && !traffic->server) {
        histogram_record(traffic->latency, (now_ns - sent_ns) / 2);
    }
    traffic->arrived++;
    if (traffic->server) {
        ping(traffic, now_ns);
    }
    return true;
}

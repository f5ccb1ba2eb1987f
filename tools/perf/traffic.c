/* traffic.c: see traffic.h. */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAD_BYTES 4096u
#define PLACES_BYTES (4u << 20) /* more memory than that is not used, whatever the depth */
#define RECEIVES_MIN 64u
#define USER_DATA_READ 1u /* of traffic_read */
#define ANSWER_NS UINT64_C(10000000000) /* a datagram that has not been answered then is lost */

/* ---- Plan ------------------------------------------------------------------------------------ */

const char *traffic_name(uint8_t opcode)
{
    switch (opcode) {
    case CRPC_QUEUE_SEND:
        return "send";
    case CRPC_QUEUE_WRITE:
        return "write";
    case CRPC_QUEUE_READ:
        return "read";
    case CRPC_QUEUE_FETCH_ADD:
        return "fetch-add";
    case CRPC_QUEUE_COMPARE_SWAP:
        return "compare-swap";
    default:
        return NULL;
    }
}

static bool is_atomic(const struct traffic_plan *plan)
{
    return plan->opcode == CRPC_QUEUE_FETCH_ADD || plan->opcode == CRPC_QUEUE_COMPARE_SWAP;
}

static bool is_ping_pong(const struct traffic_plan *plan)
{
    return plan->flags & TRAFFIC_PING_PONG;
}

/* What a message has before it in its receive. */
static uint32_t header_of(const struct traffic_plan *plan)
{
    return plan->flags & TRAFFIC_DATAGRAMS ? CRPC_QUEUE_HEADER_BYTES : 0;
}

const char *traffic_check(const struct traffic_plan *plan)
{
    if (plan->magic != TRAFFIC_MAGIC || !traffic_name(plan->opcode) || plan->zero != 0 ||
        plan->flags & ~(TRAFFIC_BOTH | TRAFFIC_PING_PONG | TRAFFIC_DATAGRAMS)) {
        return "it is no copyrpc-perf of this version";
    }
    if (plan->depth < 1 || plan->depth > CRPC_QUEUE_DEPTH_MAX) {
        return "the depth of a queue is 1 to 8192";
    }
    if (plan->bytes < 1 || plan->bytes > TRAFFIC_BYTES_MAX) {
        return "a message has 1 byte to 1 GiB";
    }
    if (is_atomic(plan) && plan->bytes != 8) {
        return "an atomic has 8 bytes";
    }
    if (plan->inline_bytes > CRPC_QUEUE_INLINE_BYTES_MAX) {
        return "at most 512 bytes are inline";
    }
    if (plan->flags & TRAFFIC_DATAGRAMS && plan->opcode != CRPC_QUEUE_SEND) {
        return "only messages can be datagrams";
    }
    if (is_ping_pong(plan) &&
        (plan->depth != TRAFFIC_PING_PONG_DEPTH || plan->flags & TRAFFIC_BOTH || is_atomic(plan) ||
         plan->opcode == CRPC_QUEUE_READ)) {
        return "ping-pong is of SEND and WRITE, one message at a time";
    }
    return NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint8_t *local_of(const struct traffic *traffic, uint64_t index)
{
    return traffic->memory + HEAD_BYTES + index % traffic->places * traffic->room;
}

const uint8_t *traffic_local(const struct traffic *traffic)
{
    return local_of(traffic, 0);
}

uint64_t traffic_target(const struct traffic *traffic)
{
    return HEAD_BYTES + traffic->places * traffic->room;
}

static uint8_t *target_of(const struct traffic *traffic, uint64_t index)
{
    return traffic->memory + traffic_target(traffic) + index % traffic->places * traffic->room;
}

static uint8_t content(uint64_t index, bool server)
{
    return (uint8_t)(index * 7 + (server ? 5 : 1));
}

bool traffic_content(const struct traffic *traffic, const uint8_t *bytes, bool server)
{
    for (uint64_t i = 0; i < traffic->plan.bytes; i++) {
        if (bytes[i] != content(i, server)) {
            return false;
        }
    }
    return true;
}

/* The server's target has what a READ finds. Other targets are zero. */
static void fill(struct traffic *traffic)
{
    bool reads = traffic->plan.opcode == CRPC_QUEUE_READ;
    for (uint32_t place = 0; place < traffic->places; place++) {
        uint8_t *sent = local_of(traffic, place), *found = target_of(traffic, place);
        for (uint64_t i = 0; i < traffic->plan.bytes; i++) {
            sent[i] = content(i, traffic->server);
            found[i] = reads ? sent[i] : 0;
        }
        if (reads) {
            memset(sent, 0, traffic->plan.bytes);
        }
    }
}

static bool allocate(struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    traffic->room = ((uint64_t)plan->bytes + header_of(plan) + 63) & ~UINT64_C(63);
    uint64_t places = PLACES_BYTES / traffic->room;
    places = places < plan->depth ? places : plan->depth;
    uint64_t least = is_ping_pong(plan) ? TRAFFIC_PING_PONG_DEPTH : 1;
    traffic->places = (uint32_t)(places > least ? places : least);
    traffic->memory_bytes = HEAD_BYTES + (2 * (uint64_t)traffic->places + 1) * traffic->room;
    void *memory = mmap(NULL, traffic->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    traffic->memory = memory == MAP_FAILED ? NULL : memory;
    traffic->ops = calloc(plan->depth, sizeof(*traffic->ops));
    traffic->started_ns = calloc(plan->depth, sizeof(*traffic->started_ns));
    traffic->receive_ops = calloc(traffic->receive_depth + 1, sizeof(*traffic->receive_ops));
    return traffic->memory && traffic->ops && traffic->started_ns && traffic->receive_ops;
}

/* The sender is as much ahead as its depth; more receives spare it to ask again. */
static uint32_t receives_for(const struct traffic_plan *plan)
{
    uint32_t wanted = 4 * plan->depth;
    wanted = wanted < RECEIVES_MIN ? RECEIVES_MIN : wanted;
    return wanted < CRPC_QUEUE_DEPTH_MAX ? wanted : CRPC_QUEUE_DEPTH_MAX;
}

bool traffic_open(struct traffic *traffic, crpc_context *context, const struct traffic_plan *plan,
                  bool server, uint64_t user_data)
{
    bool both = plan->flags & (TRAFFIC_BOTH | TRAFFIC_PING_PONG);
    crpc_error error = {.struct_size = sizeof(error)};
    *traffic = (struct traffic){.context = context,
                                .plan = *plan,
                                .server = server,
                                .sends = !server || both,
                                .receives = plan->opcode == CRPC_QUEUE_SEND && (server || both),
                                .place = {.struct_size = sizeof(traffic->place)}};
    traffic->receive_depth = traffic->receives ? receives_for(plan) : 0;
    if (!allocate(traffic)) {
        perf_failed("no memory", "for messages of this size");
        traffic_close(traffic);
        return false;
    }
    fill(traffic);
    if (crpc_region_register(context, traffic->memory, traffic->memory_bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                 CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                             &traffic->region, &error) < 0) {
        perf_failed("cannot register memory", error.message);
        traffic_close(traffic);
        return false;
    }
    crpc_region_get_info(context, traffic->region, &traffic->place);
    traffic->plan.address = traffic->place.address;
    traffic->plan.key = traffic->place.remote_key;
    if (plan->flags & TRAFFIC_DATAGRAMS && !datagrams_open(traffic, user_data)) {
        traffic_close(traffic);
        return false;
    }
    for (uint32_t i = 0; i < traffic->receive_depth; i++) {
        traffic->receive_ops[i] =
            (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                            .region = traffic->region,
                            .address = (uint64_t)(uintptr_t)target_of(traffic, i),
                            .bytes = plan->bytes + header_of(plan)};
    }
    if (traffic->datagrams.bits) {
        traffic_receive(traffic); /* a datagram that comes before is lost */
    }
    return true;
}

void traffic_close(struct traffic *traffic)
{
    datagrams_close(traffic);
    if (traffic->queue.bits) {
        crpc_queue_close(traffic->context, traffic->queue);
    }
    if (traffic->region.bits) {
        crpc_region_deregister(traffic->context, traffic->region);
    }
    if (traffic->memory) {
        munmap(traffic->memory, traffic->memory_bytes);
    }
    free(traffic->ops);
    free(traffic->receive_ops);
    free(traffic->started_ns);
    *traffic = (struct traffic){0};
}

crpc_queue_options traffic_options(const struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    return (crpc_queue_options){.struct_size = sizeof(crpc_queue_options),
                                .sends = plan->depth,
                                .inline_bytes = plan->inline_bytes,
                                .receives =
                                    plan->flags & TRAFFIC_DATAGRAMS ? 0 : traffic->receive_depth};
}

crpc_queue traffic_queue(const struct traffic *traffic)
{
    return traffic->datagrams.bits ? traffic->datagrams : traffic->queue;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void lose(struct traffic *traffic, int32_t status)
{
    if (!traffic->lost) {
        traffic->lost = true;
        traffic->lost_status = status;
    }
}

/* Submits `count` ops of a ring, from the next on. Returns how many were accepted. */
static uint64_t submit(struct traffic *traffic, crpc_queue queue, const crpc_queue_op *ring,
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
    uint64_t due = traffic->receive_depth - (traffic->receives_posted - traffic->received);
    if (due > 0 && traffic->receives) {
        traffic->receives_posted += submit(traffic, traffic_queue(traffic), traffic->receive_ops,
                                           traffic->receive_depth, traffic->receives_posted, due);
    }
}

void traffic_begin(struct traffic *traffic, uint64_t peer_address, uint32_t peer_key)
{
    const struct traffic_plan *plan = &traffic->plan;
    bool sends = plan->opcode == CRPC_QUEUE_SEND;
    bool is_inline =
        plan->bytes <= plan->inline_bytes && (sends || plan->opcode == CRPC_QUEUE_WRITE);
    traffic->peer_address = peer_address;
    traffic->peer_key = peer_key;
    traffic->begun = true;
    if (plan->flags & TRAFFIC_DATAGRAMS && !datagrams_aim(traffic, &traffic->peer_datagrams)) {
        lose(traffic, CRPC_E_UNREACHABLE);
    }
    for (uint32_t i = 0; i < plan->depth; i++) {
        crpc_queue_op *op = &traffic->ops[i];
        *op = (crpc_queue_op){.opcode = plan->opcode, .target = traffic->target};
        if (!sends) {
            op->remote_key = peer_key;
            op->remote_address = peer_address + traffic_target(traffic);
        }
        if (is_atomic(plan)) { /* all at one place; a compare-and-swap of 0 by 0 */
            op->operand = plan->opcode == CRPC_QUEUE_FETCH_ADD ? 1 : 0;
            continue;
        }
        op->remote_address += sends ? 0 : i % traffic->places * traffic->room;
        op->flags = is_inline ? CRPC_QUEUE_INLINE : 0;
        op->region = is_inline ? (crpc_region){0} : traffic->region;
        op->address = (uint64_t)(uintptr_t)local_of(traffic, i);
        op->bytes = plan->bytes;
    }
}

static void post(struct traffic *traffic, uint64_t most, uint64_t now_ns)
{
    const uint32_t depth = traffic->plan.depth;
    uint64_t room = depth - (traffic->posted - traffic->done);
    uint64_t count = most < room ? most : room;
    if (count == 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        traffic->started_ns[(traffic->posted + i) % depth] = now_ns;
    }
    traffic->posted +=
        submit(traffic, traffic_queue(traffic), traffic->ops, depth, traffic->posted, count);
}

void traffic_take(struct traffic *traffic, const crpc_completion *completion, uint64_t now_ns)
{
    if (completion->status != CRPC_OK) {
        lose(traffic, completion->status);
        traffic->reading = false;
        return;
    }
    if (completion->user_data == USER_DATA_READ) {
        traffic->reading = false;
        return;
    }
    if (completion->method == CRPC_QUEUE_RECEIVE) {
        traffic->received++;
        traffic->wrong +=
            completion->payload_bytes != traffic->plan.bytes + header_of(&traffic->plan);
        return;
    }
    if (traffic->latency && !is_ping_pong(&traffic->plan)) {
        histogram_record(traffic->latency,
                         now_ns - traffic->started_ns[traffic->done % traffic->plan.depth]);
    }
    traffic->done++; /* they complete in order */
}

const void *traffic_read(struct traffic *traffic, uint64_t offset, uint32_t bytes)
{
    uint8_t *here = traffic->memory + traffic->memory_bytes - traffic->room;
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_READ,
                              .user_data = USER_DATA_READ,
                              .region = traffic->region,
                              .address = (uint64_t)(uintptr_t)here,
                              .bytes = bytes,
                              .remote_key = traffic->peer_key,
                              .remote_address = traffic->peer_address + offset};
    traffic->reading = submit(traffic, traffic->queue, &op, 1, 0, 1) == 1;
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
    const uint8_t *message = target_of(traffic, traffic->arrived);
    return __atomic_load_n(&message[traffic->plan.bytes - 1], __ATOMIC_ACQUIRE) ==
           mark_of(traffic->arrived);
}

/* The next message. There is room: the one before the last has completed when the peer has answered
 * the last. */
static void ping(struct traffic *traffic, uint64_t now_ns)
{
    if (traffic->posted - traffic->done < traffic->plan.depth) {
        uint64_t next = traffic->posted;
        local_of(traffic, next % traffic->plan.depth)[traffic->plan.bytes - 1] = mark_of(next);
        post(traffic, 1, now_ns);
    }
}

void traffic_post(struct traffic *traffic, uint64_t most, uint64_t now_ns)
{
    if (!is_ping_pong(&traffic->plan)) {
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
    const uint64_t sent_ns = traffic->started_ns[traffic->arrived % traffic->plan.depth];
    if (!has_arrived(traffic)) {
        if (traffic->datagrams.bits && !traffic->server && now_ns > sent_ns + ANSWER_NS) {
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

/* traffic.c: see traffic.h: plan, memory and queues; traffic_ops.c has the rest. */
#include "traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAD_BYTES 4096u
#define PLACES_BYTES (4u << 20) /* more memory than that is not used, whatever the depth */
#define RECEIVES_MIN 64u
#define CONNECTION_SENDS 16u /* of one that carries reports alone */

_Static_assert(sizeof(struct traffic_head) <= HEAD_BYTES, "the places are behind it");

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

bool traffic_is_atomic(const struct traffic_plan *plan)
{
    return plan->opcode == CRPC_QUEUE_FETCH_ADD || plan->opcode == CRPC_QUEUE_COMPARE_SWAP;
}

bool traffic_is_ping_pong(const struct traffic_plan *plan)
{
    return plan->flags & TRAFFIC_PING_PONG;
}

uint32_t traffic_sent_header(const struct traffic_plan *plan)
{
    return plan->flags & TRAFFIC_TAGS ? CRPC_TAG_HEADER_BYTES : 0;
}

uint32_t traffic_received_header(const struct traffic_plan *plan)
{
    return plan->flags & TRAFFIC_DATAGRAMS    ? CRPC_QUEUE_HEADER_BYTES
           : plan->flags & TRAFFIC_UNEXPECTED ? CRPC_TAG_HEADER_BYTES
                                              : 0;
}

/* At most one of them, and what goes with it. */
static const char *check_kind(const struct traffic_plan *plan)
{
    const uint32_t kind = plan->flags & (TRAFFIC_DATAGRAMS | TRAFFIC_DC | TRAFFIC_TAGS);
    if (kind & (kind - 1) || (plan->flags & TRAFFIC_UNEXPECTED && kind != TRAFFIC_TAGS)) {
        return "datagrams, DC and tags are three things";
    }
    if (kind & (TRAFFIC_DATAGRAMS | TRAFFIC_TAGS) && plan->opcode != CRPC_QUEUE_SEND) {
        return "only messages can be datagrams or have tags";
    }
    if (kind == TRAFFIC_DC ? plan->targets < 1 || plan->targets > PERF_TARGETS_MAX
                           : plan->targets + plan->streams > 0) {
        return "a DCI has 1 to 64 targets here, and other queues none";
    }
    return NULL;
}

const char *traffic_check(const struct traffic_plan *plan)
{
    if (plan->magic != TRAFFIC_MAGIC || !traffic_name(plan->opcode) || plan->zero != 0 ||
        plan->flags & ~(TRAFFIC_BOTH | TRAFFIC_PING_PONG | TRAFFIC_DATAGRAMS | TRAFFIC_DC |
                        TRAFFIC_TAGS | TRAFFIC_UNEXPECTED)) {
        return "it is no copyrpc-perf of this version";
    }
    if (plan->depth < 1 || plan->depth > CRPC_QUEUE_DEPTH_MAX) {
        return "the depth of a queue is 1 to 8192";
    }
    if (plan->bytes < 1 || plan->bytes > TRAFFIC_BYTES_MAX) {
        return "a message has 1 byte to 1 GiB";
    }
    if (traffic_is_atomic(plan) && plan->bytes != 8) {
        return "an atomic has 8 bytes";
    }
    if (plan->inline_bytes + traffic_sent_header(plan) > CRPC_QUEUE_INLINE_BYTES_MAX) {
        return "at most 512 bytes are inline";
    }
    if (traffic_is_ping_pong(plan) &&
        (plan->depth != TRAFFIC_PING_PONG_DEPTH || plan->flags & TRAFFIC_BOTH ||
         traffic_is_atomic(plan) || plan->opcode == CRPC_QUEUE_READ)) {
        return "ping-pong is of SEND and WRITE, one message at a time";
    }
    return check_kind(plan);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static char why_failed[320];

bool traffic_failed(const char *what, const char *why)
{
    perf_failed(what, why);
    snprintf(why_failed, sizeof(why_failed), "%s: %s", what, why);
    return false;
}

const char *traffic_why(void)
{
    return why_failed;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

uint8_t *traffic_local_place(const struct traffic *traffic, uint64_t index)
{
    return traffic->memory + HEAD_BYTES + index % traffic->places * traffic->room;
}

const uint8_t *traffic_local(const struct traffic *traffic)
{
    return traffic_local_place(traffic, 0);
}

uint64_t traffic_target(const struct traffic *traffic)
{
    return HEAD_BYTES + traffic->places * traffic->room;
}

uint8_t *traffic_target_place(const struct traffic *traffic, uint64_t index)
{
    return traffic->memory + traffic_target(traffic) + index % traffic->places * traffic->room;
}

uint8_t *traffic_place(const struct traffic *traffic, uint64_t receive)
{
    return traffic_target_place(traffic, receive % traffic->receive_depth);
}

static uint8_t content(uint64_t index, bool server)
{
    return (uint8_t)(index * 7 + (server ? 5 : 1));
}

uint8_t traffic_first_byte(bool server)
{
    return content(0, server);
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
        uint8_t *sent = traffic_local_place(traffic, place),
                *found = traffic_target_place(traffic, place);
        if (traffic->plan.flags & TRAFFIC_TAGS) {
            crpc_tag_header_write(sent, tags_of(traffic, place), 0);
            sent += CRPC_TAG_HEADER_BYTES;
        }
        for (uint64_t i = 0; i < traffic->plan.bytes; i++) {
            sent[i] = content(i, traffic->server);
            found[i] = reads ? sent[i] : 0;
        }
        if (reads) {
            memset(sent, 0, traffic->plan.bytes);
        }
    }
}

/* The sender is as much ahead as its depth; more receives spare it to ask again. */
static uint32_t receives_for(const struct traffic_plan *plan)
{
    uint32_t wanted = 4u * plan->depth;
    wanted = wanted < RECEIVES_MIN ? RECEIVES_MIN : wanted;
    return wanted < CRPC_QUEUE_DEPTH_MAX ? wanted : CRPC_QUEUE_DEPTH_MAX;
}

/* Both sides count the same. Each message of ping-pong is marked; and of an unexpected one the tag is read
 * later. */
static uint32_t places_for(const struct traffic_plan *plan, uint64_t room)
{
    const uint32_t most =
        plan->flags & TRAFFIC_UNEXPECTED ? receives_for(plan) : (uint32_t)plan->depth;
    const uint32_t least =
        plan->flags & (TRAFFIC_PING_PONG | TRAFFIC_UNEXPECTED) ? TRAFFIC_PING_PONG_DEPTH : 1;
    const uint64_t places = PLACES_BYTES / room < most ? PLACES_BYTES / room : most;
    return (uint32_t)(places > least ? places : least);
}

static bool allocate(struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    const uint32_t sent = traffic_sent_header(plan), received = traffic_received_header(plan);
    traffic->room =
        ((uint64_t)plan->bytes + (sent > received ? sent : received) + 63) & ~UINT64_C(63);
    traffic->places = places_for(plan, traffic->room);
    traffic->check = HEAD_BYTES + 2 * (uint64_t)traffic->places * traffic->room;
    traffic->memory_bytes =
        traffic->check + (traffic->room > HEAD_BYTES ? traffic->room : HEAD_BYTES);
    void *memory = mmap(NULL, traffic->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    traffic->memory = memory == MAP_FAILED ? NULL : memory;
    traffic->ops = calloc(plan->depth, sizeof(*traffic->ops));
    traffic->receive_ops = calloc(traffic->receive_depth + 1, sizeof(*traffic->receive_ops));
    return traffic->memory && traffic->ops && traffic->receive_ops;
}

static bool open_queues(struct traffic *traffic, uint64_t user_data)
{
    const uint8_t flags = traffic->plan.flags;
    return flags & TRAFFIC_DATAGRAMS ? datagrams_open(traffic, user_data)
           : flags & TRAFFIC_DC      ? dc_open(traffic, user_data)
           : flags & TRAFFIC_TAGS    ? tags_open(traffic, user_data)
                                     : true;
}

/* All but what the place is of each time. */
static void prepare_receives(struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    const bool tagged = (plan->flags & (TRAFFIC_TAGS | TRAFFIC_UNEXPECTED)) == TRAFFIC_TAGS;
    for (uint32_t i = 0; i < traffic->receive_depth; i++) {
        traffic->receive_ops[i] =
            (crpc_queue_op){.opcode = tagged ? CRPC_QUEUE_TAG_ADD : CRPC_QUEUE_RECEIVE,
                            .region = traffic->region,
                            .address = (uint64_t)(uintptr_t)traffic_target_place(traffic, i),
                            .bytes = plan->bytes + traffic_received_header(plan)};
    }
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
        traffic_close(traffic);
        return traffic_failed("no memory", "for messages of this size");
    }
    fill(traffic);
    if (crpc_region_register(context, traffic->memory, traffic->memory_bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                 CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                             &traffic->region, &error) < 0) {
        traffic_close(traffic);
        return traffic_failed("cannot register memory", error.message);
    }
    crpc_region_get_info(context, traffic->region, &traffic->place);
    traffic->plan.address = traffic->place.address;
    traffic->plan.key = traffic->place.remote_key;
    if (!open_queues(traffic, user_data)) {
        traffic_close(traffic);
        return false;
    }
    prepare_receives(traffic);
    if (traffic->receiver.bits) {
        traffic_receive(traffic); /* a datagram that comes before is lost */
    }
    return true;
}

/* SRQs last: they outlive the queues that name them. */
static void close_queues(struct traffic *traffic)
{
    for (uint32_t i = 0; i < PERF_TARGETS_MAX; i++) {
        if (traffic->targets[i].bits) {
            crpc_target_close(traffic->context, traffic->targets[i]);
        }
    }
    if (traffic->sender.bits) {
        crpc_queue_close(traffic->context, traffic->sender);
    }
    dc_close(traffic);
    if (traffic->queue.bits) {
        crpc_queue_close(traffic->context, traffic->queue);
    }
    if (traffic->receiver.bits && traffic->receiver.bits != traffic->sender.bits) {
        crpc_queue_close(traffic->context, traffic->receiver);
    }
}

void traffic_close(struct traffic *traffic)
{
    close_queues(traffic);
    if (traffic->region.bits) {
        crpc_region_deregister(traffic->context, traffic->region);
    }
    if (traffic->memory) {
        munmap(traffic->memory, traffic->memory_bytes);
    }
    free(traffic->ops);
    free(traffic->receive_ops);
    free(traffic->unexpected);
    *traffic = (struct traffic){0};
}

bool traffic_owns(const struct traffic *traffic, uint64_t bits)
{
    if (bits == traffic->queue.bits || bits == traffic->sender.bits ||
        bits == traffic->receiver.bits) {
        return bits != 0;
    }
    for (uint32_t i = 0; i < traffic->plan.targets; i++) {
        if (bits == traffic->dcts[i].bits) {
            return true;
        }
    }
    return false;
}

crpc_queue_options traffic_sender_options(const struct traffic *traffic, uint32_t kind,
                                          uint64_t user_data)
{
    return (crpc_queue_options){.struct_size = sizeof(crpc_queue_options),
                                .user_data = user_data,
                                .kind = kind,
                                .sends = traffic->plan.depth,
                                .inline_bytes = traffic->plan.inline_bytes};
}

crpc_queue_options traffic_options(const struct traffic *traffic)
{
    const struct traffic_plan *plan = &traffic->plan;
    crpc_queue_options options = traffic_sender_options(traffic, CRPC_QUEUE_KIND_RC, 0);
    if (plan->flags & (TRAFFIC_DATAGRAMS | TRAFFIC_DC)) {
        options.sends = CONNECTION_SENDS;
        options.inline_bytes = 0;
    } else if (plan->flags & TRAFFIC_TAGS) {
        options.inline_bytes =
            plan->inline_bytes > 0 ? plan->inline_bytes + traffic_sent_header(plan) : 0;
        options.receive_queue = traffic->receiver;
    } else {
        options.receives = traffic->receive_depth;
    }
    return options;
}

crpc_queue traffic_sender(const struct traffic *traffic)
{
    return traffic->sender.bits ? traffic->sender : traffic->queue;
}

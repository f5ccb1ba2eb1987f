/* flow.c: see flow.h. */
#include "flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REPORT_MAGIC UINT64_C(0x3130506f6c466363)
#define PATTERN_SPAN 65536u
#define GROUP_MAX CRPC_CHANNEL_GROUP_MAX

/* ---- Plan ------------------------------------------------------------------------------------ */

static uint64_t room_of(const struct flow_plan *plan)
{
    uint64_t bytes =
        plan->bytes_max > sizeof(struct flow_report) ? plan->bytes_max : sizeof(struct flow_report);
    return (bytes + 4095) & ~UINT64_C(4095);
}

static uint32_t slots_of(const struct flow_plan *plan, bool busy)
{
    return busy && plan->depth > 2 ? plan->depth : 2; /* 2: the end and the report */
}

static uint64_t memory_of(const struct flow_plan *plan, bool sends, bool receives)
{
    uint64_t slots = slots_of(plan, sends) + slots_of(plan, receives);
    return slots * plan->group * room_of(plan);
}

const char *flow_check(const struct flow_plan *plan)
{
    if (plan->version != FLOW_VERSION || plan->flags & ~(FLOW_BOTH | FLOW_VERIFY) ||
        plan->zero != 0) {
        return "the other side is another version of copyrpc-perf";
    }
    if (plan->group < 1 || plan->group > GROUP_MAX) {
        return "a message has 1 to 8 buffers";
    }
    if (plan->depth < 1 || plan->depth > FLOW_DEPTH_MAX) {
        return "the depth of a channel is 1 to 256 messages";
    }
    if (plan->bytes_min < 1 || plan->bytes_min > plan->bytes_max || plan->bytes_max > 1u << 30) {
        return "a buffer has 1 byte to 1 GiB";
    }
    if (memory_of(plan, true, true) > FLOW_MEMORY_MAX) {
        return "depth times group times size is more than 4 GiB of memory";
    }
    return NULL;
}

struct flow_plan flow_plan_of(const struct perf_options *options)
{
    return (struct flow_plan){
        .version = FLOW_VERSION,
        .flags = (uint8_t)((options->both ? FLOW_BOTH : 0) | (options->verify ? FLOW_VERIFY : 0)),
        .group = (uint8_t)options->group,
        .depth = options->depth,
        .bytes_min = options->bytes_min,
        .bytes_max = options->request_bytes,
    };
}

crpc_channel_options flow_channel_options(const struct perf_options *options,
                                          const struct flow_plan *plan)
{
    crpc_channel_options wanted = {
        .struct_size = sizeof(wanted),
        .slots = slots_of(plan, true),
        .sends_max = slots_of(plan, true) * plan->group,
        .connect_timeout_ns = options->timeout_ns,
        .queue_pairs = options->queue_pairs,
        .split = options->split,
        .rail0_share = options->rail0_share,
        .stripe_bytes_min = options->stripe_bytes_min,
        .rails = options->rail_mask,
        .token_bytes = sizeof(*plan),
        .key_bytes = options->key_bytes,
    };
    memcpy(wanted.token, plan, sizeof(*plan));
    memcpy(wanted.key, options->key, sizeof(wanted.key));
    if (options->hint) {
        snprintf(wanted.hint, sizeof(wanted.hint), "%s", options->hint);
    }
    return wanted;
}

void flow_tell_rail(const crpc_completion *completion)
{
    fprintf(stderr, "%srail %u %s\n", isatty(STDERR_FILENO) ? "\n" : "",
            (unsigned)completion->token,
            completion->status == CRPC_OK ? "is used again" : "was lost; the other goes on alone");
}

/* Bijective, from splitmix64: neighbours have nothing in common. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Both sides know how long each buffer is. */
static uint32_t size_of(const struct flow_plan *plan, uint64_t number, uint32_t index)
{
    uint32_t span = plan->bytes_max - plan->bytes_min + 1;
    return plan->bytes_min +
           (span > 1 ? (uint32_t)(mix(number * GROUP_MAX + index + 1) % span) : 0);
}

/* And what is in it: a window of the pattern that moves from buffer to buffer. */
static const uint8_t *content_of(const struct flow *flow, bool of_server, uint64_t number,
                                 uint32_t index)
{
    uint64_t place = (number * GROUP_MAX + index) * 8 + (of_server ? PATTERN_SPAN / 2 : 0);
    return flow->pattern + place % PATTERN_SPAN;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint8_t *buffer_of(const struct flow *flow, const struct flow_side *side, uint32_t slot,
                          uint32_t index)
{
    return side->memory + ((uint64_t)slot * flow->plan.group + index) * flow->room;
}

static bool open_side(struct flow_side *side, const struct flow_plan *plan, bool busy)
{
    side->slots = slots_of(plan, busy);
    uint32_t buffers = side->slots * plan->group;
    side->left = calloc(side->slots, sizeof(*side->left));
    side->sizes = calloc(buffers, sizeof(*side->sizes));
    side->numbers = calloc(side->slots, sizeof(*side->numbers));
    side->free_slots = calloc(side->slots, sizeof(*side->free_slots));
    side->queue = calloc(buffers, sizeof(*side->queue));
    side->queue_capacity = buffers;
    if (!side->left || !side->sizes || !side->numbers || !side->free_slots || !side->queue) {
        return false;
    }
    while (side->free_count < side->slots) {
        side->free_slots[side->free_count] = side->slots - 1 - side->free_count;
        side->free_count++;
    }
    return true;
}

static void close_side(struct flow_side *side)
{
    free(side->left);
    free(side->sizes);
    free(side->numbers);
    free(side->free_slots);
    free(side->queue);
}

static bool make_pattern(struct flow *flow)
{
    uint64_t words = (flow->room + PATTERN_SPAN) / 8 + 1;
    uint64_t *pattern = malloc(words * 8);
    flow->pattern = (uint8_t *)pattern;
    for (uint64_t i = 0; pattern && i < words; i++) {
        pattern[i] = mix(i + 1);
    }
    return pattern != NULL;
}

bool flow_open(struct flow *flow, crpc_context *context, const struct flow_plan *plan, bool server)
{
    bool both = plan->flags & FLOW_BOTH;
    bool sends = both || !server, receives = both || server;
    crpc_error error = {.struct_size = sizeof(error)};
    *flow = (struct flow){.context = context, .plan = *plan, .server = server};
    flow->room = room_of(plan);
    flow->stage = sends ? FLOW_STREAM : FLOW_IDLE;
    uint64_t bytes = memory_of(plan, sends, receives);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    flow->memory = memory == MAP_FAILED ? NULL : memory;
    bool made = flow->memory && open_side(&flow->sending, plan, sends) &&
                open_side(&flow->receiving, plan, receives);
    if (made) {
        flow->started_ns = calloc(flow->sending.slots, sizeof(*flow->started_ns));
    }
    if (!made || !flow->started_ns || (plan->flags & FLOW_VERIFY && !make_pattern(flow))) {
        perf_failed("no memory", "for so many messages");
        flow_close(flow);
        return false;
    }
    flow->sending.memory = flow->memory;
    flow->receiving.memory = buffer_of(flow, &flow->sending, flow->sending.slots, 0);
    if (crpc_region_register(context, flow->memory, bytes,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &flow->region,
                             &error) < 0) {
        perf_failed("cannot register memory", error.message);
        flow_close(flow);
        return false;
    }
    return true;
}

void flow_close(struct flow *flow)
{
    if (flow->region.bits) {
        crpc_region_deregister(flow->context, flow->region);
    }
    if (flow->memory) {
        munmap(flow->memory, memory_of(&flow->plan, flow->plan.flags & FLOW_BOTH || !flow->server,
                                       flow->plan.flags & FLOW_BOTH || flow->server));
    }
    close_side(&flow->sending);
    close_side(&flow->receiving);
    free(flow->started_ns);
    free(flow->pattern);
    *flow = (struct flow){0};
}

/* ---- Queueing -------------------------------------------------------------------------------- */

/* A channel refuses a receive while the one so many before it is open, so ops wait in a queue. */
static void submit_side(struct flow *flow, struct flow_side *side)
{
    while (side->queue_head != side->queue_tail && !flow->lost) {
        uint32_t from = (uint32_t)(side->queue_head % side->queue_capacity);
        uint64_t waiting = side->queue_tail - side->queue_head;
        uint32_t to_end = side->queue_capacity - from; /* a group never wraps: see the capacity */
        uint32_t count = waiting < to_end ? (uint32_t)waiting : to_end;
        int32_t reason;
        int32_t taken = crpc_channel_submit(flow->context, side->queue + from, count, &reason);
        side->queue_head += taken > 0 ? (uint32_t)taken : 0;
        if (reason == CRPC_E_AGAIN) {
            return;
        }
        if (reason != CRPC_OK) {
            flow->lost = true; /* its end is on the way, and says why */
            flow->lost_status = reason;
        }
    }
}

static crpc_channel_op *queue_op(struct flow *flow, struct flow_side *side, uint32_t slot,
                                 uint32_t index, uint64_t bytes)
{
    crpc_channel_op *op = &side->queue[side->queue_tail++ % side->queue_capacity];
    *op = (crpc_channel_op){
        .tag = index,
        .channel = flow->channel,
        .user_data = (uint64_t)slot * GROUP_MAX + index,
        .region = flow->region,
        .address = (uint64_t)(uintptr_t)buffer_of(flow, side, slot, index),
        .bytes = bytes,
    };
    return op;
}

static void receive_into(struct flow *flow, uint32_t slot)
{
    struct flow_side *side = &flow->receiving;
    uint32_t group = flow->plan.group;
    side->left[slot] = group;
    side->numbers[slot] = side->number++;
    for (uint32_t i = 0; i < group; i++) {
        crpc_channel_op *op = queue_op(flow, side, slot, i, flow->room);
        op->opcode = CRPC_CHANNEL_RECEIVE;
        op->flags = i + 1 < group ? CRPC_CHANNEL_MORE : 0;
    }
}

/* `sizes` are those of the message's buffers. */
static uint32_t send_from(struct flow *flow, const uint32_t *sizes, uint64_t now_ns)
{
    struct flow_side *side = &flow->sending;
    uint32_t slot = side->free_slots[--side->free_count];
    side->left[slot] = flow->plan.group;
    side->numbers[slot] = side->number++;
    flow->started_ns[slot] = now_ns;
    for (uint32_t i = 0; i < flow->plan.group; i++) {
        side->sizes[slot * flow->plan.group + i] = sizes[i];
        queue_op(flow, side, slot, i, sizes[i])->opcode = CRPC_CHANNEL_SEND;
    }
    return slot;
}

bool flow_send(struct flow *flow, uint64_t now_ns)
{
    struct flow_side *side = &flow->sending;
    uint64_t number = side->number;
    uint32_t sizes[GROUP_MAX] = {0};
    if (side->free_count == 0) {
        return false;
    }
    for (uint32_t i = 0; i < flow->plan.group; i++) {
        sizes[i] = size_of(&flow->plan, number, i);
    }
    uint32_t slot = send_from(flow, sizes, now_ns);
    flow->streamed++;
    for (uint32_t i = 0; flow->pattern && i < flow->plan.group; i++) {
        memcpy(buffer_of(flow, side, slot, i), content_of(flow, flow->server, number, i), sizes[i]);
    }
    return true;
}

static void send_report(struct flow *flow, uint64_t now_ns)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    crpc_channel_get_stats(flow->context, flow->channel, &stats);
    const struct flow_report report = {
        .magic = REPORT_MAGIC,
        .messages = flow->messages_received,
        .bytes = flow->bytes_received,
        .wrong = flow->wrong,
        .clear_to_send_wqes = stats.clear_to_send_wqes,
        .data_wqes = stats.data_wqes,
        .control_wqes = stats.control_wqes,
        .doorbells = stats.doorbells,
        .shares_repeated = stats.shares_repeated,
    };
    const uint32_t sizes[GROUP_MAX] = {sizeof(report)};
    uint32_t slot = send_from(flow, sizes, now_ns);
    memcpy(buffer_of(flow, &flow->sending, slot, 0), &report, sizeof(report));
}

void flow_submit(struct flow *flow, uint64_t now_ns)
{
    static const uint32_t nothing[GROUP_MAX];
    if (flow->server && flow->stage < FLOW_END && flow_received_all(flow)) {
        flow->stage = FLOW_END;
    }
    if (flow->stage == FLOW_END && flow->sending.free_count > 0) {
        send_from(flow, nothing, now_ns);
        flow->stage = flow->server ? FLOW_REPORT : FLOW_DONE;
    }
    if (flow->stage == FLOW_REPORT && flow->sending.free_count > 0) {
        send_report(flow, now_ns);
        flow->stage = FLOW_DONE;
    }
    submit_side(flow, &flow->receiving);
    submit_side(flow, &flow->sending);
}

bool flow_quiet(const struct flow *flow)
{
    return flow->sending.free_count == flow->sending.slots;
}

/* Messages travel on several queue pairs: the end can overtake others. */
bool flow_received_all(const struct flow *flow)
{
    return flow->end_received && flow->messages_received == flow->end_number;
}

void flow_begin(struct flow *flow, crpc_channel channel)
{
    flow->channel = channel;
    while (flow->receiving.free_count > 0) {
        receive_into(flow, flow->receiving.free_slots[--flow->receiving.free_count]);
    }
    flow_submit(flow, perf_now_ns());
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool is_report(const struct flow *flow, uint32_t slot, const uint32_t *sizes)
{
    uint64_t magic;
    memcpy(&magic, buffer_of(flow, &flow->receiving, slot, 0), sizeof(magic));
    return !flow->server && sizes[0] == sizeof(flow->report) && magic == REPORT_MAGIC &&
           (flow->plan.group == 1 || sizes[1] == 0);
}

static bool is_right(const struct flow *flow, uint32_t slot, const uint32_t *sizes)
{
    uint64_t number = flow->receiving.numbers[slot];
    for (uint32_t i = 0; i < flow->plan.group; i++) {
        if (sizes[i] != size_of(&flow->plan, number, i) ||
            (flow->pattern && memcmp(buffer_of(flow, &flow->receiving, slot, i),
                                     content_of(flow, !flow->server, number, i), sizes[i]) != 0)) {
            return false;
        }
    }
    return true;
}

/* All buffers of a message have come. */
static void take_message(struct flow *flow, uint32_t slot)
{
    const uint32_t *sizes = &flow->receiving.sizes[slot * flow->plan.group];
    if (is_report(flow, slot, sizes)) {
        memcpy(&flow->report, buffer_of(flow, &flow->receiving, slot, 0), sizeof(flow->report));
        flow->report_received = true;
        return;
    }
    if (sizes[0] == 0) {
        flow->end_received = true;
        flow->end_number = flow->receiving.numbers[slot];
    } else {
        flow->messages_received++;
        flow->wrong += !is_right(flow, slot, sizes);
        for (uint32_t i = 0; i < flow->plan.group; i++) {
            flow->bytes_received += sizes[i];
        }
    }
    receive_into(flow, slot);
}

/* The end and the report, which come last, do not count. */
static void take_sent(struct flow *flow, uint32_t slot, uint64_t now_ns)
{
    struct flow_side *side = &flow->sending;
    const uint32_t *sizes = &side->sizes[slot * flow->plan.group];
    side->free_slots[side->free_count++] = slot;
    if (side->numbers[slot] < flow->streamed) {
        flow->messages_sent++;
        for (uint32_t i = 0; i < flow->plan.group; i++) {
            flow->bytes_sent += sizes[i];
        }
        if (flow->latency) {
            histogram_record(flow->latency, now_ns - flow->started_ns[slot]);
        }
    }
}

void flow_take(struct flow *flow, const crpc_completion *completion, uint64_t now_ns)
{
    bool sent = completion->kind == CRPC_COMPLETION_SENT;
    struct flow_side *side = sent ? &flow->sending : &flow->receiving;
    uint32_t slot = (uint32_t)(completion->user_data / GROUP_MAX);
    uint32_t index = (uint32_t)(completion->user_data % GROUP_MAX);
    if (completion->status != CRPC_OK) {
        flow->failed++;
        flow->lost = true;
        flow->lost_status = completion->status;
        return;
    }
    if (completion->token != side->numbers[slot]) {
        flow->wrong++; /* it went into another message's place */
    }
    if (!sent) {
        side->sizes[slot * flow->plan.group + index] = completion->payload_bytes;
    }
    if (--side->left[slot] > 0) {
        return;
    }
    if (sent) {
        take_sent(flow, slot, now_ns);
    } else {
        take_message(flow, slot);
    }
}

/* native.c: what is declared in native.h. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <copyrpc.h>

#include "native.h"

/* Its payload is memory of the caller, and not in a region. */
static inline int of_caller(const crpc_op *op)
{
    return op->payload_bytes > 0 && !(op->flags & CRPC_OP_REGION);
}

/* It has a payload of the caller's and nothing more. */
static inline int is_plain(const crpc_op *op)
{
    return op->payload_bytes > 0 && !(op->flags & (CRPC_OP_REGION | CRPC_OP_TRACED));
}

/* A stretch of memory. */
struct stretch {
    uintptr_t begin;
    uintptr_t end;
};

static void reach(struct stretch *stretch, uintptr_t address, uint64_t bytes)
{
    stretch->begin = address < stretch->begin ? address : stretch->begin;
    stretch->end = address + bytes > stretch->end ? address + bytes : stretch->end;
}

/* Does what copyrpc_native_submit does, for ops of which some have traces. */
static int32_t submit_traced(crpc_context *context, crpc_op *ops, void **payloads, uint32_t count,
                             int32_t *reason)
{
    struct stretch all = {UINTPTR_MAX, 0};
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t payload = (uintptr_t)payloads[i];
        if (ops[i].flags & CRPC_OP_TRACED) {
            const struct copyrpc_native_carried *carried = payloads[i];
            reach(&all, (uintptr_t)&carried->trace, sizeof(carried->trace));
            payload = carried->payload;
        }
        if (of_caller(&ops[i])) {
            reach(&all, payload, ops[i].payload_bytes);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t payload = (uintptr_t)payloads[i];
        if (ops[i].flags & CRPC_OP_TRACED) {
            const struct copyrpc_native_carried *carried = payloads[i];
            ops[i].token = (uintptr_t)&carried->trace - all.begin;
            payload = carried->payload;
        }
        if (of_caller(&ops[i])) {
            ops[i].payload_offset = payload - all.begin;
        }
    }
    return crpc_submit(context, ops, count, (const void *)all.begin, all.end - all.begin, reason);
}

int32_t copyrpc_native_submit(crpc_context *context, crpc_op *ops, void **payloads, uint32_t count,
                              int32_t *reason)
{
    /* crpc_submit wants one payload and offsets into it: the stretch of memory from the first payload to the end of the last.
     * Of that it reads what the ops name. */
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (is_plain(&ops[i])) {
            uintptr_t address = (uintptr_t)payloads[i];
            begin = address < begin ? address : begin;
            end = address + ops[i].payload_bytes > end ? address + ops[i].payload_bytes : end;
        } else if (ops[i].flags & CRPC_OP_TRACED) {
            return submit_traced(context, ops, payloads, count, reason);
        }
    }
    if (end == 0) {
        return crpc_submit(context, ops, count, NULL, 0, reason);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (of_caller(&ops[i])) {
            ops[i].payload_offset = (uintptr_t)payloads[i] - begin;
        }
    }
    return crpc_submit(context, ops, count, (const void *)begin, end - begin, reason);
}

int32_t copyrpc_native_submit_noted(crpc_context *context, crpc_op *ops, void **payloads,
                                    uint32_t count, int32_t *reason, int32_t *taken)
{
    *taken = copyrpc_native_submit(context, ops, payloads, count, reason);
    return *taken;
}

int32_t copyrpc_native_channel_submit_noted(crpc_context *context, const crpc_channel_op *ops,
                                            uint32_t count, int32_t *reason, int32_t *taken)
{
    *taken = crpc_channel_submit(context, ops, count, reason);
    return *taken;
}

int32_t copyrpc_native_queue_submit_noted(crpc_context *context, crpc_queue queue,
                                          const crpc_queue_op *ops, uint32_t count,
                                          const crpc_piece *pieces, uint32_t piece_count,
                                          int32_t *reason, int32_t *taken)
{
    *taken = crpc_queue_submit(context, queue, ops, count, pieces, piece_count, reason);
    return *taken;
}

int32_t copyrpc_native_lane_submit_noted(crpc_context *context, crpc_endpoint endpoint,
                                         const crpc_lane_op *ops, uint32_t count,
                                         const crpc_piece *pieces, uint32_t piece_count,
                                         int32_t *reason, int32_t *taken)
{
    *taken = crpc_lane_submit(context, endpoint, ops, count, pieces, piece_count, reason);
    return *taken;
}

void copyrpc_native_endpoint_accept_noted(crpc_context *context, crpc_endpoint endpoint,
                                          const crpc_endpoint_options *options, crpc_error *error,
                                          int32_t *status)
{
    *status = crpc_endpoint_accept(context, endpoint, options, error);
}

void copyrpc_native_channel_accept_noted(crpc_context *context, crpc_channel channel,
                                         const crpc_channel_options *options, crpc_error *error,
                                         int32_t *status)
{
    *status = crpc_channel_accept(context, channel, options, error);
}

void copyrpc_native_queue_accept_noted(crpc_context *context, crpc_queue queue,
                                       const crpc_queue_options *options, crpc_error *error,
                                       int32_t *status)
{
    *status = crpc_queue_accept(context, queue, options, error);
}

void copyrpc_native_endpoint_hand_over_noted(crpc_context *context, crpc_endpoint endpoint,
                                             crpc_context *to, uint64_t user_data,
                                             crpc_error *error, int32_t *status)
{
    *status = crpc_endpoint_hand_over(context, endpoint, to, user_data, error);
}

void copyrpc_native_channel_hand_over_noted(crpc_context *context, crpc_channel channel,
                                            crpc_context *to, uint64_t user_data, crpc_error *error,
                                            int32_t *status)
{
    *status = crpc_channel_hand_over(context, channel, to, user_data, error);
}

void copyrpc_native_queue_hand_over_noted(crpc_context *context, crpc_queue queue, crpc_context *to,
                                          uint64_t user_data, crpc_error *error, int32_t *status)
{
    *status = crpc_queue_hand_over(context, queue, to, user_data, error);
}

int32_t copyrpc_native_submit_calls(crpc_context *context, const crpc_op *first, crpc_op *ops,
                                    void **payloads, const uint32_t *payload_bytes, uint32_t count,
                                    int32_t *reason)
{
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = *first;
        ops[i].user_data += i;
        ops[i].payload_bytes = payload_bytes[i];
    }
    return copyrpc_native_submit(context, ops, payloads, count, reason);
}

int32_t copyrpc_native_submit_array(crpc_context *context, const crpc_op *ops, uint32_t count,
                                    const void *payload, uint64_t payload_bytes, int32_t *reason)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen |= ops[i].user_data;
    }
    if (seen & COPYRPC_NATIVE_MARK) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    return crpc_submit(context, ops, count, payload, payload_bytes, reason);
}

int32_t copyrpc_native_channel_submit_array(crpc_context *context, const crpc_channel_op *ops,
                                            uint32_t count, int32_t *reason)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen |= ops[i].user_data;
    }
    if (seen & COPYRPC_NATIVE_MARK) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    return crpc_channel_submit(context, ops, count, reason);
}

static int wants_region(const crpc_queue_op *op)
{
    return op->region.bits == 0 && op->bytes > 0 &&
           !(op->flags & (CRPC_QUEUE_INLINE | CRPC_QUEUE_PIECES));
}

int32_t copyrpc_native_queue_submit_array(crpc_context *context, crpc_queue queue,
                                          const crpc_queue_op *ops, uint32_t count,
                                          crpc_region region, const crpc_piece *pieces,
                                          uint32_t piece_count, crpc_queue_op *room,
                                          uint32_t room_count, int32_t *reason)
{
    uint64_t seen = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen |= ops[i].user_data;
    }
    if (seen & COPYRPC_NATIVE_MARK) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    if (region.bits == 0) {
        return crpc_queue_submit(context, queue, ops, count, pieces, piece_count, reason);
    }
    *reason = CRPC_OK;
    while (taken < count) {
        uint32_t some = count - taken < room_count ? count - taken : room_count;
        for (uint32_t i = 0; i < some; i++) {
            room[i] = ops[taken + i];
            if (wants_region(&room[i])) {
                room[i].region = region;
            }
        }
        int32_t accepted =
            crpc_queue_submit(context, queue, room, some, pieces, piece_count, reason);
        if (accepted < 0) {
            return taken > 0 ? (int32_t)taken : accepted;
        }
        taken += (uint32_t)accepted;
        if ((uint32_t)accepted < some) {
            break;
        }
    }
    return (int32_t)taken;
}

uint32_t copyrpc_native_queue_find(const crpc_queue_op *ops, uint32_t count, uint8_t opcode)
{
    uint32_t index = 0;
    while (index < count && ops[index].opcode != opcode) {
        index++;
    }
    return index;
}

/* Ops of lanes that are copied at a time: as many as most lanes have room for. */
#define LANE_CHUNK 128u

/* Accepts those of the first `count` ops that there is room for, LANE_CHUNK at the most. */
static uint32_t submit_lane_chunk(crpc_context *context, crpc_endpoint endpoint,
                                  const crpc_lane_op *ops, uint32_t count, crpc_region region,
                                  const crpc_piece *pieces, uint32_t piece_count, uint64_t first_id,
                                  int32_t *reason)
{
    crpc_lane_op room[LANE_CHUNK];
    for (uint32_t i = 0; i < count; i++) {
        room[i] = ops[i];
        if (first_id != 0) {
            room[i].user_data = COPYRPC_NATIVE_MARK | (first_id + i);
        }
        if (room[i].region.bits == 0 && room[i].bytes > 0 &&
            !(room[i].flags & (CRPC_LANE_INLINE | CRPC_LANE_PIECES))) {
            room[i].region = region;
        }
    }
    int32_t accepted =
        crpc_lane_submit(context, endpoint, room, count, pieces, piece_count, reason);
    return accepted > 0 ? (uint32_t)accepted : 0;
}

int32_t copyrpc_native_lane_submit_array(crpc_context *context, crpc_endpoint endpoint,
                                         const crpc_lane_op *ops, uint32_t count,
                                         crpc_region region, const crpc_piece *pieces,
                                         uint32_t piece_count, int32_t *reason)
{
    uint64_t seen = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        seen |= ops[i].user_data;
    }
    if (seen & COPYRPC_NATIVE_MARK) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    if (region.bits == 0) {
        return crpc_lane_submit(context, endpoint, ops, count, pieces, piece_count, reason);
    }
    *reason = CRPC_OK;
    while (taken < count && *reason == CRPC_OK) {
        uint32_t some = count - taken < LANE_CHUNK ? count - taken : LANE_CHUNK;
        taken += submit_lane_chunk(context, endpoint, ops + taken, some, region, pieces,
                                   piece_count, 0, reason);
    }
    return (int32_t)taken;
}

/* Returns what the library knows the latest TAG_ADD with this user_data by, among those before op `count`; or 0. */
static uint64_t added(const struct copyrpc_native_works *works, uint32_t count, uint64_t user_data)
{
    const crpc_queue_op *ops = works->ops;
    for (uint32_t i = count; i > 0; i--) {
        if (ops[i - 1].opcode == CRPC_QUEUE_TAG_ADD && ops[i - 1].user_data == user_data) {
            return COPYRPC_NATIVE_MARK | (works->first_id + i - 1);
        }
    }
    return 0;
}

static uint64_t what_is_removed(const struct copyrpc_native_works *works, uint32_t index,
                                const struct copyrpc_native_works *chain)
{
    const uint64_t user_data = ((const crpc_queue_op *)works->ops)[index].operand;
    uint64_t found = added(works, index, user_data);
    for (; found == 0 && chain != NULL; chain = chain->next) {
        if (chain != works && chain->queue.bits == works->queue.bits) {
            found = added(chain, chain->submitted, user_data);
        }
    }
    return found != 0 ? found : user_data & ~COPYRPC_NATIVE_MARK;
}

static uint32_t submit_queue_works(crpc_context *context, const struct copyrpc_native_works *works,
                                   const struct copyrpc_native_works *chain, crpc_queue_op *room,
                                   uint32_t count, int32_t *reason)
{
    const crpc_queue_op *ops = (const crpc_queue_op *)works->ops + works->submitted;
    int barred = 0;
    for (uint32_t i = 0; i < count; i++) {
        room[i] = ops[i];
        room[i].flags |= works->sparse ? CRPC_QUEUE_SIGNAL : 0;
        room[i].user_data = COPYRPC_NATIVE_MARK | (works->first_id + works->submitted + i);
        if (works->region.bits != 0 && wants_region(&room[i])) {
            room[i].region = works->region;
        }
        if (room[i].opcode == CRPC_QUEUE_TAG_REMOVE) {
            room[i].operand = what_is_removed(works, works->submitted + i, chain);
        } else if (room[i].opcode == CRPC_QUEUE_TAG_SYNC && works->sync_barred) {
            barred = 1;
            count = i;
        }
    }
    int32_t accepted = crpc_queue_submit(context, works->queue, room, count, works->pieces,
                                         works->piece_count, reason);
    if (barred && accepted == (int32_t)count) {
        *reason = CRPC_E_BUSY;
    }
    return accepted > 0 ? (uint32_t)accepted : 0;
}

int32_t copyrpc_native_works_submit(crpc_context *context, struct copyrpc_native_works *works,
                                    const struct copyrpc_native_works *chain, crpc_queue_op *room,
                                    uint32_t room_count)
{
    const int of_lane = works->endpoint.bits != 0;
    const uint32_t most = of_lane ? LANE_CHUNK : room_count;
    while (works->submitted < works->total && works->refused == 0) {
        const uint32_t left = works->total - works->submitted;
        const uint32_t some = left < most ? left : most;
        int32_t reason = CRPC_OK;
        works->submitted +=
            of_lane ? submit_lane_chunk(context, works->endpoint,
                                        (const crpc_lane_op *)works->ops + works->submitted, some,
                                        works->region, works->pieces, works->piece_count,
                                        works->first_id + works->submitted, &reason)
                    : submit_queue_works(context, works, chain, room, some, &reason);
        if (reason == CRPC_E_AGAIN) {
            return 0;
        }
        works->refused = reason;
    }
    return 1;
}

/* What an op of either kind is told by. */
static uint64_t user_data_of(const struct copyrpc_native_works *works, uint64_t index)
{
    return works->endpoint.bits != 0 ? ((const crpc_lane_op *)works->ops)[index].user_data
                                     : ((const crpc_queue_op *)works->ops)[index].user_data;
}

void copyrpc_native_works_refuse(struct copyrpc_native_works *works)
{
    const int of_lane = works->endpoint.bits != 0;
    for (; works->submitted < works->total; works->submitted++) {
        const uint32_t index = works->submitted;
        works->completions[works->completed++] = (crpc_completion){
            .kind = CRPC_COMPLETION_WORK,
            .flags = of_lane ? 0 : CRPC_COMPLETION_OF_QUEUE,
            .method = of_lane ? ((const crpc_lane_op *)works->ops)[index].opcode
                              : ((const crpc_queue_op *)works->ops)[index].opcode,
            .status = works->refused != 0 ? works->refused : CRPC_E_CANCELED,
            .endpoint = {of_lane ? works->endpoint.bits : works->queue.bits},
            .user_data = user_data_of(works, index),
        };
        works->refused = CRPC_E_CANCELED;
    }
}

void copyrpc_native_forget(crpc_context *context, void *const *addresses, const uint64_t *bytes,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (bytes[i] > 0) { /* 0 would mean everything */
            crpc_cache_forget(context, addresses[i], bytes[i]);
        }
    }
}

/* It has ended an op, whose user_data it has. */
static int is_of_op(const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_RESPONSE:
    case CRPC_COMPLETION_REPLY:
    case CRPC_COMPLETION_CANCEL:
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
    case CRPC_COMPLETION_WORK:
        return 1;
    default:
        return 0;
    }
}

static int for_application(const crpc_completion *completion)
{
    if (is_of_op(completion)) {
        return !(completion->user_data & COPYRPC_NATIVE_MARK);
    }
    return (completion->kind == CRPC_COMPLETION_REQUEST ||
            completion->kind == CRPC_COMPLETION_ABANDONED) &&
           (completion->endpoint_user_data & COPYRPC_NATIVE_MARK) != 0;
}

static void clear(struct copyrpc_native_poll *poll)
{
    poll->spans_count = poll->results_count = poll->events_count = 0;
}

/* Returns 0 if Python waits for no works that the op belongs to. */
static int put_with_works(struct copyrpc_native_poll *poll, const crpc_completion *completion)
{
    const uint64_t id = completion->user_data & ~COPYRPC_NATIVE_MARK;
    for (struct copyrpc_native_works *works = poll->works; works != NULL; works = works->next) {
        const uint64_t index = id - works->first_id; /* huge if it is before the first */
        if (index < works->total) {
            crpc_completion *done = &works->completions[works->completed++];
            if (done != completion) {
                *done = *completion;
            }
            done->user_data = user_data_of(works, index);
            return 1;
        }
    }
    return 0;
}

/* What was looked at in arenas ends as views do, with the next poll. */
static void give_back(crpc_context *context, struct copyrpc_native_poll *poll)
{
    for (uint32_t i = 0; i < poll->places_count; i++) {
        crpc_arena_give_back(context, poll->places[i].endpoint, poll->places[i].payload);
    }
    poll->places_count = 0;
}

/* `completion` may be the place in poll->events where it goes. */
static void sort(struct copyrpc_native_poll *poll, const crpc_completion *completion)
{
    const int is_ours = is_of_op(completion) && (completion->user_data & COPYRPC_NATIVE_MARK) != 0;
    if (is_ours && completion->kind == CRPC_COMPLETION_WORK && put_with_works(poll, completion)) {
        return;
    }
    if (!is_ours || completion->kind == CRPC_COMPLETION_WORK) {
        crpc_completion *event = &poll->events[poll->events_count++];
        if (event != completion) {
            *event = *completion;
        }
        return;
    }
    if (completion->flags & CRPC_COMPLETION_PLACED &&
        completion->kind == CRPC_COMPLETION_RESPONSE) {
        struct copyrpc_native_place *place = &poll->places[poll->places_count++];
        place->endpoint = completion->endpoint;
        place->payload = completion->payload;
    }
    uint64_t id = completion->user_data & ~COPYRPC_NATIVE_MARK;
    if (id >= poll->low && id < poll->high && completion->status == 0) {
        uint32_t index = poll->spans_count++;
        poll->span_ids[index] = id;
        poll->spans[index].begin = completion->payload;
        poll->spans[index].end = completion->payload + completion->payload_bytes;
    } else {
        struct copyrpc_native_result *result = &poll->results[poll->results_count++];
        result->id = id;
        result->status = completion->status;
        result->address = completion->payload;
        result->bytes = completion->payload_bytes;
    }
}

int32_t copyrpc_native_poll(crpc_context *context, struct copyrpc_native_poll *poll)
{
    /* Straight to where most of them go, if Python waits for works: saves a copy of each. What is put
     * with the works lies at or before the place where it came, so nothing is overwritten. */
    struct copyrpc_native_works *works = poll->works;
    crpc_completion *room = poll->events;
    uint32_t capacity = poll->capacity;
    if (works != NULL && works->completed < works->total) {
        const uint32_t left = works->total - works->completed;
        room = &works->completions[works->completed];
        capacity = left < capacity ? left : capacity;
    }
    give_back(context, poll);
    int32_t count = crpc_poll(context, room, capacity);
    clear(poll);
    for (int32_t i = 0; i < count; i++) {
        sort(poll, &room[i]);
    }
    poll->left = count > 0;
    return count;
}

int32_t copyrpc_native_poll_array(crpc_context *context, crpc_completion *completions,
                                  uint32_t capacity, struct copyrpc_native_poll *poll)
{
    give_back(context, poll);
    int32_t count =
        crpc_poll(context, completions, capacity < poll->capacity ? capacity : poll->capacity);
    int32_t kept = 0;
    clear(poll);
    for (int32_t i = 0; i < count; i++) {
        if (!for_application(&completions[i])) {
            sort(poll, &completions[i]);
        } else {
            if (kept != i) {
                completions[kept] = completions[i];
            }
            kept++;
        }
    }
    poll->left = kept < count;
    return count < 0 ? count : kept;
}

uint32_t copyrpc_native_gather(const crpc_completion *completions, uint32_t count, uint8_t *buffer,
                               uint64_t buffer_bytes, uint64_t *offsets)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        int viewed = completions[i].kind == CRPC_COMPLETION_RESPONSE ||
                     completions[i].kind == CRPC_COMPLETION_REQUEST;
        uint64_t bytes = viewed ? completions[i].payload_bytes : 0;
        if (used > buffer_bytes || bytes > buffer_bytes - used) {
            return i;
        }
        if (bytes > 0) {
            memcpy(buffer + used, (const void *)(uintptr_t)completions[i].payload, bytes);
        }
        offsets[i] = used;
        used += (bytes + 7) & ~(uint64_t)7;
    }
    return count;
}

void copyrpc_native_close(crpc_context **context)
{
    crpc_context *closing = *context;
    *context = NULL;
    if (closing != NULL) {
        crpc_context_close(closing);
    }
}

int32_t copyrpc_native_wake_open(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

void copyrpc_native_wake(int wake_fd)
{
    uint64_t one = 1;
    ssize_t put = write(wake_fd, &one, sizeof(one));
    (void)put; /* full: the sleeper wakes all the same */
}

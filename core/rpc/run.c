/* run.c: messages that come one behind the other on the same endpoint, as most do: ops of a submit, and
 * messages of a batch. What each of them changes of the endpoint is kept in registers, and stored once for all.
 *
 * A run ends before the first message that is not as most are. send.c and receive.c take that one, or say what is
 * wrong with it; they have the same rules, op by op and message by message.
 */
#include "base/copy.h"
#include "rpc/internal.h"
#include "rpc/message.h"
#include "rpc/op.h"
#include "rpc/run.h"

/* ---- Tricks of the loops ---------------------------------------------------------------------- */

/* Ends a run if the condition holds. Each condition is a branch of its own, which is predicted: left to itself, the compiler
 * makes one value of two of them, which takes 3 instructions more. */
#define STOP_IF(condition)                                                                         \
    if (unlikely(condition)) {                                                                     \
        break;                                                                                     \
    }                                                                                              \
    __asm__ volatile("")

/* Keeps a variable in memory over a loop that does not use it, so that there is a register more for what the loop does use:
 * 1 or 2 instructions a message. */
#define set_aside(variable) __asm__ volatile("" : "+m"(variable))

/* The compiler forgets how it came by the variable: it neither makes it anew, nor keeps another for its sake. */
#define forget_origin(variable) __asm__ volatile("" : "+r"(variable))

/* Takes an amount from what is left, if there is as much: one subtraction and a look at its borrow. */
static inline bool take_from(uint64_t *left, uint64_t amount)
{
    return !__builtin_sub_overflow(*left, amount, left);
}

/* Fields that lie side by side, in one load or store. */
static inline uint64_t load_word(const void *place)
{
    uint64_t word;
    memcpy(&word, place, sizeof(word));
    return word;
}

static inline void store_word(void *place, uint64_t word)
{
    memcpy(place, &word, sizeof(word));
}

/* Two words, in one store. */
typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));

/* Zeros that stay in their register: the compiler would make them anew for each message. */
static inline pair make_zeros(void)
{
    pair zeros = {0, 0};
#if defined(__x86_64__)
    __asm__("" : "+x"(zeros));
#elif defined(__aarch64__)
    __asm__("" : "+w"(zeros));
#endif
    return zeros;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* The last unit is cleared whole, for the zeros behind the payload, before the rest is written to it. The zeros are the
 * caller's, so that a loop has them in a register. low, high: the header. */
static inline void write_message(uint8_t *place, uint64_t message_bytes, pair zeros, uint64_t low,
                                 uint64_t high, const uint8_t *payload, size_t payload_bytes)
{
    pair *last = (pair *)(void *)(place + message_bytes - WIRE_UNIT_BYTES);
    last[0] = zeros;
    last[1] = zeros;
    store_word(place, low);
    store_word(place + sizeof(low), high);
    copy_short(place + WIRE_HEADER_BYTES, payload, payload_bytes);
}

/* The first half of a CALL's first word, turned by 16 bits, is what its request's header ends with. */
#define METHOD_MASK UINT64_C(0xffff0000) /* of the first word: what is not known of it */
static_assert(offsetof(crpc_op, opcode) == 0 && offsetof(crpc_op, flags) == 1 &&
                  offsetof(crpc_op, method) == 2 && offsetof(crpc_op, status) == 4 &&
                  offsetof(struct wire_message, kind) - offsetof(struct wire_message, method) ==
                      2 &&
                  CRPC_OP_CALL == WIRE_REQUEST,
              "opcode and flags of an op, then the method; method of a request, then the kind");

/* timed: with a deadline or without; otherwise ops with one end the run. */
static inline __attribute__((always_inline)) uint32_t
take_calls(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
           const uint8_t *payload, uint64_t payload_bytes_max, const bool timed)
{
    uint64_t request_left = endpoint->out.request_limit - endpoint->out.request_produced;
    uint64_t reply_left = endpoint->calls.reply_budget - endpoint->calls.reply_outstanding;
    uint8_t *place = rpc_next_place(endpoint);
    const uint64_t handle = ops->endpoint.bits;
    struct rpc_call *next = endpoint->calls.first_free;
    const crpc_op *op = ops;
    const crpc_op *end = ops + count;
    const pair zeros = make_zeros();
    set_aside(endpoint);
    set_aside(ops);
    set_aside(end);
    set_aside(payload_bytes_max);
    for (; op != end; op++) {
        const uint64_t head = load_word(op);
        const uint32_t payload_bytes = op->payload_bytes, reply_bytes_max = op->reply_bytes_max;
        STOP_IF((head - CRPC_OP_CALL) & ~METHOD_MASK);
        STOP_IF(op->endpoint.bits != handle);
        STOP_IF((op->token | op->region.bits | (timed ? 0 : op->timeout_ns)) != 0);
        uint64_t payload_end;
        STOP_IF(__builtin_add_overflow(op->payload_offset, payload_bytes, &payload_end));
        STOP_IF(payload_end > payload_bytes_max);
        assert(op->opcode == CRPC_OP_CALL && op_call_valid(op));
        const uint64_t message_bytes = wire_message_bytes(payload_bytes);
        const uint64_t charge = message_bytes + WIRE_BATCH_HEADER_BYTES;
        if (unlikely(!take_from(&request_left, charge))) {
            request_left += charge;
            break;
        }
        const uint64_t allowance = wire_charge(reply_bytes_max);
        if (unlikely(!take_from(&reply_left, allowance))) {
            reply_left += allowance;
            request_left += charge;
            break;
        }
        struct rpc_call *call = next;
        assert(call->state == CALL_FREE);
        const uint64_t call_id = (uint32_t)(call->call_id + (1u << WIRE_CALL_INDEX_BITS));
        const uint32_t method_and_kind = (uint32_t)head << 16 | (uint32_t)head >> 16;
        uint64_t high = reply_bytes_max | (uint64_t)method_and_kind << 32;
        const uint8_t *const from = payload + op->payload_offset;
        store_word(&call->call_id, call_id);      /* and the state, CALL_LIVE */
        store_word(&call->reply_bytes_max, high); /* and the method */
        call->allowance = allowance;
        if (timed && op->timeout_ns != 0) {
            high |= rpc_time_word(endpoint, op->timeout_ns);
        }
        write_message(place, message_bytes, zeros, payload_bytes | call_id << 32, high, from,
                      payload_bytes);
        place += message_bytes;
        store_first();
        next = call->next_free;
        call->user_data = op->user_data;
        if (timed && op->timeout_ns != 0) {
            call_set_deadline(call, op->timeout_ns);
        }
    }
    const uint32_t taken = (uint32_t)(op - ops);
    if (likely(taken > 0)) {
        struct rpc_out *out = &endpoint->out;
        struct rpc_calls *calls = &endpoint->calls;
        const bool first = calls->live == 0;
        calls->live += taken;
        if (first) {
            rpc_first_call(endpoint);
        }
        rpc_messages_written(endpoint, (uint64_t)(place - rpc_next_place(endpoint)), taken);
        out->request_produced = out->request_limit - request_left;
        calls->reply_outstanding = calls->reply_budget - reply_left;
        calls->first_free = next;
        calls->used += taken;
        endpoint->stats.calls += taken;
    }
    return taken;
}

uint32_t rpc_calls(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                   const uint8_t *payload, uint64_t payload_bytes)
{
    const struct rpc_calls *calls = &endpoint->calls;
    assert(count > 0);
    if (unlikely(endpoint->call_bar != CRPC_OK)) {
        return 0;
    }
    count = (uint32_t)minimum(count, WIRE_MESSAGES_MAX - endpoint->out.batch_messages);
    if (unlikely(calls->made - calls->used < count)) {
        count = calls_make_room(endpoint, count);
    }
    return ops->timeout_ns == 0 ? take_calls(endpoint, ops, count, payload, payload_bytes, false)
                                : take_calls(endpoint, ops, count, payload, payload_bytes, true);
}

static_assert(offsetof(crpc_op, payload_bytes) % 8 == 0 &&
                  offsetof(crpc_op, reply_bytes_max) - offsetof(crpc_op, payload_bytes) == 4,
              "a REPLY's length, and what must be 0, in one word");
#define REPLY_QUIET                                                                                \
    (CRPC_OP_REPLY | CRPC_OP_QUIET << 8) /* how such an op begins, without a status */

/* A reply that has a status, or is reported; *high: the second word of its header, but for the status. False if a run does
 * not take it. */
static inline bool take_head(struct rpc_endpoint *endpoint, const crpc_op *op, uint64_t *high)
{
    forget_origin(op); /* then the loop compares the head where it is, in memory */
    const uint64_t head = load_word(op);
    if ((int64_t)head < 0 || ((uint32_t)head & ~(CRPC_OP_QUIET << 8)) != CRPC_OP_REPLY) {
        return false;
    }
    if (!((uint32_t)head & CRPC_OP_QUIET << 8)) {
        if (unlikely(!rpc_may_report(endpoint))) {
            return false;
        }
        rpc_report_reply(endpoint, op);
    }
    *high |= head >> 32;
    return true;
}

uint32_t rpc_replies(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                     const uint8_t *payload, uint64_t payload_bytes_max)
{
    assert(count > 0);
    if (unlikely(endpoint->reply_bar != CRPC_OK)) {
        return 0;
    }
    count = (uint32_t)minimum(count, WIRE_MESSAGES_MAX - endpoint->out.batch_messages);
    uint8_t *place = rpc_next_place(endpoint);
    struct rpc_request *const slots = endpoint->owed.slots;
    const uint64_t slot_mask = endpoint->owed.slot_count - 1;
    const uint64_t handle = ops->endpoint.bits;
    uint64_t allowance = 0;
    const crpc_op *op = ops;
    const crpc_op *end = ops + count;
    const pair zeros = make_zeros();
    set_aside(endpoint);
    set_aside(ops);
    set_aside(end);
    for (; op != end; op++) {
        const uint64_t token = op->token;
        /* And reply_bytes_max, which must be 0: no request that is left allows so much. */
        const uint64_t payload_bytes = load_word(&op->payload_bytes);
        /* A token has the slot of its call id, if it is one: then all of it is compared. */
        struct rpc_request *request = &slots[token & slot_mask];
        STOP_IF(op->endpoint.bits != handle);
        STOP_IF((op->timeout_ns | op->region.bits) != 0);
        STOP_IF(request->token != token);
        STOP_IF(payload_bytes >= request->reply_bytes_bound);
        uint64_t payload_end;
        STOP_IF(__builtin_add_overflow(op->payload_offset, payload_bytes, &payload_end));
        STOP_IF(payload_end > payload_bytes_max);
        uint64_t high = (uint64_t)WIRE_RESPONSE << 48;
        if (unlikely(load_word(op) != REPLY_QUIET) && !take_head(endpoint, op, &high)) {
            break;
        }
        assert(op->opcode == CRPC_OP_REPLY && op_reply_valid(op));
        const uint64_t message_bytes = wire_message_bytes(payload_bytes);
        allowance += request->allowance;
        request->reply_bytes_bound = 0;
        write_message(place, message_bytes, zeros, payload_bytes | token << 32, high,
                      payload + op->payload_offset, payload_bytes);
        place += message_bytes;
    }
    const uint32_t taken = (uint32_t)(op - ops);
    if (likely(taken > 0)) {
        struct rpc_owed *owed = &endpoint->owed;
        owed->count -= taken;
        if (owed->count == 0) {
            rpc_make_urgent(endpoint);
        }
        rpc_messages_written(endpoint, (uint64_t)(place - rpc_next_place(endpoint)), taken);
        owed->allowance -= allowance;
        endpoint->stats.replies += taken;
    }
    return taken;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Most completions of a run have the same in some of their eight words. Two of these are one store. */
static_assert(offsetof(crpc_completion, endpoint) == 8 &&
                  offsetof(crpc_completion, user_data) == 16 &&
                  offsetof(crpc_completion, token) == 24 &&
                  offsetof(crpc_completion, payload) == 32 &&
                  offsetof(crpc_completion, payload_bytes) == 40 &&
                  offsetof(crpc_completion, view) == 48 &&
                  offsetof(crpc_completion, endpoint_user_data) == 56,
              "the pairs of a completion");

static inline pair *pair_of(crpc_completion *completion, unsigned number)
{
    return (pair *)(void *)completion + number;
}

static inline crpc_completion *run_end(const struct rpc_cursor *cursor)
{
    return cursor->next +
           minimum(cursor->messages_left - 1, (uint64_t)(cursor->end - cursor->next));
}

static inline void advance(struct rpc_cursor *cursor, crpc_completion *next, const uint8_t *place)
{
    cursor->messages_left -= (uint32_t)(next - cursor->next);
    cursor->next = next;
    cursor->bytes_left -= (uint64_t)(place - cursor->place);
    cursor->place = place;
}

/* A run looks at each message by its payload's place, which the completion has to show. */
static inline const uint8_t *payload_of(const struct rpc_cursor *cursor)
{
    return cursor->place + WIRE_HEADER_BYTES;
}

/* Back to the message that ended the run, whose header was loaded. The loop does not keep where it is. */
static inline const uint8_t *back(struct rpc_cursor *cursor, const uint8_t *payload,
                                  struct rpc_header header)
{
    forget_origin(header.payload_bytes);
    cursor->header = header;
    cursor->loaded = true;
    return payload - wire_message_bytes(header.payload_bytes);
}

void rpc_take_responses(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor)
{
    struct rpc_call *const slots = endpoint->calls.slots;
    const uint32_t offset_mask = endpoint->calls.index_mask * (uint32_t)sizeof(struct rpc_call);
    const pair head = {CRPC_COMPLETION_RESPONSE, endpoint->link.handle};
    const pair tail = {endpoint->engine->epoch, endpoint->user_data};
    crpc_completion *next = cursor->next, *const end = run_end(cursor);
    const uint8_t *payload = payload_of(cursor);
    const uint8_t *const payload_end = payload + cursor->bytes_left;
    struct rpc_call *first_free = endpoint->calls.first_free;
    uint64_t held = 0;
    uint64_t payload_bytes = 0, call_id = 0, high = 0;
    cursor->loaded = false;
    set_aside(endpoint);
    set_aside(cursor);
    for (; next != end; next++) {
        const uint32_t *words = (const uint32_t *)(const void *)(payload - WIRE_HEADER_BYTES);
        payload_bytes = wire_load(&words[0]);
        call_id = rpc_load_scalar(&words[1]);
        high = wire_load((const uint64_t *)(const void *)&words[2]);
        next->payload = (uint64_t)(uintptr_t)payload; /* now, and not kept: 1 or 2 less */
        payload += wire_message_bytes(payload_bytes);
        /* A call id has the slot of its index, if it is one of a live call: then all of it is compared. */
        struct rpc_call *call =
            (struct rpc_call *)(void *)((uint8_t *)slots +
                                        ((uint32_t)call_id * (uint32_t)sizeof(struct rpc_call) &
                                         offset_mask));
        /* Neither an error of the peer nor reserved bits: that is one comparison, with the kind. */
        STOP_IF(high >> 31 != (uint64_t)WIRE_RESPONSE << 17);
        STOP_IF((uintptr_t)payload > (uintptr_t)payload_end);
        STOP_IF((uint32_t)payload_bytes > call->reply_bytes_max);
        if (unlikely(load_word(&call->call_id) != call_id)) {
            if (call->call_id != call_id || call->state != CALL_TIMED) {
                break;
            }
            wheel_clear(&endpoint->engine->links.wheel, &call->timer);
        }
        held += call->allowance;
        *pair_of(next, 0) = head;
        next->method = call->method;
        next->status = (int32_t)high;
        *pair_of(next, 1) = (pair){call->user_data, 0};
        store_word(&next->payload_bytes, payload_bytes); /* and reply_bytes_max, 0 */
        *pair_of(next, 3) = tail;
        call->state = CALL_FREE;
        call->next_free = first_free;
        first_free = call;
    }
    if (next != end) {
        payload = back(cursor, payload,
                       (struct rpc_header){.payload_bytes = payload_bytes,
                                           .call_id = call_id,
                                           .limit_or_status = (uint32_t)high,
                                           .method_and_kind = high >> 32});
    }
    struct rpc_calls *calls = &endpoint->calls;
    const uint32_t taken = (uint32_t)(next - cursor->next);
    calls->first_free = first_free;
    calls->live -= taken;
    calls->used -= taken;
    endpoint->stats.responses += taken;
    endpoint->in.held_allowance += held;
    advance(cursor, next, payload - WIRE_HEADER_BYTES);
}

/* timed: those that say how long their callers wait, and others; otherwise the former end the run. */
static inline __attribute__((always_inline)) void
take_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor, const bool timed)
{
    struct rpc_request *const slots = endpoint->owed.slots;
    const uint32_t slot_count = endpoint->owed.slot_count;
    cursor->loaded = false;
    /* As much as the rest of the batch can be charged, so that no request has to be looked at. */
    const uint64_t charge_max =
        cursor->bytes_left + (uint64_t)cursor->messages_left * WIRE_BATCH_HEADER_BYTES;
    /* The sequence skips 0 when it wraps, which take_request does. */
    if (unlikely(endpoint->in.fin == FIN_BEFORE ||
                 endpoint->owed.token_sequence >= UINT32_MAX - WIRE_MESSAGES_MAX ||
                 endpoint->in.request_published - endpoint->in.request_arrived < charge_max)) {
        return;
    }
    const pair head = {CRPC_COMPLETION_REQUEST, endpoint->link.handle};
    const pair zeros = make_zeros();
    const pair tail = {endpoint->engine->epoch, endpoint->user_data};
    const uint64_t reserved = (uint64_t)endpoint->in.kind_mask << 16;
    crpc_completion *next = cursor->next, *const end = run_end(cursor);
    const uint8_t *payload = payload_of(cursor);
    const uint8_t *const payload_end = payload + cursor->bytes_left;
    uint64_t sequence = (uint64_t)endpoint->owed.token_sequence << 32, step = UINT64_C(1) << 32;
    forget_origin(step);
    uint64_t allowance_left = endpoint->owed.allowance_max - endpoint->owed.allowance;
    set_aside(endpoint);
    set_aside(cursor);
    struct rpc_header header = {0};
    for (; next != end; next++) {
        header = rpc_load_header(payload - WIRE_HEADER_BYTES);
        const uint64_t index = header.call_id & WIRE_CALL_INDEX_MASK;
        /* The kind is what is left when the method is taken away. */
        header.method_and_kind -= WIRE_REQUEST << 16;
        next->payload = (uint64_t)(uintptr_t)payload; /* likewise */
        payload += wire_message_bytes(header.payload_bytes);
        struct rpc_request *request = &slots[index];
        STOP_IF(timed ? (header.method_and_kind & reserved) != 0
                      : header.method_and_kind > UINT16_MAX);
        STOP_IF((uintptr_t)payload > (uintptr_t)payload_end);
        STOP_IF(index >= slot_count);
        STOP_IF(request->reply_bytes_bound > 0);
        const uint64_t allowance = wire_charge(header.limit_or_status);
        if (unlikely(!take_from(&allowance_left, allowance))) {
            allowance_left += allowance;
            break;
        }
        sequence += step;
        const uint64_t token = sequence + header.call_id;
        request->token = token;
        request->reply_bytes_bound = (uint32_t)header.limit_or_status + 1;
        request->allowance = (uint32_t)allowance;
        *pair_of(next, 0) = head;
        next->method = (uint16_t)header.method_and_kind;
        *pair_of(next, 1) = zeros; /* no time, and the token, which follows */
        if (timed) {
            next->user_data = rpc_header_time_ns(header);
        }
        next->token = token;
        next->payload_bytes = (uint32_t)header.payload_bytes;
        next->reply_bytes_max = (uint32_t)header.limit_or_status;
        *pair_of(next, 3) = tail;
    }
    if (next != end) {
        header.method_and_kind += WIRE_REQUEST << 16;
        payload = back(cursor, payload, header);
    }
    struct rpc_owed *owed = &endpoint->owed;
    struct rpc_in *in = &endpoint->in;
    const uint32_t taken = (uint32_t)(next - cursor->next);
    const uint64_t charge =
        (uint64_t)(payload - payload_of(cursor)) + (uint64_t)taken * WIRE_BATCH_HEADER_BYTES;
    owed->token_sequence += taken;
    owed->count += taken;
    owed->allowance = owed->allowance_max - allowance_left;
    in->request_arrived += charge;
    endpoint->stats.requests += taken;
    advance(cursor, next, payload - WIRE_HEADER_BYTES);
}

void rpc_take_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor)
{
    take_requests(endpoint, cursor, false);
}

void rpc_take_timed_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor)
{
    take_requests(endpoint, cursor, true);
}

/* run.c: messages that come one behind the other on the same endpoint, as most do: ops of a submit, and
 * messages of a batch. What each of them changes of the endpoint is kept in registers, and stored once for all.
 *
 * A run ends before the first message that is not as most are. send.c and receive.c take that one, or say what is
 * wrong with it; they have the same rules, op by op and message by message.
 */
#include "base/copy.h"
#include "rpc/internal.h"

/* Takes an amount from what is left, if there is as much: one subtraction and a look at its borrow. */
static inline bool take_from(uint64_t *left, uint64_t amount)
{
    return !__builtin_sub_overflow(*left, amount, left);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static inline void write_word(uint8_t *place, uint64_t word)
{
    memcpy(place, &word, sizeof(word));
}

/* The last unit is cleared whole, for the zeros behind the payload, before the rest is written to it. */
static inline void write_message(uint8_t *place, uint64_t message_bytes, uint64_t low,
                                 uint64_t high, const uint8_t *payload, uint32_t payload_bytes)
{
    memset(place + message_bytes - WIRE_UNIT_BYTES, 0, WIRE_UNIT_BYTES);
    write_word(place, low);
    write_word(place + sizeof(low), high);
    copy_short(place + WIRE_HEADER_BYTES, payload, payload_bytes);
}

/* The place of the next message. */
static inline uint8_t *begin_run(struct rpc_endpoint *endpoint)
{
    struct rpc_out *out = &endpoint->out;
    return ring_at(&out->staging, out->produced) +
           (out->batch_messages == 0 ? WIRE_BATCH_HEADER_BYTES : 0);
}

static inline void end_run(struct rpc_endpoint *endpoint, uint64_t bytes, uint32_t messages)
{
    struct rpc_out *out = &endpoint->out;
    if (out->batch_messages == 0) {
        out->batch_start = out->produced;
        out->produced += WIRE_BATCH_HEADER_BYTES;
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
    out->batch_messages += messages;
    out->produced += bytes;
}

uint32_t rpc_calls(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                   const uint8_t *payload)
{
    struct rpc_out *out = &endpoint->out;
    struct rpc_calls *calls = &endpoint->calls;
    if (unlikely(endpoint->call_bar != CRPC_OK)) {
        return 0;
    }
    count = (uint32_t)minimum(count, WIRE_MESSAGES_MAX - out->batch_messages);
    count = (uint32_t)minimum(count, calls->max - calls->used);
    uint64_t request_left = out->request_limit - out->request_produced;
    uint64_t reply_left = calls->reply_budget - calls->reply_outstanding;
    uint8_t *const start = begin_run(endpoint), *place = start;
    struct rpc_call *const slots = calls->slots;
    uint32_t index = calls->first_free;
    const crpc_op *op = ops;
    for (const crpc_op *const end = ops + count; op != end; op++) {
        const uint32_t payload_bytes = op->payload_bytes, reply_bytes_max = op->reply_bytes_max;
        const uint64_t message_bytes = wire_message_bytes(payload_bytes);
        const uint64_t charge = message_bytes + WIRE_BATCH_HEADER_BYTES;
        assert(op->opcode == CRPC_OP_CALL);
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
        struct rpc_call *call = &slots[index];
        const uint32_t call_id = call->call_id + (1u << WIRE_CALL_INDEX_BITS);
        const uint64_t high =
            reply_bytes_max | (uint64_t)op->method << 32 | (uint64_t)WIRE_REQUEST << 48;
        const uint8_t *const from = payload + op->payload_offset;
        index = call->next_free;
        call->call_id = call_id;
        call->user_data = op->user_data;
        memcpy(&call->reply_bytes_max, &high, sizeof(high)); /* and method, state, status */
        write_message(place, message_bytes, payload_bytes | (uint64_t)call_id << 32, high, from,
                      payload_bytes);
        place += message_bytes;
        if (op->timeout_ns != 0) {
            call_set_deadline(call, op->timeout_ns);
        }
    }
    const uint32_t taken = (uint32_t)(op - ops);
    if (likely(taken > 0)) {
        end_run(endpoint, (uint64_t)(place - start), taken);
        out->request_produced = out->request_limit - request_left;
        calls->reply_outstanding = calls->reply_budget - reply_left;
        calls->first_free = index;
        calls->used += taken;
        endpoint->stats.calls += taken;
        const bool first = calls->live == 0;
        calls->live += taken;
        if (first) {
            rpc_first_call(endpoint);
        }
    }
    return taken;
}

uint32_t rpc_replies(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                     const uint8_t *payload)
{
    struct rpc_out *out = &endpoint->out;
    struct rpc_owed *owed = &endpoint->owed;
    struct rpc_sent *sent = &endpoint->sent;
    if (unlikely(endpoint->reply_bar != CRPC_OK)) {
        return 0;
    }
    count = (uint32_t)minimum(count, WIRE_MESSAGES_MAX - out->batch_messages);
    uint8_t *const start = begin_run(endpoint), *place = start;
    struct rpc_request *const slots = owed->slots;
    const uint32_t slot_count = owed->slot_count;
    uint64_t allowance = 0;
    const crpc_op *op = ops;
    for (const crpc_op *const end = ops + count; op != end; op++) {
        const uint64_t token = op->token;
        const uint32_t index = (uint32_t)token & WIRE_CALL_INDEX_MASK;
        const uint32_t payload_bytes = op->payload_bytes;
        const uint8_t *const from = payload + op->payload_offset;
        struct rpc_request *request = &slots[index];
        assert(op->opcode == CRPC_OP_REPLY);
        if (unlikely(index >= slot_count || request->token != token || token == 0 ||
                     payload_bytes > request->reply_bytes_max)) {
            break;
        }
        if (!(op->flags & CRPC_OP_QUIET)) {
            if (unlikely(sent->replies_tail - sent->replies_head == slot_count)) {
                break;
            }
            sent->replies[sent->replies_tail++ & (slot_count - 1)] =
                (struct rpc_sent_reply){.user_data = op->user_data, .token = token};
            out->batch_wants_completion = true;
        }
        const uint64_t message_bytes = wire_message_bytes(payload_bytes);
        allowance += request->allowance;
        request->token = 0;
        write_message(place, message_bytes, payload_bytes | token << 32,
                      (uint32_t)op->status | (uint64_t)WIRE_RESPONSE << 48, from, payload_bytes);
        place += message_bytes;
    }
    const uint32_t taken = (uint32_t)(op - ops);
    if (likely(taken > 0)) {
        end_run(endpoint, (uint64_t)(place - start), taken);
        owed->allowance -= allowance;
        owed->count -= taken;
        endpoint->stats.replies += taken;
        if (owed->count == 0) {
            rpc_make_urgent(endpoint);
        }
    }
    return taken;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Two of a completion's eight words: most completions of a run have the same in some of them, which then take one
 * store. */
typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));
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

/* loaded: the header is that of the message at `place`. */
static inline void advance(struct rpc_cursor *cursor, crpc_completion *next, const uint8_t *place,
                           struct rpc_header header, bool loaded)
{
    cursor->header = header;
    cursor->loaded = loaded;
    cursor->messages_left -= (uint32_t)(next - cursor->next);
    cursor->next = next;
    cursor->bytes_left -= (uint64_t)(place - cursor->place);
    cursor->place = place;
}

void rpc_take_responses(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor)
{
    struct rpc_calls *calls = &endpoint->calls;
    struct rpc_call *const slots = calls->slots;
    const uint32_t max = calls->max;
    const pair head = {CRPC_COMPLETION_RESPONSE, endpoint->link.handle};
    const pair tail = {endpoint->engine->epoch, endpoint->options.user_data};
    crpc_completion *next = cursor->next, *const end = run_end(cursor);
    const uint8_t *place = cursor->place;
    const uintptr_t place_end = (uintptr_t)place + cursor->bytes_left;
    uint32_t first_free = calls->first_free;
    uint64_t held = 0;
    struct rpc_header header = {0};
    for (; next != end; next++) {
        header = rpc_load_header(place);
        const uint64_t high = header.high;
        const uint32_t payload_bytes = (uint32_t)header.low, call_id = (uint32_t)(header.low >> 32);
        const uint32_t index = call_id & WIRE_CALL_INDEX_MASK;
        const uint64_t bytes = wire_message_bytes(payload_bytes);
        struct rpc_call *call = &slots[index];
        /* Neither an error of the peer nor reserved bits: that is one comparison, with the kind. */
        if (unlikely(high >> 32 != (uint64_t)WIRE_RESPONSE << 16 || (int32_t)high < 0 ||
                     (uintptr_t)place + bytes > place_end || index >= max ||
                     call->call_id != call_id || call->state != CALL_LIVE ||
                     payload_bytes > call->reply_bytes_max)) {
            break;
        }
        held += wire_charge(call->reply_bytes_max);
        if (wheel_timer_set(&call->timer)) {
            wheel_clear(&endpoint->engine->links.wheel, &call->timer);
        }
        *pair_of(next, 0) = head;
        next->method = call->method;
        next->status = (int32_t)high;
        *pair_of(next, 1) = (pair){call->user_data, 0};
        *pair_of(next, 2) = (pair){(uint64_t)(uintptr_t)(place + WIRE_HEADER_BYTES), payload_bytes};
        *pair_of(next, 3) = tail;
        call->state = CALL_FREE;
        call->next_free = first_free;
        first_free = index;
        place += bytes;
    }
    const uint32_t taken = (uint32_t)(next - cursor->next);
    calls->first_free = first_free;
    calls->live -= taken;
    calls->used -= taken;
    endpoint->stats.responses += taken;
    endpoint->in.held_allowance += held;
    advance(cursor, next, place, header, next != end);
}

void rpc_take_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor)
{
    struct rpc_owed *owed = &endpoint->owed;
    struct rpc_in *in = &endpoint->in;
    struct rpc_request *const slots = owed->slots;
    const uint32_t slot_count = owed->slot_count;
    const pair head = {CRPC_COMPLETION_REQUEST, endpoint->link.handle};
    const pair tail = {endpoint->engine->epoch, endpoint->options.user_data};
    const uint64_t user_data = endpoint->options.user_data;
    crpc_completion *next = cursor->next, *const end = run_end(cursor);
    const uint8_t *place = cursor->place;
    const uintptr_t place_end = (uintptr_t)place + cursor->bytes_left;
    uint32_t sequence = owed->token_sequence;
    /* The sequence skips 0 when it wraps, which take_request does. */
    if (unlikely(in->fin == FIN_BEFORE || sequence >= UINT32_MAX - WIRE_MESSAGES_MAX)) {
        cursor->loaded = false;
        return;
    }
    const uint64_t charge_room = in->request_published - in->request_arrived;
    uint64_t charge_left = charge_room;
    uint64_t allowance_left = owed->allowance_max - owed->allowance;
    struct rpc_header header = {0};
    for (; next != end; next++) {
        header = rpc_load_header(place);
        const uint64_t high = header.high;
        const uint32_t payload_bytes = (uint32_t)header.low, call_id = (uint32_t)(header.low >> 32);
        const uint32_t index = call_id & WIRE_CALL_INDEX_MASK, reply_bytes_max = (uint32_t)high;
        const uint64_t bytes = wire_message_bytes(payload_bytes);
        struct rpc_request *request = &slots[index];
        if (unlikely(high >> 48 != WIRE_REQUEST || (uintptr_t)place + bytes > place_end ||
                     index >= slot_count || request->token != 0)) {
            break;
        }
        const uint64_t charge = bytes + WIRE_BATCH_HEADER_BYTES;
        if (unlikely(!take_from(&charge_left, charge))) {
            charge_left += charge;
            break;
        }
        const uint64_t allowance = wire_charge(reply_bytes_max);
        if (unlikely(!take_from(&allowance_left, allowance))) {
            allowance_left += allowance;
            charge_left += charge;
            break;
        }
        sequence++;
        const uint64_t token = (uint64_t)sequence << 32 | call_id;
        request->token = token;
        request->reply_bytes_max = reply_bytes_max;
        request->allowance = (uint32_t)allowance;
        *pair_of(next, 0) = head;
        next->method = (uint16_t)(high >> 32);
        *pair_of(next, 1) = (pair){user_data, token};
        next->payload = (uint64_t)(uintptr_t)(place + WIRE_HEADER_BYTES);
        next->payload_bytes = payload_bytes;
        next->reply_bytes_max = reply_bytes_max;
        *pair_of(next, 3) = tail;
        place += bytes;
    }
    const uint32_t taken = (uint32_t)(next - cursor->next);
    owed->token_sequence = sequence;
    owed->count += taken;
    owed->allowance = owed->allowance_max - allowance_left;
    in->request_arrived += charge_room - charge_left;
    in->held_request_charge += charge_room - charge_left;
    endpoint->stats.requests += taken;
    advance(cursor, next, place, header, next != end);
}

/* receive.c: what the peer has written to our ring. Every field is read once, then checked,
 * since the peer can rewrite the ring at any time; a field out of place ends the connection, and
 * that alone.
 */
#include "base/probe.h"
#include "rpc/internal.h"
#include "rpc/lasting.h"
#include "rpc/run.h"

/* ---- Arrival --------------------------------------------------------------------------------- */

/* In the noted length of a batch: it is the first one in the larger ring. */
#define ARRIVAL_MOVED 1u

/* False if the connection has ended over it. */
static inline bool count_arrival(struct rpc_endpoint *endpoint, uint64_t bytes)
{
    /* Those begun or held count, too, until a limit that was published says otherwise. A YIELD makes that lower. */
    if (unlikely((int32_t)(endpoint->in.arrivals_tail - (uint32_t)endpoint->in.batch_published) >=
                 0)) {
        link_violated(&endpoint->link, "%s", "more batches came than its window allows");
        return false;
    }
    endpoint->in.arrived += bytes;
    endpoint->link.heard++;
    endpoint->stats.batches_received++;
    endpoint->stats.bytes_received += bytes;
    return true;
}

static inline void note_length(struct rpc_endpoint *endpoint, uint32_t length)
{
    endpoint->in.arrivals[endpoint->in.arrivals_tail++ & endpoint->in.arrivals_mask] = length;
}

static inline void note_arrival(struct rpc_endpoint *endpoint, uint32_t length)
{
    note_length(endpoint, length);
    list_append_once(&endpoint->engine->ready, &endpoint->ready_link);
}

/* What does not fit the ring may be the first batch in the larger one. Then it is noted. */
static __attribute__((cold, noinline)) void arrives_elsewhere(struct rpc_endpoint *endpoint,
                                                              uint32_t units)
{
    const uint64_t bytes = (uint64_t)(units & ~WIRE_IMMEDIATE_MOVED) * WIRE_UNIT_BYTES;
    if (!(units & WIRE_IMMEDIATE_MOVED) || !rpc_grow_arrival(endpoint, bytes)) {
        link_violated(&endpoint->link, "%s", "a batch does not fit the ring");
    } else if (count_arrival(endpoint, bytes)) {
        note_arrival(endpoint, (uint32_t)bytes | ARRIVAL_MOVED);
    }
}

/* False if the connection has ended over it, or it was noted. */
static inline bool admit(struct rpc_endpoint *endpoint, uint64_t bytes)
{
    if (unlikely(bytes < WIRE_BATCH_HEADER_BYTES ||
                 endpoint->in.arrived - endpoint->in.released + bytes > endpoint->in.capacity)) {
        arrives_elsewhere(endpoint, (uint32_t)(bytes / WIRE_UNIT_BYTES));
        return false;
    }
    return count_arrival(endpoint, bytes);
}

void endpoint_arrival(struct rpc_endpoint *endpoint, uint32_t units)
{
    probe2(batch_received, endpoint->link.handle, units);
    const uint64_t bytes = (uint64_t)units * WIRE_UNIT_BYTES;
    if (likely(admit(endpoint, bytes))) {
        note_arrival(endpoint, (uint32_t)bytes);
    }
}

void endpoint_arrival_early(struct rpc_endpoint *endpoint, uint32_t units)
{
    probe2(batch_received, endpoint->link.handle, units);
    const uint64_t bytes = (uint64_t)units * WIRE_UNIT_BYTES;
    if (admit(endpoint, bytes)) {
        note_length(endpoint, (uint32_t)bytes);
    }
}

/* ---- Batches --------------------------------------------------------------------------------- */

/* A batch's header as it was when it was read. */
struct batch_header {
    uint64_t request_limit;
    uint64_t batch_limit;
    uint64_t sequence_and_bytes;
    uint64_t count_and_flags; /* and what is returned */
};

/* What is said of the peer's arena is zero in it, unless that is new. */
static inline struct batch_header load_batch_header(const struct rpc_endpoint *endpoint,
                                                    const uint8_t *place)
{
    const uint64_t *words = (const uint64_t *)(const void *)place;
    return (struct batch_header){.request_limit = wire_load(&words[0]),
                                 .batch_limit = wire_load(&words[1]),
                                 .sequence_and_bytes = wire_load(&words[2]),
                                 .count_and_flags = wire_load(&words[3]) ^ endpoint->out.heard};
}

/* Most have these bytes, are next in the sequence, and have messages and no flags. */
static inline bool batch_plain(const struct rpc_endpoint *endpoint, uint64_t sequence_and_bytes,
                               uint64_t count_and_flags, uint32_t bytes)
{
    return sequence_and_bytes == (endpoint->in.sequence_expected | (uint64_t)bytes << 32) &&
           count_and_flags - 1 < WIRE_MESSAGES_MAX;
}

static const char grants_too_much[] = "a batch grants more than there is";

/* One that is not plain may be one with FIN. Otherwise returns what is wrong with it. */
static __attribute__((cold, noinline)) const char *batch_fault(const struct rpc_endpoint *endpoint,
                                                               uint64_t sequence_and_bytes,
                                                               uint64_t count_and_flags,
                                                               uint32_t bytes)
{
    const uint16_t message_count = (uint16_t)count_and_flags;
    const uint64_t flags = count_and_flags >> 16;
    if (sequence_and_bytes >> 32 != bytes) {
        return "a batch's length is not that of its immediate";
    }
    if ((uint32_t)sequence_and_bytes != endpoint->in.sequence_expected) {
        return "a batch is out of sequence";
    }
    if (flags & ~(uint64_t)WIRE_BATCH_FIN) {
        return "a batch has reserved bits set";
    }
    if (message_count == 0 && !(flags && bytes == WIRE_BATCH_HEADER_BYTES)) {
        return "a batch is empty";
    }
    return endpoint->in.fin != FIN_NONE ? "it took leave twice" : NULL;
}

static inline void begin(struct rpc_endpoint *endpoint, uint64_t count_and_flags, uint32_t bytes)
{
    endpoint->in.sequence_expected++;
    endpoint->in.batch_left = (uint16_t)count_and_flags;
    endpoint->in.batch_end = endpoint->in.parsed + bytes;
    endpoint->in.parsed += WIRE_BATCH_HEADER_BYTES;
}

/* A batch that is not as most are: it has FIN, or comes behind one that has, or returns places of an arena. False if the connection has ended over it. */
static __attribute__((cold, noinline)) bool begin_odd(struct rpc_endpoint *endpoint, uint32_t bytes,
                                                      uint64_t request_limit, uint64_t batch_limit,
                                                      uint64_t sequence_and_bytes,
                                                      uint64_t count_and_flags)
{
    const char *fault = NULL;
    if (count_and_flags >> 32) {
        fault = rpc_arena_hear(endpoint, (uint32_t)((count_and_flags ^ endpoint->out.heard) >> 32));
        count_and_flags = (uint32_t)count_and_flags;
    }
    const bool plain = batch_plain(endpoint, sequence_and_bytes, count_and_flags, bytes);
    if (!fault && !plain) {
        fault = batch_fault(endpoint, sequence_and_bytes, count_and_flags, bytes);
    }
    if (!fault && !endpoint_merge_limits(endpoint, request_limit, batch_limit)) {
        fault = grants_too_much;
    }
    if (fault) {
        link_violated(&endpoint->link, "%s", fault);
        return false;
    }
    begin(endpoint, count_and_flags, bytes);
    if (endpoint->in.fin != FIN_NONE) {
        endpoint->in.fin = FIN_BEFORE;
    }
    if (!plain) { /* then it has FIN */
        endpoint->in.fin = FIN_WITH_BATCH;
        endpoint->in.held_batches += endpoint->in.batch_left == 0;
        endpoint_leave(endpoint);
    }
    return true;
}

/* In registers. */
static inline bool begin_unusual(struct rpc_endpoint *endpoint, const struct batch_header *header,
                                 uint32_t bytes)
{
    return begin_odd(endpoint, bytes, header->request_limit, header->batch_limit,
                     header->sequence_and_bytes, header->count_and_flags);
}

/* Most are. Otherwise nothing has been done. */
static inline bool usual(const struct rpc_endpoint *endpoint, const struct batch_header *header,
                         uint32_t bytes)
{
    return likely(
        batch_plain(endpoint, header->sequence_and_bytes, header->count_and_flags, bytes) &&
        endpoint->in.fin == FIN_NONE);
}

/* Merges the limits in the header of a usual batch. False if the connection has ended over them. */
static inline bool take_limits(struct rpc_endpoint *endpoint, const struct batch_header *header)
{
    if (unlikely(!endpoint_merge_limits(endpoint, header->request_limit, header->batch_limit))) {
        link_violated(&endpoint->link, "%s", grants_too_much);
        return false;
    }
    return true;
}

/* Checks the header of the next batch, which has been read; false if the connection has ended over it. */
static inline bool begin_read(struct rpc_endpoint *endpoint, const struct batch_header *header,
                              uint32_t bytes)
{
    if (!usual(endpoint, header, bytes)) {
        return begin_unusual(endpoint, header, bytes);
    }
    if (!take_limits(endpoint, header)) {
        return false;
    }
    begin(endpoint, header->count_and_flags, bytes);
    return true;
}

/* Reads and checks the header of the next batch; false if the connection has ended over it. */
static bool begin_batch(struct rpc_endpoint *endpoint)
{
    uint32_t bytes =
        endpoint->in.arrivals[endpoint->in.arrivals_head++ & endpoint->in.arrivals_mask];
    if (unlikely(bytes & ARRIVAL_MOVED)) {
        bytes &= ~ARRIVAL_MOVED;
        rpc_grow_swap(endpoint);
    }
    const struct batch_header header =
        load_batch_header(endpoint, ring_at(&endpoint->in.ring, endpoint->in.parsed));
    return begin_read(endpoint, &header, bytes);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Why a request is not to be had. */
static __attribute__((cold, noinline)) const char *
request_fault(const struct rpc_endpoint *endpoint, struct rpc_header header)
{
    if (endpoint->in.request_arrived + wire_charge(header.payload_bytes) >
        endpoint->in.request_published) {
        return "its requests exceed their limit";
    }
    if (endpoint->owed.allowance + wire_charge(header.limit_or_status) >
        endpoint->owed.allowance_max) {
        return "its requests ask for more reply than its ring holds";
    }
    return endpoint->in.fin == FIN_BEFORE ? "a request came after it took leave"
                                          : "a call id is out of range or in use";
}

/* Whoever knows that it has not taken leave before need not ask request_good. */
static inline bool request_fits(const struct rpc_endpoint *endpoint,
                                const struct rpc_header *header)
{
    const uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    return likely(endpoint->in.request_arrived + wire_charge(header->payload_bytes) <=
                      endpoint->in.request_published &&
                  endpoint->owed.allowance + wire_charge(header->limit_or_status) <=
                      endpoint->owed.allowance_max &&
                  index < endpoint->owed.slot_count &&
                  endpoint->owed.slots[index].reply_bytes_bound == 0);
}

static inline bool request_good(const struct rpc_endpoint *endpoint,
                                const struct rpc_header *header)
{
    return request_fits(endpoint, header) && likely(endpoint->in.fin != FIN_BEFORE);
}

/* What requests and responses have alike. Field by field: where there is an initialiser, the compiler writes zeros first, and then the
 * fields. */
static inline void complete(const struct rpc_endpoint *endpoint, crpc_completion *completion,
                            uint8_t kind, uint16_t method, const uint8_t *payload,
                            uint64_t payload_bytes)
{
    completion->kind = kind;
    completion->flags = 0;
    completion->method = method;
    completion->endpoint.bits = endpoint->link.handle;
    completion->payload = (uint64_t)(uintptr_t)payload;
    completion->payload_bytes = (uint32_t)payload_bytes;
    completion->view = endpoint->engine->epoch;
    completion->endpoint_user_data = endpoint->user_data;
}

/* Takes a good one. */
static inline void accept_request(struct rpc_endpoint *endpoint, const struct rpc_header *header,
                                  const uint8_t *payload, crpc_completion *completion)
{
    const uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    const uint64_t charge = wire_charge(header->payload_bytes);
    const uint64_t allowance = wire_charge(header->limit_or_status);
    /* The sequence counts from 1, and skips 0 when it wraps. */
    if (unlikely(++endpoint->owed.token_sequence == 0)) {
        endpoint->owed.token_sequence = 1;
        __asm__ volatile(""); /* otherwise this is no branch, and takes 3 instructions more */
    }
    uint64_t token = (uint64_t)endpoint->owed.token_sequence << 32 | header->call_id;
    struct rpc_request *request = &endpoint->owed.slots[index];
    request->token = token;
    request->reply_bytes_bound = (uint32_t)header->limit_or_status + 1;
    request->allowance = (uint32_t)allowance;
    endpoint->owed.count++;
    endpoint->owed.allowance += allowance;
    endpoint->in.request_arrived += charge;
    endpoint->stats.requests++;
    completion->status = CRPC_OK;
    completion->user_data = rpc_header_time_ns(*header);
    completion->token = token;
    completion->reply_bytes_max = (uint32_t)header->limit_or_status;
    complete(endpoint, completion, CRPC_COMPLETION_REQUEST, rpc_header_method(*header), payload,
             header->payload_bytes);
}

static inline enum rpc_last kind_of_request(struct rpc_header header)
{
    return rpc_header_kind(header) == WIRE_REQUEST ? LAST_REQUEST : LAST_TIMED_REQUEST;
}

static inline const char *take_request(struct rpc_endpoint *endpoint,
                                       const struct rpc_header *header, const uint8_t *payload,
                                       crpc_completion *completion)
{
    if (!request_good(endpoint, header)) {
        return request_fault(endpoint, *header);
    }
    accept_request(endpoint, header, payload, completion);
    return NULL;
}

/* Why a response is not to be had. */
static __attribute__((cold, noinline)) const char *
response_fault(const struct rpc_endpoint *endpoint, struct rpc_header header)
{
    uint32_t index = header.call_id & WIRE_CALL_INDEX_MASK;
    if (index > endpoint->calls.index_mask) {
        return index < endpoint->calls.max ? "a response answers no call"
                                           : "a response's call id is out of range";
    }
    const struct rpc_call *call = &endpoint->calls.slots[index];
    if (call->state == CALL_FREE || call->state == CALL_ANSWERED ||
        call->call_id != header.call_id) {
        return "a response answers no call";
    }
    if (header.payload_bytes > call->reply_bytes_max) {
        return "a response is longer than was allowed";
    }
    return rpc_header_method(header) != 0 ? "a response has reserved bits set"
                                          : "a response's status is reserved";
}

/* The response of a call that has ended before it. */
static __attribute__((cold, noinline)) void late_response(struct rpc_call *call)
{
    call->endpoint->stats.late_responses++;
    if (call->state == CALL_ENDED) {
        call->state = CALL_ANSWERED; /* its completion is still to be given */
    } else {
        list_remove(&call->timer.link); /* the peer needs no telling */
        call_free(call->endpoint, call);
    }
}

/* What an unsuccessful response means. Returns false if its call waits for another connection: it was not started. */
static __attribute__((cold, noinline)) bool accept_failure(struct rpc_endpoint *endpoint,
                                                           struct rpc_call *call, int32_t status)
{
    if (endpoint->lasting && rpc_lasting_drop(endpoint->lasting, call, status)) {
        call_free(endpoint, call);
        return false;
    }
    endpoint->stats.calls_failed++;
    probe4(call_failed, endpoint->link.handle, call->method, status,
           metrics_user_data(endpoint->engine->metrics, call->user_data));
    return true;
}

/* Takes the response of a call that has not ended. Returns whether *completion is one. */
static inline bool accept_response(struct rpc_endpoint *endpoint, struct rpc_call *call,
                                   const struct rpc_header *header, const uint8_t *payload,
                                   crpc_completion *completion)
{
    const int32_t status = (int32_t)header->limit_or_status;
    endpoint->in.held_allowance += call->allowance;
    endpoint->calls.live--;
    if (unlikely(status < 0)) {
        if (!accept_failure(endpoint, call, status)) {
            return false;
        }
    } else {
        endpoint->stats.responses++;
    }
    completion->status = status;
    completion->user_data = call->user_data;
    completion->token = 0;
    completion->reply_bytes_max = 0;
    complete(endpoint, completion, CRPC_COMPLETION_RESPONSE, call->method, payload,
             header->payload_bytes);
    call_free(endpoint, call);
    return true;
}

/* What a response can say that is no status of the application's. */
static inline bool failure_possible(const struct rpc_endpoint *endpoint, int32_t status)
{
    return status == CRPC_E_DROPPED ||
           (status == CRPC_E_NOT_STARTED && rpc_deadlines_selected(endpoint));
}

/* *given: whether *completion is one. */
static inline const char *take_response(struct rpc_endpoint *endpoint,
                                        const struct rpc_header *header, const uint8_t *payload,
                                        crpc_completion *completion, bool *given)
{
    uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    int32_t status = (int32_t)header->limit_or_status;
    struct rpc_call *call = &endpoint->calls.slots[index];
    if (unlikely(index > endpoint->calls.index_mask || call->call_id != header->call_id ||
                 call->state == CALL_FREE || call->state == CALL_ANSWERED ||
                 header->payload_bytes > call->reply_bytes_max || rpc_header_method(*header) != 0 ||
                 (status < 0 && !failure_possible(endpoint, status)))) {
        return response_fault(endpoint, *header);
    }
    *given = likely(call_live(call));
    if (!*given) {
        endpoint->in.held_allowance += call->allowance;
        late_response(call);
        return NULL;
    }
    if (call->state == CALL_TIMED) {
        wheel_clear(&endpoint->engine->links.wheel, &call->timer);
    }
    *given = accept_response(endpoint, call, header, payload, completion);
    return NULL;
}

/* A message whose payload is in this side's arena. It is taken as one whose payload is what says where. */
static const char *take_placed(struct rpc_endpoint *endpoint, struct rpc_header header,
                               const uint8_t *place, struct output *output)
{
    struct wire_place word;
    uint64_t address;
    bool given = true;
    if (header.payload_bytes != sizeof(word)) {
        return "what says where a payload is has another length";
    }
    wire_copy(&word, place + WIRE_HEADER_BYTES);
    const char *fault = rpc_arena_take(endpoint, &word, &address);
    if (fault) {
        return fault;
    }
    const uint8_t *payload = (const uint8_t *)(uintptr_t)address;
    if (rpc_header_is(endpoint, header, WIRE_REQUEST_PLACED)) {
        fault = take_request(endpoint, &header, payload, output->next);
    } else {
        header.payload_bytes = word.bytes; /* takes no part in limits */
        fault = take_response(endpoint, &header, payload, output->next, &given);
    }
    if (fault) {
        return fault;
    }
    if (!given) {
        rpc_arena_return(endpoint, word.place);
        return NULL;
    }
    endpoint->stats.bytes_received += word.bytes;
    output->next->flags = CRPC_COMPLETION_PLACED;
    output->next->payload_bytes = word.bytes;
    output->next++;
    return NULL;
}

/* Why the message that is parsed next is no word or placed message, or not a good one; *bytes: what it takes. */
static const char *word_fault(struct rpc_endpoint *endpoint, uint64_t *bytes, struct output *output)
{
    const uint8_t *place = ring_at(&endpoint->in.ring, endpoint->in.parsed);
    const uint64_t bytes_left = endpoint->in.batch_end - endpoint->in.parsed;
    const struct rpc_header header = rpc_load_header(place);
    *bytes = wire_message_bytes(header.payload_bytes);
    if (*bytes > bytes_left || (endpoint->in.batch_left == 1 && *bytes != bytes_left)) {
        return "messages do not fill their batch";
    }
    const uint16_t kind = rpc_header_kind(header);
    if (rpc_header_is(endpoint, header, WIRE_REQUEST_PLACED) || kind == WIRE_RESPONSE_PLACED) {
        return take_placed(endpoint, header, place, output);
    }
    if (kind >> 8) {
        return "a message has reserved bits set";
    }
    if (kind == WIRE_ABANDONED && rpc_deadlines_selected(endpoint)) {
        bool given = false;
        const char *fault = rpc_abandon_take_word(endpoint, &header, output->next, &given);
        output->next += given;
        return fault;
    }
    if (kind == WIRE_TRACE && rpc_traces_selected(endpoint)) {
        return rpc_trace_take_word(endpoint, &header, place + WIRE_HEADER_BYTES);
    }
    if ((endpoint->lane.lane || kind >= WIRE_WANT) &&
        (header.call_id | header.limit_or_status | rpc_header_method(header))) {
        return "a word has reserved bits set";
    }
    return (kind >= WIRE_WANT ? rpc_grow_take_word : rpc_lane_take_word)(
        endpoint, kind, place + WIRE_HEADER_BYTES, header.payload_bytes);
}

/* What is neither request nor response may be a word, or one of both whose payload is placed. Its header is loaded anew: a
 * call from the loop that parses the others would cost each of them. The output has room. False if the connection has ended
 * over it. */
static __attribute__((cold, noinline)) bool take_word(struct rpc_endpoint *endpoint,
                                                      struct output *output)
{
    uint64_t bytes;
    const char *fault = word_fault(endpoint, &bytes, output);
    if (fault) {
        link_violated(&endpoint->link, "%s", fault);
        return false;
    }
    endpoint->in.parsed += bytes;
    endpoint->in.batch_left--;
    endpoint->in.held_batches += endpoint->in.batch_left == 0;
    return true;
}

static const char a_word[] = "neither request nor response";

/* Takes a message, whose length is right. *given: whether *completion is one. */
static inline __attribute__((always_inline)) const char *
take_message(struct rpc_endpoint *endpoint, const struct rpc_header *header, const uint8_t *place,
             crpc_completion *completion, bool *given)
{
    const uint8_t *payload = place + WIRE_HEADER_BYTES;
    *given = true;
    if (rpc_header_kind(*header) == WIRE_RESPONSE) {
        endpoint->in.last = LAST_RESPONSE;
        return take_response(endpoint, header, payload, completion, given);
    }
    if (likely(rpc_header_is(endpoint, *header, WIRE_REQUEST))) {
        endpoint->in.last = kind_of_request(*header);
        return take_request(endpoint, header, payload, completion);
    }
    return a_word;
}

/* False if the connection has ended over what was no good message. */
static __attribute__((cold, noinline)) bool after_fault(struct rpc_endpoint *endpoint,
                                                        const char *fault, struct output *output)
{
    if (fault == a_word) {
        return take_word(endpoint, output);
    }
    link_violated(&endpoint->link, "%s", fault);
    return false;
}

static const char no_fit[] = "messages do not fill their batch";

/* Parses messages of the batch, up to its last one, until the output is full; false if the connection has
 * ended over one. */
static __attribute__((noinline)) bool take_messages(struct rpc_endpoint *endpoint,
                                                    struct output *output)
{
    struct rpc_cursor cursor = {
        .place = ring_at(&endpoint->in.ring, endpoint->in.parsed),
        .bytes_left = endpoint->in.batch_end - endpoint->in.parsed,
        .messages_left = endpoint->in.batch_left,
        .next = output->next,
        .end = output->end,
    };
    const char *fault = NULL;
    for (;;) {
        /* A guess, so that no header is loaded to see. */
        if (endpoint->in.last == LAST_REQUEST) {
            rpc_take_requests(endpoint, &cursor);
        } else if (endpoint->in.last == LAST_TIMED_REQUEST) {
            rpc_take_timed_requests(endpoint, &cursor);
        } else {
            rpc_take_responses(endpoint, &cursor);
        }
        if (cursor.messages_left == 1 || cursor.next == cursor.end) {
            break;
        }
        const struct rpc_header header =
            cursor.loaded ? cursor.header : rpc_load_header(cursor.place);
        const uint64_t bytes = wire_message_bytes(header.payload_bytes);
        bool given;
        fault = unlikely(bytes > cursor.bytes_left)
                    ? no_fit
                    : take_message(endpoint, &header, cursor.place, cursor.next, &given);
        if (unlikely(fault)) {
            break;
        }
        cursor.next += given;
        cursor.place += bytes;
        cursor.bytes_left -= bytes;
        cursor.messages_left--;
    }
    output->next = cursor.next;
    endpoint->in.parsed = endpoint->in.batch_end - cursor.bytes_left;
    endpoint->in.batch_left = cursor.messages_left;
    return likely(!fault) || after_fault(endpoint, fault, output);
}

static inline void end_batch(struct rpc_endpoint *endpoint)
{
    endpoint->in.parsed = endpoint->in.batch_end;
    endpoint->in.batch_left = 0;
    endpoint->in.held_batches++;
}

/* Likewise the last message of the batch, which must fill what is left of it. */
static inline bool take_last_message(struct rpc_endpoint *endpoint, struct output *output)
{
    const uint8_t *place = ring_at(&endpoint->in.ring, endpoint->in.parsed);
    const struct rpc_header header = rpc_load_header(place);
    const uint64_t bytes = wire_message_bytes(header.payload_bytes);
    bool given;
    const char *fault = unlikely(endpoint->in.parsed + bytes != endpoint->in.batch_end)
                            ? no_fit
                            : take_message(endpoint, &header, place, output->next, &given);
    if (unlikely(fault)) {
        return after_fault(endpoint, fault, output);
    }
    output->next += given;
    end_batch(endpoint);
    return true;
}

/* Parses until the output is full or nothing is left; true if something is. */
static bool parse(struct rpc_endpoint *endpoint, struct output *output)
{
    while (!output_full(output)) {
        if (endpoint->in.batch_left == 0 &&
            (endpoint->in.arrivals_head == endpoint->in.arrivals_tail || !begin_batch(endpoint))) {
            return false;
        }
        if (endpoint->in.batch_left > 1 && !take_messages(endpoint, output)) {
            return false;
        }
        if (endpoint->in.batch_left == 1 && !output_full(output) &&
            !take_last_message(endpoint, output)) {
            return false;
        }
    }
    return endpoint->in.batch_left > 0 || endpoint->in.arrivals_head != endpoint->in.arrivals_tail;
}

void engine_emit_arrivals(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->ready) && !output_full(output)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->ready.next, struct rpc_endpoint, ready_link);
        list_remove(&endpoint->ready_link);
        if (!chain_linked(&endpoint->release_link)) {
            chain_push(&engine->release, &endpoint->release_link);
        }
        if (parse(endpoint, output)) {
            /* At the end of the queue: the others' turn comes first in the next poll. */
            list_append(&engine->ready, &endpoint->ready_link);
        } else if (unlikely(endpoint->leave == LEAVE_SAID)) {
            endpoint_check_left(endpoint);
        }
        if (unlikely(endpoint->in.held_batches > endpoint->in.batch_window / 2)) {
            rpc_lend(endpoint);
        }
    }
}

/* A batch that came alone has begun, and is not of one message. Returns what the poll does. */
static __attribute__((noinline)) uint32_t
parse_alone(struct rpc_endpoint *endpoint, crpc_completion *completions, uint32_t capacity)
{
    struct rpc_engine *engine = endpoint->engine;
    struct output output = {.next = completions, .end = completions + capacity};
    if (parse(endpoint, &output)) {
        list_append(&engine->ready, &endpoint->ready_link);
    } else if (unlikely(endpoint->leave == LEAVE_SAID)) {
        endpoint_check_left(endpoint);
    }
    return rpc_poll_late(engine, completions, (uint32_t)(output.next - completions), capacity);
}

/* A message by itself that is not as most are; what its header says is read already: its words. */
static __attribute__((noinline)) uint32_t take_odd(struct rpc_endpoint *endpoint, uint64_t low,
                                                   uint64_t high, const uint8_t *place,
                                                   crpc_completion *completions, uint32_t capacity)
{
    const struct rpc_header header = {.payload_bytes = (uint32_t)low,
                                      .call_id = low >> 32,
                                      .limit_or_status = (uint32_t)high,
                                      .method_and_kind = high >> 32};
    struct rpc_engine *engine = endpoint->engine;
    bool given;
    const uint32_t bytes = (uint32_t)(endpoint->in.arrived - endpoint->in.parsed);
    const char *fault = take_message(endpoint, &header, place, completions, &given);
    begin(endpoint, 1, bytes);
    if (unlikely(fault)) {
        struct output output = {.next = completions, .end = completions + 1};
        after_fault(endpoint, fault, &output);
        given = output.next != completions;
    } else {
        end_batch(endpoint);
    }
    if (unlikely(endpoint->leave == LEAVE_SAID)) {
        endpoint_check_left(endpoint);
    }
    return rpc_poll_late(engine, completions, given, capacity);
}

static inline uint64_t low_word(struct rpc_header header)
{
    return header.payload_bytes | header.call_id << 32;
}

static inline uint64_t high_word(struct rpc_header header)
{
    return header.limit_or_status | header.method_and_kind << 32;
}

/* The call that a response without a deadline, a failure or reserved bits answers; otherwise NULL. */
static inline struct rpc_call *plain_call(const struct rpc_endpoint *endpoint,
                                          const struct rpc_header *header)
{
    /* A call id has the slot of its index, if it is one of a live call: then all of it is compared. */
    struct rpc_call *call = &endpoint->calls.slots[header->call_id & endpoint->calls.index_mask];
    uint64_t word;
    memcpy(&word, &call->call_id, sizeof(word)); /* and the state, CALL_LIVE */
    return likely(word == header->call_id && header->payload_bytes <= call->reply_bytes_max &&
                  (int32_t)header->limit_or_status >= 0)
               ? call
               : NULL;
}

/* The connection has ended over what came alone. */
static __attribute__((cold, noinline)) uint32_t end_alone(struct rpc_endpoint *endpoint,
                                                          const char *fault,
                                                          crpc_completion *completions,
                                                          uint32_t capacity)
{
    struct rpc_engine *engine = endpoint->engine;
    link_violated(&endpoint->link, "%s", fault);
    return rpc_poll_late(engine, completions, 0, capacity);
}

/* The batch is not one of a single message, as most that come alone are. What was not needed to see that is not read yet. */
static __attribute__((noinline)) uint32_t
begin_alone(struct rpc_endpoint *endpoint, const uint8_t *place, uint64_t sequence_and_bytes,
            uint64_t count_and_flags, crpc_completion *completions, uint32_t capacity)
{
    const uint64_t *words = (const uint64_t *)(const void *)place;
    const struct batch_header header = {.request_limit = wire_load(&words[0]),
                                        .batch_limit = wire_load(&words[1]),
                                        .sequence_and_bytes = sequence_and_bytes,
                                        .count_and_flags = count_and_flags};
    struct rpc_engine *engine = endpoint->engine;
    const uint32_t bytes = (uint32_t)(endpoint->in.arrived - endpoint->in.parsed);
    return begin_read(endpoint, &header, bytes) ? parse_alone(endpoint, completions, capacity)
                                                : rpc_poll_late(engine, completions, 0, capacity);
}

/* The batch of a lone call is in no queue and on no list: it is checked, and its message is taken, in one go, which is 175
 * instructions less. What is in it is read once, here as elsewhere, also if another takes it. */
uint32_t endpoint_arrival_alone(struct rpc_endpoint *endpoint, uint32_t units,
                                crpc_completion *completions, uint32_t capacity)
{
    struct rpc_in *in = &endpoint->in;
    struct rpc_out *out = &endpoint->out;
    const uint64_t bytes = (uint64_t)units * WIRE_UNIT_BYTES;
    probe2(batch_received, endpoint->link.handle, units);
    assert(list_empty(&endpoint->engine->ready) && in->batch_left == 0 &&
           in->arrivals_head == in->arrivals_tail && rpc_nothing_odd(endpoint) && capacity > 0);
    if (unlikely(!admit(endpoint, bytes))) {
        return rpc_poll_late(endpoint->engine, completions, 0, capacity);
    }
    in->arrivals_tail++;
    store_first();
    in->arrivals_head++;
    chain_push(&endpoint->engine->release, &endpoint->release_link);
    store_first();
    const uint8_t *place = ring_at(&in->ring, in->parsed);
    const uint64_t *words = (const uint64_t *)(const void *)place;
    const uint64_t sequence_and_bytes = wire_load(&words[2]);
    const uint64_t count_and_flags = wire_load(&words[3]) ^ out->heard;
    if (unlikely(sequence_and_bytes != (in->sequence_expected | bytes << 32) ||
                 count_and_flags != 1)) {
        return begin_alone(endpoint, place, sequence_and_bytes, count_and_flags, completions,
                           capacity);
    }
    const uint64_t request_limit = wire_load(&words[0]), batch_limit = wire_load(&words[1]);
    if (unlikely(!rpc_limits_possible(endpoint, request_limit, batch_limit))) {
        return end_alone(endpoint, grants_too_much, completions, capacity);
    }
    /* Nobody waits for more, but for words about abandoned calls: the timer of a READ looks after these. */
    if (request_limit > out->request_limit) {
        out->request_limit = request_limit;
    }
    if (batch_limit > out->batch_limit) {
        out->batch_limit = batch_limit;
    }
    store_first();
    place += WIRE_BATCH_HEADER_BYTES;
    const struct rpc_header header = rpc_load_header(place);
    if (unlikely(wire_charge(header.payload_bytes) != bytes)) {
        begin(endpoint, 1, (uint32_t)bytes);
        return end_alone(endpoint, no_fit, completions, capacity);
    }
    if (header.method_and_kind == WIRE_RESPONSE << 16) {
        struct rpc_call *call = plain_call(endpoint, &header);
        if (unlikely(!call)) {
            return take_odd(endpoint, low_word(header), high_word(header), place, completions,
                            capacity);
        }
        in->last = LAST_RESPONSE;
        const bool given =
            accept_response(endpoint, call, &header, place + WIRE_HEADER_BYTES, completions);
        assert(given); /* nothing is taken back while neither side leaves */
        (void)given;
    } else {
        if (unlikely(!rpc_header_is(endpoint, header, WIRE_REQUEST)) ||
            !request_fits(endpoint, &header)) {
            return take_odd(endpoint, low_word(header), high_word(header), place, completions,
                            capacity);
        }
        store_first();
        in->last = kind_of_request(header);
        accept_request(endpoint, &header, place + WIRE_HEADER_BYTES, completions);
    }
    in->sequence_expected++;
    in->parsed += bytes;
    in->held_batches++;
    if (unlikely(endpoint->engine->links.wheel.count != 0)) {
        return rpc_poll_late(endpoint->engine, completions, 1, capacity);
    }
    return 1;
}

/* ---- Views ------------------------------------------------------------------------------------ */

static bool view_lies_in(const struct ring *ring, const crpc_completion *completion)
{
    uint64_t start = (uint64_t)(uintptr_t)ring->address;
    uint64_t bytes = 2 * ring->bytes;
    uint64_t offset = completion->payload - start;
    return ring->address && offset <= bytes && completion->payload_bytes <= bytes - offset;
}

bool rpc_view_valid(const struct rpc_endpoint *endpoint, const crpc_completion *completion)
{
    if (completion->flags & CRPC_COMPLETION_PLACED) {
        return rpc_arena_holds(endpoint, completion->payload, completion->payload_bytes);
    }
    return completion->view == endpoint->engine->epoch &&
           (view_lies_in(&endpoint->in.ring, completion) ||
            view_lies_in(&endpoint->grow.old, completion));
}

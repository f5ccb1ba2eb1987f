/* receive.c: what the peer has written to our ring. Every field is read once, then checked,
 * since the peer can rewrite the ring at any time; a field out of place ends the connection, and
 * that alone.
 */
#include "rpc/internal.h"
#include "rpc/run.h"

#include <stdatomic.h>

/* ---- Arrival --------------------------------------------------------------------------------- */

void endpoint_arrival(struct rpc_endpoint *endpoint, uint32_t units)
{
    uint64_t bytes = (uint64_t)units * WIRE_UNIT_BYTES;
    if (unlikely(bytes < WIRE_BATCH_HEADER_BYTES ||
                 endpoint->in.arrived - endpoint->in.released + bytes > endpoint->in.ring.bytes)) {
        link_violated(&endpoint->link, "%s", "a batch does not fit the ring");
        return;
    }
    /* Those begun or held count, too, until a limit that was published says otherwise. */
    if (unlikely(endpoint->in.arrivals_tail == (uint32_t)endpoint->in.batch_published)) {
        link_violated(&endpoint->link, "%s", "more batches came than its window allows");
        return;
    }
    endpoint->in.arrivals[endpoint->in.arrivals_tail++ & endpoint->in.arrivals_mask] =
        (uint32_t)bytes;
    endpoint->in.arrived += bytes;
    endpoint->link.heard++;
    endpoint->stats.batches_received++;
    endpoint->stats.bytes_received += bytes;
    list_append_once(&endpoint->engine->ready, &endpoint->ready_link);
}

/* ---- Batches --------------------------------------------------------------------------------- */

/* A batch's header as it was when it was read. */
struct batch_header {
    uint64_t request_limit;
    uint64_t batch_limit;
    uint64_t sequence_and_bytes;
    uint64_t count_and_flags; /* and zero */
};

static inline struct batch_header load_batch_header(const uint8_t *place)
{
    static_assert(offsetof(struct wire_batch, batch_limit) == 8 &&
                      offsetof(struct wire_batch, sequence) == 16 &&
                      offsetof(struct wire_batch, bytes) == 20 &&
                      offsetof(struct wire_batch, message_count) == 24 &&
                      offsetof(struct wire_batch, flags) == 26,
                  "the words of a batch's header");
    const uint64_t *words = (const uint64_t *)(const void *)place;
    return (struct batch_header){.request_limit = wire_load(&words[0]),
                                 .batch_limit = wire_load(&words[1]),
                                 .sequence_and_bytes = wire_load(&words[2]),
                                 .count_and_flags = wire_load(&words[3])};
}

/* Most have these bytes, are next in the sequence, and have messages and no flags. */
static inline bool batch_plain(const struct rpc_endpoint *endpoint,
                               const struct batch_header *header, uint32_t bytes)
{
    return header->sequence_and_bytes == (endpoint->in.sequence_expected | (uint64_t)bytes << 32) &&
           header->count_and_flags - 1 < WIRE_MESSAGES_MAX;
}

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

/* Reads and checks the header of the next batch; false if the connection has ended over it. */
static bool begin_batch(struct rpc_endpoint *endpoint)
{
    const uint32_t bytes =
        endpoint->in.arrivals[endpoint->in.arrivals_head++ & endpoint->in.arrivals_mask];
    const struct batch_header header =
        load_batch_header(ring_at(&endpoint->in.ring, endpoint->in.parsed));
    const bool plain = likely(batch_plain(endpoint, &header, bytes));
    const char *fault =
        plain ? NULL
              : batch_fault(endpoint, header.sequence_and_bytes, header.count_and_flags, bytes);
    if (likely(!fault) &&
        unlikely(!endpoint_merge_limits(endpoint, header.request_limit, header.batch_limit))) {
        fault = "a batch grants more than there is";
    }
    if (unlikely(fault)) {
        link_violated(&endpoint->link, "%s", fault);
        return false;
    }
    endpoint->in.sequence_expected++;
    endpoint->in.batch_left = (uint16_t)header.count_and_flags;
    endpoint->in.batch_end = endpoint->in.parsed + bytes;
    endpoint->in.parsed += WIRE_BATCH_HEADER_BYTES;
    if (unlikely(endpoint->in.fin != FIN_NONE)) {
        endpoint->in.fin = FIN_BEFORE;
    }
    if (unlikely(!plain)) { /* then it has FIN */
        endpoint->in.fin = FIN_WITH_BATCH;
        endpoint->in.held_batches += endpoint->in.batch_left == 0;
        endpoint_leave(endpoint);
    }
    return true;
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

static inline const char *take_request(struct rpc_endpoint *endpoint,
                                       const struct rpc_header *header, const uint8_t *payload,
                                       crpc_completion *completion)
{
    uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    uint64_t charge = wire_charge(header->payload_bytes);
    uint64_t allowance = wire_charge(header->limit_or_status);
    if (unlikely(endpoint->in.request_arrived + charge > endpoint->in.request_published ||
                 endpoint->owed.allowance + allowance > endpoint->owed.allowance_max ||
                 index >= endpoint->owed.slot_count ||
                 endpoint->owed.slots[index].reply_bytes_bound > 0 ||
                 endpoint->in.fin == FIN_BEFORE)) {
        return request_fault(endpoint, *header);
    }
    /* The sequence counts from 1, and skips 0 when it wraps. */
    if (unlikely(++endpoint->owed.token_sequence == 0)) {
        endpoint->owed.token_sequence = 1;
    }
    uint64_t token = (uint64_t)endpoint->owed.token_sequence << 32 | header->call_id;
    endpoint->owed.slots[index] =
        (struct rpc_request){.token = token,
                             .reply_bytes_bound = (uint32_t)header->limit_or_status + 1,
                             .allowance = (uint32_t)allowance};
    endpoint->owed.count++;
    endpoint->owed.allowance += allowance;
    endpoint->in.request_arrived += charge;
    endpoint->in.held_request_charge += charge;
    endpoint->stats.requests++;
    *completion = (crpc_completion){.kind = CRPC_COMPLETION_REQUEST,
                                    .method = rpc_header_method(*header),
                                    .endpoint = {endpoint->link.handle},
                                    .user_data = endpoint->options.user_data,
                                    .token = token,
                                    .payload = (uint64_t)(uintptr_t)payload,
                                    .payload_bytes = header->payload_bytes,
                                    .reply_bytes_max = header->limit_or_status,
                                    .view = endpoint->engine->epoch,
                                    .endpoint_user_data = endpoint->options.user_data};
    return NULL;
}

/* Why a response is not to be had. */
static __attribute__((cold, noinline)) const char *
response_fault(const struct rpc_endpoint *endpoint, struct rpc_header header)
{
    uint32_t index = header.call_id & WIRE_CALL_INDEX_MASK;
    if (index >= endpoint->calls.max) {
        return "a response's call id is out of range";
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
        call_free(call);
    }
}

/* *given: whether *completion is one. */
static inline const char *take_response(struct rpc_endpoint *endpoint,
                                        const struct rpc_header *header, const uint8_t *payload,
                                        crpc_completion *completion, bool *given)
{
    uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    int32_t status = (int32_t)header->limit_or_status;
    struct rpc_call *call = &endpoint->calls.slots[index];
    if (unlikely(index >= endpoint->calls.max || call->call_id != header->call_id ||
                 call->state == CALL_FREE || call->state == CALL_ANSWERED ||
                 header->payload_bytes > call->reply_bytes_max || rpc_header_method(*header) != 0 ||
                 (status < 0 && status != CRPC_E_DROPPED))) {
        return response_fault(endpoint, *header);
    }
    endpoint->in.held_allowance += call->allowance;
    *given = likely(call_live(call));
    if (!*given) {
        late_response(call);
        return NULL;
    }
    if (call->state == CALL_TIMED) {
        wheel_clear(&endpoint->engine->links.wheel, &call->timer);
    }
    endpoint->calls.live--;
    if (unlikely(status < 0)) {
        endpoint->stats.calls_failed++;
    } else {
        endpoint->stats.responses++;
    }
    *completion = (crpc_completion){.kind = CRPC_COMPLETION_RESPONSE,
                                    .method = call->method,
                                    .status = status,
                                    .endpoint = {endpoint->link.handle},
                                    .user_data = call->user_data,
                                    .payload = (uint64_t)(uintptr_t)payload,
                                    .payload_bytes = header->payload_bytes,
                                    .view = endpoint->engine->epoch,
                                    .endpoint_user_data = endpoint->options.user_data};
    call_free(call);
    return NULL;
}

/* Why the message that is parsed next is no word of the lane, or not a good one; *bytes: what it takes. */
static const char *word_fault(struct rpc_endpoint *endpoint, uint64_t *bytes)
{
    const uint8_t *place = ring_at(&endpoint->in.ring, endpoint->in.parsed);
    const uint64_t bytes_left = endpoint->in.batch_end - endpoint->in.parsed;
    const struct rpc_header header = rpc_load_header(place);
    *bytes = wire_message_bytes(header.payload_bytes);
    if (*bytes > bytes_left || (endpoint->in.batch_left == 1 && *bytes != bytes_left)) {
        return "messages do not fill their batch";
    }
    if (rpc_header_kind(header) >> 8) {
        return "a message has reserved bits set";
    }
    if (endpoint->lane.lane &&
        (header.call_id | header.limit_or_status | rpc_header_method(header))) {
        return "a word of its lane has reserved bits set";
    }
    return rpc_lane_take_word(endpoint, rpc_header_kind(header), place + WIRE_HEADER_BYTES,
                              header.payload_bytes);
}

/* What is neither request nor response may be a word of the lane. Its header is loaded anew: a call from the
 * loop that parses the others would cost each of them. False if the connection has ended over it. */
static __attribute__((cold, noinline)) bool take_word(struct rpc_endpoint *endpoint)
{
    uint64_t bytes;
    const char *fault = word_fault(endpoint, &bytes);
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
        endpoint->in.last_was_request = false;
        return take_response(endpoint, header, payload, completion, given);
    }
    if (likely(rpc_header_kind(*header) == WIRE_REQUEST)) {
        endpoint->in.last_was_request = true;
        return take_request(endpoint, header, payload, completion);
    }
    return a_word;
}

/* False if the connection has ended over what was no good message. */
static __attribute__((cold, noinline)) bool after_fault(struct rpc_endpoint *endpoint,
                                                        const char *fault)
{
    if (fault == a_word) {
        return take_word(endpoint);
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
        if (endpoint->in.last_was_request) {
            rpc_take_requests(endpoint, &cursor);
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
    return likely(!fault) || after_fault(endpoint, fault);
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
        return after_fault(endpoint, fault);
    }
    output->next += given;
    endpoint->in.parsed = endpoint->in.batch_end;
    endpoint->in.batch_left = 0;
    endpoint->in.held_batches++;
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
        list_append_once(&engine->release, &endpoint->release_link);
        if (parse(endpoint, output)) {
            /* At the end of the queue: the others' turn comes first in the next poll. */
            list_append(&engine->ready, &endpoint->ready_link);
        } else if (unlikely(endpoint->leave == LEAVE_SAID)) {
            endpoint_check_left(endpoint);
        }
    }
}

/* ---- Release --------------------------------------------------------------------------------- */

void endpoint_publish(struct rpc_endpoint *endpoint)
{
    endpoint->in.request_published = endpoint->in.request_consumed + endpoint->in.request_share;
    endpoint->in.batch_published = endpoint->in.batches_consumed + endpoint->in.batch_window;
    /* The peer's device reads the mailbox at any time: each field is stored whole; the order
     * between them does not matter, as both only grow. Views ended before: release keeps their
     * reads first. */
    atomic_store_explicit((_Atomic uint64_t *)&endpoint->in.mailbox->request_limit,
                          endpoint->in.request_published, memory_order_release);
    atomic_store_explicit((_Atomic uint64_t *)&endpoint->in.mailbox->batch_limit,
                          endpoint->in.batch_published, memory_order_release);
}

static void end_views(struct rpc_endpoint *endpoint)
{
    endpoint->in.released = endpoint->in.parsed;
    endpoint->in.request_consumed += endpoint->in.held_request_charge;
    endpoint->in.batches_consumed += endpoint->in.held_batches;
    endpoint->in.held_request_charge = 0;
    endpoint->in.held_batches = 0;
    if (endpoint->in.held_allowance) {
        endpoint->calls.reply_outstanding -= endpoint->in.held_allowance;
        endpoint->in.held_allowance = 0;
        if (unlikely(endpoint->link.refused)) {
            link_report(&endpoint->link, LINK_EVENT_ROOM);
        }
    }
}

/* Views end, receives are posted again, and only then are new limits published: a peer may never be
 * told of room for which there is no receive. */
void engine_release(struct rpc_engine *engine)
{
    struct list *link;
    for (link = engine->release.next; link != &engine->release; link = link->next) {
        end_views(list_entry(link, struct rpc_endpoint, release_link));
    }
    if (engine->nic->receives_posted < engine->receives_low) {
        engine->operations->refill(engine->nic);
    }
    while (!list_empty(&engine->release)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->release.next, struct rpc_endpoint, release_link);
        list_remove(&endpoint->release_link);
        endpoint_publish(endpoint);
    }
}

bool rpc_view_valid(const struct rpc_endpoint *endpoint, const crpc_completion *completion)
{
    uint64_t start = (uint64_t)(uintptr_t)endpoint->in.ring.address;
    uint64_t bytes = 2 * endpoint->in.ring.bytes;
    uint64_t offset = completion->payload - start;
    return endpoint->in.ring.address && completion->view == endpoint->engine->epoch &&
           offset <= bytes && completion->payload_bytes <= bytes - offset;
}

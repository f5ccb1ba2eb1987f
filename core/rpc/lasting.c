/* lasting.c: see lasting.h. Cold path, but for the calls of such an endpoint. */
#include "rpc/lasting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/probe.h"
#include "base/sparse.h"
#include "rpc/message.h"

/* Smaller buffers stay with what they were made for. */
#define PAYLOAD_ROOM_MODEST 4096u

static struct rpc_engine *engine_of(const struct rpc_lasting *lasting)
{
    return lasting->endpoint->engine;
}

/* ---- What is kept ---------------------------------------------------------------------------- */

static void put_aside(struct rpc_lasting *lasting, struct rpc_kept *kept)
{
    list_remove(&kept->link);
    list_append(&lasting->unused, &kept->link);
}

static struct rpc_kept *make_kept(struct rpc_lasting *lasting)
{
    struct rpc_kept *kept = calloc(1, sizeof(*kept));
    if (kept) {
        wheel_timer_init(&kept->timer, TIMER_KEPT);
        list_init(&kept->link);
        kept->lasting = lasting;
        kept->made_before = lasting->made_last;
        lasting->made_last = kept;
        list_append(&lasting->unused, &kept->link);
    }
    return kept;
}

static bool make_room(struct rpc_kept *kept, uint32_t bytes)
{
    const bool wasteful =
        kept->payload_room > PAYLOAD_ROOM_MODEST && bytes < kept->payload_room / 4;
    if (kept->payload && bytes <= kept->payload_room && !wasteful) {
        return true;
    }
    uint8_t *payload = realloc(kept->payload, maximum(bytes, 64));
    if (!payload) {
        return false;
    }
    kept->payload = payload;
    kept->payload_room = (uint32_t)maximum(bytes, 64);
    return true;
}

struct rpc_kept *rpc_lasting_keep(struct rpc_lasting *lasting, const crpc_op *op,
                                  const void *payload)
{
    struct rpc_kept *kept = list_empty(&lasting->unused)
                                ? make_kept(lasting)
                                : list_entry(lasting->unused.previous, struct rpc_kept, link);
    if (!kept || !make_room(kept, op->payload_bytes)) {
        return NULL;
    }
    kept->op = *op;
    if (op->flags & CRPC_OP_TRACED) {
        memcpy(&kept->trace, (const void *)(uintptr_t)op->token, sizeof(kept->trace));
        kept->op.token = (uint64_t)(uintptr_t)&kept->trace;
    }
    if (op->payload_bytes > 0) {
        memcpy(kept->payload, payload, op->payload_bytes);
    }
    kept->deadline_ns = 0;
    if (op->timeout_ns) {
        kept->deadline_ns = deadline_after(link_now_ns(&engine_of(lasting)->links), op->timeout_ns);
    }
    return kept;
}

void rpc_lasting_booked(struct rpc_lasting *lasting, struct rpc_kept *kept,
                        const struct rpc_call *call)
{
    struct rpc_kept **slot = &lasting->by_slot[call->call_id & WIRE_CALL_INDEX_MASK];
    if (*slot) {
        put_aside(lasting, *slot);
    }
    *slot = kept;
    kept->call_id = call->call_id;
    kept->request_end = lasting->endpoint->out.request_produced;
    list_remove(&kept->link);
    list_append(&lasting->in_flight, &kept->link);
}

/* Sends a call that is possible. */
static void send_kept(struct rpc_lasting *lasting, struct rpc_kept *kept)
{
    struct rpc_endpoint *endpoint = lasting->endpoint;
    const struct rpc_call *call = endpoint->calls.first_free;
    uint8_t *place = rpc_book(endpoint, &kept->op);
    memcpy(place + WIRE_HEADER_BYTES, kept->payload, kept->op.payload_bytes);
    rpc_lasting_booked(lasting, kept, call);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Ahead of `next`: one that waits, or the end of the list. */
static void begin_waiting(struct rpc_lasting *lasting, struct rpc_kept *kept, struct list *next)
{
    list_remove(&kept->link);
    list_append(next, &kept->link);
    lasting->waiting_count++;
    if (kept->deadline_ns) {
        wheel_set(&engine_of(lasting)->links.wheel, &kept->timer, kept->deadline_ns);
    }
}

/* It waits no more. */
static void leave_waiting(struct rpc_lasting *lasting, struct rpc_kept *kept)
{
    wheel_clear(&engine_of(lasting)->links.wheel, &kept->timer);
    list_remove(&kept->link);
    lasting->waiting_count--;
}

static void report_room(struct rpc_lasting *lasting)
{
    struct link *link = &lasting->endpoint->link;
    if (lasting->refused && !link->closed) {
        lasting->refused = false;
        link->refused = true;
        link_report(link, LINK_EVENT_ROOM);
    }
}

static void end_kept(struct rpc_lasting *lasting, struct rpc_kept *kept, int32_t status)
{
    struct rpc_engine *engine = engine_of(lasting);
    leave_waiting(lasting, kept);
    kept->status = status;
    list_append(&engine->kept_ended, &kept->link);
    lasting->ended++;
    engine->links.attention = true;
    report_room(lasting);
}

void rpc_lasting_emit(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->kept_ended) && !output_full(output)) {
        struct rpc_kept *kept = list_entry(engine->kept_ended.next, struct rpc_kept, link);
        struct rpc_lasting *lasting = kept->lasting;
        struct rpc_endpoint *endpoint = lasting->endpoint;
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_RESPONSE,
                                            .method = kept->op.method,
                                            .status = kept->status,
                                            .endpoint = {endpoint->link.handle},
                                            .user_data = kept->op.user_data,
                                            .endpoint_user_data = endpoint->user_data};
        endpoint->stats.calls++;
        endpoint->stats.calls_failed++;
        probe4(call_failed, endpoint->link.handle, kept->op.method, kept->status,
               metrics_user_data(engine->metrics, kept->op.user_data));
        lasting->ended--;
        put_aside(lasting, kept);
    }
}

void rpc_lasting_expire(struct wheel_timer *timer)
{
    struct rpc_kept *kept = container_of(timer, struct rpc_kept, timer);
    end_kept(kept->lasting, kept, CRPC_E_TIMEOUT);
}

uint64_t rpc_lasting_cancel(struct rpc_lasting *lasting, uint64_t user_data)
{
    uint64_t count = 0;
    struct list *at = lasting->waiting.next;
    while (at != &lasting->waiting) {
        struct rpc_kept *kept = list_entry(at, struct rpc_kept, link);
        at = at->next;
        if (metrics_user_data(engine_of(lasting)->metrics, kept->op.user_data) == user_data) {
            end_kept(lasting, kept, CRPC_E_CANCELED);
            count++;
        }
    }
    return count;
}

/* Why a call cannot be sent that another connection may take. */
static bool away(int32_t bar)
{
    return bar == CRPC_E_STATE || bar == CRPC_E_CLOSING || bar == CRPC_E_DISCONNECTED;
}

/* Whether a call that is made now is sent later: by another connection, or behind others. */
static bool has_to_wait(const struct rpc_lasting *lasting)
{
    return !list_empty(&lasting->waiting) || away(lasting->endpoint->bar);
}

static void refuse(struct rpc_lasting *lasting)
{
    lasting->refused = true;
    lasting->endpoint->stats.refused++;
}

bool rpc_lasting_refuses(struct rpc_lasting *lasting)
{
    if (lasting->ending || !has_to_wait(lasting)) {
        return false;
    }
    refuse(lasting);
    return true;
}

int32_t rpc_lasting_call(struct rpc_lasting *lasting, const crpc_op *op, const void *payload)
{
    const bool waits = has_to_wait(lasting);
    if (lasting->ending || !waits) {
        const int32_t status = rpc_possible(lasting->endpoint, op);
        if (status != CRPC_OK) {
            return status;
        }
    } else if (lasting->waiting_count >= lasting->options.calls_max) {
        refuse(lasting);
        return CRPC_E_AGAIN;
    }
    struct rpc_kept *kept = rpc_lasting_keep(lasting, op, payload);
    if (!kept) {
        return CRPC_E_NO_MEMORY;
    }
    if (waits) {
        begin_waiting(lasting, kept, &lasting->waiting);
    } else {
        send_kept(lasting, kept);
    }
    return CRPC_OK;
}

int32_t rpc_lasting_gather(struct rpc_lasting *lasting, const crpc_op *op,
                           const struct rpc_region *region, bool *done)
{
    const bool readable = !region->foreign || op->payload_bytes == 0;
    const bool repeatable = op->flags & CRPC_OP_IDEMPOTENT;
    *done = true;
    if (readable && (repeatable || has_to_wait(lasting))) {
        return rpc_lasting_call(lasting, op,
                                (const void *)(uintptr_t)(region->address + op->payload_offset));
    }
    if (repeatable) {
        return CRPC_E_UNSUPPORTED; /* there is nothing to send it from again */
    }
    if (rpc_lasting_refuses(lasting)) {
        return CRPC_E_AGAIN;
    }
    *done = false;
    return CRPC_OK;
}

/* Sends what waits, as far as possible now. */
static void resume(struct rpc_lasting *lasting)
{
    struct rpc_endpoint *endpoint = lasting->endpoint;
    struct link_group *links = &endpoint->engine->links;
    while (!list_empty(&lasting->waiting)) {
        struct rpc_kept *kept = list_entry(lasting->waiting.next, struct rpc_kept, link);
        if (kept->deadline_ns && kept->deadline_ns <= link_now_ns(links)) {
            end_kept(lasting, kept, CRPC_E_TIMEOUT);
            continue;
        }
        if (kept->deadline_ns) {
            kept->op.timeout_ns = kept->deadline_ns - link_now_ns(links);
        }
        const int32_t status = rpc_possible(endpoint, &kept->op);
        if (status == CRPC_E_AGAIN || status == CRPC_E_BUSY || away(status)) {
            break;
        }
        if (status != CRPC_OK) {
            end_kept(lasting, kept, status);
            continue;
        }
        leave_waiting(lasting, kept);
        send_kept(lasting, kept);
        report_room(lasting);
    }
    if (list_empty(&lasting->waiting)) { /* what can only be sent was refused without that */
        report_room(lasting);
    }
    rpc_submit_end(endpoint->engine);
}

void rpc_lasting_lifted(struct rpc_lasting *lasting)
{
    if (!list_empty(&lasting->waiting)) {
        lasting->endpoint->link.refused = true;
        link_report(&lasting->endpoint->link, LINK_EVENT_ROOM);
    }
}

void rpc_lasting_room(struct link *link)
{
    struct rpc_lasting *lasting = endpoint_of_link(link)->lasting;
    if (lasting && !lasting->ending) {
        resume(lasting);
    }
}

/* ---- The end of a connection ------------------------------------------------------------------ */

/* The call is one of the connection that has ended, and has not. */
static struct rpc_call *live_call_of(const struct rpc_lasting *lasting, const struct rpc_kept *kept)
{
    struct rpc_call *call = &lasting->endpoint->calls.slots[kept->call_id & WIRE_CALL_INDEX_MASK];
    return call->call_id == kept->call_id && call_live(call) ? call : NULL;
}

/* It is sent by the next connection, ahead of `next`. */
static void wait_again(struct rpc_lasting *lasting, struct rpc_kept *kept, struct list *next)
{
    lasting->by_slot[kept->call_id & WIRE_CALL_INDEX_MASK] = NULL;
    lasting->endpoint->stats.calls--;
    begin_waiting(lasting, kept, next);
}

void rpc_lasting_cut(struct rpc_lasting *lasting)
{
    lasting->reserved |= lasting->endpoint->reservation.open;
}

void rpc_lasting_take_back(struct rpc_lasting *lasting)
{
    struct rpc_endpoint *endpoint = lasting->endpoint;
    while (!list_empty(&lasting->in_flight)) { /* from the last one */
        struct rpc_kept *kept = list_entry(lasting->in_flight.previous, struct rpc_kept, link);
        struct rpc_call *call = live_call_of(lasting, kept);
        const bool unsent = kept->request_end > endpoint->out.request_sent;
        if (!call || lasting->ending || !(unsent || kept->op.flags & CRPC_OP_IDEMPOTENT)) {
            lasting->by_slot[kept->call_id & WIRE_CALL_INDEX_MASK] = NULL;
            put_aside(lasting, kept);
            continue;
        }
        wheel_clear(&endpoint->engine->links.wheel, &call->timer);
        endpoint->calls.live--;
        call_free(endpoint, call);
        wait_again(lasting, kept, lasting->waiting.next); /* it came before all that waits */
    }
}

bool rpc_lasting_drop(struct rpc_lasting *lasting, const struct rpc_call *call, int32_t status)
{
    struct rpc_kept *kept = lasting->by_slot[call->call_id & WIRE_CALL_INDEX_MASK];
    if (status != CRPC_E_NOT_STARTED || lasting->endpoint->leave == LEAVE_NONE || lasting->ending ||
        !kept || kept->call_id != call->call_id) {
        return false;
    }
    wait_again(lasting, kept,
               &lasting->waiting); /* among those that are dropped, the order stays */
    return true;
}

/* ---- Attempts --------------------------------------------------------------------------------- */

/* Between the half of a time and all of it, so that not all clients of a server come at once. */
static uint64_t jitter(struct rpc_lasting *lasting, uint64_t time_ns)
{
    uint64_t random = lasting->random; /* xorshift */
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    lasting->random = random;
    return time_ns - random % (time_ns / 2 + 1);
}

/* All addresses are tried one after the other. The pause before they are tried again doubles each time. */
static uint64_t next_pause(struct rpc_lasting *lasting)
{
    const crpc_endpoint_options *options = &lasting->options;
    const uint32_t rounds = lasting->failed / lasting->address_count;
    if (lasting->failed % lasting->address_count != 0) {
        return 0;
    }
    uint64_t pause_ns = options->reconnect_pause_ns;
    for (uint32_t i = 0; i < rounds && pause_ns < options->reconnect_pause_max_ns; i++) {
        pause_ns *= 2;
    }
    return jitter(lasting, minimum(pause_ns, options->reconnect_pause_max_ns));
}

/* A server that accepts and then ends each connection is as one that does not accept. */
static void count_failure(struct rpc_lasting *lasting)
{
    const uint64_t now_ns = link_now_ns(&engine_of(lasting)->links);
    const bool lasted = lasting->opened_ns != 0 &&
                        now_ns - lasting->opened_ns >= lasting->options.reconnect_pause_max_ns;
    lasting->failed = lasted ? 0 : lasting->failed + 1;
    lasting->opened_ns = 0;
}

bool rpc_lasting_comes_back(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    struct rpc_lasting *lasting = endpoint->lasting;
    if (!lasting || lasting->ending) {
        return false;
    }
    link->away = true;
    lasting->error = link->error;
    count_failure(lasting);
    lasting->address = (lasting->address + 1) % lasting->address_count;
    probe4(reconnecting, link->handle, link->error.status, lasting->failed,
           lasting->addresses[lasting->address]);
    link_set_timer(link->group, &lasting->timer, next_pause(lasting));
    /* Whoever was refused may try again: the call waits here now. */
    lasting->refused = true;
    report_room(lasting);
    return true;
}

static void attempt(struct rpc_lasting *lasting)
{
    struct rpc_endpoint *before = lasting->endpoint;
    struct link_group *group = before->link.group;
    struct link *link;
    crpc_error error = {0};
    if (rpc_service.create(group, &link, &error) != CRPC_OK) {
        before->link.error = error;
        link_report(&before->link, LINK_EVENT_CONNECTED);
        return;
    }
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    link_take_place(link, &before->link);
    endpoint->lasting = lasting;
    rpc_inherit(endpoint, before);
    lasting->endpoint = endpoint;
    before->lasting = NULL;
    lasting->refused |= before->link.refused; /* if there was no room in the array for ROOM */
    link_close(&before->link);
    report_room(lasting);
    if (link_start(link, lasting->addresses[lasting->address], &lasting->options, &error) !=
        CRPC_OK) {
        link->error = error;
        link->failing = true;
        link->state = CRPC_STATE_DISCONNECTED;
        link_report(link, LINK_EVENT_CONNECTED); /* that it could not connect */
    }
}

void rpc_lasting_attempt(struct wheel_timer *timer)
{
    struct rpc_lasting *lasting = container_of(timer, struct rpc_lasting, timer);
    if (lasting->reserved) {
        lasting->attempt_due = true;
    } else {
        attempt(lasting);
    }
}

void rpc_lasting_opened(struct rpc_lasting *lasting)
{
    lasting->opened_ns = link_now_ns(&engine_of(lasting)->links);
    lasting->connections++;
    resume(lasting);
}

bool rpc_lasting_lift(struct rpc_lasting *lasting)
{
    const bool was = lasting->reserved;
    lasting->reserved = false;
    if (lasting->attempt_due) {
        lasting->attempt_due = false;
        link_set_timer(&engine_of(lasting)->links, &lasting->timer, 0);
    }
    return was;
}

void rpc_lasting_end(struct rpc_lasting *lasting, int32_t status)
{
    lasting->ending = true;
    lasting->attempt_due = false;
    lasting->refused = false;
    wheel_clear(&engine_of(lasting)->links.wheel, &lasting->timer);
    while (!list_empty(&lasting->waiting)) {
        end_kept(lasting, list_entry(lasting->waiting.next, struct rpc_kept, link), status);
    }
}

/* There is no connection. */
static void end_now(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    link->away = false;
    link->error = (crpc_error){0};
    link->events &= ~LINK_EVENT_CONNECTED; /* that it could not connect this time */
    rpc_set_call_bar(endpoint, CRPC_E_DISCONNECTED);
    link_report(link, LINK_EVENT_DISCONNECTED);
}

bool rpc_lasting_stay_away(struct link *link)
{
    struct rpc_lasting *lasting = endpoint_of_link(link)->lasting;
    const crpc_error none = {0};
    if (!lasting || lasting->ending) {
        return false;
    }
    rpc_lasting_end(lasting, CRPC_E_CLOSING);
    if (link->state == CRPC_STATE_CONNECTING) {
        link_fail(link, &none);
    }
    if (link->state == CRPC_STATE_DISCONNECTED && !(link->events & LINK_EVENT_DISCONNECTED)) {
        end_now(link);
        return true;
    }
    return link->failing; /* then its end will be told; otherwise it takes leave */
}

/* ---- Making ----------------------------------------------------------------------------------- */

void rpc_lasting_free(struct rpc_lasting *lasting)
{
    if (!lasting) {
        return;
    }
    struct wheel *wheel = &engine_of(lasting)->links.wheel;
    wheel_clear(wheel, &lasting->timer);
    while (lasting->made_last) {
        struct rpc_kept *kept = lasting->made_last;
        lasting->made_last = kept->made_before;
        wheel_clear(wheel, &kept->timer);
        list_remove(&kept->link);
        free(kept->payload);
        free(kept);
    }
    sparse_free(lasting->by_slot, lasting->options.calls_max, sizeof(struct rpc_kept *));
    for (uint32_t i = 0; i < lasting->address_count; i++) {
        free(lasting->addresses[i]);
    }
    explicit_bzero(&lasting->options, sizeof(lasting->options)); /* the key */
    free(lasting);
}

/* Splits "host:port,host:port". */
static int32_t take_addresses(struct rpc_lasting *lasting, const char *list, crpc_error *error)
{
    for (;;) {
        const size_t bytes = strcspn(list, ",");
        assert(lasting->address_count < RPC_ADDRESSES_MAX);
        char *address = strndup(list, bytes);
        if (!address) {
            return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an address");
        }
        lasting->addresses[lasting->address_count++] = address;
        if (list[bytes] == '\0') {
            return CRPC_OK;
        }
        list += bytes + 1;
    }
}

int32_t rpc_connect_lasting(struct link_group *group, const char *addresses,
                            const crpc_endpoint_options *options, struct link **out,
                            crpc_error *error)
{
    struct link *link;
    int32_t status = rpc_service.create(group, &link, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    struct rpc_lasting *lasting = calloc(1, sizeof(*lasting));
    if (!lasting) {
        link_close(link);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint");
    }
    lasting->endpoint = endpoint;
    lasting->options = *options;
    lasting->random = (uint64_t)link->nonce << 32 | link->nonce | 1;
    wheel_timer_init(&lasting->timer, TIMER_ATTEMPT);
    list_init(&lasting->in_flight);
    list_init(&lasting->waiting);
    list_init(&lasting->unused);
    lasting->by_slot = sparse_alloc(options->calls_max, sizeof(struct rpc_kept *));
    endpoint->lasting = lasting;
    rpc_set_call_bar(endpoint, CRPC_E_STATE);
    if (!lasting->by_slot) {
        status = error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for %u call slots",
                           options->calls_max);
    }
    if (status == CRPC_OK) {
        status = take_addresses(lasting, addresses, error);
    }
    if (status == CRPC_OK) {
        status = link_start(link, lasting->addresses[0], options, error);
    }
    if (status != CRPC_OK) {
        link_close(link);
        return status;
    }
    *out = link;
    return CRPC_OK;
}

void rpc_lasting_info(const struct rpc_lasting *lasting, crpc_endpoint_info *info)
{
    info->calls_max = lasting->options.calls_max; /* also while there is no connection */
    info->calls_open += lasting->waiting_count;
    info->calls_waiting = lasting->waiting_count;
    info->address_index = lasting->address;
    info->attempts_failed = lasting->failed;
    info->connections = lasting->connections;
}

/* grow.c: rings that grow, and windows that are lent, so that an idle endpoint has little memory and few receives, and a busy
 * one has what it uses. docs/flow-control.md, "Rings that grow" and "Windows that are lent". Cold path.
 *
 * A ring is small at first, and grows once, to its full size. Its owner makes the large one when a call needs more room for
 * replies, or when the peer says WANT, and says RING. The peer then writes all further batches to the large ring. The first of
 * these is marked in its immediate, and has only MOVED. So the owner knows of each batch where it is.
 *
 * No application has to wait for this. A call that does not fit the peer's small ring, but its large one, is accepted: this side
 * makes its large send ring, puts there what is not sent yet, and says WANT. Until it has said MOVED, nothing is sent but words,
 * which go through the small rings (grow->waits). That making a ring takes system calls in a submit or poll is the price; each
 * connection pays it twice at most, and none with CRPC_ENDPOINT_FULL_SIZE.
 *
 * A window begins with few batches. Its owner makes it wider when the peer uses more than half of it in one poll. A side that
 * has sent nothing for a while gives back what it does not need: it says YIELD, and its batches are then numbered from a
 * number that is 2^32 higher, above all limits that it may still hear of from before.
 */
#include <string.h>

#include "base/error.h"
#include "base/page.h"
#include "base/probe.h"
#include "rpc/internal.h"

#define RING_BYTES_FIRST 8192u

/* While one batch is read, the next one can come. If there are many receives, more can, also from who polls seldom and hears
 * of limits late. */
#define WINDOW_FIRST_LEAST 2u
#define WINDOW_FIRST_MOST 8u

/* A batch with nothing but a word without payload. MOVED is at the beginning of its ring, and all else behind it. */
#define EMPTY_WORD_BYTES (WIRE_BATCH_HEADER_BYTES + WIRE_UNIT_BYTES)

/* ---- What an endpoint begins with ------------------------------------------------------------ */

uint64_t rpc_first_ring_bytes(const crpc_endpoint_options *options)
{
    return options->flags & CRPC_ENDPOINT_FULL_SIZE
               ? options->ring_bytes
               : minimum(options->ring_bytes, maximum(RING_BYTES_FIRST, page_bytes()));
}

uint32_t rpc_first_window(const struct rpc_engine *engine, const crpc_endpoint_options *options)
{
    return options->flags & CRPC_ENDPOINT_FULL_SIZE
               ? options->batch_window
               : (uint32_t)minimum(options->batch_window, engine->window_first);
}

uint32_t rpc_small_window(const struct nic *nic, uint32_t endpoints_max)
{
    const uint32_t each = nic_receive_low_mark(nic) / endpoints_max;
    const uint32_t without_key = each > LINK_WORDS ? each - LINK_WORDS : 0;
    return (uint32_t)minimum(maximum(without_key, WINDOW_FIRST_LEAST), WINDOW_FIRST_MOST);
}

/* ---- Making ---------------------------------------------------------------------------------- */

void rpc_grow_attend(struct rpc_endpoint *endpoint, uint8_t due)
{
    endpoint->grow.due |= due;
    endpoint->grow_attention = true;
    if (!endpoint->link.failing) {
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
}

/* Without memory for it, the connection ends: what was promised when the two sides connected cannot be kept. */
static bool make_ring(struct rpc_endpoint *endpoint, enum ring_kind kind, uint64_t bytes,
                      struct ring *ring)
{
    struct nic *nic = endpoint->engine->nic;
    crpc_error cause = {0}, error = {0};
    int32_t status = ring_map(&endpoint->engine->rings, ring, kind, bytes, &cause);
    if (status == CRPC_OK) {
        status = ring_register(ring, nic, endpoint->link.domain, link_own_domain(&endpoint->link),
                               &cause);
    }
    if (status == CRPC_OK) {
        return true;
    }
    ring_destroy(ring, nic);
    error_set(&error, status, cause.os_error, "no memory for a larger ring: %s", cause.message);
    link_fail(&endpoint->link, &error);
    return false;
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* What is left for lending when each endpoint that may still come has its first window. If there are few receives, nothing
 * is kept for the words of those that will have keys. */
static uint32_t window_left(const struct rpc_engine *engine)
{
    const uint32_t words = engine->window_first == WINDOW_FIRST_MOST ? LINK_WORDS : 0;
    const uint64_t kept =
        (uint64_t)(engine->endpoints_max - engine->endpoint_count) * (engine->window_first + words);
    const uint64_t left = nic_receive_low_mark(engine->nic) - engine->window_sum;
    return left > kept ? (uint32_t)(left - kept) : 0;
}

__attribute__((cold, noinline)) void rpc_lend(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    if (!endpoint->link.queue_pair || endpoint->link.failing) {
        return; /* its window goes with the queue pair, or has gone */
    }
    const uint32_t window = endpoint->in.batch_window;
    const uint32_t more = (uint32_t)minimum(
        minimum(window, endpoint->options.batch_window - window), window_left(engine));
    endpoint->in.batch_window += more;
    engine->window_sum += more;
}

/* Likewise, and tells the peer with the next batch. What is promised is posted before. */
static void lend_now(struct rpc_endpoint *endpoint)
{
    const struct rpc_engine *engine = endpoint->engine;
    struct rpc_in *in = &endpoint->in;
    rpc_lend(endpoint);
    if (engine->nic->receives_posted < engine->receives_low) {
        engine->operations->refill(engine->nic);
    }
    /* After a YIELD, what was published is more than this. */
    in->batch_published = maximum(in->batch_published, in->batches_consumed + in->batch_window);
}

/* ---- A larger ring of this side -------------------------------------------------------------- */

/* Whether the open batch takes a word. */
static bool has_place(const struct rpc_endpoint *endpoint)
{
    return !endpoint->reservation.open && !endpoint->gather.waits &&
           endpoint->out.batch_messages < WIRE_MESSAGES_MAX;
}

static struct wire_ring ring_word(const struct rpc_endpoint *endpoint)
{
    const struct ring *ring = &endpoint->grow.next;
    return (struct wire_ring){.address = (uint64_t)(uintptr_t)ring->address,
                              .key = ring->memory.remote_key};
}

/* From now on, requests may ask for as long replies as the large ring has room for: they come behind RING. */
static void raise_reply_budget(struct rpc_endpoint *endpoint)
{
    endpoint->calls.reply_budget = endpoint->calls.reply_budget_max;
    if (endpoint->link.refused) {
        link_report(&endpoint->link, LINK_EVENT_ROOM);
    }
}

static void say_ring_inline(struct rpc_endpoint *endpoint)
{
    const struct wire_ring word = ring_word(endpoint);
    endpoint_say(endpoint, WIRE_RING, &word, sizeof(word));
    endpoint->grow.ring_said_in = rpc_open_batch(endpoint);
    raise_reply_budget(endpoint);
    endpoint->grow.due &= (uint8_t)~RPC_GROW_SAY_RING;
    endpoint->grow.offered = true;
}

/* Nothing is said behind FIN. */
static void say_arena(struct rpc_endpoint *endpoint)
{
    const struct wire_arena word = rpc_arena_word(endpoint);
    if (endpoint->leave != LEAVE_SAID) {
        endpoint_say(endpoint, WIRE_ARENA, &word, sizeof(word));
    }
    endpoint->grow.due &= (uint8_t)~RPC_GROW_SAY_ARENA;
}

/* Whether there is a larger ring still to be made. */
static bool may_offer_ring(const struct rpc_endpoint *endpoint)
{
    return !endpoint->grow.next.address && endpoint->in.ring.bytes < endpoint->options.ring_bytes;
}

/* If there is no memory for it, the connection has ended. */
static void offer_ring(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    assert(may_offer_ring(endpoint));
    if (!make_ring(endpoint, RING_RECEIVE, endpoint->options.ring_bytes, &grow->next)) {
        return;
    }
    /* Limits that the peer has heard of already do no harm. */
    memcpy(ring_mailbox(&grow->next), endpoint->in.mailbox, sizeof(struct wire_mailbox));
    lend_now(endpoint); /* for MOVED, and for what comes behind it */
    rpc_grow_attend(endpoint, RPC_GROW_SAY_RING);
    if (grow->waits) {
        raise_reply_budget(endpoint); /* RING leaves before what waits does */
    } else if (has_place(endpoint)) {
        say_ring_inline(endpoint);
    }
}

/* ---- A larger send ring ---------------------------------------------------------------------- */

static uint64_t unsent_start(const struct rpc_endpoint *endpoint)
{
    if (endpoint->lane.aside_count > 0) {
        return rpc_aside_at(&endpoint->lane, 0)->start;
    }
    return endpoint->out.batch_messages > 0 ? endpoint->out.batch_start : endpoint->out.produced;
}

static void shift_unsent(struct rpc_endpoint *endpoint, uint64_t by)
{
    struct rpc_lane *lane = &endpoint->lane;
    for (uint32_t i = 0; i < lane->aside_count; i++) {
        struct rpc_batch *batch = rpc_aside_at(lane, i);
        batch->start += by;
        batch->end += by;
    }
    endpoint->out.batch_start += by;
    endpoint->out.produced += by;
    endpoint->gather.position += by;
}

/* Puts what is not sent into a send ring as large as the peer's largest ring, where ops are written from now on. A place
 * that the application has just written to (reserved) goes with it. False if the connection has ended. */
static bool relocate(struct rpc_endpoint *endpoint, const crpc_op *reserved)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct rpc_peer *peer = &endpoint->peer;
    struct ring ring = {0};
    assert(!grow->waits && !endpoint->reservation.open);
    if (!make_ring(endpoint, RING_SEND, maximum(peer->ring_bytes_max, page_bytes()), &ring)) {
        return false;
    }
    const uint64_t start = unsent_start(endpoint);
    const uint64_t in_place =
        reserved ? WIRE_BATCH_HEADER_BYTES + wire_message_bytes(reserved->payload_bytes) : 0;
    memcpy(ring.address + EMPTY_WORD_BYTES, ring_at(&endpoint->out.staging, start),
           endpoint->out.produced - start + in_place);
    shift_unsent(endpoint, EMPTY_WORD_BYTES - start);
    grow->staging_old = endpoint->out.staging;
    grow->old_produced = start;
    grow->waits = true;
    /* RING may wait, too. If the peer waits for it, it is said twice. */
    if (grow->ring_said_in > endpoint->out.batches_sent) {
        grow->due |= RPC_GROW_SAY_RING;
    }
    endpoint->out.staging = ring;
    endpoint->out.transfer.local_key = ring.memory.local_key;
    endpoint->out.request_limit += peer->request_bytes_max - peer->request_bytes;
    if (endpoint->link.refused) {
        rpc_report_room(endpoint);
    }
    return true;
}

static void count_one_more(uint64_t *number, uint64_t sent)
{
    *number += *number > sent;
}

/* Sends a batch of one word before all that is not sent, whose batches have higher numbers from then on. */
static uint64_t send_word(struct rpc_endpoint *endpoint, struct ring *staging, uint64_t position,
                          uint8_t kind, const void *word, uint32_t bytes, uint32_t mark)
{
    const uint64_t sent = endpoint->out.batches_sent;
    count_one_more(&endpoint->grow.ring_said_in, sent);
    count_one_more(&endpoint->lane.said_in, sent);
    count_one_more(&endpoint->lane.answered_in, sent);
    return endpoint_send_word(endpoint, staging, position, kind, word, bytes, mark);
}

/* The peer's large ring is there, and all that had to be said before is. */
static void move(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct rpc_peer *peer = &endpoint->peer;
    peer->ring_address = grow->peer_next.address;
    peer->ring_key = grow->peer_next.key;
    endpoint->out.transfer.remote_key = peer->ring_key;
    peer->ring_bytes = peer->ring_bytes_max;
    peer->request_bytes = peer->request_bytes_max;
    grow->staging_old_wqe = endpoint->link.queue_pair->posted;
    grow->waits = false;
    grow->due &= (uint8_t)~RPC_GROW_SAY_MOVED;
    send_word(endpoint, &endpoint->out.staging, 0, WIRE_MOVED, "", 0, WIRE_IMMEDIATE_MOVED);
}

void rpc_grow_sent(struct rpc_endpoint *endpoint, uint32_t completed)
{
    if (!endpoint->grow.waits && (int32_t)(completed - endpoint->grow.staging_old_wqe) > 0) {
        ring_destroy(&endpoint->grow.staging_old, endpoint->engine->nic);
    }
}

void rpc_grow_lifted(struct rpc_endpoint *endpoint)
{
    if (endpoint->grow.due & RPC_GROW_SAY_MOVED && !endpoint->grow.waits &&
        !endpoint->link.failing) {
        relocate(endpoint, &endpoint->reservation.op);
    }
}

/* ---- Asking for more ------------------------------------------------------------------------- */

void rpc_grow_for(struct rpc_endpoint *endpoint, uint64_t charge, uint64_t allowance)
{
    struct rpc_grow *grow = &endpoint->grow;
    const struct rpc_out *out = &endpoint->out;
    const struct rpc_calls *calls = &endpoint->calls;
    if (endpoint->bar != CRPC_OK || out->batch_messages == WIRE_MESSAGES_MAX) {
        return;
    }
    if (out->request_produced + charge > out->request_limit && !grow->waits &&
        endpoint->peer.ring_bytes < endpoint->peer.ring_bytes_max) {
        if (!relocate(endpoint, NULL)) {
            return;
        }
        rpc_grow_attend(endpoint, RPC_GROW_SAY_WANT);
    }
    if (calls->reply_outstanding + allowance > calls->reply_budget && may_offer_ring(endpoint)) {
        offer_ring(endpoint);
    }
}

/* ---- Giving back what was lent --------------------------------------------------------------- */

/* Whether the peer would take more batches now than its first window has, and one for saying so. */
static bool has_spare_window(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.batch_limit >
           endpoint->out.batches_sent + 1 + endpoint->peer.batch_window_first;
}

void rpc_yield_if_idle(struct rpc_endpoint *endpoint)
{
    const uint64_t sent = endpoint->out.batches_sent;
    if (sent == endpoint->grow.idle_sent && has_spare_window(endpoint)) {
        rpc_grow_attend(endpoint, RPC_GROW_SAY_YIELD);
    }
    endpoint->grow.idle_sent = sent;
}

/* It is sent at once, so that no limit comes between. */
static void yield(struct rpc_endpoint *endpoint)
{
    endpoint->grow.due &= (uint8_t)~RPC_GROW_SAY_YIELD;
    if (endpoint->grow.waits || endpoint->leave != LEAVE_NONE || endpoint->lane.aside_count > 0 ||
        endpoint->out.batch_messages > 0 || !has_spare_window(endpoint) ||
        !endpoint_may_send(endpoint)) {
        return; /* it is not idle any more */
    }
    endpoint_say(endpoint, WIRE_YIELD, "", 0);
    endpoint_send(endpoint);
    endpoint->out.batches_sent += WIRE_YIELD_JUMP;
    endpoint->out.batch_limit = endpoint->out.batches_sent + endpoint->peer.batch_window_first;
    endpoint->grow.idle_sent = endpoint->out.batches_sent;
}

static const char *take_yield(struct rpc_endpoint *endpoint)
{
    struct rpc_in *in = &endpoint->in;
    const uint32_t first = rpc_first_window(endpoint->engine, &endpoint->options);
    if ((uint32_t)in->batch_published - in->sequence_expected < first) {
        return "it gives back more of its window than it has";
    }
    if (in->batch_left != 1) {
        return "it says something after it has given back its window";
    }
    const uint32_t unconsumed = in->sequence_expected - (uint32_t)in->batches_consumed;
    endpoint->engine->window_sum -= in->batch_window - first;
    endpoint->engine->windows_back++;
    in->batch_window = first;
    in->batches_consumed += WIRE_YIELD_JUMP;
    in->batch_published = in->batches_consumed + unconsumed + first;
    return NULL;
}

/* ---- Words to the peer ----------------------------------------------------------------------- */

/* In the small ring, behind all that was sent. False if that is not possible now. */
static bool say_in_old(struct rpc_endpoint *endpoint, uint8_t due, uint8_t kind, const void *word,
                       uint32_t bytes)
{
    struct rpc_grow *grow = &endpoint->grow;
    if (!(grow->due & due)) {
        return true;
    }
    if (!endpoint_may_send(endpoint)) {
        return false;
    }
    grow->old_produced +=
        send_word(endpoint, &grow->staging_old, grow->old_produced, kind, word, bytes, 0);
    grow->due &= (uint8_t)~due;
    return true;
}

/* What waits can leave when this side has moved. */
static void flush_waiting(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    const struct wire_ring ring = ring_word(endpoint);
    if (!say_in_old(endpoint, RPC_GROW_SAY_RING, WIRE_RING, &ring, sizeof(ring))) {
        return;
    }
    if (grow->next.address && !grow->offered) {
        grow->offered = true;
        raise_reply_budget(endpoint);
    }
    /* A READ of the small mailbox may have to be sent again, and the mailbox goes when the peer hears of MOVED. */
    if (say_in_old(endpoint, RPC_GROW_SAY_WANT, WIRE_WANT, "", 0) &&
        grow->due & RPC_GROW_SAY_MOVED && !endpoint->read.in_flight &&
        endpoint_may_send(endpoint)) {
        move(endpoint);
    }
}

bool rpc_grow_flush(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    if (grow->waits) {
        flush_waiting(endpoint);
    } else if (grow->due & RPC_GROW_SAY_RING && has_place(endpoint)) {
        say_ring_inline(endpoint);
    }
    if (grow->due & RPC_GROW_SAY_ARENA && !grow->waits && has_place(endpoint)) {
        say_arena(endpoint);
    }
    if (grow->due & RPC_GROW_SAY_YIELD) {
        yield(endpoint);
    }
    endpoint->grow_attention = grow->due != 0 || grow->waits;
    return !grow->waits;
}

/* ---- Words of the peer ----------------------------------------------------------------------- */

static const char *take_want(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    if (rpc_first_ring_bytes(&endpoint->options) == endpoint->options.ring_bytes ||
        grow->want_heard) {
        return "it wants a larger ring than there can be, or twice";
    }
    grow->want_heard = true;
    /* It may have crossed a RING, which answers it. */
    if (may_offer_ring(endpoint) && !endpoint->link.failing) {
        offer_ring(endpoint);
    }
    return NULL;
}

static const char *take_ring(struct rpc_endpoint *endpoint, const uint8_t *payload)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct rpc_peer *peer = &endpoint->peer;
    struct wire_ring word;
    wire_copy(&word, payload);
    if (grow->peer_next.address != 0 && memcmp(&grow->peer_next, &word, sizeof(word)) == 0) {
        return NULL; /* it has had to say so twice */
    }
    if (peer->ring_bytes == peer->ring_bytes_max || grow->due & RPC_GROW_SAY_MOVED) {
        return "it has another ring than it has said";
    }
    if (word.zero != 0 || !wire_ring_possible(word.address, peer->ring_bytes_max)) {
        return "its larger ring is malformed";
    }
    grow->peer_next = word;
    grow->due &= (uint8_t)~RPC_GROW_SAY_WANT;
    endpoint->owed.allowance_max =
        rpc_peer_reply_share(endpoint, peer->ring_bytes_max, peer->request_bytes_max);
    rpc_grow_attend(endpoint, RPC_GROW_SAY_MOVED);
    if (!endpoint->link.failing && !endpoint->reservation.open && !grow->waits) {
        relocate(endpoint, NULL); /* before replies that need it are accepted */
    }
    return NULL;
}

/* The mark of its batch has said it. */
static const char *take_moved(struct rpc_endpoint *endpoint)
{
    if (!endpoint->grow.says_moved) {
        return "it says that it has moved, and has not";
    }
    endpoint->grow.says_moved = false;
    return NULL;
}

const char *rpc_grow_take_word(struct rpc_endpoint *endpoint, uint16_t kind, const uint8_t *payload,
                               uint32_t bytes)
{
    static const uint8_t lengths[] = {[WIRE_WANT] = 0,
                                      [WIRE_RING] = sizeof(struct wire_ring),
                                      [WIRE_MOVED] = 0,
                                      [WIRE_YIELD] = 0,
                                      [WIRE_ARENA] = sizeof(struct wire_arena)};
    if (kind > WIRE_ARENA) {
        return "a message is neither request nor response";
    }
    if (bytes != lengths[kind]) {
        return "a word about its ring has another length";
    }
    switch (kind) {
    case WIRE_ARENA:
        return rpc_arena_take_word(endpoint, payload);
    case WIRE_WANT:
        return take_want(endpoint);
    case WIRE_RING:
        return take_ring(endpoint, payload);
    case WIRE_MOVED:
        return take_moved(endpoint);
    default:
        return take_yield(endpoint);
    }
}

/* ---- What arrives in the larger ring --------------------------------------------------------- */

bool rpc_grow_arrival(struct rpc_endpoint *endpoint, uint64_t bytes)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct rpc_in *in = &endpoint->in;
    if (!grow->offered || grow->moved || bytes != EMPTY_WORD_BYTES) {
        return false;
    }
    grow->moved = true;
    grow->moved_at = align_up(in->arrived, grow->next.bytes); /* its beginning */
    in->moving = true;
    in->capacity = grow->next.bytes;
    in->arrived = in->released = grow->moved_at; /* nothing is in it */
    return true;
}

void rpc_grow_swap(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct rpc_in *in = &endpoint->in;
    const uint64_t share = in->request_share;
    assert(grow->moved && !grow->old.address);
    grow->old = in->ring;
    in->ring = grow->next;
    in->parsed = grow->moved_at;
    in->mailbox = ring_mailbox(&in->ring);
    grow->next = (struct ring){0};
    grow->moved = grow->offered = false;
    grow->says_moved = true;
    rpc_set_shares(endpoint, in->ring.bytes);
    assert(endpoint->calls.reply_budget == endpoint->calls.reply_budget_max);
    in->request_published += in->request_share - share; /* as the peer knows */
    probe3(ring_grown, endpoint->link.handle, grow->old.bytes, in->ring.bytes);
    endpoint->engine->rings_grown++;
}

/* A READ of the peer's mailbox is under way to it. */
static bool lands_in(const struct rpc_endpoint *endpoint, const struct ring *ring)
{
    return endpoint->read.in_flight && (const void *)endpoint->read.landing == ring_landing(ring);
}

void rpc_grow_release(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    if (grow->moved) {
        endpoint->in.released = grow->moved_at;
    } else if (!lands_in(endpoint, &grow->old)) {
        ring_destroy(&grow->old, endpoint->engine->nic);
        endpoint->in.moving = false;
    }
}

void rpc_grow_destroy(struct rpc_endpoint *endpoint)
{
    struct rpc_grow *grow = &endpoint->grow;
    struct nic *nic = endpoint->engine->nic;
    ring_destroy(&grow->next, nic);
    ring_destroy(&grow->old, nic);
    ring_destroy(&grow->staging_old, nic);
    *grow = (struct rpc_grow){0};
    endpoint->grow_attention = false;
    endpoint->in.moving = false;
}

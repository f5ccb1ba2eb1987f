/* arena.c: memory of the application that the peer of an endpoint writes payloads to, so that nobody copies them out of the
 * ring. Cold path, by the message. docs/wire.md, "Arenas".
 *
 * An arena is cut into places of one size. Its owner lends it to the peer once: it says ARENA. The peer writes a payload from a
 * region (gather.c) to a place that it may use, and sends a message that says which. The place is the application's until it is
 * given back. What has been returned is one number, in each batch's header and in the mailbox, as limits are. It may be
 * given back in any order, so it is no limit: it has a bit for each place, which changes with each return, and a count, by
 * which an older number is known.
 *
 * A payload that fits the ring goes there if no place is free. One that does not waits for a place.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "rpc/internal.h"

/* ---- The arena of this side ------------------------------------------------------------------- */

static int32_t may_lend(const struct rpc_endpoint *endpoint, crpc_error *error)
{
    if (endpoint->link.state != CRPC_STATE_CONNECTED || endpoint->link.failing ||
        endpoint->leave != LEAVE_NONE) {
        return error_set(error, CRPC_E_STATE, 0, "the endpoint is not connected");
    }
    return endpoint->arena.places == 0
               ? CRPC_OK
               : error_set(error, CRPC_E_STATE, 0, "the endpoint has an arena already");
}

int32_t rpc_arena_lend(struct rpc_endpoint *endpoint, struct rpc_region *region, uint64_t address,
                       uint32_t place_bytes, uint32_t places, crpc_error *error)
{
    struct rpc_arena *arena = &endpoint->arena;
    const uint64_t bytes = (uint64_t)places * place_bytes, offset = address - region->address;
    const uint32_t relaxed = endpoint->engine->nic->relaxed ? NIC_ACCESS_RELAXED : 0;
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | relaxed;
    assert(places > 0 && places <= WIRE_PLACES_MAX && place_bytes > 0);
    assert(offset <= region->bytes && bytes <= region->bytes - offset);
    int32_t status = may_lend(endpoint, error);
    if (status == CRPC_OK) {
        /* In the endpoint's own domain, so its peer alone reaches it, and nothing beside it. */
        status = nic_memory_register(endpoint->engine->nic, endpoint->link.domain, region->fd,
                                     region->fd_offset + offset, address, bytes, access,
                                     &arena->keys, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    arena->users = region->users;
    (*arena->users)++;
    arena->address = address;
    arena->place_bytes = place_bytes;
    arena->places = places;
    arena->readable = !region->foreign;
    rpc_grow_attend(endpoint, RPC_GROW_SAY_ARENA);
    return CRPC_OK;
}

struct wire_arena rpc_arena_word(const struct rpc_endpoint *endpoint)
{
    const struct rpc_arena *arena = &endpoint->arena;
    return (struct wire_arena){.address = arena->address,
                               .place_bytes = arena->place_bytes,
                               .key = arena->keys.remote_key,
                               .places = arena->places};
}

const char *rpc_arena_take(struct rpc_endpoint *endpoint, const struct wire_place *word,
                           uint64_t *address)
{
    struct rpc_arena *arena = &endpoint->arena;
    if (word->place >= arena->places) {
        return "a payload is in no place of an arena";
    }
    if (arena->taken & 1u << word->place) {
        return "a payload is in a place that was not returned";
    }
    if (word->bytes > arena->place_bytes) {
        return "a payload is longer than its place";
    }
    arena->taken |= 1u << word->place;
    *address = arena->address + (uint64_t)word->place * arena->place_bytes;
    return NULL;
}

static void tell(struct wire_mailbox *mailbox, uint32_t returned)
{
    atomic_store_explicit((_Atomic uint32_t *)&mailbox->returned, returned, memory_order_release);
}

void rpc_arena_return(struct rpc_endpoint *endpoint, uint32_t place)
{
    struct rpc_arena *arena = &endpoint->arena;
    assert(arena->taken & 1u << place);
    arena->taken &= ~(1u << place);
    endpoint->in.returned = wire_return(endpoint->in.returned, place);
    if (endpoint->in.ring.address) {
        tell(endpoint->in.mailbox, endpoint->in.returned);
    }
    /* The peer may move there before this side knows. */
    if (endpoint->grow.next.address) {
        tell(ring_mailbox(&endpoint->grow.next), endpoint->in.returned);
    }
}

/* Returns the place whose payload begins there and was not given back, or WIRE_PLACES_MAX. */
static uint32_t taken_place(const struct rpc_arena *arena, uint64_t payload)
{
    const uint64_t offset = payload - arena->address;
    if (arena->places == 0 || offset % arena->place_bytes != 0) {
        return WIRE_PLACES_MAX;
    }
    const uint64_t place = offset / arena->place_bytes;
    return place < arena->places && arena->taken & 1u << place ? (uint32_t)place : WIRE_PLACES_MAX;
}

int32_t rpc_arena_give_back(struct rpc_endpoint *endpoint, uint64_t payload)
{
    const uint32_t place = taken_place(&endpoint->arena, payload);
    if (place == WIRE_PLACES_MAX) {
        return CRPC_E_STALE;
    }
    rpc_arena_return(endpoint, place);
    return CRPC_OK;
}

bool rpc_arena_holds(const struct rpc_endpoint *endpoint, uint64_t payload, uint64_t bytes)
{
    const struct rpc_arena *arena = &endpoint->arena;
    return arena->readable && bytes <= arena->place_bytes &&
           taken_place(arena, payload) != WIRE_PLACES_MAX;
}

void rpc_arena_destroy(struct rpc_endpoint *endpoint)
{
    struct rpc_arena *arena = &endpoint->arena;
    if (arena->places > 0) {
        endpoint->engine->operations->memory_deregister(endpoint->engine->nic, &arena->keys);
        (*arena->users)--;
    }
    *arena = (struct rpc_arena){0};
}

/* ---- The arena of the peer -------------------------------------------------------------------- */

const char *rpc_arena_take_word(struct rpc_endpoint *endpoint, const uint8_t *payload)
{
    struct rpc_peer_arena *arena = &endpoint->peer_arena;
    struct wire_arena word;
    wire_copy(&word, payload);
    if (arena->places > 0) {
        return "it lends a second arena";
    }
    if (endpoint->in.fin == FIN_BEFORE) {
        return "it lends an arena after it took leave";
    }
    if (word.zero != 0 || word.places == 0 || word.places > WIRE_PLACES_MAX ||
        word.place_bytes == 0 ||
        word.address > UINT64_MAX - (uint64_t)word.places * word.place_bytes) {
        return "its arena is malformed";
    }
    *arena = (struct rpc_peer_arena){.address = word.address,
                                     .place_bytes = word.place_bytes,
                                     .key = word.key,
                                     .places = word.places};
    return NULL;
}

bool rpc_arena_next(const struct rpc_endpoint *endpoint, uint32_t *place)
{
    const struct rpc_peer_arena *arena = &endpoint->peer_arena;
    *place = (uint32_t)__builtin_ctz(~arena->used);
    return *place < arena->places;
}

const char *rpc_arena_hear(struct rpc_endpoint *endpoint, uint32_t returned)
{
    struct rpc_peer_arena *arena = &endpoint->peer_arena;
    const uint32_t heard = rpc_arena_heard(endpoint);
    const uint32_t count = wire_returns_between(heard, returned);
    const uint32_t places = (returned ^ heard) & WIRE_RETURNED_PLACES;
    if (returned == heard) {
        return NULL;
    }
    if (arena->places == 0) {
        return "it returns places of an arena that it has not lent";
    }
    if (count > WIRE_RETURNS_MAX) {
        return NULL; /* a READ of the mailbox was faster */
    }
    if ((uint32_t)__builtin_popcount(places) != count || places & ~arena->used) {
        return "it returns places of its arena that are not in use";
    }
    arena->used &= ~places;
    endpoint->out.heard = (uint64_t)returned << 32;
    if (endpoint->link.refused) {
        rpc_report_room(endpoint);
    }
    return NULL;
}

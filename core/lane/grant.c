/* grant.c: the grants of both sides.
 *
 * A grant of this side is a window. Its place in a table is used again when it has ended; its serial never
 * is. REVOKE asks the peer first, so that one that keeps the rules is not refused in the middle of an op,
 * which would cost both sides their lane. It is one grant at a time that the peer is asked for. A window that
 * it does not give up before the deadline is invalidated all the same, and the peer is told when its turn
 * comes.
 */
#include "lane/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"

/* ---- The bytes of a grant -------------------------------------------------------------------- */

#define GRANT_MAGIC 0x47505243u /* "CRPG" */
#define GRANT_VERSION 1u

struct grant_wire {
    uint32_t magic;
    uint16_t version;
    uint16_t access;
    uint32_t giver; /* numbers of the two sides of the connection */
    uint32_t taker;
    uint64_t serial;
    uint64_t address;
    uint32_t bytes;
    uint32_t key;
    uint32_t life;
    uint32_t checksum; /* FNV-1a of all bytes before it; detects damage, not forgery */
};
static_assert(sizeof(struct grant_wire) == LANE_GRANT_BYTES, "a grant");
static_assert(LANE_GRANTS_MAX <= SERIAL_INDEX_MASK, "a serial has its place");

void lane_grant_write(const struct lane_grant *grant, uint8_t bytes[LANE_GRANT_BYTES])
{
    const struct lane_identity *identity = &grant->lane->identity;
    assert(grant->given);
    struct grant_wire wire = {.magic = GRANT_MAGIC,
                              .version = GRANT_VERSION,
                              .access = (uint16_t)grant->access,
                              .giver = identity->own,
                              .taker = identity->peer,
                              .serial = grant->serial,
                              .address = grant->address,
                              .bytes = grant->bytes,
                              .key = grant->key,
                              .life = identity->life};
    wire.checksum = checksum_of(&wire, offsetof(struct grant_wire, checksum));
    memcpy(bytes, &wire, sizeof(wire));
}

#define ACCESS_ALL (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

static bool revoked(const struct lane *lane, uint64_t serial)
{
    return serial >> SERIAL_INDEX_BITS <= lane->revoked_uses[serial & SERIAL_INDEX_MASK];
}

static int32_t check_wire(const struct lane *lane, const struct grant_wire *wire, uint32_t count,
                          crpc_error *error)
{
    if (count != LANE_GRANT_BYTES || wire->magic != GRANT_MAGIC ||
        wire->checksum != checksum_of(wire, offsetof(struct grant_wire, checksum))) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "these %u bytes are no grant, or one that is cut or damaged", count);
    }
    if (wire->version != GRANT_VERSION) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the grant is of version %u, this library has %u", wire->version,
                         GRANT_VERSION);
    }
    if (wire->access == 0 || (wire->access & ~ACCESS_ALL) || wire->bytes == 0 ||
        wire->bytes > LANE_GRANT_LENGTH_MAX || wire->address > UINT64_MAX - wire->bytes ||
        (wire->serial & SERIAL_INDEX_MASK) >= LANE_GRANTS_MAX) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the grant says what none can");
    }
    if (wire->giver != lane->identity.peer || wire->taker != lane->identity.own ||
        wire->life != lane->identity.life) {
        return error_set(error, CRPC_E_STALE, 0,
                         "the grant is of another connection, or was given to the other side");
    }
    return revoked(lane, wire->serial)
               ? error_set(error, CRPC_E_STALE, 0, "the peer has revoked the grant")
               : CRPC_OK;
}

int32_t lane_take(struct lane *lane, const void *bytes, uint32_t count, struct lane_grant **out,
                  crpc_error *error)
{
    struct grant_wire wire = {0};
    assert(lane->open);
    if (count == sizeof(wire)) {
        memcpy(&wire, bytes, sizeof(wire));
    }
    int32_t status = check_wire(lane, &wire, count, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct lane_taken *taken = calloc(1, sizeof(*taken));
    if (taken) {
        taken->grant.handle = handles_add(lane->handles, HANDLE_GRANT, taken);
    }
    if (!taken || taken->grant.handle == 0) {
        free(taken);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a grant");
    }
    taken->grant.lane = lane;
    taken->grant.serial = wire.serial;
    taken->grant.address = wire.address;
    taken->grant.bytes = wire.bytes;
    taken->grant.access = wire.access;
    taken->grant.key = wire.key;
    taken->grant.life = wire.life;
    list_append(&lane->taken, &taken->link);
    *out = &taken->grant;
    return CRPC_OK;
}

void lane_forget(struct lane_grant *grant)
{
    struct lane_taken *taken = container_of(grant, struct lane_taken, grant);
    assert(!grant->given);
    handles_remove(grant->lane->handles, grant->handle);
    list_remove(&taken->link);
    free(taken);
}

bool lane_grant_over(const struct lane_grant *grant)
{
    return !grant->lane->open || grant->life != grant->lane->identity.life ||
           (!grant->given && revoked(grant->lane, grant->serial));
}

/* ---- Giving ---------------------------------------------------------------------------------- */

static struct lane_given *new_place(struct lane *lane)
{
    struct lane_given *given = calloc(1, sizeof(*given));
    if (!given) {
        return NULL;
    }
    if (lane->operations->window_create(lane->nic, &given->window, NULL) != CRPC_OK) {
        free(given);
        return NULL;
    }
    wheel_timer_init(&given->timer, lane->options.timer_kind);
    list_init(&given->link);
    list_init(&given->tell_link);
    given->grant.lane = lane;
    given->grant.given = true;
    lane->given[lane->given_count] = given;
    given->place = (uint16_t)lane->given_count++;
    return given;
}

static int32_t find_place(struct lane *lane, struct lane_given **given)
{
    if (!list_empty(&lane->free)) {
        *given = list_entry(lane->free.next, struct lane_given, link);
        if (!(*given)->window.driver && /* those of the life before are gone */
            lane->operations->window_create(lane->nic, &(*given)->window, NULL) != CRPC_OK) {
            return CRPC_E_NO_MEMORY;
        }
        return CRPC_OK;
    }
    if (lane->given_count == LANE_GRANTS_MAX) {
        return CRPC_E_NO_RESOURCE;
    }
    *given = new_place(lane);
    if (!*given) {
        return CRPC_E_NO_MEMORY;
    }
    list_append(&lane->free, &(*given)->link);
    return CRPC_OK;
}

int32_t lane_give(struct lane *lane, const struct lane_memory *memory, uint64_t user_data)
{
    struct lane_given *given;
    assert(lane->open && memory->bytes > 0 && memory->bytes <= LANE_GRANT_LENGTH_MAX &&
           memory->access != 0 && (memory->access & ~ACCESS_ALL) == 0);
    if (!lane->nic->windows) {
        return CRPC_E_UNSUPPORTED;
    }
    if (lane_room(lane) == 0) {
        return CRPC_E_AGAIN;
    }
    int32_t status = find_place(lane, &given);
    if (status != CRPC_OK) {
        return status;
    }
    uint64_t handle = handles_add(lane->handles, HANDLE_GRANT, given);
    if (handle == 0) {
        return CRPC_E_NO_MEMORY;
    }
    list_remove(&given->link);
    given->state = GIVEN_BINDING;
    given->keys = *memory->keys;
    given->users = memory->users;
    ++*given->users;
    given->window.access = memory->access;
    given->grant.handle = handle;
    given->grant.serial = serial_of(++given->uses, given->place);
    given->grant.address = memory->address;
    given->grant.bytes = memory->bytes;
    given->grant.access = memory->access;
    given->grant.life = lane->identity.life;
    lane_book(lane, &(struct lane_entry){
                        .user_data = user_data, .place = given->place, .opcode = LANE_GRANT});
    lane->operations->post_bind(lane->queue_pair, &given->window, &given->keys, memory->address,
                                memory->bytes, NIC_POST_SIGNALED);
    lane->operations->ring_doorbell(lane->queue_pair);
    given->grant.key = given->window.remote_key;
    return CRPC_OK;
}

/* ---- Revoking -------------------------------------------------------------------------------- */

static struct lane_given *given_of(struct lane_grant *grant)
{
    assert(grant->given);
    return container_of(grant, struct lane_given, grant);
}

static void release_memory(struct lane_given *given)
{
    if (given->users) {
        --*given->users;
        given->users = NULL;
    }
}

/* The right has ended. */
static void revoke_done(struct lane *lane, struct lane_given *given)
{
    release_memory(given);
    given->state = GIVEN_ENDED;
    list_append(&lane->ended, &given->link);
}

static void invalidate_now(struct lane *lane, struct lane_given *given)
{
    assert(given->state == GIVEN_REVOKED);
    given->state = GIVEN_INVALIDATE;
    list_append(&lane->invalidate, &given->link);
    if (lane_post_invalidates(lane)) {
        lane->operations->ring_doorbell(lane->queue_pair);
    }
}

bool lane_post_invalidates(struct lane *lane)
{
    bool posted = false;
    while (!list_empty(&lane->invalidate) && lane_room(lane) > 0) {
        struct lane_given *given = list_entry(lane->invalidate.next, struct lane_given, link);
        list_remove(&given->link);
        given->state = GIVEN_INVALIDATING;
        lane_book(lane, &(struct lane_entry){.place = given->place, .opcode = LANE_REVOKE});
        lane->operations->post_invalidate(lane->queue_pair, &given->window, NIC_POST_SIGNALED);
        posted = true;
    }
    return posted;
}

void lane_given_done(struct lane *lane, const struct lane_entry *entry)
{
    struct lane_given *given = lane->given[entry->place];
    if (entry->opcode == LANE_GRANT) {
        assert(given->state == GIVEN_BINDING);
        given->state = GIVEN_BOUND;
    } else {
        assert(given->state == GIVEN_INVALIDATING);
        revoke_done(lane, given);
    }
}

bool lane_grant_revocable(const struct lane_grant *grant)
{
    return grant->given &&
           container_of(grant, const struct lane_given, grant)->state == GIVEN_BOUND;
}

void lane_revoke(struct lane_grant *grant, uint64_t user_data, struct wheel *wheel,
                 uint64_t deadline_ns)
{
    struct lane_given *given = given_of(grant);
    struct lane *lane = grant->lane;
    assert(lane->open && given->state == GIVEN_BOUND);
    handles_remove(lane->handles, grant->handle);
    given->user_data = user_data;
    given->state = GIVEN_REVOKED;
    given->tell_uses = given->uses;
    list_append_once(&lane->tell, &given->tell_link);
    lane->revokes_open++;
    if (deadline_ns != UINT64_MAX) {
        wheel_set(wheel, &given->timer, deadline_ns);
    }
}

struct lane *lane_timer(struct wheel_timer *timer)
{
    struct lane_given *given = container_of(timer, struct lane_given, timer);
    invalidate_now(given->grant.lane, given);
    return given->grant.lane;
}

/* ---- What the two sides tell each other ------------------------------------------------------ */

bool lane_revoke_due(const struct lane *lane)
{
    return lane->open && !lane->told && !list_empty(&lane->tell);
}

uint64_t lane_revoke_say(struct lane *lane)
{
    struct lane_given *given = list_entry(lane->tell.next, struct lane_given, tell_link);
    assert(lane_revoke_due(lane));
    list_remove(&given->tell_link);
    lane->told = true;
    lane->told_serial = serial_of(given->tell_uses, given->place);
    return lane->told_serial;
}

const char *lane_take_answer(struct lane *lane, uint64_t serial, struct wheel *wheel)
{
    if (!lane->told || serial != lane->told_serial) {
        return "it answers a REVOKE that was not said";
    }
    struct lane_given *given = lane->given[serial & SERIAL_INDEX_MASK];
    lane->told = false;
    if (given->state == GIVEN_REVOKED && given->grant.serial == serial) { /* or it came too late */
        wheel_clear(wheel, &given->timer);
        invalidate_now(lane, given);
    }
    return NULL;
}

const char *lane_take_revoke(struct lane *lane, uint64_t serial)
{
    const uint64_t place = serial & SERIAL_INDEX_MASK;
    if (lane->answer_owed) {
        return "it revokes a grant before the last one was answered";
    }
    if (place >= LANE_GRANTS_MAX || revoked(lane, serial)) {
        return "it revokes what is no grant, or was revoked";
    }
    lane->revoked_uses[place] = serial >> SERIAL_INDEX_BITS;
    lane->answer_owed = true;
    lane->answer_serial = serial;
    lane->answer_mark = lane->posted;
    return NULL;
}

bool lane_answer_due(const struct lane *lane)
{
    return lane->answer_owed && lane_reached(lane, lane->answer_mark);
}

uint64_t lane_answer_say(struct lane *lane)
{
    assert(lane_answer_due(lane));
    lane->answer_owed = false;
    return lane->answer_serial;
}

bool lane_answer_owed(const struct lane *lane)
{
    return lane->answer_owed;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void end_given(struct lane *lane, struct lane_given *given, struct wheel *wheel)
{
    const bool revoking = given->state == GIVEN_REVOKED || given->state == GIVEN_INVALIDATE ||
                          given->state == GIVEN_INVALIDATING;
    lane->operations->window_destroy(lane->nic, &given->window);
    if (wheel_timer_set(&given->timer)) {
        assert(wheel);
        wheel_clear(wheel, &given->timer);
    }
    list_remove(&given->tell_link);
    if (revoking) {
        list_remove(&given->link);
        revoke_done(lane, given);
    } else if (given->state == GIVEN_BINDING || given->state == GIVEN_BOUND) {
        handles_remove(lane->handles, given->grant.handle);
        release_memory(given);
        given->state = GIVEN_FREE;
        list_append(&lane->free, &given->link);
    }
}

void lane_end_grants(struct lane *lane, struct wheel *wheel)
{
    for (uint32_t i = 0; i < lane->given_count; i++) {
        end_given(lane, lane->given[i], wheel);
    }
}

void lane_free_grants(struct lane *lane)
{
    for (struct list *at = lane->taken.next, *next; at != &lane->taken; at = next) {
        next = at->next;
        lane_forget(&list_entry(at, struct lane_taken, link)->grant);
    }
    for (uint32_t i = 0; i < lane->given_count; i++) {
        free(lane->given[i]);
    }
    lane->given_count = 0;
}

void lane_emit_revokes(struct lane *lane, struct output *output)
{
    while (!list_empty(&lane->ended) && !output_full(output)) {
        struct lane_given *given = list_entry(lane->ended.next, struct lane_given, link);
        list_remove(&given->link);
        given->state = GIVEN_FREE;
        list_append(&lane->free, &given->link);
        lane->revokes_open--;
        *output->next++ = (crpc_completion){.kind = NIC_COMPLETION_WORK,
                                            .method = LANE_REVOKE,
                                            .endpoint = {lane->options.handle},
                                            .user_data = given->user_data,
                                            .endpoint_user_data = lane->options.user_data};
    }
}

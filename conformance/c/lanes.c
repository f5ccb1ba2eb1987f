/* lanes.c: the verbs of lanes, and what comes of them. */
#include "runner.h"

#include <string.h>

#include "line.h"

#define OPS_MAX 16384

/* An op. It waits until there is room, in order; its place is its user data. */
struct lane_op {
    crpc_lane_op op;
    struct thing *endpoint; /* whose token says that it has no room */
    struct thing *grant;    /* GRANT: what is made */
    uint64_t id;
    int waits;
    crpc_piece pieces[CRPC_LANE_PIECES_MAX]; /* where its memory is, if not in one place */
    uint32_t piece_count;
};

static struct lane_op ops[OPS_MAX];
static uint32_t ops_count, first; /* none before `first` waits */

void lanes_reset(void)
{
    ops_count = first = 0;
}

/* ---- What became of them ---- */

static void put_grant(json_t *event, crpc_grant grant)
{
    uint8_t bytes[CRPC_GRANT_BYTES] = {0};
    crpc_grant_get(context, grant, bytes);
    put_bytes(event, "bytes", bytes, sizeof(bytes));
}

/* Where the memory of this side is: of all ops in pieces, also where there is one. */
static uint32_t places_of(const struct lane_op *it, crpc_piece places[CRPC_LANE_PIECES_MAX])
{
    places[0] = (crpc_piece){.address = it->op.address, .bytes = it->op.bytes};
    if (it->piece_count > 0) {
        memcpy(places, it->pieces, sizeof(it->pieces));
    }
    return it->piece_count > 0 ? it->piece_count : 1;
}

static void put_read(json_t *event, const struct lane_op *it)
{
    crpc_piece places[CRPC_LANE_PIECES_MAX];
    uint32_t sum = 0, bytes = 0;
    const uint32_t count = places_of(it, places);
    for (uint32_t i = 0; i < count; i++) {
        sum = checksum_on(sum, (const void *)(uintptr_t)places[i].address, places[i].bytes);
        bytes += places[i].bytes;
    }
    put_number(event, "length", bytes);
    put_number(event, "checksum", sum);
}

static void tell_op(const struct lane_op *it, int32_t status, uint64_t token)
{
    const crpc_lane_op *op = &it->op;
    const char *kind = op->opcode == CRPC_LANE_GRANT    ? "granted"
                       : op->opcode == CRPC_LANE_REVOKE ? "revoked"
                                                        : "completed";
    json_t *event = event_new(kind);
    put_number(event, "id", it->id);
    put_status(event, status);
    if (status == CRPC_OK && op->opcode == CRPC_LANE_READ) {
        put_read(event, it);
    } else if (status == CRPC_OK && op->opcode == CRPC_LANE_GRANT) {
        it->grant->bits = token;
        put_grant(event, (crpc_grant){token});
    } else if (status == CRPC_OK &&
               (op->opcode == CRPC_LANE_COMPARE_SWAP || op->opcode == CRPC_LANE_FETCH_ADD)) {
        put_big(event, "before", token);
    }
    event_tell(event);
}

void lanes_take(const crpc_completion *done, struct thing *endpoint)
{
    if (done->kind == CRPC_COMPLETION_WORK) {
        tell_op(&ops[done->user_data], done->status, done->token);
    } else {
        endpoint->token = 0; /* there is room, or it will tell that there is none */
    }
}

/* ---- Into the library ---- */

void lanes_submit(void)
{
    for (uint32_t i = first; i < ops_count; i++) {
        struct lane_op *it = &ops[i];
        int32_t reason = CRPC_OK;
        if (it->waits && !it->endpoint->token) {
            crpc_lane_submit(context, (crpc_endpoint){it->endpoint->bits}, &it->op, 1, it->pieces,
                             it->piece_count, &reason);
            it->waits = it->endpoint->token = reason == CRPC_E_AGAIN;
            if (reason != CRPC_OK && reason != CRPC_E_AGAIN) {
                tell_op(it, reason, 0);
            }
        }
        first += i == first && !it->waits;
    }
}

int lanes_waiting(uint64_t endpoint)
{
    for (uint32_t i = first; i < ops_count; i++) {
        if (ops[i].waits && ops[i].endpoint->bits == endpoint) {
            return 1;
        }
    }
    return 0;
}

static struct lane_op *add(struct thing *endpoint, uint8_t opcode, uint64_t id)
{
    struct lane_op *it = &ops[ops_count];
    if (ops_count == OPS_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    *it = (struct lane_op){.endpoint = endpoint, .id = id, .waits = 1};
    it->op.opcode = opcode;
    it->op.user_data = ops_count++;
    return it;
}

static void name_memory(crpc_lane_op *op, uint32_t offset)
{
    const struct thing *region = thing_named(text("region"));
    op->bytes = number("length");
    if (region) {
        op->region.bits = region->bits;
        op->address = (uint64_t)(uintptr_t)region->memory + offset;
    }
}

static int32_t do_grant(struct thing *endpoint, struct thing *made)
{
    struct lane_op *it = add(endpoint, CRPC_LANE_GRANT, number("id"));
    it->grant = made;
    it->op.access = (uint16_t)number("access");
    made->bits = 0; /* until it has completed */
    name_memory(&it->op, number("offset"));
    return CRPC_OK;
}

static int32_t do_revoke(struct thing *endpoint)
{
    const struct thing *grant = thing_named(text("grant"));
    struct lane_op *it = add(endpoint, CRPC_LANE_REVOKE, number("id"));
    it->op.grant.bits = grant ? grant->bits : 0;
    it->op.operand = nanoseconds("timeout_ms");
    return CRPC_OK;
}

static uint8_t opcode_of(const char *name)
{
    static const char *const names[] = {"", "write", "read", "compare_swap", "fetch_add"};
    uint8_t opcode = 0;
    while (opcode < 4 && strcmp(names[opcode], name) != 0) {
        opcode++;
    }
    return opcode;
}

/* The memory of the op that is `moved` bytes behind the first one's. */
static void name_places(struct lane_op *it, uint32_t moved)
{
    const struct thing *region = thing_named(text("region"));
    uint32_t lengths[CRPC_LANE_PIECES_MAX], offsets[CRPC_LANE_PIECES_MAX] = {0};
    if (!has("lengths") || !region) {
        name_memory(&it->op, number("offset") + moved);
        return;
    }
    it->piece_count = numbers("lengths", lengths, CRPC_LANE_PIECES_MAX);
    numbers("offsets", offsets, CRPC_LANE_PIECES_MAX);
    for (uint32_t i = 0; i < it->piece_count; i++) {
        it->pieces[i] =
            (crpc_piece){.region = {region->bits},
                         .address = (uint64_t)(uintptr_t)region->memory + offsets[i] + moved,
                         .bytes = lengths[i]};
    }
}

static void write_payload(const struct lane_op *it, uint32_t seed)
{
    crpc_piece places[CRPC_LANE_PIECES_MAX];
    uint32_t length = 0, done = 0;
    const uint32_t count = places_of(it, places);
    for (uint32_t i = 0; i < count; i++) {
        length += places[i].bytes;
    }
    const uint8_t *payload = payload_of(length, seed);
    for (uint32_t i = 0; i < count; i++) {
        memcpy((void *)(uintptr_t)places[i].address, payload + done, places[i].bytes);
        done += places[i].bytes;
    }
}

static int32_t do_transfer(struct thing *endpoint)
{
    const struct thing *grant = thing_named(text("grant"));
    const uint32_t count = has("count") ? number("count") : 1;
    const uint32_t length = number("length");
    const uint32_t step = has("step") ? number("step") : length;
    const uint32_t usual = length ? step : 0; /* atomics are all of one place */
    const uint32_t there_step = has("there_step") ? number("there_step") : usual;
    for (uint32_t i = 0; i < count; i++) {
        struct lane_op *it = add(endpoint, opcode_of(text("opcode")), number("id") + i);
        name_places(it, i * step);
        it->op.flags = number("fence") ? CRPC_LANE_FENCE : 0;
        it->op.grant.bits = grant ? grant->bits : 0;
        it->op.offset = number64("there") + (uint64_t)i * there_step;
        it->op.compare = number64("compare");
        it->op.operand = number64("operand");
        if (has("seed")) {
            write_payload(it, number("seed") + i);
        }
        if (it->piece_count > 0) {
            it->op.flags |= CRPC_LANE_PIECES;
            it->op.bytes = it->piece_count; /* from the first on */
        }
    }
    return CRPC_OK;
}

/* ---- Grants ---- */

static int32_t do_open_grant(crpc_endpoint endpoint, struct thing *made)
{
    uint8_t bytes[2 * CRPC_GRANT_BYTES];
    const uint32_t count = bytes_of("bytes", bytes, sizeof(bytes));
    crpc_grant grant = {0};
    const uint64_t hang = now_ns() + 60000000000u;
    int32_t status = crpc_grant_open(context, endpoint, bytes, count, &grant, NULL);
    while (status == CRPC_E_AGAIN &&
           now_ns() < hang) { /* the peer has a lane, and this side soon */
        turn();
        status = crpc_grant_open(context, endpoint, bytes, count, &grant, NULL);
    }
    made->bits = grant.bits;
    return status;
}

static int32_t tell_info(crpc_grant grant)
{
    crpc_grant_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_grant_get_info(context, grant, &info);
    put_number(answer(), "bytes", info.bytes);
    put_number(answer(), "access", info.access);
    json_object_set_new(answer(), "of_peer", json_boolean(info.of_peer));
    json_object_set_new(answer(), "over", json_boolean(status != CRPC_OK || info.over));
    return status;
}

int32_t lanes_run(const char *verb, struct thing *it, struct thing *made)
{
#define IS(name) (strcmp(verb, name) == 0)
    crpc_endpoint endpoint = {it ? it->bits : 0};
    crpc_grant grant = {endpoint.bits};
    if (!it) {
        return VERB_UNKNOWN;
    } else if (made && IS("grant")) {
        return do_grant(it, made);
    } else if (made && IS("open_grant")) {
        return do_open_grant(endpoint, made);
    } else if (IS("close_grant")) {
        return crpc_grant_close(context, grant);
    } else if (IS("grant_info")) {
        return tell_info(grant);
    } else if (IS("revoke")) {
        return do_revoke(it);
    } else if (IS("transfer")) {
        return do_transfer(it);
    }
    return VERB_UNKNOWN;
#undef IS
}

/* lane_op_test.c: one-sided ops of endpoints through the public API: what is taken and what is refused, what
 * grants give and what not, and how both end. */
#include <stdbool.h>

#include "fixture.h"

#define OPCODES (CRPC_LANE_REVOKE + 1)
#define ALL_ACCESS (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

static _Alignas(64) uint8_t ours[8192], theirs[8192];
static crpc_endpoint left, right;
static crpc_region region, right_region; /* of all of it, with LOCAL_WRITE */
static crpc_grant given, grant; /* of theirs[1024, 2048): right's, and left's handle of it */

static crpc_region region_of(crpc_context *context, void *address, uint64_t bytes, uint32_t access)
{
    crpc_region made;
    assert_int_equal(crpc_region_register(context, address, bytes, access, &made, NULL), CRPC_OK);
    return made;
}

static int open_lane(void **state)
{
    int failed = fixture_open(state);
    fixture_lane(&left, &right);
    memset(ours, 0, sizeof(ours));
    memset(theirs, 0, sizeof(theirs));
    region = region_of(fixture.left, ours, sizeof(ours), CRPC_ACCESS_LOCAL_WRITE);
    right_region = region_of(fixture.right, theirs, sizeof(theirs), CRPC_ACCESS_LOCAL_WRITE);
    given = fixture_grant(right, right_region, theirs + 1024, 1024, ALL_ACCESS);
    grant = fixture_open_grant(left, given);
    return failed;
}

/* A good op of the left side. */
static crpc_lane_op good(uint8_t opcode)
{
    crpc_lane_op op = {.opcode = opcode, .user_data = 900 + opcode};
    if (opcode == CRPC_LANE_WRITE || opcode == CRPC_LANE_READ || opcode == CRPC_LANE_GRANT) {
        op.bytes = 100;
        op.region = region;
        op.address = (uint64_t)(uintptr_t)ours;
    }
    if (opcode == CRPC_LANE_GRANT) {
        op.access = CRPC_ACCESS_REMOTE_READ;
    } else {
        op.grant = grant;
    }
    return op;
}

static int32_t submit(const crpc_lane_op *op)
{
    return fixture_lane_submit(fixture.left, left, op);
}

static crpc_completion expect_done(uint8_t opcode)
{
    crpc_completion done = fixture_expect(fixture.left, CRPC_COMPLETION_WORK);
    assert_int_equal(fixture.count, 1);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(done.flags, 0);
    assert_int_equal(done.user_data, 900 + opcode);
    assert_int_equal(done.endpoint.bits, left.bits);
    assert_int_equal(done.endpoint_user_data, 815);
    return done;
}

static void expect(const crpc_lane_op *op, int32_t status)
{
    int32_t reason = submit(op);
    if (reason != status) {
        fail_msg("opcode %u: %s, not %s", op->opcode, crpc_status_name(reason),
                 crpc_status_name(status));
    }
}

/* ---- Good ops -------------------------------------------------------------------------------- */

static void each_opcode(void **state)
{
    (void)state;
    uint64_t word;
    crpc_lane_op op = good(CRPC_LANE_WRITE);
    memset(ours, 0x5a, 100);
    op.offset = 924; /* up to the end */
    expect(&op, CRPC_OK);
    expect_done(CRPC_LANE_WRITE);
    assert_memory_equal(theirs + 1948, ours, 100);
    assert_int_equal(theirs[1947] | theirs[2048], 0);

    op = good(CRPC_LANE_READ);
    op.bytes = 1024;
    op.address += 4096;
    expect(&op, CRPC_OK);
    assert_int_equal(expect_done(CRPC_LANE_READ).payload_bytes, 1024);
    assert_memory_equal(ours + 4096, theirs + 1024, 1024);

    op = good(CRPC_LANE_FETCH_ADD);
    op.offset = 16;
    op.operand = 5;
    expect(&op, CRPC_OK);
    assert_int_equal(expect_done(CRPC_LANE_FETCH_ADD).token, 0);
    op = good(CRPC_LANE_COMPARE_SWAP);
    op.flags = CRPC_LANE_FENCE;
    op.offset = 16;
    op.compare = 5;
    op.operand = 77;
    expect(&op, CRPC_OK);
    assert_int_equal(expect_done(CRPC_LANE_COMPARE_SWAP).token, 5);
    memcpy(&word, theirs + 1040, 8);
    assert_int_equal(word, 77);

    op = good(CRPC_LANE_GRANT);
    expect(&op, CRPC_OK);
    crpc_grant own = {expect_done(CRPC_LANE_GRANT).token};
    op = good(CRPC_LANE_REVOKE);
    op.grant = own;
    expect(&op, CRPC_OK);
    fixture_poll(fixture.left);
    assert_int_equal(fixture.count, 0);
    fixture_poll(fixture.right); /* the peer answers */
    expect_done(CRPC_LANE_REVOKE);
}

/* One that can be, one that cannot, and one behind it, which is not looked at. */
static void an_array_stops_at_the_first_that_cannot_be(void **state)
{
    (void)state;
    crpc_lane_op ops[40];
    int32_t reason;
    for (uint32_t i = 0; i < 40; i++) {
        ops[i] = good(i % 2 ? CRPC_LANE_READ : CRPC_LANE_WRITE);
        ops[i].user_data = i;
    }
    ops[35] = good(CRPC_LANE_GRANT);
    ops[36].offset = 1000;
    assert_int_equal(crpc_lane_submit(fixture.left, left, ops, 40, NULL, 0, &reason), 36);
    assert_int_equal(reason, CRPC_E_INVALID);
    uint32_t seen = 0;
    for (uint32_t polls = 0; polls < 5; polls++) {
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++, seen++) {
            assert_int_equal(fixture.completions[i].status, CRPC_OK);
            assert_true(seen == 35 || fixture.completions[i].user_data == seen);
        }
    }
    assert_int_equal(seen, 36);
    assert_int_equal(crpc_lane_submit(fixture.left, left, ops, 40, NULL, 0, NULL), 36);
    assert_int_equal(crpc_lane_submit(fixture.left, left, NULL, 0, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_OK);
    assert_int_equal(crpc_lane_submit(fixture.left, left, NULL, 1, NULL, 0, &reason),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_lane_submit(fixture.left, left, ops, UINT32_MAX, NULL, 0, &reason),
                     CRPC_E_INVALID);
}

/* Nothing has no place. */
static void no_bytes(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_LANE_WRITE; opcode <= CRPC_LANE_READ; opcode++) {
        crpc_lane_op op = good(opcode);
        op.bytes = 0;
        op.region.bits = 0;
        op.offset = 1024;
        expect(&op, CRPC_OK);
        expect_done(opcode);
    }
}

/* ---- What is refused ------------------------------------------------------------------------- */

struct field {
    const char *name;
    size_t offset;
    size_t bytes;
    uint8_t of[OPCODES]; /* which opcodes name it */
};

static const struct field fields[] = {
#define FIELD(name, write, read, swap, add, grants, revokes)                                       \
    {                                                                                              \
#name, offsetof(crpc_lane_op, name), sizeof(((crpc_lane_op *)0)->name),                    \
        {                                                                                          \
            0, write, read, swap, add, grants, revokes                                             \
        }                                                                                          \
    }
    FIELD(access, 0, 0, 0, 0, 1, 0),  FIELD(bytes, 1, 1, 0, 0, 1, 0),
    FIELD(region, 1, 1, 0, 0, 1, 0),  FIELD(address, 1, 1, 0, 0, 1, 0),
    FIELD(grant, 1, 1, 1, 1, 0, 1),   FIELD(offset, 1, 1, 1, 1, 0, 0),
    FIELD(compare, 0, 0, 1, 0, 0, 0), FIELD(operand, 0, 0, 1, 1, 0, 1),
};

static void fields_that_the_opcode_does_not_name_must_be_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *field = &fields[i];
        for (uint8_t opcode = CRPC_LANE_WRITE; opcode < OPCODES; opcode++) {
            for (size_t at = 0; at < field->bytes && !field->of[opcode]; at += field->bytes - 1) {
                crpc_lane_op op = good(opcode);
                ((uint8_t *)&op)[field->offset + at] ^= 1;
                expect(&op, CRPC_E_INVALID);
            }
        }
    }
    for (uint8_t opcode = CRPC_LANE_WRITE; opcode < OPCODES; opcode++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            crpc_lane_op op = good(opcode);
            op.flags = (uint8_t)(1u << bit);
            if (bit > 0 || opcode > CRPC_LANE_FETCH_ADD) {
                expect(&op, CRPC_E_INVALID);
            }
        }
    }
    fixture_poll(fixture.left);
    assert_int_equal(fixture.count, 0);
}

static void unknown_opcodes(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        if (opcode < CRPC_LANE_WRITE || opcode >= OPCODES) {
            const crpc_lane_op op = {.opcode = (uint8_t)opcode};
            expect(&op, CRPC_E_UNSUPPORTED);
        }
    }
}

static void memory_of_this_side(void **state)
{
    (void)state;
    crpc_region read_only = region_of(fixture.left, ours, 4096, 0);
    crpc_region gone = region_of(fixture.left, ours, 4096, 0);
    assert_int_equal(crpc_region_deregister(fixture.left, gone), CRPC_OK);
    static const uint8_t opcodes[] = {CRPC_LANE_WRITE, CRPC_LANE_READ, CRPC_LANE_GRANT};
    for (uint32_t i = 0; i < 3; i++) {
        crpc_lane_op op = good(opcodes[i]);
        op.address--; /* before its region */
        expect(&op, CRPC_E_INVALID);
        op.address += 1 + 8192 - 99; /* the last byte is behind it */
        expect(&op, CRPC_E_INVALID);
        op.address = UINT64_MAX - 10;
        expect(&op, CRPC_E_INVALID);
        op = good(opcodes[i]);
        op.region.bits = 0;
        expect(&op, CRPC_E_INVALID);
        op.region = gone;
        expect(&op, CRPC_E_STALE);
        op.region = right_region; /* of another context */
        expect(&op, CRPC_E_STALE);
        op.region.bits = left.bits;
        expect(&op, CRPC_E_STALE);
        op.region = read_only;
        if (opcodes[i] == CRPC_LANE_READ) {
            expect(&op, CRPC_E_INVALID);
        }
    }
    crpc_lane_op op = good(CRPC_LANE_GRANT);
    op.region = read_only;
    expect(&op, CRPC_OK); /* for reading */
    op.access = CRPC_ACCESS_REMOTE_WRITE;
    expect(&op, CRPC_E_INVALID);
    op.access = CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC;
    expect(&op, CRPC_E_INVALID);
    op = good(CRPC_LANE_GRANT);
    op.bytes = 0;
    expect(&op, CRPC_E_INVALID);
    op = good(CRPC_LANE_GRANT);
    op.access = 0;
    expect(&op, CRPC_E_INVALID);
    op.access = CRPC_ACCESS_LOCAL_WRITE;
    expect(&op, CRPC_E_INVALID);
    op.access = 0x8002;
    expect(&op, CRPC_E_INVALID);
}

static void too_long(void **state)
{
    (void)state;
    static const uint64_t huge = UINT64_C(5) << 30;
    /* nobody looks at it */
    crpc_region made =
        region_of(fixture.left, (void *)(uintptr_t)4096, huge, CRPC_ACCESS_LOCAL_WRITE);
    crpc_lane_op op = good(CRPC_LANE_GRANT);
    op.region = made;
    op.address = 4096;
    op.bytes = (1u << 31) + 1;
    expect(&op, CRPC_E_TOO_BIG);
    op.bytes--;
    expect(&op, CRPC_OK);
    crpc_grant_info info = {.struct_size = sizeof(info)};
    crpc_grant big = {expect_done(CRPC_LANE_GRANT).token};
    assert_int_equal(crpc_grant_get_info(fixture.left, big, &info), CRPC_OK);
    assert_int_equal(info.bytes, 1u << 31);
    assert_int_equal(info.of_peer, 0);
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_grant taken;
    assert_int_equal(crpc_grant_get(fixture.left, big, bytes), CRPC_OK);
    assert_int_equal(crpc_grant_open(fixture.right, right, bytes, sizeof(bytes), &taken, NULL),
                     CRPC_OK);
    crpc_region right_huge =
        region_of(fixture.right, (void *)(uintptr_t)4096, huge, CRPC_ACCESS_LOCAL_WRITE);
    op = (crpc_lane_op){.opcode = CRPC_LANE_READ,
                        .bytes = (1u << 30) + 1,
                        .region = right_huge,
                        .address = 4096,
                        .grant = taken};
    assert_int_equal(fixture_lane_submit(fixture.right, right, &op), CRPC_E_TOO_BIG);
}

/* Of the grant of an op: its bounds, its rights, and whose it is. */
static void grants_of_ops(void **state)
{
    (void)state;
    crpc_endpoint other_left, other_right;
    fixture_lane(&other_left, &other_right);
    crpc_grant others = fixture_open_grant(
        other_left, fixture_grant(other_right, right_region, theirs, 64, ALL_ACCESS));
    for (uint8_t opcode = CRPC_LANE_WRITE; opcode <= CRPC_LANE_FETCH_ADD; opcode++) {
        const bool atomic = opcode >= CRPC_LANE_COMPARE_SWAP;
        const uint16_t right_of[] = {[CRPC_LANE_WRITE] = CRPC_ACCESS_REMOTE_WRITE,
                                     [CRPC_LANE_READ] = CRPC_ACCESS_REMOTE_READ,
                                     [CRPC_LANE_COMPARE_SWAP] = CRPC_ACCESS_REMOTE_ATOMIC,
                                     [CRPC_LANE_FETCH_ADD] = CRPC_ACCESS_REMOTE_ATOMIC};
        crpc_lane_op op = good(opcode);
        op.offset = atomic ? 1024 : 925;
        expect(&op, CRPC_E_INVALID);
        op.offset = atomic ? 1017 : UINT64_MAX;
        expect(&op, CRPC_E_INVALID);
        op.offset = UINT64_MAX - 7;
        expect(&op, CRPC_E_INVALID);
        op.offset = 4; /* not where an atomic can be */
        expect(&op, atomic ? CRPC_E_INVALID : CRPC_OK);
        op = good(opcode);
        op.grant = others;
        expect(&op, CRPC_E_INVALID);
        op.grant.bits = 0;
        expect(&op, CRPC_E_STALE);
        op.grant = given;
        expect(&op, CRPC_E_STALE);
        op.grant.bits = region.bits;
        expect(&op, CRPC_E_STALE);
        uint16_t less = ALL_ACCESS & (uint16_t)~right_of[opcode];
        op.grant = fixture_open_grant(left, fixture_grant(right, right_region, theirs, 1024, less));
        expect(&op, CRPC_E_INVALID);
        assert_int_equal(crpc_grant_close(fixture.left, op.grant), CRPC_OK);
        expect(&op, CRPC_E_STALE);
        /* one of this side's own */
        crpc_lane_op own = good(CRPC_LANE_GRANT);
        fixture_poll(fixture.left);
        expect(&own, CRPC_OK);
        op.grant = (crpc_grant){expect_done(CRPC_LANE_GRANT).token};
        expect(&op, CRPC_E_INVALID);
    }
    crpc_lane_op revoke = good(CRPC_LANE_REVOKE); /* the peer's grant is not ours to revoke */
    expect(&revoke, CRPC_E_INVALID);
}

/* ---- Grants ---------------------------------------------------------------------------------- */

static void bytes_of_a_grant(void **state)
{
    (void)state;
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_grant opened;
    crpc_grant_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_grant_get_info(fixture.left, grant, &info), CRPC_OK);
    assert_int_equal(info.access, ALL_ACCESS);
    assert_int_equal(info.bytes, 1024);
    assert_int_equal(info.endpoint.bits, left.bits);
    assert_int_equal(info.of_peer, 1);
    assert_int_equal(info.over, 0);
    assert_int_equal(crpc_grant_get(fixture.right, given, bytes), CRPC_OK);
    assert_int_equal(crpc_grant_get(fixture.left, grant, bytes), CRPC_E_STATE);
    assert_int_equal(crpc_grant_get(fixture.right, given, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_grant_close(fixture.right, given), CRPC_E_STATE);
    assert_int_equal(crpc_grant_open(fixture.left, left, bytes, 48, NULL, &error), CRPC_E_INVALID);
    assert_int_equal(crpc_grant_open(fixture.left, left, NULL, 48, &opened, &error),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_grant_open(fixture.left, left, NULL, 0, &opened, &error),
                     CRPC_E_PROTOCOL);
    assert_int_equal(crpc_grant_open(fixture.left, left, bytes, 47, &opened, &error),
                     CRPC_E_PROTOCOL);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(crpc_grant_open(fixture.right, right, bytes, 48, &opened, &error),
                     CRPC_E_STALE);
    assert_int_equal(
        crpc_grant_open(fixture.left, fixture.left_endpoint, bytes, 48, &opened, &error),
        CRPC_E_UNSUPPORTED);
    bytes[20] ^= 4;
    assert_int_equal(crpc_grant_open(fixture.left, left, bytes, 48, &opened, &error),
                     CRPC_E_PROTOCOL);
}

/* The region of a grant stays until the grant has ended, and ends no sooner than it. */
static void a_region_with_grants_stays(void **state)
{
    (void)state;
    assert_int_equal(crpc_region_deregister(fixture.right, right_region), CRPC_E_BUSY);
    const crpc_lane_op revoke = {
        .opcode = CRPC_LANE_REVOKE, .user_data = 4, .grant = given, .operand = 1000000000};
    assert_int_equal(fixture_lane_submit(fixture.right, right, &revoke), CRPC_OK);
    assert_int_equal(fixture_lane_submit(fixture.right, right, &revoke), CRPC_E_STALE);
    assert_int_equal(crpc_region_deregister(fixture.right, right_region), CRPC_E_BUSY);
    fixture_poll(fixture.right);
    fixture_poll(fixture.left);
    crpc_grant_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_grant_get_info(fixture.left, grant, &info), CRPC_OK);
    assert_int_equal(info.over, 1);
    crpc_lane_op op = good(CRPC_LANE_READ);
    expect(&op, CRPC_E_STALE);
    crpc_completion done = fixture_expect(fixture.right, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(done.user_data, 4);
    assert_int_equal(crpc_region_deregister(fixture.right, right_region), CRPC_OK);
}

/* ---- Order with calls ------------------------------------------------------------------------ */

static int32_t call_after(crpc_endpoint endpoint, uint8_t flags)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = flags,
                        .endpoint = endpoint,
                        .payload_bytes = 4,
                        .reply_bytes_max = 64};
    return fixture_submit(fixture.left, &op, "done", 4);
}

static void a_call_after_writes(void **state)
{
    (void)state;
    void *room;
    crpc_lane_op op = good(CRPC_LANE_WRITE);
    expect(&op, CRPC_OK);
    assert_int_equal(call_after(left, CRPC_OP_AFTER), CRPC_OK);
    fixture_poll(fixture.right);
    assert_int_equal(fixture.count, 0);
    expect_done(CRPC_LANE_WRITE);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    /* and a reply after a WRITE of the other side */
    crpc_lane_op own = good(CRPC_LANE_GRANT);
    own.access = CRPC_ACCESS_REMOTE_WRITE;
    expect(&own, CRPC_OK);
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_grant taken;
    crpc_grant mine = {expect_done(CRPC_LANE_GRANT).token};
    assert_int_equal(crpc_grant_get(fixture.left, mine, bytes), CRPC_OK);
    assert_int_equal(crpc_grant_open(fixture.right, right, bytes, 48, &taken, NULL), CRPC_OK);
    const crpc_lane_op back = {.opcode = CRPC_LANE_WRITE,
                               .bytes = 8,
                               .region = right_region,
                               .address = (uint64_t)(uintptr_t)theirs,
                               .grant = taken};
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .flags = CRPC_OP_AFTER | CRPC_OP_QUIET,
                           .endpoint = right,
                           .token = request.token};
    assert_int_equal(fixture_lane_submit(fixture.right, right, &back), CRPC_OK);
    assert_int_equal(fixture_submit(fixture.right, &reply, NULL, 0), CRPC_OK);
    fixture_poll(fixture.left);
    assert_int_equal(fixture.count, 0);
    fixture_expect(fixture.right, CRPC_COMPLETION_WORK);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);

    assert_int_equal(call_after(fixture.left_endpoint, CRPC_OP_AFTER), CRPC_E_UNSUPPORTED);
    assert_int_equal(call_after(left, CRPC_OP_AFTER | CRPC_OP_QUIET), CRPC_E_INVALID);
    const crpc_op in_place = {
        .opcode = CRPC_OP_CALL, .flags = CRPC_OP_AFTER, .endpoint = left, .reply_bytes_max = 8};
    assert_int_equal(crpc_reserve(fixture.left, &in_place, &room), CRPC_E_INVALID);
}

/* A call that fails has changed nothing. */
static void a_refused_call_holds_nothing_back(void **state)
{
    (void)state;
    const crpc_op too_big = {.opcode = CRPC_OP_CALL,
                             .flags = CRPC_OP_AFTER,
                             .endpoint = left,
                             .reply_bytes_max = UINT32_MAX};
    crpc_lane_op op = good(CRPC_LANE_WRITE);
    expect(&op, CRPC_OK);
    assert_int_equal(fixture_submit(fixture.left, &too_big, NULL, 0), CRPC_E_TOO_BIG);
    assert_int_equal(call_after(left, 0), CRPC_OK);
    fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    expect_done(CRPC_LANE_WRITE);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void without_a_lane(void **state)
{
    (void)state;
    crpc_lane_op op = good(CRPC_LANE_READ);
    assert_int_equal(fixture_lane_submit(fixture.left, fixture.left_endpoint, &op),
                     CRPC_E_UNSUPPORTED);
}

static void a_closed_endpoint(void **state)
{
    (void)state;
    crpc_lane_op op = good(CRPC_LANE_READ);
    expect(&op, CRPC_OK);
    assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
    crpc_completion done = fixture_expect(fixture.left, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_E_CLOSED);
    expect(&op, CRPC_E_STALE);
    fixture_poll(fixture.left);
    assert_int_equal(fixture.count, 0);
    assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.right, right_region), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
}

static void options(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_endpoint endpoint;
    static const struct {
        uint32_t flags, request_bytes, lane_depth;
        int32_t status;
    } cases[] = {
        {CRPC_ENDPOINT_LANE, 4096 - 1472, 0, CRPC_OK},
        {CRPC_ENDPOINT_LANE, 4096 - 1440, 0, CRPC_E_INVALID},
        {0, 4096 - 448, 0, CRPC_OK},
        {CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_CALL_ONLY, 0, 0, CRPC_OK},
        {CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_SERVE_ONLY, 0, 0, CRPC_OK},
        {0x10, 0, 0, CRPC_E_INVALID},
        {CRPC_ENDPOINT_LANE, 0, 1, CRPC_OK},
        {CRPC_ENDPOINT_LANE, 0, 4096, CRPC_OK},
        {CRPC_ENDPOINT_LANE, 0, 4097, CRPC_E_INVALID},
        {0, 0, 1, CRPC_E_INVALID},
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                               .flags = cases[i].flags,
                                               .ring_bytes = 4096,
                                               .request_bytes = cases[i].request_bytes,
                                               .lane_depth = cases[i].lane_depth};
        uint32_t bytes = sizeof(blob);
        assert_int_equal(
            crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
            cases[i].status);
    }
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_lane, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(each_opcode),
        LANE_TEST(an_array_stops_at_the_first_that_cannot_be),
        LANE_TEST(no_bytes),
        LANE_TEST(fields_that_the_opcode_does_not_name_must_be_zero),
        LANE_TEST(unknown_opcodes),
        LANE_TEST(memory_of_this_side),
        LANE_TEST(too_long),
        LANE_TEST(grants_of_ops),
        LANE_TEST(bytes_of_a_grant),
        LANE_TEST(a_region_with_grants_stays),
        LANE_TEST(a_call_after_writes),
        LANE_TEST(a_refused_call_holds_nothing_back),
        LANE_TEST(without_a_lane),
        LANE_TEST(a_closed_endpoint),
        LANE_TEST(options),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

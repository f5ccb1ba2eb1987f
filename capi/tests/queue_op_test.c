/* queue_op_test.c: what crpc_queue_submit takes and what it refuses. The queue is not connected: an op
 * that sends and passes all checks gives CRPC_E_STATE, while receives are
 * taken.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "fixture.h"

#define PASSED CRPC_E_STATE
#define OPCODES (CRPC_QUEUE_RECEIVE + 1)
#define INLINE_BYTES 100u
#define PIECES 3u
#define RECEIVES 4000u

static uint8_t memory[65536];
static crpc_queue queue, srq;
static crpc_region region; /* of memory[4096, 12288), with all rights */

static crpc_region region_with(crpc_context *context, uint32_t access)
{
    crpc_region made;
    assert_int_equal(crpc_region_register(context, memory + 4096, 8192, access, &made, NULL),
                     CRPC_OK);
    return made;
}

static int open_queue(void **state)
{
    const crpc_queue_options shared = {.struct_size = sizeof(shared),
                                       .kind = CRPC_QUEUE_KIND_SRQ,
                                       .receives = 100,
                                       .receive_pieces = 1};
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .send_pieces = PIECES,
                                        .inline_bytes = INLINE_BYTES,
                                        .receives = RECEIVES,
                                        .receive_pieces = PIECES};
    int failed = fixture_open_with_queues(state);
    queue = fixture_lone_queue(fixture.left, &options);
    assert_int_equal(crpc_queue_open(fixture.left, &shared, &srq, NULL), CRPC_OK);
    region = region_with(fixture.left, CRPC_ACCESS_LOCAL_WRITE);
    return failed;
}

static int32_t submit_to(crpc_queue to, const crpc_queue_op *ops, uint32_t count,
                         const crpc_piece *pieces, uint32_t piece_count)
{
    int32_t reason = 12345;
    int32_t taken = crpc_queue_submit(fixture.left, to, ops, count, pieces, piece_count, &reason);
    assert_int_equal(taken, reason == CRPC_OK ? count : 0);
    return reason;
}

static int32_t submit(const crpc_queue_op *op)
{
    return submit_to(queue, op, 1, NULL, 0);
}

static int32_t passed(uint8_t opcode)
{
    return opcode == CRPC_QUEUE_RECEIVE ? CRPC_OK : PASSED;
}

static crpc_queue_op op_of(uint8_t opcode)
{
    return (crpc_queue_op){.opcode = opcode};
}

static bool has_payload(uint8_t opcode)
{
    return opcode <= CRPC_QUEUE_READ || opcode == CRPC_QUEUE_RECEIVE;
}

/* 64 bytes in the region. */
static crpc_queue_op full_op(uint8_t opcode)
{
    crpc_queue_op op = op_of(opcode);
    if (has_payload(opcode)) {
        op.region = region;
        op.address = (uint64_t)(uintptr_t)memory + 4096;
        op.bytes = 64;
    }
    return op;
}

/* What a refused op may change is nothing at all. */
static void expect_untouched(uint64_t receives)
{
    crpc_queue_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_queue_get_stats(fixture.left, queue, &stats), CRPC_OK);
    assert_int_equal(stats.sends, 0);
    assert_int_equal(stats.receives, receives);
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Which opcodes name it: a letter each, SEND to RECEIVE, as in copyrpc.h. */
struct field {
    const char *name;
    size_t offset;
    size_t bytes;
    const char *named;
};

static const struct field fields[] = {
#define FIELD(name, named)                                                                         \
    {                                                                                              \
#name, offsetof(crpc_queue_op, name), sizeof(((crpc_queue_op *)0)->name), named            \
    }
    /*                    SEND, _IMMEDIATE, _INVALIDATE, WRITE, _IMMEDIATE, READ, COMPARE_SWAP, FETCH_ADD,
                          NOP, RECEIVE */
    FIELD(stream, "----------"),         FIELD(immediate, "-xx-x-----"),
    FIELD(region, "xxxxxx---x"),         FIELD(address, "xxxxxxx--x"),
    FIELD(bytes, "xxxxxx---x"),          FIELD(remote_key, "---xxxxx--"),
    FIELD(remote_address, "---xxxxx--"), FIELD(operand, "------xx--"),
    FIELD(target, "----------"), /* it and streams: datagram_test.c, dc_test.c */
};

static bool names(const struct field *field, uint8_t opcode)
{
    return field->named[opcode - 1] == 'x';
}

static void fields_that_the_opcode_does_not_name_must_be_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *field = &fields[i];
        for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
            /* Each of its bytes, so that a narrower check would show. */
            for (size_t at = 0; at < field->bytes && !names(field, opcode); at++) {
                crpc_queue_op op = full_op(opcode);
                ((uint8_t *)&op)[field->offset + at] = 1;
                if (submit(&op) != CRPC_E_INVALID) {
                    fail_msg("opcode %u takes %s", opcode, field->name);
                }
            }
        }
    }
    expect_untouched(0);
}

static void fields_that_the_opcode_names_may_be_anything(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        crpc_queue_op op = full_op(opcode);
        assert_int_equal(submit(&op), passed(opcode));
        op.user_data = UINT64_MAX;
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
            bool any = strcmp(fields[i].name, "region") != 0 &&
                       strcmp(fields[i].name, "bytes") != 0 &&
                       (strcmp(fields[i].name, "address") != 0 || !has_payload(opcode));
            if (any && names(&fields[i], opcode)) {
                memset((uint8_t *)&op + fields[i].offset, 0xf8, fields[i].bytes);
            }
        }
        if (submit(&op) != passed(opcode)) {
            fail_msg("opcode %u is refused", opcode);
        }
    }
}

static void opcodes_and_flags(void **state)
{
    (void)state;
    /* Those that an opcode may have, SEND to RECEIVE; PIECES have a test of their own. */
    static const uint8_t allowed[OPCODES] = {0, 0xf, 0xf, 0xf, 0xb, 0xf, 0x3, 0x3, 0x3, 0x3, 0x1};
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        bool known = opcode >= CRPC_QUEUE_SEND && opcode < OPCODES;
        crpc_queue_op op = op_of((uint8_t)opcode);
        assert_int_equal(submit(&op), known ? passed((uint8_t)opcode) : CRPC_E_UNSUPPORTED);
        for (uint32_t bit = 0; bit < 8 && known; bit++) {
            const bool good = allowed[opcode] & 1u << bit;
            op.flags = (uint8_t)(1u << bit);
            if (submit(&op) != (good ? passed((uint8_t)opcode) : CRPC_E_INVALID)) {
                fail_msg("opcode %u with flag 0x%x: not %s", opcode, op.flags,
                         good ? "taken" : "refused");
            }
        }
        op.flags = CRPC_QUEUE_PIECES | CRPC_QUEUE_SIGNAL;
        if (known && !has_payload((uint8_t)opcode)) {
            assert_int_equal(submit(&op), CRPC_E_INVALID);
        }
    }
}

static void atomics_are_aligned(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_QUEUE_COMPARE_SWAP; opcode <= CRPC_QUEUE_FETCH_ADD; opcode++) {
        for (uint64_t low = 0; low < 16; low++) {
            crpc_queue_op op = op_of(opcode);
            op.remote_address = 0x10000 + low;
            assert_int_equal(submit(&op), low % 8 == 0 ? PASSED : CRPC_E_INVALID);
        }
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static crpc_queue_op part_op(uint8_t opcode, crpc_region of, int64_t from, uint32_t bytes)
{
    crpc_queue_op op = op_of(opcode);
    op.region = of;
    op.address = (uint64_t)(uintptr_t)memory + 4096 + (uint64_t)from;
    op.bytes = bytes;
    return op;
}

static void payloads_lie_within_their_region(void **state)
{
    (void)state;
    static const struct {
        int64_t from;
        uint32_t bytes;
        bool good;
    } cases[] = {
        {0, 8192, true},  {8191, 1, true},  {0, 1, true},      {8192, 0, true},
        {-4000, 0, true}, {0, 8193, false}, {8192, 1, false},  {-1, 2, false},
        {-1, 1, false},   {8191, 2, false}, {-1, 8194, false}, {0, 1u << 30, false},
    };
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        for (size_t i = 0; has_payload(opcode) && i < sizeof(cases) / sizeof(cases[0]); i++) {
            crpc_queue_op op = part_op(opcode, region, cases[i].from, cases[i].bytes);
            crpc_piece piece = {region, op.address, op.bytes, 0};
            const int32_t expected = cases[i].good ? passed(opcode) : CRPC_E_INVALID;
            if (submit(&op) != expected) {
                fail_msg("opcode %u, case %zu", opcode, i);
            }
            op = op_of(opcode);
            op.flags = CRPC_QUEUE_PIECES;
            op.bytes = 1;
            assert_int_equal(submit_to(queue, &op, 1, &piece, 1), expected);
        }
        if (has_payload(opcode)) {
            crpc_queue_op op = part_op(opcode, region, 0, (1u << 30) + 1);
            assert_int_equal(submit(&op), CRPC_E_TOO_BIG);
            op = part_op(opcode, (crpc_region){0}, 0, 1);
            assert_int_equal(submit(&op), CRPC_E_INVALID);
        }
    }
}

static void regions_must_be_of_this_context_and_alive(void **state)
{
    (void)state;
    const crpc_region closed = region_with(fixture.left, CRPC_ACCESS_LOCAL_WRITE);
    assert_int_equal(crpc_region_deregister(fixture.left, closed), CRPC_OK);
    const crpc_region stale[] = {closed,
                                 region_with(fixture.right, CRPC_ACCESS_LOCAL_WRITE),
                                 {fixture.left_endpoint.bits},
                                 {queue.bits},
                                 {UINT64_MAX},
                                 {1}};
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        for (size_t i = 0; has_payload(opcode) && i < sizeof(stale) / sizeof(stale[0]); i++) {
            for (uint32_t bytes = 0; bytes < 2; bytes++) {
                crpc_queue_op ops[2] = {full_op(opcode), part_op(opcode, stale[i], 0, bytes)};
                crpc_piece pieces[2] = {{region, ops[0].address, 64, 0},
                                        {stale[i], ops[0].address, bytes, 0}};
                assert_int_equal(submit(&ops[1]), CRPC_E_STALE);
                ops[0] = op_of(opcode);
                ops[0].flags = CRPC_QUEUE_PIECES;
                ops[0].bytes = 2;
                assert_int_equal(submit_to(queue, ops, 1, pieces, 2), CRPC_E_STALE);
            }
        }
    }
    expect_untouched(0);
}

static void a_region_named_last_can_go(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        const crpc_region last = region_with(fixture.left, CRPC_ACCESS_LOCAL_WRITE);
        crpc_queue_op op = part_op(opcode, last, 0, 64);
        if (has_payload(opcode)) {
            assert_int_equal(submit(&op), passed(opcode));
            assert_int_equal(crpc_region_deregister(fixture.left, last), CRPC_OK);
            assert_int_equal(submit(&op), CRPC_E_STALE);
        }
    }
}

static void what_is_filled_needs_the_right_to_write(void **state)
{
    (void)state;
    const crpc_region read_only[] = {region_with(fixture.left, 0),
                                     region_with(fixture.left, CRPC_ACCESS_REMOTE_READ)};
    for (size_t i = 0; i < 2; i++) {
        for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
            bool filled = opcode == CRPC_QUEUE_READ || opcode == CRPC_QUEUE_RECEIVE;
            crpc_queue_op op = part_op(opcode, read_only[i], 0, 64);
            if (has_payload(opcode)) {
                assert_int_equal(submit(&op), filled ? CRPC_E_INVALID : PASSED);
            }
        }
    }
}

/* A region with the right, and one without: the one that was named last must not stand in. */
static void each_op_is_checked_with_its_own_region(void **state)
{
    (void)state;
    const crpc_region read_only = region_with(fixture.left, 0);
    crpc_queue_op ops[4];
    int32_t reason;
    for (uint32_t bad = 0; bad < 4; bad++) {
        for (uint32_t i = 0; i < 4; i++) {
            ops[i] = part_op(CRPC_QUEUE_RECEIVE, i == bad ? read_only : region, 0, 64);
        }
        assert_int_equal(crpc_queue_submit(fixture.left, queue, ops, 4, NULL, 0, &reason), bad);
        assert_int_equal(reason, CRPC_E_INVALID);
        ops[bad] = part_op(CRPC_QUEUE_RECEIVE, (crpc_region){1}, 0, 64);
        assert_int_equal(crpc_queue_submit(fixture.left, queue, ops, 4, NULL, 0, &reason), bad);
        assert_int_equal(reason, CRPC_E_STALE);
    }
    expect_untouched(2 * (0 + 1 + 2 + 3));
}

/* ---- Inline and pieces ----------------------------------------------------------------------- */

static void inline_payloads_need_no_region(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode <= CRPC_QUEUE_WRITE_IMMEDIATE; opcode++) {
        crpc_queue_op op = full_op(opcode);
        op.flags = CRPC_QUEUE_INLINE;
        assert_int_equal(submit(&op), CRPC_E_INVALID); /* and may have none */
        op.region.bits = 0;
        op.bytes = INLINE_BYTES;
        assert_int_equal(submit(&op), PASSED);
        op.bytes = INLINE_BYTES + 1;
        assert_int_equal(submit(&op), CRPC_E_TOO_BIG);
        op.bytes = UINT32_MAX;
        assert_int_equal(submit(&op), CRPC_E_TOO_BIG);
        op.address = 0;
        op.bytes = 1;
        assert_int_equal(submit(&op), CRPC_E_INVALID);
        op.bytes = 0;
        assert_int_equal(submit(&op), PASSED);
    }
}

static crpc_queue_op pieces_op(uint8_t opcode, uint64_t first, uint32_t count)
{
    crpc_queue_op op = op_of(opcode);
    op.flags = CRPC_QUEUE_PIECES;
    op.address = first;
    op.bytes = count;
    return op;
}

static void pieces_lie_within_their_array(void **state)
{
    (void)state;
    crpc_piece pieces[PIECES + 1];
    for (uint32_t i = 0; i <= PIECES; i++) {
        pieces[i] = (crpc_piece){region, (uint64_t)(uintptr_t)memory + 4096, 64 * i, 0};
    }
    static const struct {
        uint64_t first;
        uint32_t count;
        int32_t reason;
    } cases[] = {
        {0, 1, PASSED},
        {0, PIECES, PASSED},
        {1, PIECES, PASSED},
        {PIECES, 1, PASSED},
        {0, 0, CRPC_E_INVALID},
        {2, PIECES, CRPC_E_INVALID},
        {PIECES + 1, 1, CRPC_E_INVALID},
        {PIECES + 2, 1, CRPC_E_INVALID},
        {UINT64_MAX, 1, CRPC_E_INVALID},
        {UINT64_MAX, PIECES, CRPC_E_INVALID},
        {1ull << 32, 1, CRPC_E_INVALID},
        {0, PIECES + 1, CRPC_E_TOO_BIG},
        {0, UINT32_MAX, CRPC_E_TOO_BIG},
    };
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        for (size_t i = 0; has_payload(opcode) && i < sizeof(cases) / sizeof(cases[0]); i++) {
            crpc_queue_op op = pieces_op(opcode, cases[i].first, cases[i].count);
            int32_t expected = cases[i].reason == PASSED ? passed(opcode) : cases[i].reason;
            if (submit_to(queue, &op, 1, pieces, PIECES + 1) != expected) {
                fail_msg("opcode %u, case %zu", opcode, i);
            }
            if (cases[i].count > 0) {
                assert_true(submit_to(queue, &op, 1, NULL, 0) < 0);
            }
        }
    }
}

static void each_piece_is_checked(void **state)
{
    (void)state;
    const crpc_piece good = {region, (uint64_t)(uintptr_t)memory + 4096, 64, 0};
    crpc_piece pieces[PIECES];
    for (uint32_t bad = 0; bad < PIECES; bad++) {
        crpc_queue_op op = pieces_op(CRPC_QUEUE_SEND, 0, PIECES);
        for (uint32_t i = 0; i < PIECES; i++) {
            pieces[i] = good;
        }
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), PASSED);
        op.region = region; /* it is the pieces' */
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), CRPC_E_INVALID);
        op.region.bits = 0;
        pieces[bad].zero = 1;
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), CRPC_E_INVALID);
        pieces[bad] = (crpc_piece){{0}, good.address, 64, 0};
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), CRPC_E_INVALID);
        pieces[bad].bytes = 0;
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), PASSED);
        pieces[bad] = (crpc_piece){region, good.address + 8192, 1, 0};
        assert_int_equal(submit_to(queue, &op, 1, pieces, PIECES), CRPC_E_INVALID);
    }
}

static void inline_pieces_add_up(void **state)
{
    (void)state;
    crpc_piece pieces[2] = {{{0}, (uint64_t)(uintptr_t)memory, INLINE_BYTES - 40, 0},
                            {{0}, (uint64_t)(uintptr_t)memory, 40, 0}};
    crpc_queue_op op = pieces_op(CRPC_QUEUE_WRITE, 0, 2);
    op.flags |= CRPC_QUEUE_INLINE;
    assert_int_equal(submit_to(queue, &op, 1, pieces, 2), PASSED);
    pieces[1].bytes++;
    assert_int_equal(submit_to(queue, &op, 1, pieces, 2), CRPC_E_TOO_BIG);
    pieces[1].bytes = UINT32_MAX;
    assert_int_equal(submit_to(queue, &op, 1, pieces, 2), CRPC_E_TOO_BIG);
    pieces[1].bytes = 40;
    pieces[1].region = region;
    assert_int_equal(submit_to(queue, &op, 1, pieces, 2), CRPC_E_INVALID);
    pieces[1] = (crpc_piece){{0}, 0, 1, 0};
    assert_int_equal(submit_to(queue, &op, 1, pieces, 2), CRPC_E_INVALID);
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

static void arrays_that_cannot_be(void **state)
{
    (void)state;
    crpc_queue_op op = full_op(CRPC_QUEUE_RECEIVE);
    static crpc_piece pieces[CRPC_QUEUE_SUBMIT_PIECES_MAX];
    int32_t reason = 0;
    assert_int_equal(crpc_queue_submit(fixture.left, queue, NULL, 1, NULL, 0, &reason),
                     CRPC_E_INVALID);
    assert_int_equal(reason, CRPC_E_INVALID);
    assert_int_equal(crpc_queue_submit(fixture.left, queue, &op, 1, NULL, 1, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_submit(fixture.left, queue, &op, UINT32_MAX, NULL, 0, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_queue_submit(fixture.left, queue, &op, 1, pieces,
                                       CRPC_QUEUE_SUBMIT_PIECES_MAX + 1, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_queue_submit(fixture.left, queue, NULL, 0, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_OK);
    expect_untouched(0);
    op = pieces_op(CRPC_QUEUE_RECEIVE, CRPC_QUEUE_SUBMIT_PIECES_MAX - 1, 1);
    pieces[CRPC_QUEUE_SUBMIT_PIECES_MAX - 1] =
        (crpc_piece){region, (uint64_t)(uintptr_t)memory + 4096, 64, 0};
    assert_int_equal(submit_to(queue, &op, 1, pieces, CRPC_QUEUE_SUBMIT_PIECES_MAX), CRPC_OK);
}

/* Of any length, with both kinds of ops: all before the first that is bad are taken. */
static void a_prefix_is_accepted(void **state)
{
    (void)state;
    crpc_queue_op ops[200];
    uint64_t receives = 0;
    for (uint32_t bad = 0; bad < 200; bad++) {
        int32_t reason;
        for (uint32_t i = 0; i < 200; i++) {
            ops[i] = full_op(CRPC_QUEUE_RECEIVE);
        }
        ops[bad] = full_op(CRPC_QUEUE_WRITE); /* not connected */
        if (bad % 3 == 1) {
            ops[bad] = op_of(77);
        } else if (bad % 3 == 2) {
            ops[bad].bytes = 8193;
        }
        assert_int_equal(crpc_queue_submit(fixture.left, queue, ops, 200, NULL, 0, &reason), bad);
        assert_int_equal(reason, bad % 3 == 0   ? CRPC_E_STATE
                                 : bad % 3 == 1 ? CRPC_E_UNSUPPORTED
                                                : CRPC_E_INVALID);
        receives += bad;
        expect_untouched(receives);
        if (receives > RECEIVES - 400) {
            return;
        }
    }
}

static void there_is_room_for_what_was_asked_for(void **state)
{
    (void)state;
    static crpc_queue_op ops[CRPC_QUEUE_DEPTH_MAX + 1];
    crpc_queue_info info = {.struct_size = sizeof(info)};
    int32_t reason;
    for (uint32_t i = 0; i <= CRPC_QUEUE_DEPTH_MAX; i++) {
        ops[i] = full_op(CRPC_QUEUE_RECEIVE);
    }
    int32_t taken =
        crpc_queue_submit(fixture.left, queue, ops, CRPC_QUEUE_DEPTH_MAX + 1, NULL, 0, &reason);
    assert_in_range(taken, RECEIVES, CRPC_QUEUE_DEPTH_MAX);
    assert_int_equal(reason, CRPC_E_AGAIN);
    assert_int_equal(submit(ops), CRPC_E_AGAIN);
    expect_untouched((uint64_t)taken);
    assert_int_equal(crpc_queue_get_info(fixture.left, queue, &info), CRPC_OK);
    assert_int_equal(info.receives, RECEIVES);
    assert_int_equal(info.receives_open, taken);
}

static void each_kind_has_its_opcodes(void **state)
{
    (void)state;
    const crpc_queue_options with_srq = {.struct_size = sizeof(with_srq), .receive_queue = srq};
    const crpc_queue none = fixture_lone_queue(fixture.left, NULL);
    const crpc_queue shared = fixture_lone_queue(fixture.left, &with_srq);
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode < OPCODES; opcode++) {
        crpc_queue_op op = full_op(opcode);
        bool receives = opcode == CRPC_QUEUE_RECEIVE;
        assert_int_equal(submit_to(srq, &op, 1, NULL, 0), receives ? CRPC_OK : CRPC_E_UNSUPPORTED);
        assert_int_equal(submit_to(none, &op, 1, NULL, 0), receives ? CRPC_E_UNSUPPORTED : PASSED);
        assert_int_equal(submit_to(shared, &op, 1, NULL, 0),
                         receives ? CRPC_E_UNSUPPORTED : PASSED);
    }
    /* Not more inline than is asked for. */
    crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                        .flags = CRPC_QUEUE_INLINE,
                        .address = (uint64_t)(uintptr_t)memory,
                        .bytes = 61};
    assert_int_equal(submit_to(none, &op, 1, NULL, 0), CRPC_E_TOO_BIG);
    op.bytes = 60;
    assert_int_equal(submit_to(none, &op, 1, NULL, 0), PASSED);
}

int main(void)
{
#define WITH_QUEUE(test) cmocka_unit_test_setup_teardown(test, open_queue, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_QUEUE(fields_that_the_opcode_does_not_name_must_be_zero),
        WITH_QUEUE(fields_that_the_opcode_names_may_be_anything),
        WITH_QUEUE(opcodes_and_flags),
        WITH_QUEUE(atomics_are_aligned),
        WITH_QUEUE(payloads_lie_within_their_region),
        WITH_QUEUE(regions_must_be_of_this_context_and_alive),
        WITH_QUEUE(a_region_named_last_can_go),
        WITH_QUEUE(what_is_filled_needs_the_right_to_write),
        WITH_QUEUE(each_op_is_checked_with_its_own_region),
        WITH_QUEUE(inline_payloads_need_no_region),
        WITH_QUEUE(pieces_lie_within_their_array),
        WITH_QUEUE(each_piece_is_checked),
        WITH_QUEUE(inline_pieces_add_up),
        WITH_QUEUE(arrays_that_cannot_be),
        WITH_QUEUE(a_prefix_is_accepted),
        WITH_QUEUE(there_is_room_for_what_was_asked_for),
        WITH_QUEUE(each_kind_has_its_opcodes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

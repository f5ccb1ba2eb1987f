/* lane_piece_test.c: ops of lanes whose memory lies in several places, or is copied, and deep lanes. */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"

#define ALL_ACCESS (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)
#define MOST CRPC_LANE_PIECES_MAX

static _Alignas(64) uint8_t ours[8192], theirs[8192];
static crpc_endpoint left, right;
static crpc_region region, right_region;
static crpc_grant grant; /* left's, of theirs[0, 4096) */

static crpc_region region_of(crpc_context *context, void *address, uint64_t bytes, uint32_t access)
{
    crpc_region made;
    assert_int_equal(crpc_region_register(context, address, bytes, access, &made, NULL), CRPC_OK);
    return made;
}

static int open_deep(uint32_t depth)
{
    fixture_deep_lane(depth, &left, &right);
    for (uint32_t i = 0; i < sizeof(ours); i++) {
        ours[i] = (uint8_t)(i * 7 + i / 251);
    }
    memset(theirs, 0xaa, sizeof(theirs));
    region = region_of(fixture.left, ours, sizeof(ours), CRPC_ACCESS_LOCAL_WRITE);
    right_region = region_of(fixture.right, theirs, sizeof(theirs), CRPC_ACCESS_LOCAL_WRITE);
    grant = fixture_open_grant(left, fixture_grant(right, right_region, theirs, 4096, ALL_ACCESS));
    return 0;
}

static int open_lane(void **state)
{
    return fixture_open(state) || open_deep(0);
}

static crpc_piece piece(uint32_t at, uint32_t bytes)
{
    return (crpc_piece){
        .region = region, .address = (uint64_t)(uintptr_t)(ours + at), .bytes = bytes};
}

static crpc_lane_op pieces_op(uint8_t opcode, uint64_t first, uint32_t count)
{
    return (crpc_lane_op){.opcode = opcode,
                          .flags = CRPC_LANE_PIECES,
                          .bytes = count,
                          .user_data = 7,
                          .address = first,
                          .grant = grant};
}

static int32_t submit(const crpc_lane_op *op, const crpc_piece *pieces, uint32_t count)
{
    int32_t reason = 12345;
    int32_t taken = crpc_lane_submit(fixture.left, left, op, 1, pieces, count, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

static void expect(const crpc_lane_op *op, const crpc_piece *pieces, uint32_t count, int32_t status)
{
    int32_t reason = submit(op, pieces, count);
    if (reason != status) {
        fail_msg("opcode %u: %s, not %s", op->opcode, crpc_status_name(reason),
                 crpc_status_name(status));
    }
}

static crpc_completion expect_done(uint8_t opcode)
{
    crpc_completion done = fixture_expect(fixture.left, CRPC_COMPLETION_WORK);
    assert_int_equal(fixture.count, 1);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.status, CRPC_OK);
    return done;
}

/* ---- Good ops -------------------------------------------------------------------------------- */

static void gathered_and_scattered(void **state)
{
    (void)state;
    const crpc_piece pieces[] = {
        piece(0, 1), piece(100, 10), piece(0, 0), {.bytes = 0}, piece(4000, 300)};
    crpc_lane_op op = pieces_op(CRPC_LANE_WRITE, 1, 4);
    op.offset = 8;
    expect(&op, pieces, 5, CRPC_OK);
    assert_int_equal(expect_done(CRPC_LANE_WRITE).payload_bytes, 0);
    assert_memory_equal(theirs + 8, ours + 100, 10);
    assert_memory_equal(theirs + 18, ours + 4000, 300);
    assert_int_equal(theirs[7], 0xaa);
    assert_int_equal(theirs[318], 0xaa);

    op = pieces_op(CRPC_LANE_READ, 0, 2);
    op.offset = 8;
    op.flags |= CRPC_LANE_FENCE;
    const crpc_piece back[] = {piece(5000, 4), piece(6000, 6)};
    uint8_t copy[10];
    memcpy(copy, ours + 100, sizeof(copy));
    memset(ours + 5000, 0, 2000);
    expect(&op, back, 2, CRPC_OK);
    assert_int_equal(expect_done(CRPC_LANE_READ).payload_bytes, 10);
    assert_memory_equal(ours + 5000, copy, 4);
    assert_memory_equal(ours + 6000, copy + 4, 6);
    assert_int_equal(ours[4999 + 5] | ours[6006], 0);
}

/* More than core gets at once, each with as many pieces as can be. */
static void many(void **state)
{
    (void)state;
    enum { OPS = 100 };
    crpc_lane_op ops[OPS];
    crpc_piece pieces[OPS * MOST];
    int32_t reason;
    open_deep(OPS);
    for (uint32_t i = 0; i < OPS; i++) {
        ops[i] = pieces_op(CRPC_LANE_WRITE, (uint64_t)i * MOST, MOST);
        ops[i].user_data = i;
        ops[i].offset = i * 40;
        for (uint32_t k = 0; k < MOST; k++) {
            pieces[i * MOST + k] = piece(i * 5 + k * 900, 5);
        }
    }
    assert_int_equal(crpc_lane_submit(fixture.left, left, ops, OPS, pieces, OPS * MOST, &reason),
                     OPS);
    memset(ops, 0, sizeof(ops));
    memset(pieces, 0, sizeof(pieces));
    uint32_t seen = 0;
    for (uint32_t polls = 0; polls < 10; polls++) {
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            assert_int_equal(fixture.completions[i].status, CRPC_OK);
            assert_int_equal(fixture.completions[i].user_data, seen++);
        }
    }
    assert_int_equal(seen, OPS);
    for (uint32_t i = 0; i < OPS * MOST; i++) {
        assert_memory_equal(theirs + i * 5, ours + i / MOST * 5 + i % MOST * 900, 5);
    }
}

/* It may be any memory, and be used again at once. */
static void copied(void **state)
{
    (void)state;
    crpc_context_info info = {.struct_size = sizeof(info)};
    char text[] = "somewhere", other[] = " else";
    crpc_lane_op op = {.opcode = CRPC_LANE_WRITE,
                       .flags = CRPC_LANE_INLINE,
                       .bytes = 9,
                       .address = (uint64_t)(uintptr_t)text,
                       .grant = grant};
    crpc_piece pieces[] = {{.address = (uint64_t)(uintptr_t)text, .bytes = 9},
                           {.address = (uint64_t)(uintptr_t)other, .bytes = 6},
                           {.bytes = 0}};
    expect(&op, NULL, 0, CRPC_OK);
    memset(text, 'x', 9);
    expect_done(CRPC_LANE_WRITE);
    assert_memory_equal(theirs, "somewhere\xaa", 10);
    memcpy(text, "SOMEWHERE", 9);
    op = pieces_op(CRPC_LANE_WRITE, 0, 3);
    op.flags |= CRPC_LANE_INLINE;
    expect(&op, pieces, 3, CRPC_OK);
    memset(text, 'x', 9);
    memset(other, 'x', 5);
    expect_done(CRPC_LANE_WRITE);
    assert_string_equal((char *)theirs, "SOMEWHERE else");

    assert_int_equal(crpc_context_get_info(fixture.left, &info), CRPC_OK);
    op = (crpc_lane_op){.opcode = CRPC_LANE_WRITE,
                        .flags = CRPC_LANE_INLINE,
                        .bytes = info.inline_bytes_max,
                        .address = (uint64_t)(uintptr_t)ours,
                        .grant = grant};
    expect(&op, NULL, 0, CRPC_OK);
    expect_done(CRPC_LANE_WRITE);
    assert_memory_equal(theirs, ours, info.inline_bytes_max);
    op.bytes++;
    expect(&op, NULL, 0, CRPC_E_TOO_BIG);
    op.bytes = 0;
    op.address = 0;
    expect(&op, NULL, 0, CRPC_OK);
    expect_done(CRPC_LANE_WRITE);
}

/* The processor never looks at memory of another device, however short the WRITE is. */
static void of_another_device(void **state)
{
    (void)state;
    crpc_region foreign;
    crpc_error error = {.struct_size = sizeof(error)};
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_return_code(ftruncate(fd, 4096), errno);
    uint8_t *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(memory, 0x5a, 4096);
    if (crpc_region_register_dmabuf(fixture.left, fd, 0, 4096, (uint64_t)(uintptr_t)memory,
                                    CRPC_ACCESS_LOCAL_WRITE, &foreign, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    for (uint8_t opcode = CRPC_LANE_WRITE; opcode <= CRPC_LANE_READ; opcode++) {
        const crpc_lane_op op = {.opcode = opcode,
                                 .bytes = 32,
                                 .region = foreign,
                                 .address = (uint64_t)(uintptr_t)memory,
                                 .grant = grant};
        expect(&op, NULL, 0, CRPC_OK);
        if (opcode == CRPC_LANE_WRITE) {
            memory[31] = 0x77; /* fetched by the device, when it comes to it */
        }
        expect_done(opcode);
    }
    assert_memory_equal(theirs, memory, 31);
    assert_int_equal(theirs[32], 0xaa);
    assert_int_equal(crpc_region_deregister(fixture.left, foreign), CRPC_OK);
    munmap(memory, 4096);
    close(fd);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void wrong_pieces(void **state)
{
    (void)state;
    crpc_piece pieces[MOST + 2];
    for (uint32_t i = 0; i < MOST + 2; i++) {
        pieces[i] = piece(i * 8, 8);
    }
    for (uint8_t opcode = CRPC_LANE_WRITE; opcode <= CRPC_LANE_READ; opcode++) {
        const crpc_lane_op good = pieces_op(opcode, 1, 2);
        crpc_lane_op op = good;
        op.bytes = 0;
        expect(&op, pieces, MOST + 2, CRPC_E_INVALID);
        op.bytes = MOST + 1;
        expect(&op, pieces, MOST + 2, CRPC_E_TOO_BIG);
        op = good;
        expect(&op, pieces, 2, CRPC_E_INVALID); /* the last one is not in the array */
        op.address = UINT64_MAX;
        expect(&op, pieces, MOST + 2, CRPC_E_INVALID);
        op.address = 3;
        expect(&op, pieces, 2, CRPC_E_INVALID);
        op = good;
        op.region = region;
        expect(&op, pieces, MOST + 2, CRPC_E_INVALID);
        op = good;
        op.offset = 4096 - 15; /* together they are longer than what is granted */
        expect(&op, pieces, MOST + 2, CRPC_E_INVALID);
        expect(&good, NULL, 0, CRPC_E_INVALID);

        const struct {
            crpc_piece piece;
            int32_t status;
        } wrong[] = {
            {{.region = region, .address = pieces[2].address, .bytes = 8, .zero = 1},
             CRPC_E_INVALID},
            {{.address = pieces[2].address, .bytes = 8}, CRPC_E_INVALID},
            {piece(8185, 8), CRPC_E_INVALID},
            {piece(0, UINT32_MAX), CRPC_E_INVALID},
            {{.region = right_region, .address = pieces[2].address, .bytes = 8}, CRPC_E_STALE},
        };
        for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            const crpc_piece bad[] = {pieces[0], pieces[1], wrong[i].piece};
            expect(&good, bad, 3, wrong[i].status);
        }
    }
    crpc_region read_only = region_of(fixture.left, ours, 4096, 0);
    pieces[2].region = read_only;
    crpc_lane_op op = pieces_op(CRPC_LANE_READ, 1, 2);
    expect(&op, pieces, 3, CRPC_E_INVALID);
    op.opcode = CRPC_LANE_WRITE;
    expect(&op, pieces, 3, CRPC_OK);
    expect_done(CRPC_LANE_WRITE);
    int32_t reason;
    assert_int_equal(crpc_lane_submit(fixture.left, left, &op, 1, NULL, 1, &reason),
                     CRPC_E_INVALID);
    assert_int_equal(reason, CRPC_E_INVALID);
}

static void wrong_flags(void **state)
{
    (void)state;
    const crpc_piece one = piece(0, 8);
    const crpc_piece in_region[] = {one};
    crpc_lane_op op = pieces_op(CRPC_LANE_WRITE, 0, 1);
    op.flags |= CRPC_LANE_INLINE;
    expect(&op, in_region, 1, CRPC_E_INVALID); /* what is copied is in no region */
    const crpc_piece nowhere = {.bytes = 8};
    expect(&op, &nowhere, 1, CRPC_E_INVALID);
    op = (crpc_lane_op){
        .opcode = CRPC_LANE_WRITE, .flags = CRPC_LANE_INLINE, .bytes = 8, .grant = grant};
    expect(&op, NULL, 0, CRPC_E_INVALID);
    op.address = one.address;
    op.region = region;
    expect(&op, NULL, 0, CRPC_E_INVALID);
    op.region.bits = 0;
    op.opcode = CRPC_LANE_READ;
    expect(&op, NULL, 0, CRPC_E_INVALID);
    for (uint8_t opcode = CRPC_LANE_COMPARE_SWAP; opcode <= CRPC_LANE_REVOKE; opcode++) {
        for (uint8_t flag = CRPC_LANE_INLINE; flag <= CRPC_LANE_PIECES; flag <<= 1) {
            op = (crpc_lane_op){.opcode = opcode, .flags = flag, .grant = grant};
            if (opcode == CRPC_LANE_GRANT) {
                op = (crpc_lane_op){.opcode = opcode,
                                    .flags = flag,
                                    .access = CRPC_ACCESS_REMOTE_READ,
                                    .bytes = 8,
                                    .region = region,
                                    .address = one.address};
            }
            expect(&op, &one, 1, CRPC_E_INVALID);
        }
    }
    fixture_poll(fixture.left);
    assert_int_equal(fixture.count, 0);
}

/* ---- Deep lanes ------------------------------------------------------------------------------ */

static void as_many_as_its_depth(void **state)
{
    static crpc_lane_op ops[601];
    int32_t reason;
    static const uint32_t depths[][2] = {{0, 62},  {1, 62},    {62, 62},
                                         {64, 64}, {300, 300}, {512, 512}};
    (void)state;
    for (uint32_t round = 0; round < sizeof(depths) / sizeof(depths[0]); round++) {
        const uint32_t depth = depths[round][1];
        open_deep(depths[round][0]);
        for (uint32_t i = 0; i < 601; i++) {
            ops[i] = (crpc_lane_op){.opcode = CRPC_LANE_READ,
                                    .bytes = 8,
                                    .user_data = i,
                                    .region = region,
                                    .address = (uint64_t)(uintptr_t)ours,
                                    .grant = grant};
        }
        assert_int_equal(crpc_lane_submit(fixture.left, left, ops, 601, NULL, 0, &reason), depth);
        assert_int_equal(reason, CRPC_E_AGAIN);
        uint32_t seen = 0, rooms = 0;
        for (uint32_t polls = 0; polls < 30; polls++) {
            fixture_poll(fixture.left);
            for (int32_t i = 0; i < fixture.count; i++) {
                bool room = fixture.completions[i].kind == CRPC_COMPLETION_ROOM;
                rooms += room;
                assert_true(room || fixture.completions[i].user_data == seen);
                seen += !room;
            }
        }
        assert_int_equal(seen, depth);
        assert_int_equal(rooms, 1);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
        assert_int_equal(crpc_region_deregister(fixture.right, right_region), CRPC_OK);
    }
}

/* The send CQ has room for so many, and no more. */
static void a_deep_one_takes_more_places(void **state)
{
    (void)state;
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_endpoint endpoint;
    assert_int_equal(crpc_context_get_info(fixture.left, &info), CRPC_OK);
    const uint32_t endpoints_max = 256; /* by default; the fixture has one, and one with a lane */
    const uint32_t places = endpoints_max - 3;
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_LANE,
                                           .ring_bytes = 4096,
                                           .batch_window = 1,
                                           /* with the place of a NOP, one more than ten have */
                                           .lane_depth = 10 * (info.send_depth + 1)};
    for (uint32_t i = 0; i < places / 12; i++) {
        uint32_t bytes = sizeof(blob);
        assert_int_equal(
            crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error), CRPC_OK);
    }
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    const crpc_endpoint_options plain = {
        .struct_size = sizeof(plain), .ring_bytes = 4096, .batch_window = 1};
    for (uint32_t i = 0; i < places % 12; i++) {
        bytes = sizeof(blob);
        assert_int_equal(crpc_endpoint_blob(fixture.left, &plain, &endpoint, blob, &bytes, &error),
                         CRPC_OK);
    }
    bytes = sizeof(blob);
    assert_int_equal(crpc_endpoint_blob(fixture.left, &plain, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_lane, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(gathered_and_scattered),
        LANE_TEST(many),
        LANE_TEST(copied),
        LANE_TEST(of_another_device),
        LANE_TEST(wrong_pieces),
        LANE_TEST(wrong_flags),
        cmocka_unit_test_setup_teardown(as_many_as_its_depth, fixture_open, fixture_close),
        LANE_TEST(a_deep_one_takes_more_places),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lane_test.c: two lanes on the in-memory NIC: ops, grants, what a peer may not, and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lane/internal.h"
#include "nic/drain.h"
#include "nic/memory/memory.h"

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

#define BYTES 8192u
#define SEEN_MAX 256u
#define TIMER_GRANT 5u

struct side {
    struct nic *nic;
    struct lane *lane;
    struct handles handles;
    struct nic_keys keys;
    uint32_t users;
    uint32_t count;
    crpc_completion seen[SEEN_MAX];
    _Alignas(64) uint8_t memory[BYTES];
};

static struct memory_fabric *fabric;
static struct wheel wheel;
static struct side near, far;

/* ---- Both sides ------------------------------------------------------------------------------ */

static void side_lane(struct side *side, uint64_t handle)
{
    const struct lane_options options = {
        .handle = handle, .user_data = handle + 1, .timer_kind = TIMER_GRANT};
    crpc_error error = {0};
    assert_int_equal(lane_create(side->nic, &side->handles, &options, &side->lane, &error),
                     CRPC_OK);
}

static void side_open(struct side *side, uint64_t handle)
{
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    crpc_error error = {0};
    memset(side, 0, sizeof(*side));
    assert_int_equal(memory_nic_open(fabric, &options, &side->nic, &error), CRPC_OK);
    handles_init(&side->handles);
    assert_int_equal(side->nic->operations->memory_register(
                         side->nic, NULL, side->memory, BYTES, 0,
                         CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS, &side->keys, &error),
                     CRPC_OK);
    side_lane(side, handle);
}

static void connect_to(struct side *side, const struct side *other)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_address address;
    crpc_error error = {0};
    const struct nic_operations *operations = side->nic->operations;
    operations->queue_pair_address(lane_queue_pair(other->lane), &address);
    assert_int_equal(
        operations->queue_pair_connect(lane_queue_pair(side->lane), &address, &transport, &error),
        CRPC_OK);
}

static void connect_both(uint32_t life)
{
    connect_to(&near, &far);
    connect_to(&far, &near);
    lane_open(near.lane, &(struct lane_identity){.own = 100, .peer = 200, .life = life});
    lane_open(far.lane, &(struct lane_identity){.own = 200, .peer = 100, .life = life});
}

static int open_pair(void **state)
{
    (void)state;
    fabric = memory_fabric_create(1);
    memory_fabric_options(fabric)->mode = MEMORY_IMMEDIATE;
    wheel_init(&wheel, 0);
    side_open(&near, 10);
    side_open(&far, 20);
    connect_both(1);
    return 0;
}

static void side_close(struct side *side)
{
    lane_stop(side->lane, &wheel, CRPC_E_CLOSED);
    lane_destroy(side->lane);
    assert_int_equal(side->users, 0);
    side->nic->operations->memory_deregister(side->nic, &side->keys);
    side->nic->operations->close(side->nic);
    handles_free(&side->handles);
}

static int close_pair(void **state)
{
    (void)state;
    side_close(&near);
    side_close(&far);
    assert_int_equal(wheel.count, 0);
    assert_int_equal(memory_fabric_counters(fabric)->left_open, 0);
    memory_fabric_destroy(fabric);
    return 0;
}

static void take(void *argument, const struct nic_completion *completion)
{
    struct side *side = argument;
    if (completion->kind == NIC_COMPLETION_ERROR) {
        lane_device_failed(side->lane, completion);
        lane_stop(side->lane, &wheel, CRPC_E_FLUSHED);
    } else {
        lane_completed(side->lane, completion->completed);
    }
}

/* Polls once: what has come is in `seen`. */
static void poll_side(struct side *side)
{
    struct output output = {.next = side->seen, .end = side->seen + SEEN_MAX};
    while (nic_drain(side->nic, take, side)) {
    }
    lane_emit(side->lane, &output);
    side->count = (uint32_t)(output.next - side->seen);
}

static const crpc_completion *expect_one(struct side *side, uint8_t opcode, int32_t status)
{
    poll_side(side);
    assert_int_equal(side->count, 1);
    assert_int_equal(side->seen[0].kind, CRPC_COMPLETION_WORK);
    assert_int_equal(side->seen[0].flags, 0);
    assert_int_equal(side->seen[0].method, opcode);
    assert_int_equal(side->seen[0].status, status);
    return &side->seen[0];
}

/* Carries the messages of both sides until none is due. */
static void talk(void)
{
    struct side *sides[] = {&near, &far};
    bool said = true;
    while (said) {
        said = false;
        for (uint32_t i = 0; i < 2; i++) {
            struct lane *from = sides[i]->lane, *to = sides[1 - i]->lane;
            if (lane_revoke_due(from)) {
                assert_null(lane_take_revoke(to, lane_revoke_say(from)));
                said = true;
            }
            if (lane_answer_due(from)) {
                assert_null(lane_take_answer(to, lane_answer_say(from), &wheel));
                said = true;
            }
        }
    }
}

/* ---- Grants ---------------------------------------------------------------------------------- */

#define ALL (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

static int32_t try_give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access)
{
    const struct lane_memory memory = {.keys = &side->keys,
                                       .users = &side->users,
                                       .address = (uint64_t)(uintptr_t)side->memory + offset,
                                       .bytes = bytes,
                                       .access = access};
    return lane_give(side->lane, &memory, 7);
}

/* A grant of this side. */
static struct lane_grant *give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access)
{
    assert_int_equal(try_give(side, offset, bytes, access), CRPC_OK);
    const crpc_completion *done = expect_one(side, LANE_GRANT, CRPC_OK);
    assert_int_equal(done->user_data, 7);
    struct lane_grant *grant = handles_get(&side->handles, done->token, HANDLE_GRANT);
    assert_non_null(grant);
    assert_true(lane_grant_revocable(grant));
    return grant;
}

static int32_t try_take(struct side *side, const uint8_t *bytes, uint32_t count,
                        struct lane_grant **grant)
{
    crpc_error error = {0};
    int32_t status = lane_take(side->lane, bytes, count, grant, &error);
    assert_int_equal(error.status, status);
    assert_true(status == CRPC_OK || strlen(error.message) > 10);
    return status;
}

/* What the near side makes of a grant of the far side. */
static struct lane_grant *take_far(const struct lane_grant *given)
{
    uint8_t bytes[LANE_GRANT_BYTES];
    struct lane_grant *grant;
    lane_grant_write(given, bytes);
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_OK);
    assert_int_equal(grant->address, given->address);
    assert_int_equal(grant->bytes, given->bytes);
    assert_int_equal(grant->access, given->access);
    assert_ptr_equal(handles_get(&near.handles, grant->handle, HANDLE_GRANT), grant);
    return grant;
}

static struct lane_op op_on(const struct lane_grant *grant, uint8_t opcode, uint32_t offset,
                            uint32_t bytes)
{
    return (struct lane_op){.opcode = opcode,
                            .bytes = bytes,
                            .local_key = near.keys.local_key,
                            .remote_key = grant->key,
                            .local_address = (uint64_t)(uintptr_t)near.memory,
                            .remote_address = grant->address + offset,
                            .user_data = 900};
}

static void post(const struct lane_op *op)
{
    assert_int_equal(lane_post(near.lane, op, 1), 1);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void write_and_read(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 64, 4096, ALL));
    struct lane_op op = op_on(grant, LANE_WRITE, 100, 200);
    memset(near.memory, 0x5a, 200);
    post(&op);
    assert_int_equal(expect_one(&near, LANE_WRITE, CRPC_OK)->user_data, 900);
    assert_memory_equal(far.memory + 164, near.memory, 200);
    assert_int_equal(far.memory[163] | far.memory[364], 0);
    op = op_on(grant, LANE_READ, 0, 4096);
    memset(near.memory, 0, BYTES);
    post(&op);
    const crpc_completion *done = expect_one(&near, LANE_READ, CRPC_OK);
    assert_int_equal(done->payload_bytes, 4096);
    assert_int_equal(done->endpoint.bits, 10);
    assert_int_equal(done->endpoint_user_data, 11);
    assert_memory_equal(near.memory, far.memory + 64, 4096);
}

static void atomics(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 64, 64, CRPC_ACCESS_REMOTE_ATOMIC));
    struct lane_op ops[3];
    for (uint32_t i = 0; i < 3; i++) {
        ops[i] = op_on(grant, i == 2 ? LANE_COMPARE_SWAP : LANE_FETCH_ADD, 8, 0);
        ops[i].operand = 5;
        ops[i].compare = 10;
        ops[i].user_data = i;
    }
    assert_int_equal(lane_post(near.lane, ops, 3), 3);
    poll_side(&near);
    assert_int_equal(near.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(near.seen[i].user_data, i);
        assert_int_equal(near.seen[i].token, i * 5);
    }
    uint64_t word;
    memcpy(&word, far.memory + 72, 8);
    assert_int_equal(word, 5);
}

/* As many as there is room for are accepted; each completes once, in order, and so round the ring. */
static void room(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 0, 4096, ALL));
    struct lane_op ops[20];
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < 20; i++) {
            ops[i] = op_on(grant, i % 2 ? LANE_READ : LANE_WRITE, i, 8);
            ops[i].user_data = round * 100 + i;
        }
        assert_int_equal(lane_post(near.lane, ops, 20), 16);
        assert_int_equal(lane_post(near.lane, ops, 1), 0);
        assert_true(lane_has_open(near.lane));
        assert_false(lane_reached(near.lane, lane_mark(near.lane)));
        struct output output = {.next = near.seen, .end = near.seen + 5};
        while (nic_drain(near.nic, take, &near)) {
        }
        assert_true(lane_reached(near.lane, lane_mark(near.lane)));
        lane_emit(near.lane,
                  &output); /* room is what was told, since results are kept until then */
        assert_int_equal(lane_room(near.lane), 5);
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(near.seen[i].user_data, round * 100 + i);
        }
        assert_true(lane_something_waits(near.lane));
        poll_side(&near);
        assert_int_equal(near.count, 11);
        assert_int_equal(near.seen[10].user_data, round * 100 + 15);
        assert_false(lane_has_open(near.lane));
    }
}

/* ---- Rights ---------------------------------------------------------------------------------- */

/* The near side's lane has failed of an op, and only that. */
static void expect_refused(const struct lane_op *op)
{
    uint8_t before[BYTES];
    memcpy(before, far.memory, BYTES);
    post(op);
    expect_one(&near, op->opcode, CRPC_E_ACCESS);
    assert_false(lane_is_open(near.lane));
    assert_int_equal(lane_post(near.lane, op, 1), 0);
    assert_memory_equal(before, far.memory, BYTES);
    poll_side(&near);
    assert_int_equal(near.count, 0);
}

static void a_write_needs_the_right(void **state)
{
    (void)state;
    const struct lane_grant *grant =
        take_far(give(&far, 0, 64, CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC));
    struct lane_op op = op_on(grant, LANE_WRITE, 0, 8);
    expect_refused(&op);
}

static void a_read_needs_the_right(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 0, 64, CRPC_ACCESS_REMOTE_WRITE));
    struct lane_op op = op_on(grant, LANE_READ, 0, 8);
    expect_refused(&op);
}

static void nothing_beside_the_grant(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 64, 64, ALL));
    struct lane_op op = op_on(grant, LANE_WRITE, 60, 8);
    expect_refused(&op);
}

/* Who knows the key of the memory itself reaches nothing by it. */
static void nothing_by_the_key_of_the_region(void **state)
{
    (void)state;
    const struct lane_grant *grant = take_far(give(&far, 64, 64, ALL));
    struct lane_op op = op_on(grant, LANE_READ, 0, 8);
    op.remote_key = far.keys.remote_key;
    expect_refused(&op);
}

/* ---- Revoking -------------------------------------------------------------------------------- */

static void revoked_when_the_peer_has_answered(void **state)
{
    (void)state;
    struct lane_grant *given = give(&far, 0, 64, ALL);
    struct lane_grant *taken = take_far(given);
    struct lane_op op = op_on(taken, LANE_WRITE, 0, 8);
    uint8_t bytes[LANE_GRANT_BYTES];
    lane_grant_write(given, bytes);
    assert_int_equal(far.users, 1);
    post(&op);
    lane_revoke(given, 33, &wheel, UINT64_MAX);
    assert_null(handles_get(&far.handles, given->handle, HANDLE_GRANT));
    poll_side(&far);
    assert_int_equal(far.count, 0);
    assert_null(lane_take_revoke(near.lane, lane_revoke_say(far.lane)));
    assert_true(lane_grant_over(taken));
    assert_true(lane_answer_owed(near.lane));
    assert_false(lane_answer_due(near.lane)); /* the WRITE may be under way */
    expect_one(&near, LANE_WRITE, CRPC_OK);
    talk();
    assert_int_equal(expect_one(&far, LANE_REVOKE, CRPC_OK)->user_data, 33);
    assert_int_equal(far.users, 0);
    assert_false(lane_has_open(far.lane));
    struct lane_grant *again;
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &again), CRPC_E_STALE);
    expect_refused(&op);
}

static void revoked_at_the_deadline(void **state)
{
    (void)state;
    struct lane_grant *given = give(&far, 0, 64, ALL);
    struct lane_grant *other = give(&far, 64, 64, ALL);
    const struct lane_grant *taken = take_far(given);
    struct lane_op op = op_on(taken, LANE_WRITE, 0, 8);
    lane_revoke(given, 1, &wheel, 1000000);
    lane_revoke(other, 2, &wheel, 2000000);
    uint64_t serial = lane_revoke_say(far.lane);
    assert_false(lane_revoke_due(far.lane)); /* one at a time */
    wheel_advance(&wheel, 1100000);
    assert_ptr_equal(lane_timer(wheel_take(&wheel)), far.lane);
    assert_null(wheel_take(&wheel));
    assert_int_equal(expect_one(&far, LANE_REVOKE, CRPC_OK)->user_data, 1);
    assert_int_equal(far.users, 1);
    /* the place is used again, and the answer comes for the grant before */
    struct lane_grant *next = give(&far, 128, 64, ALL);
    assert_null(lane_take_revoke(near.lane, serial));
    assert_null(lane_take_answer(far.lane, lane_answer_say(near.lane), &wheel));
    assert_true(lane_grant_revocable(next));
    assert_false(lane_grant_over(take_far(next)));
    talk();
    assert_int_equal(expect_one(&far, LANE_REVOKE, CRPC_OK)->user_data, 2);
    assert_int_equal(far.users, 1);
    expect_refused(&op);
}

/* A peer that has not been told of one when its place is used again is told all the same. */
static void a_late_word_is_of_its_own_grant(void **state)
{
    (void)state;
    struct lane_grant *first = give(&far, 0, 64, ALL);
    struct lane_grant *second = give(&far, 64, 64, ALL);
    struct lane_grant *taken = take_far(second);
    lane_revoke(first, 1, &wheel, UINT64_MAX);
    uint64_t serial = lane_revoke_say(far.lane);
    lane_revoke(second, 2, &wheel, 1000000);
    wheel_advance(&wheel, 2000000);
    lane_timer(wheel_take(&wheel));
    expect_one(&far, LANE_REVOKE, CRPC_OK);
    struct lane_grant *third = give(&far, 128, 64, ALL);
    struct lane_grant *other = take_far(third);
    assert_false(lane_grant_over(taken));
    assert_null(lane_take_revoke(near.lane, serial));
    talk();
    assert_true(lane_grant_over(taken));
    assert_false(lane_grant_over(other));
    expect_one(&far, LANE_REVOKE, CRPC_OK);
    struct lane_op op = op_on(other, LANE_WRITE, 0, 8);
    post(&op);
    expect_one(&near, LANE_WRITE, CRPC_OK);
}

/* A full send queue puts the end of a grant off, and no longer than that. */
static void an_invalidate_waits_for_room(void **state)
{
    (void)state;
    struct lane_grant *given = give(&far, 0, 64, ALL);
    struct lane_grant *ours = give(&near, 0, 64, ALL);
    const struct lane_grant *taken = take_far(given);
    struct lane_op ops[16];
    for (uint32_t i = 0; i < 16; i++) {
        ops[i] = op_on(taken, LANE_READ, 0, 8);
    }
    lane_revoke(ours, 5, &wheel, UINT64_MAX);
    uint64_t serial = lane_revoke_say(near.lane);
    assert_int_equal(lane_post(near.lane, ops, 16), 16);
    assert_null(lane_take_revoke(far.lane, serial));
    assert_null(lane_take_answer(near.lane, lane_answer_say(far.lane), &wheel));
    assert_false(list_empty(&near.lane->invalidate));
    poll_side(&near); /* room is there when the completions have been given */
    assert_int_equal(near.count, 16);
    assert_int_equal(expect_one(&near, LANE_REVOKE, CRPC_OK)->user_data, 5);
}

static void as_many_grants_as_there_may_be(void **state)
{
    (void)state;
    struct lane_grant *last = NULL;
    for (uint32_t i = 0; i < LANE_GRANTS_MAX; i++) {
        last = give(&far, i % 64, 64, ALL);
    }
    assert_int_equal(try_give(&far, 0, 64, ALL), CRPC_E_NO_RESOURCE);
    assert_int_equal(far.users, LANE_GRANTS_MAX);
    for (uint32_t i = 0; i < 600; i++) { /* more than a window's key has variants */
        uint64_t serial = last->serial;
        struct lane_grant *taken = take_far(last);
        struct lane_op op = op_on(taken, LANE_WRITE, 0, 8);
        post(&op);
        expect_one(&near, LANE_WRITE, CRPC_OK);
        lane_revoke(last, i, &wheel, UINT64_MAX);
        talk();
        assert_int_equal(expect_one(&far, LANE_REVOKE, CRPC_OK)->user_data, i);
        assert_true(lane_grant_over(taken));
        lane_forget(taken);
        last = give(&far, i % 64, 64, ALL);
        assert_int_not_equal(last->serial, serial);
    }
}

/* ---- Bytes that are no grant ----------------------------------------------------------------- */

static void bytes_that_are_no_grant(void **state)
{
    (void)state;
    uint8_t good[LANE_GRANT_BYTES + 1] = {0}, bytes[LANE_GRANT_BYTES];
    struct lane_grant *grant;
    lane_grant_write(give(&far, 0, 64, ALL), good);
    for (uint32_t count = 0; count <= sizeof(good); count++) {
        int32_t status = count == LANE_GRANT_BYTES ? CRPC_OK : CRPC_E_PROTOCOL;
        assert_int_equal(try_take(&near, good, count, &grant), status);
    }
    for (uint32_t bit = 0; bit < LANE_GRANT_BYTES * 8; bit++) {
        memcpy(bytes, good, sizeof(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_E_PROTOCOL);
    }
}

static void grants_of_others(void **state)
{
    (void)state;
    uint8_t bytes[LANE_GRANT_BYTES];
    struct lane_grant *grant;
    struct lane_grant *given = give(&far, 0, 64, ALL);
    lane_grant_write(given, bytes);
    assert_int_equal(try_take(&far, bytes, sizeof(bytes), &grant), CRPC_E_STALE); /* its own */
    near.lane->identity.peer++;
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_E_STALE);
    near.lane->identity.peer--;
    near.lane->identity.own++;
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_E_STALE);
    near.lane->identity.own--;
    near.lane->identity.life++;
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_E_STALE);
    near.lane->identity.life--;
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_OK);
}

/* With the right checksum: what no grant says is refused, and what one might say gives nothing. */
static void forged_grants(void **state)
{
    (void)state;
    static const struct {
        uint32_t offset;
        uint32_t bytes;
        uint64_t value;
        int32_t status;
    } cases[] = {
        {0, 4, 0, CRPC_E_PROTOCOL},
        {4, 2, 2, CRPC_E_PROTOCOL},                /* version */
        {6, 2, 0, CRPC_E_PROTOCOL},                /* rights */
        {6, 2, 0x11, CRPC_E_PROTOCOL},             /* unknown ones */
        {16, 8, LANE_GRANTS_MAX, CRPC_E_PROTOCOL}, /* serial: no such place */
        {16, 8, 0, CRPC_E_STALE},                  /* never used */
        {24, 8, UINT64_MAX - 63, CRPC_E_PROTOCOL}, /* its end is past all */
        {32, 4, 0, CRPC_E_PROTOCOL},               /* bytes */
        {32, 4, 0x80000001u, CRPC_E_PROTOCOL},
        {24, 8, 4096, CRPC_OK},
        {36, 4, 77, CRPC_OK}, /* key */
    };
    uint8_t good[LANE_GRANT_BYTES];
    struct lane_grant *grant = NULL;
    lane_grant_write(give(&far, 0, 64, ALL), good);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[LANE_GRANT_BYTES];
        memcpy(bytes, good, sizeof(bytes));
        memcpy(bytes + cases[i].offset, &cases[i].value, cases[i].bytes);
        uint32_t hash = 2166136261u;
        for (uint32_t j = 0; j < 44; j++) {
            hash = (hash ^ bytes[j]) * 16777619u;
        }
        memcpy(bytes + 44, &hash, 4);
        assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), cases[i].status);
    }
    struct lane_op op = op_on(grant, LANE_WRITE, 0, 8);
    expect_refused(&op);
}

/* ---- Words out of place ---------------------------------------------------------------------- */

static void words_out_of_place(void **state)
{
    (void)state;
    struct lane_grant *given = give(&far, 0, 64, ALL);
    uint64_t serial = given->serial;
    assert_non_null(lane_take_answer(far.lane, serial, &wheel));
    lane_revoke(given, 1, &wheel, UINT64_MAX);
    assert_non_null(lane_take_answer(far.lane, serial, &wheel)); /* before it was said */
    assert_int_equal(lane_revoke_say(far.lane), serial);
    assert_non_null(lane_take_answer(far.lane, serial + 1, &wheel));
    assert_null(lane_take_answer(far.lane, serial, &wheel));
    assert_non_null(lane_take_answer(far.lane, serial, &wheel)); /* twice */
    expect_one(&far, LANE_REVOKE, CRPC_OK);

    assert_non_null(lane_take_revoke(near.lane, LANE_GRANTS_MAX | 1 << SERIAL_INDEX_BITS));
    assert_non_null(lane_take_revoke(near.lane, 5)); /* a place that was not used */
    assert_null(lane_take_revoke(near.lane, serial));
    assert_non_null(lane_take_revoke(near.lane, serial + (1 << SERIAL_INDEX_BITS)));
    lane_answer_say(near.lane);
    assert_non_null(lane_take_revoke(near.lane, serial)); /* again */
    assert_null(lane_take_revoke(near.lane, UINT64_MAX - SERIAL_INDEX_MASK));
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void each_op_completes_once_when_the_lane_ends(void **state)
{
    (void)state;
    const struct lane_grant *taken = take_far(give(&far, 0, 64, ALL));
    struct lane_grant *ours = give(&near, 0, 64, ALL);
    struct lane_grant *bound = give(&near, 64, 64, ALL);
    uint64_t handle = bound->handle, theirs = taken->handle;
    struct lane_op op = op_on(taken, LANE_WRITE, 0, 8);
    lane_revoke(ours, 50, &wheel, 1000000);
    post(&op);
    assert_int_equal(try_give(&near, 0, 64, ALL), CRPC_OK);
    lane_stop(near.lane, &wheel, CRPC_E_DISCONNECTED);
    lane_stop(near.lane, &wheel, CRPC_E_CLOSED);
    assert_int_equal(wheel.count, 0);
    assert_int_equal(near.users, 0);
    poll_side(&near);
    assert_int_equal(near.count, 3);
    assert_int_equal(near.seen[0].method, LANE_WRITE);
    assert_int_equal(near.seen[0].status, CRPC_E_DISCONNECTED);
    assert_int_equal(near.seen[1].method, LANE_GRANT);
    assert_int_equal(near.seen[1].status, CRPC_E_DISCONNECTED);
    assert_int_equal(near.seen[1].token, 0);
    assert_int_equal(near.seen[2].method, LANE_REVOKE);
    assert_int_equal(near.seen[2].user_data, 50);
    assert_int_equal(near.seen[2].status, CRPC_OK);
    assert_null(handles_get(&near.handles, handle, HANDLE_GRANT));
    assert_ptr_equal(handles_get(&near.handles, theirs, HANDLE_GRANT), taken);
    assert_true(lane_grant_over(taken));
    assert_false(lane_has_open(near.lane));
    assert_null(lane_queue_pair(near.lane));
    assert_int_equal(lane_room(near.lane), 0);
}

/* The ops before one that failed were done; those behind it perhaps not. */
static void an_op_fails_among_others(void **state)
{
    (void)state;
    const struct lane_grant *taken = take_far(give(&far, 0, 64, ALL));
    struct lane_op ops[5];
    for (uint32_t i = 0; i < 5; i++) {
        ops[i] = op_on(taken, LANE_WRITE, 8 * i, 8);
        ops[i].user_data = i;
    }
    ops[2].remote_key++;
    assert_int_equal(lane_post(near.lane, ops, 5), 5);
    poll_side(&near);
    assert_int_equal(near.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(near.seen[i].user_data, i);
        assert_int_equal(near.seen[i].status, i < 2    ? CRPC_OK
                                              : i == 2 ? CRPC_E_ACCESS
                                                       : CRPC_E_FLUSHED);
    }
}

/* In another life: grants of before are stale on both sides, and places and entries are used again. */
static void made_again(void **state)
{
    (void)state;
    crpc_error error = {0};
    for (uint32_t life = 2; life < 6; life++) {
        struct lane_grant *given = give(&far, 0, 64, ALL);
        struct lane_grant *taken = take_far(given);
        struct lane_op op = op_on(taken, LANE_WRITE, 0, 8);
        uint64_t serial = given->serial;
        uint8_t bytes[LANE_GRANT_BYTES];
        lane_grant_write(given, bytes);
        post(&op);
        expect_one(&near, LANE_WRITE, CRPC_OK);
        lane_stop(near.lane, &wheel, CRPC_E_FLUSHED);
        lane_stop(far.lane, &wheel, CRPC_E_FLUSHED);
        assert_int_equal(far.users, 0);
        memory_fabric_set_failures(fabric, MEMORY_FAIL_CREATE, 1, CRPC_E_NO_MEMORY);
        assert_int_equal(lane_renew(near.lane, &error), CRPC_E_NO_MEMORY);
        assert_null(lane_queue_pair(near.lane));
        assert_int_equal(lane_renew(near.lane, &error), CRPC_OK);
        assert_int_equal(lane_renew(far.lane, &error), CRPC_OK);
        assert_false(lane_is_open(near.lane));
        connect_both(life);
        assert_true(lane_grant_over(taken));
        struct lane_grant *again;
        assert_int_equal(try_take(&near, bytes, sizeof(bytes), &again), CRPC_E_STALE);
        given = give(&far, 0, 64, ALL);
        assert_int_not_equal(given->serial, serial);
        op = op_on(take_far(given), LANE_WRITE, 0, 8);
        post(&op);
        expect_one(&near, LANE_WRITE, CRPC_OK);
        lane_revoke(given, 1, &wheel, UINT64_MAX);
        talk();
        expect_one(&far, LANE_REVOKE, CRPC_OK);
    }
}

/* A REVOKE that was said in one life is answered in the next, and then others are said. */
static void an_answer_of_the_life_before(void **state)
{
    (void)state;
    crpc_error error = {0};
    lane_revoke(give(&far, 0, 64, ALL), 1, &wheel, UINT64_MAX);
    uint64_t serial = lane_revoke_say(far.lane);
    assert_null(lane_take_revoke(near.lane, serial));
    lane_stop(near.lane, &wheel, CRPC_E_FLUSHED);
    lane_stop(far.lane, &wheel, CRPC_E_FLUSHED);
    expect_one(&far, LANE_REVOKE, CRPC_OK);
    assert_int_equal(lane_renew(near.lane, &error), CRPC_OK);
    assert_int_equal(lane_renew(far.lane, &error), CRPC_OK);
    connect_both(2);
    lane_revoke(give(&far, 0, 64, ALL), 2, &wheel, UINT64_MAX);
    assert_false(lane_revoke_due(far.lane));
    assert_true(lane_answer_due(near.lane));
    talk();
    assert_int_equal(expect_one(&far, LANE_REVOKE, CRPC_OK)->user_data, 2);
}

/* A device that speaks of ops that are not open changes nothing. */
static void a_device_gone_mad(void **state)
{
    (void)state;
    const struct nic_completion before = {.completed = lane_mark(near.lane) - 3,
                                          .status = NIC_ERROR_OTHER};
    const struct nic_completion behind = {.completed = lane_mark(near.lane) + 3,
                                          .status = NIC_ERROR_OTHER};
    lane_device_failed(near.lane, &before);
    lane_device_failed(near.lane, &behind);
    poll_side(&near);
    assert_int_equal(near.count, 0);
}

/* A lane that was never connected ends as well. */
static void never_connected(void **state)
{
    (void)state;
    struct lane *other;
    const struct lane_options options = {.handle = 1, .timer_kind = TIMER_GRANT};
    crpc_error error = {0};
    assert_int_equal(lane_create(near.nic, &near.handles, &options, &other, &error), CRPC_OK);
    assert_false(lane_is_open(other));
    lane_destroy(other);
}

static void no_memory_for_a_window(void **state)
{
    (void)state;
    memory_fabric_set_failures(fabric, MEMORY_FAIL_WINDOW, 1, CRPC_E_NO_MEMORY);
    assert_int_equal(try_give(&far, 0, 64, ALL), CRPC_E_NO_MEMORY);
    assert_int_equal(far.users, 0);
    give(&far, 0, 64, ALL);
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(write_and_read),
        LANE_TEST(atomics),
        LANE_TEST(room),
        LANE_TEST(a_write_needs_the_right),
        LANE_TEST(a_read_needs_the_right),
        LANE_TEST(nothing_beside_the_grant),
        LANE_TEST(nothing_by_the_key_of_the_region),
        LANE_TEST(revoked_when_the_peer_has_answered),
        LANE_TEST(revoked_at_the_deadline),
        LANE_TEST(a_late_word_is_of_its_own_grant),
        LANE_TEST(an_invalidate_waits_for_room),
        LANE_TEST(as_many_grants_as_there_may_be),
        LANE_TEST(bytes_that_are_no_grant),
        LANE_TEST(grants_of_others),
        LANE_TEST(forged_grants),
        LANE_TEST(words_out_of_place),
        LANE_TEST(each_op_completes_once_when_the_lane_ends),
        LANE_TEST(an_op_fails_among_others),
        LANE_TEST(made_again),
        LANE_TEST(an_answer_of_the_life_before),
        LANE_TEST(a_device_gone_mad),
        LANE_TEST(never_connected),
        LANE_TEST(no_memory_for_a_window),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

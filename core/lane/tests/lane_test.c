/* lane_test.c: ops of a lane, what a peer may not, and how lanes end. */
#include "pair.h"

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
        take_completions(&near);
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

static struct nic_operations dying;
static uint32_t posts_left;

static void post_read_and_die(struct nic_queue_pair *queue_pair,
                              const struct nic_transfer *transfer, uint32_t flags)
{
    nic_memory_operations.post_read(queue_pair, transfer, flags);
    if (--posts_left == 0) {
        nic_memory_operations.queue_pair_fail(queue_pair);
    }
}

/* The device is lost while an array is posted: a driver hears of that when its chain is full, and discards
 * what is posted from then on. Each op that was accepted completes. */
static void the_device_dies_under_an_array(void **state)
{
    (void)state;
    struct lane_op ops[8];
    for (uint32_t i = 0; i < 8; i++) {
        ops[i] = op_on(take_far(give(&far, 64 * i, 64, ALL)), LANE_READ, 0, 8);
        ops[i].user_data = i;
    }
    dying = nic_memory_operations;
    dying.post_read = post_read_and_die;
    posts_left = 3;
    near.lane->operations = &dying;
    uint32_t accepted = lane_post(near.lane, ops, 8);
    assert_true(accepted >= 3);
    assert_int_equal(lane_room(near.lane), 0);
    take_completions(&near);
    lane_stop(near.lane, &wheel, CRPC_E_FLUSHED);
    poll_side(&near);
    assert_int_equal(near.count, accepted);
    for (uint32_t i = 0; i < accepted; i++) {
        assert_int_equal(near.seen[i].user_data, i);
        assert_int_equal(near.seen[i].status, CRPC_E_FLUSHED);
    }
}

/* What the device says of the op that failed, and of no other. */
static void what_the_device_says(void **state)
{
    (void)state;
    static const struct {
        uint8_t error;
        int32_t status;
    } cases[] = {{NIC_ERROR_RETRY, CRPC_E_DISCONNECTED}, {NIC_ERROR_RNR, CRPC_E_DISCONNECTED},
                 {NIC_ERROR_LOCAL, CRPC_E_DEVICE},       {NIC_ERROR_REMOTE_ACCESS, CRPC_E_ACCESS},
                 {NIC_ERROR_OTHER, CRPC_E_DEVICE},       {NIC_ERROR_FLUSHED, CRPC_E_FLUSHED}};
    struct lane_grant *grant = take_far(give(&far, 0, 64, ALL));
    const struct lane_op op = op_on(grant, LANE_READ, 0, 8);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        post(&op);
        const struct nic_completion failure = {.completed = lane_mark(near.lane),
                                               .status = cases[i].error,
                                               .vendor_syndrome = 0x80 + i};
        lane_device_failed(near.lane, &failure);
        const crpc_completion *done = expect_one(&near, LANE_READ, cases[i].status);
        assert_int_equal(done->reply_bytes_max, 0x80 + i);
        assert_int_equal(done->payload_bytes, 0);
    }
    post(&op);
    lane_stop(near.lane, &wheel, CRPC_E_CLOSED);
    assert_int_equal(expect_one(&near, LANE_READ, CRPC_E_CLOSED)->reply_bytes_max, 0);
}

/* Those before it were done, if the device has said of which op it speaks. A driver that could not tell the
 * device of its ops speaks of the last. */
static void what_the_device_says_of_those_before(void **state)
{
    (void)state;
    static const struct {
        uint8_t error;
        int32_t before, status;
    } cases[] = {{NIC_ERROR_REMOTE_ACCESS, CRPC_OK, CRPC_E_ACCESS},
                 {NIC_ERROR_LOCAL, CRPC_OK, CRPC_E_DEVICE},
                 {NIC_ERROR_RETRY, CRPC_OK, CRPC_E_DISCONNECTED},
                 {NIC_ERROR_OTHER, CRPC_E_FLUSHED, CRPC_E_DEVICE},
                 {NIC_ERROR_FLUSHED, CRPC_E_FLUSHED, CRPC_E_FLUSHED}};
    struct lane_grant *grant = take_far(give(&far, 0, 64, ALL));
    const struct lane_op op = op_on(grant, LANE_READ, 0, 8);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct lane_op ops[3] = {op, op, op};
        assert_int_equal(lane_post(near.lane, ops, 3), 3);
        const struct nic_completion failure = {.completed = lane_mark(near.lane),
                                               .status = cases[i].error};
        lane_device_failed(near.lane, &failure);
        poll_side(&near);
        assert_int_equal(near.count, 3);
        assert_int_equal(near.seen[0].status, cases[i].before);
        assert_int_equal(near.seen[1].status, cases[i].before);
        assert_int_equal(near.seen[2].status, cases[i].status);
    }
}

/* A lane that was never connected ends as well. */
static void never_connected(void **state)
{
    (void)state;
    struct lane *other;
    const struct lane_options options = {.handle = 1, .timer_kind = TIMER_GRANT, .depth = 16};
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
        LANE_TEST(each_op_completes_once_when_the_lane_ends),
        LANE_TEST(an_op_fails_among_others),
        LANE_TEST(made_again),
        LANE_TEST(an_answer_of_the_life_before),
        LANE_TEST(a_device_gone_mad),
        LANE_TEST(the_device_dies_under_an_array),
        LANE_TEST(what_the_device_says),
        LANE_TEST(what_the_device_says_of_those_before),
        LANE_TEST(never_connected),
        LANE_TEST(no_memory_for_a_window),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* grant_test.c: grants: revoked, of others, forged; and what the two sides say of them. */
#include "pair.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(revoked_when_the_peer_has_answered),
        LANE_TEST(revoked_at_the_deadline),
        LANE_TEST(a_late_word_is_of_its_own_grant),
        LANE_TEST(an_invalidate_waits_for_room),
        LANE_TEST(as_many_grants_as_there_may_be),
        LANE_TEST(bytes_that_are_no_grant),
        LANE_TEST(grants_of_others),
        LANE_TEST(forged_grants),
        LANE_TEST(words_out_of_place),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

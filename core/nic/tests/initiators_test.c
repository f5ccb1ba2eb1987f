/* initiators_test.c: whose turn it is (initiators.h), without a device: a seed of random posts, completions, failures and ends,
 * after each of which the rules hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/initiators.h"

#define PAIRS 9u
#define INITIATORS_MAX 4u
#define DEPTH 5u
#define STEPS 200000u
#define SEEDS 8u

struct rig {
    struct nic_initiators shared;
    struct nic_initiator initiators[INITIATORS_MAX];
    struct nic_queue_pair pairs[PAIRS];
    struct nic_dynamic dynamics[PAIRS];
    bool waits[PAIRS];      /* it has asked, and was not told */
    uint32_t waited[PAIRS]; /* how many others were granted meanwhile */
    uint64_t random;
};

static uint32_t chance(struct rig *rig, uint32_t below)
{
    rig->random = rig->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rig->random >> 33) % below;
}

static void make(struct rig *rig, uint32_t i)
{
    memset(&rig->pairs[i], 0, sizeof(rig->pairs[i]));
    memset(&rig->dynamics[i], 0, sizeof(rig->dynamics[i]));
    nic_dynamic_init(&rig->dynamics[i], &rig->pairs[i]);
    rig->waits[i] = false;
    rig->waited[i] = 0;
}

static uint32_t length(const struct list *list)
{
    uint32_t count = 0;
    for (const struct list *at = list->next; at != list; at = at->next) {
        count++;
    }
    return count;
}

static bool is_granted(const struct nic_initiator *initiator)
{
    const struct nic_dynamic *user = initiator->user;
    return !list_linked(&initiator->link) && !initiator->called && !initiator->failed && user &&
           !user->waits && list_linked(&user->link) && user->pair->posted == user->pair->completed;
}

/* Nobody waits for an initiator while there is an idle one, but those that have just been lent to others. */
static void expect_no_idle_hands(const struct rig *rig)
{
    for (uint32_t i = 0; i < PAIRS; i++) {
        if (!rig->dynamics[i].waits || rig->dynamics[i].initiator) {
            continue;
        }
        const struct list *at;
        for (at = rig->shared.idle.next; at != &rig->shared.idle; at = at->next) {
            const struct nic_dynamic *user = list_entry(at, struct nic_initiator, link)->user;
            assert_true(user && (list_linked(&user->link) || rig->shared.told == user));
        }
    }
}

static void check(struct rig *rig)
{
    const struct nic_initiators *shared = &rig->shared;
    uint32_t called = 0, failed = 0, granted = 0, waiting = 0;
    for (uint32_t i = 0; i < shared->count; i++) {
        const struct nic_initiator *one = &rig->initiators[i];
        const bool lent = is_granted(one);
        granted += lent;
        called += one->called;
        failed += one->failed;
        assert_false(one->called && one->failed);
        assert_int_equal(list_linked(&one->link), !one->called && !one->failed && !lent);
        assert_true(!one->user || one->user->initiator == one);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        const struct nic_dynamic *one = &rig->dynamics[i];
        const uint32_t under_way = rig->pairs[i].posted - rig->pairs[i].completed;
        waiting += one->waits;
        assert_true(under_way <= DEPTH && under_way <= rig->pairs[i].depth);
        if (!one->initiator) {
            assert_int_equal(rig->pairs[i].depth, 0);
            assert_int_equal(under_way, 0);
        } else if (one->initiator->called) {
            assert_int_equal(nic_send_room(&rig->pairs[i]), 0);
            assert_true(under_way > 0);
        }
    }
    assert_int_equal(called, shared->called_count);
    assert_int_equal(waiting, shared->waiting_count);
    assert_int_equal(waiting, length(&shared->waiting));
    assert_int_equal(length(&shared->idle) + length(&shared->busy) + called + failed + granted,
                     shared->count);
    expect_no_idle_hands(rig);
}

static void post(struct rig *rig, uint32_t i)
{
    struct nic_queue_pair *pair = &rig->pairs[i];
    if (pair->failed) {
        return;
    }
    if (nic_send_room(pair) == 0 && !nic_initiators_take(&rig->shared, &rig->dynamics[i])) {
        rig->waits[i] |= rig->dynamics[i].waits;
        return;
    }
    assert_true(nic_send_room(pair) > 0);
    nic_initiators_post(&rig->shared, &rig->dynamics[i]);
    pair->posted++;
}

static void tell(struct rig *rig)
{
    struct nic_queue_pair *pair;
    while ((pair = nic_initiators_granted(&rig->shared)) != NULL) {
        const uint32_t told = (uint32_t)(pair - rig->pairs);
        rig->waits[told] = false;
        rig->waited[told] = 0;
        for (uint32_t i = 0; i < PAIRS; i++) {
            rig->waited[i] += rig->waits[i] && !rig->dynamics[i].initiator;
            /* In the order of asking: each of the others is told once before. */
            assert_true(rig->waited[i] < PAIRS);
        }
        if (chance(rig, 3)) {
            post(rig, told);
        }
    }
}

static void complete(struct rig *rig, uint32_t i, bool good)
{
    struct nic_queue_pair *pair = &rig->pairs[i];
    if (pair->posted == pair->completed || pair->failed) {
        return;
    }
    pair->completed += 1 + chance(rig, pair->posted - pair->completed);
    if (good) {
        nic_initiators_complete(&rig->shared, rig->dynamics[i].initiator);
    } else {
        pair->failed = true;
        nic_initiators_fail(&rig->shared, rig->dynamics[i].initiator);
    }
}

static void leave(struct rig *rig, uint32_t i)
{
    struct nic_initiator *left = nic_initiators_leave(&rig->shared, &rig->dynamics[i]);
    if (left) {
        assert_null(left->user);
        left->failed = false;
        nic_initiators_rest(&rig->shared, left);
    }
    make(rig, i);
}

static void step(struct rig *rig)
{
    const uint32_t i = chance(rig, PAIRS);
    switch (chance(rig, 64)) {
    case 0:
        leave(rig, i);
        break;
    case 1:
        complete(rig, i, false);
        break;
    default:
        if (chance(rig, 2)) {
            post(rig, i);
        } else {
            complete(rig, i, true);
        }
    }
    if (chance(rig, 4) == 0) {
        tell(rig);
    }
    for (uint32_t n = 0; n < PAIRS; n++) {
        if (rig->pairs[n].failed && chance(rig, 8) == 0) {
            leave(rig, n);
        }
    }
    check(rig);
}

static void test_rules(void **state)
{
    static struct rig rig;
    (void)state;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        memset(&rig, 0, sizeof(rig));
        rig.random = seed;
        nic_initiators_init(&rig.shared, DEPTH);
        for (uint32_t i = 0; i < 1 + seed % INITIATORS_MAX; i++) {
            nic_initiators_add(&rig.shared, &rig.initiators[i]);
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            make(&rig, i);
        }
        for (uint32_t n = 0; n < STEPS / SEEDS; n++) {
            step(&rig);
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            leave(&rig, i);
        }
        assert_int_equal(length(&rig.shared.idle), rig.shared.count);
    }
}

/* However much one has to send, who waits is served when those have completed that were posted before it asked, and those that
 * were posted until the first of them did. */
static void test_busy_for_ever(void **state)
{
    struct rig rig = {.random = 1};
    (void)state;
    nic_initiators_init(&rig.shared, DEPTH);
    nic_initiators_add(&rig.shared, &rig.initiators[0]);
    for (uint32_t i = 0; i < PAIRS; i++) {
        make(&rig, i);
    }
    uint32_t turns[PAIRS] = {0};
    for (uint32_t n = 0; n < 1000; n++) {
        for (uint32_t i = 0; i < PAIRS; i++) {
            while (nic_send_room(&rig.pairs[i]) > 0 ||
                   nic_initiators_take(&rig.shared, &rig.dynamics[i])) {
                post(&rig, i);
            }
        }
        for (uint32_t i = 0; i < PAIRS; i++) { /* one, so that something is always under way */
            if (rig.pairs[i].posted != rig.pairs[i].completed) {
                rig.pairs[i].completed++;
                turns[i]++;
                nic_initiators_complete(&rig.shared, rig.dynamics[i].initiator);
                break;
            }
        }
        check(&rig);
        struct nic_queue_pair *pair;
        while ((pair = nic_initiators_granted(&rig.shared)) != NULL) {
            post(&rig, (uint32_t)(pair - rig.pairs));
        }
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        assert_in_range(turns[i], 1000 / PAIRS / 2, 1000 / PAIRS * 2);
    }
}

/* Who has waited and was not told yet loses nothing to who asks meanwhile. */
static void test_asks_meanwhile(void **state)
{
    struct rig rig = {0};
    (void)state;
    nic_initiators_init(&rig.shared, DEPTH);
    nic_initiators_add(&rig.shared, &rig.initiators[0]);
    for (uint32_t i = 0; i < PAIRS; i++) {
        make(&rig, i);
    }
    post(&rig, 0);
    assert_false(nic_initiators_take(&rig.shared, &rig.dynamics[1]));
    rig.pairs[0].completed++;
    nic_initiators_complete(&rig.shared, rig.dynamics[0].initiator);
    assert_false(nic_initiators_take(&rig.shared, &rig.dynamics[2]));
    assert_true(nic_initiators_take(&rig.shared, &rig.dynamics[1]));
    assert_ptr_equal(nic_initiators_granted(&rig.shared), &rig.pairs[1]);
    assert_true(nic_initiators_take(&rig.shared, &rig.dynamics[1]));
    assert_ptr_equal(nic_initiators_granted(&rig.shared), &rig.pairs[2]);
    check(&rig);
    assert_null(nic_initiators_granted(&rig.shared));
    assert_true(nic_initiators_take(&rig.shared, &rig.dynamics[0]));
    check(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_asks_meanwhile),
                                       cmocka_unit_test(test_busy_for_ever)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

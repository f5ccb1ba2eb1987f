/* test_trouble.c: cuts, faults, stalls, the watcher, and a peer that keeps no rule. */
#include "common.h"

#define SEEDS 200u

/* A WRITE from b to a on pair `pair`. */
static void post_back(struct fixture *f, uint32_t pair)
{
    const struct nic_transfer transfer = write_transfer(&f->b, &f->a, 0, 8, 77);

    OPERATIONS->post_write_immediate(f->b.queue_pairs[pair], &transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(f->b.queue_pairs[pair]);
}

/* ---- Cuts ------------------------------------------------------------------------------------ */

static void a_cut_ends_in_retry(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 2);

    (void)state;
    memory_fabric_options(f->fabric)->retry_steps = 300;
    memory_fabric_cut(f->b.queue_pairs[0]);
    post_write(f, 0, 0, 8, 1, 0);
    post_write(f, 0, 0, 8, 2, 0);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 299));
    assert_nothing(f->a.nic);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_FLUSHED, 2);
    assert_nothing(f->b.nic); /* hears nothing */
    assert_int_equal(f->b.written[0], 0);
    post_back(f, 0); /* until it sends */
    run_to_the_end(f, 1);
    assert_error(f->b.nic, f->b.queue_pairs[0], NIC_ERROR_RETRY, 1);
    post_write(f, 1, 0, 8, 3, NIC_POST_SIGNALED); /* others go on */
    ring(f, 1);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[1], 3, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[1], 1);
    fixture_destroy(f);
}

/* Wherever the cut falls: what was not acknowledged fails, whether or not it has landed. */
static void a_cut_takes_the_answers_with_it(void **state)
{
    uint32_t landed_but_failed = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        struct nic_completion completion;
        uint32_t sent = 0, received = 0, failed = 0;
        memory_fabric_options(f->fabric)->retry_steps = 100;
        for (uint32_t i = 0; i < 4; i++) {
            post_write(f, 0, 8 * i, 8, i, NIC_POST_SIGNALED);
            post_read(f, 0, 8 * i, 8, NIC_POST_SIGNALED);
        }
        ring(f, 0);
        for (uint64_t i = 0; i < seed % 60; i++) {
            memory_fabric_step(f->fabric);
        }
        memory_fabric_cut(seed % 2 ? f->a.queue_pairs[0] : f->b.queue_pairs[0]);
        run_to_the_end(f, seed);
        while (OPERATIONS->poll(f->b.nic, &completion, 1) == 1) {
            received += completion.kind == NIC_COMPLETION_RECEIVE;
        }
        while (OPERATIONS->poll(f->a.nic, &completion, 1) == 1) {
            const bool first = completion.kind == NIC_COMPLETION_ERROR && failed == 0;
            if (completion.kind == NIC_COMPLETION_SEND) {
                assert_int_equal(failed, 0);
            } else {
                assert_int_equal(completion.status, first ? NIC_ERROR_RETRY : NIC_ERROR_FLUSHED);
            }
            assert_int_equal(completion.completed, sent + failed + 1);
            sent += completion.kind == NIC_COMPLETION_SEND;
            failed += completion.kind == NIC_COMPLETION_ERROR;
        }
        assert_int_equal(sent + failed, 8);
        assert_true(received >= (sent + 1) / 2);
        assert_int_equal(received, counters(f)->writes);
        landed_but_failed += received > (sent + 1) / 2;
        fixture_destroy(f);
    }
    assert_true(landed_but_failed > SEEDS / 10);
}

/* Two waits for an answer that are not one: the time until RETRY starts anew. */
static void an_answer_that_is_lost_is_awaited_anew(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    struct memory_fabric_options *options = memory_fabric_options(f->fabric);
    struct nic_queue_pair *ours = create_queue_pair(f->a.nic);
    struct nic_queue_pair *theirs = create_queue_pair(f->b.nic);

    (void)state;
    options->retry_steps = 100;
    options->acknowledge_weight = 0;
    connect_one_way(ours, theirs);
    OPERATIONS->post_write_immediate(ours, &(struct nic_transfer){.immediate = 5}, 0);
    OPERATIONS->ring_doorbell(ours);
    assert_false(memory_fabric_run(f->fabric, 60));
    connect_one_way(theirs, ours);
    assert_false(memory_fabric_run(f->fabric, 200));
    assert_receive(f->b.nic, theirs, 5, 0);
    memory_fabric_cut(theirs); /* the answer is under way, and lost */
    options->acknowledge_weight = 1;
    assert_false(memory_fabric_run(f->fabric, 99));
    assert_nothing(f->a.nic);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, ours, NIC_ERROR_RETRY, 1);
    fixture_destroy(f);
}

static void a_nic_is_cut_with_all_it_has(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 3);
    struct nic_queue_pair *later, *peer;

    (void)state;
    memory_fabric_cut_nic(f->b.nic);
    for (uint32_t i = 0; i < 3; i++) {
        post_write(f, i, 0, 8, 1, 0);
        ring(f, i);
    }
    run_to_the_end(f, 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(poll_one(f->a.nic).status, NIC_ERROR_RETRY);
    }
    later = create_queue_pair(f->b.nic);
    peer = create_queue_pair(f->a.nic);
    connect_one_way(later, peer);
    connect_one_way(peer, later);
    OPERATIONS->post_write_immediate(peer, &(struct nic_transfer){0}, 0);
    OPERATIONS->ring_doorbell(peer);
    assert_false(memory_fabric_run(f->fabric, 500));
    OPERATIONS->close(f->b.nic); /* as a process that has gone */
    run_to_the_end(f, 1);
    assert_error(f->a.nic, peer, NIC_ERROR_RETRY, 1);
    fixture_destroy(f);
}

static void a_cut_in_immediate_mode_ends_after_polls(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_IMMEDIATE, 1);

    (void)state;
    memory_fabric_options(f->fabric)->retry_steps = 5;
    memory_fabric_cut(f->a.queue_pairs[0]);
    post_write(f, 0, 0, 8, 1, 0);
    ring(f, 0);
    for (int i = 0; i < 4; i++) {
        assert_nothing(i % 2 ? f->a.nic : f->b.nic); /* any nic's polls count */
    }
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    assert_int_equal(memory_fabric_step(f->fabric), MEMORY_STEP_QUIET);
    fixture_destroy(f);
}

/* ---- Faults and stalls ----------------------------------------------------------------------- */

static void check_kill(enum memory_mode mode)
{
    struct fixture *f = fixture_create(1, mode, 1);

    memory_fabric_options(f->fabric)->retry_steps = 20;
    memory_fabric_stall(f->a.queue_pairs[0], 1000);
    post_write(f, 0, 0, 8, 1, 0);
    post_write(f, 0, 0, 8, 2, 0);
    ring(f, 0);
    memory_fabric_kill(f->a.queue_pairs[0]);
    assert_false(f->a.queue_pairs[0]->failed); /* its owner does not know yet, and posts */
    post_write(f, 0, 0, 8, 3, 0);
    ring(f, 0);
    assert_true(memory_fabric_run(f->fabric, 2000));
    for (uint32_t i = 1; i <= 3; i++) {
        assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_FLUSHED, i);
    }
    post_write(f, 0, 0, 8, 4, 0); /* dropped */
    assert_int_equal(f->a.queue_pairs[0]->posted, 3);
    assert_nothing(f->b.nic);
    memory_fabric_stall(f->a.queue_pairs[0], 0);
    post_back(f, 0);
    assert_true(memory_fabric_run(f->fabric, 2000));
    assert_error(f->b.nic, f->b.queue_pairs[0], NIC_ERROR_RETRY, 1);
    fixture_destroy(f);
}

static void a_killed_queue_pair_flushes(void **state)
{
    (void)state;
    check_kill(MEMORY_SCHEDULED);
    check_kill(MEMORY_IMMEDIATE);
}

static void check_stall(enum memory_mode mode, bool of_sender)
{
    struct fixture *f = fixture_create(1, mode, 1);

    memory_fabric_options(f->fabric)->retry_steps = 10;
    memory_fabric_stall(of_sender ? f->a.queue_pairs[0] : f->b.queue_pairs[0], 500);
    post_write(f, 0, 0, 8, 1, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 490));
    assert_int_equal(counters(f)->writes, 0);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    fixture_destroy(f);
}

static void a_stall_is_no_error(void **state)
{
    (void)state;
    check_stall(MEMORY_SCHEDULED, true);
    check_stall(MEMORY_SCHEDULED, false);
    check_stall(MEMORY_IMMEDIATE, true);
    check_stall(MEMORY_IMMEDIATE, false);
}

static void a_stall_holds_completions_back(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);

    (void)state;
    memory_fabric_options(f->fabric)->receive_weight = 0;
    memory_fabric_options(f->fabric)->acknowledge_weight = 0;
    post_write(f, 0, 0, 8, 1, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 1000));
    memory_fabric_options(f->fabric)->receive_weight = 1;
    memory_fabric_options(f->fabric)->acknowledge_weight = 1;
    memory_fabric_stall(f->b.queue_pairs[0], 300);
    assert_false(memory_fabric_run(f->fabric, 290));
    assert_nothing(f->a.nic);
    assert_nothing(f->b.nic);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    fixture_destroy(f);
}

/* ---- The watcher ----------------------------------------------------------------------------- */

struct watch {
    struct fixture *fixture;
    uint8_t seen[RING_BYTES];
};

static void watch_landing(void *argument, struct nic *target, uint32_t number, uint64_t address,
                          uint32_t bytes)
{
    struct watch *watch = argument;
    const uint64_t offset = address - (uintptr_t)watch->fixture->b.written;

    assert_ptr_equal(target, watch->fixture->b.nic);
    assert_int_equal(number, watch->fixture->b.queue_pairs[0]->number);
    for (uint64_t i = offset; i < offset + bytes; i++) {
        assert_int_equal(watch->fixture->b.written[i], 0); /* before it lands */
        watch->seen[i]++;
    }
}

static void the_watcher_sees_each_byte_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const enum memory_mode mode = seed % 8 ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE;
        struct fixture *f = fixture_create(seed, mode, 1);
        struct watch watch = {.fixture = f};
        memory_fabric_watch(f->fabric, watch_landing, &watch);
        memset(f->a.source, 1, RING_BYTES);
        post_write(f, 0, 3, 500, 1, 0);
        post_write(f, 0, 503, 1, 2, 0);
        post_write(f, 0, 504, 0, 3, 0);
        ring(f, 0);
        run_to_the_end(f, seed);
        for (uint32_t i = 0; i < RING_BYTES; i++) {
            assert_int_equal(watch.seen[i], i >= 3 && i < 504);
        }
        fixture_destroy(f);
    }
}

/* ---- A hostile peer -------------------------------------------------------------------------- */

static void check_hostile(enum memory_mode mode)
{
    struct fixture *f = fixture_create(1, mode, 2);
    const uint32_t number = f->b.queue_pairs[0]->number;
    const uint32_t write_key = f->b.written_memory.remote_key;
    const uint32_t read_key = f->b.read_memory.remote_key;
    const uint64_t at = (uintptr_t)f->b.written;
    char bytes[9] = "";

    assert_int_equal(memory_fabric_write_immediate(f->fabric, number, at, write_key, 6, "hello", 9),
                     NIC_ERROR_NONE);
    assert_string_equal((char *)f->b.written, "hello");
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 9, 6);
    assert_int_equal(memory_fabric_write(f->fabric, number, at, write_key, 4, "bye"),
                     NIC_ERROR_NONE);
    assert_string_equal((char *)f->b.written, "bye");
    memcpy(f->b.read, "mailbox", 8);
    assert_int_equal(
        memory_fabric_read(f->fabric, number, (uintptr_t)f->b.read, read_key, 8, bytes),
        NIC_ERROR_NONE);
    assert_string_equal(bytes, "mailbox");

    assert_int_equal(memory_fabric_write(f->fabric, 12345, at, write_key, 4, "abc"),
                     NIC_ERROR_RETRY);
    for (uint32_t i = 1; i < RECEIVES; i++) {
        assert_int_equal(memory_fabric_write_immediate(f->fabric, number, 0, 0, 0, NULL, i),
                         NIC_ERROR_NONE);
    }
    assert_int_equal(memory_fabric_write_immediate(f->fabric, number, at, write_key, 2, "x", 9),
                     NIC_ERROR_RNR);
    assert_int_equal(counters(f)->receiver_not_ready, 0);
    run_to_the_end(f, 1);
    assert_int_equal(OPERATIONS->poll(f->b.nic, (struct nic_completion[RECEIVES]){{0}}, RECEIVES),
                     RECEIVES - 1);

    assert_int_equal(memory_fabric_write(f->fabric, number, at, read_key, 4, "abc"),
                     NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(memory_fabric_write(f->fabric, number, at, write_key, 4, "abc"),
                     NIC_ERROR_RETRY); /* dead */
    assert_string_equal((char *)f->b.written, "x");
    assert_int_equal(
        memory_fabric_read(f->fabric, f->b.queue_pairs[1]->number, at, write_key, 1, bytes),
        NIC_ERROR_REMOTE_ACCESS);
    post_back(f, 1);
    run_to_the_end(f, 1);
    assert_error(f->b.nic, f->b.queue_pairs[1], NIC_ERROR_FLUSHED, 1);
    assert_int_equal(counters(f)->remote_access_errors, 0); /* nobody's fault but the test's */
    fixture_destroy(f);
}

static void a_hostile_peer_is_bound_by_keys_alone(void **state)
{
    (void)state;
    check_hostile(MEMORY_IMMEDIATE);
    check_hostile(MEMORY_SCHEDULED);
}

/* ---- Everything at once ---------------------------------------------------------------------- */

/* Random posts and random trouble. In the end only unsignaled WQEs have no completion: those since
 * the last signaled one, on a dead queue pair too if they had been acknowledged before it died.
 * Each receive that was used is polled once. */
static void chaos_act(struct fixture *f, struct random_generator *random)
{
    const uint32_t pair = random_below(random, f->pairs);
    struct side *side = random_percent(random, 50) ? &f->a : &f->b;
    struct side *other = side == &f->a ? &f->b : &f->a;
    struct nic_queue_pair *queue_pair = side->queue_pairs[pair];
    struct nic_transfer transfer = write_transfer(side, other, 0, random_below(random, 300), 0);
    const uint32_t action = random_below(random, 1000);

    if (action == 0) {
        memory_fabric_cut(queue_pair);
    } else if (action == 1) {
        memory_fabric_kill(queue_pair);
    } else if (action == 2) {
        OPERATIONS->queue_pair_fail(queue_pair);
    } else if (action < 6) {
        memory_fabric_stall(queue_pair, random_below(random, 200));
    } else if (action == 6) {
        transfer.remote_key = 0;
    } else if (action == 7) {
        transfer.local_key = 0;
    } else if (action < 12) {
        memory_fabric_set_link(side->nic, action != 8);
    }
    if (action > 500 || nic_send_room(queue_pair) == 0) {
        return;
    }
    if (action % 4 == 0) {
        OPERATIONS->post_write(queue_pair, &transfer, 0);
    } else {
        OPERATIONS->post_write_immediate(queue_pair, &transfer, 0);
    }
    OPERATIONS->ring_doorbell(queue_pair);
}

static void chaos_poll(struct fixture *f, struct side *side, uint64_t seed, uint32_t *receives)
{
    struct nic_completion completion;
    struct nic_queue_pair *queue_pair;

    while (OPERATIONS->poll(side->nic, &completion, 1) == 1) {
        queue_pair = memory_fabric_find(f->fabric, completion.queue_pair_number);
        if (!queue_pair || queue_pair->nic != side->nic) {
            fail_msg("seed %llu: completion of nobody", (unsigned long long)seed);
        }
        if (queue_pair->completed > queue_pair->posted) {
            fail_msg("seed %llu: more completed than posted", (unsigned long long)seed);
        }
        *receives += completion.kind == NIC_COMPLETION_RECEIVE;
    }
    OPERATIONS->refill(side->nic);
}

static void chaos_run(uint64_t seed, enum memory_mode mode)
{
    struct fixture *f = fixture_create(seed, mode, PAIRS_MAX);
    struct random_generator random;
    uint32_t receives = 0;

    random_seed(&random, seed);
    memory_fabric_options(f->fabric)->retry_steps = 200;
    for (uint32_t i = 0; i < 3000; i++) {
        chaos_act(f, &random);
        memory_fabric_step(f->fabric);
        if (random_percent(&random, 20)) {
            chaos_poll(f, &f->a, seed, &receives);
            chaos_poll(f, &f->b, seed, &receives);
        }
    }
    while (!memory_fabric_run(f->fabric, 1000)) { /* without a receive the last ones wait */
        chaos_poll(f, &f->a, seed, &receives);
        chaos_poll(f, &f->b, seed, &receives);
        if (counters(f)->steps > STEPS_MAX) {
            fail_msg("seed %llu: still not quiet", (unsigned long long)seed);
        }
    }
    chaos_poll(f, &f->a, seed, &receives);
    chaos_poll(f, &f->b, seed, &receives);
    for (uint32_t i = 0; i < 2 * f->pairs; i++) {
        struct side *side = i % 2 ? &f->a : &f->b;
        const struct nic_queue_pair *queue_pair = side->queue_pairs[i / 2];
        if (queue_pair->posted - queue_pair->completed >= side->nic->signal_interval) {
            fail_msg("seed %llu: queue pair %u: posted %u, completed %u", (unsigned long long)seed,
                     queue_pair->number, queue_pair->posted, queue_pair->completed);
        }
    }
    assert_true(receives <= counters(f)->writes);
    assert_int_equal(f->a.nic->receives_posted, RECEIVES);
    assert_int_equal(counters(f)->send_overflows + counters(f)->receive_overflows, 0);
    fixture_destroy(f);
}

static void chaos_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        chaos_run(seed, MEMORY_SCHEDULED);
        chaos_run(seed, MEMORY_IMMEDIATE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_ends_in_retry),
        cmocka_unit_test(a_cut_takes_the_answers_with_it),
        cmocka_unit_test(an_answer_that_is_lost_is_awaited_anew),
        cmocka_unit_test(a_nic_is_cut_with_all_it_has),
        cmocka_unit_test(a_cut_in_immediate_mode_ends_after_polls),
        cmocka_unit_test(a_killed_queue_pair_flushes),
        cmocka_unit_test(a_stall_is_no_error),
        cmocka_unit_test(a_stall_holds_completions_back),
        cmocka_unit_test(the_watcher_sees_each_byte_once),
        cmocka_unit_test(a_hostile_peer_is_bound_by_keys_alone),
        cmocka_unit_test(chaos_loses_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic trouble", tests, NULL, NULL);
}

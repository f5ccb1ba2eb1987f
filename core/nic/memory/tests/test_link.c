/* test_link.c: a link that goes down and comes back: what goes on, what fails, and what is done twice
 * (nothing). */
#include "common.h"

#define SEEDS 400u

static void down_for(struct fixture *f, struct nic *nic, uint64_t steps)
{
    memory_fabric_set_link(nic, false);
    memory_fabric_run(f->fabric, steps);
    memory_fabric_set_link(nic, true);
}

static void post_plain(struct fixture *f, uint32_t pair, uint32_t offset, uint32_t bytes)
{
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, offset, bytes, 0);

    OPERATIONS->post_write(f->a.queue_pairs[pair], &transfer, NIC_POST_SIGNALED);
}

/* From a new queue pair of a's to a new one of b's. */
static void expect_new_ones_work(struct fixture *f)
{
    struct nic_queue_pair *ours = create_queue_pair(f->a.nic);
    struct nic_queue_pair *theirs = create_queue_pair(f->b.nic);
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, 64, 8, 99);

    connect_one_way(ours, theirs);
    connect_one_way(theirs, ours);
    OPERATIONS->post_write_immediate(ours, &transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(ours);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, theirs, 99, 8);
    assert_sent(f->a.nic, ours, 1);
}

/* ---- Back in time ---------------------------------------------------------------------------- */

static void check_back_in_time(enum memory_mode mode, bool of_sender)
{
    struct fixture *f = fixture_create(1, mode, 2);
    struct nic *nic = of_sender ? f->a.nic : f->b.nic;

    memory_fabric_options(f->fabric)->retry_steps = 300;
    memory_fabric_set_link(nic, false);
    post_write(f, 0, 0, 8, 1, NIC_POST_SIGNALED);
    post_write(f, 0, 8, 8, 2, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 250));
    assert_int_equal(counters(f)->writes, 0);
    memory_fabric_set_link(nic, true);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 8);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 2, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 2);
    post_write(f, 1, 0, 8, 3, NIC_POST_SIGNALED); /* had nothing under way */
    ring(f, 1);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[1], 3, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[1], 1);
    expect_new_ones_work(f);
    fixture_destroy(f);
}

static void what_comes_back_in_time_goes_on(void **state)
{
    (void)state;
    check_back_in_time(MEMORY_SCHEDULED, true);
    check_back_in_time(MEMORY_SCHEDULED, false);
    check_back_in_time(MEMORY_IMMEDIATE, true);
    check_back_in_time(MEMORY_IMMEDIATE, false);
}

static void queue_pairs_made_meanwhile_work_afterwards(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 0);
    struct nic_queue_pair *ours, *theirs;

    (void)state;
    memory_fabric_set_link(f->b.nic, false);
    ours = create_queue_pair(f->a.nic);
    theirs = create_queue_pair(f->b.nic);
    connect_one_way(ours, theirs);
    connect_one_way(theirs, ours);
    OPERATIONS->post_write_immediate(ours, &(struct nic_transfer){.immediate = 7}, 0);
    OPERATIONS->ring_doorbell(ours);
    assert_false(memory_fabric_run(f->fabric, 500));
    assert_nothing(f->b.nic);
    memory_fabric_set_link(f->b.nic, true);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, theirs, 7, 0);
    fixture_destroy(f);
}

/* ---- Too late -------------------------------------------------------------------------------- */

static void check_too_late(enum memory_mode mode)
{
    struct fixture *f = fixture_create(1, mode, 2);
    const struct nic_transfer back = write_transfer(&f->b, &f->a, 0, 8, 77);

    memory_fabric_options(f->fabric)->retry_steps = 100;
    memory_fabric_set_link(f->b.nic, false);
    post_write(f, 0, 0, 8, 1, 0);
    post_write(f, 0, 0, 8, 2, 0);
    ring(f, 0);
    run_to_the_end(f, 1);
    memory_fabric_set_link(f->b.nic, true);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_FLUSHED, 2);
    assert_nothing(f->b.nic); /* knows nothing of it */
    assert_false(f->b.queue_pairs[0]->failed);
    OPERATIONS->post_write_immediate(f->b.queue_pairs[0], &back, 0); /* until it sends */
    OPERATIONS->ring_doorbell(f->b.queue_pairs[0]);
    run_to_the_end(f, 1);
    assert_error(f->b.nic, f->b.queue_pairs[0], NIC_ERROR_RETRY, 1);
    post_write(f, 1, 0, 8, 3, NIC_POST_SIGNALED); /* idle meanwhile */
    ring(f, 1);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[1], 3, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[1], 1);
    expect_new_ones_work(f);
    fixture_destroy(f);
}

static void what_comes_back_too_late_has_failed(void **state)
{
    (void)state;
    check_too_late(MEMORY_SCHEDULED);
    check_too_late(MEMORY_IMMEDIATE);
}

static void a_cut_is_not_mended(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);

    (void)state;
    memory_fabric_cut(f->b.queue_pairs[0]);
    memory_fabric_set_link(f->b.nic, false);
    memory_fabric_set_link(f->b.nic, true);
    post_write(f, 0, 0, 8, 1, 0);
    ring(f, 0);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    fixture_destroy(f);
}

/* ---- Wherever it falls ----------------------------------------------------------------------- */

struct landings {
    struct fixture *fixture;
    uint8_t count[RING_BYTES];
};

static void count_landing(void *argument, struct nic *target, uint32_t number, uint64_t address,
                          uint32_t bytes)
{
    struct landings *landings = argument;
    const uint64_t offset = address - (uintptr_t)landings->fixture->b.written;

    (void)target;
    (void)number;
    for (uint64_t i = offset; i < offset + bytes; i++) {
        landings->count[i]++;
    }
}

/* Eight WQEs, 0, 2, ... plain WRITEs or READs and 1, 3, ... WRITEs with immediate, all to different
 * places; the link goes down at some moment, for some time. */
static void check_once(uint64_t seed, uint32_t *done_but_failed, uint32_t *mended)
{
    struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
    struct landings landings = {.fixture = f};
    struct nic_completion completion;
    uint32_t sent = 0, received = 0, failed = 0;

    memory_fabric_options(f->fabric)->retry_steps = 100;
    memory_fabric_watch(f->fabric, count_landing, &landings);
    memset(f->a.source, 1, RING_BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        if (seed % 3 == 0) {
            post_read(f, 0, 100 * i, 40, NIC_POST_SIGNALED);
        } else {
            post_plain(f, 0, 200 * i, 100);
        }
        post_write(f, 0, 200 * i + 100, 50, i, NIC_POST_SIGNALED);
    }
    ring(f, 0);
    for (uint64_t i = 0; i < seed % 61; i++) {
        memory_fabric_step(f->fabric);
    }
    down_for(f, seed % 2 ? f->a.nic : f->b.nic, seed % 5 * 50);
    run_to_the_end(f, seed);
    for (; OPERATIONS->poll(f->b.nic, &completion, 1) == 1; received++) {
        if (completion.kind != NIC_COMPLETION_RECEIVE || completion.immediate != received) {
            fail_msg("seed %llu: receive %u", (unsigned long long)seed, received);
        }
        for (uint32_t i = 0; i < 200 * received + 150; i++) { /* all before it is there */
            if (landings.count[i] != (i % 200 < 150 && (seed % 3 != 0 || i % 200 >= 100))) {
                fail_msg("seed %llu: byte %u landed %u times", (unsigned long long)seed, i,
                         landings.count[i]);
            }
        }
    }
    for (uint32_t i = 0; i < RING_BYTES; i++) {
        if (landings.count[i] > 1) {
            fail_msg("seed %llu: byte %u landed twice", (unsigned long long)seed, i);
        }
    }
    while (OPERATIONS->poll(f->a.nic, &completion, 1) == 1) {
        if (completion.kind == NIC_COMPLETION_SEND) {
            sent = completion.completed;
        } else if (completion.status != (failed++ ? NIC_ERROR_FLUSHED : NIC_ERROR_RETRY)) {
            fail_msg("seed %llu: status %u", (unsigned long long)seed, completion.status);
        }
    }
    if (sent + failed != 8) {
        fail_msg("seed %llu: %u sent, %u failed", (unsigned long long)seed, sent, failed);
    }
    assert_true(received >= sent / 2);
    assert_int_equal(received, counters(f)->writes);
    *done_but_failed += failed && received > sent / 2;
    *mended += !failed;
    fixture_destroy(f);
}

static void nothing_is_done_twice(void **state)
{
    uint32_t done_but_failed = 0, mended = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        check_once(seed, &done_but_failed, &mended);
    }
    assert_true(done_but_failed > SEEDS / 50);
    assert_true(mended > SEEDS / 4);
}

/* Executed, and its acknowledgement lost: the peer says it again, if it is still there. */
static void check_answer_lost(bool destroyed)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);

    memory_fabric_options(f->fabric)->retry_steps = 100;
    memory_fabric_options(f->fabric)->acknowledge_weight = 0;
    post_write(f, 0, 0, 8, 5, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 1000));
    assert_receive(f->b.nic, f->b.queue_pairs[0], 5, 8);
    down_for(f, f->b.nic, 10);
    memory_fabric_options(f->fabric)->acknowledge_weight = 1;
    if (destroyed) {
        OPERATIONS->queue_pair_destroy(f->b.queue_pairs[0]);
    }
    run_to_the_end(f, 1);
    if (destroyed) {
        assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    } else {
        assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    }
    assert_nothing(f->b.nic);
    fixture_destroy(f);
}

static void a_lost_answer_is_given_again(void **state)
{
    (void)state;
    check_answer_lost(false);
    check_answer_lost(true);
}

/* Who refuses dies of it, so nobody is there to refuse again. */
static void a_lost_refusal_becomes_silence(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 8, 1);

    (void)state;
    memory_fabric_options(f->fabric)->retry_steps = 100;
    memory_fabric_options(f->fabric)->acknowledge_weight = 0;
    transfer.remote_key = f->b.read_memory.remote_key;
    OPERATIONS->post_write(f->a.queue_pairs[0], &transfer, 0);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 1000));
    assert_int_equal(counters(f)->remote_access_errors, 1);
    down_for(f, f->b.nic, 10);
    memory_fabric_options(f->fabric)->acknowledge_weight = 1;
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    fixture_destroy(f);
}

/* ---- Memory as it is by then ----------------------------------------------------------------- */

static void a_payload_is_fetched_again(void **state)
{
    uint32_t mixed = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        uint32_t old = 0, new = 0;
        memset(f->a.source, 1, RING_BYTES);
        post_plain(f, 0, 0, 500);
        ring(f, 0);
        for (uint64_t i = 0; i < seed % 8; i++) {
            memory_fabric_step(f->fabric);
        }
        memory_fabric_set_link(f->b.nic, false);
        memset(f->a.source, 2, RING_BYTES);
        memory_fabric_set_link(f->b.nic, true);
        run_to_the_end(f, seed);
        for (uint32_t i = 0; i < 500; i++) {
            old += f->b.written[i] == 1;
            new += f->b.written[i] == 2;
        }
        assert_int_equal(old + new, 500);
        mixed += old > 0 && new > 0;
        fixture_destroy(f);
    }
    assert_true(mixed > SEEDS / 20);
}

static void a_read_is_answered_anew(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);

    (void)state;
    memory_fabric_options(f->fabric)->acknowledge_weight = 0;
    memset(f->b.read, 1, 64);
    post_read(f, 0, 0, 64, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 500));
    assert_int_equal(counters(f)->reads, 1);
    memset(f->b.read, 2, 64);
    down_for(f, f->a.nic, 10);
    memory_fabric_options(f->fabric)->acknowledge_weight = 1;
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(f->a.landing[i], 2);
    }
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_back_in_time_goes_on),
        cmocka_unit_test(queue_pairs_made_meanwhile_work_afterwards),
        cmocka_unit_test(what_comes_back_too_late_has_failed),
        cmocka_unit_test(a_cut_is_not_mended),
        cmocka_unit_test(nothing_is_done_twice),
        cmocka_unit_test(a_lost_answer_is_given_again),
        cmocka_unit_test(a_lost_refusal_becomes_silence),
        cmocka_unit_test(a_payload_is_fetched_again),
        cmocka_unit_test(a_read_is_answered_anew),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic link", tests, NULL, NULL);
}

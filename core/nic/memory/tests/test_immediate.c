/* test_immediate.c: the rules of a reliable connection, in immediate mode, where each is easy to
 * see. */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state)
{
    *state = fixture_create(1, MEMORY_IMMEDIATE, 2);
    return 0;
}

static int teardown(void **state)
{
    fixture_destroy(*state);
    return 0;
}

/* ---- What works ------------------------------------------------------------------------------ */

static void write_of_no_bytes_needs_no_keys(void **state)
{
    struct fixture *f = *state;
    const struct nic_transfer transfer = {.immediate = 7};

    OPERATIONS->post_write_immediate(f->a.queue_pairs[0], &transfer, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 7, 0);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
}

static void a_queue_pair_can_be_its_own_peer(void **state)
{
    struct fixture *f = *state;
    struct nic_queue_pair *loop = create_queue_pair(f->a.nic);
    struct nic_transfer transfer = write_transfer(&f->a, &f->a, 0, 8, 3);

    connect_one_way(loop, loop);
    OPERATIONS->post_write_immediate(loop, &transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(loop);
    assert_int_equal(OPERATIONS->poll(f->a.nic, (struct nic_completion[2]){{0}}, 2), 2);
    transfer.remote_key = 0;
    OPERATIONS->post_write_immediate(loop, &transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(loop);
    assert_error(f->a.nic, loop, NIC_ERROR_REMOTE_ACCESS, 2);
}

static void inline_bytes_are_taken_at_post(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic_transfer transfer;
    struct side a, b;

    (void)state;
    memory_fabric_options(fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(fabric)->inline_bytes_max = 220;
    side_open(&a, fabric);
    side_open(&b, fabric);
    a.queue_pairs[0] = create_queue_pair(a.nic);
    b.queue_pairs[0] = create_queue_pair(b.nic);
    connect_one_way(a.queue_pairs[0], b.queue_pairs[0]);
    connect_one_way(b.queue_pairs[0], a.queue_pairs[0]);
    memset(a.source, 1, RING_BYTES);
    transfer = write_transfer(&a, &b, 0, 220, 1);
    transfer.local_key = 0; /* not looked at */
    OPERATIONS->post_write_immediate(a.queue_pairs[0], &transfer, NIC_POST_SIGNALED);
    transfer = write_transfer(&a, &b, 1000, 221, 2);
    OPERATIONS->post_write_immediate(a.queue_pairs[0], &transfer, NIC_POST_SIGNALED);
    memset(a.source, 2, RING_BYTES);
    OPERATIONS->ring_doorbell(a.queue_pairs[0]);
    assert_int_equal(b.written[0], 1);
    assert_int_equal(b.written[219], 1);
    assert_int_equal(b.written[1000], 2);
    assert_int_equal(a.queue_pairs[0]->stats.inline_wqes, 1);
    memory_fabric_destroy(fabric);
}

/* ---- Receives, peers and completion queues that are not there -------------------------------- */

static void without_a_receive_it_waits(void **state)
{
    struct fixture *f = *state;

    f->a.source[0] = 1;
    for (uint32_t i = 0; i < RECEIVES + 1; i++) {
        post_write(f, i % 2, i, 1, i, NIC_POST_SIGNALED);
        ring(f, i % 2);
        if (i < RECEIVES) {
            assert_sent(f->a.nic, f->a.queue_pairs[i % 2], i / 2 + 1);
        }
    }
    assert_int_equal(counters(f)->receiver_not_ready, 1);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        assert_receive(f->b.nic, f->b.queue_pairs[i % 2], i, 1);
    }
    assert_nothing(f->b.nic);
    OPERATIONS->refill(f->b.nic);
    assert_receive(f->b.nic, f->b.queue_pairs[0], RECEIVES, 1); /* tried again at poll */
    assert_int_equal(counters(f)->receiver_not_ready, 1);
}

static void without_a_receive_it_fails_if_wanted(void **state)
{
    struct fixture *f = *state;

    memory_fabric_options(f->fabric)->receiver_not_ready_fails = true;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        post_write(f, 0, 0, 1, i, NIC_POST_SIGNALED);
        ring(f, 0);
        assert_sent(f->a.nic, f->a.queue_pairs[0], i + 1);
    }
    post_write(f, 0, 0, 1, 0, 0);
    ring(f, 0);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RNR, RECEIVES + 1);
    assert_int_equal(counters(f)->receiver_not_ready, 1);
}

static void a_peer_that_has_not_joined_yet_is_awaited(void **state)
{
    struct fixture *f = *state;
    struct nic_queue_pair *ours = create_queue_pair(f->a.nic);
    struct nic_queue_pair *theirs = create_queue_pair(f->b.nic);
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 8, 5);

    connect_one_way(ours, theirs);
    OPERATIONS->post_write_immediate(ours, &transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(ours);
    for (int i = 0; i < 100; i++) {
        assert_nothing(f->a.nic);
    }
    connect_one_way(theirs, ours);
    assert_receive(f->b.nic, theirs, 5, 8);
    assert_sent(f->a.nic, ours, 1);
}

static void a_peer_that_talks_to_another_is_not_reached(void **state)
{
    struct fixture *f = *state;
    struct nic_queue_pair *ours = create_queue_pair(f->a.nic);
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 8, 5);

    memory_fabric_options(f->fabric)->retry_steps = 10;
    connect_one_way(ours, f->b.queue_pairs[0]);
    OPERATIONS->post_write_immediate(ours, &transfer, 0);
    OPERATIONS->post_write_immediate(ours, &transfer, 0);
    OPERATIONS->ring_doorbell(ours);
    for (int i = 0; i < 9; i++) {
        assert_nothing(f->a.nic);
    }
    assert_error(f->a.nic, ours, NIC_ERROR_RETRY, 1);
    assert_error(f->a.nic, ours, NIC_ERROR_FLUSHED, 2);
    assert_nothing(f->b.nic);
}

static void a_reused_number_is_someone_else(void **state)
{
    struct fixture *f = *state;
    struct nic_queue_pair *gone = f->b.queue_pairs[0], *again;
    const uint32_t number = gone->number;

    memory_fabric_options(f->fabric)->reuse_numbers = true;
    memory_fabric_options(f->fabric)->retry_steps = 3;
    OPERATIONS->queue_pair_destroy(gone);
    again = create_queue_pair(f->b.nic);
    assert_int_equal(again->number, number);
    connect_one_way(again, f->a.queue_pairs[0]);
    post_write(f, 0, 0, 8, 1, 0);
    ring(f, 0);
    assert_nothing(f->a.nic);
    assert_nothing(f->a.nic);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_RETRY, 1);
    assert_nothing(f->b.nic);
}

static void destroy_forgets_completions(void **state)
{
    struct fixture *f = *state;
    struct nic_queue_pair *again;

    memory_fabric_options(f->fabric)->reuse_numbers = true;
    for (uint32_t i = 0; i < 4; i++) {
        post_write(f, i % 2, 0, 8, i, NIC_POST_SIGNALED);
        ring(f, i % 2);
    }
    OPERATIONS->queue_pair_destroy(f->b.queue_pairs[0]);
    OPERATIONS->queue_pair_destroy(f->a.queue_pairs[0]);
    again = create_queue_pair(f->b.nic);
    assert_true(again->number < f->b.queue_pairs[1]->number);
    assert_int_equal(f->b.nic->receives_posted, RECEIVES - 2);
    assert_receive(f->b.nic, f->b.queue_pairs[1], 1, 8);
    assert_receive(f->b.nic, f->b.queue_pairs[1], 3, 8);
    assert_nothing(f->b.nic);
    assert_sent(f->a.nic, f->a.queue_pairs[1], 1);
    assert_sent(f->a.nic, f->a.queue_pairs[1], 2);
    assert_nothing(f->a.nic);
    assert_int_equal(f->b.nic->receives_posted, RECEIVES - 4);
}

static void a_full_completion_queue_is_counted(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic_options options = {
        .send_depth = 8, .send_completion_depth = 3, .signal_interval = 1};
    struct nic_queue_pair *loop;
    struct nic *nic;

    (void)state;
    memory_fabric_options(fabric)->mode = MEMORY_IMMEDIATE;
    assert_int_equal(memory_nic_open(fabric, &options, &nic, NULL), CRPC_OK);
    OPERATIONS->refill(nic);
    loop = create_queue_pair(nic);
    connect_one_way(loop, loop);
    for (int i = 0; i < 4; i++) {
        OPERATIONS->post_write_immediate(loop, &(struct nic_transfer){0}, 0);
    }
    OPERATIONS->ring_doorbell(loop);
    assert_int_equal(memory_fabric_counters(fabric)->send_overflows, 1);
    assert_int_equal(memory_fabric_counters(fabric)->receive_overflows, 0);
    assert_int_equal(OPERATIONS->poll(nic, (struct nic_completion[9]){{0}}, 9), 7);
    memory_fabric_destroy(fabric);
}

static void poll_gives_no_more_than_asked(void **state)
{
    struct fixture *f = *state;
    struct nic_completion completions[8];

    for (uint32_t i = 0; i < 7; i++) {
        post_write(f, 0, 0, 8, i, 0);
    }
    ring(f, 0);
    assert_int_equal(OPERATIONS->poll(f->b.nic, completions, 4), 4);
    assert_int_equal(completions[3].immediate, 3);
    assert_int_equal(f->b.nic->receives_posted, RECEIVES - 4);
    assert_int_equal(OPERATIONS->poll(f->b.nic, completions, 0), 0);
    assert_int_equal(OPERATIONS->poll(f->b.nic, completions, 8), 3);
    assert_int_equal(completions[0].immediate, 4);
}

static void flushing_may_skip_the_unsignaled(void **state)
{
    struct fixture *f = *state;

    memory_fabric_options(f->fabric)->flush_signaled_only = true;
    for (uint32_t i = 0; i < 6; i++) {
        post_write(f, 0, 0, 8, i, i == 2 ? NIC_POST_SIGNALED : 0);
    }
    OPERATIONS->queue_pair_fail(f->a.queue_pairs[0]);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_FLUSHED, 3);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_FLUSHED, 6);
    assert_nothing(f->a.nic);
}

/* ---- What aborts ----------------------------------------------------------------------------- */

static void assert_aborts(struct fixture *f, void (*act)(struct fixture *))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failure */
        fclose(stderr);
        act(f);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void overrun(struct fixture *f)
{
    for (uint32_t i = 0; i <= DEPTH; i++) {
        post_write(f, 0, 0, 1, 0, 0);
    }
}

static void post_unconnected(struct fixture *f)
{
    OPERATIONS->post_read(create_queue_pair(f->a.nic), &(struct nic_transfer){0}, 0);
}

static void deregister_twice(struct fixture *f)
{
    struct nic_keys copy = f->a.source_memory;

    OPERATIONS->memory_deregister(f->a.nic, &f->a.source_memory);
    OPERATIONS->memory_deregister(f->a.nic, &copy);
}

static void broken_contracts_abort(void **state)
{
    assert_aborts(*state, overrun);
    assert_aborts(*state, post_unconnected);
    assert_aborts(*state, deregister_twice);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(write_of_no_bytes_needs_no_keys),
        TEST(a_queue_pair_can_be_its_own_peer),
        cmocka_unit_test(inline_bytes_are_taken_at_post),
        TEST(without_a_receive_it_waits),
        TEST(without_a_receive_it_fails_if_wanted),
        TEST(a_peer_that_has_not_joined_yet_is_awaited),
        TEST(a_peer_that_talks_to_another_is_not_reached),
        TEST(a_reused_number_is_someone_else),
        TEST(destroy_forgets_completions),
        cmocka_unit_test(a_full_completion_queue_is_counted),
        TEST(poll_gives_no_more_than_asked),
        TEST(flushing_may_skip_the_unsignaled),
        TEST(broken_contracts_abort),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic immediate", tests, NULL, NULL);
}

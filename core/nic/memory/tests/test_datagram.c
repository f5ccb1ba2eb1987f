/* test_datagram.c: what the in-memory NIC adds to the contract of queues for datagrams: loss, and what is left. */
#include "common.h"

#include "nic/queue.h"

#define KEY 7u
#define PLACES 16u

struct world {
    struct memory_fabric *fabric;
    struct nic *nics[2];
    struct nic_queue *queues[2];
    struct nic_target *target; /* of the first, for the second */
    struct nic_keys keys;      /* of the second */
    uint8_t memory[PLACES * 64];
};

static const struct nic_queue_operations *queues_of(const struct nic *nic)
{
    return nic->operations->queues;
}

static void world_open(struct world *w, enum memory_mode mode)
{
    const struct nic_options options = {.receive_depth = 8, .send_depth = 8, .signal_interval = 4};
    const struct nic_queue_options queue = {.kind = NIC_QUEUE_UD,
                                            .sends = 16,
                                            .send_pieces = 1,
                                            .inline_bytes = 8,
                                            .receives = PLACES,
                                            .receive_pieces = 1,
                                            .queue_key = KEY};
    struct nic_target_options to = {.kind = NIC_QUEUE_UD, .queue_key = KEY};
    crpc_error error = {0};

    w->fabric = memory_fabric_create(1);
    memory_fabric_options(w->fabric)->mode = mode;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(memory_nic_open(w->fabric, &options, &w->nics[i], &error), CRPC_OK);
        assert_int_equal(
            queues_of(w->nics[i])->create(w->nics[i], NULL, &queue, &w->queues[i], &error),
            CRPC_OK);
    }
    OPERATIONS->queue_pair_address(w->queues[1]->pair, &to.address);
    assert_int_equal(
        queues_of(w->nics[0])->target_create(w->nics[0], NULL, &to, &w->target, &error), CRPC_OK);
    assert_int_equal(OPERATIONS->memory_register(w->nics[1], NULL, w->memory, sizeof(w->memory), 0,
                                                 CRPC_ACCESS_LOCAL_WRITE, &w->keys, &error),
                     CRPC_OK);
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct nic_piece piece = {.address = (uint64_t)(uintptr_t)(w->memory + 64 * i),
                                        .bytes = 64,
                                        .local_key = w->keys.local_key};
        assert_true(queues_of(w->nics[1])->receive(w->queues[1], i, &piece, 1));
    }
    queues_of(w->nics[1])->ring(w->queues[1]);
}

/* Sends some, and returns how many arrive. Each is sent. */
static uint32_t send(struct world *w, uint32_t count)
{
    crpc_completion done[2 * PLACES];
    const uint32_t key = 0;
    uint32_t errors, taken;

    for (uint32_t i = 0; i < count; i++) {
        const struct nic_work work = {.opcode = NIC_SEND,
                                      .flags = NIC_WORK_INLINE,
                                      .user_data = i,
                                      .address = (uint64_t)(uintptr_t) "12345678",
                                      .bytes = 8};
        assert_int_equal(
            queues_of(w->nics[0])->post_to(w->queues[0], &work, &w->target, &key, NULL, 1), 1);
    }
    queues_of(w->nics[0])->ring(w->queues[0]);
    assert_true(memory_fabric_run(w->fabric, 100000));
    taken = queues_of(w->nics[0])->poll(w->nics[0], done, 2 * PLACES, &errors);
    assert_int_equal(taken, count);
    assert_int_equal(errors, 0);
    taken = queues_of(w->nics[1])->poll(w->nics[1], done, 2 * PLACES, &errors);
    assert_int_equal(errors, 0);
    return taken;
}

static void each_mode(void (*check)(struct world *))
{
    for (uint32_t mode = MEMORY_SCHEDULED; mode <= MEMORY_IMMEDIATE; mode++) {
        struct world w = {0};
        world_open(&w, mode);
        check(&w);
        memory_fabric_destroy(w.fabric);
    }
}

static void check_loss(struct world *w)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(w->fabric);
    uint32_t arrived;

    assert_int_equal(send(w, 2), 2);
    memory_fabric_options(w->fabric)->datagrams_lost_percent = 100;
    assert_int_equal(send(w, 5), 0);
    assert_int_equal(counters->datagrams_lost, 5);
    memory_fabric_options(w->fabric)->datagrams_lost_percent = 50;
    arrived = send(w, 14);
    assert_in_range(arrived, 1, 13);
    assert_int_equal(counters->datagrams, 2 + arrived);
    assert_int_equal(counters->datagrams_lost, 5 + 14 - arrived);
    assert_int_equal(counters->receiver_not_ready, 0);
}

static void datagrams_are_lost_as_often_as_wanted(void **state)
{
    (void)state;
    each_mode(check_loss);
}

/* Nothing is repeated, so nothing fails for want of an answer. */
static void check_cuts(struct world *w)
{
    memory_fabric_set_link(w->nics[1], false);
    assert_int_equal(send(w, 3), 0);
    memory_fabric_set_link(w->nics[1], true);
    memory_fabric_set_link(w->nics[0], false);
    assert_int_equal(send(w, 3), 0);
    memory_fabric_set_link(w->nics[0], true);
    assert_int_equal(send(w, 3), 3);
    memory_fabric_cut(w->queues[1]->pair);
    assert_int_equal(send(w, 3), 0);
}

static void a_cut_loses_them_and_breaks_nothing(void **state)
{
    (void)state;
    each_mode(check_cuts);
}

static void check_left(struct world *w)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(w->fabric);

    assert_int_equal(counters->targets, 1);
    OPERATIONS->close(w->nics[0]);
    assert_int_equal(counters->left_open, 3); /* the queue, its results, and its target */
    assert_int_equal(counters->targets, 0);
}

static void a_target_that_is_left_is_counted(void **state)
{
    (void)state;
    each_mode(check_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datagrams_are_lost_as_often_as_wanted),
        cmocka_unit_test(a_cut_loses_them_and_breaks_nothing),
        cmocka_unit_test(a_target_that_is_left_is_counted),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_dc.c: what the in-memory NIC adds to the contract of DCIs and DCTs: streams that do not wait for each other,
 * and faults. */
#include "common.h"

#include "nic/queue.h"

#define KEY 0x1234567812345678u
#define STREAMS 8u
#define WORDS 512u

struct world {
    struct memory_fabric *fabric;
    struct nic *nics[2];
    struct nic_queue *dci, *srq, *dct;
    struct nic_target *target;
    struct nic_keys keys;
    uint64_t memory[WORDS]; /* of the second nic */
    crpc_completion done[64];
    uint32_t count, errors;
};

static const struct nic_queue_operations *queues_of(const struct nic *nic)
{
    return nic->operations->queues;
}

static struct nic_queue *create(struct nic *nic, const struct nic_queue_options *options)
{
    struct nic_queue *queue = NULL;
    assert_int_equal(queues_of(nic)->create(nic, NULL, options, &queue, NULL), CRPC_OK);
    return queue;
}

static void world_open(struct world *w, enum memory_mode mode, uint32_t streams, uint64_t seed)
{
    const struct nic_options options = {.receive_depth = 8, .send_depth = 8, .signal_interval = 4};
    const struct nic_queue_options dci = {.kind = NIC_QUEUE_DCI,
                                          .table = streams ? NIC_TABLE_UNORDERED : NIC_TABLE_DENSE,
                                          .sends = 64,
                                          .send_pieces = 1,
                                          .inline_bytes = 8,
                                          .streams = streams,
                                          .stream_failures_max = STREAMS - 1,
                                          .transport = default_transport};
    const struct nic_queue_options srq = {
        .kind = NIC_QUEUE_SRQ, .receives = 8, .receive_pieces = 1};
    struct nic_target_options to = {.kind = NIC_QUEUE_DCI, .access_key = KEY};

    w->fabric = memory_fabric_create(seed);
    memory_fabric_options(w->fabric)->mode = mode;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(memory_nic_open(w->fabric, &options, &w->nics[i], NULL), CRPC_OK);
    }
    w->dci = create(w->nics[0], &dci);
    w->srq = create(w->nics[1], &srq);
    w->dct =
        create(w->nics[1], &(struct nic_queue_options){
                               .kind = NIC_QUEUE_DCT, .receive_queue = w->srq, .access_key = KEY});
    OPERATIONS->queue_pair_address(w->dct->pair, &to.address);
    assert_int_equal(queues_of(w->nics[0])->target_create(w->nics[0], NULL, &to, &w->target, NULL),
                     CRPC_OK);
    assert_int_equal(OPERATIONS->memory_register(w->nics[1], NULL, w->memory, sizeof(w->memory), 0,
                                                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                                 &w->keys, NULL),
                     CRPC_OK);
}

static void receive(struct world *w)
{
    const struct nic_piece piece = {(uint64_t)(uintptr_t)w->memory, 8, w->keys.local_key};
    assert_true(queues_of(w->nics[1])->receive(w->srq, 1, &piece, 1));
    queues_of(w->nics[1])->ring(w->srq);
}

/* Each op has its number as payload, inline. */
static void post(struct world *w, uint8_t opcode, uint16_t stream, uint64_t number)
{
    const struct nic_work work = {.opcode = opcode,
                                  .flags = NIC_WORK_INLINE,
                                  .stream = stream,
                                  .user_data = number,
                                  .address = (uint64_t)(uintptr_t)&number,
                                  .bytes = sizeof(number),
                                  .remote_key = w->keys.remote_key,
                                  .remote_address = (uint64_t)(uintptr_t)&w->memory[number]};
    const uint32_t key = 0;
    assert_int_equal(queues_of(w->nics[0])->post_to(w->dci, &work, &w->target, &key, NULL, 1), 1);
}

static void run(struct world *w, uint64_t steps)
{
    queues_of(w->nics[0])->ring(w->dci);
    memory_fabric_run(w->fabric, steps);
    w->count = queues_of(w->nics[0])->poll(w->nics[0], w->done, 64, &w->errors);
}

static void each_mode(uint32_t streams, void (*check)(struct world *))
{
    for (uint32_t mode = MEMORY_SCHEDULED; mode <= MEMORY_IMMEDIATE; mode++) {
        struct world w = {0};
        world_open(&w, mode, streams, 1);
        check(&w);
        memory_fabric_destroy(w.fabric);
    }
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void check_waiting(struct world *w)
{
    post(w, NIC_SEND, 3, 30); /* finds no receive */
    post(w, NIC_WRITE, 3, 31);
    post(w, NIC_WRITE, 4, 40);
    post(w, NIC_WRITE, 0, 1);
    run(w, 500);
    assert_int_equal(w->count, 2);
    assert_int_equal(w->done[0].user_data + w->done[1].user_data, 41);
    assert_int_equal(w->memory[31], 0);
    receive(w);
    run(w, 500);
    assert_int_equal(w->count, 2);
    assert_int_equal(w->done[0].user_data, 30);
    assert_int_equal(w->done[1].user_data, 31);
    assert_int_equal(w->memory[31], 31);
}

static void a_stream_that_waits_holds_up_no_other(void **state)
{
    (void)state;
    each_mode(STREAMS, check_waiting);
}

static void streams_overtake_each_other_and_keep_their_own_order(void **state)
{
    uint32_t overtaken = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world w = {0};
        uint64_t next[STREAMS] = {0}, last = 0;
        world_open(&w, MEMORY_SCHEDULED, STREAMS, seed);
        for (uint64_t i = 0; i < 64; i++) {
            post(&w, NIC_WRITE, (uint16_t)(i % STREAMS), i);
        }
        run(&w, STEPS_MAX);
        assert_int_equal(w.count, 64);
        for (uint32_t i = 0; i < 64; i++) {
            const uint64_t number = w.done[i].user_data;
            assert_int_equal(number / STREAMS, next[number % STREAMS]++);
            assert_int_equal(w.memory[number], number);
            overtaken += number < last;
            last = number;
        }
        memory_fabric_destroy(w.fabric);
    }
    assert_true(overtaken > 500);
}

static void check_failures(struct world *w)
{
    w->target->access_key++; /* of the ops from here on */
    post(w, NIC_WRITE, 2, 20);
    post(w, NIC_WRITE, 2, 21);
    run(w, STEPS_MAX);
    w->target->access_key--;
    post(w, NIC_WRITE, 5, 50);
    assert_int_equal(w->count, 2);
    assert_int_equal(w->done[0].status, -NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(w->done[1].status, -NIC_ERROR_FLUSHED);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 1);
    assert_int_equal(w->done[0].status, CRPC_OK);
    memory_fabric_kill(w->dci->pair);
    assert_int_equal(queues_of(w->nics[0])->reset_stream(w->dci, 2, NULL), CRPC_E_SYSTEM);
    assert_int_equal(w->dci->streams_failed, 1);
    post(w, NIC_WRITE, 5, 51);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 1);
    assert_int_equal(w->done[0].status, -NIC_ERROR_FLUSHED);
    assert_true(w->dci->failed);
}

static void a_queue_that_has_failed_resets_no_stream(void **state)
{
    (void)state;
    each_mode(STREAMS, check_failures);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void check_link(struct world *w)
{
    memory_fabric_set_link(w->nics[1], false);
    post(w, NIC_WRITE, 0, 1);
    run(w, 300);
    assert_int_equal(w->count, 0);
    memory_fabric_set_link(w->nics[1], true);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 1);
    assert_int_equal(w->done[0].status, CRPC_OK);
    memory_fabric_stall(w->dct->pair, 2000);
    post(w, NIC_WRITE, 0, 2);
    run(w, 1500); /* longer than it waits for an answer */
    assert_int_equal(w->count, 0);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 1);
    assert_int_equal(w->done[0].status, CRPC_OK);
    memory_fabric_set_link(w->nics[0], false);
    post(w, NIC_WRITE, 0, 3);
    post(w, NIC_WRITE, 0, 4);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 2);
    assert_int_equal(w->done[0].status, -NIC_ERROR_RETRY);
    assert_int_equal(w->done[1].status, -NIC_ERROR_FLUSHED);
    assert_int_equal(w->memory[3], 0);
    assert_true(w->dci->failed);
}

static void a_link_comes_back_in_time_or_not(void **state)
{
    (void)state;
    each_mode(0, check_link);
}

static void check_target(struct world *w)
{
    memory_fabric_kill(w->dct->pair);
    post(w, NIC_WRITE, 1, 1);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 1);
    assert_int_equal(w->done[0].status, -NIC_ERROR_RETRY);
    assert_int_equal(w->dci->streams_failed, 1);
    memory_fabric_options(w->fabric)->receiver_not_ready_fails = true;
    w->dct =
        create(w->nics[1], &(struct nic_queue_options){
                               .kind = NIC_QUEUE_DCT, .receive_queue = w->srq, .access_key = KEY});
    w->target->queue_pair_number = w->dct->pair->number;
    post(w, NIC_SEND, 2, 2);
    post(w, NIC_WRITE, 3, 3);
    run(w, STEPS_MAX);
    assert_int_equal(w->count, 2);
    const bool sent_first = w->done[0].user_data == 2;
    assert_int_equal(w->done[!sent_first].status, -NIC_ERROR_RNR);
    assert_int_equal(w->done[sent_first].status, CRPC_OK);
}

static void a_target_that_does_not_answer_fails_a_stream(void **state)
{
    (void)state;
    each_mode(STREAMS, check_target);
}

/* ---- What is missing, and what is left ------------------------------------------------------- */

static void a_device_may_lack_it(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    const struct nic_options options = {.receive_depth = 8, .send_depth = 8, .signal_interval = 4};
    const struct nic_queue_options dci = {.kind = NIC_QUEUE_DCI, .sends = 1, .send_pieces = 1};
    struct nic *nic = NULL;
    struct nic_queue *queue;
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    memory_fabric_options(fabric)->no_dc = true;
    assert_int_equal(memory_nic_open(fabric, &options, &nic, NULL), CRPC_OK);
    assert_false(nic->dc);
    assert_int_equal(nic->streams_max, 0);
    assert_int_equal(queues_of(nic)->create(nic, NULL, &dci, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_string_equal(error.message,
                        "memory0 has no dynamically connected transport (DC): it is a part of mlx5 "
                        "devices");
    memory_fabric_destroy(fabric);
}

static void check_left(struct world *w)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(w->fabric);
    post(w, NIC_SEND, 1, 1);
    run(w, 100);
    assert_int_equal(w->count, 0);
    OPERATIONS->close(w->nics[0]);
    assert_int_equal(counters->left_open, 3); /* the DCI, its results, and its target */
    assert_int_equal(counters->targets, 0);
}

static void what_is_left_is_counted(void **state)
{
    (void)state;
    each_mode(STREAMS, check_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_waits_holds_up_no_other),
        cmocka_unit_test(streams_overtake_each_other_and_keep_their_own_order),
        cmocka_unit_test(a_queue_that_has_failed_resets_no_stream),
        cmocka_unit_test(a_link_comes_back_in_time_or_not),
        cmocka_unit_test(a_target_that_does_not_answer_fails_a_stream),
        cmocka_unit_test(a_device_may_lack_it),
        cmocka_unit_test(what_is_left_is_counted),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

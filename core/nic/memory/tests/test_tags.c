/* test_tags.c: what the in-memory NIC adds to the contract of TM-SRQs: messages that come in bit by bit, and whose
 * sender ends meanwhile. */
#include "common.h"

#include <endian.h>

#include "nic/tags.h"

#define EAGER 3
#define BYTES 512u
#define TAG 7u

struct world {
    struct memory_fabric *fabric;
    struct nic *nics[2];
    struct nic_queue *sender, *srq, *receiver;
    struct nic_keys keys[2];
    uint8_t memory[2][BYTES];
    crpc_completion done[16];
    uint32_t errors;
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

static void connect_to(struct nic_queue *queue, const struct nic_queue *peer)
{
    struct nic_address address;
    OPERATIONS->queue_pair_address(peer->pair, &address);
    assert_int_equal(
        OPERATIONS->queue_pair_connect(queue->pair, &address, &default_transport, NULL), CRPC_OK);
}

static void world_open(struct world *w)
{
    const struct nic_options options = {.receive_depth = 8, .send_depth = 8, .signal_interval = 4};
    struct nic_queue_options rc = {
        .kind = NIC_QUEUE_RC, .table = NIC_TABLE_DENSE, .sends = 8, .send_pieces = 1};

    w->fabric = memory_fabric_create(1);
    memory_fabric_options(w->fabric)->mode = MEMORY_SCHEDULED;
    memory_fabric_options(w->fabric)->pieces_max = 16;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(memory_nic_open(w->fabric, &options, &w->nics[i], NULL), CRPC_OK);
        w->keys[i] = register_memory(w->nics[i], w->memory[i], sizeof(w->memory[i]),
                                     CRPC_ACCESS_LOCAL_WRITE);
    }
    w->srq = create(w->nics[1],
                    &(struct nic_queue_options){
                        .kind = NIC_QUEUE_TM_SRQ, .receives = 8, .receive_pieces = 1, .tags = 4});
    w->sender = create(w->nics[0], &rc);
    rc.receive_queue = w->srq;
    w->receiver = create(w->nics[1], &rc);
    connect_to(w->sender, w->receiver);
    connect_to(w->receiver, w->sender);
}

static void add(struct world *w)
{
    const struct nic_work work = {
        .opcode = NIC_TAG_ADD, .user_data = 1, .remote_address = TAG, .operand = UINT64_MAX};
    const struct nic_piece piece = {(uint64_t)(uintptr_t)w->memory[1], BYTES, w->keys[1].local_key};
    assert_true(queues_of(w->nics[1])->tag(w->srq, &work, &piece));
    queues_of(w->nics[1])->ring(w->srq);
}

static void receive(struct world *w)
{
    const struct nic_piece piece = {(uint64_t)(uintptr_t)w->memory[1], BYTES, w->keys[1].local_key};
    assert_true(queues_of(w->nics[1])->receive(w->srq, 2, &piece, 1));
    queues_of(w->nics[1])->ring(w->srq);
}

static void send_message(struct world *w)
{
    const struct nic_work work = {.opcode = NIC_SEND,
                                  .user_data = 3,
                                  .address = (uint64_t)(uintptr_t)w->memory[0],
                                  .bytes = BYTES};
    const uint64_t tag = htobe64(TAG);
    w->memory[0][0] = EAGER;
    memcpy(w->memory[0] + 8, &tag, sizeof(tag));
    assert_int_equal(queues_of(w->nics[0])->post(w->sender, &work, &w->keys[0].local_key, NULL, 1),
                     1);
    queues_of(w->nics[0])->ring(w->sender);
}

static uint32_t poll_far(struct world *w)
{
    return queues_of(w->nics[1])->poll(w->nics[1], w->done, 16, &w->errors);
}

static void expect(const struct world *w, struct memory_tag_counts wanted)
{
    const struct memory_tag_counts counts = memory_fabric_tags(w->srq);
    assert_memory_equal(&counts, &wanted, sizeof(counts));
}

/* Runs until the message has taken what it needs; it has more to come. */
static void begin(struct world *w, struct memory_tag_counts then)
{
    struct memory_tag_counts counts = memory_fabric_tags(w->srq);
    for (uint32_t steps = 0; memcmp(&counts, &then, sizeof(counts)) != 0; steps++) {
        assert_true(steps < STEPS_MAX);
        memory_fabric_step(w->fabric);
        counts = memory_fabric_tags(w->srq);
    }
    memory_fabric_step(w->fabric);
    assert_int_equal(poll_far(w), 0);
}

static void a_message_that_ends_halfway_keeps_its_tag(void **state)
{
    struct world w = {0};
    (void)state;
    world_open(&w);
    add(&w);
    memory_fabric_run(w.fabric, 100);
    assert_int_equal(poll_far(&w), 0);
    expect(&w, (struct memory_tag_counts){.listed = 1});
    send_message(&w);
    begin(&w, (struct memory_tag_counts){.listed = 0});
    memory_fabric_kill(w.sender->pair);
    expect(&w, (struct memory_tag_counts){.cut_matched = 1});
    memory_fabric_run(w.fabric, STEPS_MAX);
    assert_int_equal(poll_far(&w), 0);
    expect(&w, (struct memory_tag_counts){.cut_matched = 1});
    assert_int_equal(w.srq->tags->open, 1);
    queues_of(w.nics[1])->flush(w.receiver);
    memory_fabric_run(w.fabric, STEPS_MAX);
    assert_int_equal(poll_far(&w), 1);
    assert_int_equal(w.done[0].user_data, 1);
    assert_int_equal(w.done[0].status, -NIC_ERROR_FLUSHED);
    expect(&w, (struct memory_tag_counts){.listed = 0});
    assert_int_equal(w.srq->tags->open, 0);
    memory_fabric_destroy(w.fabric);
}

static void an_unexpected_one_keeps_its_receive_and_its_count(void **state)
{
    struct world w = {0};
    (void)state;
    world_open(&w);
    receive(&w);
    send_message(&w);
    begin(&w, (struct memory_tag_counts){.unexpected = 1});
    memory_fabric_cut(w.receiver->pair);
    memory_fabric_run(w.fabric, STEPS_MAX);
    assert_int_equal(poll_far(&w), 0);
    expect(&w, (struct memory_tag_counts){.unexpected = 1, .cut_unexpected = 1});
    assert_int_equal(w.srq->tags->seen, 0);
    queues_of(w.nics[1])->flush(w.receiver);
    memory_fabric_run(w.fabric, STEPS_MAX);
    assert_int_equal(poll_far(&w), 1);
    assert_int_equal(w.done[0].user_data, 2);
    expect(&w, (struct memory_tag_counts){.unexpected = 0});
    memory_fabric_destroy(w.fabric);
}

/* One that was cut short counts no more, also if its queue is stopped before anybody polls. */
static void a_cut_one_of_a_stopped_queue_is_not_counted(void **state)
{
    struct world w = {0};
    (void)state;
    world_open(&w);
    receive(&w);
    send_message(&w);
    begin(&w, (struct memory_tag_counts){.unexpected = 1});
    queues_of(w.nics[1])->flush(w.receiver);
    queues_of(w.nics[1])->stop(w.receiver);
    expect(&w, (struct memory_tag_counts){.unexpected = 0});
    assert_int_equal(w.srq->tags->seen, 0);
    assert_int_equal(nic_queue_take_ended(w.srq, w.done, 16), 1);
    assert_int_equal(w.done[0].user_data, 2);
    memory_fabric_destroy(w.fabric);
}

/* One that is late is not cut: whoever looks now sees that it is on its way. */
static void a_message_that_is_late_is_not_cut(void **state)
{
    struct world w = {0};
    (void)state;
    world_open(&w);
    add(&w);
    memory_fabric_run(w.fabric, 100);
    assert_int_equal(poll_far(&w), 0);
    send_message(&w);
    begin(&w, (struct memory_tag_counts){.listed = 0});
    memory_fabric_stall(w.sender->pair, 500);
    memory_fabric_run(w.fabric, 400);
    assert_int_equal(poll_far(&w), 0);
    expect(&w, (struct memory_tag_counts){.listed = 0});
    memory_fabric_run(w.fabric, STEPS_MAX);
    assert_int_equal(poll_far(&w), 1);
    assert_int_equal(w.done[0].status, CRPC_OK);
    assert_int_equal(w.done[0].payload_bytes, BYTES - NIC_TAG_HEADER_BYTES);
    memory_fabric_destroy(w.fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_ends_halfway_keeps_its_tag),
        cmocka_unit_test(an_unexpected_one_keeps_its_receive_and_its_count),
        cmocka_unit_test(a_cut_one_of_a_stopped_queue_is_not_counted),
        cmocka_unit_test(a_message_that_is_late_is_not_cut),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

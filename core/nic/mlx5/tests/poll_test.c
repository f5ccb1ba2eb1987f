/* poll_test.c: the driver's data path over queues in plain memory, where the test is the device:
 * entries that no device should write, error entries, queues that are full, queue pairs that go.
 */
#include "nic/mlx5/mlx5.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 64u
#define DEPTH 7u
#define BLOCKS 32u /* the least that find_send_queue takes for that depth */
#define NUMBER 0x000123u
#define RECEIVES 32u
#define CAPACITY 16u

struct memory_queue {
    _Alignas(64) uint8_t entries[ENTRIES * 64];
    uint32_t record[2];
    uint8_t doorbell[64];
    uint32_t producer;
};

static struct {
    struct mlx5_nic nic;
    struct memory_queue receives;
    struct memory_queue sends;
    struct mlx5_queue_pair *queue_pair;
    struct ibv_qp qp;
    struct ibv_cq cq, spare_cq;
    _Alignas(64) uint8_t ring[BLOCKS * 64];
    _Alignas(64) uint8_t device_register[512];
    _Alignas(64) uint8_t receive_buffer[RECEIVES * 32];
    uint32_t send_record;
    uint32_t receive_record;
    uint8_t source[4096];
    struct nic_completion completions[CAPACITY + 1];
    uint32_t destroyed;
} rig;

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    assert_int_equal(mask, IBV_QP_STATE);
    qp->state = attributes->qp_state;
    return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
    /* libmlx5 would clean the queues that it finds here, and knows nothing of where we are. */
    assert_ptr_equal(qp->send_cq, &rig.spare_cq);
    assert_ptr_equal(qp->recv_cq, &rig.spare_cq);
    rig.destroyed++;
    return 0;
}

static void init_queue(struct completion_queue *queue, struct memory_queue *memory)
{
    *queue = (struct completion_queue){.entries = memory->entries,
                                       .mask = ENTRIES - 1,
                                       .shift = 6,
                                       .laps = 6,
                                       .mini = COMPLETION_MINI_HASH,
                                       .layout = COMPLETION_PLAIN,
                                       .record = memory->record,
                                       .doorbell = memory->doorbell};
    completion_queue_init(queue);
}

static struct mlx5_queue_pair *make_queue_pair(uint32_t number)
{
    struct mlx5_queue_pair *queue_pair = calloc(1, sizeof(*queue_pair));
    struct mlx5_doorbell *doorbell = calloc(1, sizeof(*doorbell));
    doorbell->doorbell = (struct doorbell){.address = rig.device_register,
                                           .push_bytes = 256,
                                           .copy = copy_function_of(copy_choose()),
                                           .users = 1};
    doorbell->next = rig.nic.doorbells;
    rig.nic.doorbells = doorbell;
    rig.qp = (struct ibv_qp){.qp_num = number, .send_cq = &rig.cq, .recv_cq = &rig.cq};
    queue_pair->queue = (struct send_queue){.buffer = rig.ring,
                                            .mask = BLOCKS - 1,
                                            .number = number,
                                            .record = &rig.send_record,
                                            .doorbell = &doorbell->doorbell};
    queue_pair->tracking = (struct tracking){
        .entries = calloc(BLOCKS, sizeof(*queue_pair->tracking.entries)), .mask = BLOCKS - 1};
    device_queue_pair_begin(&rig.nic.device, &queue_pair->device, NULL, DEPTH);
    device_queue_pair_made(&queue_pair->device, &rig.qp);
    assert_true(device_queue_pair_adopt(&rig.nic.device, &queue_pair->device));
    return queue_pair;
}

static int set_up(void **state)
{
    struct nic *base = &rig.nic.device.base;
    (void)state;
    memset(&rig, 0, sizeof(rig));
    table_init(&rig.nic.device.by_number);
    base->operations = &mlx5_operations;
    base->send_depth = DEPTH;
    base->signal_interval = 3;
    base->inline_bytes_max = MLX5_INLINE_BYTES;
    base->message_bytes_max = NIC_MESSAGE_BYTES_MAX;
    base->receive_depth = RECEIVES - 1;
    init_queue(&rig.nic.receives, &rig.receives);
    init_queue(&rig.nic.sends, &rig.sends);
    rig.nic.spare_cq = &rig.spare_cq;
    rig.nic.receive_queue = (struct receive_queue){.buffer = rig.receive_buffer,
                                                   .stride = 32,
                                                   .entries = RECEIVES,
                                                   .tail = RECEIVES - 1,
                                                   .record = &rig.receive_record};
    receive_queue_init(&rig.nic.receive_queue);
    mlx5_refill(base);
    assert_int_equal(base->receives_posted, RECEIVES - 1);
    assert_int_equal(be32toh(rig.receive_record), RECEIVES - 1);
    rig.queue_pair = make_queue_pair(NUMBER);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (rig.queue_pair) {
        mlx5_queue_pair_destroy(&rig.queue_pair->device.base);
    }
    assert_null(rig.nic.doorbells);
    table_free(&rig.nic.device.by_number);
    return 0;
}

static struct mlx5_err_cqe *write_entry(struct memory_queue *queue, uint8_t opcode, uint32_t number,
                                        uint16_t counter)
{
    struct mlx5_cqe64 *entry =
        (struct mlx5_cqe64 *)(void *)(queue->entries + queue->producer % ENTRIES * 64);
    memset(entry, 0, sizeof(*entry));
    entry->imm_inval_pkey = htobe32(0x1000u + counter);
    entry->byte_cnt = htobe32(0x2000u + counter);
    entry->sop_drop_qpn = htobe32(number);
    entry->wqe_counter = htobe16(counter);
    entry->op_own = (uint8_t)(opcode << 4 | (queue->producer / ENTRIES & 1));
    queue->producer++;
    return (struct mlx5_err_cqe *)(void *)entry;
}

static uint32_t poll(void)
{
    memset(rig.completions, 0xee, sizeof(rig.completions));
    uint32_t count = mlx5_poll(&rig.nic.device.base, rig.completions, CAPACITY);
    assert_true(count <= CAPACITY);
    assert_int_equal(rig.completions[CAPACITY].kind, 0xee);
    assert_int_equal(be32toh(rig.receives.record[0]), rig.nic.receives.consumer);
    assert_int_equal(be32toh(rig.sends.record[0]), rig.nic.sends.consumer);
    return count;
}

static void post(uint32_t bytes, uint32_t flags)
{
    struct nic_transfer transfer = {.local_address = (uint64_t)(uintptr_t)rig.source,
                                    .bytes = bytes};
    assert_true(nic_send_room(&rig.queue_pair->device.base) > 0);
    mlx5_post_write_immediate(&rig.queue_pair->device.base, &transfer, flags);
}

/* ---- What is posted -------------------------------------------------------------------------- */

/* The two kinds of WRITE differ in opcode and immediate, and in nothing else. */
static void test_both_writes(void **state)
{
    static const uint32_t sizes[] = {0, 1, 32, MLX5_INLINE_BYTES, MLX5_INLINE_BYTES + 1, 1u << 30};
    struct nic_queue_pair *queue_pair = &rig.queue_pair->device.base;
    struct send_queue *queue = &rig.queue_pair->queue;
    (void)state;
    memset(rig.source, 0x5a, sizeof(rig.source));
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct nic_transfer transfer = {.local_address = (uint64_t)(uintptr_t)rig.source,
                                        .remote_address = 0x123456789abcdef0,
                                        .bytes = sizes[i],
                                        .local_key = 0x1111,
                                        .remote_key = 0x2222,
                                        .immediate = 0xfeedbeef};
        uint32_t flags = i % 2 ? NIC_POST_SIGNALED : 0;
        uint8_t seen[2][256];
        uint32_t blocks[2];
        for (uint32_t kind = 0; kind < 2; kind++) {
            uint64_t inlined = queue_pair->stats.inline_wqes;
            memset(rig.ring, 0, sizeof(rig.ring));
            queue->producer = queue->rung = queue->consumer = 0;
            rig.queue_pair->tracking.producer = rig.queue_pair->tracking.consumer = 0;
            queue_pair->completed = queue_pair->posted;
            rig.nic.device.send_outstanding = 0;
            queue_pair->unsignaled = 0;
            (kind ? mlx5_post_write_immediate : mlx5_post_write)(queue_pair, &transfer, flags);
            blocks[kind] = queue->producer;
            assert_true(blocks[kind] >= 1 && blocks[kind] <= 4);
            memcpy(seen[kind], rig.ring, sizeof(seen[kind]));
            assert_int_equal(queue_pair->stats.inline_wqes - inlined,
                             sizes[i] <= MLX5_INLINE_BYTES);
        }
        assert_int_equal(blocks[0], blocks[1]);
        assert_int_equal(seen[0][3], MLX5_OPCODE_RDMA_WRITE);
        assert_int_equal(seen[1][3], MLX5_OPCODE_RDMA_WRITE_IMM);
        assert_memory_equal(seen[0] + 12, "\0\0\0\0", 4);
        assert_memory_equal(seen[1] + 12, "\xfe\xed\xbe\xef", 4);
        seen[0][3] = seen[1][3];
        memcpy(seen[0] + 12, seen[1] + 12, 4);
        assert_memory_equal(seen[0], seen[1], 64 * blocks[0]);
    }
    queue_pair->completed = queue_pair->posted;
    rig.nic.device.send_outstanding = 0;
}

/* ---- What no device should write ------------------------------------------------------------- */

static void test_strange_sends(void **state)
{
    struct nic *base = &rig.nic.device.base;
    struct nic_queue_pair *queue_pair = &rig.queue_pair->device.base;
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        post(32, NIC_POST_SIGNALED);
    }
    mlx5_ring_doorbell(queue_pair);
    uint32_t unknown = 0;
    uint16_t block = 0;
    for (uint16_t good = 0; good < 5; good++) {
        /* Of no queue pair; of no opcode; of a receive; of nothing outstanding; of an invalid one */
        write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER + 1, block);
        write_entry(&rig.sends, MLX5_CQE_REQ_ERR, 0xffffff, block);
        write_entry(&rig.sends, 0x7, NUMBER, block);
        write_entry(&rig.sends, MLX5_CQE_RESP_WR_IMM, NUMBER, block);
        write_entry(&rig.sends, MLX5_CQE_INVALID, NUMBER, block);
        write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, (uint16_t)(block - 1));
        write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, 5);
        write_entry(&rig.sends, MLX5_CQE_REQ_ERR, NUMBER, 0xffff);
        unknown += 8;
        write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, block);
        assert_int_equal(poll(), 1);
        assert_int_equal(base->unknown_completions, unknown);
        assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_SEND);
        assert_int_equal(rig.completions[0].queue_pair_number, NUMBER);
        assert_int_equal(rig.completions[0].completed, good + 1);
        assert_int_equal(queue_pair->completed, good + 1);
        assert_false(queue_pair->failed);
        block = (uint16_t)(block + 2); /* each is 16 + 16 + 48 bytes: two blocks */
    }
    assert_int_equal(rig.nic.device.send_outstanding, 0);
    assert_int_equal(nic_send_room(queue_pair), DEPTH);
}

static void test_strange_receives(void **state)
{
    struct nic *base = &rig.nic.device.base;
    (void)state;
    /* Of no known opcode: no receive is gone. */
    write_entry(&rig.receives, 0x6, NUMBER, 0);
    write_entry(&rig.receives, MLX5_CQE_REQ, NUMBER, 0);
    write_entry(&rig.receives, MLX5_CQE_INVALID, NUMBER, 0);
    write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER, 0);
    assert_int_equal(poll(), 1);
    assert_int_equal(base->unknown_completions, 3);
    assert_int_equal(base->receives_posted, RECEIVES - 2);
    assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(rig.completions[0].queue_pair_number, NUMBER);
    assert_int_equal(rig.completions[0].immediate, 0x1000);
    assert_int_equal(rig.completions[0].byte_count, 0x2000);
    /* Of an index that is none: it arrived, and the list stays whole. */
    write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER, RECEIVES);
    write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER, 0xffff);
    assert_int_equal(poll(), 2);
    assert_int_equal(base->unknown_completions, 5);
    assert_int_equal(rig.nic.receive_queue.tail, 0);
    /* Of no queue pair: it took a receive. Who polls knows no owner for it, and counts it. */
    write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER + 7, 1);
    assert_int_equal(poll(), 1);
    assert_int_equal(rig.completions[0].queue_pair_number, NUMBER + 7);
    assert_int_equal(rig.nic.receive_queue.tail, 1);
    /* An error of no queue pair. */
    write_entry(&rig.receives, MLX5_CQE_RESP_ERR, NUMBER + 7, 2);
    assert_int_equal(poll(), 1);
    assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(rig.completions[0].completed, 0);
    assert_false(rig.queue_pair->device.base.failed);
    /* A SEND, which a peer of ours never does, ends the connection. */
    write_entry(&rig.receives, MLX5_CQE_RESP_SEND, NUMBER, 3);
    assert_int_equal(poll(), 1);
    assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(rig.completions[0].status, NIC_ERROR_OTHER);
    assert_true(rig.queue_pair->device.base.failed);
    assert_int_equal(rig.qp.state, IBV_QPS_ERR);
    assert_int_equal(poll(), 0);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void test_syndromes(void **state)
{
    static const struct {
        uint8_t syndrome, send, receive;
    } cases[] = {
        {0x01, NIC_ERROR_LOCAL, NIC_ERROR_LOCAL},         /* length */
        {0x02, NIC_ERROR_LOCAL, NIC_ERROR_LOCAL},         /* operation */
        {0x04, NIC_ERROR_LOCAL, NIC_ERROR_LOCAL},         /* protection */
        {0x05, NIC_ERROR_FLUSHED, NIC_ERROR_FLUSHED},     /* flush */
        {0x06, NIC_ERROR_LOCAL, NIC_ERROR_LOCAL},         /* window */
        {0x10, NIC_ERROR_OTHER, NIC_ERROR_OTHER},         /* bad response */
        {0x11, NIC_ERROR_LOCAL, NIC_ERROR_LOCAL},         /* local access */
        {0x12, NIC_ERROR_REMOTE_ACCESS, NIC_ERROR_LOCAL}, /* invalid request */
        {0x13, NIC_ERROR_REMOTE_ACCESS, NIC_ERROR_LOCAL}, /* remote access */
        {0x14, NIC_ERROR_OTHER, NIC_ERROR_OTHER},         /* remote operation */
        {0x15, NIC_ERROR_RETRY, NIC_ERROR_RETRY},         /* transport retries */
        {0x16, NIC_ERROR_RNR, NIC_ERROR_RNR},             /* RNR retries */
        {0x22, NIC_ERROR_OTHER, NIC_ERROR_OTHER},         /* aborted */
        {0xff, NIC_ERROR_OTHER, NIC_ERROR_OTHER},         /* nothing known */
    };
    struct nic_queue_pair *queue_pair = &rig.queue_pair->device.base;
    (void)state;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        queue_pair->failed = false;
        uint16_t counter = (uint16_t)rig.queue_pair->queue.producer;
        post(0, NIC_POST_SIGNALED);
        mlx5_ring_doorbell(queue_pair);
        struct mlx5_err_cqe *error = write_entry(&rig.sends, MLX5_CQE_REQ_ERR, NUMBER, counter);
        error->syndrome = cases[i].syndrome;
        error->vendor_err_synd = 0x81;
        error = write_entry(&rig.receives, MLX5_CQE_RESP_ERR, NUMBER, 0);
        error->syndrome = cases[i].syndrome;
        assert_int_equal(poll(), 2);
        assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_ERROR);
        assert_int_equal(rig.completions[0].status, cases[i].receive);
        assert_int_equal(rig.completions[1].kind, NIC_COMPLETION_ERROR);
        assert_int_equal(rig.completions[1].status, cases[i].send);
        assert_int_equal(rig.completions[1].vendor_syndrome, 0x81);
        assert_int_equal(rig.completions[1].completed, i + 1);
        assert_true(queue_pair->failed);
    }
    assert_int_equal(rig.nic.device.base.unknown_completions, 0);
}

/* In the error state each WQE has an entry, whether it asked for one or not. */
static void test_unsignaled_errors(void **state)
{
    struct nic_queue_pair *queue_pair = &rig.queue_pair->device.base;
    uint16_t counters[DEPTH];
    (void)state;
    for (uint32_t i = 0; i < DEPTH; i++) {
        counters[i] = (uint16_t)rig.queue_pair->queue.producer;
        post(i % 2 ? 200 : 8, 0);
    }
    mlx5_ring_doorbell(queue_pair);
    assert_int_equal(nic_send_room(queue_pair), 0);
    for (uint32_t i = 0; i < DEPTH; i++) {
        struct mlx5_err_cqe *error = write_entry(&rig.sends, MLX5_CQE_REQ_ERR, NUMBER, counters[i]);
        error->syndrome = i ? MLX5_CQE_SYNDROME_WR_FLUSH_ERR : 0x15;
        assert_int_equal(poll(), 1);
        assert_int_equal(rig.completions[0].kind, NIC_COMPLETION_ERROR);
        assert_int_equal(rig.completions[0].status, i ? NIC_ERROR_FLUSHED : NIC_ERROR_RETRY);
        assert_int_equal(queue_pair->completed, i + 1);
        assert_int_equal(rig.nic.device.send_outstanding, DEPTH - 1 - i);
    }
    assert_int_equal(rig.queue_pair->queue.consumer, rig.queue_pair->queue.producer);
    /* Posts on a queue pair that has failed are dropped. */
    uint32_t producer = rig.queue_pair->queue.producer;
    post(8, 0);
    assert_int_equal(rig.queue_pair->queue.producer, producer);
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* While nic_send_room says that there is room there is, whatever sizes come together and wherever
 * the ring ends; and never more is posted than that. */
static void test_full(void **state)
{
    struct nic_queue_pair *queue_pair = &rig.queue_pair->device.base;
    struct send_queue *queue = &rig.queue_pair->queue;
    uint64_t random = 99;
    uint32_t device = 0;
    uint32_t full = 0;
    (void)state;
    while (queue->producer < 300000) {
        while (nic_send_room(queue_pair) > 0) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            if ((random >> 40) % 8 == 0) {
                break;
            }
            if ((random >> 50) % 4 == 0) {
                struct nic_transfer read = {.local_address = 1, .bytes = 64};
                mlx5_post_read(queue_pair, &read, 0);
            } else {
                post((uint32_t)((random >> 33) % (MLX5_INLINE_BYTES + 2)), 0);
            }
        }
        assert_true(send_queue_room(queue) <= BLOCKS);
        full += nic_send_room(queue_pair) == 0;
        mlx5_ring_doorbell(queue_pair);
        /* The device: an entry for each that asks for one. */
        while (device != queue->producer) {
            const struct mlx5_wqe_ctrl_seg *control =
                (const struct mlx5_wqe_ctrl_seg *)send_queue_at(queue, device);
            assert_int_equal(be32toh(control->opmod_idx_opcode) >> 8, device & 0xffff);
            if (control->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) {
                write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, (uint16_t)device);
            }
            device += ((be32toh(control->qpn_ds) & 0x3f) + 3) / 4;
        }
        poll();
        assert_true(nic_send_room(queue_pair) > 0);
    }
    assert_true(full > 1000);
    assert_int_equal(rig.nic.device.base.unknown_completions, 0);
    /* A queue that has no room for a WQE says so and is left as it was. */
    uint32_t filled;
    queue->consumer = queue->producer - BLOCKS;
    assert_null(send_queue_begin(queue, 1, &filled));
    queue->consumer = queue->producer;
}

/* An eighth is kept for sends, what they leave of it goes to receives; fewer than asked for means
 * that there are no more. */
static void test_shares(void **state)
{
    (void)state;
    for (uint32_t sends = 0; sends < DEPTH; sends++) {
        for (uint32_t receives = 0; receives < 30; receives++) {
            uint32_t got[3] = {0};
            uint32_t given[2] = {0};
            for (uint32_t i = 0; i < sends; i++) {
                uint16_t counter = (uint16_t)rig.queue_pair->queue.producer;
                post(0, NIC_POST_SIGNALED);
                write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, counter);
            }
            for (uint32_t i = 0; i < receives; i++) {
                write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER, (uint16_t)i);
            }
            for (uint32_t round = 0;; round++) {
                uint32_t count = poll();
                uint32_t left = sends + receives - given[0] - given[1];
                assert_true(count == CAPACITY || count == left);
                for (uint32_t i = 0; i < count; i++) {
                    assert_true(rig.completions[i].kind <= NIC_COMPLETION_SEND);
                    got[rig.completions[i].kind]++;
                }
                /* Sends do not starve. */
                uint32_t sends_now = got[NIC_COMPLETION_SEND] - given[1];
                uint32_t sends_left = sends - given[1];
                assert_true(sends_now >= (sends_left < CAPACITY / 8 ? sends_left : CAPACITY / 8));
                given[0] = got[NIC_COMPLETION_RECEIVE];
                given[1] = got[NIC_COMPLETION_SEND];
                if (count == left) {
                    break;
                }
            }
            assert_int_equal(given[0], receives);
            assert_int_equal(given[1], sends);
            mlx5_refill(&rig.nic.device.base);
            assert_int_equal(rig.nic.device.base.receives_posted, RECEIVES - 1);
        }
    }
}

/* ---- Going ----------------------------------------------------------------------------------- */

/* What a queue pair left in the queues is nobody's, also when another has its number; and nothing of
 * it stays in the queue of sends, which nobody polls while nothing is outstanding: arming would find
 * it there each time, and never sleep. */
static void test_destroy(void **state)
{
    struct nic *base = &rig.nic.device.base;
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            uint16_t counter = (uint16_t)rig.queue_pair->queue.producer;
            post(0, NIC_POST_SIGNALED);
            write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, counter);
        }
        write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER, 2);
        write_entry(&rig.receives, MLX5_CQE_RESP_WR_IMM, NUMBER + 9, 3);
        write_entry(&rig.receives, MLX5_CQE_RESP_ERR, NUMBER, 4);
        mlx5_queue_pair_destroy(&rig.queue_pair->device.base);
        assert_int_equal(rig.destroyed, round + 1);
        assert_int_equal(rig.nic.device.send_outstanding, 0);
        rig.queue_pair = make_queue_pair(NUMBER);
        assert_int_equal(poll(), 1); /* the one that is not of it */
        assert_int_equal(rig.completions[0].queue_pair_number, NUMBER + 9);
        assert_int_equal(base->receives_posted, RECEIVES - 4);
        mlx5_refill(base);
        assert_int_equal(rig.nic.sends.consumer, rig.sends.producer);
        assert_int_equal(be32toh(rig.sends.record[0]), rig.sends.producer);
        assert_false(rig.queue_pair->device.base.failed);
    }
    assert_int_equal(base->unknown_completions, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_both_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strange_sends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strange_receives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_syndromes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unsignaled_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_destroy, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

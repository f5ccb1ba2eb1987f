/* queue_dc_test.c: a DCI over a libmlx5 that is a few functions: streams that overtake each other and fail, each by
 * itself, and posts that are refused. No device does either on demand. Each op that was accepted completes
 * once all the same. Runs without RDMA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>

#include "nic/verbs/verbs.h"

#define NUMBER 5u
#define STREAMS 4u
#define SENDS 32u
#define OPS 20000u
#define CAPACITY 5u

struct stream {
    uint64_t ids[SENDS];
    uint32_t first, last;
    bool failed;
};

static struct {
    struct ibv_context context;
    struct ibv_qp_ex qp;
    struct mlx5dv_qp_ex direct;
    struct ibv_ah ah;
    struct ibv_cq cq;
    struct stream streams[STREAMS];
    /* of what is being posted */
    uint32_t begun, addressed, filled;
    uint16_t given[VERBS_QUEUE_CHAIN];
    uint64_t ids[VERBS_QUEUE_CHAIN];
    int refusal;
    uint64_t random;
    uint32_t failed;
    struct ibv_wc stash[2 * SENDS];
    struct verbs_nic nic;
    struct verbs_queue_source source;
    struct verbs_queue queue;
    struct device_target target;
    struct ibv_send_wr chain[VERBS_QUEUE_CHAIN];
    struct ibv_sge pieces[VERBS_QUEUE_CHAIN];
    struct verbs_way ways[VERBS_QUEUE_CHAIN];
    uint64_t posted[STREAMS], completed[STREAMS];
} rig;

static uint32_t pick(uint32_t below)
{
    rig.random = rig.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rig.random >> 32) * below >> 32);
}

/* ---- libmlx5 --------------------------------------------------------------------------------- */

static void fake_start(struct ibv_qp_ex *qp)
{
    assert_ptr_equal(qp, &rig.qp);
    rig.begun = rig.addressed = rig.filled = 0;
}

static void fake_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t address)
{
    assert_int_equal(key + address, 7 + 4096);
    assert_int_equal(qp->wr_flags, IBV_SEND_SIGNALED);
    rig.ids[rig.begun++] = qp->wr_id;
}

static void fake_address(struct mlx5dv_qp_ex *qp, struct ibv_ah *ah, uint32_t number, uint64_t key,
                         uint16_t stream)
{
    assert_ptr_equal(qp, &rig.direct);
    assert_ptr_equal(ah, &rig.ah);
    assert_int_equal(number, 99);
    assert_int_equal(key, 0x1234567812345678u);
    rig.given[rig.addressed++] = stream;
}

static void fake_pieces(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    (void)qp;
    assert_int_equal(count, 1);
    assert_int_equal(list->length, 16);
    rig.filled++;
}

static int fake_complete(struct ibv_qp_ex *qp)
{
    (void)qp;
    assert_true(rig.begun == rig.addressed && rig.begun == rig.filled);
    for (uint32_t i = 0; i < rig.begun && rig.refusal == 0; i++) {
        struct stream *stream = &rig.streams[rig.given[i]];
        stream->ids[stream->last++ % SENDS] = rig.ids[i];
    }
    return rig.refusal;
}

/* The oldest of any stream. */
static int fake_poll(struct ibv_cq *cq, int capacity, struct ibv_wc *entries)
{
    int count = 0;
    (void)cq;
    while (count < capacity && pick(4)) {
        struct stream *stream = &rig.streams[pick(STREAMS)];
        if (stream->first == stream->last) {
            continue;
        }
        const bool fails = !stream->failed && rig.failed < 2 && pick(50) == 0;
        entries[count++] = (struct ibv_wc){.wr_id = stream->ids[stream->first++ % SENDS],
                                           .qp_num = NUMBER,
                                           .status = fails            ? IBV_WC_REM_ACCESS_ERR
                                                     : stream->failed ? IBV_WC_WR_FLUSH_ERR
                                                                      : IBV_WC_SUCCESS};
        stream->failed |= fails;
        rig.failed += fails;
    }
    return count;
}

struct mlx5dv_qp_ex *__wrap_mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp);
struct mlx5dv_qp_ex *__wrap_mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp)
{
    assert_ptr_equal(qp, &rig.qp);
    return &rig.direct;
}

int __wrap_mlx5dv_dci_stream_id_reset(struct ibv_qp *qp, uint16_t stream);
int __wrap_mlx5dv_dci_stream_id_reset(struct ibv_qp *qp, uint16_t stream)
{
    assert_ptr_equal(qp, &rig.qp.qp_base);
    assert_true(rig.streams[stream].failed);
    assert_int_equal(rig.streams[stream].first, rig.streams[stream].last);
    rig.streams[stream].failed = false;
    rig.failed--;
    return rig.refusal;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    assert_int_equal(mask, IBV_QP_STATE);
    qp->state = attributes->qp_state;
    return 0;
}

/* ---- The driver ------------------------------------------------------------------------------ */

static struct nic_queue *make(void)
{
    struct nic *nic = &rig.nic.device.base;
    struct nic_queue *queue = &rig.queue.device.base;
    const struct nic_queue_options options = {.kind = NIC_QUEUE_DCI,
                                              .table = NIC_TABLE_UNORDERED,
                                              .sends = SENDS,
                                              .send_pieces = 1,
                                              .streams = STREAMS,
                                              .stream_failures_max = STREAMS - 1};
    memset(&rig, 0, sizeof(rig));
    rig.random = 7;
    rig.context.ops.poll_cq = fake_poll;
    rig.qp.qp_base.context = rig.cq.context = &rig.context;
    rig.qp.wr_start = fake_start;
    rig.qp.wr_rdma_write = fake_write;
    rig.qp.wr_set_sge_list = fake_pieces;
    rig.qp.wr_complete = fake_complete;
    rig.direct.wr_set_dc_addr_stream = fake_address;
    rig.source.source =
        (struct verbs_source){.cq = &rig.cq, .depth = 2 * SENDS, .stash = rig.stash};
    rig.nic.device.queue_sources[NIC_TABLE_UNORDERED] = &rig.source.device;
    nic->operations = &verbs_operations;
    nic->dc = true;
    nic->streams_max = STREAMS;
    nic_queue_init(queue, nic, &options);
    assert_true(nic_queue_make_tables(queue, SENDS, 0));
    assert_int_equal(verbs_dc_wqes(queue), 2 * SENDS);
    rig.queue.device.pair.base.number = NUMBER;
    rig.queue.device.pair.qp = &rig.qp.qp_base;
    queue->pair = &rig.queue.device.pair.base;
    rig.queue.device.send_source = &rig.source.device;
    rig.queue.extended = &rig.qp;
    rig.queue.ways = rig.ways;
    rig.queue.chain = rig.chain;
    for (uint32_t i = 0; i < VERBS_QUEUE_CHAIN; i++) {
        rig.chain[i].sg_list = &rig.pieces[i];
        rig.chain[i].next = i + 1 < VERBS_QUEUE_CHAIN ? &rig.chain[i + 1] : NULL;
    }
    table_init(&rig.nic.device.queues_by_number);
    assert_true(table_set(&rig.nic.device.queues_by_number, NUMBER, queue));
    rig.target = (struct device_target){
        .base = {.kind = NIC_QUEUE_DCI, .queue_pair_number = 99, .access_key = 0x1234567812345678u},
        .ah = &rig.ah};
    return queue;
}

static void unmake(void)
{
    nic_queue_release(&rig.queue.device.base);
    table_free(&rig.nic.device.queues_by_number);
}

static bool post(uint16_t stream)
{
    const struct nic_work work = {.opcode = NIC_WRITE,
                                  .stream = stream,
                                  .user_data = rig.posted[stream] * STREAMS + stream,
                                  .address = 64,
                                  .bytes = 16,
                                  .remote_key = 7,
                                  .remote_address = 4096};
    struct nic_target *target = &rig.target.base;
    const uint32_t key = 3;
    const bool room = nic_queue_send_room(&rig.queue.device.base) > 0;
    const bool posted =
        verbs_queue_post_to(&rig.queue.device.base, &work, &target, &key, NULL, 1) == 1;
    assert_int_equal(posted, room);
    rig.posted[stream] += posted;
    return posted;
}

/* Polls once, and returns how many; each stream's in their order. */
static uint32_t poll(struct nic_queue *queue, uint32_t capacity)
{
    crpc_completion done[2 * SENDS];
    uint32_t errors;
    const uint32_t count = verbs_queue_poll(&rig.nic.device.base, done, capacity, &errors);
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t stream = (uint16_t)(done[i].user_data % STREAMS);
        assert_int_equal(done[i].user_data / STREAMS, rig.completed[stream]++);
        assert_true(done[i].status == CRPC_OK || queue->failed ||
                    nic_queue_stream_failed(queue, stream));
        errors -= done[i].status != CRPC_OK;
    }
    assert_int_equal(errors, 0);
    return count;
}

static void test_streams(void **state)
{
    struct nic_queue *queue = make();
    uint32_t count = 0, resets = 0;
    (void)state;
    while (count < OPS) {
        const uint16_t stream = (uint16_t)pick(STREAMS);
        if (pick(3)) {
            post(stream);
        }
        if (pick(3) == 0) {
            verbs_queue_ring(queue);
        }
        count += poll(queue, 1 + pick(CAPACITY));
        assert_false(queue->failed);
        if (nic_queue_stream_failed(queue, stream)) {
            const bool open = rig.posted[stream] != rig.completed[stream];
            assert_int_equal(verbs_queue_operations.reset_stream(queue, stream, NULL),
                             open ? CRPC_E_STATE : CRPC_OK);
            assert_int_equal(nic_queue_stream_failed(queue, stream), open);
            resets += !open;
        }
    }
    assert_true(resets > 50);
    unmake();
}

/* Two chains are taken, and the third is refused: its ops are flushed at once, and the others when the device has
 * done that. */
static void test_refusal(void **state)
{
    struct nic_queue *queue = make();
    (void)state;
    for (uint32_t i = 0; i < SENDS; i++) {
        assert_true(post((uint16_t)(i / 8)));
        if (i == SENDS - 8) {
            verbs_queue_ring(queue);
            rig.refusal = ENOMEM;
        }
    }
    assert_false(post(0));
    verbs_queue_ring(queue);
    assert_true(queue->failed);
    assert_int_equal(rig.qp.qp_base.state, IBV_QPS_ERR);
    for (uint32_t i = 0; i < STREAMS; i++) {
        rig.streams[i].failed = true;
    }
    /* Those that were refused may come before those of their stream that were taken. */
    crpc_completion done[SENDS];
    uint32_t seen[SENDS] = {0}, count = 0, errors;
    while (count < SENDS) {
        uint32_t some = verbs_queue_poll(&rig.nic.device.base, done, SENDS, &errors);
        for (uint32_t i = 0; i < some; i++, count++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            assert_int_equal(seen[done[i].user_data]++, 0);
        }
    }
    unmake();
}

/* A stream that cannot be reset stays as it is. */
static void test_no_reset(void **state)
{
    struct nic_queue *queue = make();
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    rig.streams[2].failed = true;
    queue->failed_streams[0] = 1u << 2;
    queue->streams_failed = 1;
    rig.refusal = EIO;
    assert_int_equal(verbs_queue_operations.reset_stream(queue, 2, &error), CRPC_E_SYSTEM);
    assert_int_equal(error.os_error, EIO);
    assert_non_null(strstr(error.message, "cannot reset stream 2"));
    assert_int_equal(queue->streams_failed, 1);
    assert_true(nic_queue_stream_failed(queue, 2));
    assert_int_equal(verbs_queue_operations.reset_stream(queue, 1, &error), CRPC_OK);
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_no_reset),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

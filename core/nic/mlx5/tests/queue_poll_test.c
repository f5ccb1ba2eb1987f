/* queue_poll_test.c: queues with user data (nic/queue.h) in plain memory, where the test is the device, and a
 * bad one: between entries that tell the truth it writes entries of any opcode, queue pair, counter and
 * length. Each op completes once all the same, in order where its table promises that, and what was not
 * believed is counted. */
#include "nic/mlx5/mlx5.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 256u
#define BLOCKS 64u
#define RECEIVES 32u
#define NUMBER 0x000123u
#define OPS 60000u
#define CAPACITY 9u

struct memory_cq {
    _Alignas(64) uint8_t entries[ENTRIES * 64];
    uint32_t record[2];
    uint32_t producer;
    struct mlx5_source source;
};

static struct {
    struct mlx5_nic nic;
    struct memory_cq sends, receives;
    struct mlx5_queue queue, srq;
    struct doorbell doorbell;
    _Alignas(64) uint8_t ring[BLOCKS * 64];
    _Alignas(64) uint8_t device_register[512];
    _Alignas(64) uint8_t receive_buffer[RECEIVES * 32];
    uint32_t send_record, receive_record;
    uint64_t random;
    uint8_t seen[OPS];
} rig;

static uint32_t pick(uint32_t below)
{
    rig.random = rig.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rig.random >> 32) * below >> 32);
}

static void make_cq(struct memory_cq *cq, enum nic_queue_table table)
{
    cq->source.completions = (struct completion_queue){.entries = cq->entries,
                                                       .mask = ENTRIES - 1,
                                                       .shift = 6,
                                                       .laps = 8,
                                                       .layout = COMPLETION_PLAIN,
                                                       .record = cq->record};
    completion_queue_init(&cq->source.completions);
    rig.nic.device.queue_sources[table] = &cq->source.device;
}

static void make(enum nic_queue_table table, bool shared, uint64_t seed)
{
    struct nic *nic = &rig.nic.device.base;
    struct nic_queue_options options = {.kind = NIC_QUEUE_RC,
                                        .table = table,
                                        .handle = 5,
                                        .sends = 8,
                                        .send_pieces = 1,
                                        .receives = shared ? 0 : 16,
                                        .receive_pieces = 1};
    memset(&rig, 0, sizeof(rig));
    rig.random = seed;
    nic->operations = &mlx5_operations;
    nic->atomics = true;
    nic->message_bytes_max = NIC_MESSAGE_BYTES_MAX;
    table_init(&rig.nic.device.queues_by_number);
    make_cq(&rig.sends, table);
    make_cq(&rig.receives, shared ? NIC_TABLE_SHARED : NIC_TABLE_RECEIVES);
    if (shared) {
        struct nic_queue_options srq = {.kind = NIC_QUEUE_SRQ, .receives = 31, .receive_pieces = 1};
        nic_queue_init(&rig.srq.device.base, nic, &srq);
        assert_true(nic_queue_make_tables(&rig.srq.device.base, 0, RECEIVES));
        rig.srq.device.base.receives_max = RECEIVES - 1;
        rig.srq.list = (struct receive_queue){.buffer = rig.receive_buffer,
                                              .stride = 32,
                                              .entries = RECEIVES,
                                              .tail = RECEIVES - 1,
                                              .record = &rig.receive_record};
        for (uint32_t i = 0; i < RECEIVES; i++) {
            receive_queue_at(&rig.srq.list, i)->next_wqe_index = htobe16((uint16_t)(i + 1));
        }
        rig.srq.receive_stride = 32;
        rig.srq.receive_record = &rig.receive_record;
        options.receive_queue = &rig.srq.device.base;
    }
    nic_queue_init(&rig.queue.device.base, nic, &options);
    assert_true(nic_queue_make_tables(&rig.queue.device.base, BLOCKS, shared ? 0 : RECEIVES));
    rig.queue.device.base.results = calloc(BLOCKS, sizeof(uint64_t));
    rig.queue.device.base.receives_max = RECEIVES;
    rig.queue.receive_buffer = rig.receive_buffer;
    rig.queue.receive_stride = 16;
    rig.queue.receive_record = &rig.receive_record;
    rig.doorbell = (struct doorbell){.address = rig.device_register,
                                     .push_bytes = 256,
                                     .copy = copy_function_of(copy_choose()),
                                     .users = 1};
    rig.queue.sends = (struct send_queue){.buffer = rig.ring,
                                          .mask = BLOCKS - 1,
                                          .number = NUMBER,
                                          .record = &rig.send_record,
                                          .doorbell = &rig.doorbell};
    assert_true(table_set(&rig.nic.device.queues_by_number, NUMBER, &rig.queue.device.base));
}

static void unmake(void)
{
    free(rig.queue.device.base.results);
    nic_queue_release(&rig.queue.device.base);
    nic_queue_release(&rig.srq.device.base);
    table_free(&rig.nic.device.queues_by_number);
}

/* Returns false if the reader has to make room first. */
static bool write_entry(struct memory_cq *cq, uint8_t opcode, uint32_t number, uint16_t counter)
{
    struct mlx5_cqe64 *entry =
        (struct mlx5_cqe64 *)(void *)(cq->entries + (size_t)(cq->producer % ENTRIES) * 64);
    if (cq->producer - (be32toh(cq->record[0]) & 0xffffffu) == ENTRIES) {
        return false;
    }
    for (uint32_t i = 0; i < 64; i++) {
        ((uint8_t *)entry)[i] = (uint8_t)pick(256);
    }
    entry->sop_drop_qpn = htobe32(number);
    entry->wqe_counter = htobe16(counter);
    entry->op_own = (uint8_t)(opcode << 4 | (cq->producer / ENTRIES & 1));
    cq->producer++;
    return true;
}

/* Any entry but an error of our queue pair, after which nothing may be posted. COMPLETION_DROPPED and
 * MLX5_CQE_INVALID are ours. */
static void write_lie(struct memory_cq *cq, uint16_t near)
{
    static const uint32_t numbers[] = {NUMBER, NUMBER, NUMBER, 0, 0xffffffu, NUMBER + 1};
    uint32_t number = numbers[pick(6)];
    uint16_t counter = pick(3) ? (uint16_t)(near + pick(80) - 40) : (uint16_t)pick(65536);
    uint8_t opcode = (uint8_t)pick(15);
    if (opcode == COMPLETION_DROPPED ||
        (number == NUMBER && (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR))) {
        return;
    }
    write_entry(cq, opcode, number, counter);
}

static uint32_t poll(crpc_completion *done)
{
    uint32_t errors;
    uint32_t count = mlx5_queue_poll(&rig.nic.device.base, done, 1 + pick(CAPACITY), &errors);
    assert_int_equal(errors, 0);
    return count;
}

/* ---- Sends ----------------------------------------------------------------------------------- */

static void run_sends(enum nic_queue_table table, uint64_t seed)
{
    static const uint8_t opcodes[] = {NIC_SEND, NIC_WRITE, NIC_READ, NIC_FETCH_ADD, NIC_NOP};
    crpc_completion done[CAPACITY];
    uint64_t next = 0, completed = 0;
    uint32_t told = 0; /* the device has gone through the ring up to here */
    make(table, false, seed);
    while (completed < OPS) {
        uint32_t key = 7;
        struct nic_work work = {.opcode = opcodes[pick(5)],
                                .flags = NIC_WORK_SIGNAL,
                                .user_data = next,
                                .bytes = 8,
                                .address = (uint64_t)(uintptr_t)rig.device_register};
        if (next < OPS && pick(3)) {
            work.bytes = nic_opcode_is_atomic(work.opcode) || work.opcode == NIC_NOP ? 0 : 8;
            work.flags |= work.bytes && work.opcode != NIC_READ && pick(2) ? NIC_WORK_INLINE : 0;
            work.flags &= (uint8_t)(table == NIC_TABLE_DENSE && pick(2) ? ~NIC_WORK_SIGNAL : 0xff);
            next += mlx5_queue_post(&rig.queue.device.base, &work, &key, NULL, 1);
        }
        if (pick(2)) {
            mlx5_queue_ring(&rig.queue.device.base);
        }
        if (pick(3) == 0) {
            write_lie(&rig.sends, (uint16_t)told);
        }
        while (told != rig.queue.sends.rung && pick(4)) { /* the truth */
            const struct mlx5_wqe_ctrl_seg *control = send_queue_at(&rig.queue.sends, told);
            if (control->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE &&
                !write_entry(&rig.sends, MLX5_CQE_REQ, NUMBER, (uint16_t)told)) {
                break;
            }
            told += wqe_blocks((be32toh(control->qpn_ds) & WQE_UNITS_MAX) * WQE_UNIT_BYTES);
        }
        uint32_t count = poll(done);
        for (uint32_t i = 0; i < count; i++, completed++) {
            assert_true(done[i].user_data < next);
            assert_int_equal(rig.seen[done[i].user_data]++, 0);
            assert_int_equal(done[i].endpoint.bits, 5);
            assert_true(table == NIC_TABLE_UNORDERED || done[i].user_data == completed);
        }
    }
    assert_true(rig.nic.device.base.unknown_completions > 1000);
    unmake();
}

static void test_dense(void **state)
{
    (void)state;
    run_sends(NIC_TABLE_DENSE, 1);
}

static void test_unordered(void **state)
{
    (void)state;
    run_sends(NIC_TABLE_UNORDERED, 2);
}

/* ---- Streams --------------------------------------------------------------------------------- */

#define STREAMS 4u

/* What the device has of a stream: its open WQEs, and whether it flushes them. */
struct stream {
    uint32_t positions[BLOCKS];
    uint32_t first, last;
    bool failed;
};

static void make_streams(uint64_t seed)
{
    struct nic *nic = &rig.nic.device.base;
    const struct nic_queue_options options = {.kind = NIC_QUEUE_DCI,
                                              .table = NIC_TABLE_UNORDERED,
                                              .handle = 5,
                                              .sends = 8,
                                              .send_pieces = 1,
                                              .inline_bytes = 60,
                                              .streams = STREAMS,
                                              .stream_failures_max = STREAMS - 1};
    struct nic_queue *queue = &rig.queue.device.base;
    make(NIC_TABLE_UNORDERED, false, seed);
    nic->dc = true;
    nic->streams_max = STREAMS;
    nic_queue_release(queue);
    queue->receiver = NULL;
    nic_queue_init(queue, nic, &options);
    assert_true(nic_queue_make_tables(queue, BLOCKS, 0));
}

/* Takes in what was rung. */
static uint32_t hear(uint32_t told, struct stream *streams)
{
    while (told != rig.queue.sends.rung) {
        const struct mlx5_wqe_ctrl_seg *control = send_queue_at(&rig.queue.sends, told);
        const uint8_t opcode = (uint8_t)be32toh(control->opmod_idx_opcode);
        struct stream *stream = &streams[be16toh(control->dci_stream_channel_id)];
        assert_in_range(be16toh(control->dci_stream_channel_id), 0, STREAMS - 1);
        if (control->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) {
            stream->positions[stream->last++ % BLOCKS] = told;
        } else {
            assert_int_equal(opcode, MLX5_OPCODE_NOP); /* at the ring's end */
        }
        told += wqe_blocks((be32toh(control->qpn_ds) & WQE_UNITS_MAX) * WQE_UNIT_BYTES);
    }
    return told;
}

/* Completes the oldest of any stream, of which at most two have failed. Returns false if there is no room. */
static bool tell(struct stream *streams, uint32_t *failed)
{
    struct stream *stream = &streams[pick(STREAMS)];
    if (stream->first == stream->last) {
        return true;
    }
    const uint16_t counter = (uint16_t)stream->positions[stream->first % BLOCKS];
    const bool fails = !stream->failed && *failed < 2 && pick(50) == 0;
    struct mlx5_err_cqe *entry =
        (struct mlx5_err_cqe *)(void *)(rig.sends.entries +
                                        (size_t)(rig.sends.producer % ENTRIES) * 64);
    if (!write_entry(&rig.sends, fails || stream->failed ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ, NUMBER,
                     counter)) {
        return false;
    }
    entry->syndrome = fails ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR : MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
    *failed += fails;
    stream->failed |= fails;
    stream->first++;
    return true;
}

/* A device whose streams overtake each other and fail, each by itself. What fails is told of its own stream,
 * whose ops come in order, and it can be reset when these are done. */
static void test_streams(void **state)
{
    static const uint8_t opcodes[] = {NIC_SEND, NIC_WRITE, NIC_READ, NIC_FETCH_ADD, NIC_NOP};
    struct mlx5_target target = {.device.base.kind = NIC_QUEUE_DCI};
    struct nic_target *to = &target.device.base;
    struct stream streams[STREAMS] = {0};
    uint64_t posted = 0, completed = 0, next[STREAMS] = {0}, seen[STREAMS] = {0};
    uint32_t told = 0, failed = 0, resets = 0, overtaken = 0, errors;
    struct nic_queue *queue = &rig.queue.device.base;
    (void)state;
    make_streams(6);
    while (completed < OPS) {
        const uint16_t id = (uint16_t)pick(STREAMS);
        const uint32_t key = 7;
        crpc_completion done[CAPACITY];
        struct nic_work work = {.opcode = opcodes[pick(5)],
                                .stream = id,
                                .user_data = next[id] * STREAMS + id,
                                .address = (uint64_t)(uintptr_t)rig.device_register};
        if (posted < OPS && pick(3)) {
            work.bytes =
                nic_opcode_is_atomic(work.opcode) || work.opcode == NIC_NOP ? 0 : 1 + pick(60);
            work.flags |= work.bytes && work.opcode != NIC_READ && pick(2) ? NIC_WORK_INLINE : 0;
            const uint32_t taken = mlx5_queue_post_to(queue, &work, &to, &key, NULL, 1);
            posted += taken;
            next[id] += taken;
        }
        if (pick(2)) {
            mlx5_queue_ring(queue);
            told = hear(told, streams);
        }
        if (pick(3) == 0) {
            /* Of others, or of what is not open; another lie would not be known as one. */
            write_entry(&rig.sends, pick(2) ? MLX5_CQE_REQ : MLX5_CQE_REQ_ERR, NUMBER + pick(2),
                        (uint16_t)(queue->sends.consumer + BLOCKS + pick(60000)));
        }
        while (pick(4) && tell(streams, &failed)) {
        }
        uint32_t count = mlx5_queue_poll(&rig.nic.device.base, done, 1 + pick(CAPACITY), &errors);
        for (uint32_t i = 0; i < count; i++, completed++) {
            const uint32_t of = done[i].user_data % STREAMS;
            assert_int_equal(done[i].user_data / STREAMS, seen[of]++);
            overtaken += seen[of] > seen[(of + 1) % STREAMS] + 2;
            assert_true(done[i].status == CRPC_OK || nic_queue_stream_failed(queue, (uint16_t)of));
            errors -= done[i].status != CRPC_OK;
        }
        assert_int_equal(errors, 0);
        assert_false(queue->failed);
        assert_in_range(queue->streams_failed, 0, failed);
        if (streams[id].failed && nic_queue_stream_failed(queue, id)) {
            const bool open = seen[id] != next[id];
            assert_int_equal(nic_queue_check_stream(queue, id, NULL),
                             open ? CRPC_E_STATE : CRPC_OK);
            if (!open) {
                nic_queue_renew_stream(queue, id);
                streams[id].failed = false;
                failed--;
                resets++;
            }
        }
    }
    assert_true(resets > 100 && overtaken > 1000);
    assert_true(rig.nic.device.base.unknown_completions > 1000);
    unmake();
}

/* Flushed, and its stream has not failed: then the queue has. */
static void test_streams_end(void **state)
{
    struct mlx5_target target = {.device.base.kind = NIC_QUEUE_DCI};
    struct nic_target *to = &target.device.base;
    const struct nic_work work = {.opcode = NIC_NOP, .stream = 2};
    const uint32_t key = 0;
    struct stream streams[STREAMS] = {{.failed = true}, {.failed = true}, {.failed = true}};
    crpc_completion done[CAPACITY];
    uint32_t failed = 3, errors;
    (void)state;
    make_streams(7);
    assert_int_equal(mlx5_queue_post_to(&rig.queue.device.base, &work, &to, &key, NULL, 1), 1);
    mlx5_queue_ring(&rig.queue.device.base);
    hear(0, streams);
    while (rig.sends.producer == 0) {
        assert_true(tell(streams, &failed));
    }
    assert_int_equal(mlx5_queue_poll(&rig.nic.device.base, done, CAPACITY, &errors), 1);
    assert_int_equal(done[0].status, -NIC_ERROR_FLUSHED);
    assert_true(rig.queue.device.base.failed);
    assert_int_equal(rig.queue.device.base.streams_failed, 0);
    unmake();
}

/* ---- Receives -------------------------------------------------------------------------------- */

static void run_receives(bool shared, uint64_t seed)
{
    struct mlx5_queue *receiver = shared ? &rig.srq : &rig.queue;
    crpc_completion done[CAPACITY];
    uint64_t next = 0, completed = 0;
    uint32_t taken = 0; /* receives that the device has completed */
    uint32_t head = 0;  /* of its list */
    make(NIC_TABLE_DENSE, shared, seed);
    while (completed < OPS) {
        struct nic_piece piece = {.address = 4096, .bytes = 64, .local_key = 7};
        if (next < OPS && pick(3)) {
            next += mlx5_queue_receive(&receiver->device.base, next, &piece, 1);
        }
        if (pick(2)) {
            mlx5_queue_ring(&receiver->device.base);
        }
        if (pick(3) == 0) {
            write_lie(&rig.receives, (uint16_t)(shared ? head : taken));
        }
        if ((uint16_t)taken != (uint16_t)be32toh(rig.receive_record) && pick(3) &&
            write_entry(&rig.receives, MLX5_CQE_RESP_SEND_IMM, NUMBER,
                        (uint16_t)(shared ? head : taken))) {
            if (shared) {
                head = be16toh(receive_queue_at(&rig.srq.list, head)->next_wqe_index);
            }
            taken++;
        }
        uint32_t count = poll(done);
        for (uint32_t i = 0; i < count; i++, completed++) {
            assert_true(done[i].user_data < next);
            assert_int_equal(rig.seen[done[i].user_data]++, 0);
            assert_int_equal(done[i].method, NIC_RECEIVE);
        }
        assert_in_range(receiver->device.base.receives_open, 0, receiver->device.base.receives_max);
        assert_int_equal(receiver->device.base.receives_open, next - completed);
    }
    assert_true(rig.nic.device.base.unknown_completions > 1000);
    unmake();
}

static void test_receives(void **state)
{
    (void)state;
    run_receives(false, 3);
}

static void test_shared(void **state)
{
    (void)state;
    run_receives(true, 4);
}

/* A receive that is to complete without a CQE: no CQE takes it away. */
static void test_ended(void **state)
{
    (void)state;
    crpc_completion done[CAPACITY];
    struct nic_piece piece = {.address = 4096, .bytes = 64, .local_key = 7};
    make(NIC_TABLE_DENSE, true, 5);
    assert_true(mlx5_queue_receive(&rig.srq.device.base, 77, &piece, 1));
    mlx5_queue_ring(&rig.srq.device.base);
    nic_queue_end_receive(&rig.srq.device.base, 0);
    assert_true(write_entry(&rig.receives, MLX5_CQE_RESP_SEND, NUMBER, 0));
    assert_int_equal(poll(done), 0);
    assert_int_equal(rig.nic.device.base.unknown_completions, 1);
    assert_int_equal(nic_queue_take_ended(&rig.srq.device.base, done, CAPACITY), 1);
    assert_int_equal(done[0].user_data, 77);
    assert_int_equal(rig.srq.device.base.receives_open, 0);
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),       cmocka_unit_test(test_unordered),
        cmocka_unit_test(test_receives),    cmocka_unit_test(test_shared),
        cmocka_unit_test(test_ended),       cmocka_unit_test(test_streams),
        cmocka_unit_test(test_streams_end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* queue_rounds.c: the same WRITEs with immediate, by libmlx5 and by core/nic/mlx5, for callgrind.
 *
 *   queue_rounds (libmlx5|direct) DEVICE ROUNDS
 *   queue_rounds (write|write_immediate) DEVICE ROUNDS
 *   queue_rounds pair DEVICE ROUNDS
 *   queue_rounds empty DEVICE ROUNDS QPS
 *
 * A round posts 64 WRITEs of 32 bytes, inline, one in 64 signaled; takes the send completion and
 * the 64 receive completions; and posts the receives again. Two queue pairs of one nic, connected
 * with each other, so both sides are here. `write`, `write_immediate`: the same WRITEs, posted by that
 * operation of the direct driver. `pair`: by libmlx5, one ibv_post_send for each, not inline, all
 * signaled, on both queue pairs by turns: two of them are what a message over two rails is compared
 * with. `empty`: polls that find nothing, with QPS queue pairs: first ROUNDS, then three times as many.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "give_up.h"
#include "nic/mlx5/mlx5.h"
#include "nic/nic.h"
#include "not_inlined.h"

#define BATCH 64u
#define BYTES 32u
#define PAUSE_US 300

static struct nic *nic;
static struct nic_queue_pair *queue_pairs[4096];
static struct nic_keys memory;
static uint8_t bytes[BATCH * BYTES * 2];

static void open_nic(const char *device, uint32_t driver, uint32_t count)
{
    struct nic_options options = {.receive_depth = 1024,
                                  .send_depth = 128,
                                  .send_completion_depth = 1024,
                                  .signal_interval = BATCH};
    crpc_error error = {0};
    snprintf(options.device, sizeof(options.device), "%s", device);
    need(nic_open(driver, &options, &nic, &error), &error);
    need(nic->operations->memory_register(nic, NULL, bytes, sizeof(bytes), 0,
                                          CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                          &memory, &error),
         &error);
    for (uint32_t i = 0; i < count; i++) {
        need(nic_queue_pair_create(nic, NULL, NULL, 0, &queue_pairs[i], &error), &error);
    }
    if (count < 2) {
        return;
    }
    struct nic_address addresses[2];
    const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    for (int i = 0; i < 2; i++) {
        nic->operations->queue_pair_address(queue_pairs[i], &addresses[i]);
    }
    for (int i = 0; i < 2; i++) {
        need(
            nic->operations->queue_pair_connect(queue_pairs[i], &addresses[!i], &transport, &error),
            &error);
    }
}

/* ---- Waiting, which is not counted ------------------------------------------------------------ */

/* Entries of a completion queue, looked at from outside. */
struct view {
    const uint8_t *entries;
    uint32_t mask;
    uint32_t shift;
    uint32_t expected; /* index of the next round's first */
};

static struct view receive_view, send_view;

static struct view view_of(struct ibv_cq *cq)
{
    struct mlx5dv_cq found = {0};
    struct mlx5dv_obj object = {.cq = {.in = cq, .out = &found}};
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ)) {
        give_up("the completion queue is not libmlx5's");
    }
    return (struct view){.entries = (uint8_t *)found.buf + found.cqe_size - 64,
                         .mask = found.cqe_cnt - 1,
                         .shift = (uint32_t)__builtin_ctz(found.cqe_size)};
}

/* Until the device has written so many more, so that the poll that is counted finds them all. */
static void wait_for(struct view *view, uint32_t count)
{
    view->expected += count;
    uint32_t last = view->expected - 1;
    const uint8_t *op_own = view->entries + ((size_t)(last & view->mask) << view->shift) + 63;
    uint8_t lap = (uint8_t)(last / (view->mask + 1)) & 1;
    for (uint32_t tries = 0; tries < 100000; tries++) {
        uint8_t value = *(const volatile uint8_t *)op_own;
        if (value >> 4 != MLX5_CQE_INVALID && (value & 1) == lap) {
            return;
        }
        usleep(PAUSE_US);
    }
    give_up("completions do not come");
}

/* ---- libmlx5 --------------------------------------------------------------------------------- */

static struct ibv_cq *verbs_send_cq, *verbs_receive_cq;
static struct ibv_srq *verbs_srq;
static struct ibv_send_wr send_requests[BATCH];
static struct ibv_sge pieces[BATCH];
static struct ibv_recv_wr receive_requests[BATCH];
static struct ibv_wc entries[BATCH];

static void prepare_verbs(void)
{
    verbs_send_cq = device_qp(queue_pairs[0])->send_cq;
    verbs_receive_cq = device_qp(queue_pairs[0])->recv_cq;
    verbs_srq = device_qp(queue_pairs[0])->srq;
    for (uint32_t i = 0; i < BATCH; i++) {
        pieces[i] = (struct ibv_sge){.addr = (uint64_t)(uintptr_t)(bytes + (size_t)i * BYTES),
                                     .length = BYTES,
                                     .lkey = memory.local_key};
        send_requests[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = i + 1 < BATCH ? &send_requests[i + 1] : NULL,
            .sg_list = &pieces[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
            .send_flags = IBV_SEND_INLINE | (i + 1 == BATCH ? IBV_SEND_SIGNALED : 0),
            .imm_data = htonl(i),
            .wr.rdma = {.remote_addr =
                            (uint64_t)(uintptr_t)(bytes + sizeof(bytes) / 2 + (size_t)i * BYTES),
                        .rkey = memory.remote_key}};
        receive_requests[i].next = i + 1 < BATCH ? &receive_requests[i + 1] : NULL;
    }
}

NOT_INLINED static void bench_libmlx5_post(void)
{
    struct ibv_send_wr *refused;
    if (ibv_post_send(device_qp(queue_pairs[0]), send_requests, &refused)) {
        give_up("ibv_post_send failed");
    }
}

NOT_INLINED static uint32_t bench_libmlx5_poll(uint32_t *sends)
{
    int count = ibv_poll_cq(verbs_receive_cq, BATCH, entries);
    for (int i = 0; i < count; i++) {
        if (entries[i].status != IBV_WC_SUCCESS) {
            give_up("a receive failed");
        }
    }
    struct ibv_wc done[2];
    *sends += (uint32_t)ibv_poll_cq(verbs_send_cq, 2, done);
    return (uint32_t)count;
}

NOT_INLINED static void bench_libmlx5_refill(void)
{
    struct ibv_recv_wr *refused;
    if (ibv_post_srq_recv(verbs_srq, receive_requests, &refused)) {
        give_up("ibv_post_srq_recv failed");
    }
}

static void round_libmlx5(void)
{
    uint32_t sends = 0;
    bench_libmlx5_post();
    wait_for(&receive_view, BATCH);
    wait_for(&send_view, 1);
    if (bench_libmlx5_poll(&sends) != BATCH || sends != 1) {
        give_up("not all completions were found");
    }
    bench_libmlx5_refill();
}

/* ---- libmlx5, each WRITE posted alone --------------------------------------------------------- */

static void prepare_pair(void)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        send_requests[i].next = NULL;
        send_requests[i].send_flags = IBV_SEND_SIGNALED;
    }
}

NOT_INLINED static void bench_pair_post(void)
{
    struct ibv_send_wr *refused;
    for (uint32_t i = 0; i < BATCH; i++) {
        if (ibv_post_send(device_qp(queue_pairs[i & 1]), &send_requests[i], &refused)) {
            give_up("ibv_post_send failed");
        }
    }
}

NOT_INLINED static uint32_t bench_pair_send_poll(void)
{
    return (uint32_t)ibv_poll_cq(verbs_send_cq, BATCH, entries);
}

NOT_INLINED static uint32_t bench_pair_receive_poll(void)
{
    return (uint32_t)ibv_poll_cq(verbs_receive_cq, BATCH, entries);
}

static void round_pair(void)
{
    bench_pair_post();
    wait_for(&receive_view, BATCH);
    wait_for(&send_view, BATCH);
    if (bench_pair_receive_poll() != BATCH || bench_pair_send_poll() != BATCH) {
        give_up("not all completions were found");
    }
    bench_libmlx5_refill();
}

/* ---- Direct: the queues themselves ----------------------------------------------------------- */

static struct mlx5_nic *direct;
static struct mlx5_queue_pair *sender;

NOT_INLINED static void bench_direct_post(void)
{
    struct send_queue *queue = &sender->queue;
    uint32_t filled;
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint8_t *from = bytes + (size_t)i * BYTES;
        const uint8_t *to = bytes + sizeof(bytes) / 2 + (size_t)i * BYTES;
        uint8_t *wqe = send_queue_begin(queue, 2, &filled);
        if (!wqe) {
            give_up("the send queue is full");
        }
        void *segment = wqe_remote_address(wqe + sizeof(struct mlx5_wqe_ctrl_seg),
                                           (uint64_t)(uintptr_t)to, memory.remote_key);
        segment = wqe_inline(segment, from, BYTES);
        uint32_t position = queue->producer;
        bool signaled = i + 1 == BATCH;
        send_queue_end(queue, wqe, segment, MLX5_OPCODE_RDMA_WRITE_IMM,
                       signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0, htonl(i));
        if (signaled) {
            tracking_post(&sender->tracking, position, queue->producer, i, TRACKING_SIGNALED);
        }
    }
    send_queue_ring(queue);
}

NOT_INLINED static uint32_t bench_direct_poll(uint32_t *sends)
{
    struct mlx5_nic *mlx5 = direct;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    while ((entry = completion_queue_next(&mlx5->receives, COMPLETION_PLAIN)) != NULL) {
        if (completion_opcode(entry) != MLX5_CQE_RESP_WR_IMM ||
            table_get(&mlx5->device.by_number, completion_number(entry)) == NULL) {
            give_up("a receive failed");
        }
        receive_queue_free(&mlx5->receive_queue, be16toh(entry->wqe_counter));
        completion_queue_advance(&mlx5->receives, COMPLETION_PLAIN);
        count++;
    }
    completion_queue_release(&mlx5->receives);
    while ((entry = completion_queue_next(&mlx5->sends, COMPLETION_PLAIN)) != NULL) {
        uint32_t position;
        if (completion_opcode(entry) != MLX5_CQE_REQ ||
            !tracking_find(&sender->tracking, be16toh(entry->wqe_counter), &position)) {
            give_up("a send failed");
        }
        tracking_sparse_take(&sender->tracking, position);
        sender->queue.consumer = sender->tracking.consumer;
        completion_queue_advance(&mlx5->sends, COMPLETION_PLAIN);
        ++*sends;
    }
    completion_queue_release(&mlx5->sends);
    return count;
}

NOT_INLINED static void bench_direct_refill(void)
{
    receive_queue_post(&direct->receive_queue, BATCH);
}

static void round_direct(void)
{
    uint32_t sends = 0;
    bench_direct_post();
    wait_for(&receive_view, BATCH);
    wait_for(&send_view, 1);
    if (bench_direct_poll(&sends) != BATCH || sends != 1) {
        give_up("not all completions were found");
    }
    bench_direct_refill();
}

/* ---- The driver's operations ----------------------------------------------------------------- */

typedef void post_operation(struct nic_queue_pair *, const struct nic_transfer *, uint32_t);

NOT_INLINED static void bench_operation_post(post_operation *post)
{
    struct nic_transfer transfer = {
        .bytes = BYTES, .local_key = memory.local_key, .remote_key = memory.remote_key};
    for (uint32_t i = 0; i < BATCH; i++) {
        transfer.local_address = (uint64_t)(uintptr_t)(bytes + (size_t)i * BYTES);
        transfer.remote_address = transfer.local_address + sizeof(bytes) / 2;
        transfer.immediate = i;
        post(queue_pairs[0], &transfer, i + 1 == BATCH ? NIC_POST_SIGNALED : 0);
    }
}

static void round_operation(post_operation *post)
{
    struct nic_completion completions[2 * BATCH];
    bench_operation_post(post);
    nic->operations->ring_doorbell(queue_pairs[0]);
    for (uint32_t tries = 0; queue_pairs[0]->completed != queue_pairs[0]->posted; tries++) {
        if (tries == 100000 || queue_pairs[0]->failed) {
            give_up("completions do not come");
        }
        nic->operations->poll(nic, completions, 2 * BATCH);
        usleep(PAUSE_US);
    }
    nic->operations->refill(nic);
}

/* ---- Empty polls ----------------------------------------------------------------------------- */

NOT_INLINED static void bench_empty_poll(uint64_t rounds)
{
    struct nic_completion completions[64];
    for (uint64_t i = 0; i < rounds; i++) {
        if (nic->operations->poll(nic, completions, 64) != 0) {
            give_up("an empty poll found something");
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr,
                "usage: queue_rounds (libmlx5|direct|pair|write|write_immediate|empty) DEVICE "
                "ROUNDS [QPS]\n");
        return 2;
    }
    bool pair = strcmp(argv[1], "pair") == 0;
    bool verbs = pair || strcmp(argv[1], "libmlx5") == 0;
    uint64_t rounds = strtoull(argv[3], NULL, 0);
    uint32_t count = argc > 4 ? (uint32_t)atoi(argv[4]) : 2;
    count = count < 1 ? 1 : count > 4096 ? 4096 : count;
    open_nic(argv[2], verbs ? CRPC_DRIVER_VERBS : CRPC_DRIVER_MLX5, count);
    if (strcmp(argv[1], "empty") == 0) {
        bench_empty_poll(rounds);
        bench_empty_poll(3 * rounds);
        return 0;
    }
    if (strncmp(argv[1], "write", 5) == 0) {
        bool immediate = strcmp(argv[1], "write_immediate") == 0;
        for (uint64_t i = 0; i < rounds; i++) {
            round_operation(immediate ? nic->operations->post_write_immediate
                                      : nic->operations->post_write);
        }
        return 0;
    }
    receive_view = view_of(device_qp(queue_pairs[0])->recv_cq);
    send_view = view_of(device_qp(queue_pairs[0])->send_cq);
    if (verbs) {
        prepare_verbs();
        if (pair) {
            prepare_pair();
        }
    } else {
        direct = to_mlx5_nic(nic);
        sender = to_mlx5_queue_pair(queue_pairs[0]);
    }
    for (uint64_t i = 0; i < rounds; i++) {
        if (pair) {
            round_pair();
        } else if (verbs) {
            round_libmlx5();
        } else {
            round_direct();
        }
    }
    return 0;
}

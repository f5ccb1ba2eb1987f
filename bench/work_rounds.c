/* work_rounds.c: ops of queues with user data, by libmlx5 and by the direct driver, for callgrind.
 *
 *   work_rounds (libmlx5|libmlx5_each|direct)[,...] (write|send|read|datagram|dc|dc_streams)[,...] DEVICE ROUNDS
 *
 * Each kind in turn does each of the ops in turn, with nics of its own: under callgrind most of a start is the first
 * opening.
 * A round posts 64 ops of 32 bytes, WRITEs and SENDs inline, and takes their completions. Ours gives back the
 * user data of each. libmlx5 does that only for those that are signaled: the last, or each of them.
 * Receives of SENDs belong to another nic, and are not counted. Datagrams find none. dc: WRITEs from a DCI,
 * which libmlx5 has ibv_wr_* for; with streams, each op is in the next of 8, and all are signaled. */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "give_up.h"
#include "nic/mlx5/mlx5.h"
#include "not_inlined.h"

#define BATCH 64u
#define BYTES 32u
#define PAUSE_US 300
#define TRY_AGAIN 75

static struct nic *nics[2];
static struct nic_queue *queues[2];
static struct nic_queue *shared_queue; /* of the DCT */
static struct nic_keys keys[2];
static uint8_t memory[2][BATCH * BYTES];
static uint8_t opcode;
static struct nic_target *target; /* of datagrams and DC; NULL = the queues are connected */
static bool dc;
static uint32_t streams;

static void make_queue(uint32_t side, const struct nic_queue_options *options,
                       struct nic_queue **queue)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (nics[side]->operations->queues->create(nics[side], NULL, options, queue, &error)) {
        give_up(error.message);
    }
}

/* A DCI here, a DCT there. */
static void make_dc_queue(uint32_t side)
{
    const struct nic_queue_options dci = {.kind = NIC_QUEUE_DCI,
                                          .table =
                                              streams > 0 ? NIC_TABLE_UNORDERED : NIC_TABLE_DENSE,
                                          .handle = 1,
                                          .sends = 2 * BATCH,
                                          .send_pieces = 1,
                                          .inline_bytes = 60,
                                          .streams = streams,
                                          .transport = {.retry_timeout = 14, .retry_count = 7}};
    const struct nic_queue_options srq = {
        .kind = NIC_QUEUE_SRQ, .receives = BATCH, .receive_pieces = 1};
    struct nic_queue_options dct = {.kind = NIC_QUEUE_DCT, .handle = 2};
    if (side == 0) {
        make_queue(0, &dci, &queues[0]);
        return;
    }
    make_queue(1, &srq, &shared_queue);
    dct.receive_queue = shared_queue;
    make_queue(1, &dct, &queues[1]);
}

static void open_side(const char *device, uint32_t driver, uint32_t side, uint32_t kind)
{
    struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 8};
    const struct nic_queue_options queue = {.kind = kind,
                                            .table = NIC_TABLE_DENSE,
                                            .handle = 1 + side,
                                            .sends = 2 * BATCH,
                                            .send_pieces = 1,
                                            .inline_bytes = 60,
                                            .receives = 2 * BATCH,
                                            .receive_pieces = 1};
    crpc_error error = {.struct_size = sizeof(error)};
    snprintf(options.device, sizeof(options.device), "%s", device);
    if (nic_open(driver, &options, &nics[side], &error) ||
        nics[side]->operations->memory_register(
            nics[side], NULL, memory[side], sizeof(memory[side]), 0,
            CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ,
            &keys[side], &error)) {
        give_up(error.message);
    }
    if (dc) {
        make_dc_queue(side);
    } else {
        make_queue(side, &queue, &queues[side]);
    }
}

static void connect_sides(void)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_address addresses[2];
    crpc_error error = {.struct_size = sizeof(error)};
    for (uint32_t i = 0; i < 2; i++) {
        nics[i]->operations->queue_pair_address(queues[i]->pair, &addresses[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (nics[i]->operations->queue_pair_connect(queues[i]->pair, &addresses[!i], &transport,
                                                    &error)) {
            give_up(error.message);
        }
    }
}

static void make_target(void)
{
    struct nic_target_options options = {.kind = queues[0]->kind};
    crpc_error error = {.struct_size = sizeof(error)};
    nics[1]->operations->queue_pair_address(queues[1]->pair, &options.address);
    if (nics[0]->operations->queues->target_create(nics[0], NULL, &options, &target, &error)) {
        give_up(error.message);
    }
}

static void post_receives(void)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        struct nic_piece piece = {(uint64_t)(uintptr_t)(memory[1] + (size_t)i * BYTES), BYTES,
                                  keys[1].local_key};
        nics[1]->operations->queues->receive(queues[1], i, &piece, 1);
    }
    nics[1]->operations->queues->ring(queues[1]);
}

static void take_receives(void)
{
    crpc_completion done[BATCH];
    uint32_t errors, count = 0;
    while (count < BATCH) {
        count += nics[1]->operations->queues->poll(nics[1], done, BATCH - count, &errors);
    }
}

/* Until this entry of a completion queue is written, so that the poll that is counted finds all. */
static void wait_for(const struct completion_queue *queue, uint32_t index)
{
    for (uint32_t tries = 0; tries < 100000; tries++) {
        const struct mlx5_cqe64 *entry = completion_queue_at(queue, index);
        if (completion_is_ours(entry, index >> queue->laps, COMPLETION_PLAIN) &&
            completion_opcode(entry) != MLX5_CQE_INVALID) {
            return;
        }
        usleep(PAUSE_US);
    }
    give_up("completions do not come");
}

/* ---- libmlx5 --------------------------------------------------------------------------------- */

static struct ibv_send_wr requests[BATCH];
static struct ibv_sge pieces[BATCH];
static struct ibv_wc entries[BATCH];
static struct completion_queue view;
static uint32_t signaled, expected;

static void prepare_libmlx5(bool each)
{
    static const enum ibv_wr_opcode theirs[NIC_OPCODES] = {
        [NIC_SEND] = IBV_WR_SEND, [NIC_WRITE] = IBV_WR_RDMA_WRITE, [NIC_READ] = IBV_WR_RDMA_READ};
    for (uint32_t i = 0; i < BATCH; i++) {
        pieces[i] = (struct ibv_sge){(uint64_t)(uintptr_t)(memory[0] + (size_t)i * BYTES), BYTES,
                                     keys[0].local_key};
        requests[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = i + 1 < BATCH ? &requests[i + 1] : NULL,
            .sg_list = &pieces[i],
            .num_sge = 1,
            .opcode = theirs[opcode],
            .send_flags = (opcode == NIC_READ ? 0 : (unsigned)IBV_SEND_INLINE) |
                          (each || i + 1 == BATCH ? (unsigned)IBV_SEND_SIGNALED : 0),
            .wr.rdma = {(uint64_t)(uintptr_t)(memory[1] + (size_t)i * BYTES), keys[1].remote_key}};
        if (target && !dc) {
            requests[i].wr.ud.ah = to_device_target(target)->ah;
            requests[i].wr.ud.remote_qpn = target->queue_pair_number;
            requests[i].wr.ud.remote_qkey = target->queue_key;
        }
    }
    signaled = each ? BATCH : 1;
    if (mlx5_find_completion_queue(device_qp(queues[0]->pair)->send_cq, false, &view)) {
        give_up("the completion queue is not libmlx5's");
    }
}

static void post_dc(void)
{
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(device_qp(queues[0]->pair));
    struct mlx5dv_qp_ex *direct = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
    struct ibv_ah *ah = to_device_target(target)->ah;
    ibv_wr_start(qp);
    for (uint32_t i = 0; i < BATCH; i++) {
        qp->wr_id = requests[i].wr_id;
        qp->wr_flags = requests[i].send_flags & (unsigned)IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, requests[i].wr.rdma.rkey, requests[i].wr.rdma.remote_addr);
        if (streams > 0) {
            mlx5dv_wr_set_dc_addr_stream(direct, ah, target->queue_pair_number, target->access_key,
                                         (uint16_t)(i % streams));
        } else {
            mlx5dv_wr_set_dc_addr(direct, ah, target->queue_pair_number, target->access_key);
        }
        ibv_wr_set_inline_data(qp, (void *)(uintptr_t)pieces[i].addr, pieces[i].length);
    }
    if (ibv_wr_complete(qp)) {
        give_up("ibv_wr_complete failed");
    }
}

NOT_INLINED static void bench_libmlx5_post(void)
{
    struct ibv_send_wr *refused;
    if (dc) {
        post_dc();
    } else if (ibv_post_send(device_qp(queues[0]->pair), requests, &refused)) {
        give_up("ibv_post_send failed");
    }
}

NOT_INLINED static uint32_t bench_libmlx5_poll(void)
{
    int count = ibv_poll_cq(device_qp(queues[0]->pair)->send_cq, BATCH, entries);
    for (int i = 0; i < count; i++) {
        if (entries[i].status != IBV_WC_SUCCESS) {
            give_up("an op failed");
        }
    }
    return (uint32_t)count;
}

static void round_libmlx5(void)
{
    bench_libmlx5_post();
    expected += signaled;
    wait_for(&view, expected - 1);
    if (bench_libmlx5_poll() != signaled) {
        give_up("not all completions were found");
    }
}

/* ---- Direct ---------------------------------------------------------------------------------- */

static struct nic_work works[BATCH];
static uint32_t local_keys[BATCH];
static struct nic_target *targets[BATCH];
static crpc_completion completions[BATCH];

static void prepare_direct(void)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        local_keys[i] = keys[0].local_key;
        targets[i] = target;
        works[i] = (struct nic_work){
            .opcode = opcode,
            .flags = opcode == NIC_READ ? 0 : NIC_WORK_INLINE,
            .stream = (uint16_t)(streams > 0 ? i % streams : 0),
            .user_data = i,
            .address = (uint64_t)(uintptr_t)(memory[0] + (size_t)i * BYTES),
            .bytes = BYTES,
            .remote_key = keys[1].remote_key,
            .remote_address = (uint64_t)(uintptr_t)(memory[1] + (size_t)i * BYTES)};
    }
}

NOT_INLINED static void bench_direct_post(void)
{
    const struct nic_queue_operations *operations = nics[0]->operations->queues;
    if (operations->post(queues[0], works, local_keys, NULL, BATCH) != BATCH) {
        give_up("the queue is full");
    }
    operations->ring(queues[0]);
}

NOT_INLINED static void bench_direct_targets(void)
{
    const struct nic_queue_operations *operations = nics[0]->operations->queues;
    if (operations->post_to(queues[0], works, targets, local_keys, NULL, BATCH) != BATCH) {
        give_up("the queue is full");
    }
    operations->ring(queues[0]);
}

NOT_INLINED static uint32_t bench_direct_poll(void)
{
    uint32_t errors;
    uint32_t count = nics[0]->operations->queues->poll(nics[0], completions, BATCH, &errors);
    if (errors) {
        give_up("an op failed");
    }
    return count;
}

static void round_direct(void)
{
    const struct completion_queue *found =
        &to_mlx5_source(to_device_queue(queues[0])->send_source)->completions;
    uint64_t before = queues[0]->stats.signaled;
    if (target) {
        bench_direct_targets();
    } else {
        bench_direct_post();
    }
    wait_for(found, found->consumer + (uint32_t)(queues[0]->stats.signaled - before) - 1);
    if (bench_direct_poll() != BATCH) {
        give_up("not all completions were found");
    }
}

/* ---------------------------------------------------------------------------------------------- */

static void open_sides(const char *device, bool direct, uint32_t kind)
{
    target = NULL;
    expected = 0;
    for (uint32_t i = 0; i < 2; i++) {
        open_side(device, direct || i == 1 ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS, i, kind);
    }
    if (dc || kind == NIC_QUEUE_UD) {
        make_target();
    } else {
        connect_sides();
    }
}

static void close_sides(void)
{
    if (target) {
        nics[0]->operations->queues->target_destroy(target);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct nic_operations *operations = nics[i]->operations;
        operations->queues->stop(queues[i]);
        operations->queues->destroy(queues[i]);
        if (i == 1 && dc) {
            operations->queues->stop(shared_queue);
            operations->queues->destroy(shared_queue);
        }
        operations->memory_deregister(nics[i], &keys[i]);
        operations->close(nics[i]);
    }
}

static void run(const char *kind, const char *operation, const char *device, uint64_t rounds)
{
    const bool direct = strcmp(kind, "direct") == 0;
    const bool datagrams = strcmp(operation, "datagram") == 0;
    dc = strncmp(operation, "dc", 2) == 0;
    streams = strcmp(operation, "dc_streams") == 0 ? 8 : 0;
    opcode = strcmp(operation, "send") == 0 || datagrams ? NIC_SEND
             : strcmp(operation, "read") == 0            ? NIC_READ
                                                         : NIC_WRITE;
    open_sides(device, direct, datagrams ? NIC_QUEUE_UD : NIC_QUEUE_RC);
    if (direct) {
        prepare_direct();
    } else {
        prepare_libmlx5(strcmp(kind, "libmlx5_each") == 0);
    }
    for (uint64_t i = 0; i < rounds; i++) {
        if (opcode == NIC_SEND && !target) {
            post_receives();
        }
        if (direct) {
            round_direct();
        } else {
            round_libmlx5();
        }
        if (opcode == NIC_SEND && !target) {
            take_receives();
        }
    }
    close_sides();
}

/* The next word of a list with commas, or NULL. */
static const char *next(const char **list, char word[static 32])
{
    size_t length = strcspn(*list, ",");
    if (length == 0 || length >= 32) {
        return NULL;
    }
    memcpy(word, *list, length);
    word[length] = 0;
    *list += length + ((*list)[length] == ',');
    return word;
}

int main(int argc, char **argv)
{
    char kind[32], operation[32];
    if (argc != 5) {
        fprintf(stderr, "usage: work_rounds (libmlx5|libmlx5_each|direct)[,...] "
                        "(write|send|read|datagram|dc|dc_streams)[,...] DEVICE ROUNDS\n");
        return 2;
    }
    for (const char *kinds = argv[1]; next(&kinds, kind);) {
        for (const char *operations = argv[2]; next(&operations, operation);) {
            run(kind, operation, argv[3], strtoull(argv[4], NULL, 0));
        }
    }
    return 0;
}

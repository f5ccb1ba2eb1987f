/* dc_test.c: DCIs and DCTs through libmlx5, in one process and in two; to be run under simnic. What
 * must work, whatever the fabric loses; with the argument "trouble", what must fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_BYTES (1u << 20)
#define KEY 0x1122334455667788u
#define GID_INDEX 3 /* RoCE v2, IPv4 */
#define PATIENCE_S 20
#define RECEIVE_BYTES 32768u
#define LONG_BYTES 20000u /* packets of a message: five */

struct end {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *sends, *receives;
    struct ibv_srq *srq;
    struct ibv_ah *address;
    struct ibv_mr *region;
    uint8_t *memory; /* the lower half is sent from, the upper half received to */
};

struct initiator {
    struct ibv_qp *qp;
    struct ibv_qp_ex *extended;
    struct mlx5dv_qp_ex *driver;
    struct end *end;
};

/* Where a request goes. */
struct place {
    uint32_t target, key;
    uint64_t access_key, address;
};

static struct ibv_ah_attr address_of(struct ibv_context *context)
{
    struct ibv_ah_attr a = {
        .is_global = 1, .port_num = 1, .grh = {.sgid_index = GID_INDEX, .hop_limit = 64}};
    assert_int_equal(ibv_query_gid(context, 1, GID_INDEX, &a.grh.dgid), 0);
    return a;
}

static void open_end(struct end *end)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 64, .max_sge = 2}};
    assert_non_null(list);
    assert_non_null(list[0]);
    end->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(end->context);
    end->domain = ibv_alloc_pd(end->context);
    end->sends = ibv_create_cq(end->context, 256, NULL, NULL, 0);
    end->receives = ibv_create_cq(end->context, 256, NULL, NULL, 0);
    end->srq = ibv_create_srq(end->domain, &srq);
    end->memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end->region = ibv_reg_mr(end->domain, end->memory, MEMORY_BYTES,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_true(end->domain && end->sends && end->receives && end->srq && end->region);
    struct ibv_ah_attr a = address_of(end->context);
    end->address = ibv_create_ah(end->domain, &a);
    assert_non_null(end->address);
}

static void close_end(struct end *end)
{
    assert_int_equal(ibv_destroy_ah(end->address), 0);
    assert_int_equal(ibv_dereg_mr(end->region), 0);
    assert_int_equal(ibv_destroy_srq(end->srq), 0);
    assert_int_equal(ibv_destroy_cq(end->sends), 0);
    assert_int_equal(ibv_destroy_cq(end->receives), 0);
    assert_int_equal(ibv_dealloc_pd(end->domain), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
    munmap(end->memory, MEMORY_BYTES);
}

/* In state INIT: its number is not known yet. */
static struct ibv_qp *new_target(struct end *end)
{
    struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_DRIVER,
                                    .send_cq = end->receives,
                                    .recv_cq = end->receives,
                                    .srq = end->srq,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD,
                                    .pd = end->domain};
    struct mlx5dv_qp_init_attr d = {
        .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
        .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = KEY}};
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                               IBV_ACCESS_REMOTE_ATOMIC};
    struct ibv_qp *dct = mlx5dv_create_qp(end->context, &a, &d);
    assert_non_null(dct);
    assert_int_equal(dct->qp_num, 0);
    assert_int_equal(
        ibv_modify_qp(dct, &m,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    return dct;
}

static void start_target(struct end *end, struct ibv_qp *dct)
{
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_4096,
                            .min_rnr_timer = 1,
                            .ah_attr = address_of(end->context)};
    int mask = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV;
    assert_int_not_equal(ibv_modify_qp(dct, &m, mask), 0); /* no RNR timer */
    assert_int_equal(ibv_modify_qp(dct, &m, mask | IBV_QP_MIN_RNR_TIMER), 0);
    assert_int_not_equal(dct->qp_num, 0);
    m.qp_state = IBV_QPS_RTS; /* there is none */
    assert_int_not_equal(ibv_modify_qp(dct, &m, IBV_QP_STATE), 0);
}

static struct ibv_qp *ready_target(struct end *end)
{
    struct ibv_qp *dct = new_target(end);
    start_target(end, dct);
    return dct;
}

static void start_initiator(struct ibv_qp *dci, uint8_t rnr_retry)
{
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    assert_int_equal(ibv_modify_qp(dci, &m, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
    m = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .ah_attr = address_of(dci->context)};
    assert_int_equal(ibv_modify_qp(dci, &m, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV), 0);
    m = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = 11,
                             .retry_cnt = 7,
                             .rnr_retry = rnr_retry,
                             .max_rd_atomic = 8};
    assert_int_equal(ibv_modify_qp(dci, &m,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static struct initiator new_initiator(struct end *end, uint8_t rnr_retry, bool streams)
{
    struct ibv_qp_init_attr_ex a = {
        .qp_type = IBV_QPT_DRIVER,
        .send_cq = end->sends,
        .recv_cq = end->sends,
        .cap = {.max_send_wr = 128, .max_send_sge = 2, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = end->domain,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    struct mlx5dv_qp_init_attr d = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
                                    .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};
    if (streams) {
        d.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        d.dc_init_attr.dci_streams.log_num_concurent = 3;
    }
    struct initiator i = {.end = end, .qp = mlx5dv_create_qp(end->context, &a, &d)};
    assert_non_null(i.qp);
    i.extended = ibv_qp_to_qp_ex(i.qp);
    i.driver = mlx5dv_qp_ex_from_ibv_qp_ex(i.extended);
    start_initiator(i.qp, rnr_retry);
    return i;
}

static struct place place_in(const struct end *end, const struct ibv_qp *dct)
{
    return (struct place){.target = dct->qp_num,
                          .key = end->region->rkey,
                          .access_key = KEY,
                          .address = (uintptr_t)end->memory + MEMORY_BYTES / 2};
}

/* ---- requests ---- */

static void begin(struct initiator *i, uint64_t id, bool signalled)
{
    ibv_wr_start(i->extended);
    i->extended->wr_id = id;
    i->extended->wr_flags = signalled ? IBV_SEND_SIGNALED : 0;
}

static void finish(struct initiator *i, const struct place *to, uint32_t bytes)
{
    mlx5dv_wr_set_dc_addr(i->driver, i->end->address, to->target, to->access_key);
    if (bytes)
        ibv_wr_set_sge(i->extended, i->end->region->lkey, (uintptr_t)i->end->memory, bytes);
    assert_int_equal(ibv_wr_complete(i->extended), 0);
}

static void write_to(struct initiator *i, const struct place *to, uint32_t bytes)
{
    begin(i, 1, true);
    ibv_wr_rdma_write(i->extended, to->key, to->address);
    finish(i, to, bytes);
}

static void send_to(struct initiator *i, const struct place *to, uint32_t immediate, uint32_t bytes,
                    bool signalled)
{
    begin(i, 2, signalled);
    ibv_wr_send_imm(i->extended, htobe32(immediate));
    finish(i, to, bytes);
}

static void post_receives(struct end *end, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        struct ibv_sge s = {(uintptr_t)end->memory + MEMORY_BYTES / 2 +
                                (size_t)(n % 16) * RECEIVE_BYTES,
                            RECEIVE_BYTES, end->region->lkey};
        struct ibv_recv_wr w = {.wr_id = 100 + n, .sg_list = &s, .num_sge = 1}, *bad;
        assert_int_equal(ibv_post_srq_recv(end->srq, &w, &bad), 0);
    }
}

static struct ibv_wc wait_for(struct ibv_cq *cq)
{
    struct ibv_wc wc = {0};
    time_t start = time(NULL);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        if (time(NULL) - start > PATIENCE_S)
            fail_msg("no completion");
    return wc;
}

static void expect(struct ibv_cq *cq, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_for(cq);
    if (wc.status != status)
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static void fill(uint8_t *bytes, uint32_t count, uint32_t seed)
{
    for (uint32_t n = 0; n < count; n++)
        bytes[n] = (uint8_t)(n * 7 + seed + (n >> 8));
}

/* ---- one process ---- */

struct fixture {
    struct end end;
    struct ibv_qp *dct;
    struct initiator dci;
    struct place place;
};

static void set_up(struct fixture *f, uint8_t rnr_retry)
{
    memset(f, 0, sizeof *f);
    open_end(&f->end);
    f->dct = ready_target(&f->end);
    f->dci = new_initiator(&f->end, rnr_retry, false);
    f->place = place_in(&f->end, f->dct);
}

static void tear_down(struct fixture *f)
{
    assert_int_equal(ibv_destroy_qp(f->dci.qp), 0);
    assert_int_equal(ibv_destroy_qp(f->dct), 0);
    close_end(&f->end);
}

static void test_operations(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 7);
    uint8_t *from = f.end.memory, *to = f.end.memory + MEMORY_BYTES / 2;
    fill(from, LONG_BYTES, 1);
    write_to(&f.dci, &f.place, LONG_BYTES);
    expect(f.end.sends, IBV_WC_SUCCESS);
    assert_memory_equal(from, to, LONG_BYTES);

    post_receives(&f.end, 2);
    fill(from, LONG_BYTES, 2);
    send_to(&f.dci, &f.place, 77, LONG_BYTES, true);
    expect(f.end.sends, IBV_WC_SUCCESS);
    struct ibv_wc wc = wait_for(f.end.receives);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wr_id, 100);
    assert_int_equal(wc.byte_len, LONG_BYTES);
    assert_int_equal(be32toh(wc.imm_data), 77);
    assert_int_equal(wc.qp_num, f.dct->qp_num);
    assert_int_equal(wc.src_qp, f.dci.qp->qp_num);
    assert_memory_equal(from, to, LONG_BYTES);

    begin(&f.dci, 3, true); /* inline */
    ibv_wr_rdma_write_imm(f.dci.extended, f.place.key, f.place.address, htobe32(5));
    mlx5dv_wr_set_dc_addr(f.dci.driver, f.end.address, f.place.target, f.place.access_key);
    ibv_wr_set_inline_data(f.dci.extended, "forty bytes that are copied to the WQE.", 40);
    assert_int_equal(ibv_wr_complete(f.dci.extended), 0);
    expect(f.end.sends, IBV_WC_SUCCESS);
    wc = wait_for(f.end.receives);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_string_equal((char *)to, "forty bytes that are copied to the WQE.");
    tear_down(&f);
}

static void test_read_atomics(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 7);
    uint8_t *from = f.end.memory, *to = f.end.memory + MEMORY_BYTES / 2;
    fill(to, LONG_BYTES, 3);
    begin(&f.dci, 1, true);
    ibv_wr_rdma_read(f.dci.extended, f.place.key, f.place.address);
    finish(&f.dci, &f.place, LONG_BYTES);
    expect(f.end.sends, IBV_WC_SUCCESS);
    assert_memory_equal(from, to, LONG_BYTES);

    uint64_t value = 40, before = 0;
    memcpy(to, &value, 8);
    for (uint64_t n = 0; n < 20; n++) {
        begin(&f.dci, 2, true);
        ibv_wr_atomic_fetch_add(f.dci.extended, f.place.key, f.place.address, 2);
        finish(&f.dci, &f.place, 8);
        expect(f.end.sends, IBV_WC_SUCCESS);
        memcpy(&before, from, 8);
        assert_int_equal(before, 40 + 2 * n);
    }
    begin(&f.dci, 3, true);
    ibv_wr_atomic_cmp_swp(f.dci.extended, f.place.key, f.place.address, 80, 7);
    finish(&f.dci, &f.place, 8);
    expect(f.end.sends, IBV_WC_SUCCESS);
    memcpy(&before, from, 8);
    memcpy(&value, to, 8);
    assert_int_equal(before, 80);
    assert_int_equal(value, 7);
    tear_down(&f);
}

/* Two initiators into one target, and both of them to another one in turns: everything arrives once
 * and in the order in which each sent it, though most of it is not signalled. */
static void test_many(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 7);
    struct ibv_qp *other = ready_target(&f.end);
    struct initiator two[2] = {f.dci, new_initiator(&f.end, 7, true)};
    struct place place[2] = {f.place, place_in(&f.end, other)};
    uint32_t next[2][2] = {{0}};
    assert_int_not_equal(f.dct->qp_num, other->qp_num);
    for (uint32_t round = 0; round < 100; round++) {
        post_receives(&f.end, 24);
        for (uint32_t n = 0; n < 6; n++)
            for (uint32_t from = 0; from < 2; from++)
                for (uint32_t to = 0; to < 2; to++)
                    send_to(&two[from], &place[to], round * 6 + n, n == 3 ? LONG_BYTES : 8,
                            n == 5 && to == 1);
        for (int n = 0; n < 24; n++) {
            struct ibv_wc wc = wait_for(f.end.receives);
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            int from = wc.src_qp == two[1].qp->qp_num, to = wc.qp_num == other->qp_num;
            assert_int_equal(be32toh(wc.imm_data), next[from][to]);
            next[from][to]++;
        }
        expect(f.end.sends, IBV_WC_SUCCESS);
        expect(f.end.sends, IBV_WC_SUCCESS);
    }
    assert_int_equal(ibv_destroy_qp(two[1].qp), 0);
    assert_int_equal(ibv_destroy_qp(other), 0);
    tear_down(&f);
}

/* Streams are accepted; all are one. */
static void test_streams(void **state)
{
    struct fixture f;
    struct mlx5dv_context query = {.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS};
    (void)state;
    set_up(&f, 7);
    assert_int_equal(mlx5dv_query_device(f.end.context, &query), 0);
    assert_true(query.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS);
    assert_true(query.dci_streams_caps.max_log_num_concurent >= 3);
    struct initiator dci = new_initiator(&f.end, 7, true);
    fill(f.end.memory, 64, 9);
    for (uint16_t stream = 0; stream < 8; stream++) {
        begin(&dci, stream, true);
        ibv_wr_rdma_write(dci.extended, f.place.key, f.place.address + 64u * stream);
        mlx5dv_wr_set_dc_addr_stream(dci.driver, f.end.address, f.place.target, f.place.access_key,
                                     stream);
        ibv_wr_set_sge(dci.extended, f.end.region->lkey, (uintptr_t)f.end.memory, 64);
        assert_int_equal(ibv_wr_complete(dci.extended), 0);
        expect(f.end.sends, IBV_WC_SUCCESS);
        assert_memory_equal(f.end.memory + MEMORY_BYTES / 2 + 64 * stream, f.end.memory, 64);
    }
    assert_int_equal(ibv_destroy_qp(dci.qp), 0);
    tear_down(&f);
}

static void test_no_receive(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 2);
    send_to(&f.dci, &f.place, 1, 8, true);
    expect(f.end.sends, IBV_WC_RNR_RETRY_EXC_ERR);
    struct initiator patient = new_initiator(&f.end, 7, false);
    send_to(&patient, &f.place, 2, 8, true);
    usleep(20000);
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(f.end.sends, 1, &wc), 0);
    post_receives(&f.end, 1);
    expect(f.end.sends, IBV_WC_SUCCESS);
    wc = wait_for(f.end.receives);
    assert_int_equal(be32toh(wc.imm_data), 2);
    assert_int_equal(ibv_destroy_qp(patient.qp), 0);
    tear_down(&f);
}

static void again(struct fixture *f)
{
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_RESET};
    assert_int_equal(ibv_modify_qp(f->dci.qp, &m, IBV_QP_STATE), 0);
    start_initiator(f->dci.qp, 7);
}

/* Each mistake is its initiator's own; the target goes on serving, the same initiator too. */
static void test_mistakes(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 7);
    struct ibv_qp *unready = new_target(&f.end);
    struct initiator right = new_initiator(&f.end, 7, false);
    enum { ACCESS_KEY, REMOTE_KEY, RANGE, NUMBER, UNREADY, MISTAKES };
    for (int mistake = 0; mistake < MISTAKES; mistake++) {
        struct place wrong = f.place;
        enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
        if (mistake == ACCESS_KEY)
            wrong.access_key++;
        else if (mistake == REMOTE_KEY)
            wrong.key ^= 0x55;
        else if (mistake == RANGE)
            wrong.address += MEMORY_BYTES;
        else
            status = IBV_WC_RETRY_EXC_ERR; /* nobody is there who could answer */
        if (mistake == NUMBER)
            wrong.target = f.dct->qp_num + 1000;
        if (mistake == UNREADY) /* its number is the next, but not told yet */
            wrong.target = unready->qp_num;
        write_to(&f.dci, &wrong, 8);
        write_to(&f.dci, &f.place, 8);
        expect(f.end.sends, status);
        expect(f.end.sends, IBV_WC_WR_FLUSH_ERR);
        write_to(&right, &f.place, LONG_BYTES);
        expect(f.end.sends, IBV_WC_SUCCESS);
        again(&f);
        write_to(&f.dci, &f.place, LONG_BYTES);
        expect(f.end.sends, IBV_WC_SUCCESS);
    }
    assert_int_equal(ibv_destroy_qp(right.qp), 0);
    assert_int_equal(ibv_destroy_qp(unready), 0);
    tear_down(&f);
}

/* ---- two processes ---- */

static struct {
    struct place place;
    volatile int ready, done;
} * shared;

/* The target's process: answers until it is told to end, or is killed. */
static void serve(void)
{
    struct end end;
    open_end(&end);
    struct ibv_qp *dct = ready_target(&end);
    post_receives(&end, 16);
    shared->place = place_in(&end, dct);
    __sync_synchronize();
    shared->ready = 1;
    uint32_t expected = 0;
    while (!shared->done) {
        struct ibv_wc wc;
        if (ibv_poll_cq(end.receives, 1, &wc) == 0)
            continue;
        if (wc.status != IBV_WC_SUCCESS || be32toh(wc.imm_data) != expected++)
            _exit(2);
        post_receives(&end, 1);
    }
    _exit(0);
}

static pid_t start_server(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0)
        serve();
    assert_true(pid > 0);
    time_t start = time(NULL);
    while (!shared->ready && time(NULL) - start < PATIENCE_S)
        usleep(1000);
    assert_true(shared->ready);
    return pid;
}

static void test_processes(void **state)
{
    struct end end;
    (void)state;
    pid_t server = start_server();
    open_end(&end);
    struct initiator dci = new_initiator(&end, 7, false);
    for (uint32_t n = 0; n < 200; n++) {
        fill(end.memory, LONG_BYTES, n);
        write_to(&dci, &shared->place, LONG_BYTES);
        send_to(&dci, &shared->place, n, 100, true);
        begin(&dci, 4, true);
        /* What was sent may be in the first 100 bytes. */
        ibv_wr_rdma_read(dci.extended, shared->place.key, shared->place.address + 100);
        mlx5dv_wr_set_dc_addr(dci.driver, end.address, shared->place.target, KEY);
        ibv_wr_set_sge(dci.extended, end.region->lkey, (uintptr_t)end.memory + MEMORY_BYTES / 2,
                       LONG_BYTES - 100);
        assert_int_equal(ibv_wr_complete(dci.extended), 0);
        for (int m = 0; m < 3; m++)
            expect(end.sends, IBV_WC_SUCCESS);
        assert_memory_equal(end.memory + MEMORY_BYTES / 2, end.memory + 100, LONG_BYTES - 100);
    }
    shared->done = 1;
    int status = -1;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    assert_int_equal(ibv_destroy_qp(dci.qp), 0);
    close_end(&end);
}

static void test_killed_peer(void **state)
{
    struct end end;
    (void)state;
    pid_t server = start_server();
    open_end(&end);
    struct ibv_qp *dct = ready_target(&end);
    struct initiator dci = new_initiator(&end, 7, false);
    struct place here = place_in(&end, dct);
    write_to(&dci, &shared->place, LONG_BYTES);
    expect(end.sends, IBV_WC_SUCCESS);
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
    write_to(&dci, &here, LONG_BYTES); /* the living are not concerned */
    expect(end.sends, IBV_WC_SUCCESS);
    write_to(&dci, &shared->place, LONG_BYTES);
    expect(end.sends, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(ibv_destroy_qp(dci.qp), 0);
    assert_int_equal(ibv_destroy_qp(dct), 0);
    close_end(&end);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* before this process has a device */
        cmocka_unit_test(test_operations), cmocka_unit_test(test_read_atomics),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_streams),
    };
    const struct CMUnitTest trouble[] = {
        cmocka_unit_test(test_killed_peer),
        cmocka_unit_test(test_no_receive),
        cmocka_unit_test(test_mistakes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 1 && strcmp(argv[1], "trouble") == 0)
        return cmocka_run_group_tests_name("DC, trouble", trouble, NULL, NULL);
    return cmocka_run_group_tests_name("DC", tests, NULL, NULL);
}

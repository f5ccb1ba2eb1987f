/* dc_test.c: DCIs and DCTs through libmlx5, in one process and in two; to be run under simnic. What
 * must work, whatever the fabric loses; with the argument "trouble", what must fail. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simnic/tests/dc_world.h"

/* ---- one process ---- */

struct fixture {
    struct end end;
    struct ibv_qp *dct;
    struct initiator dci;
    struct place place;
};

static void set_up(struct fixture *f, uint8_t rnr_retry)
{
    memset(f, 0, sizeof(*f));
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
        for (uint32_t n = 0; n < 6; n++) {
            for (uint32_t from = 0; from < 2; from++) {
                for (uint32_t to = 0; to < 2; to++) {
                    send_to(&two[from], &place[to], round * 6 + n, n == 3 ? LONG_BYTES : 8,
                            n == 5 && to == 1);
                }
            }
        }
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

/* The id of a request is that of its stream. */
static void write_in(struct initiator *i, const struct place *to, uint16_t stream)
{
    begin(i, stream, true);
    ibv_wr_rdma_write(i->extended, to->key, to->address);
    mlx5dv_wr_set_dc_addr_stream(i->driver, i->end->address, to->target, to->access_key, stream);
    ibv_wr_set_sge(i->extended, i->end->region->lkey, (uintptr_t)i->end->memory, 64);
    assert_int_equal(ibv_wr_complete(i->extended), 0);
}

static void expect_in(struct ibv_cq *cq, uint16_t stream, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_for(cq);
    if (wc.status != status) {
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
    }
    assert_int_equal(wc.wr_id, stream);
}

static void test_streams(void **state)
{
    struct fixture f;
    struct mlx5dv_context query = {.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS};
    (void)state;
    set_up(&f, 7);
    assert_int_equal(mlx5dv_query_device(f.end.context, &query), 0);
    assert_true(query.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS);
    assert_true(query.dci_streams_caps.max_log_num_concurent >= 3);
    assert_true(query.dci_streams_caps.max_log_num_errored >= 2);
    struct initiator dci = new_initiator(&f.end, 7, true);
    fill(f.end.memory, 64, 9);
    for (uint16_t stream = 0; stream < 8; stream++) {
        struct place to = f.place;
        to.address += 64u * stream;
        write_in(&dci, &to, stream);
        expect_in(f.end.sends, stream, IBV_WC_SUCCESS);
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
        if (mistake == ACCESS_KEY) {
            wrong.access_key++;
        } else if (mistake == REMOTE_KEY) {
            wrong.key ^= 0x55;
        } else if (mistake == RANGE) {
            wrong.address += MEMORY_BYTES;
        } else {
            status = IBV_WC_RETRY_EXC_ERR; /* nobody is there who could answer */
        }
        if (mistake == NUMBER) {
            wrong.target = f.dct->qp_num + 1000;
        }
        if (mistake == UNREADY) { /* its number is the next, but not told yet */
            wrong.target = unready->qp_num;
        }
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

/* What came before the mistake was done, and is answered. */
static void test_before_mistake(void **state)
{
    struct fixture f;
    uint64_t value = 40;
    (void)state;
    set_up(&f, 7);
    memcpy(f.end.memory + MEMORY_BYTES / 2, &value, 8);
    ibv_wr_start(f.dci.extended);
    f.dci.extended->wr_flags = IBV_SEND_SIGNALED;
    for (uint32_t n = 0; n < 3; n++) {
        f.dci.extended->wr_id = n;
        ibv_wr_atomic_fetch_add(f.dci.extended, f.place.key ^ (n == 2 ? 0x55 : 0), f.place.address,
                                2);
        mlx5dv_wr_set_dc_addr(f.dci.driver, f.end.address, f.place.target, KEY);
        ibv_wr_set_sge(f.dci.extended, f.end.region->lkey, (uintptr_t)f.end.memory + 8ul * n, 8);
    }
    assert_int_equal(ibv_wr_complete(f.dci.extended), 0);
    expect(f.end.sends, IBV_WC_SUCCESS);
    expect(f.end.sends, IBV_WC_SUCCESS);
    expect(f.end.sends, IBV_WC_REM_ACCESS_ERR);
    memcpy(&value, f.end.memory + 8, 8);
    assert_int_equal(value, 42);
    tear_down(&f);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE, &i), 0);
    return a.qp_state;
}

/* A stream that fails leaves the others going, and sends again when it was reset; two that have
 * failed take the DCI with them. */
static void test_stream_errors(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, 7);
    struct initiator dci = new_initiator(&f.end, 7, true);
    struct place wrong = f.place, nowhere = f.place;
    wrong.key ^= 0x55;
    nowhere.target = f.dct->qp_num + 1000;
    for (uint16_t round = 0; round < 3; round++) {
        write_in(&dci, round == 1 ? &nowhere : &wrong, 2);
        write_in(&dci, &f.place, 7);
        write_in(&dci, &f.place, 2);
        write_in(&dci, &f.place, 0);
        expect_in(f.end.sends, 2, round == 1 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR);
        expect_in(f.end.sends, 7, IBV_WC_SUCCESS);
        expect_in(f.end.sends, 2, IBV_WC_WR_FLUSH_ERR);
        expect_in(f.end.sends, 0, IBV_WC_SUCCESS);
        assert_int_equal(state_of(dci.qp), IBV_QPS_RTS);
        assert_int_equal(mlx5dv_dci_stream_id_reset(dci.qp, 3), EINVAL); /* has not failed */
        assert_int_equal(mlx5dv_dci_stream_id_reset(dci.qp, 2), 0);
        assert_int_equal(mlx5dv_dci_stream_id_reset(dci.qp, 2), EINVAL);
        write_in(&dci, &f.place, 2);
        expect_in(f.end.sends, 2, IBV_WC_SUCCESS);
    }
    write_in(&dci, &wrong, 1);
    write_in(&dci, &wrong, 6);
    write_in(&dci, &f.place, 7);
    expect_in(f.end.sends, 1, IBV_WC_REM_ACCESS_ERR);
    expect_in(f.end.sends, 6, IBV_WC_REM_ACCESS_ERR);
    expect_in(f.end.sends, 7, IBV_WC_WR_FLUSH_ERR);
    /* Before ibv_query_qp: libmlx5 still takes it for ready. */
    assert_int_not_equal(mlx5dv_dci_stream_id_reset(dci.qp, 1), 0);
    assert_int_equal(state_of(dci.qp), IBV_QPS_ERR);
    assert_int_equal(mlx5dv_dci_stream_id_reset(dci.qp, 1), EOPNOTSUPP);
    struct pollfd events = {.fd = f.end.context->async_fd, .events = POLLIN};
    assert_int_equal(poll(&events, 1, 0), 0); /* nobody is told of the target's */
    assert_int_equal(ibv_destroy_qp(dci.qp), 0);

    /* Without streams of its own, whatever fails is the DCI's. */
    assert_int_equal(mlx5dv_dci_stream_id_reset(f.dci.qp, 2), EINVAL);
    write_in(&f.dci, &wrong, 2);
    write_in(&f.dci, &f.place, 3);
    expect_in(f.end.sends, 2, IBV_WC_REM_ACCESS_ERR);
    expect_in(f.end.sends, 3, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(state_of(f.dci.qp), IBV_QPS_ERR);
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
        if (ibv_poll_cq(end.receives, 1, &wc) == 0) {
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS || be32toh(wc.imm_data) != expected++) {
            _exit(2);
        }
        post_receives(&end, 1);
    }
    _exit(0);
}

static pid_t start_server(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        serve();
    }
    assert_true(pid > 0);
    time_t start = time(NULL);
    while (!shared->ready && time(NULL) - start < PATIENCE_S) {
        usleep(1000);
    }
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
        for (int m = 0; m < 3; m++) {
            expect(end.sends, IBV_WC_SUCCESS);
        }
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
        cmocka_unit_test(test_killed_peer),   cmocka_unit_test(test_no_receive),
        cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_before_mistake),
        cmocka_unit_test(test_stream_errors),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 1 && strcmp(argv[1], "trouble") == 0) {
        return cmocka_run_group_tests_name("DC, trouble", trouble, NULL, NULL);
    }
    return cmocka_run_group_tests_name("DC", tests, NULL, NULL);
}

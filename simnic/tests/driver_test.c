/* driver_test.c: what the kernel's driver does besides moving data, through libibverbs and libmlx5;
 * to be run under simnic. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "simnic/tests/way.h"

#define PAGE 4096u
#define WRITABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

struct end {
    struct ibv_context *context;
    struct ibv_pd *domain;
};

static struct ibv_context *open_first(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return context;
}

static int setup(void **state)
{
    struct end *end = calloc(1, sizeof(*end));
    end->context = open_first();
    assert_non_null(end->context);
    end->domain = ibv_alloc_pd(end->context);
    assert_non_null(end->domain);
    *state = end;
    return 0;
}

static int teardown(void **state)
{
    struct end *end = *state;
    assert_int_equal(ibv_dealloc_pd(end->domain), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
    free(end);
    return 0;
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t raw_clock(struct ibv_context *context)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    assert_int_equal(ibv_query_rt_values_ex(context, &values), 0);
    assert_int_equal(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    return (uint64_t)values.raw_clock.tv_nsec;
}

/* The core clock runs, in every context, and clock info makes time of day of it. */
static void test_clock(void **state)
{
    struct end *end = *state;
    struct mlx5dv_clock_info info;
    struct ibv_context *other = open_first();
    assert_non_null(other);
    uint64_t last = raw_clock(end->context);
    for (int i = 0; i < 1000; i++) {
        uint64_t before = now_ns(CLOCK_REALTIME);
        uint64_t clock = raw_clock(i % 2 ? other : end->context);
        uint64_t after = now_ns(CLOCK_REALTIME);
        assert_true(clock > last);
        last = clock;
        assert_int_equal(mlx5dv_get_clock_info(end->context, &info), 0);
        uint64_t told = mlx5dv_ts_to_ns(&info, clock);
        /* The two clocks of this machine are read one after the other. */
        assert_true(told + 50000000 > before && told < after + 50000000);
    }
    assert_int_equal(ibv_close_device(other), 0);
    assert_true(raw_clock(end->context) > last);
    /* A stamp from before the info was made */
    uint64_t ago = mlx5dv_ts_to_ns(&info, info.last_cycles - 5000000000u);
    assert_int_equal(info.nsec - ago, 5000000000u);
}

static struct ibv_mr *region(struct end *end, void *memory, size_t bytes, int access)
{
    errno = 0;
    return ibv_reg_mr(end->domain, memory, bytes, access);
}

/* Memory that cannot be written to is registered to be read, and refused to be written. */
static void test_read_only(void **state)
{
    struct end *end = *state;
    uint8_t *memory =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    struct ibv_mr *all = region(end, memory, 4 * PAGE, WRITABLE);
    assert_non_null(all);
    assert_int_equal(ibv_dereg_mr(all), 0);
    assert_int_equal(mprotect(memory + 3 * PAGE, PAGE, PROT_READ), 0);
    assert_null(region(end, memory, 4 * PAGE, WRITABLE));
    assert_int_equal(errno, EFAULT);
    assert_null(region(end, memory + 3 * PAGE + 100, 8, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EFAULT);
    struct ibv_mr *read = region(end, memory, 4 * PAGE, IBV_ACCESS_REMOTE_READ);
    assert_non_null(read);
    assert_int_equal(ibv_rereg_mr(read, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, WRITABLE),
                     IBV_REREG_MR_ERR_CMD);
    assert_int_equal(ibv_dereg_mr(read), 0);
    struct ibv_mr *rest = region(end, memory, 3 * PAGE, WRITABLE);
    assert_non_null(rest);
    assert_int_equal(ibv_dereg_mr(rest), 0);
    munmap(memory, 4 * PAGE);
    static const char text[] = "constant";
    assert_null(region(end, (void *)(uintptr_t)text, sizeof(text), IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EFAULT);
}

/* One page of three cannot be reached, wherever it is. */
static void test_page_between(void **state)
{
    struct end *end = *state;
    uint8_t *memory =
        mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mprotect(memory + i * PAGE, PAGE, PROT_READ), 0);
        assert_null(region(end, memory, 3 * PAGE, WRITABLE));
        assert_int_equal(errno, EFAULT);
        assert_int_equal(mprotect(memory + i * PAGE, PAGE, PROT_NONE), 0);
        assert_null(region(end, memory, 3 * PAGE, IBV_ACCESS_REMOTE_READ));
        assert_int_equal(errno, EFAULT);
        assert_int_equal(mprotect(memory + i * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    }
    munmap(memory, 3 * PAGE);
}

/* Registering gives memory to all pages, as pinning does: no operation waits for one. */
static void test_present(void **state)
{
    struct end *end = *state;
    unsigned char present[64] = {0};
    const size_t bytes = sizeof(present) * PAGE;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memory[0] = 1;
    assert_int_equal(mincore(memory, bytes, present), 0);
    assert_int_equal(present[0] & 1, 1);
    assert_int_equal(present[1] & 1, 0);
    struct ibv_mr *whole = region(end, memory, bytes, WRITABLE);
    assert_non_null(whole);
    assert_int_equal(mincore(memory, bytes, present), 0);
    for (size_t i = 0; i < sizeof(present); i++) {
        assert_int_equal(present[i] & 1, 1);
    }
    assert_int_equal(ibv_dereg_mr(whole), 0);
    munmap(memory, bytes);
}

/* Another context of the same open file, with its protection domain and region. */
static void test_import(void **state)
{
    struct end *end = *state;
    static uint8_t memory[256];
    struct ibv_mr *own = region(end, memory, sizeof(memory), WRITABLE);
    assert_non_null(own);
    struct ibv_context *context = ibv_import_device(dup(end->context->cmd_fd));
    assert_non_null(context);
    assert_null(ibv_import_pd(context, 77777));
    struct ibv_pd *domain = ibv_import_pd(context, end->domain->handle);
    assert_non_null(domain);
    assert_null(ibv_import_mr(domain, 77777));
    struct ibv_mr *mr = ibv_import_mr(domain, own->handle);
    assert_non_null(mr);
    assert_int_equal(mr->lkey, own->lkey);
    assert_int_equal(mr->rkey, own->rkey);
    assert_int_equal(mr->length, sizeof(memory));
    /* Of use: a region of the imported domain. */
    struct ibv_mr *more = ibv_reg_mr(domain, memory, 16, WRITABLE);
    assert_non_null(more);
    assert_int_equal(ibv_dereg_mr(more), 0);
    ibv_unimport_mr(mr);
    ibv_unimport_pd(domain);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(ibv_dereg_mr(own), 0);
}

/* The last test, since it takes the context of all others: a program closes, past every library,
 * what it did not open; it can open devices anew, and gets the numbers for files of its own. */
static void test_close_all(void **state)
{
    (void)state;
    static struct ibv_context
        *volatile lost; /* cannot be closed any more, but LeakSanitizer shall find it */
    lost = open_first();
    assert_non_null(lost);
    for (int fd = 3; fd < 1024; fd++) {
        syscall(SYS_close, fd);
    }
    int file = open("/dev/null", O_RDWR);
    assert_int_equal(file, 3);
    assert_int_equal(write(file, "x", 1), 1);
    int many[600];
    for (int i = 0; i < 600; i++) {
        many[i] = open("/dev/null", O_RDWR);
        assert_true(many[i] > 0);
    }
    for (int i = 0; i < 600; i++) {
        assert_int_equal(close(many[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        struct ibv_context *context = open_first();
        assert_non_null(context);
        struct ibv_pd *domain = ibv_alloc_pd(context);
        struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
        assert_non_null(cq);
        struct ibv_qp_init_attr attributes = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {16, 16, 1, 1, 0}};
        struct ibv_qp *qp = ibv_create_qp(domain, &attributes);
        assert_non_null(qp);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
        assert_int_equal(
            ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            0);
        attr.qp_state = IBV_QPS_RTR;
        assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
        attr.qp_state = IBV_QPS_RTS;
        assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
        struct ibv_ah_attr to = way_to_self(context);
        struct ibv_ah *address = ibv_create_ah(domain, &to);
        assert_non_null(address);
        struct ibv_send_wr request = {.opcode = IBV_WR_SEND,
                                      .send_flags = IBV_SEND_SIGNALED,
                                      .wr.ud = {address, qp->qp_num, 5}},
                           *bad;
        assert_int_equal(ibv_post_send(qp, &request, &bad), 0); /* by a doorbell */
        struct ibv_wc completion;
        uint64_t end = now_ns(CLOCK_MONOTONIC) + 10000000000u;
        int count = 0;
        while (count == 0 && now_ns(CLOCK_MONOTONIC) < end) {
            count = ibv_poll_cq(cq, 1, &completion);
        }
        assert_int_equal(count, 1);
        assert_int_equal(completion.status, IBV_WC_SUCCESS);
        assert_int_equal(ibv_destroy_ah(address), 0);
        assert_int_equal(ibv_destroy_qp(qp), 0);
        assert_int_equal(ibv_destroy_cq(cq), 0);
        assert_int_equal(ibv_dealloc_pd(domain), 0);
        assert_int_equal(ibv_close_device(context), 0);
    }
}

/* Regions of dma-bufs, for which simnic takes any file that can be mapped. */
static void test_dmabuf(void **state)
{
    const struct end *end = *state;
    const uint64_t address = 0x7000100; /* what programs call it; not where anything is */
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
    struct ibv_mr *region =
        ibv_reg_dmabuf_mr(end->domain, 2 * PAGE + 0x100, 100, address, fd, WRITABLE);
    assert_non_null(region);
    struct ibv_mr *other = ibv_reg_mr(end->domain, (void *)state, 8, 0);
    assert_int_not_equal(region->lkey, other->lkey);
    assert_int_equal(ibv_dereg_mr(other), 0);
    assert_int_not_equal(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
    assert_int_equal(ibv_dereg_mr(region), 0);

    static const struct {
        uint64_t offset, bytes, address;
        unsigned access;
    } bad[] = {
        {0, 4 * PAGE + 1, 0, 0},
        {5 * PAGE, 1, 0, 0},
        {UINT64_MAX & ~(uint64_t)(PAGE - 1), PAGE, 0, 0},
        {0, 0, 0, 0},
        {8, 8, 0, 0}, /* not the same place in a page */
        {0, 8, 0, IBV_ACCESS_REMOTE_WRITE},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        errno = 0;
        assert_null(ibv_reg_dmabuf_mr(end->domain, bad[i].offset, bad[i].bytes, bad[i].address, fd,
                                      (int)bad[i].access));
        assert_int_equal(errno, EINVAL);
    }
    close(fd);
    assert_null(ibv_reg_dmabuf_mr(end->domain, 0, 8, 0, fd, 0));
    assert_int_equal(errno, EBADF);
}

#define MANY 20000u

/* Tens of thousands of objects, many of which go and come: nobody gets the handle of another, and
 * handles are given again. */
static void test_many(void **state)
{
    const struct end *end = *state;
    static uint8_t memory[64];
    struct ibv_mr **region = calloc(MANY, sizeof(void *));
    struct ibv_mr **owner = calloc(2 * MANY, sizeof(void *)); /* by handle */
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < MANY; i++) {
            if (region[i]) {
                continue;
            }
            region[i] = ibv_reg_mr(end->domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
            assert_non_null(region[i]);
            assert_in_range(region[i]->handle, 0, MANY + 64);
            assert_null(owner[region[i]->handle]);
            owner[region[i]->handle] = region[i];
        }
        for (uint32_t i = 0; i < MANY; i++) { /* in an order that is not that of handles */
            uint32_t which = i * 7919 % MANY;
            if (round < 3 && which % 3 == round) {
                continue;
            }
            owner[region[which]->handle] = NULL;
            assert_int_equal(ibv_dereg_mr(region[which]), 0);
            region[which] = NULL;
        }
    }
    free(region);
    free(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_page_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_present, setup, teardown),
        cmocka_unit_test_setup_teardown(test_import, setup, teardown),
        cmocka_unit_test(test_close_all),
        cmocka_unit_test_setup_teardown(test_dmabuf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

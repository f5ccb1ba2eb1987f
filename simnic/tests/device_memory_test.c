/* device_memory_test.c: memory on the adapter: its limits, copies to and from it, regions of it; to be run under simnic. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simnic/tests/verbs_world.h"

#define PAGE 4096u
#define ZERO_BASED (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE)

static uint64_t most(struct ibv_context *context)
{
    struct ibv_device_attr_ex attributes;
    assert_int_equal(ibv_query_device_ex(context, NULL, &attributes), 0);
    return attributes.max_dm_size;
}

static struct ibv_dm *allocate(struct ibv_context *context, uint64_t bytes, uint32_t log_alignment)
{
    struct ibv_alloc_dm_attr a = {.length = bytes, .log_align_req = log_alignment};
    errno = 0;
    return ibv_alloc_dm(context, &a);
}

static void fill(uint8_t *bytes, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(i * 13 + seed + (i >> 8));
    }
}

static void test_limits(void **state)
{
    struct world *w = *state;
    uint64_t all = most(w->context);
    assert_true(all >= 64 * 1024);
    assert_null(allocate(w->context, all + 1, 0));
    assert_null(allocate(w->context, 0, 0));
    assert_null(allocate(w->context, 64, 40));
    struct ibv_dm *whole = allocate(w->context, all, 12);
    assert_non_null(whole);
    assert_null(allocate(w->context, 4, 0)); /* none is left */
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(ibv_free_dm(whole), 0);
    /* Many small ones have a page each. */
    struct ibv_dm *small[64];
    uint32_t count = 0;
    while (count < 64 && (small[count] = allocate(w->context, 4, 0))) {
        count++;
    }
    assert_int_equal(count, all / PAGE);
    while (count) {
        assert_int_equal(ibv_free_dm(small[--count]), 0);
    }
}

/* The other device has memory of its own. */
static void test_two_devices(void **state)
{
    struct world *w = *state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *other = ibv_open_device(list[1]);
    assert_non_null(other);
    ibv_free_device_list(list);
    struct ibv_dm *here = allocate(w->context, most(w->context), 0);
    struct ibv_dm *there = allocate(other, most(other), 0);
    uint32_t value = 0;
    assert_true(here && there);
    assert_int_equal(ibv_memcpy_to_dm(here, 0, &(uint32_t){1}, 4), 0);
    assert_int_equal(ibv_memcpy_to_dm(there, 0, &(uint32_t){2}, 4), 0);
    assert_int_equal(ibv_memcpy_from_dm(&value, here, 0, 4), 0);
    assert_int_equal(value, 1);
    assert_int_equal(ibv_free_dm(there), 0);
    assert_int_equal(ibv_free_dm(here), 0);
    assert_int_equal(ibv_close_device(other), 0);
}

static void test_copies(void **state)
{
    struct world *w = *state;
    struct ibv_dm *dm = allocate(w->context, 3 * PAGE - 8, 6), *next = allocate(w->context, 64, 0);
    static uint8_t pattern[3 * PAGE], back[3 * PAGE];
    assert_true(dm && next);
    fill(pattern, sizeof(pattern), 1);
    assert_int_equal(ibv_memcpy_from_dm(back, dm, 0, 3 * PAGE - 8), 0);
    for (uint32_t i = 0; i < 3 * PAGE - 8; i++) {
        assert_int_equal(back[i], 0); /* nothing of whoever had it before */
    }
    assert_int_equal(ibv_memcpy_to_dm(dm, 0, pattern, 3 * PAGE - 8), 0);
    assert_int_equal(ibv_memcpy_to_dm(next, 0, back, 64), 0);
    assert_int_equal(ibv_memcpy_from_dm(back, dm, 100, 2 * PAGE), 0);
    assert_memory_equal(back, pattern + 100, 2 * PAGE);
    assert_int_equal(ibv_memcpy_to_dm(dm, 3 * PAGE - 8, pattern, 4), EFAULT);
    assert_int_equal(ibv_memcpy_to_dm(dm, 2, pattern, 4), EINVAL);
    assert_int_equal(ibv_free_dm(next), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
}

static void test_regions(void **state)
{
    struct world *w = *state;
    struct ibv_dm *dm = allocate(w->context, 8192, 0);
    assert_non_null(dm);
    assert_null(ibv_reg_dm_mr(w->domain, dm, 0, 8192 + 4, ZERO_BASED));
    assert_null(ibv_reg_dm_mr(w->domain, dm, 8192, 4, ZERO_BASED));
    assert_null(ibv_reg_dm_mr(w->domain, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE));
    assert_null(ibv_reg_dm_mr(w->domain, dm, 0, 64, ZERO_BASED | IBV_ACCESS_MW_BIND));
    assert_null(
        ibv_reg_dm_mr(w->domain, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE));
    struct ibv_mr *region = ibv_reg_dm_mr(w->domain, dm, 4096, 4096, ZERO_BASED);
    assert_non_null(region);
    assert_int_equal(ibv_free_dm(dm), EBUSY);
    assert_int_not_equal(
        ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    assert_int_equal(ibv_dereg_mr(region), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
}

/* Written by a WRITE and an atomic, read by a READ and as what is sent: at the offset of the region. */
static void test_traffic(void **state)
{
    struct world *w = *state;
    static uint8_t memory[2 * PAGE];
    struct ibv_qp *pair[2];
    struct ibv_dm *dm = allocate(w->context, 3 * PAGE, 0);
    struct ibv_mr *host =
        ibv_reg_mr(w->domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE);
    struct ibv_mr *device = ibv_reg_dm_mr(w->domain, dm, PAGE, 2 * PAGE, ZERO_BASED | WORLD_REMOTE);
    uint8_t back[PAGE];
    assert_true(dm && host && device);
    world_connect(w, pair, IBV_QPT_RC);
    fill(memory, PAGE, 7);
    struct ibv_sge sge = {(uintptr_t)memory, PAGE, host->lkey};
    struct ibv_send_wr wr = world_request(IBV_WR_RDMA_WRITE, &sge, 64, device->rkey);
    world_post(pair[0], &wr);
    world_expect(w->cq, IBV_WC_SUCCESS);
    assert_int_equal(ibv_memcpy_from_dm(back, dm, PAGE + 64, PAGE), 0);
    assert_memory_equal(back, memory, PAGE);

    sge = (struct ibv_sge){64, PAGE, device->lkey}; /* from the device, into a receive */
    struct ibv_sge space = {(uintptr_t)memory + PAGE, PAGE, host->lkey};
    wr = world_request(IBV_WR_SEND, &sge, 0, 0);
    world_receive(pair[1], &space);
    world_post(pair[0], &wr);
    world_expect(w->cq, IBV_WC_SUCCESS);
    world_expect(w->cq, IBV_WC_SUCCESS);
    assert_memory_equal(memory + PAGE, memory, PAGE);

    uint64_t value = 40;
    assert_int_equal(ibv_memcpy_to_dm(dm, PAGE, &value, 8), 0);
    sge = (struct ibv_sge){(uintptr_t)memory, 8, host->lkey};
    wr = world_request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 0, 0);
    wr.wr.atomic.remote_addr = 0;
    wr.wr.atomic.rkey = device->rkey;
    wr.wr.atomic.compare_add = 2;
    world_post(pair[0], &wr);
    world_expect(w->cq, IBV_WC_SUCCESS);
    assert_int_equal(ibv_memcpy_from_dm(&value, dm, PAGE, 8), 0);
    assert_int_equal(value, 42);

    sge.length = 64;
    wr = world_request(IBV_WR_RDMA_READ, &sge, 2 * PAGE - 32, device->rkey); /* half is outside */
    world_post(pair[0], &wr);
    world_expect(w->cq, IBV_WC_REM_ACCESS_ERR);
    world_disconnect(pair);
    assert_int_equal(ibv_dereg_mr(device), 0);
    assert_int_equal(ibv_dereg_mr(host), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
}

/* A context that was imported sees the same memory. Its mapping keeps it when it is freed. */
static void test_import(void **state)
{
    struct world *w = *state;
    struct ibv_dm *dm = allocate(w->context, PAGE, 0);
    struct ibv_context *imported = ibv_import_device(dup(w->context->cmd_fd));
    assert_true(dm && imported);
    struct ibv_dm *same = ibv_import_dm(imported, dm->handle);
    assert_non_null(same);
    assert_null(ibv_import_dm(imported, dm->handle + 1000));
    uint32_t value = 0x12345678;
    assert_int_equal(ibv_memcpy_to_dm(dm, 8, &value, 4), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
    struct ibv_dm *rest = allocate(w->context, most(w->context), 0);
    assert_null(rest); /* a page of it is mapped */
    value = 0;
    assert_int_equal(ibv_memcpy_from_dm(&value, same, 8, 4), 0);
    assert_int_equal(value, 0x12345678);
    ibv_unimport_dm(same);
    rest = allocate(w->context, most(w->context), 0);
    assert_non_null(rest);
    assert_int_equal(ibv_free_dm(rest), 0);
    assert_int_equal(ibv_close_device(imported), 0);
}

/* Only what was allocated can be mapped, whole, and by the context that has it. */
static void test_mappings(void **state)
{
    struct world *w = *state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *other = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(other);
    const off_t place = (off_t)0x800 * PAGE; /* where the first allocation is */
    const int both = PROT_READ | PROT_WRITE;
    assert_ptr_equal(mmap(NULL, PAGE, both, MAP_SHARED, w->context->cmd_fd, place), MAP_FAILED);
    struct ibv_dm *dm = allocate(w->context, 2 * PAGE, 0);
    assert_non_null(dm);
    assert_ptr_equal(mmap(NULL, PAGE, both, MAP_SHARED, w->context->cmd_fd, place), MAP_FAILED);
    assert_ptr_equal(mmap(NULL, 2 * PAGE, both, MAP_SHARED, other->cmd_fd, place), MAP_FAILED);
    const size_t huge = ((size_t)1 << 44) + 2 * PAGE; /* 2^32 pages more */
    assert_ptr_equal(mmap(NULL, huge, both, MAP_SHARED, w->context->cmd_fd, place), MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    uint32_t *mapped = mmap(NULL, 2 * PAGE, both, MAP_SHARED, w->context->cmd_fd, place);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    mapped[3] = 99;
    uint32_t value = 0;
    assert_int_equal(ibv_memcpy_from_dm(&value, dm, 12, 4), 0);
    assert_int_equal(value, 99);
    assert_int_equal(munmap(mapped, 2 * PAGE), 0);
    assert_int_equal(ibv_free_dm(dm), 0);
    assert_int_equal(ibv_close_device(other), 0);
}

/* A child has a NIC of its own, with its own memory. */
static void test_fork(void **state)
{
    struct world *w = *state;
    struct ibv_dm *dm = allocate(w->context, most(w->context), 0);
    assert_non_null(dm);
    pid_t child = fork();
    if (child == 0) {
        struct ibv_dm *own = allocate(w->context, most(w->context), 0);
        uint32_t value = 5;
        _exit(own && ibv_memcpy_to_dm(own, 0, &value, 4) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ibv_free_dm(dm), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_limits, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_two_devices, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_copies, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_regions, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_traffic, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_import, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_mappings, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_fork, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("device memory", tests, NULL, NULL);
}

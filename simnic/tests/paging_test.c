/* paging_test.c: on-demand paging: memory that is not there when it is registered, all of the address space as one region, and
 * prefetching; to be run under simnic. */
#include <sys/mman.h>
#include <unistd.h>

#include "simnic/tests/verbs_world.h"

#define PAGE 4096u
#define PAGES 16u
#define ON_DEMAND (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE)

static uint8_t *map(void *at, uint32_t pages, int protection)
{
    uint8_t *memory = mmap(at, pages * PAGE, protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static bool is_present(const void *at)
{
    unsigned char present = 0;
    assert_int_equal(mincore((void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), PAGE, &present), 0);
    return present & 1;
}

static void test_capabilities(void **state)
{
    struct world *w = *state;
    struct ibv_device_attr_ex a;
    struct mlx5dv_context d = {.comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS};
    const uint32_t all = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                         IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    assert_int_equal(ibv_query_device_ex(w->context, NULL, &a), 0);
    assert_int_equal(a.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    assert_int_equal(a.odp_caps.per_transport_caps.rc_odp_caps, all);
    assert_int_equal(a.odp_caps.per_transport_caps.uc_odp_caps, 0);
    assert_int_equal(a.odp_caps.per_transport_caps.ud_odp_caps,
                     IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV);
    assert_int_equal(a.xrc_odp_caps, all);
    assert_int_equal(mlx5dv_query_device(w->context, &d), 0);
    assert_int_equal(d.dc_odp_caps, all);
}

static void move(struct world *w, struct ibv_qp *qp, enum ibv_wr_opcode opcode, void *local,
                 const struct ibv_mr *local_region, void *remote, const struct ibv_mr *region,
                 uint32_t bytes, enum ibv_wc_status status)
{
    struct ibv_sge sge = {(uintptr_t)local, bytes, local_region->lkey};
    struct ibv_send_wr wr = world_request(opcode, &sge, (uintptr_t)remote, region->rkey);
    world_post(qp, &wr);
    world_expect(w->cq, status);
}

/* Registering takes no memory. An operation brings the pages that it wants, and fails on those that do not exist. */
static void test_explicit(void **state)
{
    struct world *w = *state;
    struct ibv_qp *pair[2];
    uint8_t own[2 * PAGE];
    struct ibv_mr *mine = ibv_reg_mr(w->domain, own, sizeof(own), IBV_ACCESS_LOCAL_WRITE);
    uint8_t *memory = map(NULL, PAGES, PROT_READ | PROT_WRITE);
    struct ibv_mr *region = ibv_reg_mr(w->domain, memory, PAGES * PAGE, ON_DEMAND);
    assert_true(mine && region);
    for (uint32_t page = 0; page < PAGES; page++) {
        assert_false(is_present(memory + page * PAGE));
    }
    world_connect(w, pair, IBV_QPT_RC);
    memset(own, 0x5a, sizeof(own));
    move(w, pair[0], IBV_WR_RDMA_WRITE, own, mine, memory + 3 * PAGE + 100, region, PAGE,
         IBV_WC_SUCCESS);
    assert_true(is_present(memory + 3 * PAGE) && is_present(memory + 4 * PAGE));
    assert_false(is_present(memory + 2 * PAGE) || is_present(memory + 5 * PAGE));
    assert_memory_equal(memory + 3 * PAGE + 100, own, PAGE);

    /* Other memory at the same place is what is read then: nothing is pinned. */
    map(memory + 3 * PAGE, 2, PROT_READ | PROT_WRITE);
    memset(memory + 3 * PAGE, 0x33, 2 * PAGE);
    move(w, pair[0], IBV_WR_RDMA_READ, own, mine, memory + 3 * PAGE, region, 2 * PAGE,
         IBV_WC_SUCCESS);
    assert_memory_equal(own, memory + 3 * PAGE, 2 * PAGE);

    assert_int_equal(munmap(memory + 8 * PAGE, PAGE), 0);
    move(w, pair[0], IBV_WR_RDMA_WRITE, own, mine, memory + 7 * PAGE, region, 2 * PAGE,
         IBV_WC_REM_ACCESS_ERR);
    world_disconnect(pair);
    world_connect(w, pair, IBV_QPT_RC);
    assert_int_equal(mprotect(memory + 9 * PAGE, PAGE, PROT_READ), 0);
    move(w, pair[0], IBV_WR_RDMA_READ, own, mine, memory + 9 * PAGE, region, 8, IBV_WC_SUCCESS);
    move(w, pair[0], IBV_WR_RDMA_WRITE, own, mine, memory + 9 * PAGE, region, 8,
         IBV_WC_REM_ACCESS_ERR);
    world_disconnect(pair);
    assert_int_equal(ibv_dereg_mr(region), 0);
    assert_int_equal(ibv_dereg_mr(mine), 0);
    munmap(memory, PAGES * PAGE);
}

/* Memory that does not exist yet is registered, and used when it does. */
static void test_before_memory(void **state)
{
    struct world *w = *state;
    struct ibv_qp *pair[2];
    uint64_t own = 77;
    struct ibv_mr *mine = ibv_reg_mr(w->domain, &own, 8, IBV_ACCESS_LOCAL_WRITE);
    uint8_t *memory = map(NULL, 4, PROT_NONE);
    assert_int_equal(munmap(memory, 4 * PAGE), 0);
    assert_null(ibv_reg_mr(w->domain, memory, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_mr *region = ibv_reg_mr(w->domain, memory, 4 * PAGE, ON_DEMAND);
    assert_non_null(region);
    map(memory, 4, PROT_READ | PROT_WRITE);
    world_connect(w, pair, IBV_QPT_RC);
    move(w, pair[0], IBV_WR_RDMA_WRITE, &own, mine, memory + PAGE, region, 8, IBV_WC_SUCCESS);
    assert_int_equal(*(uint64_t *)(void *)(memory + PAGE), 77);
    world_disconnect(pair);
    assert_int_equal(ibv_dereg_mr(region), 0);
    assert_int_equal(ibv_dereg_mr(mine), 0);
    munmap(memory, 4 * PAGE);
}

static void test_implicit(void **state)
{
    struct world *w = *state;
    struct ibv_qp *pair[2];
    assert_null(ibv_reg_mr(w->domain, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
    assert_null(ibv_reg_mr(w->domain, (void *)(uintptr_t)PAGE, SIZE_MAX, ON_DEMAND));
    struct ibv_mr *all = ibv_reg_mr(w->domain, NULL, SIZE_MAX, ON_DEMAND);
    assert_non_null(all);
    world_connect(w, pair, IBV_QPT_RC);
    uint64_t here[2] = {5, 6};
    uint64_t *there = malloc(16);
    move(w, pair[0], IBV_WR_RDMA_WRITE, here, all, there, all, 16, IBV_WC_SUCCESS);
    assert_memory_equal(here, there, 16);
    there[0] = 9;
    move(w, pair[0], IBV_WR_RDMA_READ, here, all, there, all, 8, IBV_WC_SUCCESS);
    assert_int_equal(here[0], 9);
    move(w, pair[0], IBV_WR_RDMA_READ, here, all, (void *)8, all, 8, IBV_WC_REM_ACCESS_ERR);
    world_disconnect(pair);
    free(there);
    assert_int_equal(ibv_dereg_mr(all), 0);
}

static int advise(struct world *w, enum ibv_advise_mr_advice advice, uint32_t flags, void *at,
                  uint32_t bytes, uint32_t key)
{
    struct ibv_sge sge = {(uintptr_t)at, bytes, key};
    return ibv_advise_mr(w->domain, advice, flags, &sge, 1);
}

static void test_prefetch(void **state)
{
    struct world *w = *state;
    const enum ibv_advise_mr_advice read = IBV_ADVISE_MR_ADVICE_PREFETCH,
                                    write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                    no_fault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
    uint8_t *memory = map(NULL, PAGES, PROT_READ | PROT_WRITE);
    struct ibv_mr *region = ibv_reg_mr(w->domain, memory, PAGES * PAGE, ON_DEMAND);
    struct ibv_mr *implicit = ibv_reg_mr(w->domain, NULL, SIZE_MAX, ON_DEMAND);
    assert_true(region && implicit);
    assert_int_equal(advise(w, write, flush, memory + 100, PAGE, region->lkey), 0);
    assert_true(is_present(memory) && is_present(memory + PAGE));
    assert_false(is_present(memory + 2 * PAGE));
    assert_int_equal(advise(w, read, flush, memory + 3 * PAGE, PAGE, implicit->lkey), 0);
    assert_true(is_present(memory + 3 * PAGE));
    assert_int_equal(advise(w, write, 0, memory + 4 * PAGE, PAGE, region->lkey), 0);
    assert_int_equal(advise(w, no_fault, flush, memory + 6 * PAGE, PAGE, region->lkey), 0);
    assert_false(is_present(memory + 6 * PAGE));

    assert_int_equal(advise(w, read, flush, memory + (PAGES - 1) * PAGE, 2 * PAGE, region->lkey),
                     EFAULT);
    assert_int_equal(advise(w, read, flush, (void *)(UINTPTR_MAX - PAGE), 8, implicit->lkey),
                     EFAULT);
    assert_int_equal(advise(w, read, 2, memory, PAGE, region->lkey), EINVAL);
    assert_int_equal(advise(w, 17, flush, memory, PAGE, region->lkey), EOPNOTSUPP);
    assert_int_equal(advise(w, read, flush, memory, PAGE, region->lkey ^ 0x3300), ENOENT);
    assert_int_equal(advise(w, read, 0, memory, PAGE, region->lkey ^ 0x3300), ENOENT);
    assert_int_equal(munmap(memory + 9 * PAGE, PAGE), 0);
    assert_int_equal(advise(w, read, flush, memory + 8 * PAGE, 2 * PAGE, region->lkey), EFAULT);
    assert_int_equal(advise(w, read, 0, memory + 8 * PAGE, 2 * PAGE, region->lkey), 0);

    /* Regions that are not paged, of another domain, or not to be written */
    struct ibv_pd *other = ibv_alloc_pd(w->context);
    struct ibv_mr *pinned = ibv_reg_mr(w->domain, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *foreign = ibv_reg_mr(other, memory, PAGE, ON_DEMAND);
    struct ibv_mr *readable = ibv_reg_mr(w->domain, memory, PAGE, IBV_ACCESS_ON_DEMAND);
    assert_true(other && pinned && foreign && readable);
    assert_int_equal(advise(w, read, flush, memory, PAGE, pinned->lkey), EINVAL);
    assert_int_equal(advise(w, read, flush, memory, PAGE, foreign->lkey), EPERM);
    assert_int_equal(advise(w, write, flush, memory, PAGE, readable->lkey), EPERM);
    assert_int_equal(advise(w, read, flush, memory, PAGE, readable->lkey), 0);
    assert_int_equal(ibv_dereg_mr(pinned), 0);
    assert_int_equal(ibv_dereg_mr(foreign), 0);
    assert_int_equal(ibv_dereg_mr(readable), 0);
    assert_int_equal(ibv_dealloc_pd(other), 0);
    assert_int_equal(ibv_dereg_mr(region), 0);
    assert_int_equal(ibv_dereg_mr(implicit), 0);
    munmap(memory, PAGES * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_capabilities, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_explicit, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_before_memory, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_implicit, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_prefetch, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("on-demand paging", tests, NULL, NULL);
}

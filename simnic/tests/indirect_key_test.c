/* indirect_key_test.c: memory keys of mlx5dv_create_mkey, configured by libmlx5's requests; to be run under simnic. */
#include "simnic/tests/verbs_world.h"

#define ROOM 512

struct scene {
    struct world *world;
    struct ibv_qp *pair[2];
    struct ibv_qp_ex *extended;
    struct mlx5dv_qp_ex *driver;
    struct mlx5dv_mkey *key;
    struct ibv_mr *region;
    uint8_t memory[4 * ROOM]; /* the first quarter is sent from and read to */
};

static struct ibv_qp *queue_pair(struct world *w)
{
    struct ibv_qp_init_attr_ex a = {
        .send_cq = w->cq,
        .recv_cq = w->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {64, 64, 4, 4, ROOM},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = w->domain,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ};
    struct mlx5dv_qp_init_attr d = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
                                    .send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST |
                                                      MLX5DV_QP_EX_WITH_MR_INTERLEAVED};
    struct ibv_qp *qp = mlx5dv_create_qp(w->context, &a, &d);
    assert_non_null(qp);
    return qp;
}

static struct scene *open_scene(struct world *w, uint32_t flags)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct mlx5dv_mkey_init_attr m = {.pd = w->domain,
                                      .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flags,
                                      .max_entries = 6};
    s->world = w;
    s->pair[0] = queue_pair(w);
    s->pair[1] = queue_pair(w);
    world_point(w, s->pair[0], s->pair[1]->qp_num);
    world_point(w, s->pair[1], s->pair[0]->qp_num);
    s->extended = ibv_qp_to_qp_ex(s->pair[0]);
    s->driver = mlx5dv_qp_ex_from_ibv_qp_ex(s->extended);
    s->region =
        ibv_reg_mr(w->domain, s->memory, sizeof(s->memory), IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE);
    s->key = mlx5dv_create_mkey(&m);
    assert_true(s->region && s->key);
    assert_true(m.max_entries >= 6);
    for (uint32_t i = 0; i < sizeof(s->memory); i++) {
        s->memory[i] = (uint8_t)(i * 7 + (i >> 8));
    }
    return s;
}

static void close_scene(struct scene *s)
{
    world_disconnect(s->pair);
    assert_int_equal(mlx5dv_destroy_mkey(s->key), 0);
    assert_int_equal(ibv_dereg_mr(s->region), 0);
    free(s);
}

static void finish(struct scene *s, enum ibv_wc_status status)
{
    assert_int_equal(ibv_wr_complete(s->extended), 0);
    world_expect(s->world->cq, status);
}

static void start(struct scene *s, uint32_t flags)
{
    ibv_wr_start(s->extended);
    s->extended->wr_id = 1;
    s->extended->wr_flags = IBV_SEND_SIGNALED | flags;
}

static void lead_to_two_pieces(struct scene *s)
{
    struct ibv_sge pieces[2] = {{(uintptr_t)s->memory + ROOM + 10, 100, s->region->lkey},
                                {(uintptr_t)s->memory + 2 * ROOM + 20, 50, s->region->lkey}};
    start(s, IBV_SEND_INLINE);
    mlx5dv_wr_mr_list(s->driver, s->key, IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE, 2, pieces);
    finish(s, IBV_WC_SUCCESS);
}

static void transfer(struct scene *s, enum ibv_wr_opcode opcode, uint64_t address, uint32_t bytes,
                     enum ibv_wc_status status)
{
    struct ibv_sge sge = {(uintptr_t)s->memory, bytes, s->region->lkey};
    start(s, 0);
    if (opcode == IBV_WR_RDMA_READ) {
        ibv_wr_rdma_read(s->extended, s->key->rkey, address);
    } else {
        ibv_wr_rdma_write(s->extended, s->key->rkey, address);
    }
    ibv_wr_set_sge(s->extended, sge.lkey, sge.addr, sge.length);
    finish(s, status);
}

static void test_list(void **state)
{
    struct scene *s = open_scene(*state, 0);
    lead_to_two_pieces(s);
    transfer(s, IBV_WR_RDMA_WRITE, 0, 150, IBV_WC_SUCCESS);
    assert_memory_equal(s->memory + ROOM + 10, s->memory, 100);
    assert_memory_equal(s->memory + 2 * ROOM + 20, s->memory + 100, 50);
    memset(s->memory, 0, ROOM);
    transfer(s, IBV_WR_RDMA_READ, 90, 20, IBV_WC_SUCCESS);
    assert_memory_equal(s->memory, s->memory + ROOM + 100, 10);
    assert_memory_equal(s->memory + 10, s->memory + 2 * ROOM + 20, 10);
    transfer(s, IBV_WR_RDMA_READ, 100, 51, IBV_WC_REM_ACCESS_ERR);
    close_scene(s);
}

static void test_interleaved(void **state)
{
    struct scene *s = open_scene(*state, 0);
    struct mlx5dv_mr_interleaved columns[2] = {
        {(uintptr_t)s->memory + ROOM, 8, 24, s->region->lkey},
        {(uintptr_t)s->memory + ROOM + 16, 4, 28, s->region->lkey}};
    start(s, IBV_SEND_INLINE);
    mlx5dv_wr_mr_interleaved(s->driver, s->key, IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE, 5, 2,
                             columns);
    finish(s, IBV_WC_SUCCESS);
    transfer(s, IBV_WR_RDMA_WRITE, 0, 60, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t column = i % 12, at = i / 12 * 32 + (column < 8 ? column : 16 + column - 8);
        assert_int_equal(s->memory[ROOM + at], s->memory[i]);
    }
    transfer(s, IBV_WR_RDMA_WRITE, 0, 61, IBV_WC_REM_ACCESS_ERR);
    close_scene(s);
}

static void test_invalidated(void **state)
{
    struct scene *s = open_scene(*state, 0);
    lead_to_two_pieces(s);
    struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = s->key->rkey};
    transfer(s, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_SUCCESS);
    world_post(s->pair[0], &wr);
    world_expect(s->world->cq, IBV_WC_SUCCESS);
    transfer(s, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR);
    close_scene(s);
}

static void test_invalidated_by_peer(void **state)
{
    struct scene *s = open_scene(*state, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
    lead_to_two_pieces(s);
    struct ibv_sge space = {(uintptr_t)s->memory, 8, s->region->lkey};
    world_receive(s->pair[1], &space);
    start(s, 0);
    ibv_wr_send_inv(s->extended, s->key->rkey);
    ibv_wr_set_sge(s->extended, s->region->lkey, (uintptr_t)s->memory, 8);
    assert_int_equal(ibv_wr_complete(s->extended), 0);
    world_expect(s->world->cq, IBV_WC_SUCCESS);
    world_expect(s->world->cq, IBV_WC_SUCCESS);
    transfer(s, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR);
    close_scene(s);
}

/* Keys that this adapter does not have, and one in a domain that is none. */
static void test_refused(void **state)
{
    struct world *w = *state;
    struct mlx5dv_mkey_init_attr signed_key = {.pd = w->domain,
                                               .create_flags =
                                                   MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                                   MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                                               .max_entries = 4};
    assert_null(mlx5dv_create_mkey(&signed_key));
    uint32_t command[68] = {htobe32(0x200u << 16)}, answer[4];
    command[4] = htobe32(1u << 30 | 1u << 15 | 2u << 8); /* free, umr_en, KLMs */
    command[5] = htobe32(0xffffff00);
    command[7] = htobe32(0xfffff0); /* the domain */
    command[4 + 13] = htobe32(4);
    assert_null(
        mlx5dv_devx_obj_create(w->context, command, sizeof(command), answer, sizeof(answer)));
    assert_int_equal(errno, EREMOTEIO);
    assert_int_equal(be32toh(answer[0]) >> 24, 5);       /* bad resource */
    command[4] = htobe32(1u << 30 | 1u << 15 | 1u << 8); /* with pages */
    assert_null(
        mlx5dv_devx_obj_create(w->context, command, sizeof(command), answer, sizeof(answer)));
    assert_int_equal(be32toh(answer[0]) >> 24, 3); /* bad parameter */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_interleaved, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_invalidated, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_invalidated_by_peer, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_refused, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("indirect keys", tests, NULL, NULL);
}

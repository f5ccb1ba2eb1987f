/* devx_test.c: device commands (DevX) as programs send them through libmlx5; to be run under simnic. */
#include "simnic/tests/verbs_world.h"

#define QUERY_HCA_CAP 0x100u
#define RTS2RTS_QP 0x505u
#define QUERY_QP 0x50bu
#define ANSWER_WORDS 1028
#define BAD_PARAMETER 3

struct answer {
    uint32_t words[ANSWER_WORDS];
};

static uint32_t status_of(const struct answer *answer)
{
    return be32toh(answer->words[0]) >> 24;
}

/* Returns the errno, and 0 if the command was executed. */
static int ask(struct world *w, uint16_t opcode, uint16_t modifier, struct answer *answer)
{
    uint32_t command[4] = {htobe32((uint32_t)opcode << 16), htobe32(modifier)};
    memset(answer, 0xee, sizeof(*answer));
    return mlx5dv_devx_general_cmd(w->context, command, sizeof(command), answer, sizeof(*answer));
}

static void test_capabilities(void **state)
{
    struct world *w = *state;
    struct answer most, now, memory;
    assert_int_equal(ask(w, QUERY_HCA_CAP, 0, &most), 0);
    assert_int_equal(ask(w, QUERY_HCA_CAP, 1, &now), 0);
    assert_memory_equal(&most, &now, sizeof(now));
    assert_int_equal(status_of(&now), 0);
    assert_int_equal(be32toh(now.words[4 + 0x80 / 32]) & 0x1f, 16); /* log_max_qp */
    assert_int_equal(ask(w, QUERY_HCA_CAP, 0xf << 1 | 1, &memory), 0);
    assert_int_equal(status_of(&memory), 0);
    assert_int_equal(memory.words[4] & htobe32(1u << 31), htobe32(1u << 31)); /* memic */
    /* Atomic operations on device memory: an adapter may have none. */
    assert_int_equal(memory.words[20], 0);
}

/* The kernel lets no command through that it does not know; the adapter says why it refuses one. */
static void test_refused(void **state)
{
    struct world *w = *state;
    struct answer answer;
    assert_int_equal(ask(w, QUERY_HCA_CAP, 0x7f << 1, &answer), EREMOTEIO);
    assert_int_equal(status_of(&answer), BAD_PARAMETER);
    assert_int_equal(ask(w, 0x103, 0, &answer), EINVAL); /* TEARDOWN_HCA is not the program's */
    uint32_t half = htobe32(QUERY_HCA_CAP << 16);
    assert_int_not_equal(
        mlx5dv_devx_general_cmd(w->context, &half, sizeof(half), &answer, sizeof(answer)), 0);
    assert_int_equal(ask(w, QUERY_HCA_CAP, 1, &answer), 0);
}

static uint32_t ask_queue_pair(struct ibv_qp *qp, uint32_t word)
{
    uint32_t command[4] = {htobe32(QUERY_QP << 16), 0, htobe32(qp->qp_num)};
    uint32_t answer[6 + 58];
    assert_int_equal(mlx5dv_devx_qp_query(qp, command, sizeof(command), answer, sizeof(answer)), 0);
    assert_int_equal(answer[0], 0);
    return be32toh(answer[6 + word]);
}

static uint32_t source_port(struct ibv_qp *qp)
{
    return ask_queue_pair(qp, 14) & 0xffff;
}

static void test_query_queue_pair(void **state)
{
    struct world *w = *state;
    struct ibv_qp *pair[2];
    world_connect(w, pair, IBV_QPT_RC);
    assert_int_equal(ask_queue_pair(pair[0], 0) >> 28, 3);                    /* RTS */
    assert_int_equal(ask_queue_pair(pair[0], 5) & 0xffffff, pair[1]->qp_num); /* remote_qpn */
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ibv_modify_qp(pair[0], &error, IBV_QP_STATE), 0);
    assert_int_equal(ask_queue_pair(pair[0], 0) >> 28, 6);
    uint32_t command[4] = {htobe32(QUERY_QP << 16), 0, htobe32(pair[1]->qp_num)}, answer[64];
    assert_int_equal(
        mlx5dv_devx_qp_query(pair[0], command, sizeof(command), answer, sizeof(answer)), EINVAL);
    world_disconnect(pair);
}

/* The kernel's default follows from the numbers of both queue pairs. */
static uint16_t expected_port(uint64_t mine, uint64_t other)
{
    uint64_t mixed = mine * other;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    return (uint16_t)(((mixed & 0x3fff) ^ (mixed >> 14 & 0x3f)) | 0xc000);
}

static void test_udp_source_port(void **state)
{
    struct world *w = *state;
    struct ibv_qp *pair[2];
    uint64_t memory[2] = {42, 0};
    struct ibv_mr *region =
        ibv_reg_mr(w->domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE);
    world_connect(w, pair, IBV_QPT_RC);
    assert_int_equal(source_port(pair[0]), expected_port(pair[0]->qp_num, pair[1]->qp_num));
    assert_int_equal(mlx5dv_modify_qp_udp_sport(pair[0], 55555), 0);
    assert_int_equal(source_port(pair[0]), 55555);
    assert_int_equal(source_port(pair[1]), expected_port(pair[0]->qp_num, pair[1]->qp_num));
    struct ibv_sge from = {(uintptr_t)&memory[0], 8, region->lkey};
    struct ibv_send_wr wr =
        world_request(IBV_WR_RDMA_WRITE, &from, (uintptr_t)&memory[1], region->rkey);
    world_post(pair[0], &wr);
    world_expect(w->cq, IBV_WC_SUCCESS);
    assert_int_equal(memory[1], 42);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ibv_modify_qp(pair[0], &error, IBV_QP_STATE), 0);
    assert_int_equal(mlx5dv_modify_qp_udp_sport(pair[0], 1000), EOPNOTSUPP); /* of libmlx5 */
    assert_int_equal(ibv_dereg_mr(region), 0);
    world_disconnect(pair);
}

/* RoCE v1 has no UDP; the command itself is refused by the adapter. */
static void test_no_udp(void **state)
{
    struct world *w = *state;
    struct ibv_qp *qp = world_queue_pair(w, IBV_QPT_UD);
    world_start_datagrams(qp);
    assert_int_equal(mlx5dv_modify_qp_udp_sport(qp, 1000), EOPNOTSUPP);
    uint32_t command[112] = {htobe32(RTS2RTS_QP << 16), 0, htobe32(qp->qp_num)}, answer[4];
    command[67] = htobe32(4); /* opt_param_mask_95_32: the UDP source port */
    assert_int_equal(mlx5dv_devx_qp_modify(qp, command, sizeof(command), answer, sizeof(answer)),
                     EREMOTEIO);
    assert_int_equal(be32toh(answer[0]) >> 24, BAD_PARAMETER);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void test_query_port(void **state)
{
    struct world *w = *state;
    struct mlx5dv_port port;
    memset(&port, 0xee, sizeof(port));
    assert_int_equal(mlx5dv_query_port(w->context, 1, &port), 0);
    assert_int_equal(port.flags, 0); /* the adapter is not in switchdev mode */
    assert_int_equal(port.vport_steering_icm_rx, 0);
    assert_int_equal(mlx5dv_query_port(w->context, 2, &port), EINVAL);
}

#define MANY 1000u

static int order(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* No queue pair gets a reserved number, and no number is given twice. */
static void test_reserved_numbers(void **state)
{
    struct world *w = *state;
    static uint32_t numbers[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(mlx5dv_reserved_qpn_alloc(w->context, &numbers[i]), 0);
        assert_int_not_equal(numbers[i], 0);
    }
    qsort(numbers, MANY, sizeof(numbers[0]), order);
    for (uint32_t i = 1; i < MANY; i++) {
        assert_int_not_equal(numbers[i], numbers[i - 1]);
    }
    for (uint32_t i = 0; i < 200; i++) {
        struct ibv_qp *qp = world_queue_pair(w, IBV_QPT_RC);
        uint32_t number = qp->qp_num;
        assert_null(bsearch(&number, numbers, MANY, sizeof(number), order));
        assert_int_equal(ibv_destroy_qp(qp), 0);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(mlx5dv_reserved_qpn_dealloc(w->context, numbers[i]), 0);
    }
    /* A range that the adapter does not give, and a kind of object that it does not have */
    uint32_t command[8] = {htobe32(0xa00u << 16), htobe32(0x2c), 0, htobe32(3u << 24)}, answer[4];
    assert_null(
        mlx5dv_devx_obj_create(w->context, command, sizeof(command), answer, sizeof(answer)));
    assert_int_equal(errno, EREMOTEIO);
    command[1] = htobe32(0x7f);
    assert_null(
        mlx5dv_devx_obj_create(w->context, command, sizeof(command), answer, sizeof(answer)));
    assert_int_equal(be32toh(answer[0]) >> 24, BAD_PARAMETER);
    command[0] = htobe32(0x802u << 16); /* ALLOC_UAR makes no object */
    assert_null(
        mlx5dv_devx_obj_create(w->context, command, sizeof(command), answer, sizeof(answer)));
    assert_int_equal(errno, EINVAL);
}

static void test_map_address(void **state)
{
    struct world *w = *state;
    struct ibv_qp *qp = world_queue_pair(w, IBV_QPT_RC);
    struct ibv_ah_attr a = world_address(w);
    struct ibv_ah *address = ibv_create_ah(w->domain, &a);
    assert_non_null(address);
    assert_int_equal(mlx5dv_map_ah_to_qp(address, qp->qp_num + 12345), EINVAL);
    assert_int_equal(mlx5dv_map_ah_to_qp(address, qp->qp_num), 0);
    assert_int_equal(mlx5dv_map_ah_to_qp(address, qp->qp_num), 0); /* it has one: nothing happens */
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_ah(address), 0); /* and the mapping with it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_capabilities, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_refused, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_query_queue_pair, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_udp_source_port, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_no_udp, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_query_port, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_reserved_numbers, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_map_address, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("DevX", tests, NULL, NULL);
}

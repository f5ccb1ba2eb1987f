/* latency_test.c: rails with a latency (fault `rail0=latency:US`): what leaves by the port comes so much later, in its order. */
#define BYTES (8u << 20) /* more than are on a wire at once */
#include "simnic/nic/tests/rails_scene.h"

/* One of two that are connected to each other, on these rails. */
static struct rig_qp *new_pair(struct scene *s, uint8_t rail, uint8_t peer_rail)
{
    struct rig_qp_options options = {.rail = rail}, peer_options = {.rail = peer_rail};
    struct rig_qp *a = rig_qp_new(s->rig, s->cq, &options),
                  *b = rig_qp_new(s->rig, s->cq, &peer_options);
    rig_qp_way(a, peer_rail);
    rig_qp_way(b, rail);
    a->qp->attributes.path_mtu = b->qp->attributes.path_mtu = 5; /* 4096 bytes */
    rig_connect(a, b);
    return a;
}

static uint64_t until_done(struct scene *s)
{
    return pass_until_done(s, 10 * US, 10000 * MS);
}

/* There and back; one rail alone; by the port that a packet leaves by. */
static void test_round_trip(void **state)
{
    static const struct {
        const char *fault;
        uint8_t rail, peer_rail;
        uint64_t due_ns;
    } cases[] = {
        {"rail0=latency:500", 0, 0, 1000 * US},
        {"rail0=latency:500", 1, 1, 0},
        {"rail1=latency:40", 1, 1, 80 * US},
        {"rail1=latency:500,rail0=latency:2000", 0, 1, 2500 * US},
        {"rail1=latency:500", 0, 1, 500 * US},
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig_qp *qp = new_pair(s, cases[i].rail, cases[i].peer_rail);
        rig_fault(s->rig, cases[i].fault);
        for (int read = 0; read < 2; read++) {
            rig_rdma(qp, read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &s->from,
                     64, &s->to);
            assert_in_range(until_done(s), cases[i].due_ns, cases[i].due_ns + 30 * US);
        }
        assert_int_equal(qp->qp->statistics->retries, 0);
    }
}

/* Packets do not wait for each other. There is a bound to those on the wire, and none is lost. */
static void test_stream(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0, 0);
    rig_fault(s->rig, "rail0=latency:1000");
    write_all(s, qp, 1u << 20);
    assert_in_range(until_done(s), 2 * MS, 3 * MS);
    assert_memory_equal(s->to.bytes, s->from.bytes, 1u << 20);
    write_all(s, qp, BYTES);
    assert_in_range(until_done(s), 3 * MS, 20 * MS);
    assert_memory_equal(s->to.bytes, s->from.bytes, BYTES);
    rig_rdma(qp, MLX5_OPCODE_RDMA_READ, SIGNALLED, &s->from, BYTES, &s->to);
    assert_in_range(until_done(s), 3 * MS, 20 * MS);
    assert_int_equal(qp->qp->statistics->retries, 0);
}

static void test_with_rate(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0, 0);
    rig_fault(s->rig, "rail0=latency:5000,rail0=rate:1");
    write_all(s, qp, 1000000);
    assert_in_range(until_done(s), 16 * MS, 19 * MS); /* 8 ms, and 10 */
}

/* Packets on the wire when it becomes shorter are not overtaken. */
static void test_change(void **state)
{
    static const char *const shorter[] = {"none", "rail0=latency:100"};
    static const uint32_t bytes[] = {4096, 65536, BYTES};
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0, 0);
    for (int i = 0; i < 6; i++) {
        memset(s->to.bytes, 0, BYTES);
        rig_fault(s->rig, "rail0=latency:3000");
        write_all(s, qp, bytes[i / 2]);
        rig_pass(s->rig, 1 * MS);
        rig_fault(s->rig, shorter[i % 2]);
        write_all(s, qp, BYTES);
        until_done(s);
        until_done(s);
        assert_int_equal(qp->qp->statistics->retries, 0);
        assert_memory_equal(s->to.bytes, s->from.bytes, BYTES);
        assert_int_equal(s->rig->fabric.on_wires, 0);
        write_all(s, qp, 64);
        assert_in_range(until_done(s), 0, 230 * US);
    }
}

/* What is on the wire of a rail that goes down is lost. */
static void test_down(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0, 0);
    rig_fault(s->rig, "rail0=latency:3000");
    write_all(s, qp, 64);
    rig_pass(s->rig, 1 * MS);
    rig_fault(s->rig, "rail0=down");
    rig_pass(s->rig, 5 * MS);
    assert_int_equal(s->to.bytes[0], 0);
    assert_int_equal(s->rig->fabric.on_wires, 0);
    rig_fault(s->rig, "none");
    until_done(s);
    assert_true(qp->qp->statistics->retries > 0);
    assert_memory_equal(s->to.bytes, s->from.bytes, 64);
}

/* Those that are late by chance are overtaken; those of a group come late to all that are in it. */
static void test_multicast(void **state)
{
    static const char *const faults[] = {"delay=1:100", "rail0=latency:100"};
    static const uint8_t group[16] = {0xff, 0x0e, [15] = 9};
    struct scene *s = *state;
    struct rig_qp *a = rig_qp_new(s->rig, s->cq, &(struct rig_qp_options){.type = TYPE_UD});
    struct rig_qp *b = rig_qp_new(s->rig, s->cq, &(struct rig_qp_options){.type = TYPE_UD});
    rig_qp_point(a, b);
    rig_qp_point(b, a);
    assert_true(multicast_attach(&s->rig->nic, b->qp, group));
    for (int i = 0; i < 2; i++) {
        struct rig_wqe wqe;
        struct mlx5_cqe64 cqe;
        rig_fault(s->rig, faults[i]);
        rig_receive(b, &s->to, 0, 4096);
        rig_wqe_start(&wqe, MLX5_OPCODE_SEND, 0);
        rig_wqe_address(&wqe, 0xffffff, 0x11111111, group, 3);
        rig_wqe_data(&wqe, (uintptr_t)s->from.bytes, 64, s->from.key);
        rig_send(a, &wqe);
        rig_pass(s->rig, 50 * US);
        assert_false(rig_poll(s->cq, &cqe));
        rig_pass(s->rig, 100 * US);
        assert_true(rig_poll(s->cq, &cqe));
        assert_int_equal(cqe.op_own >> 4, MLX5_CQE_RESP_SEND);
        assert_memory_equal(s->to.bytes + 40, s->from.bytes, 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, begin, end),
        cmocka_unit_test_setup_teardown(test_stream, begin, end),
        cmocka_unit_test_setup_teardown(test_with_rate, begin, end),
        cmocka_unit_test_setup_teardown(test_change, begin, end),
        cmocka_unit_test_setup_teardown(test_down, begin, end),
        cmocka_unit_test_setup_teardown(test_multicast, begin, end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("latencies of rails", tests, NULL, NULL);
}

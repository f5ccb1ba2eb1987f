/* rate_test.c: ports with a rate (fault `rail0=rate:GBPS`): what they send in a time, who gets how much of it, and that
 * waiting for a port is no loss. */
#define BYTES 1000000u
#include "simnic/nic/tests/rails_scene.h"

/* One of two that are connected to each other. */
static struct rig_qp *new_pair(struct scene *s, uint8_t rail)
{
    struct rig_qp_options options = {.rail = rail};
    struct rig_qp *a = rig_qp_new(s->rig, s->cq, &options),
                  *b = rig_qp_new(s->rig, s->cq, &options);
    a->qp->attributes.timeout = b->qp->attributes.timeout = 10; /* 4 ms, the shortest */
    a->qp->attributes.retry_count = b->qp->attributes.retry_count = 1;
    a->qp->attributes.path_mtu = b->qp->attributes.path_mtu = 5; /* 4096 bytes */
    rig_connect(a, b);
    return a;
}

static uint64_t until_done(struct scene *s)
{
    return pass_until_done(s, 50 * US, 60000 * MS);
}

/* How long so many bytes take, with their packets' headers. */
static uint64_t due_ns(uint64_t bytes, uint64_t mbps)
{
    return (bytes + bytes / 4096 * 64) * 8000 / mbps;
}

/* Within a millisecond and 2 %. */
#define expect_about(ns, due)                                                                      \
    assert_in_range((ns) + 1 * MS, (due) - (due) / 50, (due) + (due) / 50 + 2 * MS)

static void test_rate(void **state)
{
    static const struct {
        const char *fault;
        uint64_t mbps;
    } rates[] = {{"rail0=rate:1", 1000},
                 {"rail0=rate:0.25", 250},
                 {"rail0=rate:10,rail1=rate:0.001", 10000},
                 {"rail0=rate:0.02", 20}};
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0);
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        rig_fault(s->rig, rates[i].fault);
        memset(s->to.bytes, 0, BYTES);
        write_all(s, qp, BYTES);
        uint64_t took_ns = until_done(s);
        expect_about(took_ns, due_ns(BYTES, rates[i].mbps));
        assert_memory_equal(s->to.bytes, s->from.bytes, BYTES);
    }
    /* Though the slower ones took longer than all retries together. */
    assert_int_equal(qp->qp->statistics->retries, 0);
}

/* However late the NIC's thread is, what it may send at once is little. */
static void test_late_thread(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0);
    rig_fault(s->rig, "rail0=rate:1");
    write_all(s, qp, BYTES);
    uint64_t before = qp->qp->statistics->bytes_sent;
    for (uint32_t i = 0; i < 4; i++) {
        s->rig->now_ns += 50 * MS;
        rig_run(s->rig);
        uint64_t sent = qp->qp->statistics->bytes_sent - before;
        assert_in_range(sent, i ? 100000 : 0, 140000); /* of a millisecond */
        before += sent;
    }
    until_done(s);
}

static void test_rails_are_apart(void **state)
{
    struct scene *s = *state;
    struct rig_qp *slow = new_pair(s, 0), *fast = new_pair(s, 1);
    rig_fault(s->rig, "rail0=rate:0.1");
    write_all(s, slow, BYTES);
    write_all(s, fast, BYTES);
    assert_in_range(until_done(s), 0, 1 * MS);
    assert_in_range(fast->qp->statistics->bytes_sent, BYTES, BYTES);
    expect_about(until_done(s), due_ns(BYTES, 100));
}

/* Each QP gets its part. A READ's answers do, too: they go through the port as requests do. */
static void test_shared(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qps[] = {new_pair(s, 0), new_pair(s, 0), new_pair(s, 0), new_pair(s, 0)};
    rig_fault(s->rig, "rail0=rate:1");
    for (uint32_t i = 0; i < 3; i++) {
        write_all(s, qps[i], BYTES);
    }
    rig_rdma(qps[3], MLX5_OPCODE_RDMA_READ, SIGNALLED, &s->to, BYTES / 4, &s->from);
    uint64_t first_ns = until_done(s);
    assert_in_range(first_ns, due_ns(BYTES / 4, 1000),
                    due_ns(BYTES * 5 / 4, 1000)); /* the READ, of a quarter */
    for (uint32_t i = 0; i < 3; i++) {
        assert_in_range(qps[i]->qp->statistics->bytes_sent, BYTES / 20, BYTES / 2);
    }
    uint64_t all_ns = first_ns + until_done(s) + until_done(s) + until_done(s);
    expect_about(all_ns, due_ns(BYTES * 3 + BYTES / 4, 1000));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(qps[i]->qp->statistics->retries, 0);
    }
}

/* What waits for a port goes on at once when the port is faster, and can end at any time. */
static void test_change(void **state)
{
    struct scene *s = *state;
    struct rig_qp *qp = new_pair(s, 0), *other = new_pair(s, 0);
    rig_fault(s->rig, "rail0=rate:0.001");
    write_all(s, other, BYTES);
    write_all(s, qp, BYTES);
    rig_pass(s->rig, 5 * MS);
    qp_destroy(&s->rig->nic, other->qp);
    rig_fault(s->rig, "none");
    assert_in_range(until_done(s), 0, 1 * MS);
    assert_memory_equal(s->to.bytes, s->from.bytes, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rate, begin, end),
        cmocka_unit_test_setup_teardown(test_late_thread, begin, end),
        cmocka_unit_test_setup_teardown(test_rails_are_apart, begin, end),
        cmocka_unit_test_setup_teardown(test_shared, begin, end),
        cmocka_unit_test_setup_teardown(test_change, begin, end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("rates of ports", tests, NULL, NULL);
}

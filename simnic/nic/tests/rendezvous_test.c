/* rendezvous_test.c: rendezvous requests at a tag-matching SRQ: those that the NIC serves, and
 * those that it leaves to software. */
#include "simnic/nic/tests/tag_rig.h"

static void expect_end(struct matching *m, uint16_t wqe, uint64_t tag)
{
    struct pair *p = &m->pair;
    struct ibv_tmh header;
    expect_received(p->cq, p->a, MLX5_CQE_RESP_SEND, wqe, TAG_HEADERS_BYTES);
    memcpy(&header, p->near.bytes, sizeof(header));
    assert_int_equal(header.opcode, IBV_TMH_FIN);
    assert_int_equal(be64toh(header.tag), tag);
    assert_int_equal(be32toh(header.app_ctx), 0xabcd);
}

static void test_rendezvous(void **state)
{
    static const uint32_t sizes[] = {100000, 0, 1, 20};
    struct matching *m = *state;
    struct pair *p = &m->pair;
    p->b->qp->scatter_requests_to_cqe = true; /* of the program's requests */
    for (uint32_t i = 0; i < 4; i++) {
        uint16_t tag = add(m, 0, 3 + i, ANY, 0, sizes[i]);
        uint16_t wqe = rig_receive(p->a, &p->near, 0, 1000);
        uint16_t sent = request(m, 3 + i, sizes[i], p->near.key);
        struct mlx5_cqe64 cqe = expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
        assert_int_equal(be64toh(cqe.tmh.tag), 3 + i);
        expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_EXPECTED, tag, sizes[i]);
        expect_sent(p->cq, p->a, sent);
        expect_end(m, wqe, 3 + i);
        assert_memory_equal(p->there.bytes, p->near.bytes + 4096, sizes[i]);
        memset(p->there.bytes, 0, sizes[0]);
    }
    assert_int_equal(p->b->qp->statistics->send_cqes, 0);
}

/* The sender may give its buffer away when the end is told: all of it has been read before. */
static void test_order_of_end(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    struct mlx5_cqe64 cqe;
    bool ended = false;
    add(m, 0, 3, ANY, 0, 100000);
    rig_receive(p->a, &p->near, 0, 1000);
    request(m, 3, 100000, p->near.key);
    for (uint32_t i = 0; i < 100000 && !ended; i++) {
        nic_run(&p->rig->nic, p->rig->now_ns);
        while (rig_poll(p->cq, &cqe)) {
            ended |= cqe.op_own >> 4 == MLX5_CQE_RESP_SEND;
        }
    }
    assert_true(ended);
    assert_memory_equal(p->there.bytes + 4096, p->near.bytes + 8192, 90000);
}

/* The buffers are of the SRQ's domain, whatever the QP's is. */
static void test_domain(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t tag = add(m, 0, 3, ANY, 0, 100);
    p->b->qp->domain = RIG_DOMAIN + 1;
    request(m, 3, 100, p->near.key);
    expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_EXPECTED, tag, 100);
}

/* What the program pushes is not for a send queue that it has not any more. */
static void test_push(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    for (uint32_t i = 0; i < 2; i++) {
        uint16_t tag = add(m, 0, i, ANY, 0, 100);
        uint16_t wqe = rig_receive(p->a, &p->near, 0, 1000);
        uint16_t sent = request(m, i, 100, p->near.key);
        expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
        expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_EXPECTED, tag, 100);
        expect_sent(p->cq, p->a, sent);
        expect_end(m, wqe, i);
        struct rig_wqe push;
        rig_wqe_start(&push, MLX5_OPCODE_SEND, SIGNALLED);
        rig_wqe_inline(&push, "unasked", 8);
        p->b->sent = p->b->qp->send_next;
        rig_wqe_finish(&push, p->b);
        rig_push(p->b, &push, 0, 64);
    }
    expect_none(p->cq);
    expect_none(p->far);
}

/* More than the NIC's own send queue holds: the others come again. */
static void test_many_rendezvous(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint32_t matched = 0, done = 0, ended = 0;
    for (uint32_t i = 0; i < 120; i++) {
        add(m, 0, i, ANY, (uint64_t)i * 1000, 1000);
        if (i % 40 == 39) {
            rig_run(p->rig); /* the send queue of commands has 64 places */
        }
        rig_receive(p->a, &p->near, 0, 1000);
    }
    for (uint32_t i = 0; i < 120; i++) {
        request(m, i, 1000, p->near.key);
    }
    for (uint32_t i = 0; i < 200; i++) {
        struct mlx5_cqe64 cqe;
        rig_pass(p->rig, 1000000);
        while (rig_poll(p->far, &cqe)) {
            matched += cqe.app_op == TAG_CQE_CONSUMED;
            done += cqe.app_op == TAG_CQE_EXPECTED;
        }
        while (rig_poll(p->cq, &cqe)) {
            ended += cqe.op_own >> 4 == MLX5_CQE_RESP_SEND;
        }
    }
    assert_int_equal(matched, 120);
    assert_int_equal(done, 120);
    assert_int_equal(ended, 120);
    for (uint32_t i = 0; i < 120; i++) {
        assert_memory_equal(p->there.bytes + (size_t)i * 1000, p->near.bytes + 4096, 1000);
    }
}

/* Software gets the headers, in the tagged buffer, if the data is more than that holds, if the send
 * queue is in use, or if it is the program's. */
static void test_software_rendezvous(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    for (int used = 0; used < 3; used++) {
        p->b->qp->offloads_rendezvous = used != 2;
        uint16_t tag = add(m, 0, 3, ANY, 0, 100);
        if (used == 1) {
            struct rig_wqe wqe;
            rig_wqe_start(&wqe, MLX5_OPCODE_NOP, 0);
            rig_send(p->b, &wqe);
            rig_run(p->rig);
        }
        uint16_t sent = request(m, 3, used ? 50 : 101, p->near.key);
        expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_SOFTWARE, tag, TAG_HEADERS_BYTES);
        expect_sent(p->cq, p->a, sent);
        struct ibv_rvh where;
        assert_int_equal(p->there.bytes[0], IBV_TMH_RNDV);
        memcpy(&where, p->there.bytes + HEADER, sizeof(where));
        assert_int_equal(be32toh(where.rkey), p->near.key);
    }
    expect_none(p->far);
}

/* Longer than allowed, or cut off: an ordinary unexpected message. */
static void test_odd_rendezvous(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    add(m, 0, 3, ANY, 0, 100);
    uint16_t wqe = rig_srq_receive(m->srq, &p->there, 4096, 10000);
    send(m, IBV_TMH_RNDV, 3, 65);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, 65);
    wqe = rig_srq_receive(m->srq, &p->there, 4096, 10000);
    send(m, IBV_TMH_RNDV, 3, 31);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, 31);
}

static void test_failing_rendezvous(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t first = add(m, 0, 3, ANY, 0, 100), second = add(m, 0, 4, ANY, 100, 100);
    request(m, 3, 100, p->near.key ^ 1);
    request(m, 4, 100, p->near.key);
    expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, first, 0);
    expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, second, 0);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, first, 0);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, second, 0);
    expect_none(p->far);
    assert_int_equal(rig_events(p->rig, EVENT_QP_FATAL), 1);
    assert_int_equal(p->b->qp->state, STATE_ERR);
}

/* The program gets its send queue back. */
static void test_reset_in_rendezvous(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    const uint8_t *queue = p->b->qp->send_buffer, *record = p->b->qp->record;
    uint16_t tag = add(m, 0, 3, ANY, 0, 100);
    rig_run(p->rig);
    request(m, 3, 100, p->near.key);
    for (int i = 0; i < 100 && !p->b->qp->rendezvous; i++) {
        nic_run(&p->rig->nic, p->rig->now_ns);
    }
    assert_non_null(p->b->qp->rendezvous);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET);
    expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, tag, 0);
    assert_ptr_equal(p->b->qp->send_buffer, queue);
    assert_ptr_equal(p->b->qp->record, record);
    assert_null(p->b->qp->rendezvous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MATCHING(test_rendezvous),
        MATCHING(test_order_of_end),
        MATCHING(test_domain),
        MATCHING(test_push),
        MATCHING(test_many_rendezvous),
        MATCHING(test_software_rendezvous),
        MATCHING(test_odd_rendezvous),
        MATCHING(test_failing_rendezvous),
        MATCHING(test_reset_in_rendezvous),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

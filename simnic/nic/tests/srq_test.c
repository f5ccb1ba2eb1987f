/* srq_test.c: shared receive queues: the linked list of their WQEs, several QPs on one, the limit
 * event, and what happens to a QP that fails. */
#include "simnic/nic/tests/expect.h"

#define ENTRIES 16

struct shared {
    struct pair pair;
    struct rig_srq *srq;
    struct rig_qp *third, *fourth; /* another pair on the same SRQ */
};

static int setup_shared(void **state)
{
    struct rig *rig = rig_new();
    struct shared *s = rig_allocate(rig, sizeof(*s));
    s->srq = rig_srq_new(rig, ENTRIES);
    struct rig_qp_options options = {.srq = s->srq};
    s->pair.rig = rig;
    s->pair.cq = rig_cq_new(rig, 256, 64);
    s->pair.far = rig_cq_new(rig, 256, 64);
    s->pair.a = rig_qp_new(rig, s->pair.cq, NULL);
    s->pair.b = rig_qp_new(rig, s->pair.far, &options);
    s->third = rig_qp_new(rig, s->pair.cq, NULL);
    s->fourth = rig_qp_new(rig, s->pair.far, &options);
    rig_connect(s->pair.a, s->pair.b);
    rig_connect(s->third, s->fourth);
    s->pair.near = rig_memory(rig, PAIR_BYTES);
    s->pair.there = rig_memory(rig, PAIR_BYTES);
    rig_fill(s->pair.near.bytes, PAIR_BYTES, 1);
    *state = s;
    return 0;
}

static void test_two_queue_pairs(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t first = rig_srq_receive(s->srq, &p->there, 0, 100);
    uint16_t second = rig_srq_receive(s->srq, &p->there, 100, 100);
    expect_sent(p->cq, s->third, rig_send_message(s->third, SIGNALLED, &p->near, 0, 30));
    expect_received(p->far, s->fourth, MLX5_CQE_RESP_SEND, first, 30);
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 50, 40));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, second, 40);
    assert_memory_equal(p->there.bytes, p->near.bytes, 30);
    assert_memory_equal(p->there.bytes + 100, p->near.bytes + 50, 40);
}

/* WQEs come back in another order than they were taken: the list decides which is next. */
static void test_list_order(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t held[ENTRIES];
    uint32_t filled = 0;
    uint16_t expected[4096];
    uint32_t head = 0, tail = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint16_t index;
        while ((index = rig_srq_receive(s->srq, &p->there, 0, 100)) != UINT16_MAX) {
            expected[head++ % 4096] = index;
        }
        uint32_t take = 1 + i * 7 % 9;
        for (uint32_t k = 0; k < take; k++) {
            struct rig_qp *from = k % 2 ? p->a : s->third;
            struct rig_qp *to = k % 2 ? p->b : s->fourth;
            uint16_t next = expected[tail++ % 4096];
            expect_sent(p->cq, from, rig_send_message(from, SIGNALLED, &p->near, i, 10));
            expect_received(p->far, to, MLX5_CQE_RESP_SEND, next, 10);
            held[filled++] = next;
        }
        while (filled) { /* backwards every other time */
            uint32_t at = i % 2 ? filled - 1 : 0;
            rig_srq_give_back(s->srq, held[at]);
            held[at] = held[--filled];
        }
    }
    assert_int_equal(p->b->qp->state, STATE_RTS);
}

static void test_empty_is_not_ready(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, 10);
    rig_run(p->rig);
    assert_int_equal(p->a->qp->statistics->rnr_naks, 1);
    uint16_t taken = rig_srq_receive(s->srq, &p->there, 0, 10);
    rig_pass(p->rig, 1000000);
    expect_sent(p->cq, p->a, index);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 10);
}

/* When fewer than the limit are left, once, until it is armed again. */
static void test_limit(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    for (uint32_t i = 0; i < 10; i++) {
        rig_srq_receive(s->srq, &p->there, 0, 100);
    }
    s->srq->srq->limit = 7;
    for (uint32_t left = 9; left > 3; left--) {
        expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 0, 1));
        assert_int_equal(rig_events(p->rig, EVENT_SRQ_LIMIT_REACHED), left == 6 ? 1 : 0);
    }
    assert_int_equal(s->srq->srq->limit, 0);
    s->srq->srq->limit = 3;
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 0, 1));
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 0, 1));
    assert_int_equal(p->rig->event_count, 1);
    assert_true(p->rig->events[0].event == EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(p->rig->events[0].owner, s->srq);
}

/* A QP that fails leaves the WQEs of the SRQ to the others, and says when it took its last. */
static void test_last_wqe(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t taken = rig_srq_receive(s->srq, &p->there, 0, 100);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_ERR);
    expect_none(p->far);
    assert_int_equal(p->rig->event_count, 1);
    assert_ptr_equal(p->rig->events[0].owner, p->b);
    assert_int_equal(rig_events(p->rig, EVENT_QP_LAST_WQE_REACHED), 1);
    nic_ring_page(&p->rig->nic, 0);
    expect_none(p->far);
    assert_int_equal(p->rig->event_count, 0);
    expect_sent(p->cq, s->third, rig_send_message(s->third, SIGNALLED, &p->near, 0, 10));
    expect_received(p->far, s->fourth, MLX5_CQE_RESP_SEND, taken, 10);
}

/* The fault `taken`: WQEs that a failing QP has taken come back late, and before LAST_WQE_REACHED. */
static void test_taken_come_back(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t index[4];
    rig_fault(p->rig, "taken=2:1000");
    for (uint32_t i = 0; i < 4; i++) {
        index[i] = rig_srq_receive(s->srq, &p->there, 0, 100);
    }
    qp_set_state(&p->rig->nic, p->b->qp, STATE_ERR);
    rig_run(p->rig);
    expect_none(p->far);
    assert_int_equal(rig_events(p->rig, EVENT_QP_LAST_WQE_REACHED), 0);
    expect_sent(p->cq, s->third, rig_send_message(s->third, SIGNALLED, &p->near, 0, 10));
    expect_received(p->far, s->fourth, MLX5_CQE_RESP_SEND, index[2], 10);
    rig_pass(p->rig, 2000000);
    expect_receive_error(p->far, p->b, index[0], WR_FLUSH_ERR);
    expect_receive_error(p->far, p->b, index[1], WR_FLUSH_ERR);
    assert_int_equal(rig_events(p->rig, EVENT_QP_LAST_WQE_REACHED), 1);
    rig_pass(p->rig, 10000000);
    expect_none(p->far);
}

/* ... and never, if it is destroyed before. */
static void test_taken_are_lost(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    rig_fault(p->rig, "taken=100:1000");
    for (uint32_t i = 0; i < 4; i++) {
        rig_srq_receive(s->srq, &p->there, 0, 100);
    }
    qp_set_state(&p->rig->nic, p->b->qp, STATE_ERR);
    rig_run(p->rig);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET); /* as if it was destroyed */
    rig_pass(p->rig, 10000000);
    expect_none(p->far);
    assert_int_equal(rig_events(p->rig, EVENT_QP_LAST_WQE_REACHED), 0);
    rig_send_message(s->third, SIGNALLED, &p->near, 0, 10);
    rig_run(p->rig);
    assert_int_equal(s->third->qp->statistics->rnr_naks, 1);
}

/* A message that was half received holds a WQE, which is flushed. */
static void test_flush_of_taken(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    uint16_t taken = rig_srq_receive(s->srq, &p->there, 0, 100000);
    struct packet first = {.operation = PACKET_SEND_FIRST,
                           .payload_bytes = 1024,
                           .source_qpn = p->a->qp->number,
                           .psn = p->b->qp->expected_psn};
    responder_receive(&p->rig->nic, p->b->qp, &first, p->near.bytes);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_ERR);
    expect_receive_error(p->far, p->b, taken, WR_FLUSH_ERR);
    expect_none(p->far);
}

/* The domain of the memory is that of the SRQ and not of the QP. */
static void test_domain(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    struct rig_memory other = rig_memory_with(p->rig, 100, RIG_ACCESS_ALL, RIG_DOMAIN + 1);
    uint16_t bad = rig_srq_receive(s->srq, &p->there, 0, 100);
    s->srq->srq->domain = RIG_DOMAIN + 1;
    rig_send_message(p->a, 0, &p->near, 0, 10);
    expect_receive_error(p->far, p->b, bad, LOCAL_PROT_ERR);
    uint16_t good = rig_srq_receive(s->srq, &other, 0, 100);
    rig_send_message(s->third, SIGNALLED, &p->near, 0, 10);
    expect_received(p->far, s->fourth, MLX5_CQE_RESP_SEND, good, 10);
}

static void test_datagrams(void **state)
{
    struct shared *s = *state;
    struct pair *p = &s->pair;
    struct rig_qp_options options = {.type = TYPE_UD, .srq = s->srq};
    struct rig_qp *u = rig_qp_new(p->rig, p->far, &options);
    struct rig_wqe wqe;
    rig_qp_point(u, u);
    uint16_t taken = rig_srq_receive(s->srq, &p->there, 0, 100);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, 0);
    rig_wqe_address(&wqe, u->qp->number, u->qp->attributes.queue_key, rails[0].gid[3].raw, 3);
    rig_wqe_inline(&wqe, "datagram", 8);
    rig_send(u, &wqe);
    expect_received(p->far, u, MLX5_CQE_RESP_SEND, taken, 48);
    assert_memory_equal(p->there.bytes + 40, "datagram", 8);
}

static int teardown_shared(void **state)
{
    struct shared *s = *state;
    rig_delete(s->pair.rig);
    return 0;
}

#define SHARED(name) cmocka_unit_test_setup_teardown(name, setup_shared, teardown_shared)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(test_two_queue_pairs), SHARED(test_list_order),     SHARED(test_empty_is_not_ready),
        SHARED(test_limit),           SHARED(test_last_wqe),       SHARED(test_flush_of_taken),
        SHARED(test_taken_come_back), SHARED(test_taken_are_lost), SHARED(test_domain),
        SHARED(test_datagrams),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tag_test.c: tag matching: the list and its WQEs, messages that match and those that do not,
 * counts of unexpected ones, and what ends badly. */
#include "simnic/nic/tests/tag_rig.h"

/* ---- the list ---- */

static void test_expected(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    rig_srq_receive(m->srq, &p->there, 4096, 1000);
    uint16_t tag = add(m, ASKED, 5, ANY, 0, 500);
    expect_operation(m, TAG_CQE_APPENDED, true, 0);
    send(m, IBV_TMH_EAGER, 5, HEADER + 100);
    expect_matched(m, tag, 5, 100);
    assert_memory_equal(p->there.bytes, p->near.bytes + HEADER, 100);
    assert_int_equal(m->srq->srq->taken, 0);
    tag = add(m, 0, 6, ANY, 0, 0);
    send(m, IBV_TMH_EAGER, 6, HEADER);
    expect_matched(m, tag, 6, 0);
    expect_none(p->far);
}

/* The first that matches, in the order they were added; a mask hides bits of the message's tag. */
static void test_order(void **state)
{
    struct matching *m = *state;
    uint16_t exact = add(m, 0, 0x1234, ANY, 0, 100);
    uint16_t low = add(m, 0, 0x34, 0xff, 100, 100);
    uint16_t all = add(m, 0, 0, 0, 200, 100);
    uint16_t never = add(m, 0, 0x100, 0xff, 300, 100); /* a bit that the mask hides */
    uint16_t again = add(m, 0, 0x1234, ANY, 400, 100);
    send(m, IBV_TMH_EAGER, 0x9934, HEADER + 10);
    expect_matched(m, low, 0x9934, 10);
    send(m, IBV_TMH_EAGER, 0x1234, HEADER + 10);
    expect_matched(m, exact, 0x1234, 10);
    send(m, IBV_TMH_EAGER, 0x100, HEADER + 10);
    expect_matched(m, all, 0x100, 10);
    send(m, IBV_TMH_EAGER, 0x1234, HEADER + 10);
    expect_matched(m, again, 0x1234, 10);
    change(m, OPERATION_REMOVE, ASKED, never);
    expect_operation(m, TAG_CQE_REMOVED, true, 0);
}

static void test_remove(void **state)
{
    struct matching *m = *state;
    uint16_t first = add(m, 0, 1, ANY, 0, 100), second = add(m, 0, 1, ANY, 100, 100);
    change(m, OPERATION_REMOVE, ASKED, first);
    expect_operation(m, TAG_CQE_REMOVED, true, 0);
    change(m, OPERATION_REMOVE, ASKED, first);
    expect_operation(m, TAG_CQE_REMOVED, false, 0);
    send(m, IBV_TMH_EAGER, 1, HEADER + 1);
    expect_matched(m, second, 1, 1);
    change(m, OPERATION_REMOVE, ASKED, second);
    expect_operation(m, TAG_CQE_REMOVED, false, 0);
    change(m, OPERATION_REMOVE, 0, second); /* and nobody asks */
    expect_none(m->pair.far);
}

/* A tag that is added while an unexpected message is not handled matches nothing before it is. */
static void test_counts(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t wqe = rig_srq_receive(m->srq, &p->there, 4096, 1000);
    uint16_t other = rig_srq_receive(m->srq, &p->there, 5120, 1000);
    uint16_t old = add(m, 0, 8, ANY, 0, 100);
    send(m, IBV_TMH_EAGER, 7, HEADER + 50);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, HEADER + 50);
    assert_memory_equal(p->there.bytes + 4096, p->near.bytes, HEADER + 50);
    uint16_t late = add(m, ASKED | COUNTED, 9, ANY, 100, 100);
    expect_operation(m, TAG_CQE_APPENDED, true, 1);
    send(m, IBV_TMH_EAGER, 8, HEADER + 50); /* those before go on matching */
    expect_matched(m, old, 8, 50);
    send(m, IBV_TMH_EAGER, 9, HEADER + 50);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, other, HEADER + 50);
    m->count = 1; /* not enough */
    change(m, OPERATION_NONE, ASKED | COUNTED, 0);
    expect_operation(m, TAG_CQE_SYNCHRONIZED, true, 2);
    m->count = 2;
    change(m, OPERATION_NONE, ASKED, 0); /* which does not tell the count */
    expect_operation(m, TAG_CQE_SYNCHRONIZED, true, 2);
    change(m, OPERATION_NONE, COUNTED, 0);
    send(m, IBV_TMH_EAGER, 9, HEADER + 50);
    expect_matched(m, late, 9, 50);
}

/* What has no tag goes whole to a receive, and is not counted. */
static void test_without_tag(void **state)
{
    static const struct {
        uint8_t opcode;
        uint32_t bytes;
    } cases[] = {{IBV_TMH_NO_TAG, 100}, {IBV_TMH_FIN, 32}, {IBV_TMH_EAGER, 15},
                 {IBV_TMH_EAGER, 0},    {0x55, 100},       {IBV_TMH_NO_TAG, 5000}};
    struct matching *m = *state;
    struct pair *p = &m->pair;
    add(m, 0, 0, 0, 0, 100);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t wqe = rig_srq_receive(m->srq, &p->there, 4096, 10000);
        send(m, cases[i].opcode, 1, cases[i].bytes);
        expect_unexpected(m, TAG_CQE_WITHOUT, wqe, cases[i].bytes);
        assert_memory_equal(p->there.bytes + 4096, p->near.bytes, cases[i].bytes);
    }
    change(m, OPERATION_NONE, ASKED, 0);
    expect_operation(m, TAG_CQE_SYNCHRONIZED, true, 0);
}

/* The match is told before the data. */
static void test_long_messages(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t tag = add(m, 0, 3, ANY, 0, 5000);
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    rig_send_message(p->a, 0, &p->near, 0, HEADER + 5000);
    struct mlx5_cqe64 cqe = expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
    assert_int_equal(be64toh(cqe.tmh.tag), 3);
    cqe = expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_EXPECTED, tag, 5000);
    assert_int_equal(cqe.tmh.tag, 0);
    assert_memory_equal(p->there.bytes, p->near.bytes + HEADER, 5000);
    uint16_t wqe = rig_srq_receive(m->srq, &p->there, 8192, 10000);
    send(m, IBV_TMH_EAGER, 3, HEADER + 5000);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, HEADER + 5000);
    assert_memory_equal(p->there.bytes + 8192, p->near.bytes, HEADER + 5000);
}

/* Unexpected counts from the first packet on: no tag may slip in between. */
static void test_interrupted_unexpected(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t wqe = rig_srq_receive(m->srq, &p->there, 0, 10000);
    struct packet first = first_packet(p);
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    responder_receive(&p->rig->nic, p->b->qp, &first, p->near.bytes);
    change(m, OPERATION_NONE, ASKED, 0);
    expect_operation(m, TAG_CQE_SYNCHRONIZED, true, 1);
    qp_fail(&p->rig->nic, p->b->qp);
    struct mlx5_cqe64 cqe = expect(p->far, MLX5_CQE_RESP_ERR);
    assert_int_equal(be16toh(cqe.wqe_counter), wqe);
    change(m, OPERATION_NONE, ASKED, 0); /* software has no message to count */
    expect_operation(m, TAG_CQE_SYNCHRONIZED, true, 0);
}

static void test_interrupted_match(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    for (int by_reset = 0; by_reset < 2; by_reset++) {
        uint16_t tag = add(m, ASKED, 3, ANY, 0, 10000);
        expect_operation(m, TAG_CQE_APPENDED, true, 0);
        struct packet first = first_packet(p);
        put_header(p->near.bytes, IBV_TMH_EAGER, 3);
        responder_receive(&p->rig->nic, p->b->qp, &first, p->near.bytes);
        expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
        change(m, OPERATION_REMOVE, ASKED, tag);
        expect_operation(m, TAG_CQE_REMOVED, false, 0);
        qp_set_state(&p->rig->nic, p->b->qp, by_reset ? STATE_RESET : STATE_ERR);
        expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, tag, 0);
        expect_none(p->far);
        qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET);
        qp_set_state(&p->rig->nic, p->b->qp, STATE_INIT);
        rig_qp_point(p->b, p->a);
    }
}

/* ---- errors of data ---- */

static void test_too_long(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    uint16_t tag = add(m, 0, 3, ANY, 0, 99);
    uint16_t wqe = rig_srq_receive(m->srq, &p->there, 8192, 10000);
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    uint16_t index = rig_send_message(p->a, 0, &p->near, 0, HEADER + 100);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, tag, 0);
    struct mlx5_cqe64 cqe = expect(p->far, MLX5_CQE_RESP_ERR);
    assert_int_equal(((struct mlx5_err_cqe *)(void *)&cqe)->syndrome,
                     MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    assert_int_equal(be16toh(cqe.wqe_counter), wqe);
    expect_send_error(p->cq, p->a, index, REMOTE_INVAL_REQ_ERR);
    assert_int_equal(p->b->qp->state, STATE_ERR);
}

static void test_wrong_key(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    p->there.key ^= 0x55;
    uint16_t tag = add(m, 0, 3, ANY, 0, 1000);
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    uint16_t index = rig_send_message(p->a, 0, &p->near, 0, HEADER + 100);
    expect_tag(m, MLX5_CQE_RESP_SEND, TAG_CQE_CANCELED, tag, 0);
    expect_none(p->far); /* there is no receive for an error CQE */
    expect_send_error(p->cq, p->a, index, REMOTE_OP_ERR);
}

static void test_not_ready(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, HEADER + 100);
    rig_run(p->rig);
    assert_int_equal(p->a->qp->statistics->rnr_naks, 1);
    uint16_t tag = add(m, 0, 3, ANY, 0, 100); /* before the message comes again */
    rig_pass(p->rig, 1000000);
    expect_sent(p->cq, p->a, index);
    expect_matched(m, tag, 3, 100);
}

/* ---- WQEs that are wrong ---- */

static void break_wqe(struct matching *m, struct rig_wqe *wqe, uint32_t which)
{
    tag_wqe(wqe, OPERATION_APPEND, ASKED, 1, 0);
    set_tag(wqe, 1, ANY);
    rig_wqe_data(wqe, (uintptr_t)m->pair.there.bytes, 100, m->pair.there.key);
    switch (which) {
    case 0: /* an operation that there is not */
        wqe->bytes[16] = 0x30;
        break;
    case 1: /* the next place is none */
        wqe->bytes[18] = PLACES >> 8;
        wqe->bytes[19] = PLACES & 0xff;
        break;
    case 2: /* one more segment */
        rig_wqe_data(wqe, (uintptr_t)m->pair.there.bytes, 100, m->pair.there.key);
        break;
    case 3: /* without its buffer */
        wqe->size -= 16;
        break;
    case 4: /* without half of the tag segment */
        wqe->size = 32;
        break;
    default: /* a place that is none is removed */
        tag_wqe(wqe, OPERATION_REMOVE, ASKED, PLACES, 0);
        break;
    }
}

static void test_wrong_wqes(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    struct rig_qp_options options = {.srq = m->srq};
    for (uint32_t which = 0; which < 6; which++) {
        struct rig_qp *qp = rig_qp_new(p->rig, p->cq, &options);
        struct rig_wqe wqe;
        rig_qp_point(qp, qp);
        break_wqe(m, &wqe, which);
        expect_send_error(p->cq, qp, rig_send(qp, &wqe), LOCAL_QP_OP_ERR);
    }
    /* None of them changed anything. */
    uint16_t tag = add(m, 0, 1, ANY, 0, 100);
    send(m, IBV_TMH_EAGER, 1, HEADER + 1);
    expect_matched(m, tag, 1, 1);
}

/* A place whose tag is still there is given again, and the tag that was there is lost. */
static void test_place_in_use(void **state)
{
    struct matching *m = *state;
    uint16_t wqe = rig_srq_receive(m->srq, &m->pair.there, 4096, 1000);
    uint16_t tag = add(m, 0, 1, ANY, 0, 100);
    m->next = 0xffff; /* names place 0 as the next, again */
    add(m, 0, 2, ANY, 0, 100);
    m->next = 5;
    add(m, ASKED, 3, ANY, 0, 100);
    expect_operation(m, TAG_CQE_APPENDED, true, 0);
    send(m, IBV_TMH_EAGER, 3, HEADER + 1);
    expect_matched(m, tag, 3, 1);
    send(m, IBV_TMH_EAGER, 2, HEADER + 1);
    expect_matched(m, 1, 2, 1);
    send(m, IBV_TMH_EAGER, 1, HEADER + 1);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, HEADER + 1);
}

/* But not while a message is coming in for it. */
static void test_place_receiving(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    struct packet first = first_packet(p);
    add(m, 0, 3, ANY, 0, 10000);
    m->next = 0xffff;
    add(m, 0, 2, ANY, 0, 100);
    put_header(p->near.bytes, IBV_TMH_EAGER, 3);
    rig_run(p->rig);
    responder_receive(&p->rig->nic, p->b->qp, &first, p->near.bytes);
    expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, 0, 0);
    add(m, 0, 4, ANY, 0, 100);
    struct mlx5_cqe64 cqe = expect(p->far, MLX5_CQE_REQ_ERR);
    assert_int_equal(be16toh(cqe.wqe_counter), 2);
}

/* A program that names the tag's own place, and has one tag at a time, gets what it expects. If it has more, the first is lost. */
static void test_own_places(void **state)
{
    struct matching *m = *state;
    uint16_t wqe = rig_srq_receive(m->srq, &m->pair.there, 4096, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        m->next = 0xffff; /* names place 0, which it goes to */
        add(m, ASKED, 10 + i, ANY, 0, 100);
        expect_operation(m, TAG_CQE_APPENDED, true, 0);
        send(m, IBV_TMH_EAGER, 10 + i, HEADER + 1);
        expect_matched(m, 0, 10 + i, 1);
    }
    m->next = 0xffff;
    for (uint32_t i = 0; i < 8; i++) {
        add(m, ASKED, 20 + i, ANY, 0, 100);
        expect_operation(m, TAG_CQE_APPENDED, true, 0);
    }
    for (uint32_t i = 1; i < 8; i++) {
        send(m, IBV_TMH_EAGER, 20 + i, HEADER + 1);
        expect_matched(m, (uint16_t)(i - 1), 20 + i, 1);
    }
    send(m, IBV_TMH_EAGER, 20, HEADER + 1);
    expect_unexpected(m, TAG_CQE_UNEXPECTED, wqe, HEADER + 1);
}

/* Places are given again when their messages have come, as libmlx5 does: here two take turns. */
static void test_places_again(void **state)
{
    struct matching *m = *state;
    for (uint32_t i = 0; i < 10; i++) {
        uint16_t tag = (uint16_t)(i % 2);
        m->next = (uint16_t)(-(int)tag); /* the place after this one: 1, and then 0 */
        add(m, 0, i, ANY, 0, 5000);
        uint32_t bytes = i < 5 ? 10 : 5000; /* of one packet, and of several */
        put_header(m->pair.near.bytes, IBV_TMH_EAGER, i);
        rig_send_message(m->pair.a, 0, &m->pair.near, 0, HEADER + bytes);
        if (i >= 5) {
            expect_tag(m, MLX5_CQE_NO_PACKET, TAG_CQE_CONSUMED, tag, 0);
        }
        expect_tag(m, MLX5_CQE_RESP_SEND, i < 5 ? TAG_CQE_CONSUMED_WHOLE : TAG_CQE_EXPECTED, tag,
                   bytes);
    }
}

/* A compressed CQ tells of each by itself: mini CQEs have no place for what it is about. */
static void test_compressed_queue(void **state)
{
    struct matching *m = *state;
    assert_true(compression_create(m->pair.far->cq, MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX));
    for (uint32_t i = 0; i < 10; i++) {
        rig_srq_receive(m->srq, &m->pair.there, 4096, 1000);
    }
    put_header(m->pair.near.bytes, IBV_TMH_NO_TAG, 0);
    for (uint32_t i = 0; i < 10; i++) { /* in one round */
        rig_send_message(m->pair.a, 0, &m->pair.near, 0, 100);
    }
    for (uint16_t i = 0; i < 10; i++) {
        expect_unexpected(m, TAG_CQE_WITHOUT, i, 100);
    }
}

static void test_elsewhere(void **state)
{
    struct matching *m = *state;
    struct pair *p = &m->pair;
    struct rig_wqe wqe;
    break_wqe(m, &wqe, 6);
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), LOCAL_QP_OP_ERR);
    struct rig_qp_options options = {.type = TYPE_UD, .srq = m->srq};
    struct rig_qp *u = rig_qp_new(p->rig, p->cq, &options);
    rig_qp_point(u, u);
    tag_wqe(&wqe, OPERATION_NONE, ASKED, 0, 0);
    expect_send_error(p->cq, u, rig_send(u, &wqe), LOCAL_QP_OP_ERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MATCHING(test_expected),
        MATCHING(test_order),
        MATCHING(test_remove),
        MATCHING(test_counts),
        MATCHING(test_without_tag),
        MATCHING(test_long_messages),
        MATCHING(test_interrupted_unexpected),
        MATCHING(test_interrupted_match),
        MATCHING(test_too_long),
        MATCHING(test_wrong_key),
        MATCHING(test_not_ready),
        MATCHING(test_wrong_wqes),
        MATCHING(test_place_in_use),
        MATCHING(test_place_receiving),
        MATCHING(test_own_places),
        MATCHING(test_places_again),
        MATCHING(test_compressed_queue),
        MATCHING(test_elsewhere),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

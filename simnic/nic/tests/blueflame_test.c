/* blueflame_test.c: doorbell pages: plain doorbells, WQEs pushed through BlueFlame registers,
 * pushes that come in pieces, and pushes that say something else than the queue. */
#include "simnic/nic/tests/expect.h"

#define PATIENCE_NS 20000000ull /* as requester.c has it */

/* A WRITE of inline bytes, as a program would push it. */
static void make_write(const struct pair *p, struct rig_wqe *wqe, uint32_t slot, const char *text)
{
    rig_wqe_start(wqe, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    rig_wqe_remote(wqe, (uintptr_t)p->there.bytes + slot * 256u, p->there.key);
    rig_wqe_inline(wqe, text, (uint32_t)strlen(text));
}

/* Connected, and nothing left to look at. */
static int setup_quiet(void **state)
{
    int result = setup(state);
    struct pair *p = *state;
    rig_run(p->rig);
    return result;
}

static const char *written(const struct pair *p, uint32_t slot)
{
    return (const char *)p->there.bytes + slot * 256u;
}

static void test_plain(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 10; i++) {
        struct rig_wqe wqe;
        make_write(p, &wqe, i, "plain");
        uint16_t index = rig_post(p->a, &wqe);
        nic_run(&p->rig->nic, p->rig->now_ns);
        expect_none(p->cq); /* nobody rang */
        rig_ring(p->a, &wqe);
        expect_sent(p->cq, p->a, index);
        assert_string_equal(written(p, i), "plain");
    }
    assert_int_equal(p->a->qp->statistics->doorbells, 10);
    assert_int_equal(p->a->qp->statistics->wqe_reads, 10);
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 0);
}

/* A doorbell that another way has told of. */
static void test_ring_page(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    make_write(p, &wqe, 0, "told");
    uint16_t index = rig_post(p->a, &wqe);
    nic_ring_page(&p->rig->nic, 1); /* not its page */
    nic_ring_page(&p->rig->nic, NIC_MAX_PAGES);
    expect_none(p->cq);
    nic_ring_page(&p->rig->nic, 0);
    expect_sent(p->cq, p->a, index);
}

/* One doorbell tells of all QPs of its page: the register shows the last writer only. */
static void test_last_writer(void **state)
{
    struct pair *p = *state;
    struct rig_wqe first, second;
    make_write(p, &first, 0, "first");
    uint16_t at_a = rig_post(p->a, &first);
    rig_wqe_start(&second, MLX5_OPCODE_NOP, SIGNALLED);
    uint16_t at_b = rig_post(p->b, &second);
    memcpy(p->rig->page[0] + 0x800, first.bytes, 8);
    rig_ring(p->b, &second);
    expect_sent(p->cq, p->a, at_a);
    expect_sent(p->far, p->b, at_b);
}

/* Several WQEs in one push are taken from it; one that is another in the queue is read there. */
static void test_push_of_several(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqes[3], push = {0};
    uint16_t index[3];
    for (uint32_t round = 0; round < 2; round++) {
        push.size = 0;
        for (uint32_t i = 0; i < 3; i++) {
            make_write(p, &wqes[i], i, "gathered");
            index[i] = rig_post(p->a, &wqes[i]);
            memcpy(push.bytes + push.size, wqes[i].bytes, 64);
            push.size += 64;
        }
        if (round == 1) {
            push.bytes[64 + 48] ^= 1; /* in the second WQE's data */
        }
        rig_push(p->a, &push, round, push.size);
        for (uint32_t i = 0; i < 3; i++) {
            expect_sent(p->cq, p->a, index[i]);
            assert_string_equal(written(p, i), "gathered");
        }
        assert_int_equal(p->a->qp->statistics->wqe_reads, round == 0 ? 0 : 2);
        assert_int_equal(p->a->qp->statistics->blueflame_executed, round == 0 ? 3 : 4);
        assert_int_equal(p->a->qp->statistics->blueflame_pushes, round + 1);
    }
}

/* At every register, of every size; the queue's copy is not what runs. */
static void test_push(void **state)
{
    struct pair *p = *state;
    static const char *texts[] = {"a", "twelve bytes",
                                  "forty-five bytes that need two blocks, I say"};
    uint32_t count = 0;
    char text[192];
    memset(text, 'x', sizeof(text));
    text[180] = '\0';
    for (uint32_t which = 0; which < NIC_REGISTERS; which++) {
        for (uint32_t t = 0; t < 4; t++) {
            struct rig_wqe wqe;
            const char *pushed = t < 3 ? texts[t] : text;
            memset(p->there.bytes, 0, 256);
            make_write(p, &wqe, 0, pushed);
            uint16_t index = rig_post(p->a, &wqe);
            rig_push(p->a, &wqe, which, (wqe.size + 63) & ~63u);
            expect_sent(p->cq, p->a, index);
            assert_string_equal(written(p, 0), pushed);
            count++;
            assert_int_equal(p->a->qp->statistics->blueflame_pushes, count);
            assert_int_equal(p->a->qp->statistics->blueflame_executed, count);
        }
    }
    assert_int_equal(p->a->qp->statistics->wqe_reads, 0);
}

/* A push that is not what the queue holds is executed as it was pushed: that is what an adapter
 * does. */
static void test_push_differs(void **state)
{
    struct pair *p = *state;
    struct rig_wqe queued, pushed;
    make_write(p, &queued, 0, "queued");
    make_write(p, &pushed, 0, "pushed");
    rig_wqe_finish(&pushed, p->a);
    uint16_t index = rig_post(p->a, &queued);
    rig_push(p->a, &pushed, 0, 64);
    rig_pass(p->rig, PATIENCE_NS + 1000); /* the rest might still have come */
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 0), "pushed");
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 1);
}

/* The first word of a push is seen before the others: the WQE runs when they have come. */
static void test_incomplete(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    for (uint32_t i = 0; i < 4; i++) {
        char text[16];
        snprintf(text, sizeof(text), "number %u", i);
        make_write(p, &wqe, i, text);
        uint16_t index = rig_post(p->a, &wqe);
        rig_push(p->a, &wqe, 0, 32);
        expect_none(p->cq);
        rig_pass(p->rig, 1000000);
        expect_none(p->cq);
        assert_true(nic_deadline_ns(&p->rig->nic) <= p->rig->now_ns + 1000000);
        memcpy(p->rig->page[0] + 0x800 + 8, wqe.bytes + 8, 56);
        rig_pass(p->rig, 1000000);
        expect_sent(p->cq, p->a, index);
        assert_string_equal(written(p, i), text);
    }
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 4);
}

/* The patience with an incomplete push begins when it is seen, and not when the NIC last ran. */
static void test_incomplete_after_idle(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    p->rig->now_ns += 10 * PATIENCE_NS;
    make_write(p, &wqe, 0, "slowly");
    uint16_t index = rig_post(p->a, &wqe);
    rig_push(p->a, &wqe, 0, 32);
    expect_none(p->cq);
    memcpy(p->rig->page[0] + 0x800 + 8, wqe.bytes + 8, 56);
    rig_pass(p->rig, 1000000);
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 0), "slowly");
}

/* A push whose rest never comes is read from the queue, after a while. */
static void test_never_complete(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    make_write(p, &wqe, 0, "one");
    rig_post(p->a, &wqe);
    rig_push(p->a, &wqe, 0, 64);
    expect(p->cq, MLX5_CQE_REQ);
    make_write(p, &wqe, 1, "two");
    uint16_t index = rig_post(p->a, &wqe);
    rig_push(p->a, &wqe, 0, 32);
    rig_pass(p->rig, PATIENCE_NS - 1000);
    expect_none(p->cq);
    rig_pass(p->rig, 2000);
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 1), "two");
}

/* Pushes follow each other quicker than the NIC looks: what is overwritten is read from the
 * queue. */
static void test_push_over_push(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe[6];
    for (uint32_t i = 0; i < 6; i++) {
        char text[16];
        snprintf(text, sizeof(text), "push %u", i);
        make_write(p, &wqe[i], i, text);
        rig_post(p->a, &wqe[i]);
        memcpy(p->rig->page[0] + 0x800 + (i % 2) * 0x100, wqe[i].bytes, 64);
    }
    nic_look_at_doorbells(&p->rig->nic);
    for (uint16_t i = 0; i < 6; i++) {
        char text[16];
        snprintf(text, sizeof(text), "push %u", i);
        expect_sent(p->cq, p->a, i);
        assert_string_equal(written(p, i), text);
    }
}

/* A push at a place that the doorbell record has not reached, or that was long ago, is no
 * request. */
static void test_push_elsewhere(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    make_write(p, &wqe, 0, "early");
    p->a->sent = 5;
    rig_wqe_finish(&wqe, p->a);
    p->a->sent = 0;
    rig_push(p->a, &wqe, 0, 64);
    expect_none(p->cq);
    make_write(p, &wqe, 0, "right");
    uint16_t index = rig_send(p->a, &wqe);
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 0), "right");
    /* The same doorbell again says nothing new. */
    rig_push(p->a, &wqe, 1, 64);
    expect_none(p->cq);
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 0);
}

/* A push of size 0 or of more than a register holds rings, and no more. */
static void test_push_sizes(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    char text[600];
    memset(text, 'y', sizeof(text));
    text[500] = '\0';
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
    rig_wqe_inline(&wqe, text, 500);
    uint16_t index = rig_post(p->a, &wqe);
    rig_push(p->a, &wqe, 2, 256);
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 0), text);
    make_write(p, &wqe, 4, "size 0");
    index = rig_post(p->a, &wqe);
    uint32_t no_size = htobe32(p->a->qp->number << 8);
    struct rig_wqe pushed = wqe;
    memcpy(pushed.bytes + 4, &no_size, 4);
    rig_push(p->a, &pushed, 3, 64);
    expect_sent(p->cq, p->a, index);
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 0);
}

/* In a crowd, the one whose doorbell is seen does not wait for a look at all the others: they are looked at a little
 * later, or much later if their doorbells should have been seen, too. */
static void test_last_writer_in_a_crowd(void **state)
{
    struct pair *p = *state;
    struct rig_wqe first, second, nothing;
    for (uint32_t i = 0; i < 100; i++) {
        rig_qp_new(p->rig, p->cq, &(struct rig_qp_options){0});
    }
    rig_wqe_start(&nothing, MLX5_OPCODE_NOP, SIGNALLED);
    uint16_t at_b = rig_post(p->b, &nothing); /* the first look is at all of them */
    rig_ring(p->b, &nothing);
    expect_sent(p->far, p->b, at_b);
    for (int seen = 0; seen < 2; seen++) {
        const uint64_t wait_ns = seen ? 10000000 : 102 * 100;
        p->rig->nic.sees_each_store = seen;
        make_write(p, &first, 0, "first");
        uint16_t at_a = rig_post(p->a, &first);
        rig_wqe_start(&second, MLX5_OPCODE_NOP, SIGNALLED);
        at_b = rig_post(p->b, &second);
        memcpy(p->rig->page[0] + 0x800 + (size_t)p->b->which * NIC_BLUEFLAME_BYTES, first.bytes, 8);
        rig_ring(p->b, &second);
        expect_sent(p->far, p->b, at_b);
        rig_pass(p->rig, wait_ns - 1);
        expect_none(p->cq);
        rig_pass(p->rig, 1);
        expect_sent(p->cq, p->a, at_a);
        assert_int_equal(p->rig->nic.searches, 0);
    }
}

/* A push waits for its rest while another QP of the page pushes into the same register: each runs
 * its own WQE. */
static void test_two_writers(void **state)
{
    struct pair *p = *state;
    struct rig_wqe first, second;
    make_write(p, &first, 0, "first");
    uint16_t at_a = rig_post(p->a, &first);
    rig_push(p->a, &first, 0, 32);
    expect_none(p->cq);
    memcpy(p->rig->page[0] + 0x800 + 8, first.bytes + 8, 56); /* it is complete, but not seen */
    rig_wqe_start(&second, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    rig_wqe_remote(&second, (uintptr_t)p->near.bytes, p->near.key);
    rig_wqe_inline(&second, "other", 5);
    uint16_t at_b = rig_post(p->b, &second);
    rig_push(p->b, &second, 0, 64);
    expect_sent(p->far, p->b, at_b);
    rig_pass(p->rig, PATIENCE_NS + 1000);
    expect_sent(p->cq, p->a, at_a);
    assert_string_equal(written(p, 0), "first");
    assert_memory_equal(p->near.bytes, "other", 5);
}

/* The same, but the other QP's push comes when its WQE has been executed already, from the queue:
 * it is nobody's request, and must not be taken for the rest of the first. */
static void test_late_writer(void **state)
{
    struct pair *p = *state;
    struct rig_wqe first, second;
    rig_wqe_start(&second, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    rig_wqe_remote(&second, (uintptr_t)p->near.bytes, p->near.key);
    rig_wqe_inline(&second, "other", 5);
    uint16_t at_b = rig_post(p->b, &second);
    rig_push(p->b, &second, 3, 8); /* a doorbell alone, at another register */
    expect_sent(p->far, p->b, at_b);
    make_write(p, &first, 0, "first");
    uint16_t at_a = rig_post(p->a, &first);
    rig_push(p->a, &first, 0, 32);
    expect_none(p->cq);
    rig_push(p->b, &second, 0, 64);
    rig_pass(p->rig, 1000000);
    expect_sent(p->cq, p->a, at_a);
    assert_string_equal(written(p, 0), "first");
    expect_none(p->far);
}

/* A WRITE of another QP of the page, which the NIC has not looked at when its register is written
 * again. */
static uint16_t push_unseen(const struct pair *p, uint32_t at)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->near.bytes + at, p->near.key);
    rig_wqe_inline(&wqe, "other", 5);
    uint16_t index = rig_post(p->b, &wqe);
    memcpy(p->rig->page[0] + 0x800, wqe.bytes, 64);
    return index;
}

/* A QP rings at a register, or begins to push, that another QP's push was written to just before:
 * what the register has of that push is no part of the first's WQE. */
static void test_ring_over_push(void **state)
{
    struct pair *p = *state;
    for (uint32_t bytes = 8; bytes <= 56; bytes += 8) {
        struct rig_wqe wqe;
        memset(p->there.bytes, 0, 256);
        memset(p->near.bytes, 0, 256);
        uint16_t at_b = push_unseen(p, bytes);
        make_write(p, &wqe, 0, "its own words");
        uint16_t at_a = rig_post(p->a, &wqe);
        memcpy(p->rig->page[0] + 0x800, wqe.bytes, bytes);
        nic_look_at_doorbells(&p->rig->nic);
        if (bytes > 8) { /* it may still go on */
            rig_pass(p->rig, PATIENCE_NS + 1000);
        }
        expect_sent(p->far, p->b, at_b);
        expect_sent(p->cq, p->a, at_a);
        assert_string_equal(written(p, 0), "its own words");
        assert_memory_equal(p->near.bytes + bytes, "other", 5);
    }
}

/* The same when the other QP, and its queue, are gone by then. */
static void test_ring_over_push_of_none(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    push_unseen(p, 0);
    qp_destroy(&p->rig->nic, p->b->qp);
    make_write(p, &wqe, 0, "its own words");
    rig_wqe_finish(&wqe, p->a);
    rig_post(p->a, &wqe);
    memcpy(p->rig->page[0] + 0x800, wqe.bytes, 8);
    nic_look_at_doorbells(&p->rig->nic);
    rig_pass(p->rig, PATIENCE_NS + 1000);
    assert_int_equal(p->a->qp->statistics->blueflame_executed, 0);
    assert_int_equal(p->a->qp->statistics->wqe_reads, 1);
}

/* The same when it was a WQE of this QP, which was reset since: its WQEs are counted from 0 again, so that one of before has the
 * index of one that is there now. */
static void test_ring_over_push_before_reset(void **state)
{
    struct pair *p = *state;
    struct rig_wqe before, wqe;
    make_write(p, &before, 0, "of before");
    rig_post(p->a, &before);
    memcpy(p->rig->page[0] + 0x800, before.bytes, 64);
    qp_set_state(&p->rig->nic, p->a->qp, STATE_RESET);
    p->a->sent = 0;
    rig_qp_point(p->a, p->b);
    make_write(p, &wqe, 0, "its own words");
    uint16_t index = rig_post(p->a, &wqe);
    memcpy(p->rig->page[0] + 0x800, wqe.bytes, 8);
    nic_look_at_doorbells(&p->rig->nic);
    rig_pass(p->rig, PATIENCE_NS + 1000);
    expect_sent(p->cq, p->a, index);
    assert_string_equal(written(p, 0), "its own words");
}

/* A writer that stops in the middle of a push for longer than anybody waits: the WQE runs as the
 * queue has it, and not with what an earlier push left in the register. */
static void test_torn(void **state)
{
    struct pair *p = *state;
    struct rig_wqe before, wqe;
    make_write(p, &before, 0, "a push of before");
    uint16_t index = rig_post(p->a, &before);
    rig_push(p->a, &before, 0, 128);
    expect_sent(p->cq, p->a, index);
    for (uint32_t written_bytes = 8; written_bytes < 64; written_bytes += 8) {
        make_write(p, &wqe, 1, "the new one");
        index = rig_post(p->a, &wqe);
        rig_push(p->a, &wqe, 0, written_bytes);
        rig_pass(p->rig, PATIENCE_NS + 1000);
        expect_sent(p->cq, p->a, index);
        assert_string_equal(written(p, 1), "the new one");
        memset(p->there.bytes, 0, 1024);
        make_write(p, &before, 0, "a push of before");
        index = rig_post(p->a, &before);
        rig_push(p->a, &before, 0, 128);
        rig_pass(p->rig, PATIENCE_NS + 1000);
        expect_sent(p->cq, p->a, index);
        assert_string_equal(written(p, 0), "a push of before");
    }
}

/* The page goes while a push is not complete: its register must not be looked at again. */
static void test_page_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory page = rig_mapped(p->rig, NIC_UAR_BYTES);
    struct rig_qp_options options = {.page = RIG_PAGES};
    assert_true(nic_add_page(&p->rig->nic, RIG_PAGES, page.bytes));
    struct rig_qp *a = rig_qp_new(p->rig, p->cq, &options);
    rig_qp_point(a, a);
    struct rig_wqe wqe;
    make_write(p, &wqe, 0, "gone");
    uint16_t index = rig_post(a, &wqe);
    memcpy(page.bytes + 0x800, wqe.bytes, 32);
    nic_look_at_doorbells(&p->rig->nic);
    nic_remove_page(&p->rig->nic, RIG_PAGES);
    rig_unmap(&page);
    rig_pass(p->rig, PATIENCE_NS);
    expect_sent(p->cq, a, index);
    assert_string_equal(written(p, 0), "gone");
}

/* Pages come and go; a number may be used again. */
static void test_pages(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    uint8_t *memory = rig_allocate(p->rig, NIC_UAR_BYTES);
    uint32_t end = nic->page_end;
    assert_true(nic_add_page(nic, NIC_MAX_PAGES - 1, memory));
    assert_int_equal(nic->page_end, NIC_MAX_PAGES);
    nic_remove_page(nic, NIC_MAX_PAGES - 1);
    nic_remove_page(nic, NIC_MAX_PAGES - 1);
    assert_int_equal(nic->page_end, end);
    assert_true(nic_add_page(nic, end, memory));
    nic_remove_page(nic, end);
}

#define QUIET(name) cmocka_unit_test_setup_teardown(name, setup_quiet, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUIET(test_plain),
        QUIET(test_ring_page),
        QUIET(test_last_writer),
        QUIET(test_push_of_several),
        QUIET(test_push),
        QUIET(test_push_differs),
        QUIET(test_incomplete),
        QUIET(test_incomplete_after_idle),
        QUIET(test_never_complete),
        QUIET(test_push_over_push),
        QUIET(test_push_elsewhere),
        QUIET(test_push_sizes),
        QUIET(test_two_writers),
        QUIET(test_late_writer),
        QUIET(test_last_writer_in_a_crowd),
        QUIET(test_ring_over_push),
        QUIET(test_ring_over_push_of_none),
        QUIET(test_ring_over_push_before_reset),
        QUIET(test_torn),
        QUIET(test_page_gone),
        QUIET(test_pages),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

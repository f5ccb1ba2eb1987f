/* tag_test.c: tag matching through libibverbs and libmlx5: ibv_create_srq_ex, ibv_post_srq_ops and
 * extended completions; to be run under simnic. What must work, whatever the fabric loses; with the
 * argument "trouble", what must fail. */
#include <endian.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "simnic/tests/way.h"

#define MEMORY_BYTES (1u << 20)
#define PATIENCE_S 20
#define RECEIVES 32u
#define RECEIVE_BYTES 16384u
#define TAGS_AT (MEMORY_BYTES / 2) /* tagged buffers; what is sent comes from offset 0 */
#define HEADER ((uint32_t)sizeof(struct ibv_tmh))
#define PRIVATE 0x600df00du
#define ANY UINT64_MAX

struct world {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *cq;      /* of the sender */
    struct ibv_cq_ex *tags; /* of the SRQ */
    struct ibv_srq *srq;
    struct ibv_qp *sender, *receiver;
    struct ibv_mr *region;
    uint8_t *memory;
    uint32_t unexpected; /* messages handled */
};

/* A completion at the SRQ's CQ. */
struct completion {
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t flags, bytes;
    uint64_t id, tag;
    uint32_t private;
};

static void change(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
    assert_int_equal(ibv_modify_qp(qp, a, mask | IBV_QP_STATE), 0);
}

static void start(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
    change(qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_1024,
                             .dest_qp_num = peer,
                             .max_dest_rd_atomic = 4,
                             .min_rnr_timer = 1,
                             .ah_attr = way_to_self(qp->context)};
    change(qp, &a,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 11, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    change(qp, &a,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
}

static void post_receive(struct world *w, uint32_t number)
{
    struct ibv_sge s = {(uintptr_t)w->memory + TAGS_AT / 4 + (size_t)(number % 8) * RECEIVE_BYTES,
                        RECEIVE_BYTES, w->region->lkey};
    struct ibv_recv_wr r = {.wr_id = 1000 + number, .sg_list = &s, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_srq_recv(w->srq, &r, &bad), 0);
}

static struct ibv_srq *new_srq(struct world *w, uint32_t tags)
{
    struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = RECEIVES, .max_sge = 1},
                                     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                  IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                     .srq_type = IBV_SRQT_TM,
                                     .pd = w->domain,
                                     .cq = ibv_cq_ex_to_cq(w->tags),
                                     .tm_cap = {.max_num_tags = tags, .max_ops = 16}};
    return ibv_create_srq_ex(w->context, &a);
}

static void open_world(struct world *w, uint32_t tags)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_cq_init_attr_ex c = {.cqe = 256,
                                    .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
    memset(w, 0, sizeof(*w));
    assert_non_null(list);
    assert_non_null(list[0]);
    w->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(w->context);
    w->domain = ibv_alloc_pd(w->context);
    w->cq = ibv_create_cq(w->context, 256, NULL, NULL, 0);
    w->tags = ibv_create_cq_ex(w->context, &c);
    w->memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w->region = ibv_reg_mr(w->domain, w->memory, MEMORY_BYTES,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_true(w->domain && w->cq && w->tags && w->region);
    w->srq = new_srq(w, tags);
    assert_non_null(w->srq);
    struct ibv_qp_init_attr a = {.send_cq = w->cq,
                                 .recv_cq = w->cq,
                                 .cap = {64, 64, 1, 1, 64},
                                 .qp_type = IBV_QPT_RC,
                                 .sq_sig_all = 1};
    w->sender = ibv_create_qp(w->domain, &a);
    a.srq = w->srq;
    a.cap = (struct ibv_qp_cap){0};
    w->receiver = ibv_create_qp(w->domain, &a);
    assert_true(w->sender && w->receiver);
    start(w->sender, w->receiver->qp_num);
    start(w->receiver, w->sender->qp_num);
}

static void close_world(struct world *w)
{
    assert_int_equal(ibv_destroy_qp(w->sender), 0);
    assert_int_equal(ibv_destroy_qp(w->receiver), 0);
    assert_int_equal(ibv_destroy_srq(w->srq), 0);
    assert_int_equal(ibv_dereg_mr(w->region), 0);
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(w->tags)), 0);
    assert_int_equal(ibv_dealloc_pd(w->domain), 0);
    assert_int_equal(ibv_close_device(w->context), 0);
    munmap(w->memory, MEMORY_BYTES);
}

/* ---- the list ---- */

/* Returns an errno. *handle: of the tag. */
static int add_with(struct world *w, uint64_t id, uint64_t tag, uint64_t mask, uint32_t place,
                    uint32_t bytes, uint32_t key, uint32_t *handle)
{
    struct ibv_sge s = {(uintptr_t)w->memory + TAGS_AT + place, bytes, key};
    struct ibv_ops_wr o = {
        .wr_id = id,
        .opcode = IBV_WR_TAG_ADD,
        .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
        .tm = {.unexpected_cnt = w->unexpected,
               .add = {.recv_wr_id = id, .sg_list = &s, .num_sge = 1, .tag = tag, .mask = mask}}};
    struct ibv_ops_wr *bad = NULL;
    int result = ibv_post_srq_ops(w->srq, &o, &bad);
    if (handle) {
        *handle = o.tm.handle;
    }
    return result;
}

static int operate(struct world *w, enum ibv_ops_wr_opcode opcode, uint64_t id, uint32_t handle)
{
    struct ibv_ops_wr o = {.wr_id = id,
                           .opcode = opcode,
                           .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
                           .tm = {.unexpected_cnt = w->unexpected, .handle = handle}};
    struct ibv_ops_wr *bad = NULL;
    return ibv_post_srq_ops(w->srq, &o, &bad);
}

static struct completion wait_for_tag(struct world *w)
{
    struct ibv_poll_cq_attr p = {0};
    time_t start_s = time(NULL);
    while (ibv_start_poll(w->tags, &p) != 0) {
        if (time(NULL) - start_s > PATIENCE_S) {
            fail_msg("no completion");
        }
    }
    struct completion c = {.status = w->tags->status, .id = w->tags->wr_id};
    if (c.status == IBV_WC_SUCCESS || c.status >= IBV_WC_TM_ERR) {
        struct ibv_wc_tm_info info;
        c.opcode = ibv_wc_read_opcode(w->tags);
        c.flags = ibv_wc_read_wc_flags(w->tags);
        c.bytes = ibv_wc_read_byte_len(w->tags);
        ibv_wc_read_tm_info(w->tags, &info);
        c.tag = info.tag;
        c.private = info.priv;
    }
    ibv_end_poll(w->tags);
    return c;
}

/* Waits for a completion of an operation on the list. Returns its flags. */
static uint32_t expect_operation(struct world *w, enum ibv_wc_opcode opcode, uint64_t id,
                                 enum ibv_wc_status status)
{
    struct completion c = wait_for_tag(w);
    assert_int_equal(c.status, status);
    assert_int_equal(c.opcode, opcode);
    assert_int_equal(c.id, id);
    return c.flags;
}

static uint32_t add(struct world *w, uint64_t id, uint64_t tag, uint64_t mask, uint32_t place,
                    uint32_t bytes)
{
    uint32_t handle;
    assert_int_equal(add_with(w, id, tag, mask, place, bytes, w->region->lkey, &handle), 0);
    assert_int_equal(expect_operation(w, IBV_WC_TM_ADD, id, IBV_WC_SUCCESS), 0);
    return handle;
}

/* ---- messages ---- */

static void expect_sent(struct world *w, enum ibv_wc_opcode opcode, enum ibv_wc_status status)
{
    struct ibv_wc c;
    time_t start_s = time(NULL);
    while (ibv_poll_cq(w->cq, 1, &c) == 0) {
        if (time(NULL) - start_s > PATIENCE_S) {
            fail_msg("no completion");
        }
    }
    assert_int_equal(c.status, status);
    if (status == IBV_WC_SUCCESS) {
        assert_int_equal(c.opcode, opcode);
    }
}

static void post_message(struct world *w, uint8_t opcode, uint64_t tag, uint32_t bytes)
{
    struct ibv_tmh header = {opcode, {0}, htobe32(PRIVATE), htobe64(tag)};
    struct ibv_sge s = {(uintptr_t)w->memory, bytes, w->region->lkey};
    struct ibv_send_wr r = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    for (uint32_t n = HEADER; n < bytes; n++) {
        w->memory[n] = (uint8_t)(n * 7 + tag + (n >> 8));
    }
    memcpy(w->memory, &header, sizeof(header));
    assert_int_equal(ibv_post_send(w->sender, &r, &bad), 0);
}

static void send(struct world *w, uint8_t opcode, uint64_t tag, uint32_t bytes)
{
    post_message(w, opcode, tag, bytes);
    expect_sent(w, IBV_WC_SEND, IBV_WC_SUCCESS);
}

static void expect_message(struct world *w, uint64_t id, enum ibv_wc_opcode opcode, uint32_t flags,
                           uint32_t bytes)
{
    struct completion c = wait_for_tag(w);
    assert_int_equal(c.status, IBV_WC_SUCCESS);
    assert_int_equal(c.opcode, opcode);
    assert_int_equal(c.id, id);
    assert_int_equal(c.flags, flags);
    assert_int_equal(c.bytes, bytes);
}

static void expect_match(struct world *w, uint64_t id, uint64_t tag, uint32_t bytes)
{
    struct completion c = wait_for_tag(w);
    assert_int_equal(c.status, IBV_WC_SUCCESS);
    assert_int_equal(c.opcode, IBV_WC_TM_RECV);
    assert_int_equal(c.id, id);
    assert_int_equal(c.flags, IBV_WC_TM_MATCH | (bytes ? IBV_WC_TM_DATA_VALID : 0));
    assert_int_equal(c.bytes, bytes);
    assert_int_equal(c.tag, tag);
    assert_int_equal(c.private, PRIVATE);
}

/* ---- tests ---- */

static void test_capabilities(void **state)
{
    struct world w;
    struct ibv_device_attr_ex a;
    (void)state;
    open_world(&w, 8);
    assert_int_equal(ibv_query_device_ex(w.context, NULL, &a), 0);
    assert_int_equal(a.tm_caps.flags, IBV_TM_CAP_RC);
    assert_int_equal(a.tm_caps.max_rndv_hdr_size, 64);
    assert_int_equal(a.tm_caps.max_sge, 1);
    assert_int_not_equal(a.tm_caps.max_ops, 0);
    struct ibv_srq *most = new_srq(&w, a.tm_caps.max_num_tags);
    assert_non_null(most);
    assert_int_equal(ibv_destroy_srq(most), 0);
    assert_null(new_srq(&w, a.tm_caps.max_num_tags + 1));
    close_world(&w);
}

static void test_messages(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    post_receive(&w, 0);
    post_receive(&w, 1);
    add(&w, 1, 0x12, 0xff, 0, 100);
    add(&w, 2, 0x1234, ANY, 100, 100);
    send(&w, IBV_TMH_EAGER, 0x1234, HEADER + 100);
    expect_match(&w, 2, 0x1234, 100);
    assert_memory_equal(w.memory + TAGS_AT + 100, w.memory + HEADER, 100);
    send(&w, IBV_TMH_EAGER, 0x9912, HEADER + 30);
    expect_match(&w, 1, 0x9912, 30);
    send(&w, IBV_TMH_NO_TAG, 0, 50);
    expect_message(&w, 1000, IBV_WC_TM_NO_TAG, 0, 50);
    assert_memory_equal(w.memory + TAGS_AT / 4, w.memory, 50);
    send(&w, IBV_TMH_EAGER, 3, HEADER + 20);
    expect_message(&w, 1001, IBV_WC_TM_RECV, 0, HEADER + 20);
    close_world(&w);
}

static void test_long_message(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    post_receive(&w, 0);
    add(&w, 1, 5, ANY, 0, 10000);
    send(&w, IBV_TMH_EAGER, 5, HEADER + 10000);
    expect_match(&w, 1, 5, 0);
    expect_message(&w, 1, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID, 10000);
    assert_memory_equal(w.memory + TAGS_AT, w.memory + HEADER, 10000);
    send(&w, IBV_TMH_EAGER, 5, 10000);
    expect_message(&w, 1000, IBV_WC_TM_RECV, 0, 10000);
    assert_memory_equal(w.memory + TAGS_AT / 4, w.memory, 10000);
    close_world(&w);
}

/* libmlx5 says when software must tell its count, and the tag matches when it has. */
static void test_synchronization(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    post_receive(&w, 0);
    post_receive(&w, 1);
    send(&w, IBV_TMH_EAGER, 7, HEADER + 50);
    expect_message(&w, 1000, IBV_WC_TM_RECV, 0, HEADER + 50);
    assert_int_equal(add_with(&w, 1, 8, ANY, 0, 100, w.region->lkey, NULL), 0);
    assert_int_equal(expect_operation(&w, IBV_WC_TM_ADD, 1, IBV_WC_SUCCESS), IBV_WC_TM_SYNC_REQ);
    send(&w, IBV_TMH_EAGER, 8, HEADER + 50);
    expect_message(&w, 1001, IBV_WC_TM_RECV, 0, HEADER + 50);
    w.unexpected = 2;
    assert_int_equal(operate(&w, IBV_WR_TAG_SYNC, 3, 0), 0);
    assert_int_equal(expect_operation(&w, IBV_WC_TM_SYNC, 3, IBV_WC_SUCCESS), 0);
    send(&w, IBV_TMH_EAGER, 8, HEADER + 50);
    expect_match(&w, 1, 8, 50);
    close_world(&w);
}

/* As many tags as there may be, again and again: libmlx5 takes them back one by one. */
static void test_full_list(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t handles[8];
        for (uint32_t i = 0; i < 8; i++) {
            handles[i] = add(&w, i, i, ANY, i * 100, 100);
        }
        assert_int_equal(add_with(&w, 9, 9, ANY, 0, 100, w.region->lkey, NULL), ENOMEM);
        for (uint32_t i = 0; i < 8; i++) {
            if ((i + round) % 3) {
                send(&w, IBV_TMH_EAGER, i, HEADER + 1 + i);
                expect_match(&w, i, i, 1 + i);
            } else {
                assert_int_equal(operate(&w, IBV_WR_TAG_DEL, 50, handles[i]), 0);
                assert_int_equal(expect_operation(&w, IBV_WC_TM_DEL, 50, IBV_WC_SUCCESS), 0);
            }
        }
    }
    close_world(&w);
}

/* A tag that a message took can no longer be deleted. */
static void test_late_delete(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    uint32_t handle = add(&w, 1, 1, ANY, 0, 100);
    send(&w, IBV_TMH_EAGER, 1, HEADER + 1);
    assert_int_equal(operate(&w, IBV_WR_TAG_DEL, 2, handle), 0);
    expect_match(&w, 1, 1, 1);
    expect_operation(&w, IBV_WC_TM_DEL, 2, IBV_WC_TM_ERR);
    close_world(&w);
}

static void post_request(struct world *w, uint64_t tag, uint32_t bytes, uint32_t key)
{
    struct ibv_sge s = {(uintptr_t)w->memory + 4096, 100, w->region->lkey};
    struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad_receive;
    assert_int_equal(ibv_post_recv(w->sender, &r, &bad_receive), 0);
    struct {
        struct ibv_tmh header;
        struct ibv_rvh where;
    } request = {{IBV_TMH_RNDV, {0}, htobe32(PRIVATE), htobe64(tag)},
                 {htobe64((uintptr_t)w->memory + 8192), htobe32(key), htobe32(bytes)}};
    struct ibv_sge from = {(uintptr_t)&request, sizeof(request), 0};
    struct ibv_send_wr x = {.sg_list = &from,
                            .num_sge = 1,
                            .opcode = IBV_WR_SEND,
                            .send_flags = IBV_SEND_INLINE},
                       *bad;
    assert_int_equal(ibv_post_send(w->sender, &x, &bad), 0);
}

static void test_rendezvous(void **state)
{
    static const uint32_t sizes[] = {100000, 1, 5000};
    struct world w;
    (void)state;
    open_world(&w, 8);
    for (uint32_t i = 0; i < 3; i++) {
        add(&w, i, 40 + i, ANY, 0, 100000);
        for (uint32_t n = 0; n < sizes[i]; n++) {
            w.memory[8192 + n] = (uint8_t)(n * 13 + i);
        }
        post_request(&w, 40 + i, sizes[i], w.region->rkey);
        expect_sent(&w, IBV_WC_SEND, IBV_WC_SUCCESS);
        expect_match(&w, i, 40 + i, 0);
        expect_message(&w, i, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID, sizes[i]);
        assert_memory_equal(w.memory + TAGS_AT, w.memory + 8192, sizes[i]);
        expect_sent(&w, IBV_WC_RECV, IBV_WC_SUCCESS);
        struct ibv_tmh end;
        memcpy(&end, w.memory + 4096, sizeof(end));
        assert_int_equal(end.opcode, IBV_TMH_FIN);
        assert_int_equal(be64toh(end.tag), 40 + i);
        assert_int_equal(be32toh(end.app_ctx), PRIVATE);
    }
    add(&w, 9, 90, ANY, 0, 99); /* too small: software has to do it */
    post_request(&w, 90, 100, w.region->rkey);
    expect_sent(&w, IBV_WC_SEND, IBV_WC_SUCCESS);
    struct completion c = wait_for_tag(&w);
    assert_int_equal(c.status, IBV_WC_TM_RNDV_INCOMPLETE);
    assert_int_equal(c.id, 9);
    assert_int_equal(w.memory[TAGS_AT], IBV_TMH_RNDV);
    close_world(&w);
}

/* ---- trouble ---- */

static void test_wrong_key(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    post_receive(&w, 0);
    assert_int_equal(add_with(&w, 1, 1, ANY, 0, 100, w.region->lkey ^ 0x100, NULL), 0);
    expect_operation(&w, IBV_WC_TM_ADD, 1, IBV_WC_SUCCESS);
    post_message(&w, IBV_TMH_EAGER, 1, HEADER + 10);
    struct completion c = wait_for_tag(&w);
    assert_int_equal(c.status, IBV_WC_TM_RNDV_INCOMPLETE); /* there is no other for a tag */
    assert_int_equal(c.id, 1);
    c = wait_for_tag(&w);
    assert_int_equal(c.status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(c.id, 1000);
    expect_sent(&w, IBV_WC_SEND, IBV_WC_REM_OP_ERR);
    close_world(&w);
}

static void test_unreadable(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    add(&w, 1, 1, ANY, 0, 100);
    add(&w, 2, 2, ANY, 0, 100);
    post_request(&w, 1, 100, w.region->rkey ^ 0x100);
    expect_match(&w, 1, 1, 0);
    struct completion c = wait_for_tag(&w);
    assert_int_equal(c.status, IBV_WC_TM_RNDV_INCOMPLETE);
    assert_int_equal(c.id, 1);
    struct ibv_async_event event;
    do {
        assert_int_equal(ibv_get_async_event(w.context, &event), 0);
        ibv_ack_async_event(&event);
    } while (event.event_type != IBV_EVENT_QP_FATAL);
    assert_ptr_equal(event.element.qp, w.receiver);
    close_world(&w);
}

static void test_refused(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 8);
    struct ibv_qp_init_attr a = {.send_cq = w.cq,
                                 .recv_cq = w.cq,
                                 .srq = w.srq,
                                 .cap = {1, 0, 1, 0, 0},
                                 .qp_type = IBV_QPT_UD};
    assert_null(ibv_create_qp(w.domain, &a));
    assert_int_not_equal(ibv_destroy_srq(w.srq), 0); /* a QP uses it */
    close_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest good[] = {
        cmocka_unit_test(test_capabilities), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_long_message), cmocka_unit_test(test_synchronization),
        cmocka_unit_test(test_full_list),    cmocka_unit_test(test_late_delete),
        cmocka_unit_test(test_rendezvous),
    };
    const struct CMUnitTest trouble[] = {
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 1 && strcmp(argv[1], "trouble") == 0) {
        return cmocka_run_group_tests(trouble, NULL, NULL);
    }
    return cmocka_run_group_tests(good, NULL, NULL);
}

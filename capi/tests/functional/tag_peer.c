/* tag_peer.c: see tag_peer.h. */
#include "tag_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "place.h"

#define GID_INDEX (place_is_infiniband() ? 0 : 3) /* RoCE v2, IPv4 */
#define SEQUENCE_NUMBER 0x1234u
#define SECONDS_MAX 60

/* ---- Making ---------------------------------------------------------------------------------- */

static struct ibv_context *open_device(const char *name)
{
    struct ibv_context *context = NULL;
    struct ibv_device **list = ibv_get_device_list(NULL);
    for (uint32_t i = 0; list && list[i] && !context; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    assert_non_null(context);
    return context;
}

void tag_peer_open(struct tag_peer *peer)
{
    struct ibv_cq_init_attr_ex entries = {
        .cqe = 256, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
    peer->context = open_device(place_device(0));
    peer->domain = ibv_alloc_pd(peer->context);
    peer->sends = ibv_create_cq(peer->context, 64, NULL, NULL, 0);
    peer->tags = ibv_create_cq_ex(peer->context, &entries);
    peer->memory = aligned_alloc(4096, TAG_PEER_BYTES);
    assert_true(peer->domain && peer->sends && peer->tags && peer->memory);
    for (uint32_t i = 0; i < TAG_PEER_BYTES; i++) {
        peer->memory[i] = (uint8_t)(i * 31 + (i >> 8));
    }
    peer->region = ibv_reg_mr(peer->domain, peer->memory, TAG_PEER_BYTES,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_non_null(peer->region);
    struct ibv_srq_init_attr_ex receives = {.attr = {.max_wr = 16, .max_sge = 1},
                                            .comp_mask =
                                                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                            .srq_type = IBV_SRQT_TM,
                                            .pd = peer->domain,
                                            .cq = ibv_cq_ex_to_cq(peer->tags),
                                            .tm_cap = {.max_num_tags = 16, .max_ops = 16}};
    peer->srq = ibv_create_srq_ex(peer->context, &receives);
    assert_non_null(peer->srq);
    struct ibv_qp_init_attr queue = {.send_cq = peer->sends,
                                     .recv_cq = ibv_cq_ex_to_cq(peer->tags),
                                     .srq = peer->srq,
                                     .cap = {.max_send_wr = 16, .max_send_sge = 1},
                                     .qp_type = IBV_QPT_RC,
                                     .sq_sig_all = 1};
    peer->qp = ibv_create_qp(peer->domain, &queue);
    assert_non_null(peer->qp);
}

static void change(struct tag_peer *peer, struct ibv_qp_attr *attributes, int mask)
{
    assert_int_equal(ibv_modify_qp(peer->qp, attributes, mask | IBV_QP_STATE), 0);
}

static void post_receive(struct tag_peer *peer)
{
    struct ibv_sge memory = {(uintptr_t)peer->memory + TAG_PEER_RECEIVES_AT, 4096,
                             peer->region->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1000, .sg_list = &memory, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_srq_recv(peer->srq, &receive, &bad), 0);
}

void tag_peer_connect(struct tag_peer *peer, const crpc_queue_address *to, crpc_queue_address *its)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    union ibv_gid gid;
    struct ibv_port_attr port;
    enum ibv_mtu mtu = IBV_MTU_256;
    while (128u << (mtu + 1) <= to->mtu_bytes) {
        mtu++;
    }
    change(peer, &attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu,
        .dest_qp_num = to->queue_pair_number,
        .rq_psn = to->packet_sequence_number,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = (uint16_t)to->lid,
                    .is_global = 1,
                    .port_num = 1,
                    .grh = {.sgid_index = (uint8_t)GID_INDEX, .hop_limit = 64}}};
    memcpy(attributes.ah_attr.grh.dgid.raw, to->gid, 16);
    change(peer, &attributes,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                      .sq_psn = SEQUENCE_NUMBER,
                                      .timeout = 14,
                                      .retry_cnt = 7,
                                      .rnr_retry = 7,
                                      .max_rd_atomic = 4};
    change(peer, &attributes,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
    post_receive(peer);
    assert_int_equal(ibv_query_gid(peer->context, 1, GID_INDEX, &gid), 0);
    assert_int_equal(ibv_query_port(peer->context, 1, &port), 0);
    *its = *to;
    its->lid = port.lid;
    its->queue_pair_number = peer->qp->qp_num;
    its->packet_sequence_number = SEQUENCE_NUMBER;
    memcpy(its->gid, gid.raw, 16);
}

void tag_peer_fail(struct tag_peer *peer)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    change(peer, &attributes, 0);
}

void tag_peer_close(struct tag_peer *peer)
{
    assert_int_equal(ibv_destroy_qp(peer->qp), 0);
    assert_int_equal(ibv_destroy_srq(peer->srq), 0);
    assert_int_equal(ibv_dereg_mr(peer->region), 0);
    assert_int_equal(ibv_destroy_cq(peer->sends), 0);
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(peer->tags)), 0);
    assert_int_equal(ibv_dealloc_pd(peer->domain), 0);
    assert_int_equal(ibv_close_device(peer->context), 0);
    free(peer->memory);
    memset(peer, 0, sizeof(*peer));
}

/* ---- Messages -------------------------------------------------------------------------------- */

void tag_peer_send(struct tag_peer *peer, uint8_t kind, uint64_t tag, uint32_t bytes,
                   uint32_t elsewhere)
{
    struct ibv_tmh header = {
        .opcode = kind, .app_ctx = htobe32(TAG_PEER_CONTEXT), .tag = htobe64(tag)};
    struct ibv_rvh where = {.va = htobe64((uintptr_t)peer->memory + TAG_PEER_PAYLOAD_AT),
                            .rkey = htobe32(peer->region->rkey),
                            .len = htobe32(elsewhere)};
    struct ibv_sge memory = {(uintptr_t)peer->memory, (uint32_t)sizeof(header) + bytes,
                             peer->region->lkey};
    struct ibv_send_wr send = {.sg_list = &memory, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_wc done;
    const time_t end = time(NULL) + SECONDS_MAX;
    memcpy(peer->memory, &header, sizeof(header));
    if (kind == IBV_TMH_RNDV) {
        memcpy(peer->memory + sizeof(header), &where, sizeof(where));
        memory.length += (uint32_t)sizeof(where);
    }
    assert_int_equal(ibv_post_send(peer->qp, &send, &bad), 0);
    while (ibv_poll_cq(peer->sends, 1, &done) == 0) {
        assert_true(time(NULL) < end);
    }
    assert_int_equal(done.status, IBV_WC_SUCCESS);
}

static struct tag_peer_message await(struct tag_peer *peer, enum ibv_wc_opcode *opcode)
{
    struct ibv_poll_cq_attr nothing = {0};
    struct tag_peer_message message = {0};
    struct ibv_wc_tm_info info;
    const time_t end = time(NULL) + SECONDS_MAX;
    while (ibv_start_poll(peer->tags, &nothing) != 0) {
        assert_true(time(NULL) < end);
    }
    assert_int_equal(peer->tags->status, IBV_WC_SUCCESS);
    *opcode = ibv_wc_read_opcode(peer->tags);
    ibv_wc_read_tm_info(peer->tags, &info);
    message.id = peer->tags->wr_id;
    message.matched = ibv_wc_read_wc_flags(peer->tags) & IBV_WC_TM_MATCH;
    message.bytes = ibv_wc_read_byte_len(peer->tags);
    message.tag = info.tag;
    message.context = info.priv;
    ibv_end_poll(peer->tags);
    return message;
}

void tag_peer_add(struct tag_peer *peer, uint64_t id, uint64_t tag, uint32_t bytes)
{
    struct ibv_sge memory = {(uintptr_t)peer->memory + TAG_PEER_TAGS_AT, bytes, peer->region->lkey};
    struct ibv_ops_wr op = {.wr_id = id,
                            .opcode = IBV_WR_TAG_ADD,
                            .flags = IBV_OPS_SIGNALED,
                            .tm = {.add = {.recv_wr_id = id,
                                           .sg_list = &memory,
                                           .num_sge = 1,
                                           .tag = tag,
                                           .mask = UINT64_MAX}}};
    struct ibv_ops_wr *bad;
    enum ibv_wc_opcode opcode;
    assert_int_equal(ibv_post_srq_ops(peer->srq, &op, &bad), 0);
    await(peer, &opcode);
    assert_int_equal(opcode, IBV_WC_TM_ADD);
}

struct tag_peer_message tag_peer_await(struct tag_peer *peer)
{
    enum ibv_wc_opcode opcode;
    return await(peer, &opcode);
}

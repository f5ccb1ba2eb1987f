/* foreign_verbs.c: queue pairs of the foreign peer that are connected without rdma_cm, by the numbers that the two sides tell each
 * other in some way of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"
#include "line.h"

#define PORT 1
#define SEQUENCE_NUMBER 0x123456u
#define GIDS 64
#define TIMEOUT 14       /* 67 ms */
#define MIN_RNR_TIMER 12 /* 0.64 ms */
#define READS 16

/* The first GID of RoCE v2, as it can be sent to. */
static int choose_gid(struct ibv_gid_entry *chosen)
{
    struct ibv_gid_entry entries[GIDS];
    ssize_t count = ibv_query_gid_table(device, entries, GIDS, 0);
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].port_num == PORT && entries[i].gid_type == IBV_GID_TYPE_ROCE_V2) {
            *chosen = entries[i];
            return 0;
        }
    }
    return -1;
}

int verbs_make(struct thing *made)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = PORT,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
                                                        IBV_ACCESS_REMOTE_READ |
                                                        IBV_ACCESS_REMOTE_ATOMIC};
    made->qp = ibv_create_qp(domain, &made->attributes);
    return !made->qp ||
           ibv_modify_qp(made->qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int verbs_tell_address(const struct thing *it)
{
    struct ibv_gid_entry gid;
    struct ibv_port_attr port;
    char digits[33] = "";
    if (choose_gid(&gid) || ibv_query_port(device, PORT, &port)) {
        return -1;
    }
    for (uint32_t i = 0; i < 16; i++) {
        snprintf(digits + (size_t)2 * i, 3, "%02x", gid.gid.raw[i]);
    }
    tell("queue_pair_number=%u packet_sequence_number=%u link=2 mtu_bytes=%u lid=0 gid=%s",
         it->qp->qp_num, SEQUENCE_NUMBER, 128u << port.active_mtu, digits);
    return 0;
}

static enum ibv_mtu mtu_of_line(void)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (128u << (mtu + 1) <= number("mtu_bytes") && mtu < IBV_MTU_4096) {
        mtu++;
    }
    return mtu;
}

int verbs_join(const struct thing *it)
{
    struct ibv_gid_entry gid;
    struct ibv_port_attr port;
    if (choose_gid(&gid) || ibv_query_port(device, PORT, &port)) {
        return -1;
    }
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_of_line() < port.active_mtu ? mtu_of_line() : port.active_mtu,
        .dest_qp_num = number("queue_pair_number"),
        .rq_psn = number("packet_sequence_number"),
        .max_dest_rd_atomic = READS,
        .min_rnr_timer = MIN_RNR_TIMER,
        .ah_attr = {.is_global = 1,
                    .port_num = PORT,
                    .grh = {.sgid_index = (uint8_t)gid.gid_index, .hop_limit = 64}}};
    const char *digits = text("gid");
    for (uint32_t i = 0; i < 16 && digits[0] && digits[1]; i++, digits += 2) {
        receive.ah_attr.grh.dgid.raw[i] =
            (uint8_t)strtoul((char[]){digits[0], digits[1], '\0'}, NULL, 16);
    }
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                               .timeout = TIMEOUT,
                               .retry_cnt = 6,
                               .rnr_retry = 7,
                               .sq_psn = SEQUENCE_NUMBER,
                               .max_rd_atomic = READS};
    return ibv_modify_qp(it->qp, &receive,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
           ibv_modify_qp(it->qp, &send,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* foreign_verbs.c: queue pairs of the foreign peer without rdma_cm: those that are connected by the numbers which the two sides tell
 * each other in some way of their own, and those for datagrams. */
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
#define QUEUE_KEY 0x11111111u /* where the line has none */

/* The datagram that came last. */
static struct ibv_wc letter;
static struct ibv_grh letter_header;
static uint32_t letter_key; /* of the queue that it came to */

/* The first GID of RoCE v2 over IPv4: packets have the header of the GID that they are sent from, so both sides' must be of one kind.
 * On InfiniBand the first. Returns whether it failed. */
static int choose_gid(struct ibv_gid_entry *chosen)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_gid_entry entries[GIDS];
    ssize_t count = ibv_query_gid_table(device, entries, GIDS, 0);
    for (ssize_t i = 0; i < count; i++) {
        const int roce = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
                         memcmp(entries[i].gid.raw, mapped, sizeof(mapped)) == 0;
        if (entries[i].port_num == PORT && (roce || entries[i].gid_type == IBV_GID_TYPE_IB)) {
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

static int tell_address(uint32_t pair, uint32_t sequence_number, uint16_t lid,
                        const union ibv_gid *gid)
{
    struct ibv_port_attr port;
    if (ibv_query_port(device, PORT, &port)) {
        return -1;
    }
    put_number(answer(), "queue_pair_number", pair);
    put_number(answer(), "packet_sequence_number", sequence_number);
    put_number(answer(), "link", port.link_layer == IBV_LINK_LAYER_INFINIBAND ? 1 : 2);
    put_number(answer(), "mtu_bytes", 128u << port.active_mtu);
    put_number(answer(), "lid", lid);
    put_bytes(answer(), "gid", gid->raw, sizeof(gid->raw));
    return 0;
}

int verbs_tell_address(const struct thing *it)
{
    struct ibv_gid_entry gid;
    struct ibv_port_attr port;
    return choose_gid(&gid) || ibv_query_port(device, PORT, &port) ||
           tell_address(it->qp->qp_num, SEQUENCE_NUMBER, port.lid, &gid.gid);
}

/* The way to where the line says; on InfiniBand, with a GRH only if the port requires one. Returns whether it failed. */
static int way_of_line(struct ibv_ah_attr *way)
{
    struct ibv_gid_entry gid;
    struct ibv_port_attr port;
    if (choose_gid(&gid) || ibv_query_port(device, PORT, &port)) {
        return -1;
    }
    *way = (struct ibv_ah_attr){.is_global = port.link_layer != IBV_LINK_LAYER_INFINIBAND ||
                                             port.flags & IBV_QPF_GRH_REQUIRED,
                                .dlid = (uint16_t)number("lid"),
                                .port_num = PORT,
                                .grh = {.sgid_index = (uint8_t)gid.gid_index, .hop_limit = 64}};
    bytes_of("gid", way->grh.dgid.raw, sizeof(way->grh.dgid.raw));
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
    struct ibv_ah_attr way;
    struct ibv_port_attr port;
    if (way_of_line(&way) || ibv_query_port(device, PORT, &port)) {
        return -1;
    }
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                  .path_mtu = mtu_of_line() < port.active_mtu ? mtu_of_line()
                                                                              : port.active_mtu,
                                  .dest_qp_num = number("queue_pair_number"),
                                  .rq_psn = number("packet_sequence_number"),
                                  .max_dest_rd_atomic = READS,
                                  .min_rnr_timer = MIN_RNR_TIMER,
                                  .ah_attr = way};
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

/* ---- Datagrams ---- */

static uint32_t key_of_line(void)
{
    return number("queue_key") ? number("queue_key") : QUEUE_KEY;
}

int verbs_make_datagrams(struct thing *made)
{
    made->queue_key = key_of_line();
    made->attributes.qp_type = IBV_QPT_UD;
    made->qp = ibv_create_qp(domain, &made->attributes);
    struct ibv_qp_attr begin = {
        .qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = made->queue_key};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .sq_psn = SEQUENCE_NUMBER};
    made->connected = 1; /* in as far as it can be used, and will end */
    return !made->qp ||
           ibv_modify_qp(made->qp, &begin,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ||
           ibv_modify_qp(made->qp, &receive, IBV_QP_STATE) ||
           ibv_modify_qp(made->qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

void verbs_keep_letter(const struct thing *queue, const struct ibv_wc *done, const void *header)
{
    letter = *done;
    memcpy(&letter_header, header, sizeof(letter_header));
    letter_key = queue->queue_key;
}

static int make_target(struct thing *made, struct ibv_ah_attr *way, uint32_t pair, uint32_t key)
{
    made->target = ibv_create_ah(domain, way);
    made->way = *way;
    made->number = pair;
    made->queue_key = key;
    return !made->target;
}

int verbs_target(struct thing *made)
{
    struct ibv_ah_attr way;
    return way_of_line(&way) || make_target(made, &way, number("queue_pair_number"), key_of_line());
}

int verbs_target_of(struct thing *made)
{
    struct ibv_ah_attr way = {0};
    return ibv_init_ah_from_wc(device, PORT, &letter, &letter_header, &way) ||
           make_target(made, &way, letter.src_qp, letter_key);
}

int verbs_tell_target(const struct thing *target)
{
    return tell_address(target->number, 0, target->way.dlid, &target->way.grh.dgid);
}

int verbs_close_target(struct thing *target)
{
    struct ibv_ah *handle = target->target;
    target->target = NULL;
    return ibv_destroy_ah(handle);
}

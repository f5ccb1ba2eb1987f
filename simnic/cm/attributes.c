/* attributes.c: what a connection's queue pair needs: the path record, the attributes of the
 * address handle, and those for INIT, RTR and RTS that librdmacm asks for. The masks and values are
 * those of the kernel for RoCE, and on InfiniBand those that it takes from a path record. */
#include "simnic/cm/internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { STATE_INIT = 1, STATE_RTR = 2, STATE_RTS = 3, STATE_ERROR = 6 };

enum {
    MASK_STATE = 1 << 0,
    MASK_ACCESS_FLAGS = 1 << 3,
    MASK_PKEY_INDEX = 1 << 4,
    MASK_PORT = 1 << 5,
    MASK_QKEY = 1 << 6,
    MASK_AV = 1 << 7,
    MASK_PATH_MTU = 1 << 8,
    MASK_TIMEOUT = 1 << 9,
    MASK_RETRY_CNT = 1 << 10,
    MASK_RNR_RETRY = 1 << 11,
    MASK_RQ_PSN = 1 << 12,
    MASK_MAX_QP_RD_ATOMIC = 1 << 13,
    MASK_MIN_RNR_TIMER = 1 << 15,
    MASK_SQ_PSN = 1 << 16,
    MASK_MAX_DEST_RD_ATOMIC = 1 << 17,
    MASK_DEST_QPN = 1 << 20,
};

enum { ACCESS_REMOTE_WRITE = 2, ACCESS_REMOTE_READ = 4, ACCESS_REMOTE_ATOMIC = 8 };

/* 4.096 us * 2^18: twice the path's lifetime, and what the device needs, as the kernel computes
 * it. */
#define ACK_TIMEOUT 18

static uint8_t packet_lifetime(const struct cm_id *id)
{
    return id->ack_timeout_set && id->ack_timeout ? id->ack_timeout - 1 : PACKET_LIFETIME;
}

static uint8_t traffic_class(const struct cm_id *id)
{
    return id->talk.traffic_class ? id->talk.traffic_class : id->traffic_class;
}

static uint32_t flow_label(const struct cm_id *id)
{
    return (address_port(&id->source) * 31u + address_port(&id->destination)) & 0xfffff;
}

void id_gid(const struct cm_id *id, const struct sockaddr_storage *address, uint8_t gid[16])
{
    int rail = on_infiniband(id) ? address_rail(address, link_of(id)) : NO_RAIL;
    if (rail == NO_RAIL) {
        address_gid(address, gid);
        return;
    }
    struct rail_gid port = rail_gid(link_of(id), rail, 0);
    memcpy(gid, port.raw, sizeof(port.raw));
}

/* On InfiniBand, what the subnet manager says of the way to the destination. Type of service has no
 * place in it. */
static void infiniband_way(const struct cm_id *id, struct rail_way *way)
{
    int to = address_rail(&id->destination, link_of(id));
    *way = (struct rail_way){0};
    if (id->rail != NO_RAIL && to != NO_RAIL) {
        rail_find_way(link_of(id), id->rail, to, way);
    }
}

static void roce_way(const struct cm_id *id, struct rail_way *way)
{
    uint8_t source[16];
    *way = (struct rail_way){.grh = true,
                             .hop_limit = HOP_LIMIT,
                             .traffic_class = traffic_class(id),
                             .flow_label = flow_label(id)};
    address_gid(&id->source, source);
    address_gid(&id->destination, way->gid);
    way->gid_index = id->rail < 0 ? 0 : rail_gid_index(id->rail, source);
}

static void way_of(const struct cm_id *id, struct rail_way *way)
{
    if (on_infiniband(id)) {
        infiniband_way(id, way);
    } else {
        roce_way(id, way);
    }
}

void attributes_path(const struct cm_id *id, struct ib_user_path_rec *record)
{
    struct rail_way way;
    memset(record, 0, sizeof(*record));
    id_gid(id, &id->destination, record->dgid);
    id_gid(id, &id->source, record->sgid);
    record->pkey = htobe16(rail_address_partition(link_of(id)));
    if (!id->paths) {
        return;
    }
    way_of(id, &way);
    if (on_infiniband(id) && id->rail >= 0) {
        record->dlid = htobe16(way.lid);
        record->slid = htobe16(rails[id->rail].lid);
    }
    record->flow_label = htobe32(way.flow_label);
    record->reversible = 1;
    record->mtu = PATH_MTU_4096;
    /* A path record says by its hop limit whether there must be a GRH: the kernel's
     * ib_init_ah_attr_from_path. */
    record->hop_limit = way.grh ? way.hop_limit : 0;
    record->traffic_class = way.traffic_class;
    record->sl = way.service_level;
    record->mtu_selector = 2; /* exactly */
    record->rate_selector = 2;
    record->packet_life_time_selector = 2;
    record->packet_life_time = packet_lifetime(id);
}

void attributes_address_handle(const struct cm_id *id, struct ib_uverbs_ah_attr *attribute)
{
    struct rail_way way;
    way_of(id, &way);
    attributes_of_way(&way, attribute);
}

void attributes_of_way(const struct rail_way *way, struct ib_uverbs_ah_attr *attribute)
{
    memset(attribute, 0, sizeof(*attribute));
    attribute->dlid = way->lid;
    attribute->sl = way->service_level;
    attribute->port_num = RAIL_PORT;
    if (!way->grh) {
        return;
    }
    memcpy(attribute->grh.dgid, way->gid, sizeof(way->gid));
    attribute->grh.flow_label = way->flow_label;
    attribute->grh.sgid_index = way->gid_index;
    attribute->grh.hop_limit = way->hop_limit;
    attribute->grh.traffic_class = way->traffic_class;
    attribute->is_global = 1;
}

static uint16_t partition_index(const struct cm_id *id)
{
    return (uint16_t)rail_address_partition_index(link_of(id), id->rail);
}

/* Without a connection, and for UD at any time, the kernel ignores which state the program asks
 * for. */
static void without_connection(const struct cm_id *id, struct ib_uverbs_qp_attr *attribute)
{
    attribute->qp_attr_mask = MASK_STATE | MASK_PKEY_INDEX | MASK_PORT;
    attribute->pkey_index = partition_index(id);
    attribute->port_num = RAIL_PORT;
    if (id->queue_pair_type == QUEUE_PAIR_UD) {
        attribute->qkey = id->queue_key ? id->queue_key : UDP_QUEUE_KEY;
        attribute->qp_attr_mask |= MASK_QKEY;
    } else {
        attribute->qp_attr_mask |= MASK_ACCESS_FLAGS;
    }
}

static void to_init(const struct cm_id *id, struct ib_uverbs_qp_attr *attribute)
{
    attribute->qp_attr_mask = MASK_STATE | MASK_ACCESS_FLAGS | MASK_PKEY_INDEX | MASK_PORT;
    attribute->qp_access_flags = ACCESS_REMOTE_WRITE;
    if (id->talk.responder_resources) {
        attribute->qp_access_flags |= ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;
    }
    attribute->pkey_index = partition_index(id);
    attribute->port_num = RAIL_PORT;
}

static void to_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *attribute)
{
    attribute->qp_attr_mask = MASK_STATE | MASK_AV | MASK_PATH_MTU | MASK_DEST_QPN | MASK_RQ_PSN;
    attributes_address_handle(id, &attribute->ah_attr);
    attribute->path_mtu = PATH_MTU_4096;
    attribute->dest_qp_num = id->talk.peer_qpn;
    attribute->rq_psn = id->talk.receive_psn;
    if (id->queue_pair_type != QUEUE_PAIR_RC && id->queue_pair_type != QUEUE_PAIR_XRC_TARGET) {
        return;
    }
    attribute->qp_attr_mask |= MASK_MAX_DEST_RD_ATOMIC | MASK_MIN_RNR_TIMER;
    attribute->max_dest_rd_atomic = id->talk.responder_resources;
    attribute->min_rnr_timer = 0;
}

static void to_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *attribute)
{
    attribute->qp_attr_mask = MASK_STATE | MASK_SQ_PSN;
    attribute->sq_psn = id->talk.send_psn;
    if (id->queue_pair_type == QUEUE_PAIR_UC) {
        return;
    }
    attribute->qp_attr_mask |= MASK_TIMEOUT;
    attribute->timeout = id->ack_timeout_set ? id->ack_timeout : ACK_TIMEOUT;
    if (id->queue_pair_type == QUEUE_PAIR_XRC_TARGET) {
        return;
    }
    attribute->qp_attr_mask |= MASK_RETRY_CNT | MASK_RNR_RETRY | MASK_MAX_QP_RD_ATOMIC;
    attribute->retry_cnt = id->talk.retry_count;
    attribute->rnr_retry = id->talk.rnr_retry_count;
    attribute->max_rd_atomic = id->talk.initiator_depth;
}

static bool in_conversation(const struct cm_id *id)
{
    return id->talk.state >= TALK_REQ_SENT && id->talk.state <= TALK_ESTABLISHED;
}

static int with_connection(const struct cm_id *id, uint32_t state,
                           struct ib_uverbs_qp_attr *attribute)
{
    if (!in_conversation(id) || (id->talk.state == TALK_REQ_SENT && state != STATE_INIT)) {
        return -EINVAL;
    }
    if (state == STATE_INIT) {
        to_init(id, attribute);
    } else if (state == STATE_RTR) {
        to_rtr(id, attribute);
    } else if (state == STATE_RTS) {
        to_rts(id, attribute);
    } else {
        return -EINVAL;
    }
    return 0;
}

int command_init_qp_attr(const struct cm_call *call)
{
    struct rdma_ucm_init_qp_attr command;
    struct ib_uverbs_qp_attr attribute = {0};
    int error;
    if (call->out_bytes < sizeof(attribute)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command)) || command.qp_state > STATE_ERROR) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    if (id->rail < 0) {
        return -EINVAL;
    }
    attribute.qp_state = command.qp_state;
    if (!id->talk.begun || id->queue_pair_type == QUEUE_PAIR_UD) {
        without_connection(id, &attribute);
    } else {
        error = with_connection(id, command.qp_state, &attribute);
    }
    return error ? error : call_copy_out(command.response, &attribute, sizeof(attribute));
}

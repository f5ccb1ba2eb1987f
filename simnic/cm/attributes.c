/* attributes.c: what a connection's queue pair needs: the path record, the attributes of the
 * address handle, and those for INIT, RTR and RTS that librdmacm asks for. The masks and values are
 * those of the kernel for RoCE. */
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

void attributes_path(const struct cm_id *id, struct ib_user_path_rec *record)
{
    memset(record, 0, sizeof(*record));
    address_gid(&id->destination, record->dgid);
    address_gid(&id->source, record->sgid);
    record->pkey = htobe16(RAIL_PKEY);
    if (!id->paths) {
        return;
    }
    record->flow_label = htobe32(flow_label(id));
    record->reversible = 1;
    record->mtu = PATH_MTU_4096;
    record->hop_limit = HOP_LIMIT;
    record->traffic_class = traffic_class(id);
    record->mtu_selector = 2; /* exactly */
    record->rate_selector = 2;
    record->packet_life_time_selector = 2;
    record->packet_life_time = packet_lifetime(id);
}

void attributes_address_handle(const struct cm_id *id, struct ib_uverbs_ah_attr *attribute)
{
    uint8_t source[16];
    memset(attribute, 0, sizeof(*attribute));
    address_gid(&id->source, source);
    address_gid(&id->destination, attribute->grh.dgid);
    attribute->grh.flow_label = flow_label(id);
    attribute->grh.sgid_index = rail_gid_index(id->rail, source);
    attribute->grh.hop_limit = HOP_LIMIT;
    attribute->grh.traffic_class = traffic_class(id);
    attribute->is_global = 1;
    attribute->port_num = RAIL_PORT;
}

/* Without a connection, and for UD at any time, the kernel ignores which state the program asks
 * for. */
static void without_connection(const struct cm_id *id, struct ib_uverbs_qp_attr *attribute)
{
    attribute->qp_attr_mask = MASK_STATE | MASK_PKEY_INDEX | MASK_PORT;
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

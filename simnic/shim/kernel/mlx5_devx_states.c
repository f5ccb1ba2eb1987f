/* mlx5_devx_states.c: moving a queue pair from state to state by device commands (PRM, "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP",
 * "2ERR_QP", "2RST_QP"). What a command has in the queue pair's context is what the kernel would have put there; it becomes the verb's
 * attributes again, which then are checked and set as the verb's are. Here nobody resolves an address: the program gives the MAC address,
 * the UDP source port and the DSCP itself. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <string.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/process/process.h"

struct movement {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t qpn;
    uint32_t reserved2;
    uint32_t optional;
    uint32_t ece;
    uint32_t context[DEVX_CONTEXT_WORDS];
};
#define HEAD_BYTES offsetof(struct movement, optional) /* all that 2ERR and 2RST have */

/* Optional parameters, which are only taken from the context if the command says so. */
#define OPTIONAL_READ (1u << 1)
#define OPTIONAL_ATOMIC (1u << 2)
#define OPTIONAL_WRITE (1u << 3)
#define OPTIONAL_PARTITION (1u << 4)
#define OPTIONAL_NOT_READY (1u << 6)
#define OPTIONAL_RIGHTS (OPTIONAL_READ | OPTIONAL_ATOMIC | OPTIONAL_WRITE)

/* Fields of the context, by their first bit; of its address path from there on. */
#define CONTEXT_MIGRATION 0x013u      /* 2 */
#define CONTEXT_MTU 0x040u            /* 3 */
#define CONTEXT_MESSAGE 0x043u        /* 5: log_msg_max */
#define CONTEXT_COUNTER_SET 0x060u    /* 8 */
#define CONTEXT_REMOTE_QPN 0x0a8u     /* 24 */
#define CONTEXT_LOG_READS 0x388u      /* 3: log_sra_max */
#define CONTEXT_RETRIES 0x38du        /* 3 */
#define CONTEXT_NOT_READY 0x390u      /* 3: rnr_retry */
#define CONTEXT_SEND_PSN 0x3c8u       /* 24 */
#define CONTEXT_LOG_PEER_READS 0x488u /* 3: log_rra_max */
#define CONTEXT_ATOMIC_MODE 0x48cu    /* 4 */
#define CONTEXT_READ 0x490u           /* 1 each */
#define CONTEXT_WRITE 0x491u
#define CONTEXT_ATOMIC 0x492u
#define CONTEXT_TIMER 0x4a3u       /* 5: min_rnr_nak */
#define CONTEXT_RECEIVE_PSN 0x4a8u /* 24 */

#define PATH_PARTITION 0x010u /* 16 */
#define PATH_GRH 0x028u       /* 1 */
#define PATH_BITS 0x029u      /* 7: mlid */
#define PATH_LID 0x030u       /* 16 */
#define PATH_TIMEOUT 0x040u   /* 5 */
#define PATH_SOURCE 0x048u    /* 8 */
#define PATH_HOPS 0x058u      /* 8 */
#define PATH_CLASS 0x064u     /* 8 */
#define PATH_LABEL 0x06cu     /* 20 */
#define PATH_GID_WORD 4u
#define PATH_DSCP 0x10au        /* 6 */
#define PATH_SOURCE_PORT 0x110u /* 16 */
#define PATH_PRIORITY 0x121u    /* 3 */
#define PATH_LEVEL 0x124u       /* 4 */
#define PATH_PORT 0x128u        /* 8 */
#define PATH_MAC_HIGH 0x130u    /* 16 */
#define PATH_MAC_LOW 0x140u     /* 32 */

#define MIGRATED 3u

static uint32_t field(const struct movement *m, uint32_t at, uint32_t bits)
{
    return devx_field(m->context, at, bits);
}

static uint32_t path_field(const struct movement *m, uint32_t at, uint32_t bits)
{
    return devx_field(m->context, DEVX_CONTEXT_PATH + at, bits);
}

static void read_rights(const struct movement *m, struct ib_uverbs_modify_qp *to)
{
    to->attr_mask |= IBV_QP_ACCESS_FLAGS;
    to->qp_access_flags = (field(m, CONTEXT_READ, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
                          (field(m, CONTEXT_WRITE, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) |
                          (field(m, CONTEXT_ATOMIC, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static void read_way(const struct context *context, const struct movement *m,
                     struct ib_uverbs_qp_dest *way)
{
    const bool infiniband = process.fabric.link & LINK_INFINIBAND;
    memcpy(way->dgid, &m->context[DEVX_CONTEXT_PATH / 32 + PATH_GID_WORD], sizeof(way->dgid));
    way->flow_label = path_field(m, PATH_LABEL, 20);
    way->sgid_index = (uint8_t)path_field(m, PATH_SOURCE, 8);
    way->hop_limit = (uint8_t)path_field(m, PATH_HOPS, 8);
    way->traffic_class = (uint8_t)path_field(m, PATH_CLASS, 8);
    way->port_num = (uint8_t)path_field(m, PATH_PORT, 8);
    if (infiniband) {
        way->dlid = (uint16_t)path_field(m, PATH_LID, 16);
        way->src_path_bits = (uint8_t)path_field(m, PATH_BITS, 7);
        way->sl = (uint8_t)path_field(m, PATH_LEVEL, 4);
        way->is_global = (uint8_t)path_field(m, PATH_GRH, 1);
        return;
    }
    /* Of RoCE, the header has what the path says of Ethernet and of IP. */
    const struct rail_gid source =
        rail_gid(process.fabric.link, context->rail, way->sgid_index % RAIL_GID_COUNT);
    way->sl = (uint8_t)path_field(m, PATH_PRIORITY, 3);
    way->is_global = 1;
    if (source.type == RAIL_GID_ROCE_V2) {
        way->traffic_class = (uint8_t)(path_field(m, PATH_DSCP, 6) << 2 | (way->traffic_class & 3));
    }
}

/* Whether frames with the path's MAC address reach whom its GID names. */
static bool reaches(const struct movement *m, const struct queue_pair *qp)
{
    uint8_t mac[6];
    const uint32_t high = path_field(m, PATH_MAC_HIGH, 16), low = path_field(m, PATH_MAC_LOW, 32);
    for (uint32_t i = 0; i < 6; i++) {
        mac[i] = (uint8_t)(i < 2 ? high >> (8 - 8 * i) : low >> (40 - 8 * i));
    }
    return qp->destination_rail == PACKET_NO_RAIL ||
           memcmp(mac, rails[qp->destination_rail].mac, sizeof(mac)) == 0;
}

/* Returns the bits that may be optional there. */
static uint32_t to_init(const struct movement *m, struct ib_uverbs_modify_qp *to)
{
    to->qp_state = IBV_QPS_INIT;
    to->attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    to->pkey_index = (uint16_t)path_field(m, PATH_PARTITION, 16);
    to->port_num = (uint8_t)path_field(m, PATH_PORT, 8);
    read_rights(m, to);
    return 0;
}

static uint32_t to_ready_to_receive(const struct context *context, const struct movement *m,
                                    uint32_t optional, struct ib_uverbs_modify_qp *to)
{
    to->qp_state = IBV_QPS_RTR;
    to->attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    to->path_mtu = (uint8_t)field(m, CONTEXT_MTU, 3);
    to->dest_qp_num = field(m, CONTEXT_REMOTE_QPN, 24);
    to->rq_psn = field(m, CONTEXT_RECEIVE_PSN, 24);
    to->max_dest_rd_atomic = (uint8_t)(1u << field(m, CONTEXT_LOG_PEER_READS, 3));
    to->min_rnr_timer = (uint8_t)field(m, CONTEXT_TIMER, 5);
    read_way(context, m, &to->dest);
    if (optional & OPTIONAL_RIGHTS) {
        read_rights(m, to);
    }
    if (optional & OPTIONAL_PARTITION) {
        to->attr_mask |= IBV_QP_PKEY_INDEX;
        to->pkey_index = (uint16_t)path_field(m, PATH_PARTITION, 16);
    }
    return OPTIONAL_RIGHTS | OPTIONAL_PARTITION;
}

static uint32_t to_ready_to_send(const struct movement *m, uint32_t optional,
                                 struct ib_uverbs_modify_qp *to)
{
    to->qp_state = IBV_QPS_RTS;
    to->attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    to->timeout = (uint8_t)path_field(m, PATH_TIMEOUT, 5);
    to->retry_cnt = (uint8_t)field(m, CONTEXT_RETRIES, 3);
    to->rnr_retry = (uint8_t)field(m, CONTEXT_NOT_READY, 3);
    to->sq_psn = field(m, CONTEXT_SEND_PSN, 24);
    to->max_rd_atomic = (uint8_t)(1u << field(m, CONTEXT_LOG_READS, 3));
    if (optional & OPTIONAL_RIGHTS) {
        read_rights(m, to);
    }
    if (optional & OPTIONAL_NOT_READY) {
        to->attr_mask |= IBV_QP_MIN_RNR_TIMER;
        to->min_rnr_timer = (uint8_t)field(m, CONTEXT_TIMER, 5);
    }
    return OPTIONAL_RIGHTS | OPTIONAL_NOT_READY;
}

/* A queue pair that has no rights to speak of needs no mode; the bit alone means nothing. */
static bool makes_sense(const struct movement *m, uint16_t opcode)
{
    if (opcode == DEVX_2ERR_QP || opcode == DEVX_2RST_QP) {
        return true;
    }
    return field(m, CONTEXT_MIGRATION, 2) == MIGRATED && m->ece == 0 &&
           (!field(m, CONTEXT_ATOMIC, 1) || field(m, CONTEXT_ATOMIC_MODE, 4)) &&
           (opcode != DEVX_INIT2RTR_QP ||
            (field(m, CONTEXT_MESSAGE, 5) != 0 &&
             1u << field(m, CONTEXT_MESSAGE, 5) <= NIC_MAX_MESSAGE_BYTES));
}

/* Some rights are optional parameters of their own, but nobody asks for one without the others. */
static bool rights_are_whole(uint32_t optional)
{
    return (optional & OPTIONAL_RIGHTS) == 0 || (optional & OPTIONAL_RIGHTS) == OPTIONAL_RIGHTS;
}

/* What came with INIT2RTR past the verb's attributes. */
static void take_path(const struct movement *m, struct queue_pair *qp)
{
    if (process.fabric.link & LINK_INFINIBAND) {
        return;
    }
    qp->attributes.udp_source_port = (uint16_t)path_field(m, PATH_SOURCE_PORT, 16);
    if (!reaches(m, qp)) {
        qp->destination_rail = PACKET_NO_RAIL;
    }
}

static bool from_right_state(uint16_t opcode, uint8_t state)
{
    switch (opcode) {
    case DEVX_RST2INIT_QP:
        return state == STATE_RESET;
    case DEVX_INIT2RTR_QP:
        return state == STATE_INIT;
    case DEVX_RTR2RTS_QP:
        return state == STATE_RTR;
    default:
        return true;
    }
}

static uint32_t to_attributes(const struct devx_command *command, const struct movement *m,
                              struct ib_uverbs_modify_qp *to)
{
    const uint32_t optional = be32toh(m->optional);
    switch (command->opcode) {
    case DEVX_RST2INIT_QP:
        return to_init(m, to);
    case DEVX_INIT2RTR_QP:
        return to_ready_to_receive(command->call->context, m, optional, to);
    case DEVX_RTR2RTS_QP:
        return to_ready_to_send(m, optional, to);
    case DEVX_2ERR_QP:
        to->qp_state = IBV_QPS_ERR;
        break;
    default:
        to->qp_state = IBV_QPS_RESET;
        break;
    }
    to->attr_mask = IBV_QP_STATE;
    return 0;
}

int devx_move_queue_pair(const struct devx_command *command)
{
    struct movement m;
    struct ib_uverbs_modify_qp to = {0};
    uint32_t answer[4] = {0};
    const bool whole = command->opcode != DEVX_2ERR_QP && command->opcode != DEVX_2RST_QP;
    int result = devx_read(command, &m, sizeof(m), whole ? sizeof(m) : HEAD_BYTES);
    if (result) {
        return result;
    }
    struct queue_pair *qp = command->object->thing;
    if ((be32toh(m.qpn) & 0xffffff) != qp->number) {
        return EINVAL; /* of the kernel: devx_is_valid_obj_id */
    }
    if (!whole && attribute(command->call, command->in)->len != HEAD_BYTES) {
        return devx_refuse(command, DEVX_BAD_INPUT_LENGTH); /* it has no context */
    }
    if (!from_right_state(command->opcode, qp->state)) {
        return devx_refuse(command, DEVX_BAD_QUEUE_PAIR_STATE);
    }
    const uint32_t allowed = to_attributes(command, &m, &to);
    if (qp->type != TYPE_RC || !makes_sense(&m, command->opcode) ||
        (whole && (be32toh(m.optional) & ~allowed || !rights_are_whole(be32toh(m.optional)))) ||
        queue_pair_modify(command->call->context, command->object, &to, 0)) {
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    if (command->opcode == DEVX_RST2INIT_QP) {
        command->object->counter_set = (uint8_t)field(&m, CONTEXT_COUNTER_SET, 8);
    }
    if (command->opcode == DEVX_INIT2RTR_QP) {
        take_path(&m, qp);
    }
    return devx_answer(command, answer, sizeof(answer));
}

/* devx_states.c: what ibv_modify_qp does for the queue pairs of the verbs: commands that move one from state to state (PRM; Linux,
 * __mlx5_ib_modify_qp and mlx5_set_path; UCX, uct_rc_mlx5_iface_common_devx_connect_qp). The verbs still resolve the peer's address: an
 * address handle has its MAC address. */
#include <errno.h>
#include <string.h>

#include "nic/mlx5/devx.h"

#define RST2INIT_QP 0x502u
#define INIT2RTR_QP 0x503u
#define RTR2RTS_QP 0x504u
#define ERR_QP 0x507u
#define RST_QP 0x50au

struct movement {
    uint32_t head[4];
    uint32_t optional; /* which parameters of the context count, though they need not */
    uint32_t ece;
    uint32_t context[DEVX_CONTEXT_WORDS];
    uint32_t reserved[4];
};

#define OPTIONAL_RIGHTS (1u << 1 | 1u << 2 | 1u << 3) /* rre, rae and rwe */

/* Of all devices that there are: where log_max_msg is another, UCX makes no queue pairs by DevX. */
#define LOG_MESSAGE 30u

/* Fields of the context, by their first bit. */
#define CONTEXT_MTU 0x040u              /* 3 */
#define CONTEXT_LOG_MESSAGE 0x043u      /* 5: log_msg_max */
#define CONTEXT_COUNTERS 0x060u         /* 8: counter_set_id */
#define CONTEXT_REMOTE_QPN 0x0a8u       /* 24 */
#define CONTEXT_LOG_ACKNOWLEDGED 0x380u /* 4: log_ack_req_freq */
#define CONTEXT_LOG_READS 0x388u        /* 3: log_sra_max */
#define CONTEXT_RETRIES 0x38du          /* 3 */
#define CONTEXT_NOT_READY 0x390u        /* 3: rnr_retry */
#define CONTEXT_SEND_PSN 0x3c8u         /* 24 */
#define CONTEXT_LOG_PEER_READS 0x488u   /* 3: log_rra_max */
#define CONTEXT_ATOMIC_MODE 0x48cu      /* 4 */
#define CONTEXT_READ 0x490u             /* 1 each */
#define CONTEXT_WRITE 0x491u
#define CONTEXT_ATOMIC 0x492u
#define CONTEXT_TIMER 0x4a3u       /* 5: min_rnr_nak */
#define CONTEXT_RECEIVE_PSN 0x4a8u /* 24 */
#define CONTEXT_PATH 0x0c0u        /* the primary address path */

/* Fields of an address path. */
#define PATH_PARTITION 0x010u   /* 16 */
#define PATH_GRH 0x028u         /* 1 */
#define PATH_BITS 0x029u        /* 7: mlid */
#define PATH_LID 0x030u         /* 16 */
#define PATH_TIMEOUT 0x040u     /* 5 */
#define PATH_SOURCE 0x048u      /* 8: index of the GID */
#define PATH_HOPS 0x058u        /* 8 */
#define PATH_CLASS 0x064u       /* 8 */
#define PATH_LABEL 0x06cu       /* 20 */
#define PATH_GID 0x080u         /* 128 */
#define PATH_DSCP 0x10au        /* 6 */
#define PATH_SOURCE_PORT 0x110u /* 16 */
#define PATH_PRIORITY 0x121u    /* 3: of Ethernet */
#define PATH_LEVEL 0x124u       /* 4: of InfiniBand */
#define PATH_PORT 0x128u        /* 8 */
#define PATH_MAC 0x130u         /* 48 */

#define ATOMIC_MODE_STANDARD 1u /* of 8 bytes, as the InfiniBand specification has them */
#define LOG_ACKNOWLEDGED 8u     /* packets until one asks for an acknowledgement, as in Linux */

/* What a caller may say of each state, besides what rdma_cm says of Ethernet for the kernel's own use. */
#define OF_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define OF_RTR                                                                                     \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define OF_RTS                                                                                     \
    (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
     IBV_QP_MAX_QP_RD_ATOMIC)
#define OF_ETHERNET 0xe00000

static uint32_t log_of(uint8_t number)
{
    return number > 1 ? 31u - (uint32_t)__builtin_clz(number) : 0;
}

static void set_rights(uint32_t *context, unsigned int rights)
{
    const bool atomic = rights & IBV_ACCESS_REMOTE_ATOMIC;
    devx_set(context, CONTEXT_READ, 1, (rights & IBV_ACCESS_REMOTE_READ) != 0);
    devx_set(context, CONTEXT_WRITE, 1, (rights & IBV_ACCESS_REMOTE_WRITE) != 0);
    devx_set(context, CONTEXT_ATOMIC, 1, atomic);
    devx_set(context, CONTEXT_ATOMIC_MODE, 4, atomic ? ATOMIC_MODE_STANDARD : 0);
}

/* READs and atomics come with INIT2RTR, which says how many at once. */
static void to_init(const struct mlx5_nic *nic, struct devx_queue_pair *made,
                    const struct ibv_qp_attr *attributes, struct movement *in)
{
    made->rights = attributes->qp_access_flags;
    devx_set(in->context, CONTEXT_PATH + PATH_PARTITION, 16, attributes->pkey_index);
    devx_set(in->context, CONTEXT_PATH + PATH_PORT, 8, attributes->port_num);
    devx_set(in->context, CONTEXT_COUNTERS, 8, nic->devx->counter_set);
    set_rights(in->context, made->rights & IBV_ACCESS_REMOTE_WRITE);
}

/* The MAC address, for which this may wait. */
static int find_mac(const struct mlx5_nic *nic, struct ibv_ah_attr *way, uint8_t mac[6])
{
    struct mlx5dv_ah found = {0};
    struct ibv_ah *address = ibv_create_ah(nic->device.pd, way);
    if (!address) {
        return errno;
    }
    struct mlx5dv_obj object = {.ah = {.in = address, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_AH);
    if (os_error == 0) {
        memcpy(mac, found.av->rmac, sizeof(found.av->rmac));
    }
    ibv_destroy_ah(address);
    return os_error;
}

/* As Linux has it for the verbs (rdma_get_udp_sport): without a flow label, it follows from the numbers of both queue pairs. */
static uint16_t source_port(const struct ibv_ah_attr *way, uint32_t number, uint32_t peer)
{
    uint32_t label = way->grh.flow_label & 0xfffff;
    if (label == 0) {
        uint64_t mixed = (uint64_t)number * peer;
        mixed ^= mixed >> 20;
        mixed ^= mixed >> 40;
        label = (uint32_t)mixed & 0xfffff;
    }
    return ibv_flow_label_to_udp_sport(label);
}

static int set_ethernet(const struct mlx5_nic *nic, uint32_t *path, struct ibv_ah_attr *way,
                        uint32_t number, uint32_t peer)
{
    struct ibv_gid_entry source;
    uint8_t mac[6];
    if (!way->is_global) {
        return EINVAL;
    }
    int os_error =
        ibv_query_gid_ex(nic->device.context, way->port_num, way->grh.sgid_index, &source, 0);
    if (os_error == 0) {
        os_error = find_mac(nic, way, mac);
    }
    if (os_error) {
        return os_error;
    }
    memcpy((uint8_t *)path + PATH_MAC / 8, mac, sizeof(mac));
    devx_set(path, PATH_PRIORITY, 3, way->sl & 7);
    if (source.gid_type == IBV_GID_TYPE_ROCE_V2) {
        devx_set(path, PATH_SOURCE_PORT, 16, source_port(way, number, peer));
        devx_set(path, PATH_DSCP, 6, way->grh.traffic_class >> 2);
    }
    return 0;
}

static int set_path(const struct mlx5_nic *nic, uint32_t *path, struct ibv_ah_attr *way,
                    uint32_t number, uint32_t peer)
{
    int os_error = 0;
    devx_set(path, PATH_PORT, 8, way->port_num);
    if (way->is_global) {
        devx_set(path, PATH_SOURCE, 8, way->grh.sgid_index);
        devx_set(path, PATH_HOPS, 8, way->grh.hop_limit);
        devx_set(path, PATH_CLASS, 8, way->grh.traffic_class);
        devx_set(path, PATH_LABEL, 20, way->grh.flow_label & 0xfffff);
        memcpy((uint8_t *)path + PATH_GID / 8, way->grh.dgid.raw, sizeof(way->grh.dgid.raw));
    }
    if (nic->device.base.link == CRPC_LINK_ETHERNET) {
        os_error = set_ethernet(nic, path, way, number, peer);
    } else {
        devx_set(path, PATH_GRH, 1, way->is_global != 0);
        devx_set(path, PATH_BITS, 7, way->src_path_bits & 0x7fu);
        devx_set(path, PATH_LID, 16, way->dlid);
        devx_set(path, PATH_LEVEL, 4, way->sl & 15);
    }
    return os_error;
}

static int to_ready_to_receive(const struct mlx5_nic *nic, const struct devx_queue_pair *made,
                               struct ibv_qp_attr *attributes, struct movement *in)
{
    const unsigned int rights = made->rights;
    in->optional = htobe32(OPTIONAL_RIGHTS);
    devx_set(in->context, CONTEXT_MTU, 3, attributes->path_mtu);
    devx_set(in->context, CONTEXT_LOG_MESSAGE, 5, LOG_MESSAGE);
    devx_set(in->context, CONTEXT_REMOTE_QPN, 24, attributes->dest_qp_num & 0xffffff);
    devx_set(in->context, CONTEXT_RECEIVE_PSN, 24, attributes->rq_psn & 0xffffff);
    devx_set(in->context, CONTEXT_LOG_PEER_READS, 3, log_of(attributes->max_dest_rd_atomic));
    devx_set(in->context, CONTEXT_TIMER, 5, attributes->min_rnr_timer);
    /* With none at once there are no READs at all. */
    set_rights(in->context,
               attributes->max_dest_rd_atomic ? rights : rights & IBV_ACCESS_REMOTE_WRITE);
    return set_path(nic, in->context + CONTEXT_PATH / 32, &attributes->ah_attr,
                    made->of->device.base.number, attributes->dest_qp_num);
}

static void to_ready_to_send(const struct ibv_qp_attr *attributes, struct movement *in)
{
    devx_set(in->context, CONTEXT_LOG_ACKNOWLEDGED, 4, LOG_ACKNOWLEDGED);
    devx_set(in->context, CONTEXT_LOG_READS, 3, log_of(attributes->max_rd_atomic));
    devx_set(in->context, CONTEXT_RETRIES, 3, attributes->retry_cnt & 7);
    devx_set(in->context, CONTEXT_NOT_READY, 3, attributes->rnr_retry & 7);
    devx_set(in->context, CONTEXT_SEND_PSN, 24, attributes->sq_psn & 0xffffff);
    devx_set(in->context, CONTEXT_PATH + PATH_TIMEOUT, 5, attributes->timeout & 31);
}

/* The states that it does not know, no queue pair of ours is in. */
static int fill(struct devx_queue_pair *made, struct ibv_qp_attr *attributes, int mask,
                struct movement *in, uint32_t *opcode)
{
    const struct mlx5_nic *nic = to_mlx5_nic(made->of->device.base.nic);
    int known = IBV_QP_STATE, os_error = 0;
    switch (attributes->qp_state) {
    case IBV_QPS_INIT:
        *opcode = RST2INIT_QP;
        known = OF_INIT;
        to_init(nic, made, attributes, in);
        break;
    case IBV_QPS_RTR:
        *opcode = INIT2RTR_QP;
        known = OF_RTR;
        os_error = to_ready_to_receive(nic, made, attributes, in);
        break;
    case IBV_QPS_RTS:
        *opcode = RTR2RTS_QP;
        known = OF_RTS;
        to_ready_to_send(attributes, in);
        break;
    case IBV_QPS_ERR:
        *opcode = ERR_QP;
        break;
    case IBV_QPS_RESET:
        *opcode = RST_QP;
        break;
    default:
        return EINVAL;
    }
    return (mask & known) != known || mask & ~(known | OF_ETHERNET) ? EOPNOTSUPP : os_error;
}

int devx_modify(struct device_queue_pair *queue_pair, struct ibv_qp_attr *attributes, int mask)
{
    struct devx_queue_pair *made = devx_of(queue_pair);
    struct movement in = {0};
    uint32_t out[4] = {0}, opcode = 0;
    int os_error = fill(made, attributes, mask, &in, &opcode);
    if (os_error) {
        return os_error;
    }
    const bool whole = opcode != ERR_QP && opcode != RST_QP; /* these have no context */
    devx_set(in.head, 0x00, 16, opcode);
    devx_set(in.head, 0x48, 24, queue_pair->base.number);
    devx_set(in.context, DEVX_CONTEXT_MIGRATION, 2, DEVX_MIGRATED);
    int result = mlx5dv_devx_obj_modify(made->object, &in, whole ? sizeof(in) : sizeof(in.head),
                                        out, sizeof(out));
    return result ? devx_error(result) : 0;
}

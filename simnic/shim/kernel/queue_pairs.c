/* queue_pairs.c: queue pairs, which libmlx5 creates with a struct of its own (mlx5-abi.h); address
 * handles, and multicast groups. */
#include "simnic/shim/kernel/verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <string.h>

#include "simnic/nic/ece.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_dc.h"
#include "simnic/shim/kernel/transitions.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/process/process.h"

#define MOST_BLOCKS 32768u
#define COUNTER_SET 5u /* the kernel's own, which it gives to all queue pairs that it makes */
#define MOST_RECEIVES 32768u
#define FLAGS_KNOWN                                                                                \
    (MLX5_QP_FLAG_SIGNATURE | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_BFREG_INDEX |                \
     MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE |                      \
     MLX5_QP_FLAG_UAR_PAGE_INDEX)

struct creation {
    struct object *domain, *send_completions, *receive_completions, *shared, *xrc;
    struct mlx5_ib_create_qp driver;
    struct ib_uverbs_qp_cap cap;
    uint32_t type, flags;
};

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

static bool has_tags(const struct object *shared)
{
    return ((const struct shared_receive_queue *)shared->thing)->tags;
}

static int read_creation(const struct call *call, struct creation *c)
{
    int result =
        attribute_in(call, UVERBS_ATTR_CREATE_QP_CAP, &c->cap, sizeof(c->cap), sizeof(c->cap));
    if (!result) {
        result = attribute_in(call, UVERBS_ATTR_UHW_IN, &c->driver, sizeof(c->driver),
                              offsetof(struct mlx5_ib_create_qp, flags));
    }
    if (result) {
        return result;
    }
    c->type = (uint32_t)attribute_number(call, UVERBS_ATTR_CREATE_QP_TYPE, UINT32_MAX);
    c->type = mlx5_dc_type(c->type, c->driver.flags);
    c->flags = (uint32_t)attribute_number(call, UVERBS_ATTR_CREATE_QP_FLAGS, 0);
    c->domain = attribute_object(call, UVERBS_OBJECT_PD, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
    c->send_completions =
        attribute_object(call, UVERBS_OBJECT_CQ, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
    c->receive_completions =
        attribute_object(call, UVERBS_OBJECT_CQ, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
    c->shared = attribute_object(call, UVERBS_OBJECT_SRQ, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
    c->xrc = attribute_object(call, UVERBS_OBJECT_XRCD, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE);
    bool xrc = c->type == TYPE_XRC_INITIATOR || c->type == TYPE_XRC_TARGET;
    if (!xrc && c->type != TYPE_RC && c->type != TYPE_UC && c->type != TYPE_UD &&
        c->type != TYPE_DCI && c->type != TYPE_DCT) {
        return EOPNOTSUPP;
    }
    if (c->type == TYPE_XRC_TARGET ? !c->xrc : !c->domain) {
        return EINVAL;
    }
    if ((!c->send_completions && c->type != TYPE_DCT && c->type != TYPE_XRC_TARGET) ||
        (!c->receive_completions && !xrc) ||
        (attribute(call, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) && !c->shared) ||
        (!c->shared && c->type == TYPE_DCT)) {
        return EINVAL;
    }
    if (c->shared && has_tags(c->shared) && c->type != TYPE_RC) {
        return EINVAL;
    }
    if (c->driver.flags & ~(FLAGS_KNOWN | mlx5_dc_flags(c->type)) ||
        c->flags & ~(uint32_t)(IB_UVERBS_QP_CREATE_SQ_SIG_ALL |
                               IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK)) {
        return EOPNOTSUPP;
    }
    const struct mlx5_ib_create_qp *d = &c->driver;
    bool sizes = is_power_of_two(d->sq_wqe_count) && d->sq_wqe_count <= MOST_BLOCKS &&
                 is_power_of_two(d->rq_wqe_count) && d->rq_wqe_count <= MOST_RECEIVES &&
                 (d->rq_wqe_count == 0 || (d->rq_wqe_shift >= 4 && d->rq_wqe_shift <= 9));
    if (c->driver.flags & MLX5_QP_FLAG_DCI_STREAM &&
        (d->dci_streams.log_num_concurent > MLX5_DC_LOG_STREAMS ||
         d->dci_streams.log_num_errored > MLX5_DC_LOG_FAILED_STREAMS)) {
        return EINVAL;
    }
    return sizes && d->bfreg_index < NIC_MAX_PAGES ? 0 : EINVAL;
}

static void set_up(struct queue_pair *qp, const struct creation *c, int rail)
{
    const struct mlx5_ib_create_qp *d = &c->driver;
    qp->type = c->type;
    qp->rail = (uint8_t)rail;
    qp->user_index = d->uidx;
    qp->domain = c->domain ? (uint32_t)c->domain->number : 0;
    qp->xrc_domain = c->xrc ? (uint32_t)c->xrc->number : 0;
    qp->page = d->bfreg_index;
    qp->record = (uint8_t *)(uintptr_t)d->db_addr;
    qp->receive_buffer = (uint8_t *)(uintptr_t)d->buf_addr;
    qp->receive_entries = c->shared ? 0 : d->rq_wqe_count;
    qp->receive_shift = d->rq_wqe_shift;
    qp->send_buffer = qp->receive_buffer + ((size_t)qp->receive_entries << qp->receive_shift);
    qp->send_blocks = d->sq_wqe_count;
    qp->signal_all = c->flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
    qp->blocks_own_multicast = c->flags & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
    /* As the kernel's create_user_qp, create_dct and create_dci: not every type has it in both
     * directions. Requesters have it only where every request has a completion. */
    bool scatter = d->flags & MLX5_QP_FLAG_SCATTER_CQE;
    qp->scatter_to_cqe =
        scatter && (c->type == TYPE_RC || c->type == TYPE_UC || c->type == TYPE_DCT);
    qp->scatter_requests_to_cqe = scatter && (c->type == TYPE_RC || c->type == TYPE_DCI) &&
                                  (qp->signal_all || d->flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE);
    qp->receive_signature = d->flags & MLX5_QP_FLAG_SIGNATURE;
    qp->send_queue_completions = c->send_completions ? c->send_completions->thing : NULL;
    qp->receive_queue_completions = c->receive_completions ? c->receive_completions->thing : NULL;
    qp->shared_receive_queue = c->shared ? c->shared->thing : NULL;
    if (c->shared && has_tags(c->shared)) { /* its receives complete to the SRQ's CQ */
        qp->receive_queue_completions = qp->shared_receive_queue->completion_queue;
        /* As the kernel's create_user_qp. */
        qp->offloads_rendezvous = d->sq_wqe_count == 0;
    }
    qp->destination_rail = PACKET_NO_RAIL;
    if (c->type == TYPE_XRC_TARGET) { /* it has no queues */
        qp->page = NIC_MAX_PAGES;
        qp->receive_entries = qp->send_blocks = 0;
    }
}

/* A target has no queues and no doorbells of its own. Its receives come from the SRQ. */
static bool set_up_target(struct queue_pair *qp, const struct creation *c)
{
    qp->page = NIC_MAX_PAGES;
    qp->receive_entries = qp->send_blocks = 0;
    /* As the kernel's create_dct: only where CQEs have 128 bytes. */
    qp->scatter_to_cqe = qp->scatter_to_cqe && qp->receive_queue_completions->entry_bytes == 128;
    return dc_target_create(qp, c->driver.access_key);
}

int verb_create_qp(const struct call *call)
{
    struct creation c = {0};
    int result = read_creation(call, &c);
    if (result) {
        return result;
    }
    doorbells_find();
    struct queue_pair *qp = qp_create(&process.nic);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_QP, qp);
    if (!object) {
        return ENOMEM;
    }
    set_up(qp, &c, call->context->rail);
    bool streams = c.driver.flags & MLX5_QP_FLAG_DCI_STREAM && c.driver.dci_streams.log_num_errored;
    if ((c.type == TYPE_DCT && !set_up_target(qp, &c)) ||
        (streams && !streams_create(qp, c.driver.dci_streams.log_num_errored))) {
        object_destroy(object);
        return ENOMEM;
    }
    qp_attach_page(&process.nic, qp);
    qp->owner = object;
    object->user_handle = attribute_number(call, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0);
    object->sig_all = qp->signal_all;
    memcpy(object->cap, &c.cap, sizeof(object->cap));
    object_use(object, c.domain);
    object_use(object, c.send_completions);
    object_use(object, c.receive_completions);
    object_use(object, c.shared);
    object_use(object, c.xrc);
    attribute_out_handle(call, UVERBS_ATTR_CREATE_QP_HANDLE, object->handle);
    struct mlx5_ib_create_qp_resp response = {.bfreg_index = c.driver.bfreg_index};
    if (c.driver.ece_options && c.type == TYPE_RC) {
        response.ece_options = ece_offered(process.nic.fabric, qp->rail);
    }
    /* A target's number is told when the target becomes ready to receive. */
    result = attribute_out32(call, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM,
                             c.type == TYPE_DCT ? 0 : qp->number);
    if (!result) {
        result = attribute_out(call, UVERBS_ATTR_CREATE_QP_RESP_CAP, &c.cap, sizeof(c.cap));
    }
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &response, sizeof(response));
}

/* ---- changing ---- */

/* Whether a GID is a multicast one, of IPv6 or IPv4. */
static bool is_group(const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return gid[0] == 0xff || (memcmp(gid, mapped, sizeof(mapped)) == 0 && gid[12] >> 4 == 14);
}

/* The kernel resolves a GID to a MAC address, by the routes of the machine. Here only the rails can
 * be reached. */
static int check_destination(const uint8_t gid[16])
{
    static const uint8_t zero[16];
    if (memcmp(gid, zero, sizeof(zero)) == 0) {
        return EINVAL;
    }
    return rail_of_gid(process.fabric.link, gid) >= 0 || is_group(gid) ? 0 : ENETUNREACH;
}

/* RoCE needs a GID in an address. But libmlx5 gives none to the QP that takes the commands of a
 * tag-matching SRQ, as on InfiniBand. That QP is connected to itself, and sends nothing. */
static bool may_lack_gid(const struct queue_pair *qp, const struct ib_uverbs_modify_qp *m)
{
    return qp->type == TYPE_RC && qp->shared_receive_queue && qp->shared_receive_queue->tags &&
           m->attr_mask & IBV_QP_DEST_QPN && m->dest_qp_num == qp->number;
}

/* What the kernel's rdma_check_ah_attr demands, and that the source GID is there. */
static int check_source(const struct context *context, bool global, uint8_t gid_index, uint8_t port)
{
    uint32_t link = process.fabric.link;
    if (port != RAIL_PORT && port != 0) {
        return EINVAL;
    }
    if (!global) {
        bool needed = !(link & LINK_INFINIBAND) || link & LINK_GRH(context->rail);
        return needed ? EINVAL : 0;
    }
    return rail_gid(link, context->rail, gid_index).type == RAIL_GID_NONE ? EINVAL : 0;
}

/* The address of a DC QP is no destination, since each WQE names its own. On InfiniBand nobody asks
 * whether there is such a LID or GID. */
static int check_address(const struct context *context, uint32_t type,
                         const struct ib_uverbs_qp_dest *address)
{
    int result = check_source(context, address->is_global, address->sgid_index, address->port_num);
    if (result || process.fabric.link & LINK_INFINIBAND || type == TYPE_DCI || type == TYPE_DCT) {
        return result;
    }
    return check_destination(address->dgid);
}

static int check_values(const struct context *context, const struct queue_pair *qp,
                        const struct ib_uverbs_modify_qp *m)
{
    uint32_t mask = m->attr_mask;
    if (mask & IBV_QP_PORT && m->port_num != RAIL_PORT) {
        return EINVAL;
    }
    if (mask & IBV_QP_PKEY_INDEX && m->pkey_index >= rail_partition_count(process.fabric.link)) {
        return EINVAL;
    }
    if (mask & IBV_QP_PATH_MTU && (m->path_mtu < IBV_MTU_256 || m->path_mtu > IBV_MTU_4096)) {
        return EINVAL;
    }
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC && m->max_rd_atomic > NIC_MAX_READS) {
        return EINVAL;
    }
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && m->max_dest_rd_atomic > NIC_MAX_READS) {
        return EINVAL;
    }
    if (mask & IBV_QP_TIMEOUT && m->timeout > 31) {
        return EINVAL;
    }
    if (mask & IBV_QP_RETRY_CNT && m->retry_cnt > 7) {
        return EINVAL;
    }
    if (mask & IBV_QP_RNR_RETRY && m->rnr_retry > 7) {
        return EINVAL;
    }
    if (mask & IBV_QP_MIN_RNR_TIMER && m->min_rnr_timer > 31) {
        return EINVAL;
    }
    if (!(mask & IBV_QP_AV) || (!m->dest.is_global && may_lack_gid(qp, m))) {
        return 0;
    }
    return check_address(context, qp->type, &m->dest);
}

static struct rail_way way_of(const struct ib_uverbs_qp_dest *address)
{
    struct rail_way way = {.lid = address->dlid,
                           .path_bits = address->src_path_bits,
                           .service_level = address->sl & 15,
                           .grh = address->is_global != 0,
                           .gid_index = address->sgid_index,
                           .hop_limit = address->hop_limit,
                           .traffic_class = address->traffic_class,
                           .flow_label = address->flow_label & 0xfffff};
    memcpy(way.gid, address->dgid, sizeof(way.gid));
    return way;
}

/* The kernel's rdma_get_udp_sport: from the flow label, and without one from the numbers of both queue pairs. */
static uint16_t udp_source_port(const struct queue_pair *qp,
                                const struct ib_uverbs_qp_dest *address)
{
    uint32_t label = address->flow_label & 0xfffff;
    if (!label) {
        uint64_t mixed = (uint64_t)qp->number * qp->attributes.destination_qpn;
        mixed ^= mixed >> 20;
        mixed ^= mixed >> 40;
        label = mixed & 0xfffff;
    }
    return (uint16_t)(((label & 0x3fff) ^ label >> 14) | 0xc000);
}

static void set_values(struct object *object, const struct ib_uverbs_modify_qp *m)
{
    struct queue_pair *qp = object->thing;
    struct queue_pair_attributes *a = &qp->attributes;
    uint32_t mask = m->attr_mask;
    if (mask & IBV_QP_ACCESS_FLAGS) {
        a->access = m->qp_access_flags;
    }
    if (mask & IBV_QP_PKEY_INDEX) {
        object->pkey_index = (uint8_t)m->pkey_index;
        a->partition = rail_partition(process.fabric.link, qp->rail, m->pkey_index);
    }
    if (mask & IBV_QP_PORT) {
        object->port = m->port_num;
        object->counter_set = COUNTER_SET;
    }
    if (mask & IBV_QP_QKEY) {
        a->queue_key = m->qkey;
    }
    if (mask & IBV_QP_AV) {
        struct ib_uverbs_qp_dest way = m->dest;
        if (fabric_has_quirk(process.nic.fabric, QUIRK_PATH)) {
            way.traffic_class = 0;
        }
        memcpy(object->address, &way, sizeof(way));
        a->way = way_of(&way);
        qp->destination_rail = qp_rail_reached(&process.nic, qp, &a->way);
    }
    if (mask & IBV_QP_PATH_MTU) {
        a->path_mtu = m->path_mtu;
    }
    if (mask & IBV_QP_TIMEOUT) {
        a->timeout = m->timeout;
    }
    if (mask & IBV_QP_RETRY_CNT) {
        a->retry_count = m->retry_cnt;
    }
    if (mask & IBV_QP_RNR_RETRY) {
        a->rnr_retry_count = m->rnr_retry;
    }
    if (mask & IBV_QP_RQ_PSN) {
        a->receive_psn = m->rq_psn & PSN_MASK;
    }
    if (mask & IBV_QP_SQ_PSN) {
        a->send_psn = m->sq_psn & PSN_MASK;
    }
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) {
        a->max_reads = m->max_rd_atomic;
    }
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
        a->max_peer_reads = m->max_dest_rd_atomic;
    }
    if (mask & IBV_QP_MIN_RNR_TIMER) {
        a->min_rnr_timer = m->min_rnr_timer;
    }
    if (mask & IBV_QP_DEST_QPN) {
        a->destination_qpn = m->dest_qp_num & 0xffffff;
    }
    qp_tell_path(qp, &a->way);
    if (mask & IBV_QP_AV) { /* with both numbers */
        a->udp_source_port = udp_source_port(qp, &m->dest);
    }
}

/* As the kernel's modify_qp_mbox_alloc: these commands have options, and the device answers with what it makes of them. 0 asks for
 * nothing, and changes nothing. */
static int set_ece(struct queue_pair *qp, uint8_t next, uint32_t options)
{
    const uint32_t offered = ece_offered(process.nic.fabric, qp->rail);
    const bool has_options = next == STATE_INIT || next == STATE_RTR || next == STATE_RTS;
    if (!options || !offered || !has_options || qp->type != TYPE_RC) {
        return 0;
    }
    if (fabric_has_quirk(process.nic.fabric, QUIRK_ECE) && next == STATE_RTR) {
        return EINVAL;
    }
    qp->attributes.ece = ece_agree(offered, options);
    return 0;
}

int queue_pair_modify(const struct context *context, struct object *object,
                      const struct ib_uverbs_modify_qp *m, uint32_t ece)
{
    struct queue_pair *qp = object->thing;
    if (m->attr_mask & IBV_QP_CUR_STATE && m->cur_qp_state != qp->state) {
        return EINVAL;
    }
    uint8_t next = m->attr_mask & IBV_QP_STATE ? m->qp_state : qp->state;
    if (!transition_allowed(qp->type, qp->state, next, m->attr_mask)) {
        return EINVAL;
    }
    int result = check_values(context, qp, m);
    if (!result) {
        result = set_ece(qp, next, ece);
    }
    if (result) {
        return result;
    }
    set_values(object, m);
    if (m->attr_mask & IBV_QP_STATE) {
        qp_set_state(&process.nic, qp, next);
    }
    return 0;
}

static int modify(const struct call *call, const struct ib_uverbs_modify_qp *m, uint32_t ece)
{
    struct object *object = object_find(call->context, UVERBS_OBJECT_QP, m->qp_handle);
    return object ? queue_pair_modify(call->context, object, m, ece) : EINVAL;
}

int verb_modify_qp(const struct call *call)
{
    struct ib_uverbs_modify_qp request;
    int result = attribute_command(call, &request, sizeof(request));
    return result ? result : modify(call, &request, 0);
}

int verb_modify_qp_ex(const struct call *call)
{
    struct ib_uverbs_ex_modify_qp request;
    struct mlx5_ib_modify_qp asked = {0};
    int result =
        attribute_in(call, UVERBS_ATTR_CORE_IN, &request, sizeof(request), sizeof(request.base));
    if (!result && attribute(call, UVERBS_ATTR_UHW_IN)) {
        result = attribute_in(call, UVERBS_ATTR_UHW_IN, &asked, sizeof(asked), sizeof(asked));
    }
    if (result) {
        return result;
    }
    if (request.base.attr_mask & IBV_QP_RATE_LIMIT) {
        return EOPNOTSUPP;
    }
    result = modify(call, &request.base, asked.ece_options);
    if (result) {
        return result;
    }
    struct ib_uverbs_ex_modify_qp_resp response = {.response_length = sizeof(response)};
    const struct queue_pair *qp =
        object_find(call->context, UVERBS_OBJECT_QP, request.base.qp_handle)->thing;
    struct mlx5_ib_modify_qp_resp driver = {
        .response_length = sizeof(driver),
        .dctn = qp->type == TYPE_DCT && qp->state == STATE_RTR ? qp->number : 0,
        .ece_options = asked.ece_options ? qp->attributes.ece : 0};
    result = attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &driver, sizeof(driver));
}

int verb_query_qp(const struct call *call)
{
    struct ib_uverbs_query_qp request;
    struct object *object;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_QP,
                                      &request.qp_handle, &object);
    if (result) {
        return result;
    }
    const struct queue_pair *qp = object->thing;
    const struct queue_pair_attributes *a = &qp->attributes;
    struct ib_uverbs_query_qp_resp response = {
        .max_send_wr = object->cap[0],
        .max_recv_wr = qp->shared_receive_queue ? 0 : qp->receive_entries,
        .max_send_sge = object->cap[2],
        .max_recv_sge = object->cap[3],
        .max_inline_data = object->cap[4],
        .qkey = a->queue_key,
        .rq_psn = qp->state >= STATE_RTR ? qp->expected_psn : a->receive_psn,
        .sq_psn = qp->state >= STATE_RTS ? qp->next_psn : a->send_psn,
        .dest_qp_num = a->destination_qpn,
        .qp_access_flags = a->access,
        .pkey_index = object->pkey_index,
        .qp_state = qp->state,
        .cur_qp_state = qp->state,
        .path_mtu = a->path_mtu,
        .path_mig_state = IBV_MIG_MIGRATED,
        .sq_draining = qp->state == STATE_SQD && !qp->drained,
        .max_rd_atomic = a->max_reads,
        .max_dest_rd_atomic = a->max_peer_reads,
        .min_rnr_timer = a->min_rnr_timer,
        .port_num = object->port,
        .timeout = a->timeout,
        .retry_cnt = a->retry_count,
        .rnr_retry = a->rnr_retry_count,
        .sq_sig_all = (uint8_t)object->sig_all,
    };
    memcpy(&response.dest, object->address, sizeof(response.dest));
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

/* ---- address handles ---- */

int verb_create_ah(const struct call *call)
{
    struct ib_uverbs_create_ah request;
    struct object *domain;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_PD,
                                      &request.pd_handle, &domain);
    if (result) {
        return result;
    }
    const struct ib_uverbs_ah_attr *a = &request.attr;
    if (a->port_num != RAIL_PORT) {
        return EINVAL;
    }
    result = check_source(call->context, a->is_global, a->grh.sgid_index, a->port_num);
    if (!result && !(process.fabric.link & LINK_INFINIBAND)) {
        result = check_destination(a->grh.dgid);
    }
    if (result) {
        return result;
    }
    struct object *object = object_create(call->context, UVERBS_OBJECT_AH);
    if (!object) {
        return ENOMEM;
    }
    object_use(object, domain);
    /* The kernel resolves the address to a MAC address for libmlx5. Only the rails have one
     * here. */
    struct mlx5_ib_create_ah_resp driver = {.response_length = sizeof(driver)};
    int rail = rail_of_gid(process.fabric.link, a->grh.dgid);
    memcpy(driver.dmac, rails[rail < 0 ? call->context->rail : rail].mac, sizeof(driver.dmac));
    struct ib_uverbs_create_ah_resp response = {.ah_handle = object->handle};
    result = attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &driver, sizeof(driver));
}

/* Reads a command about a multicast group of a UD QP. Those to attach and to detach look alike. */
static int read_group(const struct call *call, struct ib_uverbs_attach_mcast *request,
                      struct queue_pair **qp)
{
    struct object *object;
    int result = attribute_command_on(call, request, sizeof(*request), UVERBS_OBJECT_QP,
                                      &request->qp_handle, &object);
    if (result) {
        return result;
    }
    *qp = object->thing;
    return (*qp)->type == TYPE_UD && is_group(request->gid) ? 0 : EINVAL;
}

int verb_attach_multicast(const struct call *call)
{
    struct ib_uverbs_attach_mcast request;
    struct queue_pair *qp;
    int result = read_group(call, &request, &qp);
    if (result) {
        return result;
    }
    return multicast_attach(&process.nic, qp, request.gid) ? 0 : ENOMEM;
}

int verb_detach_multicast(const struct call *call)
{
    _Static_assert(sizeof(struct ib_uverbs_attach_mcast) == sizeof(struct ib_uverbs_detach_mcast),
                   "read as one");
    struct ib_uverbs_attach_mcast request;
    struct queue_pair *qp;
    int result = read_group(call, &request, &qp);
    if (result) {
        return result;
    }
    return multicast_detach(&process.nic, qp, request.gid) ? 0 : EINVAL;
}

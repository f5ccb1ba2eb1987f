/* answers.c: device, port and GID queries. The answers are those of a ConnectX-6 with RoCE v2
 * ports, without what the NIC does not do. */
#include "simnic/shim/kernel/answers.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <stdio.h>
#include <string.h>

#include "simnic/nic/ece.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/device_memory.h"
#include "simnic/shim/kernel/mlx5_dc.h"
#include "simnic/shim/kernel/paging.h"
#include "simnic/shim/mmio/core_clock.h"
#include "simnic/shim/process/process.h"

#define CORE_CLOCK_KHZ 1000000u /* the timestamps of CQEs are nanoseconds */

static uint64_t firmware(void)
{
    unsigned major = 0, minor = 0, sub = 0;
    sscanf(RAIL_FIRMWARE, "%u.%u.%u", &major, &minor, &sub);
    return (uint64_t)major << 32 | (uint64_t)minor << 16 | sub;
}

static struct ib_uverbs_query_device_resp device_attributes(const struct context *context)
{
    uint64_t guid = htobe64(rails[context->rail].node_guid);
    const bool srqs = !fabric_has_quirk(process.nic.fabric, QUIRK_NO_SRQ);
    return (struct ib_uverbs_query_device_resp){
        .fw_ver = firmware(),
        .node_guid = guid,
        .sys_image_guid = guid,
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 0xfffffffffffff000u,
        .vendor_id = RAIL_VENDOR_ID,
        .vendor_part_id = RAIL_VENDOR_PART_ID,
        .max_qp = NIC_MAX_QUEUE_PAIRS / 2,
        .max_qp_wr = 32768,
        .device_cap_flags =
            IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_AUTO_PATH_MIG |
            IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
            IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
            IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
        .max_sge = NIC_MAX_SGE,
        .max_sge_rd = NIC_MAX_SGE,
        .max_cq = NIC_MAX_COMPLETION_QUEUES / 2,
        .max_cqe = 4194303,
        .max_mr = NIC_MAX_KEYS / 2,
        .max_mw = NIC_MAX_KEYS / 2,
        .max_mcast_grp = 8192,
        .max_mcast_qp_attach = 240,
        .max_total_mcast_qp_attach = 8192 * 240,
        .max_pd = 1u << 20,
        .max_qp_rd_atom = NIC_MAX_READS,
        .max_res_rd_atom = NIC_MAX_READS * (NIC_MAX_QUEUE_PAIRS / 2),
        .max_qp_init_rd_atom = NIC_MAX_READS,
        .atomic_cap = IBV_ATOMIC_HCA,
        .max_ah = 1u << 30,
        .max_srq = srqs ? NIC_MAX_SHARED_RECEIVE_QUEUES / 2 : 0,
        .max_srq_wr = srqs ? 32767 : 0,
        .max_srq_sge = srqs ? 31 : 0,
        .max_pkeys = (uint16_t)rail_partition_count(process.fabric.link),
        .local_ca_ack_delay = 16,
        .phys_port_cnt = 1,
    };
}

int answer_query_device(const struct call *call)
{
    /* libibverbs asks without buffers, to learn whether the kernel knows the command. ENOSPC says
     * that it does (cmd_fallback.c). */
    if (!attribute(call, UVERBS_ATTR_CORE_OUT)) {
        return ENOSPC;
    }
    struct ib_uverbs_query_device_resp response = device_attributes(call->context);
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

int answer_query_device_ex(const struct call *call)
{
    struct ib_uverbs_ex_query_device_resp response = {
        .base = device_attributes(call->context),
        .response_length = sizeof(response),
        .timestamp_mask = UINT64_MAX,
        .hca_core_clock = CORE_CLOCK_KHZ,
        .cq_moderation_caps = {.max_cq_moderation_count = 65535, .max_cq_moderation_period = 4095},
        .tm_caps = {.max_rndv_hdr_size = NIC_MAX_RENDEZVOUS_HEADER_BYTES,
                    .max_num_tags = NIC_MAX_TAGS,
                    .flags = IBV_TM_CAP_RC,
                    .max_ops = 32768,
                    .max_sge = 1},
        .max_dm_size = DEVICE_MEMORY_BYTES,
        .odp_caps = {.general_caps = PAGING_GENERAL,
                     .per_transport_caps = {PAGING_RC, PAGING_UC, PAGING_UD}},
        .xrc_odp_caps = PAGING_XRC,
    };
    if (response.base.max_srq == 0) {
        memset(&response.tm_caps, 0, sizeof(response.tm_caps));
    }
    struct mlx5_ib_query_device_resp driver = {
        .response_length = sizeof(driver),
        .cqe_comp_caps = {.max_num = NIC_MAX_MINI_CQES,
                          .supported_format = MLX5_IB_CQE_RES_FORMAT_HASH |
                                              MLX5_IB_CQE_RES_FORMAT_CSUM |
                                              MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX},
        .flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP |
                 MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD |
                 MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT,
        .dci_streams_caps = {MLX5_DC_LOG_STREAMS, MLX5_DC_LOG_FAILED_STREAMS},
    };
    int result = attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &driver, sizeof(driver));
}

/* What an InfiniBand port has besides. */
static void put_infiniband(int rail, struct ib_uverbs_query_port_resp *port)
{
    port->link_layer = IBV_LINK_LAYER_INFINIBAND;
    port->port_cap_flags = RAIL_INFINIBAND_CAPABILITIES;
    port->lid = rails[rail].lid;
    port->lmc = RAIL_LID_MASK_BITS;
    port->sm_lid = RAIL_MANAGER_LID;
    port->max_vl_num = 4; /* a code: 8 virtual lanes */
    port->subnet_timeout = 18;
    port->flags = process.fabric.link & LINK_GRH(rail) ? IB_UVERBS_QPF_GRH_REQUIRED : 0;
}

int answer_query_port(const struct call *call)
{
    if (attribute_number(call, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 0) != RAIL_PORT) {
        return EINVAL;
    }
    bool down = process.nic.rails_down >> call->context->rail & 1;
    struct ib_uverbs_query_port_resp_ex response = {
        .legacy_resp =
            {
                .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
                .max_msg_sz = NIC_MAX_MESSAGE_BYTES,
                .gid_tbl_len = RAIL_GID_COUNT,
                .pkey_tbl_len = (uint16_t)rail_partition_count(process.fabric.link),
                .state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
                .max_mtu = IBV_MTU_4096,
                .active_mtu = IBV_MTU_4096,
                .active_width = 2,  /* 4x */
                .active_speed = 32, /* EDR: 25 Gb/s a lane */
                .phys_state = down ? 3 : 5,
                .link_layer = IBV_LINK_LAYER_ETHERNET,
                .flags = IB_UVERBS_QPF_GRH_REQUIRED,
                .bad_pkey_cntr = fabric_port_violations(&process.fabric, call->context->rail),
            },
    };
    if (process.fabric.link & LINK_INFINIBAND) {
        put_infiniband(call->context->rail, &response.legacy_resp);
    }
    return attribute_out(call, UVERBS_ATTR_QUERY_PORT_RESP, &response, sizeof(response));
}

/* What is special to an adapter in switchdev mode, which this one is not in: so all is zero. */
int mlx5_query_port(const struct call *call)
{
    struct mlx5_ib_uapi_query_port response = {0};
    if (attribute_number(call, MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, 0) != RAIL_PORT) {
        return EINVAL;
    }
    return attribute_out(call, MLX5_IB_ATTR_QUERY_PORT, &response, sizeof(response));
}

/* What mlx5_ib tells libmlx5 when it opens a device, or imports a context that is open. */
static struct mlx5_ib_alloc_ucontext_resp driver_context(uint32_t rail)
{
    struct mlx5_ib_alloc_ucontext_resp driver = {
        .qp_tab_size = 1u << 18,
        .bf_reg_size = 2 * NIC_BLUEFLAME_BYTES,
        .tot_bfregs =
            0, /* none from the start, so libmlx5 asks for doorbell pages when it needs them */
        .cache_line_size = 64,
        .max_sq_desc_sz = NIC_WQE_MAX_BYTES,
        .max_rq_desc_sz = 512,
        .max_send_wqebb = 32768,
        .max_recv_wr = 32768,
        .max_srq_recv_wr = 32767,
        .num_ports = 1,
        .response_length = sizeof(driver),
        .cqe_version = 1,
        .cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
        .eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
        .log_uar_size = 12,
        .num_uars_per_page = 1,
        .num_dyn_bfregs = 1024,
        .clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
    };
#if defined(__x86_64__) /* where the emulation can make reads of it */
    driver.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
    driver.hca_core_clock_offset = CORE_CLOCK_OFFSET;
#endif
    if (ece_offered(process.nic.fabric, rail)) {
        driver.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE;
    }
    return driver;
}

int answer_get_context(const struct call *call)
{
    struct mlx5_ib_alloc_ucontext_resp driver = driver_context(call->context->rail);
    int result =
        attribute_out32(call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, COMPLETION_VECTORS);
    if (!result) {
        result = attribute_out64(call, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
                                 IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS);
    }
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &driver, sizeof(driver));
}

int answer_query_context(const struct call *call)
{
    int result =
        attribute_out32(call, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, COMPLETION_VECTORS);
    if (!result) {
        result = attribute_out64(call, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT,
                                 IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS);
    }
    struct mlx5_ib_alloc_ucontext_resp driver = driver_context(call->context->rail);
    return result
               ? result
               : attribute_out(call, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &driver, sizeof(driver));
}

static bool gid_entry(const struct context *context, uint32_t index,
                      struct ib_uverbs_gid_entry *entry)
{
    static const uint32_t types[] = {[RAIL_GID_ROCE_V1] = IB_UVERBS_GID_TYPE_ROCE_V1,
                                     [RAIL_GID_ROCE_V2] = IB_UVERBS_GID_TYPE_ROCE_V2,
                                     [RAIL_GID_INFINIBAND] = IB_UVERBS_GID_TYPE_IB};
    struct rail_gid gid = rail_gid(process.fabric.link, context->rail, index);
    if (gid.type == RAIL_GID_NONE) {
        return false;
    }
    *entry = (struct ib_uverbs_gid_entry){
        .gid_index = index,
        .port_num = RAIL_PORT,
        .gid_type = types[gid.type],
        /* The GIDs of an InfiniBand port are no network interface's. */
        .netdev_ifindex = gid.type == RAIL_GID_INFINIBAND ? 0 : RAIL_NET_INDEX,
    };
    memcpy(entry->gid, gid.raw, sizeof(gid.raw));
    return true;
}

int answer_gid_table(const struct call *call)
{
    struct ib_uverbs_gid_entry entries[RAIL_GID_COUNT];
    uint64_t count = 0;
    const struct ib_uverbs_attr *out = attribute(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    if (attribute_number(call, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0) ||
        attribute_number(call, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 0) != sizeof(entries[0])) {
        return EINVAL;
    }
    for (uint32_t index = 0; index < RAIL_GID_COUNT; index++) {
        count += gid_entry(call->context, index, &entries[count]);
    }
    if (out && out->len < count * sizeof(entries[0])) {
        return EINVAL;
    }
    int result = attribute_out(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries,
                               count * sizeof(entries[0]));
    return result ? result
                  : attribute_out64(call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
}

int answer_gid_entry(const struct call *call)
{
    struct ib_uverbs_gid_entry entry;
    uint64_t index = attribute_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UINT64_MAX);
    if (attribute_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0) ||
        attribute_number(call, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 0) != RAIL_PORT ||
        index >= RAIL_GID_COUNT) {
        return EINVAL;
    }
    if (!gid_entry(call->context, (uint32_t)index, &entry)) {
        return ENODATA;
    }
    return attribute_out(call, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof(entry));
}

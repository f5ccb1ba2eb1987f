/* dc.c: the dynamically connected transport (DC): DCIs and DCTs of both drivers. Verbs does not have it, but
 * libmlx5 does: mlx5dv_create_qp(3). Which transitions of state they know is the kernel's choice
 * (drivers/infiniband/hw/mlx5/qp.c): a DCI has no rights, and a DCT becomes a thing of the device, with a
 * number, when it is ready to receive. It stays that until it is destroyed. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/queue.h"

/* ---- What the device has --------------------------------------------------------------------- */

/* The sizes of streams are exponents, and the ids have 16 bits. */
#define STREAMS_EXPONENT_MAX 16

static uint8_t exponent(uint32_t found)
{
    return (uint8_t)minimum(found, STREAMS_EXPONENT_MAX);
}

void device_dc_describe(struct device_nic *nic)
{
    struct mlx5dv_context found = {.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS};
    nic->base.dc = mlx5dv_is_supported(nic->context->device);
    if (!nic->base.dc || mlx5dv_query_device(nic->context, &found) != 0 ||
        !(found.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) ||
        found.dci_streams_caps.max_log_num_concurent == 0) {
        return;
    }
    nic->base.streams_max = 1u << exponent(found.dci_streams_caps.max_log_num_concurent);
    nic->stream_failures_exponent_max = exponent(found.dci_streams_caps.max_log_num_errored);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static uint8_t streams_exponent(uint32_t streams)
{
    uint8_t exponent = 0;
    while (1u << exponent < streams) {
        exponent++;
    }
    return exponent;
}

/* Scatter to CQE is off, as in queue.c. */
static struct mlx5dv_qp_init_attr attributes_of(enum mlx5dv_dc_type type)
{
    return (struct mlx5dv_qp_init_attr){.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
                                                     MLX5DV_QP_INIT_ATTR_MASK_DC,
                                        .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
                                        .dc_init_attr = {.dc_type = type}};
}

/* Naming the ops keeps WQEs from being counted as if they could bind windows. */
struct ibv_qp *device_dci_create(struct device_nic *nic, struct ibv_qp_init_attr_ex *attributes,
                                 const struct mlx5dv_dci_streams *streams)
{
    struct mlx5dv_qp_init_attr direct = attributes_of(MLX5DV_DCTYPE_DCI);
    attributes->qp_type = IBV_QPT_DRIVER;
    attributes->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes->send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    if (streams) {
        direct.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        direct.dc_init_attr.dci_streams = *streams;
    }
    return mlx5dv_create_qp(nic->context, attributes, &direct);
}

struct ibv_qp *device_dct_create(struct device_nic *nic, struct ibv_qp_init_attr_ex *attributes,
                                 uint64_t access_key)
{
    struct mlx5dv_qp_init_attr direct = attributes_of(MLX5DV_DCTYPE_DCT);
    attributes->qp_type = IBV_QPT_DRIVER;
    direct.dc_init_attr.dct_access_key = access_key;
    return mlx5dv_create_qp(nic->context, attributes, &direct);
}

struct ibv_qp *device_dc_create(struct device_queue *queue, struct ibv_qp_init_attr_ex *attributes,
                                const struct nic_queue_options *options)
{
    struct device_nic *nic = to_device_nic(queue->base.nic);
    if (options->kind == NIC_QUEUE_DCT) {
        return device_dct_create(nic, attributes, options->access_key);
    }
    if (options->streams == 0) {
        return device_dci_create(nic, attributes, NULL);
    }
    const struct mlx5dv_dci_streams streams = {
        .log_num_concurent = streams_exponent(options->streams),
        .log_num_errored =
            (uint8_t)nic_queue_grant_failures(&queue->base, nic->stream_failures_exponent_max)};
    return device_dci_create(nic, attributes, &streams);
}

/* ---- States ---------------------------------------------------------------------------------- */

static struct ibv_ah_attr own_way(const struct nic_queue_pair *base)
{
    struct nic_address own;
    device_queue_pair_address(base, &own);
    return device_way_to(to_device_nic(base->nic), &own);
}

int device_dci_to_init(struct nic_queue_pair *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .pkey_index = to_device_nic(base->nic)->partition_index,
                                     .port_num = (uint8_t)base->nic->port};
    return ibv_modify_qp(device_qp(base), &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
}

int device_dci_ready(struct nic_queue_pair *base, const struct nic_transport *transport)
{
    struct device_nic *nic = to_device_nic(base->nic);
    struct ibv_qp *qp = device_qp(base);
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)nic->mtu_code, .ah_attr = own_way(base)};
    assert(transport->retry_timeout >= 1 && transport->retry_timeout <= 31 &&
           transport->retry_count >= 1 && transport->retry_count <= 7);
    int os_error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV);
    return os_error ? os_error : device_queue_pair_to_send(base, transport);
}

int device_dct_ready(struct nic_queue_pair *base)
{
    const struct device_nic *nic = to_device_nic(base->nic);
    struct ibv_qp *qp = device_qp(base);
    int os_error = device_queue_pair_rights_to_init(base);
    if (os_error == 0) {
        struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR,
                                         .path_mtu = (enum ibv_mtu)nic->mtu_code,
                                         .min_rnr_timer = NIC_MIN_RNR_TIMER,
                                         .ah_attr = own_way(base)};
        os_error = ibv_modify_qp(qp, &attributes,
                                 IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER);
    }
    base->number = qp->qp_num;
    return os_error;
}

/* ---- Streams --------------------------------------------------------------------------------- */

int32_t device_queue_reset_stream(struct nic_queue *base, uint16_t stream, crpc_error *error)
{
    int32_t status = nic_queue_check_stream(base, stream, error);
    if (status != CRPC_OK || !nic_queue_stream_failed(base, stream)) {
        return status;
    }
    int os_error = mlx5dv_dci_stream_id_reset(device_qp(base->pair), stream);
    if (os_error) {
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: cannot reset stream %u: %s",
                         base->nic->device, stream, strerror(os_error));
    }
    nic_queue_renew_stream(base, stream);
    return CRPC_OK;
}

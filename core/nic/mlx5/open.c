/* open.c: makes the queues of a nic and finds out where they lie; takes them down again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/left_out.h"
#include "nic/mlx5/devx.h"

static bool is_mlx5(struct ibv_device *device)
{
    return mlx5dv_is_supported(device);
}

static bool can_compress(struct ibv_context *context)
{
    struct mlx5dv_context attributes = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};
    return mlx5dv_query_device(context, &attributes) == 0 &&
           (attributes.comp_mask & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) &&
           attributes.cqe_comp_caps.max_num > 0 &&
           (attributes.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_HASH);
}

static struct ibv_cq *create_cq(struct mlx5_nic *nic, uint32_t depth, bool compressed)
{
    struct ibv_context *context = nic->device.context;
    if (!compressed) {
        return ibv_create_cq(context, (int)depth, nic, nic->device.channel,
                             (int)nic->device.base.completion_vector);
    }
    struct ibv_cq_init_attr_ex attributes = {.cqe = depth,
                                             .cq_context = nic,
                                             .channel = nic->device.channel,
                                             .comp_vector = nic->device.base.completion_vector};
    struct mlx5dv_cq_init_attr direct = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
                                         .cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH};
    struct ibv_cq_ex *cq = mlx5dv_create_cq(context, &attributes, &direct);
    return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* From libmlx5. */
int mlx5_find_completion_queue(struct ibv_cq *cq, bool compressed, struct completion_queue *queue)
{
    struct mlx5dv_cq found = {0};
    struct mlx5dv_obj object = {.cq = {.in = cq, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ);
    if (os_error) {
        return os_error;
    }
    if (found.cqe_cnt == 0 || (found.cqe_cnt & (found.cqe_cnt - 1)) != 0 ||
        (found.cqe_size != 64 && found.cqe_size != 128)) {
        return EOPNOTSUPP;
    }
    *queue = (struct completion_queue){
        .entries = (uint8_t *)found.buf + found.cqe_size - sizeof(struct mlx5_cqe64),
        .mask = found.cqe_cnt - 1,
        .shift = found.cqe_size == 64 ? 6 : 7,
        .laps = (uint8_t)__builtin_ctz(found.cqe_cnt),
        .mini = COMPLETION_MINI_HASH,
        .layout = compressed ? COMPLETION_COMPRESSED : COMPLETION_PLAIN,
        .record = found.dbrec,
        .doorbell = found.cq_uar,
        .number = found.cqn,
    };
    completion_queue_init(queue);
    return 0;
}

/* Some devices compress no CQEs of the size that libmlx5 has chosen: 128 bytes where cache lines have as many. */
static int32_t create_completion_queue(struct mlx5_nic *nic, uint32_t depth, bool compressed,
                                       struct ibv_cq **cq, struct completion_queue *queue,
                                       const char *kind, crpc_error *error)
{
    *cq = create_cq(nic, depth, compressed);
    if (!*cq && compressed && errno == EOPNOTSUPP) {
        compressed = false;
        *cq = create_cq(nic, depth, false);
    }
    if (*cq) {
        errno = mlx5_find_completion_queue(*cq, compressed, queue);
        if (errno == 0) {
            return CRPC_OK;
        }
    }
    return device_queue_failed(&nic->device.base, kind, depth, error);
}

static int32_t create_receive_queue(struct mlx5_nic *nic, crpc_error *error)
{
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = nic->device.base.receive_depth, .max_sge = 1},
    };
    struct mlx5dv_srq found = {0};
    nic->srq = ibv_create_srq(nic->device.pd, &attributes);
    if (nic->srq) {
        struct mlx5dv_obj object = {.srq = {.in = nic->srq, .out = &found}};
        errno = mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ);
    }
    if (!nic->srq || errno) {
        return device_queue_failed(&nic->device.base, "shared receive",
                                   nic->device.base.receive_depth, error);
    }
    nic->receive_queue = (struct receive_queue){.buffer = found.buf,
                                                .stride = found.stride,
                                                .entries = found.tail + 1,
                                                .tail = found.tail,
                                                .record = found.dbrec};
    receive_queue_init(&nic->receive_queue);
    return CRPC_OK;
}

static bool wants_compression(const struct mlx5_nic *nic, const struct nic_options *options)
{
    return (options->features & CRPC_FEATURE_CQE_COMPRESSION) &&
           !(nic->device.left_out & LEFT_OUT_CQE_COMPRESSION);
}

/* Completion queues in the enhanced layout, and queue pairs that complete to them, are made by DevX (devx.h). Who asks for that and cannot
 * have it hears why, and has what everybody has. Initiators and DCTs are of the verbs, and so are their completion queues. */
static void try_devx(struct mlx5_nic *nic, const struct nic_options *options, struct ibv_qp *probe,
                     uint32_t push_bytes)
{
    struct nic *base = &nic->device.base;
    const char *what = "queue pairs other than those of DC";
    errno = EOPNOTSUPP;
    if (!options->enhanced_layout || !wants_compression(nic, options)) {
        return;
    }
    if (options->initiators == 0 && mlx5_devx_open(nic, options, probe, push_bytes, &what)) {
        base->features |= CRPC_FEATURE_CQE_COMPRESSION;
        base->features &= nic->devx->push_bytes ? ~0u : ~CRPC_FEATURE_BLUEFLAME;
        return;
    }
    snprintf(base->layout_missing, sizeof(base->layout_missing),
             "%s: completions are not compressed in the enhanced layout, but as without "
             "COPYRPC_COMPRESSED_LAYOUT: %s: %s",
             base->device, what, strerror(errno));
}

/* How much payload a WQE carries, how much libmlx5 counts for it, and whether it can be pushed, is only known of a
 * queue pair. */
static int32_t probe_queue_pair(struct mlx5_nic *nic, const struct nic_options *options,
                                crpc_error *error)
{
    const uint32_t wanted = options->inline_bytes ? options->inline_bytes : MLX5_INLINE_BYTES;
    struct ibv_qp_init_attr granted;
    struct ibv_qp *qp =
        mlx5_qp_create(nic, NULL, nic->device.base.send_depth + 1, wanted, &granted);
    if (!qp) {
        return device_blame(error, errno, 0, nic->device.base.device, "create a queue pair");
    }
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = qp, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error || granted.cap.max_send_wr == 0 || found.sq.wqe_cnt < granted.cap.max_send_wr) {
        mlx5_qp_destroy(nic, qp);
        return device_blame(error, os_error ? os_error : EOPNOTSUPP, 0, nic->device.base.device,
                            "find a queue pair's send queue");
    }
    if (mlx5_push_bytes(nic, &found) != 0) {
        nic->device.base.features |= CRPC_FEATURE_BLUEFLAME;
    }
    nic->library_wqe_bytes = found.sq.wqe_cnt * WQE_BLOCK_BYTES / granted.cap.max_send_wr;
    nic->device.base.inline_bytes_max = (uint32_t)minimum(granted.cap.max_inline_data, wanted);
    try_devx(nic, options, qp, mlx5_push_bytes(nic, &found));
    mlx5_qp_destroy(nic, qp);
    return CRPC_OK;
}

/* A mini CQE of a send has a counter and an opcode. One of a receive has neither counter nor immediate (docs/cqe-compression.md). That a
 * device compresses none that these would tell apart is inferred, and nobody else has compressed completions of receives of RDMA in
 * this layout. So that takes who has seen it on his card. The polls are those of compressed queues as soon as one of the two is: there,
 * a queue is read alike that has no compressed CQE. */
static int32_t create_completion_queues(struct mlx5_nic *nic, const struct nic_options *options,
                                        crpc_error *error)
{
    const struct nic *base = &nic->device.base;
    const bool compressed = wants_compression(nic, options) && can_compress(nic->device.context);
    int32_t status = create_completion_queue(
        nic, base->receive_depth, compressed && options->compressed_receives, &nic->receive_cq,
        &nic->receives, "receive completion", error);
    if (status == CRPC_OK) {
        status = create_completion_queue(nic, base->send_completion_depth, compressed,
                                         &nic->send_cq, &nic->sends, "send completion", error);
    }
    if (nic->receives.layout == COMPLETION_COMPRESSED ||
        nic->sends.layout == COMPLETION_COMPRESSED) {
        nic->receives.layout = nic->sends.layout = COMPLETION_COMPRESSED;
        nic->device.base.features |= CRPC_FEATURE_CQE_COMPRESSION;
    }
    return status;
}

static int32_t create_queues(struct device_nic *device, const struct nic_options *options,
                             crpc_error *error)
{
    struct nic *base = &device->base;
    struct mlx5_nic *nic = to_mlx5_nic(base);
    int32_t status = create_receive_queue(nic, error);
    if (status != CRPC_OK) {
        return status;
    }
    nic->spare_cq = ibv_create_cq(nic->device.context, 1, NULL, NULL, 0);
    if (!nic->spare_cq) {
        return device_queue_failed(base, "completion", 1, error);
    }
    status = probe_queue_pair(nic, options, error);
    if (status == CRPC_OK && !nic->devx) {
        status = create_completion_queues(nic, options, error);
    }
    base->send_completion_depth = nic->sends.mask;
    if (status == CRPC_OK && options->initiators > 0) {
        status = mlx5_initiators_make(nic, options, error);
    }
    if (status == CRPC_OK) {
        mlx5_refill(base);
    }
    return status;
}

int32_t mlx5_query(uint32_t index, crpc_device_info *info, crpc_error *error)
{
    return device_query(index, CRPC_DRIVER_MLX5, is_mlx5, info, error);
}

int32_t mlx5_open(const struct nic_options *options, struct nic **result, crpc_error *error)
{
    static const struct device_driver driver = {.operations = &mlx5_operations,
                                                .nic_bytes = sizeof(struct mlx5_nic),
                                                .usable = is_mlx5,
                                                .create_queues = create_queues};
    return device_open(&driver, options, result, error);
}

void mlx5_close(struct nic *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    mlx5_initiators_end(nic);
    if (nic->srq) {
        ibv_destroy_srq(nic->srq);
    }
    if (nic->device.channel) {
        mlx5_disarm(base);
    }
    if (nic->send_cq) {
        device_destroy_cq(nic->send_cq, nic->send_events_unacked);
    }
    if (nic->receive_cq) {
        device_destroy_cq(nic->receive_cq, nic->receive_events_unacked);
    }
    mlx5_devx_close(nic);
    if (nic->spare_cq) {
        ibv_destroy_cq(nic->spare_cq);
    }
    device_close(&nic->device);
}

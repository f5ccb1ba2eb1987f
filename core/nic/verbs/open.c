/* open.c: makes the queues of a nic, and takes them down again. */
#include <errno.h>

#include "base/error.h"
#include "nic/verbs/verbs.h"

/* How much payload a WQE carries is only known once there is a queue pair, so one is made to ask.
 * 220 bytes are what fits four 64-byte units of an mlx5 send queue. */
static int32_t probe_inline(struct verbs_nic *nic, uint32_t most, crpc_error *error)
{
    static const uint32_t steps[] = {220, 128, 64, 0};
    struct ibv_qp *qp = NULL;
    const size_t count = sizeof(steps) / sizeof(steps[0]);
    for (size_t i = nic->vendor.no_inline ? count - 1 : 0; i < count && !qp; i++) {
        const uint32_t wanted = most ? (uint32_t)minimum(steps[i], most) : steps[i];
        struct ibv_qp_init_attr granted;
        qp = verbs_qp_create(nic, NULL, nic->device.base.send_depth, wanted, 1, &granted);
        nic->inline_bytes_wanted = wanted;
        nic->device.base.inline_bytes_max = nic->vendor.no_inline ? 0 : granted.cap.max_inline_data;
    }
    if (!qp) {
        return device_blame(error, errno, 0, nic->device.base.device, "create a queue pair");
    }
    ibv_destroy_qp(qp);
    return CRPC_OK;
}

static int32_t create_queues(struct device_nic *device, const struct nic_options *options,
                             crpc_error *error)
{
    struct nic *base = &device->base;
    struct verbs_nic *nic = to_verbs_nic(base);
    nic->vendor = verbs_vendor_of(device->context);
    if (!verbs_source_open(&nic->receive, nic, base->receive_depth)) {
        return device_queue_failed(base, "receive completion", base->receive_depth, error);
    }
    if (!verbs_source_open(&nic->send, nic, base->send_completion_depth)) {
        return device_queue_failed(base, "send completion", base->send_completion_depth, error);
    }
    int32_t status = verbs_receives_open(nic, error);
    if (status == CRPC_OK) {
        status = probe_inline(nic, options->inline_bytes, error);
    }
    if (status == CRPC_OK) {
        base->send_completion_depth = nic->send.depth;
        verbs_refill(base);
    }
    return status;
}

int32_t verbs_query(uint32_t index, crpc_device_info *info, crpc_error *error)
{
    return device_query(index, CRPC_DRIVER_VERBS, NULL, info, error);
}

int32_t verbs_open(const struct nic_options *options, struct nic **result, crpc_error *error)
{
    static const struct device_driver driver = {.operations = &verbs_operations,
                                                .nic_bytes = sizeof(struct verbs_nic),
                                                .create_queues = create_queues};
    return device_open(&driver, options, result, error);
}

void verbs_close(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    verbs_receives_close(nic);
    if (nic->device.channel) {
        verbs_disarm(base);
    }
    verbs_source_close(&nic->send);
    verbs_source_close(&nic->receive);
    device_close(&nic->device);
}

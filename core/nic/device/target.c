/* target.c: targets of datagrams: address handles, and queue pairs that need no peer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/queue.h"

int device_queue_ready(struct nic_queue *base)
{
    struct ibv_qp *qp = device_qp(base->pair);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR};
    int os_error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
    if (os_error == 0) {
        attributes = (struct ibv_qp_attr){
            .qp_state = IBV_QPS_RTS,
            .sq_psn = to_device_queue_pair(base->pair)->packet_sequence_number};
        os_error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
    }
    return os_error;
}

/* Without a GID, the source of a datagram is named by its LID alone. */
static bool has_gid(const struct nic_address *address)
{
    static const uint8_t none[sizeof(address->gid)];
    return memcmp(address->gid, none, sizeof(none)) != 0;
}

int32_t device_target_create(size_t bytes, struct nic *base, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **result,
                             crpc_error *error)
{
    struct device_nic *nic = to_device_nic(base);
    int32_t status = nic_queue_check_kind(base, options->kind, error);
    if (status != CRPC_OK) {
        return status;
    }
    const bool gid_known = has_gid(&options->address);
    if (!gid_known && base->grh_required) {
        return error_set(error, CRPC_E_UNREACHABLE, 0,
                         "%s port %u must use a GRH, and the target's address has no GID for it",
                         base->device, base->port);
    }
    struct device_target *target = calloc(1, bytes);
    if (!target) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a target");
    }
    nic_target_init(&target->base, base, options);
    struct ibv_ah_attr way = device_way_to(nic, &options->address);
    way.sl = options->service_level ? options->service_level : way.sl;
    way.is_global = way.is_global && gid_known;
    target->ah = ibv_create_ah(device_pd(nic, domain), &way);
    if (!target->ah) {
        int os_error = errno;
        free(target);
        return error_set(error, os_error == ENOMEM ? CRPC_E_NO_MEMORY : CRPC_E_UNREACHABLE,
                         os_error,
                         "%s: no way to the target's address: %s: are both ends on one network?",
                         base->device, strerror(os_error));
    }
    *result = &target->base;
    return CRPC_OK;
}

void device_target_destroy(struct nic_target *base)
{
    struct device_target *target = to_device_target(base);
    ibv_destroy_ah(target->ah);
    free(target);
}

/* queue_pair.c: making a queue pair in one go, of a driver's three steps. */
#include "nic/nic.h"

int32_t nic_queue_pair_create(struct nic *nic, struct nic_domain *domain, void *owner,
                              uint32_t receives, struct nic_queue_pair **result, crpc_error *error)
{
    return nic_queue_pair_create_deep(nic, domain, owner, nic->send_depth, receives, result, error);
}

int32_t nic_queue_pair_create_deep(struct nic *nic, struct nic_domain *domain, void *owner,
                                   uint32_t depth, uint32_t receives,
                                   struct nic_queue_pair **result, crpc_error *error)
{
    const struct nic_operations *operations = nic->operations;
    struct nic_queue_pair *queue_pair = NULL;
    int32_t status = operations->queue_pair_begin(nic, owner, depth, receives, &queue_pair, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = operations->queue_pair_make(queue_pair, domain, error);
    if (status == CRPC_OK) {
        status = operations->queue_pair_adopt(queue_pair, error);
    }
    if (status != CRPC_OK) {
        operations->queue_pair_destroy(queue_pair);
        return status;
    }
    *result = queue_pair;
    return CRPC_OK;
}

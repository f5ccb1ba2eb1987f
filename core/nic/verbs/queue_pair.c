/* queue_pair.c: making, failing and destroying queue pairs.
 *
 * Destroying is the delicate one: the kernel may leave entries of a destroyed queue pair in the CQs
 * (Soft-RoCE does), and the next queue pair may get its number. After ibv_destroy_qp returns no new
 * entry appears, so what is there then is all there will ever be, and it is taken out at once.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"
#include "nic/verbs/verbs.h"

struct ibv_qp *verbs_qp_create(struct verbs_nic *nic, struct nic_domain *domain, uint32_t depth,
                               uint32_t inline_bytes, struct ibv_qp_init_attr *granted)
{
    *granted = (struct ibv_qp_init_attr){
        .send_cq = nic->send.cq,
        .recv_cq = nic->receive.cq,
        .srq = nic->srq,
        .cap = {.max_send_wr = depth,
                .max_send_sge = nic->device.base.pieces_max,
                .max_inline_data = inline_bytes},
        .qp_type = IBV_QPT_RC,
    };
    return ibv_create_qp(device_pd(&nic->device, domain), granted);
}

static void link_chain(struct verbs_queue_pair *queue_pair)
{
    for (uint32_t i = 0; i < VERBS_CHAIN; i++) {
        queue_pair->chain[i].sg_list = queue_pair->pieces[i];
        queue_pair->chain[i].next = i + 1 < VERBS_CHAIN ? &queue_pair->chain[i + 1] : NULL;
    }
}

int32_t verbs_queue_pair_create(struct nic *base, struct nic_domain *domain, void *owner,
                                struct nic_queue_pair **result, crpc_error *error)
{
    return verbs_queue_pair_create_deep(base, domain, owner, base->send_depth, result, error);
}

int32_t verbs_queue_pair_create_deep(struct nic *base, struct nic_domain *domain, void *owner,
                                     uint32_t depth, struct nic_queue_pair **result,
                                     crpc_error *error)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    struct verbs_queue_pair *queue_pair = lines_alloc(1, sizeof(*queue_pair));
    if (!queue_pair) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    struct ibv_qp_init_attr granted;
    struct ibv_qp *qp = verbs_qp_create(nic, domain, depth, nic->inline_bytes_wanted, &granted);
    if (!qp) {
        int os_error = errno;
        free(queue_pair);
        return device_blame(error, os_error, 0, base->device, "create a queue pair");
    }
    if (!device_queue_pair_init(&nic->device, &queue_pair->device, owner, qp)) {
        ibv_destroy_qp(qp);
        free(queue_pair);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    queue_pair->device.base.depth = depth;
    link_chain(queue_pair);
    *result = &queue_pair->device.base;
    return CRPC_OK;
}

void verbs_queue_pair_fail(struct nic_queue_pair *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    base->failed = true;
    ibv_modify_qp(device_qp(base), &attributes, IBV_QP_STATE);
    /* What was posted but not rung is promised a flush like everything else. */
    verbs_ring_doorbell(base);
}

static void drop_completions(struct verbs_nic *nic, uint32_t number)
{
    nic->device.base.receives_posted -= verbs_source_drop(&nic->receive, number, NULL, NULL);
    verbs_source_drop(&nic->send, number, NULL, NULL);
}

/* The first drop is for devices whose library takes the entries of a queue pair out of the CQ as it
 * destroys it (mlx5): they would leave receives_posted too high. */
void verbs_queue_pair_destroy(struct nic_queue_pair *base)
{
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    queue_pair->chained = 0;
    verbs_queue_pair_fail(base);
    device_await_last_wqe(&nic->device, &queue_pair->device);
    drop_completions(nic, base->number);
    ibv_destroy_qp(device_qp(base));
    drop_completions(nic, base->number);
    device_queue_pair_forget(&nic->device, base);
    free(queue_pair);
}

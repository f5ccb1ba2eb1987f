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
                               uint32_t inline_bytes, uint32_t receives,
                               struct ibv_qp_init_attr *granted)
{
    const bool own = !nic->srq;
    *granted = (struct ibv_qp_init_attr){
        .send_cq = nic->send.cq,
        .recv_cq = nic->receive.cq,
        .srq = nic->srq,
        .cap = {.max_send_wr = depth,
                .max_send_sge = nic->device.base.pieces_max,
                .max_inline_data = inline_bytes,
                /* erdma and mana want one at least. */
                .max_recv_wr = own ? (uint32_t)maximum(receives, 1) : 0,
                .max_recv_sge = own},
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

/* The receive CQ never overflows. */
static int32_t check_receives(const struct verbs_nic *nic, uint32_t depth, crpc_error *error)
{
    const struct nic *base = &nic->device.base;
    const uint32_t left = base->receive_depth - nic->receives_given;
    if (depth > left) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "%s has no shared receive queue: one more receive queue of %u does not fit, "
            "since %u are left of %u for all connections; raise the receive depth, or "
            "lower what one connection needs: batch_window, or slots and queue_pairs",
            base->device, depth, left, base->receive_depth);
    }
    if (depth > base->receive_queue_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "%s has no shared receive queue, and its receive queues have at most %u "
                         "entries, not %u: lower batch_window or slots",
                         base->device, base->receive_queue_max, depth);
    }
    return CRPC_OK;
}

int32_t verbs_queue_pair_begin(struct nic *base, void *owner, uint32_t depth, uint32_t receives,
                               struct nic_queue_pair **result, crpc_error *error)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    const uint32_t receive_depth = nic->srq ? 0 : nic_receive_queue_depth(receives);
    int32_t status = check_receives(nic, receive_depth, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct verbs_queue_pair *queue_pair = lines_alloc(1, sizeof(*queue_pair));
    if (!queue_pair) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    device_queue_pair_begin(&nic->device, &queue_pair->device, owner, depth);
    queue_pair->receive_depth = receive_depth;
    link_chain(queue_pair);
    verbs_receives_begin(queue_pair);
    *result = &queue_pair->device.base;
    return CRPC_OK;
}

int32_t verbs_queue_pair_make(struct nic_queue_pair *base, struct nic_domain *domain,
                              crpc_error *error)
{
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    struct ibv_qp_init_attr granted;
    struct ibv_qp *qp = verbs_qp_create(nic, domain, base->depth, nic->inline_bytes_wanted,
                                        queue_pair->receive_depth, &granted);
    if (!qp) {
        return device_blame(error, errno, 0, base->nic->device, "create a queue pair");
    }
    device_queue_pair_made(&queue_pair->device, qp);
    int os_error = verbs_receives_make(queue_pair);
    return os_error ? device_blame(error, os_error, 0, base->nic->device, "make a receive queue")
                    : CRPC_OK;
}

static void drop_completions(struct verbs_nic *nic, uint32_t number)
{
    const uint32_t receives = verbs_source_drop(&nic->receive, number, NULL, NULL);
    nic->device.base.receives_posted -= nic->srq ? receives : 0; /* others go with the queue pair */
    verbs_source_drop(&nic->send, number, NULL, NULL);
}

/* It is unmade: nothing of it completes any more. */
static void bury(struct verbs_nic *nic, struct nic_queue_pair *base)
{
    drop_completions(nic, base->number);
    device_queue_pair_forget(&nic->device, base);
}

int32_t verbs_queue_pair_adopt(struct nic_queue_pair *base, crpc_error *error)
{
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    struct nic_queue_pair *before = table_get(&nic->device.by_number, base->number);
    if (before) { /* the device uses its number again, over which nothing has come yet */
        bury(nic, before);
    }
    if (!device_queue_pair_adopt(&nic->device, &queue_pair->device)) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    int os_error = verbs_receives_adopt(queue_pair);
    return os_error ? device_blame(error, os_error, 0, base->nic->device, "fill a receive queue")
                    : CRPC_OK;
}

void verbs_queue_pair_fail(struct nic_queue_pair *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    base->failed = true;
    ibv_modify_qp(device_qp(base), &attributes, IBV_QP_STATE);
    /* What was posted but not rung is promised a flush like everything else. */
    verbs_ring_doorbell(base);
}

void verbs_queue_pair_drop(struct nic_queue_pair *base)
{
    if (to_device_queue_pair(base)->adopted) {
        drop_completions(to_verbs_nic(base->nic), base->number);
    }
}

void verbs_queue_pair_unmake(struct nic_queue_pair *base)
{
    struct device_queue_pair *queue_pair = to_device_queue_pair(base);
    if (queue_pair->qp) {
        ibv_destroy_qp(queue_pair->qp);
        queue_pair->qp = NULL;
    }
}

/* The first drop is for devices whose library takes the entries of a queue pair out of the CQ as it
 * destroys it (mlx5): they would leave receives_posted too high. */
void verbs_queue_pair_destroy(struct nic_queue_pair *base)
{
    struct verbs_nic *nic = to_verbs_nic(base->nic);
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    const bool adopted = queue_pair->device.adopted;
    if (adopted && device_qp(base)) {
        queue_pair->chained = 0;
        verbs_queue_pair_fail(base);
        device_queue_pair_settle(base);
        drop_completions(nic, base->number);
    }
    verbs_queue_pair_unmake(base);
    if (adopted) {
        device_note_last_wqe(&queue_pair->device);
        bury(nic, base);
    }
    verbs_receives_end(queue_pair);
    free(queue_pair);
}

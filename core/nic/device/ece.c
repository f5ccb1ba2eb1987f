/* ece.c: what a queue pair offers of ECE, and what is set when it becomes ready to receive. In any thread.
 *
 * The device says what it offers when the queue pair is made, and what is in force when it is ready. libmlx5 hands the options to the
 * kernel with the next change of state, whichever it is, and takes what comes back for what is in force. NCCL, too, has it be this one.
 */
#include <errno.h>

#include "nic/device/device.h"
#include "nic/device/left_out.h"

/* A device without ECE answers EOPNOTSUPP, or with no options. */
void device_ece_offer(struct device_queue_pair *queue_pair)
{
    struct ibv_ece ece = {0};
    queue_pair->ece = (struct nic_ece){0};
    if (queue_pair->base.nic->ece &&
        !(to_device_nic(queue_pair->base.nic)->left_out & LEFT_OUT_ECE) &&
        queue_pair->qp->qp_type == IBV_QPT_RC && ibv_query_ece(queue_pair->qp, &ece) == 0 &&
        ece.options != 0) {
        queue_pair->ece = (struct nic_ece){.vendor = ece.vendor_id, .options = ece.options};
    }
}

static int set(const struct device_queue_pair *queue_pair, uint32_t options)
{
    struct ibv_ece ece = {.vendor_id = NIC_ECE_VENDOR, .options = options};
    return ibv_set_ece(queue_pair->qp, &ece);
}

static uint32_t in_force(const struct device_queue_pair *queue_pair)
{
    struct ibv_ece ece = {0};
    return ibv_query_ece(queue_pair->qp, &ece) == 0 ? ece.options : 0;
}

/* What a kernel says that has no such options, or whose device does not take them. All else has other reasons. */
static bool may_be_options(int os_error)
{
    return os_error == EINVAL || os_error == EOPNOTSUPP || os_error == EREMOTEIO || os_error == EIO;
}

int device_ready_to_receive(struct device_queue_pair *queue_pair, struct nic_ece peer,
                            struct ibv_qp_attr *attributes, int mask)
{
    const uint32_t wanted = nic_ece_common(queue_pair->ece, peer);
    const bool asked = wanted != 0 && set(queue_pair, wanted) == 0;
    int os_error = device_modify(&queue_pair->base, attributes, mask);
    queue_pair->ece.options = asked && os_error == 0 ? in_force(queue_pair) : 0;
    bool refused = wanted != 0 && !asked;
    if (asked && may_be_options(os_error)) {
        set(queue_pair, 0);
        os_error = device_modify(&queue_pair->base, attributes, mask);
        refused = os_error == 0;
    }
    if (refused) {
        atomic_store(&queue_pair->base.nic->ece_refused, true);
    }
    return os_error;
}

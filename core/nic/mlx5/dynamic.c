/* dynamic.c: dynamic queue pairs, and the DCIs that they share. initiators.h has the rules.
 *
 * A DCT has no error state, so that a queue pair fails means that its DCT is destroyed. Its number then stays with the queue
 * pair until that is destroyed, too: what has arrived before is still to be polled.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "nic/mlx5/mlx5.h"

/* What is shared cannot be as each connection wants it. */
#define RETRY_TIMEOUT_DEFAULT 14u
#define RETRY_COUNT_DEFAULT 7u

/* Numbers of queue pairs that have failed and were not destroyed; each is tried once. */
#define NUMBERS_TRIED_MAX 64u

static struct mlx5_initiators *initiators_of(const struct mlx5_nic *nic)
{
    return container_of(nic->device.base.initiators, struct mlx5_initiators, shared);
}

/* ---- Initiators ------------------------------------------------------------------------------ */

/* Blocks of the largest WQE: a WRITE with an address. */
static uint32_t blocks_of_one(const struct nic *nic)
{
    return wqe_blocks((uint32_t)(sizeof(struct mlx5_wqe_ctrl_seg) +
                                 sizeof(struct mlx5_wqe_datagram_seg) +
                                 sizeof(struct mlx5_wqe_raddr_seg)) +
                      mlx5_payload_bytes(nic));
}

static int to_ready(struct nic_queue_pair *base)
{
    const struct mlx5_initiators *initiators = initiators_of(to_mlx5_nic(base->nic));
    int os_error = device_dci_to_init(base);
    return os_error ? os_error : device_dci_ready(base, &initiators->transport);
}

static int make_initiator(struct mlx5_nic *nic, struct mlx5_initiator *initiator)
{
    const struct nic *base = &nic->device.base;
    struct mlx5_queue_pair *queue_pair = &initiator->queue;
    struct ibv_qp_init_attr_ex attributes = {.send_cq = nic->send_cq,
                                             .recv_cq = nic->spare_cq,
                                             .cap = {.max_send_wr = base->send_depth + 1,
                                                     .max_send_sge = base->pieces_max,
                                                     .max_inline_data = base->inline_bytes_max},
                                             .comp_mask = IBV_QP_INIT_ATTR_PD,
                                             .pd = nic->device.pd};
    struct ibv_qp *qp = device_dci_create(&nic->device, &attributes, NULL);
    queue_pair->initiator = true;
    device_queue_pair_begin(&nic->device, &queue_pair->device, initiator, base->send_depth);
    int os_error =
        qp ? mlx5_find_send_queue(qp, blocks_of_one(base), base->send_depth, queue_pair) : errno;
    if (os_error == 0) {
        device_queue_pair_made(&queue_pair->device, qp);
        os_error = mlx5_find_doorbell(nic, queue_pair);
    }
    if (os_error == 0 && !device_queue_pair_adopt(&nic->device, &queue_pair->device)) {
        os_error = ENOMEM;
    }
    if (os_error) {
        mlx5_queue_pair_dismantle(nic, queue_pair, qp);
        return os_error;
    }
    os_error = to_ready(&queue_pair->device.base);
    if (os_error) {
        device_queue_pair_forget(&nic->device, &queue_pair->device.base);
        mlx5_queue_pair_dismantle(nic, queue_pair, qp);
    }
    return os_error;
}

int32_t mlx5_initiators_make(struct mlx5_nic *nic, const struct nic_options *options,
                             crpc_error *error)
{
    const uint32_t count = options->initiators;
    struct nic *base = &nic->device.base;
    struct mlx5_initiators *initiators = lines_alloc(1, sizeof(*initiators));
    if (initiators) {
        initiators->all = lines_alloc(count, sizeof(*initiators->all));
    }
    if (!initiators || !initiators->all) {
        free(initiators);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for %u initiators", count);
    }
    nic_initiators_init(&initiators->shared, base->send_depth);
    initiators->transport = (struct nic_transport){
        .retry_timeout = options->initiator_retry_timeout ? options->initiator_retry_timeout
                                                          : RETRY_TIMEOUT_DEFAULT,
        .retry_count =
            options->initiator_retry_count ? options->initiator_retry_count : RETRY_COUNT_DEFAULT};
    base->initiators = &initiators->shared;
    const uint32_t places = nic_send_places(base->send_depth);
    if ((uint64_t)count * places > base->send_completion_depth) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the completion queue of %s takes %u sends, enough for %u initiators",
                         base->device, base->send_completion_depth,
                         base->send_completion_depth / places);
    }
    while (initiators->shared.count < count) {
        struct mlx5_initiator *one = &initiators->all[initiators->shared.count];
        int os_error = make_initiator(nic, one);
        if (os_error) {
            return device_blame(error, os_error, 0, base->device, "create a DCI");
        }
        nic_initiators_add(&initiators->shared, &one->shared);
    }
    return CRPC_OK;
}

void mlx5_initiators_end(struct mlx5_nic *nic)
{
    if (!nic->device.base.initiators) {
        return;
    }
    struct mlx5_initiators *initiators = initiators_of(nic);
    for (uint32_t i = 0; i < initiators->shared.count; i++) {
        struct mlx5_queue_pair *queue_pair = &initiators->all[i].queue;
        assert(!initiators->all[i].shared.user);
        device_queue_pair_forget(&nic->device, &queue_pair->device.base);
        mlx5_queue_pair_dismantle(nic, queue_pair, queue_pair->device.qp);
    }
    nic->device.base.initiators = NULL;
    free(initiators->all);
    free(initiators);
}

/* ---- Mending --------------------------------------------------------------------------------- */

/* Once ibv_modify_qp has returned no entry of what was posted before appears. libmlx5 would take some out, of the queue that it
 * believes the DCI to have (queue_pair.c), so it gets an empty one to look at. */
static int reset(struct mlx5_nic *nic, struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    qp->send_cq = nic->spare_cq;
    int os_error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
    qp->send_cq = nic->send_cq;
    return os_error;
}

static void forget_stale(struct mlx5_nic *nic)
{
    if (!completion_queue_ready(&nic->sends, nic->sends.layout)) {
        initiators_of(nic)->stale = 0;
    }
}

/* Completions of what was discarded stay in the send CQ until those before them are polled. With them, it must have places for
 * all that initiators may post. */
static bool has_places(const struct mlx5_nic *nic)
{
    const struct mlx5_initiators *initiators = initiators_of(nic);
    return (uint64_t)initiators->shared.count * nic_send_places(initiators->shared.depth) +
               initiators->stale <=
           nic->device.base.send_completion_depth;
}

/* Discards what is posted, and makes it as new: libmlx5 and the device count its WQEs from 0. Returns false if the device
 * refuses, or a poll has to make room first. */
static bool mend(struct mlx5_nic *nic, struct mlx5_initiator *initiator)
{
    struct mlx5_queue_pair *queue_pair = &initiator->queue;
    struct nic_queue_pair *base = &queue_pair->device.base;
    if (reset(nic, queue_pair->device.qp) != 0) {
        return false;
    }
    completion_queue_drop(&nic->sends, base->number);
    completion_queue_skip_dropped(&nic->sends);
    initiators_of(nic)->stale += nic_send_places(base->posted - base->completed);
    forget_stale(nic);
    nic->device.send_outstanding -= base->posted - base->completed;
    base->completed = base->posted;
    memset(queue_pair->tracking.entries, 0,
           (queue_pair->tracking.mask + 1) * sizeof(*queue_pair->tracking.entries));
    queue_pair->tracking.consumer = queue_pair->tracking.producer = 0;
    queue_pair->queue.producer = queue_pair->queue.rung = 0;
    queue_pair->queue.consumer = queue_pair->queue.last = 0;
    *queue_pair->queue.record = 0;
    device_renew_sequence_number(&queue_pair->device);
    base->failed = !has_places(nic) || to_ready(base) != 0;
    return !base->failed;
}

/* Those that were not mended are tried again when somebody needs one, and when something has completed. */
static void mend_those_left(struct mlx5_nic *nic)
{
    struct mlx5_initiators *initiators = initiators_of(nic);
    for (uint32_t i = 0; i < initiators->shared.count && initiators->left > 0; i++) {
        struct nic_initiator *one = &initiators->all[i].shared;
        if (unlikely(one->failed && !one->user && mend(nic, &initiators->all[i]))) {
            initiators->left--;
            one->failed = false;
            nic_initiators_rest(&initiators->shared, one);
        }
    }
}

void mlx5_dynamic_polled(struct mlx5_nic *nic)
{
    forget_stale(nic);
    mend_those_left(nic);
}

bool mlx5_dynamic_take_room(struct nic_queue_pair *base)
{
    struct nic_initiators *initiators = base->nic->initiators;
    if (base->failed) {
        return false;
    }
    if (unlikely(list_empty(&initiators->idle))) {
        mend_those_left(to_mlx5_nic(base->nic));
    }
    return nic_initiators_take(initiators, &to_mlx5_dynamic(base)->dynamic);
}

bool mlx5_dynamic_done(struct mlx5_queue_pair *queue_pair, struct nic_completion *completion)
{
    const struct nic_queue_pair *sent = &queue_pair->device.base;
    struct nic_initiator *initiator =
        &container_of(queue_pair, struct mlx5_initiator, queue)->shared;
    if (unlikely(!initiator->user)) {
        return false;
    }
    struct nic_queue_pair *user = initiator->user->pair;
    /* All that is under way is its user's. */
    user->completed = user->posted - (sent->posted - sent->completed);
    completion->queue_pair_number = user->number;
    completion->completed = user->completed;
    if (likely(completion->kind == NIC_COMPLETION_SEND)) {
        nic_initiators_complete(sent->nic->initiators, initiator);
    } else {
        user->failed = true;
        nic_initiators_fail(sent->nic->initiators, initiator);
    }
    return true;
}

/* ---- Queue pairs ----------------------------------------------------------------------------- */

static struct ibv_qp *create_dct(struct mlx5_nic *nic, struct nic_domain *domain,
                                 uint64_t access_key)
{
    struct ibv_qp_init_attr_ex attributes = {.send_cq = nic->spare_cq,
                                             .recv_cq = nic->receive_cq,
                                             .srq = nic->srq,
                                             .comp_mask = IBV_QP_INIT_ATTR_PD,
                                             .pd = device_pd(&nic->device, domain)};
    return device_dct_create(&nic->device, &attributes, access_key);
}

/* A DCT whose number is another's is kept until there is one whose number is not. */
static int make_dct(struct mlx5_nic *nic, struct nic_domain *domain, void *owner,
                    uint64_t access_key, struct mlx5_dynamic *dynamic)
{
    struct ibv_qp *kept[NUMBERS_TRIED_MAX];
    uint32_t count = 0;
    int os_error;
    do {
        struct ibv_qp *qp = create_dct(nic, domain, access_key);
        os_error = qp ? device_dct_init(&nic->device, &dynamic->device, owner, qp) : errno;
        if (qp && os_error) {
            kept[count++] = qp;
        }
    } while (os_error == EEXIST && count < NUMBERS_TRIED_MAX);
    while (count > 0) {
        mlx5_qp_destroy(nic, kept[--count]);
    }
    return os_error == EEXIST ? EAGAIN : os_error;
}

int32_t mlx5_dynamic_create(struct nic *base, struct nic_domain *domain, void *owner,
                            uint64_t access_key, struct nic_queue_pair **result, crpc_error *error)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    struct mlx5_dynamic *dynamic = lines_alloc(1, sizeof(*dynamic));
    assert(base->initiators);
    if (!dynamic) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    int os_error = make_dct(nic, domain, owner, access_key, dynamic);
    if (os_error) {
        free(dynamic);
        return device_blame(error, os_error, 0, base->device, "create a DCT");
    }
    dynamic->device.base.operations = &mlx5_dynamic_operations;
    nic_dynamic_init(&dynamic->dynamic, &dynamic->device.base);
    *result = &dynamic->device.base;
    return CRPC_OK;
}

int32_t mlx5_dynamic_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                             const struct nic_transport *transport, crpc_error *error)
{
    struct mlx5_dynamic *dynamic = to_mlx5_dynamic(base);
    const struct nic_target_options options = {
        .kind = NIC_QUEUE_DCI, .address = *peer, .access_key = transport->access_key};
    assert(nic_address_valid(peer) && peer->link == base->nic->link && !dynamic->target);
    if (base->failed) {
        return error_set(error, CRPC_E_DISCONNECTED, 0,
                         "%s: the queue pair failed before it was connected", base->nic->device);
    }
    base->peer_number = peer->queue_pair_number;
    return mlx5_target_create(base->nic, NULL, &options, &dynamic->target, error);
}

void mlx5_dynamic_fail(struct nic_queue_pair *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    struct mlx5_dynamic *dynamic = to_mlx5_dynamic(base);
    base->failed = true;
    if (!dynamic->device.qp) {
        return;
    }
    mlx5_qp_destroy(nic, dynamic->device.qp);
    dynamic->device.qp = NULL;
    struct nic_initiator *left = nic_initiators_leave(base->nic->initiators, &dynamic->dynamic);
    if (left) {
        initiators_of(nic)->left++;
        mend_those_left(nic);
    }
}

void mlx5_dynamic_destroy(struct nic_queue_pair *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    struct mlx5_dynamic *dynamic = to_mlx5_dynamic(base);
    const uint32_t number = base->number;
    mlx5_dynamic_fail(base);
    base->completed = base->posted; /* what was not sent has been discarded, and counts no more */
    device_queue_pair_forget(&nic->device, base);
    if (dynamic->target) {
        device_target_destroy(dynamic->target);
    }
    free(dynamic);
    completion_queue_drop(&nic->receives, number);
}

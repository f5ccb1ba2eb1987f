/* queue_pair.c: making, failing and destroying queue pairs.
 *
 * Destroying has a trap: libmlx5 takes the entries of a queue pair that goes out of its completion
 * queues, and begins where *it* believes the consumer to be, which is where the queue began, since
 * it never polled. It would move entries about and tell the device a wrong consumer index. So the
 * queue pair is given an empty completion queue to clean (`spare_cq`; struct ibv_qp has them as
 * plain members), and completion_queue_drop does it for ours.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"
#include "base/sparse.h"
#include "nic/device/left_out.h"
#include "nic/mlx5/devx.h"

struct ibv_qp *mlx5_qp_create(struct mlx5_nic *nic, struct nic_domain *domain, uint32_t send_wqes,
                              uint32_t inline_bytes, struct ibv_qp_init_attr *granted)
{
    *granted = (struct ibv_qp_init_attr){
        .send_cq = nic->send_cq ? nic->send_cq : nic->spare_cq, /* to look at, as in open.c */
        .recv_cq = nic->receive_cq ? nic->receive_cq : nic->spare_cq,
        .srq = nic->srq,
        .cap = {.max_send_wr = send_wqes,
                .max_send_sge = nic->device.base.pieces_max,
                .max_inline_data = inline_bytes},
        .qp_type = IBV_QPT_RC,
    };
    return ibv_create_qp(device_pd(&nic->device, domain), granted);
}

void mlx5_qp_destroy(struct mlx5_nic *nic, struct ibv_qp *qp)
{
    qp->send_cq = nic->spare_cq;
    qp->recv_cq = nic->spare_cq;
    ibv_destroy_qp(qp);
}

/* ---- Doorbells: queue pairs may share a register, and then its state -------------------------- */

uint32_t mlx5_push_bytes(const struct mlx5_nic *nic, const struct mlx5dv_qp *found)
{
    return nic->device.left_out & LEFT_OUT_BLUEFLAME ? 0 : found->bf.size;
}

struct doorbell *mlx5_doorbell_take(struct mlx5_nic *nic, const struct mlx5dv_qp *found)
{
    struct mlx5_doorbell *one;
    for (one = nic->doorbells; one; one = one->next) {
        if (one->doorbell.address == found->bf.reg) {
            one->doorbell.users++;
            return &one->doorbell;
        }
    }
    one = lines_alloc(1, sizeof(*one));
    if (!one) {
        return NULL;
    }
    one->doorbell = (struct doorbell){.address = found->bf.reg,
                                      .push_bytes = mlx5_push_bytes(nic, found),
                                      .copy = copy_function_of(copy_choose()),
                                      .users = 1};
    one->next = nic->doorbells;
    nic->doorbells = one;
    return &one->doorbell;
}

void mlx5_doorbell_give(struct mlx5_nic *nic, struct doorbell *doorbell)
{
    if (!doorbell || --doorbell->users > 0) {
        return;
    }
    struct mlx5_doorbell **link = &nic->doorbells;
    while (&(*link)->doorbell != doorbell) {
        link = &(*link)->next;
    }
    struct mlx5_doorbell *one = *link;
    *link = one->next;
    free(one);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Blocks of the largest WQE that is posted. */
static uint32_t blocks_of_one(const struct nic *nic)
{
    const uint32_t head =
        (uint32_t)(sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg));
    return wqe_blocks(
        (uint32_t)maximum(head + mlx5_payload_bytes(nic), nic->windows ? WQE_BIND_BYTES : 0));
}

/* One WQE more than wanted: a NOP at the ring's end may take the room of one. */
static uint32_t blocks_for(uint32_t of_one, uint32_t depth)
{
    return of_one * (depth + 1);
}

static uint32_t ring_blocks(const struct nic *nic, uint32_t depth)
{
    return power_of_two_at_least(blocks_for(blocks_of_one(nic), depth));
}

/* libmlx5 makes the bytes of what it is asked for a power of two. But in each WQE of a reliable connection it counts
 * what binds a window by way of a memory key, which makes a WQE with as much payload nearly twice as long as any
 * that is posted here. So fewer are asked for: those that have room where ours have. */
static uint32_t library_wqes(const struct mlx5_nic *nic, uint32_t depth)
{
    return ring_blocks(&nic->device.base, depth) * WQE_BLOCK_BYTES / nic->library_wqe_bytes;
}

static int make_tracking(struct mlx5_queue_pair *queue_pair)
{
    const uint32_t blocks = queue_pair->queue.mask + 1;
    queue_pair->tracking = (struct tracking){
        .entries = sparse_alloc(blocks, sizeof(*queue_pair->tracking.entries)), .mask = blocks - 1};
    return queue_pair->tracking.entries ? 0 : ENOMEM;
}

/* From libmlx5. */
int mlx5_find_send_queue(struct ibv_qp *qp, uint32_t blocks_of_one, uint32_t depth,
                         struct mlx5_queue_pair *queue_pair)
{
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = qp, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error) {
        return os_error;
    }
    uint32_t blocks = found.sq.wqe_cnt;
    if (found.sq.stride != WQE_BLOCK_BYTES || blocks == 0 || (blocks & (blocks - 1)) != 0 ||
        blocks > TRACKING_ENTRIES_MAX || blocks < blocks_for(blocks_of_one, depth)) {
        return EOPNOTSUPP;
    }
    queue_pair->queue = (struct send_queue){.buffer = found.sq.buf,
                                            .mask = blocks - 1,
                                            .number = qp->qp_num,
                                            .record = &found.dbrec[MLX5_SND_DBR]};
    queue_pair->push_register = found.bf.reg;
    queue_pair->push_bytes = found.bf.size;
    return make_tracking(queue_pair);
}

int mlx5_find_doorbell(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair)
{
    const struct mlx5dv_qp found = {
        .bf = {.reg = queue_pair->push_register, .size = queue_pair->push_bytes}};
    const uint32_t longest = wqe_blocks(WQE_PUSH_HEAD_BYTES + NIC_PLACE_BYTES);
    struct send_queue *queue = &queue_pair->queue;
    queue->doorbell = mlx5_doorbell_take(nic, &found);
    if (!queue->doorbell) {
        return ENOMEM;
    }
    if (queue->doorbell->push_bytes >= longest * WQE_BLOCK_BYTES &&
        nic->device.base.inline_bytes_max >= NIC_PLACE_BYTES) {
        queue_pair->last_place = queue->buffer +
                                 (size_t)(queue->mask + 1 - longest) * WQE_BLOCK_BYTES +
                                 WQE_PUSH_HEAD_BYTES;
    }
    return 0;
}

void mlx5_queue_pair_dismantle(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                               struct ibv_qp *qp)
{
    if (qp) {
        mlx5_qp_destroy(nic, qp);
    }
    mlx5_devx_queue_pair_unmake(nic, queue_pair);
    mlx5_doorbell_give(nic, queue_pair->queue.doorbell);
    sparse_free(queue_pair->tracking.entries, queue_pair->tracking.mask + 1,
                sizeof(*queue_pair->tracking.entries));
}

int32_t mlx5_queue_pair_begin(struct nic *base, void *owner, uint32_t depth, uint32_t receives,
                              struct nic_queue_pair **result, crpc_error *error)
{
    (void)receives; /* the SRQ has them */
    struct mlx5_queue_pair *queue_pair = lines_alloc(1, sizeof(*queue_pair));
    if (!queue_pair) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    device_queue_pair_begin(to_device_nic(base), &queue_pair->device, owner, depth);
    *result = &queue_pair->device.base;
    return CRPC_OK;
}

static int make_by_devx(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                        struct nic_domain *domain)
{
    const uint32_t blocks = ring_blocks(&nic->device.base, queue_pair->device.base.depth);
    int os_error = mlx5_devx_queue_pair_make(nic, queue_pair, domain, blocks);
    return os_error ? os_error : make_tracking(queue_pair);
}

static int make_by_verbs(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                         struct nic_domain *domain)
{
    const struct nic_queue_pair *base = &queue_pair->device.base;
    struct ibv_qp_init_attr granted;
    struct ibv_qp *qp = mlx5_qp_create(nic, domain, library_wqes(nic, base->depth),
                                       base->nic->inline_bytes_max, &granted);
    int os_error = qp ? 0 : errno;
    if (qp) {
        device_queue_pair_made(&queue_pair->device, qp);
        os_error = mlx5_find_send_queue(qp, blocks_of_one(base->nic), base->depth, queue_pair);
    }
    return os_error;
}

/* libmlx5 makes queue pairs in several threads at once. It has one doorbell register for several, of which each has a
 * part: who knows which of ours do is `adopt`. */
int32_t mlx5_queue_pair_make(struct nic_queue_pair *base, struct nic_domain *domain,
                             crpc_error *error)
{
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    int os_error =
        nic->devx ? make_by_devx(nic, queue_pair, domain) : make_by_verbs(nic, queue_pair, domain);
    return os_error ? device_blame(error, os_error, 0, base->nic->device, "create a queue pair")
                    : CRPC_OK;
}

static void drop_completions(struct mlx5_nic *nic, uint32_t number)
{
    completion_queue_drop(&nic->receives, number);
    completion_queue_drop(&nic->sends, number);
}

/* It is unmade, and the device uses its number again, over which nothing has come yet. */
static void bury(struct mlx5_nic *nic, struct nic_queue_pair *base)
{
    device_queue_pair_forget(&nic->device, base);
    drop_completions(nic, base->number);
}

int32_t mlx5_queue_pair_adopt(struct nic_queue_pair *base, crpc_error *error)
{
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    struct nic_queue_pair *before = table_get(&nic->device.by_number, base->number);
    if (before) {
        bury(nic, before);
    }
    if (mlx5_find_doorbell(nic, queue_pair) ||
        !device_queue_pair_adopt(&nic->device, &queue_pair->device)) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    return CRPC_OK;
}

void mlx5_queue_pair_fail(struct nic_queue_pair *base)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    base->failed = true;
    base->place = NULL;
    device_modify(base, &attributes, IBV_QP_STATE);
    /* What was posted but not rung is promised a flush like everything else. */
    mlx5_ring_doorbell(base);
}

/* Polls can take what is there: libmlx5 takes nothing. */
void mlx5_queue_pair_drop(struct nic_queue_pair *base)
{
    (void)base;
}

void mlx5_queue_pair_unmake(struct nic_queue_pair *base)
{
    struct device_queue_pair *queue_pair = to_device_queue_pair(base);
    if (queue_pair->qp) {
        mlx5_qp_destroy(to_mlx5_nic(base->nic), queue_pair->qp);
        queue_pair->qp = NULL;
    }
    mlx5_devx_queue_pair_unmake(to_mlx5_nic(base->nic), to_mlx5_queue_pair(base));
}

/* Once it is unmade no entry of the queue pair appears any more, so what is there
 * then is all there will ever be. */
void mlx5_queue_pair_destroy(struct nic_queue_pair *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base->nic);
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    const uint32_t number = base->number;
    const bool adopted = queue_pair->device.adopted;
    if (adopted && device_is_made(&queue_pair->device)) {
        mlx5_queue_pair_fail(base);
        device_queue_pair_settle(base);
    }
    if (adopted) {
        device_note_last_wqe(&queue_pair->device);
        device_queue_pair_forget(&nic->device, base);
    }
    mlx5_queue_pair_dismantle(nic, queue_pair, queue_pair->device.qp);
    free(queue_pair);
    if (adopted) {
        drop_completions(nic, number);
        /* Nobody polls for sends while none are outstanding. */
        completion_queue_skip_dropped(&nic->sends);
    }
}

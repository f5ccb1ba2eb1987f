/* window.c: memory windows: UMR WQEs that bind and invalidate them (PRM, "UMR WQE"), as libmlx5
 * builds them for ibv_bind_mw, IBV_WR_BIND_MW and IBV_WR_LOCAL_INV. Such a WQE has a control
 * segment of 48 bytes and the memory key's new context of 64 bytes. To bind, it also has a KLM with
 * the region of the window. UMRs of indirect keys go to indirect.c. */
#include "simnic/nic/internal.h"

#include <string.h>

#define CONTROL_BYTES 16u

/* The window or indirect key that a WQE names. */
static struct memory_key *target_of(struct nic *nic, const struct queue_pair *qp, uint32_t key)
{
    uint32_t index = key >> 8; /* the program may not know the current variant */
    if (index >= NIC_MAX_KEYS) {
        return NULL;
    }
    struct memory_key *target = &nic->keys[index];
    bool changes = target->kind == KEY_WINDOW || target->kind == KEY_INDIRECT;
    return changes && target->domain == qp->domain ? target : NULL;
}

static uint8_t bind(struct nic *nic, struct queue_pair *qp, struct memory_key *window,
                    const struct mlx5_wqe_mkey_context_seg *context,
                    const struct mlx5_wqe_umr_klm_seg *klm)
{
    const struct memory_key *region = key_find(nic, be32toh(klm->mkey));
    uint64_t bytes = be64toh(context->len), address = be64toh(klm->address);
    uint32_t access = key_access_of(context->access_flags) & ~ACCESS_LOCAL_WRITE;
    if (!region || region->kind != KEY_REGION || region->domain != qp->domain ||
        !(region->access & ACCESS_WINDOW_BIND)) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    if (access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) &&
        !(region->access & ACCESS_LOCAL_WRITE)) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    uint64_t offset = address - region->address;
    if (address < region->address || offset > region->bytes || bytes > region->bytes - offset ||
        be32toh(klm->byte_count) < bytes) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    uint32_t qpn = be32toh(context->qpn_mkey) >> 8;
    window->region = region->key;
    window->start = region->start + offset;
    window->address = be64toh(context->start_addr);
    window->bytes = bytes;
    window->access = access;
    window->queue_pair = qpn == 0xffffff ? 0 : qpn;
    window->bound = true;
    return 0;
}

uint8_t window_execute(struct nic *nic, struct queue_pair *qp, const struct send_request *request)
{
    struct mlx5_wqe_umr_ctrl_seg control;
    struct mlx5_wqe_mkey_context_seg context;
    struct mlx5_wqe_umr_klm_seg klm;
    const uint8_t *at = request->wqe + CONTROL_BYTES;
    memcpy(&control, at, sizeof(control));
    memcpy(&context, at + sizeof(control), sizeof(context));
    memcpy(&klm, at + sizeof(control) + sizeof(context), sizeof(klm));
    struct memory_key *window = target_of(nic, qp, be32toh(request->immediate));
    if (window && window->kind == KEY_INDIRECT) {
        late_end_right(nic, window);
        return indirect_execute(qp, request, window);
    }
    if (!window || !(control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE)) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    uint8_t variant = (uint8_t)be32toh(context.qpn_mkey);
    late_end_right(nic, window);
    if (context.free & MLX5_WQE_MKEY_CONTEXT_FREE) {
        bool foreign = window->queue_pair && window->queue_pair != qp->number;
        if (!window->bound || (control.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN && foreign)) {
            return MLX5_CQE_SYNDROME_MW_BIND_ERR;
        }
        window->bound = false;
    } else {
        if (control.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE && window->bound) {
            return MLX5_CQE_SYNDROME_MW_BIND_ERR;
        }
        uint8_t syndrome = bind(nic, qp, window, &context, &klm);
        if (syndrome) {
            return syndrome;
        }
    }
    window->key = (window->key & ~0xffu) | variant;
    return 0;
}

bool window_invalidate(struct nic *nic, struct queue_pair *qp, uint32_t key)
{
    struct memory_key *window = key_find(nic, key);
    if (!window || !window->bound || window->domain != qp->domain) {
        return false;
    }
    /* Only a bound window of type 2 can be invalidated by a peer (IBTA 10.6.7.2.1), and an indirect key
     * that was made so. */
    if (window->kind == KEY_INDIRECT
            ? !window->remote_invalidation
            : window->kind != KEY_WINDOW || window->queue_pair != qp->number) {
        return false;
    }
    late_end_right(nic, window);
    window->bound = nic_has_quirk(nic, QUIRK_INVALIDATE);
    return true;
}

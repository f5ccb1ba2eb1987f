/* devx_queue_pair.c: queue pairs by CREATE_QP (PRM; UCX, uct_ib_mlx5_devx_create_qp_common; Linux, create_user_qp of mlx5_ib). */
#include <errno.h>
#include <stdlib.h>

#include "nic/mlx5/devx.h"

#define CREATE_QP 0x500u

struct creation {
    uint32_t head[6];
    uint32_t context[DEVX_CONTEXT_WORDS];
    uint32_t memory_offset[2];
    uint32_t memory;
    uint32_t memory_valid; /* the kernel's */
};

/* Fields of the context, by their first bit. Zeros say: a reliable connection; a doorbell record; nothing of a message in its
 * completion, of either side, which has no payload with a receive. */
#define CONTEXT_DOMAIN 0x028u        /* 24 */
#define CONTEXT_LOG_BLOCKS 0x051u    /* 4: log_sq_size */
#define CONTEXT_TIMESTAMPS 0x058u    /* 2: 1 = as the device has them by default */
#define CONTEXT_PAGE 0x068u          /* 24: uar_page */
#define CONTEXT_USER_INDEX 0x088u    /* 24 */
#define CONTEXT_SENDS 0x3e8u         /* 24: cqn_snd */
#define CONTEXT_RECEIVES 0x4e8u      /* 24: cqn_rcv */
#define CONTEXT_RECORD 0x500u        /* 64: dbr_addr */
#define CONTEXT_RECEIVE_KIND 0x565u  /* 3: 1 = an SRQ */
#define CONTEXT_SHARED 0x568u        /* 24: its number */
#define CONTEXT_RECORD_MEMORY 0x720u /* 32: dbr_umem_id */

static int find_numbers(const struct mlx5_nic *nic, struct ibv_pd *pd, uint32_t *domain,
                        uint32_t *shared)
{
    struct mlx5dv_pd found_pd = {0};
    struct mlx5dv_srq found_srq = {.comp_mask = MLX5DV_SRQ_MASK_SRQN};
    struct mlx5dv_obj object = {.pd = {.in = pd, .out = &found_pd},
                                .srq = {.in = nic->srq, .out = &found_srq}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_PD | MLX5DV_OBJ_SRQ);
    *domain = found_pd.pdn;
    *shared = found_srq.srqn;
    return os_error == 0 && !(found_srq.comp_mask & MLX5DV_SRQ_MASK_SRQN) ? EOPNOTSUPP : os_error;
}

static int create(struct mlx5_nic *nic, struct devx_queue_pair *made, struct nic_domain *domain,
                  uint32_t blocks, uint32_t *number)
{
    struct creation in = {0};
    uint32_t out[4] = {0}, domain_number, shared;
    int os_error = find_numbers(nic, device_pd(&nic->device, domain), &domain_number, &shared);
    if (os_error == 0) {
        os_error =
            devx_memory_make(nic->device.context, (size_t)blocks * WQE_BLOCK_BYTES, &made->memory);
    }
    if (os_error) {
        return os_error;
    }
    const uint32_t memory = made->memory.registered->umem_id;
    devx_set(in.head, 0x00, 16, CREATE_QP);
    devx_set(in.context, DEVX_CONTEXT_MIGRATION, 2, DEVX_MIGRATED);
    devx_set(in.context, CONTEXT_DOMAIN, 24, domain_number);
    devx_set(in.context, CONTEXT_LOG_BLOCKS, 4, (uint32_t)__builtin_ctz(blocks));
    devx_set(in.context, CONTEXT_TIMESTAMPS, 2, 1);
    devx_set(in.context, CONTEXT_PAGE, 24, nic->devx->page->page_id);
    devx_set(in.context, CONTEXT_USER_INDEX, 24, 0xffffff); /* none: CQEs are told by QPN */
    devx_set(in.context, CONTEXT_SENDS, 24, nic->sends.number);
    devx_set(in.context, CONTEXT_RECEIVES, 24, nic->receives.number);
    devx_set_record(in.context, CONTEXT_RECORD, &made->memory);
    devx_set(in.context, CONTEXT_RECEIVE_KIND, 3, 1);
    devx_set(in.context, CONTEXT_SHARED, 24, shared);
    devx_set(in.context, CONTEXT_RECORD_MEMORY, 32, memory);
    in.memory = htobe32(memory);
    made->object = mlx5dv_devx_obj_create(nic->device.context, &in, sizeof(in), out, sizeof(out));
    *number = devx_get(out, 0x48, 24);
    return made->object ? 0 : devx_error(0);
}

/* As many blocks as a position of 16 bits tells apart from those of a lap before, as libmlx5 has it; a command has 4 bits for it. */
#define BLOCKS_MAX (1u << 15)

static void destroy(struct devx_queue_pair *made)
{
    if (made->object) {
        mlx5dv_devx_obj_destroy(made->object);
    }
    devx_memory_free(&made->memory);
    free(made);
}

int mlx5_devx_queue_pair_make(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                              struct nic_domain *domain, uint32_t blocks)
{
    struct devx_queue_pair *made = blocks <= BLOCKS_MAX ? calloc(1, sizeof(*made)) : NULL;
    uint32_t number = 0;
    if (!made) {
        return ENOMEM;
    }
    made->of = queue_pair;
    int os_error = create(nic, made, domain, blocks, &number);
    if (os_error == 0) {
        device_queue_pair_made_past_verbs(&queue_pair->device, number);
        os_error = devx_events_of_queue_pair(nic, made);
    }
    if (os_error) { /* it is as if it had never been made */
        if (queue_pair->device.past_verbs) {
            devx_events_forget(nic, number);
        }
        queue_pair->device.past_verbs = false;
        destroy(made);
        return os_error;
    }
    uint32_t *record = (uint32_t *)(void *)(made->memory.bytes + made->memory.record_at);
    queue_pair->queue = (struct send_queue){.buffer = made->memory.bytes,
                                            .mask = blocks - 1,
                                            .number = number,
                                            .record = &record[MLX5_SND_DBR]};
    queue_pair->push_register = nic->devx->page->reg_addr;
    queue_pair->push_bytes = nic->devx->push_bytes;
    return 0;
}

struct devx_queue_pair *devx_of(const struct device_queue_pair *queue_pair)
{
    struct mlx5_devx *devx = to_mlx5_nic(queue_pair->base.nic)->devx;
    assert(queue_pair->past_verbs);
    pthread_mutex_lock(&devx->mutex);
    struct devx_queue_pair *made = table_get(&devx->queue_pairs, queue_pair->base.number);
    pthread_mutex_unlock(&devx->mutex);
    return made;
}

/* First nobody tells of it any more, since another may have its number as soon as it is gone. */
void mlx5_devx_queue_pair_unmake(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair)
{
    if (!queue_pair->device.past_verbs) {
        return;
    }
    struct devx_queue_pair *made = devx_of(&queue_pair->device);
    devx_events_forget(nic, queue_pair->device.base.number);
    destroy(made);
    queue_pair->device.past_verbs = false;
}

/* devx_world.h: completion queues and queue pairs by device commands (DevX), as UCX makes them through libmlx5: two ends of one program,
 * with an SRQ of the verbs. */
#ifndef SIMNIC_TESTS_DEVX_WORLD_H
#define SIMNIC_TESTS_DEVX_WORLD_H

#include "simnic/tests/verbs_world.h"

#define CREATE_CQ 0x400u
#define CREATE_QP 0x500u
#define RST2INIT_QP 0x502u
#define INIT2RTR_QP 0x503u
#define RTR2RTS_QP 0x504u
#define ERR_QP 0x507u
#define RST_QP 0x50au
#define QUERY_QP 0x50bu
#define BAD_PARAMETER 0x3u
#define BAD_RESOURCE 0x5u
#define BAD_STATE 0x10u
#define BAD_LENGTH 0x50u
#define BAD_SIZE 0x40u

#define EVENT_COMPLETION 0x00
#define EVENT_LAST_WQE 0x13

#define CQ_LOG_ENTRIES 8u
#define CQ_ENTRIES (1u << CQ_LOG_ENTRIES)
#define QP_LOG_BLOCKS 8u
#define QP_BLOCKS (1u << QP_LOG_BLOCKS)
#define BUFFER_BYTES (1u << 16)
#define RECORD_AT (BUFFER_BYTES - 64)
#define COOKIE 0x123456789abcdefull

static inline void set(uint32_t *words, uint32_t at, uint32_t bits, uint32_t value)
{
    const uint32_t shift = 32 - at % 32 - bits;
    words[at / 32] |= htobe32(value << shift);
}

static inline uint32_t status_of(const uint32_t *answer)
{
    return be32toh(answer[0]) >> 24;
}

/* ---- memory ---- */

struct memory {
    uint8_t *bytes;
    struct mlx5dv_devx_umem *umem;
};

static inline struct memory memory_make(struct world *w)
{
    struct memory m = {.bytes = aligned_alloc(4096, BUFFER_BYTES)};
    assert_non_null(m.bytes);
    memset(m.bytes, 0, BUFFER_BYTES);
    m.umem = mlx5dv_devx_umem_reg(w->context, m.bytes, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(m.umem);
    return m;
}

static inline void memory_free(const struct memory *m)
{
    assert_int_equal(mlx5dv_devx_umem_dereg(m->umem), 0);
    free(m->bytes);
}

/* ---- completion queues ---- */

struct queue {
    struct memory memory;
    struct mlx5dv_devx_obj *object;
    uint32_t number, consumer, arrays, titles;
    bool enhanced;
    struct mlx5_cqe64 title; /* and what it stands for at the moment */
    uint32_t left, taken;
    uint8_t minis[64];
    uint16_t counter;
};

struct cq_command {
    uint32_t words[0x110 / 4];
};

static inline struct cq_command cq_command(struct world *w, const struct memory *m,
                                           const struct mlx5dv_devx_uar *uar, bool enhanced)
{
    struct cq_command c = {0};
    uint32_t *context = c.words + 4, event_queue;
    assert_int_equal(mlx5dv_devx_query_eqn(w->context, 0, &event_queue), 0);
    set(c.words, 0x00, 16, CREATE_CQ);
    set(context, 0x11, 1, enhanced); /* cqe_comp_en */
    set(context, 0x19, 7, enhanced); /* cqe_comp_layout */
    set(context, 0x20, 32, m->umem->umem_id);
    set(context, 0x63, 5, CQ_LOG_ENTRIES);
    set(context, 0x68, 24, uar->page_id);
    set(context, 0xa0, 32, event_queue);
    set(context, 0x1e0, 32, RECORD_AT);
    set(c.words, 0x2c0, 32, m->umem->umem_id);
    return c;
}

/* Returns the status with which the command is refused, and an errno that says so. */
static inline uint32_t refused(struct world *w, const void *command, size_t bytes)
{
    uint32_t answer[4] = {0};
    assert_null(mlx5dv_devx_obj_create(w->context, command, bytes, answer, sizeof(answer)));
    assert_int_equal(errno, EREMOTEIO);
    return status_of(answer);
}

static inline void queue_make(struct world *w, struct queue *q, const struct mlx5dv_devx_uar *uar,
                              bool enhanced)
{
    uint32_t answer[4];
    *q = (struct queue){.memory = memory_make(w), .enhanced = enhanced};
    struct cq_command c = cq_command(w, &q->memory, uar, enhanced);
    q->object = mlx5dv_devx_obj_create(w->context, &c, sizeof(c), answer, sizeof(answer));
    assert_non_null(q->object);
    q->number = be32toh(answer[2]) & 0xffffff;
    for (uint32_t i = 0; i < CQ_ENTRIES; i++) {
        q->memory.bytes[64 * i + 62] = 0xff;
        q->memory.bytes[64 * i + 63] = MLX5_CQE_INVALID << 4 | 1;
    }
}

static inline void queue_free(const struct queue *q)
{
    assert_int_equal(mlx5dv_devx_obj_destroy(q->object), 0);
    memory_free(&q->memory);
}

/* The next completion of a queue; waits for it. */
static inline struct mlx5_cqe64 next(struct queue *q)
{
    const time_t start = time(NULL);
    for (;;) {
        if (q->left) {
            uint32_t count;
            memcpy(&count, q->minis + 8 * q->taken + 4, 4);
            q->title.byte_cnt = count;
            if (q->title.op_own >> 4 == MLX5_CQE_REQ) {
                memcpy(&q->title.wqe_counter, q->minis + 8 * q->taken, 2);
            } else {
                q->title.wqe_counter = htobe16(++q->counter);
            }
            q->taken++;
            q->left--;
            q->consumer++;
            return q->title;
        }
        const uint8_t *entry = q->memory.bytes + 64 * (size_t)(q->consumer % CQ_ENTRIES);
        const uint32_t lap = q->consumer >> CQ_LOG_ENTRIES;
        const bool ours = q->enhanced ? *(const volatile uint8_t *)(entry + 62) == (uint8_t)lap
                                      : (*(const volatile uint8_t *)(entry + 63) & 1) == (lap & 1);
        __sync_synchronize(); /* the rest is as new as that byte */
        const uint8_t own = *(const volatile uint8_t *)(entry + 63);
        if (!ours || own >> 4 == MLX5_CQE_INVALID) {
            assert_true(time(NULL) - start < WORLD_PATIENCE_S);
            continue;
        }
        if (q->enhanced && (own & 0x0c) == 0x0c) {
            memcpy(q->minis, entry, sizeof(q->minis));
            q->left = (own >> 4) + 1u;
            q->taken = 0;
            q->arrays++;
        } else {
            memcpy(&q->title, entry, sizeof(q->title));
            q->counter = be16toh(q->title.wqe_counter);
            q->titles++;
        }
        const uint32_t taken = q->left ? q->left : 1;
        __sync_synchronize();
        *(volatile uint32_t *)(void *)(q->memory.bytes + RECORD_AT) =
            htobe32((q->consumer + taken) & 0xffffff);
        if (!q->left) {
            q->consumer++;
            return q->title;
        }
    }
}

static inline void arm(struct queue *q, const struct mlx5dv_devx_uar *uar, uint32_t sequence)
{
    const uint32_t word = (sequence & 3) << 28 | (q->consumer & 0xffffff);
    *(volatile uint32_t *)(void *)(q->memory.bytes + RECORD_AT + 4) = htobe32(word);
    __sync_synchronize();
    *(volatile uint64_t *)(void *)((uint8_t *)uar->base_addr + 0x20) =
        htobe64((uint64_t)word << 32 | q->number);
}

/* ---- queue pairs ---- */

struct pair_end {
    struct memory memory;
    struct mlx5dv_devx_obj *object;
    uint32_t number, posted;
};

struct qp_command {
    uint32_t words[0x110 / 4];
};

struct ends {
    struct world *w;
    struct mlx5dv_devx_uar *uar;
    struct queue sends, receives;
    struct ibv_srq *srq;
    uint32_t srq_number;
    struct pair_end end[2];
    uint64_t target[64];
    struct ibv_mr *region;
};

static inline struct qp_command qp_command(const struct ends *e, const struct memory *m)
{
    struct qp_command c = {0};
    uint32_t *context = c.words + 6;
    struct mlx5dv_pd domain;
    struct mlx5dv_obj object = {.pd = {.in = e->w->domain, .out = &domain}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD), 0);
    set(c.words, 0x00, 16, CREATE_QP);
    set(context, 0x13, 2, 3); /* pm_state: migrated */
    set(context, 0x28, 24, domain.pdn);
    set(context, 0x51, 4, QP_LOG_BLOCKS);
    set(context, 0x58, 2, 1); /* ts_format: default */
    set(context, 0x68, 24, e->uar->page_id);
    set(context, 0x3e8, 24, e->sends.number);
    set(context, 0x4e8, 24, e->receives.number);
    set(context, 0x520, 32, RECORD_AT);
    set(context, 0x565, 3, 1); /* rq_type: SRQ */
    set(context, 0x568, 24, e->srq_number);
    set(context, 0x720, 32, m->umem->umem_id);
    set(c.words, 0x840, 32, m->umem->umem_id);
    return c;
}

static inline void end_make(const struct ends *e, struct pair_end *end)
{
    uint32_t answer[4];
    *end = (struct pair_end){.memory = memory_make(e->w)};
    struct qp_command c = qp_command(e, &end->memory);
    end->object = mlx5dv_devx_obj_create(e->w->context, &c, sizeof(c), answer, sizeof(answer));
    assert_non_null(end->object);
    end->number = be32toh(answer[2]) & 0xffffff;
}

static inline void end_free(const struct pair_end *end)
{
    assert_int_equal(mlx5dv_devx_obj_destroy(end->object), 0);
    memory_free(&end->memory);
}

struct movement {
    uint32_t words[0x110 / 4];
};

static inline struct movement movement(uint16_t opcode, const struct pair_end *end)
{
    struct movement m = {0};
    set(m.words, 0x00, 16, opcode);
    set(m.words, 0x48, 24, end->number);
    set(m.words + 6, 0x13, 2, 3);
    return m;
}

/* Returns 0 or the status with which it is refused. */
static inline uint32_t move(const struct pair_end *end, const struct movement *m)
{
    uint32_t answer[4] = {0};
    const uint32_t opcode = be32toh(m->words[0]) >> 16;
    const size_t bytes = opcode == ERR_QP || opcode == RST_QP ? 16 : sizeof(*m);
    int os_error = mlx5dv_devx_obj_modify(end->object, m, bytes, answer, sizeof(answer));
    assert_int_equal(os_error, status_of(answer) ? EREMOTEIO : 0);
    return status_of(answer);
}

static inline struct movement to_init(const struct pair_end *end)
{
    struct movement m = movement(RST2INIT_QP, end);
    set(m.words + 6, 0xc0 + 0x128, 8, 1); /* port */
    set(m.words + 6, 0x491, 1, 1);        /* rwe */
    return m;
}

static inline struct movement to_rtr(const struct ends *e, const struct pair_end *end,
                                     uint32_t remote)
{
    struct movement m = movement(INIT2RTR_QP, end);
    uint32_t *c = m.words + 6, *path = c + 6;
    struct ibv_ah_attr a = world_address(e->w);
    struct ibv_ah *address = ibv_create_ah(e->w->domain, &a);
    assert_non_null(address);
    struct mlx5dv_ah found;
    struct mlx5dv_obj object = {.ah = {.in = address, .out = &found}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_AH), 0);
    set(c, 0x40, 3, IBV_MTU_1024);
    set(c, 0x43, 5, 30); /* log_msg_max */
    set(c, 0xa8, 24, remote);
    set(c, 0x488, 3, 2); /* log_rra_max */
    set(c, 0x4a3, 5, 1); /* min_rnr_nak */
    set(path, 0x48, 8, WORLD_GID);
    set(path, 0x58, 8, 64);
    memcpy(path + 4, &a.grh.dgid, 16);
    set(path, 0x110, 16, 0xc123);
    set(path, 0x128, 8, 1);
    memcpy((uint8_t *)path + 0x130 / 8, found.av->rmac, 6);
    assert_int_equal(ibv_destroy_ah(address), 0);
    return m;
}

static inline struct movement to_rts(const struct pair_end *end)
{
    struct movement m = movement(RTR2RTS_QP, end);
    uint32_t *c = m.words + 6;
    set(c, 0xc0 + 0x40, 5, 14); /* ack_timeout */
    set(c, 0x388, 3, 2);        /* log_sra_max */
    set(c, 0x38d, 3, 7);
    set(c, 0x390, 3, 7);
    return m;
}

static inline void end_connect(const struct ends *e, const struct pair_end *end, uint32_t remote)
{
    struct movement init = to_init(end), rtr = to_rtr(e, end, remote), rts = to_rts(end);
    assert_int_equal(move(end, &init), 0);
    assert_int_equal(move(end, &rtr), 0);
    assert_int_equal(move(end, &rts), 0);
}

static inline void ends_make(struct ends *e, struct world *w, bool enhanced)
{
    /* Enough for all: libmlx5, which never polls, would not give places back. */
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8000, .max_sge = 1}};
    struct mlx5dv_srq found = {.comp_mask = MLX5DV_SRQ_MASK_SRQN};
    memset(e, 0, sizeof(*e));
    e->w = w;
    e->uar = mlx5dv_devx_alloc_uar(w->context, MLX5DV_UAR_ALLOC_TYPE_BF);
    assert_non_null(e->uar);
    queue_make(w, &e->sends, e->uar, enhanced);
    queue_make(w, &e->receives, e->uar, enhanced);
    e->srq = ibv_create_srq(w->domain, &shared);
    assert_non_null(e->srq);
    struct mlx5dv_obj object = {.srq = {.in = e->srq, .out = &found}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ), 0);
    e->srq_number = found.srqn;
    end_make(e, &e->end[0]);
    end_make(e, &e->end[1]);
    e->region = ibv_reg_mr(w->domain, e->target, sizeof(e->target),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(e->region);
}

static inline void ends_free(struct ends *e)
{
    end_free(&e->end[0]);
    end_free(&e->end[1]);
    assert_int_equal(ibv_dereg_mr(e->region), 0);
    assert_int_equal(ibv_destroy_srq(e->srq), 0);
    queue_free(&e->sends);
    queue_free(&e->receives);
    mlx5dv_devx_free_uar(e->uar);
}

static inline void post_receives(const struct ends *e, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_recv_wr wr = {.wr_id = i}, *bad;
        assert_int_equal(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
    }
}

/* A WRITE of 8 bytes with immediate. */
static inline void post(const struct ends *e, struct pair_end *end, uint32_t immediate,
                        uint64_t value)
{
    const uint32_t counter = end->posted++;
    uint8_t *block = end->memory.bytes + 64 * (size_t)(counter % QP_BLOCKS);
    memset(block, 0, 64);
    struct mlx5_wqe_ctrl_seg control = {
        .opmod_idx_opcode = htobe32((counter & 0xffff) << 8 | MLX5_OPCODE_RDMA_WRITE_IMM),
        .qpn_ds = htobe32(end->number << 8 | 3),
        .fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE,
        .imm = htobe32(immediate)};
    struct mlx5_wqe_raddr_seg remote = {.raddr = htobe64((uintptr_t)&e->target[immediate % 64]),
                                        .rkey = htobe32(e->region->rkey)};
    memcpy(block, &control, sizeof(control));
    memcpy(block + 16, &remote, sizeof(remote));
    *(uint32_t *)(void *)(block + 32) = htobe32(8 | 1u << 31); /* inline */
    memcpy(block + 36, &value, sizeof(value));
}

static inline void ring(const struct ends *e, const struct pair_end *end)
{
    const uint8_t *block = end->memory.bytes + 64 * (size_t)((end->posted - 1) % QP_BLOCKS);
    __sync_synchronize();
    *(volatile uint32_t *)(void *)(end->memory.bytes + RECORD_AT + 4) =
        htobe32(end->posted & 0xffff);
    __sync_synchronize();
    *(volatile uint64_t *)e->uar->reg_addr = *(const uint64_t *)(const void *)block;
    __sync_synchronize();
}

#endif

/* compress.c: CQE compression: consecutive completions that are alike share one CQE, and each takes
 * 8 bytes besides. docs/cqe-compression.md has the format, its sources, and what had to be
 * inferred. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"

#define FORMAT_COMPRESSED (3u << 2)
#define ARRAY_MINI_CQES 8u
#define ENHANCED_MINI_CQES 7u
#define HASH_AT 12u /* in a CQE; verbs' structure does not name these */
#define CHECKSUM_AT 20u
#define QPN_MASK 0xffffffu

struct mini_cqe {
    union {
        uint8_t hash[4];
        struct {
            uint8_t checksum[2];
            uint16_t stride_index;
        };
        struct {
            uint16_t wqe_counter;
            uint8_t opcode, zero;
        };
    };
    uint32_t byte_count;
};

struct compression {
    struct completion_queue *cq;
    struct list holding; /* in the NIC's list, while there are completions that wait */
    uint8_t format;
    bool titled;              /* there is something that a completion may be like: */
    struct mlx5_cqe64 shared; /* that, with zeros for what may differ */
    uint16_t next_counter;    /* wqe_counter that comes next, where mini CQEs have none */
    uint32_t start, count;    /* of the completions that wait; their places are taken already */
    struct mlx5_cqe64 first;  /* the first of them */
    struct mini_cqe held[NIC_MAX_MINI_CQES];
};

bool compression_create(struct completion_queue *cq, uint8_t format)
{
    struct compression *c = calloc(1, sizeof(*c));
    if (!c) {
        return false;
    }
    c->cq = cq;
    c->format = format;
    list_init(&c->holding);
    cq->compression = c;
    return true;
}

void compression_destroy(struct completion_queue *cq)
{
    list_remove(&cq->compression->holding);
    free(cq->compression);
    cq->compression = NULL;
}

/* The signature byte of a CQE: nothing but zero in the basic layout. */
static uint8_t iteration_at(const struct completion_queue *cq, uint32_t index)
{
    return cq->enhanced ? (uint8_t)(index >> __builtin_ctz(cq->entries)) : 0;
}

/* ---- what is alike ---- */

static bool is_compressible(const struct cqe *cqe)
{
    if (cqe->solicited || cqe->inline_bytes || cqe->fields.app) {
        return false;
    }
    switch (cqe->opcode) {
    case MLX5_CQE_REQ:
    case MLX5_CQE_RESP_WR_IMM:
    case MLX5_CQE_RESP_SEND:
    case MLX5_CQE_RESP_SEND_IMM:
    case MLX5_CQE_RESP_SEND_INV:
        return true;
    default:
        return false;
    }
}

/* A CQE with zeros for all that a mini CQE has, and all that does not count. */
static struct mlx5_cqe64 shared_part(const struct nic *nic, const struct compression *c,
                                     const struct cqe *cqe)
{
    struct mlx5_cqe64 shared = cqe->fields;
    shared.byte_cnt = 0;
    shared.timestamp = 0;
    shared.wqe_counter = 0;
    shared.signature = 0;
    shared.op_own = (uint8_t)(cqe->opcode << 4);
    if (nic_has_quirk(nic, c->cq->enhanced ? QUIRK_ENHANCED_RECEIVES : QUIRK_COMPRESSED_RECEIVES)) {
        shared.imm_inval_pkey = 0;
    }
    if (cqe->opcode == MLX5_CQE_REQ) {
        shared.sop_drop_qpn &= htobe32(QPN_MASK);
    } else if (c->format == MLX5DV_CQE_RES_FORMAT_HASH) {
        memset((uint8_t *)&shared + HASH_AT, 0, 4);
    } else {
        memset((uint8_t *)&shared + CHECKSUM_AT, 0, 2);
    }
    if (c->cq->blind && cqe->opcode != MLX5_CQE_REQ) {
        shared.imm_inval_pkey = 0;
    }
    return shared;
}

static bool is_alike(const struct compression *c, const struct cqe *cqe,
                     const struct mlx5_cqe64 *shared)
{
    bool has_counter = cqe->opcode == MLX5_CQE_REQ ||
                       c->format == MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX || c->cq->blind;
    /* All bytes count, as they will all be in the title CQE. */
    const uint8_t *bytes = (const uint8_t *)shared, *title = (const uint8_t *)&c->shared;
    return (has_counter || be16toh(cqe->fields.wqe_counter) == c->next_counter) &&
           memcmp(bytes, title, sizeof(*shared)) == 0;
}

static struct mini_cqe to_mini(const struct compression *c, const struct cqe *cqe)
{
    const uint8_t *bytes = (const uint8_t *)&cqe->fields;
    struct mini_cqe mini = {.byte_count = cqe->fields.byte_cnt};
    if (cqe->opcode == MLX5_CQE_REQ) {
        mini.wqe_counter = cqe->fields.wqe_counter;
        mini.opcode = (uint8_t)(be32toh(cqe->fields.sop_drop_qpn) >> 24);
    } else if (c->format == MLX5DV_CQE_RES_FORMAT_HASH) {
        memcpy(mini.hash, bytes + HASH_AT, sizeof(mini.hash));
    } else {
        memcpy(mini.checksum, bytes + CHECKSUM_AT, sizeof(mini.checksum));
        if (c->format == MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX) {
            mini.stride_index = cqe->fields.wqe_counter;
        }
    }
    return mini;
}

/* ---- writing ---- */

static bool write_single(struct compression *c)
{
    c->first.op_own |= cq_owner(c->cq, c->start);
    c->first.signature = iteration_at(c->cq, c->start);
    return cq_put(c->cq, c->start, &c->first);
}

static bool write_block(struct compression *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += ARRAY_MINI_CQES) {
        struct mini_cqe array[ARRAY_MINI_CQES] = {0};
        uint32_t here = count - i < ARRAY_MINI_CQES ? count - i : ARRAY_MINI_CQES;
        memcpy(array, c->held + i, here * sizeof(array[0]));
        if (!dma_copy(cq_entry(c->cq, c->start + (i ? i : 1)), array, sizeof(array))) {
            return false;
        }
    }
    c->first.byte_cnt = htobe32(count);
    c->first.op_own |= FORMAT_COMPRESSED | cq_owner(c->cq, c->start);
    return cq_put(c->cq, c->start, &c->first);
}

static bool write_array(const struct nic *nic, struct compression *c, uint32_t count)
{
    uint8_t bytes[64] = {0};
    const bool first_lap =
        nic_has_quirk(nic, QUIRK_ENHANCED_SENDS) && c->first.op_own >> 4 == MLX5_CQE_REQ;
    memcpy(bytes, c->held, count * sizeof(c->held[0]));
    bytes[62] = first_lap ? 0 : iteration_at(c->cq, c->start);
    bytes[63] = (uint8_t)((count - 1) << 4 | FORMAT_COMPRESSED | cq_owner(c->cq, c->start));
    return cq_put(c->cq, c->start, bytes);
}

void compression_flush(struct nic *nic, struct completion_queue *cq)
{
    struct compression *c = cq->compression;
    uint32_t count = c->count;
    if (count == 0) {
        return;
    }
    c->count = 0;
    list_remove(&c->holding);
    bool written = count == 1     ? write_single(c)
                   : cq->enhanced ? write_array(nic, c, count)
                                  : write_block(c, count);
    if (!written) {
        cq_overrun(nic, cq); /* as in cq_write */
        return;
    }
    struct queue_pair *qp = qp_find(nic, be32toh(c->first.sop_drop_qpn) & QPN_MASK);
    if (count > 1 && qp) {
        qp->statistics->compressed_blocks++;
        qp->statistics->compressed_arrays += cq->enhanced;
    }
    if (cq->armed && !cq->armed_solicited) {
        cq_fire(nic, cq);
    }
}

void compression_flush_all(struct nic *nic)
{
    while (!list_empty(&nic->holding)) {
        compression_flush(nic, container_of(nic->holding.next, struct compression, holding)->cq);
    }
}

void compression_end(struct nic *nic, struct completion_queue *cq)
{
    compression_flush(nic, cq);
    cq->compression->titled = false;
}

/* ---- holding back ---- */

static void hold(struct nic *nic, struct compression *c, const struct cqe *cqe)
{
    struct completion_queue *cq = c->cq;
    struct mlx5_cqe64 fields = cqe->fields;
    fields.op_own = (uint8_t)(cqe->opcode << 4);
    fields.timestamp = htobe64(nic->now_ns);
    if (c->count == 0) {
        c->start = cq->producer;
        c->first = fields;
        list_append(&nic->holding, &c->holding);
    }
    c->held[c->count++] = to_mini(c, cqe);
    if (!cq->enhanced && nic_has_quirk(nic, QUIRK_COMPRESSED_SENDS) &&
        cqe->opcode == MLX5_CQE_REQ) {
        c->held[c->count - 1].wqe_counter = c->held[0].wqe_counter;
    }
    if (nic->tracing) {
        /* As if it were not compressed: traces are about what completes. */
        fields.op_own |= cq_owner(cq, cq->producer);
        nic->host.trace(nic->host.context, FABRIC_TRACE_CQE, cq->number, &fields, sizeof(fields));
    }
    cq->producer++;
}

/* Ordinary CQEs of the enhanced layout are valid by their iteration count as well. */
static bool leave(const struct completion_queue *cq, struct cqe *cqe)
{
    cqe->fields.signature = iteration_at(cq, cq->producer);
    return cq->overrun; /* in which flushing may have ended: then nothing is written any more */
}

bool compression_take(struct nic *nic, struct completion_queue *cq, struct cqe *cqe)
{
    struct compression *c = cq->compression;
    if (!is_compressible(cqe)) {
        compression_end(nic, cq);
        return leave(cq, cqe);
    }
    struct mlx5_cqe64 shared = shared_part(nic, c, cqe);
    bool new_lap = (cq->producer & (cq->entries - 1)) == 0;
    if (!c->titled || new_lap || !is_alike(c, cqe, &shared)) {
        compression_end(nic, cq);
        c->titled = true;
        c->shared = shared;
        c->next_counter = (uint16_t)(be16toh(cqe->fields.wqe_counter) + 1);
        if (cq->enhanced || cq->overrun) {
            return leave(cq, cqe); /* it is a title */
        }
    } else {
        c->next_counter++;
    }
    hold(nic, c, cqe);
    if (c->count == (cq->enhanced ? ENHANCED_MINI_CQES : NIC_MAX_MINI_CQES)) {
        compression_flush(nic, cq);
    }
    return true;
}

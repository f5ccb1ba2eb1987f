/* indirect.c: indirect memory keys (PRM, "UMR WQE", KLMs and strided layouts), as mlx5dv_create_mkey makes them: a key whose memory is a
 * list of pieces of regions, or pieces that repeat at a distance. The program says which by a UMR WQE with the layout inline, as libmlx5
 * builds it for mlx5dv_wr_mr_list, mlx5dv_wr_mr_interleaved and mlx5dv_wr_mkey_configure. Until then, and once it is invalidated, the key
 * leads nowhere. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#define CONTROL_BYTES 16u
#define OCTOWORD 16u
#define REPEAT_BLOCK 0x400u /* in place of the first piece's key: what follows repeats */

struct piece {
    uint64_t address;
    uint32_t key, bytes;
    uint32_t stride; /* to the same piece in the next round */
};

struct key_layout {
    struct list all;
    uint32_t room; /* pieces that fit */
    uint32_t count;
    uint64_t rounds, round_bytes;
    struct piece pieces[];
};

struct memory_key *key_create_indirect(struct nic *nic, uint32_t domain, uint32_t octowords,
                                       uint8_t variant)
{
    struct key_layout *layout = calloc(1, sizeof(*layout) + octowords * sizeof(struct piece));
    struct memory_key *key = layout ? key_create(nic, KEY_INDIRECT, domain) : NULL;
    if (!key) {
        free(layout);
        return NULL;
    }
    layout->room = octowords;
    key->key = (key->key & ~0xffu) | variant;
    key->layout = layout;
    list_append(&nic->layouts, &layout->all);
    return key;
}

void indirect_destroy(struct key_layout *layout)
{
    list_remove(&layout->all);
    free(layout);
}

void indirect_destroy_all(struct nic *nic)
{
    struct list *next;
    for (struct list *l = nic->layouts.next; l != &nic->layouts; l = next) {
        next = l->next;
        free(container_of(l, struct key_layout, all));
    }
}

bool indirect_find(const struct memory_key *key, uint64_t offset, uint32_t *piece_key,
                   uint64_t *address, uint64_t *bytes)
{
    const struct key_layout *layout = key->layout;
    if (!layout->round_bytes || offset / layout->round_bytes >= layout->rounds) {
        return false;
    }
    const uint64_t round = offset / layout->round_bytes;
    uint64_t left = offset % layout->round_bytes;
    const struct piece *piece = layout->pieces;
    while (left >= piece->bytes) { /* it ends: their sum is that of a round */
        left -= piece++->bytes;
    }
    *piece_key = piece->key;
    *address = piece->address + round * piece->stride + left;
    *bytes = piece->bytes - left < *bytes ? piece->bytes - left : *bytes;
    return true;
}

/* ---- reading a layout ---- */

static bool add(struct key_layout *layout, struct piece piece)
{
    if (piece.bytes == 0) {
        return true; /* it has nothing */
    }
    if (layout->count == layout->room) {
        return false;
    }
    layout->pieces[layout->count++] = piece;
    layout->round_bytes += piece.bytes;
    return true;
}

/* The list is padded with zeros. */
static bool read_list(struct key_layout *layout, const uint8_t *at, uint32_t octowords)
{
    layout->rounds = 1;
    for (uint32_t i = 0; i < octowords; i++) {
        struct mlx5_wqe_umr_klm_seg klm;
        memcpy(&klm, at + i * OCTOWORD, sizeof(klm));
        if (!add(layout, (struct piece){.address = be64toh(klm.address),
                                        .key = be32toh(klm.mkey),
                                        .bytes = be32toh(klm.byte_count)})) {
            return false;
        }
    }
    return true;
}

static bool read_repeated(struct key_layout *layout, const uint8_t *at, uint32_t octowords)
{
    struct mlx5_wqe_umr_repeat_block_seg block;
    memcpy(&block, at, sizeof(block));
    uint32_t count = be16toh(block.num_ent);
    layout->rounds = be32toh(block.repeat_count);
    if (count >= octowords) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct mlx5_wqe_umr_repeat_ent_seg entry;
        memcpy(&entry, at + (i + 1) * OCTOWORD, sizeof(entry));
        if (!add(layout, (struct piece){.address = be64toh(entry.va),
                                        .key = be32toh(entry.memkey),
                                        .bytes = be16toh(entry.byte_count),
                                        .stride = be16toh(entry.stride)})) {
            return false;
        }
    }
    return layout->round_bytes == be32toh(block.byte_count);
}

/* Reads the layout behind the WQE's segments into `layout`, which is empty. */
static bool read_layout(struct key_layout *layout, const uint8_t *at, uint32_t octowords)
{
    struct mlx5_wqe_umr_klm_seg first;
    memcpy(&first, at, sizeof(first));
    return be32toh(first.mkey) == REPEAT_BLOCK ? read_repeated(layout, at, octowords)
                                               : read_list(layout, at, octowords);
}

/* ---- executing ---- */

static void set_context(struct memory_key *key, const struct mlx5_wqe_mkey_context_seg *context,
                        uint64_t mask)
{
    static const struct {
        uint64_t mask;
        uint32_t access;
    } flags[] = {
        {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE, ACCESS_LOCAL_WRITE},
        {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ, ACCESS_REMOTE_READ},
        {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE, ACCESS_REMOTE_WRITE},
        {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC, ACCESS_REMOTE_ATOMIC},
    };
    for (uint32_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (mask & flags[i].mask) {
            key->access &= ~flags[i].access;
            key->access |= key_access_of(context->access_flags) & flags[i].access;
        }
    }
    if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN) {
        key->bytes = be64toh(context->len);
    }
    if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR) {
        key->address = be64toh(context->start_addr);
    }
    if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) {
        key->bound = !(context->free & MLX5_WQE_MKEY_CONTEXT_FREE);
    }
    if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY) {
        key->key = (key->key & ~0xffu) | (be32toh(context->qpn_mkey) & 0xff);
    }
}

uint8_t indirect_execute(struct queue_pair *qp, const struct send_request *request,
                         struct memory_key *key)
{
    struct mlx5_wqe_ctrl_seg wqe;
    struct mlx5_wqe_umr_ctrl_seg control;
    struct mlx5_wqe_mkey_context_seg context;
    const uint8_t *at = request->wqe + CONTROL_BYTES;
    memcpy(&wqe, request->wqe, sizeof(wqe));
    memcpy(&control, at, sizeof(control));
    memcpy(&context, at + sizeof(control), sizeof(context));
    at += sizeof(control) + sizeof(context);
    uint32_t size =
        (be32toh(wqe.qpn_ds) & 0x3f) * OCTOWORD; /* wqe.c has seen that it is all there */
    uint32_t left = size - (uint32_t)(at - request->wqe);
    uint32_t octowords = be16toh(control.klm_octowords);
    const uint64_t mask = be64toh(control.mkey_mask);
    const uint64_t known =
        MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
        MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN |
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC | MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE;
    if (!(control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) || mask & ~known ||
        octowords * OCTOWORD > left || key->domain != qp->domain) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    if (control.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE && key->bound) {
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    }
    bool frees = context.free & MLX5_WQE_MKEY_CONTEXT_FREE;
    if (octowords && !frees) {
        struct key_layout *layout = key->layout;
        layout->count = 0;
        layout->rounds = layout->round_bytes = 0;
        if (!read_layout(layout, at, octowords)) {
            key->bound = false;
            return MLX5_CQE_SYNDROME_MW_BIND_ERR;
        }
    }
    set_context(key, &context, mask);
    return 0;
}

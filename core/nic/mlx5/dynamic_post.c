/* dynamic_post.c: data path of dynamic queue pairs: as post.c, with the address of the peer in each WQE. The send queue is that of
 * the initiator that is lent to the queue pair. Each WQE has a CQE, since whoever waits for the initiator has to know when all
 * are done.
 */
#include <arpa/inet.h>

#include "nic/mlx5/mlx5.h"
#include "nic/mlx5/pieces.h"
#include "nic/mlx5/posting.h"

#define HEAD_BYTES                                                                                 \
    ((uint32_t)(sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_datagram_seg) +          \
                sizeof(struct mlx5_wqe_raddr_seg)))

static inline struct mlx5_queue_pair *sender(const struct mlx5_dynamic *dynamic)
{
    return &container_of(dynamic->dynamic.initiator, struct mlx5_initiator, shared)->queue;
}

/* Sets *segment to what is behind the head of a WQE. Returns its place; NULL = the queue pair has failed. */
static inline uint8_t *begin(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                             uint32_t payload_bytes, void **segment)
{
    if (!nic_post_begin(base, transfer)) {
        return NULL;
    }
    const struct mlx5_dynamic *dynamic = to_mlx5_dynamic(base);
    nic_initiators_post(base->nic->initiators, &dynamic->dynamic);
    uint8_t *wqe = posting_begin(sender(dynamic), HEAD_BYTES + payload_bytes);
    void *place = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    place = wqe_address(place, &to_mlx5_target(dynamic->target)->address);
    *segment = wqe_remote_address(place, transfer->remote_address, transfer->remote_key);
    return wqe;
}

static inline void end(struct nic_queue_pair *base, uint8_t *wqe, const void *wqe_end,
                       uint8_t opcode, uint32_t immediate)
{
    posting_end(sender(to_mlx5_dynamic(base)), wqe, wqe_end, opcode, immediate, NIC_POST_SIGNALED);
    nic_post_count(base, NIC_POST_SIGNALED);
}

/* `opcode` is a constant at each call, and so is whether the payload may be read here. */
static inline __attribute__((always_inline)) void post_write(struct nic_queue_pair *base,
                                                             uint8_t opcode, bool readable,
                                                             const struct nic_transfer *transfer)
{
    const bool in_wqe = readable && transfer->bytes <= base->nic->inline_bytes_max;
    void *segment;
    uint8_t *wqe = begin(base, transfer,
                         in_wqe ? wqe_inline_bytes(transfer->bytes)
                                : (uint32_t)sizeof(struct mlx5_wqe_data_seg),
                         &segment);
    if (unlikely(!wqe)) {
        return;
    }
    segment = posting_payload(segment, transfer, in_wqe, readable);
    base->stats.inline_wqes += in_wqe;
    end(base, wqe, segment, opcode,
        opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? htonl(transfer->immediate) : 0);
}

void mlx5_dynamic_ring(struct nic_queue_pair *base)
{
    const struct mlx5_dynamic *dynamic = to_mlx5_dynamic(base);
    if (likely(dynamic->dynamic.initiator)) {
        base->stats.doorbells += send_queue_ring(&sender(dynamic)->queue);
    }
}

void mlx5_dynamic_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                  uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, true, transfer);
    if (likely(flags & NIC_POST_RING)) {
        mlx5_dynamic_ring(base);
    }
}

void mlx5_dynamic_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                        uint32_t flags)
{
    (void)flags; /* each WQE is signaled */
    post_write(base, MLX5_OPCODE_RDMA_WRITE, true, transfer);
}

void mlx5_dynamic_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                uint32_t flags)
{
    if (flags & NIC_POST_IMMEDIATE) {
        post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, false, transfer);
    } else {
        post_write(base, MLX5_OPCODE_RDMA_WRITE, false, transfer);
    }
}

void mlx5_dynamic_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                       uint32_t flags)
{
    void *segment;
    uint8_t *wqe = begin(base, transfer, sizeof(struct mlx5_wqe_data_seg), &segment);
    (void)flags;
    if (unlikely(!wqe)) {
        return;
    }
    if (transfer->bytes != 0) {
        segment = wqe_data(segment, transfer->local_address, transfer->local_key, transfer->bytes);
    }
    end(base, wqe, segment, MLX5_OPCODE_RDMA_READ, 0);
}

void mlx5_dynamic_pieces(struct nic_queue_pair *base, bool read,
                         const struct nic_transfer *transfer, const struct nic_piece *pieces,
                         uint32_t count, uint32_t flags)
{
    const bool in_wqe = flags & NIC_POST_INLINE;
    void *segment;
    assert(count <= base->nic->pieces_max &&
           !(read && (flags & (NIC_POST_INLINE | NIC_POST_IMMEDIATE))));
    assert(pieces_bytes(pieces, count) == transfer->bytes);
    assert(!in_wqe || transfer->bytes <= base->nic->inline_bytes_max);
    uint8_t *wqe = begin(base, transfer,
                         in_wqe ? wqe_inline_bytes(transfer->bytes)
                                : count * (uint32_t)sizeof(struct mlx5_wqe_data_seg),
                         &segment);
    if (unlikely(!wqe)) {
        return;
    }
    if (!in_wqe) {
        segment = pieces_segments(segment, pieces, count);
    } else if (transfer->bytes != 0) {
        segment = pieces_inline(segment, pieces, count, transfer->bytes);
    }
    base->stats.inline_wqes += in_wqe;
    if (flags & NIC_POST_IMMEDIATE) {
        end(base, wqe, segment, MLX5_OPCODE_RDMA_WRITE_IMM, htonl(transfer->immediate));
    } else {
        end(base, wqe, segment, read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE, 0);
    }
}

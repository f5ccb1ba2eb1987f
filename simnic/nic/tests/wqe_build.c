/* wqe_build.c: makes WQEs, as libmlx5 does, and posts them; see rig.h. */
#include <stdlib.h>
#include <string.h>

#include "simnic/nic/tests/rig.h"

static void *grow(struct rig_wqe *wqe, uint32_t bytes)
{
    if (wqe->size + bytes > sizeof(wqe->bytes)) {
        abort();
    }
    uint8_t *at = wqe->bytes + wqe->size;
    wqe->size += bytes;
    return at;
}

void rig_wqe_start(struct rig_wqe *wqe, uint8_t opcode, uint8_t flags)
{
    *wqe = (struct rig_wqe){.size = 16, .opcode = opcode, .flags = flags};
}

void rig_wqe_remote(struct rig_wqe *wqe, uint64_t address, uint32_t key)
{
    struct mlx5_wqe_raddr_seg segment = {htobe64(address), htobe32(key), 0};
    memcpy(grow(wqe, sizeof(segment)), &segment, sizeof(segment));
}

void rig_wqe_atomic(struct rig_wqe *wqe, uint64_t swap_or_add, uint64_t compare)
{
    struct mlx5_wqe_atomic_seg segment = {htobe64(swap_or_add), htobe64(compare)};
    memcpy(grow(wqe, sizeof(segment)), &segment, sizeof(segment));
}

void rig_wqe_data(struct rig_wqe *wqe, uint64_t address, uint32_t bytes, uint32_t key)
{
    struct mlx5_wqe_data_seg segment = {htobe32(bytes), htobe32(key), htobe64(address)};
    memcpy(grow(wqe, sizeof(segment)), &segment, sizeof(segment));
}

void rig_wqe_inline(struct rig_wqe *wqe, const void *data, uint32_t bytes)
{
    uint32_t count = htobe32(bytes | 1u << 31);
    uint8_t *at = grow(wqe, (4 + bytes + 15) & ~15u);
    memcpy(at, &count, sizeof(count));
    memcpy(at + sizeof(count), data, bytes);
}

void rig_wqe_address(struct rig_wqe *wqe, uint32_t qpn, uint32_t queue_key, const uint8_t gid[16],
                     uint32_t gid_index)
{
    struct mlx5_wqe_av av = {.dqp_dct = htobe32(qpn | 1u << 31),
                             .tclass = 0x2e,
                             .hop_limit = 61,
                             .grh_gid_fl = htobe32(1u << 30 | gid_index << 20 | 0x54321)};
    av.key.qkey.qkey = htobe32(queue_key);
    memcpy(av.rgid, gid, sizeof(av.rgid));
    memcpy(grow(wqe, sizeof(av)), &av, sizeof(av));
}

void rig_wqe_way(struct rig_wqe *wqe, uint32_t qpn, uint32_t queue_key, const struct rail_way *way)
{
    struct mlx5_wqe_av av = {
        .dqp_dct = htobe32(qpn | 1u << 31),
        .stat_rate_sl = way->service_level,
        .fl_mlid = way->path_bits,
        .rlid = htobe16(way->lid),
        .tclass = way->traffic_class,
        .hop_limit = way->hop_limit,
        .grh_gid_fl =
            htobe32((way->grh ? 1u << 30 : 0) | (uint32_t)way->gid_index << 20 | way->flow_label)};
    av.key.qkey.qkey = htobe32(queue_key);
    memcpy(av.rgid, way->gid, sizeof(av.rgid));
    memcpy(grow(wqe, sizeof(av)), &av, sizeof(av));
}

void rig_wqe_finish(struct rig_wqe *wqe, const struct rig_qp *qp)
{
    struct mlx5_wqe_ctrl_seg control = {
        .opmod_idx_opcode = htobe32((uint32_t)qp->sent << 8 | wqe->opcode),
        .qpn_ds = htobe32(qp->qp->number << 8 | wqe->size / 16),
        .dci_stream_channel_id = htobe16(wqe->stream),
        .fm_ce_se = wqe->flags,
        .imm = wqe->immediate,
    };
    memcpy(wqe->bytes, &control, sizeof(control));
}

uint16_t rig_put(struct rig_qp *qp, const struct rig_wqe *wqe)
{
    uint16_t index = qp->sent;
    uint32_t blocks = (wqe->size + 63) / 64;
    for (uint32_t i = 0; i < blocks; i++) {
        memcpy(qp->qp->send_buffer + (size_t)((index + i) & (qp->qp->send_blocks - 1)) * 64,
               wqe->bytes + (size_t)i * 64, 64);
    }
    qp->sent = (uint16_t)(qp->sent + blocks);
    qp->record[1] = htobe32(qp->sent);
    return index;
}

uint16_t rig_post(struct rig_qp *qp, struct rig_wqe *wqe)
{
    rig_wqe_finish(wqe, qp);
    return rig_put(qp, wqe);
}

static uint8_t *push_register(const struct rig_qp *qp, uint32_t which)
{
    return qp->rig->page[qp->qp->page] + 0x800 + (size_t)which * NIC_BLUEFLAME_BYTES;
}

void rig_ring(struct rig_qp *qp, const struct rig_wqe *wqe)
{
    memcpy(push_register(qp, qp->which), wqe->bytes, 8);
    qp->which ^= 1; /* the two buffers of a register take turns */
    nic_look_at_doorbells(&qp->rig->nic);
}

void rig_push(struct rig_qp *qp, const struct rig_wqe *wqe, uint32_t which, uint32_t bytes)
{
    memcpy(push_register(qp, which), wqe->bytes, bytes);
    nic_look_at_doorbells(&qp->rig->nic);
}

uint16_t rig_send(struct rig_qp *qp, struct rig_wqe *wqe)
{
    uint16_t index = rig_post(qp, wqe);
    rig_ring(qp, wqe);
    return index;
}

uint16_t rig_send_message(struct rig_qp *qp, uint8_t flags, const struct rig_memory *from,
                          uint64_t offset, uint32_t bytes)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, flags);
    if (bytes) {
        rig_wqe_data(&wqe, (uintptr_t)from->bytes + offset, bytes, from->key);
    }
    return rig_send(qp, &wqe);
}

uint16_t rig_rdma(struct rig_qp *qp, uint8_t opcode, uint8_t flags, const struct rig_memory *local,
                  uint32_t bytes, const struct rig_memory *remote)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, opcode, flags);
    rig_wqe_remote(&wqe, (uintptr_t)remote->bytes, remote->key);
    if (bytes) {
        rig_wqe_data(&wqe, (uintptr_t)local->bytes, bytes, local->key);
    }
    return rig_send(qp, &wqe);
}

/* ---- receives ---- */

struct mlx5_wqe_data_seg rig_segment(const struct rig_memory *memory, uint64_t offset,
                                     uint32_t bytes)
{
    return (struct mlx5_wqe_data_seg){htobe32(bytes), htobe32(memory->key),
                                      htobe64((uintptr_t)memory->bytes + offset)};
}

static void write_list(uint8_t *at, uint32_t room, const struct mlx5_wqe_data_seg *list,
                       uint32_t count)
{
    const struct mlx5_wqe_data_seg end = {0, htobe32(RIG_LIST_END), 0};
    if (count > room) {
        abort();
    }
    memcpy(at, list, count * sizeof(*list));
    if (count < room) {
        memcpy(at + count * sizeof(*list), &end, sizeof(end));
    }
}

uint16_t rig_receive_list(struct rig_qp *qp, const struct mlx5_wqe_data_seg *list, uint32_t count)
{
    uint16_t index = qp->received++;
    const struct queue_pair *q = qp->qp;
    write_list(q->receive_buffer + ((size_t)(index & (q->receive_entries - 1)) << q->receive_shift),
               (1u << q->receive_shift) / 16, list, count);
    qp->record[0] = htobe32(qp->received);
    return index;
}

uint16_t rig_receive(struct rig_qp *qp, const struct rig_memory *to, uint64_t offset,
                     uint32_t bytes)
{
    struct mlx5_wqe_data_seg segment = rig_segment(to, offset, bytes);
    return rig_receive_list(qp, &segment, 1);
}

/* As libmlx5: from the head of a list of free WQEs, to whose tail they come back; one is always
 * kept. */
uint16_t rig_srq_receive(struct rig_srq *srq, const struct rig_memory *to, uint64_t offset,
                         uint32_t bytes)
{
    uint16_t index = srq->head;
    if (index == srq->tail) {
        return UINT16_MAX;
    }
    struct mlx5_wqe_data_seg segment = rig_segment(to, offset, bytes);
    write_list(srq->srq->buffer + (size_t)index * 64 + 16, 3, &segment, 1);
    srq->head = srq->next[index];
    srq->record[0] = htobe32(++srq->posted);
    return index;
}

void rig_srq_give_back(struct rig_srq *srq, uint16_t index)
{
    struct mlx5_wqe_srq_next_seg next = {.next_wqe_index = htobe16(index)};
    memcpy(srq->srq->buffer + (size_t)srq->tail * 64, &next, sizeof(next));
    srq->next[srq->tail] = index;
    srq->tail = index;
}

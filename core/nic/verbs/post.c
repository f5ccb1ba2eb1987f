/* post.c: data path of the sending side.
 *
 * May assume that the caller checked nic_send_room(). WQE number n travels as wr_id n; ring() hands
 * the device what was posted since the last one as a single linked list.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "nic/verbs/verbs.h"

/* The next WQE of the chain with all that WRITE and READ have in common. */
static struct ibv_send_wr *chain_next(struct verbs_queue_pair *queue_pair,
                                      const struct nic_transfer *transfer, uint32_t flags)
{
    struct nic_queue_pair *base = &queue_pair->device.base;
    if (unlikely(queue_pair->chained == VERBS_CHAIN)) {
        verbs_ring_doorbell(base);
    }
    struct ibv_send_wr *wqe = &queue_pair->chain[queue_pair->chained++];
    struct ibv_sge *piece = wqe->sg_list;
    piece->addr = transfer->local_address;
    piece->length = transfer->bytes;
    piece->lkey = transfer->local_key;
    wqe->num_sge = transfer->bytes != 0;
    wqe->wr_id = base->posted;
    wqe->wr.rdma.remote_addr = transfer->remote_address;
    wqe->wr.rdma.rkey = transfer->remote_key;
    wqe->send_flags = nic_post_count(base, flags) ? IBV_SEND_SIGNALED : 0;
    to_device_nic(base->nic)->send_outstanding++;
    return wqe;
}

/* The WQE that was posted last is a READ or an atomic. */
static void count_read(struct verbs_queue_pair *queue_pair)
{
    queue_pair->reads_before_end = queue_pair->reads_end;
    queue_pair->reads_end = queue_pair->device.base.posted;
}

/* `opcode` is a constant at each call, and so is whether the payload may be read here. */
static inline __attribute__((always_inline)) void
post_write(struct nic_queue_pair *base, enum ibv_wr_opcode opcode, bool readable,
           const struct nic_transfer *transfer, uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    struct ibv_send_wr *wqe = chain_next(to_verbs_queue_pair(base), transfer, flags);
    wqe->opcode = opcode;
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wqe->imm_data = htonl(transfer->immediate);
    }
    if (readable && transfer->bytes <= base->nic->inline_bytes_max) {
        wqe->send_flags |= IBV_SEND_INLINE;
        base->stats.inline_wqes++;
    }
}

void verbs_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                uint32_t flags)
{
    post_write(base, IBV_WR_RDMA_WRITE_WITH_IMM, true, transfer, flags);
    if (flags & NIC_POST_RING) {
        verbs_ring_doorbell(base);
    }
}

void verbs_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                      uint32_t flags)
{
    post_write(base, IBV_WR_RDMA_WRITE, true, transfer, flags);
}

void verbs_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                              uint32_t flags)
{
    if (flags & NIC_POST_IMMEDIATE) {
        post_write(base, IBV_WR_RDMA_WRITE_WITH_IMM, false, transfer, flags);
    } else {
        post_write(base, IBV_WR_RDMA_WRITE, false, transfer, flags);
    }
}

void verbs_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    chain_next(to_verbs_queue_pair(base), transfer, flags)->opcode = IBV_WR_RDMA_READ;
    count_read(to_verbs_queue_pair(base));
}

void verbs_post_pieces(struct nic_queue_pair *base, bool read, const struct nic_transfer *transfer,
                       const struct nic_piece *pieces, uint32_t count, uint32_t flags)
{
    const bool in_wqe = flags & NIC_POST_INLINE;
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    assert(count <= base->nic->pieces_max &&
           !(read && (flags & (NIC_POST_INLINE | NIC_POST_IMMEDIATE))));
    assert(!in_wqe || transfer->bytes <= base->nic->inline_bytes_max);
    struct ibv_send_wr *wqe = chain_next(to_verbs_queue_pair(base), transfer, flags);
    wqe->opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    if (flags & NIC_POST_IMMEDIATE) {
        wqe->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wqe->imm_data = htonl(transfer->immediate);
    }
    wqe->send_flags |= in_wqe ? IBV_SEND_INLINE : 0;
    base->stats.inline_wqes += in_wqe;
    if (read) {
        count_read(to_verbs_queue_pair(base));
    }
    wqe->num_sge = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].bytes != 0) {
            wqe->sg_list[wqe->num_sge++] = (struct ibv_sge){
                .addr = pieces[i].address, .length = pieces[i].bytes, .lkey = pieces[i].local_key};
        }
    }
}

void verbs_post_atomic(struct nic_queue_pair *base, const struct nic_atomic *atomic, uint32_t flags)
{
    const struct nic_transfer transfer = {.local_address = atomic->local_address,
                                          .bytes = sizeof(atomic->operand),
                                          .local_key = atomic->local_key};
    if (!nic_post_begin(base, &transfer)) {
        return;
    }
    assert(base->nic->atomics);
    struct ibv_send_wr *wqe = chain_next(to_verbs_queue_pair(base), &transfer, flags);
    wqe->opcode = atomic->swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
    wqe->wr.atomic.remote_addr = atomic->remote_address;
    wqe->wr.atomic.rkey = atomic->remote_key;
    wqe->wr.atomic.compare_add = atomic->swap ? atomic->compare : atomic->operand;
    wqe->wr.atomic.swap = atomic->swap ? atomic->operand : 0;
    count_read(to_verbs_queue_pair(base));
}

void verbs_fence_last(struct nic_queue_pair *base)
{
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    const uint32_t end = queue_pair->reads_end == base->posted ? queue_pair->reads_before_end
                                                               : queue_pair->reads_end;
    /* A post on a failed queue pair is discarded. */
    if (likely(queue_pair->chained > 0) && verbs_fence_needed(base->nic, end, base->completed)) {
        queue_pair->chain[queue_pair->chained - 1].send_flags |= IBV_SEND_FENCE;
    }
}

static unsigned int rights_of(uint32_t access)
{
    return (access & CRPC_ACCESS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
           (access & CRPC_ACCESS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
           (access & CRPC_ACCESS_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

/* The next WQE of the chain for something that this device does by itself. The fields of transfers
 * are 0: librxe refuses a bind with an immediate. */
static struct ibv_send_wr *chain_local(struct nic_queue_pair *base, enum ibv_wr_opcode opcode,
                                       uint32_t flags)
{
    static const struct nic_transfer none;
    if (!nic_post_begin(base, &none)) {
        return NULL;
    }
    struct ibv_send_wr *wqe = chain_next(to_verbs_queue_pair(base), &none, flags);
    wqe->opcode = opcode;
    wqe->imm_data = 0;
    return wqe;
}

/* mw->rkey is the key of the bind before, as ibv_post_send demands. It stays so until the next: what
 * is chained here is only posted with the doorbell. */
void verbs_post_bind(struct nic_queue_pair *base, struct nic_window *window,
                     const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                     uint32_t flags)
{
    struct ibv_send_wr *wqe = chain_local(base, IBV_WR_BIND_MW, flags);
    if (!wqe) {
        return;
    }
    struct ibv_mw *mw = window->driver;
    assert(bytes > 0);
    mw->rkey = window->remote_key;
    window->remote_key = nic_window_next_key(window->remote_key);
    wqe->bind_mw.mw = mw;
    wqe->bind_mw.rkey = window->remote_key;
    wqe->bind_mw.bind_info =
        (struct ibv_mw_bind_info){.mr = memory->driver,
                                  .addr = address,
                                  .length = bytes,
                                  .mw_access_flags = rights_of(window->access)};
}

void verbs_post_invalidate(struct nic_queue_pair *base, struct nic_window *window, uint32_t flags)
{
    struct ibv_send_wr *wqe = chain_local(base, IBV_WR_LOCAL_INV, flags);
    if (wqe) {
        wqe->invalidate_rkey = window->remote_key;
    }
}

/* The device took only part of a chain, or none. The WQEs it did not take will never complete by
 * themselves, so one error in their name is put where poll finds it. */
static __attribute__((cold)) void ring_failed(struct verbs_queue_pair *queue_pair, int os_error)
{
    struct nic_queue_pair *base = &queue_pair->device.base;
    struct ibv_wc entry = {
        .wr_id = base->posted - 1,
        .qp_num = base->number,
        .status = base->failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_GENERAL_ERR,
        .vendor_err = (uint32_t)os_error,
    };
    verbs_source_stash(&to_verbs_nic(base->nic)->send, &entry);
    verbs_queue_pair_fail(base);
}

void verbs_ring_doorbell(struct nic_queue_pair *base)
{
    struct verbs_queue_pair *queue_pair = to_verbs_queue_pair(base);
    uint32_t count = queue_pair->chained;
    if (count == 0) {
        return;
    }
    struct ibv_send_wr *last = &queue_pair->chain[count - 1];
    struct ibv_send_wr *next = last->next;
    struct ibv_send_wr *refused;
    queue_pair->chained = 0;
    last->next = NULL;
    int os_error = ibv_post_send(device_qp(base), queue_pair->chain, &refused);
    last->next = next;
    base->stats.doorbells++;
    if (unlikely(os_error)) {
        ring_failed(queue_pair, os_error);
    }
}

/* queue_post.c: data path of queues with user data: posting. An op travels with its position, or with
 * the place of its receive, as wr_id. */
#include <arpa/inet.h>

#include "nic/verbs/verbs.h"

/* ---- Refusals -------------------------------------------------------------------------------- */

/* The device did not take an op that was accepted. It will never complete by itself, so a flush in its
 * name is put where poll finds it. Nothing is known of the ops before it, which a flush says. */
static void refuse(struct device_source *source, const struct verbs_queue *queue, uint64_t wr_id,
                   int os_error)
{
    struct ibv_wc entry = {.wr_id = wr_id,
                           .qp_num = queue->device.pair.base.number,
                           .status = IBV_WC_WR_FLUSH_ERR,
                           .vendor_err = (uint32_t)os_error};
    verbs_source_stash(to_verbs_source(source), &entry);
}

static __attribute__((cold)) void sends_refused(struct verbs_queue *queue,
                                                const struct ibv_send_wr *refused, int os_error)
{
    for (; refused; refused = refused->next) {
        refuse(queue->device.send_source, queue, refused->wr_id, os_error);
    }
    if (!queue->device.base.failed) {
        device_queue_flush(&queue->device.base);
    }
}

/* ---- Sends ----------------------------------------------------------------------------------- */

static void post_chain(struct verbs_queue *queue)
{
    struct ibv_send_wr *last = &queue->chain[queue->chained - 1];
    struct ibv_send_wr *next = last->next;
    struct ibv_send_wr *refused = queue->chain;
    queue->chained = 0;
    last->next = NULL;
    int os_error = queue->ways ? verbs_dc_post(queue)
                               : ibv_post_send(queue->device.pair.qp, queue->chain, &refused);
    queue->device.base.stats.doorbells++;
    if (unlikely(os_error)) {
        sends_refused(queue, refused, os_error);
    }
    last->next = next;
}

static const uint8_t verbs_opcodes[NIC_OPCODES] = {
    [NIC_SEND] = IBV_WR_SEND,
    [NIC_SEND_IMMEDIATE] = IBV_WR_SEND_WITH_IMM,
    [NIC_SEND_INVALIDATE] = IBV_WR_SEND_WITH_INV,
    [NIC_WRITE] = IBV_WR_RDMA_WRITE,
    [NIC_WRITE_IMMEDIATE] = IBV_WR_RDMA_WRITE_WITH_IMM,
    [NIC_READ] = IBV_WR_RDMA_READ,
    [NIC_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
    [NIC_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    [NIC_NOP] = IBV_WR_RDMA_WRITE, /* of nothing: verbs has no NOP */
};

static void set_atomic(struct nic_queue *base, struct ibv_send_wr *wqe, const struct nic_work *work,
                       uint32_t position)
{
    bool swap = work->opcode == NIC_COMPARE_SWAP;
    wqe->wr.atomic.remote_addr = work->remote_address;
    wqe->wr.atomic.rkey = work->remote_key;
    wqe->wr.atomic.compare_add = swap ? work->address : work->operand;
    wqe->wr.atomic.swap = swap ? work->operand : 0;
    wqe->sg_list[0] =
        (struct ibv_sge){.addr = (uint64_t)(uintptr_t)&base->results[position & base->sends.mask],
                         .length = sizeof(*base->results),
                         .lkey = base->results_keys.local_key};
    wqe->num_sge = 1;
}

static int set_pieces(struct ibv_sge *list, const struct nic_piece *pieces, uint32_t count)
{
    int used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].bytes != 0) {
            list[used++] = (struct ibv_sge){
                .addr = pieces[i].address, .length = pieces[i].bytes, .lkey = pieces[i].local_key};
        }
    }
    return used;
}

static unsigned send_flags(const struct verbs_queue *queue, uint32_t flags, bool signaled)
{
    const struct nic_queue *base = &queue->device.base;
    const bool fence = flags & NIC_WORK_FENCE &&
                       verbs_fence_needed(base->nic, queue->reads_end, base->sends.consumer);
    return (signaled ? (unsigned)IBV_SEND_SIGNALED : 0) | (fence ? (unsigned)IBV_SEND_FENCE : 0) |
           (flags & NIC_WORK_SOLICITED ? (unsigned)IBV_SEND_SOLICITED : 0) |
           (flags & NIC_WORK_INLINE ? (unsigned)IBV_SEND_INLINE : 0);
}

static void set_remote(struct ibv_send_wr *wqe, const struct nic_work *work,
                       struct nic_target *target)
{
    if (target && target->kind == NIC_QUEUE_UD) {
        wqe->wr.ud.ah = to_device_target(target)->ah;
        wqe->wr.ud.remote_qpn = target->queue_pair_number;
        wqe->wr.ud.remote_qkey = target->queue_key;
    } else {
        wqe->wr.rdma.remote_addr = work->remote_address;
        wqe->wr.rdma.rkey = work->remote_key;
    }
}

static bool post_one(struct verbs_queue *queue, const struct nic_work *work,
                     struct nic_target *target, uint32_t local_key, const struct nic_piece *pieces)
{
    struct nic_queue *base = &queue->device.base;
    uint32_t position = base->sends.producer;
    assert(work->opcode >= NIC_SEND && work->opcode <= NIC_NOP);
    if (unlikely(nic_queue_send_room(base) == 0)) {
        return false;
    }
    if (unlikely(queue->chained == VERBS_QUEUE_CHAIN)) {
        post_chain(queue);
    }
    if (queue->ways) {
        verbs_dc_chain(queue, queue->chained, work, target);
    }
    struct ibv_send_wr *wqe = &queue->chain[queue->chained++];
    wqe->wr_id = position;
    wqe->opcode = (enum ibv_wr_opcode)verbs_opcodes[work->opcode];
    wqe->send_flags = send_flags(queue, work->flags, nic_queue_wants_cqe(base, work->flags, 1));
    if (nic_opcode_is_atomic(work->opcode)) {
        set_atomic(base, wqe, work, position);
    } else {
        struct nic_piece one;
        uint32_t count;
        pieces = nic_work_pieces(work, local_key, pieces, &one, &count);
        assert(count <= base->send_pieces);
        wqe->num_sge = set_pieces(wqe->sg_list, pieces, count);
        set_remote(wqe, work, target);
    }
    if (work->opcode == NIC_SEND_INVALIDATE) {
        wqe->invalidate_rkey = work->immediate;
    } else {
        wqe->imm_data = htonl(work->immediate);
    }
    if (work->opcode == NIC_READ || nic_opcode_is_atomic(work->opcode)) {
        queue->reads_end = position + 1;
    }
    tracking_post_op(&base->sends, position, position + 1, work->user_data,
                     nic_queue_state(base, work->flags), work->opcode);
    base->stats.sends++;
    return true;
}

uint32_t verbs_queue_post(struct nic_queue *base, const struct nic_work *works,
                          const uint32_t *local_keys, const struct nic_piece *pieces,
                          uint32_t count)
{
    uint32_t posted = 0;
    assert(!base->failed && !base->stopped);
    while (posted < count &&
           post_one(to_verbs_queue(base), &works[posted], NULL, local_keys[posted], pieces)) {
        posted++;
    }
    return posted;
}

uint32_t verbs_queue_post_to(struct nic_queue *base, const struct nic_work *works,
                             struct nic_target *const *targets, const uint32_t *local_keys,
                             const struct nic_piece *pieces, uint32_t count)
{
    uint32_t posted = 0;
    assert(!base->failed && !base->stopped);
    while (posted < count) {
        assert(targets[posted] && targets[posted]->kind == base->kind);
        if (!post_one(to_verbs_queue(base), &works[posted], targets[posted], local_keys[posted],
                      pieces)) {
            break;
        }
        posted++;
    }
    return posted;
}

/* ---- Receives -------------------------------------------------------------------------------- */

static __attribute__((cold)) void receives_refused(struct nic_queue *base,
                                                   const struct ibv_recv_wr *refused)
{
    for (; refused; refused = refused->next) {
        nic_queue_end_receive(base, (uint32_t)refused->wr_id);
    }
}

static void post_receive_chain(struct verbs_queue *queue)
{
    struct ibv_recv_wr *last = &queue->receive_chain[queue->receives_chained - 1];
    struct ibv_recv_wr *next = last->next;
    struct ibv_recv_wr *refused = queue->receive_chain;
    queue->receives_chained = 0;
    last->next = NULL;
    int os_error = queue->device.srq
                       ? ibv_post_srq_recv(queue->device.srq, queue->receive_chain, &refused)
                       : ibv_post_recv(queue->device.pair.qp, queue->receive_chain, &refused);
    if (unlikely(os_error)) {
        receives_refused(&queue->device.base, refused);
    }
    last->next = next;
}

bool verbs_queue_receive(struct nic_queue *base, uint64_t user_data, const struct nic_piece *pieces,
                         uint32_t count)
{
    struct verbs_queue *queue = to_verbs_queue(base);
    uint32_t index;
    assert(!base->failed && !base->stopped && base->receiver == base);
    assert(count <= base->receive_pieces);
    if (unlikely(base->receives_open == base->receives_max)) {
        return false;
    }
    if (unlikely(!queue->device.srq &&
                 base->receives.entries[queue->receive_next & base->receives.mask].state !=
                     TRACKING_FREE)) {
        return false; /* the device has completed later ones before it, against all rules */
    }
    if (unlikely(queue->receives_chained == VERBS_QUEUE_CHAIN)) {
        post_receive_chain(queue);
    }
    if (queue->device.srq) {
        index = queue->receive_next;
        queue->receive_next = base->receives.entries[index].position;
    } else {
        index = queue->receive_next++ & base->receives.mask;
    }
    struct ibv_recv_wr *wqe = &queue->receive_chain[queue->receives_chained++];
    wqe->wr_id = index;
    wqe->num_sge = set_pieces(wqe->sg_list, pieces, count);
    tracking_receive_post(&base->receives, index, user_data);
    base->receives_open++;
    base->stats.receives++;
    return true;
}

/* ---- Ringing --------------------------------------------------------------------------------- */

void verbs_queue_ring(struct nic_queue *base)
{
    struct verbs_queue *queue = to_verbs_queue(base);
    assert(!base->stopped);
    if (queue->receives_chained > 0) {
        post_receive_chain(queue);
    }
    if (queue->chained > 0) {
        if (nic_queue_wants_last_cqe(base)) {
            queue->chain[queue->chained - 1].send_flags |= IBV_SEND_SIGNALED;
        }
        post_chain(queue);
    }
}

/* blueflame.c: WQEs that the program pushes to a BlueFlame register: whether the register holds the
 * WQE that its doorbell is about.
 *
 * An adapter gets stores one after another, so it knows. We find a register as memory: a doorbell
 * without a push leaves in it what an earlier push brought, perhaps one whose own doorbell was
 * never seen; and the first word of a push may be seen before its last. The queue has a copy of
 * each WQE, with which the register is compared. */
#include "simnic/nic/internal.h"

#include <stdatomic.h>
#include <string.h>

/* How long an incomplete push is waited for before the queue is read instead: the thread that
 * pushes may be preempted. */
#define PATIENCE_NS 20000000u

/* The register is not cleared, as another thread may be writing to it already. */
void blueflame_note(struct queue_pair *qp, struct doorbell_page *page, uint32_t which,
                    const uint8_t *at, uint64_t doorbell)
{
    struct push *push = &qp->push;
    uint8_t *seen = page->seen[which];
    uint32_t qpn_size;
    memcpy(&qpn_size, (uint8_t *)&doorbell + 4, sizeof(qpn_size));
    uint32_t bytes = (((be32toh(qpn_size) & 0x3f) * 16) + 63) & ~63u;
    if (bytes == 0 || bytes > NIC_BLUEFLAME_BYTES) {
        return;
    }
    memcpy(push->before, seen, bytes);
    memcpy(seen + 8, at + 8, NIC_BLUEFLAME_BYTES - 8);
    memcpy(push->held, &doorbell, 8);
    memcpy(push->held + 8, seen + 8, bytes - 8);
    push->at = at;
    push->seen = seen;
    push->last = page->last[which];
    push->rung = &page->rung[which];
    push->serial = page->rung[which];
    push->bytes = bytes;
    push->since_ns = 0;
}

/* Returns whether each word of the push but the doorbell is that of the queue, or that of
 * `other`. */
static bool is_mixture(const struct push *push, const uint8_t *queued, const uint8_t *other,
                       uint32_t bytes)
{
    for (uint32_t at = 8; at < bytes; at += 8) {
        if (memcmp(push->held + at, queued + at, 8) != 0 &&
            memcmp(push->held + at, other + at, 8) != 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether the push's words are those of one WQE in the queue of a QP of the page: that one
 * was pushed when nobody looked, and its register was then rung for another. If `queued` is not
 * NULL, some words may be those of `queued`, which is just being pushed over it. */
static bool is_over_another(const struct nic *nic, const struct queue_pair *qp,
                            const uint8_t *queued)
{
    for (const struct list *l = nic->all_queue_pairs.next; l != &nic->all_queue_pairs;
         l = l->next) {
        const struct queue_pair *other = container_of(l, struct queue_pair, all);
        for (uint32_t i = 0; other->page == qp->page && i < other->send_blocks; i++) {
            uint8_t block[64];
            if (!send_queue_read(other, (uint16_t)i, block, 1)) {
                break;
            }
            if (is_mixture(&qp->push, queued ? queued : block, block, sizeof(block))) {
                return true;
            }
        }
    }
    return false;
}

/* Returns whether the register holds what an earlier WQE left there: nothing was pushed with this
 * doorbell, or nothing yet. */
static bool is_left_over(const struct nic *nic, const struct queue_pair *qp, uint32_t bytes)
{
    const struct push *push = &qp->push;
    return memcmp(push->held + 8, push->before + 8, bytes - 8) == 0 ||
           memcmp(push->held + 8, push->last + 8, 64 - 8) == 0 ||
           (push->since_ns == 0 && is_over_another(nic, qp, NULL));
}

/* Returns whether another doorbell has rung at the register since. What the register holds, and
 * what was taken from it in pieces, may then be of other WQEs, even of some that have been executed
 * already. */
static bool is_overwritten(const struct push *push)
{
    return *push->rung != push->serial;
}

/* Reads the register again. Returns whether it is being written for another WQE. */
static bool look_again(struct push *push, uint32_t bytes)
{
    uint64_t doorbell;
    memcpy(push->seen + 8, push->at + 8, NIC_BLUEFLAME_BYTES - 8);
    memcpy(push->held + 8, push->seen + 8, bytes - 8);
    atomic_thread_fence(memory_order_acquire);
    memcpy(&doorbell, push->at, sizeof(doorbell));
    return doorbell != 0;
}

/* Compares the push with `queued`, the queue's copy of the same WQE.
 *
 * If they differ, the rest of the push is waited for. If the push is a mixture even then, of the
 * queue's copy and of what the register held before, its thread has been preempted for long, and
 * the WQE is read from the queue; an adapter never sees such a mixture. A push that differs in any
 * other way was meant so. It is executed as it is, as by an adapter. */
static enum blueflame compare(struct nic *nic, struct queue_pair *qp, const uint8_t *queued,
                              uint32_t size, uint32_t blocks)
{
    struct push *push = &qp->push;
    if (memcmp(queued, push->held, size) == 0) {
        return BLUEFLAME_TAKEN;
    }
    if (is_overwritten(push) || is_left_over(nic, qp, blocks * 64)) {
        return BLUEFLAME_NONE;
    }
    bool is_written_to = look_again(push, blocks * 64);
    if (push->since_ns == 0) { /* not before now: a NIC that rested has an old time */
        push->since_ns = nic->now_ns;
    }
    if (memcmp(queued, push->held, size) == 0) {
        return BLUEFLAME_TAKEN;
    }
    if (is_written_to) {
        return BLUEFLAME_NONE;
    }
    if (nic->now_ns - push->since_ns < PATIENCE_NS) {
        return BLUEFLAME_WAIT;
    }
    bool mixed = memcmp(queued, push->held, 8) == 0 &&
                 (is_mixture(push, queued, push->before, size) || is_over_another(nic, qp, queued));
    return mixed ? BLUEFLAME_NONE : BLUEFLAME_TAKEN;
}

/* Looks at what the last doorbell's register holds. */
static enum blueflame look_at_push(struct nic *nic, struct queue_pair *qp, uint32_t available)
{
    struct push *push = &qp->push;
    struct mlx5_wqe_ctrl_seg control;
    memcpy(&control, push->held, sizeof(control));
    uint16_t index = (uint16_t)(be32toh(control.opmod_idx_opcode) >> 8);
    uint32_t blocks = wqe_blocks(push->held);
    uint32_t size = (be32toh(control.qpn_ds) & 0x3f) * 16;
    uint8_t queued[NIC_BLUEFLAME_BYTES];
    if (index != qp->send_next || blocks > available || size < 16 || blocks * 64 > push->bytes ||
        !send_queue_read(qp, index, queued, blocks)) {
        if ((int16_t)(index - qp->send_next) <= 0) {
            push->bytes = 0;
        }
        return BLUEFLAME_NONE;
    }
    enum blueflame found = compare(nic, qp, queued, size, blocks);
    if (found == BLUEFLAME_WAIT) {
        return found;
    }
    memcpy(push->last, queued, 64);
    if (found == BLUEFLAME_NONE) {
        push->bytes = 0;
    } else {
        qp->statistics->blueflame_pushes++;
    }
    return found;
}

/* One push may bring several WQEs, one after another. Those after the first are taken from it if
 * the register still holds what the queue does. If not, the push did not bring them, and they are
 * read from the queue. */
static bool look_at_rest(const struct nic *nic, struct queue_pair *qp, uint32_t available,
                         uint32_t *bytes)
{
    uint32_t at = qp->push.rest;
    uint8_t queued[NIC_BLUEFLAME_BYTES];
    qp->push.rest = 0;
    if (is_overwritten(&qp->push) || at >= NIC_BLUEFLAME_BYTES ||
        !send_queue_read(qp, qp->send_next, queued, 1)) {
        return false;
    }
    uint32_t blocks = wqe_blocks(queued);
    if (blocks > available || at + blocks * 64 > NIC_BLUEFLAME_BYTES ||
        !send_queue_read(qp, qp->send_next, queued, blocks)) {
        return false;
    }
    memcpy(qp->request.wqe, qp->push.at + at, blocks * 64);
    if (memcmp(qp->request.wqe, queued, blocks * 64) != 0) {
        return false;
    }
    if (nic_has_quirk(nic, QUIRK_BLUEFLAME_SEVERAL)) {
        qp->request.wqe[3] = MLX5_OPCODE_NOP;
    }
    *bytes = blocks * 64;
    qp->push.rest = at + blocks * 64;
    return true;
}

enum blueflame blueflame_take(struct nic *nic, struct queue_pair *qp, uint32_t available,
                              uint32_t *bytes)
{
    struct push *push = &qp->push;
    if (push->bytes && !qp->rendezvous) {
        enum blueflame found = look_at_push(nic, qp, available);
        if (found == BLUEFLAME_TAKEN) {
            memcpy(qp->request.wqe, push->held, push->bytes);
            if (nic_has_quirk(nic, QUIRK_BLUEFLAME) && push->bytes > 64) {
                memcpy(qp->request.wqe + 64, push->before + 64, push->bytes - 64);
            }
            *bytes = push->rest = push->bytes;
            push->bytes = 0;
        }
        if (found != BLUEFLAME_NONE) {
            return found;
        }
    }
    return push->rest && look_at_rest(nic, qp, available, bytes) ? BLUEFLAME_TAKEN : BLUEFLAME_NONE;
}

/* receive.c: the receives, which have no memory: a WRITE with immediate takes one for its immediate alone.
 *
 * They are in one SRQ. Where the device has none, each queue pair has a receive queue of its own, which is full from the
 * start. What is used of it is posted again with the next refill, and nic->receives_posted tells the owner when that
 * must be (nic.h). The receive CQ has a place for each entry of each receive queue, since all of them complete when
 * their queue pairs fail.
 */
#include <errno.h>

#include "base/error.h"
#include "nic/verbs/verbs.h"

static bool is_unsupported(int os_error)
{
    return os_error == EOPNOTSUPP || os_error == ENOSYS;
}

/* Some libraries have SRQs of which their device knows nothing, and the other way round, so what counts is whether one
 * can be made. */
int32_t verbs_receives_open(struct verbs_nic *nic, crpc_error *error)
{
    struct nic *base = &nic->device.base;
    struct ibv_srq_init_attr attributes = {.attr = {.max_wr = base->receive_depth, .max_sge = 1}};
    for (uint32_t i = 0; i < VERBS_REFILL_CHUNK; i++) {
        nic->receives[i].next = i + 1 < VERBS_REFILL_CHUNK ? &nic->receives[i + 1] : NULL;
        nic->receives[i].sg_list = &nic->no_bytes;
        nic->receives[i].num_sge = nic->vendor.receive_piece;
    }
    list_init(&nic->short_of_receives);
    if (base->receive_queue_max == 0) {
        nic->srq = ibv_create_srq(nic->device.pd, &attributes);
        if (!nic->srq && !is_unsupported(errno)) {
            return device_queue_failed(base, "shared receive", base->receive_depth, error);
        }
    }
    if (nic->srq) {
        base->receive_queue_max = 0;
    } else {
        base->receive_queue_max = nic->device.receive_wqes_max;
        base->receives_posted = base->receive_depth;
        base->dc = false; /* a DCT takes receives of an SRQ */
        base->streams_max = 0;
    }
    return CRPC_OK;
}

void verbs_receives_close(struct verbs_nic *nic)
{
    if (nic->srq) {
        ibv_destroy_srq(nic->srq);
    }
}

/* ---- Posting --------------------------------------------------------------------------------- */

/* Posts the first `count` of the prepared receives to a queue pair, or to the SRQ if there is none. Returns how many the device
 * took. */
static uint32_t post_receives(struct verbs_nic *nic, struct verbs_queue_pair *queue_pair,
                              uint32_t count)
{
    struct ibv_recv_wr *last = &nic->receives[count - 1];
    struct ibv_recv_wr *next = last->next;
    struct ibv_recv_wr *refused = NULL;
    last->next = NULL;
    int os_error = queue_pair ? ibv_post_recv(queue_pair->device.qp, nic->receives, &refused)
                              : ibv_post_srq_recv(nic->srq, nic->receives, &refused);
    last->next = next;
    if (likely(os_error == 0)) {
        return count;
    }
    return refused ? (uint32_t)(refused - nic->receives) : 0;
}

/* Returns false if the device refuses one. There is room, so it has failed the queue pair, or is gone. */
static bool fill_up(struct verbs_nic *nic, struct verbs_queue_pair *queue_pair)
{
    while (queue_pair->receives_posted < queue_pair->receive_depth) {
        uint32_t missing = queue_pair->receive_depth - queue_pair->receives_posted;
        uint32_t wanted = missing < VERBS_REFILL_CHUNK ? missing : VERBS_REFILL_CHUNK;
        uint32_t taken = post_receives(nic, queue_pair, wanted);
        queue_pair->receives_posted += taken;
        nic->device.base.receive_wqes += taken;
        if (unlikely(taken < wanted)) {
            return false;
        }
    }
    return true;
}

/* What it was promised is not there, so the queue pair ends. An error in its name is put where poll finds it. */
static __attribute__((cold)) void refill_failed(struct verbs_nic *nic,
                                                struct verbs_queue_pair *queue_pair)
{
    const struct ibv_wc entry = {.qp_num = queue_pair->device.base.number,
                                 .status = IBV_WC_GENERAL_ERR,
                                 .opcode = IBV_WC_RECV};
    verbs_source_stash(&nic->receive, &entry);
    verbs_receives_stop(queue_pair);
    verbs_queue_pair_fail(&queue_pair->device.base);
}

static void refill_queue_pairs(struct verbs_nic *nic)
{
    while (!list_empty(&nic->short_of_receives)) {
        struct verbs_queue_pair *queue_pair =
            container_of(nic->short_of_receives.next, struct verbs_queue_pair, short_link);
        list_remove(&queue_pair->short_link);
        if (unlikely(queue_pair->device.base.failed)) {
            verbs_receives_stop(queue_pair);
        } else if (unlikely(!fill_up(nic, queue_pair))) {
            refill_failed(nic, queue_pair);
        }
    }
    nic->device.base.receives_posted = nic->device.base.receive_depth;
}

void verbs_refill(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    if (!nic->srq) {
        refill_queue_pairs(nic);
        return;
    }
    while (base->receives_posted < base->receive_depth) {
        uint32_t missing = base->receive_depth - base->receives_posted;
        uint32_t wanted = missing < VERBS_REFILL_CHUNK ? missing : VERBS_REFILL_CHUNK;
        uint32_t taken = post_receives(nic, NULL, wanted);
        base->receives_posted += taken;
        base->receive_wqes += taken;
        if (unlikely(taken < wanted)) {
            return; /* the device has no room yet; the next refill tries again */
        }
    }
}

/* ---- Receive queues of queue pairs ----------------------------------------------------------- */

void verbs_receives_begin(struct verbs_queue_pair *queue_pair)
{
    list_init(&queue_pair->short_link);
    to_verbs_nic(queue_pair->device.base.nic)->receives_given += queue_pair->receive_depth;
}

/* A queue pair takes receives from the state INIT on. Connecting it goes through that once more. */
int verbs_receives_make(struct verbs_queue_pair *queue_pair)
{
    return queue_pair->receive_depth > 0
               ? device_queue_pair_rights_to_init(&queue_pair->device.base)
               : 0;
}

/* Filling it takes no system call, and uses what refills use. */
int verbs_receives_adopt(struct verbs_queue_pair *queue_pair)
{
    return fill_up(to_verbs_nic(queue_pair->device.base.nic), queue_pair) ? 0 : ENOMEM;
}

void verbs_receives_stop(struct verbs_queue_pair *queue_pair)
{
    queue_pair->receives_stopped = true;
    list_remove(&queue_pair->short_link);
}

void verbs_receives_end(struct verbs_queue_pair *queue_pair)
{
    verbs_receives_stop(queue_pair);
    to_verbs_nic(queue_pair->device.base.nic)->receives_given -= queue_pair->receive_depth;
}

void verbs_receive_used(struct verbs_nic *nic, struct verbs_queue_pair *queue_pair)
{
    struct nic *base = &nic->device.base;
    queue_pair->receives_posted--;
    if (unlikely(queue_pair->receives_stopped)) {
        return;
    }
    list_append_once(&nic->short_of_receives, &queue_pair->short_link);
    if (queue_pair->receives_posted < nic_receives_of(queue_pair->receive_depth)) {
        base->receives_posted = 0;
    } else {
        base->receives_posted -= base->receives_posted != 0;
    }
}

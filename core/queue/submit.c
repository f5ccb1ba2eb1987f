/* submit.c: data path: ops to the device, and why they are refused. */
#include "queue/internal.h"

/* ---- Refusals -------------------------------------------------------------------------------- */

int32_t queue_no_room(struct queue *queue)
{
    queue->link.refused = true;
    list_append_once(&queue->engine->refused, &queue->refused_link);
    return CRPC_E_AGAIN;
}

static __attribute__((cold, noinline)) int32_t no_room(struct queue *queue, bool send)
{
    if (send) {
        queue->refused_send = true;
        queue->refused_at = queue->nic->sends.consumer;
    } else {
        queue->refused_receive = true;
    }
    return queue_no_room(queue);
}

/* The driver may have failed the queue, and nobody has polled since. */
__attribute__((cold, noinline)) int32_t queue_barred(int32_t bar)
{
    return bar != CRPC_OK ? bar : CRPC_E_DISCONNECTED;
}

static bool has_room(const struct queue *queue)
{
    const struct nic_queue *nic = queue->nic;
    return (queue->refused_send && nic->sends.consumer != queue->refused_at) ||
           (queue->refused_receive && nic->receives_open < nic->receives_max) ||
           (queue->refused_add && nic_tags_room(nic, NIC_TAG_ADD)) ||
           (queue->refused_command && nic_tags_room(nic, NIC_TAG_SYNC));
}

void queue_check_refused(struct queue_engine *engine)
{
    struct list *at = engine->refused.next;
    while (at != &engine->refused) {
        struct queue *queue = list_entry(at, struct queue, refused_link);
        at = at->next;
        if (has_room(queue)) {
            queue->refused_send = queue->refused_receive = false;
            queue->refused_add = queue->refused_command = false;
            list_remove(&queue->refused_link);
            link_report(&queue->link, LINK_EVENT_ROOM);
        }
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

uint32_t queue_submit(struct queue *queue, const struct nic_work *works, const uint32_t *local_keys,
                      const struct nic_piece *pieces, uint32_t count, int32_t *reason)
{
    if (unlikely(queue->send_bar != CRPC_OK || queue->nic->failed)) {
        *reason = queue_barred(queue->send_bar);
        return 0;
    }
    uint32_t taken = queue->operations->post(queue->nic, works, local_keys, pieces, count);
    if (unlikely(taken < count)) {
        *reason = no_room(queue, true);
    }
    return taken;
}

uint32_t queue_submit_to(struct queue *queue, const struct nic_work *works,
                         struct nic_target *const *targets, const uint32_t *local_keys,
                         const struct nic_piece *pieces, uint32_t count, int32_t *reason)
{
    assert(queue_has_targets(queue));
    if (unlikely(queue->send_bar != CRPC_OK || queue->nic->failed)) {
        *reason = queue_barred(queue->send_bar);
        return 0;
    }
    uint32_t taken =
        queue->operations->post_to(queue->nic, works, targets, local_keys, pieces, count);
    if (unlikely(taken < count)) {
        *reason = no_room(queue, true);
    }
    return taken;
}

uint32_t queue_receive(struct queue *queue, const struct nic_work *works,
                       const uint32_t *local_keys, const struct nic_piece *pieces, uint32_t count,
                       int32_t *reason)
{
    if (unlikely(queue->receive_bar != CRPC_OK || queue->nic->failed)) {
        *reason = queue_barred(queue->receive_bar);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct nic_piece one;
        uint32_t used;
        assert(works[i].opcode == NIC_RECEIVE);
        const struct nic_piece *list =
            nic_work_pieces(&works[i], local_keys[i], pieces, &one, &used);
        if (unlikely(!queue->operations->receive(queue->nic, works[i].user_data, list, used))) {
            *reason = no_room(queue, false);
            return i;
        }
    }
    return count;
}

void queue_submit_end(struct queue *queue)
{
    struct nic_queue *nic = queue->nic;
    if (unlikely(!nic || nic->stopped)) {
        return;
    }
    queue->operations->ring(nic);
    if (unlikely(nic->ended_first != NIC_QUEUE_NO_ENTRY)) { /* the device did not take them */
        list_append_once(&queue->engine->ended, &queue->ended_link);
    }
}

/* ---- Draining -------------------------------------------------------------------------------- */

void queue_post_nop(struct queue *queue)
{
    const struct nic_work work = {.opcode = NIC_NOP, .flags = NIC_WORK_SIGNAL};
    const uint32_t no_key = 0;
    struct nic_target *const nobody = NULL;
    assert(!queue->nop);
    uint32_t posted = queue_has_targets(queue)
                          ? queue->operations->post_to(queue->nic, &work, &nobody, &no_key, NULL, 1)
                          : queue->operations->post(queue->nic, &work, &no_key, NULL, 1);
    if (posted == 1) {
        queue->nop = true;
        queue->engine->nops++;
        queue->operations->ring(queue->nic);
    }
}

/* tags.c: data path: commands that concern tags, and up to which message the application has looked. */
#include "queue/internal.h"

/* Messages without a match that the device has told, and the application has not seen: they wait for the next poll.
 * Of a queue that was closed and had not ended yet, nobody knows which TM-SRQ it had. */
static __attribute__((cold, noinline)) uint32_t unseen(const struct queue *queue)
{
    const struct queue_engine *engine = queue->engine;
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->held_count; i++) {
        const crpc_completion *held = &engine->held[engine->held_first + i];
        const struct queue *from =
            handles_get(engine->links.handles, held->endpoint.bits, HANDLE_QUEUE);
        count += held->flags & NIC_DONE_SYNC &&
                 (!from || from == queue || from->srq_handle == queue->link.handle);
    }
    return count;
}

void queue_rename_held(const struct queue *queue)
{
    struct queue_engine *engine = queue->engine;
    const struct queue *srq = handles_get(engine->links.handles, queue->srq_handle, HANDLE_QUEUE);
    for (uint32_t i = 0; srq && i < engine->held_count; i++) {
        crpc_completion *held = &engine->held[engine->held_first + i];
        if (held->flags & NIC_DONE_SYNC && held->endpoint.bits == queue->link.handle) {
            held->endpoint.bits = queue->srq_handle;
            held->endpoint_user_data = srq->link.options.user_data;
        }
    }
}

static bool command(struct queue *queue, const struct nic_work *given, uint32_t local_key)
{
    const struct nic_piece piece = {
        .address = given->address, .bytes = given->bytes, .local_key = local_key};
    struct nic_work work = *given;
    if (work.opcode == NIC_TAG_SYNC) {
        work.immediate = unlikely(queue->engine->held_count > 0) ? unseen(queue) : 0;
    }
    return queue->operations->tag(queue->nic, &work, piece.bytes > 0 ? &piece : NULL);
}

uint32_t queue_tag(struct queue *queue, const struct nic_work *works, const uint32_t *local_keys,
                   uint32_t count, int32_t *reason)
{
    if (unlikely(queue->options.kind != NIC_QUEUE_TM_SRQ)) {
        *reason = CRPC_E_UNSUPPORTED;
        return 0;
    }
    if (unlikely(queue->receive_bar != CRPC_OK || queue->nic->failed)) {
        *reason = queue_barred(queue->receive_bar);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        assert(works[i].opcode >= NIC_TAG_ADD && works[i].opcode <= NIC_TAG_SYNC &&
               works[i].immediate == 0 && !(works[i].flags & NIC_WORK_PIECES));
        if (unlikely(!command(queue, &works[i], local_keys[i]))) {
            queue->refused_add |= works[i].opcode == NIC_TAG_ADD;
            queue->refused_command |= works[i].opcode != NIC_TAG_ADD;
            *reason = queue_no_room(queue);
            return i;
        }
    }
    return count;
}

/* queue_completion.c: completions of queues with user data.
 *
 * Two rings have what the devices have in their completion queues. An entry stays until all that it
 * completes has been reported. */
#include "nic/memory/tags.h"

#include <stdlib.h>

/* ---- Writing --------------------------------------------------------------------------------- */

static struct memory_queue_completion *entry_at(const struct memory_queue_completions *ring,
                                                uint32_t index)
{
    return &ring->entries[index & ring->mask];
}

static void grow(struct memory_queue_completions *ring)
{
    const uint32_t entries = ring->entries ? 2 * (ring->mask + 1) : 64;
    struct memory_queue_completions larger = {
        .entries = memory_allocate(entries, sizeof(*larger.entries)), .mask = entries - 1};

    while (ring->head != ring->tail) {
        *entry_at(&larger, larger.tail++) = *entry_at(ring, ring->head++);
    }
    free(ring->entries);
    *ring = larger;
}

static void add(struct memory_nic *nic, struct memory_queue_completions *ring,
                const struct memory_queue_completion *completion)
{
    if (!ring->entries || ring->tail - ring->head > ring->mask) {
        grow(ring);
    }
    *entry_at(ring, ring->tail++) = *completion;
    memory_event(nic);
}

/* What completes in any order does so here. */
static void shuffle(struct memory_fabric *fabric, struct memory_queue_completions *ring)
{
    uint32_t last = ring->tail - 1;

    while (last != ring->head && !memory_immediate(fabric) && random_percent(&fabric->random, 50)) {
        struct memory_queue_completion *one = entry_at(ring, last);
        struct memory_queue_completion *before = entry_at(ring, last - 1);
        const struct memory_queue_completion kept = *before;
        if (before->queue != one->queue) {
            return;
        }
        *before = *one;
        *one = kept;
        last--;
    }
}

void memory_queue_complete_send(struct memory_queue_pair *queue_pair, uint32_t number,
                                enum nic_error status)
{
    struct memory_nic *nic = queue_pair->nic;
    const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    const struct memory_queue_completion completion = {
        .queue = queue_pair->queue,
        .place = number,
        .bytes = wqe->opcode == MEMORY_READ ? wqe->transfer.bytes : 0,
        .kind = wqe->flags,
        .missed = wqe->missed,
        .status = (uint8_t)status};

    add(nic, &nic->queue_sends, &completion);
    if (queue_pair->queue->base.table == NIC_TABLE_UNORDERED && status == NIC_ERROR_NONE &&
        queue_pair->queue->base.streams == 0) { /* streams have an order of their own */
        shuffle(queue_pair->fabric, &nic->queue_sends);
    }
}

void memory_queue_complete_receive(struct memory_queue_pair *queue_pair,
                                   const struct memory_arrival *arrival, enum nic_error status)
{
    const struct memory_queue_completion completion = {.queue = queue_pair->queue,
                                                       .place = arrival->receive,
                                                       .immediate = arrival->immediate,
                                                       .bytes = arrival->bytes,
                                                       .flags = arrival->flags,
                                                       .written = arrival->written,
                                                       .source = arrival->source,
                                                       .kind = arrival->tagged,
                                                       .context = arrival->context,
                                                       .tag = arrival->tag,
                                                       .status = (uint8_t)status};

    add(queue_pair->nic, &queue_pair->nic->queue_receives, &completion);
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void describe(const struct memory_queue_completion *entry, const struct nic_queue *queue,
                     const struct tracking_done *done, crpc_completion *completion)
{
    if (nic_opcode_is_atomic(done->opcode) && completion->status == CRPC_OK) {
        completion->token = queue->results[done->position & queue->sends.mask];
    }
    if (done->signaled) {
        completion->flags |= NIC_DONE_DETAIL;
        completion->payload_bytes = completion->status == CRPC_OK ? entry->bytes : 0;
    }
}

/* Reports what an entry completes. Returns false if there was no room for all of it. */
static bool complete_sends(const struct memory_queue_completion *entry,
                           crpc_completion *completions, uint32_t capacity, uint32_t *count,
                           uint32_t *errors)
{
    struct nic_queue *queue = &entry->queue->base;
    struct tracking *tracking = &queue->sends;
    const bool dense = queue->table == NIC_TABLE_DENSE;
    uint32_t position;

    memory_require(tracking_find(tracking, (uint16_t)entry->place, &position) &&
                       position == entry->place,
                   "position %u of queue %p is not posted", entry->place, (void *)queue);
    while (dense ? (int32_t)(position - tracking->consumer) >= 0
                 : tracking_at(tracking, position)->state != TRACKING_FREE) {
        const bool last = !dense || tracking->consumer == position;
        const bool shown = dense || entry->status != NIC_ERROR_NONE ||
                           tracking_at(tracking, position)->state == TRACKING_SIGNALED;
        struct tracking_done done;
        int32_t status = -entry->status;
        if (!last && entry->status != NIC_ERROR_FLUSHED) {
            status = CRPC_OK;
        }
        if (shown && *count == capacity) {
            return false;
        }
        if (dense) {
            memory_require(tracking_dense_next(tracking, position, &done), "there are no fillers");
        } else {
            done = queue->table == NIC_TABLE_SPARSE ? tracking_sparse_take(tracking, position)
                                                    : tracking_unordered_take(tracking, position);
        }
        if (shown) {
            crpc_completion *completion = &completions[(*count)++];
            nic_queue_done(completion, queue, done.opcode, done.user_data, status);
            describe(entry, queue, &done, completion);
            *errors += status != CRPC_OK;
        }
    }
    return true;
}

static uint32_t poll_sends(struct memory_nic *nic, crpc_completion *completions, uint32_t capacity,
                           uint32_t *errors)
{
    struct memory_queue_completions *ring = &nic->queue_sends;
    uint32_t count = 0;

    for (; ring->head != ring->tail; ring->head++) {
        const struct memory_queue_completion *entry = entry_at(ring, ring->head);
        struct memory_queue *queue = entry->queue;
        if (!queue) {
            continue;
        }
        if (queue->tags) {
            if (!memory_tags_done(entry, completions, capacity, &count, errors)) {
                break;
            }
            continue;
        }
        if (entry->status != NIC_ERROR_NONE) {
            nic_queue_send_failed(&queue->base, entry->place, entry->status);
        }
        if (!complete_sends(entry, completions, capacity, &count, errors)) {
            break;
        }
        queue->pair->base.completed = queue->base.sends.consumer;
        queue->pair->base.failed = queue->base.failed;
    }
    return count;
}

static uint32_t poll_receives(struct memory_nic *nic, crpc_completion *completions,
                              uint32_t capacity, uint32_t *errors)
{
    struct memory_queue_completions *ring = &nic->queue_receives;
    uint32_t count = 0;

    for (; count < capacity && ring->head != ring->tail; ring->head++) {
        const struct memory_queue_completion *entry = entry_at(ring, ring->head);
        crpc_completion *completion = &completions[count];
        struct nic_queue *receiver;
        uint64_t user_data;
        if (!entry->queue) {
            continue;
        }
        receiver = entry->queue->base.receiver;
        if (memory_tags_is_match(entry->kind)) {
            memory_tags_message(entry, completions, capacity, &count, errors);
            continue;
        }
        memory_require(tracking_receive_take(&receiver->receives, entry->place, &user_data),
                       "receive %u of queue %p is not posted", entry->place, (void *)receiver);
        receiver->receives_open--;
        memory_queue_operations.give_back(receiver, entry->place);
        nic_queue_done(completion, &entry->queue->base, NIC_RECEIVE, user_data, -entry->status);
        completion->flags |= (uint8_t)(NIC_DONE_DETAIL | entry->flags);
        nic_queue_received(completion, entry->bytes, entry->written);
        completion->reply_bytes_max = entry->immediate;
        if (entry->flags & NIC_DONE_GRH) {
            completion->token = nic_source_token(entry->source, 0, 0);
        } else if (entry->queue->base.kind == NIC_QUEUE_DCT && entry->status == NIC_ERROR_NONE) {
            nic_queue_received_from(completion, entry->source);
        }
        if (entry->status != NIC_ERROR_NONE) {
            entry->queue->base.failed |= entry->queue->base.kind != NIC_QUEUE_DCT;
            ++*errors;
        } else if (entry->kind == MEMORY_TAG_UNEXPECTED) {
            nic_tags_unexpected(receiver, completion);
        }
        count++;
    }
    return count;
}

uint32_t memory_queue_poll(struct nic *base, crpc_completion *completions, uint32_t capacity,
                           uint32_t *errors)
{
    struct memory_nic *nic = memory_nic(base);
    uint32_t count;

    *errors = 0;
    if (nic->fabric->active_count > 0 && memory_immediate(nic->fabric)) {
        memory_fabric_step(nic->fabric);
    }
    if (nic->queue_sends_first) { /* receives had filled the array */
        count = poll_sends(nic, completions, capacity, errors);
        nic->queue_sends_first = false;
        return count + poll_receives(nic, completions + count, capacity - count, errors);
    }
    count = poll_receives(nic, completions, capacity, errors);
    nic->queue_sends_first = count == capacity;
    return count + poll_sends(nic, completions + count, capacity - count, errors);
}

/* ---- Forgetting, when a queue is stopped ----------------------------------------------------- */

/* Receives of an SRQ complete all the same. */
void memory_queue_completions_forget(struct memory_queue *queue)
{
    struct memory_queue_completions *rings[] = {&queue->nic->queue_sends,
                                                &queue->nic->queue_receives};
    struct nic_queue *receiver = queue->base.receiver;

    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = rings[k]->head; i != rings[k]->tail; i++) {
            struct memory_queue_completion *entry = entry_at(rings[k], i);
            if (entry->queue != queue) {
                continue;
            }
            entry->queue = NULL;
            if (k == 1 && receiver != &queue->base) {
                memory_tags_forget(receiver, entry->kind, entry->place);
            }
        }
    }
}

/* completion.c: completion queues, poll, events, and the receives of the SRQ.
 *
 * What is in a completion queue has happened as far as software can know. A queue that is full
 * loses what comes next: that is counted; on hardware the whole queue would be broken.
 */
#include "nic/memory/internal.h"

#include <errno.h>
#include <unistd.h>

void memory_completion_queue_create(struct memory_completion_queue *queue, uint32_t capacity)
{
    uint32_t entries = 1;

    while (entries < capacity) {
        entries *= 2;
    }
    queue->capacity = capacity;
    queue->mask = entries - 1;
    queue->entries = memory_allocate(entries, sizeof(*queue->entries));
}

/* The entry to fill, NULL if the queue is full. */
static struct memory_completion *queue_add(struct memory_completion_queue *queue,
                                           uint64_t *overflows)
{
    if (unlikely(queue->tail - queue->head >= queue->capacity)) {
        ++*overflows;
        return NULL;
    }
    return &queue->entries[queue->tail++ & queue->mask];
}

static void event_raise(struct memory_nic *nic)
{
    const uint64_t one = 1;

    nic->armed = false;
    memory_require(write(nic->base.event_fd, &one, sizeof(one)) == sizeof(one),
                   "cannot write to the eventfd: %m");
}

void memory_event(struct memory_nic *nic)
{
    if (unlikely(nic->armed)) {
        event_raise(nic);
    }
}

void memory_complete_send(struct memory_queue_pair *queue_pair, uint32_t number,
                          enum nic_error status)
{
    struct memory_nic *nic = queue_pair->nic;
    struct memory_completion *completion;

    if (unlikely(queue_pair->queue)) {
        memory_queue_complete_send(queue_pair, number, status);
        return;
    }
    completion = queue_add(&nic->send_completions, &nic->fabric->counters.send_overflows);
    if (!completion) {
        return;
    }
    completion->queue_pair = queue_pair;
    completion->receive = false;
    completion->shown = (struct nic_completion){
        .queue_pair_number = queue_pair->base.number,
        .kind = status == NIC_ERROR_NONE ? NIC_COMPLETION_SEND : NIC_COMPLETION_ERROR,
        .status = (uint8_t)status,
        .completed = number + 1,
    };
    if (unlikely(nic->armed)) {
        event_raise(nic);
    }
}

void memory_complete_receive(struct memory_queue_pair *queue_pair, uint32_t immediate,
                             uint32_t bytes, uint64_t covers)
{
    struct memory_nic *nic = queue_pair->nic;
    struct memory_completion *completion =
        queue_add(&nic->receive_completions, &nic->fabric->counters.receive_overflows);

    if (!completion) {
        return;
    }
    completion->queue_pair = queue_pair;
    completion->receive = true;
    completion->covers = covers;
    completion->shown = (struct nic_completion){
        .queue_pair_number = queue_pair->base.number,
        .kind = NIC_COMPLETION_RECEIVE,
        .immediate = immediate,
        .byte_count = bytes,
    };
    if (unlikely(nic->armed)) {
        event_raise(nic);
    }
}

/* ---- Poll ------------------------------------------------------------------------------------ */

static bool queue_empty(const struct memory_completion_queue *queue)
{
    return queue->head == queue->tail;
}

/* Two queues have no order between each other: which is next is chance, or turn and turn about. */
static struct memory_completion_queue *queue_choose(struct memory_nic *nic)
{
    struct memory_completion_queue *first =
        nic->sends_first ? &nic->send_completions : &nic->receive_completions;
    struct memory_completion_queue *second =
        nic->sends_first ? &nic->receive_completions : &nic->send_completions;

    if (!memory_immediate(nic->fabric)) {
        nic->sends_first = random_percent(&nic->fabric->random, 50);
    }
    if (!queue_empty(first)) {
        return first;
    }
    return queue_empty(second) ? NULL : second;
}

static void initiator_done(struct memory_nic *nic, struct nic_initiator *initiator, uint8_t kind)
{
    if (kind == NIC_COMPLETION_ERROR) {
        nic_initiators_fail(&nic->initiators, initiator);
    } else {
        nic_initiators_complete(&nic->initiators, initiator);
    }
}

static void receive_used(struct memory_queue_pair *queue_pair)
{
    struct nic *nic = &queue_pair->nic->base;

    if (nic->receive_queue_max == 0) {
        nic->receives_posted--;
    } else if (--queue_pair->receives_posted < nic_receives_of(queue_pair->receive_depth)) {
        nic->receives_posted = 0;
    } else {
        nic->receives_posted -= nic->receives_posted != 0;
    }
}

static void completion_take(struct memory_nic *nic, const struct memory_completion *taken,
                            struct nic_completion *shown)
{
    struct nic_queue_pair *queue_pair = &taken->queue_pair->base;

    *shown = taken->shown;
    if (taken->receive) {
        receive_used(taken->queue_pair);
        memory_held_land(taken->queue_pair, taken->covers);
    } else {
        queue_pair->completed = shown->completed;
    }
    if (unlikely(shown->kind == NIC_COMPLETION_ERROR)) {
        memory_held_land(taken->queue_pair, UINT64_MAX);
        shown->completed = queue_pair->completed;
        queue_pair->failed = true;
        queue_pair->place = NULL;
    }
    if (taken->queue_pair->dynamic.initiator && !taken->receive) {
        initiator_done(nic, taken->queue_pair->dynamic.initiator, shown->kind);
    }
}

uint32_t memory_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_completion_queue *queue;
    uint32_t count = 0;

    if (unlikely(nic->fabric->active_count > 0) && memory_immediate(nic->fabric)) {
        memory_fabric_step(nic->fabric);
    }
    nic->sends_first = !nic->sends_first;
    while (count < capacity && (queue = queue_choose(nic)) != NULL) {
        completion_take(nic, &queue->entries[queue->head++ & queue->mask], &completions[count++]);
    }
    base->completions += count;
    return count;
}

/* ---- Forgetting, when a queue pair is destroyed ---------------------------------------------- */

/* Closes the gaps; returns how many were taken out. */
static uint32_t queue_forget(struct memory_completion_queue *queue,
                             const struct memory_queue_pair *queue_pair)
{
    const uint32_t tail = queue->tail;

    queue->tail = queue->head;
    for (uint32_t i = queue->head; i != tail; i++) {
        const struct memory_completion *entry = &queue->entries[i & queue->mask];
        if (entry->queue_pair != queue_pair) {
            queue->entries[queue->tail++ & queue->mask] = *entry;
        }
    }
    return tail - queue->tail;
}

/* The receives that were used are to be posted again, although nobody polls their completions. */
void memory_completions_forget(struct memory_queue_pair *queue_pair)
{
    struct memory_nic *nic = queue_pair->nic;
    struct memory_arrival *arrival;

    uint32_t used = queue_forget(&nic->receive_completions, queue_pair);

    memory_held_land(queue_pair, UINT64_MAX);
    queue_forget(&nic->send_completions, queue_pair);
    while ((arrival = queue_pair->arrivals) != NULL) {
        queue_pair->arrivals = arrival->next;
        arrival->next = nic->free_arrivals;
        nic->free_arrivals = arrival;
        used++;
    }
    nic->base.receives_posted -= nic->base.receive_queue_max ? 0 : used; /* or they go with it */
    queue_pair->arrivals_end = &queue_pair->arrivals;
}

/* ---- Receives and events --------------------------------------------------------------------- */

static void refill_own(struct memory_nic *nic)
{
    struct memory_queue_pair *queue_pair;

    for (queue_pair = nic->queue_pairs; queue_pair; queue_pair = queue_pair->next) {
        const uint32_t posted = queue_pair->receive_depth - queue_pair->receives_posted;
        queue_pair->receives += posted;
        queue_pair->receives_posted += posted;
        nic->base.receive_wqes += posted;
    }
    nic->base.receives_posted = nic->base.receive_depth;
}

void memory_refill(struct nic *nic)
{
    const uint32_t posted = nic->receive_depth - nic->receives_posted;

    if (nic->receive_queue_max) {
        refill_own(memory_nic(nic));
        return;
    }
    memory_nic(nic)->receives += posted;
    nic->receives_posted += posted;
    nic->receive_wqes += posted;
}

/* As on hardware, completions that are in the queues already raise no event: poll after arming. */
int memory_arm(struct nic *nic)
{
    int32_t status;

    if (memory_planned_failure(memory_nic(nic)->fabric, MEMORY_FAIL_ARM, &status, NULL)) {
        return EIO;
    }
    memory_nic(nic)->armed = true;
    return 0;
}

void memory_disarm(struct nic *nic)
{
    uint64_t events;

    while (read(nic->event_fd, &events, sizeof(events)) == (ssize_t)sizeof(events)) {
    }
}

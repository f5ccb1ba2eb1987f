/* progress.c: queue pairs that stand still. The transport's retries end a connection whose peer is gone,
 * but not one whose peer has posted no receives: those it repeats for ever.
 */
#include "link/internal.h"
#include "nic/initiators.h"

/* What is behind the last signaled WQE makes no completion, so it says nothing. */
bool link_awaits_completion(const struct nic_queue_pair *queue_pair)
{
    return queue_pair->posted - queue_pair->completed > queue_pair->unsignaled;
}

bool link_stuck(struct link_progress *progress, const struct nic_queue_pair *queue_pair)
{
    bool moved = progress->completed != queue_pair->completed;
    progress->completed = queue_pair->completed;
    if (moved || queue_pair->failed || !link_awaits_completion(queue_pair)) {
        progress->intervals = 0;
        return false;
    }
    return ++progress->intervals > LINK_STUCK_INTERVALS;
}

bool link_take_room(struct link *link)
{
    const bool room = nic_take_room(link->queue_pair);
    link->group->attention |= nic_grants_wait(link->group->nic);
    return room;
}

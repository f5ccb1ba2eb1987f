/* source.c: cold path of a completion source: opening, closing, and taking the completions of one
 * queue pair out of the middle.
 *
 * The stash has as many entries as the CQ, and that is enough: what is stashed and what is in the
 * CQ together are completions of WQEs that the owner still counts as outstanding, and it keeps
 * those within the depth of the CQ.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "nic/verbs/verbs.h"

bool verbs_source_open(struct verbs_source *source, struct verbs_nic *nic, uint32_t depth)
{
    source->cq = ibv_create_cq(nic->device.context, (int)depth, nic, nic->device.channel,
                               (int)nic->device.base.completion_vector);
    if (!source->cq) {
        return false;
    }
    source->depth = (uint32_t)source->cq->cqe;
    source->stash = lines_alloc(source->depth, sizeof(*source->stash));
    if (!source->stash) {
        errno = ENOMEM;
        return false;
    }
    return true;
}

void verbs_source_close(struct verbs_source *source)
{
    if (source->cq) {
        device_destroy_cq(source->cq, source->events_unacked);
    }
    free(source->stash);
    *source = (struct verbs_source){0};
}

uint32_t verbs_source_unstash(struct verbs_source *source, struct ibv_wc *entries,
                              uint32_t capacity)
{
    uint32_t count = source->stash_count < capacity ? source->stash_count : capacity;
    memcpy(entries, source->stash + source->stash_first, count * sizeof(*entries));
    source->stash_first += count;
    source->stash_count -= count;
    if (source->stash_count == 0) {
        source->stash_first = 0;
    }
    return count;
}

/* Makes room at the end; returns how much there is. */
static uint32_t stash_room(struct verbs_source *source)
{
    if (source->stash_first != 0) {
        memmove(source->stash, source->stash + source->stash_first,
                source->stash_count * sizeof(*source->stash));
        source->stash_first = 0;
    }
    return source->depth - source->stash_count;
}

bool verbs_source_stash(struct verbs_source *source, const struct ibv_wc *entry)
{
    if (stash_room(source) == 0) {
        return false;
    }
    source->stash[source->stash_count++] = *entry;
    return true;
}

/* Keeps those of `count` new entries at the end of the stash that are not the queue pair's. */
static uint32_t keep_others(struct verbs_source *source, uint32_t count, uint32_t queue_pair_number,
                            verbs_dropped *dropped, void *argument)
{
    struct ibv_wc *from = source->stash + source->stash_count;
    struct ibv_wc *end = from + count;
    struct ibv_wc *to = from;
    for (; from < end; from++) {
        if (from->qp_num != queue_pair_number) {
            *to++ = *from;
        } else if (dropped) {
            dropped(argument, from);
        }
    }
    source->stash_count = (uint32_t)(to - source->stash);
    return (uint32_t)(end - to);
}

/* Looks at no more entries than a CQ can have held when this began, since others may go on adding.
 */
uint32_t verbs_source_drop(struct verbs_source *source, uint32_t queue_pair_number,
                           verbs_dropped *callback, void *argument)
{
    stash_room(source);
    uint32_t stashed = source->stash_count;
    source->stash_count = 0;
    uint32_t dropped = keep_others(source, stashed, queue_pair_number, callback, argument);

    uint32_t left = source->depth;
    uint32_t room = source->depth - source->stash_count;
    while (left > 0 && room > 0) {
        uint32_t wanted = left < VERBS_POLL_CHUNK ? left : VERBS_POLL_CHUNK;
        wanted = wanted < room ? wanted : room;
        int taken = ibv_poll_cq(source->cq, (int)wanted, source->stash + source->stash_count);
        if (taken <= 0) {
            break;
        }
        dropped += keep_others(source, (uint32_t)taken, queue_pair_number, callback, argument);
        left -= (uint32_t)taken;
        room = source->depth - source->stash_count;
    }
    return dropped;
}

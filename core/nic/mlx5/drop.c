/* drop.c: completions of a queue pair that is gone. They stay where they are, since a completion
 * queue can only be read from its front, but say so when their turn comes: its number may be
 * another's by then. */
#include <endian.h>

#include "nic/mlx5/completion_queue.h"

static void drop_if(struct mlx5_cqe64 *entry, uint32_t number)
{
    if (completion_number(entry) == number) {
        entry->op_own = (uint8_t)(COMPLETION_DROPPED << 4 | (entry->op_own & 0x0f));
    }
}

static bool is_compressed(const struct mlx5_cqe64 *entry)
{
    return (entry->op_own & COMPLETION_FORMAT_MASK) == COMPLETION_FORMAT_COMPRESSED;
}

/* Places that the entry at `index` and what belongs to it take. */
static uint32_t places(const struct completion_queue *queue, const struct mlx5_cqe64 *entry)
{
    if (queue->layout == COMPLETION_PLAIN || !is_compressed(entry)) {
        return 1;
    }
    uint32_t count =
        queue->layout == COMPLETION_ENHANCED ? (entry->op_own >> 4) + 1u : be32toh(entry->byte_cnt);
    return count >= 1 && count <= queue->mask + 1 ? count : 1;
}

void completion_queue_drop(struct completion_queue *queue, uint32_t number)
{
    uint32_t index = queue->consumer;
    if (queue->block.count != 0) {
        index = queue->block.first + queue->block.count;
        drop_if(&queue->expanded, number);
    } else if (queue->layout == COMPLETION_ENHANCED && index != 0) {
        /* What comes next may be an array, whose title this is. */
        drop_if(queue->block.titled ? &queue->expanded : completion_queue_at(queue, index - 1),
                number);
    }
    uint32_t end = queue->consumer + queue->mask + 1;
    while (index != end) {
        struct mlx5_cqe64 *entry = completion_queue_at(queue, index);
        if (!completion_is_ours(entry, index >> queue->laps,
                                (enum completion_layout)queue->layout)) {
            break;
        }
        barrier_after_owner();
        bool array = queue->layout == COMPLETION_ENHANCED && is_compressed(entry);
        uint32_t taken = places(queue, entry);
        if (!array) { /* an array has mini CQEs where a CQE has a number; its title was dropped */
            drop_if(entry, number);
        }
        index = end - index < taken ? end : index + taken;
    }
}

/* The number of entries that the device has written. */
static uint32_t present(const struct completion_queue *queue)
{
    uint32_t count = 0;
    while (count <= queue->mask &&
           completion_is_ours(completion_queue_at(queue, queue->consumer + count),
                              (queue->consumer + count) >> queue->laps, COMPLETION_PLAIN)) {
        count++;
    }
    barrier_after_owner();
    return count;
}

/* Moves an entry to a later place, which has an owner bit of its own. */
static void move(struct mlx5_cqe64 *to, const struct mlx5_cqe64 *from)
{
    uint8_t owner = to->op_own & MLX5_CQE_OWNER_MASK;
    *to = *from;
    to->op_own = (uint8_t)((from->op_own & ~MLX5_CQE_OWNER_MASK) | owner);
}

/* The others move towards the end, so that the room is at the front, which the reader can pass. */
void completion_queue_remove(struct completion_queue *queue, uint32_t number,
                             completion_removed *removed, void *argument)
{
    uint32_t end = queue->consumer + present(queue);
    uint32_t place = end;
    for (uint32_t index = queue->consumer; index != end; index++) {
        const struct mlx5_cqe64 *entry = completion_queue_at(queue, index);
        if (completion_number(entry) == number) {
            removed(argument, entry);
        }
    }
    for (uint32_t index = end; index-- != queue->consumer;) {
        const struct mlx5_cqe64 *entry = completion_queue_at(queue, index);
        if (completion_number(entry) != number && --place != index) {
            move(completion_queue_at(queue, place), entry);
        }
    }
    while (queue->consumer != place) {
        completion_queue_advance(queue, COMPLETION_PLAIN);
    }
    completion_queue_release(queue);
}

void completion_queue_skip_dropped(struct completion_queue *queue)
{
    const enum completion_layout layout = (enum completion_layout)queue->layout;
    const struct mlx5_cqe64 *entry;
    while ((entry = completion_queue_next(queue, layout)) != NULL &&
           completion_opcode(entry) == COMPLETION_DROPPED) {
        completion_queue_advance(queue, layout);
    }
    completion_queue_release(queue);
}

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

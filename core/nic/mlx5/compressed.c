/* compressed.c: gives the completions of a compressed block one by one.
 *
 * What the blocks look like, and where that is known from: docs/cqe-compression.md. Which field of the title a mini CQE replaces:
 *
 *   requester                     byte_cnt, wqe_counter and the WQE's opcode
 *   responder, HASH               byte_cnt, rx_hash_result (which RDMA has no use for)
 *   responder, CHECKSUM           byte_cnt, check_sum
 *   responder, CHECKSUM + STRIDE  byte_cnt, check_sum, wqe_counter
 *
 * A responder without a counter in its mini CQEs counts on from the title.
 */
#include <endian.h>
#include <string.h>

#include "nic/mlx5/completion_queue.h"

#define CHECKSUM_OFFSET 20 /* of check_sum in a CQE; mlx5dv does not name it */

struct mini {
    uint16_t checksum_or_counter; /* requester: the counter; responder: the checksum */
    union {
        uint16_t counter; /* responder with strides */
        struct {
            uint8_t opcode; /* requester */
            uint8_t zero;
        };
    };
    uint32_t byte_count;
};

void completion_queue_init(struct completion_queue *queue)
{
    for (uint32_t i = 0; i <= queue->mask; i++) {
        struct mlx5_cqe64 *entry = completion_queue_at(queue, i);
        entry->signature = 0xff;
        entry->op_own = MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK;
    }
    queue->stride = 1u << queue->shift;
    queue->end = queue->entries + ((size_t)(queue->mask + 1) << queue->shift);
    completion_queue_start(queue, 0);
}

void completion_queue_start(struct completion_queue *queue, uint32_t index)
{
    queue->consumer = index;
    queue->released = index;
    queue->place = (uint8_t *)completion_queue_at(queue, index);
    queue->lap = (uint8_t)(index >> queue->laps);
}

static bool begin_plain(struct completion_queue *queue, const struct mlx5_cqe64 *entry)
{
    struct completion_block *block = &queue->block;
    queue->expanded = *entry;
    block->count = be32toh(entry->byte_cnt);
    block->counter = be16toh(entry->wqe_counter);
    return block->count >= 1 && block->count <= queue->mask + 1;
}

void completion_queue_keep_title(struct completion_queue *queue)
{
    struct completion_block *block = &queue->block;
    if (block->titled) {
        return;
    }
    queue->expanded = *completion_queue_at(queue, queue->consumer - 1);
    block->counter = be16toh(queue->expanded.wqe_counter);
    block->titled = true;
}

static bool begin_enhanced(struct completion_queue *queue, const struct mlx5_cqe64 *entry)
{
    struct completion_block *block = &queue->block;
    if (!block->titled && queue->consumer == 0) {
        return false; /* nothing was before it */
    }
    completion_queue_keep_title(queue);
    block->counter++;
    block->count = (entry->op_own >> 4) + 1u;
    return block->count <= COMPLETION_MINIS_ENHANCED;
}

static bool begin(struct completion_queue *queue, const struct mlx5_cqe64 *entry)
{
    queue->block.first = queue->consumer;
    queue->block.taken = 0;
    bool possible = queue->layout == COMPLETION_ENHANCED ? begin_enhanced(queue, entry)
                                                         : begin_plain(queue, entry);
    if (!possible) {
        queue->block.count = 0;
        queue->block.titled = false;
        queue->expanded.op_own = MLX5_CQE_INVALID << 4;
        return false;
    }
    queue->expanded.op_own &= (uint8_t)~COMPLETION_FORMAT_MASK;
    queue->blocks++;
    return true;
}

static struct mini load(const struct completion_queue *queue)
{
    const struct completion_block *block = &queue->block;
    uint32_t place = block->first;
    uint32_t within = block->taken;
    if (queue->layout != COMPLETION_ENHANCED) {
        uint32_t array = block->taken / COMPLETION_MINIS_PLAIN;
        place += array ? array * COMPLETION_MINIS_PLAIN : 1;
        within %= COMPLETION_MINIS_PLAIN;
    }
    struct mini mini;
    memcpy(&mini, (const uint8_t *)completion_queue_at(queue, place) + within * sizeof(mini),
           sizeof(mini));
    return mini;
}

static void fill(struct completion_queue *queue, const struct mini *mini)
{
    struct mlx5_cqe64 *entry = &queue->expanded;
    entry->byte_cnt = mini->byte_count;
    if (completion_opcode(entry) == MLX5_CQE_REQ) {
        entry->wqe_counter = mini->checksum_or_counter;
        entry->sop_drop_qpn = htobe32((uint32_t)mini->opcode << 24 | completion_number(entry));
        return;
    }
    entry->wqe_counter = htobe16((uint16_t)(queue->block.counter + queue->block.taken));
    if (queue->mini & (COMPLETION_MINI_CHECKSUM | COMPLETION_MINI_STRIDE)) {
        memcpy((uint8_t *)entry + CHECKSUM_OFFSET, &mini->checksum_or_counter,
               sizeof(mini->checksum_or_counter));
    }
    if (queue->mini & COMPLETION_MINI_STRIDE) {
        entry->wqe_counter = mini->counter;
    }
}

const struct mlx5_cqe64 *completion_queue_expand(struct completion_queue *queue,
                                                 const struct mlx5_cqe64 *entry)
{
    if (queue->block.count == 0 && !begin(queue, entry)) {
        return &queue->expanded;
    }
    struct mini mini = load(queue);
    fill(queue, &mini);
    return &queue->expanded;
}

/* The device wrote an owner bit or iteration count in the first place of a block (enhanced: of an
 * array) only; the others have mini CQEs, or what they had: maybe the owner bit of the lap that is
 * next, or the iteration count of one 256 laps ago. Marked as of this lap, none of them will be
 * taken for an entry. */
void completion_queue_end_block(struct completion_queue *queue)
{
    struct completion_block *block = &queue->block;
    for (uint32_t i = 0; i < block->count; i++) {
        struct mlx5_cqe64 *entry = completion_queue_at(queue, block->first + i);
        uint32_t lap = (block->first + i) >> queue->laps;
        if (queue->layout == COMPLETION_ENHANCED) {
            entry->signature = (uint8_t)lap;
        } else {
            entry->op_own = (uint8_t)(MLX5_CQE_INVALID << 4 | (lap & MLX5_CQE_OWNER_MASK));
        }
    }
    if (queue->layout == COMPLETION_ENHANCED) {
        block->counter = (uint16_t)(block->counter + block->count - 1);
    }
    block->count = 0;
}

void completion_queue_arm(struct completion_queue *queue, bool solicited)
{
    uint32_t command = solicited ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;
    uint32_t word = (queue->arm_sequence & 3) << 28 | command | (queue->consumer & 0xffffffu);
    uint64_t doorbell = htobe64((uint64_t)word << 32 | queue->number);
    *(volatile uint32_t *)(queue->record + 1) = htobe32(word);
    barrier_before_doorbell();
    *(volatile uint64_t *)(void *)(queue->doorbell + MLX5_CQ_DOORBELL) = doorbell;
    barrier_after_doorbell();
}

void completion_queue_event(struct completion_queue *queue)
{
    queue->arm_sequence++;
}

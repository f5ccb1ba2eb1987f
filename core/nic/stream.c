/* stream.c: streams of a DCI, as far as they have to do with no device: which have failed.
 *
 * A completion with an error says so of its stream. The device counts, too, and fails the queue when there are
 * too many; so counting tells both cases apart without asking it. That ops are flushed whose stream has not
 * failed says the same. */
#include "base/error.h"
#include "nic/queue.h"

#define WORD_BITS 64u

uint32_t nic_queue_grant_failures(struct nic_queue *queue, uint32_t exponent_max)
{
    const uint32_t wanted = queue->stream_failures_max;
    uint32_t exponent = 0;
    while (exponent < exponent_max && (1u << exponent) - 1 < wanted) {
        exponent++;
    }
    queue->stream_failures_max = (1u << exponent) - 1;
    return exponent;
}

static uint64_t *word_of(const struct nic_queue *queue, uint16_t stream)
{
    return &queue->failed_streams[stream / WORD_BITS];
}

bool nic_queue_stream_failed(const struct nic_queue *queue, uint16_t stream)
{
    return *word_of(queue, stream) >> stream % WORD_BITS & 1;
}

void nic_queue_send_failed(struct nic_queue *queue, uint32_t position, enum nic_error status)
{
    assert(status != NIC_ERROR_NONE);
    if (queue->streams == 0) {
        queue->failed = true; /* the device has moved it, or its sends, to the error state */
        return;
    }
    const uint16_t stream = queue->stream_ids[position & queue->sends.mask];
    if (nic_queue_stream_failed(queue, stream)) {
        return;
    }
    if (status == NIC_ERROR_FLUSHED) {
        queue->failed = true;
        return;
    }
    *word_of(queue, stream) |= UINT64_C(1) << stream % WORD_BITS;
    queue->streams_failed++;
    queue->failed |= queue->streams_failed > queue->stream_failures_max;
}

int32_t nic_queue_check_stream(const struct nic_queue *queue, uint16_t stream, crpc_error *error)
{
    const struct tracking *sends = &queue->sends;
    assert(stream < queue->streams && !queue->failed && !queue->stopped);
    for (uint32_t at = sends->consumer; at != sends->producer;) {
        const struct tracking_entry *entry = tracking_at(sends, at);
        if (entry->state != TRACKING_FREE && entry->state != TRACKING_FILLER &&
            queue->stream_ids[at & sends->mask] == stream) {
            return error_set(error, CRPC_E_STATE, 0,
                             "stream %u has ops that have not completed: poll first", stream);
        }
        at += entry->blocks;
    }
    return CRPC_OK;
}

void nic_queue_renew_stream(struct nic_queue *queue, uint16_t stream)
{
    assert(nic_queue_stream_failed(queue, stream));
    *word_of(queue, stream) &= ~(UINT64_C(1) << stream % WORD_BITS);
    queue->streams_failed--;
}

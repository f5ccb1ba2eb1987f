/* pieces.c: the local memory of a WQE: one range, or the pieces of an op of a queue with user data. */
#include "nic/memory/internal.h"

#include <string.h>

bool memory_wqe_allows(const struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe,
                       uint32_t access)
{
    const struct nic_transfer *transfer = &wqe->transfer;

    if (!wqe->pieces) {
        return memory_allows_local(queue_pair, transfer->local_key, transfer->local_address,
                                   transfer->bytes, access);
    }
    for (uint32_t i = 0; i < wqe->piece_count; i++) {
        const struct nic_piece *piece = &wqe->pieces[i];
        if (!memory_allows_local(queue_pair, piece->local_key, piece->address, piece->bytes,
                                 access)) {
            return false;
        }
    }
    return true;
}

void memory_wqe_gather(const struct memory_wqe *wqe, uint8_t *to)
{
    const struct nic_transfer *transfer = &wqe->transfer;

    if (!wqe->pieces && transfer->bytes > 0) {
        memcpy(to, (const void *)(uintptr_t)transfer->local_address, transfer->bytes);
    }
    for (uint32_t i = 0; wqe->pieces && i < wqe->piece_count; i++) {
        const struct nic_piece *piece = &wqe->pieces[i];
        if (piece->bytes > 0) {
            memcpy(to, (const void *)(uintptr_t)piece->address, piece->bytes);
            to += piece->bytes;
        }
    }
}

void memory_wqe_scatter(const struct memory_wqe *wqe, const uint8_t *data, uint32_t low,
                        uint32_t high)
{
    uint32_t start = 0; /* of the piece, in the payload */

    if (!wqe->pieces) {
        memmove((void *)(uintptr_t)(wqe->transfer.local_address + low), data + low, high - low);
        return;
    }
    for (uint32_t i = 0; i < wqe->piece_count; i++) {
        const struct nic_piece *piece = &wqe->pieces[i];
        const uint32_t from = (uint32_t)maximum(low, start);
        const uint32_t to = (uint32_t)minimum(high, start + piece->bytes);
        if (from < to) {
            memmove((void *)(uintptr_t)(piece->address + from - start), data + from, to - from);
        }
        start += piece->bytes;
    }
}

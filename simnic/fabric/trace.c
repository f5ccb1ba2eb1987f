/* trace.c: trace records, from a device to `simnic ctl trace`. */
#include "fabric.h"

#include <string.h>

#define RECORD_HEADER_BYTES 24u

/* A record is its time, kind, number, count, and the bytes, padded to 8. It may wrap. */
static void put(struct fabric_trace *trace, uint64_t at, const void *bytes, uint32_t count)
{
    uint32_t start = (uint32_t)(at % FABRIC_TRACE_BYTES);
    uint32_t until_end = FABRIC_TRACE_BYTES - start < count ? FABRIC_TRACE_BYTES - start : count;
    memcpy(trace->bytes + start, bytes, until_end);
    memcpy(trace->bytes, (const uint8_t *)bytes + until_end, count - until_end);
}

void fabric_trace(struct fabric *fabric, uint32_t kind, uint32_t number, const void *bytes,
                  uint32_t count)
{
    struct fabric_trace *trace = &fabric->file->trace[fabric->slot];
    uint64_t head = atomic_load_explicit(&trace->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&trace->tail, memory_order_acquire);
    uint32_t padded = (count + 7) & ~7u;
    if (head + RECORD_HEADER_BYTES + padded - tail > FABRIC_TRACE_BYTES) {
        atomic_fetch_add_explicit(&trace->lost, 1, memory_order_relaxed);
        return;
    }
    uint32_t header[6] = {
        (uint32_t)fabric->now_ns, (uint32_t)(fabric->now_ns >> 32), kind, number, count, 0};
    put(trace, head, header, sizeof(header));
    put(trace, head + sizeof(header), bytes, count);
    atomic_store_explicit(&trace->head, head + sizeof(header) + padded, memory_order_release);
}

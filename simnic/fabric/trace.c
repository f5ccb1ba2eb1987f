/* trace.c: trace records, from a NIC to `simnic ctl trace`. */
#include "simnic/fabric/fabric.h"

#include <string.h>

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
    struct fabric_trace_record record = {
        .time_ns = fabric->now_ns, .kind = kind, .number = number, .count = count};
    if (head + sizeof(record) + padded - tail > FABRIC_TRACE_BYTES) {
        atomic_fetch_add_explicit(&trace->lost, 1, memory_order_relaxed);
        return;
    }
    put(trace, head, &record, sizeof(record));
    put(trace, head + sizeof(record), bytes, count);
    atomic_store_explicit(&trace->head, head + sizeof(record) + padded, memory_order_release);
}

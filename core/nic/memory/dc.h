/* dc.h: what the files of the in-memory NIC share of the dynamically connected transport: dc.c. */
#ifndef CORE_NIC_MEMORY_DC_H
#define CORE_NIC_MEMORY_DC_H

#include "nic/memory/internal.h"

/* Exponents of the limits of a DCI: streams, and those of them that may fail. */
#define MEMORY_STREAMS_EXPONENT 15u
#define MEMORY_STREAM_FAILURES_EXPONENT 15u

static inline bool memory_is_dci(const struct memory_queue_pair *queue_pair)
{
    return queue_pair->queue && queue_pair->queue->base.kind == NIC_QUEUE_DCI;
}

/* For a new DCI, and when it is freed. */
void memory_dc_make(struct memory_queue *queue);
void memory_dc_free(struct memory_queue *queue);
/* The WQE was posted. */
void memory_dc_post(struct memory_queue *queue, uint32_t number, uint16_t stream);
/* One small thing that a DCI can do next, in scheduled mode. Returns true if it did something. */
bool memory_dc_step(struct memory_queue_pair *queue_pair);
/* All that it can do, in immediate mode. Likewise. */
bool memory_dc_now(struct memory_queue_pair *queue_pair);
/* nic_queue_operations.reset_stream. */
int32_t memory_dc_reset_stream(struct nic_queue *queue, uint16_t stream, crpc_error *error);

#endif

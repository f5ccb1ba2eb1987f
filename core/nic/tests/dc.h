/* dc.h: what the tests of DCIs and DCTs (nic/queue.h) have in common: a DCI on the near nic of struct queues, a DCT
 * with an SRQ on the far one, and a target for it. */
#ifndef CORE_NIC_TESTS_DC_H
#define CORE_NIC_TESTS_DC_H

#include "queues.h"

#define DC_KEY 0x1122334455667788u
#define DC_SLOT_BYTES 8192u
#define DC_STREAMS 8u /* of a DCI; tests of streams are of devices that have so many */
#define DC_DCI_HANDLE 0x5000000000000001u
#define DC_DCT_HANDLE 0x5000000000000002u

struct dc {
    struct queues *queues;
    struct nic_queue *srq; /* of the far nic */
    struct nic_target *target;
};

/* Options of a DCI like those of queues_options; with streams, its table is UNORDERED. */
struct nic_queue_options dc_initiator(uint32_t streams);
struct nic_queue *dc_srq(struct nic *nic);
struct nic_queue *dc_dct(struct nic *nic, struct nic_queue *srq, uint64_t access_key);
struct nic_target *dc_target(struct nic *nic, const struct nic_queue *dct, uint64_t access_key);
void dc_target_end(struct nic_target *target);

/* Makes queues->sender, queues->receiver and the rest. */
struct dc dc_make(struct queues *queues, const struct nic_queue_options *initiator);
void dc_end(struct dc *dc);
/* Receives of so many bytes each, whose user data is the slot where they lie. */
void dc_receive(const struct dc *dc, uint64_t first, uint32_t count, uint32_t bytes);
/* Posts a WRITE of 16 bytes to 16 * user_data in the memory of the far side. */
void dc_write(const struct dc *dc, struct nic_target *target, uint16_t stream, uint32_t flags,
              uint64_t user_data, uint32_t remote_key);

#endif

/* queue_batch.h: what the files of queues in capi share. */
#ifndef CAPI_QUEUE_BATCH_H
#define CAPI_QUEUE_BATCH_H

#include "private/context.h"
#include "queue/queue.h"

/* Ops that are checked, and then accepted, at once. */
#define CHUNK 64u

/* A call of crpc_queue_submit. */
struct batch {
    crpc_context *context;
    const struct queue_options *limits;
    const crpc_piece *pieces;
    uint32_t piece_count;
};

/* How many streams ops may name: 0 is always one. */
static inline uint32_t queue_streams(const struct batch *batch)
{
    return batch->limits->streams > 0 ? batch->limits->streams : 1;
}

/* queue_submit.c: checks an op with a known opcode in full, but for its target. Its stream is 0. Returns CRPC_OK, and the key of
 * its memory; its pieces are in context->queue_pieces. Or returns why it cannot be accepted. */
int32_t queue_check_op(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key);

/* Checks ops of a queue whose ops have targets, and finds these, as long as they have the same opcode. Returns
 * how many are good: one at least, or *status says why not. */
uint32_t queue_check_to_targets(struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                                uint32_t *local_keys, struct nic_target **targets, int32_t *status);

/* queue_targets.c: checks one in full, and finds its target. As queue_check_op. */
int32_t queue_check_op_to_target(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key,
                                 struct nic_target **target);

/* Finds the target with this handle, of ops of queues of this kind, and keeps it as the one that was named last.
 * Returns NULL, with *status, if there is none. */
struct nic_target *queue_find_target(crpc_context *context, uint64_t handle, uint32_t kind,
                                     int32_t *status);

/* Accepts ops that send, of a queue whose ops have targets, up to the first that cannot be
 * or to CHUNK of them, and returns how many. *status says why not the next. */
uint32_t queue_submit_to_targets(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                                 uint32_t count, int32_t *status);

/* queue_tags.c: accepts ops of a TM-SRQ that concern tags, in the same way. */
uint32_t queue_submit_tags(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                           uint32_t count, int32_t *status);
/* Checks options that TM-SRQs have, and what `srq` means for a queue that names it. */
int32_t queue_check_tag_options(const crpc_context *context, const crpc_queue_options *options,
                                crpc_error *error);
int32_t queue_check_receive_queue(const struct queue *srq, uint32_t kind, crpc_error *error);

/* queue_dc.c: checks options that only DCIs and DCTs have, and what these have not. */
int32_t queue_check_dc_options(const crpc_queue_options *options, crpc_error *error);

/* queue_change.c: what a code of the RNR timer means. 0 = 0. */
uint64_t queue_not_ready_ns(uint32_t timer);
/* What core calls a number of retries; 0 = no limit. And the other way. */
uint32_t queue_rnr_tries(uint32_t not_ready_retry_count);
uint32_t queue_not_ready_retry_count(uint32_t rnr_tries);

/* queue.c: the caller's form of an address. The caller's struct is large enough. */
void queue_show_address(const struct nic_address *found, crpc_queue_address *address);
/* Takes it. Core checks what the address says. Here is only what its members could not hold. */
int32_t queue_take_address(struct nic_address *ours, const crpc_queue_address *theirs,
                           crpc_error *error);

#endif

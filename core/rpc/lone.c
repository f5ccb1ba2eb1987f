/* lone.c: a call that is made while no other one is open, and the reply to the last request that is owed one. Both leave in a
 * batch of their own, within the submit that brings them. So they are in no open batch and on no list, and the answers to
 * what a flush asks are known: 155 instructions less.
 *
 * What is not as most are, send.c takes: it has the same rules.
 */
#include "base/copy.h"
#include "rpc/message.h"
#include "rpc/op.h"

/* Longer ones are copied by the C library, for which registers would be saved. */
#define ALONE_BYTES_MAX 128u

/* Less than 16, from both ends. */
static inline void copy_few(uint8_t *out, const uint8_t *in, uint32_t bytes)
{
    if (bytes >= 8) {
        uint64_t first, last;
        memcpy(&first, in, 8);
        memcpy(&last, in + bytes - 8, 8);
        memcpy(out, &first, 8);
        memcpy(out + bytes - 8, &last, 8);
    } else if (bytes >= 4) {
        uint32_t first, last;
        memcpy(&first, in, 4);
        memcpy(&last, in + bytes - 4, 4);
        memcpy(out, &first, 4);
        memcpy(out + bytes - 4, &last, 4);
    } else {
        for (uint32_t i = 0; i < bytes; i++) {
            __asm__ volatile(""); /* otherwise it becomes a call */
            out[i] = in[i];
        }
    }
}

static inline void copy_alone(uint8_t *out, const uint8_t *in, uint32_t bytes)
{
    if (unlikely(bytes < 16)) {
        copy_few(out, in, bytes);
        return;
    }
    uint8_t part[16];
    for (uint32_t i = 0; i < bytes - 16; i += 16) {
        memcpy(part, in + i, 16);
        memcpy(out + i, part, 16);
    }
    memcpy(part, in + bytes - 16, 16);
    memcpy(out + bytes - 16, part, 16);
}

/* What has to be 0 if a batch of its own may leave at once: nothing of the endpoint waits. Whoever adds to it that nothing bars
 * the message knows that it is connected, and that no message ends the open batch. */
static inline uint32_t obstacles(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.batch_messages | endpoint->leave | endpoint->lane_attention |
           endpoint->grow_attention | endpoint->link.refused;
}

/* Sends it. All else is done before, so that nothing is kept over the post. */
static inline void send_alone(struct rpc_endpoint *endpoint, uint64_t offset,
                              uint64_t message_bytes)
{
    const uint32_t bytes = (uint32_t)(WIRE_BATCH_HEADER_BYTES + message_bytes);
    const struct nic_transfer *transfer = rpc_write_batch(endpoint, offset, bytes, 1, 0);
    endpoint->out.produced += bytes;
    endpoint->out.request_sent = endpoint->out.request_produced;
    endpoint->out.batches_sent++;
    endpoint->stats.batches_sent++;
    endpoint->stats.bytes_sent += bytes;
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    queue_pair->operations->post_write_immediate(queue_pair, transfer, NIC_POST_RING);
}

static __attribute__((noinline)) uint32_t submit_in_batch(struct rpc_endpoint *endpoint,
                                                          const crpc_op *op, const void *payload,
                                                          int32_t *reason)
{
    const int32_t status = op->opcode == CRPC_OP_CALL ? rpc_call(endpoint, op, payload)
                                                      : rpc_reply(endpoint, op, payload);
    rpc_submit_end(endpoint->engine);
    if (reason) {
        *reason = status;
    }
    return status == CRPC_OK;
}

static inline __attribute__((always_inline)) uint32_t call_alone(struct rpc_endpoint *endpoint,
                                                                 const crpc_op *op,
                                                                 const void *payload,
                                                                 int32_t *reason, const bool timed)
{
    /* The peer of an idle link is looked after more often from now on. */
    if (unlikely((obstacles(endpoint) | (uint32_t)endpoint->call_bar | endpoint->calls.live |
                  endpoint->link.idle) != 0 ||
                 op->payload_bytes > ALONE_BYTES_MAX) ||
        !rpc_call_possible(endpoint, op) || unlikely(!endpoint_may_send(endpoint))) {
        return submit_in_batch(endpoint, op, payload, reason);
    }
    const uint64_t offset = ring_offset(&endpoint->out.staging, endpoint->out.produced);
    uint8_t *const place = endpoint->out.staging.address + offset + WIRE_BATCH_HEADER_BYTES;
    const uint32_t payload_bytes = op->payload_bytes;
    const uint64_t message_bytes = wire_message_bytes(payload_bytes);
    if (reason) {
        *reason = CRPC_OK;
    }
    store_first();
    struct rpc_call *call =
        rpc_write_call(endpoint, op, timed ? op->timeout_ns : 0, place, message_bytes);
    store_first();
    copy_alone(place + WIRE_HEADER_BYTES, payload, payload_bytes);
    store_first();
    send_alone(endpoint, offset, message_bytes);
    if (timed) { /* when the device has heard of it: reading the clock takes longer than all else */
        call_set_deadline(call, op->timeout_ns);
        endpoint->engine->links.now_ns = 0;
    }
    return 1;
}

static __attribute__((noinline)) uint32_t call_alone_timed(struct rpc_endpoint *endpoint,
                                                           const crpc_op *op, const void *payload,
                                                           int32_t *reason)
{
    return call_alone(endpoint, op, payload, reason, true);
}

uint32_t rpc_call_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                        int32_t *reason)
{
    assert(op->opcode == CRPC_OP_CALL && op_call_valid(op) &&
           list_empty(&endpoint->engine->urgent));
    return op->timeout_ns == 0 ? call_alone(endpoint, op, payload, reason, false)
                               : call_alone_timed(endpoint, op, payload, reason);
}

uint32_t rpc_reply_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                         int32_t *reason)
{
    assert(op_is_quiet_reply(op) && list_empty(&endpoint->engine->urgent));
    struct rpc_request *owed;
    if (unlikely((obstacles(endpoint) | (uint32_t)endpoint->reply_bar |
                  (endpoint->owed.count ^ 1)) != 0 ||
                 op->payload_bytes > ALONE_BYTES_MAX) ||
        !(owed = rpc_reply_possible(endpoint, op, true)) ||
        unlikely(!endpoint_may_send(endpoint))) {
        return submit_in_batch(endpoint, op, payload, reason);
    }
    const uint64_t offset = ring_offset(&endpoint->out.staging, endpoint->out.produced);
    uint8_t *const place = endpoint->out.staging.address + offset + WIRE_BATCH_HEADER_BYTES;
    const uint32_t payload_bytes = op->payload_bytes;
    const uint64_t message_bytes = wire_message_bytes(payload_bytes);
    if (reason) {
        *reason = CRPC_OK;
    }
    store_first();
    rpc_write_reply(endpoint, owed, op, op->status, place, message_bytes);
    store_first();
    copy_alone(place + WIRE_HEADER_BYTES, payload, payload_bytes);
    store_first();
    send_alone(endpoint, offset, message_bytes);
    return 1;
}

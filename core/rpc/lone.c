/* lone.c: a call that is made while no other one is open, and the reply to the last request that is owed one. Both leave in a
 * batch of their own, within the submit that brings them. So they are in no open batch and on no list, and the answers to
 * what a flush asks are known: 155 instructions less. Nor are they in the send ring, if the device takes them from where they are
 * written: 50 less.
 *
 * What is not as most are, send.c takes: it has the same rules.
 */
#include "base/copy.h"
#include "base/probe.h"
#include "rpc/message.h"
#include "rpc/op.h"

/* Longer ones are copied by the C library, for which registers would be saved. */
#define ALONE_BYTES_MAX 128u

/* Few bytes, from both ends. */
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
    uint8_t part[16], last[16];
    memcpy(part, in, 16);
    memcpy(last, in + bytes - 16, 16);
    memcpy(out, part, 16);
    for (uint32_t i = 16; unlikely(i + 16 < bytes); i += 16) {
        memcpy(part, in + i, 16);
        memcpy(out + i, part, 16);
    }
    memcpy(out + bytes - 16, last, 16);
}

/* What has to be 0 if a batch of its own may leave at once: nothing of the endpoint waits. Whoever adds to it that nothing bars
 * the message knows that it is connected, and that no message ends the open batch. `more` has to be 0, too. */
static inline uint64_t obstacles(const struct rpc_endpoint *endpoint, uint32_t more)
{
    return (endpoint->out.batch_messages | more) | endpoint->attention | endpoint->link.refused;
}

/* Where a batch of its own is written. */
struct place {
    uint8_t *batch;
    bool in_wqe; /* where the device takes it from: nothing is copied. Otherwise in the send ring */
};

/* The endpoint is connected. */
static inline struct place place_of(const struct rpc_endpoint *endpoint)
{
    uint8_t *const in_wqe = endpoint->link.queue_pair->place;
    return in_wqe ? (struct place){in_wqe, true}
                  : (struct place){ring_at(&endpoint->out.staging, endpoint->out.produced), false};
}

/* Sends it. All else is done before, so that nothing is kept over the post. Returns 1. */
static inline __attribute__((always_inline)) uint32_t send_alone(struct rpc_endpoint *endpoint,
                                                                 struct place place, uint64_t bytes)
{
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    struct nic_transfer *transfer = &endpoint->out.transfer;
    const uint64_t remote_address =
        endpoint->peer.ring_address + (endpoint->out.produced & (endpoint->peer.ring_bytes - 1));
    probe3(batch_sent, endpoint->link.handle, (uint32_t)bytes, 1);
    rpc_write_batch_header(endpoint, place.batch, (uint32_t)bytes, 1, 0);
    endpoint->out.produced += bytes;
    endpoint->out.batches_sent++;
    endpoint->stats.batches_sent++;
    endpoint->stats.bytes_sent += bytes;
    if (place.in_wqe) {
        return queue_pair->operations->post_written(queue_pair, remote_address,
                                                    transfer->remote_key, (uint32_t)bytes,
                                                    (uint32_t)bytes / WIRE_UNIT_BYTES);
    }
    transfer->local_address = (uint64_t)(uintptr_t)place.batch;
    transfer->remote_address = remote_address;
    transfer->bytes = (uint32_t)bytes;
    transfer->immediate = (uint32_t)bytes / WIRE_UNIT_BYTES;
    queue_pair->operations->post_write_immediate(queue_pair, transfer, NIC_POST_RING);
    return 1;
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

/* The call is possible. */
static inline __attribute__((always_inline)) uint32_t
send_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload, struct place place,
          uint64_t bytes, uint64_t allowance, uint64_t timeout_ns)
{
    const uint32_t payload_bytes = op->payload_bytes;
    uint8_t *const message = place.batch + WIRE_BATCH_HEADER_BYTES;
    rpc_write_call(endpoint, op, timeout_ns, message, bytes - WIRE_BATCH_HEADER_BYTES, allowance);
    endpoint->out.request_sent = endpoint->out.request_produced;
    store_first();
    copy_alone(message + WIRE_HEADER_BYTES, payload, payload_bytes);
    store_first();
    return send_alone(endpoint, place, bytes);
}

/* With a deadline, or from the send ring. */
static __attribute__((noinline)) uint32_t send_call_unusual(struct rpc_endpoint *endpoint,
                                                            const crpc_op *op, const void *payload,
                                                            uint64_t bytes, uint64_t allowance)
{
    struct rpc_call *call = endpoint->calls.first_free;
    send_call(endpoint, op, payload, place_of(endpoint), bytes, allowance, op->timeout_ns);
    if (op->timeout_ns) { /* when the device has heard of it: reading the clock takes longer than all else */
        call_set_deadline(call, op->timeout_ns);
        endpoint->engine->links.now_ns = 0;
    }
    return 1;
}

/* It and rpc_call_alone call each other at their ends, so that neither saves registers for the other. */
static __attribute__((noinline)) uint32_t send_call_in_wqe(struct rpc_endpoint *endpoint,
                                                           const crpc_op *op, const void *payload,
                                                           uint8_t *batch, uint64_t bytes,
                                                           uint64_t allowance)
{
    return send_call(endpoint, op, payload, (struct place){batch, true}, bytes, allowance, 0);
}

uint32_t rpc_call_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                        int32_t *reason)
{
    assert(op->opcode == CRPC_OP_CALL && op_call_valid(op) &&
           list_empty(&endpoint->engine->urgent));
    const uint32_t payload_bytes = op->payload_bytes;
    /* The peer of an idle link is looked after more often from now on. */
    if (unlikely(obstacles(endpoint, (uint32_t)endpoint->call_bar | endpoint->calls.live |
                                         endpoint->link.idle) != 0 ||
                 payload_bytes > ALONE_BYTES_MAX)) {
        return submit_in_batch(endpoint, op, payload, reason);
    }
    const uint64_t bytes = wire_charge(payload_bytes), allowance = wire_charge(op->reply_bytes_max);
    if (!rpc_call_fits(endpoint, bytes, allowance) || unlikely(!endpoint_may_send_now(endpoint))) {
        return submit_in_batch(endpoint, op, payload, reason);
    }
    if (reason) {
        *reason = CRPC_OK;
    }
    uint8_t *const in_wqe = endpoint->link.queue_pair->place;
    return likely(in_wqe && op->timeout_ns == 0)
               ? send_call_in_wqe(endpoint, op, payload, in_wqe, bytes, allowance)
               : send_call_unusual(endpoint, op, payload, bytes, allowance);
}

/* Likewise the reply to what is owed. */
static inline __attribute__((always_inline)) uint32_t
send_reply(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
           struct place place, struct rpc_request *owed)
{
    const uint32_t payload_bytes = op->payload_bytes;
    const uint64_t bytes = wire_charge(payload_bytes);
    uint8_t *const message = place.batch + WIRE_BATCH_HEADER_BYTES;
    rpc_write_reply(endpoint, owed, op, op->status, message, bytes - WIRE_BATCH_HEADER_BYTES);
    store_first();
    copy_alone(message + WIRE_HEADER_BYTES, payload, payload_bytes);
    store_first();
    return send_alone(endpoint, place, bytes);
}

static __attribute__((noinline)) uint32_t send_reply_unusual(struct rpc_endpoint *endpoint,
                                                             const crpc_op *op, const void *payload,
                                                             struct rpc_request *owed)
{
    return send_reply(endpoint, op, payload, place_of(endpoint), owed);
}

uint32_t rpc_reply_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                         int32_t *reason)
{
    assert(op_is_quiet_reply(op) && list_empty(&endpoint->engine->urgent));
    struct rpc_request *owed;
    if (unlikely(obstacles(endpoint, (uint32_t)endpoint->reply_bar | (endpoint->owed.count ^ 1)) !=
                     0 ||
                 op->payload_bytes > ALONE_BYTES_MAX) ||
        !(owed = rpc_reply_possible(endpoint, op, true)) ||
        unlikely(!endpoint_may_send_now(endpoint))) {
        return submit_in_batch(endpoint, op, payload, reason);
    }
    if (reason) {
        *reason = CRPC_OK;
    }
    uint8_t *const in_wqe = endpoint->link.queue_pair->place;
    return likely(in_wqe) ? send_reply(endpoint, op, payload, (struct place){in_wqe, true}, owed)
                          : send_reply_unusual(endpoint, op, payload, owed);
}

/* message.h: when a message is possible, and how it and its batch are written: what send.c and lone.c share. The rules are in
 * docs/flow-control.md.
 */
#ifndef CORE_RPC_MESSAGE_H
#define CORE_RPC_MESSAGE_H

#include <string.h>

#include "rpc/internal.h"

/* ---- Headers --------------------------------------------------------------------------------- */

/* Fields that lie side by side, in one store: of a struct, the compiler makes a vector, which takes longer. */
static inline void rpc_store_words(uint8_t *place, uint64_t low, uint64_t high)
{
    memcpy(place, &low, sizeof(low));
    memcpy(place + sizeof(low), &high, sizeof(high));
}

/* Fields that come from different places are stored one by one: to join them takes as long, and a register more. The compiler would make a
 * vector of them here, too. */
static inline void rpc_store_halves(uint8_t *place, uint32_t low, uint32_t high)
{
    *(volatile uint32_t *)(void *)place = low;
    *(volatile uint32_t *)(void *)(place + sizeof(low)) = high;
}

/* Header and the zeros after the payload. The last unit is cleared whole before anything is
 * written to it, which needs no branch on how many bytes of it the payload takes. `high` is the header's second word. */
static inline void rpc_write_header(uint8_t *place, uint64_t message_bytes, uint32_t payload_bytes,
                                    uint32_t call_id, uint64_t high)
{
    memset(place + message_bytes - WIRE_UNIT_BYTES, 0, WIRE_UNIT_BYTES);
    rpc_store_halves(place, payload_bytes, call_id);
    memcpy(place + 8, &high, sizeof(high));
}

/* How long its caller waits, for the second word of a request's header; 0 if the peer is not to be told. */
static inline uint64_t rpc_time_word(const struct rpc_endpoint *endpoint, uint64_t timeout_ns)
{
    return (uint64_t)wire_time_code(timeout_ns) << WIRE_TIME_HIGH_SHIFT & endpoint->out.time_mask;
}

/* Writes the header of the next batch. */
static inline void rpc_write_batch_header(const struct rpc_endpoint *endpoint, uint8_t *place,
                                          uint32_t bytes, uint32_t messages, uint32_t flags)
{
    rpc_store_words(place, endpoint->in.request_published, endpoint->in.batch_published);
    rpc_store_halves(place + 16, (uint32_t)endpoint->out.batches_sent, bytes);
    rpc_store_halves(place + 24, messages | flags << 16, endpoint->in.returned);
}

/* The same at an offset of a send ring, and fills *transfer, how it goes, but for the keys. */
static inline void rpc_write_batch_in(const struct rpc_endpoint *endpoint,
                                      const struct ring *staging, uint64_t offset, uint32_t bytes,
                                      uint32_t messages, uint32_t flags,
                                      struct nic_transfer *transfer)
{
    uint8_t *const place = staging->address + offset;
    rpc_write_batch_header(endpoint, place, bytes, messages, flags);
    transfer->local_address = (uint64_t)(uintptr_t)place;
    transfer->remote_address =
        endpoint->peer.ring_address + (offset & (endpoint->peer.ring_bytes - 1));
    transfer->bytes = bytes;
    transfer->immediate = bytes / WIRE_UNIT_BYTES;
}

/* The same in the send ring that ops are written to. Returns the transfer, which has its keys. */
static inline const struct nic_transfer *rpc_write_batch(struct rpc_endpoint *endpoint,
                                                         uint64_t offset, uint32_t bytes,
                                                         uint32_t messages, uint32_t flags)
{
    struct nic_transfer *transfer = &endpoint->out.transfer;
    rpc_write_batch_in(endpoint, &endpoint->out.staging, offset, bytes, messages, flags, transfer);
    return transfer;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* The limits and slots of the moment allow a call with this charge and allowance. What is too big for ever is too big for these, too. */
static inline bool rpc_call_fits(const struct rpc_endpoint *endpoint, uint64_t charge,
                                 uint64_t allowance)
{
    return likely(endpoint->out.request_produced + charge <= endpoint->out.request_limit &&
                  endpoint->calls.reply_outstanding + allowance <= endpoint->calls.reply_budget &&
                  endpoint->calls.first_free);
}

static inline bool rpc_call_possible(const struct rpc_endpoint *endpoint, const crpc_op *op)
{
    return likely(endpoint->call_bar == CRPC_OK &&
                  endpoint->out.batch_messages != WIRE_MESSAGES_MAX) &&
           rpc_call_fits(endpoint, wire_charge(op->payload_bytes),
                         wire_charge(op->reply_bytes_max));
}

/* Takes a slot for a possible call, and writes its message at `place`, but for the payload. */
static inline struct rpc_call *rpc_write_call(struct rpc_endpoint *endpoint, const crpc_op *op,
                                              uint64_t timeout_ns, uint8_t *place,
                                              uint64_t message_bytes, uint64_t allowance)
{
    struct rpc_call *call = call_take(endpoint);
    endpoint->calls.live++;
    const uint64_t high = op->reply_bytes_max | (uint64_t)op->method << 32 |
                          (uint64_t)WIRE_REQUEST << 48; /* of the header, and of the slot */
    call->user_data = op->user_data;
    memcpy(&call->reply_bytes_max, &high, sizeof(high));
    call->allowance = allowance;
    rpc_write_header(place, message_bytes, op->payload_bytes, call->call_id,
                     high | (timeout_ns ? rpc_time_word(endpoint, timeout_ns) : 0));
    endpoint->out.request_produced += message_bytes + WIRE_BATCH_HEADER_BYTES;
    endpoint->calls.reply_outstanding += allowance;
    endpoint->stats.calls++;
    return call;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static inline struct rpc_request *rpc_find_owed(struct rpc_endpoint *endpoint, uint64_t token)
{
    uint32_t index = (uint32_t)token & WIRE_CALL_INDEX_MASK;
    if (index >= endpoint->owed.slot_count) {
        return NULL;
    }
    struct rpc_request *request = &endpoint->owed.slots[index];
    return request->token == token && request->reply_bytes_bound > 0 ? request : NULL;
}

/* The request that a possible reply answers, or NULL. */
static inline struct rpc_request *rpc_reply_possible(struct rpc_endpoint *endpoint,
                                                     const crpc_op *op, bool quiet)
{
    struct rpc_request *owed = rpc_find_owed(endpoint, op->token);
    bool possible =
        owed && endpoint->reply_bar == CRPC_OK && op->payload_bytes < owed->reply_bytes_bound &&
        endpoint->out.batch_messages != WIRE_MESSAGES_MAX && (quiet || rpc_may_report(endpoint));
    return likely(possible) ? owed : NULL;
}

/* Writes the message of a possible reply at `place`, but for the payload. */
static inline void rpc_write_reply(struct rpc_endpoint *endpoint, struct rpc_request *owed,
                                   const crpc_op *op, int32_t status, uint8_t *place,
                                   uint64_t message_bytes)
{
    endpoint->owed.count--;
    rpc_write_header(place, message_bytes, op->payload_bytes, (uint32_t)owed->token,
                     (uint32_t)status | (uint64_t)WIRE_RESPONSE << 48);
    endpoint->owed.allowance -= owed->allowance;
    owed->reply_bytes_bound = 0;
    endpoint->stats.replies++;
}

#endif

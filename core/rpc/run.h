/* run.h: what receive.c and run.c share: headers of messages, and where the parsing of a batch is. */
#ifndef CORE_RPC_RUN_H
#define CORE_RPC_RUN_H

#include "rpc/internal.h"

/* The header of a message, as it was when it was read: the peer can rewrite the ring at any time. Each field is 32 bits,
 * a load and a register of its own: run.c. */
struct rpc_header {
    uint64_t payload_bytes;
    uint64_t call_id;
    uint64_t limit_or_status;
    uint64_t method_and_kind; /* the upper half is the kind, unless reserved bits are set */
};

/* Left to itself, the compiler makes a vector of two fields that are stored side by side, which takes 4 instructions more. */
static inline uint64_t rpc_load_scalar(const uint32_t *place)
{
    uint64_t number = wire_load(place);
    __asm__("" : "+r"(number));
    return number;
}

static inline struct rpc_header rpc_load_header(const uint8_t *place)
{
    const uint32_t *words = (const uint32_t *)(const void *)place;
    return (struct rpc_header){.payload_bytes = rpc_load_scalar(&words[0]),
                               .call_id = rpc_load_scalar(&words[1]),
                               .limit_or_status = rpc_load_scalar(&words[2]),
                               .method_and_kind = rpc_load_scalar(&words[3])};
}

static inline uint16_t rpc_header_method(struct rpc_header header)
{
    return (uint16_t)header.method_and_kind;
}

static inline uint16_t rpc_header_kind(struct rpc_header header)
{
    return (uint16_t)(header.method_and_kind >> 16);
}

/* Returns true of a request, which may say how long its caller waits, if the peer is one that says so. */
static inline bool rpc_header_is(const struct rpc_endpoint *endpoint, struct rpc_header header,
                                 uint16_t request_kind)
{
    return (rpc_header_kind(header) & endpoint->in.kind_mask) == request_kind;
}

/* How long it says; 0 if it does not. */
static inline uint64_t rpc_header_time_ns(struct rpc_header header)
{
    const uint32_t code = (uint32_t)header.method_and_kind >> (16 + WIRE_KIND_BITS);
    return likely(code == 0) ? 0 : wire_time_ns(code);
}

/* Where the parsing of a batch is. */
struct rpc_cursor {
    const uint8_t *place;
    uint64_t bytes_left;
    uint32_t messages_left;
    crpc_completion *next;
    crpc_completion *end;
    struct rpc_header header; /* of the message at the place, if it was loaded */
    bool loaded;
};
/* Take messages that are as most are, until one is not, or the output is full. The last message of the batch is never taken,
 * as it has to fill the batch. */
void rpc_take_responses(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor);
void rpc_take_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor);
/* Likewise requests, also those that say how long their callers wait. */
void rpc_take_timed_requests(struct rpc_endpoint *endpoint, struct rpc_cursor *cursor);

#endif

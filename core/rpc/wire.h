/* wire.h: all formats that an endpoint and its peer exchange, except the hello around struct
 * wire_endpoint, which is in link/wire.h. The specification is docs/wire.md, "Calls".
 *
 * All integers are little-endian. The library only builds for little-endian machines, so it reads a
 * field by copying it. Fields that the peer can rewrite at any time are read once, with wire_load,
 * and then checked.
 */
#ifndef CORE_RPC_WIRE_H
#define CORE_RPC_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "link/wire.h"

/* Every length in a ring is a multiple of this. The immediate gives the length of a batch in these
 * units. */
#define WIRE_UNIT_BYTES 32u
#define WIRE_HEADER_BYTES 16u
#define WIRE_BATCH_HEADER_BYTES 32u

#define WIRE_VERSION_MIN 1
#define WIRE_VERSION_MAX 1

/* Bytes that a message takes in a ring. */
static inline uint64_t wire_message_bytes(uint64_t payload_bytes)
{
    return align_up(WIRE_HEADER_BYTES + payload_bytes, WIRE_UNIT_BYTES);
}

/* The charge of a message: as if it travelled in a batch of its own, whose header is whole units. */
static inline uint64_t wire_charge(uint64_t payload_bytes)
{
    return wire_message_bytes(WIRE_BATCH_HEADER_BYTES + payload_bytes);
}

/* The longest payload whose charge is at most `charge`; 0 if there is none. */
static inline uint32_t wire_payload_max(uint64_t charge)
{
    const uint64_t least = WIRE_BATCH_HEADER_BYTES + WIRE_HEADER_BYTES;
    charge &= ~(uint64_t)(WIRE_UNIT_BYTES - 1);
    return charge > least ? (uint32_t)(charge - least) : 0;
}

/* Room in each ring for a batch that only carries FIN. */
#define WIRE_FIN_BYTES WIRE_BATCH_HEADER_BYTES

/* Room in each ring for what the two sides say of rings, windows and arenas (grow.c, arena.c). */
#define WIRE_GROW_BYTES 352u

/* Room in each ring for the words of a lane, if there is one. They are few: docs/wire.md, "Lanes". */
#define WIRE_WORDS_BYTES 1024u

/* Returns how much of a ring is set aside for neither requests nor replies. */
static inline uint32_t wire_aside_bytes(bool lane)
{
    return WIRE_FIN_BYTES + WIRE_GROW_BYTES + (lane ? WIRE_WORDS_BYTES : 0);
}

/* The share for requests of a first ring of `bytes`, if that of the largest one, of bytes_max, is share_max. With 8 KiB, a
 * reply of 4 KiB finds room, too. */
static inline uint64_t wire_request_share(uint64_t share_max, uint64_t bytes_max, uint64_t bytes)
{
    return bytes == bytes_max ? share_max : minimum(share_max, bytes / 32 * 13);
}

/* Feature bits of a hello. */
#define WIRE_FEATURE_LANE 0x1u /* the two sides have a lane */
/* Requests say how long their callers wait, abandoned ones are told of, and a drop may say that nothing was begun. */
#define WIRE_FEATURE_DEADLINES 0x2u
#define WIRE_FEATURE_TRACES 0x4u /* a request may have a trace */

#define WIRE_MAILBOX_CLOSING 0x1u

struct wire_mailbox {
    uint64_t request_limit; /* total charge of requests that the peer may ever have sent */
    uint64_t batch_limit;   /* total batches that the peer may ever have sent */
    uint64_t nonce;         /* of this connection */
    uint32_t flags;         /* WIRE_MAILBOX_CLOSING */
    uint32_t returned;      /* as in a batch's header */
    uint32_t zero[8];
};
static_assert(sizeof(struct wire_mailbox) == 64, "mailbox");

#define WIRE_BATCH_FIN 0x1u

struct wire_batch {
    uint64_t request_limit;
    uint64_t batch_limit;
    uint32_t sequence;      /* low 32 bits, from 0 */
    uint32_t bytes;         /* of the batch, this header included */
    uint16_t message_count; /* 0 is only allowed with FIN */
    uint16_t flags;         /* WIRE_BATCH_FIN */
    uint32_t returned;      /* which places of the sender's arena the receiver may use again */
};
static_assert(sizeof(struct wire_batch) == WIRE_BATCH_HEADER_BYTES &&
                  offsetof(struct wire_batch, batch_limit) == 8 &&
                  offsetof(struct wire_batch, sequence) == 16 &&
                  offsetof(struct wire_batch, bytes) == 20 &&
                  offsetof(struct wire_batch, message_count) == 24 &&
                  offsetof(struct wire_batch, flags) == 26 &&
                  offsetof(struct wire_batch, returned) == 28,
              "batch header: it is read and written as four words");

#define WIRE_MESSAGES_MAX UINT16_MAX

#define WIRE_REQUEST 1u
#define WIRE_RESPONSE 2u
/* With WIRE_FEATURE_LANE alone. In the headers of words, all is 0 but the kind and the length. */
#define WIRE_LANE 3u       /* struct wire_lane */
#define WIRE_LANE_STATE 4u /* struct wire_lane_state */
#define WIRE_REVOKE 5u     /* struct wire_serial */
#define WIRE_REVOKED 6u    /* likewise: the answer */
/* Words of all endpoints. */
#define WIRE_WANT 7u  /* nothing: the sender's requests need the receiver's largest ring */
#define WIRE_RING 8u  /* struct wire_ring: where the sender's largest ring is */
#define WIRE_MOVED 9u /* nothing: alone in the first batch that is in the receiver's largest ring */
#define WIRE_YIELD                                                                                 \
    10u /* nothing: the sender gives back what was lent to it of the receiver's window */

#define WIRE_ARENA 11u /* struct wire_arena: the receiver may write payloads there */
/* Messages whose payload is in a place of the receiver's arena: struct wire_place. */
#define WIRE_REQUEST_PLACED 12u
#define WIRE_RESPONSE_PLACED 13u

/* With WIRE_FEATURE_DEADLINES: nobody waits for the response of this request any more. A header alone, with the call id and
 * the status that the call has ended with. */
#define WIRE_ABANDONED 14u

/* With WIRE_FEATURE_TRACES: a crpc_trace. The next request, if it has this call id, is part of what it says. */
#define WIRE_TRACE 15u

/* In the immediate of the batch with MOVED. */
#define WIRE_IMMEDIATE_MOVED 0x80000000u
/* By so much the number of the next batch is larger after a YIELD. All limits from before are below it. */
#define WIRE_YIELD_JUMP (UINT64_C(1) << 32)

#define WIRE_CALL_INDEX_BITS 20
#define WIRE_CALL_INDEX_MASK ((1u << WIRE_CALL_INDEX_BITS) - 1)

struct wire_message {
    uint32_t payload_bytes;
    uint32_t call_id;         /* 19..0 index, 31..20 generation */
    uint32_t limit_or_status; /* request: longest reply in bytes; response: int32_t status */
    uint16_t method;          /* request; 0 in a response */
    uint8_t kind;             /* WIRE_REQUEST, WIRE_RESPONSE, or that of a word */
    uint8_t zero;             /* of a request with time left: the kind, and here wire_time_code */
};
static_assert(sizeof(struct wire_message) == WIRE_HEADER_BYTES &&
                  offsetof(struct wire_message, call_id) == 4 &&
                  offsetof(struct wire_message, limit_or_status) == 8 &&
                  offsetof(struct wire_message, method) == 12 &&
                  offsetof(struct wire_message, kind) == 14,
              "message header: it is read as four words, and written as two");

/* How long the caller of a request waits, in 12 bits behind the 4 of the kind: a number of 1024 ns, rounded up. The upper 5 bits are an
 * exponent, the lower 7 what follows the leading bit. 0: for ever, or longer than can be said. */
#define WIRE_KIND_BITS 4
#define WIRE_TIME_MAX 0xfffu
#define WIRE_TIME_HIGH_SHIFT (48 + WIRE_KIND_BITS) /* in the second word of a header */
#define WIRE_TIME_HIGH_MASK ((uint64_t)WIRE_TIME_MAX << WIRE_TIME_HIGH_SHIFT)
#define WIRE_TIME_UNIT_LOG2 10
#define WIRE_TIME_PART_BITS 7

static inline uint32_t wire_time_code(uint64_t time_ns)
{
    const uint64_t units = time_ns / (1u << WIRE_TIME_UNIT_LOG2) +
                           (time_ns % (1u << WIRE_TIME_UNIT_LOG2) != 0); /* which cannot overflow */
    if (units < 1u << WIRE_TIME_PART_BITS) {
        return (uint32_t)units;
    }
    const unsigned shift = 63 - WIRE_TIME_PART_BITS - (unsigned)__builtin_clzll(units);
    const uint64_t code =
        ((uint64_t)shift << WIRE_TIME_PART_BITS) +
        ((units + (UINT64_C(1) << shift) - 1) >> shift); /* with the leading bit */
    return code <= WIRE_TIME_MAX ? (uint32_t)code : 0;
}

static inline uint64_t wire_time_ns(uint32_t code)
{
    const uint32_t exponent = code >> WIRE_TIME_PART_BITS;
    const uint64_t part = code & ((1u << WIRE_TIME_PART_BITS) - 1);
    const uint64_t units =
        exponent == 0 ? part : (part | 1u << WIRE_TIME_PART_BITS) << (exponent - 1);
    return units << WIRE_TIME_UNIT_LOG2;
}

/* The queue pair of the sender's lane. */
struct wire_lane {
    struct link_address address;
    uint32_t life;       /* how often the sender has made its lane, with this one */
    uint32_t ece_vendor; /* 0 where one side does not know it */
};
static_assert(sizeof(struct wire_lane) == 40, "a word");

#define WIRE_LANE_READY 1u /* the sender's queue pair is connected */
#define WIRE_LANE_ENDED 2u /* it has no lane, or no more */

struct wire_lane_state {
    uint32_t life;
    uint32_t state; /* WIRE_LANE_READY or _ENDED */
};

struct wire_serial {
    uint64_t serial; /* of a grant */
};

/* Whether a ring of `bytes` can be there. */
static inline bool wire_ring_possible(uint64_t address, uint64_t bytes)
{
    return address % WIRE_UNIT_BYTES == 0 &&
           address <= UINT64_MAX - 2 * bytes - sizeof(struct wire_mailbox);
}

struct wire_ring {
    uint64_t address; /* as in the hello */
    uint32_t key;
    uint32_t zero;
};
static_assert(sizeof(struct wire_ring) == 16, "a word");

#define WIRE_PLACES_MAX 24u

/* An arena: so many places, one behind the other. */
struct wire_arena {
    uint64_t address;
    uint32_t place_bytes;
    uint32_t key;
    uint32_t places; /* 1..WIRE_PLACES_MAX */
    uint32_t zero;
};
static_assert(sizeof(struct wire_arena) == 24, "a word");

struct wire_place {
    uint32_t place;
    uint32_t bytes; /* of the payload, which begins with the place */
};

/* What has been returned of an arena, in one number that tells which of two is newer: the lower bits change, one for each
 * place when it is returned, and the upper ones count the returns. */
#define WIRE_RETURNED_PLACES ((1u << WIRE_PLACES_MAX) - 1)

/* The number when this place has been returned, too. */
static inline uint32_t wire_return(uint32_t returned, uint32_t place)
{
    return (returned ^ 1u << place) + (1u << WIRE_PLACES_MAX);
}

/* By how many returns `newer` is ahead of `older`, which it may be by half of what the count counts; 0 or above that: it is
 * not. */
static inline uint32_t wire_returns_between(uint32_t older, uint32_t newer)
{
    return ((newer >> WIRE_PLACES_MAX) - (older >> WIRE_PLACES_MAX)) &
           (UINT32_MAX >> WIRE_PLACES_MAX);
}

#define WIRE_RETURNS_MAX ((UINT32_MAX >> WIRE_PLACES_MAX) / 2)

/* The body of an endpoint's hello. */
struct wire_endpoint {
    uint64_t ring_address;       /* of the first ring; the mailbox lies 2 * its bytes after it */
    uint32_t ring_key;           /* of both */
    uint32_t request_units;      /* share of the largest ring for requests */
    uint16_t batch_window;       /* the largest */
    uint16_t batch_window_first; /* also the first batch limit */
    uint8_t ring_log2;           /* size of the sender's largest receive ring, 12..30 */
    uint8_t ring_log2_first;     /* of the first one, 12..ring_log2 */
    uint8_t calls_log2; /* number of the sender's call slots, 0..20; its call ids stay below */
    uint8_t zero;
};
static_assert(sizeof(struct wire_endpoint) == LINK_BODY_BYTES, "body of a hello");

#endif

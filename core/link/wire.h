/* wire.h: what two sides send each other before anything else: hello, rejection and blob. The
 * specification is docs/wire.md, "Links". All integers are little-endian, as is every machine that
 * the library supports.
 */
#ifndef CORE_LINK_WIRE_H
#define CORE_LINK_WIRE_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "copyrpc's wire structs are little-endian; this machine is not"
#endif

/* Reads a field that the peer's device may be writing, with exactly one load. */
#define wire_load(pointer) (*(const volatile __typeof__(*(pointer)) *)(pointer))

/* Copies a struct that the peer's device may be writing. What comes after it sees the copy only: without
 * the barrier the compiler might leave the copy out, and read the original again. */
#define wire_copy(to, from)                                                                        \
    do {                                                                                           \
        memcpy((to), (from), sizeof(*(to)));                                                       \
        __asm__ volatile("" : "+m"(*(to)));                                                        \
    } while (0)

/* ---- Hello ----------------------------------------------------------------------------------- */

#define LINK_MAGIC 0x43505243u /* "CRPC" */
#define LINK_TOKEN_BYTES 16
#define LINK_BODY_BYTES 24

/* Never renumbered, never reused. */
#define LINK_SERVICE_CALLS 1u
#define LINK_SERVICE_CHANNEL 2u
#define LINK_SERVICE_QUEUE 3u /* in blobs alone: over rdma_cm, queues have no hello */

/* Private data of rdma_cm's REQ and REP, and part of a blob. Bytes 0 to 6 never change. */
struct link_hello {
    uint32_t magic;
    uint8_t version_min; /* of the service's protocol; REP: both are the chosen version */
    uint8_t version_max;
    uint8_t service;     /* LINK_SERVICE_* */
    uint8_t token_bytes; /* 0..16; REP: 0 */
    uint16_t features;   /* offered; REP: selected */
    uint16_t features_required;
    uint32_t nonce; /* of the connection */
    uint8_t token[LINK_TOKEN_BYTES];
    uint8_t body[LINK_BODY_BYTES]; /* the service's own */
};
static_assert(sizeof(struct link_hello) == 56, "hello");

/* Private data of a rejection. Bytes 0 to 5 as in the hello. */
#define LINK_REJECT_APPLICATION 1u /* detail: the application's reason */
#define LINK_REJECT_VERSION 2u
#define LINK_REJECT_FEATURES 3u /* detail: the unknown features */
#define LINK_REJECT_MALFORMED 4u
#define LINK_REJECT_NO_ROOM 5u
#define LINK_REJECT_SERVICE 6u   /* detail: LINK_SERVICE_* of the listener */
#define LINK_REJECT_KEY 7u       /* detail: 1 if the key is asked for, 0 if this side has none */
#define LINK_REJECT_TRANSPORT 8u /* detail: 1 if the listener's context has DC, 0 if it has not */

struct link_reject {
    uint32_t magic;
    uint8_t version_min;
    uint8_t version_max;
    uint16_t reason;
    uint32_t detail;
};
static_assert(sizeof(struct link_reject) == 12, "rejection");

/* Offered and required in the hello of a side whose queue pairs are dynamic. The nonce of a side is the access key of its DCT. */
#define LINK_FEATURE_DYNAMIC 0x4000u

/* Of a side with an InfiniBand port. ROUTE_HEADERS: it knows the other bit. GRH: who sends to its queue pairs has to use a GRH, within the
 * subnet, too, because a port of the side requires one. In the answer to a side that does not know them, neither is set. */
#define LINK_FEATURE_ROUTE_HEADERS 0x2000u
#define LINK_FEATURE_GRH 0x1000u

/* The side knows what is told of ECE: in its blob, and with addresses of lanes and rails. In the answer to a side that does not know it, it
 * is not set. */
#define LINK_FEATURE_ECE 0x0800u

/* In a hello of a blob, in place of bytes that a token has not, LINK_ECE_OFFSET behind where it begins. No room behind a longer one. */
struct link_ece {
    uint32_t vendor;
    uint32_t options; /* that the queue pair of the blob offers; 0 = none */
};
#define LINK_ECE_OFFSET 8u
static_assert(LINK_ECE_OFFSET + sizeof(struct link_ece) == LINK_TOKEN_BYTES, "ECE of a blob");

/* ---- Proof of a key ------------------------------------------------------------------------------ */

/* Offered and required in the hello of a side that has a key. The body of that hello is a struct
 * link_proof_body, whatever the service. */
#define LINK_FEATURE_PROOF 0x8000u

#define LINK_KEY_BYTES_MIN 16
#define LINK_KEY_BYTES_MAX 64
#define LINK_PROOF_BYTES 32

struct link_proof_body {
    uint64_t address; /* of this side's memory for the peer's words */
    uint32_t key;
    uint32_t queue_pair_number; /* of this side */
    uint64_t zero;
};
static_assert(sizeof(struct link_proof_body) == LINK_BODY_BYTES, "body of a hello");

/* A word's number is its immediate. Word n is written at address + 64 * (n - 1). */
#define LINK_WORD_NONCE 1u
#define LINK_WORD_PROOF 2u
#define LINK_WORD_BODY 3u
#define LINK_WORDS 3u

struct link_word {
    uint8_t proof[LINK_PROOF_BYTES]; /* word 1: the nonce */
    uint8_t body[LINK_BODY_BYTES];   /* word 3: of the service; else zeros */
    uint64_t zero;
};
static_assert(sizeof(struct link_word) == 64, "word");

/* ---- Blob ------------------------------------------------------------------------------------ */

#define LINK_BLOB_MAGIC 0x42505243u /* "CRPB" */

/* Address of a queue pair: struct nic_address. */
struct link_address {
    uint32_t queue_pair_number;
    uint32_t packet_sequence_number;
    uint16_t lid;
    uint8_t link;
    uint8_t mtu_code;
    uint8_t gid[16];
    uint32_t ece_options; /* 0 in a blob, and where one side does not know it */
};
static_assert(sizeof(struct link_address) == 32, "address");

struct link_blob {
    uint32_t magic;
    uint16_t bytes; /* of the whole blob */
    uint16_t zero;
    struct link_address address;
    struct link_hello hello;
    uint32_t zero2;
    uint32_t checksum; /* FNV-1a of all bytes before it; detects damage, not forgery */
};
static_assert(sizeof(struct link_blob) == 104, "blob");

#endif

/* wire.h: all formats that a channel and its peer exchange, except the hello around struct
 * channel_hello, which is in link/wire.h. The specification is docs/wire.md, "Channels".
 *
 * All integers are little-endian, as is every machine that the library supports. Data that the peer
 * can rewrite at any time is copied once, with wire_copy, and the copy is checked.
 */
#ifndef CORE_CHANNEL_WIRE_H
#define CORE_CHANNEL_WIRE_H

#include <assert.h>
#include <stdint.h>

#include "base/compiler.h"
#include "link/wire.h"

#define CHANNEL_VERSION_MIN 1
#define CHANNEL_VERSION_MAX 1

#define CHANNEL_SLOTS_LOG2_MAX 8
#define CHANNEL_SLOTS_MAX (1u << CHANNEL_SLOTS_LOG2_MAX)
#define CHANNEL_QUEUE_PAIRS_MAX 8u

/* ---- Immediate ------------------------------------------------------------------------------- */

/* Of a message (mask 1 to 3):          Of control (mask 0):
 *    7..0   slot                          7..0   CHANNEL_IMMEDIATE_*
 *    9..8   mask of the shares            9..8   0
 *   10      sent in place of the other   11..10  0
 *   11      a record has the sizes       31..12  sequence number, or epoch of a probe
 *   31..12  generation of the slot
 *
 * Share n of a message is the part that was split off for rail n. Bit 10 is set if the other rail
 * carries it. */
#define CHANNEL_MASK_SHIFT 8
#define CHANNEL_IMMEDIATE_PROXY 0x400u
#define CHANNEL_IMMEDIATE_RECORD 0x800u
#define CHANNEL_GENERATION_SHIFT 12
#define CHANNEL_GENERATION_MASK 0xfffffu

#define CHANNEL_IMMEDIATE_CONTROL 1u /* a message was written to the inbox */
#define CHANNEL_IMMEDIATE_PROBE 2u   /* the rail works in this direction */

/* ---- Memory that the peer writes ------------------------------------------------------------- */

#define CHANNEL_INBOX_MESSAGES 8u
#define CHANNEL_CONTROL_BYTES 512u

/* A control message. */
struct channel_control {
    uint32_t sequence; /* from 0; its place in the inbox is sequence % CHANNEL_INBOX_MESSAGES */
    uint8_t kind;      /* CHANNEL_CONTROL_* */
    uint8_t rail;
    uint16_t zero;
    uint32_t epoch; /* number of the attempt to bring up the rail */
    uint32_t zero2;
    uint8_t body[CHANNEL_CONTROL_BYTES - 16];
};
static_assert(sizeof(struct channel_control) == CHANNEL_CONTROL_BYTES, "control message");

#define CHANNEL_CONTROL_OFFER 1u  /* struct channel_offer */
#define CHANNEL_CONTROL_ANSWER 2u /* struct channel_offer */
#define CHANNEL_CONTROL_REPORT 3u /* struct channel_report */
#define CHANNEL_CONTROL_BYE 4u    /* struct channel_bye: the sender sends and receives no more */
#define CHANNEL_CONTROL_LEAVE 5u  /* struct channel_bye, `sent` is 0: the sender receives no more */

/* With CHANNEL_FEATURE_WAKE only. */
#define CHANNEL_CONTROL_ASLEEP 6u /* struct channel_asleep */
#define CHANNEL_CONTROL_WAKE 7u   /* no body: the message that was named can be sent */

/* Both sides have it: they understand ASLEEP and WAKE. */
#define CHANNEL_FEATURE_WAKE 1u

/* The sender of this sleeps until the peer's clear-to-sends for that message of its are written. */
struct channel_asleep {
    uint64_t number;
};

#define CHANNEL_ANSWER_OK 0u
#define CHANNEL_ANSWER_LACKED 1u /* this side has no such rail */
#define CHANNEL_ANSWER_FAILED 2u /* this side could not create or connect its queue pairs */

/* The queue pairs of a rail, and the key for writing to the area over them. */
struct channel_offer {
    uint32_t area_key;
    uint8_t answer; /* CHANNEL_ANSWER_*; in an offer 0 */
    uint8_t queue_pairs;
    uint16_t zero;
    uint32_t ece_vendor; /* 0 where one side does not know it, or there are no options */
    uint32_t zero2;
    struct link_address addresses[CHANNEL_QUEUE_PAIRS_MAX];
};

/* Tells what has arrived over a lost rail. Nothing more can arrive over it, because the queue pairs
 * of the sender of this report are in the error state. */
struct channel_report {
    /* Number of the next receive that this side posts. Each slot holds the last message before it
     * that uses the slot. */
    uint64_t posted;
    uint64_t zero;
    /* One bit per share and slot: the message in the slot still waits for this share. */
    uint8_t unseen[2][CHANNEL_SLOTS_MAX / 8];
};

/* A side sends LEAVE as soon as it starts to disconnect, and BYE when it has sent everything. Both
 * can overtake data on other queue pairs, so they contain counts. */
struct channel_bye {
    uint64_t sent;   /* messages that this side has sent on the channel */
    uint64_t posted; /* receives that this side has posted on the channel */
};

/* The right to write to a buffer over one rail. It ends with the message, and with the rail. These 8
 * bytes land as one. */
struct channel_right {
    uint32_t key;
    uint32_t epoch; /* of the rail; of another epoch, or 0: no right */
} __attribute__((aligned(8)));

/* Clear to send: one buffer that the peer may fill over one rail. Each rail has lines of its own, which are
 * written over that rail alone; those of a message differ in their rights, and may in `rails`. */
struct channel_cts {
    uint64_t address;
    uint64_t bytes;
    struct channel_right right;
    uint32_t tag;
    uint8_t index; /* of the buffer within its group */
    uint8_t count; /* buffers in the group */
    uint8_t rails; /* mask of those over which the message has such lines, or will have them soon */
    uint8_t zero;
    uint64_t zero2[3];
    uint64_t number; /* of the message, plus 1; these bytes land last */
};
static_assert(sizeof(struct channel_cts) == 64, "clear to send");

/* The sizes of a message, where the completions of its immediates do not give them. */
struct channel_record {
    uint64_t number; /* of the message, plus 1 */
    uint32_t count;
    uint32_t zero;
    uint32_t sizes[8]; /* of the sender's buffers; one that is larger than its target was not
                          sent at all */
    uint64_t zero2[2];
};
static_assert(sizeof(struct channel_record) == 64, "record");

/* The area consists of the inbox, the records, and the clear-to-sends (eight per slot and rail). */
#define CHANNEL_RECORDS_OFFSET (CHANNEL_INBOX_MESSAGES * CHANNEL_CONTROL_BYTES)
#define CHANNEL_BUFFERS_OFFSET (CHANNEL_RECORDS_OFFSET + CHANNEL_SLOTS_MAX * 64u)
#define CHANNEL_RAIL_BUFFERS_BYTES (8u * 64u)
#define CHANNEL_SLOT_BUFFERS_BYTES (2u * CHANNEL_RAIL_BUFFERS_BYTES)

/* Where the clear-to-sends of a slot and rail begin. */
static inline uint32_t channel_buffers_offset(uint32_t slot, uint32_t rail)
{
    return CHANNEL_BUFFERS_OFFSET + slot * CHANNEL_SLOT_BUFFERS_BYTES +
           rail * CHANNEL_RAIL_BUFFERS_BYTES;
}

static inline uint64_t channel_area_bytes(uint32_t slots)
{
    return CHANNEL_BUFFERS_OFFSET + (uint64_t)slots * CHANNEL_SLOT_BUFFERS_BYTES;
}

/* ---- Hello ----------------------------------------------------------------------------------- */

/* The body of a channel's hello. */
struct channel_hello {
    uint64_t area_address; /* a multiple of 64 */
    uint32_t area_key;     /* for the first queue pair of rail 0 */
    uint8_t slots_log2;
    uint8_t queue_pairs; /* of each rail */
    uint8_t rails;       /* mask of the sender's rails */
    uint8_t zero;
    uint64_t zero2;
};
static_assert(sizeof(struct channel_hello) == LINK_BODY_BYTES, "body of a hello");

/* ---- Hint ------------------------------------------------------------------------------------ */

/* Shared memory that another program writes: docs/wire.md, "Hint". */
struct channel_hint {
    uint32_t magic;       /* CHANNEL_HINT_MAGIC */
    uint32_t version;     /* 1, which ends with rail0_share, or 2 */
    uint32_t sequence;    /* odd while it is being written */
    uint32_t rail0_share; /* 0 to 1024; anything else: there is no hint */
    uint64_t until_ns;    /* version 2: good before this time of CLOCK_MONOTONIC */
    uint64_t zero;
};
#define CHANNEL_HINT_BYTES_MIN 16u     /* of version 1 */
#define CHANNEL_HINT_MAGIC 0x54484343u /* "CCHT" */
#define CHANNEL_HINT_NONE 0xffffffffu

#endif

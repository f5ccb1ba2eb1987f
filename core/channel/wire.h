/* wire.h: every byte that a channel shows its peer, in one place; the hello around the first
 * of them is in link/wire.h. The document is docs/wire.md. All integers are little-endian, and so is every machine this is built for. What the
 * peer can rewrite at any time is copied once, and the copy is checked.
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
 *   10      stands for the other rail    11..10  0
 *   11      a record tells the sizes     31..12  sequence number, or epoch of a probe
 *   31..12  generation of the slot
 *
 * Share n of a message is the part that was meant for rail n. */
#define CHANNEL_MASK_SHIFT 8
#define CHANNEL_IMMEDIATE_PROXY 0x400u
#define CHANNEL_IMMEDIATE_RECORD 0x800u
#define CHANNEL_GENERATION_SHIFT 12
#define CHANNEL_GENERATION_MASK 0xfffffu

#define CHANNEL_IMMEDIATE_CONTROL 1u /* a message in the inbox has been written */
#define CHANNEL_IMMEDIATE_PROBE 2u   /* this rail works, in this direction */

/* ---- Memory that the peer writes ------------------------------------------------------------- */

#define CHANNEL_INBOX_MESSAGES 8u
#define CHANNEL_CONTROL_BYTES 512u

/* A message of control. */
struct channel_control {
    uint32_t sequence; /* from 0; its place in the inbox is sequence % CHANNEL_INBOX_MESSAGES */
    uint8_t kind;      /* CHANNEL_CONTROL_* */
    uint8_t rail;
    uint16_t zero;
    uint32_t epoch; /* of the rail: how often it was tried */
    uint32_t zero2;
    uint8_t body[CHANNEL_CONTROL_BYTES - 16];
};
static_assert(sizeof(struct channel_control) == CHANNEL_CONTROL_BYTES, "control message");

#define CHANNEL_CONTROL_OFFER 1u  /* struct channel_offer */
#define CHANNEL_CONTROL_ANSWER 2u /* the same */
#define CHANNEL_CONTROL_REPORT 3u /* struct channel_report */
#define CHANNEL_CONTROL_BYE 4u    /* struct channel_bye: nothing more will be sent or received */
#define CHANNEL_CONTROL_LEAVE 5u  /* struct channel_bye, `sent` 0: nothing more will be received */

#define CHANNEL_ANSWER_OK 0u
#define CHANNEL_ANSWER_LACKED 1u /* this side has no such rail */
#define CHANNEL_ANSWER_FAILED 2u /* this side could not make or connect its queue pairs */

/* A rail's queue pairs, and the key with which the area may be written over them. */
struct channel_offer {
    uint32_t area_key;
    uint8_t answer; /* OFFER: 0 */
    uint8_t queue_pairs;
    uint16_t zero;
    uint64_t zero2;
    struct link_address addresses[CHANNEL_QUEUE_PAIRS_MAX];
};

/* What has arrived over a rail that is lost. Nothing more will: the queue pairs of its sender are in
 * the error state. */
struct channel_report {
    uint64_t posted; /* number of the next message to be received: slot n % slots holds the last
                        before it that belongs there */
    uint64_t zero;
    uint8_t unseen[2][CHANNEL_SLOTS_MAX / 8]; /* per share, a bit per slot: the message of this slot
                                                still waits for that share */
};

/* A LEAVE comes as soon as leave is taken, a BYE when what was to be sent has been. They can overtake
 * what travels on other queue pairs, so they tell what there was. */
struct channel_bye {
    uint64_t sent;   /* messages that its sender has sent, ever */
    uint64_t posted; /* receives that it has posted, ever */
};

/* One buffer to be filled: clear to send. */
struct channel_cts {
    uint64_t address;
    uint64_t bytes;
    uint32_t keys[2]; /* per rail */
    uint32_t tag;
    uint8_t index; /* within the group */
    uint8_t count; /* of the group */
    uint16_t zero;
    uint64_t zero2[3];
    uint64_t number; /* of the message, plus 1; the last bytes to land */
};
static_assert(sizeof(struct channel_cts) == 64, "clear to send");

/* The sizes of a group, or of a message that was too long for its buffer. */
struct channel_record {
    uint64_t number; /* of the message, plus 1 */
    uint32_t count;
    uint32_t zero;
    uint32_t sizes[8]; /* what the sender had: more than the buffer holds means that nothing of it
                          was sent */
    uint64_t zero2[2];
};
static_assert(sizeof(struct channel_record) == 64, "record");

/* The area: inbox, records, clear-to-sends (eight a slot). */
#define CHANNEL_RECORDS_OFFSET (CHANNEL_INBOX_MESSAGES * CHANNEL_CONTROL_BYTES)
#define CHANNEL_BUFFERS_OFFSET (CHANNEL_RECORDS_OFFSET + CHANNEL_SLOTS_MAX * 64u)
#define CHANNEL_SLOT_BUFFERS_BYTES (8u * 64u)

static inline uint64_t channel_area_bytes(uint32_t slots)
{
    return CHANNEL_BUFFERS_OFFSET + (uint64_t)slots * CHANNEL_SLOT_BUFFERS_BYTES;
}

/* ---- Hello ----------------------------------------------------------------------------------- */

/* What a channel tells its peer in the body of its hello. */
struct channel_hello {
    uint64_t area_address; /* a multiple of 64 */
    uint32_t area_key;     /* for the first queue pair, which is on rail 0 */
    uint8_t slots_log2;
    uint8_t queue_pairs; /* of each rail */
    uint8_t rails;       /* mask of those the sender has */
    uint8_t zero;
    uint64_t zero2;
};
static_assert(sizeof(struct channel_hello) == LINK_BODY_BYTES, "body of a hello");

/* ---- Hint ------------------------------------------------------------------------------------ */

/* Shared memory that a program outside writes: docs/wire.md, "Hint". */
struct channel_hint {
    uint32_t magic;       /* CHANNEL_HINT_MAGIC */
    uint32_t version;     /* 1 */
    uint32_t sequence;    /* odd while it is being written */
    uint32_t rail0_share; /* 0 to 1024 */
};
#define CHANNEL_HINT_MAGIC 0x54484343u /* "CCHT" */

#endif

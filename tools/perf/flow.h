/* flow.h: one channel of copyrpc-perf --channels: the same on both sides.
 *
 * A side that sends has `depth` messages open, one that receives as many receives posted. What is to
 * be sent is in the plan, which travels as the token of the channel. Once the client has sent enough
 * it sends a message of buffers without bytes, and so does the server, followed by a report of what
 * it saw.
 */
#ifndef TOOLS_PERF_FLOW_H
#define TOOLS_PERF_FLOW_H

#include "perf.h"

#define FLOW_VERSION 1
#define FLOW_BOTH 0x1u   /* the server sends, too */
#define FLOW_VERIFY 0x2u /* every byte is compared */
#define FLOW_DEPTH_MAX CRPC_CHANNEL_SLOTS_MAX
#define FLOW_MEMORY_MAX (UINT64_C(4) << 30) /* of one side */

/* What is to be sent: 16 bytes, little-endian. */
struct flow_plan {
    uint8_t version;
    uint8_t flags;
    uint8_t group; /* buffers of a message */
    uint8_t zero;
    uint32_t depth;
    uint32_t bytes_min; /* of a buffer */
    uint32_t bytes_max;
};

/* What the server saw, the client's warm-up included. */
struct flow_report {
    uint64_t magic;
    uint64_t messages;
    uint64_t bytes;
    uint64_t wrong;
    uint64_t clear_to_send_wqes;
    uint64_t data_wqes;
    uint64_t control_wqes;
    uint64_t doorbells;
    uint64_t shares_repeated;
};

enum flow_stage {
    FLOW_IDLE,   /* sends nothing */
    FLOW_STREAM, /* sends messages */
    FLOW_END,    /* the end is to be sent */
    FLOW_REPORT, /* then the report (server) */
    FLOW_DONE,
};

struct flow_side {
    uint32_t slots;
    uint64_t number;      /* of the next message */
    uint8_t *memory;      /* slots x group x room */
    uint32_t *left;       /* of each slot: buffers not done */
    uint32_t *sizes;      /* of each buffer */
    uint64_t *numbers;    /* of each slot's message */
    uint32_t *free_slots; /* a stack */
    uint32_t free_count;
    crpc_channel_op *queue; /* a ring of what is not submitted yet */
    uint32_t queue_capacity;
    uint64_t queue_head;
    uint64_t queue_tail;
};

struct flow {
    crpc_context *context;
    crpc_channel channel;
    struct flow_plan plan;
    bool server;
    bool lost;
    int32_t lost_status;
    enum flow_stage stage;
    uint64_t room; /* bytes between buffers */
    uint8_t *memory;
    crpc_region region;
    uint8_t *pattern;
    struct flow_side sending;
    struct flow_side receiving;
    uint64_t *started_ns;      /* of each slot that sends */
    struct histogram *latency; /* NULL: not taken */
    uint64_t messages_sent;    /* acknowledged */
    uint64_t messages_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t wrong; /* messages of the wrong size or with wrong bytes */
    uint64_t failed;
    uint64_t streamed;   /* messages queued, but for the end and the report */
    uint64_t end_number; /* of the peer's end: how many messages it sent */
    bool end_received;
    bool report_received;
    struct flow_report report;
};

struct flow_plan flow_plan_of(const struct perf_options *options);
/* What either side asks of the channel; the plan is its token. */
crpc_channel_options flow_channel_options(const struct perf_options *options,
                                          const struct flow_plan *plan);
/* Says that a rail was lost or is used again. */
void flow_tell_rail(const crpc_completion *completion);

/* NULL, or why a plan cannot be followed. */
const char *flow_check(const struct flow_plan *plan);
/* Memory for a channel that is connected or will be. Returns false after it has said why. */
bool flow_open(struct flow *flow, crpc_context *context, const struct flow_plan *plan, bool server);
void flow_close(struct flow *flow);
/* The channel is connected: posts the receives. */
void flow_begin(struct flow *flow, crpc_channel channel);
/* Takes a completion of kind SENT or RECEIVED. */
void flow_take(struct flow *flow, const crpc_completion *completion, uint64_t now_ns);
/* Queues one message to be sent, if a slot is free. */
bool flow_send(struct flow *flow, uint64_t now_ns);
/* Sends the end and the report where they are due, and submits what is queued. */
void flow_submit(struct flow *flow, uint64_t now_ns);
/* True if nothing is being sent. */
bool flow_quiet(const struct flow *flow);
/* True if all that the peer sent has come, its end included. */
bool flow_received_all(const struct flow *flow);

#endif

/* flow.h: one channel of copyrpc-perf --channels, on either side.
 *
 * A sending side keeps `depth` messages open, and a receiving side keeps as many receives posted.
 * The plan says what to send; it travels as the token of the channel. When the client has sent
 * enough, it sends a message of empty buffers, which is the end. The server does the same, and then
 * sends a report of what it saw.
 */
#ifndef TOOLS_PERF_FLOW_H
#define TOOLS_PERF_FLOW_H

#include "perf.h"

#define FLOW_VERSION 1
#define FLOW_BOTH 0x1u   /* the server sends, too */
#define FLOW_VERIFY 0x2u /* every byte is compared */
#define FLOW_DEPTH_MAX CRPC_CHANNEL_SLOTS_MAX
#define FLOW_MEMORY_MAX (UINT64_C(4) << 30) /* for one side */

/* Says what to send: 16 bytes, little-endian. */
struct flow_plan {
    uint8_t version;
    uint8_t flags;
    uint8_t group; /* buffers per message */
    uint8_t zero;
    uint32_t depth;
    uint32_t bytes_min; /* of a buffer */
    uint32_t bytes_max;
};

/* What the server saw, including the client's warm-up. */
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
    FLOW_END,    /* sends the end */
    FLOW_REPORT, /* sends the report (server) */
    FLOW_DONE,
};

struct flow_side {
    uint32_t slots;
    uint64_t number;      /* of the next message */
    uint8_t *memory;      /* slots x group x room */
    uint32_t *left;       /* for each slot: buffers not done */
    uint32_t *sizes;      /* for each buffer */
    uint64_t *numbers;    /* for each slot: number of its message */
    uint32_t *free_slots; /* a stack */
    uint32_t free_count;
    crpc_channel_op *queue; /* a ring of ops that are not submitted yet */
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
    uint64_t room; /* distance of buffers, in bytes */
    uint8_t *memory;
    crpc_region region;
    uint8_t *pattern;
    struct flow_side sending;
    struct flow_side receiving;
    uint64_t *started_ns;      /* for each sending slot */
    struct histogram *latency; /* NULL = not measured */
    uint64_t messages_sent;    /* acknowledged */
    uint64_t messages_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t wrong; /* messages of the wrong size or with wrong bytes */
    uint64_t failed;
    uint64_t streamed;   /* messages queued, except the end and the report */
    uint64_t end_number; /* of the peer's end, which is how many messages it sent */
    bool end_received;
    bool report_received;
    struct flow_report report;
};

struct flow_plan flow_plan_of(const struct perf_options *options);
/* Returns the channel's options for either side. The plan is the token. */
crpc_channel_options flow_channel_options(const struct perf_options *options,
                                          const struct flow_plan *plan);
/* Prints that a rail was lost or came into use. */
void flow_tell_rail(const crpc_completion *completion);

/* Returns NULL, or why the plan is not possible. */
const char *flow_check(const struct flow_plan *plan);
/* Allocates the memory for a channel, which may be connected later. If it fails, prints why and
 * returns false. */
bool flow_open(struct flow *flow, crpc_context *context, const struct flow_plan *plan, bool server);
void flow_close(struct flow *flow);
/* Posts the receives of a channel that has connected. */
void flow_begin(struct flow *flow, crpc_channel channel);
/* Handles a completion of kind SENT or RECEIVED. */
void flow_take(struct flow *flow, const crpc_completion *completion, uint64_t now_ns);
/* Queues one message for sending, if a slot is free. Returns false otherwise. */
bool flow_send(struct flow *flow, uint64_t now_ns);
/* Queues the end and the report when they are due, and submits the queue. */
void flow_submit(struct flow *flow, uint64_t now_ns);
/* Returns true if nothing is being sent. */
bool flow_quiet(const struct flow *flow);
/* Returns true if everything from the peer has arrived, including its end. */
bool flow_received_all(const struct flow *flow);

#endif

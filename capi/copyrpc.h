/* copyrpc.h: the whole public interface of copyrpc, in the order in which a program meets it.
 *
 * Read as it is by C99, C++17, Python's cffi and Go's cgo: no inline functions, bit fields,
 * enums in structs, `bool` or `long`; constants are bare literals. ABI.md says what may change
 * and how.
 *
 * Rules that hold for every declaration below, and are not repeated there:
 *
 *  - Ownership: strings and structs passed in are copied before the call returns. Nothing returned
 *    is ever freed by the caller, except through the close, disconnect or deregister call of its
 *    handle.
 *  - Threads: a context and all that was made from it belong to one thread at a time; the caller
 *    orders hand-overs (a mutex, a channel). Different contexts are independent. Functions without
 *    a context are safe from any thread. A child of fork() must not use a context of its parent.
 *  - Blocking: no function blocks, except crpc_wait (at most its timeout) and those that say so.
 *  - Returns: int32_t, >= 0 good, < 0 one of CRPC_E_*. A failed call has changed nothing. Functions
 *    that take a `crpc_error *` fill it on failure; it may be NULL.
 *  - Handles: { 0 } is none. A handle that was closed, belongs to another context or is of another
 *    kind gives CRPC_E_STALE.
 *  - Sized structs: `struct_size` is first and set by the caller to sizeof. Shorter than version 1
 *    of the struct: CRPC_E_INVALID. Shorter than the library's: what is missing reads as zero, and
 *    zero means the default. Longer: the excess must be zero, else CRPC_E_UNSUPPORTED. Structs
 *    written by the library get the smaller of the two sizes, and struct_size says how much was
 *    written. Reserved fields must be zero, else CRPC_E_INVALID.
 */
#ifndef COPYRPC_H
#define COPYRPC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CRPC_API
#define CRPC_API __attribute__((visibility("default")))
#endif

/* ---- Version --------------------------------------------------------------------------------- */

#define CRPC_VERSION_MAJOR 0
#define CRPC_VERSION_MINOR 1
#define CRPC_VERSION_PATCH 0

/* Tells the version of the library that was loaded, which may differ from the header's.
 * Returns major << 16 | minor << 8 | patch. */
CRPC_API uint32_t crpc_version(void);

/* ---- Status codes: never renumbered, never reused -------------------------------------------- */

#define CRPC_OK 0
#define CRPC_E_INVALID -1       /* an argument is wrong; nothing was changed */
#define CRPC_E_UNSUPPORTED -2   /* known, but not by this version, driver or device */
#define CRPC_E_STALE -3         /* handle or token was closed, used up, or never belonged here */
#define CRPC_E_AGAIN -4         /* no room now: poll, then try again */
#define CRPC_E_TOO_BIG -5       /* can never fit: see crpc_endpoint_info for the limits */
#define CRPC_E_NO_MEMORY -6     /* the system has no memory left */
#define CRPC_E_NO_DEVICE -7     /* no RDMA device, or not the one that was named */
#define CRPC_E_NO_RESOURCE -8   /* the device or the context has no more of what was asked */
#define CRPC_E_MEMLOCK -9       /* RLIMIT_MEMLOCK forbids to register so much memory */
#define CRPC_E_SYSTEM -10       /* a system call failed: see crpc_error.os_error */
#define CRPC_E_TIMEOUT -11      /* the time given has passed */
#define CRPC_E_CANCELED -12     /* a CRPC_OP_CANCEL reached this op */
#define CRPC_E_CLOSING -13      /* the connection is being closed and takes no new calls */
#define CRPC_E_DISCONNECTED -14 /* the connection is gone; whether the peer acted is not known */
#define CRPC_E_CLOSED -15       /* this side closed the handle while the op was pending */
#define CRPC_E_REFUSED -16      /* the peer's application or host refused the connection */
#define CRPC_E_UNREACHABLE -17  /* no route, or no such name */
#define CRPC_E_VERSION -18      /* the peers share no version of the wire protocol */
#define CRPC_E_PROTOCOL -19     /* the peer sent what the protocol forbids */
#define CRPC_E_DROPPED -20      /* the peer let the request go without an answer */
#define CRPC_E_BUSY -21         /* something that must be finished first is still open */
#define CRPC_E_NOT_FOUND -22    /* nothing matches */
#define CRPC_E_INTERRUPTED -23  /* a signal arrived while waiting */
#define CRPC_E_STATE -24        /* not possible in the present state of the handle */
#define CRPC_E_TRUNCATED -25    /* the message is longer than the buffer that was to receive it */

/* Names a status: "CRPC_E_TIMEOUT" for CRPC_E_TIMEOUT, "CRPC_OK" for 0 and above, "CRPC_E_?" for
 * what this version does not know. The string is static. */
CRPC_API const char *crpc_status_name(int32_t status);

/* Says in a sentence what a status means and what to do next. The string is static. */
CRPC_API const char *crpc_status_text(int32_t status);

/* The whole story of one failure; filled by the library in memory of the caller. */
typedef struct crpc_error {
    uint32_t struct_size;
    int32_t status;           /* CRPC_E_* */
    int32_t os_error;         /* errno value, or 0 */
    uint32_t vendor_syndrome; /* of the device, or 0 */
    char message[240];        /* what happened, to what, what to do next; zero-terminated UTF-8 */
} crpc_error;

/* ---- Handles --------------------------------------------------------------------------------- */

typedef struct crpc_context crpc_context;

typedef struct crpc_endpoint {
    uint64_t bits;
} crpc_endpoint;

typedef struct crpc_listener {
    uint64_t bits;
} crpc_listener;

typedef struct crpc_region {
    uint64_t bits;
} crpc_region;

typedef struct crpc_channel {
    uint64_t bits;
} crpc_channel;

/* "Never" for every timeout_ns below that says so. */
#define CRPC_FOREVER 0xffffffffffffffffu

/* ---- Devices --------------------------------------------------------------------------------- */

#define CRPC_DRIVER_AUTO 0u  /* the fastest that the device has, or what COPYRPC_DRIVER says */
#define CRPC_DRIVER_VERBS 1u /* ibv_post_send and ibv_poll_cq: any RoCE or InfiniBand device */
#define CRPC_DRIVER_MLX5 2u  /* direct access to the queues of a ConnectX */

#define CRPC_PORT_DOWN 0u
#define CRPC_PORT_ACTIVE 1u

#define CRPC_LINK_INFINIBAND 1u
#define CRPC_LINK_ETHERNET 2u

typedef struct crpc_device_info {
    uint32_t struct_size;
    uint32_t port;    /* the one described, from 1 */
    char name[64];    /* for crpc_context_options.device, e.g. "mlx5_0" or "rxe0" */
    uint32_t drivers; /* bit 1 << CRPC_DRIVER_x for each that can open it */
    uint32_t port_count;
    uint32_t port_state;        /* CRPC_PORT_* */
    uint32_t link;              /* CRPC_LINK_* */
    uint32_t mtu_bytes;         /* of a packet's payload, active */
    uint32_t gid_index;         /* the one a context takes by default */
    uint8_t gid[16];            /* its value */
    uint32_t endpoints_max;     /* QPs of the device, over all processes */
    uint32_t receive_depth_max; /* receive WQEs that one context may have */
    uint32_t inline_bytes_max;  /* payload that fits in a WQE, 0 = not known before opening */
    uint32_t vendor_id;
    uint32_t vendor_part_id;
    uint32_t reserved;
    uint64_t system_image_guid; /* the same for all ports of one card; 0 = not known */
    uint32_t link_mbps;         /* active speed times width, Mbit/s; 0 = not known */
    uint32_t reserved2;
} crpc_device_info;

/* Describes one port of one RDMA device of this machine. `index` counts over all ports of all
 * devices. Opens the device for a moment: microseconds to milliseconds.
 * Returns CRPC_OK; CRPC_E_NO_DEVICE where index is past the last port. */
CRPC_API int32_t crpc_device_query(uint32_t index, crpc_device_info *info, crpc_error *error);

/* ---- Context: one opened device, its queues, and everything made from it --------------------- */

/* What a driver may use of a device beyond posting and polling. */
#define CRPC_FEATURE_BLUEFLAME 0x1u       /* small sends go out with their doorbell (mlx5) */
#define CRPC_FEATURE_CQE_COMPRESSION 0x2u /* completions that are alike share an entry (mlx5) */

#define CRPC_CONTEXT_GID_INDEX 0x1u /* flag: take gid_index instead of choosing one */
#define CRPC_CONTEXT_RAILS 0x2u     /* flag: open the rails, which channels need */

#define CRPC_RAILS_MAX 2

#define CRPC_LOG_OFF 0u
#define CRPC_LOG_ERROR 1u
#define CRPC_LOG_WARNING 2u
#define CRPC_LOG_INFO 3u
#define CRPC_LOG_DEBUG 4u

typedef struct crpc_context_options {
    uint32_t struct_size;
    uint32_t flags;           /* CRPC_CONTEXT_* */
    char device[64];          /* "" = the first with an active port */
    uint32_t driver;          /* CRPC_DRIVER_* */
    uint32_t port;            /* from 1; 0 = the first that is active */
    uint32_t gid_index;       /* with CRPC_CONTEXT_GID_INDEX; else RoCE v2 with IPv4 is preferred */
    uint32_t endpoints_max;   /* 0 = 256 */
    uint32_t receive_depth;   /* receive WQEs shared by all endpoints; 0 = 24576 or the device's
                                 most. Batch windows of all endpoints sum to at most two thirds */
    uint32_t signal_interval; /* one send WQE in so many asks for a completion; 0 = 64 */
    uint32_t log_level;       /* what crpc_context_log keeps; 0 = CRPC_LOG_OFF */
    uint32_t features;        /* CRPC_FEATURE_CQE_COMPRESSION: wanted. BlueFlame is used wherever it
                                 can be. crpc_context_get_info tells what is in use */
    /* With CRPC_CONTEXT_RAILS: the devices that channels stripe over, "name" or "name:port". Empty:
     * rail 0 is the context's device; rail 1 an active one with the same link that is on another
     * HCA, and if there is none, there is no rail 1. */
    char rails[2][64];
    uint32_t rail_receive_depth; /* receive WQEs of each rail, shared by all channels; 0 = 8192.
                                    A channel takes 2 * slots + 10, of two thirds of them */
    uint32_t channels_max;       /* 0 = 64 */
} crpc_context_options;

/* Opens a device and makes its queues. `options` may be NULL. May take tens of milliseconds.
 * The environment variable COPYRPC_LOG=error|warning|info|debug writes the log to stderr as well;
 * COPYRPC_DRIVER=verbs|mlx5 is what CRPC_DRIVER_AUTO then means.
 * Returns CRPC_OK and *context; CRPC_E_NO_DEVICE, CRPC_E_MEMLOCK, CRPC_E_NO_RESOURCE,
 * CRPC_E_UNSUPPORTED (driver), CRPC_E_INVALID, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_context_open(const crpc_context_options *options, crpc_context **context,
                                   crpc_error *error);

/* Closes all handles of the context, then the context. Ops that are still pending get no
 * completion: to see them, close their endpoints first and poll until none is left. NULL is
 * allowed. Blocks for as long as the system needs to take connections down (milliseconds). */
CRPC_API int32_t crpc_context_close(crpc_context *context);

typedef struct crpc_context_info {
    uint32_t struct_size;
    uint32_t driver; /* CRPC_DRIVER_* in use */
    char device[64];
    char driver_name[16];
    uint32_t port;
    uint32_t gid_index;
    uint8_t gid[16];
    uint32_t link;
    uint32_t mtu_bytes;
    uint32_t endpoints_max;
    uint32_t endpoints; /* open now */
    uint32_t receive_depth;
    uint32_t send_depth; /* WQEs of an endpoint's send queue */
    uint32_t signal_interval;
    uint32_t inline_bytes_max;
    uint32_t batch_window_left; /* sum of the windows that new endpoints may still ask for */
    uint32_t features;          /* CRPC_FEATURE_* in use */
} crpc_context_info;

/* Tells what the context runs on. Returns CRPC_OK, CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_get_info(crpc_context *context, crpc_context_info *info);

/* Counters since the context or the endpoint was made. */
typedef struct crpc_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t calls;          /* accepted */
    uint64_t responses;      /* delivered to the caller with the peer's answer */
    uint64_t calls_failed;   /* completed with an error of any kind */
    uint64_t requests;       /* delivered to this side's application */
    uint64_t replies;        /* accepted, drops included */
    uint64_t late_responses; /* arrived after their call had timed out or was canceled */
    uint64_t batches_sent;   /* WRITEs with immediate */
    uint64_t batches_received;
    uint64_t bytes_sent; /* of batches, headers included */
    uint64_t bytes_received;
    uint64_t send_wqes;     /* batches and mailbox READs */
    uint64_t doorbells;     /* for sends */
    uint64_t signaled_wqes; /* those that asked for a completion */
    uint64_t inline_wqes;   /* those that carried their payload */
    uint64_t receive_wqes;  /* posted to the shared receive queue (context only) */
    uint64_t mailbox_reads;
    uint64_t completions;         /* of the device, read from its completion queues */
    uint64_t refused;             /* ops that got CRPC_E_AGAIN */
    uint64_t polls;               /* crpc_poll calls (context only) */
    uint64_t polls_empty;         /* those that found nothing at all (context only) */
    uint64_t unknown_completions; /* of the device, that belong to nothing of ours (context only) */
    uint64_t protocol_errors;
} crpc_stats;

/* Reads the counters. Returns CRPC_OK, CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_get_stats(crpc_context *context, crpc_stats *stats);

typedef struct crpc_log_entry {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint32_t level;   /* CRPC_LOG_* */
    uint32_t lost;    /* entries overwritten before this one because nobody read them */
    char message[240];
} crpc_log_entry;

/* Takes the oldest entries of the context's log, which keeps the last 256.
 * Returns how many were written to entries, 0 to capacity. */
CRPC_API int32_t crpc_context_log(crpc_context *context, crpc_log_entry *entries,
                                  uint32_t capacity);

/* ---- Ops and completions --------------------------------------------------------------------- */

#define CRPC_OP_CALL 1u  /* a request to the peer; completes with CRPC_COMPLETION_RESPONSE */
#define CRPC_OP_REPLY 2u /* the answer to a request; completes with CRPC_COMPLETION_REPLY */
#define CRPC_OP_DROP 3u  /* lets a request go: its caller gets CRPC_E_DROPPED; as CRPC_OP_REPLY */
/* ends this endpoint's calls whose user_data equals `token` with CRPC_E_CANCELED; completes with
 * CRPC_COMPLETION_CANCEL */
#define CRPC_OP_CANCEL 4u

/* flag of REPLY and DROP: it yields no completion; what becomes of it shows in
 * CRPC_COMPLETION_DISCONNECTED alone */
#define CRPC_OP_QUIET 0x1u

/* One op. 64 bytes for ever. A field that the opcode does not name must be zero. */
typedef struct crpc_op {
    uint8_t opcode;           /* CRPC_OP_* */
    uint8_t flags;            /* CRPC_OP_QUIET */
    uint16_t method;          /* CALL: any number; the peer's completion shows it */
    int32_t status;           /* REPLY: >= 0, the application's; the caller's completion shows it */
    crpc_endpoint endpoint;   /* all */
    uint64_t user_data;       /* all: given back in the completion */
    uint64_t token;           /* REPLY, DROP: that of the request. CANCEL: a user_data */
    uint64_t payload_offset;  /* CALL, REPLY: from the start of crpc_submit's payload */
    uint32_t payload_bytes;   /* CALL, REPLY: may be 0 */
    uint32_t reply_bytes_max; /* CALL: the longest reply that the peer may send */
    uint64_t timeout_ns;      /* CALL: from now; 0 = none */
    uint64_t reserved;
} crpc_op;

#define CRPC_COMPLETION_RESPONSE 1u /* of CRPC_OP_CALL: status < 0, or the peer's status */
#define CRPC_COMPLETION_REPLY 2u    /* of CRPC_OP_REPLY and DROP: the peer has it */
/* of CRPC_OP_CANCEL: token = calls ended; 0 of them: status = CRPC_E_NOT_FOUND */
#define CRPC_COMPLETION_CANCEL 3u
#define CRPC_COMPLETION_REQUEST 4u         /* a request of the peer: answer with its token */
#define CRPC_COMPLETION_CONNECT_REQUEST 5u /* to a listener: crpc_endpoint_accept or _reject */
#define CRPC_COMPLETION_CONNECTED 6u /* of connect, accept, join: status; < 0: not connected */
/* once for each connected endpoint: CRPC_OK when both sides took leave, else why;
 * crpc_endpoint_close it */
#define CRPC_COMPLETION_DISCONNECTED 7u
#define CRPC_COMPLETION_ROOM 8u      /* after CRPC_E_AGAIN: there may be room again */
#define CRPC_COMPLETION_DEVICE 9u    /* the device or its port changed: status */
#define CRPC_COMPLETION_SENT 10u     /* of CRPC_CHANNEL_SEND: the buffer may be used again */
#define CRPC_COMPLETION_RECEIVED 11u /* of CRPC_CHANNEL_RECEIVE: the buffer is filled */
/* a rail of a connected channel (token: its index) was lost: CRPC_E_DISCONNECTED; or is used again:
 * CRPC_OK. No message is lost by it. */
#define CRPC_COMPLETION_RAIL 12u

/* flag of a completion: `endpoint.bits` are those of a crpc_channel, and `endpoint_user_data` is the
 * channel's. Kinds 3 and 5 to 8, 10 to 12 may have it. */
#define CRPC_COMPLETION_OF_CHANNEL 0x1u

/* One completion. 64 bytes for ever. Fields that a kind does not name are zero. */
typedef struct crpc_completion {
    uint8_t kind;                /* CRPC_COMPLETION_* */
    uint8_t flags;               /* CRPC_COMPLETION_OF_CHANNEL */
    uint16_t method;             /* REQUEST, RESPONSE */
    int32_t status;              /* CRPC_E_*, or >= 0 */
    crpc_endpoint endpoint;      /* all but DEVICE. CONNECT_REQUEST: the new one */
    uint64_t user_data;          /* that of the op; REQUEST and connection events: the endpoint's;
                                CONNECT_REQUEST: the listener's */
    uint64_t token;              /* REQUEST: for its reply. REPLY: that of the op. CANCEL: a count.
                                SENT, RECEIVED: number of the message, from 0. RAIL: its index */
    uint64_t payload;            /* REQUEST, RESPONSE: address of a view, valid until the next
                                crpc_poll of the context; 16-byte aligned. SENT, RECEIVED: address
                                of the buffer */
    uint32_t payload_bytes;      /* SENT, RECEIVED: exact length of what was sent; with
                                CRPC_E_TRUNCATED of what the sender had */
    uint32_t reply_bytes_max;    /* REQUEST: the longest reply its caller accepts */
    uint64_t view;               /* REQUEST, RESPONSE: names the view to crpc_retain */
    uint64_t endpoint_user_data; /* all but DEVICE: that of the endpoint */
} crpc_completion;

/* Takes ops in order until one cannot be taken. Payloads lie at (payload_offset, payload_bytes) of
 * `payload`, are copied, and may be reused at once; payload may be NULL if every op's is empty.
 * What gathers goes to the peer as one batch: at the next crpc_poll or crpc_wait, or before this
 * returns if the endpoint had nothing else under way. No allocation, no system call per op.
 * Every op that was taken yields exactly one completion (a QUIET one, none).
 * Returns how many were taken, 0 to count; *reason (may be NULL) says why it stopped there: CRPC_OK
 * (all taken), CRPC_E_AGAIN (a CRPC_COMPLETION_ROOM follows), CRPC_E_TOO_BIG, CRPC_E_STALE,
 * CRPC_E_INVALID, CRPC_E_UNSUPPORTED (opcode), CRPC_E_STATE (not connected yet), CRPC_E_CLOSING,
 * CRPC_E_DISCONNECTED, CRPC_E_BUSY (reservation open). CRPC_E_INVALID if context or ops is NULL. */
CRPC_API int32_t crpc_submit(crpc_context *context, const crpc_op *ops, uint32_t count,
                             const void *payload, uint64_t payload_bytes, int32_t *reason);

/* Ends the views of the poll before, sends what has gathered, and fills `completions` with whatever
 * has come: of ops, requests and connections. Never blocks.
 * Returns how many were written, 0 to capacity. CRPC_E_INVALID if capacity is 0 or above 2^20. */
CRPC_API int32_t crpc_poll(crpc_context *context, crpc_completion *completions, uint32_t capacity);

/* Sends what has gathered, then sleeps until crpc_poll has something to give, but at most
 * timeout_ns (CRPC_FOREVER: no limit; 0: only looks). Views stay valid. May wake for nothing.
 * Returns CRPC_OK, CRPC_E_TIMEOUT, CRPC_E_INTERRUPTED (a signal), CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_wait(crpc_context *context, uint64_t timeout_ns);

/* Gives a file descriptor that polls readable, after crpc_context_arm, when crpc_poll has
 * something to give: for epoll, asyncio, Go's netpoller. It belongs to the context: never read
 * or close it. */
CRPC_API int32_t crpc_context_fd(crpc_context *context);

/* Asks for one wake-up of crpc_context_fd. The way to lose none: poll until empty, arm, and poll
 * once more before sleeping. Sends what has gathered. Wakes for deadlines too. Returns CRPC_OK
 * (armed), CRPC_E_AGAIN (there is something already: poll), CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_context_arm(crpc_context *context);

/* Copies a view to memory of the caller while it is valid.
 * Returns the number of bytes; CRPC_E_STALE after a later crpc_poll or a close of the endpoint,
 * CRPC_E_TOO_BIG if buffer_bytes is too small. */
CRPC_API int32_t crpc_retain(crpc_context *context, const crpc_completion *completion, void *buffer,
                             uint64_t buffer_bytes);

/* Reserves room for the payload of `op` (a CALL or REPLY; payload_bytes is the most it may become,
 * payload_offset is 0) in the send ring, to be written in place and then sent by crpc_commit. One
 * reservation an endpoint. While it is open the endpoint sends nothing and takes no other op.
 * Returns CRPC_OK and *address, 16-byte aligned and valid until commit, abort or close; the errors
 * of crpc_submit. */
CRPC_API int32_t crpc_reserve(crpc_context *context, const crpc_op *op, void **address);

/* Submits the reserved op with the first payload_bytes of its room; a deadline counts from here.
 * Returns CRPC_OK; CRPC_E_TOO_BIG (more than reserved; it stays open), CRPC_E_STATE (none open),
 * CRPC_E_CLOSING or CRPC_E_DISCONNECTED (it is gone; there will be no completion), CRPC_E_STALE. */
CRPC_API int32_t crpc_commit(crpc_context *context, crpc_endpoint endpoint, uint32_t payload_bytes);

/* Gives a reservation up as if it had not been made; a request remains to be answered.
 * Returns CRPC_OK; CRPC_E_STATE (none open), CRPC_E_STALE. */
CRPC_API int32_t crpc_abort(crpc_context *context, crpc_endpoint endpoint);

/* ---- Endpoint: one connection to one peer ---------------------------------------------------- */

#define CRPC_TOKEN_BYTES_MAX 16

#define CRPC_ENDPOINT_CALL_ONLY 0x1u  /* flag: takes no requests; the ring is all for replies */
#define CRPC_ENDPOINT_SERVE_ONLY 0x2u /* flag: makes no calls; the ring is all for requests */

typedef struct crpc_endpoint_options {
    uint32_t struct_size;
    uint32_t flags;     /* CRPC_ENDPOINT_* */
    uint64_t user_data; /* shown in completions */
    /* Receive memory: a power of two, 4096 to 2^30; 0 = 1 MiB. The peer needs as much to send, and
     * refuses more than 64 MiB and more than its own. */
    uint32_t ring_bytes;
    uint32_t request_bytes; /* part of it for requests of the peer, a multiple of 32, at least 64;
                               the rest is for replies; 0 = half */
    uint32_t calls_max;    /* unanswered calls, 1 to 2^20, rounded up to a power of two; 0 = 1024 */
    uint32_t batch_window; /* unread batches that the peer may send, 1 to 1024; 0 = 64 */
    uint64_t connect_timeout_ns; /* 0 = 5 s; CRPC_FOREVER allowed */
    uint64_t keepalive_ns;  /* with calls open and nothing heard for so long, the peer is probed;
                               0 = 1 s; CRPC_FOREVER: never */
    uint32_t retry_timeout; /* transport: 4.096 us * 2^n before a retry, 1 to 31; 0 = 14 (67 ms) */
    uint32_t retry_count;   /* transport: 1 to 7, which Soft-RoCE takes for endless; 0 = 6 */
    uint32_t token_bytes;   /* 0 to 16, connect only: shown to the peer's application when it */
    uint8_t token[16];      /* decides whether to accept */
    uint32_t reserved;
} crpc_endpoint_options;

/* Starts to connect to `address`: "host:port", "192.0.2.1:port", "[2001:db8::1]:port". Names are
 * resolved in the background. `options` may be NULL.
 * Returns CRPC_OK and *endpoint, and later one CRPC_COMPLETION_CONNECTED, whose status may be
 * CRPC_E_TIMEOUT, CRPC_E_REFUSED, CRPC_E_UNREACHABLE, CRPC_E_VERSION, CRPC_E_PROTOCOL,
 * CRPC_E_NO_DEVICE (the address is behind another device); crpc_endpoint_get_error tells more, and
 * the handle stays until crpc_endpoint_close. At once: CRPC_E_INVALID, CRPC_E_NO_RESOURCE,
 * CRPC_E_MEMLOCK, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_endpoint_connect(crpc_context *context, const char *address,
                                       const crpc_endpoint_options *options,
                                       crpc_endpoint *endpoint, crpc_error *error);

/* Accepts the endpoint of a CRPC_COMPLETION_CONNECT_REQUEST; crpc_endpoint_get_info shows the
 * peer's address and token. `options` may be NULL; its token is not used. Returns CRPC_OK and
 * later one CRPC_COMPLETION_CONNECTED; CRPC_E_STATE, CRPC_E_STALE and the errors of
 * crpc_endpoint_connect: the request then remains to be accepted or rejected. */
CRPC_API int32_t crpc_endpoint_accept(crpc_context *context, crpc_endpoint endpoint,
                                      const crpc_endpoint_options *options, crpc_error *error);

/* Rejects it: the peer's connect completes with CRPC_E_REFUSED and shows `reason`, any number, in
 * its error message. The handle is closed. Returns CRPC_OK, CRPC_E_STATE, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_reject(crpc_context *context, crpc_endpoint endpoint,
                                      uint32_t reason);

/* What crpc_endpoint_blob needs at the most. */
#define CRPC_BLOB_BYTES_MAX 256

/* Makes an endpoint to be connected without rdma_cm, and writes to `blob` what the peer needs to
 * know, to be carried by MPI, etcd or a file, as bytes, to crpc_endpoint_join. *blob_bytes is the
 * room on the way in, what was written on the way out. Layout: docs/wire.md.
 * Returns CRPC_OK and *endpoint; CRPC_E_TOO_BIG (room; *blob_bytes says how much), else as
 * crpc_endpoint_connect. */
CRPC_API int32_t crpc_endpoint_blob(crpc_context *context, const crpc_endpoint_options *options,
                                    crpc_endpoint *endpoint, void *blob, uint32_t *blob_bytes,
                                    crpc_error *error);

/* Connects an endpoint of crpc_endpoint_blob with the blob of its peer. Both sides must join: what
 * one sends before the other has joined is repeated by the transport for retry_count times
 * retry_timeout only, so exchange a word in between if that may be too short.
 * May block while the system looks for the peer's address on the network (ARP).
 * Returns CRPC_OK and later one CRPC_COMPLETION_CONNECTED; CRPC_E_VERSION, CRPC_E_PROTOCOL (not a
 * blob, or damaged), CRPC_E_STATE, CRPC_E_STALE, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_endpoint_join(crpc_context *context, crpc_endpoint endpoint, const void *blob,
                                    uint32_t blob_bytes, crpc_error *error);

/* Takes leave: refuses new calls, lets calls, requests and replies under way finish on both sides,
 * then disconnects. After timeout_ns (CRPC_FOREVER: no limit) it disconnects all the same. A second
 * call sets another limit.
 * Returns CRPC_OK and later CRPC_COMPLETION_DISCONNECTED; CRPC_E_STATE, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_disconnect(crpc_context *context, crpc_endpoint endpoint,
                                          uint64_t timeout_ns);

/* Ends the connection at once and the handle with it. Ops that are pending complete with
 * CRPC_E_CLOSED in the next polls; there is no CRPC_COMPLETION_DISCONNECTED any more.
 * Blocks for as long as the system needs to destroy a QP. Returns CRPC_OK, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_close(crpc_context *context, crpc_endpoint endpoint);

#define CRPC_STATE_NEW 1u       /* crpc_endpoint_blob: waits for crpc_endpoint_join */
#define CRPC_STATE_REQUESTED 2u /* waits for accept or reject */
#define CRPC_STATE_CONNECTING 3u
#define CRPC_STATE_CONNECTED 4u
#define CRPC_STATE_CLOSING 5u      /* takes leave: no new calls */
#define CRPC_STATE_DISCONNECTED 6u /* over, by leave or by failure */

typedef struct crpc_endpoint_info {
    uint32_t struct_size;
    uint32_t state; /* CRPC_STATE_* */
    uint64_t user_data;
    uint32_t request_bytes_max; /* the longest request payload the peer takes; 0 = none at all */
    uint32_t reply_bytes_max;   /* the highest reply_bytes_max that a call may have */
    uint32_t calls_max;
    uint32_t calls_open;    /* unanswered, without those timed out or canceled */
    uint32_t requests_open; /* of the peer, to be answered */
    uint32_t queue_pair_number;
    uint32_t version;  /* of the wire protocol */
    uint32_t features; /* agreed on */
    uint32_t token_bytes;
    uint8_t token[16];     /* the peer's, at the accepting side */
    char peer_address[64]; /* "192.0.2.1:47110", "[2001:db8::1]:47110", "" = by blob */
    char local_address[64];
    uint32_t reserved;
} crpc_endpoint_info;

/* Tells about an endpoint. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_info(crpc_context *context, crpc_endpoint endpoint,
                                        crpc_endpoint_info *info);

/* Reads the endpoint's counters. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_stats(crpc_context *context, crpc_endpoint endpoint,
                                         crpc_stats *stats);

/* Tells why the endpoint could not connect or was disconnected; status CRPC_OK if neither. When the
 * peer broke the protocol with what it sent before the connection was lost, that is CRPC_E_PROTOCOL,
 * and the message tells of both.
 * Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_error(crpc_context *context, crpc_endpoint endpoint,
                                         crpc_error *error);

/* ---- Listener -------------------------------------------------------------------------------- */

/* flag: takes channels, not endpoints. Each peer that asks yields a CRPC_COMPLETION_CONNECT_REQUEST
 * with CRPC_COMPLETION_OF_CHANNEL, for crpc_channel_accept or crpc_channel_reject. Needs
 * CRPC_CONTEXT_RAILS; the address is one of rail 0. */
#define CRPC_LISTENER_CHANNELS 0x1u

typedef struct crpc_listener_options {
    uint32_t struct_size;
    uint32_t backlog; /* connections waiting to be accepted; 0 = 128 */
    uint64_t user_data;
    uint32_t flags; /* CRPC_LISTENER_CHANNELS */
    uint32_t reserved;
} crpc_listener_options;

/* Listens on `address`: "192.0.2.1:port", "[::]:port", "name:port" or "*:port"; port 0 = any free
 * one. Each peer that asks yields a CRPC_COMPLETION_CONNECT_REQUEST. A name is resolved at once and
 * may block for that long. rdma_cm takes loopback addresses that no RDMA device has for wildcards,
 * so they are refused.
 * Returns CRPC_OK and *listener; CRPC_E_INVALID, CRPC_E_UNREACHABLE (no such name), CRPC_E_SYSTEM
 * (e.g. the port is taken), CRPC_E_NO_DEVICE (address of another device). */
CRPC_API int32_t crpc_listener_open(crpc_context *context, const char *address,
                                    const crpc_listener_options *options, crpc_listener *listener,
                                    crpc_error *error);

typedef struct crpc_listener_info {
    uint32_t struct_size;
    uint32_t port;
    uint64_t user_data;
    char address[64];  /* "192.0.2.1:47110" */
    uint64_t requests; /* seen */
    uint64_t refused;  /* of these, by the library: wrong version, malformed, no room */
} crpc_listener_info;

/* Tells about a listener. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_listener_get_info(crpc_context *context, crpc_listener listener,
                                        crpc_listener_info *info);

/* Stops listening. Connections made stay; requests not yet accepted or rejected are rejected and
 * their endpoints closed. Returns CRPC_OK, CRPC_E_STALE. */
CRPC_API int32_t crpc_listener_close(crpc_context *context, crpc_listener listener);

/* ---- Region: registered memory --------------------------------------------------------------- */

#define CRPC_ACCESS_LOCAL_WRITE 0x1u
#define CRPC_ACCESS_REMOTE_WRITE 0x2u /* needs LOCAL_WRITE */
#define CRPC_ACCESS_REMOTE_READ 0x4u
#define CRPC_ACCESS_REMOTE_ATOMIC 0x8u /* needs LOCAL_WRITE */

typedef struct crpc_region_info {
    uint32_t struct_size;
    uint32_t access; /* CRPC_ACCESS_* */
    uint64_t address;
    uint64_t bytes;
    uint32_t local_key;
    uint32_t remote_key;
} crpc_region_info;

/* Registers memory with the device. It stays the caller's and must stay mapped until
 * crpc_region_deregister. Pins pages: may take long for large memory. Returns CRPC_OK and
 * *region; CRPC_E_INVALID, CRPC_E_MEMLOCK, CRPC_E_NO_RESOURCE, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_region_register(crpc_context *context, void *address, uint64_t bytes,
                                      uint32_t access, crpc_region *region, crpc_error *error);

/* Tells about a region. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_region_get_info(crpc_context *context, crpc_region region,
                                      crpc_region_info *info);

/* The same for memory of another device (a GPU) that a dma-buf stands for: `bytes` from `offset` of
 * it. `address` is what the memory is called in ops, and where it is mapped if it is at all.
 * Returns as crpc_region_register; CRPC_E_UNSUPPORTED if kernel or device cannot. */
CRPC_API int32_t crpc_region_register_dmabuf(crpc_context *context, int32_t fd, uint64_t offset,
                                             uint64_t bytes, uint64_t address, uint32_t access,
                                             crpc_region *region, crpc_error *error);

/* Returns CRPC_OK, CRPC_E_STALE, CRPC_E_BUSY (an op of a channel uses it). */
CRPC_API int32_t crpc_region_deregister(crpc_context *context, crpc_region region);

/* Ops of channels may name memory without a region: it is then registered for them, and stays so,
 * up to the bounds of crpc_cache_info, for the next op. Before such memory is unmapped (free() of a
 * large block, munmap, mremap), it must be taken out again with this, or the device goes on using
 * the old pages. Takes out every registration that touches [address, address + bytes); bytes 0 =
 * all of them. Returns how many; CRPC_E_BUSY (an op uses one: nothing is taken out), CRPC_E_STATE (as
 * crpc_cache_get_info). */
CRPC_API int32_t crpc_cache_forget(crpc_context *context, const void *address, uint64_t bytes);

typedef struct crpc_cache_info {
    uint32_t struct_size;
    uint32_t registrations;
    uint32_t registrations_max;
    uint32_t reserved;
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t hits;
    uint64_t misses;
    uint64_t evictions;
} crpc_cache_info;

/* Tells about the registrations made for plain memory. Returns CRPC_OK, CRPC_E_INVALID,
 * CRPC_E_STATE (the context was opened without CRPC_CONTEXT_RAILS). */
CRPC_API int32_t crpc_cache_get_info(crpc_context *context, crpc_cache_info *info);

/* ---- Rails: the ports that channels stripe over ---------------------------------------------- */

typedef struct crpc_rail_info {
    uint32_t struct_size;
    uint32_t index; /* from 0 */
    char device[64];
    uint32_t port;
    uint32_t link;      /* CRPC_LINK_* */
    uint32_t link_mbps; /* 0 = not known */
    uint32_t mtu_bytes;
    uint32_t gid_index;
    uint8_t gid[16];
    uint32_t driver;             /* CRPC_DRIVER_* */
    uint64_t system_image_guid;  /* rails of one HCA have the same */
    uint32_t receive_depth;      /* of the shared receive queue */
    uint32_t receives_left;      /* that new channels may still ask for */
    uint64_t receive_wqes;       /* ever posted */
    uint64_t receives_completed; /* receive WQEs that immediates have used */
    uint64_t message_bytes_max;  /* of one buffer that is sent, over any rails */
} crpc_rail_info;

/* Tells about a rail of the context. Returns CRPC_OK; CRPC_E_NOT_FOUND past the last. */
CRPC_API int32_t crpc_rail_get_info(crpc_context *context, uint32_t index, crpc_rail_info *info);

/* ---- Channel: striped messages over one rail or two ------------------------------------------ */

/* A channel carries messages both ways between two processes. The receiver posts receives, each of
 * one buffer or a group of up to eight, in the order in which messages are to come; the sender sends
 * buffers, and each goes into the first free one with its tag of the oldest message that is not
 * complete, straight into the receiver's memory. How it is split over the rails is decided when it
 * is posted. */

#define CRPC_CHANNEL_GROUP_MAX 8
#define CRPC_CHANNEL_SLOTS_MAX 256
#define CRPC_CHANNEL_QUEUE_PAIRS_MAX 8

#define CRPC_CHANNEL_RECEIVE 1u /* a buffer to be filled; completes with CRPC_COMPLETION_RECEIVED */
#define CRPC_CHANNEL_SEND 2u    /* a buffer to be sent; completes with CRPC_COMPLETION_SENT */
/* ends this channel's sends that still wait for a receive and whose user_data equals `token`, with
 * CRPC_E_CANCELED; completes with CRPC_COMPLETION_CANCEL */
#define CRPC_CHANNEL_CANCEL 3u

/* flag of RECEIVE: the next op, also a RECEIVE of this channel, belongs to the same message */
#define CRPC_CHANNEL_MORE 0x1u

/* One op of a channel. 64 bytes for ever. A field that the opcode does not name must be zero. */
typedef struct crpc_channel_op {
    uint8_t opcode; /* CRPC_CHANNEL_RECEIVE, _SEND, _CANCEL */
    uint8_t flags;  /* CRPC_CHANNEL_MORE */
    uint16_t zero;
    uint32_t tag; /* RECEIVE, SEND: any number */
    crpc_channel channel;
    uint64_t user_data;  /* given back in the completion */
    crpc_region region;  /* RECEIVE, SEND: that the buffer lies in; none: see crpc_cache_forget */
    uint64_t address;    /* RECEIVE, SEND: of the buffer; any if bytes is 0 */
    uint64_t bytes;      /* RECEIVE, SEND: 0 to 2^30 */
    uint64_t timeout_ns; /* SEND: how long it may wait for its receive; 0 = for ever */
    uint64_t token;      /* CANCEL: a user_data */
} crpc_channel_op;

/* Takes ops in order until one cannot be taken; of a group, all or none. Buffers must stay as they
 * are until their completion. A receive needs CRPC_ACCESS_LOCAL_WRITE and _REMOTE_WRITE of its
 * region. Registering memory for an op without a region may make a system call; otherwise there is
 * none, and no allocation. Every op that was taken yields exactly one completion.
 * Returns how many were taken, 0 to count; *reason (may be NULL) says why it stopped there: CRPC_OK
 * (all taken), CRPC_E_AGAIN (slots or sends are used up; a CRPC_COMPLETION_ROOM follows),
 * CRPC_E_TOO_BIG (more than 8 buffers, or 2^30 bytes), CRPC_E_STALE (channel or region),
 * CRPC_E_INVALID (also: not within its region), CRPC_E_UNSUPPORTED (opcode; the region is not
 * registered with every rail of the channel), CRPC_E_STATE (not connected yet), CRPC_E_CLOSING,
 * CRPC_E_DISCONNECTED, CRPC_E_MEMLOCK and others of crpc_region_register. CRPC_E_INVALID if context
 * or ops is NULL. */
CRPC_API int32_t crpc_channel_submit(crpc_context *context, const crpc_channel_op *ops,
                                     uint32_t count, int32_t *reason);

#define CRPC_SPLIT_MEASURED 0u /* by the speed that each rail showed, at first by link speed */
#define CRPC_SPLIT_FIXED 1u    /* rail0_share, until crpc_channel_set_share changes it */
/* by what a program outside writes to shared memory: docs/wire.md; what is missing or malformed
 * there counts as CRPC_SPLIT_MEASURED */
#define CRPC_SPLIT_HINT 2u

typedef struct crpc_channel_options {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    uint64_t user_data;
    uint32_t slots;     /* messages to be received that may be open at once, 1 to 256, rounded up to
                             a power of two; the lesser of both sides counts; 0 = 64 */
    uint32_t sends_max; /* sends that may be open at once, 8 to 65536; 0 = 256 */
    uint32_t queue_pairs;      /* of each rail, 1 to 8; the lesser of both sides counts; 0 = 1 */
    uint32_t split;            /* CRPC_SPLIT_* */
    uint32_t rail0_share;      /* CRPC_SPLIT_FIXED: parts of 1024 that rail 0 carries */
    uint32_t stripe_bytes_min; /* shorter buffers travel on one rail; 0 = 65536 */
    uint32_t rails;            /* bit 1 << n for each rail to be used; 0 = all */
    uint32_t token_bytes;      /* 0 to 16, connect only: shown to the peer's application */
    uint8_t token[16];
    char hint[64];               /* CRPC_SPLIT_HINT: name of POSIX shared memory, "/name" */
    uint64_t connect_timeout_ns; /* 0 = 5 s; CRPC_FOREVER allowed */
    uint64_t keepalive_ns; /* with ops open and nothing completed for so long, the rails are probed;
                               0 = 1 s; CRPC_FOREVER: never */
    uint64_t
        rail_retry_ns; /* pause before the first attempt to use a lost rail again; longer ones, up
                               to 16 times, follow attempts that fail; 0 = 200 ms; CRPC_FOREVER:
                               never */
    uint32_t retry_timeout; /* transport: 4.096 us * 2^n before a retry, 1 to 31; 0 = 14 (67 ms) */
    uint32_t retry_count;   /* transport: 1 to 7, which Soft-RoCE takes for endless; 0 = 6 */
} crpc_channel_options;

/* Starts to connect to a listener with CRPC_LISTENER_CHANNELS; all else as crpc_endpoint_connect.
 * Rails beyond 0 need no address: the peers tell each other over rail 0. A rail that one side lacks
 * or cannot reach is left out; crpc_channel_info shows it. */
CRPC_API int32_t crpc_channel_connect(crpc_context *context, const char *address,
                                      const crpc_channel_options *options, crpc_channel *channel,
                                      crpc_error *error);

/* As crpc_endpoint_accept and crpc_endpoint_reject. */
CRPC_API int32_t crpc_channel_accept(crpc_context *context, crpc_channel channel,
                                     const crpc_channel_options *options, crpc_error *error);
CRPC_API int32_t crpc_channel_reject(crpc_context *context, crpc_channel channel, uint32_t reason);

/* As crpc_endpoint_blob and crpc_endpoint_join; CRPC_BLOB_BYTES_MAX suffices. */
CRPC_API int32_t crpc_channel_blob(crpc_context *context, const crpc_channel_options *options,
                                   crpc_channel *channel, void *blob, uint32_t *blob_bytes,
                                   crpc_error *error);
CRPC_API int32_t crpc_channel_join(crpc_context *context, crpc_channel channel, const void *blob,
                                   uint32_t blob_bytes, crpc_error *error);

/* Sets the share of rail 0, 0 to 1024 parts of 1024, for what is posted from now on; the channel's
 * split is CRPC_SPLIT_FIXED afterwards. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_set_share(crpc_context *context, crpc_channel channel,
                                        uint32_t rail0_share);

/* Takes leave: refuses new ops, lets sends finish for which the peer posts receives, and then
 * disconnects; receives that are still open complete with CRPC_E_DISCONNECTED. After timeout_ns
 * (CRPC_FOREVER: no limit) it disconnects all the same. A second call sets another limit.
 * Returns CRPC_OK and later CRPC_COMPLETION_DISCONNECTED; CRPC_E_STATE, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_disconnect(crpc_context *context, crpc_channel channel,
                                         uint64_t timeout_ns);

/* Ends the channel at once and the handle with it. Ops that are open complete with CRPC_E_CLOSED in
 * the next polls; nothing of the peer lands in their buffers after this has returned.
 * Blocks for as long as the system needs to destroy QPs. Returns CRPC_OK, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_close(crpc_context *context, crpc_channel channel);

#define CRPC_RAIL_NONE 0u   /* the context has none of this index, or it is not to be used */
#define CRPC_RAIL_LACKED 1u /* this side has it, the peer has not */
#define CRPC_RAIL_DOWN 2u
#define CRPC_RAIL_UP 3u

typedef struct crpc_channel_info {
    uint32_t struct_size;
    uint32_t state; /* CRPC_STATE_* */
    uint64_t user_data;
    uint32_t slots;         /* agreed on */
    uint32_t queue_pairs;   /* likewise */
    uint32_t rail_state[2]; /* CRPC_RAIL_* */
    uint32_t split;
    uint32_t rail0_share; /* of the next large message */
    uint32_t receives_open;
    uint32_t sends_open;
    uint32_t version;
    uint32_t token_bytes;
    uint8_t token[16];
    char peer_address[64];
    char local_address[64];
} crpc_channel_info;

/* Tells about a channel. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_info(crpc_context *context, crpc_channel channel,
                                       crpc_channel_info *info);

typedef struct crpc_channel_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t messages_sent;
    uint64_t messages_received;
    uint64_t bytes_sent; /* of buffers, by acknowledged messages */
    uint64_t bytes_received;
    uint64_t sends_failed; /* ops of either kind that completed with an error */
    uint64_t receives_failed;
    uint64_t truncated;          /* of these, for CRPC_E_TRUNCATED */
    uint64_t rail_bytes_sent[2]; /* posted, repeated ones included */
    uint64_t rail_messages_sent[2];
    /* As the completions of arrivals tell: of messages of one buffer all that each rail carried. Of a
     * group, or of what took several WQEs or was truncated, only the WQE that had the immediate,
     * which may be the 64 bytes of the sizes; what such messages hold is in bytes_received alone. */
    uint64_t rail_bytes_received[2];
    uint64_t rail_failures[2];   /* losses of a rail that was used */
    uint64_t rail_recoveries[2]; /* of these, after which it is used again */
    uint64_t shares_repeated;    /* parts of messages that a second rail carried for a lost one */
    uint64_t data_wqes;          /* for payload, records and immediates of messages */
    uint64_t clear_to_send_wqes;
    uint64_t control_wqes;
    uint64_t doorbells;
    uint64_t protocol_errors;
} crpc_channel_stats;

/* Reads the counters. Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_stats(crpc_context *context, crpc_channel channel,
                                        crpc_channel_stats *stats);

/* Tells why the channel could not connect or was disconnected; status CRPC_OK if neither.
 * Returns CRPC_OK, CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_error(crpc_context *context, crpc_channel channel,
                                        crpc_error *error);

#ifdef __cplusplus
}
#endif

#endif

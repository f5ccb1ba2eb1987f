/* copyrpc.h: the whole public interface of copyrpc, in the order in which a program uses it.
 *
 * C99, C++17 and Go's cgo read this file unchanged. Python's cffi reads what build_native.py leaves
 * of it: no comments, conditions, #include or CRPC_API. The file therefore has no inline functions,
 * bit fields, enums, `bool` or `long`, and every constant is a bare literal. ABI.md says what may
 * change in later versions. docs/wire.md specifies every format that a peer sees.
 *
 * The following rules hold for every declaration. The comments below only state exceptions.
 *
 *  - Ownership: The library copies all strings and structs that it is given before the call
 *    returns. It fills structs and arrays that the caller owns. The caller never frees anything
 *    that the library returned; the close, reject or deregister function of a handle releases what
 *    belongs to it, and crpc_context_close releases the rest.
 *  - Threads: Only one thread at a time may use a context or anything made from it. Threads that
 *    share a context must order their calls, for example with a mutex. Different contexts are
 *    independent; a connect request can go from one to another (crpc_endpoint_hand_over).
 *    Functions without a context argument may be called from any thread at any time.
 *    After fork(), the child must not use its parent's contexts.
 *  - Blocking: Only crpc_wait waits for events. No other function blocks, unless its comment says
 *    so. Functions that open, connect, register or close something make system calls.
 *  - Return values: A function returns 0 or more on success, and one of CRPC_E_* (below 0) on
 *    failure. A call that fails has changed nothing. NULL gives CRPC_E_INVALID where it is not
 *    allowed. A `crpc_error *` may be NULL; otherwise its struct_size must be set, and a call that
 *    fails fills it.
 *  - Handles: { 0 } is no handle. A handle that has been closed, that belongs to another context or
 *    that is of another kind gives CRPC_E_STALE, for ever.
 *  - Sized structs: The caller sets `struct_size`, the first member, to the sizeof of the struct.
 *    If the caller's struct is shorter than in the first release, the call gives CRPC_E_INVALID. If
 *    it is shorter than the library's, the missing members count as zero, and zero always means the
 *    default. If it is longer, the excess must be zero; otherwise the call gives
 *    CRPC_E_UNSUPPORTED. When the library fills a struct, it writes as much as both sizes allow,
 *    and sets struct_size to what it wrote. Reserved members and unknown flags must be zero;
 *    otherwise the call gives CRPC_E_INVALID.
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

/* Gives the version of the loaded library, which may differ from the version of this header.
 * Returns major << 16 | minor << 8 | patch. */
CRPC_API uint32_t crpc_version(void);

/* ---- Status codes: never renumbered, never reused -------------------------------------------- */

#define CRPC_OK 0
#define CRPC_E_INVALID -1     /* an argument is wrong */
#define CRPC_E_UNSUPPORTED -2 /* this version, driver or device does not support it */
#define CRPC_E_STALE -3       /* the handle or token is closed, used up, or from elsewhere */
#define CRPC_E_AGAIN -4       /* there is no room now: poll, then try again */
#define CRPC_E_TOO_BIG -5     /* it can never fit: crpc_endpoint_info has the limits */
#define CRPC_E_NO_MEMORY -6   /* the system or the device is out of memory */
#define CRPC_E_NO_DEVICE -7   /* there is no RDMA device, or it is not the one that is needed */
#define CRPC_E_NO_RESOURCE -8 /* a limit of the device or of the context is reached */
#define CRPC_E_MEMLOCK -9     /* RLIMIT_MEMLOCK is too low to register this much memory */
#define CRPC_E_SYSTEM -10     /* a system call failed: see crpc_error.os_error */
#define CRPC_E_TIMEOUT -11    /* the time limit has passed */
#define CRPC_E_CANCELED -12   /* CRPC_OP_CANCEL, CRPC_CHANNEL_CANCEL or TAG_REMOVE ended this op */
#define CRPC_E_CLOSING -13    /* the connection is closing and accepts no new ops */
#define CRPC_E_DISCONNECTED -14 /* the connection is gone; the peer may or may not have acted */
#define CRPC_E_CLOSED -15       /* this side closed the handle while the op was pending */
#define CRPC_E_REFUSED -16      /* the peer's application or host refused the connection */
#define CRPC_E_UNREACHABLE -17  /* there is no route to the address, or no such name */
#define CRPC_E_VERSION -18      /* the peers have no version of the wire protocol in common */
#define CRPC_E_PROTOCOL -19     /* the peer violated the wire protocol */
#define CRPC_E_DROPPED -20      /* the peer dropped the request without an answer */
#define CRPC_E_BUSY -21         /* it is still in use: something else must finish first */
#define CRPC_E_NOT_FOUND -22    /* nothing matches */
#define CRPC_E_INTERRUPTED -23  /* a signal arrived while waiting */
#define CRPC_E_STATE -24        /* the present state of the object does not allow it */
#define CRPC_E_TRUNCATED -25    /* the message was longer than the receive buffer */
#define CRPC_E_KEY -26          /* the peer has another key, or one side has none */
#define CRPC_E_ACCESS -27       /* the peer's device refused the address, key, length or right */
#define CRPC_E_NOT_READY -28    /* the peer had no receive for the message */
#define CRPC_E_FLUSHED -29      /* the queue failed before; whether the op was done is not known */
#define CRPC_E_DEVICE -30       /* this device refused the op: see the vendor's syndrome */
#define CRPC_E_NOT_STARTED -31  /* the peer did nothing of the request: it can be sent again */

/* Gives the name of a status. Returns a static string: "CRPC_E_TIMEOUT" for CRPC_E_TIMEOUT,
 * "CRPC_OK" for every status >= 0, and "CRPC_E_?" for a status that this version does not know. */
CRPC_API const char *crpc_status_name(int32_t status);

/* Explains a status and, where possible, says what to do about it. Returns a static string. */
CRPC_API const char *crpc_status_text(int32_t status);

/* Describes one failure in full. The caller owns the struct, and the library fills it. */
typedef struct crpc_error {
    uint32_t struct_size;
    int32_t status;           /* CRPC_E_* */
    int32_t os_error;         /* an errno value; 0 = none */
    uint32_t vendor_syndrome; /* the device's own error code; 0 = none */
    char message[240]; /* what failed, on which object, and what to do; zero-terminated UTF-8 */
} crpc_error;

/* ---- Statuses of the application, and methods that have names --------------------------------- */

/* The status of a REPLY is any number >= 0: the library only carries it. These are what programs agree
 * on. They have the numbers of gRPC's codes, so that one is the other. Those up to
 * CRPC_STATUS_RESERVED_MAX are reserved: an application's own begin above it. docs/services.md says who
 * sends which, and what its caller may do. */
#define CRPC_STATUS_OK 0                /* a reply; all others are errors */
#define CRPC_STATUS_CANCELED 1          /* the caller has canceled it */
#define CRPC_STATUS_UNKNOWN 2           /* the handler has failed, and did not say how */
#define CRPC_STATUS_INVALID_ARGUMENT 3  /* the request is wrong, whatever the state of the server */
#define CRPC_STATUS_DEADLINE_EXCEEDED 4 /* the time limit has passed */
#define CRPC_STATUS_NOT_FOUND 5         /* what is asked for is not there */
#define CRPC_STATUS_ALREADY_EXISTS 6    /* what is to be made is there already */
#define CRPC_STATUS_PERMISSION_DENIED 7 /* this caller may not do that */
#define CRPC_STATUS_RESOURCE_EXHAUSTED 8  /* overloaded, or over a quota; nothing was done */
#define CRPC_STATUS_FAILED_PRECONDITION 9 /* not in the present state of the server */
#define CRPC_STATUS_ABORTED 10            /* something else came first: begin the whole again */
#define CRPC_STATUS_OUT_OF_RANGE 11       /* past the end of what there is */
#define CRPC_STATUS_UNIMPLEMENTED 12      /* the server has no such method */
#define CRPC_STATUS_INTERNAL 13           /* something is broken */
#define CRPC_STATUS_UNAVAILABLE 14        /* not now; later, or elsewhere */
#define CRPC_STATUS_DATA_LOSS 15          /* data is lost or damaged */
#define CRPC_STATUS_UNAUTHENTICATED 16    /* the server does not know who the caller is */
#define CRPC_STATUS_RESERVED_MAX 255

/* Gives the name of an application's status. Returns a static string: "NOT_FOUND" for
 * CRPC_STATUS_NOT_FOUND, and "?" for a number that is none of the above. */
CRPC_API const char *crpc_application_status_name(int32_t status);

/* Says an error of the library in the terms above: for programs that have one kind of error only, and for
 * metrics. Returns one of CRPC_STATUS_* for a status < 0, which is CRPC_STATUS_UNKNOWN if this version
 * does not know it, and any other status as it is. */
CRPC_API int32_t crpc_application_status(int32_t status);

/* Methods are numbers (`method` of crpc_op). A program that names them gives each the number that its name
 * has. These are CRPC_METHOD_NAMED and above, so that numbers below it are free for methods without
 * names. */
#define CRPC_METHOD_NAMED 0x8000

/* Gives the number of the method with that name, which is UTF-8 and zero-terminated: FNV-1a of 32 bits, of which bits
 * 15 to 29 are XORed with bits 0 to 14, and CRPC_METHOD_NAMED. It will always be the same. Two names can have
 * the same number: then rename one. Returns CRPC_METHOD_NAMED to 0xffff; CRPC_E_INVALID if the name is NULL
 * or empty. */
CRPC_API int32_t crpc_method_number(const char *name);

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

typedef struct crpc_queue {
    uint64_t bits;
} crpc_queue;

typedef struct crpc_target {
    uint64_t bits;
} crpc_target;
typedef struct crpc_grant {
    uint64_t bits;
} crpc_grant;

/* Means "never" or "no limit", for those timeouts whose comments name it. */
#define CRPC_FOREVER 0xffffffffffffffffu

/* ---- Devices --------------------------------------------------------------------------------- */

#define CRPC_DRIVER_AUTO 0u  /* mlx5 where possible, otherwise verbs; COPYRPC_DRIVER overrides */
#define CRPC_DRIVER_VERBS 1u /* ibv_post_send and ibv_poll_cq: any RoCE or InfiniBand device */
#define CRPC_DRIVER_MLX5 2u  /* direct access to the queues of a ConnectX */

#define CRPC_PORT_DOWN 0u
#define CRPC_PORT_ACTIVE 1u

#define CRPC_LINK_INFINIBAND 1u
#define CRPC_LINK_ETHERNET 2u

/* Flag of an InfiniBand port: whoever sends to it or from it must use a GRH, also within its subnet, as with virtual functions. */
#define CRPC_GRH_REQUIRED 0x1u

/* Describes one port of one RDMA device. */
typedef struct crpc_device_info {
    uint32_t struct_size;
    uint32_t port;              /* number of the port, from 1 */
    char name[64];              /* for crpc_context_options.device, e.g. "mlx5_0" or "rxe0" */
    uint32_t drivers;           /* bit 1 << CRPC_DRIVER_x is set if driver x can open the device */
    uint32_t port_count;        /* ports of the device */
    uint32_t port_state;        /* CRPC_PORT_* */
    uint32_t link;              /* CRPC_LINK_*; 0 = not known */
    uint32_t mtu_bytes;         /* active MTU of the port: payload bytes of a packet */
    uint32_t gid_index;         /* index of the GID that a context uses by default */
    uint8_t gid[16];            /* that GID, in network byte order; all zero = none */
    uint32_t endpoints_max;     /* QPs that the device supports, for all processes together */
    uint32_t receive_depth_max; /* receive WQEs that one context can have */
    uint32_t inline_bytes_max;  /* payload bytes that fit in a WQE; 0 = only a context knows */
    uint32_t vendor_id;
    uint32_t vendor_part_id;
    uint32_t flags;              /* CRPC_GRH_REQUIRED */
    uint64_t system_image_guid;  /* equal for all ports of one card; 0 = not known */
    uint32_t link_mbps;          /* active lane speed times width, in Mbit/s; 0 = not known */
    uint32_t partition_key;      /* P_Key that a context uses by default; 0 = none, or not known */
    uint32_t completion_vectors; /* that the device has; 0 = not known */
    uint32_t reserved;
} crpc_device_info;

/* Describes one port of one RDMA device of this machine. `index` counts the ports of all devices
 * from 0. A device that cannot be opened counts as one port. May block for milliseconds, because it
 * opens the devices one after the other until it reaches the port.
 * Returns CRPC_OK; CRPC_E_NO_DEVICE if index is past the last port; CRPC_E_SYSTEM and other errors
 * if the device cannot be opened or queried. */
CRPC_API int32_t crpc_device_query(uint32_t index, crpc_device_info *info, crpc_error *error);

/* ---- Context: one opened device, its queues, and everything made from it --------------------- */

/* Optional features of a device that a driver can use. */
#define CRPC_FEATURE_BLUEFLAME 0x1u       /* the doorbell carries the WQEs of small sends (mlx5) */
#define CRPC_FEATURE_CQE_COMPRESSION 0x2u /* similar completions share one CQE (mlx5) */

/* What an option says that the library can choose by itself. */
#define CRPC_CHOICE_AUTO 0u
#define CRPC_CHOICE_ON 1u
#define CRPC_CHOICE_OFF 2u

#define CRPC_CONTEXT_GID_INDEX 0x1u /* flag: use gid_index instead of the default GID */
#define CRPC_CONTEXT_RAILS 0x2u     /* flag: open the rails; channels need it */
/* Flag: the context has queues. Regions then give the peers of queues the rights that their `access`
 * says. */
#define CRPC_CONTEXT_QUEUES 0x4u
/* Flag: counts and times calls and requests, by method: crpc_context_metrics. The environment variable COPYRPC_METRICS=1 does the
 * same for programs that do not set it. A call takes longer: docs/observability.md has the figures. */
#define CRPC_CONTEXT_METRICS 0x8u
/* Flag, with CRPC_CONTEXT_GID_INDEX and CRPC_CONTEXT_RAILS: gid_index is that of every rail's port. Without it, it counts for the
 * context's own port alone. */
#define CRPC_CONTEXT_RAILS_GID_INDEX 0x10u

#define CRPC_RAILS_MAX 2

#define CRPC_LOG_OFF 0u
#define CRPC_LOG_ERROR 1u
#define CRPC_LOG_WARNING 2u
#define CRPC_LOG_INFO 3u
#define CRPC_LOG_DEBUG 4u

typedef struct crpc_context_options {
    uint32_t struct_size;
    uint32_t flags; /* CRPC_CONTEXT_* */
    /* "" = the first device with an active port that the driver can open. The log tells if that is not
     * the first there is. Name the device where another must not take its place. */
    char device[64];
    uint32_t driver; /* CRPC_DRIVER_* */
    uint32_t port;   /* from 1; 0 = the first active port of the device */
    /* Index of the GID, with CRPC_CONTEXT_GID_INDEX; otherwise it must be 0, and the context
     * prefers a RoCE v2 GID with an IPv4 address. */
    uint32_t gid_index;
    uint32_t endpoints_max; /* at most 2^18; 0 = 256. One with a lane counts as two, or as
                             * lane_depth of crpc_endpoint_options says */
    /* Receive WQEs that all endpoints share, 2 to 2^24; 0 = 24576, or 3 for each of endpoints_max if that
     * is more. If the device has fewer, the context gets as many as the device allows. The batch windows
     * of all endpoints may add up to two thirds of what it gets. On a device without shared receive queues, each endpoint
     * has receives of its own: its batch window is at most two thirds of receive_depth / endpoints_max. */
    uint32_t receive_depth;
    /* Every n-th send WQE requests a completion, n = 1 to 64; 0 = 64. More than half of send_depth of
     * crpc_context_info means half of it. */
    uint32_t signal_interval;
    uint32_t log_level; /* crpc_context_log gets entries up to this level: CRPC_LOG_* */
    /* CRPC_FEATURE_CQE_COMPRESSION requests compressed completions of sends, and with COPYRPC_COMPRESSED_RECEIVES=1 in the
     * environment, of receives: docs/cqe-compression.md says why that is for who has seen it work on his card, and what
     * COPYRPC_COMPRESSED_LAYOUT=enhanced is about. The library always uses
     * BlueFlame where the device has it. crpc_context_get_info tells which features are in use. */
    uint32_t features;
    /* This member and those below need CRPC_CONTEXT_RAILS, and must be zero without it. `rails`
     * names the ports that channels use: "name" or "name:port". If rails[0] is empty, rail 0 is the
     * context's own port. If rails[1] is empty, rail 1 is the first active port on another card
     * that has the link layer of rail 0 and can be opened with its driver; if there is no such
     * port, there is no rail 1. If rails[1] is "none", there is no rail 1 either, whatever ports there
     * are. (Port 1 of a device with that name is "none:1".) */
    char rails[2][64];
    /* Receive WQEs of each rail, which all channels share, 18 to 2^24; 0 = 8192. Channels may take
     * two thirds of them. Each channel takes 2 * slots + 10, with slots as in its own options; on a device without shared receive
     * queues, each of its queue_pairs does. */
    uint32_t rail_receive_depth;
    uint32_t channels_max; /* at most 65536; 0 = 64 */
    /* Queues of all kinds, at most 65536; 0 = 256. Needs CRPC_CONTEXT_QUEUES, and must be zero without
     * it. */
    uint32_t queues_max;
    /* 0: each endpoint has a connected queue pair (RC). 1 to 1024: endpoints connect by DC, the dynamically connected transport of
     * mlx5 devices, and share so many initiators, which have the send queues. An endpoint then has 16 KiB less, and the
     * context no completion queue as long as all send queues together: for thousands of peers. Whoever sends takes an
     * initiator until what it has sent is acknowledged, and waits if there is none; a peer that does not answer holds one
     * until the endpoint fails. Both sides of a connection need initiators, and neither can have a lane. */
    uint32_t initiators;
    /* How many of the last ops and completions of each endpoint are recorded (crpc_endpoint_flight_records): rounded up to a power of
     * two, at most 65536; 0 = none, or as many as COPYRPC_FLIGHT_RECORDS in the environment says. Each takes 32 bytes. When an endpoint's
     * connection is lost, the last 16 are written to the log, as warnings. */
    uint32_t flight_records;
    /* This member and those up to retry_count are of everything that the context sends: calls, channels over all rails, and queues. Where one is 0,
     * a variable of the environment counts, which has its name in capitals after COPYRPC_, such as COPYRPC_TRAFFIC_CLASS=106 or
     * COPYRPC_PARTITION_KEY=0x8001.
     *
     * Traffic class, 0 to 255, 0 by default. With RoCE v2 it is the byte of the IP header with the DSCP in its upper six bits, by which
     * NICs and switches choose a lossless class: 106 is DSCP 26. On InfiniBand, packets that have a GRH carry it. When rdma_cm
     * looks for a route, it asks with this, too (RDMA_OPTION_ID_TOS). */
    uint32_t traffic_class;
    /* Service level of InfiniBand, 0 to 15; on Ethernet the priority of the VLAN tag, 0 to 7. 0 = that of the route where rdma_cm
     * connects, otherwise 0. It is the default of crpc_target_options, too. */
    uint32_t service_level;
    /* InfiniBand partition: a P_Key of the port's table, and not its index. With bit 15, as 0x8001, the port must be a full member;
     * 0x0001 takes a limited membership, too, if there is no full one. Where rdma_cm connects, the interface that the route leads through
     * must be in this partition. 0 = the first of which the port is a full member, or otherwise a limited one; and where rdma_cm
     * connects, the partition of the route. Ethernet has the P_Key 0xffff only. */
    uint32_t partition_key;
    /* Defaults for connections whose own options say 0: of crpc_endpoint_options, crpc_channel_options, crpc_queue_options and
     * crpc_queue_change; and in a context with initiators what these have. 0 = as the comments there say. */
    uint32_t retry_timeout; /* 0 to 31 */
    uint32_t retry_count;   /* 0 to 7 */
    /* CRPC_CHOICE_*. The device writes payloads to memory in any order (relaxed ordering of PCIe), which is faster on some processors,
     * AMD's EPYC above all. This is for buffers of channels and for arenas alone, and they have all of a payload when the completion
     * tells of it; who looks into a buffer before turns it off. AUTO = on: a device without ignores it. */
    uint32_t relaxed_ordering;
    /* CRPC_CHOICE_*. A channel sends what is longer than adaptive_routing_bytes in a WRITE, and its immediate in a short one behind
     * it. A fabric with adaptive routing spreads the packets of the first over its paths. AUTO = on for rails on InfiniBand. */
    uint32_t adaptive_routing;
    uint32_t adaptive_routing_bytes; /* 0 = 8192 */
    /* Which of the device's completion vectors (crpc_device_info.completion_vectors) wakes who sleeps on the context, of its rails, too:
     * n = vector n - 1, modulo how many there are. Each has an interrupt, which the system gives to a processor
     * (/proc/irq/N/smp_affinity). 0 = those of a process take turns. */
    uint32_t completion_vector;
    /* Queue pairs of a rail that a channel may have, 1 to 8; 0 = 8. Needs CRPC_CONTEXT_RAILS, and must be zero without it. Each rail has
     * a send completion queue with room for the sends of so many queue pairs of channels_max channels: 16 MiB by default,
     * and 2 MiB with 1. If the device has fewer entries, there can be fewer channels. */
    uint32_t rail_queue_pairs_max;
    /* CRPC_CHOICE_*. Connections negotiate what both devices have beyond the standard (ECE, enhanced connection establishment), as
     * selective repeat and algorithms of congestion control on RoCE with ConnectX-6 Dx and later: docs/hardware.md. AUTO = on: a device,
     * or a peer, without it is connected as ever. */
    uint32_t ece;
} crpc_context_options;

/* Opens a device and creates its queues. `options` may be NULL. With CRPC_DRIVER_AUTO, what
 * copyrpc-check has found to fail on the device is left out, and the log says so (docs/hardware.md).
 * The call starts a thread (with
 * rails, two) that receives the events of rdma_cm and of the devices. The thread blocks all signals.
 * If the system has no rdma_cm, connections need blobs.
 * Some environment variables apply. COPYRPC_LOG=error|warning|info|debug also writes the log to
 * stderr. COPYRPC_DRIVER=verbs|mlx5 replaces CRPC_DRIVER_AUTO. COPYRPC_GID_INDEX is for options without
 * CRPC_CONTEXT_GID_INDEX, and counts for rails, too. COPYRPC_RELAXED_ORDERING=on|off,
 * COPYRPC_ADAPTIVE_ROUTING=on|off and COPYRPC_ECE=on|off replace CRPC_CHOICE_AUTO. For the others see `options`. May block for tens of milliseconds.
 * Returns CRPC_OK and sets *context; CRPC_E_NO_DEVICE, CRPC_E_MEMLOCK, CRPC_E_NO_RESOURCE,
 * CRPC_E_UNSUPPORTED (driver, or DC), CRPC_E_INVALID (also: the port has no such GID or P_Key),
 * CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_context_open(const crpc_context_options *options, crpc_context **context,
                                   crpc_error *error);

/* Closes all objects of the context, and then the context itself. NULL is allowed. All handles and
 * views of the context become invalid. Pending ops get no completion: to see their completions,
 * close the endpoints, channels and queues first, and poll until nothing is left. May block for
 * milliseconds while the system destroys the connections. Returns CRPC_OK. */
CRPC_API int32_t crpc_context_close(crpc_context *context);

/* Describes an open context. */
typedef struct crpc_context_info {
    uint32_t struct_size;
    uint32_t driver;      /* CRPC_DRIVER_* in use */
    char device[64];      /* name of the device */
    char driver_name[16]; /* "verbs" or "mlx5" */
    uint32_t port;
    uint32_t gid_index;
    uint8_t gid[16];
    uint32_t link;              /* CRPC_LINK_* */
    uint32_t mtu_bytes;         /* active MTU of the port */
    uint32_t endpoints_max;     /* as requested */
    uint32_t endpoints;         /* endpoints that have a queue pair now */
    uint32_t receive_depth;     /* receive WQEs that the device granted */
    uint32_t send_depth;        /* WQEs in the send queue of each endpoint */
    uint32_t signal_interval;   /* in use */
    uint32_t inline_bytes_max;  /* payload bytes that fit in a WQE */
    uint32_t batch_window_left; /* receives that no batch window has yet */
    uint32_t features;          /* CRPC_FEATURE_* in use */
    uint32_t queues_max;        /* in use; 0 = it was opened without CRPC_CONTEXT_QUEUES */
    /* Queues that count for queues_max: those of all kinds until they are closed, and closed ones whose
     * ops have not all completed. Connect requests do not count. */
    uint32_t queues;
    uint32_t initiators;        /* as requested */
    uint32_t completion_vector; /* of the context's completion queues, from 0 */
    uint32_t
        traffic_class; /* this and the rest: in use, whether of the options or of the environment */
    uint32_t service_level; /* 0: that of the route where rdma_cm connects */
    /* P_Key of what does not connect by rdma_cm, as in the port's table; 0 = not known */
    uint32_t partition_key;
    uint32_t retry_timeout; /* 0: as the comments of each kind of connection say */
    uint32_t retry_count;   /* likewise */
    uint32_t flags;         /* CRPC_GRH_REQUIRED */
} crpc_context_info;

/* Describes the context and the device that it uses. Returns CRPC_OK; CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_get_info(crpc_context *context, crpc_context_info *info);

/* Counters of calls, since the context or the endpoint was created. A context adds up all of its
 * endpoints, including closed ones. Channels have crpc_channel_stats. */
typedef struct crpc_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t calls;          /* CALL ops accepted */
    uint64_t responses;      /* calls that the peer answered with a reply */
    uint64_t calls_failed;   /* calls that completed with an error */
    uint64_t requests;       /* requests delivered to this side's application */
    uint64_t replies;        /* REPLY and DROP ops accepted */
    uint64_t late_responses; /* responses that came after their call had ended */
    uint64_t batches_sent;   /* WRITEs with immediate */
    uint64_t batches_received;
    uint64_t bytes_sent; /* in batches, including their headers */
    uint64_t bytes_received;
    uint64_t send_wqes;     /* batches and mailbox READs */
    uint64_t doorbells;     /* for sends */
    uint64_t signaled_wqes; /* send WQEs that requested a completion */
    uint64_t inline_wqes;   /* send WQEs that contained their payload */
    uint64_t receive_wqes;  /* receives posted (context only) */
    uint64_t mailbox_reads;
    uint64_t completions;         /* entries taken from the completion queues (context only) */
    uint64_t refused;             /* ops refused with CRPC_E_AGAIN */
    uint64_t polls;               /* calls of crpc_poll (context only) */
    uint64_t polls_empty;         /* polls with nothing about endpoints (context only) */
    uint64_t unknown_completions; /* device completions that match nothing (context only) */
    uint64_t protocol_errors;     /* connections whose peer violated the protocol */
    /* Connections that were closed though the device had not said that they hold no receives of the
     * shared queue: each may have lost some for good. The log says what to do (context only) */
    uint64_t last_wqes_missed;
} crpc_stats;

/* Reads the counters of a context. Returns CRPC_OK; CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_get_stats(crpc_context *context, crpc_stats *stats);

/* ---- Metrics --------------------------------------------------------------------------------- */

/* Flag: also the counters of each endpoint, and its series of each method. */
#define CRPC_METRICS_ENDPOINTS 0x1u

/* Writes all metrics of a context as text in the format of Prometheus (0.0.4): the counters that there always are and, with
 * CRPC_CONTEXT_METRICS, calls and requests by method and status, and histograms of their times. flags: CRPC_METRICS_* or 0.
 * docs/observability.md lists the series. `text` stays the caller's; it is zero-terminated if text_bytes is more than what is
 * returned, and otherwise has no meaning; it may be NULL if text_bytes is 0. Only the context's thread. It does not block, and
 * takes no completion. Returns the length of the text, without the zero; CRPC_E_INVALID, CRPC_E_NO_MEMORY. */
CRPC_API int64_t crpc_context_metrics(crpc_context *context, uint32_t flags, char *text,
                                      uint64_t text_bytes);

/* Names a method in what crpc_context_metrics writes; otherwise it is its number. NULL takes the name back. The library copies
 * the name, which has 1 to 255 bytes of UTF-8. Only the context's thread. It does not block. Returns CRPC_OK; CRPC_E_INVALID,
 * CRPC_E_NO_MEMORY. */
CRPC_API int32_t crpc_context_name_method(crpc_context *context, uint16_t method, const char *name);

#define CRPC_METRICS_CLIENT 0u /* this side's calls */
#define CRPC_METRICS_SERVER 1u /* the peer's requests */
/* In place of a method: those beyond the 64 that are counted one by one, of one endpoint and side; and the sum of all. */
#define CRPC_METHOD_OTHER 0x10000u
#define CRPC_METHOD_ALL 0x10001u

typedef struct crpc_method_metrics {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t started;       /* calls accepted, or requests given to the application */
    uint64_t ended;         /* calls completed, or requests answered; times are of these */
    uint64_t request_bytes; /* of those started: payloads */
    uint64_t reply_bytes;   /* of those ended */
    /* Of all times: from submit to completion, or from a request's completion to its reply's submit. */
    uint64_t sum_ns;
    /* So many percent took no longer, up to 25 % exactly; 0 = none has ended. */
    uint64_t p50_ns;
    uint64_t p90_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
    uint64_t p100_ns;
    /* By CRPC_STATUS_*; the last: all statuses above CRPC_STATUS_UNAUTHENTICATED. */
    uint64_t statuses[18];
    uint64_t errors[32]; /* by -CRPC_E_*; errors[0]: those that this version does not know */
} crpc_method_metrics;

/* Reads what was counted of one method. endpoint: zero = the sum of all, also of those that are closed. side:
 * CRPC_METRICS_CLIENT or _SERVER. What has never been used is all zero. Only the context's thread. It does not block.
 * Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE, CRPC_E_STATE (it was opened without CRPC_CONTEXT_METRICS). */
CRPC_API int32_t crpc_endpoint_get_method_metrics(crpc_context *context, crpc_endpoint endpoint,
                                                  uint32_t side, uint32_t method,
                                                  crpc_method_metrics *metrics);

typedef struct crpc_log_entry {
    uint64_t time_ns;  /* CLOCK_MONOTONIC */
    uint32_t level;    /* CRPC_LOG_* */
    uint32_t lost;     /* entries overwritten unread just before this one */
    char message[240]; /* zero-terminated */
} crpc_log_entry;

/* Takes the oldest entries out of the context's log. The log keeps the last 256 entries.
 * Returns the number of entries written to `entries`, 0 to capacity; CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_log(crpc_context *context, crpc_log_entry *entries,
                                  uint32_t capacity);

/* ---- Ops and completions --------------------------------------------------------------------- */

/* A program submits arrays of ops and polls arrays of completions. A received payload is a "view":
 * it lies in memory of the library, and is valid until the next crpc_poll of the context. */

/* Sends a request to the peer. Completes with CRPC_COMPLETION_RESPONSE. */
#define CRPC_OP_CALL 1u
/* Answers a request of the peer. Completes with CRPC_COMPLETION_REPLY. */
#define CRPC_OP_REPLY 2u
/* Drops a request of the peer, whose call then fails with CRPC_E_DROPPED; or, if `status` is CRPC_E_NOT_STARTED, with that: then
 * this side has done nothing of it, and its caller may send it again, here or elsewhere. Completes with
 * CRPC_COMPLETION_REPLY. */
#define CRPC_OP_DROP 3u
/* Ends those calls of the endpoint whose user_data equals `token`, with CRPC_E_CANCELED. Completes
 * with CRPC_COMPLETION_CANCEL. The peer gets a CRPC_COMPLETION_ABANDONED for each. */
#define CRPC_OP_CANCEL 4u

/* Flag of REPLY and DROP: the op yields no completion. If the peer does not get the reply, only
 * CRPC_COMPLETION_DISCONNECTED shows it. */
#define CRPC_OP_QUIET 0x1u

/* Flag of CALL and REPLY, on an endpoint with a lane: the message is sent when all ops of the lane that
 * were accepted before it have completed, but for REVOKEs, which it does not wait for. What WRITEs have
 * written is then there when the peer gets it. What is submitted later to this endpoint is sent behind it. If
 * an op of those fails, the message is not sent: the connection ends with CRPC_E_DISCONNECTED. Not with
 * crpc_reserve. */
#define CRPC_OP_AFTER 0x2u

/* Flag of CALL and REPLY: the payload is in `region`, payload_offset bytes from its start, and the device reads it
 * there: nothing is copied, however long it is. (A payload of less than some 2 KiB is copied all the same, unless the
 * region is another device's memory.) The payload must not change until the op has completed. So a call that ends early,
 * by its deadline or a CANCEL, while the device reads its payload, completes when it has, or when the connection has ended.
 * Until then, and up to the next poll, crpc_region_deregister returns CRPC_E_BUSY. The first such op of an endpoint with a
 * region registers the region for this endpoint, which is a system call; crpc_region_prepare does it before. The message
 * leaves at once, or as soon as the peer and the send queue have room; while it waits, ops of this endpoint are refused
 * with CRPC_E_AGAIN. Not with CRPC_OP_QUIET, CRPC_OP_AFTER or crpc_reserve. */
#define CRPC_OP_REGION 0x4u

/* Flag of CALL: to do this twice is as to do it once. An endpoint that reconnects (CRPC_ENDPOINT_RECONNECT) sends it again over the
 * next connection, if the one before has ended and nobody knows whether it was done. On other endpoints it means nothing. With
 * CRPC_OP_REGION, the payload is copied for that; if the region is another device's memory, the op gets CRPC_E_UNSUPPORTED. */
#define CRPC_OP_IDEMPOTENT 0x8u

/* Flag of CALL: `token` is the offset, from the start of `payload`, of a crpc_trace. The library copies it, and sends it ahead of the
 * request; the peer gets it with crpc_request_get_trace. A peer that knows nothing of traces gets the request alone, and so does any peer
 * if the request is so long that its ring has no room for 96 bytes more, which is what a trace takes there. With any of the flags of CALL
 * above: with CRPC_OP_REGION, `payload` is for traces alone. Not with crpc_reserve. */
#define CRPC_OP_TRACED 0x10u

/* Whose call it is, for tracing: what of W3C Trace Context travels with a call (https://www.w3.org/TR/trace-context). The library reads
 * none of it. */
typedef struct crpc_trace {
    uint8_t trace_id[16];
    uint8_t span_id[8];  /* the caller's span: the parent of what is done for its request */
    uint8_t flags;       /* trace-flags: bit 0 = sampled, bit 1 = the trace id is random */
    uint8_t reserved[7]; /* zero */
} crpc_trace;

/* One op. Its size will always be 64 bytes. Members that the opcode does not use must be zero. */
typedef struct crpc_op {
    uint8_t opcode;           /* CRPC_OP_* */
    uint8_t flags;            /* CRPC_OP_QUIET, _AFTER, _REGION, _IDEMPOTENT, _TRACED */
    uint16_t method;          /* CALL: any number; the peer's completion shows it */
    int32_t status;           /* REPLY: any number >= 0; the caller's completion shows it.
                               * DROP: 0 or CRPC_E_NOT_STARTED */
    crpc_endpoint endpoint;   /* all opcodes */
    uint64_t user_data;       /* all opcodes: any number; the op's completion shows it */
    uint64_t token;           /* REPLY, DROP: the request's. CANCEL: user_data of the calls.
                               * CALL: with CRPC_OP_TRACED, where the trace is */
    uint64_t payload_offset;  /* CALL, REPLY: from the start of the payload, or of `region` */
    uint32_t payload_bytes;   /* CALL, REPLY: may be 0 */
    uint32_t reply_bytes_max; /* CALL: length of the longest reply that the peer may send */
    uint64_t timeout_ns;      /* CALL: the call ends with CRPC_E_TIMEOUT after it; 0 = no limit. The
                               * peer's CRPC_COMPLETION_REQUEST shows it */
    crpc_region region;       /* CALL, REPLY: with CRPC_OP_REGION */
} crpc_op;

/* A call has ended. The status is the peer's (>= 0) or an error (< 0). */
#define CRPC_COMPLETION_RESPONSE 1u
/* A REPLY or DROP op has ended. With CRPC_OK, the peer's device has acknowledged it. */
#define CRPC_COMPLETION_REPLY 2u
/* A CANCEL op has ended. `token` counts the ops that it ended. If there were none, the status is
 * CRPC_E_NOT_FOUND. */
#define CRPC_COMPLETION_CANCEL 3u
/* The peer has sent a request. A REPLY or DROP op with its token answers it. */
#define CRPC_COMPLETION_REQUEST 4u
/* A peer wants to connect to a listener. crpc_endpoint_accept or crpc_endpoint_reject (for
 * channels, crpc_channel_accept or crpc_channel_reject; for queues, crpc_queue_accept or
 * crpc_queue_reject) answers it. */
#define CRPC_COMPLETION_CONNECT_REQUEST 5u
/* A connect, accept or join has ended. A status < 0 means that there is no connection. */
#define CRPC_COMPLETION_CONNECTED 6u
/* A connection has ended. Every connection yields this once, unless it is closed before. The status
 * is CRPC_OK after a graceful disconnect, otherwise the reason. It is the last completion of the
 * connection: ops that were accepted complete before it, and no op is accepted after it. The handle
 * stays valid until it is closed. */
#define CRPC_COMPLETION_DISCONNECTED 7u
/* There may be room again, after an op was refused with CRPC_E_AGAIN. */
#define CRPC_COMPLETION_ROOM 8u
/* The context's device or port has changed. The status is CRPC_OK (the port became active),
 * CRPC_E_UNREACHABLE (the port went down) or CRPC_E_NO_DEVICE (the device was lost). A device that is
 * only a rail's yields none: each connected channel tells that it has lost the rail, and the log why. */
#define CRPC_COMPLETION_DEVICE 9u
/* A CRPC_CHANNEL_SEND op has ended. Its buffer may be used again. */
#define CRPC_COMPLETION_SENT 10u
/* A CRPC_CHANNEL_RECEIVE op has ended. With CRPC_OK, its buffer holds the data. Messages may complete
 * out of order, here and in SENT, if the channel has two rails or several queue pairs: a message is
 * told as soon as all of it has arrived, whatever is under way before it. `token` is its number. */
#define CRPC_COMPLETION_RECEIVED 11u
/* A rail of a connected channel was lost (CRPC_E_DISCONNECTED) or came into use (CRPC_OK).
 * `token` is its index. As long as one rail is up, the channel carries on without losing messages.
 * If no rail is left (both are down at once, or there is only one), the channel ends instead, and
 * CRPC_COMPLETION_DISCONNECTED has the status CRPC_E_DISCONNECTED. Ops without a completion then
 * end with that status, and their data may or may not have arrived. */
#define CRPC_COMPLETION_RAIL 12u
/* A crpc_queue_op or a crpc_lane_op has ended. `method` is its opcode: RECEIVE for all that took a
 * receive. With CRPC_COMPLETION_OF_QUEUE it is a queue's, otherwise an endpoint's. */
#define CRPC_COMPLETION_WORK 13u
/* A message has taken a receive of an SRQ, and left fewer than its limit: crpc_queue_modify. It comes once
 * for each time that the limit was set. */
#define CRPC_COMPLETION_SRQ_LIMIT 14u
/* The caller of a request waits for its answer no more: `status` is CRPC_E_CANCELED, or CRPC_E_TIMEOUT if its deadline has passed.
 * `token` is the request's. A REPLY or DROP must still answer it, but nobody sees that, so a server can stop what it does for
 * it. Not every request without a caller is told of: none is after a disconnect of the peer has begun, and none of a peer that does not
 * tell such things (`features` of crpc_endpoint_info). A peer at fault may tell it more than once. */
#define CRPC_COMPLETION_ABANDONED 15u
/* The connection of an endpoint that reconnects has ended, or an attempt to connect has failed: `status` says why (CRPC_OK: the peer
 * has disconnected gracefully), and crpc_endpoint_get_error more. The next attempt follows by itself, and CRPC_COMPLETION_CONNECTED
 * when one succeeds. Requests of the peer that are not answered, and views, are those of the connection that has ended: their
 * tokens are stale. */
#define CRPC_COMPLETION_RECONNECTING 16u

/* Flag of a completion: `endpoint.bits` is a crpc_channel, and `endpoint_user_data` belongs to that
 * channel. SENT, RECEIVED and RAIL always have it. CANCEL, CONNECT_REQUEST, CONNECTED, DISCONNECTED
 * and ROOM have it if they concern a channel. */
#define CRPC_COMPLETION_OF_CHANNEL 0x1u
/* The same for a crpc_queue. WORK of a crpc_queue_op and SRQ_LIMIT have it. CONNECT_REQUEST, CONNECTED, DISCONNECTED and ROOM
 * have it if they concern a queue. */
#define CRPC_COMPLETION_OF_QUEUE 0x2u
/* Flag of REQUEST and RESPONSE: the payload is in the endpoint's arena (crpc_arena_lend), and is the caller's until
 * crpc_arena_give_back. */
#define CRPC_COMPLETION_PLACED 0x4u
/* Flags of WORK with CRPC_OK. IMMEDIATE: reply_bytes_max is the message's immediate. INVALIDATED: it is
 * the remote key that the peer has invalidated. */
#define CRPC_COMPLETION_IMMEDIATE 0x4u
#define CRPC_COMPLETION_INVALIDATED 0x8u
/* Flag of WORK: the device has reported this op itself, and not only a later one. */
#define CRPC_COMPLETION_DETAIL 0x10u
/* Flag of WORK of a TAG_ADD, with CRPC_OK: a message has matched. `token` is its tag, the lower half of `view`
 * the context in its header, and payload_bytes what is in the buffer. `endpoint` is the queue over which
 * it came. Its header is not in the buffer, unless there is CRPC_COMPLETION_RENDEZVOUS, too. */
#define CRPC_COMPLETION_MATCHED 0x20u
/* The same: what has matched is a rendezvous request, and all of it is in the buffer, its header, too. */
#define CRPC_COMPLETION_RENDEZVOUS 0x40u
/* Flag of WORK of a RECEIVE: the message has a tag, and nothing matched. Buffers that are added from then on
 * match nothing until the next TAG_SYNC. */
#define CRPC_COMPLETION_SYNC 0x80u
/* Flag of WORK: a datagram's receive. The 40 bytes before the message are a header which says where it
 * comes from: crpc_target_of. */
#define CRPC_COMPLETION_GRH 0x40u
/* Flag of WORK: a receive of a DCT's, so that `token` has both who has sent and a length. */
#define CRPC_COMPLETION_OF_DCT 0x20u

/* One completion. Its size will always be 64 bytes. Members that the kind does not use are zero.
 * Programs must ignore kinds that they do not know. */
typedef struct crpc_completion {
    uint8_t kind;    /* CRPC_COMPLETION_* */
    uint8_t flags;   /* CRPC_COMPLETION_OF_CHANNEL and so on */
    uint16_t method; /* REQUEST, RESPONSE. WORK: CRPC_QUEUE_* or CRPC_LANE_*, the opcode */
    int32_t status;  /* CRPC_E_*, or >= 0 */
    /* All kinds but DEVICE. CONNECT_REQUEST: the new endpoint, channel or queue. WORK: the queue
     * or the endpoint; of a receive from an SRQ, and of a TAG_ADD that a message has matched, the queue
     * over which the message came, or the SRQ if that queue is gone. */
    crpc_endpoint endpoint;
    /* Completions of ops: the op's. CONNECT_REQUEST: the listener's, or that of
     * crpc_endpoint_hand_over. REQUEST: how long its caller waits, in ns, from when it has made the call: at most 1 us or 0.8 %
     * more than that; 0 = it has no deadline, or one of days, or the peer does not tell. Other kinds but DEVICE: the
     * endpoint's, channel's or queue's. */
    uint64_t user_data;
    /* REQUEST: for the op that answers it. ABANDONED: the request's. REPLY: the op's. CANCEL: number of ops ended. RAIL:
     * index of the rail. SENT, RECEIVED: number of the message in its direction, from 0; it has
     * no meaning for a send that failed before the peer had a receive for it. WORK of COMPARE_SWAP and
     * FETCH_ADD: what was there before; of CRPC_LANE_GRANT: the bits of the grant; of a RECEIVE that a
     * WRITE_IMMEDIATE took: length of the WRITE; of a RECEIVE of a UD queue: in the lower 32 bits the number
     * of the queue pair that has sent; of a RECEIVE of a DCT: likewise, 0 where the device does not say, and
     * in the upper 32 bits the length of a WRITE_IMMEDIATE; of a TAG_ADD that has matched: the tag. */
    uint64_t token;
    /* REQUEST, RESPONSE: address of the view, a multiple of 16. SENT, RECEIVED: address of the
     * buffer. A view is in memory that the peer's device writes to. The library has checked lengths
     * and everything else of its own, but a hostile peer can change the bytes of a view while they
     * are read, until the view ends. Whoever does not trust the peer copies first (crpc_retain),
     * then checks and uses the copy: what is read twice in a view may be two things. With
     * CRPC_COMPLETION_PLACED, the address in the region; of a dma-buf, what the caller said that it is. */
    uint64_t payload;
    /* REQUEST, RESPONSE: length of the view, or of what was placed. SENT: length of the buffer. RECEIVED: length of what
     * the peer sent, also with CRPC_E_TRUNCATED; with other errors 0. WORK of READ and RECEIVE, with
     * CRPC_COMPLETION_DETAIL: how much of the buffer was filled; a WRITE_IMMEDIATE fills nothing of it; of
     * a datagram with the 40 bytes before it. WORK of CRPC_LANE_READ, TAG_ADD: the same. */
    uint32_t payload_bytes;
    /* REQUEST: length of the longest reply that the caller accepts. WORK: the immediate in host byte
     * order, or the key that was invalidated; after an error, the vendor's syndrome. */
    uint32_t reply_bytes_max;
    /* REQUEST, RESPONSE: identifies the view for crpc_retain. WORK of a TAG_ADD that has matched: in
     * its lower half the context. */
    uint64_t view;
    uint64_t endpoint_user_data; /* all kinds but DEVICE: the endpoint's, channel's or queue's */
} crpc_completion;

/* Accepts ops in order, and stops at the first op that it cannot accept. The payload of an op lies
 * at payload_offset of `payload`, and must end within payload_bytes. `payload` may be NULL if
 * payload_bytes is 0. The library copies payloads, so the caller may reuse `ops` and `payload` at
 * once. Every accepted op yields exactly one completion, or none if it is QUIET.
 * The ops of an endpoint gather in a batch. crpc_submit itself sends the batch if one of the ops is
 * the endpoint's only open call, or answers its last open request. Otherwise the next crpc_poll,
 * crpc_wait or crpc_context_arm sends it. A batch waits longer if the peer's limits or the send
 * queue leave no room. Accepting an op allocates no memory and makes no system call of its own, but for one
 * for which a ring has to grow (CRPC_ENDPOINT_FULL_SIZE).
 * Returns how many ops were accepted, 0 to count, and sets *reason (which may be NULL) to why it
 * stopped there: CRPC_OK (all were accepted), CRPC_E_AGAIN (a CRPC_COMPLETION_ROOM follows),
 * CRPC_E_TOO_BIG (payload_bytes or reply_bytes_max can never fit), CRPC_E_STALE (endpoint or
 * token), CRPC_E_INVALID, CRPC_E_UNSUPPORTED (opcode), CRPC_E_STATE (not connected yet),
 * CRPC_E_CLOSING, CRPC_E_DISCONNECTED, CRPC_E_BUSY (a reservation is open). CRPC_OP_AFTER gives
 * CRPC_E_UNSUPPORTED if there is no lane, and CRPC_E_DISCONNECTED if it has failed. Returns CRPC_E_INVALID
 * if context is NULL, if ops is NULL and count is not 0, or if payload is NULL and payload_bytes is
 * not 0. */
CRPC_API int32_t crpc_submit(crpc_context *context, const crpc_op *ops, uint32_t count,
                             const void *payload, uint64_t payload_bytes, int32_t *reason);

/* Makes progress on all connections and fetches completions. It ends the views of the previous poll
 * and sends what has gathered. Then it fills `completions` with results of ops, requests and
 * connection events. It makes system calls of its own only to make or end connections, for rings that
 * grow, to answer copyrpc-top, and after crpc_wait or crpc_context_arm.
 * Returns how many completions it wrote, 0 to capacity; CRPC_E_INVALID if capacity is 0 or above
 * 2^20. */
CRPC_API int32_t crpc_poll(crpc_context *context, crpc_completion *completions, uint32_t capacity);

/* Sends what has gathered, and then sleeps until crpc_poll has something to return or to do. Views
 * stay valid. Blocks for at most timeout_ns (CRPC_FOREVER: without limit; 0: not at all).
 * Returns CRPC_OK, sometimes although the next poll finds nothing; CRPC_E_TIMEOUT;
 * CRPC_E_INTERRUPTED (a signal arrived); CRPC_E_SYSTEM (errno says why). */
CRPC_API int32_t crpc_wait(crpc_context *context, uint64_t timeout_ns);

/* Gives a file descriptor for epoll, asyncio or Go's netpoller. After crpc_context_arm, it becomes
 * readable when crpc_poll has something to return or to do. The descriptor belongs to the context:
 * the caller must neither read nor close it. Returns the descriptor; CRPC_E_INVALID. */
CRPC_API int32_t crpc_context_fd(crpc_context *context);

/* Requests one wake-up through crpc_context_fd, also for deadlines, and sends what has gathered. To
 * miss no event, poll until nothing is left, arm, and sleep only if this returns CRPC_OK. The next
 * crpc_poll disarms.
 * Returns CRPC_OK (armed); CRPC_E_AGAIN (something is there already: poll); CRPC_E_SYSTEM (errno says
 * why). */
CRPC_API int32_t crpc_context_arm(crpc_context *context);

/* Copies a valid view, or a payload that was placed, into the caller's buffer. The copy no longer
 * changes, whatever the peer does: if the peer is not trusted, check the copy, and not the view before
 * it.
 * Returns the length of the view in bytes; CRPC_E_STALE (after a later crpc_poll, or after the
 * endpoint was closed; of what was placed: after crpc_arena_give_back, and if the processor cannot
 * read it); CRPC_E_TOO_BIG if buffer_bytes is too small. */
CRPC_API int32_t crpc_retain(crpc_context *context, const crpc_completion *completion, void *buffer,
                             uint64_t buffer_bytes);

/* Gets the trace that came with an open request: one whose REPLY or DROP has not been accepted yet. `token` is the request's. For the
 * context's thread. Does not block.
 * Returns CRPC_OK; CRPC_E_NOT_FOUND: the caller has sent none; CRPC_E_STALE: there is no such endpoint, or the request is not open;
 * CRPC_E_INVALID. Source of the format: W3C Trace Context, https://www.w3.org/TR/trace-context. */
CRPC_API int32_t crpc_request_get_trace(crpc_context *context, crpc_endpoint endpoint,
                                        uint64_t token, crpc_trace *trace);

/* Reserves room in the send ring for the payload of `op`, a CALL or REPLY. The caller writes the
 * payload there, and crpc_commit sends it without another copy. payload_bytes of the op is the size
 * of the room, and payload_offset must be 0. The room belongs to the library; the caller may write
 * it until commit, abort or close. An endpoint has at most one reservation. While it is open, the
 * endpoint sends nothing, and refuses CALL, REPLY and DROP with CRPC_E_BUSY.
 * Returns CRPC_OK and sets *address, a multiple of 16; otherwise a reason as crpc_submit gives. */
CRPC_API int32_t crpc_reserve(crpc_context *context, const crpc_op *op, void **address);

/* Submits the reserved op with the first payload_bytes of its room. The op's timeout starts now.
 * Returns CRPC_OK; CRPC_E_TOO_BIG (more than was reserved; the reservation stays open);
 * CRPC_E_STATE (no reservation is open); CRPC_E_CLOSING or CRPC_E_DISCONNECTED (the reservation is
 * gone, and there will be no completion); CRPC_E_STALE. */
CRPC_API int32_t crpc_commit(crpc_context *context, crpc_endpoint endpoint, uint32_t payload_bytes);

/* Cancels a reservation, as if it had never been made. If the op was a REPLY, the request is still
 * unanswered. Returns CRPC_OK; CRPC_E_STATE (no reservation is open); CRPC_E_STALE. */
CRPC_API int32_t crpc_abort(crpc_context *context, crpc_endpoint endpoint);

/* ---- Endpoint: one connection to one peer ---------------------------------------------------- */

#define CRPC_TOKEN_BYTES_MAX 16
#define CRPC_KEY_BYTES_MIN 16
#define CRPC_KEY_BYTES_MAX 64

#define CRPC_ENDPOINT_CALL_ONLY 0x1u  /* flag: accepts no requests; the whole ring is for replies */
#define CRPC_ENDPOINT_SERVE_ONLY 0x2u /* flag: makes no calls; the whole ring is for requests */
/* Flag: the endpoint has a lane, if its peer has the flag, too: a second queue pair, for one-sided ops to
 * memory that the other side grants (crpc_lane_submit). */
#define CRPC_ENDPOINT_LANE 0x4u
/* Flag: ring and batch window have their full size from the start. Otherwise they are small at first, and grow as they are
 * used: once, when a call does not fit. It then waits for a round trip, and a submit and a poll of each side make system
 * calls. */
#define CRPC_ENDPOINT_FULL_SIZE 0x8u
/* Flag, for crpc_endpoint_connect: the endpoint comes back. When it cannot connect, or its connection ends, and the application
 * has neither disconnected nor closed it, it tries again until it does: each address in turn, then after a pause (reconnect_pause_ns)
 * all of them again. Its handle stays valid. The state is CRPC_STATE_CONNECTING meanwhile.
 *
 * A call is kept until it is answered, with a copy of its payload. Each completes once, as always:
 *  - one that was not sent waits for the next connection, up to its deadline; so does one that a peer that disconnects has dropped
 *    with CRPC_E_NOT_STARTED. Up to calls_max wait, others get CRPC_E_AGAIN;
 *  - one that was sent and not answered when the connection ends is sent again if it is CRPC_OP_IDEMPOTENT; otherwise it
 *    ends with CRPC_E_DISCONNECTED: nobody knows whether it was done.
 *  - one with CRPC_OP_REGION is kept if it is IDEMPOTENT, or waits; otherwise it ends with the connection.
 * crpc_reserve gets CRPC_E_AGAIN while there is no connection; a reservation that was open when it ended must be committed, which
 * returns CRPC_E_DISCONNECTED, or aborted, before the endpoint connects again. What belongs to one connection has to be made again
 * after each CRPC_COMPLETION_CONNECTED: an arena that was lent, registrations for it (crpc_region_prepare). There is no lane. */
#define CRPC_ENDPOINT_RECONNECT 0x10u

typedef struct crpc_endpoint_options {
    uint32_t struct_size;
    uint32_t flags;     /* CRPC_ENDPOINT_* */
    uint64_t user_data; /* any number; completions show it */
    /* Size of the receive ring: a power of two, 4096 to 2^30, and a multiple of the page size;
     * 0 = 1 MiB. It begins with 8192 bytes, or a page, and has this size as soon as that is needed, unless
     * the endpoint is FULL_SIZE. The peer maps and pins as much for sending: it refuses a ring that can be
     * larger than its own and than its peer_ring_bytes_max. If there is no memory for a larger ring, the
     * connection ends with CRPC_E_MEMLOCK or CRPC_E_NO_MEMORY. */
    uint32_t ring_bytes;
    /* The part of the ring for requests of the peer: a multiple of 32, from 64 to ring_bytes - 448 (with
     * CRPC_ENDPOINT_LANE, ring_bytes - 1472); 0 = half. The rest is for replies. Must be 0 with CALL_ONLY or SERVE_ONLY. */
    uint32_t request_bytes;
    /* How many calls may be unanswered: 1 to 2^20, rounded up to a power of two; 0 = 1024. The peer
     * refuses a number above 65536 unless its own is at least as large. */
    uint32_t calls_max;
    /* How many unread batches the peer may have sent, 1 to 1024; 0 = 64. All endpoints share the
     * context's receives: each has 2 to 8 of them, as there are, and 3 more if it has a key. Up to
     * batch_window are lent to those whose peers send much, as long as there are any. A FULL_SIZE endpoint
     * has all at once. */
    uint32_t batch_window;
    uint64_t connect_timeout_ns; /* 0 = 5 s; CRPC_FOREVER: no limit */
    /* If calls are open and nothing has come from the peer for this long, the library probes it; if
     * none are, after ten times as long. A peer that does not answer is lost. 0 = 1 s;
     * CRPC_FOREVER: never.
     * A connection on which nothing completes for 20 times as long, though something should, is lost:
     * the peer posts no receives, or a device is at fault. */
    uint64_t keepalive_ns;
    /* The transport resends an unacknowledged packet after 4.096 us * 2^retry_timeout (the
     * "Local ACK Timeout" of the InfiniBand specification): 1 to 31; 0 = that of the context, or 14 (67 ms). */
    uint32_t retry_timeout;
    /* How often it resends before the connection is lost: 1 to 7; 0 = that of the context, or 6. Soft-RoCE resends for ever
     * if this is 7. */
    uint32_t retry_count;
    uint32_t token_bytes; /* length of `token`, 0 to 16 */
    uint8_t token[16];    /* connect, blob: the peer's crpc_endpoint_info shows it */
    /* How large a ring the peer may ask for: 4096 to 2^30; 0 = 1 MiB. One that is as large as this
     * side's own is always allowed. This side maps and pins as much memory for sending. With a
     * larger ring, accept and join return CRPC_E_NO_RESOURCE, or it is the status of CONNECTED: on
     * the side that connects, and with a key. */
    uint32_t peer_ring_bytes_max;
    uint32_t key_bytes; /* length of `key`: 0 = none, or 16 to 64 */
    /* A secret that both sides have. Each proves to the other that it knows the key before anything
     * else is sent, and before either has a right to the other's memory. The key itself is never sent.
     * The library overwrites its copies when the connection is made, has failed or is closed.
     * A connection fails with CRPC_E_KEY if the keys differ, or if one side has none. An accepting
     * application can choose the key by the peer's token. docs/wire.md, "Keys". */
    uint8_t key[64];
    /* With CRPC_ENDPOINT_LANE: how many ops of the lane may be open, up to 4096. 0, and what is less than
     * send_depth of crpc_context_info, means send_depth. For each send_depth, or part of one, the lane counts
     * as one of endpoints_max, besides the endpoint. */
    uint32_t lane_depth;
    /* With CRPC_ENDPOINT_RECONNECT, otherwise both must be 0: how long it pauses before it tries all addresses again, first and at most.
     * Each pause is twice the one before, less up to a half at random. It begins anew with a connection that has lasted for the
     * longest pause. 0 = 10 ms, and 5 s. */
    uint64_t reconnect_pause_ns;
    uint64_t reconnect_pause_max_ns;
} crpc_endpoint_options;

/* Starts to connect to `address`: "host:port", "192.0.2.1:port" or "[2001:db8::1]:port"; with CRPC_ENDPOINT_RECONNECT, up to 16 of
 * these with commas between them, all for the same service. Names are looked up in the background, and their addresses tried one
 * after the other, up to 8, until a listener is found, also where nobody listens at the first. `options` may be NULL. The new handle
 * belongs to the caller until crpc_endpoint_close, also if the connection fails.
 * Returns CRPC_OK and sets *endpoint; CRPC_E_INVALID, CRPC_E_NO_RESOURCE, CRPC_E_MEMLOCK,
 * CRPC_E_NO_MEMORY, CRPC_E_UNSUPPORTED (no rdma_cm, or a key and no libcrypto of OpenSSL),
 * CRPC_E_SYSTEM. After CRPC_OK, one CRPC_COMPLETION_CONNECTED follows. Its status is CRPC_OK, one of
 * the errors above, CRPC_E_TIMEOUT, CRPC_E_REFUSED, CRPC_E_KEY, CRPC_E_UNREACHABLE, CRPC_E_VERSION,
 * CRPC_E_PROTOCOL, CRPC_E_DISCONNECTED (the peer gave up) or CRPC_E_NO_DEVICE (the route leads
 * through another device); crpc_endpoint_get_error gives the details. With CRPC_ENDPOINT_RECONNECT, CRPC_COMPLETION_RECONNECTING
 * with these statuses comes as often as an attempt fails, and CONNECTED is always CRPC_OK. */
CRPC_API int32_t crpc_endpoint_connect(crpc_context *context, const char *address,
                                       const crpc_endpoint_options *options,
                                       crpc_endpoint *endpoint, crpc_error *error);

/* Accepts the endpoint of a CRPC_COMPLETION_CONNECT_REQUEST. crpc_endpoint_get_info shows the
 * peer's address and token. `options` may be NULL; its token is ignored. Blocks while the system pins
 * the rings' memory.
 * Returns CRPC_OK, and one CRPC_COMPLETION_CONNECTED follows; CRPC_E_STATE (there is no request, or
 * the peer has given up); CRPC_E_STALE; the errors of crpc_endpoint_connect, after which the request
 * can still be accepted or rejected. A peer that gives up is not reported: an accept that comes too
 * late fails with CRPC_E_STATE or CRPC_E_DISCONNECTED. The handle stays, and counts for the backlog,
 * until the request is rejected or closed. */
CRPC_API int32_t crpc_endpoint_accept(crpc_context *context, crpc_endpoint endpoint,
                                      const crpc_endpoint_options *options, crpc_error *error);

/* Rejects the endpoint of a CRPC_COMPLETION_CONNECT_REQUEST, and closes its handle. The peer's
 * connect ends with CRPC_E_REFUSED, and its error message contains `reason`, which may be any
 * number. If the peer has given up, only the handle is closed. Returns CRPC_OK; CRPC_E_STATE (there
 * is no request: it was accepted, or is none); CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_reject(crpc_context *context, crpc_endpoint endpoint,
                                      uint32_t reason);

/* Hands the endpoint of a CRPC_COMPLETION_CONNECT_REQUEST over to another context of this process, so that a server with one
 * listener can spread its connections over contexts of several threads. The handle is closed. A poll of `to` gives a
 * CRPC_COMPLETION_CONNECT_REQUEST with a new handle and this user_data, and wakes who sleeps in its crpc_wait; there it is
 * accepted, rejected or handed over again. The listener, and the context that it belongs to, can be closed meanwhile.
 *
 * Threads: the caller is the one that may use `context`. Another one may use `to` at the same time, but must not close it
 * before this has returned. `to` has a device at the same port. If it is closed, it rejects what it has not accepted.
 * Blocks for some system calls.
 * Returns CRPC_OK; CRPC_E_STATE (there is no request, or the peer has given up); CRPC_E_NO_RESOURCE (128 requests that were
 * handed over to `to` wait to be accepted or rejected); CRPC_E_NO_DEVICE (another device or port), CRPC_E_UNSUPPORTED (`to`
 * has no rdma_cm); CRPC_E_INVALID (also: `to` is `context`), CRPC_E_STALE, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM (with EACCES: user
 * or groups were changed when the threads that opened the two contexts already ran). After an error, the request is as it
 * was. If the peer gives up on the way, an accept fails as if it were too late. */
CRPC_API int32_t crpc_endpoint_hand_over(crpc_context *context, crpc_endpoint endpoint,
                                         crpc_context *to, uint64_t user_data, crpc_error *error);

/* No blob is longer than this. */
#define CRPC_BLOB_BYTES_MAX 256

/* Creates an endpoint that connects without rdma_cm. Writes to `blob` the bytes that the peer needs
 * for crpc_endpoint_join; the application carries them there, e.g. through MPI, etcd or a file.
 * `blob` belongs to the caller. *blob_bytes is the room in `blob`, and becomes the length of what
 * was written. The format is in docs/wire.md, "Blob". `options` may be NULL.
 * Returns CRPC_OK and sets *endpoint; CRPC_E_TOO_BIG (there is too little room; *blob_bytes becomes
 * the length that is needed); the errors that crpc_endpoint_connect returns. */
CRPC_API int32_t crpc_endpoint_blob(crpc_context *context, const crpc_endpoint_options *options,
                                    crpc_endpoint *endpoint, void *blob, uint32_t *blob_bytes,
                                    crpc_error *error);

/* Connects an endpoint of crpc_endpoint_blob with the peer's blob. Both sides must join. If one
 * side sends before the other has joined, the transport only resends retry_count times; a probe
 * (keepalive_ns) counts as sending. If that may be too short, the applications must first tell each
 * other that they have joined. A side with a key, or with CRPC_ENDPOINT_LANE if the peer has it, too,
 * sends as soon as it joins: both must join within that time, or the first ends, with a key with
 * CRPC_E_UNREACHABLE. The system looks up the peer's address on the
 * network (ARP) in the background: if nobody has it, the status of CRPC_COMPLETION_CONNECTED is
 * CRPC_E_UNREACHABLE.
 * Returns CRPC_OK, and one CRPC_COMPLETION_CONNECTED follows; CRPC_E_INVALID (also: the endpoint's
 * own blob), CRPC_E_KEY (only one side has a key), CRPC_E_VERSION, CRPC_E_PROTOCOL (not a blob, or
 * damaged), CRPC_E_UNREACHABLE, CRPC_E_STATE (not an endpoint of crpc_endpoint_blob, or already
 * joined), CRPC_E_STALE, CRPC_E_NO_RESOURCE, CRPC_E_MEMLOCK, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. After
 * an error, the endpoint may join again. */
CRPC_API int32_t crpc_endpoint_join(crpc_context *context, crpc_endpoint endpoint, const void *blob,
                                    uint32_t blob_bytes, crpc_error *error);

/* Starts a graceful disconnect. This side refuses new calls at once, and the peer as soon as it
 * learns of the disconnect. Open calls, requests and replies of both sides finish, and then the
 * connection ends. After timeout_ns (CRPC_FOREVER: no limit) it ends in any case, with
 * CRPC_E_TIMEOUT. A second call replaces the limit. The handle stays valid until
 * crpc_endpoint_close. An endpoint that reconnects does so no more, also if it has no connection now; calls that wait
 * for one end with CRPC_E_CLOSING: they were not sent.
 * Returns CRPC_OK, and one CRPC_COMPLETION_DISCONNECTED follows; CRPC_E_STATE (not connected);
 * CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_disconnect(crpc_context *context, crpc_endpoint endpoint,
                                          uint64_t timeout_ns);

/* Ends the connection at once, and closes the handle. The next polls complete the pending ops with
 * CRPC_E_CLOSED; there is no CRPC_COMPLETION_DISCONNECTED. Views can be read until the next
 * crpc_poll, but crpc_retain refuses them. A connect request is rejected with reason 0. Blocks
 * while the system destroys a QP.
 * Returns CRPC_OK; CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_close(crpc_context *context, crpc_endpoint endpoint);

/* States of endpoints, channels and RC queues. */
#define CRPC_STATE_NEW 1u       /* made by a blob function; waits for its join */
#define CRPC_STATE_REQUESTED 2u /* waits to be accepted or rejected */
#define CRPC_STATE_CONNECTING 3u
#define CRPC_STATE_CONNECTED 4u
#define CRPC_STATE_CLOSING 5u      /* a disconnect is under way; new ops are refused */
#define CRPC_STATE_DISCONNECTED 6u /* the connection has ended or has failed */

/* Describes an endpoint. */
typedef struct crpc_endpoint_info {
    uint32_t struct_size;
    uint32_t state; /* CRPC_STATE_* */
    uint64_t user_data;
    uint32_t request_bytes_max; /* longest payload of a request that the peer accepts; 0 = none */
    uint32_t reply_bytes_max;   /* largest reply_bytes_max that a call may have */
    uint32_t calls_max;
    uint32_t calls_open;        /* unanswered calls, except those that timed out or were canceled */
    uint32_t requests_open;     /* requests of the peer that this side has not answered */
    uint32_t queue_pair_number; /* 0 = no queue pair */
    uint32_t version;           /* of the wire protocol, as agreed with the peer */
    uint32_t features;          /* of the wire protocol, as agreed with the peer: 0x1 = a lane;
                                 * 0x2 = deadlines and abandoned calls are told of */
    uint32_t token_bytes;
    uint8_t token[16];     /* the peer's; empty on the side that called crpc_endpoint_connect */
    char peer_address[64]; /* "192.0.2.1:47110" or "[2001:db8::1]:47110"; "" = connected by blob */
    char local_address[64];
    /* This and the rest are for CRPC_ENDPOINT_RECONNECT. Of calls_open, those that wait for a connection. */
    uint32_t calls_waiting;
    uint32_t address_index; /* which address it is, or was, connected to, or tries: 0 = the first */
    uint32_t attempts_failed; /* to connect, one after the other, up to now */
    uint64_t connections;     /* that were made: more than 1 = it has come back */
} crpc_endpoint_info;

/* Describes an endpoint. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_info(crpc_context *context, crpc_endpoint endpoint,
                                        crpc_endpoint_info *info);

/* Reads the counters of an endpoint. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_stats(crpc_context *context, crpc_endpoint endpoint,
                                         crpc_stats *stats);

/* Tells why an endpoint could not connect or was disconnected. error->status is CRPC_OK if neither
 * has happened; of an endpoint that reconnects, why it did so last. If the peer violated the protocol before the connection was lost, the status is
 * CRPC_E_PROTOCOL and the message describes both.
 * Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_endpoint_get_error(crpc_context *context, crpc_endpoint endpoint,
                                         crpc_error *error);

/* Writes what the endpoint has done last to `text`, with flight_records of crpc_context_options: a line for each op that was accepted
 * or refused, and for each completion, the oldest first. A line begins with how long ago that was. Also after the connection has
 * ended. `text` belongs to the caller, and may be NULL if text_bytes is 0.
 * Threads: that of the context. Does not block.
 * Returns the length of all of it without the zero at its end, also if that did not fit, and the text is cut; CRPC_E_INVALID;
 * CRPC_E_STALE; CRPC_E_STATE (nothing is recorded). */
CRPC_API int64_t crpc_endpoint_flight_records(crpc_context *context, crpc_endpoint endpoint,
                                              char *text, uint64_t text_bytes);

/* ---- Listener -------------------------------------------------------------------------------- */

/* Flag: accepts channels instead of endpoints. Each connecting peer yields a
 * CRPC_COMPLETION_CONNECT_REQUEST with CRPC_COMPLETION_OF_CHANNEL. Needs CRPC_CONTEXT_RAILS and an
 * address of rail 0. */
#define CRPC_LISTENER_CHANNELS 0x1u
/* Flag: accepts RC queues instead of endpoints, from any program that connects by rdma_cm. Each
 * connecting peer yields a CRPC_COMPLETION_CONNECT_REQUEST with CRPC_COMPLETION_OF_QUEUE. Needs
 * CRPC_CONTEXT_QUEUES. */
#define CRPC_LISTENER_QUEUES 0x2u

typedef struct crpc_listener_options {
    uint32_t struct_size;
    uint32_t backlog;   /* connections that may wait to be accepted; 0 = 128 */
    uint64_t user_data; /* any number; CRPC_COMPLETION_CONNECT_REQUEST shows it */
    uint32_t flags;     /* CRPC_LISTENER_CHANNELS or CRPC_LISTENER_QUEUES */
    uint32_t reserved;
} crpc_listener_options;

/* Listens on `address`: "192.0.2.1:port", "[::]:port", "name:port" or "*:port". Port 0 takes any
 * free port. Each connecting peer yields a CRPC_COMPLETION_CONNECT_REQUEST. `options` may be NULL.
 * A loopback address is refused unless an RDMA device has it, because rdma_cm would listen on all
 * addresses. Blocks while it looks up a name.
 * Returns CRPC_OK and sets *listener; CRPC_E_INVALID, CRPC_E_UNREACHABLE (no such name),
 * CRPC_E_NO_DEVICE (the address belongs to another device, or to no RDMA device), CRPC_E_SYSTEM
 * (e.g. the port is in use), CRPC_E_UNSUPPORTED (no rdma_cm), CRPC_E_STATE (no rails, or no
 * queues), CRPC_E_NO_MEMORY. */
CRPC_API int32_t crpc_listener_open(crpc_context *context, const char *address,
                                    const crpc_listener_options *options, crpc_listener *listener,
                                    crpc_error *error);

/* Describes a listener. */
typedef struct crpc_listener_info {
    uint32_t struct_size;
    uint32_t port;
    uint64_t user_data;
    char address[64];  /* "192.0.2.1:47110" */
    uint64_t requests; /* connection requests that have arrived, refused ones included */
    uint64_t refused;  /* those that the library refused: wrong version, malformed, no room, backlog
                          full, over another device */
} crpc_listener_info;

/* Describes a listener. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_listener_get_info(crpc_context *context, crpc_listener listener,
                                        crpc_listener_info *info);

/* Stops listening and closes the handle. Accepted connections stay. Requests that still wait are
 * rejected, and their endpoints, channels or queues are closed. Returns CRPC_OK; CRPC_E_STALE. */
CRPC_API int32_t crpc_listener_close(crpc_context *context, crpc_listener listener);

/* Ends a service gracefully: closes the listener, as crpc_listener_close, and disconnects the endpoints, channels or queues that have come by it,
 * as crpc_endpoint_disconnect, crpc_channel_disconnect or crpc_queue_drain with this timeout. Those that are only being connected
 * stay: CRPC_COMPLETION_CONNECTED tells of them. So do those that were handed over. The caller goes on to poll. Requests that it
 * has it answers, and requests that come meanwhile it answers, or drops with CRPC_E_NOT_STARTED, so that their callers can send them again
 * elsewhere. No connection ends before its requests are answered, unless the time is over.
 * Returns how many it disconnects, of which each yields one CRPC_COMPLETION_DISCONNECTED; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_listener_drain(crpc_context *context, crpc_listener listener,
                                     uint64_t timeout_ns);

/* ---- Region: registered memory --------------------------------------------------------------- */

/* Access rights to a region. The context's device may always read it. The remote rights are those of
 * the peers of channels, and with CRPC_CONTEXT_QUEUES those of the peers of all RC queues of the
 * context: each of them who knows or guesses the key and an address can use them. The peer of an
 * endpoint has none. */
#define CRPC_ACCESS_LOCAL_WRITE 0x1u  /* RECEIVE and READ of queues need it */
#define CRPC_ACCESS_REMOTE_WRITE 0x2u /* needs LOCAL_WRITE; receives of channels need it */
#define CRPC_ACCESS_REMOTE_READ 0x4u
#define CRPC_ACCESS_REMOTE_ATOMIC 0x8u /* needs LOCAL_WRITE */
/* Whose memory it is: at most one of these two. Without either, that of crpc_region_register is the host's, and a dma-buf is another
 * device's. DEVICE: only devices touch it, never the processor, e.g. a GPU's by nvidia-peermem. What would take a copy by the
 * processor is refused: CRPC_OP_IDEMPOTENT, crpc_retain, and CRPC_OP_REGION while an endpoint that reconnects is away. */
#define CRPC_ACCESS_DEVICE 0x10u
/* HOST: at the region's address, the processor can read the memory, and write to it if the region has LOCAL_WRITE. */
#define CRPC_ACCESS_HOST 0x20u

/* Describes a region. */
typedef struct crpc_region_info {
    uint32_t struct_size;
    uint32_t access; /* CRPC_ACCESS_* */
    uint64_t address;
    uint64_t bytes;
    uint32_t local_key; /* lkey on the context's device */
    /* rkey on the context's device. With CRPC_CONTEXT_QUEUES, the peers of queues name the region by
     * it, with its address; otherwise it gives no peer any right. */
    uint32_t remote_key;
} crpc_region_info;

/* Registers memory with the context's device, and with the rails if the context has them. If one of
 * two rails cannot register it, that rail is left out, with a warning in the log. The memory stays
 * the caller's, and must stay mapped until crpc_region_deregister. `access`: CRPC_ACCESS_*; memory of a GPU needs
 * CRPC_ACCESS_DEVICE, since otherwise the processor copies short payloads. Blocks while the system pins the
 * pages, which may take long.
 * Returns CRPC_OK and sets *region; CRPC_E_INVALID (also: not mapped), CRPC_E_MEMLOCK,
 * CRPC_E_NO_RESOURCE, CRPC_E_NO_MEMORY, CRPC_E_UNSUPPORTED, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_region_register(crpc_context *context, void *address, uint64_t bytes,
                                      uint32_t access, crpc_region *region, crpc_error *error);

/* Registers a region for payloads of a connected endpoint (CRPC_OP_REGION), so that the first op of them need not. It ends
 * with the endpoint or the region. Blocks while the system pins the pages. Doing it again does nothing.
 * Returns CRPC_OK; CRPC_E_INVALID; CRPC_E_STALE: no such region or endpoint; CRPC_E_STATE: not connected;
 * CRPC_E_UNSUPPORTED: the device gathers too few pieces; and as crpc_region_register. */
CRPC_API int32_t crpc_region_prepare(crpc_context *context, crpc_region region,
                                     crpc_endpoint endpoint, crpc_error *error);

#define CRPC_ARENA_PLACES_MAX 24u

/* Lends an endpoint's peer an arena: memory of a region, from `offset` on, of 1 to CRPC_ARENA_PLACES_MAX places of place_bytes
 * each. What the peer sends from regions (CRPC_OP_REGION) of 2 KiB and more, up to place_bytes, then lands in a place, where
 * nobody has to copy it, and does not use the ring: a request may be longer than the ring is. REQUEST and RESPONSE have
 * CRPC_COMPLETION_PLACED then. If no place is free, what fits the ring goes there, and a longer request gets
 * CRPC_E_AGAIN. Both sides use it without asking: the peer learns of it when it polls, after this side's next crpc_poll or
 * crpc_wait. The region must have been registered with CRPC_ACCESS_LOCAL_WRITE, and is in use until the endpoint is closed:
 * there is one arena for each endpoint. As long as it is connected, its peer, and nobody else, can write to these bytes, also
 * to places with a payload. Blocks while the system pins the pages. offset and the region's address must add up to a multiple of 16, and
 * place_bytes must be one.
 * Returns CRPC_OK; CRPC_E_INVALID; CRPC_E_STALE: no such region or endpoint; CRPC_E_STATE: not connected, or it has an arena;
 * and as crpc_region_register. */
CRPC_API int32_t crpc_arena_lend(crpc_context *context, crpc_endpoint endpoint, crpc_region region,
                                 uint64_t offset, uint32_t place_bytes, uint32_t places,
                                 crpc_error *error);

/* Lets the peer use the place of a payload again, which the caller has done with. `payload` is the completion's. Payloads may
 * be given back in any order, and after the connection has ended. The peer learns of it with the next batch, or when it looks
 * because it waits. Does not block.
 * Returns CRPC_OK; CRPC_E_INVALID (context is NULL); CRPC_E_STALE: no such endpoint, or no such payload in its arena. */
CRPC_API int32_t crpc_arena_give_back(crpc_context *context, crpc_endpoint endpoint,
                                      uint64_t payload);

/* Describes a region. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_region_get_info(crpc_context *context, crpc_region region,
                                      crpc_region_info *info);

/* Registers memory of another device, such as a GPU: `bytes` from `offset` of the dma-buf `fd`. Ops
 * address it from `address` on: where it is mapped, or any number if it is not. Linux demands that
 * `address` and `offset` are equal modulo the page size. The processor does not touch this memory, unless `access` has
 * CRPC_ACCESS_HOST. `fd` and the memory stay the caller's, as
 * in crpc_region_register. May block for long.
 * Returns as crpc_region_register; CRPC_E_UNSUPPORTED also if the kernel or the device does not
 * support dma-bufs. */
CRPC_API int32_t crpc_region_register_dmabuf(crpc_context *context, int32_t fd, uint64_t offset,
                                             uint64_t bytes, uint64_t address, uint32_t access,
                                             crpc_region *region, crpc_error *error);

/* Deregisters a region and closes its handle. The memory stays the caller's. May block while the
 * system unpins the pages. Of queues and lanes, the caller must know that no op uses the region: one
 * that does fails with CRPC_E_DEVICE, and so does an op of a queue's peer with CRPC_E_ACCESS; both end their
 * queue or lane.
 * Returns CRPC_OK; CRPC_E_STALE; CRPC_E_BUSY (an op of a channel uses the region, or a grant of it has not
 * ended). */
CRPC_API int32_t crpc_region_deregister(crpc_context *context, crpc_region region);

/* Removes from the registration cache every registration that overlaps [address, address + bytes),
 * or all registrations if bytes is 0. The cache serves ops of channels that name memory without a
 * region: the library registers this memory and keeps the registration for later ops, within the
 * limits of crpc_cache_info. It must be the host's: memory of another device needs a region. The memory
 * stays the caller's. Before it is unmapped (munmap, mremap, free() of a large block), the caller must
 * remove it from the cache; otherwise the device goes on using the old pages. May block while the system unpins pages.
 * Returns the number of registrations removed; CRPC_E_BUSY (an op uses one of them, and none was
 * removed); CRPC_E_STATE (as crpc_cache_get_info); CRPC_E_INVALID. */
CRPC_API int32_t crpc_cache_forget(crpc_context *context, const void *address, uint64_t bytes);

/* Describes the cache of registrations of memory that no region contains. */
typedef struct crpc_cache_info {
    uint32_t struct_size;
    uint32_t registrations;     /* in the cache now */
    uint32_t registrations_max; /* limit; the least recently used registration makes room */
    uint32_t reserved;
    uint64_t bytes;     /* in the cache now */
    uint64_t bytes_max; /* limit, as above */
    uint64_t hits;      /* ops whose memory was in the cache */
    uint64_t misses;    /* ops whose memory had to be registered */
    uint64_t evictions; /* registrations removed to make room */
} crpc_cache_info;

/* Describes the registration cache. Returns CRPC_OK; CRPC_E_INVALID; CRPC_E_STATE (the context was
 * opened without CRPC_CONTEXT_RAILS). */
CRPC_API int32_t crpc_cache_get_info(crpc_context *context, crpc_cache_info *info);

/* ---- Rails: the ports that channels stripe over ---------------------------------------------- */

/* Describes a rail of a context. */
typedef struct crpc_rail_info {
    uint32_t struct_size;
    uint32_t index; /* from 0 */
    char device[64];
    uint32_t port;
    uint32_t link;      /* CRPC_LINK_* */
    uint32_t link_mbps; /* active lane speed times width, in Mbit/s; 0 = not known */
    uint32_t mtu_bytes; /* active MTU of the port */
    uint32_t gid_index;
    uint8_t gid[16];
    uint32_t driver;            /* CRPC_DRIVER_* */
    uint64_t system_image_guid; /* equal for rails on one card; 0 = not known */
    uint32_t
        receive_depth; /* WQEs of the shared receive queue, or of all receive queues together */
    uint32_t receives_left;      /* receive WQEs that new channels can still take */
    uint64_t receive_wqes;       /* posted since the context was opened */
    uint64_t receives_completed; /* receive WQEs that arriving immediates have used */
    uint64_t message_bytes_max;  /* longest buffer that a channel can send, over any rails */
    /* Queue pairs that all channels together can have: its send completion queue has room for so many. As many as channels_max and
     * rail_queue_pairs_max say, or fewer if the device has fewer entries. */
    uint32_t queue_pairs_max;
    uint32_t reserved;
    uint64_t last_wqes_missed; /* as in crpc_stats, of queue pairs of channels */
} crpc_rail_info;

/* Describes a rail of the context; `index` counts from 0. Returns CRPC_OK; CRPC_E_NOT_FOUND if
 * there is no such rail; CRPC_E_INVALID. */
CRPC_API int32_t crpc_rail_get_info(crpc_context *context, uint32_t index, crpc_rail_info *info);

/* ---- Channel: striped messages over one rail or two ------------------------------------------ */

/* A channel carries messages between two processes, in both directions. The receiver posts one
 * receive for each message, in the order in which it expects them. A receive is one buffer, or a
 * group of up to eight. The sender sends single buffers. Each buffer sent goes to the first free
 * buffer with its tag in the oldest incomplete message; if there is none, it waits. The devices
 * write it there directly. The library decides how to split a buffer over the rails when it posts
 * it.
 *
 * The peer can write to a receive's buffer, exactly to its bytes, until the receive completes. It
 * can write to no other memory of the application: not to what is sent, nor beside the buffer. This
 * holds where the device of each rail has memory windows of type 2B, as those of mlx5 have.
 * Elsewhere, and the log says so, the peer can write to the pages of all regions with
 * CRPC_ACCESS_REMOTE_WRITE, and of all memory without a region that was received into or sent,
 * until they are deregistered or removed from the cache. */

#define CRPC_CHANNEL_GROUP_MAX 8
#define CRPC_CHANNEL_SLOTS_MAX 256
#define CRPC_CHANNEL_QUEUE_PAIRS_MAX 8

/* Posts a buffer to be filled. Completes with CRPC_COMPLETION_RECEIVED. */
#define CRPC_CHANNEL_RECEIVE 1u
/* Sends a buffer. Completes with CRPC_COMPLETION_SENT. */
#define CRPC_CHANNEL_SEND 2u
/* Ends those sends of the channel that still wait for a receive and whose user_data equals `token`,
 * with CRPC_E_CANCELED. Completes with CRPC_COMPLETION_CANCEL. */
#define CRPC_CHANNEL_CANCEL 3u

/* Flag of RECEIVE: the next op is also a RECEIVE of this channel, and belongs to the same
 * message. */
#define CRPC_CHANNEL_MORE 0x1u

/* One op of a channel. Its size will always be 64 bytes. Members that the opcode does not use
 * must be zero. */
typedef struct crpc_channel_op {
    uint8_t opcode; /* CRPC_CHANNEL_RECEIVE, _SEND, _CANCEL */
    uint8_t flags;  /* CRPC_CHANNEL_MORE */
    uint16_t zero;
    uint32_t tag;         /* RECEIVE, SEND: any number */
    crpc_channel channel; /* all opcodes */
    uint64_t user_data;   /* all opcodes: any number; the op's completion shows it */
    crpc_region region;   /* RECEIVE, SEND: contains the buffer; none: see crpc_cache_forget */
    uint64_t address;     /* RECEIVE, SEND: of the buffer; ignored if bytes is 0 */
    uint64_t bytes;       /* RECEIVE, SEND: length of the buffer, 0 to 2^30 */
    uint64_t timeout_ns;  /* SEND: how long it may wait for a receive; 0, CRPC_FOREVER: no limit */
    uint64_t token;       /* CANCEL: user_data of the sends */
} crpc_channel_op;

/* Accepts ops in order, and stops at the first op that it cannot accept. It accepts all ops of a
 * group or none of them. Every accepted op yields exactly one completion. Buffers stay the
 * caller's. Until an op completes, the caller must not touch the buffer of a RECEIVE, and must not
 * change the buffer of a SEND. The region of a RECEIVE needs CRPC_ACCESS_LOCAL_WRITE and
 * _REMOTE_WRITE. An op without a region may register memory, and then blocks while the system pins
 * the pages. Otherwise, accepting an op allocates no memory and makes no system call of its own.
 * Returns how many ops were accepted, 0 to count, and sets *reason (which may be NULL) to why it
 * stopped there: CRPC_OK (all were accepted), CRPC_E_AGAIN (all slots or sends are in use; a
 * CRPC_COMPLETION_ROOM follows), CRPC_E_TOO_BIG (more than 8 buffers, 2^30 bytes, or
 * crpc_rail_info.message_bytes_max), CRPC_E_STALE (channel or region), CRPC_E_INVALID (also: the
 * buffer is not within its region), CRPC_E_UNSUPPORTED (opcode; or the region is not registered
 * with every rail of the channel), CRPC_E_STATE (not connected yet), CRPC_E_CLOSING (also: the
 * peer receives no more), CRPC_E_DISCONNECTED, CRPC_E_MEMLOCK and the other errors of
 * crpc_region_register. Returns CRPC_E_INVALID if context or ops is NULL. */
CRPC_API int32_t crpc_channel_submit(crpc_context *context, const crpc_channel_op *ops,
                                     uint32_t count, int32_t *reason);

/* How the sender splits large buffers over two rails, and in which turn shorter ones use them: so that
 * each rail gets its share of the bytes. */
#define CRPC_SPLIT_MEASURED 0u /* by the measured speed of each rail, at first by link speed */
#define CRPC_SPLIT_FIXED 1u    /* by rail0_share, until crpc_channel_set_share changes it */
/* By a share that another program writes to shared memory: with crpc_hint_publish, or by itself;
 * docs/wire.md, "Hint", has its format. While the hint is missing, malformed or too old, this works like
 * CRPC_SPLIT_MEASURED. The library looks for shared memory of that name again every keepalive_ns. */
#define CRPC_SPLIT_HINT 2u

typedef struct crpc_channel_options {
    uint32_t struct_size;
    uint32_t flags;     /* must be 0 */
    uint64_t user_data; /* any number; completions show it */
    /* How many messages to be received may be open: 1 to 256, rounded up to a power of two; 0 = 64.
     * The channel uses the smaller number of both sides. */
    uint32_t slots;
    uint32_t sends_max; /* SEND ops that may be open, 8 to 65536; 0 = 256 */
    /* Queue pairs of each rail, 1 to 8; 0 = 1. The channel uses the smaller number of both
     * sides. */
    uint32_t queue_pairs;
    uint32_t split;              /* CRPC_SPLIT_* */
    uint32_t rail0_share;        /* CRPC_SPLIT_FIXED: what rail 0 carries, in 1/1024 */
    uint32_t stripe_bytes_min;   /* shorter buffers use one rail each; 0 = 65536 */
    uint32_t rails;              /* bit 1 << n selects rail n; must include rail 0; 0 = all */
    uint32_t token_bytes;        /* length of `token`, 0 to 16 */
    uint8_t token[16];           /* connect, blob: the peer's crpc_channel_info shows it */
    char hint[64];               /* CRPC_SPLIT_HINT: name of POSIX shared memory, "/name" */
    uint64_t connect_timeout_ns; /* 0 = 5 s; CRPC_FOREVER: no limit */
    /* If ops are open and nothing has completed for this long, the library probes the rails; if none
     * are, after ten times as long. A rail on which the peer does not answer is lost. 0 = 1 s;
     * CRPC_FOREVER: never.
     * A rail on which nothing completes for 20 times as long, though something should, is lost. */
    uint64_t keepalive_ns;
    /* Pause before the first attempt to use a lost rail again. After failed attempts the pauses
     * grow, up to 16 times this. 0 = 200 ms; CRPC_FOREVER: no attempts. Only the connecting side's
     * value is used. */
    uint64_t rail_retry_ns;
    /* The transport resends an unacknowledged packet after 4.096 us * 2^retry_timeout (the
     * "Local ACK Timeout" of the InfiniBand specification): 1 to 31; 0 = that of the context, or 17 (537 ms): a rail
     * survives that a fabric finds new routes, which takes two seconds. docs/design.md, section 12, says more. */
    uint32_t retry_timeout;
    /* How often it resends before the connection is lost: 1 to 7; 0 = that of the context, or 6. Soft-RoCE resends for ever
     * if this is 7. */
    uint32_t retry_count;
    uint32_t key_bytes; /* length of `key`: 0 = none, or 16 to 64 */
    uint8_t key[64];    /* as in crpc_endpoint_options */
    uint32_t reserved;
} crpc_channel_options;

/* Starts to connect a channel to a listener with CRPC_LISTENER_CHANNELS. `address` is an address of
 * the peer's rail 0. The sides exchange the addresses of their other rails themselves. A rail that
 * one side lacks or cannot reach is left out, and crpc_channel_info shows it. `options` may be
 * NULL. The new handle belongs to the caller until crpc_channel_close. Returns, and completes,
 * as crpc_endpoint_connect; CRPC_E_STATE if the context has no rails. */
CRPC_API int32_t crpc_channel_connect(crpc_context *context, const char *address,
                                      const crpc_channel_options *options, crpc_channel *channel,
                                      crpc_error *error);

/* Accepts or rejects a channel, as crpc_endpoint_accept and crpc_endpoint_reject do, and returns
 * the same. */
CRPC_API int32_t crpc_channel_accept(crpc_context *context, crpc_channel channel,
                                     const crpc_channel_options *options, crpc_error *error);
CRPC_API int32_t crpc_channel_reject(crpc_context *context, crpc_channel channel, uint32_t reason);

/* Hands the channel of a connect request over to another context, as crpc_endpoint_hand_over, and returns the same;
 * CRPC_E_STATE also if `to` has no rails. Its rail 0 is at the same port. A request for which `to` has no room (channels_max)
 * is refused by its next poll, without a completion: the log and the peer are told. */
CRPC_API int32_t crpc_channel_hand_over(crpc_context *context, crpc_channel channel,
                                        crpc_context *to, uint64_t user_data, crpc_error *error);

/* Creates and connects a channel by blobs, as crpc_endpoint_blob and crpc_endpoint_join do, and
 * returns the same. There are three differences: CRPC_COMPLETION_CONNECTED follows only after the
 * other side has joined, too; its status may be an error; and without rails, crpc_channel_blob
 * returns CRPC_E_STATE. */
CRPC_API int32_t crpc_channel_blob(crpc_context *context, const crpc_channel_options *options,
                                   crpc_channel *channel, void *blob, uint32_t *blob_bytes,
                                   crpc_error *error);
CRPC_API int32_t crpc_channel_join(crpc_context *context, crpc_channel channel, const void *blob,
                                   uint32_t blob_bytes, crpc_error *error);

/* Sets the share of rail 0 for all messages that are posted from now on, in 1/1024, 0 to 1024. The
 * channel's split becomes CRPC_SPLIT_FIXED. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_set_share(crpc_context *context, crpc_channel channel,
                                        uint32_t rail0_share);

/* Starts a graceful disconnect. The channel refuses new ops at once. Open sends finish as the peer
 * posts receives for them, and then the connection ends. Receives that are still open complete with
 * CRPC_E_DISCONNECTED. After timeout_ns (CRPC_FOREVER: no limit) the connection ends in any case,
 * with CRPC_E_TIMEOUT. A second call replaces the limit. The handle stays valid until
 * crpc_channel_close.
 * Returns CRPC_OK, and one CRPC_COMPLETION_DISCONNECTED follows; CRPC_E_STATE (not connected);
 * CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_disconnect(crpc_context *context, crpc_channel channel,
                                         uint64_t timeout_ns);

/* Ends the channel at once, and closes the handle. The next polls complete the open ops with
 * CRPC_E_CLOSED; there is no CRPC_COMPLETION_DISCONNECTED. When this returns, the peer can no
 * longer write to their buffers. Blocks while the system destroys QPs. Returns CRPC_OK;
 * CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_close(crpc_context *context, crpc_channel channel);

#define CRPC_RAIL_NONE 0u   /* the context has no such rail, or the options leave it out */
#define CRPC_RAIL_LACKED 1u /* this side has the rail, but the peer does not */
#define CRPC_RAIL_DOWN 2u   /* not in use now */
#define CRPC_RAIL_UP 3u     /* in use */

/* Describes a channel. */
typedef struct crpc_channel_info {
    uint32_t struct_size;
    uint32_t state; /* CRPC_STATE_* */
    uint64_t user_data;
    uint32_t slots;         /* agreed with the peer */
    uint32_t queue_pairs;   /* of each rail, agreed with the peer */
    uint32_t rail_state[2]; /* CRPC_RAIL_* */
    uint32_t split;         /* CRPC_SPLIT_* */
    uint32_t rail0_share;   /* in 1/1024, while both rails are up and no hint overrides it */
    uint32_t receives_open; /* RECEIVE ops not ended */
    uint32_t sends_open;    /* SEND ops not ended */
    uint32_t version;       /* of the wire protocol, as agreed with the peer */
    uint32_t token_bytes;
    uint8_t token[16];      /* as in crpc_endpoint_info */
    char peer_address[64];  /* as in crpc_endpoint_info */
    char local_address[64]; /* as in crpc_endpoint_info */
} crpc_channel_info;

/* Describes a channel. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_info(crpc_context *context, crpc_channel channel,
                                       crpc_channel_info *info);

/* Counters of a channel since it was created. Arrays have one entry for each rail. */
typedef struct crpc_channel_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t messages_sent;         /* acknowledged by the peer's device */
    uint64_t messages_received;     /* complete */
    uint64_t bytes_sent;            /* payload of messages_sent */
    uint64_t bytes_received;        /* payload of messages_received */
    uint64_t sends_failed;          /* SEND ops that ended with an error */
    uint64_t receives_failed;       /* RECEIVE ops that ended with an error */
    uint64_t truncated;             /* ops of both kinds that ended with CRPC_E_TRUNCATED */
    uint64_t rail_bytes_sent[2];    /* payload posted, including what was sent again */
    uint64_t rail_messages_sent[2]; /* messages posted with a part on this rail */
    /* Bytes that the receive completions of each rail report. Exact for single-buffer messages of
     * one WQE per rail that were not truncated. Otherwise only the last WQE of a rail counts, which
     * may be a 64-byte record of sizes. bytes_received counts their payload in full. */
    uint64_t rail_bytes_received[2];
    uint64_t rail_failures[2];   /* times that a rail in use was lost */
    uint64_t rail_recoveries[2]; /* times that a lost rail came back into use */
    uint64_t shares_repeated;    /* parts of messages that were sent again for a lost rail */
    uint64_t data_wqes;          /* for payload, records and immediates of messages */
    uint64_t clear_to_send_wqes; /* for telling the peer where its messages may be written */
    uint64_t control_wqes;       /* for everything else */
    uint64_t doorbells;
    uint64_t protocol_errors; /* 1 if the peer violated the protocol */
} crpc_channel_stats;

/* Reads the counters of a channel. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_stats(crpc_context *context, crpc_channel channel,
                                        crpc_channel_stats *stats);

/* Tells why a channel could not connect or was disconnected. error->status is CRPC_OK if neither
 * has happened. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_channel_get_error(crpc_context *context, crpc_channel channel,
                                        crpc_error *error);

/* ---- Hints: what one program tells the channels of others --------------------------------------- */

/* A program that knows more than a sender can measure, for example what else a NIC has to carry, can tell the channels
 * of this machine how to split: those with CRPC_SPLIT_HINT and this name. It needs no context, and no RDMA device.
 * examples/python/hint_agent.py is such a program. */
typedef struct crpc_hint crpc_hint;

/* Opens the hint of this name ("/name", POSIX shared memory of at most 63 bytes), or makes it, so that all users of this
 * machine may read it. There is one writer at a time. What a writer before has published is withdrawn. The hint belongs to
 * the caller until crpc_hint_close. One thread at a time uses it. Does not block. Returns CRPC_OK and sets *hint;
 * CRPC_E_INVALID, CRPC_E_BUSY (another one has it open for writing), CRPC_E_SYSTEM (among others, it belongs
 * to another user), CRPC_E_NO_MEMORY. */
CRPC_API int32_t crpc_hint_open(const char *name, crpc_hint **hint, crpc_error *error);

/* Tells channels what rail 0 should carry of each message, in 1/1024, 0 to 1024. It holds for lifetime_ns at the most, 1 to
 * 60000000000 (a minute); 0 = 1 s. So a writer publishes again before that, and nobody follows one that has died.
 * A channel reads the hint for each message. Makes no system call. Returns CRPC_OK; CRPC_E_INVALID. */
CRPC_API int32_t crpc_hint_publish(crpc_hint *hint, uint32_t rail0_share, uint64_t lifetime_ns);

/* Withdraws the hint, and closes it. NULL is allowed. The shared memory stays, empty, for the next writer: channels have it
 * open. Returns CRPC_OK. */
CRPC_API int32_t crpc_hint_close(crpc_hint *hint);

/* ---- Lanes: one-sided ops of endpoints -------------------------------------------------------- */

/* Endpoints that have the flag CRPC_ENDPOINT_LANE on both sides have a lane: a second connection, over
 * which each side reads, writes and changes memory that the other has granted, without its program taking
 * part. Calls go beside it: a long WRITE holds none up. The lane is there some time after
 * CRPC_COMPLETION_CONNECTED: until then its ops get CRPC_E_AGAIN, and CRPC_COMPLETION_ROOM follows. It may
 * fail, as when the peer's device refuses an op. Its ops then complete with errors, and all grants of both
 * sides end, while calls go on. When the completions have been polled, the lane is made again: until then,
 * ops get CRPC_E_AGAIN as before. docs/lanes.md.
 *
 * A grant lets the peer of one endpoint, and nobody else, use part of a region. It needs a device with memory
 * windows of type 2B. It ends when it is revoked, and with the lane. */

/* Writes memory of this side to memory of the peer. The peer is not told. */
#define CRPC_LANE_WRITE 1u
/* Reads memory of the peer into memory of this side. What WRITEs before it have written is there. */
#define CRPC_LANE_READ 2u
/* Replaces 8 bytes of the peer's memory by `operand` if they are equal to `compare`. The completion's token
 * is what was there before. */
#define CRPC_LANE_COMPARE_SWAP 3u
/* Adds `operand` to 8 bytes of the peer's memory. The completion's token is what was there before. */
#define CRPC_LANE_FETCH_ADD 4u
/* Lets the peer use memory of this side. The completion's token is the bits of a crpc_grant, of which
 * crpc_grant_get gives the bytes that the peer needs. Accepting it may allocate memory and make a system
 * call. The region cannot be deregistered (CRPC_E_BUSY) until the grant has ended. */
#define CRPC_LANE_GRANT 5u
/* Ends a grant of this side, and its handle at once. The peer's library is asked first: it accepts no more
 * ops for the grant, and answers when those under way have completed. When the REVOKE completes, nothing of
 * the peer reaches the memory any more, whatever its program does. */
#define CRPC_LANE_REVOKE 6u

/* Flag of WRITE, READ, COMPARE_SWAP and FETCH_ADD: the op begins when all READs and atomics before it have
 * ended. Without it, a later op may overtake them. */
#define CRPC_LANE_FENCE 0x1u
/* Flag of WRITE: the payload is copied before crpc_lane_submit returns, and its memory needs no region. It has
 * at most inline_bytes_max of crpc_context_info. */
#define CRPC_LANE_INLINE 0x2u
/* Flag of WRITE and READ: the memory of this side lies in several places. `address` is the index of the first
 * crpc_piece, and `bytes` is how many there are, 1 to CRPC_LANE_PIECES_MAX. */
#define CRPC_LANE_PIECES 0x4u

/* Few devices take less. */
#define CRPC_LANE_PIECES_MAX 8

/* One op. Its size will always be 64 bytes. Members that the opcode does not use must be zero. */
typedef struct crpc_lane_op {
    uint8_t opcode;  /* CRPC_LANE_WRITE and so on */
    uint8_t flags;   /* CRPC_LANE_FENCE, _INLINE, _PIECES */
    uint16_t access; /* GRANT: CRPC_ACCESS_REMOTE_*, one or several */
    /* WRITE, READ: 0 to 2^30, or the port's limit, with all pieces. GRANT: 1 to 2^31. */
    uint32_t bytes;
    uint64_t user_data; /* all opcodes: any number; the op's completion shows it */
    /* WRITE, READ, GRANT: contains the memory of this side; none if bytes is 0, and with INLINE and PIECES. Those
     * of READs, and of grants for more than reading, need CRPC_ACCESS_LOCAL_WRITE. No REMOTE right is needed:
     * leave them off. */
    crpc_region region;
    uint64_t address; /* WRITE, READ, GRANT: of the memory of this side */
    crpc_grant grant; /* all but GRANT: one of the peer, of crpc_grant_open; REVOKE: of this side */
    uint64_t offset;  /* WRITE, READ, atomics: from the start of the grant */
    uint64_t compare; /* COMPARE_SWAP */
    uint64_t
        operand; /* COMPARE_SWAP: the new value. FETCH_ADD: what is added. REVOKE: for how long the
                         * peer may take to answer, in ns; 0 = no limit. After it, the grant ends all the
                         * same, and with it the lane if the peer still uses it */
} crpc_lane_op;

/* One place of a payload with the flag CRPC_LANE_PIECES or CRPC_QUEUE_PIECES. */
typedef struct crpc_piece {
    crpc_region region; /* contains it; none if the payload is inline, or bytes is 0 */
    uint64_t address;
    uint32_t bytes; /* may be 0 */
    uint32_t zero;
} crpc_piece;

/* Accepts ops in order, and stops at the first op that it cannot accept. All are of one endpoint. `pieces` are
 * those of the ops with CRPC_LANE_PIECES, and may be NULL if piece_count is 0. The library copies both arrays,
 * so the caller may reuse them at once. Every accepted op yields exactly one
 * CRPC_COMPLETION_WORK, and those of one endpoint complete in order, but for REVOKEs. Buffers stay the
 * caller's: until its op completes, the caller must not change one that is written from, nor touch one that
 * is read into.
 * Statuses of completions: CRPC_OK, CRPC_E_ACCESS (the peer's device refused it: the grant is not what it
 * seemed), CRPC_E_FLUSHED (the lane failed before; the op may have been done), CRPC_E_DEVICE,
 * CRPC_E_DISCONNECTED, CRPC_E_PROTOCOL, CRPC_E_CLOSED (the op may have been done). A REVOKE completes with
 * CRPC_OK in any case: the right has ended.
 * Returns how many ops were accepted, 0 to count, and sets *reason (which may be NULL) to why it stopped
 * there: CRPC_OK (all were accepted), CRPC_E_AGAIN (there is no room, or no lane yet; a
 * CRPC_COMPLETION_ROOM follows), CRPC_E_TOO_BIG (longer than the port allows, than 2^31, or than
 * inline_bytes_max; more pieces than the device takes), CRPC_E_STALE
 * (endpoint or region; a grant that was closed or revoked, or whose lane has ended), CRPC_E_INVALID (also:
 * the memory is not within its region or grant, an atomic not at a multiple of 8; a right is lacking; the
 * grant is of another endpoint, or of the wrong side), CRPC_E_UNSUPPORTED (opcode; the endpoint or its peer
 * has no lane; the device has no atomics or no windows), CRPC_E_STATE (not connected yet), CRPC_E_CLOSING,
 * CRPC_E_DISCONNECTED, CRPC_E_NO_RESOURCE (the lane has 1024 grants of this side), CRPC_E_NO_MEMORY.
 * Returns CRPC_E_INVALID if context is NULL, or an array is NULL and its count is not 0. */
CRPC_API int32_t crpc_lane_submit(crpc_context *context, crpc_endpoint endpoint,
                                  const crpc_lane_op *ops, uint32_t count, const crpc_piece *pieces,
                                  uint32_t piece_count, int32_t *reason);

/* Length of the bytes of a grant. */
#define CRPC_GRANT_BYTES 48

/* Writes the CRPC_GRANT_BYTES of a grant of this side to `bytes`. The application carries them to the
 * endpoint's peer, in any payload. They are of no use to anybody else. docs/wire.md, "Lanes".
 * Returns CRPC_OK; CRPC_E_STATE (it is the peer's grant); CRPC_E_STALE (also: revoked, or the lane has
 * ended); CRPC_E_INVALID. */
CRPC_API int32_t crpc_grant_get(crpc_context *context, crpc_grant grant, void *bytes);

/* Makes a handle of the bytes of a grant, which the peer of `endpoint` has given. They may come from anybody:
 * what they name is only reached over this endpoint's lane, and only if its peer has granted it. The new
 * handle belongs to the caller until crpc_grant_close.
 * Returns CRPC_OK and sets *grant; CRPC_E_PROTOCOL (cut or damaged), CRPC_E_STALE (endpoint; or the grant is
 * of another connection, or revoked), CRPC_E_INVALID, CRPC_E_NO_MEMORY; CRPC_E_AGAIN, CRPC_E_UNSUPPORTED,
 * CRPC_E_STATE, CRPC_E_CLOSING and CRPC_E_DISCONNECTED as crpc_lane_submit. */
CRPC_API int32_t crpc_grant_open(crpc_context *context, crpc_endpoint endpoint, const void *bytes,
                                 uint32_t byte_count, crpc_grant *grant, crpc_error *error);

/* Closes the handle of a peer's grant. Ops that were accepted are not concerned. A handle that is not closed
 * ends with its endpoint. Returns CRPC_OK; CRPC_E_STATE (it is a grant of this side: CRPC_LANE_REVOKE ends
 * it); CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_grant_close(crpc_context *context, crpc_grant grant);

/* Describes a grant. */
typedef struct crpc_grant_info {
    uint32_t struct_size;
    uint32_t access;        /* CRPC_ACCESS_REMOTE_* */
    crpc_endpoint endpoint; /* over whose lane it is */
    uint64_t bytes;         /* how much memory */
    uint32_t of_peer;       /* 1: the peer has given it; 0: this side */
    uint32_t over;          /* 1: the peer has revoked it, or the lane has ended */
} crpc_grant_info;

/* Describes a grant of either side. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_grant_get_info(crpc_context *context, crpc_grant grant,
                                     crpc_grant_info *info);

/* ---- Queues: the NIC's own, with user data for each op ---------------------------------------- */

/* A queue belongs to the application: what it posts is what the device does. The peer is any program
 * with a queue that fits (of a DCI, a DCT; otherwise of the same transport): another of this library, or one
 * that uses verbs and librdmacm. There is no protocol of ours in between, no keepalive, and no flow control.
 *
 * Of each op, the library gives back the user_data, whatever the order in which the device completes
 * them. docs/queues.md has a program of each kind. */

#define CRPC_QUEUE_KIND_RC 1u  /* a reliable connection: sends, and receives unless it has an SRQ */
#define CRPC_QUEUE_KIND_SRQ 2u /* receives that the RC, UD and DCT queues which name it share */
/* Datagrams, which may be lost, and come in any order. Each op that sends goes to a target of its own:
 * crpc_target_open. Whoever knows the queue's key can send to it. In a receive, each message lies behind 40
 * bytes of header. A datagram is lost, and nobody told, if there is no receive. One that is longer than
 * its receive ends the queue on some devices: give each receive CRPC_QUEUE_HEADER_BYTES and
 * message_bytes_max, and none is. */
#define CRPC_QUEUE_KIND_UD 3u
#define CRPC_QUEUE_HEADER_BYTES 40
/* The two ends of the dynamically connected transport (DC), of mlx5 devices alone. It is reliable, as a
 * connection, and each op goes to a target of its own: the device connects by itself. A DCI sends. A DCT
 * takes what DCIs send that know its number and its access_key: WRITEs, READs and atomics as far as regions
 * allow, and messages into the receives of an SRQ.
 * With `streams`, a DCI has as many queues in one. An op says which it is of. Ops of a stream begin in the
 * order in which they were submitted, as those of an RC queue do; those of different streams are not ordered;
 * and completions come in any order, also those of one stream. Ops of one target should be of one stream.
 * When an op fails, so does its stream, and what else is submitted to it completes with CRPC_E_FLUSHED, until
 * crpc_queue_reset_stream. Other streams go on. */
#define CRPC_QUEUE_KIND_DCI 4u
#define CRPC_QUEUE_KIND_DCT 5u
/* An SRQ for RC queues that matches tags (TM-SRQ), on devices that do so. Beside ordinary receives it has
 * buffers with a tag and a mask (TAG_ADD). A message that begins with a header of CRPC_TAG_HEADER_BYTES
 * (crpc_tag_header_write), whose tag is equal to that of a buffer where the mask has ones, goes to the oldest such
 * buffer, without its header. All other messages go to ordinary receives, as they are. The sender needs nothing but an
 * RC queue.
 * Order: a message that nothing has matched may lie in a receive, and nobody has looked at it, when the program adds a
 * buffer that it matches. So that no later message gets this buffer, buffers match nothing from then on
 * until the program says by TAG_SYNC that it has looked. It is to be said at the latest after 16,383 such messages.
 * The sender of a rendezvous request (CRPC_TAG_RENDEZVOUS) gets no answer from the device: the request lies in the
 * buffer that it matches, and the program READs what it names, and answers.
 * If the device fails a TAG_*, that and those behind it complete with CRPC_E_FLUSHED, and the TM-SRQ takes neither
 * these nor receives any more (CRPC_E_DISCONNECTED). What it has goes on, until it is closed. */
#define CRPC_QUEUE_KIND_TM_SRQ 6u
#define CRPC_TAG_HEADER_BYTES 16

#define CRPC_QUEUE_DEPTH_MAX 8192
#define CRPC_QUEUE_PIECES_MAX 16
#define CRPC_QUEUE_INLINE_BYTES_MAX 512
#define CRPC_QUEUE_PRIVATE_BYTES_MAX 196
/* Longest array of pieces for one crpc_queue_submit. */
#define CRPC_QUEUE_SUBMIT_PIECES_MAX 4096

/* Sends a message, which takes a receive of the peer. This and SEND_IMMEDIATE are all that UD queues send. DCIs
 * send all but SEND_INVALIDATE. */
#define CRPC_QUEUE_SEND 1u
/* The same with a number of 32 bits, which the completion of the receive shows. */
#define CRPC_QUEUE_SEND_IMMEDIATE 2u
/* Sends a message, and ends the right that the peer has given by a remote key: of a memory window, or
 * of a region that can be invalidated. The peer's regions of this library cannot: then the op ends with
 * an error. Soft-RoCE invalidates any region whose key the peer knows. */
#define CRPC_QUEUE_SEND_INVALIDATE 3u
/* Writes to the peer's memory. The peer is not told. */
#define CRPC_QUEUE_WRITE 4u
/* The same, and then takes a receive of the peer, whose buffer is not used. Its completion shows the
 * immediate. */
#define CRPC_QUEUE_WRITE_IMMEDIATE 5u
/* Reads the peer's memory. */
#define CRPC_QUEUE_READ 6u
/* Replaces 8 bytes of the peer's memory by `operand` if they are equal to `address`. The completion's
 * token is what was there before. */
#define CRPC_QUEUE_COMPARE_SWAP 7u
/* Adds `operand` to 8 bytes of the peer's memory. The completion's token is what was there before. */
#define CRPC_QUEUE_FETCH_ADD 8u
/* Does nothing, and completes after the ops before it. */
#define CRPC_QUEUE_NOP 9u
/* Gives memory for one message of the peer. */
#define CRPC_QUEUE_RECEIVE 10u
/* Of a TM-SRQ: gives memory for one message with a tag. It completes when that message has come, or with
 * CRPC_E_CANCELED when it was taken back. With CRPC_E_FLUSHED, a message has matched and could not be brought: it was
 * longer than the memory, or its queue has failed; that queue's events tell which. Empty memory takes
 * messages of a header alone. */
#define CRPC_QUEUE_TAG_ADD 11u
/* Takes back the TAG_ADD with the user_data `operand`: the oldest, if there are several. It completes with CRPC_OK,
 * and the TAG_ADD with CRPC_E_CANCELED before it; or with CRPC_E_NOT_FOUND, if a message has matched or there is none.
 * Looks through all tags of the queue. */
#define CRPC_QUEUE_TAG_REMOVE 12u
/* Says that the program has looked at all messages that crpc_poll has given with CRPC_COMPLETION_SYNC. */
#define CRPC_QUEUE_TAG_SYNC 13u

/* Flags of ops. */
/* Asks for a completion: of a sparse queue the only ops that complete with success. Others need it
 * for nothing: each of their ops completes. */
#define CRPC_QUEUE_SIGNAL 0x1u
/* The op begins when all READs and atomics before it have ended. Without it, a later op may overtake
 * them. All but RECEIVE and TAG_*, and of UD queues none. With streams: those of its own stream. */
#define CRPC_QUEUE_FENCE 0x2u
/* Wakes a peer that waits for solicited messages only. SEND*, WRITE_IMMEDIATE. */
#define CRPC_QUEUE_SOLICITED 0x4u
/* The payload is copied before crpc_queue_submit returns, and its memory needs no region. SEND*,
 * WRITE*, up to inline_bytes of the queue. */
#define CRPC_QUEUE_INLINE 0x8u
/* The payload lies in several places: `address` is the index of the first crpc_piece, and `bytes` is
 * how many there are, 1 to send_pieces or receive_pieces of the queue. All with a payload, but TAG_ADD. */
#define CRPC_QUEUE_PIECES 0x10u

/* One op. Its size will always be 64 bytes. Members that the opcode does not use must be zero. */
typedef struct crpc_queue_op {
    uint8_t opcode;  /* CRPC_QUEUE_SEND and so on */
    uint8_t flags;   /* CRPC_QUEUE_SIGNAL and so on */
    uint16_t stream; /* DCI: below the queue's `streams`; 0 if it has none. Other queues: 0 */
    /* *_IMMEDIATE: any number, in host byte order. SEND_INVALIDATE: the peer's remote key. */
    uint32_t immediate;
    uint64_t user_data; /* all opcodes: any number; the op's completion shows it */
    /* All with a payload: contains it. None if the payload is inline, in pieces, or empty. */
    crpc_region region;
    uint64_t address;    /* of the payload. COMPARE_SWAP: what is compared */
    uint32_t bytes;      /* length of the payload, 0 to message_bytes_max of the queue */
    uint32_t remote_key; /* WRITE*, READ, COMPARE_SWAP, FETCH_ADD: crpc_region_info of the peer */
    /* The same: an address in the peer's region. COMPARE_SWAP, FETCH_ADD: a multiple of 8. TAG_ADD: the tag,
     * with ones only where the mask has them. */
    uint64_t remote_address;
    /* COMPARE_SWAP: the new value. FETCH_ADD: what is added. TAG_ADD: the mask. TAG_REMOVE: user_data of the
     * TAG_ADD. */
    uint64_t operand;
    crpc_target target; /* all that UD queues and DCIs send: where it goes. Other queues: none */
} crpc_queue_op;

/* Accepts ops in order, and stops at the first op that it cannot accept. All are of one queue. `pieces`
 * may be NULL if piece_count is 0. The library copies `pieces`, so the caller may reuse both arrays at
 * once. Every accepted op yields exactly one CRPC_COMPLETION_WORK; of a sparse queue those with
 * CRPC_QUEUE_SIGNAL, and those that fail. Buffers stay the caller's: until its op completes (of a
 * sparse queue: it or a later one), the caller must not change one that is sent, unless it is inline,
 * nor touch one that is filled. READ, RECEIVE and TAG_ADD need regions with CRPC_ACCESS_LOCAL_WRITE.
 * Receives may be submitted as soon as there is a queue; the rest when it is connected. Accepting an op
 * allocates no memory, makes no system call, and tells the device once for all of them; the verbs driver tells it of
 * each TAG_* alone.
 * Returns how many ops were accepted, 0 to count, and sets *reason (which may be NULL) to why it
 * stopped there: CRPC_OK (all were accepted), CRPC_E_AGAIN (there is no room; a CRPC_COMPLETION_ROOM
 * follows), CRPC_E_TOO_BIG (longer than message_bytes_max; more pieces, or more inline bytes, than
 * the queue allows), CRPC_E_STALE (queue, region or target), CRPC_E_INVALID (also: the payload is not within
 * its region, or the region lacks a right; an op of a UD queue or DCI has no target, or one of the other kind,
 * or another's has one; the queue has not this stream), CRPC_E_UNSUPPORTED (opcode: unknown, or not of this
 * kind of queue or of this device), CRPC_E_STATE (not connected yet), CRPC_E_CLOSING,
 * CRPC_E_DISCONNECTED. Returns CRPC_E_INVALID if context is NULL, if ops is NULL and count is not 0,
 * if pieces is NULL and piece_count is not 0, or if piece_count is above
 * CRPC_QUEUE_SUBMIT_PIECES_MAX. */
CRPC_API int32_t crpc_queue_submit(crpc_context *context, crpc_queue queue,
                                   const crpc_queue_op *ops, uint32_t count,
                                   const crpc_piece *pieces, uint32_t piece_count, int32_t *reason);

/* Flag: only ops with CRPC_QUEUE_SIGNAL complete, and those that fail. */
#define CRPC_QUEUE_SPARSE 0x1u
/* Flag of RC queues: the first packet has the sequence number 0, not a random one, for peers that expect that
 * and are not told the number, as UCX. Where rdma_cm connects, it agrees on the number with the peer, and the flag
 * changes nothing. Random numbers keep out packets of an earlier connection, and of others that guess. */
#define CRPC_QUEUE_SEQUENCE_ZERO 0x2u

typedef struct crpc_queue_options {
    uint32_t struct_size;
    uint32_t flags;     /* CRPC_QUEUE_SPARSE, CRPC_QUEUE_SEQUENCE_ZERO */
    uint64_t user_data; /* any number; completions show it */
    uint32_t kind;      /* CRPC_QUEUE_KIND_*; 0 = RC */
    /* Ops that send, of the longest kind, for which there is room at least: 1 to 8192; 0 = 256. With the
     * defaults of send_pieces and inline_bytes all 8192 fit. With more fewer may fit: then the text of the
     * error says how many, or all that was asked for. SRQ, DCT, TM_SRQ: 0. */
    uint32_t sends;
    /* Pieces that the payload of an op may have, 1 to 16; 0 = 1. More take room. SRQ, DCT, TM_SRQ: 0. */
    uint32_t send_pieces;
    /* Longest inline payload, 1 to 512; 0 = 60. More take room. SRQ, DCT, TM_SRQ: 0. */
    uint32_t inline_bytes;
    /* RECEIVE ops for which there is room at least: 1 to 8192; 0 = none. With receive_queue 0; SRQ, TM_SRQ:
     * not 0; DCI, DCT: 0. */
    uint32_t receives;
    uint32_t receive_pieces; /* pieces that a receive may have, 1 to 16; 0 = 1 */
    /* RC, UD: the SRQ that has its receives; none = its own. DCT: the same, and it needs one. RC: it may be a
     * TM-SRQ. The SRQ cannot be closed before this queue. DCI: none. */
    crpc_queue receive_queue;
    /* This member and those down to private_data are of RC; others: 0. But a DCI, too, has retry_timeout,
     * retry_count, not_ready_retry_count and reads_max, for each of its connections. */
    uint64_t connect_timeout_ns; /* 0 = 5 s; CRPC_FOREVER: no limit */
    /* The transport resends an unacknowledged packet after 4.096 us * 2^retry_timeout (the
     * "Local ACK Timeout" of the InfiniBand specification): 1 to 31; 0 = that of the context, or 14 (67 ms). */
    uint32_t retry_timeout;
    /* How often it resends before the connection is lost: 1 to 7; 0 = that of the context, or 6. Soft-RoCE resends for ever
     * if this is 7. */
    uint32_t retry_count;
    /* How often it sends again to a peer that has no receive, before the queue fails with
     * CRPC_E_NOT_READY: 1 to 7; 0 = no limit, nor has 7. */
    uint32_t not_ready_retry_count;
    /* READs and atomics that may be under way at once, in each direction, 1 to 16; 0 = as many as the
     * devices can. Others wait in the send queue. */
    uint32_t reads_max;
    /* What rdma_cm carries to the peer: connect up to 56 bytes, accept up to 196; blob: 0. The network
     * may add zeros. */
    uint32_t private_bytes;
    uint8_t private_data[196];
    /* UD: who sends to the queue must know it. Up to 0x7fffffff; 0 = CRPC_QUEUE_KEY_DEFAULT. Others: 0. */
    uint32_t queue_key;
    uint32_t streams; /* DCI: 1 to 65535, as far as the device has them; 0 = none. Others: 0 */
    /* DCI with streams: while so many have failed, 1 to `streams`, the others go on; if one more fails, the
     * queue does. 0 = all. The library raises it to one less than a power of two. A device can have a lower
     * limit; with the limit 0, any error fails the queue. Others: 0. */
    uint32_t stream_failures_max;
    /* TM_SRQ: TAG_ADDs that may be open at once, as far as the device has them; 0 = 127, or as many as it has.
     * What has completed makes room when the device has told all of it. Others: 0. */
    uint32_t tags;
    uint64_t access_key; /* DCT: who sends to it must know it. Any number. Others: 0 */
} crpc_queue_options;

/* The key that perftest and the examples of libibverbs use. */
#define CRPC_QUEUE_KEY_DEFAULT 0x11111111u

/* Makes a queue that has no peer: an SRQ, or of kind UD, DCI, DCT or TM_SRQ. It can be used at once. The end that comes
 * by itself is the loss of the device: open ops then complete with CRPC_E_NO_DEVICE, and so does
 * CRPC_COMPLETION_DISCONNECTED. A UD queue or DCI also ends when one of its ops fails: others complete with
 * CRPC_E_FLUSHED, and then comes CRPC_COMPLETION_DISCONNECTED. With streams, a DCI ends when too many of them
 * have failed. What is sent to a DCT does not end it. The new handle belongs to the caller until
 * crpc_queue_close.
 * Returns CRPC_OK and sets *queue; CRPC_E_INVALID (also: a queue of kind RC, which needs
 * crpc_queue_connect, _accept or _blob), CRPC_E_UNSUPPORTED (kind; or this driver has no queues, or
 * this device no DC, no tags, or not as many streams), CRPC_E_STALE (receive_queue), CRPC_E_STATE (no queues),
 * CRPC_E_NO_RESOURCE, CRPC_E_MEMLOCK, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_queue_open(crpc_context *context, const crpc_queue_options *options,
                                 crpc_queue *queue, crpc_error *error);

/* Starts to connect an RC queue to `address`, as crpc_endpoint_connect. There listens a program with
 * CRPC_LISTENER_QUEUES, or any other that accepts reliable connections by rdma_cm (port space TCP).
 * Receives may be submitted before CRPC_COMPLETION_CONNECTED. `options` may be NULL. The new handle
 * belongs to the caller until crpc_queue_close, also if the connection fails.
 * Returns, and completes, as crpc_endpoint_connect; CRPC_E_STATE (no queues); CRPC_E_STALE
 * (receive_queue); CRPC_E_UNSUPPORTED (kind; or this driver has no queues). */
CRPC_API int32_t crpc_queue_connect(crpc_context *context, const char *address,
                                    const crpc_queue_options *options, crpc_queue *queue,
                                    crpc_error *error);

/* Accepts a queue, as crpc_endpoint_accept does, and returns the same; CRPC_E_STALE also for
 * receive_queue. crpc_queue_get_info shows the peer's address and private data. Receives that the peer
 * needs at once may be submitted before CRPC_COMPLETION_CONNECTED. */
CRPC_API int32_t crpc_queue_accept(crpc_context *context, crpc_queue queue,
                                   const crpc_queue_options *options, crpc_error *error);

/* Rejects the queue of a CRPC_COMPLETION_CONNECT_REQUEST, and closes its handle. The peer's connect ends
 * with CRPC_E_REFUSED, and it gets private_bytes of `private_data`, 0 to 148, which may be NULL if it
 * is 0. Returns CRPC_OK; CRPC_E_STATE (there is no request: it was accepted, or is none);
 * CRPC_E_TOO_BIG; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_reject(crpc_context *context, crpc_queue queue,
                                   const void *private_data, uint32_t private_bytes);

/* Hands the queue of a connect request over to another context, as crpc_endpoint_hand_over, and returns the same;
 * CRPC_E_STATE also if `to` has no queues. */
CRPC_API int32_t crpc_queue_hand_over(crpc_context *context, crpc_queue queue, crpc_context *to,
                                      uint64_t user_data, crpc_error *error);

/* Makes and connects an RC queue by blobs, as crpc_endpoint_blob and crpc_endpoint_join do, and
 * returns the same; CRPC_E_STATE (no queues); CRPC_E_STALE (receive_queue). The peer is another queue
 * of this library. Receives may be submitted before the join. */
CRPC_API int32_t crpc_queue_blob(crpc_context *context, const crpc_queue_options *options,
                                 crpc_queue *queue, void *blob, uint32_t *blob_bytes,
                                 crpc_error *error);
CRPC_API int32_t crpc_queue_join(crpc_context *context, crpc_queue queue, const void *blob,
                                 uint32_t blob_bytes, crpc_error *error);

/* What a program without rdma_cm has to know of a queue pair to connect its own to it. */
typedef struct crpc_queue_address {
    uint32_t struct_size;
    uint32_t queue_pair_number;      /* 24 bits, not 0 */
    uint32_t packet_sequence_number; /* of the first packet that it sends: 24 bits */
    uint32_t link;                   /* CRPC_LINK_* */
    uint32_t mtu_bytes;              /* the longest payload of its packets: 256, 512 ... 4096 */
    uint32_t lid;                    /* InfiniBand, in its subnet: 16 bits */
    uint8_t gid[16];                 /* in network byte order */
    uint32_t flags;                  /* CRPC_GRH_REQUIRED, or 0 */
} crpc_queue_address;

/* Gives the address of an RC queue, for a peer that is told of it in some other way than a blob; or of a UD
 * queue or DCT, for targets. Returns CRPC_OK; CRPC_E_STATE (it has no queue pair, or no more; or an SRQ);
 * CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_get_address(crpc_context *context, crpc_queue queue,
                                        crpc_queue_address *address);

/* Connects a queue of crpc_queue_blob to the queue pair of any program, which connects its own to
 * the address that crpc_queue_get_address gives. Returns as crpc_queue_join; CRPC_E_PROTOCOL (no queue
 * pair can have this address). */
CRPC_API int32_t crpc_queue_join_address(crpc_context *context, crpc_queue queue,
                                         const crpc_queue_address *address, crpc_error *error);

/* What crpc_queue_modify changes: bits of crpc_queue_change.changes. */
#define CRPC_QUEUE_CHANGE_NOT_READY_WAIT 0x1u         /* RC */
#define CRPC_QUEUE_CHANGE_ACCESS 0x2u                 /* RC */
#define CRPC_QUEUE_CHANGE_RETRY_TIMEOUT 0x4u          /* RC */
#define CRPC_QUEUE_CHANGE_RETRY_COUNT 0x8u            /* RC */
#define CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT 0x10u /* RC */
#define CRPC_QUEUE_CHANGE_QUEUE_KEY 0x20u             /* UD */
#define CRPC_QUEUE_CHANGE_SRQ_LIMIT 0x40u             /* SRQ, TM-SRQ */

typedef struct crpc_queue_change {
    uint32_t struct_size;
    uint32_t changes; /* CRPC_QUEUE_CHANGE_*, one or several. Members without their bit must be 0 */
    /* How long the peer waits before it sends a message again for which there was no receive here: the
     * "RNR timer" of the InfiniBand specification (volume 1, 9.7.5.2.8). 1 to 491520000; 0 = 640000 (0.64
     * ms). Devices know 31 values from 10 us to 491.52 ms; the next longer one is taken. */
    uint64_t not_ready_wait_ns;
    /* CRPC_ACCESS_REMOTE_*: what the peer may do over this queue with regions that have the right, too.
     * At first all that the device can. What exceeds it ends the queue, on both sides. */
    uint32_t access;
    uint32_t retry_timeout;         /* as in crpc_queue_options, with the same default: this ... */
    uint32_t retry_count;           /* ... this ... */
    uint32_t not_ready_retry_count; /* ... and this */
    uint32_t queue_key;             /* as in crpc_queue_options */
    /* CRPC_COMPLETION_SRQ_LIMIT follows when a message takes a receive and leaves fewer than so many: 1 to
     * the SRQ's receives; 0 = none follows. What a TM-SRQ has matched with a tag takes none. It follows once;
     * whoever wants to hear of it again sets the limit again, after new receives. */
    uint32_t srq_limit;
} crpc_queue_change;

/* Changes a queue while it is in use. It is another queue in no other respect: ops and receives go on.
 * A queue of crpc_queue_blob can change in all respects before crpc_queue_join. When an RC queue is connected,
 * the device decides. By the InfiniBand specification, not_ready_wait_ns and access can change then; the
 * retries cannot, and the drivers of all devices known to us refuse that. A WRITE of the peer
 * that has begun before its right was taken away can still land when this has returned. Of an SRQ, one
 * CRPC_COMPLETION_SRQ_LIMIT of the limit before can come after a new one was set; none comes after 0 was set.
 * Of a DCI or a DCT nothing changes. Blocks while the system changes the queue.
 * Returns CRPC_OK; or one of these, and nothing has changed: CRPC_E_INVALID (also: a change that this kind of
 * queue does not have), CRPC_E_UNSUPPORTED (the device does not let it change; or `changes` has bits of a later
 * version), CRPC_E_STATE (it waits to be accepted, or is being connected), CRPC_E_DISCONNECTED (it has
 * ended), CRPC_E_STALE, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_queue_modify(crpc_context *context, crpc_queue queue,
                                   const crpc_queue_change *change, crpc_error *error);

/* Ends a queue at once, but keeps the handle. The next polls complete the open ops with
 * CRPC_E_FLUSHED, and then comes CRPC_COMPLETION_DISCONNECTED with CRPC_E_DISCONNECTED.
 * Returns CRPC_OK; CRPC_E_STATE (not connected, or it has failed before); CRPC_E_UNSUPPORTED (an
 * SRQ); CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_fail(crpc_context *context, crpc_queue queue);

/* Starts a graceful disconnect of an RC queue, or the end of a UD queue, DCI or DCT. It refuses new ops that send
 * at once. When all have completed, the connection ends, and receives that are open complete with
 * CRPC_E_FLUSHED. After timeout_ns (CRPC_FOREVER: no limit) the connection ends in any case, with
 * CRPC_E_TIMEOUT. A second call replaces the limit. The handle stays valid until crpc_queue_close.
 * Returns CRPC_OK, and one CRPC_COMPLETION_DISCONNECTED follows; CRPC_E_STATE (not connected);
 * CRPC_E_UNSUPPORTED (an SRQ); CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_drain(crpc_context *context, crpc_queue queue, uint64_t timeout_ns);

/* Makes a stream of a DCI usable again, after one of its ops has failed. All ops that were submitted to it must
 * have completed; each of them does so by itself, with CRPC_E_FLUSHED. Blocks while the system asks the
 * device.
 * Returns CRPC_OK, also if the stream has not failed; CRPC_E_INVALID (the queue has not this stream);
 * CRPC_E_BUSY (ops of the stream are open), CRPC_E_STATE (the queue has ended), CRPC_E_UNSUPPORTED (it has no
 * streams), CRPC_E_STALE, CRPC_E_SYSTEM (see errno; the stream is as it was). */
CRPC_API int32_t crpc_queue_reset_stream(crpc_context *context, crpc_queue queue, uint32_t stream);

/* Ends a queue at once, and closes the handle. The next polls complete the open ops with
 * CRPC_E_CLOSED; there is no CRPC_COMPLETION_DISCONNECTED. When this returns, the device uses none of
 * their buffers; but a queue that is being joined (crpc_queue_join, _join_address), and an SRQ whose queue was closed
 * so, end when the system has done that: their buffers are in use until their ops complete. A connect
 * request is rejected, without private data. Blocks while the system destroys
 * a QP or SRQ. Returns CRPC_OK; CRPC_E_BUSY (an SRQ that queues use); CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_close(crpc_context *context, crpc_queue queue);

/* Describes a queue. */
typedef struct crpc_queue_info {
    uint32_t struct_size;
    /* CRPC_STATE_*; of an SRQ CONNECTED until the device is lost, of UD, DCI, DCT from the start */
    uint32_t state;
    uint64_t user_data;
    uint32_t kind;              /* CRPC_QUEUE_KIND_* */
    uint32_t queue_pair_number; /* 0 = no queue pair */
    uint32_t peer_number;       /* of the peer's queue pair; 0 = not connected */
    uint32_t sends;             /* in use, as crpc_queue_options has it: this and the next ones */
    uint32_t send_pieces;
    uint32_t inline_bytes;
    uint32_t receives;
    uint32_t receive_pieces;
    crpc_queue receive_queue;
    uint32_t sends_open;        /* places of the send queue in use: an op takes one or several */
    uint32_t receives_open;     /* RECEIVE ops that have not completed */
    uint32_t queues;            /* of an SRQ: open queues that use it */
    uint32_t message_bytes_max; /* longest payload of an op; of a UD queue the MTU */
    char peer_address[64];      /* as in crpc_endpoint_info */
    char local_address[64];
    /* What the peer has sent by rdma_cm: to connect, to accept or to reject. */
    uint32_t private_bytes;
    uint8_t private_data[196];
    uint32_t streams;        /* as crpc_queue_options has it */
    uint32_t streams_failed; /* and were not reset */
    uint32_t tags;           /* as crpc_queue_options has it */
    uint32_t tags_open;      /* TAG_ADDs that have not completed */
    /* In use, as crpc_queue_change has them; what the kind does not have is 0. srq_limit stays as it was set
     * when it has been reached. */
    uint64_t not_ready_wait_ns;
    uint32_t access;
    uint32_t retry_timeout;
    uint32_t retry_count;
    uint32_t not_ready_retry_count; /* 0: no limit, also where it was set to 7 */
    uint32_t queue_key;
    uint32_t srq_limit;
} crpc_queue_info;

/* Describes a queue. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_get_info(crpc_context *context, crpc_queue queue,
                                     crpc_queue_info *info);

/* Counters of a queue since it was made. */
typedef struct crpc_queue_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t sends;         /* ops accepted, but for RECEIVE */
    uint64_t receives;      /* RECEIVE ops accepted */
    uint64_t signaled_wqes; /* sends that the device was asked to report */
    uint64_t doorbells;     /* of both kinds */
} crpc_queue_stats;

/* Reads the counters of a queue. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_get_stats(crpc_context *context, crpc_queue queue,
                                      crpc_queue_stats *stats);

/* Tells why a queue could not connect, has failed or was disconnected. error->status is CRPC_OK if
 * none of it has happened. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_queue_get_error(crpc_context *context, crpc_queue queue, crpc_error *error);

/* What the first byte of a message to a TM-SRQ says (rdma-core, Documentation/tag_matching.md). */
#define CRPC_TAG_NONE 0       /* it has no tag */
#define CRPC_TAG_RENDEZVOUS 1 /* a tag, and 16 bytes that say where the sender has its payload */
#define CRPC_TAG_FINISHED 2   /* the answer to that */
#define CRPC_TAG_EAGER 3      /* a tag, and the payload */

/* Writes what an eager message begins with: CRPC_TAG_HEADER_BYTES, in network byte order. `context` is any
 * number for the receiver. Returns CRPC_OK; CRPC_E_INVALID. */
CRPC_API int32_t crpc_tag_header_write(void *header, uint64_t tag, uint32_t context);

/* Reads what a message begins with, of `bytes` bytes, that came to a TM-SRQ: it comes from the peer. `tag` and
 * `context` may be NULL. Returns CRPC_TAG_*, and fills them, but for CRPC_TAG_NONE; CRPC_E_INVALID;
 * CRPC_E_PROTOCOL (it is shorter than a header, or of no known kind: the device has taken it for one without a
 * tag). */
CRPC_API int32_t crpc_tag_header_read(const void *message, uint32_t bytes, uint64_t *tag,
                                      uint32_t *context);

typedef struct crpc_target_options {
    uint32_t struct_size;
    uint32_t kind; /* of the queues whose ops name it: CRPC_QUEUE_KIND_UD or _DCI; 0 = UD */
    /* UD: of the queue there, up to 0x7fffffff; 0 = CRPC_QUEUE_KEY_DEFAULT. DCI: 0. */
    uint32_t queue_key;
    /* of InfiniBand, 0 to 15; on Ethernet the priority, 0 to 7; 0 = as crpc_context_options has it */
    uint32_t service_level;
    uint64_t access_key; /* DCI: of the DCT there. UD: 0 */
} crpc_target_options;

/* Makes a target, which ops of the context's UD queues or DCIs can name: what verbs calls an address handle,
 * with the number and the key of a queue pair or DCT there. `address` is what crpc_queue_get_address gives
 * there, or what any program tells of its own; its packet_sequence_number is not used. `options` may be
 * NULL. The new handle belongs to the caller until crpc_target_close. Blocks while the system finds the way
 * (on Ethernet perhaps by ARP).
 * Returns CRPC_OK and sets *target; CRPC_E_INVALID, CRPC_E_PROTOCOL (no queue pair can have this address),
 * CRPC_E_UNREACHABLE, CRPC_E_UNSUPPORTED (kind; or the device has no DC), CRPC_E_STATE (no queues),
 * CRPC_E_NO_DEVICE, CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
CRPC_API int32_t crpc_target_open(crpc_context *context, const crpc_queue_address *address,
                                  const crpc_target_options *options, crpc_target *target,
                                  crpc_error *error);

/* Makes a target for an answer to a datagram. `completion` is that of its RECEIVE, with CRPC_OK, and `header`
 * points to the CRPC_QUEUE_HEADER_BYTES bytes before the message. The target has the key of the queue that
 * has received. (For another key, take crpc_target_get_address and crpc_target_open.) The header comes from
 * the network: who can forge its source can have answers sent to others. An application that answers often
 * keeps the targets of its peers.
 * Returns as crpc_target_open; CRPC_E_INVALID (also: it is no such completion), CRPC_E_STALE (the queue),
 * CRPC_E_PROTOCOL (the header names no sender). */
CRPC_API int32_t crpc_target_of(crpc_context *context, const crpc_completion *completion,
                                const void *header, crpc_target *target, crpc_error *error);

/* Closes the handle. Accepted ops that name the target go on; the system keeps its resources until they have
 * completed. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_target_close(crpc_context *context, crpc_target target);

/* Gives the address of a target's queue pair. Returns CRPC_OK; CRPC_E_INVALID, CRPC_E_STALE. */
CRPC_API int32_t crpc_target_get_address(crpc_context *context, crpc_target target,
                                         crpc_queue_address *address);

#ifdef __cplusplus
}
#endif

#endif

/* snapshot.h: what a context tells copyrpc-top.
 *
 * Each context listens at the abstract UNIX socket "copyrpc-top.PID.NUMBER" (type STREAM). PID is what the process calls itself;
 * SO_PEERCRED tells what it is to others. Who connects, and is root or has the same effective user ID, is sent one snapshot, and the
 * connection ends. Nothing is read from him. Others are sent nothing.
 *
 * A snapshot is a struct snapshot_context and then `records` structs snapshot_endpoint, in the byte order of the machine. Later
 * versions of the library may make both longer, at their ends: a reader goes by context_bytes and endpoint_bytes. Another meaning of
 * what is there gets another `version`. Times are in nanoseconds of CLOCK_MONOTONIC, and texts are zero-terminated.
 */
#ifndef CORE_BASE_SNAPSHOT_H
#define CORE_BASE_SNAPSHOT_H

#include <stdint.h>

#define SNAPSHOT_NAME "copyrpc-top."
#define SNAPSHOT_MAGIC 0x706f54637072706full
#define SNAPSHOT_VERSION 1u
/* So that a poll with many endpoints does not take long. */
#define SNAPSHOT_ENDPOINTS_MAX 1024u
#define SNAPSHOT_ADDRESS_BYTES 64

struct snapshot_context {
    uint64_t magic;
    uint32_t version;
    uint32_t context_bytes;  /* of this struct */
    uint32_t endpoint_bytes; /* of each record */
    uint32_t records;
    uint32_t
        endpoints; /* there are so many; not all have a record if there are more than SNAPSHOT_ENDPOINTS_MAX */
    uint32_t endpoints_max;
    uint32_t queues;
    uint32_t port;
    uint64_t time_ns; /* when it was made */
    uint64_t polls;
    uint64_t polls_empty;
    char device[64];
    char driver[16];
};

struct snapshot_endpoint {
    uint64_t handle;
    uint64_t made_ns; /* when it was opened, or its connect request came */
    uint32_t state;   /* CRPC_STATE_* */
    uint32_t calls_open;
    uint32_t calls_max;
    uint32_t requests_open;
    uint32_t window_left; /* batches that may be sent before the peer has consumed more */
    uint32_t reserved;
    /* as in crpc_stats */
    uint64_t calls;
    uint64_t responses;
    uint64_t calls_failed;
    uint64_t requests;
    uint64_t replies;
    uint64_t late_responses;
    uint64_t batches_sent;
    uint64_t batches_received;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t refused;
    uint64_t mailbox_reads;
    uint64_t protocol_errors;
    char peer[SNAPSHOT_ADDRESS_BYTES];
    char local[SNAPSHOT_ADDRESS_BYTES];
};

#endif

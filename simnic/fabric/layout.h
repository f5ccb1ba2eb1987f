/* layout.h: what is in a session's fabric file, which every process of the session maps.
 *
 * The file is sparse: tmpfs gives memory to the pages that are touched. A slot names a process.
 * Every ordered pair of slots has a ring of bytes, with one writer and one reader, so no ring needs
 * a lock or an atomic exchange. Each side writes its own index only.
 *
 * A process may die anywhere, since nothing is ever reset. A new owner of a slot goes on where the
 * last one stopped: it empties the rings that it reads by moving their tails to their heads, and
 * goes on at the heads of those that it writes. */
#ifndef SIMNIC_FABRIC_LAYOUT_H
#define SIMNIC_FABRIC_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "simnic/fabric/fault.h"
#include "simnic/session/rails.h"

#define FABRIC_MAGIC 0x636e6973u /* "sinc" */
#define FABRIC_VERSION 12u
#define FABRIC_SLOTS 64u
#define FABRIC_LINE_BYTES 64
#define FABRIC_RING_BYTES (256u * 1024u)

#define FABRIC_CM_BYTES (1024u * 1024u) /* what the connection managers share */
#define FABRIC_STATISTICS_ENTRIES 256u  /* QPs of a process that have a place in its statistics */
#define FABRIC_TRACE_BYTES (512u * 1024u)

struct fabric_slot {
    /* The pid of the process that has the slot, and in the upper half when that process started,
     * since a pid may come again: in clock ticks since boot, modulo 2^32, or 0 if that is not
     * known. Both are in one word, so that nobody sees one owner's pid with another's time, and
     * takes the slot from a living process. 0: free. */
    _Alignas(128) _Atomic uint64_t owner;
    _Atomic uint32_t generation; /* of the process that has it; grows by one for each */
    char name[16];
    /* How many threads of the program spin, as its service thread last saw, and when that was. */
    _Atomic uint32_t threads;
    _Atomic uint64_t threads_told_ns;
    /* Multicast groups that the process has members of: a bit for each, by a hash. A group without a bit has none. */
    _Atomic uint64_t groups;
    _Alignas(64) _Atomic uint32_t asleep; /* 1: the NIC's thread waits on this word */
    _Atomic uint32_t waker; /* 1 + the processor on which another process woke it last, or 0 */
    _Alignas(64) _Atomic uint64_t pending; /* bit s: slot s has put something into its ring */
};

struct fabric_ring {
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t head; /* bytes ever written; the writer's */
    _Atomic uint32_t blocked; /* 1: the writer waits for room, and wants to be woken */
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t tail; /* bytes ever read; the reader's */
    _Atomic uint64_t
        answered; /* of these, those whose packets the reader has done with; its own, too */
    _Alignas(4096) uint8_t bytes[FABRIC_RING_BYTES];
};

/* A port, which all processes of the session send through. */
struct fabric_port {
    /* When what was sent will have left, at the rate of the port; only if it has one. */
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t free_ns;
    _Atomic uint64_t partition_violations; /* packets that came to a QP of another partition */
};

/* What a slot's owners, one after the other, have sent and received over a port. Only the owner's NIC writes it. */
struct fabric_traffic {
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t sent_bytes; /* with headers */
    _Atomic uint64_t sent_packets;
    _Atomic uint64_t received_bytes;
    _Atomic uint64_t received_packets;
};

/* Counters of one QP: the numbers by which a data path is judged. Only the owner's NIC writes
 * them. */
struct fabric_queue_pair_statistics {
    uint32_t qpn; /* 0: not used */
    uint8_t type, state, rail, destroyed;
    /* Its path, as last set: by the program, or by a WQE of a QP that has addresses in WQEs. */
    struct rail_way way;
    uint16_t partition; /* the P_Key */
    uint8_t timeout, retry_count, rnr_retry_count;
    uint32_t ece; /* options in force: nic/ece.h */
    uint64_t send_wqes;
    uint64_t receive_wqes;
    uint64_t doorbells;
    uint64_t blueflame_pushes;
    uint64_t blueflame_executed; /* WQEs taken from the pushed bytes */
    uint64_t wqe_reads;          /* of send WQEs: one each time the NIC looks into the send queue */
    uint64_t payload_reads;      /* DMA reads of payload: one for each data segment */
    uint64_t send_cqes;
    uint64_t receive_cqes;
    uint64_t compressed_blocks;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t packets_sent;
    uint64_t packets_received;
    uint64_t retries;
    uint64_t rnr_naks;
    uint64_t timeouts;
    uint64_t compressed_arrays; /* of the blocks, those of the enhanced layout */
};

/* What a program makes in its devices, and destroys. */
enum fabric_object {
    FABRIC_PROTECTION_DOMAINS,
    FABRIC_MEMORY_REGIONS,
    FABRIC_MEMORY_WINDOWS,
    FABRIC_COMPLETION_QUEUES,
    FABRIC_SHARED_RECEIVE_QUEUES,
    FABRIC_QUEUE_PAIRS,
    FABRIC_OBJECTS
};

struct fabric_process_statistics {
    uint32_t objects[FABRIC_OBJECTS]; /* that there are now */
    uint64_t polling_rounds; /* of the service thread, in which it looked without being asked to */
    struct fabric_queue_pair_statistics queue_pairs[FABRIC_STATISTICS_ENTRIES];
};

/* A WQE that a NIC executes, or a CQE that it writes. Its bytes follow, padded to a multiple of
 * 8. */
enum fabric_trace_kind { FABRIC_TRACE_WQE, FABRIC_TRACE_CQE };

struct fabric_trace_record {
    uint64_t time_ns;
    uint32_t kind, number; /* of the QP or CQ */
    uint32_t count;        /* bytes */
    uint32_t reserved;
};

/* A ring of such records, which may wrap anywhere. The slot's NIC writes it while tracing is on,
 * and `simnic ctl trace` reads it. */
struct fabric_trace {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint64_t lost; /* records for which there was no room */
    _Alignas(64) uint8_t bytes[FABRIC_TRACE_BYTES];
};

struct fabric_file {
    uint32_t magic, version;
    uint32_t link;                     /* of all ports: session/link.h. It never changes */
    _Atomic uint32_t fault_generation; /* odd while fault is being written */
    _Atomic uint32_t tracing;
    struct fabric_fault fault;
    struct fabric_port ports[FABRIC_RAILS];
    struct fabric_slot slots[FABRIC_SLOTS];
    struct fabric_traffic traffic[FABRIC_SLOTS][FABRIC_RAILS];
    _Alignas(4096) uint8_t cm[FABRIC_CM_BYTES];
    _Alignas(4096) struct fabric_process_statistics statistics[FABRIC_SLOTS];
    _Alignas(4096) struct fabric_trace trace[FABRIC_SLOTS];
    _Alignas(4096) struct fabric_ring rings[FABRIC_SLOTS][FABRIC_SLOTS]; /* [reader][writer] */
};

#endif

/* layout.h: what is in a session's fabric file, which every process of the session maps.
 *
 * The file is sparse: tmpfs gives memory to the pages that are touched. A slot names a process. For
 * every ordered pair of slots there is a ring of bytes, with one writer and one reader, so that no
 * ring needs a lock or an atomic exchange. Each side only ever writes its own index, and a new
 * owner of a slot goes on where the last one stopped: its readers' rings are emptied by moving the
 * tail to the head, its writers' rings are continued from their heads. Nothing is ever reset, so a
 * process may die anywhere. */
#ifndef SIMNIC_LAYOUT_H
#define SIMNIC_LAYOUT_H

#include "cm.h"
#include "fault.h"

#include <stdatomic.h>
#include <stdint.h>

#define FABRIC_MAGIC 0x636e6973u /* "sinc" */
#define FABRIC_VERSION 4u
#define FABRIC_SLOTS 64u
#define FABRIC_LINE_BYTES 64
#define FABRIC_RING_BYTES (256u * 1024u)

#define FABRIC_STATISTICS_ENTRIES 256u /* QPs of a process that have a place in its statistics */
#define FABRIC_TRACE_BYTES (512u * 1024u)

struct fabric_slot {
    /* The pid of the process that has it, and above that, as a pid may come again, when it started, in
     * clock ticks since boot, modulo 2^32, 0 if that is not known. In one word, so that nobody sees one
     * owner's pid with another's time and takes the slot from the living. 0: free. */
    _Alignas(128) _Atomic uint64_t owner;
    _Atomic uint32_t generation; /* of the process that has it; grows by one for each */
    char name[16];
    /* How many threads of the program spin, as its service thread last saw, and when that was. */
    _Atomic uint32_t threads;
    _Atomic uint64_t threads_told_ns;
    _Alignas(64) _Atomic uint32_t asleep; /* 1: the device waits on this word */
    _Atomic uint32_t waker; /* 0, or 1 above the processor of the process that woke it last */
    _Alignas(64) _Atomic uint64_t pending; /* bit s: slot s has put something into its ring */
};

struct fabric_ring {
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t head; /* bytes ever written; the writer's */
    _Atomic uint32_t blocked; /* 1: the writer waits for room, and wants to be woken */
    _Alignas(FABRIC_LINE_BYTES) _Atomic uint64_t tail; /* bytes ever read; the reader's */
    _Alignas(4096) uint8_t bytes[FABRIC_RING_BYTES];
};

/* Counters of one QP: the numbers with which a data path is judged. Only the owner's device
 * writes. */
struct fabric_queue_pair_statistics {
    uint32_t qpn; /* 0: not used */
    uint8_t type, state, rail, destroyed;
    uint64_t send_wqes;
    uint64_t receive_wqes;
    uint64_t doorbells;
    uint64_t blueflame_pushes;
    uint64_t blueflame_executed; /* WQEs taken from the pushed bytes */
    uint64_t
        wqe_reads; /* DMA reads of send WQEs: one each time the device looks into the send queue */
    uint64_t payload_reads; /* DMA reads of payload: one a data segment */
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
};

struct fabric_process_statistics {
    uint64_t polling_rounds; /* of the service thread, in which it looked without being asked to */
    struct fabric_queue_pair_statistics queue_pairs[FABRIC_STATISTICS_ENTRIES];
};

/* A ring of trace records, written by the slot's device while tracing is on and read by `simnic ctl
 * trace`. */
struct fabric_trace {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint64_t lost; /* records for which there was no room */
    _Alignas(64) uint8_t bytes[FABRIC_TRACE_BYTES];
};

struct fabric_file {
    uint32_t magic, version;
    _Atomic uint32_t fault_generation; /* odd while fault is being written */
    _Atomic uint32_t tracing;
    struct fabric_fault fault;
    struct fabric_slot slots[FABRIC_SLOTS];
    _Alignas(4096) uint8_t cm[CM_SHARED_BYTES];
    _Alignas(4096) struct fabric_process_statistics statistics[FABRIC_SLOTS];
    _Alignas(4096) struct fabric_trace trace[FABRIC_SLOTS];
    _Alignas(4096) struct fabric_ring rings[FABRIC_SLOTS][FABRIC_SLOTS]; /* [reader][writer] */
};

#endif

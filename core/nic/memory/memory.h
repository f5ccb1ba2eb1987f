/* memory.h: the in-memory NIC, a driver of nic.h for tests, simulations and benchmarks. It is not
 * part of the library.
 *
 * A fabric is a network with all nics on it, in one process and one thread. Transfers follow the
 * rules of a reliable connection: both sides enforce keys, bounds and rights, the WQEs of a queue
 * pair execute and complete in order, and errors kill the same queue pairs as on hardware.
 *
 * Two modes:
 *  - MEMORY_IMMEDIATE: ring_doorbell executes everything at once, which is fast and allocates
 *    nothing. WQEs that cannot execute (peer not connected yet, no receive, cut, stalled) are tried
 *    again at every poll of any nic of the fabric. Such a poll counts as a step.
 *  - MEMORY_SCHEDULED: ring_doorbell only queues. memory_fabric_step does one small thing that
 *    hardware could do next, which the fabric's generator chooses: fetch a payload, write a piece
 *    of it, sample 8 bytes for a READ, or deliver one completion. A run is determined by its seed,
 *    its calls, and the alignment of its transfers to 8-byte words.
 *
 * Queues with user data (nic/queue.h) follow the same rules. In scheduled mode, those of the table
 * UNORDERED complete in any order; of a DCI with streams, the ops of each stream in theirs.
 *
 * The default fabric (operations->open and ->query) is MEMORY_IMMEDIATE with inline_bytes_max 220;
 * fabrics of memory_fabric_create start in MEMORY_SCHEDULED with inline_bytes_max 0: if posting
 * copied the data, the simulation could not find a sender that reuses its buffer too early.
 */
#ifndef CORE_NIC_MEMORY_MEMORY_H
#define CORE_NIC_MEMORY_MEMORY_H

#include "nic/nic.h"

struct nic_queue;

#define NIC_DRIVER_MEMORY 100u /* has no bit in crpc_device_info.drivers: query leaves that 0 */

/* open and query use the default fabric. Everything else uses the fabric of its nic. */
extern const struct nic_operations nic_memory_operations;

struct memory_fabric;

/* ---- Fabrics --------------------------------------------------------------------------------- */

struct memory_fabric *memory_fabric_create(uint64_t seed);
/* Frees the fabric, with all nics, queue pairs and registrations that are left on it, silently. */
void memory_fabric_destroy(struct memory_fabric *fabric);

/* Returns the fabric that operations->open uses. The first call creates it, with seed 1. */
struct memory_fabric *memory_fabric_default(void);
/* Destroys the default fabric, for the teardown of tests. The next use creates a new one. */
void memory_fabric_reset_default(void);

/* Opens a nic on a fabric: "", "memory0", "memory1", ... The caller closes it with
 * operations->close. */
int32_t memory_nic_open(struct memory_fabric *fabric, const struct nic_options *options,
                        struct nic **nic, crpc_error *error);
struct memory_fabric *memory_nic_fabric(const struct nic *nic);

/* Returns the live queue pair with this number, or NULL. */
struct nic_queue_pair *memory_fabric_find(struct memory_fabric *fabric, uint32_t number);

/* ---- Options --------------------------------------------------------------------------------- */

/* Options may be changed at any time through the pointer. Those with [open] apply to nics that are
 * opened later. The number in each comment is the default. */

/* Devices memory<n> up to this have options of their own. For others, 0 applies. */
#define MEMORY_DEVICES_NAMED 32u

enum memory_mode {
    MEMORY_SCHEDULED = 0,
    MEMORY_IMMEDIATE = 1,
};

struct memory_fabric_options {
    enum memory_mode mode; /* may only change while nothing is under way */

    /* The devices. */
    uint32_t devices;           /* 2: how many devices query and open know, with one port each */
    uint32_t devices_down;      /* 0: bit n set = the port of memory<n> is not active */
    uint32_t message_bytes_max; /* [open] NIC_MESSAGE_BYTES_MAX, which is also the limit */
    uint32_t inline_bytes_max;  /* [open] posting copies payload up to this length */
    uint32_t receive_depth_max; /* [open] 32768: limit of receive_depth */
    uint32_t send_completion_depth_max; /* [open] 4194304: limit of send_completion_depth */
    bool no_windows;                    /* [open] false: the devices have windows */
    bool no_dc;                         /* [open] false: likewise DCIs and DCTs */
    bool no_srq;                        /* [open] false: a nic has one SRQ for all queue pairs */
    bool infiniband;                    /* [open] false: all ports are Ethernet's */
    uint32_t
        grh_required; /* [open] 0: bit n set = who connects to memory<n> must know that its port requires a GRH */
    uint32_t queue_pairs_max; /* 32768, which is also the limit */
    uint32_t first_number;    /* 17: first queue pair number; up to 24 bits */
    uint64_t system_image_guid[MEMORY_DEVICES_NAMED]; /* [open] of memory<n>: all different */
    uint32_t link_mbps[MEMORY_DEVICES_NAMED];         /* [open] of memory<n>: 100000 */
    uint32_t ece
        [MEMORY_DEVICES_NAMED]; /* [open] 0 of each memory<n>: what its queue pairs offer of ECE */
    bool reuse_numbers;         /* false: numbers go round; true: the last one freed is used next */

    /* Faults. */
    uint32_t retry_steps;              /* 1000: steps without an answer before NIC_ERROR_RETRY */
    uint32_t receiver_not_ready_steps; /* 16: steps between an RNR and the next attempt */
    bool receiver_not_ready_fails;     /* false: unlimited attempts; true: NIC_ERROR_RNR at once */
    bool flush_signaled_only; /* false: all WQEs of a dead queue pair complete, as in verbs; true:
                                 only the failed one, signaled ones and the last */

    /* Scheduled mode. */
    uint32_t pieces_max;      /* 4: number of pieces in which a payload is written */
    uint32_t unit_bytes;      /* 8: aligned units of this size are written at once; a power of two.
                                 Real devices write 64 bytes at once, but none promises it */
    uint32_t transfer_weight; /* 4: how often each is chosen if a queue pair could do several */
    uint32_t receive_weight;  /* 2: likewise; 0 = never, it waits for ever */
    uint32_t acknowledge_weight; /* 1: likewise */
    uint32_t delay_percent;      /* 5: chance that the chosen action is delayed ... */
    uint32_t delay_steps;        /* 50: ... by 1 to this many steps */

    /* Immediate mode: transfers that take time. With a clock, a device sends its transfers one after the other,
     * and each lands and is acknowledged a latency after its last byte was sent: at a poll by then or later.
     * A change is for what is rung from then on. Datagrams and DC take no time. */
    const uint64_t *clock_ns;                  /* NULL: they take none */
    uint32_t rate_mbps[MEMORY_DEVICES_NAMED];  /* 0 of each memory<n>: as fast as can be */
    uint64_t latency_ns[MEMORY_DEVICES_NAMED]; /* 0 */

    /* Both modes. */
    /* 0: chance that a piece of a WRITE to memory with NIC_ACCESS_RELAXED is late: it lands when a completion of its queue
     * pair that is for it is polled, or the queue pair, the window or the registration ends. */
    uint32_t relaxed_late_percent;
    uint32_t datagrams_lost_percent; /* 0: chance that a datagram is lost on its way */
};

struct memory_fabric_options *memory_fabric_options(struct memory_fabric *fabric);

/* ---- Time (in immediate mode, a step only tries again what waits) ---------------------------- */

enum memory_step {
    MEMORY_STEP_QUIET = 0,  /* nothing is under way until the next post */
    MEMORY_STEP_MOVED = 1,  /* one action was performed */
    MEMORY_STEP_WAITED = 2, /* only time passed, for delays, stalls, RNRs or retries */
};

enum memory_step memory_fabric_step(struct memory_fabric *fabric);
/* Steps until nothing is under way, at most `steps` times. Returns false if something still is. */
bool memory_fabric_run(struct memory_fabric *fabric, uint64_t steps);
/* With options.clock_ns: returns when the next transfer lands, or UINT64_MAX if none is under way. */
uint64_t memory_fabric_next_ns(const struct memory_fabric *fabric);

/* ---- Counters -------------------------------------------------------------------------------- */

struct memory_fabric_counters {
    /* Violations. A correct engine leaves all of them 0, whatever its peer's hardware does. */
    uint64_t receiver_not_ready; /* WRITEs with immediate that found no receive */
    uint64_t send_overflows;     /* completions lost because the send CQ was full */
    uint64_t receive_overflows;  /* likewise for the receive CQ */
    uint64_t remote_access_errors;
    uint64_t local_errors;
    uint64_t
        left_open; /* queue pairs, registrations, domains and targets that existed when their nic closed */
    /* Work. */
    uint64_t steps;
    uint64_t writes;       /* WRITEs with immediate that were written completely */
    uint64_t plain_writes; /* likewise without immediate */
    uint64_t reads;        /* READs that were sampled completely */
    uint64_t held;         /* pieces that were late: relaxed_late_percent */
    uint64_t datagrams;    /* that have arrived */
    uint64_t datagrams_lost;
    uint64_t queue_pairs; /* alive now */
    /* Queue pairs and windows ever made, and destroyed, each of which takes a device a system call. Tries count. */
    uint64_t made;
    uint64_t unmade;
    uint64_t regions; /* alive now, and windows */
    uint64_t domains; /* alive now, without the nics' own */
    uint64_t targets; /* alive now */
    uint64_t nics;    /* open now */
};

struct nic_queue;
/* What the device of a TM-SRQ has. A message that has begun to come in keeps what it has taken until all of it is
 * there, or its queue pair ends. If its sender has ended before, that is as long as the application wants. */
struct memory_tag_counts {
    uint32_t listed;         /* tags that are in its list */
    uint32_t unexpected;     /* messages that it has counted, modulo 2^16; with the last member's */
    uint32_t cut_matched;    /* messages that have taken a tag, and of which no more can come */
    uint32_t cut_unexpected; /* likewise, that have taken an ordinary receive */
};
struct memory_tag_counts memory_fabric_tags(const struct nic_queue *queue);
const struct memory_fabric_counters *memory_fabric_counters(const struct memory_fabric *fabric);

/* The fabric calls this before it writes a piece of a WRITE to `target`, from the peer of its queue
 * pair `queue_pair_number`, but not for memory_fabric_write*. The callback must not call functions
 * that change the fabric. NULL = none. */
typedef void memory_fabric_landing(void *argument, struct nic *target, uint32_t queue_pair_number,
                                   uint64_t address, uint32_t bytes);
void memory_fabric_watch(struct memory_fabric *fabric, memory_fabric_landing *callback,
                         void *argument);

/* ---- Faults on demand ------------------------------------------------------------------------ */

/* From now on, all packets from and to the queue pair are lost, including those under way. A side
 * with pending sends gets NIC_ERROR_RETRY after retry_steps; a side without gets nothing. This
 * cannot be undone. */
void memory_fabric_cut(struct nic_queue_pair *queue_pair);
/* Cuts all queue pairs of the nic, and those created later, like kill -9 of its process. The nic
 * may still be polled and closed. */
void memory_fabric_cut_nic(struct nic *nic);
/* Takes the link of a nic down or up. Down works like a cut of all its queue pairs, including those
 * created meanwhile, but the link can come back. Then queue pairs that have not failed continue,
 * new ones work, and everything without an answer is sent again. The peer does not execute again
 * what it had executed, but it answers again if it still can; otherwise the sender gets
 * NIC_ERROR_RETRY for something that was done. READs return the memory as it is then. */
void memory_fabric_set_link(struct nic *nic, bool up);
/* Moves the queue pair to the error state at once, as a fault of its own device would. Its pending
 * WQEs are flushed. The peer gets NIC_ERROR_RETRY when it sends. */
void memory_fabric_kill(struct nic_queue_pair *queue_pair);
/* Stops all activity of the queue pair for this many steps. That causes no error. */
void memory_fabric_stall(struct nic_queue_pair *queue_pair, uint64_t steps);

enum memory_failure {
    MEMORY_FAIL_OPEN = 0,
    MEMORY_FAIL_REGISTER,
    MEMORY_FAIL_CREATE,  /* queue_pair_create */
    MEMORY_FAIL_CONNECT, /* queue_pair_connect */
    MEMORY_FAIL_ARM,     /* returns EIO whatever the status */
    MEMORY_FAIL_DOMAIN,  /* domain_create */
    MEMORY_FAIL_WINDOW,  /* window_create */
    MEMORY_FAIL_TARGET,  /* target_create */
    MEMORY_FAIL_MODIFY,  /* nic_queue_operations.modify */
    MEMORY_FAIL_KINDS,
};

/* Makes the nth such call from now (1 = the next) fail once, with `status` (CRPC_E_*). nth 0 means
 * none. */
void memory_fabric_set_failures(struct memory_fabric *fabric, enum memory_failure kind,
                                uint32_t nth, int32_t status);
/* Returns true if a requested failure has not happened yet. To try all failures, a test uses nth =
 * 1, 2, ... until the failure is still pending when the work is done. */
bool memory_fabric_failure_pending(const struct memory_fabric *fabric, enum memory_failure kind);

/* Returns true once when the limit of an SRQ was reached (struct nic_queue_change): what a device tells
 * core/cm. */
bool memory_queue_limit_reached(struct nic_queue *queue);

/* ---- A hostile peer -------------------------------------------------------------------------- */

/* Does to a queue pair what a packet of its connected peer could do, whatever the peer's state is:
 * data of any length to any address under any key, and then the immediate. The data is written
 * before this returns. The receive completion comes at once (immediate mode) or in its turn
 * (scheduled mode).
 * Returns what the peer would see: NIC_ERROR_NONE; NIC_ERROR_REMOTE_ACCESS (the queue pair dies);
 * NIC_ERROR_RNR (not counted as a violation); NIC_ERROR_RETRY (the queue pair does not exist, is
 * not connected, is dead or is cut). */
enum nic_error memory_fabric_write_immediate(struct memory_fabric *fabric,
                                             uint32_t target_queue_pair_number, uint64_t address,
                                             uint32_t remote_key, uint32_t bytes, const void *data,
                                             uint32_t immediate);
/* Does the same without an immediate. No receive is used, and nobody is notified. */
enum nic_error memory_fabric_write(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                   uint64_t address, uint32_t remote_key, uint32_t bytes,
                                   const void *data);
/* Does the same for a READ of all bytes at once. */
enum nic_error memory_fabric_read(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                  uint64_t address, uint32_t remote_key, uint32_t bytes,
                                  void *data);
/* Returns where in this process the memory is that peers of the nic find at `address` under a key. It
 * is registered there. */
const void *memory_fabric_place(struct nic *nic, uint32_t remote_key, uint64_t address);

#endif

/* memory.h: the in-memory NIC, a driver of nic.h for tests, simulation and benchmarks; not shipped.
 *
 * A fabric is a network with all nics opened on it, in one process and one thread. Transfers follow
 * the rules of a reliable connection: keys, bounds and rights are enforced on both sides, a queue
 * pair's WQEs execute and complete in order, errors kill the queue pairs that they kill on
 * hardware.
 *
 * Two modes:
 *  - MEMORY_IMMEDIATE: ring executes everything at once; fast, and without allocation. What cannot
 *    execute (peer not connected yet, no receive, cut, stalled) is tried again at every poll of any
 *    nic of the fabric; such a poll counts as a step.
 *  - MEMORY_SCHEDULED: ring only queues. memory_fabric_step does one small thing that hardware
 *    might do next, chosen by the fabric's generator: fetch a payload, land a piece of it, sample
 *    8 bytes for a READ, deliver one completion. All that a run does follows from its seed, its
 *    calls, and how its transfers lie within 8-byte words.
 *
 * The default fabric (operations->open and ->query) is MEMORY_IMMEDIATE with inline_bytes_max 220;
 * fabrics of memory_fabric_create start MEMORY_SCHEDULED with inline_bytes_max 0, because data
 * taken at post hides from the simulation that a sender reused its bytes too early.
 */
#ifndef CORE_NIC_MEMORY_MEMORY_H
#define CORE_NIC_MEMORY_MEMORY_H

#include "nic/nic.h"

#define NIC_DRIVER_MEMORY 100u /* does not fit crpc_device_info.drivers: query leaves that 0 */

/* open and query work on the default fabric; everything else on the fabric of the nic given. */
extern const struct nic_operations nic_memory_operations;

struct memory_fabric;

/* ---- Fabrics --------------------------------------------------------------------------------- */

struct memory_fabric *memory_fabric_create(uint64_t seed);
/* Frees the fabric with all nics, queue pairs and registrations that are left on it, without a
 * word. */
void memory_fabric_destroy(struct memory_fabric *fabric);

/* The one that operations->open uses; made (seed 1) when first asked for. */
struct memory_fabric *memory_fabric_default(void);
/* Destroys the default fabric; the next use makes a new one. For the teardown of tests. */
void memory_fabric_reset_default(void);

/* Opens a nic on a fabric: "" or "memory0", "memory1", ... Close it with operations->close. */
int32_t memory_nic_open(struct memory_fabric *fabric, const struct nic_options *options,
                        struct nic **nic, crpc_error *error);
struct memory_fabric *memory_nic_fabric(const struct nic *nic);

/* The live queue pair of that number, NULL if there is none. */
struct nic_queue_pair *memory_fabric_find(struct memory_fabric *fabric, uint32_t number);

/* ---- Options --------------------------------------------------------------------------------- */

/* May be changed at any time through the pointer; of those with [open], nics opened later take
 * note. The number is the default. */

#define MEMORY_DEVICES_NAMED 32u /* memory<n> with options of their own; 0 of those beyond */

enum memory_mode {
    MEMORY_SCHEDULED = 0,
    MEMORY_IMMEDIATE = 1,
};

struct memory_fabric_options {
    enum memory_mode mode; /* change it only while nothing is under way */

    /* The devices. */
    uint32_t devices;                   /* 2: how many query and open know, one port each */
    uint32_t devices_down;              /* 0: bit n = the port of memory<n> is not active */
    uint32_t message_bytes_max;         /* [open] NIC_MESSAGE_BYTES_MAX, and never more */
    uint32_t inline_bytes_max;          /* [open] payload up to this is taken at post */
    uint32_t receive_depth_max;         /* [open] 32768: what receive_depth is clamped to */
    uint32_t send_completion_depth_max; /* [open] 4194304: likewise */
    uint32_t queue_pairs_max;           /* 32768, and never more */
    uint32_t first_number;              /* 17: of the queue pairs; up to 24 bits */
    uint64_t system_image_guid[MEMORY_DEVICES_NAMED]; /* [open] of memory<n>: all different */
    uint32_t link_mbps[MEMORY_DEVICES_NAMED];         /* [open] of memory<n>: 100000 */
    bool reuse_numbers; /* false: numbers go round; true: the one freed last is given first */

    /* Trouble. */
    uint32_t retry_steps;              /* 1000: steps without an answer until NIC_ERROR_RETRY */
    uint32_t receiver_not_ready_steps; /* 16: steps from an RNR to the next attempt */
    bool receiver_not_ready_fails; /* false: attempts without end; true: NIC_ERROR_RNR at once */
    bool flush_signaled_only; /* false: each WQE of a dead queue pair completes, as verbs has it;
                                 true: only the one that failed, the signaled and the last */

    /* Scheduled mode. */
    uint32_t pieces_max;      /* 4: parts in which a payload lands */
    uint32_t unit_bytes;      /* 8: an aligned unit of memory lands whole; a power of two. Devices
                                 write lines of 64 in practice, and none promises it */
    uint32_t transfer_weight; /* 4; how often each is chosen where a queue pair could do several; */
    uint32_t receive_weight;  /* 2; 0 = never: it waits for ever */
    uint32_t acknowledge_weight; /* 1 */
    uint32_t delay_percent;      /* 5: chance that what was chosen is put off ... */
    uint32_t delay_steps;        /* 50: ... by 1 to so many steps */
};

struct memory_fabric_options *memory_fabric_options(struct memory_fabric *fabric);

/* ---- Time (scheduled mode; in immediate mode: tries what waits) ------------------------------ */

enum memory_step {
    MEMORY_STEP_QUIET = 0,  /* nothing is under way: only a post can change that */
    MEMORY_STEP_MOVED = 1,  /* one action was performed */
    MEMORY_STEP_WAITED = 2, /* only time passed: of delays, stalls, RNRs, retries */
};

enum memory_step memory_fabric_step(struct memory_fabric *fabric);
/* Steps until nothing is under way, at most `steps`; false if something still is. */
bool memory_fabric_run(struct memory_fabric *fabric, uint64_t steps);

/* ---- What was seen --------------------------------------------------------------------------- */

struct memory_fabric_counters {
    /* Violations: a correct engine leaves all of them 0, whatever its peer's hardware does. */
    uint64_t receiver_not_ready; /* WRITEs with immediate that found no receive (once each) */
    uint64_t send_overflows;     /* completions lost because the send CQ was full */
    uint64_t receive_overflows;  /* likewise, receive CQ */
    uint64_t remote_access_errors;
    uint64_t local_errors;
    uint64_t left_open; /* queue pairs and registrations there at the close of their nic */
    /* Work. */
    uint64_t steps;
    uint64_t writes;       /* WRITEs with immediate that have landed whole */
    uint64_t plain_writes; /* likewise, without */
    uint64_t reads;        /* READs that have been sampled whole */
    uint64_t queue_pairs;  /* alive now */
    uint64_t regions;      /* alive now */
    uint64_t nics;         /* open now */
};

const struct memory_fabric_counters *memory_fabric_counters(const struct memory_fabric *fabric);

/* Called before each piece of a WRITE lands: at `target`, from the peer of its queue pair
 * `queue_pair_number`; not for what memory_fabric_write* do. It must not call functions that change
 * the fabric. NULL = none. */
typedef void memory_fabric_landing(void *argument, struct nic *target, uint32_t queue_pair_number,
                                   uint64_t address, uint32_t bytes);
void memory_fabric_watch(struct memory_fabric *fabric, memory_fabric_landing *callback,
                         void *argument);

/* ---- Trouble on demand ----------------------------------------------------------------------- */

/* From now on all packets from and to it vanish, those under way too. Whoever has sends outstanding
 * gets NIC_ERROR_RETRY after retry_steps; whoever has none hears nothing. Cannot be mended. */
void memory_fabric_cut(struct nic_queue_pair *queue_pair);
/* All queue pairs of the nic, and those made later: as kill -9 of its process. It may still be
 * polled and closed. */
void memory_fabric_cut_nic(struct nic *nic);
/* Takes the link of a nic down: as a cut of all its queue pairs, and of those made while it is
 * down, but it can come back. Then those that have not failed in between go on, and new ones work:
 * what is without an answer is sent again. What the peer had executed it does not execute again,
 * but answers once more, if it still can: if not, the sender gets NIC_ERROR_RETRY for what was
 * done. READs are answered from memory as it is by then. */
void memory_fabric_set_link(struct nic *nic, bool up);
/* Puts it in the error state at once, as a fault of its own device would: what it had outstanding
 * is flushed; its peer, when it sends, gets NIC_ERROR_RETRY. */
void memory_fabric_kill(struct nic_queue_pair *queue_pair);
/* Nothing moves from, to or at it for so many steps; no error comes of it. */
void memory_fabric_stall(struct nic_queue_pair *queue_pair, uint64_t steps);

enum memory_failure {
    MEMORY_FAIL_OPEN = 0,
    MEMORY_FAIL_REGISTER,
    MEMORY_FAIL_CREATE,  /* queue_pair_create */
    MEMORY_FAIL_CONNECT, /* queue_pair_connect */
    MEMORY_FAIL_ARM,     /* returns EIO whatever the status */
    MEMORY_FAIL_KINDS,
};

/* Makes the nth such call from now (1 = the next) fail, once, with `status` (CRPC_E_*). nth 0 =
 * none. */
void memory_fabric_set_failures(struct memory_fabric *fabric, enum memory_failure kind,
                                uint32_t nth, int32_t status);
/* True if a failure that was asked for has not happened yet: the way to walk through all of them is
 * nth = 1, 2, ... until it is still pending after the work is done. */
bool memory_fabric_failure_pending(const struct memory_fabric *fabric, enum memory_failure kind);

/* ---- A hostile peer -------------------------------------------------------------------------- */

/* Does to a queue pair what a packet of its connected peer would do, whatever the peer's state:
 * data of any length to any address under any key, then the immediate. The data lands before it
 * returns; the receive completion comes at once (immediate mode) or in its turn (scheduled).
 * Returns what such a peer would learn: NIC_ERROR_NONE; NIC_ERROR_REMOTE_ACCESS (the queue pair
 * dies), NIC_ERROR_RNR (not counted as a violation), NIC_ERROR_RETRY (no such queue pair, not
 * connected, dead or cut). */
enum nic_error memory_fabric_write_immediate(struct memory_fabric *fabric,
                                             uint32_t target_queue_pair_number, uint64_t address,
                                             uint32_t remote_key, uint32_t bytes, const void *data,
                                             uint32_t immediate);
/* Likewise without an immediate: no receive is used and nobody is told. */
enum nic_error memory_fabric_write(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                   uint64_t address, uint32_t remote_key, uint32_t bytes,
                                   const void *data);
/* Likewise a READ, of all bytes at once. */
enum nic_error memory_fabric_read(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                  uint64_t address, uint32_t remote_key, uint32_t bytes,
                                  void *data);

#endif

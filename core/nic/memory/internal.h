/* internal.h: what the files of the in-memory NIC share. Nobody else includes it.
 *
 * The life of a WQE, number n of its queue pair; n < m means (int32_t)(m - n) > 0:
 *
 *     posted -> rung -> executed at the peer -> acknowledged -> completed (polled)
 *
 * Each queue pair keeps one counter for each arrow: WQEs below `acknowledged` have their
 * completion, if they have any, in the send CQ; those below `executed` have done their work at the
 * peer, or have failed there; those below `rung` wait for it.
 */
#ifndef CORE_NIC_MEMORY_INTERNAL_H
#define CORE_NIC_MEMORY_INTERNAL_H

#include "base/compiler.h"
#include "base/error.h"
#include "nic/memory/memory.h"
#include "nic/memory/random.h"

#define NUMBER_SLOTS 32768u /* queue pairs of a fabric at the most; a power of two */
#define NUMBER_MASK 0xffffffu
#define REGION_SLOTS 32768u /* registrations of a nic at the most */
#define NOT_ACTIVE 0xffffffffu
#define REMOTE_KEY_BIT 0x80000000u /* set in remote keys, not in local ones: region.c */

/* ---- Completion queues: completion.c --------------------------------------------------------- */

struct memory_completion {
    struct nic_completion shown;
    struct memory_queue_pair *queue_pair;
    bool receive;
};

struct memory_completion_queue {
    struct memory_completion *entries;
    uint32_t capacity;
    uint32_t mask; /* entries allocated - 1 */
    uint32_t head; /* next to poll */
    uint32_t tail; /* next to fill */
};

/* ---- Nics and registrations: memory_nic.c, region.c ------------------------------------------ */

struct memory_region {
    uint64_t address;
    uint64_t bytes;
    uint32_t access; /* CRPC_ACCESS_* */
    uint32_t local_key;
    uint32_t remote_key;
    uint32_t slot;
};

/* A WRITE with immediate that has taken its receive; its completion is still under way. */
struct memory_arrival {
    struct memory_arrival *next;
    uint32_t immediate;
    uint32_t bytes;
};

struct memory_nic {
    struct nic base;
    struct memory_fabric *fabric;
    struct memory_nic *next; /* of the fabric */
    struct memory_queue_pair *queue_pairs;
    struct memory_completion_queue send_completions;
    struct memory_completion_queue receive_completions;
    struct memory_region **regions; /* by slot; NULL = free */
    uint32_t region_slots;
    struct memory_arrival *arrivals; /* receive_depth of them */
    struct memory_arrival *free_arrivals;
    uint32_t receives; /* in the SRQ, as its hardware knows */
    bool armed;
    bool cut;
    bool link_down;
    bool sends_first; /* whose turn it is at the next poll */
};

/* ---- Queue pairs: queue_pair.c --------------------------------------------------------------- */

enum memory_opcode {
    MEMORY_WRITE,
    MEMORY_WRITE_IMMEDIATE,
    MEMORY_READ,
};

struct memory_wqe {
    struct nic_transfer transfer;
    uint8_t *payload; /* taken at post, fetched, or sampled; NULL = none */
    uint8_t opcode;
    uint8_t status; /* enum nic_error: what the peer's answer, or this device, has found */
    bool signaled;
    bool inlined;            /* payload is in the queue pair's inline bytes, not of malloc */
    bool receiver_not_ready; /* has been counted */
};

enum memory_stage {
    STAGE_START,  /* WRITE: fetch the payload. READ: the request goes to the peer */
    STAGE_MOVE,   /* pieces land, or are sampled */
    STAGE_ARRIVE, /* all has landed: take a receive, if one is needed */
};

/* The things of one queue pair that are delayed independently of each other. */
enum memory_lane {
    LANE_TRANSFER,    /* the oldest WQE that is not executed */
    LANE_RECEIVE,     /* the oldest arrival: its completion */
    LANE_ACKNOWLEDGE, /* the oldest WQE that is not acknowledged */
    LANES,
};

/* What is left of a payload that moves in pieces, taken from either end. */
struct memory_span {
    uint32_t low;
    uint32_t high;
    uint32_t pieces; /* in which to move the rest */
};

struct memory_queue_pair {
    struct nic_queue_pair base;
    struct memory_nic *nic;
    struct memory_fabric *fabric;
    struct memory_queue_pair *next; /* of the nic */

    uint64_t identity;      /* memory_identity of itself, */
    uint64_t peer_identity; /* of its peer; 0 = not connected */
    bool connected;
    bool dead; /* in the error state; base.failed: and its owner knows */
    bool cut;
    bool severed;      /* cut, or its nic's link is down: nothing goes out */
    bool open;         /* connected, and neither dead nor severed: packets are taken in */
    bool halted;       /* a WQE has failed: those after it do not execute any more */
    bool answers_lost; /* the peer has to be asked again for what it has executed */
    bool payload_lost; /* of the WRITE that executes: to be fetched again */

    struct memory_wqe *wqes;
    uint32_t wqe_mask;
    uint8_t *inline_bytes;
    uint32_t inline_stride;
    uint32_t rung;
    uint32_t executed;
    uint32_t acknowledged;

    struct memory_arrival *arrivals; /* oldest first */
    struct memory_arrival **arrivals_end;

    /* Time: schedule.c. */
    enum memory_stage stage;
    struct memory_span span;     /* of the WQE that executes */
    uint64_t words_left;         /* the same for a small READ: bit n = word n is not sampled yet */
    struct memory_span response; /* of the READ that is acknowledged */
    bool response_started;
    bool stuck; /* packets get no answer, since stuck_since */
    uint64_t stuck_since;
    uint64_t stalled_until;
    uint64_t not_before[LANES];
    uint32_t active_index; /* in fabric->active */
};

/* ---- Fabrics: fabric.c ----------------------------------------------------------------------- */

struct memory_planned_failure {
    uint32_t countdown; /* 0 = none */
    int32_t status;
};

struct memory_fabric {
    struct memory_fabric_options options;
    struct memory_fabric_counters counters;
    struct random_generator random;
    memory_fabric_landing *landing;
    void *landing_argument;
    struct memory_planned_failure failures[MEMORY_FAIL_KINDS];

    struct memory_nic *nics;
    struct memory_queue_pair **by_number; /* NUMBER_SLOTS, at number % NUMBER_SLOTS */
    uint32_t next_number;                 /* 0 = none given yet */
    uint32_t *freed_numbers;              /* a stack, NUMBER_SLOTS */
    uint32_t freed_count;
    uint16_t next_key_salt;

    uint64_t now;                      /* steps */
    struct memory_queue_pair **active; /* those with something under way; NUMBER_SLOTS */
    uint32_t active_count;
};

static inline struct memory_nic *memory_nic(struct nic *nic)
{
    return container_of(nic, struct memory_nic, base);
}

static inline struct memory_queue_pair *memory_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct memory_queue_pair, base);
}

static inline struct memory_wqe *memory_wqe(struct memory_queue_pair *queue_pair, uint32_t number)
{
    return &queue_pair->wqes[number & queue_pair->wqe_mask];
}

static inline bool memory_immediate(const struct memory_fabric *fabric)
{
    return fabric->options.mode == MEMORY_IMMEDIATE;
}

/* ---- The checks of every packet -------------------------------------------------------------- */

static inline struct memory_queue_pair *memory_find(const struct memory_fabric *fabric,
                                                    uint32_t number)
{
    struct memory_queue_pair *queue_pair = fabric->by_number[number % NUMBER_SLOTS];

    return queue_pair && queue_pair->base.number == number ? queue_pair : NULL;
}

/* What a packet shows of its sender. Hardware takes packets of anyone for the right number whose
 * sequence numbers fit: when a number is used again, they tell the new one from the old. */
static inline uint64_t memory_identity(uint32_t number, uint32_t packet_sequence_number)
{
    return (uint64_t)number << 32 | packet_sequence_number;
}

/* The queue pair at the other end, NULL if it is gone or talks to someone else. */
static inline struct memory_queue_pair *memory_peer(const struct memory_queue_pair *queue_pair)
{
    const uint32_t number = (uint32_t)(queue_pair->peer_identity >> 32);
    struct memory_queue_pair *peer = queue_pair->fabric->by_number[number % NUMBER_SLOTS];

    if (likely(peer && peer->identity == queue_pair->peer_identity &&
               peer->peer_identity == queue_pair->identity)) {
        return peer;
    }
    return NULL;
}

/* The same, but only if packets get through to it now and are taken in. */
static inline struct memory_queue_pair *memory_reach(const struct memory_queue_pair *queue_pair)
{
    struct memory_queue_pair *peer = memory_peer(queue_pair);

    return likely(peer && peer->open && !queue_pair->severed) ? peer : NULL;
}

static inline bool memory_stalled(const struct memory_queue_pair *queue_pair)
{
    return queue_pair->fabric->now < queue_pair->stalled_until;
}

/* What is registered in the slot of a key, whose key it may be or not; NULL if nothing is. */
static inline struct memory_region *memory_region_find(const struct memory_nic *nic, uint32_t key)
{
    const uint32_t slot = (key & ~REMOTE_KEY_BIT) >> 16;

    return likely(slot < nic->region_slots) ? nic->regions[slot] : NULL;
}

static inline bool memory_region_allows(const struct memory_region *region, uint64_t address,
                                        uint32_t bytes, uint32_t access)
{
    const uint64_t offset = address - region->address; /* huge where the address is too low */

    return offset <= region->bytes && bytes <= region->bytes - offset &&
           (region->access & access) == access;
}

/* Whether a device may touch that memory under that key; to touch none it always may. */
static inline bool memory_allows_local(const struct memory_nic *nic, uint32_t local_key,
                                       uint64_t address, uint32_t bytes, uint32_t access)
{
    const struct memory_region *region = memory_region_find(nic, local_key);

    return (region && region->local_key == local_key &&
            memory_region_allows(region, address, bytes, access)) ||
           bytes == 0;
}

static inline bool memory_allows_remote(const struct memory_nic *nic, uint32_t remote_key,
                                        uint64_t address, uint32_t bytes, uint32_t access)
{
    const struct memory_region *region = memory_region_find(nic, remote_key);

    return (region && region->remote_key == remote_key &&
            memory_region_allows(region, address, bytes, access)) ||
           bytes == 0;
}

/* What callers of nic.h must keep to is checked in every build: this NIC exists to find bugs. */
#define memory_require(condition, ...)                                                             \
    do {                                                                                           \
        if (unlikely(!(condition)))                                                                \
            memory_abort(__func__, __VA_ARGS__);                                                   \
    } while (0)

void memory_abort(const char *function, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* calloc that does not return without memory. */
void *memory_allocate(size_t count, size_t bytes);

/* fabric.c: counts one call of that kind; true (and the error filled) if it was chosen to fail. */
bool memory_planned_failure(struct memory_fabric *fabric, enum memory_failure kind, int32_t *status,
                            crpc_error *error);
/* A number for a new queue pair; 0 if there is none left. */
uint32_t memory_number_take(struct memory_fabric *fabric);
void memory_number_give_back(struct memory_fabric *fabric, uint32_t number);

/* memory_nic.c. */
void memory_devices_default(struct memory_fabric_options *options);
/* Closes it with all that is left on it. */
void memory_nic_free(struct memory_nic *nic);
int32_t memory_query(uint32_t index, crpc_device_info *info, crpc_error *error);
int32_t memory_open_default(const struct nic_options *options, struct nic **nic, crpc_error *error);
void memory_close(struct nic *nic);

/* region.c. */
int32_t memory_register(struct nic *nic, void *address, size_t bytes, uint32_t access,
                        struct nic_keys *memory, crpc_error *error);
/* Any file that may be mapped will do for a dma-buf: `address` is where the caller has mapped it. */
int32_t memory_register_dmabuf(struct nic *nic, int fd, uint64_t offset, size_t bytes,
                               uint64_t address, uint32_t access, struct nic_keys *memory,
                               crpc_error *error);
void memory_deregister(struct nic *nic, struct nic_keys *memory);
void memory_region_free(struct memory_nic *nic, struct memory_region *region);

/* queue_pair.c. */
int32_t memory_queue_pair_create(struct nic *nic, void *owner, struct nic_queue_pair **queue_pair,
                                 crpc_error *error);
void memory_queue_pair_destroy(struct nic_queue_pair *queue_pair);
void memory_queue_pair_address(const struct nic_queue_pair *queue_pair,
                               struct nic_address *address);
int32_t memory_queue_pair_connect(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);
void memory_queue_pair_fail(struct nic_queue_pair *queue_pair);
void memory_post_write_immediate(struct nic_queue_pair *queue_pair,
                                 const struct nic_transfer *transfer, uint32_t flags);
void memory_post_write(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                       uint32_t flags);
void memory_post_read(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                      uint32_t flags);
void memory_ring_doorbell(struct nic_queue_pair *queue_pair);
/* Sets `severed` and `open` from what they depend on. */
void memory_queue_pair_update(struct memory_queue_pair *queue_pair);

/* completion.c. */
void memory_completion_queue_create(struct memory_completion_queue *queue, uint32_t capacity);
/* The completion of one send WQE: SEND, or ERROR for a status other than NIC_ERROR_NONE. */
void memory_complete_send(struct memory_queue_pair *queue_pair, uint32_t number,
                          enum nic_error status);
void memory_complete_receive(struct memory_queue_pair *queue_pair, uint32_t immediate,
                             uint32_t bytes);
/* Makes the completion of the oldest arrival. */
void memory_deliver_arrival(struct memory_queue_pair *queue_pair);
/* Forgets all completions of a queue pair, those under way too. */
void memory_completions_forget(struct memory_queue_pair *queue_pair);
uint32_t memory_poll(struct nic *nic, struct nic_completion *completions, uint32_t capacity);
void memory_refill(struct nic *nic);
int memory_arm(struct nic *nic);
void memory_disarm(struct nic *nic);

/* transfer.c: the rules of the wire, for both modes. */
/* Shows the watcher what is about to land, and lands it. */
void memory_land(struct memory_queue_pair *target, uint64_t address, const void *data,
                 uint32_t bytes);
/* Takes a receive for a WRITE that has landed; the target has one. */
void memory_arrive(struct memory_queue_pair *target, uint32_t immediate, uint32_t bytes);
/* The target has none for the WQE that executes: counts it, and fails it if that is wanted. */
void memory_receiver_not_ready(struct memory_queue_pair *queue_pair);
/* The WQE that executes has failed with `status`: nothing after it executes, and its queue pair
 * dies when it is acknowledged. */
void memory_execute_failed(struct memory_queue_pair *queue_pair, enum nic_error status);
/* The same with NIC_ERROR_REMOTE_ACCESS, of which the target dies at once. */
void memory_execute_refused(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target);
/* A WRITE of that opcode has landed whole at the target; false if it needs a receive, and there is
 * none. */
bool memory_landed(struct memory_queue_pair *target, const struct memory_wqe *wqe);
/* To the error state. What is outstanding will be flushed. */
void memory_die(struct memory_queue_pair *queue_pair);
/* The oldest WQE that is not acknowledged completes with this status, and the queue pair dies. */
void memory_fail_oldest(struct memory_queue_pair *queue_pair, enum nic_error status);
/* Completes the oldest WQE of a dead queue pair. */
void memory_flush_oldest(struct memory_queue_pair *queue_pair);
/* The oldest WQE is acknowledged, and needs its payload no more. On a dead queue pair this
 * overtakes `executed`, which means nothing any more there. */
void memory_acknowledged(struct memory_queue_pair *queue_pair);
void memory_payload_free(struct memory_wqe *wqe);
/* Immediate mode: everything that can execute and complete does. True if anything moved. */
bool memory_transfer_now(struct memory_queue_pair *queue_pair);
/* After anything that may give work to a queue pair or end it: immediate mode does it now,
 * scheduled mode puts the queue pair on the active list or takes it off. */
void memory_settle(struct memory_queue_pair *queue_pair);

/* schedule.c. */
void memory_active_update(struct memory_queue_pair *queue_pair);
void memory_active_remove(struct memory_queue_pair *queue_pair);
/* No answer comes: lets the lane wait, and fails the queue pair when that has been so for
 * retry_steps. True if it failed. */
bool memory_wait_for_answer(struct memory_queue_pair *queue_pair, enum memory_lane lane);

#endif

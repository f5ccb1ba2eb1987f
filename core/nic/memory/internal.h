/* internal.h: what the files of the in-memory NIC share. No other file includes it. What they work on is in
 * state.h. */
#ifndef CORE_NIC_MEMORY_INTERNAL_H
#define CORE_NIC_MEMORY_INTERNAL_H

#include "base/compiler.h"
#include "base/error.h"
#include "nic/memory/state.h"

static inline struct memory_nic *memory_nic(struct nic *nic)
{
    return container_of(nic, struct memory_nic, base);
}

static inline struct memory_domain *memory_domain(struct nic_domain *domain)
{
    return domain ? container_of(domain, struct memory_domain, base) : NULL;
}

static inline struct memory_queue_pair *memory_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct memory_queue_pair, base);
}

static inline struct memory_queue *memory_queue(struct nic_queue *queue)
{
    return container_of(queue, struct memory_queue, base);
}

static inline struct memory_wqe *memory_wqe(struct memory_queue_pair *queue_pair, uint32_t number)
{
    return &queue_pair->wqes[number & queue_pair->wqe_mask];
}

/* The receives that a WRITE with immediate to this queue pair takes one of. */
static inline uint32_t *memory_receives(struct memory_queue_pair *target)
{
    return target->nic->base.receive_queue_max ? &target->receives : &target->nic->receives;
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

/* How a packet identifies its sender. Hardware accepts every packet with the right queue pair
 * number and a fitting sequence number. If a number is used again, the sequence number
 * distinguishes the new queue pair from the old one. */
static inline uint64_t memory_identity(uint32_t number, uint32_t packet_sequence_number)
{
    return (uint64_t)number << 32 | packet_sequence_number;
}

/* Returns the queue pair at the other end, or NULL if it is gone or has another peer. */
static inline struct memory_queue_pair *memory_peer(const struct memory_queue_pair *queue_pair)
{
    const uint32_t number = (uint32_t)(queue_pair->peer_identity >> 32);
    struct memory_queue_pair *peer = queue_pair->fabric->by_number[number % NUMBER_SLOTS];

    /* Whoever has its key is a peer of a dynamic one. */
    if (likely(peer && peer->identity == queue_pair->peer_identity &&
               (peer->peer_identity == queue_pair->identity || peer->dynamic.pair))) {
        return peer;
    }
    return NULL;
}

/* Does the same, but only if packets reach it now and it accepts them. */
static inline struct memory_queue_pair *memory_reach(const struct memory_queue_pair *queue_pair)
{
    struct memory_queue_pair *peer = memory_peer(queue_pair);

    return likely(peer && peer->open && !queue_pair->severed) ? peer : NULL;
}

static inline bool memory_stalled(const struct memory_queue_pair *queue_pair)
{
    return queue_pair->fabric->now < queue_pair->stalled_until;
}

/* Returns the region in the slot of a key, or NULL. The region's own key may differ. */
static inline struct memory_region *memory_region_find(const struct memory_nic *nic, uint32_t key)
{
    const uint32_t slot = (key & ~REMOTE_KEY_BIT) >> 16;

    return likely(slot < nic->region_slots) ? nic->regions[slot] : NULL;
}

static inline bool memory_region_allows(const struct memory_region *region, uint64_t address,
                                        uint32_t bytes, uint32_t access)
{
    const uint64_t offset = address - region->address; /* huge if the address is too low */

    return offset <= region->bytes && bytes <= region->bytes - offset &&
           (region->access & access) == access;
}

/* region.c */
bool memory_window_allows(const struct memory_queue_pair *target,
                          const struct memory_region *window);

/* Returns true if the device may access this memory with this key for a WQE, or for a packet of the
 * peer, of this queue pair. Accessing 0 bytes is always allowed. */
static inline bool memory_allows_in(const struct memory_nic *nic,
                                    const struct memory_domain *domain, uint32_t local_key,
                                    uint64_t address, uint32_t bytes, uint32_t access)
{
    const struct memory_region *region = memory_region_find(nic, local_key);

    return (region && !region->window && region->shift == 0 && region->local_key == local_key &&
            region->domain == domain && memory_region_allows(region, address, bytes, access)) ||
           bytes == 0;
}

static inline bool memory_allows_local(const struct memory_queue_pair *queue_pair,
                                       uint32_t local_key, uint64_t address, uint32_t bytes,
                                       uint32_t access)
{
    return memory_allows_in(queue_pair->nic, queue_pair->own, local_key, address, bytes, access);
}

static inline bool memory_allows_remote(const struct memory_queue_pair *queue_pair,
                                        uint32_t remote_key, uint64_t address, uint32_t bytes,
                                        uint32_t access)
{
    const struct memory_region *region = memory_region_find(queue_pair->nic, remote_key);

    if (unlikely(queue_pair->withheld & access)) {
        return false;
    }
    return (region && region->remote_key == remote_key && region->domain == queue_pair->domain &&
            memory_region_allows(region, address, bytes, access) &&
            (!region->window || memory_window_allows(queue_pair, region))) ||
           bytes == 0;
}

/* Returns where a peer finds its bytes, of which there is at least one. It may access them. */
static inline uint8_t *memory_at(const struct memory_queue_pair *queue_pair, uint32_t remote_key,
                                 uint64_t address)
{
    return (uint8_t *)(uintptr_t)(address + memory_region_find(queue_pair->nic, remote_key)->shift);
}

static inline bool memory_datagrams(const struct memory_queue_pair *queue_pair)
{
    return queue_pair->queue && queue_pair->queue->base.kind == NIC_QUEUE_UD;
}

/* It takes the commands of a TM-SRQ. */
static inline bool memory_commands(const struct memory_queue_pair *queue_pair)
{
    return queue_pair->queue && queue_pair->queue->tags;
}

/* Needs no connection. */
static inline bool memory_local(const struct memory_wqe *wqe)
{
    return wqe->opcode == MEMORY_BIND || wqe->opcode == MEMORY_INVALIDATE ||
           wqe->opcode == MEMORY_NOP || wqe->opcode == MEMORY_DATAGRAM || wqe->opcode == MEMORY_TAG;
}

static inline bool memory_atomic(const struct memory_wqe *wqe)
{
    return wqe->opcode == MEMORY_COMPARE_SWAP || wqe->opcode == MEMORY_FETCH_ADD;
}

/* Checks in every build that callers keep the rules of nic.h. This NIC exists to find bugs. */
#define memory_require(condition, ...)                                                             \
    do {                                                                                           \
        if (unlikely(!(condition)))                                                                \
            memory_abort(__func__, __VA_ARGS__);                                                   \
    } while (0)

void memory_abort(const char *function, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* calloc that aborts if there is no memory. */
void *memory_allocate(size_t count, size_t bytes);

/* fabric.c: counts one call of this kind. Returns true, with *status and *error set, if it must
 * fail. */
bool memory_planned_failure(struct memory_fabric *fabric, enum memory_failure kind, int32_t *status,
                            crpc_error *error);
/* Returns a number for a new queue pair; 0 if none is left. */
uint32_t memory_number_take(struct memory_fabric *fabric);
void memory_number_give_back(struct memory_fabric *fabric, uint32_t number);

/* memory_nic.c. */
void memory_devices_default(struct memory_fabric_options *options);
/* Closes a nic with everything that is left on it. */
void memory_nic_free(struct memory_nic *nic);
int32_t memory_query(uint32_t index, crpc_device_info *info, crpc_error *error);
int32_t memory_open_default(const struct nic_options *options, struct nic **nic, crpc_error *error);
void memory_close(struct nic *nic);

/* domain.c. */
int32_t memory_domain_create(struct nic *nic, struct nic_domain **domain, crpc_error *error);
void memory_domain_destroy(struct nic_domain *domain);
void memory_domain_free(struct memory_nic *nic, struct memory_domain *domain);
/* Returns the domain, which has one user more; NULL for the nic's own. */
struct memory_domain *memory_domain_use(struct nic *nic, struct nic_domain *domain);
void memory_domain_leave(struct memory_domain *domain);

/* region.c. */
int32_t memory_register(struct nic *nic, struct nic_domain *domain, void *address, size_t bytes,
                        uint64_t remote_address, uint32_t access, struct nic_keys *memory,
                        crpc_error *error);
/* Any file that can be mapped works as a dma-buf. `address` is where the caller has mapped it. */
int32_t memory_register_dmabuf(struct nic *nic, struct nic_domain *domain, int fd, uint64_t offset,
                               size_t bytes, uint64_t address, uint32_t access,
                               struct nic_keys *memory, crpc_error *error);
void memory_deregister(struct nic *nic, struct nic_keys *memory);
void memory_region_free(struct memory_nic *nic, struct memory_region *region);
int32_t memory_window_create(struct nic *nic, struct nic_window *window, crpc_error *error);
void memory_window_destroy(struct nic *nic, struct nic_window *window);
/* Executes a bind or an invalidate. Returns false if the device refuses it. */
bool memory_window_execute(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe);
/* Ends the right of a window that is bound to this queue pair. Returns false if there is none. */
bool memory_window_invalidate(const struct memory_queue_pair *queue_pair, uint32_t key);
/* Returns how many windows are bound to a queue pair. */
uint32_t memory_windows_bound(const struct memory_queue_pair *queue_pair);

/* queue_pair.c. */
/* That of a queue with user data. With a send queue of `depth` WQEs, of which each has room for so much payload. */
int32_t memory_queue_pair_of_queue(struct nic *nic, struct nic_domain *domain, void *owner,
                                   uint32_t depth, uint32_t inline_bytes,
                                   struct nic_queue_pair **queue_pair, crpc_error *error);
int32_t memory_queue_pair_begin(struct nic *nic, void *owner, uint32_t depth, uint32_t receives,
                                struct nic_queue_pair **queue_pair, crpc_error *error);
int32_t memory_queue_pair_make(struct nic_queue_pair *queue_pair, struct nic_domain *domain,
                               crpc_error *error);
int32_t memory_queue_pair_adopt(struct nic_queue_pair *queue_pair, crpc_error *error);
void memory_queue_pair_settle(struct nic_queue_pair *queue_pair);
void memory_queue_pair_drop(struct nic_queue_pair *queue_pair);
void memory_queue_pair_unmake(struct nic_queue_pair *queue_pair);
int32_t memory_queue_pair_create_dynamic(struct nic *nic, struct nic_domain *domain, void *owner,
                                         uint64_t access_key, struct nic_queue_pair **queue_pair,
                                         crpc_error *error);
extern const struct nic_operations nic_memory_dynamic_operations;
bool memory_take_room(struct nic_queue_pair *queue_pair);
void memory_queue_pair_destroy(struct nic_queue_pair *queue_pair);
void memory_queue_pair_address(const struct nic_queue_pair *queue_pair,
                               struct nic_address *address);
/* Whether the port of memory<device> requires a GRH. */
bool memory_grh_required(const struct memory_fabric *fabric, uint32_t device);
int32_t memory_queue_pair_connect(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);
void memory_queue_pair_fail(struct nic_queue_pair *queue_pair);
uint32_t memory_post_written(struct nic_queue_pair *queue_pair, uint64_t remote_address,
                             uint32_t remote_key, uint32_t bytes, uint32_t immediate);
void memory_post_write_immediate(struct nic_queue_pair *queue_pair,
                                 const struct nic_transfer *transfer, uint32_t flags);
void memory_post_write(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                       uint32_t flags);
void memory_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                               uint32_t flags);
void memory_post_read(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                      uint32_t flags);
void memory_post_pieces(struct nic_queue_pair *queue_pair, bool read,
                        const struct nic_transfer *transfer, const struct nic_piece *pieces,
                        uint32_t count, uint32_t flags);
void memory_post_atomic(struct nic_queue_pair *queue_pair, const struct nic_atomic *atomic,
                        uint32_t flags);
void memory_fence_last(struct nic_queue_pair *queue_pair);
void memory_post_bind(struct nic_queue_pair *queue_pair, struct nic_window *window,
                      const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                      uint32_t flags);
void memory_post_invalidate(struct nic_queue_pair *queue_pair, struct nic_window *window,
                            uint32_t flags);
void memory_ring_doorbell(struct nic_queue_pair *queue_pair);
/* Updates `severed` and `open`. */
void memory_queue_pair_update(struct memory_queue_pair *queue_pair);

/* completion.c. */
void memory_completion_queue_create(struct memory_completion_queue *queue, uint32_t capacity);
/* Writes the completion of one send WQE: SEND, or ERROR for a status other than NIC_ERROR_NONE. */
void memory_complete_send(struct memory_queue_pair *queue_pair, uint32_t number,
                          enum nic_error status);
void memory_complete_receive(struct memory_queue_pair *queue_pair, uint32_t immediate,
                             uint32_t bytes, uint64_t covers);
/* Writes the completion of the oldest arrival. */
void memory_deliver_arrival(struct memory_queue_pair *queue_pair);
/* Discards all completions of a queue pair, including those under way. */
void memory_completions_forget(struct memory_queue_pair *queue_pair);
uint32_t memory_poll(struct nic *nic, struct nic_completion *completions, uint32_t capacity);
void memory_refill(struct nic *nic);
int memory_arm(struct nic *nic);
void memory_disarm(struct nic *nic);

/* pieces.c: the local memory of a WQE. */
bool memory_wqe_allows(const struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe,
                       uint32_t access);
void memory_wqe_gather(const struct memory_wqe *wqe, uint8_t *to);
/* Writes bytes [low, high) of `data` to where they belong. */
void memory_wqe_scatter(const struct memory_wqe *wqe, const uint8_t *data, uint32_t low,
                        uint32_t high);

/* queue.c: queues with user data. */
extern const struct nic_queue_operations memory_queue_operations;
void memory_queue_free(struct memory_queue *queue);

/* modify.c. */
int32_t memory_queue_modify(struct nic_queue *queue, const struct nic_queue_change *change,
                            crpc_error *error);

enum memory_taking {
    TAKING_READY,    /* there is a receive, and the message fits */
    TAKING_EMPTY,    /* there is none */
    TAKING_REFUSED,  /* the receive names memory that may not be used */
    TAKING_TOO_LONG, /* the message does not fit */
};

/* For a message of so many bytes at a queue; `payload` is that of a SEND over a connection, or NULL. Takes
 * a receive, or a buffer with a matching tag, unless it has one. */
enum memory_taking memory_queue_take(struct memory_queue_pair *target, uint32_t bytes,
                                     const uint8_t *payload);
/* Writes bytes [low, high) of a SEND's payload to the receive that it has taken. */
void memory_queue_land(struct memory_queue_pair *target, const uint8_t *data, uint32_t low,
                       uint32_t high);
/* The message with the receive that it has taken is complete. */
void memory_queue_arrive(struct memory_queue_pair *target, const struct memory_wqe *wqe);
/* Likewise at a DCT, from the DCI with this number. */
void memory_queue_arrive_from(struct memory_queue_pair *target, const struct memory_wqe *wqe,
                              uint32_t source);
/* Likewise a datagram, from the queue pair with this number. */
void memory_queue_arrive_datagram(struct memory_queue_pair *target, const struct memory_wqe *wqe,
                                  uint32_t source);
/* The receive that a message has taken completes with an error. */
void memory_queue_refuse(struct memory_queue_pair *target, enum nic_error status);
/* The queue pair has died: its own receives are flushed. */
void memory_queue_flush_receives(struct memory_queue_pair *queue_pair);
/* Returns true if the answer of an atomic may land here. */
static inline bool memory_atomic_allows(const struct memory_queue_pair *queue_pair,
                                        const struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;

    return queue_pair->queue ||
           memory_allows_local(queue_pair, transfer->local_key, transfer->local_address,
                               transfer->bytes, CRPC_ACCESS_LOCAL_WRITE);
}
/* Executes an atomic at the peer, and keeps what was there as its payload. False if it is refused. */
bool memory_atomic_execute(struct memory_queue_pair *target, struct memory_wqe *wqe);
/* Its answer has arrived. */
void memory_atomic_answer(struct memory_queue_pair *queue_pair, uint32_t number);

/* queue_completion.c. */
void memory_queue_complete_send(struct memory_queue_pair *queue_pair, uint32_t number,
                                enum nic_error status);
void memory_queue_complete_receive(struct memory_queue_pair *queue_pair,
                                   const struct memory_arrival *arrival, enum nic_error status);
void memory_queue_completions_forget(struct memory_queue *queue);
uint32_t memory_queue_poll(struct nic *nic, crpc_completion *completions, uint32_t capacity,
                           uint32_t *errors);

/* completion.c: for whoever has armed. */
void memory_event(struct memory_nic *nic);

/* transfer.c: the rules of transfers, for both modes. */
/* Calls the watcher, and then writes the data. */
void memory_land(struct memory_queue_pair *target, uint32_t remote_key, uint64_t address,
                 const void *data, uint32_t bytes);
/* Takes a receive for a WRITE that was written. The target must have one. */
void memory_arrive(struct memory_queue_pair *target, uint32_t immediate, uint32_t bytes);
/* The target has no receive for the executing WQE. Counts that, and fails the WQE if the options
 * say so. */
void memory_receiver_not_ready(struct memory_queue_pair *queue_pair);
/* The executing WQE has failed with `status`. Nothing after it executes, and its queue pair dies
 * when the WQE is acknowledged. */
void memory_execute_failed(struct memory_queue_pair *queue_pair, enum nic_error status);
/* The executing WQE has failed with NIC_ERROR_REMOTE_ACCESS. The target dies at once. */
void memory_execute_refused(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target);
/* Ends the right that the executing SEND invalidates, if it does. Returns false if that is refused. */
bool memory_send_invalidate(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                            const struct memory_wqe *wqe);
/* A WRITE was written completely at the target. Returns false if it needs a receive and there is
 * none. */
bool memory_landed(struct memory_queue_pair *target, const struct memory_wqe *wqe);
/* Moves a queue pair to the error state. Its pending WQEs will be flushed. */
void memory_die(struct memory_queue_pair *queue_pair);
/* Completes the oldest unacknowledged WQE with this status. The queue pair dies. */
void memory_fail_oldest(struct memory_queue_pair *queue_pair, enum nic_error status);
/* Completes the oldest WQE of a dead queue pair. */
void memory_flush_oldest(struct memory_queue_pair *queue_pair);
/* Acknowledges the oldest WQE, and frees its payload. On a dead queue pair, `acknowledged` can
 * overtake `executed`, which has no meaning any more. */
void memory_acknowledged(struct memory_queue_pair *queue_pair);
void memory_payload_free(struct memory_wqe *wqe);
/* Immediate mode: executes and completes everything that can. Returns true if anything moved. */
bool memory_transfer_now(struct memory_queue_pair *queue_pair);
/* Executes the next WQE, which needs no peer. */
void memory_execute_local(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe);
/* Must be called after everything that can give work to a queue pair or end its work. Immediate
 * mode does the work now. Scheduled mode puts the queue pair on the active list or takes it off. */
void memory_settle(struct memory_queue_pair *queue_pair);

/* relaxed.c. */
/* What lands at `to`, of this key of the target, may be late: returns true if it is, and keeps a copy. */
bool memory_hold(struct memory_queue_pair *target, uint32_t remote_key, void *to, const void *data,
                 uint32_t bytes);
/* Writes what was held before fabric->held_order had this value; UINT64_MAX: all. */
void memory_held_land(struct memory_queue_pair *target, uint64_t before);
/* All that queue pairs of the nic hold. */
void memory_held_land_all(struct memory_nic *nic);
/* Frees what is held, when nobody keeps the memory any more. */
void memory_held_drop(struct memory_queue_pair *target);

/* timed.c. For what was rung since `from`: sets when it may execute. The fabric has a clock. */
void memory_timed_ring(struct memory_queue_pair *queue_pair, uint32_t from);
/* Returns true if that is later. */
bool memory_timed_waits(const struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe);

/* schedule.c. */
void memory_active_update(struct memory_queue_pair *queue_pair);
void memory_active_remove(struct memory_queue_pair *queue_pair);
/* Makes the lane wait because there is no answer. Fails the queue pair when that has lasted for
 * retry_steps. Returns true if it failed. */
bool memory_wait_for_answer(struct memory_queue_pair *queue_pair, enum memory_lane lane);

#endif

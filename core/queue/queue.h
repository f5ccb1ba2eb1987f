/* queue.h: the interface of the queue engine, for capi and the tests. A queue gives a program a queue
 * of its NIC: it submits arrays of ops, and gets back the user data of each. docs/design.md,
 * section 13, explains how.
 *
 * An engine belongs to one context, and only one thread at a time may use it. capi has checked the
 * arguments; the engine only asserts them, except in release builds. The engine itself checks what
 * peers and the device send.
 *
 * Kinds (enum nic_queue_kind):
 *
 *   NIC_QUEUE_RC   a queue pair with one peer. It is a link, made by link_connect, link_blob or a
 *                  listener of queue_links
 *   NIC_QUEUE_SRQ  receives for many RC, UD and DCT queues, made by queue_open. It has no peer
 *   NIC_QUEUE_TM_SRQ  the same for RC queues alone, and buffers with tags (nic/tags.h)
 *   NIC_QUEUE_UD   datagrams: each op that sends names a target. Made by queue_open. It has no peer
 *   NIC_QUEUE_DCI  sends: each op names a target, which is a DCT. Likewise
 *   NIC_QUEUE_DCT  takes what DCIs send. Likewise
 *
 * Each accepted op completes exactly once, whatever becomes of its queue, unless the engine is
 * destroyed. */
#ifndef CORE_QUEUE_QUEUE_H
#define CORE_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/handles.h"
#include "base/log.h"
#include "nic/nic.h"
#include "nic/queue.h"

struct cm;
struct link;
struct link_group;
struct queue;
struct queue_engine;
struct queue_target;

/* ---- Engine ---------------------------------------------------------------------------------- */

/* Creates an engine. nic, cm (NULL: no rdma_cm), log and handles stay the caller's, and must outlive
 * the engine. `beside` is NULL, or the links of another engine with the same cm, which must outlive
 * this one: whichever polls the cm, both hear of the device's events, and only `beside` reports them
 * (CRPC_COMPLETION_DEVICE). virtual_clock_ns is NULL, or points to the time of a simulation. Returns
 * CRPC_OK; CRPC_E_UNSUPPORTED (the driver has no queues), CRPC_E_NO_MEMORY. */
int32_t queue_engine_create(struct nic *nic, struct cm *cm, struct log *log,
                            struct handles *handles, uint32_t queues_max, struct link_group *beside,
                            const uint64_t *virtual_clock_ns, struct queue_engine **engine,
                            crpc_error *error);
/* Closes everything that is still open, and frees the engine. What is open completes no more. */
void queue_engine_destroy(struct queue_engine *engine);
/* Returns how many queues there are, with those that were closed and still give completions, and how many
 * there can be. */
uint32_t queue_engine_queues(const struct queue_engine *engine);
uint32_t queue_engine_queues_max(const struct queue_engine *engine);

/* ---- Data path ------------------------------------------------------------------------------- */

/* Accepts ops that send, in order, and returns how many; if these are fewer than `count`, *reason says
 * why the next one was not accepted, and nothing of it has changed. local_keys[i] is that of works[i],
 * unless it has pieces (NIC_WORK_PIECES), which are in `pieces` with their keys. The ops are such as
 * nic_queue_operations.post demands, but the queue may be in any state. `count` may be 0. The device
 * gets them with queue_submit_end.
 *
 *   CRPC_E_AGAIN         there is no room; CRPC_COMPLETION_ROOM follows
 *   CRPC_E_STATE         not connected yet
 *   CRPC_E_UNSUPPORTED   the queue sends nothing: an SRQ or DCT, or made with no `sends`
 *   CRPC_E_CLOSING       after queue_drain
 *   CRPC_E_DISCONNECTED  the queue is in the error state, or its connection has ended */
uint32_t queue_submit(struct queue *queue, const struct nic_work *works, const uint32_t *local_keys,
                      const struct nic_piece *pieces, uint32_t count, int32_t *reason);
/* The same for a UD queue or DCI, for which the one above is not: works[i] goes to targets[i], which
 * queue_target_nic has given. */
uint32_t queue_submit_to(struct queue *queue, const struct nic_work *works,
                         struct nic_target *const *targets, const uint32_t *local_keys,
                         const struct nic_piece *pieces, uint32_t count, int32_t *reason);
/* The same for ops with the opcode NIC_RECEIVE, of which only user_data, the flag NIC_WORK_PIECES and
 * the local memory count. A queue accepts them as soon as it is made, so that what the peer sends first
 * finds a receive; a queue that waits to be accepted is not made yet.
 *
 *   CRPC_E_AGAIN         there is no room; CRPC_COMPLETION_ROOM follows
 *   CRPC_E_STATE         it waits to be accepted
 *   CRPC_E_UNSUPPORTED   it has no receives of its own
 *   CRPC_E_DISCONNECTED  as above */
uint32_t queue_receive(struct queue *queue, const struct nic_work *works,
                       const uint32_t *local_keys, const struct nic_piece *pieces, uint32_t count,
                       int32_t *reason);
/* The same for ops of a TM-SRQ with the opcode NIC_TAG_*, which have no pieces. A NIC_TAG_SYNC says that the
 * application has looked at all messages that polls have returned; its immediate is 0.
 *
 *   CRPC_E_AGAIN         TAG_ADD: there are as many tags as there may be; or too many commands are under
 *                        way. CRPC_COMPLETION_ROOM follows
 *   CRPC_E_UNSUPPORTED   it is no TM-SRQ
 *   CRPC_E_DISCONNECTED  the device is lost, or has failed a command */
uint32_t queue_tag(struct queue *queue, const struct nic_work *works, const uint32_t *local_keys,
                   uint32_t count, int32_t *reason);
/* Gives the device what these have accepted: after the last op of a series,
 * also if none of it was accepted. */
void queue_submit_end(struct queue *queue);

/* Fills up to `capacity` completions, and returns how many. They are such as nic/queue.h says, with
 * CRPC_E_* as status:
 *
 *   CRPC_E_ACCESS        the peer's device refused the address, key or right
 *   CRPC_E_NOT_READY     the peer had no receive
 *   CRPC_E_FLUSHED       the queue failed before; the op may have been done
 *   CRPC_E_DEVICE        a device refused the op; reply_bytes_max has the vendor's syndrome
 *   CRPC_E_DISCONNECTED  the peer's device does not answer; the op may have been done
 *   CRPC_E_TRUNCATED     a receive was shorter than the message
 *   CRPC_E_CLOSED        the queue was closed; the op may have been done
 *   CRPC_E_NO_DEVICE     the device is lost
 *   CRPC_E_CANCELED      a TAG_ADD: a TAG_REMOVE has taken it back
 *   CRPC_E_NOT_FOUND     a TAG_REMOVE: no such buffer was left. A message has matched it, or it never was
 *
 * Events of links have the flag NIC_DONE_OF_QUEUE. CONNECTED comes before the first completion of its
 * queue, DISCONNECTED after the last. */
uint32_t queue_poll(struct queue_engine *engine, crpc_completion *completions, uint32_t capacity);

/* Looks at the device, and keeps a few completions for the next poll, so that queue_something_waits
 * knows of them. */
void queue_progress(struct queue_engine *engine);
/* Returns true if queue_poll would return something even if nothing new arrives. */
bool queue_something_waits(const struct queue_engine *engine);
/* Returns the latest time (CLOCK_MONOTONIC) at which queue_poll must be called; UINT64_MAX = never. */
uint64_t queue_next_deadline_ns(const struct queue_engine *engine);

/* ---- Queues ---------------------------------------------------------------------------------- */

#define QUEUE_SPARSE 0x1u        /* only ops with NIC_WORK_SIGNAL complete, and others that fail */
#define QUEUE_SEQUENCE_ZERO 0x2u /* RC: nic_queue_options.sequence_zero */

#define QUEUE_REQUEST_BYTES_MAX 56u /* private data of a connect request */
#define QUEUE_ACCEPT_BYTES_MAX 196u
#define QUEUE_REJECT_BYTES_MAX 148u

/* No zero means a default, but where it says so. */
struct queue_options {
    uint32_t kind;  /* enum nic_queue_kind */
    uint32_t flags; /* QUEUE_* */
    uint64_t user_data;
    struct queue *receive_queue; /* an SRQ whose handle is valid; NULL = receives of its own */
    uint32_t sends;              /* as in struct nic_queue_options, from here ... */
    uint32_t send_pieces;
    uint32_t inline_bytes;
    uint32_t receives;
    uint32_t receive_pieces;
    uint32_t queue_key;
    uint32_t streams; /* any number: whether the device has them is checked */
    uint32_t stream_failures_max;
    uint32_t tags;
    uint64_t access_key; /* ... to here */
    /* As in `sends`, of a queue whose ops name no target; the engine sets it, for queue_limits. */
    uint32_t peer_sends;

    /* RC and DCI: */
    uint32_t retry_timeout; /* n: resend after 4.096 us * 2^n; 1..31 */
    uint32_t retry_count;   /* 1..7 */
    uint32_t rnr_tries;     /* to a peer without a receive, 1..7; 0 = for ever */
    uint32_t reads_max; /* READs and atomics under way at once, up to 255; 0 = NIC_READ_DEPTH; the
                               device and the peer may lower it */
    /* RC only: */
    uint64_t connect_timeout_ns;
    uint32_t not_ready_timer; /* as in struct nic_transport */
    uint32_t
        private_bytes; /* for the peer, if connected by rdma_cm; at most QUEUE_REQUEST_BYTES_MAX
                               to connect, QUEUE_ACCEPT_BYTES_MAX to accept */
    uint8_t private_data[QUEUE_ACCEPT_BYTES_MAX];
};

/* Returns the links of the engine, for link_connect, link_accept, link_blob, link_join and
 * link_listener_open. Their options are struct queue_options of the kind RC. Each link is the first
 * member of a struct queue, and the object of its handle (HANDLE_QUEUE). Over rdma_cm, the other side
 * may be any program: the private data is the application's, and there is neither a hello nor a
 * keepalive. Whatever else link.h has to end links has a function here. */
struct link_group *queue_links(struct queue_engine *engine);
struct link *queue_link(struct queue *queue);
/* Returns the queue of a handle's object, or of a link of queue_links. */
struct queue *queue_of_link(struct link *link);

/* Makes a queue that has no peer: of any kind but RC. It is usable at once, and has no events but ROOM, and
 * DISCONNECTED when the device is lost, or when it has failed or was drained; of an SRQ only the former.
 * Returns CRPC_OK; CRPC_E_UNSUPPORTED (the device has no DC, not so many streams, or no tags), CRPC_E_NO_DEVICE,
 * CRPC_E_NO_RESOURCE, and what the driver says. */
int32_t queue_open(struct queue_engine *engine, const struct queue_options *options,
                   struct queue **queue, crpc_error *error);
/* Connects a queue made by link_blob to a queue pair of any program, whose address came in another
 * way than a blob. CONNECTED follows. The address comes from a peer, and is checked. Returns CRPC_OK;
 * CRPC_E_STATE, CRPC_E_PROTOCOL (no queue pair can have it), CRPC_E_UNREACHABLE. */
int32_t queue_join_address(struct queue *queue, const struct nic_address *address,
                           crpc_error *error);
/* Rejects a connect request with private data, at most QUEUE_REJECT_BYTES_MAX bytes, and makes its
 * handle stale. Returns CRPC_OK; CRPC_E_STATE: it is no connect request. */
int32_t queue_reject(struct queue *queue, const void *private_data, uint32_t private_bytes);

/* Moves a connected queue, or one without a peer, to the error state: what is open completes with
 * CRPC_E_FLUSHED, then DISCONNECTED. Returns CRPC_OK; CRPC_E_STATE: it is not connected, or has failed;
 * CRPC_E_UNSUPPORTED: an SRQ. */
int32_t queue_fail(struct queue *queue);
/* Refuses new sends. When all have completed, or after timeout_ns (CRPC_FOREVER: no limit), it
 * disconnects; receives are flushed, and DISCONNECTED is last. Returns as queue_fail. */
int32_t queue_drain(struct queue *queue, uint64_t timeout_ns);
/* Makes the handle stale. Open ops complete with CRPC_E_CLOSED in the next polls, also those that the
 * device has done since the last one. A connect request is rejected. Returns CRPC_OK; CRPC_E_BUSY:
 * queues use this SRQ that are neither closed nor disconnected. */
int32_t queue_close(struct queue *queue);
/* Makes a stream of a DCI that has failed usable again. Returns CRPC_OK, also if it has not failed;
 * CRPC_E_UNSUPPORTED: the queue has no streams; CRPC_E_INVALID: it has not this one; CRPC_E_STATE: it has
 * failed or ended; CRPC_E_BUSY: ops of the stream have not completed; CRPC_E_SYSTEM, and the stream is as it
 * was. *error then says why. */
int32_t queue_reset_stream(struct queue *queue, uint32_t stream, crpc_error *error);

/* ---- Changing -------------------------------------------------------------------------------- */

/* Changes a queue that is in use. The mask has bits of its kind alone. A queue of link_blob that is not
 * connected yet will be connected with the new values, and all of them may change; afterwards, what the
 * device lets change. Returns CRPC_OK; CRPC_E_UNSUPPORTED (the device), CRPC_E_STATE (it waits to be accepted,
 * or is being connected), CRPC_E_DISCONNECTED (it has ended), or what the device says. After an error,
 * nothing has changed. */
int32_t queue_modify(struct queue *queue, const struct nic_queue_change *change, crpc_error *error);

/* When a message has taken a receive of an SRQ or TM-SRQ, and left fewer than the limit, CRPC_COMPLETION_SRQ_LIMIT
 * follows, once for each time that the limit was set. One that was set before may come later than its
 * successor was set. After a limit of 0, none comes. */

struct queue_info {
    uint32_t kind;
    uint32_t state; /* CRPC_STATE_*; of one without a peer CONNECTED, as long as it has not ended */
    uint64_t handle;
    uint64_t user_data;
    uint32_t number;      /* of the queue pair; 0 = none yet */
    uint32_t peer_number; /* 0 = not connected */
    /* Of this side, as queue_join_address of the other side takes it; all zero if there is no queue
     * pair, or no more. */
    struct nic_address address;
    uint32_t sends; /* as asked for */
    uint32_t send_pieces;
    uint32_t inline_bytes;
    uint32_t receives;
    uint32_t receive_pieces;
    uint32_t sends_open; /* positions in use: an op takes one or several */
    uint32_t receives_open;
    /* As they were set last: of an RC queue ... */
    uint32_t not_ready_timer;
    uint32_t access;
    uint32_t retry_timeout;
    uint32_t retry_count;
    uint32_t rnr_tries;
    uint32_t queue_key;     /* ... of a UD queue ... */
    uint32_t srq_limit;     /* ... of an SRQ */
    uint32_t users;         /* of an SRQ: those for which queue_close would be CRPC_E_BUSY */
    uint64_t receive_queue; /* handle of its SRQ; 0 = none */
    uint32_t streams;       /* as asked for */
    uint32_t streams_failed;
    uint32_t tags;      /* as asked for */
    uint32_t tags_open; /* TAG_ADDs that have not completed */
    /* What the peer has sent by rdma_cm, with its request, answer or rejection. The network can have
     * added zeros. */
    uint32_t private_bytes;
    uint8_t private_data[QUEUE_ACCEPT_BYTES_MAX];
    char peer_address[64]; /* of rdma_cm, or "" */
    char local_address[64];
};

void queue_get_info(const struct queue *queue, struct queue_info *info);
/* Returns the options with which it was made, without private data: what capi checks ops against. All
 * zero while it waits to be accepted. */
const struct queue_options *queue_limits(const struct queue *queue);
void queue_get_stats(const struct queue *queue, struct nic_queue_stats *stats);
/* Why it failed; status CRPC_OK: it has not. */
void queue_get_error(const struct queue *queue, crpc_error *error);

/* ---- Targets --------------------------------------------------------------------------------- */

/* Makes a target: a queue pair to which ops of this engine's queues can go. It is the object of a handle
 * (HANDLE_TARGET). The address comes from a peer, and is checked. May block while the system finds the way.
 * Returns CRPC_OK; CRPC_E_PROTOCOL (no queue pair can have this address), CRPC_E_UNREACHABLE,
 * CRPC_E_UNSUPPORTED (the device has no DC), CRPC_E_NO_DEVICE, CRPC_E_NO_MEMORY. */
int32_t queue_target_open(struct queue_engine *engine, const struct nic_target_options *options,
                          struct queue_target **target, crpc_error *error);
/* Makes a target for an answer to the datagram of this completion, a receive of a UD queue of the engine:
 * with the queue's own key. `header` is what precedes the message; it comes from the network. Returns the
 * same. */
int32_t queue_target_of(struct queue *queue, const crpc_completion *completion,
                        const uint8_t header[NIC_DATAGRAM_HEADER_BYTES],
                        struct queue_target **target, crpc_error *error);
/* Makes the handle stale. Ops that name the target go on. */
void queue_target_close(struct queue_target *target);
uint64_t queue_target_handle(const struct queue_target *target);
/* Returns what it was made of. */
const struct nic_target_options *queue_target_options(const struct queue_target *target);
/* For queue_submit_to: valid until the target is closed. A target begins with it, for the data path. */
static inline struct nic_target *queue_target_nic(const struct queue_target *target)
{
    return *(struct nic_target *const *)(const void *)target;
}

#endif

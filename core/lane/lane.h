/* lane.h: a lane is the second queue pair of a connection, for one-sided ops to memory that the other
 * side has granted. docs/lanes.md says what it is for, and docs/wire.md what goes over it.
 *
 * The service that makes a lane exchanges its address and its messages with the peer. What is here is
 * the queue pair, its ops, the grants of both sides, and who may still use them.
 *
 *   lane.c    the queue pair and its ops
 *   grant.c   grants: given, revoked, taken; their bytes
 *
 * A lane is in the nic's own protection domain, with the regions. Its peer reaches what it was granted, by
 * memory windows that are bound to this queue pair, and what the registrations of that domain let every
 * peer reach.
 *
 * Each accepted op completes exactly once, unless the lane is destroyed. Only one thread at a time uses a
 * lane. The caller has checked its arguments; what a peer says is checked here. */
#ifndef CORE_LANE_LANE_H
#define CORE_LANE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/handles.h"
#include "base/output.h"
#include "base/wheel.h"
#include "nic/nic.h"
#include "nic/queue.h"

struct lane;

/* Grants that a side has given and not revoked. */
#define LANE_GRANTS_MAX 1024u
#define LANE_GRANT_BYTES 48u
/* Of memory. libmlx5 cuts longer windows off silently. */
#define LANE_GRANT_LENGTH_MAX (1u << 31)

/* ---- Life ------------------------------------------------------------------------------------ */

/* The numbers of both sides. A grant has them, so no other connection takes it for one of its own. */
struct lane_identity {
    uint32_t own;
    uint32_t peer;
    uint32_t life; /* how often the two sides have made their lane */
};

struct lane_options {
    uint64_t handle; /* completions show both */
    uint64_t user_data;
    uint32_t timer_kind; /* of the timers of grants */
    uint32_t depth;      /* ops that may be open: as nic.h's nic_queue_pair_create_deep */
};

/* Makes a lane with a queue pair that is to be connected. nic and handles stay the
 * caller's, and must outlive it. Returns CRPC_OK, or fills *error and returns its status. */
int32_t lane_create(struct nic *nic, struct handles *handles, const struct lane_options *options,
                    struct lane **lane, crpc_error *error);
/* Frees a lane. What is open gets no completion, and all handles of grants become stale. None of its
 * timers may be set: lane_stop has been called, or no grant was revoked. NULL is allowed. */
void lane_destroy(struct lane *lane);
/* For whoever connects it, and looks for it by its number; NULL after lane_stop. */
struct nic_queue_pair *lane_queue_pair(const struct lane *lane);
/* As in its options. */
uint64_t lane_handle(const struct lane *lane);
/* Both sides are connected: ops are possible. */
void lane_open(struct lane *lane, const struct lane_identity *identity);
/* Returns true between lane_open and lane_stop. */
bool lane_is_open(const struct lane *lane);
/* Destroys the queue pair. All rights of the peer end, and all grants of both sides. What is open completes
 * with `status`; a REVOKE with CRPC_OK, since the right has ended. `wheel` has the timers of grants. Does
 * nothing the second time. */
void lane_stop(struct lane *lane, struct wheel *wheel, int32_t status);
/* Makes a lane anew that was stopped, and of which no op is open: with another queue pair, which is to be
 * connected and opened with another life. Grants of the life before stay ended. Returns as lane_create; after
 * an error it is as before. */
int32_t lane_renew(struct lane *lane, crpc_error *error);

/* ---- Ops ------------------------------------------------------------------------------------- */

enum lane_opcode {
    LANE_WRITE = 1,
    LANE_READ,
    LANE_COMPARE_SWAP,
    LANE_FETCH_ADD,
    LANE_GRANT,
    LANE_REVOKE,
};

/* A transfer: LANE_WRITE to LANE_FETCH_ADD. */
struct lane_op {
    uint8_t opcode;
    bool fence; /* begins when all READs and atomics before it have ended */
    /* WRITE: lane_post copies the payload, at most nic->inline_bytes_max; no local keys */
    bool copied;
    /* of `pieces`, at most nic->pieces_max; 0 = one range, that of local_address */
    uint8_t piece_count;
    uint32_t bytes; /* in all */
    uint32_t local_key;
    uint32_t remote_key;
    /* WRITE, READ. A short WRITE of one range may be copied by the processor. */
    uint64_t local_address;
    uint64_t remote_address;
    uint64_t compare; /* COMPARE_SWAP */
    uint64_t operand; /* the new value, or what is added */
    uint64_t user_data;
    const struct nic_piece *pieces; /* nobody looks at them after lane_post */
};

/* Accepts transfers in order as long as there is room, and returns how many. The lane is open. The device
 * gets them at once. */
uint32_t lane_post(struct lane *lane, const struct lane_op *ops, uint32_t count);
/* Returns how many transfers there is room for. */
uint32_t lane_room(const struct lane *lane);

/* The device has done all send WQEs before number `completed`. */
void lane_completed(struct lane *lane, uint32_t completed);
/* An error completion of the device: what was done completes with success, the op that failed with what the
 * device says. The caller then calls lane_stop, which ends the rest. */
void lane_device_failed(struct lane *lane, const struct nic_completion *completion);

/* A point in the order of the lane's transfers, GRANTs included: behind all that were accepted. */
uint32_t lane_mark(const struct lane *lane);
/* Returns true if all before the mark have completed. */
bool lane_reached(const struct lane *lane, uint32_t mark);

/* Writes completions of ops that have ended, of kind CRPC_COMPLETION_WORK. */
void lane_emit(struct lane *lane, struct output *output);
/* Returns true if lane_emit has something to write. */
bool lane_something_waits(const struct lane *lane);
/* Returns true if an op has got no completion yet. */
bool lane_has_open(const struct lane *lane);

/* ---- Grants ---------------------------------------------------------------------------------- */

/* What a handle of the kind HANDLE_GRANT names: a grant of this side, or one of the peer that was
 * opened. */
struct lane_grant {
    struct lane *lane;
    uint64_t handle;
    uint64_t serial;
    uint64_t address;
    uint32_t bytes;
    uint32_t access; /* CRPC_ACCESS_REMOTE_* */
    uint32_t key;
    uint32_t life; /* of the lane */
    bool given;    /* by this side */
};

/* Memory that is to be granted. It stays registered until the grant has ended: *users counts the grants of
 * it, and the caller keeps it for so long. */
struct lane_memory {
    const struct nic_keys *keys; /* registered for windows, in the nic's own domain */
    uint32_t *users;
    uint64_t address;
    uint32_t bytes;  /* 1 to LANE_GRANT_LENGTH_MAX */
    uint32_t access; /* CRPC_ACCESS_REMOTE_*, at least one, which its registration allows */
};

/* The op GRANT. When it completes with CRPC_OK, the peer may use the memory, and its token is the handle of
 * a grant. Makes a window at the first use of a place, which is a system call. Returns CRPC_OK;
 * CRPC_E_UNSUPPORTED: the nic has no windows; CRPC_E_AGAIN: the send queue is full; CRPC_E_NO_RESOURCE: there are LANE_GRANTS_MAX; CRPC_E_NO_MEMORY and
 * other errors of the device. */
int32_t lane_give(struct lane *lane, const struct lane_memory *memory, uint64_t user_data);
/* The op REVOKE of a grant of this side, which has completed. Its handle becomes stale at once. The peer is
 * asked first (lane_revoke_due), and the right ends when it has answered, or at `deadline_ns` (UINT64_MAX:
 * none) if that is earlier: then it has ended when the op completes. */
void lane_revoke(struct lane_grant *grant, uint64_t user_data, struct wheel *wheel,
                 uint64_t deadline_ns);
/* A timer of the kind of the options has expired. Returns its lane. */
struct lane *lane_timer(struct wheel_timer *timer);

/* Writes the LANE_GRANT_BYTES of a grant that has completed, for the peer. */
void lane_grant_write(const struct lane_grant *grant, uint8_t bytes[LANE_GRANT_BYTES]);
/* Reads those of the peer, which any program may have written, and makes a handle of them. Returns CRPC_OK;
 * CRPC_E_PROTOCOL (they are none, or damaged), CRPC_E_STALE (of another connection, or revoked),
 * CRPC_E_NO_MEMORY; *error says more. */
int32_t lane_take(struct lane *lane, const void *bytes, uint32_t count, struct lane_grant **grant,
                  crpc_error *error);
/* Returns true if lane_revoke and lane_grant_write are possible. */
bool lane_grant_revocable(const struct lane_grant *grant);
/* Makes the handle of a peer's grant stale. Ops that were accepted are not concerned. */
void lane_forget(struct lane_grant *grant);
/* Returns true if the peer has revoked its grant, or the lane is no more. */
bool lane_grant_over(const struct lane_grant *grant);

/* ---- What the two sides tell each other ------------------------------------------------------ */

/* Returns true if the peer is to be told that this grant is revoked. One is, at a time. */
bool lane_revoke_due(const struct lane *lane);
uint64_t lane_revoke_say(struct lane *lane);
/* The peer has answered. Returns NULL, or why that cannot be. */
const char *lane_take_answer(struct lane *lane, uint64_t serial, struct wheel *wheel);
/* The peer has revoked a grant. From now on no op is accepted for it. Returns NULL, or why that cannot
 * be. */
const char *lane_take_revoke(struct lane *lane, uint64_t serial);
/* Returns true if the peer is to be told that nothing of this side uses the grant any more. */
bool lane_answer_due(const struct lane *lane);
uint64_t lane_answer_say(struct lane *lane);
/* Returns true if the peer waits for that, now or when the ops that may use the grant have ended. */
bool lane_answer_owed(const struct lane *lane);

#endif

/* rpc.h: the interface of the RPC engine, for capi and the tests. docs/design.md explains how the
 * engine works.
 *
 * An engine belongs to one context, and only one thread at a time may use it. capi has checked the
 * arguments; the engine only asserts them, except in release builds. The engine itself checks what
 * peers send (receive.c, endpoint.c).
 */
#ifndef CORE_RPC_RPC_H
#define CORE_RPC_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/handles.h"
#include "base/list.h"
#include "base/log.h"
#include "nic/nic.h"

struct cm;
struct rpc_engine;
struct rpc_endpoint;
struct lane_grant;
struct lane_memory;
struct lane_op;
struct link;
struct link_group;
struct metrics;
struct metrics_group;

/* ---- Engine ---------------------------------------------------------------------------------- */

/* Creates an engine. nic, cm (NULL: no rdma_cm), log and handles stay the caller's, and must
 * outlive the engine. virtual_clock_ns is NULL, or points to the time of a simulation. */
int32_t rpc_engine_create(struct nic *nic, struct cm *cm, struct log *log, struct handles *handles,
                          uint32_t endpoints_max, const uint64_t *virtual_clock_ns,
                          struct rpc_engine **engine, crpc_error *error);
/* Closes everything that is still open, and frees the engine. */
void rpc_engine_destroy(struct rpc_engine *engine);

/* Begins to measure, before there are endpoints: metrics.h. CRPC_E_NO_MEMORY: there is none. */
int32_t rpc_engine_measure(struct rpc_engine *engine);
/* NULL = it does not measure. */
struct metrics *rpc_engine_metrics(const struct rpc_engine *engine);
/* The time of this call of the API: the clock is read once for all. */
uint64_t rpc_engine_now_ns(struct rpc_engine *engine);
/* The series of an endpoint; NULL = none. */
struct metrics_group *rpc_endpoint_metrics(const struct rpc_endpoint *endpoint);
/* Returns the next endpoint, or the first: `endpoint` NULL. NULL = there is none. Those that are closed are among them until they are gone. */
struct rpc_endpoint *rpc_engine_next(const struct rpc_engine *engine,
                                     const struct rpc_endpoint *endpoint);
uint64_t rpc_endpoint_handle(const struct rpc_endpoint *endpoint);
/* The op of a reservation that is open; otherwise NULL. */
crpc_op *rpc_reserved(struct rpc_endpoint *endpoint);
uint32_t rpc_engine_endpoints(const struct rpc_engine *engine);
uint32_t rpc_engine_endpoints_max(const struct rpc_engine *engine);
uint32_t rpc_engine_window_left(const struct rpc_engine *engine);
void rpc_engine_stats(const struct rpc_engine *engine, crpc_stats *stats);

/* ---- Data path ------------------------------------------------------------------------------- */

/* Each accepts one op and returns CRPC_OK, or returns the reason and changes nothing. `payload` has
 * op->payload_bytes bytes. The caller calls rpc_submit_end after the last op of a series. */
int32_t rpc_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
int32_t rpc_reply(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
/* The same and rpc_submit_end, for an op that is a series by itself: a valid CALL, or a valid REPLY that is quiet. Return how many were accepted, and why no more: in *reason,
 * unless it is NULL. */
uint32_t rpc_call_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                        int32_t *reason);
uint32_t rpc_reply_alone(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload,
                         int32_t *reason);
/* Accept ops from the first on, up to one that is not of this kind, not to the first one's endpoint, not valid (op.h), or not
 * possible now. count is at least 1. The payloads are at their offsets from `payload`, within payload_bytes. Each returns how
 * many it has accepted. rpc_call, or rpc_reply, says why the next one is not possible. */
uint32_t rpc_calls(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                   const uint8_t *payload, uint64_t payload_bytes);
uint32_t rpc_replies(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                     const uint8_t *payload, uint64_t payload_bytes);
int32_t rpc_drop(struct rpc_endpoint *endpoint, const crpc_op *op);
int32_t rpc_cancel(struct rpc_endpoint *endpoint, const crpc_op *op);
/* Sends batches that have nothing to wait for. */
void rpc_submit_end(struct rpc_engine *engine);
/* As rpc_call, or rpc_reply if the opcode is REPLY, for ops of any kind. Here, and for rpc_after and rpc_gather, a CALL may have
 * CRPC_OP_TRACED: then op->token is the address of its crpc_trace. */
int32_t rpc_submit(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
/* Gets the trace of an open request. Returns CRPC_OK; CRPC_E_STALE: it is not open; CRPC_E_NOT_FOUND: it has none. */
int32_t rpc_request_trace(struct rpc_endpoint *endpoint, uint64_t token, crpc_trace *trace);

int32_t rpc_reserve(struct rpc_endpoint *endpoint, const crpc_op *op, void **address);
int32_t rpc_commit(struct rpc_endpoint *endpoint, uint32_t payload_bytes);
int32_t rpc_abort(struct rpc_endpoint *endpoint);

uint32_t rpc_poll(struct rpc_engine *engine, crpc_completion *completions, uint32_t capacity);

/* Sends what has gathered and processes the completions of the device, but returns no completion
 * and ends no view. */
void rpc_progress(struct rpc_engine *engine);
/* Returns true if rpc_poll would return something even if nothing new arrives. */
bool rpc_something_waits(const struct rpc_engine *engine);
/* Returns the latest time (CLOCK_MONOTONIC) at which rpc_poll must be called; UINT64_MAX =
 * never. */
uint64_t rpc_next_deadline_ns(const struct rpc_engine *engine);

/* Returns true if the completion's view is from the last poll and lies in the endpoint's ring. */
bool rpc_view_valid(const struct rpc_endpoint *endpoint, const crpc_completion *completion);

/* ---- Lanes: one-sided ops -------------------------------------------------------------------- */

/* Endpoints with CRPC_ENDPOINT_LANE on both sides have a lane (lane/lane.h), some time after they are
 * connected. Its ops complete in rpc_poll, as CRPC_COMPLETION_WORK. Returns why none can be accepted now:
 *
 *   CRPC_OK
 *   CRPC_E_STATE         not connected yet
 *   CRPC_E_UNSUPPORTED   not asked for, by this side or by the peer
 *   CRPC_E_AGAIN         not open yet, or it has failed and is made again; CRPC_COMPLETION_ROOM follows
 *   CRPC_E_CLOSING       after a disconnect of either side
 *   CRPC_E_DISCONNECTED  the connection has ended */
int32_t rpc_lane_bar(struct rpc_endpoint *endpoint);
/* Accepts transfers in order, and returns how many; if these are fewer than `count`, *reason says why:
 * as rpc_lane_bar, or CRPC_E_AGAIN: there is no room. */
uint32_t rpc_lane_post(struct rpc_endpoint *endpoint, const struct lane_op *ops, uint32_t count,
                       int32_t *reason);
/* The ops GRANT and REVOKE. They return as rpc_lane_bar, or as lane_give does. timeout_ns 0: the peer
 * takes as long as it needs. CRPC_E_STALE: the grant is not this side's, or was revoked. The grants are
 * those of this endpoint's lane. */
int32_t rpc_lane_give(struct rpc_endpoint *endpoint, const struct lane_memory *memory,
                      uint64_t user_data);
int32_t rpc_lane_revoke(struct rpc_endpoint *endpoint, struct lane_grant *grant, uint64_t user_data,
                        uint64_t timeout_ns);
/* Takes a grant of the peer, as lane_take does. *error says more. */
int32_t rpc_lane_take(struct rpc_endpoint *endpoint, const void *bytes, uint32_t count,
                      struct lane_grant **grant, crpc_error *error);
/* Returns true if the grant is of this endpoint's lane. */
bool rpc_lane_has(const struct rpc_endpoint *endpoint, const struct lane_grant *grant);
/* As rpc_call, or rpc_reply if the opcode is REPLY; but the message, and what comes behind it, is sent when
 * all ops of the lane that were accepted before have completed. If the lane fails first, the connection ends:
 * the peer must not hear of what was not done. Returns as they do, and: CRPC_E_UNSUPPORTED: it has no lane;
 * CRPC_E_DISCONNECTED: the lane has failed, and is not being made again yet; CRPC_E_AGAIN: too many messages
 * wait for different ops. */
int32_t rpc_after(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);

/* ---- Payloads from regions ------------------------------------------------------------------- */

/* Memory of the application, from which payloads are sent without a copy. The caller keeps it registered until
 * rpc_region_end, and sets all but the list. */
struct rpc_region {
    uint64_t address;
    uint64_t bytes;
    int fd;       /* of its dma-buf; < 0: plain memory */
    bool foreign; /* another device's: the processor may not touch it */
    uint64_t fd_offset;
    uint32_t *users;      /* counts ops whose payload the device may still read */
    struct list memories; /* what endpoints have registered */
};

void rpc_region_init(struct rpc_region *region);
/* Ends what endpoints have registered. There are no users. */
void rpc_region_end(struct rpc_region *region);
/* Registers the region with an endpoint, so that the first op need not: a system call. Returns CRPC_OK;
 * CRPC_E_STATE: it is not connected; CRPC_E_UNSUPPORTED, CRPC_E_NO_MEMORY and other errors of the device. */
int32_t rpc_region_prepare(struct rpc_endpoint *endpoint, struct rpc_region *region,
                           crpc_error *error);
/* As rpc_call, or rpc_reply if the opcode is REPLY, with a payload at an offset of a region, which contains it. The
 * device reads it, until the op has completed. Returns as they do and as rpc_region_prepare. */
int32_t rpc_gather(struct rpc_endpoint *endpoint, const crpc_op *op, struct rpc_region *region);

/* ---- Arenas ---------------------------------------------------------------------------------- */

/* Lends the peer memory of a region, which contains it: `places` (at most WIRE_PLACES_MAX) of place_bytes each, from `address`
 * on. Its payloads from regions land there. Until the endpoint is gone, the region has a user more. Returns CRPC_OK;
 * CRPC_E_STATE: the endpoint is not connected, or has an arena; and errors of the device. */
int32_t rpc_arena_lend(struct rpc_endpoint *endpoint, struct rpc_region *region, uint64_t address,
                       uint32_t place_bytes, uint32_t places, crpc_error *error);
/* The peer may use the place of this payload again. Returns CRPC_OK; CRPC_E_STALE: there is none. */
int32_t rpc_arena_give_back(struct rpc_endpoint *endpoint, uint64_t payload);
/* Returns whether the processor finds a payload there that was not given back. */
bool rpc_arena_holds(const struct rpc_endpoint *endpoint, uint64_t payload, uint64_t bytes);

/* ---- Endpoints ------------------------------------------------------------------------------- */

/* Returns the links of the engine, for link_connect, link_listener_open and so on. Their options
 * are crpc_endpoint_options, in which no zero means a default. Each link is the first member of an
 * endpoint. */
struct link_group *rpc_links(struct rpc_engine *engine);
#define RPC_ADDRESSES_MAX 16u
/* As link_connect, for an endpoint that connects again: CRPC_ENDPOINT_RECONNECT. `addresses` are up to RPC_ADDRESSES_MAX, with
 * commas between them. */
int32_t rpc_connect_lasting(struct link_group *group, const char *addresses,
                            const crpc_endpoint_options *options, struct link **link,
                            crpc_error *error);
/* Returns why an endpoint could not connect or was disconnected; of one that connects again, the last time. */
const crpc_error *rpc_endpoint_error(const struct rpc_endpoint *endpoint);
void rpc_endpoint_info(const struct rpc_endpoint *endpoint, crpc_endpoint_info *info);
void rpc_endpoint_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats);

/* Fills in records of the first endpoints, at most `capacity`; returns how many. *all is how many endpoints there are. */
struct snapshot_endpoint;
uint32_t rpc_snapshot(const struct rpc_engine *engine, struct snapshot_endpoint *records,
                      uint32_t capacity, uint32_t *all);

#endif

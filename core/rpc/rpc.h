/* rpc.h: the RPC engine: what capi (and the tests) may ask of it. docs/design.md tells how it
 * works.
 *
 * One engine belongs to one context and one thread at a time. Arguments have been checked by capi:
 * here they are asserted, in all builds but release. What a peer sends is checked here
 * (receive.c, endpoint.c).
 */
#ifndef CORE_RPC_RPC_H
#define CORE_RPC_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/handles.h"
#include "base/log.h"
#include "nic/nic.h"

struct cm;
struct rpc_engine;
struct rpc_endpoint;
struct link_group;

/* ---- Engine ---------------------------------------------------------------------------------- */

/* nic, cm (NULL: no rdma_cm), log and handles stay the caller's and must outlive the engine.
 * virtual_clock_ns is NULL, or where a simulation keeps its time. */
int32_t rpc_engine_create(struct nic *nic, struct cm *cm, struct log *log, struct handles *handles,
                          uint32_t endpoints_max, const uint64_t *virtual_clock_ns,
                          struct rpc_engine **engine, crpc_error *error);
/* Closes what is still open. */
void rpc_engine_destroy(struct rpc_engine *engine);

uint32_t rpc_engine_endpoints(const struct rpc_engine *engine);
uint32_t rpc_engine_endpoints_max(const struct rpc_engine *engine);
uint32_t rpc_engine_window_left(const struct rpc_engine *engine);
void rpc_engine_stats(const struct rpc_engine *engine, crpc_stats *stats);

/* ---- Data path ------------------------------------------------------------------------------- */

/* Each takes one op whole and returns CRPC_OK, or says why it cannot and changes nothing. The
 * payload is op->payload_bytes long. After the last of a series comes rpc_submit_end. */
int32_t rpc_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
int32_t rpc_reply(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
int32_t rpc_drop(struct rpc_endpoint *endpoint, const crpc_op *op);
int32_t rpc_cancel(struct rpc_endpoint *endpoint, const crpc_op *op);
/* Sends what has nothing to wait for. */
void rpc_submit_end(struct rpc_engine *engine);

int32_t rpc_reserve(struct rpc_endpoint *endpoint, const crpc_op *op, void **address);
int32_t rpc_commit(struct rpc_endpoint *endpoint, uint32_t payload_bytes);
int32_t rpc_abort(struct rpc_endpoint *endpoint);

uint32_t rpc_poll(struct rpc_engine *engine, crpc_completion *completions, uint32_t capacity);

/* Sends what has gathered and takes what the device has, but gives nothing and ends no view. */
void rpc_progress(struct rpc_engine *engine);
/* True if rpc_poll would give something without anything new arriving. */
bool rpc_something_waits(const struct rpc_engine *engine);
/* When rpc_poll has something to do at the latest; UINT64_MAX: never. CLOCK_MONOTONIC. */
uint64_t rpc_next_deadline_ns(const struct rpc_engine *engine);

/* True if the completion's view is of the present poll and lies in the endpoint's ring. */
bool rpc_view_valid(const struct rpc_endpoint *endpoint, const crpc_completion *completion);

/* ---- Endpoints ------------------------------------------------------------------------------- */

/* The connections, for link_connect, link_listener_open and the like; their options are
 * crpc_endpoint_options, without zeros where zero means a default. Each link begins an endpoint. */
struct link_group *rpc_links(struct rpc_engine *engine);
void rpc_endpoint_info(const struct rpc_endpoint *endpoint, crpc_endpoint_info *info);
void rpc_endpoint_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats);

#endif

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
#include "base/log.h"
#include "nic/nic.h"

struct cm;
struct rpc_engine;
struct rpc_endpoint;
struct link_group;

/* ---- Engine ---------------------------------------------------------------------------------- */

/* Creates an engine. nic, cm (NULL: no rdma_cm), log and handles stay the caller's, and must
 * outlive the engine. virtual_clock_ns is NULL, or points to the time of a simulation. */
int32_t rpc_engine_create(struct nic *nic, struct cm *cm, struct log *log, struct handles *handles,
                          uint32_t endpoints_max, const uint64_t *virtual_clock_ns,
                          struct rpc_engine **engine, crpc_error *error);
/* Closes everything that is still open, and frees the engine. */
void rpc_engine_destroy(struct rpc_engine *engine);

uint32_t rpc_engine_endpoints(const struct rpc_engine *engine);
uint32_t rpc_engine_endpoints_max(const struct rpc_engine *engine);
uint32_t rpc_engine_window_left(const struct rpc_engine *engine);
void rpc_engine_stats(const struct rpc_engine *engine, crpc_stats *stats);

/* ---- Data path ------------------------------------------------------------------------------- */

/* Each accepts one op and returns CRPC_OK, or returns the reason and changes nothing. `payload` has
 * op->payload_bytes bytes. The caller calls rpc_submit_end after the last op of a series. */
int32_t rpc_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
int32_t rpc_reply(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
int32_t rpc_drop(struct rpc_endpoint *endpoint, const crpc_op *op);
int32_t rpc_cancel(struct rpc_endpoint *endpoint, const crpc_op *op);
/* Sends batches that have nothing to wait for. */
void rpc_submit_end(struct rpc_engine *engine);

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

/* ---- Endpoints ------------------------------------------------------------------------------- */

/* Returns the links of the engine, for link_connect, link_listener_open and so on. Their options
 * are crpc_endpoint_options, in which no zero means a default. Each link is the first member of an
 * endpoint. */
struct link_group *rpc_links(struct rpc_engine *engine);
void rpc_endpoint_info(const struct rpc_endpoint *endpoint, crpc_endpoint_info *info);
void rpc_endpoint_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats);

#endif

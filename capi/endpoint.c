/* endpoint.c: endpoints, for the caller. */
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "private/connection.h"
#include "private/copyin.h"
#include "private/options.h"
#include "rpc/wire.h"

#define RING_BYTES_DEFAULT (1u << 20)
#define RING_BYTES_MIN 4096u
#define RING_BYTES_MAX (1u << 30)
#define PEER_RING_BYTES_MAX_DEFAULT (1u << 20)
#define REQUEST_BYTES_MIN 64u
#define CALLS_MAX_DEFAULT 1024u
#define CALLS_MAX_LIMIT (1u << 20)
#define BATCH_WINDOW_DEFAULT 64u
#define BATCH_WINDOW_MAX 1024u
#define RECONNECT_PAUSE_DEFAULT_NS UINT64_C(10000000)
#define RECONNECT_PAUSE_MAX_DEFAULT_NS UINT64_C(5000000000)
#define RECONNECT_PAUSE_MAX_NS UINT64_C(3600000000000)

static_assert(NIC_SEND_DEPTH_MAX == 4096, "what lane_depth may be");

/* ---- Options --------------------------------------------------------------------------------- */

static void fill_defaults(crpc_endpoint_options *options, const crpc_context *context)
{
    default32(&options->ring_bytes, RING_BYTES_DEFAULT);
    default32(&options->request_bytes, options->ring_bytes / 2);
    default32(&options->calls_max, CALLS_MAX_DEFAULT);
    default32(&options->batch_window, BATCH_WINDOW_DEFAULT);
    default64(&options->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS);
    default64(&options->keepalive_ns, KEEPALIVE_DEFAULT_NS);
    default_retry(&options->retry_timeout, &options->retry_count, context, RETRY_TIMEOUT_DEFAULT);
    default32(&options->peer_ring_bytes_max, PEER_RING_BYTES_MAX_DEFAULT);
    if (options->flags & CRPC_ENDPOINT_RECONNECT) {
        default64(&options->reconnect_pause_max_ns, RECONNECT_PAUSE_MAX_DEFAULT_NS);
        default64(&options->reconnect_pause_ns,
                  minimum(RECONNECT_PAUSE_DEFAULT_NS, options->reconnect_pause_max_ns));
    }
}

static int32_t check_ring(const crpc_endpoint_options *options, crpc_error *error)
{
    uint32_t ring = options->ring_bytes;
    uint32_t aside = wire_aside_bytes(options->flags & CRPC_ENDPOINT_LANE) + REQUEST_BYTES_MIN;
    if (ring < RING_BYTES_MIN || ring > RING_BYTES_MAX || (ring & (ring - 1)) != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "ring_bytes is %u; it must be a power of two from %u to %u", ring,
                         RING_BYTES_MIN, RING_BYTES_MAX);
    }
    if (options->request_bytes % 32 != 0 || options->request_bytes < REQUEST_BYTES_MIN ||
        options->request_bytes > ring - aside) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "request_bytes is %u; it must be a multiple of 32 from %u to ring_bytes - %u",
            options->request_bytes, REQUEST_BYTES_MIN, aside);
    }
    if (options->peer_ring_bytes_max < RING_BYTES_MIN ||
        options->peer_ring_bytes_max > RING_BYTES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "peer_ring_bytes_max is %u; it must be %u to %u",
                         options->peer_ring_bytes_max, RING_BYTES_MIN, RING_BYTES_MAX);
    }
    return CRPC_OK;
}

static int32_t check_flags(const crpc_endpoint_options *options, crpc_error *error)
{
    const uint32_t one_way = CRPC_ENDPOINT_CALL_ONLY | CRPC_ENDPOINT_SERVE_ONLY;
    if (options->flags &
        ~(one_way | CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_FULL_SIZE | CRPC_ENDPOINT_RECONNECT)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "reserved bits of crpc_endpoint_options are set");
    }
    if ((options->flags & one_way) == one_way) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "an endpoint cannot be both CALL_ONLY and SERVE_ONLY");
    }
    if ((options->flags & one_way) && options->request_bytes != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "request_bytes follows from CALL_ONLY or SERVE_ONLY; leave it 0");
    }
    return CRPC_OK;
}

/* What endpoints that share initiators cannot have of their own. */
static int32_t check_dynamic(const crpc_endpoint_options *options, crpc_error *error)
{
    if (options->flags & CRPC_ENDPOINT_LANE) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "endpoints of a context with initiators have no lanes: its grants are for "
                         "one connected queue pair");
    }
    if (options->retry_timeout != 0 || options->retry_count != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "retry_timeout and retry_count must be 0 in a context with initiators, "
                         "which its endpoints share");
    }
    return CRPC_OK;
}

static int32_t check_ranges(const crpc_endpoint_options *options, crpc_error *error)
{
    if (options->calls_max > CALLS_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "calls_max may be at most %u", CALLS_MAX_LIMIT);
    }
    if (options->lane_depth > (options->flags & CRPC_ENDPOINT_LANE ? NIC_SEND_DEPTH_MAX : 0)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "lane_depth may be at most %u, and must be 0 without CRPC_ENDPOINT_LANE",
                         NIC_SEND_DEPTH_MAX);
    }
    if (options->batch_window > BATCH_WINDOW_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "batch_window may be at most %u",
                         BATCH_WINDOW_MAX);
    }
    return options_check_connection(options->retry_timeout, options->retry_count,
                                    options->token_bytes, options->key_bytes, error);
}

static int32_t check_reconnect(const crpc_endpoint_options *options, crpc_error *error)
{
    if (!(options->flags & CRPC_ENDPOINT_RECONNECT)) {
        return options->reconnect_pause_ns == 0 && options->reconnect_pause_max_ns == 0
                   ? CRPC_OK
                   : error_set(error, CRPC_E_INVALID, 0,
                               "reconnect_pause_ns and reconnect_pause_max_ns must be 0 without "
                               "CRPC_ENDPOINT_RECONNECT");
    }
    if (options->flags & (CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_SERVE_ONLY)) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "an endpoint that reconnects is for calls: it has no lane, whose grants are of "
            "one connection, and is not SERVE_ONLY");
    }
    if (options->reconnect_pause_max_ns > RECONNECT_PAUSE_MAX_NS ||
        options->reconnect_pause_ns > (options->reconnect_pause_max_ns
                                           ? options->reconnect_pause_max_ns
                                           : RECONNECT_PAUSE_MAX_DEFAULT_NS)) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "reconnect_pause_ns may be at most reconnect_pause_max_ns, and that at most an hour");
    }
    return CRPC_OK;
}

static int32_t take_options(const crpc_context *context, union connection_options *ours,
                            const void *theirs, crpc_error *error)
{
    crpc_endpoint_options *options = &ours->endpoint;
    int32_t status = COPYIN(options, theirs, endpoint_options, error);
    if (status == CRPC_OK) {
        status = check_flags(options, error);
    }
    if (status == CRPC_OK && context->nic->initiators) {
        status = check_dynamic(options, error);
    }
    if (status == CRPC_OK) {
        status = check_reconnect(options, error);
    }
    if (status == CRPC_OK) {
        status = check_ranges(options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    fill_defaults(options, context);
    options->calls_max = power_of_two_at_least(options->calls_max);
    return check_ring(options, error);
}

/* ---- Connecting and parting ------------------------------------------------------------------ */

static struct link_group *links(const crpc_context *context, crpc_error *error)
{
    (void)error;
    return rpc_links(context->engine);
}

static int32_t connect(struct link_group *links, const char *address,
                       const union connection_options *options, struct link **link,
                       crpc_error *error)
{
    if (!(options->endpoint.flags & CRPC_ENDPOINT_RECONNECT)) {
        if (address && strchr(address, ',')) {
            return error_set(error, CRPC_E_INVALID, 0,
                             "several addresses are for CRPC_ENDPOINT_RECONNECT");
        }
        return connection_start(links, address, options, link, error);
    }
    const int32_t status = options_check_addresses(address, RPC_ADDRESSES_MAX, error);
    return status == CRPC_OK ? rpc_connect_lasting(links, address, &options->endpoint, link, error)
                             : status;
}

static const crpc_error *error_of(const struct link *link)
{
    return rpc_endpoint_error((const struct rpc_endpoint *)(const void *)link);
}

static const struct connection_kind endpoints = {.handle_kind = HANDLE_ENDPOINT,
                                                 .links = links,
                                                 .connect = connect,
                                                 .take_options = take_options,
                                                 .error_of = error_of};
/* An endpoint that does not connect comes by a peer, or by what the application carries: it cannot come back by itself. */
static int32_t take_options_of_one(const crpc_context *context, union connection_options *ours,
                                   const void *theirs, crpc_error *error)
{
    const int32_t status = take_options(context, ours, theirs, error);
    if (status == CRPC_OK && ours->endpoint.flags & CRPC_ENDPOINT_RECONNECT) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "CRPC_ENDPOINT_RECONNECT is for crpc_endpoint_connect: only the side that connects "
            "can do so again");
    }
    return status;
}

static const struct connection_kind endpoints_of_one = {
    .handle_kind = HANDLE_ENDPOINT, .links = links, .take_options = take_options_of_one};

int32_t crpc_endpoint_connect(crpc_context *context, const char *address,
                              const crpc_endpoint_options *options, crpc_endpoint *endpoint,
                              crpc_error *error)
{
    return connection_connect(&endpoints, context, address, options,
                              endpoint ? &endpoint->bits : NULL, error);
}

int32_t crpc_endpoint_accept(crpc_context *context, crpc_endpoint endpoint,
                             const crpc_endpoint_options *options, crpc_error *error)
{
    return connection_accept(&endpoints_of_one, context, endpoint.bits, options, error);
}

int32_t crpc_endpoint_reject(crpc_context *context, crpc_endpoint endpoint, uint32_t reason)
{
    return connection_reject(&endpoints, context, endpoint.bits, reason);
}

int32_t crpc_endpoint_hand_over(crpc_context *context, crpc_endpoint endpoint, crpc_context *to,
                                uint64_t user_data, crpc_error *error)
{
    return connection_hand_over(&endpoints, context, endpoint.bits, to, user_data, error);
}

int32_t crpc_endpoint_blob(crpc_context *context, const crpc_endpoint_options *options,
                           crpc_endpoint *endpoint, void *blob, uint32_t *blob_bytes,
                           crpc_error *error)
{
    return connection_blob(&endpoints_of_one, context, options, endpoint ? &endpoint->bits : NULL,
                           blob, blob_bytes, error);
}

int32_t crpc_endpoint_join(crpc_context *context, crpc_endpoint endpoint, const void *blob,
                           uint32_t blob_bytes, crpc_error *error)
{
    return connection_join(&endpoints, context, endpoint.bits, blob, blob_bytes, error);
}

int32_t crpc_endpoint_disconnect(crpc_context *context, crpc_endpoint endpoint, uint64_t timeout_ns)
{
    return connection_disconnect(&endpoints, context, endpoint.bits, timeout_ns);
}

int32_t crpc_endpoint_close(crpc_context *context, crpc_endpoint endpoint)
{
    return connection_close(&endpoints, context, endpoint.bits);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int32_t crpc_endpoint_get_info(crpc_context *context, crpc_endpoint endpoint,
                               crpc_endpoint_info *info)
{
    return COPYOUT_OF(context, endpoint_of(context, endpoint), info, endpoint_info,
                      rpc_endpoint_info);
}

int32_t crpc_endpoint_get_stats(crpc_context *context, crpc_endpoint endpoint, crpc_stats *stats)
{
    return COPYOUT_OF(context, endpoint_of(context, endpoint), stats, stats, rpc_endpoint_stats);
}

int32_t crpc_endpoint_get_error(crpc_context *context, crpc_endpoint endpoint, crpc_error *error)
{
    return connection_get_error(&endpoints, context, endpoint.bits, error);
}

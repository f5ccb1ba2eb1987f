/* endpoint.c: endpoints, for the caller. */
#include "base/compiler.h"
#include "base/error.h"
#include "private/context.h"
#include "private/copyin.h"
#include "private/options.h"

#define RING_BYTES_DEFAULT (1u << 20)
#define RING_BYTES_MIN 4096u
#define RING_BYTES_MAX (1u << 30)
#define REQUEST_BYTES_MIN 64u
#define FIN_BYTES 32u
#define CALLS_MAX_DEFAULT 1024u
#define CALLS_MAX_LIMIT (1u << 20)
#define BATCH_WINDOW_DEFAULT 64u
#define BATCH_WINDOW_MAX 1024u

/* ---- Options --------------------------------------------------------------------------------- */

static void fill_defaults(crpc_endpoint_options *options)
{
    default32(&options->ring_bytes, RING_BYTES_DEFAULT);
    default32(&options->request_bytes, options->ring_bytes / 2);
    default32(&options->calls_max, CALLS_MAX_DEFAULT);
    default32(&options->batch_window, BATCH_WINDOW_DEFAULT);
    default64(&options->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS);
    default64(&options->keepalive_ns, KEEPALIVE_DEFAULT_NS);
    default32(&options->retry_timeout, RETRY_TIMEOUT_DEFAULT);
    default32(&options->retry_count, RETRY_COUNT_DEFAULT);
}

static int32_t check_ring(const crpc_endpoint_options *options, crpc_error *error)
{
    uint32_t ring = options->ring_bytes;
    if (ring < RING_BYTES_MIN || ring > RING_BYTES_MAX || (ring & (ring - 1)) != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "ring_bytes is %u; it must be a power of two from %u to %u", ring,
                         RING_BYTES_MIN, RING_BYTES_MAX);
    }
    if (options->request_bytes % 32 != 0 || options->request_bytes < REQUEST_BYTES_MIN ||
        options->request_bytes > ring - FIN_BYTES - REQUEST_BYTES_MIN) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "request_bytes is %u; it must be a multiple of 32 from %u to ring_bytes - %u",
            options->request_bytes, REQUEST_BYTES_MIN, FIN_BYTES + REQUEST_BYTES_MIN);
    }
    return CRPC_OK;
}

static int32_t check_flags(const crpc_endpoint_options *options, crpc_error *error)
{
    const uint32_t one_way = CRPC_ENDPOINT_CALL_ONLY | CRPC_ENDPOINT_SERVE_ONLY;
    if (options->flags & ~one_way || options->reserved != 0) {
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

static int32_t check_ranges(const crpc_endpoint_options *options, crpc_error *error)
{
    if (options->calls_max > CALLS_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "calls_max may be at most %u", CALLS_MAX_LIMIT);
    }
    if (options->batch_window > BATCH_WINDOW_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "batch_window may be at most %u",
                         BATCH_WINDOW_MAX);
    }
    return options_check_connection(options->retry_timeout, options->retry_count,
                                    options->token_bytes, error);
}

/* The caller's options, whole, checked, and without zeros that mean a default. */
static int32_t take_options(crpc_endpoint_options *options, const crpc_endpoint_options *theirs,
                            crpc_error *error)
{
    int32_t status = COPYIN(options, theirs, endpoint_options, error);
    if (status == CRPC_OK) {
        status = check_flags(options, error);
    }
    if (status == CRPC_OK) {
        status = check_ranges(options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    fill_defaults(options);
    options->calls_max = power_of_two_at_least(options->calls_max);
    return check_ring(options, error);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static int32_t connect_endpoint(crpc_context *context, const char *address,
                                const crpc_endpoint_options *theirs, crpc_endpoint *out,
                                crpc_error *error)
{
    crpc_endpoint_options options;
    struct rpc_endpoint *endpoint;
    int32_t status = options_check_address(address, error);
    if (status == CRPC_OK) {
        status = take_options(&options, theirs, error);
    }
    if (status == CRPC_OK) {
        status = rpc_endpoint_connect(context->engine, address, &options, &endpoint, error);
    }
    if (status == CRPC_OK) {
        out->bits = rpc_endpoint_handle(endpoint);
    }
    return status;
}

int32_t crpc_endpoint_connect(crpc_context *context, const char *address,
                              const crpc_endpoint_options *options, crpc_endpoint *endpoint,
                              crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && endpoint
                         ? connect_endpoint(context, address, options, endpoint, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

static int32_t accept_endpoint(crpc_context *context, crpc_endpoint endpoint,
                               const crpc_endpoint_options *theirs, crpc_error *error)
{
    crpc_endpoint_options options;
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    if (!object) {
        return CRPC_E_STALE;
    }
    int32_t status = take_options(&options, theirs, error);
    return status == CRPC_OK ? rpc_endpoint_accept(object, &options, error) : status;
}

int32_t crpc_endpoint_accept(crpc_context *context, crpc_endpoint endpoint,
                             const crpc_endpoint_options *options, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status =
        context ? accept_endpoint(context, endpoint, options, &failure) : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t crpc_endpoint_reject(crpc_context *context, crpc_endpoint endpoint, uint32_t reason)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_endpoint_reject(object, reason) : CRPC_E_STALE;
}

static int32_t make_blob(crpc_context *context, const crpc_endpoint_options *theirs,
                         crpc_endpoint *out, void *blob, uint32_t *blob_bytes, crpc_error *error)
{
    crpc_endpoint_options options;
    struct rpc_endpoint *endpoint;
    int32_t status = take_options(&options, theirs, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (*blob_bytes < RPC_BLOB_BYTES) {
        *blob_bytes = RPC_BLOB_BYTES;
        return error_set(error, CRPC_E_TOO_BIG, 0, "a blob needs %d bytes of room", RPC_BLOB_BYTES);
    }
    status = rpc_endpoint_blob(context->engine, &options, &endpoint, blob, blob_bytes, error);
    if (status == CRPC_OK) {
        out->bits = rpc_endpoint_handle(endpoint);
    }
    return status;
}

int32_t crpc_endpoint_blob(crpc_context *context, const crpc_endpoint_options *options,
                           crpc_endpoint *endpoint, void *blob, uint32_t *blob_bytes,
                           crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && endpoint && blob && blob_bytes
                         ? make_blob(context, options, endpoint, blob, blob_bytes, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

static int32_t join_endpoint(crpc_context *context, crpc_endpoint endpoint, const void *blob,
                             uint32_t blob_bytes, crpc_error *error)
{
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_endpoint_join(object, blob, blob_bytes, error) : CRPC_E_STALE;
}

int32_t crpc_endpoint_join(crpc_context *context, crpc_endpoint endpoint, const void *blob,
                           uint32_t blob_bytes, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && blob ? join_endpoint(context, endpoint, blob, blob_bytes, &failure)
                                     : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

/* ---- Parting --------------------------------------------------------------------------------- */

int32_t crpc_endpoint_disconnect(crpc_context *context, crpc_endpoint endpoint, uint64_t timeout_ns)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_endpoint_disconnect(object, timeout_ns) : CRPC_E_STALE;
}

int32_t crpc_endpoint_close(crpc_context *context, crpc_endpoint endpoint)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    if (!object) {
        return CRPC_E_STALE;
    }
    rpc_endpoint_close(object);
    return CRPC_OK;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int32_t crpc_endpoint_get_info(crpc_context *context, crpc_endpoint endpoint,
                               crpc_endpoint_info *info)
{
    if (!context || COPYOUT_CHECK(info, endpoint_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct rpc_endpoint *object = endpoint_of(context, endpoint);
    if (!object) {
        return CRPC_E_STALE;
    }
    crpc_endpoint_info ours;
    rpc_endpoint_info(object, &ours);
    COPYOUT(info, &ours, endpoint_info);
    return CRPC_OK;
}

int32_t crpc_endpoint_get_stats(crpc_context *context, crpc_endpoint endpoint, crpc_stats *stats)
{
    if (!context || COPYOUT_CHECK(stats, stats) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct rpc_endpoint *object = endpoint_of(context, endpoint);
    if (!object) {
        return CRPC_E_STALE;
    }
    crpc_stats ours;
    rpc_endpoint_stats(object, &ours);
    COPYOUT(stats, &ours, stats);
    return CRPC_OK;
}

int32_t crpc_endpoint_get_error(crpc_context *context, crpc_endpoint endpoint, crpc_error *error)
{
    if (!context || COPYOUT_CHECK(error, error) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct rpc_endpoint *object = endpoint_of(context, endpoint);
    if (!object) {
        return CRPC_E_STALE;
    }
    COPYOUT(error, rpc_endpoint_error(object), error);
    return CRPC_OK;
}

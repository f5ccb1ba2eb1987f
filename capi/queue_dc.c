/* queue_dc.c: what only queues of the dynamically connected transport have, for the caller: DCIs and DCTs. */
#include <errno.h>

#include "base/error.h"
#include "private/queue_batch.h"

#define STREAMS_MAX 65535u

/* ---- Options --------------------------------------------------------------------------------- */

static int32_t check_streams(const crpc_queue_options *options, crpc_error *error)
{
    if (options->streams > STREAMS_MAX || options->stream_failures_max > options->streams) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "streams may be at most %u, and stream_failures_max at most streams",
                         STREAMS_MAX);
    }
    if (options->streams > 0 && options->flags & CRPC_QUEUE_SPARSE) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "with streams, each op completes: leave CRPC_QUEUE_SPARSE out");
    }
    return CRPC_OK;
}

static int32_t check_dci(const crpc_queue_options *options, crpc_error *error)
{
    if (options->receives | options->receive_pieces | options->receive_queue.bits) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a DCI receives nothing: leave receives, receive_pieces and "
                         "receive_queue 0");
    }
    if (options->connect_timeout_ns | options->private_bytes) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a DCI connects by itself: leave connect_timeout_ns and private_bytes 0");
    }
    return check_streams(options, error);
}

static int32_t check_dct(const crpc_queue_options *options, crpc_error *error)
{
    if (options->receive_queue.bits == 0) {
        return error_set(error, CRPC_E_INVALID, 0, "a DCT needs a receive_queue, which is an SRQ");
    }
    if (options->flags | options->sends | options->send_pieces | options->inline_bytes |
        options->receives | options->receive_pieces | options->connect_timeout_ns |
        options->retry_timeout | options->retry_count | options->not_ready_retry_count |
        options->reads_max | options->private_bytes) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "a DCT only has receive_queue, access_key and user_data; leave the rest 0");
    }
    return CRPC_OK;
}

int32_t queue_check_dc_options(const crpc_queue_options *options, crpc_error *error)
{
    if (options->kind != CRPC_QUEUE_KIND_DCI &&
        (options->streams | options->stream_failures_max) != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "only DCIs have streams and stream_failures_max");
    }
    if (options->kind != CRPC_QUEUE_KIND_DCT && options->access_key != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "only DCTs have an access_key; targets have that of their DCT");
    }
    return options->kind == CRPC_QUEUE_KIND_DCI   ? check_dci(options, error)
           : options->kind == CRPC_QUEUE_KIND_DCT ? check_dct(options, error)
                                                  : CRPC_OK;
}

/* ---- Streams --------------------------------------------------------------------------------- */

int32_t crpc_queue_reset_stream(crpc_context *context, crpc_queue queue, uint32_t stream)
{
    crpc_error error = {0};
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    if (!object) {
        return CRPC_E_STALE;
    }
    int32_t status = queue_reset_stream(object, stream, &error);
    if (status == CRPC_E_SYSTEM) {
        errno = error.os_error;
    }
    return status;
}

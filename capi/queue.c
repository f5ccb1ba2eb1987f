/* queue.c: queues, for the caller. queue_submit.c has their data path. */
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "private/connection.h"
#include "private/copyin.h"
#include "private/options.h"
#include "private/queue_batch.h"
#include "queue/queue.h"

#define SENDS_DEFAULT 256u
#define PIECES_DEFAULT 1u
#define INLINE_BYTES_DEFAULT 60u /* of WRITEs on mlx5: one more byte makes them longer */
#define TAGS_DEFAULT 127u        /* that devices have */
#define RETRY_MAX 7u
#define READS_MAX_LIMIT 16u

static_assert((uint32_t)CRPC_QUEUE_KIND_RC == NIC_QUEUE_RC &&
                  (uint32_t)CRPC_QUEUE_KIND_SRQ == NIC_QUEUE_SRQ &&
                  (uint32_t)CRPC_QUEUE_KIND_UD == NIC_QUEUE_UD &&
                  (uint32_t)CRPC_QUEUE_KIND_DCI == NIC_QUEUE_DCI &&
                  (uint32_t)CRPC_QUEUE_KIND_DCT == NIC_QUEUE_DCT &&
                  (uint32_t)CRPC_QUEUE_KIND_TM_SRQ == NIC_QUEUE_TM_SRQ,
              "core has the caller's kinds");
static_assert(CRPC_QUEUE_SPARSE == QUEUE_SPARSE && CRPC_QUEUE_SEQUENCE_ZERO == QUEUE_SEQUENCE_ZERO,
              "core has the caller's flags");
static_assert(CRPC_QUEUE_DEPTH_MAX <= NIC_QUEUE_DEPTH_MAX &&
                  CRPC_QUEUE_PIECES_MAX <= NIC_QUEUE_PIECES_MAX &&
                  CRPC_QUEUE_INLINE_BYTES_MAX <= NIC_QUEUE_INLINE_MAX &&
                  CRPC_QUEUE_PRIVATE_BYTES_MAX == QUEUE_ACCEPT_BYTES_MAX,
              "core has room for what the caller may ask for");

/* ---- Options --------------------------------------------------------------------------------- */

static int32_t check_kind(uint32_t kind, bool has_peer, crpc_error *error)
{
    if (kind < CRPC_QUEUE_KIND_RC || kind > CRPC_QUEUE_KIND_TM_SRQ) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "kind is %u; this version has CRPC_QUEUE_KIND_RC (%u), _SRQ (%u), _UD "
                         "(%u), _DCI (%u), _DCT (%u) and _TM_SRQ (%u)",
                         kind, CRPC_QUEUE_KIND_RC, CRPC_QUEUE_KIND_SRQ, CRPC_QUEUE_KIND_UD,
                         CRPC_QUEUE_KIND_DCI, CRPC_QUEUE_KIND_DCT, CRPC_QUEUE_KIND_TM_SRQ);
    }
    if (has_peer && kind == CRPC_QUEUE_KIND_SRQ) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "an SRQ has no peer: crpc_queue_open makes it, and RC, UD and DCT queues name it");
    }
    if (has_peer && kind == CRPC_QUEUE_KIND_TM_SRQ) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a TM-SRQ has no peer: crpc_queue_open makes it, and RC queues name it");
    }
    if (has_peer && kind == CRPC_QUEUE_KIND_DCT) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "a DCT has no peer: crpc_queue_open makes it, and targets of DCIs name it");
    }
    if (has_peer && kind != CRPC_QUEUE_KIND_RC) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a %s has no peer: crpc_queue_open makes it, and its ops name targets",
                         kind == CRPC_QUEUE_KIND_UD ? "UD queue" : "DCI");
    }
    if (!has_peer && kind == CRPC_QUEUE_KIND_RC) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "an RC queue has a peer: make it by crpc_queue_connect, _accept or _blob");
    }
    return CRPC_OK;
}

static int32_t check_limits(const crpc_queue_options *options, crpc_error *error)
{
    if (options->flags & ~(CRPC_QUEUE_SPARSE | CRPC_QUEUE_SEQUENCE_ZERO)) {
        return error_set(error, CRPC_E_INVALID, 0, "reserved bits of crpc_queue_options are set");
    }
    if (options->flags & CRPC_QUEUE_SEQUENCE_ZERO && options->kind > CRPC_QUEUE_KIND_RC) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "CRPC_QUEUE_SEQUENCE_ZERO is for RC queues alone");
    }
    if (options->sends > CRPC_QUEUE_DEPTH_MAX || options->receives > CRPC_QUEUE_DEPTH_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "sends and receives may be at most %d",
                         CRPC_QUEUE_DEPTH_MAX);
    }
    if (options->send_pieces > CRPC_QUEUE_PIECES_MAX ||
        options->receive_pieces > CRPC_QUEUE_PIECES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "send_pieces and receive_pieces may be at most %d", CRPC_QUEUE_PIECES_MAX);
    }
    if (options->inline_bytes > CRPC_QUEUE_INLINE_BYTES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "inline_bytes may be at most %d",
                         CRPC_QUEUE_INLINE_BYTES_MAX);
    }
    if (options->not_ready_retry_count > RETRY_MAX || options->reads_max > READS_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "not_ready_retry_count may be at most %u, reads_max at most %u", RETRY_MAX,
                         READS_MAX_LIMIT);
    }
    return options_check_connection(options->retry_timeout, options->retry_count, 0, 0, error);
}

static int32_t check_key(const crpc_queue_options *options, crpc_error *error)
{
    if (options->queue_key != 0 && options->kind != CRPC_QUEUE_KIND_UD) {
        return error_set(error, CRPC_E_INVALID, 0, "only UD queues have a queue_key");
    }
    if (options->queue_key >= NIC_QUEUE_KEYS) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "queue_key is 0x%x, and may be at most 0x7fffffff: those above need rights",
            options->queue_key);
    }
    return CRPC_OK;
}

/* What a connection has, and a UD queue not. */
static int32_t check_datagrams(const crpc_queue_options *options, crpc_error *error)
{
    if (options->connect_timeout_ns | options->retry_timeout | options->retry_count |
        options->not_ready_retry_count | options->reads_max | options->private_bytes) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a UD queue has no connection: leave connect_timeout_ns, the retries, "
                         "reads_max and private_bytes 0");
    }
    return CRPC_OK;
}

/* Those without a peer have no use for most options. */
static int32_t check_without_peer(const crpc_queue_options *options, crpc_error *error)
{
    if (options->kind == CRPC_QUEUE_KIND_UD) {
        return check_datagrams(options, error);
    }
    const bool tags = options->kind == CRPC_QUEUE_KIND_TM_SRQ;
    if (options->kind != CRPC_QUEUE_KIND_SRQ && !tags) {
        return CRPC_OK; /* queue_check_dc_options has */
    }
    if (options->receives == 0) {
        return error_set(error, CRPC_E_INVALID, 0, "an SRQ needs receives: 1 to %d%s",
                         CRPC_QUEUE_DEPTH_MAX, tags ? "; messages that match no tag go there" : "");
    }
    if (options->flags | options->sends | options->send_pieces | options->inline_bytes |
        options->receive_queue.bits | options->connect_timeout_ns | options->retry_timeout |
        options->retry_count | options->not_ready_retry_count | options->reads_max |
        options->private_bytes) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "an SRQ only has receives, receive_pieces and user_data%s; leave the rest 0",
            tags ? ", and tags" : "");
    }
    return CRPC_OK;
}

/* A queue's receives are its own, or in an SRQ, or there are none. */
static int32_t take_receives(const crpc_context *context, const crpc_queue_options *theirs,
                             struct queue_options *ours, crpc_error *error)
{
    if (theirs->receive_queue.bits != 0) {
        ours->receive_queue = queue_of(context, theirs->receive_queue);
        if (!ours->receive_queue) {
            return error_set(error, CRPC_E_STALE, 0,
                             "receive_queue is no queue of this context, or was closed");
        }
        int32_t status = queue_check_receive_queue(ours->receive_queue, theirs->kind, error);
        if (status != CRPC_OK) {
            return status;
        }
    }
    if (ours->receive_queue && theirs->receives != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "receives are those of receive_queue; leave the queue's own 0");
    }
    if (theirs->receives == 0 && theirs->receive_pieces != 0) {
        return error_set(error, CRPC_E_INVALID, 0, "receive_pieces is only used with receives");
    }
    return CRPC_OK;
}

static int32_t check_private(const crpc_queue_options *options, uint32_t private_bytes_max,
                             crpc_error *error)
{
    if (options->private_bytes <= private_bytes_max) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_INVALID, 0, "private_bytes is %u, and may be at most %u here",
                     options->private_bytes, private_bytes_max);
}

static void fill(const crpc_context *context, const crpc_queue_options *theirs,
                 struct queue_options *ours)
{
    ours->kind = theirs->kind;
    ours->flags = theirs->flags;
    ours->user_data = theirs->user_data;
    ours->receives = theirs->receives;
    ours->receive_pieces = theirs->receive_pieces;
    if (ours->receives > 0) {
        default32(&ours->receive_pieces, PIECES_DEFAULT);
    }
    if (nic_kind_is_shared(ours->kind)) {
        ours->tags = theirs->tags;
        if (ours->kind == NIC_QUEUE_TM_SRQ) {
            default32(&ours->tags, (uint32_t)minimum(TAGS_DEFAULT, context->nic->tags_max));
        }
        return;
    }
    if (ours->kind == NIC_QUEUE_DCT) {
        ours->access_key = theirs->access_key;
        return;
    }
    ours->sends = theirs->sends;
    ours->send_pieces = theirs->send_pieces;
    ours->inline_bytes = theirs->inline_bytes;
    default32(&ours->sends, SENDS_DEFAULT);
    default32(&ours->send_pieces, PIECES_DEFAULT);
    default32(&ours->inline_bytes,
              (uint32_t)minimum(INLINE_BYTES_DEFAULT, context->nic->inline_bytes_max));
    if (ours->kind == NIC_QUEUE_UD) {
        ours->queue_key = theirs->queue_key;
        default32(&ours->queue_key, CRPC_QUEUE_KEY_DEFAULT);
        return;
    }
    ours->streams = theirs->streams;
    ours->stream_failures_max = theirs->stream_failures_max;
    default32(&ours->stream_failures_max, ours->streams);
    ours->connect_timeout_ns = theirs->connect_timeout_ns;
    ours->retry_timeout = theirs->retry_timeout;
    ours->retry_count = theirs->retry_count;
    ours->rnr_tries = queue_rnr_tries(theirs->not_ready_retry_count);
    ours->reads_max = theirs->reads_max;
    ours->private_bytes = theirs->private_bytes;
    memcpy(ours->private_data, theirs->private_data, sizeof(ours->private_data));
    default64(&ours->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS);
    default_retry(&ours->retry_timeout, &ours->retry_count, context, RETRY_TIMEOUT_DEFAULT);
}

static int32_t take_any_options(const crpc_context *context, struct queue_options *ours,
                                const void *theirs, bool has_peer, uint32_t private_bytes_max,
                                crpc_error *error)
{
    crpc_queue_options options;
    memset(ours, 0, sizeof(*ours));
    int32_t status = COPYIN(&options, theirs, queue_options, error);
    default32(&options.kind, CRPC_QUEUE_KIND_RC);
    if (status == CRPC_OK) {
        status = check_kind(options.kind, has_peer, error);
    }
    if (status == CRPC_OK) {
        status = check_limits(&options, error);
    }
    if (status == CRPC_OK) {
        status = check_key(&options, error);
    }
    if (status == CRPC_OK) {
        status = queue_check_dc_options(&options, error);
    }
    if (status == CRPC_OK) {
        status = queue_check_tag_options(context, &options, error);
    }
    if (status == CRPC_OK && !has_peer) {
        status = check_without_peer(&options, error);
    }
    if (status == CRPC_OK) {
        status = check_private(&options, private_bytes_max, error);
    }
    if (status == CRPC_OK) {
        status = take_receives(context, &options, ours, error);
    }
    if (status == CRPC_OK) {
        fill(context, &options, ours);
    }
    return status;
}

static int32_t take_connect_options(const crpc_context *context, union connection_options *ours,
                                    const void *theirs, crpc_error *error)
{
    return take_any_options(context, &ours->queue, theirs, true, QUEUE_REQUEST_BYTES_MAX, error);
}

static int32_t take_accept_options(const crpc_context *context, union connection_options *ours,
                                   const void *theirs, crpc_error *error)
{
    return take_any_options(context, &ours->queue, theirs, true, QUEUE_ACCEPT_BYTES_MAX, error);
}

static int32_t take_blob_options(const crpc_context *context, union connection_options *ours,
                                 const void *theirs, crpc_error *error)
{
    return take_any_options(context, &ours->queue, theirs, true, 0, error);
}

/* ---- Making and connecting ------------------------------------------------------------------- */

static const struct connection_kind connects = {.handle_kind = HANDLE_QUEUE,
                                                .links = context_queue_links,
                                                .connect = connection_start,
                                                .take_options = take_connect_options};
static const struct connection_kind accepts = {
    .handle_kind = HANDLE_QUEUE, .links = context_queue_links, .take_options = take_accept_options};
static const struct connection_kind blobs = {
    .handle_kind = HANDLE_QUEUE, .links = context_queue_links, .take_options = take_blob_options};

static int32_t open_queue(crpc_context *context, const crpc_queue_options *theirs, crpc_queue *out,
                          crpc_error *error)
{
    struct queue_options options;
    struct queue *queue;
    int32_t status = context_check_queues(context, error);
    if (status == CRPC_OK) {
        status = take_any_options(context, &options, theirs, false, 0, error);
    }
    if (status == CRPC_OK) {
        status = queue_open(context->queues, &options, &queue, error);
    }
    if (status == CRPC_OK) {
        out->bits = queue_link(queue)->handle;
    }
    return status;
}

int32_t crpc_queue_open(crpc_context *context, const crpc_queue_options *options, crpc_queue *queue,
                        crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status =
        context && queue ? open_queue(context, options, queue, &failure) : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t crpc_queue_connect(crpc_context *context, const char *address,
                           const crpc_queue_options *options, crpc_queue *queue, crpc_error *error)
{
    return connection_connect(&connects, context, address, options, queue ? &queue->bits : NULL,
                              error);
}

int32_t crpc_queue_accept(crpc_context *context, crpc_queue queue,
                          const crpc_queue_options *options, crpc_error *error)
{
    return connection_accept(&accepts, context, queue.bits, options, error);
}

int32_t crpc_queue_reject(crpc_context *context, crpc_queue queue, const void *private_data,
                          uint32_t private_bytes)
{
    if (!context || (!private_data && private_bytes > 0)) {
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    if (!object) {
        return CRPC_E_STALE;
    }
    return private_bytes > QUEUE_REJECT_BYTES_MAX
               ? CRPC_E_TOO_BIG
               : queue_reject(object, private_data, private_bytes);
}

int32_t crpc_queue_hand_over(crpc_context *context, crpc_queue queue, crpc_context *to,
                             uint64_t user_data, crpc_error *error)
{
    return connection_hand_over(&accepts, context, queue.bits, to, user_data, error);
}

int32_t crpc_queue_blob(crpc_context *context, const crpc_queue_options *options, crpc_queue *queue,
                        void *blob, uint32_t *blob_bytes, crpc_error *error)
{
    return connection_blob(&blobs, context, options, queue ? &queue->bits : NULL, blob, blob_bytes,
                           error);
}

int32_t crpc_queue_join(crpc_context *context, crpc_queue queue, const void *blob,
                        uint32_t blob_bytes, crpc_error *error)
{
    return connection_join(&blobs, context, queue.bits, blob, blob_bytes, error);
}

/* ---- Addresses ------------------------------------------------------------------------------- */

#define MTU_BYTES_OF_CODE(code) (128u << (code))

void queue_show_address(const struct nic_address *found, crpc_queue_address *address)
{
    crpc_queue_address ours = {.queue_pair_number = found->queue_pair_number,
                               .packet_sequence_number = found->packet_sequence_number,
                               .link = found->link,
                               .mtu_bytes = MTU_BYTES_OF_CODE(found->mtu_code),
                               .lid = found->lid,
                               .flags = found->grh_required ? CRPC_GRH_REQUIRED : 0};
    memcpy(ours.gid, found->gid, sizeof(ours.gid));
    COPYOUT(address, &ours, queue_address);
}

int32_t crpc_queue_get_address(crpc_context *context, crpc_queue queue, crpc_queue_address *address)
{
    if (!context || COPYOUT_CHECK(address, queue_address) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct queue *object = queue_of(context, queue);
    if (!object) {
        return CRPC_E_STALE;
    }
    struct queue_info info = {0};
    queue_get_info(object, &info);
    if (info.address.queue_pair_number == 0) {
        return CRPC_E_STATE;
    }
    queue_show_address(&info.address, address);
    return CRPC_OK;
}

int32_t queue_take_address(struct nic_address *ours, const crpc_queue_address *theirs,
                           crpc_error *error)
{
    crpc_queue_address address;
    int32_t status = COPYIN(&address, theirs, queue_address, error);
    if (status != CRPC_OK) {
        return status;
    }
    *ours = (struct nic_address){.queue_pair_number = address.queue_pair_number,
                                 .packet_sequence_number = address.packet_sequence_number,
                                 .lid = (uint16_t)address.lid,
                                 .link = (uint8_t)address.link,
                                 .grh_required = address.flags & CRPC_GRH_REQUIRED};
    memcpy(ours->gid, address.gid, sizeof(ours->gid));
    for (uint8_t code = 1; code <= 5; code++) {
        if (MTU_BYTES_OF_CODE(code) == address.mtu_bytes) {
            ours->mtu_code = code;
        }
    }
    if (address.flags & ~CRPC_GRH_REQUIRED) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the address has flags that this version does not know: 0x%x",
                         address.flags);
    }
    if (ours->mtu_code == 0 || address.lid > UINT16_MAX || address.link > UINT8_MAX) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "no queue pair has an mtu_bytes of %u, a lid of %u and a link of %u",
                         address.mtu_bytes, address.lid, address.link);
    }
    return CRPC_OK;
}

int32_t crpc_queue_join_address(crpc_context *context, crpc_queue queue,
                                const crpc_queue_address *address, crpc_error *error)
{
    crpc_error failure = {0};
    struct nic_address ours;
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context && address) {
        struct queue *object = queue_of(context, queue);
        status = object ? queue_take_address(&ours, address, &failure) : CRPC_E_STALE;
        if (status == CRPC_OK) {
            status = queue_join_address(object, &ours, &failure);
        }
    }
    return give_error(error, &failure, status);
}

/* ---- Parting --------------------------------------------------------------------------------- */

int32_t crpc_queue_fail(crpc_context *context, crpc_queue queue)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    return object ? queue_fail(object) : CRPC_E_STALE;
}

int32_t crpc_queue_drain(crpc_context *context, crpc_queue queue, uint64_t timeout_ns)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    return object ? queue_drain(object, timeout_ns) : CRPC_E_STALE;
}

int32_t crpc_queue_close(crpc_context *context, crpc_queue queue)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct queue *object = queue_of(context, queue);
    return object ? queue_close(object) : CRPC_E_STALE;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int32_t crpc_queue_get_info(crpc_context *context, crpc_queue queue, crpc_queue_info *info)
{
    if (!context || COPYOUT_CHECK(info, queue_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct queue *object = queue_of(context, queue);
    if (!object) {
        return CRPC_E_STALE;
    }
    struct queue_info found = {0};
    queue_get_info(object, &found);
    crpc_queue_info ours = {
        .state = found.state,
        .user_data = found.user_data,
        .kind = found.kind,
        .queue_pair_number = found.number,
        .peer_number = found.peer_number,
        .sends = found.sends,
        .send_pieces = found.send_pieces,
        .inline_bytes = found.inline_bytes,
        .receives = found.receives,
        .receive_pieces = found.receive_pieces,
        .receive_queue = {found.receive_queue},
        .sends_open = found.sends_open,
        .receives_open = found.receives_open,
        .queues = found.users,
        .streams = found.streams,
        .streams_failed = found.streams_failed,
        .tags = found.tags,
        .tags_open = found.tags_open,
        .message_bytes_max =
            found.kind == NIC_QUEUE_UD ? context->nic->mtu_bytes : context->nic->message_bytes_max,
        .private_bytes = found.private_bytes,
        .not_ready_wait_ns = queue_not_ready_ns(found.not_ready_timer),
        .access = found.access,
        .retry_timeout = found.retry_timeout,
        .retry_count = found.retry_count,
        .not_ready_retry_count = queue_not_ready_retry_count(found.rnr_tries),
        .queue_key = found.queue_key,
        .srq_limit = found.srq_limit,
    };
    memcpy(ours.peer_address, found.peer_address, sizeof(ours.peer_address));
    memcpy(ours.local_address, found.local_address, sizeof(ours.local_address));
    memcpy(ours.private_data, found.private_data, sizeof(ours.private_data));
    COPYOUT(info, &ours, queue_info);
    return CRPC_OK;
}

static void describe_stats(const struct queue *queue, crpc_queue_stats *stats)
{
    struct nic_queue_stats found = {0};
    queue_get_stats(queue, &found);
    *stats = (crpc_queue_stats){.sends = found.sends,
                                .receives = found.receives,
                                .signaled_wqes = found.signaled,
                                .doorbells = found.doorbells};
}

int32_t crpc_queue_get_stats(crpc_context *context, crpc_queue queue, crpc_queue_stats *stats)
{
    return COPYOUT_OF(context, queue_of(context, queue), stats, queue_stats, describe_stats);
}

int32_t crpc_queue_get_error(crpc_context *context, crpc_queue queue, crpc_error *error)
{
    return COPYOUT_OF(context, queue_of(context, queue), error, error, queue_get_error);
}

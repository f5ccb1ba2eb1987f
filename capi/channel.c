/* channel.c: channels, for the caller. channel_submit.c has their data path. */
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "private/connection.h"
#include "private/copyin.h"
#include "private/options.h"

#define SLOTS_DEFAULT 64u
#define SENDS_MAX_DEFAULT 256u
#define SENDS_MAX_LIMIT 65536u
#define QUEUE_PAIRS_DEFAULT 1u
#define STRIPE_BYTES_MIN_DEFAULT 65536u
#define RAIL_RETRY_DEFAULT_NS UINT64_C(200000000)
#define SHARE_MAX 1024u

/* ---- Options --------------------------------------------------------------------------------- */

static void fill_defaults(crpc_channel_options *options, const crpc_context *context,
                          uint32_t rails)
{
    default32(&options->slots, SLOTS_DEFAULT);
    default32(&options->sends_max, SENDS_MAX_DEFAULT);
    default32(&options->queue_pairs, QUEUE_PAIRS_DEFAULT);
    default32(&options->stripe_bytes_min, STRIPE_BYTES_MIN_DEFAULT);
    default32(&options->rails, rails);
    default64(&options->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS);
    default64(&options->keepalive_ns, KEEPALIVE_DEFAULT_NS);
    default64(&options->rail_retry_ns, RAIL_RETRY_DEFAULT_NS);
    default_retry(&options->retry_timeout, &options->retry_count, context,
                  CHANNEL_RETRY_TIMEOUT_DEFAULT);
}

static int32_t check_ranges(const crpc_channel_options *options, crpc_error *error)
{
    if (options->flags != 0 || options->reserved != 0) {
        return error_set(error, CRPC_E_INVALID, 0, "reserved bits of crpc_channel_options are set");
    }
    if (options->slots > CRPC_CHANNEL_SLOTS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "slots may be at most %d",
                         CRPC_CHANNEL_SLOTS_MAX);
    }
    /* Fewer than a group has could never fill one. */
    if (options->sends_max > SENDS_MAX_LIMIT ||
        (options->sends_max != 0 && options->sends_max < CRPC_CHANNEL_GROUP_MAX)) {
        return error_set(error, CRPC_E_INVALID, 0, "sends_max must be %u to %u",
                         CRPC_CHANNEL_GROUP_MAX, SENDS_MAX_LIMIT);
    }
    if (options->queue_pairs > CRPC_CHANNEL_QUEUE_PAIRS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "queue_pairs may be at most %d",
                         CRPC_CHANNEL_QUEUE_PAIRS_MAX);
    }
    return options_check_connection(options->retry_timeout, options->retry_count,
                                    options->token_bytes, options->key_bytes, error);
}

static int32_t check_share(uint32_t rail0_share, crpc_error *error)
{
    if (rail0_share > SHARE_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "rail0_share is %u; it counts parts of %u, and may be at most that",
                         rail0_share, SHARE_MAX);
    }
    return CRPC_OK;
}

/* "/name", as shm_open wants it. */
static bool hint_named(const char *hint, size_t room)
{
    return memchr(hint, 0, room) && hint[0] == '/' && hint[1] != '\0' && !strchr(hint + 1, '/');
}

static int32_t check_split(const crpc_channel_options *options, crpc_error *error)
{
    if (options->split > CRPC_SPLIT_HINT) {
        return error_set(error, CRPC_E_INVALID, 0, "split %u is none of CRPC_SPLIT_*",
                         options->split);
    }
    if (options->split != CRPC_SPLIT_FIXED && options->rail0_share != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "rail0_share is only used with CRPC_SPLIT_FIXED");
    }
    if (options->split != CRPC_SPLIT_HINT && options->hint[0] != '\0') {
        return error_set(error, CRPC_E_INVALID, 0, "hint is only used with CRPC_SPLIT_HINT");
    }
    if (options->split == CRPC_SPLIT_HINT && !hint_named(options->hint, sizeof(options->hint))) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "hint is the name of POSIX shared memory: \"/name\", without another "
                         "slash, zero-terminated");
    }
    return check_share(options->rail0_share, error);
}

/* More of them would not fit into the completion queues. */
static int32_t check_queue_pairs(const crpc_channel_options *options, uint32_t most,
                                 crpc_error *error)
{
    if (options->queue_pairs > most) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "queue_pairs is %u, and the context was opened with rail_queue_pairs_max %u",
            options->queue_pairs, most);
    }
    return CRPC_OK;
}

/* Rails that the context has not got are no error: which there are is the machine's business. */
static int32_t check_rails(crpc_channel_options *options, uint32_t present, crpc_error *error)
{
    const uint32_t known = (1u << CHANNEL_RAILS_MAX) - 1;
    if (options->rails & ~known || (options->rails != 0 && !(options->rails & 1u))) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "rails is 0x%x; it may be 0x1 or 0x3: over rail 0 the peers meet",
                         options->rails);
    }
    options->rails &= present;
    return CRPC_OK;
}

static int32_t take_options(const crpc_context *context, union connection_options *ours,
                            const void *theirs, crpc_error *error)
{
    const uint32_t present = (1u << context->rails.nic_count) - 1;
    crpc_channel_options *options = &ours->channel;
    int32_t status = COPYIN(options, theirs, channel_options, error);
    if (status == CRPC_OK) {
        status = check_ranges(options, error);
    }
    if (status == CRPC_OK) {
        status = check_queue_pairs(options, context->rail_queue_pairs_max, error);
    }
    if (status == CRPC_OK) {
        status = check_split(options, error);
    }
    if (status == CRPC_OK) {
        status = check_rails(options, present, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    fill_defaults(options, context, present);
    options->slots = power_of_two_at_least(options->slots);
    return CRPC_OK;
}

/* ---- Connecting and parting ------------------------------------------------------------------ */

static const struct connection_kind channels = {.handle_kind = HANDLE_CHANNEL,
                                                .links = context_channel_links,
                                                .connect = connection_start,
                                                .take_options = take_options};

int32_t crpc_channel_connect(crpc_context *context, const char *address,
                             const crpc_channel_options *options, crpc_channel *channel,
                             crpc_error *error)
{
    return connection_connect(&channels, context, address, options, channel ? &channel->bits : NULL,
                              error);
}

int32_t crpc_channel_accept(crpc_context *context, crpc_channel channel,
                            const crpc_channel_options *options, crpc_error *error)
{
    return connection_accept(&channels, context, channel.bits, options, error);
}

int32_t crpc_channel_reject(crpc_context *context, crpc_channel channel, uint32_t reason)
{
    return connection_reject(&channels, context, channel.bits, reason);
}

int32_t crpc_channel_hand_over(crpc_context *context, crpc_channel channel, crpc_context *to,
                               uint64_t user_data, crpc_error *error)
{
    return connection_hand_over(&channels, context, channel.bits, to, user_data, error);
}

int32_t crpc_channel_blob(crpc_context *context, const crpc_channel_options *options,
                          crpc_channel *channel, void *blob, uint32_t *blob_bytes,
                          crpc_error *error)
{
    return connection_blob(&channels, context, options, channel ? &channel->bits : NULL, blob,
                           blob_bytes, error);
}

int32_t crpc_channel_join(crpc_context *context, crpc_channel channel, const void *blob,
                          uint32_t blob_bytes, crpc_error *error)
{
    return connection_join(&channels, context, channel.bits, blob, blob_bytes, error);
}

int32_t crpc_channel_disconnect(crpc_context *context, crpc_channel channel, uint64_t timeout_ns)
{
    return connection_disconnect(&channels, context, channel.bits, timeout_ns);
}

int32_t crpc_channel_close(crpc_context *context, crpc_channel channel)
{
    return connection_close(&channels, context, channel.bits);
}

/* ---- Steering -------------------------------------------------------------------------------- */

int32_t crpc_channel_set_share(crpc_context *context, crpc_channel channel, uint32_t rail0_share)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct channel *object = channel_of(context, channel);
    if (!object) {
        return CRPC_E_STALE;
    }
    int32_t status = check_share(rail0_share, NULL);
    if (status == CRPC_OK) {
        channel_set_share(object, rail0_share);
    }
    return status;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

int32_t crpc_channel_get_info(crpc_context *context, crpc_channel channel, crpc_channel_info *info)
{
    return COPYOUT_OF(context, channel_of(context, channel), info, channel_info, channel_info);
}

int32_t crpc_channel_get_stats(crpc_context *context, crpc_channel channel,
                               crpc_channel_stats *stats)
{
    return COPYOUT_OF(context, channel_of(context, channel), stats, channel_stats, channel_stats);
}

int32_t crpc_channel_get_error(crpc_context *context, crpc_channel channel, crpc_error *error)
{
    return connection_get_error(&channels, context, channel.bits, error);
}

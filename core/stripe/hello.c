/* hello.c: what both ways of connecting tell the peer, and connecting by blobs. Everything here comes
 * from the peer and is checked before use.
 */
#include "stripe/channel.h"

#include <string.h>

#include "base/checksum.h"
#include "base/error.h"

#define FEATURES_KNOWN 0u

void hello_fill(const struct stripe_channel *channel, struct stripe_hello *hello)
{
    *hello = (struct stripe_hello){
        .magic = STRIPE_HELLO_MAGIC,
        .version_min = STRIPE_VERSION_MIN,
        .version_max = STRIPE_VERSION_MAX,
        .slots_log2 = (uint8_t)__builtin_ctz(channel->options.slots),
        .queue_pairs = (uint8_t)channel->options.queue_pairs,
        .area_address = (uint64_t)(uintptr_t)channel->area.base,
        .area_key = channel->area.keys[0].remote_key,
        .rails = (uint8_t)channel->options.rails,
        .nonce = channel->nonce,
    };
    if (channel->passive) {
        hello->version_min = hello->version_max = (uint8_t)channel->version;
    } else {
        hello->token_bytes = (uint8_t)channel->options.token_bytes;
        memcpy(hello->token, channel->options.token, channel->options.token_bytes);
    }
}

static const char *malformed(const struct stripe_hello *hello)
{
    if (1u << (hello->slots_log2 & 31) > STRIPE_SLOTS_MAX || hello->slots_log2 > 8) {
        return "its number of slots is out of range";
    }
    if (hello->queue_pairs < 1 || hello->queue_pairs > STRIPE_QUEUE_PAIRS_MAX) {
        return "its number of queue pairs is out of range";
    }
    if (hello->area_address % 64 != 0 ||
        hello->area_address > UINT64_MAX - stripe_area_bytes(STRIPE_SLOTS_MAX)) {
        return "its memory is at an impossible address";
    }
    if (hello->rails == 0 || hello->rails >= 1u << STRIPE_RAILS_MAX) {
        return "its rails are out of range";
    }
    if (hello->token_bytes > STRIPE_TOKEN_BYTES || hello->zero != 0 || hello->zero2 != 0) {
        return "reserved bytes are set";
    }
    return NULL;
}

static void fill_reject(struct stripe_reject *reject, uint16_t reason, uint32_t detail)
{
    *reject = (struct stripe_reject){.magic = STRIPE_HELLO_MAGIC,
                                     .version_min = STRIPE_VERSION_MIN,
                                     .version_max = STRIPE_VERSION_MAX,
                                     .reason = reason,
                                     .detail = detail};
}

static int32_t read_prefix(const void *data, size_t bytes, struct stripe_hello *hello,
                           crpc_error *error)
{
    memset(hello, 0, sizeof(*hello));
    memcpy(hello, data, bytes < sizeof(*hello) ? bytes : sizeof(*hello));
    if (bytes < offsetof(struct stripe_hello, slots_log2) || hello->magic != STRIPE_HELLO_MAGIC) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer does not want a channel of copyrpc (%zu bytes of private data); "
                         "is its port that of a listener for endpoints?",
                         bytes);
    }
    return CRPC_OK;
}

int32_t hello_check_request(const void *data, size_t bytes, struct stripe_hello *hello,
                            struct stripe_reject *reject, crpc_error *error)
{
    fill_reject(reject, STRIPE_REJECT_MALFORMED, 0);
    int32_t status = read_prefix(data, bytes, hello, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (hello->version_min > STRIPE_VERSION_MAX || hello->version_max < STRIPE_VERSION_MIN ||
        hello->version_min > hello->version_max) {
        fill_reject(reject, STRIPE_REJECT_VERSION, 0);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer speaks versions %u to %u of channels, this library %d to %d",
                         hello->version_min, hello->version_max, STRIPE_VERSION_MIN,
                         STRIPE_VERSION_MAX);
    }
    const char *fault = bytes < sizeof(*hello) ? "it is too short" : malformed(hello);
    if (fault) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the peer's hello is malformed: %s", fault);
    }
    uint32_t unknown = hello->features_required & ~FEATURES_KNOWN;
    if (unknown) {
        fill_reject(reject, STRIPE_REJECT_FEATURES, unknown);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer requires features 0x%x that this library does not have",
                         unknown);
    }
    return CRPC_OK;
}

int32_t hello_check_response(const void *data, size_t bytes, struct stripe_hello *hello,
                             crpc_error *error)
{
    struct stripe_reject reject;
    int32_t status = hello_check_request(data, bytes, hello, &reject, error);
    if (status == CRPC_OK && (hello->version_min != hello->version_max || hello->features != 0)) {
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer chose a version or features that were not offered");
    }
    return status;
}

int32_t hello_explain_reject(const void *data, size_t bytes, crpc_error *error)
{
    struct stripe_reject reject = {0};
    memcpy(&reject, data, bytes < sizeof(reject) ? bytes : sizeof(reject));
    if (bytes < sizeof(reject) || reject.magic != STRIPE_HELLO_MAGIC) {
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer refused the channel; is its program listening on this port, and "
                         "with CRPC_LISTENER_CHANNELS?");
    }
    switch (reject.reason) {
    case STRIPE_REJECT_APPLICATION:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer's application refused the channel, reason %u", reject.detail);
    case STRIPE_REJECT_VERSION:
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer speaks versions %u to %u of channels, this library %d to %d; "
                         "update the older side",
                         reject.version_min, reject.version_max, STRIPE_VERSION_MIN,
                         STRIPE_VERSION_MAX);
    case STRIPE_REJECT_FEATURES:
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer does not have the required features 0x%x", reject.detail);
    case STRIPE_REJECT_NO_ROOM:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer has no room for another channel; raise its channels_max, "
                         "rail_receive_depth or backlog");
    default:
        return error_set(error, CRPC_E_PROTOCOL, 0, "the peer could not read our hello (reason %u)",
                         reject.reason);
    }
}

/* ---- Blobs ----------------------------------------------------------------------------------- */

static uint32_t checksum(const struct stripe_blob *blob)
{
    return checksum_of(blob, offsetof(struct stripe_blob, checksum));
}

int32_t stripe_blob(struct stripe_engine *engine, const crpc_channel_options *options,
                    struct stripe_channel **out, uint8_t *bytes, uint32_t *blob_bytes,
                    crpc_error *error)
{
    static_assert(sizeof(struct stripe_blob) == STRIPE_BLOB_BYTES, "blob");
    struct stripe_channel *channel;
    int32_t status = channel_create(engine, &channel, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = channel_prepare(channel, options, error);
    if (status != CRPC_OK) {
        channel_free(channel);
        return status;
    }
    channel->state = CRPC_STATE_NEW;
    struct nic_address address;
    channel->first->operations->queue_pair_address(channel->first->queue_pair, &address);
    struct stripe_blob blob = {.magic = STRIPE_BLOB_MAGIC, .bytes = sizeof(blob)};
    wire_of_address(&blob.address, &address);
    hello_fill(channel, &blob.hello);
    blob.checksum = checksum(&blob);
    memcpy(bytes, &blob, sizeof(blob));
    *blob_bytes = sizeof(blob);
    *out = channel;
    return CRPC_OK;
}

static int32_t check_blob(const struct stripe_channel *channel, const void *bytes,
                          uint32_t blob_bytes, struct stripe_blob *blob,
                          struct nic_address *address, crpc_error *error)
{
    struct stripe_reject reject;
    if (blob_bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "a channel's blob has %zu bytes, this one %u",
                         sizeof(*blob), blob_bytes);
    }
    memcpy(blob, bytes, sizeof(*blob));
    if (blob->magic != STRIPE_BLOB_MAGIC || blob->bytes != sizeof(*blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "these bytes are no blob of a channel");
    }
    if (blob->checksum != checksum(blob)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the blob was damaged on its way: bad checksum");
    }
    if (!address_of_wire(address, &blob->address) || blob->zero || blob->zero2) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the blob's fields are out of range");
    }
    if (address->link != channel->engine->rails[0].nic->link) {
        return error_set(error, CRPC_E_UNREACHABLE, 0,
                         "one side is on InfiniBand and the other on Ethernet");
    }
    if (blob->hello.nonce == channel->nonce) {
        return error_set(error, CRPC_E_INVALID, 0, "this is the channel's own blob");
    }
    struct stripe_hello hello;
    return hello_check_request(&blob->hello, sizeof(blob->hello), &hello, &reject, error);
}

int32_t stripe_join(struct stripe_channel *channel, const void *bytes, uint32_t blob_bytes,
                    crpc_error *error)
{
    struct stripe_blob blob;
    struct nic_address address;
    if (channel->state != CRPC_STATE_NEW) {
        return error_set(error, CRPC_E_STATE, 0,
                         "only a channel of crpc_channel_blob can join, and once");
    }
    int32_t status = check_blob(channel, bytes, blob_bytes, &blob, &address, error);
    if (status == CRPC_OK) {
        status = channel_agree(channel, &blob.hello, error);
    }
    if (status == CRPC_OK) {
        struct nic_transport transport = channel_transport(channel);
        status = channel->first->operations->queue_pair_connect(channel->first->queue_pair,
                                                                &address, &transport, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    channel->active = channel->nonce < channel->peer_nonce;
    channel->state = CRPC_STATE_CONNECTING;
    channel_start_timer(channel, channel->options.connect_timeout_ns);
    rails_open(channel);
    return CRPC_OK;
}

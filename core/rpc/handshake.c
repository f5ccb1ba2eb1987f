/* handshake.c: see handshake.h. Everything here comes from the peer and is checked before use. */
#include "rpc/handshake.h"

#include <string.h>

#include "base/error.h"

#define RING_LOG2_MIN 12
#define RING_LOG2_MAX 30

static const char *malformed(const struct wire_handshake *wire)
{
    if (wire->ring_log2 < RING_LOG2_MIN || wire->ring_log2 > RING_LOG2_MAX) {
        return "its ring size is out of range";
    }
    uint64_t ring_bytes = UINT64_C(1) << wire->ring_log2;
    uint64_t request_bytes = (uint64_t)wire->request_units * WIRE_UNIT_BYTES;
    if (wire->calls_log2 > WIRE_CALL_INDEX_BITS) {
        return "its number of calls is out of range";
    }
    if (request_bytes != 0 &&
        (request_bytes < 2 * WIRE_UNIT_BYTES || request_bytes > ring_bytes - WIRE_FIN_BYTES)) {
        return "its share for requests does not fit its ring";
    }
    if (wire->batch_window == 0) {
        return "its batch window is 0";
    }
    if (wire->ring_address % WIRE_UNIT_BYTES != 0 ||
        wire->ring_address > UINT64_MAX - 2 * ring_bytes - sizeof(struct wire_mailbox)) {
        return "its ring address is impossible";
    }
    if (wire->token_bytes > WIRE_TOKEN_BYTES || wire->zero != 0) {
        return "reserved bytes are set";
    }
    return NULL;
}

static void fill_reject(struct wire_reject *reject, uint16_t reason, uint32_t detail)
{
    *reject = (struct wire_reject){.magic = WIRE_HANDSHAKE_MAGIC,
                                   .version_min = WIRE_VERSION_MIN,
                                   .version_max = WIRE_VERSION_MAX,
                                   .reason = reason,
                                   .detail = detail};
}

static void take(struct handshake_peer *peer, const struct wire_handshake *wire)
{
    *peer = (struct handshake_peer){
        .ring_address = wire->ring_address,
        .ring_bytes = UINT64_C(1) << wire->ring_log2,
        .request_bytes = (uint64_t)wire->request_units * WIRE_UNIT_BYTES,
        .ring_key = wire->ring_key,
        .mailbox_key = wire->mailbox_key,
        .calls = 1u << wire->calls_log2,
        .batch_window = wire->batch_window,
        .nonce = wire->nonce,
        .token_bytes = wire->token_bytes,
    };
    memcpy(peer->token, wire->token, wire->token_bytes);
}

static int32_t read_prefix(const void *data, size_t bytes, struct wire_handshake *wire,
                           crpc_error *error)
{
    const size_t prefix = offsetof(struct wire_handshake, ring_log2);
    memset(wire, 0, sizeof(*wire));
    memcpy(wire, data, bytes < sizeof(*wire) ? bytes : sizeof(*wire));
    if (bytes < prefix || wire->magic != WIRE_HANDSHAKE_MAGIC) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer does not speak copyrpc (%zu bytes of private data); check the "
                         "address and port",
                         bytes);
    }
    return CRPC_OK;
}

int32_t handshake_check_request(const void *data, size_t bytes, struct handshake_peer *peer,
                                struct wire_reject *reject, crpc_error *error)
{
    struct wire_handshake wire;
    fill_reject(reject, WIRE_REJECT_MALFORMED, 0);
    int32_t status = read_prefix(data, bytes, &wire, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (wire.version_min > WIRE_VERSION_MAX || wire.version_max < WIRE_VERSION_MIN ||
        wire.version_min > wire.version_max) {
        fill_reject(reject, WIRE_REJECT_VERSION, 0);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer speaks versions %u to %u of the protocol, this library %d to %d",
                         wire.version_min, wire.version_max, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    }
    const char *fault = bytes < sizeof(wire) ? "it is too short" : malformed(&wire);
    if (fault) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the peer's handshake is malformed: %s", fault);
    }
    uint32_t unknown = wire.features_required & ~HANDSHAKE_FEATURES_KNOWN;
    if (unknown) {
        fill_reject(reject, WIRE_REJECT_FEATURES, unknown);
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer requires features 0x%x that this library does not have",
                         unknown);
    }
    take(peer, &wire);
    peer->version = wire.version_max < WIRE_VERSION_MAX ? wire.version_max : WIRE_VERSION_MAX;
    peer->features = wire.features & HANDSHAKE_FEATURES_KNOWN;
    return CRPC_OK;
}

int32_t handshake_check_response(const void *data, size_t bytes, struct handshake_peer *peer,
                                 crpc_error *error)
{
    struct wire_handshake wire;
    int32_t status = read_prefix(data, bytes, &wire, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (wire.version_min != wire.version_max || wire.version_max < WIRE_VERSION_MIN ||
        wire.version_max > WIRE_VERSION_MAX) {
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer chose version %u of the protocol, which was not offered",
                         wire.version_max);
    }
    const char *fault = bytes < sizeof(wire) ? "it is too short" : malformed(&wire);
    if (!fault && ((wire.features | wire.features_required) & ~HANDSHAKE_FEATURES_KNOWN)) {
        fault = "it selects features that were not offered";
    }
    if (fault) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "the peer's handshake is malformed: %s", fault);
    }
    take(peer, &wire);
    peer->version = wire.version_max;
    peer->features = wire.features;
    return CRPC_OK;
}

int32_t handshake_explain_reject(const void *data, size_t bytes, crpc_error *error)
{
    struct wire_reject reject = {0};
    memcpy(&reject, data, bytes < sizeof(reject) ? bytes : sizeof(reject));
    if (bytes < sizeof(reject) || reject.magic != WIRE_HANDSHAKE_MAGIC) {
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer refused the connection; is its program running and listening on "
                         "this port, and not with CRPC_LISTENER_CHANNELS?");
    }
    switch (reject.reason) {
    case WIRE_REJECT_APPLICATION:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer's application refused the connection, reason %u", reject.detail);
    case WIRE_REJECT_VERSION:
        return error_set(
            error, CRPC_E_VERSION, 0,
            "the peer speaks versions %u to %u of the protocol, this library %d to %d; "
            "update the older side",
            reject.version_min, reject.version_max, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    case WIRE_REJECT_FEATURES:
        return error_set(error, CRPC_E_VERSION, 0,
                         "the peer does not have the required features 0x%x", reject.detail);
    case WIRE_REJECT_NO_ROOM:
        return error_set(error, CRPC_E_REFUSED, 0,
                         "the peer has no room for another connection; raise its endpoints_max, "
                         "receive_depth or backlog, or lower batch windows");
    default:
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer could not read our handshake (reason %u)", reject.reason);
    }
}

/* body.c: what the two sides of an endpoint tell each other in their hellos. Cold path. */
#include "rpc/internal.h"

#include <string.h>

#include "base/error.h"

/* ---- The hello ------------------------------------------------------------------------------- */

#define RING_LOG2_MIN 12
#define RING_LOG2_MAX 30

void rpc_fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    const struct rpc_endpoint *endpoint = endpoint_of_link(link);
    struct wire_endpoint wire = {
        .ring_address = (uint64_t)(uintptr_t)endpoint->in.ring.address,
        .ring_key = endpoint->in.ring.memory.remote_key,
        .mailbox_key = endpoint->in.ring.mailbox_keys.remote_key,
        .request_units = (uint32_t)(endpoint->in.request_share / WIRE_UNIT_BYTES),
        .batch_window = (uint16_t)endpoint->in.batch_window,
        .ring_log2 = (uint8_t)__builtin_ctz(endpoint->options.ring_bytes),
        .calls_log2 = (uint8_t)__builtin_ctz(endpoint->calls.max),
    };
    memcpy(body, &wire, sizeof(wire));
}

const char *rpc_body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    struct wire_endpoint wire;
    memcpy(&wire, body, sizeof(wire));
    if (wire.ring_log2 < RING_LOG2_MIN || wire.ring_log2 > RING_LOG2_MAX) {
        return "its ring size is out of range";
    }
    uint64_t ring_bytes = UINT64_C(1) << wire.ring_log2;
    uint64_t request_bytes = (uint64_t)wire.request_units * WIRE_UNIT_BYTES;
    if (wire.calls_log2 > WIRE_CALL_INDEX_BITS) {
        return "its number of calls is out of range";
    }
    if (request_bytes != 0 &&
        (request_bytes < 2 * WIRE_UNIT_BYTES || request_bytes > ring_bytes - WIRE_FIN_BYTES)) {
        return "its share for requests does not fit its ring";
    }
    if (wire.batch_window == 0) {
        return "its batch window is 0";
    }
    if (wire.ring_address % WIRE_UNIT_BYTES != 0 ||
        wire.ring_address > UINT64_MAX - 2 * ring_bytes - sizeof(struct wire_mailbox)) {
        return "its ring address is impossible";
    }
    return NULL;
}

void rpc_take_body(struct rpc_endpoint *endpoint)
{
    struct wire_endpoint wire;
    memcpy(&wire, endpoint->link.peer.body, sizeof(wire));
    endpoint->peer = (struct rpc_peer){
        .ring_address = wire.ring_address,
        .ring_bytes = UINT64_C(1) << wire.ring_log2,
        .request_bytes = (uint64_t)wire.request_units * WIRE_UNIT_BYTES,
        .ring_key = wire.ring_key,
        .mailbox_key = wire.mailbox_key,
        .calls = 1u << wire.calls_log2,
        .batch_window = wire.batch_window,
    };
}

/* ---- Demands --------------------------------------------------------------------------------- */

/* What the peer may make us set aside: as much as this side chose for itself, or what is modest; and
 * of pinned memory, what the application allows. */
#define PEER_CALLS_MODEST 65536u

int32_t rpc_check_demands(const struct rpc_endpoint *endpoint, crpc_error *error)
{
    const struct rpc_peer *peer = &endpoint->peer;
    uint64_t ring_bytes_max =
        maximum(endpoint->in.ring.bytes, endpoint->options.peer_ring_bytes_max);
    if (peer->ring_bytes > ring_bytes_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "the peer's ring has %llu bytes, which takes as many here; this side allows "
            "%llu: raise its peer_ring_bytes_max, or lower the peer's ring_bytes",
            (unsigned long long)peer->ring_bytes, (unsigned long long)ring_bytes_max);
    }
    if (peer->calls > maximum(endpoint->calls.max, PEER_CALLS_MODEST)) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the peer wants room for %u open calls; raise this side's calls_max, or "
                         "lower the peer's",
                         peer->calls);
    }
    if (rpc_lane_selected(endpoint) &&
        peer->request_bytes > peer->ring_bytes - rpc_aside_bytes(true)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer's hello is malformed: its share for requests leaves no room "
                         "for the words of a lane");
    }
    return CRPC_OK;
}

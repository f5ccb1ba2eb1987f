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
        .request_units = (uint32_t)(rpc_request_share(&endpoint->options) / WIRE_UNIT_BYTES),
        .batch_window = (uint16_t)endpoint->options.batch_window,
        .batch_window_first = (uint16_t)rpc_first_window(endpoint->engine, &endpoint->options),
        .ring_log2 = (uint8_t)__builtin_ctz(endpoint->options.ring_bytes),
        .ring_log2_first = (uint8_t)__builtin_ctzll(endpoint->in.ring.bytes),
        .calls_log2 = (uint8_t)__builtin_ctz(endpoint->calls.max),
    };
    memcpy(body, &wire, sizeof(wire));
}

const char *rpc_body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    struct wire_endpoint wire;
    memcpy(&wire, body, sizeof(wire));
    if (wire.ring_log2 > RING_LOG2_MAX || wire.ring_log2_first < RING_LOG2_MIN ||
        wire.ring_log2_first > wire.ring_log2) {
        return "its ring size is out of range";
    }
    uint64_t ring_bytes = UINT64_C(1) << wire.ring_log2;
    uint64_t request_bytes = (uint64_t)wire.request_units * WIRE_UNIT_BYTES;
    if (wire.calls_log2 > WIRE_CALL_INDEX_BITS) {
        return "its number of calls is out of range";
    }
    if (request_bytes != 0 && (request_bytes < 2 * WIRE_UNIT_BYTES ||
                               request_bytes > ring_bytes - wire_aside_bytes(false))) {
        return "its share for requests does not fit its ring";
    }
    if (wire.batch_window_first == 0 || wire.batch_window_first > wire.batch_window) {
        return "its batch window is out of range";
    }
    if (wire.zero != 0) {
        return "reserved bytes are set";
    }
    if (!wire_ring_possible(wire.ring_address, UINT64_C(1) << wire.ring_log2_first)) {
        return "its ring address is impossible";
    }
    return NULL;
}

void rpc_take_body(struct rpc_endpoint *endpoint)
{
    struct wire_endpoint wire;
    memcpy(&wire, endpoint->link.peer.body, sizeof(wire));
    const uint64_t request_bytes_max = (uint64_t)wire.request_units * WIRE_UNIT_BYTES;
    const uint64_t ring_bytes_max = UINT64_C(1) << wire.ring_log2;
    const uint64_t ring_bytes = UINT64_C(1) << wire.ring_log2_first;
    endpoint->peer = (struct rpc_peer){
        .ring_address = wire.ring_address,
        .ring_bytes = ring_bytes,
        .request_bytes = wire_request_share(request_bytes_max, ring_bytes_max, ring_bytes),
        .ring_bytes_max = ring_bytes_max,
        .request_bytes_max = request_bytes_max,
        .ring_key = wire.ring_key,
        .calls = 1u << wire.calls_log2,
        .batch_window = wire.batch_window,
        .batch_window_first = wire.batch_window_first,
    };
}

/* ---- Shares ---------------------------------------------------------------------------------- */

uint64_t rpc_request_share(const crpc_endpoint_options *options)
{
    if (options->flags & CRPC_ENDPOINT_CALL_ONLY) {
        return 0;
    }
    return options->flags & CRPC_ENDPOINT_SERVE_ONLY
               ? options->ring_bytes - wire_aside_bytes(options->flags & CRPC_ENDPOINT_LANE)
               : options->request_bytes;
}

void rpc_set_shares(struct rpc_endpoint *endpoint, uint64_t bytes)
{
    const crpc_endpoint_options *options = &endpoint->options;
    const bool lane = options->flags & CRPC_ENDPOINT_LANE;
    const uint64_t most = options->ring_bytes;
    const uint64_t share_max = rpc_request_share(options);
    const uint64_t share = wire_request_share(share_max, most, bytes);
    endpoint->in.request_share = share;
    endpoint->calls.reply_budget = rpc_reply_share(lane, bytes, share, most, share_max);
    endpoint->calls.reply_budget_max = rpc_reply_share(lane, most, share_max, most, share_max);
}

/* ---- Demands --------------------------------------------------------------------------------- */

/* What the peer may make us set aside: as much as this side chose for itself, or what is modest; and
 * of pinned memory, what the application allows. */
#define PEER_CALLS_MODEST 65536u

int32_t rpc_check_demands(const struct rpc_endpoint *endpoint, crpc_error *error)
{
    const struct rpc_peer *peer = &endpoint->peer;
    uint64_t ring_bytes_max =
        maximum(endpoint->options.ring_bytes, endpoint->options.peer_ring_bytes_max);
    if (peer->ring_bytes_max > ring_bytes_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "the peer's ring has %llu bytes, which takes as many here; this side allows "
            "%llu: raise its peer_ring_bytes_max, or lower the peer's ring_bytes",
            (unsigned long long)peer->ring_bytes_max, (unsigned long long)ring_bytes_max);
    }
    if (peer->calls > maximum(endpoint->calls.max, PEER_CALLS_MODEST)) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the peer wants room for %u open calls; raise this side's calls_max, or "
                         "lower the peer's",
                         peer->calls);
    }
    if (rpc_lane_selected(endpoint) &&
        peer->request_bytes_max > peer->ring_bytes_max - wire_aside_bytes(true)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the peer's hello is malformed: its share for requests leaves no room "
                         "for the words of a lane");
    }
    return CRPC_OK;
}

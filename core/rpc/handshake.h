/* handshake.h: what two endpoints tell each other before the first batch, and whether it can be. */
#ifndef CORE_RPC_HANDSHAKE_H
#define CORE_RPC_HANDSHAKE_H

#include <stddef.h>

#include "base/abi.h"
#include "rpc/wire.h"

/* Features that this build knows. None is defined yet. */
#define HANDSHAKE_FEATURES_KNOWN 0u

/* What of the handshake the connection is made with. */
struct handshake_peer {
    uint32_t version;
    uint32_t features;
    uint64_t ring_address;
    uint64_t ring_bytes;
    uint64_t request_bytes; /* share of its ring for our requests */
    uint32_t ring_key;
    uint32_t mailbox_key;
    uint32_t calls; /* its call indices are below this */
    uint32_t batch_window;
    uint32_t nonce;
    uint32_t token_bytes;
    uint8_t token[WIRE_TOKEN_BYTES];
};

/* Checks a handshake that came as a request (REQ or blob), of which `bytes` bytes arrived (more
 * than 56 are allowed: rdma_cm pads), and takes version and features. On failure *reject says
 * why. */
int32_t handshake_check_request(const void *data, size_t bytes, struct handshake_peer *peer,
                                struct wire_reject *reject, crpc_error *error);

/* The same for the one that came back (REP): version and features must be among those offered. */
int32_t handshake_check_response(const void *data, size_t bytes, struct handshake_peer *peer,
                                 crpc_error *error);

/* Explains the private data of a rejection; `bytes` may be 0. Fills *error, returns its status. */
int32_t handshake_explain_reject(const void *data, size_t bytes, crpc_error *error);

#endif

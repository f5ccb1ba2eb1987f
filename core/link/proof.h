/* proof.h: what proves that a peer knows the key: HMAC-SHA256 over everything that the two sides
 * have said. The format is in docs/wire.md, "Proof". Only files of core/link include it.
 *
 * The cryptography is libcrypto's (OpenSSL), which is loaded when the first key is used. */
#ifndef CORE_LINK_PROOF_H
#define CORE_LINK_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "link/wire.h"

/* Loads libcrypto, unless that has been done. Any thread. May block while it is read from disk.
 * Returns CRPC_OK, or CRPC_E_UNSUPPORTED if there is none, and fills *error. */
int32_t proof_load(crpc_error *error);

/* What the proof of one side, or its body, is made of. Each kind has a label of its own, so that
 * nothing that one side says can be used as what the other has to say. */
enum proof_kind {
    PROOF_OF_CONNECTING,
    PROOF_OF_ACCEPTING,
    PROOF_BODY_OF_CONNECTING,
    PROOF_BODY_OF_ACCEPTING,
};

/* The first two words that both sides have said. */
struct proof_transcript {
    struct link_hello connecting_hello;
    struct link_hello accepting_hello;
    uint8_t connecting_nonce[LINK_PROOF_BYTES];
    uint8_t accepting_nonce[LINK_PROOF_BYTES];
};

/* Writes LINK_PROOF_BYTES bytes to `proof`. proof_load has returned CRPC_OK. `body` has
 * LINK_BODY_BYTES bytes, which are zeros in a proof that is not of a body. Returns CRPC_OK, or
 * CRPC_E_SYSTEM if libcrypto fails, and fills *error. */
int32_t proof_make(enum proof_kind kind, const uint8_t *key, uint32_t key_bytes,
                   const struct proof_transcript *transcript, const uint8_t *body, uint8_t *proof,
                   crpc_error *error);

/* Takes the same time whatever the bytes are. */
bool proof_equal(const uint8_t *left, const uint8_t *right);

#endif

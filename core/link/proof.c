/* proof.c: see proof.h. */
#include "link/proof.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

/* ---- libcrypto ------------------------------------------------------------------------------- */

/* Declared here, because the library is built without OpenSSL's headers. These functions have been
 * the same from 1.1.0 to 3. */
struct evp_md;

static struct {
    int32_t status;
    const struct evp_md *(*sha256)(void);
    unsigned char *(*hmac)(const struct evp_md *digest, const void *key, int key_bytes,
                           const unsigned char *data, size_t bytes, unsigned char *result,
                           unsigned int *result_bytes);
} crypto;

static void load(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    crypto.status = CRPC_E_UNSUPPORTED;
    if (!library) {
        return;
    }
    *(void **)&crypto.sha256 = dlsym(library, "EVP_sha256");
    *(void **)&crypto.hmac = dlsym(library, "HMAC");
    if (crypto.sha256 && crypto.hmac) {
        crypto.status = CRPC_OK;
    }
}

int32_t proof_load(crpc_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (crypto.status == CRPC_OK) {
        return CRPC_OK;
    }
    return error_set(
        error, crypto.status, 0,
        "a key needs OpenSSL's libcrypto, 1.1 or 3, and it is not to be found: install "
        "the package libssl3");
}

/* ---- Proofs ---------------------------------------------------------------------------------- */

#define LABEL_BYTES 32

/* Everything has a fixed length, so no two different things have the same bytes. */
struct proof_text {
    char label[LABEL_BYTES - 1]; /* zeros after its text */
    /* HMAC pads a key with zeros: without its length, a key and the same one with a zero behind it
     * would be one key. */
    uint8_t key_bytes;
    struct proof_transcript transcript;
    uint8_t body[LINK_BODY_BYTES];
};
static_assert(sizeof(struct proof_text) == 232, "as docs/wire.md says");

int32_t proof_make(enum proof_kind kind, const uint8_t *key, uint32_t key_bytes,
                   const struct proof_transcript *transcript, const uint8_t *body, uint8_t *proof,
                   crpc_error *error)
{
    static const char *const labels[] = {
        [PROOF_OF_CONNECTING] = "copyrpc 1 key, connecting",
        [PROOF_OF_ACCEPTING] = "copyrpc 1 key, accepting",
        [PROOF_BODY_OF_CONNECTING] = "copyrpc 1 body, connecting",
        [PROOF_BODY_OF_ACCEPTING] = "copyrpc 1 body, accepting",
    };
    assert(crypto.hmac && key_bytes > 0 && key_bytes <= LINK_KEY_BYTES_MAX);
    struct proof_text text = {.key_bytes = (uint8_t)key_bytes, .transcript = *transcript};
    memcpy(text.label, labels[kind], strlen(labels[kind]));
    memcpy(text.body, body, sizeof(text.body));
    unsigned char result[64];
    unsigned int bytes = sizeof(result);
    if (!crypto.hmac(crypto.sha256(), key, (int)key_bytes, (const unsigned char *)&text,
                     sizeof(text), result, &bytes) ||
        bytes != LINK_PROOF_BYTES) {
        return error_set(
            error, CRPC_E_SYSTEM, 0,
            "libcrypto cannot make an HMAC-SHA256: is it allowed by the policy of this "
            "system?");
    }
    memcpy(proof, result, LINK_PROOF_BYTES);
    return CRPC_OK;
}

bool proof_equal(const uint8_t *left, const uint8_t *right)
{
    uint8_t different = 0;
    for (size_t i = 0; i < LINK_PROOF_BYTES; i++) {
        different |= left[i] ^ right[i];
    }
    return different == 0;
}

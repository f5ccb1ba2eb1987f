/* options.c: see private/options.h. */
#include <string.h>

#include "base/error.h"
#include "private/options.h"

#define ADDRESS_BYTES_MAX 320

int32_t options_check_address(const char *address, crpc_error *error)
{
    if (!address || strnlen(address, ADDRESS_BYTES_MAX) == ADDRESS_BYTES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "the address is missing or too long");
    }
    return CRPC_OK;
}

int32_t options_check_connection(uint32_t retry_timeout, uint32_t retry_count, uint32_t token_bytes,
                                 uint32_t key_bytes, crpc_error *error)
{
    if (retry_timeout > 31 || retry_count > 7) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "retry_timeout may be at most 31, retry_count at most 7");
    }
    if (token_bytes > CRPC_TOKEN_BYTES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "a token has at most %d bytes",
                         CRPC_TOKEN_BYTES_MAX);
    }
    if (key_bytes != 0 && (key_bytes < CRPC_KEY_BYTES_MIN || key_bytes > CRPC_KEY_BYTES_MAX)) {
        return error_set(error, CRPC_E_INVALID, 0, "a key has %d to %d bytes, and not %u",
                         CRPC_KEY_BYTES_MIN, CRPC_KEY_BYTES_MAX, key_bytes);
    }
    return CRPC_OK;
}

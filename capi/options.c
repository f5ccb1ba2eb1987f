/* options.c: see private/options.h. */
#include <string.h>

#include "base/error.h"
#include "cm/address.h"
#include "private/options.h"

#define ADDRESS_BYTES_MAX 320

int32_t options_check_address(const char *address, crpc_error *error)
{
    if (!address || strnlen(address, ADDRESS_BYTES_MAX) == ADDRESS_BYTES_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "the address is missing or too long");
    }
    return CRPC_OK;
}

int32_t options_check_addresses(const char *addresses, size_t count_max, crpc_error *error)
{
    int32_t status = CRPC_OK;
    size_t count = 0, bytes;
    if (!addresses) {
        return options_check_address(addresses, error);
    }
    for (const char *at = addresses; status == CRPC_OK; at += bytes + 1) {
        char address[ADDRESS_BYTES_MAX];
        struct address_name name;
        bytes = strnlen(at, ADDRESS_BYTES_MAX);
        const char *comma = memchr(at, ',', bytes);
        bytes = comma ? (size_t)(comma - at) : bytes;
        if (++count > count_max) {
            return error_set(error, CRPC_E_INVALID, 0, "there may be at most %zu addresses",
                             count_max);
        }
        if (bytes == ADDRESS_BYTES_MAX) {
            return error_set(error, CRPC_E_INVALID, 0, "address %zu is too long", count);
        }
        memcpy(address, at, bytes);
        address[bytes] = '\0';
        status = strchr(address, ' ')
                     ? error_set(error, CRPC_E_INVALID, 0, "\"%.100s\" has a space", address)
                     : address_parse(address, ADDRESS_TO_CONNECT, &name, error);
        if (!comma) {
            break;
        }
    }
    return status;
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

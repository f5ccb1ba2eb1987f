/* options.c: see private/options.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cm/address.h"
#include "private/options.h"

#define ADDRESS_BYTES_MAX 320
#define TRAFFIC_CLASS_MAX 255u
#define SERVICE_LEVEL_MAX 15u
#define RETRY_TIMEOUT_MAX 31u
#define RETRY_COUNT_MAX 7u

/* ---- The network of a context ---------------------------------------------------------------- */

/* Returns false if the variable is not there. */
static bool number_of_environment(const char *name, uint32_t most, uint32_t *number,
                                  crpc_error *error)
{
    const char *text = getenv(name);
    if (!text || text[0] == '\0') {
        return false;
    }
    char *end;
    const unsigned long found = strtoul(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || found > most) {
        error_set(error, CRPC_E_INVALID, 0, "%s=%.32s is no number from 0 to %u", name, text, most);
        return false;
    }
    *number = (uint32_t)found;
    return true;
}

int32_t options_of_environment(crpc_context_options *options, crpc_error *error)
{
    const struct {
        const char *name;
        uint32_t *option;
        uint32_t most;
    } variables[] = {
        {"COPYRPC_TRAFFIC_CLASS", &options->traffic_class, TRAFFIC_CLASS_MAX},
        {"COPYRPC_SERVICE_LEVEL", &options->service_level, SERVICE_LEVEL_MAX},
        {"COPYRPC_PARTITION_KEY", &options->partition_key, UINT16_MAX},
        {"COPYRPC_RETRY_TIMEOUT", &options->retry_timeout, RETRY_TIMEOUT_MAX},
        {"COPYRPC_RETRY_COUNT", &options->retry_count, RETRY_COUNT_MAX},
    };
    crpc_error failure = {0};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (*variables[i].option == 0) {
            number_of_environment(variables[i].name, variables[i].most, variables[i].option,
                                  &failure);
        }
    }
    if (!(options->flags & CRPC_CONTEXT_GID_INDEX) && options->gid_index == 0 &&
        number_of_environment("COPYRPC_GID_INDEX", UINT8_MAX, &options->gid_index, &failure)) {
        options->flags |= CRPC_CONTEXT_GID_INDEX |
                          (options->flags & CRPC_CONTEXT_RAILS ? CRPC_CONTEXT_RAILS_GID_INDEX : 0);
    }
    return failure.status == CRPC_OK ? CRPC_OK
                                     : error_set(error, failure.status, 0, "%s", failure.message);
}

static int32_t check_gid_flags(const crpc_context_options *options, crpc_error *error)
{
    if (options->gid_index != 0 && !(options->flags & CRPC_CONTEXT_GID_INDEX)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "gid_index is only used with the flag CRPC_CONTEXT_GID_INDEX");
    }
    const uint32_t both = CRPC_CONTEXT_GID_INDEX | CRPC_CONTEXT_RAILS;
    if (options->flags & CRPC_CONTEXT_RAILS_GID_INDEX && (options->flags & both) != both) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "CRPC_CONTEXT_RAILS_GID_INDEX is only used with CRPC_CONTEXT_GID_INDEX "
                         "and CRPC_CONTEXT_RAILS");
    }
    return CRPC_OK;
}

int32_t options_check_network(const crpc_context_options *options, crpc_error *error)
{
    if (options->traffic_class > TRAFFIC_CLASS_MAX || options->service_level > SERVICE_LEVEL_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "traffic_class is %u, at most %u, and service_level is %u, at most %u",
                         options->traffic_class, TRAFFIC_CLASS_MAX, options->service_level,
                         SERVICE_LEVEL_MAX);
    }
    /* Bit 15 is the membership; 0 is no partition (InfiniBand, volume 1, 10.9.1.1). */
    if (options->partition_key > UINT16_MAX ||
        (options->partition_key != 0 && (options->partition_key & 0x7fffu) == 0)) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "partition_key is 0x%x; a P_Key is 0x0001 to 0x7fff, or with bit 15 0x8001 "
            "to 0xffff",
            options->partition_key);
    }
    int32_t status =
        options_check_connection(options->retry_timeout, options->retry_count, 0, 0, error);
    return status == CRPC_OK ? check_gid_flags(options, error) : status;
}

/* ---- Connections ----------------------------------------------------------------------------- */

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
    if (retry_timeout > RETRY_TIMEOUT_MAX || retry_count > RETRY_COUNT_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "retry_timeout may be at most %u, retry_count at most %u",
                         RETRY_TIMEOUT_MAX, RETRY_COUNT_MAX);
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

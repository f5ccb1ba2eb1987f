/* options.h: what the options of endpoints, channels and listeners have in common. */
#ifndef CAPI_OPTIONS_H
#define CAPI_OPTIONS_H

#include <stddef.h>

#include "base/abi.h"

#define CONNECT_TIMEOUT_DEFAULT_NS UINT64_C(5000000000)
#define KEEPALIVE_DEFAULT_NS UINT64_C(1000000000)
#define RETRY_TIMEOUT_DEFAULT 14u
#define RETRY_COUNT_DEFAULT 6u /* 7 would mean no limit to Soft-RoCE */

static inline void default32(uint32_t *field, uint32_t value)
{
    *field = *field ? *field : value;
}

static inline void default64(uint64_t *field, uint64_t value)
{
    *field = *field ? *field : value;
}

int32_t options_check_address(const char *address, crpc_error *error);
/* Of up to so many addresses to connect to, with commas between them. */
int32_t options_check_addresses(const char *addresses, size_t count_max, crpc_error *error);
/* Checks options that endpoints and channels share. */
int32_t options_check_connection(uint32_t retry_timeout, uint32_t retry_count, uint32_t token_bytes,
                                 uint32_t key_bytes, crpc_error *error);

#endif

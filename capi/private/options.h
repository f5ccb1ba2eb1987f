/* options.h: what the options of endpoints, channels and listeners have in common. */
#ifndef CAPI_OPTIONS_H
#define CAPI_OPTIONS_H

#include <stddef.h>

#include "base/abi.h"
#include "private/context.h"

#define CONNECT_TIMEOUT_DEFAULT_NS UINT64_C(5000000000)
#define KEEPALIVE_DEFAULT_NS UINT64_C(1000000000)
#define RETRY_TIMEOUT_DEFAULT 14u
/* A packet is sent again for 6 * 537 ms at least: longer than a fabric needs to find new routes (docs/design.md, section 12). */
#define CHANNEL_RETRY_TIMEOUT_DEFAULT 17u
#define RETRY_COUNT_DEFAULT 6u /* 7 would mean no limit to Soft-RoCE */

static inline void default32(uint32_t *field, uint32_t value)
{
    *field = *field ? *field : value;
}

static inline void default64(uint64_t *field, uint64_t value)
{
    *field = *field ? *field : value;
}

/* Where options say 0, or name no GID: takes what the environment says. */
int32_t options_of_environment(crpc_context_options *options, crpc_error *error);
/* Checks what concerns the way of packets: from the traffic class to the retries, and the GID. */
int32_t options_check_network(const crpc_context_options *options, crpc_error *error);

/* For a connection whose own options say 0: takes what its context has, or else these. */
static inline void default_retry(uint32_t *timeout, uint32_t *count,
                                 const struct crpc_context *context, uint32_t timeout_default)
{
    default32(timeout, context->retry_timeout);
    default32(timeout, timeout_default);
    default32(count, context->retry_count);
    default32(count, RETRY_COUNT_DEFAULT);
}

int32_t options_check_address(const char *address, crpc_error *error);
/* Of up to so many addresses to connect to, with commas between them. */
int32_t options_check_addresses(const char *addresses, size_t count_max, crpc_error *error);
/* Checks options that endpoints and channels share. */
int32_t options_check_connection(uint32_t retry_timeout, uint32_t retry_count, uint32_t token_bytes,
                                 uint32_t key_bytes, crpc_error *error);

#endif

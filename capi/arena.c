/* arena.c: memory that the caller lends the peer of an endpoint, for payloads. */
#include "base/error.h"
#include "private/context.h"
#include "private/copyin.h"
#include "rpc/wire.h"

#define ALIGNMENT 16u /* of payloads, as in a ring */

static_assert(CRPC_ARENA_PLACES_MAX == WIRE_PLACES_MAX,
              "the format has room for the caller's places");

static int32_t check_places(const struct region *region, uint64_t offset, uint32_t place_bytes,
                            uint32_t places, crpc_error *error)
{
    if (places == 0 || places > CRPC_ARENA_PLACES_MAX || place_bytes == 0 ||
        place_bytes % ALIGNMENT != 0 || (region->address + offset) % ALIGNMENT != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "an arena has 1 to %u places, which begin at multiples of %u",
                         CRPC_ARENA_PLACES_MAX, ALIGNMENT);
    }
    if (offset > region->bytes || (uint64_t)places * place_bytes > region->bytes - offset) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "%u places of %u bytes from offset %llu are not in the region, which has "
                         "%llu bytes",
                         places, place_bytes, (unsigned long long)offset,
                         (unsigned long long)region->bytes);
    }
    if (!(region->access & CRPC_ACCESS_LOCAL_WRITE)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "an arena's region must be registered with CRPC_ACCESS_LOCAL_WRITE");
    }
    return CRPC_OK;
}

static int32_t lend(crpc_context *context, crpc_endpoint endpoint, crpc_region region,
                    uint64_t offset, uint32_t place_bytes, uint32_t places, crpc_error *error)
{
    struct rpc_endpoint *to = endpoint_of(context, endpoint);
    struct region *object = region_of(context, region);
    if (!to || !object) {
        return error_set(error, CRPC_E_STALE, 0, "there is no such %s", to ? "region" : "endpoint");
    }
    const int32_t status = check_places(object, offset, place_bytes, places, error);
    return status == CRPC_OK ? rpc_arena_lend(to, &object->payloads, object->address + offset,
                                              place_bytes, places, error)
                             : status;
}

int32_t crpc_arena_lend(crpc_context *context, crpc_endpoint endpoint, crpc_region region,
                        uint64_t offset, uint32_t place_bytes, uint32_t places, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    const int32_t status =
        context ? lend(context, endpoint, region, offset, place_bytes, places, &failure)
                : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t crpc_arena_give_back(crpc_context *context, crpc_endpoint endpoint, uint64_t payload)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_arena_give_back(object, payload) : CRPC_E_STALE;
}

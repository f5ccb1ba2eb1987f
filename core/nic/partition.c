/* partition.c: which P_Key of a port's table a nic uses (InfiniBand specification, volume 1, 10.9). A limited member reaches full
 * members only, so a full membership is better. */
#include <stdio.h>

#include "base/error.h"
#include "nic/nic.h"

#define FULL_MEMBER 0x8000u
#define KEYS_NAMED_MAX 16u

static int32_t no_such_key(const char *device, uint32_t port, const uint16_t *keys, uint32_t count,
                           uint16_t wanted, crpc_error *error)
{
    char names[8 * KEYS_NAMED_MAX + 8] = "";
    size_t used = 0;
    uint32_t named = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i] != 0 && named == KEYS_NAMED_MAX) {
            snprintf(names + used, sizeof(names) - used, " ...");
            break;
        }
        if (keys[i] != 0) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s0x%04x",
                                     named++ ? ", " : " ", keys[i]);
        }
    }
    if (named == 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "%.63s port %u has no P_Key: does a subnet manager run?", device, port);
    }
    return error_set(error, CRPC_E_INVALID, 0, "%.63s port %u has no P_Key 0x%04x; it has%s",
                     device, port, wanted, names);
}

static bool fits(uint16_t key, uint16_t wanted)
{
    return (key & ~FULL_MEMBER) != 0 && (wanted == 0 || nic_same_partition(key, wanted));
}

int32_t nic_partition_choose(const char *device, uint32_t port, const uint16_t *keys,
                             uint32_t count, uint16_t wanted, uint32_t *index, crpc_error *error)
{
    uint32_t limited = count;
    for (uint32_t i = 0; i < count; i++) {
        if (!fits(keys[i], wanted)) {
            continue;
        }
        if (keys[i] & FULL_MEMBER) {
            *index = i;
            return CRPC_OK;
        }
        limited = limited == count ? i : limited;
    }
    if (limited == count || wanted & FULL_MEMBER) {
        return no_such_key(device, port, keys, count, wanted, error);
    }
    *index = limited;
    return CRPC_OK;
}

/* gid.c: which of a port's addresses (GIDs) a context uses.
 *
 * A RoCE port has one GID for each IP address and RoCE version. Version 2 is routable and is what
 * peers expect; of its addresses the IPv4 ones are most likely to be reachable, link-local ones
 * least. An InfiniBand port is found by its LID, and GID 0 is the one every port has. Where routers know
 * FLIDs, the subnet manager gives it GID 1, which leads to it from other subnets, too (so UCX and NCCL take it).
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/device.h"

#define GID_INDEX_MAX 255 /* what an address handle can name */
#define FLID_INDEX 1

static bool is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static bool is_zero(const union ibv_gid *gid)
{
    static const union ibv_gid zero;
    return memcmp(gid, &zero, sizeof(zero)) == 0;
}

/* The higher the better; 0 = not usable. */
static int rank(const struct ibv_gid_entry *entry, uint8_t link_layer)
{
    if (is_zero(&entry->gid)) {
        return 0;
    }
    if (link_layer != IBV_LINK_LAYER_ETHERNET) {
        if (entry->gid_index == FLID_INDEX && device_flid(entry->gid.raw) != 0) {
            return 2;
        }
        return entry->gid_index == 0 ? 1 : 0;
    }
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2) {
        return 1;
    }
    if (is_ipv4(&entry->gid)) {
        return 4;
    }
    return is_link_local(&entry->gid) ? 2 : 3;
}

bool device_gid_choose(struct ibv_context *context, uint32_t port,
                       const struct ibv_port_attr *attributes, struct device_gid *gid)
{
    int best = 0;
    for (int i = 0; i < attributes->gid_tbl_len && i <= GID_INDEX_MAX; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(context, port, (uint32_t)i, &entry, 0)) {
            continue; /* this index is empty */
        }
        int this_rank = rank(&entry, attributes->link_layer);
        if (this_rank > best) {
            best = this_rank;
            gid->value = entry.gid;
            gid->index = (uint32_t)i;
        }
    }
    return best != 0;
}

int32_t device_gid_take(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct device_gid *gid, crpc_error *error)
{
    struct ibv_gid_entry entry = {0};
    int os_error =
        index > GID_INDEX_MAX ? ERANGE : ibv_query_gid_ex(context, port, index, &entry, 0);
    if (os_error || is_zero(&entry.gid)) {
        return error_set(error, CRPC_E_INVALID, os_error,
                         "%s port %u has no GID at index %u: "
                         "/sys/class/infiniband/%s/ports/%u/gids lists those it has",
                         ibv_get_device_name(context->device), port, index,
                         ibv_get_device_name(context->device), port);
    }
    gid->value = entry.gid;
    gid->index = index;
    return CRPC_OK;
}

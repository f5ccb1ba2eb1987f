/* path.c: how packets find their way: partition, LID, GRH, service level, traffic class.
 *
 * Within an InfiniBand subnet the LID leads to a port. A GRH, which names ports by GIDs, is needed between subnets, and by ports that
 * share their LID with others, such as virtual functions: their IBV_QPF_GRH_REQUIRED says so, and the kernel refuses what comes from
 * them without one. What goes to them without one is lost, so each side tells the other (docs/wire.md). Ethernet has nothing but GIDs.
 *
 * From one subnet to another, the LID is that of the way to a router. Where routers know FLIDs, it is the FLID of the peer, which is part of
 * its GID: fec0::/32, 16 bits FLID, 16 bits that number the subnet, and the GUID (as UCX and NCCL have it). Without a FLID, only a
 * path record knows the LID of the router; rdma_cm asks for one.
 */
#include <endian.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/device.h"

#define HOP_LIMIT 64
#define PARTITIONS_MAX 1024u     /* of a port's table that are looked at; ConnectX has 128 */
#define ETHERNET_PRIORITY_MAX 7u /* of a VLAN tag (IEEE 802.1Q) */
#define SUBNET_PREFIX_BYTES 8
#define SUBNET_NUMBER_AT 6
#define SUBNET_NUMBER_BYTES 2

/* ---- What a port has ------------------------------------------------------------------------- */

/* Returns how many there are. */
static uint32_t read_partitions(const struct device_port *port, uint16_t keys[PARTITIONS_MAX])
{
    const uint32_t count = (uint32_t)minimum(port->attributes.pkey_tbl_len, PARTITIONS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        __be16 key;
        const bool known = ibv_query_pkey(port->context, (uint8_t)port->number, (int)i, &key) == 0;
        keys[i] = known ? be16toh(key) : 0;
    }
    return count;
}

int32_t device_port_network(struct device_port *port, const struct nic_network *wanted,
                            crpc_error *error)
{
    uint16_t keys[PARTITIONS_MAX] = {NIC_PARTITION_OF_ETHERNET};
    uint32_t count = 1;
    uint32_t index;
    const char *name = ibv_get_device_name(port->context->device);
    if (port->attributes.link_layer != IBV_LINK_LAYER_ETHERNET) {
        count = read_partitions(port, keys);
    } else if (wanted->service_level > ETHERNET_PRIORITY_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "service_level is %u, and on Ethernet, as at %s port %u, it is a priority "
                         "of at most %u",
                         wanted->service_level, name, port->number, ETHERNET_PRIORITY_MAX);
    }
    int32_t status =
        nic_partition_choose(name, port->number, keys, count, wanted->partition_key, &index, error);
    if (status == CRPC_OK) {
        port->partition_index = (uint16_t)index;
        port->partition_key = keys[index];
    }
    return status;
}

/* ---- The way to an address ------------------------------------------------------------------- */

/* A port without a FLID of its own is in a subnet whose routers know none. */
static uint16_t lid_of(const struct device_nic *nic, const struct nic_address *peer)
{
    const bool routed = device_flid(nic->base.gid) != 0 && device_flid(peer->gid) != 0;
    const bool one_subnet = memcmp(peer->gid + SUBNET_NUMBER_AT, nic->base.gid + SUBNET_NUMBER_AT,
                                   SUBNET_NUMBER_BYTES) == 0;
    return routed && !one_subnet ? device_flid(peer->gid) : peer->lid;
}

static bool needs_grh(const struct device_nic *nic, const struct nic_address *peer)
{
    return nic->base.link == CRPC_LINK_ETHERNET || nic->base.grh_required || peer->grh_required ||
           memcmp(peer->gid, nic->base.gid, SUBNET_PREFIX_BYTES) != 0;
}

struct ibv_ah_attr device_way_to(const struct device_nic *nic, const struct nic_address *peer)
{
    struct ibv_ah_attr way = {
        .dlid = lid_of(nic, peer), .sl = peer->service_level, .port_num = (uint8_t)nic->base.port};
    if (needs_grh(nic, peer)) {
        way.is_global = 1;
        way.grh.sgid_index = (uint8_t)nic->base.gid_index;
        way.grh.hop_limit = HOP_LIMIT;
        way.grh.traffic_class = peer->traffic_class;
        memcpy(way.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    }
    device_way_amend(nic, &way);
    return way;
}

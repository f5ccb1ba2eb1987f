/* query.c: QUERY_ROUTE and QUERY: an identifier's addresses, its device, its path and its GIDs.
 *
 * The responses lack their newest field, the device's index, as those of an older kernel do.
 * librdmacm then finds the device by its GUID. An index would have to be that of netlink, which the
 * shim refuses. */
#include "simnic/cm/internal.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A path record as the subnet administrator packs it, in struct ib_path_rec_data. */
struct packed_path {
    uint64_t service_id;
    uint8_t destination_gid[16], source_gid[16];
    uint16_t destination_lid, source_lid;
    uint32_t flow_label_hop_limit;
    uint8_t traffic_class, reversible_path_count;
    uint16_t partition_key, service_level;
    uint8_t mtu, rate, packet_lifetime, preference;
    uint8_t reserved[6];
} __attribute__((packed));

_Static_assert(sizeof(struct packed_path) == sizeof(((struct ib_path_rec_data *)0)->path_rec),
               "a path record");

static uint64_t node_guid(const struct cm_id *id)
{
    return id->rail < 0 ? 0 : htobe64(rails[id->rail].node_guid);
}

static void ip_address(struct sockaddr_in6 *to, const struct sockaddr_storage *from)
{
    memcpy(to, from,
           from->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
}

int command_query_route(const struct cm_call *call)
{
    struct rdma_ucm_query command;
    struct rdma_ucm_query_route_resp response = {0};
    const size_t bytes = offsetof(struct rdma_ucm_query_route_resp, ibdev_index);
    int error;
    if (call->out_bytes < bytes) {
        return -ENOSPC;
    }
    /* The older ABI's command ends before `option`. */
    if (call->in_bytes < offsetof(struct rdma_ucm_query, option)) {
        return -EINVAL;
    }
    memcpy(&command, call->in, offsetof(struct rdma_ucm_query, option));
    struct cm_id *id = id_find(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    ip_address(&response.src_addr, &id->source);
    ip_address(&response.dst_addr, &id->destination);
    if (id->rail >= 0) {
        response.node_guid = node_guid(id);
        response.port_num = RAIL_PORT;
        response.num_paths = id->paths;
        attributes_path(id, &response.ib_route[0]);
    }
    return call_copy_out(command.response, &response, bytes);
}

static void device_of(const struct cm_id *id, struct rdma_ucm_query_addr_resp *response)
{
    if (id->rail < 0) {
        return;
    }
    response->node_guid = node_guid(id);
    response->port_num = RAIL_PORT;
    response->pkey = htobe16(rail_address_partition(link_of(id)));
}

static int query_address(const struct cm_id *id, const struct cm_call *call, uint64_t to)
{
    struct rdma_ucm_query_addr_resp response = {0};
    const size_t bytes = offsetof(struct rdma_ucm_query_addr_resp, ibdev_index);
    if (call->out_bytes < bytes) {
        return -ENOSPC;
    }
    response.src_size = address_bytes(&id->source);
    memcpy(&response.src_addr, &id->source, response.src_size);
    response.dst_size = address_bytes(&id->destination);
    memcpy(&response.dst_addr, &id->destination, response.dst_size);
    device_of(id, &response);
    return call_copy_out(to, &response, bytes);
}

static void pack_path(const struct cm_id *id, struct packed_path *packed)
{
    struct ib_user_path_rec record;
    attributes_path(id, &record);
    memset(packed, 0, sizeof(*packed));
    memcpy(packed->destination_gid, record.dgid, 16);
    memcpy(packed->source_gid, record.sgid, 16);
    packed->destination_lid = record.dlid;
    packed->source_lid = record.slid;
    packed->flow_label_hop_limit = htobe32(be32toh(record.flow_label) << 8 | record.hop_limit);
    packed->traffic_class = record.traffic_class;
    packed->reversible_path_count = record.reversible << 7;
    packed->partition_key = record.pkey;
    packed->service_level = htobe16(record.sl);
    packed->mtu = record.mtu_selector << 6 | record.mtu;
    packed->rate = record.rate_selector << 6 | record.rate;
    packed->packet_lifetime = record.packet_life_time_selector << 6 | record.packet_life_time;
}

static int query_path(const struct cm_id *id, const struct cm_call *call, uint64_t to)
{
    struct rdma_ucm_query_path_resp head = {.num_paths = id->paths};
    struct ib_path_rec_data path = {.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL};
    uint8_t response[sizeof(head) + sizeof(path)];
    struct packed_path packed;
    if (call->out_bytes < sizeof(head)) {
        return -ENOSPC;
    }
    if (!id->paths || call->out_bytes < sizeof(response)) {
        return call_copy_out(to, &head, sizeof(head));
    }
    pack_path(id, &packed);
    memcpy(path.path_rec, &packed, sizeof(packed));
    memcpy(response, &head, sizeof(head));
    memcpy(response + sizeof(head), &path, sizeof(path));
    return call_copy_out(to, response, sizeof(response));
}

static void as_ib_address(const struct cm_id *id, const struct sockaddr_storage *from, void *to)
{
    struct address_ib address = {.family = ADDRESS_FAMILY_IB};
    if (from->ss_family == ADDRESS_FAMILY_IB) {
        memcpy(to, from, sizeof(address));
        return;
    }
    address.partition_key = id->rail < 0 ? 0 : htobe16(rail_address_partition(link_of(id)));
    /* An identifier without a device has no GIDs, whatever it is bound to. */
    if (id->rail >= 0) {
        id_gid(id, from, address.gid);
    }
    address.service_id = htobe64((uint32_t)id->port_space << 16 | address_port(from));
    memcpy(to, &address, sizeof(address));
}

static int query_gid(const struct cm_id *id, const struct cm_call *call, uint64_t to)
{
    struct rdma_ucm_query_addr_resp response = {0};
    const size_t bytes = offsetof(struct rdma_ucm_query_addr_resp, ibdev_index);
    if (call->out_bytes < bytes) {
        return -ENOSPC;
    }
    device_of(id, &response);
    response.src_size = response.dst_size = sizeof(struct address_ib);
    as_ib_address(id, &id->source, &response.src_addr);
    as_ib_address(id, &id->destination, &response.dst_addr);
    return call_copy_out(to, &response, bytes);
}

int command_query(const struct cm_call *call)
{
    struct rdma_ucm_query command;
    int error;
    struct cm_id *id = CALL_TAKE(call, command, &error);
    if (!id) {
        return error;
    }
    switch (command.option) {
    case RDMA_USER_CM_QUERY_ADDR:
        return query_address(id, call, command.response);
    case RDMA_USER_CM_QUERY_PATH:
        return query_path(id, call, command.response);
    case RDMA_USER_CM_QUERY_GID:
        return query_gid(id, call, command.response);
    }
    return -ENOSYS;
}

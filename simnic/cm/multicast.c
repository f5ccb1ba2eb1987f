/* multicast.c: joining and leaving multicast groups. On RoCE nobody has to be asked, and the subnet
 * manager of simnic's InfiniBand lets everybody, so a join succeeds at once. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t source_gid_index(const struct cm_id *id)
{
    uint8_t gid[16];
    address_gid(&id->source, gid);
    return rail_gid_index(id->rail, gid);
}

/* The GID of a group on InfiniBand, as the kernel's cma_set_mgid makes it: IPoIB's (RFC 4391), but with
 * rdma_cm's signature for datagrams. */
static void group_gid(const struct cm_id *id, const struct sockaddr_storage *address,
                      uint8_t gid[16])
{
    uint8_t raw[16];
    uint8_t version = address_raw(address, raw);
    bool is_gid = raw[0] == 0xff && (raw[1] & 0xf0) == 0x10 && raw[2] == 0xa0 && raw[3] == 0x1b;
    if (version == 0 || (version == 6 && is_gid)) {
        memcpy(gid, raw, 16);
        return;
    }
    uint16_t partition = rail_address_partition(link_of(id)) | RAIL_PARTITION_FULL;
    const uint8_t head[6] = {0xff, 0x12,           version == 4 ? 0x40 : 0x60,
                             0x1b, partition >> 8, partition & 0xff};
    memset(gid, 0, 16);
    if (version == 4) {
        memcpy(gid + 12, raw, 4);
        gid[12] &= 15;
    } else {
        memcpy(gid + 6, raw + 6, 10);
    }
    memcpy(gid, head, sizeof(head));
    if (id->port_space == RDMA_PS_UDP) {
        gid[3] = 0x01;
    }
}

/* How to send to a group on InfiniBand. The LID is one of those for groups; which, the subnet manager
 * chooses. */
static void put_group(const struct cm_id *id, const struct sockaddr_storage *address,
                      struct ib_uverbs_ah_attr *to)
{
    struct rail_way way = {.grh = true, .service_level = link_service_level(link_of(id))};
    group_gid(id, address, way.gid);
    way.lid = RAIL_MULTICAST_LID + (way.gid[15] & 0x3f);
    attributes_of_way(&way, to);
}

static struct cm_event *join_event(struct cm_id *id, struct cm_multicast *group,
                                   const struct sockaddr_storage *address)
{
    struct cm_event *event = event_new(id, EVENT_MULTICAST_JOIN, 0);
    if (!event) {
        return NULL;
    }
    struct rdma_ucm_ud_param *to = &event->response.param.ud;
    event->group = group;
    event->response.uid = group->uid;
    event->response.id = group->number;
    to->qp_num = MULTICAST_QPN;
    to->qkey = id->queue_key ? id->queue_key : UDP_QUEUE_KEY;
    if (on_infiniband(id)) {
        put_group(id, address, &to->ah_attr);
        return event;
    }
    address_gid(address, to->ah_attr.grh.dgid);
    to->ah_attr.grh.sgid_index = source_gid_index(id);
    to->ah_attr.grh.hop_limit = HOP_LIMIT;
    to->ah_attr.grh.traffic_class = id->traffic_class;
    to->ah_attr.is_global = 1;
    to->ah_attr.port_num = RAIL_PORT;
    return event;
}

static int check_join(const struct cm_id *id, const struct sockaddr_storage *address)
{
    if (id->queue_pair_type != QUEUE_PAIR_UD || id->rail < 0 || address_any(address)) {
        return -EINVAL;
    }
    /* In all other states a datagram identifier may join, also after it has connected. */
    return id->state == ID_IDLE || id->state == ID_LISTEN ? -EINVAL : 0;
}

static int join(const struct cm_call *call, const struct rdma_ucm_join_mcast *command)
{
    struct rdma_ucm_create_id_resp response;
    struct sockaddr_storage address;
    int error;
    memcpy(&address, &command->addr, sizeof(address));
    if (!command->addr_size || command->addr_size != address_bytes(&address) ||
        command->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command->id, &error);
    if (!id) {
        return error;
    }
    error = check_join(id, &address);
    if (error) {
        return error;
    }
    struct cm_multicast *group = calloc(1, sizeof(*group));
    struct cm_event *event = NULL;
    if (group) {
        group->number = call->file->cm->next_group++;
        group->uid = command->uid;
        event = join_event(id, group, &address);
    }
    response.id = event ? group->number : 0;
    error = event ? call_copy_out(command->response, &response, sizeof(response)) : -ENOMEM;
    if (error) {
        free(event);
        free(group);
        return error;
    }
    group->next = id->groups;
    id->groups = group;
    event_queue(event);
    return 0;
}

int command_join_ip_multicast(const struct cm_call *call)
{
    struct rdma_ucm_join_ip_mcast command;
    struct rdma_ucm_join_mcast full = {0};
    struct sockaddr_storage address = {0};
    if (call->out_bytes < sizeof(struct rdma_ucm_create_id_resp)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    memcpy(&address, &command.addr, sizeof(command.addr));
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) {
        return -EINVAL;
    }
    full.response = command.response;
    full.uid = command.uid;
    full.id = command.id;
    full.addr_size = address_bytes(&address);
    full.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
    memcpy(&full.addr, &address, sizeof(full.addr));
    return join(call, &full);
}

int command_join_multicast(const struct cm_call *call)
{
    struct rdma_ucm_join_mcast command;
    if (call->out_bytes < sizeof(struct rdma_ucm_create_id_resp)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    return join(call, &command);
}

/* Groups have numbers of their own, across all identifiers. */
static struct cm_multicast **find_group(struct cm *cm, uint32_t number, struct cm_id **owner)
{
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        *owner = cm->ids[i];
        if (!*owner) {
            continue;
        }
        for (struct cm_multicast **at = &(*owner)->groups; *at; at = &(*at)->next) {
            if ((*at)->number == number) {
                return at;
            }
        }
    }
    return NULL;
}

int command_leave_multicast(const struct cm_call *call)
{
    struct rdma_ucm_destroy_id command;
    struct rdma_ucm_destroy_id_resp response;
    struct cm_id *id;
    if (call->out_bytes < sizeof(response)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    struct cm_multicast **at = find_group(call->file->cm, command.id, &id);
    if (!at) {
        return -ENOENT;
    }
    if (id->file != call->file) {
        return -EINVAL;
    }
    struct cm_multicast *group = *at;
    events_drop_group(call->file, group);
    response.events_reported = group->events_reported;
    *at = group->next;
    free(group);
    return call_copy_out(command.response, &response, sizeof(response));
}

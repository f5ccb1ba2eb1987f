/* address.c: socket addresses, the rails that they belong to, binding, and resolving addresses and
 * routes. Resolving takes no time, since the rails are all that can be reached. On InfiniBand the IP
 * addresses are those of IPoIB, and no GIDs. */
#include "simnic/cm/internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define SERVICE_MASK 0xffffffffffff0000u /* all of a service id but the port */

static const struct sockaddr_in *as_ipv4(const struct sockaddr_storage *address)
{
    return (const struct sockaddr_in *)address;
}

static const struct sockaddr_in6 *as_ipv6(const struct sockaddr_storage *address)
{
    return (const struct sockaddr_in6 *)address;
}

static const struct address_ib *as_ib(const struct sockaddr_storage *address)
{
    return (const struct address_ib *)address;
}

unsigned address_bytes(const struct sockaddr_storage *address)
{
    switch (address->ss_family) {
    case AF_INET:
        return sizeof(struct sockaddr_in);
    case AF_INET6:
        return sizeof(struct sockaddr_in6);
    case ADDRESS_FAMILY_IB:
        return sizeof(struct address_ib);
    }
    return 0;
}

uint8_t address_raw(const struct sockaddr_storage *address, uint8_t raw[16])
{
    memset(raw, 0, 16);
    switch (address->ss_family) {
    case AF_INET:
        memcpy(raw, &as_ipv4(address)->sin_addr, 4);
        return 4;
    case AF_INET6:
        memcpy(raw, &as_ipv6(address)->sin6_addr, 16);
        return 6;
    case ADDRESS_FAMILY_IB:
        memcpy(raw, as_ib(address)->gid, 16);
    }
    return 0;
}

bool address_any(const struct sockaddr_storage *address)
{
    static const uint8_t zero[16];
    uint8_t raw[16];
    address_raw(address, raw);
    return memcmp(raw, zero, sizeof(raw)) == 0;
}

uint16_t address_port(const struct sockaddr_storage *address)
{
    switch (address->ss_family) {
    case AF_INET:
        return be16toh(as_ipv4(address)->sin_port);
    case AF_INET6:
        return be16toh(as_ipv6(address)->sin6_port);
    case ADDRESS_FAMILY_IB:
        return be64toh(as_ib(address)->service_id) & 0xffff;
    }
    return 0;
}

bool address_gid(const struct sockaddr_storage *address, uint8_t gid[16])
{
    uint8_t version = address_raw(address, gid);
    if (version == 4) {
        memcpy(gid + 12, gid, 4);
        memset(gid, 0, 10);
        memset(gid + 10, 0xff, 2);
    }
    return address->ss_family != AF_UNSPEC;
}

int address_rail(const struct sockaddr_storage *address, uint32_t link)
{
    uint8_t raw[16];
    switch (address_raw(address, raw)) {
    case 4:
        return rail_of_ipv4(raw);
    case 6:
        return rail_of_ipv6(raw);
    default:
        return address->ss_family == ADDRESS_FAMILY_IB ? rail_of_gid(link, raw) : NO_RAIL;
    }
}

uint8_t rail_gid_index(int rail, const uint8_t gid[16])
{
    for (int i = 0; i < RAIL_GID_COUNT; i++) {
        if (rails[rail].gid[i].type == RAIL_GID_ROCE_V2 &&
            memcmp(rails[rail].gid[i].raw, gid, 16) == 0) {
            return i;
        }
    }
    return 0;
}

static bool link_local(const uint8_t raw[16])
{
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

void address_set(struct sockaddr_storage *address, uint8_t ip_version, const uint8_t raw[16],
                 uint16_t network_port)
{
    memset(address, 0, sizeof(*address));
    if (ip_version == 4) {
        struct sockaddr_in *to = (struct sockaddr_in *)address;
        to->sin_family = AF_INET;
        to->sin_port = network_port;
        memcpy(&to->sin_addr, raw, 4);
        return;
    }
    struct sockaddr_in6 *to = (struct sockaddr_in6 *)address;
    to->sin6_family = AF_INET6;
    to->sin6_port = network_port;
    to->sin6_scope_id = link_local(raw) ? RAIL_NET_INDEX : 0;
    memcpy(&to->sin6_addr, raw, 16);
}

static void set_port(struct cm_id *id, uint16_t port)
{
    struct sockaddr_storage *address = &id->source;
    if (address->ss_family == AF_INET) {
        ((struct sockaddr_in *)address)->sin_port = htobe16(port);
    }
    if (address->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)address)->sin6_port = htobe16(port);
    }
    if (address->ss_family != ADDRESS_FAMILY_IB) {
        return;
    }
    struct address_ib *ib = (struct address_ib *)address;
    ib->service_id = htobe64((uint32_t)id->bound.port_space << 16 | port);
    ib->service_mask |= htobe64(SERVICE_MASK);
}

/* The port space in which an identifier binds. An InfiniBand address names it, and the identifier's
 * own must allow it. */
static uint16_t port_space_of(const struct cm_id *id, const struct sockaddr_storage *address)
{
    static const uint16_t spaces[] = {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP};
    if (address->ss_family != ADDRESS_FAMILY_IB) {
        return id->port_space;
    }
    uint64_t mask = be64toh(as_ib(address)->service_mask) & SERVICE_MASK;
    uint64_t service = be64toh(as_ib(address)->service_id) & mask;
    for (unsigned i = 0; i < sizeof(spaces) / sizeof(*spaces); i++) {
        uint64_t of_space = (uint32_t)spaces[i] << 16;
        if ((id->port_space == RDMA_PS_IB || id->port_space == spaces[i]) &&
            service == (of_space & mask)) {
            return spaces[i];
        }
    }
    return 0;
}

static int bind_port(struct cm_id *id, const struct sockaddr_storage *address)
{
    struct port_key key = {.port_space = port_space_of(id, address),
                           .port = address_port(address),
                           .family = address->ss_family,
                           .any_address = address_any(address),
                           .family_only = id->family_only,
                           .reuse_address = id->reuse_address};
    address_raw(address, key.address);
    if (key.port_space == 0) {
        return -EPROTONOSUPPORT;
    }
    int entry = ports_bind(&cm_of(id)->host, &key);
    if (entry < 0) {
        return entry;
    }
    id->port_entry = entry;
    id->bound = key;
    return 0;
}

int id_bind(struct cm_id *id, const struct sockaddr_storage *address)
{
    uint8_t raw[16];
    if (address_bytes(address) == 0) {
        return -EAFNOSUPPORT;
    }
    if (id->state != ID_IDLE) {
        return -EINVAL;
    }
    uint8_t version = address_raw(address, raw);
    if (version == 6 && link_local(raw) && as_ipv6(address)->sin6_scope_id == 0) {
        return -EINVAL;
    }
    int rail = address_rail(address, link_of(id));
    if (rail < 0 && !address_any(address)) {
        return -EADDRNOTAVAIL;
    }
    if (rail >= 0 && cm_rail_unplugged(cm_of(id), rail)) {
        return -ENODEV;
    }
    /* An IPv6 wildcard takes IPv4 as well, unless told otherwise. */
    if (!id->family_only_set) {
        id->family_only = version == 4;
    }
    int error = bind_port(id, address);
    if (error) {
        return error;
    }
    memset(&id->source, 0, sizeof(id->source));
    memcpy(&id->source, address, address_bytes(address));
    set_port(id, id->bound.port);
    id->rail = rail;
    id->state = ID_ADDR_BOUND;
    return 0;
}

static int bind_of(const struct cm_call *call, uint32_t number, const struct sockaddr_storage *at)
{
    int error;
    struct cm_id *id = id_find(call->file, number, &error);
    return id ? id_bind(id, at) : error;
}

/* Commands of the older ABI hold an IPv4 or IPv6 address only. */
static bool from_in6(struct sockaddr_storage *to, const struct sockaddr_in6 *from)
{
    memset(to, 0, sizeof(*to));
    memcpy(to, from, sizeof(*from));
    return to->ss_family == AF_INET || to->ss_family == AF_INET6;
}

int command_bind_ip(const struct cm_call *call)
{
    struct rdma_ucm_bind_ip command;
    struct sockaddr_storage address;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    if (!from_in6(&address, &command.addr)) {
        return -EINVAL;
    }
    return bind_of(call, command.id, &address);
}

int command_bind(const struct cm_call *call)
{
    struct rdma_ucm_bind command;
    struct sockaddr_storage address;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    memcpy(&address, &command.addr, sizeof(address));
    if (command.reserved || !command.addr_size || command.addr_size != address_bytes(&address)) {
        return -EINVAL;
    }
    return bind_of(call, command.id, &address);
}

/* Sets the source to the rail's address of the same kind as the destination. */
static void source_for(struct cm_id *id, int rail)
{
    uint8_t raw[16];
    uint8_t version = address_raw(&id->destination, raw);
    if (version == 4) {
        memcpy(raw, rails[rail].ipv4, 4);
    } else if (!link_local(raw)) {
        memcpy(raw, rails[rail].ipv6, 16);
    }
    address_set(&id->source, version, raw, htobe16(id->bound.port));
}

static bool is_group(const struct sockaddr_storage *address)
{
    uint8_t gid[16];
    if (!address_gid(address, gid)) {
        return false;
    }
    return address->ss_family == AF_INET ? gid[12] >> 4 == 14 : gid[0] == 0xff;
}

static int resolve_bound(struct cm_id *id, const struct sockaddr_storage *destination)
{
    static const uint8_t loopback6[16] = {[15] = 1}, loopback4[16] = {127, 0, 0, 1};
    uint8_t version = destination->ss_family == AF_INET ? 4 : 6;
    if (id->state != ID_ADDR_BOUND || id->source.ss_family != destination->ss_family) {
        return -EINVAL;
    }
    if (destination->ss_family == ADDRESS_FAMILY_IB) {
        return -ENODEV; /* no port of a RoCE device can be addressed so */
    }
    id->destination = *destination;
    if (address_any(destination)) {
        address_set(&id->destination, version, version == 4 ? loopback4 : loopback6,
                    htobe16(address_port(destination)));
    }
    int rail = address_rail(&id->destination, link_of(id));
    if (rail < 0 && is_group(&id->destination)) {
        rail = id->rail < 0 ? 0 : id->rail; /* groups are on every rail */
    }
    if (rail < 0 || cm_rail_unplugged(cm_of(id), rail)) {
        event_report(id, EVENT_ADDR_ERROR, -ENODEV);
        return 0;
    }
    if (id->rail < 0) {
        source_for(id, rail);
        id->rail = rail;
    }
    id->state = ID_ADDR_RESOLVED;
    event_report(id, EVENT_ADDR_RESOLVED, 0);
    return 0;
}

static int resolve(const struct cm_call *call, uint32_t number,
                   const struct sockaddr_storage *source,
                   const struct sockaddr_storage *destination)
{
    int error;
    struct cm_id *id = id_find(call->file, number, &error);
    if (!id) {
        return error;
    }
    if (id->state == ID_IDLE) {
        struct sockaddr_storage any;
        memset(&any, 0, sizeof(any));
        any.ss_family = destination->ss_family;
        if (any.ss_family == ADDRESS_FAMILY_IB && source->ss_family == AF_UNSPEC) {
            return -ENODEV;
        }
        error = id_bind(id, source->ss_family == AF_UNSPEC ? &any : source);
        if (error) {
            return error;
        }
    }
    return resolve_bound(id, destination);
}

int command_resolve_ip(const struct cm_call *call)
{
    struct rdma_ucm_resolve_ip command;
    struct sockaddr_storage source, destination;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    bool known = from_in6(&source, &command.src_addr);
    if ((source.ss_family && !known) || !from_in6(&destination, &command.dst_addr)) {
        return -EINVAL;
    }
    return resolve(call, command.id, &source, &destination);
}

int command_resolve_addr(const struct cm_call *call)
{
    struct rdma_ucm_resolve_addr command;
    struct sockaddr_storage source, destination;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    memcpy(&source, &command.src_addr, sizeof(source));
    memcpy(&destination, &command.dst_addr, sizeof(destination));
    if (command.reserved || (command.src_size && command.src_size != address_bytes(&source)) ||
        !command.dst_size || command.dst_size != address_bytes(&destination)) {
        return -EINVAL;
    }
    if (command.src_size == 0) {
        source.ss_family = AF_UNSPEC; /* the field holds no address */
    }
    return resolve(call, command.id, &source, &destination);
}

int command_resolve_route(const struct cm_call *call)
{
    struct rdma_ucm_resolve_route command;
    int error;
    struct cm_id *id = CALL_TAKE(call, command, &error);
    if (!id) {
        return error;
    }
    if (id->state != ID_ADDR_RESOLVED) {
        return -EINVAL;
    }
    id->state = ID_ROUTE_RESOLVED;
    id->paths = 1;
    event_report(id, EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

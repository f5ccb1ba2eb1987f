/* source.c: the address that a nic sends from, where a machine has several NICs in one subnet. The route to a peer there
 * leads through one of them, always the same; a connection of another must be asked for from that one's address. Runs in
 * the cm thread.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <string.h>

#include "cm/internal.h"

#define HARDWARE_ADDRESS_BYTES 20u /* of IP over InfiniBand: 4 bytes, and a GID */
#define INTERFACE_ID_BYTES 8u      /* the second half of a GID */

/* ---- Addresses ------------------------------------------------------------------------------- */

static const uint8_t *bytes_of(const struct sockaddr *address, size_t *count)
{
    if (address->sa_family == AF_INET) {
        *count = sizeof(struct in_addr);
        return (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
    }
    *count = sizeof(struct in6_addr);
    return (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static bool is_ip(const struct sockaddr *address)
{
    return address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

/* RoCE: the GID is the address, as it is or mapped. */
static bool is_of_gid(const struct sockaddr *address, const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    size_t count;
    const uint8_t *bytes = bytes_of(address, &count);
    if (count == sizeof(struct in_addr)) {
        return memcmp(gid, mapped, sizeof(mapped)) == 0 && memcmp(gid + 12, bytes, count) == 0;
    }
    return memcmp(gid, bytes, count) == 0;
}

/* InfiniBand: the hardware address of the interface ends as the GID does. */
static bool has_hardware_of(const struct sockaddr *address, const uint8_t gid[16])
{
    const struct sockaddr_ll *hardware = (const struct sockaddr_ll *)(const void *)address;
    if (!address || address->sa_family != AF_PACKET ||
        hardware->sll_halen != HARDWARE_ADDRESS_BYTES) {
        return false;
    }
    /* libc leaves room for more than the type has. */
    const uint8_t *bytes = (const uint8_t *)hardware + offsetof(struct sockaddr_ll, sll_addr);
    return memcmp(bytes + HARDWARE_ADDRESS_BYTES - INTERFACE_ID_BYTES,
                  gid + 16 - INTERFACE_ID_BYTES, INTERFACE_ID_BYTES) == 0;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static bool is_interface_of(const struct ifaddrs *interface, const struct nic *nic)
{
    return nic->link == CRPC_LINK_INFINIBAND
               ? has_hardware_of(interface->ifa_addr, nic->gid)
               : is_ip(interface->ifa_addr) && is_of_gid(interface->ifa_addr, nic->gid);
}

static bool is_in_subnet(const struct ifaddrs *interface, const struct sockaddr *peer)
{
    if (!is_ip(interface->ifa_addr) || interface->ifa_addr->sa_family != peer->sa_family ||
        !interface->ifa_netmask || interface->ifa_flags & IFF_LOOPBACK) {
        return false;
    }
    struct sockaddr_storage netmask = {.ss_family = peer->sa_family};
    size_t count;
    const uint8_t *theirs = bytes_of(peer, &count), *ours = bytes_of(interface->ifa_addr, &count);
    /* Its own family field may be zero. */
    memcpy((uint8_t *)&netmask + sizeof(netmask.ss_family),
           (const uint8_t *)interface->ifa_netmask + sizeof(netmask.ss_family),
           (count == sizeof(struct in_addr) ? sizeof(struct sockaddr_in)
                                            : sizeof(struct sockaddr_in6)) -
               sizeof(netmask.ss_family));
    const uint8_t *mask = bytes_of((const struct sockaddr *)&netmask, &count);
    for (size_t i = 0; i < count; i++) {
        if ((theirs[i] ^ ours[i]) & mask[i]) {
            return false;
        }
    }
    return true;
}

static const char *name_of_interface(const struct ifaddrs *all, const struct nic *nic)
{
    for (const struct ifaddrs *each = all; each; each = each->ifa_next) {
        if (is_interface_of(each, nic)) {
            return each->ifa_name;
        }
    }
    return NULL;
}

bool cm_source_for(const struct nic *nic, const struct sockaddr *peer,
                   struct sockaddr_storage *source)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all)) {
        return false;
    }
    const char *name = name_of_interface(all, nic);
    for (const struct ifaddrs *each = all; each && name && !found; each = each->ifa_next) {
        if (strcmp(each->ifa_name, name) == 0 && is_in_subnet(each, peer)) {
            memset(source, 0, sizeof(*source));
            memcpy(source, each->ifa_addr,
                   peer->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                              : sizeof(struct sockaddr_in6));
            found = true;
        }
    }
    freeifaddrs(all);
    return found;
}

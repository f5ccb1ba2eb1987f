/* interface.c: the address at which listen comms are met, chosen by the rules of NCCL's own networks, so that who
 * has set up NCCL_SOCKET_IFNAME need not learn other words:
 *
 *   1. COPYRPC_NCCL_ADDRESS, an address;
 *   2. NCCL_SOCKET_IFNAME: names of interfaces by their beginnings, after '=' whole ones, after '^' all others;
 *      nothing else then;
 *   3. an interface whose name begins with "ib";
 *   4. NCCL_COMM_ID, "address:port" of the first rank: the interface in its subnet;
 *   5. any other but docker, lo and virbr; then docker; then lo; then virbr.
 *
 * The first address of a running interface counts, of the family that NCCL_SOCKET_FAMILY names (AF_INET or AF_INET6).
 */
#include "plugin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? text : NULL;
}

static int wanted_family(void)
{
    const char *name = variable("NCCL_SOCKET_FAMILY");
    if (name == NULL) {
        return AF_UNSPEC;
    }
    return strcmp(name, "AF_INET") == 0    ? AF_INET
           : strcmp(name, "AF_INET6") == 0 ? AF_INET6
                                           : AF_UNSPEC;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static bool is_address(const struct ifaddrs *interface, int family)
{
    const struct sockaddr *address = interface->ifa_addr;
    if (address == NULL || !(interface->ifa_flags & IFF_RUNNING) ||
        (address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
        (family != AF_UNSPEC && address->sa_family != family)) {
        return false;
    }
    return address->sa_family == AF_INET ||
           !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static void take(const struct sockaddr *from, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof(*address));
    if (from->sa_family == AF_INET) {
        memcpy(address, from, sizeof(struct sockaddr_in));
        ((struct sockaddr_in *)address)->sin_port = 0;
    } else {
        memcpy(address, from, sizeof(struct sockaddr_in6));
        ((struct sockaddr_in6 *)address)->sin6_port = 0;
    }
}

/* The first whose interface `words` name. */
static bool find_by_name(const struct ifaddrs *interfaces, const char *words,
                         struct sockaddr_storage *address)
{
    const int family = wanted_family();
    for (const struct ifaddrs *each = interfaces; each != NULL; each = each->ifa_next) {
        if (is_address(each, family) && ports_named(words, each->ifa_name, 0)) {
            take(each->ifa_addr, address);
            INFO("peers meet this process at an address of %s", each->ifa_name);
            return true;
        }
    }
    return false;
}

/* ---- NCCL_COMM_ID ---------------------------------------------------------------------------- */

static const uint8_t *bytes_of(const struct sockaddr *address, size_t *count)
{
    if (address->sa_family == AF_INET) {
        *count = 4;
        return (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
    }
    *count = 16;
    return (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static bool same_subnet(const struct ifaddrs *interface, const struct sockaddr *remote)
{
    if (interface->ifa_addr->sa_family != remote->sa_family || interface->ifa_netmask == NULL) {
        return false;
    }
    size_t count;
    const uint8_t *mask = bytes_of(interface->ifa_addr, &count);
    const uint8_t *ours = mask, *theirs = bytes_of(remote, &count);
    /* The netmask has the family of its address, whatever its own field says. */
    struct sockaddr_storage netmask = {0};
    memcpy(&netmask, interface->ifa_netmask,
           count == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    netmask.ss_family = remote->sa_family;
    mask = bytes_of((const struct sockaddr *)&netmask, &count);
    for (size_t i = 0; i < count; i++) {
        if ((ours[i] & mask[i]) != (theirs[i] & mask[i])) {
            return false;
        }
    }
    return true;
}

/* "192.0.2.1:port", "[2001:db8::1]:port" or "name:port". */
static bool resolve(const char *comm_id, struct sockaddr_storage *address)
{
    char host[256];
    bool bracket = *comm_id == '[';
    const char *end = bracket ? strchr(comm_id, ']') : strrchr(comm_id, ':');
    size_t length = end == NULL ? strlen(comm_id) : (size_t)(end - comm_id);
    if (length >= sizeof(host)) {
        return false;
    }
    memcpy(host, comm_id + bracket, length - bracket);
    host[length - bracket] = '\0';
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        return false;
    }
    take(found->ai_addr, address);
    freeaddrinfo(found);
    return true;
}

static bool find_by_comm_id(const struct ifaddrs *interfaces, struct sockaddr_storage *address)
{
    struct sockaddr_storage remote;
    const char *comm_id = variable("NCCL_COMM_ID");
    if (comm_id == NULL || !resolve(comm_id, &remote)) {
        return false;
    }
    for (const struct ifaddrs *each = interfaces; each != NULL; each = each->ifa_next) {
        if (is_address(each, AF_UNSPEC) && same_subnet(each, (const struct sockaddr *)&remote)) {
            take(each->ifa_addr, address);
            INFO("peers meet this process at an address of %s, as NCCL_COMM_ID", each->ifa_name);
            return true;
        }
    }
    return false;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static bool take_literal(const char *text, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof(*address));
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        return true;
    }
    six->sin6_family = AF_INET6;
    return inet_pton(AF_INET6, text, &six->sin6_addr) == 1;
}

static bool find_as_nccl(const struct ifaddrs *interfaces, struct sockaddr_storage *address)
{
    const char *names = variable("NCCL_SOCKET_IFNAME");
    if (names != NULL) {
        return find_by_name(interfaces, names, address);
    }
    return find_by_name(interfaces, "ib", address) || find_by_comm_id(interfaces, address) ||
           find_by_name(interfaces, "^docker,lo,virbr", address) ||
           find_by_name(interfaces, "docker", address) || find_by_name(interfaces, "lo", address) ||
           find_by_name(interfaces, "virbr", address);
}

static bool choose(const struct settings *from, struct sockaddr_storage *address)
{
    if (from->address[0] != '\0') {
        return take_literal(from->address, address); /* settings.c has checked it */
    }
    struct ifaddrs *interfaces;
    if (getifaddrs(&interfaces) != 0) {
        WARN("cannot list the network interfaces: %s", strerror(errno));
        return false;
    }
    bool found = find_as_nccl(interfaces, address);
    freeifaddrs(interfaces);
    if (!found) {
        const char *names = variable("NCCL_SOCKET_IFNAME");
        WARN("no network interface has an address at which peers could meet this process%s%s: set "
             "NCCL_SOCKET_IFNAME to the beginning of an interface's name, or COPYRPC_NCCL_ADDRESS",
             names != NULL ? "; NCCL_SOCKET_IFNAME is " : "", names != NULL ? names : "");
    }
    return found;
}

/* Once for all listen comms: a name in NCCL_COMM_ID takes time to be looked up. */
bool interface_choose(const struct settings *from, struct sockaddr_storage *address)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct sockaddr_storage chosen;
    static bool known;
    pthread_mutex_lock(&lock);
    known = known || choose(from, &chosen);
    *address = chosen;
    bool found = known;
    pthread_mutex_unlock(&lock);
    return found;
}

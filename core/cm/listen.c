/* listen.c: listeners. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cm/internal.h"

#define BACKLOG_DEFAULT 128

/* rdma_cm says EADDRNOTAVAIL for an address that is not this machine's, and for a port that is
 * taken where either listener is on a wildcard. A socket tells the two apart. */
static bool is_local(const struct sockaddr *address)
{
    struct sockaddr_storage any_port = {0};
    socklen_t length =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(&any_port, address, length);
    if (address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    } else {
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    }
    int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool local = bind(fd, (struct sockaddr *)&any_port, length) == 0;
    close(fd);
    return local;
}

/* rdma_cm takes a loopback address that no RDMA device has for a wildcard: a listener on 127.0.0.1
 * would hear everybody. After the bind it shows: there is no device. */
static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    }
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static int32_t bind_error(const struct sockaddr *address, int os_error, crpc_error *error)
{
    char text[ADDRESS_TEXT_BYTES];
    address_format(address, text, sizeof(text));
    if (os_error == EADDRNOTAVAIL && is_local(address) && !is_loopback(address)) {
        os_error = EADDRINUSE;
    }
    switch (os_error) {
    case EADDRINUSE:
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "%s: the port is taken: `rdma resource show cm_id` tells by whom; port 0 "
                         "takes a free one",
                         text);
    case EADDRNOTAVAIL:
    case ENODEV:
        return error_set(error, CRPC_E_NO_DEVICE, os_error,
                         "%s is not an address of an RDMA device of this machine: `rdma link` and "
                         "`ip address` show those there are",
                         text);
    case EACCES:
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "%s: ports below 1024 are for root: take a higher one", text);
    default:
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: cannot listen: %s", text,
                         strerror(os_error));
    }
}

/* AF_INET6 wildcard listeners take IPv4 as well unless told not to: right for "*", wrong for
 * "[::]", which may stand beside another listener on "0.0.0.0". */
static void set_options(struct cm_identifier *identifier, int family)
{
    int on = 1;
    int off = 0;
    rdma_set_option(identifier->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) {
        rdma_set_option(identifier->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
                        identifier->search->name.any ? &off : &on, sizeof(on));
    }
}

static int32_t listen_on(struct cm_identifier *identifier, struct sockaddr *address,
                         crpc_error *error)
{
    struct cm *cm = identifier->cm;
    if (identifier->id) {
        rdma_destroy_id(identifier->id);
        identifier->id = NULL;
    }
    if (rdma_create_id(cm->channel, &identifier->id, identifier, RDMA_PS_TCP)) {
        identifier->id = NULL;
        return bind_error(address, errno, error);
    }
    set_options(identifier, address->sa_family);
    if (rdma_bind_addr(identifier->id, address)) {
        return bind_error(address, errno, error);
    }
    if (!identifier->id->verbs && is_loopback(address)) {
        return bind_error(address, ENODEV, error);
    }
    if (identifier->id->verbs && !cm_same_port(cm, identifier->id)) {
        return cm_other_device_error(identifier->target, cm->nic, identifier->id, error);
    }
    if (rdma_listen(identifier->id, (int)identifier->backlog)) {
        return bind_error(address, errno, error);
    }
    cm_note_addresses(identifier);
    return CRPC_OK;
}

/* Every address, of both families where the machine has both. */
static int32_t listen_on_any(struct cm_identifier *identifier, crpc_error *error)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons(identifier->search->name.port)};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons(identifier->search->name.port)};
    int32_t status = listen_on(identifier, (struct sockaddr *)&six, error);
    if (status == CRPC_OK || error->os_error == EADDRINUSE) {
        return status;
    }
    return listen_on(identifier, (struct sockaddr *)&four, error);
}

static int32_t listen_on_named(struct cm_identifier *identifier, crpc_error *error)
{
    struct addrinfo *addresses = NULL;
    int result = address_look_up(&identifier->search->name, &addresses);
    if (result) {
        return error_set(error, CRPC_E_UNREACHABLE, 0, "%.100s: cannot resolve this host name: %s",
                         identifier->target, gai_strerror(result));
    }
    int32_t status = CRPC_E_UNREACHABLE;
    for (struct addrinfo *address = addresses; address && status; address = address->ai_next) {
        status = listen_on(identifier, address->ai_addr, error);
    }
    freeaddrinfo(addresses);
    return status;
}

int32_t cm_listen(struct cm *cm, const char *address, uint32_t backlog, void *owner,
                  struct cm_identifier **identifier, crpc_error *error)
{
    struct address_name name;
    crpc_error unwanted = {.struct_size = sizeof(unwanted)};
    error = error ? error : &unwanted;
    int32_t status = address_parse(address, ADDRESS_TO_LISTEN, &name, error);
    if (status) {
        return status;
    }
    struct cm_identifier *made = cm_identifier_new_to(cm, owner, &name);
    if (!made) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a listener");
    }
    made->backlog = backlog ? backlog : BACKLOG_DEFAULT;
    snprintf(made->target, sizeof(made->target), "%s", address);
    status = name.any ? listen_on_any(made, error) : listen_on_named(made, error);
    if (status) {
        cm_destroy(made);
        return status;
    }
    *identifier = made;
    return CRPC_OK;
}

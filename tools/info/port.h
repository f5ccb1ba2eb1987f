/* port.h: what libibverbs tells of a port and copyrpc.h does not: its GIDs, the MTU that it could have, and what its connections offer beyond
 * the standard (ECE). */
#ifndef TOOLS_INFO_PORT_H
#define TOOLS_INFO_PORT_H

#include <stdint.h>

#define PORT_GIDS_MAX 64

struct gid_entry {
    uint32_t index;
    char type[16]; /* "IB", "RoCE v1", "RoCE v2" */
    char text[48]; /* as an IPv6 address, or as an IPv4 address if it is one */
};

struct port {
    uint32_t mtu_bytes_max; /* 0: not known */
    uint32_t ece_options;   /* 0: none */
    uint32_t gid_count;
    struct gid_entry gids[PORT_GIDS_MAX];
};

/* Opens the device for a moment. What cannot be read is 0. */
void port_read(const char *device, uint32_t number, struct port *port);

#endif

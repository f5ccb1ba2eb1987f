/* gids.h: the GIDs of a port, which copyrpc.h does not list: from libibverbs. */
#ifndef TOOLS_INFO_GIDS_H
#define TOOLS_INFO_GIDS_H

#include <stdint.h>

struct gid_entry {
    uint32_t index;
    char type[16]; /* "IB", "RoCE v1", "RoCE v2" */
    char text[48]; /* as an IPv6 address; IPv4 ones as such */
};

/* Returns how many of the port's GIDs were written, at most `capacity`. */
uint32_t gids_list(const char *device, uint32_t port, struct gid_entry *entries, uint32_t capacity);

#endif

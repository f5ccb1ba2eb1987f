/* gids.h: lists the GIDs of a port, using libibverbs, because copyrpc.h does not list them. */
#ifndef TOOLS_INFO_GIDS_H
#define TOOLS_INFO_GIDS_H

#include <stdint.h>

struct gid_entry {
    uint32_t index;
    char type[16]; /* "IB", "RoCE v1", "RoCE v2" */
    char text[48]; /* as an IPv6 address, or as an IPv4 address if it is one */
};

/* Writes the GIDs of the port to `entries`. Returns how many, at most `capacity`. */
uint32_t gids_list(const char *device, uint32_t port, struct gid_entry *entries, uint32_t capacity);

#endif

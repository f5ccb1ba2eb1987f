/* rails.h: the two virtual ports: their names and addresses. Whatever tells a program about a rail
 * (sysfs, the answers of uverbs, rdma_cm) takes it from here. */
#ifndef SIMNIC_SESSION_RAILS_H
#define SIMNIC_SESSION_RAILS_H

#include <stdint.h>

#define RAIL_COUNT 2
#define RAIL_GID_COUNT 8  /* entries of a port's GID table */
#define RAIL_PKEY_COUNT 1 /* RoCE has the default partition key only */
#define RAIL_PKEY 0xffff
#define RAIL_PORT 1 /* the only port of each device */
#define RAIL_MTU_BYTES 4096
#define RAIL_NET_DEVICE "lo" /* the network interface both rails' addresses belong to */
#define RAIL_NET_INDEX 1     /* its index: lo is the first interface of every network namespace */
#define RAIL_FIRMWARE "20.31.1014"
#define RAIL_BOARD_ID "SIM0000000001"
#define RAIL_VENDOR_ID 0x02c9u     /* as ibv_query_device tells it */
#define RAIL_PCI_VENDOR_ID 0x15b3u /* as sysfs tells it */
#define RAIL_PCI_DEVICE_ID 0x101bu /* ConnectX-6 */
#define RAIL_VENDOR_PART_ID 4123u  /* the same, in decimal */

enum rail_gid_type { RAIL_GID_NONE, RAIL_GID_ROCE_V1, RAIL_GID_ROCE_V2 };

struct rail_gid {
    enum rail_gid_type type;
    uint8_t raw[16];
};

struct rail {
    const char *device; /* "mlx5_0" */
    const char *uverbs; /* "uverbs0" */
    uint32_t major, minor;
    uint64_t node_guid; /* host order */
    uint8_t mac[6];
    uint8_t ipv4[4];
    uint8_t ipv6[16];
    struct rail_gid gid[RAIL_GID_COUNT];
};

/* The rails, rail[0] and rail[1]. */
extern const struct rail rails[RAIL_COUNT];

/* Device number of /dev/infiniband/rdma_cm. */
#define RDMA_CM_MAJOR 10
#define RDMA_CM_MINOR 121

/* Returns the index of the rail that has this GID, or -1. */
int rail_of_gid(const uint8_t gid[16]);

/* Returns the index of the rail with this address (network order), or -1. */
int rail_of_ipv4(const uint8_t address[4]);
int rail_of_ipv6(const uint8_t address[16]);

#endif

/* rails.h: the two virtual ports: their names and addresses, and which of them a packet reaches.
 * Whatever tells a program about a rail (sysfs, the answers of uverbs, rdma_cm) takes it from here.
 * `link` is the session's: link.h. */
#ifndef SIMNIC_SESSION_RAILS_H
#define SIMNIC_SESSION_RAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "simnic/session/link.h"

#define RAIL_COUNT 2
#define RAIL_NONE (-1)
#define RAIL_GID_COUNT 8 /* entries of a port's GID table */
#define RAIL_PORT 1      /* the only port of each device */
#define RAIL_MTU_BYTES 4096
#define RAIL_NET_DEVICE "lo" /* the network interface both rails' addresses belong to */
#define RAIL_NET_INDEX 1     /* its index: lo is the first interface of every network namespace */
#define RAIL_FIRMWARE "20.31.1014"
#define RAIL_BOARD_ID "SIM0000000001"
#define RAIL_VENDOR_ID 0x02c9u     /* as ibv_query_device tells it */
#define RAIL_PCI_VENDOR_ID 0x15b3u /* as sysfs tells it */
#define RAIL_PCI_DEVICE_ID 0x101bu /* ConnectX-6 */
#define RAIL_VENDOR_PART_ID 4123u  /* the same, in decimal */

/* InfiniBand: LIDs of a port are 2^RAIL_LID_MASK_BITS in a row. A switch has the subnet manager. */
#define RAIL_LID_MASK_BITS 1
#define RAIL_MANAGER_LID 1
#define RAIL_ROUTER_LID 2 /* with LINK_SUBNETS, in each subnet */
#define RAIL_MULTICAST_LID 0xc000u
#define RAIL_PERMISSIVE_LID 0xffffu
#define RAIL_DEFAULT_PARTITION 0xffffu /* the P_Key that all ports have, and RoCE alone */
/* What a subnet manager reads of a port: a connection manager, a system image GUID, extended speeds,
 * reregistration. */
#define RAIL_INFINIBAND_CAPABILITIES 0x02014800u
#define RAIL_PARTITION_FULL 0x8000u /* in a P_Key: full membership */

enum rail_gid_type { RAIL_GID_NONE, RAIL_GID_ROCE_V1, RAIL_GID_ROCE_V2, RAIL_GID_INFINIBAND };

struct rail_gid {
    enum rail_gid_type type;
    uint8_t raw[16];
};

#define RAIL_GID_TEXT_BYTES 40 /* eight words in hexadecimal, and the end */

/* As sysfs writes it: fe80:0000:0000:0000:0073:69ff:fe6d:0001. */
void rail_gid_text(const uint8_t raw[16], char text[RAIL_GID_TEXT_BYTES]);

struct rail {
    const char *device; /* "mlx5_0" */
    const char *uverbs; /* "uverbs0" */
    uint32_t major, minor;
    uint64_t node_guid; /* host order */
    uint8_t mac[6];
    uint8_t ipv4[4];
    uint8_t ipv6[16];
    struct rail_gid gid[RAIL_GID_COUNT]; /* of a RoCE port */
    uint16_t lid, far_lid; /* on InfiniBand; far_lid: by which other subnets reach it (FLID) */
};

/* An address vector: where a packet goes, and how. */
struct rail_way {
    uint16_t lid;      /* destination; InfiniBand only */
    uint8_t path_bits; /* low bits of the source LID */
    uint8_t service_level;
    uint8_t grh; /* 1: has a global route header, of what follows. RoCE always has */
    uint8_t gid_index;
    uint8_t hop_limit, traffic_class;
    uint32_t flow_label;
    uint8_t gid[16];
};

/* The rails, rail[0] and rail[1]. */
extern const struct rail rails[RAIL_COUNT];

/* Device number of /dev/infiniband/rdma_cm. */
#define RDMA_CM_MAJOR 10
#define RDMA_CM_MINOR 121

/* Returns an entry of a port's GID table; RAIL_GID_NONE if it is free. */
struct rail_gid rail_gid(uint32_t link, int rail, uint32_t index);

/* Returns the rail that has this GID, or RAIL_NONE. */
int rail_of_gid(uint32_t link, const uint8_t gid[16]);

/* Returns the rail with this address (network order), or RAIL_NONE. On InfiniBand these are the
 * addresses of IPoIB. */
int rail_of_ipv4(const uint8_t address[4]);
int rail_of_ipv6(const uint8_t address[16]);

/* Returns an entry of a port's P_Key table, which has so many; 0 if it is free. */
uint32_t rail_partition_count(uint32_t link);
uint16_t rail_partition(uint32_t link, int rail, uint32_t index);

/* The partition that the IP addresses are in, and its index in a port's table. */
uint16_t rail_address_partition(uint32_t link);
uint32_t rail_address_partition_index(uint32_t link, int rail);

/* Whether members with these P_Keys may talk (IBTA 10.9.3): of one partition, one a full member. */
static inline bool rail_partitions_match(uint16_t a, uint16_t b)
{
    return ((a ^ b) & ~RAIL_PARTITION_FULL) == 0 && ((a | b) & RAIL_PARTITION_FULL) &&
           (a & ~RAIL_PARTITION_FULL) != 0;
}

static inline bool rail_same_subnet(uint32_t link, int a, int b)
{
    return a == b || !(link & LINK_SUBNETS);
}

static inline bool rail_is_multicast_lid(uint16_t lid)
{
    return lid >= RAIL_MULTICAST_LID && lid != RAIL_PERMISSIVE_LID;
}

/* Returns the rail whose port takes a packet that rail `from` sends so, or RAIL_NONE. */
int rail_reached(uint32_t link, int from, const struct rail_way *way);

/* Fills in how a rail reaches another, as a subnet manager's path record says: LIDs, SL, whether there
 * must be a GRH, and the ports' GIDs. */
void rail_find_way(uint32_t link, int from, int to, struct rail_way *way);

#endif

/* rails.c: the two rails' names and addresses. */
#include "simnic/session/rails.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define LINK_LOCAL(n) {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x73, 0x69, 0xff, 0xfe, 0x6d, 0x00, (n)}
#define MAPPED(n) {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, (n)}
#define LOOPBACK6 {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
#define UNIQUE_LOCAL(n) {0xfd, 0x73, 0x69, 0x6d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (n)}

/* As mlx5 fills a port's table: each address twice, as RoCE v1 and v2, the link-local one first. */
#define GIDS(n, v6)                                                                  \
    {{RAIL_GID_ROCE_V1, LINK_LOCAL(n)}, {RAIL_GID_ROCE_V2, LINK_LOCAL(n)},           \
     {RAIL_GID_ROCE_V1, MAPPED(n)},     {RAIL_GID_ROCE_V2, MAPPED(n)},               \
     {RAIL_GID_ROCE_V1, v6},            {RAIL_GID_ROCE_V2, v6}}
#define SIX_OF_RAIL_0 LOOPBACK6
#define SIX_OF_RAIL_1 UNIQUE_LOCAL(2)

const struct rail rails[RAIL_COUNT] = {
    {"mlx5_0", "uverbs0", 231, 192, 0x02736903006d0001u, {2, 0x73, 0x69, 0x6d, 0, 1}, {127, 0, 0, 1},
     SIX_OF_RAIL_0, GIDS(1, SIX_OF_RAIL_0), 4, 0xa001},
    {"mlx5_1", "uverbs1", 231, 193, 0x02736903006d0002u, {2, 0x73, 0x69, 0x6d, 0, 2}, {127, 0, 0, 2},
     SIX_OF_RAIL_1, GIDS(2, SIX_OF_RAIL_1), 6, 0xa002},
};
/* clang-format on */

#define LINK_LOCAL_PREFIX 0xfe80000000000000u
#define SITE_LOCAL_PREFIX 0xfec0000000000000u
#define FAR_LID_SHIFT                                                                              \
    16 /* where in a prefix the FLID is: in the bytes before the subnet's number */
#define ROUTED_HOPS 64
#define PARTITIONS 128u /* entries of a ConnectX's table */

/* One place differs from port to port, so that who takes an index for a P_Key is found out. With the first
 * entry of the other, 0x0033 cannot talk at all: both are limited members. 0x44 can. */
static const uint16_t partitions[RAIL_COUNT][5] = {
    {RAIL_DEFAULT_PARTITION, 0x8011, 0x8022, 0x0033, 0x8044},
    {RAIL_DEFAULT_PARTITION, 0x8022, 0x8011, 0x0033, 0x0044},
};

void rail_gid_text(const uint8_t raw[16], char text[RAIL_GID_TEXT_BYTES])
{
    int used = 0;
    for (int i = 0; i < 16; i += 2) {
        used += snprintf(text + used, RAIL_GID_TEXT_BYTES - (size_t)used, "%s%02x%02x",
                         i ? ":" : "", raw[i], raw[i + 1]);
    }
}

static struct rail_gid infiniband_gid(uint64_t prefix, int rail)
{
    struct rail_gid gid = {.type = RAIL_GID_INFINIBAND};
    uint64_t halves[2] = {htobe64(prefix), htobe64(rails[rail].node_guid)};
    memcpy(gid.raw, halves, sizeof(gid.raw));
    return gid;
}

struct rail_gid rail_gid(uint32_t link, int rail, uint32_t index)
{
    const struct rail_gid none = {.type = RAIL_GID_NONE};
    if (!(link & LINK_INFINIBAND)) {
        return index < RAIL_GID_COUNT ? rails[rail].gid[index] : none;
    }
    uint64_t subnet = SITE_LOCAL_PREFIX | (uint64_t)(rail + 1);
    if (index == 0) {
        return infiniband_gid(link & LINK_SUBNETS ? subnet : LINK_LOCAL_PREFIX, rail);
    }
    if (index == 1 && link & LINK_SUBNETS) {
        return infiniband_gid(subnet | (uint64_t)rails[rail].far_lid << FAR_LID_SHIFT, rail);
    }
    return none;
}

/* Each datagram asks, so nothing is copied. */
static int rail_of_roce_gid(const uint8_t gid[16])
{
    for (int r = 0; r < RAIL_COUNT; r++) {
        for (int g = 0; g < RAIL_GID_COUNT; g++) {
            if (rails[r].gid[g].type != RAIL_GID_NONE &&
                memcmp(rails[r].gid[g].raw, gid, 16) == 0) {
                return r;
            }
        }
    }
    return RAIL_NONE;
}

int rail_of_gid(uint32_t link, const uint8_t gid[16])
{
    if (!(link & LINK_INFINIBAND)) {
        return rail_of_roce_gid(gid);
    }
    for (int r = 0; r < RAIL_COUNT; r++) {
        for (uint32_t g = 0; g < RAIL_GID_COUNT; g++) {
            struct rail_gid entry = rail_gid(link, r, g);
            if (entry.type != RAIL_GID_NONE && memcmp(entry.raw, gid, 16) == 0) {
                return r;
            }
        }
    }
    return RAIL_NONE;
}

int rail_of_ipv4(const uint8_t address[4])
{
    for (int r = 0; r < RAIL_COUNT; r++) {
        if (memcmp(rails[r].ipv4, address, 4) == 0) {
            return r;
        }
    }
    return RAIL_NONE;
}

int rail_of_ipv6(const uint8_t address[16])
{
    return rail_of_roce_gid(address); /* a RoCE port has a GID of each address */
}

/* ---- partitions ---- */

uint32_t rail_partition_count(uint32_t link)
{
    return link & LINK_INFINIBAND ? PARTITIONS : 1;
}

uint16_t rail_partition(uint32_t link, int rail, uint32_t index)
{
    const uint32_t count = sizeof(partitions[0]) / sizeof(partitions[0][0]);
    if (index >= (link & LINK_INFINIBAND ? count : 1)) {
        return 0;
    }
    uint16_t limited = index == 0 && link & LINK_LIMITED ? RAIL_PARTITION_FULL : 0;
    return partitions[rail][index] & (uint16_t)~limited;
}

uint16_t rail_address_partition(uint32_t link)
{
    return link & LINK_LIMITED ? 0x8011 : RAIL_DEFAULT_PARTITION;
}

uint32_t rail_address_partition_index(uint32_t link, int rail)
{
    uint32_t index = 0;
    while (rail_partition(link, rail, index) != rail_address_partition(link)) {
        index++;
    }
    return index;
}

/* ---- routes ---- */

/* A packet has come to a port. One that requires a GRH takes no other; and a port with a GRH that is for
 * somebody else drops it (IBTA 9.6.1.2.3). */
static int taken_by(uint32_t link, int rail, const struct rail_way *way)
{
    bool good = way->grh ? rail_of_gid(link, way->gid) == rail : !(link & LINK_GRH(rail));
    return good ? rail : RAIL_NONE;
}

int rail_reached(uint32_t link, int from, const struct rail_way *way)
{
    if (!(link & LINK_INFINIBAND)) {
        return rail_of_gid(link, way->gid);
    }
    for (int to = 0; to < RAIL_COUNT; to++) {
        if (rail_same_subnet(link, from, to) &&
            way->lid >> RAIL_LID_MASK_BITS == rails[to].lid >> RAIL_LID_MASK_BITS) {
            return taken_by(link, to, way);
        }
    }
    /* A router goes by the GID, and takes a hop off. */
    int to = way->grh && way->hop_limit > 1 ? rail_of_gid(link, way->gid) : RAIL_NONE;
    bool routed = to != RAIL_NONE && !rail_same_subnet(link, from, to) &&
                  (way->lid == RAIL_ROUTER_LID || way->lid == rails[to].far_lid);
    return routed ? to : RAIL_NONE;
}

void rail_find_way(uint32_t link, int from, int to, struct rail_way *way)
{
    bool routed = !rail_same_subnet(link, from, to);
    struct rail_gid gid = rail_gid(link, to, 0);
    *way = (struct rail_way){
        .lid = routed ? RAIL_ROUTER_LID : rails[to].lid,
        .service_level = link_service_level(link),
        .grh = routed || link & (LINK_GRH(from) | LINK_GRH(to)),
        .hop_limit = ROUTED_HOPS,
    };
    memcpy(way->gid, gid.raw, sizeof(way->gid));
}

/* rails.c: the two rails' names and addresses. */
#include "simnic/session/rails.h"

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
     SIX_OF_RAIL_0, GIDS(1, SIX_OF_RAIL_0)},
    {"mlx5_1", "uverbs1", 231, 193, 0x02736903006d0002u, {2, 0x73, 0x69, 0x6d, 0, 2}, {127, 0, 0, 2},
     SIX_OF_RAIL_1, GIDS(2, SIX_OF_RAIL_1)},
};
/* clang-format on */

int rail_of_gid(const uint8_t gid[16])
{
    for (int r = 0; r < RAIL_COUNT; r++) {
        for (int g = 0; g < RAIL_GID_COUNT; g++) {
            if (rails[r].gid[g].type != RAIL_GID_NONE &&
                memcmp(rails[r].gid[g].raw, gid, 16) == 0) {
                return r;
            }
        }
    }
    return -1;
}

int rail_of_ipv4(const uint8_t address[4])
{
    for (int r = 0; r < RAIL_COUNT; r++) {
        if (memcmp(rails[r].ipv4, address, 4) == 0) {
            return r;
        }
    }
    return -1;
}

int rail_of_ipv6(const uint8_t address[16])
{
    return rail_of_gid(address);
}

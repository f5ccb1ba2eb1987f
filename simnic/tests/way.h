/* way.h: how a port reaches itself, whatever its link: for programs whose queue pairs are all on one. */
#ifndef SIMNIC_TESTS_WAY_H
#define SIMNIC_TESTS_WAY_H

#include <infiniband/verbs.h>
#include <stdlib.h>

#define ROCE_GID_INDEX 3 /* RoCE v2, IPv4 */

/* On RoCE by the GID of the IPv4 address, on InfiniBand by the LID, and with a GRH if the port requires one. */
static inline struct ibv_ah_attr way_to_self(struct ibv_context *context)
{
    struct ibv_port_attr port;
    struct ibv_ah_attr way = {.port_num = 1};
    if (ibv_query_port(context, 1, &port)) {
        abort();
    }
    way.dlid = port.lid;
    way.is_global = port.flags & IBV_QPF_GRH_REQUIRED ? 1 : 0;
    if (way.is_global) {
        way.grh.sgid_index = port.link_layer == IBV_LINK_LAYER_ETHERNET ? ROCE_GID_INDEX : 0;
        way.grh.hop_limit = 64;
        if (ibv_query_gid(context, 1, way.grh.sgid_index, &way.grh.dgid)) {
            abort();
        }
    }
    return way;
}

#endif

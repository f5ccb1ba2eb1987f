/* ports.h: the RDMA ports of this machine, and how they are paired into devices of NCCL's. It is apart
 * from plugin.h, so that a test can have machines of its own.
 *
 *   ports.c   which ports there are, and where: what sysfs says
 *   pair.c    which two make one device
 *   words.c   NCCL_IB_HCA
 */
#ifndef NCCL_PORTS_H
#define NCCL_PORTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PORTS_MAX 32
#define PORT_NAME_BYTES 64

/* Where it lies. */
#define PORT_NUMA_UNKNOWN (-1)

struct port {
    char device[PORT_NAME_BYTES]; /* "mlx5_0" */
    uint32_t number;              /* from 1 */
    uint32_t link;                /* CRPC_LINK_* */
    uint32_t mbps;                /* 0 = not known */
    char path[PATH_MAX];          /* in /sys/devices; "" = not on PCI, or hidden */
    char physical
        [64]; /* PCI address of the function that has the port: of a VF, that of its PF; "" = not known */
    int numa_node;
};

/* Fills path, physical and numa_node from `sysfs`, which is "/sys" but for a test. */
void port_locate(struct port *port, const char *sysfs);
/* Finds all active ports that copyrpc can open, in the order of the devices. Returns how many, at most `room`. */
uint32_t ports_find(struct port *ports, uint32_t room, const char *sysfs);

/* One port, or two. */
struct port_pair {
    uint32_t count;
    uint32_t ports[2]; /* indexes */
};

/* How far two ports are from each other: the bridges and functions between them; more from one host bridge to
 * another, most to another NUMA node or where it is not known. */
uint32_t ports_distance(const struct port *a, const struct port *b);
/* Sorts the ports by their place on PCI, and pairs those with the same link and speed, the nearest first. Two
 * functions of one physical port are no pair: it would be no faster. What is left over stays alone. Depends on
 * nothing else, so that machines that are alike get pairs that are alike. Returns the number of pairs, at most
 * `count`; they are in the order of their first ports. */
uint32_t ports_pair(struct port *ports, uint32_t count, struct port_pair *pairs);

/* NCCL_IB_HCA: "mlx5_0:1,mlx5_1" names ports by how their devices' names begin; after '=' by whole names, after
 * '^' all others. Rail and plane, which may follow the port, are ignored. NULL or "" is all. number 0 is any port: names
 * of network interfaces are written so, too. */
bool ports_named(const char *words, const char *device, uint32_t number);

#endif

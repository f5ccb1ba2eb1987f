/* pair.c: see ports.h. */
#include "ports.h"

#include <stdlib.h>
#include <string.h>

/* More than any path within one host bridge has. */
#define OTHER_HOST_BRIDGE 1000u
#define OTHER_NUMA_NODE 2000u
#define NOT_KNOWN 3000u

/* ---- Distance -------------------------------------------------------------------------------- */

static uint32_t components(const char *path)
{
    uint32_t count = 0;
    for (; *path != '\0'; path++) {
        count += *path == '/';
    }
    return count;
}

/* What two paths have in common, whole components only. */
static size_t common_bytes(const char *a, const char *b)
{
    size_t whole = 0;
    for (size_t i = 0;; i++) {
        if ((a[i] == '/' || a[i] == '\0') && (b[i] == '/' || b[i] == '\0')) {
            whole = i;
        }
        if (a[i] != b[i] || a[i] == '\0') {
            return whole;
        }
    }
}

uint32_t ports_distance(const struct port *a, const struct port *b)
{
    if (a->path[0] == '\0' || b->path[0] == '\0') {
        return NOT_KNOWN;
    }
    size_t common = common_bytes(a->path, b->path);
    uint32_t steps = components(a->path + common) + components(b->path + common);
    if (a->numa_node != b->numa_node) {
        return OTHER_NUMA_NODE + steps;
    }
    /* The host bridge is the component "pci0000:15". */
    bool share_bridge = memmem(a->path, common, "/pci", 4) != NULL;
    return share_bridge ? steps : OTHER_HOST_BRIDGE + steps;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

/* Names of one beginning are in the order of their numbers: mlx5_2, mlx5_10. */
static int compare_names(const char *a, const char *b)
{
    size_t lengths[2] = {strlen(a), strlen(b)};
    if (lengths[0] != lengths[1]) {
        return lengths[0] < lengths[1] ? -1 : 1;
    }
    return strcmp(a, b);
}

static int compare_ports(const void *one, const void *other)
{
    const struct port *a = one, *b = other;
    bool known[2] = {a->path[0] != '\0', b->path[0] != '\0'};
    if (known[0] != known[1]) {
        return known[0] ? -1 : 1;
    }
    int order = strcmp(a->path, b->path);
    if (order == 0) {
        order = compare_names(a->device, b->device);
    }
    if (order != 0) {
        return order;
    }
    return a->number < b->number ? -1 : a->number > b->number;
}

static bool alike(const struct port *a, const struct port *b)
{
    bool one_port = a->number == b->number &&
                    (strcmp(a->device, b->device) == 0 ||
                     (a->physical[0] != '\0' && strcmp(a->physical, b->physical) == 0));
    return a->link == b->link && a->mbps == b->mbps && !one_port;
}

/* The nearest two that are free; false if no two can be paired. */
static bool nearest(const struct port *ports, uint32_t count, const bool *taken,
                    struct port_pair *pair)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++) {
            if (taken[i] || taken[j] || !alike(&ports[i], &ports[j])) {
                continue;
            }
            uint32_t distance = ports_distance(&ports[i], &ports[j]);
            if (distance < least) {
                least = distance;
                *pair = (struct port_pair){.count = 2, .ports = {i, j}};
            }
        }
    }
    return least != UINT32_MAX;
}

static int compare_pairs(const void *one, const void *other)
{
    const struct port_pair *a = one, *b = other;
    return a->ports[0] < b->ports[0] ? -1 : 1;
}

uint32_t ports_pair(struct port *ports, uint32_t count, struct port_pair *pairs)
{
    bool taken[PORTS_MAX] = {false};
    uint32_t found = 0;
    qsort(ports, count, sizeof(ports[0]), compare_ports);
    while (nearest(ports, count, taken, &pairs[found])) {
        taken[pairs[found].ports[0]] = taken[pairs[found].ports[1]] = true;
        found++;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!taken[i]) {
            pairs[found++] = (struct port_pair){.count = 1, .ports = {i}};
        }
    }
    qsort(pairs, found, sizeof(pairs[0]), compare_pairs);
    return found;
}

/* ports.c: see ports.h. */
#include "ports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copyrpc.h"

/* ---- Where a port lies ----------------------------------------------------------------------- */

/* The last component of where `link` leads; "" if it leads nowhere. */
static void name_behind(const char *link, char *name, size_t room)
{
    char path[PATH_MAX];
    const char *slash = realpath(link, path) != NULL ? strrchr(path, '/') : NULL;
    snprintf(name, room, "%s", slash != NULL ? slash + 1 : "");
}

void port_locate(struct port *port, const char *sysfs)
{
    char file[PATH_MAX];
    snprintf(file, sizeof(file), "%s/class/infiniband/%s/device", sysfs, port->device);
    if (realpath(file, port->path) == NULL) {
        port->path[0] = '\0';
    }
    snprintf(file, sizeof(file), "%s/class/infiniband/%s/device/physfn", sysfs, port->device);
    name_behind(file, port->physical, sizeof(port->physical));
    if (port->physical[0] == '\0' && port->path[0] != '\0') {
        snprintf(port->physical, sizeof(port->physical), "%.63s", strrchr(port->path, '/') + 1);
    }
    snprintf(file, sizeof(file), "%s/class/infiniband/%s/device/numa_node", sysfs, port->device);
    port->numa_node = PORT_NUMA_UNKNOWN;
    FILE *text = fopen(file, "re");
    if (text != NULL) {
        if (fscanf(text, "%d", &port->numa_node) != 1) {
            port->numa_node = PORT_NUMA_UNKNOWN;
        }
        fclose(text);
    }
}

/* ---- Which there are ------------------------------------------------------------------------- */

/* The drivers that COPYRPC_DRIVER allows: bits of crpc_device_info. */
static uint32_t drivers_allowed(void)
{
    const char *name = getenv("COPYRPC_DRIVER");
    if (name != NULL && strcmp(name, "verbs") == 0) {
        return 1u << CRPC_DRIVER_VERBS;
    }
    if (name != NULL && strcmp(name, "mlx5") == 0) {
        return 1u << CRPC_DRIVER_MLX5;
    }
    return ~0u;
}

uint32_t ports_find(struct port *ports, uint32_t room, const char *sysfs)
{
    const uint32_t drivers = drivers_allowed();
    uint32_t count = 0;
    crpc_device_info info = {.struct_size = sizeof(info)};
    int32_t status;
    for (uint32_t i = 0; (status = crpc_device_query(i, &info, NULL)) != CRPC_E_NO_DEVICE; i++) {
        if (status == CRPC_OK && info.port_state == CRPC_PORT_ACTIVE &&
            (info.drivers & drivers) != 0 && count < room) {
            struct port *port = &ports[count++];
            *port = (struct port){.number = info.port, .link = info.link, .mbps = info.link_mbps};
            memcpy(port->device, info.name, sizeof(port->device));
            port_locate(port, sysfs);
        }
        info = (crpc_device_info){.struct_size = sizeof(info)};
    }
    return count;
}

/* port.c: see port.h. */
#include "port.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#define TABLE_MAX 256

static void describe(const struct ibv_gid_entry *from, struct gid_entry *to)
{
    static const char *const types[] = {[IBV_GID_TYPE_IB] = "IB",
                                        [IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
                                        [IBV_GID_TYPE_ROCE_V2] = "RoCE v2"};
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const char *type =
        from->gid_type < sizeof(types) / sizeof(types[0]) ? types[from->gid_type] : "?";
    to->index = from->gid_index;
    snprintf(to->type, sizeof(to->type), "%s", type);
    if (memcmp(from->gid.raw, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, from->gid.raw + 12, to->text, sizeof(to->text));
    } else {
        inet_ntop(AF_INET6, from->gid.raw, to->text, sizeof(to->text));
    }
}

static void read_opened(struct ibv_context *context, uint32_t number, struct port *port)
{
    struct ibv_gid_entry table[TABLE_MAX];
    struct ibv_port_attr attributes;
    ssize_t found = ibv_query_gid_table(context, table, TABLE_MAX, 0);
    for (ssize_t i = 0; i < found && port->gid_count < PORT_GIDS_MAX; i++) {
        if (table[i].port_num == number) {
            describe(&table[i], &port->gids[port->gid_count++]);
        }
    }
    if (ibv_query_port(context, (uint8_t)number, &attributes) == 0 &&
        attributes.max_mtu >= IBV_MTU_256 && attributes.max_mtu <= IBV_MTU_4096) {
        port->mtu_bytes_max = 128u << attributes.max_mtu;
    }
}

void port_read(const char *device, uint32_t number, struct port *port)
{
    int device_count;
    *port = (struct port){0};
    struct ibv_device **devices = ibv_get_device_list(&device_count);
    for (int i = 0; devices && i < device_count; i++) {
        if (strcmp(ibv_get_device_name(devices[i]), device) == 0) {
            struct ibv_context *context = ibv_open_device(devices[i]);
            if (context) {
                read_opened(context, number, port);
                ibv_close_device(context);
            }
        }
    }
    if (devices) {
        ibv_free_device_list(devices);
    }
}

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

/* Only a queue pair can be asked. */
static uint32_t offered(struct ibv_context *context)
{
    struct ibv_ece ece = {0};
    struct ibv_pd *domain = ibv_alloc_pd(context);
    struct ibv_cq *completions = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_qp_init_attr attributes = {
        .send_cq = completions,
        .recv_cq = completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = domain && completions ? ibv_create_qp(domain, &attributes) : NULL;
    if (qp) {
        ece.options = ibv_query_ece(qp, &ece) == 0 ? ece.options : 0;
        ibv_destroy_qp(qp);
    }
    if (completions) {
        ibv_destroy_cq(completions);
    }
    if (domain) {
        ibv_dealloc_pd(domain);
    }
    return ece.options;
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
    port->ece_options = offered(context);
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

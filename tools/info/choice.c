/* choice.c: see choice.h. */
#include "choice.h"

#include <stdlib.h>
#include <string.h>

#define FULL_MEMBER 0x8000u

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && value[0] != '\0';
}

static const char *why_driver(const crpc_device_info *info, const struct left_out *left_out,
                              const crpc_context_info *context)
{
    const char *wanted = getenv("COPYRPC_DRIVER");
    if (wanted && strcmp(wanted, "auto") != 0) {
        return "COPYRPC_DRIVER says so";
    }
    if (context->driver == CRPC_DRIVER_MLX5) {
        return "the card is of its kind, and it needs no call of libibverbs for an op";
    }
    if (!(info->drivers & 1u << CRPC_DRIVER_MLX5)) {
        return "no other driver knows this device";
    }
    return left_out->features & LEFT_OUT_MLX5
               ? "copyrpc-check found that mlx5 fails"
               : "mlx5 could not open the device: COPYRPC_LOG=warning tells why";
}

static const char *why_gid(const crpc_device_info *info, const struct port *port,
                           const crpc_context_info *context)
{
    const struct gid_entry *gid = NULL;
    for (uint32_t i = 0; i < port->gid_count; i++) {
        gid = port->gids[i].index == context->gid_index ? &port->gids[i] : gid;
    }
    if (is_set("COPYRPC_GID_INDEX")) {
        return "COPYRPC_GID_INDEX says so";
    }
    if (info->link == CRPC_LINK_INFINIBAND) {
        return context->gid_index == 0 ? "on InfiniBand all ports have this one"
                                       : "its FLID leads here from other subnets, too";
    }
    if (!gid || strcmp(gid->type, "RoCE v2") != 0) {
        return "the port has none of RoCE v2: give its interface an IP address";
    }
    if (!strchr(gid->text, ':')) {
        return "the first of RoCE v2 with an IPv4 address, which peers are most likely to reach";
    }
    return strncmp(gid->text, "fe8", 3) == 0
               ? "there is none of RoCE v2 with an address that is not link-local"
               : "there is none of RoCE v2 with an IPv4 address, and this one is routed";
}

static const char *why_partition_key(const crpc_device_info *info, const crpc_context_info *context)
{
    if (is_set("COPYRPC_PARTITION_KEY")) {
        return "COPYRPC_PARTITION_KEY says so";
    }
    if (info->link == CRPC_LINK_ETHERNET) {
        return "Ethernet has no other";
    }
    return context->partition_key & FULL_MEMBER
               ? "the first partition of which the port is a full member"
               : "the port is a full member of no partition, so it talks to full members alone";
}

void choice_make(const crpc_device_info *info, const struct port *port,
                 const struct left_out *left_out, struct choice *choice)
{
    crpc_context_options options = {.struct_size = sizeof(options), .port = info->port};
    crpc_context *context;
    *choice = (struct choice){.error.struct_size = sizeof(choice->error),
                              .context.struct_size = sizeof(choice->context)};
    if (info->port_state != CRPC_PORT_ACTIVE) {
        return;
    }
    memcpy(options.device, info->name, sizeof(options.device));
    if (crpc_context_open(&options, &context, &choice->error) < 0) {
        return;
    }
    choice->made = crpc_context_get_info(context, &choice->context) == CRPC_OK;
    crpc_context_close(context);
    choice->driver_why = why_driver(info, left_out, &choice->context);
    choice->gid_why = why_gid(info, port, &choice->context);
    choice->partition_key_why = why_partition_key(info, &choice->context);
}

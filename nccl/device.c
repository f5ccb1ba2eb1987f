/* device.c: a device of NCCL's is a pair of rails (or one). */
#include "plugin.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the device does not say how fast a link is, so that NCCL has something to plan with. */
#define SPEED_MBPS_UNKNOWN 10000u
/* Receive WQEs of the RPC part of a context, which is not used. */
#define RPC_RECEIVE_DEPTH 64u
/* A channel takes 2 * slots + 10, of two thirds: copyrpc.h. */
#define RAIL_RECEIVE_DEPTH(channels) (((channels) * (2u * SLOTS + 10u) * 3u + 1u) / 2u)

/* "name:port" in two. */
static void split_rail(const char *rail, char name[64], uint32_t *port)
{
    snprintf(name, 64, "%s", rail);
    char *colon = strrchr(name, ':');
    *port = 0;
    if (colon != NULL) {
        *colon = '\0';
        *port = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
}

static int32_t open_rails(const char rails[CRPC_RAILS_MAX][64], uint32_t channels_max,
                          crpc_context **context)
{
    crpc_context_options options = {
        .struct_size = sizeof(options),
        .flags = CRPC_CONTEXT_RAILS,
        .endpoints_max = 1,
        .receive_depth = RPC_RECEIVE_DEPTH,
        .log_level = CRPC_LOG_WARNING,
        .rail_receive_depth = RAIL_RECEIVE_DEPTH(channels_max),
        .channels_max = channels_max,
    };
    crpc_error error = {.struct_size = sizeof(error)};
    split_rail(rails[0], options.device, &options.port);
    memcpy(options.rails, rails, sizeof(options.rails));
    int32_t status = crpc_context_open(&options, context, &error);
    if (status < 0) {
        WARN("cannot open %s: %s", rails[0][0] != '\0' ? rails[0] : "an RDMA device",
             error.message);
    }
    return status;
}

int32_t device_open(const struct device *device, uint32_t channels_max, crpc_context **context)
{
    return open_rails(device->rails, channels_max, context);
}

/* An address of the rail's own: that of its GID, if it is one of IP. */
static bool address_of_gid(const uint8_t gid[16], char *text, size_t room)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char address[INET6_ADDRSTRLEN];
    if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, gid + 12, address, sizeof(address));
        snprintf(text, room, "%s:0", address);
        return true;
    }
    if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) {
        return false; /* link-local: InfiniBand, or RoCE without an address of the host's */
    }
    inet_ntop(AF_INET6, gid, address, sizeof(address));
    snprintf(text, room, "[%s]:0", address);
    return true;
}

/* The kernel tells a descriptor that is none of a dma-buf from a device that takes none at all. */
static bool takes_dmabufs(crpc_context *context)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    crpc_region region = {0};
    int32_t status = crpc_region_register_dmabuf(
        context, fd, 0, 4096, 0, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &region, NULL);
    if (status >= 0) {
        crpc_region_deregister(context, region);
    }
    close(fd);
    return status != CRPC_E_UNSUPPORTED;
}

static void add_rail(struct device *device, const crpc_rail_info *rail)
{
    size_t used = strlen(device->name);
    snprintf(device->name + used, sizeof(device->name) - used, "%s%s", used > 0 ? "+" : "",
             rail->device);
    snprintf(device->rails[rail->index], sizeof(device->rails[0]), "%.50s:%u", rail->device,
             rail->port);
    device->speed_mbps += rail->link_mbps != 0 ? rail->link_mbps : SPEED_MBPS_UNKNOWN;
    if (rail->message_bytes_max < device->message_bytes_max) {
        device->message_bytes_max = rail->message_bytes_max;
    }
    if (rail->index == 0) {
        char path[128];
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", rail->device);
        if (realpath(path, device->pci_path) == NULL) {
            device->pci_path[0] = '\0'; /* not of PCI, or hidden: NCCL does without */
        }
        device->guid = rail->system_image_guid;
        device->port = rail->port;
    }
}

int device_find(const struct settings *from, uint32_t index, struct device *device)
{
    memset(device, 0, sizeof(*device));
    device->message_bytes_max = INT_MAX; /* NCCL counts what was received in an int */
    crpc_context *context;
    int32_t status = open_rails(from->rails[index], 1, &context);
    if (status < 0) {
        return net_result(status);
    }
    crpc_rail_info rail = {.struct_size = sizeof(rail)};
    bool found = false;
    for (uint32_t i = 0; i < CRPC_RAILS_MAX && crpc_rail_get_info(context, i, &rail) >= 0; i++) {
        add_rail(device, &rail);
        if (i == 0) {
            const char *given = from->address[index];
            found = *given != '\0' || address_of_gid(rail.gid, device->address, ADDRESS_BYTES);
            if (*given != '\0') { /* an IPv6 address has colons, and no port was asked for */
                bool bare = strchr(given, ':') != NULL && given[0] != '[';
                snprintf(device->address, sizeof(device->address), bare ? "[%s]:0" : "%s:0", given);
            }
        }
        rail = (crpc_rail_info){.struct_size = sizeof(rail)};
    }
    device->memory = NET_MEMORY_HOST;
    if (from->gpu_direct) {
        device->memory |= NET_MEMORY_CUDA | (takes_dmabufs(context) ? NET_MEMORY_DMABUF : 0);
    }
    crpc_context_close(context);
    if (!found) {
        WARN("%s has no IP address: give it one, or name one with COPYRPC_NCCL_ADDRESS",
             device->rails[0]);
        return NET_SYSTEM_ERROR;
    }
    INFO("device %u is %s, %u Mbit/s, listens on %s%s", index, device->name, device->speed_mbps,
         device->address, from->gpu_direct ? ", GPUDirect" : "");
    return NET_SUCCESS;
}

void device_properties(struct device *device, int index, struct net_properties_v12 *properties)
{
    *properties = (struct net_properties_v12){
        .name = device->name,
        .pci_path = device->pci_path[0] != '\0' ? device->pci_path : NULL,
        .guid = device->guid,
        .memory = device->memory,
        .speed_mbps = (int)device->speed_mbps,
        .port = (int)device->port,
        .comms_max = 65536, /* queue pairs end first, and then connect fails */
        .receives_max = GROUP_MAX,
        .device_type = NET_DEVICE_HOST,
        .virtual_device = {.count = 1, .devices = {index}},
        .point_to_point_bytes_max = device->message_bytes_max,
        .collective_bytes_max = device->message_bytes_max,
        .multi_request_max = 1,
        .rail = NET_UNDEFINED,
        .plane = NET_UNDEFINED,
    };
}

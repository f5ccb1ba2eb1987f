/* device.c: a device of NCCL's is a pair of rails (or one). */
#include "plugin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the device does not say how fast a link is, so that NCCL has something to plan with. */
#define SPEED_MBPS_UNKNOWN 10000u
/* Receive WQEs of the RPC part of a context, which is not used. */
#define RPC_RECEIVE_DEPTH 64u
/* A channel takes 2 * slots + 10, of two thirds: copyrpc.h. */
#define CHANNEL_RECEIVES (2u * SLOTS + 10u)
#define RAIL_RECEIVE_DEPTH(channels) (((channels)*CHANNEL_RECEIVES * 3u + 1u) / 2u)
#define RAIL_CHANNELS(receive_depth) ((receive_depth)*2u / 3u / CHANNEL_RECEIVES)
#define NO_RAIL "none"

/* ---- Opening --------------------------------------------------------------------------------- */

/* "name:port" in two. */
static void split_rail(const char *rail, char name[64], uint32_t *port)
{
    snprintf(name, 64, "%.63s", rail);
    char *colon = strrchr(name, ':');
    *port = 0;
    if (colon != NULL) {
        *colon = '\0';
        *port = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
}

/* NCCL_IB_PKEY is an index into the port's table; the key is what it has there. 0: it cannot be read. */
static uint32_t partition_key(const char *device, uint32_t port, uint32_t index)
{
    char path[160];
    unsigned key = 0;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports/%u/pkeys/%u", device,
             port != 0 ? port : 1, index);
    FILE *text = fopen(path, "re");
    if (text != NULL) {
        if (fscanf(text, "%x", &key) != 1) {
            key = 0;
        }
        fclose(text);
    }
    return key;
}

/* Index 0, NCCL's default, is left to copyrpc: it takes a full membership, wherever that is. */
static int32_t take_partition(crpc_context_options *options)
{
    const uint32_t index = settings.partition_index;
    if (index == SETTING_NOT_GIVEN || index == 0) {
        return CRPC_OK;
    }
    options->partition_key = partition_key(options->device, options->port, index);
    if (options->partition_key == 0) {
        WARN("NCCL_IB_PKEY=%u: %s port %u has no P_Key of that index", index, options->device,
             options->port);
        return CRPC_E_INVALID;
    }
    return CRPC_OK;
}

/* Of a setting that is not given, 0. */
static uint32_t given(uint32_t setting)
{
    return setting == SETTING_NOT_GIVEN ? 0 : setting;
}

/* Of a setting with NCCL's numbers. */
static uint32_t choice(uint32_t setting)
{
    return setting == 0   ? CRPC_CHOICE_OFF
           : setting == 1 ? CRPC_CHOICE_ON
                          : CRPC_CHOICE_AUTO; /* 2, or not given */
}

static const char *choice_name(uint32_t chosen)
{
    return chosen == CRPC_CHOICE_ON ? "on" : chosen == CRPC_CHOICE_OFF ? "off" : "auto";
}

static int32_t open_rails(const char rails[CRPC_RAILS_MAX][RAIL_BYTES], uint32_t channels_max,
                          struct way way, crpc_context **context)
{
    crpc_context_options options = {
        .struct_size = sizeof(options),
        .flags = CRPC_CONTEXT_RAILS,
        .endpoints_max = 1,
        .receive_depth = RPC_RECEIVE_DEPTH,
        .log_level = CRPC_LOG_WARNING,
        .rail_receive_depth = RAIL_RECEIVE_DEPTH(SESSION_CHANNELS_MAX),
        .channels_max = channels_max,
        .traffic_class = way.traffic_class,
        .service_level = way.service_level,
        .retry_timeout = given(settings.retry_timeout),
        .retry_count = given(settings.retry_count),
        .rail_queue_pairs_max = settings.queue_pairs,
        .relaxed_ordering = choice(settings.relaxed_ordering),
        .adaptive_routing = choice(settings.adaptive_routing),
        .ece = choice(settings.ece),
        /* 0 of copyrpc's is the default; NCCL's says all of them. */
        .adaptive_routing_bytes =
            settings.adaptive_routing_bytes == 0 ? 1 : given(settings.adaptive_routing_bytes),
    };
    crpc_error error = {.struct_size = sizeof(error)};
    split_rail(rails[0], options.device, &options.port);
    if (settings.gid_index != SETTING_NOT_GIVEN) {
        options.flags |= CRPC_CONTEXT_GID_INDEX | CRPC_CONTEXT_RAILS_GID_INDEX;
        options.gid_index = settings.gid_index;
    }
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        snprintf(options.rails[i], sizeof(options.rails[i]), "%.63s", rails[i]);
    }
    int32_t status = take_partition(&options);
    if (status < 0) {
        return status;
    }
    status = crpc_context_open(&options, context, &error);
    if (status < 0) {
        WARN("cannot open %s: %s", rails[0], error.message);
    }
    return status;
}

int32_t device_open(const struct device *device, uint32_t channels_max, struct way way,
                    crpc_context **context)
{
    int32_t status = open_rails(device->rails, channels_max, way, context);
    crpc_context_info info = {.struct_size = sizeof(info)};
    if (status >= 0 && crpc_context_get_info(*context, &info) >= 0) {
        INFO(
            "opened %s for up to %u comms: traffic class %u, service level %u, P_Key 0x%04x, GID "
            "index %u, retry timeout %u, retry count %u, relaxed ordering %s, adaptive routing %s, "
            "ECE %s",
            device->name, channels_max, info.traffic_class, info.service_level, info.partition_key,
            info.gid_index, info.retry_timeout, info.retry_count,
            choice_name(choice(settings.relaxed_ordering)),
            choice_name(choice(settings.adaptive_routing)), choice_name(choice(settings.ece)));
    }
    return status;
}

int32_t device_open_queues(const char *rail, crpc_context **context)
{
    crpc_context_options options = {
        .struct_size = sizeof(options),
        .flags = CRPC_CONTEXT_QUEUES,
        .endpoints_max = 1,
        .receive_depth = RPC_RECEIVE_DEPTH,
        .log_level = CRPC_LOG_WARNING,
        .queues_max = 2,
        .ece = choice(settings.ece),
    };
    crpc_error error = {.struct_size = sizeof(error)};
    split_rail(rail, options.device, &options.port);
    if (settings.gid_index != SETTING_NOT_GIVEN) {
        options.flags |= CRPC_CONTEXT_GID_INDEX;
        options.gid_index = settings.gid_index;
    }
    int32_t status = take_partition(&options);
    if (status >= 0) {
        status = crpc_context_open(&options, context, &error);
    }
    if (status < 0) {
        WARN("cannot open %s for flushes: %s", rail, error.message);
    }
    return status;
}

/* ---- Ways ------------------------------------------------------------------------------------ */

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0';
}

static uint32_t choose(uint32_t setting, const char *ours, uint32_t asked)
{
    return setting != SETTING_NOT_GIVEN ? setting : is_set(ours) ? 0 : asked;
}

struct way way_choose(const struct device *device, struct way asked)
{
    uint32_t level = choose(settings.service_level, "COPYRPC_SERVICE_LEVEL", asked.service_level);
    return (struct way){
        .traffic_class =
            choose(settings.traffic_class, "COPYRPC_TRAFFIC_CLASS", asked.traffic_class),
        .service_level = device->link == CRPC_LINK_INFINIBAND || level < 8 ? level : 0,
    };
}

struct way way_asked(const struct device *device, int number)
{
    struct way way = {0};
    if (number >= 0 && number <= 255) {
        way.traffic_class = (uint32_t)number;
        way.service_level =
            device->link == CRPC_LINK_INFINIBAND && number < 16 ? (uint32_t)number : 0;
    }
    return way;
}

/* ---- Describing ------------------------------------------------------------------------------ */

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

static void lower(uint32_t *value, uint32_t most)
{
    *value = most < *value ? most : *value;
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
    lower(&device->channels_max, RAIL_CHANNELS(rail->receive_depth));
    lower(&device->channels_max, rail->queue_pairs_max / settings.queue_pairs);
    device->rail_count++;
    if (rail->index == 0) {
        struct port port;
        snprintf(port.device, sizeof(port.device), "%s", rail->device);
        port_locate(&port, "/sys");
        memcpy(device->pci_path, port.path, sizeof(device->pci_path)); /* "": NCCL does without */
        device->guid = rail->system_image_guid;
        device->port = rail->port;
        device->link = rail->link;
    }
}

/* Opens the rails, to see what they are. */
static int32_t describe(const char rails[CRPC_RAILS_MAX][RAIL_BYTES], struct device *device)
{
    *device = (struct device){
        .message_bytes_max = INT_MAX, /* NCCL counts what was received in an int */
        .channels_max = SESSION_CHANNELS_MAX,
        .rails = {"", NO_RAIL},
    };
    crpc_context *context;
    int32_t status = open_rails(rails, SESSION_CHANNELS_MAX, (struct way){0}, &context);
    if (status < 0) {
        return status;
    }
    crpc_rail_info rail = {.struct_size = sizeof(rail)};
    for (uint32_t i = 0; i < CRPC_RAILS_MAX && crpc_rail_get_info(context, i, &rail) >= 0; i++) {
        add_rail(device, &rail);
        rail = (crpc_rail_info){.struct_size = sizeof(rail)};
    }
    device->memory = NET_MEMORY_HOST;
    if (settings.gpu_direct) {
        device->memory |= NET_MEMORY_CUDA | (takes_dmabufs(context) ? NET_MEMORY_DMABUF : 0);
    }
    crpc_context_close(context);
    if (device->channels_max == 0) {
        WARN("%s has not enough receives or completions for a comm", device->name);
        return CRPC_E_NO_RESOURCE;
    }
    return CRPC_OK;
}

static void tell(const struct device *device, uint32_t index)
{
    INFO("device %u is %s, %u Mbit/s, %u comms a context%s", index, device->name,
         device->speed_mbps, device->channels_max, settings.gpu_direct ? ", GPUDirect" : "");
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* COPYRPC_NCCL_RAILS: what is named must be there. */
static int find_named(const struct settings *from, struct device *devices, uint32_t *count)
{
    for (uint32_t i = 0; i < from->device_count; i++) {
        char rails[CRPC_RAILS_MAX][RAIL_BYTES];
        for (uint32_t j = 0; j < CRPC_RAILS_MAX; j++) {
            const char *name = from->rails[i][j];
            snprintf(rails[j], sizeof(rails[j]), "%s", *name != '\0' ? name : NO_RAIL);
        }
        int32_t status = describe(rails, &devices[i]);
        if (status < 0) {
            return net_result(status);
        }
        tell(&devices[i], i);
    }
    *count = from->device_count;
    return NET_SUCCESS;
}

/* Which ports of all those that there are. */
static uint32_t choose_ports(const struct settings *from, struct port *ports)
{
    uint32_t count = ports_find(ports, PORTS_MAX, "/sys"), kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ports_named(from->hca, ports[i].device, ports[i].number)) {
            ports[kept++] = ports[i];
        } else {
            INFO("NCCL_IB_HCA leaves out %s:%u", ports[i].device, ports[i].number);
        }
    }
    return kept;
}

/* One that cannot be opened is left out: nobody has asked for it. */
static void find_all(const struct settings *from, struct port *ports, struct device *devices,
                     uint32_t *count)
{
    struct port_pair pairs[PORTS_MAX];
    uint32_t found = ports_pair(ports, choose_ports(from, ports), pairs);
    for (uint32_t i = 0; i < found; i++) {
        char rails[CRPC_RAILS_MAX][RAIL_BYTES] = {"", NO_RAIL};
        for (uint32_t j = 0; j < pairs[i].count; j++) {
            const struct port *port = &ports[pairs[i].ports[j]];
            snprintf(rails[j], sizeof(rails[j]), "%.50s:%u", port->device, port->number);
        }
        if (describe(rails, &devices[*count]) == CRPC_OK) {
            tell(&devices[*count], *count);
            ++*count;
        }
    }
}

int devices_find(const struct settings *from, struct device *devices, uint32_t *count)
{
    *count = 0;
    if (from->device_count > 0) {
        return find_named(from, devices, count);
    }
    struct port *ports = calloc(PORTS_MAX, sizeof(*ports));
    if (ports == NULL) {
        return NET_SYSTEM_ERROR;
    }
    find_all(from, ports, devices, count);
    free(ports);
    if (*count == 0) {
        WARN("no RDMA device can be used%s%s: `copyrpc-info` shows what there is",
             from->hca != NULL ? "; NCCL_IB_HCA is " : "", from->hca != NULL ? from->hca : "");
        return NET_SYSTEM_ERROR;
    }
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

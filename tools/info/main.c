/* main.c: copyrpc-info: which RDMA devices there are, and what copyrpc can do with them. */
#include <argp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <copyrpc.h>
#include <jansson.h>

#include "../common/text.h"
#include "../common/version.h"
#include "copyrpc_info_help.h"
#include "gids.h"
#include "left_out.h"
#include "rails.h"

#define GIDS_MAX 64

static const struct argp_option option_table[] = HELP_OPTIONS;

static error_t parse(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    if (key == 'j') {
        *(bool *)state->input = true;
        return 0;
    }
    if (key == ARGP_KEY_ARG) {
        argp_usage(state);
    }
    return ARGP_ERR_UNKNOWN;
}

static uint64_t memlock_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_MEMLOCK, &limit) ? 0 : (uint64_t)limit.rlim_cur;
}

static const char *state_of(const crpc_device_info *info)
{
    return info->port_state == CRPC_PORT_ACTIVE ? "active" : "down";
}

static const char *link_of(const crpc_device_info *info)
{
    return info->link == CRPC_LINK_ETHERNET ? "RoCE" : "InfiniBand";
}

static json_t *drivers_of(const crpc_device_info *info)
{
    json_t *drivers = json_array();
    for (uint32_t driver = CRPC_DRIVER_VERBS; driver <= CRPC_DRIVER_MLX5; driver++) {
        if (info->drivers & 1u << driver) {
            json_array_append_new(drivers, json_string(text_of_driver(driver)));
        }
    }
    return drivers;
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_device(const crpc_device_info *info)
{
    struct gid_entry gids[GIDS_MAX];
    uint32_t count = gids_list(info->name, info->port, gids, GIDS_MAX);
    printf("%s port %u: %s, %s, MTU %u\n", info->name, info->port, link_of(info), state_of(info),
           info->mtu_bytes);
    printf("  drivers  ");
    for (uint32_t driver = CRPC_DRIVER_VERBS; driver <= CRPC_DRIVER_MLX5; driver++) {
        if (info->drivers & 1u << driver) {
            printf("%s ", text_of_driver(driver));
        }
    }
    printf("\n  limits   %u endpoints, %u receives a context, %u completion vectors\n",
           info->endpoints_max, info->receive_depth_max, info->completion_vectors);
    if (info->link_mbps) {
        printf("  speed    %g Gbit/s\n", info->link_mbps / 1000.0);
    }
    if (info->system_image_guid) {
        printf("  card     %016" PRIx64 "\n", info->system_image_guid);
    }
    if (info->partition_key) {
        printf("  P_Key    0x%04x  (default)%s\n", info->partition_key,
               info->flags & CRPC_GRH_REQUIRED ? "; GRH required" : "");
    }
    struct left_out found;
    char text[LEFT_OUT_TEXT_BYTES];
    if (left_out_find(info->name, &found)) {
        if (found.features) {
            printf("  left out %s: copyrpc-check found it to fail; delete %s to use it\n",
                   left_out_text(found.features, text), found.path);
        } else {
            printf("  left out nothing: %s\n", found.ignored);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        printf("  GID %-4u %s %s%s\n", gids[i].index, gids[i].type, gids[i].text,
               gids[i].index == info->gid_index ? "  (default)" : "");
    }
}

static void print_memlock(void)
{
    uint64_t limit = memlock_limit();
    if (limit == RLIM_INFINITY) {
        printf("memory that may be registered (ulimit -l): unlimited\n");
    } else {
        printf("memory that may be registered (ulimit -l): %llu KiB; an endpoint takes about 4 MiB "
               "with its default rings\n",
               (unsigned long long)(limit / 1024));
    }
}

static void print_rails(const struct rails *rails)
{
    printf("rails of channels, unless others are named:\n");
    for (uint32_t i = 0; i < rails->count; i++) {
        const crpc_rail_info *rail = &rails->rails[i];
        printf("  rail %u   %s port %u, %s, buffers up to %" PRIu64 " bytes\n", i, rail->device,
               rail->port, text_of_driver(rail->driver), rail->message_bytes_max);
    }
    if (rails->count == 0) {
        printf("  none     %s\n", rails->error.message);
    } else if (rails->count == 1) {
        printf("  rail 1   none: no other card has an active port with the same link\n");
    }
    for (uint32_t i = 0; i < rails->left_out_count; i++) {
        const struct port_left_out *port = &rails->left_out[i];
        printf("  not used %s port %u: %s\n", port->device, port->port, port->why);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *gids_json(const crpc_device_info *info)
{
    struct gid_entry gids[GIDS_MAX];
    uint32_t count = gids_list(info->name, info->port, gids, GIDS_MAX);
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(array, json_pack("{s:i, s:s, s:s, s:b}", "index", (int)gids[i].index,
                                               "type", gids[i].type, "gid", gids[i].text, "default",
                                               gids[i].index == info->gid_index));
    }
    return array;
}

/* Text, since not every reader of JSON has integers of 64 bits. */
static json_t *guid_json(const crpc_device_info *info)
{
    return info->system_image_guid ? json_sprintf("%016" PRIx64, info->system_image_guid)
                                   : json_null();
}

/* null: nothing is left out. */
static json_t *left_out_json(const crpc_device_info *info)
{
    struct left_out found;
    char text[LEFT_OUT_TEXT_BYTES];
    if (!left_out_find(info->name, &found) || found.features == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:s}", "what", left_out_text(found.features, text), "file", found.path);
}

static json_t *device_json(const crpc_device_info *info)
{
    return json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:i, s:b, s:i, s:o}",
        "device", info->name, "port", (int)info->port, "link", link_of(info), "state",
        state_of(info), "mtu_bytes", (int)info->mtu_bytes, "drivers", drivers_of(info),
        "endpoints_max", (int)info->endpoints_max, "receive_depth_max",
        (int)info->receive_depth_max, "vendor_id", (int)info->vendor_id, "vendor_part_id",
        (int)info->vendor_part_id, "gids", gids_json(info), "link_mbps", (int)info->link_mbps,
        "system_image_guid", guid_json(info), "partition_key", (int)info->partition_key,
        "grh_required", (info->flags & CRPC_GRH_REQUIRED) != 0, "completion_vectors",
        (int)info->completion_vectors, "left_out", left_out_json(info));
}

static json_t *rails_json(const struct rails *rails)
{
    json_t *used = json_array(), *left_out = json_array();
    for (uint32_t i = 0; i < rails->count; i++) {
        const crpc_rail_info *rail = &rails->rails[i];
        json_array_append_new(used,
                              json_pack("{s:s, s:i, s:s, s:I}", "device", rail->device, "port",
                                        (int)rail->port, "driver", text_of_driver(rail->driver),
                                        "message_bytes_max", (json_int_t)rail->message_bytes_max));
    }
    for (uint32_t i = 0; i < rails->left_out_count; i++) {
        const struct port_left_out *port = &rails->left_out[i];
        json_array_append_new(left_out, json_pack("{s:s, s:i, s:s}", "device", port->device, "port",
                                                  (int)port->port, "why", port->why));
    }
    return json_pack("{s:o, s:o, s:o}", "used", used, "left_out", left_out, "error",
                     rails->count > 0 ? json_null() : json_string(rails->error.message));
}

int main(int argc, char **argv)
{
    bool json = false;
    char version[32];
    const struct argp argp = {
        .options = option_table, .parser = parse, .args_doc = HELP_ARGUMENTS, .doc = HELP_TEXT};
    arguments_parse(&argp, argc, argv, &json);

    uint32_t index = 0;
    json_t *devices = json_array();
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_device_info info = {.struct_size = sizeof(info)};
    int32_t status;
    while ((status = crpc_device_query(index, &info, &error)) == CRPC_OK) {
        if (json) {
            json_array_append_new(devices, device_json(&info));
        } else {
            print_device(&info);
        }
        index++;
        info.struct_size = sizeof(info);
    }
    static struct rails rails;
    if (index > 0) {
        rails_find(&rails);
    }
    if (json) {
        uint64_t memlock = memlock_limit();
        json_t *root =
            json_pack("{s:s, s:o, s:o, s:o}", "version", version_text(version, sizeof(version)),
                      "memlock_bytes",
                      memlock == RLIM_INFINITY ? json_null() : json_integer((json_int_t)memlock),
                      "devices", devices, "rails", rails_json(&rails));
        json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(root);
    } else {
        json_decref(devices);
        if (index > 0) {
            print_rails(&rails);
            print_memlock();
        }
    }
    if (index == 0 || status != CRPC_E_NO_DEVICE) {
        fprintf(stderr, "copyrpc-info: %s\n", error.message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

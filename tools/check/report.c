/* report.c: see report.h. */
#include "report.h"

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "../common/version.h"

static void find_firmware(const char *device, struct versions *versions)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int i = 0; list && i < count; i++) {
        struct ibv_device_attr attributes;
        struct ibv_context *context =
            strcmp(ibv_get_device_name(list[i]), device) == 0 ? ibv_open_device(list[i]) : NULL;
        if (context && ibv_query_device(context, &attributes) == 0) {
            snprintf(versions->firmware, sizeof(versions->firmware), "%s", attributes.fw_ver);
        }
        if (context) {
            ibv_close_device(context);
        }
    }
    if (list) {
        ibv_free_device_list(list);
    }
}

/* The library says nothing of its version but in the name of its file. */
static void find_library(struct versions *versions)
{
    Dl_info found;
    int (*function)(struct mlx5dv_obj *, uint64_t) = mlx5dv_init_obj;
    void *address;
    memcpy(&address, &function, sizeof(address));
    if (dladdr(address, &found) && found.dli_fname) {
        char *path = realpath(found.dli_fname, NULL);
        const char *slash = path ? strrchr(path, '/') : NULL;
        snprintf(versions->library, sizeof(versions->library), "%s", slash ? slash + 1 : "");
        free(path);
    }
}

void report_versions(const struct subject *subject, struct versions *versions)
{
    struct utsname kernel;
    *versions = (struct versions){0};
    find_firmware(subject->device[0], versions);
    if (uname(&kernel) == 0) {
        snprintf(versions->kernel, sizeof(versions->kernel), "%.79s", kernel.release);
    }
    find_library(versions);
    version_text(versions->copyrpc, sizeof(versions->copyrpc));
}

const char *report_verdict(enum verdict verdict)
{
    static const char *const names[VERDICTS] = {"ok", "FAILED", "not here"};
    return names[verdict];
}

static json_t *device_json(const char *device)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    for (uint32_t i = 0; crpc_device_query(i, &info, NULL) == CRPC_OK; i++) {
        if (strcmp(info.name, device) == 0) {
            return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:b}", "device", info.name, "link",
                             info.link == CRPC_LINK_ETHERNET ? "RoCE" : "InfiniBand", "mtu_bytes",
                             (int)info.mtu_bytes, "link_mbps", (int)info.link_mbps, "vendor_id",
                             (int)info.vendor_id, "vendor_part_id", (int)info.vendor_part_id,
                             "active", info.port_state == CRPC_PORT_ACTIVE);
        }
    }
    return json_pack("{s:s}", "device", device);
}

json_t *report_begin(const struct subject *subject, const struct versions *versions)
{
    json_t *devices = json_array();
    for (uint32_t i = 0; i < subject->devices; i++) {
        json_array_append_new(devices, device_json(subject->device[i]));
    }
    return json_pack("{s:s, s:i, s:o, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:[]}", "report",
                     "copyrpc-check", "format", 1, "devices", devices, "driver",
                     subject->direct ? "mlx5" : "verbs", "firmware", versions->firmware, "kernel",
                     versions->kernel, "libmlx5", versions->library, "copyrpc", versions->copyrpc,
                     "quick", subject->quick, "hunt_seconds", subject->hunt_seconds, "checks");
}

void report_add(json_t *report, const struct check *check, const struct outcome *outcome,
                uint64_t took_ns)
{
    json_array_append_new(json_object_get(report, "checks"),
                          json_pack("{s:s, s:s, s:s, s:s, s:f}", "check", check->name, "assumed",
                                    check->assumed, "seen", outcome->seen, "verdict",
                                    report_verdict(outcome->verdict), "seconds",
                                    (double)took_ns / 1e9));
}

bool report_write(json_t *report, const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!file) {
        return false;
    }
    bool good = json_dumpf(report, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
                putc('\n', file) != EOF;
    if (file != stdout) {
        good = fclose(file) == 0 && good;
    }
    return good;
}

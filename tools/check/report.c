/* report.c: see report.h. */
#include "report.h"

#include <stdio.h>
#include <string.h>

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

json_t *report_begin(const struct subject *subject, const struct left_out_subject *versions)
{
    json_t *devices = json_array();
    for (uint32_t i = 0; i < subject->devices; i++) {
        json_array_append_new(devices, device_json(subject->device[i]));
    }
    return json_pack("{s:s, s:i, s:o, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:[]}", "report",
                     "copyrpc-check", "format", 1, "devices", devices, "driver",
                     subject->direct ? "mlx5" : "verbs", "firmware", versions->firmware, "kernel",
                     versions->kernel, "libmlx5", versions->libmlx5, "copyrpc", versions->copyrpc,
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

static json_t *number_or_null(double number)
{
    return number > 0 ? json_real(number) : json_null();
}

void report_add_speed(json_t *report, const struct figure figures[FIGURES])
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < FIGURES; i++) {
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:o, s:o}", "figure", figures[i].name, "unit",
                                        figures[i].unit, "mlx5", number_or_null(figures[i].ours),
                                        "verbs", number_or_null(figures[i].theirs)));
    }
    json_object_set_new(report, "speed", all);
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

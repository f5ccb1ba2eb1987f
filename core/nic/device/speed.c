/* speed.c: how fast the link of a port is. */
#include <stdio.h>

#include "nic/device/device.h"

#define NDR 128u /* code of 100 Gbit/s and lane */

/* The codes are bits, with what the bit stands for in Mbit/s: of a lane, and in lanes. */
static uint32_t speed_of_codes(const struct ibv_port_attr *attributes)
{
    static const struct {
        uint32_t code, mbps;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {NDR, 100000}};
    static const struct {
        uint32_t code, lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint32_t mbps = 0;
    uint32_t lanes = 0;
    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        mbps += attributes->active_speed == speeds[i].code ? speeds[i].mbps : 0;
    }
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        lanes += attributes->active_width == widths[i].code ? widths[i].lanes : 0;
    }
    return mbps * lanes;
}

#define RATE_GBPS_MAX 1000000u

/* What the kernel writes, such as "800 Gb/sec (4X XDR)": whole numbers from NDR on. 0 = nothing that makes sense. */
static uint32_t rate_written(const struct ibv_context *context, uint32_t port)
{
    char path[sizeof(context->device->ibdev_path) + sizeof("/ports/4294967295/rate")];
    unsigned long gbps = 0;
    snprintf(path, sizeof(path), "%s/ports/%u/rate", context->device->ibdev_path, port);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    const bool read = fscanf(file, "%9lu", &gbps) == 1;
    fclose(file);
    return read && gbps <= RATE_GBPS_MAX ? (uint32_t)gbps * 1000 : 0;
}

/* XDR has the code 256, and verbs have a byte: kernels give the code of NDR instead, unless asked by a newer call than many libibverbs
 * know. They write the rate for everybody. */
uint32_t device_link_mbps(const struct ibv_context *context, uint32_t port,
                          const struct ibv_port_attr *attributes)
{
    const uint32_t mbps = speed_of_codes(attributes);
    return attributes->active_speed == NDR ? (uint32_t)maximum(mbps, rate_written(context, port))
                                           : mbps;
}

/* pair_device.c: the driver and the device of pair.h, as place.h says. */
#include "pair.h"
#include "place.h"

#include <unistd.h>

uint32_t pair_driver(void)
{
    return strcmp(place_driver(), "mlx5") == 0 ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
}

void pair_choose(struct nic_options *options)
{
    snprintf(options->device, sizeof(options->device), "%s", place_device(0));
    options->features = place_compresses() ? CRPC_FEATURE_CQE_COMPRESSION : 0;
}

void pair_pass(uint32_t microseconds)
{
    if (microseconds > 0) {
        usleep(microseconds);
    }
}

/* nic.c: the choice among the drivers of the table that is linked in. */
#include "nic/nic.h"

#include "base/error.h"

int32_t nic_query(uint32_t index, crpc_device_info *info, crpc_error *error)
{
    uint32_t drivers = 0;
    int32_t status = CRPC_E_NO_DEVICE;
    for (uint32_t i = 0; nic_drivers[i]; i++) {
        status = nic_drivers[i]->query(index, info, error);
        if (status != CRPC_OK) {
            break;
        }
        drivers |= info->drivers;
    }
    info->drivers = drivers;
    return status;
}

int32_t nic_open(uint32_t driver, const struct nic_options *options, struct nic **nic,
                 crpc_error *error)
{
    int32_t status = CRPC_E_UNSUPPORTED;
    bool asked = false, tried = false;
    for (uint32_t i = 0; nic_drivers[i]; i++) {
        if (driver != CRPC_DRIVER_AUTO && driver != nic_drivers[i]->driver) {
            continue;
        }
        asked = true;
        if (options->initiators > 0 && !nic_drivers[i]->queue_pair_create_dynamic) {
            /* Why one that has them could not open its device says more. */
            if (!tried || status == CRPC_E_UNSUPPORTED) {
                status = error_set(error, CRPC_E_UNSUPPORTED, 0,
                                   "driver %s has no dynamic queue pairs; mlx5 has, on devices "
                                   "with DC",
                                   nic_drivers[i]->name);
            }
            continue;
        }
        tried = true;
        status = nic_drivers[i]->open(options, nic, error);
        if (status == CRPC_OK) {
            break;
        }
    }
    if (!asked) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "driver %u is not in this build; use CRPC_DRIVER_AUTO", driver);
    }
    return status;
}

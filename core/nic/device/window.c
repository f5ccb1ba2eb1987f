/* window.c: memory windows of type 2B. How they are bound is the driver's own business. */
#include <errno.h>

#include "nic/device/device.h"

int32_t device_window_create(struct nic *base, struct nic_window *window, crpc_error *error)
{
    struct ibv_mw *mw = ibv_alloc_mw(to_device_nic(base)->pd, IBV_MW_TYPE_2);
    if (!mw) {
        return device_blame(error, errno, 0, base->device, "create a memory window");
    }
    *window = (struct nic_window){
        .remote_key = mw->rkey, .access = CRPC_ACCESS_REMOTE_WRITE, .driver = mw};
    return CRPC_OK;
}

void device_window_destroy(struct nic *base, struct nic_window *window)
{
    (void)base;
    if (window->driver) {
        ibv_dealloc_mw(window->driver);
    }
    *window = (struct nic_window){0};
}

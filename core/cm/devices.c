/* devices.c: librdmacm and devices that go and come back. librdmacm keeps a context of each device that a program has used. When the
 * device is taken out and put in again it goes on with the old one, and every bind and connect of the process fails with EIO, until it
 * has looked while the device was away, or at a new one of the same name. It looks only when it is asked for all devices.
 */
#include <stdatomic.h>

#include "cm/internal.h"

static atomic_bool changed; /* in this process */

static void look(void)
{
    struct ibv_context **all = rdma_get_devices(NULL);
    if (all) {
        rdma_free_devices(all);
    }
}

void cm_devices_changed(void)
{
    atomic_store(&changed, true);
    look();
}

/* The event of a device may come before the system has taken it off its list, so that the look above was too early. */
void cm_devices_refresh(void)
{
    if (atomic_load(&changed)) {
        look();
    }
}

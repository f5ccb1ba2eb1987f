/* vendor.c: what devices need, and do not say. Each is known by its vendor's number, or by its kernel driver where that leaves
 * the number 0. verbs.h has the sources. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nic/verbs/verbs.h"

#define VENDOR_BROADCOM 0x14e4u
#define VENDOR_QLOGIC 0x1077u
#define VENDOR_SOFT_ROCE 0xffffffu /* 0 with older kernels */

/* The name of the kernel driver of the device that an RDMA device belongs to. Soft-RoCE belongs to none. */
static bool driven_by(const struct ibv_context *context, const char *driver)
{
    char path[IBV_SYSFS_PATH_MAX + 16], target[PATH_MAX];
    snprintf(path, sizeof(path), "%s/device/driver", context->device->ibdev_path);
    ssize_t bytes = readlink(path, target, sizeof(target) - 1);
    if (bytes <= 0) {
        return false;
    }
    target[bytes] = '\0';
    const char *slash = strrchr(target, '/');
    return strcmp(slash ? slash + 1 : target, driver) == 0;
}

struct verbs_vendor verbs_vendor_of(struct ibv_context *context)
{
    struct ibv_device_attr attributes = {0};
    if (ibv_query_device(context, &attributes)) {
        return (struct verbs_vendor){0};
    }
    const bool mana = driven_by(context, "mana");
    return (struct verbs_vendor){
        .soft_roce =
            attributes.vendor_id == VENDOR_SOFT_ROCE || (attributes.vendor_id == 0 && !mana),
        .receive_piece =
            attributes.vendor_id == VENDOR_BROADCOM || attributes.vendor_id == VENDOR_QLOGIC,
        .no_inline = mana,
    };
}

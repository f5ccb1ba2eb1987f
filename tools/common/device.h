/* device.h: describes a device and the versions of what drives it. */
#ifndef TOOLS_COMMON_DEVICE_H
#define TOOLS_COMMON_DEVICE_H

#include "nic/device/left_out.h"

/* Returns false if there is no such device, or it cannot be opened. */
bool device_describe(const char *device, struct left_out_subject *subject);

#endif

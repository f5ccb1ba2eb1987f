/* left_out.h: what copyrpc-check has found to fail on a device, for copyrpc-info. */
#ifndef TOOLS_INFO_LEFT_OUT_H
#define TOOLS_INFO_LEFT_OUT_H

#include "nic/device/left_out.h"

/* Returns true if there is something to say of the device: what is left out, or a file that does not count. */
bool left_out_find(const char *device, struct left_out *found);

#endif

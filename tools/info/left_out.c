/* left_out.c: see left_out.h. */
#include "left_out.h"

#include "../common/device.h"

bool left_out_find(const char *device, struct left_out *found)
{
    struct left_out_subject subject;
    *found = (struct left_out){0};
    if (device_describe(device, &subject)) {
        left_out_read(&subject, found);
    }
    return found->features != 0 || found->ignored[0] != '\0';
}

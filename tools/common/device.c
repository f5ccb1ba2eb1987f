/* device.c: see device.h. */
#include "device.h"

#include <string.h>

bool device_describe(const char *device, struct left_out_subject *subject)
{
    int count = 0;
    bool found = false;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int i = 0; list && i < count; i++) {
        struct ibv_device_attr attributes;
        struct ibv_context *context =
            strcmp(ibv_get_device_name(list[i]), device) == 0 ? ibv_open_device(list[i]) : NULL;
        if (context && ibv_query_device(context, &attributes) == 0) {
            left_out_describe(context, &attributes, subject);
            found = true;
        }
        if (context) {
            ibv_close_device(context);
        }
    }
    if (list) {
        ibv_free_device_list(list);
    }
    return found;
}

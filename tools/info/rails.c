/* rails.c: see rails.h. The choice is the library's own: it is asked. What the reasons are it does
 * not tell port by port, so they are told here by the rule that copyrpc.h states.
 */
#include "rails.h"

#include <stdbool.h>
#include <string.h>

static bool is_rail(const struct rails *rails, const crpc_device_info *port)
{
    for (uint32_t i = 0; i < rails->count; i++) {
        if (strcmp(rails->rails[i].device, port->name) == 0 && rails->rails[i].port == port->port) {
            return true;
        }
    }
    return false;
}

static const char *why_not(const struct rails *rails, const crpc_device_info *port)
{
    const crpc_rail_info *first = &rails->rails[0];
    if (port->port_state != CRPC_PORT_ACTIVE) {
        return "its link is down";
    }
    if (port->link != first->link) {
        return "its link is of another kind than rail 0's";
    }
    if (!(port->drivers & 1u << first->driver)) {
        return "it cannot be opened with rail 0's driver";
    }
    if (strcmp(port->name, first->device) == 0 ||
        (port->system_image_guid != 0 && port->system_image_guid == first->system_image_guid)) {
        return "it is on the card of rail 0; to use it, name it in crpc_context_options.rails";
    }
    return rails->count > 1 ? "rail 1 was found before it"
                            : "it cannot be opened; COPYRPC_LOG=warning tells why";
}

static void find_left_out(struct rails *rails)
{
    crpc_device_info port = {.struct_size = sizeof(port)};
    int32_t status;
    for (uint32_t i = 0; (status = crpc_device_query(i, &port, NULL)) != CRPC_E_NO_DEVICE; i++) {
        if (status == CRPC_OK && !is_rail(rails, &port) && rails->left_out_count < LEFT_OUT_MAX) {
            struct port_left_out *found = &rails->left_out[rails->left_out_count++];
            memcpy(found->device, port.name, sizeof(found->device));
            found->port = port.port;
            found->why = why_not(rails, &port);
        }
        port.struct_size = sizeof(port);
    }
}

void rails_find(struct rails *rails)
{
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = CRPC_CONTEXT_RAILS};
    crpc_context *context;
    *rails = (struct rails){.error.struct_size = sizeof(rails->error)};
    if (crpc_context_open(&options, &context, &rails->error) < 0) {
        return;
    }
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        rails->rails[i].struct_size = sizeof(rails->rails[i]);
        rails->count += crpc_rail_get_info(context, i, &rails->rails[i]) == CRPC_OK;
    }
    crpc_context_close(context);
    find_left_out(rails);
}

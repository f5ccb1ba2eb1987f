/* choice.h: what a context of a port takes if its program says nothing, and why. */
#ifndef TOOLS_INFO_CHOICE_H
#define TOOLS_INFO_CHOICE_H

#include <copyrpc.h>
#include <stdbool.h>

#include "left_out.h"
#include "port.h"

struct choice {
    bool made; /* false: no context can be opened, and `error` says why, or the port is down */
    crpc_error error;
    crpc_context_info context; /* what the library has chosen */
    const char *driver_why, *gid_why, *partition_key_why;
};

/* Opens a context of the port for a moment. The choice is the library's; why is told by the rules of copyrpc.h, from
 * the environment, `left_out` and `port`. */
void choice_make(const crpc_device_info *info, const struct port *port,
                 const struct left_out *left_out, struct choice *choice);

#endif

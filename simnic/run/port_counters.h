/* port_counters.h: the counters of ports in sysfs, which `simnic run` keeps up to date as the kernel does. */
#ifndef SIMNIC_RUN_PORT_COUNTERS_H
#define SIMNIC_RUN_PORT_COUNTERS_H

#include <stdint.h>

#include "simnic/fabric/fabric.h"
#include "simnic/session/session.h"

#define PORT_COUNTERS_LIFESPAN_MS 20 /* how old what sysfs tells may be */

struct port_counters {
    const struct fabric_file
        *file; /* the head of it; NULL: it cannot be read, and the counters stay as they are */
    char sysfs[SESSION_PATH_BYTES];
    uint64_t written[FABRIC_RAILS]; /* packets, as last written */
};

void port_counters_open(struct port_counters *counters, const char *session_directory);
/* Writes those that have changed. Whoever reads one sees the old value or the new one. */
void port_counters_refresh(struct port_counters *counters);
void port_counters_close(struct port_counters *counters);

#endif

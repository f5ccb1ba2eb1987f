/* format.h: making a session's fabric file, and writing faults into it. `simnic run` and `simnic
 * ctl` use it; NICs use fabric.h. */
#ifndef SIMNIC_FABRIC_FORMAT_H
#define SIMNIC_FABRIC_FORMAT_H

#include <stddef.h>

/* Makes the fabric file at `path`, without processes. Returns 0 or -errno. */
int fabric_format(const char *path);

/* Reads `spec` (simnic/README.md) and puts it into the fabric file at `path`, for all processes of
 * the session at once. Returns 0; -EINVAL with a message in `error` if the specification is wrong;
 * another -errno. */
int fabric_set_fault(const char *path, const char *spec, char *error, size_t error_bytes);

#endif

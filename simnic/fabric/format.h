/* format.h: making a session's fabric file, and writing faults into it. `simnic run` and `simnic
 * ctl` use it; NICs use fabric.h. */
#ifndef SIMNIC_FABRIC_FORMAT_H
#define SIMNIC_FABRIC_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* Makes the fabric file at `path`, without processes, for ports with these links (session/link.h). Returns
 * 0 or -errno. */
int fabric_format(const char *path, uint32_t link);

/* Reads which links the fabric file at `path` is for. Returns 0 or -errno; -EPROTO if it is of another
 * version. */
int fabric_read_link(const char *path, uint32_t *link);

/* Reads `spec` (simnic/README.md) and puts it into the fabric file at `path`, for all processes of
 * the session at once. Returns 0; -EINVAL with a message in `error` if the specification is wrong;
 * another -errno. */
int fabric_set_fault(const char *path, const char *spec, char *error, size_t error_bytes);

#endif

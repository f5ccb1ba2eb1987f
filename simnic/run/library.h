/* library.h: where libsimnic.so is. */
#ifndef SIMNIC_RUN_LIBRARY_H
#define SIMNIC_RUN_LIBRARY_H

#include <limits.h>

/* Finds the shim: $SIMNIC_LIBRARY, or next to the program, or where it is installed. Returns 0, or
 * complains and returns the exit status. */
int library_find(char path[PATH_MAX]);

/* Puts the shim first into LD_PRELOAD, unless it is there; by way of a link in the session's
 * directory if LD_PRELOAD cannot name its path. Returns 0 or -errno. */
int library_preload(const char *path, const char *directory);

#endif

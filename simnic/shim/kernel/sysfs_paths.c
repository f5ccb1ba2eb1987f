/* sysfs_paths.c: see sysfs_paths.h. */
#include "simnic/shim/kernel/sysfs_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/session/session.h"
#include "simnic/shim/kernel/program_memory.h"

#define SYS "/sys"
#define CLASSES SYS "/class/"

/* Classes, and what is below them. */
static const char *const folders[] = {"infiniband", "infiniband_verbs", "misc/rdma_cm"};

static bool is_of_session(const char *rest)
{
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(rest, folders[i], length) == 0 &&
            (rest[length] == '\0' || rest[length] == '/')) {
            return true;
        }
    }
    return false;
}

const char *sysfs_path(const char *path, char room[PATH_MAX])
{
    const size_t before = sizeof(CLASSES) - 1;
    int length = program_path_length(path);
    if (length <= (int)before || strncmp(path, CLASSES, before) != 0 ||
        !is_of_session(path + before)) {
        return path;
    }
    const char *session = getenv(SESSION_VARIABLE);
    int used = session ? snprintf(room, PATH_MAX, "%s/" SESSION_SYSFS "%s", session,
                                  path + sizeof(SYS) - 1)
                       : PATH_MAX;
    return used < PATH_MAX ? room : path;
}

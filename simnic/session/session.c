/* session.c: see session.h. */
#include "simnic/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool session_name_is_valid(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t length = strlen(name);
    return length >= 1 && length <= SESSION_NAME_MAX && strspn(name, allowed) == length;
}

void session_directory_of(const char *name, char directory[SESSION_PATH_BYTES])
{
    snprintf(directory, SESSION_PATH_BYTES, SESSION_PARENT "/simnic.%u.%.*s", (unsigned)geteuid(),
             SESSION_NAME_MAX, name);
}

const char *session_name_in(const char *directory)
{
    char start[SESSION_PATH_BYTES];
    session_directory_of("", start);
    size_t length = strlen(start);
    if (strncmp(directory, start, length) != 0 || !session_name_is_valid(directory + length)) {
        return NULL;
    }
    return directory + length;
}

void session_file(const char *directory, const char *file, char path[SESSION_PATH_BYTES])
{
    snprintf(path, SESSION_PATH_BYTES, "%s/%s", directory, file);
}

bool session_is_complete(const char *directory)
{
    struct stat status;
    char fabric[SESSION_PATH_BYTES];
    session_file(directory, SESSION_FABRIC, fabric);
    return lstat(directory, &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == geteuid() && (status.st_mode & 077) == 0 &&
           lstat(fabric, &status) == 0 && S_ISREG(status.st_mode);
}

const char *session_choose(const char *option, char directory[SESSION_PATH_BYTES])
{
    const char *name = option;
    const char *origin = "--session";
    if (!name) {
        const char *current = getenv(SESSION_VARIABLE);
        name = current ? session_name_in(current) : NULL;
        if (name && !session_is_complete(current)) {
            name = NULL;
        }
    }
    if (!name && (name = getenv(SESSION_NAME_VARIABLE))) {
        origin = SESSION_NAME_VARIABLE;
    }
    if (!name) {
        name = "default";
    }
    if (!session_name_is_valid(name)) {
        return origin;
    }
    session_directory_of(name, directory);
    return NULL;
}

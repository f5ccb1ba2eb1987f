/* paths.c: the C library's functions that take a path and are not in files.c: those that look at the session's sysfs in place of the
 * machine's. */
#undef _FILE_OFFSET_BITS

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "simnic/shim/kernel/sysfs_paths.h"
#include "simnic/shim/process/real.h"

/* No header declares these. Fortified programs call them. */
char *__realpath_chk(const char *path, char *resolved, size_t room);
ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room);
ssize_t __readlinkat_chk(int directory, const char *path, char *to, size_t bytes, size_t room);

PUBLIC FILE *fopen(const char *path, const char *mode)
{
    LOAD;
    char room[PATH_MAX];
    return real.fopen(sysfs_path(path, room), mode);
}

PUBLIC FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode); /* on 64-bit systems they are one */
}

PUBLIC DIR *opendir(const char *path)
{
    LOAD;
    char room[PATH_MAX];
    return real.opendir(sysfs_path(path, room));
}

/* On 64-bit systems struct dirent64 is struct dirent. */
PUBLIC int scandir(const char *path, struct dirent ***entries, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **))
{
    LOAD;
    char room[PATH_MAX];
    return real.scandir(sysfs_path(path, room), entries, wanted, order);
}

PUBLIC int scandir64(const char *path, struct dirent64 ***entries,
                     int (*wanted)(const struct dirent64 *),
                     int (*order)(const struct dirent64 **, const struct dirent64 **))
{
    return scandir(path, (struct dirent ***)entries, (int (*)(const struct dirent *))wanted,
                   (int (*)(const struct dirent **, const struct dirent **))order);
}

PUBLIC ssize_t readlink(const char *path, char *to, size_t bytes)
{
    LOAD;
    char room[PATH_MAX];
    return real.readlink(sysfs_path(path, room), to, bytes);
}

PUBLIC ssize_t readlinkat(int directory, const char *path, char *to, size_t bytes)
{
    LOAD;
    char room[PATH_MAX];
    return real.readlinkat(directory, sysfs_path(path, room), to, bytes);
}

PUBLIC ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room)
{
    if (bytes > room) {
        abort();
    }
    return readlink(path, to, bytes);
}

PUBLIC ssize_t __readlinkat_chk(int directory, const char *path, char *to, size_t bytes,
                                size_t room)
{
    if (bytes > room) {
        abort();
    }
    return readlinkat(directory, path, to, bytes);
}

PUBLIC char *realpath(const char *path, char *resolved)
{
    LOAD;
    char room[PATH_MAX];
    return real.realpath(sysfs_path(path, room), resolved);
}

PUBLIC char *__realpath_chk(const char *path, char *resolved, size_t room)
{
    if (room < PATH_MAX) {
        abort();
    }
    return realpath(path, resolved);
}

PUBLIC char *canonicalize_file_name(const char *path)
{
    return realpath(path, NULL);
}

PUBLIC int euidaccess(const char *path, int mode)
{
    LOAD;
    char room[PATH_MAX];
    return real.euidaccess(sysfs_path(path, room), mode);
}

PUBLIC int eaccess(const char *path, int mode)
{
    return euidaccess(path, mode);
}

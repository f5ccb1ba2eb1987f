/* join.c: joins, makes and removes sessions.
 *
 * Every member holds a shared flock on the session's lock file. Whoever holds it exclusively is
 * alone, and may make the session anew, or remove it. The lock file is removed with the session,
 * and a lock is of a file, not of a path. So a lock counts only if the file is still at its path
 * when the lock is held.
 *
 * When flock changes a lock between shared and exclusive, the lock is not held for a moment.
 * Whatever others do in that moment, the same check finds it, together with a look whether the
 * session is complete. Then joining starts anew. */
#include "simnic/run/join.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "simnic/fabric/format.h"
#include "simnic/run/sysfs.h"
#include "simnic/run/words.h"

#define JOIN_PATIENCE_S 10
#define JOIN_NAP_NS 2000000
#define ROOM_KIB 4096ull /* what a few programs that talk to each other take */

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "; make room in " SESSION_PARENT " (see df " SESSION_PARENT "), or mount it larger";
    case EACCES:
    case EPERM:
    case EROFS:
        return "; " SESSION_PARENT " must be writable for this user";
    case ENOENT:
    case ENOTDIR:
        return "; " SESSION_PARENT " must be there, a tmpfs";
    case EPROTO:
        return "; another version of simnic made it: choose another name with --session";
    case EEXIST:
        return "; something else has this name: remove it, or choose another with --session";
    default:
        return "";
    }
}

static int complain_of(const struct membership *membership, int error)
{
    complain("cannot make %s: %s%s", membership->directory, strerror(error), advice(error));
    return EXIT_TROUBLE;
}

/* Removes what is in a directory, except the name `keep` (may be NULL). What cannot be removed
 * stays. */
static void wipe(int parent, const char *name, const char *keep)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        const char *file = entry->d_name;
        if (strcmp(file, ".") == 0 || strcmp(file, "..") == 0 ||
            (keep && strcmp(file, keep) == 0)) {
            continue;
        }
        if (unlinkat(fd, file, 0) != 0 && (errno == EISDIR || errno == EPERM)) {
            wipe(fd, file, NULL);
            unlinkat(fd, file, AT_REMOVEDIR);
        }
    }
    closedir(directory);
}

/* Returns whether the open lock file is the one in the directory. */
static bool is_current(int lock, const char *directory)
{
    char path[SESSION_PATH_BYTES];
    struct stat held, there;
    session_file(directory, SESSION_LOCK, path);
    return fstat(lock, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/* Removes the session. Its lock must be held exclusively. The lock file is removed last but one.
 * Before that, a newcomer waits for the lock. After that, it makes a new lock file, and because of
 * this file rmdir leaves the directory to it. */
static void remove_session(const char *directory)
{
    char path[SESSION_PATH_BYTES];
    wipe(AT_FDCWD, directory, SESSION_LOCK);
    session_file(directory, SESSION_LOCK, path);
    unlink(path);
    rmdir(directory);
}

static int build(const struct membership *membership)
{
    const char *directory = membership->directory;
    uint32_t link = membership->link;
    char error[256];
    char path[SESSION_PATH_BYTES], fabric[SESSION_PATH_BYTES];
    wipe(AT_FDCWD, directory, SESSION_LOCK);
    session_file(directory, SESSION_SYSFS, path);
    int result = sysfs_generate(path, link);
    if (result) {
        return result;
    }
    /* Under another name at first: a session with the fabric file is complete. */
    session_file(directory, SESSION_FABRIC ".new", path);
    session_file(directory, SESSION_FABRIC, fabric);
    result = fabric_format(path, link);
    if (!result && membership->fault) {
        result = fabric_set_fault(path, membership->fault, error, sizeof(error));
    }
    if (!result && rename(path, fabric) != 0) {
        result = -errno;
    }
    return result;
}

/* Returns 0 if the directory is this user's and nobody else's, -EEXIST if something else has its
 * name, or -errno. */
static int check_owner(const char *directory)
{
    struct stat status;
    if (lstat(directory, &status) != 0) {
        return -errno;
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077)) {
        return -EEXIST;
    }
    return 0;
}

/* Opens the lock file, making it and the directory. Returns it, -EAGAIN if somebody removed the
 * directory meanwhile, or -errno. */
static int open_lock(const char *directory)
{
    char path[SESSION_PATH_BYTES];
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return -errno;
    }
    int result = check_owner(directory);
    if (result) {
        return result == -ENOENT ? -EAGAIN : result;
    }
    session_file(directory, SESSION_LOCK, path);
    int lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) {
        return errno == ENOENT ? -EAGAIN : -errno;
    }
    return lock;
}

/* One attempt. Returns 0, -EAGAIN if another one is due, or -errno. */
static int try_to_join(struct membership *membership)
{
    const char *directory = membership->directory;
    int lock = open_lock(directory);
    if (lock < 0) {
        if (lock != -EAGAIN && lock != -EEXIST) {
            rmdir(directory);
        }
        return lock;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        /* Alone: the session is new, or its members are dead. */
        int result = is_current(lock, directory) ? build(membership) : -EAGAIN;
        if (result && result != -EAGAIN) {
            remove_session(directory);
        }
        if (result) {
            close(lock);
            return result;
        }
    } else if (errno != EWOULDBLOCK) {
        int result = -errno;
        close(lock);
        return result;
    }
    if (flock(lock, LOCK_SH | LOCK_NB) == 0 && is_current(lock, directory) &&
        session_is_complete(directory)) {
        char path[SESSION_PATH_BYTES];
        session_file(directory, SESSION_FABRIC, path);
        int result = fabric_read_link(path, &membership->link);
        if (result) {
            close(lock);
            return result;
        }
        membership->lock = lock;
        return 0;
    }
    close(lock);
    return -EAGAIN;
}

/* The fabric takes room as programs use it, and one that finds none gets SIGBUS. Containers have 64 MiB or less there. */
static void look_for_room(const char *directory)
{
    struct statvfs room;
    if (statvfs(directory, &room) != 0 || room.f_blocks == 0) {
        return; /* 0: there is no limit */
    }
    unsigned long long left_kib = (unsigned long long)room.f_bavail * room.f_frsize / 1024;
    if (left_kib < ROOM_KIB) {
        complain(SESSION_PARENT " has %llu KiB left, and a program that finds it full ends with a "
                                "bus error: mount it larger, as "
                                "docker does with --shm-size",
                 left_kib);
    }
}

int session_join(struct membership *membership)
{
    const struct timespec nap = {.tv_nsec = JOIN_NAP_NS};
    const uint32_t attempts = JOIN_PATIENCE_S * (1000000000 / JOIN_NAP_NS);
    int result = -EAGAIN;
    mode_t mask = umask(077);
    for (uint32_t i = 0; i < attempts && result == -EAGAIN; i++) {
        if (i) {
            nanosleep(&nap, NULL);
        }
        result = try_to_join(membership);
    }
    umask(mask);
    if (result == -EAGAIN) {
        complain("%s: somebody has been making or removing it for %d s", membership->directory,
                 JOIN_PATIENCE_S);
        return EXIT_TROUBLE;
    }
    if (result == 0) {
        look_for_room(membership->directory);
    }
    return result ? complain_of(membership, -result) : 0;
}

void session_leave(struct membership *membership)
{
    if (membership->lock < 0) {
        return;
    }
    if (flock(membership->lock, LOCK_EX | LOCK_NB) == 0 &&
        is_current(membership->lock, membership->directory)) {
        remove_session(membership->directory);
    }
    close(membership->lock);
    membership->lock = -1;
}

static void sweep(struct membership *dead)
{
    char path[SESSION_PATH_BYTES];
    session_file(dead->directory, SESSION_LOCK, path);
    dead->lock = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    session_leave(dead);
    /* If there is no lock file, the directory is empty: somebody died before making that file, or
     * after removing it. A process that is about to make it will notice. */
    rmdir(dead->directory);
}

void session_sweep(void)
{
    DIR *parent = opendir(SESSION_PARENT);
    struct dirent *entry;
    while (parent && (entry = readdir(parent))) {
        struct membership dead;
        const int size = (int)sizeof(dead.directory);
        int length =
            snprintf(dead.directory, sizeof(dead.directory), SESSION_PARENT "/%s", entry->d_name);
        if (length < size && session_name_in(dead.directory) && check_owner(dead.directory) == 0) {
            sweep(&dead);
        }
    }
    if (parent) {
        closedir(parent);
    }
}

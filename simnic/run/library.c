/* library.c: finds libsimnic.so, beside the program in a build folder or where it was installed,
 * and puts it into LD_PRELOAD. */
#include "simnic/run/library.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simnic/run/words.h"
#include "simnic/session/session.h"

#define LIBRARY "libsimnic.so"
#define LIBRARY_VARIABLE "SIMNIC_LIBRARY"

/* The dynamic linker only warns about a library that it cannot load. The program would run without
 * a NIC. */
static bool usable(const char *path)
{
    return access(path, R_OK) == 0;
}

static int find_named(const char *name, char path[PATH_MAX])
{
    /* The path is made absolute, since the command may run in another directory. */
    if (!realpath(name, path) || !usable(path)) {
        complain(LIBRARY_VARIABLE ": %s: %s", name, strerror(errno));
        return EXIT_TROUBLE;
    }
    return 0;
}

int library_find(char path[PATH_MAX])
{
    static const char *const places[] = {"", SIMNIC_LIBRARY_FOLDER};
    const char *name = getenv(LIBRARY_VARIABLE);
    if (name && *name) {
        return find_named(name, path);
    }
    char program[PATH_MAX], candidate[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length < 0) {
        complain("cannot read /proc/self/exe: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) {
        slash[1] = '\0';
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(candidate, sizeof(candidate), "%s%s" LIBRARY, places[i][0] == '/' ? "" : program,
                 places[i]);
        if (realpath(candidate, path) && usable(path)) {
            return 0;
        }
    }
    complain(LIBRARY " is neither in %s nor in " SIMNIC_LIBRARY_FOLDER
                     " (from there on); name it in $" LIBRARY_VARIABLE,
             program);
    return EXIT_TROUBLE;
}

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list) {
        size_t span = strcspn(list, " :");
        if (span == length && strncmp(list, word, length) == 0) {
            return true;
        }
        list += span + (list[span] != '\0');
    }
    return false;
}

/* LD_PRELOAD cannot name a path with a space or a colon. So a link in the session's directory,
 * whose path has neither, leads to the library. Members of one session may have different
 * libraries. */
static int link_to(const char *path, const char *directory, char link[SESSION_PATH_BYTES])
{
    for (int i = 0;; i++) {
        char name[32], there[PATH_MAX];
        snprintf(name, sizeof(name), "preload%d." LIBRARY, i);
        session_file(directory, name, link);
        if (symlink(path, link) == 0) {
            return 0;
        }
        if (errno != EEXIST) {
            return -errno;
        }
        ssize_t length = readlink(link, there, sizeof(there));
        if (length == (ssize_t)strlen(path) && memcmp(there, path, (size_t)length) == 0) {
            return 0;
        }
    }
}

int library_preload(const char *path, const char *directory)
{
    char link[SESSION_PATH_BYTES];
    if (strpbrk(path, " :")) {
        int result = link_to(path, directory, link);
        if (result) {
            return result;
        }
        path = link;
    }
    const char *before = getenv("LD_PRELOAD");
    if (!before || !*before) {
        return setenv("LD_PRELOAD", path, 1) ? -errno : 0;
    }
    if (has_word(before, path)) {
        return 0;
    }
    char *both = NULL;
    if (asprintf(&both, "%s:%s", path, before) < 0) {
        return -ENOMEM;
    }
    int result = setenv("LD_PRELOAD", both, 1) ? -errno : 0;
    free(both);
    return result;
}

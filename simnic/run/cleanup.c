/* cleanup.c: finds descendants in /proc and ends them. The caller is a child subreaper: a process
 * whose parent dies becomes the caller's child. So nothing that a command started leaves the tree
 * below the caller. */
#include "simnic/run/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "simnic/run/words.h"

#define NAP_NS 5000000
#define NAPS_A_SECOND (1000000000 / NAP_NS)
#define TERM_NAPS NAPS_A_SECOND /* how long they have to end by themselves */
#define KILL_NAPS                                                                                  \
    (5 * NAPS_A_SECOND) /* how long killing may take: one may be stuck in the kernel */
#define RESCAN_NAPS 4   /* processes that were forked meanwhile are looked for this often */

struct process {
    pid_t pid, parent;
};

struct family {
    struct process *process;
    size_t count, capacity;
};

/* Returns the parent of a process, or -1 if it is gone. Zombies count: one may have threads that
 * live. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%.16s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (bytes <= 0) {
        return -1;
    }
    text[bytes] = '\0';
    /* The name, in parentheses, may have anything in it. */
    const char *after = strrchr(text, ')');
    char state;
    int parent;
    if (!after || sscanf(after + 1, " %c %d", &state, &parent) != 2 || state == 'X') {
        return -1;
    }
    return parent;
}

static void family_add(struct family *family, pid_t pid, pid_t parent)
{
    if (family->count == family->capacity) {
        size_t capacity = family->capacity ? 2 * family->capacity : 256;
        struct process *more = realloc(family->process, capacity * sizeof(*more));
        if (!more) {
            return; /* those that were found are ended, then there is another look */
        }
        family->process = more;
        family->capacity = capacity;
    }
    family->process[family->count++] = (struct process){.pid = pid, .parent = parent};
}

static void family_read(struct family *family)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    family->count = 0;
    while (proc && (entry = readdir(proc))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') {
            continue;
        }
        pid_t parent = parent_of(entry->d_name);
        if (parent > 0) {
            family_add(family, (pid_t)strtol(entry->d_name, NULL, 10), parent);
        }
    }
    if (proc) {
        closedir(proc);
    }
}

static bool is_stranger(const struct strangers *strangers, pid_t pid)
{
    for (int i = 0; i < strangers->count; i++) {
        if (strangers->pid[i] == pid) {
            return true;
        }
    }
    return false;
}

/* Moves our descendants to the front, a generation with each round. Returns how many there are. */
static size_t family_sort(struct family *family, const struct strangers *strangers)
{
    struct process *process = family->process;
    const pid_t self = getpid();
    size_t ours = 0, before;
    do {
        before = ours;
        for (size_t i = ours; i < family->count; i++) {
            bool found = process[i].parent == self;
            for (size_t j = 0; j < ours && !found; j++) {
                found = process[j].pid == process[i].parent;
            }
            if (found && !is_stranger(strangers, process[i].pid)) {
                struct process swapped = process[ours];
                process[ours++] = process[i];
                process[i] = swapped;
            }
        }
    } while (ours != before);
    return ours;
}

static size_t signal_descendants(struct family *family, const struct strangers *strangers,
                                 int signal)
{
    family_read(family);
    size_t ours = family_sort(family, strangers);
    for (size_t i = 0; signal && i < ours; i++) {
        kill(family->process[i].pid, signal);
        /* A stopped process takes notice of SIGTERM only once it goes on. */
        if (signal != SIGKILL) {
            kill(family->process[i].pid, SIGCONT);
        }
    }
    return ours;
}

/* Reaps what is dead. Returns whether there are children left. */
static bool reap(void)
{
    pid_t pid;
    do {
        pid = waitpid(-1, NULL, WNOHANG);
    } while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid == 0;
}

void strangers_find(struct strangers *strangers)
{
    struct family family = {0};
    const pid_t self = getpid();
    strangers->count = 0;
    siginfo_t any = {0};
    /* Nearly always there are none; then /proc need not be read. */
    if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) {
        return;
    }
    family_read(&family);
    for (size_t i = 0; i < family.count && strangers->count < STRANGER_MAX; i++) {
        if (family.process[i].parent == self) {
            strangers->pid[strangers->count++] = family.process[i].pid;
        }
    }
    free(family.process);
}

void cleanup_descendants(const struct strangers *strangers)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct family family = {0};
    size_t left = 0;
    for (uint32_t naps = 0; reap() && naps < TERM_NAPS + KILL_NAPS; naps++) {
        if (naps % RESCAN_NAPS == 0) {
            /* SIGTERM once: a second one may be understood as impatience. */
            int signal = naps == 0 ? SIGTERM : naps < TERM_NAPS ? 0 : SIGKILL;
            left = signal_descendants(&family, strangers, signal);
            if (left == 0 && strangers->count) {
                break; /* the children that there are must be those */
            }
        }
        nanosleep(&nap, NULL);
    }
    if (left && reap() && signal_descendants(&family, strangers, SIGKILL)) {
        complain("a process that the command left behind cannot be ended");
    }
    free(family.process);
}

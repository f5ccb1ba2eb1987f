/* ctl_session.c: a session as `simnic ctl` sees it, and the word `sessions`. */
#include "simnic/run/ctl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simnic/run/words.h"

/* Maps the fabric file of the session in session->directory. The whole file is mapped, but only
 * pages that have memory are accessed: the head, and trace rings that got theirs. If tmpfs is full,
 * the first access to another page raises SIGBUS. Returns 0 or -errno. */
static int map(struct ctl_session *session)
{
    char path[SESSION_PATH_BYTES];
    struct stat status;
    session_file(session->directory, SESSION_FABRIC, path);
    session->fabric.slot = UINT32_MAX;
    session->fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (session->fd < 0) {
        return -errno;
    }
    int result = fstat(session->fd, &status) != 0 ? -errno : 0;
    if (!result && (size_t)status.st_size < sizeof(struct fabric_file)) {
        result = -EPROTO;
    }
    void *file = result ? MAP_FAILED
                        : mmap(NULL, sizeof(struct fabric_file), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, session->fd, 0);
    if (!result && file == MAP_FAILED) {
        result = -errno;
    }
    if (!result) {
        madvise(file, sizeof(struct fabric_file), MADV_DONTDUMP);
        session->fabric.file = file;
        session->fabric.link = session->fabric.file->link;
        if (session->fabric.file->magic == FABRIC_MAGIC &&
            session->fabric.file->version == FABRIC_VERSION) {
            return 0;
        }
        munmap(file, sizeof(struct fabric_file));
        result = -EPROTO;
    }
    close(session->fd);
    return result;
}

int ctl_open(struct ctl_session *session, const struct ctl_options *options)
{
    *session = (struct ctl_session){.fd = -1};
    const char *wrong = session_choose(options->session, session->directory);
    if (wrong) {
        complain("%s: a session's name is made of 1 to %d of A-Z a-z 0-9 _ . -", wrong,
                 SESSION_NAME_MAX);
        return EXIT_USAGE;
    }
    const char *name = session_name_in(session->directory);
    int result = session_is_complete(session->directory) ? map(session) : -ENOENT;
    if (!result) {
        return 0;
    }
    if (result == -ENOENT) {
        complain("ctl: there is no session \"%s\" (see simnic ctl sessions)", name);
    } else if (result == -EPROTO) {
        complain("ctl: session \"%s\" is of another version of simnic", name);
    } else {
        complain("ctl: cannot look into session \"%s\": %s", name, strerror(-result));
    }
    return EXIT_TROUBLE;
}

void ctl_close(struct ctl_session *session)
{
    munmap(session->fabric.file, sizeof(struct fabric_file));
    close(session->fd);
}

void ctl_look(struct ctl_session *session, uint32_t slot, struct ctl_process *process)
{
    const struct fabric_slot *from = &session->fabric.file->slots[slot];
    *process = (struct ctl_process){.slot = slot};
    process->generation = atomic_load_explicit(&from->generation, memory_order_acquire);
    process->pid = fabric_pid(&session->fabric, slot);
    memcpy(process->name, from->name, sizeof(from->name));
    for (char *c = process->name; *c; c++) {
        if (!isascii(*c) || !isprint(*c)) {
            *c = '?';
        }
    }
    if (process->pid) {
        process->state = fabric_slot_alive(&session->fabric, slot) ? CTL_ALIVE : CTL_DEAD;
    } else if (process->generation) {
        process->state = CTL_ENDED;
    }
}

bool ctl_statistics(const struct ctl_session *session, uint32_t slot,
                    struct fabric_process_statistics *statistics)
{
    /* By pread, which reads zeros where the file has no memory yet, and takes none. */
    off_t at = (off_t)(offsetof(struct fabric_file, statistics) + slot * sizeof(*statistics));
    return pread(session->fd, statistics, sizeof(*statistics), at) == (ssize_t)sizeof(*statistics);
}

static uint32_t count_living(struct ctl_session *session)
{
    uint32_t living = 0;
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        living += fabric_slot_alive(&session->fabric, slot);
    }
    return living;
}

static void print_session(const char *directory)
{
    struct ctl_session session = {.fd = -1};
    snprintf(session.directory, sizeof(session.directory), "%s", directory);
    const char *name = session_name_in(directory);
    int result = map(&session);
    if (result == -ENOENT) {
        return; /* it has just been removed */
    }
    if (result) {
        printf("%-24s %9s  %s\n", name, "-", strerror(-result));
        return;
    }
    uint32_t living = count_living(&session);
    char link[LINK_TEXT_BYTES];
    link_describe(session.fabric.link, link);
    printf("%-24s %9u  %s\n", name, living, link);
    ctl_close(&session);
}

int ctl_sessions(const struct ctl_options *options)
{
    (void)options;
    struct dirent **entries;
    int count = scandir(SESSION_PARENT, &entries, NULL, alphasort);
    if (count < 0) {
        complain("ctl: cannot read " SESSION_PARENT ": %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    printf("%-24s %s  %s\n", "session", "processes", "link");
    for (int i = 0; i < count; i++) {
        char directory[SESSION_PATH_BYTES];
        int length =
            snprintf(directory, sizeof(directory), SESSION_PARENT "/%s", entries[i]->d_name);
        if (length < (int)sizeof(directory) && session_name_in(directory) &&
            session_is_complete(directory)) {
            print_session(directory);
        }
        free(entries[i]);
    }
    free(entries);
    return ctl_flush();
}

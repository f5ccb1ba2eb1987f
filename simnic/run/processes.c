/* processes.c: what the outer and the inner process share. */
#include "simnic/run/processes.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* All signals that can be caught, without those of a process's own faults. Real-time signals keep
 * their default, which ends us. */
static const int passed_on[] = {
    SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM,   SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGWINCH, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGURG,
};

int signals_take(struct runner *runner)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
        sigaddset(&set, passed_on[i]);
    }
    sigaddset(&set, SIGCHLD);
    /* We may have been started with SIGCHLD ignored, and could not wait for children then. */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    if (sigaction(SIGCHLD, &plain, &runner->child_before) != 0 ||
        sigprocmask(SIG_BLOCK, &set, &runner->mask_before) != 0) {
        return -errno;
    }
    runner->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return runner->signals < 0 ? -errno : 0;
}

void signals_give_back(const struct runner *runner)
{
    sigaction(SIGCHLD, &runner->child_before, NULL);
    sigprocmask(SIG_SETMASK, &runner->mask_before, NULL);
}

void word_send(int channel, enum word_kind kind, int value)
{
    struct word word = {.kind = kind, .value = value};
    while (send(channel, &word, sizeof(word), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
}

int word_receive(int channel, struct word *word)
{
    ssize_t bytes = recv(channel, word, sizeof(*word), MSG_DONTWAIT);
    if (bytes == (ssize_t)sizeof(*word)) {
        return 1;
    }
    return bytes < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

bool signal_next(const struct runner *runner, struct signalfd_siginfo *info)
{
    return read(runner->signals, info, sizeof(*info)) == (ssize_t)sizeof(*info);
}

bool signal_is_of_group(const struct signalfd_siginfo *info)
{
    return info->ssi_code > 0;
}

int status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

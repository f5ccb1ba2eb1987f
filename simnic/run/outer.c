/* outer.c: the process that the user started. It tells the inner process which signals it got,
 * stops when the command is stopped at the terminal, and cleans up when the inner process dies. */
#include "simnic/run/processes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simnic/run/words.h"

struct outer {
    struct runner *runner;
    pid_t inner;
    int channel;
    bool inner_dead;
    int inner_status;
    bool command_ended;
    int command_status;
};

/* Stops as the command did, so that a shell sees that the job is stopped. Returns when it goes
 * on. */
static void stop_like_command(const struct outer *outer, int signal)
{
    struct sigaction plain = {.sa_handler = SIG_DFL}, before;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigaction(signal, &plain, &before);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* here it takes effect */
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(signal, &before, NULL);
    word_send(outer->channel, WORD_RESUMED, 0);
}

static void reap(struct outer *outer)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == outer->inner) {
            outer->inner_dead = true;
            outer->inner_status = status;
        }
    }
}

static void hear_signals(struct outer *outer)
{
    struct signalfd_siginfo info;
    while (signal_next(outer->runner, &info)) {
        /* A SIGCONT from the inner process is for us, and not for the command. */
        if (info.ssi_signo == SIGCHLD) {
            reap(outer);
        } else if (!signal_is_of_group(&info) && (pid_t)info.ssi_pid != outer->inner) {
            word_send(outer->channel, WORD_SIGNAL, (int)info.ssi_signo);
        }
    }
}

static void hear_words(struct outer *outer)
{
    struct word word;
    while (word_receive(outer->channel, &word) > 0) {
        if (word.kind == WORD_STOPPED) {
            stop_like_command(outer, word.value);
        } else if (word.kind == WORD_ENDED) {
            outer->command_ended = true;
            outer->command_status = word.value;
        } else if (word.kind == WORD_SIGNAL_TOO) {
            /* A signal to the group is here by now. It is told of before the question is
             * answered. */
            hear_signals(outer);
            word_send(outer->channel, WORD_SIGNAL_TOO, word.value);
        }
    }
}

static void wait_for_inner(struct outer *outer)
{
    struct pollfd files[] = {{.fd = outer->runner->signals, .events = POLLIN},
                             {.fd = outer->channel, .events = POLLIN}};
    while (!outer->inner_dead) {
        if (poll(files, 2, -1) < 0 && errno != EINTR) {
            break;
        }
        /* Signals first: the one that stopped the command must be told of before we stop. */
        hear_signals(outer);
        hear_words(outer);
        /* A closed channel is always ready. SIGCHLD will come soon. */
        if (files[1].revents & (POLLHUP | POLLERR)) {
            files[1].fd = -1;
        }
    }
    hear_words(outer);
}

static int start(struct outer *outer)
{
    int channels[2];
    const pid_t self = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    strangers_find(&outer->runner->strangers);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) != 0) {
        return -errno;
    }
    outer->inner = fork();
    if (outer->inner < 0) {
        int result = -errno;
        close(channels[0]);
        close(channels[1]);
        return result;
    }
    if (outer->inner == 0) {
        close(channels[0]);
        inner_run(outer->runner, channels[1], self);
        _exit(0);
    }
    close(channels[1]);
    outer->channel = channels[0];
    return 0;
}

int outer_run(struct runner *runner)
{
    struct outer outer = {.runner = runner};
    int result = start(&outer);
    if (result) {
        complain("cannot start a process: %s", strerror(-result));
        session_leave(&runner->membership);
        return EXIT_TROUBLE;
    }
    wait_for_inner(&outer);
    cleanup_descendants(&runner->strangers);
    session_leave(&runner->membership);
    session_sweep();
    if (outer.command_ended) {
        return status_of(outer.command_status);
    }
    complain("process %d of simnic died with status %d, so the command was ended", (int)outer.inner,
             status_of(outer.inner_status));
    return WIFSIGNALED(outer.inner_status) ? status_of(outer.inner_status) : EXIT_TROUBLE;
}

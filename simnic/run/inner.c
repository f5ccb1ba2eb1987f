/* inner.c: the process that starts the command and passes signals on to it.
 *
 * A signal to the runner alone is meant for the command. A signal to the process group has reached
 * the command already. A signal does not tell which of the two it is. But a signal that both the
 * outer process and this one get was sent to the group. So a signal is held until that is known. If
 * we got it, the outer process is asked whether it got it, too. If the outer process got it, we
 * wait a moment, in which a signal to the group reaches us. */
#include "simnic/run/processes.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "simnic/run/port_counters.h"
#include "simnic/run/words.h"

#define HOLD_MS 100
#define NUDGE_MS 50 /* between two SIGCONT for the outer process */

struct held_signal {
    uint64_t due_ms;    /* 0: nothing is held; UINT64_MAX: until the outer process answers */
    unsigned questions; /* that it has not answered */
    bool by_outer, by_us, by_command;
};

struct inner {
    struct runner *runner;
    int channel;
    pid_t outer, command;
    bool outer_dead;
    bool outer_stopped; /* it was told to stop, and has not said that it goes on */
    bool command_stopped, command_ended;
    struct held_signal held[NSIG];
    struct port_counters counters;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* If a directory of PATH cannot be searched, execvp says "permission denied" even for a command
 * that is in none of the directories. Shells say that there is no such command. */
static bool is_nowhere(const char *command)
{
    const char *path = getenv("PATH");
    if (strchr(command, '/') || !path) {
        return false;
    }
    while (*path) {
        char file[PATH_MAX];
        size_t span = strcspn(path, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)span, path, command);
        if (access(file, F_OK) == 0) {
            return false;
        }
        path += span + (path[span] != '\0');
    }
    return true;
}

static void exec_command(const struct runner *runner, pid_t inner)
{
    /* If we are killed, the command is told at once. The outer process does the rest. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != inner) {
        _exit(128 + SIGTERM);
    }
    signals_give_back(runner);
    execvp(runner->command[0], runner->command);
    int error = errno;
    if (error == EACCES && is_nowhere(runner->command[0])) {
        error = ENOENT;
    }
    complain("%s: %s", runner->command[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

static struct held_signal *hold(struct inner *inner, int signal, uint64_t due_ms)
{
    struct held_signal *held = &inner->held[signal];
    if (!held->due_ms) {
        *held = (struct held_signal){.due_ms = due_ms, .questions = held->questions};
    }
    return held;
}

static void ask_outer(struct inner *inner, int signal)
{
    inner->held[signal].due_ms = UINT64_MAX;
    inner->held[signal].questions++;
    word_send(inner->channel, WORD_SIGNAL_TOO, signal);
}

static void got_by_outer(struct inner *inner, int signal)
{
    struct held_signal *held = hold(inner, signal, now_ms() + HOLD_MS);
    held->by_outer = true;
    if (held->by_us && !held->by_command) {
        held->due_ms = now_ms();
    }
}

static void got_by_us(struct inner *inner, int signal)
{
    struct held_signal *held = hold(inner, signal, UINT64_MAX);
    held->by_us = true;
    if (held->by_command) {
        return;
    }
    if (held->by_outer) {
        held->due_ms = now_ms();
    } else {
        ask_outer(inner, signal);
    }
}

/* The command has got the signal. A second one would stop it again when it goes on. */
static void got_by_command(struct inner *inner, int signal)
{
    hold(inner, signal, UINT64_MAX)->by_command = true;
    ask_outer(inner, signal);
}

/* If the outer process got the signal, it has told of it before. */
static void answered(struct inner *inner, int signal)
{
    struct held_signal *held = &inner->held[signal];
    if (held->questions > 0 && --held->questions == 0 && held->due_ms) {
        held->due_ms = now_ms();
    }
}

/* Passes on what is due. Returns how long to wait for the next, in ms, or -1. */
static int pass_on(struct inner *inner)
{
    const uint64_t now = now_ms();
    int wait = -1;
    for (int signal = 1; signal < NSIG; signal++) {
        struct held_signal *held = &inner->held[signal];
        if (!held->due_ms) {
            continue;
        }
        if (held->due_ms > now) {
            int left = held->due_ms - now > INT_MAX ? INT_MAX : (int)(held->due_ms - now);
            wait = wait < 0 || left < wait ? left : wait;
            continue;
        }
        /* No other process has the command's pid before the command is reaped. */
        if (!(held->by_outer && held->by_us) && !held->by_command && !inner->command_ended) {
            kill(inner->command, signal);
        }
        held->due_ms = 0;
    }
    return wait;
}

/* When the command goes on or has ended, the outer process must go on, too. It is told again and
 * again, since it may be about to stop. */
static int nudge_outer(const struct inner *inner)
{
    if (!inner->outer_stopped || inner->command_stopped) {
        return -1;
    }
    kill(inner->outer, SIGCONT);
    return NUDGE_MS;
}

static void command_changed(struct inner *inner, int status)
{
    if (WIFCONTINUED(status)) {
        inner->command_stopped = false;
    } else if (WIFSTOPPED(status)) {
        const int signal = WSTOPSIG(status);
        inner->command_stopped = true;
        got_by_command(inner, signal);
        /* SIGSTOP is for the command. The others come from the terminal, and are for the job. */
        if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) {
            inner->outer_stopped = true;
            word_send(inner->channel, WORD_STOPPED, signal);
        }
    } else {
        inner->command_ended = true;
        inner->command_stopped = false;
        word_send(inner->channel, WORD_ENDED, status);
    }
}

static void reap(struct inner *inner)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid == inner->command) {
            command_changed(inner, status);
        }
    }
}

static void hear_signals(struct inner *inner)
{
    struct signalfd_siginfo info;
    while (signal_next(inner->runner, &info)) {
        if (info.ssi_signo == SIGCHLD) {
            reap(inner);
        } else if (!signal_is_of_group(&info)) {
            got_by_us(inner, (int)info.ssi_signo);
        }
    }
}

static void hear_words(struct inner *inner)
{
    struct word word;
    int result;
    while ((result = word_receive(inner->channel, &word)) > 0) {
        const bool is_signal = word.value > 0 && word.value < NSIG;
        if (word.kind == WORD_SIGNAL && is_signal) {
            got_by_outer(inner, word.value);
        } else if (word.kind == WORD_SIGNAL_TOO && is_signal) {
            answered(inner, word.value);
        } else if (word.kind == WORD_RESUMED) {
            inner->outer_stopped = false;
        }
    }
    if (result < 0) {
        inner->outer_dead = true;
    }
}

static void wait_for_command(struct inner *inner)
{
    struct pollfd files[] = {{.fd = inner->runner->signals, .events = POLLIN},
                             {.fd = inner->channel, .events = POLLIN}};
    /* A stopped outer process must go on before we end. Else it cannot reap us, and never ends. */
    while (!inner->outer_dead && (!inner->command_ended || inner->outer_stopped)) {
        int wait = pass_on(inner);
        int nudge = nudge_outer(inner);
        if (nudge >= 0 && (wait < 0 || nudge < wait)) {
            wait = nudge;
        }
        if (wait < 0 || wait > PORT_COUNTERS_LIFESPAN_MS) {
            wait = PORT_COUNTERS_LIFESPAN_MS;
        }
        if (poll(files, 2, wait) < 0 && errno != EINTR) {
            return;
        }
        port_counters_refresh(&inner->counters);
        /* In this order: when the outer process can tell of a signal to the group, we have it, too.
         * In the other order, a pause between the two made one signal look like two. */
        hear_words(inner);
        hear_signals(inner);
    }
}

void inner_run(struct runner *runner, int channel, pid_t outer)
{
    struct inner inner = {.runner = runner, .channel = channel, .outer = outer};
    const struct strangers none = {0};
    const pid_t self = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* not inherited */
    inner.command = fork();
    if (inner.command == 0) {
        close(channel);
        exec_command(runner, self);
    }
    if (inner.command < 0) {
        complain("cannot start a process: %s", strerror(errno));
        word_send(channel, WORD_ENDED, EXIT_TROUBLE << 8); /* a wait status */
    } else {
        port_counters_open(&inner.counters, runner->membership.directory);
        wait_for_command(&inner);
        port_counters_close(&inner.counters);
    }
    cleanup_descendants(&none);
    session_leave(&runner->membership);
}

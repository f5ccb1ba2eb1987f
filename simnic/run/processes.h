/* processes.h: the two processes of a runner, and what they tell each other.
 *
 *   outer   the process that the user started; waits for the inner one
 *   inner   its child; starts the command, waits for it, and ends what it leaves behind
 *
 * If one is killed, the other notices, ends the command, and removes the session. Only a SIGKILL to
 * both at the same time leaves something behind, which the next run removes. These two and the
 * command share a process group, so that job control and the terminal see one job. */
#ifndef SIMNIC_RUN_PROCESSES_H
#define SIMNIC_RUN_PROCESSES_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

#include "simnic/run/cleanup.h"
#include "simnic/run/join.h"

struct runner {
    char **command;
    struct membership membership;
    struct strangers strangers;
    /* The signal mask and SIGCHLD's action as we got them. The command gets the same. */
    sigset_t mask_before;
    struct sigaction child_before;
    int signals; /* a signalfd for all signals that can be passed on, and SIGCHLD */
};

/* Blocks the signals and opens the signalfd. Returns 0 or -errno. */
int signals_take(struct runner *runner);
/* Undoes it, for the command. */
void signals_give_back(const struct runner *runner);

enum word_kind {
    WORD_SIGNAL,     /* outer to inner: I was sent this signal */
    WORD_SIGNAL_TOO, /* inner to outer: did you get this signal? Back: if so, I have told of it */
    WORD_RESUMED,    /* outer to inner: I was stopped and go on */
    WORD_STOPPED,    /* inner to outer: the command was stopped by this signal */
    WORD_ENDED,      /* inner to outer: the command ended, with this wait status */
};

struct word {
    enum word_kind kind;
    int value;
};

/* A word that cannot be sent is lost: the other process is dead then, which is noticed
 * elsewhere. */
void word_send(int channel, enum word_kind kind, int value);
/* Returns 1 if there was a word, 0 if there is none now, -1 if the other process is gone. */
int word_receive(int channel, struct word *word);

/* Reads the next signal. Returns false if there is none. */
bool signal_next(const struct runner *runner, struct signalfd_siginfo *info);
/* Returns whether the kernel sent the signal, as for a terminal: then the whole process group got
 * it. */
bool signal_is_of_group(const struct signalfd_siginfo *info);

/* The exit status that a shell gives to a wait status. */
int status_of(int wait_status);

/* Starts the command and waits for it. Returns the exit status. The session is left. */
int outer_run(struct runner *runner);
/* The inner process's main. Returns when all has ended and the session is left. */
void inner_run(struct runner *runner, int channel, pid_t outer);

#endif

/* signals.h: for programs whose tests send signals, set timers, or wait for children. A process inherits which signals
 * are blocked and ignored: started by nohup, by a service or by a thread that blocks all of them, it would wait for what
 * never comes, and waitpid, system and pclose find no child where SIGCHLD is ignored. */
#ifndef TESTS_SIGNALS_H
#define TESTS_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* As a shell in a terminal starts a program. Call it first in main. */
static inline void signals_as_usual(void)
{
    static const int used[] = {SIGINT, SIGTERM, SIGALRM, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
        signal(used[i], SIG_DFL);
        sigaddset(&set, used[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

#endif

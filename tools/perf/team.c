/* team.c: threads that do the same, each with a context of its own. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "perf.h"

struct member {
    pthread_t thread;
    void (*run)(void *member);
    void *argument;
    const struct cpus *cpus;
    uint32_t turn;
};

static void *run_member(void *argument)
{
    const struct member *member = argument;
    cpus_pin(member->cpus, member->turn);
    member->run(member->argument);
    return NULL;
}

bool team_run(void *members, size_t member_bytes, uint32_t count, void (*run)(void *member),
              const struct cpus *cpus)
{
    struct member team[PERF_THREADS_MAX];
    uint32_t started = 1;
    int os_error = 0;
    for (; started < count && os_error == 0; started += os_error == 0) {
        struct member *member = &team[started];
        *member = (struct member){.run = run,
                                  .argument = (uint8_t *)members + started * member_bytes,
                                  .cpus = cpus,
                                  .turn = started};
        os_error = pthread_create(&member->thread, NULL, run_member, member);
    }
    if (os_error) {
        perf_failed("cannot start a thread", strerror(os_error));
        perf_stop = 1;
    } else {
        run(members);
    }
    for (uint32_t i = 1; i < started; i++) {
        pthread_join(team[i].thread, NULL);
    }
    return os_error == 0;
}

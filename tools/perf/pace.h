/* pace.h: an open loop: call n is due at its own time, however long those before it take, and its latency counts from then. So a server that
 * stalls is seen by all calls that were due meanwhile, and not by the few alone that were open.
 */
#ifndef TOOLS_PERF_PACE_H
#define TOOLS_PERF_PACE_H

#include <stdint.h>

struct pace_report {
    uint64_t
        held; /* calls that could not be sent when they were due: all of the depth was open, or there was no room */
    uint64_t unsent;       /* of these, those that never were */
    uint64_t late_most_ns; /* that a call was sent after it was due */
};

struct pace {
    double interval_ns; /* between two calls of all threads together; 0 = there is no pace */
    uint32_t threads;   /* whose calls are due in turns */
    uint32_t thread;
    uint64_t begun_ns;
    uint64_t calls; /* that will be due in all */
    uint64_t seen;  /* calls that were looked at when they were due */
    struct pace_report report;
};

/* `calls`: of this thread. */
void pace_begin(struct pace *pace, uint64_t now_ns, uint64_t calls);
/* Returns when a call is due, from 0 on. */
uint64_t pace_due_ns(const struct pace *pace, uint64_t call);
/* Returns how many calls have been due so far. */
uint64_t pace_count(const struct pace *pace, uint64_t now_ns);
/* Some of the calls that are due have been sent, up to number `sent`, the first of them number `first`. */
void pace_note(struct pace *pace, uint64_t now_ns, uint64_t due, uint64_t first, uint64_t sent);
/* So many calls were sent, and no more will be. */
void pace_end(struct pace *pace, uint64_t now_ns, uint64_t sent);
/* Adds what another thread has seen. */
void pace_add(struct pace_report *sum, const struct pace_report *more);

#endif

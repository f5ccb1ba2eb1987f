/* processors.h: whether the service thread may poll, as there is a processor that no other thread
 * wants. It is judged from samples of one interval after another. There are no system calls
 * here. */
#ifndef SIMNIC_SHIM_MMIO_PROCESSORS_H
#define SIMNIC_SHIM_MMIO_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

#define PROCESSORS_INTERVAL_NS 20000000u
#define PROCESSORS_SHORTEST_PAUSE_NS 100000000u
#define PROCESSORS_LONGEST_PAUSE_NS 1600000000u

/* One interval. */
struct processors_sample {
    uint64_t interval_ns;
    uint64_t program_ns;  /* processor time of the program's threads, */
    uint64_t service_ns;  /* and of the service thread */
    uint64_t preemptions; /* of the program's threads: they wanted to go on running */
    bool polled;          /* the service thread polled all the time; else it slept at times */
};

struct processors {
    bool to_spare;
    uint32_t available;       /* processors that the service thread may use */
    uint32_t others;          /* that the session's other processes may want */
    uint32_t threads;         /* of the program that run all the time, at least one */
    uint32_t fewer_intervals; /* in a row, with less processor time than so many threads use */
    uint32_t good_intervals;  /* since there was cause to pause */
    uint64_t paused_until_ns, pause_ns;
    uint64_t next_probe_ns, probe_gap_ns;
};

void processors_init(struct processors *processors);

/* Takes note of an interval that ends now. */
void processors_take(struct processors *processors, const struct processors_sample *sample,
                     uint64_t now_ns);

/* Judges anew. Returns to_spare. */
bool processors_judge(struct processors *processors, uint64_t now_ns);

#endif

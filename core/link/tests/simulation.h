/* simulation.h: what the simulations of all services share: a world on the in-memory NIC that is
 * determined by a seed, distinguishable payloads, episodes, the command line, and TAP output.
 *
 *   NAME [--seed S] [--steps N] [--episodes N] [--episode-steps N] [--one] [--verbose]
 *
 * Without --seed, it runs ten fixed seeds. If an episode fails, or ends the program, what replays it
 * alone is printed: `--seed EPISODE --one`, with the same episode-steps.
 */
#ifndef CORE_LINK_TESTS_SIMULATION_H
#define CORE_LINK_TESTS_SIMULATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "nic/memory/memory.h"
#include "nic/memory/random.h"

/* Begins a service's struct of its world. */
struct simulation {
    uint64_t seed;
    uint64_t step;
    bool failed;
    bool verbose;
    char failure[512];
    struct random_generator random;
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
};

/* Begins an episode: all but `verbose` anew. */
void simulation_open(struct simulation *simulation, uint64_t seed);
/* Ends it: nothing may be left behind on the fabric. */
void simulation_close(struct simulation *simulation);

/* Notes the first failure. */
void simulation_fail(struct simulation *simulation, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A completion of room has come, which is only given after an op was refused (*due). */
void simulation_room(struct simulation *simulation, bool *due);
/* Tells, if --verbose. */
void simulation_tell(const struct simulation *simulation, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a payload is filled with: a key for each side, kind of payload, and number. */
uint64_t simulation_key(const struct simulation *simulation, uint32_t side, uint32_t kind,
                        uint64_t number);
void simulation_fill(uint8_t *bytes, uint32_t count, uint64_t key);
bool simulation_matches(const uint8_t *bytes, uint32_t count, uint64_t key);

/* ---- What each simulation defines ------------------------------------------------------------ */

/* Makes the world of an episode; returns how many steps it is to take, `steps` at the most. */
uint64_t sim_open(struct simulation *simulation, uint64_t seed, uint64_t steps);
void sim_act(struct simulation *simulation);
/* What must hold after each step, and once all is over. */
void sim_check_fabric(struct simulation *simulation);
/* Lets everything that is pending come to its end. */
void sim_drain(struct simulation *simulation);
/* What must hold then. */
void sim_check_books(struct simulation *simulation);
/* Not called for an episode that failed. Adds to the counts. */
void sim_close(struct simulation *simulation);
/* Prints what a stuck connection looks like, as remarks of TAP. */
void sim_describe(const struct simulation *simulation);

/* ---- The program ----------------------------------------------------------------------------- */

struct simulation_program {
    const char *name;
    const char *const *count_names; /* ends with NULL */
    uint64_t *counts;               /* for the report: set to 0 here, never by an episode */
};

/* The body of main; returns its status. */
int simulation_main(int argc, char **argv, const struct simulation_program *program,
                    struct simulation *simulation);

#endif

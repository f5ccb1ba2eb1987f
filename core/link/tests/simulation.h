/* simulation.h: what simulations of a service have in common: a world over the in-memory NIC of which
 * everything follows from a seed, payloads that can be told apart, episodes, the command line, TAP.
 *
 *   NAME [--seed S] [--steps N] [--episodes N] [--episode-steps N] [--one] [--verbose]
 *
 * Without --seed it takes ten fixed ones. The seed of an episode is printed when it fails, and replays it
 * alone (--one).
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
/* Tells, if --verbose. */
void simulation_tell(const struct simulation *simulation, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a payload is filled with: a key for each side, kind of payload, and number. */
uint64_t simulation_key(const struct simulation *simulation, uint32_t side, uint32_t kind,
                        uint64_t number);
void simulation_fill(uint8_t *bytes, uint32_t count, uint64_t key);
bool simulation_matches(const uint8_t *bytes, uint32_t count, uint64_t key);

struct simulation_program {
    const char *name;
    /* One episode; returns the steps taken. Adds to the counts. */
    uint64_t (*episode)(struct simulation *simulation, uint64_t seed, uint64_t steps);
    /* Prints what a stuck connection looks like, as remarks of TAP. */
    void (*describe)(const struct simulation *simulation);
    const char *const *count_names; /* ends with NULL */
    uint64_t *counts;               /* for the report: set to 0 here, never by an episode */
};

int simulation_main(int argc, char **argv, const struct simulation_program *program,
                    struct simulation *simulation);

#endif

/* simulation.c: see simulation.h. */
#include "simulation.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

/* ---- The world ------------------------------------------------------------------------------- */

void simulation_open(struct simulation *simulation, uint64_t seed)
{
    *simulation =
        (struct simulation){.seed = seed, .verbose = simulation->verbose, .clock_ns = 1000000};
    random_seed(&simulation->random, seed);
    simulation->fabric = memory_fabric_create(random_next(&simulation->random));
}

void simulation_close(struct simulation *simulation)
{
    if (memory_fabric_counters(simulation->fabric)->left_open > 0) {
        simulation_fail(simulation, "queue pairs or registrations were left behind");
    }
    memory_fabric_destroy(simulation->fabric);
}

void simulation_fail(struct simulation *simulation, const char *format, ...)
{
    if (simulation->failed) {
        return;
    }
    va_list arguments;
    simulation->failed = true;
    va_start(arguments, format);
    vsnprintf(simulation->failure, sizeof(simulation->failure), format, arguments);
    va_end(arguments);
}

void simulation_tell(const struct simulation *simulation, const char *format, ...)
{
    if (!simulation->verbose) {
        return;
    }
    va_list arguments;
    printf("# %8" PRIu64 " ", simulation->step);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void simulation_room(struct simulation *simulation, bool *due)
{
    if (!*due) {
        simulation_fail(simulation, "room, though nothing was refused");
    }
    *due = false;
}

/* ---- Payloads -------------------------------------------------------------------------------- */

uint64_t simulation_key(const struct simulation *simulation, uint32_t side, uint32_t kind,
                        uint64_t number)
{
    uint64_t state = simulation->seed ^ (uint64_t)side << 48 ^ (uint64_t)kind << 40 ^ number;
    return random_split(&state);
}

static uint64_t word_of(uint64_t key, uint32_t index)
{
    return (key ^ index) * UINT64_C(0x9e3779b97f4a7c15);
}

void simulation_fill(uint8_t *bytes, uint32_t count, uint64_t key)
{
    for (uint32_t i = 0; i < count; i += 8) {
        uint64_t word = word_of(key, i);
        memcpy(bytes + i, &word, minimum(8, count - i));
    }
}

bool simulation_matches(const uint8_t *bytes, uint32_t count, uint64_t key)
{
    for (uint32_t i = 0; i < count; i += 8) {
        uint64_t word = word_of(key, i);
        if (memcmp(bytes + i, &word, minimum(8, count - i)) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- Command line ---------------------------------------------------------------------------- */

struct plan {
    uint64_t seed;
    uint64_t steps;
    uint64_t episode_steps;
    uint64_t episodes; /* at the most */
    bool one;
};

/* ---- Replaying ------------------------------------------------------------------------------- */

static char replay[256]; /* what replays the episode of the moment */

static void note_replay(const struct simulation_program *program, uint64_t episode_seed,
                        uint64_t episode_steps)
{
    snprintf(replay, sizeof(replay),
             "# replay: %s --seed %" PRIu64 " --one --episode-steps %" PRIu64 "\n", program->name,
             episode_seed, episode_steps);
}

/* An engine that dies takes along what is not written yet. */
static void tell_replay(void)
{
    ssize_t written = write(STDERR_FILENO, replay, strlen(replay));
    (void)written;
}

static void on_signal(int number)
{
    tell_replay();
    signal(number, SIG_DFL);
    raise(number);
}

/* Of the sanitizers, if they are there. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* A sanitizer tells more than its signals; but it does not know of assertions, nor of an episode that
 * never ends. */
static void tell_replay_at_death(void)
{
    static const int numbers[] = {SIGABRT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    size_t count = sizeof(numbers) / sizeof(numbers[0]);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(tell_replay);
        count = 2;
    }
    for (size_t i = 0; i < count; i++) {
        signal(numbers[i], on_signal);
    }
}

/* ---- Episodes -------------------------------------------------------------------------------- */

static void report_failure(const struct simulation *simulation, const struct plan *plan,
                           uint32_t number)
{
    printf("not ok %u - simulation, seed %" PRIu64 "\n", number, plan->seed);
    printf("# step %" PRIu64 ": %s\n", simulation->step, simulation->failure);
    printf("%s", replay);
    sim_describe(simulation);
}

/* Returns the steps taken. */
static uint64_t run_episode(struct simulation *simulation, uint64_t seed, uint64_t steps_max)
{
    uint64_t steps = sim_open(simulation, seed, steps_max);
    for (; simulation->step < steps && !simulation->failed; simulation->step++) {
        sim_act(simulation);
        sim_check_fabric(simulation);
    }
    uint64_t taken = simulation->step;
    if (!simulation->failed) {
        sim_drain(simulation);
        sim_check_fabric(simulation);
        sim_check_books(simulation);
    }
    if (!simulation->failed) {
        sim_close(simulation);
    }
    return taken;
}

static bool run_batch(const struct simulation_program *program, struct simulation *simulation,
                      const struct plan *plan, uint32_t number)
{
    uint64_t taken = 0, episodes = 0, state = plan->seed;
    for (uint32_t i = 0; program->count_names[i]; i++) {
        program->counts[i] = 0;
    }
    while (taken < plan->steps && episodes < (plan->one ? 1 : plan->episodes)) {
        uint64_t episode_seed = plan->one ? plan->seed : random_split(&state);
        note_replay(program, episode_seed, plan->episode_steps);
        taken += run_episode(simulation, episode_seed, plan->episode_steps);
        episodes++;
        if (simulation->failed) {
            report_failure(simulation, plan, number);
            return false;
        }
    }
    printf("ok %u - seed %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " episodes\n#", number,
           plan->seed, taken, episodes);
    for (uint32_t i = 0; program->count_names[i]; i++) {
        printf("%s %" PRIu64 " %s", i > 0 ? "," : "", program->counts[i], program->count_names[i]);
    }
    printf("\n");
    return true;
}

int simulation_main(int argc, char **argv, const struct simulation_program *program,
                    struct simulation *simulation)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"episode-steps", required_argument, NULL, 'e'},
                                            {"episodes", required_argument, NULL, 'p'},
                                            {"one", no_argument, NULL, '1'},
                                            {"verbose", no_argument, NULL, 'v'},
                                            {0}};
    struct plan plan = {.seed = 1, .steps = 1000000, .episode_steps = 5000, .episodes = UINT64_MAX};
    bool seed_given = false;
    int option;
    while ((option = getopt_long(argc, argv, "s:n:e:p:1v", options, NULL)) != -1) {
        switch (option) {
        case 's':
            plan.seed = strtoull(optarg, NULL, 0);
            seed_given = true;
            break;
        case 'n':
            plan.steps = strtoull(optarg, NULL, 0);
            break;
        case 'e':
            plan.episode_steps = strtoull(optarg, NULL, 0);
            break;
        case 'p':
            plan.episodes = strtoull(optarg, NULL, 0);
            break;
        case '1':
            plan.one = true;
            break;
        case 'v':
            simulation->verbose = true;
            break;
        default:
            return 2;
        }
    }
    /* Several seeds, so that one that is replayed is never far from its beginning. */
    uint32_t batches = seed_given ? 1 : 10;
    plan.steps /= batches;
    tell_replay_at_death();
    setvbuf(stdout, NULL, _IOLBF, 0); /* what --verbose tells is out when the engine dies */
    bool good = true;
    printf("1..%u\n", batches);
    for (uint32_t i = 0; i < batches; i++) {
        good &= run_batch(program, simulation, &plan, i + 1);
        plan.seed++;
        fflush(stdout);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* simulation_test.c: what the simulations share keeps its word: whatever an episode dies of, what is
 * printed replays it to the same step.
 *
 * The episodes here do nothing but choose; the world's hidden fault is chosen like all else.
 */
#include "simulation.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "leave_out.h"

#define OUTPUT_BYTES 8192
#define WORDS_MAX 16

/* ---- A service that dies sooner or later ----------------------------------------------------- */

static enum { FAILS, FAILS_WHEN_DRAINED, ABORTS, CRASHES, NEVER_ENDS } way;

struct sim {
    struct simulation base;
    uint64_t sum;
};

/* Tells which episode and step it was, and what had been chosen. */
static void die(struct sim *sim)
{
    fprintf(stderr, "died at %llu of %llu\n", (unsigned long long)sim->sum,
            (unsigned long long)sim->base.step);
    switch (way) {
    case ABORTS:
        abort();
    case CRASHES:
        raise(SIGSEGV);
        break;
    case NEVER_ENDS:
        kill(getpid(), SIGTERM); /* who runs tests loses patience */
        break;
    default:
        simulation_fail(&sim->base, "the sum is %llu", (unsigned long long)sim->sum);
    }
}

uint64_t sim_open(struct simulation *base, uint64_t seed, uint64_t steps)
{
    struct sim *sim = (struct sim *)base;
    simulation_open(base, seed);
    sim->sum = 0;
    return steps;
}

void sim_act(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    sim->sum += random_below(&base->random, 1000);
    if (way != FAILS_WHEN_DRAINED && random_below(&base->random, 1000) == 0) {
        die(sim);
    }
}

void sim_drain(struct simulation *base)
{
    if (way == FAILS_WHEN_DRAINED && random_below(&base->random, 10) == 0) {
        die((struct sim *)base);
    }
}

void sim_close(struct simulation *base)
{
    simulation_close(base);
}

void sim_check_fabric(struct simulation *base)
{
    (void)base;
}

void sim_check_books(struct simulation *base)
{
    (void)base;
}

void sim_describe(const struct simulation *base)
{
    (void)base;
}

/* ---- Running it ------------------------------------------------------------------------------ */

/* In a process of its own; `output` has all that it prints. Returns false if it ended well. */
static bool run(char **words, char *output)
{
    int pipes[2];
    size_t bytes = 0;
    int status;
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct sim sim;
        static const char *const names[] = {NULL};
        const struct simulation_program program = {.name = "simulation_test", .count_names = names};
        const struct rlimit no_core = {0};
        int count = 0;
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        while (words[count]) {
            count++;
        }
        status = simulation_main(count, words, &program, &sim.base);
        fflush(NULL);
        _exit(status);
    }
    close(pipes[1]);
    for (ssize_t got = 1; got > 0; bytes += (size_t)got) {
        got = read(pipes[0], output + bytes, OUTPUT_BYTES - 1 - bytes);
        assert_true(got >= 0);
    }
    output[bytes] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* From there to the end of the line; the caller frees it. */
static char *line_of(const char *output, const char *start)
{
    const char *found = strstr(output, start);
    if (!found) {
        fail_msg("no \"%s\" in:\n%s", start, output);
        return NULL;
    }
    return strndup(found, strcspn(found, "\n"));
}

static void expect_replay(void)
{
    char first[OUTPUT_BYTES], second[OUTPUT_BYTES];
    char *words[] = {"simulation_test", "--seed", "77", "--episode-steps", "300", NULL};
    assert_true(run(words, first));
    char *replay = line_of(first, "# replay: "), *died = line_of(first, "died at ");
    char *again[WORDS_MAX] = {NULL}, *rest = NULL;
    uint32_t count = 0;
    for (char *word = strtok_r(replay + strlen("# replay: "), " ", &rest);
         word && count + 1 < WORDS_MAX; word = strtok_r(NULL, " ", &rest)) {
        again[count++] = word;
    }
    assert_true(run(again, second));
    char *died_again = line_of(second, "died at ");
    assert_string_equal(died, died_again);
    /* At once: an episode from the middle of a run is the first of its replay. */
    assert_null(strstr(second, "\nok "));
    free(replay);
    free(died);
    free(died_again);
}

static void an_episode_that_fails_is_replayed(void **state)
{
    (void)state;
    way = FAILS;
    expect_replay();
}

static void one_that_fails_in_its_end_is_replayed(void **state)
{
    (void)state;
    way = FAILS_WHEN_DRAINED;
    expect_replay();
}

static void one_that_aborts_is_replayed(void **state)
{
    (void)state;
    way = ABORTS;
    expect_replay();
}

static void one_that_crashes_is_replayed(void **state)
{
    (void)state;
    way = CRASHES;
    expect_replay();
}

static void one_that_is_ended_by_force_is_replayed(void **state)
{
    (void)state;
    way = NEVER_ENDS;
    expect_replay();
}

/* Of the sanitizers, if they are there. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(an_episode_that_fails_is_replayed),
        cmocka_unit_test(one_that_fails_in_its_end_is_replayed),
        cmocka_unit_test(one_that_aborts_is_replayed),
        cmocka_unit_test(one_that_crashes_is_replayed),
        cmocka_unit_test(one_that_is_ended_by_force_is_replayed),
    };
    if (__sanitizer_set_death_callback) {
        LEAVE_OUT(tests, one_that_crashes_is_replayed, "a sanitizer has handlers of its own");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* processors_test.c: when the service thread polls, on a machine and with a clock that are made up:
 * how much the threads get of the processors follows from who wants to run, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simnic/shim/mmio/processors.h"

#define MS 1000000u
#define SECOND_MS 1000u

struct machine {
    uint32_t processors;
    uint32_t program_percent;   /* of a processor, that the program's threads want */
    uint32_t strangers;         /* threads of others that spin */
    uint32_t other_preemptions; /* in an interval, for reasons of their own */
    bool bursts; /* the service thread sleeps between, as others keep the program from going on */
    bool service_has_one; /* while it polls; else all share all */
};

struct world {
    struct machine machine;
    struct processors processors;
    uint64_t now_ns;
    uint64_t polled_ms, silent_ms; /* since the last forget() */
    uint32_t changes;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the threads get of an interval. */
static struct processors_sample sample_of(const struct machine *machine, bool polls)
{
    uint64_t ns = PROCESSORS_INTERVAL_NS;
    struct processors_sample sample = {.interval_ns = ns, .polled = polls};
    uint64_t all = machine->processors * 100, program = machine->program_percent;
    uint64_t service = polls ? 100 : 0, strangers = machine->strangers * 100;
    bool apart = polls && machine->service_has_one;
    uint64_t left = apart ? all - 100 : all;
    uint64_t wanted = program + strangers + (apart ? 0 : service);
    uint64_t granted = least(wanted, left);
    sample.program_ns = ns * program * granted / wanted / 100;
    sample.service_ns = apart ? ns : ns * service * granted / wanted / 100;
    sample.polled = polls && !machine->bursts;
    sample.preemptions = machine->other_preemptions + (wanted > left ? 6 : 0);
    return sample;
}

static void forget(struct world *world)
{
    world->polled_ms = world->silent_ms = world->changes = 0;
}

static void pass(struct world *world, uint32_t ms)
{
    for (uint32_t at = 0; at < ms; at += PROCESSORS_INTERVAL_NS / MS) {
        bool polls = world->processors.to_spare;
        struct processors_sample sample = sample_of(&world->machine, polls);
        *(polls ? &world->polled_ms : &world->silent_ms) += PROCESSORS_INTERVAL_NS / MS;
        world->now_ns += PROCESSORS_INTERVAL_NS;
        processors_take(&world->processors, &sample, world->now_ns);
        world->changes += processors_judge(&world->processors, world->now_ns) != polls;
    }
}

static struct world world_of(struct machine machine)
{
    struct world world = {.machine = machine, .now_ns = 1000};
    processors_init(&world.processors);
    world.processors.available = machine.processors;
    processors_judge(&world.processors, world.now_ns);
    return world;
}

static void test_one_thread_spins(void **state)
{
    (void)state;
    struct world world = world_of((struct machine){.processors = 2, .program_percent = 100});
    pass(&world, 10 * SECOND_MS);
    assert_int_equal(world.silent_ms, 0);
    /* A little work beside it is no second thread. */
    world.machine.program_percent = 115;
    world.machine.service_has_one = false;
    world.machine.processors = 3;
    pass(&world, 10 * SECOND_MS);
    assert_int_equal(world.silent_ms, 0);
}

static void test_two_threads_spin(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct world world = world_of(
            (struct machine){.processors = 2, .program_percent = 200, .service_has_one = apart});
        pass(&world, 20);
        forget(&world);
        pass(&world, 20 * SECOND_MS);
        assert_int_equal(world.polled_ms, 0);
        /* One stops, and starts again. */
        world.machine.program_percent = 100;
        pass(&world, 120);
        forget(&world);
        pass(&world, 5 * SECOND_MS);
        assert_int_equal(world.silent_ms, 0);
        world.machine.program_percent = 200;
        pass(&world, 20);
        forget(&world);
        pass(&world, 5 * SECOND_MS);
        assert_int_equal(world.polled_ms, 0);
    }
}

/* Now one, now two, faster than can be followed: that is two. */
static void test_a_thread_comes_and_goes(void **state)
{
    (void)state;
    struct world world = world_of((struct machine){.processors = 2});
    for (int i = 0; i < 100; i++) {
        world.machine.program_percent = i % 2 ? 200 : 100;
        pass(&world, 60);
    }
    assert_true(world.changes <= 2);
}

static void test_many_processors(void **state)
{
    (void)state;
    struct world world = world_of((struct machine){.processors = 8, .program_percent = 300});
    pass(&world, SECOND_MS);
    assert_int_equal(world.silent_ms, 0);
    world.processors.others = 4; /* 3 and 1 of ours, 4 of theirs */
    pass(&world, SECOND_MS);
    assert_int_equal(world.silent_ms, 0);
    world.processors.others = 5;
    pass(&world, 20);
    forget(&world);
    pass(&world, SECOND_MS);
    assert_int_equal(world.polled_ms, 0);
}

/* Load from elsewhere takes the fast path away while it lasts. */
static void test_strangers(void **state)
{
    (void)state;
    for (int bursts = 0; bursts < 2; bursts++) {
        struct world world = world_of((struct machine){
            .processors = 2, .program_percent = 100, .strangers = 2, .bursts = bursts});
        pass(&world, 4 * SECOND_MS);
        forget(&world);
        pass(&world, 20 * SECOND_MS);
        assert_true(world.polled_ms * 50 < world.silent_ms);
        world.machine.strangers = 0;
        pass(&world, PROCESSORS_LONGEST_PAUSE_NS / MS + 20);
        forget(&world);
        pass(&world, 5 * SECOND_MS);
        assert_int_equal(world.silent_ms, 0);
        /* After a good while, the first pause is a short one again. */
        world.machine.strangers = 2;
        pass(&world, 40);
        world.machine.strangers = 0;
        pass(&world, 2 * PROCESSORS_SHORTEST_PAUSE_NS / MS);
        forget(&world);
        pass(&world, SECOND_MS);
        assert_int_equal(world.silent_ms, 0);
    }
}

/* A thread that is switched away from often, for a moment each, keeps its fast path. */
static void test_preemptions(void **state)
{
    (void)state;
    struct world world = world_of(
        (struct machine){.processors = 2, .program_percent = 100, .other_preemptions = 10});
    pass(&world, 4 * SECOND_MS);
    forget(&world);
    pass(&world, 20 * SECOND_MS);
    assert_true(world.silent_ms * 20 < world.polled_ms);
}

/* A container's limit: half of what there seems to be. */
static void test_limit(void **state)
{
    (void)state;
    struct world world = world_of((struct machine){.processors = 1, .program_percent = 100});
    world.processors.available = 2;
    processors_judge(&world.processors, world.now_ns);
    pass(&world, 4 * SECOND_MS);
    forget(&world);
    pass(&world, 20 * SECOND_MS);
    assert_true(world.polled_ms * 50 < world.silent_ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread_spins),
        cmocka_unit_test(test_two_threads_spin),
        cmocka_unit_test(test_a_thread_comes_and_goes),
        cmocka_unit_test(test_many_processors),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_preemptions),
        cmocka_unit_test(test_limit),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

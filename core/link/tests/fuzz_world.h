/* fuzz_world.h: what the fuzz targets of calls and of channels share: a world in which a victim has
 * two connections, one to an honest peer and one to a bad one. Each target has a world of its own,
 * with engines of its service.
 */
#ifndef CORE_LINK_TESTS_FUZZ_WORLD_H
#define CORE_LINK_TESTS_FUZZ_WORLD_H

#include "link/tests/fuzz.h"
#include "link/tests/late_cm.h"
#include "nic/memory/memory.h"

#define POLL_MAX 64u
#define STEPS_MAX 400u

enum who {
    VICTIM,
    BAD,
    HONEST,
    ENGINES,
};

/* ---- The target has these -------------------------------------------------------------------- */

/* Makes what an input is about: a new connection to the bad peer. */
void world_open(struct fuzz_input *input);
/* Ends it, and checks that everything came to its end and that nothing is left. */
void world_close(void);
void world_poll(enum who who, uint32_t capacity);
void world_progress(enum who who);
/* What the victim does off the poll is done: some of it, or all. Nothing if the input is not late. */
void world_late(bool all);
/* A call there and back, or a message, over the honest peer's connection. */
void world_honest_round(bool from_victim);

/* ---- The same in both ------------------------------------------------------------------------ */

/* An input: a world, and what happens in it step by step. */
static inline int world_run(const uint8_t *data, size_t size,
                            void (*step)(struct fuzz_input *input))
{
    struct fuzz_input input = {data, size};
    world_open(&input);
    for (uint32_t i = 0; i < STEPS_MAX && input.left > 0; i++) {
        step(&input);
    }
    world_close();
    return 0;
}

/* Polls the victim and one of its peers. */
static inline void world_poll_with(enum who peer)
{
    world_poll(VICTIM, POLL_MAX);
    world_poll(peer, POLL_MAX);
}

/* The victim is late from now on, or not any more. No task may be under way. */
static inline void fuzz_set_late(struct link_group *group, struct cm *cm, bool late)
{
    fuzz_check(cm->waiting_count == 0 && !cm_pending(cm), "a task is left");
    late_cm_init(cm);
    group->cm = late ? cm : NULL;
}

static inline void fuzz_do_late(struct cm *cm, bool all)
{
    if (all) {
        late_cm_run_all(cm);
    } else if (cm->waiting_count > 0) {
        late_cm_run(cm, 0);
    }
}

/* Nobody has waited for what was late, and what it needs is there. */
static inline void fuzz_check_late(const struct link_group *group)
{
    const char *fault = group->cm ? late_cm_fault(group) : NULL;
    fuzz_check(!fault, "%s", fault);
    fuzz_check(!group->cm || !group->cm->waited, "a poll waited for a task");
}

static inline struct memory_fabric *fuzz_fabric(void)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    memory_fabric_options(fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(fabric)->retry_steps = 20;
    memory_fabric_options(fabric)->ece[0] = memory_fabric_options(fabric)->ece[1] = 0x30000007;
    return fabric;
}

static inline void fuzz_check_fabric(const struct memory_fabric_counters *counters)
{
    fuzz_check(counters->local_errors == 0, "an engine posted what its own device refused");
    fuzz_check(counters->send_overflows == 0 && counters->receive_overflows == 0,
               "a completion queue overflowed");
}

#endif

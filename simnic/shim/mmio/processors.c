/* processors.c: whether there is a processor on which the service thread may poll.
 *
 * The program's processor time says how many of its threads spin, but only while there is a
 * processor for each. Two threads that share a processor, because the service thread has the other
 * one, look like one thread. But they take turns, which shows as preemptions. So if there are
 * preemptions, the service thread stops polling for a moment, and sees what the threads use without
 * it.
 *
 * If the program is preempted even then, and gets less than a processor, others want the
 * processors, and polling would only add to their load. The same is true if the service thread has
 * to wait while it polls, as it does if the container's processor time is limited. Then it pauses
 * for longer and longer.
 *
 * A higher number of threads is believed at once, a lower one only after some intervals. */
#include "simnic/shim/mmio/processors.h"

#define FEWER_INTERVALS 5u /* until fewer threads are believed */
#define GOOD_INTERVALS 10u /* until a pause is short again */
#define TURNS 3u           /* preemptions in an interval, of threads that share a processor */
#define PROBE_NS (2 * PROCESSORS_INTERVAL_NS)

void processors_init(struct processors *processors)
{
    *processors = (struct processors){.to_spare = true,
                                      .available = 1,
                                      .threads = 1,
                                      .pause_ns = PROCESSORS_SHORTEST_PAUSE_NS,
                                      .probe_gap_ns = PROCESSORS_SHORTEST_PAUSE_NS};
}

/* A quarter of a processor more than n threads can use means one thread more. A tenth more does
 * not. */
static void count_threads(struct processors *processors, const struct processors_sample *sample)
{
    uint64_t percent = sample->program_ns * 100 / sample->interval_ns;
    uint32_t at_least = (uint32_t)(percent + 75) / 100, at_most = (uint32_t)(percent + 90) / 100;
    at_least = at_least ? at_least : 1;
    at_most = at_most ? at_most : 1;
    if (at_least > processors->threads) {
        processors->threads = at_least;
    }
    processors->fewer_intervals =
        at_most < processors->threads ? processors->fewer_intervals + 1 : 0;
    if (processors->fewer_intervals < FEWER_INTERVALS) {
        return;
    }
    processors->threads = at_most;
    processors->fewer_intervals = 0;
}

static uint64_t longer(uint64_t ns)
{
    return 2 * ns < PROCESSORS_LONGEST_PAUSE_NS ? 2 * ns : PROCESSORS_LONGEST_PAUSE_NS;
}

static void pause_until(struct processors *processors, uint64_t ns)
{
    if (ns > processors->paused_until_ns) {
        processors->paused_until_ns = ns;
    }
    processors->good_intervals = 0;
}

/* An interval in which the service thread did not poll. */
static void take_silent(struct processors *processors, const struct processors_sample *sample,
                        uint64_t now_ns)
{
    bool hindered =
        sample->preemptions >= TURNS && sample->program_ns < sample->interval_ns / 10 * 9;
    if (hindered) {
        pause_until(processors, now_ns + PROCESSORS_SHORTEST_PAUSE_NS);
    }
    if (hindered || processors->threads > 1) {
        processors->probe_gap_ns = PROCESSORS_SHORTEST_PAUSE_NS; /* it was right to stop */
    }
}

/* An interval in which it might poll. */
static void take_spare(struct processors *processors, const struct processors_sample *sample,
                       uint64_t now_ns)
{
    uint64_t waited_ns = sample->polled && sample->interval_ns > sample->service_ns
                             ? sample->interval_ns - sample->service_ns
                             : 0;
    bool takes_turns = sample->preemptions >= TURNS;
    if (waited_ns >= sample->interval_ns / 4) {
        pause_until(processors, now_ns + processors->pause_ns);
        processors->pause_ns = longer(processors->pause_ns);
    } else if (takes_turns && now_ns >= processors->next_probe_ns) {
        pause_until(processors, now_ns + PROBE_NS);
        processors->next_probe_ns = now_ns + PROBE_NS + processors->probe_gap_ns;
        processors->probe_gap_ns = longer(processors->probe_gap_ns);
    } else if (++processors->good_intervals >= GOOD_INTERVALS) {
        processors->pause_ns = PROCESSORS_SHORTEST_PAUSE_NS;
        if (!takes_turns) {
            processors->probe_gap_ns = PROCESSORS_SHORTEST_PAUSE_NS;
        }
        processors->good_intervals = 0;
    }
}

void processors_take(struct processors *processors, const struct processors_sample *sample,
                     uint64_t now_ns)
{
    count_threads(processors, sample);
    if (processors->to_spare) {
        take_spare(processors, sample, now_ns);
    } else {
        take_silent(processors, sample, now_ns);
    }
}

bool processors_judge(struct processors *processors, uint64_t now_ns)
{
    processors->to_spare = now_ns >= processors->paused_until_ns &&
                           processors->threads + 1 + processors->others <= processors->available;
    return processors->to_spare;
}

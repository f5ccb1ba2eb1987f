/* count_rounds.c: does a given number of rounds of one part, to be counted by callgrind, or by
 * the clock.
 *
 *   count_rounds ENDPOINTS ROUNDS (rpc|idle|parts)
 *
 * rpc: calls of 32 bytes, 256 deep, on one of ENDPOINTS connections. idle: polls that find
 * nothing. Prints JSON with times. Under callgrind, only the functions engine_pair_* are counted
 * (engine_bench.py asks for them with --toggle-collect). parts: both, for callgrind, because opening
 * is what takes long there: fifty polls a round, then the rounds, and each of the two is done once
 * before, to warm up; count_rounds_part is called behind each of the four.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine_pair.h"
#include "not_inlined.h"

#define POLLS_A_ROUND 50

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint64_t run_rpc(struct engine_pair *pair, uint64_t rounds)
{
    uint32_t open = 0;
    uint64_t answered = 0;
    while (answered < rounds * BENCH_DEPTH) {
        open += engine_pair_submit(pair, BENCH_DEPTH - open);
        engine_pair_server_poll(pair);
        engine_pair_reply(pair);
        uint32_t responses = engine_pair_client_poll(pair);
        open -= responses;
        answered += responses;
    }
    return answered;
}

static void run_idle(struct engine_pair *pair, uint64_t polls)
{
    for (uint64_t i = 0; i < polls; i++) {
        engine_pair_client_poll(pair);
    }
}

/* A part ends: what callgrind has counted since the last one is written (--dump-after). */
NOT_INLINED static void count_rounds_part(void)
{
    __asm__ volatile("" ::: "memory");
}

static void run_parts(struct engine_pair *pair, uint64_t rounds)
{
    for (uint32_t i = 0; i < 2; i++) {
        run_idle(pair, rounds * POLLS_A_ROUND);
        count_rounds_part();
    }
    for (uint32_t i = 0; i < 2; i++) {
        run_rpc(pair, rounds);
        count_rounds_part();
    }
}

int main(int argc, char **argv)
{
    static struct engine_pair pair;
    if (argc != 4) {
        fprintf(stderr, "usage: count_rounds ENDPOINTS ROUNDS (rpc|idle|parts)\n");
        return 2;
    }
    uint32_t endpoints = (uint32_t)atoi(argv[1]);
    uint64_t rounds = strtoull(argv[2], NULL, 0);
    engine_pair_open(&pair, endpoints);
    if (strcmp(argv[3], "parts") == 0) {
        run_parts(&pair, rounds);
    } else if (strcmp(argv[3], "rpc") == 0) {
        run_rpc(&pair, 20);
        crpc_stats before, after;
        rpc_engine_stats(pair.engine[0], &before);
        double begun = now_ns();
        uint64_t answered = run_rpc(&pair, rounds);
        double took = now_ns() - begun;
        rpc_engine_stats(pair.engine[0], &after);
        printf("{\"endpoints\": %u, \"units\": %llu, \"ns_each\": %.2f, \"messages_per_batch\": "
               "%.1f}\n",
               endpoints, (unsigned long long)answered, took / (double)answered,
               (double)(after.calls - before.calls) /
                   (double)(after.batches_sent - before.batches_sent));
    } else {
        double begun = now_ns();
        run_idle(&pair, rounds);
        printf("{\"endpoints\": %u, \"units\": %llu, \"ns_each\": %.2f}\n", endpoints,
               (unsigned long long)rounds, (now_ns() - begun) / (double)rounds);
    }
    engine_pair_close(&pair);
    return 0;
}

/* tag_exchange.c: heat that spreads along a rod, computed by several processes that exchange their borders, as programs
 * of MPI do.
 *
 *   tag_exchange RANK STEPS ADDRESS...    e.g. tag_exchange 0 500 10.99.0.1:7480 10.99.0.1:7481
 *
 * Start one for each address, with the ranks 0, 1 and so on. Each has a part of the rod. In each step it sends its first
 * and last cell to its neighbors, and receives theirs: a tag says which step and which border. Who is ahead sends
 * before its neighbor has asked; so some messages wait in software (tag_messages.h), and the others find their
 * receive in the device. At the end rank 0 receives from all others, in whatever order they come: with a mask that leaves the
 * sender out. It prints the sum of all cells, which does not change. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "tag_messages.h"

#define CELLS 100

enum { BORDER_LEFT = 1, BORDER_RIGHT, RESULT, GOODBYE };

struct result {
    double sum;
    double largest;
    uint64_t matched, stored, taken_back;
};

/* What a tag means is up to the program. */
static uint64_t tag_of(uint64_t what, uint64_t step, uint64_t from)
{
    return what << 56 | step << 16 | from;
}

struct rod {
    struct messages *messages;
    uint32_t rank, count;
    double cells[CELLS + 2]; /* with a cell of each neighbor */
    double other[CELLS + 2];
};

static void exchange(struct rod *rod, uint64_t step)
{
    const bool left = rod->rank > 0, right = rod->rank + 1 < rod->count;
    struct receive from_left = {.tag = tag_of(BORDER_RIGHT, step, rod->rank - 1),
                                .mask = UINT64_MAX,
                                .buffer = &rod->cells[0],
                                .bytes = sizeof(double)};
    struct receive from_right = {.tag = tag_of(BORDER_LEFT, step, rod->rank + 1),
                                 .mask = UINT64_MAX,
                                 .buffer = &rod->cells[CELLS + 1],
                                 .bytes = sizeof(double)};
    if (left) {
        messages_receive(rod->messages, &from_left);
        messages_send(rod->messages, rod->rank - 1, tag_of(BORDER_LEFT, step, rod->rank),
                      &rod->cells[1], sizeof(double));
    }
    if (right) {
        messages_receive(rod->messages, &from_right);
        messages_send(rod->messages, rod->rank + 1, tag_of(BORDER_RIGHT, step, rod->rank),
                      &rod->cells[CELLS], sizeof(double));
    }
    if (left) {
        messages_wait(rod->messages, &from_left);
    }
    if (right) {
        messages_wait(rod->messages, &from_right);
    }
}

/* The ends of the rod are closed: no heat leaves it. */
static void spread(struct rod *rod)
{
    if (rod->rank == 0) {
        rod->cells[0] = rod->cells[1];
    }
    if (rod->rank + 1 == rod->count) {
        rod->cells[CELLS + 1] = rod->cells[CELLS];
    }
    for (uint32_t i = 1; i <= CELLS; i++) {
        rod->other[i] =
            rod->cells[i] + (rod->cells[i - 1] - 2 * rod->cells[i] + rod->cells[i + 1]) / 4;
    }
    memcpy(rod->cells, rod->other, sizeof(rod->cells));
}

static struct result result_of(const struct rod *rod)
{
    const struct messages_counts counts = messages_counts(rod->messages);
    struct result result = {
        .matched = counts.matched, .stored = counts.stored, .taken_back = counts.taken_back};
    for (uint32_t i = 1; i <= CELLS; i++) {
        result.sum += rod->cells[i];
        result.largest = rod->cells[i] > result.largest ? rod->cells[i] : result.largest;
    }
    return result;
}

/* Rank 0 says goodbye when it has all, and nobody leaves before. Then the others leave in any order. */
static void gather(struct rod *rod)
{
    struct result all = result_of(rod);
    struct receive receive = {.tag = tag_of(GOODBYE, 0, 0), .mask = UINT64_MAX, .buffer = &all};
    if (rod->rank > 0) {
        messages_receive(rod->messages, &receive);
        messages_send(rod->messages, 0, tag_of(RESULT, 0, rod->rank), &all, sizeof(all));
        messages_need(rod->messages, 0);
        messages_wait(rod->messages, &receive);
        return;
    }
    for (uint32_t i = 1; i < rod->count; i++) {
        struct result one;
        receive = (struct receive){.tag = tag_of(RESULT, 0, 0),
                                   .mask = ~UINT64_C(0xffff),
                                   .buffer = &one,
                                   .bytes = sizeof(one)};
        messages_receive(rod->messages, &receive);
        messages_wait(rod->messages, &receive);
        all.sum += one.sum;
        all.largest = one.largest > all.largest ? one.largest : all.largest;
        all.matched += one.matched;
        all.stored += one.stored;
        all.taken_back += one.taken_back;
    }
    for (uint32_t i = 1; i < rod->count; i++) {
        messages_send(rod->messages, i, tag_of(GOODBYE, 0, 0), "", 0);
    }
    printf("sum %.6f, largest %.6f\n", all.sum, all.largest);
    fprintf(stderr,
            "%" PRIu64 " messages found their receive, %" PRIu64 " came before it, %" PRIu64
            " at the same time\n",
            all.matched, all.stored - all.taken_back, all.taken_back);
}

int main(int argc, char **argv)
{
    static struct rod rod;
    const uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    answer_options(argc, argv, "RANK STEPS ADDRESS ADDRESS...",
                   "Computes how heat spreads along a rod, together with those that listen at the "
                   "other addresses.");
    if (argc < 5) {
        fprintf(stderr, "usage: tag_exchange RANK STEPS ADDRESS ADDRESS...\n");
        return EXIT_FAILURE;
    }
    rod.rank = (uint32_t)strtoul(argv[1], NULL, 10);
    rod.count = (uint32_t)argc - 3;
    rod.messages = messages_open(rod.rank, argv + 3, rod.count);
    fprintf(stderr, "all are there\n");
    if (rod.rank == 0) {
        rod.cells[1] = 1000; /* all heat is at one end */
    }
    for (uint64_t step = 0; step < steps; step++) {
        exchange(&rod, step);
        spread(&rod);
    }
    gather(&rod);
    messages_close(rod.messages);
    return EXIT_SUCCESS;
}

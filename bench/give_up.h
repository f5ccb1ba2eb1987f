/* give_up.h: how a benchmark's program ends when something goes wrong. */
#ifndef BENCH_GIVE_UP_H
#define BENCH_GIVE_UP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <copyrpc.h>

__attribute__((noreturn)) static inline void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(EXIT_FAILURE);
}

/* Gives up if the status is an error's. */
static inline void need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        give_up(error->message);
    }
}

#endif

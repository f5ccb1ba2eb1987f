/* checks.c: the list of checks, and how they say what they saw. */
#include <stdarg.h>
#include <stdio.h>

#include "station.h"

const struct check checks[] = {
    {"doorbell", "a doorbell of 8 bytes has the device read the WQE from memory", true,
     check_doorbell, NULL},
    {"doorbell-several", "one doorbell is enough for all WQEs before it", true,
     check_doorbell_several, NULL},
    {"doorbell-shared", "queue pairs with one register lose no doorbell", true,
     check_doorbell_shared, NULL},
    {"blueflame", "a WQE of 1 to 4 blocks in the register is executed as it is there", true,
     check_blueflame, NULL},
    {"blueflame-several", "several WQEs in one push are all executed", true,
     check_blueflame_several, NULL},
    {"wqe-write", "WRITEs, also with immediate and in the WQE, are what libmlx5 makes of them",
     true, NULL, check_wqe_write},
    {"wqe-read", "READs are what libmlx5 makes of them", true, NULL, check_wqe_read},
    {"wqe-pieces", "ops with several pieces of memory are what libmlx5 makes of them", true, NULL,
     check_wqe_pieces},
    {"wqe-atomic", "atomics are what libmlx5 makes of them", true, NULL, check_wqe_atomic},
    {"wqe-window", "binds and invalidates of windows are what libmlx5 makes of them", true, NULL,
     check_wqe_window},
};
const uint32_t check_count = sizeof(checks) / sizeof(checks[0]);

static void say(struct outcome *outcome, enum verdict verdict, const char *format, va_list values)
{
    outcome->verdict = verdict;
    vsnprintf(outcome->seen, sizeof(outcome->seen), format, values);
}

void passes(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_OK, format, values);
    va_end(values);
}

bool fails(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_FAILED, format, values);
    va_end(values);
    return false;
}

bool not_here(struct outcome *outcome, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(outcome, VERDICT_NOT_HERE, format, values);
    va_end(values);
    return false;
}

void check_run(const struct check *check, const struct subject *subject, struct outcome *outcome)
{
    static struct station station;
    if (check->direct && !subject->direct) {
        not_here(outcome, "%s is used by libibverbs, not by the mlx5 driver", subject->device[0]);
    } else if (!check->body) {
        check->run(subject, outcome);
    } else {
        if (station_open(&station, subject, NULL, outcome)) {
            check->body(&station, outcome);
        }
        station_close(&station);
    }
}

/* system_calls.h: how system_calls_test.c and system_calls_device.c compare calls. */
#ifndef SIMNIC_TESTS_SYSTEM_CALLS_H
#define SIMNIC_TESTS_SYSTEM_CALLS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>

#define PAGE 4096u

/* What a child tells its parent, also if it dies. */
struct report {
    unsigned count, failures;
    char doing[128];
};
extern struct report *report;

/* The compiler knows that these calls want no NULL, so it must not see it. */
struct bad {
    const char *name;
    void *volatile pointer;
};
#define BAD_COUNT 7
#define UNMAPPED 2 /* at the start of a page that is not there, */
#define RUNS_OUT 3 /* 8 bytes before it */
extern struct bad bad[BAD_COUNT];

struct outcome {
    long value;
    int error;
};

#define OUTCOME(call)                                                                              \
    ({                                                                                             \
        errno = 0;                                                                                 \
        long value_ = (long)(call);                                                                \
        (struct outcome){value_ < 0 ? -1 : 0, value_ < 0 ? errno : 0};                             \
    })

/* Notes which call comes; counts what it gave, and says if that is wrong. */
void doing(const char *call, const char *argument);
void judge(struct outcome got, struct outcome expected);

#define COMPARE(argument, call, system_call)                                                       \
    do {                                                                                           \
        doing(#call, argument);                                                                    \
        struct outcome got_ = OUTCOME(call);                                                       \
        judge(got_, OUTCOME(system_call));                                                         \
    } while (0)

#define FAILS(argument, call, expected_error)                                                      \
    do {                                                                                           \
        doing(#call, argument);                                                                    \
        judge(OUTCOME(call), (struct outcome){-1, expected_error});                                \
    } while (0)

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        doing(#condition, "");                                                                     \
        judge((struct outcome){(condition) ? 0 : -1, 0}, (struct outcome){0, 0});                  \
    } while (0)

/* An mmap of a page of a descriptor: 0 or -1. */
long map(int fd, void *address, size_t bytes, int flags, off_t offset);

/* What only the virtual devices have: uverbs, event channels, rdma_cm. */
void test_verbs(struct ibv_context *context);
void test_events(struct ibv_context *context);
void test_connection_manager(void);
void test_still_works(struct ibv_context *context);

#endif

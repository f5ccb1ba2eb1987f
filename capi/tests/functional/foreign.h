/* foreign.h: what tests share whose peer is a program of somebody else: our side's context and memory, and
 * the program's process. All of it fails the test if something is wrong. */
#ifndef CAPI_TESTS_FUNCTIONAL_FOREIGN_H
#define CAPI_TESTS_FUNCTIONAL_FOREIGN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "copyrpc.h"

#define FOREIGN_SECONDS_MAX 60
#define FOREIGN_PORT_BYTES sizeof("65535")

/* What foreign_open has opened. */
extern crpc_context *context;
extern crpc_region region;

void foreign_need(int32_t status, const crpc_error *error);
/* Opens a context with queues on the first device, and registers the memory. */
void foreign_open(void *memory, size_t bytes, uint32_t access);
/* A teardown of cmocka: kills the program if it still runs, and closes the context. */
int foreign_close(void **state);
/* Listens for queues on any port, and tells which. */
void foreign_listen(char port[FOREIGN_PORT_BYTES]);
void foreign_submit(crpc_queue queue, const crpc_queue_op *op);

/* Leaves out the tests of `tests` whose names begin so, if a command of the shell fails: they are counted as skipped,
 * and say why, which the command has printed. */
void foreign_leave_out_unless(struct CMUnitTest *tests, size_t count, const char *names,
                              const char *command);
/* The same if there is no such program. */
void foreign_leave_out(struct CMUnitTest *tests, size_t count, const char *names,
                       const char *program, const char *package);
/* Runs them as a group of cmocka, and returns its result. */
int foreign_run(struct CMUnitTest *tests, size_t count);
/* Starts a program, whose name is the first word; the last is NULL. One at a time. */
void foreign_start(const char *const words[]);
/* Returns its exit status, 1000 if a signal ended it, or -1 while it runs. */
int foreign_ended(void);

#endif

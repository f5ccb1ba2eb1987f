/* contexts.h: several contexts in one process, one of which listens. */
#ifndef FUNCTIONAL_CONTEXTS_H
#define FUNCTIONAL_CONTEXTS_H

#include <time.h>

#include "copyrpc.h"

/* A context with these flags, on the device of the test. */
crpc_context *contexts_open(uint32_t flags);
/* A listener at a free port, with these flags. Fills its address. */
crpc_listener contexts_listen(crpc_context *context, uint32_t flags, char address[64]);
/* Submits an op without payload, which must be accepted. */
void contexts_submit(crpc_context *context, const crpc_op *op);
/* Polls until this context gives a completion of this kind, and the other one, which may be NULL, meanwhile. */
crpc_completion contexts_poll_until(crpc_context *context, crpc_context *other, uint8_t kind);

/* Calls `turn`, which polls, until the condition holds. */
#define CONTEXTS_UNTIL(condition, turn)                                                            \
    do {                                                                                           \
        const time_t until_end = time(NULL) + 60;                                                  \
        while (!(condition)) {                                                                     \
            if (time(NULL) > until_end) {                                                          \
                fail_msg("not within a minute: %s", #condition);                                   \
            }                                                                                      \
            (turn);                                                                                \
        }                                                                                          \
    } while (0)

#endif

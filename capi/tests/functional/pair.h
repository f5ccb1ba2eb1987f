/* pair.h: one process with two contexts, and connections between them that are made by blobs. Both contexts are
 * polled in turn by one thread.
 */
#ifndef FUNCTIONAL_PAIR_H
#define FUNCTIONAL_PAIR_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "copyrpc.h"

#define PAIR_OPS_MAX 8u
#define PAIRS_PATIENCE_S 60.0

/* Two ends of a connection, one in each context. Its number and the side are their user_data. */
struct pair {
    bool channel;
    uint64_t handle[2];
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes[2];
    struct {
        uint32_t connected, disconnected; /* completions */
        int32_t connected_status;
        /* Of the op with this user_data: completions, and the status of the last. */
        uint32_t ended[PAIR_OPS_MAX];
        int32_t status[PAIR_OPS_MAX];
    } seen[2];
};

extern crpc_context *pairs_contexts[2];

double pairs_seconds(void);
/* Polls both once. Returns how much came. */
uint32_t pairs_pump(void);
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        double until_end = pairs_seconds() + PAIRS_PATIENCE_S;                                     \
        while (!(condition)) {                                                                     \
            if (pairs_seconds() > until_end) {                                                     \
                fail_msg("not within a minute: %s", #condition);                                   \
            }                                                                                      \
            if (pairs_pump() == 0) {                                                               \
                sched_yield();                                                                     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* A context with nothing to do sleeps. What is still on its way may wake it a few times. */
void pairs_expect_sleep(void);

/* Opens both contexts, with both rails. */
void pairs_open(void);
/* Whatever hold.h held is over by then, and has been destroyed. */
void pairs_close(void);
/* The blobs of both ends are there. */
struct pair *pair_make(bool channel);
void pair_join(struct pair *pair, uint32_t side);
void pair_await_connected(struct pair *pair);
/* All three. */
struct pair *pair_connected(bool channel);
void pair_close_end(struct pair *pair, uint32_t side);
crpc_error pair_error(struct pair *pair, uint32_t side);
uint32_t pair_rail_state(struct pair *pair, uint32_t side, uint32_t rail);
/* Both rails are up. */
void pair_await_rails(struct pair *pair);
/* What side 0 has sent over this rail. */
uint64_t pair_rail_bytes(struct pair *pair, uint32_t rail);

/* One op of a channel. */
void pair_submit(struct pair *pair, uint32_t side, uint8_t opcode, uint32_t tag,
                 uint64_t user_data);
/* From side 0 to side 1, over rail 1 if it is up: ops with user_data 0. */
void pair_messages(struct pair *pair);
/* Calls of side 0. */
void pair_round_trips(struct pair *pair);
/* A context, an endpoint, and a channel with both rails. */
void pairs_open_with_others(struct pair **endpoint, struct pair **channel);
/* What works as if nobody else was slow: these, a new connection, sleep. */
void pairs_go_on(struct pair *endpoint, struct pair *channel);

#endif

/* pair.h: two lanes on the in-memory NIC. For cmocka: a helper that does not get what it expects fails the
 * test.
 */
#ifndef CORE_LANE_TESTS_PAIR_H
#define CORE_LANE_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lane/internal.h"
#include "nic/drain.h"
#include "nic/memory/memory.h"

#define BYTES 8192u
#define SEEN_MAX 256u
#define TIMER_GRANT 5u

struct side {
    struct nic *nic;
    struct lane *lane;
    struct handles handles;
    struct nic_keys keys;
    uint32_t users;
    uint32_t count;
    crpc_completion seen[SEEN_MAX];
    _Alignas(64) uint8_t memory[BYTES];
};

extern struct memory_fabric *fabric;
extern struct wheel wheel;
extern struct side near, far;

/* Setup and teardown of cmocka: two lanes that are open, in their first life. */
int open_pair(void **state);
int close_pair(void **state);
/* Connects and opens both, in this life. */
void connect_both(uint32_t life);

/* Takes what the device has, and completes nothing. */
void take_completions(struct side *side);
/* Polls once: what has come is in `seen`. */
void poll_side(struct side *side);
/* The same: only one thing has come. */
const crpc_completion *expect_one(struct side *side, uint8_t opcode, int32_t status);
/* Carries the messages of both sides until none is due. */
void talk(void);

#define ALL (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

int32_t try_give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access);
/* A grant of this side, which has completed. */
struct lane_grant *give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access);
int32_t try_take(struct side *side, const uint8_t *bytes, uint32_t count,
                 struct lane_grant **grant);
/* What the near side makes of a grant of the far side. */
struct lane_grant *take_far(const struct lane_grant *given);

/* An op of the near side, with its own memory from 0 on. */
struct lane_op op_on(const struct lane_grant *grant, uint8_t opcode, uint32_t offset,
                     uint32_t bytes);
void post(const struct lane_op *op);
/* Posts an op of which the near side's lane fails, and nothing else comes of it. */
void expect_refused(const struct lane_op *op);

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

#endif

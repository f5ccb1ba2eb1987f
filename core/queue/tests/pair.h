/* pair.h: two queue engines on the in-memory NIC, with an rdma_cm that does what the test says. For
 * cmocka: a helper that does not get what it expects fails the test.
 */
#ifndef CORE_QUEUE_TESTS_PAIR_H
#define CORE_QUEUE_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nic/memory/memory.h"
#include "queue/internal.h"
#include "queue/tests/fake_cm.h"

#define PAIR_BYTES 4096u
#define PAIR_SEEN_MAX 512u
#define PAIR_ADDRESS "192.0.2.2:2"

/* One side: a nic, its engine, and memory that the other side may use. */
struct end {
    struct nic *nic;
    struct queue_engine *engine;
    struct handles handles;
    struct log log;
    struct cm cm;
    struct nic_keys keys;
    _Alignas(64) uint8_t memory[PAIR_BYTES];
    crpc_completion seen[PAIR_SEEN_MAX]; /* since the last end_forget */
    uint32_t count;
};

struct pair {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct end near;
    struct end far;
    struct queue *queue; /* of near; connected with peer, which is of far */
    struct queue *peer;
};

/* For cmocka_unit_test_setup_teardown. pair_connected has a queue on each side. */
int pair_open(void **state);
int pair_connected(void **state);
int pair_close(void **state);

/* 16 sends and receives of 2 pieces. */
struct queue_options pair_options(void);
/* Connects by blobs, and takes CONNECTED. */
void pair_join(struct pair *pair, const struct queue_options *near,
               const struct queue_options *far);
/* Connects by rdma_cm, and takes CONNECTED: near asks, and far listens. */
void pair_connect(struct pair *pair, const struct queue_options *near,
                  const struct queue_options *far);
struct queue *end_blob(struct end *end, const struct queue_options *options, uint8_t *blob);
struct queue *end_srq(struct end *end, uint32_t receives);

/* A queue for datagrams, and a target of near for those that go to far's. */
struct queue *end_datagrams(struct end *end, const struct queue_options *options);
struct queue_target *pair_target(struct pair *pair, const struct queue *to);

/* Polls once. Returns how many completions came. */
uint32_t end_poll(struct end *end, uint32_t capacity);
/* Polls until there are so many in `seen`, and none comes behind them. */
void end_wait(struct end *end, uint32_t count);
void end_forget(struct end *end);
/* The completion at this index is such an op or event of the queue. */
const crpc_completion *end_expect_op(const struct end *end, uint32_t index, uint64_t handle,
                                     uint64_t user_data, int32_t status);
void end_expect_event(const struct end *end, uint32_t index, uint64_t handle, uint8_t kind,
                      int32_t status);
/* Returns how many ops in `seen` have this status. */
uint32_t end_count(const struct end *end, int32_t status);

uint64_t handle_of(const struct queue *queue);
/* WRITEs from near, or receives of 8 bytes there with user data from 100 on: all are accepted. At most 16. */
void submit_writes(struct pair *pair, uint32_t count);
void receive_near(struct pair *pair, uint32_t count);

/* Of 8 bytes at this offset of near's and of far's memory. */
struct nic_work pair_work(struct pair *pair, uint8_t opcode, uint32_t offset, uint64_t user_data);
/* Submits from near, or receives in the memory of `end`; all are accepted. */
void pair_submit(struct pair *pair, const struct nic_work *works, uint32_t count);
void pair_submit_one(struct pair *pair, uint8_t opcode, uint64_t user_data);
int32_t end_submit(struct end *end, struct queue *queue, const struct nic_work *work);
int32_t end_receive(struct end *end, struct queue *queue, uint32_t offset, uint32_t bytes,
                    uint64_t user_data);

#endif

/* queues.h: two sides with a context each and the memory of each, for tests of queues over a device: `here`
 * connects to `there`. All is polled by one thread.
 */
#ifndef FUNCTIONAL_QUEUES_H
#define FUNCTIONAL_QUEUES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "copyrpc.h"

#define QUEUES_SECONDS_MAX 60 /* for anything that is awaited */
#define QUEUES_BYTES 65536u   /* of each side's memory */
#define QUEUES_KEPT_MAX 4096

struct side {
    crpc_context *context;
    crpc_queue queue;
    crpc_region region; /* of the memory, with all rights */
    uint32_t remote_key;
    uint8_t *memory;
    crpc_completion kept[QUEUES_KEPT_MAX]; /* that were polled and not taken */
    uint32_t kept_count;
};

extern struct side here, there;
extern char queues_address[64]; /* on which `there` listens */

/* Setup and teardown of cmocka. */
int queues_open(void **state);
int queues_close(void **state);
/* Fails the test with the error's message if the status is an error. */
void need(int32_t status, const crpc_error *error);

/* Polls once, and keeps what comes. */
void pump(struct side *side);
bool take_kept(struct side *side, uint8_t kind, crpc_completion *found);
/* Pumps both sides until there is one of this kind, and takes it. */
crpc_completion await(struct side *side, uint8_t kind);
/* Takes the next WORK, which must be this one. */
crpc_completion await_work(struct side *side, uint8_t opcode, uint64_t user_data, int32_t status);

crpc_queue_options queues_options(void);
/* By rdma_cm; CONNECTED has been taken. */
void connect_with(const crpc_queue_options *ours, const crpc_queue_options *theirs);
void connect_both(void);
void close_queues(void);
crpc_queue_info info_of(struct side *side);

uint64_t address_of(const void *memory);
/* With so many bytes of the side's memory; what names the peer's memory names the same bytes there. */
crpc_queue_op op_of(const struct side *side, uint8_t opcode, uint64_t user_data, uint32_t from,
                    uint32_t bytes);
/* All are accepted. */
void submit(struct side *side, const crpc_queue_op *ops, uint32_t count);
void one(struct side *side, uint8_t opcode, uint64_t user_data, uint32_t from, uint32_t bytes);

#endif

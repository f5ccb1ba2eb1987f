/* pair.h: two engines on one in-memory fabric, in immediate mode, with as many connections as a
 * test wants. */
#ifndef CORE_RPC_TESTS_PAIR_H
#define CORE_RPC_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "blob.h"
#include "nic/memory/memory.h"

#define PAIR_ENDPOINTS_MAX 8
#define PAIR_COMPLETIONS 256

/* What came out of an engine, and is to be looked at. */
struct pair_log {
    crpc_completion entries[PAIR_COMPLETIONS];
    uint32_t count;
};

struct pair {
    struct memory_fabric *fabric;
    struct handles handles[2];
    uint64_t clock_ns;
    struct log log;
    struct nic *nic[2];
    struct rpc_engine *engine[2];
    struct rpc_endpoint *endpoint[2][PAIR_ENDPOINTS_MAX]; /* [side][connection] */
    uint32_t connections;
    struct pair_log seen[2]; /* of the last poll of each side */
};

/* What most tests connect with: small rings, so that they wrap. */
crpc_endpoint_options pair_options(void);
void pair_open(struct pair *pair, const struct nic_options *nic_options);
/* Begins anew, with one connection by pair_options, of which this side does not know these features. */
void pair_begin_with_older(struct pair *pair, uint32_t older, uint32_t features);
/* The devices of pairs that are opened next have none. */
extern bool pair_without_srq;
/* What the queue pairs of each side offer of ECE; 0: it knows nothing of it. */
extern uint32_t pair_ece[2];
/* Makes one more connection; CONNECTED has been taken on both sides. Returns its number. */
uint32_t pair_connect(struct pair *pair, const crpc_endpoint_options *left,
                      const crpc_endpoint_options *right);
/* Fails the test if anything is left behind. */
void pair_close(struct pair *pair);

/* Polls one side once; what came is in seen[side]. Returns how much. */
uint32_t pair_poll(struct pair *pair, uint32_t side);
/* The first completion of that kind among the last poll's; NULL if there is none. */
const crpc_completion *pair_find(const struct pair *pair, uint32_t side, uint8_t kind);

/* Calls with `bytes` bytes of value `fill`; returns the status. Ends the submit. */
int32_t pair_call(struct pair *pair, uint32_t side, uint32_t connection, uint64_t user_data,
                  uint32_t bytes, uint8_t fill, uint32_t reply_bytes_max);
/* Replies to a request with its own bytes. */
int32_t pair_echo(struct pair *pair, uint32_t side, uint32_t connection,
                  const crpc_completion *request, uint8_t flags);
/* Sends as many batches of side 0, on the first connection, as the peer takes. */
void pair_close_window(struct pair *pair);
/* Polls side 0, a millisecond later each time, until a call ends: it must be this one, with this status, by so many polls. */
void pair_expect_end(struct pair *pair, uint64_t user_data, int32_t status, uint32_t polls);
/* One call there and back, in full: proof that the connection works. */
void pair_round_trip(struct pair *pair, uint32_t connection);

#endif

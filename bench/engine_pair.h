/* engine_pair.h: two engines on the in-memory NIC, with many connections, to measure the engine
 * alone. */
#ifndef BENCH_ENGINE_PAIR_H
#define BENCH_ENGINE_PAIR_H

#include <stdint.h>

#include "nic/memory/memory.h"
#include "rpc/rpc.h"

#define BENCH_DEPTH 256
#define BENCH_BYTES 32
#define BENCH_ENDPOINTS_MAX 1024

struct engine_pair {
    struct nic *nic[2];
    struct rpc_engine *engine[2]; /* 0 calls, 1 answers */
    struct rpc_endpoint *endpoints[2][BENCH_ENDPOINTS_MAX];
    uint32_t endpoint_count;
    struct handles handles[2];
    struct log log;
};

/* Opens both sides. Exits with a message if anything fails. Only the first connection is used. */
void engine_pair_open(struct engine_pair *pair, uint32_t endpoints);
void engine_pair_close(struct engine_pair *pair);

/* The four parts of a round, which is what a program does between two polls. */
uint32_t engine_pair_submit(struct engine_pair *pair,
                            uint32_t room);                 /* makes calls; returns how many */
uint32_t engine_pair_client_poll(struct engine_pair *pair); /* returns responses */
uint32_t engine_pair_server_poll(struct engine_pair *pair); /* returns requests */
void engine_pair_reply(struct engine_pair *pair);           /* replies to all requests */

#endif

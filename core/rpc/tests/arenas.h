/* arenas.h: a pair of engines with a connection, and a region at either side, in which an arena can be lent. */
#ifndef CORE_RPC_TESTS_ARENAS_H
#define CORE_RPC_TESTS_ARENAS_H

#include "pair.h"

#define ARENAS_PLACE_BYTES 16384u
#define ARENAS_PLACES 3u

struct arenas {
    struct pair pair;
    uint8_t *memory[2]; /* of the regions */
    uint32_t users[2];
    struct rpc_region regions[2];
};

/* flags: of the options of both sides. Returns 0, or -1 if there is no memory. */
int arenas_open(struct arenas *arenas, uint32_t flags);
/* Fails the test if anything uses the regions still. */
void arenas_close(struct arenas *arenas);

struct rpc_endpoint *arenas_end(const struct arenas *arenas, uint32_t side);
/* The address of a place. */
uint64_t arenas_place(const struct arenas *arenas, uint32_t side, uint32_t place);
int32_t arenas_lend(struct arenas *arenas, uint32_t side, uint32_t places);
/* Lends ARENAS_PLACES; the peer has heard of it when this returns. */
void arenas_tell(struct arenas *arenas, uint32_t side);

/* Side 0 calls with a payload from its region, at the offset user_data. */
int32_t arenas_call(struct arenas *arenas, uint64_t user_data, uint32_t bytes, uint64_t timeout_ns);
const void *arenas_payload(const crpc_completion *completion);
/* The request that side 1 gets next. placed: whether it must lie in the arena. */
crpc_completion arenas_request(struct arenas *arenas, uint64_t user_data, uint32_t bytes,
                               bool placed);

#endif

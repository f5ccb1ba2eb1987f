/* lanes.h: a pair whose connection 0 has a lane that is open, and memory on both sides. */
#ifndef CORE_RPC_TESTS_LANES_H
#define CORE_RPC_TESTS_LANES_H

#include "pair.h"

#define LANES_BYTES 4096u

struct lanes {
    struct pair pair;
    struct nic_keys keys[2];
    uint32_t users[2];
    uint32_t revoked;  /* REVOKEs that have completed, as far as lanes_count has seen */
    uint32_t requests; /* likewise requests */
    uint32_t rooms;    /* likewise of side 0 */
    uint64_t grant;    /* handle of the last grant of side 1 */
    _Alignas(64) uint8_t memory[2][LANES_BYTES];
};

void lanes_open(struct lanes *lanes);
void lanes_open_with(struct lanes *lanes, const crpc_endpoint_options *options);
void lanes_close(struct lanes *lanes);
/* pair_options, with a lane and room for its words. */
crpc_endpoint_options lanes_options(void);
/* The endpoint of connection 0. */
struct rpc_endpoint *lanes_of(const struct lanes *lanes, uint32_t side);

/* Polls both sides several times, and counts. */
void lanes_settle(struct lanes *lanes);
void lanes_count(struct lanes *lanes, uint32_t side);

/* Side 1 grants all of its memory, tells side 0 in a call, and side 0 takes the grant. */
const struct lane_grant *lanes_grant(struct lanes *lanes);
/* Side 1 revokes the last one. */
int32_t lanes_revoke(struct lanes *lanes, uint64_t timeout_ns);

/* An op of side 0, with its own memory from 0 on. */
struct lane_op lanes_op(const struct lanes *lanes, const struct lane_grant *grant, uint8_t opcode,
                        uint32_t offset, uint32_t bytes);
/* Submits a WRITE of side 0, which is accepted. */
void lanes_write(struct lanes *lanes, const struct lane_grant *grant, uint32_t offset,
                 uint32_t bytes);
/* Calls with 8 bytes, after the ops of the lane. */
int32_t lanes_after(struct rpc_endpoint *endpoint);
/* Polls a side: the only op among what comes is such a one. */
void lanes_expect(struct lanes *lanes, uint32_t side, uint8_t opcode, int32_t status);

#endif

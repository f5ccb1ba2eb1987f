/* arenas.c: see arenas.h. */
#include "arenas.h"

#include <stdlib.h>

#define BYTES 200000u /* of each region */

int arenas_open(struct arenas *arenas, uint32_t flags)
{
    crpc_endpoint_options options = pair_options();
    options.flags = flags;
    options.ring_bytes = 65536;
    options.request_bytes = 32768;
    options.batch_window = 8;
    *arenas = (struct arenas){0};
    for (uint32_t side = 0; side < 2; side++) {
        uint8_t *memory = malloc(BYTES);
        if (!memory) {
            return -1;
        }
        for (uint32_t i = 0; i < BYTES; i++) {
            memory[i] = (uint8_t)(i * 7 + i / 251);
        }
        arenas->memory[side] = memory;
        arenas->regions[side] = (struct rpc_region){.address = (uint64_t)(uintptr_t)memory,
                                                    .bytes = BYTES,
                                                    .fd = -1,
                                                    .users = &arenas->users[side]};
        rpc_region_init(&arenas->regions[side]);
    }
    pair_open(&arenas->pair, NULL);
    pair_connect(&arenas->pair, &options, &options);
    return 0;
}

void arenas_close(struct arenas *arenas)
{
    pair_close(&arenas->pair);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(arenas->users[side], 0);
        rpc_region_end(&arenas->regions[side]);
        free(arenas->memory[side]);
    }
}

struct rpc_endpoint *arenas_end(const struct arenas *arenas, uint32_t side)
{
    return arenas->pair.endpoint[side][0];
}

uint64_t arenas_place(const struct arenas *arenas, uint32_t side, uint32_t place)
{
    return arenas->regions[side].address + 16 + (uint64_t)place * ARENAS_PLACE_BYTES;
}

int32_t arenas_lend(struct arenas *arenas, uint32_t side, uint32_t places)
{
    crpc_error error = {0};
    return rpc_arena_lend(arenas_end(arenas, side), &arenas->regions[side],
                          arenas_place(arenas, side, 0), ARENAS_PLACE_BYTES, places, &error);
}

void arenas_tell(struct arenas *arenas, uint32_t side)
{
    assert_int_equal(arenas_lend(arenas, side, ARENAS_PLACES), CRPC_OK);
    pair_poll(&arenas->pair, side);
    pair_poll(&arenas->pair, 1 - side);
    assert_int_equal(arenas_end(arenas, 1 - side)->peer_arena.places, ARENAS_PLACES);
}

int32_t arenas_call(struct arenas *arenas, uint64_t user_data, uint32_t bytes, uint64_t timeout_ns)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .user_data = user_data,
                        .payload_offset = user_data,
                        .payload_bytes = bytes,
                        .reply_bytes_max = 12000,
                        .timeout_ns = timeout_ns};
    const int32_t status = rpc_gather(arenas_end(arenas, 0), &op, &arenas->regions[0]);
    rpc_submit_end(arenas->pair.engine[0]);
    return status;
}

const void *arenas_payload(const crpc_completion *completion)
{
    return (const void *)(uintptr_t)completion->payload;
}

crpc_completion arenas_request(struct arenas *arenas, uint64_t user_data, uint32_t bytes,
                               bool placed)
{
    pair_poll(&arenas->pair, 1);
    const crpc_completion *request = pair_find(&arenas->pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(request->payload_bytes, bytes);
    assert_int_equal(request->flags, placed ? CRPC_COMPLETION_PLACED : 0);
    assert_memory_equal(arenas_payload(request), arenas->memory[0] + user_data, bytes);
    assert_true(rpc_view_valid(arenas_end(arenas, 1), request));
    if (placed) {
        assert_true(request->payload >= arenas_place(arenas, 1, 0) &&
                    request->payload < arenas_place(arenas, 1, ARENAS_PLACES));
    }
    return *request;
}

/* address.c: where a UD queue or a DCT is, as one side tells the other, and the way there. */
#include <string.h>

#include "traffic.h"

struct traffic_address address_of(crpc_context *context, crpc_queue queue)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    struct traffic_address told = {0};
    if (crpc_queue_get_address(context, queue, &address) == CRPC_OK) {
        told = (struct traffic_address){
            .queue_pair_number = address.queue_pair_number,
            .lid = (uint16_t)address.lid,
            .link = (uint8_t)(address.link | (address.flags ? TRAFFIC_GRH : 0)),
            .mtu_bits = (uint8_t)__builtin_ctz(address.mtu_bytes)};
        memcpy(told.gid, address.gid, sizeof(address.gid));
    }
    return told;
}

bool address_aim(crpc_context *context, const struct traffic_address *there,
                 const crpc_target_options *options, crpc_target *target)
{
    crpc_queue_address address = {.struct_size = sizeof(address),
                                  .queue_pair_number = there->queue_pair_number,
                                  .link = there->link & (uint8_t)~TRAFFIC_GRH,
                                  .mtu_bytes = UINT32_C(1) << (there->mtu_bits & 31),
                                  .lid = there->lid,
                                  .flags = there->link & TRAFFIC_GRH ? CRPC_GRH_REQUIRED : 0};
    crpc_error error = {.struct_size = sizeof(error)};
    memcpy(address.gid, there->gid, sizeof(address.gid));
    if (crpc_target_open(context, &address, options, target, &error) < 0) {
        return traffic_failed("no way to the other side's queue", error.message);
    }
    return true;
}

/* datagrams.c: --send --datagrams: the queue for datagrams of a traffic, and its target. The connection beside it
 * carries the plan and the reports. */
#include <stdio.h>
#include <string.h>

#include "traffic.h"

bool datagrams_open(struct traffic *traffic, uint64_t user_data)
{
    crpc_queue_options options = traffic_options(traffic);
    crpc_queue_address address = {.struct_size = sizeof(address)};
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    options.kind = CRPC_QUEUE_KIND_UD;
    options.user_data = user_data;
    options.receives = traffic->receive_depth;
    if (crpc_queue_open(traffic->context, &options, &traffic->datagrams, &error) < 0) {
        perf_failed("no queue for datagrams", error.message);
        return false;
    }
    crpc_queue_get_info(traffic->context, traffic->datagrams, &info);
    traffic->datagram_bytes_max = (uint32_t)info.message_bytes_max;
    if (traffic->plan.bytes > traffic->datagram_bytes_max) {
        char why[64];
        snprintf(why, sizeof(why), "it has at most %u bytes here", traffic->datagram_bytes_max);
        perf_failed("a datagram is one packet", why);
        return false;
    }
    crpc_queue_get_address(traffic->context, traffic->datagrams, &address);
    traffic->plan.datagrams =
        (struct traffic_address){.queue_pair_number = address.queue_pair_number,
                                 .lid = (uint16_t)address.lid,
                                 .link = (uint8_t)address.link,
                                 .mtu_bits = (uint8_t)__builtin_ctz(address.mtu_bytes)};
    memcpy(traffic->plan.datagrams.gid, address.gid, sizeof(address.gid));
    return true;
}

bool datagrams_aim(struct traffic *traffic, const struct traffic_address *there)
{
    crpc_queue_address address = {.struct_size = sizeof(address),
                                  .queue_pair_number = there->queue_pair_number,
                                  .link = there->link,
                                  .mtu_bytes = UINT32_C(1) << (there->mtu_bits & 31),
                                  .lid = there->lid};
    crpc_error error = {.struct_size = sizeof(error)};
    memcpy(address.gid, there->gid, sizeof(address.gid));
    if (crpc_target_open(traffic->context, &address, NULL, &traffic->target, &error) < 0) {
        perf_failed("no way to the other queue for datagrams", error.message);
        return false;
    }
    return true;
}

void datagrams_close(struct traffic *traffic)
{
    if (traffic->target.bits) {
        crpc_target_close(traffic->context, traffic->target);
    }
    if (traffic->datagrams.bits) {
        crpc_queue_close(traffic->context, traffic->datagrams);
    }
}

/* datagrams.c: --send --datagrams: the queue for datagrams of a traffic, and its target. The connection beside it
 * carries the plan and the reports. */
#include <stdio.h>

#include "traffic.h"

bool datagrams_open(struct traffic *traffic, uint64_t user_data)
{
    crpc_queue_options options = traffic_sender_options(traffic, CRPC_QUEUE_KIND_UD, user_data);
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    options.receives = traffic->receive_depth;
    if (crpc_queue_open(traffic->context, &options, &traffic->sender, &error) < 0) {
        return traffic_failed("no queue for datagrams", error.message);
    }
    traffic->receiver = traffic->sender;
    crpc_queue_get_info(traffic->context, traffic->sender, &info);
    traffic->datagram_bytes_max = (uint32_t)info.message_bytes_max;
    if (traffic->plan.bytes > traffic->datagram_bytes_max) {
        char why[64];
        snprintf(why, sizeof(why), "it has at most %u bytes here", traffic->datagram_bytes_max);
        return traffic_failed("a datagram is one packet", why);
    }
    traffic->plan.datagrams = address_of(traffic->context, traffic->sender);
    return true;
}

bool datagrams_aim(struct traffic *traffic)
{
    return address_aim(traffic->context, &traffic->peer_datagrams, NULL, &traffic->targets[0]);
}

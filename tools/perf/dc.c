/* dc.c: --dc: the DCI of a traffic, the DCTs of its peer, and what lies between: with streams, an op's stream. The
 * connection beside them carries the plan, and where the DCTs are.
 *
 * The DCTs of a side differ in nothing but their numbers: they lead to the same memory, and share one SRQ. Ops go to
 * them in turn, as they do over the streams. If one of the two counts divides the other, ops of one target are of as
 * few streams, or ops of one stream to as few targets, as there can be. */
#include <string.h>
#include <sys/random.h>

#include "traffic.h"

static bool open_dci(struct traffic *traffic, uint64_t user_data)
{
    crpc_queue_options options = traffic_sender_options(traffic, CRPC_QUEUE_KIND_DCI, user_data);
    crpc_error error = {.struct_size = sizeof(error)};
    options.streams = traffic->plan.streams;
    if (crpc_queue_open(traffic->context, &options, &traffic->sender, &error) < 0) {
        return traffic_failed("no DCI", error.message);
    }
    return true;
}

/* Also if nothing is received: a DCT needs an SRQ. */
static bool open_srq(struct traffic *traffic, uint64_t user_data)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options),
        .user_data = user_data,
        .kind = CRPC_QUEUE_KIND_SRQ,
        .receives = traffic->receive_depth > 0 ? traffic->receive_depth : 1};
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_queue_open(traffic->context, &options, &traffic->receiver, &error) < 0) {
        return traffic_failed("no SRQ for DCTs", error.message);
    }
    return true;
}

static bool open_dct(struct traffic *traffic, crpc_queue *dct, struct traffic_dct *told,
                     uint64_t user_data)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .user_data = user_data,
                                  .kind = CRPC_QUEUE_KIND_DCT,
                                  .receive_queue = traffic->receiver};
    crpc_error error = {.struct_size = sizeof(error)};
    if (getrandom(&options.access_key, sizeof(options.access_key), 0) !=
        sizeof(options.access_key)) {
        return traffic_failed("no DCT", "the system has no random numbers for its key");
    }
    if (crpc_queue_open(traffic->context, &options, dct, &error) < 0) {
        return traffic_failed("no DCT", error.message);
    }
    *told = (struct traffic_dct){.address = address_of(traffic->context, *dct),
                                 .access_key = options.access_key};
    return true;
}

bool dc_open(struct traffic *traffic, uint64_t user_data)
{
    const bool both = traffic->plan.flags & (TRAFFIC_BOTH | TRAFFIC_PING_PONG);
    struct traffic_head *head = (struct traffic_head *)(void *)traffic->memory;
    if (traffic->sends && !open_dci(traffic, user_data)) {
        return false;
    }
    if (!traffic->server && !both) {
        return true; /* nobody sends to this side */
    }
    if (!open_srq(traffic, user_data)) {
        return false;
    }
    for (uint32_t i = 0; i < traffic->plan.targets; i++) {
        if (!open_dct(traffic, &traffic->dcts[i], &head->dcts[i], user_data)) {
            return false;
        }
    }
    return true;
}

bool dc_aim(struct traffic *traffic, const void *dcts)
{
    struct traffic_dct told[PERF_TARGETS_MAX];
    memcpy(told, dcts, traffic->plan.targets * sizeof(told[0]));
    for (uint32_t i = 0; i < traffic->plan.targets; i++) {
        const crpc_target_options options = {.struct_size = sizeof(options),
                                             .kind = CRPC_QUEUE_KIND_DCI,
                                             .access_key = told[i].access_key};
        if (!address_aim(traffic->context, &told[i].address, &options, &traffic->targets[i])) {
            return false;
        }
    }
    return true;
}

void dc_close(struct traffic *traffic)
{
    for (uint32_t i = 0; i < PERF_TARGETS_MAX; i++) {
        if (traffic->dcts[i].bits) {
            crpc_queue_close(traffic->context, traffic->dcts[i]);
        }
    }
}

void dc_direct(const struct traffic *traffic, crpc_queue_op *op, uint64_t number)
{
    const struct traffic_plan *plan = &traffic->plan;
    op->target = traffic->targets[number % plan->targets];
    op->stream = plan->streams > 0 ? (uint16_t)(number % plan->streams) : 0;
}

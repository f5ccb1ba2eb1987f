/* tags.c: --tag: messages with tags, to a TM-SRQ of the side that receives.
 *
 * Expected messages: that side keeps as many buffers with tags in the device as it can, and has no ordinary receives.
 * A message that is faster than its buffer finds neither, and its sender's device asks again, as for any message
 * without a receive. So each goes to the buffer with its number, and completes that.
 *
 * Unexpected ones: there are no buffers, and all messages go to ordinary receives. The program does what the device
 * has not: it reads the tag, copies the payload to where it is wanted, and tells the device that it has looked. */
#include <stdlib.h>
#include <string.h>

#include "traffic.h"

static bool is_unexpected(const struct traffic *traffic)
{
    return traffic->plan.flags & TRAFFIC_UNEXPECTED;
}

/* A message must not fall into a place whose tag was not read yet. */
static void limit_receives(struct traffic *traffic)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_queue_get_info(traffic->context, traffic->receiver, &info);
    const uint32_t most = is_unexpected(traffic) ? traffic->places : info.tags;
    traffic->receive_depth = most < traffic->receive_depth ? most : traffic->receive_depth;
}

bool tags_open(struct traffic *traffic, uint64_t user_data)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .user_data = user_data,
                                  .kind = CRPC_QUEUE_KIND_TM_SRQ,
                                  .receives = is_unexpected(traffic) ? traffic->receive_depth : 1,
                                  .tags = is_unexpected(traffic) ? 1 : traffic->receive_depth};
    crpc_error error = {.struct_size = sizeof(error)};
    if (!traffic->receives) {
        return true; /* who sends needs nothing */
    }
    traffic->unexpected = malloc(traffic->plan.bytes);
    if (!traffic->unexpected) {
        return traffic_failed("no memory", "for messages of this size");
    }
    int32_t status = crpc_queue_open(traffic->context, &options, &traffic->receiver, &error);
    if (status == CRPC_E_NO_RESOURCE) {
        options.tags = 0; /* as many as it has */
        status = crpc_queue_open(traffic->context, &options, &traffic->receiver, &error);
    }
    if (status < 0) {
        return traffic_failed("no TM-SRQ", error.message);
    }
    limit_receives(traffic);
    return true;
}

uint64_t tags_of(const struct traffic *traffic, uint64_t number)
{
    return number % traffic->plan.depth % traffic->places;
}

void tags_number(struct traffic *traffic, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = traffic->receives_posted + i;
        crpc_queue_op *op = &traffic->receive_ops[number % traffic->receive_depth];
        op->user_data = number;
        if (op->opcode == CRPC_QUEUE_TAG_ADD) {
            op->remote_address = tags_of(traffic, number);
            op->operand = UINT64_MAX;
        }
    }
}

void tags_synchronize(struct traffic *traffic)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_TAG_SYNC};
    traffic->sync_due = traffic_submit(traffic, traffic->receiver, &op, 1, 0, 1) == 0;
}

/* Returns true if it has come to the buffer with its number, whole and without its header. */
static bool take_expected(const struct traffic *traffic, const crpc_completion *completion)
{
    const uint8_t *payload = traffic_place(traffic, completion->user_data);
    return completion->flags & CRPC_COMPLETION_MATCHED &&
           completion->token == tags_of(traffic, completion->user_data) &&
           completion->payload_bytes == traffic->plan.bytes &&
           (traffic->plan.flags & TRAFFIC_PING_PONG ||
            payload[0] == traffic_first_byte(!traffic->server));
}

/* Returns true if it is the message with this number. */
static bool take_unexpected(struct traffic *traffic, const crpc_completion *completion)
{
    const uint8_t *message = traffic_place(traffic, completion->user_data);
    uint64_t tag;
    traffic->sync_due = true;
    if (completion->payload_bytes != traffic->plan.bytes + CRPC_TAG_HEADER_BYTES ||
        crpc_tag_header_read(message, completion->payload_bytes, &tag, NULL) != CRPC_TAG_EAGER) {
        return false;
    }
    memcpy(traffic->unexpected, message + CRPC_TAG_HEADER_BYTES, traffic->plan.bytes);
    return tag == tags_of(traffic, completion->user_data);
}

void tags_take(struct traffic *traffic, const crpc_completion *completion)
{
    const bool right = completion->method == CRPC_QUEUE_TAG_ADD
                           ? take_expected(traffic, completion)
                           : take_unexpected(traffic, completion);
    traffic->received++;
    traffic->wrong += !right;
}

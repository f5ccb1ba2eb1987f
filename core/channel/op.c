/* op.c: how an op ends, and its completion. */
#include "channel/internal.h"

void op_finish(struct channel_op *op, int32_t status)
{
    assert(!list_linked(&op->link));
    struct channel *channel = op->channel;
    op->status = (int8_t)status;
    if (op->kind == CRPC_COMPLETION_SENT) {
        channel->send.open--;
        channel->stats.sends_failed += status != CRPC_OK;
        if (wheel_timer_set(&op->timer)) {
            wheel_clear(&channel->engine->links.wheel, &op->timer);
        }
    } else {
        channel->receive.open--;
        channel->stats.receives_failed += status != CRPC_OK;
    }
    channel->stats.truncated += status == CRPC_E_TRUNCATED;
    list_append(&channel->engine->finished, &op->link);
}

void ops_emit_finished(struct channel_engine *engine, struct output *output)
{
    while (!list_empty(&engine->finished) && !output_full(output)) {
        struct channel_op *op = list_entry(engine->finished.next, struct channel_op, link);
        struct channel *channel = op->channel;
        list_remove(&op->link);
        *output->next++ = (crpc_completion){.kind = op->kind,
                                            .flags = CRPC_COMPLETION_OF_CHANNEL,
                                            .status = op->status,
                                            .endpoint = {channel->link.handle},
                                            .user_data = op->user_data,
                                            .token = op->number,
                                            .payload = op->address,
                                            .payload_bytes = op->bytes,
                                            .endpoint_user_data = channel->options.user_data};
        if (op->region) {
            op->region->users--;
        }
        if (op->kind == CRPC_COMPLETION_SENT) {
            list_append(&channel->send.free, &op->link);
        } else {
            struct channel_incoming *incoming =
                &channel->receive.incoming[op->number & channel->slot_mask];
            if (++incoming->emitted == incoming->count) {
                incoming->count = 0;
            }
        }
        if (unlikely(channel->link.refused)) {
            link_report(&channel->link, LINK_EVENT_ROOM);
        }
        channel->ops_left--;
    }
}

void ops_forget_finished(struct channel *channel)
{
    struct list *at = channel->engine->finished.next;
    while (at != &channel->engine->finished) {
        struct channel_op *op = list_entry(at, struct channel_op, link);
        at = at->next;
        if (op->channel == channel) {
            list_remove(&op->link);
            if (op->region) {
                op->region->users--;
            }
        }
    }
}

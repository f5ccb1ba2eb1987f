/* send_end.c: how sends end that do not arrive: by their deadlines, by cancels, with their channel. */
#include "channel/internal.h"

static void end_waiting(struct channel_op *op, int32_t status)
{
    struct channel *channel = op->channel;
    if (op->place != NO_PLACE) {
        channel->send.head.ops[op->place] = NULL;
        channel->send.head.filled--;
    } else {
        list_remove(&op->link);
    }
    op_finish(op, status);
    channel_work(channel->engine, channel); /* another may take its place, or a leave be complete */
}

void send_expired(struct channel_op *op)
{
    struct channel *channel = op->channel;
    end_waiting(op, CRPC_E_TIMEOUT);
    sends_fill_places(channel); /* before a newer one comes */
}

bool sends_stuck(const struct channel *channel)
{
    const struct channel_head *head = &channel->send.head;
    return head->filled < head->clear.count;
}

void sends_end_waiting(struct channel *channel, int32_t status)
{
    for (uint32_t i = 0; i < channel->send.head.clear.count; i++) {
        if (channel->send.head.ops[i]) {
            end_waiting(channel->send.head.ops[i], status);
        }
    }
    while (!list_empty(&channel->send.waiting)) {
        end_waiting(list_entry(channel->send.waiting.next, struct channel_op, link), status);
    }
    list_remove(&channel->waiting_link);
}

void sends_end_all(struct channel *channel, int32_t status)
{
    if (!channel->send.outgoing) {
        return;
    }
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_outgoing *outgoing = &channel->send.outgoing[slot];
        for (uint32_t i = 0; i < outgoing->count; i++) {
            op_finish(outgoing->ops[i], status);
        }
        outgoing->count = 0;
    }
    sends_end_waiting(channel, status);
    channel->send.head.clear = (struct channel_clear){0};
    channel->send.repeats = 0;
}

/* ---- For capi -------------------------------------------------------------------------------- */

int32_t channel_cancel(struct channel *channel, const crpc_channel_op *op)
{
    assert(op->opcode == CRPC_CHANNEL_CANCEL);
    int32_t status = link_cancel_possible(&channel->link);
    if (status != CRPC_OK) {
        return status;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i < channel->send.head.clear.count; i++) {
        struct channel_op *send = channel->send.head.ops[i];
        if (send && send->user_data == op->token) {
            end_waiting(send, CRPC_E_CANCELED);
            count++;
        }
    }
    struct list *link = channel->send.waiting.next;
    while (link != &channel->send.waiting) {
        struct channel_op *send = list_entry(link, struct channel_op, link);
        link = link->next;
        if (send->user_data == op->token) {
            end_waiting(send, CRPC_E_CANCELED);
            count++;
        }
    }
    sends_fill_places(channel); /* places are free now, and older sends come first */
    link_cancel_done(&channel->link, op->user_data, count);
    return CRPC_OK;
}

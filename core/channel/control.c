/* control.c: messages of control, which are written into the peer's inbox, each with an
 * immediate. They are taken in order and once, whatever queue pair carries them: one that a lost
 * rail may not have delivered is sent again on another, and what came before is recognised by its
 * sequence number.
 *
 * The inbox cannot overflow: of each rail at most two messages are not taken by the peer (a report
 * and the offer or answer after it, which its report must precede), one LEAVE
 * and one BYE, one ASLEEP, for the next comes after the answer to it, and one WAKE, which answers one.
 */
#include "channel/internal.h"

#include <string.h>

/* ---- Out ------------------------------------------------------------------------------------- */

static struct channel_control *out_message(const struct channel *channel, uint32_t place)
{
    return (struct channel_control *)(channel->staging.base +
                                      (size_t)place * CHANNEL_CONTROL_BYTES);
}

/* What carries control now; NULL if nothing does. */
static struct channel_queue *carrier(const struct channel *channel)
{
    if (channel->up != 0) {
        return channel->rails[__builtin_ctz(channel->up)].queues[0];
    }
    struct channel_queue *first = channel->rails[0].queues[0];
    bool beginning = channel->link.opened && channel->link.state == CRPC_STATE_CONNECTING;
    return beginning && first && first->connected && !first->queue_pair->failed ? first : NULL;
}

/* False if it cannot be posted now. */
static bool post_message(struct channel *channel, uint32_t place)
{
    struct channel_queue *queue = carrier(channel);
    if (!queue || nic_send_room(queue->queue_pair) == 0) {
        return false;
    }
    struct nic_queue_pair *queue_pair = queue->queue_pair;
    const struct channel_control *message = out_message(channel, place);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)message,
        .local_key = channel->staging.keys[queue->rail].local_key,
        .remote_address = channel->peer_area + (uint64_t)place * CHANNEL_CONTROL_BYTES,
        .remote_key = channel->rails[queue->rail].peer_key,
        .bytes = sizeof(*message),
        .immediate = CHANNEL_IMMEDIATE_CONTROL | message->sequence << CHANNEL_GENERATION_SHIFT,
    };
    channel->control.outbox[place].queue = queue;
    channel->control.outbox[place].wqe = queue_pair->posted;
    channel->control.unsent &= ~(1u << place);
    channel->control.posted |= 1u << place;
    queue->operations->post_write_immediate(queue_pair, &transfer, NIC_POST_SIGNALED);
    queue_wants_doorbell(queue);
    channel->stats.control_wqes++;
    return true;
}

/* A new message; NULL if it must wait. */
static struct channel_control *begin_message(struct channel *channel, uint8_t kind, uint32_t rail)
{
    uint32_t place = channel->control.out_sequence % CHANNEL_INBOX_MESSAGES;
    if ((channel->control.unsent | channel->control.posted) & 1u << place || !carrier(channel)) {
        return NULL;
    }
    struct channel_control *message = out_message(channel, place);
    memset(message, 0, sizeof(*message));
    message->sequence = channel->control.out_sequence;
    message->kind = kind;
    message->rail = (uint8_t)rail;
    message->epoch = channel->rails[rail].epoch;
    return message;
}

static void end_message(struct channel *channel)
{
    uint32_t place = channel->control.out_sequence++ % CHANNEL_INBOX_MESSAGES;
    channel->control.unsent |= 1u << place;
}

/* A report goes before the offer or answer that follows it: its epoch is the older. */
static void begin_messages(struct channel *channel)
{
    struct channel_control *message;
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        struct channel_rail *rail = &channel->rails[i];
        if (rail->report_wanted && (message = begin_message(channel, CHANNEL_CONTROL_REPORT, i))) {
            rail_fill_report(channel, i, message);
            end_message(channel);
        }
        if (rail->offer_wanted && (message = begin_message(channel, CHANNEL_CONTROL_OFFER, i))) {
            rail_fill_offer(channel, i, message);
            end_message(channel);
        }
        if (rail->answer_wanted && (message = begin_message(channel, CHANNEL_CONTROL_ANSWER, i))) {
            rail_fill_offer(channel, i, message);
            end_message(channel);
        }
    }
    if (channel->wake.due && begin_message(channel, CHANNEL_CONTROL_WAKE, 0)) {
        channel->wake.due = false;
        end_message(channel);
    }
    if (channel->wake.asleep_wanted && channel->leave < BYE_WANTED &&
        (message = begin_message(channel, CHANNEL_CONTROL_ASLEEP, 0))) {
        wake_fill_asleep(channel, message);
        end_message(channel);
    }
    if (channel->leave == LEAVE_ASKED &&
        (message = begin_message(channel, CHANNEL_CONTROL_LEAVE, 0))) {
        *(struct channel_bye *)message->body =
            (struct channel_bye){.posted = channel->receive.number};
        channel->leave = LEAVE_SAID;
        end_message(channel);
    }
    if (channel->leave == BYE_WANTED &&
        (message = begin_message(channel, CHANNEL_CONTROL_BYE, 0))) {
        *(struct channel_bye *)message->body =
            (struct channel_bye){.sent = channel->send.number, .posted = channel->receive.number};
        channel->leave = BYE_SAID;
        end_message(channel);
    }
}

void control_flush(struct channel *channel)
{
    if (!channel->link.opened || channel->link.state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    begin_messages(channel);
    /* Oldest first, so that the peer need not wait for one before it. */
    for (uint32_t i = 0; channel->control.unsent != 0 && i < CHANNEL_INBOX_MESSAGES; i++) {
        uint32_t place = (channel->control.out_sequence + i) % CHANNEL_INBOX_MESSAGES;
        if (channel->control.unsent & 1u << place && !post_message(channel, place)) {
            return;
        }
    }
}

/* queue_pair->completed will not do: an error that was polled together with the completion has moved
 * it on, past what was flushed. */
void control_acknowledge(struct channel_queue *queue, uint32_t completed)
{
    struct channel *channel = queue->channel;
    for (uint32_t i = 0; i < CHANNEL_INBOX_MESSAGES; i++) {
        const struct channel_outbox *outbox = &channel->control.outbox[i];
        if (channel->control.posted & 1u << i && outbox->queue == queue &&
            (int32_t)(completed - outbox->wqe) > 0) {
            channel->control.posted &= ~(1u << i);
            channel_work(channel->engine, channel);
        }
    }
}

void control_unsend(struct channel_queue *queue)
{
    struct channel *channel = queue->channel;
    for (uint32_t i = 0; i < CHANNEL_INBOX_MESSAGES; i++) {
        if (channel->control.posted & 1u << i && channel->control.outbox[i].queue == queue) {
            channel->control.posted &= ~(1u << i);
            channel->control.unsent |= 1u << i;
            channel->control.outbox[i].queue = NULL;
        }
    }
}

void control_probe(struct channel *channel, uint32_t rail)
{
    struct channel_queue *queue = channel->rails[rail].queues[0];
    struct nic_transfer transfer = {.immediate =
                                        CHANNEL_IMMEDIATE_PROBE | channel->rails[rail].epoch
                                                                      << CHANNEL_GENERATION_SHIFT};
    if (nic_send_room(queue->queue_pair) > 0) {
        queue->operations->post_write_immediate(queue->queue_pair, &transfer, NIC_POST_SIGNALED);
        queue_wants_doorbell(queue);
        channel->stats.control_wqes++;
    }
}

void control_touch(struct channel_queue *queue)
{
    assert(nic_send_room(queue->queue_pair) > 0 && queue->channel->up & 1u << queue->rail);
    struct channel *channel = queue->channel;
    struct nic_transfer nothing = {.remote_address = channel->peer_area,
                                   .remote_key = channel->rails[queue->rail].peer_key};
    queue->operations->post_write(queue->queue_pair, &nothing, NIC_POST_SIGNALED);
    queue_wants_doorbell(queue);
    channel->stats.control_wqes++;
}

/* ---- In -------------------------------------------------------------------------------------- */

/* At most one LEAVE, then one BYE. */
static void take_bye(struct channel *channel, const struct channel_control *message)
{
    struct channel_bye bye;
    bool last = message->kind == CHANNEL_CONTROL_BYE;
    memcpy(&bye, message->body, sizeof(bye));
    if (channel->peer_leave == PEER_BYE ||
        (!last && (channel->peer_leave != PEER_STAYS || bye.sent != 0))) {
        link_violated(&channel->link, "it took leave out of turn");
        return;
    }
    channel->bye = bye;
    channel->peer_leave = last ? PEER_BYE : PEER_LEAVES;
    channel_work(channel->engine, channel);
}

static void take_message(struct channel *channel, const struct channel_control *message)
{
    if (message->sequence != channel->control.in_sequence || message->rail >= CHANNEL_RAILS_MAX ||
        (message->zero | message->zero2) != 0) {
        link_violated(&channel->link, "its control message %u is malformed",
                      channel->control.in_sequence);
        return;
    }
    switch (message->kind) {
    case CHANNEL_CONTROL_OFFER:
        rail_take_offer(channel, message);
        break;
    case CHANNEL_CONTROL_ANSWER:
        rail_take_answer(channel, message);
        break;
    case CHANNEL_CONTROL_REPORT:
        rail_take_report(channel, message);
        break;
    case CHANNEL_CONTROL_BYE:
    case CHANNEL_CONTROL_LEAVE:
        take_bye(channel, message);
        break;
    case CHANNEL_CONTROL_ASLEEP:
        wake_take_asleep(channel, message);
        break;
    case CHANNEL_CONTROL_WAKE:
        wake_take(channel);
        break;
    default:
        link_violated(&channel->link, "its control message is of unknown kind %u", message->kind);
    }
}

/* Came before, on a rail that was lost since; the peer may know of the loss first. Each attempt to use a
 * rail can be lost once, with the messages of one inbox. */
static void take_repeated(struct channel *channel)
{
    if (channel->control.repeats_left == 0) {
        link_violated(&channel->link, "it repeated control messages without need");
        return;
    }
    channel->control.repeats_left--;
}

void control_take(struct channel *channel, uint32_t sequence)
{
    const uint32_t half = (CHANNEL_GENERATION_MASK + 1) / 2;
    uint32_t ahead = (sequence - channel->control.in_sequence) & CHANNEL_GENERATION_MASK;
    bool waits = ahead < CHANNEL_INBOX_MESSAGES &&
                 channel->control.arrived & 1u << sequence % CHANNEL_INBOX_MESSAGES;
    if (ahead >= half || waits) {
        take_repeated(channel);
        return;
    }
    if (ahead >= CHANNEL_INBOX_MESSAGES) {
        link_violated(&channel->link, "it sent more control messages than its inbox holds");
        return;
    }
    channel->control.arrived |= (uint8_t)(1u << sequence % CHANNEL_INBOX_MESSAGES);
    uint32_t place = channel->control.in_sequence % CHANNEL_INBOX_MESSAGES;
    while (channel->control.arrived & 1u << place &&
           channel->link.state != CRPC_STATE_DISCONNECTED) {
        struct channel_control message;
        wire_copy(&message, channel->area.base + (size_t)place * CHANNEL_CONTROL_BYTES);
        channel->control.arrived &= (uint8_t) ~(1u << place);
        take_message(channel, &message);
        channel->control.in_sequence++;
        place = channel->control.in_sequence % CHANNEL_INBOX_MESSAGES;
    }
}

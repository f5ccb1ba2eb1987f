/* control.c: messages of control: lines that are written into the peer's inbox, each with an
 * immediate. They are taken in order and once, whatever queue pair carries them: a line that a lost
 * rail may not have delivered is sent again on another, and what came before is recognised by its
 * sequence number.
 *
 * The inbox cannot overflow: of each rail at most two messages are not taken by the peer (a report
 * and the offer or answer after it, which its report must precede), one LEAVE
 * and one BYE.
 */
#include "stripe/channel.h"

#include <string.h>

/* ---- Out ------------------------------------------------------------------------------------- */

static struct stripe_line *out_line(const struct stripe_channel *channel, uint32_t place)
{
    return (struct stripe_line *)(channel->staging.base + (size_t)place * STRIPE_LINE_BYTES);
}

/* What carries control now; NULL if nothing does. */
static struct stripe_queue *carrier(const struct stripe_channel *channel)
{
    if (channel->up != 0) {
        return channel->rails[__builtin_ctz(channel->up)].queues[0];
    }
    struct stripe_queue *first = channel->rails[0].queues[0];
    bool beginning = channel->link.opened && channel->link.state == CRPC_STATE_CONNECTING;
    return beginning && first && first->connected && !first->queue_pair->failed ? first : NULL;
}

/* False if it cannot be posted now. */
static bool post_line(struct stripe_channel *channel, uint32_t place)
{
    struct stripe_queue *queue = carrier(channel);
    if (!queue || nic_send_room(queue->queue_pair) == 0) {
        return false;
    }
    struct nic_queue_pair *queue_pair = queue->queue_pair;
    const struct stripe_line *line = out_line(channel, place);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)line,
        .local_key = channel->staging.keys[queue->rail].local_key,
        .remote_address = channel->peer_area + (uint64_t)place * STRIPE_LINE_BYTES,
        .remote_key = channel->rails[queue->rail].peer_key,
        .bytes = sizeof(*line),
        .immediate = STRIPE_CONTROL_MESSAGE | line->sequence << STRIPE_GENERATION_SHIFT,
    };
    channel->outbox[place].queue = queue;
    channel->outbox[place].wqe = queue_pair->posted;
    channel->outbox_unsent &= ~(1u << place);
    channel->outbox_posted |= 1u << place;
    queue->operations->post_write_immediate(queue_pair, &transfer, NIC_POST_SIGNALED);
    queue_rings(queue);
    channel->stats.control_wqes++;
    return true;
}

/* A new message; NULL if it must wait. */
static struct stripe_line *begin_line(struct stripe_channel *channel, uint8_t kind, uint32_t rail)
{
    uint32_t place = channel->out_sequence % STRIPE_INBOX_LINES;
    if ((channel->outbox_unsent | channel->outbox_posted) & 1u << place || !carrier(channel)) {
        return NULL;
    }
    struct stripe_line *line = out_line(channel, place);
    memset(line, 0, sizeof(*line));
    line->sequence = channel->out_sequence;
    line->kind = kind;
    line->rail = (uint8_t)rail;
    line->epoch = channel->rails[rail].epoch;
    return line;
}

static void end_line(struct stripe_channel *channel)
{
    uint32_t place = channel->out_sequence++ % STRIPE_INBOX_LINES;
    channel->outbox_unsent |= 1u << place;
}

/* A report goes before the offer or answer that follows it: its epoch is the older. */
static void begin_messages(struct stripe_channel *channel)
{
    struct stripe_line *line;
    for (uint32_t i = 0; i < STRIPE_RAILS_MAX; i++) {
        struct stripe_rail *rail = &channel->rails[i];
        if (rail->report_wanted && (line = begin_line(channel, STRIPE_LINE_REPORT, i))) {
            rail_fill_report(channel, i, line);
            end_line(channel);
        }
        if (rail->offer_wanted && (line = begin_line(channel, STRIPE_LINE_OFFER, i))) {
            rail_fill_offer(channel, i, line);
            end_line(channel);
        }
        if (rail->answer_wanted && (line = begin_line(channel, STRIPE_LINE_ANSWER, i))) {
            rail_fill_offer(channel, i, line);
            end_line(channel);
        }
    }
    if (channel->leave_wanted && (line = begin_line(channel, STRIPE_LINE_LEAVE, 0))) {
        *(struct stripe_bye *)line->body = (struct stripe_bye){.posted = channel->receive_number};
        channel->leave_wanted = false;
        end_line(channel);
    }
    if (channel->bye_wanted && (line = begin_line(channel, STRIPE_LINE_BYE, 0))) {
        *(struct stripe_bye *)line->body =
            (struct stripe_bye){.sent = channel->send_number, .posted = channel->receive_number};
        channel->bye_wanted = false;
        channel->bye_sent = true;
        end_line(channel);
    }
}

void control_flush(struct stripe_channel *channel)
{
    if (!channel->link.opened || channel->link.state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    begin_messages(channel);
    /* Oldest first, so that the peer need not wait for one before it. */
    for (uint32_t i = 0; channel->outbox_unsent != 0 && i < STRIPE_INBOX_LINES; i++) {
        uint32_t place = (channel->out_sequence + i) % STRIPE_INBOX_LINES;
        if (channel->outbox_unsent & 1u << place && !post_line(channel, place)) {
            return;
        }
    }
}

/* queue_pair->completed will not do: an error that was polled together with the completion has moved
 * it on, past what was flushed. */
void control_acknowledge(struct stripe_queue *queue, uint32_t completed)
{
    struct stripe_channel *channel = queue->channel;
    for (uint32_t i = 0; i < STRIPE_INBOX_LINES; i++) {
        const struct stripe_outbox *outbox = &channel->outbox[i];
        if (channel->outbox_posted & 1u << i && outbox->queue == queue &&
            (int32_t)(completed - outbox->wqe) > 0) {
            channel->outbox_posted &= ~(1u << i);
            channel_work(channel->engine, channel);
        }
    }
}

void control_unsend(struct stripe_queue *queue)
{
    struct stripe_channel *channel = queue->channel;
    for (uint32_t i = 0; i < STRIPE_INBOX_LINES; i++) {
        if (channel->outbox_posted & 1u << i && channel->outbox[i].queue == queue) {
            channel->outbox_posted &= ~(1u << i);
            channel->outbox_unsent |= 1u << i;
            channel->outbox[i].queue = NULL;
        }
    }
}

void control_probe(struct stripe_channel *channel, uint32_t rail)
{
    struct stripe_queue *queue = channel->rails[rail].queues[0];
    struct nic_transfer transfer = {
        .immediate = STRIPE_CONTROL_PROBE | channel->rails[rail].epoch << STRIPE_GENERATION_SHIFT};
    if (nic_send_room(queue->queue_pair) > 0) {
        queue->operations->post_write_immediate(queue->queue_pair, &transfer, NIC_POST_SIGNALED);
        queue_rings(queue);
        channel->stats.control_wqes++;
    }
}

void control_touch(struct stripe_queue *queue)
{
    struct stripe_channel *channel = queue->channel;
    struct nic_transfer nothing = {.remote_address = channel->peer_area,
                                   .remote_key = channel->rails[queue->rail].peer_key};
    queue->operations->post_write(queue->queue_pair, &nothing, NIC_POST_SIGNALED);
    queue_rings(queue);
    channel->stats.control_wqes++;
}

/* ---- In -------------------------------------------------------------------------------------- */

/* At most one LEAVE, then one BYE. */
static void take_bye(struct stripe_channel *channel, const struct stripe_line *line)
{
    struct stripe_bye bye;
    bool last = line->kind == STRIPE_LINE_BYE;
    memcpy(&bye, line->body, sizeof(bye));
    if (channel->bye_received || (!last && (channel->left || bye.sent != 0))) {
        link_violated(&channel->link, "it took leave out of turn");
        return;
    }
    channel->bye = bye;
    channel->bye_received = last;
    channel->left = true;
    channel_work(channel->engine, channel);
}

static void take_line(struct stripe_channel *channel, const struct stripe_line *line)
{
    if (line->sequence != channel->in_sequence || line->rail >= STRIPE_RAILS_MAX ||
        (line->zero | line->zero2) != 0) {
        link_violated(&channel->link, "its control message %u is malformed", channel->in_sequence);
        return;
    }
    switch (line->kind) {
    case STRIPE_LINE_OFFER:
        rail_take_offer(channel, line);
        break;
    case STRIPE_LINE_ANSWER:
        rail_take_answer(channel, line);
        break;
    case STRIPE_LINE_REPORT:
        rail_take_report(channel, line);
        break;
    case STRIPE_LINE_BYE:
    case STRIPE_LINE_LEAVE:
        take_bye(channel, line);
        break;
    default:
        link_violated(&channel->link, "its control message is of unknown kind %u", line->kind);
    }
}

void control_take(struct stripe_channel *channel, uint32_t sequence)
{
    const uint32_t half = (STRIPE_GENERATION_MASK + 1) / 2;
    uint32_t ahead = (sequence - channel->in_sequence) & STRIPE_GENERATION_MASK;
    if (ahead >= half) {
        return; /* came before, on a rail that was lost since */
    }
    if (ahead >= STRIPE_INBOX_LINES) {
        link_violated(&channel->link, "it sent more control messages than its inbox holds");
        return;
    }
    channel->arrived |= (uint8_t)(1u << sequence % STRIPE_INBOX_LINES);
    uint32_t place = channel->in_sequence % STRIPE_INBOX_LINES;
    while (channel->arrived & 1u << place && channel->link.state != CRPC_STATE_DISCONNECTED) {
        struct stripe_line line;
        memcpy(&line, channel->area.base + (size_t)place * STRIPE_LINE_BYTES, sizeof(line));
        channel->arrived &= (uint8_t) ~(1u << place);
        take_line(channel, &line);
        channel->in_sequence++;
        place = channel->in_sequence % STRIPE_INBOX_LINES;
    }
}

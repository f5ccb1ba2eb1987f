/* rail.c: how a rail of a channel comes up, is lost, and comes back.
 *
 *              active side                          passive side
 *   MAKING     makes queue pairs, OFFER     ->      makes queue pairs,                MAKING
 *                                                   connects them                     CONNECTING
 *   OFFERED                                 <-      ANSWER                            PROBING
 *   CONNECTING connects them
 *   PROBING    probe                        ->      so the rail works this way        UP
 *   UP         and that way                 <-      probe
 *
 * The probes travel on the rail itself, all else on whatever carries control. An error on any of its
 * queue pairs, or a report of the peer, fences it: all its queue pairs go to the error state and the
 * devices are polled dry, after which nothing of the peer can land over it any more (FENCED). What
 * has not landed is then known, and reported; the peer sends that, and only that, over the other
 * rail. When it is fenced and the peer's report is here, the rail is DOWN. When this side's report is
 * sent, too, the active side offers it again after a while. Each attempt has its own queue pairs and
 * a number, the epoch.
 *
 * What takes system calls is done outside of the poll: queues.c makes queue pairs and windows, connect.c connects
 * the queue pairs. The peer hears nothing of a rail that is MAKING, and an honest one says nothing of it.
 *
 * Rail 0 begins with its queue pairs made, of which the hellos have connected the first: it carries
 * control until a rail is up, and is a queue pair like the others from then on.
 */
#include "channel/internal.h"

#include <string.h>

#include "base/error.h"

#define RAIL_RETRY_MAX_FACTOR 16u
/* When one rail is up the other has so long to come before the channel is connected without it. */
#define SETTLE_NS UINT64_C(300000000)

/* ---- Lost ------------------------------------------------------------------------------------ */

/* Nothing carries control any more, nor will soon. */
static bool nothing_is_left(const struct channel *channel)
{
    if (channel->up != 0 || channel->link.state != CRPC_STATE_CONNECTING) {
        return channel->up == 0;
    }
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        const struct channel_rail *rail = &channel->rails[i];
        if ((rail->state == RAIL_CONNECTING || rail->state == RAIL_PROBING) &&
            rail->fence == FENCE_NONE) {
            return false;
        }
    }
    const struct channel_queue *first = channel->rails[0].queues[0]; /* over it the sides met */
    return !first || first->queue_pair->failed;
}

bool rails_fail_without(struct channel *channel, uint32_t index)
{
    crpc_error error = {0};
    if (!nothing_is_left(channel)) {
        return false;
    }
    if (channel->link.state == CRPC_STATE_CONNECTING) {
        error_set(&error, CRPC_E_UNREACHABLE, 0,
                  "rail %u: the peer's device does not answer; has its side joined or accepted?",
                  index);
    } else {
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "connection lost: no rail is left (rail %u was the last); the peer's program, "
                  "its machine or the network is gone",
                  index);
    }
    link_fail(&channel->link, &error);
    return true;
}

void queue_failed(struct channel_queue *queue)
{
    struct channel *channel = queue->channel;
    const struct channel_rail *rail = &channel->rails[queue->rail];
    if (rail->state == RAIL_UP || rail->state == RAIL_PROBING || rail->state == RAIL_CONNECTING) {
        rail_want_fence(channel, queue->rail);
    } else if (queue->connected && !rails_fail_without(channel, queue->rail)) {
        /* It was rail 0's first, which is not up yet. The other carries on. */
        control_unsend(queue);
        channel_work(channel->engine, channel);
    }
}

/* ---- Up -------------------------------------------------------------------------------------- */

bool rails_settled(const struct channel *channel)
{
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        const struct channel_rail *rail = &channel->rails[i];
        bool tried = rail->epoch > 0 && rail->state == RAIL_DOWN && !channel->link.passive;
        if (channel->common & 1u << i && rail->state != RAIL_UP && !tried) {
            return false;
        }
    }
    return true;
}

void channel_connected(struct channel *channel)
{
    if (channel->link.state != CRPC_STATE_CONNECTING || channel->up == 0) {
        return;
    }
    wheel_clear(&channel->engine->links.wheel, &channel->settle_timer);
    channel->bar = CRPC_OK;
    link_connected(&channel->link);
    link_start_keepalive(&channel->link);
}

static void connected_if_settled(struct channel *channel)
{
    if (rails_settled(channel)) {
        channel_connected(channel);
    }
}

static void start_retry(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    struct channel_engine *engine = channel->engine;
    uint64_t pause_ns = channel->options.rail_retry_ns;
    if (channel->link.passive || pause_ns == CRPC_FOREVER || engine->lost & 1u << index ||
        wheel_timer_set(&rail->retry_timer) || channel->link.state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    /* The more attempts have failed, the longer the pause. */
    uint64_t factor = minimum(maximum(rail->attempts, 1), RAIL_RETRY_MAX_FACTOR);
    if (__builtin_mul_overflow(pause_ns, factor, &pause_ns)) {
        return;
    }
    link_set_timer(&engine->links, &rail->retry_timer, pause_ns);
}

/* The peer may send control again that a lost rail has not acknowledged. */
static void begin_attempt(struct channel *channel, uint32_t index)
{
    channel->control.repeats_left += CHANNEL_INBOX_MESSAGES;
    queues_make(channel, index);
}

/* Tries a rail that is down. */
void rail_retry(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    if (rail->state != RAIL_DOWN || channel->link.passive || !channel->link.opened ||
        channel->link.state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    if (rail->report_wanted) { /* of the epoch before, and not sent yet */
        start_retry(channel, index);
        return;
    }
    rail->epoch++;
    rail->attempts++;
    begin_attempt(channel, index);
}

void rail_made(struct channel *channel, uint32_t index, bool good)
{
    struct channel_rail *rail = &channel->rails[index];
    rail->state = RAIL_DOWN;
    if (good && channel->link.passive) {
        rail_connect(channel, index);
    } else if (good) {
        rail->state = RAIL_OFFERED;
        rail->offer_wanted = true;
        channel_work(channel->engine, channel);
    } else if (channel->link.passive) {
        rail_answer(channel, index, CHANNEL_ANSWER_FAILED);
        rails_fail_without(channel, index);
    } else if (!rails_fail_without(channel, index)) {
        start_retry(channel, index);
        connected_if_settled(channel);
    }
}

void rails_open(struct channel *channel)
{
    queues_end(channel, 0, channel->queue_pairs); /* fewer than we wanted were agreed on */
    channel->rails[0].queues[0]->connected = true;
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        if (channel->common & 1u << i) {
            channel->rails[i].state = RAIL_DOWN;
            rail_retry(channel, i);
        } else if (i < channel->engine->rail_count && channel->options.rails & 1u << i) {
            channel->rails[i].state = RAIL_LACKED;
            log_write(channel->engine->links.log, CRPC_LOG_WARNING,
                      "rail %u is left out: the peer has none", i);
        }
    }
    channel_work(channel->engine, channel);
}

static void rail_is_up(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    rail->state = RAIL_UP;
    rail->attempts = 0;
    channel->up |= 1u << index;
    grants_renew(channel, index);
    if (channel->link.state == CRPC_STATE_CONNECTING) {
        rail->shown_up = true;
        connected_if_settled(channel);
        if (channel->link.state == CRPC_STATE_CONNECTING &&
            !wheel_timer_set(&channel->settle_timer)) {
            link_set_timer(&channel->engine->links, &channel->settle_timer, SETTLE_NS);
        }
    } else {
        rail->changes++;
        link_report(&channel->link, LINK_EVENT_SERVICE);
        /* Attempts that failed while it was down are no losses. */
        bool again = channel->stats.rail_failures[index] > channel->stats.rail_recoveries[index];
        channel->stats.rail_recoveries[index] += again;
        log_write(channel->engine->links.log, CRPC_LOG_INFO,
                  again ? "rail %u is used again" : "rail %u is used, too", index);
    }
    channel_work(channel->engine, channel);
}

void rail_fill_offer(struct channel *channel, uint32_t index, struct channel_control *message)
{
    struct channel_rail *rail = &channel->rails[index];
    struct channel_offer *offer = (struct channel_offer *)message->body;
    rail->offer_wanted = false;
    rail->answer_wanted = false;
    offer->answer = message->kind == CHANNEL_CONTROL_ANSWER ? rail->answer : 0;
    if (offer->answer != CHANNEL_ANSWER_OK) {
        return;
    }
    offer->area_key = channel->area.keys[index].remote_key;
    offer->queue_pairs = (uint8_t)channel->queue_pairs;
    for (uint32_t i = 0; i < channel->queue_pairs; i++) {
        link_address_tell(&offer->addresses[i], &offer->ece_vendor, &channel->link,
                          rail->queues[i]->queue_pair);
    }
}

static bool take_addresses(struct channel *channel, struct channel_rail *rail,
                           const struct channel_control *message)
{
    const struct channel_offer *offer = (const struct channel_offer *)message->body;
    const uint32_t vendor = link_tells_ece(&channel->link) ? 0 : offer->ece_vendor;
    if (offer->queue_pairs != channel->queue_pairs || (offer->zero | offer->zero2 | vendor) != 0) {
        link_violated(&channel->link, "it offered a rail with %u queue pairs, not %u",
                      offer->queue_pairs, channel->queue_pairs);
        return false;
    }
    rail->peer_key = offer->area_key;
    rail->peer_ece_vendor = offer->ece_vendor;
    memcpy(rail->peer, offer->addresses, sizeof(rail->peer));
    return true;
}

void rail_answer(struct channel *channel, uint32_t index, uint8_t answer)
{
    channel->rails[index].answer = answer;
    channel->rails[index].answer_wanted = true;
    channel_work(channel->engine, channel);
}

void rail_take_offer(struct channel *channel, const struct channel_control *message)
{
    struct channel_rail *rail = &channel->rails[message->rail];
    const struct channel_offer *offer = (const struct channel_offer *)message->body;
    /* Until our report on the epoch before has been sent, the peer cannot have it. */
    if (!channel->link.passive || offer->answer != 0 || message->epoch <= rail->epoch ||
        rail->report_wanted ||
        (channel->common & 1u << message->rail && rail->state != RAIL_DOWN)) {
        link_violated(&channel->link, "it offered rail %u out of turn", message->rail);
        return;
    }
    rail->epoch = message->epoch;
    if (!(channel->common & 1u << message->rail)) {
        rail_answer(channel, message->rail, CHANNEL_ANSWER_LACKED);
        return;
    }
    if (!take_addresses(channel, rail, message)) {
        return;
    }
    begin_attempt(channel, message->rail);
}

void rail_take_answer(struct channel *channel, const struct channel_control *message)
{
    struct channel_rail *rail = &channel->rails[message->rail];
    const struct channel_offer *offer = (const struct channel_offer *)message->body;
    if (rail->state != RAIL_OFFERED || rail->offer_wanted || message->epoch != rail->epoch ||
        offer->answer > CHANNEL_ANSWER_FAILED) {
        link_violated(&channel->link, "it answered for rail %u out of turn", message->rail);
        return;
    }
    if (offer->answer != CHANNEL_ANSWER_OK) {
        rail->state = offer->answer == CHANNEL_ANSWER_LACKED ? RAIL_LACKED : RAIL_DOWN;
        queues_end(channel, message->rail, 0);
        if (!rails_fail_without(channel, message->rail)) {
            start_retry(channel, message->rail);
            connected_if_settled(channel);
        }
        return;
    }
    if (!take_addresses(channel, rail, message)) {
        return;
    }
    rail_connect(channel, message->rail);
}

void rail_take_probe(struct channel *channel, uint32_t index, uint32_t epoch)
{
    struct channel_rail *rail = &channel->rails[index];
    /* Each attempt has one probe in each direction: with it the rail is up. */
    if (epoch != (rail->epoch & CHANNEL_GENERATION_MASK) || rail->answer_wanted ||
        rail->state != RAIL_PROBING) {
        link_violated(&channel->link, "it probed rail %u out of turn", index);
        return;
    }
    if (rail->fence != FENCE_NONE) {
        return;
    }
    rail_is_up(channel, index);
    if (channel->link.passive) {
        control_probe(channel, index);
    }
}

/* ---- Down ------------------------------------------------------------------------------------ */

void rail_want_fence(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    if (rail->fence != FENCE_NONE) {
        return;
    }
    if (rail->state == RAIL_CONNECTING) {
        rail->fence = FENCE_WANTED; /* when its queue pairs are this side's again */
    } else if (rail->state == RAIL_UP || rail->state == RAIL_PROBING) {
        rail->fence = FENCE_WANTED;
        list_append_once(&channel->engine->fences, &channel->fence_link);
    }
}

void rail_fill_report(struct channel *channel, uint32_t index, struct channel_control *message)
{
    /* DOWN, if the peer's report was here first. */
    assert(channel->rails[index].state == RAIL_FENCED || channel->rails[index].state == RAIL_DOWN);
    struct channel_report *report = (struct channel_report *)message->body;
    report->posted = channel->receive.number;
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        const struct channel_incoming *incoming = &channel->receive.incoming[slot];
        for (uint32_t share = 0; share < CHANNEL_RAILS_MAX; share++) {
            bool unseen = incoming->open && !(incoming->seen & 1u << share);
            report->unseen[share][slot / 8] |= (uint8_t)((uint32_t)unseen << slot % 8);
        }
    }
    channel->rails[index].report_wanted = false;
}

/* A share that the lost rail carried: has it arrived? */
static bool arrived(const struct channel *channel, const struct channel_report *report,
                    uint64_t number, uint32_t share)
{
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    if (number >= report->posted) {
        return false; /* received for after the fence, posted here before we knew of it */
    }
    if (report->posted > number + channel->slot_mask + 1) {
        return true; /* the slot has a later message: this one is complete */
    }
    return !(report->unseen[share][slot / 8] >> slot % 8 & 1u);
}

/* Fenced, and the peer has reported, so it has fenced, too: what has not arrived goes over the other
 * rail. */
static void resolve(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_outgoing *outgoing = &channel->send.outgoing[slot];
        for (uint32_t share = 0; share < CHANNEL_RAILS_MAX && outgoing->count != 0; share++) {
            if (!(outgoing->mask & ~outgoing->done & 1u << share) ||
                outgoing->carrier[share] != index) {
                continue;
            }
            outgoing->sample.valid = false; /* it took as long as the rail needed to fail */
            if (arrived(channel, &rail->report, outgoing->number, share)) {
                outgoing_done(channel, outgoing, share);
            } else {
                outgoing_leaves_rail(channel, outgoing, share);
                outgoing->carrier[share] = NO_RAIL;
                outgoing->repeat |= (uint8_t)(1u << share);
                channel->send.repeats++;
            }
        }
    }
    rail->state = RAIL_DOWN;
    rail->report_known = false;
    start_retry(channel, index);
    connected_if_settled(channel);
    channel_work(channel->engine, channel);
}

static void finish_fence(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    bool was_up = rail->state == RAIL_UP;
    rail->fence = FENCE_NONE;
    if (rail->answer_wanted) { /* the peer has not been told of these queue pairs, nor will be */
        rail->answer = CHANNEL_ANSWER_FAILED;
        rail->state = RAIL_DOWN;
        queues_end(channel, index, 0);
        rails_fail_without(channel, index);
        return;
    }
    rail->state = RAIL_FENCED;
    rail->failed_once = true;
    channel->up &= ~(1u << index);
    queues_end(channel, index, 0);
    sends_rail_lost(channel, index);
    channel->stats.rail_failures[index] += was_up; /* or it was only tried */
    if (rails_fail_without(channel, index)) {
        return;
    }
    log_write(channel->engine->links.log, CRPC_LOG_WARNING,
              was_up ? "rail %u is lost; the other carries on" : "rail %u does not work yet",
              index);
    if (channel->link.state == CRPC_STATE_CONNECTING) {
        rail->shown_up = false;
    } else if (was_up) {
        rail->changes++;
        link_report(&channel->link, LINK_EVENT_SERVICE);
    }
    rail->report_wanted = true;
    if (rail->report_known) {
        resolve(channel, index);
    }
    channel_work(channel->engine, channel);
}

bool channel_fence(struct channel *channel)
{
    bool drain = false;
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        struct channel_rail *rail = &channel->rails[i];
        if (rail->state == RAIL_CONNECTING) {
            continue;
        }
        if (rail->fence == FENCE_WANTED) {
            for (uint32_t j = 0; j < channel->queue_pairs; j++) {
                rail->queues[j]->operations->queue_pair_fail(rail->queues[j]->queue_pair);
            }
            rail->fence = FENCE_DRAINED;
            drain = true;
            list_append_once(&channel->engine->fences, &channel->fence_link);
        } else if (rail->fence == FENCE_DRAINED) {
            finish_fence(channel, i);
        }
    }
    return drain;
}

void rail_take_report(struct channel *channel, const struct channel_control *message)
{
    struct channel_rail *rail = &channel->rails[message->rail];
    bool open = rail->state == RAIL_PROBING || rail->state == RAIL_UP ||
                rail->state == RAIL_FENCED ||
                (rail->state == RAIL_CONNECTING && !channel->link.passive);
    if (!open || rail->answer_wanted || rail->report_known || message->epoch != rail->epoch) {
        link_violated(&channel->link, "it reported on rail %u out of turn", message->rail);
        return;
    }
    memcpy(&rail->report, message->body, sizeof(rail->report));
    if (rail->report.zero != 0) {
        link_violated(&channel->link, "its report on rail %u is malformed", message->rail);
        return;
    }
    rail->report_known = true;
    if (rail->state == RAIL_FENCED) {
        resolve(channel, message->rail);
    } else {
        rail_want_fence(channel, message->rail);
    }
}

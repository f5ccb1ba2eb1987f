/* wake.c: waking a sender that sleeps. A clear-to-send makes no completion, so a sender whose program sleeps would have to
 * look for it again and again. Instead it tells the receiver, once, for which message it waits (ASLEEP), and the receiver
 * answers when that message's clear-to-sends are written (WAKE): a message of control, which does make a completion.
 *
 *   sender     ASLEEP n      when it has slept for a while     ->
 *   receiver                 <-      WAKE        at once, if they are written; else when they are
 *
 * Nothing is lost in between: whichever is first, ASLEEP or the receive, there is one WAKE for each ASLEEP, and no ASLEEP
 * before the WAKE of the one before. A sender that does not sleep says nothing, and its clear-to-sends stay silent.
 *
 * A receiver may post and then not poll. Then it hears no ASLEEP, and its clear-to-sends come all the same. So a sender that has
 * asked still looks, but seldom: it is late by as long as it has waited, and by 16 ms at the most.
 *
 * WAKE may overtake the clear-to-sends, which are on other queue pairs. So a sender that is awake and finds none looks again
 * soon, as one does that has just gone to sleep.
 */
#include "channel/internal.h"

/* So long a sleeping sender looks by itself: most receives come soon, and a word each way would cost more. */
#define LOOK_BEFORE_NS UINT64_C(80000)

bool wake_possible(const struct channel *channel)
{
    return (channel->link.peer.features & CHANNEL_FEATURE_WAKE) != 0 && channel->up != 0 &&
           channel->leave < BYE_WANTED;
}

/* It waits for its peer's word, and not for its own application. */
static bool waits_for_clear_to_send(const struct channel *channel)
{
    return channel->send.head.clear.count == 0 || channel->send.rights_wanted;
}

/* ---- The sender ------------------------------------------------------------------------------ */

void wakes_want(struct channel_engine *engine)
{
    if (engine->look_backoff_ns < LOOK_BEFORE_NS) {
        return;
    }
    for (struct list *at = engine->waiting.next; at != &engine->waiting; at = at->next) {
        struct channel *channel = list_entry(at, struct channel, waiting_link);
        if (!channel->wake.asleep_wanted && !channel->wake.asleep_said && wake_possible(channel) &&
            waits_for_clear_to_send(channel)) {
            channel->wake.asleep_wanted = true;
            channel_work(engine, channel);
        }
    }
}

bool wakes_come(const struct channel_engine *engine)
{
    for (const struct list *at = engine->waiting.next; at != &engine->waiting; at = at->next) {
        const struct channel *channel = list_entry(at, const struct channel, waiting_link);
        if (!channel->wake.asleep_said || channel->send.repeats > 0) {
            return false;
        }
    }
    return true;
}

void wake_fill_asleep(struct channel *channel, struct channel_control *message)
{
    *(struct channel_asleep *)message->body =
        (struct channel_asleep){.number = channel->send.number};
    channel->wake.asleep_wanted = false;
    channel->wake.asleep_said = true;
}

void wake_take(struct channel *channel)
{
    struct channel_engine *engine = channel->engine;
    if (!channel->wake.asleep_said) {
        link_violated(&channel->link, "it woke a sender that had not said that it sleeps");
        return;
    }
    channel->wake.asleep_said = false;
    engine->look_backoff_ns = LOOK_BACKOFF_MIN_NS;
    channel_work(engine, channel);
}

/* ---- The receiver ---------------------------------------------------------------------------- */

void wake_take_asleep(struct channel *channel, const struct channel_control *message)
{
    const struct channel_asleep *asleep = (const struct channel_asleep *)message->body;
    if (!(channel->link.peer.features & CHANNEL_FEATURE_WAKE) || channel->wake.owed ||
        channel->wake.due) {
        link_violated(&channel->link, "it said out of turn that it sleeps");
        return;
    }
    channel->wake.owed = true;
    channel->wake.number = asleep->number;
    channel_work(channel->engine, channel);
}

void wake_if_granted(struct channel *channel)
{
    for (uint32_t rails = channel->up; rails != 0; rails &= rails - 1) {
        if (channel->receive.grant_number[__builtin_ctz(rails)] <= channel->wake.number) {
            return;
        }
    }
    if (channel->up != 0) { /* also when this side has sent all, and its BYE: it receives on */
        channel->wake.owed = false;
        channel->wake.due = true;
        control_flush(channel);
    }
}

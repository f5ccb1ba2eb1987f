/* timers.c: what happens when no message comes: messages are sent again, conversations are given
 * up, and it is noticed that a peer's process has died. */
#include "simnic/cm/internal.h"

#include <errno.h>

#define MILLISECOND 1000000ull
#define RETRY_NS (500 * MILLISECOND) /* five seconds in all, where the kernel takes a minute */
#define RETRY_COUNT 9
#define DELAYED_NS                                                                                 \
    (68720ull * 16 * MILLISECOND)        /* the kernel's MRA: 4.096 us * 2^24, sixteen times */
#define TIMEWAIT_NS (1074 * MILLISECOND) /* 4.096 us * 2^18, the ack timeout of the path */
#define POLL_NS (100 * MILLISECOND)      /* between two looks whether the peers live */

static void arm(struct cm_id *id, uint64_t delay)
{
    struct cm *cm = cm_of(id);
    id->talk.due = cm_now(cm) + delay;
    cm->timers_changed = true;
}

void timer_expect_answer(struct cm_id *id, const struct cm_message *request)
{
    id->talk.last = *request;
    id->talk.attempts = RETRY_COUNT;
    arm(id, RETRY_NS);
    outbox_to_peer(id, request);
}

void timer_delayed(struct cm_id *id)
{
    id->talk.attempts = 0;
    arm(id, DELAYED_NS);
}

void timer_stop(struct cm_id *id)
{
    id->talk.due = 0;
    id->talk.attempts = 0;
}

void timer_timewait(struct cm_id *id)
{
    timer_stop(id);
    id->talk.state = TALK_TIMEWAIT;
    arm(id, TIMEWAIT_NS);
}

/* The answer does not come. */
static void give_up(struct cm_id *id)
{
    enum talk_state state = id->talk.state;
    timer_stop(id);
    switch (state) {
    case TALK_REQ_SENT:
    case TALK_REP_SENT:
    case TALK_SIDR_REQ_SENT:
        /* The peer may still answer later. It should know that nobody waits for it. */
        talk_leave(id);
        if (id->state == ID_CONNECT) {
            event_report(id, EVENT_UNREACHABLE, -ETIMEDOUT);
        }
        break;
    case TALK_DREQ_SENT:
        timer_timewait(id);
        if (id->state == ID_CONNECT) {
            id->state = ID_DISCONNECT;
            event_report(id, EVENT_DISCONNECTED, -ETIMEDOUT);
        }
        break;
    case TALK_TIMEWAIT:
        id->talk.state = TALK_IDLE;
        if (id->state == ID_DISCONNECT) {
            event_report(id, EVENT_TIMEWAIT_EXIT, 0);
        }
        break;
    default:
        break;
    }
}

static void expired(struct cm_id *id)
{
    if (id->talk.attempts == 0) {
        give_up(id);
        return;
    }
    id->talk.attempts--;
    outbox_to_peer(id, &id->talk.last);
    arm(id, RETRY_NS);
}

static bool has_peer(const struct cm_id *id)
{
    return id->talk.state != TALK_IDLE && id->talk.state != TALK_TIMEWAIT &&
           id->talk.state != TALK_DREQ_RECEIVED;
}

static bool peer_is_gone(const struct cm_id *id)
{
    const struct cm_host *host = &cm_of(id)->host;
    return host->gone(host->context, id->talk.peer.slot, id->talk.peer.generation);
}

uint64_t timers_run(struct cm *cm, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    bool poll = now >= cm->poll_due, peers = false;
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        struct cm_id *id = cm->ids[i];
        if (!id) {
            continue;
        }
        if (id->talk.due && id->talk.due <= now) {
            expired(id);
        }
        if (poll && has_peer(id) && peer_is_gone(id)) {
            receive_peer_died(id);
        }
        peers |= has_peer(id);
        if (id->talk.due && id->talk.due < next) {
            next = id->talk.due;
        }
    }
    if (poll) {
        cm->poll_due = now + POLL_NS;
    }
    return peers && cm->poll_due < next ? cm->poll_due : next;
}

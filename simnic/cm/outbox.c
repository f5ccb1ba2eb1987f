/* outbox.c: messages on their way out. The host's send may block or call back, so it is never
 * called with the cm's lock held. Messages are queued under the lock, and sent when a call ends. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <stdlib.h>

#define OUTGOING_LIMIT 8192        /* further messages are lost; timers send them again */
#define RESEND_NS (1000 * 1000ull) /* until a full ring is tried again */

struct cm_message message_to_peer(const struct cm_id *id, enum cm_message_type type)
{
    struct cm_message message = {.type = type,
                                 .destination_generation = id->talk.peer.generation,
                                 .source_communication_id = id->talk.own_id,
                                 .destination_communication_id = id->talk.peer_id};
    return message;
}

void outbox_add(struct cm *cm, uint32_t slot, int rail, const struct cm_message *message)
{
    struct outgoing *out = cm->outgoing_count < OUTGOING_LIMIT ? calloc(1, sizeof(*out)) : NULL;
    if (!out) {
        return;
    }
    out->slot = slot;
    out->rail = rail;
    out->message = *message;
    out->message.magic = CM_MESSAGE_MAGIC;
    out->message.bytes = sizeof(out->message);
    out->message.source_generation = cm->host.generation(cm->host.context, cm->host.slot);
    *cm->last_outgoing = out;
    cm->last_outgoing = &out->next;
    cm->outgoing_count++;
}

void outbox_to_peer(struct cm_id *id, const struct cm_message *message)
{
    outbox_add(cm_of(id), id->talk.peer.slot, id->rail < 0 ? 0 : id->rail, message);
}

static void remove_outgoing(struct cm *cm, struct outgoing *out)
{
    struct outgoing **at = &cm->first_outgoing;
    while (*at != out) {
        at = &(*at)->next;
    }
    *at = out->next;
    if (cm->last_outgoing == &out->next) {
        cm->last_outgoing = at;
    }
    cm->outgoing_count--;
    free(out);
}

/* If a slot's ring is full, only messages to that slot wait, in order. */
void outbox_flush(struct cm *cm)
{
    bool full[SLOT_COUNT] = {false};
    if (cm->sending) {
        return;
    }
    cm->sending = true;
    for (;;) {
        struct outgoing *out = cm->first_outgoing;
        while (out && full[out->slot % SLOT_COUNT]) {
            out = out->next;
        }
        if (!out) {
            break;
        }
        pthread_mutex_unlock(&cm->lock);
        int result = cm->host.send(cm->host.context, out->slot, out->rail, &out->message,
                                   sizeof(out->message));
        pthread_mutex_lock(&cm->lock);
        if (result == -EAGAIN) {
            full[out->slot % SLOT_COUNT] = true;
        } else {
            remove_outgoing(cm, out);
        }
    }
    cm->sending = false;
    pthread_cond_broadcast(&cm->sent);
    if (cm->first_outgoing) {
        cm->resend_due = cm_now(cm) + RESEND_NS;
        cm->timers_changed = true;
    }
}

void outbox_settle(struct cm *cm)
{
    while (cm->sending) {
        pthread_cond_wait(&cm->sent, &cm->lock);
    }
    outbox_flush(cm);
}

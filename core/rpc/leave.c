/* leave.c: how a connection ends well: both sides say FIN after their last request, answer what
 * they owe, and part when nothing is left; and what watches over a connection meanwhile.
 */
#include "rpc/internal.h"

#include <stdio.h>

#include "base/error.h"

/* Refuses new calls and says so to the peer with the next batch. */
void endpoint_leave(struct rpc_endpoint *endpoint)
{
    if (endpoint->leave != LEAVE_NONE || endpoint->link.failing) {
        return;
    }
    endpoint->leave = LEAVE_WANTED;
    endpoint->link.state = CRPC_STATE_CLOSING;
    link_start_keepalive(&endpoint->link); /* for the peer's FIN, and that it parts */
    rpc_set_bars(endpoint);
    atomic_store_explicit((_Atomic uint32_t *)&endpoint->in.mailbox->flags, WIRE_MAILBOX_CLOSING,
                          memory_order_release);
    list_append_once(&endpoint->engine->work, &endpoint->work_link);
}

/* Both took leave and nothing is left to be said; what is not to be parsed says something. That there is a larger ring is of no
 * use to anybody then. */
bool endpoint_left(const struct rpc_endpoint *endpoint)
{
    return endpoint->leave == LEAVE_SAID && !endpoint->in.distrusted &&
           endpoint->in.fin != FIN_NONE && endpoint->calls.used == 0 && endpoint->owed.count == 0 &&
           endpoint->out.batch_messages == rpc_grow_words(endpoint) &&
           endpoint->in.batch_left == 0 && endpoint->in.arrivals_head == endpoint->in.arrivals_tail;
}

/* Ends the connection once that is so and the peer's device has everything: its acknowledgement
 * of the FIN or of the last reply, both of which ask for a completion; quiet replies hide behind
 * the next. */
void endpoint_check_left(struct rpc_endpoint *endpoint)
{
    if (endpoint->link.failing || !endpoint_left(endpoint)) {
        return;
    }
    if (endpoint->link.queue_pair->completed != endpoint->link.queue_pair->posted) {
        if (endpoint->link.queue_pair->unsignaled > 0) {
            endpoint_read_mailbox(endpoint); /* a signaled WQE behind the quiet replies */
        }
        return;
    }
    crpc_error none = {0};
    link_fail(&endpoint->link, &none);
}

/* ---- As a link's service --------------------------------------------------------------------- */

void rpc_leave(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    endpoint_leave(endpoint);
    endpoint_flush(endpoint);
}

void rpc_describe_leave(const struct link *link, char *text, size_t bytes)
{
    const struct rpc_endpoint *endpoint = endpoint_of_link(link);
    snprintf(text, bytes, "%u calls were unanswered, %u requests not replied to%s",
             endpoint->calls.used, endpoint->owed.count,
             rpc_lane_has_open(endpoint) ? ", one-sided ops not done" : "");
}

/* Makes the queue pair show whether it moves. Returns false if it does not, which nothing else tells if
 * the peer has no receives, whether or not it says anything itself: the connection has ended. */
static bool rpc_probe(struct rpc_endpoint *endpoint)
{
    const struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    crpc_error error = {0};
    if (link_stuck(&endpoint->progress, queue_pair)) {
        error_set(
            &error, CRPC_E_DISCONNECTED, 0,
            "connection lost: queue pair 0x%x has completed nothing for %u keepalives; the peer "
            "posts no receives, or a device is at fault",
            queue_pair->number, LINK_STUCK_INTERVALS);
        link_fail(&endpoint->link, &error);
        return false;
    }
    if (queue_pair->posted != queue_pair->completed && !link_awaits_completion(queue_pair)) {
        endpoint_read_mailbox(endpoint);
    }
    return true;
}

/* A peer that went silent is probed with a mailbox READ: if its machine is gone, the transport's
 * retries end the connection, and its calls with it. */
bool rpc_keepalive(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    if (link->heard == 0) {
        endpoint_read_mailbox(endpoint);
    }
    if (!rpc_probe(endpoint)) {
        return false;
    }
    rpc_yield_if_idle(endpoint);
    /* One that stands still is looked at often, although nobody waits for it. */
    return endpoint->calls.used > 0 || endpoint->leave != LEAVE_NONE ||
           endpoint->progress.intervals > 0 || rpc_lane_has_open(endpoint);
}

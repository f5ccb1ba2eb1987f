/* change.c: queues that change while they are in use. Cold path. */
#include "queue/internal.h"

#include "base/error.h"

uint32_t queue_all_access(const struct queue_engine *engine)
{
    return CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
           (engine->nic->atomics ? CRPC_ACCESS_REMOTE_ATOMIC : 0);
}

/* Its connection is not made yet: whoever makes it uses the link's options. */
static bool is_new(const struct queue *queue)
{
    return queue->options.kind == NIC_QUEUE_RC && queue->link.state == CRPC_STATE_NEW;
}

static int32_t check_state(struct queue *queue, crpc_error *error)
{
    const struct link *link = &queue->link;
    if (link->failing || link->state == CRPC_STATE_DISCONNECTED) {
        return error_set(error, CRPC_E_DISCONNECTED, 0, "the queue has ended");
    }
    if (!queue->nic || link->state == CRPC_STATE_CONNECTING || link->working ||
        link_joining(link)) {
        return error_set(error, CRPC_E_STATE, 0,
                         "the queue waits to be accepted, or is being connected; change it when it "
                         "is connected");
    }
    return CRPC_OK;
}

/* To a queue pair that is not connected, only the access means something. */
static int32_t tell_device(struct queue *queue, const struct nic_queue_change *change,
                           crpc_error *error)
{
    struct nic_queue_change now = *change;
    if (is_new(queue)) {
        now.mask &= NIC_CHANGE_ACCESS;
    }
    return now.mask ? queue->operations->modify(queue->nic, &now, error) : CRPC_OK;
}

static void keep(struct queue *queue, const struct nic_queue_change *change)
{
    struct queue_options *options = &queue->options;
    struct nic_transport *transport = &queue->link.options.transport;
    uint32_t mask = change->mask;
    options->not_ready_timer =
        mask & NIC_CHANGE_NOT_READY_TIMER ? change->not_ready_timer : options->not_ready_timer;
    options->retry_timeout =
        mask & NIC_CHANGE_RETRY_TIMEOUT ? change->retry_timeout : options->retry_timeout;
    options->retry_count =
        mask & NIC_CHANGE_RETRY_COUNT ? change->retry_count : options->retry_count;
    options->rnr_tries = mask & NIC_CHANGE_RNR_TRIES ? change->rnr_tries : options->rnr_tries;
    options->queue_key = mask & NIC_CHANGE_QUEUE_KEY ? change->queue_key : options->queue_key;
    queue->access = mask & NIC_CHANGE_ACCESS ? change->access : queue->access;
    queue->srq_limit = mask & NIC_CHANGE_SRQ_LIMIT ? change->srq_limit : queue->srq_limit;
    transport->not_ready_timer = options->not_ready_timer;
    transport->retry_timeout = options->retry_timeout;
    transport->retry_count = options->retry_count;
    transport->rnr_tries = options->rnr_tries;
}

int32_t queue_modify(struct queue *queue, const struct nic_queue_change *change, crpc_error *error)
{
    int32_t status = check_state(queue, error);
    if (status == CRPC_OK) {
        status = tell_device(queue, change, error);
    }
    if (status == CRPC_OK) {
        keep(queue, change);
    }
    return status;
}

/* ---- The limit of an SRQ --------------------------------------------------------------------- */

/* What the limit before this one has caused cannot be told apart from what this one has, so it is reported:
 * one event too many does no harm, and one too few would. */
void queue_limit_reached(struct queue *queue)
{
    if (!queue->link.failing) {
        link_report(&queue->link, LINK_EVENT_SERVICE);
    }
}

void queue_emit_limit(struct link *link, struct output *output)
{
    const struct queue *queue = queue_from_link(link);
    link->events &= ~LINK_EVENT_SERVICE;
    if (queue->srq_limit == 0) { /* it was set to 0 since: nobody waits for this */
        return;
    }
    *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_SRQ_LIMIT,
                                        .flags = NIC_DONE_OF_QUEUE,
                                        .endpoint = {link->handle},
                                        .user_data = link->options.user_data,
                                        .endpoint_user_data = link->options.user_data};
}

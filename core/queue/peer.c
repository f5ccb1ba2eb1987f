/* peer.c: what the application asks of a queue, but ops. Cold path. */
#include "queue/internal.h"

#include <string.h>

#include "base/error.h"

struct link *queue_link(struct queue *queue)
{
    return &queue->link;
}

struct queue *queue_of_link(struct link *link)
{
    return queue_from_link(link);
}

/* ---- Making and connecting ------------------------------------------------------------------- */

int32_t queue_open(struct queue_engine *engine, const struct queue_options *options,
                   struct queue **queue, crpc_error *error)
{
    struct link *link;
    assert(options->kind != NIC_QUEUE_RC);
    int32_t status = queue_service.create(&engine->links, &link, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = queue_service.prepare(link, options, error);
    if (status != CRPC_OK) {
        link_close(link);
        return status;
    }
    link->state = CRPC_STATE_CONNECTED;
    *queue = queue_from_link(link);
    return CRPC_OK;
}

int32_t queue_join_address(struct queue *queue, const struct nic_address *address,
                           crpc_error *error)
{
    return link_join_address(&queue->link, address, error);
}

int32_t queue_reject(struct queue *queue, const void *private_data, uint32_t private_bytes)
{
    return link_reject_plain(&queue->link, private_data, private_bytes);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

int32_t queue_fail(struct queue *queue)
{
    struct link *link = &queue->link;
    crpc_error error = {0};
    if (nic_kind_is_shared(queue->options.kind)) {
        return CRPC_E_UNSUPPORTED;
    }
    if ((link->state != CRPC_STATE_CONNECTED && link->state != CRPC_STATE_CLOSING) ||
        link->failing) {
        return CRPC_E_STATE;
    }
    error_set(&error, CRPC_E_DISCONNECTED, 0, "this side has moved the queue to the error state");
    link_fail(link, &error);
    return CRPC_OK;
}

int32_t queue_drain(struct queue *queue, uint64_t timeout_ns)
{
    return nic_kind_is_shared(queue->options.kind) ? CRPC_E_UNSUPPORTED
                                                   : link_disconnect(&queue->link, timeout_ns);
}

int32_t queue_close(struct queue *queue)
{
    if (queue->users > 0) {
        return CRPC_E_BUSY;
    }
    link_close(&queue->link);
    return CRPC_OK;
}

int32_t queue_reset_stream(struct queue *queue, uint32_t stream, crpc_error *error)
{
    const struct link *link = &queue->link;
    if (queue->options.streams == 0) {
        return CRPC_E_UNSUPPORTED;
    }
    if (stream >= queue->options.streams) {
        return CRPC_E_INVALID;
    }
    if ((link->state != CRPC_STATE_CONNECTED && link->state != CRPC_STATE_CLOSING) ||
        link->failing || queue->nic->failed) {
        return CRPC_E_STATE;
    }
    int32_t status = queue->operations->reset_stream(queue->nic, (uint16_t)stream, error);
    return status == CRPC_E_STATE ? CRPC_E_BUSY : status;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

void queue_get_info(const struct queue *queue, struct queue_info *info)
{
    const struct link *link = &queue->link;
    const struct queue_options *options = &queue->options;
    const struct nic_queue *nic = queue->nic;
    *info = (struct queue_info){
        .kind = options->kind ? options->kind : NIC_QUEUE_RC,
        .state = link->state,
        .handle = link->handle,
        .user_data = link->options.user_data,
        .number = queue->number,
        .sends = options->sends,
        .send_pieces = options->send_pieces,
        .inline_bytes = options->inline_bytes,
        .receives = options->receives,
        .receive_pieces = options->receive_pieces,
        .sends_open = nic ? nic->sends.producer - nic->sends.consumer : 0,
        .receives_open = nic ? nic->receives_open : 0,
        .not_ready_timer = options->kind == NIC_QUEUE_RC && !options->not_ready_timer
                               ? NIC_MIN_RNR_TIMER
                               : options->not_ready_timer,
        .access = queue->access,
        .retry_timeout = options->retry_timeout,
        .retry_count = options->retry_count,
        .rnr_tries = options->rnr_tries,
        .queue_key = options->queue_key,
        .srq_limit = queue->srq_limit,
        .users = queue->users,
        .tags = options->tags,
        .tags_open = nic && nic->tags ? nic->tags->open : 0,
        .receive_queue = queue->srq_handle,
        .streams = options->streams,
        .streams_failed = nic ? nic->streams_failed : 0,
        .private_bytes = link->peer.private_bytes,
    };
    memcpy(info->private_data, link->peer.private_data, link->peer.private_bytes);
    if (link->queue_pair) {
        queue->engine->nic->operations->queue_pair_address(link->queue_pair, &info->address);
    }
    if (link->queue_pair && !link->working && !link_joining(link)) {
        info->peer_number = link->queue_pair->peer_number;
    }
    link_addresses(link, info->peer_address, sizeof(info->peer_address), info->local_address,
                   sizeof(info->local_address));
}

const struct queue_options *queue_limits(const struct queue *queue)
{
    return &queue->options;
}

void queue_get_stats(const struct queue *queue, struct nic_queue_stats *stats)
{
    *stats = queue->nic ? queue->nic->stats : (struct nic_queue_stats){0};
}

void queue_get_error(const struct queue *queue, crpc_error *error)
{
    *error = queue->link.error;
}

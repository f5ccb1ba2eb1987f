/* request.c: what happens to a connection request before the owner sees it. Runs in the cm thread.
 *
 * A listener on a wildcard address hears of every RDMA device of the machine; only those that came
 * in at this nic's port can be served. librdmacm takes requests from the kernel as they come, so
 * the backlog is kept here.
 */
#include "cm/internal.h"

static void turn_away(struct cm_identifier *listener, struct rdma_cm_id *id, uint32_t reason)
{
    uint8_t refusal[REFUSAL_BYTES];
    pthread_mutex_lock(&listener->cm->mutex);
    listener->turned_away++;
    pthread_mutex_unlock(&listener->cm->mutex);
    cm_refusal_write(refusal, reason);
    rdma_reject(id, refusal, sizeof(refusal));
    rdma_destroy_id(id);
}

uint64_t cm_turned_away(const struct cm_identifier *listener)
{
    pthread_mutex_lock(&listener->cm->mutex);
    uint64_t count = listener->turned_away;
    pthread_mutex_unlock(&listener->cm->mutex);
    return count;
}

static bool backlog_full(struct cm_identifier *listener)
{
    pthread_mutex_lock(&listener->cm->mutex);
    bool full = listener->waiting >= listener->backlog;
    pthread_mutex_unlock(&listener->cm->mutex);
    return full;
}

static uint8_t lesser(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

void cm_incoming(struct cm_identifier *listener, struct rdma_cm_id *id,
                 const struct rdma_conn_param *parameters)
{
    struct cm *cm = listener->cm;
    if (!cm_same_port(cm, id)) {
        turn_away(listener, id, REFUSAL_OTHER_DEVICE);
        return;
    }
    struct cm_identifier *identifier = backlog_full(listener) ? NULL : cm_identifier_new(cm, NULL);
    if (!identifier) {
        turn_away(listener, id, REFUSAL_BACKLOG_FULL);
        return;
    }
    identifier->id = id;
    identifier->passive = true;
    identifier->read_depth_in = lesser(parameters->responder_resources, cm->read_depth_in);
    identifier->read_depth_out = lesser(parameters->initiator_depth, cm->read_depth_out);
    id->context = identifier;
    cm_note_addresses(identifier);

    struct cm_event *event = cm_spare_event(cm, CM_EVENT_CONNECT_REQUEST, identifier);
    cm_event_set_private(event, parameters->private_data, parameters->private_data_len);
    cm_queue_spare(cm, listener);
}

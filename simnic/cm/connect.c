/* connect.c: the commands that make and end connections, and how a conversation is left. receive.c
 * handles what the peer answers. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <string.h>

#define BACKLOG_MAX 1024
#define RETRIES_MAX 7
#define EVENT_COMMUNICATION_ESTABLISHED 4 /* IBV_EVENT_COMM_EST */

static uint8_t at_most(uint8_t value, uint8_t most)
{
    return value < most ? value : most;
}

static bool is_datagram(const struct cm_id *id)
{
    return id->queue_pair_type == QUEUE_PAIR_UD;
}

static void put_private(struct cm_message *message, const void *data, uint8_t bytes)
{
    message->private_length = bytes;
    memcpy(message->private_data, data, bytes);
}

static void put_addresses(struct cm_message *message, const struct cm_id *id)
{
    message->ip_version = address_raw(&id->source, message->source_address);
    address_raw(&id->destination, message->destination_address);
    message->source_port = htons(address_port(&id->source));
    message->destination_port = htons(address_port(&id->destination));
    message->port_space = id->port_space;
    message->queue_pair_type = id->queue_pair_type;
    message->traffic_class = id->traffic_class;
}

static void put_queue_pair(struct cm_message *message, const struct cm_id *id,
                           const struct rdma_ucm_conn_param *parameters)
{
    message->queue_pair_number = parameters->qp_num;
    message->packet_sequence_number = id->packet_sequence_number;
    message->responder_resources = parameters->responder_resources;
    message->initiator_depth = parameters->initiator_depth;
    message->flow_control = parameters->flow_control;
    message->retry_count = at_most(parameters->retry_count, RETRIES_MAX);
    message->rnr_retry_count = at_most(parameters->rnr_retry_count, RETRIES_MAX);
    message->shared_receive_queue = parameters->srq != 0;
}

static void put_ece(struct cm_message *message, const struct rdma_ucm_ece *ece)
{
    message->ece_vendor_id = ece->vendor_id;
    message->ece_attributes = ece->attr_mod;
}

static struct port_key destination_of(const struct cm_id *id)
{
    struct port_key to = {.port_space = id->port_space,
                          .port = address_port(&id->destination),
                          .family = id->destination.ss_family};
    address_raw(&id->destination, to.address);
    return to;
}

/* What the other host answers when nobody listens. There is only one host here, so it need not be asked. A port is a service of InfiniBand's
 * connection manager, whatever the address: if there is one, it is the kernel's rdma_cm that refuses, as applications do. */
static void no_listener(struct cm_id *id)
{
    struct port_key to = destination_of(id);
    int32_t reason =
        ports_listened(&cm_of(id)->host, &to) ? REJECT_CONSUMER_DEFINED : REJECT_INVALID_SERVICE_ID;
    struct cm_event *event = is_datagram(id) ? event_new(id, EVENT_UNREACHABLE, SIDR_UNSUPPORTED)
                                             : event_new(id, EVENT_REJECTED, reason);
    if (event && is_datagram(id)) {
        event->response.param.ud.private_data_len = SIDR_REPLY_PRIVATE_BYTES;
    } else if (event) {
        event->response.param.conn.private_data_len = REJECT_PRIVATE_BYTES;
    }
    event_queue(event);
}

static bool find_listener(struct cm_id *id)
{
    struct port_key to = destination_of(id);
    return ports_find(&cm_of(id)->host, &to, &id->talk.peer);
}

static void begin_talk(struct cm_id *id, const struct rdma_ucm_conn_param *parameters)
{
    id->state = ID_CONNECT;
    id->talk.begun = true;
    id->talk.receive_psn = id->packet_sequence_number;
    id->talk.responder_resources = parameters->responder_resources;
    id->talk.initiator_depth = parameters->initiator_depth;
    id->talk.retry_count = at_most(parameters->retry_count, RETRIES_MAX);
    id->talk.rnr_retry_count = at_most(parameters->rnr_retry_count, RETRIES_MAX);
}

static int connect_id(struct cm_id *id, const struct rdma_ucm_connect *command)
{
    const struct rdma_ucm_conn_param *parameters = &command->conn_param;
    uint8_t most = is_datagram(id) ? SIDR_REQUEST_PRIVATE_BYTES : REQUEST_PRIVATE_BYTES;
    if (id->state != ID_ROUTE_RESOLVED || parameters->private_data_len > most) {
        return -EINVAL;
    }
    begin_talk(id, parameters);
    id->queue_pair_number = parameters->qp_num;
    if (!find_listener(id)) {
        no_listener(id);
        return 0;
    }
    struct cm_message request =
        message_to_peer(id, is_datagram(id) ? MESSAGE_SIDR_REQ : MESSAGE_REQ);
    put_addresses(&request, id);
    put_queue_pair(&request, id, parameters);
    put_ece(&request, &command->ece);
    put_private(&request, parameters->private_data, parameters->private_data_len);
    id->talk.state = is_datagram(id) ? TALK_SIDR_REQ_SENT : TALK_REQ_SENT;
    timer_expect_answer(id, &request);
    return 0;
}

/* The commands of programs that do not know ECE end before it. */
static bool copy_in_without_ece(const struct cm_call *call, void *to, size_t bytes, size_t least)
{
    memset(to, 0, bytes);
    if (call->in_bytes < least) {
        return false;
    }
    memcpy(to, call->in, call->in_bytes < bytes ? call->in_bytes : bytes);
    return true;
}

int command_connect(const struct cm_call *call)
{
    struct rdma_ucm_connect command;
    int error;
    if (!copy_in_without_ece(call, &command, sizeof(command),
                             offsetof(struct rdma_ucm_connect, ece)) ||
        !command.conn_param.valid) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command.id, &error);
    return id ? connect_id(id, &command) : error;
}

int command_listen(const struct cm_call *call)
{
    struct rdma_ucm_listen command;
    int error;
    struct cm_id *id = CALL_TAKE(call, command, &error);
    if (!id) {
        return error;
    }
    const struct sockaddr_storage any = {.ss_family = AF_INET};
    if (id->state == ID_IDLE) {
        error = id_bind(id, &any);
    }
    if (error) {
        return error;
    }
    if (id->state != ID_ADDR_BOUND) {
        return -EINVAL;
    }
    id->bound.family_only = id->family_only;
    id->bound.reuse_address = id->reuse_address;
    error = ports_listen(&cm_of(id)->host, id->port_entry, &id->bound);
    if (error) {
        return error;
    }
    id->backlog = command.backlog && command.backlog < BACKLOG_MAX ? command.backlog : BACKLOG_MAX;
    id->state = ID_LISTEN;
    return 0;
}

void talk_established(struct cm_id *id)
{
    timer_stop(id);
    id->talk.state = TALK_ESTABLISHED;
    cm_of(id)->timers_changed = true; /* from now on cm_run looks whether the peer lives */
}

static int accept_datagram(struct cm_id *id, const struct rdma_ucm_conn_param *parameters)
{
    if (id->talk.state != TALK_SIDR_REQ_RECEIVED ||
        parameters->private_data_len > SIDR_REPLY_PRIVATE_BYTES) {
        return -EINVAL;
    }
    struct cm_message reply = message_to_peer(id, MESSAGE_SIDR_REP);
    id->queue_pair_number = parameters->qp_num;
    id->queue_key = UDP_QUEUE_KEY;
    reply.status = SIDR_SUCCESS;
    reply.queue_pair_number = id->queue_pair_number;
    reply.queue_key = id->queue_key;
    put_private(&reply, parameters->private_data, parameters->private_data_len);
    outbox_to_peer(id, &reply);
    timer_stop(id);
    id->talk.state = TALK_IDLE;
    return 0;
}

static int accept_request(struct cm_id *id, const struct rdma_ucm_accept *command)
{
    const struct rdma_ucm_conn_param *parameters = &command->conn_param;
    if (id->talk.state != TALK_REQ_RECEIVED || parameters->private_data_len > REPLY_PRIVATE_BYTES) {
        return -EINVAL;
    }
    struct cm_message reply = message_to_peer(id, MESSAGE_REP);
    id->queue_pair_number = parameters->qp_num;
    id->talk.responder_resources = parameters->responder_resources;
    id->talk.initiator_depth = parameters->initiator_depth;
    put_queue_pair(&reply, id, parameters);
    put_ece(&reply, &command->ece);
    put_private(&reply, parameters->private_data, parameters->private_data_len);
    id->talk.state = TALK_REP_SENT;
    timer_expect_answer(id, &reply);
    return 0;
}

/* The active side accepts: it has set its queue pair up. */
static int ready_to_use(struct cm_id *id)
{
    if (id->talk.state != TALK_REP_RECEIVED) {
        return -EINVAL;
    }
    struct cm_message ready = message_to_peer(id, MESSAGE_RTU);
    outbox_to_peer(id, &ready);
    talk_established(id);
    return 0;
}

static void send_reject(struct cm_id *id, enum cm_reject_reason reason, const void *data,
                        uint8_t bytes)
{
    struct cm_message reject = message_to_peer(id, MESSAGE_REJ);
    reject.status = reason;
    put_private(&reject, data, bytes);
    outbox_to_peer(id, &reject);
}

static int reject_connection(struct cm_id *id, enum cm_reject_reason reason, const void *data,
                             uint8_t bytes)
{
    if (bytes > REJECT_PRIVATE_BYTES) {
        return -EINVAL;
    }
    enum talk_state state = id->talk.state;
    if (state < TALK_REQ_SENT || state > TALK_REP_RECEIVED) {
        return -EINVAL;
    }
    send_reject(id, reason, data, bytes);
    timer_stop(id);
    id->talk.state = TALK_IDLE;
    if (state == TALK_REP_SENT) {
        timer_timewait(id);
    }
    return 0;
}

static int accept_id(struct cm_id *id, const struct rdma_ucm_accept *command)
{
    int error = -EINVAL;
    if (id->state != ID_CONNECT) {
        return error;
    }
    if (is_datagram(id)) {
        error = accept_datagram(id, &command->conn_param);
    } else if (command->conn_param.valid) {
        error = accept_request(id, command);
    } else {
        error = ready_to_use(id);
    }
    /* For the kernel, a failed accept is a rejection. */
    if (error && !is_datagram(id)) {
        reject_connection(id, REJECT_CONSUMER_DEFINED, "", 0);
    }
    return error;
}

int command_accept(const struct cm_call *call)
{
    struct rdma_ucm_accept command;
    int error;
    if (!copy_in_without_ece(call, &command, sizeof(command),
                             offsetof(struct rdma_ucm_accept, ece))) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    error = accept_id(id, &command);
    if (!error && command.conn_param.valid) {
        id->uid = command.uid;
    }
    return error;
}

static int reject_datagram(struct cm_id *id, const void *data, uint8_t bytes)
{
    if (id->talk.state != TALK_SIDR_REQ_RECEIVED || bytes > SIDR_REPLY_PRIVATE_BYTES) {
        return -EINVAL;
    }
    struct cm_message reply = message_to_peer(id, MESSAGE_SIDR_REP);
    reply.status = SIDR_REJECT;
    put_private(&reply, data, bytes);
    outbox_to_peer(id, &reply);
    timer_stop(id);
    id->talk.state = TALK_IDLE;
    return 0;
}

int command_reject(const struct cm_call *call)
{
    struct rdma_ucm_reject command;
    int error;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    uint8_t reason = command.reason ? command.reason : REJECT_CONSUMER_DEFINED;
    if (reason != REJECT_CONSUMER_DEFINED && reason != REJECT_VENDOR_OPTION) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    if (!id->talk.begun) {
        return -EINVAL;
    }
    if (is_datagram(id)) {
        return reject_datagram(id, command.private_data, command.private_data_len);
    }
    return reject_connection(id, reason, command.private_data, command.private_data_len);
}

static void send_empty(struct cm_id *id, enum cm_message_type type)
{
    struct cm_message message = message_to_peer(id, type);
    outbox_to_peer(id, &message);
}

int command_disconnect(const struct cm_call *call)
{
    struct rdma_ucm_disconnect command;
    int error;
    struct cm_id *id = CALL_TAKE(call, command, &error);
    if (!id) {
        return error;
    }
    if (!id->talk.begun) {
        return -EINVAL;
    }
    /* In any other state there is nothing to end. The kernel does not complain then, either. */
    if (id->talk.state == TALK_ESTABLISHED) {
        struct cm_message request = message_to_peer(id, MESSAGE_DREQ);
        id->talk.state = TALK_DREQ_SENT;
        timer_expect_answer(id, &request);
    } else if (id->talk.state == TALK_DREQ_RECEIVED) {
        send_empty(id, MESSAGE_DREP);
        timer_timewait(id);
    }
    return 0;
}

int command_notify(const struct cm_call *call)
{
    struct rdma_ucm_notify command;
    int error;
    struct cm_id *id = CALL_TAKE(call, command, &error);
    if (!id) {
        return error;
    }
    if (!id->talk.begun || command.event != EVENT_COMMUNICATION_ESTABLISHED) {
        return -EINVAL;
    }
    if (id->talk.state == TALK_ESTABLISHED) {
        return -EISCONN;
    }
    if (id->talk.state != TALK_REP_SENT) {
        return -EINVAL;
    }
    talk_established(id);
    event_report(id, EVENT_ESTABLISHED, 0);
    return 0;
}

void talk_leave(struct cm_id *id)
{
    switch (id->talk.state) {
    case TALK_REQ_SENT:
        send_reject(id, REJECT_TIMEOUT, "", 0);
        break;
    case TALK_REQ_RECEIVED:
    case TALK_REP_SENT:
    case TALK_REP_RECEIVED:
        send_reject(id, REJECT_CONSUMER_DEFINED, "", 0);
        break;
    case TALK_ESTABLISHED:
        send_empty(id, MESSAGE_DREQ);
        break;
    case TALK_DREQ_RECEIVED:
        send_empty(id, MESSAGE_DREP);
        break;
    case TALK_SIDR_REQ_RECEIVED:
        reject_datagram(id, "", 0);
        break;
    case TALK_IDLE:
    case TALK_DREQ_SENT:
    case TALK_TIMEWAIT:
    case TALK_SIDR_REQ_SENT:
        break;
    }
    talk_end(id);
}

void talk_end(struct cm_id *id)
{
    timer_stop(id);
    id->talk.state = TALK_IDLE;
}

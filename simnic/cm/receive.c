/* receive.c: what a peer's message does to a conversation. A peer is another program, which may be
 * broken. So each message is checked against the state. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <string.h>

static bool is_datagram(const struct cm_id *id)
{
    return id->queue_pair_type == QUEUE_PAIR_UD;
}

/* As in the kernel, the length that the program is told is the room in the message. */
static void put_private(uint8_t *to, uint8_t *length, const struct cm_message *message,
                        uint8_t room)
{
    uint8_t bytes = message->private_length < room ? message->private_length : room;
    memcpy(to, message->private_data, bytes);
    *length = room;
}

/* Depth and resources change places: what one side may initiate, the other responds to. */
static void put_connection(struct cm_event *event, const struct cm_message *message, uint8_t room)
{
    struct rdma_ucm_conn_param *to = &event->response.param.conn;
    to->qp_num = message->queue_pair_number & 0xffffff;
    to->responder_resources = message->initiator_depth;
    to->initiator_depth = message->responder_resources;
    to->flow_control = message->flow_control != 0;
    to->retry_count = message->retry_count & 7;
    to->rnr_retry_count = message->rnr_retry_count & 7;
    to->srq = message->shared_receive_queue != 0;
    put_private(to->private_data, &to->private_data_len, message, room);
    event->response.ece.vendor_id = message->ece_vendor_id;
    event->response.ece.attr_mod = message->ece_attributes;
}

static void set_peer(struct cm_id *id, const struct cm_message *message)
{
    id->talk.peer_id = message->source_communication_id;
    id->talk.peer_qpn = message->queue_pair_number & 0xffffff;
    id->talk.send_psn = message->packet_sequence_number & 0xffffff;
    id->talk.responder_resources = message->initiator_depth;
    id->talk.initiator_depth = message->responder_resources;
    id->talk.rnr_retry_count = message->rnr_retry_count & 7;
}

static void send_simple(struct cm_id *id, enum cm_message_type type, uint32_t status)
{
    struct cm_message message = message_to_peer(id, type);
    message.status = status;
    outbox_to_peer(id, &message);
}

/* Answers a message that belongs to no identifier. */
static void answer_stray(struct cm *cm, uint32_t slot, const struct cm_message *to,
                         enum cm_message_type type, uint32_t status)
{
    struct cm_message answer = {.type = type,
                                .status = status,
                                .destination_generation = to->source_generation,
                                .source_communication_id = to->destination_communication_id,
                                .destination_communication_id = to->source_communication_id};
    int rail = to->ip_version == 4   ? rail_of_ipv4(to->destination_address)
               : to->ip_version == 6 ? rail_of_ipv6(to->destination_address)
                                     : 0;
    outbox_add(cm, slot, rail < 0 ? 0 : rail, &answer);
}

static bool same_peer(const struct cm_id *id, uint32_t slot, const struct cm_message *message)
{
    return id->talk.peer.slot == slot && id->talk.peer.generation == message->source_generation;
}

/* The identifier that a message is for. Its own id must be named right, and the sender must be the
 * one it talks with. */
static struct cm_id *addressee(struct cm *cm, uint32_t slot, const struct cm_message *message)
{
    struct cm_id *id = cm->ids[message->destination_communication_id % ID_COUNT];
    if (!id || id->talk.own_id != message->destination_communication_id ||
        id->talk.state == TALK_IDLE || !same_peer(id, slot, message)) {
        return NULL;
    }
    bool asked = id->talk.state == TALK_REQ_SENT || id->talk.state == TALK_SIDR_REQ_SENT;
    return asked || id->talk.peer_id == message->source_communication_id ? id : NULL;
}

/* The identifier that an earlier message of this sender's made here. */
static struct cm_id *made_by(struct cm *cm, uint32_t slot, const struct cm_message *message)
{
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        struct cm_id *id = cm->ids[i];
        if (id && id->talk.state != TALK_IDLE && same_peer(id, slot, message) &&
            id->talk.peer_id == message->source_communication_id) {
            return id;
        }
    }
    return NULL;
}

static struct cm_id *find_listener(struct cm *cm, const struct cm_message *message)
{
    struct cm_id *found = NULL;
    int best = 0;
    struct port_key to = {.port_space = message->port_space,
                          .port = ntohs(message->destination_port),
                          .family = message->ip_version == 4 ? AF_INET : AF_INET6};
    memcpy(to.address, message->destination_address, message->ip_version == 4 ? 4 : 16);
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        struct cm_id *id = cm->ids[i];
        if (!id || id->state != ID_LISTEN) {
            continue;
        }
        int match = ports_match(&id->bound, &to);
        if (match > best) {
            best = match;
            found = id;
        }
    }
    return found;
}

static bool addresses_valid(const struct cm_message *message)
{
    if (message->ip_version == 4) {
        return rail_of_ipv4(message->source_address) >= 0 &&
               rail_of_ipv4(message->destination_address) >= 0;
    }
    return message->ip_version == 6 && rail_of_ipv6(message->source_address) >= 0 &&
           rail_of_ipv6(message->destination_address) >= 0;
}

/* Makes the identifier of a request. It is bound to the address that the request was sent to, and
 * connects to the one that the request came from. */
static struct cm_id *id_of_request(struct cm_id *listener, uint32_t slot,
                                   const struct cm_message *message)
{
    struct cm_id *id = id_new(listener->file, listener->port_space, listener->queue_pair_type);
    if (!id) {
        return NULL;
    }
    id->hidden = true;
    id->state = ID_CONNECT;
    address_set(&id->source, message->ip_version, message->destination_address,
                message->destination_port);
    address_set(&id->destination, message->ip_version, message->source_address,
                message->source_port);
    id->rail = address_rail(&id->source, link_of(id));
    id->traffic_class = listener->traffic_class;
    id->ack_timeout = listener->ack_timeout;
    id->ack_timeout_set = listener->ack_timeout_set;
    set_peer(id, message);
    id->talk.begun = true;
    id->talk.peer = (struct port_owner){slot, message->source_generation};
    id->talk.receive_psn = id->packet_sequence_number;
    id->talk.retry_count = message->retry_count & 7;
    id->talk.traffic_class = message->traffic_class;
    return id;
}

static struct cm_event *request_event(struct cm_id *listener, struct cm_id *id,
                                      const struct cm_message *message)
{
    struct cm_event *event = event_new(listener, EVENT_CONNECT_REQUEST, 0);
    if (!event) {
        return NULL;
    }
    event->request = id;
    event->response.id = id->number;
    struct rdma_ucm_ud_param *datagram = &event->response.param.ud;
    if (is_datagram(id)) {
        put_private(datagram->private_data, &datagram->private_data_len, message,
                    SIDR_REQUEST_PRIVATE_BYTES);
    } else {
        put_connection(event, message, REQUEST_PRIVATE_BYTES);
    }
    return event;
}

static void queue_request(struct cm_id *listener, uint32_t slot, const struct cm_message *message)
{
    struct cm_id *id = id_of_request(listener, slot, message);
    if (!id) {
        return;
    }
    struct cm_event *event = request_event(listener, id, message);
    if (!event || listener->uid == 0) {
        /* The request is dropped: the peer will ask again. */
        id->talk.state = TALK_IDLE;
        event_queue(event);
        id_destroy(id);
        return;
    }
    id->talk.state = is_datagram(id) ? TALK_SIDR_REQ_RECEIVED : TALK_REQ_RECEIVED;
    id->paths = !is_datagram(id);
    listener->backlog--;
    event_queue(event);
    send_simple(id, MESSAGE_MRA, message->type);
}

static bool listener_takes(const struct cm_id *listener, const struct cm_message *message)
{
    uint8_t type = message->queue_pair_type == QUEUE_PAIR_XRC_INITIATOR ? QUEUE_PAIR_XRC_TARGET
                                                                        : message->queue_pair_type;
    return message->type == MESSAGE_SIDR_REQ ? is_datagram(listener)
                                             : listener->queue_pair_type == type;
}

static void request_again(struct cm_id *id, const struct cm_message *message)
{
    if (id->talk.state == TALK_REQ_RECEIVED || id->talk.state == TALK_SIDR_REQ_RECEIVED) {
        send_simple(id, MESSAGE_MRA, message->type);
    } else if (id->talk.state == TALK_REP_SENT) {
        outbox_to_peer(id, &id->talk.last);
    }
}

static void receive_request(struct cm *cm, uint32_t slot, const struct cm_message *message)
{
    bool datagram = message->type == MESSAGE_SIDR_REQ;
    enum cm_message_type refusal = datagram ? MESSAGE_SIDR_REP : MESSAGE_REJ;
    struct cm_id *known = made_by(cm, slot, message);
    if (!addresses_valid(message) || message->source_communication_id == 0) {
        return;
    }
    if (known) {
        request_again(known, message);
        return;
    }
    struct cm_id *listener = find_listener(cm, message);
    if (!listener) {
        answer_stray(cm, slot, message, refusal,
                     datagram ? (uint32_t)SIDR_UNSUPPORTED : REJECT_INVALID_SERVICE_ID);
    } else if (!listener_takes(listener, message)) {
        answer_stray(cm, slot, message, refusal,
                     datagram ? (uint32_t)SIDR_REJECT : REJECT_CONSUMER_DEFINED);
    } else if (listener->backlog >
               0) { /* else there is no answer, as from the kernel, and the peer asks again */
        queue_request(listener, slot, message);
    }
}

static void receive_reply(struct cm_id *id, const struct cm_message *message)
{
    if (id->talk.state == TALK_ESTABLISHED) {
        send_simple(id, MESSAGE_RTU, 0); /* ours was lost */
        return;
    }
    if (id->talk.state == TALK_REP_RECEIVED) {
        send_simple(id, MESSAGE_MRA, MESSAGE_REP);
    }
    if (id->talk.state != TALK_REQ_SENT) {
        return;
    }
    timer_stop(id);
    set_peer(id, message);
    id->talk.state = TALK_REP_RECEIVED;
    send_simple(id, MESSAGE_MRA, MESSAGE_REP);
    struct cm_event *event = event_new(id, EVENT_CONNECT_RESPONSE, 0);
    if (event) {
        put_connection(event, message, REPLY_PRIVATE_BYTES);
    }
    event_queue(event);
}

static void receive_ready(struct cm_id *id)
{
    if (id->talk.state != TALK_REP_SENT) {
        return;
    }
    talk_established(id);
    event_report(id, EVENT_ESTABLISHED, 0);
}

static void receive_delay(struct cm_id *id, const struct cm_message *message)
{
    bool fits = (id->talk.state == TALK_REQ_SENT && message->status == MESSAGE_REQ) ||
                (id->talk.state == TALK_SIDR_REQ_SENT && message->status == MESSAGE_SIDR_REQ) ||
                (id->talk.state == TALK_REP_SENT && message->status == MESSAGE_REP);
    if (!fits) {
        return;
    }
    id->talk.peer_id = message->source_communication_id;
    timer_delayed(id);
}

static void receive_reject(struct cm_id *id, const struct cm_message *message)
{
    enum talk_state state = id->talk.state;
    if (state < TALK_REQ_SENT || state > TALK_DREQ_SENT) {
        return;
    }
    timer_stop(id);
    id->talk.state = TALK_IDLE;
    if (state >= TALK_REP_SENT && state != TALK_REP_RECEIVED) {
        timer_timewait(id);
    }
    if (id->state != ID_CONNECT) {
        return;
    }
    struct cm_event *event = event_new(id, EVENT_REJECTED, message->status);
    if (event) {
        put_private(event->response.param.conn.private_data,
                    &event->response.param.conn.private_data_len, message, REJECT_PRIVATE_BYTES);
    }
    event_queue(event);
}

static void disconnected(struct cm_id *id)
{
    if (id->state != ID_CONNECT) {
        return;
    }
    id->state = ID_DISCONNECT;
    event_report(id, EVENT_DISCONNECTED, 0);
}

static void receive_disconnect(struct cm_id *id)
{
    switch (id->talk.state) {
    case TALK_REP_SENT:
    case TALK_ESTABLISHED:
    case TALK_DREQ_SENT:
        timer_stop(id);
        id->talk.state = TALK_DREQ_RECEIVED;
        disconnected(id);
        break;
    case TALK_TIMEWAIT:
        send_simple(id, MESSAGE_DREP, 0); /* ours was lost */
        break;
    default:
        break;
    }
}

static void receive_disconnected(struct cm_id *id)
{
    if (id->talk.state != TALK_DREQ_SENT && id->talk.state != TALK_DREQ_RECEIVED) {
        return;
    }
    timer_timewait(id);
    disconnected(id);
}

static void receive_service(struct cm_id *id, const struct cm_message *message)
{
    if (id->talk.state != TALK_SIDR_REQ_SENT) {
        return;
    }
    timer_stop(id);
    id->talk.state = TALK_IDLE;
    bool found = message->status == SIDR_SUCCESS;
    struct cm_event *event =
        event_new(id, found ? EVENT_ESTABLISHED : EVENT_UNREACHABLE, message->status);
    if (!event) {
        return;
    }
    struct rdma_ucm_ud_param *to = &event->response.param.ud;
    put_private(to->private_data, &to->private_data_len, message, SIDR_REPLY_PRIVATE_BYTES);
    if (found) {
        id->queue_key = message->queue_key;
        to->qp_num = message->queue_pair_number & 0xffffff;
        to->qkey = message->queue_key;
        attributes_address_handle(id, &to->ah_attr);
    }
    event_queue(event);
}

static void receive_for(struct cm_id *id, const struct cm_message *message)
{
    switch (message->type) {
    case MESSAGE_MRA:
        receive_delay(id, message);
        break;
    case MESSAGE_REP:
        receive_reply(id, message);
        break;
    case MESSAGE_RTU:
        receive_ready(id);
        break;
    case MESSAGE_REJ:
        receive_reject(id, message);
        break;
    case MESSAGE_DREQ:
        receive_disconnect(id);
        break;
    case MESSAGE_DREP:
        receive_disconnected(id);
        break;
    case MESSAGE_SIDR_REP:
        receive_service(id, message);
        break;
    }
}

void receive_message(struct cm *cm, uint32_t source_slot, const struct cm_message *message)
{
    if (message->type == MESSAGE_REQ || message->type == MESSAGE_SIDR_REQ) {
        receive_request(cm, source_slot, message);
        return;
    }
    struct cm_id *id = addressee(cm, source_slot, message);
    /* A peer that gives up early does not know the id of the identifier that its request made
     * here. */
    if (!id && message->type == MESSAGE_REJ && message->destination_communication_id == 0) {
        id = made_by(cm, source_slot, message);
    }
    if (id) {
        receive_for(id, message);
    } else if (message->type ==
               MESSAGE_DREQ) { /* the identifier is gone, and so is the connection */
        answer_stray(cm, source_slot, message, MESSAGE_DREP, 0);
    }
}

void receive_peer_died(struct cm_id *id)
{
    enum talk_state state = id->talk.state;
    timer_stop(id);
    switch (state) {
    case TALK_REQ_SENT:
    case TALK_REP_SENT:
    case TALK_REP_RECEIVED:
    case TALK_SIDR_REQ_SENT:
        id->talk.state = TALK_IDLE;
        event_report(id, EVENT_UNREACHABLE, -ETIMEDOUT);
        break;
    case TALK_ESTABLISHED:
        id->talk.state = TALK_DREQ_RECEIVED;
        disconnected(id);
        break;
    case TALK_DREQ_SENT:
        timer_timewait(id);
        disconnected(id);
        break;
    default: /* a request that the program has yet to answer: its accept will fail */
        id->talk.state = TALK_IDLE;
        break;
    }
}

/* dc.c: the dynamically connected transport (mlx5dv_create_qp(3), PRM "Dynamically Connected
 * Transport"). An initiator (DCI) is a requester whose every WQE names its destination; a target
 * (DCT) answers any number of initiators at once.
 *
 * What goes over the wire between them is not public, so this is simnic's own. An initiator has one
 * destination at a time: the first message for another one waits until all before it have completed.
 * Whenever an initiator with nothing outstanding sends, it begins a connection, which has a number
 * greater than all before it and a first PSN, and both are in every request packet: so whichever
 * packet comes first connects, no packet is needed for it alone, and a late packet of an earlier
 * connection is known as such. Inside a connection all is as between RC QPs: requester.c and
 * completer.c on one side; on the other side responder.c, on a queue pair of the target's for each
 * initiator that sent to it, which programs do not see. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256u
#define MOST_SESSIONS 4096u    /* of one target */
#define QUIET_NS 1000000000ull /* a session that was not used for so long may be given up */

struct session {
    struct queue_pair qp;
    struct list bucket, recent;
    uint64_t connection;
    uint64_t heard_ns;
};

struct dc_target {
    uint64_t access_key;
    uint32_t count;
    struct list recent; /* sessions, the one that was used last at the end */
    struct list buckets[BUCKETS];
};

/* ---- the initiator ---- */

static uint8_t destination_rail(const struct send_request *request)
{
    int rail = rail_of_gid(request->destination_gid);
    return rail < 0 ? 15 : (uint8_t)rail; /* 15: nobody is there, and the retries run out */
}

bool dc_connect(struct device *device, struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    struct queue_pair_attributes *a = &qp->attributes;
    if (request->syndrome || request->opcode == MLX5_OPCODE_NOP ||
        request->opcode == MLX5_OPCODE_UMR) {
        return true; /* goes nowhere */
    }
    if (qp->in_flight_head != qp->in_flight_tail && qp->dc_connection) {
        return request->destination_qpn == a->destination_qpn &&
               request->access_key == qp->dc_access_key &&
               memcmp(request->destination_gid, a->destination_gid, 16) == 0;
    }
    a->destination_qpn = request->destination_qpn;
    memcpy(a->destination_gid, request->destination_gid, 16);
    qp->destination_rail = destination_rail(request);
    qp->destination_known = qp->destination_rail != 15;
    qp->dc_access_key = request->access_key;
    qp->dc_first_psn = qp->next_psn;
    /* The time, which all processes share, so that numbers grow even from one owner of a QPN to the
     * next. */
    qp->dc_connection = device->now_ns > qp->dc_connection ? device->now_ns : qp->dc_connection + 1;
    return true;
}

uint8_t *dc_reserve(struct device *device, const struct queue_pair *qp, uint32_t slot,
                    struct packet *packet)
{
    struct dc_header header = {.access_key = qp->dc_access_key,
                               .connection = qp->dc_connection,
                               .first_psn = qp->dc_first_psn,
                               .path_mtu = qp->attributes.path_mtu};
    packet->transport = TRANSPORT_DC;
    packet->payload_bytes += (uint32_t)sizeof(header);
    uint8_t *payload = fabric_reserve(device->fabric, slot, packet);
    if (!payload) {
        return NULL;
    }
    memcpy(payload, &header, sizeof(header));
    return payload + sizeof(header);
}

/* ---- the target ---- */

bool dc_target_create(struct queue_pair *dct, uint64_t access_key)
{
    dct->dc_target = calloc(1, sizeof(*dct->dc_target));
    if (!dct->dc_target) {
        return false;
    }
    dct->dc_target->access_key = access_key;
    list_init(&dct->dc_target->recent);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        list_init(&dct->dc_target->buckets[i]);
    }
    return true;
}

/* Ends what an initiator began: nothing is answered any more. A receive WQE of a message that will
 * never be whole is given back with an error, as one of a QP that fails is. */
static void abandon(struct device *device, struct queue_pair *qp)
{
    qp->state = STATE_ERR;
    qp->owed_tail = qp->owed_head;
    qp->ack_due = qp->ack_wakes = qp->nak_sent = false;
    qp->nak_due = 0;
    qp->current = 0xff;
    if (!qp->receive.taken) {
        return;
    }
    qp->receive.taken = false;
    cq_write_error(device, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
}

void dc_session_break(struct device *device, struct queue_pair *qp)
{
    abandon(device, qp);
}

void dc_target_break(struct device *device, struct queue_pair *dct)
{
    struct list *recent = &dct->dc_target->recent;
    for (struct list *l = recent->next; l != recent; l = l->next) {
        abandon(device, &container_of(l, struct session, recent)->qp);
    }
}

static void leave(struct queue_pair *qp)
{
    list_remove(&qp->active);
    list_remove(&qp->owing);
    list_remove(&qp->timed);
}

static void forget(struct dc_target *target, struct session *session)
{
    list_remove(&session->bucket);
    list_remove(&session->recent);
    leave(&session->qp);
    target->count--;
    free(session);
}

void dc_target_destroy(struct queue_pair *dct)
{
    struct dc_target *target = dct->dc_target;
    if (!target) {
        return;
    }
    for (struct list *l = target->recent.next, *next; l != &target->recent; l = next) {
        struct session *session = container_of(l, struct session, recent);
        next = l->next;
        leave(&session->qp);
        free(session);
    }
    free(target);
    dct->dc_target = NULL;
}

/* Makes room for one more session. What is forgotten has been quiet, owes nothing and is not inside
 * a message; its initiator begins a connection when it sends again, unless it has been waiting since
 * for an acknowledgement that was lost. */
static bool make_room(struct device *device, struct dc_target *target)
{
    if (target->count < MOST_SESSIONS) {
        return true;
    }
    for (struct list *l = target->recent.next; l != &target->recent; l = l->next) {
        struct session *session = container_of(l, struct session, recent);
        if (device->now_ns - session->heard_ns < QUIET_NS) {
            return false; /* and so were all that follow: the packet is dropped, and comes again */
        }
        if (list_linked(&session->qp.owing) || session->qp.receive.taken) {
            continue;
        }
        forget(target, session);
        return true;
    }
    return false;
}

static struct list *bucket_of(struct dc_target *target, uint32_t qpn)
{
    return &target->buckets[qpn * 2654435761u >> 24];
}

static struct session *find(struct dc_target *target, uint32_t qpn)
{
    struct list *bucket = bucket_of(target, qpn);
    for (struct list *l = bucket->next; l != bucket; l = l->next) {
        struct session *session = container_of(l, struct session, bucket);
        if (session->qp.attributes.destination_qpn == qpn) {
            return session;
        }
    }
    return NULL;
}

static struct session *open_session(struct device *device, struct queue_pair *dct, uint32_t qpn)
{
    struct dc_target *target = dct->dc_target;
    struct session *session = make_room(device, target) ? calloc(1, sizeof(*session)) : NULL;
    if (!session) {
        return NULL;
    }
    struct queue_pair *qp = &session->qp;
    qp->number = dct->number;
    qp->type = dct->type;
    qp->rail = dct->rail;
    qp->user_index = dct->user_index;
    qp->domain = dct->domain;
    qp->scatter_to_cqe = dct->scatter_to_cqe;
    qp->shared_receive_queue = dct->shared_receive_queue;
    qp->receive_queue_completions = dct->receive_queue_completions;
    qp->statistics = dct->statistics;
    list_init(&qp->all);
    list_init(&qp->on_page);
    list_init(&qp->active);
    list_init(&qp->owing);
    list_init(&qp->timed);
    list_init(&session->recent);
    list_append(bucket_of(target, qpn), &session->bucket);
    qp->attributes.destination_qpn = qpn;
    target->count++;
    return session;
}

/* A new connection of an initiator, which has nothing of the one before outstanding any more. */
static void begin(struct device *device, const struct queue_pair *dct, struct session *session,
                  const struct packet *packet, const struct dc_header *header)
{
    struct queue_pair *qp = &session->qp;
    abandon(device, qp);
    session->connection = header->connection;
    qp->state = STATE_RTR;
    qp->attributes = dct->attributes;
    qp->attributes.destination_qpn = packet->source_qpn;
    /* Initiator and target cut responses alike; the initiator's MTU is as good as the target's. */
    if (header->path_mtu >= 1 && header->path_mtu <= 5) {
        qp->attributes.path_mtu = header->path_mtu;
    }
    qp->destination_rail = packet->rail & 15;
    qp->expected_psn = header->first_psn & PSN_MASK;
    if (qp->atomics_next) {
        memset(qp->atomics, 0, sizeof(qp->atomics));
    }
    qp->atomics_next = 0;
}

/* An access key that is not the target's: the initiator is told, and completes with a remote access
 * error. The answer names the first packet of the connection, since none of it was received. No
 * session comes of it, so that who does not know the key takes no room. */
static void refuse_key(struct device *device, const struct queue_pair *dct,
                       const struct packet *packet, const struct dc_header *header)
{
    struct packet answer = {.operation = PACKET_ACKNOWLEDGE,
                            .transport = TRANSPORT_DC,
                            .flags = PACKET_WAKE,
                            .rail = (uint8_t)(dct->rail | (packet->rail & 15) << 4),
                            .destination_qpn = packet->source_qpn,
                            .source_qpn = dct->number,
                            .psn = header->first_psn & PSN_MASK,
                            .syndrome = AETH_NAK_REMOTE_ACCESS};
    uint32_t slot = qpn_slot(answer.destination_qpn);
    if (fabric_reserve(device->fabric, slot, &answer)) {
        fabric_commit(device->fabric, slot, &answer);
    }
}

void dc_receive(struct device *device, struct queue_pair *dct, const struct packet *packet,
                const uint8_t *payload)
{
    struct dc_header header;
    struct dc_target *target = dct->dc_target;
    if (!target || dct->state != STATE_RTR || packet->payload_bytes < sizeof(header)) {
        return; /* as if there were no target: the initiator's retries run out */
    }
    memcpy(&header, payload, sizeof(header));
    if (header.access_key != target->access_key) {
        refuse_key(device, dct, packet, &header);
        return;
    }
    struct session *session = find(target, packet->source_qpn);
    if (!session) {
        session = open_session(device, dct, packet->source_qpn);
    }
    if (!session || header.connection < session->connection) {
        return;
    }
    if (header.connection > session->connection) {
        begin(device, dct, session, packet, &header);
    }
    session->heard_ns = device->now_ns;
    list_remove(&session->recent);
    list_append(&target->recent, &session->recent);
    struct packet inner = *packet;
    inner.payload_bytes -= (uint32_t)sizeof(header);
    responder_receive(device, &session->qp, &inner, payload + sizeof(header));
}

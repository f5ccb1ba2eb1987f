/* dc.c: the dynamically connected transport (mlx5dv_create_qp(3), PRM "Dynamically Connected
 * Transport"). In the send queue of an initiator (DCI), each WQE names its destination. A target
 * (DCT) answers any number of initiators at once.
 *
 * What adapters send to each other for it is not public, so this is simnic's own. An initiator has
 * one destination at a time: the first message to another one waits until all before it have
 * completed. When an initiator with nothing outstanding sends, it begins a connection. A connection
 * has a first PSN, and a number greater than those of all before it. Both are in every request
 * packet. So whichever packet comes first connects, no packet is needed for that alone, and late
 * packets of an earlier connection are known as such.
 *
 * Inside a connection, all is as between RC QPs: requester.c and completer.c are on one side. On
 * the other is responder.c. The target has a queue pair for each initiator, which programs do not
 * see. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256u
#define MOST_INITIATORS 4096u  /* of one target */
#define QUIET_NS 1000000000ull /* an initiator that was quiet for so long may be forgotten */

struct initiator {
    struct queue_pair qp;
    struct list bucket, recent;
    uint64_t connection;
    uint64_t heard_ns;
};

struct dc_target {
    uint64_t access_key;
    uint32_t count;
    struct list recent; /* initiators, the last that sent at the end */
    struct list buckets[BUCKETS];
};

/* ---- the initiator ---- */

/* Nothing but what leads to another port counts. */
static bool same_way(const struct rail_way *a, const struct rail_way *b)
{
    return a->lid == b->lid && a->grh == b->grh && memcmp(a->gid, b->gid, sizeof(a->gid)) == 0;
}

bool dc_connect(struct nic *nic, struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    struct queue_pair_attributes *a = &qp->attributes;
    if (request->syndrome || request->opcode == MLX5_OPCODE_NOP ||
        request->opcode == MLX5_OPCODE_UMR) {
        return true; /* goes nowhere */
    }
    if (qp->in_flight_head != qp->in_flight_tail && qp->dc_connection) {
        return request->destination_qpn == a->destination_qpn &&
               request->access_key == qp->dc_access_key && same_way(&request->way, &a->way);
    }
    a->destination_qpn = request->destination_qpn;
    a->way = request->way;
    qp->destination_rail =
        qp_rail_reached(nic, qp, &a->way); /* if there is none, the retries run out */
    qp_tell_path_of_request(nic, qp);
    if (!nic_has_quirk(nic, QUIRK_DYNAMIC) || qp->dc_connection == 0) {
        qp->dc_access_key = request->access_key;
    }
    qp->dc_first_psn = qp->next_psn;
    /* The number is the time, which all processes share. So it grows even if another process gets
     * the QPN. */
    qp->dc_connection = nic->now_ns > qp->dc_connection ? nic->now_ns : qp->dc_connection + 1;
    return true;
}

uint8_t *dc_reserve(struct nic *nic, const struct queue_pair *qp, uint32_t slot,
                    struct packet *packet)
{
    struct dc_header header = {.access_key = qp->dc_access_key,
                               .connection = qp->dc_connection,
                               .first_psn = qp->dc_first_psn,
                               .path_mtu = qp->attributes.path_mtu};
    packet->transport = TRANSPORT_DC;
    packet->payload_bytes += (uint32_t)sizeof(header);
    uint8_t *payload = fabric_reserve(nic->fabric, slot, packet);
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

/* Nothing of this initiator is answered any more. The receive WQE of an unfinished message is
 * completed with an error, as that of a QP that fails. */
void dc_initiator_break(struct nic *nic, struct queue_pair *qp)
{
    late_land_all(nic, qp);
    qp->state = STATE_ERR;
    qp->owed_tail = qp->owed_head;
    qp->ack_due = qp->ack_wakes = qp->nak_sent = false;
    qp->nak_due = 0;
    qp->current = NO_MESSAGE;
    if (!qp->receive.taken) {
        return;
    }
    qp->receive.taken = false;
    cq_write_error(nic, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->receive.index);
}

void dc_target_break(struct nic *nic, struct queue_pair *dct)
{
    struct list *recent = &dct->dc_target->recent;
    for (struct list *l = recent->next; l != recent; l = l->next) {
        dc_initiator_break(nic, &container_of(l, struct initiator, recent)->qp);
    }
}

static void forget(struct nic *nic, struct dc_target *target, struct initiator *initiator)
{
    list_remove(&initiator->bucket);
    list_remove(&initiator->recent);
    qp_rest(nic, &initiator->qp);
    late_land_all(nic, &initiator->qp);
    target->count--;
    free(initiator);
}

void dc_target_destroy(struct nic *nic, struct queue_pair *dct)
{
    struct dc_target *target = dct->dc_target;
    if (!target) {
        return;
    }
    for (struct list *l = target->recent.next, *next; l != &target->recent; l = next) {
        struct initiator *initiator = container_of(l, struct initiator, recent);
        next = l->next;
        qp_rest(nic, &initiator->qp);
        late_land_all(nic, &initiator->qp);
        free(initiator);
    }
    free(target);
    dct->dc_target = NULL;
}

/* Makes room for one more initiator, by forgetting one that has been quiet, is owed nothing, and is
 * not inside a message. It begins a connection when it sends again. If it still waits for an
 * acknowledgement that was lost, its connection fails. */
static bool make_room(struct nic *nic, struct dc_target *target)
{
    if (target->count < MOST_INITIATORS) {
        return true;
    }
    for (struct list *l = target->recent.next; l != &target->recent; l = l->next) {
        struct initiator *initiator = container_of(l, struct initiator, recent);
        if (nic->now_ns - initiator->heard_ns < QUIET_NS) {
            return false; /* nor are those that follow: the packet is dropped, and comes again */
        }
        if (list_linked(&initiator->qp.owing) || initiator->qp.receive.taken) {
            continue;
        }
        forget(nic, target, initiator);
        return true;
    }
    return false;
}

static struct list *bucket_of(struct dc_target *target, uint32_t qpn)
{
    return &target->buckets[qpn * 2654435761u >> 24];
}

static struct initiator *find(struct dc_target *target, uint32_t qpn)
{
    struct list *bucket = bucket_of(target, qpn);
    for (struct list *l = bucket->next; l != bucket; l = l->next) {
        struct initiator *initiator = container_of(l, struct initiator, bucket);
        if (initiator->qp.attributes.destination_qpn == qpn) {
            return initiator;
        }
    }
    return NULL;
}

static struct initiator *add_initiator(struct nic *nic, struct queue_pair *dct, uint32_t qpn)
{
    struct dc_target *target = dct->dc_target;
    struct initiator *initiator = make_room(nic, target) ? calloc(1, sizeof(*initiator)) : NULL;
    if (!initiator) {
        return NULL;
    }
    struct queue_pair *qp = &initiator->qp;
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
    wheel_timer_init(&qp->timed, 0);
    list_init(&initiator->recent);
    list_append(bucket_of(target, qpn), &initiator->bucket);
    qp->attributes.destination_qpn = qpn;
    target->count++;
    return initiator;
}

/* An initiator begins a connection. Nothing of the one before is outstanding any more. */
static void begin(struct nic *nic, const struct queue_pair *dct, struct initiator *initiator,
                  const struct packet *packet, const struct dc_header *header)
{
    struct queue_pair *qp = &initiator->qp;
    dc_initiator_break(nic, qp);
    initiator->connection = header->connection;
    qp->state = STATE_RTR;
    qp->attributes = dct->attributes;
    qp->attributes.destination_qpn = packet->source_qpn;
    /* Both sides must cut responses alike, so the initiator's MTU counts. */
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

/* The access key is not the target's. The initiator is told, and completes with a remote access
 * error. The answer names the first packet of the connection, since none of it was received. An
 * initiator that does not know the key is not noted, and takes no room. */
static void refuse_key(struct nic *nic, const struct queue_pair *dct, const struct packet *packet,
                       const struct dc_header *header)
{
    struct packet answer = {.operation = PACKET_ACKNOWLEDGE,
                            .transport = TRANSPORT_DC,
                            .flags = PACKET_WAKE,
                            .rail = (uint8_t)(dct->rail | (packet->rail & 15) << 4),
                            .destination_qpn = packet->source_qpn,
                            .source_qpn = dct->number,
                            .psn = header->first_psn & PSN_MASK,
                            .partition = dct->attributes.partition,
                            .syndrome = AETH_NAK_REMOTE_ACCESS};
    uint32_t slot = qpn_slot(answer.destination_qpn);
    if (fabric_reserve(nic->fabric, slot, &answer)) {
        fabric_commit(nic->fabric, slot, &answer);
    }
}

void dc_receive(struct nic *nic, struct queue_pair *dct, const struct packet *packet,
                const uint8_t *payload)
{
    struct dc_header header;
    struct dc_target *target = dct->dc_target;
    if (!target || dct->state != STATE_RTR || packet->payload_bytes < sizeof(header)) {
        return; /* as if there were no target: the initiator's retries run out */
    }
    memcpy(&header, payload, sizeof(header));
    if (header.access_key != target->access_key) {
        refuse_key(nic, dct, packet, &header);
        return;
    }
    struct initiator *initiator = find(target, packet->source_qpn);
    if (!initiator) {
        initiator = add_initiator(nic, dct, packet->source_qpn);
    }
    if (!initiator || header.connection < initiator->connection) {
        return;
    }
    if (header.connection > initiator->connection) {
        begin(nic, dct, initiator, packet, &header);
    }
    initiator->heard_ns = nic->now_ns;
    list_remove(&initiator->recent);
    list_append(&target->recent, &initiator->recent);
    struct packet inner = *packet;
    inner.payload_bytes -= (uint32_t)sizeof(header);
    responder_receive(nic, &initiator->qp, &inner, payload + sizeof(header));
}

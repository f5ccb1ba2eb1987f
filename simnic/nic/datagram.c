/* datagram.c: unreliable datagrams (IBTA 9.8.3): one packet each, addressed by the WQE, with a GRH
 * that the receiver finds in the first 40 bytes of its buffer. */
#include "simnic/nic/internal.h"

#include <string.h>

#include "simnic/nic/dma.h"

#define GRH_BYTES 40u
#define UDP 17    /* next header */
#define IBA 0x1bu /* next header of a GRH (IBTA 8.3) */
#define MULTICAST_QPN 0xffffffu
#define CONTROLLED_QUEUE_KEY 0x80000000u /* in a WQE: the QP's own Q_Key is used (IBTA 10.2.5) */
#define CQE_GRH_PRESENT (1u << 28)       /* in flags_rqpn; the header's type is above bit 24 */

static bool is_ipv4(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

/* RoCE v2 has an IP header in place of the GRH: IPv6 fills the 40 bytes, IPv4 the last 20 of them
 * (RoCE v2 annex A17.4.5.2). */
static void build_grh(uint8_t grh[GRH_BYTES], const struct rail_gid *gid,
                      const struct send_request *request, uint32_t payload_bytes)
{
    const uint8_t *source = gid->raw;
    uint16_t bytes =
        htobe16((uint16_t)(8 + 12 + 8 + payload_bytes + 4)); /* UDP, BTH, DETH, payload, ICRC */
    memset(grh, 0, GRH_BYTES);
    if (gid->type == RAIL_GID_ROCE_V2 && is_ipv4(source)) {
        uint8_t *ip = grh + 20;
        uint16_t total = htobe16((uint16_t)(be16toh(bytes) + 20));
        ip[0] = 0x45;
        ip[1] = request->traffic_class;
        memcpy(ip + 2, &total, 2);
        ip[6] = 0x40; /* do not fragment */
        ip[8] = request->hop_limit;
        ip[9] = UDP;
        memcpy(ip + 12, source + 12, 4);
        memcpy(ip + 16, request->destination_gid + 12, 4);
        uint32_t sum = 0;
        for (int i = 0; i < 20; i += 2) {
            sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
        }
        sum = (sum & 0xffff) + (sum >> 16);
        uint16_t checksum = htobe16((uint16_t) ~((sum & 0xffff) + (sum >> 16)));
        memcpy(ip + 10, &checksum, 2);
        return;
    }
    uint32_t first =
        htobe32(6u << 28 | (uint32_t)request->traffic_class << 20 | request->flow_label);
    memcpy(grh, &first, 4);
    memcpy(grh + 4, &bytes, 2);
    grh[6] = gid->type == RAIL_GID_ROCE_V1 ? IBA : UDP;
    grh[7] = request->hop_limit;
    memcpy(grh + 8, source, 16);
    memcpy(grh + 24, request->destination_gid, 16);
}

static struct packet datagram_header(const struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    bool controlled = request->queue_key & CONTROLLED_QUEUE_KEY;
    int rail = rail_of_gid(request->destination_gid);
    return (struct packet){
        .operation =
            request->opcode == MLX5_OPCODE_SEND_IMM ? PACKET_SEND_ONLY_IMMEDIATE : PACKET_SEND_ONLY,
        .transport = TRANSPORT_UD,
        .flags = PACKET_WAKE | (request->solicited ? PACKET_SOLICITED : 0),
        .rail = (uint8_t)(qp->rail | (rail < 0 ? PACKET_NO_RAIL : rail) << 4),
        .payload_bytes = GRH_BYTES + request->bytes,
        .destination_qpn = request->destination_qpn,
        .source_qpn = qp->number,
        .psn = qp->next_psn,
        .immediate = request->immediate,
        .key = controlled ? qp->attributes.queue_key : request->queue_key,
    };
}

/* Members of the group may be anywhere. A process without room for the packet loses it. */
static void send_to_group(struct nic *nic, struct packet *packet, const uint8_t *payload,
                          const uint8_t group[16])
{
    packet->flags |= PACKET_MULTICAST;
    memcpy(&packet->swap_or_add, group, 8);
    memcpy(&packet->compare, group + 8, 8);
    packet->rail = (uint8_t)((packet->rail & 15) | (packet->rail & 15) << 4);
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        uint8_t *to = NULL;
        if (fabric_pid(nic->fabric, slot)) {
            to = fabric_reserve(nic->fabric, slot, packet);
        }
        if (!to) {
            continue;
        }
        memcpy(to, payload, packet->payload_bytes);
        fabric_commit(nic->fabric, slot, packet);
    }
}

bool datagram_send(struct nic *nic, struct queue_pair *qp, uint8_t *syndrome)
{
    const struct send_request *request = &qp->request;
    if (request->bytes > RAIL_MTU_BYTES) {
        *syndrome = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
        return true;
    }
    struct packet packet = datagram_header(qp);
    bool nowhere = packet.rail >> 4 == PACKET_NO_RAIL;
    bool group = nowhere && packet.destination_qpn == MULTICAST_QPN;
    uint8_t staged[GRH_BYTES + RAIL_MTU_BYTES];
    uint32_t slot = qpn_slot(packet.destination_qpn);
    uint8_t *payload = nowhere ? staged : fabric_reserve(nic->fabric, slot, &packet);
    if (!payload) {
        return false;
    }
    const struct rail_gid *source =
        &rails[qp->rail].gid[request->source_gid_index % RAIL_GID_COUNT];
    build_grh(payload, source, request, request->bytes);
    *syndrome = segments_gather(nic, qp, request, 0, payload + GRH_BYTES, request->bytes);
    if (*syndrome) {
        return true;
    }
    if (group) {
        send_to_group(nic, &packet, staged, request->destination_gid);
    } else if (!nowhere) {
        fabric_commit(nic->fabric, slot, &packet);
    }
    qp->statistics->packets_sent++;
    qp->statistics->bytes_sent += request->bytes;
    return true;
}

/* What a CQE tells of the header: 0 is a GRH, as RoCE v1 has it, 1 IPv6, and 2 IPv4. */
static uint32_t header_type(const uint8_t *grh)
{
    if (grh[0] >> 4 != 6) {
        return 2;
    }
    return grh[6] == UDP ? 1 : 0;
}

void datagram_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload)
{
    if (!qp_receives(qp)) {
        return;
    }
    if (packet->payload_bytes < GRH_BYTES || packet->payload_bytes > GRH_BYTES + RAIL_MTU_BYTES ||
        packet->key != qp->attributes.queue_key) {
        return;
    }
    bool immediate = packet->operation == PACKET_SEND_ONLY_IMMEDIATE;
    qp->statistics->packets_received++;
    enum receive_result taken = receive_take(nic, qp);
    if (taken == RECEIVE_EMPTY) {
        return; /* dropped: nobody was ready */
    }
    qp->receive.taken = false;
    uint8_t syndrome = taken == RECEIVE_OK
                           ? receive_scatter(nic, qp, 0, payload, packet->payload_bytes)
                           : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    if (syndrome) {
        cq_write_error(nic, qp, false, syndrome, 0, qp->receive.index);
        qp_fail(nic, qp);
        return;
    }
    struct cqe cqe = {.opcode = immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
                      .solicited = packet->flags & PACKET_SOLICITED};
    cqe.fields.srqn_uidx = htobe32(qp->user_index & 0xffffff);
    cqe.fields.byte_cnt = htobe32(packet->payload_bytes);
    cqe.fields.imm_inval_pkey = immediate ? packet->immediate : htobe32(RAIL_PKEY);
    cqe.fields.sop_drop_qpn = htobe32(qp->number);
    cqe.fields.flags_rqpn =
        htobe32(CQE_GRH_PRESENT | header_type(payload) << 24 | (packet->source_qpn & 0xffffff));
    cqe.fields.wqe_counter = htobe16(qp->receive.index);
    qp->statistics->receive_cqes++;
    qp->statistics->bytes_received += packet->payload_bytes - GRH_BYTES;
    cq_write(nic, qp->receive_queue_completions, &cqe);
}

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
static void build_ipv4(uint8_t *ip, const uint8_t source[16], const struct rail_way *way,
                       uint16_t bytes)
{
    uint16_t total = htobe16((uint16_t)(bytes + 20));
    ip[0] = 0x45;
    ip[1] = way->traffic_class;
    memcpy(ip + 2, &total, 2);
    ip[6] = 0x40; /* do not fragment */
    ip[8] = way->hop_limit;
    ip[9] = UDP;
    memcpy(ip + 12, source + 12, 4);
    memcpy(ip + 16, way->gid + 12, 4);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) {
        sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    uint16_t checksum = htobe16((uint16_t) ~((sum & 0xffff) + (sum >> 16)));
    memcpy(ip + 10, &checksum, 2);
}

/* `routers`: how many are on the way, each of which takes a hop off. */
static void build_grh(uint8_t grh[GRH_BYTES], const struct rail_gid *gid,
                      const struct send_request *request, const struct rail_way *way,
                      uint8_t routers)
{
    uint32_t bytes = 12 + 8 + request->bytes + 4; /* BTH, DETH, payload, ICRC */
    memset(grh, 0, GRH_BYTES);
    if (gid->type == RAIL_GID_ROCE_V2) {
        bytes += 8; /* UDP */
    }
    if (gid->type == RAIL_GID_ROCE_V2 && is_ipv4(gid->raw)) {
        build_ipv4(grh + 20, gid->raw, way, (uint16_t)bytes);
        return;
    }
    if (gid->type ==
        RAIL_GID_INFINIBAND) { /* a GRH counts what is in the packet, with its padding */
        bytes += (request->opcode == MLX5_OPCODE_SEND_IMM ? 4 : 0) + (-request->bytes & 3);
    }
    uint32_t first = htobe32(6u << 28 | (uint32_t)way->traffic_class << 20 | way->flow_label);
    uint16_t length = htobe16((uint16_t)bytes);
    memcpy(grh, &first, 4);
    memcpy(grh + 4, &length, 2);
    grh[6] = gid->type == RAIL_GID_ROCE_V2 ? UDP : IBA;
    grh[7] = (uint8_t)(way->hop_limit - routers);
    memcpy(grh + 8, gid->raw, 16);
    memcpy(grh + 24, way->gid, 16);
}

/* A RoCE packet always has one; its WQEs do not say so. */
static bool has_grh(const struct nic *nic, const struct rail_way *way)
{
    return way->grh || !(nic_link(nic) & LINK_INFINIBAND);
}

static struct packet datagram_header(const struct nic *nic, const struct queue_pair *qp)
{
    const struct send_request *request = &qp->request;
    bool controlled = request->queue_key & CONTROLLED_QUEUE_KEY;
    bool grh = has_grh(nic, &request->way);
    return (struct packet){
        .operation =
            request->opcode == MLX5_OPCODE_SEND_IMM ? PACKET_SEND_ONLY_IMMEDIATE : PACKET_SEND_ONLY,
        .transport = TRANSPORT_UD,
        .flags = PACKET_WAKE | (request->solicited ? PACKET_SOLICITED : 0) | (grh ? PACKET_GRH : 0),
        .rail = (uint8_t)(qp->rail | qp_rail_reached(nic, qp, &request->way) << 4),
        .levels = packet_levels(&request->way),
        .partition = qp->attributes.partition,
        .payload_bytes = (grh ? GRH_BYTES : 0) + request->bytes,
        .destination_qpn = request->destination_qpn,
        .source_qpn = qp->number,
        .psn = qp->next_psn,
        .immediate = request->immediate,
        .key = controlled ? qp->attributes.queue_key : request->queue_key,
    };
}

/* On InfiniBand a multicast LID says so. On RoCE it is an address that nobody has. */
static bool is_for_group(const struct nic *nic, const struct packet *packet,
                         const struct rail_way *way)
{
    bool nowhere = packet->rail >> 4 == PACKET_NO_RAIL;
    bool infiniband = nic_link(nic) & LINK_INFINIBAND;
    return nowhere && packet->destination_qpn == MULTICAST_QPN &&
           (!infiniband || (rail_is_multicast_lid(way->lid) && way->grh));
}

bool datagram_send(struct nic *nic, struct queue_pair *qp, uint8_t *syndrome)
{
    const struct send_request *request = &qp->request;
    if (request->bytes > RAIL_MTU_BYTES) {
        *syndrome = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
        return true;
    }
    struct packet packet = datagram_header(nic, qp);
    bool nowhere = packet.rail >> 4 == PACKET_NO_RAIL;
    bool group = is_for_group(nic, &packet, &request->way);
    uint32_t header_bytes = packet.payload_bytes - request->bytes;
    uint8_t staged[GRH_BYTES + RAIL_MTU_BYTES];
    uint32_t slot = qpn_slot(packet.destination_qpn);
    uint8_t *payload = nowhere ? staged : fabric_reserve(nic->fabric, slot, &packet);
    if (!payload) {
        return false;
    }
    if (header_bytes) {
        struct rail_gid source =
            rail_gid(nic_link(nic), qp->rail, request->way.gid_index % RAIL_GID_COUNT);
        bool routed = !nowhere && !rail_same_subnet(nic_link(nic), qp->rail, packet.rail >> 4);
        struct rail_way way = request->way;
        if (nic_has_quirk(nic, QUIRK_HEADER)) {
            way.traffic_class = 0;
        }
        build_grh(payload, &source, request, &way, routed);
    }
    qp_tell_path_of_request(nic, qp);
    *syndrome = segments_gather(nic, qp, request, 0, payload + header_bytes, request->bytes);
    if (*syndrome) {
        return true;
    }
    if (group && !multicast_send(nic, qp, &packet, staged, request->way.gid)) {
        return false;
    }
    if (!nowhere) {
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

/* What a CQE tells of the way that the packet came (PRM; libmlx5 takes the P_Key for its index, as it
 * is in the PRM's CQE). */
static void put_way(const struct nic *nic, const struct packet *packet, const uint8_t *payload,
                    struct mlx5_cqe64 *cqe)
{
    uint32_t flags = packet->source_qpn & 0xffffff;
    if (nic_link(nic) & LINK_INFINIBAND) {
        const struct rail *from = &rails[packet->rail & 15 & (RAIL_COUNT - 1)];
        bool routed = !rail_same_subnet(nic_link(nic), packet->rail & 15, packet->rail >> 4);
        cqe->slid =
            htobe16(routed ? RAIL_ROUTER_LID : from->lid + PACKET_SOURCE_BITS(packet->levels));
        cqe->ml_path = PACKET_DESTINATION_BITS(packet->levels);
        flags |= (uint32_t)PACKET_LEVEL(packet->levels) << 24;
        flags |= packet->flags & PACKET_GRH ? CQE_GRH_PRESENT : 0;
    } else {
        flags |= CQE_GRH_PRESENT | header_type(payload) << 24;
    }
    cqe->flags_rqpn = htobe32(flags);
}

void datagram_receive(struct nic *nic, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload)
{
    if (!qp_receives(qp)) {
        return;
    }
    uint32_t header_bytes = packet->flags & PACKET_GRH ? GRH_BYTES : 0;
    if (packet->payload_bytes < header_bytes ||
        packet->payload_bytes > header_bytes + RAIL_MTU_BYTES ||
        (!header_bytes && !(nic_link(nic) & LINK_INFINIBAND)) ||
        packet->key != qp->attributes.queue_key) {
        return;
    }
    if (nic_has_quirk(nic, QUIRK_DATAGRAM_MTU) &&
        packet->payload_bytes - header_bytes == RAIL_MTU_BYTES) {
        return;
    }
    bool immediate = packet->operation == PACKET_SEND_ONLY_IMMEDIATE;
    qp->statistics->packets_received++;
    enum receive_result taken = receive_take(nic, qp);
    if (taken == RECEIVE_EMPTY) {
        return; /* dropped: nobody was ready */
    }
    qp->receive.taken = false;
    /* The place of the GRH is there also without one (IBTA 11.4.1.2), and keeps what it held. */
    uint32_t offset = GRH_BYTES - header_bytes;
    uint8_t syndrome = taken == RECEIVE_OK
                           ? receive_scatter(nic, qp, offset, payload, packet->payload_bytes)
                           : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    if (syndrome) {
        cq_write_error(nic, qp, false, syndrome, 0, qp->receive.index);
        qp_fail(nic, qp);
        return;
    }
    struct cqe cqe = {.opcode = immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND,
                      .solicited = packet->flags & PACKET_SOLICITED};
    cqe.fields.srqn_uidx = htobe32(qp->user_index & 0xffffff);
    cqe.fields.byte_cnt = htobe32(offset + packet->payload_bytes);
    cqe.fields.imm_inval_pkey = immediate ? packet->immediate : htobe32(packet->partition);
    cqe.fields.sop_drop_qpn = htobe32(qp->number);
    put_way(nic, packet, payload, &cqe.fields);
    if (nic_has_quirk(nic, QUIRK_WQE_DATAGRAM)) {
        cqe.fields.flags_rqpn &= htobe32(0xff000000);
    }
    cqe.fields.wqe_counter = htobe16(qp->receive.index);
    qp->statistics->receive_cqes++;
    qp->statistics->bytes_received += packet->payload_bytes - header_bytes;
    late_land(nic, qp, false);
    cq_write(nic, qp->receive_queue_completions, &cqe);
}

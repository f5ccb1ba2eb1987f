/* rendezvous.c: what the NIC does for a matched rendezvous request: an RDMA READ of the message
 * into the tagged buffer, and a SEND that tells the sender of its end (rdma-core,
 * Documentation/tag_matching.md). "The ownership of the QP's Send Queue is passed to the TM-SRQ":
 * kernels ask for it on QPs without a send queue (MLX5_QPC_OFFLOAD_TYPE_RNDV), and others leave
 * rendezvous to software. From a QP's first rendezvous on, its send queue is one of the NIC's own. That queue holds WQEs as
 * programs write them, so requester.c need not know of it. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/nic/tag.h"

#define BLOCKS 128u     /* each WQE here has one block */
#define A_RENDEZVOUS 2u /* WQEs */
#define FENCE (4u << 5)
#define INLINE_FLAG 0x80000000u

struct rendezvous {
    uint8_t *program_buffer, *program_record;
    uint32_t program_blocks;
    uint32_t record[2]; /* as a doorbell record */
    uint16_t producer;
    struct {
        bool reads;
        uint16_t tag;
    } request[BLOCKS];
    uint8_t wqes[BLOCKS][64];
};

/* If the program has used the send queue, the NIC cannot have it. */
static bool is_used(const struct queue_pair *qp)
{
    uint32_t producer = 0;
    return qp->send_blocks && (qp->send_next || !dma_load32(qp->record + 4, &producer) || producer);
}

static bool take_over(struct queue_pair *qp)
{
    if (qp->rendezvous) {
        return true;
    }
    struct rendezvous *r = is_used(qp) ? NULL : calloc(1, sizeof(*r));
    if (!r) {
        return false;
    }
    r->program_buffer = qp->send_buffer;
    r->program_record = qp->record;
    r->program_blocks = qp->send_blocks;
    qp->send_buffer = r->wqes[0];
    qp->record = (uint8_t *)r->record;
    qp->send_blocks = BLOCKS;
    qp->push.bytes = 0;
    qp->rendezvous = r;
    return true;
}

bool rendezvous_has_room(const struct queue_pair *qp)
{
    const struct rendezvous *r = qp->rendezvous;
    if (!r) {
        return true;
    }
    bool waits = qp->in_flight_head != qp->in_flight_tail;
    uint16_t oldest =
        waits ? qp->in_flight[qp->in_flight_head % NIC_IN_FLIGHT].index : qp->send_next;
    return (uint16_t)(r->producer - oldest) + A_RENDEZVOUS <= BLOCKS;
}

/* Writes the next WQE. segments: what follows the control segment. */
static void put(struct queue_pair *qp, uint8_t opcode, uint8_t flags, const void *segments,
                uint32_t bytes)
{
    struct rendezvous *r = qp->rendezvous;
    struct mlx5_wqe_ctrl_seg control = {
        .opmod_idx_opcode = htobe32((uint32_t)r->producer << 8 | opcode),
        .qpn_ds = htobe32(qp->number << 8 | (uint32_t)(sizeof(control) + bytes) / 16),
        .fm_ce_se = flags,
    };
    uint8_t *to = r->wqes[r->producer++ % BLOCKS];
    memcpy(to, &control, sizeof(control));
    memcpy(to + sizeof(control), segments, bytes);
}

static void put_read(struct queue_pair *qp, const struct segment *buffer,
                     const struct ibv_rvh *where)
{
    struct {
        struct mlx5_wqe_raddr_seg remote;
        struct mlx5_wqe_data_seg data;
    } segments = {{.raddr = where->va, .rkey = where->rkey},
                  {where->len, htobe32(buffer->key), htobe64(buffer->address)}};
    uint32_t bytes = sizeof(segments); /* a count of zero would stand for 2^31 */
    put(qp, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, &segments,
        where->len ? bytes : (uint32_t)sizeof(segments.remote));
}

/* "A copy of the original TMH and RVH of the rendezvous request, apart the opcode". */
static void put_end(struct queue_pair *qp, const uint8_t *request)
{
    uint8_t segment[48] = {0};
    uint32_t count = htobe32(TAG_HEADERS_BYTES | INLINE_FLAG);
    memcpy(segment, &count, sizeof(count));
    memcpy(segment + sizeof(count), request, TAG_HEADERS_BYTES);
    segment[sizeof(count)] = IBV_TMH_FIN;
    put(qp, MLX5_OPCODE_SEND, FENCE, segment, sizeof(segment));
}

bool rendezvous_start(struct nic *nic, struct queue_pair *qp, uint16_t tag,
                      const struct segment *buffer, const uint8_t *request)
{
    struct ibv_rvh where;
    memcpy(&where, request + sizeof(struct ibv_tmh), sizeof(where));
    if (!qp->offloads_rendezvous || qp->attributes.max_reads == 0 ||
        be32toh(where.len) > NIC_MAX_MESSAGE_BYTES || !take_over(qp)) {
        return false;
    }
    struct rendezvous *r = qp->rendezvous;
    r->request[r->producer % BLOCKS].reads = true;
    r->request[r->producer % BLOCKS].tag = tag;
    put_read(qp, buffer, &where);
    put_end(qp, request);
    r->record[1] = htobe32(r->producer);
    qp->rings = true;
    qp_activate(nic, qp);
    return true;
}

void rendezvous_complete(struct nic *nic, struct queue_pair *qp, const struct in_flight *m)
{
    struct rendezvous *r = qp->rendezvous;
    uint32_t place = m->index % BLOCKS;
    if (!r->request[place].reads) {
        return;
    }
    r->request[place].reads = false;
    tag_transferred(nic, qp, r->request[place].tag, m->bytes);
}

void rendezvous_fail(struct nic *nic, struct queue_pair *qp, uint8_t syndrome, uint16_t index)
{
    struct rendezvous *r = qp->rendezvous;
    uint32_t place = index % BLOCKS;
    if (syndrome != MLX5_CQE_SYNDROME_WR_FLUSH_ERR) {
        qp_event(nic, qp, EVENT_QP_FATAL);
    }
    if (!r->request[place].reads) {
        return;
    }
    r->request[place].reads = false;
    tag_cancel(nic, qp, r->request[place].tag);
}

void rendezvous_end(struct nic *nic, struct queue_pair *qp)
{
    struct rendezvous *r = qp->rendezvous;
    if (!r) {
        return;
    }
    for (uint32_t i = 0; i < BLOCKS; i++) { /* from the oldest on */
        uint16_t index = (uint16_t)(r->producer + i);
        if (r->request[index % BLOCKS].reads) {
            rendezvous_fail(nic, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, index);
        }
    }
    qp->send_buffer = r->program_buffer;
    qp->record = r->program_record;
    qp->send_blocks = r->program_blocks;
    qp->rendezvous = NULL;
    free(r);
}

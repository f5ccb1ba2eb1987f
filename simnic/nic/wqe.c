/* wqe.c: reads send WQEs (PRM, "Send WQE Construction"): makes bytes, which may be anything, a
 * request whose fields have all been checked. If something is wrong, the request gets a
 * syndrome. */
#include "simnic/nic/internal.h"

#include <string.h>

#define INLINE_FLAG 0x80000000u
#define SEGMENT_BYTES 16u
#define EXTENDED_AV 0x80000000u
#define FENCE_SHIFT 5
#define GRH_PRESENT 0x40000000u /* of an InfiniBand port; RoCE leaves it out */

struct reader {
    const uint8_t *at;
    uint32_t left; /* bytes */
};

static bool take(struct reader *reader, void *to, uint32_t bytes)
{
    if (reader->left < bytes) {
        return false;
    }
    memcpy(to, reader->at, bytes);
    reader->at += bytes;
    reader->left -= bytes;
    return true;
}

enum form {
    FORM_SEND = 1,      /* data segments are read */
    FORM_REMOTE = 2,    /* a remote address segment comes first */
    FORM_ATOMIC = 4,    /* then an atomic segment */
    FORM_RESPONDS = 8,  /* data segments are written by the response */
    FORM_CONNECTED = 16 /* not for datagrams */
};

static uint8_t form_of(uint8_t opcode)
{
    switch (opcode) {
    case MLX5_OPCODE_SEND:
    case MLX5_OPCODE_SEND_IMM:
        return FORM_SEND;
    case MLX5_OPCODE_SEND_INVAL:
        return FORM_SEND | FORM_CONNECTED;
    case MLX5_OPCODE_RDMA_WRITE:
    case MLX5_OPCODE_RDMA_WRITE_IMM:
        return FORM_SEND | FORM_REMOTE | FORM_CONNECTED;
    case MLX5_OPCODE_RDMA_READ:
        return FORM_RESPONDS | FORM_REMOTE | FORM_CONNECTED;
    case MLX5_OPCODE_ATOMIC_CS:
    case MLX5_OPCODE_ATOMIC_FA:
        return FORM_RESPONDS | FORM_REMOTE | FORM_ATOMIC | FORM_CONNECTED;
    default:
        return 0;
    }
}

static bool allowed(const struct queue_pair *qp, uint8_t form)
{
    if (qp->type == TYPE_UD) {
        return !(form & FORM_CONNECTED);
    }
    if (qp->type == TYPE_UC) {
        return !(form & FORM_RESPONDS);
    }
    return true;
}

/* The address vector of a datagram or a DC message: 48 bytes, or 16 if its extension flag is
 * clear. */
static bool read_address(struct reader *reader, struct send_request *request)
{
    struct mlx5_wqe_av av = {0};
    if (!take(reader, &av, 16)) {
        return false;
    }
    uint32_t destination = be32toh(av.dqp_dct);
    if (destination & EXTENDED_AV && !take(reader, (uint8_t *)&av + 16, sizeof(av) - 16)) {
        return false;
    }
    request->destination_qpn = destination & 0xffffff;
    request->queue_key = be32toh(av.key.qkey.qkey);
    request->access_key = be64toh(av.key.dc_key);
    request->way = (struct rail_way){.lid = be16toh(av.rlid),
                                     .path_bits = av.fl_mlid & 0x7f,
                                     .service_level = av.stat_rate_sl & 15,
                                     .grh = (be32toh(av.grh_gid_fl) & GRH_PRESENT) != 0,
                                     .gid_index = (uint8_t)(be32toh(av.grh_gid_fl) >> 20),
                                     .hop_limit = av.hop_limit,
                                     .traffic_class = av.tclass,
                                     .flow_label = be32toh(av.grh_gid_fl) & 0xfffff};
    memcpy(request->way.gid, av.rgid, 16);
    return true;
}

/* Data segments and inline data may be mixed, as by programs that put a header inline before the
 * data. A request has places for more segments than fit into a WQE. */
static bool read_data(struct reader *reader, struct send_request *request, bool may_inline)
{
    uint64_t bytes = 0;
    while (reader->left >= SEGMENT_BYTES) {
        struct mlx5_wqe_data_seg data;
        memcpy(&data, reader->at, sizeof(data));
        uint32_t count = be32toh(data.byte_count), taken = SEGMENT_BYTES;
        struct segment s = {be64toh(data.addr), count ? count : 1u << 31, be32toh(data.lkey),
                            false};
        if (count & INLINE_FLAG) {
            count &= ~INLINE_FLAG;
            taken = (4 + count + SEGMENT_BYTES - 1) & ~(SEGMENT_BYTES - 1);
            if (!may_inline || count > NIC_WQE_MAX_BYTES || taken > reader->left) {
                return false;
            }
            s = (struct segment){(uint64_t)(reader->at + 4 - request->wqe), count, 0, true};
        }
        request->segment[request->segments++] = s;
        bytes += s.bytes;
        reader->at += taken;
        reader->left -= taken;
    }
    if (bytes > NIC_MAX_MESSAGE_BYTES) {
        return false;
    }
    request->bytes = (uint32_t)bytes;
    return reader->left == 0;
}

static bool read_segments(const struct queue_pair *qp, struct reader *reader,
                          struct send_request *request)
{
    if (request->opcode == MLX5_OPCODE_UMR) { /* window.c reads the rest */
        return reader->left >= sizeof(struct mlx5_wqe_umr_ctrl_seg) +
                                   sizeof(struct mlx5_wqe_mkey_context_seg) &&
               qp->type != TYPE_UD;
    }
    if (request->opcode == MLX5_OPCODE_TAG_MATCHING) { /* tag.c does */
        return reader->left >= sizeof(struct mlx5_wqe_tm_seg) && qp->type == TYPE_RC;
    }
    uint8_t form = form_of(request->opcode);
    if (!form || !allowed(qp, form)) {
        return request->opcode == MLX5_OPCODE_NOP;
    }
    bool addressed = qp->type == TYPE_UD || qp->type == TYPE_DCI;
    if (qp->type == TYPE_XRC_INITIATOR) { /* XRC segment: the remote SRQ */
        uint32_t xrc[4];
        if (!take(reader, xrc, sizeof(xrc))) {
            return false;
        }
        request->queue_key = be32toh(xrc[0]) & 0xffffff;
    }
    if (addressed && !read_address(reader, request)) {
        return false;
    }
    if (form & FORM_REMOTE) {
        struct mlx5_wqe_raddr_seg remote;
        if (!take(reader, &remote, sizeof(remote))) {
            return false;
        }
        request->remote_address = be64toh(remote.raddr);
        request->remote_key = be32toh(remote.rkey);
    }
    if (form & FORM_ATOMIC) {
        struct mlx5_wqe_atomic_seg atomic;
        if (!take(reader, &atomic, sizeof(atomic))) {
            return false;
        }
        request->swap_or_add = be64toh(atomic.swap_add);
        request->compare = be64toh(atomic.compare);
    }
    if (!read_data(reader, request, form & FORM_SEND)) {
        return false;
    }
    return !(form & FORM_ATOMIC) || request->bytes == 8;
}

uint32_t wqe_blocks(const uint8_t *wqe)
{
    struct mlx5_wqe_ctrl_seg control;
    memcpy(&control, wqe, sizeof(control));
    uint32_t blocks = ((be32toh(control.qpn_ds) & 0x3f) + 3) / 4;
    return blocks ? blocks : 1;
}

void wqe_parse(const struct queue_pair *qp, struct send_request *request, uint16_t index,
               uint32_t bytes)
{
    struct mlx5_wqe_ctrl_seg control;
    memcpy(&control, request->wqe, sizeof(control));
    uint32_t opcode_index = be32toh(control.opmod_idx_opcode);
    uint32_t qpn_size = be32toh(control.qpn_ds);
    uint32_t size = (qpn_size & 0x3f) * SEGMENT_BYTES;
    request->index = index;
    request->blocks = (uint8_t)((size + 63) / 64);
    request->opcode = (uint8_t)opcode_index;
    request->signalled = qp->signal_all || (control.fm_ce_se & (3 << 2)) == MLX5_WQE_CTRL_CQ_UPDATE;
    request->solicited = control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED;
    /* 1 is the small fence. It waits for local work, and ours is done. */
    request->fence = control.fm_ce_se >> FENCE_SHIFT >= 2;
    request->syndrome = 0;
    request->segments = 0;
    request->immediate = control.imm;
    request->stream = be16toh(control.dci_stream_channel_id);
    request->bytes = 0;
    request->destination_qpn = qp->attributes.destination_qpn;
    if (request->blocks == 0) {
        request->blocks = 1;
    }
    bool mine = qpn_size >> 8 == qp->number && (uint16_t)(opcode_index >> 8) == index;
    bool whole = size >= sizeof(control) && size <= bytes;
    struct reader reader = {request->wqe + sizeof(control),
                            whole ? size - (uint32_t)sizeof(control) : 0};
    if (!mine || !whole || !read_segments(qp, &reader, request)) {
        request->syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        request->bytes = 0;
        request->segments = 0;
    }
}

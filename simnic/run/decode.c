/* decode.c: see decode.h. */
#include "simnic/run/decode.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "simnic/nic/nic.h"
#include "simnic/nic/tag.h"

#define SEGMENT_BYTES 16u
#define GRH_PRESENT 0x40000000u
#define INLINE_SHOWN_BYTES 16u
#define FORMAT_COMPRESSED 3 /* of a CQE, in bits 2 and 3 of op_own; 1 and 2: inline scatter */
#define MINI_CQES 7u        /* in a block of 64 bytes, whose last 8 are as in every CQE */

struct name {
    uint8_t value;
    const char *text;
};

static const char *find_name(const struct name *names, size_t count, uint8_t value)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i].value == value) {
            return names[i].text;
        }
    }
    return NULL;
}
#define FIND_NAME(names, value) find_name(names, sizeof(names) / sizeof(names)[0], value)

/* Prints a name, or the number of what has none. */
static void print_name(FILE *out, const char *name, const char *what, uint8_t value)
{
    if (name) {
        fprintf(out, " %s", name);
    } else {
        fprintf(out, " %s 0x%02x", what, value);
    }
}

static void print_bytes(FILE *out, const uint8_t *bytes, uint32_t count)
{
    uint32_t shown = count < INLINE_SHOWN_BYTES ? count : INLINE_SHOWN_BYTES;
    for (uint32_t i = 0; i < shown; i++) {
        fprintf(out, "%s%02x", i ? " " : "", bytes[i]);
    }
    if (shown < count) {
        fputs(" ...", out);
    }
}

void decode_raw(FILE *out, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t at = 0; at < count; at += 16) {
        fprintf(out, "    %04x:", at);
        for (uint32_t i = at; i < count && i < at + 16; i++) {
            fprintf(out, "%s%02x", i % 4 ? "" : " ", bytes[i]);
        }
        fputc('\n', out);
    }
}

/* ---- Work requests --------------------------------------------------------------------------- */

static const struct name opcodes[] = {
    {MLX5_OPCODE_NOP, "NOP"},
    {MLX5_OPCODE_SEND_INVAL, "SEND_INVAL"},
    {MLX5_OPCODE_RDMA_WRITE, "RDMA_WRITE"},
    {MLX5_OPCODE_RDMA_WRITE_IMM, "RDMA_WRITE_IMM"},
    {MLX5_OPCODE_SEND, "SEND"},
    {MLX5_OPCODE_SEND_IMM, "SEND_IMM"},
    {MLX5_OPCODE_TSO, "TSO"},
    {MLX5_OPCODE_RDMA_READ, "RDMA_READ"},
    {MLX5_OPCODE_ATOMIC_CS, "ATOMIC_CS"},
    {MLX5_OPCODE_ATOMIC_FA, "ATOMIC_FA"},
    {MLX5_OPCODE_ATOMIC_MASKED_CS, "ATOMIC_MASKED_CS"},
    {MLX5_OPCODE_ATOMIC_MASKED_FA, "ATOMIC_MASKED_FA"},
    {MLX5_OPCODE_FMR, "FMR"},
    {MLX5_OPCODE_LOCAL_INVAL, "LOCAL_INVAL"},
    {MLX5_OPCODE_CONFIG_CMD, "CONFIG_CMD"},
    {MLX5_OPCODE_SET_PSV, "SET_PSV"},
    {MLX5_OPCODE_UMR, "UMR"},
    {MLX5_OPCODE_TAG_MATCHING, "TAG_MATCHING"},
};

struct reader {
    FILE *out;
    const uint8_t *at;
    uint32_t left; /* bytes */
};

/* Copies the next bytes; of a WQE that ends before them, says so. */
static bool take(struct reader *reader, void *to, uint32_t bytes)
{
    if (reader->left < bytes) {
        fprintf(reader->out, "; cut off");
        reader->left = 0;
        return false;
    }
    memcpy(to, reader->at, bytes);
    reader->at += bytes;
    reader->left -= bytes;
    return true;
}

static bool address_vector(struct reader *reader, bool connected_dynamically)
{
    struct mlx5_wqe_av av = {0};
    if (!take(reader, &av, SEGMENT_BYTES)) {
        return false;
    }
    uint32_t destination = be32toh(av.dqp_dct);
    fprintf(reader->out, "; to qp 0x%06x", destination & 0xffffff);
    if (connected_dynamically) {
        fprintf(reader->out, " key 0x%llx", (unsigned long long)be64toh(av.key.dc_key));
    } else {
        fprintf(reader->out, " qkey 0x%x", be32toh(av.key.qkey.qkey));
    }
    fprintf(reader->out, " sl %u", av.stat_rate_sl & 15);
    if (!(destination & MLX5_EXTENDED_UD_AV)) {
        return true;
    }
    if (!take(reader, (uint8_t *)&av + SEGMENT_BYTES, sizeof(av) - SEGMENT_BYTES)) {
        return false;
    }
    /* On InfiniBand a flag says whether there is a GRH. RoCE has a GID without it. */
    static const uint8_t no_gid[16];
    uint32_t label = be32toh(av.grh_gid_fl);
    bool without = memcmp(av.rgid, no_gid, sizeof(no_gid)) == 0;
    if (label & GRH_PRESENT || without) {
        fprintf(reader->out, " lid 0x%04x path bits %u", be16toh(av.rlid), av.fl_mlid & 0x7f);
    }
    if (without) {
        return true;
    }
    char gid[RAIL_GID_TEXT_BYTES];
    rail_gid_text(av.rgid, gid);
    fprintf(reader->out, " gid %s from gid %u hops %u tclass %u flow 0x%05x", gid,
            label >> 20 & 0xff, av.hop_limit, av.tclass, label & 0xfffff);
    return true;
}

static bool remote_address(struct reader *reader)
{
    struct mlx5_wqe_raddr_seg remote;
    if (!take(reader, &remote, sizeof(remote))) {
        return false;
    }
    fprintf(reader->out, "; raddr 0x%llx rkey 0x%x", (unsigned long long)be64toh(remote.raddr),
            be32toh(remote.rkey));
    return true;
}

static bool atomic_operands(struct reader *reader, uint8_t opcode)
{
    struct mlx5_wqe_atomic_seg atomic;
    if (!take(reader, &atomic, sizeof(atomic))) {
        return false;
    }
    unsigned long long value = be64toh(atomic.swap_add);
    if (opcode == MLX5_OPCODE_ATOMIC_FA) {
        fprintf(reader->out, "; add 0x%llx", value);
    } else {
        fprintf(reader->out, "; compare 0x%llx swap 0x%llx",
                (unsigned long long)be64toh(atomic.compare), value);
    }
    return true;
}

/* Data segments, or inline data in place of them, up to the end of the WQE. */
static void data(struct reader *reader)
{
    while (reader->left) {
        struct mlx5_wqe_data_seg segment;
        if (!take(reader, &segment, sizeof(segment))) {
            return;
        }
        uint32_t bytes = be32toh(segment.byte_count);
        if (!(bytes & MLX5_INLINE_SEG)) {
            fprintf(reader->out, "; lkey 0x%x addr 0x%llx len %u", be32toh(segment.lkey),
                    (unsigned long long)be64toh(segment.addr), bytes ? bytes : 1u << 31);
            continue;
        }
        /* Inline data begin in the segment itself, after the count, and are padded to 16. */
        bytes &= ~MLX5_INLINE_SEG;
        const uint8_t *place = reader->at - (SEGMENT_BYTES - 4);
        uint32_t there = reader->left + SEGMENT_BYTES - 4;
        fprintf(reader->out, "; inline %u: ", bytes);
        print_bytes(reader->out, place, bytes < there ? bytes : there);
        uint32_t more = bytes <= SEGMENT_BYTES - 4 ? 0 : bytes - (SEGMENT_BYTES - 4);
        more = more > there ? more : (more + SEGMENT_BYTES - 1) & ~(SEGMENT_BYTES - 1);
        if (more > reader->left) {
            fprintf(reader->out, "; cut off");
            return;
        }
        reader->at += more;
        reader->left -= more;
    }
}

/* An operation on the list of tags. */
static void tag_operation(struct reader *reader)
{
    static const char *const operations[] = {"synchronize", "append", "remove"};
    struct mlx5_wqe_tm_seg tag;
    if (!take(reader, &tag, sizeof(tag))) {
        return;
    }
    uint32_t operation = tag.opcode >> 4, index = be16toh(tag.index);
    if (operation < 3) {
        fprintf(reader->out, "; %s", operations[operation]);
    } else {
        fprintf(reader->out, "; operation %u", operation);
    }
    if (operation == 1) {
        fprintf(reader->out, " tag 0x%llx mask 0x%llx next %u",
                (unsigned long long)be64toh(tag.append_tag),
                (unsigned long long)be64toh(tag.append_mask), index);
    } else if (operation) {
        fprintf(reader->out, " place %u", index);
    }
    if (tag.flags & TAG_FLAG_COUNT) {
        fprintf(reader->out, " count %u", be16toh(tag.sw_cnt));
    }
    if (tag.flags & TAG_FLAG_COMPLETION) {
        fputs(" completion", reader->out);
    }
    data(reader);
}

/* What follows the control segment. */
static void segments(struct reader *reader, uint8_t opcode, uint8_t type)
{
    bool addressed = type == TYPE_UD || type == TYPE_DCI;
    bool is_atomic = opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
    bool is_send = opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM ||
                   opcode == MLX5_OPCODE_SEND_INVAL;
    bool is_remote = is_atomic || opcode == MLX5_OPCODE_RDMA_WRITE ||
                     opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_RDMA_READ;
    if (opcode == MLX5_OPCODE_TAG_MATCHING) {
        tag_operation(reader);
        return;
    }
    if (!is_send && !is_remote) {
        if (reader->left) {
            fprintf(reader->out, "; %u bytes of segments", reader->left);
        }
        return;
    }
    if (type == TYPE_XRC_INITIATOR) {
        uint32_t srq[4];
        if (!take(reader, srq, sizeof(srq))) {
            return;
        }
        fprintf(reader->out, "; to srq 0x%06x", be32toh(srq[0]) & 0xffffff);
    }
    if (addressed && !address_vector(reader, type == TYPE_DCI)) {
        return;
    }
    if (is_remote && !remote_address(reader)) {
        return;
    }
    if (is_atomic && !atomic_operands(reader, opcode)) {
        return;
    }
    data(reader);
}

static void print_flags(FILE *out, uint8_t flags)
{
    static const char *const events[] = {"", " signalled-on-error", " signalled",
                                         " signalled+event"};
    static const char *const fences[] = {"",       " small-fence", " fence",   " strong-order",
                                         " fence", " fence-5",     " fence-6", " fence-7"};
    fputs(events[flags >> 2 & 3], out);
    if (flags & MLX5_WQE_CTRL_SOLICITED) {
        fputs(" solicited", out);
    }
    fputs(fences[flags >> 5], out);
}

void decode_wqe(FILE *out, uint32_t qpn, uint8_t type, const uint8_t *bytes, uint32_t count)
{
    struct mlx5_wqe_ctrl_seg control;
    if (count < sizeof(control)) {
        fprintf(out, " cut off: %u bytes", count);
        return;
    }
    memcpy(&control, bytes, sizeof(control));
    uint32_t operation = be32toh(control.opmod_idx_opcode), qpn_size = be32toh(control.qpn_ds);
    uint8_t opcode = (uint8_t)operation;
    uint32_t size = (qpn_size & 0x3f) * SEGMENT_BYTES;
    print_name(out, FIND_NAME(opcodes, opcode), "opcode", opcode);
    fprintf(out, " index %u ds %u", operation >> 8 & 0xffff, qpn_size & 0x3f);
    if (qpn_size >> 8 != qpn) {
        fprintf(out, " (names qp 0x%06x)", qpn_size >> 8);
    }
    if (operation >> 24) {
        fprintf(out, " opmod %u", operation >> 24);
    }
    print_flags(out, control.fm_ce_se);
    if (opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM) {
        fprintf(out, " imm 0x%08x", be32toh(control.imm));
    } else if (opcode == MLX5_OPCODE_SEND_INVAL) {
        fprintf(out, " invalidate rkey 0x%x", be32toh(control.imm));
    }
    if (size > count) {
        fprintf(out, "; %u bytes of %u", count, size);
    }
    size = size > count ? count : size;
    uint32_t left = size > sizeof(control) ? size - (uint32_t)sizeof(control) : 0;
    struct reader reader = {out, bytes + sizeof(control), left};
    segments(&reader, opcode, type);
}

/* ---- Completions ----------------------------------------------------------------------------- */

static const struct name cqe_opcodes[] = {
    {MLX5_CQE_REQ, "REQ"},
    {MLX5_CQE_RESP_WR_IMM, "RESP_WR_IMM"},
    {MLX5_CQE_RESP_SEND, "RESP_SEND"},
    {MLX5_CQE_RESP_SEND_IMM, "RESP_SEND_IMM"},
    {MLX5_CQE_RESP_SEND_INV, "RESP_SEND_INV"},
    {MLX5_CQE_RESIZE_CQ, "RESIZE_CQ"},
    {MLX5_CQE_NO_PACKET, "NO_PACKET"},
    {MLX5_CQE_SIG_ERR, "SIG_ERR"},
    {MLX5_CQE_REQ_ERR, "REQ_ERR"},
    {MLX5_CQE_RESP_ERR, "RESP_ERR"},
    {MLX5_CQE_INVALID, "INVALID"},
};

static const struct name syndromes[] = {
    {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, "LOCAL_LENGTH_ERR"},
    {MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "LOCAL_QP_OP_ERR"},
    {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, "LOCAL_PROT_ERR"},
    {MLX5_CQE_SYNDROME_WR_FLUSH_ERR, "WR_FLUSH_ERR"},
    {MLX5_CQE_SYNDROME_MW_BIND_ERR, "MW_BIND_ERR"},
    {MLX5_CQE_SYNDROME_BAD_RESP_ERR, "BAD_RESP_ERR"},
    {MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, "LOCAL_ACCESS_ERR"},
    {MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "REMOTE_INVAL_REQ_ERR"},
    {MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, "REMOTE_ACCESS_ERR"},
    {MLX5_CQE_SYNDROME_REMOTE_OP_ERR, "REMOTE_OP_ERR"},
    {MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, "TRANSPORT_RETRY_EXC_ERR"},
    {MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR"},
    {MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, "REMOTE_ABORTED_ERR"},
};

/* No public document lists these, but for the page fault: they are what nic/cq.c
 * gives, after reports of what ConnectX adapters do. */
static const struct name vendor_syndromes[] = {
    {0x32, "message too long"}, {0x51, "local protection"},       {0x68, "work request"},
    {0x81, "no answer"},        {0x87, "receiver not ready"},     {0x88, "remote access"},
    {0x89, "remote operation"}, {0x8a, "remote invalid request"}, {0x93, "page fault (ODP)"},
    {0xf9, "flushed"},
};

static bool is_response(uint8_t opcode)
{
    return opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV;
}

uint32_t decode_cqe_qpn(const uint8_t *bytes, uint32_t count)
{
    struct mlx5_cqe64 cqe;
    if (count < sizeof(cqe)) {
        return UINT32_MAX;
    }
    memcpy(&cqe, bytes, sizeof(cqe));
    if ((cqe.op_own >> 2 & 3) == FORMAT_COMPRESSED) {
        return UINT32_MAX; /* its title, the CQE before it, does */
    }
    return be32toh(cqe.sop_drop_qpn) & 0xffffff;
}

static void print_error(FILE *out, const uint8_t *bytes)
{
    struct mlx5_err_cqe error;
    memcpy(&error, bytes, sizeof(error));
    const char *name = FIND_NAME(syndromes, error.syndrome);
    const char *vendor = FIND_NAME(vendor_syndromes, error.vendor_err_synd);
    fprintf(out, " syndrome 0x%02x (%s) vendor 0x%02x (%s)", error.syndrome,
            name ? name : "unknown", error.vendor_err_synd, vendor ? vendor : "unknown");
}

/* The mini CQEs of a compressed block: what is not the same as in the title, the CQE before. */
static void print_compressed(FILE *out, const uint8_t *bytes, uint8_t op_own)
{
    uint32_t count = (op_own >> 4) + 1u;
    fprintf(out, " compressed: %u mini CQEs, format 3 owner %u:", count, op_own & 1);
    for (uint32_t i = 0; i < count && i < MINI_CQES; i++) {
        const uint8_t *mini = bytes + 8 * (size_t)i;
        uint16_t counter;
        uint32_t byte_count;
        memcpy(&counter, mini, sizeof(counter));
        memcpy(&byte_count, mini + 4, sizeof(byte_count));
        fprintf(out, " [wqe %u opcode 0x%02x bytes %u]", be16toh(counter), mini[2],
                be32toh(byte_count));
    }
    if (count > MINI_CQES) {
        fputs(" ...", out);
    }
}

/* What a completion of a receive says of the message. */
static void print_message(FILE *out, const struct mlx5_cqe64 *cqe, uint8_t opcode, uint8_t type)
{
    uint32_t queue = be32toh(cqe->srqn_uidx) & 0xffffff;
    uint32_t value = be32toh(cqe->imm_inval_pkey);
    if (opcode == MLX5_CQE_RESP_SEND_INV) {
        fprintf(out, " invalidated rkey 0x%x", value);
    } else if (opcode != MLX5_CQE_RESP_SEND) {
        fprintf(out, " imm 0x%08x", value);
    }
    if (type == TYPE_UD) {
        fprintf(out, " from qp 0x%06x", be32toh(cqe->flags_rqpn) & 0xffffff);
    }
    if (queue) {
        fprintf(out, " srq/index 0x%06x", queue);
    }
}

static const struct name tag_cqes[] = {
    {TAG_CQE_CONSUMED, "CONSUMED"},
    {TAG_CQE_EXPECTED, "EXPECTED"},
    {TAG_CQE_UNEXPECTED, "UNEXPECTED"},
    {TAG_CQE_WITHOUT, "NO_TAG"},
    {TAG_CQE_APPENDED, "APPEND"},
    {TAG_CQE_REMOVED, "REMOVE"},
    {TAG_CQE_SYNCHRONIZED, "NOOP"},
    {TAG_CQE_CONSUMED_WHOLE, "CONSUMED_MSG"},
    {TAG_CQE_SOFTWARE, "CONSUMED_MSG_SW_RNDV"},
    {TAG_CQE_CANCELED, "MSG_COMPLETION_CANCELED"},
};

static void print_tag(FILE *out, const struct mlx5_cqe64 *cqe)
{
    fputs(" tm", out);
    print_name(out, FIND_NAME(tag_cqes, cqe->app_op), "operation", cqe->app_op);
    if (cqe->app_op == TAG_CQE_UNEXPECTED || cqe->app_op == TAG_CQE_WITHOUT) {
        return;
    }
    fprintf(out, " place %u", be16toh(cqe->app_info));
    if (cqe->app_op >= TAG_CQE_APPENDED && cqe->app_op <= TAG_CQE_SYNCHRONIZED) {
        fprintf(out, " %s count %u",
                be32toh(cqe->tm_cqe.success) & MLX5_TMC_SUCCESS ? "success" : "failure",
                be16toh(cqe->tm_cqe.hw_phase_cnt));
    } else if (cqe->app_op != TAG_CQE_EXPECTED) {
        fprintf(out, " tag 0x%llx", (unsigned long long)be64toh(cqe->tmh.tag));
    }
}

static void print_format(FILE *out, const uint8_t *bytes, uint32_t byte_count, uint8_t op_own)
{
    uint8_t format = op_own & (3 << 2);
    if (format == MLX5_INLINE_SCATTER_32) {
        fprintf(out, " inline-scatter 32: ");
        print_bytes(out, bytes, byte_count < 32 ? byte_count : 32);
    } else if (format == MLX5_INLINE_SCATTER_64) {
        fprintf(out, " inline-scatter 64"); /* in the other half of a CQE of 128 bytes */
    }
}

void decode_cqe(FILE *out, uint8_t type, const uint8_t *bytes, uint32_t count)
{
    struct mlx5_cqe64 cqe;
    if (count < sizeof(cqe)) {
        fprintf(out, " cut off: %u bytes", count);
        return;
    }
    memcpy(&cqe, bytes, sizeof(cqe));
    uint8_t opcode = cqe.op_own >> 4;
    if ((cqe.op_own >> 2 & 3) == FORMAT_COMPRESSED) {
        print_compressed(out, bytes, cqe.op_own);
        return;
    }
    bool is_error = opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR;
    uint8_t send_opcode = (uint8_t)(be32toh(cqe.sop_drop_qpn) >> 24);
    print_name(out, FIND_NAME(cqe_opcodes, opcode), "opcode", opcode);
    if (opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR) {
        fputs(" of", out);
        print_name(out, FIND_NAME(opcodes, send_opcode), "opcode", send_opcode);
    }
    fprintf(out, " wqe %u qp 0x%06x", be16toh(cqe.wqe_counter),
            be32toh(cqe.sop_drop_qpn) & 0xffffff);
    if (!is_error) {
        fprintf(out, " bytes %u", be32toh(cqe.byte_cnt));
    }
    fprintf(out, " owner %u%s", cqe.op_own & 1, cqe.op_own & 2 ? " solicited" : "");
    if (is_response(opcode)) {
        print_message(out, &cqe, opcode, type);
    }
    if (!is_error && opcode != MLX5_CQE_REQ && cqe.app == TAG_APPLICATION) {
        print_tag(out, &cqe);
    }
    if (is_error) {
        print_error(out, bytes);
    } else {
        print_format(out, bytes, be32toh(cqe.byte_cnt), cqe.op_own);
    }
}

/* tag_rig.h: a tag-matching SRQ with a QP for commands and one that receives, for tests of it. */
#ifndef SIMNIC_NIC_TESTS_TAG_RIG_H
#define SIMNIC_NIC_TESTS_TAG_RIG_H

#include "simnic/nic/tag.h"
#include "simnic/nic/tests/expect.h"

#define ENTRIES 64
#define PLACES 128u
#define SRQ_INDEX 0x7777u
#define ASKED 0x80u   /* for a completion */
#define COUNTED 0x40u /* the WQE tells software's count */
#define ANY UINT64_MAX
#define HEADER 16u
#define OPERATION_APPEND 0x10u
#define OPERATION_REMOVE 0x20u
#define OPERATION_NONE 0u

struct matching {
    struct pair pair; /* `b` receives at the SRQ; `far` is its CQ */
    struct rig_srq *srq;
    struct rig_qp *command;
    uint16_t next; /* place of the next tag: here they are not used again */
    uint16_t count;
};

static int setup_matching(void **state)
{
    struct rig *rig = rig_new();
    struct matching *m = rig_allocate(rig, sizeof(*m));
    struct pair *p = &m->pair;
    m->srq = rig_srq_new(rig, ENTRIES);
    p->rig = rig;
    p->cq = rig_cq_new(rig, 512, 64);
    p->far = rig_cq_new(rig, 512, 64);
    assert_true(tags_create(m->srq->srq, PLACES));
    m->srq->srq->completion_queue = p->far->cq;
    m->srq->srq->user_index = SRQ_INDEX;
    struct rig_qp_options sender = {.receive_entries = 256, .send_blocks = 256};
    struct rig_qp_options receiver = {.srq = m->srq};
    p->a = rig_qp_new(rig, p->cq, &sender);
    p->b = rig_qp_new(rig, p->far, &receiver);
    m->command = rig_qp_new(rig, p->far, &receiver);
    p->b->qp->offloads_rendezvous = true;
    rig_connect(p->a, p->b);
    rig_qp_point(m->command, m->command);
    p->near = rig_memory(rig, PAIR_BYTES);
    p->there = rig_memory(rig, PAIR_BYTES);
    rig_fill(p->near.bytes, PAIR_BYTES, 1);
    *state = m;
    return 0;
}

static int teardown_matching(void **state)
{
    struct matching *m = *state;
    rig_delete(m->pair.rig);
    return 0;
}

/* ---- WQEs ---- */

static void tag_wqe(struct rig_wqe *wqe, uint8_t operation, uint8_t flags, uint16_t index,
                    uint16_t count)
{
    struct mlx5_wqe_tm_seg segment = {
        .opcode = operation, .flags = flags, .index = htobe16(index), .sw_cnt = htobe16(count)};
    rig_wqe_start(wqe, MLX5_OPCODE_TAG_MATCHING, 0);
    memcpy(wqe->bytes + wqe->size, &segment, sizeof(segment));
    wqe->size += (uint32_t)sizeof(segment);
}

static void set_tag(struct rig_wqe *wqe, uint64_t tag, uint64_t mask)
{
    uint64_t values[2] = {htobe64(tag), htobe64(mask)};
    memcpy(wqe->bytes + 32, values, sizeof(values));
}

/* Returns the place of the tag. */
static uint16_t add(struct matching *m, uint8_t flags, uint64_t tag, uint64_t mask, uint64_t offset,
                    uint32_t bytes)
{
    struct rig_wqe wqe;
    tag_wqe(&wqe, OPERATION_APPEND, flags, (uint16_t)(m->next + 1), m->count);
    set_tag(&wqe, tag, mask);
    if (bytes) {
        rig_wqe_data(&wqe, (uintptr_t)m->pair.there.bytes + offset, bytes, m->pair.there.key);
    } else {
        rig_wqe_data(&wqe, 0, 0, RIG_LIST_END);
    }
    rig_send(m->command, &wqe);
    return m->next++;
}

static void change(struct matching *m, uint8_t operation, uint8_t flags, uint16_t index)
{
    struct rig_wqe wqe;
    tag_wqe(&wqe, operation, flags, index, m->count);
    rig_send(m->command, &wqe);
}

/* ---- messages ---- */

static void put_header(uint8_t *at, uint8_t opcode, uint64_t tag)
{
    struct ibv_tmh header = {.opcode = opcode, .app_ctx = htobe32(0xabcd), .tag = htobe64(tag)};
    memcpy(at, &header, sizeof(header));
}

/* A message whose header is at the start of `near`. */
static void send(struct matching *m, uint8_t opcode, uint64_t tag, uint32_t bytes)
{
    struct pair *p = &m->pair;
    put_header(p->near.bytes, opcode, tag);
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, bytes);
    expect_sent(p->cq, p->a, index);
}

/* A rendezvous request for `bytes` bytes of `near` from 4096 on. */
static uint16_t request(struct matching *m, uint64_t tag, uint32_t bytes, uint32_t key)
{
    struct pair *p = &m->pair;
    uint8_t headers[TAG_HEADERS_BYTES];
    struct ibv_rvh where = {.va = htobe64((uintptr_t)p->near.bytes + 4096),
                            .rkey = htobe32(key),
                            .len = htobe32(bytes)};
    struct rig_wqe wqe;
    put_header(headers, IBV_TMH_RNDV, tag);
    memcpy(headers + HEADER, &where, sizeof(where));
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_inline(&wqe, headers, sizeof(headers));
    return rig_send(p->a, &wqe);
}

static struct packet first_packet(const struct pair *p)
{
    return (struct packet){.operation = PACKET_SEND_FIRST,
                           .payload_bytes = 1024,
                           .source_qpn = p->a->qp->number,
                           .psn = p->b->qp->expected_psn};
}

/* ---- completions ---- */

static struct mlx5_cqe64 expect_tag_at(struct rig_cq *cq, uint8_t opcode, uint8_t what, int index,
                                       uint32_t bytes, const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_at(cq, opcode, file, line);
    _assert_int_equal(cqe.app, 1, file, line);
    _assert_int_equal(cqe.app_op, what, file, line);
    _assert_int_equal(be32toh(cqe.srqn_uidx), SRQ_INDEX, file, line);
    _assert_int_equal(be32toh(cqe.byte_cnt), bytes, file, line);
    if (index >= 0) {
        _assert_int_equal(be16toh(cqe.app_info), index, file, line);
    }
    return cqe;
}
#define expect_tag(m, opcode, what, index, bytes)                                                  \
    expect_tag_at((m)->pair.far, opcode, what, index, bytes, __FILE__, __LINE__)

/* Of an operation on the list: whether it succeeded, and the NIC's count. */
static void expect_operation_at(struct matching *m, uint8_t what, bool success, uint16_t count,
                                const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_tag_at(m->pair.far, MLX5_CQE_NO_PACKET, what, -1, 0, file, line);
    _assert_int_equal(be32toh(cqe.tm_cqe.success) == MLX5_TMC_SUCCESS, success, file, line);
    _assert_int_equal(be16toh(cqe.tm_cqe.hw_phase_cnt), count, file, line);
    _assert_int_equal(be32toh(cqe.sop_drop_qpn), m->command->qp->number, file, line);
}
#define expect_operation(m, what, success, count)                                                  \
    expect_operation_at(m, what, success, count, __FILE__, __LINE__)

static void expect_matched_at(struct matching *m, uint16_t index, uint64_t tag, uint32_t bytes,
                              const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_tag_at(m->pair.far, MLX5_CQE_RESP_SEND, TAG_CQE_CONSUMED_WHOLE,
                                          index, bytes, file, line);
    _assert_int_equal(be64toh(cqe.tmh.tag), tag, file, line);
    _assert_int_equal(be32toh(cqe.tmh.app_ctx), 0xabcd, file, line);
    _assert_int_equal(be32toh(cqe.sop_drop_qpn) & 0xffffff, m->pair.b->qp->number, file, line);
}
#define expect_matched(m, index, tag, bytes)                                                       \
    expect_matched_at(m, index, tag, bytes, __FILE__, __LINE__)

static void expect_unexpected_at(struct matching *m, uint8_t what, uint16_t wqe, uint32_t bytes,
                                 const char *file, int line)
{
    struct mlx5_cqe64 cqe =
        expect_tag_at(m->pair.far, MLX5_CQE_RESP_SEND, what, 0, bytes, file, line);
    _assert_int_equal(be16toh(cqe.wqe_counter), wqe, file, line);
    _assert_int_equal(cqe.tmh.tag, 0, file, line);
}
#define expect_unexpected(m, what, wqe, bytes)                                                     \
    expect_unexpected_at(m, what, wqe, bytes, __FILE__, __LINE__)

#define MATCHING(name) cmocka_unit_test_setup_teardown(name, setup_matching, teardown_matching)

#endif

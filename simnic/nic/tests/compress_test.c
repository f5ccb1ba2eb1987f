/* compress_test.c: CQE compression. Programs that know the two layouts read a CQ with it, and what
 * they make of it is compared with what a CQ without it gets for the same completions; and CQEs are
 * compared byte by byte with those of the format's description. */
#include "simnic/nic/tests/expect.h"

#define ENTRIES 32u
#define QUEUE_PAIRS 3
#define FORMAT(cqe) ((cqe)->op_own >> 2 & 3)
#define COMPRESSED 3
#define ROUNDS 20000

/* ---- a program that reads a compressed CQ ---- */

enum layout {
    BASIC,
    ENHANCED,
    ENHANCED_LOOKING_BACK, /* takes the title from its place when an array comes, as UCX does */
};

struct reader {
    struct rig_cq *cq;
    enum layout layout;
    uint8_t format;
    struct mlx5_cqe64 title;
    uint8_t minis[64];
    uint32_t at, left; /* mini CQEs of the array, and of the block */
    uint16_t counter;  /* of the next completion */
    bool titled;
    uint32_t blocks, compressed;
};

static uint8_t *place(const struct reader *r, uint32_t index)
{
    const struct completion_queue *cq = r->cq->cq;
    return cq->buffer + (index % cq->entries + 1) * cq->entry_bytes - 64;
}

static uint32_t lap_of(const struct reader *r, uint32_t index)
{
    return index / r->cq->cq->entries;
}

/* Puts the next mini CQE into the title. */
static void unfold(struct reader *r, struct mlx5_cqe64 *cqe)
{
    const uint8_t *mini = r->minis + 8 * r->at++;
    uint8_t *bytes = (uint8_t *)&r->title;
    bool request = r->title.op_own >> 4 == MLX5_CQE_REQ;
    r->left--;
    r->compressed++;
    memcpy(bytes + 44, mini + 4, 4); /* byte_cnt */
    if (request) {
        memcpy(bytes + 60, mini, 2); /* wqe_counter */
        bytes[56] = mini[2];         /* opcode of the WQE */
    } else {
        r->title.wqe_counter = htobe16(r->counter++);
        if (r->format == MLX5DV_CQE_RES_FORMAT_HASH) {
            memcpy(bytes + 12, mini, 4);
        } else {
            memcpy(bytes + 20, mini, 2); /* check_sum */
        }
        if (r->format == MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX) {
            memcpy(bytes + 60, mini + 2, 2);
        }
    }
    uint8_t owner = lap_of(r, r->cq->consumer) & 1;
    r->title.op_own = (uint8_t)((r->title.op_own & 0xf2) | owner);
    *cqe = r->title;
}

static void give_back(struct reader *r)
{
    r->cq->consumer++;
    r->cq->record[0] = htobe32(r->cq->consumer & 0xffffff);
}

static bool poll_basic(struct reader *r, struct mlx5_cqe64 *cqe)
{
    uint32_t index = r->cq->consumer;
    uint8_t owner = lap_of(r, index) & 1;
    if (r->left == 0) {
        memcpy(cqe, place(r, index), sizeof(*cqe));
        if (cqe->op_own >> 4 == MLX5_CQE_INVALID || (cqe->op_own & 1) != owner) {
            return false;
        }
        if (FORMAT(cqe) != COMPRESSED) {
            give_back(r);
            return true;
        }
        r->blocks++;
        r->title = *cqe;
        r->left = be32toh(cqe->byte_cnt);
        r->counter = be16toh(cqe->wqe_counter);
        r->at = 0;
        assert_in_range(r->left, 2, NIC_MAX_MINI_CQES);
        memcpy(r->minis, place(r, index + 1), 64);
    } else if (r->at == 8) {
        memcpy(r->minis, place(r, index), 64);
        r->at = 0;
    }
    unfold(r, cqe);
    place(r, index)[63] = owner; /* not to be taken for one of the next lap */
    give_back(r);
    return true;
}

static void start_array(struct reader *r, uint32_t index)
{
    if (!r->titled) {
        r->titled = true;
        memcpy(&r->title, place(r, index - 1), 64);
        r->counter = (uint16_t)(be16toh(r->title.wqe_counter) + 1);
    }
    memcpy(r->minis, place(r, index), 64);
    r->blocks++;
    r->left = (r->minis[63] >> 4) + 1u;
    r->at = 0;
    assert_in_range(r->left, 2, 7);
}

static bool poll_enhanced(struct reader *r, struct mlx5_cqe64 *cqe)
{
    uint32_t index = r->cq->consumer;
    if (r->left == 0) {
        memcpy(cqe, place(r, index), sizeof(*cqe));
        if (cqe->op_own >> 4 == MLX5_CQE_INVALID || cqe->signature != (uint8_t)lap_of(r, index)) {
            return false;
        }
        if (FORMAT(cqe) != COMPRESSED) {
            assert_int_equal(cqe->op_own & 1, lap_of(r, index) & 1);
            r->title = *cqe;
            r->counter = (uint16_t)(be16toh(cqe->wqe_counter) + 1);
            r->titled = r->layout == ENHANCED;
            r->at = 0;
            give_back(r);
            return true;
        }
        start_array(r, index);
    }
    unfold(r, cqe);
    give_back(r);
    return true;
}

static bool reader_poll(struct reader *r, struct mlx5_cqe64 *cqe)
{
    return r->layout == BASIC ? poll_basic(r, cqe) : poll_enhanced(r, cqe);
}

static struct reader *reader_new(struct rig *rig, uint32_t entries, uint32_t entry_bytes,
                                 enum layout layout, uint8_t format)
{
    struct reader *r = rig_allocate(rig, sizeof(*r));
    r->cq = rig_cq_new(rig, entries, entry_bytes);
    r->layout = layout;
    r->format = format;
    assert_true(compression_create(r->cq->cq, format));
    r->cq->cq->enhanced = layout != BASIC;
    for (uint32_t i = 0; i < entries; i++) {
        place(r, i)[62] = 0xff;
    }
    return r;
}

/* ---- the same completions for two CQs, at random ---- */

struct traffic {
    struct rig *rig;
    struct rig_qp *qp[QUEUE_PAIRS];
    uint64_t random;
    struct rig_cq *plain; /* without compression */
    struct reader *reader;
    struct cqe last; /* the last completion */
    uint32_t written, read;
};

static uint32_t pick(struct traffic *t, uint32_t below)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((t->random >> 33) % below);
}

/* A completion of a kind of its own. */
static void vary(struct traffic *t, struct cqe *cqe)
{
    static const uint8_t opcodes[] = {
        MLX5_CQE_REQ,           MLX5_CQE_REQ,         MLX5_CQE_RESP_SEND,
        MLX5_CQE_RESP_SEND,     MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND_IMM,
        MLX5_CQE_RESP_SEND_INV, MLX5_CQE_REQ_ERR,     MLX5_CQE_RESP_ERR};
    const struct queue_pair *qp = t->qp[pick(t, QUEUE_PAIRS)]->qp;
    *cqe = (struct cqe){.opcode = opcodes[pick(t, sizeof(opcodes))]};
    cqe->fields.srqn_uidx = htobe32(pick(t, 2));
    cqe->fields.sop_drop_qpn = htobe32(qp->number);
    cqe->fields.wqe_counter = (uint16_t)pick(t, 65536);
    if (cqe->opcode != MLX5_CQE_REQ) {
        cqe->fields.flags_rqpn = htobe32(pick(t, 4));
    }
    if (cqe->opcode != MLX5_CQE_REQ && cqe->opcode != MLX5_CQE_RESP_SEND) {
        cqe->fields.imm_inval_pkey = htobe32(pick(t, 2));
    }
}

/* Mostly one that is like the last. */
static struct cqe next_completion(struct traffic *t)
{
    struct cqe cqe = t->last;
    uint8_t *bytes = (uint8_t *)&cqe.fields;
    if (pick(t, 12) == 0) {
        vary(t, &cqe);
    }
    bool request = cqe.opcode == MLX5_CQE_REQ;
    uint16_t step = pick(t, request ? 2 : 16) ? 1 : (uint16_t)pick(t, 300);
    cqe.fields.wqe_counter = htobe16((uint16_t)(be16toh(cqe.fields.wqe_counter) + step));
    cqe.fields.byte_cnt = htobe32(pick(t, 2) ? pick(t, 1000) : pick(t, 1u << 30));
    if (request) {
        bytes[56] = (uint8_t)pick(t, 64);
    } else if (t->reader->format == MLX5DV_CQE_RES_FORMAT_HASH) {
        bytes[12 + pick(t, 4)] = (uint8_t)pick(t, 256);
    } else {
        bytes[20 + pick(t, 2)] = (uint8_t)pick(t, 256);
    }
    t->last = cqe;
    cqe.solicited = pick(t, 60) == 0;
    if (pick(t, 60) == 0) {
        cqe.inline_bytes = 1 + pick(t, t->plain->cq->entry_bytes / 2);
        rig_fill(cqe.inline_data, sizeof(cqe.inline_data), t->written);
    }
    return cqe;
}

static void complete(struct traffic *t)
{
    struct cqe one = next_completion(t), other = one;
    cq_write(&t->rig->nic, t->plain->cq, &one);
    cq_write(&t->rig->nic, t->reader->cq->cq, &other);
    t->written++;
}

/* The two programs see the same, but for what compressing loses. */
static bool compare_next(struct traffic *t)
{
    struct mlx5_cqe64 expected, seen;
    if (!reader_poll(t->reader, &seen)) {
        return false;
    }
    assert_true(rig_poll(t->plain, &expected));
    if (t->reader->layout != BASIC) {
        seen.signature = 0;
        if (t->reader->at) { /* the title's stands for all, and that may be of an earlier round */
            seen.timestamp = expected.timestamp;
        }
    }
    if (FORMAT(&seen) == MLX5_INLINE_SCATTER_64 >> 2) {
        const uint8_t *plain = rig_entry(t->plain, t->read);
        assert_memory_equal(rig_entry(t->reader->cq, t->read), plain, 64);
    }
    assert_memory_equal(&seen, &expected, sizeof(seen));
    t->read++;
    return true;
}

static void run_traffic(struct rig *rig, uint32_t entries, uint32_t entry_bytes, enum layout layout,
                        uint8_t format)
{
    struct traffic *t = rig_allocate(rig, sizeof(*t));
    t->rig = rig;
    t->random = entries * 1000 + entry_bytes * 10 + layout + format * 77777u;
    t->plain = rig_cq_new(rig, entries, entry_bytes);
    t->reader = reader_new(rig, entries, entry_bytes, layout, format);
    for (int i = 0; i < QUEUE_PAIRS; i++) {
        t->qp[i] = rig_qp_new(rig, t->plain, NULL);
    }
    vary(t, &t->last);
    /* Who looks back for a title must find it: the place that was given back last stays free. */
    uint32_t room = layout == ENHANCED_LOOKING_BACK ? entries - 1 : entries;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t count = pick(t, room - (t->written - t->read) + 1);
        while (count--) {
            complete(t);
        }
        nic_run(&rig->nic, rig->now_ns += 1000);
        count = pick(t, 3) ? t->written - t->read : pick(t, t->written - t->read + 1);
        while (count--) {
            assert_true(compare_next(t)); /* nothing waits any longer */
        }
        if (t->read == t->written) {
            assert_false(compare_next(t));
        }
    }
    uint64_t blocks = 0;
    for (int i = 0; i < QUEUE_PAIRS; i++) {
        blocks += t->qp[i]->qp->statistics->compressed_blocks;
    }
    while (compare_next(t)) {
        continue;
    }
    assert_int_equal(t->read, t->written);
    assert_int_equal(blocks, t->reader->blocks);
    assert_true(t->written / entries > 500); /* more laps than the iteration count has values */
    assert_true(t->reader->compressed > t->written / 2);
    assert_int_equal(rig_events(rig, EVENT_CQ_ERR), 0);
}

static void test_random_traffic(void **state)
{
    (void)state;
    static const uint8_t formats[] = {MLX5DV_CQE_RES_FORMAT_HASH, MLX5DV_CQE_RES_FORMAT_CSUM,
                                      MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX};
    for (enum layout layout = BASIC; layout <= ENHANCED_LOOKING_BACK; layout++) {
        for (uint32_t format = 0; format < 3; format++) {
            for (uint32_t wide = 0; wide < 2; wide++) {
                struct rig *rig = rig_new();
                run_traffic(rig, wide ? 16 : 128, wide ? 128 : 64, layout, formats[format]);
                rig_delete(rig);
            }
        }
    }
}

/* ---- the bytes ---- */

static void write_requests(struct rig *rig, struct rig_cq *cq, const struct rig_qp *qp,
                           uint16_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct cqe cqe = {.opcode = MLX5_CQE_REQ};
        cqe.fields.srqn_uidx = htobe32(0x1234);
        cqe.fields.sop_drop_qpn = htobe32(MLX5_OPCODE_RDMA_READ << 24 | qp->qp->number);
        cqe.fields.wqe_counter = htobe16((uint16_t)(first + 2 * i));
        cqe.fields.byte_cnt = htobe32(0x100 + i);
        cq_write(&rig->nic, cq->cq, &cqe);
    }
}

static void expect_minis(const uint8_t *bytes, uint16_t first, uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < from + count; i++, bytes += 8) {
        uint16_t counter = (uint16_t)(first + 2 * i);
        uint8_t mini[8] = {
            (uint8_t)(counter >> 8), (uint8_t)counter, MLX5_OPCODE_RDMA_READ, 0, 0, 0,
            (uint8_t)(1 + (i >> 8)), (uint8_t)i};
        assert_memory_equal(bytes, mini, sizeof(mini));
    }
}

static void test_basic_block(void **state)
{
    struct pair *p = *state;
    struct reader *r = reader_new(p->rig, ENTRIES, 128, BASIC, MLX5DV_CQE_RES_FORMAT_HASH);
    memset(r->cq->cq->buffer, 0xab, (size_t)ENTRIES * 128);
    write_requests(p->rig, r->cq, p->a, 500, 1);
    assert_int_equal(*place(r, 0), 0xab); /* it waits for the end of the round */
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(place(r, 0)[63], MLX5_CQE_REQ << 4); /* alone: an ordinary CQE */
    write_requests(p->rig, r->cq, p->a, 0xfffa, 19);
    nic_run(&p->rig->nic, p->rig->now_ns);
    const struct mlx5_cqe64 *title = (const void *)place(r, 1);
    assert_int_equal(title->op_own, MLX5_CQE_REQ << 4 | 3 << 2 | 0);
    assert_int_equal(be32toh(title->byte_cnt), 19);
    assert_int_equal(be16toh(title->wqe_counter), 0xfffa);
    assert_int_equal(be32toh(title->srqn_uidx), 0x1234);
    assert_int_equal(be32toh(title->sop_drop_qpn), MLX5_OPCODE_RDMA_READ << 24 | p->a->qp->number);
    expect_minis(place(r, 1 + 1), 0xfffa, 0, 8);
    expect_minis(place(r, 1 + 8), 0xfffa, 8, 8);
    expect_minis(place(r, 1 + 16), 0xfffa, 16, 3);
    static uint8_t untouched[64], zeros[40];
    memset(untouched, 0xab, sizeof(untouched));
    for (uint32_t i = 3; i < ENTRIES; i++) {
        if (i != 1 + 8 && i != 1 + 16) {
            assert_memory_equal(place(r, i), untouched, 64);
        }
    }
    for (uint32_t i = 0; i < ENTRIES; i++) {
        assert_memory_equal(place(r, i) - 64, untouched, 64);
    }
    assert_memory_equal(place(r, 1 + 16) + 24, zeros, 40);
    assert_int_equal(p->a->qp->statistics->compressed_blocks, 1);
    /* No block goes beyond the end of the ring; the next lap has the other owner bit. */
    r->cq->record[0] = htobe32(20);
    write_requests(p->rig, r->cq, p->a, 0, 20);
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(be32toh(((const struct mlx5_cqe64 *)(const void *)place(r, 20))->byte_cnt),
                     12);
    title = (const void *)place(r, 0);
    assert_int_equal(title->op_own, MLX5_CQE_REQ << 4 | 3 << 2 | 1);
    assert_int_equal(be32toh(title->byte_cnt), 8);
    assert_int_equal(be16toh(title->wqe_counter), 24);
}

static void test_largest_block(void **state)
{
    struct pair *p = *state;
    struct reader *r = reader_new(p->rig, 256, 64, BASIC, MLX5DV_CQE_RES_FORMAT_HASH);
    write_requests(p->rig, r->cq, p->a, 0, 64);
    assert_int_equal(place(r, 0)[63], MLX5_CQE_REQ << 4 | 3 << 2); /* does not wait any longer */
    write_requests(p->rig, r->cq, p->a, 128, 2);
    nic_run(&p->rig->nic, p->rig->now_ns);
    struct mlx5_cqe64 cqe;
    for (uint32_t i = 0; i < 66; i++) {
        assert_true(reader_poll(r, &cqe));
        assert_int_equal(be16toh(cqe.wqe_counter), 2 * i);
    }
    assert_int_equal(r->blocks, 2);
}

static void test_enhanced_arrays(void **state)
{
    struct pair *p = *state;
    struct reader *r = reader_new(p->rig, ENTRIES, 64, ENHANCED, MLX5DV_CQE_RES_FORMAT_HASH);
    write_requests(p->rig, r->cq, p->a, 10, 1);
    assert_int_equal(place(r, 0)[63], MLX5_CQE_REQ << 4); /* a title has no reason to wait */
    assert_int_equal(place(r, 0)[62], 0);
    nic_run(&p->rig->nic, p->rig->now_ns);
    write_requests(p->rig, r->cq, p->a, 20, 10); /* after another round it is still one */
    nic_run(&p->rig->nic, p->rig->now_ns);
    expect_minis(place(r, 1), 20, 0, 7);
    assert_int_equal(place(r, 1)[62], 0);
    assert_int_equal(place(r, 1)[63], 6 << 4 | 3 << 2);
    assert_int_equal(place(r, 8)[0] << 8 | place(r, 8)[1], 34);
    assert_int_equal(place(r, 8)[63], 2 << 4 | 3 << 2);
    assert_int_equal(place(r, 11)[62], 0xff);
    assert_int_equal(p->a->qp->statistics->compressed_blocks, 2);
    r->cq->record[0] = htobe32(11);
    write_requests(p->rig, r->cq, p->a, 40, 24); /* 21 for the rest of the lap, in threes of 7 */
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(place(r, 25)[63], 6 << 4 | 3 << 2);
    assert_int_equal(place(r, 0)[63], MLX5_CQE_REQ << 4 | 1); /* a lap begins with a title */
    assert_int_equal(place(r, 0)[62], 1);
    assert_int_equal(place(r, 1)[62], 1);
    assert_int_equal(place(r, 1)[63], 1 << 4 | 3 << 2 | 1);
}

/* ---- events, room, faults ---- */

static struct reader *watched;
static uint32_t seen_at_event, events;

static void look(void *context, void *owner)
{
    (void)context;
    (void)owner;
    struct mlx5_cqe64 cqe;
    events++;
    while (reader_poll(watched, &cqe)) {
        seen_at_event++;
    }
}

static void run_events(struct pair *p, enum layout layout)
{
    struct reader *r = reader_new(p->rig, 64, 64, layout, MLX5DV_CQE_RES_FORMAT_HASH);
    p->rig->nic.host.completion_event = look;
    watched = r;
    seen_at_event = events = 0;
    rig_arm(r->cq, false);
    write_requests(p->rig, r->cq, p->a, 0, 5);
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(events, 1);
    struct mlx5_cqe64 cqe;
    while (reader_poll(r, &cqe)) {
        seen_at_event++;
    }
    assert_int_equal(seen_at_event, 5);
    rig_arm(r->cq, true);
    write_requests(p->rig, r->cq, p->a, 0, 5);
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(events, 1); /* nothing solicited */
    write_requests(p->rig, r->cq, p->a, 10, 3);
    cq_write_error(&p->rig->nic, p->a->qp, true, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0);
    struct cqe solicited = {.opcode = MLX5_CQE_RESP_SEND, .solicited = true};
    cq_write(&p->rig->nic, r->cq->cq, &solicited);
    assert_int_equal(events, 2); /* at once, with all that was before it */
    assert_int_equal(seen_at_event, 5 + 5 + 3 + 1);
    /* What came before arming is told at once. */
    write_requests(p->rig, r->cq, p->a, 10, 3);
    nic_run(&p->rig->nic, p->rig->now_ns);
    rig_arm(r->cq, false);
    assert_int_equal(events, 3);
}

static void test_events(void **state)
{
    run_events(*state, BASIC);
    run_events(*state, ENHANCED);
}

static void test_overrun(void **state)
{
    struct pair *p = *state;
    for (enum layout layout = BASIC; layout <= ENHANCED; layout++) {
        struct reader *r = reader_new(p->rig, 16, 64, layout, MLX5DV_CQE_RES_FORMAT_HASH);
        write_requests(p->rig, r->cq, p->a, 0, 16);
        assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 0);
        write_requests(p->rig, r->cq, p->a, 32, 1);
        assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
        nic_run(&p->rig->nic, p->rig->now_ns);
        struct mlx5_cqe64 cqe;
        for (uint32_t i = 0; i < 16; i++) {
            assert_true(reader_poll(r, &cqe));
            assert_int_equal(be16toh(cqe.wqe_counter), 2 * i);
        }
        assert_false(reader_poll(r, &cqe));
        write_requests(p->rig, r->cq, p->a, 34, 1);
        nic_run(&p->rig->nic, p->rig->now_ns);
        assert_false(reader_poll(r, &cqe));
    }
}

static void test_memory_gone(void **state)
{
    struct pair *p = *state;
    struct reader *r = reader_new(p->rig, 64, 64, BASIC, MLX5DV_CQE_RES_FORMAT_HASH);
    struct rig_memory memory = rig_mapped(p->rig, 4096);
    r->cq->cq->buffer = memory.bytes;
    rig_unmap(&memory);
    write_requests(p->rig, r->cq, p->a, 0, 5);
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
    write_requests(p->rig, r->cq, p->a, 0, 5);
    nic_run(&p->rig->nic, p->rig->now_ns);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 0);
}

static void test_destroyed_while_waiting(void **state)
{
    struct pair *p = *state;
    struct reader *r = reader_new(p->rig, 64, 64, BASIC, MLX5DV_CQE_RES_FORMAT_HASH);
    write_requests(p->rig, r->cq, p->a, 0, 5);
    cq_destroy(&p->rig->nic, r->cq->cq);
    nic_run(&p->rig->nic, p->rig->now_ns);
}

/* ---- messages ---- */

static void run_messages(enum layout layout, uint8_t format)
{
    struct rig *rig = rig_new();
    struct reader *near = reader_new(rig, 64, 64, layout, format);
    struct reader *far = reader_new(rig, 64, 128, layout, format);
    struct rig_qp *a = rig_qp_new(rig, near->cq, NULL), *b = rig_qp_new(rig, far->cq, NULL);
    struct rig_memory from = rig_memory(rig, 4096), to = rig_memory(rig, 4096);
    rig_connect(a, b);
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t count = 1 + round % 30;
        uint16_t sent[30], received[30];
        struct mlx5_cqe64 cqe;
        for (uint32_t i = 0; i < count; i++) {
            received[i] = rig_receive(b, &to, 0, 100);
        }
        for (uint32_t i = 0; i < count; i++) {
            sent[i] = rig_send_message(a, SIGNALLED, &from, 0, i);
        }
        rig_run(rig);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(reader_poll(near, &cqe));
            assert_int_equal(cqe.op_own >> 4, MLX5_CQE_REQ);
            assert_int_equal(be16toh(cqe.wqe_counter), sent[i]);
            assert_int_equal(be32toh(cqe.srqn_uidx), a->qp->user_index);
            assert_true(reader_poll(far, &cqe));
            assert_int_equal(cqe.op_own >> 4, MLX5_CQE_RESP_SEND);
            assert_int_equal(be16toh(cqe.wqe_counter), received[i]);
            assert_int_equal(be32toh(cqe.byte_cnt), i);
            assert_int_equal(be32toh(cqe.srqn_uidx), b->qp->user_index);
        }
        assert_false(reader_poll(near, &cqe) || reader_poll(far, &cqe));
    }
    assert_true(a->qp->statistics->compressed_blocks > 250);
    assert_int_equal(a->qp->statistics->compressed_blocks, near->blocks);
    assert_int_equal(b->qp->statistics->compressed_blocks, far->blocks);
    rig_delete(rig);
}

static void test_messages(void **state)
{
    (void)state;
    for (enum layout layout = BASIC; layout <= ENHANCED; layout++) {
        run_messages(layout, MLX5DV_CQE_RES_FORMAT_HASH);
        run_messages(layout, MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_traffic),
        TEST(test_basic_block),
        TEST(test_largest_block),
        TEST(test_enhanced_arrays),
        TEST(test_events),
        TEST(test_overrun),
        TEST(test_memory_gone),
        TEST(test_destroyed_while_waiting),
        cmocka_unit_test(test_messages),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

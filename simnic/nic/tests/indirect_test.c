/* indirect_test.c: indirect memory keys: lists of pieces and pieces that repeat, what they refuse, and the WQEs that say so. */
#include "simnic/nic/tests/expect.h"

#define PIECES 8u
#define LENGTH MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN
#define FREE MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE
#define VARIANT MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY
#define ACCESS                                                                                     \
    (MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |                                              \
     MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |                                              \
     MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC)
#define ALL_FLAGS                                                                                  \
    (MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE |                                              \
     MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ |                                              \
     MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE | MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC)

struct change {
    struct rig_wqe wqe;
    struct mlx5_wqe_umr_ctrl_seg control;
    struct mlx5_wqe_mkey_context_seg context;
    uint8_t layout[16 * 16];
    uint32_t octowords;
};

static struct memory_key *make(struct pair *p)
{
    struct memory_key *key = key_create_indirect(&p->rig->nic, RIG_DOMAIN, PIECES, 0);
    assert_non_null(key);
    assert_int_equal(key->key & 0xff, 0);
    return key;
}

static struct change change_of(uint64_t length, uint64_t mask)
{
    struct change c = {
        .control = {.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE, .mkey_mask = htobe64(mask)},
        .context = {.access_flags = ALL_FLAGS, .len = htobe64(length)}};
    return c;
}

static void add_piece(struct change *c, uint64_t address, uint32_t bytes, uint32_t key)
{
    struct mlx5_wqe_umr_klm_seg klm = {htobe32(bytes), htobe32(key), htobe64(address)};
    memcpy(c->layout + 16ul * c->octowords++, &klm, sizeof(klm));
}

static void add_repeat(struct change *c, uint32_t rounds, uint32_t bytes, uint16_t count)
{
    struct mlx5_wqe_umr_repeat_block_seg block = {.byte_count = htobe32(bytes),
                                                  .op = htobe32(0x400),
                                                  .repeat_count = htobe32(rounds),
                                                  .num_ent = htobe16(count)};
    memcpy(c->layout + 16ul * c->octowords++, &block, sizeof(block));
}

static void add_strided(struct change *c, uint64_t address, uint16_t bytes, uint16_t stride,
                        uint32_t key)
{
    struct mlx5_wqe_umr_repeat_ent_seg entry = {htobe16(stride), htobe16(bytes), htobe32(key),
                                                htobe64(address)};
    memcpy(c->layout + 16ul * c->octowords++, &entry, sizeof(entry));
}

/* Posts the WQE to the QP. */
static uint16_t post(struct rig_qp *qp, struct change *c, const struct memory_key *key)
{
    struct rig_wqe *w = &c->wqe;
    c->control.klm_octowords = htobe16((uint16_t)c->octowords);
    c->context.qpn_mkey = htobe32(0xffffff00 | (key->key & 0xff));
    rig_wqe_start(w, MLX5_OPCODE_UMR, SIGNALLED);
    w->immediate = htobe32(key->key);
    memcpy(w->bytes + w->size, &c->control, sizeof(c->control));
    w->size += (uint32_t)sizeof(c->control);
    memcpy(w->bytes + w->size, &c->context, sizeof(c->context));
    w->size += (uint32_t)sizeof(c->context);
    memcpy(w->bytes + w->size, c->layout, 16ul * c->octowords);
    w->size += 16 * c->octowords;
    return rig_send(qp, w);
}

static void configure(struct pair *p, struct change *c, const struct memory_key *key)
{
    expect_sent(p->cq, p->a, post(p->a, c, key));
}

static const uint64_t usual = LENGTH | FREE | VARIANT | ACCESS;

/* A WRITE to three pieces, over packets and pieces that do not meet; and a READ of them. */
static void test_list(void **state)
{
    struct pair *p = *state;
    struct memory_key *key = make(p);
    struct change c = change_of(10 + 5000 + 7, usual);
    add_piece(&c, (uintptr_t)p->there.bytes + 100, 10, p->there.key);
    add_piece(&c, (uintptr_t)p->there.bytes + 1000, 5000, p->there.key);
    add_piece(&c, (uintptr_t)p->there.bytes + 50, 7, p->there.key);
    add_piece(&c, 0, 0, 0); /* padding */
    configure(p, &c, key);
    struct rig_memory far = {.bytes = NULL, .size = 5017, .key = key->key}; /* from address 0 on */
    memset(p->there.bytes, 0xee, 8000);
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 5017, &far));
    assert_memory_equal(p->there.bytes + 100, p->near.bytes, 10);
    assert_memory_equal(p->there.bytes + 1000, p->near.bytes + 10, 5000);
    assert_memory_equal(p->there.bytes + 50, p->near.bytes + 5010, 7);
    assert_int_equal(p->there.bytes[57], 0xee);
    assert_int_equal(p->there.bytes[110], 0xee);
    assert_int_equal(p->there.bytes[999], 0xee);
    assert_int_equal(p->there.bytes[6000], 0xee);
    memset(p->near.bytes, 0, 5017);
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, 5017, &far));
    assert_memory_equal(p->near.bytes, p->there.bytes + 100, 10);
    assert_memory_equal(p->near.bytes + 10, p->there.bytes + 1000, 5000);
    assert_memory_equal(p->near.bytes + 5010, p->there.bytes + 50, 7);
}

/* Two columns of a table, four rows, gathered by the sender and scattered by the receiver. */
static void test_repeated(void **state)
{
    struct pair *p = *state;
    struct memory_key *from = make(p), *to = make(p);
    struct change c = change_of(4 * 12, usual), d = change_of(4 * 12, usual);
    add_repeat(&c, 4, 12, 2);
    add_strided(&c, (uintptr_t)p->near.bytes, 8, 100, p->near.key);
    add_strided(&c, (uintptr_t)p->near.bytes + 50, 4, 100, p->near.key);
    configure(p, &c, from);
    add_repeat(&d, 8, 6, 1);
    add_strided(&d, (uintptr_t)p->there.bytes, 6, 10, p->there.key);
    configure(p, &d, to);
    struct mlx5_wqe_data_seg space = {htobe32(48), htobe32(to->key), 0};
    memset(p->there.bytes, 0xee, 100);
    uint16_t taken = rig_receive_list(p->b, &space, 1);
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_data(&wqe, 0, 48, from->key);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 48);
    for (uint32_t i = 0; i < 48; i++) {
        uint32_t row = i / 12, column = i % 12;
        uint8_t sent = p->near.bytes[100 * row + (column < 8 ? column : 50 + column - 8)];
        assert_int_equal(p->there.bytes[i / 6 * 10 + i % 6], sent);
    }
    for (uint32_t i = 0; i < 70; i++) {
        if (i % 10 >= 6) {
            assert_int_equal(p->there.bytes[i], 0xee);
        }
    }
}

static void write_through(struct pair *p, const struct memory_key *key, uint64_t address,
                          uint32_t bytes, bool good)
{
    struct rig_memory far = {.bytes = (uint8_t *)(uintptr_t)address, .key = key->key};
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, bytes, &far);
    if (good) {
        expect_sent(p->cq, p->a, index);
        return;
    }
    expect_send_error(p->cq, p->a, index, REMOTE_ACCESS_ERR);
    qp_set_state(&p->rig->nic, p->a->qp, STATE_RESET);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET);
    p->a->sent = p->b->sent = p->a->received = p->b->received = 0;
    memset(p->a->record, 0, sizeof(p->a->record));
    memset(p->b->record, 0, sizeof(p->b->record));
    qp_set_state(&p->rig->nic, p->a->qp, STATE_INIT);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_INIT);
    rig_connect(p->a, p->b);
}

/* Before it is configured, outside of its length, of what it leads to, and once it is free again. */
static void test_refused(void **state)
{
    struct pair *p = *state;
    struct memory_key *key = make(p);
    write_through(p, key, 0, 1, false);
    struct change c = change_of(100, usual);
    add_piece(&c, (uintptr_t)p->there.bytes, 64, p->there.key);
    configure(p, &c, key);
    write_through(p, key, 0, 64, true);
    write_through(p, key, 60, 8, false); /* the list ends before the length */
    write_through(p, key, 99, 8, false);
    struct change wrong = change_of(64, usual);
    add_piece(&wrong, (uintptr_t)p->there.bytes, 64, p->there.key ^ 0x5500);
    configure(p, &wrong, key);
    write_through(p, key, 0, 8, false);
    struct rig_memory readable = rig_memory_with(p->rig, 64, ACCESS_REMOTE_READ, RIG_DOMAIN);
    struct change read = change_of(64, usual);
    add_piece(&read, (uintptr_t)readable.bytes, 64, readable.key);
    configure(p, &read, key);
    write_through(p, key, 0, 8, false);
    struct rig_memory foreign = rig_memory_with(p->rig, 64, RIG_ACCESS_ALL, RIG_DOMAIN + 1);
    struct change other = change_of(64, usual);
    add_piece(&other, (uintptr_t)foreign.bytes, 64, foreign.key);
    configure(p, &other, key);
    write_through(p, key, 0, 8, false);
    struct change self = change_of(64, usual); /* only regions may be pieces */
    add_piece(&self, 0, 64, key->key);
    configure(p, &self, key);
    write_through(p, key, 0, 8, false);
    configure(p, &c, key);
    write_through(p, key, 0, 8, true);
    struct change end = change_of(0, FREE);
    end.context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    configure(p, &end, key);
    write_through(p, key, 0, 8, false);
}

/* Only what the mask names changes. */
static void test_mask(void **state)
{
    struct pair *p = *state;
    struct memory_key *key = make(p);
    struct change c = change_of(64, usual);
    add_piece(&c, (uintptr_t)p->there.bytes, 64, p->there.key);
    configure(p, &c, key);
    struct change none = change_of(1, 0);
    none.context.access_flags = 0;
    configure(p, &none, key);
    write_through(p, key, 0, 64, true);
    struct change access = change_of(1, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE);
    access.context.access_flags = 0;
    configure(p, &access, key);
    write_through(p, key, 0, 64, false);
    assert_true(key->access & ACCESS_REMOTE_READ);
    configure(p, &c, key);
    struct change length = change_of(32, LENGTH);
    configure(p, &length, key);
    write_through(p, key, 0, 32, true);
    write_through(p, key, 0, 33, false);
}

/* A WQE that is wrong changes nothing; one with a layout that is wrong leaves the key free. */
static void test_wrong_wqes(void **state)
{
    struct pair *p = *state;
    struct rig_qp_options options = {0};
    for (uint32_t which = 0; which < 7; which++) {
        struct memory_key *key = make(p);
        struct change good = change_of(64, usual), c = change_of(64, usual);
        add_piece(&good, (uintptr_t)p->there.bytes, 64, p->there.key);
        configure(p, &good, key);
        bool frees = false;
        switch (which) {
        case 0: /* a layout behind a pointer: libmlx5 has none */
            c.control.flags = 0;
            break;
        case 1: /* a signature */
            c.control.mkey_mask |= htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE);
            break;
        case 2: /* more than there is room for */
            for (uint32_t i = 0; i < PIECES + 1; i++) {
                add_piece(&c, (uintptr_t)p->there.bytes, 1, p->there.key);
            }
            frees = true;
            break;
        case 3: /* more pieces than follow */
            add_repeat(&c, 2, 8, 2);
            add_strided(&c, (uintptr_t)p->there.bytes, 4, 4, p->there.key);
            frees = true;
            break;
        case 4: /* a sum that is not that of the pieces */
            add_repeat(&c, 2, 5, 1);
            add_strided(&c, (uintptr_t)p->there.bytes, 4, 4, p->there.key);
            frees = true;
            break;
        case 5: /* it is in use, and the WQE says that it must not be */
            c.control.flags |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
            break;
        default: /* of another domain */
            options.domain = RIG_DOMAIN + 1;
            break;
        }
        struct rig_qp *qp = rig_qp_new(p->rig, p->cq, &options);
        rig_qp_point(qp, qp);
        expect_send_error(p->cq, qp, post(qp, &c, key), MW_BIND_ERR);
        write_through(p, key, 0, 64, !frees);
    }
}

static void test_remote_invalidation(void **state)
{
    struct pair *p = *state;
    for (uint32_t allowed = 0; allowed < 2; allowed++) {
        struct memory_key *key = make(p);
        struct change c = change_of(64, usual);
        struct rig_wqe wqe;
        key->remote_invalidation =
            !allowed; /* the good case first: the other one ends the connection */
        add_piece(&c, (uintptr_t)p->there.bytes, 64, p->there.key);
        configure(p, &c, key);
        uint16_t taken = rig_receive(p->b, &p->there, 0, 100);
        rig_wqe_start(&wqe, MLX5_OPCODE_SEND_INVAL, SIGNALLED);
        wqe.immediate = htobe32(key->key);
        uint16_t index = rig_send(p->a, &wqe);
        if (allowed) {
            expect_send_error(p->cq, p->a, index, REMOTE_OP_ERR);
            assert_true(key->bound);
            continue;
        }
        expect_sent(p->cq, p->a, index);
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND_INV, taken, 0);
        assert_false(key->bound);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_list), TEST(test_repeated),   TEST(test_refused),
        TEST(test_mask), TEST(test_wrong_wqes), TEST(test_remote_invalidation),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

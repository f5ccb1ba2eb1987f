/* key_test.c: memory keys: what they translate and what they refuse, numbers, windows. */
#include "simnic/nic/tests/expect.h"

static struct memory_key *make(struct nic *nic, uint64_t address, uint64_t bytes)
{
    struct memory_key *key = key_create(nic, KEY_REGION, RIG_DOMAIN);
    assert_non_null(key);
    key->access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ;
    key->start = 0x10000000;
    key->address = address;
    key->bytes = bytes;
    return key;
}

static uint64_t translate(struct nic *nic, const struct memory_key *key, uint64_t address,
                          uint64_t bytes, uint32_t access)
{
    uint64_t row = bytes;
    uintptr_t found = (uintptr_t)key_translate(nic, key->key, address, &row, access, RIG_DOMAIN);
    assert_int_equal(row, bytes);
    return found;
}

static void test_bounds(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    const struct memory_key *key = make(nic, 0x5000, 0x1000);
    assert_int_equal(translate(nic, key, 0x5000, 0x1000, 0), 0x10000000);
    assert_int_equal(translate(nic, key, 0x5fff, 1, 0), 0x10000fff);
    assert_int_equal(translate(nic, key, 0x5000, 0, 0), 0x10000000);
    assert_int_equal(translate(nic, key, 0x6000, 0, 0), 0x10001000);
    assert_int_equal(translate(nic, key, 0x4fff, 1, 0), 0);
    assert_int_equal(translate(nic, key, 0x6000, 1, 0), 0);
    assert_int_equal(translate(nic, key, 0x5001, 0x1000, 0), 0);
    assert_int_equal(translate(nic, key, 0x5fff, UINT64_MAX, 0), 0);
    assert_int_equal(translate(nic, key, 0x5001, UINT64_MAX, 0), 0);
    assert_int_equal(translate(nic, key, UINT64_MAX, 2, 0), 0);
    assert_int_equal(translate(nic, key, 0, UINT64_MAX, 0), 0);
}

/* A region at the very end of the address space, and one that is all of it. */
static void test_extremes(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    struct memory_key *last = make(nic, UINT64_MAX - 0xfff, 0x1000);
    assert_int_equal(translate(nic, last, UINT64_MAX, 1, 0), 0x10000fff);
    assert_int_equal(translate(nic, last, UINT64_MAX, 2, 0), 0);
    assert_int_equal(translate(nic, last, 0, 1, 0), 0);
    struct memory_key *all = make(nic, 0, UINT64_MAX);
    all->start = 0;
    assert_int_equal(translate(nic, all, 0x1234, 0x1000, 0), 0x1234);
    assert_int_equal(translate(nic, all, UINT64_MAX, 1, 0), 0);
}

static void test_access_and_domain(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    const struct memory_key *key = make(nic, 0x5000, 0x1000);
    assert_int_not_equal(translate(nic, key, 0x5000, 1, ACCESS_REMOTE_READ), 0);
    assert_int_not_equal(translate(nic, key, 0x5000, 1, ACCESS_LOCAL_WRITE), 0);
    assert_int_equal(translate(nic, key, 0x5000, 1, ACCESS_REMOTE_WRITE), 0);
    assert_int_equal(translate(nic, key, 0x5000, 1, ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC), 0);
    uint64_t one = 1;
    assert_null(key_translate(nic, key->key, 0x5000, &one, 0, RIG_DOMAIN + 1));
}

static void test_numbers(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    uint32_t count = nic->key_count;
    struct memory_key *key = make(nic, 0, 1);
    uint32_t number = key->key;
    assert_ptr_equal(key_find(nic, number), key);
    assert_null(key_find(nic, number ^ 1));
    assert_null(key_find(nic, number + 256));
    assert_null(key_find(nic, 0));
    assert_null(key_find(nic, UINT32_MAX));
    assert_null(key_find(nic, RIG_LIST_END));
    key_destroy(nic, key);
    assert_null(key_find(nic, number));
    assert_int_equal(nic->key_count, count);
    /* An index that comes again has another variant, and does not come again at once. */
    assert_int_not_equal(make(nic, 0, 1)->key >> 8, number >> 8);
    nic->key_next = number >> 8;
    struct memory_key *again = make(nic, 0, 1);
    assert_int_equal(again->key >> 8, number >> 8);
    assert_int_not_equal(again->key, number);
}

static void test_exhausted(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    uint32_t before = nic->key_count;
    while (key_create(nic, KEY_REGION, RIG_DOMAIN)) {
    }
    assert_int_equal(nic->key_count,
                     NIC_MAX_KEYS - NIC_FIRST_KEY); /* those before are never given */
    key_destroy(nic, &nic->keys[4711]);
    const struct memory_key *freed = key_create(nic, KEY_REGION, RIG_DOMAIN);
    assert_non_null(freed);
    assert_int_equal(freed->key >> 8, 4711);
    assert_true(before < NIC_MAX_KEYS);
}

/* No key is the one that ends scatter lists, or the one that begins a layout that repeats. */
static void test_terminator_never_given(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    for (uint32_t i = 0; i < 600; i++) {
        nic->key_next = i % 8;
        struct memory_key *key = key_create(nic, KEY_REGION, RIG_DOMAIN);
        assert_int_not_equal(key->key, RIG_LIST_END);
        assert_int_not_equal(key->key, 0x400);
        key_destroy(nic, key);
    }
}

/* A window gives access only while it is bound, and an SEND with invalidate takes that away. */
static void test_window(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    struct memory_key *window = key_create(nic, KEY_WINDOW, RIG_DOMAIN);
    window->access = ACCESS_REMOTE_WRITE;
    window->start = window->address = (uintptr_t)p->there.bytes;
    window->bytes = 100;
    window->region = p->there.key;
    struct rig_memory remote = {p->there.bytes, 100, window->key};
    window->queue_pair = p->b->qp->number;
    window->bound = true;
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &remote));
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 200, 10);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND_INVAL, SIGNALLED);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 10, p->near.key);
    wqe.immediate = htobe32(window->key);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND_INV, taken, 10);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), window->key);
    expect_send_error(p->cq, p->a,
                      rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &remote),
                      REMOTE_ACCESS_ERR);
}

/* A region cannot be invalidated from afar. */
static void test_invalidate_region(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_receive(p->b, &p->there, 0, 10);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND_INVAL, SIGNALLED);
    wqe.immediate = htobe32(p->there.key);
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), REMOTE_OP_ERR);
    assert_non_null(key_find(&p->rig->nic, p->there.key));
    assert_int_equal(p->b->qp->state, STATE_ERR);
}

/* A window of type 2 is for the QP it was bound to only (IBTA 10.6.7.2.3). */
static void test_window_of_other_qp(void **state)
{
    struct pair *p = *state;
    struct memory_key *window = key_create(&p->rig->nic, KEY_WINDOW, RIG_DOMAIN);
    window->access = ACCESS_REMOTE_WRITE;
    window->start = window->address = (uintptr_t)p->there.bytes;
    window->bytes = 100;
    window->region = p->there.key;
    window->bound = true;
    window->queue_pair = p->b->qp->number;
    struct rig_memory remote = {p->there.bytes, 100, window->key};
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &remote));
    window->queue_pair = p->a->qp->number;
    expect_send_error(p->cq, p->a,
                      rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &remote),
                      REMOTE_ACCESS_ERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bounds),
        TEST(test_extremes),
        TEST(test_access_and_domain),
        TEST(test_numbers),
        TEST(test_exhausted),
        TEST(test_invalidate_region),
        TEST(test_window_of_other_qp),
        TEST(test_terminator_never_given),
        TEST(test_window),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* late_test.c: the fault `placement=P:US`: data for memory with relaxed ordering land in any order, and are there when something says so;
 * other memory is as ever. And the quirks that break both. */
#include "simnic/nic/tests/expect.h"

#define BYTES 65536u
#define MS 1000000ull

struct scene {
    struct rig *rig;
    struct rig_cq *cq;
    struct rig_qp *a, *b; /* connected; a sends */
    struct rig_memory from, relaxed, ordinary;
};

static struct rig_memory relaxed_memory(struct rig *rig, uint64_t bytes)
{
    return rig_memory_with(rig, bytes, RIG_ACCESS_ALL | ACCESS_RELAXED_ORDERING, RIG_DOMAIN);
}

static void connect_pair(const struct scene *s, struct rig_qp **a, struct rig_qp **b)
{
    *a = rig_qp_new(s->rig, s->cq, NULL);
    *b = rig_qp_new(s->rig, s->cq, NULL);
    rig_connect(*a, *b);
}

static int begin(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->rig = rig_new();
    s->cq = rig_cq_new(s->rig, 256, 64);
    connect_pair(s, &s->a, &s->b);
    s->from = rig_memory(s->rig, BYTES);
    s->relaxed = relaxed_memory(s->rig, BYTES);
    s->ordinary = rig_memory(s->rig, BYTES);
    rig_fill(s->from.bytes, BYTES, 7);
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct scene *s = *state;
    rig_delete(s->rig);
    free(s);
    return 0;
}

static void write_to(const struct rig_qp *qp, uint8_t flags, const struct rig_memory *from,
                     uint32_t bytes, const struct rig_memory *to)
{
    rig_rdma((struct rig_qp *)qp, MLX5_OPCODE_RDMA_WRITE, flags, from, bytes, to);
    rig_run(qp->rig);
}

/* A WRITE of nothing with immediate, whose receive completes. */
static void tell_by(const struct scene *s, struct rig_qp *sender, struct rig_qp *receiver)
{
    uint16_t index = rig_receive(receiver, &s->ordinary, 0, 0);
    rig_rdma(sender, MLX5_OPCODE_RDMA_WRITE_IMM, 0, &s->from, 0, &s->ordinary);
    expect_received(s->cq, receiver, MLX5_CQE_RESP_WR_IMM, index, 0);
}

static void tell(const struct scene *s)
{
    tell_by(s, s->a, s->b);
}

/* How many of the 256-byte pieces are there. */
static uint32_t pieces_there(const struct scene *s, const struct rig_memory *memory)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < BYTES; i += 256) {
        count += memcmp(memory->bytes + i, s->from.bytes + i, 256) == 0;
    }
    return count;
}

static bool there(const struct scene *s, const struct rig_memory *memory)
{
    return pieces_there(s, memory) == BYTES / 256;
}

/* Plain WRITEs: what is written elsewhere does not wait, an acknowledgement says nothing, nor does another queue pair. */
static void test_receive(void **state)
{
    struct scene *s = *state;
    struct rig_qp *c, *d;
    connect_pair(s, &c, &d);
    rig_fault(s->rig, "placement=1");
    write_to(s->a, SIGNALLED, &s->from, BYTES, &s->relaxed);
    expect(s->cq, MLX5_CQE_REQ);
    write_to(s->a, SIGNALLED, &s->from, BYTES, &s->ordinary);
    expect(s->cq, MLX5_CQE_REQ);
    assert_true(there(s, &s->ordinary));
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    tell_by(s, c, d);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    tell(s);
    assert_true(there(s, &s->relaxed));
}

/* Of its own WRITE with immediate, and of a SEND, all is there when it completes. */
static void test_own_data(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "placement=1");
    uint16_t index = rig_receive(s->b, &s->ordinary, 0, 0);
    rig_rdma(s->a, MLX5_OPCODE_RDMA_WRITE_IMM, 0, &s->from, BYTES, &s->relaxed);
    expect_received(s->cq, s->b, MLX5_CQE_RESP_WR_IMM, index, BYTES);
    assert_true(there(s, &s->relaxed));
    memset(s->relaxed.bytes, 0, BYTES);
    index = rig_receive(s->b, &s->relaxed, 0, BYTES);
    rig_send_message(s->a, 0, &s->from, 0, BYTES);
    expect_received(s->cq, s->b, MLX5_CQE_RESP_SEND, index, BYTES);
    assert_true(there(s, &s->relaxed));
}

/* A READ is there when it completes, or a request behind it. */
static void test_read(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "placement=1");
    uint16_t index = rig_rdma(s->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &s->relaxed, BYTES, &s->from);
    expect_sent(s->cq, s->a, index);
    assert_true(there(s, &s->relaxed));
    memset(s->relaxed.bytes, 0, BYTES);
    rig_rdma(s->a, MLX5_OPCODE_RDMA_READ, 0, &s->relaxed, BYTES, &s->from);
    rig_run(s->rig);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    tell_by(s, s->b, s->a); /* which is about what a has received */
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    index = rig_rdma(s->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &s->from, 8, &s->ordinary);
    expect_sent(s->cq, s->a, index);
    assert_true(there(s, &s->relaxed));
}

/* The device's own reads see what was written before: of a peer's READ, of what is sent, and of an atomic. */
static void test_read_after_write(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "placement=1");
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    rig_rdma(s->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &s->ordinary, 256, &s->relaxed);
    expect(s->cq, MLX5_CQE_REQ);
    assert_memory_equal(s->ordinary.bytes, s->from.bytes, 256);
    assert_int_equal(pieces_there(s, &s->relaxed), 1); /* and nothing else has landed for it */
    memset(s->ordinary.bytes, 0, BYTES);
    write_to(s->b, 0, &s->relaxed, BYTES, &s->ordinary);
    assert_true(there(s, &s->ordinary));
}

/* Adds 0 to the first word, and returns what was there. */
static uint64_t fetch(const struct scene *s, struct rig_qp *qp, const struct rig_memory *memory)
{
    struct rig_wqe wqe;
    uint64_t before;
    rig_wqe_start(&wqe, MLX5_OPCODE_ATOMIC_FA, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)memory->bytes, memory->key);
    rig_wqe_atomic(&wqe, 0, 0);
    rig_wqe_data(&wqe, (uintptr_t)s->ordinary.bytes + 8, 8, s->ordinary.key);
    rig_send(qp, &wqe);
    expect(s->cq, MLX5_CQE_REQ);
    memcpy(&before, s->ordinary.bytes + 8, sizeof(before));
    return before;
}

static void test_atomic(void **state)
{
    struct scene *s = *state;
    struct rig_qp *c, *d;
    uint64_t first;
    connect_pair(s, &c, &d);
    memcpy(&first, s->from.bytes, sizeof(first));
    rig_fault(s->rig, "placement=1");
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    assert_int_equal(fetch(s, c, &s->ordinary), 0);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    assert_int_equal(fetch(s, c, &s->relaxed), first); /* another's sees the word itself */
    assert_in_range(pieces_there(s, &s->relaxed), 0, 1);
    assert_int_equal(fetch(s, s->a, &s->ordinary), 0); /* one of its own stands behind the WRITE */
    assert_true(there(s, &s->relaxed));
}

/* Where the order of writes to the same bytes counts, and where it does not. */
static void test_same_bytes(void **state)
{
    struct scene *s = *state;
    struct rig_memory older = rig_memory(s->rig, 64), strict = s->relaxed;
    struct memory_key *key = key_create(&s->rig->nic, KEY_REGION, RIG_DOMAIN);
    key->access = RIG_ACCESS_ALL;
    key->start = key->address = (uintptr_t)strict.bytes;
    key->bytes = strict.size;
    strict.key = key->key;
    rig_fill(older.bytes, 64, 99);
    rig_fault(s->rig, "placement=1,seed=3");
    uint32_t newer = 0;
    for (uint32_t i = 0; i < 100; i++) {
        write_to(s->a, 0, &older, 64, &s->relaxed);
        write_to(s->a, 0, &s->from, 64, &s->relaxed);
        tell(s);
        newer += memcmp(s->relaxed.bytes, s->from.bytes, 64) == 0;
        write_to(s->a, 0, &older, 64, &s->relaxed);
        write_to(s->a, 0, &s->from, 64, &strict);
        tell(s);
        assert_memory_equal(s->relaxed.bytes, s->from.bytes, 64);
    }
    assert_in_range(newer, 30, 70);
}

/* Whose right to the memory ends finds all of it there; and so does time. */
static void test_ends(void **state)
{
    struct scene *s = *state;
    for (int how = 0; how < 4; how++) {
        struct rig_memory memory = relaxed_memory(s->rig, BYTES);
        struct rig_qp *c, *d;
        connect_pair(s, &c, &d);
        rig_fault(s->rig, "placement=1:1000");
        write_to(c, 0, &s->from, BYTES, &memory);
        assert_int_equal(pieces_there(s, &memory), 0);
        switch (how) {
        case 0:
            qp_set_state(&s->rig->nic, d->qp, STATE_ERR);
            break;
        case 1:
            qp_destroy(&s->rig->nic, d->qp);
            break;
        case 2:
            key_destroy(&s->rig->nic, key_find(&s->rig->nic, memory.key));
            break;
        default:
            rig_pass(s->rig, 1 * MS);
            break;
        }
        assert_true(there(s, &memory));
    }
    assert_int_equal(s->rig->nic.late.count, 0);
}

/* What lands before what, as told by which pieces are there after half of the time: a bit each. */
static void note_order(struct scene *s, const char *fault, uint8_t bits[BYTES / 256])
{
    rig_fault(s->rig, fault);
    memset(s->relaxed.bytes, 0, BYTES);
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    rig_pass(s->rig, MS / 2);
    for (uint32_t i = 0; i < BYTES / 256; i++) {
        bits[i] = memcmp(s->relaxed.bytes + i * 256, s->from.bytes + i * 256, 256) == 0;
    }
    tell(s);
    assert_true(there(s, &s->relaxed));
}

/* In any order; which one, the seed says. */
static void test_order(void **state)
{
    struct scene *s = *state;
    uint8_t first[BYTES / 256], again[BYTES / 256], other[BYTES / 256];
    note_order(s, "placement=0.8:1000,seed=5", first);
    note_order(s, "placement=0.8:1000,seed=5", again);
    note_order(s, "placement=0.8:1000,seed=6", other);
    assert_memory_equal(first, again, sizeof(first));
    assert_memory_not_equal(first, other, sizeof(first));
    uint32_t count = 0, changes = 0;
    for (uint32_t i = 0; i < BYTES / 256; i++) {
        count += first[i];
        changes += i > 0 && first[i] != first[i - 1];
    }
    assert_in_range(count, 100, 210); /* of 256: a fifth, and half of the rest */
    assert_in_range(changes, 60, 180);
}

/* Also after what came later: of two WRITEs, sometimes the first is there alone, and sometimes the second. */
static void test_overtaking(void **state)
{
    struct scene *s = *state;
    struct rig_memory second = relaxed_memory(s->rig, 4096);
    uint32_t alone[2] = {0};
    rig_fault(s->rig, "placement=0.5:1000,seed=9");
    for (uint32_t i = 0; i < 100; i++) {
        memset(s->relaxed.bytes, 0, 64);
        memset(second.bytes, 0, 64);
        write_to(s->a, 0, &s->from, 64, &s->relaxed);
        write_to(s->a, 0, &s->from, 64, &second);
        const bool one = memcmp(s->relaxed.bytes, s->from.bytes, 64) == 0;
        const bool two = memcmp(second.bytes, s->from.bytes, 64) == 0;
        alone[0] += one && !two;
        alone[1] += two && !one;
        tell(s);
        assert_memory_equal(s->relaxed.bytes, s->from.bytes, 64);
        assert_memory_equal(second.bytes, s->from.bytes, 64);
    }
    assert_in_range(alone[0], 10, 40);
    assert_in_range(alone[1], 10, 40);
}

/* Who polls the last word of a line may not find the rest, or find it late. Words are whole. */
static void test_line(void **state)
{
    struct scene *s = *state;
    uint32_t parts = 0;
    rig_fault(s->rig, "placement=0.5:1000,seed=11");
    for (uint32_t i = 0; i < 200; i++) {
        memset(s->relaxed.bytes, 0, 64);
        write_to(s->a, 0, &s->from, 64, &s->relaxed);
        const bool last = memcmp(s->relaxed.bytes + 56, s->from.bytes + 56, 8) == 0;
        parts += last && memcmp(s->relaxed.bytes, s->from.bytes, 56) != 0;
        for (uint32_t word = 0; word < 64; word += 8) {
            static const uint8_t nothing[8];
            assert_true(memcmp(s->relaxed.bytes + word, s->from.bytes + word, 8) == 0 ||
                        memcmp(s->relaxed.bytes + word, nothing, 8) == 0);
        }
        tell(s);
        assert_memory_equal(s->relaxed.bytes, s->from.bytes, 64);
    }
    assert_in_range(parts, 4, 40);
}

/* Windows and indirect keys have the ordering of the region that they look into. */
static void test_window(void **state)
{
    struct scene *s = *state;
    struct memory_key *window = key_create(&s->rig->nic, KEY_WINDOW, RIG_DOMAIN);
    const struct memory_key *region = key_find(&s->rig->nic, s->relaxed.key);
    struct rig_memory through = s->relaxed;
    window->bound = true;
    window->region = region->key;
    window->start = region->start;
    window->address = region->address;
    window->bytes = region->bytes;
    window->access = ACCESS_REMOTE_WRITE;
    through.key = window->key;
    rig_fault(s->rig, "placement=1");
    write_to(s->a, 0, &s->from, BYTES, &through);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    tell(s);
    assert_true(there(s, &s->relaxed));
    memset(s->relaxed.bytes, 0, BYTES);
    window->queue_pair = s->b->qp->number;
    write_to(s->a, 0, &s->from, BYTES, &through);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    assert_true(window_invalidate(&s->rig->nic, s->b->qp, window->key));
    assert_true(there(s, &s->relaxed));
}

/* More than can be held. */
static void test_much(void **state)
{
    struct scene *s = *state;
    const uint32_t bytes = 4u << 20;
    struct rig_memory from = rig_memory(s->rig, bytes), to = relaxed_memory(s->rig, bytes);
    rig_fill(from.bytes, bytes, 3);
    rig_fault(s->rig, "placement=1:1000000");
    write_to(s->a, 0, &from, bytes, &to);
    assert_memory_not_equal(to.bytes, from.bytes, bytes);
    tell(s);
    assert_memory_equal(to.bytes, from.bytes, bytes);
}

/* Memory that is not there fails at once. */
static void test_unmapped(void **state)
{
    struct scene *s = *state;
    struct rig_memory memory = rig_mapped(s->rig, BYTES);
    key_find(&s->rig->nic, memory.key)->access |= ACCESS_RELAXED_ORDERING;
    rig_fault(s->rig, "placement=1");
    rig_unmap(&memory);
    rig_rdma(s->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &s->from, 64, &memory);
    struct mlx5_cqe64 cqe = expect(s->cq, MLX5_CQE_REQ_ERR);
    const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)&cqe;
    assert_int_equal(error->syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

static void test_stays(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "placement=1");
    rig_fault(s->rig, "lose=0.5");
    rig_fault(s->rig, "none");
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    assert_int_equal(pieces_there(s, &s->relaxed), 0);
    tell(s);
    rig_fault(s->rig, "placement=0");
    memset(s->relaxed.bytes, 0, BYTES);
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    assert_true(there(s, &s->relaxed));
}

static void test_quirk_relaxed(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "quirk=order-relaxed");
    write_to(s->a, 0, &s->from, BYTES, &s->ordinary);
    assert_true(there(s, &s->ordinary));
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    tell(s);
    assert_in_range(pieces_there(s, &s->relaxed), 60, 200); /* of 256 */
    rig_pass(s->rig, 1 * MS);
    assert_true(there(s, &s->relaxed));
}

static void test_quirk_flag(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "quirk=order-flag");
    write_to(s->a, 0, &s->from, BYTES, &s->relaxed);
    assert_true(there(s, &s->relaxed));
    write_to(s->a, 0, &s->from, BYTES, &s->ordinary);
    assert_in_range(pieces_there(s, &s->ordinary), 60, 200);
    tell(s);
    assert_true(there(s, &s->ordinary));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_receive, begin, end),
        cmocka_unit_test_setup_teardown(test_own_data, begin, end),
        cmocka_unit_test_setup_teardown(test_read, begin, end),
        cmocka_unit_test_setup_teardown(test_read_after_write, begin, end),
        cmocka_unit_test_setup_teardown(test_atomic, begin, end),
        cmocka_unit_test_setup_teardown(test_same_bytes, begin, end),
        cmocka_unit_test_setup_teardown(test_ends, begin, end),
        cmocka_unit_test_setup_teardown(test_order, begin, end),
        cmocka_unit_test_setup_teardown(test_overtaking, begin, end),
        cmocka_unit_test_setup_teardown(test_line, begin, end),
        cmocka_unit_test_setup_teardown(test_window, begin, end),
        cmocka_unit_test_setup_teardown(test_much, begin, end),
        cmocka_unit_test_setup_teardown(test_unmapped, begin, end),
        cmocka_unit_test_setup_teardown(test_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_quirk_relaxed, begin, end),
        cmocka_unit_test_setup_teardown(test_quirk_flag, begin, end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("late data", tests, NULL, NULL);
}

/* rc_loss_test.c: reliable connections on a fabric that loses, doubles and delays packets, by fixed
 * seeds: the data is always right and in order, and each request completes exactly once. */
#include "simnic/nic/tests/expect.h"

#define MS 1000000ull
#define SLOTS 32
#define SLOT_BYTES 20000u

/* What each slot holds: requests in a mixture, each with bytes of its own. */
struct stream {
    uint32_t posted, completed, received;
    uint16_t index[SLOTS];
    uint32_t bytes[SLOTS];
    uint8_t opcode[SLOTS];
    uint64_t adds; /* of the fetch-and-adds so far */
};

static uint32_t length_of(uint32_t i)
{
    static const uint32_t lengths[] = {1, 1024, 5000, 700, 16384, 64, 2048, 19999};
    return lengths[i * 7 % 8];
}

static uint8_t opcode_of(uint32_t i, uint32_t only)
{
    static const uint8_t opcodes[] = {MLX5_OPCODE_SEND,           MLX5_OPCODE_RDMA_WRITE,
                                      MLX5_OPCODE_RDMA_READ,      MLX5_OPCODE_SEND_IMM,
                                      MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_ATOMIC_FA};
    return opcodes[only ? only - 1 : i % 6];
}

static bool takes_receive(uint8_t opcode)
{
    return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM ||
           opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

static uint8_t *near_slot(const struct pair *p, uint32_t i)
{
    return p->near.bytes + (size_t)(i % SLOTS) * SLOT_BYTES;
}

static uint8_t *there_slot(const struct pair *p, uint32_t i)
{
    return p->there.bytes + (size_t)(i % SLOTS) * SLOT_BYTES;
}

#define COUNTER_AT (SLOTS * SLOT_BYTES) /* the word that is added to */

static void post(struct pair *p, struct stream *s, uint32_t only)
{
    uint32_t i = s->posted++, bytes = length_of(i);
    uint8_t opcode = opcode_of(i, only);
    struct rig_wqe wqe;
    bool read = opcode == MLX5_OPCODE_RDMA_READ, atomic = opcode == MLX5_OPCODE_ATOMIC_FA;
    rig_fill(read ? there_slot(p, i) : near_slot(p, i), bytes, i + 1);
    memset(read ? near_slot(p, i) : there_slot(p, i), 0, bytes);
    if (atomic) {
        bytes = 8;
    }
    if (takes_receive(opcode)) {
        rig_receive(p->b, &p->there, (size_t)(i % SLOTS) * SLOT_BYTES, SLOT_BYTES);
    }
    rig_wqe_start(&wqe, opcode, SIGNALLED);
    wqe.immediate = htobe32(i);
    if (opcode != MLX5_OPCODE_SEND && opcode != MLX5_OPCODE_SEND_IMM) {
        rig_wqe_remote(
            &wqe, atomic ? (uintptr_t)p->there.bytes + COUNTER_AT : (uintptr_t)there_slot(p, i),
            p->there.key);
    }
    if (atomic) {
        rig_wqe_atomic(&wqe, i + 1, 0);
    }
    rig_wqe_data(&wqe, (uintptr_t)near_slot(p, i), bytes, p->near.key);
    s->opcode[i % SLOTS] = opcode;
    s->bytes[i % SLOTS] = bytes;
    s->index[i % SLOTS] = rig_send(p->a, &wqe);
}

static void check_completed(struct pair *p, struct stream *s, const struct mlx5_cqe64 *cqe)
{
    uint32_t i = s->completed++, slot = i % SLOTS;
    assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ);
    assert_int_equal(be16toh(cqe->wqe_counter), s->index[slot]);
    assert_int_equal(be32toh(cqe->byte_cnt), s->bytes[slot]);
    if (s->opcode[slot] == MLX5_OPCODE_ATOMIC_FA) {
        uint64_t old;
        memcpy(&old, near_slot(p, i), sizeof(old));
        assert_true(old == s->adds);
        s->adds += i + 1;
        return;
    }
    assert_memory_equal(near_slot(p, i), there_slot(p, i), s->bytes[slot]);
}

/* The next message that takes a receive, among those posted. */
static void check_received(struct stream *s, uint32_t only, const struct mlx5_cqe64 *cqe,
                           uint16_t *taken)
{
    while (!takes_receive(opcode_of(s->received, only))) {
        s->received++;
    }
    uint32_t i = s->received++;
    assert_true(i < s->posted);
    uint8_t opcode = opcode_of(i, only), kind = (uint8_t)(cqe->op_own >> 4);
    assert_int_equal(kind, opcode == MLX5_OPCODE_SEND       ? MLX5_CQE_RESP_SEND
                           : opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM
                                                            : MLX5_CQE_RESP_WR_IMM);
    assert_int_equal(be32toh(cqe->byte_cnt), length_of(i));
    assert_int_equal(be16toh(cqe->wqe_counter), (*taken)++);
    if (opcode != MLX5_OPCODE_SEND) {
        assert_int_equal(be32toh(cqe->imm_inval_pkey), i);
    }
}

/* Sends `count` requests, at most `depth` at once. only: 0, or one opcode alone. */
static void stream(const char *faults, uint32_t count, uint32_t depth, uint32_t only)
{
    struct pair *p = pair_new(NULL);
    struct stream s = {0};
    struct mlx5_cqe64 cqe;
    uint16_t taken = 0;
    rig_connect(p->a, p->b);
    rig_fault(p->rig, faults);
    for (uint32_t rounds = 0; s.completed < count; rounds++) {
        assert_true(rounds < 100000);
        while (s.posted < count && s.posted - s.completed < depth) {
            post(p, &s, only);
        }
        rig_pass(p->rig, MS / 10);
        while (rig_poll(p->far, &cqe)) {
            check_received(&s, only, &cqe, &taken);
        }
        while (rig_poll(p->cq, &cqe)) {
            check_completed(p, &s, &cqe);
        }
    }
    rig_pass(p->rig, 1000 * MS);
    expect_none(p->cq);
    expect_none(p->far);
    uint64_t sum;
    memcpy(&sum, p->there.bytes + COUNTER_AT, sizeof(sum));
    assert_true(sum == s.adds);
    assert_int_equal(p->a->qp->state, STATE_RTS);
    assert_int_equal(p->b->qp->state, STATE_RTS);
    assert_int_equal(p->b->received, taken);
    rig_delete(p->rig);
}

static void test_no_faults(void **state)
{
    (void)state;
    stream("none", 600, SLOTS / 2, 0);
}

static void test_duplicates(void **state)
{
    (void)state;
    stream("duplicate=0.1,seed=1", 600, SLOTS / 2, 0);
    stream("duplicate=1,seed=2", 300, 4, 0);
}

static void test_loss_of_sends(void **state)
{
    (void)state;
    stream("lose=0.01,seed=3", 600, SLOTS / 2, 1);
    stream("lose=0.05,seed=4", 300, 8, 4);
}

static void test_loss_of_writes(void **state)
{
    (void)state;
    stream("lose=0.01,seed=5", 600, SLOTS / 2, 2);
    stream("lose=0.05,seed=6", 300, 8, 5);
}

static void test_loss_of_atomics(void **state)
{
    (void)state;
    stream("lose=0.05,seed=7", 600, SLOTS / 2, 6);
    stream("lose=0.05,duplicate=0.1,seed=8", 600, 1, 6);
}

/* A READ whose response loses one packet of many is asked for again once, not once for each packet
 * that follows. */
static void test_loss_of_reads(void **state)
{
    (void)state;
    stream("lose=0.005,seed=9", 600, SLOTS / 2, 3);
    stream("lose=0.02,seed=10", 300, 1, 3);
}

static void test_loss_mixed(void **state)
{
    (void)state;
    for (uint32_t seed = 20; seed < 26; seed++) {
        char spec[64];
        snprintf(spec, sizeof(spec), "lose=0.01,duplicate=0.01,seed=%u", seed);
        stream(spec, 300, SLOTS / 2, 0);
    }
}

static void test_delays(void **state)
{
    (void)state;
    stream("delay=0.02:200,seed=30", 600, 4, 2);
    stream("delay=0.02:50,duplicate=0.02,seed=31", 300, 4, 1);
}

/* Every response packet of a READ is lost in turn. */
static void test_each_response_lost(void **state)
{
    (void)state;
    enum { PACKETS = 40 };
    for (uint32_t lost = 0; lost < PACKETS; lost++) {
        struct pair *p = pair_new(NULL);
        struct nic *nic = &p->rig->nic;
        rig_connect(p->a, p->b);
        rig_fill(p->there.bytes, PACKETS * 1024, lost + 1);
        uint16_t index =
            rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, PACKETS * 1024, &p->there);
        requester_run(nic, p->a->qp);
        for (uint32_t i = 0; i < PACKETS; i++) {
            struct packet response = {.operation = i == 0             ? PACKET_READ_RESPONSE_FIRST
                                                   : i == PACKETS - 1 ? PACKET_READ_RESPONSE_LAST
                                                                      : PACKET_READ_RESPONSE_MIDDLE,
                                      .payload_bytes = 1024,
                                      .source_qpn = p->b->qp->number,
                                      .psn = (p->a->qp->attributes.send_psn + i) & PSN_MASK};
            if (i != lost) {
                completer_receive(nic, p->a->qp, &response, p->there.bytes + i * 1024);
            }
        }
        rig_pass(p->rig, 200 * MS);
        expect_sent(p->cq, p->a, index);
        assert_memory_equal(p->near.bytes, p->there.bytes, PACKETS * 1024);
        rig_delete(p->rig);
    }
}

/* The only acknowledgement is lost: the message comes again and is not executed again. */
static void test_acknowledgement_lost(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 10);
    rig_receive(p->b, &p->there, 100, 10);
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, 10);
    nic_run(nic, p->rig->now_ns); /* sends and receives */
    p->b->qp->ack_due = false;
    rig_fault(p->rig, "lose=1,seed=1");
    rig_pass(p->rig, MS);
    rig_fault(p->rig, "none");
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 10);
    rig_pass(p->rig, 100 * MS);
    expect_sent(p->cq, p->a, index);
    expect_none(p->far);
}

/* A rail that goes down and comes back in time is a pause; both changes are events. */
static void test_rail_down(void **state)
{
    struct pair *p = *state;
    rig_fault(p->rig, "rail0=down");
    assert_int_equal(rig_events(p->rig, EVENT_PORT_ERR), 1);
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    rig_pass(p->rig, 100 * MS);
    expect_none(p->cq);
    rig_fault(p->rig, "none");
    assert_int_equal(rig_events(p->rig, EVENT_PORT_ACTIVE), 1);
    rig_pass(p->rig, 100 * MS);
    expect_sent(p->cq, p->a, index);
    rig_fault(p->rig, "rail0=down");
    index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    rig_pass(p->rig, 10000 * MS);
    expect_send_error(p->cq, p->a, index, TRANSPORT_RETRY_EXC_ERR);
}

/* Nothing comes out of the rail of a device that was taken out, and its host is told once. */
static void test_unplugged(void **state)
{
    struct pair *p = *state;
    rig_fault(p->rig, "rail0=unplugged");
    rig_fault(p->rig, "rail0=unplugged,seed=2");
    assert_int_equal(p->rig->unplugged, 1);
    assert_int_equal(rig_events(p->rig, EVENT_PORT_ERR), 0);
    const uint16_t index =
        rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    rig_pass(p->rig, 10000 * MS); /* this host has left the QP alive */
    expect_send_error(p->cq, p->a, index, TRANSPORT_RETRY_EXC_ERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_faults),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_loss_of_sends),
        cmocka_unit_test(test_loss_of_writes),
        cmocka_unit_test(test_loss_of_atomics),
        cmocka_unit_test(test_loss_of_reads),
        cmocka_unit_test(test_loss_mixed),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_each_response_lost),
        TEST(test_acknowledgement_lost),
        TEST(test_rail_down),
        TEST(test_unplugged),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

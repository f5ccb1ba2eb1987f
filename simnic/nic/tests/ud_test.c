/* ud_test.c: datagrams: addresses, the 40 bytes that come before each, Q_Keys, and what is dropped
 * in silence. */
#include "simnic/nic/tests/expect.h"

#define GRH 40u

static int setup_datagrams(void **state)
{
    struct rig_qp_options options = {.type = TYPE_UD};
    struct pair *p = pair_new(&options);
    rig_connect(p->a, p->b);
    *state = p;
    return 0;
}

static void datagram(struct pair *p, struct rig_wqe *wqe, uint32_t queue_key, uint32_t gid_index,
                     uint32_t bytes)
{
    rig_wqe_start(wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_address(wqe, p->b->qp->number, queue_key, rails[0].gid[gid_index].raw, gid_index);
    if (bytes) {
        rig_wqe_data(wqe, (uintptr_t)p->near.bytes, bytes, p->near.key);
    }
}

static uint16_t checksum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) {
        sum += (uint32_t)(header[i] << 8 | header[i + 1]);
    }
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

static void test_ipv4(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    memset(p->there.bytes, 0xaa, 1000);
    datagram(p, &wqe, 0x11111111, 3, 101);
    uint16_t index = rig_send(p->a, &wqe);
    struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, index);
    assert_int_equal(be32toh(cqe.byte_cnt), 101);
    cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 101);
    assert_int_equal(be32toh(cqe.flags_rqpn) & 0xffffff, p->a->qp->number);
    assert_int_equal(be32toh(cqe.flags_rqpn) >> 28, 1); /* a GRH is there */
    const uint8_t *ip = p->there.bytes + 20;
    const uint8_t loopback[4] = {127, 0, 0, 1};
    assert_int_equal(ip[0], 0x45);
    assert_int_equal(ip[1], 0x2e);
    assert_int_equal(ip[2] << 8 | ip[3], 20 + 8 + 12 + 8 + 101 + 4);
    assert_int_equal(ip[8], 61);
    assert_int_equal(ip[9], 17);
    assert_int_equal(checksum(ip), 0xffff);
    assert_memory_equal(ip + 12, loopback, 4);
    assert_memory_equal(ip + 16, loopback, 4);
    assert_memory_equal(p->there.bytes + GRH, p->near.bytes, 101);
    assert_int_equal(p->there.bytes[GRH + 101], 0xaa);
}

static void test_ipv6(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    datagram(p, &wqe, 0x11111111, 1, 101);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 101);
    const uint8_t *ip = p->there.bytes;
    assert_int_equal(ip[0] << 24 | ip[1] << 16 | ip[2] << 8 | ip[3],
                     6 << 28 | 0x2e << 20 | 0x54321);
    assert_int_equal(ip[4] << 8 | ip[5], 8 + 12 + 8 + 101 + 4);
    assert_int_equal(ip[6], 17);
    assert_int_equal(ip[7], 61);
    assert_memory_equal(ip + 8, rails[0].gid[1].raw, 16);
    assert_memory_equal(ip + 24, rails[0].gid[1].raw, 16);
    assert_memory_equal(p->there.bytes + GRH, p->near.bytes, 101);
}

static void test_sizes(void **state)
{
    struct pair *p = *state;
    static const uint32_t sizes[] = {0, 1, 512, 4095, 4096};
    for (uint32_t i = 0; i < 5; i++) {
        struct rig_wqe wqe;
        uint16_t taken = rig_receive(p->b, &p->there, 0, GRH + 4096);
        datagram(p, &wqe, 0x11111111, 3, sizes[i]);
        expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + sizes[i]);
        assert_memory_equal(p->there.bytes + GRH, p->near.bytes, sizes[i]);
    }
}

static void test_immediate_and_inline(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND_IMM, SIGNALLED);
    rig_wqe_address(&wqe, p->b->qp->number, 0x11111111, rails[0].gid[3].raw, 3);
    rig_wqe_inline(&wqe, "hello", 5);
    wqe.immediate = htobe32(0x0a0b0c0d);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND_IMM, taken, GRH + 5);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), 0x0a0b0c0d);
    assert_memory_equal(p->there.bytes + GRH, "hello", 5);
}

/* A mismatch is dropped in silence; one with the high bit stands for the sender's own. */
static void test_queue_key(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    datagram(p, &wqe, 0x11111112, 3, 10);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_none(p->far);
    assert_int_equal(p->b->qp->statistics->receive_wqes, 0);
    datagram(p, &wqe, 0x80000000, 3, 10);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 10);
    assert_int_equal(p->b->qp->state, STATE_RTS);
}

static void test_no_receive(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    datagram(p, &wqe, 0x11111111, 3, 10);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_none(p->far);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
    expect_none(p->far); /* it is lost */
    datagram(p, &wqe, 0x11111111, 3, 11);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + 11);
}

/* To nobody, to nowhere and to the other rail's port: sent, and lost. */
static void test_lost(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    static const uint8_t nowhere[16] = {0x20, 0x01};
    rig_receive(p->b, &p->there, 0, 1000);
    datagram(p, &wqe, 0x11111111, 3, 10);
    memcpy(wqe.bytes + 16 + 32, nowhere, 16);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    datagram(p, &wqe, 0x11111111, 3, 10);
    memcpy(wqe.bytes + 16 + 32, rails[1].gid[3].raw, 16);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    datagram(p, &wqe, 0x11111111, 3, 10);
    wqe.bytes[16 + 11] ^= 0x3f; /* another QPN */
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_none(p->far);
    assert_int_equal(p->a->qp->state, STATE_RTS);
}

static void test_too_long(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    datagram(p, &wqe, 0x11111111, 3, 4097);
    uint16_t index = rig_send(p->a, &wqe);
    expect_send_error(p->cq, p->a, index, LOCAL_LENGTH_ERR);
    assert_int_equal(p->a->qp->state, STATE_SQE);
    /* SQE flushes what is sent, but still receives (IBTA 10.3.1.7). */
    datagram(p, &wqe, 0x11111111, 3, 10);
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), WR_FLUSH_ERR);
    rig_receive(p->a, &p->near, 0, 1000);
    datagram(p, &wqe, 0x11111111, 3, 10);
    uint32_t at_a = htobe32(p->a->qp->number | 1u << 31);
    memcpy(wqe.bytes + 24, &at_a, 4);
    expect_sent(p->far, p->b, rig_send(p->b, &wqe));
    expect_received(p->cq, p->a, MLX5_CQE_RESP_SEND, 0, GRH + 10);
    /* And back to work. */
    qp_set_state(&p->rig->nic, p->a->qp, STATE_RTS);
    datagram(p, &wqe, 0x11111111, 3, 10);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
}

static void test_receive_too_small(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, GRH + 9);
    datagram(p, &wqe, 0x11111111, 3, 10);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_receive_error(p->far, p->b, taken, LOCAL_LENGTH_ERR);
    expect_none(p->far);
}

static void test_local_protection(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_receive(p->b, &p->there, 0, 1000);
    datagram(p, &wqe, 0x11111111, 3, 0);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 10, p->near.key + 1);
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), LOCAL_PROT_ERR);
    expect_none(p->far);
}

/* The address vector may be cut off; its short form names no GID, so it leads nowhere. */
static void test_address_forms(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    datagram(p, &wqe, 0x11111111, 3, 0);
    wqe.bytes[24] = 0; /* the flag of the long form; what follows are data segments then */
    memset(wqe.bytes + 32, 0, 32);
    wqe.size = 32;
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    datagram(p, &wqe, 0x11111111, 3, 0);
    wqe.size = 48;
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), LOCAL_QP_OP_ERR);
    expect_none(p->far);
}

static void test_many(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 1000; i++) {
        struct rig_wqe wqe;
        uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
        datagram(p, &wqe, 0x11111111, i % 6, i % 900);
        expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, GRH + i % 900);
        assert_memory_equal(p->there.bytes + GRH, p->near.bytes, i % 900);
    }
}

static int setup_many(void **state)
{
    struct rig_qp_options options = {.type = TYPE_UD, .send_blocks = 512, .receive_entries = 128};
    struct pair *p = pair_new(&options);
    rig_connect(p->a, p->b);
    *state = p;
    return 0;
}

/* Some rounds: a NIC that waits for room tries again and again. */
static void run_rounds(struct pair *p, uint64_t ns)
{
    p->rig->now_ns += ns;
    for (int i = 0; i < 100; i++) {
        nic_run(&p->rig->nic, p->rig->now_ns);
    }
}

/* Another process on the rig's fabric, which does nothing by itself. */
static void attach_other(struct pair *p, struct fabric *other)
{
    /* A process has one slot. So the rig's belongs to another one meanwhile. */
    _Atomic uint64_t *owner = &p->rig->fabric.file->slots[p->rig->fabric.slot].owner;
    uint64_t self = atomic_exchange(owner, 1);
    assert_int_equal(fabric_attach(other, p->rig->path), 0);
    atomic_store(owner, self);
    assert_int_not_equal(other->slot, p->rig->fabric.slot);
}

/* It has no process any more: its pid is nobody's. */
static void kill_other(struct fabric *other)
{
    atomic_store(&other->file->slots[other->slot].owner, 1ull << 40 | 0x7fffffff);
}

#define FULL 100u /* datagrams of one MTU: more than a ring holds */

/* Room is waited for as long as the peer's process lives. */
static void test_dead_peer(void **state)
{
    struct pair *p = *state;
    struct fabric other;
    attach_other(p, &other);
    for (uint32_t i = 0; i < FULL; i++) {
        struct rig_wqe wqe;
        rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
        rig_wqe_address(&wqe, other.slot << QPN_SLOT_SHIFT | 100, 0x11111111, rails[0].gid[3].raw,
                        3);
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 4096, p->near.key);
        rig_send(p->a, &wqe);
    }
    run_rounds(p, 0);
    run_rounds(p, 10000000);
    uint32_t sent = 0;
    struct mlx5_cqe64 cqe;
    while (rig_poll(p->cq, &cqe)) {
        sent++;
    }
    assert_true(sent > 0 && sent < FULL);
    kill_other(&other);
    run_rounds(p, 10000000);
    while (rig_poll(p->cq, &cqe)) {
        sent++;
    }
    assert_int_equal(sent, FULL);
    fabric_detach(&other);
}

/* ---- multicast ---- */

#define GROUP_QPN 0xffffffu
static const uint8_t some_group[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
static const uint8_t other_group[16] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4};

static void to_group(struct pair *p, const uint8_t group[16], uint32_t bytes, uint8_t flags)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, flags);
    rig_wqe_address(&wqe, GROUP_QPN, 0x11111111, group, 3);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, bytes, p->near.key);
    rig_send(p->a, &wqe);
}

static uint32_t count(struct rig_cq *cq)
{
    struct mlx5_cqe64 cqe;
    uint32_t found = 0;
    while (rig_poll(cq, &cqe)) {
        assert_true(cqe.op_own >> 4 == MLX5_CQE_RESP_SEND || cqe.op_own >> 4 == MLX5_CQE_REQ);
        found++;
    }
    return found;
}

static void test_group(void **state)
{
    struct pair *p = *state;
    struct nic *nic = &p->rig->nic;
    assert_true(multicast_attach(nic, p->b->qp, some_group));
    rig_receive(p->b, &p->there, 0, 1000);
    rig_receive(p->b, &p->there, 0, 1000);
    to_group(p, other_group, 10, SIGNALLED);
    to_group(p, some_group, 11, SIGNALLED);
    rig_run(p->rig);
    assert_int_equal(count(p->cq), 2);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, 0, GRH + 11);
    assert_memory_equal(p->there.bytes + GRH, p->near.bytes, 11);
    assert_true(multicast_detach(nic, p->b->qp, some_group));
    assert_false(multicast_detach(nic, p->b->qp, some_group));
    to_group(p, some_group, 12, SIGNALLED);
    expect_none(p->far);
}

/* Datagrams wait for room, as those to one queue pair do. */
static void test_group_waits(void **state)
{
    struct pair *p = *state;
    multicast_attach(&p->rig->nic, p->b->qp, some_group);
    for (uint32_t i = 0; i < FULL; i++) {
        rig_receive(p->b, &p->there, 0, 8192);
    }
    for (uint32_t i = 0; i < FULL; i++) {
        to_group(p, some_group, 4096, SIGNALLED);
    }
    rig_run(p->rig);
    assert_int_equal(count(p->cq), FULL);
    assert_int_equal(count(p->far), FULL);
}

/* A QP that blocks its own does not block those of others. */
static void test_own_blocked(void **state)
{
    struct pair *p = *state;
    multicast_attach(&p->rig->nic, p->a->qp, some_group);
    multicast_attach(&p->rig->nic, p->b->qp, some_group);
    for (uint32_t blocks = 0; blocks < 2; blocks++) {
        p->a->qp->blocks_own_multicast = blocks;
        rig_receive(p->a, &p->near, 0, 1000);
        rig_receive(p->b, &p->there, 0, 1000);
        to_group(p, some_group, 10, 0);
        rig_run(p->rig);
        assert_int_equal(count(p->cq), blocks ? 0 : 1);
        assert_int_equal(count(p->far), 1);
    }
}

static uint32_t read_all(struct fabric *fabric)
{
    struct fabric_cursor cursor;
    struct packet packet;
    const uint8_t *payload;
    uint32_t found = 0;
    fabric_receive_start(fabric, &cursor);
    while (fabric_receive(fabric, &cursor, &packet, &payload)) {
        found += packet.flags & PACKET_MULTICAST ? 1 : 0;
        fabric_consume(fabric, &cursor);
    }
    fabric_receive_stop(fabric, &cursor);
    return found;
}

/* Another process is waited for if it has members, and as long as it lives; no datagram comes twice. */
static void test_group_elsewhere(void **state)
{
    struct pair *p = *state;
    struct fabric other;
    attach_other(p, &other);
    multicast_attach(&p->rig->nic, p->b->qp, some_group);
    for (uint32_t i = 0; i < FULL; i++) {
        rig_receive(p->b, &p->there, 0, 8192);
        to_group(p, some_group, 4096, SIGNALLED);
    }
    run_rounds(p, 0);
    assert_int_equal(count(p->far), FULL);
    assert_int_equal(count(p->cq), FULL);
    assert_int_equal(read_all(&other), 0);

    atomic_store(&other.file->slots[other.slot].groups, UINT64_MAX);
    for (uint32_t i = 0; i < FULL; i++) {
        rig_receive(p->b, &p->there, 0, 8192);
        to_group(p, some_group, 4096, SIGNALLED);
    }
    run_rounds(p, 0);
    uint32_t first = count(p->far);
    assert_true(first < FULL);
    uint32_t there = read_all(&other);
    assert_true(there > 0);
    run_rounds(p, 1000000);
    there += read_all(&other);
    run_rounds(p, 1000000);
    there += read_all(&other);
    assert_int_equal(first + count(p->far), FULL);
    assert_int_equal(there, FULL);
    assert_int_equal(count(p->cq), FULL);

    for (uint32_t i = 0; i < FULL; i++) {
        rig_receive(p->b, &p->there, 0, 8192);
        to_group(p, some_group, 4096, SIGNALLED);
    }
    run_rounds(p, 0);
    first = count(p->far);
    assert_true(first < FULL);
    kill_other(&other);
    run_rounds(p, 10000000);
    assert_int_equal(first + count(p->far), FULL);
    fabric_detach(&other);
}

#define DATAGRAMS(name) cmocka_unit_test_setup_teardown(name, setup_datagrams, teardown)
#define MANY(name) cmocka_unit_test_setup_teardown(name, setup_many, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATAGRAMS(test_ipv4),
        DATAGRAMS(test_ipv6),
        DATAGRAMS(test_sizes),
        DATAGRAMS(test_immediate_and_inline),
        DATAGRAMS(test_queue_key),
        DATAGRAMS(test_no_receive),
        DATAGRAMS(test_lost),
        DATAGRAMS(test_too_long),
        DATAGRAMS(test_receive_too_small),
        DATAGRAMS(test_local_protection),
        DATAGRAMS(test_address_forms),
        DATAGRAMS(test_many),
        MANY(test_dead_peer),
        MANY(test_group),
        MANY(test_group_waits),
        MANY(test_own_blocked),
        MANY(test_group_elsewhere),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* turns_test.c: QPs whose packets find no room in the ring to a peer that reads nothing: they wait in their order,
 * others go on, and each is sent once when there is room. */
#include <unistd.h>

#include "simnic/nic/tests/expect.h"

#define QPS 600u           /* more than a ring has room for */
#define KEY_HIGH 0xabcdefu /* the upper half of a DC access key; the lower one is zero */
#define BYTES 1000u        /* one packet */

struct scene {
    struct rig *rig;
    struct fabric *peer; /* reads only what the test reads */
    struct rig_cq *cq;
    struct rig_memory memory;
    struct rig_qp *qps[QPS];
};

/* One more slot of this process. Whoever attaches gives back the slots that its process had before, so meanwhile the
 * rig's seems to be another's. */
static void attach_peer(struct scene *s)
{
    _Atomic uint64_t *owner = &s->rig->fabric.file->slots[s->rig->fabric.slot].owner;
    const uint64_t own = atomic_load(owner);
    atomic_store(owner, (uint64_t)getppid());
    assert_int_equal(fabric_attach(s->peer, s->rig->path), 0);
    atomic_store(owner, own);
    assert_int_not_equal(s->peer->slot, s->rig->fabric.slot);
}

static int begin(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->rig = rig_new();
    s->peer = calloc(1, sizeof(*s->peer));
    assert_non_null(s->peer);
    attach_peer(s);
    s->cq = rig_cq_new(s->rig, 1024, 64);
    s->memory = rig_memory(s->rig, BYTES);
    for (uint32_t i = 0; i < QPS; i++) {
        s->qps[i] = rig_qp_new(s->rig, s->cq, NULL);
        struct queue_pair *qp = s->qps[i]->qp;
        qp->attributes.destination_qpn = s->peer->slot << QPN_SLOT_SHIFT | (i + 1);
        qp_set_state(&s->rig->nic, qp, STATE_RTR);
        qp_set_state(&s->rig->nic, qp, STATE_RTS);
    }
    rig_run(s->rig);
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct scene *s = *state;
    rig_delete(s->rig);
    fabric_detach(s->peer);
    free(s->peer);
    free(s);
    return 0;
}

static void run(struct scene *s)
{
    nic_run(&s->rig->nic, s->rig->now_ns);
}

/* Of the QP's first WQE. expect() would run the NIC until it rests, which it does not while QPs wait for room. */
static void expect_cqe(struct scene *s, const struct rig_qp *qp, uint8_t opcode)
{
    struct mlx5_cqe64 cqe;
    assert_true(rig_poll(s->cq, &cqe));
    assert_int_equal(cqe.op_own >> 4, opcode);
    assert_int_equal(be32toh(cqe.sop_drop_qpn) & 0xffffff, qp->qp->number);
    assert_int_equal(be16toh(cqe.wqe_counter), 0);
}

static void send_from_all(struct scene *s)
{
    for (uint32_t i = 0; i < QPS; i++) {
        rig_send_message(s->qps[i], SIGNALLED, &s->memory, 0, BYTES);
        run(s);
    }
}

/* The peer reads up to `count` packets: the next ones of the QPs from *next on, in their order. Returns how many. */
static uint32_t read_by_peer(struct scene *s, uint32_t count, uint32_t *next)
{
    struct fabric_cursor cursor;
    struct packet packet;
    const uint8_t *payload;
    uint32_t done = 0;
    fabric_receive_start(s->peer, &cursor);
    while (done < count && fabric_receive(s->peer, &cursor, &packet, &payload)) {
        assert_true(*next < QPS);
        assert_int_equal(packet.source_qpn, s->qps[*next]->qp->number);
        fabric_consume(s->peer, &cursor);
        done++;
        (*next)++;
    }
    fabric_receive_stop(s->peer, &cursor);
    return done;
}

static uint32_t waiting(const struct scene *s, const struct turns *turns)
{
    uint32_t count = 0;
    const struct list *list = &turns->no_room[s->peer->slot];
    for (const struct list *l = list->next; l != list; l = l->next) {
        count++;
    }
    return count;
}

/* In the order of their doorbells, though there is room for one at a time. Of those that wait, none is ready. */
static void test_order(void **state)
{
    struct scene *s = *state;
    uint32_t next = 0, left;
    send_from_all(s);
    left = waiting(s, &s->rig->nic.active);
    assert_in_range(left, 100, QPS - 100);
    assert_true(list_empty(&s->rig->nic.active.ready));
    while (next < QPS) {
        assert_int_equal(read_by_peer(s, 1, &next), 1);
        run(s);
        run(s);
        assert_in_range(waiting(s, &s->rig->nic.active), left > 2 ? left - 2 : 0, left);
        left = waiting(s, &s->rig->nic.active);
    }
    assert_int_equal(left, 0);
    assert_int_equal(s->rig->nic.active.full_slots, 0);
    assert_int_equal(read_by_peer(s, 1, &next), 0);
}

/* The ring to this NIC has room. */
static void test_others_go_on(void **state)
{
    struct scene *s = *state;
    struct rig_qp *a = rig_qp_new(s->rig, s->cq, NULL), *b = rig_qp_new(s->rig, s->cq, NULL);
    rig_connect(a, b);
    send_from_all(s);
    rig_receive(b, &s->memory, 0, BYTES);
    rig_send_message(a, SIGNALLED, &s->memory, 0, BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        run(s);
    }
    expect_cqe(s, b, MLX5_CQE_RESP_SEND);
    expect_cqe(s, a, MLX5_CQE_REQ);
}

/* To flush its WQEs, and to go, a QP needs no room. Nothing of it is sent any more. */
static void test_end_while_waiting(void **state)
{
    struct scene *s = *state;
    struct nic *nic = &s->rig->nic;
    uint32_t next = 0;
    send_from_all(s);
    const uint32_t sent = QPS - waiting(s, &nic->active);
    qp_set_state(nic, s->qps[sent + 1]->qp, STATE_ERR); /* the first has a look anyway */
    run(s);
    expect_cqe(s, s->qps[sent + 1], MLX5_CQE_REQ_ERR);
    qp_destroy(nic, s->qps[sent]->qp);
    qp_set_state(nic, s->qps[sent + 2]->qp, STATE_RESET);
    while (next < sent) {
        assert_int_not_equal(read_by_peer(s, sent - next, &next), 0);
    }
    next += 3;
    while (next < QPS) {
        run(s);
        assert_int_not_equal(read_by_peer(s, QPS - next, &next), 0);
    }
    assert_int_equal(nic->active.full_slots & 1ull << s->peer->slot && waiting(s, &nic->active), 0);
}

/* Reads all that is there, messages too. Returns how many QPs are acknowledged now. */
static uint32_t read_acknowledgements(struct scene *s, uint32_t acknowledged)
{
    struct fabric_cursor cursor;
    struct packet packet;
    const uint8_t *payload;
    fabric_receive_start(s->peer, &cursor);
    while (fabric_receive(s->peer, &cursor, &packet, &payload)) {
        if (packet.operation == PACKET_ACKNOWLEDGE) {
            assert_int_equal(packet.source_qpn, s->qps[acknowledged]->qp->number);
            acknowledged++;
        }
        fabric_consume(s->peer, &cursor);
    }
    return acknowledged;
}

/* What a QP owes waits likewise: each is acknowledged once, in the order of the requests. */
static void test_acknowledgements(void **state)
{
    struct scene *s = *state;
    const uint32_t owed = 64; /* a few of them find room where no message did */
    send_from_all(s);
    for (uint32_t i = 0; i < owed; i++) {
        const struct queue_pair *qp = s->qps[i]->qp;
        struct packet packet = {.operation = PACKET_WRITE_ONLY,
                                .transport = TRANSPORT_RC,
                                .flags = PACKET_ACK_REQUEST,
                                .destination_qpn = qp->number,
                                .source_qpn = qp->attributes.destination_qpn,
                                .psn = qp->expected_psn};
        assert_non_null(fabric_reserve(s->peer, s->rig->fabric.slot, &packet));
        fabric_commit(s->peer, s->rig->fabric.slot, &packet);
    }
    run(s);
    run(s);
    assert_in_range(waiting(s, &s->rig->nic.owing), owed / 2, owed);
    uint32_t acknowledged = 0;
    for (uint32_t round = 0; round < 2; round++) {
        acknowledged = read_acknowledgements(s, acknowledged);
        run(s);
    }
    assert_int_equal(waiting(s, &s->rig->nic.owing), 0);
    acknowledged = read_acknowledgements(s, acknowledged);
    assert_int_equal(acknowledged, owed);
}

static void send_in_stream(struct scene *s, struct rig_qp *dci, uint16_t stream, uint32_t qpn)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    wqe.stream = stream;
    rig_wqe_address(&wqe, qpn, KEY_HIGH, rails[0].gid[3].raw, 3);
    rig_wqe_data(&wqe, (uintptr_t)s->memory.bytes, BYTES, s->memory.key);
    rig_send(dci, &wqe);
    run(s);
}

/* A DCI waits for room at one target, and what waits is flushed: its next message goes elsewhere. */
static void test_stream_fails_while_waiting(void **state)
{
    struct scene *s = *state;
    struct nic *nic = &s->rig->nic;
    struct rig_cq *receives = rig_cq_new(s->rig, 16, 64);
    struct rig_qp_options of_target = {.type = TYPE_DCT, .srq = rig_srq_new(s->rig, 16)};
    struct rig_qp_options of_initiator = {.type = TYPE_DCI, .no_receive_queue = true};
    struct rig_qp *target = rig_qp_new(s->rig, receives, &of_target);
    struct rig_qp *dci = rig_qp_new(s->rig, s->cq, &of_initiator);
    assert_true(dc_target_create(target->qp, (uint64_t)KEY_HIGH << 32));
    assert_true(streams_create(dci->qp, 4));
    qp_set_state(nic, target->qp, STATE_RTR);
    qp_set_state(nic, dci->qp, STATE_RTR);
    qp_set_state(nic, dci->qp, STATE_RTS);
    rig_srq_receive(of_target.srq, &s->memory, 0, BYTES);
    const uint32_t elsewhere = s->peer->slot << QPN_SLOT_SHIFT | 1000;
    send_in_stream(s, dci, 1, elsewhere);
    send_from_all(s);
    const uint32_t before = waiting(s, &nic->active);
    send_in_stream(s, dci, 1, elsewhere);
    assert_int_equal(waiting(s, &nic->active), before + 1);
    send_in_stream(s, dci, 2, target->qp->number);
    struct packet refusal = {.operation = PACKET_ACKNOWLEDGE,
                             .transport = TRANSPORT_DC,
                             .destination_qpn = dci->qp->number,
                             .source_qpn = elsewhere,
                             .psn = dci->qp->dc_first_psn & PSN_MASK,
                             .syndrome = AETH_NAK_REMOTE_ACCESS};
    assert_non_null(fabric_reserve(s->peer, s->rig->fabric.slot, &refusal));
    fabric_commit(s->peer, s->rig->fabric.slot, &refusal);
    for (uint32_t i = 0; i < 6; i++) {
        run(s);
    }
    struct mlx5_cqe64 cqe;
    assert_true(rig_poll(receives, &cqe));
    assert_int_equal(cqe.op_own >> 4, MLX5_CQE_RESP_SEND);
    static const uint8_t opcodes[] = {MLX5_CQE_REQ_ERR, MLX5_CQE_REQ_ERR, MLX5_CQE_REQ};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(rig_poll(s->cq, &cqe));
        assert_int_equal(cqe.op_own >> 4, opcodes[i]);
        assert_int_equal(be32toh(cqe.sop_drop_qpn) & 0xffffff, dci->qp->number);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, begin, end),
        cmocka_unit_test_setup_teardown(test_others_go_on, begin, end),
        cmocka_unit_test_setup_teardown(test_end_while_waiting, begin, end),
        cmocka_unit_test_setup_teardown(test_acknowledgements, begin, end),
        cmocka_unit_test_setup_teardown(test_stream_fails_while_waiting, begin, end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

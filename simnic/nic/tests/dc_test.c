/* dc_test.c: what a target keeps of its initiators: repeated requests, initiators that begin anew,
 * more of them than it has room for, packets that no initiator sends. */
#include "simnic/nic/tests/expect.h"

#define MS 1000000ull
#define KEY_HIGH 0xabcdefu /* the upper half of the access key; the lower one is zero */
#define MOST_SESSIONS 4096u
#define BYTES 3000u /* three packets */

struct scene {
    struct rig *rig;
    struct rig_cq *sends, *receives;
    struct rig_srq *srq;
    struct rig_qp *target;
    struct rig_memory near, there;
};

static void set_up(struct scene *s)
{
    s->rig = rig_new();
    s->sends = rig_cq_new(s->rig, 64, 64);
    s->receives = rig_cq_new(s->rig, 64, 64);
    s->srq = rig_srq_new(s->rig, 16);
    s->near = rig_memory(s->rig, 1 << 16);
    s->there = rig_memory(s->rig, 1 << 16);
    struct rig_qp_options o = {.type = TYPE_DCT, .srq = s->srq};
    s->target = rig_qp_new(s->rig, s->receives, &o);
    assert_true(dc_target_create(s->target->qp, (uint64_t)KEY_HIGH << 32));
    qp_set_state(&s->rig->nic, s->target->qp, STATE_RTR);
}

static void start(struct rig_qp *dci)
{
    qp_set_state(&dci->rig->nic, dci->qp, STATE_RTR);
    qp_set_state(&dci->rig->nic, dci->qp, STATE_RTS);
}

static struct rig_qp *new_initiator(struct scene *s)
{
    struct rig_qp_options o = {.type = TYPE_DCI, .no_receive_queue = true};
    struct rig_qp *dci = rig_qp_new(s->rig, s->sends, &o);
    start(dci);
    return dci;
}

static void address(const struct scene *s, struct rig_wqe *wqe)
{
    rig_wqe_address(wqe, s->target->qp->number, KEY_HIGH, rails[0].gid[3].raw, 3);
}

static uint16_t send_to(struct scene *s, struct rig_qp *dci, uint32_t bytes)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    address(s, &wqe);
    rig_wqe_data(&wqe, (uintptr_t)s->near.bytes, bytes, s->near.key);
    return rig_send(dci, &wqe);
}

static uint16_t add_to(struct scene *s, struct rig_qp *dci)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_ATOMIC_FA, SIGNALLED);
    address(s, &wqe);
    rig_wqe_remote(&wqe, (uintptr_t)s->there.bytes, s->there.key);
    rig_wqe_atomic(&wqe, 1, 0);
    rig_wqe_data(&wqe, (uintptr_t)s->near.bytes, 8, s->near.key);
    return rig_send(dci, &wqe);
}

/* Requests and answers are lost: each request is executed once nevertheless. */
static void test_once(void **state)
{
    struct scene s;
    (void)state;
    set_up(&s);
    rig_fault(s.rig, "lose=0.2,duplicate=0.1,delay=0.1:5000,seed=5");
    struct rig_qp *dci[3] = {new_initiator(&s), new_initiator(&s), new_initiator(&s)};
    for (uint64_t i = 0; i < 600; i++) {
        struct mlx5_cqe64 cqe;
        add_to(&s, dci[i % 3]);
        for (int waits = 0; !rig_poll(s.sends, &cqe); waits++) {
            assert_true(waits < 10000);
            rig_pass(s.rig, MS);
        }
        assert_int_equal(cqe.op_own >> 4, MLX5_CQE_REQ);
        uint64_t before;
        memcpy(&before, s.near.bytes, sizeof(before));
        assert_int_equal(before, i);
    }
    rig_delete(s.rig);
}

/* An initiator goes away inside a message: its receive WQE comes back when it begins anew, and the
 * next message is whole. */
static void test_half_message(void **state)
{
    struct scene s;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_initiator(&s);
    uint16_t first = rig_srq_receive(s.srq, &s.there, 0, BYTES);
    uint16_t second = rig_srq_receive(s.srq, &s.there, 0, BYTES);
    /* Its second packet cannot be read. */
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    address(&s, &wqe);
    rig_wqe_data(&wqe, (uintptr_t)s.near.bytes, 1024, s.near.key);
    rig_wqe_data(&wqe, (uintptr_t)s.near.bytes, 1024, s.near.key ^ 0xff);
    rig_send(dci, &wqe);
    struct mlx5_cqe64 cqe = expect(s.sends, MLX5_CQE_REQ_ERR);
    assert_false(rig_poll(s.receives, &cqe));

    qp_set_state(&s.rig->nic, dci->qp, STATE_RESET);
    dci->sent = 0;
    dci->record[1] = 0;
    start(dci);
    rig_fill(s.near.bytes, BYTES, 7);
    send_to(&s, dci, BYTES);
    cqe = expect(s.receives, MLX5_CQE_RESP_ERR);
    assert_int_equal(((struct mlx5_err_cqe *)(void *)&cqe)->syndrome,
                     MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    assert_int_equal(be16toh(cqe.wqe_counter), first);
    expect_received(s.receives, s.target, MLX5_CQE_RESP_SEND, second, BYTES);
    expect(s.sends, MLX5_CQE_REQ);
    assert_memory_equal(s.near.bytes, s.there.bytes, BYTES);
    rig_delete(s.rig);
}

static void deliver(struct scene *s, struct packet packet, const void *payload)
{
    packet.destination_qpn = s->target->qp->number;
    uint8_t *to = fabric_reserve(&s->rig->fabric, 0, &packet);
    assert_non_null(to);
    if (payload) {
        memcpy(to, payload, packet.payload_bytes);
    }
    fabric_commit(&s->rig->fabric, 0, &packet);
    rig_run(s->rig);
}

/* As many initiators as there is room for, which nobody else sees, and one more. */
static void test_full(void **state)
{
    struct scene s;
    struct mlx5_cqe64 cqe;
    (void)state;
    set_up(&s);
    struct dc_header header = {
        .access_key = (uint64_t)KEY_HIGH << 32, .connection = 1, .path_mtu = 3};
    struct packet packet = {.operation = PACKET_FETCH_ADD,
                            .transport = TRANSPORT_DC,
                            .payload_bytes = sizeof(header),
                            .address = (uintptr_t)s.there.bytes,
                            .key = s.there.key,
                            .swap_or_add = 1};
    for (uint32_t i = 0; i < MOST_SESSIONS; i++) {
        packet.source_qpn = 20000 + i;
        deliver(&s, packet, &header);
    }
    struct rig_qp *dci = new_initiator(&s);
    dci->qp->attributes.timeout = 18; /* tries again after 1.07 s */
    add_to(&s, dci);
    rig_run(s.rig);
    assert_false(rig_poll(s.sends, &cqe)); /* there is no room for it until the others are quiet */
    rig_pass(s.rig, 900 * MS);
    assert_false(rig_poll(s.sends, &cqe));
    rig_pass(s.rig, 300 * MS);
    expect(s.sends, MLX5_CQE_REQ);
    deliver(&s, packet, &header); /* a late repetition: the last one is still known */
    uint64_t count;
    memcpy(&count, s.there.bytes, sizeof(count));
    assert_int_equal(count, MOST_SESSIONS + 1);
    rig_delete(s.rig);
}

/* Nothing comes of packets without a header, of another transport, or of connections that are
 * over. */
static void test_strange_packets(void **state)
{
    struct scene s;
    struct mlx5_cqe64 cqe;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_initiator(&s);
    rig_srq_receive(s.srq, &s.there, 0, 64);
    struct dc_header header = {
        .access_key = (uint64_t)KEY_HIGH << 32, .connection = 1, .path_mtu = 200};
    struct packet packet = {
        .operation = PACKET_SEND_ONLY, .transport = TRANSPORT_DC, .source_qpn = dci->qp->number};
    deliver(&s, packet, NULL);
    packet.payload_bytes = sizeof(header) - 1;
    deliver(&s, packet, &header);
    packet.payload_bytes = sizeof(header);
    packet.transport = TRANSPORT_RC;
    deliver(&s, packet, &header);
    assert_false(rig_poll(s.receives, &cqe));

    send_to(&s, dci, 64);
    expect(s.sends, MLX5_CQE_REQ);
    expect(s.receives, MLX5_CQE_RESP_SEND);
    rig_srq_receive(s.srq, &s.there, 0, 64);
    packet.transport = TRANSPORT_DC; /* late */
    deliver(&s, packet, &header);
    packet.psn = header.first_psn = dci->qp->next_psn;
    deliver(&s, packet, &header);
    packet.operation = 77;
    header.connection = UINT64_MAX - 1;
    deliver(&s, packet, &header);
    assert_false(rig_poll(s.receives, &cqe));
    /* A request to an initiator. */
    packet.operation = PACKET_SEND_ONLY;
    struct queue_pair *target = s.target->qp;
    s.target->qp = dci->qp;
    deliver(&s, packet, &header);
    s.target->qp = target;
    assert_false(rig_poll(s.sends, &cqe));
    rig_delete(s.rig);
}

/* ---- streams ---- */

/* A DCI that fails when 2^log_failed streams have. */
static struct rig_qp *new_streams(struct scene *s, uint32_t log_failed)
{
    struct rig_qp *dci = new_initiator(s);
    assert_true(streams_create(dci->qp, log_failed));
    return dci;
}

static void prepare_write(struct scene *s, struct rig_wqe *wqe, uint16_t stream, uint32_t bytes)
{
    rig_wqe_start(wqe, MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
    wqe->stream = stream;
    address(s, wqe);
    rig_wqe_remote(wqe, (uintptr_t)s->there.bytes, s->there.key);
    rig_wqe_data(wqe, (uintptr_t)s->near.bytes, bytes, s->near.key);
}

static uint16_t write_in(struct scene *s, struct rig_qp *dci, uint16_t stream)
{
    struct rig_wqe wqe;
    prepare_write(s, &wqe, stream, BYTES);
    return rig_send(dci, &wqe);
}

/* Fails: the remote key is wrong. */
static uint16_t fail_in(struct scene *s, struct rig_qp *dci, uint16_t stream)
{
    uint32_t right = s->there.key;
    s->there.key ^= 0x55;
    uint16_t index = write_in(s, dci, stream);
    s->there.key = right;
    return index;
}

/* Not signalled, which an error is told of nevertheless. Returns the index. */
static uint16_t add_in(struct scene *s, struct rig_qp *dci, uint16_t stream, uint8_t flags)
{
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_ATOMIC_FA, flags);
    wqe.stream = stream;
    address(s, &wqe);
    rig_wqe_remote(&wqe, (uintptr_t)s->there.bytes, s->there.key);
    rig_wqe_atomic(&wqe, 1, 0);
    rig_wqe_data(&wqe, (uintptr_t)s->near.bytes, 8, s->near.key);
    return rig_send(dci, &wqe);
}

static uint64_t count_there(const struct scene *s)
{
    uint64_t count;
    memcpy(&count, s->there.bytes, sizeof(count));
    return count;
}

/* What follows in the stream that failed is flushed, and none of the other streams is concerned:
 * completions are in the order of the queue. */
static void test_streams_apart(void **state)
{
    struct scene s;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_streams(&s, 2);
    uint16_t index[8] = {
        add_in(&s, dci, 1, SIGNALLED),     fail_in(&s, dci, 9),     add_in(&s, dci, 9, 0),
        add_in(&s, dci, 65535, SIGNALLED), add_in(&s, dci, 9, 0),   add_in(&s, dci, 1, SIGNALLED),
        add_in(&s, dci, 0, SIGNALLED),     fail_in(&s, dci, 65535),
    };
    expect_sent(s.sends, dci, index[0]);
    expect_send_error(s.sends, dci, index[1], REMOTE_ACCESS_ERR);
    expect_send_error(s.sends, dci, index[2], WR_FLUSH_ERR);
    expect_sent(s.sends, dci, index[3]);
    expect_send_error(s.sends, dci, index[4], WR_FLUSH_ERR);
    expect_sent(s.sends, dci, index[5]);
    expect_sent(s.sends, dci, index[6]);
    expect_send_error(s.sends, dci, index[7], REMOTE_ACCESS_ERR);
    expect_none(s.sends);
    assert_int_equal(count_there(&s), 4);
    assert_int_equal(dci->qp->state, STATE_RTS);

    assert_true(streams_reset(dci->qp, 9));
    assert_false(streams_reset(dci->qp, 9));
    assert_false(streams_reset(dci->qp, 8)); /* has not failed */
    index[0] = add_in(&s, dci, 9, SIGNALLED);
    index[1] = add_in(&s, dci, 65535, SIGNALLED);
    expect_sent(s.sends, dci, index[0]);
    expect_send_error(s.sends, dci, index[1], WR_FLUSH_ERR);
    assert_int_equal(count_there(&s), 5);
    rig_delete(s.rig);
}

/* So many that have failed at once take the DCI with them; one that fails again, or after it was
 * reset, is not one more. */
static void test_streams_too_many(void **state)
{
    struct scene s;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_streams(&s, 1);
    for (uint16_t stream = 0; stream < 5; stream++) {
        fail_in(&s, dci, stream);
        expect(s.sends, MLX5_CQE_REQ_ERR);
        fail_in(&s, dci, stream); /* flushed */
        expect(s.sends, MLX5_CQE_REQ_ERR);
        assert_int_equal(dci->qp->state, STATE_RTS);
        assert_true(streams_reset(dci->qp, stream));
    }
    uint16_t first = fail_in(&s, dci, 3), second = fail_in(&s, dci, 4);
    uint16_t third = add_in(&s, dci, 5, SIGNALLED);
    expect_send_error(s.sends, dci, first, REMOTE_ACCESS_ERR);
    expect_send_error(s.sends, dci, second, REMOTE_ACCESS_ERR);
    expect_send_error(s.sends, dci, third, WR_FLUSH_ERR);
    assert_int_equal(dci->qp->state, STATE_ERR);
    assert_int_equal(count_there(&s), 0);

    qp_set_state(&s.rig->nic, dci->qp, STATE_RESET);
    dci->sent = 0;
    dci->record[1] = 0;
    start(dci);
    expect_sent(s.sends, dci, add_in(&s, dci, 3, SIGNALLED)); /* all begin anew */
    expect_sent(s.sends, dci, add_in(&s, dci, 4, SIGNALLED));
    rig_delete(s.rig);
}

/* Errors of all kinds: here, there, of silence, of a receiver that is not ready. A malformed
 * request is the DCI's own. */
static void test_streams_errors(void **state)
{
    struct scene s;
    struct rig_wqe wqe;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_streams(&s, 3);
    dci->qp->attributes.timeout = 8;
    dci->qp->attributes.retry_count = dci->qp->retries_left = 1;
    dci->qp->attributes.rnr_retry_count = dci->qp->rnr_left = 0;
    prepare_write(&s, &wqe, 1, 1024);
    rig_wqe_data(&wqe, (uintptr_t)s.near.bytes, 1024, s.near.key ^ 0xff); /* its second packet */
    expect_send_error(s.sends, dci, rig_send(dci, &wqe), LOCAL_PROT_ERR);

    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    wqe.stream = 2;
    address(&s, &wqe);
    expect_send_error(s.sends, dci, rig_send(dci, &wqe), RNR_RETRY_EXC_ERR);

    uint32_t number = s.target->qp->number;
    s.target->qp->number += 1000; /* nobody there */
    uint16_t lost = write_in(&s, dci, 3), lost_too = add_in(&s, dci, 3, 0);
    s.target->qp->number = number;
    uint16_t after = add_in(&s, dci, 4, SIGNALLED);
    expect_none(s.sends); /* streams take turns */
    rig_pass(s.rig, 200 * MS);
    expect_send_error(s.sends, dci, lost, TRANSPORT_RETRY_EXC_ERR);
    expect_send_error(s.sends, dci, lost_too, WR_FLUSH_ERR);
    expect_sent(s.sends, dci, after);
    assert_int_equal(count_there(&s), 1);
    assert_int_equal(dci->qp->state, STATE_RTS);

    prepare_write(&s, &wqe, 5, 64);
    wqe.opcode = 0x77;
    expect_send_error(s.sends, dci, rig_send(dci, &wqe), LOCAL_QP_OP_ERR);
    assert_int_equal(dci->qp->state, STATE_ERR);
    rig_delete(s.rig);
}

/* Streams in turns, some of which fail and are reset, while packets are lost: each request that
 * completes was executed once, and no other one was. */
static void test_streams_lossy(void **state)
{
    struct scene s;
    uint64_t done = 0, flushed = 0;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_streams(&s, 4);
    rig_fault(s.rig, "lose=0.1,duplicate=0.1,delay=0.1:5000,seed=9");
    for (uint32_t i = 0; i < 300; i++) {
        uint16_t stream = (uint16_t)(i % 7);
        uint32_t due = 4;
        if (i % 5 == 0) {
            fail_in(&s, dci, stream);
        } else {
            add_in(&s, dci, stream, SIGNALLED);
        }
        add_in(&s, dci, stream, SIGNALLED);
        add_in(&s, dci, (uint16_t)(stream + 1), SIGNALLED);
        add_in(&s, dci, (uint16_t)(stream + 1), SIGNALLED);
        for (int waits = 0; due; waits++) {
            struct mlx5_cqe64 cqe;
            assert_true(waits < 100000);
            if (!rig_poll(s.sends, &cqe)) {
                rig_pass(s.rig, MS);
                continue;
            }
            due--;
            if (cqe.op_own >> 4 == MLX5_CQE_REQ) {
                done++;
            } else {
                flushed++;
            }
        }
        assert_int_equal(dci->qp->state, STATE_RTS);
        assert_int_equal(count_there(&s), done);
        assert_int_equal(streams_reset(dci->qp, stream), i % 5 == 0);
    }
    assert_int_equal(flushed, 2 * 60);
    rig_delete(s.rig);
}

/* Whatever happens to a target, nobody is told by an event: the kernel keeps them. */
static void test_no_events(void **state)
{
    struct scene s;
    (void)state;
    set_up(&s);
    struct rig_qp *dci = new_initiator(&s);
    fail_in(&s, dci, 0);
    expect(s.sends, MLX5_CQE_REQ_ERR);
    rig_run(s.rig);
    qp_fail(&s.rig->nic, s.target->qp);
    cq_overrun(&s.rig->nic, s.receives->cq);
    rig_run(s.rig);
    assert_int_equal(rig_events(s.rig, EVENT_QP_FATAL), 0);
    assert_int_equal(rig_events(s.rig, EVENT_QP_ACCESS_ERR), 0);
    assert_int_equal(rig_events(s.rig, EVENT_QP_LAST_WQE_REACHED), 0);
    assert_int_equal(rig_events(s.rig, EVENT_CQ_ERR), 1);
    rig_delete(s.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),           cmocka_unit_test(test_half_message),
        cmocka_unit_test(test_full),           cmocka_unit_test(test_strange_packets),
        cmocka_unit_test(test_streams_apart),  cmocka_unit_test(test_streams_too_many),
        cmocka_unit_test(test_streams_errors), cmocka_unit_test(test_streams_lossy),
        cmocka_unit_test(test_no_events),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("dc", tests, NULL, NULL);
}

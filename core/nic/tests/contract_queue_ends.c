/* contract_queue_ends.c: each op of a queue with user data completes once, whatever fails, and with
 * receives that several queues share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "queues.h"

static void make(struct queues *queues, enum nic_queue_table table)
{
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.table = table;
    queues_make(queues, &near, &far);
}

static void write_one(struct queues *queues, uint32_t flags, uint64_t user_data, uint32_t key)
{
    struct nic_work work = queues_work(queues, NIC_WRITE, flags, user_data);
    work.remote_key = key;
    queues_post(queues, &work, 0, 16);
}

/* What was open, in order and once each, with the status of a flush. */
static void expect_ended(struct nic_queue *queue, uint16_t opcode, uint64_t first, uint32_t count)
{
    crpc_completion done[3];
    uint32_t seen = 0, got;
    while ((got = nic_queue_take_ended(queue, done, 3)) > 0) {
        for (uint32_t i = 0; i < got; i++) {
            assert_int_equal(done[i].kind, NIC_COMPLETION_WORK);
            assert_int_equal(done[i].method, opcode);
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            assert_int_equal(done[i].user_data, first + seen++);
        }
    }
    assert_int_equal(seen, count);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* What comes before the bad one was done, and what comes after is flushed; the error names its op. */
void test_queue_remote_error(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_DENSE);
    uint32_t key = queues->target_keys.remote_key;
    for (uint32_t i = 0; i < 20; i++) {
        write_one(queues, 0, i, i == 11 ? key ^ 0x5500 : key);
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, 20);
    for (uint32_t i = 0; i < 20; i++) {
        const crpc_completion *done = &queues->near.done[i];
        assert_int_equal(done->user_data, i);
        assert_int_equal(done->method, NIC_WRITE);
        assert_int_equal(done->status, i < 11    ? CRPC_OK
                                       : i == 11 ? -NIC_ERROR_REMOTE_ACCESS
                                                 : -NIC_ERROR_FLUSHED);
    }
    assert_true(queues->near.done[11].flags & NIC_DONE_DETAIL);
    assert_true(queues->sender->failed);
    queues_expect_silence(&queues->near);
}

/* An op that nobody asked about is reported if it fails. */
void test_queue_sparse_error(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_SPARSE);
    uint32_t key = queues->target_keys.remote_key;
    for (uint32_t i = 0; i < 10; i++) {
        write_one(queues, i == 3 || i == 8 ? NIC_WORK_SIGNAL : 0, i, i == 6 ? key ^ 0x5500 : key);
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, 5); /* 3; and what failed or was flushed: 6, 7, 8, 9 */
    assert_int_equal(queues->near.done[0].user_data, 3);
    assert_int_equal(queues->near.done[0].status, CRPC_OK);
    for (uint32_t i = 1; i < 5; i++) {
        assert_int_equal(queues->near.done[i].user_data, 5 + i);
        assert_int_equal(queues->near.done[i].status,
                         i == 1 ? -NIC_ERROR_REMOTE_ACCESS : -NIC_ERROR_FLUSHED);
    }
    queues_expect_silence(&queues->near);
}

void test_queue_local_error(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_DENSE);
    struct nic_work work = queues_work(queues, NIC_WRITE, 0, 1);
    struct nic_piece piece =
        queues_near(queues, QUEUES_BYTES - 8, 16); /* half of it past the end */
    assert_true(queues_post_pieces(queues->sender, &work, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    assert_int_equal(queues->near.done[0].status, -NIC_ERROR_LOCAL);
    assert_int_equal(queues->near.done[0].user_data, 1);
}

/* Both sides hear of a message that its receive is too short for. */
void test_queue_long_message(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_DENSE);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 1);
    queues_receive(queues->receiver, queues, 40, 3, 64);
    queues_post(queues, &work, 0, 65);
    queues_ring(queues->sender);
    queues_wait(&queues->far, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(queues->far.done[i].user_data, 40 + i);
        assert_int_equal(queues->far.done[i].status, i ? -NIC_ERROR_FLUSHED : -NIC_ERROR_LENGTH);
    }
    queues_wait(&queues->near, 1);
    /* rxe calls it an error of operation, and not an invalid request as others do. */
    assert_true(queues->near.done[0].status == -NIC_ERROR_REMOTE_ACCESS ||
                queues->near.done[0].status == -NIC_ERROR_OTHER);
    assert_true(queues->sender->failed && queues->receiver->failed);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void test_queue_flush(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_DENSE);
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    queues_receive(queues->sender, queues, 70, 5, 64);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 0); /* the peer has no receive */
    for (uint32_t i = 0; i < 8; i++) {
        work.user_data = i;
        queues_post(queues, &work, 0, 16);
        if (i == 5) {
            queues_ring(queues->sender);
        }
    }
    operations->flush(queues->sender);
    queues_wait(&queues->near, 13);
    uint32_t sends = 0, receives = 0;
    for (uint32_t i = 0; i < 13; i++) {
        const crpc_completion *done = &queues->near.done[i];
        assert_int_equal(done->status, -NIC_ERROR_FLUSHED);
        assert_int_equal(done->user_data, done->method == NIC_RECEIVE ? 70 + receives : sends);
        *(done->method == NIC_RECEIVE ? &receives : &sends) += 1;
    }
    assert_int_equal(sends, 8);
    queues_expect_silence(&queues->near);
    operations->stop(queues->sender);
    expect_ended(queues->sender, NIC_SEND, 0, 0);
}

/* Nothing is polled of a queue that was stopped; what was open is told by nic_queue_take_ended. */
void test_queue_stop(void **state)
{
    struct queues *queues = *state;
    make(queues, NIC_TABLE_DENSE);
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    struct nic_work work = queues_work(queues, NIC_WRITE, 0, 0);
    for (uint32_t i = 0; i < 10; i++) { /* these are done, and have CQEs */
        work.user_data = i;
        queues_post(queues, &work, 0, 16);
        queues_ring(queues->sender);
    }
    queues_expect_silence(&queues->far);
    work = queues_work(queues, NIC_SEND, 0, 0); /* these wait for a receive */
    for (uint32_t i = 10; i < 20; i++) {
        work.user_data = i;
        queues_post(queues, &work, 0, 16);
    }
    operations->stop(queues->sender);
    queues_expect_silence(&queues->near);
    crpc_completion done[32];
    assert_int_equal(nic_queue_take_ended(queues->sender, done, 32), 20);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(done[i].user_data, i);
        assert_int_equal(done[i].method, i < 10 ? NIC_WRITE : NIC_SEND);
        assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
    }
    assert_int_equal(nic_queue_take_ended(queues->sender, done, 32), 0);
    /* Receives that nothing has taken. */
    queues_receive(queues->receiver, queues, 30, 7, 64);
    operations->stop(queues->receiver);
    queues_expect_silence(&queues->far);
    expect_ended(queues->receiver, NIC_RECEIVE, 30, 7);
}

/* Before it is connected, a queue may have receives. */
void test_queue_unconnected(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = queues_options();
    struct nic_queue *queue = queues_create(queues->far.nic, &options);
    queues_receive(queue, queues, 5, 4, 64);
    queue->nic->operations->queues->stop(queue);
    expect_ended(queue, NIC_RECEIVE, 5, 4);
    queue->nic->operations->queues->destroy(queue);
    /* And they are there when it is. */
    make(queues, NIC_TABLE_DENSE);
    queues_end(queues->receiver);
    queues_end(queues->sender);
    queues->sender = queues_create(queues->near.nic, &options);
    queues->receiver = queues_create(queues->far.nic, &options);
    queues_receive(queues->receiver, queues, 1, 1, 64);
    queues_connect(queues->sender, queues->receiver);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 0);
    queues_post(queues, &work, 0, 16);
    queues_ring(queues->sender);
    queues_wait(&queues->far, 1);
    assert_int_equal(queues->far.done[0].user_data, 1);
    assert_int_equal(queues->far.done[0].payload_bytes, 16);
}

/* ---- Shared receives ------------------------------------------------------------------------- */

#define LINKS 3u

struct shared {
    struct nic_queue *srq;
    struct nic_queue *near[LINKS];
    struct nic_queue *far[LINKS];
};

static void make_link(struct queues *queues, struct shared *shared, uint32_t i)
{
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.receives = near.receive_pieces = 0;
    far.receives = far.receive_pieces = 0;
    far.receive_queue = shared->srq;
    far.handle = 100 + i;
    far.user_data = 200 + i;
    shared->near[i] = queues_create(queues->near.nic, &near);
    shared->far[i] = queues_create(queues->far.nic, &far);
    queues_connect(shared->near[i], shared->far[i]);
}

static void make_shared(struct queues *queues, struct shared *shared)
{
    struct nic_queue_options options = queues_options();
    options.kind = NIC_QUEUE_SRQ;
    options.sends = options.send_pieces = options.inline_bytes = 0;
    shared->srq = queues_create(queues->far.nic, &options);
    for (uint32_t i = 0; i < LINKS; i++) {
        make_link(queues, shared, i);
    }
}

static void end_shared(struct shared *shared)
{
    for (uint32_t i = 0; i < LINKS; i++) {
        queues_end(shared->near[i]);
        queues_end(shared->far[i]);
    }
    assert_int_equal(shared->srq->users, 0);
    queues_end(shared->srq);
}

static void send_on(struct queues *queues, struct nic_queue *queue, uint32_t immediate)
{
    struct nic_work work = queues_work(queues, NIC_SEND_IMMEDIATE, NIC_WORK_INLINE, immediate);
    struct nic_piece piece = queues_near(queues, immediate % 1000, 8);
    work.immediate = immediate;
    assert_true(queues_post_pieces(queue, &work, &piece, 1));
    queues_ring(queue);
}

void test_queue_shared(void **state)
{
    struct queues *queues = *state;
    struct shared shared;
    uint64_t offered = 0;
    uint8_t seen[3000] = {0};
    make_shared(queues, &shared);
    for (uint32_t sent = 0; sent < 2000; sent++) {
        while (shared.srq->receives_open < 8) {
            queues_receive(shared.srq, queues, offered++, 1, 64);
        }
        send_on(queues, shared.near[sent % LINKS], sent);
        queues->far.count = queues->near.count = 0;
        queues_wait(&queues->far, 1);
        queues_wait(&queues->near, 1);
        const crpc_completion *done = &queues->far.done[0];
        assert_int_equal(done->endpoint.bits, 100 + sent % LINKS);
        assert_int_equal(done->endpoint_user_data, 200 + sent % LINKS);
        assert_int_equal(done->reply_bytes_max, sent);
        assert_true(done->user_data < offered);
        assert_int_equal(seen[done->user_data]++, 0);
        assert_memory_equal(queues->target + done->user_data % 64 * 4096,
                            queues->source + sent % 1000, 8);
    }
    end_shared(&shared);
}

/* Receives that messages over a queue have taken complete once, although the queue is stopped before
 * anybody has polled; their places can be used again. */
void test_queue_shared_stop(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_operations *operations = queues->far.nic->operations->queues;
    struct shared shared;
    make_shared(queues, &shared);
    for (uint32_t round = 0; round < 20; round++) {
        queues->far.count = queues->near.count = 0;
        uint32_t open = shared.srq->receives_open;
        queues_receive(shared.srq, queues, 100 * round, shared.srq->receives_max - open, 64);
        assert_int_equal(shared.srq->receives_open, shared.srq->receives_max);
        for (uint32_t i = 0; i < 6; i++) {
            send_on(queues, shared.near[i % 2], i);
        }
        queues_wait(&queues->near, 6); /* so they have arrived */
        operations->stop(shared.far[0]);
        crpc_completion done[16];
        assert_int_equal(nic_queue_take_ended(shared.far[0], done, 16), 0);
        uint32_t ended = nic_queue_take_ended(shared.srq, done, 16);
        queues_wait(&queues->far, 3); /* of the other */
        assert_int_equal(ended, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            assert_int_equal(done[i].method, NIC_RECEIVE);
            assert_int_equal(queues->far.done[i].status, CRPC_OK);
            for (uint32_t k = 0; k < 3; k++) {
                assert_int_not_equal(done[i].user_data, queues->far.done[k].user_data);
                assert_true(i == k || done[i].user_data != done[k].user_data);
            }
        }
        assert_int_equal(shared.srq->receives_open, shared.srq->receives_max - 6);
        queues_end(shared.far[0]);
        queues_end(shared.near[0]);
        make_link(queues, &shared, 0);
    }
    end_shared(&shared);
}

/* What was posted to an SRQ and not rung is the device's no more. Builds without asserts leave it out. */
void test_queue_stopped_ring(void **state)
{
    struct queues *queues = *state;
    struct shared shared;
    int status;
    make_shared(queues, &shared);
    queues_receive(shared.srq, queues, 0, 3, 64);
    for (uint32_t i = 0; i < LINKS; i++) {
        queues_end(shared.near[i]);
        queues_end(shared.far[i]);
    }
    queues->far.nic->operations->queues->stop(shared.srq);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failure */
        fclose(stderr);
        queues->far.nic->operations->queues->ring(shared.srq);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    queues_end(shared.srq);
}

/* One queue pair fails, and the SRQ goes on. */
void test_queue_shared_error(void **state)
{
    struct queues *queues = *state;
    struct shared shared;
    make_shared(queues, &shared);
    queues_receive(shared.srq, queues, 0, 10, 4);
    send_on(queues, shared.near[0], 1); /* 8 bytes: too long */
    queues_wait(&queues->far, 1);
    assert_int_equal(queues->far.done[0].status, -NIC_ERROR_LENGTH);
    assert_int_equal(queues->far.done[0].endpoint.bits, 100);
    assert_true(shared.far[0]->failed && !shared.far[1]->failed && !shared.srq->failed);
    queues_wait(&queues->near, 1);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 7);
    struct nic_piece piece = queues_near(queues, 0, 4);
    assert_true(queues_post_pieces(shared.near[1], &work, &piece, 1));
    queues_ring(shared.near[1]);
    queues_wait(&queues->far, 2);
    assert_int_equal(queues->far.done[1].status, CRPC_OK);
    assert_int_equal(queues->far.done[1].endpoint.bits, 101);
    end_shared(&shared);
}

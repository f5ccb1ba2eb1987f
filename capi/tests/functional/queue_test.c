/* queue_test.c: RC queues and SRQs over a device, in one process: one context listens, another connects: by
 * rdma_cm with private data, by blobs, and by addresses. Each opcode, errors of both sides, and the ends of
 * queues.
 */
#include <string.h>
#include <time.h>

#include "leave_out.h"
#include "place.h"
#include "queues.h"

/* ---- Ops ------------------------------------------------------------------------------------- */

static void one_sided_ops(void)
{
    one(&here, CRPC_QUEUE_WRITE, 1, 1000, 5000);
    await_work(&here, CRPC_QUEUE_WRITE, 1, CRPC_OK);
    assert_memory_equal(there.memory + 1000, here.memory + 1000, 5000);
    memset(there.memory + 10000, 77, 3000);
    one(&here, CRPC_QUEUE_READ, 2, 10000, 3000);
    crpc_completion done = await_work(&here, CRPC_QUEUE_READ, 2, CRPC_OK);
    assert_true(done.flags & CRPC_COMPLETION_DETAIL);
    assert_int_equal(done.payload_bytes, 3000);
    assert_memory_equal(there.memory + 10000, here.memory + 10000, 3000);
    crpc_queue_op op = op_of(&here, CRPC_QUEUE_WRITE, 3, 0, 0);
    op.flags = CRPC_QUEUE_INLINE | CRPC_QUEUE_FENCE;
    op.region.bits = 0;
    op.address = address_of("copied at once");
    op.bytes = 15;
    submit(&here, &op, 1);
    await_work(&here, CRPC_QUEUE_WRITE, 3, CRPC_OK);
    assert_string_equal((const char *)there.memory, "copied at once");
}

static void atomics(void)
{
    uint64_t *word = (uint64_t *)(void *)(there.memory + 64);
    crpc_queue_op ops[4] = {op_of(&here, CRPC_QUEUE_FETCH_ADD, 1, 64, 0),
                            op_of(&here, CRPC_QUEUE_COMPARE_SWAP, 2, 64, 0),
                            op_of(&here, CRPC_QUEUE_COMPARE_SWAP, 3, 64, 0),
                            op_of(&here, CRPC_QUEUE_NOP, 4, 0, 0)};
    *word = UINT64_C(0x100000000);
    ops[0].operand = 5;
    ops[1].address = UINT64_C(0x100000005);
    ops[1].operand = 9;
    ops[2].address = 77;
    ops[2].operand = 10;
    submit(&here, ops, 4);
    assert_true(await_work(&here, CRPC_QUEUE_FETCH_ADD, 1, CRPC_OK).token == UINT64_C(0x100000000));
    assert_true(await_work(&here, CRPC_QUEUE_COMPARE_SWAP, 2, CRPC_OK).token ==
                UINT64_C(0x100000005));
    assert_true(await_work(&here, CRPC_QUEUE_COMPARE_SWAP, 3, CRPC_OK).token == 9);
    await_work(&here, CRPC_QUEUE_NOP, 4, CRPC_OK);
    assert_true(*word == 9);
}

static void messages(struct side *from, struct side *to)
{
    int32_t reason;
    const crpc_piece pieces[2] = {{from->region, address_of(from->memory + 20000), 300, 0},
                                  {from->region, address_of(from->memory + 30000), 200, 0}};
    crpc_completion done;
    for (uint32_t i = 0; i < 4; i++) {
        one(to, CRPC_QUEUE_RECEIVE, 10 + i, 40000 + 1000 * i, 1000);
    }
    memset(to->memory + 40000, 0, 4000);
    crpc_queue_op ops[4] = {op_of(from, CRPC_QUEUE_SEND, 1, 20000, 700),
                            op_of(from, CRPC_QUEUE_SEND_IMMEDIATE, 2, 20000, 0),
                            op_of(from, CRPC_QUEUE_WRITE_IMMEDIATE, 3, 50000, 800),
                            {.opcode = CRPC_QUEUE_SEND,
                             .flags = CRPC_QUEUE_PIECES | CRPC_QUEUE_SOLICITED,
                             .user_data = 4,
                             .bytes = 2}};
    ops[1].immediate = 0x01020304;
    ops[2].immediate = 0xfffefdfc;
    assert_int_equal(crpc_queue_submit(from->context, from->queue, ops, 4, pieces, 2, &reason), 4);
    for (uint32_t i = 0; i < 4; i++) {
        await_work(from, ops[i].opcode, 1 + i, CRPC_OK);
    }
    done = await_work(to, CRPC_QUEUE_RECEIVE, 10, CRPC_OK);
    assert_int_equal(done.payload_bytes, 700);
    assert_int_equal(done.flags & CRPC_COMPLETION_IMMEDIATE, 0);
    assert_memory_equal(to->memory + 40000, from->memory + 20000, 700);
    done = await_work(to, CRPC_QUEUE_RECEIVE, 11, CRPC_OK);
    assert_int_equal(done.payload_bytes, 0);
    assert_int_equal(done.reply_bytes_max, 0x01020304);
    done = await_work(to, CRPC_QUEUE_RECEIVE, 12, CRPC_OK);
    assert_true(done.flags & CRPC_COMPLETION_IMMEDIATE);
    assert_int_equal(done.reply_bytes_max, 0xfffefdfc);
    assert_memory_equal(to->memory + 50000, from->memory + 50000, 800);
    done = await_work(to, CRPC_QUEUE_RECEIVE, 13, CRPC_OK);
    assert_int_equal(done.payload_bytes, 500);
    assert_int_equal(done.endpoint.bits, to->queue.bits);
    assert_memory_equal(to->memory + 43000, from->memory + 20000, 300);
    assert_memory_equal(to->memory + 43300, from->memory + 30000, 200);
}

static void all_ops(void)
{
    one_sided_ops();
    atomics();
    messages(&here, &there);
    messages(&there, &here);
}

/* ---- Ways to connect ------------------------------------------------------------------------- */

static void by_rdma_cm_with_private_data(void **state)
{
    (void)state;
    crpc_queue_options ours = queues_options(), theirs = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    for (uint32_t i = 0; i < 196; i++) {
        ours.private_data[i] = i < 56 ? (uint8_t)(i + 1) : 0;
        theirs.private_data[i] = (uint8_t)(i + 100);
    }
    ours.private_bytes = 56;
    theirs.private_bytes = 196;
    need(crpc_queue_connect(here.context, queues_address, &ours, &here.queue, &error), &error);
    crpc_completion request = await(&there, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(request.flags, CRPC_COMPLETION_OF_QUEUE);
    there.queue.bits = request.endpoint.bits;
    crpc_queue_info info = info_of(&there);
    assert_int_equal(info.state, CRPC_STATE_REQUESTED);
    assert_true(info.private_bytes >= 56);
    assert_memory_equal(info.private_data, ours.private_data, 56);
    int32_t reason;
    const crpc_queue_op early = op_of(&there, CRPC_QUEUE_RECEIVE, 1, 0, 64);
    assert_int_equal(crpc_queue_submit(there.context, there.queue, &early, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_STATE);
    need(crpc_queue_accept(there.context, there.queue, &theirs, &error), &error);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    info = info_of(&here);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_true(info.private_bytes >= 196);
    assert_memory_equal(info.private_data, theirs.private_data, 196);
    assert_string_equal(info.peer_address, queues_address);
    assert_int_equal(info.peer_number, info_of(&there).queue_pair_number);
    assert_int_equal(info_of(&there).peer_number, info.queue_pair_number);
    all_ops();
    close_queues();
}

static void a_rejected_peer_gets_private_data(void **state)
{
    (void)state;
    const crpc_queue_options options = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    need(crpc_queue_connect(here.context, queues_address, &options, &here.queue, &error), &error);
    there.queue.bits = await(&there, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
    assert_int_equal(crpc_queue_reject(there.context, there.queue, "not today", 10), CRPC_OK);
    assert_int_equal(crpc_queue_reject(there.context, there.queue, "", 0), CRPC_E_STALE);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_E_REFUSED);
    crpc_queue_info info = info_of(&here);
    assert_true(info.private_bytes >= 10);
    assert_string_equal((const char *)info.private_data, "not today");
    assert_int_equal(crpc_queue_close(here.context, here.queue), CRPC_OK);
    /* Closing a request rejects it, too. */
    need(crpc_queue_connect(here.context, queues_address, &options, &here.queue, &error), &error);
    there.queue.bits = await(&there, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
    assert_int_equal(crpc_queue_close(there.context, there.queue), CRPC_OK);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_E_REFUSED);
    assert_int_equal(crpc_queue_close(here.context, here.queue), CRPC_OK);
}

static void by_blobs(void **state)
{
    (void)state;
    const crpc_queue_options options = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    need(crpc_queue_blob(here.context, &options, &here.queue, blobs[0], &bytes[0], &error), &error);
    need(crpc_queue_blob(there.context, &options, &there.queue, blobs[1], &bytes[1], &error),
         &error);
    need(crpc_queue_join(here.context, here.queue, blobs[1], bytes[1], &error), &error);
    need(crpc_queue_join(there.context, there.queue, blobs[0], bytes[0], &error), &error);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    all_ops();
    close_queues();
}

static void by_addresses(void **state)
{
    (void)state;
    crpc_queue_options options = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_address addresses[2];
    struct side *const sides[2] = {&here, &there};
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t unused[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(unused);
        options.flags |= i == 1 ? CRPC_QUEUE_SEQUENCE_ZERO : 0;
        addresses[i].struct_size = sizeof(addresses[i]);
        need(crpc_queue_blob(sides[i]->context, &options, &sides[i]->queue, unused, &bytes, &error),
             &error);
        assert_int_equal(crpc_queue_get_address(sides[i]->context, sides[i]->queue, &addresses[i]),
                         CRPC_OK);
        assert_int_equal(addresses[i].queue_pair_number, info_of(sides[i]).queue_pair_number);
    }
    assert_int_equal(addresses[1].packet_sequence_number, 0);
    crpc_queue_address wrong = addresses[1];
    wrong.queue_pair_number = 0;
    assert_int_equal(crpc_queue_join_address(here.context, here.queue, &wrong, &error),
                     CRPC_E_PROTOCOL);
    wrong = addresses[1];
    wrong.mtu_bytes = 1500;
    assert_int_equal(crpc_queue_join_address(here.context, here.queue, &wrong, &error),
                     CRPC_E_PROTOCOL);
    for (uint32_t i = 0; i < 2; i++) {
        need(crpc_queue_join_address(sides[i]->context, sides[i]->queue, &addresses[!i], &error),
             &error);
    }
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    all_ops();
    close_queues();
}

static void an_srq_for_two(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 64};
    crpc_queue_options theirs = queues_options();
    const crpc_queue_options ours = queues_options();
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue near[2], far[2], srq;
    need(crpc_queue_open(there.context, &shared, &srq, &error), &error);
    theirs.receives = theirs.receive_pieces = 0;
    theirs.receive_queue = srq;
    for (uint32_t i = 0; i < 2; i++) {
        theirs.user_data = 500 + i;
        connect_with(&ours, &theirs);
        near[i] = here.queue;
        far[i] = there.queue;
    }
    there.queue = srq;
    for (uint32_t i = 0; i < 20; i++) {
        one(&there, CRPC_QUEUE_RECEIVE, 1000 + i, i * 100, 100);
    }
    for (uint32_t i = 0; i < 20; i++) {
        here.queue = near[i % 2];
        one(&here, CRPC_QUEUE_SEND, i, 0, 1 + i);
        await_work(&here, CRPC_QUEUE_SEND, i, CRPC_OK);
        crpc_completion done = await_work(&there, CRPC_QUEUE_RECEIVE, 1000 + i, CRPC_OK);
        assert_int_equal(done.endpoint.bits, far[i % 2].bits);
        assert_int_equal(done.endpoint_user_data, 500 + i % 2);
        assert_int_equal(done.payload_bytes, 1 + i);
    }
    one(&there, CRPC_QUEUE_RECEIVE, 7, 0, 100);
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_close(there.context, far[0]), CRPC_OK);
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_close(there.context, far[1]), CRPC_OK);
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_OK);
    await_work(&there, CRPC_QUEUE_RECEIVE, 7, CRPC_E_CLOSED);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Ops behind the one that failed are flushed, and DISCONNECTED is last. */
static void expect_end(struct side *side, int32_t cause, uint8_t opcode, uint32_t flushed)
{
    crpc_error error = {.struct_size = sizeof(error)};
    await_work(side, opcode, 0, cause);
    for (uint32_t i = 0; i < flushed; i++) {
        await_work(side, opcode, 1 + i, CRPC_E_FLUSHED);
    }
    crpc_completion gone = await(side, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(gone.flags, CRPC_COMPLETION_OF_QUEUE);
    assert_int_equal(gone.endpoint.bits, side->queue.bits);
    /* A peer that hears of the error may have disconnected before this side looked. */
    assert_true(gone.status == cause || (side == &there && gone.status == CRPC_E_DISCONNECTED));
    assert_int_equal(crpc_queue_get_error(side->context, side->queue, &error), CRPC_OK);
    assert_int_equal(error.status, gone.status);
    assert_int_equal(info_of(side).state, CRPC_STATE_DISCONNECTED);
}

static void the_peer_refuses_what_it_has_not_opened(void **state)
{
    (void)state;
    static const uint8_t opcodes[] = {CRPC_QUEUE_WRITE, CRPC_QUEUE_READ};
    for (uint32_t round = 0; round < 4; round++) {
        crpc_queue_op ops[5];
        connect_both();
        for (uint32_t i = 0; i < 5; i++) {
            ops[i] = op_of(&here, opcodes[round % 2], i, 0, 64);
        }
        if (round < 2) {
            ops[0].remote_key ^= 0x5a5a00;
        } else {
            ops[0].remote_address += QUEUES_BYTES - 63; /* one byte too many */
        }
        submit(&here, ops, 5);
        expect_end(&here, CRPC_E_ACCESS, opcodes[round % 2], 4);
        await(&there, CRPC_COMPLETION_DISCONNECTED);
        close_queues();
    }
    connect_both();
    all_ops();
    close_queues();
}

/* A region is not what a peer can invalidate: it only ends its own queue. */
static void a_peer_cannot_invalidate_a_region(void **state)
{
    (void)state;
    connect_both();
    one(&there, CRPC_QUEUE_RECEIVE, 0, 0, 100);
    crpc_queue_op op = op_of(&here, CRPC_QUEUE_SEND_INVALIDATE, 0, 0, 10);
    op.immediate = there.remote_key;
    submit(&here, &op, 1);
    assert_true(await(&here, CRPC_COMPLETION_WORK).status < 0);
    await(&here, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(await(&there, CRPC_COMPLETION_WORK).status, CRPC_E_DEVICE);
    await(&there, CRPC_COMPLETION_DISCONNECTED);
    close_queues();
    connect_both();
    all_ops();
    close_queues();
}

static void a_message_longer_than_the_receive(void **state)
{
    (void)state;
    connect_both();
    one(&there, CRPC_QUEUE_RECEIVE, 0, 0, 100);
    one(&there, CRPC_QUEUE_RECEIVE, 1, 0, 100);
    one(&here, CRPC_QUEUE_SEND, 0, 0, 101);
    expect_end(&there, CRPC_E_TRUNCATED, CRPC_QUEUE_RECEIVE, 1);
    crpc_completion done = await(&here, CRPC_COMPLETION_WORK);
    assert_true(done.status < 0);
    await(&here, CRPC_COMPLETION_DISCONNECTED);
    close_queues();
}

static void a_peer_without_receives(void **state)
{
    (void)state;
    crpc_queue_options ours = queues_options();
    const crpc_queue_options theirs = queues_options();
    ours.not_ready_retry_count = 2;
    connect_with(&ours, &theirs);
    one(&here, CRPC_QUEUE_SEND, 0, 0, 100);
    one(&here, CRPC_QUEUE_SEND, 1, 0, 100);
    expect_end(&here, CRPC_E_NOT_READY, CRPC_QUEUE_SEND, 1);
    close_queues();
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Each op completes once, whatever has become of it. */
static void expect_each_once(struct side *side, uint32_t sends, uint32_t receives)
{
    uint8_t seen[2][256] = {{0}};
    for (uint32_t i = 0; i < sends + receives; i++) {
        crpc_completion done = await(side, CRPC_COMPLETION_WORK);
        bool receive = done.method == CRPC_QUEUE_RECEIVE;
        assert_true(done.user_data < (receive ? receives : sends));
        assert_int_equal(seen[receive][done.user_data]++, 0);
        assert_true(done.status == CRPC_OK || done.status == CRPC_E_CLOSED ||
                    done.status == CRPC_E_FLUSHED || done.status == CRPC_E_DISCONNECTED ||
                    done.status == CRPC_E_ACCESS || done.status == CRPC_E_DEVICE);
    }
    for (int i = 0; i < 1000; i++) {
        pump(side);
    }
    crpc_completion more;
    assert_false(take_kept(side, CRPC_COMPLETION_WORK, &more));
}

static void fill_both(uint32_t sends, uint32_t receives)
{
    for (uint32_t i = 0; i < receives; i++) {
        one(&here, CRPC_QUEUE_RECEIVE, i, 60000, 100);
        one(&there, CRPC_QUEUE_RECEIVE, i, 60000, 100);
    }
    for (uint32_t i = 0; i < sends; i++) {
        one(&here, CRPC_QUEUE_WRITE, i, 0, 2000);
        one(&there, CRPC_QUEUE_READ, i, 2000, 2000);
    }
}

static void closed_with_ops_open(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        connect_both();
        fill_both(40, 30);
        for (uint32_t i = 0; i < round; i++) {
            pump(&here);
        }
        assert_int_equal(crpc_queue_close(here.context, here.queue), CRPC_OK);
        expect_each_once(&here, 40, 30);
        expect_each_once(&there, 40, 30);
        await(&there, CRPC_COMPLETION_DISCONNECTED);
        assert_int_equal(crpc_queue_close(there.context, there.queue), CRPC_OK);
        assert_int_equal(here.kept_count + there.kept_count, 0);
    }
}

static void failed_and_drained_with_ops_open(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        connect_both();
        fill_both(40, 30);
        if (round % 2 == 0) {
            assert_int_equal(crpc_queue_fail(here.context, here.queue), CRPC_OK);
        } else {
            assert_int_equal(crpc_queue_drain(here.context, here.queue, CRPC_FOREVER), CRPC_OK);
        }
        expect_each_once(&here, 40, 30);
        expect_each_once(&there, 40, 30);
        assert_int_equal(await(&here, CRPC_COMPLETION_DISCONNECTED).status,
                         round % 2 == 0 ? CRPC_E_DISCONNECTED : CRPC_OK);
        await(&there, CRPC_COMPLETION_DISCONNECTED);
        close_queues();
    }
}

/* queues_close finds nothing in the way. */
static void a_context_closed_with_ops_open(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 64};
    crpc_queue_options ours = queues_options();
    const crpc_queue_options theirs = queues_options();
    crpc_queue srq;
    connect_both();
    fill_both(40, 30);
    assert_int_equal(crpc_queue_open(here.context, &shared, &srq, NULL), CRPC_OK);
    ours.receives = ours.receive_pieces = 0;
    ours.receive_queue = srq;
    connect_with(&ours, &theirs);
    here.queue = srq;
    one(&here, CRPC_QUEUE_RECEIVE, 1, 0, 100);
}

/* ---- Many ops -------------------------------------------------------------------------------- */

/* The rings go round many times, with what fits each time; order and user data are right. */
static void a_long_stream(void **state)
{
    (void)state;
    enum { COUNT = 20000, ARRAY = 100 };
    static crpc_queue_op ops[ARRAY];
    uint64_t next[2] = {0, 0}, done[2] = {0, 0}; /* sends here, receives there */
    const time_t end = time(NULL) + QUEUES_SECONDS_MAX;
    connect_both();
    while (done[0] < COUNT || done[1] < COUNT) {
        assert_true(time(NULL) < end);
        for (uint32_t side = 2; side-- > 0;) {
            struct side *const submitter = side ? &there : &here;
            uint32_t count = 0;
            for (; count < ARRAY && next[side] + count < COUNT; count++) {
                const uint64_t number = next[side] + count;
                /* No send without a receive: nothing is to be waited for. */
                if (!side && number >= next[1]) {
                    break;
                }
                ops[count] = op_of(submitter, side ? CRPC_QUEUE_RECEIVE : CRPC_QUEUE_SEND_IMMEDIATE,
                                   number, (uint32_t)(number % 500) * 100, side ? 100 : 64);
                ops[count].immediate = side ? 0 : (uint32_t)number;
            }
            int32_t taken =
                crpc_queue_submit(submitter->context, submitter->queue, ops, count, NULL, 0, NULL);
            assert_true(taken >= 0);
            next[side] += (uint32_t)taken;
            pump(submitter);
            for (uint32_t i = 0; i < submitter->kept_count; i++) {
                const crpc_completion *found = &submitter->kept[i];
                if (found->kind == CRPC_COMPLETION_WORK) {
                    assert_int_equal(found->status, CRPC_OK);
                    assert_true(found->user_data == done[side]);
                    assert_true(!side || found->reply_bytes_max == (uint32_t)done[side]);
                    done[side]++;
                }
            }
            submitter->kept_count = 0;
        }
    }
    close_queues();
}

static void a_sleeper_is_woken(void **state)
{
    (void)state;
    connect_both();
    for (uint32_t i = 0; i < 50; i++) {
        const time_t end = time(NULL) + QUEUES_SECONDS_MAX;
        one(&there, CRPC_QUEUE_RECEIVE, i, 0, 100);
        one(&here, CRPC_QUEUE_SEND, i, 0, 100);
        crpc_completion done;
        while (!take_kept(&there, CRPC_COMPLETION_WORK, &done)) {
            assert_true(time(NULL) < end);
            assert_int_equal(crpc_wait(there.context, UINT64_C(60000000000)), CRPC_OK);
            pump(&there);
        }
        assert_int_equal(done.user_data, i);
        await_work(&here, CRPC_QUEUE_SEND, i, CRPC_OK);
    }
    close_queues();
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, queues_open, queues_close)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(by_rdma_cm_with_private_data),
        OVER_DEVICE(a_rejected_peer_gets_private_data),
        OVER_DEVICE(by_blobs),
        OVER_DEVICE(by_addresses),
        OVER_DEVICE(an_srq_for_two),
        OVER_DEVICE(the_peer_refuses_what_it_has_not_opened),
        OVER_DEVICE(a_peer_cannot_invalidate_a_region),
        OVER_DEVICE(a_message_longer_than_the_receive),
        OVER_DEVICE(a_peer_without_receives),
        OVER_DEVICE(closed_with_ops_open),
        OVER_DEVICE(failed_and_drained_with_ops_open),
        OVER_DEVICE(a_context_closed_with_ops_open),
        OVER_DEVICE(a_long_stream),
        OVER_DEVICE(a_sleeper_is_woken),
    };
    if (strncmp(place_device(0), "rxe", 3) == 0) {
        LEAVE_OUT(tests, a_peer_cannot_invalidate_a_region, "Soft-RoCE invalidates any region");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

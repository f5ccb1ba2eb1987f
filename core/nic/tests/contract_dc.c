/* contract_dc.c: what every driver does with the dynamically connected transport, if its device has it: DCIs, DCTs,
 * and the targets of their ops. Streams are in contract_dc_streams.c. Where there is no DC, nic_vm_test.c leaves out all
 * but the first test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "contract.h"
#include "dc.h"

static void expect_sent(const crpc_completion *done, uint16_t opcode, uint64_t user_data)
{
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->method, opcode);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->endpoint.bits, DC_DCI_HANDLE);
    assert_int_equal(done->endpoint_user_data, 77);
}

static void expect_received(const crpc_completion *done, const struct nic_queue *from,
                            uint32_t bytes)
{
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->method, NIC_RECEIVE);
    assert_int_equal(done->payload_bytes, bytes);
    assert_int_equal(done->endpoint.bits, DC_DCT_HANDLE);
    assert_int_equal(done->endpoint_user_data, 88);
    assert_int_equal((uint32_t)done->token, from->pair->number);
    assert_true(done->flags & NIC_DONE_DETAIL);
    assert_true(done->flags & NIC_DONE_OF_DCT);
    assert_false(done->flags & NIC_DONE_GRH);
}

/* ---- What lacks DC --------------------------------------------------------------------------- */

/* It says so, and makes nothing. */
void test_dc_missing(void **state)
{
    struct queues *queues = *state;
    struct nic *nic = queues->near.nic;
    const struct nic_queue_operations *operations = nic->operations->queues;
    struct nic_queue_options initiator = dc_initiator(0);
    struct nic_queue *srq = dc_srq(nic);
    struct nic_queue_options dct = {.kind = NIC_QUEUE_DCT, .receive_queue = srq};
    struct nic_target_options options = {.kind = NIC_QUEUE_DCI};
    struct nic_queue *queue;
    struct nic_target *target;
    crpc_error error = {.struct_size = sizeof(error)};
    const bool missing = !nic->dc;
    assert_true(nic->dc || nic->streams_max == 0);
    nic->dc = false;
    assert_int_equal(operations->create(nic, NULL, &initiator, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no dynamically connected transport (DC)"));
    assert_non_null(strstr(error.message, nic->device));
    assert_int_equal(operations->create(nic, NULL, &dct, &queue, NULL), CRPC_E_UNSUPPORTED);
    assert_int_equal(operations->target_create(nic, NULL, &options, &target, NULL),
                     CRPC_E_UNSUPPORTED);
    assert_int_equal(srq->users, 0);
    nic->dc = !missing;
    queues_end(srq);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

/* Of all lengths, in all ways: a WRITE lands, and a message shows who has sent it. */
void test_dc_messages(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    const uint32_t sizes[] = {0, 1, 32, 100, 101, 5000};
    const uint8_t opcodes[] = {NIC_SEND, NIC_SEND_IMMEDIATE, NIC_WRITE, NIC_WRITE_IMMEDIATE};
    uint32_t count = 0, received = 0;
    for (uint32_t i = 0; i < 4 * 6; i++) {
        const uint8_t opcode = opcodes[i % 4];
        const uint32_t bytes = sizes[i / 4];
        const bool send = opcode == NIC_SEND || opcode == NIC_SEND_IMMEDIATE;
        for (uint32_t inlined = 0; inlined <= (bytes <= 100); inlined++) {
            struct nic_work work = queues_work(queues, opcode, inlined ? NIC_WORK_INLINE : 0, i);
            struct nic_piece piece = queues_near(queues, 3 + i, bytes);
            work.immediate =
                opcode == NIC_SEND_IMMEDIATE || opcode == NIC_WRITE_IMMEDIATE ? 0x0a0b0c00 + i : 0;
            work.remote_address += send ? 0 : 64 * DC_SLOT_BYTES;
            memset(queues->target, 0xaa, QUEUES_BYTES);
            if (opcode != NIC_WRITE) {
                dc_receive(&dc, i % 32, 1, 5000);
            }
            assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, bytes ? 1 : 0));
            queues_ring(queues->sender);
            queues_wait(&queues->near, count + 1);
            expect_sent(&queues->near.done[count++], opcode, i);
            const uint8_t *place = queues->target + (send ? i % 32 : 64) * DC_SLOT_BYTES;
            if (opcode != NIC_WRITE) {
                queues_wait(&queues->far, received + 1);
                const crpc_completion *done = &queues->far.done[received++];
                expect_received(done, queues->sender, send ? bytes : 0);
                assert_int_equal(done->user_data, i % 32);
                assert_int_equal(done->token >> 32, send ? 0 : bytes);
                assert_int_equal(done->flags & NIC_DONE_IMMEDIATE ? done->reply_bytes_max : 0,
                                 work.immediate);
            }
            assert_memory_equal(place, queues->source + 3 + i, bytes);
            assert_int_equal(place[bytes], 0xaa);
        }
    }
    dc_end(&dc);
}

/* Gathered from pieces, and scattered. */
void test_dc_pieces(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    for (uint32_t i = 0; i < 2; i++) {
        struct nic_piece near[QUEUES_PIECES] = {
            queues_near(queues, 100, 10), queues_near(queues, 0, 0), queues_near(queues, 5000, 33),
            queues_near(queues, 9, 20)};
        struct nic_piece far[2] = {queues_far(queues, 64, 30), queues_far(queues, 4096, 53)};
        struct nic_work work = queues_work(queues, NIC_SEND, i ? NIC_WORK_INLINE : 0, i);
        memset(queues->target, 0, DC_SLOT_BYTES);
        assert_true(dc.srq->nic->operations->queues->receive(dc.srq, i, far, 2));
        queues_ring(dc.srq);
        assert_true(queues_post_to(queues->sender, &work, dc.target, near, QUEUES_PIECES));
        queues_ring(queues->sender);
        queues_wait(&queues->near, i + 1);
        queues_wait(&queues->far, i + 1);
        expect_received(&queues->far.done[i], queues->sender, 63);
        assert_memory_equal(queues->target + 64, queues->source + 100, 10);
        assert_memory_equal(queues->target + 64 + 10, queues->source + 5000, 20);
        assert_memory_equal(queues->target + 4096, queues->source + 5020, 13);
        assert_memory_equal(queues->target + 4096 + 13, queues->source + 9, 20);
    }
    dc_end(&dc);
}

void test_dc_read_atomics(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_piece piece = queues_near(queues, 4096, 3000);
    struct nic_work work = queues_work(queues, NIC_READ, NIC_WORK_SIGNAL, 1);
    uint32_t expected = 1;
    for (uint32_t i = 0; i < 3000; i++) {
        queues->target[i] = (uint8_t)(i * 5);
    }
    assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->near, expected);
    expect_sent(&queues->near.done[0], NIC_READ, 1);
    assert_int_equal(queues->near.done[0].payload_bytes, 3000);
    assert_memory_equal(queues->source + 4096, queues->target, 3000);
    if (queues->near.nic->atomics) {
        uint64_t *word = (uint64_t *)(void *)queues->target;
        *word = 40;
        work = queues_work(queues, NIC_FETCH_ADD, 0, 2);
        work.operand = 2;
        assert_true(queues_post_to(queues->sender, &work, dc.target, NULL, 0));
        work = queues_work(queues, NIC_COMPARE_SWAP, NIC_WORK_FENCE, 3);
        work.address = 42;
        work.operand = 7;
        assert_true(queues_post_to(queues->sender, &work, dc.target, NULL, 0));
        queues_ring(queues->sender);
        expected += 2;
        queues_wait(&queues->near, expected);
        expect_sent(&queues->near.done[1], NIC_FETCH_ADD, 2);
        expect_sent(&queues->near.done[2], NIC_COMPARE_SWAP, 3);
        assert_int_equal(queues->near.done[1].token, 40);
        assert_int_equal(queues->near.done[2].token, 42);
        assert_int_equal(*word, 7);
    }
    work = queues_work(queues, NIC_NOP, 0, 4);
    assert_true(queues_post_to(queues->sender, &work, dc.target, NULL, 0));
    queues_ring(queues->sender);
    queues_wait(&queues->near, expected + 1);
    expect_sent(&queues->near.done[expected], NIC_NOP, 4);
    dc_end(&dc);
}

/* One array of ops to three targets, with two keys, of both nics. */
void test_dc_targets(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_queue *other = dc_dct(queues->far.nic, dc.srq, ~DC_KEY);
    struct nic_queue *near_srq = dc_srq(queues->near.nic);
    struct nic_queue *near_dct = dc_dct(queues->near.nic, near_srq, 0);
    struct nic_target *targets[3] = {dc.target, dc_target(queues->near.nic, other, ~DC_KEY),
                                     dc_target(queues->near.nic, near_dct, 0)};
    struct nic_target *names[30];
    struct nic_work works[30];
    uint32_t keys[30], seen[2] = {0};
    for (uint32_t i = 0; i < 10; i++) {
        struct nic_piece piece = queues_near(queues, 65536 + i * 64, 64);
        assert_true(near_srq->nic->operations->queues->receive(near_srq, 100 + i, &piece, 1));
    }
    queues_ring(near_srq);
    dc_receive(&dc, 0, 20, 64);
    for (uint32_t i = 0; i < 30; i++) {
        works[i] = queues_work(queues, NIC_SEND_IMMEDIATE, i % 2 ? NIC_WORK_INLINE : 0, i);
        works[i].immediate = i;
        works[i].address = (uint64_t)(uintptr_t)queues->source + i * 16;
        works[i].bytes = 16;
        keys[i] = queues->source_keys.local_key;
        names[i] = targets[i % 3];
    }
    assert_int_equal(
        queues->near.nic->operations->queues->post_to(queues->sender, works, names, keys, NULL, 30),
        30);
    queues_ring(queues->sender);
    queues_wait(&queues->far, 20);
    queues_wait(&queues->near, 40);
    for (uint32_t i = 0; i < 20; i++) {
        const crpc_completion *done = &queues->far.done[i];
        const uint32_t which = done->reply_bytes_max % 3;
        expect_received(done, queues->sender, 16);
        assert_int_equal(done->reply_bytes_max, which + 3 * seen[which]++);
        assert_memory_equal(queues->target + done->user_data * DC_SLOT_BYTES,
                            queues->source + done->reply_bytes_max * 16, 16);
    }
    assert_int_equal(seen[0], 10);
    dc_target_end(targets[1]);
    dc_target_end(targets[2]);
    queues_end(other);
    queues_end(near_dct);
    queues_end(near_srq);
    dc_end(&dc);
}

/* ---- Tables and room ------------------------------------------------------------------------- */

/* Only those with the flag complete, and there is room again all the same. */
void test_dc_sparse(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    options.table = NIC_TABLE_SPARSE;
    struct dc dc = dc_make(queues, &options);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < 400; i++) {
        while (nic_queue_send_room(queues->sender) < 16) {
            queues_poll(&queues->near);
            pair_pass(100);
        }
        dc_write(&dc, dc.target, 0, i % 7 == 0 ? NIC_WORK_SIGNAL : 0, i % 1024,
                 queues->target_keys.remote_key);
        expected += i % 7 == 0;
        if (i % 5 == 0) {
            queues_ring(queues->sender);
        }
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, expected);
    for (uint32_t i = 0; i < expected; i++) {
        expect_sent(&queues->near.done[i], NIC_WRITE, 7 * i);
    }
    queues_expect_silence(&queues->near);
    assert_memory_equal(queues->target, queues->source, 400 * 16);
    dc_end(&dc);
}

static void send_in_time(const struct dc *dc, const struct nic_work *work,
                         const struct nic_piece *piece)
{
    const uint64_t start = clock_now_ns();
    while (!queues_post_to(dc->queues->sender, work, dc->target, piece, piece ? 1 : 0)) {
        assert_true(clock_now_ns() - start < PAIR_WAIT_S * 1000000000ull);
        queues_poll(&dc->queues->near);
        pair_pass(100);
    }
    queues_ring(dc->queues->sender);
}

/* The longest op finds room behind short ones without the flag, wherever in the ring that is. */
void test_dc_sparse_room(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    options.table = NIC_TABLE_SPARSE;
    options.sends = options.send_pieces = 1;
    options.inline_bytes = 400;
    struct dc dc = dc_make(queues, &options);
    const struct nic_piece piece = queues_near(queues, 0, 400);
    const struct nic_work quiet = queues_work(queues, NIC_NOP, 0, 1);
    const struct nic_work told = queues_work(queues, NIC_NOP, NIC_WORK_SIGNAL, 2);
    const struct nic_work large =
        queues_work(queues, NIC_WRITE, NIC_WORK_SIGNAL | NIC_WORK_INLINE, 3);
    for (uint32_t lap = 0; lap < 64; lap++) {
        for (uint32_t i = 0; i < lap * 5 % 16; i++) {
            queues->near.count = 0;
            send_in_time(&dc, &told, NULL);
            queues_wait(&queues->near, 1);
        }
        queues->near.count = 0;
        for (uint32_t i = 0; i < 3; i++) {
            send_in_time(&dc, &quiet, NULL);
        }
        send_in_time(&dc, &large, &piece);
        queues_wait(&queues->near, 1);
        expect_sent(&queues->near.done[0], NIC_WRITE, 3);
    }
    assert_memory_equal(queues->target, queues->source, 400);
    dc_end(&dc);
}

/* There is room for what was asked, of the largest kind; and counters run over. */
void test_dc_room(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_piece pieces[QUEUES_PIECES];
    for (uint32_t k = 0; k < QUEUES_PIECES; k++) {
        pieces[k] = queues_near(queues, 64 * k, 25);
    }
    for (uint32_t round = 0; round < 700; round++) {
        const struct nic_work work =
            queues_work(queues, NIC_WRITE, round % 2 ? NIC_WORK_INLINE : 0, round);
        uint32_t posted = 0;
        while (posted < 200 &&
               queues_post_to(queues->sender, &work, dc.target, pieces, QUEUES_PIECES)) {
            posted++;
        }
        assert_in_range(posted, options.sends, 199);
        queues->near.count = 0;
        queues_ring(queues->sender);
        queues_wait(&queues->near, posted);
        assert_int_equal(queues->near.errors, 0);
    }
    dc_end(&dc);
}

/* As many as a queue can have, of the usual length, and fewer that are longer; half as many in streams, for which
 * some drivers need more. */
void test_dc_deep(void **state)
{
    static const uint32_t sends[] = {NIC_QUEUE_DEPTH_MAX, NIC_QUEUE_DEPTH_MAX / 2, 100};
    static const uint32_t lengths[] = {60, 60, 220};
    struct queues *queues = *state;
    struct nic_queue_options usual = dc_initiator(0);
    struct dc dc = dc_make(queues, &usual);
    for (uint32_t k = 0; k < 3; k++) {
        struct nic_queue_options options = dc_initiator(
            k == 1 && queues->near.nic->streams_max > 0 ? queues->near.nic->streams_max : 0);
        struct nic_work work = queues_work(queues, NIC_WRITE, NIC_WORK_INLINE, 0);
        struct nic_piece piece = queues_near(queues, 0, lengths[k]);
        options.sends = sends[k];
        options.send_pieces = 1;
        options.inline_bytes = lengths[k];
        struct nic_queue *queue = queues_create(queues->near.nic, &options);
        for (uint32_t i = 0; i < sends[k]; i++) {
            work.stream = (uint16_t)(options.streams > 0 ? i % options.streams : 0);
            assert_true(queues_post_to(queue, &work, dc.target, &piece, 1));
        }
        queues_end(queue);
    }
    dc_end(&dc);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Each is its initiator's own; the target goes on with others. */
void test_dc_errors(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_target *wrong_key = dc_target(queues->near.nic, queues->receiver, DC_KEY + 1);
    struct nic_queue *gone = dc_dct(queues->far.nic, dc.srq, DC_KEY);
    struct nic_target *nobody = dc_target(queues->near.nic, gone, DC_KEY);
    const uint32_t key = queues->target_keys.remote_key;
    queues_end(gone);
    for (uint32_t which = 0; which < 4; which++) {
        static const enum nic_error errors[] = {NIC_ERROR_REMOTE_ACCESS, NIC_ERROR_REMOTE_ACCESS,
                                                NIC_ERROR_RETRY, NIC_ERROR_LOCAL};
        dc_write(&dc, dc.target, 0, 0, 1, key);
        if (which == 3) {
            struct nic_work work = queues_work(queues, NIC_WRITE, 0, 2);
            struct nic_piece piece = queues_near(queues, QUEUES_BYTES - 8, 16);
            assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
        } else {
            dc_write(&dc,
                     which == 1   ? wrong_key
                     : which == 2 ? nobody
                                  : dc.target,
                     0, 0, 2, which == 0 ? key ^ 0x5500 : key);
        }
        dc_write(&dc, dc.target, 0, 0, 3, key);
        queues->near.count = 0;
        queues_ring(queues->sender);
        queues_wait(&queues->near, 3);
        expect_sent(&queues->near.done[0], NIC_WRITE, 1);
        assert_int_equal(queues->near.done[1].status, -(int32_t)errors[which]);
        assert_int_equal(queues->near.done[1].user_data, 2);
        assert_int_equal(queues->near.done[2].status, -NIC_ERROR_FLUSHED);
        assert_int_equal(queues->near.done[2].user_data, 3);
        assert_true(queues->sender->failed);
        assert_false(queues->receiver->failed);
        queues_end(queues->sender);
        queues->sender = queues_create(queues->near.nic, &options);
    }
    queues->near.count = 0;
    dc_write(&dc, dc.target, 0, 0, 4, key);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    expect_sent(&queues->near.done[0], NIC_WRITE, 4);
    dc_target_end(wrong_key);
    dc_target_end(nobody);
    dc_end(&dc);
}

/* A message that is longer than its receive ends that, and who has sent it; the target goes on. */
void test_dc_long_message(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_queue *other = queues_create(queues->near.nic, &options);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 1);
    struct nic_piece piece = queues_near(queues, 0, 100);
    dc_receive(&dc, 1, 1, 64);
    dc_receive(&dc, 2, 1, 128);
    assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    queues_wait(&queues->far, 1);
    assert_int_equal(queues->near.done[0].status, -NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(queues->far.done[0].status, -NIC_ERROR_LENGTH);
    assert_int_equal(queues->far.done[0].user_data, 1);
    assert_int_equal(queues->far.done[0].endpoint.bits, DC_DCT_HANDLE);
    assert_true(queues->sender->failed);
    assert_false(queues->receiver->failed);
    assert_true(queues_post_to(other, &work, dc.target, &piece, 1));
    queues_ring(other);
    queues_wait(&queues->far, 2);
    queues_wait(&queues->near, 2);
    expect_received(&queues->far.done[1], other, 100);
    assert_int_equal(queues->far.done[1].user_data, 2);
    queues_end(other);
    dc_end(&dc);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Waits for a receive, and is done when there is one. */
void test_dc_no_receive(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 1);
    struct nic_piece piece = queues_near(queues, 0, 100);
    assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
    queues_ring(queues->sender);
    queues_expect_silence(&queues->near);
    dc_receive(&dc, 5, 1, 128);
    queues_wait(&queues->far, 1);
    queues_wait(&queues->near, 1);
    expect_received(&queues->far.done[0], queues->sender, 100);
    expect_sent(&queues->near.done[0], NIC_SEND, 1);
    dc_end(&dc);
}

/* Ops that wait for a receive: flushed in one queue, taken out of another that is stopped. */
void test_dc_ends(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    for (uint32_t stop = 0; stop < 2; stop++) {
        for (uint32_t i = 0; i < 5; i++) {
            struct nic_work work = queues_work(queues, NIC_SEND, 0, i);
            struct nic_piece piece = queues_near(queues, 0, 100);
            assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
        }
        queues_ring(queues->sender);
        queues->near.count = 0;
        if (stop) {
            operations->stop(queues->sender);
            queues->near.count = nic_queue_take_ended(queues->sender, queues->near.done, 100);
        } else {
            operations->flush(queues->sender);
            queues_wait(&queues->near, 5);
            assert_true(queues->sender->failed);
        }
        assert_int_equal(queues->near.count, 5);
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(queues->near.done[i].status, -NIC_ERROR_FLUSHED);
            assert_int_equal(queues->near.done[i].user_data, i);
        }
        queues_end(queues->sender);
        queues->sender = queues_create(queues->near.nic, &options);
    }
    dc_end(&dc);
}

/* What has arrived at a target that is stopped ends the receives of its SRQ, which serve another. */
void test_dc_target_stopped(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(0);
    struct dc dc = dc_make(queues, &options);
    struct nic_queue *other = dc_dct(queues->far.nic, dc.srq, DC_KEY);
    struct nic_target *there = dc_target(queues->near.nic, other, DC_KEY);
    const struct nic_queue_operations *operations = queues->far.nic->operations->queues;
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 1);
    struct nic_piece piece = queues_near(queues, 0, 100);
    crpc_completion ended[4];
    dc_receive(&dc, 0, 3, 128);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, 2);
    operations->stop(queues->receiver);
    queues_poll(&queues->far);
    uint32_t taken = nic_queue_take_ended(dc.srq, ended, 4);
    for (uint32_t i = 0; i < taken; i++) {
        assert_int_equal(ended[i].status, -NIC_ERROR_FLUSHED);
    }
    assert_int_equal(taken + queues->far.count, 2);
    assert_int_equal(dc.srq->receives_open, 1);
    assert_true(queues_post_to(queues->sender, &work, there, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->far, queues->far.count + 1);
    queues_wait(&queues->near, 3);
    expect_received(&queues->far.done[queues->far.count - 1], queues->sender, 100);
    dc_target_end(there);
    queues_end(other);
    dc_end(&dc);
}

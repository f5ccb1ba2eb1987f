/* contract_queue_datagrams.c: what every driver does with queues for datagrams (NIC_QUEUE_UD), and with the
 * targets of their ops.
 *
 * Datagrams may be lost, but here none is that has a receive: both ends are one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "queues.h"

#define HEADER NIC_DATAGRAM_HEADER_BYTES
#define NEAR_KEY 0x11111111u
#define FAR_KEY 0x7fffffffu
#define SLOT_BYTES 8192u

static struct nic_queue_options datagrams(uint32_t queue_key)
{
    struct nic_queue_options options = queues_options();
    options.kind = NIC_QUEUE_UD;
    options.queue_key = queue_key;
    return options;
}

/* Both queues, and a target at the far one. */
static struct nic_target *make(struct queues *queues, enum nic_queue_table table)
{
    struct nic_queue_options near = datagrams(NEAR_KEY);
    struct nic_queue_options far = datagrams(FAR_KEY);
    near.table = table;
    far.handle = 0x5000000000000002u;
    far.user_data = 88;
    queues->sender = queues_create(queues->near.nic, &near);
    queues->receiver = queues_create(queues->far.nic, &far);
    return queues_target(queues->near.nic, queues->receiver, FAR_KEY);
}

static void end_target(struct nic_target *target)
{
    target->nic->operations->queues->target_destroy(target);
}

static void receive(struct nic_queue *queue, const struct queues *queues, uint64_t slot,
                    uint32_t bytes)
{
    struct nic_piece piece = queues_far(queues, slot * SLOT_BYTES, bytes);
    assert_true(queue->nic->operations->queues->receive(queue, slot, &piece, 1));
    queues_ring(queue);
}

static void send(struct queues *queues, struct nic_target *target, uint32_t flags,
                 uint64_t user_data, uint32_t bytes)
{
    struct nic_work work = queues_work(queues, NIC_SEND, flags, user_data);
    struct nic_piece piece = queues_near(queues, 16 * user_data, bytes);
    assert_true(queues_post_to(queues->sender, &work, target, &piece, bytes ? 1 : 0));
}

static void expect_sent(const crpc_completion *done, uint16_t opcode, uint64_t user_data)
{
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->method, opcode);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->endpoint.bits, 0x5000000000000001u);
    assert_int_equal(done->endpoint_user_data, 77);
    assert_int_equal(done->payload_bytes, 0);
    assert_int_equal(done->token, 0);
}

static void expect_datagram(const crpc_completion *done, const struct nic_queue *from,
                            uint64_t user_data, uint32_t bytes)
{
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->method, NIC_RECEIVE);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->payload_bytes, HEADER + bytes);
    assert_int_equal((uint32_t)done->token, from->pair->number);
    const struct nic *nic = from->pair->nic; /* on InfiniBand, only where a port requires one */
    assert_int_equal((done->flags & NIC_DONE_GRH) != 0,
                     nic->link == CRPC_LINK_ETHERNET || nic->grh_required);
    assert_true(done->flags & NIC_DONE_DETAIL);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Of all lengths, to the far side; and back to where they came from, as their header says. */
void test_datagram_messages(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    const struct nic_operations *operations = queues->far.nic->operations;
    const uint32_t sizes[] = {0, 1, 32, 100, 101, 1024, queues->near.nic->mtu_bytes};
    for (uint32_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t bytes = sizes[i / 2];
        bool second = i % 2;
        struct nic_work work = queues_work(queues, second ? NIC_SEND_IMMEDIATE : NIC_SEND,
                                           second && bytes <= 100 ? NIC_WORK_INLINE : 0, i);
        struct nic_piece piece = queues_near(queues, 3 + i, bytes);
        work.immediate = second ? 0x0a0b0c00 + i : 0;
        memset(queues->target, 0xaa, QUEUES_BYTES);
        receive(queues->receiver, queues, i, HEADER + bytes);
        assert_true(queues_post_to(queues->sender, &work, target, &piece, 1));
        queues_ring(queues->sender);
        queues_wait(&queues->near, i + 1);
        queues_wait(&queues->far, i + 1);
        expect_sent(&queues->near.done[i], work.opcode, i);
        const crpc_completion *done = &queues->far.done[i];
        expect_datagram(done, queues->sender, i, bytes);
        assert_int_equal(done->endpoint.bits, 0x5000000000000002u);
        assert_int_equal(done->flags & NIC_DONE_IMMEDIATE ? done->reply_bytes_max : 0,
                         work.immediate);
        assert_memory_equal(queues->target + i * SLOT_BYTES + HEADER, queues->source + 3 + i,
                            bytes);
        assert_int_equal(queues->target[i * SLOT_BYTES + HEADER + bytes], 0xaa);
    }
    struct nic_target_options source;
    struct nic_address near;
    struct nic_target *back = NULL;
    queues->near.nic->operations->queue_pair_address(queues->sender->pair, &near);
    assert_true(nic_datagram_source(queues->far.nic, &queues->far.done[0],
                                    queues->target + 13 * SLOT_BYTES, &source));
    if (near.link == CRPC_LINK_ETHERNET) {
        assert_memory_equal(source.address.gid, near.gid, 16);
    } else {
        assert_int_equal(source.address.lid, near.lid);
    }
    assert_int_equal(source.address.queue_pair_number, near.queue_pair_number);
    source.queue_key = NEAR_KEY;
    assert_int_equal(operations->queues->target_create(queues->far.nic, NULL, &source, &back, NULL),
                     CRPC_OK);
    struct nic_piece here = queues_near(queues, 0, HEADER + 8);
    struct nic_piece there = queues_far(queues, 13 * SLOT_BYTES, 8);
    struct nic_work answer = {.opcode = NIC_SEND, .user_data = 5};
    memcpy(queues->target + 13 * SLOT_BYTES, "answered", 8);
    assert_true(queues->near.nic->operations->queues->receive(queues->sender, 9, &here, 1));
    queues_ring(queues->sender);
    assert_true(queues_post_to(queues->receiver, &answer, back, &there, 1));
    queues_ring(queues->receiver);
    queues_wait(&queues->near, 15);
    expect_datagram(&queues->near.done[14], queues->receiver, 9, 8);
    assert_memory_equal(queues->source + HEADER, "answered", 8);
    queues_wait(&queues->far, 15);
    end_target(back);
    end_target(target);
}

/* Gathered from pieces, and scattered: the header, too. */
void test_datagram_pieces(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    for (uint32_t i = 0; i < 2; i++) {
        struct nic_piece near[QUEUES_PIECES] = {
            queues_near(queues, 100, 10), queues_near(queues, 0, 0), queues_near(queues, 5000, 33),
            queues_near(queues, 9, 20)};
        struct nic_piece far[3] = {queues_far(queues, 64, 30), queues_far(queues, 256, 20),
                                   queues_far(queues, 4096, 53)};
        struct nic_work work = queues_work(queues, NIC_SEND, i ? NIC_WORK_INLINE : 0, i);
        memset(queues->target, 0, SLOT_BYTES);
        assert_true(queues->far.nic->operations->queues->receive(queues->receiver, i, far, 3));
        queues_ring(queues->receiver);
        assert_true(queues_post_to(queues->sender, &work, target, near, QUEUES_PIECES));
        queues_ring(queues->sender);
        queues_wait(&queues->near, i + 1);
        queues_wait(&queues->far, i + 1);
        expect_datagram(&queues->far.done[i], queues->sender, i, 63);
        assert_memory_equal(queues->target + 256 + 10, queues->source + 100, 10);
        assert_memory_equal(queues->target + 4096, queues->source + 5000, 33);
        assert_memory_equal(queues->target + 4096 + 33, queues->source + 9, 20);
    }
    end_target(target);
}

/* One array of ops to several targets, of which one is the queue itself. */
void test_datagram_targets(void **state)
{
    struct queues *queues = *state;
    struct nic_queue *others[3] = {NULL};
    struct nic_target *targets[3], *names[12];
    struct nic_work works[12];
    uint32_t keys[12], seen[3] = {0};
    targets[0] = make(queues, NIC_TABLE_DENSE);
    others[0] = queues->receiver;
    for (uint32_t k = 1; k < 3; k++) {
        struct nic_queue_options options = datagrams(FAR_KEY - k);
        options.handle = 100 + k;
        others[k] = queues_create(k == 1 ? queues->far.nic : queues->near.nic, &options);
        targets[k] = queues_target(queues->near.nic, others[k], FAR_KEY - k);
    }
    for (uint32_t i = 0; i < 12; i++) {
        struct nic_queue *to = others[i % 3];
        struct nic_piece place = i % 3 == 2 ? queues_near(queues, 65536 + i * 256, 200)
                                            : queues_far(queues, i * 256, 200);
        assert_true(to->nic->operations->queues->receive(to, i, &place, 1));
        queues_ring(to);
        works[i] = queues_work(queues, NIC_SEND, i % 2 ? NIC_WORK_INLINE : 0, i);
        works[i].address = (uint64_t)(uintptr_t)queues->source + i * 16;
        works[i].bytes = 16;
        keys[i] = queues->source_keys.local_key;
        names[i] = targets[i % 3];
    }
    assert_int_equal(
        queues->near.nic->operations->queues->post_to(queues->sender, works, names, keys, NULL, 12),
        12);
    queues_ring(queues->sender);
    queues_wait(&queues->far, 8);
    queues_wait(&queues->near, 16);
    for (uint32_t i = 0; i < 8; i++) {
        const crpc_completion *done = &queues->far.done[i];
        uint32_t which = done->endpoint.bits == 101;
        expect_datagram(done, queues->sender, which + 3 * seen[which]++, 16);
        assert_memory_equal(queues->target + done->user_data * 256 + HEADER,
                            queues->source + done->user_data * 16, 16);
    }
    assert_int_equal(seen[0], 4);
    for (uint32_t k = 0; k < 3; k++) {
        end_target(targets[k]);
    }
    queues_end(others[1]);
    queues_end(others[2]);
}

/* A queue may send to itself. */
void test_datagram_itself(void **state)
{
    struct queues *queues = *state;
    end_target(make(queues, NIC_TABLE_DENSE));
    struct nic_target *itself = queues_target(queues->near.nic, queues->sender, NEAR_KEY);
    struct nic_piece place = queues_near(queues, 65536, 128);
    assert_true(queues->near.nic->operations->queues->receive(queues->sender, 50, &place, 1));
    send(queues, itself, 0, 1, 64);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 2);
    const crpc_completion *done = queues->near.done;
    expect_datagram(&done[done[0].method != NIC_RECEIVE], queues->sender, 50, 64);
    expect_sent(&done[done[0].method == NIC_RECEIVE], NIC_SEND, 1);
    assert_memory_equal(queues->source + 65536 + HEADER, queues->source + 16, 64);
    end_target(itself);
}

/* ---- Loss ------------------------------------------------------------------------------------ */

/* To nobody, with a wrong key, without a receive: it was sent, and that is all. */
void test_datagram_lost(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    struct nic_target *wrong_key = queues_target(queues->near.nic, queues->receiver, FAR_KEY - 1);
    struct nic_queue_options options = datagrams(FAR_KEY);
    struct nic_queue *gone = queues_create(queues->far.nic, &options);
    struct nic_target *nobody = queues_target(queues->near.nic, gone, FAR_KEY);
    queues_end(gone);
    send(queues, target, 0, 1, 64);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    queues_expect_silence(&queues->far); /* it found no receive */
    receive(queues->receiver, queues, 0, 512);
    send(queues, wrong_key, 0, 2, 64);
    send(queues, nobody, 0, 3, 64);
    send(queues, target, 0, 4, 48);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 4);
    for (uint32_t i = 0; i < 4; i++) {
        expect_sent(&queues->near.done[i], NIC_SEND, 1 + i);
    }
    queues_wait(&queues->far, 1);
    expect_datagram(&queues->far.done[0], queues->sender, 0, 48);
    queues_expect_silence(&queues->far);
    end_target(target);
    end_target(wrong_key);
    end_target(nobody);
}

/* ---- Receives of an SRQ ---------------------------------------------------------------------- */

/* Which datagrams and messages of a connection share. */
void test_datagram_shared(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options srq = queues_options();
    srq.kind = NIC_QUEUE_SRQ;
    srq.sends = srq.send_pieces = srq.inline_bytes = 0;
    struct nic_queue *shared = queues_create(queues->far.nic, &srq);
    struct nic_queue_options far = datagrams(FAR_KEY);
    struct nic_queue_options near = datagrams(NEAR_KEY);
    struct nic_queue_options rc = queues_options();
    struct nic_queue *connected = queues_create(queues->near.nic, &rc);
    far.receives = rc.receives = 0;
    far.receive_queue = rc.receive_queue = shared;
    far.handle = 200;
    rc.handle = 201;
    queues->sender = queues_create(queues->near.nic, &near);
    queues->receiver = queues_create(queues->far.nic, &far);
    struct nic_queue *peer = queues_create(queues->far.nic, &rc);
    queues_connect(connected, peer);
    struct nic_target *target = queues_target(queues->near.nic, queues->receiver, FAR_KEY);
    for (uint32_t i = 0; i < 8; i++) {
        receive(shared, queues, i, 512);
    }
    for (uint32_t i = 0; i < 8; i++) {
        struct nic_work work = queues_work(queues, NIC_SEND, 0, i);
        struct nic_piece piece = queues_near(queues, i * 64, 64);
        assert_true(i % 2 ? queues_post_to(queues->sender, &work, target, &piece, 1)
                          : queues_post_pieces(connected, &work, &piece, 1));
        queues_ring(i % 2 ? queues->sender : connected);
        queues_wait(&queues->far, i + 1);
        const crpc_completion *done = &queues->far.done[i];
        const uint8_t *place = queues->target + done->user_data * SLOT_BYTES;
        assert_int_equal(done->endpoint.bits, i % 2 ? 200 : 201);
        if (i % 2) {
            expect_datagram(done, queues->sender, done->user_data, 64);
        } else {
            assert_int_equal(done->payload_bytes, 64);
            assert_int_equal(done->token, 0);
            assert_false(done->flags & NIC_DONE_GRH);
        }
        assert_memory_equal(place + (i % 2 ? HEADER : 0), queues->source + i * 64, 64);
    }
    queues_wait(&queues->near, 8);
    end_target(target);
    queues_end(connected);
    queues_end(peer);
    queues_end(queues->receiver);
    queues->receiver = NULL;
    queues_end(shared);
}

/* ---- Tables and room ------------------------------------------------------------------------- */

/* As many as a queue can have, of the usual length, and fewer that are longer. */
void test_datagram_room(void **state)
{
    static const uint32_t sends[] = {NIC_QUEUE_DEPTH_MAX, 100}, lengths[] = {60, 220};
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    for (uint32_t k = 0; k < 2; k++) {
        struct nic_queue_options options = datagrams(NEAR_KEY);
        struct nic_work work = queues_work(queues, NIC_SEND, NIC_WORK_INLINE, 0);
        struct nic_piece piece = queues_near(queues, 0, lengths[k]);
        options.sends = sends[k];
        options.send_pieces = 1;
        options.inline_bytes = lengths[k];
        struct nic_queue *queue = queues_create(queues->near.nic, &options);
        for (uint32_t i = 0; i < sends[k]; i++) {
            assert_true(queues_post_to(queue, &work, target, &piece, 1));
        }
        queues_end(queue);
    }
    end_target(target);
}

/* Only those with the flag complete, and there is room again all the same. */
void test_datagram_sparse(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_SPARSE);
    uint32_t signaled = 0;
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t flags = i % 7 == 3 ? NIC_WORK_SIGNAL : 0;
        struct nic_work work = queues_work(queues, NIC_SEND, flags | NIC_WORK_INLINE, i);
        struct nic_piece piece = queues_near(queues, 0, 100);
        while (!queues_post_to(queues->sender, &work, target, &piece, 1)) {
            queues_ring(queues->sender);
            queues_poll(&queues->near);
        }
        signaled += flags != 0;
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, signaled);
    for (uint32_t i = 0; i < signaled; i++) {
        expect_sent(&queues->near.done[i], NIC_SEND, 7 * i + 3);
    }
    if (queues->sender->interval > 1) { /* what says that all are done */
        struct nic_work nop = {.opcode = NIC_NOP, .flags = NIC_WORK_SIGNAL, .user_data = 9};
        while (!queues_post_to(queues->sender, &nop, NULL, NULL, 0)) {
            queues_poll(&queues->near);
        }
        queues_ring(queues->sender);
        queues_wait(&queues->near, signaled + 1);
        expect_sent(&queues->near.done[signaled], NIC_NOP, 9);
    }
    queues_expect_silence(&queues->near);
    assert_int_equal(queues->sender->sends.consumer, queues->sender->sends.producer);
    end_target(target);
}

/* As many fit as of other queues, with ops of the size that capi has by default. Nobody receives them. */
void test_datagram_deep(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = datagrams(NEAR_KEY);
    struct nic_work work = queues_work(queues, NIC_SEND, NIC_WORK_INLINE, 0);
    struct nic_piece piece = queues_near(queues, 0, 60);
    options.sends = NIC_QUEUE_DEPTH_MAX;
    options.send_pieces = 1;
    options.inline_bytes = 60;
    queues->sender = queues_create(queues->near.nic, &options);
    struct nic_target *itself = queues_target(queues->near.nic, queues->sender, NEAR_KEY);
    for (uint32_t i = 0; i < NIC_QUEUE_DEPTH_MAX; i++) {
        work.user_data = i;
        assert_true(queues_post_to(queues->sender, &work, itself, &piece, 1));
    }
    queues_ring(queues->sender);
    for (uint32_t first = 0; first < NIC_QUEUE_DEPTH_MAX; first += QUEUES_DONE_MAX) {
        queues->near.count = 0;
        queues_wait(&queues->near, QUEUES_DONE_MAX); /* more are not kept */
        for (uint32_t i = 0; i < QUEUES_DONE_MAX; i++) {
            expect_sent(&queues->near.done[i], NIC_SEND, first + i);
        }
    }
    end_target(itself);
}

/* All counters run over, with ops of all lengths, which are complete in their order. */
void test_datagram_wrap(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    uint64_t random = 7, posted = 0, done = 0, received = 0, offered = 0;
    while (queues->sender->sends.producer <= 66000 || done < posted) {
        while (offered - received < 16) {
            struct nic_piece place = queues_far(queues, offered % 16 * 256, HEADER + 128);
            assert_true(operations->receive(queues->receiver, offered++, &place, 1));
        }
        queues_ring(queues->receiver);
        for (uint32_t i = 0; i < 14 && queues->sender->sends.producer <= 66000; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            struct nic_piece piece =
                queues_near(queues, random >> 40 & 255, (uint32_t)(random >> 33 & 127) % 100 + 1);
            struct nic_work work =
                queues_work(queues, NIC_SEND, random >> 50 & 1 ? NIC_WORK_INLINE : 0, posted);
            if (!queues_post_to(queues->sender, &work, target, &piece, 1)) {
                break;
            }
            posted++;
        }
        queues_ring(queues->sender);
        queues->near.count = queues->far.count = 0;
        queues_poll(&queues->near);
        queues_poll(&queues->far);
        for (uint32_t i = 0; i < queues->near.count; i++) {
            assert_int_equal(queues->near.done[i].user_data, done++);
            assert_int_equal(queues->near.done[i].status, CRPC_OK);
        }
        for (uint32_t i = 0; i < queues->far.count; i++) {
            assert_int_equal(queues->far.done[i].user_data, received++);
            assert_int_equal((uint32_t)queues->far.done[i].token, queues->sender->pair->number);
        }
    }
    assert_true(received > 1000);
    print_message("# %llu datagrams, %llu of them found a receive, %llu CQEs\n",
                  (unsigned long long)posted, (unsigned long long)received,
                  (unsigned long long)queues->sender->stats.signaled);
    end_target(target);
}

/* ---- Errors and ends ------------------------------------------------------------------------- */

/* What was sent before is done, and what comes after is flushed; a flush ends the receives, too. */
void test_datagram_local_error(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    struct nic_work work = queues_work(queues, NIC_SEND, 0, 2);
    struct nic_piece beyond = queues_near(queues, QUEUES_BYTES - 8, 16);
    struct nic_piece place = queues_near(queues, 0, 128);
    assert_true(queues->near.nic->operations->queues->receive(queues->sender, 50, &place, 1));
    send(queues, target, 0, 1, 16);
    assert_true(queues_post_to(queues->sender, &work, target, &beyond, 1));
    send(queues, target, 0, 3, 16);
    queues_ring(queues->sender);
    while (!queues->sender->failed) {
        queues_poll(&queues->near);
    }
    queues->near.nic->operations->queues->flush(queues->sender);
    queues_wait(&queues->near, 4);
    uint32_t sends = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const crpc_completion *done = &queues->near.done[i];
        if (done->method == NIC_RECEIVE) {
            assert_int_equal(done->status, -NIC_ERROR_FLUSHED);
            assert_int_equal(done->user_data, 50);
            continue;
        }
        assert_int_equal(done->user_data, ++sends);
        assert_int_equal(done->status, sends == 1   ? CRPC_OK
                                       : sends == 2 ? -NIC_ERROR_LOCAL
                                                    : -NIC_ERROR_FLUSHED);
    }
    assert_int_equal(sends, 3);
    end_target(target);
}

/* One that is longer than its receive: the device drops it, or says so and ends the queue. */
void test_datagram_too_long(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    receive(queues->receiver, queues, 0, HEADER + 32);
    receive(queues->receiver, queues, 1, HEADER + 32);
    send(queues, target, 0, 1, 33);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    expect_sent(&queues->near.done[0], NIC_SEND, 1);
    for (uint32_t i = 0; i < 30 && queues->far.count == 0; i++) {
        pair_pass(1000);
        queues_poll(&queues->far);
    }
    const bool early = queues->far.count > 0;
    assert_int_equal(early, queues->receiver->failed);
    queues->far.nic->operations->queues->flush(queues->receiver);
    queues_wait(&queues->far, 2);
    const bool dropped = queues->far.done[0].status == -NIC_ERROR_FLUSHED;
    assert_false(early && dropped); /* but it may report it late */
    print_message("# %s\n", dropped ? "dropped" : "reported");
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(queues->far.done[i].user_data, i);
        assert_int_equal(queues->far.done[i].status,
                         i == 0 && !dropped ? -NIC_ERROR_LENGTH : -NIC_ERROR_FLUSHED);
    }
    end_target(target);
}

/* What is open when a queue is stopped ends, whether the device has done it or not; its target may go. */
void test_datagram_stop(void **state)
{
    struct queues *queues = *state;
    struct nic_target *target = make(queues, NIC_TABLE_DENSE);
    crpc_completion done[16];
    struct nic_piece place = queues_near(queues, 0, 128);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(
            queues->near.nic->operations->queues->receive(queues->sender, 50 + i, &place, 1));
        send(queues, target, 0, i, 16);
    }
    queues_ring(queues->sender);
    queues->near.nic->operations->queues->stop(queues->sender);
    end_target(target);
    queues_expect_silence(&queues->near);
    assert_int_equal(nic_queue_take_ended(queues->sender, done, 16), 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
        assert_int_equal(done[i].user_data, i < 3 ? i : 47 + i);
        assert_int_equal(done[i].method, i < 3 ? NIC_SEND : NIC_RECEIVE);
    }
}

/* ---- Where they come from -------------------------------------------------------------------- */

static void be16(uint8_t *place, uint32_t value)
{
    place[0] = (uint8_t)(value >> 8);
    place[1] = (uint8_t)value;
}

/* A header is what the network says, and its first half may be anything. */
void test_datagram_source(void **state)
{
    struct queues *queues = *state;
    struct nic nic = {.link = CRPC_LINK_ETHERNET, .mtu_bytes = 4096};
    struct nic_target_options source;
    crpc_completion done = {.flags = NIC_DONE_GRH, .token = nic_source_token(0x123456, 7, 3)};
    uint8_t header[HEADER] = {0};
    static const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7};
    (void)queues;
    assert_false(nic_datagram_source(&nic, &done, header, &source));
    header[20] = 0x45;
    memcpy(header + 32, mapped + 12, 4);
    be16(header + 30, 0xffff - 0x0708); /* of 0x4500, 0xc000 and 0x0207 */
    assert_true(nic_datagram_source(&nic, &done, header, &source));
    assert_memory_equal(source.address.gid, mapped, 16);
    assert_int_equal(source.address.queue_pair_number, 0x123456);
    assert_int_equal(source.address.lid, 0);
    assert_int_equal(source.service_level, 0);
    assert_true(nic_address_valid(&source.address));
    header[0] = 0x60; /* what looks like IPv6 before an IPv4 header is none */
    assert_true(nic_datagram_source(&nic, &done, header, &source));
    assert_memory_equal(source.address.gid, mapped, 16);
    header[0] = 0;
    header[30] ^= 1; /* a wrong checksum, as Soft-RoCE may have it */
    assert_true(nic_datagram_source(&nic, &done, header, &source));
    assert_memory_equal(source.address.gid, mapped, 16);
    header[0] = 0x60; /* these are 40 bytes of IPv6 */
    assert_true(nic_datagram_source(&nic, &done, header, &source));
    assert_memory_equal(source.address.gid, header + 8, 16);
    done.token = 0; /* no queue pair has this number */
    assert_false(nic_datagram_source(&nic, &done, header, &source));
    done = (crpc_completion){.token = nic_source_token(0x123456, 7, 3)};
    assert_false(nic_datagram_source(&nic, &done, header, &source)); /* no GRH */
    nic.link = CRPC_LINK_INFINIBAND;
    assert_true(nic_datagram_source(&nic, &done, header, &source));
    assert_int_equal(source.address.lid, 7);
    assert_int_equal(source.service_level, 3);
    done.token = nic_source_token(0x123456, 0, 3);
    assert_false(nic_datagram_source(&nic, &done, header, &source));
}

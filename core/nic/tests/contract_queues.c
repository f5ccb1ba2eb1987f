/* contract_queues.c: what every driver does with queues with user data (nic/queue.h): opcodes, tables,
 * room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>

#include "contract.h"
#include "queues.h"

static void make(struct queues *queues)
{
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    far.handle = 0x5000000000000002u;
    far.user_data = 88;
    queues_make(queues, &near, &far);
}

static void expect(const crpc_completion *done, uint16_t opcode, uint64_t user_data)
{
    bool receive = opcode == NIC_RECEIVE;
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->method, opcode);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->endpoint.bits, receive ? 0x5000000000000002u : 0x5000000000000001u);
    assert_int_equal(done->endpoint_user_data, receive ? 88 : 77);
}

/* ---- Opcodes --------------------------------------------------------------------------------- */

void test_queue_write(void **state)
{
    static const uint32_t sizes[] = {0, 1, 32, 100, 101, 4096, 4097, 300000};
    struct queues *queues = *state;
    make(queues);
    for (uint32_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t bytes = sizes[i / 2];
        bool in_wqe = i % 2 && bytes <= 100;
        struct nic_work work =
            queues_work(queues, NIC_WRITE, in_wqe ? NIC_WORK_INLINE : 0, 1000 + i);
        work.remote_address += 5;
        memset(queues->target, 0xaa, QUEUES_BYTES);
        queues_post(queues, &work, 3 + i, bytes);
        queues_ring(queues->sender);
        queues_wait(&queues->near, i + 1);
        expect(&queues->near.done[i], NIC_WRITE, 1000 + i);
        assert_memory_equal(queues->target + 5, queues->source + 3 + i, bytes);
        assert_int_equal(queues->target[4], 0xaa);
        assert_int_equal(queues->target[5 + bytes], 0xaa);
    }
    queues_expect_silence(&queues->far);
}

/* Gathered from pieces and scattered to others, some of them empty. */
void test_queue_pieces(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    const uint8_t opcodes[] = {NIC_SEND, NIC_WRITE, NIC_READ};
    make(queues);
    for (uint32_t i = 0; i < 6; i++) {
        uint8_t opcode = opcodes[i / 2];
        struct nic_piece near[QUEUES_PIECES] = {
            queues_near(queues, 100, 10), queues_near(queues, 0, 0), queues_near(queues, 5000, 33),
            queues_near(queues, 9, 20)};
        struct nic_piece far[QUEUES_PIECES] = {queues_far(queues, 64, 30),
                                               queues_far(queues, 0, 33)};
        struct nic_work work =
            queues_work(queues, opcode, i % 2 && opcode != NIC_READ ? NIC_WORK_INLINE : 0, i);
        uint8_t expected[63];
        memcpy(expected, queues->source + 100, 10);
        memcpy(expected + 10, queues->source + 5000, 33);
        memcpy(expected + 43, queues->source + 9, 20);
        memset(queues->target, 0, 4096);
        if (opcode == NIC_SEND) {
            assert_true(operations->receive(queues->receiver, i, far, 2));
            queues_ring(queues->receiver);
        } else if (opcode == NIC_READ) {
            for (uint32_t k = 0; k < 63; k++) {
                queues->target[k] = expected[k] = (uint8_t)(k + 100 + i);
            }
        }
        assert_true(queues_post_pieces(queues->sender, &work, near, QUEUES_PIECES));
        queues_ring(queues->sender);
        queues_wait(&queues->near, i + 1);
        expect(&queues->near.done[i], opcode, i);
        if (opcode == NIC_SEND) {
            queues_wait(&queues->far, i + 1);
            expect(&queues->far.done[i], NIC_RECEIVE, i);
            assert_memory_equal(queues->target + 64, expected, 30);
            assert_memory_equal(queues->target, expected + 30, 33);
        } else if (opcode == NIC_WRITE) {
            assert_memory_equal(queues->target, expected, 63);
        } else {
            assert_int_equal(queues->near.done[i].payload_bytes, 63);
            assert_memory_equal(queues->source + 100, expected, 10);
            assert_memory_equal(queues->source + 5000, expected + 10, 33);
            assert_memory_equal(queues->source + 9, expected + 43, 20);
        }
    }
}

void test_queue_messages(void **state)
{
    struct queues *queues = *state;
    const uint8_t opcodes[] = {NIC_SEND, NIC_SEND_IMMEDIATE, NIC_WRITE_IMMEDIATE};
    make(queues);
    for (uint32_t i = 0; i < 12; i++) {
        uint8_t opcode = opcodes[i % 3];
        uint32_t bytes = i < 3 ? 0 : i < 9 ? 20 + i : 4000;
        bool immediate = opcode != NIC_SEND;
        struct nic_work work = queues_work(
            queues, opcode, i >= 6 && bytes <= 100 ? NIC_WORK_INLINE | NIC_WORK_SOLICITED : 0, i);
        work.immediate = immediate ? 0xfeed0000u + i : 0;
        work.remote_address += opcode == NIC_WRITE_IMMEDIATE ? 500000 : 0;
        queues_receive(queues->receiver, queues, 3 * i, 1, 4096);
        queues_post(queues, &work, i, bytes);
        queues_ring(queues->sender);
        queues_wait(&queues->far, i + 1);
        queues_wait(&queues->near, i + 1);
        const crpc_completion *done = &queues->far.done[i];
        expect(done, NIC_RECEIVE, 3 * i);
        assert_int_equal(done->flags, NIC_DONE_OF_QUEUE | NIC_DONE_DETAIL |
                                          (immediate ? NIC_DONE_IMMEDIATE : 0));
        /* A WRITE is not in the receive's buffer: nobody may take its length for that. */
        assert_int_equal(done->payload_bytes, opcode == NIC_WRITE_IMMEDIATE ? 0 : bytes);
        assert_int_equal(done->token, opcode == NIC_WRITE_IMMEDIATE ? bytes : 0);
        assert_int_equal(done->reply_bytes_max, work.immediate);
        assert_memory_equal(queues->target +
                                (opcode == NIC_WRITE_IMMEDIATE ? 500000 : 3ul * i * 4096),
                            queues->source + i, bytes);
        expect(&queues->near.done[i], opcode, i);
    }
}

/* The result comes in the completion, whether or not the op has a CQE of its own. */
void test_queue_atomics(void **state)
{
    struct queues *queues = *state;
    make(queues);
    volatile uint64_t *word = (volatile uint64_t *)(void *)(queues->target + 64);
    uint64_t value = *word = 1000;
    for (uint32_t round = 0; round < 50; round++) {
        queues->near.count = 0;
        for (uint32_t i = 0; i < 6; i++) {
            bool swap = i % 2;
            struct nic_work work =
                queues_work(queues, swap ? NIC_COMPARE_SWAP : NIC_FETCH_ADD, 0, i);
            work.remote_address += 64;
            work.operand = swap ? UINT64_C(1) << 40 : 5 + round;
            work.address = i == 3 ? 1 : i == 1 ? value + 5 + round : 0; /* the second matches */
            queues_post(queues, &work, 0, 0);
        }
        queues_ring(queues->sender);
        queues_wait(&queues->near, 6);
        for (uint32_t i = 0; i < 6; i++) {
            expect(&queues->near.done[i], i % 2 ? NIC_COMPARE_SWAP : NIC_FETCH_ADD, i);
            assert_int_equal(queues->near.done[i].token, value);
            value = i == 1 ? UINT64_C(1) << 40 : i % 2 ? value : value + 5 + round;
        }
        assert_int_equal(*word, value);
    }
}

void test_queue_nop(void **state)
{
    struct queues *queues = *state;
    make(queues);
    struct nic_work work = queues_work(queues, NIC_NOP, 0, 9);
    queues_post(queues, &work, 0, 0);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    expect(&queues->near.done[0], NIC_NOP, 9);
    queues_expect_silence(&queues->far);
}

/* A WRITE behind a READ changes what the READ has still to bring, unless it has a fence. */
void test_queue_fence(void **state)
{
    struct queues *queues = *state;
    make(queues);
    for (uint32_t round = 0; round < 20; round++) {
        struct nic_work read = queues_work(queues, NIC_READ, 0, 1);
        struct nic_work write = queues_work(queues, NIC_WRITE, NIC_WORK_FENCE, 2);
        queues->near.count = 0;
        write.remote_address += 300000;
        memset(queues->target, (int)round, 200000);
        queues_post(queues, &read, 0, 200000);
        queues_post(queues, &write, 199990, 10); /* what the READ brings there */
        queues_ring(queues->sender);
        queues_wait(&queues->near, 2);
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(queues->target[300000 + i], (uint8_t)round);
        }
    }
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void write_some(struct queues *queues, uint32_t count, uint32_t signaled_each)
{
    for (uint32_t i = 0; i < count; i++) {
        bool signal = signaled_each && i % signaled_each == signaled_each - 1;
        struct nic_work work =
            queues_work(queues, NIC_WRITE, NIC_WORK_INLINE | (signal ? NIC_WORK_SIGNAL : 0), i);
        queues_post(queues, &work, i, 8);
    }
    queues_ring(queues->sender);
}

/* Every op completes, in order; one CQE tells it of all of a submit. */
void test_queue_dense(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.sends = 128;
    queues_make(queues, &near, &far);
    write_some(queues, 20, 0);
    queues_wait(&queues->near, 20);
    for (uint32_t i = 0; i < 20; i++) {
        expect(&queues->near.done[i], NIC_WRITE, i);
        assert_int_equal(queues->near.done[i].flags & NIC_DONE_DETAIL,
                         i == 19 ? NIC_DONE_DETAIL : 0);
    }
    assert_int_equal(queues->sender->stats.signaled, 1);
    /* One alone, and one that asks. */
    write_some(queues, 1, 0);
    queues_wait(&queues->near, 21);
    assert_true(queues->near.done[20].flags & NIC_DONE_DETAIL);
    write_some(queues, 9, 3);
    queues_wait(&queues->near, 30);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(queues->near.done[21 + i].flags & NIC_DONE_DETAIL,
                         i % 3 == 2 ? NIC_DONE_DETAIL : 0);
    }
    assert_int_equal(queues->sender->stats.signaled, 5);
    queues_expect_silence(&queues->near);
}

/* Only those that ask, and room comes back all the same. */
void test_queue_sparse(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.table = NIC_TABLE_SPARSE;
    queues_make(queues, &near, &far);
    write_some(queues, 20, 7);
    queues_wait(&queues->near, 2);
    assert_int_equal(queues->near.done[0].user_data, 6);
    assert_int_equal(queues->near.done[1].user_data, 13);
    queues_expect_silence(&queues->near);
    struct nic_work work = queues_work(queues, NIC_WRITE, 0, 5);
    struct nic_piece piece = queues_near(queues, 0, 8);
    for (uint32_t i = 0; i < 3000; i++) {
        while (!queues_post_pieces(queues->sender, &work, &piece, 1)) {
            queues_ring(queues->sender);
            queues_poll(&queues->near);
        }
    }
    work.flags = NIC_WORK_SIGNAL;
    work.user_data = 99;
    while (!queues_post_pieces(queues->sender, &work, &piece, 1)) {
        queues_ring(queues->sender);
        queues_poll(&queues->near);
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, 3);
    assert_int_equal(queues->near.done[2].user_data, 99);
    assert_int_equal(nic_queue_send_room(queues->sender), queues->sender->sends.mask + 1);
}

/* Receives that fill every poll do not keep the completions of sends back. */
void test_queue_fair(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    struct nic_piece nothing = {0};
    struct nic_work write = {.opcode = NIC_WRITE_IMMEDIATE, .user_data = 7};
    struct nic_work send = queues_work(queues, NIC_SEND, 0, 1);
    queues_make(queues, &near, &far);
    queues_receive(queues->sender, queues, 50, 1, 0);
    queues_receive(queues->receiver, queues, 0, 8, 64);
    assert_true(queues_post_pieces(queues->receiver, &write, &nothing, 0));
    queues_ring(queues->receiver);
    queues_wait(&queues->near, 1);
    for (uint32_t i = 0; i < 8; i++) {
        queues_post(queues, &send, 0, 8);
    }
    queues_ring(queues->sender);
    queues_wait(&queues->near, 9);
    queues_expect_silence(&queues->near); /* the far one has nine completions now */
    queues->far.capacity = 1;
    queues_poll(&queues->far);
    queues_poll(&queues->far);
    assert_int_equal(queues->far.count, 2);
    assert_int_equal(queues->far.done[0].method, NIC_RECEIVE);
    expect(&queues->far.done[1], NIC_WRITE_IMMEDIATE, 7);
    queues_wait(&queues->far, 9);
}

void test_queue_unordered(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.table = NIC_TABLE_UNORDERED;
    queues_make(queues, &near, &far);
    for (uint32_t round = 0; round < 50; round++) {
        queues->near.count = 0;
        write_some(queues, 30, 0);
        queues_wait(&queues->near, 30);
        uint32_t seen = 0;
        for (uint32_t i = 0; i < 30; i++) { /* a device keeps their order, the in-memory NIC not */
            seen |= 1u << queues->near.done[i].user_data;
            assert_true(queues->near.done[i].flags & NIC_DONE_DETAIL);
        }
        assert_int_equal(seen, (1u << 30) - 1);
    }
    assert_int_equal(queues->sender->stats.signaled, 1500);
}

/* However small the array, each op is reported once. */
void test_queue_small_polls(void **state)
{
    static const uint32_t capacities[] = {1, 2, 3, 7};
    struct queues *queues = *state;
    make(queues);
    for (uint32_t k = 0; k < 4; k++) {
        queues->near.capacity = queues->far.capacity = capacities[k];
        queues->near.count = queues->far.count = 0;
        queues_receive(queues->receiver, queues, 100, 10, 64);
        for (uint32_t i = 0; i < 30; i++) {
            struct nic_work work =
                queues_work(queues, i % 3 ? NIC_WRITE : NIC_SEND, NIC_WORK_INLINE, i);
            queues_post(queues, &work, i, 8);
        }
        queues_ring(queues->sender);
        queues_wait(&queues->near, 30);
        queues_wait(&queues->far, 10);
        for (uint32_t i = 0; i < 30; i++) {
            expect(&queues->near.done[i], i % 3 ? NIC_WRITE : NIC_SEND, i);
        }
        for (uint32_t i = 0; i < 10; i++) {
            expect(&queues->far.done[i], NIC_RECEIVE, 100 + i);
        }
    }
    queues->near.capacity = queues->far.capacity = 64;
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* The largest ops fit as often as was asked for, wherever the ring's end is. */
void test_queue_room(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    make(queues);
    struct nic_piece largest = queues_near(queues, 0, 100);
    struct nic_piece small = queues_near(queues, 0, 1);
    struct nic_work work = queues_work(queues, NIC_WRITE, NIC_WORK_INLINE, 0);
    for (uint32_t round = 0; round < 100; round++) {
        queues->near.count = 0;
        uint32_t posted = 0;
        for (uint32_t i = 0; i < round % 5; i++) { /* moves the ring's end */
            assert_true(queues_post_pieces(queues->sender, &work, &small, 1));
            posted++;
        }
        queues_ring(queues->sender);
        queues_wait(&queues->near, posted);
        for (uint32_t i = 0; i < 32; i++) {
            assert_true(queues_post_pieces(queues->sender, &work, &largest, 1));
            posted++;
        }
        while (queues_post_pieces(queues->sender, &work, &largest, 1)) {
            posted++;
        }
        assert_false(queues_post_pieces(queues->sender, &work, &largest, 1));
        queues_ring(queues->sender);
        queues_wait(&queues->near, posted);
        assert_int_equal(nic_queue_send_room(queues->sender), queues->sender->sends.mask + 1);
    }
    /* Receives likewise. */
    uint32_t open = 0;
    struct nic_piece place = queues_far(queues, 0, 8);
    while (operations->receive(queues->receiver, open, &place, 1)) {
        open++;
    }
    assert_true(open >= 16 && open == queues->receiver->receives_max);
    assert_int_equal(queues->receiver->receives_open, open);
}

/* With ops of the size that capi has by default, all that may be asked for fits on every device. */
void test_queue_deep(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    struct nic_queue_options options = queues_options();
    struct nic_work work = queues_work(queues, NIC_WRITE, NIC_WORK_INLINE, 0);
    struct nic_piece piece = queues_near(queues, 0, 60);
    options.sends = options.receives = NIC_QUEUE_DEPTH_MAX;
    options.send_pieces = options.receive_pieces = 1;
    options.inline_bytes = 60;
    queues_make(queues, &options, &options);
    for (uint32_t i = 0; i < NIC_QUEUE_DEPTH_MAX; i++) {
        work.user_data = i;
        assert_true(queues_post_pieces(queues->sender, &work, &piece, 1));
    }
    queues_ring(queues->sender);
    for (uint32_t first = 0; first < NIC_QUEUE_DEPTH_MAX; first += QUEUES_DONE_MAX) {
        queues->near.count = 0;
        queues_wait(&queues->near, QUEUES_DONE_MAX); /* more are not kept */
        for (uint32_t i = 0; i < QUEUES_DONE_MAX; i++) {
            expect(&queues->near.done[i], NIC_WRITE, first + i);
        }
    }
    for (uint32_t i = 0; i < NIC_QUEUE_DEPTH_MAX; i++) {
        assert_true(operations->receive(queues->receiver, i, &piece, 1));
    }
}

/* Of longer ops fewer can fit. Then the error says what was too much, or how much is not. */
void test_queue_too_deep(void **state)
{
    struct queues *queues = *state;
    struct nic *nic = queues->near.nic;
    struct nic_queue_options options = queues_options();
    struct nic_queue *queue;
    crpc_error error = {.struct_size = sizeof(error)};
    uint32_t fits;
    options.sends = NIC_QUEUE_DEPTH_MAX;
    options.inline_bytes = NIC_QUEUE_INLINE_MAX;
    if (nic->operations->queues->create(nic, NULL, &options, &queue, &error) == CRPC_OK) {
        queues_end(queue);
        return;
    }
    const char *room = strstr(error.message, "at most ");
    assert_non_null(strstr(error.message, "8192"));
    if (room && sscanf(room, "at most %u", &fits) == 1) {
        assert_int_equal(error.status, CRPC_E_NO_RESOURCE);
        options.sends = fits + 1;
        assert_int_equal(nic->operations->queues->create(nic, NULL, &options, &queue, &error),
                         CRPC_E_NO_RESOURCE);
        options.sends = fits;
        queues_end(queues_create(nic, &options));
    }
}

/* All counters run over: 16 bits of the device's, and the rings. */
void test_queue_wrap(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    uint64_t random = 5, posted = 0, sent = 0, done = 0, received = 0, offered = 0;
    make(queues);
    while (done < 70000) {
        while (offered - received < 16) {
            struct nic_piece place = queues_far(queues, 4096 + offered % 16 * 128, 128);
            assert_true(operations->receive(queues->receiver, offered++, &place, 1));
        }
        queues_ring(queues->receiver);
        for (uint32_t i = 0; i < 20; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bool message = random >> 60 == 0 && sent < offered;
            struct nic_piece piece =
                queues_near(queues, random >> 40 & 255, (uint32_t)(random >> 33 & 127) % 100 + 1);
            struct nic_work work = queues_work(queues, message ? NIC_SEND : NIC_WRITE,
                                               random >> 50 & 1 ? NIC_WORK_INLINE : 0, posted);
            if (!queues_post_pieces(queues->sender, &work, &piece, 1)) {
                break;
            }
            posted++;
            sent += message;
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
        }
    }
    assert_true(received > 1000 && queues->sender->sends.producer > 65536);
    print_message("# %llu ops, %llu messages, %llu CQEs, %llu doorbells\n",
                  (unsigned long long)posted, (unsigned long long)received,
                  (unsigned long long)queues->sender->stats.signaled,
                  (unsigned long long)queues->sender->stats.doorbells);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static bool readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (uint32_t i = 0; i < PAIR_WAIT_S * 1000 && poll(&wait, 1, 1) == 0; i++) {
        pair_pass(0);
    }
    return wait.revents & POLLIN;
}

void test_queue_arm(void **state)
{
    struct queues *queues = *state;
    const struct nic_operations *operations = queues->near.nic->operations;
    make(queues);
    for (uint32_t i = 0; i < 100; i++) {
        struct nic_work work = queues_work(queues, NIC_SEND, 0, i);
        queues->near.count = queues->far.count = 0;
        queues_receive(queues->receiver, queues, i, 1, 64);
        assert_int_equal(operations->arm(queues->near.nic), 0);
        assert_int_equal(operations->arm(queues->far.nic), 0);
        queues_poll(&queues->near);
        queues_poll(&queues->far);
        assert_int_equal(queues->near.count + queues->far.count, 0);
        queues_post(queues, &work, 0, 8);
        queues_ring(queues->sender);
        assert_true(readable(queues->far.nic->event_fd));
        assert_true(readable(queues->near.nic->event_fd));
        operations->disarm(queues->near.nic);
        operations->disarm(queues->far.nic);
        queues_wait(&queues->near, 1);
        queues_wait(&queues->far, 1);
    }
}

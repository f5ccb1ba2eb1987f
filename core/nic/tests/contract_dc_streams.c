/* contract_dc_streams.c: what every driver does with the streams of a DCI, if its device has them. Where it has not,
 * nic_vm_test.c leaves these tests out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "dc.h"

#define STREAMS DC_STREAMS

static struct dc make(struct queues *queues)
{
    struct nic_queue_options options = dc_initiator(STREAMS);
    struct dc dc = dc_make(queues, &options);
    assert_int_equal(queues->sender->streams, STREAMS);
    assert_int_equal(queues->sender->stream_failures_max, 1);
    return dc;
}

static int32_t reset(struct nic_queue *queue, uint16_t stream, crpc_error *error)
{
    return queue->nic->operations->queues->reset_stream(queue, stream, error);
}

/* Polls for `count` completions of ops whose user data begins with the stream, and returns their statuses by the
 * rest of it. They come in the order of their stream. */
static void wait_streams(struct queues *queues, uint32_t count, int32_t statuses[STREAMS][16])
{
    uint32_t next[STREAMS] = {0};
    queues->near.count = 0;
    queues_wait(&queues->near, count);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *done = &queues->near.done[i];
        const uint32_t stream = (uint32_t)done->user_data / 16;
        assert_true(stream < STREAMS);
        assert_int_equal(done->method, NIC_WRITE);
        assert_true(done->flags & NIC_DONE_DETAIL);
        assert_int_equal(done->user_data % 16, next[stream]);
        statuses[stream][next[stream]++] = done->status;
    }
}

static void write_in(const struct dc *dc, uint16_t stream, uint32_t number, bool wrong)
{
    dc_write(dc, dc->target, stream, 0, stream * 16u + number,
             dc->queues->target_keys.remote_key ^ (wrong ? 0x5500u : 0));
}

/* The ops of each stream in their order, each once; counters run over. */
void test_dc_streams(void **state)
{
    struct queues *queues = *state;
    struct dc dc = make(queues);
    int32_t statuses[STREAMS][16];
    for (uint32_t round = 0; round < 1500; round++) {
        memset(queues->target, 0xaa, 2048);
        for (uint32_t i = 0; i < 32; i++) {
            write_in(&dc, (uint16_t)(i * 5 % STREAMS), i / STREAMS, false);
            if (i % 11 == round % 11) {
                queues_ring(queues->sender);
            }
        }
        queues_ring(queues->sender);
        wait_streams(queues, 32, statuses);
        for (uint32_t stream = 0; stream < STREAMS; stream++) {
            for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(statuses[stream][i], CRPC_OK);
            }
            assert_memory_equal(queues->target + stream * 256, queues->source + stream * 256, 64);
        }
    }
    assert_int_equal(nic_queue_send_room(queues->sender), queues->sender->sends.mask + 1);
    assert_false(queues->sender->failed);
    dc_end(&dc);
}

/* A stream that fails ends its own ops alone, and can be used again when it was reset. */
void test_dc_stream_errors(void **state)
{
    struct queues *queues = *state;
    struct dc dc = make(queues);
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t statuses[STREAMS][16];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            for (uint16_t stream = 0; stream < STREAMS; stream++) {
                write_in(&dc, stream, i, stream == 5 && i == 1);
            }
        }
        assert_int_equal(reset(queues->sender, 5, &error), CRPC_E_STATE);
        assert_non_null(strstr(error.message, "stream 5 has ops that have not completed"));
        queues_ring(queues->sender);
        wait_streams(queues, 3 * STREAMS, statuses);
        for (uint32_t stream = 0; stream < STREAMS; stream++) {
            assert_int_equal(statuses[stream][0], CRPC_OK);
            assert_int_equal(statuses[stream][1], stream == 5 ? -NIC_ERROR_REMOTE_ACCESS : CRPC_OK);
            assert_int_equal(statuses[stream][2], stream == 5 ? -NIC_ERROR_FLUSHED : CRPC_OK);
        }
        assert_int_equal(queues->sender->streams_failed, 1);
        assert_false(queues->sender->failed);
        write_in(&dc, 5, 0, false); /* flushed, too */
        write_in(&dc, 6, 0, false);
        queues_ring(queues->sender);
        wait_streams(queues, 2, statuses);
        assert_int_equal(statuses[5][0], -NIC_ERROR_FLUSHED);
        assert_int_equal(statuses[6][0], CRPC_OK);
        assert_int_equal(reset(queues->sender, 4, &error), CRPC_OK); /* has not failed */
        assert_int_equal(reset(queues->sender, 5, &error), CRPC_OK);
        assert_int_equal(queues->sender->streams_failed, 0);
        write_in(&dc, 5, 0, false);
        queues_ring(queues->sender);
        wait_streams(queues, 1, statuses);
        assert_int_equal(statuses[5][0], CRPC_OK);
    }
    dc_end(&dc);
}

/* Stream 0 has failed. The others go on, with ops of several lengths, wherever these lie in the ring. */
void test_dc_stream_wrap(void **state)
{
    struct queues *queues = *state;
    struct dc dc = make(queues);
    write_in(&dc, 0, 0, true);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    assert_int_equal(queues->near.done[0].status, -NIC_ERROR_REMOTE_ACCESS);
    for (uint32_t i = 0; i < 6000; i++) {
        const uint16_t stream = (uint16_t)(1 + i % (STREAMS - 1));
        if (i * 2654435761u >> 31) { /* in no order that a lap of the ring could be a multiple of */
            const struct nic_work nop = {.opcode = NIC_NOP, .stream = stream, .user_data = i};
            assert_true(queues_post_to(queues->sender, &nop, dc.target, NULL, 0));
        } else {
            write_in(&dc, stream, i % 4, false);
        }
        if (i % 8 == 7) {
            queues_ring(queues->sender);
            queues->near.count = 0;
            queues_wait(&queues->near, 8);
            for (uint32_t k = 0; k < 8; k++) {
                assert_int_equal(queues->near.done[k].status, CRPC_OK);
            }
            assert_false(queues->sender->failed);
        }
    }
    assert_int_equal(queues->sender->streams_failed, 1);
    dc_end(&dc);
}

/* More than were allowed: the queue fails. What is open is flushed, in all streams. */
void test_dc_streams_fail(void **state)
{
    struct queues *queues = *state;
    struct dc dc = make(queues);
    int32_t statuses[STREAMS][16];
    write_in(&dc, 1, 0, true);
    queues_ring(queues->sender);
    wait_streams(queues, 1, statuses);
    assert_int_equal(statuses[1][0], -NIC_ERROR_REMOTE_ACCESS);
    assert_false(queues->sender->failed);
    write_in(&dc, 7, 0, true);
    write_in(&dc, 7, 1, false);
    write_in(&dc, 1, 0, false);
    queues_ring(queues->sender);
    wait_streams(queues, 3, statuses);
    assert_int_equal(statuses[7][0], -NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(statuses[7][1], -NIC_ERROR_FLUSHED);
    assert_int_equal(statuses[1][0], -NIC_ERROR_FLUSHED);
    assert_true(queues->sender->failed);
    assert_int_equal(queues->sender->streams_failed, 2);
    queues_expect_silence(&queues->near);
    dc_end(&dc);
}

/* Flushed, or stopped, with ops open in several streams. */
void test_dc_streams_end(void **state)
{
    struct queues *queues = *state;
    struct dc dc = make(queues);
    const struct nic_queue_operations *operations = queues->near.nic->operations->queues;
    for (uint32_t stop = 0; stop < 2; stop++) {
        uint64_t seen = 0;
        for (uint32_t i = 0; i < 20; i++) {
            struct nic_work work = queues_work(queues, NIC_SEND, 0, i); /* finds no receive */
            struct nic_piece piece = queues_near(queues, 0, 100);
            work.stream = (uint16_t)(i % STREAMS);
            assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
        }
        queues_ring(queues->sender);
        queues->near.count = 0;
        if (stop) {
            operations->stop(queues->sender);
            queues->near.count = nic_queue_take_ended(queues->sender, queues->near.done, 100);
        } else {
            operations->flush(queues->sender);
            queues_wait(&queues->near, 20);
            assert_true(queues->sender->failed);
        }
        assert_int_equal(queues->near.count, 20);
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(queues->near.done[i].status, -NIC_ERROR_FLUSHED);
            seen |= 1u << queues->near.done[i].user_data;
        }
        assert_int_equal(seen, (1u << 20) - 1);
        queues_end(queues->sender);
        struct nic_queue_options options = dc_initiator(STREAMS);
        queues->sender = queues_create(queues->near.nic, &options);
    }
    dc_end(&dc);
}

/* Limits: as many streams as there are, and as many failures as devices can count. */
void test_dc_stream_limits(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = dc_initiator(queues->near.nic->streams_max);
    static const uint32_t asked[] = {0, 1, 2, 3, 4};
    static const uint32_t granted[] = {0, 1, 3, 3, 7};
    struct dc dc = dc_make(queues, &options);
    struct nic_work work = queues_work(queues, NIC_WRITE, 0, 1);
    struct nic_piece piece = queues_near(queues, 0, 100);
    work.stream = (uint16_t)(options.streams - 1);
    assert_true(queues_post_to(queues->sender, &work, dc.target, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    assert_int_equal(queues->near.done[0].status, CRPC_OK);
    for (uint32_t i = 0; i < 5; i++) {
        options.streams = 1 + i;
        options.stream_failures_max = asked[i];
        struct nic_queue *queue = queues_create(queues->near.nic, &options);
        assert_int_equal(queue->stream_failures_max, granted[i]);
        queues_end(queue);
    }
    options.stream_failures_max = UINT32_MAX;
    struct nic_queue *most = queues_create(queues->near.nic, &options);
    assert_in_range(most->stream_failures_max, 0, (1u << 16) - 1);
    assert_int_equal(most->stream_failures_max & (most->stream_failures_max + 1), 0);
    queues_end(most);
    dc_end(&dc);
}

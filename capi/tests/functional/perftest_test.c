/* perftest_test.c: ib_write_bw, ib_read_bw and ib_send_bw with -R, as the distribution has them, whose server is a
 * program of this library.
 *
 * A perftest client connects twice. Over the first connection the two sides tell each other what they
 * are: their version, sizes, and in 56 bytes, big-endian, where they may be written to (64 bytes since
 * version 26.04, with the same beginning). The second is the one that is measured. A server that answers
 * each message with the same is as good as any, if it puts its own address and key where the client's
 * are. At the end the client tells its address again, and waits for the server to disconnect what was
 * measured; versions before 24.01 do that themselves. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "foreign.h"
#include "place.h"

#define MESSAGE_BYTES 4096u
#define MESSAGES 1000u
#define RECEIVES 512u
#define ADDRESS_BYTES 56u
#define ADDRESS_BYTES_LATER 64u
#define ADDRESS_KEY 16 /* offsets in it */
#define ADDRESS_ADDRESS 24
#define REPORT_BYTES 8u /* of what a client of ib_write_bw or ib_read_bw has measured */
#define CONNECTIONS 2

static struct memory {
    uint8_t received[CONNECTIONS][RECEIVES][MESSAGE_BYTES];
    uint8_t answer[MESSAGE_BYTES];
    uint8_t target[2 * MESSAGE_BYTES]; /* what is written, or read */
} memory;

static uint32_t remote_key;
static crpc_queue queues[CONNECTIONS];
static uint32_t queue_count;
static uint32_t measured; /* messages that came over the second */
static bool reported;

static int open_context(void **state)
{
    (void)state;
    crpc_region_info info = {.struct_size = sizeof(info)};
    foreign_open(&memory, sizeof(memory),
                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ);
    assert_int_equal(crpc_region_get_info(context, region, &info), CRPC_OK);
    remote_key = info.remote_key;
    queue_count = measured = 0;
    reported = false;
    memset(memory.target, 0, sizeof(memory.target));
    return 0;
}

static void submit(crpc_queue queue, uint8_t opcode, uint64_t user_data, void *local,
                   uint32_t bytes)
{
    const crpc_queue_op op = {.opcode = opcode,
                              .user_data = user_data,
                              .region = region,
                              .address = (uint64_t)(uintptr_t)local,
                              .bytes = bytes};
    foreign_submit(queue, &op);
}

static void accept_one(crpc_queue queue)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .receives = RECEIVES,
                                        .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    assert_true(queue_count < CONNECTIONS);
    foreign_need(crpc_queue_accept(context, queue, &options, &error), &error);
    queues[queue_count] = queue;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        submit(queue, CRPC_QUEUE_RECEIVE, i, memory.received[queue_count][i], MESSAGE_BYTES);
    }
    queue_count++;
}

static void answer(const uint8_t *message, uint32_t bytes)
{
    const uint32_t key = htobe32(remote_key);
    const uint64_t address = htobe64((uint64_t)(uintptr_t)memory.target);
    const bool tells_address = bytes == ADDRESS_BYTES || bytes == ADDRESS_BYTES_LATER;
    memcpy(memory.answer, message, bytes);
    if (tells_address) {
        memcpy(memory.answer + ADDRESS_KEY, &key, sizeof(key));
        memcpy(memory.answer + ADDRESS_ADDRESS, &address, sizeof(address));
    }
    submit(queues[0], CRPC_QUEUE_SEND, 0, memory.answer, bytes);
    reported = reported || bytes == REPORT_BYTES;
    if (tells_address && (reported || measured > 0)) {
        crpc_queue_close(context, queues[1]);
    }
}

static void take(const crpc_completion *done)
{
    const crpc_queue queue = {done->endpoint.bits};
    if (done->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        accept_one(queue);
    }
    if (done->kind != CRPC_COMPLETION_WORK || done->method != CRPC_QUEUE_RECEIVE ||
        done->status != CRPC_OK) {
        return;
    }
    uint8_t *message = memory.received[queue.bits == queues[1].bits][done->user_data];
    if (queue.bits == queues[0].bits) {
        answer(message, done->payload_bytes);
    } else {
        assert_int_equal(done->payload_bytes, MESSAGE_BYTES);
        measured++;
    }
    int32_t reason; /* it may have ended meanwhile */
    const crpc_queue_op again = {.opcode = CRPC_QUEUE_RECEIVE,
                                 .user_data = done->user_data,
                                 .region = region,
                                 .address = (uint64_t)(uintptr_t)message,
                                 .bytes = MESSAGE_BYTES};
    crpc_queue_submit(context, queue, &again, 1, NULL, 0, &reason);
}

static void start(const char *name)
{
    char port[FOREIGN_PORT_BYTES], bytes[8], messages[8];
    foreign_listen(port);
    snprintf(bytes, sizeof(bytes), "%u", MESSAGE_BYTES);
    snprintf(messages, sizeof(messages), "%u", MESSAGES);
    foreign_start((const char *const[]){name, "-R", "-F", "-n", messages, "-s", bytes, "-p", port,
                                        place_address(0), NULL});
}

static int32_t serve_once(void)
{
    crpc_completion done[16];
    int32_t count = crpc_poll(context, done, 16);
    assert_true(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        take(&done[i]);
    }
    return count;
}

/* Serves until the program has ended, which must be with status 0. */
static void serve(const char *name)
{
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    int status;
    start(name);
    while ((status = foreign_ended()) < 0) {
        assert_true(time(NULL) < end);
        if (serve_once() == 0) {
            crpc_wait(context, 10000000);
        }
    }
    while (serve_once() > 0) { /* what came before it ended */
    }
    assert_int_equal(status, 0);
    assert_int_equal(queue_count, CONNECTIONS);
}

static bool target_is_zero(void)
{
    for (uint32_t i = 0; i < sizeof(memory.target); i++) {
        if (memory.target[i] != 0) {
            return false;
        }
    }
    return true;
}

static void ib_write_bw(void **state)
{
    (void)state;
    serve("ib_write_bw");
    assert_false(target_is_zero());
}

static void ib_read_bw(void **state)
{
    (void)state;
    serve("ib_read_bw");
    assert_true(target_is_zero());
}

static void ib_send_bw(void **state)
{
    (void)state;
    serve("ib_send_bw");
    assert_int_equal(measured, MESSAGES);
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_context, foreign_close)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(ib_write_bw),
        OVER_DEVICE(ib_read_bw),
        OVER_DEVICE(ib_send_bw),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    foreign_leave_out(tests, count, "ib_", "ib_write_bw", "perftest");
    return foreign_run(tests, count);
}

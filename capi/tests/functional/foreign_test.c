/* foreign_test.c: queues whose peers are programs that know nothing of this library: rping and rdma_client of
 * librdmacm, as the distribution has them. Each is the connecting side once, and rping also the one that
 * listens.
 *
 * What rping does (its source calls it a "ping"): the client tells the server where its data is, in 16
 * bytes, big-endian. The server reads it, and says so. The client tells it where the data may go. The
 * server writes it, and says so. The client compares. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "foreign.h"
#include "place.h"

#define KEPT_MAX 64
#define PINGS 100
#define PING_BYTES 3000u
#define RPING_PORT "7174"

struct ping {
    uint64_t address; /* big-endian, as the rest */
    uint32_t key;
    uint32_t bytes;
};

static struct memory {
    struct ping sent, received;
    uint8_t data[PING_BYTES], back[PING_BYTES];
} memory;

static crpc_region_info region_info;
static crpc_queue queue;
static crpc_completion taken; /* the last */
static crpc_completion kept[KEPT_MAX];
static uint32_t kept_count;

/* ---- Our side -------------------------------------------------------------------------------- */

static int open_context(void **state)
{
    (void)state;
    foreign_open(&memory, sizeof(memory),
                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ);
    region_info.struct_size = sizeof(region_info);
    assert_int_equal(crpc_region_get_info(context, region, &region_info), CRPC_OK);
    kept_count = 0;
    return 0;
}

static bool take_kept(uint8_t kind, uint16_t opcode)
{
    for (uint32_t i = 0; i < kept_count; i++) {
        if (kept[i].kind == kind && kept[i].method == opcode) {
            taken = kept[i];
            kept_count--;
            memmove(&kept[i], &kept[i + 1], (kept_count - i) * sizeof(kept[0]));
            return true;
        }
    }
    return false;
}

/* Polls until something of this kind comes, or if it is WORK, of this opcode. The peer's next message can
 * come before our own op completes. */
static void await(uint8_t kind, uint16_t opcode)
{
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    while (!take_kept(kind, opcode)) {
        int32_t count = crpc_poll(context, &kept[kept_count], KEPT_MAX - kept_count);
        assert_true(count >= 0);
        kept_count += (uint32_t)count;
        if (time(NULL) >= end) {
            fail_msg("completion %u of opcode %u did not come in %d s", kind, opcode,
                     FOREIGN_SECONDS_MAX);
        }
        if (count == 0) {
            crpc_wait(context, 10000000);
        }
    }
    if (taken.kind == CRPC_COMPLETION_WORK && taken.status != CRPC_OK) {
        fail_msg("opcode %u: %s", opcode, crpc_status_name(taken.status));
    }
}

static void await_event(uint8_t kind)
{
    await(kind, 0);
}

static void submit(uint8_t opcode, void *local, uint32_t bytes, const struct ping *remote)
{
    const crpc_queue_op op = {.opcode = opcode,
                              .region = region,
                              .address = (uint64_t)(uintptr_t)local,
                              .bytes = bytes,
                              .remote_key = remote ? be32toh(remote->key) : 0,
                              .remote_address = remote ? be64toh(remote->address) : 0};
    foreign_submit(queue, &op);
}

static void receive(void)
{
    submit(CRPC_QUEUE_RECEIVE, &memory.received, sizeof(memory.received), NULL);
}

/* Does it, and waits for it. */
static void run(uint8_t opcode, void *local, uint32_t bytes, const struct ping *remote)
{
    submit(opcode, local, bytes, remote);
    await(CRPC_COMPLETION_WORK, opcode);
}

static void send_ping(const void *where)
{
    memory.sent = (struct ping){htobe64((uint64_t)(uintptr_t)where),
                                htobe32(region_info.remote_key), htobe32(PING_BYTES)};
    run(CRPC_QUEUE_SEND, &memory.sent, sizeof(memory.sent), NULL);
}

static const crpc_queue_options options = {
    .struct_size = sizeof(options), .receives = 16, .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};

static void accept_one(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    await_event(CRPC_COMPLETION_CONNECT_REQUEST);
    queue.bits = taken.endpoint.bits;
    foreign_need(crpc_queue_accept(context, queue, &options, &error), &error);
    receive();
}

static void expect_good_end(void)
{
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    int status;
    while ((status = foreign_ended()) < 0) {
        assert_true(time(NULL) < end);
        crpc_poll(context, &taken, 1);
    }
    assert_int_equal(status, 0);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void rping_connects(void **state)
{
    (void)state;
    char port[FOREIGN_PORT_BYTES], count[8], bytes[8];
    foreign_listen(port);
    snprintf(count, sizeof(count), "%d", PINGS);
    snprintf(bytes, sizeof(bytes), "%u", PING_BYTES);
    foreign_start((const char *const[]){"rping", "-c", "-v", "-V", "-C", count, "-S", bytes, "-a",
                                        place_address(0), "-p", port, NULL});
    accept_one();
    await_event(CRPC_COMPLETION_CONNECTED);
    assert_int_equal(taken.status, CRPC_OK);
    for (int i = 0; i < PINGS; i++) {
        await(CRPC_COMPLETION_WORK, CRPC_QUEUE_RECEIVE);
        assert_int_equal(taken.payload_bytes, sizeof(struct ping));
        struct ping there = memory.received;
        assert_int_equal(be32toh(there.bytes), PING_BYTES);
        receive();
        run(CRPC_QUEUE_READ, memory.data, PING_BYTES, &there);
        assert_memory_equal(memory.data, "rdma-ping-", 10);
        run(CRPC_QUEUE_SEND, &memory.sent, sizeof(memory.sent), NULL);
        await(CRPC_COMPLETION_WORK, CRPC_QUEUE_RECEIVE);
        there = memory.received;
        receive();
        run(CRPC_QUEUE_WRITE, memory.data, PING_BYTES, &there);
        run(CRPC_QUEUE_SEND, &memory.sent, sizeof(memory.sent), NULL);
    }
    expect_good_end();
}

static void rping_listens(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    char bytes[8];
    snprintf(bytes, sizeof(bytes), "%u", PING_BYTES);
    foreign_start((const char *const[]){"rping", "-s", "-v", "-V", "-S", bytes, "-a",
                                        place_address(0), "-p", RPING_PORT, NULL});
    for (;;) { /* nothing tells when it listens */
        assert_true(time(NULL) < end);
        foreign_need(crpc_queue_connect(context, place_at(0, RPING_PORT), &options, &queue, &error),
                     &error);
        receive();
        await_event(CRPC_COMPLETION_CONNECTED);
        if (taken.status == CRPC_OK) {
            break;
        }
        assert_int_equal(taken.status, CRPC_E_REFUSED);
        assert_int_equal(crpc_queue_close(context, queue), CRPC_OK);
        while (crpc_poll(context, &taken, 1) > 0) { /* the receive */
        }
        kept_count = 0;
        usleep(20000);
    }
    for (int i = 0; i < PINGS; i++) {
        for (uint32_t j = 0; j + 1 < PING_BYTES; j++) {
            memory.data[j] = (uint8_t)('a' + ((uint32_t)i + j) % 26);
        }
        memory.data[PING_BYTES - 1] = 0; /* rping writes back a string */
        memset(memory.back, 0, PING_BYTES);
        send_ping(memory.data);
        await(CRPC_COMPLETION_WORK, CRPC_QUEUE_RECEIVE);
        receive();
        send_ping(memory.back);
        await(CRPC_COMPLETION_WORK, CRPC_QUEUE_RECEIVE);
        receive();
        assert_memory_equal(memory.data, memory.back, PING_BYTES);
    }
    assert_int_equal(crpc_queue_drain(context, queue, CRPC_FOREVER), CRPC_OK);
    await_event(CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(taken.status, CRPC_OK);
    const time_t patience = time(NULL) + FOREIGN_SECONDS_MAX;
    while (foreign_ended() < 0) { /* with the status of a server whose client has gone */
        assert_true(time(NULL) < patience);
        usleep(10000);
    }
}

/* It sends 16 bytes, and expects as many. */
static void rdma_client_connects(void **state)
{
    (void)state;
    char port[FOREIGN_PORT_BYTES];
    foreign_listen(port);
    foreign_start((const char *const[]){"rdma_client", "-s", place_address(0), "-p", port, NULL});
    accept_one();
    await(CRPC_COMPLETION_WORK, CRPC_QUEUE_RECEIVE);
    assert_int_equal(taken.payload_bytes, 16);
    run(CRPC_QUEUE_SEND, &memory.received, 16, NULL);
    expect_good_end();
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_context, foreign_close)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(rping_connects),
        OVER_DEVICE(rping_listens),
        OVER_DEVICE(rdma_client_connects),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    foreign_leave_out(tests, count, "rping", "rping", "rdmacm-utils");
    foreign_leave_out(tests, count, "rdma_client", "rdma_client", "rdmacm-utils");
    return foreign_run(tests, count);
}

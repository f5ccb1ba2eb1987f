/* ucx_tags_test.c: ucx_perftest -t tag_bw and tag_lat, whose RC transport has a TM-SRQ and sends messages with
 * tags (UCX_RC_MLX5_TM_ENABLE), and whose peer is a program of this library: what UCX sends finds its buffers in
 * our TM-SRQ, and what our RC queue sends finds those of UCX. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "foreign.h"
#include "place.h"
#include "ucx_peer.h"
#include "ucx_wireup.h"

#define HEADER ((uint32_t)CRPC_TAG_HEADER_BYTES)
/* Of all messages of ucx_perftest: 0x1337a880. UCX has the bytes of a tag in little-endian order. */
#define TAG UINT64_C(0x80a8371300000000)
#define BYTES_MAX 2048u /* of a message; from 1024 on, UCX gives its buffers to the device */
#define ROUNDS 300u
#define SECONDS_MAX 200 /* UCX polls without a pause, which is slow on a busy machine */
#define BUFFERS 16u     /* with the tag */
#define RECEIVES 128u   /* for what is faster than the buffers, and what has no tag */
#define DATAGRAMS 16u

static struct memory {
    uint8_t matched[BUFFERS][BYTES_MAX];
    uint8_t received[RECEIVES][HEADER + BYTES_MAX];
    uint8_t datagrams[DATAGRAMS][CRPC_QUEUE_HEADER_BYTES + UCX_DATAGRAM_BYTES_MAX];
    uint8_t answers[DATAGRAMS][UCX_DATAGRAM_BYTES_MAX];
    uint8_t sent[HEADER + BYTES_MAX];
} memory;

static crpc_queue srq, datagrams, sender, receiver;
static crpc_target client; /* of datagrams */
static uint32_t bytes;
static bool in_turns, knows_client, joined, has_looked;
static uint32_t answers, connected, barriers, turns;
static uint32_t matched, unmatched; /* messages with the tag */

/* ---- Queues ---------------------------------------------------------------------------------- */

static crpc_queue open_queue(crpc_queue_options options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue = {0};
    options.struct_size = sizeof(options);
    foreign_need(crpc_queue_open(context, &options, &queue, &error), &error);
    return queue;
}

/* The number of its first packet is 0, as that of all RC queue pairs of UCX. */
static crpc_queue open_connection(crpc_queue receive_queue)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .kind = CRPC_QUEUE_KIND_RC,
                                        .flags = CRPC_QUEUE_SEQUENCE_ZERO,
                                        .receive_queue = receive_queue};
    uint8_t unused[CRPC_BLOB_BYTES_MAX];
    uint32_t unused_bytes = sizeof(unused);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue = {0};
    foreign_need(crpc_queue_blob(context, &options, &queue, unused, &unused_bytes, &error), &error);
    return queue;
}

static crpc_queue_address address_of(crpc_queue queue)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(context, queue, &address), CRPC_OK);
    return address;
}

static void submit(crpc_queue queue, uint8_t opcode, uint64_t place, void *local, uint32_t length)
{
    foreign_submit(queue, &(crpc_queue_op){.opcode = opcode,
                                           .user_data = place,
                                           .region = region,
                                           .address = (uint64_t)(uintptr_t)local,
                                           .bytes = length});
}

static void receive(uint64_t place)
{
    submit(srq, CRPC_QUEUE_RECEIVE, place, memory.received[place], sizeof(memory.received[place]));
}

static void receive_datagram(uint64_t place)
{
    submit(datagrams, CRPC_QUEUE_RECEIVE, place, memory.datagrams[place],
           sizeof(memory.datagrams[place]));
}

static void offer(uint64_t place)
{
    foreign_submit(srq, &(crpc_queue_op){.opcode = CRPC_QUEUE_TAG_ADD,
                                         .user_data = place,
                                         .region = region,
                                         .address = (uint64_t)(uintptr_t)memory.matched[place],
                                         .bytes = BYTES_MAX,
                                         .remote_address = TAG,
                                         .operand = UINT64_MAX});
}

static int open_context(void **state)
{
    (void)state;
    foreign_open(&memory, sizeof(memory), CRPC_ACCESS_LOCAL_WRITE);
    srq = open_queue((crpc_queue_options){
        .kind = CRPC_QUEUE_KIND_TM_SRQ, .receives = RECEIVES, .tags = BUFFERS});
    datagrams = open_queue((crpc_queue_options){
        .kind = CRPC_QUEUE_KIND_UD, .receives = DATAGRAMS, .queue_key = UCX_DATAGRAM_KEY});
    sender = open_connection((crpc_queue){0});
    receiver = open_connection(srq);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(i);
    }
    for (uint32_t i = 0; i < DATAGRAMS; i++) {
        receive_datagram(i);
    }
    for (uint32_t i = 0; i < BUFFERS; i++) {
        offer(i);
    }
    const struct ucx_numbers ours = {.datagrams = address_of(datagrams).queue_pair_number,
                                     .sender = address_of(sender).queue_pair_number,
                                     .receiver = address_of(receiver).queue_pair_number};
    ucx_wireup_open(&ours);
    knows_client = joined = has_looked = false;
    answers = connected = barriers = turns = matched = unmatched = 0;
    return 0;
}

static int close_context(void **state)
{
    ucx_peer_close();
    return foreign_close(state);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void join(crpc_queue queue, uint32_t number)
{
    crpc_queue_address address = address_of(datagrams); /* its device is ours */
    crpc_error error = {.struct_size = sizeof(error)};
    address.queue_pair_number = number;
    address.packet_sequence_number = 0;
    foreign_need(crpc_queue_join_address(context, queue, &address, &error), &error);
}

static void send_datagram(const uint8_t *datagram, uint32_t length)
{
    uint8_t *const place = memory.answers[answers++ % DATAGRAMS];
    memcpy(place, datagram, length);
    foreign_submit(datagrams, &(crpc_queue_op){.opcode = CRPC_QUEUE_SEND,
                                               .region = region,
                                               .address = (uint64_t)(uintptr_t)place,
                                               .bytes = length,
                                               .target = client});
}

static void reply(void)
{
    uint32_t length;
    const uint8_t *const datagram = ucx_wireup_reply(&length);
    send_datagram(datagram, length);
}

static void take_datagram(const crpc_completion *done)
{
    const uint8_t *const header = memory.datagrams[done->user_data];
    crpc_error error = {.struct_size = sizeof(error)};
    if (!knows_client) {
        foreign_need(crpc_target_of(context, done, header, &client, &error), &error);
        knows_client = true;
    }
    const enum ucx_demand demand = ucx_wireup_take(
        header + CRPC_QUEUE_HEADER_BYTES, (uint32_t)done->payload_bytes - CRPC_QUEUE_HEADER_BYTES);
    if (demand == UCX_CONNECT && !joined) {
        joined = true; /* it is answered when both are connected */
        join(sender, ucx_wireup_numbers()->receiver);
        join(receiver, ucx_wireup_numbers()->sender);
    } else if (demand == UCX_CONNECT && connected == 2) {
        reply();
    } else if (demand == UCX_ANSWER) {
        uint32_t length;
        const uint8_t *const datagram = ucx_wireup_answer(&length);
        send_datagram(datagram, length);
    }
    receive_datagram(done->user_data);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void take_received(const crpc_completion *done)
{
    const uint8_t *const message = memory.received[done->user_data];
    uint64_t tag = 0;
    if (done->flags & CRPC_COMPLETION_SYNC) {
        assert_int_equal(crpc_tag_header_read(message, (uint32_t)done->payload_bytes, &tag, NULL),
                         CRPC_TAG_EAGER);
        assert_int_equal(tag, TAG);
        assert_int_equal(done->payload_bytes, HEADER + bytes);
        unmatched++;
        has_looked = true;
    } else {
        assert_int_equal(message[0], CRPC_TAG_NONE); /* the end of the wireup */
    }
    receive(done->user_data);
}

static void take_matched(const crpc_completion *done)
{
    assert_true(done->flags & CRPC_COMPLETION_MATCHED);
    assert_false(done->flags & CRPC_COMPLETION_RENDEZVOUS);
    assert_int_equal(done->token, TAG);
    assert_int_equal(done->payload_bytes, bytes);
    assert_int_equal(done->endpoint.bits, receiver.bits);
    matched++;
    offer(done->user_data);
}

static void take(const crpc_completion *done)
{
    if (done->kind == CRPC_COMPLETION_CONNECTED) {
        assert_int_equal(done->status, CRPC_OK);
        connected++;
        if (connected == 2) {
            reply();
        }
        return;
    }
    if (done->kind == CRPC_COMPLETION_ROOM || done->kind == CRPC_COMPLETION_DISCONNECTED) {
        return; /* at its end, the client destroys its queue pairs */
    }
    assert_int_equal(done->kind, CRPC_COMPLETION_WORK);
    if (done->status != CRPC_OK) {
        fail_msg("opcode %u: %s", done->method, crpc_status_name(done->status));
    }
    if (done->method == CRPC_QUEUE_TAG_ADD) {
        take_matched(done);
    } else if (done->method == CRPC_QUEUE_RECEIVE && done->endpoint.bits == datagrams.bits) {
        take_datagram(done);
    } else if (done->method == CRPC_QUEUE_RECEIVE) {
        take_received(done);
    }
}

/* Buffers match again, when the device has room for it. */
static void synchronize(void)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_TAG_SYNC};
    if (has_looked && crpc_queue_submit(context, srq, &op, 1, NULL, 0, NULL) == 1) {
        has_looked = false;
    }
}

/* Between the first barrier and the next we begin; each message of the client answers one of ours. */
static void take_turn(void)
{
    if (in_turns && barriers == 1 && turns < ROUNDS && matched + unmatched == turns) {
        assert_int_equal(crpc_tag_header_write(memory.sent, TAG, 0), CRPC_OK);
        submit(sender, CRPC_QUEUE_SEND, 0, memory.sent, HEADER + bytes);
        turns++;
    }
}

/* ---- The program ----------------------------------------------------------------------------- */

static void start(const char *name)
{
    char port[FOREIGN_PORT_BYTES], length[8], rounds[8], device[80];
    ucx_peer_open_tags(ucx_wireup_change, bytes, port);
    snprintf(length, sizeof(length), "%u", bytes);
    snprintf(rounds, sizeof(rounds), "%u", ROUNDS);
    snprintf(device, sizeof(device), "%s:1", place_device(0));
    setenv("UCX_TLS", "rc_x", 1);
    setenv("UCX_NET_DEVICES", device, 1);
    setenv("UCX_RC_MLX5_TM_ENABLE", "y", 1);
    setenv("UCX_RNDV_THRESH", "inf", 1); /* some versions would READ messages of 2048 bytes */
    foreign_start((const char *const[]){"ucx_perftest", "-t", name, "-s", length, "-n", rounds,
                                        "-w", "0", "-p", port, "127.0.0.1", NULL});
}

static bool serve_once(void)
{
    crpc_completion done[16];
    const int32_t count = crpc_poll(context, done, 16);
    assert_true(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        take(&done[i]);
    }
    synchronize();
    const enum ucx_word word = ucx_peer_listen();
    if (word == UCX_BARRIER) {
        barriers++;
        ucx_peer_answer();
    }
    take_turn();
    return count > 0 || word == UCX_BARRIER;
}

/* Serves until the program has ended, which must be with status 0. */
static void serve(const char *name, bool turns_wanted, uint32_t message_bytes)
{
    const time_t end = time(NULL) + SECONDS_MAX;
    int status;
    bytes = message_bytes;
    in_turns = turns_wanted;
    start(name);
    while ((status = foreign_ended()) < 0) {
        if (time(NULL) >= end) {
            fail_msg("connected %u, barriers %u, turns %u, matched %u, unmatched %u", connected,
                     barriers, turns, matched, unmatched);
        }
        if (!serve_once()) {
            crpc_wait(context, 1000000); /* or until the client says something over TCP */
        }
    }
    while (serve_once()) { /* what came before it ended */
    }
    assert_int_equal(status, 0);
    assert_int_equal(connected, 2);
    assert_int_equal(turns, in_turns ? ROUNDS : 0);
    assert_int_equal(matched + unmatched, ROUNDS);
    assert_true(!in_turns || unmatched == 0); /* there is always a buffer */
    print_message("# %u of %u messages have found their buffer\n", matched, ROUNDS);
    assert_true(matched > 0);
}

static void ucx_sends_long_messages_with_a_tag(void **state)
{
    (void)state;
    serve("tag_bw", false, BYTES_MAX);
}

static void ucx_sends_short_messages_with_a_tag(void **state)
{
    (void)state;
    serve("tag_bw", false, 8);
}

static void ucx_and_we_send_with_a_tag_in_turns(void **state)
{
    (void)state;
    serve("tag_lat", true, BYTES_MAX);
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(ucx_sends_long_messages_with_a_tag),
        OVER_DEVICE(ucx_sends_short_messages_with_a_tag),
        OVER_DEVICE(ucx_and_we_send_with_a_tag_in_turns),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    foreign_leave_out_unless(tests, count, "ucx_", UCX_RDMA);
    return foreign_run(tests, count);
}

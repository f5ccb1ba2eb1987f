/* ucx_test.c: ucx_perftest -x dc_mlx5, a DC program of UCX, whose peer is a program of this library. It
 * writes, reads and changes our memory and sends messages to our DCT, from DCIs of its own; and in tests where
 * both sides take turns, our DCI does the same with its memory and its DCT.
 *
 * UCX begins each message with two bytes: 0, and the number of what handles it. The highest three bits of the
 * second belong to its flow control (rc_ep.h, dc_mlx5_ep.c): who sends asks in time whether it may go on, and
 * the other side says so. Without the answer the program would stand still after 512 messages. */
#include <sched.h>
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
#include "ucx_peer.h"

#define BYTES_MAX 8192u /* of a message of the tests */
#define HEADER_BYTES 2u
#define RECEIVES 256u
#define ROUNDS 450u /* so that each number of 8 bits comes again, and flow control has its turn */
#define SECONDS_MAX 200    /* both sides poll without a pause, which is slow on a busy machine */
#define HANDLER 5u         /* UCT_PERF_TEST_AM_ID */
#define FLOW_ASKS 0x40u    /* UCT_RC_EP_FLAG_FC_HARD_REQ */
#define FLOW_GRANTS 0xe0u  /* UCT_RC_EP_FC_PURE_GRANT */
#define GRANT_BYTES 18u    /* header, endpoint, sequence number: as in the question */
#define UNACKNOWLEDGED 60u /* messages of a stream; it waits after 127 */
#define LAST_OF_STREAM 2u  /* what it writes at the end of a stream without messages */
#define UNTOUCHED 0x77u

static struct memory {
    _Alignas(4096) uint8_t target[2 * BYTES_MAX];
    uint8_t sent[BYTES_MAX];
    uint8_t received[RECEIVES][HEADER_BYTES + BYTES_MAX];
} memory;

/* A test of ucx_perftest. */
struct trial {
    const char *name, *layout; /* -t, -D */
    uint32_t bytes;            /* -s */
    /* What our side does in its turn. 0: it is passive. */
    uint8_t turn; /* CRPC_QUEUE_* */
};

static const struct trial *trial;
static crpc_queue srq, dct, dci;
static crpc_target target;
static bool in_turn;       /* our op of this turn has not completed */
static uint32_t turns;     /* of ours that were begun */
static uint32_t arrived;   /* messages, but those of flow control */
static uint32_t confirmed; /* of these */
static uint32_t questions; /* of flow control */
static uint32_t sends_open;
static uint32_t barriers;

/* ---- Queues ---------------------------------------------------------------------------------- */

static crpc_queue open_queue(crpc_queue_options options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue = {0};
    options.struct_size = sizeof(options);
    foreign_need(crpc_queue_open(context, &options, &queue, &error), &error);
    return queue;
}

static void receive(uint64_t place)
{
    foreign_submit(srq, &(crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                                         .user_data = place,
                                         .region = region,
                                         .address = (uint64_t)(uintptr_t)memory.received[place],
                                         .bytes = sizeof(memory.received[place])});
}

static crpc_queue_address address_of_dct(void)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(context, dct, &address), CRPC_OK);
    return address;
}

static int open_context(void **state)
{
    (void)state;
    foreign_open(&memory, sizeof(memory),
                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                     CRPC_ACCESS_REMOTE_ATOMIC);
    srq = open_queue(
        (crpc_queue_options){.kind = CRPC_QUEUE_KIND_SRQ, .receives = RECEIVES, .user_data = 1});
    dct = open_queue((crpc_queue_options){
        .kind = CRPC_QUEUE_KIND_DCT, .receive_queue = srq, .access_key = UCX_ACCESS_KEY});
    dci = open_queue((crpc_queue_options){
        .kind = CRPC_QUEUE_KIND_DCI, .sends = 64, .inline_bytes = GRANT_BYTES});
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(i);
    }
    in_turn = false;
    turns = arrived = confirmed = questions = sends_open = barriers = 0;
    memset(memory.target, UNTOUCHED, sizeof(memory.target));
    memset(memory.sent, 0, sizeof(memory.sent));
    return 0;
}

static int close_context(void **state)
{
    ucx_peer_close();
    return foreign_close(state);
}

static void open_target(void)
{
    const struct ucx_place *place = ucx_peer_place();
    const crpc_target_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_DCI, .access_key = UCX_ACCESS_KEY};
    crpc_queue_address address = address_of_dct(); /* the same link */
    crpc_error error = {.struct_size = sizeof(error)};
    address.queue_pair_number = place->dct;
    if (address.link == CRPC_LINK_ETHERNET) {
        memcpy(address.gid, place->gid, sizeof(address.gid));
    }
    address.lid = place->lid;
    foreign_need(crpc_target_open(context, &address, &options, &target, &error), &error);
}

/* ---- What our side does ---------------------------------------------------------------------- */

static void submit(crpc_queue_op op)
{
    op.target = target;
    op.user_data = op.opcode;
    sends_open++;
    foreign_submit(dci, &op);
}

/* A short message: UCX's own have a header of 8 bytes in front, of which this test uses the first. */
static void send_number(uint8_t number)
{
    const uint8_t message[HEADER_BYTES + 8] = {0, HANDLER, number};
    submit((crpc_queue_op){.opcode = CRPC_QUEUE_SEND,
                           .flags = CRPC_QUEUE_INLINE,
                           .address = (uint64_t)(uintptr_t)message,
                           .bytes = sizeof(message)});
}

/* Begins our next turn, whose number the client waits for: in a message, as the last byte of what we write,
 * or in the first byte of what we add to. */
static void take_turn(void)
{
    const uint8_t number = (uint8_t)turns, before = (uint8_t)(turns - 1);
    crpc_queue_op op = {.opcode = trial->turn,
                        .remote_address = ucx_peer_place()->memory,
                        .remote_key = ucx_peer_place()->memory_key};
    turns++;
    in_turn = true;
    if (trial->turn == CRPC_QUEUE_SEND) {
        send_number(number);
    } else if (trial->turn == CRPC_QUEUE_WRITE) {
        memory.sent[trial->bytes - 1] = number;
        op.region = region;
        op.address = (uint64_t)(uintptr_t)memory.sent;
        op.bytes = trial->bytes;
        submit(op);
    } else {
        op.operand = (uint64_t)number - before;
        submit(op);
    }
}

/* The client's turn is over when it has done the same to us. */
static bool may_take_turn(void)
{
    const uint8_t number = (uint8_t)(turns - 1);
    const volatile uint8_t *const at =
        memory.target + (trial->turn == CRPC_QUEUE_WRITE ? trial->bytes - 1 : 0);
    if (!trial->turn || barriers != 2 || in_turn || turns == ROUNDS) {
        return false;
    }
    return trial->turn == CRPC_QUEUE_SEND ? arrived == turns : turns == 0 || *at == number;
}

/* Says that the messages before this were taken. A stream waits for it after some, and at its end. */
static void confirm(uint8_t number)
{
    if (!trial->turn && (arrived - confirmed == UNACKNOWLEDGED || arrived == ROUNDS)) {
        confirmed = arrived;
        send_number(number);
    }
}

static void grant(const uint8_t *question)
{
    uint8_t answer[GRANT_BYTES];
    memcpy(answer, question, sizeof(answer));
    answer[1] = FLOW_GRANTS;
    questions++;
    submit((crpc_queue_op){.opcode = CRPC_QUEUE_SEND,
                           .flags = CRPC_QUEUE_INLINE,
                           .address = (uint64_t)(uintptr_t)answer,
                           .bytes = sizeof(answer)});
}

static void take_message(const crpc_completion *done)
{
    const uint8_t *message = memory.received[done->user_data];
    assert_int_equal(done->endpoint.bits, dct.bits);
    assert_int_equal(message[0], 0);
    if (message[1] == FLOW_ASKS) {
        assert_true(done->payload_bytes > GRANT_BYTES);
        assert_true(done->flags & CRPC_COMPLETION_IMMEDIATE); /* the number of its DCT */
        grant(message);
    } else {
        assert_int_equal(message[1], HANDLER);
        assert_int_equal(done->payload_bytes, HEADER_BYTES + trial->bytes);
        assert_int_equal(message[HEADER_BYTES], (uint8_t)(trial->turn ? arrived : arrived + 1));
        arrived++;
        confirm(message[HEADER_BYTES]);
    }
    receive(done->user_data);
}

static void take(const crpc_completion *done)
{
    assert_int_equal(done->kind, CRPC_COMPLETION_WORK);
    assert_int_equal(done->status, CRPC_OK);
    if (done->method == CRPC_QUEUE_RECEIVE) {
        take_message(done);
        return;
    }
    assert_int_equal(done->endpoint.bits, dci.bits);
    assert_int_equal(done->user_data, done->method);
    sends_open--;
    if (done->method == trial->turn) {
        in_turn = false;
    }
    if (done->method == CRPC_QUEUE_READ) { /* the client has changed its memory, and waits */
        assert_int_equal(memory.sent[0], LAST_OF_STREAM);
        ucx_peer_answer();
    }
}

/* The client stands at a barrier: the first when it knows us; the second before its test, the third behind it. */
static void pass_barrier(void)
{
    barriers++;
    if (barriers == 1) {
        open_target();
    }
    if (barriers == 3 && strcmp(trial->name, "get") == 0) {
        submit((crpc_queue_op){.opcode = CRPC_QUEUE_READ,
                               .region = region,
                               .address = (uint64_t)(uintptr_t)memory.sent,
                               .bytes = trial->bytes,
                               .remote_address = ucx_peer_place()->memory,
                               .remote_key = ucx_peer_place()->memory_key});
        return;
    }
    ucx_peer_answer();
}

/* ---- The program ----------------------------------------------------------------------------- */

static void start(void)
{
    const crpc_queue_address address = address_of_dct();
    struct ucx_place ours = {.memory = (uint64_t)(uintptr_t)memory.target,
                             .dct = address.queue_pair_number,
                             .lid = (uint16_t)address.lid};
    crpc_region_info info = {.struct_size = sizeof(info)};
    char port[FOREIGN_PORT_BYTES], bytes[8], rounds[8], device[80];
    assert_int_equal(crpc_region_get_info(context, region, &info), CRPC_OK);
    ours.memory_key = info.remote_key;
    memcpy(ours.gid, address.gid, sizeof(ours.gid));
    ucx_peer_open(&ours, trial->bytes, port);
    snprintf(bytes, sizeof(bytes), "%u", trial->bytes);
    snprintf(rounds, sizeof(rounds), "%u", ROUNDS);
    snprintf(device, sizeof(device), "%s:1", place_device(0));
    foreign_start((const char *const[]){"ucx_perftest", "-x", "dc_mlx5", "-d", device, "-t",
                                        trial->name, "-D", trial->layout, "-s", bytes, "-n", rounds,
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
    const enum ucx_word word = ucx_peer_listen();
    if (word == UCX_BARRIER) {
        pass_barrier();
    }
    const bool turn = may_take_turn();
    if (turn) {
        take_turn();
    }
    return count > 0 || word == UCX_BARRIER || turn;
}

/* Serves until the program has ended, which must be with status 0. */
static void serve(const struct trial *one)
{
    const time_t end = time(NULL) + SECONDS_MAX;
    int status;
    trial = one;
    start();
    while ((status = foreign_ended()) < 0) {
        assert_true(time(NULL) < end);
        if (!serve_once()) {
            sched_yield(); /* what is written to memory wakes nobody */
        }
    }
    while (serve_once() || sends_open > 0) { /* what came before it ended */
        assert_true(time(NULL) < end);
    }
    assert_int_equal(status, 0);
    assert_true(barriers >= 3);
    assert_int_equal(turns, one->turn ? ROUNDS : 0);
}

static void assert_all(const uint8_t *from, uint32_t bytes, uint8_t value)
{
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(from[i], value);
    }
}

/* ---- Streams of the client ------------------------------------------------------------------- */

static void put(const char *layout, uint32_t bytes)
{
    serve(&(struct trial){"put_bw", layout, bytes, 0});
    assert_int_equal(memory.target[0], LAST_OF_STREAM);
    assert_all(memory.target + 1, bytes - 1, 0);
    assert_all(memory.target + bytes, sizeof(memory.target) - bytes, UNTOUCHED);
}

static void ucx_puts_inline(void **state)
{
    (void)state;
    put("short", 8);
}

static void ucx_puts_from_memory(void **state)
{
    (void)state;
    put("zcopy", BYTES_MAX);
}

static void ucx_gets(void **state)
{
    (void)state;
    serve(&(struct trial){"get", "zcopy", BYTES_MAX, 0});
    assert_all(memory.target, sizeof(memory.target), UNTOUCHED);
}

static uint64_t counter(void)
{
    uint64_t value;
    memcpy(&value, memory.target, sizeof(value));
    return value;
}

/* It adds 0, or swaps 0 for 0, but for the last op. */
static void atomics(const char *name)
{
    memset(memory.target, 0, sizeof(uint64_t));
    serve(&(struct trial){name, "short", sizeof(uint64_t), 0});
    assert_int_equal(counter(), LAST_OF_STREAM);
    assert_all(memory.target + 8, sizeof(memory.target) - 8, UNTOUCHED);
}

static void ucx_adds_and_fetches(void **state)
{
    (void)state;
    atomics("fadd");
}

static void ucx_compares_and_swaps(void **state)
{
    (void)state;
    atomics("cswap");
}

static void messages(const char *layout, uint32_t bytes)
{
    serve(&(struct trial){"am_bw", layout, bytes, 0});
    assert_int_equal(arrived, ROUNDS);
    assert_true(questions > 0);
}

static void ucx_sends_short_messages(void **state)
{
    (void)state;
    messages("short", 16);
}

static void ucx_sends_long_messages(void **state)
{
    (void)state;
    messages("zcopy", 4096);
}

/* ---- In turns -------------------------------------------------------------------------------- */

static void ucx_and_we_send_in_turns(void **state)
{
    (void)state;
    serve(&(struct trial){"am_lat", "short", 8, CRPC_QUEUE_SEND});
    assert_int_equal(arrived, ROUNDS);
    assert_true(questions > 0);
}

static void ucx_and_we_write_in_turns(void **state)
{
    (void)state;
    serve(&(struct trial){"put_lat", "zcopy", BYTES_MAX, CRPC_QUEUE_WRITE});
    assert_int_equal(memory.target[BYTES_MAX - 1], (uint8_t)(ROUNDS - 1));
    assert_all(memory.target + BYTES_MAX, BYTES_MAX, UNTOUCHED);
}

static void ucx_and_we_add_in_turns(void **state)
{
    (void)state;
    memset(memory.target, 0, sizeof(uint64_t));
    memory.target[0] = UINT8_MAX; /* the number before the first */
    serve(&(struct trial){"add_lat", "short", sizeof(uint64_t), CRPC_QUEUE_FETCH_ADD});
    assert_int_equal(counter(), (uint8_t)(ROUNDS - 1));
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(ucx_puts_inline),
        OVER_DEVICE(ucx_puts_from_memory),
        OVER_DEVICE(ucx_gets),
        OVER_DEVICE(ucx_adds_and_fetches),
        OVER_DEVICE(ucx_compares_and_swaps),
        OVER_DEVICE(ucx_sends_short_messages),
        OVER_DEVICE(ucx_sends_long_messages),
        OVER_DEVICE(ucx_and_we_send_in_turns),
        OVER_DEVICE(ucx_and_we_write_in_turns),
        OVER_DEVICE(ucx_and_we_add_in_turns),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    foreign_leave_out_unless(tests, count, "ucx_", UCX_RDMA);
    return foreign_run(tests, count);
}

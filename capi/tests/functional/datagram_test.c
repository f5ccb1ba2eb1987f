/* datagram_test.c: UD queues over a device: with each other, with ibv_ud_pingpong as the distribution has it,
 * which takes either role, and with ib_send_bw as a client.
 *
 * The two sides of a ping-pong first tell each other over TCP where they are, as text: LID, number, packet
 * sequence number, GID. The one that has connected says "done" then, and sends the first datagram.
 *
 * A perftest client tells its version, its sizes, and where it is, which is text of 108 bytes. A server that
 * answers each message with the same is as good as any, if it puts its own address where the client's is. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "foreign.h"
#include "place.h"

#define HEADER CRPC_QUEUE_HEADER_BYTES
#define BYTES 1000u
#define ROUNDS 300u
#define RECEIVES 16u
#define ADDRESS_TEXT sizeof("0000:000000:000000:00000000000000000000000000000000")

static struct memory {
    uint8_t received[RECEIVES][HEADER + BYTES];
    uint8_t sent[BYTES];
} memory;

static crpc_queue queue;
static uint32_t received, sent;

static crpc_queue open_queue(uint32_t flags)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .flags = flags,
                                        .kind = CRPC_QUEUE_KIND_UD,
                                        .receives = RECEIVES};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    foreign_need(crpc_queue_open(context, &options, &made, &error), &error);
    return made;
}

static int open_context(void **state)
{
    (void)state;
    foreign_open(&memory, sizeof(memory), CRPC_ACCESS_LOCAL_WRITE);
    queue = open_queue(0);
    received = sent = 0;
    memset(memory.sent, 0x5a, sizeof(memory.sent));
    return 0;
}

static void receive(crpc_queue to, uint64_t place)
{
    foreign_submit(to, &(crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                                        .user_data = place,
                                        .region = region,
                                        .address = (uint64_t)(uintptr_t)memory.received[place],
                                        .bytes = sizeof(memory.received[place])});
}

static void send_to(crpc_queue from, crpc_target target, uint32_t flags, uint64_t user_data)
{
    foreign_submit(from, &(crpc_queue_op){.opcode = CRPC_QUEUE_SEND,
                                          .flags = (uint8_t)flags,
                                          .user_data = user_data,
                                          .region = region,
                                          .address = (uint64_t)(uintptr_t)memory.sent,
                                          .bytes = BYTES,
                                          .target = target});
}

static crpc_queue_address address_of(crpc_queue one)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(context, one, &address), CRPC_OK);
    return address;
}

static crpc_target target_at(const crpc_queue_address *address)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target target;
    foreign_need(crpc_target_open(context, address, NULL, &target, &error), &error);
    return target;
}

static crpc_completion next_of(crpc_queue one, uint8_t kind)
{
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    crpc_completion done;
    while (crpc_poll(context, &done, 1) == 0) {
        crpc_wait(context, 100000000);
        assert_true(time(NULL) < end);
    }
    assert_int_equal(done.kind, kind);
    assert_int_equal(done.endpoint.bits, one.bits);
    return done;
}

/* ---- Ours ------------------------------------------------------------------------------------ */

static void answers_go_where_datagrams_come_from(void **state)
{
    (void)state;
    const crpc_queue other = open_queue(0);
    const crpc_queue_address address = address_of(other);
    const crpc_target target = target_at(&address);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target back;
    receive(other, 0);
    receive(queue, 1);
    send_to(queue, target, 0, 5);
    crpc_completion done[2];
    for (uint32_t i = 0; i < 2;) {
        i += (uint32_t)crpc_poll(context, done + i, 2 - i);
    }
    const crpc_completion *arrived = &done[done[0].method != CRPC_QUEUE_RECEIVE];
    assert_int_equal(arrived->status, CRPC_OK);
    assert_int_equal(arrived->endpoint.bits, other.bits);
    assert_int_equal(arrived->payload_bytes, HEADER + BYTES);
    assert_int_equal((arrived->flags & CRPC_COMPLETION_GRH) != 0, place_has_grh());
    assert_memory_equal(memory.received[0] + HEADER, memory.sent, BYTES);
    foreign_need(crpc_target_of(context, arrived, memory.received[0], &back, &error), &error);
    send_to(other, back, 0, 6);
    assert_int_equal(crpc_target_close(context, back), CRPC_OK);
    for (uint32_t i = 0; i < 2;) {
        i += (uint32_t)crpc_poll(context, done + i, 2 - i);
    }
    arrived = &done[done[0].method != CRPC_QUEUE_RECEIVE];
    assert_int_equal(arrived->status, CRPC_OK);
    assert_int_equal(arrived->endpoint.bits, queue.bits);
    assert_int_equal((uint32_t)arrived->token, address.queue_pair_number);
    assert_int_equal(crpc_target_close(context, target), CRPC_OK);
    assert_int_equal(crpc_queue_close(context, other), CRPC_OK);
}

/* Whatever driver: one has a NOP for them, and the other none. */
static void a_sparse_queue_drains(void **state)
{
    (void)state;
    const crpc_queue sparse = open_queue(CRPC_QUEUE_SPARSE);
    const crpc_queue_address address = address_of(queue);
    const crpc_target target = target_at(&address);
    receive(sparse, 0);
    for (uint64_t i = 0; i < 100; i++) {
        send_to(sparse, target, i == 20 ? CRPC_QUEUE_SIGNAL : 0, i);
    }
    assert_int_equal(next_of(sparse, CRPC_COMPLETION_WORK).user_data, 20);
    assert_int_equal(crpc_target_close(context, target), CRPC_OK);
    assert_int_equal(crpc_queue_drain(context, sparse, CRPC_FOREVER), CRPC_OK);
    crpc_completion done = next_of(sparse, CRPC_COMPLETION_WORK);
    assert_int_equal(done.method, CRPC_QUEUE_RECEIVE);
    assert_int_equal(done.status, CRPC_E_FLUSHED);
    assert_int_equal(next_of(sparse, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
    assert_int_equal(crpc_queue_close(context, sparse), CRPC_OK);
}

/* ---- ibv_ud_pingpong ------------------------------------------------------------------------- */

/* Begins with these words; `gid_option` is what it calls the index of a GID. `host`: it connects there; NULL =
 * it listens. */
static void start(const char *const *first, uint32_t count, const char *gid_option,
                  uint16_t port_number, const char *host)
{
    char port[8], gid_index[8], rounds[8], bytes[8];
    crpc_context_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
    snprintf(port, sizeof(port), "%u", port_number);
    snprintf(gid_index, sizeof(gid_index), "%u", info.gid_index);
    snprintf(rounds, sizeof(rounds), "%u", ROUNDS);
    snprintf(bytes, sizeof(bytes), "%u", BYTES);
    const char *words[20] = {NULL};
    const char *const rest[] = {"-d", place_device(0), gid_option, gid_index, "-n", rounds,
                                "-s", bytes,           "-p",       port,      host};
    memcpy(words, first, count * sizeof(words[0]));
    memcpy(words + count, rest, sizeof(rest));
    foreign_start(words);
}

static void start_pingpong(uint16_t port, const char *host)
{
    const char *const words[] = {"ibv_ud_pingpong"};
    start(words, 1, "-g", port, host);
}

static struct sockaddr_in here(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Returns a socket that listens, at a port that was free. */
static int listen_here(uint16_t *port)
{
    struct sockaddr_in address = here(0);
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void write_address(int fd)
{
    const crpc_queue_address ours = address_of(queue);
    char text[ADDRESS_TEXT];
    int at = snprintf(text, sizeof(text), "%04x:%06x:%06x:", ours.lid, ours.queue_pair_number,
                      ours.packet_sequence_number);
    for (uint32_t i = 0; i < 16; i++) {
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%02x", ours.gid[i]);
    }
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
}

static crpc_target read_target(int fd)
{
    char text[ADDRESS_TEXT];
    crpc_queue_address theirs = address_of(queue); /* link and MTU */
    assert_int_equal(recv(fd, text, sizeof(text), MSG_WAITALL), sizeof(text));
    assert_int_equal(sscanf(text, "%x:%x:%x:", &theirs.lid, &theirs.queue_pair_number,
                            &theirs.packet_sequence_number),
                     3);
    for (uint32_t i = 0; i < 16; i++) {
        unsigned byte;
        assert_int_equal(sscanf(text + ADDRESS_TEXT - 33 + 2 * i, "%2x", &byte), 1);
        theirs.gid[i] = (uint8_t)byte;
    }
    return target_at(&theirs);
}

/* Takes what came, and answers each message until there were ROUNDS. */
static void answer(crpc_target target)
{
    crpc_completion done[16];
    int32_t count = crpc_poll(context, done, 16);
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(done[i].kind, CRPC_COMPLETION_WORK);
        assert_int_equal(done[i].status, CRPC_OK);
        if (done[i].method != CRPC_QUEUE_RECEIVE) {
            continue;
        }
        assert_int_equal(done[i].payload_bytes, HEADER + BYTES);
        received++;
        receive(queue, done[i].user_data);
        if (sent < ROUNDS) {
            send_to(queue, target, 0, sent++);
        }
    }
    if (count == 0) {
        crpc_wait(context, 10000000);
    }
}

static void play(crpc_target target)
{
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    int status;
    while ((status = foreign_ended()) < 0) {
        assert_true(time(NULL) < end);
        answer(target);
    }
    assert_int_equal(status, 0);
    while (received < ROUNDS) { /* it may have ended before its last one was polled */
        assert_true(time(NULL) < end);
        answer(target);
    }
    assert_int_equal(received, ROUNDS);
    assert_int_equal(sent, ROUNDS);
}

static void ibv_ud_pingpong_connects(void **state)
{
    (void)state;
    uint16_t port;
    char done[5];
    int listener = listen_here(&port);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(queue, i);
    }
    start_pingpong(port, "127.0.0.1");
    int fd = accept(listener, NULL, NULL);
    const crpc_target target = read_target(fd);
    write_address(fd);
    assert_int_equal(recv(fd, done, sizeof(done), MSG_WAITALL), sizeof(done));
    play(target);
    close(fd);
    close(listener);
}

static void ibv_ud_pingpong_listens(void **state)
{
    (void)state;
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    uint16_t port;
    close(listen_here(&port));
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(queue, i);
    }
    start_pingpong(port, NULL);
    const struct sockaddr_in address = here(port);
    int fd = -1;
    for (bool connected = false; !connected;) { /* it may not listen yet */
        assert_true(time(NULL) < end);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connected = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
        usleep(connected ? 0 : 10000);
    }
    write_address(fd);
    const crpc_target target = read_target(fd);
    assert_int_equal(write(fd, "done", 5), 5);
    send_to(queue, target, 0, sent++);
    play(target);
    close(fd);
}

/* ---- ib_send_bw ------------------------------------------------------------------------------ */

#define PERFTEST_BYTES 108
#define PERFTEST_NUMBER 10 /* offsets in the text, of hexadecimal digits */
#define PERFTEST_SEQUENCE_NUMBER 17
#define PERFTEST_GID 50

static void put_hex(char *place, uint32_t value, int digits)
{
    char text[16];
    snprintf(text, sizeof(text), "%0*x", digits, value);
    memcpy(place, text, (size_t)digits);
}

/* Answers what the client has said, if it has. */
static void mirror(int fd)
{
    const crpc_queue_address ours = address_of(queue);
    char message[256];
    ssize_t bytes = recv(fd, message, sizeof(message), MSG_DONTWAIT);
    if (bytes <= 0) {
        return;
    }
    if (bytes == PERFTEST_BYTES) {
        put_hex(message, ours.lid, 4);
        put_hex(message + PERFTEST_NUMBER, ours.queue_pair_number, 6);
        put_hex(message + PERFTEST_SEQUENCE_NUMBER, ours.packet_sequence_number, 6);
        for (uint32_t i = 0; i < 16; i++) {
            put_hex(message + PERFTEST_GID + 3 * i, ours.gid[i], 2);
        }
    }
    assert_int_equal(write(fd, message, (size_t)bytes), bytes);
}

/* It sends faster than there are receives, so not all of it arrives. */
static void ib_send_bw_connects(void **state)
{
    (void)state;
    const time_t end = time(NULL) + FOREIGN_SECONDS_MAX;
    uint16_t port;
    int status;
    int listener = listen_here(&port);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(queue, i);
    }
    const char *const words[] = {"ib_send_bw", "-F", "-c", "UD"};
    start(words, 4, "-x", port, "127.0.0.1");
    int fd = accept(listener, NULL, NULL);
    sent = ROUNDS; /* it is not answered */
    while ((status = foreign_ended()) < 0) {
        assert_true(time(NULL) < end);
        mirror(fd);
        answer((crpc_target){0});
    }
    assert_int_equal(status, 0);
    assert_in_range(received, 1, ROUNDS);
    close(fd);
    close(listener);
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_context, foreign_close)
    struct CMUnitTest tests[] = {
        OVER_DEVICE(answers_go_where_datagrams_come_from),
        OVER_DEVICE(a_sparse_queue_drains),
        OVER_DEVICE(ibv_ud_pingpong_connects),
        OVER_DEVICE(ibv_ud_pingpong_listens),
        OVER_DEVICE(ib_send_bw_connects),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    foreign_leave_out(tests, count, "ibv_ud_pingpong", "ibv_ud_pingpong", "ibverbs-utils");
    foreign_leave_out(tests, count, "ib_send_bw", "ib_send_bw", "perftest");
    return foreign_run(tests, count);
}

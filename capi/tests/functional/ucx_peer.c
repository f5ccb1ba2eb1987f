/* ucx_peer.c: see ucx_peer.h. */
#include "ucx_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_MAX 4096u
#define BARRIER 0xdeadbeefu
#define STATUS_BYTES 9u /* with the length before it */
#define LENGTH_BYTES 8u
/* In the first byte of a device's address: its GID follows; else its LID, and no more within a subnet. */
#define DEVICE_ETHERNET 0x08u
#define DEVICE_BYTES_MIN 3u
#define DEVICE_BYTES_ETHERNET 17u
#define INTERFACE_BYTES_MIN 5u    /* the first three are the number of the DCT */
#define NO_ATOMIC_KEY 0xffffffffu /* atomics take the other one */

/* Before what it says of memory, device, interface and endpoint, in this order. */
struct description {
    uint64_t device_bytes, interface_bytes, endpoint_bytes, key_bytes;
    uint64_t memory;
};

/* The same of a worker: what it says of its address, and memory that is used otherwise. */
struct worker_description {
    uint64_t address_bytes, all_bytes, unused, key_bytes;
    uint64_t memory;
};

static struct {
    int listener, connection; /* -1: none */
    struct ucx_place ours, theirs;
    void (*change)(uint8_t *address, uint32_t bytes); /* NULL: DC */
    uint64_t message_bytes;
    bool begun;      /* it has said how it was called */
    bool knows;      /* each side where the other is */
    bool at_barrier; /* it waits */
    uint8_t text[TEXT_MAX];
    uint32_t bytes;
} peer = {.listener = -1, .connection = -1};

static void listen_here(uint64_t message_bytes, char port[FOREIGN_PORT_BYTES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    ucx_peer_close();
    peer.message_bytes = message_bytes;
    peer.begun = peer.knows = peer.at_barrier = false;
    peer.bytes = 0;
    peer.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(peer.listener >= 0);
    assert_int_equal(bind(peer.listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(peer.listener, 1), 0);
    assert_int_equal(getsockname(peer.listener, (struct sockaddr *)&address, &bytes), 0);
    snprintf(port, FOREIGN_PORT_BYTES, "%u", (uint32_t)ntohs(address.sin_port));
}

void ucx_peer_open(const struct ucx_place *ours, uint64_t message_bytes,
                   char port[FOREIGN_PORT_BYTES])
{
    peer.ours = *ours;
    peer.change = NULL;
    listen_here(message_bytes, port);
}

void ucx_peer_open_tags(void (*change)(uint8_t *address, uint32_t bytes), uint64_t message_bytes,
                        char port[FOREIGN_PORT_BYTES])
{
    peer.change = change;
    listen_here(message_bytes, port);
}

void ucx_peer_close(void)
{
    if (peer.listener >= 0) {
        close(peer.listener);
    }
    if (peer.connection >= 0) {
        close(peer.connection);
    }
    peer.listener = peer.connection = -1;
}

static void say(const void *text, uint32_t bytes)
{
    assert_int_equal(send(peer.connection, text, bytes, MSG_NOSIGNAL), bytes);
}

/* Forgets so many bytes of what has come. */
static void drop(uint32_t bytes)
{
    peer.bytes -= bytes;
    memmove(peer.text, peer.text + bytes, peer.bytes);
}

static uint64_t number_at(uint32_t offset)
{
    uint64_t number;
    memcpy(&number, peer.text + offset, sizeof(number));
    return number;
}

/* How it was called ends with the size of its messages, and a status follows: the client says nothing more
 * before it is answered. No other place of it has these two numbers in a row. */
static bool take_call(void)
{
    static const uint8_t status[STATUS_BYTES] = {1};
    const uint32_t end = LENGTH_BYTES + STATUS_BYTES;
    if (peer.bytes < end || number_at(peer.bytes - end) != peer.message_bytes ||
        memcmp(peer.text + peer.bytes - STATUS_BYTES, status, STATUS_BYTES) != 0) {
        return false;
    }
    drop(peer.bytes - STATUS_BYTES);
    return true;
}

/* With tags, its address follows at once: a length, and in the bytes after it the same length. */
static bool take_call_of_worker(void)
{
    const uint32_t least = LENGTH_BYTES + (uint32_t)sizeof(struct worker_description);
    for (uint32_t i = LENGTH_BYTES; i + least <= peer.bytes; i++) {
        const uint64_t bytes = peer.bytes - i - LENGTH_BYTES;
        if (number_at(i - LENGTH_BYTES) == peer.message_bytes && number_at(i) == bytes &&
            number_at(i + 2 * LENGTH_BYTES) == bytes) {
            drop(i);
            return true;
        }
    }
    return false;
}

static bool take_status(void)
{
    if (!peer.begun || peer.bytes < STATUS_BYTES || number_at(0) != 1) {
        return false;
    }
    say(peer.text, STATUS_BYTES);
    drop(STATUS_BYTES);
    return true;
}

static void exchange(const struct description *client, uint8_t *after)
{
    uint8_t *const key = after;
    uint8_t *const device = key + client->key_bytes;
    uint8_t *const interface = device + client->device_bytes;
    const uint64_t our_key = (uint64_t)NO_ATOMIC_KEY << 32 | peer.ours.memory_key;
    peer.theirs.memory = client->memory;
    peer.theirs.dct =
        (uint32_t)interface[2] << 16 | (uint32_t)interface[1] << 8 | (uint32_t)interface[0];
    memcpy(&peer.theirs.memory_key, key, sizeof(peer.theirs.memory_key));
    if (device[0] & DEVICE_ETHERNET) {
        memcpy(peer.theirs.gid, device + 1, sizeof(peer.theirs.gid));
        memcpy(device + 1, peer.ours.gid, sizeof(peer.ours.gid));
    } else {
        memcpy(&peer.theirs.lid, device + 1, sizeof(peer.theirs.lid));
        memcpy(device + 1, &peer.ours.lid, sizeof(peer.ours.lid));
    }
    for (uint32_t i = 0; i < 3; i++) {
        interface[i] = (uint8_t)(peer.ours.dct >> 8 * i);
    }
    memcpy(key, &our_key, sizeof(our_key));
}

static void take_device(uint8_t *text, uint32_t bytes)
{
    struct description client;
    memcpy(&client, text, sizeof(client));
    assert_in_range(client.key_bytes, LENGTH_BYTES, 64);
    assert_in_range(client.device_bytes, DEVICE_BYTES_MIN, 64);
    assert_in_range(client.interface_bytes, INTERFACE_BYTES_MIN, 64);
    assert_int_equal(client.endpoint_bytes, 0); /* DC has no address for each endpoint */
    assert_int_equal(bytes, sizeof(client) + client.key_bytes + client.device_bytes +
                                client.interface_bytes);
    bool ethernet = text[sizeof(client) + client.key_bytes] & DEVICE_ETHERNET;
    assert_true(!ethernet || client.device_bytes >= DEVICE_BYTES_ETHERNET);
    exchange(&client, text + sizeof(client));
    client.memory = peer.ours.memory;
    memcpy(text, &client, sizeof(client));
}

static void take_worker(uint8_t *text, uint32_t bytes)
{
    struct worker_description client;
    memcpy(&client, text, sizeof(client));
    assert_int_equal(client.key_bytes, 0);
    assert_int_equal(bytes, sizeof(client) + client.address_bytes);
    peer.change(text + sizeof(client), (uint32_t)client.address_bytes);
}

static bool take_place(void)
{
    if (!peer.begun || peer.knows || peer.bytes < LENGTH_BYTES + sizeof(struct description) ||
        peer.bytes < LENGTH_BYTES + number_at(0)) {
        return false;
    }
    const uint32_t bytes = (uint32_t)number_at(0);
    if (peer.change) {
        take_worker(peer.text + LENGTH_BYTES, bytes);
    } else {
        take_device(peer.text + LENGTH_BYTES, bytes);
    }
    say(peer.text, LENGTH_BYTES + bytes);
    drop(LENGTH_BYTES + bytes);
    peer.knows = true;
    return true;
}

static bool take_barrier(void)
{
    uint32_t word;
    if (!peer.knows || peer.bytes < sizeof(word)) {
        return false;
    }
    memcpy(&word, peer.text, sizeof(word));
    if (word != BARRIER) {
        return false;
    }
    drop(sizeof(word));
    peer.at_barrier = true;
    return true;
}

void ucx_peer_answer(void)
{
    const uint32_t word = BARRIER;
    assert_true(peer.at_barrier);
    peer.at_barrier = false;
    say(&word, sizeof(word));
}

enum ucx_word ucx_peer_listen(void)
{
    if (peer.connection < 0) {
        peer.connection = accept4(peer.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        return UCX_NOTHING;
    }
    const ssize_t count =
        recv(peer.connection, peer.text + peer.bytes, sizeof(peer.text) - peer.bytes, 0);
    if (count <= 0) {
        return count < 0 && errno == EAGAIN ? UCX_NOTHING : UCX_CLOSED;
    }
    peer.bytes += (uint32_t)count;
    if (!peer.begun) {
        peer.begun = peer.change ? take_call_of_worker() : take_call();
    }
    while (take_status() || take_place()) {
    }
    return take_barrier() ? UCX_BARRIER : UCX_NOTHING;
}

const struct ucx_place *ucx_peer_place(void)
{
    assert_true(peer.knows && !peer.change);
    return &peer.theirs;
}

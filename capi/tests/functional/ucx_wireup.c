/* ucx_wireup.c: see ucx_wireup.h. */
#include "ucx_wireup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A datagram begins with 8 bytes: whom it is for and what it is, its number, and the last number that came. */
#define NETWORK_BYTES 8u
#define NOBODY 0xffffffu /* it is for: a request for a connection */
#define IS_MESSAGE 0x1000000u
#define ASKS_ANSWER 0x2000000u
#define IS_CONTROL 0x20000000u
#define HANDLER_SHIFT 27
#define HANDLER_WIREUP 1u
/* Control: kind, 3 bytes, then for a request the UD queue pair and the endpoint, 3 bytes each; for an answer the
 * endpoint in 4. Names follow, which nobody needs. */
#define CONTROL_REQUEST 1u
#define CONTROL_ANSWER 2u
#define CONTROL_BYTES 40u
#define OUR_ENDPOINT 0u
#define FIRST_NUMBER 1u
/* A message of the wireup: kind, error mode, 2 bytes of a number, the sender's endpoint, the receiver's. */
#define WIREUP_REQUEST 1u
#define WIREUP_ANSWER 2u
#define WIREUP_FROM 4u
#define WIREUP_TO 12u
#define WIREUP_BYTES 20u
#define WIREUP_OUR_ENDPOINT UINT64_C(1)
/* An address: flags and version, the worker's name and number, then devices, and transports of each. */
#define HAS_DEBUG_TEXT 0x10u
#define HAS_NAME 0x20u
#define HAS_NUMBER 0x40u
#define VERSION_MASK 0x0fu
#define IS_EMPTY 0x80u /* a device: it has no transports */
#define IS_LAST 0x80u
#define HAS_PATHS 0x40u
#define HAS_PLACE 0x20u
#define DEVICE_BYTES_MASK 0x1fu
#define HAS_ENDPOINTS 0x40u /* a transport */
#define INTERFACE_BYTES_MASK 0x3fu
#define CHECKSUM_BYTES 2u
#define ATTRIBUTE_BYTES 16u /* in messages one more */
#define DATAGRAM_INTERFACE_BYTES 3u
#define TAG_ENDPOINT_BYTES 7u /* two numbers, and one byte */

struct datagram {
    uint32_t bytes;
    uint8_t text[UCX_DATAGRAM_BYTES_MAX];
};

static struct {
    struct ucx_numbers ours, theirs;
    uint32_t endpoint;       /* of the client's connection by datagrams */
    uint16_t received, sent; /* numbers of the last datagrams */
    struct datagram answer, reply;
} wireup;

void ucx_wireup_open(const struct ucx_numbers *ours)
{
    memset(&wireup, 0, sizeof(wireup));
    wireup.ours = *ours;
}

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void put_number(uint8_t *at, uint32_t number)
{
    for (uint32_t i = 0; i < 3; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
}

/* ---- Addresses ------------------------------------------------------------------------------- */

/* Takes so many bytes of an address. */
static uint8_t *step(uint8_t **at, const uint8_t *end, uint32_t bytes)
{
    uint8_t *const here = *at;
    assert_true((size_t)(end - here) >= bytes);
    *at += bytes;
    return here;
}

/* Swaps numbers for ours, and keeps those that there were. */
static void swap(uint8_t *at, uint32_t ours, uint32_t *theirs)
{
    *theirs = number_at(at);
    put_number(at, ours);
}

static void change_endpoints(uint8_t **at, const uint8_t *end)
{
    uint8_t lane;
    do {
        const uint32_t bytes = *step(at, end, 1);
        uint8_t *const endpoint = step(at, end, bytes);
        if (bytes == TAG_ENDPOINT_BYTES) {
            swap(endpoint, wireup.ours.sender, &wireup.theirs.sender);
            swap(endpoint + 3, wireup.ours.receiver, &wireup.theirs.receiver);
        }
        lane = *step(at, end, 1);
    } while (!(lane & IS_LAST));
}

static void change_transports(uint8_t **at, const uint8_t *end, uint32_t attribute_bytes)
{
    uint8_t flags;
    do {
        step(at, end, CHECKSUM_BYTES + attribute_bytes);
        flags = *step(at, end, 1);
        const uint32_t bytes = flags & INTERFACE_BYTES_MASK;
        uint8_t *const interface = step(at, end, bytes);
        if (bytes == DATAGRAM_INTERFACE_BYTES) {
            swap(interface, wireup.ours.datagrams, &wireup.theirs.datagrams);
        }
        if (flags & HAS_ENDPOINTS) {
            change_endpoints(at, end);
        }
    } while (!(flags & IS_LAST));
}

static void change(uint8_t *address, uint32_t bytes, uint32_t attribute_bytes)
{
    uint8_t *at = address;
    const uint8_t *const end = address + bytes;
    const uint8_t head = *step(&at, end, 1);
    uint8_t flags;
    assert_int_equal(head & VERSION_MASK, 0);
    assert_true(head & HAS_NAME && !(head & HAS_DEBUG_TEXT));
    step(&at, end, 8)[7] ^= 1; /* another name than the client's: one byte is enough */
    if (head & HAS_NUMBER) {
        step(&at, end, 8);
    }
    do {
        const uint8_t device = *step(&at, end, 1);
        flags = *step(&at, end, 1);
        step(&at, end, ((flags & HAS_PATHS) != 0) + ((flags & HAS_PLACE) != 0));
        step(&at, end, flags & DEVICE_BYTES_MASK); /* it is ours, too */
        if (!(device & IS_EMPTY)) {
            change_transports(&at, end, attribute_bytes);
        }
    } while (!(flags & IS_LAST));
    assert_ptr_equal(at, end);
}

void ucx_wireup_change(uint8_t *address, uint32_t bytes)
{
    change(address, bytes, ATTRIBUTE_BYTES);
}

/* ---- Datagrams ------------------------------------------------------------------------------- */

/* Begins an answer. Returns where its payload goes. */
static uint8_t *begin(struct datagram *one, uint32_t kind, uint32_t payload_bytes)
{
    const uint32_t word = wireup.endpoint | kind;
    memset(one, 0, sizeof(*one));
    memcpy(one->text, &word, sizeof(word));
    memcpy(one->text + 4, &wireup.sent, sizeof(wireup.sent));
    memcpy(one->text + 6, &wireup.received, sizeof(wireup.received));
    one->bytes = NETWORK_BYTES + payload_bytes;
    assert_true(one->bytes <= sizeof(one->text));
    return one->text + NETWORK_BYTES;
}

static enum ucx_demand take_request(const uint8_t *control, uint32_t bytes)
{
    assert_true(bytes >= CONTROL_BYTES && control[0] == CONTROL_REQUEST);
    wireup.endpoint = number_at(control + 7);
    wireup.sent = FIRST_NUMBER;
    uint8_t *const answer = begin(&wireup.answer, IS_CONTROL | ASKS_ANSWER, CONTROL_BYTES);
    answer[0] = CONTROL_ANSWER;
    put_number(answer + 4, OUR_ENDPOINT);
    return UCX_ANSWER;
}

static enum ucx_demand take_wireup(const uint8_t *message, uint32_t bytes)
{
    assert_true(bytes >= WIREUP_BYTES);
    wireup.sent = FIRST_NUMBER + 1;
    uint8_t *const answer =
        begin(&wireup.reply, IS_MESSAGE | HANDLER_WIREUP << HANDLER_SHIFT, bytes);
    const uint64_t endpoint = WIREUP_OUR_ENDPOINT;
    memcpy(answer, message, bytes);
    answer[0] = WIREUP_ANSWER;
    memcpy(answer + WIREUP_FROM, &endpoint, sizeof(endpoint));
    memcpy(answer + WIREUP_TO, message + WIREUP_FROM, sizeof(endpoint));
    change(answer + WIREUP_BYTES, bytes - WIREUP_BYTES, ATTRIBUTE_BYTES + 1);
    return UCX_CONNECT;
}

enum ucx_demand ucx_wireup_take(const uint8_t *datagram, uint32_t bytes)
{
    uint32_t word;
    assert_true(bytes >= NETWORK_BYTES);
    const uint8_t *const payload = datagram + NETWORK_BYTES;
    memcpy(&word, datagram, sizeof(word));
    if ((word & NOBODY) == NOBODY || word & IS_MESSAGE) {
        memcpy(&wireup.received, datagram + 4, sizeof(wireup.received));
    }
    if ((word & NOBODY) == NOBODY) {
        return take_request(payload, bytes - NETWORK_BYTES);
    }
    if (word & IS_MESSAGE && word >> HANDLER_SHIFT == HANDLER_WIREUP &&
        payload[0] == WIREUP_REQUEST) {
        return take_wireup(payload, bytes - NETWORK_BYTES);
    }
    if (word & (IS_MESSAGE | ASKS_ANSWER)) {
        begin(&wireup.answer, 0, 0);
        return UCX_ANSWER;
    }
    return UCX_NO_DEMAND;
}

const uint8_t *ucx_wireup_answer(uint32_t *bytes)
{
    *bytes = wireup.answer.bytes;
    return wireup.answer.text;
}

const uint8_t *ucx_wireup_reply(uint32_t *bytes)
{
    *bytes = wireup.reply.bytes;
    return wireup.reply.text;
}

const struct ucx_numbers *ucx_wireup_numbers(void)
{
    return &wireup.theirs;
}

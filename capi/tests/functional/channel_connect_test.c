/* channel_connect_test.c: how channels come to be and do not, and what of an op is refused: each with
 * an error that says why.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "place.h"
#include "signals.h"
#include "stream.h"

#define TOKEN "a channel's token"
#define REASON 4711u

static crpc_channel_options with_token(void)
{
    crpc_channel_options options = {.struct_size = sizeof(options), .token_bytes = 16};
    memcpy(options.token, TOKEN, 16);
    return options;
}

static crpc_channel start_connect(struct side *side, const char *address,
                                  const crpc_channel_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_channel_options ours = side_options(options);
    crpc_channel channel;
    EXPECT(crpc_channel_connect(side->context, address, &ours, &channel, &error) == CRPC_OK, "%s",
           error.message);
    return channel;
}

/* Connects to where it cannot; the error must have a status and name something. */
static void refused_at(struct side *side, const char *address, int32_t status, const char *text)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint32_t before = side->connected;
    crpc_channel channel = start_connect(side, address, NULL);
    SIDE_UNTIL(side, side->connected > before);
    EXPECT_EQUAL(side->connected_status, status);
    EXPECT_EQUAL(crpc_channel_get_error(side->context, channel, &error), CRPC_OK);
    EXPECT_EQUAL(error.status, status);
    EXPECT(strstr(error.message, text), "\"%s\" does not tell of \"%s\"", error.message, text);
    printf("# %s: %s\n", crpc_status_name(status), error.message);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_E_STALE);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void the_token_is_shown_and_a_rejection_has_its_reason(struct side *side)
{
    char address[64];
    crpc_channel_options options = with_token();
    side_open(side, NULL);
    side_listen(side, CRPC_LISTENER_CHANNELS, address);
    if (side->index == 0) {
        refused_at(side, address, CRPC_E_REFUSED, "4711");
    } else {
        SIDE_UNTIL(side, side->requests == 1);
        EXPECT_EQUAL(side_info(side, side->requested).state, CRPC_STATE_REQUESTED);
        EXPECT_EQUAL(side_info(side, side->requested).token_bytes, 0);
        EXPECT_EQUAL(crpc_channel_reject(side->context, side->requested, REASON), CRPC_OK);
        EXPECT_EQUAL(crpc_channel_reject(side->context, side->requested, REASON), CRPC_E_STALE);
    }
    side_meet(side);
    crpc_channel channel = side_connect(side, &options);
    crpc_channel_info info = side_info(side, channel);
    if (side->index == 1) {
        EXPECT_EQUAL(info.token_bytes, 16);
        EXPECT(memcmp(info.token, TOKEN, 16) == 0, "another token");
    }
    EXPECT(strncmp(info.peer_address, place_address(0), strlen(place_address(0))) == 0, "%s",
           info.peer_address);
    EXPECT_EQUAL(info.version, 1);
    side_meet(side);
    side_leave(side, channel);
}

static void nobody_listens_or_not_for_channels(struct side *side)
{
    char address[64];
    side_open(side, NULL);
    if (side->index == 0) {
        refused_at(side, place_at(0, "9"), CRPC_E_REFUSED, "nobody listens");
        refused_at(side, "192.0.2.1:7471", CRPC_E_UNREACHABLE, "192.0.2.1");
        refused_at(side, "no-such-name.invalid:7471", CRPC_E_UNREACHABLE, "no-such-name");
    }
    side_listen(side, 0, address); /* for endpoints */
    if (side->index == 0) {
        refused_at(side, address, CRPC_E_REFUSED, "CRPC_LISTENER_CHANNELS");
    }
    side_listen(side, CRPC_LISTENER_CHANNELS, address);
    if (side->index == 0) { /* an endpoint at a listener for channels */
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_endpoint endpoint;
        uint32_t before = side->connected;
        const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                               .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        EXPECT_EQUAL(crpc_endpoint_connect(side->context, address, &options, &endpoint, &error),
                     CRPC_OK);
        SIDE_UNTIL(side, side->connected > before);
        EXPECT(side->connected_status < 0, "it is connected");
        EXPECT_EQUAL(crpc_endpoint_get_error(side->context, endpoint, &error), CRPC_OK);
        printf("# %s: %s\n", crpc_status_name(side->connected_status), error.message);
        EXPECT(strstr(error.message, "CRPC_LISTENER_CHANNELS"), "%s", error.message);
    }
    side_meet(side);
    EXPECT_EQUAL(side->requests, 0);
    side_leave(side, side_connect(side, NULL)); /* nobody came to harm */
}

static void give_up(struct side *side, const char *address, uint64_t after_ns)
{
    crpc_channel_options options = {.struct_size = sizeof(options), .connect_timeout_ns = after_ns};
    uint32_t connected = side->connected;
    double begun = side_seconds();
    crpc_channel channel = start_connect(side, address, &options);
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND, .channel = channel};
    int32_t reason;
    EXPECT_EQUAL(crpc_channel_submit(side->context, &op, 1, &reason), 0);
    EXPECT_EQUAL(reason, CRPC_E_STATE);
    SIDE_UNTIL(side, side->connected > connected);
    EXPECT_EQUAL(side->connected_status, CRPC_E_TIMEOUT);
    EXPECT(side_seconds() - begun >= (double)after_ns / 1e9, "too early");
}

/* Accepts after a pause. Returns false if nobody knows yet that the other has given up. */
static bool accept_too_late(struct side *side, useconds_t pause_us)
{
    crpc_error error = {.struct_size = sizeof(error)};
    /* What the other's rdma_cm says is on its way, and nothing tells when it is here. */
    usleep(pause_us);
    side_poll(side, 0);
    int32_t status = crpc_channel_accept(side->context, side->requested, NULL, &error);
    if (status != CRPC_OK) {
        EXPECT_EQUAL(status, CRPC_E_DISCONNECTED);
        printf("# %s\n", error.message);
    }
    EXPECT_EQUAL(crpc_channel_close(side->context, side->requested), CRPC_OK);
    return status != CRPC_OK;
}

static void a_peer_that_does_not_accept(struct side *side)
{
    char address[64];
    bool late = false;
    side_open(side, NULL);
    side_listen(side, CRPC_LISTENER_CHANNELS, address);
    for (useconds_t pause_us = 300000; !late; pause_us *= 4) {
        EXPECT(pause_us < 60000000, "it is accepted after any pause");
        uint32_t requests = side->requests;
        if (side->index == 0) {
            give_up(side, address, UINT64_C(1000) * pause_us);
            side_meet(side);
            side_hear(side, &late, sizeof(late));
        } else {
            /* On a busy machine the time may be up before anything was asked. */
            SIDE_UNTIL(side, side->requests > requests || side_told(side));
            side_meet(side);
            late = side->requests > requests && accept_too_late(side, pause_us);
            side_tell(side, &late, sizeof(late));
        }
    }
    side_meet(side);
}

static void blobs_that_are_none(struct side *side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t ours[CRPC_BLOB_BYTES_MAX], endpoints[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = 3, endpoint_bytes = sizeof(endpoints);
    crpc_channel channel;
    crpc_endpoint endpoint;
    side_open(side, NULL);
    EXPECT_EQUAL(crpc_channel_blob(side->context, NULL, &channel, ours, &bytes, &error),
                 CRPC_E_TOO_BIG);
    EXPECT(bytes > 3 && bytes <= CRPC_BLOB_BYTES_MAX, "%u", bytes);
    EXPECT_EQUAL(crpc_channel_blob(side->context, NULL, &channel, ours, &bytes, &error), CRPC_OK);
    EXPECT_EQUAL(
        crpc_endpoint_blob(side->context, NULL, &endpoint, endpoints, &endpoint_bytes, &error),
        CRPC_OK);
    EXPECT_EQUAL(crpc_channel_join(side->context, channel, ours, bytes, &error), CRPC_E_INVALID);
    printf("# %s\n", error.message);
    EXPECT_EQUAL(crpc_channel_join(side->context, channel, endpoints, endpoint_bytes, &error),
                 CRPC_E_PROTOCOL);
    printf("# %s\n", error.message);
    EXPECT_EQUAL(crpc_endpoint_join(side->context, endpoint, ours, bytes, &error), CRPC_E_PROTOCOL);
    printf("# %s\n", error.message);
    for (uint32_t i = 0; i < bytes; i++) {
        ours[i] ^= 0x10;
        EXPECT_EQUAL(crpc_channel_join(side->context, channel, ours, bytes, &error),
                     CRPC_E_PROTOCOL);
        ours[i] ^= 0x10;
    }
    EXPECT_EQUAL(crpc_channel_join(side->context, channel, ours, bytes - 1, &error),
                 CRPC_E_PROTOCOL);
    EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
    EXPECT_EQUAL(crpc_endpoint_close(side->context, endpoint), CRPC_OK);
    side_leave(side, side_join(side, NULL));
}

/* ---- Bad input ------------------------------------------------------------------------------- */

static crpc_completion seen[64];
static uint32_t seen_count;

static void keep(struct side *side, const crpc_completion *completion)
{
    (void)side;
    EXPECT(seen_count < 64, "more than were submitted");
    seen[seen_count++] = *completion;
}

/* The completion with this user_data, which must come. */
static crpc_completion wait_for(struct side *side, uint8_t kind, uint64_t user_data)
{
    double end = side_seconds() + 60;
    for (;;) {
        for (uint32_t i = 0; i < seen_count; i++) {
            if (seen[i].kind == kind && seen[i].user_data == user_data) {
                crpc_completion found = seen[i];
                seen[i] = seen[--seen_count];
                return found;
            }
        }
        EXPECT(side_seconds() < end, "no completion %u of %llu", kind,
               (unsigned long long)user_data);
        side_poll(side, 10000000);
    }
}

static void expect_reason_at(int line, struct side *side, const crpc_channel_op *ops,
                             uint32_t count, int32_t expected)
{
    int32_t reason;
    EXPECT_EQUAL(crpc_channel_submit(side->context, ops, count, &reason), 0);
    EXPECT(reason == expected, "line %d: %s, not %s", line, crpc_status_name(reason),
           crpc_status_name(expected));
}
#define expect_reason(...) expect_reason_at(__LINE__, __VA_ARGS__)

static crpc_region make_region(struct side *side, void *bytes, uint64_t count, uint32_t access)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region region;
    EXPECT(crpc_region_register(side->context, bytes, count, access, &region, &error) == CRPC_OK,
           "%s", error.message);
    return region;
}

static void refused_ops(struct side *side)
{
    static uint8_t bytes[8192];
    side_open(side, NULL);
    side->take = keep;
    crpc_channel channel = side_connect(side, NULL);
    const uint64_t start = (uint64_t)(uintptr_t)bytes;
    crpc_region region = make_region(side, bytes, 4096, 3);
    crpc_region unwritable = make_region(side, bytes + 4096, 4096, 0);
    const crpc_channel_op receive = {
        .opcode = CRPC_CHANNEL_RECEIVE, .channel = channel, .address = start, .bytes = 4096};
    const crpc_channel_op send = {
        .opcode = CRPC_CHANNEL_SEND, .channel = channel, .address = start, .bytes = 4096};
    crpc_channel_op ops[9];
    for (uint32_t i = 0; i < 9; i++) {
        ops[i] = receive;
        ops[i].flags = i < 8 ? CRPC_CHANNEL_MORE : 0;
    }
    expect_reason(side, ops, 9, CRPC_E_TOO_BIG); /* nine of a message */
    expect_reason(side, ops, 3, CRPC_E_INVALID); /* which has no end */
    ops[1] = send;
    expect_reason(side, ops, 9, CRPC_E_INVALID); /* a send among them */
#define REFUSED(of, field, value, expected)                                                        \
    do {                                                                                           \
        ops[0] = of;                                                                               \
        ops[0].field = value;                                                                      \
        expect_reason(side, ops, 1, expected);                                                     \
    } while (0)
    REFUSED(receive, bytes, (UINT64_C(1) << 30) + 1, CRPC_E_TOO_BIG);
    REFUSED(send, bytes, (UINT64_C(1) << 30) + 1, CRPC_E_TOO_BIG);
    REFUSED(send, bytes, UINT64_MAX, CRPC_E_TOO_BIG);
    REFUSED(send, opcode, 9, CRPC_E_UNSUPPORTED);
    REFUSED(send, flags, CRPC_CHANNEL_MORE, CRPC_E_INVALID);
    REFUSED(receive, flags, 0x80, CRPC_E_INVALID);
    REFUSED(receive, timeout_ns, 1, CRPC_E_INVALID);
    REFUSED(send, token, 1, CRPC_E_INVALID);
    REFUSED(send, zero, 1, CRPC_E_INVALID);
    REFUSED(send, address, 0, CRPC_E_INVALID);
    REFUSED(send, address, UINT64_MAX - 10, CRPC_E_INVALID);
    REFUSED(send, channel.bits, channel.bits + 1000, CRPC_E_STALE);
    REFUSED(send, channel.bits, 0, CRPC_E_STALE);
    REFUSED(send, channel.bits, region.bits, CRPC_E_STALE); /* another kind */
    REFUSED(send, region.bits, region.bits + 1000, CRPC_E_STALE);
    REFUSED(send, region.bits, channel.bits, CRPC_E_STALE);
    REFUSED(receive, region, unwritable, CRPC_E_INVALID); /* outside, and not writable */
    crpc_channel_op within = receive;
    within.region = region;
    REFUSED(within, bytes, 4097, CRPC_E_INVALID);
    REFUSED(within, address, start + 1, CRPC_E_INVALID);
    REFUSED(within, address, start - 1, CRPC_E_INVALID);
    within.address += 4096;
    REFUSED(within, region, unwritable, CRPC_E_INVALID);
    EXPECT_EQUAL(crpc_channel_submit(side->context, NULL, 1, NULL), CRPC_E_INVALID);
    EXPECT_EQUAL(crpc_channel_submit(NULL, ops, 1, NULL), CRPC_E_INVALID);
    EXPECT_EQUAL(crpc_channel_set_share(side->context, channel, 1025), CRPC_E_INVALID);
    crpc_channel_op cancel = {.opcode = CRPC_CHANNEL_CANCEL, .channel = channel, .user_data = 77};
    REFUSED(cancel, bytes, 1, CRPC_E_INVALID);
    EXPECT_EQUAL(seen_count, 0); /* what was not taken yields nothing */
    EXPECT_EQUAL(side_info(side, channel).receives_open, 0);
    EXPECT_EQUAL(crpc_region_deregister(side->context, region), CRPC_OK);
    REFUSED(send, region, region, CRPC_E_STALE);
    side_meet(side);
    side_leave(side, channel);
    expect_reason(side, &send, 1, CRPC_E_STALE);
}

/* A send without a receive waits, may be canceled, or its time passes; then the next is sent. */
static void a_send_without_a_receive(struct side *side)
{
    static uint8_t bytes[1000];
    seen_count = 0;
    side_open(side, NULL);
    side->take = keep;
    crpc_channel channel = side_connect(side, NULL);
    if (side->index == 1) {
        side_meet(side); /* the other's sends have ended */
        side_receive(side, channel, bytes, sizeof(bytes), 5, 9);
        crpc_completion received = wait_for(side, CRPC_COMPLETION_RECEIVED, 9);
        EXPECT_EQUAL(received.status, CRPC_OK);
        EXPECT_EQUAL(received.payload_bytes, 300);
        EXPECT_EQUAL(bytes[299], 3);
        side_meet(side);
        side_leave(side, channel);
        return;
    }
    memset(bytes, 3, sizeof(bytes));
    side_send(side, channel, bytes, 100, 5, 1);
    side_send(side, channel, bytes, 150, 5, 1);
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND,
                          .tag = 5,
                          .channel = channel,
                          .user_data = 2,
                          .address = (uint64_t)(uintptr_t)bytes,
                          .bytes = 200,
                          .timeout_ns = 50000000};
    double begun = side_seconds();
    EXPECT_EQUAL(crpc_channel_submit(side->context, &op, 1, NULL), 1);
    EXPECT_EQUAL(side_info(side, channel).sends_open, 3);
    EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_SENT, 2).status, CRPC_E_TIMEOUT);
    EXPECT(side_seconds() - begun >= 0.05, "too early");
    EXPECT_EQUAL(seen_count, 0); /* those before it still wait */
    crpc_channel_op cancel = {
        .opcode = CRPC_CHANNEL_CANCEL, .channel = channel, .user_data = 3, .token = 1};
    EXPECT_EQUAL(crpc_channel_submit(side->context, &cancel, 1, NULL), 1);
    crpc_completion canceled = wait_for(side, CRPC_COMPLETION_CANCEL, 3);
    EXPECT_EQUAL(canceled.status, CRPC_OK);
    EXPECT_EQUAL(canceled.token, 2);
    EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_SENT, 1).status, CRPC_E_CANCELED);
    EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_SENT, 1).status, CRPC_E_CANCELED);
    EXPECT_EQUAL(crpc_channel_submit(side->context, &cancel, 1, NULL), 1);
    EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_CANCEL, 3).status, CRPC_E_NOT_FOUND);
    side_send(side, channel, bytes, 300, 5, 4);
    side_meet(side);
    EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_SENT, 4).status, CRPC_OK);
    side_meet(side);
    side_leave(side, channel);
}

/* CLOSED on the side that closes, DISCONNECTED on the other; a leave ends receives that remain. */
static void closed_and_left(struct side *side)
{
    static uint8_t bytes[4096];
    side_open(side, NULL);
    side->take = keep;
    for (int leave = 0; leave < 2; leave++) {
        seen_count = 0;
        crpc_channel channel = side_connect(side, NULL);
        crpc_region region = make_region(side, bytes, sizeof(bytes), 3);
        for (uint64_t i = 0; i < 3; i++) {
            crpc_channel_op op = {.opcode = CRPC_CHANNEL_RECEIVE,
                                  .tag = 1,
                                  .channel = channel,
                                  .user_data = i,
                                  .region = region,
                                  .address = (uint64_t)(uintptr_t)bytes,
                                  .bytes = 100};
            EXPECT_EQUAL(crpc_channel_submit(side->context, &op, 1, NULL), 1);
        }
        side_send(side, channel, bytes, 100, 99, 5); /* nobody has this tag */
        EXPECT_EQUAL(crpc_region_deregister(side->context, region), CRPC_E_BUSY);
        EXPECT_EQUAL(crpc_cache_forget(side->context, bytes, sizeof(bytes)), CRPC_E_BUSY);
        side_meet(side);
        int32_t expected = CRPC_E_DISCONNECTED;
        if (side->index == 0 && leave) {
            EXPECT_EQUAL(crpc_channel_disconnect(side->context, channel, CRPC_FOREVER), CRPC_OK);
            EXPECT_EQUAL(crpc_channel_disconnect(side->context, channel, 200000000), CRPC_OK);
            crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND, .channel = channel};
            expect_reason(side, &op, 1, CRPC_E_CLOSING);
        } else if (side->index == 0) {
            EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
            expected = CRPC_E_CLOSED;
        }
        for (uint64_t i = 0; i < 3; i++) {
            EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_RECEIVED, i).status, expected);
        }
        EXPECT_EQUAL(wait_for(side, CRPC_COMPLETION_SENT, 5).status, expected);
        if (side->index == 1 || leave) {
            side_wait_gone(side, channel);
            EXPECT_EQUAL(crpc_channel_close(side->context, channel), CRPC_OK);
        }
        EXPECT_EQUAL(seen_count, 0);
        EXPECT_EQUAL(crpc_region_deregister(side->context, region), CRPC_OK);
        EXPECT(crpc_cache_forget(side->context, bytes, sizeof(bytes)) >= 0, "in use");
        side_meet(side);
    }
}

/* ---- Hint ------------------------------------------------------------------------------------ */

/* As docs/wire.md has it: magic, version, sequence, share. */
static void write_hint(volatile uint32_t *hint, uint32_t share)
{
    hint[2]++;
    __sync_synchronize();
    hint[0] = 0x54484343;
    hint[1] = 1;
    hint[3] = share;
    __sync_synchronize();
    hint[2]++;
}

/* Bytes over rail 0 in parts of 1024, of the messages that a stream sends now. */
static uint64_t share_of(struct side *side, crpc_channel channel, uint64_t *number)
{
    static const uint64_t size = 1 << 20;
    struct stream_options stream = {.messages = {10, 0}, .sizes = &size, .size_count = 1};
    crpc_channel_stats before = side_stats(side, channel);
    stream_run(side, channel, &stream, side->seed, *number);
    *number += 10;
    crpc_channel_stats after = side_stats(side, channel);
    uint64_t first = after.rail_bytes_sent[0] - before.rail_bytes_sent[0];
    return (first * 1024 + 5 * size) / (10 * size);
}

static void a_hint_is_followed(struct side *side)
{
    static const uint32_t shares[] = {512, 100, 1024, 0, 900};
    crpc_channel_options options = {.struct_size = sizeof(options), .split = CRPC_SPLIT_HINT};
    uint64_t number = 0;
    snprintf(options.hint, sizeof(options.hint), "/crpc-test-%d",
             side->index == 0 ? (int)getpid() : 0);
    side_open(side, NULL);
    int fd = -1;
    volatile uint32_t *hint = NULL;
    if (side->index == 0) {
        fd = shm_open(options.hint, O_RDWR | O_CREAT | O_EXCL, 0600);
        EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0, "%s", options.hint);
        hint = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT(hint != MAP_FAILED, "mmap");
        write_hint(hint, 1024);
    }
    crpc_channel channel = side_connect(side, side->index == 0 ? &options : NULL);
    /* Or the first would have it all. */
    side_await_rails(side, channel, CRPC_RAIL_UP, CRPC_RAIL_UP);
    side_meet(side);
    for (uint32_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        if (hint) {
            write_hint(hint, shares[i]);
        }
        uint64_t got = share_of(side, channel, &number);
        EXPECT(side->index == 1 || got == shares[i], "%llu, not %u", (unsigned long long)got,
               shares[i]);
    }
    if (hint) { /* what is no hint counts for nothing: both rails again */
        write_hint(hint, 1025);
    }
    uint64_t got = share_of(side, channel, &number);
    EXPECT(side->index == 1 || (got > 0 && got < 1024), "%llu", (unsigned long long)got);
    if (hint) { /* written for ever: likewise, and nobody waits */
        write_hint(hint, 0);
        hint[2]++;
    }
    got = share_of(side, channel, &number);
    EXPECT(side->index == 1 || (got > 0 && got < 1024), "%llu", (unsigned long long)got);
    if (side->index == 0) {
        shm_unlink(options.hint);
        close(fd);
    }
    side_leave(side, channel);
}

#define RUN(name)                                                                                  \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        sides_run(name, 21);                                                                       \
    }
RUN(the_token_is_shown_and_a_rejection_has_its_reason)
RUN(nobody_listens_or_not_for_channels)
RUN(a_peer_that_does_not_accept)
RUN(blobs_that_are_none)
RUN(refused_ops)
RUN(a_send_without_a_receive)
RUN(closed_and_left)
RUN(a_hint_is_followed)

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_is_shown_and_a_rejection_has_its_reason_test),
        cmocka_unit_test(nobody_listens_or_not_for_channels_test),
        cmocka_unit_test(a_peer_that_does_not_accept_test),
        cmocka_unit_test(blobs_that_are_none_test),
        cmocka_unit_test(refused_ops_test),
        cmocka_unit_test(a_send_without_a_receive_test),
        cmocka_unit_test(closed_and_left_test),
        cmocka_unit_test(a_hint_is_followed_test),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

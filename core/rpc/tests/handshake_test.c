/* handshake_test.c: which handshakes are taken, which are not, and what is said of a rejection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/handshake.h"

static struct wire_handshake good(void)
{
    return (struct wire_handshake){.magic = WIRE_HANDSHAKE_MAGIC,
                                   .version_min = 1,
                                   .version_max = 1,
                                   .ring_log2 = 12,
                                   .calls_log2 = 4,
                                   .ring_address = 0x7f0000001000,
                                   .ring_key = 11,
                                   .mailbox_key = 12,
                                   .request_units = 64,
                                   .batch_window = 8,
                                   .nonce = 99,
                                   .token_bytes = 5,
                                   .token = "hello"};
}

static void a_good_request_is_taken(void **state)
{
    (void)state;
    struct wire_handshake wire = good();
    uint8_t padded[92] = {0};
    struct handshake_peer peer;
    struct wire_reject reject;
    wire.version_max = 200; /* a newer peer that still speaks ours */
    wire.features = 0xffff; /* and offers what we do not know */
    memcpy(padded, &wire, sizeof(wire));
    assert_int_equal(handshake_check_request(padded, sizeof(padded), &peer, &reject, NULL),
                     CRPC_OK);
    assert_int_equal(peer.version, WIRE_VERSION_MAX);
    assert_int_equal(peer.features, HANDSHAKE_FEATURES_KNOWN);
    assert_int_equal(peer.ring_bytes, 4096);
    assert_int_equal(peer.request_bytes, 2048);
    assert_int_equal(peer.calls, 16);
    assert_int_equal(peer.batch_window, 8);
    assert_int_equal(peer.nonce, 99);
    assert_int_equal(peer.token_bytes, 5);
    assert_memory_equal(peer.token, "hello", 5);
    wire = good();
    wire.request_units = 0; /* takes no requests */
    assert_int_equal(handshake_check_request(&wire, sizeof(wire), &peer, &reject, NULL), CRPC_OK);
    wire.request_units = 127; /* all but FIN's room */
    assert_int_equal(handshake_check_request(&wire, sizeof(wire), &peer, &reject, NULL), CRPC_OK);
}

struct spoiled {
    const char *name;
    size_t offset;
    size_t bytes;
    uint64_t value;
    int32_t status;
    uint16_t reason;
};

static const struct spoiled spoiled[] = {
#define SPOILED(field, value, status, reason)                                                      \
    {                                                                                              \
#field, offsetof(struct wire_handshake, field),                                            \
            sizeof(((struct wire_handshake *)0)->field), (value), (status), (reason)               \
    }
    SPOILED(magic, 0x12345678, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(version_min, 2, CRPC_E_VERSION, WIRE_REJECT_VERSION),
    SPOILED(version_max, 0, CRPC_E_VERSION, WIRE_REJECT_VERSION),
    SPOILED(ring_log2, 11, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(ring_log2, 31, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(ring_log2, 255, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(calls_log2, 21, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(ring_address, 0x1001, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(ring_address, UINT64_MAX - 31, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(ring_address, UINT64_MAX - 8191, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(request_units, 1, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(request_units, 128, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(request_units, UINT32_MAX, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(batch_window, 0, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(features_required, 1, CRPC_E_VERSION, WIRE_REJECT_FEATURES),
    SPOILED(features_required, 0x8000, CRPC_E_VERSION, WIRE_REJECT_FEATURES),
    SPOILED(token_bytes, 17, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
    SPOILED(zero, 1, CRPC_E_PROTOCOL, WIRE_REJECT_MALFORMED),
};

#define SPOILED_COUNT (sizeof(spoiled) / sizeof(spoiled[0]))

static void spoiled_requests_are_rejected_with_the_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPOILED_COUNT; i++) {
        struct wire_handshake wire = good();
        struct handshake_peer peer;
        struct wire_reject reject = {0};
        crpc_error error = {0};
        memcpy((uint8_t *)&wire + spoiled[i].offset, &spoiled[i].value, spoiled[i].bytes);
        int32_t status = handshake_check_request(&wire, sizeof(wire), &peer, &reject, &error);
        if (status != spoiled[i].status || reject.reason != spoiled[i].reason) {
            fail_msg("%s = %llu: status %d, reason %u", spoiled[i].name,
                     (unsigned long long)spoiled[i].value, status, reject.reason);
        }
        assert_int_equal(reject.magic, WIRE_HANDSHAKE_MAGIC);
        assert_int_equal(reject.version_min, WIRE_VERSION_MIN);
        assert_int_equal(reject.version_max, WIRE_VERSION_MAX);
        assert_true(strlen(error.message) > 20);
    }
}

static void short_ones_are_not_read_past_their_end(void **state)
{
    (void)state;
    struct wire_handshake wire = good();
    for (size_t bytes = 0; bytes < sizeof(wire); bytes++) {
        struct handshake_peer peer;
        struct wire_reject reject;
        assert_int_equal(handshake_check_request(&wire, bytes, &peer, &reject, NULL),
                         CRPC_E_PROTOCOL);
        assert_int_equal(handshake_check_response(&wire, bytes, &peer, NULL), CRPC_E_PROTOCOL);
    }
}

static void a_response_must_choose_among_what_was_offered(void **state)
{
    (void)state;
    struct wire_handshake wire = good();
    struct handshake_peer peer;
    assert_int_equal(handshake_check_response(&wire, sizeof(wire), &peer, NULL), CRPC_OK);
    assert_int_equal(peer.version, 1);
    wire.version_max = 2;
    assert_int_equal(handshake_check_response(&wire, sizeof(wire), &peer, NULL), CRPC_E_VERSION);
    wire.version_min = 2;
    assert_int_equal(handshake_check_response(&wire, sizeof(wire), &peer, NULL), CRPC_E_VERSION);
    wire = good();
    wire.features = 4;
    assert_int_equal(handshake_check_response(&wire, sizeof(wire), &peer, NULL), CRPC_E_PROTOCOL);
    wire = good();
    wire.ring_log2 = 3;
    assert_int_equal(handshake_check_response(&wire, sizeof(wire), &peer, NULL), CRPC_E_PROTOCOL);
}

static void rejections_are_explained(void **state)
{
    (void)state;
    static const struct {
        uint16_t reason;
        int32_t status;
        const char *word;
    } cases[] = {
        {WIRE_REJECT_APPLICATION, CRPC_E_REFUSED, "reason 4242"},
        {WIRE_REJECT_VERSION, CRPC_E_VERSION, "3 to 7"},
        {WIRE_REJECT_FEATURES, CRPC_E_VERSION, "0x1092"},
        {WIRE_REJECT_MALFORMED, CRPC_E_PROTOCOL, "handshake"},
        {WIRE_REJECT_NO_ROOM, CRPC_E_REFUSED, "no room"},
        {77, CRPC_E_PROTOCOL, "reason 77"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wire_reject reject = {.magic = WIRE_HANDSHAKE_MAGIC,
                                     .version_min = 3,
                                     .version_max = 7,
                                     .reason = cases[i].reason,
                                     .detail = 4242};
        crpc_error error = {0};
        assert_int_equal(handshake_explain_reject(&reject, sizeof(reject), &error),
                         cases[i].status);
        if (!strstr(error.message, cases[i].word)) {
            fail_msg("reason %u: %s", cases[i].reason, error.message);
        }
    }
    crpc_error error = {0};
    assert_int_equal(handshake_explain_reject("", 0, &error), CRPC_E_REFUSED);
    assert_non_null(strstr(error.message, "listening"));
    assert_int_equal(handshake_explain_reject("something else..", 16, &error), CRPC_E_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_request_is_taken),
        cmocka_unit_test(spoiled_requests_are_rejected_with_the_reason),
        cmocka_unit_test(short_ones_are_not_read_past_their_end),
        cmocka_unit_test(a_response_must_choose_among_what_was_offered),
        cmocka_unit_test(rejections_are_explained),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

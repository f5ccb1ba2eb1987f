/* hello_test.c: which hellos are taken, which are not, and what is said of a rejection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "link/hello.h"

#define KNOWN 0x0006u /* features */

static const char *body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    return body[0] == 0xbb ? "its body is out of range" : NULL;
}

static void fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    (void)link;
    memset(body, 0x5a, LINK_BODY_BYTES);
}

/* Speaks versions 2 to 4. */
static const struct link_service service = {.name = "endpoint",
                                            .no_room = "endpoints_max",
                                            .number = LINK_SERVICE_CALLS,
                                            .version_min = 2,
                                            .version_max = 4,
                                            .features = KNOWN,
                                            .fill_body = fill_body,
                                            .body_fault = body_fault};

static struct link_hello good(void)
{
    return (struct link_hello){.magic = LINK_MAGIC,
                               .version_min = 3,
                               .version_max = 3,
                               .service = LINK_SERVICE_CALLS,
                               .token_bytes = 5,
                               .features = 0x2,
                               .nonce = 99,
                               .token = "hello",
                               .body = "twenty-four bytes body."};
}

/* An answer has no token. */
static struct link_hello good_answer(void)
{
    struct link_hello hello = good();
    hello.token_bytes = 0;
    memset(hello.token, 0, sizeof(hello.token));
    return hello;
}

static struct link_group group = {.service = &service};

static int32_t check_request(const struct link_hello *hello, size_t bytes, struct link_peer *peer)
{
    struct link_reject reject;
    return hello_check_request(&group, hello, bytes, peer, &reject, NULL);
}

static void a_good_request_is_taken(void **state)
{
    (void)state;
    struct link_hello hello = good();
    uint8_t padded[92] = {0};
    struct link_peer peer;
    struct link_reject reject;
    hello.version_max = 200; /* a newer peer that still speaks ours */
    hello.features = 0x7fff; /* and offers what we do not know */
    memcpy(padded, &hello, sizeof(hello));
    assert_int_equal(hello_check_request(&group, padded, sizeof(padded), &peer, &reject, NULL),
                     CRPC_OK);
    assert_int_equal(peer.version, 4);
    assert_int_equal(peer.features, KNOWN);
    assert_int_equal(peer.nonce, 99);
    assert_int_equal(peer.token_bytes, 5);
    assert_memory_equal(peer.token, "hello", 5);
    assert_memory_equal(peer.body, hello.body, LINK_BODY_BYTES);
    hello = good();
    hello.version_min = 1; /* an older one */
    assert_int_equal(check_request(&hello, sizeof(hello), &peer), CRPC_OK);
    assert_int_equal(peer.version, 3);
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
#field, offsetof(struct link_hello, field), sizeof(((struct link_hello *)0)->field),       \
            (value), (status), (reason)                                                            \
    }
    SPOILED(magic, 0x12345678, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
    SPOILED(service, LINK_SERVICE_CHANNEL, CRPC_E_PROTOCOL, LINK_REJECT_SERVICE),
    SPOILED(service, 0, CRPC_E_PROTOCOL, LINK_REJECT_SERVICE),
    SPOILED(service, 255, CRPC_E_PROTOCOL, LINK_REJECT_SERVICE),
    SPOILED(version_min, 5, CRPC_E_VERSION, LINK_REJECT_VERSION),
    SPOILED(version_min, 4, CRPC_E_VERSION, LINK_REJECT_VERSION),
    SPOILED(version_max, 1, CRPC_E_VERSION, LINK_REJECT_VERSION),
    SPOILED(features_required, 1, CRPC_E_VERSION, LINK_REJECT_FEATURES),
    SPOILED(features_required, 0x2000, CRPC_E_VERSION, LINK_REJECT_FEATURES),
    SPOILED(features_required, 0x4000, CRPC_E_VERSION, LINK_REJECT_TRANSPORT),
    /* A key is offered and required, or neither. */
    SPOILED(features_required, 0x8000, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
    SPOILED(features, 0x8002, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
    SPOILED(token_bytes, 17, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
    SPOILED(token_bytes, 255, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
    SPOILED(body[0], 0xbb, CRPC_E_PROTOCOL, LINK_REJECT_MALFORMED),
};

#define SPOILED_COUNT (sizeof(spoiled) / sizeof(spoiled[0]))

static void spoiled_requests_are_rejected_with_the_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPOILED_COUNT; i++) {
        struct link_hello hello = good();
        struct link_peer peer;
        struct link_reject reject = {0};
        crpc_error error = {0};
        memcpy((uint8_t *)&hello + spoiled[i].offset, &spoiled[i].value, spoiled[i].bytes);
        int32_t status = hello_check_request(&group, &hello, sizeof(hello), &peer, &reject, &error);
        if (status != spoiled[i].status || reject.reason != spoiled[i].reason) {
            fail_msg("%s = %llu: status %d, reason %u", spoiled[i].name,
                     (unsigned long long)spoiled[i].value, status, reject.reason);
        }
        assert_int_equal(reject.magic, LINK_MAGIC);
        assert_int_equal(reject.version_min, 2);
        assert_int_equal(reject.version_max, 4);
        assert_true(strlen(error.message) > 20);
    }
}

static void short_ones_are_not_read_past_their_end(void **state)
{
    (void)state;
    struct link_hello hello = good();
    for (size_t bytes = 0; bytes < sizeof(hello); bytes++) {
        struct link_peer peer;
        assert_int_not_equal(check_request(&hello, bytes, &peer), CRPC_OK);
        assert_int_not_equal(hello_check_response(&group, &hello, bytes, &peer, NULL), CRPC_OK);
    }
}

static void a_response_must_choose_among_what_was_offered(void **state)
{
    (void)state;
    struct link_hello hello = good_answer();
    struct link_peer peer;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    assert_int_equal(peer.version, 3);
    assert_int_equal(peer.features, 2);
    hello.version_max = 4;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_VERSION);
    hello.version_min = hello.version_max = 5;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_VERSION);
    hello = good_answer();
    hello.features = 1;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
    hello = good_answer();
    memset(hello.body, 0, sizeof(hello.body));
    hello.features |= LINK_FEATURE_PROOF; /* that of the link is no feature of the service */
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    assert_true(peer.proves);
    assert_int_equal(peer.features, 2);
    hello = good_answer();
    hello.service = LINK_SERVICE_CHANNEL;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
    hello = good_answer();
    hello.body[0] = 0xbb;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
    hello = good_answer();
    hello.token_bytes = 5;
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
    hello = good_answer();
    hello.features_required = 2; /* which both sides know */
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
}

static void what_is_filled_is_taken_by_the_other_side(void **state)
{
    (void)state;
    struct link link = {.group = &group, .nonce = 7, .options = {.token_bytes = 2, .token = "ab"}};
    struct link_hello hello;
    struct link_peer peer;
    hello_fill(&link, &hello);
    assert_int_equal(check_request(&hello, sizeof(hello), &peer), CRPC_OK);
    assert_int_equal(peer.nonce, 7);
    assert_int_equal(peer.token_bytes, 2);
    /* The answer has what was agreed on, and no token. */
    link.passive = true;
    link.peer = peer;
    hello_fill(&link, &hello);
    assert_int_equal(hello.token_bytes, 0);
    assert_int_equal(hello.version_min, 4);
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    assert_int_equal(peer.version, 4);
    assert_int_equal(peer.features, KNOWN);
}

static void both_sides_have_initiators_or_neither(void **state)
{
    (void)state;
    struct link_group with = {.service = &service, .dynamic = true};
    struct link link = {.group = &with};
    struct link_hello hello;
    struct link_peer peer;
    struct link_reject reject;
    crpc_error error = {0};
    hello_fill(&link, &hello);
    assert_int_equal(hello.features_required, LINK_FEATURE_DYNAMIC);
    assert_int_equal(hello_check_request(&with, &hello, sizeof(hello), &peer, &reject, NULL),
                     CRPC_OK);
    assert_int_equal(peer.features, KNOWN); /* it is no feature of the service */
    assert_int_equal(hello_check_request(&group, &hello, sizeof(hello), &peer, &reject, &error),
                     CRPC_E_VERSION);
    assert_non_null(strstr(error.message, "the peer's context has initiators"));
    assert_int_equal(hello_explain_reject(&service, &reject, sizeof(reject), &error),
                     CRPC_E_VERSION);
    assert_non_null(strstr(error.message, "this context has initiators"));
    link.passive = true;
    link.peer = peer;
    link.peer.version = 4;
    hello_fill(&link, &hello);
    assert_int_equal(hello_check_response(&with, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_VERSION);
    /* One without them, which offers the feature all the same, as any it may know. */
    hello = good();
    hello.features |= LINK_FEATURE_DYNAMIC;
    assert_int_equal(hello_check_request(&group, &hello, sizeof(hello), &peer, &reject, NULL),
                     CRPC_OK);
    assert_int_equal(hello_check_request(&with, &hello, sizeof(hello), &peer, &reject, &error),
                     CRPC_E_VERSION);
    assert_non_null(strstr(error.message, "this context has initiators"));
    assert_int_equal(hello_explain_reject(&service, &reject, sizeof(reject), &error),
                     CRPC_E_VERSION);
    assert_non_null(strstr(error.message, "the peer's context has initiators"));
}

/* A side with an InfiniBand port tells whether packets to it need a GRH, also in its answer. Which side it is does not matter. */
static void who_needs_a_grh_says_so(void **state)
{
    (void)state;
    const uint16_t known = LINK_FEATURE_ROUTE_HEADERS, needed = known | LINK_FEATURE_GRH;
    for (uint32_t who = 0; who < 4; who++) {
        struct link_group here = {.service = &service, .route_features = who & 1 ? needed : known};
        struct link_group there = {.service = &service, .route_features = who & 2 ? needed : known};
        struct link active = {.group = &here}, passive = {.group = &there, .passive = true};
        struct link_hello hello;
        struct link_reject reject;
        hello_fill(&active, &hello);
        assert_int_equal(hello.features_required, 0);
        assert_int_equal(
            hello_check_request(&there, &hello, sizeof(hello), &passive.peer, &reject, NULL),
            CRPC_OK);
        assert_int_equal(passive.peer.grh_required, who & 1);
        assert_int_equal(passive.peer.features, KNOWN);
        hello_fill(&passive, &hello);
        assert_int_equal(hello_check_response(&here, &hello, sizeof(hello), &active.peer, NULL),
                         CRPC_OK);
        assert_int_equal(active.peer.grh_required, who >> 1);
        assert_int_equal(active.peer.features, KNOWN);
    }
}

/* It takes what it does not know from a request or a blob, but not from an answer. */
static void a_peer_of_an_older_version_is_not_told_what_it_does_not_know(void **state)
{
    (void)state;
    struct link_group needs = {.service = &service,
                               .route_features = LINK_FEATURE_ROUTE_HEADERS | LINK_FEATURE_GRH};
    struct link link = {.group = &needs, .passive = true, .peer = {.version = 4}};
    struct link_hello hello;
    struct link_peer peer;
    struct link_reject reject;
    hello_fill(&link, &hello);
    assert_int_equal(hello.features, 0);
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    link.passive = false;
    hello_fill(&link, &hello);
    assert_int_equal(hello_check_request(&group, &hello, sizeof(hello), &peer, &reject, NULL),
                     CRPC_OK);
    assert_int_equal(peer.features, KNOWN);
    /* And the other way round. */
    link.group = &group;
    hello_fill(&link, &hello);
    assert_int_equal(hello_check_request(&needs, &hello, sizeof(hello), &peer, &reject, NULL),
                     CRPC_OK);
    assert_false(peer.grh_required);
    hello = good_answer();
    assert_int_equal(hello_check_response(&needs, &hello, sizeof(hello), &peer, NULL), CRPC_OK);
    assert_false(peer.grh_required);
    hello.features |= LINK_FEATURE_GRH; /* to one that has not offered it */
    assert_int_equal(hello_check_response(&group, &hello, sizeof(hello), &peer, NULL),
                     CRPC_E_PROTOCOL);
}

/* ECE is told of only between two sides that know it; and the answer to one that does not is as it ever was. */
static void who_knows_of_ece_says_so_to_who_does(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < 4; who++) {
        struct link_group here = {.service = &service, .ece = who & 1};
        struct link_group there = {.service = &service, .ece = who >> 1};
        struct link active = {.group = &here}, passive = {.group = &there, .passive = true};
        struct link_hello hello;
        struct link_reject reject;
        hello_fill(&active, &hello);
        assert_int_equal(hello.features_required, 0);
        assert_int_equal(hello.features & LINK_FEATURE_ECE, who & 1 ? LINK_FEATURE_ECE : 0);
        assert_int_equal(
            hello_check_request(&there, &hello, sizeof(hello), &passive.peer, &reject, NULL),
            CRPC_OK);
        assert_int_equal(passive.peer.features, KNOWN);
        hello_fill(&passive, &hello);
        assert_int_equal(hello.features & LINK_FEATURE_ECE, who == 3 ? LINK_FEATURE_ECE : 0);
        assert_int_equal(hello_check_response(&here, &hello, sizeof(hello), &active.peer, NULL),
                         CRPC_OK);
        assert_int_equal(active.peer.features, KNOWN);
        assert_int_equal(link_tells_ece(&active), who == 3);
        assert_int_equal(link_tells_ece(&passive), who == 3);
        hello.features |= LINK_FEATURE_ECE;
        assert_int_equal(hello_check_response(&here, &hello, sizeof(hello), &active.peer, NULL),
                         who & 1 ? CRPC_OK : CRPC_E_PROTOCOL);
    }
}

static void rejections_are_explained(void **state)
{
    (void)state;
    static const struct {
        uint16_t reason;
        uint32_t detail;
        int32_t status;
        const char *word;
    } cases[] = {
        {LINK_REJECT_APPLICATION, 4242, CRPC_E_REFUSED, "reason 4242"},
        {LINK_REJECT_VERSION, 0, CRPC_E_VERSION, "6 to 7"},
        {LINK_REJECT_FEATURES, 0x1092, CRPC_E_VERSION, "0x1092"},
        {LINK_REJECT_MALFORMED, 0, CRPC_E_PROTOCOL, "hello"},
        {LINK_REJECT_NO_ROOM, 0, CRPC_E_REFUSED, "raise its endpoints_max"},
        {LINK_REJECT_SERVICE, LINK_SERVICE_CHANNEL, CRPC_E_REFUSED, "for channels"},
        {LINK_REJECT_SERVICE, 77, CRPC_E_REFUSED, "does not know"},
        {77, 0, CRPC_E_PROTOCOL, "reason 77"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct link_reject reject = {.magic = LINK_MAGIC,
                                     .version_min = 6,
                                     .version_max = 7,
                                     .reason = cases[i].reason,
                                     .detail = cases[i].detail};
        crpc_error error = {0};
        assert_int_equal(hello_explain_reject(&service, &reject, sizeof(reject), &error),
                         cases[i].status);
        if (!strstr(error.message, cases[i].word)) {
            fail_msg("reason %u: %s", cases[i].reason, error.message);
        }
    }
    crpc_error error = {0};
    assert_int_equal(hello_explain_reject(&service, "", 0, &error), CRPC_E_REFUSED);
    assert_non_null(strstr(error.message, "listening"));
    assert_int_equal(hello_explain_reject(&service, "something else..", 16, &error),
                     CRPC_E_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_request_is_taken),
        cmocka_unit_test(spoiled_requests_are_rejected_with_the_reason),
        cmocka_unit_test(short_ones_are_not_read_past_their_end),
        cmocka_unit_test(a_response_must_choose_among_what_was_offered),
        cmocka_unit_test(what_is_filled_is_taken_by_the_other_side),
        cmocka_unit_test(both_sides_have_initiators_or_neither),
        cmocka_unit_test(who_needs_a_grh_says_so),
        cmocka_unit_test(a_peer_of_an_older_version_is_not_told_what_it_does_not_know),
        cmocka_unit_test(who_knows_of_ece_says_so_to_who_does),
        cmocka_unit_test(rejections_are_explained),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

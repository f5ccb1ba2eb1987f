/* op_test.c: what crpc_submit takes and what it refuses: fields that are not of the opcode,
 * payloads out of range, prefixes.
 */
#include "fixture.h"

static const uint8_t payload[64] = "payload";

/* Expects that the op is refused as invalid, and that nothing came of it. */
static void expect_invalid(crpc_op op, const char *what)
{
    int32_t reason;
    if (crpc_submit(fixture.left, &op, 1, payload, sizeof(payload), &reason) != 0 ||
        reason != CRPC_E_INVALID) {
        fail_msg("opcode %u with %s set: %s", op.opcode, what, crpc_status_name(reason));
    }
}

struct field {
    const char *name;
    size_t offset;
    size_t bytes;
    uint8_t of_call, of_reply, of_drop, of_cancel; /* which opcodes name it */
};

static const struct field fields[] = {
#define FIELD(name, call, reply, drop, cancel)                                                     \
    {                                                                                              \
#name, offsetof(crpc_op, name), sizeof(((crpc_op *)0)->name), call, reply, drop, cancel    \
    }
    FIELD(method, 1, 0, 0, 0),        FIELD(status, 0, 1, 0, 0),
    FIELD(token, 0, 1, 1, 1),         FIELD(payload_offset, 1, 1, 0, 0),
    FIELD(payload_bytes, 1, 1, 0, 0), FIELD(reply_bytes_max, 1, 0, 0, 0),
    FIELD(timeout_ns, 1, 0, 0, 0),    FIELD(region, 0, 0, 0, 0),
};

static void fields_that_the_opcode_does_not_name_must_be_zero(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "x", 64);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *field = &fields[i];
        const uint8_t named[] = {[CRPC_OP_CALL] = field->of_call,
                                 [CRPC_OP_REPLY] = field->of_reply,
                                 [CRPC_OP_DROP] = field->of_drop,
                                 [CRPC_OP_CANCEL] = field->of_cancel};
        for (uint8_t opcode = CRPC_OP_CALL; opcode <= CRPC_OP_CANCEL; opcode++) {
            /* Its first and its last byte, so that a narrower check would show. */
            for (size_t at = 0; at < field->bytes && !named[opcode]; at += field->bytes - 1) {
                crpc_op op = {.opcode = opcode, .endpoint = fixture.left_endpoint};
                ((uint8_t *)&op)[field->offset + at] = 1;
                expect_invalid(op, field->name);
            }
        }
    }
    crpc_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_context_get_stats(fixture.left, &stats), CRPC_OK);
    assert_int_equal(stats.calls, 1);
    assert_int_equal(fixture_reply(&request, "y", 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 1);
}

static void flags_and_statuses(void **state)
{
    (void)state;
    for (uint8_t opcode = CRPC_OP_CALL; opcode <= CRPC_OP_CANCEL; opcode++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            bool known =
                (bit == 0 && (opcode == CRPC_OP_REPLY || opcode == CRPC_OP_DROP)) ||
                (bit == 1 && (opcode == CRPC_OP_REPLY ||
                              opcode == CRPC_OP_CALL)) || /* CRPC_OP_REGION needs a region */
                ((bit == 3 || bit == 4) && opcode == CRPC_OP_CALL);
            if (!known) {
                expect_invalid((crpc_op){.opcode = opcode,
                                         .flags = (uint8_t)(1u << bit),
                                         .endpoint = fixture.left_endpoint},
                               "a flag");
            }
        }
    }
    expect_invalid(
        (crpc_op){.opcode = CRPC_OP_REPLY, .status = -1, .endpoint = fixture.left_endpoint},
        "a status below 0");
}

/* On an endpoint that does not reconnect, CRPC_OP_IDEMPOTENT means nothing. */
static void an_idempotent_call(void **state)
{
    (void)state;
    void *address;
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .flags = CRPC_OP_IDEMPOTENT,
                  .endpoint = fixture.left_endpoint,
                  .payload_bytes = 3,
                  .reply_bytes_max = 10};
    for (uint32_t i = 0; i < 2; i++) {
        if (i == 0) {
            assert_int_equal(fixture_submit(fixture.left, &op, "abc", 3), CRPC_OK);
        } else {
            assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_OK);
            memcpy(address, "abc", 3);
            assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 3), CRPC_OK);
        }
        const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_memory_equal((const void *)(uintptr_t)request.payload, "abc", 3);
        assert_int_equal(fixture_reply(&request, "y", 1), CRPC_OK);
        assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status, CRPC_OK);
    }
    op.token = 1;
    expect_invalid(op, "an idempotent call with a token");
}

static void unknown_opcodes(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        if (opcode < CRPC_OP_CALL || opcode > CRPC_OP_CANCEL) {
            crpc_op op = {.opcode = (uint8_t)opcode, .endpoint = fixture.left_endpoint};
            assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_UNSUPPORTED);
        }
    }
}

static void payloads_out_of_range(void **state)
{
    (void)state;
    const struct {
        uint64_t offset;
        uint32_t bytes;
        uint64_t room;
        int32_t reason;
    } cases[] = {
        {0, 64, 64, CRPC_OK},
        {64, 0, 64, CRPC_OK},
        {60, 4, 64, CRPC_OK},
        {0, 65, 64, CRPC_E_INVALID},
        {61, 4, 64, CRPC_E_INVALID},
        {65, 0, 64, CRPC_E_INVALID},
        {UINT64_MAX, 1, 64, CRPC_E_INVALID},
        {UINT64_MAX - 3, 8, 64, CRPC_E_INVALID},
        {0, UINT32_MAX, 64, CRPC_E_INVALID},
        {1, UINT32_MAX, 64, CRPC_E_INVALID},
        {0, 1, 0, CRPC_E_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_op op = fixture_call_op(i);
        op.payload_offset = cases[i].offset;
        op.payload_bytes = cases[i].bytes;
        assert_int_equal(
            fixture_submit(fixture.left, &op, cases[i].room ? payload : NULL, cases[i].room),
            cases[i].reason);
    }
}

static void a_prefix_is_taken_and_the_rest_left_alone(void **state)
{
    (void)state;
    crpc_op ops[8], before[8];
    int32_t reason;
    for (uint64_t i = 0; i < 8; i++) {
        ops[i] = fixture_call_op(i);
        ops[i].payload_bytes = 7;
        ops[i].timeout_ns = 1000;
    }
    ops[5].opcode = 77;
    memcpy(before, ops, sizeof(ops));
    assert_int_equal(crpc_submit(fixture.left, ops, 8, payload, sizeof(payload), &reason), 5);
    assert_int_equal(reason, CRPC_E_UNSUPPORTED);
    assert_memory_equal(ops, before, sizeof(ops));
    uint32_t seen = 0, count = 0;
    for (int tries = 0; tries < 1000 && count < 5; tries++) {
        crpc_wait(fixture.left, 1000000);
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            assert_int_equal(fixture.completions[i].status, CRPC_E_TIMEOUT);
            seen |= 1u << fixture.completions[i].user_data;
            count++;
        }
    }
    assert_int_equal(seen, 0x1f);
    assert_int_equal(count, 5);
    assert_int_equal(fixture_poll(fixture.left), 0);
}

/* ---- Runs: ops of one kind to one endpoint, which are checked and accepted together ------------ */

#define RUN 12

/* Answers what the right side gets, and expects that the left side's calls end in their order, with the payloads and methods of the
 * first `taken`. */
static void expect_run(uint32_t taken)
{
    uint32_t requests = 0, responses = 0;
    for (int tries = 0; tries < 100 && responses < taken; tries++) {
        crpc_op replies[RUN];
        uint32_t count = 0;
        fixture_poll(fixture.right);
        for (int32_t i = 0; i < fixture.count; i++) {
            const crpc_completion *request = &fixture.completions[i];
            if (request->kind == CRPC_COMPLETION_REQUEST) {
                assert_int_equal(request->method, requests + 1);
                assert_int_equal(request->payload_bytes, requests);
                assert_memory_equal((const void *)(uintptr_t)request->payload, payload + requests,
                                    requests);
                replies[count] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                           .flags = count % 2 ? CRPC_OP_QUIET : 0,
                                           .status = (int32_t)requests,
                                           .endpoint = request->endpoint,
                                           .user_data = requests,
                                           .token = request->token,
                                           .payload_offset = requests,
                                           .payload_bytes = requests};
                count++;
                requests++;
            }
        }
        assert_int_equal(crpc_submit(fixture.right, replies, count, payload, sizeof(payload), NULL),
                         count);
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            const crpc_completion *response = &fixture.completions[i];
            if (response->kind == CRPC_COMPLETION_RESPONSE) {
                assert_int_equal(response->user_data, responses);
                assert_int_equal(response->method, responses + 1);
                assert_int_equal(response->status, responses);
                assert_memory_equal((const void *)(uintptr_t)response->payload, payload + responses,
                                    responses);
                responses++;
            }
        }
    }
    assert_int_equal(responses, taken);
    assert_int_equal(requests, taken);
    fixture_poll(fixture.right); /* lets go of the requests */
}

static void make_run(crpc_op *ops)
{
    for (uint32_t i = 0; i < RUN; i++) {
        ops[i] = fixture_call_op(i);
        ops[i].method = (uint16_t)(i + 1);
        ops[i].payload_offset = i;
        ops[i].payload_bytes = i;
        ops[i].reply_bytes_max = i;
    }
}

static void a_run_ends_before_an_op_that_is_not_valid(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t offset;
        uint8_t byte;
        int32_t reason;
    } spoils[] = {
        {"nothing", 0, CRPC_OP_CALL, CRPC_OK},
        {"an opcode", offsetof(crpc_op, opcode), 77, CRPC_E_UNSUPPORTED},
        {"another opcode", offsetof(crpc_op, opcode), CRPC_OP_DROP, CRPC_E_INVALID},
        {"a flag", offsetof(crpc_op, flags), CRPC_OP_QUIET, CRPC_E_INVALID},
        {"a flag", offsetof(crpc_op, flags), 0x80, CRPC_E_INVALID},
        {"status", offsetof(crpc_op, status), 1, CRPC_E_INVALID},
        {"status", offsetof(crpc_op, status) + 3, 0x80, CRPC_E_INVALID},
        {"endpoint", offsetof(crpc_op, endpoint) + 7, 0x7f, CRPC_E_STALE},
        {"token", offsetof(crpc_op, token), 1, CRPC_E_INVALID},
        {"token", offsetof(crpc_op, token) + 7, 0x80, CRPC_E_INVALID},
        {"payload_offset", offsetof(crpc_op, payload_offset), 65, CRPC_E_INVALID},
        {"payload_offset", offsetof(crpc_op, payload_offset) + 7, 0xff, CRPC_E_INVALID},
        {"payload_bytes", offsetof(crpc_op, payload_bytes), 65, CRPC_E_INVALID},
        {"payload_bytes", offsetof(crpc_op, payload_bytes) + 3, 0xff, CRPC_E_INVALID},
        {"reply_bytes_max", offsetof(crpc_op, reply_bytes_max) + 3, 0xff, CRPC_E_TOO_BIG},
        {"region", offsetof(crpc_op, region), 1, CRPC_E_INVALID},
        {"region", offsetof(crpc_op, region) + 7, 0x80, CRPC_E_INVALID},
    };
    for (size_t spoil = 0; spoil < sizeof(spoils) / sizeof(spoils[0]); spoil++) {
        for (uint32_t at = 0; at < RUN; at++) {
            crpc_op ops[RUN];
            make_run(ops);
            ((uint8_t *)&ops[at])[spoils[spoil].offset] = spoils[spoil].byte;
            uint32_t expected = spoils[spoil].reason == CRPC_OK ? RUN : at;
            int32_t reason,
                taken = crpc_submit(fixture.left, ops, RUN, payload, sizeof(payload), &reason);
            if (taken != (int32_t)expected || reason != spoils[spoil].reason) {
                fail_msg("%s of op %u: %d taken, %s", spoils[spoil].name, at, taken,
                         crpc_status_name(reason));
            }
            expect_run(expected);
        }
    }
}

static void a_run_of_replies_ends_before_one_that_is_not_valid(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t offset;
        uint8_t byte;
        int32_t reason;
    } spoils[] = {
        {"a flag", offsetof(crpc_op, flags), 0x40, CRPC_E_INVALID},
        {"method", offsetof(crpc_op, method) + 1, 1, CRPC_E_INVALID},
        {"status", offsetof(crpc_op, status) + 3, 0x80, CRPC_E_INVALID},
        {"token", offsetof(crpc_op, token) + 4, 0xff, CRPC_E_STALE},
        {"token", offsetof(crpc_op, token) + 2, 0xff, CRPC_E_STALE},
        {"payload_bytes", offsetof(crpc_op, payload_bytes), 1, CRPC_E_TOO_BIG},
        {"payload_bytes", offsetof(crpc_op, payload_bytes) + 1, 1, CRPC_E_INVALID},
        {"payload_offset", offsetof(crpc_op, payload_offset) + 7, 0xff, CRPC_E_INVALID},
        {"reply_bytes_max", offsetof(crpc_op, reply_bytes_max), 1, CRPC_E_INVALID},
        {"timeout_ns", offsetof(crpc_op, timeout_ns) + 7, 1, CRPC_E_INVALID},
        {"region", offsetof(crpc_op, region) + 7, 1, CRPC_E_INVALID},
    };
    for (size_t spoil = 0; spoil < sizeof(spoils) / sizeof(spoils[0]); spoil++) {
        for (uint32_t at = 0; at < RUN; at++) {
            crpc_op ops[RUN], replies[RUN], good;
            for (uint32_t i = 0; i < RUN; i++) {
                ops[i] = fixture_call_op(i);
                ops[i].reply_bytes_max = 32;
            }
            assert_int_equal(crpc_submit(fixture.left, ops, RUN, NULL, 0, NULL), RUN);
            fixture_poll(fixture.left);
            fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
            assert_int_equal(fixture.count, RUN);
            for (uint32_t i = 0; i < RUN; i++) {
                replies[i] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                       .flags = CRPC_OP_QUIET,
                                       .endpoint = fixture.completions[i].endpoint,
                                       .token = fixture.completions[i].token,
                                       .payload_bytes = 32};
            }
            good = replies[at];
            ((uint8_t *)&replies[at])[spoils[spoil].offset] ^= spoils[spoil].byte;
            int32_t reason,
                taken = crpc_submit(fixture.right, replies, RUN, payload, sizeof(payload), &reason);
            if (taken != (int32_t)at || reason != spoils[spoil].reason) {
                fail_msg("%s of reply %u: %d taken, %s", spoils[spoil].name, at, taken,
                         crpc_status_name(reason));
            }
            replies[at] = good;
            assert_int_equal(
                crpc_submit(fixture.right, &replies[at], RUN - at, payload, sizeof(payload), NULL),
                RUN - at);
            fixture_poll(fixture.right);
            fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
            assert_int_equal(fixture.count, RUN);
        }
    }
}

static void a_reply_twice_in_a_run(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "x", 64);
    crpc_op replies[RUN];
    int32_t reason;
    for (uint32_t i = 0; i < RUN; i++) {
        replies[i] = (crpc_op){
            .opcode = CRPC_OP_REPLY, .endpoint = request.endpoint, .token = request.token};
    }
    assert_int_equal(crpc_submit(fixture.right, replies, RUN, NULL, 0, &reason), 1);
    assert_int_equal(reason, CRPC_E_STALE);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 1);
}

static void a_run_ends_where_there_is_no_more_room(void **state)
{
    (void)state;
    crpc_op ops[128];
    int32_t reason;
    for (uint32_t i = 0; i < 128; i++) {
        ops[i] = fixture_call_op(i);
        ops[i].reply_bytes_max = 0;
    }
    assert_int_equal(crpc_submit(fixture.left, ops, 128, NULL, 0, &reason), 64); /* call slots */
    assert_int_equal(reason, CRPC_E_AGAIN);
    assert_int_equal(crpc_submit(fixture.left, ops, 128, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_AGAIN);
}

static void runs_to_several_endpoints(void **state)
{
    (void)state;
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_FULL_SIZE};
    crpc_endpoint left[2] = {fixture.left_endpoint}, right;
    fixture_connect(&options, &left[1], &right);
    for (uint32_t length = 1; length <= 6; length++) {
        crpc_op ops[24];
        uint32_t requests = 0;
        for (uint32_t i = 0; i < 24; i++) {
            ops[i] = fixture_call_op(i);
            ops[i].endpoint = left[i / length % 2];
            ops[i].reply_bytes_max = 8;
        }
        assert_int_equal(crpc_submit(fixture.left, ops, 24, NULL, 0, NULL), 24);
        fixture_poll(fixture.left);
        for (int tries = 0; tries < 100 && requests < 24; tries++) {
            fixture_poll(fixture.right);
            for (int32_t i = 0; i < fixture.count; i++) {
                if (fixture.completions[i].kind == CRPC_COMPLETION_REQUEST) {
                    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                                     .flags = CRPC_OP_QUIET,
                                     .endpoint = fixture.completions[i].endpoint,
                                     .token = fixture.completions[i].token};
                    assert_int_equal(fixture_submit(fixture.right, &reply, NULL, 0), CRPC_OK);
                    requests++;
                }
            }
        }
        uint32_t seen = 0;
        for (int tries = 0; tries < 100 && seen != 0xffffff; tries++) {
            fixture_poll(fixture.left);
            for (int32_t i = 0; i < fixture.count; i++) {
                const crpc_completion *response = &fixture.completions[i];
                if (response->kind == CRPC_COMPLETION_RESPONSE) {
                    assert_int_equal(response->endpoint.bits,
                                     ops[response->user_data].endpoint.bits);
                    seen |= 1u << response->user_data;
                }
            }
        }
        assert_int_equal(seen, 0xffffff);
        fixture_poll(fixture.right);
    }
}

static void too_big_and_no_room(void **state)
{
    (void)state;
    static uint8_t large[65536];
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    crpc_op op = fixture_call_op(1);
    op.payload_bytes = info.request_bytes_max + 1;
    assert_int_equal(fixture_submit(fixture.left, &op, large, sizeof(large)), CRPC_E_TOO_BIG);
    op = fixture_call_op(1);
    op.reply_bytes_max = info.reply_bytes_max + 1;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_TOO_BIG);
    op.reply_bytes_max = UINT32_MAX;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_TOO_BIG);

    op = fixture_call_op(2);
    op.payload_bytes = info.request_bytes_max; /* fills the limit exactly */
    op.reply_bytes_max = info.reply_bytes_max;
    assert_int_equal(fixture_submit(fixture.left, &op, large, sizeof(large)), CRPC_OK);
    op = fixture_call_op(3);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_AGAIN);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.payload_bytes, info.request_bytes_max);
    assert_int_equal(request.reply_bytes_max, info.reply_bytes_max);
    assert_int_equal(fixture_reply(&request, "done", CRPC_OP_QUIET), CRPC_OK);
    fixture_poll(fixture.right); /* lets go of the request */
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 2);
    for (int tries = 0; tries < 50; tries++) { /* the limit comes with the mailbox */
        crpc_wait(fixture.left, 1000000);
        fixture_poll(fixture.left);
        if (fixture_submit(fixture.left, &op, NULL, 0) == CRPC_OK) {
            return;
        }
    }
    fail_msg("no room came back");
}

static void all_call_slots_in_use(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(0);
    op.reply_bytes_max = 0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_AGAIN);
    fixture_poll(fixture.left);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(fixture_reply(&request, "", 0), CRPC_OK);
    fixture_poll(fixture.right);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    crpc_completion room = fixture_also(fixture.left, CRPC_COMPLETION_ROOM);
    assert_int_equal(room.endpoint.bits, fixture.left_endpoint.bits);
    assert_int_equal(room.user_data, 4711);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
}

static void one_way_endpoints(void **state)
{
    (void)state;
    crpc_endpoint_options call_only = {.struct_size = sizeof(call_only),
                                       .flags = CRPC_ENDPOINT_CALL_ONLY};
    crpc_endpoint left, right;
    fixture_connect(&call_only, &left, &right);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, left, &info), CRPC_OK);
    assert_int_equal(info.request_bytes_max, 0); /* the peer takes no requests */
    crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = left};
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_TOO_BIG);
}

static void not_connected_yet(void **state)
{
    (void)state;
    crpc_endpoint endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, NULL),
                     CRPC_OK);
    crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = endpoint};
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_STATE);
    assert_int_equal(crpc_endpoint_disconnect(fixture.left, endpoint, 0), CRPC_E_STATE);
    assert_int_equal(crpc_endpoint_accept(fixture.left, endpoint, NULL, NULL), CRPC_E_STATE);
    assert_int_equal(crpc_endpoint_reject(fixture.left, endpoint, 0), CRPC_E_STATE);
    blob[50] ^= 1;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, blob, bytes, &error),
                     CRPC_E_PROTOCOL);
    assert_non_null(strstr(error.message, "damaged"));
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, blob, 17, &error), CRPC_E_PROTOCOL);
    assert_int_equal(crpc_endpoint_join(fixture.left, fixture.left_endpoint, blob, bytes, &error),
                     CRPC_E_STATE);
}

int main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(fields_that_the_opcode_does_not_name_must_be_zero),
        WITH_FIXTURE(flags_and_statuses),
        WITH_FIXTURE(an_idempotent_call),
        WITH_FIXTURE(unknown_opcodes),
        WITH_FIXTURE(payloads_out_of_range),
        WITH_FIXTURE(a_prefix_is_taken_and_the_rest_left_alone),
        WITH_FIXTURE(a_run_ends_before_an_op_that_is_not_valid),
        WITH_FIXTURE(a_run_of_replies_ends_before_one_that_is_not_valid),
        WITH_FIXTURE(a_reply_twice_in_a_run),
        WITH_FIXTURE(a_run_ends_where_there_is_no_more_room),
        WITH_FIXTURE(runs_to_several_endpoints),
        WITH_FIXTURE(too_big_and_no_room),
        WITH_FIXTURE(all_call_slots_in_use),
        WITH_FIXTURE(one_way_endpoints),
        WITH_FIXTURE(not_connected_yet),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* channel_op_test.c: what crpc_channel_submit takes and what it refuses, and the options of
 * channels. The channel is not connected: a receive or send that passes all checks gives
 * CRPC_E_STATE, while there is always something to be said about a cancel.
 */
#include "fixture.h"

#define PASSED CRPC_E_STATE

static uint8_t memory[65536];
static crpc_channel channel;

static int open_channel(void **state)
{
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int failed = fixture_open_with_rails(state);
    assert_int_equal(crpc_channel_blob(fixture.left, NULL, &channel, blob, &bytes, NULL), CRPC_OK);
    return failed;
}

static int32_t submit(const crpc_channel_op *ops, uint32_t count)
{
    int32_t reason = 12345;
    int32_t taken = crpc_channel_submit(fixture.left, ops, count, &reason);
    assert_int_equal(taken, reason == CRPC_OK ? count : 0);
    return reason;
}

static int32_t passed(uint8_t opcode)
{
    return opcode == CRPC_CHANNEL_CANCEL ? CRPC_OK : PASSED;
}

static crpc_channel_op op_of(uint8_t opcode)
{
    return (crpc_channel_op){.opcode = opcode, .channel = channel};
}

/* ---- Fields ---------------------------------------------------------------------------------- */

struct field {
    const char *name;
    size_t offset;
    size_t bytes;
    uint8_t of_receive, of_send, of_cancel; /* which opcodes name it */
};

static const struct field fields[] = {
#define FIELD(name, receive, send, cancel)                                                         \
    {                                                                                              \
#name, offsetof(crpc_channel_op, name), sizeof(((crpc_channel_op *)0)->name), receive,     \
            send, cancel                                                                           \
    }
    FIELD(zero, 0, 0, 0),    FIELD(tag, 1, 1, 0),   FIELD(region, 1, 1, 0),
    FIELD(address, 1, 1, 0), FIELD(bytes, 1, 1, 0), FIELD(timeout_ns, 0, 1, 0),
    FIELD(token, 0, 0, 1),
};

static void fields_that_the_opcode_does_not_name_must_be_zero(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *field = &fields[i];
        const uint8_t named[] = {[CRPC_CHANNEL_RECEIVE] = field->of_receive,
                                 [CRPC_CHANNEL_SEND] = field->of_send,
                                 [CRPC_CHANNEL_CANCEL] = field->of_cancel};
        for (uint8_t opcode = CRPC_CHANNEL_RECEIVE; opcode <= CRPC_CHANNEL_CANCEL; opcode++) {
            /* Its first and its last byte, so that a narrower check would show. */
            for (size_t at = 0; at < field->bytes && !named[opcode]; at += field->bytes - 1) {
                crpc_channel_op op = op_of(opcode);
                ((uint8_t *)&op)[field->offset + at] = 1;
                if (submit(&op, 1) != CRPC_E_INVALID) {
                    fail_msg("opcode %u takes %s", opcode, field->name);
                }
            }
        }
    }
    for (uint8_t opcode = CRPC_CHANNEL_RECEIVE; opcode <= CRPC_CHANNEL_CANCEL; opcode++) {
        crpc_channel_op op = op_of(opcode);
        op.user_data = UINT64_MAX;
        assert_int_equal(submit(&op, 1), passed(opcode));
    }
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND);
    op.tag = UINT32_MAX;
    op.timeout_ns = UINT64_MAX;
    op.address = UINT64_MAX; /* any, as there are no bytes */
    assert_int_equal(submit(&op, 1), PASSED);
}

static void flags_and_opcodes(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        bool known = opcode >= CRPC_CHANNEL_RECEIVE && opcode <= CRPC_CHANNEL_CANCEL;
        crpc_channel_op op = op_of((uint8_t)opcode);
        assert_int_equal(submit(&op, 1), known ? passed((uint8_t)opcode) : CRPC_E_UNSUPPORTED);
        for (uint32_t bit = 0; bit < 8 && known; bit++) {
            op.flags = (uint8_t)(1u << bit);
            assert_int_equal(submit(&op, 1), CRPC_E_INVALID);
        }
    }
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void group(crpc_channel_op *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = op_of(CRPC_CHANNEL_RECEIVE);
        ops[i].flags = i + 1 < count ? CRPC_CHANNEL_MORE : 0;
    }
}

static void groups(void **state)
{
    (void)state;
    crpc_channel_op ops[10];
    for (uint32_t count = 1; count <= CRPC_CHANNEL_GROUP_MAX; count++) {
        group(ops, count);
        assert_int_equal(submit(ops, count), PASSED);
        for (uint32_t part = 1; part < count; part++) { /* the array ends within the group */
            assert_int_equal(submit(ops, part), CRPC_E_INVALID);
        }
    }
    group(ops, 9);
    assert_int_equal(submit(ops, 9), CRPC_E_TOO_BIG);

    crpc_channel other;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_channel_blob(fixture.left, NULL, &other, blob, &bytes, NULL), CRPC_OK);
    for (uint32_t i = 1; i < 4; i++) {
        group(ops, 4);
        ops[i].channel = other;
        assert_int_equal(submit(ops, 4), CRPC_E_INVALID);
        group(ops, 4);
        ops[i].opcode = CRPC_CHANNEL_SEND;
        assert_int_equal(submit(ops, 4), CRPC_E_INVALID);
        group(ops, 4);
        ops[i].token = 1; /* wrong in itself */
        assert_int_equal(submit(ops, 4), CRPC_E_INVALID);
        group(ops, 4);
        ops[i].region.bits = 1;
        assert_int_equal(submit(ops, 4), CRPC_E_STALE);
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static crpc_region region_with(uint32_t access)
{
    crpc_region region;
    assert_int_equal(crpc_region_register(fixture.left, memory + 4096, 8192, access, &region, NULL),
                     CRPC_OK);
    return region;
}

static int32_t submit_part(uint8_t opcode, crpc_region region, int64_t from, uint64_t bytes)
{
    crpc_channel_op op = op_of(opcode);
    op.region = region;
    op.address = (uint64_t)(uintptr_t)memory + 4096 + (uint64_t)from;
    op.bytes = bytes;
    return submit(&op, 1);
}

static void buffers_lie_within_their_region(void **state)
{
    (void)state;
    crpc_region region = region_with(CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE);
    const struct {
        int64_t from;
        uint64_t bytes;
        int32_t reason;
    } cases[] = {
        {0, 8192, PASSED},         {8191, 1, PASSED},          {0, 1, PASSED},
        {8192, 0, PASSED},         {-4000, 0, PASSED},         {0, 8193, CRPC_E_INVALID},
        {8192, 1, CRPC_E_INVALID}, {-1, 2, CRPC_E_INVALID},    {-1, 1, CRPC_E_INVALID},
        {8191, 2, CRPC_E_INVALID}, {-1, 8194, CRPC_E_INVALID}, {0, 1u << 30, CRPC_E_INVALID},
    };
    for (uint8_t opcode = CRPC_CHANNEL_RECEIVE; opcode <= CRPC_CHANNEL_SEND; opcode++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            assert_int_equal(submit_part(opcode, region, cases[i].from, cases[i].bytes),
                             cases[i].reason);
        }
        assert_int_equal(submit_part(opcode, region, 0, (1u << 30) + 1), CRPC_E_TOO_BIG);
        assert_int_equal(submit_part(opcode, region, 0, UINT64_MAX), CRPC_E_TOO_BIG);
        assert_int_equal(submit_part(opcode, (crpc_region){0}, 0, (1u << 30) + 1), CRPC_E_TOO_BIG);
    }
    /* None of these has kept a hold on it. */
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
    assert_int_equal(submit_part(CRPC_CHANNEL_SEND, region, 0, 1), CRPC_E_STALE);
}

static void a_receive_needs_the_right_to_write(void **state)
{
    (void)state;
    const uint32_t both = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    const uint32_t too_little[] = {0, CRPC_ACCESS_LOCAL_WRITE,
                                   CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_READ};
    for (size_t i = 0; i < 3; i++) {
        crpc_region region = region_with(too_little[i]);
        assert_int_equal(submit_part(CRPC_CHANNEL_RECEIVE, region, 0, 64), CRPC_E_INVALID);
        assert_int_equal(submit_part(CRPC_CHANNEL_SEND, region, 0, 64), PASSED);
    }
    assert_int_equal(submit_part(CRPC_CHANNEL_RECEIVE, region_with(both), 0, 64), PASSED);
}

static void a_region_must_have_every_rail(void **state)
{
    (void)state;
    crpc_channel peer;
    assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
    fixture_channels(NULL, &channel, &peer);  /* before that it has no rails */
    for (uint32_t nth = 2; nth <= 3; nth++) { /* rail 0 and rail 1: the first is that of calls */
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, nth,
                                   CRPC_E_NO_RESOURCE);
        crpc_region region = region_with(CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE);
        assert_int_equal(submit_part(CRPC_CHANNEL_SEND, region, 0, 64), CRPC_E_UNSUPPORTED);
        assert_int_equal(submit_part(CRPC_CHANNEL_RECEIVE, region, 0, 64), CRPC_E_UNSUPPORTED);
    }
}

static void memory_without_a_region(void **state)
{
    (void)state;
    crpc_cache_info info = {.struct_size = sizeof(info)};
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND);
    op.bytes = 64;
    assert_int_equal(submit(&op, 1), CRPC_E_INVALID); /* at NULL */
    op.address = UINT64_MAX - 62;
    assert_int_equal(submit(&op, 1), CRPC_E_INVALID);
    op.address = (uint64_t)(uintptr_t)memory;
    assert_int_equal(submit(&op, 1), PASSED);
    assert_int_equal(crpc_cache_get_info(fixture.left, &info), CRPC_OK);
    assert_int_equal(info.registrations, 1);
    assert_int_equal(crpc_cache_forget(fixture.left, NULL, 0), 1);
    assert_int_equal(crpc_cache_get_info(fixture.left, &info), CRPC_OK);
    assert_int_equal(info.registrations, 0);
    assert_int_equal(crpc_cache_forget(fixture.left, memory, 64), 0);
}

/* ---- Prefixes and options -------------------------------------------------------------------- */

static void handles_of_a_series(void **state)
{
    (void)state;
    crpc_channel_op ops[3] = {op_of(CRPC_CHANNEL_SEND), op_of(CRPC_CHANNEL_SEND)};
    ops[0].channel.bits = 0;
    assert_int_equal(submit(ops, 2), CRPC_E_STALE);
    ops[0].channel.bits = fixture.left_endpoint.bits;
    assert_int_equal(submit(ops, 2), CRPC_E_STALE);
    ops[0].opcode = 77; /* the handle comes first */
    assert_int_equal(submit(ops, 2), CRPC_E_STALE);
}

static void options_are_checked_with_a_message(void **state)
{
    (void)state;
    static const struct {
        crpc_channel_options options;
        const char *word;
    } cases[] = {
        {{.flags = 1}, "reserved"},
        {{.slots = 257}, "slots"},
        {{.sends_max = 65537}, "sends_max"},
        {{.sends_max = 7}, "sends_max"},
        {{.queue_pairs = 9}, "queue_pairs"},
        {{.split = 3}, "split"},
        {{.rail0_share = 1}, "CRPC_SPLIT_FIXED"},
        {{.split = CRPC_SPLIT_HINT, .hint = "/x", .rail0_share = 1}, "CRPC_SPLIT_FIXED"},
        {{.split = CRPC_SPLIT_FIXED, .rail0_share = 1025}, "rail0_share"},
        {{.hint = "/x"}, "CRPC_SPLIT_HINT"},
        {{.split = CRPC_SPLIT_HINT}, "hint"},
        {{.split = CRPC_SPLIT_HINT, .hint = "x"}, "hint"},
        {{.split = CRPC_SPLIT_HINT, .hint = "/"}, "hint"},
        {{.split = CRPC_SPLIT_HINT, .hint = "/x/y"}, "hint"},
        {{.rails = 2}, "rail 0"},
        {{.rails = 4}, "rails"},
        {{.rails = 7}, "rails"},
        {{.retry_timeout = 32}, "retry"},
        {{.retry_count = 8}, "retry"},
        {{.token_bytes = 17}, "token"},
        {{.key_bytes = 15}, "key"},
        {{.key_bytes = 65}, "key"},
    };
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    for (size_t i = 0; i <= count; i++) {
        crpc_channel_options options = cases[i < count ? i : 0].options;
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_channel made;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        if (i == count) { /* and one that does not end */
            options = (crpc_channel_options){.split = CRPC_SPLIT_HINT};
            memset(options.hint, '/', 1);
            memset(options.hint + 1, 'x', sizeof(options.hint) - 1);
        }
        options.struct_size = sizeof(options);
        assert_int_equal(crpc_channel_blob(fixture.left, &options, &made, blob, &bytes, &error),
                         CRPC_E_INVALID);
        if (!strstr(error.message, i < count ? cases[i].word : "hint")) {
            fail_msg("case %zu: %s", i, error.message);
        }
        /* The other ways to connect take the same. */
        assert_int_equal(crpc_channel_connect(fixture.left, "127.0.0.1:1", &options, &made, NULL),
                         CRPC_E_INVALID);
        assert_int_equal(crpc_channel_accept(fixture.left, channel, &options, NULL),
                         CRPC_E_INVALID);
    }
}

static void the_state_before_connecting(void **state)
{
    (void)state;
    uint8_t blob[CRPC_BLOB_BYTES_MAX] = {0};
    assert_int_equal(crpc_channel_set_share(fixture.left, channel, 1025), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_set_share(fixture.left, channel, 1024), CRPC_OK);
    assert_int_equal(crpc_channel_set_share(fixture.left, channel, 0), CRPC_OK);
    assert_int_equal(crpc_channel_disconnect(fixture.left, channel, 0), CRPC_E_STATE);
    assert_int_equal(crpc_channel_accept(fixture.left, channel, NULL, NULL), CRPC_E_STATE);
    assert_int_equal(crpc_channel_reject(fixture.left, channel, 0), CRPC_E_STATE);
    assert_int_equal(crpc_channel_join(fixture.left, channel, blob, sizeof(blob), NULL),
                     CRPC_E_PROTOCOL);
}

int main(void)
{
#define WITH_CHANNEL(test) cmocka_unit_test_setup_teardown(test, open_channel, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_CHANNEL(fields_that_the_opcode_does_not_name_must_be_zero),
        WITH_CHANNEL(flags_and_opcodes),
        WITH_CHANNEL(groups),
        WITH_CHANNEL(buffers_lie_within_their_region),
        WITH_CHANNEL(a_receive_needs_the_right_to_write),
        WITH_CHANNEL(a_region_must_have_every_rail),
        WITH_CHANNEL(memory_without_a_region),
        WITH_CHANNEL(handles_of_a_series),
        WITH_CHANNEL(options_are_checked_with_a_message),
        WITH_CHANNEL(the_state_before_connecting),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

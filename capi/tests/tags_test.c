/* tags_test.c: TM-SRQs of the public API, over the in-memory NIC: what their options and ops may be, what comes of
 * messages with tags, and what is refused. */
#include <stdbool.h>

#include "fixture.h"

#define BYTES 16384u
#define HEADER CRPC_TAG_HEADER_BYTES
#define ANY UINT64_MAX
#define CONTEXT 0x0badcafeu
#define TAGS 8u

static uint8_t here[BYTES], there[BYTES];
static crpc_region here_region, there_region, weak_region;
static crpc_queue srq, near, far;

static crpc_queue_options srq_options(void)
{
    return (crpc_queue_options){.struct_size = sizeof(crpc_queue_options),
                                .kind = CRPC_QUEUE_KIND_TM_SRQ,
                                .user_data = 88,
                                .receives = 16,
                                .tags = TAGS};
}

static void join(const crpc_queue_options *ours, const crpc_queue_options *theirs)
{
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    assert_int_equal(crpc_queue_blob(fixture.left, ours, &near, blobs[0], &bytes[0], NULL),
                     CRPC_OK);
    assert_int_equal(crpc_queue_blob(fixture.right, theirs, &far, blobs[1], &bytes[1], NULL),
                     CRPC_OK);
    assert_int_equal(crpc_queue_join(fixture.left, near, blobs[1], bytes[1], NULL), CRPC_OK);
    assert_int_equal(crpc_queue_join(fixture.right, far, blobs[0], bytes[0], NULL), CRPC_OK);
    fixture_await(fixture.left, CRPC_COMPLETION_CONNECTED);
    fixture_await(fixture.right, CRPC_COMPLETION_CONNECTED);
}

static int open_tags(void **state)
{
    int failed = fixture_open_with_queues(state);
    const crpc_queue_options shared = srq_options();
    const crpc_queue_options sender = {.struct_size = sizeof(sender), .user_data = 20};
    crpc_queue_options receiver = {.struct_size = sizeof(receiver), .user_data = 10};
    for (uint32_t i = 0; i < BYTES; i++) {
        here[i] = (uint8_t)(i * 7 + 1);
    }
    memset(there, 0, BYTES);
    assert_int_equal(crpc_region_register(fixture.left, here, BYTES, CRPC_ACCESS_LOCAL_WRITE,
                                          &here_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, there, BYTES, CRPC_ACCESS_LOCAL_WRITE,
                                          &there_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, there, BYTES, 0, &weak_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_queue_open(fixture.right, &shared, &srq, NULL), CRPC_OK);
    receiver.receive_queue = srq;
    join(&sender, &receiver);
    return failed;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static crpc_queue_op add_op(uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t bytes)
{
    return (crpc_queue_op){.opcode = CRPC_QUEUE_TAG_ADD,
                           .user_data = user_data,
                           .region = there_region,
                           .address = (uint64_t)(uintptr_t)(there + user_data * 1024),
                           .bytes = bytes,
                           .remote_address = tag,
                           .operand = mask};
}

static crpc_queue_op op_of(uint8_t opcode, uint64_t user_data, uint64_t operand)
{
    return (crpc_queue_op){.opcode = opcode, .user_data = user_data, .operand = operand};
}

static int32_t submit_to(crpc_queue queue, const crpc_queue_op *op)
{
    int32_t reason = 12345;
    int32_t taken = crpc_queue_submit(fixture.right, queue, op, 1, NULL, 0, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

static int32_t submit(const crpc_queue_op *op)
{
    return submit_to(srq, op);
}

static void add(uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t bytes)
{
    const crpc_queue_op op = add_op(user_data, tag, mask, bytes);
    assert_int_equal(submit(&op), CRPC_OK);
}

static void run(uint8_t opcode, uint64_t user_data, uint64_t operand)
{
    const crpc_queue_op op = op_of(opcode, user_data, operand);
    assert_int_equal(submit(&op), CRPC_OK);
}

static void receive(uint64_t user_data)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE,
                              .user_data = user_data,
                              .region = there_region,
                              .address = (uint64_t)(uintptr_t)(there + 12288),
                              .bytes = 1024};
    assert_int_equal(submit(&op), CRPC_OK);
}

/* And polls nobody. */
static void post_message(uint64_t tag, uint32_t bytes)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .region = here_region,
                              .address = (uint64_t)(uintptr_t)here,
                              .bytes = HEADER + bytes};
    assert_int_equal(crpc_tag_header_write(here, tag, CONTEXT), CRPC_OK);
    assert_int_equal(crpc_queue_submit(fixture.left, near, &op, 1, NULL, 0, NULL), 1);
}

static void send_message(uint64_t tag, uint32_t bytes)
{
    post_message(tag, bytes);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_WORK).status, CRPC_OK);
}

static crpc_completion expect(uint16_t opcode, uint64_t user_data, int32_t status, crpc_queue queue)
{
    const crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.status, status);
    assert_int_equal(done.endpoint.bits, queue.bits);
    assert_int_equal(done.endpoint_user_data, queue.bits == srq.bits ? 88 : 10);
    return done;
}

static crpc_queue_info info_of(crpc_queue queue)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(fixture.right, queue, &info), CRPC_OK);
    return info;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void a_message_finds_its_tag(void **state)
{
    (void)state;
    add(1, 0x1200, 0xff00, 1024);
    add(2, 0x34, ANY, 100);
    crpc_queue_info info = info_of(srq);
    assert_int_equal(info.kind, CRPC_QUEUE_KIND_TM_SRQ);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.tags, TAGS);
    assert_int_equal(info.tags_open, 2);
    assert_int_equal(info.queues, 1);
    send_message(0x34, 64);
    crpc_completion done = expect(CRPC_QUEUE_TAG_ADD, 2, CRPC_OK, far);
    assert_int_equal(done.flags,
                     CRPC_COMPLETION_OF_QUEUE | CRPC_COMPLETION_DETAIL | CRPC_COMPLETION_MATCHED);
    assert_int_equal(done.token, 0x34);
    assert_int_equal(done.view, CONTEXT);
    assert_int_equal(done.payload_bytes, 64);
    assert_memory_equal(there + 2048, here + HEADER, 64);
    send_message(0x12ab, 1000);
    done = expect(CRPC_QUEUE_TAG_ADD, 1, CRPC_OK, far);
    assert_int_equal(done.token, 0x12ab);
    assert_memory_equal(there + 1024, here + HEADER, 1000);
    assert_int_equal(info_of(srq).tags_open, 0);
}

static void what_nothing_matches_is_received(void **state)
{
    (void)state;
    uint64_t tag = 1;
    uint32_t context = 2;
    receive(50);
    receive(51);
    send_message(77, 10);
    crpc_completion done = expect(CRPC_QUEUE_RECEIVE, 50, CRPC_OK, far);
    assert_int_equal(done.flags,
                     CRPC_COMPLETION_OF_QUEUE | CRPC_COMPLETION_DETAIL | CRPC_COMPLETION_SYNC);
    assert_int_equal(done.payload_bytes, HEADER + 10);
    assert_int_equal(crpc_tag_header_read(there + 12288, done.payload_bytes, &tag, &context),
                     CRPC_TAG_EAGER);
    assert_int_equal(tag, 77);
    assert_int_equal(context, CONTEXT);
    add(1, 5, ANY, 100); /* matches nothing until it is said that the message was looked at */
    send_message(5, 10);
    expect(CRPC_QUEUE_RECEIVE, 51, CRPC_OK, far);
    run(CRPC_QUEUE_TAG_SYNC, 9, 0);
    expect(CRPC_QUEUE_TAG_SYNC, 9, CRPC_OK, srq);
    send_message(5, 10);
    expect(CRPC_QUEUE_TAG_ADD, 1, CRPC_OK, far);
}

/* crpc_wait looks at the device, and keeps what it finds: nobody has looked at that. */
static void what_was_not_polled_was_not_looked_at(void **state)
{
    (void)state;
    receive(50);
    receive(51);
    post_message(77, 10);
    assert_int_equal(crpc_wait(fixture.right, 0), CRPC_OK);
    run(CRPC_QUEUE_TAG_SYNC, 9, 0);
    add(1, 5, ANY, 100);
    send_message(5, 10);
    expect(CRPC_QUEUE_RECEIVE, 50, CRPC_OK, far);
    for (uint32_t i = 0; i < 2; i++) {
        const crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
        assert_true(done.method == CRPC_QUEUE_TAG_SYNC || done.user_data == 51);
    }
    run(CRPC_QUEUE_TAG_SYNC, 10, 0);
    expect(CRPC_QUEUE_TAG_SYNC, 10, CRPC_OK, srq);
    send_message(5, 10);
    expect(CRPC_QUEUE_TAG_ADD, 1, CRPC_OK, far);
}

static void a_tag_is_taken_back(void **state)
{
    (void)state;
    add(1, 5, ANY, 100);
    run(CRPC_QUEUE_TAG_REMOVE, 60, 1);
    run(CRPC_QUEUE_TAG_REMOVE, 61, 1);
    expect(CRPC_QUEUE_TAG_ADD, 1, CRPC_E_CANCELED, srq);
    expect(CRPC_QUEUE_TAG_REMOVE, 60, CRPC_OK, srq);
    expect(CRPC_QUEUE_TAG_REMOVE, 61, CRPC_E_NOT_FOUND, srq);
    add(2, 5, ANY, 100);
    send_message(5, 10);
    run(CRPC_QUEUE_TAG_REMOVE, 62, 2);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
        seen |= done.method == CRPC_QUEUE_TAG_ADD && done.status == CRPC_OK               ? 1u
                : done.method == CRPC_QUEUE_TAG_REMOVE && done.status == CRPC_E_NOT_FOUND ? 2u
                                                                                          : 4u;
    }
    assert_int_equal(seen, 3);
    assert_int_equal(info_of(srq).state, CRPC_STATE_CONNECTED);
    assert_int_equal(info_of(far).state, CRPC_STATE_CONNECTED);
}

static void a_full_list_says_when_there_is_room(void **state)
{
    (void)state;
    crpc_queue_op ops[TAGS + 2];
    int32_t reason;
    for (uint32_t i = 0; i < TAGS + 2; i++) {
        ops[i] = add_op(i % 8, i, ANY, 64);
    }
    assert_int_equal(crpc_queue_submit(fixture.right, srq, ops, TAGS + 2, NULL, 0, &reason), TAGS);
    assert_int_equal(reason, CRPC_E_AGAIN);
    assert_int_equal(info_of(srq).tags_open, TAGS);
    run(CRPC_QUEUE_TAG_REMOVE, 70, 3);
    expect(CRPC_QUEUE_TAG_ADD, 3, CRPC_E_CANCELED, srq);
    expect(CRPC_QUEUE_TAG_REMOVE, 70, CRPC_OK, srq);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_ROOM).endpoint.bits, srq.bits);
    assert_int_equal(crpc_queue_submit(fixture.right, srq, ops, 2, NULL, 0, &reason), 1);
    assert_int_equal(reason, CRPC_E_AGAIN);
}

static void a_message_that_is_too_long_ends_its_queue(void **state)
{
    (void)state;
    add(1, 5, ANY, 10);
    add(2, 6, ANY, 10);
    receive(50);
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .region = here_region,
                              .address = (uint64_t)(uintptr_t)here,
                              .bytes = HEADER + 11};
    crpc_tag_header_write(here, 5, 0);
    assert_int_equal(crpc_queue_submit(fixture.left, near, &op, 1, NULL, 0, NULL), 1);
    expect(CRPC_QUEUE_TAG_ADD, 1, CRPC_E_FLUSHED, far);
    expect(CRPC_QUEUE_RECEIVE, 50, CRPC_E_TRUNCATED, far);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED).endpoint.bits,
                     far.bits);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_WORK).status, CRPC_E_ACCESS);
    assert_int_equal(info_of(srq).tags_open, 1);
    assert_int_equal(info_of(srq).state, CRPC_STATE_CONNECTED);
}

static void a_close_completes_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        add(i, i, ANY, 10);
    }
    receive(50);
    run(CRPC_QUEUE_TAG_SYNC, 9, 0);
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_fail(fixture.right, srq), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_drain(fixture.right, srq, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_close(fixture.right, far), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_OK);
    const crpc_queue_op op = add_op(1, 1, ANY, 10);
    assert_int_equal(submit(&op), CRPC_E_STALE);
    uint32_t seen[14] = {0};
    for (uint32_t i = 0; i < 5; i++) {
        const crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
        assert_int_equal(done.endpoint.bits, srq.bits);
        assert_int_equal(done.status, CRPC_E_CLOSED);
        seen[done.method]++;
    }
    assert_int_equal(seen[CRPC_QUEUE_TAG_ADD], 3);
    assert_int_equal(seen[CRPC_QUEUE_RECEIVE], 1);
    assert_int_equal(seen[CRPC_QUEUE_TAG_SYNC], 1);
    assert_int_equal(fixture_poll(fixture.right), 0);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void wrong_ops_change_nothing(void **state)
{
    (void)state;
    const crpc_queue_op good = add_op(1, 5, ANY, 100);
    struct {
        crpc_queue_op op;
        int32_t reason;
    } cases[32];
    uint32_t count = 0;
#define CASE(base, member, value, why)                                                             \
    cases[count].op = base;                                                                        \
    cases[count].op.member = value;                                                                \
    cases[count++].reason = why
    const crpc_queue_op removal = op_of(CRPC_QUEUE_TAG_REMOVE, 1, 5);
    const crpc_queue_op synchronization = op_of(CRPC_QUEUE_TAG_SYNC, 1, 0);
    CASE(good, region.bits, 12345, CRPC_E_STALE);
    CASE(good, region.bits, 0, CRPC_E_INVALID);
    CASE(good, region, weak_region, CRPC_E_INVALID);
    CASE(good, address, (uint64_t)(uintptr_t)there + BYTES - 50, CRPC_E_INVALID);
    CASE(good, bytes, UINT32_MAX, CRPC_E_TOO_BIG);
    CASE(good, flags, CRPC_QUEUE_PIECES, CRPC_E_INVALID);
    CASE(good, flags, CRPC_QUEUE_INLINE, CRPC_E_INVALID);
    CASE(good, flags, CRPC_QUEUE_FENCE, CRPC_E_INVALID);
    CASE(good, flags, CRPC_QUEUE_SOLICITED, CRPC_E_INVALID);
    CASE(good, flags, 0x20, CRPC_E_INVALID);
    CASE(good, stream, 1, CRPC_E_INVALID);
    CASE(good, immediate, 1, CRPC_E_INVALID);
    CASE(good, remote_key, 1, CRPC_E_INVALID);
    CASE(good, operand, 4, CRPC_E_INVALID); /* a tag of 5 that nothing can match */
    CASE(good, target.bits, 1, CRPC_E_INVALID);
    CASE(removal, region, there_region, CRPC_E_INVALID);
    CASE(removal, address, 1, CRPC_E_INVALID);
    CASE(removal, bytes, 1, CRPC_E_INVALID);
    CASE(removal, remote_address, 1, CRPC_E_INVALID);
    CASE(removal, immediate, 1, CRPC_E_INVALID);
    CASE(removal, target.bits, 1, CRPC_E_INVALID);
    CASE(synchronization, operand, 1, CRPC_E_INVALID);
    CASE(synchronization, address, 1, CRPC_E_INVALID);
    CASE(synchronization, immediate, 1, CRPC_E_INVALID);
    CASE(synchronization, remote_address, 1, CRPC_E_INVALID);
    CASE(good, opcode, CRPC_QUEUE_SEND, CRPC_E_UNSUPPORTED);
    CASE(good, opcode, CRPC_QUEUE_NOP, CRPC_E_UNSUPPORTED);
    CASE(good, opcode, 14, CRPC_E_UNSUPPORTED);
    CASE(good, opcode, 255, CRPC_E_UNSUPPORTED);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_queue_op before = cases[i].op;
        int32_t reason = submit(&cases[i].op);
        if (reason != cases[i].reason) {
            fail_msg("case %u: %s, and not %s", i, crpc_status_name(reason),
                     crpc_status_name(cases[i].reason));
        }
        assert_memory_equal(&before, &cases[i].op, sizeof(before));
    }
    assert_int_equal(info_of(srq).tags_open, 0);
    assert_int_equal(fixture_poll(fixture.right), 0);
    crpc_queue_op signaled = good; /* the flag means nothing here */
    signaled.flags = CRPC_QUEUE_SIGNAL;
    assert_int_equal(submit(&signaled), CRPC_OK);
    crpc_queue_op empty = op_of(CRPC_QUEUE_TAG_ADD, 2, ANY);
    assert_int_equal(submit(&empty), CRPC_OK);
}

static void only_tm_srqs_take_tags(void **state)
{
    (void)state;
    const crpc_queue_options plain = {
        .struct_size = sizeof(plain), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 4};
    const crpc_queue_options datagrams = {.struct_size = sizeof(datagrams),
                                          .kind = CRPC_QUEUE_KIND_UD};
    crpc_queue others[3] = {far};
    assert_int_equal(crpc_queue_open(fixture.right, &plain, &others[1], NULL), CRPC_OK);
    assert_int_equal(crpc_queue_open(fixture.right, &datagrams, &others[2], NULL), CRPC_OK);
    for (uint32_t i = 0; i < 3; i++) {
        crpc_queue_op op = add_op(1, 5, ANY, 100);
        assert_int_equal(submit_to(others[i], &op), CRPC_E_UNSUPPORTED);
        op = op_of(CRPC_QUEUE_TAG_SYNC, 1, 0);
        assert_int_equal(submit_to(others[i], &op), CRPC_E_UNSUPPORTED);
    }
}

/* Receives and tags, in one array. */
static void an_array_has_all_ops(void **state)
{
    (void)state;
    crpc_queue_op ops[70];
    int32_t reason;
    for (uint32_t i = 0; i < 70; i++) {
        ops[i] = op_of(i % 2 ? CRPC_QUEUE_TAG_SYNC : CRPC_QUEUE_TAG_REMOVE, i, 0);
    }
    ops[5] = (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE, .user_data = 5};
    ops[6] = (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE, .user_data = 6};
    ops[40].bytes = 1;
    /* There is room for 32 commands at least. */
    int32_t taken = crpc_queue_submit(fixture.right, srq, ops, 70, NULL, 0, &reason);
    if (reason == CRPC_E_AGAIN) {
        assert_true(taken >= 18);
    } else {
        assert_int_equal(taken, 40);
        assert_int_equal(reason, CRPC_E_INVALID);
    }
    for (uint32_t i = 0; i < (uint32_t)taken; i++) {
        if (i != 5 && i != 6) {
            expect(ops[i].opcode, i, i % 2 ? CRPC_OK : CRPC_E_NOT_FOUND, srq);
        }
    }
    assert_int_equal(info_of(srq).receives_open, 2);
}

static void options_are_checked(void **state)
{
    (void)state;
    const struct {
        crpc_queue_options options;
        const char *says;
        int32_t status;
    } cases[] = {
        {{.receives = 0, .tags = 1}, "receives", CRPC_E_INVALID},
        {{.receives = 1, .tags = 128}, "at most 127", CRPC_E_NO_RESOURCE},
        {{.receives = 1, .sends = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .flags = CRPC_QUEUE_SPARSE}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .receive_queue = srq}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .streams = 1}, "streams", CRPC_E_INVALID},
        {{.receives = 1, .queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_SRQ, .receives = 1, .tags = 1}, "tags", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_UD, .tags = 1}, "tags", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_UD, .receive_queue = srq}, "TM-SRQ", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_DCT, .receive_queue = srq}, "TM-SRQ", CRPC_E_INVALID},
        {{.kind = 7, .receives = 1}, "kind", CRPC_E_UNSUPPORTED},
    };
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.kind = options.kind ? options.kind : CRPC_QUEUE_KIND_TM_SRQ;
        int32_t status = crpc_queue_open(fixture.right, &options, &made, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].says)) {
            fail_msg("case %zu: %s: %s", i, crpc_status_name(status), error.message);
        }
    }
    crpc_queue_options options = srq_options();
    assert_int_equal(crpc_queue_blob(fixture.right, &options, &made, blob, &bytes, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "has no peer"));
    options.tags = 0;
    assert_int_equal(crpc_queue_open(fixture.right, &options, &made, &error), CRPC_OK);
    assert_int_equal(info_of(made).tags, 127);
}

/* ---- Headers --------------------------------------------------------------------------------- */

static void a_header_is_written_and_read(void **state)
{
    (void)state;
    static const uint8_t expected[HEADER] = {3,    0,    0,    0,    0x01, 0x02, 0x03, 0x04,
                                             0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};
    uint8_t header[HEADER + 1];
    uint64_t tag;
    uint32_t context;
    memset(header, 0xee, sizeof(header));
    assert_int_equal(crpc_tag_header_write(header, 0x1112131415161718, 0x01020304), CRPC_OK);
    assert_memory_equal(header, expected, HEADER);
    assert_int_equal(header[HEADER], 0xee);
    assert_int_equal(crpc_tag_header_write(NULL, 1, 2), CRPC_E_INVALID);
    for (uint32_t kind = 0; kind < 256; kind++) {
        header[0] = (uint8_t)kind;
        tag = context = 0;
        int32_t read = crpc_tag_header_read(header, HEADER, &tag, &context);
        assert_int_equal(read, kind <= CRPC_TAG_EAGER ? (int32_t)kind : CRPC_E_PROTOCOL);
        assert_int_equal(tag, read > 0 ? 0x1112131415161718 : 0);
        assert_int_equal(context, read > 0 ? 0x01020304 : 0);
    }
    for (uint32_t bytes = 0; bytes < HEADER; bytes++) {
        assert_int_equal(crpc_tag_header_read(header, bytes, &tag, &context), CRPC_E_PROTOCOL);
    }
    header[0] = CRPC_TAG_EAGER;
    assert_int_equal(crpc_tag_header_read(header, HEADER, NULL, NULL), CRPC_TAG_EAGER);
    assert_int_equal(crpc_tag_header_read(NULL, HEADER, &tag, &context), CRPC_E_INVALID);
    assert_int_equal(crpc_tag_header_read(NULL, 0, &tag, &context), CRPC_E_PROTOCOL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_tags, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_finds_its_tag),
        TEST(what_nothing_matches_is_received),
        TEST(what_was_not_polled_was_not_looked_at),
        TEST(a_tag_is_taken_back),
        TEST(a_full_list_says_when_there_is_room),
        TEST(a_message_that_is_too_long_ends_its_queue),
        TEST(a_close_completes_all),
        TEST(wrong_ops_change_nothing),
        TEST(only_tm_srqs_take_tags),
        TEST(an_array_has_all_ops),
        TEST(options_are_checked),
        cmocka_unit_test(a_header_is_written_and_read),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

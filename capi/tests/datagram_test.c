/* datagram_test.c: UD queues and targets of the public API, over the in-memory NIC: what their ops may be,
 * what comes of them, and what is refused. */
#include <stdbool.h>

#include "fixture.h"

#define BYTES 16384u
#define HEADER CRPC_QUEUE_HEADER_BYTES
#define MTU 4096u /* of the in-memory NIC */
#define PIECES 3u
#define RIGHT_KEY 0x7fffffffu

static uint8_t here[BYTES], there[BYTES];
static crpc_region here_region, there_region;
static crpc_queue left, right;
static crpc_target target; /* of left, for right */

static crpc_queue open_with_key(crpc_context *context, uint32_t queue_key)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .kind = CRPC_QUEUE_KIND_UD,
                                        .user_data = 77,
                                        .sends = 16,
                                        .send_pieces = PIECES,
                                        .inline_bytes = 100,
                                        .receives = 16,
                                        .receive_pieces = PIECES,
                                        .queue_key = queue_key};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue;
    if (crpc_queue_open(context, &options, &queue, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return queue;
}

static crpc_queue_address address_of(crpc_context *context, crpc_queue queue)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(context, queue, &address), CRPC_OK);
    return address;
}

static crpc_target target_at(const crpc_queue_address *address, uint32_t queue_key)
{
    const crpc_target_options options = {.struct_size = sizeof(options), .queue_key = queue_key};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target made;
    if (crpc_target_open(fixture.left, address, &options, &made, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return made;
}

static int open_pair(void **state)
{
    int failed = fixture_open_with_queues(state);
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
    left = open_with_key(fixture.left, 0);
    right = open_with_key(fixture.right, RIGHT_KEY);
    const crpc_queue_address address = address_of(fixture.right, right);
    target = target_at(&address, RIGHT_KEY);
    return failed;
}

static crpc_queue_op send_op(uint64_t user_data, uint32_t bytes)
{
    return (crpc_queue_op){.opcode = CRPC_QUEUE_SEND,
                           .user_data = user_data,
                           .region = here_region,
                           .address = (uint64_t)(uintptr_t)here,
                           .bytes = bytes,
                           .target = target};
}

static int32_t submit_pieces(const crpc_queue_op *op, const crpc_piece *pieces, uint32_t count)
{
    int32_t reason = 12345;
    int32_t taken = crpc_queue_submit(fixture.left, left, op, 1, pieces, count, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

static int32_t submit(const crpc_queue_op *op)
{
    return submit_pieces(op, NULL, 0);
}

static void receive_right(uint64_t user_data, uint32_t bytes)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE,
                              .user_data = user_data,
                              .region = there_region,
                              .address = (uint64_t)(uintptr_t)there,
                              .bytes = bytes};
    assert_int_equal(crpc_queue_submit(fixture.right, right, &op, 1, NULL, 0, NULL), 1);
}

static crpc_completion expect_work(crpc_context *context, crpc_queue queue, uint16_t opcode,
                                   uint64_t user_data)
{
    crpc_completion done = fixture_await(context, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.endpoint.bits, queue.bits);
    assert_int_equal(done.endpoint_user_data, 77);
    return done;
}

static uint32_t number_of(crpc_context *context, crpc_queue queue)
{
    return address_of(context, queue).queue_pair_number;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void a_datagram_says_where_it_comes_from(void **state)
{
    (void)state;
    crpc_queue_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target back;
    crpc_queue_op op = send_op(5, 64);
    op.opcode = CRPC_QUEUE_SEND_IMMEDIATE;
    op.immediate = 0x01020304;
    assert_int_equal(crpc_queue_get_info(fixture.left, left, &info), CRPC_OK);
    assert_int_equal(info.kind, CRPC_QUEUE_KIND_UD);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.message_bytes_max, MTU);
    assert_int_equal(info.peer_number, 0);
    receive_right(6, HEADER + 64);
    assert_int_equal(submit(&op), CRPC_OK);
    expect_work(fixture.left, left, CRPC_QUEUE_SEND_IMMEDIATE, 5);
    crpc_completion done = expect_work(fixture.right, right, CRPC_QUEUE_RECEIVE, 6);
    assert_int_equal(done.payload_bytes, HEADER + 64);
    assert_int_equal((uint32_t)done.token, number_of(fixture.left, left));
    assert_int_equal(done.reply_bytes_max, 0x01020304);
    assert_int_equal(done.flags, CRPC_COMPLETION_OF_QUEUE | CRPC_COMPLETION_IMMEDIATE |
                                     CRPC_COMPLETION_DETAIL | CRPC_COMPLETION_GRH);
    assert_memory_equal(there + HEADER, here, 64);

    /* With the key of its own queue; the sender has another. */
    assert_int_equal(crpc_target_of(fixture.right, &done, there, &back, &error), CRPC_OK);
    crpc_queue_address source = {.struct_size = sizeof(source)};
    assert_int_equal(crpc_target_get_address(fixture.right, back, &source), CRPC_OK);
    const crpc_queue_address expected = address_of(fixture.left, left);
    assert_int_equal(source.queue_pair_number, expected.queue_pair_number);
    assert_int_equal(source.link, expected.link);
    assert_memory_equal(source.gid, expected.gid, sizeof(source.gid));
    assert_int_equal(crpc_target_close(fixture.right, back), CRPC_OK);
    assert_int_equal(crpc_target_open(fixture.right, &source, NULL, &back, &error), CRPC_OK);
    const crpc_queue_op place = {.opcode = CRPC_QUEUE_RECEIVE,
                                 .user_data = 8,
                                 .region = here_region,
                                 .address = (uint64_t)(uintptr_t)here + 8192,
                                 .bytes = HEADER + MTU};
    const crpc_queue_op answer = {.opcode = CRPC_QUEUE_SEND,
                                  .flags = CRPC_QUEUE_INLINE,
                                  .user_data = 9,
                                  .address = (uint64_t)(uintptr_t) "answer",
                                  .bytes = 6,
                                  .target = back};
    assert_int_equal(crpc_queue_submit(fixture.left, left, &place, 1, NULL, 0, NULL), 1);
    assert_int_equal(crpc_queue_submit(fixture.right, right, &answer, 1, NULL, 0, NULL), 1);
    expect_work(fixture.left, left, CRPC_QUEUE_RECEIVE, 8);
    expect_work(fixture.right, right, CRPC_QUEUE_SEND, 9);
    assert_memory_equal(here + 8192 + HEADER, "answer", 6);
}

/* Arrays longer than what is checked at once, with receives among them, to two targets. */
static void arrays_may_mix_targets_and_receives(void **state)
{
    (void)state;
    const crpc_queue_address itself = address_of(fixture.left, left);
    const crpc_target loop = target_at(&itself, 0);
    crpc_queue_op ops[12];
    int32_t reason;
    for (uint32_t i = 0; i < 12; i++) {
        ops[i] = send_op(i, 16);
        ops[i].address += 16 * i;
        if (i % 4 == 0) {
            ops[i] = (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                                     .user_data = i,
                                     .region = here_region,
                                     .address = (uint64_t)(uintptr_t)here + 4096 + 64 * i,
                                     .bytes = 64};
        } else if (i % 4 == 1) {
            ops[i].target = loop;
        }
    }
    for (uint32_t i = 0; i < 6; i++) {
        receive_right(20 + i, 64);
    }
    assert_int_equal(crpc_queue_submit(fixture.left, left, ops, 12, NULL, 0, &reason), 12);
    assert_int_equal(reason, CRPC_OK);
    uint32_t sends = 0, receives = 0;
    for (uint32_t i = 0; i < 12; i++) {
        const crpc_completion done = fixture_await(fixture.left, CRPC_COMPLETION_WORK);
        assert_int_equal(done.status, CRPC_OK);
        if (done.method == CRPC_QUEUE_RECEIVE) {
            assert_int_equal(done.user_data, 4 * receives);
            assert_memory_equal(here + 4096 + 256 * receives + HEADER,
                                here + 16 * (4 * receives + 1), 16);
            receives++;
        }
        sends += done.method == CRPC_QUEUE_SEND;
    }
    assert_int_equal(sends, 9);
    assert_int_equal(receives, 3);
    for (uint32_t i = 0; i < 6; i++) {
        expect_work(fixture.right, right, CRPC_QUEUE_RECEIVE, 20 + i);
    }
}

static void a_chunk_of_ops_that_is_longer_than_the_queue_stops_there(void **state)
{
    (void)state;
    crpc_queue_op ops[100];
    int32_t reason;
    for (uint32_t i = 0; i < 100; i++) {
        ops[i] = send_op(i, 16);
    }
    memory_fabric_options(memory_fabric_default())->mode = MEMORY_SCHEDULED;
    assert_int_equal(crpc_queue_submit(fixture.left, left, ops, 100, NULL, 0, &reason), 16);
    assert_int_equal(reason, CRPC_E_AGAIN);
    memory_fabric_run(memory_fabric_default(), 100000);
    memory_fabric_options(memory_fabric_default())->mode = MEMORY_IMMEDIATE;
    for (uint32_t i = 0; i < 16; i++) {
        expect_work(fixture.left, left, CRPC_QUEUE_SEND, i);
    }
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_ROOM).endpoint.bits, left.bits);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void only_messages_can_be_datagrams(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        crpc_queue_op op = send_op(0, 16);
        op.opcode = (uint8_t)opcode;
        bool known = opcode == CRPC_QUEUE_SEND || opcode == CRPC_QUEUE_SEND_IMMEDIATE;
        if (opcode == CRPC_QUEUE_RECEIVE) { /* which has no target */
            assert_int_equal(submit(&op), CRPC_E_INVALID);
        } else {
            assert_int_equal(submit(&op), known ? CRPC_OK : CRPC_E_UNSUPPORTED);
        }
    }
}

static void fields_that_a_datagram_does_not_name_must_be_zero(void **state)
{
    (void)state;
    static const size_t unnamed[] = {
        offsetof(crpc_queue_op, stream), offsetof(crpc_queue_op, immediate),
        offsetof(crpc_queue_op, remote_key), offsetof(crpc_queue_op, remote_address),
        offsetof(crpc_queue_op, operand)};
    static const size_t bytes[] = {2, 4, 4, 8, 8};
    for (size_t i = 0; i < 5; i++) {
        for (size_t at = 0; at < bytes[i]; at++) {
            crpc_queue_op op = send_op(0, 16);
            ((uint8_t *)&op)[unnamed[i] + at] = 1;
            assert_int_equal(submit(&op), CRPC_E_INVALID);
        }
    }
    for (uint32_t flags = 0; flags < 256; flags++) {
        crpc_queue_op op = send_op(0, 16);
        op.flags = (uint8_t)flags;
        op.region.bits = flags & CRPC_QUEUE_INLINE ? 0 : here_region.bits;
        bool good = (flags & ~(CRPC_QUEUE_SIGNAL | CRPC_QUEUE_SOLICITED | CRPC_QUEUE_INLINE)) == 0;
        if (!(flags & CRPC_QUEUE_PIECES)) {
            assert_int_equal(submit(&op), good ? CRPC_OK : CRPC_E_INVALID);
        }
        fixture_pump();
    }
}

static void a_datagram_is_at_most_one_packet(void **state)
{
    (void)state;
    crpc_piece pieces[PIECES] = {{.region = here_region, .address = (uint64_t)(uintptr_t)here},
                                 {.region = here_region, .address = (uint64_t)(uintptr_t)here},
                                 {.region = here_region, .address = (uint64_t)(uintptr_t)here}};
    crpc_queue_op op = send_op(0, MTU);
    assert_int_equal(submit(&op), CRPC_OK);
    op.bytes = MTU + 1;
    assert_int_equal(submit(&op), CRPC_E_TOO_BIG);
    op = send_op(0, 3);
    op.flags = CRPC_QUEUE_PIECES;
    op.region.bits = op.address = 0;
    pieces[0].bytes = pieces[1].bytes = 1000;
    pieces[2].bytes = MTU - 2000;
    assert_int_equal(submit_pieces(&op, pieces, PIECES), CRPC_OK);
    pieces[2].bytes++;
    assert_int_equal(submit_pieces(&op, pieces, PIECES), CRPC_E_TOO_BIG);
    pieces[0].bytes = UINT32_MAX;
    assert_int_equal(submit_pieces(&op, pieces, PIECES), CRPC_E_INVALID); /* not in its region */
}

static void an_op_needs_a_target_of_its_context(void **state)
{
    (void)state;
    const crpc_queue_address address = address_of(fixture.left, left);
    crpc_target foreign, closed = target_at(&address, 0);
    crpc_queue_op ops[3] = {send_op(1, 16), send_op(2, 16), send_op(3, 16)};
    int32_t reason;
    assert_int_equal(crpc_target_open(fixture.right, &address, NULL, &foreign, NULL), CRPC_OK);
    assert_int_equal(crpc_target_close(fixture.left, closed), CRPC_OK);
    const struct {
        uint64_t bits;
        int32_t reason;
    } cases[] = {{0, CRPC_E_INVALID},        {1, CRPC_E_STALE},
                 {UINT64_MAX, CRPC_E_STALE}, {here_region.bits, CRPC_E_STALE},
                 {left.bits, CRPC_E_STALE},  {foreign.bits, CRPC_E_STALE},
                 {closed.bits, CRPC_E_STALE}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ops[1].target.bits = cases[i].bits;
        assert_int_equal(crpc_queue_submit(fixture.left, left, ops, 3, NULL, 0, &reason), 1);
        assert_int_equal(reason, cases[i].reason);
        expect_work(fixture.left, left, CRPC_QUEUE_SEND, 1);
    }
    crpc_queue_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_queue_get_stats(fixture.left, left, &stats), CRPC_OK);
    assert_int_equal(stats.sends, 7);
}

/* Ops tend to name the target of the op before, of this submit or of the last. */
static void a_target_that_was_named_last_is_found_and_forgotten(void **state)
{
    (void)state;
    const crpc_queue_address address = address_of(fixture.right, right);
    const crpc_target other = target_at(&address, RIGHT_KEY);
    for (uint32_t copied = 0; copied < 2; copied++) {
        crpc_queue_op ops[4];
        int32_t reason;
        for (uint32_t i = 0; i < 4; i++) {
            ops[i] = send_op(i, 16);
            ops[i].address += 16 * i;
            ops[i].flags = copied ? CRPC_QUEUE_INLINE : 0;
            ops[i].region.bits = copied ? 0 : here_region.bits;
            receive_right(20 + i, 64);
        }
        ops[1].target = other;
        ops[3].target.bits = 0; /* none was named, and then one was */
        assert_int_equal(crpc_queue_submit(fixture.left, left, &ops[3], 1, NULL, 0, &reason), 0);
        assert_int_equal(reason, CRPC_E_INVALID);
        assert_int_equal(crpc_queue_submit(fixture.left, left, ops, 4, NULL, 0, &reason), 3);
        assert_int_equal(reason, CRPC_E_INVALID);
        ops[3].target = target;
        assert_int_equal(submit(&ops[3]), CRPC_OK);
        for (uint32_t i = 0; i < 4; i++) {
            expect_work(fixture.left, left, CRPC_QUEUE_SEND, i);
            expect_work(fixture.right, right, CRPC_QUEUE_RECEIVE, 20 + i);
        }
    }
    crpc_queue_op late = send_op(9, 16);
    late.target = other;
    assert_int_equal(submit(&late), CRPC_OK);
    expect_work(fixture.left, left, CRPC_QUEUE_SEND, 9);
    assert_int_equal(crpc_target_close(fixture.left, other), CRPC_OK);
    assert_int_equal(submit(&late), CRPC_E_STALE);
    late.target.bits = 0;
    assert_int_equal(submit(&late), CRPC_E_INVALID);
}

static void targets_are_checked_with_a_message(void **state)
{
    (void)state;
    const crpc_queue_address good = address_of(fixture.right, right);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target made = {5};
    const struct {
        crpc_target_options options;
        const char *word;
        int32_t status;
    } options[] = {{{.kind = CRPC_QUEUE_KIND_RC}, "no target", CRPC_E_INVALID},
                   {{.kind = CRPC_QUEUE_KIND_SRQ}, "no target", CRPC_E_INVALID},
                   {{.kind = CRPC_QUEUE_KIND_DCT}, "no target", CRPC_E_INVALID},
                   {{.kind = 99}, "kind", CRPC_E_UNSUPPORTED},
                   {{.access_key = 1}, "access_key", CRPC_E_INVALID},
                   {{.access_key = UINT64_C(1) << 32}, "access_key", CRPC_E_INVALID},
                   {{.kind = CRPC_QUEUE_KIND_DCI, .queue_key = 1}, "access_key", CRPC_E_INVALID},
                   {{.queue_key = 0x80000000}, "queue_key", CRPC_E_INVALID},
                   {{.service_level = 16}, "service_level", CRPC_E_INVALID}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        crpc_target_options one = options[i].options;
        one.struct_size = sizeof(one);
        assert_int_equal(crpc_target_open(fixture.left, &good, &one, &made, &error),
                         options[i].status);
        assert_non_null(strstr(error.message, options[i].word));
    }
    crpc_queue_address wrong = good;
    wrong.queue_pair_number = 0;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error), CRPC_E_PROTOCOL);
    wrong.queue_pair_number = 0x1000000;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error), CRPC_E_PROTOCOL);
    wrong = good;
    wrong.mtu_bytes = 1500;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error), CRPC_E_PROTOCOL);
    wrong = good;
    wrong.link = CRPC_LINK_INFINIBAND;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error),
                     CRPC_E_UNREACHABLE);
    wrong = good;
    wrong.flags = CRPC_GRH_REQUIRED << 1;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error), CRPC_E_PROTOCOL);
    wrong = good;
    wrong.struct_size = offsetof(crpc_queue_address, flags) - 1;
    assert_int_equal(crpc_target_open(fixture.left, &wrong, NULL, &made, &error), CRPC_E_INVALID);
    assert_int_equal(crpc_target_open(fixture.left, NULL, NULL, &made, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_open(fixture.left, &good, NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_open(NULL, &good, NULL, &made, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_get_address(fixture.left, target, NULL), CRPC_E_INVALID);
    assert_int_equal(made.bits, 5);
}

/* What a completion says may be wrong, and a header is the network's. */
static void a_source_is_checked(void **state)
{
    (void)state;
    uint8_t header[HEADER] = {0};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target made = {5};
    crpc_queue_op op = send_op(5, 8);
    receive_right(6, HEADER + 8);
    assert_int_equal(submit(&op), CRPC_OK);
    const crpc_completion good = expect_work(fixture.right, right, CRPC_QUEUE_RECEIVE, 6);
    const crpc_completion sent = expect_work(fixture.left, left, CRPC_QUEUE_SEND, 5);
    assert_int_equal(crpc_target_of(fixture.right, &good, header, &made, &error), CRPC_E_PROTOCOL);
    assert_int_equal(crpc_target_of(fixture.left, &good, there, &made, NULL), CRPC_E_STALE);
    assert_int_equal(crpc_target_of(fixture.left, &sent, there, &made, NULL), CRPC_E_INVALID);
    crpc_completion wrong = good;
    wrong.flags &= (uint8_t)~CRPC_COMPLETION_GRH; /* on Ethernet nothing else leads back */
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_PROTOCOL);
    wrong = good;
    wrong.token = 0;
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_PROTOCOL);
    wrong = good;
    wrong.status = CRPC_E_FLUSHED;
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_INVALID);
    wrong = good;
    wrong.kind = CRPC_COMPLETION_ROOM;
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_INVALID);
    wrong = good;
    wrong.payload_bytes = HEADER - 1;
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_INVALID);
    wrong = good;
    wrong.endpoint.bits = fixture_lone_queue(fixture.right, NULL).bits;
    assert_int_equal(crpc_target_of(fixture.right, &wrong, there, &made, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_of(fixture.right, NULL, there, &made, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_of(fixture.right, &good, NULL, &made, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_target_of(fixture.right, &good, there, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(made.bits, 5);
    assert_int_equal(crpc_target_of(fixture.right, &good, there, &made, &error), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, right), CRPC_OK);
    assert_int_equal(crpc_target_of(fixture.right, &good, there, &made, NULL), CRPC_E_STALE);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_queue_for_datagrams_ends_as_others_do(void **state)
{
    (void)state;
    crpc_queue_op op = send_op(1, 16);
    int32_t reason;
    receive_right(6, 100);
    assert_int_equal(crpc_queue_drain(fixture.left, left, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
    assert_int_equal(crpc_queue_submit(fixture.left, left, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_fail(fixture.right, right), CRPC_OK);
    crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_E_FLUSHED);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_close(fixture.left, left), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, right), CRPC_OK);
}

#define DATAGRAM_TEST(test) cmocka_unit_test_setup_teardown(test, open_pair, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATAGRAM_TEST(a_datagram_says_where_it_comes_from),
        DATAGRAM_TEST(arrays_may_mix_targets_and_receives),
        DATAGRAM_TEST(a_chunk_of_ops_that_is_longer_than_the_queue_stops_there),
        DATAGRAM_TEST(only_messages_can_be_datagrams),
        DATAGRAM_TEST(fields_that_a_datagram_does_not_name_must_be_zero),
        DATAGRAM_TEST(a_datagram_is_at_most_one_packet),
        DATAGRAM_TEST(an_op_needs_a_target_of_its_context),
        DATAGRAM_TEST(a_target_that_was_named_last_is_found_and_forgotten),
        DATAGRAM_TEST(targets_are_checked_with_a_message),
        DATAGRAM_TEST(a_source_is_checked),
        DATAGRAM_TEST(a_queue_for_datagrams_ends_as_others_do),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

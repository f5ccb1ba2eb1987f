/* tags_test.c: messages with tags between two contexts over a device, and with a peer that has no part of this
 * library: a program of plain verbs, with a TM-SRQ of its own. */
#include <string.h>

#include "leave_out.h"
#include "place.h"
#include "queues.h"
#include "tag_peer.h"

#define HEADER ((uint32_t)CRPC_TAG_HEADER_BYTES)
#define ANY UINT64_MAX
#define RECEIVES_AT 32768u
#define RECEIVE_BYTES 4096u

static crpc_queue srq; /* of there */

static int32_t try_open_srq(crpc_error *error)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .kind = CRPC_QUEUE_KIND_TM_SRQ,
                                        .user_data = 88,
                                        .receives = 32,
                                        .tags = 32};
    *error = (crpc_error){.struct_size = sizeof(*error)};
    return crpc_queue_open(there.context, &options, &srq, error);
}

static void open_srq(void)
{
    crpc_error error;
    need(try_open_srq(&error), &error);
}

static crpc_queue_options with_srq(void)
{
    crpc_queue_options options = queues_options();
    options.receives = options.receive_pieces = 0;
    options.receive_queue = srq;
    return options;
}

static int open_pair(void **state)
{
    crpc_queue_options ours = queues_options();
    queues_open(state);
    open_srq();
    const crpc_queue_options theirs = with_srq();
    connect_with(&ours, &theirs);
    return 0;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void submit_tag(const crpc_queue_op *op)
{
    int32_t reason;
    if (crpc_queue_submit(there.context, srq, op, 1, NULL, 0, &reason) != 1) {
        fail_msg("opcode %u: %s", op->opcode, crpc_status_name(reason));
    }
}

static void add(uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t at, uint32_t bytes)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_TAG_ADD,
                              .user_data = user_data,
                              .region = there.region,
                              .address = address_of(there.memory + at),
                              .bytes = bytes,
                              .remote_address = tag,
                              .operand = mask};
    submit_tag(&op);
}

static void run(uint8_t opcode, uint64_t user_data, uint64_t operand)
{
    const crpc_queue_op op = {.opcode = opcode, .user_data = user_data, .operand = operand};
    submit_tag(&op);
}

/* The device has the tags that were added before. Until then, a message that finds a receive takes that. */
static void synchronize(void)
{
    run(CRPC_QUEUE_TAG_SYNC, 900, 0);
    await_work(&there, CRPC_QUEUE_TAG_SYNC, 900, CRPC_OK);
}

static void receive(uint64_t user_data)
{
    const crpc_queue_op op = {
        .opcode = CRPC_QUEUE_RECEIVE,
        .user_data = user_data,
        .region = there.region,
        .address = address_of(there.memory + RECEIVES_AT + user_data % 8 * RECEIVE_BYTES),
        .bytes = RECEIVE_BYTES};
    submit_tag(&op);
}

static void send_message(uint64_t tag, uint32_t bytes)
{
    crpc_tag_header_write(here.memory, tag, (uint32_t)tag + 1);
    one(&here, CRPC_QUEUE_SEND, tag, 0, HEADER + bytes);
    await_work(&here, CRPC_QUEUE_SEND, tag, CRPC_OK);
}

static crpc_completion expect_match(uint64_t user_data, uint64_t tag, uint32_t at, uint32_t bytes)
{
    const crpc_completion done = await_work(&there, CRPC_QUEUE_TAG_ADD, user_data, CRPC_OK);
    assert_true(done.flags & CRPC_COMPLETION_MATCHED);
    assert_int_equal(done.token, tag);
    assert_int_equal(done.view, (uint32_t)tag + 1);
    assert_int_equal(done.payload_bytes, bytes);
    assert_int_equal(done.endpoint.bits, there.queue.bits);
    assert_memory_equal(there.memory + at, here.memory + HEADER, bytes);
    return done;
}

/* ---- Between two of us ----------------------------------------------------------------------- */

static void messages_find_their_tags(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        add(i, 100 + i, ANY, i * 1024, 1024);
    }
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t which = (i * 7) % 20;
        send_message(100 + which, 1 + which * 50);
        expect_match(which, 100 + which, which * 1024, 1 + which * 50);
    }
    add(50, 0, 0, 0, 30000); /* of many packets, and whatever its tag */
    send_message(0xfedcba9876543210, 30000);
    expect_match(50, 0xfedcba9876543210, 0, 30000);
}

/* Two sides as MPI has them: what is unexpected is matched by the program, in order. */
static void unexpected_messages_are_matched_by_the_program(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        receive(i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        send_message(5, 10 + i);
    }
    add(60, 5, ANY, 0, 100); /* it has asked for 5 before it saw the first one */
    for (uint32_t i = 0; i < 3; i++) {
        const crpc_completion done = await_work(&there, CRPC_QUEUE_RECEIVE, i, CRPC_OK);
        assert_int_equal(done.payload_bytes, HEADER + 10 + i);
        assert_true(done.flags & CRPC_COMPLETION_SYNC);
    }
    run(CRPC_QUEUE_TAG_REMOVE, 61, 60); /* the first one was for it */
    await_work(&there, CRPC_QUEUE_TAG_ADD, 60, CRPC_E_CANCELED);
    await_work(&there, CRPC_QUEUE_TAG_REMOVE, 61, CRPC_OK);
    add(62, 6, ANY, 0, 100);
    synchronize();
    send_message(6, 77);
    expect_match(62, 6, 0, 77);
}

static void tags_end_with_their_queue(void **state)
{
    (void)state;
    add(1, 1, ANY, 0, 100);
    add(2, 2, ANY, 100, 100);
    send_message(1, 10);
    expect_match(1, 1, 0, 10);
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_E_BUSY);
    close_queues();
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_OK);
    await_work(&there, CRPC_QUEUE_TAG_ADD, 2, CRPC_E_CLOSED);
}

static void a_message_that_is_too_long_fails_its_queue_alone(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    receive(7);
    add(1, 1, ANY, 0, 10);
    add(2, 2, ANY, 0, 10);
    synchronize();
    crpc_tag_header_write(here.memory, 1, 0);
    one(&here, CRPC_QUEUE_SEND, 1, 0, HEADER + 11);
    await_work(&there, CRPC_QUEUE_TAG_ADD, 1, CRPC_E_FLUSHED);
    await_work(&there, CRPC_QUEUE_RECEIVE, 7, CRPC_E_TRUNCATED);
    assert_int_equal(await(&there, CRPC_COMPLETION_DISCONNECTED).endpoint.bits, there.queue.bits);
    assert_int_not_equal(await(&here, CRPC_COMPLETION_WORK).status, CRPC_OK);
    assert_int_equal(crpc_queue_get_error(there.context, there.queue, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_E_TRUNCATED);
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(there.context, srq, &info), CRPC_OK);
    assert_int_equal(info.tags_open, 1);
}

/* ---- With a program of plain verbs ----------------------------------------------------------- */

static struct tag_peer peer;

static int open_with_peer(void **state)
{
    crpc_queue_options options;
    crpc_queue_address address = {.struct_size = sizeof(address)}, its = address;
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    queues_open(state);
    open_srq();
    options = with_srq();
    need(crpc_queue_blob(there.context, &options, &there.queue, blob, &bytes, &error), &error);
    assert_int_equal(crpc_queue_get_address(there.context, there.queue, &address), CRPC_OK);
    tag_peer_open(&peer);
    tag_peer_connect(&peer, &address, &its);
    need(crpc_queue_join_address(there.context, there.queue, &its, &error), &error);
    await(&there, CRPC_COMPLETION_CONNECTED);
    return 0;
}

static int close_with_peer(void **state)
{
    tag_peer_close(&peer);
    return queues_close(state);
}

static void submit_there(const crpc_queue_op *op)
{
    int32_t reason;
    if (crpc_queue_submit(there.context, there.queue, op, 1, NULL, 0, &reason) != 1) {
        fail_msg("opcode %u: %s", op->opcode, crpc_status_name(reason));
    }
}

static void a_verbs_program_sends_to_our_tags(void **state)
{
    (void)state;
    receive(1);
    add(3, 0x77, ANY, 0, 500);
    synchronize();
    tag_peer_send(&peer, CRPC_TAG_EAGER, 0x77, 300, 0);
    const crpc_completion done = await_work(&there, CRPC_QUEUE_TAG_ADD, 3, CRPC_OK);
    assert_int_equal(done.token, 0x77);
    assert_int_equal(done.view, TAG_PEER_CONTEXT);
    assert_int_equal(done.payload_bytes, 300);
    assert_memory_equal(there.memory, peer.memory + HEADER, 300);
    tag_peer_send(&peer, CRPC_TAG_EAGER, 0x78, 300, 0);
    const crpc_completion other = await_work(&there, CRPC_QUEUE_RECEIVE, 1, CRPC_OK);
    uint64_t tag = 0;
    assert_true(other.flags & CRPC_COMPLETION_SYNC);
    assert_int_equal(
        crpc_tag_header_read(there.memory + RECEIVES_AT + RECEIVE_BYTES, 316, &tag, NULL),
        CRPC_TAG_EAGER);
    assert_int_equal(tag, 0x78);
}

static void we_send_to_its_tags(void **state)
{
    (void)state;
    tag_peer_add(&peer, 5, 0x1234, 400);
    crpc_tag_header_write(there.memory, 0x1234, 99);
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .user_data = 8,
                              .region = there.region,
                              .address = address_of(there.memory),
                              .bytes = HEADER + 200};
    submit_there(&op);
    await_work(&there, CRPC_QUEUE_SEND, 8, CRPC_OK);
    const struct tag_peer_message message = tag_peer_await(&peer);
    assert_true(message.matched);
    assert_int_equal(message.id, 5);
    assert_int_equal(message.tag, 0x1234);
    assert_int_equal(message.context, 99);
    assert_int_equal(message.bytes, 200);
    assert_memory_equal(peer.memory + TAG_PEER_TAGS_AT, there.memory + HEADER, 200);
}

/* The request tells where the payload is: the program READs it, and says that it is done. */
static void its_rendezvous_is_made_by_the_program(void **state)
{
    (void)state;
    struct tag_peer_rendezvous where;
    add(4, 9, ANY, 0, 20000);
    tag_peer_send(&peer, CRPC_TAG_RENDEZVOUS, 9, 0, 10000);
    crpc_completion done = await_work(&there, CRPC_QUEUE_TAG_ADD, 4, CRPC_OK);
    assert_true(done.flags & CRPC_COMPLETION_RENDEZVOUS);
    assert_int_equal(done.payload_bytes, HEADER + sizeof(where));
    memcpy(&where, there.memory + HEADER, sizeof(where));
    const crpc_queue_op read = {.opcode = CRPC_QUEUE_READ,
                                .user_data = 11,
                                .region = there.region,
                                .address = address_of(there.memory + 8192),
                                .bytes = be32toh(where.bytes),
                                .remote_address = be64toh(where.address),
                                .remote_key = be32toh(where.key)};
    submit_there(&read);
    await_work(&there, CRPC_QUEUE_READ, 11, CRPC_OK);
    assert_memory_equal(there.memory + 8192, peer.memory + TAG_PEER_PAYLOAD_AT, 10000);
    there.memory[0] = CRPC_TAG_FINISHED;
    const crpc_queue_op finished = {.opcode = CRPC_QUEUE_SEND,
                                    .user_data = 12,
                                    .region = there.region,
                                    .address = address_of(there.memory),
                                    .bytes = done.payload_bytes};
    submit_there(&finished);
    await_work(&there, CRPC_QUEUE_SEND, 12, CRPC_OK);
    const struct tag_peer_message message = tag_peer_await(&peer);
    assert_false(message.matched);
    assert_int_equal(message.bytes, HEADER + sizeof(where));
    assert_int_equal(peer.memory[TAG_PEER_RECEIVES_AT], CRPC_TAG_FINISHED);
}

/* In the middle of everything. */
static void it_leaves(void **state)
{
    (void)state;
    receive(1);
    add(1, 1, ANY, 0, 100);
    synchronize();
    tag_peer_send(&peer, CRPC_TAG_EAGER, 1, 10, 0);
    await_work(&there, CRPC_QUEUE_TAG_ADD, 1, CRPC_OK);
    add(2, 2, ANY, 0, 100);
    tag_peer_fail(&peer);
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .user_data = 8,
                              .region = there.region,
                              .address = address_of(there.memory),
                              .bytes = 10};
    submit_there(&op);
    await_work(&there, CRPC_QUEUE_SEND, 8, CRPC_E_DISCONNECTED);
    await(&there, CRPC_COMPLETION_DISCONNECTED);
    run(CRPC_QUEUE_TAG_REMOVE, 3, 2);
    await_work(&there, CRPC_QUEUE_TAG_ADD, 2, CRPC_E_CANCELED);
    await_work(&there, CRPC_QUEUE_TAG_REMOVE, 3, CRPC_OK);
}

/* And queues without tags work as they do elsewhere. */
static void a_device_without_tags_says_so(void **state)
{
    crpc_error error;
    (void)state;
    assert_int_equal(try_open_srq(&error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, place_device(0)));
    assert_non_null(strstr(error.message, "tags"));
    connect_both();
    one(&there, CRPC_QUEUE_RECEIVE, 1, 0, 64);
    one(&here, CRPC_QUEUE_SEND, 2, 0, 64);
    await_work(&here, CRPC_QUEUE_SEND, 2, CRPC_OK);
    await_work(&there, CRPC_QUEUE_RECEIVE, 1, CRPC_OK);
    close_queues();
}

static bool has_tags(void)
{
    crpc_error error;
    queues_open(NULL);
    int32_t status = try_open_srq(&error);
    queues_close(NULL);
    return status != CRPC_E_UNSUPPORTED;
}

#define PAIR(name) cmocka_unit_test_setup_teardown(name, open_pair, queues_close)
#define PEER(name) cmocka_unit_test_setup_teardown(name, open_with_peer, close_with_peer)

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_without_tags_says_so, queues_open, queues_close),
        PAIR(messages_find_their_tags),
        PAIR(unexpected_messages_are_matched_by_the_program),
        PAIR(tags_end_with_their_queue),
        PAIR(a_message_that_is_too_long_fails_its_queue_alone),
        PEER(a_verbs_program_sends_to_our_tags),
        PEER(we_send_to_its_tags),
        PEER(its_rendezvous_is_made_by_the_program),
        PEER(it_leaves),
    };
    const bool tags = has_tags();
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (tags == (tests[i].test_func == a_device_without_tags_says_so)) {
            LEAVE_OUT(tests, tests[i].test_func,
                      tags ? "the device has tags" : "the device has no tags");
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

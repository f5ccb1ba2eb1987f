/* hostile_test.c: a peer that sends what docs/wire.md forbids, one thing at a time. The endpoint
 * ends with CRPC_E_PROTOCOL, its calls too, and another endpoint of the same engine goes on.
 */
#include "pair.h"

static struct pair pair;

/* What the peer sends: a good batch of two requests, to be spoiled. */
struct batch {
    struct wire_batch header;
    struct wire_message first;
    uint8_t first_payload[16];
    struct wire_message second;
    uint8_t second_payload[16];
    uint8_t rest[128];  /* for what is said to be longer */
    uint32_t immediate; /* in units */
    uint32_t bytes;     /* really written */
};

static int open_pair(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    pair_connect(&pair, &options, &options);
    /* Three calls of ours are open, which the peer may answer. */
    for (uint64_t call = 0; call < 3; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, 100 + call, 8, 1, 100), CRPC_OK);
    }
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), 3);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static struct batch good_requests(void)
{
    const struct rpc_endpoint *target = pair.endpoint[0][0];
    return (struct batch){
        .header = {.request_limit = target->request_limit,
                   .batch_limit = target->batch_limit,
                   .sequence = 0,
                   .bytes = 96,
                   .message_count = 2},
        .first = {.payload_bytes = 16, .call_id = 3, .limit_or_status = 64, .kind = WIRE_REQUEST},
        .second = {.payload_bytes = 10, .call_id = 4, .limit_or_status = 0, .kind = WIRE_REQUEST},
        .immediate = 3,
        .bytes = 96};
}

/* Answers to the first two calls of open_pair. */
static struct batch good_responses(void)
{
    struct batch batch = good_requests();
    batch.first = (struct wire_message){.payload_bytes = 16,
                                        .call_id = pair.endpoint[0][0]->calls[0].call_id,
                                        .kind = WIRE_RESPONSE};
    batch.second = (struct wire_message){.payload_bytes = 0,
                                         .call_id = pair.endpoint[0][0]->calls[1].call_id,
                                         .limit_or_status = (uint32_t)CRPC_E_DROPPED,
                                         .kind = WIRE_RESPONSE};
    return batch;
}

static void send_at(const struct batch *batch, uint64_t position)
{
    const struct rpc_endpoint *target = pair.endpoint[0][0];
    assert_int_equal(memory_fabric_write_immediate(
                         pair.fabric, target->queue_pair->number,
                         (uint64_t)(uintptr_t)ring_at(&target->ring, position),
                         target->ring.memory.remote_key, batch->bytes, batch, batch->immediate),
                     NIC_ERROR_NONE);
}

/* The victim has ended with CRPC_E_PROTOCOL; its calls too, each once; the other connection
 * lives. */
static void expect_end(void)
{
    uint32_t calls = 0, ends = 0;
    for (int i = 0; i < 5; i++) {
        pair_poll(&pair, 0);
        for (uint32_t j = 0; j < pair.seen[0].count; j++) {
            const crpc_completion *one = &pair.seen[0].entries[j];
            if (one->kind == CRPC_COMPLETION_RESPONSE && one->status == CRPC_E_PROTOCOL) {
                calls++;
            } else if (one->kind == CRPC_COMPLETION_DISCONNECTED) {
                ends++;
                assert_int_equal(one->status, CRPC_E_PROTOCOL);
            }
        }
    }
    assert_int_equal(ends, 1);
    assert_in_range(calls, 1, 3);
    const struct rpc_endpoint *victim = pair.endpoint[0][0];
    assert_int_equal(victim->stats.protocol_errors, 1);
    assert_int_equal(rpc_endpoint_error(victim)->status, CRPC_E_PROTOCOL);
    assert_true(strlen(rpc_endpoint_error(victim)->message) > 20);
    assert_int_equal(pair_call(&pair, 0, 0, 1, 8, 1, 8), CRPC_E_DISCONNECTED);
    pair_round_trip(&pair, 1);
}

/* ---- The good ones are good ------------------------------------------------------------------ */

static void good_batches_are_taken(void **state)
{
    (void)state;
    struct batch batch = good_requests();
    send_at(&batch, 0);
    batch = good_responses();
    batch.header.sequence = 1;
    send_at(&batch, 96);
    assert_int_equal(pair_poll(&pair, 0), 4);
    assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(pair.seen[0].entries[1].payload_bytes, 10);
    assert_int_equal(pair.seen[0].entries[2].status, CRPC_OK);
    assert_int_equal(pair.seen[0].entries[3].status, CRPC_E_DROPPED);
    pair_round_trip(&pair, 1);
}

/* ---- Spoiled ones ---------------------------------------------------------------------------- */

struct spoiled {
    const char *name;
    bool responses;
    void (*spoil)(struct batch *batch);
};

#define SPOIL(name, statement)                                                                     \
    static void name(struct batch *batch)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }

SPOIL(immediate_0, batch->immediate = 0)
SPOIL(immediate_beyond_the_ring, batch->immediate = 4096 / 32 + 1)
SPOIL(immediate_huge, batch->immediate = UINT32_MAX)
SPOIL(length_not_the_immediates, batch->header.bytes = 64)
SPOIL(length_longer_than_the_immediate, batch->header.bytes = 128)
SPOIL(sequence_repeated, batch->header.sequence = UINT32_MAX)
SPOIL(sequence_skipped, batch->header.sequence = 1)
SPOIL(header_zero_set, batch->header.zero = 1)
SPOIL(unknown_flag, batch->header.flags = 2)
SPOIL(no_messages, batch->header.message_count = 0)
SPOIL(no_messages_but_fin_and_bytes, batch->header.message_count = 0;
      batch->header.flags = WIRE_BATCH_FIN)
SPOIL(fewer_messages_than_bytes, batch->header.message_count = 1)
SPOIL(more_messages_than_bytes, batch->header.message_count = 3)
SPOIL(request_limit_beyond_its_share, batch->header.request_limit = 1u << 20)
SPOIL(batch_limit_beyond_its_window, batch->header.batch_limit = 1000)
SPOIL(limits_near_overflow, batch->header.request_limit = UINT64_MAX)
SPOIL(message_longer_than_the_batch, batch->first.payload_bytes = 64)
SPOIL(message_length_overflows, batch->first.payload_bytes = UINT32_MAX)
SPOIL(last_message_ends_early, batch->header.bytes = 128; batch->immediate = 4; batch->bytes = 128)
SPOIL(kind_0, batch->second.kind = 0)
SPOIL(kind_3, batch->second.kind = 3)
SPOIL(message_zero_set, batch->first.zero = 1)
SPOIL(index_beyond_its_slots, batch->first.call_id = 16)
SPOIL(index_in_use, batch->second.call_id = batch->first.call_id | 5u << 20)
SPOIL(allowance_beyond_its_ring, batch->first.limit_or_status = 4000)
SPOIL(allowance_huge, batch->first.limit_or_status = UINT32_MAX)
SPOIL(response_index_beyond_our_slots, batch->first.call_id = 0xfffff)
SPOIL(response_of_another_generation, batch->first.call_id += 1u << 20)
SPOIL(response_to_no_call, batch->first.call_id = 9)
SPOIL(response_twice, batch->second.call_id = batch->first.call_id)
SPOIL(response_longer_than_allowed, batch->first.payload_bytes = 101; batch->header.bytes = 192;
      batch->header.message_count = 1; batch->immediate = 6)
SPOIL(response_with_a_reserved_status, batch->first.limit_or_status = (uint32_t)CRPC_E_TIMEOUT)
SPOIL(response_with_a_method, batch->first.method = 1)

static const struct spoiled spoiled[] = {
#define REQUESTS(name)                                                                             \
    {                                                                                              \
#name, false, name                                                                         \
    }
#define RESPONSES(name)                                                                            \
    {                                                                                              \
#name, true, name                                                                          \
    }
    REQUESTS(immediate_0),
    REQUESTS(immediate_beyond_the_ring),
    REQUESTS(immediate_huge),
    REQUESTS(length_not_the_immediates),
    REQUESTS(length_longer_than_the_immediate),
    REQUESTS(sequence_repeated),
    REQUESTS(sequence_skipped),
    REQUESTS(header_zero_set),
    REQUESTS(unknown_flag),
    REQUESTS(no_messages),
    REQUESTS(no_messages_but_fin_and_bytes),
    REQUESTS(fewer_messages_than_bytes),
    REQUESTS(more_messages_than_bytes),
    REQUESTS(request_limit_beyond_its_share),
    REQUESTS(batch_limit_beyond_its_window),
    REQUESTS(limits_near_overflow),
    REQUESTS(message_longer_than_the_batch),
    REQUESTS(message_length_overflows),
    REQUESTS(last_message_ends_early),
    REQUESTS(kind_0),
    REQUESTS(kind_3),
    REQUESTS(message_zero_set),
    REQUESTS(index_beyond_its_slots),
    REQUESTS(index_in_use),
    REQUESTS(allowance_beyond_its_ring),
    REQUESTS(allowance_huge),
    RESPONSES(response_index_beyond_our_slots),
    RESPONSES(response_of_another_generation),
    RESPONSES(response_to_no_call),
    RESPONSES(response_twice),
    RESPONSES(response_longer_than_allowed),
    RESPONSES(response_with_a_reserved_status),
    RESPONSES(response_with_a_method),
};

#define SPOILED_COUNT (sizeof(spoiled) / sizeof(spoiled[0]))

static void a_spoiled_batch_ends_the_endpoint(void **state)
{
    const struct spoiled *one = *state;
    struct batch batch = one->responses ? good_responses() : good_requests();
    one->spoil(&batch);
    send_at(&batch, 0);
    expect_end();
}

/* ---- More than one batch --------------------------------------------------------------------- */

static void more_batches_than_the_window(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        struct batch batch = good_requests();
        batch.header.sequence = i;
        batch.header.message_count = 1;
        batch.header.bytes = 64;
        batch.first.call_id = i;
        batch.first.limit_or_status = 0;
        batch.immediate = 2;
        batch.bytes = 64;
        send_at(&batch, i * 64);
    }
    expect_end();
}

static void more_requests_than_the_limit(void **state)
{
    (void)state;
    /* 2048 bytes are for requests: two of 1000 bytes and their headers are too much by a little. */
    static struct {
        struct wire_batch header;
        struct wire_message message;
        uint8_t payload[1008];
    } large;
    for (uint32_t i = 0; i < 2; i++) {
        const struct rpc_endpoint *target = pair.endpoint[0][0];
        large.header = good_requests().header;
        large.header.sequence = i;
        large.header.message_count = 1;
        large.header.bytes = sizeof(large);
        large.message =
            (struct wire_message){.payload_bytes = 1000, .call_id = i, .kind = WIRE_REQUEST};
        assert_int_equal(memory_fabric_write_immediate(
                             pair.fabric, target->queue_pair->number,
                             (uint64_t)(uintptr_t)ring_at(&target->ring, i * sizeof(large)),
                             target->ring.memory.remote_key, sizeof(large), &large,
                             sizeof(large) / 32),
                         NIC_ERROR_NONE);
    }
    expect_end();
}

static void a_request_after_leave(void **state)
{
    (void)state;
    struct batch batch = good_requests();
    batch.header.flags = WIRE_BATCH_FIN; /* its own requests may still come */
    send_at(&batch, 0);
    assert_int_equal(pair_poll(&pair, 0), 2);
    batch = good_requests();
    batch.header.sequence = 1;
    batch.first.call_id = 5;
    batch.second.call_id = 6;
    send_at(&batch, 96);
    expect_end();
}

static void leave_twice(void **state)
{
    (void)state;
    struct batch batch = {
        .header = {.bytes = 32, .flags = WIRE_BATCH_FIN}, .immediate = 1, .bytes = 32};
    send_at(&batch, 0);
    pair_poll(&pair, 0);
    batch.header.sequence = 1;
    send_at(&batch, 32);
    expect_end();
}

/* ---- The mailbox ----------------------------------------------------------------------------- */

static void a_mailbox_with_another_nonce(void **state)
{
    (void)state;
    pair.endpoint[1][0]->mailbox->nonce++;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

static void a_mailbox_that_grants_too_much_room(void **state)
{
    (void)state;
    pair.endpoint[1][0]->mailbox->request_limit += 1u << 20;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

static void a_mailbox_that_grants_too_many_batches(void **state)
{
    (void)state;
    pair.endpoint[1][0]->mailbox->batch_limit += 1000;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

static void a_mailbox_with_older_limits_is_no_error(void **state)
{
    (void)state;
    pair.endpoint[1][0]->mailbox->request_limit = 0;
    pair.endpoint[1][0]->mailbox->batch_limit = 0;
    uint64_t limit = pair.endpoint[0][0]->request_limit;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    pair_poll(&pair, 0);
    assert_int_equal(pair.endpoint[0][0]->request_limit, limit);
    assert_int_equal(pair.endpoint[0][0]->state, CRPC_STATE_CONNECTED);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

static void the_peer_can_reach_nothing_but_ring_and_mailbox(void **state)
{
    (void)state;
    const struct rpc_endpoint *target = pair.endpoint[0][0];
    uint32_t number = target->queue_pair->number;
    uint8_t bytes[64] = {0};
    uint64_t ring = (uint64_t)(uintptr_t)target->ring.address;
    uint64_t staging = (uint64_t)(uintptr_t)target->staging.address;
    uint64_t mailbox = ring + 2 * target->ring.bytes;
    assert_int_equal(memory_fabric_read(pair.fabric, number, mailbox,
                                        target->ring.line_memory.remote_key, 64, bytes),
                     NIC_ERROR_NONE);
    assert_int_equal(memory_fabric_write(pair.fabric, number, staging,
                                         target->staging.memory.remote_key, 64, bytes),
                     NIC_ERROR_REMOTE_ACCESS);
    pair_poll(&pair, 0);
    pair_round_trip(&pair, 1);
    number = pair.endpoint[0][1]->queue_pair->number;
    target = pair.endpoint[0][1];
    ring = (uint64_t)(uintptr_t)target->ring.address;
    assert_int_equal(
        memory_fabric_read(pair.fabric, number, ring, target->ring.memory.remote_key, 64, bytes),
        NIC_ERROR_REMOTE_ACCESS);
}

int main(void)
{
    struct CMUnitTest tests[SPOILED_COUNT + 16] = {0};
    size_t count = 0;
    for (size_t i = 0; i < SPOILED_COUNT; i++) {
        tests[count++] = (struct CMUnitTest){spoiled[i].name, a_spoiled_batch_ends_the_endpoint,
                                             open_pair, close_pair, (void *)&spoiled[i]};
    }
#define ADD(test) tests[count++] = (struct CMUnitTest){#test, test, open_pair, close_pair, NULL}
    ADD(good_batches_are_taken);
    ADD(more_batches_than_the_window);
    ADD(more_requests_than_the_limit);
    ADD(a_request_after_leave);
    ADD(leave_twice);
    ADD(a_mailbox_with_another_nonce);
    ADD(a_mailbox_that_grants_too_much_room);
    ADD(a_mailbox_that_grants_too_many_batches);
    ADD(a_mailbox_with_older_limits_is_no_error);
    ADD(the_peer_can_reach_nothing_but_ring_and_mailbox);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("hostile", tests, count, NULL, NULL);
}

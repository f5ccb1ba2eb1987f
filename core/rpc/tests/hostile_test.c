/* hostile_test.c: a peer that sends what docs/wire.md forbids, one thing at a time. The endpoint
 * ends with CRPC_E_PROTOCOL, its calls too, and another endpoint of the same engine goes on.
 */
#include "base/page.h"
#include "malformed.h"

static struct pair pair;

static int open_pair(void **state)
{
    (void)state;
    malformed_open(&pair);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

/* The victim has ended with CRPC_E_PROTOCOL; its calls too, each once; the other connection
 * lives. */
static void expect_end(void)
{
    const struct rpc_endpoint *victim = pair.endpoint[0][0];
    uint32_t open = victim->calls.live, calls = 0, ends = 0;
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
    assert_in_range(calls, 1, open);
    assert_int_equal(victim->stats.protocol_errors, 1);
    assert_int_equal(victim->link.error.status, CRPC_E_PROTOCOL);
    assert_true(strlen(victim->link.error.message) > 20);
    assert_int_equal(pair_call(&pair, 0, 0, 1, 8, 1, 8), CRPC_E_DISCONNECTED);
    pair_round_trip(&pair, 1);
}

/* ---- The good ones are good ------------------------------------------------------------------ */

static void good_batches_are_taken(void **state)
{
    (void)state;
    struct batch batch = malformed_good_requests(&pair);
    malformed_send(&pair, &batch, 0);
    batch = malformed_good_responses(&pair);
    batch.header.sequence = 1;
    malformed_send(&pair, &batch, 96);
    assert_int_equal(pair_poll(&pair, 0), 4);
    assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(pair.seen[0].entries[1].payload_bytes, 10);
    assert_int_equal(pair.seen[0].entries[2].status, CRPC_OK);
    assert_int_equal(pair.seen[0].entries[3].status, CRPC_E_DROPPED);
    pair_round_trip(&pair, 1);
}

/* ---- Spoiled ones ---------------------------------------------------------------------------- */

static void a_spoiled_batch_ends_the_endpoint(void **state)
{
    const struct malformed *one = *state;
    struct batch batch =
        one->responses ? malformed_good_responses(&pair) : malformed_good_requests(&pair);
    one->spoil(&batch);
    malformed_send(&pair, &batch, 0);
    expect_end();
}

/* ---- More than one batch --------------------------------------------------------------------- */

static struct batch one_request(uint32_t sequence)
{
    struct batch batch = malformed_good_requests(&pair);
    batch.header.sequence = sequence;
    batch.header.message_count = 1;
    batch.header.bytes = 64;
    batch.first.call_id = sequence % 16;
    batch.first.limit_or_status = 0;
    batch.immediate = 2;
    batch.bytes = 64;
    return batch;
}

static void more_batches_than_the_window(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        struct batch batch = one_request(i);
        malformed_send(&pair, &batch, i * 64);
    }
    expect_end();
}

/* A full window of which the application has taken only a part is still full. */
static void one_more_batch_while_one_is_half_read(void **state)
{
    (void)state;
    crpc_completion one;
    struct batch batch = malformed_good_requests(&pair);
    batch.first.call_id = 14;
    batch.first.limit_or_status = 0;
    batch.second.call_id = 15;
    malformed_send(&pair, &batch, 0);
    for (uint32_t i = 1; i < 9; i++) {
        if (i == 8) { /* of the first, one request is taken */
            assert_int_equal(rpc_poll(pair.engine[0], &one, 1), 1);
            assert_int_equal(pair.endpoint[0][0]->in.batch_left, 1);
        }
        batch = one_request(i);
        malformed_send(&pair, &batch, 96 + (i - 1) * 64);
    }
    expect_end();
}

/* One that it has taken, and may still be looking at, counts until the next poll. */
static void one_more_batch_than_was_published(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct batch batch = one_request(i);
        malformed_send(&pair, &batch, i * 64);
    }
    assert_int_equal(pair_poll(&pair, 0), 8);
    struct batch batch = one_request(8);
    malformed_send(&pair, &batch, 8 * 64);
    rpc_progress(pair.engine[0]);
    expect_end();
}

/* The window moves on with each poll, and the peer uses all of it each time. */
static void a_full_window_again_and_again_is_taken(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        struct batch batch = malformed_good_requests(&pair);
        batch.header.sequence = i;
        batch.header.message_count = 1;
        batch.header.bytes = batch.bytes = 64;
        batch.immediate = 2;
        batch.first.call_id = i % 8;
        batch.first.limit_or_status = 16;
        malformed_send(&pair, &batch, i * 64);
        if (i % 8 != 7) {
            continue;
        }
        for (uint32_t taken = 0; taken < 8; taken++) {
            crpc_completion one;
            assert_int_equal(rpc_poll(pair.engine[0], &one, 1), 1);
            assert_int_equal(one.kind, CRPC_COMPLETION_REQUEST);
            assert_int_equal(pair_echo(&pair, 0, 0, &one, CRPC_OP_QUIET), CRPC_OK);
        }
        pair_poll(&pair, 0);
    }
    pair_round_trip(&pair, 1);
}

/* While the application is away, nothing stops a peer from taking every receive of the context. It
 * is gone with the next poll, and the receives are there again for the others. */
static void a_peer_that_uses_up_the_receives_ends_with_the_next_poll(void **state)
{
    (void)state;
    const struct rpc_endpoint *victim = pair.endpoint[0][0];
    uint32_t receives = pair.nic[0]->receives_posted;
    for (uint32_t i = 0; i < receives; i++) {
        struct batch batch = one_request(i);
        malformed_send(&pair, &batch, i * 64);
    }
    assert_int_equal(memory_fabric_write_immediate(pair.fabric, victim->link.queue_pair->number, 0,
                                                   0, 0, NULL, 1),
                     NIC_ERROR_RNR);
    pair_poll(&pair, 0);
    const crpc_completion *end = pair_find(&pair, 0, CRPC_COMPLETION_DISCONNECTED);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_PROTOCOL);
    assert_int_equal(victim->stats.protocol_errors, 1);
    pair_poll(&pair, 0);
    assert_int_equal(pair.nic[0]->receives_posted, pair.nic[0]->receive_depth);
    pair_round_trip(&pair, 1);
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
        large.header = malformed_good_requests(&pair).header;
        large.header.sequence = i;
        large.header.message_count = 1;
        large.header.bytes = sizeof(large);
        large.message =
            (struct wire_message){.payload_bytes = 1000, .call_id = i, .kind = WIRE_REQUEST};
        assert_int_equal(memory_fabric_write_immediate(
                             pair.fabric, target->link.queue_pair->number,
                             (uint64_t)(uintptr_t)ring_at(&target->in.ring, i * sizeof(large)),
                             target->in.ring.memory.remote_key, sizeof(large), &large,
                             sizeof(large) / 32),
                         NIC_ERROR_NONE);
    }
    expect_end();
}

static void a_request_after_leave(void **state)
{
    (void)state;
    struct batch batch = malformed_good_requests(&pair);
    batch.header.flags = WIRE_BATCH_FIN; /* its own requests may still come */
    malformed_send(&pair, &batch, 0);
    assert_int_equal(pair_poll(&pair, 0), 2);
    batch = malformed_good_requests(&pair);
    batch.header.sequence = 1;
    batch.first.call_id = 5;
    batch.second.call_id = 6;
    malformed_send(&pair, &batch, 96);
    expect_end();
}

/* By itself, and when all else is done: by the shortest way that it may take. */
static void a_request_alone_after_leave(void **state)
{
    (void)state;
    struct batch fin = {
        .header = {.bytes = 32, .flags = WIRE_BATCH_FIN}, .immediate = 1, .bytes = 32};
    malformed_send(&pair, &fin, 0);
    for (uint32_t i = 0; i < 3; i++) {
        pair_poll(&pair, 0);
    }
    struct batch batch = malformed_good_requests(&pair);
    batch.header.sequence = 1;
    batch.header.message_count = 1;
    batch.header.bytes = batch.bytes = 64;
    batch.immediate = 2;
    malformed_send(&pair, &batch, 32);
    expect_end();
}

static void leave_twice(void **state)
{
    (void)state;
    struct batch batch = {
        .header = {.bytes = 32, .flags = WIRE_BATCH_FIN}, .immediate = 1, .bytes = 32};
    malformed_send(&pair, &batch, 0);
    pair_poll(&pair, 0);
    batch.header.sequence = 1;
    malformed_send(&pair, &batch, 32);
    expect_end();
}

/* ---- The mailbox ----------------------------------------------------------------------------- */

static void a_mailbox_with_another_nonce(void **state)
{
    (void)state;
    pair.endpoint[1][0]->in.mailbox->nonce++;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

static void a_mailbox_that_grants_too_much_room(void **state)
{
    (void)state;
    pair.endpoint[1][0]->in.mailbox->request_limit += 1u << 20;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

static void a_mailbox_that_grants_too_many_batches(void **state)
{
    (void)state;
    pair.endpoint[1][0]->in.mailbox->batch_limit += 1000;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    expect_end();
}

/* The peer keeps its window shut, so that requests gather here, and then grants room as if it had
 * taken them: the staging ring would overflow. */
static void a_grant_for_what_was_not_sent(void **state)
{
    (void)state;
    struct rpc_endpoint *victim = pair.endpoint[0][0];
    for (uint64_t call = 0; victim->out.batches_sent < victim->out.batch_limit; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, 200 + call, 8, 1, 8), CRPC_OK);
        pair_poll(&pair, 0);
    }
    assert_int_equal(pair_call(&pair, 0, 0, 300, 1000, 1, 8), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(victim->out.batch_messages, 1);
    struct wire_mailbox *mailbox = pair.endpoint[1][0]->in.mailbox;
    mailbox->request_limit = victim->out.request_sent + victim->peer.request_bytes;
    endpoint_read_mailbox(victim);
    assert_int_equal(pair_poll(&pair, 0), 0); /* all that was sent may be granted */
    assert_int_equal(victim->out.request_limit, mailbox->request_limit);
    mailbox->request_limit = victim->out.request_produced + victim->peer.request_bytes;
    endpoint_read_mailbox(victim);
    pair_poll(&pair, 1); /* what it has sent, so that only the other connection is left */
    expect_end();
}

static void a_mailbox_with_older_limits_is_no_error(void **state)
{
    (void)state;
    pair.endpoint[1][0]->in.mailbox->request_limit = 0;
    pair.endpoint[1][0]->in.mailbox->batch_limit = 0;
    uint64_t limit = pair.endpoint[0][0]->out.request_limit;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    pair_poll(&pair, 0);
    assert_int_equal(pair.endpoint[0][0]->out.request_limit, limit);
    assert_int_equal(pair.endpoint[0][0]->link.state, CRPC_STATE_CONNECTED);
}

/* ---- What is sent as zero, and not read ------------------------------------------------------ */

static void bytes_that_nobody_reads_may_be_anything(void **state)
{
    (void)state;
    struct batch batch = malformed_good_requests(&pair);
    struct wire_mailbox *mailbox = pair.endpoint[1][0]->in.mailbox;
    memset(batch.second_payload + batch.second.payload_bytes, 0xff,
           sizeof(batch.second_payload) - batch.second.payload_bytes);
    malformed_send(&pair, &batch, 0);
    assert_int_equal(pair_poll(&pair, 0), 2);
    mailbox->flags = UINT32_MAX;
    memset(mailbox->zero, 0xff, sizeof(mailbox->zero));
    uint64_t reads = pair.endpoint[0][0]->stats.mailbox_reads;
    endpoint_read_mailbox(pair.endpoint[0][0]);
    pair_poll(&pair, 0);
    assert_int_equal(pair.endpoint[0][0]->stats.mailbox_reads, reads + 1);
    assert_false(pair.endpoint[0][0]->read.in_flight);
    assert_int_equal(pair.endpoint[0][0]->link.state, CRPC_STATE_CONNECTED);
}

/* ---- Slots that nobody has used -------------------------------------------------------------- */

/* Slots are made as calls need them. What there is of the others are zeros, which look like a call with the id 0. */
static void expect_no_call(uint32_t calls, uint32_t call_id)
{
    crpc_endpoint_options options = pair_options();
    options.calls_max = 1024;
    const uint32_t connection = pair_connect(&pair, &options, &options);
    const struct rpc_endpoint *target = pair.endpoint[0][connection];
    for (uint32_t i = 0; i < calls; i++) {
        assert_int_equal(pair_call(&pair, 0, connection, i, 8, 1, 8), CRPC_OK);
    }
    const struct wire_message response = {.call_id = call_id, .kind = WIRE_RESPONSE};
    const struct {
        struct wire_batch header;
        struct wire_message responses[4];
    } batch = {.header = {.request_limit = target->out.request_limit,
                          .batch_limit = target->out.batch_limit,
                          .bytes = sizeof(batch),
                          .message_count = 2},
               .responses = {response, {0}, response, {0}}};
    assert_int_equal(memory_fabric_write_immediate(pair.fabric, target->link.queue_pair->number,
                                                   (uint64_t)(uintptr_t)target->in.ring.address,
                                                   target->in.ring.memory.remote_key, sizeof(batch),
                                                   &batch, sizeof(batch) / WIRE_UNIT_BYTES),
                     NIC_ERROR_NONE);
    pair_poll(&pair, 0);
    assert_int_equal(target->stats.protocol_errors, 1);
    assert_int_equal(target->stats.responses, 0);
    assert_non_null(strstr(target->link.error.message, "a response answers no call"));
    for (int polls = 0; polls < 2; polls++) { /* its calls end, and have arrived */
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
    pair_round_trip(&pair, 1);
}

static void a_response_before_the_first_call_answers_none(void **state)
{
    (void)state;
    expect_no_call(0, 0);
    expect_no_call(0, 1);
    expect_no_call(0, 1023);
}

static void a_response_to_a_slot_without_a_call_answers_none(void **state)
{
    (void)state;
    expect_no_call(1, 0);
    expect_no_call(1, 1);
    expect_no_call(1, 512);
    expect_no_call(20, 1023);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

static void the_peer_can_reach_nothing_but_ring_and_mailbox(void **state)
{
    (void)state;
    const struct rpc_endpoint *target = pair.endpoint[0][0];
    uint32_t number = target->link.queue_pair->number;
    uint8_t bytes[64] = {0};
    uint64_t ring = (uint64_t)(uintptr_t)target->in.ring.address;
    uint64_t staging = (uint64_t)(uintptr_t)target->out.staging.address;
    uint64_t mailbox = ring + 2 * target->in.ring.bytes;
    assert_int_equal(memory_fabric_read(pair.fabric, number, mailbox,
                                        target->in.ring.memory.remote_key, 64, bytes),
                     NIC_ERROR_NONE);
    /* It may read what it has written itself, and write to what it alone reads. */
    assert_int_equal(
        memory_fabric_read(pair.fabric, number, ring, target->in.ring.memory.remote_key, 64, bytes),
        NIC_ERROR_NONE);
    assert_int_equal(memory_fabric_write(pair.fabric, number, staging,
                                         target->out.staging.memory.remote_key, 64, bytes),
                     NIC_ERROR_REMOTE_ACCESS);
    pair_poll(&pair, 0);
    pair_round_trip(&pair, 1);
    number = pair.endpoint[0][1]->link.queue_pair->number;
    target = pair.endpoint[0][1];
    ring = (uint64_t)(uintptr_t)target->in.ring.address;
    mailbox = ring + 2 * target->in.ring.bytes;
    assert_int_equal(memory_fabric_read(pair.fabric, number, mailbox + page_bytes(),
                                        target->in.ring.memory.remote_key, 64, bytes),
                     NIC_ERROR_REMOTE_ACCESS);
}

/* A thief: a connection whose peer uses the keys of another one. */
static uint32_t thief(void)
{
    crpc_endpoint_options options = pair_options();
    uint32_t connection = pair_connect(&pair, &options, &options);
    return pair.endpoint[0][connection]->link.queue_pair->number;
}

static void with_the_keys_of_another_connection_nobody_reaches_it(void **state)
{
    (void)state;
    const struct rpc_endpoint *victim = pair.endpoint[0][1];
    const struct ring *ring = &victim->in.ring;
    uint64_t mailbox = (uint64_t)(uintptr_t)ring_mailbox(ring);
    uint8_t seen[64], before[64];
    struct batch batch = malformed_good_requests(&pair);
    memcpy(before, ring->address, sizeof(before));
    assert_int_equal(memory_fabric_write(pair.fabric, thief(), (uint64_t)(uintptr_t)ring->address,
                                         ring->memory.remote_key, 64, &batch),
                     NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(
        memory_fabric_write_immediate(pair.fabric, thief(), (uint64_t)(uintptr_t)ring->address,
                                      ring->memory.remote_key, 64, &batch, batch.immediate),
        NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(memory_fabric_read(pair.fabric, thief(), mailbox, ring->memory.remote_key,
                                        sizeof(seen), seen),
                     NIC_ERROR_REMOTE_ACCESS);
    assert_memory_equal(before, ring->address, sizeof(before));
    pair_round_trip(&pair, 1);
    assert_int_equal(victim->stats.protocol_errors, 0);
}

int main(void)
{
    struct CMUnitTest tests[128] = {0};
    size_t count = 0;
    assert(malformed_count <= 96); /* and those below */
    for (size_t i = 0; i < malformed_count; i++) {
        tests[count++] = (struct CMUnitTest){malformed[i].name, a_spoiled_batch_ends_the_endpoint,
                                             open_pair, close_pair, (void *)&malformed[i]};
    }
#define ADD(test) tests[count++] = (struct CMUnitTest){#test, test, open_pair, close_pair, NULL}
    ADD(good_batches_are_taken);
    ADD(more_batches_than_the_window);
    ADD(one_more_batch_while_one_is_half_read);
    ADD(one_more_batch_than_was_published);
    ADD(a_full_window_again_and_again_is_taken);
    ADD(a_peer_that_uses_up_the_receives_ends_with_the_next_poll);
    ADD(more_requests_than_the_limit);
    ADD(a_request_after_leave);
    ADD(a_request_alone_after_leave);
    ADD(leave_twice);
    ADD(a_mailbox_with_another_nonce);
    ADD(a_mailbox_that_grants_too_much_room);
    ADD(a_mailbox_that_grants_too_many_batches);
    ADD(a_grant_for_what_was_not_sent);
    ADD(a_mailbox_with_older_limits_is_no_error);
    ADD(a_response_before_the_first_call_answers_none);
    ADD(a_response_to_a_slot_without_a_call_answers_none);
    ADD(bytes_that_nobody_reads_may_be_anything);
    ADD(the_peer_can_reach_nothing_but_ring_and_mailbox);
    ADD(with_the_keys_of_another_connection_nobody_reaches_it);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("hostile", tests, count, NULL, NULL);
}

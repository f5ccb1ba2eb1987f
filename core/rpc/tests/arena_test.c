/* arena_test.c: payloads that the peer writes to memory of the application. Side 1 lends, as a rule, and side 0 calls. */
#include "arenas.h"

#define MS UINT64_C(1000000)

static struct arenas arenas;

static int open_pair(void **state)
{
    (void)state;
    return arenas_open(&arenas, CRPC_ENDPOINT_FULL_SIZE);
}

/* The rings grow when that is needed. */
static int open_small(void **state)
{
    (void)state;
    return arenas_open(&arenas, 0);
}

static int close_pair(void **state)
{
    (void)state;
    arenas_close(&arenas);
    return 0;
}

static void reply_to(const crpc_completion *request, uint32_t bytes)
{
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .token = request->token,
                           .payload_offset = 64,
                           .payload_bytes = bytes,
                           .status = 3};
    assert_int_equal(rpc_gather(arenas_end(&arenas, 1), &reply, &arenas.regions[1]), CRPC_OK);
    rpc_submit_end(arenas.pair.engine[1]);
}

static crpc_completion response_of(uint32_t bytes, bool placed)
{
    pair_poll(&arenas.pair, 0);
    const crpc_completion *response = pair_find(&arenas.pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(response);
    assert_int_equal(response->status, 3);
    assert_int_equal(response->payload_bytes, bytes);
    assert_int_equal(response->flags, placed ? CRPC_COMPLETION_PLACED : 0);
    assert_memory_equal(arenas_payload(response), arenas.memory[1] + 64, bytes);
    return *response;
}

/* ---- What is placed -------------------------------------------------------------------------- */

static void requests_land_in_the_arena(void **state)
{
    (void)state;
    const uint32_t lengths[] = {2048, 4096, 5001, ARENAS_PLACE_BYTES - 1, ARENAS_PLACE_BYTES};
    arenas_tell(&arenas, 1);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        assert_int_equal(arenas_call(&arenas, i, lengths[i], 0), CRPC_OK);
        const crpc_completion request = arenas_request(&arenas, i, lengths[i], true);
        reply_to(&request, 60);
        response_of(60, false);
        assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
        assert_false(rpc_view_valid(arenas_end(&arenas, 1), &request));
        assert_int_equal(arenas.users[0], 0);
    }
    /* What is short is copied, and what is no region's goes by the ring. */
    assert_int_equal(arenas_call(&arenas, 9, 2047, 0), CRPC_OK);
    arenas_request(&arenas, 9, 2047, false);
    assert_int_equal(arenas_end(&arenas, 0)->stats.protocol_errors +
                         arenas_end(&arenas, 1)->stats.protocol_errors,
                     0);
}

static void replies_land_in_the_arena(void **state)
{
    (void)state;
    arenas_tell(&arenas, 0);
    assert_int_equal(arenas_call(&arenas, 1, 3000, 0), CRPC_OK);
    const crpc_completion request =
        arenas_request(&arenas, 1, 3000, false); /* side 1 has lent nothing */
    reply_to(&request, 12000);
    const crpc_completion response = response_of(12000, true);
    pair_poll(&arenas.pair, 1);
    assert_non_null(pair_find(&arenas.pair, 1, CRPC_COMPLETION_REPLY));
    /* It stays, whatever else comes. */
    for (uint32_t i = 0; i < 5; i++) {
        pair_round_trip(&arenas.pair, 0);
    }
    assert_true(rpc_view_valid(arenas_end(&arenas, 0), &response));
    assert_memory_equal(arenas_payload(&response), arenas.memory[1] + 64, 12000);
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 0), response.payload), CRPC_OK);
}

/* A reply that is longer than the call allows is refused, whether it would be placed or not. */
static void a_reply_that_is_too_long(void **state)
{
    (void)state;
    arenas_tell(&arenas, 0);
    assert_int_equal(arenas_call(&arenas, 1, 3000, 0), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 3000, false);
    const crpc_op reply = {.opcode = CRPC_OP_REPLY, .token = request.token, .payload_bytes = 12001};
    assert_int_equal(rpc_gather(arenas_end(&arenas, 1), &reply, &arenas.regions[1]),
                     CRPC_E_TOO_BIG);
    reply_to(&request, 12000);
    response_of(12000, true);
}

static void behind_others_of_the_same_batch(void **state)
{
    (void)state;
    uint8_t small[100];
    arenas_tell(&arenas, 1);
    const uint64_t sent = arenas_end(&arenas, 0)->stats.batches_sent;
    for (uint32_t i = 0; i < 3; i++) {
        const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 33, .reply_bytes_max = 8};
        memset(small, (int)i, sizeof(small));
        assert_int_equal(rpc_call(arenas_end(&arenas, 0), &op, small), CRPC_OK);
    }
    assert_int_equal(arenas_call(&arenas, 4, 5000, 0), CRPC_OK);
    assert_int_equal(arenas_end(&arenas, 0)->stats.batches_sent, sent + 1);
    assert_int_equal(pair_poll(&arenas.pair, 1), 4);
    for (uint32_t i = 0; i < 3; i++) {
        memset(small, (int)i, sizeof(small));
        assert_memory_equal(arenas_payload(&arenas.pair.seen[1].entries[i]), small, 33);
    }
    assert_int_equal(arenas.pair.seen[1].entries[3].flags, CRPC_COMPLETION_PLACED);
    assert_memory_equal(arenas_payload(&arenas.pair.seen[1].entries[3]), arenas.memory[0] + 4,
                        5000);
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* What fits the ring goes there if all places have payloads; what is given back is used again, in any order. */
static void without_a_free_place(void **state)
{
    (void)state;
    crpc_completion held[ARENAS_PLACES];
    arenas_tell(&arenas, 1);
    for (uint32_t i = 0; i < ARENAS_PLACES; i++) {
        assert_int_equal(arenas_call(&arenas, i, 4000, 0), CRPC_OK);
        held[i] = arenas_request(&arenas, i, 4000, true);
        reply_to(&held[i], 8);
        response_of(8, false);
    }
    assert_int_equal(arenas_call(&arenas, 7, 4000, 0), CRPC_OK);
    crpc_completion request = arenas_request(&arenas, 7, 4000, false);
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), held[1].payload), CRPC_OK);
    reply_to(&request, 8);
    response_of(8, false); /* says it, too */
    assert_int_equal(arenas_call(&arenas, 8, 4000, 0), CRPC_OK);
    request = arenas_request(&arenas, 8, 4000, true);
    assert_int_equal(request.payload, held[1].payload);
    assert_memory_equal(arenas_payload(&held[0]), arenas.memory[0], 4000);
    assert_memory_equal(arenas_payload(&held[2]), arenas.memory[0] + 2, 4000);
}

/* One that does not fit the ring waits for a place, without any other message. */
static void longer_than_the_ring(void **state)
{
    (void)state;
    crpc_error error = {0};
    assert_int_equal(arenas_call(&arenas, 1, 70000, 0), CRPC_E_TOO_BIG);
    assert_int_equal(rpc_arena_lend(arenas_end(&arenas, 1), &arenas.regions[1],
                                    arenas.regions[1].address, 70016, 1, &error),
                     CRPC_OK);
    pair_poll(&arenas.pair, 1);
    pair_poll(&arenas.pair, 0);
    assert_int_equal(arenas_call(&arenas, 1, 70017, 0), CRPC_E_TOO_BIG);
    assert_int_equal(arenas_call(&arenas, 2, 70016, 0), CRPC_OK);
    pair_poll(&arenas.pair, 1);
    const crpc_completion request = *pair_find(&arenas.pair, 1, CRPC_COMPLETION_REQUEST);
    assert_memory_equal(arenas_payload(&request), arenas.memory[0] + 2, 70016);
    assert_int_equal(arenas_call(&arenas, 3, 70000, 0), CRPC_E_AGAIN);
    for (uint32_t i = 0; i < 10; i++) {
        arenas.pair.clock_ns += MS;
        pair_poll(&arenas.pair, 0);
        assert_null(pair_find(&arenas.pair, 0, CRPC_COMPLETION_ROOM));
    }
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
    bool room = false;
    for (uint32_t i = 0; i < 10 && !room; i++) {
        arenas.pair.clock_ns += MS;
        pair_poll(&arenas.pair, 0);
        room = pair_find(&arenas.pair, 0, CRPC_COMPLETION_ROOM);
    }
    assert_true(room);
    assert_int_equal(arenas_call(&arenas, 3, 70000, 0), CRPC_OK);
    pair_poll(&arenas.pair, 1);
    assert_memory_equal(arenas_payload(pair_find(&arenas.pair, 1, CRPC_COMPLETION_REQUEST)),
                        arenas.memory[0] + 3, 70000);
}

static void giving_back_what_is_not_held(void **state)
{
    (void)state;
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), arenas_place(&arenas, 1, 0)),
                     CRPC_E_STALE);
    arenas_tell(&arenas, 1);
    assert_int_equal(arenas_call(&arenas, 1, 4000, 0), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 4000, true);
    const uint64_t wrong[] = {0,
                              request.payload + 1,
                              request.payload + ARENAS_PLACE_BYTES,
                              arenas_place(&arenas, 1, ARENAS_PLACES),
                              arenas.regions[1].address,
                              UINT64_MAX};
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), wrong[i]), CRPC_E_STALE);
    }
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_E_STALE);
}

/* The count of returns wraps around, and what a READ of the mailbox brings may be older than what a batch did. */
static void many_returns(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    for (uint32_t i = 0; i < 700; i++) {
        assert_int_equal(arenas_call(&arenas, i % 16, 4000, 0), CRPC_OK);
        const crpc_completion request = arenas_request(&arenas, i % 16, 4000, true);
        assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
        if (i % 3 == 0) {
            endpoint_read_mailbox(arenas_end(&arenas, 0));
            pair_poll(&arenas.pair, 0);
            assert_int_equal(arenas_end(&arenas, 0)->peer_arena.used, 0);
        }
        reply_to(&request, 8);
        response_of(8, false);
    }
    const uint32_t last = rpc_arena_heard(arenas_end(&arenas, 0));
    for (uint32_t back = 1; back < 5; back++) {
        const uint32_t older = last - (back << WIRE_PLACES_MAX);
        assert_null(rpc_arena_hear(arenas_end(&arenas, 0), older));
        assert_int_equal(rpc_arena_heard(arenas_end(&arenas, 0)), last);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* A call that ends before its batch has left is taken out of it: alone, and behind others. */
static void a_call_that_ends_before_it_leaves(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    for (uint32_t others = 0; others < 3; others += 2) {
        pair_close_window(&arenas.pair);
        const uint32_t used = arenas_end(&arenas, 0)->calls.used;
        const uint64_t produced = arenas_end(&arenas, 0)->out.request_produced;
        const uint64_t outstanding = arenas_end(&arenas, 0)->calls.reply_outstanding;
        for (uint32_t i = 0; i < others; i++) {
            const crpc_op op = {.opcode = CRPC_OP_CALL, .user_data = 50, .reply_bytes_max = 8};
            assert_int_equal(rpc_call(arenas_end(&arenas, 0), &op, NULL), CRPC_OK);
        }
        assert_int_equal(arenas_call(&arenas, 7, 9000, MS), CRPC_OK);
        assert_true(arenas_end(&arenas, 0)->gather.waits);
        assert_int_equal(arenas_end(&arenas, 0)->peer_arena.used, 1);
        pair_expect_end(&arenas.pair, 7, CRPC_E_TIMEOUT, 3);
        assert_int_equal(arenas_end(&arenas, 0)->calls.used, used + others);
        assert_int_equal(arenas_end(&arenas, 0)->out.request_produced, produced + others * 64);
        assert_int_equal(arenas_end(&arenas, 0)->calls.reply_outstanding,
                         outstanding + others * 64);
        assert_int_equal(arenas_end(&arenas, 0)->peer_arena.used + arenas.users[0], 0);
        /* The peer gets the others, and nothing of this one. */
        uint32_t requests = 0;
        for (uint32_t i = 0; i < 20; i++) {
            arenas.pair.clock_ns += MS;
            pair_poll(&arenas.pair, 1);
            for (uint32_t k = 0; k < arenas.pair.seen[1].count; k++) {
                assert_int_equal(arenas.pair.seen[1].entries[k].kind, CRPC_COMPLETION_REQUEST);
                assert_true(arenas.pair.seen[1].entries[k].payload_bytes <= 16);
                assert_int_equal(
                    pair_echo(&arenas.pair, 1, 0,
                              &(crpc_completion){.token = arenas.pair.seen[1].entries[k].token},
                              CRPC_OP_QUIET),
                    CRPC_OK);
                requests++;
            }
            pair_poll(&arenas.pair, 0);
        }
        assert_int_equal(requests, used + others);
        assert_int_equal(arenas_end(&arenas, 0)->calls.used, 0);
    }
    assert_int_equal(arenas_call(&arenas, 1, 9000, 0), CRPC_OK);
    arenas_request(&arenas, 1, 9000, true);
}

/* As long as its device does nothing, so that no batch leaves. */
static void fill_send_queue(struct rpc_endpoint *endpoint)
{
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    const struct nic_transfer read = {
        .local_address = (uint64_t)(uintptr_t)ring_landing(&endpoint->in.ring),
        .remote_address = endpoint->peer.ring_address + 2 * endpoint->peer.ring_bytes,
        .bytes = sizeof(struct wire_mailbox),
        .local_key = endpoint->in.ring.landing_key,
        .remote_key = endpoint->peer.ring_key};
    memory_fabric_stall(queue_pair, 20);
    while (nic_send_room(queue_pair) > 1) {
        queue_pair->operations->post_read(queue_pair, &read, NIC_POST_SIGNALED);
    }
    queue_pair->operations->ring_doorbell(queue_pair);
}

/* Nothing could be said behind it. When it is taken out, nothing is left in the batch that would be sent later. */
static void what_waited_behind_it_is_said(void **state)
{
    (void)state;
    struct pair *pair = &arenas.pair;
    struct rpc_endpoint *caller = arenas_end(&arenas, 0);
    arenas_tell(&arenas, 1);
    assert_int_equal(pair_call(pair, 0, 0, 50, 16, 1, 8), CRPC_OK);
    pair_poll(pair, 1);
    const crpc_completion *request = pair_find(pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    const uint64_t token = request->token;
    pair_poll(pair, 0);
    fill_send_queue(caller);
    assert_int_equal(arenas_call(&arenas, 7, 9000, 0), CRPC_OK);
    assert_true(caller->gather.waits);
    const crpc_op cancels[] = {{.opcode = CRPC_OP_CANCEL, .token = 50},
                               {.opcode = CRPC_OP_CANCEL, .token = 7}};
    assert_int_equal(rpc_cancel(caller, &cancels[0]), CRPC_OK);
    pair_poll(pair, 0);
    assert_false(list_empty(&caller->calls.telling));
    assert_int_equal(rpc_cancel(caller, &cancels[1]), CRPC_OK);
    assert_false(caller->gather.waits);
    const crpc_completion *told = NULL;
    for (uint32_t i = 0; i < 40 && !told; i++) {
        pair->clock_ns += MS;
        pair_poll(pair, 0);
        pair_poll(pair, 1);
        told = pair_find(pair, 1, CRPC_COMPLETION_ABANDONED);
    }
    assert_non_null(told);
    assert_int_equal(told->token, token);
}

/* The response of a call that has ended takes no place. */
static void a_late_response(void **state)
{
    (void)state;
    arenas_tell(&arenas, 0);
    assert_int_equal(arenas_call(&arenas, 1, 3000, MS), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 3000, false);
    pair_expect_end(&arenas.pair, 1, CRPC_E_TIMEOUT, 3);
    reply_to(&request, 12000);
    pair_poll(&arenas.pair, 0);
    assert_int_equal(arenas.pair.seen[0].count, 0);
    assert_int_equal(arenas_end(&arenas, 0)->arena.taken, 0);
    pair_round_trip(&arenas.pair, 0);
    pair_poll(&arenas.pair, 0);
    pair_round_trip(&arenas.pair, 0);
    assert_int_equal(arenas_end(&arenas, 1)->peer_arena.used, 0);
}

/* What was placed stays when the connection has ended, and the peer's device cannot change it. */
static void payloads_outlive_the_connection(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    assert_int_equal(arenas_call(&arenas, 1, 4000, 0), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 4000, true);
    link_violated(&arenas_end(&arenas, 1)->link, "%s", "the test says so");
    for (uint32_t i = 0; i < 5; i++) {
        pair_poll(&arenas.pair, 1);
        pair_poll(&arenas.pair, 0);
    }
    assert_memory_equal(arenas_payload(&request), arenas.memory[0] + 1, 4000);
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
    assert_int_equal(arenas_lend(&arenas, 1, 1), CRPC_E_STATE);
}

static void lending_that_is_not_possible(void **state)
{
    (void)state;
    memory_fabric_set_failures(arenas.pair.fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(arenas_lend(&arenas, 1, ARENAS_PLACES), CRPC_E_MEMLOCK);
    assert_int_equal(arenas.users[1], 0);
    arenas_tell(&arenas, 1);
    assert_int_equal(arenas.users[1], 1);
    assert_int_equal(arenas_lend(&arenas, 1, ARENAS_PLACES), CRPC_E_STATE);
    rpc_leave(&arenas_end(&arenas, 0)->link);
    assert_int_equal(arenas_lend(&arenas, 0, ARENAS_PLACES), CRPC_E_STATE);
}

/* While the rings grow, and behind that. */
static void while_rings_grow(void **state)
{
    (void)state;
    const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 20000, .reply_bytes_max = 20000};
    assert_int_equal(rpc_call(arenas_end(&arenas, 0), &op, arenas.memory[0]), CRPC_OK);
    assert_true(arenas_end(&arenas, 0)->grow.waits);
    assert_int_equal(arenas_lend(&arenas, 0, ARENAS_PLACES), CRPC_OK);
    assert_int_equal(arenas_lend(&arenas, 1, ARENAS_PLACES), CRPC_OK);
    rpc_submit_end(arenas.pair.engine[0]);
    for (uint32_t i = 0; i < 20 && arenas_end(&arenas, 1)->peer_arena.places == 0; i++) {
        arenas.pair.clock_ns += MS;
        pair_poll(&arenas.pair, 1);
        pair_poll(&arenas.pair, 0);
    }
    assert_int_equal(arenas_end(&arenas, 0)->peer_arena.places, ARENAS_PLACES);
    assert_int_equal(arenas_end(&arenas, 1)->peer_arena.places, ARENAS_PLACES);
    assert_int_equal(arenas_call(&arenas, 1, 9000, 0), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 9000, true);
    reply_to(&request, 12000);
    response_of(12000, true);
}

/* A place is returned between the offer of a larger ring and the move there: the mailboxes of both rings say so. */
static void returned_before_the_move(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    assert_int_equal(arenas_call(&arenas, 1, 4000, 0), CRPC_OK);
    const crpc_completion request = arenas_request(&arenas, 1, 4000, true);
    const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 20000};
    assert_int_equal(rpc_call(arenas_end(&arenas, 0), &op, arenas.memory[0]), CRPC_OK);
    rpc_submit_end(arenas.pair.engine[0]);
    pair_poll(&arenas.pair, 0);
    pair_poll(&arenas.pair, 1); /* takes WANT, and makes the larger ring */
    assert_non_null(arenas_end(&arenas, 1)->grow.next.address);
    assert_int_equal(rpc_arena_give_back(arenas_end(&arenas, 1), request.payload), CRPC_OK);
    pair_poll(&arenas.pair, 0); /* takes RING, and moves */
    pair_poll(&arenas.pair, 0);
    assert_false(arenas_end(&arenas, 0)->grow.waits);
    endpoint_read_mailbox(arenas_end(&arenas, 0));
    pair_poll(&arenas.pair, 0);
    assert_int_equal(arenas_end(&arenas, 0)->peer_arena.used, 0);
    assert_false(arenas_end(&arenas, 0)->link.failing);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(requests_land_in_the_arena),
        TEST(replies_land_in_the_arena),
        TEST(a_reply_that_is_too_long),
        TEST(behind_others_of_the_same_batch),
        TEST(without_a_free_place),
        TEST(longer_than_the_ring),
        TEST(giving_back_what_is_not_held),
        TEST(many_returns),
        TEST(a_call_that_ends_before_it_leaves),
        TEST(what_waited_behind_it_is_said),
        TEST(a_late_response),
        TEST(payloads_outlive_the_connection),
        TEST(lending_that_is_not_possible),
        cmocka_unit_test_setup_teardown(while_rings_grow, open_small, close_pair),
        cmocka_unit_test_setup_teardown(returned_before_the_move, open_small, close_pair),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

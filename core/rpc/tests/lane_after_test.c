/* lane_after_test.c: messages that follow ops of a lane: which wait for what, and what is refused. */
#include "lanes.h"

#include <sys/mman.h>
#include <unistd.h>

static struct lanes lanes;
static const struct lane_grant *taken;

static int open_lanes(void **state)
{
    (void)state;
    lanes_open(&lanes);
    taken = lanes_grant(&lanes);
    return 0;
}

static int close_lanes(void **state)
{
    (void)state;
    lanes_close(&lanes);
    return 0;
}

/* The device of side 0 has done its ops up to this number, as far as it has said. */
static void complete(uint32_t number)
{
    struct rpc_endpoint *endpoint = lanes_of(&lanes, 0);
    lane_completed(endpoint->lane.lane, number);
    rpc_lane_look(endpoint);
    endpoint_flush(endpoint);
}

static int32_t after(uint8_t method, uint32_t bytes)
{
    const crpc_op op = {
        .opcode = CRPC_OP_CALL, .method = method, .payload_bytes = bytes, .reply_bytes_max = 8};
    static const uint8_t payload[LANES_BYTES];
    int32_t status = rpc_after(lanes_of(&lanes, 0), &op, payload);
    rpc_submit_end(lanes.pair.engine[0]);
    return status;
}

/* Side 1 gets this request next, and no other. */
static void expect_request(uint8_t method)
{
    assert_int_equal(pair_poll(&lanes.pair, 1), 1);
    assert_int_equal(lanes.pair.seen[1].entries[0].kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(lanes.pair.seen[1].entries[0].method, method);
}

static void expect_nothing(void)
{
    assert_int_equal(pair_poll(&lanes.pair, 1), 0);
}

/* Each is sent when the ops before it are done, whatever was submitted since. */
static void each_waits_for_its_own_ops(void **state)
{
    (void)state;
    for (uint8_t i = 1; i <= 3; i++) {
        lanes_write(&lanes, taken, 0, 8);
        assert_int_equal(after(i, 8), CRPC_OK);
    }
    assert_int_equal(after(4, 8), CRPC_OK); /* for the same ops as the one before */
    assert_int_equal(lanes_of(&lanes, 0)->lane.aside_count, 2);
    expect_nothing();
    for (uint8_t i = 1; i <= 2; i++) {
        complete(i);
        expect_request(i);
        expect_nothing();
    }
    complete(3);
    assert_int_equal(pair_poll(&lanes.pair, 1), 2);
    assert_int_equal(lanes.pair.seen[1].entries[1].method, 4);
    assert_int_equal(lanes_of(&lanes, 0)->lane.aside_count, 0);
    lanes_settle(&lanes);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(link_disconnect(&lanes_of(&lanes, i)->link, CRPC_FOREVER), CRPC_OK);
    }
}

/* What waits for ops moves to the larger send ring. */
static void what_is_set_aside_is_taken_along(void **state)
{
    struct pair *pair = &lanes.pair;
    crpc_endpoint_options options = lanes_options();
    options.flags &= ~CRPC_ENDPOINT_FULL_SIZE;
    options.ring_bytes = 65536;
    options.request_bytes = 16384;
    close_lanes(state);
    lanes_open_with(&lanes, &options);
    for (uint32_t side = 0; side < 2; side++) { /* so that no window closes */
        rpc_lend(lanes_of(&lanes, side));
        rpc_lend(lanes_of(&lanes, side));
        endpoint_publish(lanes_of(&lanes, side));
        endpoint_read_mailbox(lanes_of(&lanes, !side));
    }
    lanes_settle(&lanes);
    taken = lanes_grant(&lanes);
    for (uint8_t i = 1; i <= 3; i++) {
        lanes_write(&lanes, taken, 0, 8);
        assert_int_equal(after(i, 8u * i), CRPC_OK);
    }
    assert_int_equal(after(4, 4000), CRPC_OK); /* more than the first ring takes */
    assert_true(lanes_of(&lanes, 0)->grow.waits);
    assert_int_equal(lanes_of(&lanes, 0)->lane.aside_count, 2);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 6; i++) {
        pair_poll(pair, 1);
        for (uint32_t j = 0; j < pair->seen[1].count; j++) {
            const crpc_completion *request = &pair->seen[1].entries[j];
            assert_int_equal(request->method, ++seen);
            assert_int_equal(request->payload_bytes, seen == 4 ? 4000 : 8 * seen);
        }
        pair->clock_ns += 20000;
        pair_poll(pair, 0); /* its ops are done */
    }
    assert_int_equal(seen, 4);
    assert_false(lanes_of(&lanes, 0)->grow.waits);
}

/* A reply is told of when its own batch is acknowledged, also if that was set aside. */
static void replies_wait_for_their_own_ops(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    struct rpc_endpoint *endpoint = lanes_of(&lanes, 0);
    const uint32_t before = endpoint->sent.replies_tail;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_call(pair, 1, 0, i, 0, 0, 8), CRPC_OK);
        pair_poll(pair, 1);
    }
    assert_int_equal(pair_poll(pair, 0), 3);
    for (uint32_t i = 0; i < 3; i++) {
        const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                               .user_data = i,
                               .token = pair->seen[0].entries[i].token,
                               .payload_bytes = 8};
        lanes_write(&lanes, taken, 0, 8);
        assert_int_equal(rpc_after(endpoint, &reply, "8 bytes"), CRPC_OK);
    }
    rpc_submit_end(pair->engine[0]);
    for (uint32_t i = 1; i <= 3; i++) {
        complete(i);
        const uint32_t slot = (endpoint->sent.batches_tail - 1) & (endpoint->sent.batch_slots - 1);
        assert_int_equal(endpoint->sent.batches[slot].replies_tail, before + i);
        assert_int_equal(pair_poll(pair, 1), 1);
        assert_int_equal(pair->seen[1].entries[0].user_data, i - 1);
    }
    assert_int_equal(pair_poll(pair, 0), 6); /* three WRITEs */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair->seen[0].entries[3 + i].kind, CRPC_COMPLETION_REPLY);
        assert_int_equal(pair->seen[0].entries[3 + i].user_data, i);
    }
}

/* A payload in another device's memory, so that it is gathered however short it is. */
static struct rpc_region region;
static uint32_t users;

static int32_t gathered(uint16_t method)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .method = method,
                        .payload_offset = 100,
                        .payload_bytes = 200,
                        .reply_bytes_max = 8};
    return rpc_gather(lanes_of(&lanes, 0), &op, &region);
}

static void open_region(void)
{
    static uint8_t memory[LANES_BYTES];
    for (uint32_t i = 0; i < LANES_BYTES; i++) {
        memory[i] = (uint8_t)(i * 3);
    }
    region = (struct rpc_region){.address = (uint64_t)(uintptr_t)memory,
                                 .bytes = LANES_BYTES,
                                 .fd = memfd_create("payloads", MFD_CLOEXEC),
                                 .foreign = true,
                                 .users = &users};
    assert_true(region.fd >= 0 && ftruncate(region.fd, LANES_BYTES) == 0);
    rpc_region_init(&region);
}

static void close_region(void)
{
    for (uint32_t i = 0; i < 4 && users > 0; i++) {
        pair_poll(&lanes.pair, 0);
    }
    assert_int_equal(users, 0);
    rpc_region_end(&region);
    close(region.fd);
}

static void expect_gathered(uint32_t index, uint16_t method)
{
    const crpc_completion *request = &lanes.pair.seen[1].entries[index];
    const uint8_t *payload = (const uint8_t *)(uintptr_t)request->payload;
    assert_int_equal(request->method, method);
    assert_int_equal(request->payload_bytes, 200);
    assert_int_equal(payload[199], (uint8_t)(299 * 3));
}

/* It waits with the message before it, in one batch, to which nothing is added. */
static void a_payload_of_a_region_waits_too(void **state)
{
    (void)state;
    open_region();
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(after(1, 8), CRPC_OK);
    assert_int_equal(gathered(2), CRPC_OK);
    assert_int_equal(after(3, 8), CRPC_E_AGAIN);
    assert_int_equal(lanes_of(&lanes, 0)->lane.aside_count, 0);
    expect_nothing();
    complete(1);
    assert_int_equal(pair_poll(&lanes.pair, 1), 2);
    expect_gathered(1, 2);
    assert_int_equal(after(4, 8), CRPC_OK);
    pair_poll(&lanes.pair, 0);
    expect_request(4);
    close_region();
}

/* What was set aside before goes without it. */
static void a_payload_of_a_region_behind_what_was_set_aside(void **state)
{
    (void)state;
    open_region();
    for (uint8_t i = 1; i <= 2; i++) {
        lanes_write(&lanes, taken, 0, 8);
        assert_int_equal(after(i, 8), CRPC_OK);
    }
    assert_int_equal(gathered(3), CRPC_OK);
    complete(1);
    expect_request(1);
    assert_int_equal(users, 1);
    complete(2);
    assert_int_equal(pair_poll(&lanes.pair, 1), 2);
    expect_gathered(1, 3);
    close_region();
}

/* A message that is refused leaves all as it was: what comes next waits for nothing. */
static void what_is_refused_holds_nothing_back(void **state)
{
    (void)state;
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(after(1, LANES_BYTES), CRPC_E_TOO_BIG);
    assert_int_equal(pair_call(&lanes.pair, 0, 0, 2, 8, 1, 8), CRPC_OK);
    expect_request(0);
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(after(3, 8), CRPC_OK);
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(after(4, LANES_BYTES), CRPC_E_TOO_BIG);
    assert_int_equal(lanes_of(&lanes, 0)->lane.aside_count, 0);
    complete(2);
    expect_request(3); /* and not when the third is done */
}

/* So its ops may fail, and no connection ends over it. */
static void what_is_refused_ends_nothing(void **state)
{
    (void)state;
    struct lane_op op = lanes_op(&lanes, taken, LANE_WRITE, 0, 8);
    int32_t reason;
    op.remote_key++;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), &op, 1, &reason), 1);
    assert_int_equal(after(1, LANES_BYTES), CRPC_E_TOO_BIG);
    lanes_settle(&lanes);
    assert_int_equal(lanes_of(&lanes, 0)->lane.state, RPC_LANE_FAILED);
    pair_round_trip(&lanes.pair, 0);
}

/* For the peer's limit, and it asks for a longer reply than this side's small ring has room for: then RING is said behind what was
 * set aside for it, which cannot be taken back. It must not overtake that. */
static void what_is_refused_may_have_made_a_ring_grow(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    crpc_endpoint_options options = lanes_options(), small;
    options.ring_bytes = 64u << 10;
    options.request_bytes = 2048;
    options.calls_max = 64;
    small = options;
    small.flags &= ~CRPC_ENDPOINT_FULL_SIZE;
    link_close(&pair->endpoint[0][0]->link);
    link_close(&pair->endpoint[1][0]->link);
    pair->connections = 0;
    pair_connect(pair, &small, &options);
    lanes_settle(&lanes);
    taken = lanes_grant(&lanes);
    struct rpc_endpoint *endpoint = lanes_of(&lanes, 0);
    while (endpoint->out.batches_sent < endpoint->out.batch_limit) {
        assert_int_equal(pair_call(pair, 0, 0, 1, 8, 1, 8), CRPC_OK);
        pair_poll(pair, 0);
    }
    while (pair_call(pair, 0, 0, 1, 8, 1, 8) == CRPC_OK) {
    }
    const uint32_t calls = endpoint->calls.live;
    assert_true(endpoint->out.batch_messages > 0);
    memory_fabric_stall(memory_fabric_find(pair->fabric, endpoint->lane.number), 1u << 20);
    lanes_write(&lanes, taken, 0, 8);
    const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 8, .reply_bytes_max = 8000};
    assert_int_equal(rpc_after(endpoint, &op, lanes.memory[0]), CRPC_E_AGAIN);
    rpc_submit_end(pair->engine[0]);
    assert_non_null(endpoint->grow.next.address);
    uint32_t requests = 0;
    for (uint32_t i = 0; i < 60; i++) {
        pair->clock_ns += 1000000;
        pair_poll(pair, 1);
        for (uint32_t k = 0; k < pair->seen[1].count; k++) {
            requests += pair->seen[1].entries[k].kind == CRPC_COMPLETION_REQUEST;
        }
        pair_poll(pair, 0);
        assert_false(lanes_of(&lanes, 1)->link.failing);
    }
    assert_int_equal(requests, calls);
    assert_int_equal(endpoint->lane.aside_count, 0);
}

/* With room for many calls. */
static void connect_wide(void)
{
    crpc_endpoint_options options = lanes_options();
    options.ring_bytes = 64u << 10;
    options.request_bytes = 32u << 10;
    options.calls_max = 256;
    link_close(&lanes.pair.endpoint[0][0]->link);
    link_close(&lanes.pair.endpoint[1][0]->link);
    lanes.pair.connections = 0;
    pair_connect(&lanes.pair, &options, &options);
    lanes_settle(&lanes);
    taken = lanes_grant(&lanes);
}

/* The peer takes nothing: batches whose ops are done wait for the window, in order, and not all can. */
static void as_many_as_can_wait(void **state)
{
    (void)state;
    struct rpc_endpoint *endpoint;
    uint8_t sent = 0, seen = 0;
    int32_t status = CRPC_OK;
    connect_wide();
    endpoint = lanes_of(&lanes, 0);
    const uint64_t window = endpoint->out.batch_limit - endpoint->out.batches_sent;
    while (status == CRPC_OK) {
        lanes_write(&lanes, taken, 0, 8);
        status = after(sent, 8);
        sent += status == CRPC_OK;
        pair_poll(&lanes.pair, 0);
    }
    assert_int_equal(status, CRPC_E_AGAIN);
    assert_int_equal(endpoint->lane.aside_count, RPC_ASIDE_MAX);
    assert_int_equal(sent, window + RPC_ASIDE_MAX + 1); /* the last is in the open batch */
    lanes.rooms = 0;
    assert_int_equal(link_disconnect(&endpoint->link, CRPC_FOREVER), CRPC_OK);
    for (uint32_t i = 0; i < 2 * (RPC_ASIDE_MAX + 4); i++) {
        pair_poll(&lanes.pair, 1);
        for (uint32_t j = 0; j < lanes.pair.seen[1].count; j++) {
            const crpc_completion *one = &lanes.pair.seen[1].entries[j];
            if (one->kind == CRPC_COMPLETION_REQUEST) {
                assert_int_equal(one->method, seen++);
                assert_int_equal(pair_echo(&lanes.pair, 1, 0, one, CRPC_OP_QUIET), CRPC_OK);
            }
        }
        lanes.pair.clock_ns += 2 * READ_BACKOFF_MAX_NS;
        pair_poll(&lanes.pair, 0);
        lanes_count(&lanes, 0);
    }
    assert_int_equal(seen, sent);
    assert_true(lanes.rooms > 0);
    assert_int_equal(endpoint->link.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(endpoint->link.error.status, CRPC_OK);
}

/* The peer says nothing, so its mailbox has to be read, also while the last op is under way. */
static void what_is_done_does_not_wait_for_the_last_op(void **state)
{
    (void)state;
    struct rpc_endpoint *endpoint = lanes_of(&lanes, 0);
    const uint64_t limit = endpoint->out.batch_limit;
    for (uint8_t i = 1; i <= 2; i++) {
        lanes_write(&lanes, taken, 0, 8);
        assert_int_equal(after(i, 8), CRPC_OK);
    }
    endpoint->out.batch_limit = endpoint->out.batches_sent; /* as far as this side knows */
    complete(1);
    assert_int_equal(endpoint->lane.aside_count, 1);
    assert_true(endpoint->lane.gated);
    assert_true(wheel_timer_set(&endpoint->read.timer));
    endpoint->out.batch_limit = limit;
    endpoint_flush(endpoint); /* as when the mailbox has told */
    expect_request(1);
    expect_nothing();
    complete(2);
    expect_request(2);
}

#define AFTER_TEST(name) cmocka_unit_test_setup_teardown(name, open_lanes, close_lanes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AFTER_TEST(each_waits_for_its_own_ops),
        AFTER_TEST(what_is_set_aside_is_taken_along),
        AFTER_TEST(replies_wait_for_their_own_ops),
        AFTER_TEST(a_payload_of_a_region_waits_too),
        AFTER_TEST(a_payload_of_a_region_behind_what_was_set_aside),
        AFTER_TEST(what_is_refused_holds_nothing_back),
        AFTER_TEST(what_is_refused_ends_nothing),
        AFTER_TEST(what_is_refused_may_have_made_a_ring_grow),
        AFTER_TEST(as_many_as_can_wait),
        AFTER_TEST(what_is_done_does_not_wait_for_the_last_op),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lane_test.c: the lane of an endpoint: how it is made, what goes over it, order with calls, and ends. */
#include "base/checksum.h"
#include "lanes.h"

static struct lanes lanes;

static int open_lanes(void **state)
{
    (void)state;
    lanes_open(&lanes);
    return 0;
}

static int close_lanes(void **state)
{
    (void)state;
    lanes_close(&lanes);
    return 0;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static void both_sides_have_a_lane(void **state)
{
    (void)state;
    crpc_endpoint_info info;
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, side)), CRPC_OK);
        rpc_endpoint_info(lanes_of(&lanes, side), &info);
        assert_int_equal(info.features,
                         WIRE_FEATURE_LANE | WIRE_FEATURE_DEADLINES | WIRE_FEATURE_TRACES);
    }
    pair_round_trip(&lanes.pair, 0);
}

/* Until it is open ops are refused, and ROOM says when to try again. */
static void room_follows_when_it_is_open(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    uint32_t number = pair_connect(&lanes.pair, &options, &options);
    struct rpc_endpoint *endpoint = lanes.pair.endpoint[0][number];
    assert_int_equal(rpc_lane_bar(endpoint), CRPC_E_AGAIN);
    uint32_t rooms = 0;
    for (uint32_t i = 0; i < 6; i++) {
        pair_poll(&lanes.pair, 1);
        pair_poll(&lanes.pair, 0);
        const crpc_completion *room = pair_find(&lanes.pair, 0, CRPC_COMPLETION_ROOM);
        rooms += room && room->endpoint.bits == endpoint->link.handle;
    }
    assert_int_equal(rooms, 1);
    assert_int_equal(rpc_lane_bar(endpoint), CRPC_OK);
}

static void a_peer_without_one(void **state)
{
    (void)state;
    crpc_endpoint_options with = lanes_options(), without = pair_options();
    struct pair *pair = &lanes.pair;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t queue_pairs = memory_fabric_counters(pair->fabric)->queue_pairs;
        uint32_t number = pair_connect(pair, i ? &with : &without, i ? &without : &with);
        assert_int_equal(memory_fabric_counters(pair->fabric)->queue_pairs, queue_pairs + 2);
        for (uint32_t side = 0; side < 2; side++) {
            assert_int_equal(rpc_lane_bar(pair->endpoint[side][number]), CRPC_E_UNSUPPORTED);
            assert_int_equal(lanes_after(pair->endpoint[side][number]), CRPC_E_UNSUPPORTED);
            crpc_endpoint_info info;
            rpc_endpoint_info(pair->endpoint[side][number], &info);
            assert_int_equal(info.features, WIRE_FEATURE_DEADLINES | WIRE_FEATURE_TRACES);
        }
        pair_round_trip(pair, number);
    }
}

/* A hello with a lane has to leave room for the words, and one without need not. */
static void a_hello_without_room_for_words(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        crpc_endpoint_options options = i == 2 ? pair_options() : lanes_options();
        struct rpc_endpoint *ends[2];
        uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
        struct link_blob blob;
        struct wire_endpoint body;
        crpc_error error = {0};
        for (uint32_t side = 0; side < 2; side++) {
            assert_int_equal(
                endpoint_blob(lanes.pair.engine[side], &options, &ends[side], blobs[side], &error),
                CRPC_OK);
        }
        memcpy(&blob, blobs[1], sizeof(blob));
        memcpy(&body, blob.hello.body, sizeof(body));
        body.request_units = (uint32_t)(4096 - wire_aside_bytes(true)) / WIRE_UNIT_BYTES + (i > 0);
        memcpy(blob.hello.body, &body, sizeof(body));
        blob.checksum = checksum_of(&blob, offsetof(struct link_blob, checksum));
        memcpy(blobs[1], &blob, sizeof(blob));
        assert_int_equal(endpoint_join(ends[0], blobs[1], &error),
                         i == 1 ? CRPC_E_PROTOCOL : CRPC_OK);
        link_close(&ends[0]->link);
        link_close(&ends[1]->link);
    }
}

/* As many endpoints as the send CQ takes: a lane counts as another. */
static void a_lane_takes_a_place(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    int32_t status = CRPC_OK;
    struct rpc_endpoint *endpoint;
    while (status == CRPC_OK) {
        status = endpoint_blob(lanes.pair.engine[0], &options, &endpoint, blob, &error);
    }
    assert_int_equal(status, CRPC_E_NO_RESOURCE);
    assert_int_equal(lanes.pair.engine[0]->endpoint_count, 8);
    assert_int_equal(lanes.pair.engine[0]->lane_places, 8);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void a_grant_travels_in_a_call(void **state)
{
    (void)state;
    const struct lane_grant *grant = lanes_grant(&lanes);
    memset(lanes.memory[0], 0x77, 100);
    lanes_write(&lanes, grant, 16, 100);
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK);
    assert_memory_equal(lanes.memory[1] + 16, lanes.memory[0], 100);
    assert_int_equal(lanes.memory[1][15] | lanes.memory[1][116], 0);
}

/* The peer hears of the call when the WRITE before it is done. */
static void a_call_after_a_write(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    const struct lane_grant *grant = lanes_grant(&lanes);
    for (uint32_t i = 0; i < 5; i++) {
        lanes_write(&lanes, grant, 0, 8);
        assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK);
        assert_int_equal(pair_call(pair, 0, 0, 2, 8, 1, 8), CRPC_OK); /* behind it */
        assert_int_equal(pair_poll(pair, 1), 0);
        lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK);
        assert_int_equal(pair_poll(pair, 1), 2);
        for (uint32_t call = 0; call < 2; call++) {
            assert_int_equal(pair_echo(pair, 1, 0, &pair->seen[1].entries[call], CRPC_OP_QUIET),
                             CRPC_OK);
        }
        assert_int_equal(pair_poll(pair, 0), 2);
    }
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK); /* nothing is open */
    assert_int_equal(pair_poll(pair, 1), 1);
    assert_int_equal(pair_echo(pair, 1, 0, &pair->seen[1].entries[0], CRPC_OP_QUIET), CRPC_OK);
    assert_int_equal(pair_poll(pair, 0), 1);
    pair_round_trip(pair, 0);
}

/* What was in the batch before is not held back. */
static void calls_before_an_after_go_at_once(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    const struct lane_grant *grant = lanes_grant(&lanes);
    assert_int_equal(pair_call(pair, 0, 0, 1, 8, 1, 8), CRPC_OK);
    assert_int_equal(pair_poll(pair, 1), 1);
    assert_int_equal(pair_call(pair, 0, 0, 2, 8, 1, 8), CRPC_OK);
    lanes_write(&lanes, grant, 0, 8);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK);
    assert_int_equal(pair_poll(pair, 1), 1);
    assert_int_equal(pair_find(pair, 1, CRPC_COMPLETION_REQUEST)->method, 0);
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK);
    assert_int_equal(pair_poll(pair, 1), 1);
}

static void a_full_lane_says_when_there_is_room(void **state)
{
    (void)state;
    struct lane_op ops[40];
    int32_t reason;
    const struct lane_grant *grant = lanes_grant(&lanes);
    for (uint32_t i = 0; i < 40; i++) {
        ops[i] = lanes_op(&lanes, grant, LANE_READ, 0, 8);
        ops[i].user_data = i;
    }
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), ops, 40, &reason), 32);
    assert_int_equal(reason, CRPC_E_AGAIN);
    pair_poll(&lanes.pair, 0);
    assert_int_equal(lanes.pair.seen[0].count, 33);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(lanes.pair.seen[0].entries[i].user_data, i);
    }
    assert_int_equal(lanes.pair.seen[0].entries[32].kind, CRPC_COMPLETION_ROOM);
}

/* A poll with little room gives the rest in the next ones. */
static void small_polls(void **state)
{
    (void)state;
    crpc_completion one;
    const struct lane_grant *grant = lanes_grant(&lanes);
    lanes_write(&lanes, grant, 0, 8);
    lanes_write(&lanes, grant, 8, 8);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rpc_poll(lanes.pair.engine[0], &one, 1), 1);
        assert_int_equal(one.kind, CRPC_COMPLETION_WORK);
        assert_int_equal(rpc_something_waits(lanes.pair.engine[0]), i == 0);
    }
    assert_int_equal(rpc_poll(lanes.pair.engine[0], &one, 1), 0);
}

/* ---- Revoking -------------------------------------------------------------------------------- */

static void a_revoke_waits_for_the_peers_ops(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_E_STALE);
    pair_poll(&lanes.pair, 1); /* says REVOKE */
    assert_int_equal(lanes.pair.seen[1].count, 0);
    assert_false(lane_grant_over(taken));
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK);
    lanes_settle(&lanes);
    assert_true(lane_grant_over(taken));
    assert_int_equal(lanes.users[1], 0);
    assert_int_equal(lanes.revoked, 1);
    pair_round_trip(&lanes.pair, 0);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_OK);
}

static void a_revoke_does_not_wait_for_ever(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    assert_int_equal(lanes_revoke(&lanes, 5000000), CRPC_OK);
    pair_poll(&lanes.pair, 1);
    assert_true(rpc_next_deadline_ns(lanes.pair.engine[1]) <= lanes.pair.clock_ns + 5100000);
    lanes.pair.clock_ns += 6000000;
    pair_poll(&lanes.pair, 1);
    lanes_expect(&lanes, 1, LANE_REVOKE, CRPC_OK);
    assert_int_equal(lanes.users[1], 0);
    /* the peer has not read its mail, and is refused: that is its lane's end, and no call's */
    lanes_write(&lanes, taken, 0, 8);
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_E_ACCESS);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_E_AGAIN);
    lanes_settle(&lanes);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 1)), CRPC_E_AGAIN);
    pair_round_trip(&lanes.pair, 0);
}

/* Also if the batch with the answer waits behind ops. */
static void an_answer_behind_ops(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK);
    pair_poll(&lanes.pair, 1);
    lanes_settle(&lanes);
    assert_int_equal(lanes.revoked, 1);
    assert_int_equal(lanes.requests, 1);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* A disconnect lets the ops end that were accepted, and REVOKEs. */
static void a_disconnect_waits_for_ops(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    const struct lane_grant *taken = lanes_grant(&lanes);
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    assert_int_equal(link_disconnect(&lanes_of(&lanes, 0)->link, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(link_disconnect(&lanes_of(&lanes, 1)->link, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_E_CLOSING);
    assert_int_equal(lanes_of(&lanes, 0)->leave, LEAVE_WANTED);
    uint32_t writes = 0, ends = 0;
    for (uint32_t i = 0; i < 10; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(pair, side);
            lanes_count(&lanes, side);
            const crpc_completion *end = pair_find(pair, side, CRPC_COMPLETION_DISCONNECTED);
            ends += end && end->status == CRPC_OK;
            const crpc_completion *work = pair_find(pair, side, CRPC_COMPLETION_WORK);
            writes += work && work->method == LANE_WRITE && work->status == CRPC_OK;
            assert_false(end && work && work > end);
        }
    }
    assert_int_equal(writes, 1);
    assert_int_equal(lanes.revoked, 1);
    assert_int_equal(ends, 2);
}

static void a_close_ends_ops(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    struct rpc_endpoint *closed = lanes_of(&lanes, 0);
    uint64_t handle = closed->link.handle, theirs = taken->handle;
    lanes_write(&lanes, taken, 0, 8);
    link_close(&closed->link);
    pair_poll(&lanes.pair, 0);
    const crpc_completion *done = pair_find(&lanes.pair, 0, CRPC_COMPLETION_WORK);
    assert_non_null(done);
    assert_int_equal(done->status, CRPC_E_CLOSED);
    assert_int_equal(done->endpoint.bits, handle);
    pair_poll(&lanes.pair, 0);
    assert_int_equal(lanes.pair.seen[0].count, 0);
    assert_null(handles_get(&lanes.pair.handles[0], theirs, HANDLE_GRANT));
}

/* The peer is gone: all ends, each op once, and DISCONNECTED last. */
static void a_lost_peer_ends_ops(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    const struct lane_grant *taken = lanes_grant(&lanes);
    crpc_error error = {.status = CRPC_E_DISCONNECTED, .message = "gone"};
    lanes_write(&lanes, taken, 0, 8);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK);
    link_fail(&lanes_of(&lanes, 0)->link, &error);
    pair_poll(pair, 0);
    assert_int_equal(pair->seen[0].count, 3);
    assert_int_equal(pair->seen[0].entries[2].kind, CRPC_COMPLETION_DISCONNECTED);
    const crpc_completion *done = pair_find(pair, 0, CRPC_COMPLETION_WORK);
    assert_int_equal(done->status, CRPC_E_DISCONNECTED);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_E_DISCONNECTED);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_E_DISCONNECTED);
}

/* A failed lane ends no calls; but a message must not follow what was not done. */
static void a_message_never_follows_ops_that_failed(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    const struct lane_grant *taken = lanes_grant(&lanes);
    struct lane_op op = lanes_op(&lanes, taken, LANE_WRITE, 0, 8);
    int32_t reason;
    op.remote_key += 3;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), &op, 1, &reason), 1);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_OK);
    pair_poll(pair, 0);
    const crpc_completion *end = pair_find(pair, 0, CRPC_COMPLETION_DISCONNECTED);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_DISCONNECTED);
    assert_int_equal(pair_find(pair, 0, CRPC_COMPLETION_WORK)->status, CRPC_E_ACCESS);
    pair_poll(pair, 1);
    assert_null(pair_find(pair, 1, CRPC_COMPLETION_REQUEST));
}

/* The device says that the lane's queue pair is gone. */
static void a_queue_pair_dies(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    const struct cm_event event = {.kind = CM_EVENT_QUEUE_PAIR,
                                   .queue_pair_number = lanes_of(&lanes, 0)->lane.number,
                                   .error = {.status = CRPC_E_DISCONNECTED}};
    lanes_write(&lanes, taken, 0, 8);
    rpc_device_event(&lanes.pair.engine[0]->links, &event);
    assert_true(rpc_something_waits(lanes.pair.engine[0]));
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK); /* which the device had done */
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_E_AGAIN);
    assert_int_equal(lanes_after(lanes_of(&lanes, 0)), CRPC_E_DISCONNECTED);
    lanes_settle(&lanes);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 1)), CRPC_E_AGAIN);
    pair_round_trip(&lanes.pair, 0);
}

/* As long as it waits for the peer's address, connecting will show it. So no device makes it say its end again
 * and again to a peer that does not poll: the ring has no room for that. */
static void one_that_waits_does_not_end(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    uint32_t number = pair_connect(&lanes.pair, &options, &options);
    struct rpc_endpoint *endpoint = lanes.pair.endpoint[0][number];
    const struct cm_event event = {.kind = CM_EVENT_QUEUE_PAIR,
                                   .queue_pair_number = endpoint->lane.number,
                                   .error = {.status = CRPC_E_DISCONNECTED}};
    assert_int_equal(endpoint->lane.state, RPC_LANE_WAITS);
    rpc_device_event(&lanes.pair.engine[0]->links, &event);
    lanes_settle(&lanes);
    assert_int_equal(rpc_lane_bar(endpoint), CRPC_OK);
    assert_int_equal(endpoint->lane.life, 1);
}

static void no_way_to_the_peers_lane(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    uint32_t number = pair_connect(&lanes.pair, &options, &options);
    memory_fabric_set_failures(lanes.pair.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    for (uint32_t i = 0; i < 6; i++) {
        pair_poll(&lanes.pair, 0);
        pair_poll(&lanes.pair, 1);
    }
    assert_int_equal(lanes.pair.endpoint[0][number]->lane.state, RPC_LANE_FAILED);
    assert_int_equal(lanes.pair.endpoint[1][number]->lane.state, RPC_LANE_FAILED);
    pair_round_trip(&lanes.pair, number);
}

/* ---- Made again ------------------------------------------------------------------------------ */

/* The lane of side 0 has failed of a wrong key. */
static void fail_lane(const struct lane_grant *taken)
{
    struct lane_op op = lanes_op(&lanes, taken, LANE_WRITE, 0, 8);
    int32_t reason;
    op.remote_key++;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), &op, 1, &reason), 1);
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_E_ACCESS);
}

/* Both sides make it again, with another life: ROOM says when it is there, and grants of before are stale. */
static void a_lane_that_has_failed_is_made_again(void **state)
{
    (void)state;
    for (uint32_t life = 1; life < 12; life++) {
        const struct lane_grant *taken = lanes_grant(&lanes);
        uint8_t bytes[LANE_GRANT_BYTES];
        struct lane_grant *opened;
        crpc_error error = {0};
        lane_grant_write(handles_get(&lanes.pair.handles[1], lanes.grant, HANDLE_GRANT), bytes);
        lanes_write(&lanes, taken, 0, 8);
        lanes_expect(&lanes, 0, LANE_WRITE, CRPC_OK);
        fail_lane(taken);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_E_AGAIN);
        assert_true(rpc_next_deadline_ns(lanes.pair.engine[0]) < UINT64_MAX);
        lanes_settle(&lanes);
        assert_int_equal(lanes_of(&lanes, 0)->lane.state, RPC_LANE_FAILED);
        assert_int_equal(lanes_of(&lanes, 1)->lane.state, RPC_LANE_FAILED);
        assert_int_equal(lanes.users[1], 0);
        lanes.rooms = 0;
        lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
        lanes_settle(&lanes);
        assert_int_equal(lanes.rooms, 1);
        assert_int_equal(lanes_of(&lanes, 0)->lane.life, life + 1);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_OK);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 1)), CRPC_OK);
        assert_true(lane_grant_over(taken));
        assert_int_equal(rpc_lane_take(lanes_of(&lanes, 0), bytes, sizeof(bytes), &opened, &error),
                         CRPC_E_STALE);
        pair_round_trip(&lanes.pair, 0);
    }
}

/* A pause that one side takes and the other does not; and REVOKEs that nobody had answered. */
static void one_side_is_ahead(void **state)
{
    (void)state;
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        const struct lane_grant *taken = lanes_grant(&lanes);
        assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
        fail_lane(taken);
        lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
        for (uint32_t i = 0; i < 4; i++) {
            pair_poll(&lanes.pair, ahead);
            lanes_count(&lanes, ahead);
        }
        lanes_settle(&lanes);
        lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
        lanes_settle(&lanes);
        assert_int_equal(lanes.revoked, ahead + 1);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_OK);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 1)), CRPC_OK);
    }
}

/* The application has to hear of the ops of a life before there is another. */
static void ops_of_the_life_before_come_first(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    crpc_completion one;
    struct lane_op ops[2] = {lanes_op(&lanes, taken, LANE_WRITE, 0, 8),
                             lanes_op(&lanes, taken, LANE_WRITE, 0, 8)};
    int32_t reason;
    ops[0].remote_key++;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), ops, 2, &reason), 2);
    assert_int_equal(rpc_poll(lanes.pair.engine[0], &one, 1), 1);
    assert_int_equal(one.status, CRPC_E_ACCESS);
    pair_poll(&lanes.pair, 1);
    lanes.pair.clock_ns += LANE_PAUSE_MAX_NS;
    rpc_progress(lanes.pair.engine[0]);
    assert_int_equal(rpc_poll(lanes.pair.engine[0], &one, 0), 0);
    assert_int_equal(lanes_of(&lanes, 0)->lane.life, 1);
    assert_int_equal(rpc_poll(lanes.pair.engine[0], &one, 1), 1);
    assert_int_equal(one.status, CRPC_E_FLUSHED);
    lanes.pair.clock_ns += 2 * LANE_PAUSE_MAX_NS;
    lanes_settle(&lanes);
    assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_OK);
    assert_int_equal(lanes_of(&lanes, 0)->lane.life, 2);
}

/* What it takes is not there for a while. */
static void making_it_again_fails(void **state)
{
    (void)state;
    static const enum memory_failure kinds[] = {MEMORY_FAIL_CREATE, MEMORY_FAIL_CONNECT};
    for (uint32_t i = 0; i < 2; i++) {
        fail_lane(lanes_grant(&lanes));
        lanes_settle(&lanes);
        memory_fabric_set_failures(lanes.pair.fabric, kinds[i], 1, CRPC_E_NO_MEMORY);
        for (uint32_t pauses = 0; pauses < 4; pauses++) {
            lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
            lanes_settle(&lanes);
        }
        assert_false(memory_fabric_failure_pending(lanes.pair.fabric, kinds[i]));
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 0)), CRPC_OK);
        assert_int_equal(rpc_lane_bar(lanes_of(&lanes, 1)), CRPC_OK);
        pair_round_trip(&lanes.pair, 0);
    }
}

/* Each thing that making one takes fails once. */
static void making_one_fails(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    struct rpc_endpoint *endpoint;
    for (uint32_t kind = MEMORY_FAIL_REGISTER; kind <= MEMORY_FAIL_CREATE; kind++) {
        uint32_t nth = 1;
        for (;; nth++) {
            memory_fabric_set_failures(lanes.pair.fabric, kind, nth, CRPC_E_NO_MEMORY);
            int32_t status = endpoint_blob(lanes.pair.engine[0], &options, &endpoint, blob, &error);
            if (status == CRPC_OK) {
                break;
            }
            assert_int_equal(status, CRPC_E_NO_MEMORY);
            assert_int_equal(lanes.pair.engine[0]->lane_places, 1);
        }
        memory_fabric_set_failures(lanes.pair.fabric, kind, 0, 0);
        assert_true(nth > 2);
        link_close(&endpoint->link);
    }
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_lanes, close_lanes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(both_sides_have_a_lane),
        LANE_TEST(room_follows_when_it_is_open),
        LANE_TEST(a_peer_without_one),
        LANE_TEST(a_hello_without_room_for_words),
        LANE_TEST(a_lane_takes_a_place),
        LANE_TEST(a_grant_travels_in_a_call),
        LANE_TEST(a_call_after_a_write),
        LANE_TEST(calls_before_an_after_go_at_once),
        LANE_TEST(a_full_lane_says_when_there_is_room),
        LANE_TEST(small_polls),
        LANE_TEST(a_revoke_waits_for_the_peers_ops),
        LANE_TEST(a_revoke_does_not_wait_for_ever),
        LANE_TEST(an_answer_behind_ops),
        LANE_TEST(a_disconnect_waits_for_ops),
        LANE_TEST(a_close_ends_ops),
        LANE_TEST(a_lost_peer_ends_ops),
        LANE_TEST(a_message_never_follows_ops_that_failed),
        LANE_TEST(a_queue_pair_dies),
        LANE_TEST(one_that_waits_does_not_end),
        LANE_TEST(no_way_to_the_peers_lane),
        LANE_TEST(a_lane_that_has_failed_is_made_again),
        LANE_TEST(one_side_is_ahead),
        LANE_TEST(ops_of_the_life_before_come_first),
        LANE_TEST(making_it_again_fails),
        LANE_TEST(making_one_fails),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

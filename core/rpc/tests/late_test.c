/* late_test.c: endpoints that join by blob, and whose peers' addresses are found late (late_cm.h). */
#include "link/prove.h"
#include "link/tests/late_cm.h"
#include "pair.h"

static struct pair pair;
static struct cm late[2];

/* Connection 0 is there, and connection 1 joins. */
static void open_joining(bool key)
{
    crpc_endpoint_options options = pair_options();
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    options.connect_timeout_ns = 1000000000;
    if (key) {
        options.key_bytes = 16;
        memset(options.key, 7, 16);
    }
    for (uint32_t side = 0; side < 2; side++) {
        late_cm_init(&late[side]);
        pair.engine[side]->links.cm = &late[side];
        assert_int_equal(
            endpoint_blob(pair.engine[side], &options, &pair.endpoint[side][1], blob[side], &error),
            CRPC_OK);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(endpoint_join(pair.endpoint[side][1], blob[!side], &error), CRPC_OK);
        assert_int_equal(late[side].waiting_count, 1);
    }
}

static struct link *joining(uint32_t side)
{
    return &pair.endpoint[side][1]->link;
}

static void nobody_waits_for_an_address(void **state)
{
    (void)state;
    for (uint32_t key = 0; key < 2; key++) {
        open_joining(key);
        for (uint32_t i = 0; i < 20; i++) {
            pair_round_trip(&pair, 0);
            pair.clock_ns += 1000000;
            for (uint32_t side = 0; side < 2; side++) {
                assert_int_equal(late[side].done, 0);
                assert_int_equal(joining(side)->state, CRPC_STATE_CONNECTING);
                assert_false(rpc_something_waits(pair.engine[side]));
            }
        }
        bool connected[2] = {false};
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t side = i % 2;
            late_cm_run_all(&late[side]);
            pair_poll(&pair, side);
            const crpc_completion *event = pair_find(&pair, side, CRPC_COMPLETION_CONNECTED);
            assert_true(!event || event->status == CRPC_OK);
            connected[side] |= event != NULL;
        }
        assert_true(connected[0] && connected[1]);
        assert_false(late[0].waited || late[1].waited);
        pair_round_trip(&pair, 1);
        pair_close(&pair);
    }
}

/* The peer's first request is here before the poll has heard that the queue pair is connected. */
static void a_peer_can_be_faster_than_the_poll(void **state)
{
    (void)state;
    open_joining(false);
    late_cm_run_all(&late[0]);
    late_cm_run_all(&late[1]);
    pair_poll(&pair, 0);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED));
    assert_int_equal(pair_call(&pair, 0, 1, 5, 40, 1, 40), CRPC_OK);
    assert_int_equal(pair_poll(&pair, 1), 2);
    assert_int_equal(pair.seen[1].entries[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(pair.seen[1].entries[0].status, CRPC_OK);
    assert_int_equal(pair.seen[1].entries[1].kind, CRPC_COMPLETION_REQUEST);
    assert_false(cm_pending(&late[1]));
    pair_close(&pair);
}

static void an_address_that_nobody_has_is_told_in_the_end(void **state)
{
    (void)state;
    open_joining(false);
    memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    late_cm_run_all(&late[0]);
    assert_int_equal(pair_poll(&pair, 0), 1);
    assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(pair.seen[0].entries[0].status, CRPC_E_UNREACHABLE);
    pair_round_trip(&pair, 0);
    pair_close(&pair);
}

/* It keeps its place until its queue pair can be destroyed: if it is closed and nobody looks up the address
 * yet, that is at once. */
static void an_endpoint_can_end_meanwhile(void **state)
{
    (void)state;
    enum { CLOSED = 1, DONE = 2, DROPPED = 4 };
    for (uint32_t kind = 0; kind < 8; kind++) {
        open_joining(false);
        struct nic_queue_pair *queue_pair = joining(0)->queue_pair;
        const bool dropped = (kind & CLOSED) && (kind & DROPPED);
        late[0].not_begun = kind & DROPPED;
        if (kind & CLOSED) {
            link_close(joining(0));
            assert_int_equal(late[0].waiting_count, !dropped);
            assert_int_equal(pair_poll(&pair, 0), 0);
        } else {
            pair.clock_ns += 2000000000;
            assert_int_equal(pair_poll(&pair, 0), 1);
            assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_CONNECTED);
            assert_int_equal(pair.seen[0].entries[0].status, CRPC_E_TIMEOUT);
            assert_false(queue_pair->failed);
        }
        assert_int_equal(rpc_engine_endpoints(pair.engine[0]), dropped ? 1 : 2);
        assert_false(rpc_something_waits(pair.engine[0]));
        if (kind & DONE) {
            late_cm_run_all(&late[0]);
            assert_int_equal(pair_poll(&pair, 0), 0);
            assert_int_equal(rpc_engine_endpoints(pair.engine[0]), kind & CLOSED ? 1 : 2);
            assert_true(kind & CLOSED || queue_pair->failed);
        }
        pair_round_trip(&pair, 0);
        pair_close(&pair);
        assert_int_equal(late[0].waiting_count, 0);
        assert_int_equal(late[0].waited, !(kind & DONE) && !(kind & DROPPED));
    }
}

/* Peers give many addresses that nobody has: a context that closes waits for those that are looked up,
 * and for no more. */
static void an_engine_that_closes_waits_for_what_has_begun(void **state)
{
    (void)state;
    enum { MORE = 6, BEGUN = 2 };
    crpc_endpoint_options options = pair_options();
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    struct rpc_endpoint *endpoint[2];
    crpc_error error = {0};
    open_joining(false);
    for (uint32_t i = 0; i < MORE; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            assert_int_equal(
                endpoint_blob(pair.engine[side], &options, &endpoint[side], blob[side], &error),
                CRPC_OK);
        }
        assert_int_equal(endpoint_join(endpoint[0], blob[1], &error), CRPC_OK);
    }
    assert_int_equal(late[0].waiting_count, 1 + MORE);
    late[0].not_begun = true;
    late[0].begun = BEGUN;
    pair_close(&pair);
    assert_int_equal(late[0].waiting_count, 0);
    assert_int_equal(late[0].done, BEGUN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_an_address),
        cmocka_unit_test(a_peer_can_be_faster_than_the_poll),
        cmocka_unit_test(an_address_that_nobody_has_is_told_in_the_end),
        cmocka_unit_test(an_endpoint_can_end_meanwhile),
        cmocka_unit_test(an_engine_that_closes_waits_for_what_has_begun),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

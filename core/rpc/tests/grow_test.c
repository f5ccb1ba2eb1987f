/* grow_test.c: rings that grow, windows that are lent, and what a peer may not say of them (grow.c). */
#include "base/page.h"
#include "pair.h"

#define LARGEST (1u << 20)
#define WINDOW 64u
#define FIRST_WINDOW pair.engine[1]->window_first
#define KEEPALIVE_NS UINT64_C(1000000)

static struct pair pair;

static crpc_endpoint_options grow_options(void)
{
    crpc_endpoint_options options = pair_options();
    options.flags = 0;
    options.ring_bytes = LARGEST;
    options.request_bytes = LARGEST / 2;
    options.batch_window = WINDOW;
    options.keepalive_ns = KEEPALIVE_NS;
    return options;
}

static int open_pair(void **state)
{
    (void)state;
    pair_open(&pair, NULL);
    crpc_endpoint_options options = grow_options();
    pair_connect(&pair, &options, &options);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static struct rpc_endpoint *end_of(uint32_t side)
{
    return pair.endpoint[side][0];
}

static uint64_t first_bytes(void)
{
    return maximum(8192, page_bytes());
}

/* Both poll until nothing of rings or limits is under way any more. Returns how often side 0 heard of room. */
static uint32_t settle(void)
{
    uint32_t rooms = 0;
    for (int i = 0; i < 12; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(&pair, side);
            assert_null(pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED));
            rooms += side == 0 && pair_find(&pair, side, CRPC_COMPLETION_ROOM);
        }
        pair.clock_ns += 10000;
    }
    return rooms;
}

static int32_t call(uint32_t bytes, uint32_t reply_bytes_max)
{
    return pair_call(&pair, 0, 0, 1, bytes, 0x5a, reply_bytes_max);
}

/* The last call comes to its end, with its own bytes as reply. */
static void answer(uint32_t bytes)
{
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(request->payload_bytes, bytes);
    assert_int_equal(pair_echo(&pair, 1, 0, request, CRPC_OP_QUIET), CRPC_OK);
    pair_poll(&pair, 0);
    const crpc_completion *response = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(response);
    assert_int_equal(response->payload_bytes, bytes);
    const uint8_t *payload = (const uint8_t *)(uintptr_t)response->payload;
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(payload[i], 0x5a);
    }
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static void an_idle_endpoint_is_small(void **state)
{
    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(end_of(side)->in.ring.bytes, first_bytes());
        assert_int_equal(end_of(side)->out.staging.bytes, first_bytes());
        assert_int_equal(end_of(side)->in.batch_window, FIRST_WINDOW);
        assert_int_equal(pair.engine[side]->window_sum, FIRST_WINDOW);
    }
    for (int i = 0; i < 1000; i++) {
        pair_round_trip(&pair, 0);
        pair_poll(&pair, 1);
    }
    assert_int_equal(end_of(1)->in.ring.bytes, first_bytes());
    assert_int_equal(end_of(1)->in.batch_window, FIRST_WINDOW);
    assert_int_equal(end_of(0)->stats.mailbox_reads, 0);
}

/* Nobody hears of it: the call is accepted, and it comes when the ring is there. */
static void requests_make_the_peers_ring_grow(void **state)
{
    (void)state;
    crpc_endpoint_info info;
    rpc_endpoint_info(end_of(0), &info);
    assert_int_equal(info.request_bytes_max, wire_payload_max(LARGEST / 2));
    assert_int_equal(call(info.request_bytes_max + 1, 0), CRPC_E_TOO_BIG);
    assert_int_equal(end_of(0)->grow.due, 0);
    assert_int_equal(call(info.request_bytes_max, 0), CRPC_OK);
    assert_int_equal(call(1, 0), CRPC_E_AGAIN);
    pair_poll(&pair, 1); /* hears WANT */
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->peer.ring_bytes, LARGEST);
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].count, 1);
    assert_int_equal(pair.seen[1].entries[0].payload_bytes, info.request_bytes_max);
    assert_int_equal(end_of(1)->in.ring.bytes, LARGEST);
    assert_int_equal(end_of(0)->in.ring.bytes, first_bytes()); /* nobody needs more */
    assert_int_equal(settle(), 1);
    assert_int_equal(call(info.request_bytes_max, 0), CRPC_OK);
    settle();
    assert_int_equal(end_of(0)->stats.refused, 1);
    assert_null(end_of(0)->grow.staging_old.address);
    assert_null(end_of(1)->grow.old.address);
}

static void replies_make_the_own_ring_grow(void **state)
{
    (void)state;
    assert_int_equal(call(40, 4096), CRPC_OK); /* one is possible in the first one */
    assert_int_equal(end_of(0)->grow.due, 0);
    answer(40);
    pair_poll(&pair, 0);
    assert_int_equal(call(40, 400000), CRPC_OK);
    answer(40);
    assert_int_equal(end_of(0)->in.ring.bytes, LARGEST);
    assert_int_equal(end_of(1)->in.ring.bytes, first_bytes());
    pair_poll(&pair, 0); /* lets go of the reply */
    assert_int_equal(call(400000, 400000), CRPC_OK);
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
    answer(400000);
    assert_int_equal(end_of(1)->in.ring.bytes, LARGEST);
    assert_int_equal(end_of(0)->stats.refused + end_of(1)->stats.refused, 0);
    settle();
}

/* What is accepted before, meanwhile and afterwards comes in order. */
static void what_waits_stays_in_order(void **state)
{
    (void)state;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(pair_call(&pair, 0, 0, i, i % 3 == 1 ? 3000 : 8, (uint8_t)i, 8), CRPC_OK);
    }
    for (int i = 0; i < 8; i++) {
        pair_poll(&pair, 1);
        for (uint32_t j = 0; j < pair.seen[1].count; j++) {
            const uint8_t *payload = (const uint8_t *)(uintptr_t)pair.seen[1].entries[j].payload;
            assert_int_equal(payload[7], seen);
            seen++;
        }
        pair_poll(&pair, 0);
        pair.clock_ns += 20000;
    }
    assert_int_equal(seen, 10);
}

/* RINGs that could not be sent wait with the rest, behind the other side's RING: then they are said twice. */
static void rings_that_wait_for_each_other(void **state)
{
    (void)state;
    uint32_t seen[2] = {0, 0}, made = 0;
    for (uint32_t side = 0; side < 2; side++) {
        while (end_of(side)->out.batches_sent < end_of(side)->out.batch_limit) {
            assert_int_equal(pair_call(&pair, side, 0, 1, 8, 1, 8), CRPC_OK);
            rpc_progress(pair.engine[side]);
            made += side;
        }
        assert_int_equal(pair_call(&pair, side, 0, 2, 8, 1, 100000), CRPC_OK); /* says RING */
        assert_int_equal(pair_call(&pair, side, 0, 3, 100000, 1, 8), CRPC_OK); /* waits */
        assert_true(end_of(side)->grow.waits && end_of(side)->grow.due & RPC_GROW_SAY_RING);
    }
    for (int i = 0; i < 20; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(&pair, side);
            for (uint32_t j = 0; j < pair.seen[side].count; j++) {
                seen[side] += pair.seen[side].entries[j].kind == CRPC_COMPLETION_REQUEST;
            }
        }
        pair.clock_ns += 20000;
    }
    assert_int_equal(seen[0], made + 2);
    assert_int_equal(seen[1], made + 2);
    assert_false(end_of(0)->grow.waits || end_of(1)->grow.waits);
}

/* While both sides say WANT and RING to each other, each call and reply comes once and is right. */
static void both_grow_while_calls_go_on(void **state)
{
    (void)state;
    uint32_t called[2] = {0}, answered[2] = {0};
    for (uint32_t i = 0; i < 4000; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            const uint32_t bytes = (i * 37 + side * 11) % (i < 2000 ? 600 : 6000);
            for (int n = 0; n < 3; n++) {
                called[side] += pair_call(&pair, side, 0, called[side], bytes,
                                          (uint8_t)called[side], bytes) == CRPC_OK;
            }
            pair_poll(&pair, side);
            for (uint32_t j = 0; j < pair.seen[side].count; j++) {
                const crpc_completion *one = &pair.seen[side].entries[j];
                if (one->kind == CRPC_COMPLETION_REQUEST) {
                    assert_int_equal(pair_echo(&pair, side, 0, one, CRPC_OP_QUIET), CRPC_OK);
                } else if (one->kind == CRPC_COMPLETION_RESPONSE) {
                    assert_int_equal(one->status, CRPC_OK);
                    assert_int_equal(one->user_data, answered[side]);
                    const uint8_t *payload = (const uint8_t *)(uintptr_t)one->payload;
                    if (one->payload_bytes > 0) {
                        assert_int_equal(payload[0], (uint8_t)answered[side]);
                        assert_int_equal(payload[one->payload_bytes - 1], (uint8_t)answered[side]);
                    }
                    answered[side]++;
                } else {
                    assert_int_equal(one->kind, CRPC_COMPLETION_ROOM);
                }
            }
            pair.clock_ns += 1000;
        }
    }
    assert_true(answered[0] > 2000 && answered[1] > 2000);
    assert_int_equal(end_of(0)->in.ring.bytes, LARGEST);
    assert_int_equal(end_of(1)->in.ring.bytes, LARGEST);
}

/* A view in the old ring stays until the next poll, though the peer has moved. */
static void views_of_the_old_ring_stay(void **state)
{
    (void)state;
    assert_int_equal(pair_call(&pair, 1, 0, 1, 40, 1, 400000), CRPC_OK); /* says RING */
    assert_int_equal(call(40, 40), CRPC_OK);
    pair_poll(&pair, 0); /* says MOVED */
    assert_int_equal(end_of(0)->peer.ring_bytes, LARGEST);
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(end_of(1)->in.ring.bytes, LARGEST);
    assert_true(end_of(1)->grow.old.address != NULL);
    assert_true(rpc_view_valid(end_of(1), request));
    assert_int_equal(*(const uint8_t *)(uintptr_t)request->payload, 0x5a);
    assert_int_equal(pair_echo(&pair, 1, 0, request, CRPC_OP_QUIET), CRPC_OK);
    pair_poll(&pair, 1);
    assert_null(end_of(1)->grow.old.address);
    pair_poll(&pair, 0);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE));
    assert_null(end_of(0)->grow.staging_old.address);
}

/* A place that the application writes to stays where it is, and what it has written there is sent. */
static void a_reservation_is_taken_along(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3;
         i++) { /* reserved before RING comes; the same, given back; behind others */
        void *place;
        const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 999};
        if (i == 2) {
            assert_int_equal(call(40, 40), CRPC_OK);
            assert_int_equal(call(40, 40), CRPC_OK); /* gathers */
        }
        assert_int_equal(rpc_reserve(end_of(0), &op, &place), CRPC_OK);
        assert_int_equal(pair_call(&pair, 1, 0, 1, 40, 1, 400000), CRPC_OK); /* says RING */
        pair_poll(&pair, 0);
        assert_int_equal(end_of(0)->peer.ring_bytes, first_bytes());
        memset(place, 0x77, 999);
        assert_int_equal(i == 1 ? rpc_abort(end_of(0)) : rpc_commit(end_of(0), 999), CRPC_OK);
        pair_poll(&pair, 0);
        pair_poll(&pair, 0);
        assert_int_equal(end_of(0)->peer.ring_bytes, LARGEST);
        uint32_t count = 0;
        for (uint32_t polls = 0; polls < 4; polls++) {
            pair_poll(&pair, 1);
            for (uint32_t j = 0; j < pair.seen[1].count; j++) {
                const crpc_completion *request = &pair.seen[1].entries[j];
                const uint8_t *payload = (const uint8_t *)(uintptr_t)request->payload;
                const bool last = i != 1 && count == i;
                assert_int_equal(request->payload_bytes, last ? 999 : 40);
                assert_int_equal(payload[0], last ? 0x77 : 0x5a);
                assert_int_equal(payload[request->payload_bytes - 1], last ? 0x77 : 0x5a);
                count++;
            }
            pair.clock_ns += 20000;
            pair_poll(&pair, 0);
        }
        assert_int_equal(count, i == 1 ? 0 : i + 1);
        close_pair(NULL);
        open_pair(NULL);
    }
}

/* The answer may have been lost. Then the READ is sent again, and must find the mailbox. */
static void nobody_moves_while_a_read_is_under_way(void **state)
{
    (void)state;
    struct rpc_read *read = &end_of(0)->read;
    read->in_flight = true;
    read->wqe = end_of(0)->link.queue_pair->posted + 100;
    assert_int_equal(pair_call(&pair, 1, 0, 1, 40, 1, 400000), CRPC_OK); /* says RING */
    pair_poll(&pair, 0);
    pair_poll(&pair, 0);
    assert_true(end_of(0)->grow.waits);
    read->in_flight = false;
    endpoint_flush(end_of(0));
    assert_false(end_of(0)->grow.waits);
    assert_int_equal(end_of(0)->peer.ring_bytes, LARGEST);
    settle();
}

/* RING cannot be said at once, and then goes through the small ring, since this side moves, too. */
static void long_replies_are_possible_when_ring_is_said(void **state)
{
    (void)state;
    void *place;
    const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 100};
    assert_int_equal(rpc_reserve(end_of(0), &op, &place), CRPC_OK);
    assert_int_equal(pair_call(&pair, 1, 0, 1, 30000, 1, 400000), CRPC_OK); /* WANT and RING */
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
    assert_true(end_of(0)->grow.due & RPC_GROW_SAY_RING && end_of(0)->grow.want_heard);
    assert_int_equal(rpc_abort(end_of(0)), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(call(40, 400000), CRPC_OK);
    settle();
}

static void without_memory_the_connection_ends(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth <= 2; nth++) { /* for the send ring, and for the other side's ring */
        crpc_endpoint_options options = grow_options();
        const uint32_t connection = pair_connect(&pair, &options, &options);
        memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_REGISTER, nth, CRPC_E_MEMLOCK);
        assert_int_equal(pair_call(&pair, 0, connection, 1, 30000, 1, 0),
                         nth == 1 ? CRPC_E_DISCONNECTED : CRPC_OK);
        const struct rpc_endpoint *loser = pair.endpoint[nth == 2][connection];
        bool lost[2] = {false, false};
        for (int i = 0; i < 40; i++) {
            for (uint32_t side = 0; side < 2; side++) {
                pair_poll(&pair, side);
                lost[side] |= pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED) != NULL;
            }
            pair.clock_ns += KEEPALIVE_NS;
        }
        assert_true(lost[0] && lost[1]);
        assert_int_equal(loser->link.error.status, CRPC_E_MEMLOCK);
        assert_non_null(strstr(loser->link.error.message, "larger ring"));
        pair_round_trip(&pair, 0);
    }
}

static void full_size_from_the_start(void **state)
{
    (void)state;
    crpc_endpoint_options options = grow_options(), full = grow_options();
    full.flags = CRPC_ENDPOINT_FULL_SIZE;
    const uint32_t connection = pair_connect(&pair, &options, &full);
    const struct rpc_endpoint *endpoint = pair.endpoint[1][connection];
    assert_int_equal(endpoint->in.ring.bytes, LARGEST);
    assert_int_equal(endpoint->in.batch_window, WINDOW);
    assert_int_equal(pair_call(&pair, 0, connection, 1, 500000, 1, 0), CRPC_OK);
    /* The other side's ring grows all the same. */
    assert_int_equal(pair_call(&pair, 1, connection, 1, 30000, 1, 0), CRPC_OK);
    settle();
    assert_int_equal(pair.endpoint[0][connection]->in.ring.bytes, LARGEST);
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* As many batches as the window takes, before side 1 polls. */
static uint32_t flood(uint32_t connection)
{
    const struct rpc_endpoint *endpoint = pair.endpoint[0][connection];
    crpc_op op = {.opcode = CRPC_OP_CALL, .user_data = 1};
    uint32_t batches = 0;
    while (endpoint->out.batches_sent < endpoint->out.batch_limit &&
           rpc_call(pair.endpoint[0][connection], &op, NULL) == CRPC_OK) {
        rpc_submit_end(pair.engine[0]);
        rpc_progress(pair.engine[0]);
        batches++;
    }
    static struct pair_log requests;
    pair_poll(&pair, 1);
    requests = pair.seen[1];
    pair_poll(&pair, 1); /* so that the replies tell of the room */
    for (uint32_t i = 0; i < requests.count; i++) {
        for (uint32_t to = 0; to < pair.connections; to++) {
            if (requests.entries[i].kind == CRPC_COMPLETION_REQUEST &&
                requests.entries[i].endpoint.bits == pair.endpoint[1][to]->link.handle) {
                assert_int_equal(pair_echo(&pair, 1, to, &requests.entries[i], CRPC_OP_QUIET),
                                 CRPC_OK);
            }
        }
    }
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
    return batches;
}

static void a_busy_peer_is_lent_more(void **state)
{
    (void)state;
    crpc_endpoint_options options = grow_options();
    options.calls_max = 128;
    const uint32_t connection = pair_connect(&pair, &options, &options);
    const struct rpc_endpoint *endpoint = pair.endpoint[1][connection];
    for (uint32_t i = 0; i < 40; i++) {
        flood(connection);
        pair.clock_ns += 20000;
        pair_poll(&pair, 0);
        pair_poll(&pair, 0);
        assert_int_equal(pair.engine[1]->window_sum, FIRST_WINDOW + endpoint->in.batch_window);
    }
    assert_true(endpoint->in.batch_window >= WINDOW / 4);
}

/* Windows are only lent from what those who may still come do not need. */
static void what_is_lent_leaves_room_for_others(void **state)
{
    (void)state;
    crpc_endpoint_options options = grow_options();
    options.calls_max = 128;
    options.batch_window = 1024;
    for (uint32_t n = 0; n < 3; n++) {
        pair_connect(&pair, &options, &options);
    }
    for (uint32_t i = 0; i < 60; i++) {
        for (uint32_t n = 1; n < 4; n++) {
            flood(n);
            pair.clock_ns += 20000;
            pair_poll(&pair, 0);
        }
    }
    const struct rpc_engine *engine = pair.engine[1];
    const uint32_t kept = (engine->endpoints_max - engine->endpoint_count) * FIRST_WINDOW;
    assert_true(engine->window_sum + kept <= nic_receive_low_mark(pair.nic[1]));
    for (uint32_t n = 0; n < 4; n++) {
        pair_connect(&pair, &options, &options);
    }
    assert_int_equal(memory_fabric_counters(pair.fabric)->receiver_not_ready, 0);
}

static void lend(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        flood(0);
        pair.clock_ns += 20000;
        pair_poll(&pair, 0);
        pair_poll(&pair, 0);
    }
    assert_true(end_of(1)->in.batch_window > FIRST_WINDOW);
    assert_true(end_of(0)->out.batch_limit - end_of(0)->out.batches_sent > FIRST_WINDOW + 1);
}

static void an_idle_side_gives_back(void **state)
{
    (void)state;
    lend();
    for (uint32_t i = 0; i < 40;
         i++) { /* while nothing is open, the keepalive is ten times as long */
        pair.clock_ns += KEEPALIVE_NS;
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
    assert_int_equal(end_of(1)->in.batch_window, FIRST_WINDOW);
    assert_int_equal(pair.engine[1]->window_sum, FIRST_WINDOW);
    assert_int_equal(pair.engine[1]->windows_back, 1);
    assert_int_equal(end_of(0)->out.batch_limit - end_of(0)->out.batches_sent, FIRST_WINDOW);
    for (uint32_t i = 0; i < 100; i++) {
        pair_round_trip(&pair, 0);
        pair_poll(&pair, 1);
    }
    lend(); /* and again */
}

/* Limits from before it may come after it, by a batch and by the mailbox. */
static void old_limits_say_nothing_after_a_yield(void **state)
{
    (void)state;
    lend();
    const uint64_t before = end_of(0)->out.batch_limit;
    while (end_of(0)->out.batch_limit == before) {
        pair.clock_ns += KEEPALIVE_NS;
        pair_poll(&pair, 0);
    }
    const uint64_t limit = end_of(0)->out.batch_limit;
    assert_int_equal(limit, end_of(0)->out.batches_sent + FIRST_WINDOW);
    assert_true(limit > before);
    assert_int_equal(pair_call(&pair, 1, 0, 1, 8, 1, 8), CRPC_OK); /* with the old limit */
    endpoint_read_mailbox(end_of(0));
    pair_poll(&pair, 0);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_REQUEST));
    assert_int_equal(end_of(0)->out.batch_limit, limit);
    pair_poll(&pair, 1);
    assert_int_equal(end_of(1)->in.batch_window, FIRST_WINDOW);
    pair_round_trip(&pair, 0);
}

/* Views that end after their endpoint was closed lend nothing. */
static void what_is_closed_is_lent_nothing(void **state)
{
    (void)state;
    const crpc_endpoint_options options = grow_options();
    const uint32_t connection = pair_connect(&pair, &options, &options);
    const crpc_op op = {.opcode = CRPC_OP_CALL, .user_data = 1};
    while (pair.endpoint[0][connection]->out.batches_sent < FIRST_WINDOW) {
        assert_int_equal(rpc_call(pair.endpoint[0][connection], &op, NULL), CRPC_OK);
        rpc_submit_end(pair.engine[0]);
        rpc_progress(pair.engine[0]);
    }
    assert_int_equal(pair_poll(&pair, 1), FIRST_WINDOW);
    link_close(&pair.endpoint[1][connection]->link);
    pair_poll(&pair, 1);
    pair_poll(&pair, 1);
    assert_int_equal(pair.engine[1]->window_sum, FIRST_WINDOW); /* of the other one */
}

/* ---- What a peer may not say ----------------------------------------------------------------- */

struct bad {
    struct wire_batch header;
    struct wire_message message;
    struct wire_ring ring;
    uint32_t immediate;
};

/* A word of side 0's peer, which is right where there is nothing else to say. */
static struct bad word_of(uint8_t kind, uint32_t bytes)
{
    const struct rpc_endpoint *target = end_of(0);
    return (struct bad){.header = {.request_limit = target->out.request_limit,
                                   .batch_limit = target->out.batch_limit,
                                   .sequence = target->in.sequence_expected,
                                   .bytes = 64,
                                   .message_count = 1},
                        .message = {.payload_bytes = bytes, .kind = kind},
                        .immediate = 2};
}

static struct bad ring_of(void)
{
    struct bad bad = word_of(WIRE_RING, sizeof(struct wire_ring));
    bad.ring = (struct wire_ring){.address = 0x7f0000000000, .key = 1};
    return bad;
}

static void say(const struct bad *bad)
{
    const struct rpc_endpoint *target = end_of(0);
    assert_int_equal(memory_fabric_write_immediate(
                         pair.fabric, target->link.queue_pair->number,
                         (uint64_t)(uintptr_t)ring_at(&target->in.ring, target->in.arrived),
                         target->in.ring.memory.remote_key, 64, bad, bad->immediate),
                     NIC_ERROR_NONE);
    pair_poll(&pair, 0);
}

static void expect_good(const struct bad *bad)
{
    say(bad);
    assert_int_equal(end_of(0)->stats.protocol_errors, 0);
    assert_int_equal(end_of(0)->link.state, CRPC_STATE_CONNECTED);
}

static void expect_bad(const struct bad *bad)
{
    say(bad);
    if (end_of(0)->stats.protocol_errors != 1) {
        fail_msg("a word of kind %u was taken", bad->message.kind);
    }
    pair_close(&pair);
    open_pair(NULL);
}

static void words_that_are_not_right(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind;
        uint32_t bytes;
    } words[] = {{WIRE_WANT, 0}, {WIRE_RING, 16}, {WIRE_YIELD, 0}, {WIRE_MOVED, 0}};
    for (uint32_t i = 0; i < 4; i++) {
        struct bad bad = word_of(words[i].kind, words[i].bytes + 1);
        expect_bad(&bad);
        bad = word_of(words[i].kind, words[i].bytes);
        bad.message.call_id = 1;
        expect_bad(&bad);
        bad = word_of(words[i].kind, words[i].bytes);
        bad.message.limit_or_status = 1;
        expect_bad(&bad);
        bad = word_of(words[i].kind, words[i].bytes);
        bad.message.zero = 1;
        expect_bad(&bad);
    }
    struct bad bad = word_of(WIRE_YIELD + 1, 0);
    expect_bad(&bad);
}

static void rings_that_cannot_be(void **state)
{
    (void)state;
    struct bad bad = ring_of();
    bad.ring.address = UINT64_MAX - 31;
    expect_bad(&bad);
    bad = ring_of();
    bad.ring.address++;
    expect_bad(&bad);
    bad = ring_of();
    bad.ring.zero = 1;
    expect_bad(&bad);
    bad = ring_of(); /* while this side cannot move yet, and when it has */
    while (end_of(0)->out.batches_sent < end_of(0)->out.batch_limit) {
        assert_int_equal(call(1, 1), CRPC_OK);
        rpc_progress(pair.engine[0]);
    }
    expect_good(&bad);
    bad.header.sequence = end_of(0)->in.sequence_expected;
    expect_good(&bad); /* the same once more */
    bad.header.sequence = end_of(0)->in.sequence_expected;
    bad.ring.key++;
    expect_bad(&bad);
    assert_int_equal(pair_call(&pair, 1, 0, 1, 40, 1, 400000), CRPC_OK);
    settle();
    assert_int_equal(end_of(0)->peer.ring_bytes, LARGEST);
    bad = ring_of();
    bad.header.batch_limit = end_of(0)->out.batch_limit;
    expect_bad(&bad);
}

static void wants_that_cannot_be(void **state)
{
    (void)state;
    struct bad bad = word_of(WIRE_WANT, 0);
    expect_good(&bad);
    assert_int_equal(end_of(0)->grow.next.bytes, LARGEST);
    bad.header.sequence = end_of(0)->in.sequence_expected;
    expect_bad(&bad);
    close_pair(NULL); /* where nothing can grow */
    pair_open(&pair, NULL);
    crpc_endpoint_options options = grow_options();
    options.flags = CRPC_ENDPOINT_FULL_SIZE;
    pair_connect(&pair, &options, &options);
    bad = word_of(WIRE_WANT, 0);
    expect_bad(&bad);
}

static void moves_that_cannot_be(void **state)
{
    (void)state;
    struct bad bad = word_of(WIRE_MOVED, 0);
    bad.immediate |= WIRE_IMMEDIATE_MOVED; /* there is no other ring */
    expect_bad(&bad);
    assert_int_equal(call(1, LARGEST / 4), CRPC_OK);
    assert_true(end_of(0)->grow.offered);
    bad = word_of(WIRE_MOVED, 0);
    bad.immediate = WIRE_IMMEDIATE_MOVED | 3;
    expect_bad(&bad);
    assert_int_equal(call(1, LARGEST / 4), CRPC_OK);
    bad = word_of(WIRE_MOVED, 0); /* without the mark */
    expect_bad(&bad);
}

static void yields_that_cannot_be(void **state)
{
    (void)state;
    struct bad bad = word_of(WIRE_YIELD, 0);
    expect_bad(&bad); /* nothing is lent */
}

static void put(uint32_t number, struct bad bad, uint32_t sequence)
{
    const struct rpc_endpoint *target = end_of(0);
    bad.header.sequence = sequence + number;
    assert_int_equal(memory_fabric_write_immediate(
                         pair.fabric, target->link.queue_pair->number,
                         (uint64_t)(uintptr_t)target->in.ring.address + 64 * (number + 1),
                         target->in.ring.memory.remote_key, 64, &bad, bad.immediate),
                     NIC_ERROR_NONE);
}

/* It gives back its window, and has used it already, while the application takes little at a time. */
static void more_than_the_window_behind_a_yield(void **state)
{
    (void)state;
    struct bad bad = word_of(WIRE_WANT, 0);
    expect_good(&bad); /* is lent more, with the offer of a larger ring */
    pair_poll(&pair, 0);
    const uint32_t sequence = end_of(0)->in.sequence_expected;
    const uint32_t count = (uint32_t)end_of(0)->in.batch_published - sequence;
    assert_true(count > FIRST_WINDOW + 1);
    put(0, word_of(WIRE_YIELD, 0), sequence);
    for (uint32_t i = 1; i < count; i++) {
        bad = word_of(WIRE_REQUEST, 0);
        bad.message.call_id = i;
        put(i, bad, sequence);
    }
    for (int i = 0; i < 2; i++) {
        rpc_poll(pair.engine[0], pair.seen[0].entries, 1);
    }
    assert_int_equal(end_of(0)->in.batch_window, FIRST_WINDOW);
    bad = word_of(WIRE_REQUEST, 0);
    bad.message.call_id = count;
    put(count, bad, sequence);
    rpc_progress(pair.engine[0]);
    assert_int_equal(end_of(0)->stats.protocol_errors, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
        TEST(an_idle_endpoint_is_small),
        TEST(requests_make_the_peers_ring_grow),
        TEST(replies_make_the_own_ring_grow),
        TEST(what_waits_stays_in_order),
        TEST(rings_that_wait_for_each_other),
        TEST(both_grow_while_calls_go_on),
        TEST(views_of_the_old_ring_stay),
        TEST(a_reservation_is_taken_along),
        TEST(nobody_moves_while_a_read_is_under_way),
        TEST(long_replies_are_possible_when_ring_is_said),
        TEST(without_memory_the_connection_ends),
        TEST(full_size_from_the_start),
        TEST(a_busy_peer_is_lent_more),
        TEST(what_is_lent_leaves_room_for_others),
        TEST(an_idle_side_gives_back),
        TEST(old_limits_say_nothing_after_a_yield),
        TEST(what_is_closed_is_lent_nothing),
        TEST(words_that_are_not_right),
        TEST(rings_that_cannot_be),
        TEST(wants_that_cannot_be),
        TEST(moves_that_cannot_be),
        TEST(yields_that_cannot_be),
        TEST(more_than_the_window_behind_a_yield),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

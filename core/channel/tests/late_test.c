/* late_test.c: queue pairs that are made, connected or destroyed late, and what can happen meanwhile. What the library does
 * outside of a poll is done when the test says so (late_cm.h); until then, everything else goes on.
 */
#include "late_pair.h"
#include "link/prove.h"

/* ---- A rail ---------------------------------------------------------------------------------- */

static void polls_go_on_while_a_rail_comes(void **state)
{
    (void)state;
    for (uint32_t situation = 0; situation < SITUATIONS + 4; situation++) {
        uint32_t side = situation < SITUATIONS ? open_situation(situation)
                                               : open_ending(situation & 2, situation & 1);
        const enum rail_state before =
            situation < SITUATIONS ? rail_1(side)->state : RAIL_MAKING; /* it waits */
        const uint32_t done = late[side].done;
        for (uint8_t i = 0; i < 20; i++) {
            pair_message(&pair, 20000, i);
            pair_wait(&pair, 10000000);
            pair_forget(&pair);
        }
        assert_int_equal(late[side].done, done);
        assert_int_equal(late[side].waiting_count, 1);
        late_cm_run_all(&late[!side]); /* the offer, if there was none */
        pair_settle(&pair);
        assert_int_equal(rail_1(side)->state, before);
        assert_int_equal(pair_info(&pair, side).rail_state[1], CRPC_RAIL_DOWN);
        assert_false(channel_something_waits(pair.engine[side]));
        expect_rail_1_up();
    }
}

/* The peer answers, or probes, only when the queue pairs are connected. */
static void nothing_is_promised_before(void **state)
{
    (void)state;
    uint32_t passive = open_at(RAIL_MAKING, true, 1);
    assert_int_equal(rail_1(!passive)->state, RAIL_OFFERED);
    late_cm_run_all(&late[passive]);
    assert_int_equal(rail_1(passive)->state, RAIL_MAKING); /* no poll has taken it */
    assert_true(channel_something_waits(pair.engine[passive]));
    pair_poll(&pair, passive);
    assert_int_equal(rail_1(passive)->state, RAIL_CONNECTING);
    late_cm_run_all(&late[passive]);
    assert_int_equal(rail_1(passive)->state, RAIL_CONNECTING); /* no poll has taken it */
    assert_true(channel_something_waits(pair.engine[passive]));
    pair_poll(&pair, passive);
    assert_int_equal(rail_1(passive)->state, RAIL_PROBING);
    pair_settle(&pair);
    assert_int_equal(rail_1(!passive)->state, RAIL_CONNECTING);
    assert_int_equal(rail_1(passive)->state, RAIL_PROBING);
    expect_rail_1_up();
}

static void a_rail_that_cannot_be_connected_is_tried_again(void **state)
{
    (void)state;
    for (uint32_t passive = 0; passive < 2; passive++) {
        for (uint32_t start = 0; start < 2; start++) {
            uint32_t side = open_connecting(passive, 2);
            uint32_t epoch = rail_1(side)->epoch;
            if (start) { /* not even begun: of the next attempt */
                memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
                late[side].refuse = 1;
            } else {
                memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_CONNECT, 2, CRPC_E_UNREACHABLE);
            }
            late_cm_run_all(&late[side]);
            pair_settle(&pair);
            assert_true(rail_1(side)->state == RAIL_DOWN || rail_1(side)->epoch > epoch);
            expect_rail_1_up();
            assert_int_equal(late[side].refuse, 0);
        }
    }
}

/* Then none of what was made is left, and the next attempt is after a pause, which grows. */
static void a_rail_that_cannot_be_made_is_tried_again(void **state)
{
    (void)state;
    static const struct {
        enum memory_failure kind;
        uint32_t nth;
        bool refused;
    } failures[] = {{MEMORY_FAIL_CREATE, 1, false},
                    {MEMORY_FAIL_CREATE, 2, false},
                    {MEMORY_FAIL_WINDOW, 1, false},
                    {MEMORY_FAIL_WINDOW, 30, false},
                    {MEMORY_FAIL_WINDOW, 30, true}};
    for (uint32_t i = 0; i < 2 * (sizeof(failures) / sizeof(failures[0])); i++) {
        bool passive = i & 1, refused = failures[i / 2].refused;
        uint32_t side = open_at(RAIL_MAKING, passive, 2);
        const struct memory_fabric_counters *counters = memory_fabric_counters(pair.fabric);
        const struct engine_rail *rail = &pair.engine[side]->rails[1];
        assert_int_equal(rail->queue_pairs, 2); /* their places are taken */
        memory_fabric_set_failures(pair.fabric, failures[i / 2].kind, failures[i / 2].nth,
                                   CRPC_E_NO_MEMORY);
        late_cm_run_all(&late[side]);
        assert_false(memory_fabric_failure_pending(pair.fabric, failures[i / 2].kind));
        if (refused) { /* no thread to end what was made, nor to make anything at the next attempt */
            late[side].refuse = 2;
        }
        pair_poll(&pair, side);
        assert_int_equal(rail_1(side)->state, RAIL_DOWN);
        assert_null(rail_1(side)->queues[0]);
        assert_null(rail_1(side)->queues[1]);
        assert_int_equal(late[side].waiting_count, !refused);
        let_side_come(side);
        assert_int_equal(rail->queue_pairs, 0);
        assert_int_equal(counters->queue_pairs, passive ? 2 * 2 + 2 : 2 * 2);
        assert_int_equal(rail_1(side)->attempts, passive ? 0 : 1);
        assert_int_equal(wheel_timer_set(&rail_1(side)->retry_timer), !passive);
        pair_message(&pair, 20000, 1);
        expect_rail_1_up();
        assert_int_equal(late[side].refuse, 0);
    }
}

/* Its device is gone: what a task makes with it goes, and no other attempt begins on this side. */
static void a_device_that_is_lost_meanwhile_is_not_used(void **state)
{
    (void)state;
    struct cm_event event = {.kind = CM_EVENT_DEVICE_FATAL, .nic = 1};
    for (uint32_t passive = 0; passive < 2; passive++) {
        uint32_t side = open_at(RAIL_MAKING, passive, 2);
        channel_device_event(&pair.engine[side]->links, &event);
        pair_settle(&pair);
        assert_int_equal(rail_1(side)->state, RAIL_MAKING);
        let_all_come();
        assert_int_equal(rail_1(side)->state, RAIL_DOWN);
        assert_null(rail_1(side)->queues[0]);
        assert_int_equal(pair.engine[side]->rails[1].queue_pairs, 0);
        assert_int_equal(late[side].waiting_count, 0);
        pair_forget(&pair);
        pair_message(&pair, 20000, 1);
        pair_close(&pair);
    }
}

/* Lost as its queue pairs are connected: by an event of the device, or because the peer says so. */
static void a_rail_that_is_lost_meanwhile_comes_back(void **state)
{
    (void)state;
    for (uint32_t passive = 0; passive < 2; passive++) {
        for (uint32_t reported = 0; reported < 2 - passive; reported++) {
            uint32_t side = open_connecting(passive, 2);
            uint32_t epoch = rail_1(side)->epoch;
            rail_want_fence(pair.channel[reported ? !side : side], 1);
            channel_take_completions(pair.engine[reported ? !side : side]);
            pair_settle(&pair);
            assert_int_equal(rail_1(side)->state, RAIL_CONNECTING);
            assert_int_equal(rail_1(side)->fence, FENCE_WANTED);
            assert_int_equal(rail_1(side)->report_known, reported);
            late_cm_run_all(&late[side]);
            pair_poll(&pair, side); /* there may be no other for long */
            assert_int_not_equal(rail_1(side)->state, RAIL_CONNECTING);
            assert_int_not_equal(rail_1(side)->state, RAIL_PROBING);
            assert_int_equal(rail_1(side)->fence, FENCE_NONE);
            pair_settle(&pair);
            pair_message(&pair, 20000, 1);
            expect_rail_1_up();
            assert_true(epoch > 0);
        }
    }
}

/* The other rail is lost, and with it the channel. Its queue pairs go when they may. */
static void the_last_rail_can_be_lost_meanwhile(void **state)
{
    (void)state;
    for (uint32_t situation = 0; situation < SITUATIONS; situation++) {
        uint32_t side = open_situation(situation);
        uint64_t left = channel_receives_left(pair.engine[side], 1);
        struct nic_queue_pair *queue_pair = rail_1(side)->queues[1]->queue_pair;
        rail_want_fence(pair.channel[side], 1); /* that waits */
        rail_want_fence(pair.channel[side], 0);
        channel_take_completions(pair.engine[side]);
        pair_settle(&pair);
        assert_false(queue_pair->failed);
        if (rail_1(side)->queues[1]->adopted) {
            assert_null(table_get(&pair.engine[side]->rails[1].queues, queue_pair->number));
        }
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0)->status,
                         CRPC_E_DISCONNECTED);
        assert_non_null(rail_1(side)->queues[1]);
        late_cm_run_all(&late[side]);
        pair_settle(&pair);
        assert_null(rail_1(side)->queues[0]);
        assert_null(rail_1(side)->queues[1]);
        assert_int_equal(channel_receives_left(pair.engine[side], 1), left);
        pair_close(&pair);
    }
}

/* ---- A channel ------------------------------------------------------------------------------- */

/* Until its queue pairs can be destroyed, it keeps its place, and nobody spins. */
static void a_channel_that_is_closed_meanwhile_keeps_its_place(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 2 * SITUATIONS; kind++) {
        bool done = kind >= SITUATIONS;
        uint32_t side = open_situation(kind % SITUATIONS);
        struct channel_engine *engine = pair.engine[side];
        uint32_t left = channel_receives_left(engine, 0);
        assert_int_equal(pair_receive(&pair, side, 0, 100, 0, 1), CRPC_OK); /* not quiet */
        if (done) {
            late_cm_run_all(&late[side]);
        }
        link_close(&pair.channel[side]->link);
        pair_settle(&pair);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_RECEIVED, 0)->status,
                         CRPC_E_CLOSED);
        if (!done) {
            assert_int_equal(engine->channel_count, 1);
            assert_int_equal(channel_receives_left(engine, 0), left);
            assert_false(channel_something_waits(engine));
            late_cm_run_all(&late[side]);
            pair_settle(&pair);
        }
        assert_int_equal(engine->channel_count, 0);
        assert_true(channel_receives_left(engine, 0) > left);
        assert_false(late[side].waited);
        pair_close(&pair);
    }
}

/* Unless nobody does its task yet: then it goes at once. */
static void a_channel_that_is_closed_before_its_turn_goes_at_once(void **state)
{
    (void)state;
    for (uint32_t situation = 0; situation < SITUATIONS; situation++) {
        uint32_t side = open_situation(situation);
        uint32_t left = channel_receives_left(pair.engine[side], 0);
        late[side].not_begun = true;
        link_close(&pair.channel[side]->link);
        assert_int_equal(late[side].waiting_count, 0);
        assert_int_equal(pair.engine[side]->channel_count, 0);
        assert_true(channel_receives_left(pair.engine[side], 0) > left);
        assert_false(channel_something_waits(pair.engine[side]));
        pair_close(&pair);
    }
}

/* A context that closes waits for what has begun. */
static void an_engine_can_close_meanwhile(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 4 * (SITUATIONS + 4); kind++) {
        const uint32_t situation = kind / 4;
        uint32_t side = situation < SITUATIONS ? open_situation(situation)
                                               : open_ending(situation & 2, situation & 1);
        late[side].not_begun = kind & 1;
        if (kind & 2) {
            link_close(&pair.channel[side]->link);
        }
        pair_close(&pair);
        assert_int_equal(late[side].waiting_count, 0);
        assert_int_equal(late[side].waited, !late[side].not_begun);
    }
}

/* ---- A peer that keeps no rule --------------------------------------------------------------- */

static void say_line(uint32_t side, uint8_t kind, uint32_t epoch)
{
    const struct channel *channel = pair.channel[side];
    struct channel_control line = {
        .sequence = channel->control.in_sequence, .kind = kind, .rail = 1, .epoch = epoch};
    struct channel_offer *offer = (struct channel_offer *)line.body;
    if (kind != CHANNEL_CONTROL_REPORT) {
        offer->queue_pairs = (uint8_t)channel->queue_pairs;
        memcpy(offer->addresses, channel->rails[1].peer, sizeof(offer->addresses));
    }
    pair_write_line(&pair, side, &line);
}

static void say_probe(uint32_t side)
{
    const struct channel *channel = pair.channel[side];
    assert_int_equal(
        memory_fabric_write_immediate(
            pair.fabric, channel->rails[1].queues[0]->queue_pair->number, 0, 0, 0, NULL,
            CHANNEL_IMMEDIATE_PROBE | channel->rails[1].epoch << CHANNEL_GENERATION_SHIFT),
        NIC_ERROR_NONE);
}

static void what_comes_meanwhile_is_out_of_turn(void **state)
{
    (void)state;
    enum { OFFER, OFFER_AGAIN, ANSWER, REPORT, PROBE, KINDS };
    for (uint32_t kind = 0; kind < SITUATIONS * KINDS; kind++) {
        const uint32_t situation = kind / KINDS, what = kind % KINDS;
        bool passive = situation & 1, connecting = situation & 2;
        if ((what == REPORT && !passive && connecting) || (what == PROBE && !connecting)) {
            continue; /* that is right: a_rail_that_is_lost_meanwhile_comes_back; or it cannot come */
        }
        uint32_t side = open_situation(situation);
        uint32_t epoch = rail_1(side)->epoch;
        if (what == PROBE) {
            late_cm_run_all(&late[side]); /* its queue pair can be written over */
            say_probe(side);
        } else {
            static const uint8_t kinds[] = {CHANNEL_CONTROL_OFFER, CHANNEL_CONTROL_OFFER,
                                            CHANNEL_CONTROL_ANSWER, CHANNEL_CONTROL_REPORT};
            say_line(side, kinds[what], epoch + (what == OFFER));
        }
        channel_take_completions(pair.engine[side]);
        assert_int_equal(pair.channel[side]->link.state, CRPC_STATE_DISCONNECTED);
        assert_int_equal(pair.channel[side]->link.error.status, CRPC_E_PROTOCOL);
        assert_int_equal(pair_stats(&pair, side).protocol_errors, 1);
        assert_non_null(rail_1(side)->queues[1]); /* the task has them */
        late_cm_run_all(&late[side]);
        pair_settle(&pair);
        assert_null(rail_1(side)->queues[1]);
        pair_close(&pair);
    }
}

/* ---- Joins ----------------------------------------------------------------------------------- */

static void open_joining(bool key)
{
    crpc_channel_options options = pair_options();
    if (key) {
        options.key_bytes = 16;
        memset(options.key, 7, 16);
    }
    pair_open(&pair, 2, 2);
    be_late();
    pair_join(&pair, &options, &options);
    for (uint32_t i = 0; i < 20; i++) {
        pair_settle(&pair);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(late[side].waiting_count, 1);
        assert_int_equal(pair.channel[side]->link.state, CRPC_STATE_CONNECTING);
        assert_int_equal(pair.seen[side].count, 0);
    }
}

static void a_join_waits_for_its_address_and_nobody_for_it(void **state)
{
    (void)state;
    for (uint32_t key = 0; key < 2; key++) {
        open_joining(key);
        let_all_come();
        for (uint32_t side = 0; side < 2; side++) {
            const crpc_completion *connected = pair_find(&pair, side, CRPC_COMPLETION_CONNECTED, 0);
            assert_non_null(connected);
            assert_int_equal(connected->status, CRPC_OK);
        }
        expect_rail_1_up();
    }
}

static void a_join_to_an_address_that_nobody_has_fails(void **state)
{
    (void)state;
    open_joining(false);
    memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    late_cm_run_all(&late[0]);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED, 0)->status, CRPC_E_UNREACHABLE);
    pair_close(&pair);
}

static void a_join_can_end_before_its_address_is_found(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 8; kind++) {
        struct channel_engine *engine = pair.engine[0];
        open_joining(kind & 4);
        engine = pair.engine[0];
        if (kind & 1) {
            link_close(&pair.channel[0]->link);
            assert_int_equal(engine->channel_count, 1);
        } else {
            pair.clock_ns += 2000000000; /* more than the connect timeout */
            pair_settle(&pair);
            assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED, 0)->status,
                             CRPC_E_TIMEOUT);
            assert_non_null(pair.channel[0]->rails[0].queues[0]);
        }
        assert_false(channel_something_waits(engine));
        if (kind & 2) {
            late_cm_run_all(&late[0]);
            pair_settle(&pair);
            if (kind & 1) {
                assert_int_equal(engine->channel_count, 0);
            } else {
                assert_null(pair.channel[0]->rails[0].queues[0]);
            }
        }
        pair_close(&pair);
    }
}

/* Memory is registered when the proof has come, and the peer's last word can be here before. */
static void a_last_word_waits_for_ours(void **state)
{
    (void)state;
    open_joining(true);
    late_cm_run_all(&late[0]);
    late_cm_run_all(&late[1]);
    pair_settle(&pair);
    for (uint32_t side = 0; side < 2; side++) { /* both have the proof, and register */
        assert_int_equal(late[side].waiting_count, 1);
        assert_int_equal(pair.channel[side]->area.secret, 0);
    }
    late_cm_run_all(&late[1]);
    pair_settle(&pair);
    assert_int_not_equal(pair.channel[1]->area.secret, 0);
    assert_true(link_proving(&pair.channel[0]->link));
    assert_true(link_proving(&pair.channel[1]->link));
    late_cm_run_all(&late[0]);
    pair_settle(&pair);
    assert_false(link_proving(&pair.channel[0]->link));
    assert_false(link_proving(&pair.channel[1]->link));
    expect_rail_1_up();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(polls_go_on_while_a_rail_comes),
        cmocka_unit_test(nothing_is_promised_before),
        cmocka_unit_test(a_rail_that_cannot_be_connected_is_tried_again),
        cmocka_unit_test(a_rail_that_cannot_be_made_is_tried_again),
        cmocka_unit_test(a_device_that_is_lost_meanwhile_is_not_used),
        cmocka_unit_test(a_rail_that_is_lost_meanwhile_comes_back),
        cmocka_unit_test(the_last_rail_can_be_lost_meanwhile),
        cmocka_unit_test(a_channel_that_is_closed_meanwhile_keeps_its_place),
        cmocka_unit_test(a_channel_that_is_closed_before_its_turn_goes_at_once),
        cmocka_unit_test(an_engine_can_close_meanwhile),
        cmocka_unit_test(what_comes_meanwhile_is_out_of_turn),
        cmocka_unit_test(a_join_waits_for_its_address_and_nobody_for_it),
        cmocka_unit_test(a_join_to_an_address_that_nobody_has_fails),
        cmocka_unit_test(a_join_can_end_before_its_address_is_found),
        cmocka_unit_test(a_last_word_waits_for_ours),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

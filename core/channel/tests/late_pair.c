/* late_pair.c: see late_pair.h. */
#include "late_pair.h"

struct cm late[2];

void be_late(void)
{
    for (uint32_t side = 0; side < 2; side++) {
        late_cm_init(&late[side]);
        pair.engine[side]->links.cm = &late[side];
    }
}

uint32_t side_of(bool passive)
{
    return pair.channel[0]->link.passive == passive ? 0 : 1;
}

struct channel_rail *rail_1(uint32_t side)
{
    return &pair.channel[side]->rails[1];
}

void let_side_come(uint32_t side)
{
    while (late[side].waiting_count > 0) {
        late_cm_run_all(&late[side]);
        pair_settle(&pair);
    }
}

void open_lost(uint32_t queue_pairs)
{
    crpc_channel_options options = pair_options();
    options.queue_pairs = queue_pairs;
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    be_late();
    rail_want_fence(pair.channel[0], 1);
    channel_take_completions(pair.engine[0]);
    pair_settle(&pair);
    pair_forget(&pair);
}

uint32_t open_ending(bool second, bool passive)
{
    open_lost(2);
    uint32_t side = side_of(passive);
    let_side_come(!side);
    if (second) {
        late_cm_run_all(&late[side]);
        pair_settle(&pair);
    }
    assert_int_equal(late[side].waiting_count, 1);
    assert_true(late_cm_waits(&rail_1(side)->ending.task));
    assert_null(rail_1(side)->queues[0]);
    assert_int_equal(rail_1(side)->state, RAIL_DOWN);
    return side;
}

/* They are gone, and the active side begins to make others. */
static void open_retried(uint32_t queue_pairs)
{
    open_lost(queue_pairs);
    let_side_come(0);
    let_side_come(1);
    pair.clock_ns += 50000000;
    pair_settle(&pair);
    pair_forget(&pair);
}

uint32_t open_at(enum rail_state state, bool passive, uint32_t queue_pairs)
{
    open_retried(queue_pairs);
    uint32_t side = side_of(passive);
    while (rail_1(side)->state != state) {
        assert_int_equal(late[0].waiting_count + late[1].waiting_count, 1);
        late_cm_run_all(&late[0]);
        late_cm_run_all(&late[1]);
        pair_settle(&pair);
    }
    assert_int_equal(late[side].waiting_count, 1);
    assert_int_equal(late[!side].waiting_count, 0);
    return side;
}

uint32_t open_connecting(bool passive, uint32_t queue_pairs)
{
    return open_at(RAIL_CONNECTING, passive, queue_pairs);
}

uint32_t open_situation(uint32_t situation)
{
    return open_at(situation & 2 ? RAIL_CONNECTING : RAIL_MAKING, situation & 1, 2);
}

void let_all_come(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        late_cm_run_all(&late[0]);
        late_cm_run_all(&late[1]);
        pair_wait(&pair, 20000000);
    }
}

void expect_rail_1_up(void)
{
    let_all_come();
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_info(&pair, side).rail_state[1], CRPC_RAIL_UP);
        assert_int_equal(pair_stats(&pair, side).protocol_errors, 0);
        assert_false(late[side].waited);
    }
    pair_forget(&pair);
    pair_message(&pair, 50000, 3);
    pair_close(&pair);
}

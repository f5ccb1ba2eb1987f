/* hand_over_test.c: requests that go from one group to another. */
#include <string.h>

#include "link/internal.h"
#include "rig.h"

#define USER_DATA UINT64_C(0x1234567890)

/* Two rigs of the same service: the first has a request. */
struct two {
    struct rig *from;
    struct rig *to;
};

static int open_two(void **state, int (*open)(void **state))
{
    static struct two two;
    void *from, *to;
    assert_int_equal(open(&from), 0);
    assert_int_equal(open(&to), 0);
    two = (struct two){.from = from, .to = to};
    *state = &two;
    return 0;
}

static int open_both(void **state)
{
    return open_two(state, rig_open);
}

static int open_both_plain(void **state)
{
    return open_two(state, rig_open_plain);
}

static int close_both(void **state)
{
    const struct two *two = *state;
    void *from = two->from, *to = two->to;
    return rig_close(&from) + rig_close(&to);
}

static int32_t hand_over(const struct two *two, struct thing *thing)
{
    crpc_error error = {.struct_size = sizeof(error)};
    return link_hand_over(&thing->link, &two->to->group, USER_DATA, &error);
}

static void the_other_group_accepts_it(void **state)
{
    const struct two *two = *state;
    const struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_request(two->from);
    struct thing *thing = rig_take_request(two->from);
    const struct link_hello hello = thing->link.peer.hello;
    const uint64_t handle = thing->link.handle;
    assert_int_equal(hand_over(two, thing), CRPC_OK);
    assert_null(handles_get(&two->from->handles, handle, HANDLE_ENDPOINT));
    assert_true(list_empty(&two->from->group.all));
    assert_int_equal(rig_poll(two->from, RIG_COMPLETIONS), 0);

    struct thing *taken = rig_take_request(two->to);
    assert_int_equal(two->to->seen[0].user_data, USER_DATA);
    assert_memory_equal(&taken->link.peer.hello, &hello, sizeof(hello));
    assert_ptr_equal(taken->link.identifier, identifier);
    assert_int_equal(link_accept(&taken->link, &options, NULL), CRPC_OK);
    rig_event(two->to, CM_EVENT_ESTABLISHED, identifier);
    assert_int_equal(rig_poll(two->to, RIG_COMPLETIONS), 1);
    assert_int_equal(two->to->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(two->from->cm.rejects + two->to->cm.rejects, 0);
}

static void the_other_group_rejects_it(void **state)
{
    const struct two *two = *state;
    rig_request(two->from);
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    assert_int_equal(link_reject(&rig_take_request(two->to)->link, 7), CRPC_OK);
    assert_int_equal(two->from->cm.rejects, 0);
    assert_int_equal(two->to->cm.rejects, 1);
}

static void it_can_come_back(void **state)
{
    const struct two *two = *state;
    const struct link_options options = rig_options();
    rig_request(two->from);
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    const struct two back = {.from = two->to, .to = two->from};
    assert_int_equal(hand_over(&back, rig_take_request(two->to)), CRPC_OK);
    link_listener_close(two->from->listener); /* it is not the listener's any more */
    struct thing *thing = rig_take_request(two->from);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
}

static void one_whose_peer_gives_up_behind_it_is_late_to_accept(void **state)
{
    const struct two *two = *state;
    const struct link_options options = rig_options();
    crpc_error error = {.struct_size = sizeof(error)};
    struct cm_identifier *identifier = rig_request(two->from);
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    rig_event(two->to, CM_EVENT_FAILED, identifier);
    struct thing *thing = rig_take_request(two->to);
    assert_int_equal(link_accept(&thing->link, &options, &error), CRPC_E_STATE);
    assert_int_equal(link_reject(&thing->link, 0), CRPC_OK);
    assert_int_equal(two->to->cm.rejects, 0); /* there is nobody to tell */
}

static void what_is_no_request_is_not_handed_over(void **state)
{
    const struct two *two = *state;
    const struct link_options options = rig_options();
    struct thing *accepted = rig_connect(two->from, &options);
    assert_int_equal(hand_over(two, accepted), CRPC_E_STATE);
    assert_int_equal(accepted->link.state, CRPC_STATE_CONNECTED);
    struct cm_identifier *identifier = rig_request(two->from);
    struct thing *given_up = rig_take_request(two->from);
    rig_event(two->from, CM_EVENT_FAILED, identifier);
    assert_int_equal(rig_poll(two->from, RIG_COMPLETIONS), 0);
    assert_int_equal(hand_over(two, given_up), CRPC_E_STATE);
    assert_int_equal(rig_poll(two->to, RIG_COMPLETIONS), 0);
}

static void one_that_cannot_go_is_as_it_was(void **state)
{
    const struct two *two = *state;
    const struct link_options options = rig_options();
    rig_request(two->from);
    struct thing *thing = rig_take_request(two->from);
    two->from->cm.hand_over_status = CRPC_E_NO_RESOURCE;
    assert_int_equal(hand_over(two, thing), CRPC_E_NO_RESOURCE);
    assert_int_equal(rig_poll(two->to, RIG_COMPLETIONS), 0);
    assert_int_equal(two->from->listener->waiting, 1);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
}

static void it_gives_back_its_place_in_the_backlog(void **state)
{
    const struct two *two = *state;
    rig_request(two->from);
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    assert_int_equal(two->from->listener->waiting, 0);
}

static void a_group_that_closes_rejects_what_it_has_not_taken(void **state)
{
    const struct two *two = *state;
    struct cm_identifier kept = {0};
    rig_request(two->from);
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    two->to->cm.last = &kept;
    cm_hand_over_reject(&two->to->cm, &two->from->group); /* it is another's */
    assert_int_equal(kept.rejects, 0);
    link_group_close(&two->to->group); /* and rig_close looks whether something is left */
    assert_int_equal(kept.rejects + two->to->cm.rejects, 2);
    two->to->cm.last = NULL;
}

static void private_data_goes_with_a_plain_one(void **state)
{
    const struct two *two = *state;
    static const uint8_t data[] = "who I am";
    rig_private_request(two->from, data, sizeof(data));
    assert_int_equal(hand_over(two, rig_take_request(two->from)), CRPC_OK);
    const struct thing *thing = rig_take_request(two->to);
    assert_int_equal(thing->link.peer.private_bytes, sizeof(data));
    assert_memory_equal(thing->link.peer.private_data, data, sizeof(data));
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_both, close_both)
    const struct CMUnitTest tests[] = {
        ONE(the_other_group_accepts_it),
        ONE(the_other_group_rejects_it),
        ONE(it_can_come_back),
        ONE(one_whose_peer_gives_up_behind_it_is_late_to_accept),
        ONE(what_is_no_request_is_not_handed_over),
        ONE(one_that_cannot_go_is_as_it_was),
        ONE(it_gives_back_its_place_in_the_backlog),
        ONE(a_group_that_closes_rejects_what_it_has_not_taken),
        cmocka_unit_test_setup_teardown(private_data_goes_with_a_plain_one, open_both_plain,
                                        close_both),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* plain_test.c: links of a plain service: what the private data carries is the application's, and any
 * program can be the peer. */
#include <string.h>

#include "link/internal.h"
#include "rig.h"

static void fill(uint8_t *data, uint32_t bytes, uint8_t first)
{
    for (uint32_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(first + i);
    }
}

static void expect_data(const uint8_t *data, uint32_t data_bytes, uint32_t bytes, uint8_t first)
{
    uint8_t wanted[CM_PRIVATE_BYTES_MAX];
    fill(wanted, bytes, first);
    assert_int_equal(data_bytes, bytes);
    assert_memory_equal(data, wanted, bytes);
}

/* ---- The accepting side ---------------------------------------------------------------------- */

static void any_private_data_of_a_request_is_the_applications(void **state)
{
    struct rig *rig = *state;
    static const uint32_t lengths[] = {0, 1, 12, 56, CM_PRIVATE_BYTES_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t data[CM_PRIVATE_BYTES_MAX] = {0};
        fill(data, lengths[i], 7);
        rig_private_request(rig, data, lengths[i]);
        struct thing *thing = rig_take_request(rig);
        expect_data(thing->link.peer.private_data, thing->link.peer.private_bytes, lengths[i], 7);
        link_close(&thing->link);
    }
    assert_int_equal(rig->cm.rejects, 5);
}

static void a_hello_is_private_data_like_any_other(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    rig_request(rig); /* with a hello of another service */
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    assert_int_equal(thing->link.peer.private_bytes, sizeof(struct link_hello));
    assert_int_equal(thing->link.peer.version, 0);
}

static void an_accept_carries_up_to_196_bytes(void **state)
{
    struct rig *rig = *state;
    struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_private_request(rig, NULL, 0);
    struct thing *thing = rig_take_request(rig);
    options.private_bytes = 196;
    fill(options.private_data, 196, 30);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    expect_data(identifier->private_data, identifier->private_bytes, 196, 30);
    rig_event(rig, CM_EVENT_ESTABLISHED, identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_OK);
}

static void a_rejection_carries_private_data(void **state)
{
    struct rig *rig = *state;
    uint8_t data[CM_REJECT_BYTES_MAX] = {0};
    struct cm_identifier kept = {0};
    rig_private_request(rig, NULL, 0);
    struct thing *thing = rig_take_request(rig);
    uint64_t handle = thing->link.handle;
    fill(data, sizeof(data), 3);
    rig->cm.last = &kept;
    assert_int_equal(link_reject_plain(&thing->link, data, sizeof(data)), CRPC_OK);
    rig->cm.last = NULL;
    expect_data(kept.private_data, kept.private_bytes, sizeof(data), 3);
    assert_int_equal(rig->cm.rejects, 1);
    assert_null(handles_get(&rig->handles, handle, HANDLE_ENDPOINT));
}

static void a_request_that_was_given_up_ends_when_it_is_rejected(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *identifier = rig_private_request(rig, NULL, 0);
    struct thing *thing = rig_take_request(rig);
    rig_event(rig, CM_EVENT_FAILED, identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    assert_int_equal(link_reject_plain(&thing->link, NULL, 0), CRPC_OK);
    assert_int_equal(rig->cm.rejects, 0); /* there is nobody to tell */
    assert_true(list_empty(&rig->group.all));
}

static void only_a_request_is_rejected(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct thing *thing = rig_connect(rig, &options);
    assert_int_equal(link_reject_plain(&thing->link, NULL, 0), CRPC_E_STATE);
    assert_int_equal(thing->link.state, CRPC_STATE_CONNECTED);
}

/* Nobody else's format stands in a rejection that the library makes, either. */
static void a_full_backlog_rejects_with_no_private_data(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier kept = {0};
    for (uint32_t i = 0; i < 128; i++) {
        rig_private_request(rig, NULL, 0);
        rig_take_request(rig);
    }
    rig->cm.last = &kept;
    rig_private_request(rig, "abc", 3);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    rig->cm.last = NULL;
    assert_int_equal(rig->cm.rejects, 1);
    assert_int_equal(kept.private_bytes, 0);
}

/* ---- The connecting side --------------------------------------------------------------------- */

static struct link *connect_with(struct rig *rig, uint32_t private_bytes)
{
    struct link_options options = rig_options();
    struct link *link;
    options.private_bytes = private_bytes;
    fill(options.private_data, private_bytes, 90);
    assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ROUTED, link->identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    return link;
}

static void a_request_carries_up_to_56_bytes(void **state)
{
    struct rig *rig = *state;
    static const uint32_t lengths[] = {0, 5, 56};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct link *link = connect_with(rig, lengths[i]);
        expect_data(link->identifier->private_data, link->identifier->private_bytes, lengths[i],
                    90);
        link_close(link);
    }
}

static void the_private_data_of_an_answer_is_the_applications(void **state)
{
    struct rig *rig = *state;
    static const uint32_t lengths[] = {0, 9, CM_PRIVATE_BYTES_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t data[CM_PRIVATE_BYTES_MAX] = {0};
        struct link *link = connect_with(rig, 0);
        fill(data, lengths[i], 11);
        rig_private_event(rig, CM_EVENT_CONNECT_RESPONSE, link->identifier, data, lengths[i]);
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
        rig_work(link->identifier);
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
        assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
        assert_int_equal(rig->seen[0].status, CRPC_OK);
        expect_data(link->peer.private_data, link->peer.private_bytes, lengths[i], 11);
        link_close(link);
    }
}

static void the_private_data_of_a_rejection_is_the_applications(void **state)
{
    struct rig *rig = *state;
    uint8_t data[CM_REJECT_BYTES_MAX] = {0};
    struct link *link = connect_with(rig, 0);
    fill(data, sizeof(data), 60);
    rig_private_event(rig, CM_EVENT_REJECTED, link->identifier, data, sizeof(data));
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_REFUSED);
    expect_data(link->peer.private_data, link->peer.private_bytes, sizeof(data), 60);
    assert_int_equal(link->error.status, CRPC_E_REFUSED);
}

/* ---- Groups with one cm ---------------------------------------------------------------------- */

static void groups_beside_each_other_hear_of_the_same_events(void **state)
{
    struct rig *rig = *state;
    struct link_group other;
    link_group_init(&other, rig->group.service, NULL, &rig->cm, &rig->log, &rig->handles,
                    &rig->clock_ns);
    link_group_beside(&other, &rig->group);
    for (uint32_t i = 0; i < 33;
         i++) { /* more than are kept, however often one of them is emptied */
        rig_event(rig, CM_EVENT_QUEUE_PAIR, NULL);
    }
    uint32_t heard = 0, heard_beside = 0;
    for (uint32_t i = 0; i < 100; i++) {
        crpc_completion completions[2];
        struct output output = {.next = completions, .end = completions + 2};
        heard += rig_poll(rig, RIG_COMPLETIONS);
        link_emit_events(&other, &output);
        heard_beside += (uint32_t)(output.next - completions);
        assert_in_range(other.device_event_count, 0, LINK_DEVICE_EVENTS_MAX);
    }
    assert_int_equal(heard, 33);
    assert_int_equal(heard_beside, 33);
    link_group_close(&other);
    rig_event(rig, CM_EVENT_QUEUE_PAIR, NULL);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open_plain, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(any_private_data_of_a_request_is_the_applications),
        ONE(a_hello_is_private_data_like_any_other),
        ONE(an_accept_carries_up_to_196_bytes),
        ONE(a_rejection_carries_private_data),
        ONE(a_request_that_was_given_up_ends_when_it_is_rejected),
        ONE(only_a_request_is_rejected),
        ONE(a_full_backlog_rejects_with_no_private_data),
        ONE(a_request_carries_up_to_56_bytes),
        ONE(the_private_data_of_an_answer_is_the_applications),
        ONE(the_private_data_of_a_rejection_is_the_applications),
        ONE(groups_beside_each_other_hear_of_the_same_events),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* connect_test.c: peers that stop half way through the handshake. */
#include "link/internal.h"
#include "rig.h"

#include <string.h>

/* Polls until a little before the connect timeout, then past it. */
static void expect_timeout(struct rig *rig, uint64_t handle)
{
    rig->clock_ns += RIG_CONNECT_TIMEOUT_NS - 1000000;
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    rig->clock_ns += 2000000;
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_TIMEOUT);
    assert_int_equal(rig->seen[0].endpoint.bits, handle);
    assert_int_equal(rig->cm.identifiers, 1); /* the listener's */
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
}

static void a_peer_that_is_accepted_and_says_nothing_is_given_up(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    assert_int_equal(identifier->accepts, 1);
    expect_timeout(rig, thing->link.handle);
    assert_int_equal(link_disconnect(&thing->link, 0), CRPC_E_STATE);
}

static void a_peer_that_never_answers_is_given_up(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct link *link;
    assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ROUTED, link->identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    expect_timeout(rig, link->handle);
}

/* What comes from it then belongs to nobody. */
static void a_peer_that_comes_too_late_finds_nobody(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    rig->clock_ns += 2 * RIG_CONNECT_TIMEOUT_NS;
    rig_event(rig, CM_EVENT_DISCONNECTED,
              identifier); /* waits behind the timer: it is taken first */
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_DISCONNECTED);
    assert_int_equal(wheel_next_ns(&rig->group.wheel), UINT64_MAX);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
}

/* ---- Features -------------------------------------------------------------------------------- */

static struct link_hello hello_with(uint16_t features)
{
    return (struct link_hello){.magic = LINK_MAGIC,
                               .version_min = 1,
                               .version_max = 1,
                               .service = LINK_SERVICE_CALLS,
                               .features = features};
}

static uint16_t features_sent(const struct cm_identifier *identifier)
{
    struct link_hello hello;
    assert_int_equal(identifier->private_bytes, sizeof(hello));
    memcpy(&hello, identifier->private_data, sizeof(hello));
    return hello.features;
}

/* A link that leaves a feature out does not offer it, and gives up if the peer chooses it. */
static void a_feature_that_is_left_out_is_not_offered(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint16_t left_out, chosen;
        int32_t status;
    } cases[] = {{0, 6, CRPC_OK},         {4, 2, CRPC_OK},         {4, 0, CRPC_OK},
                 {4, 4, CRPC_E_PROTOCOL}, {4, 6, CRPC_E_PROTOCOL}, {0, 8, CRPC_E_PROTOCOL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct link_options options = rig_options();
        const struct link_hello answer = hello_with(cases[i].chosen);
        struct link *link;
        options.features_left_out = cases[i].left_out;
        assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
        rig_event(rig, CM_EVENT_ROUTED, link->identifier);
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
        assert_int_equal(features_sent(link->identifier), 6 & ~cases[i].left_out);
        rig_private_event(rig, CM_EVENT_CONNECT_RESPONSE, link->identifier, &answer,
                          sizeof(answer));
        rig_poll(rig, RIG_COMPLETIONS);
        assert_int_equal(link->error.status, cases[i].status);
        if (cases[i].status == CRPC_OK) {
            assert_int_equal(link->peer.features, cases[i].chosen);
        }
        link_close(link);
    }
}

/* Nor is it selected, though the peer offers it; with other options it is, after an accept that failed. */
static void a_feature_that_is_left_out_is_not_selected(void **state)
{
    struct rig *rig = *state;
    struct link_options options = rig_options();
    const struct link_hello hello = hello_with(0x0e);
    struct cm_identifier *identifier = rig_private_request(rig, &hello, sizeof(hello));
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(thing->link.peer.features, 6);
    options.features_left_out = 4;
    rig->cm.attach_status = CRPC_E_NO_MEMORY;
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_E_NO_MEMORY);
    assert_int_equal(thing->link.peer.features, 2);
    rig->cm.attach_status = CRPC_OK;
    options.features_left_out = 2;
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    assert_int_equal(thing->link.peer.features, 4);
    assert_int_equal(features_sent(identifier), 4);
    link_close(&thing->link);
}

/* What the two sides connect later, such as lanes and rails, goes the way that rdma_cm has found for the first queue pair. */
static void expect_way(const struct link *link, bool grh_required)
{
    const struct nic nic = {.link = CRPC_LINK_INFINIBAND};
    const struct link_address wire = {
        .queue_pair_number = 7, .link = CRPC_LINK_INFINIBAND, .mtu_code = 5};
    struct nic_address address;
    assert_int_equal(link_address_take_told(&address, &wire, 0, link, &nic, NULL), CRPC_OK);
    assert_int_equal(address.queue_pair_number, 7);
    assert_int_equal(address.traffic_class, RIG_TRAFFIC_CLASS);
    assert_int_equal(address.service_level, RIG_SERVICE_LEVEL);
    assert_int_equal(address.grh_required, grh_required);
}

static void what_is_connected_later_goes_the_same_way(void **state)
{
    struct rig *rig = *state;
    struct link_options options = rig_options();
    const struct link_hello answer = hello_with(0), hello = hello_with(0x1000);
    struct link *link;
    assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ROUTED, link->identifier);
    rig_poll(rig, RIG_COMPLETIONS);
    rig_private_event(rig, CM_EVENT_CONNECT_RESPONSE, link->identifier, &answer, sizeof(answer));
    rig_poll(rig, RIG_COMPLETIONS);
    rig_work(link->identifier);
    rig_poll(rig, RIG_COMPLETIONS);
    assert_int_equal(link->state, CRPC_STATE_CONNECTED);
    expect_way(link, false);
    link_close(link);
    struct cm_identifier *identifier = rig_private_request(rig, &hello, sizeof(hello));
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ESTABLISHED, identifier);
    rig_poll(rig, RIG_COMPLETIONS);
    expect_way(&thing->link, true);
    link_close(&thing->link);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(a_peer_that_is_accepted_and_says_nothing_is_given_up),
        ONE(a_peer_that_never_answers_is_given_up),
        ONE(a_peer_that_comes_too_late_finds_nobody),
        ONE(a_feature_that_is_left_out_is_not_offered),
        ONE(a_feature_that_is_left_out_is_not_selected),
        ONE(what_is_connected_later_goes_the_same_way),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

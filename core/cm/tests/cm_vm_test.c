/* cm_vm_test.c: connections over real rdma_cm, Soft-RoCE in the VM: ./dev vm .../cm_vm_test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "leave_out.h"
#include "nic/device/device.h"
#include "place.h"
#include "rig.h"
#include "signals.h"
#include "vm_tests.h"

/* ---- Connecting ------------------------------------------------------------------------------ */

/* The whole handshake, with all that it shows on the way. */
static void test_connect(void **state)
{
    struct rig *rig = *state;
    struct nic_transport transport = RIG_TRANSPORT;
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t question[CM_PRIVATE_BYTES], answer[CM_PRIVATE_BYTES];
    char text[64];
    int listener_owner, client_owner, server_owner;
    memset(question, 0x11, sizeof(question));
    memset(answer, 0x22, sizeof(answer));

    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), &listener_owner);
    const char *address = at_port(place_address(0), listener);
    cm_local_address(listener, text, sizeof(text));
    assert_string_equal(text, address);

    struct link link = {.client = side_connect(&rig->client, address, &client_owner)};
    struct cm_event event = side_expect(&rig->client, CM_EVENT_ROUTED);
    assert_ptr_equal(event.owner, &client_owner);
    assert_ptr_equal(event.identifier, link.client);
    cm_peer_address(link.client, text, sizeof(text));
    assert_string_equal(text, address);

    link.client_queue_pair = side_queue_pair(&rig->client);
    link.server_queue_pair = side_queue_pair(&rig->server);
    assert_int_equal(cm_request(link.client, link.client_queue_pair, &transport, question,
                                sizeof(question), &error),
                     CRPC_OK);
    event = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST);
    assert_ptr_equal(event.owner, &listener_owner);
    assert_true(event.private_bytes >= sizeof(question));
    assert_memory_equal(event.private_data, question, sizeof(question));
    link.server = event.identifier;
    assert_ptr_not_equal(link.server, listener);
    cm_own(link.server, &server_owner);
    char client_text[64];
    cm_local_address(link.client, client_text, sizeof(client_text));
    cm_peer_address(link.server, text, sizeof(text));
    assert_string_equal(text, client_text);
    cm_local_address(link.server, text, sizeof(text));
    assert_string_equal(text, address);

    assert_int_equal(
        cm_accept(link.server, link.server_queue_pair, &transport, answer, sizeof(answer), &error),
        CRPC_OK);
    event = side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    assert_true(event.private_bytes >= sizeof(answer));
    assert_memory_equal(event.private_data, answer, sizeof(answer));
    assert_int_equal(cm_establish(link.client, link.client_queue_pair, &transport, &error),
                     CRPC_OK);
    event = side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    assert_ptr_equal(event.owner, &server_owner);
    link_prove(rig, &link);
    link_down(rig, &link);
    side_expect_silence(&rig->client);
    side_expect_silence(&rig->server);
    cm_destroy(listener);
}

/* The attributes of the queue pair are those of nic.h and the endpoint, not rdma_cm's. */
static void test_attributes(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link link = link_up(rig, at_port(place_address(0), listener));
    struct nic_queue_pair *const ends[] = {link.client_queue_pair, link.server_queue_pair};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attributes;
        struct ibv_qp_init_attr ignored;
        assert_int_equal(ibv_query_qp(device_qp(ends[i]), &attributes,
                                      IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
                                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MTU,
                                      &ignored),
                         0);
        assert_int_equal(attributes.qp_state, IBV_QPS_RTS);
        assert_int_equal(attributes.min_rnr_timer, NIC_MIN_RNR_TIMER);
        assert_int_equal(attributes.timeout, 14);
        assert_int_equal(attributes.retry_cnt, 7);
        assert_int_equal(attributes.rnr_retry, NIC_RNR_RETRY);
        assert_int_equal(attributes.max_rd_atomic, NIC_READ_DEPTH);
        assert_int_equal(attributes.max_dest_rd_atomic, NIC_READ_DEPTH);
        assert_int_equal(attributes.path_mtu, IBV_MTU_4096);
        assert_int_equal(attributes.qp_access_flags,
                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    }
    link_down(rig, &link);
    cm_destroy(listener);
}

static void connect_once(struct rig *rig, const char *listen_address, const char *host)
{
    struct cm_identifier *listener = side_listen(&rig->server, listen_address, NULL);
    struct link link = link_up(rig, at_port(host, listener));
    char text[64];
    cm_peer_address(link.client, text, sizeof(text));
    print_message("# %s at %s: %s\n", host, listen_address, text);
    link_prove(rig, &link);
    link_down(rig, &link);
    cm_destroy(listener);
}

/* Without its brackets. */
static const char *bare_address6(void)
{
    static char address[64];
    snprintf(address, sizeof(address), "%.*s", (int)strlen(place_address6()) - 2,
             place_address6() + 1);
    return address;
}

static bool has_ipv6(void)
{
    return address_present(bare_address6());
}

/* Connects as far as the request. */
static struct cm_identifier *ask(struct side *side, const char *address,
                                 const struct nic_queue_pair *queue_pair)
{
    const struct nic_transport transport = RIG_TRANSPORT;
    struct cm_identifier *identifier = side_connect(side, address, NULL);
    side_expect(side, CM_EVENT_ROUTED);
    assert_int_equal(cm_request(identifier, queue_pair, &transport, "ask", 4, NULL), CRPC_OK);
    return identifier;
}

static void test_ipv6(void **state)
{
    char listener[80];
    snprintf(listener, sizeof(listener), "%s:0", place_address6());
    connect_once(*state, listener, place_address6());
    connect_once(*state, "[::]:0", place_address6());
    connect_once(*state, "*:0", place_address6());
}

static void test_wildcards(void **state)
{
    connect_once(*state, "*:0", place_address(0));
    connect_once(*state, "0.0.0.0:0", place_address(0));
}

/* The names of these tests, for the rest of this process. */
static void know_names(void)
{
    static bool known;
    char hosts[1024];
    if (known) {
        return;
    }
    snprintf(hosts, sizeof(hosts),
             "127.0.0.1 localhost\n%s one\n"
             "127.0.0.9 several\n203.0.113.9 several\n%s several\n"
             "%s elsewhere\n203.0.113.9 elsewhere\n"
             "%s both\n%s both\n"
             "%s rails\n%s rails\n",
             place_address(0), place_address(0), place_address(1), bare_address6(),
             place_address(0), place_address(1), place_address(0));
    if (!file_overlay("/etc/hosts", hosts)) {
        fail_msg("/etc/hosts cannot be overlaid");
    }
    known = true;
}

/* The first two addresses of the name lead nowhere. */
static void test_names(void **state)
{
    struct rig *rig = *state;
    know_names();
    connect_once(rig, "one:0", "one");
    connect_once(rig, place_at(0, "0"), "several");

    struct cm_identifier *identifier = side_connect(&rig->client, "elsewhere:7471", NULL);
    struct cm_event event = side_expect(&rig->client, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_NO_DEVICE);
    cm_destroy(identifier);

    identifier = side_connect(&rig->client, "no-such-host.invalid:7471", NULL);
    event = side_expect(&rig->client, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_UNREACHABLE);
    assert_non_null(strstr(event.error.message, "no-such-host.invalid"));
    cm_destroy(identifier);

    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(
        cm_listen(rig->server.cm, "no-such-host.invalid:7471", 0, NULL, &identifier, &error),
        CRPC_E_UNREACHABLE);
}

/* Nobody listens at the first address of the name, or the listener there does not use its device: the next one is asked the same. The
 * resolver decides which comes first, so the server is at each of the two once. */
static void test_names_where_one_refuses(void **state)
{
    struct rig *rig = *state;
    char listen_six[80];
    snprintf(listen_six, sizeof(listen_six), "%s:0", place_address6());
    know_names();
    connect_once(rig, place_at(0, "0"), "both");
    connect_once(rig, listen_six, "both");
    connect_once(rig, "*:0", "rails");

    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->client);
    struct cm_identifier *identifier = ask(&rig->client, "both:7999", queue_pair);
    struct cm_event event = side_expect(&rig->client, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(event.error.message, "both:7999: nobody listens there"));
    cm_destroy(identifier);

    /* Without another address, the kernel's refusal is told as what it may be. */
    struct cm_identifier *elsewhere = side_listen(&rig->server, listen_six, NULL);
    identifier = ask(&rig->client, at_port(place_address(0), elsewhere), queue_pair);
    event = side_expect(&rig->client, CM_EVENT_REJECTED);
    assert_non_null(strstr(event.error.message, "or listens at another address of its host"));
    cm_destroy(identifier);
    cm_destroy(elsewhere);

    /* An application that refuses is asked no further, though others listen. */
    struct cm_identifier *listener = side_listen(&rig->server, "*:0", NULL);
    identifier = ask(&rig->client, at_port("both", listener), queue_pair);
    event = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST);
    cm_reject(event.identifier, "no", 3);
    cm_destroy(event.identifier);
    event = side_expect(&rig->client, CM_EVENT_REJECTED);
    assert_string_equal((char *)event.private_data, "no");
    side_expect_silence(&rig->server);
    cm_destroy(identifier);
    cm_destroy(listener);
    queue_pair_drop(&queue_pair);
}

/* Destroyed before the request, at it, between the addresses, and after the last: nothing comes of it any more. */
static void test_destroy_between_addresses(void **state)
{
    struct rig *rig = *state;
    struct nic_transport transport = RIG_TRANSPORT;
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->client);
    know_names();
    for (int round = 0; round < 200; round++) {
        struct cm_identifier *identifier = side_connect(&rig->client, "both:7999", NULL);
        side_expect(&rig->client, CM_EVENT_ROUTED);
        if (round % 8 != 0) {
            assert_int_equal(cm_request(identifier, queue_pair, &transport, "ask", 4, NULL),
                             CRPC_OK);
            usleep((useconds_t)(round % 40) * 20);
        }
        cm_destroy(identifier);
    }
    side_expect_silence(&rig->client);
    queue_pair_drop(&queue_pair);
}

/* ---- Not connecting -------------------------------------------------------------------------- */

static void test_nobody_listens(void **state)
{
    struct rig *rig = *state;
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->client);
    struct cm_identifier *identifier = ask(&rig->client, place_at(0, "7999"), queue_pair);
    struct cm_event event = side_expect(&rig->client, CM_EVENT_REJECTED);
    assert_int_equal(event.private_bytes, 0);
    assert_int_equal(event.error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(event.error.message, place_at(0, "7999")));
    cm_destroy(identifier);
    queue_pair_drop(&queue_pair);
}

static void test_reject(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->client);
    struct cm_identifier *identifier =
        ask(&rig->client, at_port(place_address(0), listener), queue_pair);
    struct cm_event event = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST);
    cm_reject(event.identifier, "no, because", 12);
    cm_destroy(event.identifier);
    event = side_expect(&rig->client, CM_EVENT_REJECTED);
    assert_true(event.private_bytes >= 12);
    assert_string_equal((char *)event.private_data, "no, because");
    assert_int_equal(event.error.status, CRPC_E_REFUSED);
    cm_destroy(identifier);
    cm_destroy(listener);
    queue_pair_drop(&queue_pair);
}

/* Any program can say so: what rdma_connect sends is its own. */
static void test_peer_without_a_number(void **state)
{
    struct rig *rig = *state;
    struct nic_transport transport = RIG_TRANSPORT;
    crpc_error error = {.struct_size = sizeof(error)};
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->server);
    const struct device_queue_pair liar = {.base.number = 0};
    struct cm_identifier *identifier =
        side_connect(&rig->client, at_port(place_address(0), listener), NULL);
    side_expect(&rig->client, CM_EVENT_ROUTED);
    assert_int_equal(cm_request(identifier, &liar.base, &transport, "ask", 4, NULL), CRPC_OK);
    struct cm_event event = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(cm_accept(event.identifier, queue_pair, &transport, "answer", 7, &error),
                     CRPC_E_PROTOCOL);
    print_message("# %s\n", error.message);
    assert_int_equal(queue_pair->peer_number, 0);
    cm_destroy(event.identifier);
    side_expect(&rig->client, CM_EVENT_REJECTED);
    cm_destroy(identifier);
    cm_destroy(listener);
    queue_pair_drop(&queue_pair);
}

static void test_unreachable(void **state)
{
    static const char *const addresses[] = {"203.0.113.9:7471", "[2001:db8::9]:7471",
                                            "127.0.0.9:7471"};
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        struct cm_identifier *identifier = side_connect(&rig->client, addresses[i], NULL);
        struct cm_event event = side_expect(&rig->client, CM_EVENT_FAILED);
        assert_int_equal(event.error.status, CRPC_E_UNREACHABLE);
        assert_non_null(strstr(event.error.message, addresses[i]));
        cm_destroy(identifier);
    }
}

static void test_other_device(void **state)
{
    struct rig *rig = *state;
    crpc_error error = {.struct_size = sizeof(error)};
    struct cm_identifier *identifier = side_connect(&rig->client, place_at(1, "7471"), NULL);
    struct cm_event event = side_expect(&rig->client, CM_EVENT_FAILED);
    assert_int_equal(event.error.status, CRPC_E_NO_DEVICE);
    assert_non_null(strstr(event.error.message, place_device(0)));
    assert_non_null(strstr(event.error.message, place_device(1)));
    cm_destroy(identifier);

    assert_int_equal(cm_listen(rig->server.cm, place_at(1, "0"), 0, NULL, &identifier, &error),
                     CRPC_E_NO_DEVICE);
    print_message("# %s\n", error.message);
    static const char *const not_ours[] = {"127.0.0.9:0", "203.0.113.9:0", "[::1]:0"};
    size_t count = strcmp(place_address6(), "[::1]") == 0 ? 2 : 3; /* simnic's rail 0 has that */
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(cm_listen(rig->server.cm, not_ours[i], 0, NULL, &identifier, &error),
                         CRPC_E_NO_DEVICE);
        print_message("# %s\n", error.message);
    }

    /* A wildcard listener hears of requests at the other device and turns them away. */
    struct cm_identifier *listener = side_listen(&rig->server, "*:0", NULL);
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->foreign);
    identifier = ask(&rig->foreign, at_port(place_address(1), listener), queue_pair);
    event = side_expect(&rig->foreign, CM_EVENT_REJECTED);
    assert_int_equal(event.private_bytes, 0);
    assert_int_equal(event.error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(event.error.message, "device"));
    side_expect_silence(&rig->server);
    cm_destroy(identifier);
    cm_destroy(listener);
    queue_pair_drop(&queue_pair);
}

static void test_port_taken(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct cm_identifier *second = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    const char *address = at_port(place_address(0), listener);
    assert_int_equal(cm_listen(rig->client.cm, address, 0, NULL, &second, &error), CRPC_E_SYSTEM);
    print_message("# %s\n", error.message);
    assert_non_null(strstr(error.message, "taken"));
    assert_int_equal(cm_listen(rig->client.cm, at_port("*", listener), 0, NULL, &second, &error),
                     CRPC_E_SYSTEM);
    assert_non_null(strstr(error.message, "taken"));

    /* Free again at once, though a connection that it took is still there. */
    struct link link = link_up(rig, at_port(place_address(0), listener));
    char same[64];
    cm_local_address(listener, same, sizeof(same));
    cm_destroy(listener);
    listener = side_listen(&rig->server, same, NULL);
    link_prove(rig, &link);
    link_down(rig, &link);
    cm_destroy(listener);
}

static void test_bad_address(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *identifier = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(cm_connect(rig->client.cm, place_address(0), NULL, &identifier, &error),
                     CRPC_E_INVALID);
    assert_int_equal(cm_listen(rig->client.cm, place_address(0), 0, NULL, &identifier, &error),
                     CRPC_E_INVALID);
    assert_int_equal(cm_listen(rig->client.cm, place_address(0), 0, NULL, &identifier, NULL),
                     CRPC_E_INVALID);
    assert_null(identifier);
}

/* Requests that the owner does not take wait up to the backlog, and are refused beyond it. */
static void test_backlog(void **state)
{
    struct rig *rig = *state;
    struct nic_transport transport = RIG_TRANSPORT;
    struct cm_identifier *listener = NULL;
    struct cm_identifier *identifiers[3];
    struct nic_queue_pair *queue_pairs[3];
    assert_int_equal(cm_listen(rig->server.cm, place_at(0, "0"), 2, NULL, &listener, NULL),
                     CRPC_OK);
    for (int i = 0; i < 3; i++) {
        queue_pairs[i] = side_queue_pair(&rig->client);
        identifiers[i] = side_connect(&rig->client, at_port(place_address(0), listener), NULL);
        side_expect(&rig->client, CM_EVENT_ROUTED);
        assert_int_equal(cm_request(identifiers[i], queue_pairs[i], &transport, "ask", 4, NULL),
                         CRPC_OK);
    }
    struct cm_event event = side_expect(&rig->client, CM_EVENT_REJECTED);
    assert_int_equal(event.error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(event.error.message, "too many"));
    for (int i = 0; i < 2; i++) {
        event = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST);
        cm_destroy(event.identifier); /* without a word: rdma_cm rejects for us */
        side_expect(&rig->client, CM_EVENT_REJECTED);
    }
    for (int i = 0; i < 3; i++) {
        cm_destroy(identifiers[i]);
        queue_pair_drop(&queue_pairs[i]);
    }
    cm_destroy(listener);
}

/* ---- The device ------------------------------------------------------------------------------ */

static bool set_link(const char *name, bool up)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strcpy(request.ifr_name, name);
    bool done = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    done = done && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    close(fd);
    return done;
}

/* Takes the second rail down or up, by the means of the place. */
static bool set_link1(bool up)
{
    const char *command = getenv(up ? "TEST_LINK1_UP" : "TEST_LINK1_DOWN");
    return command ? system(command) == 0 : set_link("rail1", up);
}

static void test_port_events(void **state)
{
    struct rig *rig = *state;
    assert_true(set_link1(false));
    struct cm_event event = side_expect(&rig->foreign, CM_EVENT_PORT_DOWN);
    assert_null(event.identifier);
    assert_null(event.owner);
    assert_true(set_link1(true));
    side_expect(&rig->foreign, CM_EVENT_PORT_ACTIVE);
    side_expect_silence(&rig->client);
}

int main(int argc, char **argv)
{
    signals_as_usual();
    if (argc > 1) { /* started by test_vanished_client */
        vanishing_client(argv[1]);
        return 1;
    }
    struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_connect, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_attributes, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_ipv6, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_wildcards, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_names, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_names_where_one_refuses, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_between_addresses, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_listens, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_reject, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_peer_without_a_number, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_unreachable, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_other_device, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_port_taken, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_address, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_backlog, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_client_stages, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_server_stages, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_accept_too_late, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_listener, rig_set_up, rig_tear_down),
        cmocka_unit_test(test_destroy_lookup),
        cmocka_unit_test_setup_teardown(test_destroy_races, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_connects, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_given_up, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_races, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_both_ways, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_refused, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_drops_early_events, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(test_hand_over_not_taken, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_work_connects, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_work_can_be_waited_for, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_waits_for_work, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(test_vanished_client, rig_set_up, rig_tear_down),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test_setup_teardown(test_port_events, rig_set_up, rig_tear_down),
    };
    if (geteuid() != 0) { /* these put a file in the place of one of the system's */
        LEAVE_OUT(tests, test_names, "it needs the right to mount");
        LEAVE_OUT(tests, test_names_where_one_refuses, "it needs the right to mount");
        LEAVE_OUT(tests, test_destroy_between_addresses, "it needs the right to mount");
        LEAVE_OUT(tests, test_destroy_lookup, "it needs the right to mount");
    }
    if (!has_ipv6()) {
        LEAVE_OUT(tests, test_ipv6, "the first rail has no IPv6 address");
        LEAVE_OUT(tests, test_names_where_one_refuses, "the first rail has no IPv6 address");
        LEAVE_OUT(tests, test_destroy_between_addresses, "the first rail has no IPv6 address");
    }
    if (geteuid() != 0 && !getenv("TEST_LINK1_DOWN")) {
        LEAVE_OUT(tests, test_port_events, "nothing says how to take a link down");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

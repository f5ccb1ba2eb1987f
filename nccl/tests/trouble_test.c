/* trouble_test.c: properties and refusals; a peer that dies, leaves, never was, or is a stranger.
 * Whatever happens, nothing hangs and everything can be closed. */
#include "harness.h"
#include "place.h"
#include "signals.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 200000u
#define NOTICED_SECONDS 60.0 /* until a death shows */

/* ---- What NCCL is told ----------------------------------------------------------------------- */

static void look(struct side *side)
{
    struct net_properties_v12 properties;
    CHECK_EQUAL(net_properties(&side->net, 0, &properties), NET_SUCCESS);
    char name[140];
    snprintf(name, sizeof(name), "%s+%s", place_device(0), place_device(1));
    CHECK(strcmp(properties.name, name) == 0);
    CHECK(properties.pci_path == NULL || properties.pci_path[0] == '/');
    CHECK_EQUAL(properties.memory, NET_MEMORY_HOST);
    CHECK_EQUAL(properties.registration_is_global, 0);
    CHECK_EQUAL(properties.force_flush, 0);
    CHECK(properties.speed_mbps >= 2000);
    CHECK_EQUAL(properties.port, 1);
    CHECK(properties.comms_max > 0);
    CHECK_EQUAL(properties.receives_max, 8);
    CHECK_EQUAL(properties.device_type, NET_DEVICE_HOST);
    CHECK_EQUAL(properties.virtual_device.count, 1);
    CHECK_EQUAL(properties.virtual_device.devices[0], 0);
    CHECK(properties.point_to_point_bytes_max >= 1u << 20);
    CHECK(properties.point_to_point_bytes_max <= INT32_MAX);
    CHECK_EQUAL(properties.collective_bytes_max, properties.point_to_point_bytes_max);
    CHECK_EQUAL(properties.multi_request_max, 1);
    CHECK_EQUAL(properties.rail, NET_UNDEFINED);
    CHECK_EQUAL(properties.plane, NET_UNDEFINED);
    CHECK_EQUAL(net_properties(&side->net, 1, &properties), NET_INVALID_ARGUMENT);
    CHECK_EQUAL(net_properties(&side->net, -1, &properties), NET_INVALID_ARGUMENT);
    CHECK(side->net.device_registration == NULL);
    CHECK(side->net.receive_consumed == NULL);
}

static void test_properties(void **state)
{
    (void)state;
    for (int version = NET_VERSION_MIN; version <= NET_VERSION_MAX; version++) {
        pair_run(version, look, look, NULL, KILL_NOBODY, 240);
    }
}

static void refuse_as_sender(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *request = NULL, *registration = side_register(side, data, BYTES), *other = NULL;
    CHECK_EQUAL(side->net.send(side->comm, data, BYTES, 0, NULL, NULL, &request),
                NET_INVALID_USAGE);
    CHECK_EQUAL(side->net.send(side->comm, data, BYTES + 1, 0, registration, NULL, &request),
                NET_INVALID_USAGE);
    CHECK(request == NULL);
    /* memory of a GPU, which is off */
    CHECK_EQUAL(side->net.register_memory(side->comm, data, BYTES, NET_MEMORY_CUDA, &other),
                NET_INVALID_USAGE);
    /* what is no dma-buf */
    int fd = open("/dev/null", O_RDWR);
    CHECK(side->net.register_dmabuf(side->comm, data, 4096, NET_MEMORY_HOST, 0, fd, &other) !=
          NET_SUCCESS);
    close(fd);
    CHECK(other == NULL);
    /* and all is as before */
    side_finish(side, side_send(side, data, BYTES, 0, registration), NULL);
    side_deregister(side, registration);
    side_hear(side);
    side_close_sender(side);
}

static void refuse_as_receiver(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES), *request = NULL;
    void *all[9], *registrations[9];
    size_t bytes[9];
    int tags[9] = {0};
    for (int i = 0; i < 9; i++) {
        all[i] = data;
        registrations[i] = registration;
        bytes[i] = 16;
    }
    CHECK_EQUAL(side->net.receive(side->comm, 9, all, bytes, tags, registrations, NULL, &request),
                NET_INVALID_ARGUMENT);
    CHECK_EQUAL(side->net.receive(side->comm, 0, all, bytes, tags, registrations, NULL, &request),
                NET_INVALID_ARGUMENT);
    registrations[1] = NULL;
    CHECK_EQUAL(side->net.receive(side->comm, 2, all, bytes, tags, registrations, NULL, &request),
                NET_INVALID_USAGE);
    CHECK(request == NULL);
    bytes[0] = BYTES;
    int received = 0;
    request = side_receive(side, 1, all, bytes, tags, registrations);
    side_finish(side, request, &received);
    CHECK_EQUAL(received, BYTES);
    int done;
    CHECK_EQUAL(side->net.test(request, &done, NULL), NET_INTERNAL_ERROR); /* it is gone */
    side_tell(side);
    side_close_receiver(side);
}

static void test_refusals(void **state)
{
    (void)state;
    pair_run(12, refuse_as_receiver, refuse_as_sender, NULL, KILL_NOBODY, 240);
}

/* ---- Death ----------------------------------------------------------------------------------- */

static void *receive_one(struct side *side, void *data, size_t bytes, void *registration)
{
    int tag = 0;
    return side_receive(side, 1, &data, &bytes, &tag, &registration);
}

/* Whose peer is gone: open transfers fail, new ones do, or get no request and then fail. */
static void expect_end(struct side *side, void *request, bool sends, void *data, void *registration)
{
    double begin = now_seconds();
    CHECK_EQUAL(side_outcome(side, request, NOTICED_SECONDS), NET_REMOTE_ERROR);
    CHECK(now_seconds() - begin < NOTICED_SECONDS);
    int result = NET_SUCCESS;
    while (result == NET_SUCCESS) {
        void *more = NULL;
        size_t bytes = BYTES;
        int tag = 0;
        result = sends ? side->net.send(side->comm, data, BYTES, tag, registration, NULL, &more)
                       : side->net.receive(side->comm, 1, &data, &bytes, &tag, &registration, NULL,
                                           &more);
        if (result == NET_SUCCESS && more != NULL) {
            result = side_outcome(side, more, NOTICED_SECONDS);
            CHECK(result != NET_SUCCESS);
        }
        CHECK(now_seconds() - begin < 2 * NOTICED_SECONDS);
    }
    CHECK_EQUAL(result, NET_REMOTE_ERROR);
    CHECK(warnings > 0);
}

static void outlive_sender(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    side_finish(side, receive_one(side, data, BYTES, registration), NULL);
    CHECK(pattern_is(data, BYTES, 1));
    void *request = receive_one(side, data, BYTES, registration);
    side_tell(side); /* to be killed */
    expect_end(side, request, false, data, registration);
    side_deregister(side, registration);
    side_close_receiver(side);
}

static void die_as_sender(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    pattern_fill(data, BYTES, 1);
    side_finish(side, side_send(side, data, BYTES, 0, registration), NULL);
    side_hear(side);
    side_ask_for_death(side);
}

static void test_sender_dies(void **state)
{
    (void)state;
    for (int version = NET_VERSION_MIN; version <= NET_VERSION_MAX;
         version += NET_VERSION_MAX - NET_VERSION_MIN) {
        pair_run(version, outlive_sender, die_as_sender, NULL, KILL_SENDER, 240);
    }
}

static void outlive_receiver(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    void *request = side_send(side, data, BYTES, 0, registration); /* waits for a receive */
    side_tell(side);
    expect_end(side, request, true, data, registration);
    side_deregister(side, registration);
    side_close_sender(side);
}

static void die_as_receiver(struct side *side)
{
    side_accept(side);
    side_hear(side);
    side_ask_for_death(side);
}

static void test_receiver_dies(void **state)
{
    (void)state;
    pair_run(12, die_as_receiver, outlive_receiver, NULL, KILL_RECEIVER, 240);
}

/* ---- Leaving --------------------------------------------------------------------------------- */

static void stay_as_receiver(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(2 * BYTES);
    void *registration = side_register(side, data, 2 * BYTES);
    void *first = receive_one(side, data, BYTES, registration);
    void *second = receive_one(side, data + BYTES, BYTES, registration);
    side_hear(side); /* the sender has closed; what it sent is here all the same */
    int bytes = 0;
    side_finish(side, first, &bytes);
    CHECK_EQUAL(bytes, BYTES / 2);
    CHECK(pattern_is(data, BYTES / 2, 3));
    expect_end(side, second, false, data + BYTES, registration);
    side_close_receiver(side);
}

static void leave_as_sender(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    pattern_fill(data, BYTES, 3);
    side_finish(side, side_send(side, data, BYTES / 2, 0, registration), NULL);
    side_close_sender(side);
    side_tell(side);
}

static void test_sender_leaves(void **state)
{
    (void)state;
    pair_run(12, stay_as_receiver, leave_as_sender, NULL, KILL_NOBODY, 240);
}

/* An aborted communicator: registrations go first, then the comm, with transfers open. */
static void abort_as_receiver(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    CHECK(receive_one(side, data, BYTES, registration) != NULL);
    side_hear(side);
    side_deregister(side, registration);
    side_close_receiver(side);
    side_tell(side);
}

static void abort_as_sender(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    CHECK(side_send(side, data, BYTES, 5, registration) != NULL); /* a tag nobody receives */
    side_tell(side);
    side_hear(side);
    side_deregister(side, registration);
    side_close_sender(side);
}

static void test_abort(void **state)
{
    (void)state;
    pair_run(12, abort_as_receiver, abort_as_sender, NULL, KILL_NOBODY, 240);
}

/* ---- Too long -------------------------------------------------------------------------------- */

static void receive_too_little(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    memset(data, 0x5a, BYTES);
    CHECK_EQUAL(side_outcome(side, receive_one(side, data, 1000, registration), NOTICED_SECONDS),
                NET_INVALID_USAGE);
    CHECK(all_are(data + 1000, BYTES - 1000, 0x5a));
    side_tell(side);
    side_close_receiver(side);
}

static void send_too_much(struct side *side)
{
    side_connect(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    CHECK_EQUAL(side_outcome(side, side_send(side, data, 1001, 0, registration), NOTICED_SECONDS),
                NET_INVALID_USAGE);
    side_hear(side);
    side_close_sender(side);
}

static void test_too_long(void **state)
{
    (void)state;
    pair_run(12, receive_too_little, send_too_much, NULL, KILL_NOBODY, 240);
}

/* ---- Not connected --------------------------------------------------------------------------- */

static int connect_until_it_fails(struct side *side, void *handle, double seconds)
{
    double end = now_seconds() + seconds;
    void *comm = NULL;
    int result = NET_SUCCESS;
    while (result == NET_SUCCESS) {
        result = net_connect(&side->net, 0, handle, &comm);
        CHECK(comm == NULL);
        CHECK(now_seconds() < end);
    }
    return result;
}

static void listen_and_stop(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
    CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
    side_send_handle(side, handle);
    side_hear(side);
}

static void connect_to_nobody(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    side_take_handle(side, handle);
    CHECK_EQUAL(connect_until_it_fails(side, handle, 90), NET_REMOTE_ERROR);
    memset(handle, 0, sizeof(handle)); /* another plugin's */
    void *comm = NULL;
    CHECK_EQUAL(net_connect(&side->net, 0, handle, &comm), NET_INVALID_ARGUMENT); /* at once */
    CHECK(comm == NULL);
    side_tell(side);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    pair_run(12, listen_and_stop, connect_to_nobody, NULL, KILL_NOBODY, 240);
}

/* The token is bytes 8 to 23 of the handle. */
static void connect_as_stranger_first(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES], wrong[NET_HANDLE_BYTES];
    side_take_handle(side, handle);
    memcpy(wrong, handle, sizeof(wrong));
    wrong[10] ^= 1;
    CHECK_EQUAL(connect_until_it_fails(side, wrong, 90), NET_REMOTE_ERROR);
    while (side->comm == NULL) {
        CHECK_EQUAL(net_connect(&side->net, 0, handle, &side->comm), NET_SUCCESS);
    }
    side_tell(side);
    uint8_t *data = pages(BYTES);
    pattern_fill(data, BYTES, 9);
    side_finish(side, side_send(side, data, BYTES, 0, side_register(side, data, BYTES)), NULL);
    side_hear(side);
    side_close_sender(side);
}

static void accept_the_right_one(struct side *side)
{
    side_accept(side);
    uint8_t *data = pages(BYTES);
    side_finish(side, receive_one(side, data, BYTES, side_register(side, data, BYTES)), NULL);
    CHECK(pattern_is(data, BYTES, 9));
    side_tell(side);
    side_close_receiver(side);
}

static void test_stranger(void **state)
{
    (void)state;
    pair_run(12, accept_the_right_one, connect_as_stranger_first, NULL, KILL_NOBODY, 240);
}

/* Connects that were begun and given up end with the last finalize; so does a listen comm in the middle
 * of an accept. */
static void give_up_connecting(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    void *comm = NULL;
    side_take_handle(side, handle);
    CHECK_EQUAL(net_connect(&side->net, 0, handle, &comm), NET_SUCCESS);
    side_tell(side);
    side_hear(side);
}

static void give_up_accepting(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    void *comm = NULL, *device_comm = NULL;
    CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
    side_send_handle(side, handle);
    side_hear(side);
    for (int i = 0; i < 50 && comm == NULL; i++) {
        CHECK_EQUAL(side->net.accept(side->listen_comm, &comm, &device_comm), NET_SUCCESS);
        usleep(2000);
    }
    CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
    CHECK_EQUAL(side->net.close_receive(comm), NET_SUCCESS);
    side_tell(side);
}

static void test_given_up(void **state)
{
    (void)state;
    pair_run(12, give_up_accepting, give_up_connecting, NULL, KILL_NOBODY, 240);
}

/* The listen comm may go first, and one listen comm may take several. */
static void accept_twice(struct side *side)
{
    side_accept(side);
    void *first = side->comm;
    side->comm = NULL;
    side_accept(side);
    void *second = side->comm;
    CHECK(first != second);
    CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
    uint8_t *data = pages(BYTES);
    for (int i = 0; i < 2; i++) {
        side->comm = i == 0 ? second : first;
        void *registration = side_register(side, data, BYTES);
        side_finish(side, receive_one(side, data, BYTES, registration), NULL);
        CHECK(pattern_is(data, BYTES, (uint64_t)i));
        side_tell(side);
        side_deregister(side, registration);
        CHECK_EQUAL(side->net.close_receive(side->comm), NET_SUCCESS);
    }
}

static void connect_twice(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    void *comms[2] = {NULL, NULL};
    side_take_handle(side, handle);
    for (int i = 0; i < 2; i++) {
        while (comms[i] == NULL) {
            CHECK_EQUAL(net_connect(&side->net, 0, handle, &comms[i]), NET_SUCCESS);
        }
        side_tell(side);
    }
    uint8_t *data = pages(BYTES);
    for (int i = 0; i < 2; i++) {
        side->comm = comms[1 - i];
        pattern_fill(data, BYTES, (uint64_t)i);
        side_finish(side, side_send(side, data, BYTES, 0, side_register(side, data, BYTES)), NULL);
        side_hear(side);
        side_close_sender(side);
    }
}

static void test_two_of_one_listener(void **state)
{
    (void)state;
    pair_run(12, accept_twice, connect_twice, NULL, KILL_NOBODY, 240);
}

int main(void)
{
    signals_as_usual();
    char rails[140];
    snprintf(rails, sizeof(rails), "%s,%s", place_device(0), place_device(1));
    setenv("COPYRPC_NCCL_RAILS", rails, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sender_dies),
        cmocka_unit_test(test_receiver_dies),
        cmocka_unit_test(test_sender_leaves),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_two_of_one_listener),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("HARNESS_FILTER")); /* of one test: "test_groups" */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

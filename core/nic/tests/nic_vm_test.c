/* nic_vm_test.c: a driver on a real device, wherever place.h says: two nics of one process talk to
 * each other over the first rail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include "place.h"
#include "signals.h"
#include <arpa/inet.h>
#include "pair.h"
#include "vm_tests.h"

/* ---- Devices --------------------------------------------------------------------------------- */

static void test_query(void **state)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    uint64_t card = 0;
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(nic_query(i, &info, &error), CRPC_OK);
        assert_int_equal(info.struct_size, sizeof(info));
        assert_string_equal(info.name, place_device((int)i));
        assert_int_equal(info.port, 1);
        assert_int_equal(info.port_count, 1);
        assert_int_equal(info.port_state, CRPC_PORT_ACTIVE);
        assert_int_equal(info.link, CRPC_LINK_ETHERNET);
        assert_true(info.drivers & 1u << CRPC_DRIVER_VERBS);
        assert_int_equal(info.drivers >> CRPC_DRIVER_MLX5 & 1, place_is_mlx5());
        assert_true(info.mtu_bytes >= 1024 && info.endpoints_max > 0);
        assert_true(info.receive_depth_max >= 1024);
        /* RoCE v2 with an IPv4 address: ::ffff:a.b.c.d */
        uint8_t ipv4[4];
        assert_int_equal(inet_pton(AF_INET, place_address((int)i), ipv4), 1);
        assert_memory_equal(info.gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        assert_memory_equal(info.gid + 12, ipv4, 4);
        assert_true(info.link_mbps >= 1000 && info.link_mbps % 500 == 0);
        assert_true(info.system_image_guid != 0 && info.system_image_guid != card);
        card = info.system_image_guid;
        print_message("# %s: MTU %u, %u QPs, receive depth %u, GID index %u, %u Mbit/s\n",
                      info.name, info.mtu_bytes, info.endpoints_max, info.receive_depth_max,
                      info.gid_index, info.link_mbps);
    }
    assert_int_equal(nic_query(2, &info, &error), CRPC_E_NO_DEVICE);
    assert_non_null(strstr(error.message, "2 RDMA port"));
}

static void expect_open(struct nic_options options, uint32_t driver, int32_t status,
                        const char *says)
{
    struct nic *nic = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(nic_open(driver, &options, &nic, &error), status);
    assert_null(nic);
    print_message("# %s\n", error.message);
    assert_non_null(strstr(error.message, says));
}

static void test_open_refused(void **state)
{
    struct nic_options options = pair_options();
    (void)state;
    strcpy(options.device, "mlx5_7");
    expect_open(options, CRPC_DRIVER_AUTO, CRPC_E_NO_DEVICE, place_device(0));
    options = pair_options();
    options.port = 9;
    expect_open(options, CRPC_DRIVER_AUTO, CRPC_E_NO_DEVICE, "no port 9");
    options = pair_options();
    options.gid_index_given = true;
    options.gid_index = 77;
    expect_open(options, CRPC_DRIVER_AUTO, CRPC_E_INVALID, "no GID at index 77");
    options = pair_options();
    expect_open(options, 77, CRPC_E_UNSUPPORTED, "not in this build");
    if (!place_is_mlx5()) {
        expect_open(options, CRPC_DRIVER_MLX5, CRPC_E_UNSUPPORTED, "use CRPC_DRIVER_AUTO");
    }
}

static void test_open(void **state)
{
    struct nic_options options = pair_options();
    (void)state;
    options.device[0] = '\0';
    options.receive_depth = 0;
    options.send_completion_depth = 1u << 30;
    struct nic *nic = pair_open_nic(&options);
    print_message("# %s: inline %u, receive depth %u, send CQ %u, send depth %u\n", nic->device,
                  nic->inline_bytes_max, nic->receive_depth, nic->send_completion_depth,
                  nic->send_depth);
    assert_int_equal(nic->link, CRPC_LINK_ETHERNET);
    crpc_device_info info = {.struct_size = sizeof(info)};
    assert_int_equal(nic_query(0, &info, NULL), CRPC_OK);
    assert_int_equal(nic->link_mbps, info.link_mbps);
    assert_int_equal(nic->system_image_guid, info.system_image_guid);
    assert_in_range(nic->message_bytes_max, 1u << 20, NIC_MESSAGE_BYTES_MAX);
    assert_int_equal(nic->receive_depth, 16384);
    assert_int_equal(nic->receives_posted, nic->receive_depth);
    assert_true(nic->send_completion_depth >= 1024 && nic->send_completion_depth < 1u << 30);
    assert_true(nic->inline_bytes_max >= 64);
    bool direct = pair_driver() == CRPC_DRIVER_MLX5;
    assert_int_equal(nic->features,
                     (direct ? CRPC_FEATURE_BLUEFLAME : 0) |
                         (direct && place_compresses() ? CRPC_FEATURE_CQE_COMPRESSION : 0));
    assert_true(nic->event_fd >= 0);
    nic->operations->close(nic);

    options = pair_options();
    options.gid_index_given = true;
    options.gid_index = 0;
    nic = pair_open_nic(&options);
    assert_int_equal(nic->gid_index, 0);
    nic->operations->close(nic);
}

/* ---- Transfers ------------------------------------------------------------------------------- */

static void test_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, most, most + 1, 4096, 4097, 1u << 20};
    const uint32_t cases = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < PAIR_BYTES; i++) {
        pair->source[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (uint32_t i = 0; i < cases; i++) {
        struct nic_transfer write = pair_write(pair, 3, 5, sizes[i], 0xfeed0000u + i);
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, i + 1);
        const struct nic_completion *completion = inbox_last(&pair->far);
        assert_int_equal(completion->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(completion->queue_pair_number, pair->receiver->number);
        assert_int_equal(completion->immediate, 0xfeed0000u + i);
        assert_int_equal(completion->byte_count, sizes[i]);
        assert_memory_equal(pair->ring + 5, pair->source + 3, sizes[i]);
        assert_int_equal(pair->ring[4], 0xaa);
        assert_int_equal(pair->ring[5 + sizes[i]], 0xaa);
        inbox_wait_completed(&pair->near, pair->sender, i + 1);
    }
    assert_int_equal(pair->sender->stats.inline_wqes, 4);
    assert_int_equal(pair->sender->stats.wqes, cases);
    assert_int_equal(pair->sender->stats.signaled_wqes, cases);
    assert_int_equal(pair->far.nic->receives_posted, pair->far.nic->receive_depth - cases);
}

static void test_read(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_transfer read = pair_write(pair, 128, 0, 64, 0);
    read.remote_address = (uint64_t)(uintptr_t)pair->box;
    read.remote_key = pair->box_memory.remote_key;
    for (uint32_t i = 0; i < 64; i++) {
        pair->box[i] = (uint8_t)(i + 100);
    }
    operations->post_read(pair->sender, &read, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->near, 1);
    assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_SEND);
    assert_memory_equal(pair->source + 128, pair->box, 64);
    inbox_expect_silence(&pair->far); /* the peer notices nothing */
}

/* One in eight asks for a completion, and each speaks for all before it. */
static void test_signaling(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 20; i++) {
        struct nic_transfer write = pair_write(pair, 0, 64 * i, 32, i);
        operations->post_write_immediate(pair->sender, &write, 0);
    }
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 20);
    inbox_wait_completed(&pair->near, pair->sender, 16);
    inbox_expect_silence(&pair->near);
    assert_int_equal(pair->near.count, 2);
    assert_int_equal(pair->near.completions[0].completed, 8);
    assert_int_equal(pair->near.completions[1].completed, 16);
    assert_int_equal(nic_send_room(pair->sender), 60);
    /* The portable driver hands over chains of four. */
    assert_int_equal(pair->sender->stats.doorbells, pair_driver() == CRPC_DRIVER_MLX5 ? 1 : 5);

    struct nic_transfer write = pair_write(pair, 0, 0, 32, 20);
    operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, 21);
    assert_int_equal(nic_send_room(pair->sender), 64);
    assert_int_equal(pair->sender->stats.signaled_wqes, 3);
    inbox_wait(&pair->far, 21);
    for (uint32_t i = 0; i <= 20; i++) {
        assert_int_equal(pair->far.completions[i].immediate, i);
    }
}

/* A thousand writes against 600 receives, taken and refilled as the engine does. */
static void test_refill(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic *far = pair->far.nic;
    uint32_t sent = 0;
    while (sent < 1000) {
        while (sent < 1000 && nic_send_room(pair->sender) > 0 && sent < pair->far.count + 100) {
            struct nic_transfer write = pair_write(pair, 0, 0, 16, sent++);
            operations->post_write_immediate(pair->sender, &write, 0);
        }
        operations->ring_doorbell(pair->sender);
        inbox_poll(&pair->near);
        inbox_poll(&pair->far);
        if (far->receives_posted < nic_receive_low_mark(far)) {
            operations->refill(far);
            assert_int_equal(far->receives_posted, far->receive_depth);
        }
    }
    inbox_wait(&pair->far, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(pair->far.completions[i].immediate, i);
    }
    operations->refill(far);
    assert_int_equal(far->receive_wqes, 1600);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

static void test_arm(void **state)
{
    struct pair *pair = *state;
    struct nic *far = pair->far.nic;
    const struct nic_operations *operations = far->operations;
    operations->disarm(far);             /* nothing there: must not block */
    for (uint32_t i = 0; i < 150; i++) { /* more than one batch of acknowledgements */
        struct nic_transfer write = pair_write(pair, 0, 0, 16, i);
        assert_false(readable(far->event_fd, 0));
        assert_int_equal(operations->arm(far), 0);
        inbox_poll(&pair->far);
        assert_int_equal(pair->far.count, i);
        assert_false(readable(far->event_fd, 0));
        operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        assert_true(readable(far->event_fd, PAIR_WAIT_S * 1000));
        operations->disarm(far);
        assert_false(readable(far->event_fd, 0));
        inbox_poll(&pair->far);
        assert_int_equal(pair->far.count, i + 1);
        inbox_wait_completed(&pair->near, pair->sender, i + 1);
        operations->refill(far);
    }
    /* The sending side sleeps as well. */
    struct nic *near = pair->near.nic;
    assert_int_equal(operations->arm(near), 0);
    struct nic_transfer write = pair_write(pair, 0, 0, 16, 0);
    operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    assert_true(readable(near->event_fd, PAIR_WAIT_S * 1000));
    operations->disarm(near);
    inbox_wait_completed(&pair->near, pair->sender, 151);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_open),
        cmocka_unit_test_setup_teardown(test_write, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_plain_write, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_plain_signaling, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_large_write, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_dmabuf, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_read, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_signaling, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_refill, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_arm, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_key, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_access, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_plain_access, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_peer_gone, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_no_receive, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_flush, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_stray_send, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_pending, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_address, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_memory, pair_set_up, pair_tear_down),
        cmocka_unit_test(test_memlock),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    /* The last is about memory that is pinned. */
    size_t count = sizeof(tests) / sizeof(tests[0]) - (place_pins_memory() ? 0 : 1);
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

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
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "device_vectors.h"
#include "dc.h"
#include "leave_out.h"
#include "nic/device/device.h"
#include "pair.h"
#include "place.h"
#include "signals.h"

/* ---- Devices --------------------------------------------------------------------------------- */

/* RoCE v2 with an IPv4 address: ::ffff:a.b.c.d; or InfiniBand, with the GID that is always there. */
static void expect_addresses(const crpc_device_info *info, int rail)
{
    uint8_t ipv4[4];
    if (place_is_infiniband()) {
        assert_int_equal(info->link, CRPC_LINK_INFINIBAND);
        assert_int_equal(info->gid_index, 0);
        assert_int_equal(info->gid[0], 0xfe);
        return;
    }
    assert_int_equal(info->link, CRPC_LINK_ETHERNET);
    assert_int_equal(inet_pton(AF_INET, place_address(rail), ipv4), 1);
    assert_memory_equal(info->gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
    assert_memory_equal(info->gid + 12, ipv4, 4);
}

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
        expect_addresses(&info, (int)i);
        assert_true(info.drivers & 1u << CRPC_DRIVER_VERBS);
        assert_int_equal(info.drivers >> CRPC_DRIVER_MLX5 & 1, place_is_mlx5());
        assert_true(info.mtu_bytes >= 1024 && info.endpoints_max > 0);
        assert_true(info.receive_depth_max >= 1024);
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
    assert_int_equal(nic->link, place_is_infiniband() ? CRPC_LINK_INFINIBAND : CRPC_LINK_ETHERNET);
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
    assert_int_equal(to_device_nic(nic)->trouble_fd >= 0, place_compresses() > 1);
    assert_true(nic->event_fd >= 0);
    nic->operations->close(nic);

    options = pair_options();
    options.gid_index_given = true;
    options.gid_index = 0;
    nic = pair_open_nic(&options);
    assert_int_equal(nic->gid_index, 0);
    nic->operations->close(nic);
}

/* The direct driver takes what it can, and the portable one the rest. */
static void test_auto(void **state)
{
    const struct nic_options options = pair_options();
    struct nic *nic = NULL;
    (void)state;
    nic = pair_open_nic(&options);
    const bool has_srqs = nic->receive_queue_max == 0;
    nic->operations->close(nic);
    assert_int_equal(nic_open(CRPC_DRIVER_AUTO, &options, &nic, NULL), CRPC_OK);
    assert_int_equal(nic->operations->driver,
                     place_is_mlx5() && has_srqs ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS);
    nic->operations->close(nic);
}

/* ---- Memory and addresses --------------------------------------------------------------------- */

/* A file in memory, which simnic takes for one. */
static int make_file(size_t bytes)
{
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void test_dmabuf(void **state)
{
    struct pair *pair = *state;
    struct nic *far = pair->far.nic;
    const struct nic_operations *operations = far->operations;
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    const uint64_t address = 0x40001000; /* no place of this process */
    struct nic_keys memory = {0};
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t seen[3000];
    int fd = make_file(16384);
    int32_t status = operations->memory_register_dmabuf(far, NULL, fd, 4096, 8192, address, access,
                                                        &memory, &error);
    if (place_pins_memory()) { /* a kernel is not deceived, and Soft-RoCE's knows no dma-bufs */
        print_message("# %s\n", error.message);
        assert_true(status == CRPC_E_UNSUPPORTED || status == CRPC_E_INVALID);
        assert_non_null(strstr(error.message, "dma-buf"));
        assert_null(memory.driver);
        close(fd);
        return;
    }
    assert_int_equal(status, CRPC_OK);
    struct nic_transfer write = pair_write(pair, 7, 0, sizeof(seen), 0);
    struct nic_transfer last = pair_write(pair, 0, 0, 0, 1);
    write.remote_address = address + 4000;
    write.remote_key = memory.remote_key;
    for (uint32_t i = 0; i < PAIR_BYTES; i++) {
        pair->source[i] = (uint8_t)(i * 3 + 1);
    }
    operations->post_write(pair->sender, &write, 0);
    operations->post_write_immediate(pair->sender, &last, 0);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 1);
    assert_int_equal(pread(fd, seen, sizeof(seen), 8096), sizeof(seen));
    assert_memory_equal(seen, pair->source + 7, sizeof(seen));
    operations->memory_deregister(far, &memory);

    struct nic_keys from = {0};
    assert_int_equal(operations->memory_register_dmabuf(pair->near.nic, NULL, fd, 4096, 8192,
                                                        address, CRPC_ACCESS_LOCAL_WRITE, &from,
                                                        &error),
                     CRPC_OK);
    write = pair_write(pair, 0, 64, 8, 2);
    write.local_address = address + 4000;
    write.local_key = from.local_key;
    operations->post_foreign_write(pair->sender, &write, NIC_POST_SIGNALED | NIC_POST_IMMEDIATE);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 2);
    assert_memory_equal(pair->ring + 64, seen, 8);
    inbox_wait_completed(&pair->near, pair->sender, 3);
    operations->memory_deregister(pair->near.nic, &from);

    assert_int_equal(operations->memory_register_dmabuf(far, NULL, fd, 8192, 12288, address, access,
                                                        &memory, &error),
                     CRPC_E_INVALID);
    close(fd);
    assert_int_equal(operations->memory_register_dmabuf(far, NULL, fd, 0, 4096, address, access,
                                                        &memory, &error),
                     CRPC_E_INVALID);
    print_message("# %s\n", error.message);
    assert_null(memory.driver);
}

/* No peer of ours uses SEND; one that does is no peer of ours. It sends by libibverbs, which queue pairs that are made by DevX are
 * none of. */
static void test_stray_send(void **state)
{
    struct pair *pair = *state;
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_options options = pair_options();
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    struct nic_queue_pair *stranger, *receiver;
    options.enhanced_layout = false;
    struct nic *nic = pair_open_nic(&options);
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, PAIR_RECEIVES, &stranger, NULL),
                     CRPC_OK);
    assert_int_equal(
        nic_queue_pair_create(pair->far.nic, NULL, NULL, PAIR_RECEIVES, &receiver, NULL), CRPC_OK);
    pair_connect(stranger, receiver, &transport);
    uint32_t posted = pair->far.nic->receives_posted;
    assert_int_equal(ibv_post_send(device_qp(stranger), &send, &bad), 0);
    inbox_wait(&pair->far, 1);
    assert_int_equal(pair->far.completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(pair->far.completions[0].status, NIC_ERROR_OTHER);
    assert_int_equal(pair->far.completions[0].queue_pair_number, receiver->number);
    assert_true(receiver->failed);
    assert_int_equal(pair->far.nic->receives_posted, posted - 1);
    receiver->operations->queue_pair_destroy(receiver);
    stranger->operations->queue_pair_destroy(stranger);
    nic->operations->close(nic);
}

static void test_bad_address(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_address address;
    operations->queue_pair_address(pair->receiver, &address);
    assert_int_equal(address.link, pair->near.nic->link);
    assert_int_equal(address.queue_pair_number, pair->receiver->number);
    assert_true(nic_address_valid(&address));

    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    crpc_error error = {.struct_size = sizeof(error)};
    struct nic_queue_pair *queue_pair;
    memset(address.gid, 0, sizeof(address.gid));
    assert_int_equal(
        nic_queue_pair_create(pair->near.nic, NULL, NULL, PAIR_RECEIVES, &queue_pair, NULL), 0);
    /* On InfiniBand nobody asks whether there is such a GID. */
    int32_t expected = place_is_infiniband() ? CRPC_OK : CRPC_E_UNREACHABLE;
    assert_int_equal(operations->queue_pair_connect(queue_pair, &address, &transport, &error),
                     expected);
    print_message("# %s\n", error.message);
    assert_true(place_is_infiniband() || strstr(error.message, "no way"));
    operations->queue_pair_destroy(queue_pair);
}

static void test_bad_memory(void **state)
{
    struct pair *pair = *state;
    struct nic *nic = pair->near.nic;
    struct nic_keys memory = {0};
    crpc_error error = {.struct_size = sizeof(error)};
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, 4096);
    assert_int_equal(nic->operations->memory_register(nic, NULL, hole, 4096, 0,
                                                      CRPC_ACCESS_LOCAL_WRITE, &memory, &error),
                     CRPC_E_INVALID);
    print_message("# %s\n", error.message);
    assert_null(memory.driver);
    nic->operations->memory_deregister(nic, &memory);
}

/* Only processes without CAP_IPC_LOCK are limited, so the child becomes nobody. */
static int memlock_child(void)
{
    static uint8_t memory[1 << 20];
    struct nic_options options = pair_options();
    struct nic_keys region = {0};
    struct nic *nic = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    const struct rlimit limit = {.rlim_cur = 64 * 1024, .rlim_max = 64 * 1024};
    if (nic_open(pair_driver(), &options, &nic, &error) || setrlimit(RLIMIT_MEMLOCK, &limit) ||
        setresuid(65534, 65534, 65534)) {
        return 2;
    }
    int32_t status = nic->operations->memory_register(nic, NULL, memory, sizeof(memory), 0,
                                                      CRPC_ACCESS_LOCAL_WRITE, &region, &error);
    printf("# %s\n", error.message);
    fflush(stdout);
    return status == CRPC_E_MEMLOCK && error.os_error == ENOMEM &&
                   strstr(error.message, "RLIMIT_MEMLOCK is 64 KiB") &&
                   strstr(error.message, "1024 KiB") && strstr(error.message, "ulimit -l") &&
                   strstr(error.message, "LimitMEMLOCK") && strstr(error.message, "limits.d")
               ? 0
               : 1;
}

static void test_memlock(void **state)
{
    int status;
    (void)state;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(memlock_child());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void leave_out_all(struct CMUnitTest *tests, size_t count, const struct CMUnitTest *which,
                          size_t which_count, const char *why)
{
    for (size_t i = 0; i < which_count; i++) {
        leave_out(tests, count, which[i].test_func, why);
    }
}

/* Leaves out what the device has not. */
static void leave_out_missing(struct CMUnitTest *tests, size_t count)
{
    static const struct CMUnitTest dc[] = {DC_TESTS}, streams[] = {DC_STREAM_TESTS};
    static const struct CMUnitTest tags[] = {TAG_CONTRACT_TESTS}, atomics[] = {QUEUE_ATOMIC_TESTS};
    static const struct CMUnitTest dynamic[] = {DYNAMIC_CONTRACT_TESTS};
    static const struct CMUnitTest shared[] = {QUEUE_SHARED_TESTS};
    const struct nic_options options = pair_options();
    struct nic *nic = pair_open_nic(&options);
    if (strncmp(nic->device, "rxe", 3) == 0) {
        const char *why = "Soft-RoCE checks the bounds of the memory instead";
        leave_out(tests, count, test_window_before, why);
        leave_out(tests, count, test_window_behind, why);
    }
    if (!nic->dc) {
        leave_out_all(tests, count, dc, COUNT_OF(dc), "the device has no DC");
    }
    if (!nic->operations->queue_pair_create_dynamic || !nic->dc) {
        leave_out_all(tests, count, dynamic, COUNT_OF(dynamic),
                      "the driver or the device has no dynamic queue pairs");
    }
    if (nic->streams_max < DC_STREAMS) {
        leave_out_all(tests, count, streams, COUNT_OF(streams), "the device has no streams");
    }
    if (!nic->atomics) {
        leave_out_all(tests, count, atomics, COUNT_OF(atomics), "the device has no atomics");
    }
    if (nic->receive_queue_max > 0) {
        leave_out_all(tests, count, shared, COUNT_OF(shared), "the device has no SRQs");
        leave_out(tests, count, test_dc_missing, "the device has no SRQs");
    }
    if (nic->tags_max == 0) {
        leave_out_all(tests, count, tags, COUNT_OF(tags), "the device has no tags");
    }
    nic->operations->close(nic);
}

int main(void)
{
    signals_as_usual();
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_vector_given),
        cmocka_unit_test(test_vectors_spread),
        CONTRACT_TESTS,
        QUEUE_CONTRACT_TESTS,
        DC_CONTRACT_TESTS,
        DYNAMIC_CONTRACT_TESTS,
        PAIR_TEST(test_dmabuf),
        PAIR_TEST(test_stray_send),
        PAIR_TEST(test_bad_address),
        PAIR_TEST(test_bad_memory),
        cmocka_unit_test(test_memlock),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    /* The last is about memory that is pinned. */
    size_t count = COUNT_OF(tests) - (place_pins_memory() ? 0 : 1);
    leave_out_missing(tests, count);
    contract_leave_out(tests, count);
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

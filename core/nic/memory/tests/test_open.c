/* test_open.c: describing, opening and closing in-memory nics; numbers, registrations, failures. */
#include "common.h"

#include <sys/mman.h>
#include <unistd.h>

static struct nic_options small_options(const char *device)
{
    struct nic_options options = {.receive_depth = 8, .send_depth = 8, .signal_interval = 4};

    snprintf(options.device, sizeof(options.device), "%s", device);
    return options;
}

static void query_tells_two_ports(void **state)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    crpc_error error = {0};
    uint64_t guid;

    (void)state;
    assert_int_equal(OPERATIONS->query(0, &info, &error), CRPC_OK);
    assert_string_equal(info.name, "memory0");
    assert_int_equal(info.struct_size, sizeof(info));
    assert_int_equal(info.port, 1);
    assert_int_equal(info.port_count, 1);
    assert_int_equal(info.port_state, CRPC_PORT_ACTIVE);
    assert_int_equal(info.link, CRPC_LINK_ETHERNET);
    assert_int_equal(info.gid[15], 1);
    assert_int_equal(info.inline_bytes_max, 220);
    assert_int_equal(info.link_mbps, 100000);
    guid = info.system_image_guid;
    assert_int_not_equal(guid, 0);
    memory_fabric_options(memory_fabric_default())->devices_down = 2;
    assert_int_equal(OPERATIONS->query(1, &info, &error), CRPC_OK);
    assert_string_equal(info.name, "memory1");
    assert_int_equal(info.port_state, CRPC_PORT_DOWN);
    assert_int_not_equal(info.system_image_guid, guid);
    memory_fabric_options(memory_fabric_default())->system_image_guid[1] = guid;
    memory_fabric_options(memory_fabric_default())->link_mbps[1] = 0;
    assert_int_equal(OPERATIONS->query(1, &info, &error), CRPC_OK);
    assert_int_equal(info.system_image_guid, guid);
    assert_int_equal(info.link_mbps, 0);
    assert_int_equal(OPERATIONS->query(2, &info, &error), CRPC_E_NO_DEVICE);
    assert_int_equal(error.status, CRPC_E_NO_DEVICE);
    assert_true(error.message[0] != '\0');
    memory_fabric_reset_default();
}

static void assert_open(struct memory_fabric *fabric, struct nic_options options, int32_t status,
                        const char *device)
{
    struct nic *nic = NULL;
    crpc_error error = {0};

    assert_int_equal(memory_nic_open(fabric, &options, &nic, &error), status);
    assert_int_equal(error.status, status);
    if (status == CRPC_OK) {
        assert_string_equal(nic->device, device);
        assert_ptr_equal(memory_nic_fabric(nic), fabric);
        OPERATIONS->close(nic);
    }
}

static void open_chooses_the_device(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic_options options = small_options("");

    (void)state;
    assert_open(fabric, small_options(""), CRPC_OK, "memory0");
    assert_open(fabric, small_options("memory1"), CRPC_OK, "memory1");
    assert_open(fabric, small_options("memory2"), CRPC_E_NO_DEVICE, NULL);
    assert_open(fabric, small_options("mlx5_0"), CRPC_E_NO_DEVICE, NULL);
    memory_fabric_options(fabric)->devices_down = 1;
    assert_open(fabric, small_options(""), CRPC_OK, "memory1");
    assert_open(fabric, small_options("memory0"), CRPC_E_NO_DEVICE, NULL);
    memory_fabric_options(fabric)->devices = 0;
    assert_open(fabric, small_options(""), CRPC_E_NO_DEVICE, NULL);
    memory_fabric_options(fabric)->devices = 2;

    options.port = 1;
    assert_open(fabric, options, CRPC_OK, "memory1");
    options.port = 2;
    assert_open(fabric, options, CRPC_E_NO_DEVICE, NULL);
    options.port = 0;
    options.gid_index_given = true;
    options.gid_index = 3;
    assert_open(fabric, options, CRPC_OK, "memory1");
    options.gid_index = 4;
    assert_open(fabric, options, CRPC_E_INVALID, NULL);
    assert_int_equal(memory_fabric_counters(fabric)->nics, 0);
    memory_fabric_destroy(fabric);
}

static void open_grants_what_the_device_can(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic_options options = small_options("");
    struct nic *nic;

    (void)state;
    memory_fabric_options(fabric)->receive_depth_max = 100;
    memory_fabric_options(fabric)->send_completion_depth_max = 50;
    memory_fabric_options(fabric)->inline_bytes_max = 64;
    memory_fabric_options(fabric)->message_bytes_max = UINT32_MAX;
    options.receive_depth = 101;
    options.send_completion_depth = 51;
    options.signal_interval = 5;
    assert_int_equal(memory_nic_open(fabric, &options, &nic, NULL), CRPC_OK);
    assert_int_equal(nic->receive_depth, 100);
    assert_int_equal(nic->send_completion_depth, 50);
    assert_int_equal(nic->send_depth, 8);
    assert_int_equal(nic->signal_interval, 4);
    assert_int_equal(nic->inline_bytes_max, 64);
    assert_int_equal(nic->message_bytes_max, NIC_MESSAGE_BYTES_MAX);
    assert_int_equal(nic->link_mbps, 100000);
    assert_int_equal(nic->system_image_guid, memory_fabric_options(fabric)->system_image_guid[0]);
    assert_int_equal(nic->receives_posted, 0);
    assert_true(nic->event_fd >= 0);
    OPERATIONS->refill(nic);
    assert_int_equal(nic->receives_posted, 100);
    assert_int_equal(nic->receive_wqes, 100);
    OPERATIONS->refill(nic);
    assert_int_equal(nic->receive_wqes, 100);
    OPERATIONS->close(nic);
    memory_fabric_destroy(fabric);
}

static void operations_open_uses_the_default_fabric(void **state)
{
    const struct nic_options options = small_options("memory1");
    struct nic *nic;

    (void)state;
    assert_int_equal(OPERATIONS->open(&options, &nic, NULL), CRPC_OK);
    assert_ptr_equal(memory_nic_fabric(nic), memory_fabric_default());
    assert_int_equal(memory_fabric_options(memory_fabric_default())->mode, MEMORY_IMMEDIATE);
    assert_int_equal(nic->operations->driver, NIC_DRIVER_MEMORY);
    OPERATIONS->close(nic);
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->nics, 0);
    memory_fabric_reset_default();
    memory_fabric_reset_default();
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->left_open, 0);
    memory_fabric_reset_default();
}

/* ---- Queue pairs ----------------------------------------------------------------------------- */

static void numbers_go_round(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic *nic = open_nic(fabric), *other = open_nic(fabric);
    struct nic_queue_pair *first = create_queue_pair(nic), *second = create_queue_pair(other);

    (void)state;
    assert_int_equal(first->number, 17);
    assert_int_equal(second->number, 18);
    assert_ptr_equal(first->owner, nic);
    assert_int_equal(first->depth, DEPTH);
    assert_int_equal(nic_send_room(first), DEPTH);
    assert_ptr_equal(memory_fabric_find(fabric, 18), second);
    OPERATIONS->queue_pair_destroy(first);
    assert_null(memory_fabric_find(fabric, 17));
    assert_int_equal(create_queue_pair(nic)->number, 19);
    memory_fabric_destroy(fabric);
}

static void numbers_are_reused_if_wanted(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic *nic = open_nic(fabric);
    struct nic_queue_pair *first, *second;

    (void)state;
    memory_fabric_options(fabric)->reuse_numbers = true;
    memory_fabric_options(fabric)->first_number = 0xffffff;
    memory_fabric_options(fabric)->queue_pairs_max = 2;
    first = create_queue_pair(nic);
    second = create_queue_pair(nic);
    assert_int_equal(first->number, 0xffffff);
    assert_int_equal(second->number, 2); /* 24 bits are over; 0 and 1 are not for us */
    OPERATIONS->queue_pair_destroy(first);
    OPERATIONS->queue_pair_destroy(second);
    assert_int_equal(create_queue_pair(nic)->number, 2);
    assert_int_equal(create_queue_pair(nic)->number, 0xffffff);
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, 1, &first, NULL), CRPC_E_NO_RESOURCE);
    assert_int_equal(memory_fabric_counters(fabric)->queue_pairs, 2);
    memory_fabric_destroy(fabric);
}

static void connect_refuses_a_second_time(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic_queue_pair *queue_pair = create_queue_pair(open_nic(fabric));
    struct nic_address address;

    (void)state;
    OPERATIONS->queue_pair_address(queue_pair, &address);
    assert_int_equal(address.queue_pair_number, queue_pair->number);
    assert_int_equal(address.link, CRPC_LINK_ETHERNET);
    assert_int_equal(address.mtu_code, 5);
    assert_memory_equal(address.gid, queue_pair->nic->gid, 16);
    assert_int_equal(address.packet_sequence_number >> 24, 0);
    connect_one_way(queue_pair, queue_pair);
    assert_int_equal(OPERATIONS->queue_pair_connect(queue_pair, &address, &default_transport, NULL),
                     CRPC_E_STATE);
    memory_fabric_destroy(fabric);
}

static void close_counts_what_was_left(void **state)
{
    struct fixture *fixture = fixture_create(1, MEMORY_IMMEDIATE, 3);

    (void)state;
    OPERATIONS->close(fixture->a.nic);
    assert_int_equal(memory_fabric_counters(fixture->fabric)->left_open, 3 + 4);
    assert_int_equal(memory_fabric_counters(fixture->fabric)->queue_pairs, 3);
    assert_int_equal(memory_fabric_counters(fixture->fabric)->regions, 4);
    assert_int_equal(memory_fabric_counters(fixture->fabric)->nics, 1);
    fixture_destroy(fixture);
}

/* ---- Registrations --------------------------------------------------------------------------- */

static void registrations_have_their_own_keys(void **state)
{
    enum { COUNT = 40 };
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic *nics[2] = {open_nic(fabric), open_nic(fabric)};
    struct nic_keys memory[COUNT];
    uint8_t bytes[8];

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        memory[i] = register_memory(nics[i % 2], bytes, sizeof(bytes), 0);
        assert_non_null(memory[i].driver);
        assert_true(memory[i].local_key != memory[i].remote_key);
        for (uint32_t j = 0; j < i; j++) {
            assert_true(memory[i].local_key != memory[j].local_key);
            assert_true(memory[i].remote_key != memory[j].remote_key);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        OPERATIONS->memory_deregister(nics[i % 2], &memory[i]);
        assert_null(memory[i].driver);
        OPERATIONS->memory_deregister(nics[i % 2], &memory[i]); /* nothing */
    }
    assert_int_equal(memory_fabric_counters(fabric)->regions, 0);
    memory_fabric_destroy(fabric);
}

static void registration_refuses_nonsense(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic *nic = open_nic(fabric);
    struct nic_keys memory;
    uint8_t bytes[8];

    (void)state;
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 0, 0, 0, &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, SIZE_MAX, 0, 0, &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 8, 0, CRPC_ACCESS_REMOTE_WRITE,
                                                 &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 8, 0, CRPC_ACCESS_REMOTE_ATOMIC,
                                                 &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(memory_fabric_counters(fabric)->regions, 0);
    memory_fabric_destroy(fabric);
}

/* ---- dma-bufs -------------------------------------------------------------------------------- */

static void a_mapped_file_is_a_dmabuf(void **state)
{
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 100, 0);
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    struct nic_keys memory = {0};
    uint8_t *mapped, seen[100];
    uint64_t address;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8192), 0);
    mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    address = (uintptr_t)mapped + 4096;
    assert_int_equal(OPERATIONS->memory_register_dmabuf(f->b.nic, NULL, fd, 4096, 4096, address,
                                                        access, &memory, NULL),
                     CRPC_OK);
    fill(f->a.source, 100, 5);
    transfer.remote_address = address;
    transfer.remote_key = memory.remote_key;
    OPERATIONS->post_write(f->a.queue_pairs[0], &transfer, NIC_POST_SIGNALED);
    ring(f, 0);
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_int_equal(pread(fd, seen, 100, 4096), 100);
    assert_memory_equal(seen, f->a.source, 100);
    transfer.remote_address = (uintptr_t)mapped; /* before what was registered */
    OPERATIONS->post_write(f->a.queue_pairs[0], &transfer, NIC_POST_SIGNALED);
    ring(f, 0);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0], NIC_ERROR_REMOTE_ACCESS, 2);
    OPERATIONS->memory_deregister(f->b.nic, &memory);
    fixture_destroy(f);
    munmap(mapped, 8192);
    close(fd);
}

static void nonsense_is_no_dmabuf(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    struct nic *nic = open_nic(fabric);
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    struct nic_keys memory;

    (void)state;
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(
        OPERATIONS->memory_register_dmabuf(nic, NULL, fd, 4096, 4097, 4096, 0, &memory, NULL),
        CRPC_E_INVALID);
    assert_int_equal(
        OPERATIONS->memory_register_dmabuf(nic, NULL, fd, 8193, 1, 4096, 0, &memory, NULL),
        CRPC_E_INVALID);
    assert_int_equal(
        OPERATIONS->memory_register_dmabuf(nic, NULL, fd, 0, 0, 4096, 0, &memory, NULL),
        CRPC_E_INVALID);
    close(fd);
    assert_int_equal(
        OPERATIONS->memory_register_dmabuf(nic, NULL, fd, 0, 4096, 4096, 0, &memory, NULL),
        CRPC_E_INVALID);
    assert_int_equal(memory_fabric_counters(fabric)->regions, 0);
    memory_fabric_destroy(fabric);
}

/* ---- Planned failures ------------------------------------------------------------------------ */

static void the_nth_call_fails_once(void **state)
{
    struct memory_fabric *fabric = memory_fabric_create(1);
    const struct nic_options options = small_options("");
    struct nic_queue_pair *queue_pair;
    struct nic_address address;
    struct nic_keys memory;
    struct nic *nic;
    crpc_error error;
    uint8_t bytes[8];

    (void)state;
    memory_fabric_set_failures(fabric, MEMORY_FAIL_OPEN, 1, CRPC_E_MEMLOCK);
    assert_true(memory_fabric_failure_pending(fabric, MEMORY_FAIL_OPEN));
    assert_int_equal(memory_nic_open(fabric, &options, &nic, &error), CRPC_E_MEMLOCK);
    assert_int_equal(error.status, CRPC_E_MEMLOCK);
    assert_false(memory_fabric_failure_pending(fabric, MEMORY_FAIL_OPEN));
    assert_int_equal(memory_nic_open(fabric, &options, &nic, &error), CRPC_OK);

    memory_fabric_set_failures(fabric, MEMORY_FAIL_REGISTER, 2, CRPC_E_NO_RESOURCE);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 8, 0, 0, &memory, &error),
                     CRPC_OK);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 8, 0, 0, &memory, &error),
                     CRPC_E_NO_RESOURCE);
    assert_int_equal(OPERATIONS->memory_register(nic, NULL, bytes, 8, 0, 0, &memory, &error),
                     CRPC_OK);

    memory_fabric_set_failures(fabric, MEMORY_FAIL_CREATE, 1, CRPC_E_NO_MEMORY);
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, 1, &queue_pair, &error),
                     CRPC_E_NO_MEMORY);
    queue_pair = create_queue_pair(nic);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_SYSTEM);
    OPERATIONS->queue_pair_address(queue_pair, &address);
    assert_int_equal(
        OPERATIONS->queue_pair_connect(queue_pair, &address, &default_transport, &error),
        CRPC_E_SYSTEM);
    connect_one_way(queue_pair, queue_pair);

    memory_fabric_set_failures(fabric, MEMORY_FAIL_ARM, 1, CRPC_E_SYSTEM);
    assert_int_not_equal(OPERATIONS->arm(nic), 0);
    assert_int_equal(OPERATIONS->arm(nic), 0);
    memory_fabric_destroy(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_tells_two_ports),
        cmocka_unit_test(open_chooses_the_device),
        cmocka_unit_test(open_grants_what_the_device_can),
        cmocka_unit_test(operations_open_uses_the_default_fabric),
        cmocka_unit_test(numbers_go_round),
        cmocka_unit_test(numbers_are_reused_if_wanted),
        cmocka_unit_test(connect_refuses_a_second_time),
        cmocka_unit_test(close_counts_what_was_left),
        cmocka_unit_test(registrations_have_their_own_keys),
        cmocka_unit_test(registration_refuses_nonsense),
        cmocka_unit_test(a_mapped_file_is_a_dmabuf),
        cmocka_unit_test(nonsense_is_no_dmabuf),
        cmocka_unit_test(the_nth_call_fails_once),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic open", tests, NULL, NULL);
}

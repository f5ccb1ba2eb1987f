/* test_write.c: WRITEs without immediate, and memory that comes as a dma-buf. */
#include "common.h"

#include <sys/mman.h>
#include <unistd.h>

#define SEEDS 200u
#define LARGE_BYTES (16u << 20)

static void post_plain(struct fixture *f, const struct nic_transfer *transfer)
{
    OPERATIONS->post_write(f->a.queue_pairs[0], transfer, NIC_POST_SIGNALED);
    OPERATIONS->ring_doorbell(f->a.queue_pairs[0]);
}

static void check_tells_nobody(enum memory_mode mode)
{
    struct fixture *f = fixture_create(1, mode, 1);
    struct nic_transfer transfer = write_transfer(&f->a, &f->b, 8, 5, 0xdead);

    fill(f->a.source, RING_BYTES, 1);
    post_plain(f, &transfer);
    transfer.bytes = 0;
    post_plain(f, &transfer);
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 2);
    assert_memory_equal(f->b.written + 8, f->a.source + 8, 5);
    assert_int_equal(f->b.written[13], 0);
    assert_nothing(f->b.nic);
    assert_int_equal(f->b.nic->receives_posted, RECEIVES);
    assert_int_equal(counters(f)->plain_writes, 2);
    assert_int_equal(counters(f)->writes, 0);
    fixture_destroy(f);
}

static void a_plain_write_tells_nobody(void **state)
{
    (void)state;
    check_tells_nobody(MEMORY_IMMEDIATE);
    check_tells_nobody(MEMORY_SCHEDULED);
}

static void check_needs_no_receive(enum memory_mode mode)
{
    struct fixture *f = fixture_create(1, mode, 1);
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 8, 0);

    f->a.source[0] = 42;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        memory_fabric_write_immediate(f->fabric, f->b.queue_pairs[0]->number, 0, 0, 0, NULL, i);
    }
    post_plain(f, &transfer);
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_int_equal(f->b.written[0], 42);
    assert_int_equal(counters(f)->receiver_not_ready, 0);
    fixture_destroy(f);
}

static void a_plain_write_needs_no_receive(void **state)
{
    (void)state;
    check_needs_no_receive(MEMORY_IMMEDIATE);
    check_needs_no_receive(MEMORY_SCHEDULED);
}

/* What an immediate promises of the WRITEs before it. */
static void an_immediate_speaks_for_those_before(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, seed % 8 ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE, 1);
        const struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 1000, 0);
        struct nic_completion completion;
        memset(f->a.source, 9, RING_BYTES);
        post_plain(f, &transfer);
        post_write(f, 0, 1000, 0, 3, 0);
        ring(f, 0);
        while (OPERATIONS->poll(f->b.nic, &completion, 1) == 0) {
            if (memory_fabric_step(f->fabric) == MEMORY_STEP_QUIET) {
                fail_msg("seed %llu: no receive", (unsigned long long)seed);
            }
        }
        assert_int_equal(completion.immediate, 3);
        assert_memory_equal(f->b.written, f->a.source, 1000);
        fixture_destroy(f);
    }
}

static void check_refused(enum memory_mode mode, bool remotely)
{
    struct fixture *f = fixture_create(1, mode, 1);
    struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 8, 0);

    if (remotely) {
        transfer.remote_key = f->b.read_memory.remote_key;
    } else {
        transfer.local_key ^= 1;
    }
    post_plain(f, &transfer);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[0],
                 remotely ? NIC_ERROR_REMOTE_ACCESS : NIC_ERROR_LOCAL, 1);
    assert_int_equal(counters(f)->plain_writes, 0);
    fixture_destroy(f);
}

static void keys_bind_plain_writes_too(void **state)
{
    (void)state;
    check_refused(MEMORY_IMMEDIATE, true);
    check_refused(MEMORY_IMMEDIATE, false);
    check_refused(MEMORY_SCHEDULED, true);
    check_refused(MEMORY_SCHEDULED, false);
}

static void a_large_one_lands_whole(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    uint8_t *from = malloc(LARGE_BYTES), *to = calloc(1, LARGE_BYTES);
    struct nic_keys here, there;
    struct nic_transfer transfer;

    (void)state;
    assert_non_null(from);
    assert_non_null(to);
    for (uint32_t i = 0; i < LARGE_BYTES; i++) {
        from[i] = (uint8_t)(i * 7 + i / 4096);
    }
    here = register_memory(f->a.nic, from, LARGE_BYTES, 0);
    there = register_memory(f->b.nic, to, LARGE_BYTES,
                            CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE);
    transfer = (struct nic_transfer){
        .local_address = (uintptr_t)from,
        .local_key = here.local_key,
        .remote_address = (uintptr_t)to,
        .remote_key = there.remote_key,
        .bytes = LARGE_BYTES,
    };
    assert_int_equal(f->a.nic->message_bytes_max, NIC_MESSAGE_BYTES_MAX);
    post_plain(f, &transfer);
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_memory_equal(from, to, LARGE_BYTES);
    fixture_destroy(f);
    free(from);
    free(to);
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
    assert_int_equal(OPERATIONS->memory_register_dmabuf(f->b.nic, fd, 4096, 4096, address, access,
                                                        &memory, NULL),
                     CRPC_OK);
    fill(f->a.source, 100, 5);
    transfer.remote_address = address;
    transfer.remote_key = memory.remote_key;
    post_plain(f, &transfer);
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_int_equal(pread(fd, seen, 100, 4096), 100);
    assert_memory_equal(seen, f->a.source, 100);
    transfer.remote_address = (uintptr_t)mapped; /* before what was registered */
    post_plain(f, &transfer);
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
        OPERATIONS->memory_register_dmabuf(nic, fd, 4096, 4097, 4096, 0, &memory, NULL),
        CRPC_E_INVALID);
    assert_int_equal(OPERATIONS->memory_register_dmabuf(nic, fd, 8193, 1, 4096, 0, &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(OPERATIONS->memory_register_dmabuf(nic, fd, 0, 0, 4096, 0, &memory, NULL),
                     CRPC_E_INVALID);
    close(fd);
    assert_int_equal(OPERATIONS->memory_register_dmabuf(nic, fd, 0, 4096, 4096, 0, &memory, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(memory_fabric_counters(fabric)->regions, 0);
    memory_fabric_destroy(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_write_tells_nobody),
        cmocka_unit_test(a_plain_write_needs_no_receive),
        cmocka_unit_test(an_immediate_speaks_for_those_before),
        cmocka_unit_test(keys_bind_plain_writes_too),
        cmocka_unit_test(a_large_one_lands_whole),
        cmocka_unit_test(a_mapped_file_is_a_dmabuf),
        cmocka_unit_test(nonsense_is_no_dmabuf),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic write", tests, NULL, NULL);
}

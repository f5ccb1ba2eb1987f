/* write_vm_test.c: WRITEs without immediate, large ones, and memory that comes as a dma-buf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"
#include "place.h"
#include "vm_tests.h"

#define LARGE_BYTES (16u << 20)

/* Each is there when the receive of a WRITE with immediate after it is polled, and uses none. */
void test_plain_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, most, most + 1, 4096, 4097, 1u << 20};
    const uint32_t cases = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < 4 * cases; i++) {
        uint32_t bytes = sizes[i % cases];
        bool ring_between = i / cases % 2 == 1;
        struct nic_transfer plain = pair_write(pair, 3, 5, bytes, 0xdead);
        struct nic_transfer last = pair_write(pair, 0, PAIR_BYTES - 8, i % 2 ? 8 : 0, i);
        memset(pair->source, (int)i + 1, PAIR_BYTES);
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_write(pair->sender, &plain, 0);
        if (ring_between) {
            operations->ring_doorbell(pair->sender);
        }
        operations->post_write_immediate(pair->sender, &last, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, i + 1);
        assert_memory_equal(pair->ring + 5, pair->source + 3, bytes);
        assert_int_equal(pair->ring[4], 0xaa);
        assert_int_equal(pair->ring[5 + bytes], 0xaa);
        assert_int_equal(inbox_last(&pair->far)->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(inbox_last(&pair->far)->immediate, i);
        assert_int_equal(inbox_last(&pair->far)->byte_count, last.bytes);
        inbox_wait_completed(&pair->near, pair->sender, 2 * (i + 1));
    }
    assert_int_equal(pair->sender->stats.inline_wqes, 4 * cases + 4 * 4);
    assert_int_equal(pair->far.nic->receives_posted, pair->far.nic->receive_depth - 4 * cases);
}

/* One that asks for its own completion gets it, the others are covered by it. */
void test_plain_signaling(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 12; i++) {
        struct nic_transfer write = pair_write(pair, 0, 64 * i, 32, 0);
        operations->post_write(pair->sender, &write, i == 2 ? NIC_POST_SIGNALED : 0);
    }
    operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, 11); /* 3, and one in eight after it */
    inbox_expect_silence(&pair->near);
    assert_int_equal(pair->near.count, 2);
    assert_int_equal(pair->near.completions[0].completed, 3);
    inbox_expect_silence(&pair->far);
}

/* In one piece where the port has messages of that length: simnic's has, Soft-RoCE's has not. */
void test_large_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->message_bytes_max;
    uint8_t *from = pair_map(LARGE_BYTES);
    uint8_t *to = pair_map(LARGE_BYTES);
    struct nic_keys from_memory, to_memory;
    uint32_t posted = 0;
    pair_enroll(pair->near.nic, from, LARGE_BYTES, 0, &from_memory);
    pair_enroll(pair->far.nic, to, LARGE_BYTES, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                &to_memory);
    for (uint32_t i = 0; i < LARGE_BYTES / 4; i++) {
        ((uint32_t *)(void *)from)[i] = i * 2654435761u;
    }
    assert_in_range(most, 1u << 20, NIC_MESSAGE_BYTES_MAX);
    for (uint32_t at = 0; at < LARGE_BYTES; at += most) {
        const struct nic_transfer piece = {
            .local_address = (uint64_t)(uintptr_t)from + at,
            .remote_address = (uint64_t)(uintptr_t)to + at,
            .bytes = LARGE_BYTES - at < most ? LARGE_BYTES - at : most,
            .local_key = from_memory.local_key,
            .remote_key = to_memory.remote_key,
        };
        operations->post_write(pair->sender, &piece, 0);
        posted++;
    }
    struct nic_transfer last = pair_write(pair, 0, 0, 0, 16);
    operations->post_write_immediate(pair->sender, &last, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 1);
    assert_int_equal(inbox_last(&pair->far)->immediate, 16);
    assert_memory_equal(from, to, LARGE_BYTES);
    inbox_wait_completed(&pair->near, pair->sender, posted + 1);
    print_message("# %u bytes in %u WQEs\n", LARGE_BYTES, posted);
    operations->memory_deregister(pair->near.nic, &from_memory);
    operations->memory_deregister(pair->far.nic, &to_memory);
    munmap(from, LARGE_BYTES);
    munmap(to, LARGE_BYTES);
}

/* ---- dma-bufs -------------------------------------------------------------------------------- */

/* A file in memory, which simnic takes for one. */
static int make_file(size_t bytes)
{
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

void test_dmabuf(void **state)
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
    int32_t status =
        operations->memory_register_dmabuf(far, fd, 4096, 8192, address, access, &memory, &error);
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

    assert_int_equal(
        operations->memory_register_dmabuf(far, fd, 8192, 12288, address, access, &memory, &error),
        CRPC_E_INVALID);
    close(fd);
    assert_int_equal(
        operations->memory_register_dmabuf(far, fd, 0, 4096, address, access, &memory, &error),
        CRPC_E_INVALID);
    print_message("# %s\n", error.message);
    assert_null(memory.driver);
}

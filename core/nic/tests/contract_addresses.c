/* contract_addresses.c: memory that peers find at another address than this process does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "contract.h"
#include "pair.h"

#define BYTES (16u * 4096)
#define MEMORIES 2u

/* Memory of the far side. Its addresses are as core/link chooses them, and 2^62 is the lowest of those. */
struct hidden {
    uint8_t *bytes[MEMORIES];
    uint64_t address[MEMORIES];
    struct nic_keys keys[MEMORIES];
};

static void hide(struct pair *pair, struct hidden *hidden)
{
    static const uint64_t addresses[MEMORIES] = {UINT64_C(0x4000000000000000),
                                                 UINT64_C(0x7fffffffff000000)};
    struct nic *far = pair->far.nic;
    for (uint32_t i = 0; i < MEMORIES; i++) {
        hidden->bytes[i] = pair_map(BYTES);
        hidden->address[i] = addresses[i];
        hidden->keys[i] = (struct nic_keys){0};
        assert_int_equal(
            far->operations->memory_register(far, NULL, hidden->bytes[i], BYTES, addresses[i],
                                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                                 CRPC_ACCESS_REMOTE_READ,
                                             &hidden->keys[i], NULL),
            CRPC_OK);
    }
}

static void unhide(struct pair *pair, struct hidden *hidden)
{
    for (uint32_t i = 0; i < MEMORIES; i++) {
        pair->far.nic->operations->memory_deregister(pair->far.nic, &hidden->keys[i]);
        munmap(hidden->bytes[i], BYTES);
    }
}

static struct nic_transfer transfer_to(const struct pair *pair, const struct hidden *hidden,
                                       uint32_t which, uint32_t offset, uint32_t bytes)
{
    struct nic_transfer transfer = pair_write(pair, 0, 0, bytes, 7);
    transfer.remote_address = hidden->address[which] + offset;
    transfer.remote_key = hidden->keys[which].remote_key;
    return transfer;
}

/* What becomes of a transfer by the pair's queue pairs. */
static enum nic_error outcome(struct pair *pair)
{
    pair->near.count = 0;
    pair->near.nic->operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
    const struct nic_completion *last = inbox_last(&pair->near);
    return last->kind == NIC_COMPLETION_SEND ? NIC_ERROR_NONE : (enum nic_error)last->status;
}

static void expect_bytes(const struct hidden *hidden, uint32_t which, uint32_t offset,
                         uint32_t bytes, uint8_t value)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(hidden->bytes[which][i], i - offset < bytes ? value : 0);
    }
}

void test_other_address(void **state)
{
    static const uint32_t places[][2] = {{0, 32},          {100, 1},   {4090, 12},
                                         {BYTES - 32, 32}, {0, BYTES}, {5000, BYTES - 9000}};
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct hidden hidden;
    hide(pair, &hidden);
    for (uint32_t i = 0; i < 3 * sizeof(places) / sizeof(places[0]); i++) {
        uint32_t which = i % MEMORIES, offset = places[i / 3][0], bytes = places[i / 3][1];
        struct nic_transfer transfer = transfer_to(pair, &hidden, which, offset, bytes);
        uint8_t value = (uint8_t)(0x51 + i);
        memset(hidden.bytes[which], i % 3 == 2 ? value : 0, BYTES);
        memset(pair->source, i % 3 == 2 ? 0 : value, BYTES);
        if (i % 3 == 0) {
            operations->post_write(pair->sender, &transfer, NIC_POST_SIGNALED);
        } else if (i % 3 == 1) {
            operations->post_write_immediate(pair->sender, &transfer, NIC_POST_SIGNALED);
        } else {
            operations->post_read(pair->sender, &transfer, NIC_POST_SIGNALED);
        }
        assert_int_equal(outcome(pair), NIC_ERROR_NONE);
        if (i % 3 == 2) {
            assert_int_equal(pair->source[0], value);
            assert_memory_equal(pair->source, hidden.bytes[which] + offset, bytes);
        } else {
            expect_bytes(&hidden, which, offset, bytes, value);
        }
    }
    unhide(pair, &hidden);
}

/* Each time the queue pairs die of it. */
static void expect_refused(struct pair *pair, const struct hidden *hidden, uint64_t address,
                           uint32_t key)
{
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 3; i++) {
        struct nic_transfer transfer = pair_write(pair, 0, 0, 32, 7);
        transfer.remote_address = address;
        transfer.remote_key = key;
        memset(pair->source, 0xee, 32);
        pair_reconnect(pair);
        if (i == 0) {
            operations->post_write(pair->sender, &transfer, NIC_POST_SIGNALED);
        } else if (i == 1) {
            operations->post_write_immediate(pair->sender, &transfer, NIC_POST_SIGNALED);
        } else {
            operations->post_read(pair->sender, &transfer, NIC_POST_SIGNALED);
        }
        assert_int_equal(outcome(pair), NIC_ERROR_REMOTE_ACCESS);
        assert_int_equal(pair->source[0], 0xee);
        for (uint32_t which = 0; which < MEMORIES; which++) {
            expect_bytes(hidden, which, 0, 0, 0);
        }
    }
}

/* Whoever has the key and knows where the memory is in the process, or in that of another key. */
void test_own_address(void **state)
{
    struct pair *pair = *state;
    struct hidden hidden;
    hide(pair, &hidden);
    for (uint32_t which = 0; which < MEMORIES; which++) {
        uint32_t key = hidden.keys[which].remote_key;
        uint64_t address = hidden.address[which];
        expect_refused(pair, &hidden, (uint64_t)(uintptr_t)hidden.bytes[which], key);
        expect_refused(pair, &hidden, hidden.address[!which], key);
        expect_refused(pair, &hidden, address - 1, key);
        expect_refused(pair, &hidden, address - 32, key);
        expect_refused(pair, &hidden, address + BYTES - 31, key);
        expect_refused(pair, &hidden, address + BYTES, key);
        expect_refused(pair, &hidden, 0, key);
    }
    unhide(pair, &hidden);
}

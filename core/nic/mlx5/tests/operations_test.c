/* operations_test.c: the same transfers through the post operations of both drivers, on one simnic
 * device: it has to see the same WQEs of the direct driver as of libmlx5, and memory has to be the
 * same afterwards.
 *
 * What differs: number, index and keys, each checked against its own; and the rest of the last unit
 * of inline data, which nobody writes or looks at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/pair.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"

#define BATCH 8u
#define SLOT_BYTES 8192u /* of each transfer of a batch: they do not meet */
#define BYTES (BATCH * SLOT_BYTES)
#define ROUNDS 10000u /* more than 65536 blocks */

enum operation { WRITE, WRITE_IMMEDIATE, READ, OPERATIONS };

struct work {
    enum operation operation;
    struct nic_transfer transfer;
    uint32_t flags;
};

struct side {
    struct inbox inbox;
    struct nic_queue_pair *sender, *receiver;
    struct nic_keys memory;
    uint32_t position; /* of the next WQE, in blocks */
};

/* What the device saw of one transfer, made alike. */
struct seen {
    uint32_t units;
    uint8_t data[1024];
};

static uint8_t *memory, *before, *after; /* near half, far half */
static uint32_t random_state = 0x5eed;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * below >> 32);
}

static void side_open(struct side *side, uint32_t driver)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_options options = pair_options();
    assert_int_equal(nic_open(driver, &options, &side->inbox.nic, NULL), CRPC_OK);
    const struct nic_operations *operations = side->inbox.nic->operations;
    pair_enroll(side->inbox.nic, memory, 2 * BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ,
                &side->memory);
    assert_int_equal(
        operations->queue_pair_create(side->inbox.nic, NULL, NULL, &side->sender, NULL), 0);
    assert_int_equal(
        operations->queue_pair_create(side->inbox.nic, NULL, NULL, &side->receiver, NULL), 0);
    pair_connect(side->sender, side->receiver, &transport);
}

static void side_close(struct side *side)
{
    const struct nic_operations *operations = side->inbox.nic->operations;
    operations->queue_pair_destroy(side->sender);
    operations->queue_pair_destroy(side->receiver);
    operations->memory_deregister(side->inbox.nic, &side->memory);
    operations->close(side->inbox.nic);
}

static uint32_t big_endian(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return be32toh(value);
}

/* The WQE of a transfer, without what may differ. NOPs fill a ring's end. */
static void next_wqe(struct side *side, const struct work *work, struct seen *seen)
{
    static struct device_trace_wqe wqe;
    uint32_t bytes = work->transfer.bytes;
    bool in_wqe =
        work->operation != READ && work->transfer.bytes <= side->inbox.nic->inline_bytes_max;
    do {
        assert_true(device_trace_next(&wqe));
        seen->units = big_endian(wqe.data + 4) & 0x3f;
        assert_int_equal(wqe.number, side->sender->number);
        assert_int_equal(big_endian(wqe.data + 4) >> 8, side->sender->number);
        assert_int_equal(big_endian(wqe.data) >> 8 & 0xffff, side->position & 0xffff);
        side->position += (seen->units + 3) / 4;
    } while (wqe.data[3] == MLX5_OPCODE_NOP);
    assert_true(seen->units * 16 <= wqe.bytes);
    assert_int_equal(big_endian(wqe.data + 24), side->memory.remote_key);
    memset(wqe.data + 1, 0, 2);
    memset(wqe.data + 4, 0, 3);
    memset(wqe.data + 24, 0, 4);
    if (!in_wqe && bytes) {
        assert_int_equal(big_endian(wqe.data + 36), side->memory.local_key);
        memset(wqe.data + 36, 0, 4);
    } else if (bytes) {
        memset(wqe.data + 36 + bytes, 0, seen->units * 16 - 36 - bytes);
    }
    memcpy(seen->data, wqe.data, seen->units * 16);
}

static void run(struct side *side, const struct work *work, uint32_t count, struct seen *seen)
{
    struct nic *nic = side->inbox.nic;
    const struct nic_operations *operations = nic->operations;
    uint32_t receives = 0;
    side->inbox.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct nic_transfer transfer = work[i].transfer;
        transfer.local_key = side->memory.local_key;
        transfer.remote_key = side->memory.remote_key;
        receives += work[i].operation == WRITE_IMMEDIATE;
        (work[i].operation == READ ? operations->post_read
         : work[i].operation == WRITE
             ? operations->post_write
             : operations->post_write_immediate)(side->sender, &transfer, work[i].flags);
    }
    operations->ring_doorbell(side->sender);
    inbox_wait_completed(&side->inbox, side->sender, side->sender->posted);
    while (nic->receive_depth - nic->receives_posted < receives) {
        inbox_poll(&side->inbox);
    }
    operations->refill(nic);
    for (uint32_t i = 0; i < count; i++) {
        next_wqe(side, &work[i], &seen[i]);
    }
}

/* ---- Both ------------------------------------------------------------------------------------ */

static void random_work(struct work *work, uint32_t slot, uint32_t inline_bytes)
{
    const uint32_t sizes[] = {0, 1, 32, inline_bytes, inline_bytes + 1, 8000};
    uint64_t near = (uint64_t)(uintptr_t)memory + slot * SLOT_BYTES;
    uint32_t bytes = pick(3) ? sizes[pick(6)] : pick(300);
    *work = (struct work){
        .operation = (enum operation)pick(OPERATIONS),
        .transfer = {.local_address = near + pick(64),
                     .remote_address = near + BYTES + pick(64),
                     .bytes = bytes,
                     .immediate = random_state},
        .flags = pick(4) ? 0 : NIC_POST_SIGNALED,
    };
}

static void expect_alike(const struct work *work, const struct seen *theirs,
                         const struct seen *ours)
{
    if (theirs->units != ours->units ||
        memcmp(theirs->data, ours->data, (size_t)ours->units * 16) != 0) {
        print_error("operation %d of %u bytes: theirs %u units, ours %u\n", (int)work->operation,
                    work->transfer.bytes, theirs->units, ours->units);
        for (uint32_t i = 0; i < ours->units * 16; i++) {
            if (theirs->data[i] != ours->data[i]) {
                print_error("byte %u: theirs %02x, ours %02x\n", i, theirs->data[i], ours->data[i]);
            }
        }
        fail();
    }
}

static void test_operations(void **state)
{
    static struct side theirs, ours;
    static struct seen their_seen[BATCH], our_seen[BATCH];
    struct work work[BATCH];
    (void)state;
    memory = pair_map(2 * BYTES);
    before = pair_map(2 * BYTES);
    after = pair_map(2 * BYTES);
    side_open(&theirs, CRPC_DRIVER_VERBS);
    side_open(&ours, CRPC_DRIVER_MLX5);
    uint32_t inline_bytes = ours.inbox.nic->inline_bytes_max;
    assert_true(theirs.inbox.nic->inline_bytes_max >= inline_bytes);
    theirs.inbox.nic->inline_bytes_max = inline_bytes; /* libmlx5 grants some more */
    for (uint32_t i = 0; i < 2 * BYTES; i++) {
        memory[i] = (uint8_t)pick(256);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t count = 1 + pick(BATCH);
        for (uint32_t i = 0; i < count; i++) {
            random_work(&work[i], i, inline_bytes);
        }
        work[count - 1].flags = NIC_POST_SIGNALED;
        memory[pick(2 * BYTES)] = (uint8_t)round;
        memcpy(before, memory, 2 * BYTES);
        run(&theirs, work, count, their_seen);
        memcpy(after, memory, 2 * BYTES);
        memcpy(memory, before, 2 * BYTES);
        run(&ours, work, count, our_seen);
        for (uint32_t i = 0; i < count; i++) {
            expect_alike(&work[i], &their_seen[i], &our_seen[i]);
        }
        assert_memory_equal(memory, after, 2 * BYTES);
    }
    assert_int_equal(theirs.sender->stats.inline_wqes, ours.sender->stats.inline_wqes);
    assert_int_equal(theirs.sender->stats.signaled_wqes, ours.sender->stats.signaled_wqes);
    assert_true(ours.position > 65536);
    print_message("# %u WQEs, %u and %u blocks\n", ours.sender->posted, theirs.position,
                  ours.position);
    side_close(&theirs);
    side_close(&ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!device_trace_begin()) {
        printf("1..0 # SKIP not on simnic\n");
        return 0;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_trace_end();
    return failed;
}

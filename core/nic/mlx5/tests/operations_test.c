/* operations_test.c: the same transfers through the post operations of both drivers, on one simnic
 * device: it has to see the same WQEs of the direct driver as of libmlx5, and memory has to be the
 * same afterwards.
 *
 * What differs: number, index and keys, each checked against its own; and the rest of the last unit
 * of inline data, which nobody writes or looks at.
 */
#include "both_drivers.h"

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

static uint8_t *memory, *before, *after; /* near half, far half */

/* The WQE of a transfer, without what may differ. */
static void next_wqe(struct side *side, const struct work *work, struct seen *seen)
{
    static struct device_trace_wqe wqe;
    uint32_t bytes = work->transfer.bytes;
    bool in_wqe = work->operation != READ && bytes <= side->inbox.nic->inline_bytes_max;
    seen->units = side_next_wqe(side, &wqe);
    assert_int_equal(take_word(wqe.data + 24), side->memory.remote_key);
    if (!in_wqe && bytes) {
        assert_int_equal(take_word(wqe.data + 36), side->memory.local_key);
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
                     .immediate = pick(UINT32_MAX)},
        .flags = pick(4) ? 0 : NIC_POST_SIGNALED,
    };
}

static void test_operations(void **state)
{
    static struct side theirs, ours;
    static struct seen their_seen[BATCH], our_seen[BATCH];
    const uint32_t access =
        CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ;
    struct work work[BATCH];
    (void)state;
    memory = pair_map(2 * BYTES);
    before = pair_map(2 * BYTES);
    after = pair_map(2 * BYTES);
    side_open(&theirs, CRPC_DRIVER_VERBS, memory, 2 * BYTES, access);
    side_open(&ours, CRPC_DRIVER_MLX5, memory, 2 * BYTES, access);
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
            expect_alike(&their_seen[i], &our_seen[i], "operation", (uint32_t)work[i].operation);
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
    return device_trace_main(tests);
}

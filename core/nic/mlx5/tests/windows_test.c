/* windows_test.c: the same binds, invalidates and WRITEs through both drivers, on one simnic device: it
 * has to see the same WQEs of the direct driver as of libmlx5, fences too.
 *
 * What differs: number, index and keys, each checked against its own; and what libmlx5 leaves in the
 * segments as it was in the ring, which no device looks at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "../../tests/pair.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"

#define BATCH 8u
#define BYTES 8192u
#define ROUNDS 4000u
#define WINDOWS 4u

enum operation { WRITE, BIND, INVALIDATE };

struct work {
    enum operation operation;
    uint32_t window;
    uint32_t offset, bytes;
    bool ring; /* behind it */
};

struct side {
    struct inbox inbox;
    struct nic_queue_pair *sender, *receiver;
    struct nic_keys memory;
    struct nic_window windows[WINDOWS];
    uint32_t position; /* of the next WQE, in blocks */
};

struct seen {
    uint32_t units;
    uint8_t data[1024];
};

static uint8_t *memory;
static bool bound[WINDOWS];
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
    assert_true(side->inbox.nic->windows);
    pair_enroll(side->inbox.nic, memory, BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | NIC_ACCESS_WINDOWS,
                &side->memory);
    assert_int_equal(
        operations->queue_pair_create(side->inbox.nic, NULL, NULL, &side->sender, NULL), 0);
    assert_int_equal(
        operations->queue_pair_create(side->inbox.nic, NULL, NULL, &side->receiver, NULL), 0);
    pair_connect(side->sender, side->receiver, &transport);
    for (uint32_t i = 0; i < WINDOWS; i++) {
        assert_int_equal(operations->window_create(side->inbox.nic, &side->windows[i], NULL), 0);
    }
}

static void side_close(struct side *side)
{
    const struct nic_operations *operations = side->inbox.nic->operations;
    for (uint32_t i = 0; i < WINDOWS; i++) {
        operations->window_destroy(side->inbox.nic, &side->windows[i]);
    }
    operations->queue_pair_destroy(side->sender);
    operations->queue_pair_destroy(side->receiver);
    operations->memory_deregister(side->inbox.nic, &side->memory);
    operations->close(side->inbox.nic);
}

static uint32_t take_word(uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    memset(bytes, 0, sizeof(value));
    return be32toh(value);
}

/* Checks what is the side's own, and leaves what both must have. */
static void check_own(const struct side *side, const struct work *work, uint8_t *data)
{
    uint8_t *context = data + 64;
    if (work->operation == WRITE) {
        assert_int_equal(take_word(data + 24), side->memory.remote_key);
        memset(data + 36 + work->bytes, 0, 16); /* the rest of the last unit */
        return;
    }
    uint32_t index = side->windows[work->window].remote_key >> 8;
    assert_int_equal(data[3], MLX5_OPCODE_UMR);
    assert_int_equal(take_word(data + 12) >> 8, index);
    uint32_t number = take_word(context + 4);
    memset(context + 1, 0, 1);
    memset(context + 3, 0, 1);
    memset(context + 8, 0, 8);
    memset(context + 32, 0, 32);
    if (work->operation == BIND) {
        assert_int_equal(number >> 8, side->sender->number);
        assert_int_not_equal(number & 0xff, 0xffu + 1);
        assert_int_equal(take_word(data + 132), side->memory.local_key);
    } else {
        assert_int_equal(number, 0xffffff00u);
        memset(context + 1, 0, 31); /* `free` is all that counts */
    }
}

static void next_wqe(struct side *side, const struct work *work, struct seen *seen)
{
    static struct device_trace_wqe wqe;
    do {
        assert_true(device_trace_next(&wqe));
        assert_int_equal(wqe.number, side->sender->number);
        assert_int_equal(wqe.data[1] << 8 | wqe.data[2], side->position & 0xffff);
        seen->units = wqe.data[7] & 0x3f;
        side->position += (seen->units + 3) / 4;
    } while (wqe.data[3] == MLX5_OPCODE_NOP);
    memset(wqe.data + 1, 0, 2);
    assert_int_equal(take_word(wqe.data + 4) >> 8, side->sender->number);
    check_own(side, work, wqe.data);
    memcpy(seen->data, wqe.data, seen->units * 16);
}

static void post(struct side *side, const struct work *work)
{
    const struct nic_operations *operations = side->inbox.nic->operations;
    uint64_t address = (uint64_t)(uintptr_t)memory + work->offset;
    struct nic_transfer transfer = {.local_address = (uint64_t)(uintptr_t)memory,
                                    .local_key = side->memory.local_key,
                                    .remote_address = address,
                                    .remote_key = side->memory.remote_key,
                                    .bytes = work->bytes};
    switch (work->operation) {
    case WRITE:
        operations->post_write(side->sender, &transfer, NIC_POST_SIGNALED);
        break;
    case BIND:
        operations->post_bind(side->sender, &side->windows[work->window], &side->memory, address,
                              work->bytes, NIC_POST_SIGNALED);
        break;
    default:
        operations->post_invalidate(side->sender, &side->windows[work->window], NIC_POST_SIGNALED);
    }
    if (work->ring) {
        operations->ring_doorbell(side->sender);
    }
}

static void run(struct side *side, const struct work *work, uint32_t count, struct seen *seen)
{
    for (uint32_t i = 0; i < count; i++) {
        post(side, &work[i]);
    }
    side->inbox.nic->operations->ring_doorbell(side->sender);
    inbox_wait_completed(&side->inbox, side->sender, side->sender->posted);
    for (uint32_t i = 0; i < side->inbox.count; i++) {
        assert_int_equal(side->inbox.completions[i].kind, NIC_COMPLETION_SEND);
    }
    side->inbox.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        next_wqe(side, &work[i], &seen[i]);
    }
}

/* In a batch each window is used at most once: what was chained is posted with the doorbell. */
static uint32_t choose(struct work *work)
{
    uint32_t count = 1 + pick(BATCH);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t window = pick(WINDOWS);
        work[i] = (struct work){.operation = WRITE,
                                .window = window,
                                .offset = pick(BYTES / 2),
                                .bytes = 1 + pick(200),
                                .ring = pick(4) == 0};
        if (pick(3) != 0 && !(used & 1u << window)) {
            used |= 1u << window;
            work[i].operation = bound[window] ? INVALIDATE : BIND;
            bound[window] = !bound[window];
        }
    }
    return count;
}

static void test_windows(void **state)
{
    static struct side verbs, mlx5;
    static struct seen theirs[BATCH], ours[BATCH];
    struct work work[BATCH];
    uint32_t fences = 0;
    (void)state;
    memory = pair_map(BYTES);
    side_open(&verbs, CRPC_DRIVER_VERBS);
    side_open(&mlx5, CRPC_DRIVER_MLX5);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t count = choose(work);
        run(&verbs, work, count, theirs);
        run(&mlx5, work, count, ours);
        for (uint32_t i = 0; i < count; i++) {
            if (theirs[i].units != ours[i].units ||
                memcmp(theirs[i].data, ours[i].data, ours[i].units * 16) != 0) {
                for (uint32_t j = 0; j < ours[i].units * 16; j++) {
                    if (theirs[i].data[j] != ours[i].data[j]) {
                        print_error("byte %u: %02x, not %02x\n", j, ours[i].data[j],
                                    theirs[i].data[j]);
                    }
                }
                print_error("round %u, work %u of %u (operation %d): %u units, not %u\n", round, i,
                            count, work[i].operation, ours[i].units, theirs[i].units);
                fail();
            }
            fences += (ours[i].data[11] & MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE) != 0;
        }
    }
    print_message("# %u fences\n", fences);
    assert_true(fences > ROUNDS);
    assert_true(mlx5.position > mlx5.sender->depth * 4 * 8);
    side_close(&verbs);
    side_close(&mlx5);
    munmap(memory, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!device_trace_begin()) {
        printf("1..0 # SKIP not on simnic\n");
        return 0;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_trace_end();
    return failed;
}

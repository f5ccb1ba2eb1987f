/* windows_test.c: the same binds, invalidates, WRITEs and atomics through both drivers, on one simnic
 * device: it has to see the same WQEs of the direct driver as of libmlx5, fences too.
 *
 * What differs: number, index and keys, each checked against its own; and what libmlx5 leaves in the
 * segments as it was in the ring, which no device looks at.
 */
#include <sys/mman.h>

#include "both_drivers.h"

#define BATCH 8u
#define BYTES 8192u
#define ROUNDS 4000u
#define WINDOWS 4u

enum operation { WRITE, BIND, INVALIDATE, SWAP, ADD };

struct work {
    enum operation operation;
    uint32_t window;
    uint32_t offset, bytes;
    uint32_t access; /* of a bind */
    bool fence;
    bool ring; /* behind it */
};

struct half {
    struct side side;
    struct nic_window windows[WINDOWS];
};

static uint8_t *memory;
static bool bound[WINDOWS];

static bool is_atomic(const struct work *work)
{
    return work->operation == SWAP || work->operation == ADD;
}

static void half_open(struct half *half, uint32_t driver)
{
    side_open(&half->side, driver, memory, BYTES,
              CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC |
                  NIC_ACCESS_WINDOWS);
    struct nic *nic = half->side.inbox.nic;
    assert_true(nic->windows && nic->atomics);
    for (uint32_t i = 0; i < WINDOWS; i++) {
        assert_int_equal(nic->operations->window_create(nic, &half->windows[i], NULL), 0);
    }
}

static void half_close(struct half *half)
{
    struct nic *nic = half->side.inbox.nic;
    for (uint32_t i = 0; i < WINDOWS; i++) {
        nic->operations->window_destroy(nic, &half->windows[i]);
    }
    side_close(&half->side);
}

/* Checks what is the side's own, and leaves what both must have. */
static void check_own(const struct half *half, const struct work *work, uint8_t *data)
{
    const struct side *side = &half->side;
    uint8_t *context = data + 64;
    if (work->operation == WRITE) {
        assert_int_equal(take_word(data + 24), side->memory.remote_key);
        memset(data + 36 + work->bytes, 0, 16); /* the rest of the last unit */
        return;
    }
    if (is_atomic(work)) {
        assert_int_equal(take_word(data + 24), side->memory.remote_key);
        assert_int_equal(take_word(data + 52), side->memory.local_key);
        memset(data + 40, 0, work->operation == ADD ? 8 : 0); /* nothing is compared */
        return;
    }
    uint32_t index = half->windows[work->window].remote_key >> 8;
    assert_int_equal(data[3], MLX5_OPCODE_UMR);
    assert_int_equal(take_word(data + 12) >> 8, index);
    uint32_t number = take_word(context + 4);
    memset(context + 1, 0, 1);
    memset(context + 3, 0, 1);
    memset(context + 8, 0, 8);
    memset(context + 32, 0, 32);
    if (work->operation == BIND) {
        assert_int_equal(number >> 8, side->sender->number);
        assert_int_equal(take_word(data + 132), side->memory.local_key);
    } else {
        assert_int_equal(number, 0xffffff00u);
        memset(context + 1, 0, 31); /* `free` is all that counts */
    }
}

static void next_wqe(struct half *half, const struct work *work, struct seen *seen)
{
    static struct device_trace_wqe wqe;
    seen->units = side_next_wqe(&half->side, &wqe);
    check_own(half, work, wqe.data);
    memcpy(seen->data, wqe.data, seen->units * 16);
}

static void post(struct half *half, const struct work *work)
{
    struct side *side = &half->side;
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
    case SWAP:
    case ADD:
        operations->post_atomic(side->sender,
                                &(struct nic_atomic){.local_address = address,
                                                     .local_key = transfer.local_key,
                                                     .remote_address = transfer.remote_address,
                                                     .remote_key = transfer.remote_key,
                                                     .swap = work->operation == SWAP,
                                                     .compare = UINT64_C(0x0102030405060708),
                                                     .operand = work->bytes},
                                NIC_POST_SIGNALED);
        break;
    case BIND:
        half->windows[work->window].access = work->access;
        operations->post_bind(side->sender, &half->windows[work->window], &side->memory, address,
                              work->bytes, NIC_POST_SIGNALED);
        break;
    default:
        operations->post_invalidate(side->sender, &half->windows[work->window], NIC_POST_SIGNALED);
    }
    if (work->fence) {
        operations->fence_last(side->sender);
    }
    if (work->ring) {
        operations->ring_doorbell(side->sender);
    }
}

static void run(struct half *half, const struct work *work, uint32_t count, struct seen *seen)
{
    struct side *side = &half->side;
    for (uint32_t i = 0; i < count; i++) {
        post(half, &work[i]);
    }
    side->inbox.nic->operations->ring_doorbell(side->sender);
    inbox_wait_completed(&side->inbox, side->sender, side->sender->posted);
    for (uint32_t i = 0; i < side->inbox.count; i++) {
        assert_int_equal(side->inbox.completions[i].kind, NIC_COMPLETION_SEND);
    }
    side->inbox.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        next_wqe(half, &work[i], &seen[i]);
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
            work[i].access = CRPC_ACCESS_REMOTE_WRITE << pick(3);
            bound[window] = !bound[window];
        } else {
            work[i].operation = (enum operation[]){WRITE, WRITE, SWAP, ADD}[pick(4)];
            if (is_atomic(&work[i])) { /* not where WRITEs read and write */
                work[i].offset = BYTES - BYTES / 4 + 8 * pick(BYTES / 32);
            }
            work[i].fence = pick(4) == 0;
        }
    }
    return count;
}

static void test_windows(void **state)
{
    static struct half verbs, mlx5;
    static struct seen theirs[BATCH], ours[BATCH];
    struct work work[BATCH];
    uint32_t fences = 0;
    (void)state;
    memory = pair_map(BYTES);
    half_open(&verbs, CRPC_DRIVER_VERBS);
    half_open(&mlx5, CRPC_DRIVER_MLX5);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t count = choose(work);
        run(&verbs, work, count, theirs);
        run(&mlx5, work, count, ours);
        for (uint32_t i = 0; i < count; i++) {
            expect_alike(&theirs[i], &ours[i], "operation", (uint32_t)work[i].operation);
            fences += (ours[i].data[11] & MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE) != 0;
        }
    }
    print_message("# %u fences\n", fences);
    assert_true(fences > ROUNDS);
    assert_true(mlx5.side.position > mlx5.side.sender->depth * 4 * 8);
    half_close(&verbs);
    half_close(&mlx5);
    munmap(memory, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return device_trace_main(tests);
}

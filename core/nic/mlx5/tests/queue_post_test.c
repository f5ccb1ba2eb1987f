/* queue_post_test.c: arrays of ops are posted as each of them is alone: the same bytes, table and counters, whatever
 * follows what. (What one op is, libmlx5 says: queue_operations_test.c.) Twins in plain memory: one gets whole
 * arrays, the other op by op. */
#include "nic/mlx5/mlx5.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 256u
#define BATCH 40u
#define BATCHES 4000u
#define PIECES 3u
#define INLINE_BYTES 100u
#define TARGETS 3u

struct twin {
    struct mlx5_nic nic;
    struct mlx5_queue queue;
    _Alignas(64) uint8_t ring[BLOCKS * WQE_BLOCK_BYTES];
    struct tracking_entry entries[BLOCKS];
};

static struct twin whole, single;
static struct mlx5_target targets[TARGETS];
static uint64_t results[BLOCKS];
static uint8_t payload[1024];
static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

static void make(struct twin *twin, uint32_t kind, uint32_t table)
{
    *twin = (struct twin){0};
    twin->nic.device.base.message_bytes_max = 1u << 30;
    twin->queue.sends =
        (struct send_queue){.buffer = twin->ring, .mask = BLOCKS - 1, .number = 0x123};
    twin->queue.device.base = (struct nic_queue){
        .nic = &twin->nic.device.base,
        .kind = kind,
        .table = table,
        .send_pieces = PIECES,
        .inline_bytes = INLINE_BYTES,
        .sends = {.entries = twin->entries, .mask = BLOCKS - 1},
        .interval = BLOCKS / 4,
        .quiet_state = table == NIC_TABLE_DENSE ? TRACKING_SIGNALED : TRACKING_POSTED,
        .results = results};
}

/* Some follow what is like them, and some do not. */
static struct nic_work any_work(const struct nic_work *before, bool to_targets, uint64_t number)
{
    static const uint8_t opcodes[] = {NIC_SEND, NIC_SEND_IMMEDIATE,  NIC_WRITE,
                                      NIC_READ, NIC_WRITE_IMMEDIATE, NIC_COMPARE_SWAP,
                                      NIC_NOP,  NIC_SEND_INVALIDATE};
    struct nic_work work = {.opcode = opcodes[pick(to_targets ? 2 : 8)], .user_data = number};
    if (before && pick(4)) {
        work.opcode = before->opcode;
        work.flags = before->flags & (NIC_WORK_INLINE | NIC_WORK_PIECES);
    } else {
        work.flags = pick(2) ? NIC_WORK_INLINE : pick(3) ? 0 : NIC_WORK_PIECES;
    }
    work.flags |= (pick(8) ? 0 : NIC_WORK_SIGNAL) | (pick(8) ? 0 : NIC_WORK_SOLICITED) |
                  (pick(8) || to_targets ? 0 : NIC_WORK_FENCE);
    if (work.opcode == NIC_NOP || work.opcode == NIC_COMPARE_SWAP) {
        work.flags &= (uint8_t) ~(NIC_WORK_INLINE | NIC_WORK_PIECES);
    } else if (work.opcode == NIC_READ) {
        work.flags &= (uint8_t)~NIC_WORK_INLINE;
    }
    work.immediate = pick(UINT32_MAX);
    work.address = (uint64_t)(uintptr_t)payload + pick(512);
    work.bytes = pick(16) ? pick(INLINE_BYTES + 1) : 0;
    if (work.flags & NIC_WORK_PIECES) {
        work.address = pick(2);
        work.bytes = 1 + pick(PIECES);
    }
    work.remote_key = pick(UINT32_MAX);
    work.remote_address = 8 * (uint64_t)pick(UINT32_MAX);
    work.operand = pick(UINT32_MAX);
    return work;
}

static uint32_t post(struct twin *twin, const struct nic_work *works, struct nic_target *const *to,
                     const uint32_t *keys, const struct nic_piece *pieces, uint32_t count)
{
    struct nic_queue *base = &twin->queue.device.base;
    return base->kind == NIC_QUEUE_UD ? mlx5_queue_post_to(base, works, to, keys, pieces, count)
                                      : mlx5_queue_post(base, works, keys, pieces, count);
}

static void expect_twins(void)
{
    const struct nic_queue *ours = &whole.queue.device.base, *theirs = &single.queue.device.base;
    assert_memory_equal(whole.ring, single.ring, sizeof(whole.ring));
    assert_memory_equal(whole.entries, single.entries, sizeof(whole.entries));
    assert_int_equal(whole.queue.sends.producer, single.queue.sends.producer);
    assert_int_equal(whole.queue.sends.last, single.queue.sends.last);
    assert_int_equal(ours->sends.producer, theirs->sends.producer);
    assert_int_equal(ours->unsignaled, theirs->unsignaled);
    assert_memory_equal(&ours->stats, &theirs->stats, sizeof(ours->stats));
}

static void run(uint32_t kind, uint32_t table, uint64_t seed)
{
    struct nic_work works[BATCH];
    struct nic_target *to[BATCH];
    uint32_t keys[BATCH];
    struct nic_piece pieces[2 + PIECES];
    uint64_t posted = 0, refused = 0;
    random_state = seed;
    make(&whole, kind, table);
    make(&single, kind, table);
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint32_t count = 1 + pick(BATCH);
        for (uint32_t i = 0; i < 2 + PIECES; i++) {
            pieces[i] = (struct nic_piece){(uint64_t)(uintptr_t)payload + pick(512),
                                           pick(INLINE_BYTES / PIECES), pick(UINT32_MAX)};
        }
        for (uint32_t i = 0; i < count; i++) {
            works[i] = any_work(i ? &works[i - 1] : NULL, kind == NIC_QUEUE_UD, posted + i);
            to[i] = &targets[i && pick(3) ? (uint32_t)(to[i - 1] == &targets[0].device.base)
                                          : pick(TARGETS)]
                         .device.base;
            keys[i] = pick(UINT32_MAX);
        }
        uint32_t taken = post(&whole, works, to, keys, pieces, count), alone = 0;
        while (alone < count &&
               post(&single, &works[alone], &to[alone], &keys[alone], pieces, 1) == 1) {
            alone++;
        }
        assert_int_equal(taken, alone);
        expect_twins();
        posted += taken;
        refused += taken < count;
        if (taken < count || pick(4) == 0) { /* all of them are done */
            whole.queue.sends.consumer = whole.queue.device.base.sends.consumer =
                whole.queue.sends.producer;
            single.queue.sends.consumer = single.queue.device.base.sends.consumer =
                single.queue.sends.producer;
        }
    }
    assert_true(refused > 0 && whole.queue.sends.producer > 65536);
    print_message("# seed %llu: %llu ops, %llu arrays found no room\n", (unsigned long long)seed,
                  (unsigned long long)posted, (unsigned long long)refused);
}

static void test_connected(void **state)
{
    (void)state;
    run(NIC_QUEUE_RC, NIC_TABLE_DENSE, 1);
    run(NIC_QUEUE_RC, NIC_TABLE_SPARSE, 2);
}

static void test_datagrams(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TARGETS; i++) {
        targets[i].device.base.kind = NIC_QUEUE_UD;
        memset(&targets[i].address, (int)(0x11 * (i + 1)), sizeof(targets[i].address));
    }
    run(NIC_QUEUE_UD, NIC_TABLE_DENSE, 3);
    run(NIC_QUEUE_UD, NIC_TABLE_SPARSE, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_connected),
                                       cmocka_unit_test(test_datagrams)};
    for (uint32_t i = 0; i < sizeof(payload); i++) {
        payload[i] = (uint8_t)(i * 7 + 1);
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

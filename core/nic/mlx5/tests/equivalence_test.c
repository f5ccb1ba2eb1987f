/* equivalence_test.c: the same random work through libmlx5 and through the queues of this directory,
 * on twin queue pairs of one simnic device: the device has to see the same WQEs, memory has to
 * change in the same way, and both have to read the same completions.
 *
 * The work of a round is done by libmlx5, what it changed in memory is noted and undone, and then it
 * is done by us: so addresses and keys in the WQEs are the same, too. What may differ, and is made
 * alike before comparing:
 *
 *   queue pair number      there are two; each WQE's is checked against its own
 *   index                  ours skips to the ring's start where a WQE does not fit before its end,
 *                          libmlx5's goes on around it; each is checked against its own count
 *   NOP                    what ours fills that gap with; checked, and left out
 *   rest of the last unit  of inline data: no device looks at it, and neither writes it
 *   compare                of fetch and add: libmlx5 leaves what was there, we write 0
 */
#include "twins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device_trace.h"

#define ROUNDS 13000u /* more than 65536 blocks */
#define BATCH_MAX 8u
#define WAIT_S 30u

struct work {
    enum ibv_wr_opcode opcode;
    unsigned flags;
    uint64_t id;
    uint32_t immediate;
    struct ibv_sge sges[TWIN_SGES];
    int sge_count;
    uint64_t remote;
    uint64_t compare_add, swap;
};

/* What either reads. */
struct outcome {
    uint64_t id;
    uint32_t opcode; /* enum ibv_wc_opcode */
    uint32_t status; /* enum ibv_wc_status */
    uint32_t bytes;
    uint32_t immediate;
    uint32_t flags; /* IBV_WC_WITH_IMM */
};

struct outcomes {
    struct outcome sends[BATCH_MAX], receives[BATCH_MAX];
    uint32_t send_count, receive_count;
};

struct run {
    struct twins *twins;
    uint64_t seed, random;
    uint64_t next_id;
    uint32_t theirs_position, ours_position; /* of the next WQE the device sees */
    uint32_t nops, round;
    struct work work[BATCH_MAX];
    uint32_t count;
    uint32_t expected_sends, expected_receives;
    uint8_t before[2 * TWIN_BYTES], after[2 * TWIN_BYTES];
};

static uint32_t pick(struct run *run, uint32_t below)
{
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((run->random >> 32) * below >> 32);
}

static void blame(const struct run *run, const char *what, uint32_t which)
{
    print_error("seed %llu: work %u of %u (opcode %d, flags 0x%x, %d pieces): %s\n",
                (unsigned long long)run->seed, which, run->count, run->work[which].opcode,
                run->work[which].flags, run->work[which].sge_count, what);
    fail();
}

/* ---- Random work ----------------------------------------------------------------------------- */

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool has_immediate(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool may_inline(enum ibv_wr_opcode opcode)
{
    return !is_atomic(opcode) && opcode != IBV_WR_RDMA_READ;
}

/* Pieces of the near half, of 0 bytes too; a slice of it for each of a round's works, for what READs
 * and atomics bring would else meet. */
static void random_sges(struct run *run, struct work *work, uint32_t slot)
{
    uint32_t most = work->flags & IBV_SEND_INLINE ? TWIN_INLINE_BYTES / TWIN_SGES : 200;
    uint64_t at = (uint64_t)(uintptr_t)run->twins->memory + slot * (TWIN_BYTES / BATCH_MAX);
    work->sge_count = is_atomic(work->opcode) ? 1 : (int)pick(run, TWIN_SGES + 1);
    for (int i = 0; i < work->sge_count; i++) {
        uint32_t bytes = pick(run, 5) ? 1 + pick(run, most) : 0;
        at += pick(run, 16);
        if (is_atomic(work->opcode)) {
            bytes = 8;
        }
        work->sges[i] =
            (struct ibv_sge){.addr = at, .length = bytes, .lkey = run->twins->memory_region->lkey};
        at += bytes;
    }
}

/* In the far half. A WRITE may overtake a READ that has no fence after it, so in a round one region is
 * read and another is written, in turn; atomics have a third. */
static uint64_t random_remote(struct run *run, enum ibv_wr_opcode opcode)
{
    static const uint32_t regions[2] = {0, 10240};
    uint32_t region = 12288;
    if (!is_atomic(opcode)) {
        region = regions[(run->round & 1) ^ (opcode == IBV_WR_RDMA_READ)];
    }
    return (uint64_t)(uintptr_t)run->twins->memory + TWIN_BYTES + region +
           8 * (uint64_t)pick(run, 128);
}

static void random_work(struct run *run, struct work *work, uint32_t slot)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
                                                 IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    *work = (struct work){.opcode = opcodes[pick(run, 7)], .id = run->next_id++};
    work->flags |= pick(run, 2) ? IBV_SEND_SIGNALED : 0;
    work->flags |= pick(run, 3) ? 0 : IBV_SEND_SOLICITED;
    work->flags |= pick(run, 4) ? 0 : IBV_SEND_FENCE;
    work->flags |= may_inline(work->opcode) && pick(run, 2) ? IBV_SEND_INLINE : 0;
    work->immediate = has_immediate(work->opcode) ? (uint32_t)run->random : 0;
    work->remote = random_remote(run, work->opcode);
    work->compare_add = pick(run, 2) ? run->random : 0;
    work->swap = run->random >> 7;
    random_sges(run, work, slot);
}

static uint32_t total_bytes(const struct work *work)
{
    uint32_t bytes = 0;
    for (int i = 0; i < work->sge_count; i++) {
        bytes += work->sges[i].length;
    }
    return bytes;
}

/* ---- Through libmlx5 ------------------------------------------------------------------------- */

static void post_theirs(struct run *run)
{
    struct ibv_send_wr list[BATCH_MAX] = {{0}}, *bad;
    for (uint32_t i = 0; i < run->count; i++) {
        struct work *work = &run->work[i];
        list[i] = (struct ibv_send_wr){.wr_id = work->id,
                                       .next = i + 1 < run->count ? &list[i + 1] : NULL,
                                       .sg_list = work->sges,
                                       .num_sge = work->sge_count,
                                       .opcode = work->opcode,
                                       .send_flags = work->flags,
                                       .imm_data = htobe32(work->immediate)};
        if (is_atomic(work->opcode)) {
            list[i].wr.atomic.remote_addr = work->remote;
            list[i].wr.atomic.rkey = run->twins->memory_region->rkey;
            list[i].wr.atomic.compare_add = work->compare_add;
            list[i].wr.atomic.swap = work->swap;
        } else {
            list[i].wr.rdma.remote_addr = work->remote;
            list[i].wr.rdma.rkey = run->twins->memory_region->rkey;
        }
    }
    assert_int_equal(ibv_post_send(run->twins->theirs.sender, list, &bad), 0);
}

static uint32_t poll_theirs(struct ibv_cq *cq, struct outcome *outcomes, uint32_t room)
{
    struct ibv_wc entries[BATCH_MAX];
    int count = ibv_poll_cq(cq, (int)room, entries);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        const struct ibv_wc *entry = &entries[i];
        bool receive = entry->opcode & IBV_WC_RECV;
        /* Of sends libmlx5 says that they had one, and not which. */
        bool with = receive && (entry->wc_flags & IBV_WC_WITH_IMM);
        outcomes[i] = (struct outcome){
            .id = entry->wr_id,
            .opcode = entry->opcode,
            .status = entry->status,
            /* Of what was only sent libmlx5 says nothing. */
            .bytes = receive || entry->opcode == IBV_WC_RDMA_READ ||
                             entry->opcode == IBV_WC_COMP_SWAP || entry->opcode == IBV_WC_FETCH_ADD
                         ? entry->byte_len
                         : 0,
            .immediate = with ? be32toh(entry->imm_data) : 0,
            .flags = with ? IBV_WC_WITH_IMM : 0,
        };
    }
    return (uint32_t)count;
}

/* ---- Through ours ---------------------------------------------------------------------------- */

static uint8_t flags_of(unsigned flags)
{
    return (uint8_t)((flags & IBV_SEND_SIGNALED ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                     (flags & IBV_SEND_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0) |
                     (flags & IBV_SEND_FENCE ? MLX5_WQE_CTRL_FENCE : 0));
}

static void *put_body(const struct work *work, void *place)
{
    if (work->flags & IBV_SEND_INLINE) {
        uint8_t data[TWIN_INLINE_BYTES];
        uint32_t bytes = 0;
        for (int i = 0; i < work->sge_count; i++) {
            memcpy(data + bytes, (const void *)(uintptr_t)work->sges[i].addr, work->sges[i].length);
            bytes += work->sges[i].length;
        }
        return bytes ? wqe_inline(place, data, bytes) : place;
    }
    for (int i = 0; i < work->sge_count; i++) {
        if (work->sges[i].length != 0) {
            place = wqe_data(place, work->sges[i].addr, work->sges[i].lkey, work->sges[i].length);
        }
    }
    return place;
}

static void post_ours(struct run *run)
{
    struct twin *twin = &run->twins->ours;
    for (uint32_t i = 0; i < run->count; i++) {
        const struct work *work = &run->work[i];
        uint32_t filled = 0;
        uint32_t position = twin->queue.producer;
        uint8_t *wqe = send_queue_begin(&twin->queue, 4, &filled);
        assert_non_null(wqe);
        if (filled) {
            tracking_post(&twin->tracking, position, position + filled, 0, TRACKING_FILLER);
            position += filled;
        }
        void *place = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
        if (work->opcode != IBV_WR_SEND && work->opcode != IBV_WR_SEND_WITH_IMM) {
            place = wqe_remote_address(place, work->remote, run->twins->memory_region->rkey);
        }
        if (work->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            place = wqe_compare_swap(place, work->compare_add, work->swap);
        } else if (work->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            place = wqe_fetch_add(place, work->compare_add);
        }
        place = put_body(work, place);
        send_queue_end(&twin->queue, wqe, place, twin_opcode(work->opcode), flags_of(work->flags),
                       htobe32(work->immediate));
        tracking_post(&twin->tracking, position, twin->queue.producer, work->id,
                      work->flags & IBV_SEND_SIGNALED ? TRACKING_SIGNALED : TRACKING_POSTED);
        if (pick(run, 4) == 0) {
            send_queue_ring(&twin->queue); /* one doorbell, or several */
        }
    }
    send_queue_ring(&twin->queue);
}

static uint32_t poll_our_sends(struct run *run, struct outcome *outcomes, uint32_t room)
{
    struct twin *twin = &run->twins->ours;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    while (count < room && (entry = completion_queue_next(&twin->sends, COMPLETION_PLAIN))) {
        uint32_t position;
        uint8_t opcode = (uint8_t)(be32toh(entry->sop_drop_qpn) >> 24);
        assert_int_equal(completion_opcode(entry), MLX5_CQE_REQ);
        assert_int_equal(completion_number(entry), twin->sender->qp_num);
        assert_true(tracking_find(&twin->tracking, be16toh(entry->wqe_counter), &position));
        struct tracking_done done = {0};
        while (tracking_dense_next(&twin->tracking, position, &done) && !done.signaled) {
            continue;
        }
        twin->queue.consumer = twin->tracking.consumer;
        outcomes[count++] = (struct outcome){
            .id = done.user_data,
            .opcode = twin_wc_opcode(opcode),
            .bytes = opcode == MLX5_OPCODE_RDMA_READ ? be32toh(entry->byte_cnt)
                     : opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA ? 8
                                                                                          : 0,
        };
        completion_queue_advance(&twin->sends, COMPLETION_PLAIN);
    }
    completion_queue_release(&twin->sends);
    return count;
}

static uint32_t poll_our_receives(struct run *run, struct outcome *outcomes, uint32_t room)
{
    struct twin *twin = &run->twins->ours;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    while (count < room && (entry = completion_queue_next(&twin->receives, COMPLETION_PLAIN))) {
        uint32_t index = be16toh(entry->wqe_counter) & (twin->receive_entries - 1);
        uint8_t opcode = completion_opcode(entry);
        bool with = opcode != MLX5_CQE_RESP_SEND;
        const void *payload = completion_payload(&twin->receives, entry);
        assert_true(opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_IMM);
        assert_int_equal(completion_number(entry), twin->receiver->qp_num);
        if (payload) { /* libmlx5 copies it, too */
            const struct mlx5_wqe_data_seg *data =
                (const void *)(twin->receive_buffer + (size_t)index * twin->receive_stride);
            memcpy((void *)(uintptr_t)be64toh(data->addr), payload, be32toh(entry->byte_cnt));
        }
        outcomes[count++] = (struct outcome){
            .id = twin->receive_ids[index],
            .opcode = opcode == MLX5_CQE_RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
            .bytes = be32toh(entry->byte_cnt),
            .immediate = with ? be32toh(entry->imm_inval_pkey) : 0,
            .flags = with ? IBV_WC_WITH_IMM : 0,
        };
        completion_queue_advance(&twin->receives, COMPLETION_PLAIN);
    }
    completion_queue_release(&twin->receives);
    return count;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static void collect(struct run *run, bool own, struct outcomes *outcomes)
{
    uint64_t start = clock_now_ns();
    *outcomes = (struct outcomes){0};
    while (outcomes->send_count < run->expected_sends ||
           outcomes->receive_count < run->expected_receives) {
        struct outcome *sends = outcomes->sends + outcomes->send_count;
        struct outcome *receives = outcomes->receives + outcomes->receive_count;
        uint32_t room = BATCH_MAX - outcomes->send_count;
        uint32_t receive_room = BATCH_MAX - outcomes->receive_count;
        outcomes->send_count += own ? poll_our_sends(run, sends, room)
                                    : poll_theirs(run->twins->theirs.send_cq, sends, room);
        outcomes->receive_count +=
            own ? poll_our_receives(run, receives, receive_room)
                : poll_theirs(run->twins->theirs.receive_cq, receives, receive_room);
        if (clock_now_ns() - start > WAIT_S * 1000000000ull) {
            blame(run, own ? "our completions do not come" : "theirs do not come", 0);
        }
    }
}

static void post_receives(struct run *run, bool own)
{
    struct twin *twin = own ? &run->twins->ours : &run->twins->theirs;
    for (uint32_t i = 0; i < run->expected_receives; i++) {
        uint64_t at = (uint64_t)(uintptr_t)run->twins->memory + TWIN_BYTES + 2048 + 1024ull * i;
        twin_post_receive(run->twins, twin, own, (run->next_id << 8) + i, at, TWIN_SGES * 200);
    }
}

/* Makes alike what may differ, as the head of this file says; `qp` and `position` are the WQE's. */
static uint32_t normalise(const struct run *run, uint32_t which, struct device_trace_wqe *wqe,
                          uint32_t number, uint32_t position)
{
    uint8_t *bytes = wqe->data;
    uint32_t units = bytes[7] & 0x3f;
    uint32_t first = (uint32_t)bytes[1] << 8 | bytes[2];
    uint32_t found = (uint32_t)bytes[4] << 16 | (uint32_t)bytes[5] << 8 | bytes[6];
    if (wqe->number != number || found != number) {
        blame(run, "another queue pair's", which);
    }
    if (first != (position & 0xffff)) {
        blame(run, "its index is not what was posted", which);
    }
    if (units * 16 > wqe->bytes) {
        blame(run, "the device did not see all of it", which);
    }
    memset(bytes + 1, 0, 2);
    memset(bytes + 4, 0, 3);
    const struct work *work = &run->work[which];
    if (work->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        memset(bytes + 40, 0, 8);
    }
    uint32_t inline_bytes = work->flags & IBV_SEND_INLINE ? total_bytes(work) : 0;
    if (inline_bytes) {
        bool remote = work->opcode != IBV_WR_SEND && work->opcode != IBV_WR_SEND_WITH_IMM;
        uint32_t end = 16 + (remote ? 16 : 0) + 4 + inline_bytes;
        if ((end + 15) / 16 != units) {
            blame(run, "its length is not that of the inline data", which);
        }
        memset(bytes + end, 0, units * 16 - end);
    }
    return units * 16;
}

static void expect_wqe(struct run *run, uint32_t which, const struct device_trace_wqe *theirs,
                       struct device_trace_wqe *ours)
{
    struct device_trace_wqe seen = *theirs;
    uint32_t bytes =
        normalise(run, which, &seen, run->twins->theirs.sender->qp_num, run->theirs_position);
    uint32_t our_bytes =
        normalise(run, which, ours, run->twins->ours.sender->qp_num, run->ours_position);
    run->theirs_position += (bytes + 63) / 64;
    run->ours_position += (our_bytes + 63) / 64;
    if (bytes != our_bytes) {
        blame(run, "its length differs", which);
    }
    for (uint32_t i = 0; i < bytes; i++) {
        if (seen.data[i] != ours->data[i]) {
            print_error("byte %u: theirs %02x, ours %02x\n", i, seen.data[i], ours->data[i]);
            blame(run, "the device saw other bytes", which);
        }
    }
}

static void next_of_ours(struct run *run, uint32_t which, struct device_trace_wqe *wqe)
{
    while (device_trace_next(wqe)) {
        if (wqe->data[3] != MLX5_OPCODE_NOP) {
            return;
        }
        uint32_t units = wqe->data[7] & 0x3f;
        uint32_t blocks = run->twins->ours.queue.mask + 1;
        if ((run->ours_position + units / 4) % blocks != 0 || units % 4 != 0) {
            blame(run, "a NOP that does not end where the ring does", which);
        }
        run->ours_position += units / 4;
        run->nops++;
    }
    blame(run, "the device saw no WQE of it", which);
}

static void expect_outcomes(struct run *run, const struct outcome *theirs,
                            const struct outcome *ours, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(&theirs[i], &ours[i], sizeof(*ours)) != 0) {
            print_error("id %llu %llu, opcode %u %u, status %u %u, bytes %u %u, immediate %x %x\n",
                        (unsigned long long)theirs[i].id, (unsigned long long)ours[i].id,
                        theirs[i].opcode, ours[i].opcode, theirs[i].status, ours[i].status,
                        theirs[i].bytes, ours[i].bytes, theirs[i].immediate, ours[i].immediate);
            blame(run, "completions differ", i);
        }
    }
}

static void round_of(struct run *run)
{
    static struct device_trace_wqe theirs[BATCH_MAX], ours;
    static struct outcomes their_outcomes, our_outcomes;
    uint8_t *memory = run->twins->memory;
    run->count = 1 + pick(run, BATCH_MAX);
    run->expected_sends = run->expected_receives = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        random_work(run, &run->work[i], i);
        if (i + 1 == run->count) {
            run->work[i].flags |= IBV_SEND_SIGNALED;
        }
        run->expected_sends += run->work[i].flags & IBV_SEND_SIGNALED ? 1 : 0;
        run->expected_receives += takes_receive(run->work[i].opcode);
    }
    memory[pick(run, 2 * TWIN_BYTES)] = (uint8_t)run->random;
    memcpy(run->before, memory, sizeof(run->before));
    post_receives(run, false);
    post_theirs(run);
    collect(run, false, &their_outcomes);
    for (uint32_t i = 0; i < run->count; i++) {
        if (!device_trace_next(&theirs[i])) {
            blame(run, "the device saw nothing of libmlx5's", i);
        }
    }
    memcpy(run->after, memory, sizeof(run->after));
    memcpy(memory, run->before, sizeof(run->before));
    post_receives(run, true);
    post_ours(run);
    collect(run, true, &our_outcomes);
    for (uint32_t i = 0; i < run->count; i++) {
        next_of_ours(run, i, &ours);
        expect_wqe(run, i, &theirs[i], &ours);
    }
    if (device_trace_next(&ours)) {
        blame(run, "the device saw more than was posted", 0);
    }
    expect_outcomes(run, their_outcomes.sends, our_outcomes.sends, run->expected_sends);
    expect_outcomes(run, their_outcomes.receives, our_outcomes.receives, run->expected_receives);
    for (uint32_t i = 0; i < sizeof(run->after); i++) {
        if (memory[i] == run->after[i]) {
            continue;
        }
        print_error("byte %u of memory: before %02x, theirs %02x, ours %02x\n", i, run->before[i],
                    run->after[i], memory[i]);
        blame(run, "memory changed in another way", 0);
    }
}

static void run_rounds(uint32_t cqe_bytes, uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    static struct device_trace_wqe earlier;
    while (device_trace_next(&earlier)) {
        continue; /* of a test that failed */
    }
    run->twins = twins_new(cqe_bytes);
    run->seed = run->random = seed;
    for (uint32_t i = 0; i < 2 * TWIN_BYTES; i++) {
        run->twins->memory[i] = (uint8_t)pick(run, 256);
    }
    for (; run->round < ROUNDS; run->round++) {
        round_of(run);
    }
    uint32_t blocks = run->twins->ours.queue.mask + 1;
    print_message("# CQEs of %u bytes: %llu WQEs, %u and %u blocks of %u, %u NOPs, %llu pushes in "
                  "%llu doorbells\n",
                  cqe_bytes, (unsigned long long)run->next_id, run->theirs_position,
                  run->ours_position, blocks, run->nops,
                  (unsigned long long)run->twins->ours.queue.pushes,
                  (unsigned long long)run->twins->ours.queue.rings);
    assert_true(run->theirs_position > 65536 + blocks && run->ours_position > 65536 + blocks);
    assert_true(run->nops > 10);
    assert_true(run->twins->ours.queue.pushes > 100);
    assert_true(run->twins->ours.sends.consumer > 4 * 64);
    twins_delete(run->twins);
    free(run);
}

static void test_cqe64(void **state)
{
    (void)state;
    run_rounds(64, 0x5eed);
}

static void test_cqe128(void **state)
{
    (void)state;
    run_rounds(128, 0x5eee);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cqe64),
        cmocka_unit_test(test_cqe128),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return device_trace_main(tests);
}

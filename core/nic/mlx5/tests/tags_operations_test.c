/* tags_operations_test.c: the same random commands and messages at TM-SRQs of both drivers, on one simnic device: the
 * device has to see the same commands of the direct driver as of libmlx5, memory has to be the same afterwards, and both
 * have to give the same completions. In some rounds a buffer is too short, or has a wrong key, and the connection ends.
 *
 * What differs: number, index and key, each checked against its own; and what libmlx5 leaves of older WQEs where a
 * command has no tag. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/queues.h"
#include "base/clock.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"
#include "nic/tags.h"

#define OPS 100000u
#define BATCH 8u
#define MESSAGES 5u
#define TAGS 24u
#define DIFFERENT 6u /* tags, so that messages often match */
#define ERROR_ROUNDS 40u
#define RECEIVES 32u
#define SLOT_BYTES 1024u
#define SLOTS 64u
#define BYTES (3 * SLOTS * SLOT_BYTES) /* messages, buffers, receives */
#define BUFFERS_AT (SLOTS * SLOT_BYTES)
#define RECEIVES_AT (2 * SLOTS * SLOT_BYTES)
#define NUMBER_MASK 0xffffffu
#define EAGER 3

struct side {
    struct done_list done;
    struct nic_queue *srq, *sender, *receiver;
    struct nic_keys memory;
    uint32_t position; /* of the next command */
};

struct message {
    uint8_t kind;
    uint64_t tag;
    uint32_t bytes;
};

/* A command as the device saw it, made alike. */
struct seen {
    struct mlx5_wqe_tm_seg segment;
    struct mlx5_wqe_data_seg buffer;
    uint32_t units;
};

struct round {
    struct nic_work works[BATCH];
    bool wrong_key[BATCH];
    struct message messages[MESSAGES];
    uint32_t messages_first; /* so many come before the commands */
};

static uint8_t *memory, *before, *after;
static uint64_t random_state, seed;
static uint64_t next_id;
static uint32_t adds, matches, removals, failures;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

/* ---- A driver -------------------------------------------------------------------------------- */

static void link_up(struct side *side)
{
    struct nic_queue_options near = queues_options(), far = queues_options();
    near.receives = near.receive_pieces = far.receives = far.receive_pieces = 0;
    near.handle = 7;
    far.handle = 8;
    far.receive_queue = side->srq;
    side->sender = queues_create(side->done.nic, &near);
    side->receiver = queues_create(side->done.nic, &far);
    queues_connect(side->sender, side->receiver);
}

static void side_open(struct side *side, uint32_t driver)
{
    struct nic_options options = pair_options();
    struct nic_queue_options shared = queues_options();
    *side = (struct side){.done.capacity = 64};
    assert_int_equal(nic_open(driver, &options, &side->done.nic, NULL), CRPC_OK);
    pair_enroll(side->done.nic, memory, BYTES, CRPC_ACCESS_LOCAL_WRITE, &side->memory);
    shared.kind = NIC_QUEUE_TM_SRQ;
    shared.sends = shared.send_pieces = shared.inline_bytes = 0;
    shared.receives = RECEIVES;
    shared.receive_pieces = 1;
    shared.handle = 9;
    shared.tags = TAGS;
    side->srq = queues_create(side->done.nic, &shared);
    link_up(side);
}

static void side_close(struct side *side)
{
    queues_end(side->sender);
    queues_end(side->receiver);
    queues_end(side->srq);
    side->done.nic->operations->memory_deregister(side->done.nic, &side->memory);
    assert_int_equal(side->done.nic->unknown_completions, 0);
    side->done.nic->operations->close(side->done.nic);
}

static void fill_receives(struct side *side)
{
    const struct nic_queue_operations *operations = side->done.nic->operations->queues;
    while (side->srq->receives_open < RECEIVES / 2) {
        const uint64_t number = side->srq->stats.receives;
        const struct nic_piece piece = {.address = (uint64_t)(uintptr_t)memory + RECEIVES_AT +
                                                   number % SLOTS * SLOT_BYTES,
                                        .bytes = SLOT_BYTES,
                                        .local_key = side->memory.local_key};
        assert_true(operations->receive(side->srq, number, &piece, 1));
    }
    operations->ring(side->srq);
}

/* ---- A round --------------------------------------------------------------------------------- */

static void choose(struct round *round, bool broken)
{
    memset(round, 0, sizeof(*round));
    for (uint32_t i = 0; i < BATCH; i++) {
        struct nic_work *work = &round->works[i];
        const uint32_t what = pick(100);
        *work = (struct nic_work){.user_data = next_id++};
        if (what < 60) {
            work->opcode = NIC_TAG_ADD;
            work->operand = pick(5) ? UINT64_MAX : pick(2);
            work->remote_address = (pick(DIFFERENT) + UINT64_C(0x0102030400000000)) & work->operand;
            work->address =
                (uint64_t)(uintptr_t)memory + BUFFERS_AT + work->user_data % SLOTS * SLOT_BYTES;
            work->bytes = pick(200) ? SLOT_BYTES : 0;
            if (broken && pick(3) == 0) {
                round->wrong_key[i] = pick(2);
                work->bytes = round->wrong_key[i] ? SLOT_BYTES : 1;
            }
        } else if (what < 80) {
            work->opcode = NIC_TAG_REMOVE;
            work->operand = work->user_data - pick(40);
        } else {
            work->opcode = NIC_TAG_SYNC;
        }
    }
    round->messages_first = pick(MESSAGES + 1);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        round->messages[i] =
            (struct message){.kind = (uint8_t)(pick(8) ? EAGER : pick(5)),
                             .tag = pick(DIFFERENT) + UINT64_C(0x0102030400000000),
                             .bytes = pick(4) ? pick(SLOT_BYTES - NIC_TAG_HEADER_BYTES) : 0};
    }
}

static void poll_until(struct side *side, uint32_t sends)
{
    const uint64_t start = clock_now_ns();
    uint32_t done = 0;
    while (done < sends || side->srq->sends.consumer != side->srq->sends.producer) {
        queues_poll(&side->done);
        done = 0;
        for (uint32_t i = 0; i < side->done.count; i++) {
            done += side->done.done[i].endpoint.bits == 7;
        }
        assert_true(clock_now_ns() - start < PAIR_WAIT_S * UINT64_C(1000000000));
    }
    /* What the receiver has is written before the sender's acknowledgement. */
    queues_poll(&side->done);
}

/* Returns how many sends have completed. */
static uint32_t send_messages(struct side *side, const struct round *round, uint32_t from,
                              uint32_t to)
{
    uint32_t sent = from;
    for (uint32_t i = from; i < to && !side->sender->failed; i++, sent++) {
        const struct message *message = &round->messages[i];
        uint8_t *place = memory + i * SLOT_BYTES;
        const uint64_t tag = htobe64(message->tag);
        const struct nic_work work = {.opcode = NIC_SEND, .user_data = i};
        const struct nic_piece piece = {.address = (uint64_t)(uintptr_t)place,
                                        .bytes = NIC_TAG_HEADER_BYTES + message->bytes,
                                        .local_key = side->memory.local_key};
        memset(place, 0, NIC_TAG_HEADER_BYTES);
        place[0] = message->kind;
        memcpy(place + 8, &tag, sizeof(tag));
        fill_receives(side);
        assert_true(queues_post_pieces(side->sender, &work, &piece, 1));
        queues_ring(side->sender);
        poll_until(side, i + 1);
    }
    return sent;
}

static void post_commands(struct side *side, const struct round *round)
{
    const struct nic_queue_operations *operations = side->done.nic->operations->queues;
    for (uint32_t i = 0; i < BATCH; i++) {
        const struct nic_work *work = &round->works[i];
        const struct nic_piece piece = {.address = work->address,
                                        .bytes = work->bytes,
                                        .local_key = side->memory.local_key ^
                                                     (round->wrong_key[i] ? 0x5500 : 0)};
        operations->tag(side->srq, work, work->bytes > 0 ? &piece : NULL); /* or the list is full */
    }
    operations->ring(side->srq);
}

/* Takes the commands that the device has seen of this side. */
static uint32_t take_seen(struct side *side, const struct round *round, struct seen *seen)
{
    struct device_trace_wqe wqe;
    uint32_t count = 0;
    while (device_trace_next(&wqe)) {
        struct mlx5_wqe_ctrl_seg control;
        memcpy(&control, wqe.data, sizeof(control));
        if ((be32toh(control.opmod_idx_opcode) & 0xff) != MLX5_OPCODE_TAG_MATCHING) {
            continue;
        }
        struct seen *one = &seen[count++];
        assert_true(count <= BATCH);
        memset(one, 0, sizeof(*one));
        assert_int_equal(be32toh(control.opmod_idx_opcode) >> 8 & 0xffff,
                         side->position++ & 0xffff);
        assert_int_equal(be32toh(control.qpn_ds) >> 8, wqe.number & NUMBER_MASK);
        assert_int_equal(control.fm_ce_se, 0);
        one->units = be32toh(control.qpn_ds) & 0x3f;
        memcpy(&one->segment, wqe.data + 16, sizeof(one->segment));
        memcpy(&one->buffer, wqe.data + 48, sizeof(one->buffer));
        if (one->segment.opcode >> 4 == 1) { /* an addition */
            const uint32_t key = be32toh(one->buffer.lkey);
            assert_true(key == side->memory.local_key || key == MLX5_INVALID_LKEY ||
                        key == (side->memory.local_key ^ 0x5500));
            one->buffer.lkey = key == MLX5_INVALID_LKEY ? 1 : key == side->memory.local_key ? 2 : 3;
        } else {
            memset(&one->segment.append_tag, 0, 16);
            memset(&one->buffer, 0, sizeof(one->buffer));
        }
        if (one->segment.opcode == 0) {
            one->segment.index = 0;
        }
        memset(one->segment.rsvd0, 0, sizeof(one->segment.rsvd0));
        memset(one->segment.rsvd1, 0, sizeof(one->segment.rsvd1));
    }
    (void)round;
    return count;
}

static uint32_t run(struct side *side, const struct round *round, struct seen *seen)
{
    side->done.count = side->done.errors = 0;
    uint32_t sent = send_messages(side, round, 0, round->messages_first);
    post_commands(side, round);
    poll_until(side, sent);
    send_messages(side, round, sent, MESSAGES);
    const uint32_t count = take_seen(side, round, seen);
    if (side->sender->failed || side->receiver->failed) {
        queues_end(side->sender);
        queues_end(side->receiver);
        link_up(side);
        failures++;
    }
    return count;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void blame(const char *what, uint32_t which)
{
    print_error("seed %llu, op %llu: %s %u\n", (unsigned long long)seed,
                (unsigned long long)next_id, what, which);
    fail();
}

/* Those of sends have a completion queue of their own, and come sooner or later. Moves them behind the others. */
static void order(struct done_list *list)
{
    static crpc_completion sends[QUEUES_DONE_MAX];
    uint32_t others = 0, count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->done[i].endpoint.bits == 7) {
            sends[count++] = list->done[i];
        } else {
            list->done[others++] = list->done[i];
        }
    }
    memcpy(list->done + others, sends, count * sizeof(sends[0]));
}

static void compare_completions(struct side *theirs, struct side *ours)
{
    order(&theirs->done);
    order(&ours->done);
    if (theirs->done.count != ours->done.count) {
        blame("completions", ours->done.count);
    }
    for (uint32_t i = 0; i < ours->done.count; i++) {
        crpc_completion one = theirs->done.done[i], other = ours->done.done[i];
        /* libmlx5 gives no syndrome of what it makes of an entry that is none of an error. */
        if (memcmp(&one, &other, sizeof(one)) != 0) {
            print_error("method %u %u, status %d %d, user data %llu %llu, flags %x %x, token "
                        "%llx %llx, view %llx %llx, bytes %u %u, syndrome %u %u\n",
                        one.method, other.method, one.status, other.status,
                        (unsigned long long)one.user_data, (unsigned long long)other.user_data,
                        one.flags, other.flags, (unsigned long long)one.token,
                        (unsigned long long)other.token, (unsigned long long)one.view,
                        (unsigned long long)other.view, one.payload_bytes, other.payload_bytes,
                        one.reply_bytes_max, other.reply_bytes_max);
            blame("completion", i);
        }
        matches += one.flags & NIC_DONE_MATCHED ? 1 : 0;
        adds += one.method == NIC_TAG_ADD;
        removals += one.method == NIC_TAG_REMOVE && one.status == CRPC_OK;
    }
}

static void test_same_commands(void **state)
{
    struct side theirs, ours;
    struct seen seen[2][BATCH];
    (void)state;
    memory = pair_map(BYTES);
    before = malloc(BYTES);
    after = malloc(BYTES);
    seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 1;
    random_state = seed;
    side_open(&theirs, CRPC_DRIVER_VERBS);
    side_open(&ours, CRPC_DRIVER_MLX5);
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i * 7 + (i >> 9));
    }
    while (next_id < OPS) {
        struct round round;
        choose(&round, pick(ERROR_ROUNDS) == 0);
        memcpy(before, memory, BYTES);
        uint32_t count = run(&theirs, &round, seen[0]);
        memcpy(after, memory, BYTES);
        memcpy(memory, before, BYTES);
        if (run(&ours, &round, seen[1]) != count) {
            blame("commands", count);
        }
        for (uint32_t i = 0; i < count; i++) {
            if (memcmp(&seen[0][i], &seen[1][i], sizeof(seen[0][i])) != 0) {
                blame("command", i);
            }
        }
        compare_completions(&theirs, &ours);
        if (memcmp(memory, after, BYTES) != 0) {
            blame("memory", 0);
        }
    }
    printf("# seed %llu: %llu commands, %u additions completed, %u matches, %u removals, %u "
           "connections ended\n",
           (unsigned long long)seed, (unsigned long long)next_id, adds, matches, removals,
           failures / 2);
    assert_true(matches > OPS / 20 && removals > OPS / 200 && failures > 20);
    side_close(&ours);
    side_close(&theirs);
    free(before);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_commands)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return device_trace_main(tests);
}

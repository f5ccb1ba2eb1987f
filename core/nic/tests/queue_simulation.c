/* queue_simulation.c: queues with user data (nic/queue.h) on the in-memory NIC, with random ops, small
 * polls, faults and ends at any moment, and an oracle that knows each op: it completes exactly once, in
 * the order that its table promises, with the data that belongs to it.
 *
 *   queue_simulation [STEPS [SEED]]
 *
 * Episodes run until so many steps are done. The seed of an episode that fails is printed: with 1 step and
 * this seed it runs alone. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/memory/memory.h"
#include "nic/memory/random.h"
#include "nic/queue.h"

#define NICS 3u
#define LINKS 6u
#define OPS_MAX 20000u /* of an episode */
#define EPISODE_STEPS 20000u
#define SLOT_BYTES 64u
#define SLOTS (128u + OPS_MAX) /* each receive has one of its own */
#define TOLD UINT32_MAX        /* the immediate of all WRITEs */
#define BYTES (SLOTS * SLOT_BYTES)

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

enum op_state { OP_OPEN = 1, OP_DONE };

struct op {
    struct nic_queue *queue; /* of a receive from an SRQ, that */
    uint64_t old;            /* FETCH_ADD: what was found */
    uint8_t state;
    uint8_t opcode;
    bool silent;  /* completes only if it fails */
    bool correct; /* nothing is wrong with it */
    uint32_t slot;
};

struct side {
    struct nic_queue *queue;
    uint32_t nic;
    uint64_t next_send; /* user data of the next to complete, if the table keeps the order */
    uint64_t sent;      /* messages that were posted */
    uint64_t received;  /* number of the next that comes */
};

struct world {
    struct memory_fabric *fabric;
    struct random_generator random;
    struct nic *nics[NICS];
    struct nic_keys keys[NICS];
    uint8_t *memory[NICS]; /* slots; the first one has the word for atomics */
    struct nic_queue *srqs[NICS];
    struct side sides[2 * LINKS]; /* 2 n and 2 n + 1 are connected */
    struct op *ops;
    uint32_t op_count;
    uint64_t next_handle;
    uint32_t adds[NICS]; /* FETCH_ADDs that were posted to the nic's word */
    uint64_t seed;
};

static uint64_t completed, stops, errors_seen;

__attribute__((noreturn, format(printf, 2, 3))) static void blame(const struct world *world,
                                                                  const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "episode of seed %llu: ", (unsigned long long)world->seed);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint32_t pick(struct world *world, uint32_t below)
{
    return random_below(&world->random, below);
}

/* ---- The oracle ------------------------------------------------------------------------------ */

static struct side *side_of(struct world *world, uint64_t handle)
{
    for (uint32_t i = 0; i < 2 * LINKS; i++) {
        if (world->sides[i].queue && world->sides[i].queue->handle == handle) {
            return &world->sides[i];
        }
    }
    return NULL;
}

/* A message brings its number in its link and direction, and the receive is where it landed. That of a
 * WRITE with immediate is only told. */
static void check_message(struct world *world, struct side *side, const struct op *op,
                          const crpc_completion *done)
{
    uint64_t number;
    memcpy(&number, world->memory[side->nic] + (size_t)op->slot * SLOT_BYTES, sizeof(number));
    if (done->flags & NIC_DONE_IMMEDIATE && done->reply_bytes_max == TOLD) {
        return;
    }
    if (number != side->received++) {
        blame(world, "message %llu instead of %llu", (unsigned long long)number,
              (unsigned long long)side->received - 1);
    }
}

static void check_order(struct world *world, struct side *side, uint64_t number)
{
    if (side->queue->table == NIC_TABLE_UNORDERED) {
        return;
    }
    if (number < side->next_send) {
        blame(world, "op %llu completes behind a later one", (unsigned long long)number);
    }
    side->next_send = number + 1;
}

static void check_done(struct world *world, const crpc_completion *done, bool ended)
{
    struct side *side = side_of(world, done->endpoint.bits);
    if (done->kind != NIC_COMPLETION_WORK || done->user_data >= world->op_count) {
        blame(world, "a completion of nothing");
    }
    struct op *op = &world->ops[done->user_data];
    if (op->state != OP_OPEN) {
        blame(world, "op %llu completes twice", (unsigned long long)done->user_data);
    }
    if (op->opcode != done->method) {
        blame(world, "op %llu has become another", (unsigned long long)done->user_data);
    }
    op->state = OP_DONE;
    completed++;
    errors_seen += done->status != CRPC_OK;
    if (ended) {
        return;
    }
    if (!side || (op->queue != side->queue && op->queue != side->queue->receiver)) {
        blame(world, "op %llu completes at another queue", (unsigned long long)done->user_data);
    }
    if (op->silent && done->status == CRPC_OK) {
        blame(world, "op %llu was not to complete", (unsigned long long)done->user_data);
    }
    if (op->opcode == NIC_RECEIVE) {
        if (done->status == CRPC_OK) {
            check_message(world, side, op, done);
        }
        return;
    }
    check_order(world, side, done->user_data);
    if (done->status == CRPC_OK && !op->correct) {
        blame(world, "op %llu cannot have succeeded", (unsigned long long)done->user_data);
    }
    if (done->status == -NIC_ERROR_LOCAL && op->correct) {
        blame(world, "nothing is wrong with op %llu", (unsigned long long)done->user_data);
    }
    if (op->opcode == NIC_FETCH_ADD && done->status == CRPC_OK) {
        op->old = done->token + 1;
    }
}

/* All ops of a queue that is gone have completed; silent ones perhaps not. */
static void check_closed(struct world *world, const struct nic_queue *queue)
{
    for (uint32_t i = 0; i < world->op_count; i++) {
        struct op *op = &world->ops[i];
        if (op->queue == queue && op->state == OP_OPEN) {
            if (!op->silent) {
                blame(world, "op %u (opcode %u) never completes", i, op->opcode);
            }
            op->state = OP_DONE;
        }
        if (op->queue == queue) {
            op->queue = NULL;
        }
    }
}

/* Each FETCH_ADD of 1 has found another number. */
static void check_adds(struct world *world)
{
    for (uint32_t i = 0; i < NICS; i++) {
        uint64_t value;
        memcpy(&value, world->memory[i], sizeof(value));
        if (value > world->adds[i]) {
            blame(world, "%llu of %u FETCH_ADDs were done", (unsigned long long)value,
                  world->adds[i]);
        }
        uint8_t *seen = calloc(value + 1, 1);
        for (uint32_t k = 0; k < world->op_count; k++) {
            const struct op *op = &world->ops[k];
            if (op->opcode == NIC_FETCH_ADD && op->old != 0 && op->slot == i &&
                (op->old > value || seen[op->old - 1]++)) {
                blame(world, "two FETCH_ADDs found %llu", (unsigned long long)op->old - 1);
            }
        }
        free(seen);
    }
}

/* ---- Making and ending ----------------------------------------------------------------------- */

static struct op *new_op(struct world *world, struct nic_queue *queue, uint8_t opcode)
{
    struct op *op = &world->ops[world->op_count];
    *op = (struct op){.queue = queue, .state = OP_OPEN, .opcode = opcode, .correct = true};
    return op;
}

static struct nic_queue *create(struct world *world, uint32_t nic, bool srq, bool shared)
{
    struct nic_queue_options options = {
        .kind = srq ? NIC_QUEUE_SRQ : NIC_QUEUE_RC,
        .table = srq ? NIC_TABLE_DENSE : pick(world, 3),
        .handle = ++world->next_handle,
        .receive_queue = shared ? world->srqs[nic] : NULL,
        .sends = srq ? 0 : 1u << pick(world, 6),
        .send_pieces = 3,
        .inline_bytes = 32,
        .receives = shared ? 0 : 1 + pick(world, 16),
        .receive_pieces = 2,
    };
    struct nic_queue *queue;
    if (nic_memory_operations.queues->create(world->nics[nic], NULL, &options, &queue, NULL)) {
        blame(world, "no queue");
    }
    return queue;
}

static void make_link(struct world *world, uint32_t link)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct side *sides = &world->sides[2 * link];
    struct nic_address addresses[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t nic = pick(world, NICS);
        sides[i] = (struct side){.nic = nic, .queue = create(world, nic, false, pick(world, 2))};
        nic_memory_operations.queue_pair_address(sides[i].queue->pair, &addresses[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (nic_memory_operations.queue_pair_connect(sides[i].queue->pair, &addresses[!i],
                                                     &transport, NULL)) {
            blame(world, "a queue does not connect");
        }
    }
}

static void take_ended(struct world *world, struct nic_queue *queue)
{
    crpc_completion done[4];
    uint32_t count;
    do {
        count = nic_queue_take_ended(queue, done, 1 + pick(world, 4));
        for (uint32_t i = 0; i < count; i++) {
            check_done(world, &done[i], true);
        }
    } while (count > 0);
}

static void end_side(struct world *world, struct side *side)
{
    struct nic_queue *srq = side->queue->receiver != side->queue ? side->queue->receiver : NULL;
    nic_memory_operations.queues->stop(side->queue);
    take_ended(world, side->queue);
    if (srq) {
        take_ended(world, srq);
    }
    check_closed(world, side->queue);
    nic_memory_operations.queues->destroy(side->queue);
    side->queue = NULL;
    stops++;
}

/* ---- Acts ------------------------------------------------------------------------------------ */

static struct nic_piece slot_piece(const struct world *world, uint32_t nic, uint32_t slot,
                                   uint32_t bytes)
{
    return (struct nic_piece){
        .address = (uint64_t)(uintptr_t)(world->memory[nic] + (size_t)slot * SLOT_BYTES),
        .bytes = bytes,
        .local_key = world->keys[nic].local_key};
}

static void post(struct world *world, struct side *side)
{
    struct side *peer = &world->sides[(size_t)(side - world->sides) ^ 1];
    uint8_t opcode = (uint8_t)(NIC_SEND + pick(world, NIC_NOP));
    uint64_t *stamp = &side->sent;
    bool bad = pick(world, 300) == 0;
    if (opcode == NIC_SEND_INVALIDATE || side->queue->failed || world->op_count == OPS_MAX ||
        !peer->queue) {
        return;
    }
    bool message = opcode <= NIC_SEND_IMMEDIATE;
    bool in_wqe = message || pick(world, 2);
    struct nic_piece pieces[3] = {
        {.address = (uint64_t)(uintptr_t)stamp, .bytes = sizeof(*stamp)},
        slot_piece(world, side->nic, 1 + pick(world, 60), pick(world, 12)),
        slot_piece(world, side->nic, 1 + pick(world, 60), pick(world, 12))};
    struct nic_work work = {
        .opcode = opcode,
        .flags = (uint8_t)((pick(world, 3) ? 0 : NIC_WORK_SIGNAL) |
                           (pick(world, 4) ? 0 : NIC_WORK_FENCE)),
        .immediate = opcode == NIC_WRITE_IMMEDIATE ? TOLD : (uint32_t)*stamp,
        .user_data = world->op_count,
    };
    uint32_t count = 0, first = message ? 0 : 1;
    if (opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD) {
        uint32_t at = nic_opcode_is_atomic(opcode) ? 0 : 64 + pick(world, 60);
        work.remote_address =
            (uint64_t)(uintptr_t)(world->memory[peer->nic] + (size_t)at * SLOT_BYTES);
        work.remote_key = world->keys[peer->nic].remote_key ^ (bad ? 0x5500 : 0);
        work.operand = 1;
        work.address = UINT64_MAX; /* it never matches */
    }
    if (opcode <= NIC_WRITE_IMMEDIATE) {
        work.flags |= in_wqe ? NIC_WORK_INLINE : 0;
        count = 1 + first + pick(world, 2);
        count = count > 3 ? 3 : count;
    } else if (opcode == NIC_READ) {
        count = 2;
    }
    count -= count >= first ? first : 0;
    struct op *op = new_op(world, side->queue, opcode);
    op->silent = side->queue->table == NIC_TABLE_SPARSE && !(work.flags & NIC_WORK_SIGNAL);
    op->slot = peer->nic;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[first + i].bytes;
    }
    op->correct = !(bad && opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD &&
                    (bytes > 0 || nic_opcode_is_atomic(opcode)));
    uint32_t key = 0;
    if (count > 0) {
        work.flags |= NIC_WORK_PIECES;
        work.address = first;
        work.bytes = count;
    }
    if (nic_memory_operations.queues->post(side->queue, &work, &key, pieces, 1) == 0) {
        return; /* the place is used by the next */
    }
    world->op_count++;
    world->adds[peer->nic] += opcode == NIC_FETCH_ADD;
    *stamp += message;
}

static void receive(struct world *world, struct nic_queue *queue, uint32_t nic)
{
    if (world->op_count == OPS_MAX || queue->failed) {
        return;
    }
    /* One in a hundred is too short for most. */
    uint32_t bytes = pick(world, 100) ? 40 : 9;
    struct nic_piece pieces[2];
    struct op *op = new_op(world, queue, NIC_RECEIVE);
    op->slot = 128 + world->op_count;
    pieces[0] = slot_piece(world, nic, op->slot, 8);
    pieces[1] = slot_piece(world, nic, op->slot, bytes);
    pieces[1].address += 8;
    pieces[1].bytes -= 8;
    if (nic_memory_operations.queues->receive(queue, world->op_count, pieces, 2)) {
        world->op_count++;
    }
}

static void poll_nic(struct world *world, uint32_t nic)
{
    crpc_completion done[16];
    uint32_t errors, seen = 0;
    uint32_t capacity = 1 + pick(world, 16);
    uint32_t count = nic_memory_operations.queues->poll(world->nics[nic], done, capacity, &errors);
    if (count > capacity) {
        blame(world, "%u completions in an array of %u", count, capacity);
    }
    for (uint32_t i = 0; i < count; i++) {
        seen += done[i].status != CRPC_OK;
        check_done(world, &done[i], false);
    }
    if (seen != errors) {
        blame(world, "%u errors instead of %u", errors, seen);
    }
}

static void remake(struct world *world, uint32_t link)
{
    end_side(world, &world->sides[2 * link]);
    end_side(world, &world->sides[2 * link + 1]);
    make_link(world, link);
}

static void trouble(struct world *world)
{
    uint32_t which = pick(world, 2 * LINKS);
    struct side *side = &world->sides[which];
    switch (pick(world, 6)) {
    case 0:
        memory_fabric_cut(side->queue->pair);
        break;
    case 1:
        memory_fabric_kill(side->queue->pair);
        break;
    case 2:
        memory_fabric_stall(side->queue->pair, pick(world, 500));
        break;
    case 3:
        memory_fabric_set_link(world->nics[side->nic], false);
        memory_fabric_run(world->fabric, pick(world, 300));
        memory_fabric_set_link(world->nics[side->nic], true);
        break;
    case 4:
        nic_memory_operations.queues->flush(side->queue);
        break;
    default:
        remake(world, which / 2);
        break;
    }
}

static void act(struct world *world)
{
    uint32_t which = pick(world, 2 * LINKS);
    struct side *side = &world->sides[which];
    uint32_t nic = pick(world, NICS);
    switch (pick(world, 12)) {
    case 0:
    case 1:
    case 2:
        post(world, side);
        break;
    case 3:
    case 4:
        if (side->queue->receiver == side->queue) {
            receive(world, side->queue, side->nic);
        } else {
            receive(world, world->srqs[side->nic], side->nic);
        }
        break;
    case 5:
    case 6:
        nic_memory_operations.queues->ring(side->queue);
        break;
    case 7:
        nic_memory_operations.queues->ring(world->srqs[nic]);
        break;
    case 8:
    case 9:
        poll_nic(world, nic);
        break;
    case 10:
        memory_fabric_run(world->fabric, pick(world, 30));
        break;
    default:
        if (pick(world, 60) == 0) {
            trouble(world);
        } else if (side->queue->failed && pick(world, 4) == 0) {
            remake(world, which / 2);
        }
        break;
    }
}

/* ---- An episode ------------------------------------------------------------------------------ */

static void begin(struct world *world)
{
    struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    random_seed(&world->random, world->seed);
    world->fabric = memory_fabric_create(world->seed);
    struct memory_fabric_options *fabric = memory_fabric_options(world->fabric);
    fabric->mode = pick(world, 4) ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE;
    fabric->reuse_numbers = pick(world, 2);
    fabric->receiver_not_ready_fails = pick(world, 4) == 0;
    fabric->flush_signaled_only = pick(world, 2);
    fabric->retry_steps = 100;
    for (uint32_t i = 0; i < NICS; i++) {
        crpc_error error = {0};
        if (memory_nic_open(world->fabric, &options, &world->nics[i], &error)) {
            blame(world, "%s", error.message);
        }
        world->memory[i] = calloc(1, BYTES);
        if (nic_memory_operations.memory_register(
                world->nics[i], NULL, world->memory[i], BYTES, 0,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                    CRPC_ACCESS_REMOTE_ATOMIC,
                &world->keys[i], &error)) {
            blame(world, "%s", error.message);
        }
        world->srqs[i] = create(world, i, true, false);
    }
    for (uint32_t i = 0; i < LINKS; i++) {
        make_link(world, i);
    }
}

static void end(struct world *world)
{
    for (uint32_t i = 0; i < 200; i++) {
        poll_nic(world, pick(world, NICS));
        memory_fabric_run(world->fabric, 20);
    }
    for (uint32_t i = 0; i < 2 * LINKS; i++) {
        end_side(world, &world->sides[i]);
    }
    for (uint32_t i = 0; i < NICS; i++) {
        nic_memory_operations.queues->stop(world->srqs[i]);
        take_ended(world, world->srqs[i]);
        check_closed(world, world->srqs[i]);
        nic_memory_operations.queues->destroy(world->srqs[i]);
    }
    check_adds(world);
    for (uint32_t i = 0; i < NICS; i++) {
        nic_memory_operations.memory_deregister(world->nics[i], &world->keys[i]);
        if (world->nics[i]->unknown_completions) {
            blame(world, "unknown completions");
        }
        nic_memory_operations.close(world->nics[i]);
        free(world->memory[i]);
    }
    if (memory_fabric_counters(world->fabric)->left_open) {
        blame(world, "something was left open");
    }
    memory_fabric_destroy(world->fabric);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t done = 0, episodes = 0;
    struct op *ops = calloc(OPS_MAX, sizeof(*ops));
    while (done < steps) {
        static struct world world;
        world = (struct world){.ops = ops, .seed = seed + episodes++};
        begin(&world);
        for (uint32_t i = 0; i < EPISODE_STEPS && world.op_count < OPS_MAX; i++, done++) {
            act(&world);
        }
        end(&world);
    }
    free(ops);
    printf("1..1\nok 1 - %llu steps, %llu episodes from seed %llu\n"
           "# %llu ops completed, %llu with an error; %llu queues ended\n",
           (unsigned long long)done, (unsigned long long)episodes, (unsigned long long)seed,
           (unsigned long long)completed, (unsigned long long)errors_seen,
           (unsigned long long)stops);
    return 0;
}

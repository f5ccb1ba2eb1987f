/* dc_simulation.c: DCIs, with and without streams, and DCTs (nic/queue.h) on the in-memory NIC, with random ops,
 * small polls, faults, resets of streams, and ends at any moment, and an oracle that knows each op: it completes
 * exactly once, in the order of its stream, with the data that belongs to it; and what fails in a stream is that
 * stream's alone.
 *
 *   dc_simulation [STEPS [SEED]]
 *
 * Episodes run until so many steps are done. The seed of an episode that fails is printed: with 1 step and
 * this seed it runs alone. */
#include "dc_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/memory/memory.h"

#define EPISODE_STEPS 20000u

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

static uint64_t stops, resets;

static uint32_t pick(struct world *world, uint32_t below)
{
    return random_below(&world->random, below);
}

/* ---- Making and ending ----------------------------------------------------------------------- */

static struct nic_queue *create(struct world *world, uint32_t nic,
                                const struct nic_queue_options *options)
{
    struct nic_queue *queue;
    if (nic_memory_operations.queues->create(world->nics[nic], NULL, options, &queue, NULL)) {
        blame(world, "no queue");
    }
    return queue;
}

static void make_dct(struct world *world, uint32_t index)
{
    struct dct *dct = &world->dcts[index];
    dct->nic = index % NICS;
    dct->life = ++world->lives;
    dct->queue = create(world, dct->nic,
                        &(struct nic_queue_options){.kind = NIC_QUEUE_DCT,
                                                    .handle = dct->life,
                                                    .receive_queue = world->srqs[dct->nic],
                                                    .access_key = dct->life});
}

static void make_aim(struct world *world, const struct dci *dci, struct aim *aim)
{
    const bool wrong = pick(world, 20) == 0;
    aim->dct = pick(world, DCTS);
    aim->life = wrong ? 0 : world->dcts[aim->dct].life;
    struct nic_target_options options = {.kind = NIC_QUEUE_DCI, .access_key = aim->life};
    nic_memory_operations.queue_pair_address(world->dcts[aim->dct].queue->pair, &options.address);
    if (nic_memory_operations.queues->target_create(world->nics[dci->nic], NULL, &options,
                                                    &aim->target, NULL)) {
        blame(world, "no target");
    }
}

static void make_dci(struct world *world, uint32_t index)
{
    struct dci *dci = &world->dcis[index];
    const uint32_t streams = pick(world, 3) ? 1 + pick(world, STREAMS) : 0;
    *dci = (struct dci){.nic = pick(world, NICS)};
    dci->queue = create(world, dci->nic,
                        &(struct nic_queue_options){
                            .kind = NIC_QUEUE_DCI,
                            .table = streams > 0      ? NIC_TABLE_UNORDERED
                                     : pick(world, 2) ? NIC_TABLE_SPARSE
                                                      : NIC_TABLE_DENSE,
                            .handle = ++world->lives,
                            .sends = 1u << pick(world, 6),
                            .send_pieces = 1,
                            .inline_bytes = 8,
                            .streams = streams,
                            .stream_failures_max = pick(world, 4),
                            .transport = {.retry_timeout = 14, .retry_count = 7},
                        });
    for (uint32_t i = 0; i < TARGETS; i++) {
        make_aim(world, dci, &dci->aims[i]);
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

static void end_queue(struct world *world, struct nic_queue *queue)
{
    nic_memory_operations.queues->stop(queue);
    take_ended(world, queue);
    check_closed(world, queue);
    nic_memory_operations.queues->destroy(queue);
    stops++;
}

static void end_dci(struct world *world, uint32_t index)
{
    struct dci *dci = &world->dcis[index];
    end_queue(world, dci->queue);
    dci->queue = NULL;
    for (uint32_t i = 0; i < TARGETS; i++) {
        nic_memory_operations.queues->target_destroy(dci->aims[i].target);
    }
}

static void end_dct(struct world *world, uint32_t index)
{
    struct dct *dct = &world->dcts[index];
    end_queue(world, dct->queue);
    take_ended(world, world->srqs[dct->nic]);
    dct->queue = NULL;
    dct->life = 0;
}

/* ---- Acts ------------------------------------------------------------------------------------ */

static void post(struct world *world, struct dci *dci)
{
    static const uint8_t opcodes[] = {NIC_SEND, NIC_SEND_IMMEDIATE, NIC_WRITE, NIC_WRITE_IMMEDIATE,
                                      NIC_READ, NIC_FETCH_ADD,      NIC_NOP};
    const uint8_t opcode = opcodes[pick(world, 7)];
    const struct aim *aim = &dci->aims[pick(world, TARGETS)];
    const bool bad = pick(world, 200) == 0;
    const uint64_t number = world->op_count;
    if (dci->queue->failed || number == OPS_MAX) {
        return;
    }
    const uint32_t there = world->dcts[aim->dct].nic;
    const uint64_t constant = 1 + pick(world, CONSTANTS);
    const bool remote = opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD;
    const bool stamped = opcode <= NIC_WRITE_IMMEDIATE;
    const uint64_t slot = opcode == NIC_READ        ? constant
                          : opcode == NIC_FETCH_ADD ? 0
                                                    : op_slot(number);
    const struct nic_work work = {
        .opcode = opcode,
        .flags =
            (uint8_t)((stamped ? NIC_WORK_INLINE : 0) | (pick(world, 3) ? 0 : NIC_WORK_SIGNAL)),
        .stream = (uint16_t)(dci->queue->streams > 0 ? pick(world, dci->queue->streams) : 0),
        .immediate = opcode == NIC_WRITE_IMMEDIATE ? TOLD : 7,
        .user_data = number,
        .address = stamped ? (uint64_t)(uintptr_t)&number
                   : opcode == NIC_READ
                       ? (uint64_t)(uintptr_t)slot_of(world, dci->nic, op_slot(number))
                       : 0,
        .bytes = stamped || opcode == NIC_READ ? sizeof(number) : 0,
        .remote_key = remote ? world->keys[there].remote_key ^ (bad ? 0x5500 : 0) : 0,
        .remote_address = remote ? (uint64_t)(uintptr_t)slot_of(world, there, slot) : 0,
        .operand = 1};
    struct op *op = &world->ops[number];
    *op = (struct op){.queue = dci->queue,
                      .life = aim->life,
                      .source = dci->queue->pair->number,
                      .dct = aim->dct,
                      .stream = work.stream,
                      .state = OP_OPEN,
                      .opcode = opcode,
                      .silent =
                          dci->queue->table == NIC_TABLE_SPARSE && !(work.flags & NIC_WORK_SIGNAL),
                      .correct = opcode == NIC_NOP || (aim->life && !(bad && remote))};
    if (nic_memory_operations.queues->post_to(dci->queue, &work, &aim->target,
                                              &world->keys[dci->nic].local_key, NULL, 1) == 0) {
        return; /* the place is used by the next */
    }
    world->op_count++;
    world->adds[there] += opcode == NIC_FETCH_ADD;
    dci->open[work.stream] += !op->silent;
}

static void receive(struct world *world, uint32_t nic)
{
    const uint64_t number = world->op_count;
    /* One in a hundred is too short. */
    const struct nic_piece piece = {(uint64_t)(uintptr_t)slot_of(world, nic, op_slot(number)),
                                    pick(world, 100) ? 8 : 7, world->keys[nic].local_key};
    if (number == OPS_MAX) {
        return;
    }
    world->ops[number] =
        (struct op){.queue = world->srqs[nic], .state = OP_OPEN, .opcode = NIC_RECEIVE};
    world->op_count += nic_memory_operations.queues->receive(world->srqs[nic], number, &piece, 1);
}

static uint32_t poll_nic(struct world *world, uint32_t nic)
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
    return count;
}

static void reset(struct world *world, struct dci *dci)
{
    const uint32_t streams = dci->queue->streams;
    if (streams == 0 || dci->queue->failed) {
        return;
    }
    const uint16_t stream = (uint16_t)pick(world, streams);
    const int32_t status = nic_memory_operations.queues->reset_stream(dci->queue, stream, NULL);
    /* The device may have failed, and nobody has heard of it. */
    if (dci->open[stream] > 0 ? status != CRPC_E_STATE
                              : status != CRPC_OK && status != CRPC_E_SYSTEM) {
        blame(world, "stream %u with %u open ops: %d", stream, dci->open[stream], status);
    }
    if (status == CRPC_OK) {
        resets += dci->failed[stream];
        dci->failed[stream] = false;
    }
    uint32_t failed = 0;
    for (uint32_t i = 0; i < streams; i++) {
        failed += dci->failed[i];
    }
    /* One more if its completion has found no room yet. */
    if (failed > dci->queue->streams_failed ||
        dci->queue->streams_failed > dci->queue->stream_failures_max) {
        blame(world, "%u streams have failed, not %u", failed, dci->queue->streams_failed);
    }
}

static void trouble(struct world *world)
{
    const uint32_t which = pick(world, DCIS), other = pick(world, DCTS);
    struct nic_queue_pair *pair =
        pick(world, 2) ? world->dcis[which].queue->pair : world->dcts[other].queue->pair;
    switch (pick(world, 7)) {
    case 0:
        memory_fabric_cut(pair);
        break;
    case 1:
        world->dcis[which].struck |= pair == world->dcis[which].queue->pair;
        memory_fabric_kill(pair);
        break;
    case 2:
        memory_fabric_stall(pair, pick(world, 500));
        break;
    case 3:
        memory_fabric_set_link(pair->nic, false);
        memory_fabric_run(world->fabric, pick(world, 300));
        memory_fabric_set_link(pair->nic, true);
        break;
    case 4:
        world->dcis[which].struck = true;
        nic_memory_operations.queues->flush(world->dcis[which].queue);
        break;
    case 5:
        end_dct(world, other);
        make_dct(world, other);
        break;
    default:
        end_dci(world, which);
        make_dci(world, which);
        break;
    }
}

/* Another target in the place of one that no op names. */
static void aim_again(struct world *world, struct dci *dci)
{
    struct aim *aim = &dci->aims[pick(world, TARGETS)];
    if (dci->queue->sends.consumer == dci->queue->sends.producer) {
        nic_memory_operations.queues->target_destroy(aim->target);
        make_aim(world, dci, aim);
    }
}

static void act(struct world *world)
{
    const uint32_t which = pick(world, DCIS), nic = pick(world, NICS);
    struct dci *dci = &world->dcis[which];
    switch (pick(world, 14)) {
    case 0:
    case 1:
    case 2:
    case 3:
        post(world, dci);
        break;
    case 4:
    case 5:
        receive(world, nic);
        break;
    case 6:
    case 7:
        nic_memory_operations.queues->ring(dci->queue);
        break;
    case 8:
        nic_memory_operations.queues->ring(world->srqs[nic]);
        break;
    case 9:
    case 10:
        poll_nic(world, nic);
        break;
    case 11:
        memory_fabric_run(world->fabric, pick(world, 30));
        break;
    case 12:
        reset(world, dci);
        break;
    default:
        if (pick(world, 60) == 0) {
            trouble(world);
        } else if (dci->queue->failed && pick(world, 4) == 0) {
            end_dci(world, which);
            make_dci(world, which);
        } else {
            aim_again(world, dci);
        }
        break;
    }
}

/* ---- An episode ------------------------------------------------------------------------------ */

static void begin(struct world *world)
{
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    const struct nic_queue_options srq = {
        .kind = NIC_QUEUE_SRQ, .receives = 16, .receive_pieces = 1};
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
        for (uint64_t k = 1; k <= CONSTANTS; k++) {
            memcpy(slot_of(world, i, k), &k, sizeof(k));
        }
        if (nic_memory_operations.memory_register(
                world->nics[i], NULL, world->memory[i], BYTES, 0,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                    CRPC_ACCESS_REMOTE_ATOMIC,
                &world->keys[i], &error)) {
            blame(world, "%s", error.message);
        }
        world->srqs[i] = create(world, i, &srq);
    }
    for (uint32_t i = 0; i < DCTS; i++) {
        make_dct(world, i);
    }
    for (uint32_t i = 0; i < DCIS; i++) {
        make_dci(world, i);
    }
}

static void end(struct world *world)
{
    for (uint32_t quiet = 0; quiet < 3 * NICS;) {
        memory_fabric_run(world->fabric, 1000);
        quiet = poll_nic(world, quiet % NICS) > 0 ? 0 : quiet + 1;
    }
    check_all(world);
    for (uint32_t i = 0; i < DCIS; i++) {
        end_dci(world, i);
    }
    for (uint32_t i = 0; i < DCTS; i++) {
        end_dct(world, i);
    }
    for (uint32_t i = 0; i < NICS; i++) {
        end_queue(world, world->srqs[i]);
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
    printf(
        "1..1\nok 1 - %llu steps, %llu episodes from seed %llu\n"
        "# %llu ops completed, %llu with an error; %llu messages; %llu queues ended; %llu streams "
        "reset; overtaken %llu times\n",
        (unsigned long long)done, (unsigned long long)episodes, (unsigned long long)seed,
        (unsigned long long)tally.completed, (unsigned long long)tally.errors,
        (unsigned long long)tally.messages, (unsigned long long)stops, (unsigned long long)resets,
        (unsigned long long)tally.overtaken);
    return 0;
}

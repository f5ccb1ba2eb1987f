/* sim_world.c: see sim.h. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_send_key(const struct sim_side *side, uint32_t send)
{
    return simulation_key(&side->sim->base, side->index, 1, send);
}

uint64_t sim_blank_key(const struct sim_side *side, uint32_t message, uint32_t place)
{
    return simulation_key(&side->sim->base, side->index, 2, (uint64_t)message << 3 | place);
}

uint32_t sim_block_take(struct sim_side *side)
{
    uint32_t start = random_below(&side->sim->base.random, SIM_BLOCKS);
    for (uint32_t i = 0; i < SIM_BLOCKS; i++) {
        uint32_t block = (start + i) % SIM_BLOCKS;
        if (!side->blocks[block].used) {
            side->blocks[block] = (struct sim_block){.used = true};
            return block;
        }
    }
    return SIM_NONE;
}

/* Its bytes change at once: whoever still reads them is found out. */
void sim_block_give_back(struct sim_side *side, uint32_t block)
{
    if (block != SIM_NONE) {
        memset(side->memory + (size_t)block * SIM_BLOCK_BYTES, 0xdd, SIM_BLOCK_BYTES);
        side->blocks[block].used = false;
    }
}

/* ---- World ----------------------------------------------------------------------------------- */

static void choose_fabric(struct sim *sim)
{
    struct memory_fabric_options *options = memory_fabric_options(sim->base.fabric);
    struct random_generator *random = &sim->base.random;
    options->reuse_numbers = random_percent(random, 50);
    options->inline_bytes_max = random_percent(random, 30) ? 220 : 0;
    if (random_percent(random, 30)) {
        options->message_bytes_max = random_between(random, 1000, 1900);
    }
    options->pieces_max = random_between(random, 1, 4);
    options->unit_bytes = 64; /* a clear-to-send line lands whole */
    options->delay_percent = random_percent(random, 50) ? random_below(random, 40) : 0;
    options->delay_steps = random_between(random, 1, 200);
    options->transfer_weight = random_between(random, 1, 6);
    options->receive_weight = random_between(random, 1, 6);
    options->acknowledge_weight = random_between(random, 1, 6);
    options->flush_signaled_only = random_percent(random, 50);
    options->no_windows = random_percent(random, 15);
    options->retry_steps = 300;
}

/* How late payloads are, and from what length on their immediate goes alone. By a generator of its own, so that episodes where none
 * is are what they would be. */
static void choose_relaxed(struct sim *sim, uint64_t seed)
{
    struct random_generator random;
    random_seed(&random, seed);
    memory_fabric_options(sim->base.fabric)->relaxed_late_percent =
        random_percent(&random, 60) ? random_between(&random, 1, 100) : 0;
    sim->straight_bytes = random_percent(&random, 40) ? random_between(&random, 1, 2000) : 0;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        memory_fabric_options(sim->base.fabric)->ece[rail] =
            random_percent(&random, 50) ? 0x30000007 : 0;
    }
}

/* By a generator of its own, so that other episodes are what they would be. */
static void choose_receives(struct sim *sim, uint64_t seed)
{
    struct random_generator random;
    random_seed(&random, seed);
    memory_fabric_options(sim->base.fabric)->no_srq = random_percent(&random, 20);
}

/* Of those with a key: while they compare theirs, nobody else tells that the peer is gone. */
#define CONNECT_TIMEOUT_NS 500000000

static crpc_channel_options choose_options(struct sim *sim)
{
    struct random_generator *random = &sim->base.random;
    crpc_channel_options options = {
        .slots = random_percent(random, 90) ? 1u << random_below(random, 4) : 16,
        /* fewer than a group has could never fill one */
        .sends_max = random_percent(random, 20) ? CHANNEL_GROUP_MAX : 24,
        .queue_pairs = random_between(random, 1, 3),
        .split = random_percent(random, 60) ? CRPC_SPLIT_FIXED : CRPC_SPLIT_MEASURED,
        .rail0_share = random_percent(random, 30) ? (random_percent(random, 50) ? 0 : 1024)
                                                  : random_below(random, 1025),
        .stripe_bytes_min = random_percent(random, 70) ? random_between(random, 1, 600) : 1200,
        .rails = random_percent(random, 95) ? 3 : 1,
        .connect_timeout_ns = CRPC_FOREVER,
        .keepalive_ns = random_percent(random, 80) ? 1000000 : CRPC_FOREVER,
        .rail_retry_ns = random_between(random, 1000, 1000000),
        .retry_timeout = 14,
        .retry_count = 7,
        .user_data = random_next(random),
    };
    return options;
}

static void open_nic(struct sim *sim, struct sim_engine *engine, uint32_t rail, uint32_t receives,
                     uint32_t queue_pairs)
{
    struct random_generator *random = &sim->base.random;
    uint32_t low = (receives * 3 + 1) / 2; /* two thirds of it hold all that may come */
    if (memory_fabric_options(sim->base.fabric)->no_srq) {
        low *= CHANNEL_QUEUE_PAIRS_MAX; /* and of each queue pair alone */
    }
    struct nic_options options = {
        .receive_depth = random_percent(random, 50) ? low + 1 : low + random_below(random, 64) + 1,
        /* at the least a group of two WQEs a buffer, and its record */
        .send_depth = random_between(random, 2 * CHANNEL_GROUP_MAX + 1, 64),
    };
    crpc_error error = {0};
    snprintf(options.device, sizeof(options.device), "memory%u", rail);
    options.send_completion_depth = options.send_depth * queue_pairs;
    options.signal_interval = random_between(random, 1, options.send_depth / 2);
    if (memory_nic_open(sim->base.fabric, &options, &engine->nics[rail], &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot open a nic: %s", error.message);
        return;
    }
    engine->nics[rail]->relaxed = true;
    engine->nics[rail]->straight_bytes = sim->straight_bytes;
}

static void open_engine(struct sim *sim, struct sim_engine *engine, uint32_t receives,
                        uint32_t queue_pairs, uint32_t sides)
{
    crpc_error error = {0};
    engine->index = (uint32_t)(engine - sim->engines);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX && !sim->base.failed; rail++) {
        open_nic(sim, engine, rail, receives, queue_pairs);
    }
    handles_init(&engine->handles);
    engine->handles.last_number = &engine->last_handle; /* handles are part of what is replayed */
    engine->last_handle = (uint64_t)engine->index << 32;
    engine->bytes = (uint64_t)sides * SIM_BLOCKS * SIM_BLOCK_BYTES;
    engine->memory = aligned_alloc(4096, engine->bytes);
    engine->registrar = (struct registrar){.nics = {engine->nics[0], engine->nics[1]},
                                           .nic_count = CHANNEL_RAILS_MAX,
                                           .windows = true,
                                           .told = true,
                                           .log = &sim->base.log};
    if (sim->base.failed || !engine->memory ||
        channel_engine_create(engine->nics, CHANNEL_RAILS_MAX, NULL, &sim->base.log,
                              &engine->handles, SIM_SIDES_MAX, &sim->base.clock_ns, &engine->engine,
                              &error) != CRPC_OK ||
        registration_make(&engine->registrar, (uint64_t)(uintptr_t)engine->memory, engine->bytes,
                          CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, -1, 0,
                          &engine->region, &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot open an engine: %s", error.message);
        return;
    }
    if (sim->late.one_in > 0) {
        late_times_add(&sim->late, &engine->cm);
        engine->engine->links.cm = &engine->cm;
    }
}

static void make_side(struct sim *sim, struct sim_side *side, uint8_t *blob)
{
    crpc_error error = {0};
    side->sim = sim;
    if (channel_blob(side->engine->engine, &side->options, &side->channel, blob, &error) !=
        CRPC_OK) {
        simulation_fail(&sim->base, "cannot make a channel: %s", error.message);
        return;
    }
    side->handle = side->channel->link.handle;
    sim->counts[SIM_KEYS] += side->options.key_bytes > 0;
    side->sends_max = side->options.sends_max;
    side->slots = (uint32_t)minimum(side->options.slots, side->peer->options.slots);
    side->rail_shown[0] = side->rail_shown[1] = -1;
}

/* Its application gives it up: the peer's blob says that only one of the two has a key. */
static void refuse(struct sim_side *side)
{
    side->sim->counts[SIM_KEYS_REFUSED]++;
    link_close(&side->channel->link);
    side->channel = NULL;
    side->closed = true;
}

static void do_late(void *argument, uint32_t index, uint32_t task)
{
    struct sim *sim = argument;
    struct sim_engine *engine = &sim->engines[index];
    simulation_tell(&sim->base, "engine %u does what is late", index);
    late_cm_run(&engine->cm, task);
    engine->asleep = false; /* its event wakes it */
    sim->counts[SIM_LATE]++;
}

void sim_late(struct sim *sim, bool all)
{
    late_times_run(&sim->late, all, do_late, sim);
}

static void connect(struct sim *sim, struct sim_side *left, struct sim_side *right)
{
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    make_side(sim, left, left_blob);
    make_side(sim, right, right_blob);
    if (sim->base.failed) {
        return;
    }
    bool alone = (left->options.key_bytes > 0) != (right->options.key_bytes > 0);
    int32_t expected = alone ? CRPC_E_KEY : CRPC_OK;
    int32_t status = channel_join(left->channel, right_blob, &error);
    int32_t other = channel_join(right->channel, left_blob, &error);
    if (status != expected || other != expected) {
        simulation_fail(&sim->base, "join gave %d and %d, not %d: %s", status, other, expected,
                        error.message);
    } else if (alone) {
        refuse(left);
        refuse(right);
    } else if (sim->late.one_in > 0) {
        /* Who joins first sends, and would give up if the other took long. The ends come late. */
        late_cm_run_all(&left->engine->cm);
        late_cm_run_all(&right->engine->cm);
    }
}

/* Three in ten connections have keys: mostly one, else two different ones, or one side has none. */
static void choose_keys(struct random_generator *random, struct sim_side *left,
                        struct sim_side *right)
{
    if (!random_percent(random, 30)) {
        return;
    }
    uint32_t choice = random_below(random, 100);
    struct sim_side *sides[] = {left, right};
    struct sim_side *without = choice < 10 ? sides[random_below(random, 2)] : NULL;
    for (uint32_t i = 0; i < 2; i++) {
        crpc_channel_options *options = &sides[i]->options;
        sides[i]->other_key = choice < 30;
        if (sides[i] != without) {
            options->connect_timeout_ns = CONNECT_TIMEOUT_NS;
            options->key_bytes = LINK_KEY_BYTES_MIN;
            memset(options->key, choice < 30 ? (int)i + 1 : 1, LINK_KEY_BYTES_MIN);
        }
    }
}

/* Ends a channel's sides have: engines, options, and their part of the engine's memory. */
static void choose_sides(struct sim *sim)
{
    struct random_generator *random = &sim->base.random;
    struct random_generator keys; /* of its own: episodes without keys are what they would be */
    random_seed(&keys, ~sim->base.seed);
    sim->side_count = 2 * random_between(random, 1, SIM_SIDES_MAX / 2);
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        memset(side, 0, sizeof(*side));
        uint32_t engine = random_below(random, sim->engine_count);
        if (i % 2 == 1) {
            uint32_t other = sim->sides[i - 1].engine->index;
            engine = (other + 1 + random_below(random, sim->engine_count - 1)) % sim->engine_count;
        }
        side->index = i;
        side->engine = &sim->engines[engine];
        side->peer = &sim->sides[i ^ 1];
        side->options = choose_options(sim);
        if (i % 2 == 1) {
            choose_keys(&keys, side->peer, side);
        }
    }
}

uint64_t sim_open(struct simulation *base, uint64_t seed, uint64_t steps)
{
    struct sim *sim = (struct sim *)base;
    simulation_open(&sim->base, seed);
    memset(sim->engines, 0, sizeof(sim->engines));
    choose_fabric(sim);
    choose_relaxed(sim, ~sim->base.seed ^ 2);
    sim->calm = random_percent(&sim->base.random, 25);
    sim->abrupt = random_percent(&sim->base.random, 40);
    sim->careful = random_percent(&sim->base.random, 70);
    late_times_choose(&sim->late, ~sim->base.seed ^ 1);
    choose_receives(sim, sim->base.seed ^ 0x6f776e);
    sim->sleepy = sim->base.seed % 3 == 0;
    sim->attempt_fails = false;
    sim->lazy = random_below(&sim->base.random, SIM_ENGINES_MAX + 1);
    sim->engine_count = random_percent(&sim->base.random, 70) ? 2 : SIM_ENGINES_MAX;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        sim->engines[i].index = i;
    }
    choose_sides(sim);
    for (uint32_t i = 0; i < sim->engine_count && !sim->base.failed; i++) {
        struct sim_engine *engine = &sim->engines[i];
        uint32_t receives = 0, queue_pairs = 1, sides = 0;
        for (uint32_t j = 0; j < sim->side_count; j++) {
            if (sim->sides[j].engine == engine) {
                receives += receives_of(sim->sides[j].options.slots);
                queue_pairs += sim->sides[j].options.queue_pairs + 1;
                sides++;
            }
        }
        open_engine(sim, engine, receives + 1, queue_pairs, sides + 1);
        if (!sim->base.failed) {
            engine->engine->windows_each = random_between(&sim->base.random, 1, 2);
            engine->engine->look_asked_max_ns =
                CRPC_FOREVER; /* who is not woken, sleeps for ever */
        }
        sides = 0;
        for (uint32_t j = 0; j < sim->side_count; j++) {
            if (sim->sides[j].engine == engine) {
                sim->sides[j].memory =
                    engine->memory + (size_t)sides++ * SIM_BLOCKS * SIM_BLOCK_BYTES;
            }
        }
    }
    for (uint32_t i = 0; i < sim->side_count && !sim->base.failed; i += 2) {
        connect(sim, &sim->sides[i], &sim->sides[i + 1]);
    }
    memory_fabric_watch(sim->base.fabric, sim_watch, sim);
    if (random_percent(&base->random, 25)) {
        /* It ends while channels still connect, or have just. */
        steps = minimum(steps, random_between(&base->random, 20, 1500));
    }
    return steps;
}

void sim_close(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    sim_count_attempts(sim);
    sim->counts[SIM_HELD] += memory_fabric_counters(sim->base.fabric)->held;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        crpc_channel_stats stats;
        if (sim->sides[i].channel) {
            channel_stats(sim->sides[i].channel, &stats);
            sim->counts[SIM_MESSAGES] += stats.messages_sent;
            sim->counts[SIM_TRUNCATED] += stats.truncated;
            sim->counts[SIM_FAILURES] += stats.rail_failures[0] + stats.rail_failures[1];
            sim->counts[SIM_RECOVERIES] += stats.rail_recoveries[0] + stats.rail_recoveries[1];
            sim->counts[SIM_REPEATED] += stats.shares_repeated;
            link_close(&sim->sides[i].channel->link);
        }
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        struct sim_engine *engine = &sim->engines[i];
        if (engine->region.users != 0) {
            simulation_fail(&sim->base, "%u ops still use the region", engine->region.users);
        }
        registration_end(&engine->registrar, &engine->region);
        channel_engine_destroy(engine->engine);
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            engine->nics[rail]->operations->close(engine->nics[rail]);
        }
        handles_free(&engine->handles);
        free(engine->memory);
    }
    simulation_close(&sim->base);
}

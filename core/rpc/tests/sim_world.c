/* sim_world.c: see sim.h. */
#include "sim.h"

#include <string.h>

uint64_t sim_key(const struct sim_side *side, uint32_t number, bool reply)
{
    return simulation_key(&side->sim->base, side->index, reply, number);
}

/* ---- World ----------------------------------------------------------------------------------- */

static void choose_fabric(struct sim *sim)
{
    struct memory_fabric_options *options = memory_fabric_options(sim->base.fabric);
    struct random_generator *random = &sim->base.random;
    options->reuse_numbers = random_percent(random, 50);
    options->inline_bytes_max = random_percent(random, 30) ? 220 : 0;
    options->pieces_max = random_between(random, 1, 6);
    options->delay_percent = random_percent(random, 50) ? random_below(random, 40) : 0;
    options->delay_steps = random_between(random, 1, 200);
    options->transfer_weight = random_between(random, 1, 6);
    options->receive_weight = random_between(random, 1, 6);
    options->acknowledge_weight = random_between(random, 1, 6);
    options->retry_steps = 300;
}

/* How late payloads are. By a generator of its own, so that episodes where none is are what they would be. */
static void choose_relaxed(struct sim *sim, uint64_t seed)
{
    struct random_generator random;
    random_seed(&random, seed);
    memory_fabric_options(sim->base.fabric)->relaxed_late_percent =
        random_percent(&random, 60) ? random_between(&random, 1, 100) : 0;
    memory_fabric_options(sim->base.fabric)->ece[0] = random_percent(&random, 50) ? 0x30000007 : 0;
}

/* By a generator of its own, so that episodes without are what they would be. Few are shared by many. What has neither may have a
 * receive queue of each queue pair. */
static void choose_initiators(struct sim *sim, uint64_t seed)
{
    struct random_generator random;
    random_seed(&random, seed);
    sim->initiators = random_percent(&random, 30) ? random_between(&random, 1, 3) : 0;
    memory_fabric_options(sim->base.fabric)->no_srq =
        sim->initiators == 0 && random_percent(&random, 20);
}

static void open_engine(struct sim *sim, struct sim_engine *engine, uint32_t windows)
{
    struct random_generator *random = &sim->base.random;
    uint32_t low = (windows * 3 + 1) / 2; /* two thirds of it hold all windows */
    struct nic_options options = {
        .receive_depth = random_percent(random, 50) ? low + 1 : low + random_below(random, 64) + 1,
        .send_depth = random_between(random, 4, 32),
        .initiators = sim->initiators,
    };
    crpc_error error = {0};
    handles_init(&engine->handles);
    options.send_completion_depth = nic_send_places(options.send_depth) * SIM_SIDES_MAX;
    options.signal_interval = random_between(random, 1, options.send_depth / 2);
    if (memory_nic_open(sim->base.fabric, &options, &engine->nic, &error) != CRPC_OK ||
        rpc_engine_create(engine->nic, NULL, &sim->base.log, &engine->handles, SIM_SIDES_MAX,
                          &sim->base.clock_ns, &engine->engine, &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot open an engine: %s", error.message);
        return;
    }
    engine->nic->relaxed = true;
    engine->engine->features_left_out =
        (random_percent(&sim->age_random, 15) ? WIRE_FEATURE_DEADLINES : 0) |
        (random_percent(&sim->trace_random, 15) ? WIRE_FEATURE_TRACES : 0);
    if (sim->late.one_in > 0) {
        late_times_add(&sim->late, &engine->cm);
        engine->engine->links.cm = &engine->cm;
    }
}

/* What the two sides of a connection have as their keys. */
struct keys {
    bool used;
    uint8_t fill[2]; /* of each side's; different ones do not connect */
};

#define CONNECT_TIMEOUT_NS                                                                         \
    500000000 /* of those with a key: nobody else tells that the peer is gone */

static crpc_endpoint_options choose_options(struct sim *sim, uint32_t window)
{
    struct random_generator *random = &sim->base.random;
    crpc_endpoint_options options = {
        .ring_bytes =
            4096u << (random_percent(random, sim->heavy ? 50 : 0) ? 0 : random_below(random, 5)),
        .calls_max = 1u << random_below(random, 7),
        .peer_ring_bytes_max = 4096u << 4,
        .batch_window = window,
        .keepalive_ns = random_percent(random, 80) ? 1000000 : CRPC_FOREVER,
        .connect_timeout_ns = CRPC_FOREVER,
        .retry_timeout = 14,
        .retry_count = 7,
        .user_data = random_next(random),
    };
    uint32_t units = options.ring_bytes / 32;
    units -= (uint32_t)wire_aside_bytes(false) / 32;
    options.request_bytes = 32 * random_between(random, 2, units - 2);
    if (random_percent(random, 30)) {
        options.flags =
            random_percent(random, 50) ? CRPC_ENDPOINT_CALL_ONLY : CRPC_ENDPOINT_SERVE_ONLY;
    }
    if (!sim->scarce && random_percent(random, 40)) {
        options.flags |= CRPC_ENDPOINT_FULL_SIZE;
    }
    return options;
}

static void make_side(struct sim *sim, struct sim_side *side, struct sim_engine *engine,
                      uint32_t window, const uint8_t *key, uint8_t *blob)
{
    crpc_error error = {0};
    crpc_endpoint_options options = choose_options(sim, window);
    bool lane = sim_lane_wanted(sim);
    if (lane) {
        options.flags |= CRPC_ENDPOINT_LANE;
        if (!sim->scarce && random_percent(&sim->lane_random, 60)) {
            options.flags |= CRPC_ENDPOINT_FULL_SIZE; /* more of what lanes do is possible */
        }
        options.request_bytes = (uint32_t)minimum(options.request_bytes,
                                                  options.ring_bytes - wire_aside_bytes(true) - 64);
    }
    if (key) {
        options.connect_timeout_ns = CONNECT_TIMEOUT_NS;
        options.key_bytes = LINK_KEY_BYTES_MIN;
        memset(options.key, *key, LINK_KEY_BYTES_MIN);
    }
    memset(side, 0, sizeof(*side));
    side->sim = sim;
    sim_gather_side(side);
    sim_arena_side(side);
    side->index = (uint32_t)(side - sim->sides);
    side->engine = engine;
    if (lane) {
        sim_lane_open(side);
    }
    if (endpoint_blob(engine->engine, &options, &side->endpoint, blob, &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot make an endpoint: %s", error.message);
        return;
    }
    if (key) {
        struct link_blob made;
        struct link_proof_body words;
        memcpy(&made, blob, sizeof(made));
        memcpy(&words, made.hello.body, sizeof(words));
        side->words_address = words.address;
    }
    side->handle = side->endpoint->link.handle;
    side->queue_pair = side->endpoint->link.queue_pair;
}

/* ---- What is late ---------------------------------------------------------------------------- */

/* Both sides have a task that connects their queue pairs. Half of them are done, and their ends come late.
 * Of the others either side can give up, or send to a peer that is not there yet until its device does. */
static void join_late(struct sim *sim, struct sim_side *left)
{
    bool done = random_percent(&sim->late.random, 50);
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_side *side = i == 0 ? left : left->peer;
        struct link *link = &side->endpoint->link;
        if (done) {
            late_cm_run(&side->engine->cm, side->engine->cm.waiting_count - 1);
            continue;
        }
        side->troubled = true;
        if (random_percent(&sim->late.random, 50)) {
            wheel_clear(&link->group->wheel, &link->life_timer);
            link_set_timer(link->group, &link->life_timer,
                           random_between(&sim->late.random, 1, 10000000));
        }
    }
}

/* In an episode with trouble, some of it fails. */
static void do_late(void *argument, uint32_t index, uint32_t task)
{
    struct sim *sim = argument;
    struct sim_engine *engine = &sim->engines[index];
    const struct link *link = late_cm_task(&engine->cm, task)->link;
    bool fails = !sim->calm && random_percent(&sim->late.random, 10);
    if (fails) {
        struct sim_side *side = sim_side_of(sim, engine, link->handle);
        side->troubled = side->peer->troubled = true;
        memory_fabric_set_failures(sim->base.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
        memory_fabric_set_failures(sim->base.fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_NO_RESOURCE);
    }
    sim->counts[SIM_TASKS]++;
    sim->counts[SIM_TASKS_OVER] += link->failing;
    simulation_tell(&sim->base, "engine %u does what is late%s", index, fails ? ", and fails" : "");
    late_cm_run(&engine->cm, task);
    memory_fabric_set_failures(sim->base.fabric, MEMORY_FAIL_CONNECT, 0, 0);
    memory_fabric_set_failures(sim->base.fabric, MEMORY_FAIL_REGISTER, 0, 0);
}

void sim_late(struct sim *sim, bool all)
{
    late_times_run(&sim->late, all, do_late, sim);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static void connect(struct sim *sim, struct sim_engine *a, struct sim_engine *b,
                    const uint32_t *windows, const struct keys *keys)
{
    struct sim_side *left = &sim->sides[sim->side_count];
    struct sim_side *right = &sim->sides[sim->side_count + 1];
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    make_side(sim, left, a, windows[0], keys->used ? &keys->fill[0] : NULL, left_blob);
    make_side(sim, right, b, windows[1], keys->used ? &keys->fill[1] : NULL, right_blob);
    left->other_key = right->other_key = keys->fill[0] != keys->fill[1];
    sim->counts[SIM_KEYS] += 2 * keys->used;
    sim->side_count += 2;
    if (sim->base.failed) {
        return;
    }
    left->peer = right;
    right->peer = left;
    if (endpoint_join(left->endpoint, right_blob, &error) != CRPC_OK ||
        endpoint_join(right->endpoint, left_blob, &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot join: %s", error.message);
    } else if (sim->late.one_in > 0) {
        join_late(sim, left);
    }
}

uint64_t sim_open(struct simulation *base, uint64_t seed, uint64_t steps)
{
    struct sim *sim = (struct sim *)base;
    simulation_open(&sim->base, seed);
    memset(sim->engines, 0, sizeof(sim->engines));
    sim->side_count = 0;
    choose_fabric(sim);
    choose_relaxed(sim, ~sim->base.seed ^ 11);
    late_times_choose(&sim->late, ~sim->base.seed);
    choose_initiators(sim, sim->base.seed ^ 0x64796e61);
    sim_lanes_choose(sim, sim->base.seed ^ 0x6c616e65);
    sim_gather_open(sim, sim->base.seed ^ 0x67617468);
    sim_arena_choose(sim, sim->base.seed ^ 0x6172656e);
    random_seed(&sim->run_random, sim->base.seed ^ 0x72756e73);
    random_seed(&sim->age_random, sim->base.seed ^ 0x616765);
    random_seed(&sim->trace_random, sim->base.seed ^ 0x7472616365);
    sim->abrupt = sim->late.one_in > 0 && random_percent(&sim->late.random, 20);
    sim->calm = random_percent(&sim->base.random, 60);
    sim->lazy = random_below(&sim->base.random, SIM_ENGINES_MAX);
    sim->heavy = random_percent(&sim->base.random, 50);
    sim->scarce = random_percent(&sim->base.random, 30);
    sim->engine_count = random_between(&sim->base.random, 2, SIM_ENGINES_MAX);

    /* Which connections there are comes first, since the SRQs are sized by their windows. */
    uint32_t connections = random_between(&sim->base.random, 1, SIM_SIDES_MAX / 2);
    uint32_t ends[SIM_SIDES_MAX], windows[SIM_SIDES_MAX], sums[SIM_ENGINES_MAX] = {0};
    struct keys keys[SIM_SIDES_MAX / 2] = {0};
    for (uint32_t i = 0; i < 2 * connections; i += 2) {
        keys[i / 2].used = random_percent(&sim->base.random, 30);
        keys[i / 2].fill[1] = keys[i / 2].used && random_percent(&sim->base.random, 20);
        ends[i] = random_below(&sim->base.random, sim->engine_count);
        ends[i + 1] = (ends[i] + 1 + random_below(&sim->base.random, sim->engine_count - 1)) %
                      sim->engine_count;
        for (uint32_t j = i; j < i + 2; j++) {
            windows[j] = random_percent(&sim->base.random, 50)
                             ? random_between(&sim->base.random, 1, 3)
                             : random_between(&sim->base.random, 1, 24);
            sums[ends[j]] += (sim->scarce ? (uint32_t)minimum(windows[j], 4) : windows[j]) +
                             (keys[i / 2].used ? LINK_WORDS : 0);
        }
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        open_engine(sim, &sim->engines[i], sums[i]);
    }
    for (uint32_t i = 0; i < 2 * connections && !sim->base.failed; i += 2) {
        connect(sim, &sim->engines[ends[i]], &sim->engines[ends[i + 1]], &windows[i], &keys[i / 2]);
    }
    memory_fabric_watch(sim->base.fabric, sim_watch, sim);
    if (sim->abrupt) { /* it ends while sides still connect, or have just */
        steps = minimum(steps, random_between(&sim->late.random, 20, 1500));
    }
    return steps;
}

void sim_close(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    sim->counts[SIM_HELD] += memory_fabric_counters(sim->base.fabric)->held;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        crpc_stats stats;
        rpc_engine_stats(sim->engines[i].engine, &stats);
        sim->counts[SIM_CALLS] += stats.calls;
        sim->counts[SIM_DYNAMIC_CALLS] += sim->initiators ? stats.calls : 0;
        sim->counts[SIM_REFUSALS] += stats.refused;
        sim->counts[SIM_LATE] += stats.late_responses;
        sim->counts[SIM_READS] += stats.mailbox_reads;
        sim->counts[SIM_LIES_NOTICED] += stats.protocol_errors;
        sim->counts[SIM_RINGS_GROWN] += sim->engines[i].engine->rings_grown;
        sim->counts[SIM_WINDOWS_BACK] += sim->engines[i].engine->windows_back;
        rpc_engine_destroy(sim->engines[i].engine);
        handles_free(&sim->engines[i].handles);
        for (uint32_t j = 0; j < sim->side_count; j++) {
            if (sim->sides[j].engine == &sim->engines[i]) {
                sim_lane_close(&sim->sides[j]);
            }
        }
        sim->engines[i].nic->operations->close(sim->engines[i].nic);
    }
    sim_gather_close(sim);
    sim_arena_close(sim);
    simulation_close(&sim->base);
}

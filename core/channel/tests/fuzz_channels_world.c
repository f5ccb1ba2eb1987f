/* fuzz_channels_world.c: see fuzz_channels.h. */
#include "fuzz_channels.h"

#define INPUTS_OF_A_WORLD 1000u /* then a new one is made */
#define ROUND_BYTES 1900u
#define ROUND_OFFSET (40u << 10)

struct world world;

/* ---- Making ---------------------------------------------------------------------------------- */

static crpc_channel_options usual_options(void)
{
    return (crpc_channel_options){.slots = 4,
                                  .sends_max = 16,
                                  .queue_pairs = 1,
                                  .split = CRPC_SPLIT_FIXED,
                                  .rail0_share = 512,
                                  .stripe_bytes_min = 256,
                                  .rails = 3,
                                  .connect_timeout_ns = 1000000000,
                                  .keepalive_ns = CRPC_FOREVER,
                                  .rail_retry_ns = 200000,
                                  .retry_timeout = 14,
                                  .retry_count = 7};
}

/* The later blob is nearly always the greater one, and its side is the passive one. */
static void connect_pair(enum who left, enum who right, const crpc_channel_options options[2],
                         bool left_is_passive, struct channel *ends[2])
{
    const enum who who[2] = {left, right};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (uint32_t n = 0; n < 2; n++) {
        uint32_t i = n ^ left_is_passive;
        fuzz_check(channel_blob(world.engine[who[i]], &options[i], &ends[i], blobs[i], &error) ==
                       CRPC_OK,
                   "no channel: %s", error.message);
    }
    for (uint32_t i = 0; i < 2; i++) {
        fuzz_check(channel_join(ends[i], blobs[!i], &error) == CRPC_OK, "no connection: %s",
                   error.message);
    }
}

static void make_engine(uint32_t who)
{
    crpc_error error = {0};
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        struct nic_options options = {.receive_depth = 128,
                                      .send_depth = 64,
                                      .send_completion_depth = 2048,
                                      .signal_interval = 8};
        strcpy(options.device, rail == 0 ? "memory0" : "memory1");
        fuzz_check(memory_nic_open(world.fabric, &options, &world.nic[who][rail], &error) ==
                       CRPC_OK,
                   "no nic: %s", error.message);
    }
    handles_init(&world.handles[who]);
    fuzz_check(channel_engine_create(world.nic[who], CHANNEL_RAILS_MAX, NULL, &world.log,
                                     &world.handles[who], 4, &world.clock_ns, &world.engine[who],
                                     &error) == CRPC_OK,
               "no engine: %s", error.message);
    world.memory[who] = calloc(1, MEMORY_BYTES);
    world.registrar[who] = (struct registrar){.nics = {world.nic[who][0], world.nic[who][1]},
                                              .nic_count = CHANNEL_RAILS_MAX,
                                              .windows = true,
                                              .log = &world.log};
    fuzz_check(registration_make(&world.registrar[who], (uint64_t)(uintptr_t)world.memory[who],
                                 MEMORY_BYTES, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                 -1, 0, &world.region[who], &error) == CRPC_OK,
               "no region: %s", error.message);
}

static void make_world(void)
{
    const crpc_channel_options honest[2] = {usual_options(), usual_options()};
    world.clock_ns = 1000000000;
    world.fabric = fuzz_fabric();
    memory_fabric_options(world.fabric)->message_bytes_max = WQE_BYTES_MAX;
    for (uint32_t who = 0; who < ENGINES; who++) {
        make_engine(who);
    }
    late_cm_init(&world.late);
    connect_pair(VICTIM, HONEST, honest, false, world.honest);
    for (uint32_t i = 0; i < 10; i++) {
        world_poll_with(HONEST);
    }
    fuzz_check(world.honest_connected[0] && world.honest_connected[1] && world.honest[0]->up == 3 &&
                   world.honest[1]->up == 3,
               "the honest channel is not connected");
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        struct nic *nic = world.nic[BAD][rail];
        fuzz_check(
            nic->operations->memory_register(nic, NULL, world.memory[BAD], MEMORY_BYTES, 0,
                                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                             &world.open_keys[rail], NULL) == CRPC_OK,
            "no keys for the bad peer's memory");
    }
    world.queue_pairs = memory_fabric_counters(world.fabric)->queue_pairs;
    world.regions = memory_fabric_counters(world.fabric)->regions;
}

static void unmake_world(void)
{
    for (uint32_t i = 0; i < ENGINES; i++) {
        link_group_close(&world.engine[i]->links);
        registration_end(&world.registrar[i], &world.region[i]);
        channel_engine_destroy(world.engine[i]);
        handles_free(&world.handles[i]);
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            if (i == BAD) {
                world.nic[i][rail]->operations->memory_deregister(world.nic[i][rail],
                                                                  &world.open_keys[rail]);
            }
            world.nic[i][rail]->operations->close(world.nic[i][rail]);
        }
        free(world.memory[i]);
    }
    fuzz_check(memory_fabric_counters(world.fabric)->left_open == 0, "something was left open");
    memory_fabric_destroy(world.fabric);
    memset(&world, 0, sizeof(world));
}

static crpc_channel_options choose_options(struct fuzz_input *input)
{
    static const uint32_t shares[] = {512, 0, 1024, 300};
    crpc_channel_options options = usual_options();
    uint8_t choice = fuzz_byte(input);
    options.slots = 4u >> (choice & 1) >> (choice >> 1 & 1);
    options.queue_pairs = 1 + (choice >> 2 & 1);
    options.rail0_share = shares[choice >> 3 & 3];
    options.split = choice & 32 ? CRPC_SPLIT_MEASURED : CRPC_SPLIT_FIXED;
    options.rails = choice >= 224 ? 1 : 3;
    options.keepalive_ns = choice & 64 ? 1000000 : CRPC_FOREVER;
    return options;
}

void world_open(struct fuzz_input *input)
{
    struct channel *ends[2];
    if (world.inputs++ == INPUTS_OF_A_WORLD) {
        unmake_world();
        world.inputs = 1;
    }
    if (!world.fabric) {
        make_world();
    }
    const crpc_channel_options options[2] = {choose_options(input), choose_options(input)};
    uint8_t choice = fuzz_byte(input);
    bool late = (choice & 14) == 14, joined = !(choice & 16);
    fuzz_set_late(&world.engine[VICTIM]->links, &world.late, late);
    connect_pair(VICTIM, BAD, options, choice & 1, ends);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&world.ends[i], 0, sizeof(world.ends[i]));
        world.ends[i].who = i == 0 ? VICTIM : BAD;
        world.ends[i].channel = ends[i];
        world.ends[i].handle = ends[i]->link.handle;
    }
    world.ahead = 0;
    /* Most lies are told when all is well. */
    for (uint32_t i = choice < 220 ? 8 : 0; i > 0; i--) {
        if (late && joined) {
            world_late(true);
        }
        world_poll_with(BAD);
    }
}

/* ---- The honest channel ---------------------------------------------------------------------- */

static uint8_t round_byte(uint32_t i)
{
    return (uint8_t)(world.rounds * 31 + i * 167 + (i >> 8));
}

static void take_honest(uint32_t side, const crpc_completion *one)
{
    const uint8_t *bytes = world.memory[side == 0 ? VICTIM : HONEST] + ROUND_OFFSET;
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        fuzz_check(one->status == CRPC_OK && !world.honest_connected[side],
                   "the honest channel: connected with status %d", one->status);
        world.honest_connected[side] = true;
        break;
    case CRPC_COMPLETION_RECEIVED:
        fuzz_check(one->payload_bytes == ROUND_BYTES, "the honest channel: %u bytes",
                   one->payload_bytes);
        for (uint32_t i = 0; i < ROUND_BYTES; i++) {
            fuzz_check(bytes[i] == round_byte(i), "the honest channel: byte %u is wrong", i);
        }
        fuzz_check(bytes[ROUND_BYTES] == 0xee && bytes[-1] == 0xee,
                   "the honest channel: bytes around the message are wrong");
        /* fall through */
    case CRPC_COMPLETION_SENT:
        fuzz_check(one->status == CRPC_OK && one->user_data == world.rounds,
                   "the honest channel: status %d", one->status);
        world.completed++;
        break;
    default:
        fuzz_check(false, "the honest channel: completion %u, status %d: %s", one->kind,
                   one->status, world.honest[side]->link.error.message);
    }
}

void world_honest_round(bool from_victim)
{
    struct channel *sender = world.honest[!from_victim], *receiver = world.honest[from_victim];
    enum who from = from_victim ? VICTIM : HONEST, to = from_victim ? HONEST : VICTIM;
    struct registration *region = &world.region[to];
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_RECEIVE,
                          .user_data = ++world.rounds,
                          .address = (uint64_t)(uintptr_t)world.memory[to] + ROUND_OFFSET,
                          .bytes = ROUND_BYTES};
    memset(world.memory[to] + ROUND_OFFSET - 64, 0xee, ROUND_BYTES + 128);
    fuzz_check(channel_receive(receiver, &op, &region, 1) == CRPC_OK,
               "the honest channel: no receive");
    channel_submit_end(receiver->engine);
    op.opcode = CRPC_CHANNEL_SEND;
    op.address = (uint64_t)(uintptr_t)world.memory[from] + ROUND_OFFSET;
    for (uint32_t i = 0; i < ROUND_BYTES; i++) {
        world.memory[from][ROUND_OFFSET + i] = round_byte(i);
    }
    fuzz_check(channel_send(sender, &op, &world.region[from]) == CRPC_OK,
               "the honest channel: no send");
    channel_submit_end(sender->engine);
    world.completed = 0;
    for (uint32_t i = 0; i < 100 && world.completed < 2; i++) {
        world_poll_with(HONEST);
        world.clock_ns += 1000;
    }
    fuzz_check(world.completed == 2, "the honest channel: the message does not come");
}

/* ---- The books ------------------------------------------------------------------------------- */

static void op_over(struct end *end, const crpc_completion *one, enum op_state state)
{
    uint64_t number = one->user_data;
    fuzz_check(number < end->op_count && end->ops[number].state == state,
               "op %llu completed, which is not open: kind %u, status %d",
               (unsigned long long)number, one->kind, one->status);
    end->ops[number].state = OP_OVER;
    end->open--;
}

static void take_received(struct end *end, const crpc_completion *one)
{
    op_over(end, one, OP_RECEIVE);
    const struct op *op = &end->ops[one->user_data];
    fuzz_check(one->payload == op->address, "another buffer was received");
    fuzz_check(one->status != CRPC_OK || one->payload_bytes <= op->bytes,
               "%u bytes in a buffer of %u", one->payload_bytes, op->bytes);
    fuzz_check(one->status != CRPC_E_TRUNCATED || one->payload_bytes > op->bytes,
               "%u bytes did not fit a buffer of %u", one->payload_bytes, op->bytes);
}

static void take_disconnected(struct end *end)
{
    fuzz_check(end->connected && !end->over && end->channel, "disconnected out of turn");
    for (uint32_t i = 0; i < end->op_count; i++) {
        /* A cancel may be asked for after the end, too. */
        fuzz_check(end->ops[i].state >= OP_CANCEL, "disconnected, and op %u of kind %u is open", i,
                   end->ops[i].state);
    }
    end->over = true;
}

static void take(struct end *end, const crpc_completion *one)
{
    fuzz_check(one->flags == CRPC_COMPLETION_OF_CHANNEL, "a completion of no channel");
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        fuzz_check(!end->connected && !end->never && end->channel, "connected out of turn");
        end->connected = one->status == CRPC_OK;
        end->never = !end->connected;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        take_disconnected(end);
        break;
    case CRPC_COMPLETION_SENT:
        fuzz_check(!end->over, "sent after the end");
        op_over(end, one, OP_SEND);
        break;
    case CRPC_COMPLETION_RECEIVED:
        fuzz_check(!end->over, "received after the end");
        take_received(end, one);
        break;
    case CRPC_COMPLETION_CANCEL:
        op_over(end, one, OP_CANCEL);
        break;
    case CRPC_COMPLETION_RAIL:
        fuzz_check(end->connected && !end->over && end->channel && one->token < CHANNEL_RAILS_MAX,
                   "an event of a rail out of turn");
        break;
    case CRPC_COMPLETION_ROOM:
        fuzz_check(end->connected && !end->over && end->channel && end->room_due,
                   "room, though nothing was refused");
        end->room_due = false;
        break;
    default:
        fuzz_check(false, "a completion of kind %u", one->kind);
    }
}

/* ---- Polling --------------------------------------------------------------------------------- */

void world_poll(enum who who, uint32_t capacity)
{
    crpc_completion completions[POLL_MAX];
    uint32_t count = channel_poll(world.engine[who], completions, capacity);
    fuzz_check(count <= capacity, "more completions than asked for");
    world.ahead = who == VICTIM ? 0 : world.ahead;
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *one = &completions[i];
        uint32_t side = who == HONEST;
        if (who != BAD && one->endpoint.bits == world.honest[side]->link.handle) {
            take_honest(side, one);
        } else {
            struct end *end = &world.ends[who == BAD];
            fuzz_check(who != HONEST && one->endpoint.bits == end->handle,
                       "a completion of no channel");
            take(end, one);
        }
    }
    fuzz_check_late(&world.engine[VICTIM]->links);
}

void world_late(bool all)
{
    fuzz_do_late(&world.late, all);
}

void world_progress(enum who who)
{
    channel_progress(world.engine[who]);
    world.ahead = who == VICTIM ? 0 : world.ahead;
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Nobody who sleeps is woken for nothing. */
static void check_quiet(enum who who)
{
    fuzz_check(!channel_something_waits(world.engine[who]),
               "something still waits: nobody can sleep");
    fuzz_check(channel_next_deadline_ns(world.engine[who]) > world.clock_ns,
               "the next deadline is over: nobody can sleep");
}

static void check_fabric(void)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(world.fabric);
    fuzz_check_fabric(counters);
    fuzz_check(counters->queue_pairs == world.queue_pairs && counters->regions == world.regions &&
                   world.engine[VICTIM]->channel_count == 1,
               "something of the channel is left");
}

static bool ended(const struct end *end)
{
    return end->over || end->never || !end->channel;
}

void world_close(void)
{
    struct end *victim = &world.ends[0];
    memory_fabric_set_failures(world.fabric, MEMORY_FAIL_CREATE, 0, 0);
    memory_fabric_set_failures(world.fabric, MEMORY_FAIL_CONNECT, 0, 0);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        memory_fabric_set_link(world.nic[BAD][rail], true);
    }
    for (uint32_t i = 0; i < 4; i++) {
        world_late(true);
        world_poll_with(BAD);
    }
    bool limited = false; /* a leave of before may have no limit */
    for (uint32_t i = 0; i < 100 && !ended(victim); i++) {
        if (victim->connected && !limited) {
            limited = link_disconnect(&victim->channel->link, 1000000) == CRPC_OK;
        }
        world.clock_ns += 30000000;
        world_late(true);
        world_poll_with(BAD);
    }
    fuzz_check(ended(victim),
               "the channel does not end: connected %d, state %u, passive %d, up %u, rails %u %u, "
               "leave %u, peer's %u, sends %u, failing %d",
               victim->connected, victim->channel->link.state, victim->channel->link.passive,
               victim->channel->up, victim->channel->rails[0].state,
               victim->channel->rails[1].state, victim->channel->leave, victim->channel->peer_leave,
               victim->channel->send.open, victim->channel->link.failing);
    world_poll(VICTIM, POLL_MAX);
    fuzz_check(victim->open == 0, "%u ops never completed", victim->open);
    check_quiet(VICTIM);
    for (uint32_t i = 0; i < 2; i++) {
        struct end *end = &world.ends[i];
        if (end->channel) {
            link_close(&end->channel->link);
            end->channel = NULL;
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        world_late(true);
        world_poll_with(BAD);
    }
    fuzz_check(world.ends[1].open == 0, "%u ops of the bad peer never completed",
               world.ends[1].open);
    fuzz_check(world.region[VICTIM].users == 0 && world.region[BAD].users == 0,
               "an op still uses its region");
    check_quiet(BAD);
    check_fabric();
    world_honest_round(true);
    world_honest_round(false);
}

/* fuzz_calls_world.c: see fuzz_calls.h. */
#include "fuzz_calls.h"

#define INPUTS_OF_A_WORLD 1000u /* then a new one is made */
#define ROUND_BYTES 40u

static struct world worlds[2]; /* with RC, and with DC */
struct world *world = &worlds[0];
uint8_t payload[PAYLOAD_BYTES];

/* ---- Making ---------------------------------------------------------------------------------- */

static crpc_endpoint_options usual_options(void)
{
    return (crpc_endpoint_options){.ring_bytes = 4096,
                                   .peer_ring_bytes_max = 65536,
                                   .request_bytes = 2048,
                                   .calls_max = 16,
                                   .batch_window = 8,
                                   .connect_timeout_ns = CRPC_FOREVER,
                                   .keepalive_ns = CRPC_FOREVER,
                                   .retry_timeout = 14,
                                   .retry_count = 7};
}

static void connect_pair(enum who left, enum who right, const crpc_endpoint_options options[2],
                         struct rpc_endpoint *ends[2])
{
    const enum who who[2] = {left, right};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (uint32_t i = 0; i < 2; i++) {
        fuzz_check(endpoint_blob(world->engine[who[i]], &options[i], &ends[i], blobs[i], &error) ==
                       CRPC_OK,
                   "no endpoint: %s", error.message);
    }
    for (uint32_t i = 0; i < 2; i++) {
        fuzz_check(endpoint_join(ends[i], blobs[!i], &error) == CRPC_OK, "no connection: %s",
                   error.message);
    }
}

static void make_world(bool dynamic)
{
    const struct nic_options options = {.receive_depth = 64,
                                        .send_depth = 16,
                                        .send_completion_depth = 256,
                                        .signal_interval = 4,
                                        .initiators = dynamic ? 1 : 0};
    const crpc_endpoint_options honest[2] = {usual_options(), usual_options()};
    crpc_error error = {0};
    world->dynamic = dynamic;
    world->clock_ns = 1000000000;
    world->fabric = fuzz_fabric();
    for (uint32_t i = 0; i < ENGINES; i++) {
        handles_init(&world->handles[i]);
        fuzz_check(memory_nic_open(world->fabric, &options, &world->nic[i], &error) == CRPC_OK &&
                       rpc_engine_create(world->nic[i], NULL, &world->log, &world->handles[i], 8,
                                         &world->clock_ns, &world->engine[i], &error) == CRPC_OK,
                   "no engine: %s", error.message);
    }
    late_cm_init(&world->late);
    if (!dynamic) {
        lanes_open();
    }
    connect_pair(VICTIM, HONEST, honest, world->honest);
    world_poll_with(HONEST);
    world->queue_pairs = memory_fabric_counters(world->fabric)->queue_pairs;
    world->regions = memory_fabric_counters(world->fabric)->regions;
}

static void unmake_world(void)
{
    for (uint32_t i = 0; i < ENGINES; i++) {
        rpc_engine_destroy(world->engine[i]);
        handles_free(&world->handles[i]);
    }
    if (!world->dynamic) {
        lanes_close();
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        world->nic[i]->operations->close(world->nic[i]);
    }
    fuzz_check(memory_fabric_counters(world->fabric)->left_open == 0, "something was left open");
    memory_fabric_destroy(world->fabric);
    memset(world, 0, sizeof(*world));
}

/* Of the first byte of options, the two highest bits tell flags, or that the victim is late. */
static bool choose_late(const struct fuzz_input *input)
{
    return input->left > 0 && (input->next[0] & 0xe0) == 0x80;
}

/* Likewise that the endpoints connect by DC. */
static bool choose_dynamic(const struct fuzz_input *input)
{
    return input->left > 0 && (input->next[0] & 0xa0) == 0xa0;
}

static crpc_endpoint_options choose_options(struct fuzz_input *input)
{
    static const uint32_t windows[] = {8, 1, 2, 16}, calls[] = {16, 1, 2, 64};
    crpc_endpoint_options options = usual_options();
    uint8_t choice = fuzz_byte(input);
    options.batch_window = windows[choice & 3];
    options.calls_max = calls[choice >> 2 & 3];
    options.keepalive_ns = choice & 16 ? 1000000 : CRPC_FOREVER;
    if (choice & 32) {
        uint8_t units = fuzz_byte(input);
        options.request_bytes = 64 + 32 * (units % 115u);
        if (choice & 64) { /* rings that grow */
            options.ring_bytes = 65536;
        }
        if (units >= 192 && !world->dynamic) {
            options.flags = CRPC_ENDPOINT_LANE;
            options.request_bytes = 64 + 32 * (units % 64u);
        }
    } else if (choice & 64) {
        options.flags = choice & 128 ? CRPC_ENDPOINT_CALL_ONLY : CRPC_ENDPOINT_SERVE_ONLY;
    }
    return options;
}

void world_open(struct fuzz_input *input)
{
    struct rpc_endpoint *ends[2];
    const bool dynamic = choose_dynamic(input);
    world = &worlds[dynamic];
    if (world->inputs++ == INPUTS_OF_A_WORLD) {
        unmake_world();
        world->inputs = 1;
    }
    if (!world->fabric) {
        make_world(dynamic);
    }
    fuzz_set_late(&world->engine[VICTIM]->links, &world->late, choose_late(input));
    crpc_endpoint_options options[2] = {choose_options(input), choose_options(input)};
    if (options[0].flags & CRPC_ENDPOINT_LANE && options[1].request_bytes <= 2048) {
        options[1].flags |= CRPC_ENDPOINT_LANE;
    }
    connect_pair(VICTIM, BAD, options, ends);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&world->ends[i], 0, sizeof(world->ends[i]));
        world->ends[i].who = i == 0 ? VICTIM : BAD;
        world->ends[i].endpoint = ends[i];
        world->ends[i].handle = ends[i]->link.handle;
    }
    world->ahead_bytes = world->ahead_batches = 0;
}

/* ---- The honest connection ------------------------------------------------------------------- */

static void answer_honest(struct rpc_endpoint *endpoint, const crpc_completion *request)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = CRPC_OP_QUIET,
                  .token = request->token,
                  .payload_bytes = request->payload_bytes};
    fuzz_check(request->payload_bytes == ROUND_BYTES && request->method == (uint16_t)world->rounds,
               "the honest connection: another request");
    fuzz_check(rpc_reply(endpoint, &op, (const void *)(uintptr_t)request->payload) == CRPC_OK,
               "the honest connection: no reply");
    rpc_submit_end(endpoint->engine);
}

static void take_honest(struct rpc_endpoint *endpoint, const crpc_completion *one)
{
    uint8_t expected[ROUND_BYTES];
    memset(expected, (int)(world->rounds & 0xff), sizeof(expected));
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        fuzz_check(world->rounds == 0, "the honest connection: connected again");
        break;
    case CRPC_COMPLETION_REQUEST:
        answer_honest(endpoint, one);
        break;
    case CRPC_COMPLETION_RESPONSE:
        fuzz_check(one->status == CRPC_OK && one->user_data == world->rounds && !world->answered,
                   "the honest connection: status %d", one->status);
        fuzz_check(one->payload_bytes == ROUND_BYTES &&
                       memcmp((const void *)(uintptr_t)one->payload, expected, ROUND_BYTES) == 0,
                   "the honest connection: another reply");
        world->answered = true;
        break;
    default:
        fuzz_check(false, "the honest connection: completion %u, status %d: %s", one->kind,
                   one->status, endpoint->link.error.message);
    }
}

void world_honest_round(bool from_victim)
{
    struct rpc_endpoint *caller = world->honest[!from_victim];
    uint8_t bytes[ROUND_BYTES];
    world->rounds++;
    world->answered = false;
    memset(bytes, (int)(world->rounds & 0xff), sizeof(bytes));
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .method = (uint16_t)world->rounds,
                  .user_data = world->rounds,
                  .payload_bytes = ROUND_BYTES,
                  .reply_bytes_max = ROUND_BYTES};
    int32_t status = rpc_call(caller, &op, bytes);
    fuzz_check(status == CRPC_OK, "the honest connection: a call is refused with %d", status);
    rpc_submit_end(caller->engine);
    for (uint32_t i = 0; i < 100 && !world->answered; i++) {
        world_poll_with(HONEST);
        world->clock_ns += 10000;
    }
    fuzz_check(world->answered, "the honest connection: no answer");
    world_poll_with(HONEST); /* the view ends */
}

/* ---- The books ------------------------------------------------------------------------------- */

void end_booked(struct end *end, int32_t status, enum op_state state, const crpc_op *op)
{
    if (status == CRPC_OK) {
        end->limits[end->op_count] = op->reply_bytes_max;
        end->ops[end->op_count++] = (uint8_t)state;
        end->open++;
    }
    end->room_due |= status == CRPC_E_AGAIN;
}

static void op_over(struct end *end, const crpc_completion *one, enum op_state state)
{
    fuzz_check(one->user_data < end->op_count && end->ops[one->user_data] == state,
               "op %llu completed, which is not open: kind %u, status %d",
               (unsigned long long)one->user_data, one->kind, one->status);
    end->ops[one->user_data] = OP_OVER;
    end->open--;
}

/* Reads what the application may read. */
static void look(const struct end *end, const crpc_completion *one)
{
    const volatile uint8_t *bytes = (const volatile uint8_t *)(uintptr_t)one->payload;
    fuzz_check(end->endpoint && rpc_view_valid(end->endpoint, one), "a view outside of the ring");
    for (uint32_t i = 0; i < one->payload_bytes; i += 61) {
        (void)bytes[i];
    }
    if (one->payload_bytes > 0) {
        (void)bytes[one->payload_bytes - 1];
    }
}

static void take(struct end *end, const crpc_completion *one)
{
    bool open = end->connected && !end->over && end->endpoint;
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        fuzz_check(!end->connected && end->endpoint && (one->status == CRPC_OK || end->may_fail),
                   "connected with status %d", one->status);
        end->connected = true;
        end->over = one->status != CRPC_OK;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        fuzz_check(open, "disconnected out of turn");
        for (uint32_t i = 0; i < end->op_count; i++) {
            /* A cancel may be asked for after the end, too. */
            fuzz_check(end->ops[i] >= OP_CANCEL, "disconnected, and op %u of kind %u is open", i,
                       end->ops[i]);
        }
        end->over = true;
        end->token_count = 0;
        break;
    case CRPC_COMPLETION_REQUEST:
        fuzz_check(open, "a request out of turn");
        look(end, one);
        if (end->token_count < TOKENS_MAX) {
            end->tokens[end->token_count++] = one->token;
        }
        break;
    case CRPC_COMPLETION_RESPONSE:
        if (one->payload) {
            look(end, one);
        }
        fuzz_check(!end->over, "a response after the end");
        op_over(end, one, OP_CALL);
        fuzz_check(one->payload_bytes <= end->limits[one->user_data], "a reply of %u bytes, not %u",
                   one->payload_bytes, end->limits[one->user_data]);
        fuzz_check(one->status >= 0 || one->status == CRPC_E_DROPPED ||
                       one->status == CRPC_E_NOT_STARTED || !one->payload,
                   "a payload with status %d", one->status);
        break;
    case CRPC_COMPLETION_ABANDONED:
        fuzz_check(open && (one->status == CRPC_E_TIMEOUT || one->status == CRPC_E_CANCELED),
                   "an abandoned request out of turn, or with status %d", one->status);
        break;
    case CRPC_COMPLETION_REPLY:
        fuzz_check(!end->over, "a reply's completion after the end");
        op_over(end, one, OP_REPLY);
        break;
    case CRPC_COMPLETION_CANCEL:
        op_over(end, one, OP_CANCEL);
        break;
    case CRPC_COMPLETION_WORK:
        fuzz_check(!end->over, "an op of a lane completed after the end");
        op_over(end, one, OP_LANE);
        lanes_done(end, one);
        break;
    case CRPC_COMPLETION_ROOM:
        fuzz_check(open && end->room_due, "room, though nothing was refused");
        end->room_due = false;
        break;
    default:
        fuzz_check(false, "a completion of kind %u", one->kind);
    }
}

/* What waits to be sent fits the peer's ring, or it would overwrite itself. */
static void check_staging(const struct end *end)
{
    const struct rpc_endpoint *endpoint = end->endpoint;
    if (endpoint && endpoint->out.batch_messages > 0 && !endpoint->link.failing) {
        fuzz_check(endpoint->out.produced - endpoint->out.batch_start <=
                       endpoint->out.staging.bytes,
                   "more waits than the peer's ring holds");
    }
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void victim_looked(enum who who)
{
    if (who == VICTIM) {
        world->ahead_bytes = world->ahead_batches = 0;
    }
}

void world_poll(enum who who, uint32_t capacity)
{
    crpc_completion completions[POLL_MAX];
    uint32_t count = rpc_poll(world->engine[who], completions, capacity);
    fuzz_check(count <= capacity, "more completions than asked for");
    victim_looked(who);
    check_staging(&world->ends[0]);
    fuzz_check_late(&world->engine[VICTIM]->links);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *one = &completions[i];
        struct rpc_endpoint *honest = who == BAD ? NULL : world->honest[who == HONEST];
        if (honest && one->endpoint.bits == honest->link.handle) {
            take_honest(honest, one);
        } else {
            struct end *end = &world->ends[who == BAD];
            fuzz_check(who != HONEST && one->endpoint.bits == end->handle,
                       "a completion of no endpoint");
            take(end, one);
        }
    }
}

void world_progress(enum who who)
{
    rpc_progress(world->engine[who]);
    victim_looked(who);
}

void world_late(bool all)
{
    fuzz_do_late(&world->late, all);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Nobody who sleeps is woken for nothing. */
static void check_quiet(enum who who)
{
    fuzz_check(!rpc_something_waits(world->engine[who]), "something still waits: nobody can sleep");
    fuzz_check(rpc_next_deadline_ns(world->engine[who]) > world->clock_ns,
               "the next deadline is over: nobody can sleep");
}

void world_close(void)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(world->fabric);
    struct end *victim = &world->ends[0];
    world_late(true);
    for (uint32_t i = 0; i < 4; i++) {
        world_poll_with(BAD);
    }
    if (victim->endpoint && !victim->over) {
        int32_t status = link_disconnect(&victim->endpoint->link, 1000000);
        fuzz_check(status == CRPC_OK || victim->endpoint->link.failing, "disconnect gave %d",
                   status);
    }
    for (uint32_t i = 0; i < 60 && victim->endpoint && !victim->over; i++) {
        world->clock_ns += 100000;
        world_poll_with(BAD);
    }
    fuzz_check(victim->over || !victim->endpoint, "the connection does not end");
    world_poll(VICTIM, POLL_MAX);
    fuzz_check(victim->open == 0, "%u ops never completed", victim->open);
    check_quiet(VICTIM);
    for (uint32_t i = 0; i < 2; i++) {
        struct end *end = &world->ends[i];
        if (end->endpoint) {
            link_close(&end->endpoint->link);
            end->endpoint = NULL;
        }
    }
    world_late(true); /* rings may still be made */
    for (uint32_t i = 0; i < 2; i++) {
        world_poll_with(BAD);
    }
    fuzz_check(world->ends[1].open == 0, "%u ops of the bad peer never completed",
               world->ends[1].open);
    check_quiet(BAD);
    fuzz_check_fabric(counters);
    fuzz_check(counters->queue_pairs == world->queue_pairs && counters->regions == world->regions &&
                   rpc_engine_endpoints(world->engine[VICTIM]) == 1,
               "something of the connection is left");
    world_honest_round(true);
    world_honest_round(false);
}

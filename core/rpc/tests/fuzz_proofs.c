/* fuzz_proofs.c: two sides that compare their keys, and somebody who writes anything into the memory
 * for the words of one of them, the victim, at any time. The victim is told once whether it is
 * connected; it is so only if its peer has said all three words; until the peer has proved its key
 * nothing of the victim's service is registered; and another connection sees nothing.
 *
 * It is for libFuzzer (./dev fuzz proofs), or a test with fuzz_main.c.
 */
#include "../../link/tests/fuzz.h"
#include "base/error.h"
#include "blob.h"
#include "nic/memory/memory.h"

#define CONNECT_NS 1000000
#define ACTIONS_MAX 64
#define VICTIM 0
#define PEER 1

static struct world {
    struct memory_fabric *fabric;
    struct handles handles[2];
    struct log log;
    uint64_t clock_ns;
    struct nic *nic[2];
    struct rpc_engine *engine[2];
    struct rpc_endpoint *endpoint[2]; /* NULL = closed */
    struct rpc_endpoint *other[2];    /* a connection without a key */
    struct link_proof_body words;     /* of the victim */
    bool same_key;
    uint32_t told[2];
} world;

static crpc_endpoint_options options_of(uint8_t key)
{
    crpc_endpoint_options options = {.ring_bytes = 4096,
                                     .request_bytes = 2048,
                                     .calls_max = 4,
                                     .batch_window = 4,
                                     .connect_timeout_ns = CONNECT_NS,
                                     .keepalive_ns = CRPC_FOREVER,
                                     .retry_timeout = 14,
                                     .retry_count = 7};
    if (key != 0) {
        options.key_bytes = LINK_KEY_BYTES_MIN;
        memset(options.key, key, LINK_KEY_BYTES_MIN);
    }
    return options;
}

static void join(struct rpc_endpoint *made[2], const crpc_endpoint_options *left,
                 const crpc_endpoint_options *right)
{
    const crpc_endpoint_options *options[2] = {left, right};
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (int side = 0; side < 2; side++) {
        fuzz_check(endpoint_blob(world.engine[side], options[side], &made[side], blob[side],
                                 &error) == CRPC_OK,
                   "no endpoint: %s", error.message);
    }
    for (int side = 0; side < 2; side++) {
        fuzz_check(endpoint_join(made[side], blob[!side], &error) == CRPC_OK, "no join: %s",
                   error.message);
    }
    struct link_blob wire;
    memcpy(&wire, blob[VICTIM], sizeof(wire));
    memcpy(&world.words, wire.hello.body, sizeof(world.words));
}

static void open_world(uint8_t choice)
{
    const struct nic_options options = {
        .receive_depth = 64, .send_depth = 8, .send_completion_depth = 128, .signal_interval = 4};
    crpc_error error = {0};
    memset(&world, 0, sizeof(world));
    world.clock_ns = 1000000000;
    world.fabric = memory_fabric_create(choice);
    memory_fabric_options(world.fabric)->mode = choice & 1 ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE;
    memory_fabric_options(world.fabric)->retry_steps = 20;
    for (int side = 0; side < 2; side++) {
        handles_init(&world.handles[side]);
        fuzz_check(memory_nic_open(world.fabric, &options, &world.nic[side], &error) == CRPC_OK &&
                       rpc_engine_create(world.nic[side], NULL, &world.log, &world.handles[side], 4,
                                         &world.clock_ns, &world.engine[side], &error) == CRPC_OK,
                   "no engine: %s", error.message);
    }
    crpc_endpoint_options without = options_of(0), victim = options_of(7);
    world.same_key = !(choice & 2);
    crpc_endpoint_options peer = options_of(world.same_key ? 7 : 8);
    join(world.other, &without, &without);
    join(world.endpoint, &victim, &peer);
}

static void take(uint32_t side, const crpc_completion *completion)
{
    const struct rpc_endpoint *endpoint = world.endpoint[side];
    if (!endpoint || completion->endpoint.bits != endpoint->link.handle) {
        return;
    }
    if (completion->kind == CRPC_COMPLETION_CONNECTED) {
        world.told[side]++;
        fuzz_check(world.told[side] == 1, "CONNECTED came twice");
        if (completion->status == CRPC_OK) {
            const struct rpc_endpoint *peer = world.endpoint[!side];
            fuzz_check(world.same_key, "connected with another key");
            fuzz_check(!peer || !peer->link.queue_pair ||
                           peer->link.queue_pair->posted >= LINK_WORDS,
                       "connected before the peer has said all words");
        } else {
            fuzz_check(endpoint->link.error.status == completion->status &&
                           strlen(endpoint->link.error.message) > 10,
                       "not connected, and no reason");
        }
    } else {
        fuzz_check(completion->kind == CRPC_COMPLETION_DISCONNECTED && world.told[side] == 1,
                   "completion of kind %u", completion->kind);
    }
}

static void check_rights(void)
{
    const struct rpc_endpoint *victim = world.endpoint[VICTIM], *peer = world.endpoint[PEER];
    if (victim && peer && peer->link.queue_pair &&
        peer->link.queue_pair->posted < LINK_WORD_PROOF) {
        fuzz_check(!victim->in.ring.memory.driver,
                   "the ring can be written before the peer has proved its key");
    }
}

static void poll(uint32_t side)
{
    crpc_completion completions[16];
    uint32_t count = rpc_poll(world.engine[side], completions, 16);
    fuzz_check(count <= 16, "poll gave more than asked for");
    for (uint32_t i = 0; i < count; i++) {
        take(side, &completions[i]);
    }
    check_rights();
}

/* Anything that a WRITE of the victim's peer can do. */
static void write_words(struct fuzz_input *input, bool immediate)
{
    uint8_t bytes[LINK_WORDS * sizeof(struct link_word)];
    uint32_t count = fuzz_below(input, 4) * (uint32_t)sizeof(struct link_word) / 2;
    uint64_t address = world.words.address + fuzz_near(input, fuzz_below(input, 3) * 64);
    uint32_t number = (uint32_t)fuzz_near(input, fuzz_below(input, 4));
    fuzz_bytes(input, bytes, count);
    if (!world.endpoint[VICTIM] || !world.endpoint[VICTIM]->link.queue_pair) {
        return;
    }
    uint32_t queue_pair = world.endpoint[VICTIM]->link.queue_pair->number;
    if (immediate) {
        memory_fabric_write_immediate(world.fabric, queue_pair, address, world.words.key, count,
                                      bytes, number);
    } else {
        memory_fabric_write(world.fabric, queue_pair, address, world.words.key, count, bytes);
    }
}

static void act(struct fuzz_input *input)
{
    switch (fuzz_below(input, 12)) {
    case 0:
    case 1:
    case 2:
        poll(VICTIM);
        break;
    case 3:
    case 4:
    case 5:
        poll(PEER);
        break;
    case 6:
        memory_fabric_run(world.fabric, fuzz_byte(input));
        break;
    case 7:
        write_words(input, true);
        break;
    case 8:
        write_words(input, false);
        break;
    case 9:
        world.clock_ns += (uint64_t)fuzz_byte(input) * (CONNECT_NS / 100);
        break;
    case 10: {
        uint8_t which = fuzz_byte(input);
        if (world.endpoint[which & 1] && world.endpoint[which & 1]->link.queue_pair) {
            (which & 2 ? memory_fabric_kill
                       : memory_fabric_cut)(world.endpoint[which & 1]->link.queue_pair);
        }
        break;
    }
    default: {
        uint32_t side = fuzz_below(input, 2);
        if (fuzz_below(input, 4) == 0 && world.endpoint[side]) {
            link_close(&world.endpoint[side]->link);
            world.endpoint[side] = NULL;
        }
    }
    }
}

/* All is told in the end, and the other connection lives. */
static void end_world(void)
{
    for (int i = 0; i < 200; i++) {
        memory_fabric_run(world.fabric, 100);
        world.clock_ns += CONNECT_NS / 20;
        poll(VICTIM);
        poll(PEER);
    }
    for (int side = 0; side < 2; side++) {
        fuzz_check(!world.endpoint[side] || world.told[side] == 1, "side %d was told nothing",
                   side);
        fuzz_check(world.other[side]->link.state == CRPC_STATE_CONNECTED,
                   "another connection has ended: %s", world.other[side]->link.error.message);
    }
    for (int side = 0; side < 2; side++) {
        rpc_engine_destroy(world.engine[side]);
        handles_free(&world.handles[side]);
        world.nic[side]->operations->close(world.nic[side]);
    }
    const struct memory_fabric_counters *counters = memory_fabric_counters(world.fabric);
    fuzz_check(counters->left_open == 0, "something was left behind");
    fuzz_check(counters->send_overflows == 0 && counters->receive_overflows == 0,
               "a queue has overflowed");
    memory_fabric_destroy(world.fabric);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    open_world(fuzz_byte(&input));
    for (int i = 0; i < ACTIONS_MAX && input.left > 0; i++) {
        act(&input);
    }
    end_world();
    return 0;
}

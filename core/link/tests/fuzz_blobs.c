/* fuzz_blobs.c: blobs of any bytes that an application hands to join, for both services. A blob that
 * is refused changes nothing: a good one can still be joined. One that is taken makes a connection,
 * whose ops complete though there may be nobody at its other end.
 *
 * It is for libFuzzer (./dev fuzz blobs), or a test with fuzz_main.c.
 */
#include "base/checksum.h"
#include "channel/channel.h"
#include "fuzz.h"
#include "link/link.h"
#include "nic/memory/memory.h"
#include "rpc/rpc.h"

#define POLL_MAX 16u

enum side {
    OURS,
    THEIRS,
};

static struct {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
    struct handles handles[2];
    struct nic *nic[2];
    struct rpc_engine *calls[2];
    struct channel_engine *channels[2];
    uint8_t blobs[2][LINK_BLOB_BYTES]; /* of the peer; for calls and for channels */
    uint64_t queue_pairs, regions;
} world;

/* ---- Making ---------------------------------------------------------------------------------- */

static const crpc_endpoint_options call_options = {.ring_bytes = 4096,
                                                   .request_bytes = 2048,
                                                   .calls_max = 16,
                                                   .batch_window = 8,
                                                   .connect_timeout_ns = 1000000000,
                                                   .keepalive_ns = CRPC_FOREVER,
                                                   .retry_timeout = 14,
                                                   .retry_count = 7};

static const crpc_channel_options channel_options = {.slots = 4,
                                                     .sends_max = 8,
                                                     .queue_pairs = 1,
                                                     .split = CRPC_SPLIT_FIXED,
                                                     .rail0_share = 512,
                                                     .stripe_bytes_min = 256,
                                                     .rails = 1,
                                                     .connect_timeout_ns = 1000000000,
                                                     .keepalive_ns = CRPC_FOREVER,
                                                     .rail_retry_ns = 200000,
                                                     .retry_timeout = 14,
                                                     .retry_count = 7};

static struct link_group *group_of(enum side side, bool channel)
{
    return channel ? channel_links(world.channels[side]) : rpc_links(world.calls[side]);
}

static struct link *make_link(enum side side, bool channel, uint8_t *blob)
{
    struct link *link;
    crpc_error error = {0};
    const void *options = channel ? (const void *)&channel_options : (const void *)&call_options;
    fuzz_check(link_blob(group_of(side, channel), options, &link, blob, &error) == CRPC_OK,
               "no blob: %s", error.message);
    return link;
}

static void make_world(void)
{
    const struct nic_options options = {.receive_depth = 128,
                                        .send_depth = 64,
                                        .send_completion_depth = 1024,
                                        .signal_interval = 4};
    crpc_error error = {0};
    world.clock_ns = 1000000000;
    world.fabric = memory_fabric_create(1);
    memory_fabric_options(world.fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(world.fabric)->retry_steps = 4;
    memory_fabric_options(world.fabric)->ece[0] = 0x30000007;
    for (uint32_t i = 0; i < 2; i++) {
        handles_init(&world.handles[i]);
        fuzz_check(memory_nic_open(world.fabric, &options, &world.nic[i], &error) == CRPC_OK &&
                       rpc_engine_create(world.nic[i], NULL, &world.log, &world.handles[i], 4,
                                         &world.clock_ns, &world.calls[i], &error) == CRPC_OK,
                   "no engine: %s", error.message);
    }
    /* Each has its own completions, so channels have devices of their own. */
    for (uint32_t i = 0; i < 2; i++) {
        struct nic *nic;
        fuzz_check(memory_nic_open(world.fabric, &options, &nic, &error) == CRPC_OK &&
                       channel_engine_create(&nic, 1, NULL, &world.log, &world.handles[i], 4,
                                             &world.clock_ns, &world.channels[i],
                                             &error) == CRPC_OK,
                   "no engine: %s", error.message);
    }
    make_link(THEIRS, false, world.blobs[0]);
    make_link(THEIRS, true, world.blobs[1]);
    world.queue_pairs = memory_fabric_counters(world.fabric)->queue_pairs;
    world.regions = memory_fabric_counters(world.fabric)->regions;
}

static uint32_t calls_open;

/* ---- Inputs ---------------------------------------------------------------------------------- */

static void seal(uint8_t *bytes)
{
    struct link_blob blob;
    memcpy(&blob, bytes, sizeof(blob));
    blob.checksum = checksum_of(&blob, offsetof(struct link_blob, checksum));
    memcpy(bytes, &blob, sizeof(blob));
}

static void poll(bool channel)
{
    crpc_completion completions[POLL_MAX];
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t count = channel ? channel_poll(world.channels[OURS], completions, POLL_MAX)
                                 : rpc_poll(world.calls[OURS], completions, POLL_MAX);
        for (uint32_t j = 0; j < count; j++) {
            uint8_t kind = completions[j].kind;
            calls_open -= kind == CRPC_COMPLETION_RESPONSE;
            /* One's own blob with another nonce connects a queue pair with itself. */
            fuzz_check(kind == CRPC_COMPLETION_CONNECTED || kind == CRPC_COMPLETION_DISCONNECTED ||
                           kind == CRPC_COMPLETION_RESPONSE || kind == CRPC_COMPLETION_REQUEST,
                       "completion %u", kind);
        }
    }
}

static void use(struct link *link, bool channel)
{
    if (!channel) {
        crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 8, .reply_bytes_max = 8};
        calls_open += rpc_call((struct rpc_endpoint *)link, &op, "12345678") == CRPC_OK;
        rpc_submit_end(world.calls[OURS]);
    }
    poll(channel);
    world.clock_ns += 2000000000;
    poll(channel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input);
    bool channel = choice & 1;
    uint8_t ours[LINK_BLOB_BYTES], blob[LINK_BLOB_BYTES];
    crpc_error error = {0};
    if (!world.fabric) {
        make_world();
    }
    struct link *link = make_link(OURS, channel, ours);
    const uint8_t *bytes = blob;
    uint32_t count = sizeof(blob);
    if (choice & 2) {
        bytes = input.next;
        count = (uint32_t)input.left;
    } else {
        memcpy(blob, choice & 4 ? ours : world.blobs[choice >> 3 & 1 ? !channel : channel],
               sizeof(blob));
        while (input.left >= 2) {
            uint8_t place = fuzz_byte(&input);
            blob[place % sizeof(blob)] = fuzz_byte(&input);
        }
        if (!(choice & 16)) {
            seal(blob);
        }
    }
    int32_t status = link_join(link, bytes, count, &error);
    if (status != CRPC_OK) {
        size_t length = strnlen(error.message, sizeof(error.message));
        fuzz_check(error.status == status && length > 10 && length < sizeof(error.message),
                   "refused without a word");
        fuzz_check(link->state == CRPC_STATE_NEW, "a blob that is refused changes the state");
        if (choice & 32) {
            status = link_join(link, world.blobs[channel], LINK_BLOB_BYTES, &error);
            fuzz_check(status == CRPC_OK, "a good blob is refused after a bad one: %s",
                       error.message);
        }
    }
    if (status == CRPC_OK) {
        fuzz_check(link_join(link, world.blobs[channel], LINK_BLOB_BYTES, &error) == CRPC_E_STATE,
                   "joined twice");
        use(link, channel);
    }
    link_close(link);
    poll(channel);
    fuzz_check(calls_open == 0, "a call never completed, or twice");
    fuzz_check(memory_fabric_counters(world.fabric)->queue_pairs == world.queue_pairs &&
                   memory_fabric_counters(world.fabric)->regions == world.regions,
               "something is left");
    fuzz_check(channel ? !channel_something_waits(world.channels[OURS])
                       : !rpc_something_waits(world.calls[OURS]),
               "something still waits");
    return 0;
}

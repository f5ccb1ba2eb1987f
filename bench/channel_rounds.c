/* channel_rounds.c: a sender and a receiver in one thread, over channels of two rails, by the public
 * API: a given number of rounds, for callgrind.
 *
 *   channel_rounds BYTES GROUP SPLIT BATCH ROUNDS
 *   channel_rounds empty CHANNELS ROUNDS
 *
 * In a round BATCH receives are posted, and when their clear-to-sends have landed as many messages of
 * GROUP buffers of BYTES are sent, all with one submit. SPLIT is `measured` or the share of rail 0.
 * `empty`: polls of a context with CHANNELS channels that find nothing. The functions bench_* are what
 * is counted; the devices work meanwhile in a thread of their own, and while they do nothing is
 * counted. Prints JSON: what both sides' counters say for each message.
 *
 * If a clear-to-send has not landed when its message is sent, nothing can be said, and the status is
 * 75: to be tried again with a greater $LANDING_US.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "give_up.h"
#include "not_inlined.h"

#define CHANNELS_MAX 64
#define OPS_MAX 128
#define COMPLETIONS 128
#define MEMORY_BYTES (8u << 20)
#define PAUSE_US 300
#define TRIES_MAX 100000
#define LANDING_US 2000 /* for a clear-to-send to land, if the environment does not say it */
#define TRY_AGAIN 75    /* EX_TEMPFAIL */

struct side {
    crpc_context *context;
    crpc_channel channels[CHANNELS_MAX];
    crpc_region region;
    uint8_t *memory;
    crpc_channel_op ops[OPS_MAX];
    uint32_t op_count;
    uint8_t done; /* kind of completion that ends an op */
    uint32_t taken;
    crpc_completion completions[COMPLETIONS];
};

static struct side sender = {.done = CRPC_COMPLETION_SENT};
static struct side receiver = {.done = CRPC_COMPLETION_RECEIVED};
static useconds_t landing_us = LANDING_US;

/* ---- What is counted ------------------------------------------------------------------------- */

NOT_INLINED static int32_t bench_post_receive(void)
{
    return crpc_channel_submit(receiver.context, receiver.ops, receiver.op_count, NULL);
}

NOT_INLINED static int32_t bench_post_send(void)
{
    return crpc_channel_submit(sender.context, sender.ops, sender.op_count, NULL);
}

NOT_INLINED static int32_t bench_receiver_poll(void)
{
    return crpc_poll(receiver.context, receiver.completions, COMPLETIONS);
}

NOT_INLINED static int32_t bench_sender_poll(void)
{
    return crpc_poll(sender.context, sender.completions, COMPLETIONS);
}

NOT_INLINED static void bench_empty_poll(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        if (crpc_poll(sender.context, sender.completions, COMPLETIONS) != 0) {
            give_up("an empty poll found something");
        }
    }
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Room for no more channels than there are: that of 64 would be most of what runs, under callgrind. */
static void open_side(struct side *side, uint32_t channels)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS,
                                    .receive_depth = 256,
                                    .endpoints_max = 1,
                                    .channels_max = channels};
    need(crpc_context_open(&options, &side->context, &error), &error);
    side->memory = aligned_alloc(4096, MEMORY_BYTES);
    if (!side->memory) {
        give_up("no memory");
    }
    memset(side->memory, 1, MEMORY_BYTES);
    need(crpc_region_register(side->context, side->memory, MEMORY_BYTES,
                              CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &side->region,
                              &error),
         &error);
}

static void explain(uint32_t index, struct side *const sides[2])
{
    for (int i = 0; i < 2; i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_channel_info info = {.struct_size = sizeof(info)};
        crpc_channel_get_info(sides[i]->context, sides[i]->channels[index], &info);
        crpc_channel_get_error(sides[i]->context, sides[i]->channels[index], &error);
        fprintf(stderr, "channel_rounds: side %d: state %u, rails %u and %u; %s\n", i, info.state,
                info.rail_state[0], info.rail_state[1], error.message);
    }
}

static void connect_channel(uint32_t index, const crpc_channel_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {CRPC_BLOB_BYTES_MAX, CRPC_BLOB_BYTES_MAX};
    struct side *sides[2] = {&sender, &receiver};
    for (int i = 0; i < 2; i++) {
        need(crpc_channel_blob(sides[i]->context, options, &sides[i]->channels[index], blob[i],
                               &bytes[i], &error),
             &error);
    }
    for (int i = 0; i < 2; i++) {
        need(crpc_channel_join(sides[i]->context, sides[i]->channels[index], blob[!i], bytes[!i],
                               &error),
             &error);
    }
    uint32_t up = 0;
    for (uint32_t tries = 0; up < 4; tries++) {
        bool over = tries == TRIES_MAX;
        up = 0;
        usleep(PAUSE_US);
        for (int i = 0; i < 2; i++) {
            crpc_channel_info info = {.struct_size = sizeof(info)};
            crpc_poll(sides[i]->context, sides[i]->completions, COMPLETIONS);
            crpc_channel_get_info(sides[i]->context, sides[i]->channels[index], &info);
            up += (info.rail_state[0] == CRPC_RAIL_UP) + (info.rail_state[1] == CRPC_RAIL_UP);
            over |= info.state == CRPC_STATE_DISCONNECTED;
        }
        if (over) {
            explain(index, sides);
            give_up("the rails do not come up");
        }
    }
}

static void prepare(struct side *side, uint8_t opcode, uint32_t bytes, uint32_t group,
                    uint32_t batch)
{
    side->op_count = group * batch;
    if (side->op_count > OPS_MAX || (uint64_t)side->op_count * bytes > MEMORY_BYTES) {
        give_up("BATCH times GROUP is too much");
    }
    for (uint32_t i = 0; i < side->op_count; i++) {
        bool more = opcode == CRPC_CHANNEL_RECEIVE && i % group + 1 < group;
        side->ops[i] =
            (crpc_channel_op){.opcode = opcode,
                              .flags = more ? CRPC_CHANNEL_MORE : 0,
                              .tag = i % group,
                              .channel = side->channels[0],
                              .region = side->region,
                              .address = (uint64_t)(uintptr_t)side->memory + (uint64_t)i * bytes,
                              .bytes = bytes};
    }
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void take(struct side *side, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (side->completions[i].kind != side->done || side->completions[i].status != CRPC_OK) {
            give_up("something else than its op came back");
        }
    }
    side->taken += (uint32_t)count;
}

/* Polls a side until all its ops are done; each poll comes when there should be something. */
static void poll_until_done(struct side *side, int32_t (*poll)(void))
{
    for (uint32_t tries = 0; side->taken < side->op_count; tries++) {
        usleep(PAUSE_US);
        take(side, poll());
        if (tries == TRIES_MAX) {
            give_up("completions do not come");
        }
    }
}

static uint64_t wqes_posted(void)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    crpc_channel_get_stats(sender.context, sender.channels[0], &stats);
    return stats.data_wqes;
}

/* What found no clear-to-send is sent by a poll. */
__attribute__((noreturn)) static void be_late(void)
{
    fprintf(stderr, "channel_rounds: the clear-to-sends were late, so nothing can be said\n");
    exit(TRY_AGAIN);
}

static void run_round(void)
{
    uint64_t before = wqes_posted();
    sender.taken = 0;
    receiver.taken = 0;
    if (bench_post_receive() != (int32_t)receiver.op_count) {
        give_up("a receive was refused");
    }
    usleep(landing_us);
    if (bench_post_send() != (int32_t)sender.op_count) {
        give_up("a send was refused");
    }
    uint64_t at_once = wqes_posted();
    if (at_once - before < sender.op_count) {
        be_late();
    }
    poll_until_done(&receiver, bench_receiver_poll);
    poll_until_done(&sender, bench_sender_poll);
    if (wqes_posted() != at_once) {
        be_late();
    }
}

static void print_side(const char *name, const struct side *side, const crpc_channel_stats *before,
                       double messages, const char *end)
{
    crpc_channel_stats after = {.struct_size = sizeof(after)};
    crpc_channel_get_stats(side->context, side->channels[0], &after);
    printf("\"%s\": {\"data_wqes\": %.4f, \"clear_to_send_wqes\": %.4f, \"control_wqes\": %.4f, "
           "\"doorbells\": %.4f}%s",
           name, (double)(after.data_wqes - before->data_wqes) / messages,
           (double)(after.clear_to_send_wqes - before->clear_to_send_wqes) / messages,
           (double)(after.control_wqes - before->control_wqes) / messages,
           (double)(after.doorbells - before->doorbells) / messages, end);
}

static void run(uint32_t batch, uint64_t rounds)
{
    crpc_channel_stats before[2] = {{.struct_size = sizeof(crpc_channel_stats)},
                                    {.struct_size = sizeof(crpc_channel_stats)}};
    for (uint32_t i = 0; i < 4; i++) {
        run_round();
    }
    crpc_channel_get_stats(sender.context, sender.channels[0], &before[0]);
    crpc_channel_get_stats(receiver.context, receiver.channels[0], &before[1]);
    for (uint64_t i = 0; i < rounds; i++) {
        run_round();
    }
    double messages = (double)batch * (double)rounds;
    printf("{");
    print_side("sender", &sender, &before[0], messages, ", ");
    print_side("receiver", &receiver, &before[1], messages, "}\n");
}

int main(int argc, char **argv)
{
    bool empty = argc == 4 && strcmp(argv[1], "empty") == 0;
    if (argc != 6 && !empty) {
        fprintf(stderr, "usage: channel_rounds BYTES GROUP (measured|SHARE) BATCH ROUNDS\n"
                        "       channel_rounds empty CHANNELS ROUNDS\n");
        return 2;
    }
    bool measured = empty || strcmp(argv[3], "measured") == 0;
    const crpc_channel_options options = {
        .struct_size = sizeof(options),
        .slots = 16,
        .sends_max = OPS_MAX,
        .split = measured ? CRPC_SPLIT_MEASURED : CRPC_SPLIT_FIXED,
        .rail0_share = measured ? 0 : (uint32_t)strtoul(argv[3], NULL, 0),
        .keepalive_ns = CRPC_FOREVER,
        .connect_timeout_ns = CRPC_FOREVER, /* under callgrind a single poll may take seconds */
        .stripe_bytes_min =
            1024,            /* little to copy: what the device does in this thread calls libc */
        .retry_timeout = 20, /* 4 s: callgrind is slow, and nothing is lost */
    };
    uint32_t channels = empty ? (uint32_t)strtoul(argv[2], NULL, 0) : 1;
    if (channels > CHANNELS_MAX) {
        give_up("at most 64 channels");
    }
    const char *landing = getenv("LANDING_US");
    if (landing) {
        landing_us = (useconds_t)strtoul(landing, NULL, 0);
    }
    open_side(&sender, channels);
    open_side(&receiver, channels);
    for (uint32_t i = 0; i < channels; i++) {
        connect_channel(i, &options);
    }
    if (empty) {
        bench_empty_poll(strtoull(argv[3], NULL, 0));
    } else {
        uint32_t bytes = (uint32_t)strtoul(argv[1], NULL, 0);
        uint32_t group = (uint32_t)strtoul(argv[2], NULL, 0);
        uint32_t batch = (uint32_t)strtoul(argv[4], NULL, 0);
        prepare(&sender, CRPC_CHANNEL_SEND, bytes, group, batch);
        prepare(&receiver, CRPC_CHANNEL_RECEIVE, bytes, group, batch);
        run(batch, strtoull(argv[5], NULL, 0));
    }
    crpc_context_close(sender.context);
    crpc_context_close(receiver.context);
    return 0;
}

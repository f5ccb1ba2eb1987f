/* mode.c: see mode.h. */
#include "mode.h"

#include <stdio.h>

#include "traffic.h"

#define SWEEP_BYTES_MIN 2u
#define SWEEP_BYTES_MAX (8u << 20)
#define DATAGRAM_BYTES 1024u /* fits into the packets of all devices but a few */
#define INLINE_BYTES 220u    /* with --latency, as perftest */
#define DEPTH 128u
#define TAGGED_DEPTH 32u /* a quarter of the buffers with tags that the first devices have */

#define ALL (MODE_CALLS | MODE_CHANNELS | MODE_QUEUES)

/* What is not listed belongs to all. */
static const struct {
    int key;
    uint32_t modes;
    const char *name;
} options_of[] = {
    {'r', MODE_CALLS, "--reply-size"},
    {'e', MODE_CALLS, "--endpoints"},
    {OPTION_RING, MODE_CALLS, "--ring"},
    {OPTION_RATE, MODE_CALLS, "--rate"},
    {OPTION_REGION, MODE_CALLS, "--region"},
    {OPTION_ARENA, MODE_CALLS, "--arena"},
    {OPTION_INITIATORS, MODE_CALLS, "--initiators"},
    {OPTION_THREADS, MODE_CALLS, "--threads"},
    {OPTION_DEMO, MODE_CALLS, "--demo"},
    {OPTION_KEY, MODE_CALLS | MODE_CHANNELS, "--key"},
    {OPTION_CHANNELS, MODE_CHANNELS, "--channels"},
    {OPTION_GROUP, MODE_CHANNELS, "--group"},
    {OPTION_SPLIT, MODE_CHANNELS, "--split"},
    {OPTION_RAILS, MODE_CHANNELS, "--rails"},
    {OPTION_ONE_RAIL, MODE_CHANNELS, "--one-rail"},
    {OPTION_STRIPE_MIN, MODE_CHANNELS, "--stripe-min"},
    {OPTION_VERIFY, MODE_CHANNELS, "--verify"},
    {OPTION_QUEUE_PAIRS, MODE_CHANNELS | MODE_QUEUES, "--queue-pairs"},
    {OPTION_BOTH, MODE_CHANNELS | MODE_QUEUES, "--both"},
    {'a', MODE_CALLS | MODE_QUEUES, "--all"},
    {OPTION_LATENCY, MODE_QUEUES, "--latency"},
    {OPTION_INLINE, MODE_QUEUES, "--inline"},
    {OPTION_DATAGRAMS, MODE_QUEUES, "--datagrams"},
    {OPTION_DC, MODE_QUEUES, "--dc"},
    {OPTION_STREAMS, MODE_QUEUES, "--streams"},
    {OPTION_TARGETS, MODE_QUEUES, "--targets"},
    {OPTION_TAG, MODE_QUEUES, "--tag"},
    {'q', ALL, "--depth"},
    {'s', ALL, "--size"},
    {'t', ALL, "--time"},
    {'n', ALL, "--calls"},
    {OPTION_WARMUP, ALL, "--warmup"},
};

#define OPTION_COUNT (sizeof(options_of) / sizeof(options_of[0]))

static uint64_t bit_of(int key)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (options_of[i].key == key) {
            return UINT64_C(1) << i;
        }
    }
    return 0;
}

void mode_note(uint64_t *given, int key)
{
    *given |= bit_of(key);
}

bool mode_given(uint64_t given, int key)
{
    return given & bit_of(key);
}

uint32_t mode_of(const struct perf_options *options)
{
    return options->queues ? MODE_QUEUES : options->channels ? MODE_CHANNELS : MODE_CALLS;
}

static const char *name_of(uint32_t modes)
{
    switch (modes) {
    case MODE_CALLS:
        return "calls";
    case MODE_CHANNELS:
        return "--channels";
    case MODE_QUEUES:
        return "queues (--write, --read, --send, --atomic)";
    case MODE_CALLS | MODE_QUEUES:
        return "calls and queues (--write, --read, --send, --atomic)";
    case MODE_CALLS | MODE_CHANNELS:
        return "calls and --channels";
    default:
        return "--channels and queues (--write, --read, --send, --atomic)";
    }
}

const char *mode_check(uint64_t given, uint32_t mode)
{
    static char why[256];
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (given >> i & 1 && !(options_of[i].modes & mode)) {
            snprintf(why, sizeof(why), "%s is of %s, not of %s", options_of[i].name,
                     name_of(options_of[i].modes), name_of(mode));
            return why;
        }
    }
    return NULL;
}

static const char all_and_size[] =
    "--all is all sizes from 2 bytes to 8 MiB, so there is no --size";

const char *mode_finish_calls(struct perf_options *options, uint64_t given)
{
    static char why[128];
    const bool sized =
        options->reply_bytes != UINT32_MAX; /* a request says how long its reply is */
    options->depth = options->depth == UINT32_MAX ? 256 : options->depth;
    if (options->depth == 0 || options->endpoints == 0 ||
        (uint64_t)options->depth * options->endpoints > PERF_DEPTH_MAX) {
        snprintf(why, sizeof(why), "depth times endpoints must be 1 to %d", PERF_DEPTH_MAX);
        return why;
    }
    if (options->threads == 0) {
        snprintf(why, sizeof(why), "--threads is 1 to %d", PERF_THREADS_MAX);
        return why;
    }
    if (options->all && mode_given(given, 's')) {
        return all_and_size;
    }
    if (options->all) {
        options->bytes_min = sized ? 4 : SWEEP_BYTES_MIN;
        options->request_bytes = SWEEP_BYTES_MAX;
    } else if (!mode_given(given, 's')) {
        options->bytes_min = options->request_bytes = 32;
    }
    if (options->request_bytes > PERF_BYTES_MAX) {
        snprintf(why, sizeof(why), "a request has at most %u bytes", PERF_BYTES_MAX);
        return why;
    }
    if (options->bytes_min == 0 && options->request_bytes > 0) {
        return "a size is doubled from the smallest on, which is at least 1 byte";
    }
    return sized && options->bytes_min < 4 ? "--reply-size needs requests of at least 4 bytes"
                                           : NULL;
}

static bool is_atomic(const struct perf_options *options)
{
    return options->opcode == CRPC_QUEUE_FETCH_ADD || options->opcode == CRPC_QUEUE_COMPARE_SWAP;
}

static const char *finish_kind(struct perf_options *options, uint64_t given)
{
    const bool tags = options->tags != PERF_TAGS_NONE;
    if (options->datagrams + options->dc + tags > 1) {
        return "--datagrams, --dc and --tag are three things";
    }
    if (!options->dc && (mode_given(given, OPTION_STREAMS) || mode_given(given, OPTION_TARGETS))) {
        return "--streams and --targets are of --dc";
    }
    if (options->dc && mode_given(given, OPTION_TARGETS) && options->targets == 0) {
        return "a DCI sends to 1 to 64 targets";
    }
    options->targets = options->dc && options->targets == 0 ? 1 : options->targets;
    if (options->datagrams && options->opcode != CRPC_QUEUE_SEND) {
        return "only messages can be datagrams: --send --datagrams";
    }
    if (tags && options->opcode != CRPC_QUEUE_SEND) {
        return "only messages have tags: --send --tag";
    }
    if (tags && options->inline_bytes > CRPC_QUEUE_INLINE_BYTES_MAX - CRPC_TAG_HEADER_BYTES) {
        return "behind a tag, at most 496 bytes are inline";
    }
    return NULL;
}

static const char *finish_sizes(struct perf_options *options, uint64_t given)
{
    if (mode_given(given, 'a') && mode_given(given, 's')) {
        return all_and_size;
    }
    if (is_atomic(options)) {
        if (mode_given(given, 'a') || mode_given(given, 's')) {
            return "an atomic has 8 bytes: there is no --size and no --all";
        }
        options->bytes_min = options->request_bytes = 8;
    } else if (mode_given(given, 'a')) {
        options->bytes_min = SWEEP_BYTES_MIN;
        options->request_bytes = SWEEP_BYTES_MAX;
    } else if (!mode_given(given, 's')) {
        options->bytes_min = options->request_bytes = options->latency     ? 2
                                                      : options->datagrams ? DATAGRAM_BYTES
                                                                           : 65536;
    }
    return options->bytes_min == 0 ? "a message has at least 1 byte" : NULL;
}

static const char *finish_latency(struct perf_options *options, uint64_t given)
{
    bool answered = options->opcode == CRPC_QUEUE_SEND || options->opcode == CRPC_QUEUE_WRITE;
    if (!options->latency) {
        options->depth = mode_given(given, 'q')            ? options->depth
                         : options->tags == PERF_TAGS_NONE ? DEPTH
                                                           : TAGGED_DEPTH;
        return NULL;
    }
    if (mode_given(given, 'q') || options->both || options->queue_pairs != 1) {
        return "--latency is of one op at a time: without --depth, --both and several "
               "--queue-pairs";
    }
    if (options->wait && options->opcode == CRPC_QUEUE_WRITE) {
        return "nothing wakes a program when a WRITE arrives: --latency --write cannot --wait";
    }
    options->depth = 1;
    if (!mode_given(given, OPTION_INLINE) && answered) {
        options->inline_bytes = INLINE_BYTES;
    }
    return NULL;
}

const char *mode_finish_queues(struct perf_options *options, uint64_t given, bool server)
{
    if (server) {
        bool told = given != 0; /* what all modes have, or queues */
        return told ? "the server of queues does what its clients say: such options are theirs"
                    : NULL;
    }
    if (!options->opcode) {
        options->opcode = options->dc ? CRPC_QUEUE_WRITE : options->tags ? CRPC_QUEUE_SEND : 0;
    }
    if (!options->opcode) {
        return "--queues is of the server; a client says --write, --read, --send, --atomic, --dc "
               "or "
               "--tag";
    }
    options->queue_pairs = options->queue_pairs ? options->queue_pairs : 1;
    if (options->queue_pairs > PERF_QUEUE_PAIRS_MAX) {
        return "at most 64 queue pairs";
    }
    if (options->depth == 0 || (options->depth > CRPC_QUEUE_DEPTH_MAX && mode_given(given, 'q'))) {
        return "the depth of a queue is 1 to 8192";
    }
    if (mode_given(given, OPTION_INLINE) &&
        (is_atomic(options) || options->opcode == CRPC_QUEUE_READ)) {
        return "only SEND and WRITE can be inline";
    }
    const char *why = finish_kind(options, given);
    why = why ? why : finish_sizes(options, given);
    return why ? why : finish_latency(options, given);
}

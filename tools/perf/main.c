/* main.c: the command line of copyrpc-perf. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/version.h"
#include "flow.h"
#include "mode.h"

#define KEY_BYTES_MIN 16
#define RESULTS_MAX 64

volatile sig_atomic_t perf_stop;

static const struct argp_option option_table[] = HELP_OPTIONS;

static uint64_t number(const char *text, uint64_t most, struct argp_state *state)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    switch (*end) {
    case 'k':
    case 'K':
        value <<= 10;
        end++;
        break;
    case 'm':
    case 'M':
        value <<= 20;
        end++;
        break;
    }
    if (*end || end == text || *text == '-' || value > most) {
        argp_error(state, "'%s' is no number up to %llu", text, (unsigned long long)most);
    }
    return value;
}

/* "20000", "20k" or "1.5M", of thousands and millions. */
static double rate_of(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (*end == 'k' || *end == 'M') {
        value *= *end == 'k' ? 1e3 : 1e6;
        end++;
    }
    if (*end || end == text || !(value > 0 && value <= 1e9)) {
        argp_error(state, "'%s' is no rate of up to 1000M calls a second", text);
    }
    return value;
}

static double seconds_of(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value >= 0 && value <= 1e6)) {
        argp_error(state, "'%s' is no number of seconds", text);
    }
    return value;
}

/* "BYTES", or "MIN:MAX". */
static void take_size(const char *text, struct perf_options *options, struct argp_state *state)
{
    const char *colon = strchr(text, ':');
    options->request_bytes = (uint32_t)number(colon ? colon + 1 : text, 1u << 30, state);
    options->bytes_min = options->request_bytes;
    if (colon) {
        char least[32];
        snprintf(least, sizeof(least), "%.*s", (int)(colon - text), text);
        options->bytes_min = (uint32_t)number(least, options->request_bytes, state);
    }
}

static void take_split(const char *text, struct perf_options *options, struct argp_state *state)
{
    if (strcmp(text, "measured") == 0) {
        options->split = CRPC_SPLIT_MEASURED;
    } else if (strncmp(text, "hint=", 5) == 0) {
        options->split = CRPC_SPLIT_HINT;
        options->hint = text + 5;
    } else {
        options->split = CRPC_SPLIT_FIXED;
        options->rail0_share = (uint32_t)number(text, 1024, state);
    }
}

static void take_rails(const char *text, struct perf_options *options)
{
    const char *comma = strchr(text, ',');
    int bytes = comma ? (int)(comma - text) : (int)strlen(text);
    snprintf(options->rails[0], sizeof(options->rails[0]), "%.*s", bytes, text);
    snprintf(options->rails[1], sizeof(options->rails[1]), "%s", comma ? comma + 1 : "");
}

static void take_key(const char *path, struct perf_options *options, struct argp_state *state)
{
    uint8_t bytes[sizeof(options->key) + 1]; /* with one byte more than a key may have */
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(bytes, 1, sizeof(bytes), file) : 0;
    if (!file || ferror(file)) {
        argp_error(state, "cannot read the key from '%s': %s", path, strerror(errno));
    }
    fclose(file);
    if (count < KEY_BYTES_MIN || count > sizeof(options->key)) {
        argp_error(state, "a key has %d to %zu bytes, and '%s' has %s%zu", KEY_BYTES_MIN,
                   sizeof(options->key), path, count > sizeof(options->key) ? "at least " : "",
                   count);
    }
    memcpy(options->key, bytes, count);
    options->key_bytes = (uint32_t)count;
}

/* Defaults, and what does not go together. */
static void check_channels(struct perf_options *options, struct argp_state *state)
{
    if (options->request_bytes == UINT32_MAX) {
        options->request_bytes = options->bytes_min = 1u << 20;
    }
    options->depth = options->depth == UINT32_MAX ? 16 : options->depth;
    if (options->queue_pairs > CRPC_CHANNEL_QUEUE_PAIRS_MAX) {
        argp_error(state, "a channel has 1 to 8 queue pairs on each rail");
    }
    const struct flow_plan plan = flow_plan_of(options);
    const char *why = flow_check(&plan);
    if (why) {
        argp_error(state, "%s", why);
    }
}

struct command {
    struct perf_options options;
    const char *role;
    const char *histogram;      /* path */
    char *results[RESULTS_MAX]; /* of compare and plot */
    size_t result_count;
    uint64_t given; /* for mode.h */
};

static bool is_role(const struct command *command, const char *role)
{
    return command->role && strcmp(command->role, role) == 0;
}

static bool takes_results(const struct command *command)
{
    return is_role(command, "compare") || is_role(command, "plot");
}

static void take_role(const char *role, struct command *command, struct argp_state *state)
{
    static const char *const roles[] = {"server", "client", "compare", "plot"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strcmp(role, roles[i]) == 0) {
            command->role = role;
            return;
        }
    }
    argp_error(state, "the first argument is 'server', 'client', 'compare' or 'plot', not '%s'",
               role);
}

static void take_opcode(struct perf_options *options, uint8_t opcode, struct argp_state *state)
{
    if (options->opcode && options->opcode != opcode) {
        argp_error(state, "one of --write, --read, --send and --atomic");
    }
    options->queues = true;
    options->opcode = opcode;
}

static void take_atomic(const char *which, struct perf_options *options, struct argp_state *state)
{
    if (which && strcmp(which, "add") != 0 && strcmp(which, "swap") != 0) {
        argp_error(state, "--atomic is 'add' or 'swap', not '%s'", which);
    }
    bool swap = which && strcmp(which, "swap") == 0;
    take_opcode(options, swap ? CRPC_QUEUE_COMPARE_SWAP : CRPC_QUEUE_FETCH_ADD, state);
}

static void take_tag(const char *which, struct perf_options *options, struct argp_state *state)
{
    if (which && strcmp(which, "expected") != 0 && strcmp(which, "unexpected") != 0) {
        argp_error(state, "--tag is 'expected' or 'unexpected', not '%s'", which);
    }
    bool unexpected = which && strcmp(which, "unexpected") == 0;
    options->queues = true;
    options->tags = unexpected ? PERF_TAGS_UNEXPECTED : PERF_TAGS_EXPECTED;
}

static void take_histogram(struct command *command, struct argp_state *state)
{
    struct perf_options *options = &command->options;
    const char *dot = strrchr(command->histogram, '.');
    const bool sweep = options->all || options->bytes_min != options->request_bytes;
    options->histogram_log = dot && strcmp(dot, ".hlog") == 0;
    if (!is_role(command, "client")) {
        argp_error(state, "--histogram is of a client");
    }
    if (sweep && !options->channels && !options->histogram_log) {
        argp_error(state,
                   "a table of percentiles is of one size; a log is of all: --histogram FILE.hlog");
    }
    options->histogram = fopen(command->histogram, "w");
    if (!options->histogram) {
        argp_error(state, "cannot write '%s': %s", command->histogram, strerror(errno));
    }
}

static void take_cpus(const char *text, struct perf_options *options, struct argp_state *state)
{
    const char *why = cpus_parse(text, &options->cpus);
    if (why) {
        argp_error(state, "%s", why);
    }
}

static void check(struct command *command, struct argp_state *state)
{
    struct perf_options *options = &command->options;
    bool server = is_role(command, "server");
    const char *why = options->queues && options->channels
                          ? "--channels and queues are two things"
                          : mode_check(command->given, mode_of(options));
    if (!why && options->queues) {
        why = mode_finish_queues(options, command->given, server);
    }
    if (!why && !options->queues && !options->channels) {
        why = mode_finish_calls(options, command->given);
    }
    if (why) {
        argp_error(state, "%s", why);
    } else if (options->channels) {
        check_channels(options, state);
    }
    if (command->histogram) {
        take_histogram(command, state);
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct command *command = state->input;
    struct perf_options *options = &command->options;
    mode_note(&command->given, key);
    switch (key) {
    case 'd':
        options->device = argument;
        break;
    case 's':
        take_size(argument, options, state);
        break;
    case 'r':
        options->reply_bytes = (uint32_t)number(argument, PERF_BYTES_MAX, state);
        break;
    case 'q':
        options->depth = (uint32_t)number(argument, PERF_DEPTH_MAX, state);
        break;
    case 'e':
        options->endpoints = (uint32_t)number(argument, PERF_ENDPOINTS_MAX, state);
        break;
    case OPTION_THREADS:
        options->threads = (uint32_t)number(argument, PERF_THREADS_MAX, state);
        break;
    case 't':
        options->seconds = seconds_of(argument, state);
        break;
    case 'n':
        options->calls = number(argument, UINT64_MAX, state);
        break;
    case OPTION_RATE:
        options->rate = rate_of(argument, state);
        break;
    case OPTION_WARMUP:
        options->warmup_seconds = seconds_of(argument, state);
        break;
    case OPTION_TIMEOUT:
        options->timeout_ns = (uint64_t)(seconds_of(argument, state) * 1e9);
        if (options->timeout_ns == 0) {
            argp_error(state, "a peer needs some time: --timeout is more than 0");
        }
        break;
    case OPTION_RING:
        options->ring_bytes = (uint32_t)number(argument, 1u << 30, state);
        break;
    case OPTION_KEY:
        take_key(argument, options, state);
        break;
    case OPTION_ARENA:
        options->arena_bytes = ((uint32_t)number(argument, 1u << 30, state) + 15) & ~15u;
        break;
    case OPTION_INITIATORS:
        options->initiators = (uint32_t)number(argument, 1024, state);
        break;
    case OPTION_GID_INDEX:
        options->gid_index = (uint32_t)number(argument, UINT8_MAX, state);
        options->gid_index_given = true;
        break;
    case OPTION_TRAFFIC_CLASS:
        options->traffic_class = (uint32_t)number(argument, UINT8_MAX, state);
        break;
    case OPTION_SERVICE_LEVEL:
        options->service_level = (uint32_t)number(argument, 15, state);
        break;
    case OPTION_PARTITION_KEY:
        options->partition_key = (uint32_t)number(argument, UINT16_MAX, state);
        break;
    case OPTION_RETRY_TIMEOUT:
        options->retry_timeout = (uint32_t)number(argument, 31, state);
        break;
    case OPTION_REGION:
        options->region = true;
        break;
    case OPTION_WAIT:
        options->wait = true;
        break;
    case OPTION_JSON:
        options->json = true;
        options->csv = false;
        break;
    case OPTION_PROGRESS:
        options->progress = true;
        break;
    case OPTION_DEMO:
        options->demo = true;
        break;
    case OPTION_CHANNELS:
        options->channels = true;
        break;
    case OPTION_GROUP:
        options->group = (uint32_t)number(argument, CRPC_CHANNEL_GROUP_MAX, state);
        break;
    case OPTION_QUEUE_PAIRS:
        options->queue_pairs = (uint32_t)number(argument, PERF_QUEUE_PAIRS_MAX, state);
        break;
    case OPTION_SPLIT:
        take_split(argument, options, state);
        break;
    case OPTION_STRIPE_MIN:
        options->stripe_bytes_min = (uint32_t)number(argument, 1u << 30, state);
        break;
    case OPTION_RAILS:
        take_rails(argument, options);
        break;
    case OPTION_ONE_RAIL:
        options->rail_mask = 1;
        break;
    case OPTION_BOTH:
        options->both = true;
        break;
    case OPTION_VERIFY:
        options->verify = true;
        break;
    case OPTION_QUEUES:
        options->queues = true;
        break;
    case OPTION_WRITE:
        take_opcode(options, CRPC_QUEUE_WRITE, state);
        break;
    case OPTION_READ:
        take_opcode(options, CRPC_QUEUE_READ, state);
        break;
    case OPTION_SEND:
        take_opcode(options, CRPC_QUEUE_SEND, state);
        break;
    case OPTION_ATOMIC:
        take_atomic(argument, options, state);
        break;
    case 'a':
        options->all = true;
        break;
    case OPTION_CPU:
        take_cpus(argument, options, state);
        break;
    case OPTION_HISTOGRAM:
        command->histogram = argument;
        break;
    case OPTION_CSV:
        options->json = options->csv = true;
        break;
    case OPTION_DATAGRAMS:
        options->datagrams = true;
        break;
    case OPTION_DC:
        options->queues = options->dc = true;
        break;
    case OPTION_STREAMS:
        options->streams = (uint32_t)number(argument, UINT16_MAX, state);
        break;
    case OPTION_TARGETS:
        options->targets = (uint32_t)number(argument, PERF_TARGETS_MAX, state);
        break;
    case OPTION_TAG:
        take_tag(argument, options, state);
        break;
    case OPTION_LATENCY:
        options->latency = true;
        break;
    case OPTION_INLINE:
        options->inline_bytes = (uint32_t)number(argument, CRPC_QUEUE_INLINE_BYTES_MAX, state);
        break;
    case ARGP_KEY_ARG:
        if (!command->role) {
            take_role(argument, command, state);
        } else if (takes_results(command) && command->result_count < RESULTS_MAX) {
            command->results[command->result_count++] = argument;
        } else if (!takes_results(command) && !options->address) {
            options->address = argument;
        } else {
            argp_usage(state);
        }
        break;
    case ARGP_KEY_END:
        if (!command->role || (is_role(command, "client") && !options->address) ||
            (is_role(command, "compare") && command->result_count != 2) ||
            (is_role(command, "plot") && command->result_count == 0)) {
            argp_usage(state);
        }
        check(command, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void on_signal(int signal)
{
    (void)signal;
    perf_stop = 1;
}

int main(int argc, char **argv)
{
    struct command command = {.options = {.request_bytes = UINT32_MAX,
                                          .reply_bytes = UINT32_MAX,
                                          .depth = UINT32_MAX,
                                          .endpoints = 1,
                                          .threads = 1,
                                          .group = 1,
                                          .seconds = 3,
                                          .warmup_seconds = 0.2,
                                          .timeout_ns = UINT64_C(5000000000),
                                          .progress = isatty(STDERR_FILENO)}};
    const struct argp argp = {
        .options = option_table, .parser = parse, .args_doc = HELP_ARGUMENTS, .doc = HELP_TEXT};
    arguments_parse(&argp, argc, argv, &command);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    const struct perf_options *options = &command.options;
    if (!cpus_pin(&options->cpus, 0)) {
        return EXIT_FAILURE;
    }
    if (is_role(&command, "compare")) {
        return compare_files(command.results[0], command.results[1]);
    }
    if (is_role(&command, "plot")) {
        return plot_files(command.results, command.result_count);
    }
    if (is_role(&command, "server")) {
        return options->queues     ? queue_serve(options)
               : options->channels ? channel_serve(options)
                                   : perf_serve(options);
    }
    return options->queues     ? queue_measure(options)
           : options->channels ? channel_measure(options)
                               : perf_measure(options);
}

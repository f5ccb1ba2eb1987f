/* main.c: the command line of copyrpc-perf. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

volatile sig_atomic_t perf_stop;

enum { OPTION_JSON = 256, OPTION_DEMO, OPTION_PROGRESS, OPTION_WARMUP, OPTION_WAIT, OPTION_RING };

static const struct argp_option option_table[] = {
    {"device", 'd', "NAME", 0, "RDMA device; the first with an active port", 0},
    {"size", 's', "BYTES", 0, "bytes of a request; 32", 0},
    {"reply-size", 'r', "BYTES", 0, "bytes of a reply; as the request, echoed and checked", 0},
    {"depth", 'q', "CALLS", 0, "calls open on each endpoint; 256", 0},
    {"endpoints", 'e', "COUNT", 0, "connections to the server; 1", 0},
    {"time", 't', "SECONDS", 0, "how long to measure; 3", 0},
    {"calls", 'n', "COUNT", 0, "how many calls to measure, instead of a time", 0},
    {"warmup", OPTION_WARMUP, "SECONDS", 0, "calls before the measurement; 0.2", 0},
    {"ring", OPTION_RING, "BYTES", 0, "ring of each endpoint, a power of two; large enough", 0},
    {"wait", OPTION_WAIT, NULL, 0, "sleep for events instead of polling on", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {"progress", OPTION_PROGRESS, NULL, 0, "a line a second, also if stderr is no terminal", 0},
    {"demo", OPTION_DEMO, NULL, 0, "end with the line of ./dev demo", 0},
    {0}};

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

static double seconds_of(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value >= 0 && value <= 1e6)) {
        argp_error(state, "'%s' is no number of seconds", text);
    }
    return value;
}

struct command {
    struct perf_options options;
    const char *role;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct command *command = state->input;
    struct perf_options *options = &command->options;
    switch (key) {
    case 'd':
        options->device = argument;
        break;
    case 's':
        options->request_bytes = (uint32_t)number(argument, PERF_BYTES_MAX, state);
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
    case 't':
        options->seconds = seconds_of(argument, state);
        break;
    case 'n':
        options->calls = number(argument, UINT64_MAX, state);
        break;
    case OPTION_WARMUP:
        options->warmup_seconds = seconds_of(argument, state);
        break;
    case OPTION_RING:
        options->ring_bytes = (uint32_t)number(argument, 1u << 30, state);
        break;
    case OPTION_WAIT:
        options->wait = true;
        break;
    case OPTION_JSON:
        options->json = true;
        break;
    case OPTION_PROGRESS:
        options->progress = true;
        break;
    case OPTION_DEMO:
        options->demo = true;
        break;
    case ARGP_KEY_ARG:
        if (!command->role) {
            command->role = argument;
        } else if (!options->address) {
            options->address = argument;
        } else {
            argp_usage(state);
        }
        break;
    case ARGP_KEY_END:
        if (!command->role || (strcmp(command->role, "client") == 0 && !options->address)) {
            argp_usage(state);
        }
        if (options->depth == 0 || options->endpoints == 0 ||
            (uint64_t)options->depth * options->endpoints > PERF_DEPTH_MAX) {
            argp_error(state, "depth times endpoints must be 1 to %d", PERF_DEPTH_MAX);
        }
        if (options->reply_bytes != UINT32_MAX && options->request_bytes < 4) {
            argp_error(state, "--reply-size needs requests of at least 4 bytes");
        }
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

uint64_t perf_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int perf_failed(const char *what, const char *why)
{
    fprintf(stderr, "copyrpc-perf: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

crpc_context *perf_open(const struct perf_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options wanted = {.struct_size = sizeof(wanted)};
    crpc_context *context;
    if (options->device) {
        snprintf(wanted.device, sizeof(wanted.device), "%s", options->device);
    }
    if (crpc_context_open(&wanted, &context, &error) < 0) {
        perf_failed("cannot open a device", error.message);
        return NULL;
    }
    return context;
}

int main(int argc, char **argv)
{
    struct command command = {.options = {.request_bytes = 32,
                                          .reply_bytes = UINT32_MAX,
                                          .depth = 256,
                                          .endpoints = 1,
                                          .seconds = 3,
                                          .warmup_seconds = 0.2,
                                          .progress = isatty(STDERR_FILENO)}};
    const struct argp argp = {
        .options = option_table,
        .parser = parse,
        .args_doc = "server [ADDRESS]\nclient ADDRESS",
        .doc = "Measures calls over RDMA: how many a second, and how long each takes.\v"
               "ADDRESS is HOST:PORT or [IPV6]:PORT; the server listens on *:7472 if none is "
               "given. Any server that echoes will do for a client without --reply-size."};
    argp_parse(&argp, argc, argv, 0, NULL, &command);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    if (strcmp(command.role, "server") == 0) {
        return perf_serve(&command.options);
    }
    if (strcmp(command.role, "client") == 0) {
        return perf_measure(&command.options);
    }
    return perf_failed(command.role, "the first argument is 'server' or 'client'");
}

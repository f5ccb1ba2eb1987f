/* context.c: the context of either side, and what else all of them need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

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
    crpc_context_options wanted = {.struct_size = sizeof(wanted),
                                   .gid_index = options->gid_index,
                                   .traffic_class = options->traffic_class,
                                   .service_level = options->service_level,
                                   .partition_key = options->partition_key,
                                   .retry_timeout = options->retry_timeout};
    crpc_context *context;
    if (options->device) {
        snprintf(wanted.device, sizeof(wanted.device), "%s", options->device);
    }
    if (options->channels) {
        wanted.flags = CRPC_CONTEXT_RAILS;
        memcpy(wanted.rails, options->rails, sizeof(wanted.rails));
    } else if (options->queues) {
        wanted.flags = CRPC_CONTEXT_QUEUES;
        wanted.queues_max = PERF_QUEUES_MAX;
    }
    wanted.initiators = options->initiators;
    if (options->gid_index_given) {
        wanted.flags |=
            CRPC_CONTEXT_GID_INDEX | (options->channels ? CRPC_CONTEXT_RAILS_GID_INDEX : 0);
    }
    if (crpc_context_open(&wanted, &context, &error) < 0) {
        perf_failed("cannot open a device", error.message);
        return NULL;
    }
    return context;
}

crpc_context *perf_listen(const struct perf_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_listener_options wanted = {.struct_size = sizeof(wanted),
                                          .flags = options->channels ? CRPC_LISTENER_CHANNELS
                                                   : options->queues ? CRPC_LISTENER_QUEUES
                                                                     : 0};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    crpc_context *context = perf_open(options);
    if (!context) {
        return NULL;
    }
    const char *address = options->address ? options->address : "*:7472";
    if (crpc_listener_open(context, address, &wanted, &listener, &error) < 0) {
        crpc_context_close(context);
        perf_failed("cannot listen", error.message);
        return NULL;
    }
    crpc_listener_get_info(context, listener, &info);
    printf("listening on %s%s\n", info.address,
           options->channels ? " for channels"
           : options->queues ? " for queues"
                             : "");
    fflush(stdout);
    return context;
}

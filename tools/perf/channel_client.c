/* channel_client.c: copyrpc-perf client --channels: keeps `depth` messages open on one channel and
 * takes the time of each, from crpc_channel_submit to the poll that gives its last completion. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"
#include "channel_report.h"

#define COMPLETIONS 64
#define WAIT_NS 10000000u

struct client {
    const struct perf_options *options;
    crpc_context *context;
    crpc_channel channel;
    struct flow flow;
    bool disconnected;
    uint64_t begun_ns;
    struct channel_result result;
};

/* ---- Connecting ------------------------------------------------------------------------------ */

static int connect_channel(struct client *client, const struct flow_plan *plan)
{
    const struct perf_options *options = client->options;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel_options wanted = flow_channel_options(options, plan);
    crpc_completion done;
    if (crpc_channel_connect(client->context, options->address, &wanted, &client->channel, &error) <
        0) {
        return perf_failed(options->address, error.message);
    }
    do {
        while (crpc_poll(client->context, &done, 1) == 0) {
            crpc_wait(client->context, 100000000);
            if (perf_stop) {
                return perf_failed(options->address, "interrupted while connecting");
            }
        }
    } while (done.kind != CRPC_COMPLETION_CONNECTED);
    if (done.status != CRPC_OK) {
        crpc_channel_get_error(client->context, client->channel, &error);
        return perf_failed(options->address, error.message);
    }
    return EXIT_SUCCESS;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void take_rail(struct client *client, const crpc_completion *completion, uint64_t now_ns)
{
    struct channel_result *result = &client->result;
    flow_tell_rail(completion);
    if (result->event_count < CHANNEL_EVENTS_MAX) {
        result->events[result->event_count] =
            (struct channel_event){.seconds = (double)(now_ns - client->begun_ns) / 1e9,
                                   .rail = (uint32_t)completion->token,
                                   .status = completion->status};
    }
    result->event_count++;
}

static uint32_t take_all(struct client *client)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(client->context, completions, COMPLETIONS);
    uint64_t now_ns = count > 0 ? perf_now_ns() : 0;
    for (int32_t i = 0; i < count; i++) {
        switch (completions[i].kind) {
        case CRPC_COMPLETION_SENT:
        case CRPC_COMPLETION_RECEIVED:
            flow_take(&client->flow, &completions[i], now_ns);
            break;
        case CRPC_COMPLETION_RAIL:
            take_rail(client, &completions[i], now_ns);
            break;
        case CRPC_COMPLETION_DISCONNECTED:
            client->disconnected = true;
            client->flow.lost = true;
            break;
        }
    }
    return count > 0 ? (uint32_t)count : 0;
}

static void step(struct client *client, uint64_t now_ns)
{
    flow_submit(&client->flow, now_ns);
    if (take_all(client) == 0 && client->options->wait) {
        crpc_wait(client->context, WAIT_NS);
    }
}

static crpc_channel_stats stats_of(const struct client *client)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    crpc_channel_get_stats(client->context, client->channel, &stats);
    return stats;
}

static void tell_progress(struct client *client, struct channel_progress *progress)
{
    progress->now = stats_of(client);
    channel_report_progress(client->options, progress);
    progress->before = progress->now;
}

/* Until the time is over or so many messages were sent; then until all are acknowledged. */
static void run(struct client *client, double seconds, uint64_t messages, bool progress)
{
    struct flow *flow = &client->flow;
    uint64_t now_ns = perf_now_ns(), told_ns = now_ns, begun_ns = now_ns;
    uint64_t end_ns = messages ? UINT64_MAX : begun_ns + (uint64_t)(seconds * 1e9);
    uint64_t left = messages ? messages : UINT64_MAX;
    struct channel_progress shown = {.before = stats_of(client)};
    client->begun_ns = begun_ns;
    while (!flow->lost && !perf_stop && now_ns < end_ns && left > 0) {
        while (left > 0 && flow_send(flow, now_ns)) {
            left--;
        }
        step(client, now_ns);
        now_ns = perf_now_ns();
        if (progress && now_ns - told_ns >= 1000000000u) {
            shown.seconds = (double)(now_ns - begun_ns) / 1e9;
            shown.interval = (double)(now_ns - told_ns) / 1e9;
            shown.messages = messages - (messages ? left : 0);
            tell_progress(client, &shown);
            told_ns = now_ns;
        }
    }
    while (!flow_quiet(flow) && !client->disconnected && !(flow->lost && perf_stop)) {
        step(client, perf_now_ns());
    }
    if (progress && told_ns != begun_ns) {
        channel_report_progress_end();
    }
    client->result.seconds = (double)(perf_now_ns() - begun_ns) / 1e9;
}

static void subtract(crpc_channel_stats *stats, const crpc_channel_stats *before)
{
    uint64_t *to = &stats->messages_sent;
    const uint64_t *from = &before->messages_sent;
    const size_t bytes = sizeof(*stats) - offsetof(crpc_channel_stats, messages_sent);
    for (size_t i = 0; i < bytes / sizeof(*to); i++) {
        to[i] -= from[i];
    }
}

static void measure(struct client *client)
{
    const struct perf_options *options = client->options;
    struct channel_result *result = &client->result;
    struct flow *flow = &client->flow;
    if (options->warmup_seconds > 0) {
        run(client, options->warmup_seconds, 0, false);
    }
    histogram_reset(result->latency);
    result->event_count = 0;
    const crpc_channel_stats before = stats_of(client);
    uint64_t sent = flow->messages_sent, sent_bytes = flow->bytes_sent;
    uint64_t received = flow->messages_received, received_bytes = flow->bytes_received;
    bool progress = options->progress && (options->calls || options->seconds > 2);
    run(client, options->seconds, options->calls, progress);
    result->stats = stats_of(client);
    subtract(&result->stats, &before);
    result->messages = flow->messages_sent - sent;
    result->bytes = flow->bytes_sent - sent_bytes;
    result->messages_received = flow->messages_received - received;
    result->bytes_received = flow->bytes_received - received_bytes;
    result->info.struct_size = sizeof(result->info);
    crpc_channel_get_info(client->context, client->channel, &result->info);
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        result->rails[i].struct_size = sizeof(result->rails[i]);
        result->rail_count += crpc_rail_get_info(client->context, i, &result->rails[i]) == CRPC_OK;
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Tells the server that this was all, and hears what it saw. */
static void finish(struct client *client)
{
    struct flow *flow = &client->flow;
    uint64_t end_ns = perf_now_ns() + client->options->timeout_ns;
    flow->latency = NULL;
    flow->stage = FLOW_END;
    while (!client->disconnected && !(flow->report_received && flow_received_all(flow)) &&
           perf_now_ns() < end_ns) {
        flow_submit(flow, perf_now_ns());
        if (take_all(client) == 0) {
            crpc_wait(client->context, WAIT_NS);
        }
    }
    client->result.wrong = flow->wrong;
    client->result.sent = flow->streamed;
    client->result.failed = flow->failed;
    client->result.reported = flow->report_received;
    client->result.report = flow->report;
}

static void leave(struct client *client)
{
    if (client->disconnected || crpc_channel_disconnect(client->context, client->channel,
                                                        client->options->timeout_ns) != CRPC_OK) {
        return;
    }
    while (!client->disconnected) {
        if (take_all(client) == 0) {
            crpc_wait(client->context, 100000000);
        }
    }
}

/* Nothing was lost and nothing arrived that was not sent. */
static bool is_right(const struct channel_result *result)
{
    return result->messages > 0 && result->failed == 0 && result->wrong == 0 && result->reported &&
           result->report.wrong == 0 && result->report.messages == result->sent;
}

static int say_why_lost(struct client *client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel_get_error(client->context, client->channel, &error);
    return perf_failed("the channel was lost",
                       error.status ? error.message : crpc_status_text(client->flow.lost_status));
}

int channel_measure(const struct perf_options *options)
{
    static struct client client;
    const struct flow_plan plan = flow_plan_of(options);
    int status = EXIT_FAILURE;
    client.options = options;
    client.context = perf_open(options);
    if (!client.context) {
        return EXIT_FAILURE;
    }
    client.result.latency = histogram_create();
    if (client.result.latency && flow_open(&client.flow, client.context, &plan, false)) {
        status = connect_channel(&client, &plan);
    }
    if (status == EXIT_SUCCESS) {
        client.flow.latency = client.result.latency;
        flow_begin(&client.flow, client.channel);
        measure(&client);
        bool lost = client.flow.lost;
        if (lost) {
            say_why_lost(&client);
        } else {
            finish(&client);
        }
        channel_report_result(options, &client.result);
        status = !lost && is_right(&client.result) ? EXIT_SUCCESS : EXIT_FAILURE;
        leave(&client);
        crpc_channel_close(client.context, client.channel);
    }
    flow_close(&client.flow);
    crpc_context_close(client.context);
    if (client.result.latency) {
        histogram_destroy(client.result.latency);
    }
    return status;
}

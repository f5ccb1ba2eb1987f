/* queue_client.c: copyrpc-perf client --write, --read, --send or --atomic: for each size, connects its
 * queues, measures, and looks whether everything has arrived. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue_report.h"
#include "traffic.h"

#define COMPLETIONS 64
#define WAIT_NS 10000000u
#define STILL_NS UINT64_C(100000000)
#define LOOKS 10u

struct queue_state {
    struct traffic traffic;
    bool failed; /* it did not connect */
    bool disconnected;
    uint64_t done_before; /* before the measured time */
    uint64_t limit;       /* ops until then, and in it */
    uint64_t back_before; /* the server's, before the measured time */
    struct traffic_report report;
};

struct client {
    const struct perf_options *options;
    crpc_context *context;
    uint32_t bytes;
    uint32_t bytes_max; /* of a datagram; 0 = any */
    uint32_t connected;
    struct queue_state queues[PERF_QUEUE_PAIRS_MAX];
    struct histogram *latency;
    crpc_error error;
    uint64_t begun_ns;
};

/* ---- What happens ---------------------------------------------------------------------------- */

static void connected(struct client *client, struct queue_state *state, int32_t status)
{
    struct traffic *traffic = &state->traffic;
    crpc_queue_info info = {.struct_size = sizeof(info)};
    struct traffic_hello hello;
    crpc_queue_get_info(client->context, traffic->queue, &info);
    client->error.struct_size = sizeof(client->error);
    if (status != CRPC_OK) {
        state->failed = true;
        crpc_queue_get_error(client->context, traffic->queue, &client->error);
        return;
    }
    memcpy(&hello, info.private_data, sizeof(hello));
    if (info.private_bytes < sizeof(hello) || hello.magic != TRAFFIC_MAGIC) {
        state->failed = true;
        snprintf(client->error.message, sizeof(client->error.message),
                 "what listens there is no copyrpc-perf server --queues");
        return;
    }
    traffic->peer_datagrams = hello.datagrams;
    traffic_begin(traffic, hello.address, hello.key);
}

static void take(struct client *client, const crpc_completion *completion, uint64_t now_ns)
{
    struct queue_state *state = (struct queue_state *)(uintptr_t)completion->endpoint_user_data;
    if (!(completion->flags & CRPC_COMPLETION_OF_QUEUE) || !state ||
        !traffic_owns(&state->traffic, completion->endpoint.bits)) {
        return;
    }
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECTED:
        connected(client, state, completion->status);
        break;
    case CRPC_COMPLETION_WORK:
        traffic_take(&state->traffic, completion, now_ns);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        state->disconnected = true;
        state->traffic.lost = true;
        state->traffic.reading = false;
        break;
    }
}

/* Returns true if there was anything. */
static bool step(struct client *client)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(client->context, completions, COMPLETIONS);
    uint64_t now_ns = count > 0 ? perf_now_ns() : 0;
    for (int32_t i = 0; i < count; i++) {
        take(client, &completions[i], now_ns);
    }
    for (uint32_t i = 0; count > 0 && i < client->connected; i++) {
        traffic_receive(&client->queues[i].traffic);
        traffic_tell(&client->queues[i].traffic);
    }
    return count > 0;
}

static void wait_or_step(struct client *client)
{
    if (!step(client)) {
        crpc_wait(client->context, WAIT_NS);
    }
}

static bool any_lost(const struct client *client)
{
    for (uint32_t i = 0; i < client->connected; i++) {
        if (client->queues[i].traffic.lost) {
            return true;
        }
    }
    return false;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static struct traffic_plan plan_of(const struct perf_options *options, uint32_t bytes)
{
    bool ping_pong = options->latency &&
                     (options->opcode == CRPC_QUEUE_SEND || options->opcode == CRPC_QUEUE_WRITE);
    const uint32_t flags =
        (options->both ? TRAFFIC_BOTH : 0) | (options->datagrams ? TRAFFIC_DATAGRAMS : 0) |
        (options->dc ? TRAFFIC_DC : 0) | (options->tags != PERF_TAGS_NONE ? TRAFFIC_TAGS : 0) |
        (options->tags == PERF_TAGS_UNEXPECTED ? TRAFFIC_UNEXPECTED : 0);
    return (struct traffic_plan){
        .magic = TRAFFIC_MAGIC,
        .opcode = options->opcode,
        .flags = (uint8_t)(flags | (ping_pong ? TRAFFIC_PING_PONG : 0)),
        .depth = (uint16_t)(ping_pong ? TRAFFIC_PING_PONG_DEPTH : options->depth),
        .inline_bytes = (uint16_t)options->inline_bytes,
        .streams = (uint16_t)options->streams,
        .targets = (uint16_t)options->targets,
        .bytes = bytes};
}

/* With what the server has to say to it. */
static int say_refusal(const struct client *client, const struct queue_state *state)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    char text[sizeof(client->error.message) + sizeof(info.private_data)];
    crpc_queue_get_info(client->context, state->traffic.queue, &info);
    uint32_t bytes = 0;
    while (client->error.status == CRPC_E_REFUSED && bytes < info.private_bytes &&
           info.private_data[bytes] >= ' ' && info.private_data[bytes] <= '~') {
        bytes++;
    }
    snprintf(text, sizeof(text), "%s%s%.*s", client->error.message, bytes ? ": " : "", (int)bytes,
             (const char *)info.private_data);
    return perf_failed(client->options->address, text);
}

static int say_why_lost(const struct client *client)
{
    for (uint32_t i = 0; i < client->connected; i++) {
        const struct traffic *traffic = &client->queues[i].traffic;
        crpc_error error = {.struct_size = sizeof(error)};
        if (traffic->lost && traffic->lost_status == CRPC_E_TIMEOUT) {
            return perf_failed("a datagram was lost", "its answer did not come within 10 s");
        }
        if (traffic->lost) {
            crpc_queue_get_error(client->context, traffic_sender(traffic), &error);
            return perf_failed("a queue was lost", error.status
                                                       ? error.message
                                                       : crpc_status_text(traffic->lost_status));
        }
    }
    return EXIT_SUCCESS;
}

static int connect_one(struct client *client, struct queue_state *state)
{
    const struct traffic_plan plan = plan_of(client->options, client->bytes);
    struct traffic *traffic = &state->traffic;
    *state = (struct queue_state){.failed = false};
    if (!traffic_open(traffic, client->context, &plan, false, (uint64_t)(uintptr_t)state)) {
        return EXIT_FAILURE;
    }
    client->connected++; /* to be closed, in any case */
    client->bytes_max = traffic->datagram_bytes_max;
    crpc_queue_options wanted = traffic_options(traffic);
    wanted.user_data = (uint64_t)(uintptr_t)state;
    wanted.connect_timeout_ns = client->options->timeout_ns;
    wanted.private_bytes = sizeof(traffic->plan);
    memcpy(wanted.private_data, &traffic->plan, sizeof(traffic->plan));
    client->error.struct_size = sizeof(client->error);
    if (crpc_queue_connect(client->context, client->options->address, &wanted, &traffic->queue,
                           &client->error) < 0) {
        return perf_failed(client->options->address, client->error.message);
    }
    traffic_receive(traffic);
    while (!traffic->begun && !state->failed && !traffic->lost) {
        wait_or_step(client);
        if (perf_stop) {
            return perf_failed(client->options->address, "interrupted while connecting");
        }
    }
    return state->failed ? say_refusal(client, state) : say_why_lost(client);
}

static int connect_all(struct client *client)
{
    client->connected = 0;
    for (uint32_t i = 0; i < client->options->queue_pairs; i++) {
        if (connect_one(client, &client->queues[i]) != EXIT_SUCCESS) {
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

static void leave(struct client *client)
{
    uint64_t end_ns = perf_now_ns() + client->options->timeout_ns;
    for (uint32_t i = 0; i < client->connected; i++) {
        struct queue_state *state = &client->queues[i];
        if (!state->traffic.queue.bits ||
            crpc_queue_drain(client->context, state->traffic.queue, client->options->timeout_ns) !=
                CRPC_OK) {
            state->disconnected = true;
        }
    }
    for (uint32_t i = 0; i < client->connected; i++) {
        while (!client->queues[i].disconnected && perf_now_ns() < end_ns) {
            wait_or_step(client);
        }
    }
    for (uint32_t i = 0; i < client->connected; i++) {
        traffic_close(&client->queues[i].traffic);
    }
    client->connected = 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

static bool is_ping_pong(const struct traffic *traffic)
{
    return traffic->plan.flags & TRAFFIC_PING_PONG;
}

static uint64_t done_of(const struct traffic *traffic)
{
    return is_ping_pong(traffic) ? traffic->arrived : traffic->done;
}

static uint64_t done_by_all(const struct client *client)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < client->connected; i++) {
        done += done_of(&client->queues[i].traffic) - client->queues[i].done_before;
    }
    return done;
}

/* Posts what is due. Returns true if there is more to come. */
static bool post_all(struct client *client, uint64_t now_ns)
{
    bool more = false;
    for (uint32_t i = 0; i < client->connected; i++) {
        struct queue_state *state = &client->queues[i];
        traffic_post(&state->traffic, state->limit - state->traffic.posted, now_ns);
        more |= state->traffic.posted < state->limit;
    }
    return more;
}

/* Returns true if any message has come back. */
static bool look_all(struct client *client)
{
    bool arrived = false;
    for (uint32_t i = 0; i < client->connected; i++) {
        struct traffic *traffic = &client->queues[i].traffic;
        arrived |= is_ping_pong(traffic) && traffic_look(traffic, perf_now_ns());
    }
    return arrived;
}

static bool is_quiet(const struct client *client)
{
    for (uint32_t i = 0; i < client->connected; i++) {
        const struct traffic *traffic = &client->queues[i].traffic;
        if (traffic->posted != traffic->done ||
            (is_ping_pong(traffic) && traffic->posted != traffic->arrived)) {
            return false;
        }
    }
    return true;
}

static void turn(struct client *client)
{
    bool stepped = step(client);
    if (!look_all(client) && !stepped && client->options->wait) {
        crpc_wait(client->context, WAIT_NS);
    }
}

/* READs the peer's memory. Returns where it is here, or NULL. */
static const void *look_there(struct client *client, struct traffic *traffic, uint64_t offset,
                              uint32_t bytes)
{
    const void *here = traffic->lost ? NULL : traffic_read(traffic, offset, bytes);
    while (here && traffic->reading) {
        wait_or_step(client);
    }
    return traffic->lost ? NULL : here;
}

static bool read_report(struct client *client, struct queue_state *state)
{
    const void *here = look_there(client, &state->traffic, 0, sizeof(state->report));
    if (here) {
        memcpy(&state->report, here, sizeof(state->report));
    }
    return here != NULL;
}

/* With --both and a number of ops: until the server has done as many. */
static void wait_for_server(struct client *client, uint64_t ops)
{
    for (uint32_t i = 0; i < client->connected && client->options->both; i++) {
        struct queue_state *state = &client->queues[i];
        while (!perf_stop && state->report.done < state->back_before + ops &&
               read_report(client, state)) {
        }
    }
}

/* Until the time is over, or each queue has done so many ops; then until all have completed. */
static double run(struct client *client, double seconds, uint64_t ops, bool progress)
{
    uint64_t begun_ns = perf_now_ns(), now_ns = begun_ns, told_ns = begun_ns, told = 0;
    uint64_t end_ns = ops ? UINT64_MAX : begun_ns + (uint64_t)(seconds * 1e9);
    for (uint32_t i = 0; i < client->connected; i++) {
        struct queue_state *state = &client->queues[i];
        state->done_before = done_of(&state->traffic);
        state->limit = ops ? state->traffic.posted + ops : UINT64_MAX;
    }
    while (!perf_stop && !any_lost(client) && now_ns < end_ns && post_all(client, now_ns)) {
        turn(client);
        now_ns = perf_now_ns();
        if (progress && now_ns - told_ns >= 1000000000u) {
            uint64_t done = done_by_all(client);
            queue_report_progress(client->options, (double)(now_ns - begun_ns) / 1e9,
                                  (double)(done - told) * 1e9 / (double)(now_ns - told_ns));
            told_ns = now_ns;
            told = done;
        }
    }
    uint64_t patience_ns = perf_now_ns() + client->options->timeout_ns;
    while (!is_quiet(client) && !any_lost(client) && !(perf_stop && now_ns > patience_ns)) {
        turn(client);
        now_ns = perf_now_ns();
    }
    wait_for_server(client, ops);
    if (told_ns != begun_ns) {
        queue_report_progress_end();
    }
    return (double)(perf_now_ns() - begun_ns) / 1e9;
}

/* ---- What has arrived ------------------------------------------------------------------------ */

/* Until all have come. Datagrams may be lost: until the server has looked several times, and found none. */
static bool wait_for_sends(struct client *client, struct queue_state *state)
{
    uint64_t end_ns =
        perf_now_ns() + (client->options->datagrams ? STILL_NS : client->options->timeout_ns);
    uint64_t received = 0, looks = 0;
    for (;;) {
        if (!read_report(client, state)) {
            return false;
        }
        if (looks == 0 || state->report.received != received) {
            received = state->report.received;
            looks = state->report.looks;
        }
        bool over = perf_now_ns() >= end_ns &&
                    (!client->options->datagrams || state->report.looks >= looks + LOOKS);
        if (received >= state->traffic.posted || over) {
            return true;
        }
    }
}

static void check_sends(struct client *client, struct queue_state *state, struct queue_row *row)
{
    if (!wait_for_sends(client, state)) {
        return;
    }
    row->lost += state->traffic.posted - state->report.received;
    row->wrong += state->report.wrong + state->traffic.wrong;
}

static void check_one(struct client *client, struct queue_state *state, struct queue_row *row)
{
    struct traffic *traffic = &state->traffic;
    const void *there;
    uint64_t sum;
    if (is_ping_pong(traffic) || traffic->done == 0) {
        row->wrong += traffic->wrong;
        return; /* all of them were answered */
    }
    switch (traffic->plan.opcode) {
    case CRPC_QUEUE_SEND:
        check_sends(client, state, row);
        break;
    case CRPC_QUEUE_READ:
        row->wrong += !traffic_content(traffic, traffic_local(traffic), true);
        break;
    case CRPC_QUEUE_WRITE:
        there = look_there(client, traffic, traffic_target(traffic), traffic->plan.bytes);
        row->wrong += there && !traffic_content(traffic, there, false);
        break;
    case CRPC_QUEUE_FETCH_ADD:
        there = look_there(client, traffic, traffic_target(traffic), sizeof(sum));
        if (there) {
            memcpy(&sum, there, sizeof(sum));
            row->wrong += sum != traffic->done;
        }
        break;
    }
}

/* ---- One size -------------------------------------------------------------------------------- */

static void add_stats(const struct client *client, struct queue_row *row, bool add)
{
    for (uint32_t i = 0; i < client->connected; i++) {
        crpc_queue_stats stats = {.struct_size = sizeof(stats)};
        crpc_queue_get_stats(client->context, traffic_sender(&client->queues[i].traffic), &stats);
        row->doorbells += add ? stats.doorbells : -stats.doorbells;
        row->signaled_wqes += add ? stats.signaled_wqes : -stats.signaled_wqes;
    }
}

/* The server's own ops so far. */
static uint64_t ops_back(struct client *client)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < client->connected && client->options->both; i++) {
        struct queue_state *state = &client->queues[i];
        done += read_report(client, state) ? state->report.done : 0;
        state->back_before = state->report.done;
    }
    return done;
}

static int measure(struct client *client)
{
    const struct perf_options *options = client->options;
    struct queue_row row = {.bytes = client->bytes, .latency = client->latency};
    for (uint32_t i = 0; i < client->connected; i++) {
        client->queues[i].traffic.latency = client->latency;
    }
    if (options->warmup_seconds > 0) {
        run(client, options->warmup_seconds, 0, false);
    }
    uint64_t back = ops_back(client);
    add_stats(client, &row, false);
    histogram_reset(client->latency);
    bool progress = options->progress && (options->calls || options->seconds > 2);
    row.seconds = run(client, options->seconds, options->calls, progress);
    row.ops = done_by_all(client);
    row.ops_back = ops_back(client) - back;
    add_stats(client, &row, true);
    for (uint32_t i = 0; i < client->connected; i++) {
        check_one(client, &client->queues[i], &row);
    }
    queue_report_row(options, &row);
    int status = say_why_lost(client);
    bool lost = row.lost && !options->datagrams; /* which may be */
    return row.ops == 0 || lost || row.wrong ? EXIT_FAILURE : status;
}

static int measure_size(struct client *client, uint32_t bytes)
{
    client->bytes = bytes;
    int status = connect_all(client);
    if (status == EXIT_SUCCESS) {
        status = measure(client);
    }
    leave(client);
    return status;
}

int queue_measure(const struct perf_options *options)
{
    static struct client client;
    crpc_context_info info = {.struct_size = sizeof(info)};
    client.options = options;
    client.context = perf_open(options);
    client.latency = histogram_create();
    if (!client.context || !client.latency) {
        crpc_context_close(client.context);
        return client.context ? perf_failed("no memory", "for latencies") : EXIT_FAILURE;
    }
    crpc_context_get_info(client.context, &info);
    queue_report_begin(options, &info);
    int status = EXIT_SUCCESS;
    uint64_t bytes = options->bytes_min;
    while (status == EXIT_SUCCESS && bytes <= options->request_bytes && !perf_stop) {
        status = measure_size(&client, (uint32_t)bytes);
        bytes *= 2;
        if (client.bytes_max && bytes > client.bytes_max) {
            break;
        }
    }
    queue_report_end(options);
    crpc_context_close(client.context);
    histogram_destroy(client.latency);
    return status;
}

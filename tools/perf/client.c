/* client.c: keeps `depth` calls open on each endpoint and takes the time of each. A call is
 * known by its slot, which is its user_data; nothing is allocated while measuring. */
#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define COMPLETIONS 64 /* fewer than the depth, so that calls go out while answers still come in */

struct client {
    const struct perf_options *options;
    struct client *team;   /* the first of all, which tells the progress */
    atomic_uint ready;     /* of the first: so many are about to measure */
    _Atomic uint64_t told; /* answered, for the progress */
    crpc_context *context;
    crpc_endpoint endpoints[PERF_ENDPOINTS_MAX];
    uint32_t connected;
    uint32_t request_bytes_max; /* that the rings take */
    uint32_t reply_bytes;
    uint32_t slot_count;
    uint32_t *free_slots; /* a stack */
    uint32_t free_count;
    uint64_t *started_ns;
    uint8_t *payload; /* of each slot; or one for all, if large */
    uint64_t payload_bytes;
    crpc_region region; /* of all of it, if the options say so */
    crpc_op *ops;
    bool numbered; /* each request begins with its slot's number, and each echo is checked for it */
    bool lost;
    struct pace pace;
    struct perf_result result;
};

/* ---- Connecting ------------------------------------------------------------------------------ */

static uint32_t ring_for(const struct perf_options *options)
{
    uint32_t largest = options->request_bytes;
    if (options->reply_bytes != UINT32_MAX && options->reply_bytes > largest) {
        largest = options->reply_bytes;
    }
    uint32_t ring = 1u << 20;
    while (ring < 8u * (largest + 64u) && ring < 1u << 30) {
        ring *= 2;
    }
    return options->ring_bytes ? options->ring_bytes : ring;
}

static int connect_all(struct client *client)
{
    const struct perf_options *options = client->options;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options wanted = {.struct_size = sizeof(wanted),
                                    .connect_timeout_ns = options->timeout_ns,
                                    .calls_max = options->depth,
                                    .ring_bytes = ring_for(options),
                                    .peer_ring_bytes_max = PERF_PEER_RING_BYTES_MAX,
                                    .key_bytes = options->key_bytes};
    memcpy(wanted.key, options->key, sizeof(wanted.key));
    for (uint32_t i = 0; i < options->endpoints; i++) {
        if (crpc_endpoint_connect(client->context, options->address, &wanted, &client->endpoints[i],
                                  &error) < 0) {
            return perf_failed(options->address, error.message);
        }
        crpc_completion done;
        while (crpc_poll(client->context, &done, 1) == 0) {
            crpc_wait(client->context, 100000000);
            if (perf_stop) {
                return perf_failed(options->address, "interrupted while connecting");
            }
        }
        if (done.status != CRPC_OK) {
            crpc_endpoint_get_error(client->context, client->endpoints[i], &error);
            return perf_failed(options->address, error.message);
        }
        client->connected++;
    }
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    crpc_endpoint_get_info(client->context, client->endpoints[0], &info);
    client->request_bytes_max = info.request_bytes_max;
    if (options->request_bytes > info.request_bytes_max) {
        return perf_failed("--size",
                           "more than the server's ring takes; give the server a larger --ring");
    }
    return EXIT_SUCCESS;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static bool make_slots(struct client *client)
{
    const struct perf_options *options = client->options;
    client->slot_count = options->depth * options->endpoints;
    assert(client->slot_count > 0); /* main.c has seen to it */
    client->reply_bytes =
        options->reply_bytes == UINT32_MAX ? options->request_bytes : options->reply_bytes;
    client->numbered = options->request_bytes >= 4 && options->request_bytes <= 65536;
    uint64_t payloads = client->numbered ? client->slot_count : 1;
    client->free_slots = calloc(client->slot_count, sizeof(*client->free_slots));
    client->started_ns = calloc(client->slot_count, sizeof(*client->started_ns));
    client->ops = calloc(client->slot_count, sizeof(*client->ops));
    client->payload_bytes = payloads * options->request_bytes;
    client->payload = calloc(payloads, options->request_bytes + 1u);
    client->result.latency = histogram_create();
    if (!client->free_slots || !client->started_ns || !client->ops || !client->payload ||
        !client->result.latency) {
        return false;
    }
    for (uint32_t slot = 0; slot < client->slot_count; slot++) {
        client->free_slots[client->free_count++] = client->slot_count - 1 - slot;
        if (client->numbered) {
            memcpy(client->payload + (uint64_t)slot * options->request_bytes, &slot, sizeof(slot));
        }
    }
    if (options->reply_bytes != UINT32_MAX) { /* the server reads the size it is to send */
        client->numbered = false;
        memcpy(client->payload, &client->reply_bytes, sizeof(client->reply_bytes));
    }
    return true;
}

/* With all endpoints, before anything is measured. */
static int register_payload(struct client *client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = client->payload_bytes == 0
                         ? CRPC_OK
                         : crpc_region_register(client->context, client->payload,
                                                client->payload_bytes, 0, &client->region, &error);
    for (uint32_t i = 0; i < client->options->endpoints && client->region.bits; i++) {
        if (status == CRPC_OK) {
            status =
                crpc_region_prepare(client->context, client->region, client->endpoints[i], &error);
        }
    }
    return status == CRPC_OK ? EXIT_SUCCESS : perf_failed("--region", error.message);
}

static bool is_paced(const struct client *client)
{
    return client->pace.interval_ns > 0;
}

/* At most as many as there are free slots. */
static void send_calls(struct client *client, uint32_t count, uint64_t now_ns)
{
    const struct perf_options *options = client->options;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = client->free_slots[client->free_count - 1 - i];
        client->ops[i] = (crpc_op){
            .opcode = CRPC_OP_CALL,
            .method = options->reply_bytes == UINT32_MAX ? 0 : PERF_METHOD_SIZED,
            .endpoint = client->endpoints[slot % options->endpoints],
            .user_data = slot,
            .payload_offset = client->numbered ? (uint64_t)slot * options->request_bytes : 0,
            .payload_bytes = options->request_bytes,
            .reply_bytes_max = client->reply_bytes,
            .flags = client->region.bits ? CRPC_OP_REGION : 0,
            .region = client->region};
        client->started_ns[slot] = now_ns;
        if (is_paced(client)) {
            const uint64_t due_ns = pace_due_ns(&client->pace, client->result.sent + i);
            client->started_ns[slot] = due_ns < now_ns ? due_ns : now_ns;
        }
    }
    int32_t reason;
    int32_t taken = crpc_submit(client->context, client->ops, count, client->payload,
                                client->payload_bytes, &reason);
    if (reason != CRPC_OK && reason != CRPC_E_AGAIN) {
        perf_failed("call", crpc_status_text(reason));
        client->lost = true;
    }
    client->free_count -= taken > 0 ? (uint32_t)taken : 0;
    client->result.sent += taken > 0 ? (uint32_t)taken : 0;
}

static bool echo_is_right(const struct client *client, const crpc_completion *done)
{
    uint32_t number;
    if (done->payload_bytes != client->reply_bytes) {
        return false;
    }
    if (!client->numbered) {
        return true;
    }
    memcpy(&number, (const void *)(uintptr_t)done->payload, sizeof(number));
    return number == done->user_data;
}

static void take_answer(struct client *client, const crpc_completion *done, uint64_t now_ns)
{
    uint32_t slot = (uint32_t)done->user_data;
    client->free_slots[client->free_count++] = slot;
    if (done->status != CRPC_OK) {
        if (client->result.failed++ == 0) {
            perf_failed("call", done->status < 0 ? crpc_status_text(done->status)
                                                 : "the server refused the sizes");
        }
        client->lost = true;
    } else if (!echo_is_right(client, done)) {
        client->result.wrong++;
    } else {
        client->result.answered++;
        histogram_record(client->result.latency, now_ns - client->started_ns[slot]);
    }
}

static uint32_t take_answers(struct client *client)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(client->context, completions, COMPLETIONS);
    if (count == 0) {
        return 0;
    }
    uint64_t now_ns = perf_now_ns();
    for (int32_t i = 0; i < count; i++) {
        if (completions[i].kind == CRPC_COMPLETION_RESPONSE) {
            take_answer(client, &completions[i], now_ns);
        } else if (completions[i].kind == CRPC_COMPLETION_DISCONNECTED) {
            client->lost = true;
        }
    }
    return (uint32_t)count;
}

/* ---- Running --------------------------------------------------------------------------------- */

static uint64_t answered_by_all(const struct client *client)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < client->options->threads; i++) {
        sum += atomic_load_explicit(&client->team[i].told, memory_order_relaxed);
    }
    return sum;
}

static uint32_t least(uint64_t some, uint32_t others)
{
    return some < others ? (uint32_t)some : others;
}

/* The calls that are due, as far as there are free slots. */
static void send_due(struct client *client, uint64_t now_ns)
{
    const uint64_t first = client->result.sent;
    const uint64_t due = pace_count(&client->pace, now_ns);
    if (due > first) {
        if (client->free_count > 0) {
            send_calls(client, least(due - first, client->free_count), now_ns);
        }
        pace_note(&client->pace, now_ns, due, first, client->result.sent);
    }
}

/* Until something happens, or the next call is due. */
static void sleep_on(struct client *client, uint64_t now_ns)
{
    uint64_t ns = 100000000;
    if (is_paced(client) && client->free_count > 0) {
        const uint64_t due_ns = pace_due_ns(&client->pace, client->result.sent);
        const uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        ns = left_ns < ns ? left_ns : ns;
    }
    if (ns > 0) {
        crpc_wait(client->context, ns);
    }
}

/* Calls at a pace are all those that are due in the time. Who cannot answer them in time gets some time more. */
static uint64_t begin_pace(struct client *client, double seconds, uint64_t calls, uint64_t now_ns)
{
    const double due = seconds * client->options->rate / client->options->threads;
    calls = calls ? calls : due < 1 ? 1 : (uint64_t)due;
    pace_begin(&client->pace, now_ns, calls);
    return calls;
}

/* Until the time is over or `calls` were sent; then until all are answered. */
static void run(struct client *client, double seconds, uint64_t calls, bool progress)
{
    uint64_t begun_ns = perf_now_ns(), told_ns = begun_ns, answered_told = 0;
    uint64_t end_ns = calls ? UINT64_MAX : begun_ns + (uint64_t)(seconds * 1e9);
    uint64_t now_ns = begun_ns;
    if (is_paced(client)) {
        calls = begin_pace(client, seconds, calls, begun_ns);
        end_ns = pace_due_ns(&client->pace, calls) + client->options->timeout_ns;
    }
    while (!client->lost && !perf_stop && now_ns < end_ns &&
           (calls == 0 || client->result.sent < calls)) {
        if (is_paced(client)) {
            send_due(client, now_ns);
        } else if (client->free_count > 0) {
            const uint64_t left = calls ? calls - client->result.sent : UINT64_MAX;
            send_calls(client, least(left, client->free_count), now_ns);
        }
        if (take_answers(client) == 0 && client->options->wait) {
            sleep_on(client, now_ns);
        }
        now_ns = perf_now_ns();
        atomic_store_explicit(&client->told, client->result.answered, memory_order_relaxed);
        if (progress && now_ns - told_ns >= 1000000000u) {
            const uint64_t answered = answered_by_all(client);
            report_progress(client->options, (double)(now_ns - begun_ns) / 1e9, answered,
                            answered_told, (double)(now_ns - told_ns) / 1e9);
            told_ns = now_ns;
            answered_told = answered;
        }
    }
    if (is_paced(client)) {
        pace_end(&client->pace, now_ns, client->result.sent);
        client->result.pace = client->pace.report;
    }
    while (client->free_count < client->slot_count && !(client->lost && perf_stop)) {
        if (take_answers(client) == 0) {
            crpc_wait(client->context, 10000000);
        }
    }
    client->result.seconds = (double)(perf_now_ns() - begun_ns) / 1e9;
}

/* Of crpc_stats, which has nothing else behind `calls`. */
#define COUNTERS ((sizeof(crpc_stats) - offsetof(crpc_stats, calls)) / sizeof(uint64_t))

static void subtract(crpc_stats *stats, const crpc_stats *before)
{
    uint64_t *to = &stats->calls;
    const uint64_t *from = &before->calls;
    for (size_t i = 0; i < COUNTERS; i++) {
        to[i] -= from[i];
    }
}

/* All begin to measure at the same time. */
static void meet(struct client *client)
{
    struct client *team = client->team;
    atomic_fetch_add(&team->ready, 1);
    while (atomic_load(&team->ready) < client->options->threads && !perf_stop) {
        sched_yield();
    }
}

static void measure(void *member)
{
    struct client *client = member;
    const struct perf_options *options = client->options;
    struct perf_result *result = &client->result;
    crpc_stats before = {.struct_size = sizeof(before)};
    if (options->warmup_seconds > 0) {
        run(client, options->warmup_seconds, 0, false);
        histogram_reset(result->latency);
        result->sent = 0;
        result->answered = 0;
    }
    meet(client);
    crpc_context_get_stats(client->context, &before);
    bool progress =
        client == client->team && options->progress && (options->calls || options->seconds > 2);
    run(client, options->seconds, options->calls, progress);
    result->stats.struct_size = sizeof(result->stats);
    result->context.struct_size = sizeof(result->context);
    crpc_context_get_stats(client->context, &result->stats);
    crpc_context_get_info(client->context, &result->context);
    subtract(&result->stats, &before);
}

static void leave(struct client *client)
{
    uint32_t leaving = 0;
    for (uint32_t i = 0; i < client->connected; i++) {
        leaving +=
            crpc_endpoint_disconnect(client->context, client->endpoints[i], 2000000000) == CRPC_OK;
    }
    while (leaving > 0) {
        crpc_completion done;
        if (crpc_poll(client->context, &done, 1) == 0) {
            crpc_wait(client->context, 100000000);
        } else if (done.kind == CRPC_COMPLETION_DISCONNECTED) {
            leaving--;
        }
    }
}

/* ---- All of them ----------------------------------------------------------------------------- */

static int open_client(struct client *client)
{
    client->context = perf_open(client->options);
    int status = client->context ? connect_all(client) : EXIT_FAILURE;
    if (status == EXIT_SUCCESS && !make_slots(client)) {
        status = perf_failed("no memory", "for so many calls");
    }
    if (status == EXIT_SUCCESS && client->options->region) {
        status = register_payload(client);
    }
    return status;
}

static void close_client(struct client *client)
{
    crpc_context_close(client->context);
    if (client->result.latency) {
        histogram_destroy(client->result.latency);
    }
    free(client->free_slots);
    free(client->started_ns);
    free(client->ops);
    free(client->payload);
}

/* Adds a result to the first one. They have taken their time together. */
static void add_result(struct perf_result *sum, const struct perf_result *more)
{
    uint64_t *to = &sum->stats.calls;
    const uint64_t *from = &more->stats.calls;
    for (size_t i = 0; i < COUNTERS; i++) {
        to[i] += from[i];
    }
    histogram_add(sum->latency, more->latency);
    sum->seconds = more->seconds > sum->seconds ? more->seconds : sum->seconds;
    sum->sent += more->sent;
    sum->answered += more->answered;
    sum->failed += more->failed;
    sum->wrong += more->wrong;
    pace_add(&sum->pace, &more->pace);
}

static int measure_all(struct client *team, uint32_t count, const struct perf_options *whole)
{
    struct perf_result *result = &team->result;
    bool lost = false;
    if (!team_run(team, sizeof(*team), count, measure, &whole->cpus)) {
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < count; i++) {
        lost |= team[i].lost;
        if (i > 0) {
            add_result(result, &team[i].result);
        }
    }
    result->bytes = team->options->request_bytes;
    report_result(whole, result);
    for (uint32_t i = 0; i < count; i++) {
        if (!team[i].lost) {
            leave(&team[i]);
        }
    }
    return result->answered == result->sent && result->sent > 0 && !lost ? EXIT_SUCCESS
                                                                         : EXIT_FAILURE;
}

/* Sets *bytes_max to what the rings take. */
static int measure_size(const struct perf_options *whole, uint32_t bytes, uint32_t *bytes_max)
{
    const uint32_t count = whole->threads;
    struct perf_options options = *whole;
    struct client *team = calloc(count, sizeof(*team));
    int status = EXIT_SUCCESS;
    if (!team) {
        return perf_failed("no memory", "for the client");
    }
    options.request_bytes = bytes;
    for (uint32_t i = 0; i < count && status == EXIT_SUCCESS; i++) {
        team[i].options = &options;
        team[i].team = team;
        team[i].pace = (struct pace){
            .interval_ns = whole->rate > 0 ? 1e9 / whole->rate : 0, .threads = count, .thread = i};
        status = open_client(&team[i]);
    }
    if (status == EXIT_SUCCESS && bytes == whole->bytes_min) {
        crpc_context_info info = {.struct_size = sizeof(info)};
        crpc_context_get_info(team->context, &info);
        report_begin(whole, &info);
    }
    *bytes_max = team->request_bytes_max;
    if (status == EXIT_SUCCESS) {
        status = measure_all(team, count, whole);
    }
    for (uint32_t i = 0; i < count; i++) {
        close_client(&team[i]);
    }
    free(team);
    return status;
}

int perf_measure(const struct perf_options *options)
{
    uint32_t bytes_max = 0;
    int status = EXIT_SUCCESS;
    for (uint64_t bytes = options->bytes_min;
         status == EXIT_SUCCESS && bytes <= options->request_bytes && !perf_stop; bytes *= 2) {
        if (options->all && bytes_max && bytes > bytes_max) {
            break;
        }
        status = measure_size(options, (uint32_t)bytes, &bytes_max);
        if (bytes == 0) { /* which is the only size then */
            break;
        }
    }
    report_end(options);
    return status;
}

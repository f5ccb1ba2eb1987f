/* main.c: the worker's options, its loop and its end.
 *
 *   worker --life N --journal FILE --content FILE --seed N [--device NAME]
 *          [--listen ADDRESS] [--connect ADDRESS] [--channels ADDRESS] [--queues ADDRESS]
 *          [--connections N] [--pace US] [--mistake WHAT:N]
 *
 * SIGTERM makes it take leave of its peers, and end. SIGUSR1 makes it tell what it holds. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker.h"

#define BATCH 256
#define FAILURES_MAX 3
/* The exit status if the device could not be used: its port may be down. */
#define NOT_STARTED 3

static volatile sig_atomic_t told_to_end, asked_for_state;

static void on_signal(int signal)
{
    if (signal == SIGUSR1) {
        asked_for_state = 1;
    } else {
        told_to_end = 1;
    }
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t dice(struct worker *worker, uint32_t most)
{
    worker->dice ^= worker->dice << 13;
    worker->dice ^= worker->dice >> 7;
    worker->dice ^= worker->dice << 17;
    return (uint32_t)((worker->dice >> 32) % most);
}

bool chance(struct worker *worker, uint32_t rarity)
{
    return dice(worker, rarity) == 0;
}

uint64_t new_id(struct worker *worker)
{
    return worker->life << 32 | ++worker->next;
}

/* A reply that nobody waits for; the memory of a queue whose peer never heard that it was connected, or had
 * WRITEs open whose ends do not say whether they were done. These are done wrong again and again. */
static bool may_go_unnoticed(const char *what)
{
    return strcmp(what, "wrong") == 0 || strcmp(what, "spoiled") == 0 ||
           strcmp(what, "miscounted") == 0;
}

bool mistaken(struct worker *worker, const char *what)
{
    struct mistake *mistake = &worker->mistake;
    /* Not before it has been asked what it holds in the beginning. */
    if (!mistake->what || !worker->told_state || strcmp(mistake->what, what) != 0 ||
        mistake->done || mistake->after-- > 0) {
        return false;
    }
    mistake->done = !may_go_unnoticed(what);
    mistake->after = 0;
    journal_put(worker->journal, RECORD_MISTAKE, 0, 0, 0, 0);
    return true;
}

void op_begin(struct worker *worker, enum op_type type, uint64_t id, uint64_t a, uint64_t b)
{
    journal_put(worker->journal, RECORD_BEGIN, (int32_t)type, id, a, b);
}

void op_refused(struct worker *worker, uint64_t id, int32_t reason)
{
    journal_put(worker->journal, RECORD_REFUSED, reason, id, 0, 0);
}

void op_ended(struct worker *worker, uint64_t id, int32_t status, uint64_t a, uint64_t b)
{
    if (mistaken(worker, "lost")) {
        return;
    }
    journal_put(worker->journal, RECORD_ENDED, status, id, a, b);
    if (mistaken(worker, "doubled")) {
        journal_put(worker->journal, RECORD_ENDED, status, id, a, b);
    }
}

void trouble(struct worker *worker, int line, int32_t status)
{
    journal_put(worker->journal, RECORD_TROUBLE, status, 0, (uint64_t)line, 0);
}

static int failed(const char *what, const crpc_error *error)
{
    fprintf(stderr, "worker: %s: %s\n", what, error->message);
    return NOT_STARTED;
}

static int32_t listen_to(struct worker *worker, crpc_error *error)
{
    static const uint32_t flags[SERVICES] = {0, CRPC_LISTENER_CHANNELS, CRPC_LISTENER_QUEUES};
    uint64_t ports[SERVICES] = {0};
    for (uint32_t i = 0; i < SERVICES; i++) {
        crpc_listener_options options = {.struct_size = sizeof(options), .flags = flags[i]};
        crpc_listener_info info = {.struct_size = sizeof(info)};
        crpc_listener listener;
        int32_t status =
            crpc_listener_open(worker->context, worker->listen, &options, &listener, error);
        if (status != CRPC_OK) {
            return status;
        }
        crpc_listener_get_info(worker->context, listener, &info);
        ports[i] = info.port;
    }
    journal_put(worker->journal, RECORD_READY, 0, 0, ports[CALLS],
                ports[CHANNELS] | ports[QUEUES] << 32);
    return CRPC_OK;
}

static void tell_state(struct worker *worker)
{
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_rail_info rails[2] = {{.struct_size = sizeof(crpc_rail_info)},
                               {.struct_size = sizeof(crpc_rail_info)}};
    uint32_t used = 0, rooms = 0;
    worker->told_state = true;
    crpc_cache_forget(worker->context, NULL, 0); /* what the cache keeps would look like a leak */
    crpc_context_get_info(worker->context, &info);
    for (uint32_t i = 0; i < 2; i++) {
        crpc_rail_get_info(worker->context, i, &rails[i]);
    }
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        used += worker->connections[i].life != FREE;
    }
    for (uint32_t i = 0; i < CHANNELS_MAX; i++) {
        rooms += worker->rooms[i].used;
    }
    rooms += queue_rooms_used(worker);
    journal_put(worker->journal, RECORD_STATE, 0, 0, used + rooms,
                info.endpoints + info.queues - queues_shared());
    journal_put(worker->journal, RECORD_STATE, 1, 0, info.batch_window_left,
                (uint64_t)rails[1].receives_left << 32 | rails[0].receives_left);
}

static void handle(struct worker *worker, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_RESPONSE:
        call_ended(worker, completion);
        break;
    case CRPC_COMPLETION_REQUEST:
        request_came(worker, completion);
        break;
    case CRPC_COMPLETION_REPLY:
    case CRPC_COMPLETION_CANCEL:
        worker->others_open--;
        op_ended(worker, completion->user_data, completion->status, completion->token, 0);
        break;
    case CRPC_COMPLETION_SENT:
        channel_sent(worker, completion);
        break;
    case CRPC_COMPLETION_RECEIVED:
        channel_received(worker, completion);
        break;
    case CRPC_COMPLETION_WORK:
        work_ended(worker, completion);
        break;
    case CRPC_COMPLETION_CONNECT_REQUEST:
    case CRPC_COMPLETION_CONNECTED:
    case CRPC_COMPLETION_DISCONNECTED:
        life_event(worker, completion);
        break;
    default: /* ROOM, RAIL, DEVICE: it tries again in any case */
        break;
    }
}

static void act(struct worker *worker)
{
    connect_some(worker);
    shared_some(worker);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        const struct connection *connection = &worker->connections[i];
        if (connection->life != CONNECTED) {
            continue;
        }
        if (connection->service == CHANNELS) {
            channel_some(worker, i);
        } else if (connection->service == QUEUES) {
            queue_some(worker, connection);
        } else if (!connection->accepted || chance(worker, 10)) {
            calls_some(worker, i);
        }
    }
    leave_some(worker);
}

static void run(struct worker *worker)
{
    static crpc_completion completions[BATCH];
    uint64_t next_act_ns = 0;
    while (!worker->stopping || !life_over(worker)) {
        int32_t count = crpc_poll(worker->context, completions, BATCH);
        for (int32_t i = 0; i < count; i++) {
            handle(worker, &completions[i]);
        }
        if (asked_for_state) {
            asked_for_state = 0;
            tell_state(worker);
        }
        if (!worker->stopping && (told_to_end || worker->failures >= FAILURES_MAX)) {
            worker->stopping = true;
            leave_all(worker);
        }
        if (worker->stopping) {
            queues_stop(worker);
        }
        replies_some(worker);
        if (!worker->stopping && now_ns() >= next_act_ns) {
            act(worker);
            next_act_ns = now_ns() + (uint64_t)(1 + dice(worker, 2 * worker->pace_us)) * 1000;
        }
        if (mistaken(worker, "hung")) {
            sigset_t none;
            sigfillset(&none);
            sigprocmask(SIG_BLOCK, &none, NULL);
            for (;;) {
                nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
            }
        }
        if (mistaken(worker, "died")) {
            abort();
        }
        if (!count) {
            crpc_wait(worker->context, (uint64_t)worker->pace_us * 1000);
        }
    }
}

static bool parse(int argc, char **argv, struct worker *worker, const char **journal,
                  const char **content, const char **device)
{
    static const struct option known[] = {{"life", required_argument, NULL, 'i'},
                                          {"journal", required_argument, NULL, 'j'},
                                          {"content", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"listen", required_argument, NULL, 'l'},
                                          {"connect", required_argument, NULL, 'c'},
                                          {"channels", required_argument, NULL, 'h'},
                                          {"queues", required_argument, NULL, 'q'},
                                          {"connections", required_argument, NULL, 'n'},
                                          {"pace", required_argument, NULL, 'p'},
                                          {"mistake", required_argument, NULL, 'm'},
                                          {0}};
    int code;
    while ((code = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (code) {
        case 'i':
            worker->life = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            *journal = optarg;
            break;
        case 't':
            *content = optarg;
            break;
        case 's':
            worker->dice = strtoull(optarg, NULL, 10) * 2 + 1;
            break;
        case 'd':
            *device = optarg;
            break;
        case 'l':
            worker->listen = optarg;
            break;
        case 'c':
            worker->peers[CALLS] = optarg;
            break;
        case 'h':
            worker->peers[CHANNELS] = optarg;
            break;
        case 'q':
            worker->peers[QUEUES] = optarg;
            break;
        case 'n':
            worker->connections_wanted = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'p':
            worker->pace_us = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'm':
            worker->mistake.what = strtok(optarg, ":");
            worker->mistake.after = strtoull(strtok(NULL, ":"), NULL, 10);
            break;
        default:
            return false;
        }
    }
    return worker->life && *journal && *content && worker->pace_us;
}

int main(int argc, char **argv)
{
    static struct worker worker = {.connections_wanted = 2, .pace_us = 4000, .dice = 1};
    const char *journal = NULL, *content = NULL, *device = "";
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES};
    if (!parse(argc, argv, &worker, &journal, &content, &device)) {
        fprintf(stderr, "usage: see the head of tests/chaos/c/main.c\n");
        return 2;
    }
    worker.journal = journal_open(journal);
    if (!worker.journal || !content_open(content)) {
        fprintf(stderr, "worker: cannot map %s or %s\n", journal, content);
        return EXIT_FAILURE;
    }
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
    snprintf(options.device, sizeof(options.device), "%s", device);
    for (int i = 0; i < 20; i++) { /* numbers nearby give dice nearby */
        dice(&worker, 2);
    }
    if (crpc_context_open(&options, &worker.context, &error) != CRPC_OK ||
        channels_open(&worker, &error) != CRPC_OK || queues_open(&worker, &error) != CRPC_OK) {
        return failed("no context", &error);
    }
    if (worker.listen && listen_to(&worker, &error) != CRPC_OK) {
        return failed("cannot listen", &error);
    }
    run(&worker);
    if (crpc_context_close(worker.context) != CRPC_OK) {
        trouble(&worker, __LINE__, 0);
    }
    journal_put(worker.journal, RECORD_DONE, 0, 0, 0, 0);
    return EXIT_SUCCESS;
}

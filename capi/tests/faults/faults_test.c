/* faults_test.c: a fault at every call. Each scenario runs again and again, and the first, then the
 * second, then the third call that the library makes fails in it (inject.h), until there are no more.
 * Whatever fails: the function or the completion says so, with a message; tried again, it succeeds; each
 * op ends once; other connections go on; and when all is closed, nothing is left.
 *
 * faults_test [--sample N] [SCENARIO [NUMBER]] runs all, one in N of each scenario, one scenario, or one fault of it. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"
#include "place.h"
#include "scenarios.h"
#include "signals.h"
#include "world.h"

#define HANG_S 100

/* ---- Scenarios ------------------------------------------------------------------------------- */

struct scenario {
    const char *name;
    void (*prepare)(void); /* in which nothing fails; may be NULL */
    void (*run)(void);
    bool queues; /* the contexts have them */
};

unsigned char memory[SCENARIO_MEMORY_BYTES];

static void open_one(uint32_t flags)
{
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .flags = flags,
                                          .endpoints_max = 2,
                                          .receive_depth = 64,
                                          .log_level = CRPC_LOG_DEBUG};
    crpc_context *context = NULL;
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_log_entry entries[16];
    TRY("open", crpc_context_open(&options, &context, &error));
    if (crpc_context_get_info(context, &info) != CRPC_OK || !info.device[0] ||
        crpc_context_log(context, entries, 16) < 0) {
        problem("a context that does not know its device");
    }
    if (crpc_context_close(context) != CRPC_OK) {
        problem("a context that does not close");
    }
}

static void open_context(void)
{
    open_one(0);
}

static void open_rails(void)
{
    open_one(CRPC_CONTEXT_RAILS);
}

static void open_queues(void)
{
    open_one(CRPC_CONTEXT_QUEUES);
}

static void query_devices(void)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    for (uint32_t i = 0; i < 2; i++) {
        TRY("device", crpc_device_query(i, &info, &error));
    }
}

void listen_at(const char *place, uint32_t flags)
{
    const crpc_listener_options options = {.struct_size = sizeof(options), .flags = flags};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    TRY("listen", crpc_listener_open(contexts[SERVER], place, &options, &listener, &error));
    if (crpc_listener_get_info(contexts[SERVER], listener, &info) != CRPC_OK || info.port == 0 ||
        crpc_listener_close(contexts[SERVER], listener) != CRPC_OK) {
        problem("a listener without a port, or that does not close");
    }
}

static void listen_here(void)
{
    listen_at(place_at(0, "0"), 0);
    listen_at(place_at(0, "0"), CRPC_LISTENER_CHANNELS);
}

static void listen_by_name(void)
{
    listen_at("localhost:0", 0);
}

static void use(uint32_t index, bool is_connected)
{
    const crpc_region none = {0};
    if (is_connected && links[index].kind == OF_CHANNELS) {
        link_send(index, none, none, 1);
    } else if (is_connected) {
        link_call(index, 2);
        ops_end();
    }
}

static void connect_endpoint(void)
{
    use(1, link_connect(1, OF_CALLS, NULL));
}

static void connect_by_name(void)
{
    use(1, link_connect(1, OF_CALLS, "localhost"));
}

static void connect_channel(void)
{
    use(1, link_connect(1, OF_CHANNELS, NULL));
}

/* It says nothing yet, so the channel goes on looking. docs/wire.md, "Hint", has the format. */
static void make_hint(void)
{
    int fd = shm_open(HINT, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) {
        problem("no shared memory");
    }
    close(fd);
    links[1].hint = true;
}

static void connect_with_hint(void)
{
    connect_channel();
    shm_unlink(HINT);
}

static void give_key(void)
{
    links[1].key = true;
}

static void hand_over(void)
{
    links[1].hands = true;
}

static void give_key_and_hand_over(void)
{
    give_key();
    hand_over();
}

static void join_endpoint(void)
{
    use(1, link_join(1, OF_CALLS));
}

static void join_channel(void)
{
    use(1, link_join(1, OF_CHANNELS));
}

void refuse(enum link_kind kind)
{
    links[1].refuse = true;
    links[1].status[CLIENT] = CRPC_E_REFUSED;
    must_succeed = false; /* it is refused, and this is an error */
    link_connect(1, kind, NULL);
    if (links[1].status[CLIENT] == CRPC_OK) {
        problem("it was not refused");
    }
}

static void be_refused(void)
{
    refuse(OF_CALLS);
}

static void register_regions(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        crpc_region region;
        crpc_region_info info = {.struct_size = sizeof(info)};
        TRY("register", crpc_region_register(contexts[CLIENT], memory, sizeof(memory),
                                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                             &region, &error));
        if (crpc_region_get_info(contexts[CLIENT], region, &info) != CRPC_OK ||
            info.bytes != sizeof(memory) ||
            crpc_region_deregister(contexts[CLIENT], region) != CRPC_OK) {
            problem("a region that is none, or stays");
        }
    }
}

static void connect_one_endpoint(void)
{
    if (!link_connect(1, OF_CALLS, NULL)) {
        problem("it cannot connect");
    }
}

static void connect_one_channel(void)
{
    if (!link_connect(1, OF_CHANNELS, NULL)) {
        problem("it cannot connect");
    }
}

static void call_often(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        link_call(1, 8);
        ops_end();
    }
}

static void send_often(void)
{
    const crpc_region none = {0};
    link_send(1, none, none, 3);
}

static void leave(void)
{
    link_call(1, 2);
    link_leave(1);
}

static void leave_channel(void)
{
    link_leave(1);
}

/* world_close does it. */
static void be_closed(void)
{
    link_call(1, 2);
    must_succeed = false; /* they end with CRPC_E_CLOSED */
    crpc_endpoint_close(contexts[CLIENT], (crpc_endpoint){links[1].bits[CLIENT]});
    links[1].made[CLIENT] = false;
    for (uint32_t i = 0; i < 5; i++) {
        pump();
    }
}

void arm_often(void)
{
    for (uint32_t i = 0; i < 5; i++) {
        pump();
        int32_t status = crpc_context_arm(contexts[CLIENT]);
        if (status != CRPC_OK && status != CRPC_E_AGAIN &&
            (must_succeed || status != CRPC_E_SYSTEM)) {
            problem("arm: %s", crpc_status_name(status));
        }
    }
}

static void sleep_and_wake(void)
{
    arm_often();
    call_often();
}

static const struct scenario scenarios[] = {
    {"open", NULL, open_context, false},
    {"open with rails", NULL, open_rails, false},
    {"open with queues", NULL, open_queues, false},
    {"devices", NULL, query_devices, false},
    {"listen", NULL, listen_here, false},
    {"listen by name", NULL, listen_by_name, false},
    {"connect", NULL, connect_endpoint, false},
    {"connect by name", NULL, connect_by_name, false},
    {"connect a channel", NULL, connect_channel, false},
    {"connect with a hint", make_hint, connect_with_hint, false},
    {"connect with a key", give_key, connect_endpoint, false},
    {"connect a channel with a key", give_key, connect_channel, false},
    {"hand over", hand_over, connect_endpoint, false},
    {"hand over with a key", give_key_and_hand_over, connect_endpoint, false},
    {"hand over a channel", hand_over, connect_channel, false},
    {"join", NULL, join_endpoint, false},
    {"join with a key", give_key, join_endpoint, false},
    {"join a channel", NULL, join_channel, false},
    {"refused", NULL, be_refused, false},
    {"regions", NULL, register_regions, false},
    {"calls", connect_one_endpoint, call_often, false},
    {"sleep", connect_one_endpoint, sleep_and_wake, false},
    {"messages", connect_one_channel, send_often, false},
    {"leave", connect_one_endpoint, leave, false},
    {"leave a channel", connect_one_channel, leave_channel, false},
    {"close", connect_one_endpoint, be_closed, false},
    {"listen for queues", NULL, listen_for_queues, true},
    {"connect a queue", NULL, connect_queue, true},
    {"hand over a queue", hand_over, connect_queue, true},
    {"join a queue", NULL, join_queue, true},
    {"a queue refused", NULL, queue_be_refused, true},
    {"an SRQ", NULL, use_srq, true},
    {"a TM-SRQ", NULL, use_tags, true},
    {"a DCI and a DCT", NULL, use_dc, true},
    {"ops", connect_one_queue, work_often, true},
    {"sleep on a queue", connect_one_queue, sleep_on_queue, true},
    {"change a queue", connect_one_queue, change_queue, true},
    {"drain", connect_one_queue, drain_queue, true},
    {"close a queue", connect_one_queue, close_queue, true},
};

/* ---- One fault after the other --------------------------------------------------------------- */

/* What the children tell, also one that crashes. */
static struct told {
    uint64_t number;
    uint64_t faults;          /* so many were made */
    bool whole;               /* there are no more */
    const char *_Atomic call; /* that has failed: a text of this program, which all have */
    char problem[512];
} * told;

void problem(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told->problem, sizeof(told->problem), format, arguments);
    va_end(arguments);
    _exit(1);
}

static void run_once(const struct scenario *scenario, uint64_t number)
{
    must_succeed = true;
    inject_arm(0);
    world_open(scenario->queues);
    if (scenario->prepare) {
        scenario->prepare();
    }
    must_succeed = number == 0;
    inject_arm(number);
    scenario->run();
    inject_disarm();
    world_close();
}

/* Threads that look up names end when they have. */
static void check_leaks(const struct inject_held *before)
{
    struct inject_held now;
    int64_t more;
    const char *leak = "";
    for (int i = 0; i < 300 && leak; i++) {
        inject_count(&now);
        leak = inject_leak(before, &now, &more);
        if (leak) {
            usleep(10000);
        }
    }
    if (leak) {
        problem("%lld %s are left", (long long)more, leak);
    }
}

static void run_from(const struct scenario *scenario, uint64_t first, uint64_t step, bool only)
{
    struct inject_held before;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    inject_init(&told->call);
    alarm(HANG_S);
    run_once(scenario, 0); /* what is made once and kept is made now */
    inject_count(&before);
    for (told->number = first; !told->whole; told->number += step) {
        alarm(HANG_S);
        run_once(scenario, told->number);
        if (!inject_failed()) {
            told->whole = true;
            break;
        }
        told->faults++;
        check_leaks(&before);
        if (only) {
            break;
        }
    }
    _exit(0);
}

/* Returns how many faults did harm, of the first, and then of each step-th. */
static uint64_t run(const struct scenario *scenario, uint64_t first, uint64_t step, bool only)
{
    uint64_t harmful = 0;
    memset(told, 0, sizeof(*told));
    for (; !told->whole; first = told->number + step) {
        int status = 0;
        told->number = 0;
        told->problem[0] = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            run_from(scenario, first, step, only);
        }
        waitpid(child, &status, 0);
        if (status != 0) {
            harmful++;
            if (WIFSIGNALED(status)) {
                snprintf(told->problem, sizeof(told->problem), "ended by signal %d",
                         WTERMSIG(status));
            }
            printf("# %s, fault %llu, %s: %s\n", scenario->name, (unsigned long long)told->number,
                   told->call ? told->call : "none", told->problem);
            if (told->number == 0) {
                break; /* without a fault */
            }
        }
        if (only) {
            break;
        }
    }
    return harmful;
}

int main(int argc, char **argv)
{
    uint64_t all = 0, number = 0, step = 1, place = 0;
    bool good = true;
    signals_as_usual();
    if (argc > 2 && strcmp(argv[1], "--sample") == 0) {
        const char *seed = getenv("TEST_SEED");
        step = strtoull(argv[2], NULL, 0);
        place = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
        place %= step;
        printf("# one fault in %llu of each scenario; again: TEST_SEED=%llu\n",
               (unsigned long long)step, (unsigned long long)place);
        argc -= 2;
        argv += 2;
    }
    uint64_t only = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) != 0) {
            continue;
        }
        uint64_t first = only ? only : 1 + (place + i) % step;
        uint64_t harmful = run(&scenarios[i], first, step, only != 0);
        printf("%s %llu - %s: %llu faults\n", harmful ? "not ok" : "ok",
               (unsigned long long)++number, scenarios[i].name, (unsigned long long)told->faults);
        all += told->faults;
        good = good && !harmful;
    }
    printf("1..%llu\n# %llu faults in all\n", (unsigned long long)number, (unsigned long long)all);
    return good ? 0 : 1;
}

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

static unsigned char memory[200000];

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

static void listen_at(const char *place, uint32_t flags)
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

static void join_endpoint(void)
{
    use(1, link_join(1, OF_CALLS));
}

static void join_channel(void)
{
    use(1, link_join(1, OF_CHANNELS));
}

static void refuse(enum link_kind kind)
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

static void arm_often(void)
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

/* ---- Scenarios of queues --------------------------------------------------------------------- */

static crpc_region regions[2];
static uint32_t remote_key; /* of the server's */

static void register_both(void)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    for (uint32_t side = 0; side < 2; side++) {
        TRY("register",
            crpc_region_register(contexts[side], memory + side * 4096, 4096,
                                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                     CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                                 &regions[side], &error));
    }
    crpc_region_get_info(contexts[SERVER], regions[SERVER], &info);
    remote_key = info.remote_key;
}

/* One op of each kind, and a receive for the one that needs it. */
static void work(void)
{
    const uint64_t here = (uint64_t)(uintptr_t)memory + CLIENT * 4096;
    const uint64_t there = (uint64_t)(uintptr_t)memory + SERVER * 4096;
    const crpc_queue queue = {links[1].bits[CLIENT]}, peer = {links[1].bits[SERVER]};
    const crpc_queue_op receive = {
        .opcode = CRPC_QUEUE_RECEIVE, .region = regions[SERVER], .address = there, .bytes = 64};
    crpc_queue_op op = {.region = regions[CLIENT], .address = here, .bytes = 64};
    if (!link_is_up(1)) {
        if (must_succeed) {
            problem("it is not connected");
        }
        return;
    }
    queue_submit(SERVER, links[1].shared.bits != 0 ? links[1].shared : peer, receive);
    op.opcode = CRPC_QUEUE_SEND;
    queue_submit(CLIENT, queue, op);
    op.remote_key = remote_key;
    op.remote_address = there + 64;
    op.opcode = CRPC_QUEUE_READ;
    queue_submit(CLIENT, queue, op);
    op.opcode = CRPC_QUEUE_WRITE;
    queue_submit(CLIENT, queue, op);
    op.flags = CRPC_QUEUE_INLINE;
    op.region.bits = 0;
    op.bytes = 32;
    queue_submit(CLIENT, queue, op);
    queue_submit(CLIENT, queue,
                 (crpc_queue_op){.opcode = CRPC_QUEUE_FETCH_ADD,
                                 .remote_key = remote_key,
                                 .remote_address = there + 64,
                                 .operand = 1});
    queue_submit(CLIENT, queue, (crpc_queue_op){.opcode = CRPC_QUEUE_NOP});
    ops_end();
}

static void listen_for_queues(void)
{
    listen_at(place_at(0, "0"), CRPC_LISTENER_QUEUES);
}

static void connect_queue(void)
{
    register_both();
    link_connect(1, OF_QUEUES, NULL);
    work();
}

static void join_queue(void)
{
    register_both();
    link_join(1, OF_QUEUES);
    work();
}

static void queue_be_refused(void)
{
    refuse(OF_QUEUES);
}

static void use_srq(void)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 8};
    const crpc_queue_change limit = {
        .struct_size = sizeof(limit), .changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = 8};
    TRY("open an SRQ", crpc_queue_open(contexts[SERVER], &options, &links[1].shared, &error));
    TRY("set its limit", crpc_queue_modify(contexts[SERVER], links[1].shared, &limit, &error));
    connect_queue();
}

static void fail_and_reset_stream(crpc_queue dci, crpc_queue_op op)
{
    must_succeed = false;
    op.stream = 1;
    op.remote_key ^= 0x5500;
    queue_submit(CLIENT, dci, op);
    ops_end();
    int32_t status = crpc_queue_reset_stream(contexts[CLIENT], dci, 1);
    if (status == CRPC_E_SYSTEM) {
        status = crpc_queue_reset_stream(contexts[CLIENT], dci, 1);
    }
    if (status != CRPC_OK && status != CRPC_E_BUSY && status != CRPC_E_STATE) {
        problem("reset a stream: %s", crpc_status_name(status));
    }
}

/* Both without links: so they are closed here. */
static void use_dc(void)
{
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 8};
    const crpc_queue_options of_dci = {
        .struct_size = sizeof(of_dci), .kind = CRPC_QUEUE_KIND_DCI, .sends = 8, .streams = 3};
    crpc_queue_options of_dct = {.struct_size = sizeof(of_dct), .kind = CRPC_QUEUE_KIND_DCT};
    const crpc_target_options to = {.struct_size = sizeof(to), .kind = CRPC_QUEUE_KIND_DCI};
    crpc_queue_address address = {.struct_size = sizeof(address)};
    crpc_queue dci, dct;
    crpc_target target;
    register_both();
    TRY("open an SRQ", crpc_queue_open(contexts[SERVER], &shared, &of_dct.receive_queue, &error));
    TRY("open a DCT", crpc_queue_open(contexts[SERVER], &of_dct, &dct, &error));
    TRY("open a DCI", crpc_queue_open(contexts[CLIENT], &of_dci, &dci, &error));
    crpc_queue_get_address(contexts[SERVER], dct, &address);
    TRY("make a target", crpc_target_open(contexts[CLIENT], &address, &to, &target, &error));
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_WRITE,
                              .region = regions[CLIENT],
                              .address = (uint64_t)(uintptr_t)memory + CLIENT * 4096,
                              .bytes = 64,
                              .remote_key = remote_key,
                              .remote_address = (uint64_t)(uintptr_t)memory + SERVER * 4096,
                              .target = target};
    queue_submit(CLIENT, dci, op);
    ops_end();
    fail_and_reset_stream(dci, op);
    crpc_target_close(contexts[CLIENT], target);
    if (crpc_queue_close(contexts[CLIENT], dci) != CRPC_OK ||
        crpc_queue_close(contexts[SERVER], dct) != CRPC_OK ||
        crpc_queue_close(contexts[SERVER], of_dct.receive_queue) != CRPC_OK) {
        problem("a queue that does not close");
    }
}

static void change_queue(void)
{
    const crpc_queue_change change = {
        .struct_size = sizeof(change),
        .changes = CRPC_QUEUE_CHANGE_ACCESS | CRPC_QUEUE_CHANGE_NOT_READY_WAIT,
        .access = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC};
    const crpc_queue peer = {links[1].bits[SERVER]};
    if (link_is_up(1)) {
        TRY("change a queue", crpc_queue_modify(contexts[SERVER], peer, &change, &error));
    }
    work();
}

static void connect_one_queue(void)
{
    register_both();
    if (!link_connect(1, OF_QUEUES, NULL)) {
        problem("it cannot connect");
    }
}

static void work_often(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        work();
    }
}

static void sleep_on_queue(void)
{
    arm_often();
    work();
}

static void drain_queue(void)
{
    work();
    if (link_is_up(1)) {
        link_leave(1);
    }
}

/* With receives open, of which world_close sees that they end. */
static void close_queue(void)
{
    const crpc_queue_op receive = {.opcode = CRPC_QUEUE_RECEIVE};
    work();
    must_succeed = false; /* they end with CRPC_E_CLOSED */
    for (uint32_t i = 0; i < 4; i++) {
        queue_submit(CLIENT, (crpc_queue){links[1].bits[CLIENT]}, receive);
    }
    if (crpc_queue_close(contexts[CLIENT], (crpc_queue){links[1].bits[CLIENT]}) != CRPC_OK) {
        problem("a queue that does not close");
    }
    links[1].made[CLIENT] = false;
    for (uint32_t i = 0; i < 5; i++) {
        pump();
    }
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
    {"join a queue", NULL, join_queue, true},
    {"a queue refused", NULL, queue_be_refused, true},
    {"an SRQ", NULL, use_srq, true},
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

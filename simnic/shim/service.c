/* service.c: the thread that runs the device when no thread of the program does: when other
 * processes' packets come in, when a system call of the program changed something, and when timers
 * expire. It sleeps on the slot's word in shared memory (a futex); an idle device costs nothing.
 * With processors to spare it polls for a while after each event, which gives reactions of less
 * than a microsecond. */
#include "service.h"

#include "doorbells.h"
#include "process.h"
#include "real.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 50000u    /* of silence before a poller gives up */
#define LOOK_NS 100000u   /* between looks at free doorbells, if nothing happens */
#define ROUNDS_AT_ONCE 64 /* with the lock */
#define SLICE_NS 100000u  /* the shortest that the scheduler grants */
#define SERVICE_NICE (-15)
#define COUNT_EVERY_NS 20000000 /* processors and processes */

static struct {
    _Atomic uint64_t due_ns; /* when the thread looks again by itself */
    uint64_t count_due_ns;
    bool processors;
} service;

/* One round. Returns whether there was something to do. */
static bool round_of_work(void)
{
    bool any = device_look_at_doorbells(&process.device);
    any |= device_run(&process.device, process_now_ns());
    return any;
}

bool service_work(void)
{
    bool any = false;
    for (int i = 0; i < ROUNDS_AT_ONCE && round_of_work(); i++)
        any = true;
    return any;
}

void service_unlock(void)
{
    uint64_t wakes = fabric_take_wakes(&process.fabric);
    /* The service thread may sleep for longer than what was begun here allows. It runs the cm too, whose
     * messages the program's thread may have received here: then nobody else will wake it for them.
     * Nor does anybody for what this process sent to itself, and left for later. */
    uint64_t due_ns = device_deadline_ns(&process.device), cm_due_ns = process.cm_due_ns;
    bool late = (cm_due_ns < due_ns ? cm_due_ns : due_ns) < atomic_load(&service.due_ns);
    const struct fabric_slot *own = &process.fabric.file->slots[process.fabric.slot];
    late |= atomic_load_explicit(&own->pending, memory_order_relaxed) >> process.fabric.slot & 1;
    process_unlock();
    fabric_wake(&process.fabric, wakes);
    if (late)
        process_kick();
}

/* Processors are to spare if each process, with a thread of the program that polls and this one,
 * has two of them. */
bool service_has_processors(void)
{
    uint64_t now = process_now_ns();
    if (now < service.count_due_ns)
        return service.processors;
    service.count_due_ns = now + COUNT_EVERY_NS;
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int processes = 0;
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++)
        processes += fabric_pid(&process.fabric, slot) != 0;
    service.processors = 2 * processes <= processors;
    return service.processors;
}

void service_look_at(uint64_t due_ns)
{
    if (due_ns < atomic_load_explicit(&service.due_ns, memory_order_relaxed))
        process_kick();
}

void service_look_soon(void)
{
    service_look_at(process_now_ns() + LOOK_NS);
}

/* Sleeps until woken, at most `ns`. Whoever sends to this process from here on wakes it. */
static void sleep_on_futex(uint64_t ns)
{
    _Atomic uint32_t *word = &process.fabric.file->slots[process.fabric.slot].asleep;
    atomic_store_explicit(word, 1, memory_order_seq_cst);
    if (fabric_pending(&process.fabric) || atomic_exchange(&process.kicked, false)) {
        atomic_store(word, 0);
        return;
    }
    struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, 1, ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
    atomic_store(word, 0);
}

/* How long to sleep, with the lock held. */
static uint64_t nap_ns(void)
{
    uint64_t now = process_now_ns(), due = device_deadline_ns(&process.device);
    uint64_t cm_due = atomic_load(&process.cm_due_ns);
    if (cm_due < due)
        due = cm_due;
    if (doorbells_are_free() && now + LOOK_NS < due)
        due = now + LOOK_NS;
    atomic_store(&service.due_ns, due);
    return due == UINT64_MAX ? UINT64_MAX : due > now ? due - now : 1;
}

/* Asks the scheduler for short slices, and for precedence: a thread with a near deadline is run at once when it wakes,
 * in place of one that spins (EEVDF, Linux 6.12 and later; others ignore it). */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes, .runtime = SLICE_NS};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
    /* With the right to it (root, or RLIMIT_NICE), a thread that works for microseconds and sleeps may
     * go before those that spin; without it one wake in some hundred waits for a time slice. */
    setpriority(PRIO_PROCESS, 0, SERVICE_NICE);
}

static void *run(void *unused)
{
    (void)unused;
    uint64_t busy_ns = 0;
    prctl(PR_SET_NAME, "simnic");
    prctl(PR_SET_TIMERSLACK, 1);
    ask_for_short_slices();
    for (;;) {
        process_device_lock();
        bool any = service_work();
        if (any)
            busy_ns = process.device.now_ns;
        bool poll = service_has_processors() && process.device.now_ns - busy_ns < POLL_NS;
        if (!poll && !any && doorbells_are_free()) {
            doorbells_close();
            service_work(); /* what was stored just before */
        }
        uint64_t ns = poll ? 0 : nap_ns();
        service_unlock();
        process_run_cm();
        if (!poll)
            sleep_on_futex(ns);
    }
    return NULL;
}

int service_start(void)
{
    /* Signals are the program's business; those of failing accesses come to the thread that
     * fails. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_attr_t attributes;
    pthread_t thread;
    atomic_store(&service.due_ns, UINT64_MAX);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    real.pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &attributes, run, NULL);
    real.pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return result;
}

void service_forget(void)
{
    memset(&service, 0, sizeof service);
}

/* service.c: the thread that runs the device when no thread of the program does: when other
 * processes' packets come in, when a system call of the program changed something, and when timers
 * expire. It sleeps on the slot's word in shared memory (a futex); an idle device costs nothing.
 * With processors to spare it polls for a while after each event, which gives reactions of less
 * than a microsecond. */
#include "service.h"

#include "doorbells.h"
#include "placement.h"
#include "process.h"
#include "processors.h"
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
#define STALE_NS 1000000000u /* of what another process tells */

static struct {
    _Atomic uint64_t due_ns; /* when the thread looks again by itself */
    struct processors processors;
    uint64_t processes_due_ns; /* when the session's processes are counted again, */
    uint64_t sample_due_ns;    /* and what this one's threads use, */
    bool sample_wanted;        /* if anybody asks */
    bool slept;                /* since the last sample */
    uint64_t sample_ns;        /* of the last sample: when it was, and the sums then */
    uint64_t program_ns, service_ns, preemptions;
    struct placement placement;
    int own_nice;
    pid_t thread;
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
    for (int i = 0; i < ROUNDS_AT_ONCE && round_of_work(); i++) {
        any = true;
    }
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
    late |= service.sample_wanted;
    process_unlock();
    fabric_wake(&process.fabric, wakes);
    if (late) {
        process_kick();
    }
}

/* Counts what others want: each process a processor for each thread that spins, and one for its service
 * thread. A program that has told nothing for long is not busy with a device. */
static void count_processes(uint64_t now)
{
    cpu_set_t set;
    service.processes_due_ns = now + PROCESSORS_INTERVAL_NS;
    service.processors.available =
        sched_getaffinity(service.thread, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    service.processors.others = 0;
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        const struct fabric_slot *other = &process.fabric.file->slots[slot];
        if (slot == process.fabric.slot || !fabric_pid(&process.fabric, slot)) {
            continue;
        }
        uint64_t told_ns = atomic_load_explicit(&other->threads_told_ns, memory_order_relaxed);
        bool stale = now > told_ns + STALE_NS;
        service.processors.others +=
            1 + (stale ? 1 : atomic_load_explicit(&other->threads, memory_order_relaxed));
    }
}

bool service_has_processors(void)
{
    uint64_t now = process_now_ns();
    if (now >= service.processes_due_ns) {
        count_processes(now);
        processors_judge(&service.processors, now);
    }
    /* What this process uses is looked at by the service thread, and only where it can matter. */
    if (now >= service.sample_due_ns &&
        service.processors.others + 2 <= service.processors.available) {
        service.sample_wanted = true;
    }
    return service.processors.to_spare;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* While it polls, this thread is one among many. Where it does not, it works for microseconds and
 * sleeps, and may go before those that spin: with the right to it (root, or RLIMIT_NICE). Without it
 * one wake in some hundred waits for a time slice. */
static void take_precedence(bool precedence)
{
    setpriority(PRIO_PROCESS, 0, precedence ? SERVICE_NICE : service.own_nice);
}

/* What this process's threads used since the last time. By the service thread, without the lock: the
 * sums are its own, and take some microseconds. */
static struct processors_sample sample_since_last(uint64_t now)
{
    struct rusage all, own;
    uint64_t service_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t program_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - service_ns;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &own);
    uint64_t preemptions = (uint64_t)(all.ru_nivcsw - own.ru_nivcsw);
    struct processors_sample sample = {.interval_ns = now - service.sample_ns,
                                       .program_ns = program_ns - service.program_ns,
                                       .service_ns = service_ns - service.service_ns,
                                       .preemptions = preemptions - service.preemptions,
                                       .polled = !service.slept};
    service.program_ns = program_ns;
    service.service_ns = service_ns;
    service.preemptions = preemptions;
    service.sample_ns = now;
    service.slept = false;
    return sample;
}

static void take_sample(void)
{
    uint64_t now = process_now_ns();
    struct processors_sample sample = sample_since_last(now);
    process_device_lock();
    service.sample_wanted = false;
    service.sample_due_ns = now + PROCESSORS_INTERVAL_NS;
    /* A device that was idle meanwhile says nothing about the program as it is now. */
    if (sample.polled || sample.interval_ns <= 5 * (uint64_t)PROCESSORS_INTERVAL_NS) {
        processors_take(&service.processors, &sample, now);
    }
    processors_judge(&service.processors, now);
    uint32_t threads = service.processors.threads;
    service_unlock();
    struct fabric_slot *slot = &process.fabric.file->slots[process.fabric.slot];
    atomic_store_explicit(&slot->threads, threads, memory_order_relaxed);
    atomic_store_explicit(&slot->threads_told_ns, now, memory_order_relaxed);
}

void service_look_at(uint64_t due_ns)
{
    if (due_ns < atomic_load_explicit(&service.due_ns, memory_order_relaxed)) {
        process_kick();
    }
}

void service_look_soon(void)
{
    service_look_at(process_now_ns() + LOOK_NS);
}

/* Sleeps until woken, at most `ns`. Whoever sends to this process from here on wakes it. */
static void sleep_on_futex(uint64_t ns)
{
    service.slept = true;
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
    if (cm_due < due) {
        due = cm_due;
    }
    if (doorbells_are_free() && now + LOOK_NS < due) {
        due = now + LOOK_NS;
    }
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
    } attributes = {.size = sizeof(attributes), .nice = service.own_nice, .runtime = SLICE_NS};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *run(void *unused)
{
    (void)unused;
    uint64_t busy_ns = 0;
    service.thread = (pid_t)syscall(SYS_gettid);
    prctl(PR_SET_NAME, "simnic");
    prctl(PR_SET_TIMERSLACK, 1);
    ask_for_short_slices();
    take_precedence(true);
    sample_since_last(process_now_ns()); /* what was used before is nobody's sample */
    service.slept = true;
    bool precedence = true;
    for (;;) {
        process_device_lock();
        bool any = service_work();
        if (any) {
            busy_ns = process.device.now_ns;
        }
        bool spare = service_has_processors(), sample = service.sample_wanted;
        bool poll = spare && process.device.now_ns - busy_ns < POLL_NS;
        if (!poll && !any && doorbells_are_free()) {
            doorbells_close();
            service_work(); /* what was stored just before */
        }
        process.fabric.file->statistics[process.fabric.slot].polling_rounds += poll && !any;
        uint64_t ns = poll ? 0 : nap_ns();
        service_unlock();
        process_run_cm();
        if (sample) {
            take_sample();
        }
        if (precedence == spare) {
            take_precedence(precedence = !spare);
        }
        if (!poll) {
            sleep_on_futex(ns);
            uint32_t waker = fabric_take_waker(&process.fabric);
            if (!spare && waker != FABRIC_NO_WAKER) {
                placement_woken(&service.placement, waker);
            }
        }
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
    processors_init(&service.processors);
    service.own_nice = getpriority(PRIO_PROCESS, 0);
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
    memset(&service, 0, sizeof(service));
}

/* service.c: the thread that runs the NIC when no thread of the program does: when packets of other
 * processes come in, when a system call of the program changed something, and when timers expire.
 * It sleeps on the slot's word in shared memory (a futex), so an idle NIC costs nothing. If there
 * are spare processors, it polls for a while after each event, and then reacts in less than a
 * microsecond. */
#include "simnic/shim/mmio/service.h"

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

#include "base/clock.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/mmio/affinity.h"
#include "simnic/shim/mmio/processors.h"
#include "simnic/shim/process/cm_host.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define POLL_NS 50000u    /* of silence before a poller gives up */
#define LOOK_NS 100000u   /* between looks at free doorbells, if nothing happens */
#define ROUNDS_AT_ONCE 64 /* with the lock */
#define SLICE_NS 100000u  /* the shortest that the scheduler grants */
#define SERVICE_NICE (-15)
#define STALE_NS 1000000000u /* after which what another process told is old */

static struct {
    _Atomic uint64_t due_ns; /* when the thread looks again by itself */
    struct processors processors;
    uint64_t processes_due_ns; /* when the session's processes are counted again */
    uint64_t sample_due_ns;    /* when the next sample of this process may be taken, */
    bool sample_wanted;        /* and whether anybody asked for it */
    bool slept;                /* since the last sample */
    uint64_t sample_ns;        /* of the last sample: when it was, and the sums then */
    uint64_t program_ns, service_ns, preemptions;
    struct affinity affinity;
    int own_nice;
    pid_t thread;
} service;

/* One round. Returns whether there was something to do. */
static bool round_of_work(void)
{
    bool any = nic_look_at_doorbells(&process.nic);
    any |= nic_run(&process.nic, clock_now_ns());
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
    /* The service thread may be going to sleep for longer than what was begun here allows. It runs
     * the connection manager, too: if the program's thread has received messages for it, nobody
     * else wakes the service thread for them. Nor does anybody for packets that this process sent
     * to itself and has not looked at. */
    uint64_t due_ns = nic_deadline_ns(&process.nic), cm_due_ns = process.cm_due_ns;
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

/* Counts the processors that other processes want: one for each thread that spins, and one for the
 * service thread. A process that has told nothing for long is not busy with its NIC. */
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
    uint64_t now = clock_now_ns();
    if (now >= service.processes_due_ns) {
        count_processes(now);
        processors_judge(&service.processors, now);
    }
    /* The service thread looks at what this process uses, but only if it can matter. */
    if (now >= service.sample_due_ns &&
        service.processors.others + 2 <= service.processors.available) {
        service.sample_wanted = true;
    }
    return service.processors.to_spare;
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* While this thread polls, it is one among many. When it does not, it works for some microseconds
 * and sleeps, so it may go before threads that spin. That takes a right (root, or RLIMIT_NICE).
 * Without it, one wake in some hundred waits for a time slice. */
static void take_precedence(bool precedence)
{
    setpriority(PRIO_PROCESS, 0, precedence ? SERVICE_NICE : service.own_nice);
}

/* What this process's threads used since the last time. Called by the service thread, without the
 * lock: only it uses the sums, and reading them takes some microseconds. */
static struct processors_sample sample_since_last(uint64_t now)
{
    struct rusage all, own;
    uint64_t service_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
    uint64_t program_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID) - service_ns;
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
    uint64_t now = clock_now_ns();
    struct processors_sample sample = sample_since_last(now);
    process_service_lock();
    service.sample_wanted = false;
    service.sample_due_ns = now + PROCESSORS_INTERVAL_NS;
    /* If the NIC was idle for long, the sample says nothing about what the program does now. */
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
    service_look_at(clock_now_ns() + LOOK_NS);
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
    uint64_t now = clock_now_ns(), due = nic_deadline_ns(&process.nic);
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

/* Asks the scheduler for short slices. A thread with a near deadline runs at once when it wakes, in
 * place of one that spins (EEVDF, Linux 6.12 and later; others ignore it). */
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
    sample_since_last(clock_now_ns()); /* what was used before counts for no sample */
    service.slept = true;
    bool precedence = true;
    for (;;) {
        process_service_lock();
        bool any = service_work();
        if (any) {
            busy_ns = process.nic.now_ns;
        }
        bool spare = service_has_processors(), sample = service.sample_wanted;
        bool poll = spare && process.nic.now_ns - busy_ns < POLL_NS;
        if (!poll && !any && doorbells_may_close(process.nic.now_ns)) {
            doorbells_close();
            service_work(); /* what was stored just before */
        }
        process.fabric.file->statistics[process.fabric.slot].polling_rounds += poll && !any;
        uint64_t ns = poll ? 0 : nap_ns();
        service_unlock();
        cm_host_run();
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
                affinity_woken(&service.affinity, waker);
            }
        }
    }
    return NULL;
}

int service_start(void)
{
    /* The program handles its signals. Those of failing accesses come to the thread that fails. */
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

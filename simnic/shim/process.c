/* process.c: attaching to the session, the lock, forks and exits. */
#include "process.h"

#include "clock.h"
#include "context.h"
#include "events.h"
#include "descriptors.h"
#include "doorbells.h"
#include "real.h"
#include "service.h"
#include "unknown_stores.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

struct process process;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct cm_note {
    struct list queued;
    uint32_t source_slot, bytes;
    uint8_t message[];
};

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t waiting; /* threads of the program that want the lock */

uint64_t process_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void process_lock(void)
{
    atomic_fetch_add(&waiting, 1);
    pthread_mutex_lock(&lock);
    atomic_fetch_sub(&waiting, 1);
}

void process_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void process_device_lock(void)
{
    /* A device thread that polls would have the lock again before a sleeping waiter is awake. */
    while (atomic_load_explicit(&waiting, memory_order_relaxed)) {
        sched_yield();
    }
    pthread_mutex_lock(&lock);
}

void process_kick(void)
{
    struct fabric_file *file = process.fabric.file;
    if (!file) {
        return;
    }
    _Atomic uint32_t *asleep = &file->slots[process.fabric.slot].asleep;
    atomic_store(&process.kicked, true); /* for a thread that is about to sleep */
    if (atomic_exchange(asleep, 0)) {
        syscall(SYS_futex, asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

void process_log(const char *format, ...)
{
    static int wanted = -1;
    if (wanted < 0) {
        wanted = getenv("SIMNIC_TRACE") != NULL;
    }
    if (!wanted) {
        return;
    }
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int n = snprintf(line, sizeof(line), "simnic[%d]: ", (int)getpid());
    vsnprintf(line + n, sizeof(line) - (size_t)n, format, arguments);
    va_end(arguments);
    size_t length = strlen(line);
    line[length < sizeof(line) - 1 ? length : sizeof(line) - 2] = '\n';
    ssize_t ignored =
        real.write(2, line, length + 1 < sizeof(line) ? length + 1 : sizeof(line) - 1);
    (void)ignored;
}

/* ---- what the device and the cm tell ---- */

static void completion_event(void *context, void *owner)
{
    (void)context;
    events_completion(owner);
}

static void async_event(void *context, int event, int rail, void *owner)
{
    (void)context;
    events_async(event, rail, owner);
}

static void cm_message(void *context, uint32_t source_slot, const void *message, uint32_t bytes)
{
    (void)context;
    /* The cm answers through this very lock, so it gets its messages when the lock is free
     * again. */
    struct cm_note *note = malloc(sizeof(*note) + bytes);
    if (!note) {
        return; /* the peer will ask again */
    }
    note->source_slot = source_slot;
    note->bytes = bytes;
    memcpy(note->message, message, bytes);
    list_init(&note->queued);
    list_append(&process.cm_notes, &note->queued);
    atomic_store(&process.cm_due_ns, 0);
}

/* One pass: whatever the cm asks for, the device is served in between. Only one thread at a time, to
 * keep the order of messages. */
void process_run_cm(void)
{
    if (atomic_load_explicit(&process.cm_due_ns, memory_order_relaxed) > process_now_ns() ||
        atomic_exchange_explicit(&process.cm_runs, true, memory_order_acquire)) {
        return;
    }
    atomic_store(&process.cm_due_ns, UINT64_MAX);
    struct list notes;
    list_init(&notes);
    process_lock();
    list_move_all(&notes, &process.cm_notes);
    process_unlock();
    while (!list_empty(&notes)) {
        struct cm_note *note = container_of(notes.next, struct cm_note, queued);
        cm_receive(process.cm, note->source_slot, note->message, note->bytes);
        list_remove(&note->queued);
        free(note);
    }
    uint64_t due = cm_run(process.cm);
    /* Unless somebody asked for an earlier time meanwhile. */
    uint64_t asked = atomic_load(&process.cm_due_ns);
    while (due < asked && !atomic_compare_exchange_weak(&process.cm_due_ns, &asked, due))
        ;
    atomic_store_explicit(&process.cm_runs, false, memory_order_release);
}

static void trace(void *context, uint32_t kind, uint32_t number, const void *bytes, uint32_t count)
{
    (void)context;
    fabric_trace(&process.fabric, kind, number, bytes, count);
}

static int cm_send(void *context, uint32_t slot, int rail, const void *message, size_t bytes)
{
    (void)context;
    if (slot >= FABRIC_SLOTS || !fabric_slot_alive(&process.fabric, slot) ||
        fabric_rail_down(&process.fabric, rail)) {
        return -EHOSTUNREACH;
    }
    struct packet packet = {.operation = PACKET_CM,
                            .flags = PACKET_WAKE,
                            .rail = (uint8_t)(rail | rail << 4),
                            .destination_qpn = slot << QPN_SLOT_SHIFT,
                            .payload_bytes = (uint32_t)bytes};
    process_lock();
    uint8_t *payload = fabric_reserve(&process.fabric, slot, &packet);
    if (payload) {
        memcpy(payload, message, bytes);
        fabric_commit(&process.fabric, slot, &packet);
    }
    uint64_t wakes = fabric_take_wakes(&process.fabric);
    process_unlock();
    fabric_wake(&process.fabric, wakes);
    if (payload && slot == process.fabric.slot) {
        process_kick();
    }
    return payload ? 0 : -EAGAIN;
}

static bool cm_alive(void *context, uint32_t slot, uint32_t generation)
{
    (void)context;
    return slot < FABRIC_SLOTS &&
           atomic_load(&process.fabric.file->slots[slot].generation) == generation &&
           fabric_slot_alive(&process.fabric, slot);
}

static uint32_t cm_generation(void *context, uint32_t slot)
{
    (void)context;
    return slot < FABRIC_SLOTS ? atomic_load(&process.fabric.file->slots[slot].generation) : 0;
}

static void cm_wake(void *context)
{
    (void)context;
    atomic_store(&process.cm_due_ns, 0);
    process_kick();
}

static uint64_t cm_now(void *context)
{
    (void)context;
    return process_now_ns();
}

static void cm_log(void *context, const char *text)
{
    (void)context;
    process_log("%s", text);
}

/* ---- life ---- */

static uint64_t inode_of(int fd)
{
    struct stat status;
    return real.fstatat(fd, "", &status, AT_EMPTY_PATH) == 0 ? status.st_ino : 0;
}

bool process_has_page_file(void)
{
    return inode_of(process.page_file) == process.page_file_inode;
}

#define PAGES_BYTES ((size_t)DEVICE_MAX_PAGES * DEVICE_UAR_BYTES)

static int open_page_file(void)
{
    int fd = memfd_create(PAGE_FILE_NAME, MFD_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    /* Out of the way of programs that close all they know of; close() spares it (interpose.c). */
    process.page_file = real.fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (process.page_file < 0) {
        process.page_file = fd;
    } else {
        real.close(fd);
    }
    process.page_file_inode = inode_of(process.page_file);
    return ftruncate(process.page_file, (off_t)PAGES_BYTES) == 0 ? 0 : errno;
}

static int open_pages(void)
{
    int result = open_page_file();
    if (result) {
        return result;
    }
    void *memory = real.mmap(NULL, PAGES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                             process.page_file, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    madvise(memory, PAGES_BYTES, MADV_DONTFORK);
    process.page_memory = memory;
    process.page_used[0] = true; /* page 0 would be offset 0, which means no page */
    process.page_used[CLOCK_CORE_PAGE] = process.page_used[CLOCK_INFO_PAGE] = true;
    return 0;
}

static int attach(void)
{
    const char *session = getenv("SIMNIC_SESSION");
    char path[512];
    if (!session) {
        return ENODEV;
    }
    snprintf(path, sizeof(path), "%s/fabric", session);
    int result = -fabric_attach(&process.fabric, path);
    if (result) {
        fprintf(stderr, "simnic: cannot join the session %s: %s\n", session,
                result == EUSERS ? "64 processes use it already" : strerror(result));
        return result;
    }
    struct device_host host = {NULL, completion_event, async_event, cm_message, trace};
    if (!device_create(&process.device, &process.fabric, &host)) {
        return ENOMEM;
    }
    struct cm_host cm = {.slot = process.fabric.slot,
                         .shared = process.fabric.file->cm,
                         .send = cm_send,
                         .alive = cm_alive,
                         .generation = cm_generation,
                         .wake = cm_wake,
                         .now_ns = cm_now,
                         .log = cm_log};
    process.cm = cm_create(&cm);
    if (!process.cm) {
        return ENOMEM;
    }
    list_init(&process.cm_notes);
    atomic_store(&process.cm_due_ns, UINT64_MAX);
    result = open_pages();
    if (result) {
        return result;
    }
    process.pid = (uint32_t)getpid();
    segv_install();
    return service_start();
}

static void before_fork(void)
{
    pthread_mutex_lock(&attaching);
    pthread_mutex_lock(&lock);
    descriptors_lock();
}

static void after_fork_in_parent(void)
{
    descriptors_unlock();
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&attaching);
}

/* The device stays with the parent. The child's descriptors work on with a device of its own, which
 * it gets when it first uses one. */
static void after_fork_in_child(void)
{
    descriptors_inherit();
    contexts_inherit();
    doorbells_forget();
    unknown_stores_forget();
    clock_forget();
    service_forget();
    memset(&process, 0, sizeof(process));
    atomic_store(&waiting, 0);
    descriptors_unlock();
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&attaching, NULL);
}

int process_attach(void)
{
    static bool watching_forks;
    pthread_mutex_lock(&attaching);
    int result = 0;
    if (!process.attached) {
        if (!watching_forks) {
            pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        }
        watching_forks = true;
        result = attach();
        process.attached = result == 0;
    } else if (!process_has_page_file()) {
        process.page_file_lost = true;
        descriptors_sweep();
        result = open_page_file();
    }
    pthread_mutex_unlock(&attaching);
    return result;
}

/* Other threads may still run: only the slot is given back, so that peers learn at once that nobody
 * is there. */
__attribute__((destructor)) static void leave(void)
{
    if (!process.attached || process.pid != (uint32_t)getpid()) {
        return;
    }
    unknown_stores_tell_total();
    fabric_leave(&process.fabric);
}

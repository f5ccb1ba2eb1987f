/* process.c: see process.h. */
#include "simnic/shim/process/process.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simnic/session/session.h"
#include "simnic/shim/process/real.h"

struct process process;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t waiting; /* threads of the program that want the lock */

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

void process_service_lock(void)
{
    /* A thread that polls would have the lock again before a waiter that sleeps is awake. */
    while (atomic_load_explicit(&waiting, memory_order_relaxed)) {
        sched_yield();
    }
    pthread_mutex_lock(&lock);
}

void process_forget(void)
{
    memset(&process, 0, sizeof(process));
    atomic_store(&waiting, 0);
    pthread_mutex_init(&lock, NULL);
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
        wanted = getenv(SESSION_TRACE_VARIABLE) != NULL;
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

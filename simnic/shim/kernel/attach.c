/* attach.c: puts the parts of the shim together when a process joins its session, and takes them
 * apart when it forks or exits. */
#include "simnic/shim/kernel/attach.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simnic/session/session.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/device_memory.h"
#include "simnic/shim/kernel/events.h"
#include "simnic/shim/kernel/mlx5_pages.h"
#include "simnic/shim/mmio/core_clock.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/mmio/service.h"
#include "simnic/shim/mmio/traps.h"
#include "simnic/shim/mmio/unknown_stores.h"
#include "simnic/shim/process/cm_host.h"
#include "simnic/shim/process/process.h"

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;

/* ---- what the NIC tells ---- */

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

static void unplugged(void *context, int rail)
{
    (void)context;
    contexts_unplug(rail);
    cm_host_unplug(rail);
}

static void trace(void *context, uint32_t kind, uint32_t number, const void *bytes, uint32_t count)
{
    (void)context;
    fabric_trace(&process.fabric, kind, number, bytes, count);
}

/* ---- joining ---- */

static int attach(void)
{
    const struct nic_host host = {.completion_event = completion_event,
                                  .async_event = async_event,
                                  .unplugged = unplugged,
                                  .cm_message = cm_host_message,
                                  .trace = trace};
    const char *session = getenv(SESSION_VARIABLE);
    char path[SESSION_PATH_BYTES];
    if (!session) {
        return ENODEV;
    }
    session_file(session, SESSION_FABRIC, path);
    int result = -fabric_attach(&process.fabric, path);
    if (result) {
        fprintf(stderr, "simnic: cannot join the session %s: %s\n", session,
                result == EUSERS ? "64 processes use it already" : strerror(result));
        return result;
    }
    if (!nic_create(&process.nic, &process.fabric, &host) || !cm_host_start()) {
        return ENOMEM;
    }
    result = pages_open();
    if (result) {
        return result;
    }
    process.pid = (uint32_t)getpid();
    traps_install();
    return service_start();
}

/* ---- forks and exits ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&attaching);
    process_lock();
    descriptors_lock();
}

static void after_fork_in_parent(void)
{
    descriptors_unlock();
    process_unlock();
    pthread_mutex_unlock(&attaching);
}

/* The NIC stays with the parent. The child's descriptors go on with a NIC of its own, which it gets
 * when it first uses one. */
static void after_fork_in_child(void)
{
    descriptors_inherit();
    contexts_inherit();
    pages_inherit();
    doorbells_forget();
    unknown_stores_forget();
    core_clock_forget();
    device_memory_forget();
    service_forget();
    process_forget();
    descriptors_unlock();
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
    } else if (!pages_have_file()) {
        process.page_file_lost = true;
        descriptors_sweep();
        result = pages_open_file();
    }
    pthread_mutex_unlock(&attaching);
    return result;
}

/* What is on its way comes, though its sender is gone. */
static void end_wires(void)
{
    if (!process.fabric.on_wires) {
        return;
    }
    process_lock();
    fabric_wire_end(&process.fabric);
    uint64_t slots = fabric_take_wakes(&process.fabric);
    process_unlock();
    fabric_wake(&process.fabric, slots);
}

/* Other threads may still run. So only the slot is given back, and peers learn at once that nobody
 * is there. */
__attribute__((destructor)) static void leave(void)
{
    if (!process.attached || process.pid != (uint32_t)getpid()) {
        return;
    }
    unknown_stores_tell_total();
    end_wires();
    fabric_leave(&process.fabric);
}

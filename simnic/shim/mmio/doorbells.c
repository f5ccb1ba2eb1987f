/* doorbells.c: how a store to a doorbell page is noticed.
 *
 * While the NIC is idle, the program's mappings of doorbell pages are write-protected. A store
 * stops the program's thread with SIGSEGV. The handler makes the store in the thread's stead,
 * through our own mapping of the page (shim/emulate), and executes what was posted, in that very
 * thread. So no other thread needs a processor. If more threads want to run than there are
 * processors, a wake, a yield or a timer takes milliseconds at times. A trap always takes some
 * microseconds.
 *
 * If the emulation does not know the store, the processor makes it: the page is opened, the thread
 * executes the one instruction and stops again (single_step.c), and the page is closed and looked
 * at. Where a thread cannot be stopped so, all pages stay open for a while. Closed at once, they
 * would stop the thread at the same store again, as often as the service thread runs before it.
 *
 * Traps would slow down a program that posts without waiting for what it posted. If traps follow
 * each other closely, or if there are spare processors, the pages are "free": stores do not trap,
 * and the service thread polls, or looks at every event and at times by a timer. When it finds
 * nothing any more, it closes the pages again.
 *
 * Under Valgrind they are always free. By default it goes on behind a signal handler with registers
 * that may be older than the instruction that trapped: the thread would store something else, at
 * another place. Whoever has told Valgrind otherwise says so by SIMNIC_TRAPS=1. */
#include "simnic/shim/mmio/doorbells.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "simnic/shim/emulate/emulate.h"
#include "simnic/shim/mmio/core_clock.h"
#include "simnic/shim/mmio/service.h"
#include "simnic/shim/mmio/single_step.h"
#include "simnic/shim/mmio/unknown_stores.h"
#include "simnic/shim/process/process.h"

#define CLOSE_TRAPS_NS 50000u /* between traps of a program that does not wait */
#define CLOSE_TRAPS 8u        /* so close, with nothing received between, until that is believed */
#define HOLD_OPEN_NS 1000000000u /* for a store that must be found by looking, and those to come */

static struct {
    uint8_t *_Atomic page[NIC_MAX_PAGES]; /* where the program mapped it; NULL: nowhere */
    bool open[NIC_MAX_PAGES];
    uint32_t page_end;
    bool free;
    uint64_t free_until_ns; /* at least */
    uint32_t stepping;      /* threads for whose one instruction pages are open */
    uint32_t close_traps;
    uint64_t packets_received; /* by the NIC, at the last trap */
    uint64_t last_trap_ns;
    bool worked; /* the NIC had something to do at the last trap */
} state;

static void set_writable(uint32_t page, bool writable)
{
    if (state.open[page] == writable || !state.page[page]) {
        return;
    }
    state.open[page] = writable;
    mprotect(state.page[page], NIC_UAR_BYTES, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

static uint32_t page_at(uintptr_t address)
{
    const uint8_t *start = (const uint8_t *)(address & ~(uintptr_t)(NIC_UAR_BYTES - 1));
    if (!start) { /* an access through NULL: state.page has NULL where there is no page */
        return UINT32_MAX;
    }
    for (uint32_t page = 0; page < state.page_end; page++) {
        if (atomic_load_explicit(&state.page[page], memory_order_relaxed) == start) {
            return page;
        }
    }
    return UINT32_MAX;
}

static void set_free(void)
{
    state.free = true;
    for (uint32_t page = 0; page < state.page_end; page++) {
        set_writable(page, true);
    }
}

bool doorbells_are_free(void)
{
    return state.free;
}

bool doorbells_may_close(uint64_t now_ns)
{
    return state.free && now_ns >= state.free_until_ns;
}

void doorbells_close(void)
{
    state.free = false;
    state.close_traps = 0;
    for (uint32_t page = 0; page < state.page_end; page++) {
        set_writable(page, false);
    }
}

/* Returns whether the program posts without waiting. A trap at which the NIC finds nothing to do is
 * a part of a push. */
static bool is_streaming(void)
{
    if (!state.worked) {
        return false;
    }
    uint64_t now = clock_now_ns();
    bool close = now - state.last_trap_ns < CLOSE_TRAPS_NS &&
                 process.nic.packets_received == state.packets_received;
    state.packets_received = process.nic.packets_received;
    state.close_traps = close ? state.close_traps + 1 : 0;
    return state.close_traps >= CLOSE_TRAPS;
}

/* Executes what a store has posted, and gives the lock back. alone: no other was made since the last look. */
static void serve(bool alone)
{
    process.nic.sees_each_store = alone;
    state.worked = service_work();
    process.nic.sees_each_store = false;
    state.last_trap_ns = process.nic.now_ns;
    bool free = state.free;
    uint64_t due_ns = nic_deadline_ns(&process.nic);
    service_unlock();
    if (free) {
        service_look_soon();
    }
    service_look_at(due_ns);
}

/* Opens the page for the one store at which the thread was stopped. Returns false if the pages are
 * free already, or the thread cannot be stopped behind the store. */
static bool open_for_one(uint32_t page, void *ucontext)
{
    bool stepping = single_step_is_on(); /* the store is to two pages */
    if (state.free || !single_step_begin(ucontext)) {
        return false;
    }
    state.stepping += !stepping;
    set_writable(page, true);
    return true;
}

bool doorbells_trap(uintptr_t address, void *ucontext)
{
    uint32_t page = page_at(address);
    if (page == UINT32_MAX) {
        return false;
    }
    int error = errno;
    struct emulate_page target = {(uintptr_t)state.page[page],
                                  process.page_memory + (size_t)page * NIC_UAR_BYTES,
                                  NIC_UAR_BYTES};
    /* With the lock, so that nobody looks at a push before all of its stores that are made here. */
    process_lock();
    unsigned stores = emulate_stores(ucontext, &target);
    if (stores == 0) {
        unknown_stores_note(ucontext);
    }
    if (stores == 0 && open_for_one(page, ucontext)) {
        process_unlock();
        errno = error;
        return true;
    }
    /* A store that is not made here, and behind which the thread cannot be stopped, is found by
     * looking. */
    if (stores == 0 || service_has_processors() || is_streaming()) {
        set_free();
    }
    if (stores == 0) {
        state.free_until_ns = clock_now_ns() + HOLD_OPEN_NS;
        nic_ring_page(&process.nic, page);
    }
    serve(stores != 0 && !state.free && state.stepping == 0);
    errno = error;
    return true;
}

bool doorbells_stepped(void *ucontext)
{
    if (!single_step_end(ucontext)) {
        return false;
    }
    int error = errno;
    process_lock();
    state.stepping--;
    if (service_has_processors() || is_streaming()) {
        set_free();
    }
    /* Closed first, and then looked at: so the stores of other threads in between are found,
     * too. */
    for (uint32_t page = 0; page < state.page_end && !state.free && state.stepping == 0; page++) {
        set_writable(page, false);
    }
    serve(false);
    errno = error;
    return true;
}

/* ---- pages come and go ---- */

static bool under_valgrind(void)
{
    const char *libraries = getenv("LD_PRELOAD"); /* its own are among them */
    return libraries && strstr(libraries, "/vgpreload_");
}

static void add(uint32_t page, uint8_t *address)
{
    if (state.page_end == 0 && under_valgrind() && !getenv("SIMNIC_TRAPS")) {
        state.free = true;
        state.free_until_ns = UINT64_MAX;
        service_look_soon();
    }
    state.page[page] = address;
    state.open[page] = true;
    if (page >= state.page_end) {
        state.page_end = page + 1;
    }
    if (!state.free) {
        set_writable(page, false);
    }
}

void doorbells_map(uint32_t page, uint8_t *address)
{
    if (page >= NIC_MAX_PAGES) {
        return;
    }
    process_lock();
    add(page, address);
    process_unlock();
}

void doorbells_drop(uint32_t page)
{
    state.page[page] = NULL;
    state.open[page] = false;
}

void doorbells_find(void)
{
    bool missing = false;
    for (uint32_t page = 1; page < NIC_MAX_PAGES && !missing; page++) {
        missing = process.page_used[page] && !core_clock_is_page(page) && !state.page[page];
    }
    FILE *maps = missing ? fopen("/proc/self/maps", "re") : NULL;
    char line[512];
    while (maps && fgets(line, sizeof(line), maps)) {
        unsigned long start, end, offset;
        if (!strstr(line, "memfd:" PAGE_FILE_NAME) ||
            sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) != 3) {
            continue;
        }
        bool ours = start == (uintptr_t)process.page_memory;
        for (; start < end && !ours; start += NIC_UAR_BYTES, offset += NIC_UAR_BYTES) {
            size_t page = offset / NIC_UAR_BYTES;
            if (page < NIC_MAX_PAGES && process.page_used[page] && !core_clock_is_page(page) &&
                !state.page[page]) {
                add((uint32_t)page, (uint8_t *)start);
            }
        }
    }
    if (maps) {
        fclose(maps);
    }
}

void doorbells_unmap(const uint8_t *address, size_t bytes)
{
    bool ours = false;
    for (uint32_t page = 0; page < state.page_end && !ours; page++) {
        ours = state.page[page] >= address && state.page[page] < address + bytes;
    }
    if (!ours) {
        return;
    }
    process_lock();
    for (uint32_t page = 0; page < state.page_end; page++) {
        if (state.page[page] >= address && state.page[page] < address + bytes) {
            state.page[page] = NULL;
        }
    }
    process_unlock();
}

void doorbells_forget(void)
{
    memset(&state, 0, sizeof(state));
}

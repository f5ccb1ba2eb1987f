/* doorbells.c: how a store to a doorbell page is noticed.
 *
 * While a device is idle the program's mappings of its doorbell pages are write-protected. A store
 * stops the program's thread with SIGSEGV; the handler makes the store in its stead, through our own
 * mapping of the page (emulate.c), and executes what was posted, in that very thread. No other
 * thread need be woken, for which there may be no processor: with more threads than processors that
 * want to run, wakes, yields and timers cost milliseconds at times, and a trap some microseconds
 * always.
 *
 * A store that is not known is made by the processor: the page is opened, the thread executes the one
 * instruction and stops again (single_step.c), and the page is closed and looked at.
 *
 * Programs that post without waiting for what they posted would suffer. When traps follow each
 * other closely, or when there are processors to spare for polling, the pages are "free": stores are
 * made without a trap, and the service thread polls, or looks at every event and now and then by a
 * timer. When it finds nothing any more it closes the pages again. */
#include "doorbells.h"

#include "clock.h"
#include "emulate.h"
#include "process.h"
#include "service.h"
#include "single_step.h"
#include "unknown_stores.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define CLOSE_TRAPS_NS 50000u /* between traps of a program that does not wait */
#define CLOSE_TRAPS 8u        /* so close, with nothing received between, until that is believed */

static struct {
    uint8_t *_Atomic page[DEVICE_MAX_PAGES]; /* where the program mapped it; NULL: nowhere */
    bool open[DEVICE_MAX_PAGES];
    uint32_t page_end;
    bool free;
    uint32_t stepping; /* threads for whose one instruction pages are open */
    uint32_t close_traps;
    uint64_t packets_received; /* by the device, at the last trap */
    uint64_t last_trap_ns;
    bool worked; /* the device, at the last trap */
} state;

static void set_writable(uint32_t page, bool writable)
{
    if (state.open[page] == writable || !state.page[page]) {
        return;
    }
    state.open[page] = writable;
    mprotect(state.page[page], DEVICE_UAR_BYTES, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

static uint32_t page_at(uintptr_t address)
{
    const uint8_t *start = (const uint8_t *)(address & ~(uintptr_t)(DEVICE_UAR_BYTES - 1));
    if (!start) { /* the program's own NULL, which numbers without a page would match */
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

void doorbells_close(void)
{
    state.free = false;
    state.close_traps = 0;
    for (uint32_t page = 0; page < state.page_end; page++) {
        set_writable(page, false);
    }
}

/* Returns whether the program posts without waiting. Traps at which the device finds nothing to do are
 * parts of one push. */
static bool is_streaming(void)
{
    if (!state.worked) {
        return false;
    }
    uint64_t now = process_now_ns();
    bool close = now - state.last_trap_ns < CLOSE_TRAPS_NS &&
                 process.device.packets_received == state.packets_received;
    state.packets_received = process.device.packets_received;
    state.close_traps = close ? state.close_traps + 1 : 0;
    return state.close_traps >= CLOSE_TRAPS;
}

/* Does what was asked for by a store that has been made, and gives the lock back. */
static void serve(void)
{
    state.worked = service_work();
    state.last_trap_ns = process.device.now_ns;
    bool free = state.free;
    uint64_t due_ns = device_deadline_ns(&process.device);
    service_unlock();
    if (free) {
        service_look_soon();
    }
    service_look_at(due_ns);
}

/* Opens the page for the one store at which the thread was stopped. Returns false if it is open already,
 * or the thread cannot be stopped behind the store. */
static bool open_for_one(uint32_t page, void *ucontext)
{
    bool stepping = single_step_is_on(); /* at a store to two pages */
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
                                  process.page_memory + (size_t)page * DEVICE_UAR_BYTES,
                                  DEVICE_UAR_BYTES};
    /* With the lock: nobody looks at a push before the last of its stores that are made here. */
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
    /* A store that is neither made here nor stopped behind is found by looking. */
    if (stores == 0 || service_has_processors() || is_streaming()) {
        set_free();
    }
    if (stores == 0) {
        device_ring_page(&process.device, page);
    }
    serve();
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
    /* First closed, then looked at: so what other threads stored meanwhile is found too. */
    for (uint32_t page = 0; page < state.page_end && !state.free && state.stepping == 0; page++) {
        set_writable(page, false);
    }
    serve();
    errno = error;
    return true;
}

/* ---- pages come and go ---- */

static void add(uint32_t page, uint8_t *address)
{
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
    if (page >= DEVICE_MAX_PAGES) {
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
    for (uint32_t page = 1; page < DEVICE_MAX_PAGES && !missing; page++) {
        missing = process.page_used[page] && !clock_is_page(page) && !state.page[page];
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
        for (; start < end && !ours; start += DEVICE_UAR_BYTES, offset += DEVICE_UAR_BYTES) {
            size_t page = offset / DEVICE_UAR_BYTES;
            if (page < DEVICE_MAX_PAGES && process.page_used[page] && !clock_is_page(page) &&
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

/* doorbells.c: how a store to a doorbell page is noticed.
 *
 * While a device is idle its doorbell pages are write-protected. A store to one stops the program's
 * thread with SIGSEGV, and the handler executes what was posted, in that very thread: the WQEs and
 * the doorbell record were written before. No other thread need be woken, for which there may be no
 * processor.
 *
 * Then the store must be made, so the page is opened, and the next stores to it would go unnoticed.
 * For this the pages with the doorbell records are protected in its stead ("guarded"): a program
 * writes a record before it rings. The trap at a record protects the doorbell page again and opens
 * the record's. So there are two traps for each doorbell, of some microseconds each, and nothing is
 * missed:
 *
 *   closed:  doorbell pages protected, records open. At a doorbell: guard the records, work, open
 *   the page.
 *   guarded: a doorbell page open, records protected. At a record: protect the doorbell pages,
 *   work, open the records.
 *   free:    both open. The service thread polls, or looks at every event and now and then by a
 *   timer.
 *
 * Work comes between protecting one and opening the other, so that what another thread wrote in
 * time is found, and what it writes later traps. "Free" is for programs that post without waiting
 * for what they posted (their traps follow each other closely), and for when there are processors
 * to spare for polling. */
#include "doorbells.h"

#include "process.h"
#include "service.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
#define MOST_RECORD_PAGES 16u /* with more, guarding them would cost more than it brings */
#define CLOSE_TRAPS_NS 12000u /* between traps of a program that does not wait */
#define CLOSE_TRAPS 6u        /* so close, after which that is believed */

struct record_page {
    uint8_t *_Atomic address; /* NULL: not in use */
    uint32_t users;
    bool guarded;
};

static struct {
    uint8_t *_Atomic page[DEVICE_MAX_PAGES]; /* where the program mapped it; NULL: nowhere */
    bool open[DEVICE_MAX_PAGES];
    uint32_t page_end;
    struct record_page record[MOST_RECORD_PAGES];
    uint32_t records_without_place; /* while there are any, there is no guarding */
    bool free;
    uint32_t close_traps;
    uint64_t last_trap_ns;
} state;

static bool set_writable(uint8_t *address, bool writable)
{
    return mprotect(address, PAGE_BYTES, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

static uint8_t *page_of(uintptr_t address)
{
    return (uint8_t *)(address & ~(uintptr_t)(PAGE_BYTES - 1));
}

static uint32_t doorbell_page_at(uintptr_t address)
{
    const uint8_t *start = page_of(address);
    for (uint32_t page = 0; page < state.page_end; page++)
        if (atomic_load_explicit(&state.page[page], memory_order_relaxed) == start)
            return page;
    return UINT32_MAX;
}

static struct record_page *record_page_at(uintptr_t address)
{
    const uint8_t *start = page_of(address);
    for (uint32_t i = 0; i < MOST_RECORD_PAGES; i++)
        if (atomic_load_explicit(&state.record[i].address, memory_order_relaxed) == start)
            return &state.record[i];
    return NULL;
}

static void open_page(uint32_t page)
{
    if (!state.open[page])
        state.open[page] = set_writable(state.page[page], true);
}

static void protect_pages(void)
{
    for (uint32_t page = 0; page < state.page_end; page++) {
        if (!state.open[page])
            continue;
        state.open[page] = false;
        set_writable(state.page[page], false);
    }
}

static void open_all_pages(void)
{
    for (uint32_t page = 0; page < state.page_end; page++)
        if (state.page[page])
            open_page(page);
}

static bool guard_records(void)
{
    if (state.records_without_place)
        return false;
    for (uint32_t i = 0; i < MOST_RECORD_PAGES; i++) {
        struct record_page *r = &state.record[i];
        if (r->address && !r->guarded)
            r->guarded = set_writable(r->address, false);
    }
    return true;
}

static void open_records(void)
{
    for (uint32_t i = 0; i < MOST_RECORD_PAGES; i++) {
        struct record_page *r = &state.record[i];
        if (!r->guarded)
            continue;
        r->guarded = false;
        set_writable(r->address, true);
    }
}

static void set_free(void)
{
    state.free = true;
    open_records();
    open_all_pages();
}

bool doorbells_are_free(void)
{
    return state.free;
}

void doorbells_close(void)
{
    state.free = false;
    state.close_traps = 0;
    protect_pages();
    open_records();
}

/* Returns whether the program posts without waiting. */
static bool is_streaming(void)
{
    uint64_t now = process_now_ns();
    bool close = now - state.last_trap_ns < CLOSE_TRAPS_NS;
    state.last_trap_ns = now;
    state.close_traps = close ? state.close_traps + 1 : 0;
    return state.close_traps >= CLOSE_TRAPS;
}

static void trap_at_doorbell(uint32_t page)
{
    device_ring_page(&process.device, page);
    if (service_has_processors() || is_streaming() || !guard_records()) {
        set_free();
        service_work();
        return;
    }
    service_work();
    open_page(page);
}

static void trap_at_record(void)
{
    is_streaming();
    protect_pages();
    service_work();
    open_records();
}

bool doorbells_trap(uintptr_t address)
{
    /* A first look without the lock: a fault that is not ours must not wait for it. */
    if (doorbell_page_at(address) == UINT32_MAX && !record_page_at(address))
        return false;
    int error = errno;
    process_lock();
    uint32_t page = doorbell_page_at(address);
    struct record_page *record = record_page_at(address);
    /* Another thread may have opened it meanwhile; then there is nothing to do but to try again. */
    if (page != UINT32_MAX && !state.open[page])
        trap_at_doorbell(page);
    else if (record && record->guarded)
        trap_at_record();
    bool free = state.free;
    service_unlock();
    if (free)
        service_look_soon();
    errno = error;
    return true;
}

bool doorbells_trap_of_device(uintptr_t address)
{
    struct record_page *record = record_page_at(address);
    if (!record || !record->guarded)
        return false;
    set_free(); /* the guard is broken: somebody has to look */
    return true;
}

/* ---- pages come and go ---- */

void doorbells_map(uint32_t page, uint8_t *address)
{
    if (page >= DEVICE_MAX_PAGES)
        return;
    process_lock();
    state.page[page] = address;
    state.open[page] = true;
    if (page >= state.page_end)
        state.page_end = page + 1;
    if (!state.free) {
        state.open[page] = false;
        set_writable(address, false);
    }
    process_unlock();
}

void doorbells_unmap(const uint8_t *address, size_t bytes)
{
    bool ours = false;
    for (uint32_t page = 0; page < state.page_end && !ours; page++)
        ours = state.page[page] >= address && state.page[page] < address + bytes;
    for (uint32_t i = 0; i < MOST_RECORD_PAGES && !ours; i++)
        ours = state.record[i].address >= address && state.record[i].address < address + bytes;
    if (!ours)
        return;
    process_lock();
    for (uint32_t page = 0; page < state.page_end; page++) {
        if (state.page[page] < address || state.page[page] >= address + bytes)
            continue;
        state.page[page] = NULL;
        state.open[page] = false;
    }
    for (uint32_t i = 0; i < MOST_RECORD_PAGES; i++) {
        struct record_page *r = &state.record[i];
        if (r->address >= address && r->address < address + bytes)
            *r = (struct record_page){0};
    }
    process_unlock();
}

void doorbells_watch_record(uint8_t *record)
{
    uint8_t *address = page_of((uintptr_t)record);
    struct record_page *place = record_page_at((uintptr_t)record);
    for (uint32_t i = 0; i < MOST_RECORD_PAGES && !place; i++)
        if (!state.record[i].address)
            place = &state.record[i];
    if (!place) {
        state.records_without_place++;
        return;
    }
    place->address = address;
    place->users++;
}

void doorbells_forget_record(uint8_t *record)
{
    struct record_page *r = record_page_at((uintptr_t)record);
    if (!r) {
        if (state.records_without_place)
            state.records_without_place--;
        return;
    }
    if (--r->users)
        return;
    if (r->guarded)
        set_writable(r->address, true);
    *r = (struct record_page){0};
}

void doorbells_forget(void)
{
    open_records();
    memset(&state, 0, sizeof state);
}

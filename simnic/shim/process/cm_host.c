/* cm_host.c: see cm_host.h. */
#include "simnic/shim/process/cm_host.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "simnic/shim/process/process.h"

_Static_assert(FABRIC_CM_BYTES >= CM_SHARED_BYTES, "the connection managers share too much");

/* Processes that have ended: how far they had written into their rings to this one. Only the thread
 * that runs the cm uses it. */
static struct {
    uint32_t generation;
    uint64_t end;
} departed[FABRIC_SLOTS];

struct cm_note {
    struct list queued;
    uint32_t source_slot, bytes;
    uint8_t message[];
};

void cm_host_message(void *context, uint32_t source_slot, const void *message, uint32_t bytes)
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

void cm_host_unplug(int rail)
{
    process.cm_unplugged |= 1u << rail;
    atomic_store(&process.cm_due_ns, 0);
}

/* One pass only: whatever the cm asks for, the NIC has its turn in between. One thread at a time,
 * so that messages stay in order. */
void cm_host_run(void)
{
    if (atomic_load_explicit(&process.cm_due_ns, memory_order_relaxed) > clock_now_ns() ||
        atomic_exchange_explicit(&process.cm_runs, true, memory_order_acquire)) {
        return;
    }
    atomic_store(&process.cm_due_ns, UINT64_MAX);
    struct list notes;
    list_init(&notes);
    process_lock();
    list_move_all(&notes, &process.cm_notes);
    const uint32_t unplugged = process.cm_unplugged;
    process.cm_unplugged = 0;
    process_unlock();
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        if (unplugged >> rail & 1) {
            cm_unplug(process.cm, rail);
        }
    }
    while (!list_empty(&notes)) {
        struct cm_note *note = container_of(notes.next, struct cm_note, queued);
        cm_receive(process.cm, note->source_slot, note->message, note->bytes);
        list_remove(&note->queued);
        free(note);
    }
    uint64_t due = cm_run(process.cm);
    /* Unless somebody asked for an earlier time meanwhile. */
    uint64_t asked = atomic_load(&process.cm_due_ns);
    while (due < asked && !atomic_compare_exchange_weak(&process.cm_due_ns, &asked, due)) {
    }
    atomic_store_explicit(&process.cm_runs, false, memory_order_release);
}

static int send_message(void *context, uint32_t slot, int rail, const void *message, size_t bytes)
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

static bool is_alive(void *context, uint32_t slot, uint32_t generation)
{
    (void)context;
    return slot < FABRIC_SLOTS &&
           atomic_load(&process.fabric.file->slots[slot].generation) == generation &&
           fabric_slot_alive(&process.fabric, slot);
}

/* A process that has ended writes no more. So what is in its ring once it was found to have ended is all
 * that is still to come; what follows is of its successor in the slot. */
static bool is_gone(void *context, uint32_t slot, uint32_t generation)
{
    if (slot >= FABRIC_SLOTS || is_alive(context, slot, generation)) {
        return slot >= FABRIC_SLOTS;
    }
    if (departed[slot].generation != generation) {
        departed[slot].generation = generation;
        departed[slot].end = fabric_written(&process.fabric, slot);
    }
    process_lock();
    bool more = !fabric_has_read(&process.fabric, slot, departed[slot].end);
    for (struct list *l = process.cm_notes.next; l != &process.cm_notes; l = l->next) {
        more |= container_of(l, struct cm_note, queued)->source_slot == slot;
    }
    process_unlock();
    if (more) {
        process_kick();
    }
    return !more;
}

static uint32_t generation_of(void *context, uint32_t slot)
{
    (void)context;
    return slot < FABRIC_SLOTS ? atomic_load(&process.fabric.file->slots[slot].generation) : 0;
}

static bool is_unplugged(void *context, int rail)
{
    (void)context;
    process_lock();
    nic_take_faults(&process.nic);
    const bool unplugged = process.nic.rails_unplugged >> rail & 1;
    process_unlock();
    return unplugged;
}

static void wake(void *context)
{
    (void)context;
    atomic_store(&process.cm_due_ns, 0);
    process_kick();
}

static uint64_t now_ns(void *context)
{
    (void)context;
    return clock_now_ns();
}

static void log_line(void *context, const char *text)
{
    (void)context;
    process_log("%s", text);
}

bool cm_host_start(void)
{
    const struct cm_host host = {.slot = process.fabric.slot,
                                 .link = process.fabric.link,
                                 .shared = process.fabric.file->cm,
                                 .send = send_message,
                                 .alive = is_alive,
                                 .gone = is_gone,
                                 .generation = generation_of,
                                 .unplugged = is_unplugged,
                                 .wake = wake,
                                 .now_ns = now_ns,
                                 .log = log_line};
    list_init(&process.cm_notes);
    memset(departed, 0, sizeof(departed));
    atomic_store(&process.cm_due_ns, UINT64_MAX);
    process.cm = cm_create(&host);
    return process.cm;
}

/* fabric.c: slots, and packets through rings. */
#include "simnic/fabric/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RECORD_ALIGN 64u
#define PADDING 0xfe       /* operation of a record that only fills the ring up to its end */
#define UNKNOWN UINT64_MAX /* start time of a process that cannot be looked at */

static uint32_t record_bytes(uint32_t payload_bytes)
{
    return (uint32_t)sizeof(struct packet) +
           ((payload_bytes + RECORD_ALIGN - 1) & ~(RECORD_ALIGN - 1));
}

/* Returns when process `pid` started, in clock ticks since boot; 0 if there is no such process;
 * UNKNOWN if that cannot be found out, for example because no descriptor is left. */
static uint64_t start_time_of(uint32_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || (kill((pid_t)pid, 0) != 0 && errno == ESRCH) ? 0 : UNKNOWN;
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    /* The name in parentheses may hold anything. The state follows the last parenthesis, and the
     * time is 19 fields behind it. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') {
        return 0;
    }
    for (int field = 0; at && field < 20; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

static uint32_t start_of(uint64_t owner)
{
    return (uint32_t)(owner >> 32);
}

uint32_t fabric_pid(const struct fabric *fabric, uint32_t slot)
{
    return (uint32_t)atomic_load_explicit(&fabric->file->slots[slot].owner, memory_order_acquire);
}

static bool owner_lives(uint64_t owner)
{
    if (owner == 0) {
        return false;
    }
    uint64_t now = start_time_of((uint32_t)owner);
    return now == UNKNOWN ||
           (now != 0 && (start_of(owner) == 0 || start_of(owner) == (uint32_t)now));
}

bool fabric_slot_alive(struct fabric *fabric, uint32_t slot)
{
    return (slot == fabric->slot && fabric_pid(fabric, slot) != 0) ||
           owner_lives(
               atomic_load_explicit(&fabric->file->slots[slot].owner, memory_order_acquire));
}

static int map(struct fabric *fabric, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    void *file = mmap(NULL, sizeof(struct fabric_file), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    int result = file == MAP_FAILED ? -errno : 0;
    close(fd);
    if (result) {
        return result;
    }
    madvise(file, sizeof(struct fabric_file), MADV_DONTFORK);
    madvise(file, sizeof(struct fabric_file), MADV_DONTDUMP);
    fabric->file = file;
    fabric->link = fabric->file->link;
    if (fabric->file->magic == FABRIC_MAGIC && fabric->file->version == FABRIC_VERSION) {
        return 0;
    }
    munmap(file, sizeof(struct fabric_file));
    return -EPROTO;
}

static bool claim(struct fabric *fabric, uint32_t slot, uint64_t self)
{
    _Atomic uint64_t *owner = &fabric->file->slots[slot].owner;
    uint64_t before = atomic_load_explicit(owner, memory_order_acquire);
    fabric->slot = UINT32_MAX;
    if (owner_lives(before) || !atomic_compare_exchange_strong(owner, &before, self)) {
        return false;
    }
    fabric->slot = slot;
    return true;
}

static uint64_t self_as_owner(void)
{
    uint32_t pid = (uint32_t)getpid();
    uint64_t started = start_time_of(pid);
    return (started == UNKNOWN ? 0 : (uint64_t)(uint32_t)started << 32) | pid;
}

/* Empties the rings to the slot's last owner, and goes on where the rings from it stopped. */
static void take_over(struct fabric *fabric)
{
    struct fabric_slot *own = &fabric->file->slots[fabric->slot];
    for (uint32_t other = 0; other < FABRIC_SLOTS; other++) {
        if (atomic_load_explicit(&fabric->file->slots[other].generation, memory_order_acquire) ==
                0 &&
            other != fabric->slot) {
            continue; /* nobody ever had this slot: its pages take no memory yet */
        }
        struct fabric_ring *in = &fabric->file->rings[fabric->slot][other];
        uint64_t head = atomic_load_explicit(&in->head, memory_order_acquire);
        atomic_store_explicit(&in->tail, head, memory_order_release);
        atomic_store_explicit(&in->answered, head, memory_order_release);
        fabric->reader_tail[other] = head;
    }
    atomic_store(&own->asleep, 0);
    atomic_store(&own->threads_told_ns, 0);
    atomic_store(&own->groups, 0);
    prctl(PR_GET_NAME, own->name);
    uint32_t generation = atomic_load(&own->generation) + 1;
    atomic_store(&own->generation, generation ? generation : 1);
    memset(&fabric->file->statistics[fabric->slot], 0, sizeof(fabric->file->statistics[0]));
}

int fabric_attach(struct fabric *fabric, const char *path)
{
    *fabric = (struct fabric){.slot = UINT32_MAX};
    int result = map(fabric, path);
    if (result) {
        return result;
    }
    /* The slot that this process had before an exec() has no NIC any more. */
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        if (fabric_pid(fabric, slot) == (uint32_t)getpid()) {
            atomic_store(&fabric->file->slots[slot].owner, 0);
        }
    }
    uint64_t self = self_as_owner();
    for (uint32_t slot = 0; slot < FABRIC_SLOTS; slot++) {
        if (!claim(fabric, slot, self)) {
            continue;
        }
        take_over(fabric);
        for (uint32_t other = 0; other < FABRIC_SLOTS; other++) {
            fabric->ring_head[other] = UINT64_MAX; /* looked up when first written to */
        }
        fabric->fault_generation = UINT32_MAX;
        fabric_faults_changed(fabric);
        return 0;
    }
    munmap(fabric->file, sizeof(struct fabric_file));
    return -EUSERS;
}

void fabric_leave(struct fabric *fabric)
{
    atomic_store(&fabric->file->slots[fabric->slot].owner, 0);
}

void fabric_detach(struct fabric *fabric)
{
    fabric_leave(fabric);
    munmap(fabric->file, sizeof(struct fabric_file));
    for (uint32_t which = 0; which < FABRIC_WIRES; which++) {
        free(fabric->wires[which].packets);
    }
    *fabric = (struct fabric){.slot = UINT32_MAX};
}

/* ---- sending ---- */

/* The first use of a ring gives it memory. If tmpfs is full, that must be noticed here, and not by
 * a SIGBUS later. */
static bool ring_open(struct fabric *fabric, uint32_t slot)
{
    struct fabric_ring *ring = &fabric->file->rings[slot][fabric->slot];
    if (madvise(ring, sizeof(*ring), MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        return false;
    }
    fabric->ring_head[slot] = atomic_load_explicit(&ring->head, memory_order_acquire);
    fabric->ring_tail_seen[slot] = atomic_load_explicit(&ring->tail, memory_order_acquire);
    return true;
}

static uint8_t *ring_reserve(struct fabric *fabric, uint32_t slot, uint32_t payload_bytes)
{
    if (fabric->ring_head[slot] == UINT64_MAX && !ring_open(fabric, slot)) {
        return NULL;
    }
    struct fabric_ring *ring = &fabric->file->rings[slot][fabric->slot];
    uint64_t head = fabric->ring_head[slot];
    uint32_t bytes = record_bytes(payload_bytes);
    uint32_t to_end = FABRIC_RING_BYTES - (uint32_t)(head % FABRIC_RING_BYTES);
    uint32_t needed = bytes <= to_end ? bytes : to_end + bytes;
    if (head + needed - fabric->ring_tail_seen[slot] > FABRIC_RING_BYTES) {
        fabric->ring_tail_seen[slot] = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head + needed - fabric->ring_tail_seen[slot] > FABRIC_RING_BYTES) {
            atomic_store_explicit(&ring->blocked, 1, memory_order_seq_cst);
            return NULL;
        }
    }
    if (bytes > to_end) {
        struct packet *padding = (struct packet *)(void *)&ring->bytes[head % FABRIC_RING_BYTES];
        padding->operation = PADDING;
        padding->payload_bytes = to_end - (uint32_t)sizeof(struct packet);
        head += to_end;
        fabric->ring_head[slot] = head; /* published with the record that follows */
    }
    return &ring->bytes[head % FABRIC_RING_BYTES];
}

static void ring_commit(struct fabric *fabric, uint32_t slot, const struct packet *packet)
{
    struct fabric_ring *ring = &fabric->file->rings[slot][fabric->slot];
    uint64_t head = fabric->ring_head[slot];
    memcpy(&ring->bytes[head % FABRIC_RING_BYTES], packet, sizeof(*packet));
    head += record_bytes(packet->payload_bytes);
    fabric->ring_head[slot] = head;
    atomic_store_explicit(&ring->head, head, memory_order_release);
    struct fabric_slot *to = &fabric->file->slots[slot];
    /* The reader clears its bit before it looks at the ring. The fence puts our store of the head
     * before our look at the bit. Without it, the reader could clear the bit and miss the head,
     * while we miss that it has cleared the bit. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!(atomic_load_explicit(&to->pending, memory_order_relaxed) >> fabric->slot & 1)) {
        atomic_fetch_or_explicit(&to->pending, 1ull << fabric->slot, memory_order_seq_cst);
    }
    if (packet->flags & PACKET_WAKE) {
        fabric->to_wake |= 1ull << slot;
    }
}

bool fabric_transmit(struct fabric *fabric, uint32_t slot, const struct packet *packet,
                     const uint8_t *payload)
{
    uint8_t *to = ring_reserve(fabric, slot, packet->payload_bytes);
    if (!to) {
        return false;
    }
    memcpy(to + sizeof(*packet), payload, packet->payload_bytes);
    ring_commit(fabric, slot, packet);
    return true;
}

bool fabric_owned(const struct fabric *fabric, uint32_t slot)
{
    if (slot >= FABRIC_SLOTS) {
        return false;
    }
    const struct fabric_slot *s = &fabric->file->slots[slot];
    return atomic_load_explicit(&s->owner, memory_order_relaxed) != 0 &&
           atomic_load_explicit(&s->generation, memory_order_relaxed) != fabric->dead[slot];
}

/* Messages of the connection manager are not lost: its host sends them only while the rail is up,
 * and is told if there is no room. */
static bool may_fail(const struct fabric *fabric, const struct packet *packet)
{
    return (fabric->faulty || fabric->on_wires) && packet->operation != PACKET_CM;
}

uint8_t *fabric_reserve(struct fabric *fabric, uint32_t slot, const struct packet *packet)
{
    if (!fabric_owned(fabric, slot)) {
        return fabric->scratch.payload;
    }
    if ((fabric->limited || fabric->on_wires) && packet->payload_bytes &&
        packet->operation != PACKET_CM && !fabric_port_ready(fabric, packet->rail & 15)) {
        fabric->full_slot = FABRIC_SLOTS + (packet->rail & 15);
        return NULL;
    }
    uint8_t *to = ring_reserve(fabric, slot, packet->payload_bytes);
    if (to && may_fail(fabric, packet)) {
        return fabric->scratch.payload; /* fabric_commit decides what becomes of it */
    }
    if (!to) {
        fabric->full_slot = slot;
        return NULL;
    }
    return to + sizeof(*packet);
}

static uint64_t latency_ns(const struct fabric *fabric, const struct packet *packet)
{
    uint32_t rail = packet->rail & 15;
    return rail < FABRIC_RAILS ? fabric->fault.rail_latency_us[rail] * 1000ull : 0;
}

/* By its rail's wire, if it has a latency, or else at once. */
static void send_off(struct fabric *fabric, uint32_t slot, const struct packet *packet)
{
    uint32_t rail = packet->rail & 15;
    if (fabric_wire_used(fabric, rail)) {
        fabric_wire_put(fabric, rail, slot, packet, fabric->now_ns + latency_ns(fabric, packet));
    } else {
        fabric_transmit(fabric, slot, packet, fabric->scratch.payload);
    }
}

/* Decides what becomes of the packet, which is in `scratch`. */
static void commit_faulty(struct fabric *fabric, uint32_t slot, const struct packet *packet)
{
    const struct fabric_fault *fault = &fabric->fault;
    if (fabric_rail_down(fabric, packet->rail & 15) ||
        fabric_rail_down(fabric, packet->rail >> 4)) {
        return;
    }
    if (fault_happens(&fabric->dice, fault->lose_per_million)) {
        return;
    }
    if (fault_happens(&fabric->dice, fault->delay_per_million)) {
        fabric_wire_put(fabric, FABRIC_DELAYED, slot, packet,
                        fabric->now_ns + latency_ns(fabric, packet) + fault->delay_us * 1000ull);
        return;
    }
    send_off(fabric, slot, packet);
    if (fault_happens(&fabric->dice, fault->duplicate_per_million)) {
        send_off(fabric, slot, packet);
    }
}

void fabric_commit(struct fabric *fabric, uint32_t slot, const struct packet *packet)
{
    if (!fabric_owned(fabric, slot)) {
        return; /* nobody is there: it is lost */
    }
    if (packet->operation != PACKET_CM) {
        if (!fabric_rail_down(fabric, packet->rail & 15)) {
            fabric_port_sent(fabric, packet);
        }
        if (fabric->limited) {
            fabric_port_take(fabric, packet);
        }
    }
    if (may_fail(fabric, packet)) {
        commit_faulty(fabric, slot, packet);
    } else {
        ring_commit(fabric, slot, packet);
    }
}

uint64_t fabric_take_wakes(struct fabric *fabric)
{
    uint64_t slots = fabric->to_wake & ~(1ull << fabric->slot);
    fabric->to_wake = 0;
    return slots;
}

void fabric_wake(const struct fabric *fabric, uint64_t slots)
{
    for (; slots; slots &= slots - 1) {
        struct fabric_slot *to = &fabric->file->slots[__builtin_ctzll(slots)];
        if (atomic_load_explicit(&to->asleep, memory_order_seq_cst) &&
            atomic_exchange(&to->asleep, 0)) {
            atomic_store_explicit(&to->waker, (uint32_t)sched_getcpu() + 1, memory_order_relaxed);
            syscall(SYS_futex, &to->asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    }
}

uint32_t fabric_take_waker(struct fabric *fabric)
{
    return atomic_exchange(&fabric->file->slots[fabric->slot].waker, 0) - 1;
}

bool fabric_unread(struct fabric *fabric, uint32_t slot)
{
    if (slot >= FABRIC_SLOTS || fabric->ring_head[slot] == UINT64_MAX) {
        return false;
    }
    const struct fabric_ring *ring = &fabric->file->rings[slot][fabric->slot];
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* The generation first: another process may take the slot before the next line. */
    uint32_t generation = atomic_load(&fabric->file->slots[slot].generation);
    if (fabric_slot_alive(fabric, slot)) {
        return atomic_load_explicit(&ring->answered, memory_order_acquire) != head;
    }
    fabric->dead[slot] = generation;
    return false;
}

/* ---- receiving ---- */

void fabric_receive_start(struct fabric *fabric, struct fabric_cursor *cursor)
{
    _Atomic uint64_t *pending = &fabric->file->slots[fabric->slot].pending;
    *cursor = (struct fabric_cursor){0};
    if (atomic_load_explicit(pending, memory_order_acquire)) {
        cursor->slots = atomic_exchange_explicit(pending, 0, memory_order_seq_cst);
    }
}

bool fabric_receive(struct fabric *fabric, struct fabric_cursor *cursor, struct packet *packet,
                    const uint8_t **payload)
{
    while (cursor->slots) {
        uint32_t slot = (uint32_t)__builtin_ctzll(cursor->slots);
        struct fabric_ring *ring = &fabric->file->rings[fabric->slot][slot];
        uint64_t tail = fabric->reader_tail[slot];
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint32_t at = (uint32_t)(tail % FABRIC_RING_BYTES);
        if (head == tail) {
            cursor->slots &= cursor->slots - 1;
            continue;
        }
        memcpy(
            packet, &ring->bytes[at],
            sizeof(*packet)); /* copied, and then checked: the writer may change it at any time */
        uint32_t bytes = record_bytes(packet->payload_bytes);
        bool sound = head - tail <= FABRIC_RING_BYTES &&
                     packet->payload_bytes <= FABRIC_RING_BYTES &&
                     at + bytes <= FABRIC_RING_BYTES && tail + bytes <= head;
        if (!sound || packet->operation == PADDING) {
            fabric->reader_tail[slot] = sound ? tail + bytes : head;
            fabric->to_answer |= 1ull << slot;
            atomic_store_explicit(&ring->tail, fabric->reader_tail[slot], memory_order_release);
            continue;
        }
        cursor->slot = slot;
        cursor->next_tail = tail + bytes;
        *payload = &ring->bytes[at + sizeof(*packet)];
        return true;
    }
    return false;
}

void fabric_consume(struct fabric *fabric, struct fabric_cursor *cursor)
{
    struct fabric_ring *ring = &fabric->file->rings[fabric->slot][cursor->slot];
    fabric->reader_tail[cursor->slot] = cursor->next_tail;
    fabric->to_answer |= 1ull << cursor->slot;
    atomic_store_explicit(&ring->tail, cursor->next_tail, memory_order_release);
    /* A writer that found no room is woken when there is room for many packets. If it was not
     * asleep yet, it looks again by itself soon. */
    if (!atomic_load_explicit(&ring->blocked, memory_order_relaxed)) {
        return;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - cursor->next_tail <= FABRIC_RING_BYTES / 2) {
        atomic_store_explicit(&ring->blocked, 0, memory_order_seq_cst);
        fabric->to_wake |= 1ull << cursor->slot;
    }
}

void fabric_answered(struct fabric *fabric)
{
    for (; fabric->to_answer; fabric->to_answer &= fabric->to_answer - 1) {
        const uint32_t slot = (uint32_t)__builtin_ctzll(fabric->to_answer);
        atomic_store_explicit(&fabric->file->rings[fabric->slot][slot].answered,
                              fabric->reader_tail[slot], memory_order_release);
    }
}

void fabric_receive_stop(struct fabric *fabric, struct fabric_cursor *cursor)
{
    if (cursor->slots) {
        atomic_fetch_or(&fabric->file->slots[fabric->slot].pending, cursor->slots);
    }
    cursor->slots = 0;
}

uint64_t fabric_written(const struct fabric *fabric, uint32_t slot)
{
    return atomic_load_explicit(&fabric->file->rings[fabric->slot][slot].head,
                                memory_order_acquire);
}

bool fabric_has_read(struct fabric *fabric, uint32_t slot, uint64_t end)
{
    if ((int64_t)(end - fabric->reader_tail[slot]) <= 0) {
        return true;
    }
    atomic_fetch_or(&fabric->file->slots[fabric->slot].pending, 1ull << slot);
    return false;
}

/* ---- faults and time ---- */

bool fabric_faults_changed(struct fabric *fabric)
{
    uint32_t generation =
        atomic_load_explicit(&fabric->file->fault_generation, memory_order_acquire);
    if (generation == fabric->fault_generation || generation & 1) {
        return false;
    }
    struct fabric_fault copy = fabric->file->fault;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&fabric->file->fault_generation, memory_order_relaxed) != generation) {
        return false;
    }
    fabric->fault_generation = generation;
    fabric->fault = copy;
    fabric->dice.state = copy.seed ^ ((uint64_t)fabric->slot << 56);
    fabric->late_dice.state = ~fabric->dice.state;
    fabric->faulty = copy.lose_per_million || copy.duplicate_per_million ||
                     copy.delay_per_million || copy.rails_down || copy.rails_unplugged ||
                     copy.rail_latency_us[0] || copy.rail_latency_us[1];
    fabric->limited = copy.rail_kbps[0] || copy.rail_kbps[1] || copy.rail_latency_us[0] ||
                      copy.rail_latency_us[1];
    return true;
}

uint32_t fabric_rails_unplugged(const char *path)
{
    uint32_t unplugged = 0;
    const off_t at = offsetof(struct fabric_file, fault.rails_unplugged);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    if (pread(fd, &unplugged, sizeof(unplugged), at) != sizeof(unplugged)) {
        unplugged = 0;
    }
    close(fd);
    return unplugged;
}

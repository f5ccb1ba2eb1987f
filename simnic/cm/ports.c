/* ports.c: the table of bound ports, shared by the processes of a session.
 *
 * A process may die anywhere in here. The word of the table's lock names its holder (slot and
 * generation). Whoever finds that the holder is dead takes the lock over. An entry counts only
 * while its owner word names a live process. That word is written last, so a half-written entry is
 * a free one. */
#include "simnic/cm/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#define EPHEMERAL_FIRST 32768u
#define EPHEMERAL_LAST 60999u

enum { ENTRY_ANY = 1, ENTRY_FAMILY_ONLY = 2, ENTRY_REUSE = 4, ENTRY_LISTENING = 8 };

struct port_entry {
    _Atomic uint64_t owner; /* 0: free */
    uint16_t port_space, port;
    uint8_t family, flags;
    uint8_t reserved[2];
    uint8_t address[16];
};

struct port_table {
    _Atomic uint64_t lock; /* who holds it */
    uint32_t used;         /* entries beyond this were never used */
    uint32_t next_port;    /* ephemeral port to try first */
    uint8_t reserved[16];
    struct port_entry entry[];
};

#define ENTRY_COUNT ((CM_SHARED_BYTES - sizeof(struct port_table)) / sizeof(struct port_entry))

static struct port_table *table_of(const struct cm_host *host)
{
    return host->shared;
}

/* Slot 0 with generation 0 is nobody, so that the zeroed table is free. */
static uint64_t word_of(uint32_t slot, uint32_t generation)
{
    return (uint64_t)generation << 32 | (slot + 1);
}

static uint64_t own_word(const struct cm_host *host)
{
    return word_of(host->slot, host->generation(host->context, host->slot));
}

static struct port_owner owner_of(uint64_t word)
{
    return (struct port_owner){.slot = (uint32_t)word - 1, .generation = word >> 32};
}

static bool word_alive(const struct cm_host *host, uint64_t word)
{
    struct port_owner owner = owner_of(word);
    return word != 0 && host->alive(host->context, owner.slot, owner.generation);
}

static void table_lock(const struct cm_host *host)
{
    struct port_table *table = table_of(host);
    uint64_t self = own_word(host);
    for (unsigned spins = 0;; spins++) {
        uint64_t holder = 0;
        if (atomic_compare_exchange_strong(&table->lock, &holder, self)) {
            return;
        }
        /* Asking whether a process lives may be slow, and most live. */
        if (spins % 64 == 63 && !word_alive(host, holder) &&
            atomic_compare_exchange_strong(&table->lock, &holder, self)) {
            return;
        }
        sched_yield();
    }
}

static void table_unlock(const struct cm_host *host)
{
    uint64_t self = own_word(host);
    atomic_compare_exchange_strong(&table_of(host)->lock, &self, 0);
}

/* Returns whether the entry's owner lives. An entry of a dead one is freed. */
static bool entry_live(const struct cm_host *host, struct port_entry *entry)
{
    uint64_t word = atomic_load(&entry->owner);
    if (word == 0) {
        return false;
    }
    if (word_alive(host, word)) {
        return true;
    }
    atomic_compare_exchange_strong(&entry->owner, &word, 0);
    return false;
}

static struct port_key key_of(const struct port_entry *entry)
{
    struct port_key key = {.port_space = entry->port_space,
                           .port = entry->port,
                           .family = entry->family,
                           .any_address = entry->flags & ENTRY_ANY,
                           .family_only = entry->flags & ENTRY_FAMILY_ONLY,
                           .reuse_address = entry->flags & ENTRY_REUSE};
    memcpy(key.address, entry->address, sizeof(key.address));
    return key;
}

static uint8_t flags_of(const struct port_key *key)
{
    return (key->any_address ? ENTRY_ANY : 0) | (key->family_only ? ENTRY_FAMILY_ONLY : 0) |
           (key->reuse_address ? ENTRY_REUSE : 0);
}

/* Whether two binds of the same port conflict, as the kernel's rdma_cm judges. */
static int conflict(const struct port_key *a, const struct port_key *b, bool reuse)
{
    if (reuse && a->reuse_address && b->reuse_address) {
        return 0;
    }
    if (a->family_only && b->family_only && a->family != b->family) {
        return 0;
    }
    if (a->any_address || b->any_address) {
        return -EADDRNOTAVAIL;
    }
    if (a->family == b->family && memcmp(a->address, b->address, sizeof(a->address)) == 0) {
        return -EADDRINUSE;
    }
    return 0;
}

static int find_conflict(const struct cm_host *host, const struct port_key *key, int self,
                         bool reuse)
{
    struct port_table *table = table_of(host);
    for (uint32_t i = 0; i < table->used && i < ENTRY_COUNT; i++) {
        struct port_entry *entry = &table->entry[i];
        if ((int)i == self || entry->port != key->port || entry->port_space != key->port_space ||
            !entry_live(host, entry)) {
            continue;
        }
        struct port_key other = key_of(entry);
        int error = conflict(key, &other, reuse);
        if (error) {
            return error;
        }
    }
    return 0;
}

static bool port_taken(const struct cm_host *host, uint16_t port_space, uint16_t port)
{
    struct port_table *table = table_of(host);
    for (uint32_t i = 0; i < table->used && i < ENTRY_COUNT; i++) {
        if (table->entry[i].port == port && table->entry[i].port_space == port_space &&
            entry_live(host, &table->entry[i])) {
            return true;
        }
    }
    return false;
}

static uint16_t ephemeral_port(const struct cm_host *host, uint16_t port_space)
{
    struct port_table *table = table_of(host);
    const uint32_t count = EPHEMERAL_LAST - EPHEMERAL_FIRST + 1;
    for (uint32_t tried = 0; tried < count; tried++) {
        uint16_t port = EPHEMERAL_FIRST + table->next_port++ % count;
        if (!port_taken(host, port_space, port)) {
            return port;
        }
    }
    return 0;
}

static int free_entry(const struct cm_host *host)
{
    struct port_table *table = table_of(host);
    for (uint32_t i = 0; i < table->used && i < ENTRY_COUNT; i++) {
        if (atomic_load(&table->entry[i].owner) == 0) {
            return (int)i;
        }
    }
    if (table->used < ENTRY_COUNT) {
        return (int)table->used++;
    }
    for (uint32_t i = 0; i < ENTRY_COUNT; i++) {
        if (!entry_live(host, &table->entry[i])) {
            return (int)i;
        }
    }
    return PORT_NONE;
}

static int bind_locked(const struct cm_host *host, struct port_key *key)
{
    uint16_t port = key->port ? key->port : ephemeral_port(host, key->port_space);
    if (port == 0) {
        return -EADDRNOTAVAIL;
    }
    struct port_key wanted = *key;
    wanted.port = port;
    int error = find_conflict(host, &wanted, PORT_NONE, true);
    if (error) {
        return error;
    }
    int index = free_entry(host);
    if (index < 0) {
        return -EADDRNOTAVAIL;
    }
    struct port_entry *entry = &table_of(host)->entry[index];
    entry->port_space = key->port_space;
    entry->port = port;
    entry->family = key->family;
    entry->flags = flags_of(key);
    memcpy(entry->address, key->address, sizeof(entry->address));
    atomic_store(&entry->owner, own_word(host));
    key->port = port;
    return index;
}

int ports_bind(const struct cm_host *host, struct port_key *key)
{
    table_lock(host);
    int result = bind_locked(host, key);
    table_unlock(host);
    return result;
}

static bool entry_is_own(const struct cm_host *host, int entry)
{
    return entry >= 0 && (size_t)entry < ENTRY_COUNT &&
           atomic_load(&table_of(host)->entry[entry].owner) == own_word(host);
}

void ports_release(const struct cm_host *host, int entry)
{
    table_lock(host);
    if (entry_is_own(host, entry)) {
        atomic_store(&table_of(host)->entry[entry].owner, 0);
    }
    table_unlock(host);
}

int ports_listen(const struct cm_host *host, int index, const struct port_key *key)
{
    table_lock(host);
    int error = -EADDRNOTAVAIL;
    if (entry_is_own(host, index)) {
        struct port_entry *entry = &table_of(host)->entry[index];
        /* Whoever listens has the port alone: another bind of it is in the way, reused or not. */
        error = find_conflict(host, key, index, false);
        if (!error) {
            entry->flags = flags_of(key) | ENTRY_LISTENING;
        }
    }
    table_unlock(host);
    return error;
}

int ports_match(const struct port_key *bound, const struct port_key *to)
{
    if (bound->port != to->port || bound->port_space != to->port_space) {
        return 0;
    }
    if (bound->any_address) {
        return bound->family == to->family || (bound->family == AF_INET6 && !bound->family_only);
    }
    return bound->family == to->family &&
                   memcmp(bound->address, to->address, sizeof(to->address)) == 0
               ? 2
               : 0;
}

bool ports_find(const struct cm_host *host, const struct port_key *to, struct port_owner *owner)
{
    struct port_table *table = table_of(host);
    int best = 0;
    table_lock(host);
    for (uint32_t i = 0; i < table->used && i < ENTRY_COUNT; i++) {
        struct port_entry *entry = &table->entry[i];
        if (!(entry->flags & ENTRY_LISTENING) || entry->port != to->port ||
            !entry_live(host, entry)) {
            continue;
        }
        struct port_key key = key_of(entry);
        int match = ports_match(&key, to);
        if (match <= best) {
            continue;
        }
        best = match;
        *owner = owner_of(atomic_load(&entry->owner));
    }
    table_unlock(host);
    return best > 0;
}

bool ports_listened(const struct cm_host *host, const struct port_key *to)
{
    struct port_table *table = table_of(host);
    bool found = false;
    table_lock(host);
    for (uint32_t i = 0; i < table->used && i < ENTRY_COUNT && !found; i++) {
        struct port_entry *entry = &table->entry[i];
        found = entry->flags & ENTRY_LISTENING && entry->port == to->port &&
                key_of(entry).port_space == to->port_space && entry_live(host, entry);
    }
    table_unlock(host);
    return found;
}

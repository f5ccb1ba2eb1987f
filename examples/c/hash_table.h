/* hash_table.h: a hash table in the memory of one program, which others use by READ, WRITE and
 * compare-and-swap alone. The processor of its server does nothing for them.
 *
 * This header has the layout and the protocol, for server and clients alike. The clients in Python
 * and Go (examples/python, examples/go) speak the same.
 *
 * The memory
 *
 *   head     8 bytes, and 56 unused ones: the first of the free entries
 *   slots    8 bytes each, in buckets of 8. 0: free. Otherwise a word, which names an entry:
 *              bits 0 to 23   number of the entry, from 1
 *              bits 24 to 55  version of the slot: one more with each new word
 *              bits 56 to 63  fingerprint of the key: the upper bits of its hash
 *   entries  128 bytes each:
 *              0    the word that names it; while it is free, the number of the next free one
 *              8    index of the slot
 *              12   length of the key; 14: of the value
 *              16   the key, the value, and zeros: 108 bytes
 *              124  CRC-32 of the 124 bytes before
 *
 * The hash of a key is its CRC-32. Its bucket is hash modulo the number of buckets; the next ones
 * follow if that is full, up to TABLE_PROBES of them. All numbers are little-endian; so are the
 * machines, because a compare-and-swap has the byte order of its machine.
 *
 * Why it is right, whatever the clients do at the same time
 *
 * - A writer claims a slot by compare-and-swap, from 0 or from the word that it has read. Before, it
 *   has written the key and the value to an entry that is its own. On one queue a WRITE is done
 *   before a compare-and-swap behind it, so both leave in one batch. There is no lock: whoever dies
 *   in between has claimed nothing, and nobody waits for it.
 * - A key has at most one slot. Slots are claimed in the order of the search, and one that is in use
 *   keeps its key for ever. So a key is in the first slot that was free when it came. Two writers
 *   who insert the same key find the same free slot; only one of them wins it, and the other then
 *   finds the key there. Likewise a reader who has come to a free slot knows that the key is not
 *   there: all slots before have other keys, for good.
 * - The writer who replaces a word owns the entry that the old word has named, and nobody else does,
 *   since only one compare-and-swap can replace it. It writes its next value there. At each moment a
 *   client owns one entry at most: a compare-and-swap exchanges one for the other. So a client that
 *   dies loses one. The server collects these when its last client has gone, because then nobody
 *   owns any.
 * - A reader may read an entry while its new owner writes to it. It notices a torn entry by the
 *   CRC-32; nothing is assumed about the order in which a device reads or writes bytes. It notices an
 *   entry that is whole, but of another time, by word and slot: they are those that it came from only
 *   if the entry has been written for this very word. Then it reads the slot again, which must have
 *   changed. (A torn entry with the right word, slot and CRC-32 would take a chance of 2^-32.)
 * - The version keeps a word from coming back. Otherwise a writer could replace a new value in the
 *   belief that it is the one it has read. The version comes round after 2^32 changes of one slot.
 * - Free entries are a stack: its head has a number like a word's, and above it a version, which each
 *   push and pop raises. What a client has read below the head counts only if head has not changed.
 *
 * Atomics of queues exclude each other on one device, and all clients use the server's one. The
 * server's processor writes to the memory only while there are no clients.
 *
 * Whoever may connect can write anything: the clients of a table trust each other.
 */
#ifndef EXAMPLES_HASH_TABLE_H
#define EXAMPLES_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAGIC UINT64_C(0x3130544843505243) /* "CRPCHT01" */
#define TABLE_HEAD_BYTES 64u
#define TABLE_BUCKET_SLOTS 8u
#define TABLE_PROBES 16u
#define TABLE_ENTRIES_MAX ((1u << 24) - 1)
#define TABLE_DATA_BYTES 108u /* of key and value together */

struct table_entry {
    uint64_t word;
    uint32_t slot;
    uint16_t key_bytes;
    uint16_t value_bytes;
    uint8_t data[TABLE_DATA_BYTES];
    uint32_t checksum;
};
_Static_assert(sizeof(struct table_entry) == 128, "the layout of the table");

/* What the server tells each client, as private data of rdma_cm. The entries follow the slots, and
 * these follow the head. */
struct table_hello {
    uint64_t magic;
    uint64_t address; /* of the head */
    uint32_t remote_key;
    uint32_t slots; /* a power of two, at least one bucket */
    uint32_t entries;
    uint32_t entry_bytes; /* 128 */
};

static inline uint32_t table_crc32(const void *bytes, uint64_t count)
{
    const uint8_t *next = (const uint8_t *)bytes;
    uint32_t crc = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++) {
        crc ^= next[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

static inline uint32_t table_number(uint64_t word)
{
    return (uint32_t)(word & TABLE_ENTRIES_MAX);
}

static inline uint32_t table_fingerprint(uint64_t word)
{
    return (uint32_t)(word >> 56);
}

/* The word that follows `before` in a slot of this key. */
static inline uint64_t table_next_word(uint64_t before, uint32_t hash, uint32_t number)
{
    uint32_t version = (uint32_t)(before >> 24) + 1;
    return (uint64_t)(hash >> 24) << 56 | (uint64_t)version << 24 | number;
}

/* The head that follows `before`. */
static inline uint64_t table_next_head(uint64_t before, uint32_t number)
{
    return ((before >> 24) + 1) << 24 | number;
}

static inline uint64_t table_slot_offset(uint32_t slot)
{
    return TABLE_HEAD_BYTES + UINT64_C(8) * slot;
}

static inline uint64_t table_entry_offset(uint32_t slots, uint32_t number)
{
    return table_slot_offset(slots) + (uint64_t)(number - 1) * sizeof(struct table_entry);
}

/* Where the search for a key begins. */
static inline uint32_t table_first_slot(uint32_t hash, uint32_t slots)
{
    return hash * TABLE_BUCKET_SLOTS & (slots - 1);
}

static inline bool table_key_is(const struct table_entry *entry, const void *key, size_t bytes)
{
    return entry->key_bytes == bytes && memcmp(entry->data, key, bytes) == 0;
}

/* Gives whether the entry is whole, and was written for this word of this slot. */
static inline bool table_entry_is(const struct table_entry *entry, uint64_t word, uint32_t slot)
{
    return entry->word == word && entry->slot == slot &&
           entry->key_bytes + entry->value_bytes <= (int)TABLE_DATA_BYTES &&
           entry->checksum == table_crc32(entry, offsetof(struct table_entry, checksum));
}

/* Gives whether `text` is a number of at most `most`. */
static inline bool table_parse(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *value <= most;
}

#endif

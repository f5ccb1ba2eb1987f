/* table.h: maps a 24-bit queue pair number to a pointer with two loads. It is a page table, not a
 * hash table. */
#ifndef CORE_BASE_TABLE_H
#define CORE_BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define TABLE_LEAF_BITS 12
#define TABLE_LEAF_ENTRIES (1u << TABLE_LEAF_BITS)
#define TABLE_KEY_MAX 0xffffffu

struct table_leaf {
    void *entries[TABLE_LEAF_ENTRIES];
};

/* All numbers without a leaf of their own share one leaf of NULLs, so that a look-up needs no
 * branch. */
struct table {
    struct table_leaf *leaves[(TABLE_KEY_MAX + 1) >> TABLE_LEAF_BITS];
};

void table_init(struct table *table);
void table_free(struct table *table);

/* Returns false if there is no memory. */
bool table_set(struct table *table, uint32_t key, void *value);
void table_clear(struct table *table, uint32_t key);

/* Returns NULL if there is no entry. Any key is allowed; only its lower 24 bits count. */
static inline void *table_get(const struct table *table, uint32_t key)
{
    key &= TABLE_KEY_MAX;
    return table->leaves[key >> TABLE_LEAF_BITS]->entries[key & (TABLE_LEAF_ENTRIES - 1)];
}

#endif

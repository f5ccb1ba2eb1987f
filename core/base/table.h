/* table.h: from a 24-bit queue pair number to a pointer in two loads: a page table, not a hash. */
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

/* Numbers without a leaf lead to one shared leaf of NULLs, so that a look-up has no branch. */
struct table {
    struct table_leaf *leaves[(TABLE_KEY_MAX + 1) >> TABLE_LEAF_BITS];
};

void table_init(struct table *table);
void table_free(struct table *table);

/* False if there is no memory. */
bool table_set(struct table *table, uint32_t key, void *value);
void table_clear(struct table *table, uint32_t key);

/* NULL if nothing is there; key may be anything. */
static inline void *table_get(const struct table *table, uint32_t key)
{
    key &= TABLE_KEY_MAX;
    return table->leaves[key >> TABLE_LEAF_BITS]->entries[key & (TABLE_LEAF_ENTRIES - 1)];
}

#endif

#include "base/table.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

static struct table_leaf empty_leaf;

#define LEAF_COUNT (sizeof(((struct table *)0)->leaves) / sizeof(struct table_leaf *))

void table_init(struct table *table)
{
    for (size_t i = 0; i < LEAF_COUNT; i++) {
        table->leaves[i] = &empty_leaf;
    }
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < LEAF_COUNT; i++) {
        if (table->leaves[i] != &empty_leaf) {
            free(table->leaves[i]);
        }
    }
    table_init(table);
}

bool table_set(struct table *table, uint32_t key, void *value)
{
    assert(key <= TABLE_KEY_MAX && value);
    struct table_leaf **leaf = &table->leaves[(key & TABLE_KEY_MAX) >> TABLE_LEAF_BITS];
    if (*leaf == &empty_leaf) {
        struct table_leaf *fresh = calloc(1, sizeof(*fresh));
        if (!fresh) {
            return false;
        }
        *leaf = fresh;
    }
    (*leaf)->entries[key & (TABLE_LEAF_ENTRIES - 1)] = value;
    return true;
}

void table_clear(struct table *table, uint32_t key)
{
    assert(key <= TABLE_KEY_MAX);
    struct table_leaf *leaf = table->leaves[(key & TABLE_KEY_MAX) >> TABLE_LEAF_BITS];
    if (leaf != &empty_leaf) {
        leaf->entries[key & (TABLE_LEAF_ENTRIES - 1)] = NULL;
    }
}

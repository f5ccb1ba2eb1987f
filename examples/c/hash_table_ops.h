/* hash_table_ops.h: a client of a hash table: looks up, inserts and updates. hash_table.h has the
 * protocol. One thread uses a client; each function waits until it is done.
 */
#ifndef EXAMPLES_HASH_TABLE_OPS_H
#define EXAMPLES_HASH_TABLE_OPS_H

#include <copyrpc.h>

#include "hash_table.h"

enum table_result {
    TABLE_FOUND,        /* get: the key was there. Others: it was, and has the new value */
    TABLE_ABSENT,       /* get: it was not. Others: it has been inserted */
    TABLE_FULL,         /* there is no slot for the key, or no entry */
    TABLE_NOT_A_NUMBER, /* add: the value is none */
    TABLE_DAMAGED,      /* somebody has written what no client writes */
    TABLE_LOST,         /* the connection */
};

/* For tests: where a client kills itself in the middle of a put. TABLE_PAUSES: where it stops in the
 * middle of a get (SIGSTOP), until it is continued. */
enum table_moment {
    TABLE_LIVES,
    TABLE_DIES_WITH_AN_ENTRY,
    TABLE_DIES_IN_THE_ENTRY,     /* half of it is written, the latter */
    TABLE_DIES_BEHIND_THE_ENTRY, /* all of it is */
    TABLE_DIES_SWAPPING,         /* the compare-and-swap is posted */
    TABLE_DIES_HAVING_SWAPPED,
    TABLE_PAUSES, /* once, after the slot is read, and before its entry is */
};

struct table {
    crpc_context *context;
    crpc_queue queue;
    crpc_region region; /* of `here` */
    struct table_hello hello;
    uint32_t spare; /* number of the entry that this client owns; 0 = none */
    enum table_moment moment;
    crpc_error error; /* why it is lost */
    struct table_here {
        uint64_t words[TABLE_BUCKET_SLOTS];
        struct table_entry found;
        struct table_entry written;
        uint64_t head;
        uint64_t next;
    } here; /* what the device reads and writes */
};

/* Connects to a hash_table_server. Returns false, with table->error, if that fails. In both cases
 * the caller closes the table. */
bool table_open(struct table *table, const char *address);
/* Gives back the entry that this client owns, and disconnects. */
void table_close(struct table *table);

/* Keys have 1 byte at least; a key and its value have TABLE_DATA_BYTES at the most. The value is in
 * table->here.found, until the next call. */
enum table_result table_get(struct table *table, const char *key);
enum table_result table_put(struct table *table, const char *key, const char *value);
/* Adds to the number, in decimal digits, that is the key's value; to 0 if the key is not there. */
enum table_result table_add(struct table *table, const char *key, uint64_t number, uint64_t *sum);

/* Copies the value of the entry that was found, as text. */
void table_value(const struct table *table, char *text, size_t bytes);
const char *table_text(const struct table *table, enum table_result result);

#endif

/* hash_table_ops.c: see hash_table_ops.h. */
#include "hash_table_ops.h"

#include <signal.h>

/* How often an entry is read that is not what its slot says, while the slot stays as it is. Only what
 * is damaged can be so twice. */
#define LOOKS_MAX 100u
#define LEAVE_NS UINT64_C(1000000000)

/* What a search has come to. */
struct place {
    uint32_t hash;
    uint32_t slot;
    uint64_t word; /* 0 = the slot is free */
};

/* ---- Ops ------------------------------------------------------------------------------------- */

static crpc_queue_op op_of(const struct table *table, uint8_t opcode, uint64_t offset)
{
    return (crpc_queue_op){.opcode = opcode,
                           .remote_address = table->hello.address + offset,
                           .remote_key = table->hello.remote_key};
}

static crpc_queue_op moving(const struct table *table, uint8_t opcode, const void *here,
                            uint32_t bytes, uint64_t offset)
{
    crpc_queue_op op = op_of(table, opcode, offset);
    op.region = table->region;
    op.address = (uint64_t)(uintptr_t)here;
    op.bytes = bytes;
    return op;
}

static crpc_queue_op swapping(const struct table *table, uint64_t offset, uint64_t before,
                              uint64_t after)
{
    crpc_queue_op op = op_of(table, CRPC_QUEUE_COMPARE_SWAP, offset);
    op.address = before;
    op.operand = after;
    return op;
}

static bool lost(struct table *table, int32_t status)
{
    table->error.struct_size = sizeof(table->error);
    crpc_queue_get_error(table->context, table->queue, &table->error);
    if (table->error.status == CRPC_OK) {
        table->error.status = status;
        snprintf(table->error.message, sizeof(table->error.message), "%s",
                 crpc_status_text(status));
    }
    return false;
}

/* Submits ops, and waits for all of them. *before is what the last one, a compare-and-swap, found. */
static bool run(struct table *table, const crpc_queue_op *ops, uint32_t count, uint64_t *before)
{
    int32_t reason;
    uint32_t open = count;
    int32_t taken = crpc_queue_submit(table->context, table->queue, ops, count, NULL, 0, &reason);
    if (taken < (int32_t)count) {
        return lost(table, taken < 0 ? taken : reason);
    }
    if (count > 1 && table->moment == TABLE_DIES_SWAPPING) {
        raise(SIGKILL);
    }
    int32_t status = CRPC_OK;
    while (open > 0) {
        crpc_completion done;
        if (crpc_poll(table->context, &done, 1) == 0) {
            crpc_wait(table->context, CRPC_FOREVER);
        } else if (done.kind == CRPC_COMPLETION_WORK) {
            open--;
            status = status == CRPC_OK ? done.status : status;
            if (before) {
                *before = done.token; /* they complete in order */
            }
        }
    }
    return status == CRPC_OK || lost(table, status);
}

static bool read_remote(struct table *table, void *here, uint32_t bytes, uint64_t offset)
{
    const crpc_queue_op op = moving(table, CRPC_QUEUE_READ, here, bytes, offset);
    return run(table, &op, 1, NULL);
}

/* ---- Free entries ---------------------------------------------------------------------------- */

static bool is_entry(const struct table *table, uint32_t number)
{
    return number > 0 && number <= table->hello.entries;
}

/* Pops an entry, which this client then owns. TABLE_FOUND: it has one. */
static enum table_result take_entry(struct table *table)
{
    struct table_here *here = &table->here;
    while (table->spare == 0) {
        uint64_t before;
        if (!read_remote(table, &here->head, sizeof(here->head), 0)) {
            return TABLE_LOST;
        }
        const uint64_t head = here->head;
        uint32_t number = table_number(head);
        if (!is_entry(table, number)) {
            return number == 0 ? TABLE_FULL : TABLE_DAMAGED;
        }
        if (!read_remote(table, &here->next, sizeof(here->next),
                         table_entry_offset(table->hello.slots, number))) {
            return TABLE_LOST;
        }
        uint64_t next = table_next_head(head, table_number(here->next));
        const crpc_queue_op op = swapping(table, 0, head, next);
        if (!run(table, &op, 1, &before)) {
            return TABLE_LOST;
        }
        table->spare = before == head ? number : 0;
    }
    return TABLE_FOUND;
}

static void give_entry(struct table *table)
{
    struct table_here *here = &table->here;
    while (table->spare != 0) {
        uint64_t before;
        if (!read_remote(table, &here->head, sizeof(here->head), 0)) {
            return;
        }
        const uint64_t head = here->head;
        here->next = table_number(head);
        const crpc_queue_op ops[2] = {
            moving(table, CRPC_QUEUE_WRITE, &here->next, sizeof(here->next),
                   table_entry_offset(table->hello.slots, table->spare)),
            swapping(table, 0, head, table_next_head(head, table->spare))};
        if (!run(table, ops, 2, &before)) {
            return;
        }
        table->spare = before == head ? 0 : table->spare;
    }
}

/* ---- Searching ------------------------------------------------------------------------------- */

/* Reads the entry that a slot names. TABLE_ABSENT: it is none of this word; the slot has changed. */
static enum table_result read_entry(struct table *table, uint32_t slot, uint64_t word)
{
    uint32_t number = table_number(word);
    if (!is_entry(table, number)) {
        return TABLE_DAMAGED;
    }
    if (table->moment == TABLE_PAUSES) {
        table->moment = TABLE_LIVES;
        raise(SIGSTOP);
    }
    if (!read_remote(table, &table->here.found, sizeof(table->here.found),
                     table_entry_offset(table->hello.slots, number))) {
        return TABLE_LOST;
    }
    return table_entry_is(&table->here.found, word, slot) ? TABLE_FOUND : TABLE_ABSENT;
}

/* TABLE_FULL: the key is not in this bucket, and there is no free slot. TABLE_ABSENT: there is one. */
static enum table_result find_in_bucket(struct table *table, const char *key, struct place *place,
                                        uint32_t first)
{
    const uint64_t *words = table->here.words;
    uint64_t last = 0; /* the word whose entry was another's when it was read */
    uint32_t i = 0, looks = 0;
    while (looks < LOOKS_MAX) {
        enum table_result result = TABLE_FULL;
        if (!read_remote(table, table->here.words, sizeof(table->here.words),
                         table_slot_offset(first))) {
            return TABLE_LOST;
        }
        for (; i < TABLE_BUCKET_SLOTS && result == TABLE_FULL; i++) {
            place->slot = first + i;
            place->word = words[i];
            if (words[i] == 0) {
                return TABLE_ABSENT;
            }
            if (table_fingerprint(words[i]) == place->hash >> 24) {
                result = read_entry(table, first + i, words[i]);
            }
            if (result == TABLE_FOUND && !table_key_is(&table->here.found, key, strlen(key))) {
                result = TABLE_FULL;
            }
        }
        if (result != TABLE_ABSENT) {
            return result;
        }
        looks = words[--i] == last ? looks + 1 : 0;
        last = words[i];
    }
    return TABLE_DAMAGED;
}

static enum table_result find(struct table *table, const char *key, struct place *place)
{
    const uint32_t slots = table->hello.slots;
    place->hash = table_crc32(key, strlen(key));
    uint32_t first = table_first_slot(place->hash, slots);
    for (uint32_t i = 0; i < TABLE_PROBES && i < slots / TABLE_BUCKET_SLOTS; i++) {
        enum table_result result =
            find_in_bucket(table, key, place, (first + i * TABLE_BUCKET_SLOTS) & (slots - 1));
        if (result != TABLE_FULL) {
            return result;
        }
    }
    return TABLE_FULL;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void die_at(const struct table *table, enum table_moment moment)
{
    if (table->moment == moment) {
        raise(SIGKILL);
    }
}

/* The latter half of the entry, or all of it, and nothing else. For tests. */
static void write_and_die(struct table *table, uint64_t offset)
{
    const uint8_t *entry = (const uint8_t *)&table->here.written;
    uint32_t bytes = sizeof(table->here.written);
    uint32_t skipped = table->moment == TABLE_DIES_IN_THE_ENTRY ? bytes / 2 : 0;
    if (table->moment == TABLE_DIES_IN_THE_ENTRY || table->moment == TABLE_DIES_BEHIND_THE_ENTRY) {
        const crpc_queue_op op =
            moving(table, CRPC_QUEUE_WRITE, entry + skipped, bytes - skipped, offset + skipped);
        run(table, &op, 1, NULL);
        raise(SIGKILL);
    }
}

/* Gives the key a value in the place that was found. *swapped: whether the place was still so. */
static enum table_result replace(struct table *table, const struct place *place, const char *key,
                                 const char *value, bool *swapped)
{
    uint64_t before;
    size_t key_bytes = strlen(key), value_bytes = strlen(value);
    enum table_result result = take_entry(table);
    if (result != TABLE_FOUND) {
        return result;
    }
    die_at(table, TABLE_DIES_WITH_AN_ENTRY);
    const uint64_t word = table_next_word(place->word, place->hash, table->spare);
    const uint64_t offset = table_entry_offset(table->hello.slots, table->spare);
    struct table_entry *entry = &table->here.written;
    *entry = (struct table_entry){.word = word,
                                  .slot = place->slot,
                                  .key_bytes = (uint16_t)key_bytes,
                                  .value_bytes = (uint16_t)value_bytes};
    memcpy(entry->data, key, key_bytes);
    memcpy(entry->data + key_bytes, value, value_bytes);
    entry->checksum = table_crc32(entry, offsetof(struct table_entry, checksum));
    write_and_die(table, offset);
    const crpc_queue_op ops[2] = {
        moving(table, CRPC_QUEUE_WRITE, entry, sizeof(*entry), offset),
        swapping(table, table_slot_offset(place->slot), place->word, word)};
    if (!run(table, ops, 2, &before)) {
        return TABLE_LOST;
    }
    *swapped = before == place->word;
    if (*swapped) {
        table->spare = table_number(place->word);
        die_at(table, TABLE_DIES_HAVING_SWAPPED);
    }
    return TABLE_FOUND;
}

/* The value is `value`, or the sum if that is NULL. */
static enum table_result change(struct table *table, const char *key, const char *value,
                                uint64_t add, uint64_t *sum)
{
    char digits[32];
    for (;;) {
        struct place place;
        bool swapped;
        enum table_result found = find(table, key, &place);
        if (found != TABLE_FOUND && found != TABLE_ABSENT) {
            return found;
        }
        if (!value) {
            uint64_t number = 0;
            table_value(table, digits, sizeof(digits));
            if (found == TABLE_FOUND && !table_parse(digits, UINT64_MAX, &number)) {
                return TABLE_NOT_A_NUMBER;
            }
            *sum = number + add;
            snprintf(digits, sizeof(digits), "%llu", (unsigned long long)*sum);
        }
        enum table_result result = replace(table, &place, key, value ? value : digits, &swapped);
        if (result != TABLE_FOUND || swapped) {
            return result == TABLE_FOUND ? found : result;
        }
    }
}

enum table_result table_get(struct table *table, const char *key)
{
    struct place place;
    enum table_result result = find(table, key, &place);
    return result == TABLE_FULL ? TABLE_ABSENT : result;
}

enum table_result table_put(struct table *table, const char *key, const char *value)
{
    return change(table, key, value, 0, NULL);
}

enum table_result table_add(struct table *table, const char *key, uint64_t number, uint64_t *sum)
{
    return change(table, key, NULL, number, sum);
}

void table_value(const struct table *table, char *text, size_t bytes)
{
    const struct table_entry *entry = &table->here.found;
    snprintf(text, bytes, "%.*s", (int)entry->value_bytes,
             (const char *)entry->data + entry->key_bytes);
}

const char *table_text(const struct table *table, enum table_result result)
{
    static const char *const texts[] = {
        [TABLE_FOUND] = "it is there",
        [TABLE_ABSENT] = "it is not there",
        [TABLE_FULL] = "the table is full",
        [TABLE_NOT_A_NUMBER] = "its value is no number",
        [TABLE_DAMAGED] = "the table is damaged",
    };
    return result == TABLE_LOST ? table->error.message : texts[result];
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static bool read_hello(struct table *table)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    struct table_hello *hello = &table->hello;
    crpc_queue_get_info(table->context, table->queue, &info);
    memcpy(hello, info.private_data, sizeof(*hello));
    if (info.private_bytes < sizeof(*hello) || hello->magic != TABLE_MAGIC ||
        hello->entry_bytes != sizeof(struct table_entry) || hello->slots < TABLE_BUCKET_SLOTS ||
        (hello->slots & (hello->slots - 1)) != 0 || hello->entries > TABLE_ENTRIES_MAX) {
        snprintf(table->error.message, sizeof(table->error.message),
                 "the server has no hash table of this kind");
        return false;
    }
    return true;
}

static bool wait_for(struct table *table, uint8_t kind, crpc_completion *done)
{
    do {
        while (crpc_poll(table->context, done, 1) == 0) {
            crpc_wait(table->context, CRPC_FOREVER);
        }
    } while (done->kind != kind);
    return done->status == CRPC_OK || lost(table, done->status);
}

bool table_open(struct table *table, const char *address)
{
    const crpc_context_options queues = {.struct_size = sizeof(queues),
                                         .flags = CRPC_CONTEXT_QUEUES};
    crpc_completion done;
    *table = (struct table){.error = {.struct_size = sizeof(table->error)}};
    return crpc_context_open(&queues, &table->context, &table->error) == CRPC_OK &&
           crpc_region_register(table->context, &table->here, sizeof(table->here),
                                CRPC_ACCESS_LOCAL_WRITE, &table->region,
                                &table->error) == CRPC_OK &&
           crpc_queue_connect(table->context, address, NULL, &table->queue, &table->error) ==
               CRPC_OK &&
           wait_for(table, CRPC_COMPLETION_CONNECTED, &done) && read_hello(table);
}

void table_close(struct table *table)
{
    crpc_completion done;
    give_entry(table);
    if (crpc_queue_drain(table->context, table->queue, LEAVE_NS) == CRPC_OK) {
        wait_for(table, CRPC_COMPLETION_DISCONNECTED, &done);
    }
    crpc_context_close(table->context);
}

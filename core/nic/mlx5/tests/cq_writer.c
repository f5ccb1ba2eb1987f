/* cq_writer.c: see cq_writer.h. */
#include "cq_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    AT_HASH = 12,
    AT_CHECKSUM = 20,
    AT_BYTE_COUNT = 44,
    AT_OPCODE = 56,
    AT_NUMBER = 57,
    AT_COUNTER = 60,
    AT_LAP = 62,
    AT_OP_OWN = 63
};

enum { OP_REQUEST = 0x0, OP_WRITE_IMM = 0x1, OP_SEND = 0x2, OP_REQ_ERR = 0xd, OP_RESP_ERR = 0xe };

#define FORMAT_COMPRESSED 0x0c

uint64_t writer_random(struct writer *writer)
{
    /* splitmix64 */
    uint64_t value = writer->random += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

uint32_t writer_pick(struct writer *writer, uint32_t below)
{
    return (uint32_t)((writer_random(writer) >> 32) * below >> 32);
}

static void put16(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static void put32(uint8_t *bytes, uint32_t value)
{
    put16(bytes, value >> 16);
    put16(bytes + 2, value);
}

static uint32_t log2_of(uint32_t power)
{
    uint32_t result = 0;
    while (1u << result != power) {
        result++;
    }
    return result;
}

struct writer *writer_new(const struct writer_options *options)
{
    struct writer *writer = calloc(1, sizeof(*writer));
    size_t bytes = (size_t)options->entries * options->entry_bytes;
    writer->options = *options;
    writer->random = options->seed;
    writer->memory = aligned_alloc(128, bytes < 128 ? 128 : bytes);
    for (size_t i = 0; i < bytes; i++) {
        writer->memory[i] = (uint8_t)writer_random(writer);
    }
    writer->expected = calloc(options->entries, sizeof(*writer->expected));
    writer->queue = (struct completion_queue){
        .entries = writer->memory + options->entry_bytes - 64,
        .mask = options->entries - 1,
        .shift = (uint8_t)log2_of(options->entry_bytes),
        .laps = (uint8_t)log2_of(options->entries),
        .mini = options->mini,
        .layout = (uint8_t)options->layout,
        .record = writer->record,
        .doorbell = writer->doorbell,
    };
    completion_queue_init(&writer->queue);
    return writer;
}

void writer_delete(struct writer *writer)
{
    free(writer->expected);
    free(writer->memory);
    free(writer);
}

uint8_t *writer_place(const struct writer *writer, uint32_t index)
{
    uint32_t bytes = writer->options.entry_bytes;
    return writer->memory + (size_t)(index % writer->options.entries + 1) * bytes - 64;
}

/* The record has 24 bits of an index that is at most a ring behind the producer. */
static uint32_t released(const struct writer *writer)
{
    uint32_t record = be32toh(writer->record[0]);
    return writer->producer - ((writer->producer - record) & 0xffffffu);
}

uint32_t writer_room(const struct writer *writer)
{
    uint32_t used = writer->producer - released(writer);
    if (used > writer->options.entries) {
        print_error("seed %llu: released %u places that were not written\n",
                    (unsigned long long)writer->options.seed, used);
        fail();
    }
    return writer->options.entries - used;
}

uint32_t writer_ready(const struct writer *writer)
{
    return writer->producer - writer->taken;
}

static void random_entry(struct writer *writer, uint8_t *entry)
{
    bool error = writer_pick(writer, writer->options.error_one_in) == 0;
    uint8_t opcode = writer->options.responder ? OP_WRITE_IMM : OP_REQUEST;
    for (uint32_t i = 0; i < 64; i++) {
        entry[i] = (uint8_t)writer_random(writer);
    }
    if (writer->options.responder && writer_pick(writer, 4) == 0) {
        opcode = OP_SEND;
    }
    if (error) {
        opcode = writer->options.responder ? OP_RESP_ERR : OP_REQ_ERR;
    }
    entry[AT_OP_OWN] = (uint8_t)(opcode << 4);
}

static void expect(struct writer *writer, uint32_t index, const uint8_t *bytes, uint32_t item)
{
    struct writer_expected *expected = &writer->expected[index % writer->options.entries];
    memcpy(expected->bytes, bytes, 64);
    expected->item = item;
}

static void mark(struct writer *writer, uint8_t *entry, uint32_t index, uint8_t format)
{
    uint32_t lap = index / writer->options.entries;
    entry[AT_OP_OWN] = (uint8_t)((entry[AT_OP_OWN] & 0xf0) | format | (lap & 1));
    if (writer->options.layout == COMPLETION_ENHANCED) {
        entry[AT_LAP] = (uint8_t)lap;
    }
}

/* One mini CQE of a random completion like `like`, which becomes that completion. */
static void random_mini(struct writer *writer, uint8_t *like, uint8_t *mini, bool first)
{
    uint64_t random = writer_random(writer);
    memcpy(mini, &random, 8);
    memcpy(like + AT_BYTE_COUNT, mini + 4, 4);
    if (like[AT_OP_OWN] >> 4 == OP_REQUEST) {
        mini[3] = 0;
        memcpy(like + AT_COUNTER, mini, 2);
        like[AT_OPCODE] = mini[2];
        return;
    }
    if (!first) {
        writer->counter++;
    }
    put16(like + AT_COUNTER, writer->counter);
    switch (writer->options.mini) {
    case COMPLETION_MINI_HASH:
        break; /* of rx_hash_result, nothing is said to who polls */
    case COMPLETION_MINI_CHECKSUM:
        memcpy(like + AT_CHECKSUM, mini, 2);
        break;
    default:
        memcpy(like + AT_CHECKSUM, mini, 2);
        memcpy(like + AT_COUNTER, mini + 2, 2);
    }
}

/* Puts `count` mini CQEs into places of the ring, the arrays of eight first; the title waits, for
 * the reader must not see anything before it comes. */
static void begin_block(struct writer *writer, uint32_t count)
{
    uint8_t entry[64];
    uint32_t start = writer->producer;
    do {
        random_entry(writer, entry);
    } while (entry[AT_OP_OWN] >> 4 >= OP_REQ_ERR);
    memcpy(writer->waiting_title, entry, 64);
    writer->counter = (uint16_t)(entry[AT_COUNTER] << 8 | entry[AT_COUNTER + 1]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t array = i / 8;
        uint8_t *place = writer_place(writer, start + (array ? array * 8 : 1));
        random_mini(writer, entry, place + i % 8 * 8, i == 0);
        expect(writer, start + i, entry, start);
    }
    put32(writer->waiting_title + AT_BYTE_COUNT, count);
    mark(writer, writer->waiting_title, start, FORMAT_COMPRESSED);
    writer->waiting = true;
    writer->waiting_count = count;
}

static void end_block(struct writer *writer)
{
    memcpy(writer_place(writer, writer->producer), writer->waiting_title, 64);
    writer->producer += writer->waiting_count;
    writer->compressed += writer->waiting_count;
    writer->blocks++;
    writer->waiting = false;
}

static void write_array(struct writer *writer, uint32_t count)
{
    uint8_t array[64] = {0};
    uint32_t start = writer->producer;
    for (uint32_t i = 0; i < count; i++) {
        random_mini(writer, writer->title, array + 8 * i, false);
        expect(writer, start + i, writer->title, start);
    }
    array[AT_OP_OWN] = (uint8_t)((count - 1) << 4);
    mark(writer, array, start, FORMAT_COMPRESSED);
    memcpy(writer_place(writer, start), array, 64);
    writer->producer += count;
    writer->compressed += count;
    writer->blocks++;
}

static void write_single(struct writer *writer)
{
    uint8_t entry[64];
    random_entry(writer, entry);
    expect(writer, writer->producer, entry, writer->producer);
    writer->titled = entry[AT_OP_OWN] >> 4 < OP_REQ_ERR;
    memcpy(writer->title, entry, 64);
    writer->counter = (uint16_t)(entry[AT_COUNTER] << 8 | entry[AT_COUNTER + 1]);
    mark(writer, entry, writer->producer, 0);
    memcpy(writer_place(writer, writer->producer), entry, 64);
    writer->producer++;
}

bool writer_write(struct writer *writer)
{
    if (writer->waiting) {
        end_block(writer);
        return true;
    }
    uint32_t room = writer_room(writer);
    if (room == 0) {
        return false;
    }
    uint32_t most = room < writer->options.block_max ? room : writer->options.block_max;
    if (writer->options.layout == COMPLETION_ENHANCED) {
        if (most >= 1 && writer->options.block_max > 1 && writer->titled &&
            writer_pick(writer, 4) != 0) {
            write_array(writer, 1 + writer_pick(writer, most));
            return true;
        }
    } else if (most >= 2 && writer_pick(writer, 3) != 0) {
        begin_block(writer, 2 + writer_pick(writer, most - 1));
        return true;
    }
    write_single(writer);
    return true;
}

void writer_check(struct writer *writer, const struct mlx5_cqe64 *entry)
{
    const uint8_t *seen = (const uint8_t *)entry;
    const struct writer_expected *expected =
        &writer->expected[writer->taken % writer->options.entries];
    for (uint32_t i = 0; i < 64; i++) {
        /* The lap is the reader's business; of what a compressed completion's rx_hash_result was
         * there is none; the checksum is that of the title where mini CQEs have none. */
        uint8_t mask = i == AT_LAP || (i >= AT_HASH && i < AT_HASH + 4) ? 0
                       : i == AT_OP_OWN                                 ? 0xfc
                                                                        : 0xff;
        if ((seen[i] ^ expected->bytes[i]) & mask) {
            print_error("seed %llu: completion %u, of the item at %u: byte %u is %02x, not %02x\n",
                        (unsigned long long)writer->options.seed, writer->taken, expected->item, i,
                        seen[i], expected->bytes[i]);
            fail();
        }
    }
    writer->taken++;
}

void writer_check_record(const struct writer *writer)
{
    uint32_t item = writer->expected[writer->taken % writer->options.entries].item;
    bool within = writer_ready(writer) > 0;
    uint32_t most = within ? item : writer->taken;
    if ((int32_t)(most - released(writer)) < 0) {
        print_error("seed %llu: released up to %u, but what is at %u is being read\n",
                    (unsigned long long)writer->options.seed, released(writer), most);
        fail();
    }
}

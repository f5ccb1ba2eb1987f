/* cq_writer.h: the device's side of a completion queue, written from the description of the formats
 * in simnic/nic/compress.c and not from the reader: it knows entries as bytes at offsets. It
 * writes random completions, alone or in compressed blocks, wherever the reader has released room,
 * and remembers what the reader has to see.
 */
#ifndef CORE_NIC_MLX5_TESTS_CQ_WRITER_H
#define CORE_NIC_MLX5_TESTS_CQ_WRITER_H

#include "nic/mlx5/completion_queue.h"

struct writer_options {
    enum completion_layout layout;
    uint8_t mini; /* enum completion_mini */
    bool responder;
    uint32_t entries;
    uint32_t entry_bytes;
    uint32_t block_max; /* completions in a block; 1 = none are compressed */
    uint32_t error_one_in;
    uint64_t seed;
};

/* An entry that the reader has to see; bytes 62 and the format and owner bits of 63 are its own
 * business. */
struct writer_expected {
    uint8_t bytes[64];
    uint32_t item; /* index of the first place of the plain entry or block it is in */
};

struct writer {
    struct writer_options options;
    uint8_t *memory;
    uint32_t record[2];
    uint8_t doorbell[64];
    uint64_t random;
    uint32_t producer;
    uint32_t taken; /* entries that writer_check has passed */
    bool titled;    /* ENHANCED: an array may come next, of completions like `title` */
    uint8_t title[64];
    uint16_t counter; /* of the last completion written */
    struct writer_expected *expected;
    uint64_t blocks;
    uint64_t compressed;
    /* A block whose arrays are there already, and its title not yet. */
    bool waiting;
    uint32_t waiting_count;
    uint8_t waiting_title[64];
    struct completion_queue queue; /* the reader */
};

struct writer *writer_new(const struct writer_options *options);
void writer_delete(struct writer *writer);

uint64_t writer_random(struct writer *writer);
uint32_t writer_pick(struct writer *writer, uint32_t below);

/* Writes one entry or block, or the title of the one that waits, if there is room. */
bool writer_write(struct writer *writer);
uint32_t writer_room(const struct writer *writer);
/* Entries that the reader can see and has not yet taken. */
uint32_t writer_ready(const struct writer *writer);

/* The 64 bytes used of a place. */
uint8_t *writer_place(const struct writer *writer, uint32_t index);

/* Fails the test unless `entry` is the next that was written. */
void writer_check(struct writer *writer, const struct mlx5_cqe64 *entry);
/* Fails the test if the reader's record passes the item that is being read. */
void writer_check_record(const struct writer *writer);

#endif

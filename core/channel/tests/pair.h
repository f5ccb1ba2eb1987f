/* pair.h: two engines with two rails each over the in-memory NIC, in immediate mode, for tests of
 * what one side does at a time.
 */
#ifndef CORE_CHANNEL_TESTS_PAIR_H
#define CORE_CHANNEL_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "blob.h"
#include "nic/memory/memory.h"

#define PAIR_COMPLETIONS 256
#define PAIR_BYTES (1u << 20)

struct pair_seen {
    crpc_completion entries[PAIR_COMPLETIONS];
    uint32_t count;
};

struct pair {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
    struct handles handles[2];
    struct nic *nic[2][CHANNEL_RAILS_MAX];
    struct channel_engine *engine[2];
    struct channel *channel[2];
    struct pair_seen seen[2];
    uint8_t *memory[2]; /* PAIR_BYTES each, registered */
    struct registrar registrar[2];
    struct registration region[2];
};

/* The devices of the next pair_open have no windows. */
extern bool pair_without_windows;
/* What the queue pairs of each side and rail of the next pair_open offer of ECE; 0 of both rails: the side knows nothing of it. */
extern uint32_t pair_ece[2][CHANNEL_RAILS_MAX];

crpc_channel_options pair_options(void);
/* rails: how many each side has. */
void pair_open(struct pair *pair, uint32_t left_rails, uint32_t right_rails);
/* The same with devices of which one WQE carries so many bytes at the most. */
void pair_open_with_limit(struct pair *pair, uint32_t left_rails, uint32_t right_rails,
                          uint32_t message_bytes_max);
/* Makes a channel by blobs, and polls nothing. */
void pair_join(struct pair *pair, const crpc_channel_options *left,
               const crpc_channel_options *right);
/* Connects a channel by blobs; with the same options on both sides. */
void pair_connect(struct pair *pair, const crpc_channel_options *options);
void pair_close(struct pair *pair);

/* One poll of a side; `seen` has what it gave. */
uint32_t pair_poll(struct pair *pair, uint32_t side);
/* Polls both until nothing comes; adds all to `seen`. */
void pair_settle(struct pair *pair);
/* Lets time pass, in steps, polling both. */
void pair_wait(struct pair *pair, uint64_t ns);
/* Counts the completions in `seen` of a kind, or finds the nth. */
uint32_t pair_count(const struct pair *pair, uint32_t side, uint8_t kind);
const crpc_completion *pair_find(const struct pair *pair, uint32_t side, uint8_t kind,
                                 uint32_t nth);
void pair_forget(struct pair *pair);

int32_t pair_receive(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes,
                     uint32_t tag, uint64_t user_data);
int32_t pair_send(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes, uint32_t tag,
                  uint64_t user_data);
/* Sends one message from left to right and checks everything about it. */
void pair_message(struct pair *pair, uint32_t bytes, uint8_t key);
/* Writes what a peer that keeps no rule may: into the area of this side, over a rail, whose receive has the immediate. */
void pair_write(struct pair *pair, uint32_t side, uint32_t rail, uint64_t offset, const void *data,
                uint32_t bytes, uint32_t immediate);
/* The same of a line of its inbox, over rail 0. */
void pair_write_line(struct pair *pair, uint32_t side, const struct channel_control *line);
crpc_channel_stats pair_stats(const struct pair *pair, uint32_t side);
crpc_channel_info pair_info(const struct pair *pair, uint32_t side);
/* Bytes that depend on the place and the key. */
void pair_fill(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes, uint8_t key);
bool pair_matches(const struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes,
                  uint64_t source_offset, uint8_t key);

#endif

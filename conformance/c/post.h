/* post.h: the ops of one line of a queue, as both runners in C have them: queues.c of the library's, foreign.c of verbs'. */
#ifndef CONFORMANCE_POST_H
#define CONFORMANCE_POST_H

#include <stdint.h>

#define POST_PIECES_MAX 16
#define POSTS_MAX 4096

/* In the order of CRPC_QUEUE_*. */
enum post_opcode {
    POST_NONE,
    POST_SEND,
    POST_SEND_IMMEDIATE,
    POST_SEND_INVALIDATE,
    POST_WRITE,
    POST_WRITE_IMMEDIATE,
    POST_READ,
    POST_COMPARE_SWAP,
    POST_FETCH_ADD,
    POST_NOP,
    POST_RECEIVE,
    POST_TAG_ADD,
    POST_TAG_REMOVE,
    POST_TAG_SYNC
};

struct post_piece {
    uint8_t *memory;
    uint32_t bytes;
};

struct post {
    void *queue;  /* the runner's */
    void *region; /* likewise; NULL = none */
    enum post_opcode opcode;
    int is_inline, fence, solicited, signal;
    uint32_t immediate; /* or the key to be invalidated */
    uint32_t remote_key;
    uint64_t remote, compare, operand;
    uint64_t target;                           /* of datagrams and DCIs: the runner's */
    uint16_t stream;                           /* of a DCI */
    struct post_piece pieces[POST_PIECES_MAX]; /* of the first op */
    uint32_t piece_count;                      /* 0 = not in pieces: it has one place */
    uint8_t *own;                              /* where they lie if not in a region */
    uint64_t id;
    uint32_t count, step, remote_step;
    uint32_t submitted, ended;
    int summary, waits;

    const char *status;       /* of a summary: the first that is not CRPC_OK */
    uint32_t bytes, checksum; /* of a summary: all that was received */
};

/* What came of an op that is done. */
struct post_result {
    uint32_t bytes;     /* RECEIVE, READ */
    uint64_t before;    /* COMPARE_SWAP, FETCH_ADD */
    const char *number; /* RECEIVE: "immediate", "invalidated" or NULL */
    uint32_t immediate;
    uint64_t written;
    const char *queue;
    uint32_t
        header; /* what precedes a datagram, or an unexpected message with a tag, and `bytes` counts; 0 = nothing */
    uint32_t source; /* of a datagram: the number of the queue pair that has sent it */
    int tagged;      /* the message has a tag */
    uint64_t tag;
    uint32_t context;
};

/* Makes one of the line. `region` is what the line names, and `memory` where that lies; both may be NULL. Writes the payloads. */
struct post *post_take(void *queue, const char *opcode, void *region, uint8_t *memory);

/* User data by which an op is found again. */
uint64_t post_data(const struct post *post, uint32_t index);
struct post *post_of(uint64_t data, uint32_t *index);

/* The posts from the first on; NULL behind the last. */
struct post *post_next(const struct post *after);

uint32_t post_length(const struct post *post);
/* Of op `index`. */
uint8_t *post_memory(const struct post *post, uint32_t index, uint32_t piece);
uint64_t post_remote(const struct post *post, uint32_t index);
uint32_t post_immediate(const struct post *post, uint32_t index);

/* All are with the library: what was inline may change. */
void post_spoil(const struct post *post);

/* Tells that op `index` has ended. `result` is NULL if it has failed. `method` is the opcode that came back, or 0. */
void post_tell(struct post *post, uint32_t index, const char *status,
               const struct post_result *result, unsigned method);

void post_reset(void);

/* The verb `memory`, of `memory` of a region. */
void post_look(uint8_t *memory);

#endif

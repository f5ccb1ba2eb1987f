/* fuzz_queues.h: the two sides of fuzz_queues.c, for its files. */
#ifndef CORE_QUEUE_TESTS_FUZZ_QUEUES_H
#define CORE_QUEUE_TESTS_FUZZ_QUEUES_H

#include "link/tests/fuzz.h"
#include "queue/internal.h"
#include "queue/tests/fake_cm.h"

#define QUEUES_MAX 8u
#define OPS_MAX 512u
#define BYTES 4096u
#define SECRET_BYTES 256u

enum who {
    VICTIM,
    BAD,
    SIDES,
};

struct side {
    struct nic *nic;
    struct queue_engine *engine;
    struct handles handles;
    struct cm cm;
    struct link_listener *listener;
    struct nic_keys keys;   /* of the memory that peers may use */
    struct nic_keys secret; /* of what they may not */
    _Alignas(64) uint8_t memory[BYTES];
    _Alignas(64) uint8_t hidden[SECRET_BYTES];
    uint64_t queues[QUEUES_MAX]; /* handles */
    uint32_t queue_count;
    uint64_t tags; /* handle of its TM-SRQ, if it has one */
};

struct world {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
    struct side sides[SIDES];
    bool done[OPS_MAX];          /* of the victim's ops */
    uint16_t tag_bytes[OPS_MAX]; /* of its TAG_ADDs: so long may a message be */
    uint32_t op_count;
    uint32_t done_count;
};

extern struct world world;

/* fuzz_queues.c */
/* Returns false if there is no place for it: then it is closed. */
bool fuzz_note_queue(struct side *side, uint64_t handle);
void fuzz_receive(enum who who, struct queue *queue, uint32_t bytes);

/* fuzz_queue_tags.c */
/* The TM-SRQ of a side. NULL = it has none, or has closed it. */
struct queue *fuzz_tags_of(const struct side *side);
/* Opens it, gives it a command, or writes a header of a message to where messages are sent from. */
void fuzz_tags_use(struct fuzz_input *input, enum who who, uint8_t choice);
/* What a completion of the victim says of tags. */
void fuzz_tags_check(const crpc_completion *completion);

#endif

/* fuzz_world.h: what the fuzz target consists of: the bytes of an input, the queues and memory that
 * they drive, and what must hold whatever they do.
 *
 *   fuzz_nic.c    what can happen, chosen by the input
 *   fuzz_post.c   send WQEs that are nearly right
 *   fuzz_tags.c   tag matching
 *   fuzz_world.c  making and unmaking, choices, invariants */
#ifndef SIMNIC_NIC_TESTS_FUZZ_WORLD_H
#define SIMNIC_NIC_TESTS_FUZZ_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "simnic/nic/tests/fuzz_tags.h"
#include "simnic/nic/tests/rig.h"

#define QUEUE_PAIRS 9
#define KEYS 7
#define INDIRECT_KEY 6 /* of fuzz.memory: leads to others, as UMR WQEs of the input say */
#define MEMORY_BYTES 65536u

/* One direction of a QP: the counters of its CQEs only go up. */
struct counted {
    bool any, wild; /* wild: the input moved the doorbell record by more than the queue holds */
    uint16_t last;
};

struct fuzz {
    const uint8_t *input;
    size_t input_left;
    struct rig *rig;
    uint32_t blocks; /* of the rig itself */
    struct rig_cq *cq[3];
    struct rig_srq *srq, *tags;
    struct rig_qp *qp[QUEUE_PAIRS];
    struct counted sends[QUEUE_PAIRS], receives[QUEUE_PAIRS];
    uint32_t shared_completions, tag_completions;
    struct rig_memory memory[KEYS];
    uint8_t *nowhere; /* address space without memory */
    bool keys_end_first;
};

extern struct fuzz fuzz;

/* ---- fuzz_world.c ---- */
/* Makes what one input drives, with options of the input, and unmakes it. */
void fuzz_create(void);
void fuzz_destroy(void);

/* Lets time pass, and the NIC work. */
void fuzz_run(uint64_t ns);

/* The bytes of the input; zeros when they are used up. */
void input_bytes(void *to, size_t count);
uint8_t input_byte(void);
uint32_t input_word(void);
uint32_t input_below(uint32_t limit);

/* Choices by the input. Most of what they choose is right. */
struct rig_qp *fuzz_some_qp(void);
uint32_t fuzz_some_length(void);
const struct rig_memory *fuzz_some_memory(void);
uint64_t fuzz_some_address(const struct rig_memory *memory);
uint32_t fuzz_some_key(const struct rig_memory *memory);
struct mlx5_wqe_data_seg fuzz_some_segment(void);
/* Writes the headers of a message for the tag-matching SRQ, as far as there is room. */
void fuzz_write_header(uint8_t *at, uint32_t room);

/* Ends the program if a condition does not hold. */
void fuzz_check(bool condition, const char *what);
void fuzz_check_queue_pair(const struct queue_pair *qp);
/* Takes all completions, and checks each. */
void fuzz_poll_all(void);

/* ---- fuzz_post.c ---- */
/* Posts a WQE that is nearly right. */
void fuzz_post(void);

#endif

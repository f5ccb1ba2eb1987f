/* twins.h: two connections of one device that differ in nothing but who drives them: libmlx5, or
 * this directory's queues. Each has a queue pair that sends and one that receives, and a completion
 * queue for either.
 */
#ifndef CORE_NIC_MLX5_TESTS_TWINS_H
#define CORE_NIC_MLX5_TESTS_TWINS_H

#include "nic/mlx5/mlx5.h"

#define TWIN_BYTES 16384u
#define TWIN_SGES 4u
#define TWIN_INLINE_BYTES 172u
#define TWIN_DEPTH 24u

struct twin {
    struct ibv_cq *send_cq, *receive_cq;
    struct ibv_qp *sender, *receiver;
    /* of ours */
    struct completion_queue sends, receives;
    struct send_queue queue;
    struct doorbell doorbell;
    struct tracking tracking;
    uint8_t *receive_buffer;
    uint32_t receive_entries, receive_stride;
    uint32_t *receive_record;
    uint32_t receive_counter;
    uint64_t receive_ids[64];
};

struct twins {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *memory_region;
    uint8_t *memory; /* near half is the sender's, far half the receiver's */
    struct twin theirs, ours;
};

struct twins *twins_new(uint32_t cqe_bytes);
void twins_delete(struct twins *twins);

void twin_post_receive(struct twins *twins, struct twin *twin, bool own, uint64_t id,
                       uint64_t address, uint32_t bytes);

/* The same operation for the device and in verbs. */
uint8_t twin_opcode(enum ibv_wr_opcode opcode);
uint32_t twin_wc_opcode(uint8_t opcode);

#endif

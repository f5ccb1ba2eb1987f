/* devx.h: completion queues with the enhanced layout of compressed CQEs, and the queue pairs that complete to them. The verbs have no such
 * layout, so both are made by commands to the device itself (DevX), as UCX makes them; the protection domain, the SRQ and all other
 * queues are of the verbs. docs/cqe-compression.md says more.
 *
 *   devx.c              what the device can do; the completion queues
 *   devx_queue_pair.c   making queue pairs
 *   devx_states.c       moving them from state to state, which ibv_modify_qp does for others
 *   devx_events.c       events: of completions, and those that core/cm's thread takes
 *
 * A nic has a struct mlx5_devx if its queues are made so, and only then. */
#ifndef CORE_NIC_MLX5_DEVX_H
#define CORE_NIC_MLX5_DEVX_H

#include <endian.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "nic/mlx5/mlx5.h"

/* Memory that the device uses: of a queue, and then its doorbell record. */
struct devx_memory {
    uint8_t *bytes;
    struct mlx5dv_devx_umem *registered;
    size_t record_at;
};

struct devx_completion_queue {
    struct devx_memory memory;
    struct mlx5dv_devx_obj *object;
};

/* Apart from its struct mlx5_queue_pair, which the data path uses. */
struct devx_queue_pair {
    struct mlx5_queue_pair *of;
    struct devx_memory memory;
    struct mlx5dv_devx_obj *object;
    uint32_t serial; /* tells it from those that had its number before, in what its events say */
    unsigned int rights; /* IBV_ACCESS_REMOTE_*: INIT brings them, and RTR needs them again */
};

struct mlx5_devx {
    struct mlx5dv_devx_uar *page; /* doorbells of all */
    bool combines;                /* writes to the page are combined: WQEs can be pushed */
    uint32_t push_bytes;          /* of its register; 0 = nothing can be pushed */
    uint8_t entry_bytes;          /* of a completion queue: 64 or 128 */
    uint8_t counter_set;          /* the port's counters, as the verbs' queue pairs have them */
    struct devx_completion_queue receives, sends;
    struct mlx5dv_devx_event_channel *completions; /* events of the completion queues */
    struct mlx5dv_devx_event_channel *troubles;    /* those for core/cm's thread */
    int wait_fd; /* an epoll of `completions` and of the verbs' channel; it is the nic's event_fd */
    pthread_mutex_t mutex;    /* of the rest, which threads share */
    struct table queue_pairs; /* by number: struct devx_queue_pair, whether adopted or not */
    uint32_t serial;
};

/* A field of a command or of an answer, `bits` wide, in the words of one of its parts. The first bit is the highest one of the first
 * word. No field crosses a word. A field is set once. */
static inline void devx_set(uint32_t *words, uint32_t at, uint32_t bits, uint32_t value)
{
    words[at / 32] |= htobe32(value << (32 - at % 32 - bits));
}

static inline uint32_t devx_get(const uint32_t *words, uint32_t at, uint32_t bits)
{
    return be32toh(words[at / 32]) >> (32 - at % 32 - bits) & (UINT32_MAX >> (32 - bits));
}

/* The context of a queue pair in a command, and how it begins. */
#define DEVX_CONTEXT_WORDS 58u
#define DEVX_CONTEXT_MIGRATION 0x013u /* 2: pm_state */
#define DEVX_MIGRATED 3u

/* The reason why a function of libmlx5 has failed, which it returns or leaves in errno. If the device itself refuses a command, that is
 * EREMOTEIO since Linux 5.18, and was EIO before. */
int devx_error(int result);

/* ---- devx.c ---- */
/* Whether the device has DevX, and compresses CQEs in the enhanced layout. Fills what `devx` says of it. `bytes`: how long the CQEs are
 * that libmlx5 has chosen; where only others are compressed, these are taken. Returns an errno value. */
int devx_find_layout(struct ibv_context *context, uint32_t bytes, struct mlx5_devx *devx);
/* Memory for a queue of so many bytes. Returns an errno value. */
int devx_memory_make(struct ibv_context *context, size_t bytes, struct devx_memory *memory);
void devx_memory_free(struct devx_memory *memory);
/* The offset of a doorbell record, in its 64 bits of a command. */
void devx_set_record(uint32_t *words, uint32_t at, const struct devx_memory *memory);

/* devx_queue_pair.c: what belongs to a queue pair that is past_verbs. */
struct devx_queue_pair *devx_of(const struct device_queue_pair *queue_pair);

/* ---- devx_states.c ---- device_nic.modify */
int devx_modify(struct device_queue_pair *queue_pair, struct ibv_qp_attr *attributes, int mask);

/* ---- devx_events.c ---- */
/* Makes the channels, and the nic's event_fd. Returns an errno value. */
int devx_events_open(struct mlx5_nic *nic);
void devx_events_close(struct mlx5_nic *nic);
/* Has them tell of a completion queue, or of a queue pair, which is in `queue_pairs` from then on, even if this fails otherwise than with
 * ENOMEM. Each returns an errno value. */
int devx_events_of_completions(struct mlx5_nic *nic, struct devx_completion_queue *queue);
int devx_events_of_queue_pair(struct mlx5_nic *nic, struct devx_queue_pair *made);
/* Takes a queue pair out of `queue_pairs`. Nothing is told of it any more, once this has returned. */
void devx_events_forget(struct mlx5_nic *nic, uint32_t number);

/* ---- for the other files of the driver ---- */
/* devx.c: makes the nic's completion queues so, and tries to make a queue pair. Returns false if the device cannot do one of these: then nothing is left, and *what says
 * what it was, with errno. `push_bytes`: of the register of a queue pair of the verbs, which `probe` is, in RESET. */
bool mlx5_devx_open(struct mlx5_nic *nic, const struct nic_options *options, struct ibv_qp *probe,
                    uint32_t push_bytes, const char **what);
void mlx5_devx_close(struct mlx5_nic *nic);

/* devx_queue_pair.c: the operations of a queue pair. Returns an errno value. `blocks`: of its send queue, a power of two. */
int mlx5_devx_queue_pair_make(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                              struct nic_domain *domain, uint32_t blocks);
void mlx5_devx_queue_pair_unmake(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair);

/* devx_events.c: takes the events of `completions`. */
void mlx5_devx_disarm(struct mlx5_nic *nic);
/* The device is gone: its descriptors would be readable for ever, and are waited for no more. */
void mlx5_devx_lost(struct mlx5_nic *nic);

#endif

/* rig.h: a NIC on a fabric of its own, with queues in plain memory that a test fills as a driver
 * does: send WQEs, receive WQEs, doorbells, and CQEs to poll. QPs of the one NIC talk to each
 * other, through the fabric. Time stands still until a test moves it. Needs no test framework:
 * expect.h does. */
#ifndef SIMNIC_NIC_TESTS_RIG_H
#define SIMNIC_NIC_TESTS_RIG_H

#include <stddef.h>

#include "simnic/nic/dma.h"
#include "simnic/nic/internal.h"

#define RIG_EVENTS 256
#define RIG_PAGES 2
#define RIG_START_NS 1000000000ull
#define RIG_DOMAIN 7u       /* protection domain of everything, unless told otherwise */
#define RIG_ACCESS_ALL 0xfu /* local write, remote write, read and atomic */
#define RIG_LIST_END 0x100u /* L_Key that ends a scatter list */

struct rig_event {
    int event, rail;
    void *owner;
};

struct rig {
    char folder[64], path[96]; /* path: how the fabric file is opened again */
    int file;
    struct fabric fabric;
    struct nic nic;
    uint64_t now_ns;
    uint8_t *page[RIG_PAGES];
    struct rig_event events[RIG_EVENTS]; /* asynchronous ones, as they came */
    uint32_t event_count;
    uint32_t unplugged; /* rails that were taken out, a bit for each */
    uint32_t completion_events;
    void *completion_owner; /* of the last completion event */
    uint32_t traced[2];     /* records of each kind */
    void **blocks;          /* to be freed */
    uint32_t block_count;
};

struct rig_cq {
    uint32_t record[2]; /* doorbell record: consumer index, arm */
    struct rig *rig;
    struct completion_queue *cq;
    uint32_t consumer;
    uint32_t arm_serial;
};

struct rig_srq {
    uint32_t record[2];
    struct rig *rig;
    struct shared_receive_queue *srq;
    uint16_t posted, head, tail; /* of the free list, which `next` links as the program sees it */
    uint16_t next[1024];
};

struct rig_qp {
    uint32_t record[2]; /* doorbell record: receives posted, basic blocks posted */
    struct rig *rig;
    struct queue_pair *qp;
    uint16_t sent;     /* basic blocks posted */
    uint16_t received; /* receive WQEs posted */
    uint32_t which;    /* register of the next push */
};

struct rig_memory {
    uint8_t *bytes;
    uint64_t size;
    uint32_t key;
};

/* What a QP is made of; zeros stand for the defaults in brackets. */
struct rig_qp_options {
    uint32_t type;            /* [RC] */
    uint32_t send_blocks;     /* [64] */
    uint32_t receive_entries; /* [64], of 64 bytes: four segments */
    uint32_t domain;          /* [RIG_DOMAIN] */
    uint32_t page;
    uint8_t rail;
    bool no_receive_queue;
    struct rig_srq *srq;
    struct rig_cq *receive_cq; /* [that of sends] */
};

/* Both return NULL only if the machine is out of something. */
struct rig *rig_new(void);
struct rig *rig_new_linked(uint32_t link); /* LINK_ flags; rig_new's is Ethernet */
void rig_delete(struct rig *rig);

/* Has accesses of the NIC to memory that is not there fail, as the shim does. rig_new and
 * rig_unmap do so too. */
void rig_catch_faults(void);

/* Destroys all queues, and frees what was allocated after the first `blocks` blocks. */
void rig_clear(struct rig *rig, uint32_t blocks);

/* Zeroed memory that rig_delete frees; `page`-aligned memory from mmap can be taken away. */
void *rig_allocate(struct rig *rig, size_t bytes);
struct rig_memory rig_memory(struct rig *rig, uint64_t bytes);
struct rig_memory rig_memory_with(struct rig *rig, uint64_t bytes, uint32_t access,
                                  uint32_t domain);
/* Memory of its own mapping, for rig_unmap. Its key stays as if nothing had happened. */
struct rig_memory rig_mapped(struct rig *rig, uint64_t bytes);
void rig_unmap(const struct rig_memory *memory);

struct rig_cq *rig_cq_new(struct rig *rig, uint32_t entries, uint32_t entry_bytes);
struct rig_srq *rig_srq_new(struct rig *rig, uint32_t entries);
/* In state INIT, with attributes that a test may change before it connects. */
struct rig_qp *rig_qp_new(struct rig *rig, struct rig_cq *cq, const struct rig_qp_options *options);
/* Has its packets go to a rail, or wherever an address vector leads. */
void rig_qp_way(struct rig_qp *qp, int rail);
void rig_qp_follow(struct rig_qp *qp, const struct rail_way *way);
void rig_qp_point(struct rig_qp *from, const struct rig_qp *to); /* and to RTS */
void rig_connect(struct rig_qp *a, struct rig_qp *b);

/* Runs the NIC until it has nothing to do at this time; rig_pass lets time go by, with all that
 * happens in it. */
void rig_run(struct rig *rig);
void rig_pass(struct rig *rig, uint64_t ns);
void rig_fault(struct rig *rig, const char *spec);
/* Counts the events of a kind (and takes them off). */
uint32_t rig_events(struct rig *rig, int event);

/* ---- send WQEs ---- */
struct rig_wqe {
    uint8_t bytes[NIC_WQE_MAX_BYTES];
    uint32_t size; /* bytes */
    uint8_t opcode;
    uint8_t flags;   /* fm_ce_se: MLX5_WQE_CTRL_ */
    uint16_t stream; /* of a DCI */
    uint32_t immediate;
};
#define RIG_FENCE (4u << 5)

void rig_wqe_start(struct rig_wqe *wqe, uint8_t opcode, uint8_t flags);
void rig_wqe_remote(struct rig_wqe *wqe, uint64_t address, uint32_t key);
void rig_wqe_atomic(struct rig_wqe *wqe, uint64_t swap_or_add, uint64_t compare);
void rig_wqe_data(struct rig_wqe *wqe, uint64_t address, uint32_t bytes, uint32_t key);
void rig_wqe_inline(struct rig_wqe *wqe, const void *data, uint32_t bytes);
void rig_wqe_address(struct rig_wqe *wqe, uint32_t qpn, uint32_t queue_key, const uint8_t gid[16],
                     uint32_t gid_index);
void rig_wqe_way(struct rig_wqe *wqe, uint32_t qpn, uint32_t queue_key, const struct rail_way *way);
/* Completes the control segment for the QP's next place; rig_post does so too. */
void rig_wqe_finish(struct rig_wqe *wqe, const struct rig_qp *qp);
/* Puts it into the send queue and moves the doorbell record; rig_put does not finish it first, for
 * WQEs that are wrong. Returns the index. Neither rings. */
uint16_t rig_post(struct rig_qp *qp, struct rig_wqe *wqe);
uint16_t rig_put(struct rig_qp *qp, const struct rig_wqe *wqe);
void rig_ring(struct rig_qp *qp, const struct rig_wqe *wqe); /* a plain doorbell */
/* A BlueFlame push of the first `bytes` bytes to register `which`. */
void rig_push(struct rig_qp *qp, const struct rig_wqe *wqe, uint32_t which, uint32_t bytes);
/* Posts and rings. */
uint16_t rig_send(struct rig_qp *qp, struct rig_wqe *wqe);

/* The usual requests, posted and rung. flags: MLX5_WQE_CTRL_. */
uint16_t rig_send_message(struct rig_qp *qp, uint8_t flags, const struct rig_memory *from,
                          uint64_t offset, uint32_t bytes);
uint16_t rig_rdma(struct rig_qp *qp, uint8_t opcode, uint8_t flags, const struct rig_memory *local,
                  uint32_t bytes, const struct rig_memory *remote);

/* ---- receive WQEs ---- */
uint16_t rig_receive(struct rig_qp *qp, const struct rig_memory *to, uint64_t offset,
                     uint32_t bytes);
uint16_t rig_receive_list(struct rig_qp *qp, const struct mlx5_wqe_data_seg *list, uint32_t count);
struct mlx5_wqe_data_seg rig_segment(const struct rig_memory *memory, uint64_t offset,
                                     uint32_t bytes);
/* Returns the index of the WQE, or UINT16_MAX if the queue has no more room. */
uint16_t rig_srq_receive(struct rig_srq *srq, const struct rig_memory *to, uint64_t offset,
                         uint32_t bytes);
void rig_srq_give_back(struct rig_srq *srq, uint16_t index);

/* ---- completions ---- */
/* The CQE that a driver would see next; false if it belongs to the NIC. */
bool rig_peek(const struct rig_cq *cq, struct mlx5_cqe64 *cqe);
bool rig_poll(struct rig_cq *cq, struct mlx5_cqe64 *cqe);          /* and gives its place back */
const uint8_t *rig_entry(const struct rig_cq *cq, uint32_t index); /* the whole of it */
void rig_arm(struct rig_cq *cq, bool solicited); /* writes the record and rings the page */

/* A fixed pattern, so that misplaced bytes are seen. */
void rig_fill(uint8_t *bytes, uint64_t count, uint32_t seed);

#endif

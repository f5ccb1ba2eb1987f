/* verbs.h: what the files of the portable driver share.
 *
 * The driver speaks ibv_post_send and ibv_poll_cq and nothing vendor-specific, so it runs on every
 * RoCE and InfiniBand device and on Soft-RoCE. It may assume what nic.h promises: one thread at a
 * time, room checked before a post, arguments already validated.
 */
#ifndef CORE_NIC_VERBS_VERBS_H
#define CORE_NIC_VERBS_VERBS_H

#include <infiniband/verbs.h>

#include "compiler.h"
#include "driver.h"
#include "nic.h"
#include "table.h"

#define VERBS_CHAIN 4          /* send WQEs that one doorbell carries */
#define VERBS_REFILL_CHUNK 256 /* receives that one ibv_post_srq_recv carries */
#define VERBS_POLL_CHUNK 32    /* entries that one ibv_poll_cq is asked for */

/* Where completions come from: what was stashed first, then the CQ.
 *
 * Destroying a queue pair means looking through the whole CQ for its entries, and a CQ can only be
 * looked through by taking everything out. What belongs to others waits here. */
struct verbs_source {
    struct ibv_cq *cq;
    uint32_t depth;
    struct ibv_wc *stash; /* of `depth` entries */
    uint32_t stash_first;
    uint32_t stash_count;
    uint32_t events_unacked;
};

struct verbs_nic {
    struct nic base;
    struct verbs_source receive;
    struct verbs_source send;
    struct ibv_srq *srq;
    uint32_t send_outstanding; /* WQEs not known to be complete, of all queue pairs */
    uint32_t queue_pairs;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    uint16_t lid;
    uint8_t mtu_code;
    uint8_t read_depth_out; /* READs that one queue pair may have under way */
    uint8_t read_depth_in;  /* READs that it may be asked for at once */
    uint32_t inline_bytes_wanted;
    struct ibv_recv_wr receives[VERBS_REFILL_CHUNK]; /* linked, all alike */
    struct table by_number;
};

struct verbs_queue_pair {
    struct nic_queue_pair base;
    uint32_t chained; /* WQEs posted since the last ring */
    uint32_t packet_sequence_number;
    struct ibv_send_wr chain[VERBS_CHAIN]; /* linked; each with its own of `pieces` */
    struct ibv_sge pieces[VERBS_CHAIN];
};

static inline struct verbs_nic *to_verbs_nic(struct nic *nic)
{
    return container_of(nic, struct verbs_nic, base);
}

static inline struct verbs_queue_pair *to_verbs_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct verbs_queue_pair, base);
}

/* device.c: a port of a device, opened. */
struct verbs_port {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attributes;
    uint32_t number;
    uint32_t gid_index;
    union ibv_gid gid;
};

int32_t verbs_query(uint32_t index, crpc_device_info *info, crpc_error *error);
/* The caller closes port->context. */
int32_t verbs_port_open(const struct nic_options *options, struct verbs_port *port,
                        crpc_error *error);
uint32_t verbs_receive_depth_max(const struct ibv_device_attr *device);

/* gid.c */
struct verbs_gid {
    union ibv_gid value;
    uint32_t index;
};

/* The GID a context takes by default; false if the port has none at all. */
bool verbs_gid_choose(struct ibv_context *context, uint32_t port,
                      const struct ibv_port_attr *attributes, struct verbs_gid *gid);
int32_t verbs_gid_take(struct ibv_context *context, uint32_t port, uint32_t index,
                       struct verbs_gid *gid, crpc_error *error);

/* open.c */
int32_t verbs_open(const struct nic_options *options, struct nic **result, crpc_error *error);
void verbs_close(struct nic *base);

/* memory.c */
int32_t verbs_memory_register(struct nic *base, void *address, size_t bytes, uint32_t access,
                              struct nic_memory *memory, crpc_error *error);
void verbs_memory_deregister(struct nic *nic, struct nic_memory *memory);

/* queue_pair.c */
struct ibv_qp *verbs_qp_create(struct verbs_nic *nic, uint32_t inline_bytes,
                               struct ibv_qp_init_attr *granted);
int32_t verbs_queue_pair_create(struct nic *base, void *owner, struct nic_queue_pair **result,
                                crpc_error *error);
void verbs_queue_pair_destroy(struct nic_queue_pair *base);
void verbs_queue_pair_fail(struct nic_queue_pair *base);

/* connect.c */
void verbs_queue_pair_address(const struct nic_queue_pair *base, struct nic_address *address);
int32_t verbs_queue_pair_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                                 const struct nic_transport *transport, crpc_error *error);

/* post.c */
void verbs_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                uint32_t flags);
void verbs_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags);
void verbs_ring(struct nic_queue_pair *base);
void verbs_refill(struct nic *base);

/* poll.c */
uint32_t verbs_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity);

/* source.c: cold path of completion sources. */
bool verbs_source_open(struct verbs_source *source, struct verbs_nic *nic, uint32_t depth);
void verbs_source_close(struct verbs_source *source);
/* Takes at most `capacity` of what is stashed, the oldest first. */
uint32_t verbs_source_unstash(struct verbs_source *source, struct ibv_wc *entries,
                              uint32_t capacity);
/* Appends one entry as if the device had made it; false if there is no room. */
bool verbs_source_stash(struct verbs_source *source, const struct ibv_wc *entry);
/* Drops every entry of a queue pair that is there now; returns how many. */
uint32_t verbs_source_drop(struct verbs_source *source, uint32_t queue_pair_number);

/* arm.c */
int verbs_arm(struct nic *base);
void verbs_disarm(struct nic *base);

/* blame.c: from an errno to what a person can do. `what` is e.g. "register 4096 KiB of memory". */
int32_t verbs_blame(crpc_error *error, int os_error, size_t pinned_bytes, const char *device,
                    const char *what);

#endif

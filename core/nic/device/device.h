/* device.h: what the drivers of real devices share: everything about a device, a port, memory and
 * a connection that is not the data path. It speaks libibverbs; a driver adds queues.
 *
 * A driver's struct of a nic begins with struct device_nic, and that of a queue pair with struct
 * device_queue_pair.
 */
#ifndef CORE_NIC_DEVICE_DEVICE_H
#define CORE_NIC_DEVICE_DEVICE_H

#include <infiniband/verbs.h>

#include "base/compiler.h"
#include "base/table.h"
#include "nic/nic.h"

struct device_nic {
    struct nic base;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    uint16_t lid;
    uint8_t mtu_code;
    uint8_t read_depth_out;    /* READs that one queue pair may have under way */
    uint8_t read_depth_in;     /* READs that it may be asked for at once */
    uint32_t send_outstanding; /* WQEs not known to be complete, of all queue pairs */
    uint32_t queue_pairs;
    struct table by_number; /* struct nic_queue_pair */
};

struct device_queue_pair {
    struct nic_queue_pair base;
    struct ibv_qp *qp;
    uint32_t packet_sequence_number;
};

static inline struct device_nic *to_device_nic(struct nic *nic)
{
    return container_of(nic, struct device_nic, base);
}

static inline struct device_queue_pair *to_device_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct device_queue_pair, base);
}

/* For core/cm, which connects queue pairs of such devices by rdma_cm (nic->rdma_cm). */
static inline struct ibv_context *device_context(const struct nic *nic)
{
    return container_of(nic, const struct device_nic, base)->context;
}

static inline struct ibv_qp *device_qp(const struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, const struct device_queue_pair, base)->qp;
}

/* port.c: a port of a device, opened. */
struct device_port {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attributes;
    uint32_t number;
    uint32_t gid_index;
    union ibv_gid gid;
};

/* A driver's own condition on a device; NULL = any that speaks the InfiniBand transport. */
typedef bool device_usable(struct ibv_device *device);

uint32_t device_receive_depth_max(const struct ibv_device_attr *device);
/* Megabits a second; 0 = not known. */
uint32_t device_link_mbps(const struct ibv_port_attr *attributes);
/* info->drivers gets the bit of `driver` if the device is usable for it. */
int32_t device_query(uint32_t index, uint32_t driver, device_usable *usable, crpc_device_info *info,
                     crpc_error *error);
/* Opens the device and port asked for, among those that are usable for the driver. The caller
 * closes port->context. CRPC_E_UNSUPPORTED if there is such a device, but it is not usable. */
int32_t device_port_open(const struct nic_options *options, device_usable *usable,
                         struct device_port *port, crpc_error *error);

/* gid.c */
struct device_gid {
    union ibv_gid value;
    uint32_t index;
};

/* The GID a context takes by default; false if the port has none at all. */
bool device_gid_choose(struct ibv_context *context, uint32_t port,
                       const struct ibv_port_attr *attributes, struct device_gid *gid);
int32_t device_gid_take(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct device_gid *gid, crpc_error *error);

/* open.c: fills in what `port` and `options` say, takes over port->context, and makes the
 * protection domain and the completion channel. What was made is in *nic also when it fails, for
 * device_close, which closes the context, too. */
int32_t device_open(struct device_nic *nic, const struct nic_operations *operations,
                    const struct nic_options *options, const struct device_port *port,
                    crpc_error *error);
/* After all queues are gone. */
void device_close(struct device_nic *nic);
/* Says that a queue of this depth could not be made; errno says why. */
int32_t device_queue_failed(const struct nic *nic, const char *kind, uint32_t depth,
                            crpc_error *error);
/* Enters a queue pair that was made into by_number, with all that drivers have in common. */
bool device_queue_pair_init(struct device_nic *nic, struct device_queue_pair *queue_pair,
                            void *owner, struct ibv_qp *qp);
/* Takes it out again, with what it has outstanding. */
void device_queue_pair_forget(struct device_nic *nic, const struct nic_queue_pair *queue_pair);

/* events.c: the next event of the channel; NULL if there is none. */
struct ibv_cq *device_next_event(struct device_nic *nic);
/* Counts an event of this queue, to be acknowledged with others. */
void device_count_event(struct ibv_cq *cq, uint32_t *unacked);
/* libibverbs waits for acknowledgements before it destroys a queue. */
void device_destroy_cq(struct ibv_cq *cq, uint32_t unacked);

/* memory.c */
int32_t device_memory_register(struct nic *base, void *address, size_t bytes, uint32_t access,
                               struct nic_keys *memory, crpc_error *error);
int32_t device_memory_register_dmabuf(struct nic *base, int fd, uint64_t offset, size_t bytes,
                                      uint64_t address, uint32_t access, struct nic_keys *memory,
                                      crpc_error *error);
void device_memory_deregister(struct nic *nic, struct nic_keys *memory);

/* connect.c */
void device_queue_pair_address(const struct nic_queue_pair *base, struct nic_address *address);
int32_t device_queue_pair_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);

/* blame.c: from an errno to what a person can do. `what` is e.g. "register 4096 KiB of memory". */
int32_t device_blame(crpc_error *error, int os_error, size_t pinned_bytes, const char *device,
                     const char *what);

#endif

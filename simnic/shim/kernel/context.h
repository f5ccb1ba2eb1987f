/* context.h: one open of /dev/infiniband/uverbsN: its objects by handle, as the kernel's ib_uverbs
 * keeps them. */
#ifndef SIMNIC_SHIM_KERNEL_CONTEXT_H
#define SIMNIC_SHIM_KERNEL_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "simnic/nic/nic.h"
#include "simnic/shim/kernel/events.h"

#define OBJECT_PARENTS 6

struct object {
    uint32_t handle;
    uint16_t type;       /* enum uverbs_default_objects, or one of the driver's */
    uint16_t thing_type; /* of `thing`: the same, but of a DevX object UVERBS_OBJECT_CQ or _QP */
    uint32_t uses;       /* children that keep it from being destroyed */
    bool
        fixed; /* a region that cannot be changed to other memory or access: dma-buf, device memory */
    struct context *context;
    void *thing; /* the NIC's object */
    uint64_t user_handle;
    union {
        struct {
            uint64_t file_device, file_inode; /* of an XRC domain that was opened through a file */
        };
        struct subscription *subscriptions; /* of a DevX object */
    };
    uint64_t number;                          /* of a PD, an address handle, a page */
    uint64_t bytes;                           /* of device memory */
    struct channel *completions;              /* of a CQ */
    uint32_t completion_events, async_events; /* that the program has read */
    void *mapping;                            /* of a region's dma-buf, */
    size_t mapping_bytes;                     /* unmapped with the region */
    void (*release)(
        const struct object *object); /* of a DevX object: destroys what it stands for */
    struct object *parents[OBJECT_PARENTS];
    /* What ibv_query_qp tells back. */
    uint32_t cap[5];
    uint32_t sig_all;
    uint8_t address[64]; /* struct ib_uverbs_qp_dest */
    uint8_t port, pkey_index;
    uint8_t counter_set; /* of a queue pair: which of the port's counters count what it does */
};

struct context {
    int rail;
    bool unplugged; /* of a device that is not there any more: its objects stand for nothing */
    struct object **objects;            /* by handle */
    uint32_t *free_handles;             /* that were given and came back */
    uint32_t object_count, object_room; /* handles ever given; places in both tables */
    uint32_t free_count;
    struct object *made; /* by the call under way, if any: it goes if the call fails */
    struct list async_channels, completion_channels, devx_channels;
    struct list all;
};

extern struct list contexts; /* with the process lock */

/* Opens a rail's device file. Returns a descriptor, or -1 with errno. */
int context_open(int rail, int flags);
void context_close(struct context *context);

/* The rail's device was unplugged, and every context of it is of no more use. Their programs can only destroy what they have made, and
 * close. With the process lock. */
void contexts_unplug(int rail);

/* In a forked child: the contexts have no objects any more. */
void contexts_inherit(void);

/* Both with the process lock. A new object's handle is never 0xffffffff. */
struct object *object_create(struct context *context, uint16_t type);
/* An object that stands for something of the NIC's, which may be NULL. Returns NULL if there is no
 * memory; the thing is destroyed then. */
struct object *object_create_for(struct context *context, uint16_t type, void *thing);
struct object *object_find(struct context *context, uint16_t type, uint64_t handle);
/* The object with this number; NULL if there is none. */
struct object *object_find_number(struct context *context, uint16_t type, uint64_t number);
/* An object of DevX that stands for a CQ or a queue pair, as object_create_for. */
struct object *object_create_devx(struct context *context, uint16_t thing_type, void *thing);
void object_use(struct object *object, struct object *parent);
/* Destroys it with what it stands for. Returns 0, or EBUSY if something uses it. */
int object_destroy(struct object *object);

/* ---- uverbs.c ---- */
/* Executes an RDMA_VERBS_IOCTL, whose header and attributes are at `argument`. Returns 0 or an
 * errno. */
int uverbs_ioctl(struct context *context, void *argument);
/* A write() to the device's file. Returns -errno. */
int uverbs_write(const void *command, size_t bytes);

#endif

/* attributes.h: the attributes of one RDMA_VERBS_IOCTL (rdma/rdma_user_ioctl_cmds.h). Small inputs
 * are in the attribute itself, larger ones behind its pointer. Every access to the program's memory
 * may fail, as the kernel's copy_from_user may. */
#ifndef SIMNIC_SHIM_KERNEL_ATTRIBUTES_H
#define SIMNIC_SHIM_KERNEL_ATTRIBUTES_H

#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct context;
struct object;

struct call {
    struct context *context;
    struct ib_uverbs_ioctl_hdr *header;
};

struct ib_uverbs_attr *attribute(const struct call *call, uint16_t id);

/* A number; `missing` if the attribute is not there. */
uint64_t attribute_number(const struct call *call, uint16_t id, uint64_t missing);

/* Copies an input. If the program gave less than `bytes`, the rest is zero. Returns 0, ENOENT if
 * the attribute is not there, EINVAL if the program gave less than `least`, or EFAULT. */
int attribute_in(const struct call *call, uint16_t id, void *to, size_t bytes, size_t least);

/* Copies an old command of the write() interface, all of it. */
int attribute_command(const struct call *call, void *request, size_t bytes);
/* The same for a command about an object, whose handle is in the request: EINVAL if there is none
 * of that type. */
int attribute_command_on(const struct call *call, void *request, size_t bytes, uint16_t type,
                         uint32_t *handle, struct object **object);

/* The object whose handle an attribute is; NULL if there is none. */
struct object *attribute_object(const struct call *call, uint16_t type, uint16_t id);

/* Copies an output, as much as there is room for. If the program did not ask for it, nothing
 * happens. Returns 0 or EFAULT. */
int attribute_out(const struct call *call, uint16_t id, const void *from, size_t bytes);
int attribute_out32(const struct call *call, uint16_t id, uint32_t value);
int attribute_out64(const struct call *call, uint16_t id, uint64_t value);
/* A handle or descriptor: in the attribute itself. */
void attribute_out_handle(const struct call *call, uint16_t id, uint64_t value);

#endif

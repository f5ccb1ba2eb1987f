/* attributes.c: reading and writing the attributes of an ioctl. */
#include "simnic/shim/kernel/attributes.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/kernel/context.h"

struct ib_uverbs_attr *attribute(const struct call *call, uint16_t id)
{
    for (uint16_t i = 0; i < call->header->num_attrs; i++) {
        if (call->header->attrs[i].attr_id == id) {
            return &call->header->attrs[i];
        }
    }
    return NULL;
}

uint64_t attribute_number(const struct call *call, uint16_t id, uint64_t missing)
{
    const struct ib_uverbs_attr *a = attribute(call, id);
    uint64_t value = 0;
    if (!a) {
        return missing;
    }
    if (a->len == 0) { /* a handle or a descriptor */
        return a->data;
    }
    if (a->len <= sizeof(value)) {
        memcpy(&value, &a->data, a->len);
    } else {
        return missing;
    }
    return value;
}

int attribute_in(const struct call *call, uint16_t id, void *to, size_t bytes, size_t least)
{
    const struct ib_uverbs_attr *a = attribute(call, id);
    memset(to, 0, bytes);
    if (!a) {
        return ENOENT;
    }
    if (a->len < least) {
        return EINVAL;
    }
    size_t count = a->len < bytes ? a->len : bytes;
    if (a->len <= sizeof(a->data)) {
        memcpy(to, &a->data, count);
        return 0;
    }
    return dma_copy(to, (const void *)(uintptr_t)a->data, count) ? 0 : EFAULT;
}

int attribute_command(const struct call *call, void *request, size_t bytes)
{
    return attribute_in(call, UVERBS_ATTR_CORE_IN, request, bytes, bytes);
}

int attribute_command_on(const struct call *call, void *request, size_t bytes, uint16_t type,
                         uint32_t *handle, struct object **object)
{
    int result = attribute_command(call, request, bytes);
    if (result) {
        return result;
    }
    *object = object_find(call->context, type, *handle);
    return *object ? 0 : EINVAL;
}

struct object *attribute_object(const struct call *call, uint16_t type, uint16_t id)
{
    return object_find(call->context, type, attribute_number(call, id, UINT64_MAX));
}

int attribute_out(const struct call *call, uint16_t id, const void *from, size_t bytes)
{
    static const uint8_t zeros[64];
    struct ib_uverbs_attr *a = attribute(call, id);
    if (!a) {
        return 0;
    }
    uint8_t *to = (uint8_t *)(uintptr_t)a->data;
    size_t count = a->len < bytes ? a->len : bytes;
    if (!dma_copy(to, from, count)) {
        return EFAULT;
    }
    for (size_t at = count; at < a->len; at += sizeof(zeros)) {
        size_t part = a->len - at < sizeof(zeros) ? a->len - at : sizeof(zeros);
        if (!dma_copy(to + at, zeros, part)) {
            return EFAULT;
        }
    }
    a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return 0;
}

int attribute_out32(const struct call *call, uint16_t id, uint32_t value)
{
    return attribute_out(call, id, &value, sizeof(value));
}

int attribute_out64(const struct call *call, uint16_t id, uint64_t value)
{
    return attribute_out(call, id, &value, sizeof(value));
}

void attribute_out_handle(const struct call *call, uint16_t id, uint64_t value)
{
    struct ib_uverbs_attr *a = attribute(call, id);
    if (a) {
        a->data = value;
    }
}

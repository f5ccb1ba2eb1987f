/* uverbs.c: which command of ib_uverbs, or which of mlx5_ib, an ioctl is
 * (rdma/ib_user_ioctl_cmds.h, mlx5_user_ioctl_cmds.h), and which function answers it. */
#include "simnic/shim/kernel/context.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stddef.h>
#include <string.h>

#include "simnic/shim/kernel/answers.h"
#include "simnic/shim/kernel/attach.h"
#include "simnic/shim/kernel/program_memory.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/mmio/service.h"
#include "simnic/shim/process/process.h"

#define EXTENDED(command) ((command) | IB_USER_VERBS_CMD_FLAG_EXTENDED)

struct command {
    uint32_t number;
    const char *name;
    int (*run)(const struct call *call);
    bool destroys; /* then also what a device has made that is unplugged */
};

/* The commands of the old write() interface, which libibverbs sends through an ioctl. */
static const struct command write_commands[] = {
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "QUERY_DEVICE", answer_query_device},
    {EXTENDED(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), "EX_QUERY_DEVICE", answer_query_device_ex},
    {IB_USER_VERBS_CMD_ALLOC_PD, "ALLOC_PD", verb_alloc_pd},
    {IB_USER_VERBS_CMD_REG_MR, "REG_MR", verb_reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, "REREG_MR", verb_rereg_mr},
    {IB_USER_VERBS_CMD_ALLOC_MW, "ALLOC_MW", verb_alloc_mw},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "CREATE_COMP_CHANNEL", verb_create_channel},
    {IB_USER_VERBS_CMD_RESIZE_CQ, "RESIZE_CQ", verb_resize_cq},
    {IB_USER_VERBS_CMD_OPEN_XRCD, "OPEN_XRCD", verb_open_xrcd},
    {IB_USER_VERBS_CMD_MODIFY_QP, "MODIFY_QP", verb_modify_qp},
    {EXTENDED(IB_USER_VERBS_EX_CMD_MODIFY_QP), "EX_MODIFY_QP", verb_modify_qp_ex},
    {IB_USER_VERBS_CMD_QUERY_QP, "QUERY_QP", verb_query_qp},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, "MODIFY_SRQ", verb_modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, "QUERY_SRQ", verb_query_srq},
    {IB_USER_VERBS_CMD_CREATE_AH, "CREATE_AH", verb_create_ah},
    {IB_USER_VERBS_CMD_ATTACH_MCAST, "ATTACH_MCAST", verb_attach_multicast},
    {IB_USER_VERBS_CMD_DETACH_MCAST, "DETACH_MCAST", verb_detach_multicast},
};

static int run_write_command(const struct call *call)
{
    uint32_t number = (uint32_t)attribute_number(call, UVERBS_ATTR_WRITE_CMD, UINT32_MAX);
    for (size_t i = 0; i < sizeof(write_commands) / sizeof(write_commands[0]); i++) {
        if (write_commands[i].number != number) {
            continue;
        }
        int result = write_commands[i].run(call);
        if (result && number != IB_USER_VERBS_CMD_QUERY_DEVICE) {
            process_log("uverbs command %s failed with errno %d", write_commands[i].name, result);
        }
        return result;
    }
    process_log("uverbs command 0x%x is not known", number);
    return EOPNOTSUPP;
}

/* Objects whose destruction has nothing to tell. */
static int destroy(const struct call *call, uint16_t type, uint16_t handle_id)
{
    struct object *object = attribute_object(call, type, handle_id);
    return object ? object_destroy(object) : ENOENT;
}

/* The others tell how many events of the object the program has read: completion events, for a CQ,
 * and asynchronous ones. libibverbs waits until the program has acknowledged as many. */
static int destroy_counted(const struct call *call, uint16_t type, uint16_t handle_id,
                           uint16_t response_id)
{
    struct object *object = attribute_object(call, type, handle_id);
    if (!object) {
        return ENOENT;
    }
    uint32_t counts[2] = {object->completion_events, object->async_events};
    int result = object_destroy(object);
    if (result) {
        return result;
    }
    return type == UVERBS_OBJECT_CQ ? attribute_out(call, response_id, counts, sizeof(counts))
                                    : attribute_out32(call, response_id, counts[1]);
}

static int destroy_cq(const struct call *call)
{
    return destroy_counted(call, UVERBS_OBJECT_CQ, UVERBS_ATTR_DESTROY_CQ_HANDLE,
                           UVERBS_ATTR_DESTROY_CQ_RESP);
}

static int destroy_srq(const struct call *call)
{
    return destroy_counted(call, UVERBS_OBJECT_SRQ, UVERBS_ATTR_DESTROY_SRQ_HANDLE,
                           UVERBS_ATTR_DESTROY_SRQ_RESP);
}

static int destroy_qp(const struct call *call)
{
    return destroy_counted(call, UVERBS_OBJECT_QP, UVERBS_ATTR_DESTROY_QP_HANDLE,
                           UVERBS_ATTR_DESTROY_QP_RESP);
}

static int destroy_pd(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_PD, UVERBS_ATTR_DESTROY_PD_HANDLE);
}

static int destroy_mr(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_MR, UVERBS_ATTR_DESTROY_MR_HANDLE);
}

static int destroy_mw(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_MW, UVERBS_ATTR_DESTROY_MW_HANDLE);
}

static int destroy_ah(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_AH, UVERBS_ATTR_DESTROY_AH_HANDLE);
}

static int destroy_xrcd(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_XRCD, UVERBS_ATTR_DESTROY_XRCD_HANDLE);
}

static int destroy_devx_object(const struct call *call)
{
    return destroy(call, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
}

static int deregister_devx_memory(const struct call *call)
{
    return destroy(call, MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
}

static int destroy_page(const struct call *call)
{
    return destroy(call, MLX5_IB_OBJECT_UAR, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
}

static int free_device_memory(const struct call *call)
{
    return destroy(call, UVERBS_OBJECT_DM, UVERBS_ATTR_FREE_DM_HANDLE);
}

#define METHOD(object, method) ((uint32_t)(object) << 16 | (method))

static const struct command methods[] = {
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE), "INVOKE_WRITE", run_write_command},
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT), "GET_CONTEXT", answer_get_context},
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT), "QUERY_CONTEXT",
     answer_query_context},
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT), "QUERY_PORT", answer_query_port},
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE), "QUERY_GID_TABLE",
     answer_gid_table},
    {METHOD(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY), "QUERY_GID_ENTRY",
     answer_gid_entry},
    {METHOD(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC), "ASYNC_EVENT_ALLOC",
     verb_alloc_async},
    {METHOD(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT), "QUERY_PORT of mlx5",
     mlx5_query_port},
    {METHOD(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY), "PD_DESTROY", destroy_pd, true},
    {METHOD(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY), "PD_QUERY", mlx5_query_pd},
    {METHOD(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY), "MR_DESTROY", destroy_mr, true},
    {METHOD(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR), "QUERY_MR", verb_query_mr},
    {METHOD(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR), "ADVISE_MR", verb_advise_mr},
    {METHOD(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG), "DM_MR_REG", verb_reg_device_memory_mr},
    {METHOD(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC), "DM_ALLOC", verb_alloc_device_memory},
    {METHOD(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE), "DM_FREE", free_device_memory, true},
    {METHOD(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY), "DM_QUERY", mlx5_query_device_memory},
    {METHOD(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR), "DM_MAP_OP_ADDR",
     mlx5_map_device_memory_operation},
    {METHOD(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR), "REG_DMABUF_MR", verb_reg_dmabuf_mr},
    {METHOD(UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY), "MW_DESTROY", destroy_mw, true},
    {METHOD(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY), "AH_DESTROY", destroy_ah, true},
    {METHOD(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY), "XRCD_DESTROY", destroy_xrcd, true},
    {METHOD(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE), "CQ_CREATE", verb_create_cq},
    {METHOD(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY), "CQ_DESTROY", destroy_cq, true},
    {METHOD(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE), "SRQ_CREATE", verb_create_srq},
    {METHOD(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY), "SRQ_DESTROY", destroy_srq, true},
    {METHOD(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE), "QP_CREATE", verb_create_qp},
    {METHOD(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY), "QP_DESTROY", destroy_qp, true},
    {METHOD(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER), "DEVX_OTHER", mlx5_devx_command},
    {METHOD(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE), "DEVX_OBJ_CREATE",
     mlx5_devx_create},
    {METHOD(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY), "DEVX_OBJ_DESTROY",
     destroy_devx_object, true},
    {METHOD(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY), "DEVX_OBJ_MODIFY",
     mlx5_devx_modify},
    {METHOD(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY), "DEVX_OBJ_QUERY",
     mlx5_devx_query},
    {METHOD(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN), "DEVX_QUERY_EQN",
     mlx5_devx_query_event_queue},
    {METHOD(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT), "DEVX_SUBSCRIBE_EVENT",
     mlx5_devx_subscribe},
    {METHOD(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC),
     "DEVX_ASYNC_EVENT_FD_ALLOC", mlx5_devx_create_channel},
    {METHOD(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG), "DEVX_UMEM_REG",
     mlx5_devx_register_memory},
    {METHOD(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG), "DEVX_UMEM_DEREG",
     deregister_devx_memory, true},
    {METHOD(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC), "UAR_OBJ_ALLOC", mlx5_alloc_page},
    {METHOD(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY), "UAR_OBJ_DESTROY", destroy_page,
     true},
};

#define MOST_BYTES 4096 /* of a header and its attributes, as in the kernel */

/* A call's header and attributes, copied from the program. */
struct copied_call {
    _Alignas(struct ib_uverbs_attr) uint8_t bytes[MOST_BYTES];
};

static int copy_in(struct copied_call *copy, const void *argument)
{
    struct ib_uverbs_ioctl_hdr header;
    if (!program_read(&header, argument, sizeof(header))) {
        return EFAULT;
    }
    if (header.length > MOST_BYTES ||
        header.length != sizeof(header) + header.num_attrs * sizeof(header.attrs[0]) ||
        header.reserved1 || header.reserved2) {
        return EINVAL;
    }
    if (!program_read(copy->bytes, argument, header.length)) {
        return EFAULT;
    }
    memcpy(copy->bytes, &header, sizeof(header)); /* as it was checked */
    return 0;
}

/* Gives the attributes back that the answer changed: handles, and which outputs are valid. */
static int copy_out(const struct copied_call *copy, const struct copied_call *before,
                    void *argument)
{
    struct ib_uverbs_ioctl_hdr header;
    memcpy(&header, copy->bytes, sizeof(header));
    for (size_t at = sizeof(header); at < header.length; at += sizeof(struct ib_uverbs_attr)) {
        if (memcmp(copy->bytes + at, before->bytes + at, sizeof(struct ib_uverbs_attr)) != 0 &&
            !program_write((uint8_t *)argument + at, copy->bytes + at,
                           sizeof(struct ib_uverbs_attr))) {
            return EFAULT;
        }
    }
    return 0;
}

static int run_method(struct context *context, const struct command *method, void *argument,
                      struct copied_call *copy)
{
    struct copied_call before;
    struct ib_uverbs_ioctl_hdr *header = (void *)copy->bytes;
    struct call call = {context, header};
    memcpy(before.bytes, copy->bytes, header->length);
    process_lock();
    context->made = NULL;
    int result = context->unplugged && !method->destroys ? EIO : method->run(&call);
    if (!result) {
        result = copy_out(copy, &before, argument);
    }
    /* The program does not know of the object that it made. */
    if (result && context->made) {
        object_destroy(context->made);
    }
    service_unlock();
    if (result && method->run != run_write_command) {
        process_log("uverbs method %s failed with errno %d", method->name, result);
    }
    process_kick();
    return result;
}

/* libibverbs does not use the old write() interface: it sends those commands through an ioctl,
 * too. */
int uverbs_write(const void *command, size_t bytes)
{
    struct ib_uverbs_cmd_hdr header;
    bool bad = bytes >= sizeof(header) && !program_read(&header, command, sizeof(header));
    return bad ? -EFAULT : -EINVAL;
}

int uverbs_ioctl(struct context *context, void *argument)
{
    int attached = process_attach(); /* a forked child has not yet */
    if (attached) {
        return attached;
    }
    struct copied_call copy;
    int result = copy_in(&copy, argument);
    if (result) {
        return result;
    }
    const struct ib_uverbs_ioctl_hdr *header = (const void *)copy.bytes;
    uint32_t number = METHOD(header->object_id, header->method_id);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (methods[i].number == number) {
            return run_method(context, &methods[i], argument, &copy);
        }
    }
    process_log("uverbs object 0x%x method 0x%x is not known", header->object_id,
                header->method_id);
    return EPROTONOSUPPORT;
}

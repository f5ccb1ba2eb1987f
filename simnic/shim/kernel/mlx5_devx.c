/* mlx5_devx.c: which device command an ioctl brings, and which function answers it. See mlx5_devx.h. */
#include "simnic/shim/kernel/mlx5_devx.h"

#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <string.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/verbs.h"

#define QUERY_HCA_CAP 0x100u
#define CREATE_MKEY 0x200u
#define CREATE_CQ 0x400u
#define CREATE_QP 0x500u
#define RTS2RTS_QP 0x505u
#define QUERY_QP 0x50bu
#define CREATE_GENERAL_OBJECT 0xa00u

struct rule {
    uint16_t opcode;
    uint16_t object; /* type of what it is about, as in uverbs_default_objects; 0: nothing */
    int (*run)(const struct devx_command *command);
};

/* DEVX_OTHER: about nothing. The kernel lets no others through (devx_is_general_cmd). */
static const struct rule general[] = {
    {QUERY_HCA_CAP, 0, devx_query_capabilities},
};

/* DEVX_OBJ_CREATE: each makes an object, whose handle the program gets. */
static const struct rule creating[] = {
    {CREATE_MKEY, 0, devx_create_key},
    {CREATE_CQ, 0, devx_create_completion_queue},
    {CREATE_QP, 0, devx_create_queue_pair},
    {CREATE_GENERAL_OBJECT, 0, devx_create_general_object},
};

/* DEVX_OBJ_MODIFY and DEVX_OBJ_QUERY: about an object that there is. */
static const struct rule modifying[] = {
    {RTS2RTS_QP, UVERBS_OBJECT_QP, devx_modify_queue_pair},
    {DEVX_RST2INIT_QP, UVERBS_OBJECT_QP, devx_move_queue_pair},
    {DEVX_INIT2RTR_QP, UVERBS_OBJECT_QP, devx_move_queue_pair},
    {DEVX_RTR2RTS_QP, UVERBS_OBJECT_QP, devx_move_queue_pair},
    {DEVX_2ERR_QP, UVERBS_OBJECT_QP, devx_move_queue_pair},
    {DEVX_2RST_QP, UVERBS_OBJECT_QP, devx_move_queue_pair},
};
static const struct rule querying[] = {
    {QUERY_QP, UVERBS_OBJECT_QP, devx_query_queue_pair},
};

struct header {
    uint16_t opcode, uid, reserved, modifier;
};

int devx_read(const struct devx_command *command, void *to, size_t bytes, size_t least)
{
    int result = attribute_in(command->call, command->in, to, bytes, least);
    return result == EINVAL ? devx_refuse(command, DEVX_BAD_INPUT_LENGTH) : result;
}

int devx_answer(const struct devx_command *command, const void *answer, size_t bytes)
{
    return attribute_out(command->call, command->out, answer, bytes);
}

int devx_refuse(const struct devx_command *command, uint32_t status)
{
    uint32_t answer[4] = {htobe32(status << 24)};
    int result = devx_answer(command, answer, sizeof(answer));
    return result ? result : EREMOTEIO;
}

struct object *devx_create_object(const struct devx_command *command)
{
    struct object *object = object_create(command->call->context, MLX5_IB_OBJECT_DEVX_OBJ);
    if (object) {
        attribute_out_handle(command->call, command->handle, object->handle);
    }
    return object;
}

uint32_t devx_field(const uint32_t *words, uint32_t at, uint32_t bits)
{
    uint32_t value = be32toh(words[at / 32]) >> (32 - at % 32 - bits);
    return bits == 32 ? value : value & ((1u << bits) - 1);
}

void devx_set_field(uint32_t *words, uint32_t at, uint32_t bits, uint32_t value)
{
    uint32_t shift = 32 - at % 32 - bits, mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
    uint32_t word = be32toh(words[at / 32]);
    words[at / 32] = htobe32((word & ~(mask << shift)) | (value & mask) << shift);
}

/* What a command is about: an object of the verbs, or one of DevX that stands for the same. */
static struct object *object_of(const struct devx_command *command, uint16_t type)
{
    struct object *object = attribute_object(command->call, type, command->handle);
    if (!object) {
        object = attribute_object(command->call, MLX5_IB_OBJECT_DEVX_OBJ, command->handle);
    }
    return object && object->thing_type == type && object->thing ? object : NULL;
}

/* Finds the command's function and runs it. What no table has, the kernel does not let through. */
static int run(struct devx_command *command, const struct rule *rules, size_t count)
{
    struct header header;
    int result = attribute_in(command->call, command->in, &header, sizeof(header), sizeof(header));
    if (result) {
        return result;
    }
    command->opcode = be16toh(header.opcode);
    command->modifier = be16toh(header.modifier);
    for (size_t i = 0; i < count; i++) {
        if (rules[i].opcode != command->opcode) {
            continue;
        }
        if (rules[i].object) {
            command->object = object_of(command, rules[i].object);
            if (!command->object) {
                return EINVAL;
            }
        }
        return rules[i].run(command);
    }
    return EINVAL;
}

#define COUNT(rules) (sizeof(rules) / sizeof((rules)[0]))

int mlx5_devx_command(const struct call *call)
{
    struct devx_command command = {
        .call = call, .in = MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, .out = MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT};
    return run(&command, general, COUNT(general));
}

int mlx5_devx_create(const struct call *call)
{
    struct devx_command command = {.call = call,
                                   .in = MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                   .out = MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
                                   .handle = MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE};
    return run(&command, creating, COUNT(creating));
}

int mlx5_devx_modify(const struct call *call)
{
    struct devx_command command = {.call = call,
                                   .in = MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                                   .out = MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
                                   .handle = MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE};
    return run(&command, modifying, COUNT(modifying));
}

int mlx5_devx_query(const struct call *call)
{
    struct devx_command command = {.call = call,
                                   .in = MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                                   .out = MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT,
                                   .handle = MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE};
    return run(&command, querying, COUNT(querying));
}

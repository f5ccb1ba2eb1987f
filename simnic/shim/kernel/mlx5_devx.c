/* mlx5_devx.c: the two device commands that libmlx5 itself sends, since there are no verbs for
 * them. One asks for the general capabilities when a device is opened. The other tells a DCI that
 * one of its streams may send again. The PRM has their layout: big-endian, by bits. All other
 * commands of DevX are refused. */
#include "simnic/shim/kernel/verbs.h"

#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <string.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_dc.h"

#define OPCODE_QUERY_HCA_CAP 0x100u
#define OPCODE_RTS2RTS_QP 0x505u
#define GENERAL_NOW 1u /* op_mod: the general capabilities, as they are set */
#define STATUS_BAD_STATE 0x10u

struct command_header {
    uint16_t opcode, uid, reserved, op_mod;
};

struct capability_answer {
    uint32_t status, syndrome, reserved[2];
    uint32_t capability[1024];
};
#define QPC_EXTENSION_WORD 9 /* bit 0x122 of the capabilities */
#define QPC_EXTENSION (1u << 29)

struct stream_command {
    struct command_header header;
    uint32_t extended_qpn; /* bit 31: qpc_ext */
    uint32_t reserved;
    uint32_t optional;
    uint32_t reserved2;
    uint32_t context[58]; /* the QP's */
    uint32_t reserved3[2];
    uint64_t optional_more; /* opt_param_mask_95_32 */
    uint32_t stream;        /* of the QP context's extension: bits 0-15 */
    uint32_t extension[47];
};
#define OPTIONAL_STREAM 1u

int mlx5_devx_command(const struct call *call)
{
    struct command_header header;
    int result =
        attribute_in(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, &header, sizeof(header), sizeof(header));
    if (result) {
        return result;
    }
    if (be16toh(header.opcode) != OPCODE_QUERY_HCA_CAP || be16toh(header.op_mod) != GENERAL_NOW) {
        return EOPNOTSUPP;
    }
    struct capability_answer answer = {0};
    answer.capability[QPC_EXTENSION_WORD] = htobe32(QPC_EXTENSION);
    return attribute_out(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer, sizeof(answer));
}

int mlx5_devx_modify(const struct call *call)
{
    struct stream_command c;
    const struct object *object =
        attribute_object(call, UVERBS_OBJECT_QP, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
    int result = attribute_in(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, &c, sizeof(c),
                              offsetof(struct stream_command, extension));
    if (result) {
        return result;
    }
    if (!object) {
        return EINVAL;
    }
    struct queue_pair *qp = object->thing;
    uint32_t qpn = be32toh(c.extended_qpn);
    if (be16toh(c.header.opcode) != OPCODE_RTS2RTS_QP || qpn >> 31 == 0 || c.optional ||
        be64toh(c.optional_more) != OPTIONAL_STREAM) {
        return EOPNOTSUPP;
    }
    if ((qpn & 0xffffff) != qp->number || qp->type != TYPE_DCI) {
        return EINVAL;
    }
    uint32_t answer[4] = {0};
    if (qp->state != STATE_RTS) { /* a DCI that has just failed: the program may not know yet */
        answer[0] = htobe32(STATUS_BAD_STATE << 24);
    } else {
        streams_reset(qp, (uint16_t)be32toh(c.stream));
    }
    result = attribute_out(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, answer, sizeof(answer));
    /* As the kernel's: the errno says that the adapter refused the command, and the answer says
     * why. */
    return result ? result : answer[0] ? EREMOTEIO : 0;
}

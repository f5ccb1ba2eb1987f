/* mlx5_queue_pair_commands.c: device commands about queue pairs that the verbs made (PRM, "RTS2RTS_QP", "QUERY_QP"): resetting a stream
 * of a DCI, changing the UDP source port, and reading the queue pair's context. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <string.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/process/process.h"

#define CONTEXT_WORDS DEVX_CONTEXT_WORDS

/* Fields of the queue pair's context, by their first bit. */
#define CONTEXT_STATE 0x000u           /* 4 */
#define CONTEXT_SERVICE 0x008u         /* 8 */
#define CONTEXT_DOMAIN 0x028u          /* 24 */
#define CONTEXT_COUNTER_SET 0x060u     /* 8 */
#define CONTEXT_USER_INDEX 0x088u      /* 24 */
#define CONTEXT_REMOTE_QPN 0x0a8u      /* 24 */
#define CONTEXT_UDP_SOURCE_PORT 0x1d0u /* 16, of the primary address path */
#define CONTEXT_SEND_PSN 0x3c8u        /* 24 */
#define CONTEXT_RECEIVE_PSN 0x4a8u     /* 24 */
#define CONTEXT_MTU 0x040u             /* 3 */
#define CONTEXT_TIMEOUT 0x100u         /* 5, of the primary address path */
#define CONTEXT_LOG_READS 0x388u       /* 3: log_sra_max */
#define CONTEXT_RETRIES 0x38du         /* 3 */
#define CONTEXT_NOT_READY 0x390u       /* 3: rnr_retry */
#define CONTEXT_LOG_PEER_READS 0x488u  /* 3: log_rra_max */
#define CONTEXT_READ 0x490u            /* 1 each */
#define CONTEXT_WRITE 0x491u
#define CONTEXT_ATOMIC 0x492u
#define CONTEXT_TIMER 0x4a3u /* 5: min_rnr_nak */

struct modification {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t extended_qpn; /* bit 31: qpc_ext */
    uint32_t reserved2;
    uint32_t optional;
    uint32_t reserved3;
    uint32_t context[CONTEXT_WORDS];
    uint32_t reserved4[2];
    uint64_t optional_more; /* opt_param_mask_95_32 */
    uint32_t stream;        /* of the context's extension: bits 0-15 */
    uint32_t extension[47];
};
#define OPTIONAL_STREAM 1u
#define OPTIONAL_UDP_SOURCE_PORT 4u

/* RoCE v2 alone has UDP, and only connected queue pairs an address of their own. */
static bool has_udp(const struct context *context, const struct queue_pair *qp)
{
    const struct rail_gid gid =
        rail_gid(process.fabric.link, context->rail, qp->attributes.way.gid_index % RAIL_GID_COUNT);
    return (qp->type == TYPE_RC || qp->type == TYPE_UC) && gid.type == RAIL_GID_ROCE_V2;
}

int devx_modify_queue_pair(const struct devx_command *command)
{
    struct modification m;
    int result = devx_read(command, &m, sizeof(m), offsetof(struct modification, extension));
    if (result) {
        return result;
    }
    struct queue_pair *qp = command->object->thing;
    uint32_t qpn = be32toh(m.extended_qpn), answer[4] = {0};
    uint64_t optional = be64toh(m.optional_more);
    if ((qpn & 0xffffff) != qp->number) {
        return EINVAL; /* of the kernel: devx_is_valid_obj_id */
    }
    if (qp->state != STATE_RTS) { /* it may just have failed: the program need not know yet */
        return devx_refuse(command, DEVX_BAD_QUEUE_PAIR_STATE);
    }
    if (m.optional) {
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    if (optional == OPTIONAL_STREAM && qpn >> 31 && qp->type == TYPE_DCI) {
        if (!streams_reset(qp, (uint16_t)be32toh(m.stream))) {
            return devx_refuse(command, DEVX_BAD_RESOURCE_STATE);
        }
    } else if (optional == OPTIONAL_UDP_SOURCE_PORT && has_udp(command->call->context, qp)) {
        qp->attributes.udp_source_port =
            (uint16_t)devx_field(m.context, CONTEXT_UDP_SOURCE_PORT, 16);
    } else {
        return devx_refuse(command, DEVX_BAD_PARAMETER);
    }
    return devx_answer(command, answer, sizeof(answer));
}

struct query {
    uint16_t opcode, uid, reserved, modifier;
    uint32_t qpn;
    uint32_t reserved2;
};

struct query_answer {
    uint32_t status, syndrome, reserved[2];
    uint32_t optional;
    uint32_t reserved2;
    uint32_t context[CONTEXT_WORDS];
};

/* The PRM's numbers of states and transport services. */
static uint32_t state_of(const struct queue_pair *qp)
{
    static const uint8_t states[] = {
        [STATE_RESET] = 0, [STATE_INIT] = 1, [STATE_RTR] = 2, [STATE_RTS] = 3,
        [STATE_SQD] = 7,   [STATE_SQE] = 4,  [STATE_ERR] = 6};
    return qp->state == STATE_SQD && qp->drained ? 5 : states[qp->state];
}

static uint32_t service_of(const struct queue_pair *qp)
{
    switch (qp->type) {
    case TYPE_RC:
        return 0;
    case TYPE_UC:
        return 1;
    case TYPE_UD:
        return 2;
    case TYPE_DCI:
        return 5;
    default:
        return 3; /* XRC */
    }
}

static uint32_t log_of(uint8_t number)
{
    return number > 1 ? 31u - (uint32_t)__builtin_clz(number) : 0;
}

static void describe_transport(uint32_t *c, const struct queue_pair_attributes *a)
{
    devx_set_field(c, CONTEXT_MTU, 3, a->path_mtu);
    devx_set_field(c, CONTEXT_TIMEOUT, 5, a->timeout);
    devx_set_field(c, CONTEXT_LOG_READS, 3, log_of(a->max_reads));
    devx_set_field(c, CONTEXT_RETRIES, 3, a->retry_count);
    devx_set_field(c, CONTEXT_NOT_READY, 3, a->rnr_retry_count);
    devx_set_field(c, CONTEXT_LOG_PEER_READS, 3, log_of(a->max_peer_reads));
    devx_set_field(c, CONTEXT_READ, 1, (a->access & IBV_ACCESS_REMOTE_READ) != 0);
    devx_set_field(c, CONTEXT_WRITE, 1, (a->access & IBV_ACCESS_REMOTE_WRITE) != 0);
    devx_set_field(c, CONTEXT_ATOMIC, 1, (a->access & IBV_ACCESS_REMOTE_ATOMIC) != 0);
    devx_set_field(c, CONTEXT_TIMER, 5, a->min_rnr_timer);
}

int devx_query_queue_pair(const struct devx_command *command)
{
    struct query query;
    struct query_answer answer = {0};
    int result = devx_read(command, &query, sizeof(query), sizeof(query));
    if (result) {
        return result;
    }
    const struct queue_pair *qp = command->object->thing;
    if ((be32toh(query.qpn) & 0xffffff) != qp->number) {
        return EINVAL;
    }
    uint32_t *c = answer.context;
    devx_set_field(c, CONTEXT_STATE, 4, state_of(qp));
    devx_set_field(c, CONTEXT_SERVICE, 8, service_of(qp));
    devx_set_field(c, CONTEXT_DOMAIN, 24, qp->domain);
    devx_set_field(c, CONTEXT_COUNTER_SET, 8, command->object->counter_set);
    devx_set_field(c, CONTEXT_USER_INDEX, 24, qp->user_index);
    describe_transport(c, &qp->attributes);
    devx_set_field(c, CONTEXT_REMOTE_QPN, 24, qp->attributes.destination_qpn);
    devx_set_field(c, CONTEXT_UDP_SOURCE_PORT, 16, qp->attributes.udp_source_port);
    devx_set_field(c, CONTEXT_SEND_PSN, 24, qp->next_psn);
    devx_set_field(c, CONTEXT_RECEIVE_PSN, 24, qp->expected_psn);
    return devx_answer(command, &answer, sizeof(answer));
}

/* commands.c: which function executes which command, and the commands that make and destroy
 * identifiers. */
#include "simnic/cm/internal.h"

#include <errno.h>

static int queue_pair_type_of(const struct rdma_ucm_create_id *command)
{
    switch (command->ps) {
    case RDMA_PS_TCP:
        return QUEUE_PAIR_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
        return QUEUE_PAIR_UD;
    case RDMA_PS_IB:
        return command->qp_type;
    }
    return -EINVAL;
}

static int command_create_id(const struct cm_call *call)
{
    struct rdma_ucm_create_id command;
    struct rdma_ucm_create_id_resp response;
    if (call->out_bytes < sizeof(response)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    int type = queue_pair_type_of(&command);
    if (type < 0) {
        return type;
    }
    struct cm_id *id = id_new(call->file, command.ps, type);
    if (!id) {
        return -ENOMEM;
    }
    id->uid = command.uid;
    response.id = id->number;
    int error = call_copy_out(command.response, &response, sizeof(response));
    if (error) {
        id_destroy(id); /* the program does not know its number */
    }
    return error;
}

static int command_destroy_id(const struct cm_call *call)
{
    struct rdma_ucm_destroy_id command;
    struct rdma_ucm_destroy_id_resp response;
    int error;
    if (call->out_bytes < sizeof(response)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    struct cm_id *id = id_find_any(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    response.events_reported = id->events_reported;
    id_destroy(id);
    return call_copy_out(command.response, &response, sizeof(response));
}

static cm_command *const commands[] = {
    [RDMA_USER_CM_CMD_CREATE_ID] = command_create_id,
    [RDMA_USER_CM_CMD_DESTROY_ID] = command_destroy_id,
    [RDMA_USER_CM_CMD_BIND_IP] = command_bind_ip,
    [RDMA_USER_CM_CMD_RESOLVE_IP] = command_resolve_ip,
    [RDMA_USER_CM_CMD_RESOLVE_ROUTE] = command_resolve_route,
    [RDMA_USER_CM_CMD_QUERY_ROUTE] = command_query_route,
    [RDMA_USER_CM_CMD_CONNECT] = command_connect,
    [RDMA_USER_CM_CMD_LISTEN] = command_listen,
    [RDMA_USER_CM_CMD_ACCEPT] = command_accept,
    [RDMA_USER_CM_CMD_REJECT] = command_reject,
    [RDMA_USER_CM_CMD_DISCONNECT] = command_disconnect,
    [RDMA_USER_CM_CMD_INIT_QP_ATTR] = command_init_qp_attr,
    [RDMA_USER_CM_CMD_GET_EVENT] = NULL,  /* it may wait: cm.c executes it */
    [RDMA_USER_CM_CMD_GET_OPTION] = NULL, /* the kernel has none either */
    [RDMA_USER_CM_CMD_SET_OPTION] = command_set_option,
    [RDMA_USER_CM_CMD_NOTIFY] = command_notify,
    [RDMA_USER_CM_CMD_JOIN_IP_MCAST] = command_join_ip_multicast,
    [RDMA_USER_CM_CMD_LEAVE_MCAST] = command_leave_multicast,
    [RDMA_USER_CM_CMD_MIGRATE_ID] = command_migrate_id,
    [RDMA_USER_CM_CMD_QUERY] = command_query,
    [RDMA_USER_CM_CMD_BIND] = command_bind,
    [RDMA_USER_CM_CMD_RESOLVE_ADDR] = command_resolve_addr,
    [RDMA_USER_CM_CMD_JOIN_MCAST] = command_join_multicast,
};

cm_command *command_find(uint32_t number, int *error)
{
    *error = number < sizeof(commands) / sizeof(*commands) ? -ENOSYS : -EINVAL;
    return *error == -ENOSYS ? commands[number] : NULL;
}

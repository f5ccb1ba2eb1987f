/* options.c: SET_OPTION, and MIGRATE_ID, which moves an identifier to another file. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"

#define OPTION_MAX_BYTES (1u << 22) /* the most that the kernel can allocate */

static int set_reuse_address(struct cm_id *id, bool value)
{
    /* A listener was checked to have its port alone, so it cannot share it later. */
    if (id->state != ID_IDLE && (!value || id->state == ID_LISTEN)) {
        return -EINVAL;
    }
    id->reuse_address = value;
    return 0;
}

static int set_family_only(struct cm_id *id, bool value)
{
    if (id->state != ID_IDLE && id->state != ID_ADDR_BOUND) {
        return -EINVAL;
    }
    id->family_only = value;
    id->family_only_set = true;
    return 0;
}

static int set_ack_timeout(struct cm_id *id, uint8_t value)
{
    if (id->queue_pair_type != QUEUE_PAIR_RC && id->queue_pair_type != QUEUE_PAIR_XRC_INITIATOR) {
        return -EINVAL;
    }
    id->ack_timeout = value & 0x1f;
    id->ack_timeout_set = true;
    return 0;
}

static int set_byte(struct cm_id *id, uint32_t name, const void *value, uint32_t bytes)
{
    uint8_t byte;
    if (bytes != sizeof(byte)) {
        return -EINVAL;
    }
    memcpy(&byte, value, sizeof(byte));
    if (name == RDMA_OPTION_ID_ACK_TIMEOUT) {
        return set_ack_timeout(id, byte);
    }
    id->traffic_class = byte;
    return 0;
}

static int set_flag(struct cm_id *id, uint32_t name, const void *value, uint32_t bytes)
{
    int flag;
    if (bytes != sizeof(flag)) {
        return -EINVAL;
    }
    memcpy(&flag, value, sizeof(flag));
    return name == RDMA_OPTION_ID_REUSEADDR ? set_reuse_address(id, flag)
                                            : set_family_only(id, flag);
}

static int set_id_option(struct cm_id *id, uint32_t name, const void *value, uint32_t bytes)
{
    switch (name) {
    case RDMA_OPTION_ID_TOS:
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        return set_byte(id, name, value, bytes);
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
        return set_flag(id, name, value, bytes);
    }
    return -ENOSYS;
}

/* The program gives the route. On RoCE it says no more than the addresses. */
static int set_path(struct cm_id *id, const void *value, uint32_t bytes)
{
    const uint32_t wanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    struct ib_path_rec_data path;
    bool found = false;
    if (bytes % sizeof(path)) {
        return -EINVAL;
    }
    for (uint32_t at = 0; at < bytes && !found; at += sizeof(path)) {
        memcpy(&path, (const char *)value + at, sizeof(path));
        found = path.flags == wanted;
    }
    if (!found || id->rail < 0 || id->state != ID_ADDR_RESOLVED) {
        return -EINVAL;
    }
    id->state = ID_ROUTE_RESOLVED;
    id->paths = 1;
    event_report(id, EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

static int set_option(struct cm_id *id, const struct rdma_ucm_set_option *option, const void *value)
{
    if (option->level == RDMA_OPTION_ID) {
        return set_id_option(id, option->optname, value, option->optlen);
    }
    if (option->level == RDMA_OPTION_IB && option->optname == RDMA_OPTION_IB_PATH) {
        return set_path(id, value, option->optlen);
    }
    return -ENOSYS;
}

int command_set_option(const struct cm_call *call)
{
    struct rdma_ucm_set_option command;
    int error;
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    if (command.optlen > OPTION_MAX_BYTES) {
        return -EINVAL;
    }
    struct cm_id *id = id_find(call->file, command.id, &error);
    if (!id) {
        return error;
    }
    if (!command.optval && command.optlen) {
        return -EFAULT;
    }
    void *value = malloc(command.optlen + 1);
    if (!value) {
        return -ENOMEM;
    }
    if (dma_copy(value, (const void *)(uintptr_t)command.optval, command.optlen)) {
        error = set_option(id, &command, value);
    } else {
        error = -EFAULT;
    }
    free(value);
    return error;
}

/* The command names the descriptor of the file that the identifier comes from. It is not needed:
 * identifiers are numbered across all files of a process. */
int command_migrate_id(const struct cm_call *call)
{
    struct rdma_ucm_migrate_id command;
    struct rdma_ucm_migrate_resp response;
    if (call->out_bytes < sizeof(response)) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    struct cm *cm = call->file->cm;
    struct cm_id *id = command.id < ID_COUNT ? cm->ids[command.id] : NULL;
    if (!id || id->hidden) {
        return -ENOENT;
    }
    if (id->file != call->file) {
        events_move(id, call->file);
    }
    response.events_reported = id->events_reported;
    return call_copy_out(command.response, &response, sizeof(response));
}

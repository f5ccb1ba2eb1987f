/* transfer.c: registered memory, and what is sent and received. */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

struct registration {
    crpc_region region;
    bool of_gpu;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

static int register_with(struct comm *comm, void *data, size_t bytes, int memory, bool dmabuf,
                         uint64_t offset, int fd, void **registration)
{
    *registration = NULL;
    if (memory != NET_MEMORY_HOST && (memory != NET_MEMORY_CUDA || !settings.gpu_direct)) {
        WARN("asked for memory of a GPU, which is off: docs/nccl.md, COPYRPC_NCCL_GDR");
        return NET_INVALID_USAGE;
    }
    struct registration *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NET_SYSTEM_ERROR;
    }
    /* What is only sent need not be writable to the peer. */
    uint32_t access = comm->sends ? 0 : CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    /* NCCL says what it knows: a dma-buf of host memory is mapped at `data`. */
    access |= memory == NET_MEMORY_HOST ? CRPC_ACCESS_HOST : CRPC_ACCESS_DEVICE;
    crpc_error error = {.struct_size = sizeof(error)};
    struct session *session = comm->session;
    pthread_mutex_lock(&session->lock);
    int32_t status =
        dmabuf ? crpc_region_register_dmabuf(session->context, fd, offset, bytes, (uintptr_t)data,
                                             access, &made->region, &error)
               : crpc_region_register(session->context, data, bytes, access, &made->region, &error);
    pthread_mutex_unlock(&session->lock);
    if (status < 0) {
        WARN("cannot register %zu bytes at %p: %s: %s", bytes, data, crpc_status_name(status),
             error.message);
        free(made);
        return net_result(status);
    }
    made->of_gpu = memory == NET_MEMORY_CUDA;
    *registration = made;
    return NET_SUCCESS;
}

int net_register(void *comm, void *data, size_t bytes, int memory, void **registration)
{
    return register_with(comm, data, bytes, memory, false, 0, -1, registration);
}

int net_register_dmabuf(void *comm, void *data, size_t bytes, int memory, uint64_t offset, int fd,
                        void **registration)
{
    return register_with(comm, data, bytes, memory, true, offset, fd, registration);
}

int net_deregister(void *opaque, void *registration)
{
    struct comm *comm = opaque;
    struct registration *made = registration;
    if (made == NULL) {
        return NET_SUCCESS;
    }
    pthread_mutex_lock(&comm->session->lock);
    int32_t status = crpc_region_deregister(comm->session->context, made->region);
    pthread_mutex_unlock(&comm->session->lock);
    free(made);
    /* A communicator that is aborted takes registrations back before it closes the comm whose
     * transfers use them. The pages then stay pinned until the comm is closed. */
    return net_result(status == CRPC_E_BUSY ? CRPC_OK : status);
}

/* ---- Transfers ------------------------------------------------------------------------------- */

/* An op for one buffer. Memory without a registration is refused: copyrpc could register it by
 * itself, but nobody would tell it when NCCL unmaps it. */
static bool fill_op(crpc_channel_op *op, const struct request *request, uint32_t part,
                    uint8_t opcode, void *data, size_t bytes, int tag, void *registration)
{
    const struct registration *made = registration;
    *op = (crpc_channel_op){
        .opcode = opcode,
        .tag = (uint32_t)tag,
        .channel = request->comm->channel,
        .user_data = request_part(request, part),
    };
    if (bytes > 0) {
        if (made == NULL) {
            return false;
        }
        op->region = made->region;
        op->address = (uintptr_t)data;
        op->bytes = bytes;
    }
    return true;
}

/* Gives the request to NCCL, or none if there is no room now. */
static int submit(struct comm *comm, const crpc_channel_op *ops, uint32_t count,
                  struct request *request, const char *what, void **out)
{
    int32_t reason = CRPC_OK;
    int32_t taken = crpc_channel_submit(comm->session->context, ops, count, &reason);
    if (taken == (int32_t)count) {
        *out = request;
        return NET_SUCCESS;
    }
    request_put(request);
    if (taken < 0) {
        reason = taken;
    }
    if (reason == CRPC_E_AGAIN) {
        session_poll(comm->session); /* NCCL may have no other request to test */
        return NET_SUCCESS;
    }
    comm_explain(comm, what, reason);
    return net_result(reason);
}

int net_send(void *opaque, void *data, size_t bytes, int tag, void *registration, void *profile,
             void **request)
{
    (void)profile;
    struct comm *comm = opaque;
    *request = NULL;
    pthread_mutex_lock(&comm->session->lock);
    int result = NET_SUCCESS;
    struct request *made = request_get(comm, 1);
    if (made != NULL) {
        crpc_channel_op op;
        if (fill_op(&op, made, 0, CRPC_CHANNEL_SEND, data, bytes, tag, registration)) {
            result = submit(comm, &op, 1, made, "a send failed", request);
        } else {
            request_put(made);
            result = NET_INVALID_USAGE;
        }
    }
    pthread_mutex_unlock(&comm->session->lock);
    return result;
}

int net_receive(void *opaque, int count, void **data, size_t *bytes, int *tags,
                void **registrations, void **profiles, void **request)
{
    (void)profiles;
    struct comm *comm = opaque;
    *request = NULL; /* NCCL may have left there that it can do without the completion */
    if (count < 1 || count > GROUP_MAX) {
        return NET_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&comm->session->lock);
    int result = NET_SUCCESS;
    struct request *made = request_get(comm, (uint32_t)count);
    if (made != NULL) {
        crpc_channel_op ops[GROUP_MAX];
        bool filled = true;
        for (int i = 0; i < count && filled; i++) {
            filled = fill_op(&ops[i], made, (uint32_t)i, CRPC_CHANNEL_RECEIVE, data[i], bytes[i],
                             tags[i], registrations[i]);
            ops[i].flags = i + 1 < count ? CRPC_CHANNEL_MORE : 0;
        }
        if (filled) {
            result = submit(comm, ops, (uint32_t)count, made, "a receive failed", request);
        } else {
            request_put(made);
            result = NET_INVALID_USAGE;
        }
    }
    pthread_mutex_unlock(&comm->session->lock);
    return result;
}

/* A completion comes after its data where the CPU looks for both: in host memory there is nothing
 * to wait for. Data for a GPU may still be on its way to it; a READ from there would push it, and
 * channels have none, so this must not pretend. NCCL asks only for GPUs that need it. */
int net_flush(void *comm, int count, void **data, int *bytes, void **registrations, void **request)
{
    (void)comm, (void)data;
    *request = NULL;
    for (int i = 0; i < count; i++) {
        const struct registration *made = registrations[i];
        if (bytes[i] > 0 && made != NULL && made->of_gpu) {
            WARN("this GPU needs a flush after what the network wrote, which this plugin cannot "
                 "give it: run without COPYRPC_NCCL_GDR");
            return NET_SYSTEM_ERROR;
        }
    }
    return NET_SUCCESS;
}

int net_test(void *opaque, int *done, int *bytes)
{
    struct request *request = opaque;
    struct comm *comm = request->comm;
    *done = 0;
    if (comm == NULL) {
        return NET_INTERNAL_ERROR; /* it was done before */
    }
    pthread_mutex_lock(&comm->session->lock);
    int result = NET_SUCCESS;
    if (request->parts_left > 0) {
        session_poll(comm->session);
    }
    if (request->parts_left == 0) {
        *done = 1;
        if (bytes != NULL) {
            memcpy(bytes, request->bytes, request->parts * sizeof(*bytes));
        }
        if (request->status < 0) {
            comm_explain(comm, "a transfer failed", request->status);
            result = net_result(request->status);
        }
        request_put(request);
    }
    pthread_mutex_unlock(&comm->session->lock);
    return result;
}

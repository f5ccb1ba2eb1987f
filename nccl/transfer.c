/* transfer.c: what is sent and received. */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

/* ---- Transfers ------------------------------------------------------------------------------- */

/* An op for one buffer. Memory without a registration is refused: copyrpc could register it by
 * itself, but nobody would tell it when NCCL unmaps it. */
static bool fill_op(crpc_channel_op *op, const struct request *request, uint32_t part,
                    uint8_t opcode, void *data, size_t bytes, int tag, void *registration)
{
    *op = (crpc_channel_op){
        .opcode = opcode,
        .tag = (uint32_t)tag,
        .channel = request->comm->channel,
        .user_data = request_part(request, part),
    };
    if (bytes > 0) {
        if (registration == NULL) {
            return false;
        }
        op->region = registration_region(registration);
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

/* A completion comes after its data where the CPU looks for both: in host memory there is nothing to wait for. NCCL
 * asks only for GPUs that need it. One READ does for all buffers. */
int net_flush(void *opaque, int count, void **data, int *bytes, void **registrations,
              void **request)
{
    (void)data;
    struct comm *comm = opaque;
    struct session *session = comm->session;
    const struct registration *of_gpu = NULL;
    *request = NULL;
    for (int i = 0; i < count; i++) {
        if (bytes[i] > 0 && registrations[i] != NULL &&
            registration_flush_keys(registrations[i]) != NULL) {
            of_gpu = registrations[i];
        }
    }
    if (of_gpu == NULL) {
        return NET_SUCCESS;
    }
    pthread_mutex_lock(&session->lock);
    struct request *made = request_get(comm, session->device->rail_count);
    if (made != NULL) {
        flush_begin(session, made, registration_flush_keys(of_gpu), registration_address(of_gpu));
    }
    pthread_mutex_unlock(&session->lock);
    if (made == NULL) { /* no request would mean that it is done */
        WARN("NCCL has more than %d requests open on a comm", REQUESTS);
        return NET_INTERNAL_ERROR;
    }
    *request = made;
    return NET_SUCCESS;
}

/* Polls, unless another comm of the session has done so since this one was looked at last: that was for this one,
 * too. So a thread that tests a thousand comms in turn polls once in a round, and not a thousand times. Who finds
 * somebody polling lets him do it; whoever else has the lock may have it for long, and again and again. */
static void look(struct comm *comm, struct request *request)
{
    struct session *session = comm->session;
    if (pthread_mutex_trylock(&session->lock) != 0) {
        if (atomic_load_explicit(&session->polling, memory_order_relaxed)) {
            return;
        }
        pthread_mutex_lock(&session->lock);
    }
    if (comm->polls_seen == session->polls) {
        session_poll(session);
    }
    comm->polls_seen = session->polls;
    if (request->keys != NULL) {
        flush_step(session, request);
    }
    pthread_mutex_unlock(&session->lock);
}

static bool is_done(struct request *request)
{
    return atomic_load_explicit(&request->parts_left, memory_order_acquire) == 0;
}

int net_test(void *opaque, int *done, int *bytes)
{
    struct request *request = opaque;
    struct comm *comm = request->comm;
    *done = 0;
    if (comm == NULL) {
        return NET_INTERNAL_ERROR; /* it was done before */
    }
    if (!is_done(request)) {
        look(comm, request);
        if (!is_done(request)) {
            return NET_SUCCESS;
        }
    }
    *done = 1;
    if (bytes != NULL) {
        memcpy(bytes, request->bytes, request->parts * sizeof(*bytes));
    }
    pthread_mutex_lock(&comm->session->lock);
    int32_t status = request->status;
    if (status < 0) {
        comm_explain(comm, "a transfer failed", status);
    }
    request_put(request);
    pthread_mutex_unlock(&comm->session->lock);
    return net_result(status);
}

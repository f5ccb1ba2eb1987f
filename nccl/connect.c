/* connect.c: listen, connect, accept and close. What a listen comm writes into NCCL's handle is its
 * address and a token by which it knows whom to accept. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HANDLE_MAGIC 0x43525043u /* "CRPC" */
#define HANDLE_VERSION 1u
#define REASON_STRANGER 1u /* for crpc_channel_reject: not the token of the handle */

/* NCCL calls connect with the same memory until there is a comm, and keeps what is written there
 * (its own networks keep their state so too). */
struct handle {
    uint32_t magic;
    uint32_t version;
    uint8_t token[TOKEN_BYTES];
    char address[ADDRESS_BYTES];
    struct comm *connecting;
};
_Static_assert(sizeof(struct handle) <= NET_HANDLE_BYTES, "the handle is NCCL's in size");

struct listen_comm {
    struct session *session;
    crpc_listener listener;
    uint8_t token[TOKEN_BYTES];
    struct comm *accepting;
};

static pthread_mutex_t connecting_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *connecting;

static void fill_options(crpc_channel_options *options, const struct comm *comm)
{
    *options = (crpc_channel_options){
        .struct_size = sizeof(*options),
        .user_data = comm->id,
        .slots = SLOTS,
        .sends_max = REQUESTS,
        .queue_pairs = settings.queue_pairs,
        .split = settings.split,
        .rail0_share = settings.share,
        .stripe_bytes_min = settings.stripe_bytes_min,
        .connect_timeout_ns = settings.connect_timeout_ns,
    };
    memcpy(options->hint, settings.hint, sizeof(options->hint));
}

/* ---- Listen ---------------------------------------------------------------------------------- */

int net_listen(int index, void *handle, void **listen_comm)
{
    struct device *device = plugin_device(index);
    if (device == NULL) {
        return NET_INVALID_ARGUMENT;
    }
    int32_t status;
    struct listen_comm *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NET_SYSTEM_ERROR;
    }
    made->session = session_open(device, LISTENER_CHANNELS_MAX, &status);
    if (made->session == NULL) {
        free(made);
        return net_result(status);
    }
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_options options = {.struct_size = sizeof(options),
                                     .flags = CRPC_LISTENER_CHANNELS};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    status = crpc_listener_open(made->session->context, device->address, &options, &made->listener,
                                &error);
    if (status >= 0) {
        status = crpc_listener_get_info(made->session->context, made->listener, &info);
    }
    if (status >= 0 && getrandom(made->token, TOKEN_BYTES, 0) != TOKEN_BYTES) {
        status = CRPC_E_SYSTEM;
    }
    if (status < 0) {
        WARN("cannot listen on %s: %s: %s", device->address, crpc_status_name(status),
             error.message);
        session_leave(made->session);
        free(made);
        return net_result(status);
    }
    struct handle *out = handle;
    memset(out, 0, NET_HANDLE_BYTES);
    out->magic = HANDLE_MAGIC;
    out->version = HANDLE_VERSION;
    memcpy(out->token, made->token, TOKEN_BYTES);
    memcpy(out->address, info.address, ADDRESS_BYTES);
    *listen_comm = made;
    return NET_SUCCESS;
}

int net_close_listen(void *listen_comm)
{
    struct listen_comm *listen = listen_comm;
    if (listen == NULL) {
        return NET_SUCCESS;
    }
    struct session *session = listen->session;
    pthread_mutex_lock(&session->lock);
    crpc_listener_close(session->context, listen->listener);
    while (session->asking_count > 0) { /* the listener has rejected those who still wait */
        crpc_channel_close(session->context, session->asking[--session->asking_count]);
    }
    if (listen->accepting != NULL) {
        comm_remove(listen->accepting);
        session->users--;
    }
    pthread_mutex_unlock(&session->lock);
    session_leave(session);
    free(listen);
    return NET_SUCCESS;
}

/* ---- Connect --------------------------------------------------------------------------------- */

static void remember_connect(struct comm *comm)
{
    pthread_mutex_lock(&connecting_lock);
    comm->next_connecting = connecting;
    connecting = comm;
    pthread_mutex_unlock(&connecting_lock);
}

static void forget_connect(struct comm *comm)
{
    pthread_mutex_lock(&connecting_lock);
    struct comm **link = &connecting;
    while (*link != NULL && *link != comm) {
        link = &(*link)->next_connecting;
    }
    if (*link == comm) {
        *link = comm->next_connecting;
    }
    pthread_mutex_unlock(&connecting_lock);
}

void net_forget_connects(void)
{
    pthread_mutex_lock(&connecting_lock);
    while (connecting != NULL) {
        struct comm *comm = connecting;
        connecting = comm->next_connecting;
        comm_destroy(comm);
    }
    pthread_mutex_unlock(&connecting_lock);
}

static int begin_connect(struct device *device, struct handle *handle, struct comm **made)
{
    int32_t status;
    struct session *session = session_open(device, 1, &status);
    if (session == NULL) {
        return net_result(status);
    }
    struct comm *comm = comm_create(session);
    if (comm == NULL) {
        session_leave(session);
        return NET_SYSTEM_ERROR;
    }
    session_leave(session); /* it is the comm's now */
    comm->sends = true;
    crpc_channel_options options;
    fill_options(&options, comm);
    options.token_bytes = TOKEN_BYTES;
    memcpy(options.token, handle->token, TOKEN_BYTES);
    handle->address[ADDRESS_BYTES - 1] = '\0';
    crpc_error error = {.struct_size = sizeof(error)};
    status =
        crpc_channel_connect(session->context, handle->address, &options, &comm->channel, &error);
    if (status < 0) {
        WARN("cannot connect to %s: %s", handle->address, error.message);
        comm_destroy(comm);
        return net_result(status);
    }
    remember_connect(comm);
    handle->connecting = comm;
    *made = comm;
    return NET_SUCCESS;
}

int net_connect(int index, void *opaque, void **send_comm)
{
    struct device *device = plugin_device(index);
    struct handle *handle = opaque;
    *send_comm = NULL;
    if (device == NULL || handle->magic != HANDLE_MAGIC || handle->version != HANDLE_VERSION) {
        WARN("the peer's handle is none of this plugin's: does every rank load it?");
        return NET_INVALID_ARGUMENT;
    }
    struct comm *comm = handle->connecting;
    if (comm == NULL) {
        int result = begin_connect(device, handle, &comm);
        if (comm == NULL) {
            return result;
        }
    }
    pthread_mutex_lock(&comm->session->lock);
    session_poll(comm->session);
    enum comm_state state = comm->state;
    int32_t status = comm->status;
    if (state == COMM_FAILED) {
        char what[ADDRESS_BYTES + 32];
        snprintf(what, sizeof(what), "connecting to %s failed", handle->address);
        comm_explain(comm, what, status);
    }
    pthread_mutex_unlock(&comm->session->lock);
    if (state == COMM_CONNECTING) {
        return NET_SUCCESS;
    }
    forget_connect(comm);
    handle->connecting = NULL;
    if (state == COMM_FAILED) {
        comm_destroy(comm);
        return net_result(status);
    }
    *send_comm = comm;
    return NET_SUCCESS;
}

/* ---- Accept ---------------------------------------------------------------------------------- */

static bool has_token(struct listen_comm *listen, crpc_channel channel)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    return crpc_channel_get_info(listen->session->context, channel, &info) >= 0 &&
           info.token_bytes == TOKEN_BYTES && memcmp(info.token, listen->token, TOKEN_BYTES) == 0;
}

/* Accepts the next who asks; strangers, and those who have given up meanwhile, are passed over. */
static int begin_accept(struct listen_comm *listen)
{
    struct session *session = listen->session;
    while (session->asking_count > 0 && listen->accepting == NULL) {
        crpc_channel channel = session->asking[0];
        session->asking_count--;
        memmove(session->asking, session->asking + 1,
                session->asking_count * sizeof(session->asking[0]));
        if (!has_token(listen, channel)) {
            INFO("refused somebody who is none of this job's");
            session_turn_away(session, channel, REASON_STRANGER);
            continue;
        }
        struct comm *comm = comm_create(session);
        if (comm == NULL) {
            return NET_SYSTEM_ERROR;
        }
        comm->channel = channel;
        crpc_channel_options options;
        fill_options(&options, comm);
        crpc_error error = {.struct_size = sizeof(error)};
        int32_t status = crpc_channel_accept(session->context, channel, &options, &error);
        if (status >= 0) {
            listen->accepting = comm;
            break;
        }
        comm_remove(comm);
        session->users--;
        if (status != CRPC_E_STATE && status != CRPC_E_STALE) {
            WARN("cannot accept: %s: %s", crpc_status_name(status), error.message);
            return net_result(status);
        }
    }
    return NET_SUCCESS;
}

int net_accept(void *listen_comm, void **receive_comm, void **device_comm)
{
    (void)device_comm;
    struct listen_comm *listen = listen_comm;
    struct session *session = listen->session;
    *receive_comm = NULL;
    pthread_mutex_lock(&session->lock);
    session_poll(session);
    int result = listen->accepting == NULL ? begin_accept(listen) : NET_SUCCESS;
    struct comm *comm = listen->accepting;
    if (result == NET_SUCCESS && comm != NULL && comm->state != COMM_CONNECTING) {
        listen->accepting = NULL;
        if (comm->state == COMM_CONNECTED) {
            *receive_comm = comm;
        } else {
            result = net_result(comm->status);
            comm_explain(comm, "accepting failed", comm->status);
            comm_remove(comm);
            session->users--;
        }
    }
    pthread_mutex_unlock(&session->lock);
    return result;
}

int net_close_comm(void *comm)
{
    if (comm != NULL) {
        comm_destroy(comm);
    }
    return NET_SUCCESS;
}

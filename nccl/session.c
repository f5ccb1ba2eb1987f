/* session.c: contexts of copyrpc, and whose completions are whose. */
#include "plugin.h"

#include <stdlib.h>

#define COMPLETIONS 64
#define LOG_ENTRIES 16

/* An op's user_data says which buffer of which request it was. */
#define PARTS_BITS 3u
_Static_assert(GROUP_MAX == 1u << PARTS_BITS, "a part's number does not fit its bits");

struct session *session_open(const struct device *device, uint32_t channels_max, int32_t *status)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        *status = CRPC_E_NO_MEMORY;
        return NULL;
    }
    *status = device_open(device, channels_max, &session->context);
    if (*status < 0) {
        free(session);
        return NULL;
    }
    pthread_mutex_init(&session->lock, NULL);
    session->device = device;
    session->users = 1;
    return session;
}

void session_leave(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    bool last = --session->users == 0;
    pthread_mutex_unlock(&session->lock);
    if (last) {
        crpc_context_close(session->context);
        pthread_mutex_destroy(&session->lock);
        free(session);
    }
}

struct comm *comm_create(struct session *session)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        return NULL;
    }
    comm->session = session;
    comm->id = ++session->ids;
    comm->next = session->comms;
    session->comms = comm;
    session->users++;
    for (uint32_t i = REQUESTS; i-- > 0;) {
        comm->requests[i].next_free = comm->free;
        comm->free = &comm->requests[i];
    }
    return comm;
}

void comm_remove(struct comm *comm)
{
    struct session *session = comm->session;
    if (comm->channel.bits != 0) {
        crpc_channel_close(session->context, comm->channel);
    }
    struct comm **link = &session->comms;
    while (*link != comm) {
        link = &(*link)->next;
    }
    *link = comm->next;
    free(comm);
}

void comm_destroy(struct comm *comm)
{
    struct session *session = comm->session;
    pthread_mutex_lock(&session->lock);
    comm_remove(comm);
    pthread_mutex_unlock(&session->lock);
    session_leave(session);
}

struct request *request_get(struct comm *comm, uint32_t parts)
{
    struct request *request = comm->free;
    if (request != NULL) {
        comm->free = request->next_free;
        *request = (struct request){.comm = comm, .parts = parts, .parts_left = parts};
    }
    return request;
}

void request_put(struct request *request)
{
    struct comm *comm = request->comm;
    request->comm = NULL;
    request->next_free = comm->free;
    comm->free = request;
}

uint64_t request_part(const struct request *request, uint32_t part)
{
    return (uint64_t)(request - request->comm->requests) << PARTS_BITS | part;
}

void comm_explain(struct comm *comm, const char *what, int32_t status)
{
    crpc_context *context = comm->session->context;
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_channel_get_error(context, comm->channel, &error) < 0 || error.message[0] == '\0') {
        WARN("%s on %s: %s: %s", what, comm->session->device->name, crpc_status_name(status),
             crpc_status_text(status));
    } else {
        WARN("%s on %s: %s: %s", what, comm->session->device->name, crpc_status_name(status),
             error.message);
    }
    crpc_log_entry entries[LOG_ENTRIES];
    int32_t count = crpc_context_log(context, entries, LOG_ENTRIES);
    for (int32_t i = 0; i < count; i++) {
        INFO("%s", entries[i].message);
    }
}

static void take_part(struct comm *comm, const crpc_completion *completion)
{
    struct request *request = &comm->requests[completion->user_data >> PARTS_BITS];
    request->bytes[completion->user_data & (GROUP_MAX - 1)] = (int32_t)completion->payload_bytes;
    if (completion->status < 0 && request->status >= 0) {
        request->status = completion->status;
    }
    request->parts_left--;
}

/* What a comm that is no more left behind names nobody. */
static struct comm *find_comm(struct session *session, uint64_t id)
{
    struct comm *comm = session->comms;
    while (comm != NULL && comm->id != id) {
        comm = comm->next;
    }
    return comm;
}

static void take_event(struct comm *comm, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
        take_part(comm, completion);
        break;
    case CRPC_COMPLETION_CONNECTED:
        comm->state = completion->status < 0 ? COMM_FAILED : COMM_CONNECTED;
        comm->status = completion->status;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        comm->state = COMM_FAILED;
        comm->status = completion->status < 0 ? completion->status : CRPC_E_DISCONNECTED;
        INFO("disconnected: %s", crpc_status_name(completion->status));
        break;
    case CRPC_COMPLETION_RAIL:
        INFO("rail %u %s", (unsigned)completion->token,
             completion->status < 0 ? "lost: the other one carries on" : "is used again");
        break;
    default: /* ROOM: NCCL tries again by itself */
        break;
    }
}

static void take_asking(struct session *session, crpc_channel channel)
{
    if (session->asking_count < LISTENER_CHANNELS_MAX) {
        session->asking[session->asking_count++] = channel;
    } else {
        crpc_channel_reject(session->context, channel, 0);
    }
}

void session_poll(struct session *session)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(session->context, completions, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        const crpc_completion *completion = &completions[i];
        if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
            take_asking(session, (crpc_channel){completion->endpoint.bits});
            continue;
        }
        struct comm *comm = find_comm(session, completion->endpoint_user_data);
        if (comm != NULL) {
            take_event(comm, completion);
        }
    }
}

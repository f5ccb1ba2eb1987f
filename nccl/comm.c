/* comm.c: a comm's channel and requests, and whose completions are whose. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ENTRIES 16

/* An op's user_data says which buffer of which request it was. */
#define PARTS_BITS 3u
_Static_assert(GROUP_MAX == 1u << PARTS_BITS, "a part's number does not fit its bits");

/* ---- Making and ending ----------------------------------------------------------------------- */

/* There is a free one: each comm is a user of the session. */
static void take_place(struct session *session, struct comm *comm)
{
    while (session->comms[comm->index] != NULL) {
        comm->index++;
    }
    session->comms[comm->index] = comm;
    comm->id = session->comms_made++ * SESSION_CHANNELS_MAX + comm->index;
}

struct comm *comm_create(struct device *device, struct way way)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        return NULL;
    }
    comm->session = session_join(device, way);
    if (comm->session == NULL) {
        free(comm);
        return NULL;
    }
    pthread_mutex_lock(&comm->session->lock);
    take_place(comm->session, comm);
    pthread_mutex_unlock(&comm->session->lock);
    return comm;
}

void comm_destroy(struct comm *comm)
{
    struct session *session = comm->session;
    meet_end(comm->meeting);
    pthread_mutex_lock(&session->lock);
    session->comms[comm->index] = NULL; /* its completions are nobody's from now on */
    if (comm->channel.bits != 0) {
        crpc_channel_close(session->context, comm->channel);
        session_poll(session); /* ends its ops, which may use registrations */
        registrations_sweep(session);
    }
    pthread_mutex_unlock(&session->lock);
    free(comm);
    session_leave(session);
}

/* ---- The channel ----------------------------------------------------------------------------- */

int32_t comm_make_channel(struct comm *comm)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel_options options = {
        .struct_size = sizeof(options),
        .user_data = comm->id,
        .slots = SLOTS,
        .sends_max = REQUESTS,
        .queue_pairs = settings.queue_pairs,
        .split = settings.split,
        .rail0_share = settings.share,
        .stripe_bytes_min = settings.stripe_bytes_min,
        .connect_timeout_ns = settings.connect_timeout_ns,
    };
    memcpy(options.hint, settings.hint, sizeof(options.hint));
    comm->blob_bytes = sizeof(comm->blob);
    int32_t status = crpc_channel_blob(comm->session->context, &options, &comm->channel, comm->blob,
                                       &comm->blob_bytes, &error);
    if (status < 0) {
        WARN("cannot make a channel on %s: %s: %s", comm->session->device->name,
             crpc_status_name(status), error.message);
    }
    return status;
}

int32_t comm_join(struct comm *comm, const void *blob, uint32_t blob_bytes)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        crpc_channel_join(comm->session->context, comm->channel, blob, blob_bytes, &error);
    if (status < 0) {
        WARN("cannot join the peer on %s: %s: %s", comm->session->device->name,
             crpc_status_name(status), error.message);
    } else {
        comm->state = COMM_CONNECTING;
    }
    return status;
}

void comm_explain(struct comm *comm, const char *what, int32_t status)
{
    crpc_context *context = comm->session->context;
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_channel_get_error(context, comm->channel, &error) < 0 || error.message[0] == '\0') {
        snprintf(error.message, sizeof(error.message), "%s", crpc_status_text(status));
    }
    WARN("%s on %s: %s: %s", what, comm->session->device->name, crpc_status_name(status),
         error.message);
    crpc_log_entry entries[LOG_ENTRIES];
    int32_t count = crpc_context_log(context, entries, LOG_ENTRIES);
    for (int32_t i = 0; i < count; i++) {
        INFO("%s", entries[i].message);
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct request *request_get(struct comm *comm, uint32_t parts)
{
    struct request *request = comm->free;
    if (request != NULL) {
        comm->free = request->next_free;
    } else if (comm->requests_used < REQUESTS) {
        request = &comm->requests[comm->requests_used++];
    } else {
        return NULL;
    }
    *request = (struct request){.comm = comm, .parts = parts, .parts_left = parts};
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

/* ---- Completions ----------------------------------------------------------------------------- */

static void take_part(struct comm *comm, const crpc_completion *completion)
{
    struct request *request = &comm->requests[completion->user_data >> PARTS_BITS];
    request->bytes[completion->user_data & (GROUP_MAX - 1)] = (int32_t)completion->payload_bytes;
    if (completion->status < 0 && request->status >= 0) {
        request->status = completion->status;
    }
    atomic_fetch_sub_explicit(&request->parts_left, 1, memory_order_release);
}

static void take_rail(struct comm *comm, uint32_t rail, bool up)
{
    const uint8_t bit = (uint8_t)(1u << rail);
    INFO("rail %u %s", rail,
         !up                      ? "lost: the other one carries on"
         : comm->rails_lost & bit ? "is used again"
                                  : "is used, too");
    comm->rails_lost = (uint8_t)(up ? comm->rails_lost & ~bit : comm->rails_lost | bit);
}

static void take_event(struct comm *comm, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
        take_part(comm, completion);
        break;
    case CRPC_COMPLETION_CONNECTED:
        comm->status = completion->status;
        comm->state = completion->status < 0 ? COMM_FAILED : COMM_CONNECTED;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        comm->status = completion->status < 0 ? completion->status : CRPC_E_DISCONNECTED;
        comm->state = COMM_FAILED;
        INFO("disconnected: %s", crpc_status_name(completion->status));
        break;
    case CRPC_COMPLETION_RAIL:
        take_rail(comm, (uint32_t)completion->token, completion->status >= 0);
        break;
    default: /* ROOM: NCCL tries again by itself */
        break;
    }
}

void comm_take(struct session *session, const crpc_completion *completion)
{
    if (!(completion->flags & CRPC_COMPLETION_OF_CHANNEL)) {
        return; /* of the device */
    }
    /* What a comm that is no more left behind names nobody. */
    const uint64_t id = completion->endpoint_user_data;
    struct comm *comm = session->comms[id % SESSION_CHANNELS_MAX];
    if (comm != NULL && comm->id == id) {
        take_event(comm, completion);
    }
}

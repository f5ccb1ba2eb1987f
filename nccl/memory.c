/* memory.c: registered memory. Comms of one session that register the same memory for the same use share a
 * registration: NCCL registers a buffer with each comm that uses it. */
#include "plugin.h"

#include <stdlib.h>

struct registration {
    struct registration *next;
    uint64_t uses;
    crpc_region region;
    uintptr_t address;
    size_t bytes;
    uint32_t access;
    bool of_gpu;
    struct flush_keys flush; /* of_gpu */
};

/* ---- Of a session ---------------------------------------------------------------------------- */

static struct registration *find(struct session *session, const struct registration *like)
{
    struct registration *each = session->registrations;
    while (each != NULL && (each->address != like->address || each->bytes != like->bytes ||
                            each->access != like->access || each->of_gpu != like->of_gpu)) {
        each = each->next;
    }
    return each;
}

static void take_out(struct registration **list, struct registration *registration)
{
    while (*list != registration) {
        list = &(*list)->next;
    }
    *list = registration->next;
}

/* A communicator that is aborted takes registrations back before it closes the comm whose transfers use them. The
 * pages then stay pinned until a comm of the session is closed. */
static int32_t end(struct session *session, struct registration *registration)
{
    int32_t status = crpc_region_deregister(session->context, registration->region);
    flush_deregister(session,
                     &registration->flush); /* a READ that is under way fails, for nobody */
    if (status == CRPC_E_BUSY) {
        registration->next = session->leaving;
        session->leaving = registration;
        return CRPC_OK;
    }
    free(registration);
    return status;
}

void registrations_sweep(struct session *session)
{
    struct registration *all = session->leaving;
    session->leaving = NULL;
    while (all != NULL) {
        struct registration *each = all;
        all = all->next;
        end(session, each);
    }
}

static void free_all(struct registration *list)
{
    while (list != NULL) {
        struct registration *next = list->next;
        free(list);
        list = next;
    }
}

/* The context takes the regions with it. */
void registrations_end(struct session *session)
{
    free_all(session->registrations);
    free_all(session->leaving);
}

crpc_region registration_region(const struct registration *registration)
{
    return registration->region;
}

const struct flush_keys *registration_flush_keys(const struct registration *registration)
{
    return registration->of_gpu ? &registration->flush : NULL;
}

uintptr_t registration_address(const struct registration *registration)
{
    return registration->address;
}

/* ---- NCCL's calls ---------------------------------------------------------------------------- */

static struct registration *make(struct session *session, const struct registration *like,
                                 const struct buffer *buffer, int32_t *status)
{
    crpc_error error = {.struct_size = sizeof(error)};
    struct registration *made = malloc(sizeof(*made));
    if (made == NULL) {
        *status = CRPC_E_NO_MEMORY;
        return NULL;
    }
    *made = *like;
    *status =
        buffer->fd >= 0
            ? crpc_region_register_dmabuf(session->context, buffer->fd, buffer->offset, like->bytes,
                                          like->address, like->access, &made->region, &error)
            : crpc_region_register(session->context, (void *)like->address, like->bytes,
                                   like->access, &made->region, &error);
    if (*status < 0) {
        WARN("cannot register %zu bytes at %p: %s: %s", like->bytes, (void *)like->address,
             crpc_status_name(*status), error.message);
        free(made);
        return NULL;
    }
    *status = like->of_gpu && session->flushers[0] != NULL
                  ? flush_register(session, buffer, like->address, like->bytes, &made->flush)
                  : CRPC_OK;
    if (*status < 0) {
        crpc_region_deregister(session->context, made->region);
        free(made);
        return NULL;
    }
    made->next = session->registrations;
    session->registrations = made;
    return made;
}

static int register_with(struct comm *comm, void *data, size_t bytes, int memory,
                         struct buffer buffer, void **out)
{
    *out = NULL;
    if (memory != NET_MEMORY_HOST && (memory != NET_MEMORY_CUDA || !settings.gpu_direct)) {
        WARN("asked for memory of a GPU, which is off: docs/nccl.md, COPYRPC_NCCL_GDR");
        return NET_INVALID_USAGE;
    }
    /* What is only sent need not be writable to the peer. NCCL says whose memory it is: a dma-buf of the host's is mapped
     * at `data`. */
    const uint32_t rights = comm->sends ? 0 : CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    const struct registration like = {
        .address = (uintptr_t)data,
        .bytes = bytes,
        .access = rights | (memory == NET_MEMORY_HOST ? CRPC_ACCESS_HOST : CRPC_ACCESS_DEVICE),
        .of_gpu = memory == NET_MEMORY_CUDA,
    };
    int32_t status = CRPC_OK;
    struct session *session = comm->session;
    pthread_mutex_lock(&session->lock);
    struct registration *registration = find(session, &like);
    if (registration == NULL) {
        registration = make(session, &like, &buffer, &status);
    }
    if (registration != NULL) {
        registration->uses++;
    }
    pthread_mutex_unlock(&session->lock);
    *out = registration;
    return net_result(status);
}

int net_register(void *comm, void *data, size_t bytes, int memory, void **registration)
{
    return register_with(comm, data, bytes, memory, (struct buffer){.fd = -1}, registration);
}

int net_register_dmabuf(void *comm, void *data, size_t bytes, int memory, uint64_t offset, int fd,
                        void **registration)
{
    if (fd < 0) {
        return NET_INVALID_ARGUMENT;
    }
    return register_with(comm, data, bytes, memory, (struct buffer){.fd = fd, .offset = offset},
                         registration);
}

int net_deregister(void *opaque, void *registration)
{
    struct comm *comm = opaque;
    struct registration *given = registration;
    int32_t status = CRPC_OK;
    if (given == NULL) {
        return NET_SUCCESS;
    }
    pthread_mutex_lock(&comm->session->lock);
    if (--given->uses == 0) {
        take_out(&comm->session->registrations, given);
        status = end(comm->session, given);
    }
    pthread_mutex_unlock(&comm->session->lock);
    return net_result(status);
}

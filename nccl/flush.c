/* flush.c: data for a GPU may still be on its way over PCIe when its completion is in the host's memory. A READ of the
 * GPU's memory by the device that wrote there cannot pass those writes, so when it has completed they are done.
 *
 * Each rail has a queue for that, which is connected to itself, as NCCL's own network has it. It belongs to a context
 * of its own, in whose protection domain only the first page of each of the GPU's buffers is registered: peers reach
 * nothing of it, for none is connected to a queue there. One byte of any buffer does for all, since the way to the GPU
 * is one.
 *
 * A flush is done when all rails have read. Which of them carried the data is not asked: a message may have come over
 * both. A queue that fails is made again, and what it had reads again, until it succeeds or the comm has lost that
 * rail: it goes down by a fence, milliseconds after the last write, and nothing comes over it any more.
 */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLUSHES_OPEN_MAX 256
#define PAGE_BYTES 4096u
#define RETRY_NS UINT64_C(50000000)
#define GIVE_UP_NS UINT64_C(20000000000)
#define COMPLETIONS 32
#define FLUSH_ACCESS (CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_DEVICE)

struct flusher {
    crpc_context *context;
    crpc_queue queue; /* 0: none */
    crpc_region scratch;
    bool ready;
    uint64_t failing_since_ns; /* until a READ completes; 0: it is not failing */
    uint64_t retry_ns;
    uint64_t reads;
    uint8_t *target;
};

/* ---- Queues ---------------------------------------------------------------------------------- */

/* Connected to itself: CONNECTED follows. */
static int32_t make_queue(struct flusher *flusher)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_RC, .sends = FLUSHES_OPEN_MAX};
    crpc_queue_address address = {.struct_size = sizeof(address)};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    int32_t status =
        crpc_queue_blob(flusher->context, &options, &flusher->queue, blob, &blob_bytes, &error);
    if (status >= 0) {
        status = crpc_queue_get_address(flusher->context, flusher->queue, &address);
    }
    if (status >= 0) {
        status = crpc_queue_join_address(flusher->context, flusher->queue, &address, &error);
    }
    if (status < 0) {
        WARN("cannot make the queue that flushes what GPUs receive: %s: %s",
             crpc_status_name(status), error.message);
    }
    return status;
}

static void fail(struct flusher *flusher)
{
    uint64_t now = now_ns();
    flusher->ready = false;
    flusher->retry_ns = now + RETRY_NS;
    if (flusher->failing_since_ns == 0) {
        flusher->failing_since_ns = now;
        INFO("the queue that flushes a rail has failed, and is made again");
    }
}

static void make_again(struct flusher *flusher)
{
    if (flusher->ready || flusher->retry_ns == 0 || now_ns() < flusher->retry_ns) {
        return;
    }
    if (flusher->queue.bits != 0) {
        crpc_queue_close(flusher->context, flusher->queue);
        flusher->queue = (crpc_queue){0};
    }
    flusher->retry_ns = now_ns() + GIVE_UP_NS; /* until it is connected, or that has failed */
    if (make_queue(flusher) < 0) {
        fail(flusher);
    }
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static int32_t open_flusher(const char *rail, struct flusher *flusher)
{
    int32_t status = device_open_queues(rail, &flusher->context);
    if (status < 0) {
        return status;
    }
    flusher->target = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    if (flusher->target == NULL) {
        return CRPC_E_NO_MEMORY;
    }
    status = crpc_region_register(flusher->context, flusher->target, PAGE_BYTES,
                                  CRPC_ACCESS_LOCAL_WRITE, &flusher->scratch, NULL);
    return status < 0 ? status : make_queue(flusher);
}

int32_t flushers_open(struct session *session)
{
    for (uint32_t i = 0; i < session->device->rail_count; i++) {
        struct flusher *flusher = calloc(1, sizeof(*flusher));
        if (flusher == NULL) {
            return CRPC_E_NO_MEMORY;
        }
        session->flushers[i] = flusher;
        int32_t status = open_flusher(session->device->rails[i], flusher);
        if (status < 0) {
            return status;
        }
    }
    return CRPC_OK;
}

void flushers_close(struct session *session)
{
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        struct flusher *flusher = session->flushers[i];
        if (flusher != NULL) {
            INFO("flushed %llu times on rail %u", (unsigned long long)flusher->reads, i);
            crpc_context_close(flusher->context);
            free(flusher->target);
            free(flusher);
        }
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

int32_t flush_register(struct session *session, const struct buffer *buffer, uintptr_t address,
                       size_t bytes, struct flush_keys *keys)
{
    const size_t part = bytes < PAGE_BYTES ? bytes : PAGE_BYTES;
    crpc_error error = {.struct_size = sizeof(error)};
    for (uint32_t i = 0; i < session->device->rail_count; i++) {
        crpc_context *context = session->flushers[i]->context;
        crpc_region_info info = {.struct_size = sizeof(info)};
        int32_t status =
            buffer->fd >= 0
                ? crpc_region_register_dmabuf(context, buffer->fd, buffer->offset, part, address,
                                              FLUSH_ACCESS, &keys->regions[i], &error)
                : crpc_region_register(context, (void *)address, part, FLUSH_ACCESS,
                                       &keys->regions[i], &error);
        if (status >= 0) {
            status = crpc_region_get_info(context, keys->regions[i], &info);
        }
        if (status < 0) {
            WARN("cannot register %zu bytes at %p for flushes: %s: %s", part, (void *)address,
                 crpc_status_name(status), error.message);
            flush_deregister(session, keys);
            return status;
        }
        keys->remote_keys[i] = info.remote_key;
    }
    return CRPC_OK;
}

void flush_deregister(struct session *session, struct flush_keys *keys)
{
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        if (keys->regions[i].bits != 0) {
            crpc_region_deregister(session->flushers[i]->context, keys->regions[i]);
            keys->regions[i] = (crpc_region){0};
        }
    }
}

/* ---- Flushing -------------------------------------------------------------------------------- */

/* A READ names its request; a comm that has gone meanwhile had another id. */
#define REQUEST_BITS 8u
_Static_assert(REQUESTS <= 1u << REQUEST_BITS, "a request's number does not fit its bits");

static uint64_t name_of(const struct request *request)
{
    return request->comm->id << REQUEST_BITS | (uint64_t)(request - request->comm->requests);
}

static void read_is_over(struct request *request, uint32_t rail, int32_t status)
{
    if (status < 0 && request->status >= 0) {
        request->status = status;
    }
    request->unread &= (uint8_t) ~(1u << rail);
    atomic_fetch_sub_explicit(&request->parts_left, 1, memory_order_release);
}

static bool post_read(struct flusher *flusher, const struct request *request, uint32_t rail)
{
    const crpc_queue_op op = {
        .opcode = CRPC_QUEUE_READ,
        .user_data = name_of(request),
        .region = flusher->scratch,
        .address = (uintptr_t)flusher->target,
        .bytes = 1,
        .remote_key = request->keys->remote_keys[rail],
        .remote_address = request->flush_address,
    };
    return crpc_queue_submit(flusher->context, flusher->queue, &op, 1, NULL, 0, NULL) == 1;
}

static bool given_up(const struct flusher *flusher)
{
    return flusher->failing_since_ns != 0 && now_ns() - flusher->failing_since_ns > GIVE_UP_NS;
}

/* What has not been read is, as far as that is possible now. */
static void step(struct session *session, struct request *request)
{
    for (uint32_t i = 0; i < session->device->rail_count; i++) {
        struct flusher *flusher = session->flushers[i];
        if (!(request->unread & 1u << i)) {
            continue;
        }
        if (flusher->failing_since_ns != 0 && request->comm->rails_lost & 1u << i) {
            read_is_over(request, i, CRPC_OK);
        } else if (given_up(flusher)) {
            read_is_over(request, i, CRPC_E_DISCONNECTED);
        } else if (flusher->ready && post_read(flusher, request, i)) {
            request->unread &= (uint8_t) ~(1u << i);
        }
    }
}

static void take_read(struct session *session, uint32_t rail, const crpc_completion *completion)
{
    struct flusher *flusher = session->flushers[rail];
    const uint64_t id = completion->user_data >> REQUEST_BITS;
    struct comm *comm = session->comms[id % SESSION_CHANNELS_MAX];
    if (completion->status >= 0) {
        flusher->reads++;
        flusher->failing_since_ns = 0;
    }
    if (comm == NULL || comm->id != id) {
        return;
    }
    struct request *request = &comm->requests[completion->user_data & ((1u << REQUEST_BITS) - 1)];
    if (completion->status >= 0) {
        read_is_over(request, rail, CRPC_OK);
    } else {
        request->unread |= (uint8_t)(1u << rail); /* again */
    }
}

static void take(struct session *session, uint32_t rail, const crpc_completion *completion)
{
    struct flusher *flusher = session->flushers[rail];
    switch (completion->kind) {
    case CRPC_COMPLETION_WORK:
        take_read(session, rail, completion);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0) {
            fail(flusher);
        } else {
            flusher->ready = true;
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        fail(flusher);
        break;
    default:
        break;
    }
}

void flushers_poll(struct session *session)
{
    for (uint32_t i = 0; i < session->device->rail_count; i++) {
        struct flusher *flusher = session->flushers[i];
        crpc_completion completions[COMPLETIONS];
        int32_t count = crpc_poll(flusher->context, completions, COMPLETIONS);
        for (int32_t j = 0; j < count; j++) {
            take(session, i, &completions[j]);
        }
        make_again(flusher);
    }
}

void flush_begin(struct session *session, struct request *request, const struct flush_keys *keys,
                 uintptr_t address)
{
    request->keys = keys;
    request->flush_address = address;
    request->unread = (uint8_t)((1u << session->device->rail_count) - 1);
    step(session, request);
}

void flush_step(struct session *session, struct request *request)
{
    flushers_poll(session);
    step(session, request);
}

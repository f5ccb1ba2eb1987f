/* cm.c: the life of a connection manager, of its files and of its identifiers, and the entry points
 * of cm.h. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simnic/nic/dma.h"

struct cm *cm_create(const struct cm_host *host)
{
    struct cm *cm = calloc(1, sizeof(*cm));
    if (!cm) {
        return NULL;
    }
    cm->ids = calloc(ID_COUNT, sizeof(*cm->ids));
    if (!cm->ids) {
        free(cm);
        return NULL;
    }
    cm->host = *host;
    cm->last_outgoing = &cm->first_outgoing;
    cm->random = host->now_ns(host->context) ^ ((uint64_t)host->slot << 48) ^ (uintptr_t)cm;
    cm->id_serial = cm_random(cm) & 0xffff;
    pthread_mutex_init(&cm->lock, NULL);
    pthread_cond_init(&cm->sent, NULL);
    return cm;
}

void cm_destroy(struct cm *cm)
{
    if (!cm) {
        return;
    }
    for (struct cm_file *file = cm->files, *next; file; file = next) {
        next = file->next;
        cm_file_close(file);
    }
    while (cm->first_outgoing) {
        struct outgoing *gone = cm->first_outgoing;
        cm->first_outgoing = gone->next;
        free(gone);
    }
    pthread_cond_destroy(&cm->sent);
    pthread_mutex_destroy(&cm->lock);
    free(cm->ids);
    free(cm);
}

/* Packet sequence numbers and serials must differ. They need not be unpredictable, so this is
 * SplitMix64. */
uint32_t cm_random(struct cm *cm)
{
    uint64_t z = cm->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) >> 16;
}

uint64_t cm_now(struct cm *cm)
{
    return cm->host.now_ns(cm->host.context);
}

struct cm *cm_of(const struct cm_id *id)
{
    return id->file->cm;
}

uint32_t link_of(const struct cm_id *id)
{
    return cm_of(id)->host.link;
}

bool on_infiniband(const struct cm_id *id)
{
    return link_of(id) & LINK_INFINIBAND;
}

/* Sends what a call has queued, gives the lock back, and asks for cm_run if a timer was started. */
static void leave(struct cm *cm)
{
    outbox_settle(cm);
    bool wake = cm->timers_changed;
    cm->timers_changed = false;
    pthread_mutex_unlock(&cm->lock);
    if (wake) {
        cm->host.wake(cm->host.context);
    }
}

struct cm_file *cm_file_open(struct cm *cm, int event_fd)
{
    struct cm_file *file = calloc(1, sizeof(*file));
    if (!file) {
        return NULL;
    }
    file->cm = cm;
    file->event_fd = event_fd;
    file->last = &file->first;
    pthread_cond_init(&file->changed, NULL);
    pthread_mutex_lock(&cm->lock);
    file->next = cm->files;
    cm->files = file;
    pthread_mutex_unlock(&cm->lock);
    return file;
}

static void unlink_file(struct cm_file *file)
{
    struct cm_file **at = &file->cm->files;
    while (*at != file) {
        at = &(*at)->next;
    }
    *at = file->next;
}

void cm_file_close(struct cm_file *file)
{
    struct cm *cm = file->cm;
    pthread_mutex_lock(&cm->lock);
    file->closing = true;
    pthread_cond_broadcast(&file->changed);
    while (file->users) {
        pthread_cond_wait(&file->changed, &cm->lock);
    }
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        if (cm->ids[i] && cm->ids[i]->file == file) {
            id_destroy(cm->ids[i]);
        }
    }
    unlink_file(file);
    leave(cm);
    pthread_cond_destroy(&file->changed);
    free(file);
}

void cm_file_lose_descriptor(struct cm_file *file, int event_fd)
{
    pthread_mutex_lock(&file->cm->lock);
    if (file->event_fd == event_fd) {
        file->event_fd = -1;
    }
    pthread_mutex_unlock(&file->cm->lock);
}

static int run_command(struct cm_file *file, const struct cm_call *call, uint32_t number,
                       bool nonblocking)
{
    int error = 0;
    if (number == RDMA_USER_CM_CMD_GET_EVENT) {
        return events_get(file, call, nonblocking);
    }
    cm_command *command = command_find(number, &error);
    return command ? command(call) : error;
}

static int run_locked(struct cm_file *file, const struct cm_call *call, uint32_t number,
                      bool nonblocking)
{
    struct cm *cm = file->cm;
    pthread_mutex_lock(&cm->lock);
    file->users++;
    int result = file->closing ? -EBADF : run_command(file, call, number, nonblocking);
    /* Sending lets the lock go for a while. `users` keeps the file until it is done. */
    outbox_settle(cm);
    file->users--;
    if (file->closing) {
        pthread_cond_broadcast(&file->changed);
    }
    leave(cm);
    return result;
}

static void log_unknown(struct cm *cm, uint32_t number)
{
    char text[64];
    snprintf(text, sizeof(text), "rdma_cm: unknown command %u", number);
    if (cm->host.log) {
        cm->host.log(cm->host.context, text);
    }
}

/* More than the longest command has. */
#define MOST_COMMAND_BYTES 1024

ssize_t cm_file_write(struct cm_file *file, const void *command, size_t bytes, bool nonblocking)
{
    struct cm *cm = file->cm;
    struct rdma_ucm_cmd_hdr header;
    int error = 0;
    if (bytes < sizeof(header)) {
        return -EINVAL;
    }
    if (!command || !dma_copy(&header, command, sizeof(header))) {
        return -EFAULT;
    }
    if (header.cmd != RDMA_USER_CM_CMD_GET_EVENT && !command_find(header.cmd, &error)) {
        log_unknown(cm, header.cmd);
        if (error == -EINVAL) {
            return error;
        }
    } else {
        error = 0;
    }
    if (header.in + sizeof(header) > bytes) {
        return -EINVAL;
    }
    uint8_t in[MOST_COMMAND_BYTES];
    uint32_t in_bytes = header.in < sizeof(in) ? header.in : sizeof(in);
    if (!dma_copy(in, (const char *)command + sizeof(header), in_bytes)) {
        return error ? error : -EFAULT;
    }
    struct cm_call call = {.file = file, .in = in, .in_bytes = in_bytes, .out_bytes = header.out};
    /* No thread may be cancelled while it holds the lock. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call.cancel_state);
    int result = run_locked(file, &call, header.cmd, nonblocking);
    pthread_setcancelstate(call.cancel_state, NULL);
    return result ? result : (ssize_t)bytes;
}

bool call_copy_in(const struct cm_call *call, void *to, size_t bytes)
{
    if (call->in_bytes < bytes) {
        return false;
    }
    memcpy(to, call->in, bytes);
    return true;
}

struct cm_id *call_take(const struct cm_call *call, void *command, size_t bytes, size_t id_at,
                        int *error)
{
    uint32_t number;
    *error = -EINVAL;
    if (!call_copy_in(call, command, bytes)) {
        return NULL;
    }
    memcpy(&number, (const uint8_t *)command + id_at, sizeof(number));
    return id_find(call->file, number, error);
}

int call_copy_out(uint64_t response, const void *from, size_t bytes)
{
    return response && dma_copy((void *)(uintptr_t)response, from, bytes) ? 0 : -EFAULT;
}

static int free_number(struct cm *cm)
{
    for (uint32_t i = 0; i < cm->id_limit; i++) {
        if (!cm->ids[i]) {
            return (int)i;
        }
    }
    return cm->id_limit < ID_COUNT ? (int)cm->id_limit++ : -1;
}

struct cm_id *id_new(struct cm_file *file, uint16_t port_space, uint8_t queue_pair_type)
{
    struct cm *cm = file->cm;
    struct cm_id *id = calloc(1, sizeof(*id));
    int number = id ? free_number(cm) : -1;
    if (number < 0) {
        free(id);
        return NULL;
    }
    id->number = number;
    id->file = file;
    id->port_space = port_space;
    id->queue_pair_type = queue_pair_type;
    id->rail = NO_RAIL;
    id->port_entry = PORT_NONE;
    id->packet_sequence_number = cm_random(cm) & 0xffffff;
    /* The number is used again soon, but not the serial above it. So late messages to the number's
     * former owner are known as such. */
    cm->id_serial = (cm->id_serial + 1) & 0xffff;
    if (cm->id_serial == 0) {
        cm->id_serial = 1;
    }
    id->talk.own_id = cm->id_serial << 16 | id->number;
    cm->ids[number] = id;
    return id;
}

static void release(struct cm_id *id)
{
    struct cm *cm = cm_of(id);
    talk_leave(id);
    events_drop_id(id);
    if (id->port_entry != PORT_NONE) {
        ports_release(&cm->host, id->port_entry);
    }
    while (id->groups) {
        struct cm_multicast *group = id->groups;
        id->groups = group->next;
        free(group);
    }
    cm->ids[id->number] = NULL;
    free(id);
}

void id_destroy(struct cm_id *id)
{
    struct cm_id *request;
    /* The program will not destroy the identifier of a request that it has not read. */
    while ((request = events_take_request(id))) {
        release(request);
    }
    release(id);
}

struct cm_id *id_find_any(struct cm_file *file, uint32_t number, int *error)
{
    struct cm *cm = file->cm;
    struct cm_id *id = number < ID_COUNT ? cm->ids[number] : NULL;
    *error = !id || id->hidden ? -ENOENT : id->file != file ? -EINVAL : 0;
    return *error ? NULL : id;
}

struct cm_id *id_find(struct cm_file *file, uint32_t number, int *error)
{
    struct cm_id *id = id_find_any(file, number, error);
    if (id && id->unplugged) {
        *error = -ENXIO;
        return NULL;
    }
    return id;
}

/* Whether a message is of a process that has the slot, or had it. One that has ended is heard too: it
 * sent this before. But once its successor has spoken, nothing more can come from it. */
static bool take_speaker(struct cm *cm, uint32_t slot, uint32_t generation)
{
    uint32_t now = cm->host.generation(cm->host.context, slot);
    if (slot >= SLOT_COUNT || generation == 0 || (int32_t)(now - generation) < 0 ||
        (cm->heard[slot] && (int32_t)(generation - cm->heard[slot]) < 0)) {
        return false;
    }
    cm->heard[slot] = generation;
    return true;
}

void cm_receive(struct cm *cm, uint32_t source_slot, const void *message, size_t bytes)
{
    struct cm_message copy;
    if (bytes != sizeof(copy)) {
        return;
    }
    memcpy(&copy, message, sizeof(copy));
    if (copy.magic != CM_MESSAGE_MAGIC || copy.bytes != sizeof(copy) ||
        copy.private_length > sizeof(copy.private_data)) {
        return;
    }
    struct cm_host *host = &cm->host;
    if (copy.destination_generation != host->generation(host->context, host->slot)) {
        return;
    }
    pthread_mutex_lock(&cm->lock);
    if (take_speaker(cm, source_slot, copy.source_generation)) {
        receive_message(cm, source_slot, &copy);
    }
    outbox_flush(cm);
    pthread_mutex_unlock(&cm->lock);
}

uint64_t cm_run(struct cm *cm)
{
    pthread_mutex_lock(&cm->lock);
    cm->resend_due = 0;
    uint64_t next = timers_run(cm, cm_now(cm));
    cm->timers_changed =
        false; /* `next` counts all; a timer that is added during the flush asks again */
    outbox_flush(cm);
    if (cm->resend_due && cm->resend_due < next) {
        next = cm->resend_due;
    }
    pthread_mutex_unlock(&cm->lock);
    return next;
}

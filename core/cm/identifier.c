/* identifier.c: the life of a listener or connection: made, described, destroyed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/internal.h"

struct cm_identifier *cm_identifier_new(struct cm *cm, void *owner)
{
    struct cm_identifier *identifier = calloc(1, sizeof(*identifier));
    if (!identifier) {
        return NULL;
    }
    identifier->cm = cm;
    identifier->owner = owner;
    identifier->read_depth_out = cm->read_depth_out;
    identifier->read_depth_in = cm->read_depth_in;
    list_init(&identifier->work_link);
    pthread_mutex_lock(&cm->mutex);
    cm->identifiers++;
    pthread_mutex_unlock(&cm->mutex);
    return identifier;
}

struct cm_identifier *cm_identifier_new_to(struct cm *cm, void *owner,
                                           const struct address_name *name)
{
    struct cm_search *search = calloc(1, sizeof(*search));
    struct cm_identifier *identifier = search ? cm_identifier_new(cm, owner) : NULL;
    if (!identifier) {
        free(search);
        return NULL;
    }
    search->name = *name;
    search->best_error.struct_size = sizeof(search->best_error);
    identifier->search = search;
    return identifier;
}

void cm_search_end(struct cm_identifier *identifier)
{
    struct cm_search *search = identifier->search;
    if (search && search->addresses) {
        freeaddrinfo(search->addresses);
    }
    free(search);
    identifier->search = NULL;
}

void cm_identifier_free(struct cm_identifier *identifier)
{
    struct cm *cm = identifier->cm;
    cm_hand_over_answered(identifier);
    cm_search_end(identifier);
    free(identifier);
    pthread_mutex_lock(&cm->mutex);
    cm->identifiers--;
    pthread_mutex_unlock(&cm->mutex);
}

void cm_own(struct cm_identifier *identifier, void *owner)
{
    pthread_mutex_lock(&identifier->cm->mutex);
    identifier->owner = owner;
    pthread_mutex_unlock(&identifier->cm->mutex);
}

/* ---- Destruction ----------------------------------------------------------------------------- */

/* From here on the cm thread does not touch it. */
static void take_back(struct cm_identifier *identifier)
{
    struct cm *cm = identifier->cm;
    pthread_mutex_lock(&cm->mutex);
    identifier->dying = true;
    list_remove(&identifier->work_link);
    while (cm->busy == identifier) {
        pthread_cond_wait(&cm->idle, &cm->mutex);
    }
    pthread_mutex_unlock(&cm->mutex);
    cm_lookup_cancel(identifier);
}

void cm_discard(struct list *events)
{
    struct list *link = events->next;
    while (link != events) {
        struct queued_event *queued = list_entry(link, struct queued_event, link);
        link = link->next;
        if (queued->event.kind == CM_EVENT_CONNECT_REQUEST) {
            cm_reject(queued->event.identifier, NULL, 0);
            cm_destroy(queued->event.identifier);
        }
        free(queued);
    }
}

void cm_destroy(struct cm_identifier *identifier)
{
    struct list purged;
    if (!identifier) {
        return;
    }
    take_back(identifier);
    if (identifier->id) {
        rdma_destroy_id(identifier->id);
    }
    cm_queue_purge(identifier->cm, identifier, &purged);
    cm_discard(&purged);
    cm_identifier_free(identifier);
}

/* ---- Addresses ------------------------------------------------------------------------------- */

void cm_note_addresses(struct cm_identifier *identifier)
{
    char local[ADDRESS_TEXT_BYTES], peer[ADDRESS_TEXT_BYTES];
    address_format(rdma_get_local_addr(identifier->id), local, sizeof(local));
    address_format(rdma_get_peer_addr(identifier->id), peer, sizeof(peer));
    pthread_mutex_lock(&identifier->cm->mutex);
    memcpy(identifier->local, local, sizeof(local));
    memcpy(identifier->peer, peer, sizeof(peer));
    pthread_mutex_unlock(&identifier->cm->mutex);
}

static void copy_text(const struct cm_identifier *identifier, const char *from, char *text,
                      size_t bytes)
{
    pthread_mutex_lock(&identifier->cm->mutex);
    snprintf(text, bytes, "%s", from);
    pthread_mutex_unlock(&identifier->cm->mutex);
}

void cm_local_address(const struct cm_identifier *identifier, char *text, size_t bytes)
{
    copy_text(identifier, identifier->local, text, bytes);
}

void cm_peer_address(const struct cm_identifier *identifier, char *text, size_t bytes)
{
    copy_text(identifier, identifier->peer, text, bytes);
}

uint16_t cm_local_port(const struct cm_identifier *identifier)
{
    return identifier->id ? ntohs(rdma_get_src_port(identifier->id)) : 0;
}

/* internal.h: what the files of core/link share. */
#ifndef CORE_LINK_INTERNAL_H
#define CORE_LINK_INTERNAL_H

#include <assert.h>

#include "link/link.h"

struct link_listener {
    struct link_group *group;
    struct cm_identifier *identifier;
    uint64_t handle;
    uint64_t user_data;
    uint64_t requests;
    uint64_t refused;
    uint32_t backlog;
    uint32_t waiting; /* its links; those whose peers gave up hold a handle, too, until they end */
    struct list all_link;
};

/* connect.c */
/* Returns CRPC_OK if the group can connect by rdma_cm; otherwise fills *error. */
int32_t link_need_cm(const struct link_group *group, crpc_error *error);
/* Creates and prepares a link. */
int32_t link_make(struct link_group *group, const void *options, struct link **link,
                  crpc_error *error);
/* Prepares a link, and what compares keys if it has one. Without a key, exposes it. */
int32_t link_prepare(struct link *link, const void *options, crpc_error *error);
/* Fills *error: the link does not wait to be accepted or rejected. */
int32_t link_no_request(const struct link *link, const char *what, crpc_error *error);
/* Attaches the link, unless the peer has to prove its key first. */
int32_t link_attach(struct link *link, crpc_error *error);
/* Sets the state CONNECTING and starts the connect timeout. */
void link_begin(struct link *link);

/* Notes the private data that came from the peer of a plain link. */
void link_take_private(struct link_peer *peer, const struct cm_event *event);

/* listen.c */
void link_take_request(struct link_listener *listener, const struct cm_event *event);
void link_take_handed_over(struct link_group *group, const struct cm_event *event);
/* The link no longer waits to be accepted. Does nothing if it never did. */
void link_forget_listener(struct link *link);

/* task.c */
void link_take_task_event(const struct cm_event *event);
/* Ends those tasks of a closed link that have not begun: it need not wait for its turn to end. */
void link_tasks_forget(struct link *link);
/* Drops all tasks of the group, without calling `ended`: of those that have begun, waits for the end. */
void link_tasks_drop(struct link_group *group);

/* life.c */
void link_life_timer(struct link *link);

#endif

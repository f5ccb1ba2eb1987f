/* internal.h: what the files of core/link ask of each other. */
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
    uint32_t waiting; /* links REQUESTED of it */
    struct list all_link;
};

/* connect.c */
/* CRPC_OK if the group can connect by rdma_cm. */
int32_t link_need_cm(const struct link_group *group, crpc_error *error);
/* Creates and prepares one. */
int32_t link_make(struct link_group *group, const void *options, struct link **link,
                  crpc_error *error);
/* It is CONNECTING, and has connect_timeout_ns from now on. */
void link_begin(struct link *link);

/* listen.c */
void link_take_request(struct link_listener *listener, const struct cm_event *event);
/* The link does not wait to be accepted any more. Allowed for one that never did. */
void link_forget_listener(struct link *link);

/* life.c */
void link_life_timer(struct link *link);

#endif

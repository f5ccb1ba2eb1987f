/* connection.h: the functions that endpoints, channels and RC queues have in common. They only differ
 * in their options.
 */
#ifndef CAPI_CONNECTION_H
#define CAPI_CONNECTION_H

#include "link/link.h"
#include "private/context.h"
#include "queue/queue.h"

/* The options of a connection of any kind. */
union connection_options {
    crpc_endpoint_options endpoint;
    crpc_channel_options channel;
    struct queue_options queue;
};

struct connection_kind {
    enum handle_kind handle_kind;
    /* Returns the context's links of this kind; NULL, with *error filled, if it has none. */
    struct link_group *(*links)(const crpc_context *context, crpc_error *error);
    /* link_connect, or what takes its place. Checks the address. */
    int32_t (*connect)(struct link_group *links, const char *address,
                       const union connection_options *options, struct link **link,
                       crpc_error *error);
    /* Copies and checks the caller's options, and replaces zeros that mean a default. */
    int32_t (*take_options)(const crpc_context *context, union connection_options *ours,
                            const void *theirs, crpc_error *error);
    /* Optional: why the link has ended, if that is not link->error. */
    const crpc_error *(*error_of)(const struct link *link);
};

/* For connection_kind.connect: link_connect. */
int32_t connection_start(struct link_group *links, const char *address,
                         const union connection_options *options, struct link **link,
                         crpc_error *error);

/* The bodies of crpc_KIND_connect and so on. `handle` is where the caller wants the handle, or the
 * handle itself. All functions check their arguments. */
int32_t connection_connect(const struct connection_kind *kind, crpc_context *context,
                           const char *address, const void *options, uint64_t *handle,
                           crpc_error *error);
int32_t connection_accept(const struct connection_kind *kind, crpc_context *context,
                          uint64_t handle, const void *options, crpc_error *error);
int32_t connection_reject(const struct connection_kind *kind, crpc_context *context,
                          uint64_t handle, uint32_t reason);
int32_t connection_hand_over(const struct connection_kind *kind, crpc_context *context,
                             uint64_t handle, crpc_context *to, uint64_t user_data,
                             crpc_error *error);
int32_t connection_blob(const struct connection_kind *kind, crpc_context *context,
                        const void *options, uint64_t *handle, void *blob, uint32_t *blob_bytes,
                        crpc_error *error);
int32_t connection_join(const struct connection_kind *kind, crpc_context *context, uint64_t handle,
                        const void *blob, uint32_t blob_bytes, crpc_error *error);
int32_t connection_disconnect(const struct connection_kind *kind, crpc_context *context,
                              uint64_t handle, uint64_t timeout_ns);
int32_t connection_close(const struct connection_kind *kind, crpc_context *context,
                         uint64_t handle);
int32_t connection_get_error(const struct connection_kind *kind, crpc_context *context,
                             uint64_t handle, crpc_error *error);

#endif

/* connection.c: see connection.h. */
#include <string.h>

#include "base/error.h"
#include "private/connection.h"
#include "private/copyin.h"
#include "private/options.h"

static struct link *link_of(const struct connection_kind *kind, const crpc_context *context,
                            uint64_t handle)
{
    return handles_get(&context->handles, handle, kind->handle_kind);
}

/* The caller's key does not stay on the stack. */
static void forget(union connection_options *options)
{
    explicit_bzero(options, sizeof(*options));
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static int32_t connect_link(const struct connection_kind *kind, const crpc_context *context,
                            const char *address, const void *theirs, uint64_t *handle,
                            crpc_error *error)
{
    union connection_options options;
    struct link *link;
    struct link_group *links = kind->links(context, error);
    if (!links) {
        return error->status;
    }
    int32_t status = kind->take_options(context, &options, theirs, error);
    if (status == CRPC_OK) {
        status = kind->connect(links, address, &options, &link, error);
    }
    forget(&options);
    if (status == CRPC_OK) {
        *handle = link->handle;
    }
    return status;
}

int32_t connection_start(struct link_group *links, const char *address,
                         const union connection_options *options, struct link **link,
                         crpc_error *error)
{
    const int32_t status = options_check_address(address, error);
    return status == CRPC_OK ? link_connect(links, address, options, link, error) : status;
}

int32_t connection_connect(const struct connection_kind *kind, crpc_context *context,
                           const char *address, const void *options, uint64_t *handle,
                           crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && handle
                         ? connect_link(kind, context, address, options, handle, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

static int32_t accept_link(const struct connection_kind *kind, const crpc_context *context,
                           uint64_t handle, const void *theirs, crpc_error *error)
{
    union connection_options options;
    struct link *link = link_of(kind, context, handle);
    if (!link) {
        return CRPC_E_STALE;
    }
    int32_t status = kind->take_options(context, &options, theirs, error);
    if (status == CRPC_OK) {
        status = link_accept(link, &options, error);
    }
    forget(&options);
    return status;
}

int32_t connection_accept(const struct connection_kind *kind, crpc_context *context,
                          uint64_t handle, const void *options, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status =
        context ? accept_link(kind, context, handle, options, &failure) : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t connection_reject(const struct connection_kind *kind, crpc_context *context,
                          uint64_t handle, uint32_t reason)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct link *link = link_of(kind, context, handle);
    return link ? link_reject(link, reason) : CRPC_E_STALE;
}

static int32_t hand_over_link(const struct connection_kind *kind, const crpc_context *context,
                              uint64_t handle, const crpc_context *to, uint64_t user_data,
                              crpc_error *error)
{
    if (context == to) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "the request is this context's already: accept it here");
    }
    struct link *link = link_of(kind, context, handle);
    if (!link) {
        return CRPC_E_STALE;
    }
    crpc_error lacks = {0};
    struct link_group *links = kind->links(to, &lacks);
    return links ? link_hand_over(link, links, user_data, error)
                 : error_set(error, lacks.status, 0, "the context to hand over to: %s",
                             lacks.message);
}

int32_t connection_hand_over(const struct connection_kind *kind, crpc_context *context,
                             uint64_t handle, crpc_context *to, uint64_t user_data,
                             crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && to ? hand_over_link(kind, context, handle, to, user_data, &failure)
                                   : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

static int32_t make_blob(const struct connection_kind *kind, const crpc_context *context,
                         const void *theirs, uint64_t *handle, void *blob, uint32_t *blob_bytes,
                         crpc_error *error)
{
    union connection_options options;
    struct link *link;
    struct link_group *links = kind->links(context, error);
    if (!links) {
        return error->status;
    }
    int32_t status = kind->take_options(context, &options, theirs, error);
    if (status == CRPC_OK && *blob_bytes < LINK_BLOB_BYTES) {
        *blob_bytes = LINK_BLOB_BYTES;
        status =
            error_set(error, CRPC_E_TOO_BIG, 0, "a blob needs %d bytes of room", LINK_BLOB_BYTES);
    } else if (status == CRPC_OK) {
        status = link_blob(links, &options, &link, blob, error);
        if (status == CRPC_OK) {
            *blob_bytes = LINK_BLOB_BYTES;
            *handle = link->handle;
        }
    }
    forget(&options);
    return status;
}

int32_t connection_blob(const struct connection_kind *kind, crpc_context *context,
                        const void *options, uint64_t *handle, void *blob, uint32_t *blob_bytes,
                        crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && handle && blob && blob_bytes
                         ? make_blob(kind, context, options, handle, blob, blob_bytes, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t connection_join(const struct connection_kind *kind, crpc_context *context, uint64_t handle,
                        const void *blob, uint32_t blob_bytes, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context && blob) {
        struct link *link = link_of(kind, context, handle);
        status = link ? link_join(link, blob, blob_bytes, &failure) : CRPC_E_STALE;
    }
    return give_error(error, &failure, status);
}

/* ---- Parting and asking ---------------------------------------------------------------------- */

int32_t connection_disconnect(const struct connection_kind *kind, crpc_context *context,
                              uint64_t handle, uint64_t timeout_ns)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct link *link = link_of(kind, context, handle);
    return link ? link_disconnect(link, timeout_ns) : CRPC_E_STALE;
}

int32_t connection_close(const struct connection_kind *kind, crpc_context *context, uint64_t handle)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct link *link = link_of(kind, context, handle);
    if (!link) {
        return CRPC_E_STALE;
    }
    link_close(link);
    return CRPC_OK;
}

int32_t connection_get_error(const struct connection_kind *kind, crpc_context *context,
                             uint64_t handle, crpc_error *error)
{
    if (!context || COPYOUT_CHECK(error, error) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct link *link = link_of(kind, context, handle);
    if (!link) {
        return CRPC_E_STALE;
    }
    COPYOUT(error, kind->error_of ? kind->error_of(link) : &link->error, error);
    return CRPC_OK;
}

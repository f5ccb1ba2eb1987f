/* listener.c: listeners, for the caller. */
#include "base/error.h"
#include "link/link.h"
#include "private/context.h"
#include "private/copyin.h"
#include "private/options.h"

#define BACKLOG_DEFAULT 128u

/* ---- Open ------------------------------------------------------------------------------------ */

static int32_t take_options(crpc_listener_options *options, const crpc_listener_options *theirs,
                            crpc_error *error)
{
    int32_t status = COPYIN(options, theirs, listener_options, error);
    if (status != CRPC_OK) {
        return status;
    }
    const uint32_t kinds = CRPC_LISTENER_CHANNELS | CRPC_LISTENER_QUEUES;
    if (options->flags & ~kinds || options->reserved != 0 || options->backlog > INT32_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "reserved bits of crpc_listener_options are set");
    }
    if ((options->flags & kinds) == kinds) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "a listener accepts channels or queues, and not both");
    }
    default32(&options->backlog, BACKLOG_DEFAULT);
    return CRPC_OK;
}

static int32_t open_listener(crpc_context *context, const char *address,
                             const crpc_listener_options *theirs, crpc_listener *out,
                             crpc_error *error)
{
    crpc_listener_options options;
    int32_t status = options_check_address(address, error);
    if (status == CRPC_OK) {
        status = take_options(&options, theirs, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    struct link_group *links =
        options.flags & CRPC_LISTENER_CHANNELS ? context_channel_links(context, error)
        : options.flags & CRPC_LISTENER_QUEUES ? context_queue_links(context, error)
                                               : rpc_links(context->engine);
    if (!links) {
        return error->status;
    }
    struct link_listener *listener;
    status =
        link_listener_open(links, address, options.backlog, options.user_data, &listener, error);
    if (status == CRPC_OK) {
        out->bits = link_listener_handle(listener);
    }
    return status;
}

int32_t crpc_listener_open(crpc_context *context, const char *address,
                           const crpc_listener_options *options, crpc_listener *listener,
                           crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && listener
                         ? open_listener(context, address, options, listener, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

/* ---- Ask and close --------------------------------------------------------------------------- */

static struct link_listener *listener_of(const crpc_context *context, crpc_listener listener)
{
    return handles_get(&context->handles, listener.bits, HANDLE_LISTENER);
}

int32_t crpc_listener_get_info(crpc_context *context, crpc_listener listener,
                               crpc_listener_info *info)
{
    return COPYOUT_OF(context, listener_of(context, listener), info, listener_info,
                      link_listener_info);
}

int32_t crpc_listener_close(crpc_context *context, crpc_listener listener)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct link_listener *object = listener_of(context, listener);
    if (!object) {
        return CRPC_E_STALE;
    }
    link_listener_close(object);
    return CRPC_OK;
}

int32_t crpc_listener_drain(crpc_context *context, crpc_listener listener, uint64_t timeout_ns)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct link_listener *object = listener_of(context, listener);
    return object ? (int32_t)link_listener_drain(object, timeout_ns) : CRPC_E_STALE;
}

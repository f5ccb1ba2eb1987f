/* listener.c: listeners of both kinds, for the caller. */
#include "base/error.h"
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
    if (options->flags & ~CRPC_LISTENER_CHANNELS || options->reserved != 0 ||
        options->backlog > INT32_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "reserved bits of crpc_listener_options are set");
    }
    default32(&options->backlog, BACKLOG_DEFAULT);
    return CRPC_OK;
}

static int32_t open_for_endpoints(crpc_context *context, const char *address,
                                  const crpc_listener_options *options, crpc_listener *out,
                                  crpc_error *error)
{
    struct rpc_listener *listener;
    int32_t status = rpc_listener_open(context->engine, address, options->backlog,
                                       options->user_data, &listener, error);
    if (status == CRPC_OK) {
        out->bits = rpc_listener_handle(listener);
    }
    return status;
}

static int32_t open_for_channels(crpc_context *context, const char *address,
                                 const crpc_listener_options *options, crpc_listener *out,
                                 crpc_error *error)
{
    struct stripe_listener *listener;
    int32_t status = context_check_rails(context, error);
    if (status == CRPC_OK) {
        status = stripe_listener_open(context->stripe, address, options->backlog,
                                      options->user_data, &listener, error);
    }
    if (status == CRPC_OK) {
        out->bits = stripe_listener_handle(listener);
    }
    return status;
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
    return options.flags & CRPC_LISTENER_CHANNELS
               ? open_for_channels(context, address, &options, out, error)
               : open_for_endpoints(context, address, &options, out, error);
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

static struct rpc_listener *listener_of(const crpc_context *context, crpc_listener listener)
{
    return handles_get(context->handles, listener.bits, HANDLE_LISTENER);
}

static struct stripe_listener *channel_listener_of(const crpc_context *context,
                                                   crpc_listener listener)
{
    return handles_get(context->handles, listener.bits, HANDLE_CHANNEL_LISTENER);
}

int32_t crpc_listener_get_info(crpc_context *context, crpc_listener listener,
                               crpc_listener_info *info)
{
    if (!context || COPYOUT_CHECK(info, listener_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct rpc_listener *of_endpoints = listener_of(context, listener);
    const struct stripe_listener *of_channels = channel_listener_of(context, listener);
    crpc_listener_info ours;
    if (of_endpoints) {
        rpc_listener_info(of_endpoints, &ours);
    } else if (of_channels) {
        stripe_listener_info(of_channels, &ours);
    } else {
        return CRPC_E_STALE;
    }
    COPYOUT(info, &ours, listener_info);
    return CRPC_OK;
}

int32_t crpc_listener_close(crpc_context *context, crpc_listener listener)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_listener *of_endpoints = listener_of(context, listener);
    struct stripe_listener *of_channels = channel_listener_of(context, listener);
    if (of_endpoints) {
        rpc_listener_close(of_endpoints);
    } else if (of_channels) {
        stripe_listener_close(of_channels);
    } else {
        return CRPC_E_STALE;
    }
    return CRPC_OK;
}

/* rails.c: choosing, opening and describing the rails: the ports that channels stripe over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "cm/cm.h"
#include "private/context.h"
#include "private/copyin.h"

#define PORT_MAX 255
#define NO_RAIL "none" /* in rails[1] */

/* What to open: a port, with one driver or (CRPC_DRIVER_AUTO) the best. */
struct rail_choice {
    char device[64];
    uint32_t port; /* 0 = the first active */
    uint32_t driver;
    bool gid_index_given;
    uint32_t gid_index;
};

/* ---- What the caller names ------------------------------------------------------------------- */

/* "name" or "name:port". */
static int32_t parse_name(const char *text, uint32_t index, struct rail_choice *choice,
                          crpc_error *error)
{
    const char *colon = strchr(text, ':');
    size_t bytes = colon ? (size_t)(colon - text) : strlen(text);
    memcpy(choice->device, text, bytes);
    choice->device[bytes] = '\0';
    if (bytes == 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "rails[%u] is \"%s\", without a device; say \"name\" or \"name:port\"",
                         index, text);
    }
    if (!colon) {
        return CRPC_OK;
    }
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port == 0 || port > PORT_MAX) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "rails[%u] is \"%s\": after the colon comes a port, 1 to %d", index, text,
                         PORT_MAX);
    }
    choice->port = (uint32_t)port;
    return CRPC_OK;
}

static void take_gid_index(const crpc_context_options *options, struct rail_choice *choice)
{
    choice->gid_index_given = options->flags & CRPC_CONTEXT_RAILS_GID_INDEX;
    choice->gid_index = choice->gid_index_given ? options->gid_index : 0;
}

/* The caller's gid_index is one of the context's port, and counts for no other without CRPC_CONTEXT_RAILS_GID_INDEX. */
static int32_t take_name(const struct crpc_context *context, const crpc_context_options *options,
                         uint32_t index, struct rail_choice *choice, crpc_error *error)
{
    const struct nic *nic = context->nic;
    int32_t status = parse_name(options->rails[index], index, choice, error);
    if (status == CRPC_OK && strcmp(choice->device, nic->device) == 0 &&
        (choice->port == nic->port || choice->port == options->port)) {
        choice->gid_index_given = true;
        choice->gid_index = nic->gid_index;
    } else {
        take_gid_index(options, choice);
    }
    return status;
}

/* ---- Opening one ----------------------------------------------------------------------------- */

static struct nic_options nic_options_of(const struct rail_choice *choice,
                                         const crpc_context_options *options, bool automatic)
{
    struct nic_options wanted = context_nic_options(options, automatic);
    wanted.port = choice->port;
    wanted.gid_index_given = choice->gid_index_given;
    wanted.gid_index = choice->gid_index;
    wanted.receive_depth = options->rail_receive_depth;
    wanted.send_depth = CHANNEL_SEND_DEPTH;
    wanted.send_completion_depth =
        options->channels_max * options->rail_queue_pairs_max * nic_send_places(CHANNEL_SEND_DEPTH);
    wanted.signal_interval = CHANNEL_SIGNAL_INTERVAL;
    wanted.inline_bytes = CHANNEL_INLINE_BYTES;
    wanted.pieces = 1;
    memcpy(wanted.device, choice->device, sizeof(wanted.device));
    return wanted;
}

static int32_t open_rail(struct crpc_context *context, const struct rail_choice *choice,
                         const crpc_context_options *options, crpc_error *error)
{
    struct nic_options wanted = nic_options_of(choice, options, context->nic->automatic);
    crpc_error failure = {0};
    struct nic *nic;
    int32_t status = nic_open(choice->driver, &wanted, &nic, &failure);
    if (status != CRPC_OK) {
        error_set(error, status, failure.os_error, "rail %u: %s", context->rails.nic_count,
                  failure.message);
        if (error) {
            error->vendor_syndrome = failure.vendor_syndrome;
        }
        return status;
    }
    nic->log = &context->log;
    if (strcmp(nic->device, context->nic->device) != 0) {
        context_tell_left_out(context, nic);
    }
    if (!nic->windows) {
        log_write(
            &context->log, CRPC_LOG_WARNING,
            "rail %u: %s has no memory windows of type 2B, so the peers of channels can write to "
            "memory as long as it is registered",
            context->rails.nic_count, nic->device);
    }
    ordering_apply(options, nic);
    context->rails.nics[context->rails.nic_count++] = nic;
    return CRPC_OK;
}

/* ---- Rail 0: what is named, or the context's port -------------------------------------------- */

static int32_t open_rail0(struct crpc_context *context, const crpc_context_options *options,
                          uint32_t driver, crpc_error *error)
{
    struct rail_choice choice = {.driver = driver};
    if (strcmp(options->rails[0], NO_RAIL) == 0) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "rails[0] is \"none\", which only rails[1] can be: name a device, or leave "
            "rails[0] empty for the context's own port");
    }
    if (options->rails[0][0] != '\0') {
        int32_t status = take_name(context, options, 0, &choice, error);
        return status == CRPC_OK ? open_rail(context, &choice, options, error) : status;
    }
    const struct nic *nic = context->nic;
    choice.driver = nic->operations->driver;
    choice.port = nic->port;
    choice.gid_index_given = true;
    choice.gid_index = nic->gid_index;
    memcpy(choice.device, nic->device, sizeof(choice.device));
    return open_rail(context, &choice, options, error);
}

/* ---- Rail 1: what is named, or a port of another HCA, or none -------------------------------- */

/* Ports whose HCA is not known count as being on one only if they have one name. */
static bool same_hca(const char *device, uint64_t guid, const struct nic *rail)
{
    return strcmp(device, rail->device) == 0 || (guid != 0 && guid == rail->system_image_guid);
}

static int32_t open_named_rail1(struct crpc_context *context, const crpc_context_options *options,
                                uint32_t driver, crpc_error *error)
{
    struct rail_choice choice = {.driver = driver};
    int32_t status = take_name(context, options, 1, &choice, error);
    if (status == CRPC_OK) {
        status = open_rail(context, &choice, options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    const struct nic *first = context->rails.nics[0];
    const struct nic *second = context->rails.nics[1];
    if (strcmp(first->device, second->device) == 0 && first->port == second->port) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "both rails are port %u of %s; name another port, leave rails[1] empty, or "
            "ask for one rail with \"none\"",
            second->port, second->device);
    }
    if (same_hca(second->device, second->system_image_guid, first)) {
        log_write(&context->log, CRPC_LOG_WARNING,
                  "the rails are two ports of one HCA, %s:%u and %s:%u, and share its PCIe slot",
                  first->device, first->port, second->device, second->port);
    }
    return CRPC_OK;
}

static bool fits_rail0(const crpc_device_info *info, const struct nic *rail0)
{
    return info->port_state == CRPC_PORT_ACTIVE && info->link == rail0->link &&
           nic_can_open(rail0->operations, info) &&
           !same_hca(info->name, info->system_image_guid, rail0);
}

static void find_rail1(struct crpc_context *context, const crpc_context_options *options)
{
    const struct nic *rail0 = context->rails.nics[0];
    crpc_device_info info = {.struct_size = sizeof(info)};
    int32_t status;
    for (uint32_t i = 0; (status = nic_query(i, &info, NULL)) != CRPC_E_NO_DEVICE; i++) {
        /* A port that cannot be asked is left out: nobody asked for a second rail by name. */
        if (status != CRPC_OK || !fits_rail0(&info, rail0)) {
            continue;
        }
        struct rail_choice choice = {.port = info.port, .driver = rail0->operations->driver};
        crpc_error failure = {0};
        memcpy(choice.device, info.name, sizeof(choice.device));
        take_gid_index(options, &choice);
        if (open_rail(context, &choice, options, &failure) == CRPC_OK) {
            return;
        }
        log_write(&context->log, CRPC_LOG_WARNING, "%s port %u is left out: %s", info.name,
                  info.port, failure.message);
    }
    log_write(&context->log, CRPC_LOG_INFO,
              "there is one rail, %s:%u: no other HCA has an active port with the same link",
              rail0->device, rail0->port);
}

/* ---- All ------------------------------------------------------------------------------------- */

int32_t context_open_rails(struct crpc_context *context, const crpc_context_options *options,
                           uint32_t driver, crpc_error *error)
{
    context->rails.log = &context->log;
    context->rails.windows = true;
    context->rails.told = true;
    context->rail_queue_pairs_max = options->rail_queue_pairs_max;
    int32_t status = open_rail0(context, options, driver, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (options->rails[1][0] == '\0') {
        find_rail1(context, options);
    } else if (strcmp(options->rails[1], NO_RAIL) != 0) {
        status = open_named_rail1(context, options, driver, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    context_open_cm(context, context->rails.nics, context->rails.nic_count, &context->rail_cm);
    status = registration_cache_create(&context->rails, &context->cache, error);
    if (status != CRPC_OK) {
        return status;
    }
    return channel_engine_create(context->rails.nics, context->rails.nic_count, context->rail_cm,
                                 &context->log, &context->handles, options->channels_max, NULL,
                                 &context->channels, error);
}

void context_stop_rails(struct crpc_context *context)
{
    if (context->channels) {
        channel_engine_destroy(context->channels);
        context->channels = NULL;
    }
    registration_cache_destroy(context->cache);
    context->cache = NULL;
}

void context_close_rails(struct crpc_context *context)
{
    if (context->rail_cm) {
        cm_close(context->rail_cm);
    }
    for (uint32_t i = 0; i < context->rails.nic_count; i++) {
        context->rails.nics[i]->operations->close(context->rails.nics[i]);
    }
}

int32_t context_check_rails(const struct crpc_context *context, crpc_error *error)
{
    if (likely(context->channels)) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_STATE, 0,
                     "this context has no rails: open the context with CRPC_CONTEXT_RAILS");
}

int32_t crpc_rail_get_info(crpc_context *context, uint32_t index, crpc_rail_info *info)
{
    if (!context || COPYOUT_CHECK(info, rail_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    if (index >= context->rails.nic_count) {
        return CRPC_E_NOT_FOUND;
    }
    const struct nic *nic = context->rails.nics[index];
    crpc_rail_info ours = {
        .index = index,
        .port = nic->port,
        .link = nic->link,
        .link_mbps = nic->link_mbps,
        .mtu_bytes = nic->mtu_bytes,
        .gid_index = nic->gid_index,
        .driver = nic->operations->driver,
        .system_image_guid = nic->system_image_guid,
        .receive_depth = nic->receive_depth,
        .receives_left = channel_receives_left(context->channels, index),
        .receive_wqes = nic->receive_wqes,
        .receives_completed = channel_receives_completed(context->channels, index),
        .message_bytes_max = channel_send_bytes_max(context->channels),
        .queue_pairs_max = nic->send_completion_depth / nic_send_places(nic->send_depth),
        .last_wqes_missed = nic->last_wqes_missed,
    };
    memcpy(ours.device, nic->device, sizeof(ours.device));
    memcpy(ours.gid, nic->gid, sizeof(ours.gid));
    COPYOUT(info, &ours, rail_info);
    return CRPC_OK;
}

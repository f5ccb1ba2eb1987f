/* context.c: opening, closing and asking a context; devices. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <errno.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/lines.h"
#include "cm/cm.h"
#include "nic/initiators.h"
#include "private/context.h"
#include "private/copyin.h"
#include "private/flight.h"
#include "private/options.h"

#define ENDPOINTS_MAX_DEFAULT 256u
#define ENDPOINTS_MAX_LIMIT (1u << 18)
#define RECEIVE_DEPTH_DEFAULT 24576u
/* The first batch windows of all endpoints, of 2 at least, are two thirds of as many. */
#define RECEIVES_PER_ENDPOINT 3u
#define RECEIVE_DEPTH_LIMIT (1u << 24)
/* With the place of a NOP 63 WQEs of at most 256 bytes, so 16 KiB with mlx5. 256 queue pairs have a completion queue of 16,128 entries,
 * which is as long as a power of two has room for. */
#define SEND_DEPTH 62u
#define SIGNAL_INTERVAL_DEFAULT 64u
#define SIGNAL_INTERVAL_MAX 64u /* the nic lowers it to half of the send queue */
#define RAIL_RECEIVE_DEPTH_DEFAULT 8192u
#define RAIL_RECEIVE_DEPTH_MIN 18u /* of which a channel with one slot takes two thirds */
#define CHANNELS_MAX_DEFAULT 64u
#define CHANNELS_MAX_LIMIT (1u << 16)
#define QUEUES_MAX_DEFAULT 256u
#define QUEUES_MAX_LIMIT (1u << 16)
#define INITIATORS_MAX 1024u

int32_t crpc_device_query(uint32_t index, crpc_device_info *info, crpc_error *error)
{
    crpc_device_info ours = {.struct_size = sizeof(ours)};
    crpc_error failure = {0};
    if (!error_usable(error) || COPYOUT_CHECK(info, device_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    int32_t status = nic_query(index, &ours, &failure);
    if (status == CRPC_OK) {
        COPYOUT(info, &ours, device_info);
    }
    return give_error(error, &failure, status);
}

/* ---- Open ------------------------------------------------------------------------------------ */

static int32_t check_no_rails(const crpc_context_options *options, crpc_error *error)
{
    if (options->rails[0][0] || options->rails[1][0] || options->rail_receive_depth != 0 ||
        options->channels_max != 0 || options->rail_queue_pairs_max != 0) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "rails, rail_receive_depth, channels_max and rail_queue_pairs_max are only "
            "used with the flag CRPC_CONTEXT_RAILS");
    }
    return CRPC_OK;
}

static int32_t check_rails(const crpc_context_options *options, crpc_error *error)
{
    if (!(options->flags & CRPC_CONTEXT_RAILS)) {
        return check_no_rails(options, error);
    }
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        if (!memchr(options->rails[i], 0, sizeof(options->rails[i]))) {
            return error_set(error, CRPC_E_INVALID, 0, "rails[%u] is not zero-terminated", i);
        }
    }
    if (options->rail_receive_depth != 0 && (options->rail_receive_depth < RAIL_RECEIVE_DEPTH_MIN ||
                                             options->rail_receive_depth > RECEIVE_DEPTH_LIMIT)) {
        return error_set(error, CRPC_E_INVALID, 0, "rail_receive_depth must be %u to %u",
                         RAIL_RECEIVE_DEPTH_MIN, RECEIVE_DEPTH_LIMIT);
    }
    if (options->channels_max > CHANNELS_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "channels_max may be at most %u",
                         CHANNELS_MAX_LIMIT);
    }
    if (options->rail_queue_pairs_max > CRPC_CHANNEL_QUEUE_PAIRS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "rail_queue_pairs_max may be at most %d",
                         CRPC_CHANNEL_QUEUE_PAIRS_MAX);
    }
    return CRPC_OK;
}

static int32_t check_queues(const crpc_context_options *options, crpc_error *error)
{
    if (options->queues_max != 0 && !(options->flags & CRPC_CONTEXT_QUEUES)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "queues_max is only used with the flag CRPC_CONTEXT_QUEUES");
    }
    if (options->queues_max > QUEUES_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "queues_max may be at most %u",
                         QUEUES_MAX_LIMIT);
    }
    return CRPC_OK;
}

static int32_t check_options(crpc_context_options *options, crpc_error *error)
{
    if (!memchr(options->device, 0, sizeof(options->device))) {
        return error_set(error, CRPC_E_INVALID, 0, "device is not zero-terminated");
    }
    if (options->flags & ~(CRPC_CONTEXT_GID_INDEX | CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES |
                           CRPC_CONTEXT_METRICS | CRPC_CONTEXT_RAILS_GID_INDEX) ||
        options->features & ~CRPC_FEATURE_CQE_COMPRESSION) {
        return error_set(error, CRPC_E_INVALID, 0, "reserved bits of crpc_context_options are set");
    }
    if (options->log_level > CRPC_LOG_DEBUG) {
        return error_set(error, CRPC_E_INVALID, 0, "log_level %u is none of CRPC_LOG_*",
                         options->log_level);
    }
    if (options->endpoints_max > ENDPOINTS_MAX_LIMIT) {
        return error_set(error, CRPC_E_INVALID, 0, "endpoints_max may be at most %u",
                         ENDPOINTS_MAX_LIMIT);
    }
    if (options->receive_depth != 0 &&
        (options->receive_depth < 2 || options->receive_depth > RECEIVE_DEPTH_LIMIT)) {
        return error_set(error, CRPC_E_INVALID, 0, "receive_depth must be 2 to %u",
                         RECEIVE_DEPTH_LIMIT);
    }
    if (options->initiators > INITIATORS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "initiators may be at most %u", INITIATORS_MAX);
    }
    if (options->flight_records > FLIGHT_RECORDS_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "flight_records may be at most %u",
                         FLIGHT_RECORDS_MAX);
    }
    if (options->signal_interval > SIGNAL_INTERVAL_MAX) {
        return error_set(error, CRPC_E_INVALID, 0, "signal_interval may be at most %u",
                         SIGNAL_INTERVAL_MAX);
    }
    int32_t status = check_rails(options, error);
    if (status == CRPC_OK) {
        status = check_queues(options, error);
    }
    return status == CRPC_OK ? options_check_network(options, error) : status;
}

static void fill_defaults(crpc_context_options *options)
{
    default32(&options->endpoints_max, ENDPOINTS_MAX_DEFAULT);
    default32(&options->receive_depth,
              (uint32_t)maximum(RECEIVE_DEPTH_DEFAULT,
                                RECEIVES_PER_ENDPOINT * (uint64_t)options->endpoints_max));
    default32(&options->signal_interval, SIGNAL_INTERVAL_DEFAULT);
    default32(&options->rail_receive_depth, RAIL_RECEIVE_DEPTH_DEFAULT);
    default32(&options->channels_max, CHANNELS_MAX_DEFAULT);
    default32(&options->rail_queue_pairs_max, CRPC_CHANNEL_QUEUE_PAIRS_MAX);
    default32(&options->queues_max, QUEUES_MAX_DEFAULT);
}

/* For programs that do not say it themselves, tests above all. */
static int32_t driver_of_environment(uint32_t *driver, crpc_error *error)
{
    const char *name = getenv("COPYRPC_DRIVER");
    if (*driver != CRPC_DRIVER_AUTO || !name || strcmp(name, "auto") == 0) {
        return CRPC_OK;
    }
    for (uint32_t i = 0; nic_drivers[i]; i++) {
        if (strcmp(name, nic_drivers[i]->name) == 0) {
            *driver = nic_drivers[i]->driver;
            return CRPC_OK;
        }
    }
    return error_set(error, CRPC_E_INVALID, 0,
                     "COPYRPC_DRIVER=%.32s names no driver: it is verbs, mlx5 or auto", name);
}

static bool compresses_receives(void)
{
    const char *wanted = getenv("COPYRPC_COMPRESSED_RECEIVES");
    return wanted && strcmp(wanted, "1") == 0;
}

static bool wants_enhanced_layout(void)
{
    const char *wanted = getenv("COPYRPC_COMPRESSED_LAYOUT");
    return wanted && strcmp(wanted, "enhanced") == 0;
}

void context_tell_left_out(struct crpc_context *context, const struct nic *nic)
{
    if (nic->left_out[0]) {
        log_write(&context->log, CRPC_LOG_WARNING, "%s", nic->left_out);
    }
    if (nic->layout_missing[0]) {
        log_write(&context->log, CRPC_LOG_WARNING, "%s", nic->layout_missing);
    }
}

/* Blobs work all the same: what needs rdma_cm will say that it is missing. */
void context_open_cm(struct crpc_context *context, struct nic *const *nics, uint32_t nic_count,
                     struct cm **cm)
{
    crpc_error failure = {0};
    *cm = NULL;
    for (uint32_t i = 0; i < nic_count; i++) {
        if (!nics[i]->rdma_cm) {
            return;
        }
    }
    if (cm_open(nics, nic_count, cm, &failure) != CRPC_OK) {
        log_write(&context->log, CRPC_LOG_WARNING, "no rdma_cm, and nobody watches the device: %s",
                  failure.message);
        *cm = NULL;
    } else if (cm_lacks(*cm)) {
        log_write(&context->log, CRPC_LOG_WARNING, "no rdma_cm: %s", cm_lacks(*cm));
    }
}

/* Nobody named a device, so the first that works is taken. Which that is depends on what is plugged in:
 * whoever wonders why calls go over another network finds it in the log. */
static void tell_passed_over(struct crpc_context *context, const crpc_context_options *options)
{
    const struct nic *nic = context->nic;
    crpc_device_info info = {.struct_size = sizeof(info)};
    for (uint32_t i = 0; nic_query(i, &info, NULL) == CRPC_OK; i++) {
        if (strcmp(info.name, nic->device) == 0 && info.port == nic->port) {
            return;
        }
        if (nic_can_open(nic->operations, &info) &&
            (options->port == 0 || options->port == info.port)) {
            log_write(&context->log, CRPC_LOG_WARNING,
                      "%s port %u comes first, but is %s; %s port %u is used, since no device was "
                      "named",
                      info.name, info.port,
                      info.port_state == CRPC_PORT_ACTIVE ? "without an address" : "down",
                      nic->device, nic->port);
            return;
        }
    }
}

struct nic_options context_nic_options(const crpc_context_options *options, bool automatic)
{
    return (struct nic_options){
        .automatic = automatic,
        .features = options->features,
        .network = {.traffic_class = (uint8_t)options->traffic_class,
                    .service_level = (uint8_t)options->service_level,
                    .partition_key = (uint16_t)options->partition_key},
        .compressed_receives = compresses_receives(),
        .enhanced_layout = wants_enhanced_layout(),
        .completion_vector = options->completion_vector,
    };
}

static int32_t open_nic(struct crpc_context *context, const crpc_context_options *options,
                        uint32_t driver, crpc_error *error)
{
    struct nic_options wanted = context_nic_options(options, driver == CRPC_DRIVER_AUTO);
    wanted.port = options->port;
    wanted.gid_index_given = options->flags & CRPC_CONTEXT_GID_INDEX;
    wanted.gid_index = options->gid_index;
    wanted.receive_depth = options->receive_depth;
    wanted.send_depth = SEND_DEPTH;
    wanted.send_completion_depth =
        nic_send_places(SEND_DEPTH) *
        (options->initiators ? 2 * options->initiators : options->endpoints_max);
    wanted.signal_interval = options->signal_interval;
    wanted.initiators = options->initiators;
    wanted.initiator_retry_timeout = options->retry_timeout;
    wanted.initiator_retry_count = options->retry_count;
    memcpy(wanted.device, options->device, sizeof(wanted.device));
    int32_t status = nic_open(driver, &wanted, &context->nic, error);
    if (status != CRPC_OK) {
        return status;
    }
    context->nic->log = &context->log;
    ordering_apply(options, context->nic);
    if (options->device[0] == '\0') {
        tell_passed_over(context, options);
    }
    context_tell_left_out(context, context->nic);
    context_open_cm(context, &context->nic, 1, &context->cm);
    return CRPC_OK;
}

/* Takes note of a descriptor that sleepers must wait for. */
static void wake_by(struct crpc_context *context, int fd)
{
    if (fd >= 0) {
        context->event_fds[context->event_fd_count++] = fd;
    }
}

static bool watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int32_t open_descriptors(struct crpc_context *context, crpc_error *error)
{
    wake_by(context, context->nic->event_fd);
    wake_by(context, context->cm ? cm_event_fd(context->cm) : -1);
    wake_by(context, context->rail_cm ? cm_event_fd(context->rail_cm) : -1);
    for (uint32_t i = 0; i < context->rails.nic_count; i++) {
        wake_by(context, context->rails.nics[i]->event_fd);
    }
    context->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    context->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    bool good = context->epoll_fd >= 0 && context->timer_fd >= 0 &&
                watch(context->epoll_fd, context->timer_fd);
    for (uint32_t i = 0; i < context->event_fd_count && good; i++) {
        good = watch(context->epoll_fd, context->event_fds[i]);
    }
    if (!good) {
        return error_set(error, CRPC_E_SYSTEM, errno, "cannot make event descriptors: %s",
                         strerror(errno));
    }
    return CRPC_OK;
}

/* They share the nic of calls, and its cm. So the device's events come once, and calls report them. */
static int32_t open_queues(struct crpc_context *context, const crpc_context_options *options,
                           crpc_error *error)
{
    context->queue_pieces =
        lines_alloc(CRPC_QUEUE_SUBMIT_PIECES_MAX, sizeof(*context->queue_pieces));
    if (!context->queue_pieces) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    return queue_engine_create(context->nic, context->cm, &context->log, &context->handles,
                               options->queues_max, rpc_links(context->engine), NULL,
                               &context->queues, error);
}

int32_t context_check_queues(const struct crpc_context *context, crpc_error *error)
{
    if (likely(context->queues)) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_STATE, 0,
                     "this context has no queues: open the context with CRPC_CONTEXT_QUEUES");
}

static int32_t open_parts(struct crpc_context *context, const crpc_context_options *options,
                          crpc_error *error)
{
    uint32_t driver = options->driver;
    int32_t status = driver_of_environment(&driver, error);
    if (status == CRPC_OK) {
        status = open_nic(context, options, driver, error);
    }
    if (status == CRPC_OK) {
        context->calls =
            (struct registrar){.nics = {context->nic}, .nic_count = 1, .log = &context->log};
        status = rpc_engine_create(context->nic, context->cm, &context->log, &context->handles,
                                   options->endpoints_max, NULL, &context->engine, error);
    }
    if (status == CRPC_OK) {
        status = context_measure(context, options->flags, error);
    }
    if (status == CRPC_OK) {
        status = flight_open(context, options->flight_records, error);
    }
    if (status == CRPC_OK && options->flags & CRPC_CONTEXT_QUEUES) {
        status = open_queues(context, options, error);
    }
    if (status == CRPC_OK && options->flags & CRPC_CONTEXT_RAILS) {
        status = context_open_rails(context, options, driver, error);
    }
    return status == CRPC_OK ? open_descriptors(context, error) : status;
}

static int32_t open_context(const crpc_context_options *theirs, struct crpc_context **out,
                            crpc_error *error)
{
    crpc_context_options options;
    int32_t status = COPYIN(&options, theirs, context_options, error);
    if (status == CRPC_OK) {
        status = options_of_environment(&options, error);
    }
    if (status == CRPC_OK) {
        status = check_options(&options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    fill_defaults(&options);
    status = ordering_choose(&options, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct crpc_context *context = lines_alloc(1, sizeof(*context));
    if (!context) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    context->epoll_fd = -1;
    context->timer_fd = -1;
    list_init(&context->regions);
    context->retry_timeout = options.retry_timeout;
    context->retry_count = options.retry_count;
    log_init(&context->log, options.log_level);
    handles_init(&context->handles);
    status = open_parts(context, &options, error);
    if (status != CRPC_OK) {
        crpc_context_close(context);
        return status;
    }
    context_tell(context);
    *out = context;
    return CRPC_OK;
}

int32_t crpc_context_open(const crpc_context_options *options, crpc_context **context,
                          crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context ? open_context(options, context, &failure) : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t crpc_context_close(crpc_context *context)
{
    if (!context) {
        return CRPC_OK;
    }
    if (context->nic) {
        nic_set(&context->nic->closing);
    }
    for (uint32_t i = 0; i < context->rails.nic_count; i++) {
        nic_set(&context->rails.nics[i]->closing);
    }
    /* Queue pairs go before the memory that they reach. */
    context_stop_rails(context);
    if (context->queues) {
        queue_engine_destroy(context->queues);
    }
    free(context->queue_pieces);
    if (context->engine) {
        rpc_engine_destroy(context->engine); /* with windows of regions */
        context_close_regions(context);
    }
    if (context->timer_fd >= 0) {
        close(context->timer_fd);
    }
    if (context->epoll_fd >= 0) {
        close(context->epoll_fd);
    }
    context_close_rails(context);
    if (context->cm) {
        cm_close(context->cm);
    }
    if (context->nic) {
        context->nic->operations->close(context->nic);
    }
    handles_free(&context->handles);
    context_forget_methods(context);
    flight_close(context->flight);
    free(context);
    return CRPC_OK;
}

/* ---- Ask ------------------------------------------------------------------------------------- */

int32_t crpc_context_get_info(crpc_context *context, crpc_context_info *info)
{
    if (!context || COPYOUT_CHECK(info, context_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct nic *nic = context->nic;
    crpc_context_info ours = {
        .driver = nic->operations->driver,
        .port = nic->port,
        .gid_index = nic->gid_index,
        .link = nic->link,
        .mtu_bytes = nic->mtu_bytes,
        .endpoints_max = rpc_engine_endpoints_max(context->engine),
        .endpoints = rpc_engine_endpoints(context->engine),
        .receive_depth = nic->receive_depth,
        .send_depth = nic->send_depth,
        .signal_interval = nic->signal_interval,
        .inline_bytes_max = nic->inline_bytes_max,
        .features = nic->features,
        .batch_window_left = rpc_engine_window_left(context->engine),
        .queues_max = context->queues ? queue_engine_queues_max(context->queues) : 0,
        .queues = context->queues ? queue_engine_queues(context->queues) : 0,
        .initiators = context->nic->initiators ? context->nic->initiators->count : 0,
        .traffic_class = nic->network.traffic_class,
        .service_level = nic->network.service_level,
        .partition_key = nic->network.partition_key,
        .retry_timeout = context->retry_timeout,
        .retry_count = context->retry_count,
        .flags = nic->grh_required ? CRPC_GRH_REQUIRED : 0,
        .completion_vector = nic->completion_vector,
    };
    memcpy(ours.device, nic->device, sizeof(ours.device));
    strncpy(ours.driver_name, nic->operations->name, sizeof(ours.driver_name) - 1);
    memcpy(ours.gid, nic->gid, sizeof(ours.gid));
    COPYOUT(info, &ours, context_info);
    return CRPC_OK;
}

int32_t crpc_context_get_stats(crpc_context *context, crpc_stats *stats)
{
    if (!context || COPYOUT_CHECK(stats, stats) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    crpc_stats ours;
    rpc_engine_stats(context->engine, &ours);
    COPYOUT(stats, &ours, stats);
    return CRPC_OK;
}

int32_t crpc_context_log(crpc_context *context, crpc_log_entry *entries, uint32_t capacity)
{
    if (!context || (!entries && capacity > 0)) {
        return CRPC_E_INVALID;
    }
    return (int32_t)log_read(&context->log, entries, capacity);
}

/* channel.c: the life of a channel: memory, agreement with the peer, failure, leave, close. */
#include "stripe/channel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static void init_links(struct stripe_channel *channel)
{
    struct list *links[] = {&channel->waiting,      &channel->free_sends, &channel->work_link,
                            &channel->waiting_link, &channel->fence_link, &channel->event_link,
                            &channel->all_link};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        list_init(links[i]);
    }
    wheel_timer_init(&channel->life_timer, TIMER_LIFE);
    wheel_timer_init(&channel->settle_timer, TIMER_SETTLE);
    for (uint32_t i = 0; i < STRIPE_RAILS_MAX; i++) {
        wheel_timer_init(&channel->rails[i].retry_timer, TIMER_RAIL_0 + i);
    }
}

int32_t channel_create(struct stripe_engine *engine, struct stripe_channel **out, crpc_error *error)
{
    if (engine->channel_count == engine->channels_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "%u channels are open, which is channels_max; close some or raise it",
                         engine->channels_max);
    }
    struct stripe_channel *channel = calloc(1, sizeof(*channel));
    if (channel) {
        channel->handle = handles_add(engine->handles, HANDLE_CHANNEL, channel);
    }
    if (!channel || channel->handle == 0) {
        free(channel);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a channel");
    }
    channel->engine = engine;
    channel->bar = CRPC_E_STATE;
    channel->repeated = NO_RAIL;
    init_links(channel);
    list_append(&engine->channels, &channel->all_link);
    engine->channel_count++;
    *out = channel;
    return CRPC_OK;
}

/* Its receives are promised here, so that what the peer may send always finds one. */
static int32_t promise_receives(struct stripe_channel *channel, crpc_error *error)
{
    struct stripe_engine *engine = channel->engine;
    uint32_t receives = receives_of(channel->options.slots);
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        if (receives > stripe_receives_left(engine, i)) {
            return error_set(error, CRPC_E_NO_RESOURCE, 0,
                             "a channel with %u slots needs %u receives of rail %u, and %u are "
                             "left; ask for fewer slots, or raise rail_receive_depth",
                             channel->options.slots, receives, i, stripe_receives_left(engine, i));
        }
    }
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        engine->rails[i].receives_promised += receives;
    }
    return CRPC_OK;
}

static int32_t allocate(struct stripe_channel *channel, crpc_error *error)
{
    const crpc_channel_options *options = &channel->options;
    channel->incoming = calloc(options->slots, sizeof(*channel->incoming));
    channel->outgoing = calloc(options->slots, sizeof(*channel->outgoing));
    channel->sends = calloc(options->sends_max, sizeof(*channel->sends));
    if (!channel->incoming || !channel->outgoing || !channel->sends) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a channel's ops");
    }
    channel->slot_mask = options->slots - 1;
    for (uint32_t i = 0; i < options->slots; i++) {
        for (uint32_t j = 0; j < STRIPE_GROUP_MAX; j++) {
            struct stripe_op *op = &channel->incoming[i].ops[j];
            list_init(&op->link);
            op->channel = channel;
            op->kind = CRPC_COMPLETION_RECEIVED;
        }
    }
    for (uint32_t i = 0; i < options->sends_max; i++) {
        struct stripe_op *op = &channel->sends[i];
        list_append(&channel->free_sends, &op->link);
        wheel_timer_init(&op->timer, TIMER_SEND);
        op->channel = channel;
        op->kind = CRPC_COMPLETION_SENT;
    }
    return CRPC_OK;
}

static uint64_t new_nonce(const struct stripe_channel *channel)
{
    /* Names the connection and breaks the tie of who offers; need not be secret. */
    const uint64_t *virtual_clock_ns = channel->engine->virtual_clock_ns;
    uint64_t seed = channel->handle; /* a simulation sees to it that they differ */
    seed ^=
        virtual_clock_ns ? *virtual_clock_ns : clock_now_ns() ^ (uint64_t)(uintptr_t)channel << 16;
    seed = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94d049bb133111eb);
    return seed ^ seed >> 31;
}

static int32_t create_first(struct stripe_channel *channel, crpc_error *error)
{
    channel->first = queue_create(channel, 0, error);
    if (!channel->first) {
        return error->status;
    }
    channel->first->first = true;
    return CRPC_OK;
}

int32_t channel_prepare(struct stripe_channel *channel, const crpc_channel_options *options,
                        crpc_error *error)
{
    struct stripe_engine *engine = channel->engine;
    channel->options = *options;
    channel->options.rails &= (1u << engine->rail_count) - 1;
    uint32_t rails = channel->options.rails | 1u; /* the first queue pair is on rail 0 */
    int32_t status = promise_receives(channel, error);
    if (status != CRPC_OK) {
        channel->options.slots = 0; /* none are promised */
        return status;
    }
    channel->nonce = new_nonce(channel);
    channel->split = options->split;
    channel->share = options->rail0_share;
    channel->stripe_bytes_min = options->stripe_bytes_min;
    channel->hint = options->split == CRPC_SPLIT_HINT ? hint_open(options->hint) : NULL;
    if (options->split != CRPC_SPLIT_FIXED) {
        speed_init(channel);
    }
    status = allocate(channel, error);
    uint64_t bytes = stripe_area_bytes(options->slots);
    if (status == CRPC_OK) {
        status = memory_create(engine, &channel->area, bytes, rails,
                               CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, error);
    }
    if (status == CRPC_OK) {
        status = memory_create(engine, &channel->staging, bytes, rails, 0, error);
    }
    if (status == CRPC_OK) {
        status = create_first(channel, error);
    }
    if (status != CRPC_OK) {
        channel_unprepare(channel);
    }
    return status;
}

static void destroy_all_queues(struct stripe_channel *channel)
{
    for (uint32_t i = 0; i < STRIPE_RAILS_MAX; i++) {
        struct stripe_rail *rail = &channel->rails[i];
        for (uint32_t j = 0; j < STRIPE_QUEUE_PAIRS_MAX; j++) {
            if (rail->queues[j]) {
                queue_destroy(rail->queues[j]);
                rail->queues[j] = NULL;
            }
        }
        rail->fence = FENCE_NONE;
        if (rail->state > RAIL_LACKED) {
            rail->state = RAIL_DOWN;
        }
        wheel_clear(&channel->engine->wheel, &rail->retry_timer);
    }
    if (channel->first) {
        queue_destroy(channel->first);
        channel->first = NULL;
    }
    channel->up = 0;
}

void channel_unprepare(struct stripe_channel *channel)
{
    struct stripe_engine *engine = channel->engine;
    destroy_all_queues(channel);
    memory_destroy(engine, &channel->area);
    memory_destroy(engine, &channel->staging);
    hint_close(channel->hint);
    channel->hint = NULL;
    free(channel->incoming);
    free(channel->outgoing);
    free(channel->sends);
    channel->incoming = NULL;
    channel->outgoing = NULL;
    channel->sends = NULL;
    list_init(&channel->free_sends);
    if (channel->options.slots != 0) {
        for (uint32_t i = 0; i < engine->rail_count; i++) {
            engine->rails[i].receives_promised -= receives_of(channel->options.slots);
        }
        channel->options.slots = 0;
    }
}

void channel_free(struct stripe_channel *channel)
{
    struct stripe_engine *engine = channel->engine;
    sends_end_all(channel, CRPC_E_CLOSED);
    receives_end_all(channel, CRPC_E_CLOSED);
    struct list *link = engine->finished.next;
    while (link != &engine->finished) {
        struct stripe_op *op = list_entry(link, struct stripe_op, link);
        link = link->next;
        if (op->channel == channel) {
            list_remove(&op->link);
            if (op->region) {
                op->region->users--;
            }
        }
    }
    cm_destroy(channel->identifier);
    channel_unprepare(channel);
    wheel_clear(&engine->wheel, &channel->life_timer);
    wheel_clear(&engine->wheel, &channel->settle_timer);
    struct list *links[] = {&channel->work_link, &channel->waiting_link, &channel->fence_link,
                            &channel->event_link, &channel->all_link};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        list_remove(links[i]);
    }
    handles_remove(engine->handles, channel->handle);
    engine->channel_count--;
    free(channel);
}

/* ---- Connected ------------------------------------------------------------------------------- */

int32_t channel_agree(struct stripe_channel *channel, const struct stripe_hello *peer,
                      crpc_error *error)
{
    uint32_t slots = (uint32_t)minimum(1u << peer->slots_log2, channel->options.slots);
    channel->slot_mask = slots - 1;
    channel->queue_pairs = (uint32_t)minimum(peer->queue_pairs, channel->options.queue_pairs);
    channel->common = channel->options.rails & peer->rails;
    channel->peer_area = peer->area_address;
    channel->first_key = peer->area_key;
    channel->peer_nonce = peer->nonce;
    channel->version = (uint32_t)minimum(peer->version_max, STRIPE_VERSION_MAX);
    channel->token_bytes = peer->token_bytes;
    memcpy(channel->token, peer->token, peer->token_bytes);
    if (channel->common == 0) {
        return error_set(error, CRPC_E_UNREACHABLE, 0,
                         "the sides have no rail in common: ours 0x%x, the peer's 0x%x",
                         channel->options.rails, peer->rails);
    }
    return CRPC_OK;
}

void channel_start_timer(struct stripe_channel *channel, uint64_t timeout_ns)
{
    struct stripe_engine *engine = channel->engine;
    wheel_clear(&engine->wheel, &channel->life_timer);
    if (timeout_ns != CRPC_FOREVER) {
        engine_set_timer(engine, &channel->life_timer, timeout_ns);
    }
}

void channel_connected(struct stripe_channel *channel)
{
    if (channel->state != CRPC_STATE_CONNECTING || channel->up == 0) {
        return;
    }
    wheel_clear(&channel->engine->wheel, &channel->settle_timer);
    channel->state = CRPC_STATE_CONNECTED;
    channel->bar = CRPC_OK;
    channel_start_timer(channel, channel->options.keepalive_ns);
    channel_report(channel, CHANNEL_EVENT_CONNECTED);
}

void channel_flush(struct stripe_channel *channel)
{
    if (channel->state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    control_flush(channel);
    if (unlikely(channel->repeats > 0)) {
        sends_repeat(channel);
    }
    receives_tell(channel);
    sends_progress(channel);
    if (unlikely(channel->leaving || channel->left)) {
        channel_check_leave(channel);
    }
}

/* ---- Over ------------------------------------------------------------------------------------ */

void channel_fail(struct stripe_channel *channel, const crpc_error *given)
{
    struct stripe_engine *engine = channel->engine;
    if (channel->state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    bool connecting = channel->state == CRPC_STATE_CONNECTING;
    /* Whatever ends a channel after both BYEs is its end, unless the peer breaks the protocol. */
    bool parted = channel->bye_sent && channel->bye_received && given->status != CRPC_E_PROTOCOL;
    channel->error = parted ? (crpc_error){0} : *given;
    channel->state = CRPC_STATE_DISCONNECTED;
    channel->bar = CRPC_E_DISCONNECTED;
    destroy_all_queues(channel);
    cm_destroy(channel->identifier);
    channel->identifier = NULL;
    wheel_clear(&engine->wheel, &channel->life_timer);
    wheel_clear(&engine->wheel, &channel->settle_timer);
    list_remove(&channel->fence_link);
    sends_end_all(channel, CRPC_E_DISCONNECTED);
    receives_end_all(channel, CRPC_E_DISCONNECTED);
    if (channel->error.status != CRPC_OK) {
        log_write(engine->log, CRPC_LOG_WARNING, "channel ended: %s", channel->error.message);
    }
    channel_report(channel, connecting ? CHANNEL_EVENT_CONNECTED : CHANNEL_EVENT_DISCONNECTED);
}

void channel_violated(struct stripe_channel *channel, const char *format, ...)
{
    char text[160];
    crpc_error error = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    error_set(&error, CRPC_E_PROTOCOL, 0, "the peer broke the protocol: %s", text);
    channel->stats.protocol_errors++;
    channel_fail(channel, &error);
}

void channel_check_leave(struct stripe_channel *channel)
{
    if (channel->bye_received) {
        channel_connected(channel); /* the peer was, for a moment: its application hears of both */
    }
    if (channel->state == CRPC_STATE_CONNECTING) {
        return;
    }
    if (channel->bye_received && channel->bar == CRPC_OK) {
        channel->bar = CRPC_E_CLOSING;
        channel->state = CRPC_STATE_CLOSING;
    }
    bool over = channel->leaving || channel->bye_received;
    /* Nobody will receive what waits any more, or complete its message. A clear-to-send that the LEAVE
     * overtook is still waited for. */
    if ((channel->left && channel->send_number >= channel->bye.posted) ||
        (over && sends_stuck(channel))) {
        sends_end_waiting(channel, CRPC_E_DISCONNECTED);
    }
    if (!over || channel->sends_open > 0) {
        return;
    }
    if (!channel->bye_sent && !channel->bye_wanted) {
        channel->bye_wanted = true;
        control_flush(channel);
    }
    if (channel->bye_sent && channel->bye_received &&
        channel->stats.messages_received >= channel->bye.sent) {
        if ((channel->outbox_unsent | channel->outbox_posted) != 0) {
            return; /* our BYE is under way */
        }
        channel_fail(channel, &(crpc_error){0});
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Makes the transport notice a peer that is gone. */
static void probe_rails(struct stripe_channel *channel)
{
    for (uint32_t mask = channel->up; mask != 0; mask &= mask - 1) {
        struct stripe_queue *queue = channel->rails[__builtin_ctz(mask)].queues[0];
        if (nic_send_room(queue->queue_pair) > 0) {
            control_touch(queue);
        }
    }
}

void channel_timer(struct stripe_channel *channel)
{
    crpc_error error = {0};
    switch (channel->state) {
    case CRPC_STATE_CONNECTING:
        error_set(&error, CRPC_E_TIMEOUT, 0,
                  "not connected within the time given; is the peer's side polling?");
        channel_fail(channel, &error);
        return;
    case CRPC_STATE_CLOSING:
        if (channel->leaving) {
            error_set(&error, CRPC_E_TIMEOUT, 0, "the peer did not take leave in time");
            channel_fail(channel, &error);
            return;
        }
        break;
    case CRPC_STATE_CONNECTED:
        break;
    default:
        return;
    }
    if (channel->heard == 0 && channel->ops_left > 0) {
        probe_rails(channel);
    }
    channel->heard = 0;
    if (channel->split == CRPC_SPLIT_HINT && !channel->hint) {
        channel->hint = hint_open(channel->options.hint);
    }
    channel_start_timer(channel, channel->options.keepalive_ns);
}

/* ---- For capi -------------------------------------------------------------------------------- */

int32_t stripe_disconnect(struct stripe_channel *channel, uint64_t timeout_ns)
{
    if (channel->leaving ||
        (channel->state != CRPC_STATE_CONNECTED && channel->state != CRPC_STATE_CLOSING)) {
        return CRPC_E_STATE;
    }
    channel->leaving = true;
    channel->leave_wanted = !channel->bye_received;
    channel->state = CRPC_STATE_CLOSING;
    channel->bar = CRPC_E_CLOSING;
    channel_start_timer(channel, timeout_ns);
    channel_work(channel->engine, channel);
    return CRPC_OK;
}

void stripe_close(struct stripe_channel *channel)
{
    struct stripe_engine *engine = channel->engine;
    channel->closed = true;
    if (channel->listener) {
        if (channel->state == CRPC_STATE_REQUESTED) {
            channel->listener->waiting--;
        }
        channel->listener = NULL;
    }
    handles_remove(engine->handles, channel->handle);
    if (channel->state != CRPC_STATE_DISCONNECTED) {
        destroy_all_queues(channel);
        sends_end_all(channel, CRPC_E_CLOSED);
        receives_end_all(channel, CRPC_E_CLOSED);
        channel->state = CRPC_STATE_DISCONNECTED;
    }
    channel->bar = CRPC_E_CLOSED;
    cm_destroy(channel->identifier);
    channel->identifier = NULL;
    wheel_clear(&engine->wheel, &channel->life_timer);
    wheel_clear(&engine->wheel, &channel->settle_timer);
    list_remove(&channel->fence_link);
    list_remove(&channel->work_link);
    list_remove(&channel->waiting_link);
    list_remove(&channel->event_link);
    channel->events = 0;
    channel->refused = false;
    if (channel->ops_left == 0) {
        channel_free(channel);
    }
}

void stripe_set_share(struct stripe_channel *channel, uint32_t rail0_share)
{
    channel->share = rail0_share;
    channel->split = CRPC_SPLIT_FIXED;
}

uint32_t stripe_rails(const struct stripe_channel *channel)
{
    return channel->common;
}

uint64_t stripe_handle(const struct stripe_channel *channel)
{
    return channel->handle;
}

static uint32_t shown_state(const struct stripe_rail *rail)
{
    switch (rail->state) {
    case RAIL_NONE:
        return CRPC_RAIL_NONE;
    case RAIL_LACKED:
        return CRPC_RAIL_LACKED;
    case RAIL_UP:
        return CRPC_RAIL_UP;
    default:
        return CRPC_RAIL_DOWN;
    }
}

void stripe_info(const struct stripe_channel *channel, crpc_channel_info *info)
{
    *info = (crpc_channel_info){
        .state = channel->state,
        .user_data = channel->options.user_data,
        .slots = channel->opened ? channel->slot_mask + 1 : channel->options.slots,
        .queue_pairs = channel->queue_pairs,
        .split = channel->split,
        .rail0_share = channel->share,
        .receives_open = channel->receives_open,
        .sends_open = channel->sends_open,
        .version = channel->version,
        .token_bytes = channel->token_bytes,
    };
    for (uint32_t i = 0; i < STRIPE_RAILS_MAX; i++) {
        info->rail_state[i] = shown_state(&channel->rails[i]);
    }
    memcpy(info->token, channel->token, sizeof(info->token));
    if (channel->identifier) {
        cm_peer_address(channel->identifier, info->peer_address, sizeof(info->peer_address));
        cm_local_address(channel->identifier, info->local_address, sizeof(info->local_address));
    }
}

void stripe_stats(const struct stripe_channel *channel, crpc_channel_stats *stats)
{
    *stats = channel->stats;
}

const crpc_error *stripe_error(const struct stripe_channel *channel)
{
    return &channel->error;
}

/* channel.c: a channel as a link: memory, hello, agreement with the peer, failure, close. */
#include "channel/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "channel/split.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static void init_links(struct channel *channel)
{
    struct list *links[] = {&channel->send.waiting, &channel->send.free, &channel->work_link,
                            &channel->waiting_link, &channel->fence_link};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        list_init(links[i]);
    }
    wheel_timer_init(&channel->settle_timer, TIMER_SETTLE);
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        wheel_timer_init(&channel->rails[i].retry_timer, TIMER_RAIL_0 + i);
    }
}

static int32_t create(struct link_group *group, struct link **link, crpc_error *error)
{
    struct channel_engine *engine = engine_of_group(group);
    if (engine->channel_count == engine->channels_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "%u channels are open, which is channels_max; close some or raise it",
                         engine->channels_max);
    }
    struct channel *channel = lines_alloc(1, sizeof(*channel));
    if (!channel) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a channel");
    }
    channel->engine = engine;
    channel->bar = CRPC_E_STATE;
    init_links(channel);
    int32_t status = link_init(&channel->link, group, error);
    if (status != CRPC_OK) {
        free(channel);
        return status;
    }
    engine->channel_count++;
    *link = &channel->link;
    return CRPC_OK;
}

/* What a channel takes of a rail's receives. Without an SRQ, each of its queue pairs has as many as the peer may use. */
static uint32_t receives_on(const struct channel *channel, uint32_t rail)
{
    const bool shared = channel->engine->rails[rail].nic->receive_queue_max == 0;
    return receives_of(channel->options.slots) * (shared ? 1 : channel->options.queue_pairs);
}

/* Its receives are promised here, so that what the peer may send always finds one. */
static int32_t promise_receives(struct channel *channel, crpc_error *error)
{
    struct channel_engine *engine = channel->engine;
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        const uint32_t receives = receives_on(channel, i);
        if (receives > channel_receives_left(engine, i)) {
            return error_set(error, CRPC_E_NO_RESOURCE, 0,
                             "a channel with %u slots needs %u receives of rail %u, and %u are "
                             "left; ask for fewer slots, or raise rail_receive_depth",
                             channel->options.slots, receives, i, channel_receives_left(engine, i));
        }
    }
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        engine->rails[i].receives_promised += receives_on(channel, i);
    }
    return CRPC_OK;
}

static int32_t allocate(struct channel *channel, crpc_error *error)
{
    const crpc_channel_options *options = &channel->options;
    channel->receive.incoming = lines_alloc(options->slots, sizeof(*channel->receive.incoming));
    channel->send.outgoing = lines_alloc(options->slots, sizeof(*channel->send.outgoing));
    channel->send.ops = lines_alloc(options->sends_max, sizeof(*channel->send.ops));
    if (!channel->receive.incoming || !channel->send.outgoing || !channel->send.ops) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a channel's ops");
    }
    channel->slot_mask = options->slots - 1;
    for (uint32_t i = 0; i < options->slots; i++) {
        for (uint32_t j = 0; j < CHANNEL_GROUP_MAX; j++) {
            struct channel_op *op = &channel->receive.incoming[i].ops[j];
            list_init(&op->link);
            op->channel = channel;
            op->kind = CRPC_COMPLETION_RECEIVED;
        }
    }
    for (uint32_t i = 0; i < options->sends_max; i++) {
        struct channel_op *op = &channel->send.ops[i];
        list_append(&channel->send.free, &op->link);
        wheel_timer_init(&op->timer, TIMER_SEND);
        op->channel = channel;
        op->kind = CRPC_COMPLETION_SENT;
    }
    return CRPC_OK;
}

static void unprepare(struct link *link);

static int32_t prepare(struct link *link, const void *given, crpc_error *error)
{
    struct channel *channel = channel_of_link(link);
    struct channel_engine *engine = channel->engine;
    const crpc_channel_options *options = given;
    channel->options = *options;
    link_options_set(&link->options, options);
    explicit_bzero(channel->options.key, sizeof(channel->options.key)); /* the link has it */
    channel->options.rails &= (1u << engine->rail_count) - 1;
    int32_t status = promise_receives(channel, error);
    if (status != CRPC_OK) {
        channel->options.slots = 0; /* none are promised */
        return status;
    }
    channel->split = options->split;
    channel->share = split_fine(options->rail0_share);
    channel->stripe_bytes_min = options->stripe_bytes_min;
    channel->hint = options->split == CRPC_SPLIT_HINT ? hint_open(options->hint) : NULL;
    if (options->split != CRPC_SPLIT_FIXED) {
        speed_init(channel);
    }
    status = allocate(channel, error);
    uint64_t bytes = channel_area_bytes(options->slots);
    if (status == CRPC_OK) {
        status = area_map(&channel->area, bytes, error);
    }
    if (status == CRPC_OK) {
        status = area_map(&channel->staging, bytes, error);
    }
    if (status == CRPC_OK) {
        status = area_register(engine, &channel->staging, channel->options.rails, error);
    }
    if (status == CRPC_OK) {
        status = queues_create(channel, 0, options->queue_pairs, error);
    }
    if (status != CRPC_OK) {
        unprepare(link);
        return status;
    }
    link->queue_pair = channel->rails[0].queues[0]->queue_pair;
    return CRPC_OK;
}

static int32_t expose(struct link *link, crpc_error *error)
{
    struct channel *channel = channel_of_link(link);
    return area_expose(channel->engine, &channel->area, channel->options.rails, error);
}

static void destroy_all_queues(struct channel *channel)
{
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        struct channel_rail *rail = &channel->rails[i];
        queues_destroy(channel, i);
        rail->fence = FENCE_NONE;
        if (rail->state > RAIL_LACKED) {
            rail->state = RAIL_DOWN;
        }
        wheel_clear(&channel->engine->links.wheel, &rail->retry_timer);
    }
    channel->up = 0;
}

static void unprepare(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    struct channel_engine *engine = channel->engine;
    link_prove_end(link);
    destroy_all_queues(channel);
    area_destroy(engine, &channel->area);
    area_destroy(engine, &channel->staging);
    hint_close(channel->hint);
    channel->hint = NULL;
    free(channel->receive.incoming);
    free(channel->send.outgoing);
    free(channel->send.ops);
    channel->receive.incoming = NULL;
    channel->send.outgoing = NULL;
    channel->send.ops = NULL;
    list_init(&channel->send.free);
    if (channel->options.slots != 0) {
        for (uint32_t i = 0; i < engine->rail_count; i++) {
            engine->rails[i].receives_promised -= receives_on(channel, i);
        }
        channel->options.slots = 0;
    }
}

/* No task is under way: the engine may have dropped some. */
static void release_queues(struct channel *channel)
{
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        queues_give_up(channel, i);
        for (uint32_t j = 0; j < CHANNEL_QUEUE_PAIRS_MAX; j++) {
            if (channel->rails[i].queues[j]) {
                channel->rails[i].queues[j]->busy = false;
            }
        }
    }
}

static void destroy(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    struct channel_engine *engine = channel->engine;
    sends_end_all(channel, CRPC_E_CLOSED);
    receives_end_all(channel, CRPC_E_CLOSED);
    ops_forget_finished(channel);
    release_queues(channel);
    unprepare(link);
    wheel_clear(&engine->links.wheel, &channel->settle_timer);
    list_remove(&channel->work_link);
    list_remove(&channel->waiting_link);
    list_remove(&channel->fence_link);
    engine->channel_count--;
    link_remove(link);
    free(channel);
}

/* ---- The hello ------------------------------------------------------------------------------- */

static void fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    const struct channel *channel = channel_of_link(link);
    struct channel_hello hello = {
        .area_address = channel->area.secret,
        .area_key = channel->area.keys[0].remote_key,
        .slots_log2 = (uint8_t)__builtin_ctz(channel->options.slots),
        .queue_pairs = (uint8_t)channel->options.queue_pairs,
        .rails = (uint8_t)channel->options.rails,
    };
    memcpy(body, &hello, sizeof(hello));
}

static const char *body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    struct channel_hello hello;
    memcpy(&hello, body, sizeof(hello));
    if (hello.slots_log2 > CHANNEL_SLOTS_LOG2_MAX) {
        return "its number of slots is out of range";
    }
    if (hello.queue_pairs < 1 || hello.queue_pairs > CHANNEL_QUEUE_PAIRS_MAX) {
        return "its number of queue pairs is out of range";
    }
    if (hello.area_address % 64 != 0 ||
        hello.area_address > UINT64_MAX - channel_area_bytes(CHANNEL_SLOTS_MAX)) {
        return "its memory is at an impossible address";
    }
    if (!(hello.rails & 1u) || hello.rails >= 1u << CHANNEL_RAILS_MAX) {
        return "its rails are out of range";
    }
    return hello.zero != 0 || hello.zero2 != 0 ? "reserved bytes are set" : NULL;
}

/* Takes note of what both sides agree on. */
static int32_t attach(struct link *link, crpc_error *error)
{
    (void)error;
    struct channel *channel = channel_of_link(link);
    struct channel_hello hello;
    memcpy(&hello, link->peer.body, sizeof(hello));
    channel->slot_mask = (uint32_t)minimum(1u << hello.slots_log2, channel->options.slots) - 1;
    channel->queue_pairs = (uint32_t)minimum(hello.queue_pairs, channel->options.queue_pairs);
    channel->common = channel->options.rails & hello.rails;
    channel->usable = channel->common & ~channel->engine->lost;
    channel->peer_area = hello.area_address;
    channel->rails[0].peer_key = hello.area_key;
    return CRPC_OK;
}

static void detach(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    channel->slot_mask = channel->options.slots - 1;
    channel->queue_pairs = 0;
    channel->common = 0;
    channel->usable = 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void opened(struct link *link)
{
    rails_open(channel_of_link(link));
}

void channel_flush(struct channel *channel)
{
    if (channel->link.state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    control_flush(channel);
    if (unlikely(channel->send.repeats > 0)) {
        sends_repeat(channel);
    }
    grants_post(channel);
    if (unlikely(channel->wake.owed)) {
        wake_if_granted(channel);
    }
    sends_progress(channel);
    if (unlikely(channel->leave != LEAVE_NONE || channel->peer_leave != PEER_STAYS)) {
        channel_check_leave(channel);
    }
}

static void settle(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    channel_take_completions(channel->engine);
    channel_flush(channel);
}

static void distrust(struct link *link)
{
    channel_of_link(link)->stats.protocol_errors++;
}

static void end(struct channel *channel, int32_t status)
{
    channel->bar = status;
    destroy_all_queues(channel);
    wheel_clear(&channel->engine->links.wheel, &channel->settle_timer);
    list_remove(&channel->fence_link);
    sends_end_all(channel, status);
    receives_end_all(channel, status);
}

static void failed(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    /* Whatever ends a channel after both BYEs is its end, unless the peer breaks the protocol. */
    if (channel->leave == BYE_SAID && channel->peer_leave == PEER_BYE &&
        link->error.status != CRPC_E_PROTOCOL) {
        link->error = (crpc_error){0};
    }
    if (link->state != CRPC_STATE_DISCONNECTED) {
        link_over(link);
    }
    end(channel, CRPC_E_DISCONNECTED);
}

static void abandoned(struct link *link)
{
    queues_destroy(channel_of_link(link), 0);
}

static void closed(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    end(channel, CRPC_E_CLOSED);
    list_remove(&channel->work_link);
    list_remove(&channel->waiting_link);
}

static bool quiet(const struct link *link)
{
    return channel_of_link(link)->ops_left == 0;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* One change of a rail. */
static void emit_event(struct link *link, struct output *output)
{
    struct channel *channel = channel_of_link(link);
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        struct channel_rail *rail = &channel->rails[i];
        if (rail->changes > 0) {
            rail->changes--;
            rail->shown_up = !rail->shown_up;
            *output->next++ =
                (crpc_completion){.kind = CRPC_COMPLETION_RAIL,
                                  .flags = CRPC_COMPLETION_OF_CHANNEL,
                                  .status = rail->shown_up ? CRPC_OK : CRPC_E_DISCONNECTED,
                                  .endpoint = {link->handle},
                                  .user_data = link->options.user_data,
                                  .token = i,
                                  .endpoint_user_data = link->options.user_data};
            break;
        }
    }
    if (channel->rails[0].changes == 0 && channel->rails[1].changes == 0) {
        link->events &= ~LINK_EVENT_SERVICE;
    }
}

const struct link_service channel_service = {
    .name = "channel",
    .no_room = "channels_max, rail_receive_depth or backlog",
    .number = LINK_SERVICE_CHANNEL,
    .version_min = CHANNEL_VERSION_MIN,
    .version_max = CHANNEL_VERSION_MAX,
    .features = CHANNEL_FEATURE_WAKE,
    .handle_kind = HANDLE_CHANNEL,
    .completion_flags = CRPC_COMPLETION_OF_CHANNEL,
    .create = create,
    .prepare = prepare,
    .expose = expose,
    .fill_body = fill_body,
    .body_fault = body_fault,
    .attach = attach,
    .detach = detach,
    .unprepare = unprepare,
    .destroy = destroy,
    .opened = opened,
    .settle = settle,
    .distrust = distrust,
    .failed = failed,
    .abandoned = abandoned,
    .leave = channel_leave,
    .describe_leave = channel_describe_leave,
    .keepalive = channel_keepalive,
    .closed = closed,
    .quiet = quiet,
    .emit_event = emit_event,
    .timer = channel_timer,
    .device_event = channel_device_event,
};

/* ---- For capi -------------------------------------------------------------------------------- */

void channel_set_share(struct channel *channel, uint32_t rail0_share)
{
    channel->share = split_fine(rail0_share);
    channel->owed = 0;
    channel->split = CRPC_SPLIT_FIXED;
}

uint32_t channel_rails(const struct channel *channel)
{
    return channel->usable;
}

static uint32_t shown_state(const struct channel_rail *rail)
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

void channel_info(const struct channel *channel, crpc_channel_info *info)
{
    *info = (crpc_channel_info){
        .slots = channel->link.opened ? channel->slot_mask + 1 : channel->options.slots,
        .queue_pairs = channel->link.working ? 0 : channel->queue_pairs,
        .split = channel->split,
        .rail0_share = channel->share / (SPLIT_FINE / SPLIT_WHOLE),
        .receives_open = channel->receive.open,
        .sends_open = channel->send.open,
    };
    for (uint32_t i = 0; i < CHANNEL_RAILS_MAX; i++) {
        info->rail_state[i] = shown_state(&channel->rails[i]);
    }
    link_fill_info(&channel->link, info);
}

void channel_stats(const struct channel *channel, crpc_channel_stats *stats)
{
    *stats = channel->stats;
}

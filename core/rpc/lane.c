/* lane.c: the lane of an endpoint: how the two sides make it, what they say of grants, and how it ends
 * (docs/lanes.md). core/lane has the rest. Cold path, but for the completions of its ops.
 *
 * Each side says the address of its queue pair (LANE), connects it to the peer's, says so (LANE_STATE),
 * and uses the lane when it has said and heard that. A lane that has failed is made again by both sides, with
 * the next life; one of them can be ahead of the other by one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "rpc/internal.h"

static struct rpc_endpoint *endpoint_of_join(struct link_task *task)
{
    return container_of(task, struct rpc_endpoint, lane.join);
}

/* Something is to be said or sent. */
void rpc_lane_attend(struct rpc_endpoint *endpoint)
{
    endpoint->lane_attention = true;
    if (!endpoint->link.failing) {
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
}

/* ---- Making ---------------------------------------------------------------------------------- */

static void make_table(struct rpc_engine *engine)
{
    if (!engine->lane_pairs) {
        engine->lane_pairs = malloc(sizeof(*engine->lane_pairs));
        if (engine->lane_pairs) {
            table_init(engine->lane_pairs);
        }
    }
}

/* Returns false if there is no memory. */
static bool note_number(struct rpc_endpoint *endpoint)
{
    uint32_t number = lane_queue_pair(endpoint->lane.lane)->number;
    bool noted = table_set(endpoint->engine->lane_pairs, number, endpoint);
    endpoint->lane.number = noted ? number : 0;
    return noted;
}

int32_t rpc_lane_make(struct rpc_endpoint *endpoint, crpc_error *error)
{
    struct rpc_engine *engine = endpoint->engine;
    const struct lane_options options = {.handle = endpoint->link.handle,
                                         .user_data = endpoint->options.user_data,
                                         .timer_kind = TIMER_GRANT,
                                         .depth = rpc_lane_depth(engine->nic, &endpoint->options)};
    if (!(endpoint->options.flags & CRPC_ENDPOINT_LANE)) {
        return CRPC_OK;
    }
    int32_t status =
        lane_create(engine->nic, engine->links.handles, &options, &endpoint->lane.lane, error);
    if (status != CRPC_OK) {
        endpoint->lane.lane = NULL;
        return status;
    }
    make_table(engine);
    endpoint->lane.aside = lines_alloc(RPC_ASIDE_MAX, sizeof(*endpoint->lane.aside));
    if (!engine->lane_pairs || !endpoint->lane.aside || !note_number(endpoint)) {
        lane_destroy(endpoint->lane.lane);
        free(endpoint->lane.aside);
        endpoint->lane.lane = NULL;
        endpoint->lane.aside = NULL;
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a lane");
    }
    endpoint->lane.life = endpoint->lane.peer_life = 1;
    endpoint->lane.told_life = endpoint->lane.ended_life = 0;
    endpoint->lane.said_in = endpoint->lane.answered_in = 0;
    endpoint->lane.was_ready = false;
    endpoint->lane.pause_ns = LANE_PAUSE_MIN_NS;
    engine->lane_places += rpc_lane_places(engine->nic, &endpoint->options);
    return CRPC_OK;
}

/* The queue pair's number may be used again. */
static void forget_number(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    if (endpoint->lane.number != 0) {
        table_clear(engine->lane_pairs, endpoint->lane.number);
        link_forget_queue_pair(&engine->links, 0, endpoint->lane.number);
        endpoint->lane.number = 0;
    }
}

void rpc_lane_unmake(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    assert(!lane->join.under_way);
    list_remove(&lane->done_link);
    list_remove(&lane->failing_link);
    wheel_clear(&endpoint->engine->links.wheel, &lane->timer);
    if (!lane->lane) {
        return;
    }
    endpoint->engine->lane_places -= rpc_lane_places(endpoint->engine->nic, &endpoint->options);
    lane_stop(lane->lane, &endpoint->engine->links.wheel, CRPC_E_CLOSED);
    forget_number(endpoint);
    lane_destroy(lane->lane);
    lane->lane = NULL;
    free(lane->aside);
    lane->aside = NULL;
    lane->aside_head = lane->aside_count = 0;
    lane->state = RPC_LANE_NONE;
    lane->gated = lane->refused = lane->failed_behind = false;
    endpoint->lane_attention = false;
    lane->due = lane->heard = 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The first words are possible. */
void rpc_lane_opened(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (!lane->lane) {
        return;
    }
    if (!rpc_lane_selected(endpoint)) { /* the peer has none */
        rpc_lane_unmake(endpoint);
        return;
    }
    lane->state = RPC_LANE_WAITS;
    lane->due = RPC_LANE_SAY_ADDRESS;
    rpc_lane_attend(endpoint);
}

/* Not before the peer will hear of it: it can use a grant as soon as it gets one. */
void rpc_lane_open_if_both(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    const struct lane_identity identity = {
        .own = endpoint->link.nonce, .peer = endpoint->link.peer.nonce, .life = lane->life};
    if (lane->state != RPC_LANE_JOINED || lane->life != lane->peer_life ||
        !(lane->heard & RPC_LANE_HEARD_READY) || lane->due & RPC_LANE_SAY_READY ||
        endpoint->link.failing) {
        return;
    }
    lane->state = RPC_LANE_OPEN;
    lane_open(lane->lane, &identity);
    if (lane->refused) {
        lane->refused = false;
        link_report(&endpoint->link, LINK_EVENT_ROOM);
    }
}

static int32_t join(struct link_task *task, crpc_error *error)
{
    struct rpc_endpoint *endpoint = endpoint_of_join(task);
    struct nic_transport transport = endpoint->link.options.transport;
    transport.atomics = true;
    transport.rnr_tries = LANE_RNR_TRIES;
    return endpoint->engine->operations->queue_pair_connect(
        lane_queue_pair(endpoint->lane.lane), &endpoint->lane.join_address, &transport, error);
}

static void joined(struct link_task *task, const crpc_error *error)
{
    struct rpc_endpoint *endpoint = endpoint_of_join(task);
    struct rpc_lane *lane = &endpoint->lane;
    if (lane->state == RPC_LANE_FAILED || endpoint->link.failing) { /* meanwhile */
        rpc_lane_stop(endpoint, CRPC_E_DISCONNECTED);
    } else if (error->status != CRPC_OK) {
        rpc_lane_fail(endpoint, error->message);
    } else {
        lane->state = RPC_LANE_JOINED;
        lane->due |= RPC_LANE_SAY_READY;
        link_tell_ece(endpoint->engine->nic);
        rpc_lane_attend(endpoint);
    }
}

/* Both sides are in the same life, and this one knows the peer's address. */
void rpc_lane_join_if_both(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (lane->state == RPC_LANE_WAITS && lane->life == lane->peer_life &&
        (lane->heard & (RPC_LANE_HEARD_ADDRESS | RPC_LANE_HEARD_ENDED)) == RPC_LANE_HEARD_ADDRESS &&
        endpoint->leave == LEAVE_NONE && !endpoint->link.failing) {
        lane->state = RPC_LANE_JOINING;
        lane->join_address = lane->address;
        link_task_start(&lane->join, &endpoint->link, join, joined);
    }
}

/* ---- Making it again ------------------------------------------------------------------------- */

static void again_later(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (!wheel_timer_set(&lane->timer)) {
        link_set_timer(&endpoint->engine->links, &lane->timer, lane->pause_ns);
    }
}

/* The application has heard of all ops of the life before, and all words of it are sent: a peer that takes
 * none does not get those of one life behind the other. */
static bool may_begin(const struct rpc_endpoint *endpoint)
{
    const struct rpc_lane *lane = &endpoint->lane;
    return !lane->join.under_way && !lane_has_open(lane->lane) && lane->due == 0 &&
           endpoint->out.batches_sent >= lane->said_in;
}

void rpc_lane_again(struct wheel_timer *timer)
{
    struct rpc_lane *lane = container_of(timer, struct rpc_lane, timer);
    struct rpc_endpoint *endpoint = container_of(lane, struct rpc_endpoint, lane);
    crpc_error error = {0};
    if (endpoint->link.failing || endpoint->leave != LEAVE_NONE) {
        return;
    }
    if (!may_begin(endpoint) || lane_renew(lane->lane, &error) != CRPC_OK) {
        again_later(endpoint);
        return;
    }
    rpc_after_forget(lane); /* ops are counted from 0 again, also if there is no memory below */
    if (!note_number(endpoint)) {
        lane_stop(lane->lane, &endpoint->engine->links.wheel, CRPC_E_FLUSHED);
        again_later(endpoint);
        return;
    }
    lane->pause_ns = minimum(2 * lane->pause_ns, LANE_PAUSE_MAX_NS);
    lane->life += lane->told_life == lane->life; /* or the peer knows nothing of it */
    lane->failed_behind = false;
    lane->state = RPC_LANE_WAITS;
    lane->due = RPC_LANE_SAY_ADDRESS;
    rpc_lane_attend(endpoint);
    rpc_lane_join_if_both(endpoint);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* What has ended is to be told, and what waited for it is to be sent. */
void rpc_lane_look(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (lane_something_waits(lane->lane)) {
        list_append_once(&endpoint->engine->lanes_done, &lane->done_link);
        endpoint->engine->links.attention = true;
    }
    if (lane->gated || lane->aside_count > 0 || lane_answer_due(lane->lane) ||
        lane_revoke_due(lane->lane)) {
        rpc_lane_attend(endpoint);
    }
}

/* The peer reaches nothing over it any more. */
void rpc_lane_cut(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (lane->lane && lane_queue_pair(lane->lane) && !lane->join.under_way) {
        endpoint->engine->operations->queue_pair_fail(lane_queue_pair(lane->lane));
    }
}

void rpc_lane_stop(struct rpc_endpoint *endpoint, int32_t status)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (!lane->lane) {
        return;
    }
    lane->state = RPC_LANE_FAILED;
    list_remove(&lane->failing_link);
    if (lane->join.under_way) {
        return; /* joined comes, and there are no ops */
    }
    lane_stop(lane->lane, &endpoint->engine->links.wheel, status);
    forget_number(endpoint);
    rpc_lane_look(endpoint);
}

void rpc_lane_fail(struct rpc_endpoint *endpoint, const char *why)
{
    struct rpc_lane *lane = &endpoint->lane;
    crpc_error error = {0};
    if (lane->state == RPC_LANE_FAILED) {
        return;
    }
    log_write(endpoint->engine->log, CRPC_LOG_WARNING, "lane of an endpoint lost: %s", why);
    lane->due = lane->told_life == lane->life ? RPC_LANE_SAY_ENDED : 0;
    bool behind = lane->failed_behind || !rpc_after_reached(lane);
    rpc_lane_stop(endpoint, CRPC_E_FLUSHED);
    again_later(endpoint);
    if (behind) {
        /* The peer must not hear that these ops were done. */
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "connection lost: its lane has failed, and a message waited for ops of it: %s",
                  why);
        link_fail(&endpoint->link, &error);
    }
    rpc_lane_attend(endpoint);
}

/* The ops of the lane that were not done before the endpoint ends. */
bool rpc_lane_has_open(const struct rpc_endpoint *endpoint)
{
    return endpoint->lane.lane && lane_has_open(endpoint->lane.lane);
}

/* ---- The device's completions ---------------------------------------------------------------- */

bool rpc_lane_take_completion(struct rpc_engine *engine, const struct nic_completion *completion)
{
    struct rpc_endpoint *endpoint =
        engine->lane_pairs ? table_get(engine->lane_pairs, completion->queue_pair_number) : NULL;
    if (!endpoint) {
        return false;
    }
    struct rpc_lane *lane = &endpoint->lane;
    if (endpoint->link.failing || lane->state == RPC_LANE_FAILED) {
        return true;
    }
    switch (completion->kind) {
    case NIC_COMPLETION_SEND:
        lane_completed(lane->lane, completion->completed);
        rpc_lane_look(endpoint);
        break;
    case NIC_COMPLETION_ERROR:
        lane->failed_behind |= !rpc_after_reached(lane);
        lane_device_failed(lane->lane, completion);
        if (!list_linked(&lane->failing_link)) { /* what comes behind it is flushed */
            lane->failure = *completion;
        }
        list_append_once(&engine->lanes_failing, &lane->failing_link);
        break;
    default:
        link_violated(&endpoint->link, "%s", "it sent a message over its lane");
    }
    return true;
}

/* Not while completions are taken: the queue pair goes. */
void engine_end_lanes(struct rpc_engine *engine)
{
    while (!list_empty(&engine->lanes_failing)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->lanes_failing.next, struct rpc_endpoint, lane.failing_link);
        const struct nic_completion *failure = &endpoint->lane.failure;
        char text[128];
        snprintf(text, sizeof(text), "%s (queue pair 0x%x, vendor syndrome 0x%x)",
                 failure->status == NIC_ERROR_REMOTE_ACCESS
                     ? "the peer's device refused an op"
                     : "the peer or a device has ended its queue pair",
                 failure->queue_pair_number, failure->vendor_syndrome);
        list_remove(&endpoint->lane.failing_link);
        rpc_lane_fail(endpoint, text);
    }
}

/* One that waits for the peer's address does not end: connecting it will fail. Otherwise a device at fault
 * could fill the ring with the ends of lanes that a peer which does not poll has not heard of. */
bool rpc_lane_device_event(struct rpc_engine *engine, const struct cm_event *event)
{
    struct rpc_endpoint *endpoint =
        engine->lane_pairs ? table_get(engine->lane_pairs, event->queue_pair_number) : NULL;
    if (endpoint && !endpoint->link.failing && endpoint->lane.state > RPC_LANE_WAITS) {
        endpoint->lane.failure = (struct nic_completion){
            .queue_pair_number = event->queue_pair_number, .status = NIC_ERROR_OTHER};
        list_append_once(&engine->lanes_failing, &endpoint->lane.failing_link);
        engine->links.attention = true;
    }
    return endpoint != NULL;
}

void engine_emit_lanes(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->lanes_done) && !output_full(output)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->lanes_done.next, struct rpc_endpoint, lane.done_link);
        struct rpc_lane *lane = &endpoint->lane;
        lane_emit(lane->lane, output);
        list_remove(&lane->done_link);
        if (lane_something_waits(lane->lane)) {
            /* At the end of the queue: the others' turn comes first in the next poll. */
            list_append(&engine->lanes_done, &lane->done_link);
            return;
        }
        if (lane->refused && lane->state == RPC_LANE_OPEN && lane_room(lane->lane) > 0) {
            lane->refused = false;
            link_report(&endpoint->link, LINK_EVENT_ROOM);
        }
        if (endpoint->leave != LEAVE_NONE && !endpoint->link.failing) { /* the FIN waits for it */
            list_append_once(&engine->work, &endpoint->work_link);
        }
    }
}

/* ---- What the application asks --------------------------------------------------------------- */

static int32_t no_room(struct rpc_endpoint *endpoint)
{
    endpoint->stats.refused++;
    endpoint->lane.refused = true;
    endpoint->link.refused = true;
    return CRPC_E_AGAIN;
}

int32_t rpc_lane_bar(struct rpc_endpoint *endpoint)
{
    const struct link *link = &endpoint->link;
    if (!(endpoint->options.flags & CRPC_ENDPOINT_LANE)) {
        return link->state == CRPC_STATE_REQUESTED ? CRPC_E_STATE : CRPC_E_UNSUPPORTED;
    }
    if (link->failing || link->state == CRPC_STATE_DISCONNECTED) {
        return CRPC_E_DISCONNECTED;
    }
    if (link->state != CRPC_STATE_CONNECTED && link->state != CRPC_STATE_CLOSING) {
        return CRPC_E_STATE;
    }
    if (!endpoint->lane.lane) {
        return CRPC_E_UNSUPPORTED;
    }
    if (endpoint->leave != LEAVE_NONE) {
        return CRPC_E_CLOSING;
    }
    return endpoint->lane.state == RPC_LANE_OPEN && !list_linked(&endpoint->lane.failing_link)
               ? CRPC_OK
               : no_room(endpoint);
}

uint32_t rpc_lane_post(struct rpc_endpoint *endpoint, const struct lane_op *ops, uint32_t count,
                       int32_t *reason)
{
    *reason = rpc_lane_bar(endpoint);
    if (*reason != CRPC_OK) {
        return 0;
    }
    uint32_t accepted = lane_post(endpoint->lane.lane, ops, count);
    if (accepted < count) {
        *reason = no_room(endpoint);
    }
    link_start_keepalive(&endpoint->link);
    return accepted;
}

int32_t rpc_lane_give(struct rpc_endpoint *endpoint, const struct lane_memory *memory,
                      uint64_t user_data)
{
    int32_t status = rpc_lane_bar(endpoint);
    if (status == CRPC_OK) {
        status = lane_give(endpoint->lane.lane, memory, user_data);
        if (status == CRPC_E_AGAIN) {
            no_room(endpoint);
        }
    }
    return status;
}

int32_t rpc_lane_revoke(struct rpc_endpoint *endpoint, struct lane_grant *grant, uint64_t user_data,
                        uint64_t timeout_ns)
{
    struct link_group *links = &endpoint->engine->links;
    int32_t status = rpc_lane_bar(endpoint);
    if (status == CRPC_OK && !lane_grant_revocable(grant)) {
        status = CRPC_E_STALE;
    }
    if (status == CRPC_OK) {
        uint64_t deadline_ns =
            timeout_ns ? deadline_after(link_now_ns(links), timeout_ns) : UINT64_MAX;
        lane_revoke(grant, user_data, &links->wheel, deadline_ns);
        link_start_keepalive(&endpoint->link);
        rpc_lane_look(endpoint);
        links->now_ns = 0;
    }
    return status;
}

int32_t rpc_lane_take(struct rpc_endpoint *endpoint, const void *bytes, uint32_t count,
                      struct lane_grant **grant, crpc_error *error)
{
    int32_t status = rpc_lane_bar(endpoint);
    if (status != CRPC_OK) {
        return error_set(error, status, 0, "the endpoint has no lane that can be used now");
    }
    return lane_take(endpoint->lane.lane, bytes, count, grant, error);
}

void rpc_lane_timer(struct wheel_timer *timer, struct rpc_engine *engine)
{
    struct lane *lane = lane_timer(timer);
    struct rpc_endpoint *endpoint = table_get(engine->lane_pairs, lane_queue_pair(lane)->number);
    rpc_lane_look(endpoint);
}

bool rpc_lane_has(const struct rpc_endpoint *endpoint, const struct lane_grant *grant)
{
    return grant->lane == endpoint->lane.lane;
}

/* word.c: what the two sides of a lane say: written into the open batch, and read where it is parsed. Each
 * word is copied once, and the copy is checked. docs/wire.md, "Lanes".
 */
#include "rpc/internal.h"

/* ---- Words to the peer ----------------------------------------------------------------------- */

/* Returns true if the peer has told of the end of this life, or has gone on to the next. */
static bool heard_end(const struct rpc_lane *lane)
{
    return lane->peer_life > lane->life ||
           (lane->peer_life == lane->life && lane->heard & RPC_LANE_HEARD_ENDED);
}

/* Of its life. */
static void say(struct rpc_endpoint *endpoint, uint8_t kind, const void *word, uint32_t bytes)
{
    endpoint_say(endpoint, kind, word, bytes);
    endpoint->lane.said_in = rpc_open_batch(endpoint);
}

static void say_address(struct rpc_endpoint *endpoint)
{
    struct wire_lane word = {.life = endpoint->lane.life};
    const struct nic_queue_pair *queue_pair = lane_queue_pair(endpoint->lane.lane);
    if (queue_pair) {
        endpoint->lane.told_life = word.life;
        link_address_tell(&word.address, &word.ece_vendor, &endpoint->link, queue_pair);
        say(endpoint, WIRE_LANE, &word, sizeof(word));
    }
}

static void say_state(struct rpc_endpoint *endpoint, uint32_t state)
{
    const struct wire_lane_state word = {.life = endpoint->lane.life, .state = state};
    say(endpoint, WIRE_LANE_STATE, &word, sizeof(word));
}

/* After FIN only what the peer waits for is said. */
static void say_all(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (lane_answer_due(lane->lane)) {
        const struct wire_serial word = {.serial = lane_answer_say(lane->lane)};
        endpoint_say(endpoint, WIRE_REVOKED, &word, sizeof(word));
        lane->answered_in = rpc_open_batch(endpoint);
    }
    if (endpoint->leave == LEAVE_SAID) {
        return;
    }
    if (lane->due & RPC_LANE_SAY_ADDRESS) {
        say_address(endpoint);
    }
    if (lane->due & RPC_LANE_SAY_READY) {
        say_state(endpoint, WIRE_LANE_READY);
        lane->due &= (uint8_t)~RPC_LANE_SAY_READY;
        rpc_lane_open_if_both(endpoint);
    }
    if (lane->due & RPC_LANE_SAY_ENDED && !heard_end(lane)) {
        lane->ended_life = lane->life;
        say_state(endpoint, WIRE_LANE_ENDED);
    }
    lane->due = 0;
    if (lane_revoke_due(lane->lane)) {
        const struct wire_serial word = {.serial = lane_revoke_say(lane->lane)};
        endpoint_say(endpoint, WIRE_REVOKE, &word, sizeof(word));
    }
}

#define WORDS_AT_ONCE 5u

/* Whether the open batch takes words. */
static bool word_fits(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.batch_messages < WIRE_MESSAGES_MAX - WORDS_AT_ONCE &&
           !endpoint->gather.waits;
}

bool rpc_lane_flush(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (!lane->lane) {
        endpoint->lane_attention = false;
        return true;
    }
    rpc_after_send(endpoint);
    lane->gated = !rpc_after_reached(lane);
    if (!word_fits(endpoint) && !lane->gated && endpoint_may_send(endpoint)) {
        endpoint_send(endpoint); /* it has no place for words, and nothing else may follow */
    }
    if (word_fits(endpoint)) {
        say_all(endpoint);
        endpoint->lane_attention = lane->gated || lane->aside_count > 0;
    }
    return !lane->gated;
}

/* ---- Words of the peer ----------------------------------------------------------------------- */

/* Of its first life, or of the next, when either side has told of the end of the one before. */
static bool address_possible(const struct rpc_lane *lane, uint32_t life)
{
    if (life == lane->peer_life) {
        return (lane->heard & (RPC_LANE_HEARD_ADDRESS | RPC_LANE_HEARD_ENDED)) == 0;
    }
    return life == lane->peer_life + 1 &&
           (lane->heard & RPC_LANE_HEARD_ENDED || lane->ended_life == lane->peer_life);
}

static const char *take_address(struct rpc_endpoint *endpoint, const uint8_t *payload)
{
    struct rpc_lane *lane = &endpoint->lane;
    struct wire_lane word;
    crpc_error error = {0};
    wire_copy(&word, payload);
    if (!address_possible(lane, word.life)) {
        return "it gave the address of a lane that it cannot have";
    }
    if ((word.ece_vendor != 0 && !link_tells_ece(&endpoint->link)) ||
        link_address_take_told(&lane->address, &word.address, word.ece_vendor, &endpoint->link,
                               endpoint->engine->nic, &error) != CRPC_OK) {
        return "the address of its lane is malformed";
    }
    lane->peer_life = word.life;
    lane->heard = RPC_LANE_HEARD_ADDRESS;
    rpc_lane_join_if_both(endpoint);
    return NULL;
}

static const char *take_state(struct rpc_endpoint *endpoint, const uint8_t *payload)
{
    struct rpc_lane *lane = &endpoint->lane;
    struct wire_lane_state word;
    wire_copy(&word, payload);
    if (word.life != lane->peer_life || lane->heard & RPC_LANE_HEARD_ENDED) {
        return "it tells of a lane that there is not";
    }
    /* It has this side's address of that life, so that was said. */
    if (!(lane->heard & RPC_LANE_HEARD_ADDRESS) || word.life > lane->told_life) {
        return "its lane cannot be ready, nor ended";
    }
    if (word.state == WIRE_LANE_ENDED) {
        lane->heard |= RPC_LANE_HEARD_ENDED;
        if (lane->life == lane->peer_life) {
            rpc_lane_fail(endpoint, "the peer has ended it");
        }
        return NULL;
    }
    if (word.state != WIRE_LANE_READY || lane->heard & RPC_LANE_HEARD_READY) {
        return "it tells of its lane what it cannot, or twice";
    }
    lane->heard |= RPC_LANE_HEARD_READY;
    lane->was_ready = true;
    rpc_lane_open_if_both(endpoint);
    return NULL;
}

/* If the connection has ended, no lane is opened any more, but what the peer said before is right. */
static const char *take_serial(struct rpc_endpoint *endpoint, uint16_t kind, const uint8_t *payload)
{
    struct rpc_lane *lane = &endpoint->lane;
    struct wire_serial word;
    wire_copy(&word, payload);
    if (!lane->was_ready) {
        return "it speaks of grants before there is a lane";
    }
    if (kind == WIRE_REVOKE && endpoint->out.batches_sent < lane->answered_in) {
        return "it revokes a grant before it can have the answer to the last one";
    }
    const char *fault = kind == WIRE_REVOKE ? lane_take_revoke(lane->lane, word.serial)
                                            : lane_take_answer(lane->lane, word.serial,
                                                               &endpoint->engine->links.wheel);
    rpc_lane_look(endpoint);
    return fault;
}

const char *rpc_lane_take_word(struct rpc_endpoint *endpoint, uint16_t kind, const uint8_t *payload,
                               uint32_t bytes)
{
    static const uint8_t lengths[] = {[WIRE_LANE] = sizeof(struct wire_lane),
                                      [WIRE_LANE_STATE] = sizeof(struct wire_lane_state),
                                      [WIRE_REVOKE] = sizeof(struct wire_serial),
                                      [WIRE_REVOKED] = sizeof(struct wire_serial)};
    if (kind < WIRE_LANE || kind > WIRE_REVOKED || !endpoint->lane.lane) {
        return "a message is neither request nor response";
    }
    if (bytes != lengths[kind]) {
        return "a word of its lane has another length";
    }
    if (endpoint->in.fin == FIN_BEFORE && kind != WIRE_REVOKED) {
        return "a word of its lane came after it took leave";
    }
    switch (kind) {
    case WIRE_LANE:
        return take_address(endpoint, payload);
    case WIRE_LANE_STATE:
        return take_state(endpoint, payload);
    default:
        return take_serial(endpoint, kind, payload);
    }
}

/* abandon.c: telling the peer that nobody waits for the response of a request any more, so that it need not go on; and what it
 * tells of its own. docs/wire.md, "Deadlines".
 *
 * The peer knows how long a caller waits, if it has a deadline. It is told of a deadline that has passed all the same: a request may have
 * waited, here or there, before that time began to count at the peer. A word is charged as a request without payload. Where
 * there is no room for it, it waits, and is not said if the response comes first.
 */
#include "rpc/internal.h"
#include "rpc/message.h"
#include "rpc/run.h"

/* ---- Of this side's calls --------------------------------------------------------------------- */

static bool limit_allows(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.request_produced + wire_charge(0) <= endpoint->out.request_limit;
}

/* It may not follow FIN. */
static bool possible_later(const struct rpc_endpoint *endpoint)
{
    return !endpoint->link.failing && !endpoint->link.closed && endpoint->leave != LEAVE_SAID;
}

/* Nor what ends the open batch. */
static bool possible_now(const struct rpc_endpoint *endpoint)
{
    return possible_later(endpoint) && endpoint->reply_bar == CRPC_OK &&
           endpoint->out.batch_messages < WIRE_MESSAGES_MAX;
}

void rpc_abandon(struct rpc_call *call)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    if ((call->status == CRPC_E_TIMEOUT || call->status == CRPC_E_CANCELED) &&
        rpc_deadlines_selected(endpoint) && possible_later(endpoint)) {
        list_append(&endpoint->calls.telling, &call->timer.link);
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
}

void rpc_abandon_say(struct rpc_endpoint *endpoint)
{
    struct list *telling = &endpoint->calls.telling;
    const uint64_t bytes = wire_message_bytes(0);
    while (!list_empty(telling) && possible_now(endpoint) && limit_allows(endpoint)) {
        struct rpc_call *call = list_entry(telling->next, struct rpc_call, timer.link);
        list_remove(&call->timer.link);
        rpc_write_header(rpc_next_place(endpoint), bytes, 0, call->call_id,
                         (uint32_t)(int32_t)call->status | (uint64_t)WIRE_ABANDONED << 48);
        rpc_messages_written(endpoint, bytes, 1);
        endpoint->out.request_produced += wire_charge(0);
    }
}

bool rpc_abandon_blocked(const struct rpc_endpoint *endpoint)
{
    return possible_now(endpoint) && !limit_allows(endpoint);
}

void rpc_abandon_look(struct rpc_endpoint *endpoint)
{
    if (unlikely(!list_empty(&endpoint->calls.telling)) && possible_now(endpoint) &&
        limit_allows(endpoint)) {
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
}

/* ---- Of the peer's ---------------------------------------------------------------------------- */

const char *rpc_abandon_take_word(struct rpc_endpoint *endpoint, const struct rpc_header *header,
                                  crpc_completion *completion, bool *given)
{
    const uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    const int32_t status = (int32_t)header->limit_or_status;
    if (header->payload_bytes != 0 || rpc_header_method(*header) != 0 ||
        (status != CRPC_E_TIMEOUT && status != CRPC_E_CANCELED)) {
        return "a word about an abandoned call has reserved bits set";
    }
    if (endpoint->in.request_arrived + wire_charge(0) > endpoint->in.request_published) {
        return "its words about abandoned calls exceed the limit of requests";
    }
    if (endpoint->in.fin == FIN_BEFORE || index >= endpoint->owed.slot_count) {
        return "a word about an abandoned call comes too late, or is about none";
    }
    endpoint->in.request_arrived += wire_charge(0);
    const struct rpc_request *request = &endpoint->owed.slots[index];
    *given = request->reply_bytes_bound > 0 && (uint32_t)request->token == header->call_id;
    if (*given) { /* otherwise the response was on its way */
        *completion = (crpc_completion){.kind = CRPC_COMPLETION_ABANDONED,
                                        .status = status,
                                        .endpoint = {endpoint->link.handle},
                                        .user_data = endpoint->user_data,
                                        .token = request->token,
                                        .endpoint_user_data = endpoint->user_data};
    }
    return NULL;
}

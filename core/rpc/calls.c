/* calls.c: the slots of this side's calls, deadlines and cancel.
 *
 * A call that ends early keeps its slot and its allowance until its late response has come: a
 * slot given away sooner would let that response answer another call, whatever the number of
 * generation bits (model, "ids"), and its bytes would land where the budget says there is
 * room.
 */
#include "base/probe.h"
#include "base/sparse.h"
#include "rpc/internal.h"
#include "rpc/lasting.h"

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Not a page, so that calls_max of few dozens grows, too: what tests have. */
#define SLOTS_AT_FIRST 16u

/* Has no call, so no response of the peer answers one. Never written to: it is no endpoint's to take. */
static struct rpc_call no_call = {.state = CALL_FREE};

bool calls_init(struct rpc_endpoint *endpoint, uint32_t max)
{
    struct rpc_calls *calls = &endpoint->calls;
    calls->memory = sparse_alloc(max, sizeof(*calls->memory));
    calls->slots = &no_call;
    calls->max = max;
    return calls->memory;
}

void calls_free(struct rpc_endpoint *endpoint)
{
    struct rpc_calls *calls = &endpoint->calls;
    sparse_free(calls->memory, calls->max, sizeof(*calls->memory));
    calls->memory = NULL;
    calls->slots = &no_call;
    calls->first_free = NULL;
    calls->made = calls->index_mask = calls->max = 0;
}

static void make_slots(struct rpc_endpoint *endpoint, uint32_t to)
{
    struct rpc_calls *calls = &endpoint->calls;
    const uint32_t from = calls->made;
    for (uint32_t i = from; i < to; i++) {
        struct rpc_call *call = &calls->memory[i];
        wheel_timer_init(&call->timer, TIMER_CALL);
        call->endpoint = endpoint;
        call->call_id = i;
        call->state = CALL_FREE;
        call->next_free = i + 1 < to ? call + 1 : calls->first_free;
    }
    calls->slots = calls->memory;
    calls->first_free = &calls->memory[from];
    calls->made = to;
    calls->index_mask = to - 1;
}

/* Each time twice as many, so what is touched is at most twice what is needed, and this is seldom called. */
__attribute__((cold, noinline)) uint32_t calls_make_room(struct rpc_endpoint *endpoint,
                                                         uint32_t wanted)
{
    const struct rpc_calls *calls = &endpoint->calls;
    while (calls->made - calls->used < wanted && calls->made < calls->max) {
        make_slots(endpoint,
                   (uint32_t)minimum(calls->max, maximum(2 * calls->made, SLOTS_AT_FIRST)));
    }
    return (uint32_t)minimum(wanted, calls->made - calls->used);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void call_report_end(struct rpc_call *call)
{
    list_append(&call->endpoint->engine->ended, &call->timer.link);
    call->endpoint->engine->links.attention = true;
}

void call_end(struct rpc_call *call, int32_t status)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    assert(call_live(call));
    wheel_clear(&endpoint->engine->links.wheel, &call->timer);
    call->state = CALL_ENDED;
    call->status = (int8_t)status;
    endpoint->calls.live--;
    endpoint->calls.ended++;
    if (likely(call->kind != CALL_GATHERED) || rpc_gather_let_go(call)) {
        call_report_end(call);
    }
}

void calls_end_all(struct rpc_endpoint *endpoint, int32_t status)
{
    for (uint32_t i = 0; i < endpoint->calls.made && endpoint->calls.live > 0; i++) {
        if (call_live(&endpoint->calls.slots[i])) {
            call_end(&endpoint->calls.slots[i], status);
        }
    }
}

void engine_emit_ended(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->ended) && !output_full(output)) {
        struct rpc_call *call = list_entry(engine->ended.next, struct rpc_call, timer.link);
        struct rpc_endpoint *endpoint = call->endpoint;
        list_remove(&call->timer.link);
        endpoint->calls.ended--;
        endpoint->stats.calls_failed++;
        probe4(call_failed, endpoint->link.handle, call->method, call->status,
               metrics_user_data(endpoint->engine->metrics, call->user_data));
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_RESPONSE,
                                            .method = call->method,
                                            .status = call->status,
                                            .endpoint = {endpoint->link.handle},
                                            .user_data = call->user_data,
                                            .endpoint_user_data = endpoint->options.user_data};
        if (call->state == CALL_ANSWERED) {
            call_free(call->endpoint, call);
            endpoint_check_left(endpoint);
        } else {
            call->state = CALL_ZOMBIE;
            rpc_abandon(call);
        }
    }
    if (unlikely(!list_empty(&engine->kept_ended))) {
        rpc_lasting_emit(engine, output);
    }
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

void rpc_timer(struct link_group *group, struct wheel_timer *timer)
{
    if (timer->kind == TIMER_CALL) {
        call_end(container_of(timer, struct rpc_call, timer), CRPC_E_TIMEOUT);
    } else if (timer->kind == TIMER_GRANT) {
        rpc_lane_timer(timer, engine_of_group(group));
    } else if (timer->kind == TIMER_LANE) {
        rpc_lane_again(timer);
    } else if (timer->kind == TIMER_ATTEMPT) {
        rpc_lasting_attempt(timer);
    } else if (timer->kind == TIMER_KEPT) {
        rpc_lasting_expire(timer);
    } else {
        endpoint_read_timer(container_of(timer, struct rpc_endpoint, read.timer));
    }
}

/* ---- Cancel ---------------------------------------------------------------------------------- */

int32_t rpc_cancel(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    assert(op->opcode == CRPC_OP_CANCEL);
    int32_t status = link_cancel_possible(&endpoint->link);
    if (status != CRPC_OK) {
        endpoint->stats.refused += status == CRPC_E_AGAIN;
        return status;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i < endpoint->calls.made && endpoint->calls.live > 0; i++) {
        struct rpc_call *call = &endpoint->calls.slots[i];
        if (call_live(call) &&
            metrics_user_data(endpoint->engine->metrics, call->user_data) == op->token) {
            call_end(call, CRPC_E_CANCELED);
            count++;
        }
    }
    if (endpoint->lasting) {
        count += rpc_lasting_cancel(endpoint->lasting, op->token);
    }
    link_cancel_done(&endpoint->link, op->user_data, count);
    return CRPC_OK;
}

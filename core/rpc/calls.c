/* calls.c: the slots of this side's calls, deadlines and cancel.
 *
 * A call that ends early keeps its slot and its allowance until its late response has come: a
 * slot given away sooner would let that response answer another call, whatever the number of
 * generation bits (docs/model, "ids"), and its bytes would land where the budget says there is
 * room.
 */
#include "rpc/engine.h"

void call_end(struct rpc_call *call, int32_t status)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    assert(call->state == CALL_LIVE);
    wheel_clear(&endpoint->engine->wheel, &call->timer);
    call->state = CALL_ENDED;
    call->status = (int8_t)status;
    endpoint->calls_live--;
    endpoint->ended_calls++;
    list_append(&endpoint->engine->ended, &call->timer.link);
}

void calls_end_all(struct rpc_endpoint *endpoint, int32_t status)
{
    for (uint32_t i = 0; i < endpoint->calls_max && endpoint->calls_live > 0; i++) {
        if (endpoint->calls[i].state == CALL_LIVE) {
            call_end(&endpoint->calls[i], status);
        }
    }
}

void engine_emit_ended(struct rpc_engine *engine, struct output *output)
{
    while (!list_empty(&engine->ended) && !output_full(output)) {
        struct rpc_call *call = list_entry(engine->ended.next, struct rpc_call, timer.link);
        struct rpc_endpoint *endpoint = call->endpoint;
        list_remove(&call->timer.link);
        endpoint->ended_calls--;
        endpoint->stats.calls_failed++;
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_RESPONSE,
                                            .method = call->method,
                                            .status = call->status,
                                            .endpoint = {endpoint->handle},
                                            .user_data = call->user_data,
                                            .endpoint_user_data = endpoint->options.user_data};
        if (call->state == CALL_ANSWERED) {
            call_free(call);
            endpoint_check_left(endpoint);
        } else {
            call->state = CALL_ZOMBIE;
        }
    }
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

void engine_expire(struct rpc_engine *engine)
{
    if (engine->wheel.count == 0) {
        return;
    }
    wheel_advance(&engine->wheel, engine_now_ns(engine));
    struct wheel_timer *timer;
    while ((timer = wheel_take(&engine->wheel)) != NULL) {
        switch (timer->kind) {
        case TIMER_CALL:
            call_end(list_entry(timer, struct rpc_call, timer), CRPC_E_TIMEOUT);
            break;
        case TIMER_READ:
            endpoint_read_timer(container_of(timer, struct rpc_endpoint, read_timer));
            break;
        default:
            endpoint_life_timer(container_of(timer, struct rpc_endpoint, life_timer));
        }
    }
}

/* ---- Cancel ---------------------------------------------------------------------------------- */

int32_t rpc_cancel(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    struct rpc_engine *engine = endpoint->engine;
    if (engine->cancels_tail - engine->cancels_head == CANCELS_MAX) {
        endpoint->stats.refused++;
        endpoint->refused = true;
        engine_report(endpoint, ENDPOINT_EVENT_ROOM); /* the next poll makes room */
        return CRPC_E_AGAIN;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i < endpoint->calls_max && endpoint->calls_live > 0; i++) {
        struct rpc_call *call = &endpoint->calls[i];
        if (call->state == CALL_LIVE && call->user_data == op->token) {
            call_end(call, CRPC_E_CANCELED);
            count++;
        }
    }
    engine->cancels[engine->cancels_tail++ % CANCELS_MAX] =
        (struct rpc_cancel_done){.endpoint = endpoint->handle,
                                 .endpoint_user_data = endpoint->options.user_data,
                                 .user_data = op->user_data,
                                 .count = count};
    return CRPC_OK;
}

void engine_emit_cancels(struct rpc_engine *engine, struct output *output)
{
    while (engine->cancels_head != engine->cancels_tail && !output_full(output)) {
        const struct rpc_cancel_done *done = &engine->cancels[engine->cancels_head++ % CANCELS_MAX];
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_CANCEL,
                                            .status = done->count ? CRPC_OK : CRPC_E_NOT_FOUND,
                                            .endpoint = {done->endpoint},
                                            .user_data = done->user_data,
                                            .token = done->count,
                                            .endpoint_user_data = done->endpoint_user_data};
    }
}

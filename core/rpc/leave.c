/* leave.c: how a connection ends well: both sides say FIN after their last request, answer what
 * they owe, and part when nothing is left; and what watches over a connection meanwhile.
 */
#include "rpc/engine.h"

#include "base/error.h"

/* Refuses new calls and says so to the peer with the next batch. */
void endpoint_leave(struct rpc_endpoint *endpoint)
{
    if (endpoint->fin_wanted || endpoint->failing) {
        return;
    }
    endpoint->fin_wanted = true;
    endpoint->state = CRPC_STATE_CLOSING;
    if (!endpoint->reserved) {
        endpoint->call_bar = CRPC_E_CLOSING;
    }
    atomic_store_explicit((_Atomic uint32_t *)&endpoint->mailbox->flags, WIRE_MAILBOX_CLOSING,
                          memory_order_release);
    list_append_once(&endpoint->engine->work, &endpoint->work_link);
}

/* Both took leave and nothing is left to be said; what is not to be parsed says something. */
bool endpoint_left(const struct rpc_endpoint *endpoint)
{
    return endpoint->fin_sent && !endpoint->distrusted && endpoint->fin_received &&
           endpoint->calls_used == 0 && endpoint->owed_count == 0 &&
           endpoint->batch_messages == 0 && endpoint->batch_left == 0 &&
           endpoint->arrivals_head == endpoint->arrivals_tail;
}

/* Ends the connection once that is so and the peer's device has everything: its acknowledgement
 * of the FIN or of the last reply, both of which ask for a completion; quiet replies hide behind
 * the next. */
void endpoint_check_left(struct rpc_endpoint *endpoint)
{
    if (endpoint->failing || !endpoint_left(endpoint)) {
        return;
    }
    if (endpoint->queue_pair->completed != endpoint->queue_pair->posted) {
        if (endpoint->queue_pair->unsignaled > 0) {
            endpoint_read_mailbox(endpoint); /* a signaled WQE behind the quiet replies */
        }
        return;
    }
    crpc_error none = {0};
    endpoint_fail(endpoint, &none);
}

int32_t rpc_endpoint_disconnect(struct rpc_endpoint *endpoint, uint64_t timeout_ns)
{
    struct rpc_engine *engine = endpoint->engine;
    if ((endpoint->state != CRPC_STATE_CONNECTED && endpoint->state != CRPC_STATE_CLOSING) ||
        endpoint->failing) {
        return CRPC_E_STATE;
    }
    endpoint_leave(endpoint);
    wheel_clear(&engine->wheel, &endpoint->life_timer);
    endpoint->leave_timeout_ns = timeout_ns;
    if (timeout_ns != CRPC_FOREVER) {
        wheel_set(&engine->wheel, &endpoint->life_timer,
                  deadline_after(engine_now_ns(engine), timeout_ns));
    } else {
        endpoint_start_keepalive(endpoint);
    }
    endpoint_flush(endpoint);
    engine->now_ns = 0;
    return CRPC_OK;
}

/* ---- The life timer -------------------------------------------------------------------------- */

static bool awaits_peer(const struct rpc_endpoint *endpoint)
{
    return endpoint->calls_used > 0 || endpoint->fin_wanted;
}

/* With calls open, a peer that went silent is probed with a mailbox READ: if its machine is
 * gone, the transport's retries end the connection, and its calls with it. */
void endpoint_start_keepalive(struct rpc_endpoint *endpoint)
{
    if (wheel_timer_set(&endpoint->life_timer) || endpoint->failing ||
        endpoint->options.keepalive_ns == CRPC_FOREVER) {
        return;
    }
    endpoint->heard = 0;
    wheel_set(&endpoint->engine->wheel, &endpoint->life_timer,
              deadline_after(engine_now_ns(endpoint->engine), endpoint->options.keepalive_ns));
}

void endpoint_life_timer(struct rpc_endpoint *endpoint)
{
    crpc_error error = {0};
    if (endpoint->failing) {
        return;
    }
    if (endpoint->state == CRPC_STATE_CONNECTING) {
        error_set(&error, CRPC_E_TIMEOUT, 0,
                  "no connection within %llu ms; is the peer's program running and polling?",
                  (unsigned long long)(endpoint->options.connect_timeout_ns / 1000000));
        endpoint_not_connected(endpoint, &error);
        return;
    }
    if (endpoint->fin_wanted && endpoint->leave_timeout_ns != CRPC_FOREVER) {
        error_set(
            &error, CRPC_E_TIMEOUT, 0,
            "the peer did not finish within the disconnect timeout: %u calls were unanswered, "
            "%u requests not replied to",
            endpoint->calls_used, endpoint->owed_count);
        endpoint_fail(endpoint, &error);
        return;
    }
    if (awaits_peer(endpoint)) {
        if (endpoint->heard == 0) {
            endpoint_read_mailbox(endpoint);
        }
        endpoint_start_keepalive(endpoint);
    }
}

/* services.c: listeners that are served: as in a program, peers are accepted, and their ends are nobody's concern. */
#include "line.h"
#include "runner.h"

static void tell_stopped(struct thing *service)
{
    if (service->stops && service->connections == 0) {
        json_t *event = event_new("stopped");
        put_text(event, "listener", service->name);
        put_status(event, CRPC_OK);
        event_tell(event);
    }
}

int32_t service_stop(struct thing *service)
{
    const uint64_t limit = nanoseconds("timeout_ms");
    const int32_t left =
        crpc_listener_drain(context, (crpc_listener){service->bits}, limit ? limit : CRPC_FOREVER);
    service->stops = 1;
    tell_stopped(service);
    return left < 0 ? left : CRPC_OK;
}

void service_accept(struct thing *service, crpc_endpoint endpoint)
{
    struct thing *connection = thing_add("", endpoint.bits);
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .user_data = (uintptr_t)connection};
    connection->service = service;
    service->connections += crpc_endpoint_accept(context, endpoint, &options, NULL) == CRPC_OK;
}

void service_take(const struct thing *connection, const crpc_completion *done)
{
    struct thing *service = connection->service;
    if (done->kind == CRPC_COMPLETION_CONNECTED && done->status == CRPC_OK) {
        if (service->stops) {
            crpc_endpoint_disconnect(context, done->endpoint, CRPC_FOREVER);
        }
        return;
    }
    crpc_endpoint_close(context, done->endpoint);
    service->connections--;
    tell_stopped(service);
}

/* contexts.c: see contexts.h. */
#include "contexts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "place.h"

crpc_context *contexts_open(uint32_t flags)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .features = PLACE_FEATURES,
                                    .flags = flags,
                                    .initiators = place_initiators()};
    crpc_context *context;
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    if (crpc_context_open(&options, &context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return context;
}

crpc_listener contexts_listen(crpc_context *context, uint32_t flags, char address[64])
{
    const crpc_listener_options options = {.struct_size = sizeof(options), .flags = flags};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    assert_int_equal(crpc_listener_open(context, place_at(0, "0"), &options, &listener, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_listener_get_info(context, listener, &info), CRPC_OK);
    memcpy(address, info.address, sizeof(info.address));
    return listener;
}

void contexts_submit(crpc_context *context, const crpc_op *op)
{
    int32_t reason;
    assert_int_equal(crpc_submit(context, op, 1, NULL, 0, &reason), 1);
}

crpc_completion contexts_poll_until(crpc_context *context, crpc_context *other, uint8_t kind)
{
    const time_t end = time(NULL) + 60;
    crpc_completion completion, unused;
    for (;;) {
        assert_true(time(NULL) < end);
        if (crpc_poll(context, &completion, 1) == 1 && completion.kind == kind) {
            return completion;
        }
        if (other) {
            crpc_poll(other, &unused, 1);
        }
        usleep(100);
    }
}

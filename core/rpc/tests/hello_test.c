/* hello_test.c: which bodies of an endpoint's hello are taken. What is around the body is link's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/internal.h"

static struct wire_endpoint good(void)
{
    return (struct wire_endpoint){.ring_address = 0x7f0000001000,
                                  .ring_key = 11,
                                  .request_units = 64,
                                  .batch_window = 8,
                                  .batch_window_first = 2,
                                  .ring_log2 = 12,
                                  .ring_log2_first = 12,
                                  .calls_log2 = 4};
}

static const char *fault(const struct wire_endpoint *wire)
{
    return rpc_service.body_fault((const uint8_t *)wire);
}

static void good_ones_are_taken(void **state)
{
    (void)state;
    struct wire_endpoint wire = good();
    assert_null(fault(&wire));
    wire.request_units = 0; /* takes no requests */
    assert_null(fault(&wire));
    wire.request_units = 127 - 11; /* all but the room for FIN and for what is said of rings */
    assert_null(fault(&wire));
    wire.calls_log2 = 20;
    wire.ring_log2 = 30;
    assert_null(fault(&wire));
    wire.ring_log2_first = 30;
    wire.batch_window_first = 8;
    assert_null(fault(&wire));
}

static void spoiled_ones_are_not(void **state)
{
    (void)state;
#define SPOIL(statement)                                                                           \
    do {                                                                                           \
        struct wire_endpoint wire = good();                                                        \
        statement;                                                                                 \
        if (!fault(&wire)) {                                                                       \
            fail_msg("%s was taken", #statement);                                                  \
        }                                                                                          \
    } while (0)
    SPOIL(wire.ring_log2 = 11);
    SPOIL(wire.ring_log2 = 31);
    SPOIL(wire.ring_log2 = 255);
    SPOIL(wire.ring_log2_first = 11);
    SPOIL(wire.ring_log2_first = 13);
    SPOIL(wire.calls_log2 = 21);
    SPOIL(wire.ring_address = 0x1001);
    SPOIL(wire.ring_address = UINT64_MAX - 31);
    SPOIL(wire.ring_address = UINT64_MAX - 8191);
    SPOIL(wire.request_units = 1);
    SPOIL(wire.request_units = 128 - 11);
    SPOIL(wire.request_units = UINT32_MAX);
    SPOIL(wire.batch_window = 0);
    SPOIL(wire.batch_window = 1);
    SPOIL(wire.batch_window_first = 0);
    SPOIL(wire.batch_window_first = 9);
    SPOIL(wire.zero = 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_are_taken),
        cmocka_unit_test(spoiled_ones_are_not),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* memory_test.c: the in-memory NIC keeps what nic.h promises of every driver, in the mode that is given:
 * memory_test immediate|scheduled [without-srq]. What else it promises is tested in core/nic/memory/tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "nic/memory/memory.h"

/* A microsecond is a step. */
#define STEPS_OF_A_POLL 10u

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

uint32_t pair_driver(void)
{
    return NIC_DRIVER_MEMORY;
}

void pair_choose(struct nic_options *options)
{
    snprintf(options->device, sizeof(options->device), "memory0");
}

void pair_pass(uint32_t microseconds)
{
    memory_fabric_run(memory_fabric_default(), STEPS_OF_A_POLL + microseconds);
}

void pair_refuse_resets(uint32_t count)
{
    (void)count;
}

void pair_expect_timer(const struct nic_queue *queue, uint32_t code)
{
    (void)queue;
    (void)code;
}

bool pair_limit_reached(struct nic_queue *srq)
{
    return memory_queue_limit_reached(srq);
}

static int tear_down(void **state)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(memory_fabric_default());
    (void)state;
    assert_int_equal(counters->nics, 0);
    assert_int_equal(counters->left_open, 0);
    assert_int_equal(counters->send_overflows + counters->receive_overflows, 0);
    memory_fabric_reset_default();
    return 0;
}

static const struct CMUnitTest dynamic_tests[] = {DYNAMIC_CONTRACT_TESTS};

int main(int argc, char **argv)
{
    struct CMUnitTest tests[] = {CONTRACT_TESTS, QUEUE_CONTRACT_TESTS, DC_CONTRACT_TESTS,
                                 DYNAMIC_CONTRACT_TESTS};
    const bool scheduled = argc >= 2 && strcmp(argv[1], "scheduled") == 0;
    const bool without_srq = argc == 3 && strcmp(argv[2], "without-srq") == 0;
    if (argc < 2 || argc != (without_srq ? 3 : 2) ||
        (!scheduled && strcmp(argv[1], "immediate") != 0)) {
        fprintf(stderr, "usage: memory_test immediate|scheduled [without-srq]\n");
        return 2;
    }
    memory_fabric_options(memory_fabric_default())->mode =
        scheduled ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE;
    memory_fabric_options(memory_fabric_default())->no_srq = without_srq;
    for (size_t i = 0; without_srq && i < sizeof(dynamic_tests) / sizeof(dynamic_tests[0]); i++) {
        LEAVE_OUT(tests, dynamic_tests[i].test_func, "a DCT takes receives of an SRQ");
    }
    contract_leave_out(tests, sizeof(tests) / sizeof(tests[0]));
    LEAVE_OUT(tests, test_dynamic_refused, "the in-memory NIC has nothing to reset");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, tear_down);
}

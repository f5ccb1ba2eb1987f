/* blind_minis_test.c: on a device that compresses completions of receives although their mini CQEs do not tell them apart (simnic's quirk
 * blind-minis). Who does not ask for compressed receives sees nothing of it; who does gets wrong immediates, which is why one has to
 * ask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/pair.h"
#include "base/clock.h"
#include "nic/mlx5/mlx5.h"

#define ROUNDS 50u
#define BURST 16u

static struct pair *open_pair(bool compressed_receives)
{
    struct nic_options options = pair_options();
    options.features = CRPC_FEATURE_CQE_COMPRESSION;
    options.compressed_receives = compressed_receives;
    return pair_open(&options);
}

/* Bursts of WRITEs with different immediates. Returns how many arrive with another than was sent. */
static uint32_t wrong_immediates(struct pair *pair)
{
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_completion completions[64];
    uint32_t arrived = 0, wrong = 0;
    uint64_t start = clock_now_ns();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < BURST; i++) {
            struct nic_transfer write = pair_write(pair, 0, 0, 16, BURST * (round - 1) + i);
            operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        }
        operations->ring_doorbell(pair->sender);
        while (arrived < BURST * round || pair->sender->completed < BURST * round) {
            const uint32_t count = operations->poll(pair->far.nic, completions, 64);
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(completions[i].kind, NIC_COMPLETION_RECEIVE);
                wrong += completions[i].immediate != arrived + i;
            }
            arrived += count;
            operations->poll(pair->near.nic, completions, 64);
            assert_true(clock_now_ns() - start < PAIR_WAIT_S * 1000000000ull);
        }
        operations->refill(pair->far.nic);
    }
    return wrong;
}

static void test_sends_alone(void **state)
{
    (void)state;
    struct pair *pair = open_pair(false);
    assert_int_equal(wrong_immediates(pair), 0);
    assert_true(to_mlx5_nic(pair->near.nic)->sends.blocks > 0);
    assert_int_equal(pair->far.nic->unknown_completions, 0);
    pair_close(pair);
}

static void test_receives(void **state)
{
    (void)state;
    struct pair *pair = open_pair(true);
    assert_true(wrong_immediates(pair) > ROUNDS);
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sends_alone),
        cmocka_unit_test(test_receives),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* left_out_device_test.c: what a nic does without when copyrpc-check has found it to fail, and that who names the driver gets all. On
 * simnic, with the file written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/device/left_out.h"
#include "nic/mlx5/mlx5.h"
#include "pair.h"

static char folder[64];
static crpc_error error;

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/left_out_test.XXXXXX");
    assert_non_null(mkdtemp(folder));
    return setenv("XDG_STATE_HOME", folder, 1);
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static int32_t open_with(uint32_t driver, uint32_t initiators, bool enhanced, struct nic **nic)
{
    struct nic_options options = pair_options();
    options.features = CRPC_FEATURE_CQE_COMPRESSION;
    options.compressed_receives = true;
    options.enhanced_layout = enhanced;
    options.initiators = initiators;
    options.automatic = driver == CRPC_DRIVER_AUTO;
    error = (crpc_error){.struct_size = sizeof(error)};
    *nic = NULL;
    return nic_open(driver, &options, nic, &error);
}

static int32_t open_nic(uint32_t driver, uint32_t initiators, struct nic **nic)
{
    return open_with(driver, initiators, true, nic);
}

/* Writes the file for the device that tests use. */
static void leave_out(uint32_t features)
{
    struct left_out_subject subject;
    struct ibv_device_attr attributes;
    struct nic *nic;
    assert_int_equal(open_nic(CRPC_DRIVER_MLX5, 0, &nic), CRPC_OK);
    assert_int_equal(ibv_query_device(device_context(nic), &attributes), 0);
    left_out_describe(device_context(nic), &attributes, &subject);
    nic->operations->close(nic);
    assert_int_equal(left_out_write(&subject, features), 0);
}

static uint32_t push_bytes(struct nic *nic)
{
    struct nic_queue_pair *queue_pair = NULL;
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, 0, &queue_pair, NULL), CRPC_OK);
    uint32_t bytes = to_mlx5_queue_pair(queue_pair)->queue.doorbell->push_bytes;
    nic->operations->queue_pair_destroy(queue_pair);
    return bytes;
}

static void expect(uint32_t driver, uint32_t features, bool says)
{
    struct nic *nic;
    assert_int_equal(open_nic(driver, 0, &nic), CRPC_OK);
    assert_int_equal(nic->operations->driver, CRPC_DRIVER_MLX5);
    assert_int_equal(nic->features, features);
    assert_int_equal(push_bytes(nic) != 0, (features & CRPC_FEATURE_BLUEFLAME) != 0);
    assert_int_equal(nic->left_out[0] != '\0', says);
    assert_true(!says || strstr(nic->left_out, folder));
    nic->operations->close(nic);
}

static void test_each_is_left_out_alone(void **state)
{
    const uint32_t all = CRPC_FEATURE_BLUEFLAME | CRPC_FEATURE_CQE_COMPRESSION;
    (void)state;
    expect(CRPC_DRIVER_AUTO, all, false);
    leave_out(LEFT_OUT_BLUEFLAME);
    expect(CRPC_DRIVER_AUTO, CRPC_FEATURE_CQE_COMPRESSION, true);
    expect(CRPC_DRIVER_MLX5, all, false);
    leave_out(LEFT_OUT_CQE_COMPRESSION);
    expect(CRPC_DRIVER_AUTO, CRPC_FEATURE_BLUEFLAME, true);
    expect(CRPC_DRIVER_MLX5, all, false);
    leave_out(LEFT_OUT_CQE_COMPRESSION | LEFT_OUT_BLUEFLAME);
    expect(CRPC_DRIVER_AUTO, 0, true);
    leave_out(0);
    expect(CRPC_DRIVER_AUTO, all, false);
}

static void test_without_dc_nothing_has_initiators(void **state)
{
    struct nic *nic;
    (void)state;
    assert_int_equal(open_nic(CRPC_DRIVER_AUTO, 1, &nic), CRPC_OK);
    assert_true(nic->dc);
    nic->operations->close(nic);
    leave_out(LEFT_OUT_DC);
    assert_int_equal(open_nic(CRPC_DRIVER_AUTO, 1, &nic), CRPC_E_UNSUPPORTED);
    assert_null(nic);
    assert_int_equal(open_nic(CRPC_DRIVER_AUTO, 0, &nic), CRPC_OK);
    assert_false(nic->dc);
    nic->operations->close(nic);
    assert_int_equal(open_nic(CRPC_DRIVER_MLX5, 1, &nic), CRPC_OK);
    assert_true(nic->dc);
    nic->operations->close(nic);
}

/* By a queue pair of the verbs: those made past them offer nothing. */
static uint32_t ece_offered(uint32_t driver)
{
    struct nic *nic;
    struct nic_queue_pair *queue_pair;
    struct nic_address address;
    assert_int_equal(open_with(driver, 0, false, &nic), CRPC_OK);
    nic->ece = true;
    assert_int_equal(nic_queue_pair_create(nic, NULL, NULL, 0, &queue_pair, &error), CRPC_OK);
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    queue_pair->operations->queue_pair_destroy(queue_pair);
    nic->operations->close(nic);
    return address.ece.options;
}

static void test_without_ece_nothing_is_offered(void **state)
{
    (void)state;
    const uint32_t offered = ece_offered(CRPC_DRIVER_AUTO);
    assert_int_not_equal(offered, 0);
    leave_out(LEFT_OUT_ECE);
    assert_int_equal(ece_offered(CRPC_DRIVER_AUTO), 0);
    assert_int_equal(ece_offered(CRPC_DRIVER_MLX5), offered);
}

static void test_without_the_driver_there_is_verbs(void **state)
{
    struct nic *nic;
    (void)state;
    leave_out(LEFT_OUT_MLX5);
    assert_int_equal(open_nic(CRPC_DRIVER_AUTO, 0, &nic), CRPC_OK);
    assert_int_equal(nic->operations->driver, CRPC_DRIVER_VERBS);
    assert_non_null(strstr(nic->left_out, "the mlx5 driver"));
    nic->operations->close(nic);
    assert_int_equal(open_nic(CRPC_DRIVER_MLX5, 0, &nic), CRPC_OK);
    assert_int_equal(nic->operations->driver, CRPC_DRIVER_MLX5);
    nic->operations->close(nic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_is_left_out_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_dc_nothing_has_initiators, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_ece_nothing_is_offered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_the_driver_there_is_verbs, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

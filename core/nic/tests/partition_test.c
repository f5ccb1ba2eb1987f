/* partition_test.c: which P_Key of a port's table is taken, and what is said if there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "nic/nic.h"

static int32_t choose(const uint16_t *keys, uint32_t count, uint16_t wanted, uint32_t *index,
                      crpc_error *error)
{
    *error = (crpc_error){.struct_size = sizeof(*error)};
    *index = UINT32_MAX;
    return nic_partition_choose("mlx5_0", 2, keys, count, wanted, index, error);
}

static void expect(const uint16_t *keys, uint32_t count, uint16_t wanted, uint32_t index)
{
    crpc_error error;
    uint32_t found;
    assert_int_equal(choose(keys, count, wanted, &found, &error), CRPC_OK);
    assert_int_equal(found, index);
}

static void the_first_full_membership_is_the_default(void **state)
{
    (void)state;
    static const uint16_t keys[] = {0x7fff, 0, 0x8001, 0xffff};
    expect(keys, 4, 0, 2);
    expect(keys, 2, 0, 0); /* a limited one is better than none */
}

static void a_key_is_found_by_its_value(void **state)
{
    (void)state;
    static const uint16_t keys[] = {0xffff, 0x0002, 0x8001, 0x8002, 0x0003};
    expect(keys, 5, 0x8001, 2);
    expect(keys, 5, 0x0001, 2);
    expect(keys, 5, 0x0002, 3); /* full, though the limited one comes first */
    expect(keys, 5, 0x8002, 3);
    expect(keys, 5, 0x0003, 4);
    expect(keys, 5, 0x7fff, 0);
}

static void an_error_names_the_keys_that_there_are(void **state)
{
    (void)state;
    static const uint16_t keys[] = {0xffff, 0, 0x0003};
    uint16_t many[128];
    uint32_t index;
    crpc_error error;
    assert_int_equal(choose(keys, 3, 0x8003, &index, &error), CRPC_E_INVALID);
    assert_string_equal(error.message, "mlx5_0 port 2 has no P_Key 0x8003; it has 0xffff, 0x0003");
    assert_int_equal(choose(keys + 1, 1, 0, &index, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "subnet manager"));
    assert_int_equal(choose(keys, 0, 0x8003, &index, &error), CRPC_E_INVALID);
    for (uint32_t i = 0; i < 128; i++) {
        many[i] = (uint16_t)(0x8100 + i);
    }
    assert_int_equal(choose(many, 128, 0x8003, &index, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "0x810f ..."));
    /* Of no partition, whatever the membership. */
    static const uint16_t none[] = {0x8000};
    assert_int_equal(choose(none, 1, 0, &index, &error), CRPC_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_full_membership_is_the_default),
        cmocka_unit_test(a_key_is_found_by_its_value),
        cmocka_unit_test(an_error_names_the_keys_that_there_are),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

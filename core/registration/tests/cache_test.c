/* cache_test.c: the cache of registrations, with two nics of the in-memory fabric. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "nic/memory/memory.h"
#include "registration/registration.h"

static uint8_t memory[1 << 16] __attribute__((aligned(4096)));

struct fixture {
    struct memory_fabric *fabric;
    struct log log;
    struct registrar registrar;
    struct registration_cache *cache;
};

static int open_fixture(void **state)
{
    static struct fixture fixture;
    crpc_error error = {0};
    memset(&fixture, 0, sizeof(fixture));
    fixture.fabric = memory_fabric_create(1);
    fixture.registrar.log = &fixture.log;
    for (uint32_t i = 0; i < REGISTRATION_NICS_MAX; i++) {
        struct nic_options options = {.receive_depth = 16,
                                      .send_depth = 16,
                                      .send_completion_depth = 16,
                                      .signal_interval = 8};
        strcpy(options.device, i == 0 ? "memory0" : "memory1");
        assert_int_equal(
            memory_nic_open(fixture.fabric, &options, &fixture.registrar.nics[i], &error), CRPC_OK);
        fixture.registrar.nic_count++;
    }
    assert_int_equal(registration_cache_create(&fixture.registrar, &fixture.cache, &error),
                     CRPC_OK);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;
    registration_cache_destroy(fixture->cache);
    for (uint32_t i = 0; i < fixture->registrar.nic_count; i++) {
        fixture->registrar.nics[i]->operations->close(fixture->registrar.nics[i]);
    }
    assert_int_equal(memory_fabric_counters(fixture->fabric)->left_open, 0);
    memory_fabric_destroy(fixture->fabric);
    return 0;
}

static struct registration *get(struct fixture *fixture, uint32_t offset, uint32_t bytes)
{
    struct registration *registration = NULL;
    crpc_error error = {0};
    assert_int_equal(registration_cache_get(fixture->cache, (uint64_t)(uintptr_t)memory + offset,
                                            bytes, &registration, &error),
                     CRPC_OK);
    return registration;
}

static int32_t forget(struct fixture *fixture, uint32_t offset, uint32_t bytes)
{
    return registration_cache_forget(fixture->cache, (uint64_t)(uintptr_t)memory + offset, bytes);
}

static crpc_cache_info info_of(const struct fixture *fixture)
{
    crpc_cache_info info = {0};
    registration_cache_info(fixture->cache, &info);
    return info;
}

static void what_overlaps_is_one(void **state)
{
    struct fixture *fixture = *state;
    struct registration *first = get(fixture, 10, 100);
    assert_ptr_equal(get(fixture, 500, 100), first);
    get(fixture, 4000, 9000);
    assert_int_equal(info_of(fixture).registrations, 1);
    assert_int_equal(info_of(fixture).bytes, 4 * 4096);
    assert_int_equal(info_of(fixture).hits, 1);
    assert_int_equal(info_of(fixture).misses, 2);
}

static void what_an_op_uses_is_not_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct registration *registration = get(fixture, 0, 4 * 4096);
    registration->users++;
    assert_int_equal(forget(fixture, 0, 1), CRPC_E_BUSY);
    registration->users--;
    assert_int_equal(forget(fixture, 4 * 4096, 1), 0);
    assert_int_equal(forget(fixture, 0, 1), 1);
}

/* The op goes on with what it has, and what it has is still told to be busy. */
static void what_an_op_uses_outlives_its_place_in_the_cache(void **state)
{
    struct fixture *fixture = *state;
    struct registration *narrow = get(fixture, 0, 100);
    narrow->users++;
    struct registration *wide = get(fixture, 100, 4096); /* takes its place */
    assert_ptr_not_equal(wide, narrow);
    assert_int_equal(info_of(fixture).registrations, 1);
    assert_int_equal(narrow->nics, 3);
    assert_int_equal(forget(fixture, 0, 1), CRPC_E_BUSY);
    narrow->users--;
    assert_int_equal(forget(fixture, 0, 1), 1);
}

/* The limit of locked memory may be met between the first nic and the second. */
static void what_one_nic_cannot_lock_any_more_makes_room(void **state)
{
    struct fixture *fixture = *state;
    struct registration *registration;
    crpc_error error = {0};
    get(fixture, 0, 100);
    memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 2, CRPC_E_MEMLOCK);
    assert_int_equal(get(fixture, 16384, 100)->nics, 3);
    assert_int_equal(info_of(fixture).evictions, 1);
    assert_int_equal(info_of(fixture).registrations, 1);
    memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 2, CRPC_E_MEMLOCK);
    assert_int_equal(registration_cache_forget(fixture->cache, 0, 0), 1);
    assert_int_equal(registration_cache_get(fixture->cache, (uint64_t)(uintptr_t)memory, 100,
                                            &registration, &error),
                     CRPC_E_MEMLOCK);
    assert_int_equal(get(fixture, 0, 100)->nics, 3);
}

/* Ops of channels over both would be refused as long as it stays. */
static void what_one_nic_lacked_for_a_moment_is_completed(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t nth = 1; nth <= 2; nth++) {
        crpc_error error = {0};
        memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, nth, CRPC_E_NO_RESOURCE);
        struct registration *half = get(fixture, nth * 8192, 100);
        uint32_t missing = 1u << (nth - 1);
        struct nic_keys kept = half->keys[2 - nth];
        assert_int_equal(half->nics, 3 & ~missing);
        half->users++;
        memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_NO_MEMORY);
        assert_ptr_equal(get(fixture, nth * 8192, 100), half);
        assert_int_equal(registration_cache_complete(fixture->cache, half, 3, &error),
                         CRPC_E_NO_MEMORY);
        assert_int_equal(half->nics, 3 & ~missing);
        assert_int_equal(registration_cache_complete(fixture->cache, half, 3, &error), CRPC_OK);
        assert_int_equal(half->nics, 3);
        assert_memory_equal(&half->keys[2 - nth], &kept, sizeof(kept));
        half->users--;
    }
    assert_int_equal(memory_fabric_counters(fixture->fabric)->regions, 4);
}

static void completing_makes_room_where_locked_memory_is_short(void **state)
{
    struct fixture *fixture = *state;
    crpc_error error = {0};
    get(fixture, 0, 100);
    memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 2, CRPC_E_NO_RESOURCE);
    struct registration *half = get(fixture, 16384, 100);
    assert_int_equal(half->nics, 1);
    memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(registration_cache_complete(fixture->cache, half, 3, &error), CRPC_OK);
    assert_int_equal(half->nics, 3);
    assert_int_equal(info_of(fixture).evictions, 1);
    assert_ptr_equal(get(fixture, 16384, 100), half);
}

/* What was short for a moment must not make memory look as if it could only be read. */
static void what_every_nic_lacked_for_a_moment_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    const int32_t lacks[] = {CRPC_E_MEMLOCK, CRPC_E_NO_RESOURCE, CRPC_E_NO_MEMORY};
    for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
        struct registration *registration;
        crpc_error error = {0};
        fixture->registrar.nic_count = 1;
        memory_fabric_set_failures(fixture->fabric, MEMORY_FAIL_REGISTER, 1, lacks[i]);
        assert_int_equal(registration_cache_get(fixture->cache, (uint64_t)(uintptr_t)memory, 100,
                                                &registration, &error),
                         lacks[i]);
        fixture->registrar.nic_count = REGISTRATION_NICS_MAX;
        assert_int_equal(info_of(fixture).registrations, 0);
    }
    assert_true(get(fixture, 0, 100)->access & CRPC_ACCESS_REMOTE_WRITE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(what_overlaps_is_one),
        TEST(what_an_op_uses_is_not_forgotten),
        TEST(what_an_op_uses_outlives_its_place_in_the_cache),
        TEST(what_one_nic_cannot_lock_any_more_makes_room),
        TEST(what_one_nic_lacked_for_a_moment_is_completed),
        TEST(completing_makes_room_where_locked_memory_is_short),
        TEST(what_every_nic_lacked_for_a_moment_is_not_kept),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

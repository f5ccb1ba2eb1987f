/* hint_test.c: what crpc_hint_* refuses, and what it leaves in shared memory. core/channel/tests/hint_test.c has the rest. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"

static char name[64];

static crpc_hint *open_hint(void)
{
    crpc_hint *hint = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_hint_open(name, &hint, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return hint;
}

static void names_that_are_none_are_refused(void **state)
{
    (void)state;
    char longest[65];
    memset(longest, 'x', sizeof(longest));
    longest[0] = '/';
    longest[64] = '\0';
    const char *const wrong[] = {NULL, "", "/", "x", "x/", "/x/y", "//", longest};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        crpc_hint *hint = (crpc_hint *)&hint;
        crpc_error error = {.struct_size = sizeof(error)};
        assert_int_equal(crpc_hint_open(wrong[i], &hint, &error), CRPC_E_INVALID);
        assert_int_equal(error.status, CRPC_E_INVALID);
        assert_non_null(strstr(error.message, "name"));
        assert_ptr_equal(hint, &hint);
    }
    assert_int_equal(crpc_hint_open("/x", NULL, NULL), CRPC_E_INVALID);
}

static void shares_and_lifetimes_are_checked(void **state)
{
    (void)state;
    crpc_hint *hint = open_hint();
    assert_int_equal(crpc_hint_publish(NULL, 0, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_hint_publish(hint, 1025, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_hint_publish(hint, 1, 60000000001), CRPC_E_INVALID);
    assert_int_equal(crpc_hint_publish(hint, 1, CRPC_FOREVER), CRPC_E_INVALID);
    assert_int_equal(crpc_hint_publish(hint, 0, 1), CRPC_OK);
    assert_int_equal(crpc_hint_publish(hint, 1024, 60000000000), CRPC_OK);
    assert_int_equal(crpc_hint_close(hint), CRPC_OK);
    assert_int_equal(crpc_hint_close(NULL), CRPC_OK);
}

static void there_is_one_writer(void **state)
{
    (void)state;
    crpc_hint *hint = open_hint(), *other = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_hint_open(name, &other, &error), CRPC_E_BUSY);
    assert_non_null(strstr(error.message, name));
    crpc_hint_close(hint);
    crpc_hint_close(open_hint());
}

/* What docs/wire.md says, byte by byte. */
static void the_format_is_as_documented(void **state)
{
    (void)state;
    crpc_hint *hint = open_hint();
    uint32_t words[8];
    uint64_t until_ns;
    struct timespec now;
    assert_int_equal(crpc_hint_publish(hint, 123, 0), CRPC_OK);
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    int fd = shm_open(name, O_RDONLY, 0);
    assert_int_equal(pread(fd, words, sizeof(words), 0), sizeof(words));
    assert_int_equal(words[0], 0x54484343);
    assert_int_equal(words[1], 2);
    assert_int_equal(words[2] % 2, 0);
    assert_int_equal(words[3], 123);
    memcpy(&until_ns, &words[4], sizeof(until_ns));
    assert_in_range(until_ns, now_ns, now_ns + 1000000000); /* 1 s since, and not over */
    assert_int_equal(words[6] | words[7], 0);
    crpc_hint_close(hint);
    assert_int_equal(pread(fd, words, sizeof(words), 0), sizeof(words));
    assert_int_equal(words[2] % 2, 0);
    assert_int_equal(words[3], 0xffffffff);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_are_none_are_refused),
        cmocka_unit_test(shares_and_lifetimes_are_checked),
        cmocka_unit_test(there_is_one_writer),
        cmocka_unit_test(the_format_is_as_documented),
    };
    snprintf(name, sizeof(name), "/copyrpc-capi-hint-test-%d", (int)getpid());
    shm_unlink(name);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    shm_unlink(name);
    return result;
}

/* hint_test.c: what writers of hints do, and what channels make of it: followed as long as it is good, and no longer,
 * however its writer ends; one writer at a time; what an older writer writes.
 */
#include "pair_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel/hint_write.h"

#define SECOND UINT64_C(1000000000)
#define NEVER UINT64_MAX

static char name[64];

static int setup(void **state)
{
    (void)state;
    snprintf(name, sizeof(name), "/copyrpc-hint-test-%d", (int)getpid());
    shm_unlink(name);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shm_unlink(name);
    return 0;
}

static struct hint_writer *open_writer(void)
{
    struct hint_writer *writer = NULL;
    crpc_error error = {0};
    if (hint_writer_open(name, &writer, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return writer;
}

/* The share that a reader sees, or CHANNEL_HINT_NONE. */
static uint32_t seen_at(uint64_t now_ns)
{
    uint32_t share;
    const struct channel_hint *hint = hint_open(name);
    assert_non_null(hint);
    bool good = hint_read(hint, now_ns, &share);
    hint_close(hint);
    return good ? share : CHANNEL_HINT_NONE;
}

static void a_hint_is_good_for_its_time(void **state)
{
    (void)state;
    struct hint_writer *writer = open_writer();
    assert_int_equal(seen_at(0), CHANNEL_HINT_NONE);
    hint_writer_publish(writer, 100, 5 * SECOND);
    assert_int_equal(seen_at(0), 100);
    assert_int_equal(seen_at(5 * SECOND - 1), 100);
    assert_int_equal(seen_at(5 * SECOND), CHANNEL_HINT_NONE);
    hint_writer_publish(writer, 1024, 6 * SECOND);
    assert_int_equal(seen_at(5 * SECOND), 1024);
    hint_writer_publish(writer, 0, NEVER);
    assert_int_equal(seen_at(NEVER - 1), 0);
    hint_writer_close(writer);
    assert_int_equal(seen_at(0), CHANNEL_HINT_NONE);
}

static void there_is_one_writer(void **state)
{
    (void)state;
    struct hint_writer *writer = open_writer(), *other = NULL;
    crpc_error error = {0};
    hint_writer_publish(writer, 100, NEVER);
    assert_int_equal(hint_writer_open(name, &other, &error), CRPC_E_BUSY);
    assert_non_null(strstr(error.message, name));
    assert_int_equal(seen_at(0), 100);
    hint_writer_close(writer);
    other = open_writer();
    hint_writer_publish(other, 200, NEVER);
    assert_int_equal(seen_at(0), 200);
    hint_writer_close(other);
}

/* In a child, which then is killed; `torn`: in the middle of a publish. */
static void publish_and_die(uint32_t share, uint64_t until_ns, bool torn)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct hint_writer *writer;
        crpc_error error = {0};
        if (hint_writer_open(name, &writer, &error) == CRPC_OK) {
            hint_writer_publish(writer, share, until_ns);
            if (torn) {
                int fd = shm_open(name, O_RDWR, 0);
                struct channel_hint *shared =
                    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                shared->sequence++;
            }
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void a_writer_that_dies_rules_as_long_as_it_said(void **state)
{
    (void)state;
    publish_and_die(300, 5 * SECOND, false);
    assert_int_equal(seen_at(4 * SECOND), 300);
    assert_int_equal(seen_at(5 * SECOND), CHANNEL_HINT_NONE);
    struct hint_writer *writer = open_writer(); /* its lock went with it, and its hint goes now */
    assert_int_equal(seen_at(4 * SECOND), CHANNEL_HINT_NONE);
    hint_writer_close(writer);
    publish_and_die(400, NEVER, true);
    assert_int_equal(seen_at(0), CHANNEL_HINT_NONE);
    writer = open_writer();
    hint_writer_publish(writer, 500, NEVER);
    assert_int_equal(seen_at(0), 500);
    hint_writer_close(writer);
}

static void write_version_1(uint32_t share)
{
    const struct channel_hint words = {
        .magic = CHANNEL_HINT_MAGIC, .version = 1, .rail0_share = share};
    int fd = shm_open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &words, CHANNEL_HINT_BYTES_MIN), CHANNEL_HINT_BYTES_MIN);
    close(fd);
}

static void a_hint_of_version_1_is_good_until_it_changes(void **state)
{
    (void)state;
    write_version_1(700);
    assert_int_equal(seen_at(NEVER - 1), 700);
    struct hint_writer *writer = open_writer(); /* its place is taken over */
    assert_int_equal(seen_at(0), CHANNEL_HINT_NONE);
    hint_writer_publish(writer, 1, NEVER);
    assert_int_equal(seen_at(0), 1);
    hint_writer_close(writer);
}

static void open_channel(void)
{
    crpc_channel_options options = pair_options();
    options.split = CRPC_SPLIT_HINT;
    options.rail0_share = 0;
    options.keepalive_ns = SECOND / 10;
    strcpy(options.hint, name);
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
}

/* Of 1024 bytes, those of one message that rail 0 carried. */
static uint32_t carried(void)
{
    uint64_t before = pair_stats(&pair, 0).rail_bytes_sent[0];
    pair_message(&pair, 128 * 1024, 7);
    return (uint32_t)(pair_stats(&pair, 0).rail_bytes_sent[0] - before) / 128;
}

static void a_channel_follows_a_hint_while_it_is_good(void **state)
{
    (void)state;
    struct hint_writer *writer = open_writer();
    open_channel();
    uint32_t own = carried(); /* nothing was published: measured, by the speed of the links */
    assert_in_range(own, 500, 524);
    hint_writer_publish(writer, 200, pair.clock_ns + SECOND);
    assert_int_equal(carried(), 200);
    pair.clock_ns += SECOND - 1;
    assert_int_equal(carried(), 200);
    pair.clock_ns += 1;
    assert_in_range(carried(), 300, 724);
    hint_writer_publish(writer, 0, NEVER);
    assert_int_equal(carried(), 0);
    hint_writer_close(writer);
    assert_in_range(carried(), 300, 724);
    pair_close(&pair);
}

/* One that comes later, and one of the same name after the first was removed. */
static void a_channel_finds_a_hint_that_comes_later(void **state)
{
    (void)state;
    open_channel();
    assert_in_range(carried(), 300, 724);
    struct hint_writer *writer = open_writer();
    hint_writer_publish(writer, 50, pair.clock_ns + 10 * SECOND);
    pair_wait(&pair, SECOND);
    assert_int_equal(carried(), 50);
    hint_writer_close(writer);
    shm_unlink(name);
    writer = open_writer();
    hint_writer_publish(writer, 60, pair.clock_ns + 10 * SECOND);
    pair_wait(&pair, SECOND);
    assert_int_equal(carried(), 60);
    hint_writer_close(writer);
    pair_close(&pair);
}

static void a_name_that_cannot_be_opened_is_told(void **state)
{
    (void)state;
    struct hint_writer *writer;
    crpc_error error = {0};
    assert_int_equal(hint_writer_open("/", &writer, &error), CRPC_E_SYSTEM);
    assert_non_null(strstr(error.message, "shared memory /"));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_hint_is_good_for_its_time),
        TEST(there_is_one_writer),
        TEST(a_writer_that_dies_rules_as_long_as_it_said),
        TEST(a_hint_of_version_1_is_good_until_it_changes),
        TEST(a_channel_follows_a_hint_while_it_is_good),
        TEST(a_channel_finds_a_hint_that_comes_later),
        TEST(a_name_that_cannot_be_opened_is_told),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

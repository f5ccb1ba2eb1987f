/* left_out_test.c: the file of what copyrpc-check has found to fail: whose word counts, and that nothing in it does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/device/left_out.h"

static const struct left_out_subject subject = {.device = "mlx5_7",
                                                .card = "0123456789abcdef",
                                                .firmware = "28.39.1002",
                                                .kernel = "6.8.0-45-generic",
                                                .libmlx5 = "libmlx5.so.1.24.44.0",
                                                .copyrpc = "0.1.0"};
static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/left_out_test.XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("XDG_STATE_HOME", folder, 1);
    snprintf(path, sizeof(path), "%s/copyrpc/mlx5_7.leave-out", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static uint32_t read_now(struct left_out *found)
{
    left_out_read(&subject, found);
    return found->features;
}

static void put(const void *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
}

static void ignored_because(const char *words)
{
    struct left_out found;
    assert_int_equal(read_now(&found), 0);
    if (!strstr(found.ignored, words) || !strstr(found.ignored, path)) {
        fail_msg("\"%s\" has not \"%s\"", found.ignored, words);
    }
    assert_string_equal(found.path, "");
}

static void test_what_is_written_is_read(void **state)
{
    char own[LEFT_OUT_PATH_BYTES], text[LEFT_OUT_TEXT_BYTES];
    struct left_out found;
    (void)state;
    assert_int_equal(read_now(&found), 0);
    assert_string_equal(found.ignored, "");
    assert_true(left_out_own_path("mlx5_7", own, sizeof(own)));
    assert_string_equal(own, path);
    for (uint32_t features = 1; features < 16; features++) {
        assert_int_equal(left_out_write(&subject, features), 0);
        assert_int_equal(read_now(&found), features);
        assert_string_equal(found.path, path);
        assert_string_equal(found.ignored, "");
    }
    assert_string_equal(left_out_text(15, text), "the mlx5 driver, BlueFlame, CQE compression, DC");
    assert_int_equal(left_out_write(&subject, 0), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(read_now(&found), 0);
    assert_int_equal(left_out_write(&subject, 0), 0); /* also if there is none */
}

static void test_it_counts_for_what_was_checked_alone(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        struct left_out_subject other = subject;
        char *const fields[] = {other.device, other.card,    other.firmware,
                                other.kernel, other.libmlx5, other.copyrpc};
        const char *const words[] = {"device", "card", "firmware", "linux", "libmlx5", "copyrpc"};
        char expected[64];
        strcpy(fields[which], "1");
        setenv("XDG_STATE_HOME", folder, 1);
        assert_int_equal(left_out_write(&other, LEFT_OUT_DC), 0);
        if (which == 0) { /* another device has another file */
            char there[128];
            snprintf(there, sizeof(there), "%s/copyrpc/1.leave-out", folder);
            assert_int_equal(rename(there, path), 0);
        }
        snprintf(expected, sizeof(expected), "was written for another %s", words[which]);
        ignored_because(expected);
    }
}

static void test_nobody_else_can_plant_one(void **state)
{
    struct left_out found;
    char elsewhere[128], own_folder[128];
    (void)state;
    assert_int_equal(left_out_write(&subject, LEFT_OUT_MLX5), 0);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
    snprintf(own_folder, sizeof(own_folder), "%s/copyrpc", folder);
    chmod(path, 0664);
    ignored_because("only its user can write to");
    chmod(path, 0646);
    ignored_because("only its user can write to");
    chmod(path, 0600);
    assert_int_equal(read_now(&found), LEFT_OUT_MLX5);
    chmod(own_folder, 0777);
    ignored_because("in a folder that others can write to");
    chmod(own_folder, 0755);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 0), 0);
        ignored_because("only its user can write to");
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chown(own_folder, 12345, 0), 0);
        ignored_because("in a folder that others can write to");
        assert_int_equal(chown(own_folder, 0, 0), 0);
    }
    /* Of another user's file, root's word counts, and the user's. */
    found = (struct left_out){0};
    left_out_read_file(path, 54321, &subject, &found);
    assert_int_equal(found.features, geteuid() == 0 ? LEFT_OUT_MLX5 : 0);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    ignored_because("cannot be read");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* which nobody writes to */
    ignored_because("no plain file");
    unlink(path);
    assert_int_equal(mkdir(path, 0755), 0);
    ignored_because("no plain file");
    rmdir(path);
}

static void test_devices_lead_nowhere_else(void **state)
{
    char own[LEFT_OUT_PATH_BYTES];
    (void)state;
    assert_false(left_out_own_path("../mlx5_7", own, sizeof(own)));
    assert_false(left_out_own_path("..", own, sizeof(own)));
    assert_false(left_out_own_path("", own, sizeof(own)));
    assert_false(left_out_own_path("mlx5_7", own, 20));
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/home/somebody", 1);
    assert_true(left_out_own_path("mlx5_7", own, sizeof(own)));
    assert_string_equal(own, geteuid() == 0
                                 ? "/var/lib/copyrpc/mlx5_7.leave-out"
                                 : "/home/somebody/.local/state/copyrpc/mlx5_7.leave-out");
}

static void test_garbage(void **state)
{
    static uint8_t bytes[6000];
    static const char *const lines[] = {"leave-out everything\n", "leave-out\n", "device\n",
                                        "device mlx5_7\ndevice mlx5_7\n", "nonsense mlx5_7\n"};
    struct left_out found;
    uint64_t random = 7;
    (void)state;
    assert_int_equal(left_out_write(&subject, LEFT_OUT_BLUEFLAME), 0);
    FILE *file = fopen(path, "r");
    const size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put(lines[i], strlen(lines[i]));
        ignored_because("is not understood");
    }
    put("", 0);
    ignored_because("does not say of which device it is");
    put("device mlx5_7\0\n", 15);
    ignored_because("it is no text");
    /* Cut off anywhere, it counts as it was or not at all. */
    for (size_t cut = 0; cut < length; cut++) {
        put(bytes, cut);
        assert_true(read_now(&found) == 0 || cut == length - 1);
    }
    /* One byte is another. */
    for (uint32_t i = 0; i < 300; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t at = (size_t)(random >> 33) % length;
        const uint8_t before = bytes[at];
        bytes[at] = (uint8_t)(random >> 20);
        put(bytes, length);
        uint32_t features = read_now(&found);
        if (features != 0 && features != LEFT_OUT_BLUEFLAME) {
            fail_msg("byte %zu, 0x%02x: features %u", at, bytes[at], features);
        }
        bytes[at] = before;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(1 + (random >> 33) % 255);
    }
    put(bytes, 3000);
    ignored_because("is not understood");
    put(bytes, sizeof(bytes));
    ignored_because("is too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_written_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_counts_for_what_was_checked_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_else_can_plant_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_devices_lead_nowhere_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sysfs_test.c: programs that read /sys/class/infiniband themselves, as UCX, libfabric, NCCL and pyverbs do, see the session's
 * devices there, by whichever function; to be run under `simnic run --private`. What is elsewhere stays as it is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define CLASS "/sys/class/infiniband"
#define GUID CLASS "/mlx5_1/node_guid"
#define GUID_TEXT "0273:6903:006d:0002\n"

/* No header declares these when they are not used. */
char *__realpath_chk(const char *path, char *resolved, size_t room);
ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room);

/* Where the session has it. */
static const char *of_session(const char *rest)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/class/infiniband%s", getenv("SYSFS_PATH"), rest);
    return path;
}

static void expect_guid(int fd)
{
    char text[64] = "";
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof(text) - 1), strlen(GUID_TEXT));
    assert_string_equal(text, GUID_TEXT);
    close(fd);
}

static void test_open(void **state)
{
    (void)state;
    int class = open(CLASS, O_RDONLY | O_DIRECTORY);
    expect_guid(open(GUID, O_RDONLY));
    expect_guid(open64(GUID, O_RDONLY));
    expect_guid(openat(AT_FDCWD, GUID, O_RDONLY));
    expect_guid(openat(class, GUID, O_RDONLY));
    expect_guid(openat(class, "mlx5_1/node_guid", O_RDONLY));
    close(class);
}

static void test_streams(void **state)
{
    (void)state;
    FILE *(*functions[])(const char *, const char *) = {fopen, fopen64};
    for (int i = 0; i < 2; i++) {
        char line[64];
        FILE *file = functions[i](GUID, "r");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof(line), file));
        assert_string_equal(line, GUID_TEXT);
        fclose(file);
    }
}

static void test_status(void **state)
{
    (void)state;
    struct stat here, there;
    struct statx extended;
    assert_int_equal(stat(of_session("/mlx5_1"), &there), 0);
    assert_int_equal(stat(CLASS "/mlx5_1", &here), 0);
    assert_int_equal(here.st_ino, there.st_ino);
    assert_int_equal(lstat(CLASS "/mlx5_1", &here), 0);
    assert_true(S_ISLNK(here.st_mode));
    assert_int_equal(fstatat(AT_FDCWD, CLASS "/mlx5_1", &here, 0), 0);
    assert_int_equal(here.st_ino, there.st_ino);
    assert_int_equal(statx(-1, CLASS "/mlx5_1", 0, STATX_INO, &extended), 0);
    assert_int_equal(extended.stx_ino, there.st_ino);
    assert_int_equal(access(CLASS "/mlx5_1/device/net", R_OK | X_OK), 0);
    assert_int_equal(faccessat(AT_FDCWD, CLASS "/mlx5_1/device/net", R_OK, 0), 0);
    assert_int_equal(euidaccess(CLASS "/mlx5_1/device/net", R_OK), 0);
}

static int only_named(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void test_directories(void **state)
{
    (void)state;
    static const char *const expected[] = {"mlx5_0", "mlx5_1"};
    struct dirent **entries;
    assert_int_equal(scandir(CLASS, &entries, only_named, alphasort), 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(entries[i]->d_name, expected[i]);
        free(entries[i]);
    }
    free(entries);
    /* The network interface of each device, which programs of rdma_cm look for. */
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), CLASS "/%s/device/net/", expected[i]);
        DIR *directory = opendir(path);
        assert_non_null(directory);
        struct dirent *entry;
        do {
            entry = readdir(directory);
            assert_non_null(entry);
        } while (!only_named(entry));
        assert_string_equal(entry->d_name, "lo");
        closedir(directory);
    }
}

static void test_links(void **state)
{
    (void)state;
    char here[PATH_MAX] = "", there[PATH_MAX] = "";
    ssize_t bytes = readlink(of_session("/mlx5_0"), there, sizeof(there));
    assert_true(bytes > 0);
    assert_int_equal(readlink(CLASS "/mlx5_0", here, sizeof(here)), bytes);
    assert_string_equal(here, there);
    assert_int_equal(readlinkat(-1, CLASS "/mlx5_0", here, sizeof(here)), bytes);
    assert_int_equal(__readlink_chk(CLASS "/mlx5_0", here, sizeof(here), sizeof(here)), bytes);
    assert_non_null(realpath(of_session("/mlx5_0/device"), there));
    assert_non_null(realpath(CLASS "/mlx5_0/device", here));
    assert_string_equal(here, there);
    assert_non_null(__realpath_chk(CLASS "/mlx5_0/device", here, sizeof(here)));
    char *made = canonicalize_file_name(CLASS "/mlx5_0/device");
    assert_non_null(made);
    assert_string_equal(made, there);
    free(made);
}

/* Which paths are meant, and what is wrong as ever. */
static void test_what_is_meant(void **state)
{
    (void)state;
    char *volatile none = NULL;
    char *volatile low = (char *)8;
    char room[64];
    assert_int_equal(access(CLASS "/", F_OK), 0);
    assert_int_equal(access(CLASS "_verbs/uverbs0/ibdev", F_OK), 0);
    assert_int_equal(access("/sys/class/misc/rdma_cm/abi_version", F_OK), 0);
    assert_int_equal(access(CLASS "x", F_OK), -1);
    assert_int_equal(access(CLASS "/mlx5_7", F_OK), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(access("/sys/class/net", F_OK), syscall(SYS_access, "/sys/class/net", F_OK));
    for (int i = 0; i < 2; i++) {
        char *bad = i ? low : none;
        assert_int_equal(readlink(bad, room, sizeof(room)), -1);
        assert_int_equal(errno, EFAULT);
        assert_int_equal(readlinkat(AT_FDCWD, bad, room, sizeof(room)), -1);
        assert_int_equal(errno, EFAULT);
    }
    assert_null(realpath(none, NULL));
    assert_int_equal(errno, EINVAL);
    unsetenv("SIMNIC_SESSION");
    assert_int_equal(access(CLASS, F_OK), syscall(SYS_access, CLASS, F_OK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),   cmocka_unit_test(test_streams),
        cmocka_unit_test(test_status), cmocka_unit_test(test_directories),
        cmocka_unit_test(test_links),  cmocka_unit_test(test_what_is_meant),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* speed_test.c: how fast a link is said to be, by the codes of verbs and by what the kernel writes. Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/device/device.h"

static struct ibv_device device;
static struct ibv_context context = {.device = &device};

/* Port 2 of a device, of whose rate the kernel says this; NULL = nothing. */
static void write_rate(const char *text)
{
    char path[sizeof(device.ibdev_path) + 32];
    snprintf(path, sizeof(path), "%s/ports/2/rate", device.ibdev_path);
    unlink(path);
    if (text) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
    }
}

static int make_folder(void **state)
{
    char path[sizeof(device.ibdev_path) + 32];
    (void)state;
    snprintf(device.ibdev_path, sizeof(device.ibdev_path), "/tmp/copyrpc-speed-XXXXXX");
    if (!mkdtemp(device.ibdev_path)) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/ports", device.ibdev_path);
    int failed = mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/ports/2", device.ibdev_path);
    return failed | mkdir(path, 0700);
}

static int remove_folder(void **state)
{
    static const char *const parts[] = {"/ports/2", "/ports", ""};
    char path[sizeof(device.ibdev_path) + 32];
    (void)state;
    write_rate(NULL);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", device.ibdev_path, parts[i]);
        rmdir(path);
    }
    return 0;
}

static void expect(uint8_t speed, uint8_t width, uint32_t mbps)
{
    const struct ibv_port_attr attributes = {.active_speed = speed, .active_width = width};
    assert_int_equal(device_link_mbps(&context, 2, &attributes), mbps);
}

static void speeds_and_widths_are_codes(void **state)
{
    (void)state;
    write_rate(NULL);
    expect(32, 2, 100000); /* EDR, 4X */
    expect(64, 16, 100000);
    expect(4, 1, 10000);
    expect(128, 2, 400000);
    expect(0, 2, 0);
    expect(32, 0, 0);
    write_rate("800 Gb/sec (4X XDR)\n");
    expect(64, 2, 200000); /* the code is known to be right */
}

/* The code of XDR has no place in the byte that verbs have for it: kernels give that of NDR. */
static void what_is_faster_than_ndr_is_known_by_its_rate(void **state)
{
    (void)state;
    write_rate("800 Gb/sec (4X XDR)\n");
    expect(128, 2, 800000);
    write_rate("200 Gb/sec (1X XDR)\n");
    expect(128, 1, 200000);
    write_rate("400 Gb/sec (4X NDR)\n");
    expect(128, 2, 400000);
}

static void a_rate_that_makes_no_sense_changes_nothing(void **state)
{
    (void)state;
    static const char *const rates[] = {
        "", "fast", "0 Gb/sec", "-800 Gb/sec", "100 Gb/sec (4X NDR)", "99999999999 Gb/sec"};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        write_rate(rates[i]);
        expect(128, 2, 400000);
    }
    write_rate(NULL);
    expect(128, 2, 400000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speeds_and_widths_are_codes),
        cmocka_unit_test(what_is_faster_than_ndr_is_known_by_its_rate),
        cmocka_unit_test(a_rate_that_makes_no_sense_changes_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

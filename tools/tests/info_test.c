/* info_test.c: what copyrpc-info reads from sysfs and /proc, in trees that this test makes, and what it advises: each advice where there is
 * reason for it, and none where something is not known. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../info/advice.h"

static char root[PATH_MAX / 2]; /* of a tree */

static int make_root(void **state)
{
    const char *temporary = getenv("TMPDIR");
    (void)state;
    snprintf(root, sizeof(root), "%s/info.XXXXXX", temporary ? temporary : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[PATH_MAX];
    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

static void put_bytes(const char *file, const void *bytes, size_t count)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, file);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

static void put(const char *file, const char *line)
{
    put_bytes(file, line, strlen(line));
}

static void put_link(const char *file, const char *target)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, file);
    assert_int_equal(symlink(target, path), 0);
}

#define SLOT "devices/pci0000:00/0000:00:03.0/"
#define CARD SLOT "0000:81:00.1/"
#define DEVICE CARD "infiniband/mlx5_9/"

/* A card in a slot, with port 2 of a device. */
static void make_card(void)
{
    put("class/infiniband/x", "");
    put(DEVICE "fw_ver", "28.39.1002\n");
    put_link("class/infiniband/mlx5_9", "../../" DEVICE);
    put_link(DEVICE "device", "../..");
    put(SLOT "max_link_speed", "16.0 GT/s PCIe\n");
    put(SLOT "max_link_width", "8\n");
    put(CARD "current_link_speed", "8.0 GT/s PCIe\n");
    put(CARD "current_link_width", "8\n");
    put(CARD "max_link_speed", "32.0 GT/s PCIe\n");
    put(CARD "max_link_width", "16\n");
    put(CARD "numa_node", "1\n");
    put(CARD "local_cpulist", "0-8191\n");
    put(CARD "net/eth7/mtu", "9000\n");
    put(CARD "net/eth7/dev_port", "1\n");
    put(CARD "net/eth6/mtu", "1234\n");
    put(CARD "net/eth6/dev_port", "0\n");
    put(DEVICE "ports/2/gid_attrs/ndevs/0", "eth7\n");
    put(DEVICE "ports/2/gid_attrs/ndevs/1", "eth7\n");
    put(DEVICE "ports/2/gid_attrs/ndevs/3", "eth7.5\n");
    put(DEVICE "ports/2/gid_attrs/ndevs/4", ""); /* cannot be read: a free GID */
    put("class/net/eth7.5/mtu", "1500\n");
}

static void test_card(void **state)
{
    struct card card;
    (void)state;
    make_card();
    card_read(root, "mlx5_9", 2, 3, &card);
    assert_string_equal(card.firmware, "28.39.1002");
    assert_string_equal(card.pci_address, "0000:81:00.1");
    assert_int_equal(pcie_link_mbps(&card.link), 63015);
    assert_int_equal(pcie_link_mbps(&card.most), 504123);
    assert_int_equal(pcie_link_mbps(&card.slot), 126030);
    assert_int_equal(card.numa_node, 1);
    assert_string_equal(card.processors, "0-8191");
    assert_int_equal(card.near, CARD_NEAR_ALL);
    assert_int_equal(card.relaxed_ordering, CARD_UNKNOWN);
    assert_int_equal(card.interface_count, 2);
    assert_string_equal(card.interfaces[0].name, "eth7.5"); /* that of the GID */
    assert_int_equal(card.interfaces[0].mtu_bytes, 1500);
    assert_string_equal(card.interfaces[1].name, "eth7");
    assert_int_equal(card.interfaces[1].mtu_bytes, 9000);
    /* On InfiniBand, GIDs have no interfaces. */
    card_read(root, "mlx5_9", 1, 0, &card);
    assert_int_equal(card.interface_count, 1);
    assert_string_equal(card.interfaces[0].name, "eth6");
    assert_int_equal(card.interfaces[0].mtu_bytes, 1234);
}

/* The device of a subfunction is below its function. */
static void test_subfunction(void **state)
{
    struct card card;
    (void)state;
    make_card();
    put(CARD "mlx5_core.sf.4/infiniband/mlx5_10/fw_ver", "28.39.1002\n");
    put_link("class/infiniband/mlx5_10", "../../" CARD "mlx5_core.sf.4/infiniband/mlx5_10");
    put_link(CARD "mlx5_core.sf.4/infiniband/mlx5_10/device", "../..");
    card_read(root, "mlx5_10", 1, 0, &card);
    assert_string_equal(card.pci_address, "0000:81:00.1");
    assert_int_equal(card.numa_node, 1);
}

static void test_what_is_not_known(void **state)
{
    struct card card;
    (void)state;
    card_read(root, "none", 1, 0, &card); /* no file at all */
    assert_string_equal(card.firmware, "");
    assert_string_equal(card.pci_address, "");
    assert_int_equal(card.numa_node, CARD_NODE_UNKNOWN);
    assert_int_equal(card.near, CARD_NEAR_UNKNOWN);
    assert_int_equal(card.interface_count, 0);
    /* As virtual functions, machines with one node, and Soft-RoCE, which is no PCI device. */
    make_card();
    put(CARD "current_link_speed", "Unknown\n");
    put(CARD "current_link_width", "0\n");
    put(CARD "max_link_speed", "8.0 furlongs\n");
    put(CARD "max_link_width", "255\n");
    put(CARD "numa_node", "-1\n");
    put(CARD "local_cpulist", "\n");
    card_read(root, "mlx5_9", 2, 3, &card);
    assert_int_equal(pcie_link_mbps(&card.link), 0);
    assert_int_equal(pcie_link_mbps(&card.most), 0);
    assert_int_equal(card.numa_node, CARD_NODE_UNKNOWN);
    assert_int_equal(card.near, CARD_NEAR_UNKNOWN);
    put("devices/virtual/net/eth0/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth0\n");
    put("class/net/eth0/mtu", "nonsense\n");
    put_link("class/infiniband/rxe0", "../../devices/virtual/net/eth0/infiniband/rxe0");
    put_link("devices/virtual/net/eth0/infiniband/rxe0/device", "../..");
    card_read(root, "rxe0", 1, 0, &card);
    assert_string_equal(card.pci_address, "");
    assert_string_equal(card.interfaces[0].name, "eth0");
    assert_int_equal(card.interfaces[0].mtu_bytes, 0);
}

static void expect_ordering(const uint8_t *config, size_t bytes, enum card_answer answer)
{
    struct card card;
    put_bytes(CARD "config", config, bytes);
    card_read(root, "mlx5_9", 2, 3, &card);
    assert_int_equal(card.relaxed_ordering, answer);
}

static void test_relaxed_ordering_of_pcie(void **state)
{
    uint8_t config[256] = {[0x34] = 0x40, [0x40] = 0x01, [0x41] = 0x60, [0x60] = 0x10};
    (void)state;
    make_card();
    expect_ordering(config, sizeof(config), CARD_NO);
    config[0x68] = 0x10;
    expect_ordering(config, sizeof(config), CARD_YES);
    expect_ordering(config, 64, CARD_UNKNOWN); /* as who is not root sees it */
    config[0x60] = 0x01;
    config[0x61] = 0x40; /* a ring */
    expect_ordering(config, sizeof(config), CARD_UNKNOWN);
    config[0x61] = 0xfc; /* too near the end */
    config[0xfc] = 0x10;
    expect_ordering(config, sizeof(config), CARD_UNKNOWN);
}

static void test_near(void **state)
{
    cpu_set_t all, one;
    int first = -1, second = -1;
    char list[64];
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            second = first >= 0 && second < 0 ? i : second;
            first = first < 0 ? i : first;
        }
    }
    snprintf(list, sizeof(list), "%d", first);
    assert_int_equal(card_near_of(list), second < 0 ? CARD_NEAR_ALL : CARD_NEAR_SOME);
    snprintf(list, sizeof(list), "8000-8190,%d-%d", first, first);
    assert_int_equal(card_near_of(list), second < 0 ? CARD_NEAR_ALL : CARD_NEAR_SOME);
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(card_near_of(list), CARD_NEAR_ALL);
    snprintf(list, sizeof(list), "%d", first + 1);
    assert_int_equal(card_near_of(list), CARD_NEAR_NONE);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    static const char *const nonsense[] = {"", "a", "1-", "2-1", "0-99999999", "1;2", "-3"};
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        assert_int_equal(card_near_of(nonsense[i]), CARD_NEAR_UNKNOWN);
    }
}

static const char *epyc_of(const char *vendor, unsigned family, unsigned model, const char *name)
{
    char text[512], path[PATH_MAX];
    struct machine machine;
    snprintf(text, sizeof(text),
             "processor\t: 0\nvendor_id\t: %s\ncpu family\t: %u\nmodel\t\t: %u\nmodel name\t: %s\n"
             "\nprocessor\t: 1\nvendor_id\t: other\n",
             vendor, family, model, name);
    put("cpuinfo", text);
    snprintf(path, sizeof(path), "%s/cpuinfo", root);
    machine_read(path, &machine);
    assert_string_equal(machine.processor, name);
    return machine.epyc ? machine.epyc : "no";
}

static void test_processors(void **state)
{
    struct machine machine;
    (void)state;
    assert_string_equal(epyc_of("AuthenticAMD", 23, 1, "AMD EPYC 7601 32-Core Processor"),
                        "Naples");
    assert_string_equal(epyc_of("AuthenticAMD", 23, 49, "AMD EPYC 7742 64-Core Processor"), "Rome");
    assert_string_equal(epyc_of("AuthenticAMD", 25, 1, "AMD EPYC 7763 64-Core Processor"), "Milan");
    assert_string_equal(epyc_of("AuthenticAMD", 25, 17, "AMD EPYC 9654 96-Core Processor"),
                        "Genoa");
    assert_string_equal(epyc_of("AuthenticAMD", 26, 2, "AMD EPYC 9755 128-Core Processor"),
                        "Turin");
    assert_string_equal(epyc_of("AuthenticAMD", 25, 33, "AMD Ryzen 9 5950X"), "no");
    assert_string_equal(epyc_of("GenuineIntel", 6, 143, "Intel(R) Xeon(R) Platinum 8480+"), "no");
    machine_read("/nowhere", &machine);
    assert_string_equal(machine.processor, "");
    assert_null(machine.epyc);
}

/* ---- Advice. A report of a machine with which all is well, to which each test does one thing. */

static struct report report;
static struct advice_list list;

static struct report_port *good_port(uint32_t link)
{
    report =
        (struct report){.machine = {.memlock_bytes = UINT64_MAX}, .port_count = 1, .whole = true};
    struct report_port *port = &report.ports[0];
    port->info = (crpc_device_info){.port = 1,
                                    .name = "mlx5_9",
                                    .port_state = CRPC_PORT_ACTIVE,
                                    .link = link,
                                    .mtu_bytes = 4096,
                                    .link_mbps = 200000};
    port->port.mtu_bytes_max = 4096;
    port->choice.made = true;
    port->card = (struct card){.pci_address = "0000:81:00.1",
                               .link = {16000, 16},
                               .most = {16000, 16},
                               .slot = {32000, 16},
                               .numa_node = 1,
                               .processors = "8-15",
                               .near = CARD_NEAR_ALL,
                               .relaxed_ordering = CARD_YES,
                               .interface_count = 1,
                               .interfaces = {{"eth7", 9000}}};
    return port;
}

/* Returns the only warning there is. */
static const struct advice *only_warning(const char *code)
{
    const struct advice *found = NULL;
    advice_find(&report, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        if (list.advices[i].kind == ADVICE_WARNING) {
            assert_null(found);
            found = &list.advices[i];
        }
    }
    assert_non_null(found);
    assert_string_equal(found->code, code);
    assert_true(found->what[0] && found->action[0]);
    return found;
}

static void expect_no_warning(void)
{
    advice_find(&report, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        if (list.advices[i].kind == ADVICE_WARNING) {
            fail_msg("%s: %s", list.advices[i].code, list.advices[i].what);
        }
    }
}

static void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words)) {
        fail_msg("'%s' is not in '%s'", words, text);
    }
}

static void test_all_is_well(void **state)
{
    (void)state;
    good_port(CRPC_LINK_INFINIBAND);
    expect_no_warning();
    assert_int_equal(list.count, 0);
    good_port(CRPC_LINK_ETHERNET)->choice.context.traffic_class = 106;
    expect_no_warning();
    assert_int_equal(list.count, 1); /* nobody can read it here */
    assert_string_equal(list.advices[0].code, "lossless-unknown");
    expect_words(list.advices[0].action, "dcb pfc show dev eth7");
    expect_words(list.advices[0].action, "have 106");
    report = (struct report){.machine = {.memlock_bytes = UINT64_MAX}}; /* no port at all */
    expect_no_warning();
    assert_int_equal(list.count, 0);
}

static void test_nothing_is_known(void **state)
{
    (void)state;
    for (uint32_t link = CRPC_LINK_INFINIBAND; link <= CRPC_LINK_ETHERNET; link++) {
        struct report_port *port = good_port(link);
        port->card = (struct card){.numa_node = CARD_NODE_UNKNOWN};
        port->port.mtu_bytes_max = 0;
        report.machine.epyc = "Milan";
        expect_no_warning();
    }
}

static void test_port_down(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_ETHERNET);
    port->info.port_state = CRPC_PORT_DOWN;
    port->choice.made = false;
    expect_words(only_warning("port-down")->action, "ip link set dev eth7 up");
    port = good_port(CRPC_LINK_INFINIBAND);
    port->info.port_state = CRPC_PORT_DOWN;
    expect_words(only_warning("port-down")->action, "ibstat mlx5_9");
}

static void test_no_context(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_INFINIBAND);
    port->choice.made = false;
    snprintf(port->choice.error.message, sizeof(port->choice.error.message), "no GID");
    expect_words(only_warning("no-context")->what, "no GID");
}

static void test_mtu(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_ETHERNET);
    port->card.interfaces[0].mtu_bytes = 1500;
    port->info.mtu_bytes = 1024;
    const struct advice *advice = only_warning("interface-mtu");
    expect_words(advice->what, "eth7 is 1500");
    expect_words(advice->action, "ip link set dev eth7 mtu 4200");
    port->card.interfaces[0].mtu_bytes = 4191;
    only_warning("interface-mtu");
    port->card.interfaces[0].mtu_bytes = 4192;
    port->info.mtu_bytes = 4096;
    expect_no_warning();
    port->card.interface_count = 0;
    port->info.mtu_bytes = 1024;
    expect_words(only_warning("port-mtu")->action, "network interface");
    port = good_port(CRPC_LINK_INFINIBAND);
    port->card.interfaces[0].mtu_bytes = 2044; /* IPoIB's, which is of no account */
    expect_no_warning();
    port->info.mtu_bytes = 2048;
    expect_words(only_warning("port-mtu")->action, "opensm");
}

static void test_pcie(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_INFINIBAND);
    port->info.link_mbps = 100000;
    port->card.link.lanes = 8;
    const struct advice *advice = only_warning("pcie-link");
    expect_words(advice->what, "16 GT/s x8 (126 Gbit/s)");
    expect_words(advice->action, "lspci -vv -s 0000:81:00.1");
    port->card.slot = port->card.link;
    expect_words(only_warning("pcie-link")->action, "move the card");
    port->card.link = port->card.most = (struct pcie_link){8000, 16}; /* both slow */
    expect_no_warning();
    port->info.link_mbps = 200000;
    expect_words(only_warning("pcie-below-port")->what, "200 Gbit/s");
}

static void test_node(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_INFINIBAND);
    port->card.near = CARD_NEAR_SOME;
    expect_no_warning();
    port->card.near = CARD_NEAR_NONE;
    expect_words(only_warning("numa-node")->action, "--cpunodebind=1");
    port->card.numa_node = CARD_NODE_UNKNOWN;
    expect_words(only_warning("numa-node")->action, "taskset -c 8-15");
}

static void test_relaxed_ordering(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_INFINIBAND);
    port->card.relaxed_ordering = CARD_NO;
    report.machine.relaxed_ordering_off = true;
    expect_no_warning(); /* not that processor */
    report.machine.epyc = "Turin";
    expect_words(only_warning("relaxed-ordering")->action, "unset COPYRPC_RELAXED_ORDERING");
    report.machine.relaxed_ordering_off = false;
    const struct advice *advice = only_warning("relaxed-ordering");
    expect_words(advice->what, "Turin");
    expect_words(advice->action, "setpci -s 0000:81:00.1");
    port->card.relaxed_ordering = CARD_YES;
    expect_no_warning();
}

static void test_left_out(void **state)
{
    (void)state;
    struct report_port *port = good_port(CRPC_LINK_INFINIBAND);
    port->left_out.features = LEFT_OUT_BLUEFLAME;
    snprintf(port->left_out.path, sizeof(port->left_out.path), "/a/file");
    const struct advice *advice = only_warning("left-out");
    expect_words(advice->what, "BlueFlame");
    expect_words(advice->action, "/a/file");
}

static void test_memlock(void **state)
{
    (void)state;
    good_port(CRPC_LINK_INFINIBAND);
    report.machine.memlock_bytes = 8 << 20;
    const struct advice *advice = only_warning("memlock");
    assert_null(advice->device);
    expect_words(advice->what, "8192 KiB");
    report.machine.may_lock = true;
    expect_no_warning();
    report.machine = (struct machine){.memlock_bytes = 128 << 20};
    expect_no_warning();
}

/* More than there is room for. */
static void test_many(void **state)
{
    (void)state;
    struct report_port port = *good_port(CRPC_LINK_ETHERNET);
    port.card.near = CARD_NEAR_NONE;
    port.card.link.lanes = 1;
    for (report.port_count = 0; report.port_count < REPORT_PORTS_MAX; report.port_count++) {
        report.ports[report.port_count] = port;
    }
    advice_find(&report, &list);
    assert_int_equal(list.count, ADVICE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_card, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_subfunction, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_what_is_not_known, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_relaxed_ordering_of_pcie, make_root, remove_root),
        cmocka_unit_test(test_near),
        cmocka_unit_test_setup_teardown(test_processors, make_root, remove_root),
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_nothing_is_known),
        cmocka_unit_test(test_port_down),
        cmocka_unit_test(test_no_context),
        cmocka_unit_test(test_mtu),
        cmocka_unit_test(test_pcie),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_relaxed_ordering),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_memlock),
        cmocka_unit_test(test_many),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* pair_test.c: which ports become one device, on machines that this makes up: a sysfs of directories
 * and links, as the kernel has them. */
#include "ports.h"

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

#define ETHERNET 2u
#define INFINIBAND 1u

static char sysfs[64];

/* ---- A machine ------------------------------------------------------------------------------- */

static void command(const char *format, const char *path)
{
    char text[PATH_MAX + 64];
    snprintf(text, sizeof(text), format, path);
    assert_int_equal(system(text), 0);
}

static int new_machine(void **state)
{
    (void)state;
    strcpy(sysfs, "/tmp/copyrpc-pair-XXXXXX");
    assert_non_null(mkdtemp(sysfs));
    command("mkdir -p %s/class/infiniband", sysfs);
    return 0;
}

static int remove_machine(void **state)
{
    (void)state;
    command("rm -r %s", sysfs);
    return 0;
}

struct card {
    const char *device;
    const char *place; /* below sysfs/devices; NULL = none on PCI */
    int numa_node;
    uint32_t link, mbps;
    const char *physfn; /* of a VF: the place of its PF */
};

static void make_link(const char *target, const char *format, const char *device)
{
    char link[PATH_MAX];
    snprintf(link, sizeof(link), format, sysfs, device);
    assert_int_equal(symlink(target, link), 0);
}

static void make_card(const struct card *card)
{
    char path[512], target[600];
    snprintf(path, sizeof(path), "%s/class/infiniband/%s", sysfs, card->device);
    assert_int_equal(mkdir(path, 0700), 0);
    if (card->place == NULL) {
        return;
    }
    snprintf(path, sizeof(path), "%s/devices/%s", sysfs, card->place);
    command("mkdir -p %s", path);
    make_link(path, "%s/class/infiniband/%s/device", card->device);
    snprintf(target, sizeof(target), "%s/numa_node", path);
    FILE *text = fopen(target, "w");
    assert_non_null(text);
    fprintf(text, "%d\n", card->numa_node);
    fclose(text);
    if (card->physfn != NULL) {
        snprintf(target, sizeof(target), "%s/devices/%s", sysfs, card->physfn);
        make_link(target, "%s/class/infiniband/%s/device/physfn", card->device);
    }
}

static struct port port_of(const struct card *card, uint32_t number)
{
    struct port port = {.number = number, .link = card->link, .mbps = card->mbps};
    snprintf(port.device, sizeof(port.device), "%s", card->device);
    port_locate(&port, sysfs);
    return port;
}

/* "mlx5_0+mlx5_1 mlx5_2", of ports that were found in this order. */
static void expect_pairs(const struct card *cards, uint32_t count, const char *should)
{
    struct port ports[PORTS_MAX];
    struct port_pair pairs[PORTS_MAX];
    char is[1024] = "";
    for (uint32_t i = 0; i < count; i++) {
        ports[i] = port_of(&cards[i], 1);
    }
    uint32_t found = ports_pair(ports, count, pairs);
    for (uint32_t i = 0; i < found; i++) {
        for (uint32_t j = 0; j < pairs[i].count; j++) {
            size_t used = strlen(is);
            snprintf(is + used, sizeof(is) - used, "%s%s",
                     j > 0   ? "+"
                     : i > 0 ? " "
                             : "",
                     ports[pairs[i].ports[j]].device);
        }
    }
    assert_string_equal(is, should);
}

static void expect(const struct card *cards, uint32_t count, const char *should)
{
    struct card turned[PORTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        make_card(&cards[i]);
        turned[count - 1 - i] = cards[i];
    }
    expect_pairs(cards, count, should);
    expect_pairs(turned, count, should); /* whatever order the devices come in */
}

#define EXPECT(cards, should) expect(cards, sizeof(cards) / sizeof((cards)[0]), should)

/* ---- Machines -------------------------------------------------------------------------------- */

/* As a DGX: eight NICs, two below each PCIe switch, and the order of their names is another. */
static void test_eight_behind_four_switches(void **state)
{
    (void)state;
    const struct card cards[] = {
        {"mlx5_5", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", 0, INFINIBAND,
         400000, NULL},
        {"mlx5_0", "pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:00.0/0000:3a:00.0", 0, INFINIBAND,
         400000, NULL},
        {"mlx5_1", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", 0, INFINIBAND,
         400000, NULL},
        {"mlx5_7", "pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3b:00.0", 0, INFINIBAND,
         400000, NULL},
        {"mlx5_2", "pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0", 1, INFINIBAND,
         400000, NULL},
        {"mlx5_4", "pci0000:b7/0000:b7:01.0/0000:b8:00.0/0000:b9:00.0/0000:ba:00.0", 1, INFINIBAND,
         400000, NULL},
        {"mlx5_3", "pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:01.0/0000:9b:00.0", 1, INFINIBAND,
         400000, NULL},
        {"mlx5_6", "pci0000:b7/0000:b7:01.0/0000:b8:00.0/0000:b9:01.0/0000:bb:00.0", 1, INFINIBAND,
         400000, NULL},
    };
    EXPECT(cards, "mlx5_5+mlx5_1 mlx5_0+mlx5_7 mlx5_2+mlx5_3 mlx5_4+mlx5_6");
}

/* The storage NIC is of another speed, and Ethernet does not go with InfiniBand. */
static void test_only_what_is_alike(void **state)
{
    (void)state;
    const struct card cards[] = {
        {"mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0", 0, INFINIBAND, 200000, NULL},
        {"mlx5_1", "pci0000:15/0000:15:01.0/0000:16:00.1", 0, ETHERNET, 200000, NULL},
        {"mlx5_2", "pci0000:15/0000:15:02.0/0000:17:00.0", 0, ETHERNET, 25000, NULL},
        {"mlx5_3", "pci0000:97/0000:97:01.0/0000:98:00.0", 1, INFINIBAND, 200000, NULL},
    };
    EXPECT(cards, "mlx5_0+mlx5_3 mlx5_1 mlx5_2");
}

/* Three: the one that is farthest stays alone. */
static void test_the_nearest_first(void **state)
{
    (void)state;
    const struct card numa[] = {
        {"mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0", 0, ETHERNET, 100000, NULL},
        {"mlx5_1", "pci0000:97/0000:97:01.0/0000:98:00.0", 1, ETHERNET, 100000, NULL},
        {"mlx5_2", "pci0000:b7/0000:b7:01.0/0000:b8:00.0", 1, ETHERNET, 100000, NULL},
    };
    EXPECT(numa, "mlx5_0 mlx5_1+mlx5_2");
}

static void test_one_host_bridge_before_another(void **state)
{
    (void)state;
    const struct card cards[] = {
        {"mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0", 0, ETHERNET, 100000, NULL},
        {"mlx5_1", "pci0000:37/0000:37:01.0/0000:38:00.0", 0, ETHERNET, 100000, NULL},
        {"mlx5_2", "pci0000:37/0000:37:02.0/0000:39:00.0/0000:3a:00.0/0000:3b:00.0", 0, ETHERNET,
         100000, NULL},
    };
    EXPECT(cards, "mlx5_0 mlx5_1+mlx5_2");
}

static void test_ports_of_one_card(void **state)
{
    (void)state;
    const struct card cards[] = {
        {"mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0", 0, ETHERNET, 100000, NULL},
        {"mlx5_1", "pci0000:15/0000:15:01.0/0000:16:00.1", 0, ETHERNET, 100000, NULL},
        {"mlx5_2", "pci0000:97/0000:97:01.0/0000:98:00.0", 1, ETHERNET, 100000, NULL},
        {"mlx5_3", "pci0000:97/0000:97:01.0/0000:98:00.1", 1, ETHERNET, 100000, NULL},
    };
    EXPECT(cards, "mlx5_0+mlx5_1 mlx5_2+mlx5_3");
}

/* Two VFs of one port are no faster than one; those of two ports are. */
static void test_virtual_functions(void **state)
{
    (void)state;
    const char *first = "pci0000:15/0000:15:01.0/0000:16:00.0";
    const char *second = "pci0000:15/0000:15:01.0/0000:16:00.1";
    const struct card cards[] = {
        {"mlx5_0", first, 0, ETHERNET, 100000, NULL},
        {"mlx5_2", "pci0000:15/0000:15:01.0/0000:16:00.2", 0, ETHERNET, 100000, first},
        {"mlx5_3", "pci0000:15/0000:15:01.0/0000:16:00.3", 0, ETHERNET, 100000, first},
        {"mlx5_4", "pci0000:15/0000:15:01.0/0000:16:01.0", 0, ETHERNET, 100000, second},
    };
    EXPECT(cards, "mlx5_0+mlx5_4 mlx5_2 mlx5_3");
}

/* Soft-RoCE, or a container that hides sysfs: in the order of the numbers in their names. */
static void test_without_pci(void **state)
{
    (void)state;
    struct card cards[12];
    char names[12][16];
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof(names[i]), "rxe%d", i);
        cards[i] = (struct card){.device = names[i], .link = ETHERNET, .mbps = 2500};
    }
    EXPECT(cards, "rxe0+rxe1 rxe2+rxe3 rxe4+rxe5 rxe6+rxe7 rxe8+rxe9 rxe10+rxe11");
}

static void test_two_ports_of_one_device(void **state)
{
    (void)state;
    const struct card card = {
        "mlx4_0", "pci0000:15/0000:15:01.0/0000:16:00.0", 0, INFINIBAND, 56000, NULL};
    make_card(&card);
    struct port ports[] = {port_of(&card, 2), port_of(&card, 1)};
    struct port_pair pairs[2];
    assert_int_equal(ports_pair(ports, 2, pairs), 1);
    assert_int_equal(pairs[0].count, 2);
    assert_int_equal(ports[pairs[0].ports[0]].number, 1);
    assert_int_equal(ports_pair(ports, 0, pairs), 0);
}

/* ---- NCCL_IB_HCA ----------------------------------------------------------------------------- */

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *words, *device;
        uint32_t number;
        bool named;
    } cases[] = {
        {NULL, "mlx5_0", 1, true},
        {"", "mlx5_0", 1, true},
        {",", "mlx5_0", 1, true},
        {"mlx5", "mlx5_0", 1, true},
        {"mlx5_1", "mlx5_10", 1, true}, /* by its beginning */
        {"=mlx5_1", "mlx5_10", 1, false},
        {"=mlx5_1", "mlx5_1", 2, true},
        {"mlx5_0,mlx5_2", "mlx5_2", 1, true},
        {"mlx5_0,mlx5_2", "mlx5_1", 1, false},
        {"mlx5_0:2", "mlx5_0", 1, false},
        {"mlx5_0:2", "mlx5_0", 2, true},
        {"=mlx5_0:1,mlx5_0:2", "mlx5_0", 2, true},
        {"mlx5_0:", "mlx5_0", 2, true},
        {"mlx5_0::3:4", "mlx5_0", 2, true}, /* any port, rail 3, plane 4 */
        {"mlx5_0:1:3:4", "mlx5_0", 2, false},
        {"^mlx5_0", "mlx5_0", 1, false},
        {"^mlx5_0", "mlx5_01", 1, false},
        {"^=mlx5_0", "mlx5_01", 1, true},
        {"^mlx5_0:1", "mlx5_0", 2, true},
        {"^", "mlx5_0", 1, false}, /* not all: none */
        {"irdma", "mlx5_0", 1, false},
        {":1", "mlx5_0", 1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (ports_named(cases[i].words, cases[i].device, cases[i].number) != cases[i].named) {
            fail_msg("case %zu: \"%s\" and %s:%u", i, cases[i].words, cases[i].device,
                     cases[i].number);
        }
    }
}

#define ON_MACHINE(test) cmocka_unit_test_setup_teardown(test, new_machine, remove_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_MACHINE(test_eight_behind_four_switches),
        ON_MACHINE(test_only_what_is_alike),
        ON_MACHINE(test_the_nearest_first),
        ON_MACHINE(test_one_host_bridge_before_another),
        ON_MACHINE(test_ports_of_one_card),
        ON_MACHINE(test_virtual_functions),
        ON_MACHINE(test_without_pci),
        ON_MACHINE(test_two_ports_of_one_device),
        cmocka_unit_test(test_words),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

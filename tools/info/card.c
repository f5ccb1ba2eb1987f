/* card.c: see card.h. */
#include "card.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESSORS_MAX 8192
#define LANES_MAX 32
#define PCI_LEVELS 4 /* a device of a subfunction is so far below its PCI function, at most */

/* ---- Files */

/* Reads a line without what ends it. Returns false if there is none. */
__attribute__((format(printf, 3, 4))) static bool line_of(char *line, size_t bytes,
                                                          const char *format, ...)
{
    char path[PATH_MAX];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(path, sizeof(path), format, values);
    va_end(values);
    line[0] = '\0';
    FILE *file = length > 0 && length < PATH_MAX ? fopen(path, "re") : NULL;
    if (!file) {
        return false;
    }
    if (!fgets(line, (int)bytes, file)) {
        line[0] = '\0'; /* some files cannot be read: those of GIDs that are free */
    }
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

static uint32_t number_of(const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 0);
    return end != text && number <= UINT32_MAX ? (uint32_t)number : 0;
}

/* ---- PCIe */

/* "16.0 GT/s PCIe" and "16"; functions of which it is not known say "Unknown" and 0, 63 or 255. */
static struct pcie_link link_of(const char *folder, const char *which)
{
    char speed[64], lanes[64];
    struct pcie_link link = {0};
    line_of(speed, sizeof(speed), "%s/%s_link_speed", folder, which);
    line_of(lanes, sizeof(lanes), "%s/%s_link_width", folder, which);
    char *end;
    double gigatransfers = strtod(speed, &end);
    if (end != speed && strncmp(end, " GT/s", 5) == 0 && gigatransfers > 0 && gigatransfers < 1e4) {
        link.megatransfers_per_s = (uint32_t)(gigatransfers * 1000 + 0.5);
    }
    uint32_t count = number_of(lanes);
    link.lanes = count <= LANES_MAX ? count : 0;
    return link;
}

/* 8 bits of 10 up to the second generation, 128 of 130 up to the fifth, and then 242 bytes of 256. */
uint32_t pcie_link_mbps(const struct pcie_link *link)
{
    uint64_t raw = (uint64_t)link->megatransfers_per_s * link->lanes;
    if (link->megatransfers_per_s <= 5000) {
        return (uint32_t)(raw * 8 / 10);
    }
    return (uint32_t)(link->megatransfers_per_s <= 32000 ? raw * 128 / 130 : raw * 242 / 256);
}

static bool is_pci_address(const char *name)
{
    unsigned domain, bus, slot, function;
    int length = 0;
    return sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &length) == 4 &&
           length == (int)strlen(name) && length < 16;
}

/* The folder of the PCI function, which is that of the device or one above it. Returns false if there is none. */
static bool pci_folder(const char *device_folder, char folder[PATH_MAX])
{
    if (!realpath(device_folder, folder)) {
        return false;
    }
    for (int i = 0; i < PCI_LEVELS; i++) {
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder) {
            return false;
        }
        if (is_pci_address(slash + 1)) {
            return true;
        }
        *slash = '\0';
    }
    return false;
}

/* Whether the function may set the attribute: bit 4 of its Device Control, in the capability of PCI Express. */
static enum card_answer relaxed_ordering_of(const char *folder)
{
    uint8_t config[256];
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/config", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, config, sizeof(config));
    if (fd >= 0) {
        close(fd);
    }
    if (bytes < (ssize_t)sizeof(config)) {
        return CARD_UNKNOWN; /* who is not root gets 64 bytes */
    }
    unsigned at = config[0x34] & 0xfc;
    for (int i = 0; at >= 0x40 && at + 9 < sizeof(config) && i < 48; i++) {
        if (config[at] == 0x10) {
            return config[at + 8] & 0x10 ? CARD_YES : CARD_NO;
        }
        at = config[at + 1] & 0xfc;
    }
    return CARD_UNKNOWN;
}

static void read_pci(const char *folder, struct card *card)
{
    char above[PATH_MAX], text[64];
    snprintf(card->pci_address, sizeof(card->pci_address), "%s", strrchr(folder, '/') + 1);
    card->link = link_of(folder, "current");
    card->most = link_of(folder, "max");
    snprintf(above, sizeof(above), "%s", folder);
    *strrchr(above, '/') = '\0';
    card->slot = link_of(above, "max"); /* the root complex has none */
    card->relaxed_ordering = relaxed_ordering_of(folder);
    if (line_of(text, sizeof(text), "%s/numa_node", folder) && text[0] >= '0' && text[0] <= '9') {
        card->numa_node = (int32_t)number_of(text);
    }
    if (line_of(card->processors, sizeof(card->processors), "%s/local_cpulist", folder)) {
        card->near = card_near_of(card->processors);
    }
}

/* ---- Processors */

enum card_near card_near_of(const char *processors)
{
    unsigned usable = 0, near = 0;
    cpu_set_t *mine = CPU_ALLOC(PROCESSORS_MAX);
    const size_t bytes = CPU_ALLOC_SIZE(PROCESSORS_MAX);
    if (!mine || sched_getaffinity(0, bytes, mine)) {
        CPU_FREE(mine);
        return CARD_NEAR_UNKNOWN;
    }
    usable = (unsigned)CPU_COUNT_S(bytes, mine);
    bool good = processors[0] != '\0';
    for (const char *at = processors; good && *at; at += *at == ',') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        good = end != at;
        if (good && *end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            good = end != at;
        }
        good = good && first <= last && last < PROCESSORS_MAX && (*end == ',' || *end == '\0');
        for (unsigned long i = first; good && i <= last; i++) {
            near += CPU_ISSET_S(i, bytes, mine) ? 1 : 0;
        }
        at = end;
    }
    CPU_FREE(mine);
    if (!good) {
        return CARD_NEAR_UNKNOWN;
    }
    return near == 0 ? CARD_NEAR_NONE : near < usable ? CARD_NEAR_SOME : CARD_NEAR_ALL;
}

/* ---- Network interfaces */

static void add_interface(const char *sysfs, const char *device_folder, const char *name,
                          struct card *card)
{
    char text[64];
    for (uint32_t i = 0; i < card->interface_count; i++) {
        if (strcmp(card->interfaces[i].name, name) == 0) {
            return;
        }
    }
    if (card->interface_count == CARD_INTERFACES_MAX ||
        strlen(name) >= sizeof(card->interfaces[0].name)) {
        return;
    }
    struct card_interface *interface = &card->interfaces[card->interface_count++];
    snprintf(interface->name, sizeof(interface->name), "%s", name);
    /* That of a VLAN or a bond is not the card's own. */
    if (line_of(text, sizeof(text), "%s/net/%s/mtu", device_folder, name) ||
        line_of(text, sizeof(text), "%s/class/net/%s/mtu", sysfs, name)) {
        interface->mtu_bytes = number_of(text);
    }
}

/* On Ethernet, each GID is of an interface. */
static void interfaces_of_gids(const char *sysfs, const char *ib_folder, const char *device_folder,
                               uint32_t port, uint32_t gid_index, struct card *card)
{
    char folder[PATH_MAX], name[64];
    snprintf(folder, sizeof(folder), "%s/ports/%u/gid_attrs/ndevs", ib_folder, port);
    if (line_of(name, sizeof(name), "%s/%u", folder, gid_index)) {
        add_interface(sysfs, device_folder, name, card);
    }
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] != '.' &&
            line_of(name, sizeof(name), "%s/%s", folder, entry->d_name)) {
            add_interface(sysfs, device_folder, name, card);
        }
    }
    if (directory) {
        closedir(directory);
    }
}

/* Those on the same function that say they are of this port, as IPoIB's do. */
static void interfaces_of_function(const char *sysfs, const char *device_folder, uint32_t port,
                                   struct card *card)
{
    char folder[PATH_MAX], text[64];
    snprintf(folder, sizeof(folder), "%s/net", device_folder);
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] != '.' &&
            line_of(text, sizeof(text), "%s/%s/dev_port", folder, entry->d_name) &&
            number_of(text) + 1 == port) {
            add_interface(sysfs, device_folder, entry->d_name, card);
        }
    }
    if (directory) {
        closedir(directory);
    }
}

void card_read(const char *sysfs, const char *device, uint32_t port, uint32_t gid_index,
               struct card *card)
{
    char ib_folder[PATH_MAX / 2], device_folder[PATH_MAX / 2 + 16], folder[PATH_MAX];
    *card = (struct card){.numa_node = CARD_NODE_UNKNOWN};
    int length = snprintf(ib_folder, sizeof(ib_folder), "%s/class/infiniband/%s", sysfs, device);
    if (length >= (int)sizeof(ib_folder)) {
        return;
    }
    snprintf(device_folder, sizeof(device_folder), "%s/device", ib_folder);
    line_of(card->firmware, sizeof(card->firmware), "%s/fw_ver", ib_folder);
    if (pci_folder(device_folder, folder)) {
        read_pci(folder, card);
    }
    interfaces_of_gids(sysfs, ib_folder, device_folder, port, gid_index, card);
    if (card->interface_count == 0) {
        interfaces_of_function(sysfs, device_folder, port, card);
    }
}

/* sysfs.c: writes what the kernel's ib_core, ib_uverbs, rdma_ucm and mlx5 drivers show in sysfs, as
 * far as libibverbs, librdmacm and the usual tools read it. As in the kernel, the attributes are
 * below a PCI device and the classes have symbolic links to them. All values come from rails.h and the link; they
 * are written once and never change, but for some counters of the ports: port_counters.c. */
#include "simnic/run/sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simnic/session/rails.h"

#define PCI_ROOT "devices/pci0000:00"
#define UVERBS_ABI 6
#define MLX5_ABI 1
#define RDMA_CM_ABI 4
#define ETHERNET_CAPABILITIES                                                                      \
    0x00010000 /* a connection manager is there: the only one a RoCE port tells */

/* Writes into a tree. After the first error, nothing is written any more. */
struct writer {
    int root;
    uint32_t link; /* of the ports */
    int error;
    char base[128]; /* directory below root that relative paths are in */
};

static const char *const counters[] = {
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
};

static const char *const hardware_counters[] = {
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
};

static void make_parents(struct writer *writer, const char *path)
{
    char part[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash && !writer->error;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (mkdirat(writer->root, part, 0755) != 0 && errno != EEXIST) {
            writer->error = -errno;
        }
    }
}

static void write_line(struct writer *writer, const char *path, const char *line, size_t bytes)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = openat(writer->root, path, flags, 0444);
    if (fd < 0 && errno == ENOENT) {
        make_parents(writer, path);
        fd = openat(writer->root, path, flags, 0444);
    }
    if (fd < 0) {
        if (!writer->error) {
            writer->error = -errno;
        }
        return;
    }
    ssize_t written = write(fd, line, bytes);
    if (written != (ssize_t)bytes) {
        writer->error = written < 0 ? -errno : -ENOSPC;
    }
    close(fd);
}

/* Writes an attribute: a line in a file. */
__attribute__((format(printf, 3, 4))) static void put(struct writer *writer, const char *file,
                                                      const char *format, ...)
{
    char path[PATH_MAX], line[256];
    if (writer->error) {
        return;
    }
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, values);
    va_end(values);
    if (length < 0 || length >= (int)sizeof(line) - 1) {
        writer->error = -EOVERFLOW;
        return;
    }
    line[length] = '\n';
    snprintf(path, sizeof(path), "%s%s", writer->base, file);
    write_line(writer, path, line, (size_t)length + 1);
}

/* As put, for an attribute with a number in its name. */
__attribute__((format(printf, 4, 5))) static void
put_numbered(struct writer *writer, const char *directory, int number, const char *format, ...)
{
    char file[64], line[256];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    snprintf(file, sizeof(file), "%s/%d", directory, number);
    put(writer, file, "%s", line);
}

/* Makes a symbolic link; `target` is relative to the link's directory. */
__attribute__((format(printf, 3, 4))) static void put_link(struct writer *writer, const char *name,
                                                           const char *target, ...)
{
    char path[PATH_MAX], to[PATH_MAX];
    if (writer->error) {
        return;
    }
    va_list values;
    va_start(values, target);
    vsnprintf(to, sizeof(to), target, values);
    va_end(values);
    snprintf(path, sizeof(path), "%s%s", writer->base, name);
    make_parents(writer, path);
    if (!writer->error && symlinkat(to, writer->root, path) != 0) {
        writer->error = -errno;
    }
}

__attribute__((format(printf, 2, 3))) static void enter(struct writer *writer, const char *format,
                                                        ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(writer->base, sizeof(writer->base), format, values);
    va_end(values);
}

/* The address of a rail's PCI device. Each rail has a slot, as if they were two cards. */
static void pci_address(int rail, char text[16])
{
    snprintf(text, 16, "0000:%02x:00.0", (unsigned)rail + 1);
}

static void words_of_guid(uint64_t guid, char text[24])
{
    snprintf(text, 24, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48),
             (unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
             (unsigned)guid & 0xffff);
}

/* The processors near the device: all of them. */
static void put_locality(struct writer *writer)
{
    char mask[128] = "";
    size_t used = 0;
    long count = sysconf(_SC_NPROCESSORS_CONF);
    count = count < 1 ? 1 : count > 256 ? 256 : count;
    for (long word = (count - 1) / 32; word >= 0; word--) {
        long bits = count - word * 32;
        unsigned value = bits >= 32 ? 0xffffffffu : (1u << bits) - 1;
        used += (size_t)snprintf(mask + used, sizeof(mask) - used, word ? "%08x," : "%08x", value);
    }
    put(writer, "local_cpus", "%s", mask);
    if (count > 1) {
        put(writer, "local_cpulist", "0-%ld", count - 1);
    } else {
        put(writer, "local_cpulist", "0");
    }
    put(writer, "numa_node", "%d", access("/sys/devices/system/node/node0", F_OK) == 0 ? 0 : -1);
}

/* The network interface that has the rail's addresses: on InfiniBand an IPoIB one, whose hardware address
 * is a queue pair's number and a GID. */
static void put_net_device(struct writer *writer, const struct rail *rail, const char *address)
{
    bool infiniband = writer->link & LINK_INFINIBAND;
    char hardware[64];
    if (infiniband) {
        struct rail_gid gid = rail_gid(writer->link, (int)(rail - rails), 0);
        int used = snprintf(hardware, sizeof(hardware), "80:00:00:48");
        for (int i = 0; i < 16; i++) {
            used += snprintf(hardware + used, sizeof(hardware) - (size_t)used, ":%02x", gid.raw[i]);
        }
    } else {
        snprintf(hardware, sizeof(hardware), "%02x:%02x:%02x:%02x:%02x:%02x", rail->mac[0],
                 rail->mac[1], rail->mac[2], rail->mac[3], rail->mac[4], rail->mac[5]);
    }
    enter(writer, PCI_ROOT "/%s/net/" RAIL_NET_DEVICE "/", address);
    put(writer, "ifindex", "%d", RAIL_NET_INDEX);
    put(writer, "type", infiniband ? "32" : "1"); /* ARPHRD_INFINIBAND, ARPHRD_ETHER */
    put(writer, "addr_len", infiniband ? "20" : "6");
    put(writer, "address", "%s", hardware);
    put(writer, "dev_id", "0x0");
    put(writer, "dev_port", "0");
    put(writer, "mtu", "65536");
    put(writer, "operstate", "up");
    put(writer, "speed", "100000");
    if (infiniband) {
        put(writer, "pkey", "0x%04x", rail_address_partition(writer->link));
    }
    put_link(writer, "device", "../../../%s", address);
}

static void put_pci_device(struct writer *writer, const struct rail *rail, const char *address)
{
    bool infiniband = writer->link & LINK_INFINIBAND;
    enter(writer, PCI_ROOT "/%s/", address);
    put(writer, "vendor", "0x%04x", RAIL_PCI_VENDOR_ID);
    put(writer, "device", "0x%04x", RAIL_PCI_DEVICE_ID);
    put(writer, "subsystem_vendor", "0x%04x", RAIL_PCI_VENDOR_ID);
    put(writer, "subsystem_device", "0x0007");
    put(writer, "class", infiniband ? "0x020700" : "0x020000");
    put(writer, "revision", "0x00");
    put(writer, "enable", "1");
    put(writer, "modalias", "pci:v%08Xd%08Xsv%08Xsd00000007bc02sc%si00", RAIL_PCI_VENDOR_ID,
        RAIL_PCI_DEVICE_ID, RAIL_PCI_VENDOR_ID, infiniband ? "07" : "00");
    put(writer, "uevent", "DRIVER=mlx5_core\nPCI_CLASS=%s\nPCI_ID=%04X:%04X\nPCI_SLOT_NAME=%s",
        infiniband ? "20700" : "20000", RAIL_PCI_VENDOR_ID, RAIL_PCI_DEVICE_ID, address);
    put(writer, "current_link_speed", "16.0 GT/s PCIe");
    put(writer, "current_link_width", "16");
    put(writer, "max_link_speed", "16.0 GT/s PCIe");
    put(writer, "max_link_width", "16");
    put_locality(writer);
    put_link(writer, "driver", "../../../bus/pci/drivers/mlx5_core");
    put_link(writer, "subsystem", "../../../bus/pci");

    put_net_device(writer, rail, address);
}

static void put_gids(struct writer *writer, const struct rail *rail)
{
    for (int i = 0; i < RAIL_GID_COUNT; i++) {
        struct rail_gid gid = rail_gid(writer->link, (int)(rail - rails), (uint32_t)i);
        char text[RAIL_GID_TEXT_BYTES];
        rail_gid_text(gid.raw, text);
        put_numbered(writer, "gids", i, "%s", text);
        /* A program cannot read the attributes of a free entry, nor the network device of an InfiniBand
         * GID: the kernel fails with EINVAL. Here there is no file. */
        if (gid.type == RAIL_GID_NONE) {
            continue;
        }
        put_numbered(writer, "gid_attrs/types", i, "%s",
                     gid.type == RAIL_GID_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
        if (gid.type != RAIL_GID_INFINIBAND) {
            put_numbered(writer, "gid_attrs/ndevs", i, RAIL_NET_DEVICE);
        }
    }
}

/* What differs with the link layer. */
static void put_link_layer(struct writer *writer, const struct rail *rail)
{
    bool infiniband = writer->link & LINK_INFINIBAND;
    put(writer, "link_layer", infiniband ? "InfiniBand" : "Ethernet");
    put(writer, "lid", "0x%x", infiniband ? rail->lid : 0);
    put(writer, "lid_mask_count", "%d", infiniband ? RAIL_LID_MASK_BITS : 0);
    put(writer, "sm_lid", "0x%x", infiniband ? RAIL_MANAGER_LID : 0);
    put(writer, "sm_sl", "0");
    put(writer, "cap_mask", "0x%08x",
        infiniband ? RAIL_INFINIBAND_CAPABILITIES : ETHERNET_CAPABILITIES);
}

static bool is_of_ethernet(const char *counter)
{
    return strncmp(counter, "roce_", 5) == 0 || strncmp(counter, "np_", 3) == 0 ||
           strncmp(counter, "rp_", 3) == 0;
}

static void put_port(struct writer *writer, const struct rail *rail, const char *address)
{
    const size_t hardware_count = sizeof(hardware_counters) / sizeof(hardware_counters[0]);
    enter(writer, PCI_ROOT "/%s/infiniband/%s/ports/%d/", address, rail->device, RAIL_PORT);
    put(writer, "state", "4: ACTIVE");
    put(writer, "phys_state", "5: LinkUp");
    put(writer, "rate", "100 Gb/sec (4X EDR)");
    put_link_layer(writer, rail);
    put_gids(writer, rail);
    for (uint32_t i = 0; i < rail_partition_count(writer->link); i++) {
        put_numbered(writer, "pkeys", (int)i, "0x%04x",
                     rail_partition(writer->link, (int)(rail - rails), i));
    }
    char file[64];
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        snprintf(file, sizeof(file), "counters/%s", counters[i]);
        put(writer, file, "0");
    }
    for (size_t i = 0; i < hardware_count; i++) {
        if (writer->link & LINK_INFINIBAND && is_of_ethernet(hardware_counters[i])) {
            continue;
        }
        snprintf(file, sizeof(file), "hw_counters/%s", hardware_counters[i]);
        put(writer, file, "0");
    }
    put(writer, "hw_counters/lifespan", "10"); /* of the kernel's copy of the counters, in ms */
}

static void put_device(struct writer *writer, const struct rail *rail, const char *address)
{
    char guid[24];
    words_of_guid(rail->node_guid, guid);
    enter(writer, PCI_ROOT "/%s/infiniband/%s/", address, rail->device);
    put(writer, "node_type", "1: CA");
    put(writer, "node_guid", "%s", guid);
    put(writer, "sys_image_guid", "%s", guid);
    put(writer, "node_desc", "simnic %s", rail->device);
    put(writer, "fw_ver", RAIL_FIRMWARE);
    put(writer, "board_id", RAIL_BOARD_ID);
    put(writer, "hca_type", "MT%u", RAIL_VENDOR_PART_ID);
    put(writer, "hw_rev", "0");
    put_link(writer, "device", "../../../%s", address);
    put_link(writer, "subsystem", "../../../../../class/infiniband");
    put_port(writer, rail, address);
}

static void put_uverbs(struct writer *writer, const struct rail *rail, const char *address)
{
    enter(writer, PCI_ROOT "/%s/infiniband_verbs/%s/", address, rail->uverbs);
    put(writer, "ibdev", "%s", rail->device);
    put(writer, "dev", "%u:%u", rail->major, rail->minor);
    put(writer, "abi_version", "%d", MLX5_ABI);
    put_link(writer, "device", "../../../%s", address);
    put_link(writer, "subsystem", "../../../../../class/infiniband_verbs");
}

static void put_classes(struct writer *writer, int index)
{
    const struct rail *rail = &rails[index];
    char address[16];
    pci_address(index, address);
    enter(writer, "class/infiniband/");
    put_link(writer, rail->device, "../../" PCI_ROOT "/%s/infiniband/%s", address, rail->device);
    enter(writer, "class/infiniband_verbs/");
    put_link(writer, rail->uverbs, "../../" PCI_ROOT "/%s/infiniband_verbs/%s", address,
             rail->uverbs);
    enter(writer, "bus/pci/devices/");
    put_link(writer, address, "../../../" PCI_ROOT "/%s", address);
    enter(writer, "bus/pci/drivers/mlx5_core/");
    put_link(writer, address, "../../../../" PCI_ROOT "/%s", address);
}

/* Returns whether a directory lists its newest entry first, as tmpfs does on many kernels, but not
 * on all. */
static bool lists_newest_first(struct writer *writer)
{
    bool newest_first = false;
    int fd = openat(writer->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        writer->error = writer->error ? writer->error : -errno;
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    /* "devices" was made first. */
    struct dirent *entry;
    while ((entry = readdir(directory)) && strcmp(entry->d_name, "devices") != 0) {
        newest_first |= entry->d_name[0] != '.';
    }
    closedir(directory);
    return newest_first;
}

int sysfs_generate(const char *root, uint32_t link)
{
    struct writer writer = {.root = -1, .link = link};
    if (mkdir(root, 0755) != 0) {
        return -errno;
    }
    writer.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer.root < 0) {
        return -errno;
    }
    for (int i = 0; i < RAIL_COUNT; i++) {
        char address[16];
        pci_address(i, address);
        put_pci_device(&writer, &rails[i], address);
        put_device(&writer, &rails[i], address);
        put_uverbs(&writer, &rails[i], address);
    }
    enter(&writer, "class/misc/rdma_cm/");
    put(&writer, "abi_version", "%d", RDMA_CM_ABI);
    put(&writer, "dev", "%d:%d", RDMA_CM_MAJOR, RDMA_CM_MINOR);
    /* libibverbs lists devices in the order in which it finds them here. mlx5_0 must be the
     * first. */
    const bool backwards = lists_newest_first(&writer);
    for (int i = 0; i < RAIL_COUNT; i++) {
        put_classes(&writer, backwards ? RAIL_COUNT - 1 - i : i);
    }
    enter(&writer, "class/infiniband_verbs/");
    put(&writer, "abi_version", "%d", UVERBS_ABI);
    close(writer.root);
    return writer.error;
}

int sysfs_renew(const char *root, int rail)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/class/infiniband_verbs/%s", root, rails[rail].uverbs);
    return utimensat(AT_FDCWD, path, NULL, 0) == 0 ? 0 : -errno;
}

/* port.c: finding RDMA devices and ports, and saying what is wrong when there is none.
 *
 * Usable are devices that speak the InfiniBand transport, over InfiniBand or over Ethernet (RoCE):
 * iWARP has no WRITE with immediate.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/device.h"

#define NO_DEVICE_ADVICE                                                                           \
    "load the driver of your NIC, or use Soft-RoCE: `rdma link add rxe0 type rxe netdev eth0`, "   \
    "or "                                                                                          \
    "try it in the VM with ./dev vm"

static bool speaks_infiniband(const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IB;
}

static int32_t no_device(crpc_error *error, int os_error)
{
    return error_set(error, CRPC_E_NO_DEVICE, os_error, "no RDMA device found: " NO_DEVICE_ADVICE);
}

static int32_t open_failed(const struct ibv_device *device, int os_error, crpc_error *error)
{
    if (os_error == EACCES || os_error == EPERM) {
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "cannot open RDMA device %s: no permission for /dev/infiniband/%s: as "
                         "root, `chmod 666` it or add a udev rule (rdma-core installs one)",
                         ibv_get_device_name((struct ibv_device *)device), device->dev_name);
    }
    return error_set(
        error, CRPC_E_SYSTEM, os_error, "cannot open RDMA device %s (/dev/infiniband/%s): %s%s",
        ibv_get_device_name((struct ibv_device *)device), device->dev_name, strerror(os_error),
        os_error == ENOENT ? ": is the kernel module ib_uverbs loaded, and is "
                             "/dev/infiniband visible in this container?"
                           : "");
}

static struct ibv_context *open_device(struct ibv_device *device, crpc_error *error)
{
    errno = 0;
    struct ibv_context *context = ibv_open_device(device);
    if (!context) {
        open_failed(device, errno ? errno : ENODEV, error);
    }
    return context;
}

bool device_has_srqs(const struct ibv_device_attr *device)
{
    return device->max_srq > 0 && device->max_srq_wr > 0;
}

/* Without an SRQ, the receives are in the receive queues of queue pairs, and the completion queue bounds them. */
uint32_t device_receive_depth_max(const struct ibv_device_attr *device)
{
    const bool shared = device_has_srqs(device) && device->max_srq_wr < device->max_cqe;
    return (uint32_t)(shared ? device->max_srq_wr : device->max_cqe);
}

/* ---- Query */

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << mtu;
}

static void describe(struct ibv_context *context, const struct ibv_device_attr *device,
                     uint32_t port, crpc_device_info *info)
{
    struct ibv_port_attr attributes = {0};
    struct device_gid gid;
    snprintf(info->name, sizeof(info->name), "%s", ibv_get_device_name(context->device));
    info->port = port;
    info->port_count = device->phys_port_cnt;
    info->endpoints_max = (uint32_t)device->max_qp;
    info->receive_depth_max = device_receive_depth_max(device);
    info->vendor_id = device->vendor_id;
    info->vendor_part_id = device->vendor_part_id;
    info->completion_vectors =
        context->num_comp_vectors > 0 ? (uint32_t)context->num_comp_vectors : 0;
    info->system_image_guid = be64toh(device->sys_image_guid);
    if (ibv_query_port(context, (uint8_t)port, &attributes)) {
        return;
    }
    info->port_state = attributes.state == IBV_PORT_ACTIVE ? CRPC_PORT_ACTIVE : CRPC_PORT_DOWN;
    info->link = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? CRPC_LINK_ETHERNET
                                                                  : CRPC_LINK_INFINIBAND;
    info->mtu_bytes = mtu_bytes(attributes.active_mtu);
    info->link_mbps = device_link_mbps(context, port, &attributes);
    if (device_gid_choose(context, port, &attributes, &gid)) {
        info->gid_index = gid.index;
        memcpy(info->gid, gid.value.raw, sizeof(info->gid));
    }
    struct device_port found = {.context = context, .number = port, .attributes = attributes};
    const struct nic_network any = {0};
    info->flags = device_grh_required(&attributes) ? CRPC_GRH_REQUIRED : 0;
    if (device_port_network(&found, &any, NULL) == CRPC_OK) {
        info->partition_key = found.partition_key;
    }
}

/* Describes port `*index` of the device if it has so many, else takes their number off *index. A
 * device that cannot be opened counts as one port, so that those after it can be reached. */
static int32_t query_device(struct ibv_device *device, uint32_t *index, crpc_device_info *info,
                            crpc_error *error)
{
    struct ibv_device_attr attributes;
    struct ibv_context *context = open_device(device, error);
    if (!context) {
        return (*index)-- == 0 ? CRPC_E_SYSTEM : CRPC_E_NO_DEVICE;
    }
    int32_t status = CRPC_E_NO_DEVICE;
    int os_error = ibv_query_device(context, &attributes);
    if (os_error) {
        status = device_blame(error, os_error, 0, ibv_get_device_name(device), "query the device");
    } else if (*index < attributes.phys_port_cnt) {
        describe(context, &attributes, *index + 1, info);
        status = CRPC_OK;
    } else {
        *index -= attributes.phys_port_cnt;
    }
    ibv_close_device(context);
    return status;
}

int32_t device_query(uint32_t index, uint32_t driver, device_usable *usable, crpc_device_info *info,
                     crpc_error *error)
{
    uint32_t struct_size = info->struct_size;
    *info = (crpc_device_info){.struct_size = struct_size};
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (!devices || count == 0) {
        int os_error = devices ? 0 : errno;
        if (devices) {
            ibv_free_device_list(devices);
        }
        return no_device(error, os_error);
    }
    int32_t status = CRPC_E_NO_DEVICE;
    uint32_t left = index;
    for (int i = 0; i < count && status == CRPC_E_NO_DEVICE; i++) {
        status = query_device(devices[i], &left, info, error);
        if (status == CRPC_OK && speaks_infiniband(devices[i]) && (!usable || usable(devices[i]))) {
            info->drivers = 1u << driver;
        }
    }
    ibv_free_device_list(devices);
    if (status == CRPC_E_NO_DEVICE) {
        return error_set(error, status, 0,
                         "this machine has %u RDMA port(s), and index %u is "
                         "past the last",
                         index - left, index);
    }
    return status;
}

/* ---- Choosing the port of a context */

/* Fills in the port's GID. */
static int32_t take_gid(const struct nic_options *options, struct device_port *port,
                        crpc_error *error)
{
    struct device_gid gid;
    if (options->gid_index_given) {
        int32_t status =
            device_gid_take(port->context, port->number, options->gid_index, &gid, error);
        if (status) {
            return status;
        }
    } else if (!device_gid_choose(port->context, port->number, &port->attributes, &gid)) {
        return error_set(error, CRPC_E_NO_DEVICE, 0,
                         "%s port %u has no GID: give its network interface an IP address",
                         ibv_get_device_name(port->context->device), port->number);
    }
    port->gid = gid.value;
    port->gid_index = gid.index;
    return CRPC_OK;
}

/* The port asked for, or the first active one. */
static int32_t choose_port(const struct nic_options *options, struct device_port *port,
                           crpc_error *error)
{
    const char *name = ibv_get_device_name(port->context->device);
    uint32_t first = options->port ? options->port : 1;
    uint32_t last = options->port ? options->port : port->device.phys_port_cnt;
    if (last > port->device.phys_port_cnt) {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "%s has no port %u: it has %u", name,
                         options->port, port->device.phys_port_cnt);
    }
    for (uint32_t number = first; number <= last; number++) {
        if (ibv_query_port(port->context, (uint8_t)number, &port->attributes) == 0 &&
            port->attributes.state == IBV_PORT_ACTIVE) {
            port->number = number;
            int32_t status = take_gid(options, port, error);
            return status == CRPC_OK ? device_port_network(port, &options->network, error) : status;
        }
    }
    return error_set(error, CRPC_E_NO_DEVICE, 0,
                     "%s: %s is not active: plug in the cable, and on Ethernet bring the interface "
                     "up: `ip link set dev NAME up` (`rdma link show` tells NAME)",
                     name, options->port ? "the port asked for" : "its port");
}

static int32_t try_device(struct ibv_device *device, device_usable *usable,
                          const struct nic_options *options, struct device_port *port,
                          crpc_error *error)
{
    if (!speaks_infiniband(device)) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "%s is not an InfiniBand or RoCE device: it has no RDMA WRITE with "
                         "immediate",
                         ibv_get_device_name(device));
    }
    if (usable && !usable(device)) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0,
                         "%s cannot be opened with this driver; use CRPC_DRIVER_AUTO",
                         ibv_get_device_name(device));
    }
    port->context = open_device(device, error);
    if (!port->context) {
        return CRPC_E_SYSTEM;
    }
    int os_error = ibv_query_device(port->context, &port->device);
    int32_t status =
        os_error ? device_blame(error, os_error, 0, ibv_get_device_name(device), "query the device")
                 : choose_port(options, port, error);
    if (status) {
        ibv_close_device(port->context);
        port->context = NULL;
    }
    return status;
}

static int32_t no_such_device(const char *wanted, struct ibv_device **devices, int count,
                              crpc_error *error)
{
    char names[128] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        int bytes = snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                             ibv_get_device_name(devices[i]));
        if (bytes < 0 || used + (size_t)bytes >= sizeof(names)) {
            names[used] = '\0';
            break;
        }
        used += (size_t)bytes;
    }
    return error_set(error, CRPC_E_NO_DEVICE, 0,
                     "no RDMA device is called %.63s; this machine has: %s", wanted, names);
}

int32_t device_port_open(const struct nic_options *options, device_usable *usable,
                         struct device_port *port, crpc_error *error)
{
    int count = 0;
    bool named = options->device[0] != '\0';
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (!devices) {
        return no_device(error, errno);
    }
    if (count == 0) {
        ibv_free_device_list(devices);
        return no_device(error, 0);
    }
    int32_t status = CRPC_E_NO_DEVICE;
    bool found = false;
    for (int i = 0; i < count && status != CRPC_OK; i++) {
        if (!named || strcmp(options->device, ibv_get_device_name(devices[i])) == 0) {
            found = true;
            status = try_device(devices[i], usable, options, port, error);
        }
    }
    if (!found) {
        status = no_such_device(options->device, devices, count, error);
    }
    ibv_free_device_list(devices);
    return status;
}

/* memory_nic.c: the devices of a fabric: describing, opening and closing them. */
#include "nic/memory/datagram.h"
#include "nic/memory/dc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEVICE_MTU_BYTES 4096u
#define DEVICE_GIDS 4u                           /* all the same */
#define DEVICE_GUID UINT64_C(0x0200000000000001) /* of memory0; locally administered */
#define DEVICE_MBPS 100000u

static bool device_active(const struct memory_fabric *fabric, uint32_t device)
{
    return device >= 32 || !(fabric->options.devices_down & 1u << device);
}

/* ::ffff:10.0.0.1 for memory0, as RoCE v2 writes an IPv4 address. */
static uint32_t device_link(const struct memory_fabric *fabric)
{
    return fabric->options.infiniband ? CRPC_LINK_INFINIBAND : CRPC_LINK_ETHERNET;
}

bool memory_grh_required(const struct memory_fabric *fabric, uint32_t device)
{
    return device < 32 && (fabric->options.grh_required & 1u << device) != 0;
}

static void device_gid(uint32_t device, uint8_t gid[16])
{
    const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0};

    memcpy(gid, mapped, sizeof(mapped));
    gid[14] = (uint8_t)((device + 1) >> 8);
    gid[15] = (uint8_t)(device + 1);
}

void memory_devices_default(struct memory_fabric_options *options)
{
    for (uint32_t device = 0; device < MEMORY_DEVICES_NAMED; device++) {
        options->system_image_guid[device] = DEVICE_GUID + device;
        options->link_mbps[device] = DEVICE_MBPS;
    }
}

static uint64_t device_guid(const struct memory_fabric *fabric, uint32_t device)
{
    return device < MEMORY_DEVICES_NAMED ? fabric->options.system_image_guid[device] : 0;
}

static uint32_t device_mbps(const struct memory_fabric *fabric, uint32_t device)
{
    return device < MEMORY_DEVICES_NAMED ? fabric->options.link_mbps[device] : 0;
}

/* capi has checked and sized the struct; only fields are filled here. */
int32_t memory_query(uint32_t index, crpc_device_info *info, crpc_error *error)
{
    const struct memory_fabric *fabric = memory_fabric_default();
    const uint32_t struct_size = info->struct_size;

    if (index >= fabric->options.devices) {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "there are %u in-memory devices, no number %u",
                         fabric->options.devices, index);
    }
    memset(info, 0, sizeof(*info));
    info->struct_size = struct_size;
    info->port = 1;
    snprintf(info->name, sizeof(info->name), "memory%u", index);
    info->port_count = 1;
    info->port_state = device_active(fabric, index) ? CRPC_PORT_ACTIVE : CRPC_PORT_DOWN;
    info->link = device_link(fabric);
    info->flags = memory_grh_required(fabric, index) ? CRPC_GRH_REQUIRED : 0;
    info->mtu_bytes = DEVICE_MTU_BYTES;
    device_gid(index, info->gid);
    info->endpoints_max = fabric->options.queue_pairs_max;
    info->receive_depth_max = fabric->options.receive_depth_max;
    info->inline_bytes_max = fabric->options.inline_bytes_max;
    info->system_image_guid = device_guid(fabric, index);
    info->link_mbps = device_mbps(fabric, index);
    info->partition_key = NIC_PARTITION_OF_ETHERNET;
    return CRPC_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int32_t device_choose(const struct memory_fabric *fabric, const char *name, uint32_t *device,
                             crpc_error *error)
{
    char known[64];

    for (uint32_t i = 0; i < fabric->options.devices; i++) {
        snprintf(known, sizeof(known), "memory%u", i);
        if (name[0] != '\0' && strcmp(name, known) != 0) {
            continue;
        }
        *device = i;
        if (device_active(fabric, i)) {
            return CRPC_OK;
        }
        if (name[0] != '\0') {
            return error_set(error, CRPC_E_NO_DEVICE, 0, "port 1 of %s is not active", name);
        }
    }
    if (name[0] != '\0') {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "there is no in-memory device \"%s\"", name);
    }
    return error_set(error, CRPC_E_NO_DEVICE, 0, "no in-memory device has an active port");
}

static int32_t options_check(const struct nic_options *options, crpc_error *error)
{
    if (options->port > 1) {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "in-memory devices have only port 1, not %u",
                         options->port);
    }
    if (options->gid_index_given && options->gid_index >= DEVICE_GIDS) {
        return error_set(error, CRPC_E_INVALID, 0, "gid_index %u: in-memory devices have 0 to %u",
                         options->gid_index, DEVICE_GIDS - 1);
    }
    const uint16_t key = NIC_PARTITION_OF_ETHERNET;
    uint32_t place;
    return nic_partition_choose("an in-memory device", 1, &key, 1, options->network.partition_key,
                                &place, error);
}

/* What was wanted, or the default where nothing was; at most what the device can. */
static uint32_t granted(uint32_t wanted, uint32_t otherwise, uint32_t most)
{
    return (uint32_t)minimum(wanted ? wanted : otherwise, most);
}

static void shared_fill(struct nic *nic, const struct memory_fabric *fabric, uint32_t device,
                        const struct nic_options *options)
{
    nic->operations = &nic_memory_operations;
    snprintf(nic->device, sizeof(nic->device), "memory%u", device);
    nic->port = 1;
    nic->gid_index = options->gid_index_given ? options->gid_index : 0;
    device_gid(device, nic->gid);
    nic->network = options->network;
    nic->network.partition_key = NIC_PARTITION_OF_ETHERNET;
    nic->link = device_link(fabric);
    nic->grh_required = memory_grh_required(fabric, device);
    nic->windows = !fabric->options.no_windows;
    nic->atomics = true;
    nic->dc = !fabric->options.no_dc;
    nic->streams_max = nic->dc ? 1u << MEMORY_STREAMS_EXPONENT : 0;
    nic->tags_max = 127;
    nic->mtu_bytes = DEVICE_MTU_BYTES;
    nic->inline_bytes_max = granted(options->inline_bytes, fabric->options.inline_bytes_max,
                                    fabric->options.inline_bytes_max);
    nic->message_bytes_max =
        (uint32_t)minimum(fabric->options.message_bytes_max, NIC_MESSAGE_BYTES_MAX);
    nic->pieces_max = granted(options->pieces, NIC_PIECES_MAX, NIC_PIECES_MAX);
    nic->completion_vector =
        (uint16_t)(options->completion_vector ? options->completion_vector - 1 : 0);
    nic->link_mbps = device_mbps(fabric, device);
    nic->system_image_guid = device_guid(fabric, device);
    nic->receive_queue_max = fabric->options.no_srq ? fabric->options.receive_depth_max : 0;
    nic->receive_depth = granted(options->receive_depth, 16384, fabric->options.receive_depth_max);
    nic->send_depth = granted(options->send_depth, 128, 32768);
    nic->send_completion_depth =
        granted(options->send_completion_depth, 65536, fabric->options.send_completion_depth_max);
    nic->signal_interval =
        (uint32_t)maximum(1, granted(options->signal_interval, 64, nic->send_depth / 2));
    nic->receives_posted = fabric->options.no_srq ? nic->receive_depth : 0;
}

static void queues_create(struct memory_nic *nic)
{
    memory_completion_queue_create(&nic->send_completions, nic->base.send_completion_depth);
    memory_completion_queue_create(&nic->receive_completions, nic->base.receive_depth);
    nic->arrivals = memory_allocate(nic->base.receive_depth, sizeof(*nic->arrivals));
    for (uint32_t i = 0; i < nic->base.receive_depth; i++) {
        nic->arrivals[i].next = nic->free_arrivals;
        nic->free_arrivals = &nic->arrivals[i];
    }
}

static void initiators_create(struct memory_nic *nic, uint32_t count)
{
    if (count == 0) {
        return;
    }
    nic_initiators_init(&nic->initiators, nic->base.send_depth);
    nic->initiator_all = memory_allocate(count, sizeof(*nic->initiator_all));
    for (uint32_t i = 0; i < count; i++) {
        nic_initiators_add(&nic->initiators, &nic->initiator_all[i]);
    }
    nic->base.initiators = &nic->initiators;
}

int32_t memory_nic_open(struct memory_fabric *fabric, const struct nic_options *options,
                        struct nic **opened, crpc_error *error)
{
    struct memory_nic *nic;
    uint32_t device = 0;
    int32_t status;
    int event_fd;

    if (memory_planned_failure(fabric, MEMORY_FAIL_OPEN, &status, error)) {
        return status;
    }
    status = options_check(options, error);
    if (status == CRPC_OK) {
        status = device_choose(fabric, options->device, &device, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    memory_require(event_fd >= 0, "no eventfd: %m");

    nic = memory_allocate(1, sizeof(*nic));
    nic->fabric = fabric;
    nic->device = device;
    shared_fill(&nic->base, fabric, device, options);
    nic->ece = device < MEMORY_DEVICES_NAMED ? fabric->options.ece[device] : 0;
    nic->base.ece = nic->ece != 0;
    nic->base.event_fd = event_fd;
    queues_create(nic);
    initiators_create(nic, options->initiators);
    nic->next = fabric->nics;
    fabric->nics = nic;
    fabric->counters.nics++;
    *opened = &nic->base;
    return CRPC_OK;
}

int32_t memory_open_default(const struct nic_options *options, struct nic **nic, crpc_error *error)
{
    return memory_nic_open(memory_fabric_default(), options, nic, error);
}

struct memory_fabric *memory_nic_fabric(const struct nic *nic)
{
    return container_of(nic, const struct memory_nic, base)->fabric;
}

/* ---- Closing --------------------------------------------------------------------------------- */

static uint32_t regions_count(const struct memory_nic *nic)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < nic->region_slots; i++) {
        count += nic->regions[i] != NULL;
    }
    return count;
}

void memory_nic_free(struct memory_nic *nic)
{
    struct memory_nic **link = &nic->fabric->nics;

    for (struct memory_queue_pair *each = nic->queue_pairs; each; each = each->next) {
        memory_held_drop(each);
    }
    for (struct memory_queue *each = nic->queues; each; each = each->next) {
        nic_queue_end_results(&each->base); /* it is a registration, too */
    }
    for (uint32_t i = 0; i < nic->region_slots; i++) {
        if (nic->regions[i]) {
            memory_region_free(nic, nic->regions[i]);
        }
    }
    while (nic->queues) { /* those that use an SRQ came after it, so they go before it */
        memory_queue_free(nic->queues);
    }
    while (nic->queue_pairs) {
        memory_queue_pair_destroy(&nic->queue_pairs->base);
    }
    while (nic->unmade) {
        memory_queue_pair_destroy(&nic->unmade->base);
    }
    while (nic->targets) {
        memory_target_free(nic, nic->targets);
    }
    while (nic->domains) {
        memory_domain_free(nic, nic->domains);
    }
    while (*link != nic) {
        link = &(*link)->next;
    }
    *link = nic->next;
    nic->fabric->counters.nics--;
    close(nic->base.event_fd);
    free(nic->initiator_all);
    free(nic->send_completions.entries);
    free(nic->receive_completions.entries);
    free(nic->queue_sends.entries);
    free(nic->queue_receives.entries);
    free(nic->arrivals);
    free(nic->regions);
    free(nic);
}

/* On hardware, what is left open makes the close fail. Here it is counted, and closed as well. */
void memory_close(struct nic *base)
{
    struct memory_nic *nic = memory_nic(base);
    uint64_t left = regions_count(nic);

    for (const struct memory_queue_pair *each = nic->queue_pairs; each; each = each->next) {
        left++;
    }
    for (const struct memory_queue_pair *each = nic->unmade; each; each = each->next) {
        left++;
    }
    for (const struct memory_domain *each = nic->domains; each; each = each->next) {
        left++;
    }
    for (const struct memory_target *each = nic->targets; each; each = each->next) {
        left++;
    }
    for (const struct memory_queue *each = nic->queues; each; each = each->next) {
        left += each->pair == NULL; /* the others' queue pairs were counted */
    }
    nic->fabric->counters.left_open += left;
    memory_nic_free(nic);
}

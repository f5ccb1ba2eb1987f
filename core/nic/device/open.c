/* open.c: the part of opening a nic that does not depend on how its queues are driven. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lines.h"
#include "nic/device/device.h"
#include "nic/device/left_out.h"
#include "nic/tags.h"

#define RECEIVE_DEPTH_DEFAULT 16384

/* Returns true from Linux 5.12 on. */
static bool fork_copies_pinned_pages(void)
{
    struct utsname kernel;
    unsigned major, minor;
    return uname(&kernel) == 0 && sscanf(kernel.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 12));
}

/* Kernels before 5.12 give the parent a new copy of a page it writes to after fork(), while the
 * device keeps writing to the old one. This keeps registered pages with the parent there. libibverbs asks
 * newer kernels, too, by netlink; if it gets no answer, as in some containers, it makes areas of memory of their own
 * of each queue pair and each registration, of which a process may have 65,530. It must come before the first
 * registration, and its failure leaves us no worse. */
static void protect_from_fork(void)
{
    if (!fork_copies_pinned_pages()) {
        ibv_fork_init();
    }
}

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

static uint32_t non_negative(int value)
{
    return value > 0 ? (uint32_t)value : 0;
}

/* Devices have TM-SRQs for reliable connections, if at all. */
static uint32_t tags_max(struct ibv_context *context)
{
    struct ibv_device_attr_ex attributes = {0};
    if (ibv_query_device_ex(context, NULL, &attributes) ||
        !(attributes.tm_caps.flags & IBV_TM_CAP_RC)) {
        return 0;
    }
    return (uint32_t)minimum(attributes.tm_caps.max_num_tags, NIC_TAGS_MAX);
}

static void describe(struct device_nic *nic, const struct device_port *port,
                     const struct nic_options *options)
{
    struct nic *base = &nic->base;
    nic->context = port->context;
    base->rdma_cm = true;
    device_dc_describe(nic);
    base->windows = (port->device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
    base->atomics = port->device.atomic_cap != IBV_ATOMIC_NONE;
    base->tags_max = tags_max(port->context);
    snprintf(base->device, sizeof(base->device), "%s", ibv_get_device_name(port->context->device));
    base->port = port->number;
    base->gid_index = port->gid_index;
    memcpy(base->gid, port->gid.raw, sizeof(base->gid));
    base->link = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? CRPC_LINK_ETHERNET
                                                                        : CRPC_LINK_INFINIBAND;
    base->mtu_bytes = 128u << port->attributes.active_mtu;
    base->message_bytes_max = (uint32_t)minimum(port->attributes.max_msg_sz, NIC_MESSAGE_BYTES_MAX);
    base->link_mbps = device_link_mbps(port->context, port->number, &port->attributes);
    base->system_image_guid = be64toh(port->device.sys_image_guid);
    base->event_fd = -1;
    nic->trouble_fd = -1;
    base->network = options->network;
    base->network.partition_key = port->partition_key;
    base->partition_given = options->network.partition_key != 0;
    base->grh_required = device_grh_required(&port->attributes);
    nic->partition_index = port->partition_index;
    nic->lid = port->attributes.lid;
    nic->mtu_code = (uint8_t)port->attributes.active_mtu;
    nic->send_wqes_max = non_negative(port->device.max_qp_wr);
    nic->receive_wqes_max =
        (uint32_t)minimum(nic->send_wqes_max, non_negative(port->device.max_cqe));
    base->receive_queue_max = device_has_srqs(&port->device) ? 0 : nic->receive_wqes_max;
    nic->read_depth_out =
        (uint8_t)clamp(non_negative(port->device.max_qp_init_rd_atom), 1, UINT8_MAX);
    nic->read_depth_in = (uint8_t)clamp(non_negative(port->device.max_qp_rd_atom), 1, UINT8_MAX);
}

/* Some devices scatter what a READ brings to fewer pieces, and some do not say to how many. */
static uint32_t pieces_max(const struct ibv_device_attr *device)
{
    const uint32_t any = non_negative(device->max_sge), of_read = non_negative(device->max_sge_rd);
    return of_read > 0 && of_read < any ? of_read : any;
}

/* Each vector has an interrupt, which most systems give to a processor of its own. Contexts of a process take turns, and processes
 * begin at different ones. */
static uint32_t choose_vector(const struct ibv_context *context, uint32_t option)
{
    static _Atomic uint32_t taken;
    const uint32_t vectors = (uint32_t)maximum(non_negative(context->num_comp_vectors), 1);
    if (option > 0) {
        return (option - 1) % vectors;
    }
    return ((uint32_t)getpid() + atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed)) %
           vectors;
}

static void clamp_depths(struct nic *nic, const struct nic_options *options,
                         const struct ibv_device_attr *device)
{
    uint32_t receives = options->receive_depth ? options->receive_depth : RECEIVE_DEPTH_DEFAULT;
    nic->receive_depth = clamp(receives, 1, device_receive_depth_max(device));
    nic->send_depth = clamp(options->send_depth, 2, non_negative(device->max_qp_wr));
    nic->send_completion_depth =
        clamp(options->send_completion_depth, nic_send_places(nic->send_depth),
              non_negative(device->max_cqe));
    nic->signal_interval = clamp(options->signal_interval, 1, nic->send_depth / 2);
    nic->pieces_max =
        clamp(options->pieces ? options->pieces : NIC_PIECES_MAX, 1, pieces_max(device));
}

static int32_t create_channel(struct device_nic *nic, crpc_error *error)
{
    nic->channel = ibv_create_comp_channel(nic->context);
    if (!nic->channel) {
        return device_blame(error, errno, 0, nic->base.device, "create a completion channel");
    }
    int flags = fcntl(nic->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(nic->channel->fd, F_SETFL, flags | O_NONBLOCK)) {
        error_set(error, CRPC_E_SYSTEM, errno,
                  "%s: cannot make the completion channel non-blocking: %s", nic->base.device,
                  strerror(errno));
        ibv_destroy_comp_channel(nic->channel);
        nic->channel = NULL; /* closing would wait for its events */
        return error->status;
    }
    nic->base.event_fd = nic->channel->fd;
    return CRPC_OK;
}

static int32_t open_parts(const struct device_driver *driver, struct device_nic *nic,
                          const struct nic_options *options, crpc_error *error)
{
    nic->pd = ibv_alloc_pd(nic->context);
    if (!nic->pd) {
        return device_blame(error, errno, 0, nic->base.device, "create a protection domain");
    }
    int32_t status = create_channel(nic, error);
    return status == CRPC_OK ? driver->create_queues(nic, options, error) : status;
}

/* Finds out what copyrpc-check has found to fail here. */
static void find_left_out(struct device_nic *nic, const struct device_port *port)
{
    struct left_out_subject subject;
    struct left_out found;
    char text[LEFT_OUT_TEXT_BYTES];
    struct nic *base = &nic->base;
    left_out_describe(port->context, &port->device, &subject);
    left_out_read(&subject, &found);
    nic->left_out = found.features;
    if (found.features != 0) {
        snprintf(base->left_out, sizeof(base->left_out),
                 "%s: left out, as copyrpc-check found it to fail: %s; delete %s to use it",
                 base->device, left_out_text(found.features, text), found.path);
    } else if (found.ignored[0]) {
        snprintf(base->left_out, sizeof(base->left_out),
                 "%s: what copyrpc-check found is not heeded: %s", base->device, found.ignored);
    }
    if (found.features & LEFT_OUT_DC) {
        base->dc = false;
    }
}

static int32_t refuse_left_out(const struct device_nic *nic, const struct nic_options *options,
                               crpc_error *error)
{
    const bool dc = options->initiators > 0 && (nic->left_out & LEFT_OUT_DC);
    const bool all =
        (nic->left_out & LEFT_OUT_MLX5) && nic->base.operations->driver == CRPC_DRIVER_MLX5;
    return all || dc ? error_set(error, CRPC_E_UNSUPPORTED, 0, "%s", nic->base.left_out) : CRPC_OK;
}

int32_t device_open(const struct device_driver *driver, const struct nic_options *options,
                    struct nic **result, crpc_error *error)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    struct device_port port = {0};
    int32_t status = device_port_open(options, driver->usable, &port, error);
    if (status != CRPC_OK) {
        return status;
    }
    pthread_once(&fork_once, protect_from_fork);
    struct device_nic *nic = lines_alloc(1, driver->nic_bytes);
    if (!nic) {
        ibv_close_device(port.context);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    nic->base.operations = driver->operations;
    table_init(&nic->by_number);
    table_init(&nic->queues_by_number);
    describe(nic, &port, options);
    nic->base.completion_vector = (uint16_t)choose_vector(port.context, options->completion_vector);
    clamp_depths(&nic->base, options, &port.device);
    nic->base.automatic = options->automatic;
    if (options->automatic) {
        find_left_out(nic, &port);
    }
    status = refuse_left_out(nic, options, error);
    if (status == CRPC_OK) {
        status = open_parts(driver, nic, options, error);
    }
    if (status != CRPC_OK) {
        driver->operations->close(&nic->base);
        return status;
    }
    *result = &nic->base;
    return CRPC_OK;
}

void device_close(struct device_nic *nic)
{
    assert(nic->queue_pairs == 0);
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        assert(!nic->queue_sources[table]);
    }
    if (nic->channel) {
        ibv_destroy_comp_channel(nic->channel);
    }
    if (nic->pd) {
        ibv_dealloc_pd(nic->pd);
    }
    ibv_close_device(nic->context);
    table_free(&nic->by_number);
    table_free(&nic->queues_by_number);
    free(nic);
}

int32_t device_queue_failed(const struct nic *nic, const char *kind, uint32_t depth,
                            crpc_error *error)
{
    int os_error = errno;
    char what[96];
    snprintf(what, sizeof(what), "create a %s queue of %u entries", kind, depth);
    return device_blame(error, os_error, 0, nic->device, what);
}

/* A peer that still hears packets of an earlier connection must not take them for this one's. */
static uint32_t random_sequence_number(void)
{
    uint32_t number;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        number = (uint32_t)now.tv_nsec;
    }
    return number & 0xffffffu;
}

void device_renew_sequence_number(struct device_queue_pair *queue_pair)
{
    queue_pair->packet_sequence_number = random_sequence_number();
}

void device_queue_pair_begin(struct device_nic *nic, struct device_queue_pair *queue_pair,
                             void *owner, uint32_t depth)
{
    queue_pair->base.operations = nic->base.operations;
    queue_pair->base.nic = &nic->base;
    queue_pair->base.owner = owner;
    queue_pair->base.depth = depth;
}

void device_queue_pair_made(struct device_queue_pair *queue_pair, struct ibv_qp *qp)
{
    queue_pair->base.number = qp->qp_num;
    queue_pair->qp = qp;
    qp->qp_context = queue_pair; /* core/cm tells of its events */
    device_renew_sequence_number(queue_pair);
    device_ece_offer(queue_pair);
}

void device_queue_pair_made_past_verbs(struct device_queue_pair *queue_pair, uint32_t number)
{
    queue_pair->base.number = number;
    queue_pair->past_verbs = true;
    queue_pair->ece = (struct nic_ece){0}; /* it offers nothing: verbs alone hand options over */
    device_renew_sequence_number(queue_pair);
}

bool device_queue_pair_adopt(struct device_nic *nic, struct device_queue_pair *queue_pair)
{
    if (!table_set(&nic->by_number, queue_pair->base.number, &queue_pair->base)) {
        return false;
    }
    queue_pair->adopted = true;
    nic->queue_pairs++;
    return true;
}

static void describe_queue_pair(struct device_nic *nic, struct device_queue_pair *queue_pair,
                                void *owner, struct ibv_qp *qp)
{
    device_queue_pair_begin(nic, queue_pair, owner, nic->base.send_depth);
    device_queue_pair_made(queue_pair, qp);
}

int device_dct_init(struct device_nic *nic, struct device_queue_pair *queue_pair, void *owner,
                    struct ibv_qp *qp)
{
    describe_queue_pair(nic, queue_pair, owner, qp);
    int os_error = device_dct_ready(&queue_pair->base);
    if (os_error == 0 && table_get(&nic->by_number, queue_pair->base.number)) {
        os_error = EEXIST;
    }
    if (os_error == 0 && !table_set(&nic->by_number, queue_pair->base.number, &queue_pair->base)) {
        os_error = ENOMEM;
    }
    nic->queue_pairs += os_error == 0;
    return os_error;
}

int device_queue_init(struct device_nic *nic, struct device_queue_pair *queue_pair,
                      struct nic_queue *queue, struct ibv_qp *qp)
{
    describe_queue_pair(nic, queue_pair, queue, qp);
    queue_pair->atomics = nic->base.atomics;
    if (queue->kind == NIC_QUEUE_TM_SRQ) {
        qp->qp_context = NULL;
    }
    /* Before it can have completions, but a DCT has no number then. */
    int os_error = queue->kind == NIC_QUEUE_DCT ? device_dct_ready(&queue_pair->base) : 0;
    if (os_error == 0 && !table_set(&nic->queues_by_number, queue_pair->base.number, queue)) {
        os_error = ENOMEM;
    }
    if (os_error) {
        return os_error;
    }
    nic->queue_pairs++;
    os_error = queue->kind == NIC_QUEUE_DCT ? 0 : device_queue_pair_to_init(&queue_pair->base);
    if (os_error) {
        device_queue_forget(nic, &queue_pair->base);
    }
    return os_error;
}

void device_queue_forget(struct device_nic *nic, const struct nic_queue_pair *queue_pair)
{
    nic->queue_pairs--;
    table_clear(&nic->queues_by_number, queue_pair->number);
}

void device_queue_pair_forget(struct device_nic *nic, struct nic_queue_pair *queue_pair)
{
    to_device_queue_pair(queue_pair)->adopted = false;
    nic->send_outstanding -= queue_pair->posted - queue_pair->completed;
    nic->queue_pairs--;
    table_clear(&nic->by_number, queue_pair->number);
}

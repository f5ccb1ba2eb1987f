/* open.c: makes the queues of a nic, and takes them down again. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "verbs.h"

#define RECEIVE_DEPTH_DEFAULT 16384

/* Kernels before 5.12 give the parent a new copy of a page it writes to after fork(), while the
 * device keeps writing to the old one. This keeps registered pages with the parent there, and does
 * nothing on newer kernels. It must come before the first registration, and its failure leaves us
 * no worse. */
static void protect_from_fork(void)
{
    ibv_fork_init();
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

static void describe(struct verbs_nic *nic, const struct verbs_port *port)
{
    struct nic *base = &nic->base;
    base->operations = &verbs_operations;
    base->verbs = port->context;
    snprintf(base->device, sizeof(base->device), "%s", ibv_get_device_name(port->context->device));
    base->port = port->number;
    base->gid_index = port->gid_index;
    memcpy(base->gid, port->gid.raw, sizeof(base->gid));
    base->link = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? CRPC_LINK_ETHERNET
                                                                        : CRPC_LINK_INFINIBAND;
    base->mtu_bytes = 128u << port->attributes.active_mtu;
    base->event_fd = -1;
    nic->lid = port->attributes.lid;
    nic->mtu_code = (uint8_t)port->attributes.active_mtu;
    nic->read_depth_out =
        (uint8_t)clamp(non_negative(port->device.max_qp_init_rd_atom), 1, NIC_READ_DEPTH);
    nic->read_depth_in =
        (uint8_t)clamp(non_negative(port->device.max_qp_rd_atom), 1, NIC_READ_DEPTH);
}

static void clamp_depths(struct verbs_nic *nic, const struct nic_options *options,
                         const struct ibv_device_attr *device)
{
    struct nic *base = &nic->base;
    uint32_t receives = options->receive_depth ? options->receive_depth : RECEIVE_DEPTH_DEFAULT;
    base->receive_depth = clamp(receives, 1, verbs_receive_depth_max(device));
    base->send_depth = clamp(options->send_depth, 2, non_negative(device->max_qp_wr));
    base->send_completion_depth =
        clamp(options->send_completion_depth, base->send_depth, non_negative(device->max_cqe));
    base->signal_interval = clamp(options->signal_interval, 1, base->send_depth / 2);
}

static int32_t create_channel(struct verbs_nic *nic, crpc_error *error)
{
    nic->channel = ibv_create_comp_channel(nic->base.verbs);
    if (!nic->channel) {
        return verbs_blame(error, errno, 0, nic->base.device, "create a completion channel");
    }
    int flags = fcntl(nic->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(nic->channel->fd, F_SETFL, flags | O_NONBLOCK)) {
        return error_set(error, CRPC_E_SYSTEM, errno,
                         "%s: cannot make the completion channel non-blocking: %s",
                         nic->base.device, strerror(errno));
    }
    nic->base.event_fd = nic->channel->fd;
    return CRPC_OK;
}

static int32_t create_completion_queue(struct verbs_nic *nic, struct verbs_source *source,
                                       uint32_t depth, const char *which, crpc_error *error)
{
    if (verbs_source_open(source, nic, depth)) {
        return CRPC_OK;
    }
    int os_error = errno;
    char what[96];
    snprintf(what, sizeof(what), "create a %s completion queue of %u entries", which, depth);
    return verbs_blame(error, os_error, 0, nic->base.device, what);
}

static int32_t create_receive_queue(struct verbs_nic *nic, crpc_error *error)
{
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = nic->base.receive_depth, .max_sge = 1},
    };
    nic->srq = ibv_create_srq(nic->pd, &attributes);
    if (!nic->srq) {
        int os_error = errno;
        char what[96];
        snprintf(what, sizeof(what), "create a shared receive queue of %u entries",
                 nic->base.receive_depth);
        return verbs_blame(error, os_error, 0, nic->base.device, what);
    }
    for (uint32_t i = 0; i + 1 < VERBS_REFILL_CHUNK; i++) {
        nic->receives[i].next = &nic->receives[i + 1];
    }
    return CRPC_OK;
}

/* How much payload a WQE carries is only known once there is a queue pair, so one is made to ask.
 * 220 bytes are what fits four 64-byte units of an mlx5 send queue. */
static int32_t probe_inline(struct verbs_nic *nic, crpc_error *error)
{
    static const uint32_t wanted[] = {220, 128, 64, 0};
    struct ibv_qp *qp = NULL;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && !qp; i++) {
        struct ibv_qp_init_attr granted;
        qp = verbs_qp_create(nic, wanted[i], &granted);
        nic->inline_bytes_wanted = wanted[i];
        nic->base.inline_bytes_max = granted.cap.max_inline_data;
    }
    if (!qp) {
        return verbs_blame(error, errno, 0, nic->base.device, "create a queue pair");
    }
    ibv_destroy_qp(qp);
    return CRPC_OK;
}

static int32_t create_queues(struct verbs_nic *nic, crpc_error *error)
{
    struct nic *base = &nic->base;
    nic->pd = ibv_alloc_pd(base->verbs);
    if (!nic->pd) {
        return verbs_blame(error, errno, 0, base->device, "create a protection domain");
    }
    int32_t status = create_channel(nic, error);
    if (status == CRPC_OK) {
        status = create_completion_queue(nic, &nic->receive, base->receive_depth, "receive", error);
    }
    if (status == CRPC_OK) {
        status =
            create_completion_queue(nic, &nic->send, base->send_completion_depth, "send", error);
    }
    if (status == CRPC_OK) {
        status = create_receive_queue(nic, error);
    }
    if (status == CRPC_OK) {
        status = probe_inline(nic, error);
    }
    if (status == CRPC_OK) {
        base->send_completion_depth = nic->send.depth;
        verbs_refill(base);
    }
    return status;
}

int32_t verbs_open(const struct nic_options *options, struct nic **result, crpc_error *error)
{
    static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
    pthread_once(&fork_once, protect_from_fork);

    struct verbs_port port = {0};
    int32_t status = verbs_port_open(options, &port, error);
    if (status) {
        return status;
    }
    struct verbs_nic *nic = calloc(1, sizeof(*nic));
    if (!nic) {
        ibv_close_device(port.context);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    table_init(&nic->by_number);
    describe(nic, &port);
    clamp_depths(nic, options, &port.device);
    status = create_queues(nic, error);
    if (status) {
        verbs_close(&nic->base);
        return status;
    }
    *result = &nic->base;
    return CRPC_OK;
}

void verbs_close(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    assert(nic->queue_pairs == 0);
    if (nic->srq) {
        ibv_destroy_srq(nic->srq);
    }
    if (nic->channel) {
        verbs_disarm(base);
    }
    verbs_source_close(&nic->send);
    verbs_source_close(&nic->receive);
    if (nic->channel) {
        ibv_destroy_comp_channel(nic->channel);
    }
    if (nic->pd) {
        ibv_dealloc_pd(nic->pd);
    }
    ibv_close_device(base->verbs);
    table_free(&nic->by_number);
    free(nic);
}

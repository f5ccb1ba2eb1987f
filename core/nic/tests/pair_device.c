/* pair_device.c: the driver and the device of pair.h, as place.h says. */
#include "pair.h"
#include "place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "nic/device/device.h"

uint32_t pair_driver(void)
{
    return strcmp(place_driver(), "mlx5") == 0 ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
}

void pair_choose(struct nic_options *options)
{
    snprintf(options->device, sizeof(options->device), "%s", place_device(0));
    options->features = place_compresses() ? CRPC_FEATURE_CQE_COMPRESSION : 0;
    options->compressed_receives = place_compresses();
    options->enhanced_layout = place_compresses() > 1;
}

void pair_pass(uint32_t microseconds)
{
    if (microseconds > 0) {
        usleep(microseconds);
    }
}

static uint32_t resets_to_refuse;

void pair_refuse_resets(uint32_t count)
{
    resets_to_refuse = count;
}

/* The driver finds this one before that of libibverbs. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    int (*function)(struct ibv_qp *, struct ibv_qp_attr *, int);
    void *found = dlsym(RTLD_NEXT, "ibv_modify_qp");
    if ((mask & IBV_QP_STATE) && attributes->qp_state == IBV_QPS_RESET && resets_to_refuse > 0) {
        resets_to_refuse--;
        return EIO;
    }
    memcpy(&function, &found, sizeof(function));
    return function(qp, attributes, mask);
}

void pair_expect_timer(const struct nic_queue *queue, uint32_t code)
{
    struct ibv_qp_init_attr made;
    struct ibv_qp_attr attributes;
    assert_int_equal(ibv_query_qp(device_qp(queue->pair), &attributes, IBV_QP_MIN_RNR_TIMER, &made),
                     0);
    assert_int_equal(attributes.min_rnr_timer, code);
}

bool pair_limit_reached(struct nic_queue *srq)
{
    struct ibv_context *context = device_context(srq->nic);
    struct ibv_async_event event;
    bool reached = false;
    assert_int_equal(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
    while (ibv_get_async_event(context, &event) == 0) {
        reached |= event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED &&
                   event.element.srq->srq_context == srq;
        ibv_ack_async_event(&event);
    }
    return reached;
}

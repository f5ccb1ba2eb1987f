/* queues.c: event channels, completion queues and shared receive queues. */
#include "simnic/shim/kernel/verbs.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "base/compiler.h"
#include "simnic/nic/dma.h"
#include "simnic/shim/kernel/answers.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/process/process.h"

#define CQ_MOST_ENTRIES 4194303u
#define SRQ_MOST_ENTRIES 32767u
#define SRQ_MOST_SEGMENTS 31u

int verb_create_channel(const struct call *call)
{
    struct ib_uverbs_create_comp_channel_resp response = {UINT32_MAX};
    struct channel *channel;
    /* First, whether the descriptor can be told: one that nobody is told of would stay open. */
    int fd, result = attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
    if (!result) {
        result = channel_create(call->context, CHANNEL_COMPLETIONS, &channel, &fd);
    }
    if (result) {
        return result;
    }
    response.fd = (uint32_t)fd;
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

int verb_alloc_async(const struct call *call)
{
    struct channel *channel;
    int fd, result = channel_create(call->context, CHANNEL_ASYNC, &channel, &fd);
    if (!result) {
        attribute_out_handle(call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, (uint64_t)fd);
    }
    return result;
}

/* As the kernel's mini_cqe_res_format_to_hw: exactly one format. */
static bool is_response_format(uint8_t format)
{
    return format == MLX5DV_CQE_RES_FORMAT_HASH || format == MLX5DV_CQE_RES_FORMAT_CSUM ||
           format == MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
}

int verb_create_cq(const struct call *call)
{
    struct mlx5_ib_create_cq driver;
    uint64_t entries = attribute_number(call, UVERBS_ATTR_CREATE_CQ_CQE, 0);
    uint64_t vector = attribute_number(call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0);
    int result = attribute_in(call, UVERBS_ATTR_UHW_IN, &driver, sizeof(driver),
                              offsetof(struct mlx5_ib_create_cq, uar_page_index));
    if (result) {
        return result;
    }
    if (entries == 0 || entries > CQ_MOST_ENTRIES ||
        (driver.cqe_size != 64 && driver.cqe_size != 128) || vector >= COMPLETION_VECTORS) {
        return EINVAL;
    }
    if (driver.flags & ~(uint32_t)(MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD |
                                   MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)) {
        return EINVAL;
    }
    if (driver.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD && driver.cqe_size != 128) {
        return EOPNOTSUPP;
    }
    if (driver.cqe_comp_en == 1 && !is_response_format(driver.cqe_comp_res_format)) {
        return EINVAL;
    }
    struct channel *channel = NULL;
    if (attribute(call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
        channel =
            channel_of((int)attribute_number(call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UINT64_MAX));
        if (!channel) {
            return EBADF;
        }
        if (channel->kind == CHANNEL_DEVX) {
            channel_release(channel);
            return EINVAL;
        }
    }
    doorbells_find();
    struct completion_queue *cq = cq_create(&process.nic);
    if (cq && driver.cqe_comp_en == 1 && !compression_create(cq, driver.cqe_comp_res_format)) {
        cq_destroy(&process.nic, cq);
        cq = NULL;
    }
    struct object *object = cq ? object_create_for(call->context, UVERBS_OBJECT_CQ, cq) : NULL;
    if (!object) {
        if (channel) {
            channel_release(channel);
        }
        return ENOMEM;
    }
    cq->buffer = (uint8_t *)(uintptr_t)driver.buf_addr;
    cq->record = (uint8_t *)(uintptr_t)driver.db_addr;
    cq->entries = power_of_two_at_least((uint32_t)entries + 1);
    cq->entry_bytes = driver.cqe_size;
    cq->vector = (uint8_t)vector;
    cq->blind = fabric_has_quirk(process.nic.fabric, QUIRK_BLIND_MINIS);
    cq->pads = driver.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
    cq->owner = object;
    /* A program may arm with zero first, which is what its record holds. So the record gets a value
     * with which no program arms. */
    cq->arm_value = UINT32_MAX;
    dma_store32(cq->record + 4, UINT32_MAX);
    object->completions = channel;
    object->user_handle = attribute_number(call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0);
    attribute_out_handle(call, UVERBS_ATTR_CREATE_CQ_HANDLE, object->handle);
    struct mlx5_ib_create_cq_resp response = {.cqn = cq->number};
    result = attribute_out32(call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, cq->entries - 1);
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &response, sizeof(response));
}

int verb_resize_cq(const struct call *call)
{
    struct ib_uverbs_resize_cq request;
    struct mlx5_ib_resize_cq driver;
    struct object *object;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_CQ,
                                      &request.cq_handle, &object);
    if (!result) {
        result = attribute_in(call, UVERBS_ATTR_UHW_IN, &driver, sizeof(driver), sizeof(driver));
    }
    if (result) {
        return result;
    }
    if (request.cqe == 0 || request.cqe > CQ_MOST_ENTRIES ||
        (driver.cqe_size != 64 && driver.cqe_size != 128) || driver.reserved0 || driver.reserved1) {
        return EINVAL;
    }
    struct completion_queue *cq = object->thing;
    uint32_t entries = power_of_two_at_least(request.cqe + 1);
    if (!cq_resize(&process.nic, cq, (uint8_t *)(uintptr_t)driver.buf_addr, entries,
                   driver.cqe_size)) {
        return EINVAL;
    }
    struct ib_uverbs_resize_cq_resp response = {.cqe = entries - 1};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

struct srq_creation {
    struct object *domain, *xrc, *completions;
    struct mlx5_ib_create_srq driver;
    uint64_t type, entries, segments, tags;
};

static int read_srq_creation(const struct call *call, struct srq_creation *c)
{
    int result = attribute_in(call, UVERBS_ATTR_UHW_IN, &c->driver, sizeof(c->driver),
                              offsetof(struct mlx5_ib_create_srq, flags));
    if (result) {
        return result;
    }
    c->entries = attribute_number(call, UVERBS_ATTR_CREATE_SRQ_MAX_WR, 0);
    c->segments = attribute_number(call, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 0);
    c->tags = attribute_number(call, UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, 0);
    c->type = attribute_number(call, UVERBS_ATTR_CREATE_SRQ_TYPE, IB_UVERBS_SRQT_BASIC);
    if (c->type != IB_UVERBS_SRQT_BASIC && c->type != IB_UVERBS_SRQT_XRC &&
        c->type != IB_UVERBS_SRQT_TM) {
        return EOPNOTSUPP;
    }
    c->domain = attribute_object(call, UVERBS_OBJECT_PD, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE);
    if (c->type == IB_UVERBS_SRQT_XRC) {
        c->xrc = attribute_object(call, UVERBS_OBJECT_XRCD, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE);
    }
    if (c->type != IB_UVERBS_SRQT_BASIC) {
        c->completions = attribute_object(call, UVERBS_OBJECT_CQ, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
    }
    if (!c->domain || (c->type == IB_UVERBS_SRQT_XRC && !c->xrc) ||
        (c->type != IB_UVERBS_SRQT_BASIC && !c->completions)) {
        return EINVAL;
    }
    if (c->type == IB_UVERBS_SRQT_TM && (c->tags == 0 || c->tags > NIC_MAX_TAGS)) {
        return EINVAL;
    }
    bool sizes = c->entries <= SRQ_MOST_ENTRIES && c->segments <= SRQ_MOST_SEGMENTS;
    return sizes && !c->driver.flags ? 0 : EINVAL;
}

int verb_create_srq(const struct call *call)
{
    struct srq_creation c = {0};
    int result = read_srq_creation(call, &c);
    if (fabric_has_quirk(process.nic.fabric, QUIRK_NO_SRQ)) {
        result = EOPNOTSUPP;
    }
    if (result) {
        return result;
    }
    struct shared_receive_queue *srq = srq_create(&process.nic);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_SRQ, srq);
    if (!object) {
        return ENOMEM;
    }
    /* libmlx5 uses one place more than it asks for. */
    if (c.type == IB_UVERBS_SRQT_TM &&
        !tags_create(srq, power_of_two_at_least((uint32_t)c.tags + 1))) {
        object_destroy(object);
        return ENOMEM;
    }
    /* libmlx5 does not pass the stride. It follows from the segments, as in the kernel's
     * mlx5_ib_create_srq. */
    uint32_t stride = power_of_two_at_least(16 + 16 * (uint32_t)c.segments);
    if (stride < 32) {
        stride = 32;
    }
    srq->buffer = (uint8_t *)(uintptr_t)c.driver.buf_addr;
    srq->record = (uint8_t *)(uintptr_t)c.driver.db_addr;
    srq->entries = power_of_two_at_least((uint32_t)c.entries + 1);
    srq->entry_shift = (uint32_t)__builtin_ctz(stride);
    srq->domain = (uint32_t)c.domain->number;
    srq->limit = (uint32_t)attribute_number(call, UVERBS_ATTR_CREATE_SRQ_LIMIT, 0);
    srq->owner = object;
    object->user_handle = attribute_number(call, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0);
    object_use(object, c.domain);
    object_use(object, c.xrc);
    object_use(object, c.completions);
    srq->completion_queue = c.completions ? c.completions->thing : NULL;
    srq->xrc_domain = c.xrc ? (uint32_t)c.xrc->number : 0;
    srq->user_index = c.driver.uidx;
    attribute_out_handle(call, UVERBS_ATTR_CREATE_SRQ_HANDLE, object->handle);
    struct mlx5_ib_create_srq_resp response = {.srqn = srq->number};
    result = attribute_out32(call, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, srq->entries - 1);
    if (!result) {
        result = attribute_out32(call, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, (stride - 16) / 16);
    }
    if (!result) {
        result = attribute_out32(call, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, srq->number);
    }
    return result ? result : attribute_out(call, UVERBS_ATTR_UHW_OUT, &response, sizeof(response));
}

int verb_modify_srq(const struct call *call)
{
    struct ib_uverbs_modify_srq request;
    struct object *object;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_SRQ,
                                      &request.srq_handle, &object);
    if (result) {
        return result;
    }
    struct shared_receive_queue *srq = object->thing;
    if (request.attr_mask & 1) { /* IB_SRQ_MAX_WR: mlx5 does not resize SRQs */
        return EINVAL;
    }
    if (request.attr_mask & 2) { /* IB_SRQ_LIMIT */
        if (request.srq_limit >= srq->entries) {
            return EINVAL;
        }
        srq->limit = request.srq_limit;
    }
    return 0;
}

int verb_query_srq(const struct call *call)
{
    struct ib_uverbs_query_srq request;
    struct object *object;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_SRQ,
                                      &request.srq_handle, &object);
    if (result) {
        return result;
    }
    const struct shared_receive_queue *srq = object->thing;
    struct ib_uverbs_query_srq_resp response = {.max_wr = srq->entries - 1,
                                                .max_sge = ((1u << srq->entry_shift) - 16) / 16,
                                                .srq_limit = srq->limit};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

/* system_calls_device.c: bad pointers in what only the virtual devices answer. What is expected is
 * what the kernel's drivers do. */
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simnic/tests/system_calls.h"

/* A header, whose type ends with attributes of no number, and so many of them. */
struct request {
    union {
        struct ib_uverbs_ioctl_hdr header;
        struct {
            uint8_t before[sizeof(struct ib_uverbs_ioctl_hdr)];
            struct ib_uverbs_attr attributes[3];
        };
    };
};

static struct request request_of(uint16_t object, uint16_t method, uint16_t count)
{
    struct request request = {.header = {.object_id = object,
                                         .method_id = method,
                                         .num_attrs = count,
                                         .driver_id = RDMA_DRIVER_MLX5}};
    request.header.length =
        (uint16_t)(sizeof(request.header) + count * sizeof(request.attributes[0]));
    return request;
}

static struct request alloc_pd_into(void *response, uint16_t bytes)
{
    struct request request = request_of(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2);
    request.attributes[0] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_WRITE_CMD,
                                                    .len = 8,
                                                    .flags = UVERBS_ATTR_F_MANDATORY,
                                                    .data = IB_USER_VERBS_CMD_ALLOC_PD};
    request.attributes[1] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_CORE_OUT,
                                                    .len = bytes,
                                                    .flags = UVERBS_ATTR_F_MANDATORY,
                                                    .data = (uintptr_t)response};
    return request;
}

void test_verbs(struct ibv_context *context)
{
    int fd = context->cmd_fd;
    struct ib_uverbs_alloc_pd_resp first = {0}, second = {0};
    struct request request = alloc_pd_into(&first, sizeof(first));
    HOLDS(ioctl(fd, RDMA_VERBS_IOCTL, &request) == 0);
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name;
        void *pointer = bad[i].pointer;
        FAILS(name, ioctl(fd, RDMA_VERBS_IOCTL, pointer), EFAULT);
        request = alloc_pd_into(pointer, 16);
        FAILS(name, ioctl(fd, RDMA_VERBS_IOCTL, &request), EFAULT);
        FAILS(name, write(fd, pointer, 24), i == RUNS_OUT ? EINVAL : EFAULT);
    }
    /* What failed so has left nothing behind: handles are given in order. */
    request = alloc_pd_into(&second, sizeof(second));
    HOLDS(ioctl(fd, RDMA_VERBS_IOCTL, &request) == 0);
    HOLDS(second.pd_handle == first.pd_handle + 1);
    /* A header at the end of memory, with attributes behind it or not. */
    struct ib_uverbs_ioctl_hdr *last =
        (void *)((char *)bad[UNMAPPED].pointer - sizeof(struct ib_uverbs_ioctl_hdr));
    *last = alloc_pd_into(&second, sizeof(second)).header;
    FAILS("", ioctl(fd, RDMA_VERBS_IOCTL, last), EFAULT);
    *last = request_of(UVERBS_OBJECT_DEVICE, 999, 0).header;
    FAILS("", ioctl(fd, RDMA_VERBS_IOCTL, last), EPROTONOSUPPORT);
    memcpy((char *)bad[RUNS_OUT].pointer, "/dev/inf", 8);
    request = alloc_pd_into(&second, sizeof(second));
    request.header.length = 0;
    FAILS("", ioctl(fd, RDMA_VERBS_IOCTL, &request), EINVAL);
    request.header.num_attrs = UINT16_MAX;
    request.header.length =
        (uint16_t)(sizeof(request.header) + UINT16_MAX * sizeof(request.attributes[0]));
    FAILS("", ioctl(fd, RDMA_VERBS_IOCTL, &request), EINVAL);
    char byte = 0;
    FAILS("", read(fd, &byte, 1), EINVAL);
    FAILS("", write(fd, &byte, 1), EINVAL);
}

/* A completion event: a receive that is flushed. */
static void flush_a_receive(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    struct ibv_recv_wr receive = {0}, *wrong;
    HOLDS(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0);
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
    HOLDS(ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    HOLDS(ibv_req_notify_cq(qp->recv_cq, 0) == 0 && ibv_post_recv(qp, &receive, &wrong) == 0);
    attributes.qp_state = IBV_QPS_ERR;
    HOLDS(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0);
    struct ibv_wc completion;
    while (ibv_poll_cq(qp->recv_cq, 1, &completion) == 0) {
    }
}

void test_events(struct ibv_context *context)
{
    struct ibv_pd *domain = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, channel, 0);
    struct ibv_qp_init_attr how = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp *qp = ibv_create_qp(domain, &how);
    int files[] = {channel->fd, context->async_fd};
    uint64_t event[2];
    for (size_t i = 0; i < 2; i++) {
        HOLDS(fcntl(files[i], F_SETFL, O_NONBLOCK) == 0);
        FAILS("", read(files[i], event, sizeof(event)), EAGAIN);
        FAILS("", read(files[i], bad[0].pointer, sizeof(event)), EAGAIN);
        FAILS("", read(files[i], event, 0), EAGAIN);
        FAILS("", write(files[i], event, sizeof(event)), EINVAL);
        FAILS("", map(files[i], NULL, PAGE, MAP_SHARED, 0), ENODEV);
        FAILS("", ioctl(files[i], RDMA_VERBS_IOCTL, event), ENOTTY);
    }
    unsigned events = 0;
    for (size_t i = 0; i < BAD_COUNT; i++) {
        flush_a_receive(qp);
        FAILS("", read(channel->fd, event, 1), EINVAL);
        void *half = i == RUNS_OUT ? (char *)bad[i].pointer + 4 : bad[i].pointer;
        FAILS(bad[i].name, read(channel->fd, half, sizeof(event)), EFAULT);
        events++;
        /* The event has gone, as the kernel's does. */
        FAILS("", read(channel->fd, event, sizeof(event)), EAGAIN);
    }
    flush_a_receive(qp);
    HOLDS(read(channel->fd, event, sizeof(event)) == 8);
    ibv_ack_cq_events(cq, events + 1);
    HOLDS(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    HOLDS(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(domain) == 0);
}

static ssize_t command_to(int fd, uint32_t number, const void *body, uint16_t in, uint16_t out)
{
    uint8_t command[512] = {0};
    struct rdma_ucm_cmd_hdr header = {.cmd = number, .in = in, .out = out};
    memcpy(command, &header, sizeof(header));
    memcpy(command + sizeof(header), body, in);
    return write(fd, command, sizeof(header) + in);
}

void test_connection_manager(void)
{
    int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct rdma_ucm_create_id_resp response;
    struct rdma_ucm_create_id create = {
        .response = (uintptr_t)&response, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};
    HOLDS(fd >= 0);
    HOLDS(command_to(fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create), sizeof(response)) >
          0);
    uint32_t id = response.id;
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name;
        void *pointer = bad[i].pointer;
        FAILS(name, write(fd, pointer, 24), i == RUNS_OUT ? EINVAL : EFAULT);
        FAILS("", write(fd, pointer, 7), EINVAL);
        create.response = (uintptr_t)pointer;
        if (i != RUNS_OUT) {
            FAILS(name, command_to(fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create), 4),
                  EFAULT);
        }
        struct rdma_ucm_query query = {
            .response = (uintptr_t)pointer, .id = id, .option = RDMA_USER_CM_QUERY_ADDR};
        FAILS(name,
              command_to(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof(query),
                         sizeof(struct rdma_ucm_query_addr_resp)),
              EFAULT);
        struct rdma_ucm_set_option option = {.optval = (uintptr_t)pointer,
                                             .id = id,
                                             .level = RDMA_OPTION_ID,
                                             .optname = RDMA_OPTION_ID_REUSEADDR,
                                             .optlen = i == RUNS_OUT ? 12 : 4};
        FAILS(name, command_to(fd, RDMA_USER_CM_CMD_SET_OPTION, &option, sizeof(option), 0),
              EFAULT);
    }
    /* A header at the end of memory, with its command behind it. */
    struct rdma_ucm_cmd_hdr *last = (void *)((char *)bad[UNMAPPED].pointer - sizeof(*last));
    *last = (struct rdma_ucm_cmd_hdr){
        .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = sizeof(create), .out = sizeof(response)};
    FAILS("", write(fd, last, sizeof(*last) + sizeof(create)), EFAULT);
    FAILS("", write(fd, last, sizeof(*last)), EINVAL);
    memcpy((char *)bad[RUNS_OUT].pointer, "/dev/inf", 8);
    char byte = 0;
    FAILS("", read(fd, &byte, 1), EINVAL);
    FAILS("", map(fd, NULL, PAGE, MAP_SHARED, 0), ENODEV);
    HOLDS(close(fd) == 0);
}

/* The context does its work after all this. */
void test_still_works(struct ibv_context *context)
{
    struct ibv_device_attr attributes;
    static char memory[100];
    HOLDS(ibv_query_device(context, &attributes) == 0);
    struct ibv_pd *domain = ibv_alloc_pd(context);
    HOLDS(domain != NULL);
    struct ibv_mr *region = ibv_reg_mr(domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    HOLDS(region != NULL && ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(domain) == 0);
}

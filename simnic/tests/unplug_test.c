/* unplug_test.c: a device that is taken out, and put in again, as programs of plain verbs and rdma_cm see it; to be run under
 * `simnic run --private` with the path of simnic. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

static const char *simnic;

static void set_fault(const char *specification)
{
    char command[512];
    snprintf(command, sizeof(command), "'%s' ctl fault %s", simnic, specification);
    assert_int_equal(system(command), 0);
}

static int plug_in(void **state)
{
    (void)state;
    set_fault("none");
    return 0;
}

/* NULL if there is no such device. */
static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    for (int i = 0; list && list[i] && !context; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    return context;
}

static int count_devices(void)
{
    int count = 0;
    ibv_free_device_list(ibv_get_device_list(&count));
    return count;
}

/* ---- What a program has made ----------------------------------------------------------------- */

struct side {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *region;
    uint64_t memory[512];
};

static void side_open(struct side *side, const char *name)
{
    side->context = open_device(name);
    assert_non_null(side->context);
    side->domain = ibv_alloc_pd(side->context);
    side->channel = ibv_create_comp_channel(side->context);
    side->cq = ibv_create_cq(side->context, 16, NULL, side->channel, 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};
    side->srq = ibv_create_srq(side->domain, &shared);
    struct ibv_qp_init_attr init = {.send_cq = side->cq,
                                    .recv_cq = side->cq,
                                    .srq = side->srq,
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 1}};
    side->qp = ibv_create_qp(side->domain, &init);
    side->region = ibv_reg_mr(side->domain, side->memory, sizeof(side->memory),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(side->qp);
    assert_non_null(side->region);
}

static void side_connect(struct side *side, const struct side *peer)
{
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    assert_int_equal(
        ibv_modify_qp(side->qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_4096,
                             .dest_qp_num = peer->qp->qp_num,
                             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3}}};
    assert_int_equal(ibv_query_gid(peer->context, 1, 3, &a.ah_attr.grh.dgid), 0);
    assert_int_equal(ibv_modify_qp(side->qp, &a,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 3};
    assert_int_equal(ibv_modify_qp(side->qp, &a,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static enum ibv_wc_status side_write(struct side *side, const struct side *peer)
{
    struct ibv_sge sge = {(uintptr_t)side->memory, 8, side->region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    struct ibv_wc wc;
    wr.wr.rdma.remote_addr = (uintptr_t)&peer->memory[256];
    wr.wr.rdma.rkey = peer->region->rkey;
    assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
    while (ibv_poll_cq(side->cq, 1, &wc) == 0) {
    }
    return wc.status;
}

/* What its device has is destroyed already; the program's part of it is not. */
static void side_close(struct side *side)
{
    assert_int_equal(ibv_destroy_qp(side->qp), 0);
    assert_int_equal(ibv_destroy_srq(side->srq), 0);
    assert_int_equal(ibv_destroy_cq(side->cq), 0);
    assert_int_equal(ibv_dereg_mr(side->region), 0);
    assert_int_equal(ibv_dealloc_pd(side->domain), 0);
    assert_int_equal(ibv_destroy_comp_channel(side->channel), 0);
    assert_int_equal(ibv_close_device(side->context), 0);
}

static void await_fatal(struct ibv_context *context)
{
    struct ibv_async_event event;
    assert_int_equal(ibv_get_async_event(context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void test_a_program_hears_of_it_and_can_only_destroy(void **state)
{
    struct side side;
    struct ibv_cq *cq;
    void *unused;
    struct ibv_port_attr port;
    (void)state;
    side_open(&side, "mlx5_1");
    set_fault("rail1=unplugged");
    await_fatal(side.context);
    struct pollfd async = {side.context->async_fd, POLLIN, 0};
    assert_int_equal(poll(&async, 1, 0), 0); /* nothing follows */

    struct pollfd completions = {side.channel->fd, POLLIN, 0};
    assert_int_equal(poll(&completions, 1, -1), 1);
    assert_true(completions.revents & POLLERR);
    errno = 0;
    assert_int_equal(ibv_get_cq_event(side.channel, &cq, &unused), -1);
    assert_int_equal(errno, EIO);

    errno = 0;
    assert_null(ibv_reg_mr(side.domain, side.memory, 8, 0));
    assert_int_equal(errno, EIO);
    assert_null(ibv_alloc_pd(side.context));
    assert_null(ibv_create_cq(side.context, 4, NULL, NULL, 0));
    assert_int_not_equal(ibv_query_port(side.context, 1, &port), 0);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ibv_modify_qp(side.qp, &attributes, IBV_QP_STATE), EIO);
    side_close(&side);
}

static void test_it_is_not_there_until_it_is_plugged_in(void **state)
{
    struct stat status;
    (void)state;
    assert_int_equal(count_devices(), 2);
    struct ibv_device **before = ibv_get_device_list(NULL);
    set_fault("rail1=unplugged");
    assert_int_equal(count_devices(), 1);
    assert_null(open_device("mlx5_1"));
    assert_null(ibv_open_device(before[1]));
    assert_int_equal(stat("/dev/infiniband/uverbs1", &status), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(stat("/dev/infiniband/uverbs0", &status), 0);
    set_fault("none");
    assert_int_equal(count_devices(), 2);
    struct side side;
    side_open(&side, "mlx5_1");
    side_close(&side);
    ibv_free_device_list(before);
}

static void test_its_peers_find_nobody_and_other_devices_go_on(void **state)
{
    struct side far, near, other;
    (void)state;
    side_open(&far, "mlx5_1");
    side_open(&near, "mlx5_0");
    side_open(&other, "mlx5_0");
    side_connect(&far, &near);
    side_connect(&near, &far);
    assert_int_equal(side_write(&near, &far), IBV_WC_SUCCESS);
    memset(far.memory, 0, sizeof(far.memory));
    near.memory[0] = 7;
    set_fault("rail1=unplugged");
    await_fatal(far.context);
    assert_int_equal(side_write(&near, &far), IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(far.memory[256], 0);
    /* What a program still posts to it goes nowhere, and completes never. */
    struct ibv_sge sge = {(uintptr_t)far.memory, 8, far.region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    struct ibv_wc wc;
    wr.wr.rdma.remote_addr = (uintptr_t)&near.memory[256];
    wr.wr.rdma.rkey = near.region->rkey;
    assert_int_equal(ibv_post_send(far.qp, &wr, &bad), 0);
    assert_int_equal(ibv_poll_cq(far.cq, 1, &wc), 0);
    side_close(&near);

    side_open(&near, "mlx5_0");
    side_connect(&other, &near);
    side_connect(&near, &other);
    assert_int_equal(side_write(&near, &other), IBV_WC_SUCCESS);
    assert_int_equal(ibv_poll_cq(far.cq, 1, &wc), 0);
    side_close(&near);
    side_close(&other);
    side_close(&far);
}

/* A context of before stays dead, whatever is plugged in later. */
static void test_a_context_of_before_stays_dead(void **state)
{
    struct side before, after;
    (void)state;
    side_open(&before, "mlx5_1");
    set_fault("rail1=unplugged");
    await_fatal(before.context);
    set_fault("none");
    side_open(&after, "mlx5_1");
    assert_null(ibv_alloc_pd(before.context));
    side_close(&before);
    side_close(&after);
}

static void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
                         struct rdma_cm_id **id)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    assert_int_equal(event->event, type);
    *id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

static struct sockaddr_in address_of(const char *text, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port};
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
}

static void test_rdma_cm_tells_each_identifier(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel(), *other;
    struct sockaddr_in address = address_of("127.0.0.2", 0);
    struct rdma_cm_id *listener, *client, *seen;
    (void)state;
    assert_int_equal(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
    assert_int_equal(rdma_listen(listener, 1), 0);
    other = rdma_create_event_channel();
    assert_int_equal(rdma_create_id(other, &client, NULL, RDMA_PS_TCP), 0);
    address.sin_port = rdma_get_src_port(listener);
    assert_int_equal(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 1000), 0);
    expect_event(other, RDMA_CM_EVENT_ADDR_RESOLVED, &seen);

    set_fault("rail1=unplugged");
    expect_event(channel, RDMA_CM_EVENT_DEVICE_REMOVAL, &seen);
    assert_ptr_equal(seen, listener);
    expect_event(other, RDMA_CM_EVENT_DEVICE_REMOVAL, &seen);
    assert_ptr_equal(seen, client);
    assert_int_equal(rdma_resolve_route(client, 1000), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(rdma_destroy_id(client), 0);

    assert_int_equal(rdma_create_id(other, &client, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 1000), 0);
    expect_event(other, RDMA_CM_EVENT_ADDR_ERROR, &seen);
    assert_int_equal(rdma_destroy_id(client), 0);
    assert_int_equal(rdma_destroy_id(listener), 0);
    assert_int_equal(rdma_create_id(other, &client, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(client, (struct sockaddr *)&address), -1);
    /* librdmacm keeps the context that it had, unless it has to look while the device is away. */
    rdma_free_devices(rdma_get_devices(NULL));
    set_fault("none");
    assert_int_equal(rdma_bind_addr(client, (struct sockaddr *)&address), 0); /* the port is free */
    assert_int_equal(rdma_destroy_id(client), 0);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plug_in, plug_in)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_program_hears_of_it_and_can_only_destroy),
        TEST(test_it_is_not_there_until_it_is_plugged_in),
        TEST(test_its_peers_find_nobody_and_other_devices_go_on),
        TEST(test_a_context_of_before_stays_dead),
        TEST(test_rdma_cm_tells_each_identifier),
    };
    simnic = argc > 1 ? argv[1] : "simnic";
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("unplug", tests, NULL, NULL);
}

/* device_event_test.c: which events of a device the owner hears of. Runs without RDMA: what the cm thread calls of
 * libibverbs and librdmacm is here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm/internal.h"

static struct ibv_async_event next; /* which the device has as long as its descriptor is readable */
static int acknowledged_fd;

struct rdma_event_channel *rdma_create_event_channel(void)
{
    errno = ENOENT;
    return NULL;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    (void)context;
    *attributes = (struct ibv_device_attr){.max_qp_rd_atom = 4};
    return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    eventfd_t count;
    if (eventfd_read(context->async_fd, &count)) {
        return -1;
    }
    *event = next;
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
    eventfd_write(acknowledged_fd, 1);
}

static struct ibv_context context;
static struct device_nic nic = {.trouble_fd = -1};
static struct cm *cm;

static int set_up(void **state)
{
    struct nic *const nics[] = {&nic.base};
    crpc_error error = {.struct_size = sizeof(error)};
    (void)state;
    context.async_fd = eventfd(0, EFD_NONBLOCK);
    acknowledged_fd = eventfd(0, 0);
    nic.base.rdma_cm = true;
    nic.context = &context;
    return cm_open(nics, 1, &cm, &error) != CRPC_OK;
}

static int tear_down(void **state)
{
    (void)state;
    cm_close(cm);
    close(context.async_fd);
    close(acknowledged_fd);
    return 0;
}

/* Returns when the cm thread has done with the event. */
static void report(enum ibv_event_type type, struct ibv_qp *qp)
{
    eventfd_t count;
    next = (struct ibv_async_event){.event_type = type, .element.qp = qp};
    assert_int_equal(eventfd_write(context.async_fd, 1), 0);
    assert_int_equal(eventfd_read(acknowledged_fd, &count), 0);
    assert_int_equal(count, 1);
}

static void a_queue_pair_that_failed_is_told(void **state)
{
    struct ibv_qp qp = {.qp_num = 17, .qp_context = &qp};
    struct cm_event event;
    (void)state;
    report(IBV_EVENT_QP_ACCESS_ERR, &qp);
    assert_true(cm_event_take(cm, &event));
    assert_int_equal(event.kind, CM_EVENT_QUEUE_PAIR);
    assert_int_equal(event.queue_pair_number, 17);
    assert_int_equal(event.error.status, CRPC_E_PROTOCOL);
}

/* It goes with its TM-SRQ, and the next queue pair can have its number before the owner takes events. */
static void one_that_has_commands_of_tags_is_not(void **state)
{
    static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                                IBV_EVENT_QP_ACCESS_ERR};
    struct ibv_qp qp = {.qp_num = 17};
    struct cm_event event;
    (void)state;
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        report(types[i], &qp);
        assert_false(cm_event_take(cm, &event));
    }
}

/* Whoever destroys it waits for that: device_await_last_wqe. */
static void the_last_receive_of_a_queue_pair_is_noted(void **state)
{
    struct device_queue_pair queue_pair = {.base = {.nic = &nic.base, .peer_number = 18}};
    struct ibv_qp qp = {.qp_num = 17, .qp_context = &queue_pair};
    struct ibv_qp of_commands = {.qp_num = 19};
    struct cm_event event;
    (void)state;
    assert_true(nic.watched);
    report(IBV_EVENT_QP_LAST_WQE_REACHED, &of_commands);
    assert_false(nic.says_last_wqe);
    report(IBV_EVENT_QP_LAST_WQE_REACHED, &qp);
    assert_true(nic.says_last_wqe && queue_pair.last_wqe_reached);
    assert_false(cm_event_take(cm, &event)); /* nobody else wants to know */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_queue_pair_that_failed_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_has_commands_of_tags_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_receive_of_a_queue_pair_is_noted, set_up,
                                        tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

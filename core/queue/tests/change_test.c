/* change_test.c: queues that change while they are in use, and the limit of an SRQ. */
#include <string.h>

#include "pair.h"

static int32_t modify(struct queue *queue, uint32_t mask, uint32_t value)
{
    const struct nic_queue_change change = {.mask = mask,
                                            .not_ready_timer = value,
                                            .access = value,
                                            .retry_timeout = value,
                                            .retry_count = value,
                                            .rnr_tries = value,
                                            .queue_key = value,
                                            .srq_limit = value};
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = queue_modify(queue, &change, &error);
    assert_int_equal(error.status, status);
    return status;
}

static struct queue_info info_of(const struct queue *queue)
{
    struct queue_info info;
    queue_get_info(queue, &info);
    return info;
}

#define CONNECTION                                                                                 \
    (NIC_CHANGE_NOT_READY_TIMER | NIC_CHANGE_RETRY_TIMEOUT | NIC_CHANGE_RETRY_COUNT |              \
     NIC_CHANGE_RNR_TRIES)

/* ---- Connected queues ------------------------------------------------------------------------ */

static void what_the_peer_may_do(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(info_of(pair->peer).access, CRPC_ACCESS_REMOTE_WRITE |
                                                     CRPC_ACCESS_REMOTE_READ |
                                                     CRPC_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(modify(pair->peer, NIC_CHANGE_ACCESS, CRPC_ACCESS_REMOTE_READ), CRPC_OK);
    assert_int_equal(info_of(pair->peer).access, CRPC_ACCESS_REMOTE_READ);
    pair_submit_one(pair, NIC_READ, 1);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_OK);
    pair_submit_one(pair, NIC_WRITE, 2);
    end_wait(&pair->near, 3);
    end_expect_op(&pair->near, 1, handle_of(pair->queue), 2, CRPC_E_ACCESS);
    end_expect_event(&pair->near, 2, handle_of(pair->queue), CRPC_COMPLETION_DISCONNECTED,
                     CRPC_E_ACCESS);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_ACCESS, 0), CRPC_E_DISCONNECTED);
}

static void what_the_device_refuses_stays(void **state)
{
    struct pair *pair = *state;
    const struct queue_info before = info_of(pair->queue);
    assert_int_equal(before.not_ready_timer, NIC_MIN_RNR_TIMER);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_NOT_READY_TIMER, 20), CRPC_OK);
    assert_int_equal(info_of(pair->queue).not_ready_timer, 20);
    assert_int_equal(modify(pair->queue, CONNECTION | NIC_CHANGE_ACCESS, 4), CRPC_E_UNSUPPORTED);
    memory_fabric_set_failures(pair->fabric, MEMORY_FAIL_MODIFY, 1, CRPC_E_SYSTEM);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_NOT_READY_TIMER | NIC_CHANGE_ACCESS, 6),
                     CRPC_E_SYSTEM);
    const struct queue_info after = info_of(pair->queue);
    assert_int_equal(after.not_ready_timer, 20);
    assert_int_equal(after.access, before.access);
    assert_int_equal(after.retry_timeout, before.retry_timeout);
    assert_int_equal(after.retry_count, before.retry_count);
    assert_int_equal(after.rnr_tries, before.rnr_tries);
    submit_writes(pair, 3);
    end_wait(&pair->near, 3);
    assert_int_equal(end_count(&pair->near, CRPC_OK), 3);
}

static void a_queue_that_drains_changes(void **state)
{
    struct pair *pair = *state;
    memory_fabric_stall(pair->queue->link.queue_pair, 20);
    submit_writes(pair, 3);
    assert_int_equal(queue_drain(pair->queue, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_NOT_READY_TIMER, 20), CRPC_OK);
    end_wait(&pair->near, 4);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_NOT_READY_TIMER, 21), CRPC_E_DISCONNECTED);
    assert_int_equal(info_of(pair->queue).not_ready_timer, 20);
}

/* ---- Before ---------------------------------------------------------------------------------- */

static void before_it_is_connected_all_changes(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    uint8_t near_blob[LINK_BLOB_BYTES], far_blob[LINK_BLOB_BYTES];
    crpc_error error = {0};
    pair->queue = end_blob(&pair->near, &options, near_blob);
    pair->peer = end_blob(&pair->far, &options, far_blob);
    assert_int_equal(modify(pair->queue, CONNECTION | NIC_CHANGE_ACCESS, 4), CRPC_OK);
    assert_int_equal(modify(pair->peer, NIC_CHANGE_ACCESS, CRPC_ACCESS_REMOTE_READ), CRPC_OK);
    const struct queue_info info = info_of(pair->queue);
    assert_int_equal(info.not_ready_timer, 4);
    assert_int_equal(info.retry_timeout, 4);
    assert_int_equal(info.retry_count, 4);
    assert_int_equal(info.rnr_tries, 4);
    assert_int_equal(info.access, 4);
    assert_int_equal(pair->queue->link.options.transport.not_ready_timer, 4);
    assert_int_equal(pair->queue->link.options.transport.retry_timeout, 4);
    assert_int_equal(pair->queue->link.options.transport.retry_count, 4);
    assert_int_equal(pair->queue->link.options.transport.rnr_tries, 4);
    pair->near.cm.late = true; /* it is being connected until the cm is asked */
    assert_int_equal(link_join(&pair->queue->link, far_blob, LINK_BLOB_BYTES, &error), CRPC_OK);
    assert_int_equal(modify(pair->queue, NIC_CHANGE_ACCESS, 0), CRPC_E_STATE);
    fake_cm_step_all(&pair->near.cm);
    pair->near.cm.late = false;
    assert_int_equal(link_join(&pair->peer->link, near_blob, LINK_BLOB_BYTES, &error), CRPC_OK);
    end_wait(&pair->near, 1);
    end_wait(&pair->far, 1);
    end_forget(&pair->near);
    pair_submit_one(pair, NIC_READ, 1);
    pair_submit_one(pair, NIC_WRITE, 2);
    end_wait(&pair->near, 3);
    end_expect_op(&pair->near, 0, handle_of(pair->queue), 1, CRPC_OK);
    end_expect_op(&pair->near, 1, handle_of(pair->queue), 2, CRPC_E_ACCESS);
}

static void a_request_does_not_change(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct link_listener *listener;
    struct link *link;
    crpc_error error = {0};
    assert_int_equal(
        link_listener_open(queue_links(pair->far.engine), PAIR_ADDRESS, 4, 0, &listener, &error),
        CRPC_OK);
    assert_int_equal(
        link_connect(queue_links(pair->near.engine), PAIR_ADDRESS, &options, &link, &error),
        CRPC_OK);
    assert_int_equal(modify(queue_of_link(link), NIC_CHANGE_ACCESS, 0), CRPC_E_STATE);
    end_poll(&pair->near, 8);
    end_wait(&pair->far, 1);
    assert_int_equal(pair->far.seen[0].kind, CRPC_COMPLETION_CONNECT_REQUEST);
    pair->peer = handles_get(&pair->far.handles, pair->far.seen[0].endpoint.bits, HANDLE_QUEUE);
    assert_int_equal(modify(pair->peer, NIC_CHANGE_ACCESS, 0), CRPC_E_STATE);
    link_listener_close(listener);
}

/* ---- Queues for datagrams -------------------------------------------------------------------- */

static void a_new_key_shuts_out_the_old(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.kind = NIC_QUEUE_UD;
    options.queue_key = 1;
    pair->queue = end_datagrams(&pair->near, &options);
    pair->peer = end_datagrams(&pair->far, &options);
    struct queue_target *target = pair_target(pair, pair->peer);
    struct nic_target *to = queue_target_nic(target);
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 1);
    int32_t reason;
    assert_int_equal(end_receive(&pair->far, pair->peer, 0, 64, 9), CRPC_OK);
    assert_int_equal(modify(pair->peer, NIC_CHANGE_QUEUE_KEY, 2), CRPC_OK);
    assert_int_equal(info_of(pair->peer).queue_key, 2);
    assert_int_equal(queue_limits(pair->peer)->queue_key, 2); /* that of answers */
    assert_int_equal(
        queue_submit_to(pair->queue, &work, &to, &pair->near.keys.local_key, NULL, 1, &reason), 1);
    queue_submit_end(pair->queue);
    end_wait(&pair->near, 1);
    end_wait(&pair->far, 0);
    queue_target_close(target);
}

/* ---- The limit of an SRQ --------------------------------------------------------------------- */

static void limit(struct queue *srq, uint32_t receives)
{
    assert_int_equal(modify(srq, NIC_CHANGE_SRQ_LIMIT, receives), CRPC_OK);
    assert_int_equal(info_of(srq).srq_limit, receives);
}

/* What core/cm hears from a device. */
static void tell(struct end *end, const struct queue *srq)
{
    if (memory_queue_limit_reached(srq->nic)) {
        fake_cm_srq_limit(&end->cm, handle_of(srq));
    }
}

static struct queue *join_with(struct pair *pair, struct queue *srq, uint32_t receives)
{
    const struct queue_options near = pair_options();
    struct queue_options far = pair_options();
    far.receives = far.receive_pieces = 0;
    far.receive_queue = srq;
    pair_join(pair, &near, &far);
    for (uint32_t i = 0; i < receives; i++) {
        assert_int_equal(end_receive(&pair->far, srq, 64 * i, 64, i), CRPC_OK);
    }
    return srq;
}

static struct queue *join_with_srq(struct pair *pair, uint32_t receives)
{
    return join_with(pair, end_srq(&pair->far, receives), receives);
}

static struct queue *join_with_tm_srq(struct pair *pair, uint32_t receives)
{
    const struct queue_options options = {.kind = NIC_QUEUE_TM_SRQ,
                                          .user_data = 88,
                                          .receives = receives,
                                          .receive_pieces = 2,
                                          .tags = 2};
    struct queue *srq;
    crpc_error error = {0};
    assert_int_equal(queue_open(pair->far.engine, &options, &srq, &error), CRPC_OK);
    return join_with(pair, srq, receives);
}

static void send_some(struct pair *pair, const struct queue *srq, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pair_submit_one(pair, NIC_SEND, i);
    }
    end_wait(&pair->near, count);
    end_forget(&pair->near);
    tell(&pair->far, srq);
}

static void expect_limit(const struct end *end, uint32_t index, const struct queue *srq)
{
    end_expect_event(end, index, handle_of(srq), CRPC_COMPLETION_SRQ_LIMIT, CRPC_OK);
    assert_int_equal(end->seen[index].user_data, 88);
    assert_int_equal(end->seen[index].endpoint_user_data, 88);
}

static void a_limit_is_told_once(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = join_with_srq(pair, 16);
    limit(srq, 12);
    send_some(pair, srq, 4);
    end_wait(&pair->far, 4);
    end_forget(&pair->far);
    send_some(pair, srq, 1);
    end_wait(&pair->far, 2);
    expect_limit(&pair->far, 0, srq);
    assert_int_equal(info_of(srq).srq_limit, 12);
    end_forget(&pair->far);
    send_some(pair, srq, 1);
    end_wait(&pair->far, 1);
    end_forget(&pair->far);
    limit(srq, 16); /* there are fewer already: the next message tells */
    send_some(pair, srq, 1);
    end_wait(&pair->far, 2);
    expect_limit(&pair->far, 0, srq);
}

/* The ordinary receives count, and not its buffers with tags. */
static void a_tm_srq_has_a_limit(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = join_with_tm_srq(pair, 4);
    limit(srq, 3);
    send_some(pair, srq, 1); /* without a tag; 3 are left */
    end_wait(&pair->far, 1);
    end_forget(&pair->far);
    send_some(pair, srq, 1);
    end_wait(&pair->far, 2);
    expect_limit(&pair->far, 0, srq);
    assert_int_equal(info_of(srq).srq_limit, 3);
    end_forget(&pair->far);
    limit(srq, 4);
    limit(srq, 0);
    send_some(pair, srq, 1);
    end_wait(&pair->far, 1);
}

/* What the device has told, and nobody has polled. */
static void a_limit_of_0_is_quiet(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = join_with_srq(pair, 4);
    limit(srq, 4);
    send_some(pair, srq, 1);
    limit(srq, 0);
    end_wait(&pair->far, 1);
    end_forget(&pair->far);
    limit(srq, 4);
    send_some(pair, srq, 1);
    assert_int_equal(end_poll(&pair->far, 0), 0); /* it is noted, and there is no room to tell */
    limit(srq, 0);
    end_wait(&pair->far, 1);
}

static void a_limit_of_an_srq_that_is_gone(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = join_with_srq(pair, 4);
    const uint64_t handle = handle_of(srq);
    limit(srq, 4);
    send_some(pair, srq, 1);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK);
    end_wait(&pair->far, 4);
    assert_int_equal(pair->far.seen[0].kind, NIC_COMPLETION_WORK);
    fake_cm_srq_limit(&pair->far.cm, handle);
    fake_cm_srq_limit(&pair->far.cm, handle ^ 1);
    fake_cm_srq_limit(&pair->far.cm, 0);
    end_wait(&pair->far, 4);
}

static void a_lost_device_changes_nothing(void **state)
{
    struct pair *pair = *state;
    struct queue *srq = end_srq(&pair->far, 4);
    limit(srq, 2);
    fake_cm_device_event(&pair->far.cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
    fake_cm_srq_limit(&pair->far.cm, handle_of(srq));
    end_wait(&pair->far, 1);
    end_expect_event(&pair->far, 0, handle_of(srq), CRPC_COMPLETION_DISCONNECTED, CRPC_E_NO_DEVICE);
    assert_int_equal(modify(srq, NIC_CHANGE_SRQ_LIMIT, 1), CRPC_E_DISCONNECTED);
}

#define CONNECTED(name) cmocka_unit_test_setup_teardown(name, pair_connected, pair_close)
#define OPEN(name) cmocka_unit_test_setup_teardown(name, pair_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED(what_the_peer_may_do),
        CONNECTED(what_the_device_refuses_stays),
        CONNECTED(a_queue_that_drains_changes),
        OPEN(before_it_is_connected_all_changes),
        OPEN(a_request_does_not_change),
        OPEN(a_new_key_shuts_out_the_old),
        OPEN(a_limit_is_told_once),
        OPEN(a_tm_srq_has_a_limit),
        OPEN(a_limit_of_0_is_quiet),
        OPEN(a_limit_of_an_srq_that_is_gone),
        OPEN(a_lost_device_changes_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

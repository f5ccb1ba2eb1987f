/* connect_test.c: how queues connect, or do not. */
#include <string.h>

#include "base/checksum.h"
#include "pair.h"

/* ---- Connecting ------------------------------------------------------------------------------ */

static void both_sides_of_rdma_cm_get_the_others_private_data(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = pair_options(), far = pair_options();
    struct queue_info info;
    near.private_bytes = 5;
    memcpy(near.private_data, "hello", 5);
    far.private_bytes = QUEUE_ACCEPT_BYTES_MAX;
    memset(far.private_data, 'x', sizeof(far.private_data));
    pair_connect(pair, &near, &far);
    queue_get_info(pair->peer, &info);
    assert_int_equal(info.private_bytes, 5);
    assert_memory_equal(info.private_data, "hello", 5);
    queue_get_info(pair->queue, &info);
    assert_int_equal(info.private_bytes, QUEUE_ACCEPT_BYTES_MAX);
    assert_memory_equal(info.private_data, far.private_data, QUEUE_ACCEPT_BYTES_MAX);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.number, info.address.queue_pair_number);
    assert_string_equal(info.peer_address, "192.0.2.2:2");
    submit_writes(pair, 3);
    end_wait(&pair->near, 3);
}

static struct queue *ask(struct pair *pair, struct link_listener **listener)
{
    const struct queue_options options = pair_options();
    struct link *link;
    assert_int_equal(
        link_listener_open(queue_links(pair->far.engine), PAIR_ADDRESS, 4, 9, listener, NULL),
        CRPC_OK);
    assert_int_equal(
        link_connect(queue_links(pair->near.engine), PAIR_ADDRESS, &options, &link, NULL), CRPC_OK);
    pair->queue = queue_of_link(link);
    fake_cm_step_all(&pair->near.cm);
    end_poll(&pair->near, 8);
    fake_cm_step_all(&pair->far.cm);
    end_wait(&pair->far, 1);
    assert_int_equal(pair->far.seen[0].kind, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(pair->far.seen[0].user_data, 9);
    pair->peer = handles_get(&pair->far.handles, pair->far.seen[0].endpoint.bits, HANDLE_QUEUE);
    end_forget(&pair->far);
    return pair->peer;
}

static void a_rejection_brings_its_private_data(void **state)
{
    struct pair *pair = *state;
    struct link_listener *listener;
    struct queue_info info;
    struct queue *peer = ask(pair, &listener);
    uint64_t handle = handle_of(peer);
    assert_int_equal(queue_reject(peer, "not now", 7), CRPC_OK);
    assert_null(handles_get(&pair->far.handles, handle, HANDLE_QUEUE));
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED,
                     CRPC_E_REFUSED);
    queue_get_info(pair->queue, &info);
    assert_int_equal(info.private_bytes, 7);
    assert_memory_equal(info.private_data, "not now", 7);
    assert_int_equal(queue_reject(pair->queue, NULL, 0), CRPC_E_STATE);
    link_listener_close(listener);
}

/* It is no queue yet: neither ops nor options. */
static void a_request_takes_no_ops(void **state)
{
    struct pair *pair = *state;
    struct link_listener *listener;
    struct queue_info info;
    struct nic_queue_stats stats;
    struct queue *peer = ask(pair, &listener);
    const struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    assert_int_equal(end_submit(&pair->far, peer, &work), CRPC_E_STATE);
    assert_int_equal(end_receive(&pair->far, peer, 0, 8, 1), CRPC_E_STATE);
    assert_int_equal(queue_drain(peer, 0), CRPC_E_STATE);
    assert_int_equal(queue_fail(peer), CRPC_E_STATE);
    queue_get_info(peer, &info);
    queue_get_stats(peer, &stats);
    assert_int_equal(info.kind, NIC_QUEUE_RC);
    assert_int_equal(info.number, 0);
    assert_int_equal(queue_close(peer), CRPC_OK);
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED,
                     CRPC_E_REFUSED);
    link_listener_close(listener);
}

/* rdma_cm says last that the connection is there. */
static void connected_comes_before_the_peers_first_message(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct link_listener *listener;
    pair->far.cm.late = true;
    struct queue *peer = ask(pair, &listener);
    assert_int_equal(link_accept(&peer->link, &options, NULL), CRPC_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(end_receive(&pair->far, peer, 64 * i, 8, i), CRPC_OK);
    }
    end_wait(&pair->near, 1);
    assert_int_equal(fake_cm_waiting(&pair->far.cm), 1); /* ESTABLISHED */
    const struct nic_work work = pair_work(pair, NIC_SEND, 0, 5);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(end_submit(&pair->near, pair->queue, &work), CRPC_OK);
    }
    assert_int_equal(end_poll(&pair->far, 1), 1);
    end_expect_event(&pair->far, 0, handle_of(peer), CRPC_COMPLETION_CONNECTED, CRPC_OK);
    assert_true(queue_something_waits(pair->far.engine));
    assert_int_equal(end_poll(&pair->far, 2), 2);
    fake_cm_step_all(&pair->far.cm);
    end_wait(&pair->far, 4);
    for (uint32_t i = 0; i < 3; i++) {
        end_expect_op(&pair->far, 1 + i, handle_of(peer), i, CRPC_OK);
    }
    link_listener_close(listener);
}

static void nothing_is_sent_before_a_queue_is_connected(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    uint8_t blob[LINK_BLOB_BYTES];
    pair->queue = end_blob(&pair->near, &options, blob);
    const struct nic_work work = pair_work(pair, NIC_WRITE, 0, 1);
    assert_int_equal(end_submit(&pair->near, pair->queue, &work), CRPC_E_STATE);
    receive_near(pair, 2);
    end_wait(&pair->near, 0);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 2);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 2);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
}

static void queues_are_joined_by_address(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    uint8_t blob[LINK_BLOB_BYTES];
    struct queue_info near, far;
    crpc_error error = {0};
    pair->queue = end_blob(&pair->near, &options, blob);
    pair->peer = end_blob(&pair->far, &options, blob);
    queue_get_info(pair->queue, &near);
    queue_get_info(pair->peer, &far);
    struct nic_address bad = far.address;
    bad.queue_pair_number = 1 << 24;
    assert_int_equal(queue_join_address(pair->queue, &bad, &error), CRPC_E_PROTOCOL);
    bad = far.address;
    bad.link = far.address.link == CRPC_LINK_ETHERNET ? CRPC_LINK_INFINIBAND : CRPC_LINK_ETHERNET;
    assert_int_equal(queue_join_address(pair->queue, &bad, &error), CRPC_E_UNREACHABLE);
    assert_int_equal(queue_join_address(pair->queue, &far.address, &error), CRPC_OK);
    assert_int_equal(queue_join_address(pair->queue, &far.address, &error), CRPC_E_STATE);
    assert_int_equal(queue_join_address(pair->peer, &near.address, &error), CRPC_OK);
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED, CRPC_OK);
    end_forget(&pair->near);
    submit_writes(pair, 2);
    end_wait(&pair->near, 2);
}

/* A link of another service has the same form. */
static void a_blob_of_an_endpoint_is_refused(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    uint8_t near[LINK_BLOB_BYTES], far[LINK_BLOB_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    struct link_blob blob;
    pair->queue = end_blob(&pair->near, &options, near);
    end_blob(&pair->far, &options, far);
    memcpy(&blob, far, sizeof(blob));
    blob.hello.service = LINK_SERVICE_CALLS;
    blob.checksum = checksum_of(&blob, offsetof(struct link_blob, checksum));
    assert_int_equal(link_join(&pair->queue->link, &blob, sizeof(blob), &error), CRPC_E_PROTOCOL);
    assert_non_null(strstr(error.message, "calls, and this side queues"));
    memcpy(&blob, far, sizeof(blob));
    blob.hello.body[3] = 1;
    blob.checksum = checksum_of(&blob, offsetof(struct link_blob, checksum));
    assert_int_equal(link_join(&pair->queue->link, &blob, sizeof(blob), &error), CRPC_E_PROTOCOL);
    assert_int_equal(link_join(&pair->queue->link, near, sizeof(near), &error), CRPC_E_INVALID);
    assert_int_equal(link_join(&pair->queue->link, far, sizeof(far), &error), CRPC_OK);
}

static void what_was_posted_to_a_queue_that_never_connects_is_flushed(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct link *link;
    assert_int_equal(
        link_connect(queue_links(pair->near.engine), PAIR_ADDRESS, &options, &link, NULL), CRPC_OK);
    pair->queue = queue_of_link(link);
    receive_near(pair, 3);
    end_wait(&pair->near, 4); /* nobody listens */
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED,
                     CRPC_E_REFUSED);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 3);
    assert_int_equal(end_receive(&pair->near, pair->queue, 0, 8, 1), CRPC_E_DISCONNECTED);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 4);
}

/* Its device can fail it as soon as it is made. */
static void a_queue_that_fails_before_it_is_joined_cannot_be_joined(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    uint8_t near[LINK_BLOB_BYTES], far[LINK_BLOB_BYTES];
    end_blob(&pair->far, &options, far);
    for (uint32_t way = 0; way < 2; way++) {
        pair->queue = end_blob(&pair->near, &options, near);
        receive_near(pair, 2);
        if (way == 0) {
            memory_fabric_kill(pair->queue->link.queue_pair);
        } else {
            fake_cm_device_event(&pair->near.cm, CM_EVENT_QUEUE_PAIR, pair->queue->number,
                                 CRPC_E_DISCONNECTED);
        }
        end_wait(&pair->near, 3);
        end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED,
                         CRPC_E_DISCONNECTED);
        assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 2);
        assert_int_equal(link_join(&pair->queue->link, far, sizeof(far), NULL), CRPC_E_STATE);
        end_forget(&pair->near);
    }
}

static void there_are_no_more_queues_than_were_asked_for(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct queue *queues[8];
    struct link *link;
    uint8_t blob[LINK_BLOB_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    for (uint32_t i = 0; i < 8; i++) {
        queues[i] = end_blob(&pair->near, &options, blob);
    }
    assert_int_equal(link_blob(queue_links(pair->near.engine), &options, &link, blob, &error),
                     CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "queues_max of 8"));
    assert_int_equal(queue_close(queues[3]), CRPC_OK);
    end_blob(&pair->near, &options, blob);
}

/* As if it had never been asked for. */
static void a_queue_that_cannot_be_made_leaves_nothing_behind(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct queue_options shared = options;
    struct link_listener *listener;
    struct queue_info info;
    struct queue *peer = ask(pair, &listener);
    crpc_error error = {0};
    struct queue *srq = end_srq(&pair->far, 4);
    shared.receives = 0;
    shared.receive_queue = srq;
    memory_fabric_set_failures(pair->fabric, MEMORY_FAIL_CREATE, 1, CRPC_E_NO_RESOURCE);
    assert_int_equal(link_accept(&peer->link, &shared, &error), CRPC_E_NO_RESOURCE);
    memory_fabric_set_failures(pair->fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_SYSTEM);
    assert_int_equal(link_accept(&peer->link, &shared, &error), CRPC_E_SYSTEM);
    assert_int_equal(queue_engine_queues(pair->far.engine), 1);
    queue_get_info(srq, &info);
    assert_int_equal(info.users, 0);
    assert_int_equal(end_receive(&pair->far, peer, 0, 8, 1), CRPC_E_STATE);
    assert_int_equal(link_accept(&peer->link, &shared, &error), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_E_BUSY);
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED, CRPC_OK);
    link_listener_close(listener);
}

/* Where no device has rdma_cm: what is slow is done at once. */
static void blobs_connect_without_rdma_cm(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    struct link *link;
    crpc_error error = {.struct_size = sizeof(error)};
    pair->near.engine->links.cm = NULL;
    pair_join(pair, &options, &options);
    submit_writes(pair, 2);
    end_wait(&pair->near, 2);
    assert_int_equal(
        link_connect(queue_links(pair->near.engine), PAIR_ADDRESS, &options, &link, &error),
        CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "crpc_queue_blob"));
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
}

/* ---- While a task connects ------------------------------------------------------------------- */

static void begin_late_join(struct pair *pair, const struct queue_options *options)
{
    uint8_t near[LINK_BLOB_BYTES], far[LINK_BLOB_BYTES];
    pair->near.cm.late = true;
    pair->queue = end_blob(&pair->near, options, near);
    pair->peer = end_blob(&pair->far, options, far);
    assert_int_equal(link_join(&pair->queue->link, far, sizeof(far), NULL), CRPC_OK);
    assert_int_equal(fake_cm_waiting(&pair->near.cm), 1);
}

static void a_queue_that_is_closed_while_it_is_connected_ends_with_that(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    begin_late_join(pair, &options);
    pair->near.cm.begun = true;
    receive_near(pair, 2);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 0);
    assert_false(queue_something_waits(pair->near.engine)); /* nobody spins meanwhile */
    fake_cm_step_all(&pair->near.cm);
    end_wait(&pair->near, 2);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 2);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
}

static void a_queue_that_is_closed_before_it_is_its_turn_to_be_connected_ends_at_once(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    begin_late_join(pair, &options);
    receive_near(pair, 2);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    end_wait(&pair->near, 2);
    assert_int_equal(end_count(&pair->near, CRPC_E_CLOSED), 2);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
}

static void a_queue_that_times_out_while_it_is_connected_is_flushed_then(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    begin_late_join(pair, &options);
    receive_near(pair, 2);
    pair->clock_ns += 2000000000;
    end_wait(&pair->near, 1);
    end_expect_event(&pair->near, 0, handle_of(pair->queue), CRPC_COMPLETION_CONNECTED,
                     CRPC_E_TIMEOUT);
    fake_cm_step_all(&pair->near.cm);
    end_wait(&pair->near, 3);
    assert_int_equal(end_count(&pair->near, CRPC_E_FLUSHED), 2);
}

/* The SRQ waits for the queue pair that may still use it. */
static void an_srq_can_be_closed_behind_a_queue_that_is_connected(void **state)
{
    struct pair *pair = *state;
    struct queue_options options = pair_options();
    options.receives = 0;
    struct queue *srq = end_srq(&pair->near, 4);
    struct queue_options far = options;
    uint8_t near_blob[LINK_BLOB_BYTES], far_blob[LINK_BLOB_BYTES];
    options.receive_queue = srq;
    pair->near.cm.late = pair->near.cm.begun = true;
    pair->queue = end_blob(&pair->near, &options, near_blob);
    end_blob(&pair->far, &far, far_blob);
    assert_int_equal(link_join(&pair->queue->link, far_blob, sizeof(far_blob), NULL), CRPC_OK);
    assert_int_equal(end_receive(&pair->near, srq, 0, 8, 1), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_E_BUSY);
    assert_int_equal(queue_close(pair->queue), CRPC_OK);
    assert_int_equal(queue_close(srq), CRPC_OK);
    end_wait(&pair->near, 0);
    fake_cm_step_all(&pair->near.cm);
    end_wait(&pair->near, 1);
    end_expect_op(&pair->near, 0, pair->near.seen[0].endpoint.bits, 1, CRPC_E_CLOSED);
    assert_int_equal(queue_engine_queues(pair->near.engine), 0);
}

static void an_engine_can_end_while_a_queue_is_connected(void **state)
{
    struct pair *pair = *state;
    const struct queue_options options = pair_options();
    begin_late_join(pair, &options);
    receive_near(pair, 2);
}

int main(void)
{
#define OPEN(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)
    const struct CMUnitTest tests[] = {
        OPEN(both_sides_of_rdma_cm_get_the_others_private_data),
        OPEN(a_rejection_brings_its_private_data),
        OPEN(a_request_takes_no_ops),
        OPEN(connected_comes_before_the_peers_first_message),
        OPEN(nothing_is_sent_before_a_queue_is_connected),
        OPEN(queues_are_joined_by_address),
        OPEN(a_blob_of_an_endpoint_is_refused),
        OPEN(what_was_posted_to_a_queue_that_never_connects_is_flushed),
        OPEN(a_queue_that_fails_before_it_is_joined_cannot_be_joined),
        OPEN(there_are_no_more_queues_than_were_asked_for),
        OPEN(a_queue_that_cannot_be_made_leaves_nothing_behind),
        OPEN(blobs_connect_without_rdma_cm),
        OPEN(a_queue_that_is_closed_while_it_is_connected_ends_with_that),
        OPEN(a_queue_that_is_closed_before_it_is_its_turn_to_be_connected_ends_at_once),
        OPEN(a_queue_that_times_out_while_it_is_connected_is_flushed_then),
        OPEN(an_srq_can_be_closed_behind_a_queue_that_is_connected),
        OPEN(an_engine_can_end_while_a_queue_is_connected),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

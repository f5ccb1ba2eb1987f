/* tags_test.c: TM-SRQs: who is told what, and what may come at the same time. */
#include <endian.h>
#include <string.h>

#include "pair.h"

#define HEADER NIC_TAG_HEADER_BYTES
#define ANY UINT64_MAX
#define TAGS 4u
#define SRQ_USER_DATA 88u
#define EAGER 3

struct world {
    struct pair *pair;
    struct queue *srq; /* of far */
};

static struct world world;

static struct queue *open_srq(struct end *end)
{
    const struct queue_options options = {.kind = NIC_QUEUE_TM_SRQ,
                                          .user_data = SRQ_USER_DATA,
                                          .receives = 16,
                                          .receive_pieces = 2,
                                          .tags = TAGS};
    struct queue *queue;
    crpc_error error = {0};
    assert_int_equal(queue_open(end->engine, &options, &queue, &error), CRPC_OK);
    return queue;
}

static int tags_open(void **state)
{
    struct queue_options near = pair_options(), far = pair_options();
    pair_open(state);
    world.pair = *state;
    world.srq = open_srq(&world.pair->far);
    far.receives = far.receive_pieces = 0;
    far.receive_queue = world.srq;
    pair_join(world.pair, &near, &far);
    return 0;
}

static int32_t submit_to(struct queue *srq, uint8_t opcode, uint64_t user_data, uint64_t tag,
                         uint64_t operand, uint32_t bytes)
{
    struct end *far = &world.pair->far;
    const struct nic_work work = {.opcode = opcode,
                                  .user_data = user_data,
                                  .address =
                                      bytes ? (uint64_t)(uintptr_t)far->memory + user_data * 64 : 0,
                                  .bytes = bytes,
                                  .remote_address = tag,
                                  .operand = operand};
    int32_t reason = CRPC_OK;
    queue_tag(srq, &work, &far->keys.local_key, 1, &reason);
    queue_submit_end(srq);
    return reason;
}

static int32_t submit(uint8_t opcode, uint64_t user_data, uint64_t tag, uint64_t operand,
                      uint32_t bytes)
{
    return submit_to(world.srq, opcode, user_data, tag, operand, bytes);
}

static void add(uint64_t user_data, uint64_t tag)
{
    assert_int_equal(submit(NIC_TAG_ADD, user_data, tag, ANY, 48), CRPC_OK);
}

static void run(uint8_t opcode, uint64_t user_data, uint64_t operand)
{
    assert_int_equal(submit(opcode, user_data, 0, operand, 0), CRPC_OK);
}

static void send_message(uint64_t tag, uint32_t bytes)
{
    struct pair *pair = world.pair;
    struct nic_work work = pair_work(pair, NIC_SEND, 0, tag);
    const uint64_t order = htobe64(tag);
    memset(pair->near.memory, 0, HEADER);
    pair->near.memory[0] = EAGER;
    memcpy(pair->near.memory + 8, &order, sizeof(order));
    work.bytes = HEADER + bytes;
    pair_submit(pair, &work, 1);
}

static const crpc_completion *expect_far(uint32_t index, const struct queue *queue,
                                         uint64_t user_data, int32_t status)
{
    return end_expect_op(&world.pair->far, index, handle_of(queue), user_data, status);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void a_message_goes_to_its_tag(void **state)
{
    struct pair *pair = *state;
    struct queue_info info;
    add(1, 5);
    add(2, 6);
    queue_get_info(world.srq, &info);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.tags, TAGS);
    assert_int_equal(info.tags_open, 2);
    send_message(6, 8);
    end_wait(&pair->far, 1);
    const crpc_completion *done = expect_far(0, pair->peer, 2, CRPC_OK);
    assert_int_equal(done->method, NIC_TAG_ADD);
    assert_int_equal(done->token, 6);
    assert_memory_equal(pair->far.memory + 128, pair->near.memory + HEADER, 8);
    assert_false(queue_something_waits(pair->far.engine));
}

/* The engine itself looks, when somebody is about to sleep. */
static void what_is_kept_was_not_looked_at(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(end_receive(&pair->far, world.srq, 512, 64, 50), CRPC_OK);
    assert_int_equal(end_receive(&pair->far, world.srq, 512, 64, 51), CRPC_OK);
    send_message(7, 8);
    queue_progress(pair->far.engine);
    assert_true(queue_something_waits(pair->far.engine));
    run(NIC_TAG_SYNC, 60, 0);
    add(1, 5);
    send_message(5, 8);
    end_wait(&pair->far, 3);
    expect_far(0, pair->peer, 50, CRPC_OK);
    assert_int_equal(world.srq->nic->tags->seen, 2);
    assert_int_equal(world.srq->nic->tags->told, 0);
    end_forget(&pair->far);
    run(NIC_TAG_SYNC, 61, 0);
    end_wait(&pair->far, 1);
    assert_int_equal(world.srq->nic->tags->told, 2);
    send_message(5, 8);
    end_wait(&pair->far, 2);
    expect_far(1, pair->peer, 1, CRPC_OK);
}

/* Also if its queue was closed: a message for one TM-SRQ says nothing of another. */
static void what_is_kept_concerns_its_own_srq(void **state)
{
    struct pair *pair = *state;
    struct queue_options near = pair_options(), far = pair_options();
    struct queue *other = open_srq(&pair->far);
    assert_int_equal(end_receive(&pair->far, world.srq, 512, 64, 50), CRPC_OK);
    send_message(7, 8);
    end_wait(&pair->far, 1);
    end_wait(&pair->near, 1);
    end_forget(&pair->far);
    end_forget(&pair->near);
    far.receives = far.receive_pieces = 0;
    far.receive_queue = other;
    pair_join(pair, &near, &far);
    assert_int_equal(end_receive(&pair->far, other, 512, 64, 51), CRPC_OK);
    send_message(7, 8);
    queue_progress(pair->far.engine);
    assert_true(queue_something_waits(pair->far.engine));
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    run(NIC_TAG_SYNC, 60, 0);
    assert_int_equal(submit_to(other, NIC_TAG_SYNC, 61, 0, 0, 0), CRPC_OK);
    assert_int_equal(world.srq->nic->tags->seen, 1);
    assert_int_equal(world.srq->nic->tags->told, 1);
    assert_int_equal(other->nic->tags->seen, 1);
    assert_int_equal(other->nic->tags->told, 0);
    end_wait(&pair->far, 3);
    expect_far(0, other, 51, CRPC_OK);
    assert_int_equal(submit_to(other, NIC_TAG_SYNC, 62, 0, 0, 0), CRPC_OK);
    assert_int_equal(other->nic->tags->told, 1);
    end_wait(&pair->far, 4);
}

static void a_removal_that_finds_nothing_ends_no_queue(void **state)
{
    struct pair *pair = *state;
    crpc_error error;
    add(1, 5);
    run(NIC_TAG_REMOVE, 60, 1);
    run(NIC_TAG_REMOVE, 61, 1);
    end_wait(&pair->far, 3);
    expect_far(0, world.srq, 1, CRPC_E_CANCELED);
    expect_far(1, world.srq, 60, CRPC_OK);
    expect_far(2, world.srq, 61, CRPC_E_NOT_FOUND);
    queue_get_error(world.srq, &error);
    assert_int_equal(error.status, CRPC_OK);
    assert_int_equal(world.srq->link.state, CRPC_STATE_CONNECTED);
}

static void room_is_reported_when_a_tag_has_it(void **state)
{
    struct pair *pair = *state;
    for (uint32_t i = 0; i < TAGS; i++) {
        add(i, i);
    }
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_E_AGAIN);
    end_wait(&pair->far, 0);
    run(NIC_TAG_SYNC, 60, 0); /* for which there is room */
    end_wait(&pair->far, 1);
    send_message(2, 8);
    end_wait(&pair->far, 3);
    expect_far(1, pair->peer, 2, CRPC_OK);
    end_expect_event(&pair->far, 2, handle_of(world.srq), CRPC_COMPLETION_ROOM, CRPC_OK);
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_OK);
}

/* A TAG_ADD that waits for a message keeps nobody from hearing that there is room for a command. */
static void room_for_commands_is_reported_while_all_tags_are_open(void **state)
{
    struct pair *pair = *state;
    const uint32_t commands = nic_tags_commands(TAGS);
    for (uint32_t i = 0; i < TAGS; i++) {
        add(i, i);
    }
    for (uint32_t i = TAGS; i < commands; i++) {
        run(NIC_TAG_SYNC, 100 + i, 0);
    }
    assert_int_equal(submit(NIC_TAG_REMOVE, 60, 0, 1, 0), CRPC_E_AGAIN);
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_E_AGAIN);
    end_wait(&pair->far, commands - TAGS + 1);
    end_expect_event(&pair->far, commands - TAGS, handle_of(world.srq), CRPC_COMPLETION_ROOM,
                     CRPC_OK);
    end_forget(&pair->far);
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_E_AGAIN);
    run(NIC_TAG_REMOVE, 60, 1);
    end_wait(&pair->far, 3);
    expect_far(0, world.srq, 1, CRPC_E_CANCELED);
    expect_far(1, world.srq, 60, CRPC_OK);
    end_expect_event(&pair->far, 2, handle_of(world.srq), CRPC_COMPLETION_ROOM, CRPC_OK);
}

static void no_other_queue_takes_tags(void **state)
{
    struct pair *pair = *state;
    const struct nic_work work = {.opcode = NIC_TAG_SYNC};
    const uint32_t key = 0;
    int32_t reason = CRPC_OK;
    struct queue *others[] = {pair->queue, end_srq(&pair->near, 4)};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(queue_tag(others[i], &work, &key, 1, &reason), 0);
        assert_int_equal(reason, CRPC_E_UNSUPPORTED);
    }
}

/* As a driver says it. There is no end by itself: its messages still come. */
static void after_a_failed_command_it_takes_nothing(void **state)
{
    struct pair *pair = *state;
    add(1, 1);
    add(2, 2);
    world.srq->nic->failed = true;
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_E_DISCONNECTED);
    assert_int_equal(submit(NIC_TAG_REMOVE, 60, 0, 1, 0), CRPC_E_DISCONNECTED);
    assert_int_equal(end_receive(&pair->far, world.srq, 512, 64, 50), CRPC_E_DISCONNECTED);
    send_message(2, 8);
    end_wait(&pair->far, 1);
    expect_far(0, pair->peer, 2, CRPC_OK);
    assert_int_equal(world.srq->link.state, CRPC_STATE_CONNECTED);
    const uint64_t handle = handle_of(world.srq);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    assert_int_equal(queue_close(world.srq), CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 1, handle, 1, CRPC_E_CLOSED);
}

static void open_tags_end_with_a_close(void **state)
{
    struct pair *pair = *state;
    add(1, 1);
    add(2, 2);
    assert_int_equal(queue_close(world.srq), CRPC_E_BUSY);
    const uint64_t handle = handle_of(world.srq);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    assert_int_equal(queue_close(world.srq), CRPC_OK);
    end_wait(&pair->far, 2);
    end_expect_op(&pair->far, 0, handle, 1, CRPC_E_CLOSED);
    end_expect_op(&pair->far, 1, handle, 2, CRPC_E_CLOSED);
    assert_int_equal(queue_engine_queues(pair->far.engine), 0);
}

static void open_tags_end_with_the_device(void **state)
{
    struct pair *pair = *state;
    add(1, 1);
    fake_cm_device_event(&pair->far.cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
    uint32_t tags = 0;
    for (uint32_t i = 0; i < 10; i++) {
        end_poll(&pair->far, 8);
    }
    for (uint32_t i = 0; i < pair->far.count; i++) {
        const crpc_completion *done = &pair->far.seen[i];
        tags += done->kind == NIC_COMPLETION_WORK && done->method == NIC_TAG_ADD &&
                done->status == CRPC_E_NO_DEVICE && done->endpoint.bits == handle_of(world.srq);
    }
    assert_int_equal(tags, 1);
    assert_int_equal(submit(NIC_TAG_ADD, 9, 9, ANY, 48), CRPC_E_DISCONNECTED);
}

/* A message that matched, and whose queue is closed before anybody polled. */
static void what_a_closed_queue_has_matched_completes(void **state)
{
    struct pair *pair = *state;
    add(1, 1);
    assert_int_equal(end_receive(&pair->far, world.srq, 512, 64, 50), CRPC_OK);
    send_message(1, 8);
    send_message(9, 8);
    assert_int_equal(queue_close(pair->peer), CRPC_OK);
    end_wait(&pair->far, 2);
    assert_int_equal(end_count(&pair->far, CRPC_E_FLUSHED), 2);
    assert_int_equal(world.srq->nic->tags->open, 0);
    assert_int_equal(world.srq->nic->tags->seen, world.srq->nic->tags->told);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tags_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_goes_to_its_tag),
        TEST(what_is_kept_was_not_looked_at),
        TEST(what_is_kept_concerns_its_own_srq),
        TEST(a_removal_that_finds_nothing_ends_no_queue),
        TEST(room_is_reported_when_a_tag_has_it),
        TEST(room_for_commands_is_reported_while_all_tags_are_open),
        TEST(no_other_queue_takes_tags),
        TEST(after_a_failed_command_it_takes_nothing),
        TEST(open_tags_end_with_a_close),
        TEST(open_tags_end_with_the_device),
        TEST(what_a_closed_queue_has_matched_completes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

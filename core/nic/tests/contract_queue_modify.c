/* contract_queue_modify.c: what every driver does when queues change that are in use
 * (nic_queue_operations.modify). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "tags.h"

#define READ_ALONE CRPC_ACCESS_REMOTE_READ
#define READ_AND_WRITE (CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_WRITE)

static int32_t modify(struct nic_queue *queue, const struct nic_queue_change *change,
                      crpc_error *error)
{
    *error = (crpc_error){.struct_size = sizeof(*error)};
    return queue->nic->operations->queues->modify(queue, change, error);
}

static void must_modify(struct nic_queue *queue, const struct nic_queue_change *change)
{
    crpc_error error;
    int32_t status = modify(queue, change, &error);
    if (status != CRPC_OK) {
        fail_msg("modify: %d: %s", status, error.message);
    }
}

static void allow(struct nic_queue *queue, uint32_t access)
{
    const struct nic_queue_change change = {.mask = NIC_CHANGE_ACCESS, .access = access};
    must_modify(queue, &change);
}

static void do_one(struct queues *queues, uint8_t opcode, int32_t status)
{
    const struct nic_work work = queues_work(queues, opcode, 0, 1);
    const uint32_t before = queues->near.count;
    queues_post(queues, &work, 0, 16);
    queues_ring(queues->sender);
    queues_wait(&queues->near, before + 1);
    assert_int_equal(queues->near.done[before].status, status);
}

/* ---- RC -------------------------------------------------------------------------------------- */

/* Whatever right the memory has, the queue's own counts, too. */
void test_modify_access(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    queues_make(queues, &options, &options);
    do_one(queues, NIC_WRITE, CRPC_OK);
    allow(queues->receiver, READ_ALONE);
    do_one(queues, NIC_READ, CRPC_OK);
    allow(queues->receiver, READ_AND_WRITE);
    do_one(queues, NIC_WRITE, CRPC_OK);
    allow(queues->receiver, READ_ALONE);
    memset(queues->target, 0x5a, 16);
    do_one(queues, NIC_WRITE, -NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(queues->target[0], 0x5a);
}

void test_modify_access_taken(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    queues_make(queues, &options, &options);
    allow(queues->receiver, 0);
    queues_receive(queues->receiver, queues, 1, 1, 64);
    do_one(queues, NIC_SEND, CRPC_OK); /* needs no right */
    do_one(queues, NIC_READ, -NIC_ERROR_REMOTE_ACCESS);
}

void test_modify_access_of_atomics(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    struct nic_work work = queues_work(queues, NIC_FETCH_ADD, 0, 1);
    queues_make(queues, &options, &options);
    allow(queues->receiver, READ_AND_WRITE);
    work.operand = 5;
    memset(queues->target, 0, 8);
    queues_post(queues, &work, 0, 0);
    queues_ring(queues->sender);
    queues_wait(&queues->near, 1);
    assert_int_equal(queues->near.done[0].status, -NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(queues->target[0], 0);
}

void test_modify_access_before(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    queues->sender = queues_create(queues->near.nic, &options);
    queues->receiver = queues_create(queues->far.nic, &options);
    allow(queues->receiver, READ_ALONE);
    queues_connect(queues->sender, queues->receiver);
    do_one(queues, NIC_READ, CRPC_OK);
    do_one(queues, NIC_WRITE, -NIC_ERROR_REMOTE_ACCESS);
}

void test_modify_not_ready_timer(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    const struct nic_queue_change change = {.mask = NIC_CHANGE_NOT_READY_TIMER,
                                            .not_ready_timer = 24};
    queues_make(queues, &options, &options);
    pair_expect_timer(queues->receiver, NIC_MIN_RNR_TIMER);
    must_modify(queues->receiver, &change);
    pair_expect_timer(queues->receiver, 24);
    pair_expect_timer(queues->sender, NIC_MIN_RNR_TIMER);
    do_one(queues, NIC_WRITE, CRPC_OK);
}

/* Devices do not let these change (which is not for us to forbid). Then nothing changes, and the error says
 * what it was about. */
void test_modify_refused(void **state)
{
    static const struct {
        struct nic_queue_change change;
        const char *word;
    } cases[] = {
        {{.mask = NIC_CHANGE_RETRY_TIMEOUT, .retry_timeout = 18}, "retry_timeout"},
        {{.mask = NIC_CHANGE_RETRY_COUNT, .retry_count = 3}, "retry_count"},
        {{.mask = NIC_CHANGE_RNR_TRIES, .rnr_tries = 2}, "not_ready_retry_count"},
        {{.mask = NIC_CHANGE_ACCESS | NIC_CHANGE_RETRY_COUNT | NIC_CHANGE_NOT_READY_TIMER,
          .not_ready_timer = 20,
          .retry_count = 3},
         "not_ready_wait_ns, access, retry_count"},
    };
    struct queues *queues = *state;
    const struct nic_queue_options options = queues_options();
    crpc_error error;
    queues_make(queues, &options, &options);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t status = modify(queues->receiver, &cases[i].change, &error);
        if (status == CRPC_OK) {
            allow(queues->receiver, READ_AND_WRITE);
            continue;
        }
        assert_int_equal(status, CRPC_E_UNSUPPORTED);
        assert_non_null(strstr(error.message, cases[i].word));
        assert_non_null(strstr(error.message, queues->far.nic->device));
        pair_expect_timer(queues->receiver, NIC_MIN_RNR_TIMER);
        do_one(queues, NIC_WRITE, CRPC_OK);
    }
}

/* ---- UD -------------------------------------------------------------------------------------- */

static void send_to(struct queues *queues, struct nic_target *target, uint64_t user_data)
{
    const struct nic_work work = queues_work(queues, NIC_SEND, 0, user_data);
    const struct nic_piece piece = queues_near(queues, 0, 16);
    const uint32_t before = queues->near.count;
    assert_true(queues_post_to(queues->sender, &work, target, &piece, 1));
    queues_ring(queues->sender);
    queues_wait(&queues->near, before + 1);
}

void test_modify_queue_key(void **state)
{
    struct queues *queues = *state;
    struct nic_queue_options options = queues_options();
    const struct nic_queue_change change = {.mask = NIC_CHANGE_QUEUE_KEY, .queue_key = 2};
    options.kind = NIC_QUEUE_UD;
    options.queue_key = 1;
    queues->sender = queues_create(queues->near.nic, &options);
    queues->receiver = queues_create(queues->far.nic, &options);
    struct nic_target *before = queues_target(queues->near.nic, queues->receiver, 1);
    struct nic_target *after = queues_target(queues->near.nic, queues->receiver, 2);
    queues_receive(queues->receiver, queues, 10, 2, 256);
    send_to(queues, before, 1);
    queues_wait(&queues->far, 1);
    must_modify(queues->receiver, &change);
    assert_int_equal(queues->receiver->queue_key, 2);
    send_to(queues, before, 2);
    queues_expect_silence(&queues->far);
    send_to(queues, after, 3);
    queues_wait(&queues->far, 2);
    before->nic->operations->queues->target_destroy(before);
    after->nic->operations->queues->target_destroy(after);
}

/* ---- SRQ ------------------------------------------------------------------------------------- */

static void set_limit(struct nic_queue *srq, uint32_t limit)
{
    const struct nic_queue_change change = {.mask = NIC_CHANGE_SRQ_LIMIT, .srq_limit = limit};
    must_modify(srq, &change);
}

/* Each takes a receive, and is completed. */
static void send_some(struct queues *queues, uint32_t count)
{
    const struct nic_work work = queues_work(queues, NIC_SEND, 0, 7);
    const uint32_t before = queues->far.count;
    for (uint32_t i = 0; i < count; i++) {
        queues_post(queues, &work, 0, 8);
    }
    queues_ring(queues->sender);
    queues_wait(&queues->far, before + count);
    queues_wait(&queues->near, before + count);
}

void test_modify_limit(void **state)
{
    struct queues *queues = *state;
    const struct nic_queue_options near = queues_options();
    const struct nic_queue_options shared = {
        .kind = NIC_QUEUE_SRQ, .handle = 9, .receives = RECEIVES, .receive_pieces = QUEUES_PIECES};
    struct nic_queue *srq = queues_create(queues->far.nic, &shared);
    struct nic_queue_options far = queues_options();
    far.receives = far.receive_pieces = 0;
    far.receive_queue = srq;
    queues_make(queues, &near, &far);
    queues_receive(srq, queues, 0, RECEIVES, 64);
    send_some(queues, 2);
    assert_false(pair_limit_reached(srq)); /* it has none */
    set_limit(srq, 10);
    send_some(queues, 4); /* 10 are left */
    assert_false(pair_limit_reached(srq));
    send_some(queues, 1);
    assert_true(pair_limit_reached(srq));
    send_some(queues, 3);
    assert_false(pair_limit_reached(srq)); /* it is told once */
    queues_receive(srq, queues, 20, 10, 64);
    set_limit(srq, RECEIVES); /* the most that may be asked for */
    send_some(queues, 1);
    assert_true(pair_limit_reached(srq));
    set_limit(srq, 15);
    set_limit(srq, 0);
    send_some(queues, 5);
    assert_false(pair_limit_reached(srq));
    queues_end(queues->receiver);
    queues->receiver = NULL;
    queues_end(srq);
}

/* What matches takes no receive. */
void test_modify_limit_of_tags(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    tags_receive(&tags, RECEIVES);
    tags_add(&tags, 1, 5, ANY, 100);
    tags_add(&tags, 2, 5, ANY, 100);
    set_limit(tags.srq, RECEIVES);
    tags_send_message(&tags, 0, EAGER, 5, 8);
    tags_expect_match(&tags, 1, 0, 5, 8);
    assert_false(pair_limit_reached(tags.srq));
    tags_send_message(&tags, 1, EAGER, 6, 8); /* 15 are left */
    tags_expect_receive(&tags, 0, HEADER + 8, true);
    assert_true(pair_limit_reached(tags.srq));
    tags_send_message(&tags, 0, NO_TAG, 0, 8);
    tags_expect_receive(&tags, 1, HEADER + 8, false);
    assert_false(pair_limit_reached(tags.srq)); /* it is told once */
    set_limit(tags.srq, RECEIVES);
    set_limit(tags.srq, 0);
    tags_send_message(&tags, 0, NO_TAG, 0, 8);
    tags_expect_receive(&tags, 2, HEADER + 8, false);
    assert_false(pair_limit_reached(tags.srq));
    tags_end(&tags);
}

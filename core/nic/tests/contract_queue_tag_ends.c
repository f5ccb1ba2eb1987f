/* contract_queue_tag_ends.c: TM-SRQs: each op completes once, whatever fails. Devices without tags skip all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "tags.h"

/* ---- Errors and ends ------------------------------------------------------------------------- */

/* One queue pair fails, and the tags of others stay. */
static void expect_refused(struct tags *tags, int32_t reason)
{
    struct queues *queues = tags->queues;
    tags_receive(tags, 2);
    queues->far.count = queues->near.count = 0;
    tags_post_message(tags, 0, EAGER, 5, 100);
    queues_wait(&queues->far, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const crpc_completion *done = &queues->far.done[i];
        const bool tag = done->method == NIC_TAG_ADD;
        assert_int_equal(done->status, tag ? -NIC_ERROR_FLUSHED : reason);
        assert_int_equal(done->user_data, tag ? 1 : 1000);
        assert_int_equal(done->endpoint.bits, 100);
        assert_int_equal(done->flags & NIC_DONE_MATCHED, 0);
    }
    queues_wait(&queues->near, 1);
    assert_int_not_equal(queues->near.done[0].status, CRPC_OK);
    assert_true(tags->far[0]->failed && !tags->far[1]->failed && !tags->srq->failed);
    tags_send_message(tags, 1, EAGER, 6, 100);
    tags_expect_match(tags, 2, 1, 6, 100);
    queues_expect_silence(&queues->far);
}

void test_tags_too_long(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    tags_add(&tags, 1, 5, ANY, 99);
    tags_add(&tags, 2, 6, ANY, 100);
    expect_refused(&tags, -NIC_ERROR_LENGTH);
    tags_end(&tags);
}

void test_tags_wrong_key(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    const struct nic_work work = {
        .opcode = NIC_TAG_ADD, .user_data = 1, .remote_address = 5, .operand = ANY};
    struct nic_piece piece = queues_far(tags.queues, 0, 100);
    piece.local_key ^= 0x5500;
    assert_true(tags_command(&tags, &work, &piece));
    tags_settle(&tags);
    tags_add(&tags, 2, 6, ANY, 100);
    expect_refused(&tags, -NIC_ERROR_LOCAL);
    tags_end(&tags);
}

/* With tags open, and commands under way. */
void test_tags_stop(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 10);
    crpc_completion done[3];
    uint32_t seen[5] = {0}, got;
    for (uint32_t i = 0; i < 5; i++) {
        tags_add(&tags, i, i, ANY, 10);
    }
    tags_receive(&tags, 3);
    tags_remove_of(&tags, 3, 3);
    tags_synchronize(&tags, 4);
    for (uint32_t i = 0; i < TAGS_LINKS; i++) {
        queues_end(tags.near[i]);
        queues_end(tags.far[i]);
    }
    tags.srq->nic->operations->queues->stop(tags.srq);
    while ((got = nic_queue_take_ended(tags.srq, done, 3)) > 0) {
        for (uint32_t i = 0; i < got; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            assert_int_equal(done[i].endpoint.bits, 99);
            seen[done[i].method == NIC_TAG_ADD      ? 0
                 : done[i].method == NIC_RECEIVE    ? 1
                 : done[i].method == NIC_TAG_REMOVE ? 2
                 : done[i].method == NIC_TAG_SYNC   ? 3
                                                    : 4]++;
        }
    }
    assert_int_equal(seen[0], 5);
    assert_int_equal(seen[1], 3);
    assert_int_equal(seen[2], 1);
    assert_int_equal(seen[3], 1);
    assert_int_equal(seen[4], 0);
    assert_int_equal(tags.srq->tags->open, 0);
    queues_end(tags.srq);
}

/* A queue is stopped before anybody polled. What its messages have taken completes once, and the counts stay
 * equal. */
void test_tags_link_stop(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 10);
    const struct nic_queue_operations *operations = tags.srq->nic->operations->queues;
    for (uint32_t round = 0; round < 10; round++) {
        crpc_completion done[8];
        uint32_t adds = 0, receives = 0;
        tags_add(&tags, 1, 1, ANY, 100);
        tags_add(&tags, 2, 2, ANY, 10000);
        tags_receive(&tags, 2);
        tags_send_message(&tags, 0, EAGER, 1, 100);
        tags_send_message(&tags, 0, EAGER, 2, 10000);
        tags_send_message(&tags, 0, EAGER, 3, 100);
        tags_send_message(&tags, 0, NO_TAG, 3, 100);
        operations->stop(tags.far[0]);
        uint32_t got = nic_queue_take_ended(tags.srq, done, 8);
        assert_int_equal(got, 4);
        for (uint32_t i = 0; i < got; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            adds += done[i].method == NIC_TAG_ADD;
            receives += done[i].method == NIC_RECEIVE;
        }
        assert_int_equal(adds, 2);
        assert_int_equal(receives, 2);
        tags.queues->far.count = 0;
        queues_expect_silence(&tags.queues->far);
        queues_end(tags.far[0]);
        queues_end(tags.near[0]);
        tags_make_link(&tags, 0);
        tags_add(&tags, 5, 5, ANY, 100); /* it may match: nobody has to say anything */
        tags_send_message(&tags, 1, EAGER, 5, 100);
        tags_expect_match(&tags, 5, 1, 5, 100);
    }
    tags_end(&tags);
}

/* The same in the middle of a message. */
void test_tags_link_stop_within(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    const struct nic_queue_operations *operations = tags.srq->nic->operations->queues;
    for (uint32_t round = 0; round < 30; round++) {
        crpc_completion done[8];
        struct done_list *far = &tags.queues->far;
        tags_add(&tags, 1, 1, ANY, 16000);
        far->count = 0;
        tags_post_message(&tags, 0, EAGER, 1, 16000);
        pair_pass(round * 3);
        operations->stop(tags.far[0]);
        uint32_t got = nic_queue_take_ended(tags.srq, done, 8);
        assert_true(got <= 1);
        if (got == 0) {
            tags_remove_of(&tags, 2, 1);
            tags_expect_command(&tags, NIC_TAG_ADD, 1, -NIC_ERROR_REMOVED);
            tags_expect_command(&tags, NIC_TAG_REMOVE, 2, CRPC_OK);
        }
        assert_int_equal(tags.srq->tags->open, 0);
        queues_end(tags.far[0]);
        queues_end(tags.near[0]);
        tags_make_link(&tags, 0);
        tags_add(&tags, 5, 5, ANY, 100);
        tags_send_message(&tags, 1, EAGER, 5, 100);
        tags_expect_match(&tags, 5, 1, 5, 100);
    }
    tags_end(&tags);
}

/* Nothing is lost while the caller's array has little room. */
void test_tags_small_polls(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 10);
    struct done_list *far = &tags.queues->far;
    tags_receive(&tags, 10);
    for (uint32_t i = 0; i < 10; i++) {
        tags_add(&tags, i, i, ANY, 10);
    }
    for (uint32_t i = 0; i < 5; i++) {
        tags_send_message(&tags, 0, EAGER, i, 10);
        tags_send_message(&tags, 0, EAGER, 100 + i, 10);
    }
    for (uint32_t i = 0; i < 10; i++) {
        tags_remove_of(&tags, 100 + i, i);
    }
    far->count = 0;
    far->capacity = 1;
    queues_wait(far, 10 + 10 + 5);
    uint32_t adds[10] = {0}, removes[10] = {0};
    for (uint32_t i = 0; i < far->count; i++) {
        const crpc_completion *done = &far->done[i];
        if (done->method == NIC_TAG_ADD) {
            adds[done->user_data]++;
            assert_int_equal(done->status, done->user_data < 5 ? CRPC_OK : -NIC_ERROR_REMOVED);
        } else if (done->method == NIC_TAG_REMOVE) {
            removes[done->user_data - 100]++;
            assert_int_equal(done->status, done->user_data < 105 ? -NIC_ERROR_NOT_FOUND : CRPC_OK);
        }
    }
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(adds[i], 1);
        assert_int_equal(removes[i], 1);
    }
    queues_expect_silence(far);
    tags_end(&tags);
}

/* A removal of what a message has matched, while that is known to the library below and not to the program. Then the
 * places are all used again, several times. */
void test_tags_remove_too_late(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            tags_add(&tags, i, i, ANY, 50);
        }
        for (uint32_t i = 0; i < 4; i++) {
            tags_send_message(&tags, i % TAGS_LINKS, EAGER, i, 10 + i);
        }
        uint32_t matched = 0, missed = 0; /* over two links, they come in any order */
        for (uint32_t i = 0; i < 5; i++) {
            if (i == 2) {
                tags_remove_of(&tags, 60, 2);
            }
            const crpc_completion *done = tags_next(&tags);
            const bool add = done->method == NIC_TAG_ADD;
            assert_int_equal(done->status, add ? CRPC_OK : -NIC_ERROR_NOT_FOUND);
            assert_true(add ? done->user_data < 4 : done->user_data == 60);
            matched |= add ? 1u << done->user_data : 0;
            missed += done->method == NIC_TAG_REMOVE;
        }
        assert_int_equal(matched, 0xf);
        assert_int_equal(missed, 1);
    }
    assert_false(tags.srq->failed);
    assert_int_equal(tags.srq->nic->unknown_completions, 0);
    tags_end(&tags);
}

/* One of two TM-SRQs goes with a match and a command that nobody has polled. What the other one has got stays: drivers
 * may have both in one completion queue. */
void test_tags_two(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    const struct nic_queue_operations *operations = tags.srq->nic->operations->queues;
    for (uint32_t round = 0; round < 8; round++) {
        struct tags other;
        crpc_completion done[4];
        tags_make(state, &other, 4);
        tags_add(&tags, 1, 1, ANY, 100);
        tags_add(&other, 2, 1, ANY, 100);
        tags_send_message(&other, 0, EAGER, 1, 50);
        tags_send_message(&tags, 0, EAGER, 1, 60);
        tags_remove_of(&other, 50, 77);
        for (uint32_t i = 0; i < TAGS_LINKS; i++) {
            queues_end(other.near[i]);
            queues_end(other.far[i]);
        }
        assert_int_equal(nic_queue_take_ended(other.srq, done, 4), 1);
        assert_int_equal(done[0].method, NIC_TAG_ADD);
        assert_int_equal(done[0].user_data, 2);
        operations->stop(other.srq);
        assert_int_equal(nic_queue_take_ended(other.srq, done, 4), 1);
        assert_int_equal(done[0].method, NIC_TAG_REMOVE);
        assert_int_equal(done[0].user_data, 50);
        operations->destroy(other.srq);
        tags_expect_match(&tags, 1, 0, 1, 60);
        queues_expect_silence(&tags.queues->far);
    }
    tags_end(&tags);
}

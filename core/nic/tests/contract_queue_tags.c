/* contract_queue_tags.c: TM-SRQs (nic/tags.h): which message goes where, and what commands do. Devices without tags skip
 * all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "tags.h"

/* ---- Messages -------------------------------------------------------------------------------- */

void test_tags_messages(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 20);
    tags_receive(&tags, 3);
    tags_add(&tags, 1, 0x12, 0xff, 100);
    tags_add(&tags, 2, 0x1234, ANY, 100);
    tags_add(&tags, 3, 0x5512, 0xffff, 100);
    tags_add(&tags, 4, 7, ANY, 0);
    assert_int_equal(tags.srq->tags->open, 4);
    tags_send_message(&tags, 0, EAGER, 0x1234, 100);
    tags_expect_match(&tags, 2, 0, 0x1234, 100);
    tags_send_message(&tags, 1, EAGER, 0x5512, 30); /* the older of two that match */
    tags_expect_match(&tags, 1, 1, 0x5512, 30);
    tags_send_message(&tags, 0, EAGER, 0x5512, 1);
    tags_expect_match(&tags, 3, 0, 0x5512, 1);
    tags_send_message(&tags, 1, EAGER, 7, 0);
    tags_expect_match(&tags, 4, 1, 7, 0);
    assert_int_equal(tags.srq->tags->open, 0);
    tags_send_message(&tags, 1, EAGER, 7, 20);
    tags_expect_receive(&tags, 0, HEADER + 20, true);
    tags_send_message(&tags, 1, NO_TAG, 0x1234, 34);
    tags_expect_receive(&tags, 1, HEADER + 34, false);
    tags_send_message(&tags, 0, FINISHED, 0x1234, 16);
    tags_expect_receive(&tags, 2, HEADER + 16, false);
    queues_expect_silence(&tags.queues->far);
    tags_end(&tags);
}

/* Of many packets. */
void test_tags_long_message(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    tags_receive(&tags, 1);
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t bytes = 10000 + i;
        tags_add(&tags, i, i, ANY, bytes);
        tags_send_message(&tags, i % TAGS_LINKS, EAGER, i, bytes);
        tags_expect_match(&tags, i, i % TAGS_LINKS, i, bytes);
    }
    tags_end(&tags);
}

/* A peer that knows nothing of tags, or less than it pretends. */
void test_tags_garbage(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    struct queues *queues = tags.queues;
    tags_add(&tags, 1, 0, 0, 4096); /* whatever has a tag */
    tags_receive(&tags, 10);
    static const struct {
        uint8_t first;
        uint32_t bytes;
    } messages[] = {{EAGER, 15}, {EAGER, 1}, {0, 0}, {0xff, 40}, {4, 16}, {0x80 | EAGER, 100}};
    for (uint32_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        struct nic_work work = queues_work(queues, NIC_SEND, 0, i);
        struct nic_piece piece = queues_near(queues, 0, messages[i].bytes);
        memset(queues->source, (int)i, HEADER);
        queues->source[0] = messages[i].first;
        queues->near.count = 0;
        assert_true(queues_post_pieces(tags.near[0], &work, &piece, messages[i].bytes ? 1 : 0));
        queues_ring(tags.near[0]);
        queues_wait(&queues->near, 1);
        tags_expect_receive(&tags, i, messages[i].bytes, false);
    }
    tags_send_message(&tags, 0, EAGER, 5, 10);
    tags_expect_match(&tags, 1, 0, 5, 10);
    tags_end(&tags);
}

/* A WRITE takes an ordinary receive. */
void test_tags_write(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    tags_add(&tags, 1, 0, 0, 4096);
    tags_receive(&tags, 1);
    struct nic_work work = queues_work(tags.queues, NIC_WRITE_IMMEDIATE, 0, 5);
    struct nic_piece piece = queues_near(tags.queues, 0, 64);
    tags.queues->source[0] = EAGER;
    work.immediate = 77;
    assert_true(queues_post_pieces(tags.near[1], &work, &piece, 1));
    queues_ring(tags.near[1]);
    const crpc_completion *done = tags_next(&tags);
    assert_int_equal(done->method, NIC_RECEIVE);
    assert_int_equal(done->user_data, 1000);
    assert_int_equal(done->token, 64);
    assert_int_equal(done->reply_bytes_max, 77);
    tags_end(&tags);
}

/* What asks for a rendezvous lies in the buffer, with all its headers: the program has to READ. */
void test_tags_rendezvous(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 4);
    tags_receive(&tags, 1);
    tags_add(&tags, 1, 9, ANY, 200);
    tags_send_message(&tags, 0, RENDEZVOUS, 9, 16);
    const crpc_completion *done = tags_next(&tags);
    assert_int_equal(done->method, NIC_TAG_ADD);
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->user_data, 1);
    assert_true(done->flags & NIC_DONE_MATCHED && done->flags & NIC_DONE_RENDEZVOUS);
    assert_int_equal(done->token, 9);
    assert_int_equal(done->payload_bytes, HEADER + 16);
    assert_memory_equal(tags.queues->target + BUFFERS_AT + BUFFER_BYTES, tags.queues->source,
                        HEADER + 16);
    tags_send_message(&tags, 0, RENDEZVOUS, 9,
                      16); /* and the sends of the receiver work as before */
    tags_expect_receive(&tags, 0, HEADER + 16, true);
    struct nic_work work = queues_work(tags.queues, NIC_NOP, NIC_WORK_SIGNAL, 3);
    uint32_t key = 0;
    assert_int_equal(tags.far[0]->nic->operations->queues->post(tags.far[0], &work, &key, NULL, 1),
                     1);
    queues_ring(tags.far[0]);
    assert_int_equal(tags_next(&tags)->status, CRPC_OK);
    tags_end(&tags);
}

/* ---- Commands -------------------------------------------------------------------------------- */

void test_tags_remove(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 8);
    tags_receive(&tags, 4);
    tags_add(&tags, 1, 5, ANY, 100);
    tags_add(&tags, 1, 6, ANY, 100); /* with the same user data: the older one goes first */
    tags_remove_of(&tags, 50, 1);
    tags_expect_command(&tags, NIC_TAG_ADD, 1, -NIC_ERROR_REMOVED);
    tags_expect_command(&tags, NIC_TAG_REMOVE, 50, CRPC_OK);
    tags_send_message(&tags, 0, EAGER, 5, 10);
    tags_expect_receive(&tags, 0, HEADER + 10, true);
    /* Twice at once: once it is there. */
    tags_remove_of(&tags, 51, 1);
    tags_remove_of(&tags, 52, 1);
    tags_expect_command(&tags, NIC_TAG_ADD, 1, -NIC_ERROR_REMOVED);
    tags_expect_command(&tags, NIC_TAG_REMOVE, 51, CRPC_OK);
    tags_expect_command(&tags, NIC_TAG_REMOVE, 52, -NIC_ERROR_NOT_FOUND);
    tags_remove_of(&tags, 53, 12345);
    tags_expect_command(&tags, NIC_TAG_REMOVE, 53, -NIC_ERROR_NOT_FOUND);
    queues_expect_silence(&tags.queues->far);
    assert_false(tags.srq->failed);
    assert_int_equal(tags.srq->tags->open, 0);
    tags_end(&tags);
}

static uint32_t count_of(const struct done_list *list, uint16_t method)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        count += list->done[i].method == method;
    }
    return count;
}

static bool is_there(const struct done_list *list, uint16_t method, int32_t status)
{
    bool found = false;
    for (uint32_t i = 0; i < list->count; i++) {
        found |= list->done[i].method == method && list->done[i].status == status;
    }
    return found;
}

/* A removal that comes too late, and one that does not know whether it does. */
void test_tags_remove_race(void **state)
{
    struct tags tags;
    uint32_t won = 0;
    tags_make(state, &tags, 8);
    struct done_list *far = &tags.queues->far;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t adds = 0, removes = 0, receives = 0;
        bool matched = false, removed = false;
        tags_add(&tags, round, 5, ANY, 100);
        tags_receive(&tags, 1);
        far->count = 0;
        tags.queues->near.count = 0;
        tags_post_message(&tags, 0, EAGER, 5, 10);
        if (round % 3 == 0) {
            queues_wait(&tags.queues->near, 1); /* it has matched */
        } else if (round % 3 == 1) {
            pair_pass(round);
        }
        tags_remove_of(&tags, 500, round);
        queues_wait(&tags.queues->near, 1);
        /* Either matched and not found, or removed and in a receive. */
        for (uint32_t i = 0; i < 100000 && far->count < (removed ? 3 : 2); i++) {
            queues_poll(far);
            pair_pass(10);
            removed = is_there(far, NIC_TAG_REMOVE, CRPC_OK);
        }
        adds = count_of(far, NIC_TAG_ADD);
        removes = count_of(far, NIC_TAG_REMOVE);
        receives = count_of(far, NIC_RECEIVE);
        matched = is_there(far, NIC_TAG_ADD, CRPC_OK);
        queues_expect_silence(far);
        assert_int_equal(adds, 1);
        assert_int_equal(removes, 1);
        assert_int_equal(receives, removed ? 1 : 0);
        assert_int_not_equal(matched, removed);
        assert_true(matched || round % 3 != 0);
        won += removed;
        if (matched) { /* its receive is for the next round */
            tags_send_message(&tags, 0, NO_TAG, 0, 0);
            tags_next(&tags);
        } else {
            tags_synchronize(&tags, 1);
            tags_next(&tags);
        }
    }
    assert_true(won <= 40);
    tags_end(&tags);
}

/* What is added while a message has not been looked at matches nothing. */
void test_tags_synchronization(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 8);
    tags_receive(&tags, 6);
    tags_add(&tags, 1, 1, ANY, 100);
    tags_send_message(&tags, 0, EAGER, 7, 50);
    assert_true(tags_add_of(&tags, 2, 2, ANY, 100));
    queues_ring(tags.srq);
    tags_expect_receive(&tags, 0, HEADER + 50, true);
    tags_send_message(&tags, 0, EAGER, 2, 50); /* added too late */
    tags_expect_receive(&tags, 1, HEADER + 50, true);
    tags_send_message(&tags, 0, EAGER, 1, 50); /* added in time */
    tags_expect_match(&tags, 1, 0, 1, 50);
    tags_add(&tags, 3, 3, ANY, 100); /* nothing has been said yet of what polls gave */
    tags_send_message(&tags, 1, EAGER, 3, 50);
    tags_expect_receive(&tags, 2, HEADER + 50, true);
    tags_synchronize(&tags, 70);
    tags_expect_command(&tags, NIC_TAG_SYNC, 70, CRPC_OK);
    tags_send_message(&tags, 1, EAGER, 3, 50);
    tags_expect_match(&tags, 3, 1, 3, 50);
    tags_send_message(&tags, 1, EAGER, 2, 50);
    tags_expect_match(&tags, 2, 1, 2, 50);
    /* All but the last two. */
    tags_send_message(&tags, 1, EAGER, 9, 1);
    tags_expect_receive(&tags, 3, HEADER + 1, true);
    tags_send_message(&tags, 1, EAGER, 9, 2);
    tags_expect_receive(&tags, 4, HEADER + 2, true);
    const struct nic_work partly = {.opcode = NIC_TAG_SYNC, .user_data = 71, .immediate = 1};
    assert_true(tags_command(&tags, &partly, NULL));
    queues_ring(tags.srq);
    tags_expect_command(&tags, NIC_TAG_SYNC, 71, CRPC_OK);
    tags_add(&tags, 4, 4, ANY, 100);
    tags_send_message(&tags, 1, EAGER, 4, 3);
    tags_expect_receive(&tags, 5, HEADER + 3, true);
    tags_synchronize(&tags, 72);
    tags_expect_command(&tags, NIC_TAG_SYNC, 72, CRPC_OK);
    tags_send_message(&tags, 1, EAGER, 4, 3);
    tags_expect_match(&tags, 4, 1, 4, 3);
    tags_end(&tags);
}

/* A full list, and all counters around. */
void test_tags_room(void **state)
{
    struct tags tags;
    tags_make(state, &tags, 12);
    for (uint32_t round = 0; round < 60; round++) {
        for (uint32_t i = 0; i < 12; i++) {
            assert_true(tags_add_of(&tags, i, round * 16 + i, ANY, 64));
        }
        assert_false(tags_add_of(&tags, 12, 12, ANY, 64));
        assert_false(nic_tags_room(tags.srq, NIC_TAG_ADD));
        assert_true(nic_tags_room(tags.srq, NIC_TAG_REMOVE));
        tags_settle(&tags);
        for (uint32_t k = 0; k < 12; k++) {
            uint32_t i = (k * 5 + round) % 12;
            if ((i + round) % 3) {
                tags_send_message(&tags, i % TAGS_LINKS, EAGER, round * 16 + i, 1 + i);
                tags_expect_match(&tags, i, i % TAGS_LINKS, round * 16 + i, 1 + i);
            } else {
                tags_remove_of(&tags, 50, i);
                tags_expect_command(&tags, NIC_TAG_ADD, i, -NIC_ERROR_REMOVED);
                tags_expect_command(&tags, NIC_TAG_REMOVE, 50, CRPC_OK);
            }
        }
    }
    /* Commands, until there is no room. */
    uint32_t posted = 0;
    const struct nic_work work = {.opcode = NIC_TAG_SYNC};
    while (tags_command(&tags, &work, NULL)) {
        posted++;
    }
    assert_int_equal(posted, nic_tags_commands(12));
    queues_ring(tags.srq);
    tags.queues->far.count = 0;
    queues_wait(&tags.queues->far, posted);
    tags_end(&tags);
}

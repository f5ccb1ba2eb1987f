/* tags.c: see tags.h. */
#include "tags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <endian.h>

void tags_make_link(struct tags *tags, uint32_t i)
{
    struct nic_queue_options near = queues_options();
    struct nic_queue_options far = queues_options();
    near.receives = near.receive_pieces = far.receives = far.receive_pieces = 0;
    far.receive_queue = tags->srq;
    far.handle = 100 + i;
    far.user_data = 200 + i;
    tags->near[i] = queues_create(tags->queues->near.nic, &near);
    tags->far[i] = queues_create(tags->queues->far.nic, &far);
    queues_connect(tags->near[i], tags->far[i]);
}

void tags_make(void **state, struct tags *tags, uint32_t count)
{
    struct queues *queues = *state;
    struct nic_queue_options options = queues_options();
    options.kind = NIC_QUEUE_TM_SRQ;
    options.sends = options.send_pieces = options.inline_bytes = 0;
    options.handle = 99;
    options.user_data = 199;
    options.receives = RECEIVES;
    options.tags = count;
    *tags = (struct tags){.queues = queues, .srq = queues_create(queues->far.nic, &options)};
    assert_null(tags->srq->pair);
    for (uint32_t i = 0; i < TAGS_LINKS; i++) {
        tags_make_link(tags, i);
    }
}

void tags_end(struct tags *tags)
{
    for (uint32_t i = 0; i < TAGS_LINKS; i++) {
        queues_end(tags->near[i]);
        queues_end(tags->far[i]);
    }
    queues_end(tags->srq);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

bool tags_command(struct tags *tags, const struct nic_work *work, const struct nic_piece *piece)
{
    return tags->srq->nic->operations->queues->tag(tags->srq, work, piece);
}

/* A buffer at its own place in the target. */
bool tags_add_of(struct tags *tags, uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t bytes)
{
    const struct nic_work work = {
        .opcode = NIC_TAG_ADD, .user_data = user_data, .remote_address = tag, .operand = mask};
    struct nic_piece piece =
        queues_far(tags->queues, BUFFERS_AT + user_data % 32 * BUFFER_BYTES, bytes);
    return tags_command(tags, &work, bytes > 0 ? &piece : NULL);
}

/* And waits until the device has it. */
void tags_settle(struct tags *tags)
{
    queues_ring(tags->srq);
    uint32_t before = tags->queues->far.count;
    for (uint32_t i = 0; i < 2000 && tags->srq->sends.consumer != tags->srq->sends.producer; i++) {
        pair_pass(1000);
        queues_poll(&tags->queues->far);
    }
    assert_int_equal(tags->srq->sends.consumer, tags->srq->sends.producer);
    assert_int_equal(tags->queues->far.count, before);
}

void tags_add(struct tags *tags, uint64_t user_data, uint64_t tag, uint64_t mask, uint32_t bytes)
{
    assert_true(tags_add_of(tags, user_data, tag, mask, bytes));
    tags_settle(tags);
}

void tags_remove_of(struct tags *tags, uint64_t user_data, uint64_t of)
{
    const struct nic_work work = {.opcode = NIC_TAG_REMOVE, .user_data = user_data, .operand = of};
    assert_true(tags_command(tags, &work, NULL));
    queues_ring(tags->srq);
}

void tags_synchronize(struct tags *tags, uint64_t user_data)
{
    const struct nic_work work = {.opcode = NIC_TAG_SYNC, .user_data = user_data};
    assert_true(tags_command(tags, &work, NULL));
    queues_ring(tags->srq);
}

void tags_receive(struct tags *tags, uint32_t count)
{
    queues_receive(tags->srq, tags->queues, 1000 + tags->next_receive, count, RECEIVE_BYTES);
    tags->next_receive += count;
}

/* Posts a message of a header and so many bytes. What the sender gets is not waited for. */
void tags_post_message(struct tags *tags, uint32_t link, uint8_t kind, uint64_t tag, uint32_t bytes)
{
    struct queues *queues = tags->queues;
    struct nic_work work = queues_work(queues, NIC_SEND_IMMEDIATE, 0, tag);
    struct nic_piece piece = queues_near(queues, 0, HEADER + bytes);
    const uint32_t context = htobe32(CONTEXT);
    const uint64_t order = htobe64(tag);
    memset(queues->source, 0, HEADER);
    queues->source[0] = kind;
    memcpy(queues->source + 4, &context, sizeof(context));
    memcpy(queues->source + 8, &order, sizeof(order));
    work.immediate = (uint32_t)tag + 7;
    assert_true(queues_post_pieces(tags->near[link], &work, &piece, 1));
    queues_ring(tags->near[link]);
}

void tags_send_message(struct tags *tags, uint32_t link, uint8_t kind, uint64_t tag, uint32_t bytes)
{
    tags->queues->near.count = 0;
    tags_post_message(tags, link, kind, tag, bytes);
    queues_wait(&tags->queues->near, 1);
    assert_int_equal(tags->queues->near.done[0].status, CRPC_OK);
}

/* ---- Expectations ---------------------------------------------------------------------------- */

const crpc_completion *tags_next(struct tags *tags)
{
    struct done_list *far = &tags->queues->far;
    far->count = 0;
    far->capacity = 1;
    queues_wait(far, 1);
    far->capacity = 64;
    return &far->done[0];
}

void tags_expect_match(struct tags *tags, uint64_t user_data, uint32_t link, uint64_t tag,
                       uint32_t bytes)
{
    const crpc_completion *done = tags_next(tags);
    assert_int_equal(done->method, NIC_TAG_ADD);
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->flags,
                     NIC_DONE_OF_QUEUE | NIC_DONE_DETAIL | NIC_DONE_MATCHED | NIC_DONE_IMMEDIATE);
    assert_int_equal(done->endpoint.bits, 100 + link);
    assert_int_equal(done->endpoint_user_data, 200 + link);
    assert_int_equal(done->token, tag);
    assert_int_equal(done->view, CONTEXT);
    assert_int_equal(done->payload_bytes, bytes);
    assert_int_equal(done->reply_bytes_max, (uint32_t)tag + 7);
    assert_memory_equal(tags->queues->target + BUFFERS_AT + user_data % 32 * BUFFER_BYTES,
                        tags->queues->source + HEADER, bytes);
}

/* A message in an ordinary receive. */
void tags_expect_receive(struct tags *tags, uint64_t user_data, uint32_t bytes, bool counted)
{
    const crpc_completion *done = tags_next(tags);
    assert_int_equal(done->method, NIC_RECEIVE);
    assert_int_equal(done->status, CRPC_OK);
    assert_int_equal(done->user_data, 1000 + user_data);
    assert_int_equal(done->flags & (NIC_DONE_SYNC | NIC_DONE_MATCHED), counted ? NIC_DONE_SYNC : 0);
    assert_int_equal(done->payload_bytes, bytes);
    assert_memory_equal(tags->queues->target + (1000 + user_data) % 64 * 4096, tags->queues->source,
                        bytes < RECEIVE_BYTES ? bytes : RECEIVE_BYTES);
}

void tags_expect_command(struct tags *tags, uint16_t method, uint64_t user_data, int32_t status)
{
    const crpc_completion *done = tags_next(tags);
    assert_int_equal(done->method, method);
    assert_int_equal(done->user_data, user_data);
    assert_int_equal(done->status, status);
    assert_int_equal(done->flags & NIC_DONE_MATCHED, 0);
    assert_int_equal(done->endpoint.bits, 99);
}

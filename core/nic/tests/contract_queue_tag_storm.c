/* contract_queue_tag_storm.c: a TM-SRQ with random commands, messages, polls of little room, and connections that end
 * in the middle: each op completes once. Devices without tags skip it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <endian.h>

#include "contract.h"
#include "nic/memory/random.h"
#include "tags.h"

#define TAGS 6u
#define TAG_VALUES 4u
#define OPS_MAX 8192u
#define STEPS 6000u
#define MESSAGES_MAX 4u /* under way on a connection */

struct storm {
    struct tags tags;
    struct random_generator random;
    struct {
        uint8_t opcode;
        uint8_t tag;
        bool done;
    } ops[OPS_MAX]; /* of the far side: their numbers are their user data */
    uint32_t op_count, open, matched, removed, received, missed, ended;
    uint32_t sends_open[TAGS_LINKS];
    uint32_t sent;
    uint32_t added[8], add_count; /* the last TAG_ADDs */
};

/* ---- Completions ----------------------------------------------------------------------------- */

static void take_far(struct storm *storm, const crpc_completion *done)
{
    assert_true(done->user_data < storm->op_count);
    const uint8_t opcode = storm->ops[done->user_data].opcode;
    assert_false(storm->ops[done->user_data].done);
    assert_int_equal(done->method, opcode);
    storm->ops[done->user_data].done = true;
    storm->open--;
    if (done->status == -NIC_ERROR_FLUSHED) {
        assert_true(opcode == NIC_TAG_ADD || opcode == NIC_RECEIVE);
        storm->ended++;
    } else if (opcode == NIC_TAG_ADD) {
        assert_true(done->status == CRPC_OK || done->status == -NIC_ERROR_REMOVED);
        assert_int_equal(done->flags & NIC_DONE_MATCHED,
                         done->status == CRPC_OK ? NIC_DONE_MATCHED : 0);
        assert_true(done->status != CRPC_OK || done->token == storm->ops[done->user_data].tag);
        storm->matched += done->status == CRPC_OK;
        storm->removed += done->status == -NIC_ERROR_REMOVED;
    } else if (opcode == NIC_TAG_REMOVE) {
        assert_true(done->status == CRPC_OK || done->status == -NIC_ERROR_NOT_FOUND);
        storm->missed += done->status != CRPC_OK;
        storm->removed -= done->status == CRPC_OK;
    } else {
        assert_int_equal(done->status, CRPC_OK);
        storm->received += opcode == NIC_RECEIVE;
    }
}

static uint32_t poll_far(struct storm *storm, uint32_t capacity)
{
    crpc_completion done[4];
    uint32_t errors;
    struct nic *nic = storm->tags.queues->far.nic;
    const uint32_t count = nic->operations->queues->poll(nic, done, capacity, &errors);
    for (uint32_t i = 0; i < count; i++) {
        take_far(storm, &done[i]);
    }
    return count;
}

static void poll_near(struct storm *storm)
{
    crpc_completion done[4];
    uint32_t errors;
    struct nic *nic = storm->tags.queues->near.nic;
    const uint32_t count = nic->operations->queues->poll(nic, done, 4, &errors);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(done[i].user_data < TAGS_LINKS);
        assert_int_equal(done[i].status, CRPC_OK);
        storm->sends_open[done[i].user_data]--;
    }
}

static void take_ended(struct storm *storm)
{
    crpc_completion done[3];
    uint32_t count;
    while ((count = nic_queue_take_ended(storm->tags.srq, done, 3)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            take_far(storm, &done[i]);
        }
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void command(struct storm *storm, uint8_t opcode)
{
    struct queues *queues = storm->tags.queues;
    const uint32_t number = storm->op_count;
    const uint8_t tag = (uint8_t)random_below(&storm->random, TAG_VALUES);
    struct nic_work work = {.opcode = opcode, .user_data = number};
    struct nic_piece piece = queues_far(queues, BUFFERS_AT + number % 32 * BUFFER_BYTES, 10000);
    if (opcode == NIC_TAG_ADD) {
        work.remote_address = tag;
        work.operand = ANY;
    } else if (opcode == NIC_TAG_REMOVE) {
        work.operand = storm->added[random_below(&storm->random, 8)];
    }
    const bool room = nic_tags_room(storm->tags.srq, opcode);
    assert_int_equal(tags_command(&storm->tags, &work, opcode == NIC_TAG_ADD ? &piece : NULL),
                     room);
    queues_ring(storm->tags.srq);
    if (room) {
        storm->ops[number].opcode = opcode;
        storm->ops[number].tag = tag;
        storm->added[storm->add_count % 8] = number;
        storm->add_count += opcode == NIC_TAG_ADD;
        storm->op_count++;
        storm->open++;
    }
}

/* There is always a receive for what matches nothing. */
static void receive(struct storm *storm)
{
    const struct nic_queue_operations *operations = storm->tags.srq->nic->operations->queues;
    while (storm->tags.srq->receives_open < RECEIVES) {
        struct nic_piece piece = queues_far(storm->tags.queues, storm->op_count % 8 * 16384, 16384);
        assert_true(operations->receive(storm->tags.srq, storm->op_count, &piece, 1));
        storm->ops[storm->op_count++].opcode = NIC_RECEIVE;
        storm->open++;
    }
    operations->ring(storm->tags.srq);
}

/* From a place of its own in the source: it may be read late. Some have several packets. */
static void send(struct storm *storm, uint32_t link)
{
    struct queues *queues = storm->tags.queues;
    const uint64_t from = (uint64_t)(storm->sent++ % 16) * 16384;
    const uint32_t bytes = random_percent(&storm->random, 30) ? 9000 : 40;
    const uint64_t tag = htobe64(random_below(&storm->random, TAG_VALUES));
    struct nic_work work = queues_work(queues, NIC_SEND, 0, link);
    struct nic_piece piece = queues_near(queues, from, HEADER + bytes);
    memset(queues->source + from, 0, HEADER);
    queues->source[from] = random_percent(&storm->random, 95) ? EAGER : NO_TAG;
    memcpy(queues->source + from + 8, &tag, sizeof(tag));
    receive(storm);
    assert_true(queues_post_pieces(storm->tags.near[link], &work, &piece, 1));
    queues_ring(storm->tags.near[link]);
    storm->sends_open[link]++;
}

static void stop_link(struct storm *storm, uint32_t link)
{
    const struct nic_queue_operations *operations = storm->tags.srq->nic->operations->queues;
    crpc_completion done[MESSAGES_MAX];
    operations->stop(storm->tags.near[link]);
    nic_queue_take_ended(storm->tags.near[link], done, MESSAGES_MAX);
    operations->destroy(storm->tags.near[link]);
    operations->stop(storm->tags.far[link]);
    assert_int_equal(nic_queue_take_ended(storm->tags.far[link], done, MESSAGES_MAX), 0);
    operations->destroy(storm->tags.far[link]);
    storm->sends_open[link] = 0;
    take_ended(storm);
}

static void step(struct storm *storm)
{
    const uint32_t what = random_below(&storm->random, 100);
    const uint32_t link = random_below(&storm->random, TAGS_LINKS);
    if (what < 30) {
        command(storm, NIC_TAG_SYNC);
        command(storm, NIC_TAG_ADD);
    } else if (what < 40) {
        command(storm, NIC_TAG_REMOVE);
    } else if (what < 45) {
        command(storm, NIC_TAG_SYNC);
    } else if (what < 57) {
        if (storm->sends_open[link] < MESSAGES_MAX) {
            send(storm, link);
        }
    } else if (what < 58) {
        stop_link(storm, link);
        tags_make_link(&storm->tags, link);
    } else if (what < 65) {
        pair_pass(random_below(&storm->random, 60));
    } else {
        poll_near(storm);
        poll_far(storm, 1 + random_below(&storm->random, 3));
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

void test_tags_storm(void **state)
{
    static struct storm storm;
    memset(&storm, 0, sizeof(storm));
    tags_make(state, &storm.tags, TAGS);
    random_seed(&storm.random, 15);
    for (uint32_t i = 0; i < STEPS && storm.op_count + 2 * RECEIVES < OPS_MAX; i++) {
        step(&storm);
    }
    for (uint32_t i = 0; i < TAGS_LINKS; i++) {
        stop_link(&storm, i);
    }
    for (uint32_t i = 0;
         i < 5000 && storm.tags.srq->sends.consumer != storm.tags.srq->sends.producer; i++) {
        pair_pass(100);
        poll_far(&storm, 1);
    }
    assert_int_equal(storm.tags.srq->sends.consumer, storm.tags.srq->sends.producer);
    assert_int_equal(storm.removed, 0);
    storm.tags.srq->nic->operations->queues->stop(storm.tags.srq);
    take_ended(&storm);
    assert_int_equal(storm.open, 0);
    for (uint32_t i = 0; i < storm.op_count; i++) {
        assert_true(storm.ops[i].done);
    }
    assert_int_equal(storm.tags.srq->tags->open, 0);
    print_message("# seed 15: %u ops, %u matched, %u received, %u not found, %u ended\n",
                  storm.op_count, storm.matched, storm.received, storm.missed, storm.ended);
    assert_true(storm.matched > 50 && storm.received > 50 && storm.missed > 50);
    storm.tags.srq->nic->operations->queues->destroy(storm.tags.srq);
}

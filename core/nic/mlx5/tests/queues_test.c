/* queues_test.c: the shared receive queue's list and the five kinds of completion tracking, each
 * against a model that keeps everything it ever posted. */
#include "nic/mlx5/receive_queue.h"
#include "nic/tracking.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

static void blame(uint64_t seed, const char *what)
{
    print_error("seed %llu: %s\n", (unsigned long long)seed, what);
    fail();
}

/* ---- Receives -------------------------------------------------------------------------------- */

#define STRIDE 32u

/* The device: follows the links, as many as the record allows. */
struct follower {
    uint32_t head;
    uint32_t taken;
    uint32_t outstanding[256];
    uint32_t count;
};

static void follow(struct follower *device, const uint8_t *buffer, const uint32_t *record)
{
    uint16_t ahead = (uint16_t)(be32toh(*record) - device->taken);
    while (ahead--) {
        const uint8_t *wqe = buffer + device->head * STRIDE;
        device->outstanding[device->count++] = device->head;
        device->head = (uint32_t)(wqe[2] << 8 | wqe[3]);
        device->taken++;
    }
}

static void run_receives(uint32_t entries, uint64_t seed)
{
    uint8_t *buffer = malloc((size_t)entries * STRIDE);
    uint32_t record = 0;
    struct follower device = {0};
    struct receive_queue queue = {.buffer = buffer,
                                  .stride = STRIDE,
                                  .entries = entries,
                                  .tail = entries - 1,
                                  .record = &record};
    random_state = seed;
    memset(buffer, 0xa5, entries * STRIDE);
    for (uint32_t i = 0; i < entries; i++) { /* as libmlx5 links them */
        buffer[i * STRIDE + 2] = (uint8_t)((i + 1) >> 8);
        buffer[i * STRIDE + 3] = (uint8_t)(i + 1);
    }
    receive_queue_init(&queue);
    uint32_t free_count = entries - 1; /* the last stays */
    for (uint32_t round = 0; round < 30000; round++) {
        uint32_t post = pick(free_count + 1);
        receive_queue_post(&queue, post);
        free_count -= post;
        assert_int_equal(be32toh(record), queue.counter & 0xffff);
        follow(&device, buffer, &record);
        if (device.count > entries) {
            blame(seed, "more receives than there are");
        }
        for (uint32_t i = pick(device.count + 1); i > 0; i--) {
            uint32_t which = pick(4) ? 0 : pick(device.count); /* mostly in order */
            uint32_t index = device.outstanding[which];
            if (index >= entries) {
                blame(seed, "a link leads nowhere");
            }
            device.count--;
            memmove(device.outstanding + which, device.outstanding + which + 1,
                    (device.count - which) * sizeof(device.outstanding[0]));
            /* Its own until it is given back: nobody else is given it. */
            for (uint32_t k = 0; k < device.count; k++) {
                if (device.outstanding[k] == index) {
                    blame(seed, "a receive was posted twice");
                }
            }
            assert_true(receive_queue_free(&queue, index));
            free_count++;
        }
        assert_false(receive_queue_free(&queue, entries + pick(65536)));
    }
    assert_true(queue.counter > 65536 || entries < 4); /* the record's 16 bits wrapped */
    for (uint32_t i = 0; i < entries; i++) {
        const uint8_t *data = buffer + i * STRIDE + 16;
        static const uint8_t empty[16] = {0, 0, 0, 0, 0, 0, 1, 0};
        assert_memory_equal(data, empty, 16);
    }
    free(buffer);
}

static void test_receives(void **state)
{
    static const uint32_t entries[] = {2, 3, 8, 64, 255};
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t seed = 0; seed < 4; seed++) {
            run_receives(entries[i], 100 * i + seed);
        }
    }
}

/* ---- Tracking of sends ----------------------------------------------------------------------- */

enum kind { DENSE, SPARSE, UNORDERED };

#define ENTRIES 64u
#define OUTSTANDING_MAX 64u

struct posted {
    uint32_t position;
    uint32_t end;
    uint64_t user_data;
    bool filler;
    bool signaled;
    bool done;
};

struct model {
    enum kind kind;
    uint64_t seed;
    struct tracking tracking;
    struct posted posted[OUTSTANDING_MAX];
    uint32_t count;
    uint32_t producer;
    uint32_t consumer;
    uint64_t next_user_data;
    uint64_t completed;
};

/* The queue's blocks that are not free, as far as the model knows: all from the first that is not
 * done, or is a filler that nothing after it has proved done. */
static void retire(struct model *model)
{
    uint32_t gone = 0;
    while (gone < model->count && model->posted[gone].done) {
        gone++;
    }
    if (gone > 0) {
        model->consumer = model->posted[gone - 1].end;
        model->count -= gone;
        memmove(model->posted, model->posted + gone, model->count * sizeof(model->posted[0]));
    }
    /* A filler is done once what comes after it is. */
    if (model->count > 1 && model->posted[0].filler && model->posted[1].done) {
        model->posted[0].done = true;
        retire(model);
    }
    if (model->tracking.consumer != model->consumer) {
        blame(model->seed, "what is free again is wrong");
    }
}

static void post(struct model *model, bool filler)
{
    uint32_t room = ENTRIES - (model->producer - model->consumer);
    uint32_t blocks = 1 + pick(4);
    if (model->count > 0 && model->posted[model->count - 1].filler) {
        filler = false; /* what it was for comes next */
    }
    if (room < blocks) {
        return;
    }
    struct posted *posted = &model->posted[model->count++];
    *posted = (struct posted){.position = model->producer,
                              .end = model->producer + blocks,
                              .user_data = model->next_user_data,
                              .filler = filler,
                              .signaled = model->kind == UNORDERED || pick(3) == 0};
    if (!filler) {
        model->next_user_data++;
    }
    model->producer += blocks;
    tracking_post(&model->tracking, posted->position, posted->end, posted->user_data,
                  filler             ? TRACKING_FILLER
                  : posted->signaled ? TRACKING_SIGNALED
                                     : TRACKING_POSTED);
}

static void complete_ordered(struct model *model, uint32_t which)
{
    uint32_t position;
    if (!tracking_find(&model->tracking, (uint16_t)model->posted[which].position, &position) ||
        position != model->posted[which].position) {
        blame(model->seed, "what completed is not found");
    }
    if (model->kind == SPARSE) {
        struct tracking_done done = tracking_sparse_take(&model->tracking, position);
        if (done.user_data != model->posted[which].user_data || !done.signaled) {
            blame(model->seed, "not the user data that was posted");
        }
    } else {
        struct tracking_done done;
        uint32_t at = 0;
        while (tracking_dense_next(&model->tracking, position, &done)) {
            while (model->posted[at].filler) {
                at++;
            }
            if (at > which || done.user_data != model->posted[at].user_data ||
                done.signaled != (at == which)) {
                blame(model->seed, "not the WQEs that were posted, in order");
            }
            at++;
            model->completed++;
        }
        while (at <= which && model->posted[at].filler) {
            at++;
        }
        if (at != which + 1) {
            blame(model->seed, "a WQE was not reported");
        }
    }
    for (uint32_t i = 0; i <= which; i++) {
        model->posted[i].done = true;
    }
    retire(model);
}

static void complete_unordered(struct model *model, uint32_t which)
{
    uint32_t position;
    struct posted *posted = &model->posted[which];
    if (posted->done || posted->filler) {
        return;
    }
    if (!tracking_find(&model->tracking, (uint16_t)posted->position, &position) ||
        position != posted->position) {
        blame(model->seed, "what completed is not found");
    }
    if (tracking_unordered_take(&model->tracking, position).user_data != posted->user_data) {
        blame(model->seed, "not the user data that was posted");
    }
    posted->done = true;
    /* Once more is once too often. */
    if (tracking_find(&model->tracking, (uint16_t)position, &position)) {
        blame(model->seed, "a completion was believed twice");
    }
    retire(model);
}

/* A counter at which nothing outstanding begins. */
static void expect_unknown(struct model *model)
{
    uint16_t counter =
        pick(2) ? (uint16_t)(model->consumer - 8 + pick(ENTRIES + 16)) : (uint16_t)pick(65536);
    uint32_t position;
    for (uint32_t i = 0; i < model->count; i++) {
        if ((uint16_t)model->posted[i].position == counter && !model->posted[i].done) {
            return;
        }
    }
    if (tracking_find(&model->tracking, counter, &position)) {
        blame(model->seed, "a counter of nothing outstanding was believed");
    }
}

static void run_sends(enum kind kind, uint64_t seed)
{
    struct model model = {.kind = kind, .seed = seed, .next_user_data = seed << 32};
    random_state = seed;
    model.tracking.entries = calloc(ENTRIES, sizeof(*model.tracking.entries));
    model.tracking.mask = ENTRIES - 1;
    uint32_t start = seed % 2 ? 0 : 0xfffe0000u;
    model.producer = model.consumer = start;
    model.tracking.producer = model.tracking.consumer = start;
    for (uint32_t round = 0; model.producer - start < 400000; round++) {
        for (uint32_t i = pick(6); i > 0; i--) {
            post(&model, pick(8) == 0);
        }
        expect_unknown(&model);
        for (uint32_t i = pick(4); i > 0 && model.count > 0; i--) {
            uint32_t which = pick(model.count);
            if (kind == UNORDERED) {
                complete_unordered(&model, which);
            } else if (model.posted[which].signaled || pick(50) == 0) {
                /* Errors complete what was not signaled, too, and fillers. */
                complete_ordered(&model, which);
            }
        }
        if (kind == UNORDERED && pick(4) == 0) {
            for (uint32_t i = 0; i < model.count; i++) {
                uint32_t before = model.count;
                complete_unordered(&model, i);
                i -= before - model.count < i ? before - model.count : i;
            }
        }
    }
    free(model.tracking.entries);
}

static void test_dense(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        run_sends(DENSE, seed);
    }
}

static void test_sparse(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 16; seed++) {
        run_sends(SPARSE, seed);
    }
}

static void test_unordered(void **state)
{
    (void)state;
    for (uint64_t seed = 20; seed < 26; seed++) {
        run_sends(UNORDERED, seed);
    }
}

/* What an entry says of a WQE that was there 2^16 blocks ago is not to be believed, though its
 * counter is the same, when a larger WQE covers the place now. */
static void test_generations(void **state)
{
    (void)state;
    struct tracking_entry entries[8] = {{0}};
    struct tracking tracking = {.entries = entries, .mask = 7};
    uint32_t position;
    tracking_post(&tracking, 0, 1, 1, TRACKING_SIGNALED);
    tracking_post(&tracking, 1, 2, 2, TRACKING_POSTED);
    tracking_post(&tracking, 2, 3, 3, TRACKING_SIGNALED);
    assert_true(tracking_find(&tracking, 2, &position));
    tracking_sparse_take(&tracking, position);
    /* From here on WQEs of two blocks, up to the same counters again. */
    uint32_t at = 3;
    tracking_post(&tracking, at, at + 1, 4, TRACKING_SIGNALED);
    assert_true(tracking_find(&tracking, (uint16_t)at, &position));
    tracking_sparse_take(&tracking, position);
    for (at = 4; at < 65536 + 4; at += 2) {
        tracking_post(&tracking, at, at + 2, at, TRACKING_SIGNALED);
        assert_false(tracking_find(&tracking, (uint16_t)(at + 1), &position));
        assert_true(tracking_find(&tracking, (uint16_t)at, &position));
        assert_int_equal(position, at);
        assert_int_equal(tracking_sparse_take(&tracking, position).user_data, at);
        assert_int_equal(tracking.consumer, at + 2);
    }
}

/* ---- Tracking of receives -------------------------------------------------------------------- */

static void test_tracked_receives(void **state)
{
    (void)state;
    struct tracking_entry entries[32] = {{0}};
    struct tracking tracking = {.entries = entries, .mask = 31};
    uint64_t user_data;
    random_state = 5;
    /* Ordered: the counter runs on, its lower bits name the entry. */
    uint32_t head = 0;
    uint32_t tail = 0;
    while (tail < 200000) {
        while (head - tail < 32 && pick(4)) {
            tracking_receive_post(&tracking, head, head * 3ull);
            head++;
        }
        while (head != tail && pick(4)) {
            uint16_t counter = (uint16_t)tail;
            assert_true(tracking_receive_take(&tracking, counter & 31, &user_data));
            assert_int_equal(user_data, tail * 3ull);
            assert_false(tracking_receive_take(&tracking, counter & 31, &user_data));
            tail++;
        }
    }
    memset(entries, 0, sizeof(entries));
    /* Unordered: by index, in any order. */
    uint64_t expected[32] = {0};
    for (uint32_t round = 1; round < 200000; round++) {
        uint32_t index = pick(40);
        if (index < 32 && expected[index] == 0 && pick(2)) {
            tracking_receive_post(&tracking, index, round);
            expected[index] = round;
        } else {
            bool there = index < 32 && expected[index] != 0;
            assert_int_equal(tracking_receive_take(&tracking, index, &user_data), there);
            if (there) {
                assert_int_equal(user_data, expected[index]);
                expected[index] = 0;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receives),    cmocka_unit_test(test_dense),
        cmocka_unit_test(test_sparse),      cmocka_unit_test(test_unordered),
        cmocka_unit_test(test_generations), cmocka_unit_test(test_tracked_receives),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

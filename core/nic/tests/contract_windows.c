/* contract_windows.c: windows: who may do what where, and until when; and atomics, for which windows are. A nic without them passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "contract.h"
#include "pair.h"

#define BYTES 4096u
#define OFFSET 100u /* of the window in the memory */
#define WINDOW 1000u

/* Memory of the far side that no peer may write, and a window on it. */
struct view {
    struct pair *pair;
    struct nic *nic;
    const struct nic_operations *operations;
    struct nic_queue_pair *other_sender, *other_receiver; /* a second connection */
    uint8_t *memory;
    struct nic_keys keys;
    struct nic_window window;
};

static bool view_create(struct view *view, struct pair *pair)
{
    static const struct nic_transport transport = {
        .retry_timeout = 14, .retry_count = 7, .atomics = true};
    *view =
        (struct view){.pair = pair, .nic = pair->far.nic, .operations = pair->far.nic->operations};
    if (!view->nic->windows) {
        print_message("# %s has no windows\n", view->nic->device);
        return false;
    }
    view->memory = pair_map(BYTES);
    pair_enroll(view->nic, view->memory, BYTES, CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS,
                &view->keys);
    assert_int_equal(view->operations->window_create(view->nic, &view->window, NULL), CRPC_OK);
    assert_int_equal(
        nic_queue_pair_create(pair->near.nic, NULL, NULL, PAIR_RECEIVES, &view->other_sender, NULL),
        CRPC_OK);
    assert_int_equal(
        nic_queue_pair_create(view->nic, NULL, NULL, PAIR_RECEIVES, &view->other_receiver, NULL),
        CRPC_OK);
    pair_connect(view->other_sender, view->other_receiver, &transport);
    return true;
}

static void view_destroy(struct view *view)
{
    view->operations->window_destroy(view->nic, &view->window);
    assert_null(view->window.driver);
    view->operations->queue_pair_destroy(view->other_sender);
    view->operations->queue_pair_destroy(view->other_receiver);
    view->operations->memory_deregister(view->nic, &view->keys);
    munmap(view->memory, BYTES);
}

static void bind(struct view *view)
{
    struct nic_queue_pair *receiver = view->pair->receiver;
    view->operations->post_bind(receiver, &view->window, &view->keys,
                                (uint64_t)(uintptr_t)view->memory + OFFSET, WINDOW,
                                NIC_POST_SIGNALED);
    view->operations->ring_doorbell(receiver);
    inbox_wait_completed(&view->pair->far, receiver, receiver->posted);
    assert_int_equal(inbox_last(&view->pair->far)->kind, NIC_COMPLETION_SEND);
}

static void invalidate(struct view *view)
{
    struct nic_queue_pair *receiver = view->pair->receiver;
    view->operations->post_invalidate(receiver, &view->window, NIC_POST_SIGNALED);
    view->operations->ring_doorbell(receiver);
    inbox_wait_completed(&view->pair->far, receiver, receiver->posted);
    assert_int_equal(inbox_last(&view->pair->far)->kind, NIC_COMPLETION_SEND);
}

/* What becomes of a WRITE of `bytes` to the memory, from `offset` on. */
static enum nic_error write_to(struct view *view, struct nic_queue_pair *sender, uint32_t key,
                               uint32_t offset, uint32_t bytes, uint8_t value)
{
    struct pair *pair = view->pair;
    struct nic_transfer write = pair_write(pair, 0, 0, bytes, 0);
    memset(pair->source, value, bytes);
    write.remote_address = (uint64_t)(uintptr_t)view->memory + offset;
    write.remote_key = key;
    pair->near.count = 0;
    view->operations->post_write(sender, &write, NIC_POST_SIGNALED);
    view->operations->ring_doorbell(sender);
    inbox_wait_completed(&pair->near, sender, sender->posted);
    const struct nic_completion *last = inbox_last(&pair->near);
    return last->kind == NIC_COMPLETION_SEND ? NIC_ERROR_NONE : (enum nic_error)last->status;
}

static void expect_bytes(const struct view *view, uint8_t value)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        bool inside = i >= OFFSET && i < OFFSET + WINDOW;
        assert_int_equal(view->memory[i], inside ? value : 0);
    }
}

void test_window(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    uint32_t before = view.window.remote_key;
    for (uint32_t round = 1; round <= 300; round++) { /* more than a key has variants */
        bind(&view);
        assert_int_not_equal(view.window.remote_key, before);
        before = view.window.remote_key;
        assert_int_equal(write_to(&view, view.pair->sender, view.window.remote_key, OFFSET, WINDOW,
                                  (uint8_t)round),
                         NIC_ERROR_NONE);
        expect_bytes(&view, (uint8_t)round);
        invalidate(&view);
    }
    view_destroy(&view);
}

/* The peer hears of the right by a WRITE with immediate that was posted behind the bind, and uses it
 * at once. */
void test_window_behind_bind(void **state)
{
    struct pair *pair = *state;
    struct view view;
    if (!view_create(&view, pair)) {
        return;
    }
    pair->near.nic->operations->refill(pair->near.nic);
    for (uint32_t round = 1; round <= 100; round++) {
        struct nic_transfer news = {.immediate = round};
        pair->far.count = 0;
        pair->near.count = 0;
        view.operations->post_bind(pair->receiver, &view.window, &view.keys,
                                   (uint64_t)(uintptr_t)view.memory + OFFSET, WINDOW, 0);
        if (round % 2 == 0) {
            view.operations->ring_doorbell(pair->receiver);
        }
        view.operations->post_write_immediate(pair->receiver, &news, 0);
        view.operations->ring_doorbell(pair->receiver);
        inbox_wait(&pair->near, 1);
        assert_int_equal(inbox_last(&pair->near)->immediate, round);
        assert_int_equal(
            write_to(&view, pair->sender, view.window.remote_key, OFFSET, WINDOW, (uint8_t)round),
            NIC_ERROR_NONE);
        expect_bytes(&view, (uint8_t)round);
        invalidate(&view);
    }
    view_destroy(&view);
}

/* Each time the queue pairs die of it. */
static void expect_refused(struct view *view, struct nic_queue_pair *sender, uint32_t key,
                           uint32_t offset, uint32_t bytes)
{
    assert_int_equal(write_to(view, sender, key, offset, bytes, 0xee), NIC_ERROR_REMOTE_ACCESS);
    expect_bytes(view, 0);
}

void test_window_invalidated(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind(&view);
    uint32_t key = view.window.remote_key;
    invalidate(&view);
    expect_refused(&view, view.pair->sender, key, OFFSET, 1);
    view_destroy(&view);
}

void test_window_destroyed(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind(&view);
    uint32_t key = view.window.remote_key;
    view.operations->window_destroy(view.nic, &view.window);
    expect_refused(&view, view.pair->sender, key, OFFSET, 1);
    view_destroy(&view);
}

void test_window_other_queue_pair(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind(&view);
    expect_refused(&view, view.other_sender, view.window.remote_key, OFFSET, 1);
    view_destroy(&view);
}

void test_window_old_key(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind(&view);
    uint32_t key = view.window.remote_key;
    invalidate(&view);
    bind(&view);
    expect_refused(&view, view.pair->sender, key, OFFSET, 1);
    view_destroy(&view);
}

/* The memory itself, by its own key. */
void test_window_memory(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind(&view);
    expect_refused(&view, view.pair->sender, view.keys.remote_key, OFFSET, 1);
    view_destroy(&view);
}

static void expect_bounds(struct pair *pair, uint32_t offset, uint32_t bytes)
{
    struct view view;
    if (!view_create(&view, pair)) {
        return;
    }
    bind(&view);
    expect_refused(&view, pair->sender, view.window.remote_key, offset, bytes);
    view_destroy(&view);
}

void test_window_before(void **state)
{
    expect_bounds(*state, OFFSET - 1, 8);
}

void test_window_behind(void **state)
{
    expect_bounds(*state, OFFSET + WINDOW - 7, 8);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

static void bind_for(struct view *view, uint32_t access)
{
    view->window.access = access;
    bind(view);
}

/* What becomes of a READ of the window's first bytes into the source's. */
static enum nic_error read_from(struct view *view, uint32_t bytes)
{
    struct pair *pair = view->pair;
    struct nic_transfer read = pair_write(pair, 0, 0, bytes, 0);
    read.remote_address = (uint64_t)(uintptr_t)view->memory + OFFSET;
    read.remote_key = view->window.remote_key;
    pair->near.count = 0;
    view->operations->post_read(pair->sender, &read, NIC_POST_SIGNALED);
    view->operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
    const struct nic_completion *last = inbox_last(&pair->near);
    return last->kind == NIC_COMPLETION_SEND ? NIC_ERROR_NONE : (enum nic_error)last->status;
}

/* Memory that only this side's device may read is enough for it. */
void test_window_read(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    view.operations->memory_deregister(view.nic, &view.keys);
    pair_enroll(view.nic, view.memory, BYTES, NIC_ACCESS_WINDOWS, &view.keys);
    bind_for(&view, CRPC_ACCESS_REMOTE_READ);
    memset(view.memory + OFFSET, 77, WINDOW);
    assert_int_equal(read_from(&view, WINDOW), NIC_ERROR_NONE);
    for (uint32_t i = 0; i < WINDOW; i++) {
        assert_int_equal(view.pair->source[i], 77);
    }
    memset(view.memory, 0, BYTES);
    expect_refused(&view, view.pair->sender, view.window.remote_key, OFFSET, 8);
    view_destroy(&view);
}

void test_window_no_read(void **state)
{
    struct view view;
    if (!view_create(&view, *state)) {
        return;
    }
    bind_for(&view, CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(read_from(&view, 8), NIC_ERROR_REMOTE_ACCESS);
    view_destroy(&view);
}

/* ---- Atomics --------------------------------------------------------------------------------- */

#define WORD 104u /* in the memory, and in the window */

/* What becomes of an atomic on the word. What was there lands in the source. */
static enum nic_error atomic_on(struct view *view, bool swap, uint64_t compare, uint64_t operand)
{
    struct pair *pair = view->pair;
    const struct nic_transfer place = pair_write(pair, 0, 0, 8, 0);
    const struct nic_atomic atomic = {.local_address = place.local_address,
                                      .local_key = place.local_key,
                                      .remote_address = (uint64_t)(uintptr_t)view->memory + WORD,
                                      .remote_key = view->window.remote_key,
                                      .swap = swap,
                                      .compare = compare,
                                      .operand = operand};
    pair->near.count = 0;
    view->operations->post_atomic(pair->sender, &atomic, NIC_POST_SIGNALED);
    view->operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
    const struct nic_completion *last = inbox_last(&pair->near);
    return last->kind == NIC_COMPLETION_SEND ? NIC_ERROR_NONE : (enum nic_error)last->status;
}

static void expect_words(const struct view *view, uint64_t before, uint64_t now)
{
    uint64_t words[2];
    memcpy(&words[0], view->pair->source, 8);
    memcpy(&words[1], view->memory + WORD, 8);
    assert_int_equal(words[0], before);
    assert_int_equal(words[1], now);
}

void test_atomics(void **state)
{
    struct view view;
    struct pair *pair = *state;
    if (!pair->near.nic->atomics || !view_create(&view, pair)) {
        return;
    }
    bind_for(&view, CRPC_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(atomic_on(&view, false, 0, UINT64_C(0x1122334455667788)), NIC_ERROR_NONE);
    expect_words(&view, 0, UINT64_C(0x1122334455667788));
    assert_int_equal(atomic_on(&view, false, 0, 1), NIC_ERROR_NONE);
    expect_words(&view, UINT64_C(0x1122334455667788), UINT64_C(0x1122334455667789));
    assert_int_equal(atomic_on(&view, true, 5, 6), NIC_ERROR_NONE); /* nothing is changed */
    expect_words(&view, UINT64_C(0x1122334455667789), UINT64_C(0x1122334455667789));
    assert_int_equal(atomic_on(&view, true, UINT64_C(0x1122334455667789), 6), NIC_ERROR_NONE);
    expect_words(&view, UINT64_C(0x1122334455667789), 6);
    view_destroy(&view);
}

void test_window_no_atomics(void **state)
{
    struct view view;
    struct pair *pair = *state;
    if (!pair->near.nic->atomics || !view_create(&view, pair)) {
        return;
    }
    bind_for(&view, CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ);
    assert_int_equal(atomic_on(&view, false, 0, 1), NIC_ERROR_REMOTE_ACCESS);
    expect_bytes(&view, 0);
    view_destroy(&view);
}

/* ---- The order behind READs ------------------------------------------------------------------ */

/* A WRITE behind a READ changes what the READ has still to bring, unless it has a fence. */
void test_fence(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t bytes = 200000;
    struct view view = {.pair = pair, .nic = pair->far.nic, .operations = operations};
    view.memory = pair_map(bytes);
    pair_enroll(view.nic, view.memory, bytes,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ,
                &view.keys);
    for (uint32_t round = 1; round <= 20; round++) {
        struct nic_transfer read = pair_write(pair, 0, 0, bytes, 0);
        struct nic_transfer write = pair_write(pair, bytes - 10, 0, 10, 0);
        read.remote_key = write.remote_key = view.keys.remote_key;
        read.remote_address = (uint64_t)(uintptr_t)view.memory;
        write.remote_address = (uint64_t)(uintptr_t)view.memory + bytes - 20;
        memset(view.memory, (int)round, bytes);
        memset(pair->source, 0, bytes);
        operations->post_read(pair->sender, &read, 0);
        operations->post_write(pair->sender, &write, NIC_POST_SIGNALED);
        operations->fence_last(pair->sender);
        operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
        assert_int_equal(pair->source[bytes - 20], round);
        assert_int_equal(pair->source[bytes - 11], round);
    }
    operations->memory_deregister(view.nic, &view.keys);
    munmap(view.memory, bytes);
}

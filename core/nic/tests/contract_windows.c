/* contract_windows.c: windows: who may write where, and until when. A nic without them passes. */
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
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
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
        view->operations->queue_pair_create(pair->near.nic, NULL, NULL, &view->other_sender, NULL),
        CRPC_OK);
    assert_int_equal(
        view->operations->queue_pair_create(view->nic, NULL, NULL, &view->other_receiver, NULL),
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

/* Soft-RoCE checks the bounds of the memory instead. */
static void expect_bounds(struct pair *pair, uint32_t offset, uint32_t bytes)
{
    struct view view;
    if (strncmp(pair->far.nic->device, "rxe", 3) == 0 || !view_create(&view, pair)) {
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

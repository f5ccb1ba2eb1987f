/* base_test.c: deadlines against a naive model, handles, the table of queue pairs, the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/handles.h"
#include "base/log.h"
#include "base/sparse.h"
#include "base/table.h"
#include "base/wheel.h"

#define TICK_NS (UINT64_C(1) << WHEEL_TICK_BITS)
#define SEED UINT64_C(20261121)

static uint64_t random_state = SEED;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- Wheel ----------------------------------------------------------------------------------- */

#define TIMERS 300

struct model_timer {
    struct wheel_timer timer;
    uint64_t deadline_ns; /* 0 = not set */
};

static struct wheel wheel;
static struct model_timer timers[TIMERS];

static uint64_t earliest(void)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TIMERS; i++) {
        if (timers[i].deadline_ns && timers[i].deadline_ns < least) {
            least = timers[i].deadline_ns;
        }
    }
    return least;
}

/* Near, far, and very far, so that all levels are used. */
static uint64_t random_span(void)
{
    return next_random() >> (next_random() % 50 + 13);
}

static void take_expired(uint64_t now_ns)
{
    struct wheel_timer *taken;
    while ((taken = wheel_take(&wheel)) != NULL) {
        struct model_timer *one = container_of(taken, struct model_timer, timer);
        assert_true(one->deadline_ns != 0);
        assert_true(one->deadline_ns <= now_ns); /* never early */
        one->deadline_ns = 0;
    }
    for (int i = 0; i < TIMERS; i++) { /* at most a tick late */
        assert_true(timers[i].deadline_ns == 0 || timers[i].deadline_ns + TICK_NS > now_ns);
    }
}

static void the_wheel_agrees_with_a_list(void **state)
{
    (void)state;
    uint64_t now_ns = 12345678901;
    wheel_init(&wheel, now_ns);
    for (int i = 0; i < TIMERS; i++) {
        wheel_timer_init(&timers[i].timer, (unsigned)i % 4);
    }
    for (int step = 0; step < 200000; step++) {
        struct model_timer *one = &timers[next_random() % TIMERS];
        if (one->deadline_ns == 0) {
            one->deadline_ns = now_ns + random_span() + 1;
            wheel_set(&wheel, &one->timer, one->deadline_ns);
        } else if (next_random() % 2) {
            wheel_clear(&wheel, &one->timer);
            one->deadline_ns = 0;
            assert_false(wheel_timer_set(&one->timer));
        }
        if (next_random() % 4 == 0) {
            assert_true(earliest() == UINT64_MAX || wheel_next_ns(&wheel) <= earliest() + TICK_NS);
            uint64_t until = wheel_next_ns(&wheel);
            now_ns = next_random() % 2 && until != UINT64_MAX && until > now_ns
                         ? until
                         : now_ns + random_span();
            wheel_advance(&wheel, now_ns);
            take_expired(now_ns);
        }
        assert_int_equal(timers[step % TIMERS].timer.kind, step % TIMERS % 4);
    }
}

static void an_expired_timer_can_still_be_cleared(void **state)
{
    (void)state;
    struct wheel_timer a, b;
    wheel_init(&wheel, 0);
    wheel_timer_init(&a, 1);
    wheel_timer_init(&b, 2);
    wheel_set(&wheel, &a, 10 * TICK_NS);
    wheel_set(&wheel, &b, 10 * TICK_NS);
    wheel_advance(&wheel, 11 * TICK_NS);
    assert_int_equal(wheel_next_ns(&wheel), 0);
    wheel_clear(&wheel, &a);
    wheel_clear(&wheel, &a);
    assert_ptr_equal(wheel_take(&wheel), &b);
    assert_null(wheel_take(&wheel));
    assert_int_equal(wheel.count, 0);
    assert_true(wheel_next_ns(&wheel) == UINT64_MAX);
    wheel_set(&wheel, &a, 5); /* in the past */
    assert_ptr_equal(wheel_take(&wheel), &a);
    wheel_set(&wheel, &a, UINT64_MAX);
    wheel_advance(&wheel, UINT64_MAX / 2);
    assert_null(wheel_take(&wheel));
    wheel_clear(&wheel, &a);
}

/* ---- Handles --------------------------------------------------------------------------------- */

static void handles_are_never_valid_twice(void **state)
{
    (void)state;
    struct handles handles, others;
    int object;
    handles_init(&handles);
    handles_init(&others);
    uint64_t first = handles_add(&handles, HANDLE_ENDPOINT, &object);
    assert_true(first != 0);
    assert_ptr_equal(handles_get(&handles, first, HANDLE_ENDPOINT), &object);
    assert_null(handles_get(&handles, first, HANDLE_REGION));
    handles_add(&others, HANDLE_ENDPOINT, &object);
    assert_null(handles_get(&others, first, HANDLE_ENDPOINT));
    handles_remove(&handles, first);
    handles_remove(&handles, first);
    assert_null(handles_get(&handles, first, HANDLE_ENDPOINT));
    assert_null(handles_get(&handles, 0, HANDLE_ENDPOINT));

    /* One slot, very often. */
    uint64_t previous = first;
    for (uint32_t i = 0; i < 1u << 20; i++) {
        uint64_t bits = handles_add(&handles, HANDLE_REGION, &object);
        assert_true(bits != previous);
        assert_null(handles_get(&handles, previous, HANDLE_REGION));
        handles_remove(&handles, bits);
        previous = bits;
    }
    assert_null(handles_get(&handles, first, HANDLE_ENDPOINT));
    assert_int_equal(handles.used, 1);
    handles_free(&handles);
    handles_free(&others);
}

/* Of more contexts than any number in a handle could tell apart beside a generation. */
static void handles_of_other_contexts_are_never_valid(void **state)
{
    (void)state;
    struct handles handles, others;
    int object;
    handles_init(&handles);
    uint64_t first = handles_add(&handles, HANDLE_ENDPOINT, &object);
    for (uint32_t i = 0; i < 1u << 17; i++) {
        handles_init(&others);
        assert_true(handles_add(&others, HANDLE_ENDPOINT, &object) != 0);
        assert_null(handles_get(&others, first, HANDLE_ENDPOINT));
        handles_free(&others);
    }
    handles_free(&handles);
}

static void many_handles(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    static uint64_t bits[COUNT];
    static int objects[COUNT];
    struct handles handles;
    handles_init(&handles);
    for (int i = 0; i < COUNT; i++) {
        bits[i] = handles_add(&handles, HANDLE_ENDPOINT, &objects[i]);
    }
    for (int i = 0; i < COUNT; i += 2) {
        handles_remove(&handles, bits[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_ptr_equal(handles_get(&handles, bits[i], HANDLE_ENDPOINT),
                         i % 2 ? &objects[i] : NULL);
    }
    handles_free(&handles);
}

/* ---- Table ----------------------------------------------------------------------------------- */

static void the_table_finds_what_was_set(void **state)
{
    (void)state;
    static struct table table;
    static int values[64];
    uint32_t keys[64];
    table_init(&table);
    for (uint32_t i = 0; i < 64; i++) {
        keys[i] = (i * 262147u + i) & TABLE_KEY_MAX;
        assert_null(table_get(&table, keys[i]));
        assert_true(table_set(&table, keys[i], &values[i]));
    }
    for (uint32_t i = 0; i < 64; i++) {
        assert_ptr_equal(table_get(&table, keys[i]), &values[i]);
        assert_null(table_get(&table, keys[i] ^ 0x800));
    }
    assert_ptr_equal(table_get(&table, keys[3] | 0xff000000u), &values[3]); /* 24 bits count */
    table_clear(&table, keys[5]);
    table_clear(&table, 0x123456);
    assert_null(table_get(&table, keys[5]));
    table_free(&table);
    assert_null(table_get(&table, keys[1]));
}

/* ---- Sparse arrays --------------------------------------------------------------------------- */

/* How many pages of it take memory. */
static size_t pages_touched(void *memory, size_t bytes)
{
    unsigned char there[1024];
    const size_t pages = (bytes + page_bytes() - 1) / page_bytes();
    size_t count = 0;
    assert_true(pages <= sizeof(there));
    assert_int_equal(mincore(memory, bytes, there), 0);
    for (size_t i = 0; i < pages; i++) {
        count += there[i] & 1;
    }
    return count;
}

static void a_sparse_array_takes_the_pages_that_are_written(void **state)
{
    (void)state;
    const size_t bytes = 1024 * page_bytes(); /* more than a huge page */
    uint8_t *array = sparse_alloc(bytes / 16, 16);
    assert_non_null(array);
    assert_int_equal(pages_touched(array, bytes), 0);
    array[0] = 1;
    array[700 * page_bytes() + 5] = 1;
    assert_int_equal(pages_touched(array, bytes), 2);
    assert_int_equal(array[bytes - 1], 0);
    sparse_free(array, bytes / 16, 16);
    assert_int_equal(mincore(array, bytes, (unsigned char[1024]){0}), -1);
    sparse_free(NULL, bytes / 16, 16);
}

static void a_small_sparse_array_is_of_lines(void **state)
{
    (void)state;
    for (size_t count = 1; count < page_bytes() / 16; count *= 3) {
        uint8_t *array = sparse_alloc(count, 16);
        assert_non_null(array);
        assert_int_equal((uintptr_t)array % CACHE_LINE_BYTES, 0);
        for (size_t i = 0; i < 16 * count; i++) {
            assert_int_equal(array[i], 0);
        }
        memset(array, 1, 16 * count);
        sparse_free(array, count, 16);
    }
    assert_null(sparse_alloc(SIZE_MAX / 8, 16));
}

/* ---- Log ------------------------------------------------------------------------------------- */

static void the_log_takes_its_level_from_the_environment(void **state)
{
    (void)state;
    static struct log log;
    crpc_log_entry entry;
    setenv("COPYRPC_LOG", "error", 1);
    log_init(&log, CRPC_LOG_OFF);
    assert_int_equal(log.stderr_level, CRPC_LOG_ERROR);
    setenv("COPYRPC_LOG", "nonsense", 1);
    log_init(&log, CRPC_LOG_WARNING);
    assert_int_equal(log.stderr_level, CRPC_LOG_WARNING);
    unsetenv("COPYRPC_LOG");
    log_init(&log, CRPC_LOG_WARNING);
    assert_int_equal(log.stderr_level, CRPC_LOG_OFF);
    log_write(&log, CRPC_LOG_INFO, "too fine");
    log_write(&log, CRPC_LOG_ERROR, "%d of %s", 3, "them");
    assert_int_equal(log_read(&log, &entry, 1), 1);
    assert_string_equal(entry.message, "3 of them");
    assert_int_equal(entry.level, CRPC_LOG_ERROR);
    assert_int_equal(log_read(&log, &entry, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wheel_agrees_with_a_list),
        cmocka_unit_test(an_expired_timer_can_still_be_cleared),
        cmocka_unit_test(handles_are_never_valid_twice),
        cmocka_unit_test(handles_of_other_contexts_are_never_valid),
        cmocka_unit_test(many_handles),
        cmocka_unit_test(the_table_finds_what_was_set),
        cmocka_unit_test(a_sparse_array_takes_the_pages_that_are_written),
        cmocka_unit_test(a_small_sparse_array_is_of_lines),
        cmocka_unit_test(the_log_takes_its_level_from_the_environment),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fabric.c: fabrics, the default one too: options, planned failures, queue pair numbers. */
#include "nic/memory/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct memory_fabric *default_fabric;

/* All but what makes a queue pair dynamic. */
#define MEMORY_OPERATIONS                                                                          \
    .driver = NIC_DRIVER_MEMORY, .name = "memory", .query = memory_query,                          \
    .open = memory_open_default, .close = memory_close, .domain_create = memory_domain_create,     \
    .domain_destroy = memory_domain_destroy, .memory_register = memory_register,                   \
    .memory_register_dmabuf = memory_register_dmabuf, .memory_deregister = memory_deregister,      \
    .window_create = memory_window_create, .window_destroy = memory_window_destroy,                \
    .queue_pair_begin = memory_queue_pair_begin, .queue_pair_make = memory_queue_pair_make,        \
    .queue_pair_adopt = memory_queue_pair_adopt, .queue_pair_settle = memory_queue_pair_settle,    \
    .queue_pair_drop = memory_queue_pair_drop, .queue_pair_unmake = memory_queue_pair_unmake,      \
    .queue_pair_create_dynamic = memory_queue_pair_create_dynamic,                                 \
    .queue_pair_destroy = memory_queue_pair_destroy,                                               \
    .queue_pair_address = memory_queue_pair_address,                                               \
    .queue_pair_connect = memory_queue_pair_connect, .queue_pair_fail = memory_queue_pair_fail,    \
    .post_write_immediate = memory_post_write_immediate, .post_written = memory_post_written,      \
    .post_write = memory_post_write, .post_foreign_write = memory_post_foreign_write,              \
    .post_read = memory_post_read, .post_pieces = memory_post_pieces,                              \
    .ring_doorbell = memory_ring_doorbell, .poll = memory_poll, .refill = memory_refill,           \
    .arm = memory_arm, .disarm = memory_disarm, .queues = &memory_queue_operations

const struct nic_operations nic_memory_operations = {
    MEMORY_OPERATIONS,
    .post_atomic = memory_post_atomic,
    .fence_last = memory_fence_last,
    .post_bind = memory_post_bind,
    .post_invalidate = memory_post_invalidate,
};

const struct nic_operations nic_memory_dynamic_operations = {
    MEMORY_OPERATIONS,
    .take_room = memory_take_room,
};

void memory_abort(const char *function, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "in-memory NIC: %s: ", function);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

void *memory_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);

    memory_require(memory, "no memory for %zu times %zu bytes", count, bytes);
    return memory;
}

static void options_default(struct memory_fabric_options *options)
{
    *options = (struct memory_fabric_options){
        .mode = MEMORY_SCHEDULED,
        .devices = 2,
        .receive_depth_max = 32768,
        .send_completion_depth_max = 4194304,
        .message_bytes_max = NIC_MESSAGE_BYTES_MAX,
        .queue_pairs_max = NUMBER_SLOTS,
        .first_number = 17,
        .retry_steps = 1000,
        .receiver_not_ready_steps = 16,
        .pieces_max = 4,
        .unit_bytes = 8,
        .transfer_weight = 4,
        .receive_weight = 2,
        .acknowledge_weight = 1,
        .delay_percent = 5,
        .delay_steps = 50,
    };
    memory_devices_default(options);
}

struct memory_fabric *memory_fabric_create(uint64_t seed)
{
    struct memory_fabric *fabric = memory_allocate(1, sizeof(*fabric));

    random_seed(&fabric->random, seed);
    options_default(&fabric->options);
    fabric->by_number = memory_allocate(NUMBER_SLOTS, sizeof(*fabric->by_number));
    fabric->freed_numbers = memory_allocate(NUMBER_SLOTS, sizeof(*fabric->freed_numbers));
    fabric->active = memory_allocate(NUMBER_SLOTS, sizeof(*fabric->active));
    return fabric;
}

void memory_fabric_destroy(struct memory_fabric *fabric)
{
    if (!fabric) {
        return;
    }
    while (fabric->nics) {
        memory_nic_free(fabric->nics);
    }
    if (fabric == default_fabric) {
        default_fabric = NULL;
    }
    free(fabric->by_number);
    free(fabric->freed_numbers);
    free(fabric->active);
    free(fabric);
}

struct memory_fabric *memory_fabric_default(void)
{
    if (!default_fabric) {
        default_fabric = memory_fabric_create(1);
        default_fabric->options.mode = MEMORY_IMMEDIATE;
        default_fabric->options.inline_bytes_max = 220;
    }
    return default_fabric;
}

void memory_fabric_reset_default(void)
{
    memory_fabric_destroy(default_fabric);
}

struct memory_fabric_options *memory_fabric_options(struct memory_fabric *fabric)
{
    return &fabric->options;
}

const struct memory_fabric_counters *memory_fabric_counters(const struct memory_fabric *fabric)
{
    return &fabric->counters;
}

void memory_fabric_watch(struct memory_fabric *fabric, memory_fabric_landing *callback,
                         void *argument)
{
    fabric->landing = callback;
    fabric->landing_argument = argument;
}

/* ---- Planned failures ------------------------------------------------------------------------ */

void memory_fabric_set_failures(struct memory_fabric *fabric, enum memory_failure kind,
                                uint32_t nth, int32_t status)
{
    memory_require(kind < MEMORY_FAIL_KINDS, "failure kind %d is unknown", (int)kind);
    memory_require(nth == 0 || status < 0, "a failure needs a status below 0, not %d", status);
    fabric->failures[kind].countdown = nth;
    fabric->failures[kind].status = status;
}

bool memory_fabric_failure_pending(const struct memory_fabric *fabric, enum memory_failure kind)
{
    memory_require(kind < MEMORY_FAIL_KINDS, "failure kind %d is unknown", (int)kind);
    return fabric->failures[kind].countdown > 0;
}

bool memory_planned_failure(struct memory_fabric *fabric, enum memory_failure kind, int32_t *status,
                            crpc_error *error)
{
    static const char *const names[MEMORY_FAIL_KINDS] = {
        [MEMORY_FAIL_OPEN] = "open",
        [MEMORY_FAIL_REGISTER] = "memory_register",
        [MEMORY_FAIL_CREATE] = "queue_pair_create",
        [MEMORY_FAIL_CONNECT] = "queue_pair_connect",
        [MEMORY_FAIL_ARM] = "arm",
        [MEMORY_FAIL_DOMAIN] = "domain_create",
        [MEMORY_FAIL_WINDOW] = "window",
    };
    struct memory_planned_failure *planned = &fabric->failures[kind];

    if (likely(planned->countdown == 0) || --planned->countdown > 0) {
        return false;
    }
    *status = error_set(error, planned->status, 0, "the in-memory NIC was told to fail this %s",
                        names[kind]);
    return true;
}

/* ---- Queue pair numbers ---------------------------------------------------------------------- */

struct nic_queue_pair *memory_fabric_find(struct memory_fabric *fabric, uint32_t number)
{
    struct memory_queue_pair *queue_pair = memory_find(fabric, number);

    return queue_pair ? &queue_pair->base : NULL;
}

uint32_t memory_number_take(struct memory_fabric *fabric)
{
    uint32_t number;

    if (fabric->counters.queue_pairs >= minimum(fabric->options.queue_pairs_max, NUMBER_SLOTS)) {
        return 0;
    }
    while (fabric->options.reuse_numbers && fabric->freed_count > 0) {
        number = fabric->freed_numbers[--fabric->freed_count];
        if (!fabric->by_number[number % NUMBER_SLOTS]) {
            return number;
        }
    }
    if (fabric->next_number == 0) {
        fabric->next_number = fabric->options.first_number;
    }
    do { /* 0 and 1 belong to management */
        number = fabric->next_number++ & NUMBER_MASK;
    } while (number < 2 || fabric->by_number[number % NUMBER_SLOTS]);
    return number;
}

void memory_number_give_back(struct memory_fabric *fabric, uint32_t number)
{
    if (fabric->options.reuse_numbers && fabric->freed_count < NUMBER_SLOTS) {
        fabric->freed_numbers[fabric->freed_count++] = number;
    }
}

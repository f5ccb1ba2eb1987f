/* queues.c: see queues.h. */
#include "queues.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "place.h"

#define ALL_RIGHTS                                                                                 \
    (CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |                \
     CRPC_ACCESS_REMOTE_ATOMIC)

struct side here, there;
char queues_address[64];

void need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        fail_msg("%s: %s", crpc_status_name(status), error->message);
    }
}

/* ---- Both sides ------------------------------------------------------------------------------ */

static void open_side(struct side *side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info info = {.struct_size = sizeof(info)};
    crpc_context_options options = {.struct_size = sizeof(options), .flags = CRPC_CONTEXT_QUEUES};
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    if (place_compresses()) {
        options.features = CRPC_FEATURE_CQE_COMPRESSION;
    }
    memset(side, 0, sizeof(*side));
    need(crpc_context_open(&options, &side->context, &error), &error);
    side->memory = aligned_alloc(4096, QUEUES_BYTES);
    assert_non_null(side->memory);
    for (uint32_t i = 0; i < QUEUES_BYTES; i++) {
        side->memory[i] = (uint8_t)(i * 13 + (side == &here));
    }
    need(crpc_region_register(side->context, side->memory, QUEUES_BYTES, ALL_RIGHTS, &side->region,
                              &error),
         &error);
    assert_int_equal(crpc_region_get_info(side->context, side->region, &info), CRPC_OK);
    side->remote_key = info.remote_key;
}

int queues_open(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    const crpc_listener_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_LISTENER_QUEUES};
    open_side(&here);
    open_side(&there);
    need(crpc_listener_open(there.context, place_at(0, "0"), &options, &listener, &error), &error);
    assert_int_equal(crpc_listener_get_info(there.context, listener, &info), CRPC_OK);
    memcpy(queues_address, info.address, sizeof(queues_address));
    return 0;
}

int queues_close(void **state)
{
    (void)state;
    assert_int_equal(crpc_context_close(here.context), CRPC_OK);
    assert_int_equal(crpc_context_close(there.context), CRPC_OK);
    free(here.memory);
    free(there.memory);
    return 0;
}

void pump(struct side *side)
{
    int32_t count =
        crpc_poll(side->context, &side->kept[side->kept_count], QUEUES_KEPT_MAX - side->kept_count);
    assert_true(count >= 0);
    side->kept_count += (uint32_t)count;
    assert_true(side->kept_count < QUEUES_KEPT_MAX);
}

bool take_kept(struct side *side, uint8_t kind, crpc_completion *found)
{
    for (uint32_t i = 0; i < side->kept_count; i++) {
        if (side->kept[i].kind == kind) {
            *found = side->kept[i];
            side->kept_count--;
            memmove(&side->kept[i], &side->kept[i + 1],
                    (side->kept_count - i) * sizeof(side->kept[0]));
            return true;
        }
    }
    return false;
}

crpc_completion await(struct side *side, uint8_t kind)
{
    const time_t end = time(NULL) + QUEUES_SECONDS_MAX;
    crpc_completion found = {0};
    while (!take_kept(side, kind, &found)) {
        if (time(NULL) >= end) {
            fail_msg("completion %u did not come in %d s", kind, QUEUES_SECONDS_MAX);
        }
        pump(&here);
        pump(&there);
    }
    return found;
}

crpc_completion await_work(struct side *side, uint8_t opcode, uint64_t user_data, int32_t status)
{
    crpc_completion done = await(side, CRPC_COMPLETION_WORK);
    if (done.status != status || done.method != opcode || done.user_data != user_data) {
        fail_msg("opcode %u of user_data %llu: %s, and not %u of %llu: %s", done.method,
                 (unsigned long long)done.user_data, crpc_status_name(done.status), opcode,
                 (unsigned long long)user_data, crpc_status_name(status));
    }
    return done;
}

crpc_queue_options queues_options(void)
{
    return (crpc_queue_options){.struct_size = sizeof(crpc_queue_options),
                                .sends = 64,
                                .send_pieces = 4,
                                .receives = 64,
                                .receive_pieces = 4,
                                .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                .retry_timeout = place_retry_timeout()};
}

void connect_with(const crpc_queue_options *ours, const crpc_queue_options *theirs)
{
    crpc_error error = {.struct_size = sizeof(error)};
    need(crpc_queue_connect(here.context, queues_address, ours, &here.queue, &error), &error);
    there.queue.bits = await(&there, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
    need(crpc_queue_accept(there.context, there.queue, theirs, &error), &error);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
}

void connect_both(void)
{
    const crpc_queue_options options = queues_options();
    connect_with(&options, &options);
}

void close_queues(void)
{
    assert_int_equal(crpc_queue_close(here.context, here.queue), CRPC_OK);
    assert_int_equal(crpc_queue_close(there.context, there.queue), CRPC_OK);
}

crpc_queue_info info_of(struct side *side)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(side->context, side->queue, &info), CRPC_OK);
    return info;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

uint64_t address_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

crpc_queue_op op_of(const struct side *side, uint8_t opcode, uint64_t user_data, uint32_t from,
                    uint32_t bytes)
{
    const struct side *other = side == &here ? &there : &here;
    crpc_queue_op op = {.opcode = opcode, .user_data = user_data};
    if (opcode <= CRPC_QUEUE_READ || opcode == CRPC_QUEUE_RECEIVE) {
        op.region = side->region;
        op.address = address_of(side->memory + from);
        op.bytes = bytes;
    }
    if (opcode >= CRPC_QUEUE_WRITE && opcode <= CRPC_QUEUE_FETCH_ADD) {
        op.remote_key = other->remote_key;
        op.remote_address = address_of(other->memory + from);
    }
    return op;
}

void submit(struct side *side, const crpc_queue_op *ops, uint32_t count)
{
    int32_t reason;
    int32_t taken = crpc_queue_submit(side->context, side->queue, ops, count, NULL, 0, &reason);
    if (taken != (int32_t)count) {
        fail_msg("%d of %u ops were taken: %s", taken, count, crpc_status_name(reason));
    }
}

void one(struct side *side, uint8_t opcode, uint64_t user_data, uint32_t from, uint32_t bytes)
{
    const crpc_queue_op op = op_of(side, opcode, user_data, from, bytes);
    submit(side, &op, 1);
}

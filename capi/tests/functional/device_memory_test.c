/* device_memory_test.c: payloads in memory of another device, which the processor cannot touch, over a device, in one
 * process: calls, arenas, lanes, queues and channels, of any length. The memory is a dma-buf that this process has
 * mapped nowhere near the address that it says, or a mapping without any right, which simnic takes for a GPU's memory
 * behind nvidia-peermem. Whoever touches it, gets SIGSEGV. The test looks at it through a mapping of its own.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "kept.h"
#include "place.h"

#define SECONDS_MAX 60
#define BYTES (256u << 10)
#define ALL_RIGHTS                                                                                 \
    (CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |                \
     CRPC_ACCESS_REMOTE_ATOMIC)

enum kind { DMABUF, PEER_MEMORY };

struct side {
    crpc_context *context;
    crpc_region region;
    uint64_t address; /* of the region: nobody can touch it there */
    uint8_t *bytes;   /* the same memory, for the test alone */
    uint64_t handle;  /* of the connection under test */
    struct kept kept;
};

static struct side here, there;

/* From what is inline in any WQE and in a CQE to what no payload is that is copied. */
static const uint32_t sizes[] = {1, 16, 32, 60, 64, 192, 220, 1000, 2047, 2048, 10000, 100000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        fail_msg("%s: %s", crpc_status_name(status), error->message);
    }
}

/* ---- Both sides ------------------------------------------------------------------------------ */

static void open_memory(struct side *side, enum kind kind)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int fd = memfd_create("device", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    side->bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *address = kind == DMABUF
                        ? mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                        : mmap(NULL, BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    assert_true(side->bytes != MAP_FAILED && address != MAP_FAILED);
    side->address = (uint64_t)(uintptr_t)address;
    need(kind == DMABUF
             ? crpc_region_register_dmabuf(side->context, fd, 0, BYTES, side->address, ALL_RIGHTS,
                                           &side->region, &error)
             : crpc_region_register(side->context, address, BYTES, ALL_RIGHTS | CRPC_ACCESS_DEVICE,
                                    &side->region, &error),
         &error);
    close(fd);
}

static void open_side(struct side *side, enum kind kind)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES};
    memset(side, 0, sizeof(*side));
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    if (place_compresses()) {
        options.features = CRPC_FEATURE_CQE_COMPRESSION;
    }
    need(crpc_context_open(&options, &side->context, &error), &error);
    open_memory(side, kind);
}

static void close_side(struct side *side)
{
    assert_int_equal(crpc_context_close(side->context), CRPC_OK);
    munmap(side->bytes, BYTES);
    munmap((void *)(uintptr_t)side->address, BYTES);
}

static int open_both(void **state)
{
    const enum kind kind = *state ? PEER_MEMORY : DMABUF;
    open_side(&here, kind);
    open_side(&there, kind);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    close_side(&here);
    close_side(&there);
    return 0;
}

static void keep(struct side *side)
{
    kept_poll(&side->kept, side->context);
}

/* Polls this side until it has such a completion, whose view is valid then; before that the other. */
static crpc_completion await(struct side *side, uint8_t kind)
{
    crpc_completion found = {0};
    time_t end = time(NULL) + SECONDS_MAX;
    while (!kept_take(&side->kept, kind, &found)) {
        if (time(NULL) >= end) {
            fail_msg("completion %u did not come in %d s", kind, SECONDS_MAX);
        }
        keep(side == &here ? &there : &here);
        keep(side);
    }
    return found;
}

static void await_connected(void)
{
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
}

/* Fills the sender's memory, and empties the other's. */
static void prepare(struct side *from, struct side *to, uint32_t round)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        from->bytes[i] = (uint8_t)(i * 7 + round * 31 + 1);
    }
    memset(to->bytes, 0, BYTES);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void connect_endpoints(uint32_t flags)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = flags,
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .retry_timeout = place_retry_timeout()};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    struct side *const sides[2] = {&here, &there};
    uint32_t bytes[2];
    for (int i = 0; i < 2; i++) {
        crpc_endpoint endpoint;
        bytes[i] = sizeof(blobs[i]);
        need(
            crpc_endpoint_blob(sides[i]->context, &options, &endpoint, blobs[i], &bytes[i], &error),
            &error);
        sides[i]->handle = endpoint.bits;
    }
    for (int i = 0; i < 2; i++) {
        need(crpc_endpoint_join(sides[i]->context, (crpc_endpoint){sides[i]->handle}, blobs[!i],
                                bytes[!i], &error),
             &error);
    }
    await_connected();
}

static void submit_rpc(struct side *side, const crpc_op *op)
{
    int32_t reason;
    while (crpc_submit(side->context, op, 1, NULL, 0, &reason) != 1) {
        assert_int_equal(reason, CRPC_E_AGAIN);
        keep(&here);
        keep(&there);
    }
}

static void expect_view(struct side *to, const struct side *from, const crpc_completion *got,
                        uint32_t bytes)
{
    assert_int_equal(got->payload_bytes, bytes);
    if (!(got->flags & CRPC_COMPLETION_PLACED)) {
        assert_memory_equal((const void *)(uintptr_t)got->payload, from->bytes + 512, bytes);
        return;
    }
    assert_true(bytes >= 2048);
    assert_memory_equal(to->bytes + (got->payload - to->address), from->bytes + 512, bytes);
    uint8_t copy[1];
    assert_int_equal(crpc_retain(to->context, got, copy, sizeof(copy)), CRPC_E_STALE);
    assert_int_equal(crpc_arena_give_back(to->context, got->endpoint, got->payload), CRPC_OK);
}

/* A call and its reply, both from device memory. */
static void round_trip(uint32_t bytes, uint32_t round)
{
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .flags = CRPC_OP_REGION,
                  .endpoint = {here.handle},
                  .region = here.region,
                  .payload_offset = 512,
                  .payload_bytes = bytes,
                  .reply_bytes_max = bytes};
    prepare(&here, &there, round);
    submit_rpc(&here, &op);
    const crpc_completion request = await(&there, CRPC_COMPLETION_REQUEST);
    expect_view(&there, &here, &request, bytes);
    prepare(&there, &here, round + 1);
    op = (crpc_op){.opcode = CRPC_OP_REPLY,
                   .flags = CRPC_OP_REGION,
                   .endpoint = {there.handle},
                   .token = request.token,
                   .region = there.region,
                   .payload_offset = 512,
                   .payload_bytes = bytes};
    submit_rpc(&there, &op);
    const crpc_completion response = await(&here, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.status, CRPC_OK);
    expect_view(&here, &there, &response, bytes);
    assert_int_equal(await(&there, CRPC_COMPLETION_REPLY).status, CRPC_OK);
}

static void calls_and_replies(void **state)
{
    (void)state;
    connect_endpoints(0);
    for (uint32_t i = 0; i < SIZES; i++) {
        round_trip(sizes[i], i);
    }
}

/* Requests and responses land there, too. */
static void arenas(void **state)
{
    (void)state;
    struct side *const sides[2] = {&here, &there};
    crpc_error error = {.struct_size = sizeof(error)};
    connect_endpoints(0);
    for (int i = 0; i < 2; i++) {
        need(crpc_arena_lend(sides[i]->context, (crpc_endpoint){sides[i]->handle}, sides[i]->region,
                             131072, 65536, 2, &error),
             &error);
    }
    for (uint32_t i = 0; i < SIZES; i++) {
        if (sizes[i] <= 65536) {
            round_trip(sizes[i], i);
        }
    }
}

/* A dma-buf that the processor can read: what needs a copy is possible. */
static void a_dmabuf_of_the_host(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info info = {.struct_size = sizeof(info)};
    crpc_region region;
    uint8_t copy[4096];
    int fd = memfd_create("host", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    assert_int_equal(crpc_region_register_dmabuf(there.context, fd, 0, BYTES, address,
                                                 CRPC_ACCESS_DEVICE | CRPC_ACCESS_HOST, &region,
                                                 &error),
                     CRPC_E_INVALID);
    need(crpc_region_register_dmabuf(there.context, fd, 0, BYTES, address,
                                     CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_HOST, &region, &error),
         &error);
    close(fd);
    assert_int_equal(crpc_region_get_info(there.context, region, &info), CRPC_OK);
    assert_int_equal(info.access, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_HOST);
    connect_endpoints(0);
    need(crpc_arena_lend(there.context, (crpc_endpoint){there.handle}, region, 0, 4096, 1, &error),
         &error);
    bool placed = false;
    for (uint32_t round = 0; !placed && round < 1000;
         round++) { /* until the peer has heard of it */
        const crpc_op call = {.opcode = CRPC_OP_CALL,
                              .flags = CRPC_OP_REGION,
                              .endpoint = {here.handle},
                              .region = here.region,
                              .payload_bytes = 4096};
        prepare(&here, &there, round);
        submit_rpc(&here, &call);
        const crpc_completion request = await(&there, CRPC_COMPLETION_REQUEST);
        placed = request.flags & CRPC_COMPLETION_PLACED;
        assert_int_equal(crpc_retain(there.context, &request, copy, sizeof(copy)), sizeof(copy));
        assert_memory_equal(copy, here.bytes, sizeof(copy));
        const crpc_op drop = {.opcode = CRPC_OP_DROP,
                              .flags = CRPC_OP_QUIET,
                              .endpoint = {there.handle},
                              .token = request.token};
        submit_rpc(&there, &drop);
        await(&here, CRPC_COMPLETION_RESPONSE);
    }
    assert_true(placed);
    assert_int_equal(crpc_endpoint_close(there.context, (crpc_endpoint){there.handle}), CRPC_OK);
    munmap(memory, BYTES);
}

/* The peer takes no request, so the device reads nothing: the calls end by their deadlines, as others. */
static void calls_that_are_never_sent(void **state)
{
    (void)state;
    int32_t reason = CRPC_OK;
    uint32_t accepted = 0, refused = 0;
    connect_endpoints(0);
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = CRPC_OP_REGION,
                        .endpoint = {here.handle},
                        .region = here.region,
                        .payload_bytes = 1000,
                        .timeout_ns = 20000000};
    while (refused < 1000) { /* what is refused first may only wait for the device */
        int32_t taken = crpc_submit(here.context, &op, 1, NULL, 0, &reason);
        assert_true(taken == 1 || reason == CRPC_E_AGAIN);
        accepted += (uint32_t)taken;
        refused = taken == 1 ? 0 : refused + 1;
        keep(&here);
    }
    for (uint32_t ended = 0; ended < accepted; ended++) {
        crpc_completion done = await(&here, CRPC_COMPLETION_RESPONSE);
        assert_int_equal(done.status, CRPC_E_TIMEOUT);
    }
}

/* Nobody can copy the payload to send it once more. */
static void repeatable_calls_are_refused(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_RECONNECT,
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    crpc_endpoint endpoint;
    int32_t reason;
    need(crpc_listener_open(there.context, place_at(0, "0"), NULL, &listener, &error), &error);
    assert_int_equal(crpc_listener_get_info(there.context, listener, &info), CRPC_OK);
    need(crpc_endpoint_connect(here.context, info.address, &options, &endpoint, &error), &error);
    here.handle = endpoint.bits;
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .flags = CRPC_OP_REGION | CRPC_OP_IDEMPOTENT,
                  .endpoint = endpoint,
                  .region = here.region,
                  .payload_bytes = 16};
    assert_int_equal(crpc_submit(here.context, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_UNSUPPORTED);
    op.flags = CRPC_OP_REGION; /* it cannot wait for the connection, as that takes a copy */
    assert_int_equal(crpc_submit(here.context, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_AGAIN);
    endpoint = await(&there, CRPC_COMPLETION_CONNECT_REQUEST).endpoint;
    there.handle = endpoint.bits;
    need(crpc_endpoint_accept(there.context, endpoint, NULL, &error), &error);
    await_connected();
    for (uint32_t i = 0; i < SIZES; i++) {
        round_trip(sizes[i], i);
    }
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

static crpc_completion lane(struct side *side, const crpc_lane_op *op, const crpc_piece *pieces,
                            uint32_t count)
{
    int32_t reason;
    while (crpc_lane_submit(side->context, (crpc_endpoint){side->handle}, op, 1, pieces, count,
                            &reason) != 1) {
        assert_int_equal(reason, CRPC_E_AGAIN);
        await(side, CRPC_COMPLETION_ROOM);
    }
    const crpc_completion done = await(side, CRPC_COMPLETION_WORK);
    assert_int_equal(done.method, op->opcode);
    assert_int_equal(done.status, CRPC_OK);
    return done;
}

static crpc_grant grant_all(void)
{
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_grant grant;
    const crpc_lane_op give = {.opcode = CRPC_LANE_GRANT,
                               .access = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                                         CRPC_ACCESS_REMOTE_ATOMIC,
                               .bytes = BYTES,
                               .region = there.region,
                               .address = there.address};
    const crpc_grant given = {lane(&there, &give, NULL, 0).token};
    assert_int_equal(crpc_grant_get(there.context, given, bytes), CRPC_OK);
    /* A call would tell that there is a lane here, too. */
    const time_t end = time(NULL) + SECONDS_MAX;
    int32_t status;
    while ((status = crpc_grant_open(here.context, (crpc_endpoint){here.handle}, bytes,
                                     sizeof(bytes), &grant, &error)) == CRPC_E_AGAIN &&
           time(NULL) < end) {
        keep(&here);
        keep(&there);
    }
    need(status, &error);
    return grant;
}

static void lanes(void **state)
{
    (void)state;
    connect_endpoints(CRPC_ENDPOINT_LANE);
    const crpc_grant grant = grant_all();
    for (uint32_t i = 0; i < SIZES; i++) {
        crpc_lane_op op = {.opcode = CRPC_LANE_WRITE,
                           .bytes = sizes[i],
                           .region = here.region,
                           .address = here.address,
                           .grant = grant,
                           .offset = 64};
        prepare(&here, &there, i);
        lane(&here, &op, NULL, 0);
        assert_memory_equal(there.bytes + 64, here.bytes, sizes[i]);
        prepare(&there, &here, i);
        op.opcode = CRPC_LANE_READ;
        lane(&here, &op, NULL, 0);
        assert_memory_equal(here.bytes, there.bytes + 64, sizes[i]);
    }
    const crpc_piece pieces[2] = {{here.region, here.address, 16, 0},
                                  {here.region, here.address + 1000, 16, 0}};
    crpc_lane_op op = {
        .opcode = CRPC_LANE_WRITE, .flags = CRPC_LANE_PIECES, .bytes = 2, .grant = grant};
    prepare(&here, &there, 0);
    lane(&here, &op, pieces, 2);
    assert_memory_equal(there.bytes, here.bytes, 16);
    assert_memory_equal(there.bytes + 16, here.bytes + 1000, 16);
    op.opcode = CRPC_LANE_READ;
    prepare(&there, &here, 0);
    lane(&here, &op, pieces, 2);
    assert_memory_equal(here.bytes + 1000, there.bytes + 16, 16);
    op = (crpc_lane_op){.opcode = CRPC_LANE_FETCH_ADD, .grant = grant, .operand = 5};
    memset(there.bytes, 0, 8);
    lane(&here, &op, NULL, 0);
    assert_int_equal(there.bytes[0], 5);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static void connect_queues(crpc_queue receive_queue)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                  .sends = 16,
                                  .receives = 16,
                                  .send_pieces = 2,
                                  .receive_pieces = 2,
                                  .inline_bytes = 60};
    struct side *const sides[2] = {&here, &there};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2];
    for (int i = 0; i < 2; i++) {
        crpc_queue queue;
        bytes[i] = sizeof(blobs[i]);
        if (i == 1 && receive_queue.bits) {
            options.receive_queue = receive_queue;
            options.receives = options.receive_pieces = 0;
        }
        need(crpc_queue_blob(sides[i]->context, &options, &queue, blobs[i], &bytes[i], &error),
             &error);
        sides[i]->handle = queue.bits;
    }
    for (int i = 0; i < 2; i++) {
        need(crpc_queue_join(sides[i]->context, (crpc_queue){sides[i]->handle}, blobs[!i],
                             bytes[!i], &error),
             &error);
    }
    await_connected();
}

static void submit_queue(struct side *side, uint64_t queue, const crpc_queue_op *op,
                         const crpc_piece *pieces, uint32_t count)
{
    int32_t reason;
    if (crpc_queue_submit(side->context, (crpc_queue){queue}, op, 1, pieces, count, &reason) != 1) {
        fail_msg("opcode %u: %s", op->opcode, crpc_status_name(reason));
    }
}

static void await_work(struct side *side, uint8_t opcode)
{
    const crpc_completion done = await(side, CRPC_COMPLETION_WORK);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.status, CRPC_OK);
}

static void messages_of(uint64_t receives_at, uint32_t bytes)
{
    const crpc_queue_op receive = {.opcode = CRPC_QUEUE_RECEIVE,
                                   .region = there.region,
                                   .address = there.address,
                                   .bytes = bytes};
    const crpc_queue_op send = {
        .opcode = CRPC_QUEUE_SEND, .region = here.region, .address = here.address, .bytes = bytes};
    prepare(&here, &there, bytes);
    submit_queue(&there, receives_at, &receive, NULL, 0);
    submit_queue(&here, here.handle, &send, NULL, 0);
    await_work(&there, CRPC_QUEUE_RECEIVE);
    await_work(&here, CRPC_QUEUE_SEND);
    assert_memory_equal(there.bytes, here.bytes, bytes);
}

static void queues(void **state)
{
    (void)state;
    crpc_region_info info = {.struct_size = sizeof(info)};
    connect_queues((crpc_queue){0});
    assert_int_equal(crpc_region_get_info(there.context, there.region, &info), CRPC_OK);
    for (uint32_t i = 0; i < SIZES; i++) {
        messages_of(there.handle, sizes[i]);
        crpc_queue_op op = {.opcode = CRPC_QUEUE_WRITE,
                            .region = here.region,
                            .address = here.address,
                            .bytes = sizes[i],
                            .remote_key = info.remote_key,
                            .remote_address = there.address};
        prepare(&here, &there, i);
        submit_queue(&here, here.handle, &op, NULL, 0);
        await_work(&here, CRPC_QUEUE_WRITE);
        assert_memory_equal(there.bytes, here.bytes, sizes[i]);
        op.opcode = CRPC_QUEUE_READ;
        prepare(&there, &here, i);
        submit_queue(&here, here.handle, &op, NULL, 0);
        await_work(&here, CRPC_QUEUE_READ);
        assert_memory_equal(here.bytes, there.bytes, sizes[i]);
    }
    const crpc_piece from[2] = {{here.region, here.address, 16, 0},
                                {here.region, here.address + 1000, 16, 0}};
    const crpc_piece to[2] = {{there.region, there.address, 16, 0},
                              {there.region, there.address + 2000, 16, 0}};
    crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE, .flags = CRPC_QUEUE_PIECES, .bytes = 2};
    prepare(&here, &there, 0);
    submit_queue(&there, there.handle, &op, to, 2);
    op.opcode = CRPC_QUEUE_SEND;
    submit_queue(&here, here.handle, &op, from, 2);
    await_work(&there, CRPC_QUEUE_RECEIVE);
    await_work(&here, CRPC_QUEUE_SEND);
    assert_memory_equal(there.bytes, here.bytes, 16);
    assert_memory_equal(there.bytes + 2000, here.bytes + 1000, 16);
}

static void shared_receives(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .kind = CRPC_QUEUE_KIND_SRQ,
                                        .receives = 16,
                                        .receive_pieces = 1};
    crpc_queue shared;
    need(crpc_queue_open(there.context, &options, &shared, &error), &error);
    connect_queues(shared);
    for (uint32_t i = 0; i < SIZES; i++) {
        messages_of(shared.bits, sizes[i]);
    }
}

/* What is to be copied is not the region's: nobody can name device memory so. */
static void inline_ops_name_no_region(void **state)
{
    (void)state;
    connect_queues((crpc_queue){0});
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_SEND,
                              .flags = CRPC_QUEUE_INLINE,
                              .region = here.region,
                              .address = here.address,
                              .bytes = 16};
    int32_t reason;
    assert_int_equal(
        crpc_queue_submit(here.context, (crpc_queue){here.handle}, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_INVALID);
}

/* ---- Channels -------------------------------------------------------------------------------- */

static void connect_channels(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_channel_options options = {.struct_size = sizeof(options),
                                          .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                          .retry_timeout = place_retry_timeout()};
    struct side *const sides[2] = {&here, &there};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2];
    for (int i = 0; i < 2; i++) {
        crpc_channel channel;
        bytes[i] = sizeof(blobs[i]);
        need(crpc_channel_blob(sides[i]->context, &options, &channel, blobs[i], &bytes[i], &error),
             &error);
        sides[i]->handle = channel.bits;
    }
    for (int i = 0; i < 2; i++) {
        need(crpc_channel_join(sides[i]->context, (crpc_channel){sides[i]->handle}, blobs[!i],
                               bytes[!i], &error),
             &error);
    }
    await_connected();
}

static void submit_channel(struct side *side, uint8_t opcode, uint8_t flags, uint32_t offset,
                           uint32_t bytes, uint32_t tag, crpc_channel_op *op)
{
    *op = (crpc_channel_op){.opcode = opcode,
                            .flags = flags,
                            .tag = tag,
                            .channel = {side->handle},
                            .region = side->region,
                            .address = side->address + offset,
                            .bytes = bytes};
}

static void channels(void **state)
{
    (void)state;
    crpc_channel_op ops[2];
    int32_t reason;
    connect_channels();
    for (uint32_t i = 0; i < SIZES; i++) {
        prepare(&here, &there, i);
        submit_channel(&there, CRPC_CHANNEL_RECEIVE, 0, 0, sizes[i], 0, &ops[0]);
        assert_int_equal(crpc_channel_submit(there.context, ops, 1, &reason), 1);
        submit_channel(&here, CRPC_CHANNEL_SEND, 0, 0, sizes[i], 0, &ops[0]);
        assert_int_equal(crpc_channel_submit(here.context, ops, 1, &reason), 1);
        assert_int_equal(await(&there, CRPC_COMPLETION_RECEIVED).status, CRPC_OK);
        assert_int_equal(await(&here, CRPC_COMPLETION_SENT).status, CRPC_OK);
        assert_memory_equal(there.bytes, here.bytes, sizes[i]);
    }
    /* A group: the first buffer's WRITE has no immediate. */
    prepare(&here, &there, 99);
    submit_channel(&there, CRPC_CHANNEL_RECEIVE, CRPC_CHANNEL_MORE, 0, 16, 1, &ops[0]);
    submit_channel(&there, CRPC_CHANNEL_RECEIVE, 0, 1000, 16, 2, &ops[1]);
    assert_int_equal(crpc_channel_submit(there.context, ops, 2, &reason), 2);
    submit_channel(&here, CRPC_CHANNEL_SEND, 0, 0, 16, 1, &ops[0]);
    submit_channel(&here, CRPC_CHANNEL_SEND, 0, 1000, 16, 2, &ops[1]);
    assert_int_equal(crpc_channel_submit(here.context, ops, 2, &reason), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(await(&there, CRPC_COMPLETION_RECEIVED).status, CRPC_OK);
        assert_int_equal(await(&here, CRPC_COMPLETION_SENT).status, CRPC_OK);
    }
    assert_memory_equal(there.bytes, here.bytes, 16);
    assert_memory_equal(there.bytes + 1000, here.bytes + 1000, 16);
}

static int peer_memory = 1;

#define OF_BOTH(test)                                                                              \
    cmocka_unit_test_setup_teardown(test, open_both, close_both),                                  \
    {                                                                                              \
#test " of peer memory", test, open_both, close_both, &peer_memory                         \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        OF_BOTH(calls_and_replies),
        OF_BOTH(arenas),
        cmocka_unit_test_setup_teardown(a_dmabuf_of_the_host, open_both, close_both),
        OF_BOTH(calls_that_are_never_sent),
        OF_BOTH(repeatable_calls_are_refused),
        OF_BOTH(lanes),
        OF_BOTH(queues),
        OF_BOTH(shared_receives),
        OF_BOTH(inline_ops_name_no_region),
        OF_BOTH(channels),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL); /* one alone, when another crashes */
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* queue_test.c: RC queues and SRQs of the public API, connected by blobs over the in-memory NIC: what each
 * op does and how it completes, sharing of a poll, sleeping, and the ends of queues. */
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fixture.h"

#define BYTES 4096u
#define ALL_RIGHTS                                                                                 \
    (CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |                \
     CRPC_ACCESS_REMOTE_ATOMIC)

static __attribute__((aligned(4096))) uint8_t here[BYTES], there[BYTES];
static crpc_region here_region, there_region;
static uint32_t remote_key; /* of `there` */
static crpc_queue left, right;

static crpc_region register_all(crpc_context *context, void *memory)
{
    crpc_region region;
    assert_int_equal(crpc_region_register(context, memory, BYTES, ALL_RIGHTS, &region, NULL),
                     CRPC_OK);
    return region;
}

static uint32_t key_of(crpc_context *context, crpc_region region)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_region_get_info(context, region, &info), CRPC_OK);
    assert_int_equal(info.access, ALL_RIGHTS);
    return info.remote_key;
}

static int open_pair(void **state)
{
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .user_data = 77,
                                        .sends = 64,
                                        .send_pieces = 4,
                                        .receives = 64,
                                        .receive_pieces = 4};
    int failed = fixture_open_with_queues(state);
    for (uint32_t i = 0; i < BYTES; i++) {
        here[i] = (uint8_t)(i * 7 + 1);
        there[i] = (uint8_t)(i * 11 + 3);
    }
    here_region = register_all(fixture.left, here);
    there_region = register_all(fixture.right, there);
    remote_key = key_of(fixture.right, there_region);
    fixture_queues(&options, &left, &right);
    return failed;
}

static uint64_t address_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static crpc_queue_op op_of(uint8_t opcode, uint64_t user_data)
{
    return (crpc_queue_op){.opcode = opcode, .flags = CRPC_QUEUE_SIGNAL, .user_data = user_data};
}

/* With `bytes` from here[0]; what names the peer's memory begins at there[0]. */
static crpc_queue_op left_op(uint8_t opcode, uint64_t user_data, uint32_t bytes)
{
    crpc_queue_op op = op_of(opcode, user_data);
    op.region = here_region;
    op.address = address_of(here);
    op.bytes = bytes;
    if (opcode == CRPC_QUEUE_WRITE || opcode == CRPC_QUEUE_WRITE_IMMEDIATE ||
        opcode == CRPC_QUEUE_READ) {
        op.remote_key = remote_key;
        op.remote_address = address_of(there);
    }
    return op;
}

static crpc_queue_op right_receive(uint64_t user_data, uint32_t from, uint32_t bytes)
{
    crpc_queue_op op = op_of(CRPC_QUEUE_RECEIVE, user_data);
    op.region = there_region;
    op.address = address_of(there) + from;
    op.bytes = bytes;
    return op;
}

static void submit(crpc_context *context, crpc_queue queue, const crpc_queue_op *ops,
                   uint32_t count)
{
    int32_t reason;
    assert_int_equal(crpc_queue_submit(context, queue, ops, count, NULL, 0, &reason), count);
    assert_int_equal(reason, CRPC_OK);
}

static crpc_completion await_work(crpc_context *context, uint8_t opcode, uint64_t user_data,
                                  int32_t status)
{
    crpc_completion done = fixture_await(context, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, status);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.flags & 0x3, CRPC_COMPLETION_OF_QUEUE);
    return done;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void writes_and_reads(void **state)
{
    (void)state;
    crpc_queue_op op = left_op(CRPC_QUEUE_WRITE, 1, 1000);
    submit(fixture.left, left, &op, 1);
    crpc_completion done = await_work(fixture.left, CRPC_QUEUE_WRITE, 1, CRPC_OK);
    assert_int_equal(done.endpoint.bits, left.bits);
    assert_int_equal(done.endpoint_user_data, 77);
    assert_memory_equal(here, there, 1000);
    memset(there, 5, BYTES);
    op = left_op(CRPC_QUEUE_READ, 2, 500);
    op.address += 100;
    submit(fixture.left, left, &op, 1);
    done = await_work(fixture.left, CRPC_QUEUE_READ, 2, CRPC_OK);
    assert_int_equal(done.payload_bytes, done.flags & CRPC_COMPLETION_DETAIL ? 500 : 0);
    assert_int_equal(here[99], 99 * 7 % 256 + 1);
    assert_int_equal(here[100], 5);
    assert_int_equal(here[599], 5);
    op = (crpc_queue_op){.opcode = CRPC_QUEUE_WRITE,
                         .flags = CRPC_QUEUE_INLINE | CRPC_QUEUE_FENCE,
                         .user_data = 3,
                         .address = address_of("inline"),
                         .bytes = 7,
                         .remote_key = remote_key,
                         .remote_address = address_of(there) + 8};
    submit(fixture.left, left, &op, 1);
    await_work(fixture.left, CRPC_QUEUE_WRITE, 3, CRPC_OK);
    assert_string_equal((const char *)there + 8, "inline");
}

static void messages_take_receives(void **state)
{
    (void)state;
    crpc_queue_op receives[4];
    crpc_completion done;
    for (uint32_t i = 0; i < 4; i++) {
        receives[i] = right_receive(100 + i, i * 100, 100);
    }
    submit(fixture.right, right, receives, 4);
    crpc_queue_op ops[4] = {
        left_op(CRPC_QUEUE_SEND, 1, 50), left_op(CRPC_QUEUE_SEND_IMMEDIATE, 2, 60),
        left_op(CRPC_QUEUE_WRITE_IMMEDIATE, 3, 70), left_op(CRPC_QUEUE_SEND, 4, 0)};
    ops[1].immediate = 0x12345678;
    ops[2].immediate = 0x9abcdef0;
    ops[2].remote_address += 1000;
    ops[3].region.bits = 0;
    submit(fixture.left, left, ops, 4);
    for (uint32_t i = 0; i < 4; i++) {
        await_work(fixture.left, ops[i].opcode, 1 + i, CRPC_OK);
    }
    done = await_work(fixture.right, CRPC_QUEUE_RECEIVE, 100, CRPC_OK);
    assert_int_equal(done.payload_bytes, 50);
    assert_int_equal(done.flags & CRPC_COMPLETION_IMMEDIATE, 0);
    assert_int_equal(done.endpoint.bits, right.bits);
    done = await_work(fixture.right, CRPC_QUEUE_RECEIVE, 101, CRPC_OK);
    assert_int_equal(done.payload_bytes, 60);
    assert_true(done.flags & CRPC_COMPLETION_IMMEDIATE);
    assert_int_equal(done.reply_bytes_max, 0x12345678);
    done = await_work(fixture.right, CRPC_QUEUE_RECEIVE, 102, CRPC_OK);
    assert_true(done.flags & CRPC_COMPLETION_IMMEDIATE);
    assert_int_equal(done.reply_bytes_max, 0x9abcdef0);
    done = await_work(fixture.right, CRPC_QUEUE_RECEIVE, 103, CRPC_OK);
    assert_int_equal(done.payload_bytes, 0);
    assert_memory_equal(there, here, 50);
    assert_memory_equal(there + 100, here, 60);
    assert_memory_equal(there + 1000, here, 70);
}

static void atomics_give_what_was_there(void **state)
{
    (void)state;
    uint64_t *word = (uint64_t *)(void *)there;
    crpc_queue_op ops[4] = {op_of(CRPC_QUEUE_FETCH_ADD, 1), op_of(CRPC_QUEUE_COMPARE_SWAP, 2),
                            op_of(CRPC_QUEUE_COMPARE_SWAP, 3), op_of(CRPC_QUEUE_NOP, 4)};
    for (uint32_t i = 0; i < 3; i++) {
        ops[i].remote_key = remote_key;
        ops[i].remote_address = address_of(word);
    }
    *word = 40;
    ops[0].operand = 2;
    ops[1].address = 42;
    ops[1].operand = 7;
    ops[2].address = 42;
    ops[2].operand = 8;
    submit(fixture.left, left, ops, 4);
    assert_int_equal(await_work(fixture.left, CRPC_QUEUE_FETCH_ADD, 1, CRPC_OK).token, 40);
    assert_int_equal(await_work(fixture.left, CRPC_QUEUE_COMPARE_SWAP, 2, CRPC_OK).token, 42);
    assert_int_equal(await_work(fixture.left, CRPC_QUEUE_COMPARE_SWAP, 3, CRPC_OK).token, 7);
    await_work(fixture.left, CRPC_QUEUE_NOP, 4, CRPC_OK);
    assert_int_equal(*word, 7);
}

static void payloads_in_pieces(void **state)
{
    (void)state;
    int32_t reason;
    const crpc_piece sent[5] = {{{0}, 0, 0, 0}, /* not of the op */
                                {here_region, address_of(here) + 10, 20, 0},
                                {here_region, address_of(here) + 500, 0, 0},
                                {here_region, address_of(here) + 1000, 30, 0},
                                {{0}, 0, 0, 0}};
    const crpc_piece filled[2] = {{there_region, address_of(there), 15, 0},
                                  {there_region, address_of(there) + 200, 100, 0}};
    crpc_queue_op receive = op_of(CRPC_QUEUE_RECEIVE, 9);
    receive.flags = CRPC_QUEUE_PIECES;
    receive.bytes = 2;
    assert_int_equal(crpc_queue_submit(fixture.right, right, &receive, 1, filled, 2, &reason), 1);
    crpc_queue_op op = op_of(CRPC_QUEUE_SEND, 8);
    op.flags = CRPC_QUEUE_PIECES;
    op.address = 1;
    op.bytes = 3;
    assert_int_equal(crpc_queue_submit(fixture.left, left, &op, 1, sent, 5, &reason), 1);
    await_work(fixture.left, CRPC_QUEUE_SEND, 8, CRPC_OK);
    crpc_completion done = await_work(fixture.right, CRPC_QUEUE_RECEIVE, 9, CRPC_OK);
    assert_int_equal(done.payload_bytes, 50);
    assert_memory_equal(there, here + 10, 15);
    assert_memory_equal(there + 200, here + 25, 5);
    assert_memory_equal(there + 205, here + 1000, 30);
}

/* More than fit into one check of the library, with other opcodes in between. */
static void long_arrays(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static crpc_queue_op ops[COUNT];
    uint32_t submitted = 0, completed = 0;
    uint64_t *word = (uint64_t *)(void *)there;
    *word = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        ops[i] = i % 5 == 0 ? op_of(CRPC_QUEUE_NOP, i) : op_of(CRPC_QUEUE_FETCH_ADD, i);
        if (i % 5 != 0) {
            ops[i].operand = i;
            ops[i].remote_key = remote_key;
            ops[i].remote_address = address_of(word);
        }
    }
    while (completed < COUNT) {
        int32_t reason;
        int32_t taken = crpc_queue_submit(fixture.left, left, ops + submitted, COUNT - submitted,
                                          NULL, 0, &reason);
        assert_true(taken >= 0 && (reason == CRPC_OK || reason == CRPC_E_AGAIN));
        submitted += (uint32_t)taken;
        if (reason == CRPC_E_AGAIN) { /* each refusal is followed by one */
            assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_ROOM).endpoint.bits,
                             left.bits);
        }
        while (completed < submitted) {
            await_work(fixture.left, ops[completed].opcode, completed, CRPC_OK);
            completed++;
        }
    }
    assert_int_equal(*word, (uint64_t)COUNT * (COUNT - 1) / 2 - 5u * 99 * 100 / 2);
    crpc_queue_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_queue_get_stats(fixture.left, left, &stats), CRPC_OK);
    assert_int_equal(stats.sends, COUNT);
}

static void a_sparse_queue_completes_what_is_signaled(void **state)
{
    (void)state;
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .flags = CRPC_QUEUE_SPARSE, .sends = 64};
    crpc_queue sparse, peer;
    crpc_queue_op ops[10];
    fixture_queues(&options, &sparse, &peer);
    for (uint32_t i = 0; i < 10; i++) {
        ops[i] = left_op(CRPC_QUEUE_WRITE, i, 8);
        ops[i].flags = i % 5 == 4 ? CRPC_QUEUE_SIGNAL : 0;
    }
    submit(fixture.left, sparse, ops, 10);
    await_work(fixture.left, CRPC_QUEUE_WRITE, 4, CRPC_OK);
    await_work(fixture.left, CRPC_QUEUE_WRITE, 9, CRPC_OK);
    for (int i = 0; i < 100; i++) {
        fixture_pump();
    }
    assert_int_equal(fixture.kept_count[0], 0);
}

/* ---- SRQ ------------------------------------------------------------------------------------- */

static void queues_share_an_srq(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .user_data = 5, .receives = 16};
    crpc_queue_options options = {.struct_size = sizeof(options)};
    crpc_queue srq, near[2], far[2];
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_open(fixture.right, &shared, &srq, NULL), CRPC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
        uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
        options.receive_queue.bits = 0;
        options.user_data = 20 + i;
        assert_int_equal(
            crpc_queue_blob(fixture.left, &options, &near[i], blobs[0], &bytes[0], NULL), CRPC_OK);
        options.receive_queue = srq;
        options.user_data = 10 + i;
        assert_int_equal(
            crpc_queue_blob(fixture.right, &options, &far[i], blobs[1], &bytes[1], NULL), CRPC_OK);
        assert_int_equal(crpc_queue_join(fixture.left, near[i], blobs[1], bytes[1], NULL), CRPC_OK);
        assert_int_equal(crpc_queue_join(fixture.right, far[i], blobs[0], bytes[0], NULL), CRPC_OK);
        fixture_await(fixture.left, CRPC_COMPLETION_CONNECTED);
        assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_CONNECTED).endpoint.bits,
                         far[i].bits);
    }
    assert_int_equal(crpc_queue_get_info(fixture.right, srq, &info), CRPC_OK);
    assert_int_equal(info.kind, CRPC_QUEUE_KIND_SRQ);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.queues, 2);
    assert_int_equal(info.receives, 16);
    assert_int_equal(crpc_queue_get_info(fixture.right, far[1], &info), CRPC_OK);
    assert_int_equal(info.receive_queue.bits, srq.bits);
    for (uint32_t i = 0; i < 4; i++) {
        crpc_queue_op receive = right_receive(i, i * 64, 64);
        submit(fixture.right, srq, &receive, 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        crpc_queue_op op = left_op(CRPC_QUEUE_SEND, i, 32);
        submit(fixture.left, near[i % 2], &op, 1);
        await_work(fixture.left, CRPC_QUEUE_SEND, i, CRPC_OK);
        crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_WORK);
        assert_int_equal(done.endpoint.bits, far[i % 2].bits);
        assert_int_equal(done.endpoint_user_data, 10 + i % 2);
        assert_int_equal(done.payload_bytes, 32);
    }
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_fail(fixture.right, srq), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_drain(fixture.right, srq, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_accept(fixture.right, srq, NULL, NULL), CRPC_E_STATE);
    assert_int_equal(crpc_queue_reject(fixture.right, srq, NULL, 0), CRPC_E_STATE);
    assert_true(crpc_queue_join(fixture.right, srq, here, 104, NULL) < 0);
    crpc_queue_op last = right_receive(99, 0, 64);
    submit(fixture.right, srq, &last, 1);
    assert_int_equal(crpc_queue_close(fixture.right, far[0]), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, far[1]), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_OK);
    await_work(fixture.right, CRPC_QUEUE_RECEIVE, 99, CRPC_E_CLOSED);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

static void expect_refused(uint8_t opcode, uint32_t key)
{
    crpc_queue near, far;
    crpc_error error = {.struct_size = sizeof(error)};
    fixture_queues(NULL, &near, &far);
    crpc_queue_op op = left_op(opcode, 1, 8);
    op.remote_key = key;
    submit(fixture.left, near, &op, 1);
    await_work(fixture.left, opcode, 1, CRPC_E_ACCESS);
    crpc_completion gone = fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(gone.endpoint.bits, near.bits);
    assert_int_equal(gone.flags, CRPC_COMPLETION_OF_QUEUE);
    assert_int_equal(crpc_queue_get_error(fixture.left, near, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_E_ACCESS);
    int32_t reason;
    assert_int_equal(crpc_queue_submit(fixture.left, near, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_close(fixture.left, near), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, far), CRPC_OK);
}

static void peers_have_the_rights_of_the_region_and_no_others(void **state)
{
    (void)state;
    static const uint32_t rights[] = {CRPC_ACCESS_LOCAL_WRITE,
                                      CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                      CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_READ};
    for (uint32_t i = 0; i < 3; i++) {
        crpc_region_info info = {.struct_size = sizeof(info)};
        crpc_region some;
        assert_int_equal(crpc_region_register(fixture.right, there, BYTES, rights[i], &some, NULL),
                         CRPC_OK);
        assert_int_equal(crpc_region_get_info(fixture.right, some, &info), CRPC_OK);
        for (uint32_t opcode = CRPC_QUEUE_WRITE; opcode <= CRPC_QUEUE_READ; opcode += 2) {
            const uint32_t needed =
                opcode == CRPC_QUEUE_WRITE ? CRPC_ACCESS_REMOTE_WRITE : CRPC_ACCESS_REMOTE_READ;
            if (!(rights[i] & needed)) {
                expect_refused((uint8_t)opcode, info.remote_key);
                continue;
            }
            crpc_queue_op op = left_op((uint8_t)opcode, 2, 8);
            op.remote_key = info.remote_key;
            submit(fixture.left, left, &op, 1);
            await_work(fixture.left, (uint8_t)opcode, 2, CRPC_OK);
        }
        assert_int_equal(crpc_region_deregister(fixture.right, some), CRPC_OK);
        expect_refused(CRPC_QUEUE_WRITE, info.remote_key);
    }
    expect_refused(CRPC_QUEUE_WRITE, remote_key + 1000);
    /* Everything else goes on. */
    crpc_queue_op op = left_op(CRPC_QUEUE_WRITE, 3, 8);
    submit(fixture.left, left, &op, 1);
    await_work(fixture.left, CRPC_QUEUE_WRITE, 3, CRPC_OK);
}

/* ---- Polling and sleeping -------------------------------------------------------------------- */

/* Both have a hundred completions, and the array has room for few: neither waits for the other. */
static void services_take_turns(void **state)
{
    (void)state;
    enum { CALLS = 40 };
    for (uint32_t capacity = 1; capacity <= 3; capacity++) {
        uint32_t works = 0, requests = 0, polls = 0, worst = 0, last = 0;
        for (uint32_t i = 0; i < CALLS; i++) {
            crpc_op call = fixture_call_op(i);
            crpc_queue_op op = op_of(CRPC_QUEUE_NOP, i);
            call.payload_bytes = 4;
            call.timeout_ns = 0;
            assert_int_equal(fixture_submit(fixture.left, &call, "call", 4), CRPC_OK);
            submit(fixture.right, right, &op, 1);
        }
        for (int i = 0; i < 20; i++) {
            crpc_wait(fixture.left, 0); /* sends them */
        }
        while (works < CALLS || requests < CALLS) {
            crpc_completion found[3];
            crpc_op replies[3];
            int32_t count = crpc_poll(fixture.right, found, capacity);
            uint32_t answered = 0;
            assert_true(count >= 0 && ++polls < 10000);
            for (int32_t i = 0; i < count; i++) {
                bool work = found[i].kind == CRPC_COMPLETION_WORK;
                works += work;
                requests += found[i].kind == CRPC_COMPLETION_REQUEST;
                if (found[i].kind == CRPC_COMPLETION_REQUEST) {
                    replies[answered++] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                                    .flags = CRPC_OP_QUIET,
                                                    .endpoint = fixture.right_endpoint,
                                                    .token = found[i].token};
                }
                if (work) {
                    last = polls;
                }
            }
            if (works < CALLS && polls - last > worst) {
                worst = polls - last;
            }
            assert_int_equal(crpc_submit(fixture.right, replies, answered, NULL, 0, NULL),
                             answered);
            crpc_wait(fixture.left, 0);
        }
        assert_true(worst < 10);
        for (uint32_t i = 0; i < CALLS; i++) {
            fixture_await(fixture.left, CRPC_COMPLETION_RESPONSE);
        }
    }
}

static void a_sleeper_is_woken(void **state)
{
    (void)state;
    struct pollfd fd = {.fd = crpc_context_fd(fixture.left), .events = POLLIN};
    crpc_completion done;
    while (crpc_context_arm(fixture.left) == CRPC_E_AGAIN) {
        fixture_pump();
    }
    crpc_queue_op op = left_op(CRPC_QUEUE_WRITE, 1, 8);
    submit(fixture.left, left, &op, 1);
    for (int i = 0; poll(&fd, 1, 0) == 0; i++) {
        assert_true(i < 1000);
        fixture_poll(fixture.right);
    }
    assert_int_equal(crpc_poll(fixture.left, &done, 1), 1);
    assert_int_equal(done.user_data, 1);
    op.user_data = 2;
    submit(fixture.left, left, &op, 1);
    assert_int_equal(crpc_wait(fixture.left, UINT64_C(10000000000)), CRPC_OK);
    await_work(fixture.left, CRPC_QUEUE_WRITE, 2, CRPC_OK);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void submit_receives(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        crpc_queue_op receive = right_receive(i, 0, 64);
        submit(fixture.right, right, &receive, 1);
    }
}

static void close_completes_what_is_open(void **state)
{
    (void)state;
    submit_receives(20);
    assert_int_equal(crpc_queue_close(fixture.right, right), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, right), CRPC_E_STALE);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(
            await_work(fixture.right, CRPC_QUEUE_RECEIVE, i, CRPC_E_CLOSED).endpoint.bits,
            right.bits);
    }
    for (int i = 0; i < 100; i++) {
        fixture_pump();
    }
    assert_int_equal(fixture.kept_count[1], 0); /* and no DISCONNECTED */
}

static void a_failed_queue_is_flushed(void **state)
{
    (void)state;
    submit_receives(20);
    assert_int_equal(crpc_queue_fail(fixture.right, right), CRPC_OK);
    for (uint32_t i = 0; i < 20; i++) {
        await_work(fixture.right, CRPC_QUEUE_RECEIVE, i, CRPC_E_FLUSHED);
    }
    crpc_completion gone = fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(gone.status, CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_fail(fixture.right, right), CRPC_E_STATE);
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(fixture.right, right, &info), CRPC_OK);
    assert_int_equal(info.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(crpc_queue_close(fixture.right, right), CRPC_OK);
}

static void a_drained_queue_sends_all_and_flushes_receives(void **state)
{
    (void)state;
    int32_t reason;
    crpc_queue_op receive = op_of(CRPC_QUEUE_RECEIVE, 50);
    submit(fixture.left, left, &receive, 1);
    for (uint32_t i = 0; i < 10; i++) {
        crpc_queue_op op = left_op(CRPC_QUEUE_WRITE, i, 64);
        submit(fixture.left, left, &op, 1);
    }
    assert_int_equal(crpc_queue_drain(fixture.left, left, UINT64_C(60000000000)), CRPC_OK);
    crpc_queue_op late = op_of(CRPC_QUEUE_NOP, 1);
    assert_int_equal(crpc_queue_submit(fixture.left, left, &late, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_CLOSING);
    for (uint32_t i = 0; i < 10; i++) {
        await_work(fixture.left, CRPC_QUEUE_WRITE, i, CRPC_OK);
    }
    await_work(fixture.left, CRPC_QUEUE_RECEIVE, 50, CRPC_E_FLUSHED);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
}

/* fixture_close finds nothing left of it. */
static void a_context_is_closed_with_ops_open(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 16};
    crpc_queue_options options = {.struct_size = sizeof(options)};
    crpc_queue srq;
    submit_receives(20);
    for (uint32_t i = 0; i < 10; i++) {
        crpc_queue_op op = left_op(CRPC_QUEUE_WRITE, i, 64);
        submit(fixture.left, left, &op, 1);
    }
    assert_int_equal(crpc_queue_open(fixture.right, &shared, &srq, NULL), CRPC_OK);
    crpc_queue_op receive = right_receive(1, 0, 64);
    submit(fixture.right, srq, &receive, 1);
    options.receive_queue = srq;
    fixture_lone_queue(fixture.right, &options);
}

static void a_region_that_an_op_uses_can_go(void **state)
{
    (void)state;
    submit_receives(1);
    assert_int_equal(crpc_region_deregister(fixture.right, there_region), CRPC_OK);
    crpc_queue_op op = left_op(CRPC_QUEUE_SEND, 1, 64);
    submit(fixture.left, left, &op, 1);
    await_work(fixture.right, CRPC_QUEUE_RECEIVE, 0, CRPC_E_DEVICE);
    fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED);
    assert_true(fixture_await(fixture.left, CRPC_COMPLETION_WORK).status < 0);
    fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, open_pair, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(writes_and_reads),
        WITH_PAIR(messages_take_receives),
        WITH_PAIR(atomics_give_what_was_there),
        WITH_PAIR(payloads_in_pieces),
        WITH_PAIR(long_arrays),
        WITH_PAIR(a_sparse_queue_completes_what_is_signaled),
        WITH_PAIR(queues_share_an_srq),
        WITH_PAIR(peers_have_the_rights_of_the_region_and_no_others),
        WITH_PAIR(services_take_turns),
        WITH_PAIR(a_sleeper_is_woken),
        WITH_PAIR(close_completes_what_is_open),
        WITH_PAIR(a_failed_queue_is_flushed),
        WITH_PAIR(a_drained_queue_sends_all_and_flushes_receives),
        WITH_PAIR(a_context_is_closed_with_ops_open),
        WITH_PAIR(a_region_that_an_op_uses_can_go),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

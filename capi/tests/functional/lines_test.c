/* lines_test.c: contexts share nothing that their ops write, not even a cache line. What the library allocates for each of two
 * contexts is noted. What changes while one of them makes calls, sends messages and posts to a queue must be its own, and whole lines: then nothing else is in
 * them, wherever the allocator puts what.
 *
 * The allocator's functions are replaced by those below, in the whole process; they note those calls that come from the library.
 */
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"

#define LINE_BYTES 64u
#define CHUNKS_MAX 65536
#define OWNERS 2
#define CALLS 100

/* ---- What is allocated ----------------------------------------------------------------------- */

struct chunk {
    uintptr_t address;
    size_t bytes;
    int owner; /* for whose sake */
    uint8_t *before;
};

static struct chunk chunks[CHUNKS_MAX];
static uint32_t chunk_count;
static int owner = -1; /* -1: nobody, and nothing is noted */
static uintptr_t library_start, library_end;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static void *note(void *memory, size_t bytes, const void *caller)
{
    if (memory && owner >= 0 && (uintptr_t)caller >= library_start &&
        (uintptr_t)caller < library_end && chunk_count < CHUNKS_MAX) {
        chunks[chunk_count++] =
            (struct chunk){.address = (uintptr_t)memory, .bytes = bytes, .owner = owner};
    }
    return memory;
}

static void forget(const void *memory)
{
    for (uint32_t i = chunk_count; memory && i-- > 0;) {
        if (chunks[i].address == (uintptr_t)memory) {
            chunks[i] = chunks[--chunk_count];
            return;
        }
    }
}

#pragma GCC visibility push(default)

void *malloc(size_t bytes)
{
    return note(__libc_malloc(bytes), bytes, __builtin_return_address(0));
}

void *calloc(size_t count, size_t bytes)
{
    return note(__libc_calloc(count, bytes), count * bytes, __builtin_return_address(0));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return note(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
}

void *realloc(void *memory, size_t bytes)
{
    if (owner >= 0) {
        forget(memory);
    }
    return note(__libc_realloc(memory, bytes), bytes, __builtin_return_address(0));
}

void free(void *memory)
{
    if (owner >= 0) {
        forget(memory);
    }
    __libc_free(memory);
}

#pragma GCC visibility pop

/* ---- The library ----------------------------------------------------------------------------- */

/* Where it is, and what of it can be written: that nothing of it is would be seen, too. */
static int find_library(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    (void)bytes;
    (void)argument;
    if (!strstr(info->dlpi_name, "libcopyrpc.so")) {
        return 0;
    }
    library_start = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD) {
            library_end = start + part->p_memsz;
        }
        if (part->p_type == PT_LOAD && part->p_flags & PF_W) {
            chunks[chunk_count++] =
                (struct chunk){.address = start, .bytes = part->p_memsz, .owner = OWNERS};
        }
    }
    return 1;
}

/* ---- Two contexts, each connected with itself ------------------------------------------------ */

enum kind { ENDPOINTS, CHANNELS, QUEUES, KINDS };

struct side {
    crpc_context *context;
    crpc_region region;
    uint64_t ends[KINDS][2];
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes;
    uint8_t memory[4096];
};

static struct side sides[OWNERS];

static int32_t make_end(struct side *side, enum kind kind, int end)
{
    const crpc_endpoint_options of_endpoint = {.struct_size = sizeof(of_endpoint),
                                               .keepalive_ns = CRPC_FOREVER,
                                               .calls_max = 64,
                                               .ring_bytes = 65536};
    const crpc_channel_options of_channel = {.struct_size = sizeof(of_channel),
                                             .keepalive_ns = CRPC_FOREVER};
    crpc_endpoint endpoint = {0};
    crpc_channel channel = {0};
    crpc_queue queue = {0};
    uint8_t *blob = side->blobs[end];
    uint32_t *bytes = &side->blob_bytes;
    *bytes = sizeof(side->blobs[end]);
    int32_t status =
        kind == QUEUES ? crpc_queue_blob(side->context, NULL, &queue, blob, bytes, NULL)
        : kind == CHANNELS
            ? crpc_channel_blob(side->context, &of_channel, &channel, blob, bytes, NULL)
            : crpc_endpoint_blob(side->context, &of_endpoint, &endpoint, blob, bytes, NULL);
    side->ends[kind][end] = endpoint.bits | channel.bits | queue.bits;
    return status;
}

static int32_t join_end(struct side *side, enum kind kind, int end)
{
    const uint64_t bits = side->ends[kind][end];
    const uint8_t *blob = side->blobs[!end];
    return kind == QUEUES
               ? crpc_queue_join(side->context, (crpc_queue){bits}, blob, side->blob_bytes, NULL)
           : kind == CHANNELS ? crpc_channel_join(side->context, (crpc_channel){bits}, blob,
                                                  side->blob_bytes, NULL)
                              : crpc_endpoint_join(side->context, (crpc_endpoint){bits}, blob,
                                                   side->blob_bytes, NULL);
}

static crpc_completion next(struct side *side)
{
    crpc_completion completion;
    while (crpc_poll(side->context, &completion, 1) == 0) {
        crpc_wait(side->context, CRPC_FOREVER);
    }
    return completion;
}

static void await(struct side *side, uint8_t kind)
{
    crpc_completion completion;
    do {
        completion = next(side);
    } while (completion.kind == CRPC_COMPLETION_RAIL); /* which comes when it comes */
    assert_int_equal(completion.kind, kind);
    assert_int_equal(completion.status, CRPC_OK);
}

static bool rails_are_up(const struct side *side)
{
    for (int end = 0; end < 2; end++) {
        crpc_channel_info info = {.struct_size = sizeof(info)};
        const crpc_channel channel = {side->ends[CHANNELS][end]};
        assert_int_equal(crpc_channel_get_info(side->context, channel, &info), CRPC_OK);
        if (info.rail_state[0] != CRPC_RAIL_UP || info.rail_state[1] != CRPC_RAIL_UP) {
            return false;
        }
    }
    return true;
}

/* Threads of the library make the second rail, also while the other context is looked at. */
static void await_rails(struct side *side)
{
    crpc_completion completion;
    while (!rails_are_up(side)) {
        if (crpc_poll(side->context, &completion, 1) == 1) {
            assert_int_equal(completion.kind, CRPC_COMPLETION_RAIL);
            assert_int_equal(completion.status, CRPC_OK);
        }
    }
}

/* Of both contexts by turns. */
static void connect_ends(enum kind kind)
{
    for (int end = 0; end < 2; end++) {
        for (owner = 0; owner < OWNERS; owner++) {
            assert_int_equal(make_end(&sides[owner], kind, end), CRPC_OK);
        }
    }
    for (int end = 0; end < 2; end++) {
        for (owner = 0; owner < OWNERS; owner++) {
            assert_int_equal(join_end(&sides[owner], kind, end), CRPC_OK);
        }
    }
    for (owner = 0; owner < OWNERS; owner++) {
        await(&sides[owner], CRPC_COMPLETION_CONNECTED);
        await(&sides[owner], CRPC_COMPLETION_CONNECTED);
        if (kind == CHANNELS) {
            await_rails(&sides[owner]);
        }
    }
    owner = -1;
}

static void open_both(void)
{
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .features = PLACE_FEATURES,
                                    .flags = CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES,
                                    .initiators = place_initiators()};
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    for (owner = 0; owner < OWNERS; owner++) {
        struct side *side = &sides[owner];
        assert_int_equal(crpc_context_open(&options, &side->context, NULL), CRPC_OK);
        assert_int_equal(crpc_region_register(side->context, side->memory, sizeof(side->memory),
                                              CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                              &side->region, NULL),
                         CRPC_OK);
    }
    owner = -1;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        connect_ends(kind);
    }
}

/* One call after the other, and some at once. */
static void make_calls(struct side *side)
{
    crpc_op calls[CALLS];
    uint32_t answered = 0;
    for (uint32_t i = 0; i < CALLS; i++) {
        calls[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                             .endpoint = {side->ends[ENDPOINTS][0]},
                             .payload_bytes = 32,
                             .reply_bytes_max = 32};
    }
    static const uint8_t payload[32];
    for (uint32_t sent = 0; answered < CALLS;) {
        crpc_completion completion;
        if (sent == answered && sent < CALLS) {
            const uint32_t count = sent < CALLS / 2 ? 1 : 10;
            assert_int_equal(
                crpc_submit(side->context, calls, count, payload, sizeof(payload), NULL), count);
            sent += count;
        }
        if (crpc_poll(side->context, &completion, 1) == 0) {
            continue;
        }
        if (completion.kind == CRPC_COMPLETION_RESPONSE) {
            assert_int_equal(completion.status, CRPC_OK);
            answered++;
        } else if (completion.kind == CRPC_COMPLETION_REQUEST) {
            const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                                   .flags = CRPC_OP_QUIET,
                                   .endpoint = completion.endpoint,
                                   .token = completion.token,
                                   .payload_bytes = 32};
            assert_int_equal(crpc_submit(side->context, &reply, 1, payload, sizeof(payload), NULL),
                             1);
        }
    }
}

static void send_messages(struct side *side)
{
    crpc_channel_op op = {
        .region = side->region, .address = (uintptr_t)side->memory, .bytes = sizeof(side->memory)};
    for (uint32_t i = 0; i < CALLS; i++) {
        op.opcode = CRPC_CHANNEL_RECEIVE;
        op.channel.bits = side->ends[CHANNELS][1];
        assert_int_equal(crpc_channel_submit(side->context, &op, 1, NULL), 1);
        op.opcode = CRPC_CHANNEL_SEND;
        op.channel.bits = side->ends[CHANNELS][0];
        assert_int_equal(crpc_channel_submit(side->context, &op, 1, NULL), 1);
        for (int ended = 0; ended < 2;) {
            const crpc_completion completion = next(side);
            assert_int_equal(completion.status, CRPC_OK);
            ended += completion.kind != CRPC_COMPLETION_RAIL;
        }
    }
}

static void post_ops(struct side *side)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_NOP};
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(crpc_queue_submit(side->context, (crpc_queue){side->ends[QUEUES][0]}, &op,
                                           1, NULL, 0, NULL),
                         1);
        await(side, CRPC_COMPLETION_WORK);
    }
}

static void use_all(struct side *side)
{
    make_calls(side);
    send_messages(side);
    post_ops(side);
}

/* ---- What changes ---------------------------------------------------------------------------- */

static void keep(void)
{
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (!chunks[i].before) {
            chunks[i].before = __libc_malloc(chunks[i].bytes);
            assert_non_null(chunks[i].before);
        }
        memcpy(chunks[i].before, (const void *)chunks[i].address, chunks[i].bytes);
    }
}

static bool has_changed(const struct chunk *chunk)
{
    return memcmp((const void *)chunk->address, chunk->before, chunk->bytes) != 0;
}

/* What this context's ops have changed is its own, and in lines of its own: whole ones. */
static void compare(int whose, uint32_t *changed, uint32_t *wrong)
{
    for (uint32_t i = 0; i < chunk_count; i++) {
        const struct chunk *chunk = &chunks[i];
        if (!has_changed(chunk)) {
            continue;
        }
        (*changed)++;
        if (chunk->owner != whose || (chunk->address | chunk->bytes) % LINE_BYTES != 0) {
            print_message("# context %d changes %zu bytes of context %d, at %zu of a line\n", whose,
                          chunk->bytes, chunk->owner, (size_t)(chunk->address % LINE_BYTES));
            (*wrong)++;
        }
    }
}

static void no_line_is_shared(void **state)
{
    (void)state;
    dl_iterate_phdr(find_library, NULL);
    assert_int_not_equal(library_end, 0);
    open_both();
    assert_in_range(chunk_count, 20, CHUNKS_MAX - 1);
    for (int i = 0; i < OWNERS; i++) {
        use_all(&sides[i]); /* what is made at first use is made */
    }
    for (int i = 0; i < OWNERS; i++) {
        uint32_t changed = 0, wrong = 0;
        keep();
        use_all(&sides[i]);
        compare(i, &changed, &wrong);
        print_message("# context %d: %u of %u pieces of memory changed\n", i, changed, chunk_count);
        assert_in_range(changed, 5, UINT32_MAX); /* or the test looks at nothing */
        assert_int_equal(wrong, 0);
    }
    for (int i = 0; i < OWNERS; i++) {
        crpc_context_close(sides[i].context);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    /* Functions that are bound at their first call change the library's table of them, once. */
    if (!getenv("LD_BIND_NOW")) {
        setenv("LD_BIND_NOW", "1", 1);
        execv("/proc/self/exe", argv);
        fail_msg("this program could not begin anew");
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_line_is_shared)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

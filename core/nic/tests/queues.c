/* queues.c: see queues.h. */
#include "queues.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "base/clock.h"

struct nic_queue_options queues_options(void)
{
    return (struct nic_queue_options){.kind = NIC_QUEUE_RC,
                                      .table = NIC_TABLE_DENSE,
                                      .handle = 0x5000000000000001u,
                                      .user_data = 77,
                                      .sends = 32,
                                      .send_pieces = QUEUES_PIECES,
                                      .inline_bytes = 100,
                                      .receives = 16,
                                      .receive_pieces = QUEUES_PIECES};
}

int queues_set_up(void **state)
{
    struct queues *queues = calloc(1, sizeof(*queues));
    struct nic_options options = pair_options();
    queues->near.nic = pair_open_nic(&options);
    queues->far.nic = pair_open_nic(&options);
    queues->near.capacity = queues->far.capacity = 64;
    queues->source = pair_map(QUEUES_BYTES);
    queues->target = pair_map(QUEUES_BYTES);
    pair_enroll(queues->near.nic, queues->source, QUEUES_BYTES, CRPC_ACCESS_LOCAL_WRITE,
                &queues->source_keys);
    pair_enroll(queues->far.nic, queues->target, QUEUES_BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                    (queues->far.nic->atomics ? CRPC_ACCESS_REMOTE_ATOMIC : 0),
                &queues->target_keys);
    for (uint32_t i = 0; i < QUEUES_BYTES; i++) {
        queues->source[i] = (uint8_t)(i * 7 + (i >> 8));
    }
    *state = queues;
    return 0;
}

int queues_tear_down(void **state)
{
    struct queues *queues = *state;
    const struct nic_operations *operations = queues->near.nic->operations;
    if (queues->sender) {
        queues_end(queues->sender);
    }
    if (queues->receiver) {
        queues_end(queues->receiver);
    }
    operations->memory_deregister(queues->near.nic, &queues->source_keys);
    operations->memory_deregister(queues->far.nic, &queues->target_keys);
    assert_int_equal(queues->near.nic->unknown_completions, 0);
    assert_int_equal(queues->far.nic->unknown_completions, 0);
    operations->close(queues->near.nic);
    operations->close(queues->far.nic);
    munmap(queues->source, QUEUES_BYTES);
    munmap(queues->target, QUEUES_BYTES);
    free(queues);
    return 0;
}

struct nic_queue *queues_create(struct nic *nic, const struct nic_queue_options *options)
{
    struct nic_queue *queue = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = nic->operations->queues->create(nic, NULL, options, &queue, &error);
    if (status) {
        print_error("create: %d: %s\n", status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    return queue;
}

void queues_connect(struct nic_queue *one, struct nic_queue *other)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    pair_connect(one->pair, other->pair, &transport);
}

void queues_make(struct queues *queues, const struct nic_queue_options *near,
                 const struct nic_queue_options *far)
{
    queues->sender = queues_create(queues->near.nic, near);
    queues->receiver = queues_create(queues->far.nic, far);
    queues_connect(queues->sender, queues->receiver);
}

void queues_end(struct nic_queue *queue)
{
    const struct nic_queue_operations *operations = queue->nic->operations->queues;
    crpc_completion done[8];
    if (!queue->stopped) {
        operations->stop(queue);
    }
    while (nic_queue_take_ended(queue, done, 8)) {
    }
    operations->destroy(queue);
}

struct nic_work queues_work(const struct queues *queues, uint8_t opcode, uint32_t flags,
                            uint64_t user_data)
{
    bool remote = opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD;
    return (struct nic_work){
        .opcode = opcode,
        .flags = (uint8_t)flags,
        .user_data = user_data,
        .remote_address = remote ? (uint64_t)(uintptr_t)queues->target : 0,
        .remote_key = remote ? queues->target_keys.remote_key : 0,
    };
}

struct nic_piece queues_near(const struct queues *queues, uint64_t from, uint32_t bytes)
{
    return (struct nic_piece){.address = (uint64_t)(uintptr_t)queues->source + from,
                              .bytes = bytes,
                              .local_key = queues->source_keys.local_key};
}

struct nic_piece queues_far(const struct queues *queues, uint64_t from, uint32_t bytes)
{
    return (struct nic_piece){.address = (uint64_t)(uintptr_t)queues->target + from,
                              .bytes = bytes,
                              .local_key = queues->target_keys.local_key};
}

/* Returns the op with these pieces; *key is that of one. */
static struct nic_work with_pieces(const struct nic_work *work, const struct nic_piece *pieces,
                                   uint32_t count, uint32_t *key)
{
    struct nic_work one = *work;
    *key = 0;
    if (count == 1) {
        one.address = pieces->address;
        one.bytes = pieces->bytes;
        *key = pieces->local_key;
    } else if (count > 1) {
        one.flags |= NIC_WORK_PIECES;
        one.bytes = count;
    }
    return one;
}

bool queues_post_pieces(struct nic_queue *queue, const struct nic_work *work,
                        const struct nic_piece *pieces, uint32_t count)
{
    uint32_t key;
    struct nic_work one = with_pieces(work, pieces, count, &key);
    return queue->nic->operations->queues->post(queue, &one, &key, pieces, 1) == 1;
}

struct nic_target *queues_target(struct nic *nic, const struct nic_queue *to, uint32_t queue_key)
{
    struct nic_target_options options = {.kind = NIC_QUEUE_UD, .queue_key = queue_key};
    struct nic_target *target = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    to->nic->operations->queue_pair_address(to->pair, &options.address);
    int32_t status = nic->operations->queues->target_create(nic, NULL, &options, &target, &error);
    if (status) {
        print_error("target_create: %d: %s\n", status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    return target;
}

bool queues_post_to(struct nic_queue *queue, const struct nic_work *work, struct nic_target *target,
                    const struct nic_piece *pieces, uint32_t count)
{
    uint32_t key;
    struct nic_work one = with_pieces(work, pieces, count, &key);
    return queue->nic->operations->queues->post_to(queue, &one, &target, &key, pieces, 1) == 1;
}

void queues_post(struct queues *queues, const struct nic_work *work, uint64_t from, uint32_t bytes)
{
    struct nic_piece piece = queues_near(queues, from, bytes);
    assert_true(queues_post_pieces(queues->sender, work, &piece, bytes ? 1 : 0));
}

void queues_receive(struct nic_queue *queue, const struct queues *queues, uint64_t first,
                    uint32_t count, uint32_t bytes)
{
    const struct nic_queue_operations *operations = queue->nic->operations->queues;
    for (uint32_t i = 0; i < count; i++) {
        struct nic_piece piece = queues_far(queues, (first + i) % 64 * 4096, bytes);
        assert_true(operations->receive(queue, first + i, &piece, 1));
    }
    operations->ring(queue);
}

void queues_ring(struct nic_queue *queue)
{
    queue->nic->operations->queues->ring(queue);
}

void queues_poll(struct done_list *list)
{
    uint32_t errors, failed = 0;
    uint32_t room = QUEUES_DONE_MAX - list->count;
    assert_true(room > 0);
    pair_pass(0);
    uint32_t count =
        list->nic->operations->queues->poll(list->nic, list->done + list->count,
                                            room < list->capacity ? room : list->capacity, &errors);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *done = &list->done[list->count + i];
        assert_int_equal(done->kind, NIC_COMPLETION_WORK);
        assert_true(done->flags & NIC_DONE_OF_QUEUE);
        failed += done->status != CRPC_OK;
    }
    assert_int_equal(errors, failed);
    list->errors += errors;
    list->count += count;
}

static bool late(uint64_t since_ns)
{
    pair_pass(100);
    return clock_now_ns() - since_ns > PAIR_WAIT_S * 1000000000ull;
}

void queues_wait(struct done_list *list, uint32_t count)
{
    uint64_t start = clock_now_ns();
    queues_poll(list);
    while (list->count < count) {
        if (late(start)) {
            print_error("%u completions, not %u\n", list->count, count);
            fail();
        }
        queues_poll(list);
    }
    assert_int_equal(list->count, count);
}

void queues_expect_silence(struct done_list *list)
{
    uint32_t before = list->count;
    for (int i = 0; i < 30; i++) {
        pair_pass(1000);
        queues_poll(list);
    }
    assert_int_equal(list->count, before);
}

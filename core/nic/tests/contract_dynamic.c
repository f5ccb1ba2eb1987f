/* contract_dynamic.c: dynamic queue pairs: they share initiators, and are otherwise as others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "contract.h"
#include "nic/initiators.h"

#define PAIRS_MAX 6u
#define PLACE_BYTES 4096u
#define BYTES (PAIRS_MAX * PLACE_BYTES)
#define KEY_OF_NEAR 0x1111u
#define KEY_OF_FAR 0x2222u
#define STORM_SENDS 200u

static const struct nic_transport to_far = {
    .retry_timeout = 14, .retry_count = 7, .access_key = KEY_OF_FAR};
static const struct nic_transport to_near = {
    .retry_timeout = 14, .retry_count = 7, .access_key = KEY_OF_NEAR};

/* Near has few initiators for its pairs; each is connected to that of far with its number. Each has a place in both memories. */
struct rig {
    struct inbox near, far;
    uint32_t count;
    struct nic_queue_pair *near_pairs[PAIRS_MAX], *far_pairs[PAIRS_MAX];
    struct nic_domain *domains[PAIRS_MAX]; /* of those of far */
    uint8_t *near_memory, *far_memory;
    struct nic_keys near_keys, far_keys[PAIRS_MAX];
};

static struct nic *open_nic(uint32_t initiators)
{
    struct nic_options options = pair_options();
    options.initiators = initiators;
    return pair_open_nic(&options);
}

static struct nic_queue_pair *create(struct nic *nic, struct nic_domain *domain, uint64_t key)
{
    struct nic_queue_pair *pair = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        nic->operations->queue_pair_create_dynamic(nic, domain, nic, key, &pair, &error);
    if (status != CRPC_OK) {
        print_error("%d: %s\n", status, error.message);
    }
    assert_int_equal(status, CRPC_OK);
    assert_true(nic_is_dynamic(pair));
    assert_int_equal(nic_send_room(pair), 0);
    return pair;
}

static void join(struct nic_queue_pair *one, struct nic_queue_pair *other,
                 const struct nic_transport *transport)
{
    struct nic_address address;
    other->operations->queue_pair_address(other, &address);
    assert_int_equal(one->operations->queue_pair_connect(one, &address, transport, NULL), CRPC_OK);
    assert_int_equal(one->peer_number, other->number);
}

static void make_pair(struct rig *rig, uint32_t i, const struct nic_transport *transport)
{
    const uint32_t rights =
        CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ;
    struct nic *far = rig->far.nic;
    assert_int_equal(far->operations->domain_create(far, &rig->domains[i], NULL), CRPC_OK);
    assert_int_equal(
        far->operations->memory_register(far, rig->domains[i], rig->far_memory + i * PLACE_BYTES,
                                         PLACE_BYTES, 0, rights, &rig->far_keys[i], NULL),
        CRPC_OK);
    rig->near_pairs[i] = create(rig->near.nic, NULL, KEY_OF_NEAR);
    rig->far_pairs[i] = create(far, rig->domains[i], KEY_OF_FAR);
    join(rig->near_pairs[i], rig->far_pairs[i], transport);
    join(rig->far_pairs[i], rig->near_pairs[i], &to_near);
}

static void end_far(struct rig *rig, uint32_t i)
{
    struct nic *far = rig->far.nic;
    rig->far_pairs[i]->operations->queue_pair_destroy(rig->far_pairs[i]);
    rig->far_pairs[i] = NULL;
    far->operations->memory_deregister(far, &rig->far_keys[i]);
    far->operations->domain_destroy(rig->domains[i]);
}

static void end_near(struct rig *rig, uint32_t i)
{
    rig->near_pairs[i]->operations->queue_pair_destroy(rig->near_pairs[i]);
    rig->near_pairs[i] = NULL;
}

static struct rig *set_up(uint32_t count, uint32_t initiators)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_true(count <= PAIRS_MAX);
    rig->near.nic = open_nic(initiators);
    rig->far.nic = open_nic(1);
    rig->near_memory = pair_map(BYTES);
    rig->far_memory = pair_map(BYTES);
    pair_enroll(rig->near.nic, rig->near_memory, BYTES, CRPC_ACCESS_LOCAL_WRITE, &rig->near_keys);
    rig->far.nic->operations->refill(rig->far.nic);
    rig->count = count;
    for (uint32_t i = 0; i < count; i++) {
        make_pair(rig, i, &to_far);
    }
    return rig;
}

static void tear_down(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        if (rig->near_pairs[i]) {
            end_near(rig, i);
        }
        if (rig->far_pairs[i]) {
            end_far(rig, i);
        }
    }
    rig->near.nic->operations->memory_deregister(rig->near.nic, &rig->near_keys);
    rig->near.nic->operations->close(rig->near.nic);
    rig->far.nic->operations->close(rig->far.nic);
    munmap(rig->near_memory, BYTES);
    munmap(rig->far_memory, BYTES);
    free(rig);
}

static struct nic_transfer transfer_of(const struct rig *rig, uint32_t i, uint32_t bytes)
{
    return (struct nic_transfer){
        .local_address = (uint64_t)(uintptr_t)rig->near_memory + i * PLACE_BYTES,
        .remote_address = (uint64_t)(uintptr_t)rig->far_memory + i * PLACE_BYTES,
        .bytes = bytes,
        .local_key = rig->near_keys.local_key,
        .remote_key = rig->far_keys[i].remote_key,
        .immediate = i};
}

static bool has_room(struct nic_queue_pair *pair)
{
    return nic_send_room(pair) > 0 || nic_take_room(pair);
}

/* Posts a WRITE with immediate `i` over pair i, which has room. */
static void write_one(const struct rig *rig, uint32_t i)
{
    const struct nic_transfer transfer = transfer_of(rig, i, 64);
    rig->near_pairs[i]->operations->post_write_immediate(rig->near_pairs[i], &transfer,
                                                         NIC_POST_RING);
}

static void wait_all(struct rig *rig, uint32_t i)
{
    inbox_wait_completed(&rig->near, rig->near_pairs[i], rig->near_pairs[i]->posted);
}

/* The queue pair that was given room. */
static struct nic_queue_pair *wait_granted(struct rig *rig)
{
    const uint64_t start = clock_now_ns();
    struct nic_queue_pair *pair;
    while (!(pair = nic_granted(rig->near.nic))) {
        assert_true(clock_now_ns() - start < PAIR_WAIT_S * 1000000000ull);
        pair_pass(100);
        inbox_poll(&rig->near);
    }
    return pair;
}

/* Waits until the near pair has failed, and returns how its completion says it has. */
static enum nic_error wait_failed(struct rig *rig, uint32_t i)
{
    const uint64_t start = clock_now_ns();
    uint32_t seen = rig->near.count;
    while (true) {
        inbox_poll(&rig->near);
        for (; seen < rig->near.count; seen++) {
            const struct nic_completion *completion = &rig->near.completions[seen];
            if (completion->queue_pair_number == rig->near_pairs[i]->number &&
                completion->kind == NIC_COMPLETION_ERROR) {
                assert_true(rig->near_pairs[i]->failed);
                return (enum nic_error)completion->status;
            }
        }
        assert_true(clock_now_ns() - start < PAIR_WAIT_S * 1000000000ull);
        pair_pass(100);
    }
}

/* ---- As others ------------------------------------------------------------------------------- */

static void fill(uint8_t *memory, uint32_t seed)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

static void ring_and_wait(struct rig *rig, uint32_t i)
{
    struct nic_queue_pair *pair = rig->near_pairs[i];
    pair->operations->ring_doorbell(pair);
    wait_all(rig, i);
    const struct nic_completion *last = inbox_last(&rig->near);
    assert_int_equal(last->kind, NIC_COMPLETION_SEND);
    assert_int_equal(last->queue_pair_number, pair->number);
    assert_int_equal(last->completed, pair->posted);
}

static void expect_at_far(struct rig *rig, uint32_t i, uint32_t bytes)
{
    assert_memory_equal(rig->far_memory + i * PLACE_BYTES, rig->near_memory + i * PLACE_BYTES,
                        bytes);
    memset(rig->far_memory, 0, BYTES);
}

void test_dynamic_transfers(void **state)
{
    struct rig *rig = set_up(2, 1);
    const uint32_t most = rig->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 64, most, most + 1, PLACE_BYTES};
    (void)state;
    fill(rig->near_memory, 1);
    for (uint32_t n = 0; n < 2 * sizeof(sizes) / sizeof(sizes[0]); n++) {
        const uint32_t i = n % 2, bytes = sizes[n / 2];
        struct nic_queue_pair *pair = rig->near_pairs[i];
        const struct nic_operations *operations = pair->operations;
        const struct nic_transfer transfer = transfer_of(rig, i, bytes);
        const struct nic_piece piece = {
            .address = transfer.local_address, .bytes = bytes, .local_key = transfer.local_key};
        assert_true(has_room(pair));
        operations->post_write(pair, &transfer, 0);
        ring_and_wait(rig, i);
        expect_at_far(rig, i, bytes);
        operations->post_foreign_write(pair, &transfer, 0);
        ring_and_wait(rig, i);
        expect_at_far(rig, i, bytes);
        operations->post_pieces(pair, false, &transfer, &piece, 1,
                                bytes <= most ? NIC_POST_INLINE : 0);
        ring_and_wait(rig, i);
        expect_at_far(rig, i, bytes);
        inbox_expect_silence(&rig->far);
        operations->post_write_immediate(pair, &transfer, 0);
        ring_and_wait(rig, i);
        inbox_wait(&rig->far, n + 1);
        assert_int_equal(inbox_last(&rig->far)->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(inbox_last(&rig->far)->queue_pair_number, rig->far_pairs[i]->number);
        assert_int_equal(inbox_last(&rig->far)->immediate, i);
        assert_int_equal(inbox_last(&rig->far)->byte_count, bytes);
        expect_at_far(rig, i, bytes);
    }
    fill(rig->far_memory, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct nic_transfer transfer = transfer_of(rig, i, PLACE_BYTES);
        assert_true(has_room(rig->near_pairs[i]));
        rig->near_pairs[i]->operations->post_read(rig->near_pairs[i], &transfer, 0);
        ring_and_wait(rig, i);
        assert_memory_equal(rig->near_memory + i * PLACE_BYTES, rig->far_memory + i * PLACE_BYTES,
                            PLACE_BYTES);
    }
    /* Each WQE has a completion, and none is counted twice. */
    assert_int_equal(rig->near.count, 4 * 2 * sizeof(sizes) / sizeof(sizes[0]) + 2);
    assert_int_equal(rig->near_pairs[0]->stats.wqes, rig->near_pairs[0]->posted);
    assert_int_equal(rig->near_pairs[0]->stats.doorbells, rig->near_pairs[0]->posted);
    tear_down(rig);
}

/* A peer reaches it before it knows the peer. */
void test_dynamic_before_connected(void **state)
{
    struct rig *rig = set_up(1, 1);
    struct nic_queue_pair *waiting = create(rig->far.nic, NULL, KEY_OF_FAR);
    struct nic_queue_pair *sender = create(rig->near.nic, NULL, KEY_OF_NEAR);
    const struct nic_transfer nothing = {.immediate = 77};
    (void)state;
    join(sender, waiting, &to_far);
    assert_true(has_room(sender));
    sender->operations->post_write_immediate(sender, &nothing, NIC_POST_RING);
    inbox_wait_completed(&rig->near, sender, 1);
    assert_int_equal(inbox_last(&rig->near)->kind, NIC_COMPLETION_SEND);
    inbox_wait(&rig->far, 1);
    assert_int_equal(inbox_last(&rig->far)->queue_pair_number, waiting->number);
    assert_int_equal(inbox_last(&rig->far)->immediate, 77);
    assert_int_equal(waiting->peer_number, 0);
    sender->operations->queue_pair_destroy(sender);
    waiting->operations->queue_pair_destroy(waiting);
    tear_down(rig);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

/* Two initiators for three: the third gets one when all of another's WQEs have completed, and is told. */
void test_dynamic_turns(void **state)
{
    struct rig *rig = set_up(3, 2);
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(has_room(rig->near_pairs[i]));
        write_one(rig, i);
        write_one(rig, i);
    }
    assert_false(has_room(rig->near_pairs[2]));
    assert_false(has_room(rig->near_pairs[2])); /* asked twice, it waits once */
    /* The first is called: it posts no more. */
    assert_int_equal(nic_send_room(rig->near_pairs[0]), 0);
    assert_int_not_equal(nic_send_room(rig->near_pairs[1]), 0);
    assert_ptr_equal(wait_granted(rig), rig->near_pairs[2]);
    assert_null(nic_granted(rig->near.nic));
    assert_true(has_room(rig->near_pairs[2]));
    write_one(rig, 2);
    for (uint32_t i = 0; i < 3; i++) {
        wait_all(rig, i);
    }
    inbox_wait(&rig->far, 5);
    /* With nothing under way, who asks has room at once, whosever it was. */
    for (uint32_t n = 0; n < 9; n++) {
        assert_true(has_room(rig->near_pairs[n % 3]));
        write_one(rig, n % 3);
        wait_all(rig, n % 3);
    }
    tear_down(rig);
}

/* Posts one of each that has got room. */
static void post_granted(struct rig *rig, uint32_t *posted)
{
    struct nic_queue_pair *pair;
    while ((pair = nic_granted(rig->near.nic)) != NULL) {
        uint32_t i = 0;
        while (rig->near_pairs[i] != pair) {
            i++;
        }
        write_one(rig, i);
        if (posted) {
            posted[i]++;
        }
    }
}

static bool have_sent(const struct rig *rig, uint32_t pairs)
{
    bool all = true;
    for (uint32_t i = 0; i < pairs; i++) {
        assert_false(rig->near_pairs[i]->failed);
        all &= rig->near_pairs[i]->completed >= STORM_SENDS;
    }
    return all;
}

/* All send as much as they can, and nobody has to wait for ever. */
void test_dynamic_all_get_turns(void **state)
{
    struct rig *rig = set_up(PAIRS_MAX, 2);
    (void)state;
    while (!have_sent(rig, PAIRS_MAX)) {
        for (uint32_t i = 0; i < PAIRS_MAX; i++) {
            for (uint32_t n = 0; n < 3 && has_room(rig->near_pairs[i]); n++) {
                write_one(rig, i);
            }
        }
        rig->near.count = 0;
        rig->far.count = 0;
        inbox_poll(&rig->near);
        inbox_poll(&rig->far);
        rig->far.nic->operations->refill(rig->far.nic);
        post_granted(rig, NULL);
    }
    tear_down(rig);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void expect_good(struct rig *rig, uint32_t i)
{
    const uint32_t before = rig->far.count;
    assert_true(has_room(rig->near_pairs[i]));
    write_one(rig, i);
    wait_all(rig, i);
    inbox_wait(&rig->far, before + 1);
    assert_int_equal(inbox_last(&rig->far)->queue_pair_number, rig->far_pairs[i]->number);
}

/* The only initiator fails with a pair whose peer is gone. The other waits, and goes on. */
void test_dynamic_peer_gone(void **state)
{
    struct rig *rig = set_up(2, 1);
    (void)state;
    expect_good(rig, 0);
    expect_good(rig, 1);
    end_far(rig, 0);
    assert_true(has_room(rig->near_pairs[0]));
    write_one(rig, 0);
    write_one(rig, 0);
    assert_false(has_room(rig->near_pairs[1]));
    const enum nic_error why = wait_failed(rig, 0);
    assert_true(why == NIC_ERROR_RETRY || why == NIC_ERROR_REMOTE_ACCESS || why == NIC_ERROR_OTHER);
    assert_false(rig->near_pairs[1]->failed);
    assert_false(nic_take_room(rig->near_pairs[0]));
    rig->near_pairs[0]->operations->queue_pair_fail(rig->near_pairs[0]);
    assert_ptr_equal(wait_granted(rig), rig->near_pairs[1]);
    expect_good(rig, 1);
    end_near(rig, 0);
    expect_good(rig, 1);
    tear_down(rig);
}

/* Whoever fails a pair ends what it has under way, and nobody else's. Its peer reaches nothing any more. */
void test_dynamic_fails_under_way(void **state)
{
    struct rig *rig = set_up(2, 1);
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        expect_good(rig, 1);
        assert_true(has_room(rig->near_pairs[0]));
        for (uint32_t n = 0; n < 20; n++) {
            write_one(rig, 0);
        }
        rig->near_pairs[0]->operations->queue_pair_fail(rig->near_pairs[0]);
        assert_true(rig->near_pairs[0]->failed);
        assert_false(nic_take_room(rig->near_pairs[0]));
        /* What is posted now is discarded. */
        write_one(rig, 0);
        rig->far.count = 0;
        for (uint32_t n = 0; n < 50; n++) { /* some may have arrived before */
            pair_pass(1000);
            inbox_poll(&rig->far);
        }
        assert_true(rig->far.count <= 20);
        for (uint32_t i = 0; i < rig->far.count; i++) {
            assert_int_equal(rig->far.completions[i].kind, NIC_COMPLETION_RECEIVE);
        }
        inbox_expect_silence(&rig->far);
        expect_good(rig, 1);
        /* The peer's WRITE is refused. */
        struct nic_transfer transfer = {.remote_address = 4096, .remote_key = 1};
        struct nic_queue_pair *peer = rig->far_pairs[0];
        assert_true(has_room(peer));
        peer->operations->post_write_immediate(peer, &transfer, NIC_POST_RING);
        while (!peer->failed) {
            pair_pass(100);
            inbox_poll(&rig->far);
        }
        end_near(rig, 0);
        end_far(rig, 0);
        make_pair(rig, 0, &to_far);
        rig->far.nic->operations->refill(rig->far.nic);
    }
    tear_down(rig);
}

/* One that waits may end, and so may one that was told. */
void test_dynamic_fails_waiting(void **state)
{
    struct rig *rig = set_up(3, 1);
    (void)state;
    assert_true(has_room(rig->near_pairs[0]));
    write_one(rig, 0);
    assert_false(has_room(rig->near_pairs[1]));
    assert_false(has_room(rig->near_pairs[2]));
    rig->near_pairs[1]->operations->queue_pair_fail(rig->near_pairs[1]);
    assert_ptr_equal(wait_granted(rig), rig->near_pairs[2]);
    assert_null(nic_granted(rig->near.nic));
    write_one(rig, 2);
    assert_false(has_room(rig->near_pairs[0]));
    wait_all(rig, 2);
    end_near(rig, 0); /* before it is told */
    assert_null(nic_granted(rig->near.nic));
    expect_good(rig, 2);
    tear_down(rig);
}

void test_dynamic_wrong_key(void **state)
{
    struct rig *rig = set_up(2, 1);
    struct nic_transport wrong = to_far;
    (void)state;
    end_near(rig, 0);
    end_far(rig, 0);
    wrong.access_key ^= 1;
    make_pair(rig, 0, &wrong);
    assert_true(has_room(rig->near_pairs[0]));
    write_one(rig, 0);
    wait_failed(rig, 0);
    rig->near_pairs[0]->operations->queue_pair_fail(rig->near_pairs[0]);
    inbox_expect_silence(&rig->far);
    expect_good(rig, 1);
    tear_down(rig);
}

/* A pair reaches the memory of its peer's domain, and no other, whatever key it has. */
void test_dynamic_domains(void **state)
{
    struct rig *rig = set_up(2, 2);
    struct nic_transfer transfer = transfer_of(rig, 1, 64);
    (void)state;
    memset(rig->near_memory, 0xee, BYTES);
    assert_true(has_room(rig->near_pairs[0]));
    rig->near_pairs[0]->operations->post_write(rig->near_pairs[0], &transfer, 0);
    rig->near_pairs[0]->operations->ring_doorbell(rig->near_pairs[0]);
    assert_int_equal(wait_failed(rig, 0), NIC_ERROR_REMOTE_ACCESS);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(rig->far_memory[i], 0);
    }
    rig->near_pairs[0]->operations->queue_pair_fail(rig->near_pairs[0]);
    expect_good(rig, 1);
    tear_down(rig);
}

/* What has arrived before a pair fails is polled with its number, which no other gets until it is destroyed. */
void test_dynamic_numbers(void **state)
{
    struct rig *rig = set_up(2, 1);
    (void)state;
    for (uint32_t n = 0; n < 3; n++) {
        assert_true(has_room(rig->near_pairs[0]));
        write_one(rig, 0);
    }
    wait_all(rig, 0);
    struct nic_queue_pair *failed = rig->far_pairs[0], *others[64];
    failed->operations->queue_pair_fail(failed);
    for (uint32_t n = 0; n < 64; n++) {
        others[n] = create(rig->far.nic, NULL, KEY_OF_FAR);
        assert_int_not_equal(others[n]->number, failed->number);
    }
    inbox_wait(&rig->far, 3);
    for (uint32_t n = 0; n < 3; n++) {
        assert_int_equal(rig->far.completions[n].kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(rig->far.completions[n].queue_pair_number, failed->number);
    }
    for (uint32_t n = 0; n < 64; n++) {
        others[n]->operations->queue_pair_destroy(others[n]);
    }
    expect_good(rig, 1);
    tear_down(rig);
}

/* One pair after another fails when what it sent has completed, and nobody polls. The completion queue, which is as long as all
 * send queues, does not overflow. */
void test_dynamic_fail_unpolled(void **state)
{
    struct rig *rig = set_up(2, 2);
    const uint32_t depth = rig->near.nic->send_depth;
    (void)state;
    assert_true(has_room(rig->near_pairs[0]));
    write_one(rig, 0); /* its completion is the first in the queue, and stays */
    for (uint32_t n = 0; n <= 2 * rig->near.nic->send_completion_depth; n += depth) {
        if (!has_room(rig->near_pairs[1])) { /* it is for a poll to make places in the queue */
            inbox_poll(&rig->near);
            assert_true(has_room(rig->near_pairs[1]) && has_room(rig->near_pairs[0]));
            write_one(rig, 0);
        }
        for (uint32_t i = 0; i < depth; i++) {
            write_one(rig, 1);
        }
        pair_pass(5000);
        inbox_poll(&rig->far);
        rig->far.count = 0;
        end_near(rig, 1);
        end_far(rig, 1);
        make_pair(rig, 1, &to_far);
        rig->far.nic->operations->refill(rig->far.nic);
    }
    wait_all(rig, 0);
    assert_int_equal(rig->near.count, rig->near_pairs[0]->posted);
    rig->far.count = 0;
    expect_good(rig, 0);
    expect_good(rig, 1);
    tear_down(rig);
}

/* The device does not mend the initiator of a pair that fails. What that has sent still completes, for nobody. The next who needs an
 * initiator has it mended, and who has waited gets it. */
void test_dynamic_refused(void **state)
{
    struct rig *rig = set_up(3, 1);
    (void)state;
    pair_refuse_resets(2);
    expect_good(rig, 0);
    rig->near.count = 0;
    write_one(rig, 0);
    write_one(rig, 0);
    assert_false(has_room(rig->near_pairs[1]));
    pair_pass(100000);
    rig->near_pairs[0]->operations->queue_pair_fail(rig->near_pairs[0]);
    assert_null(nic_granted(rig->near.nic));
    inbox_expect_silence(&rig->near);
    assert_int_equal(rig->near.nic->unknown_completions, 0);
    assert_false(has_room(rig->near_pairs[2])); /* it is refused again */
    end_near(rig, 0);
    inbox_expect_silence(&rig->near);
    assert_false(has_room(rig->near_pairs[2])); /* it is mended, for the one that has waited */
    assert_ptr_equal(nic_granted(rig->near.nic), rig->near_pairs[1]);
    expect_good(rig, 1);
    assert_ptr_equal(nic_granted(rig->near.nic), rig->near_pairs[2]);
    expect_good(rig, 2);
    tear_down(rig);
}

/* Pairs fail and are made again at any time, while others send; each WQE of those that do not fail arrives, once. */
void test_dynamic_storm(void **state)
{
    struct rig *rig = set_up(PAIRS_MAX, 2);
    uint32_t posted[PAIRS_MAX] = {0}, arrived[PAIRS_MAX] = {0}, seed = 12345;
    (void)state;
    while (!have_sent(rig, 3)) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t i = (seed >> 8) % PAIRS_MAX;
        for (uint32_t n = 0; n < (seed >> 16) % 8 && has_room(rig->near_pairs[i]); n++) {
            write_one(rig, i);
            posted[i]++;
        }
        if (i > 2 && seed >> 28 == 0) {
            rig->near_pairs[i]->operations->queue_pair_fail(rig->near_pairs[i]);
            end_near(rig, i);
            end_far(rig, i);
            make_pair(rig, i, &to_far);
        }
        rig->near.count = 0;
        rig->far.count = 0;
        inbox_poll(&rig->near);
        inbox_poll(&rig->far);
        for (uint32_t n = 0; n < rig->far.count; n++) {
            assert_int_equal(rig->far.completions[n].kind, NIC_COMPLETION_RECEIVE);
            arrived[rig->far.completions[n].immediate]++;
        }
        post_granted(rig, posted);
        rig->far.nic->operations->refill(rig->far.nic);
    }
    rig->near.count = 0;
    rig->far.count = 0;
    for (uint32_t i = 0; i < PAIRS_MAX; i++) {
        wait_all(rig, i);
    }
    for (uint32_t n = 0; n < 50; n++) {
        pair_pass(1000);
        inbox_poll(&rig->far);
    }
    for (uint32_t n = 0; n < rig->far.count; n++) {
        arrived[rig->far.completions[n].immediate]++;
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(arrived[i], posted[i]);
    }
    tear_down(rig);
}

/* test_schedule.c: scheduled mode: what may happen late, in pieces and in another order does; what
 * may not, does not. Most tests look for what chance shows in some of many seeds. */
#include "common.h"

#include <unistd.h>

#define SEEDS 200u

static void nothing_moves_by_itself(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);

    (void)state;
    assert_int_equal(memory_fabric_step(f->fabric), MEMORY_STEP_QUIET);
    f->a.source[0] = 1;
    post_write(f, 0, 0, 8, 1, NIC_POST_SIGNALED);
    assert_int_equal(memory_fabric_step(f->fabric), MEMORY_STEP_QUIET);
    ring(f, 0);
    assert_nothing(f->a.nic);
    assert_nothing(f->b.nic);
    assert_int_equal(f->b.written[0], 0);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 8);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_int_equal(f->b.written[0], 1);
    assert_int_equal(memory_fabric_step(f->fabric), MEMORY_STEP_QUIET);
    assert_int_equal(counters(f)->writes, 1);
    fixture_destroy(f);
}

/* ---- Determinism ----------------------------------------------------------------------------- */

struct trace {
    const struct fixture *fixture;
    uint64_t hash;
    uint32_t calls;
    uint32_t bytes;
};

static void trace_add(struct trace *trace, uint64_t value)
{
    trace->hash ^= value;
    random_split(&trace->hash);
    trace->hash = trace->hash * 31 + value;
}

static void trace_landing(void *argument, struct nic *target, uint32_t number, uint64_t address,
                          uint32_t bytes)
{
    struct trace *trace = argument;

    assert_ptr_equal(target, trace->fixture->b.nic);
    assert_non_null(memory_fabric_find(trace->fixture->fabric, number));
    assert_true(bytes > 0);
    trace_add(trace, number);
    trace_add(trace, address - (uintptr_t)trace->fixture->b.written);
    trace_add(trace, bytes);
    trace->calls++;
    trace->bytes += bytes;
}

static uint64_t trace_run(uint64_t seed, struct trace *trace)
{
    struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 4);
    struct nic_completion completion;

    *trace = (struct trace){.fixture = f};
    memory_fabric_watch(f->fabric, trace_landing, trace);
    for (uint32_t i = 0; i < 20; i++) {
        post_write(f, i % 4, i * 100, 100, i, i % 3 ? 0 : NIC_POST_SIGNALED);
        post_read(f, i % 4, i * 100, 100, 0);
        ring(f, i % 4);
    }
    while (memory_fabric_step(f->fabric) != MEMORY_STEP_QUIET) {
        while (OPERATIONS->poll(f->a.nic, &completion, 1) == 1) {
            trace_add(trace, completion.completed * 256 + completion.queue_pair_number);
        }
        while (OPERATIONS->poll(f->b.nic, &completion, 1) == 1) {
            trace_add(trace, completion.immediate * 256 + completion.queue_pair_number);
        }
    }
    assert_int_equal(trace->bytes, 20 * 100);
    fixture_destroy(f);
    return trace->hash;
}

static void a_seed_says_it_all(void **state)
{
    struct trace trace;
    uint32_t differ = 0, pieces = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const uint64_t hash = trace_run(seed, &trace);
        pieces += trace.calls;
        if (hash != trace_run(seed, &trace)) {
            fail_msg("seed %llu ran differently the second time", (unsigned long long)seed);
        }
        differ += hash != trace_run(seed + 1, &trace);
    }
    assert_int_equal(differ, SEEDS);
    assert_true(pieces > SEEDS * 20 * 3 / 2); /* at least one in two lands in pieces */
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* A run of random WRITEs and READs on several pairs. WQE n of a pair writes the byte n + 1 to its
 * own place, so that what a receive announces can be told from what came before it. */
enum { STRESS_PAIRS = 4, STRESS_WQES = 24, STRESS_BYTES = 40 };

struct stress {
    struct fixture *f;
    struct random_generator random;
    uint64_t seed;
    uint32_t posted[STRESS_PAIRS];
    uint32_t received[STRESS_PAIRS];
    uint32_t sent[STRESS_PAIRS];
    uint32_t last_post; /* order over all pairs */
    uint32_t post_order[STRESS_PAIRS][STRESS_WQES];
    uint32_t last_received;
    uint32_t reordered;
    uint32_t acknowledged_first; /* send completions polled before their receive completions */
};

#define STRESS_ASSERT(stress, condition)                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu: %s", (unsigned long long)(stress)->seed, #condition);             \
    } while (0)

static uint32_t stress_offset(uint32_t pair, uint32_t wqe)
{
    return (pair * STRESS_WQES + wqe) * STRESS_BYTES;
}

static void stress_post(struct stress *s)
{
    const uint32_t pair = random_below(&s->random, STRESS_PAIRS), wqe = s->posted[pair];
    const uint32_t offset = stress_offset(pair, wqe);
    const uint32_t flags = random_percent(&s->random, 50) ? NIC_POST_SIGNALED : 0;

    if (wqe == STRESS_WQES || nic_send_room(s->f->a.queue_pairs[pair]) < 2) {
        return;
    }
    memset(s->f->a.source + offset, (int)(wqe + 1), STRESS_BYTES);
    post_write(s->f, pair, offset, STRESS_BYTES, pair << 8 | wqe, flags);
    post_read(s->f, pair, offset, STRESS_BYTES, 0);
    ring(s->f, pair);
    s->post_order[pair][wqe] = ++s->last_post;
    s->posted[pair]++;
}

static void stress_receive(struct stress *s, const struct nic_completion *completion)
{
    const uint32_t pair = completion->immediate >> 8, wqe = completion->immediate & 0xff;

    STRESS_ASSERT(s, completion->kind == NIC_COMPLETION_RECEIVE);
    STRESS_ASSERT(s, completion->byte_count == STRESS_BYTES);
    STRESS_ASSERT(s, pair < STRESS_PAIRS && s->received[pair] == wqe);
    STRESS_ASSERT(s, completion->queue_pair_number == s->f->b.queue_pairs[pair]->number);
    for (uint32_t i = 0; i < STRESS_BYTES; i++) {
        STRESS_ASSERT(s, s->f->b.written[stress_offset(pair, wqe) + i] == wqe + 1);
    }
    s->received[pair]++;
    if (s->post_order[pair][wqe] < s->last_received) {
        s->reordered++;
    }
    s->last_received = s->post_order[pair][wqe];
}

static void stress_sent(struct stress *s, const struct nic_completion *completion)
{
    uint32_t pair = 0, done;

    while (s->f->a.queue_pairs[pair]->number != completion->queue_pair_number) {
        pair++;
    }
    STRESS_ASSERT(s, completion->kind == NIC_COMPLETION_SEND);
    STRESS_ASSERT(s, (int32_t)(completion->completed - s->sent[pair]) > 0);
    STRESS_ASSERT(s, completion->completed == s->f->a.queue_pairs[pair]->completed);
    s->sent[pair] = completion->completed;
    done = completion->completed / 2; /* WRITE and READ in turn */
    for (uint32_t wqe = 0; wqe < done; wqe++) {
        STRESS_ASSERT(s, s->f->a.landing[stress_offset(pair, wqe) + 7] == 0xee);
    }
    s->acknowledged_first += (completion->completed + 1) / 2 > s->received[pair];
}

static void stress_run(struct stress *s, uint64_t seed)
{
    struct nic_completion completion;

    s->seed = seed;
    s->f = fixture_create(seed, MEMORY_SCHEDULED, STRESS_PAIRS);
    random_seed(&s->random, ~seed);
    memset(s->posted, 0, sizeof(s->posted));
    memset(s->received, 0, sizeof(s->received));
    memset(s->sent, 0, sizeof(s->sent));
    s->last_post = s->last_received = 0;
    memset(s->f->b.read, 0xee, RING_BYTES);
    do {
        if (random_percent(&s->random, 10)) {
            stress_post(s);
        }
        if (random_percent(&s->random, 30)) {
            if (OPERATIONS->poll(s->f->b.nic, &completion, 1) == 1) {
                stress_receive(s, &completion);
            }
            OPERATIONS->refill(s->f->b.nic);
            if (OPERATIONS->poll(s->f->a.nic, &completion, 1) == 1) {
                stress_sent(s, &completion);
            }
        }
    } while (memory_fabric_step(s->f->fabric) != MEMORY_STEP_QUIET ||
             s->last_post < STRESS_PAIRS * STRESS_WQES / 2);
    while (OPERATIONS->poll(s->f->b.nic, &completion, 1) == 1) {
        stress_receive(s, &completion);
    }
    while (OPERATIONS->poll(s->f->a.nic, &completion, 1) == 1) {
        stress_sent(s, &completion);
    }
    for (uint32_t pair = 0; pair < STRESS_PAIRS; pair++) {
        STRESS_ASSERT(s, s->received[pair] == s->posted[pair]);
    }
    STRESS_ASSERT(s, counters(s->f)->receiver_not_ready == 0);
    STRESS_ASSERT(s, counters(s->f)->send_overflows == 0);
    STRESS_ASSERT(s, counters(s->f)->receive_overflows == 0);
    STRESS_ASSERT(s, counters(s->f)->reads == counters(s->f)->writes);
    fixture_destroy(s->f);
}

static void each_queue_pair_is_in_order_and_no_two(void **state)
{
    struct stress stress = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        stress_run(&stress, seed);
    }
    print_message("# %u receives reordered, %u acknowledged before received\n", stress.reordered,
                  stress.acknowledged_first);
    assert_true(stress.reordered > SEEDS);
    assert_true(stress.acknowledged_first > SEEDS / 10);
}

/* ---- When memory is looked at ---------------------------------------------------------------- */

static void payload_is_fetched_late_and_at_once(void **state)
{
    uint32_t before = 0, after = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        memset(f->a.source, 1, 256);
        post_write(f, 0, 0, 256, 0, 0);
        ring(f, 0);
        memset(f->a.source, 2, 256); /* nothing was fetched yet: never seen by the peer */
        for (uint64_t i = 0; i < seed % 4; i++) {
            memory_fabric_step(f->fabric);
        }
        memset(f->a.source, 3, 256);
        run_to_the_end(f, seed);
        for (int i = 0; i < 256; i++) {
            if (f->b.written[i] < 2 || f->b.written[i] != f->b.written[0]) {
                fail_msg("seed %llu: byte %d is %u", (unsigned long long)seed, i, f->b.written[i]);
            }
        }
        before += f->b.written[0] == 2;
        after += f->b.written[0] == 3;
        fixture_destroy(f);
    }
    assert_true(before > SEEDS / 4);
    assert_true(after > SEEDS / 4);
}

static void a_write_lands_in_pieces_before_its_receive(void **state)
{
    uint32_t partly = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        bool seen = false;
        memset(f->a.source, 0xff, 256);
        post_write(f, 0, 0, 256, 0, 0);
        ring(f, 0);
        do {
            struct nic_completion completion;
            uint64_t words[32];
            uint32_t landed = 0;
            memcpy(words, f->b.written, sizeof(words));
            for (int i = 0; i < 32; i++) {
                assert_true(words[i] == 0 || words[i] == UINT64_MAX); /* never half of a word */
                landed += words[i] != 0;
            }
            seen = seen || (landed > 0 && landed < 32);
            if (OPERATIONS->poll(f->b.nic, &completion, 1) == 1) {
                assert_int_equal(landed, 32);
            }
        } while (memory_fabric_step(f->fabric) != MEMORY_STEP_QUIET);
        partly += seen;
        fixture_destroy(f);
    }
    assert_true(partly > SEEDS / 4);
}

static void a_read_samples_word_by_word(void **state)
{
    uint32_t torn = 0, backwards = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        uint64_t now = 1, words[8];
        post_read(f, 0, 0, 64, NIC_POST_SIGNALED);
        ring(f, 0);
        do {
            for (int i = 0; i < 8; i++) {
                memcpy(f->b.read + 8 * i, &now, 8);
            }
            now += UINT64_C(0x0101010101010101);
        } while (memory_fabric_step(f->fabric) != MEMORY_STEP_QUIET);
        memcpy(words, f->a.landing, sizeof(words));
        for (int i = 0; i < 8; i++) {
            if (words[i] % UINT64_C(0x0101010101010101) != 1) {
                fail_msg("seed %llu: half of a word", (unsigned long long)seed);
            }
        }
        torn += words[0] != words[7];
        backwards += words[0] > words[1];
        assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
        fixture_destroy(f);
    }
    assert_true(torn > SEEDS * 9 / 10);
    assert_true(backwards > SEEDS / 10);
}

static void unaligned_transfers_are_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        const uint32_t offset = seed % 19, bytes = (uint32_t)(seed * 7 % 600);
        memory_fabric_options(f->fabric)->pieces_max = seed % 9;
        fill(f->a.source, RING_BYTES, 3);
        fill(f->b.read, RING_BYTES, 5);
        post_write(f, 0, offset, bytes, 0, 0);
        post_read(f, 0, offset, bytes, 0);
        ring(f, 0);
        run_to_the_end(f, seed);
        assert_memory_equal(f->b.written + offset, f->a.source + offset, bytes);
        assert_memory_equal(f->a.landing + offset, f->b.read + offset, bytes);
        for (uint32_t i = 0; i < RING_BYTES; i++) {
            if (i < offset || i >= offset + bytes) {
                assert_true(f->b.written[i] == 0 && f->a.landing[i] == 0);
            }
        }
        fixture_destroy(f);
    }
}

/* What is deregistered is not touched any more, though half of the payload has landed: it is freed
 * here, for the address sanitizer to watch. */
static void memory_may_vanish_in_between(void **state)
{
    uint32_t refused = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        uint8_t *theirs = malloc(512), *ours = malloc(512);
        struct nic_keys written = register_memory(f->b.nic, theirs, 512, 7);
        struct nic_keys landing = register_memory(f->a.nic, ours, 512, CRPC_ACCESS_LOCAL_WRITE);
        struct nic_transfer transfer = {
            .local_address = (uintptr_t)ours,
            .local_key = landing.local_key,
            .remote_address = (uintptr_t)theirs,
            .remote_key = written.remote_key,
            .bytes = 512,
        };
        memset(ours, 1, 512);
        memset(theirs, 2, 512);
        OPERATIONS->post_write_immediate(f->a.queue_pairs[0], &transfer, 0);
        OPERATIONS->post_read(f->a.queue_pairs[0], &transfer, 0);
        ring(f, 0);
        for (uint64_t i = 0; i < seed % 16; i++) {
            memory_fabric_step(f->fabric);
        }
        OPERATIONS->memory_deregister(f->b.nic, &written);
        OPERATIONS->memory_deregister(f->a.nic, &landing);
        free(theirs);
        free(ours);
        run_to_the_end(f, seed);
        refused += counters(f)->remote_access_errors != 0;
        assert_true(counters(f)->remote_access_errors + counters(f)->local_errors <= 1);
        fixture_destroy(f);
    }
    assert_true(refused > SEEDS / 4);
}

/* ---- Receives, weights, events --------------------------------------------------------------- */

static void without_a_receive_it_tries_again(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 2);
    struct nic_completion completions[RECEIVES];

    (void)state;
    for (uint32_t i = 0; i < DEPTH; i++) {
        post_write(f, 0, 0, 8, i, NIC_POST_SIGNALED);
        post_write(f, 1, 0, 8, i, NIC_POST_SIGNALED);
    }
    ring(f, 0);
    ring(f, 1);
    run_to_the_end(f, 1);
    while (OPERATIONS->poll(f->a.nic, completions, RECEIVES) > 0)
        ;
    post_write(f, 0, 0, 8, DEPTH, 0);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 5000));
    assert_int_equal(counters(f)->receiver_not_ready, 1);
    assert_int_equal(OPERATIONS->poll(f->b.nic, completions, RECEIVES), RECEIVES);
    assert_false(memory_fabric_run(f->fabric, 1000)); /* polled is not posted */
    OPERATIONS->refill(f->b.nic);
    run_to_the_end(f, 1);
    assert_receive(f->b.nic, f->b.queue_pairs[0], DEPTH, 8);
    assert_int_equal(counters(f)->receiver_not_ready, 1);

    memory_fabric_options(f->fabric)->receiver_not_ready_fails = true;
    for (uint32_t i = 0; i < 2; i++) { /* fills the SRQ again, then one too many */
        for (uint32_t j = 0; j < DEPTH - (i ? 1 : 0); j++) {
            post_write(f, 1, 0, 8, 0, NIC_POST_SIGNALED);
        }
        ring(f, 1);
        run_to_the_end(f, 1);
        while (OPERATIONS->poll(f->a.nic, completions, RECEIVES) > 0)
            ;
    }
    post_write(f, 1, 0, 8, 0, 0);
    ring(f, 1);
    run_to_the_end(f, 1);
    assert_error(f->a.nic, f->a.queue_pairs[1], NIC_ERROR_RNR, 3 * DEPTH);
    fixture_destroy(f);
}

static void a_lane_without_weight_waits(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    struct memory_fabric_options *options = memory_fabric_options(f->fabric);

    (void)state;
    options->acknowledge_weight = 0;
    options->receive_weight = 0;
    post_write(f, 0, 0, 8, 1, NIC_POST_SIGNALED);
    ring(f, 0);
    assert_false(memory_fabric_run(f->fabric, 1000));
    assert_int_equal(memory_fabric_step(f->fabric), MEMORY_STEP_WAITED);
    assert_int_equal(counters(f)->writes, 1);
    assert_nothing(f->a.nic);
    assert_nothing(f->b.nic);
    options->receive_weight = 1;
    assert_false(memory_fabric_run(f->fabric, 1000));
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1, 8);
    assert_nothing(f->a.nic);
    options->acknowledge_weight = 1;
    run_to_the_end(f, 1);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    fixture_destroy(f);
}

static void the_event_comes_with_the_completion(void **state)
{
    struct fixture *f = fixture_create(1, MEMORY_SCHEDULED, 1);
    struct nic_completion completion;
    uint64_t events;

    (void)state;
    assert_int_equal(OPERATIONS->arm(f->b.nic), 0);
    post_write(f, 0, 0, 8, 1, 0);
    ring(f, 0);
    for (;;) {
        const bool readable = read(f->b.nic->event_fd, &events, 8) == 8;
        assert_int_equal(readable, OPERATIONS->poll(f->b.nic, &completion, 1));
        if (readable) {
            break;
        }
        assert_int_not_equal(memory_fabric_step(f->fabric), MEMORY_STEP_QUIET);
    }
    fixture_destroy(f);
}

/* ---- Ends in the middle ---------------------------------------------------------------------- */

static void destroy_forgets_what_is_under_way(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 2);
        struct side *side = seed % 2 ? &f->a : &f->b;
        struct nic_completion completion;
        uint32_t number;
        memory_fabric_options(f->fabric)->reuse_numbers = true;
        for (uint32_t i = 0; i < 8; i++) {
            post_write(f, 0, 64 * i, 64, i, 0);
            post_read(f, 0, 64 * i, 64, NIC_POST_SIGNALED);
        }
        ring(f, 0);
        for (uint64_t i = 0; i < seed / 2; i++) {
            memory_fabric_step(f->fabric);
        }
        number = side->queue_pairs[0]->number;
        OPERATIONS->queue_pair_destroy(side->queue_pairs[0]);
        assert_int_equal(create_queue_pair(side->nic)->number, number);
        run_to_the_end(f, seed);
        while (OPERATIONS->poll(f->a.nic, &completion, 1) == 1) {
            assert_int_not_equal(completion.queue_pair_number, number);
        }
        while (OPERATIONS->poll(f->b.nic, &completion, 1) == 1) {
            assert_int_not_equal(completion.queue_pair_number, number);
        }
        OPERATIONS->refill(f->b.nic); /* all receives can be used again */
        for (uint32_t i = 0; i < RECEIVES; i++) {
            assert_int_equal(memory_fabric_write_immediate(f->fabric, f->b.queue_pairs[1]->number,
                                                           0, 0, 0, NULL, i),
                             NIC_ERROR_NONE);
        }
        fixture_destroy(f);
    }
}

static void what_arrived_before_a_queue_pair_died_completes_before_its_death(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fixture *f = fixture_create(seed, MEMORY_SCHEDULED, 1);
        memory_fabric_options(f->fabric)->receive_weight = 0;
        for (uint32_t i = 0; i < 8; i++) {
            post_write(f, 0, 0, 8, i, 0);
        }
        ring(f, 0);
        assert_false(memory_fabric_run(f->fabric, 2000));
        memory_fabric_kill(f->b.queue_pairs[0]);
        for (uint32_t i = 0; i < 8; i++) {
            struct nic_completion completion = poll_one(f->b.nic);
            assert_int_equal(completion.kind, NIC_COMPLETION_RECEIVE);
            assert_int_equal(completion.immediate, i);
        }
        assert_int_equal(f->b.nic->receives_posted, RECEIVES - 8);
        fixture_destroy(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_moves_by_itself),
        cmocka_unit_test(a_seed_says_it_all),
        cmocka_unit_test(each_queue_pair_is_in_order_and_no_two),
        cmocka_unit_test(payload_is_fetched_late_and_at_once),
        cmocka_unit_test(a_write_lands_in_pieces_before_its_receive),
        cmocka_unit_test(a_read_samples_word_by_word),
        cmocka_unit_test(unaligned_transfers_are_whole),
        cmocka_unit_test(memory_may_vanish_in_between),
        cmocka_unit_test(without_a_receive_it_tries_again),
        cmocka_unit_test(a_lane_without_weight_waits),
        cmocka_unit_test(the_event_comes_with_the_completion),
        cmocka_unit_test(destroy_forgets_what_is_under_way),
        cmocka_unit_test(what_arrived_before_a_queue_pair_died_completes_before_its_death),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("memory nic schedule", tests, NULL, NULL);
}

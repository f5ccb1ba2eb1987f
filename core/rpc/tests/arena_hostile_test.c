/* arena_hostile_test.c: what a peer may not say of payloads in arenas, and of what is returned. Side 1 is the victim. */
#include "arenas.h"

static struct arenas arenas;

static int open_pair(void **state)
{
    (void)state;
    return arenas_open(&arenas, CRPC_ENDPOINT_FULL_SIZE);
}

static int close_pair(void **state)
{
    (void)state;
    arenas_close(&arenas);
    return 0;
}

/* A batch of one message, as the peer's device would write it to the ring of side 1. */
static void send_batch(uint8_t kind, const void *word, uint32_t bytes, uint32_t returned)
{
    const struct rpc_endpoint *target = arenas_end(&arenas, 1);
    struct {
        struct wire_batch header;
        struct wire_message message;
        uint8_t word[64];
    } batch = {.header = {.request_limit = target->out.request_limit,
                          .batch_limit = target->out.batch_limit,
                          .sequence = target->in.sequence_expected,
                          .message_count = 1,
                          .returned = returned},
               .message = {.payload_bytes = bytes,
                           .kind = kind,
                           .limit_or_status = kind == WIRE_REQUEST_PLACED ? 8 : 0}};
    batch.header.bytes = (uint32_t)(WIRE_BATCH_HEADER_BYTES + wire_message_bytes(bytes));
    memcpy(batch.word, word, bytes);
    assert_int_equal(memory_fabric_write_immediate(
                         arenas.pair.fabric, target->link.queue_pair->number,
                         (uint64_t)(uintptr_t)ring_at(&target->in.ring, target->in.arrived),
                         target->in.ring.memory.remote_key, batch.header.bytes, &batch,
                         batch.header.bytes / WIRE_UNIT_BYTES),
                     NIC_ERROR_NONE);
}

static void expect_violation(const char *words)
{
    crpc_completion completions[8];
    rpc_poll(arenas.pair.engine[1], completions, 8);
    rpc_poll(arenas.pair.engine[1], completions, 8);
    assert_true(arenas_end(&arenas, 1)->link.failing);
    assert_int_equal(arenas_end(&arenas, 1)->stats.protocol_errors, 1);
    assert_non_null(strstr(arenas_end(&arenas, 1)->link.error.message, words));
}

static void a_payload_in_no_place(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    send_batch(WIRE_REQUEST_PLACED, &(struct wire_place){ARENAS_PLACES, 10},
               sizeof(struct wire_place), 0);
    expect_violation("in no place");
}

static void a_payload_without_an_arena(void **state)
{
    (void)state;
    send_batch(WIRE_REQUEST_PLACED, &(struct wire_place){0, 10}, sizeof(struct wire_place), 0);
    expect_violation("in no place");
}

static void a_payload_longer_than_its_place(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    send_batch(WIRE_REQUEST_PLACED, &(struct wire_place){0, ARENAS_PLACE_BYTES + 1},
               sizeof(struct wire_place), 0);
    expect_violation("longer than its place");
}

static void a_place_that_was_not_returned(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    assert_int_equal(arenas_call(&arenas, 1, 4000, 0), CRPC_OK);
    arenas_request(&arenas, 1, 4000, true);
    send_batch(WIRE_REQUEST_PLACED, &(struct wire_place){0, 10}, sizeof(struct wire_place), 0);
    expect_violation("not returned");
}

static void a_place_of_another_length(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    send_batch(WIRE_REQUEST_PLACED, "12345678901", 12, 0);
    expect_violation("another length");
}

static void a_response_to_no_call(void **state)
{
    (void)state;
    arenas_tell(&arenas, 1);
    send_batch(WIRE_RESPONSE_PLACED, &(struct wire_place){0, 10}, sizeof(struct wire_place), 0);
    expect_violation("answers no call");
}

static void a_return_without_an_arena(void **state)
{
    (void)state;
    send_batch(WIRE_REQUEST, "", 0, wire_return(0, 0));
    expect_violation("has not lent");
}

static void a_return_of_what_is_not_in_use(void **state)
{
    (void)state;
    arenas_tell(&arenas, 0);
    send_batch(WIRE_REQUEST, "", 0, wire_return(0, 0));
    expect_violation("not in use");
}

static void an_older_return_is_no_news(void **state)
{
    (void)state;
    arenas_tell(&arenas, 0);
    send_batch(WIRE_REQUEST, "", 0, wire_return(0, 0) ^ UINT32_MAX << WIRE_PLACES_MAX);
    pair_poll(&arenas.pair, 1);
    assert_false(arenas_end(&arenas, 1)->link.failing);
    assert_int_equal(rpc_arena_heard(arenas_end(&arenas, 1)), 0);
}

static void arenas_that_cannot_be(void **state)
{
    (void)state;
    const struct wire_arena good = {.address = 4096, .place_bytes = 4096, .key = 1, .places = 2};
    struct wire_arena bad[6];
    for (uint32_t i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].zero = 1;
    bad[1].places = 0;
    bad[2].places = WIRE_PLACES_MAX + 1;
    bad[3].place_bytes = 0;
    bad[4].address = UINT64_MAX - 8191;
    bad[5].places = UINT32_MAX;
    for (uint32_t i = 0; i < 6; i++) {
        uint8_t aligned[sizeof(struct wire_arena)];
        memcpy(aligned, &bad[i], sizeof(aligned));
        assert_string_equal(rpc_arena_take_word(arenas_end(&arenas, 1), aligned),
                            "its arena is malformed");
    }
    send_batch(WIRE_ARENA, &good, sizeof(good), 0);
    pair_poll(&arenas.pair, 1);
    assert_int_equal(arenas_end(&arenas, 1)->peer_arena.places, 2);
    send_batch(WIRE_ARENA, &good, sizeof(good), 0);
    expect_violation("a second arena");
}

static void an_arena_after_leave(void **state)
{
    (void)state;
    const struct wire_arena good = {.address = 4096, .place_bytes = 4096, .key = 1, .places = 2};
    arenas_end(&arenas, 1)->in.fin = FIN_BEFORE;
    send_batch(WIRE_ARENA, &good, sizeof(good), 0);
    expect_violation("after it took leave");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(a_payload_in_no_place),
        TEST(a_payload_without_an_arena),
        TEST(a_payload_longer_than_its_place),
        TEST(a_place_that_was_not_returned),
        TEST(a_place_of_another_length),
        TEST(a_response_to_no_call),
        TEST(a_return_without_an_arena),
        TEST(a_return_of_what_is_not_in_use),
        TEST(an_older_return_is_no_news),
        TEST(arenas_that_cannot_be),
        TEST(an_arena_after_leave),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

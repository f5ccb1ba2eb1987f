/* hostile_end_test.c: a peer that sends what docs/wire.md forbids while its connection ends for
 * another reason, before or after. The endpoint comes to its end all the same, whatever a poll takes
 * at a time: everything pending completes once, nothing is left to be done, nothing to be freed.
 */
#include "malformed.h"

#include <stdio.h>

#define POLLS_MAX 40u
#define CALLS 3u
#define FIRST_CALL 100u
#define REPLY 200u
#define CANCEL 300u

static struct pair pair;

/* What came of the victim in all polls of a case. */
static struct {
    uint32_t calls[CALLS];
    uint32_t replies;
    uint32_t cancels;
    uint32_t ends;
    int32_t call_status[CALLS];
    int32_t reply_status;
    int32_t end_status;
    uint32_t polls;
} seen;

static struct rpc_endpoint *victim;
static uint64_t victim_handle; /* when it is closed, too */

static void open_idle_pair(void)
{
    crpc_endpoint_options options = pair_options();
    memset(&seen, 0, sizeof(seen));
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    pair_connect(&pair, &options, &options);
    victim = pair.endpoint[0][0];
    victim_handle = victim->link.handle;
}

/* The victim has calls open, a reply whose sender waits for news of it, and a cancel to report. */
static void open_pair(void)
{
    crpc_op cancel = {.opcode = CRPC_OP_CANCEL, .user_data = CANCEL, .token = 1};
    open_idle_pair();
    for (uint64_t call = 0; call < CALLS; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, FIRST_CALL + call, 8, 1, 100), CRPC_OK);
    }
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), CALLS);
    assert_int_equal(pair_call(&pair, 1, 0, 1, 8, 1, 8), CRPC_OK);
    assert_int_equal(pair_poll(&pair, 0), 1);
    const crpc_completion *request = pair_find(&pair, 0, CRPC_COMPLETION_REQUEST);
    crpc_op reply = {.opcode = CRPC_OP_REPLY, .user_data = REPLY, .token = request->token};
    static const uint8_t nothing[64];
    assert_int_equal(rpc_reply(victim, &reply, nothing), CRPC_OK);
    assert_int_equal(rpc_cancel(victim, &cancel), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
}

static void close_pair(void)
{
    pair_close(&pair);
}

/* ---- What ends the connection besides -------------------------------------------------------- */

static const crpc_error hung_up = {.status = CRPC_E_DISCONNECTED, .message = "the peer hung up"};

/* As rdma_cm's event does: what has arrived is taken first. */
static void the_peer_hangs_up(void)
{
    engine_take_completions(pair.engine[0]);
    link_fail(&victim->link, &hung_up);
}

/* The send queue tells of the end before the receive queue tells of the arrivals. */
static void the_end_overtakes(void)
{
    link_fail(&victim->link, &hung_up);
}

static void the_transport_fails(void)
{
    memory_fabric_stall(victim->link.queue_pair, 1000);
    endpoint_read_mailbox(victim);
    memory_fabric_kill(victim->link.queue_pair);
}

/* The limit is over in the first poll, after the arrivals that it takes. */
static void the_leave_times_out(void)
{
    assert_int_equal(link_disconnect(&victim->link, 1),
                     victim->link.failing ? CRPC_E_STATE : CRPC_OK);
    pair.clock_ns += 1000000000;
}

static void it_takes_leave(void)
{
    assert_int_equal(link_disconnect(&victim->link, CRPC_FOREVER),
                     victim->link.failing ? CRPC_E_STATE : CRPC_OK);
}

struct ending {
    const char *name;
    void (*end)(void);
};

static const struct ending endings[] = {
    {"the peer hangs up", the_peer_hangs_up},     {"the end overtakes", the_end_overtakes},
    {"the transport fails", the_transport_fails}, {"the leave times out", the_leave_times_out},
    {"it takes leave", it_takes_leave},
};

#define ENDINGS (sizeof(endings) / sizeof(endings[0]))

/* ---- Polls ----------------------------------------------------------------------------------- */

static void take(const crpc_completion *one)
{
    uint64_t call = one->user_data - FIRST_CALL;
    assert_int_equal(one->endpoint.bits, victim_handle);
    switch (one->kind) {
    case CRPC_COMPLETION_RESPONSE:
        assert_in_range(call, 0, CALLS - 1);
        seen.calls[call]++;
        seen.call_status[call] = one->status;
        break;
    case CRPC_COMPLETION_REPLY:
        assert_int_equal(one->user_data, REPLY);
        seen.replies++;
        seen.reply_status = one->status;
        break;
    case CRPC_COMPLETION_CANCEL:
        seen.cancels++;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        seen.ends++;
        seen.end_status = one->status;
        break;
    default:
        assert_int_equal(one->kind, CRPC_COMPLETION_REQUEST);
        assert_int_equal(seen.ends, 0);
    }
}

static void poll_once(uint32_t capacity)
{
    crpc_completion completions[PAIR_COMPLETIONS];
    uint32_t count = rpc_poll(pair.engine[0], completions, capacity);
    for (uint32_t i = 0; i < count; i++) {
        take(&completions[i]);
    }
    seen.polls++;
}

/* Polls as one who sleeps when the engine says that nothing waits. */
static void poll_all(uint32_t capacity)
{
    do {
        poll_once(capacity);
    } while (rpc_something_waits(pair.engine[0]) && seen.polls < POLLS_MAX);
    if (rpc_something_waits(pair.engine[0])) {
        fail_msg("after %u polls something still waits: nobody can sleep", seen.polls);
    }
}

static void expect_once(void)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(seen.calls[i], 1);
    }
    assert_int_equal(seen.replies, 1);
    assert_int_equal(seen.cancels, 1);
}

static void expect_end_by_protocol(void)
{
    expect_once();
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.end_status, CRPC_E_PROTOCOL);
    assert_int_equal(victim->link.error.status, CRPC_E_PROTOCOL);
    assert_int_equal(victim->stats.protocol_errors, 1);
    /* One answer is good, in the batches that have another that is bad. */
    assert_int_equal(seen.call_status[CALLS - 1], CRPC_E_PROTOCOL);
    for (uint32_t i = 0; i < CALLS; i++) {
        int32_t status = seen.call_status[i];
        assert_true(status == CRPC_OK || status == CRPC_E_PROTOCOL || status == CRPC_E_DROPPED);
    }
    assert_true(seen.reply_status == CRPC_OK || seen.reply_status == CRPC_E_PROTOCOL);
}

/* Its handle, its memory and its place among the endpoints are free. */
static void expect_free(uint64_t handle, uint32_t endpoints)
{
    assert_null(handles_get(&pair.handles[0], handle, HANDLE_ENDPOINT));
    assert_int_equal(rpc_engine_endpoints(pair.engine[0]), endpoints - 1);
    assert_false(rpc_something_waits(pair.engine[0]));
    pair_round_trip(&pair, 1);
}

static void close_victim(void)
{
    uint64_t handle = victim->link.handle;
    uint32_t endpoints = rpc_engine_endpoints(pair.engine[0]);
    link_close(&victim->link);
    pair.endpoint[0][0] = NULL;
    poll_all(PAIR_COMPLETIONS);
    expect_free(handle, endpoints);
}

/* ---- The peer's words ------------------------------------------------------------------------ */

/* A good batch, the malformed one and one more, as if it were good. */
static void send_batches(const struct malformed *one)
{
    uint64_t position = victim->in.arrived;
    struct batch good = malformed_good_requests(&pair);
    struct batch bad =
        one->responses ? malformed_good_responses(&pair) : malformed_good_requests(&pair);
    one->spoil(&bad);
    good.first.call_id = 7;
    good.first.limit_or_status = 0;
    good.second.call_id = 8;
    good.header.sequence = victim->in.sequence_expected;
    bad.header.sequence += victim->in.sequence_expected + 1;
    malformed_send(&pair, &good, position);
    malformed_send(&pair, &bad, position + good.bytes);
    good.first.call_id = 9;
    good.second.call_id = 10;
    good.header.sequence += 2;
    malformed_send(&pair, &good, position + good.bytes + bad.bytes);
}

/* Several batches, of which none is malformed by itself. (Requests beyond their limit are not among
 * them: with a poll for each, the views of those before have ended.) */
struct several {
    const char *name;
    void (*send)(void);
};

static struct batch one_request(uint32_t number)
{
    struct batch batch = malformed_good_requests(&pair);
    batch.header.sequence = victim->in.sequence_expected + number;
    batch.header.message_count = 1;
    batch.header.bytes = 64;
    batch.first.call_id = 3 + number;
    batch.first.limit_or_status = 0;
    batch.immediate = 2;
    batch.bytes = 64;
    return batch;
}

static void send_more_than_the_window(void)
{
    uint64_t position = victim->in.arrived;
    for (uint32_t i = 0; i <= victim->in.batch_window; i++) {
        struct batch batch = one_request(i);
        malformed_send(&pair, &batch, position + i * 64);
    }
}

static void send_leave(bool with_request, bool leave_again)
{
    uint64_t position = victim->in.arrived;
    for (uint32_t i = 0; i < 2; i++) {
        struct batch batch = one_request(i);
        bool request = with_request && i == 1;
        batch.header.flags = i == 0 || leave_again ? WIRE_BATCH_FIN : 0;
        if (!request) {
            batch.header.message_count = 0;
            batch.header.bytes = batch.bytes = WIRE_BATCH_HEADER_BYTES;
            batch.immediate = 1;
        }
        malformed_send(&pair, &batch, position + i * WIRE_BATCH_HEADER_BYTES);
    }
}

static void send_a_request_after_leave(void)
{
    send_leave(true, false);
}

static void send_leave_twice(void)
{
    send_leave(false, true);
}

static const struct several several[] = {
    {"more_batches_than_the_window", send_more_than_the_window},
    {"a_request_after_leave", send_a_request_after_leave},
    {"leave_twice", send_leave_twice},
};

#define SEVERAL (sizeof(several) / sizeof(several[0]))

/* What a test is about: either. */
struct words {
    const struct malformed *malformed;
    const struct several *several;
};

static void send_words(const struct words *words)
{
    if (words->malformed) {
        send_batches(words->malformed);
    } else {
        words->several->send();
    }
}

static const uint32_t capacities[] = {1, 2, 3, PAIR_COMPLETIONS};

#define CAPACITIES (sizeof(capacities) / sizeof(capacities[0]))

static void malformed_behind_an_end(void **state)
{
    for (size_t i = 0; i < ENDINGS * CAPACITIES; i++) {
        const struct ending *ending = &endings[i / CAPACITIES];
        uint32_t capacity = capacities[i % CAPACITIES];
        print_message("# %s, %u at a time\n", ending->name, capacity);
        open_pair();
        send_words(*state);
        ending->end();
        poll_all(capacity);
        expect_end_by_protocol();
        close_victim();
        close_pair();
    }
}

/* The poll before has stopped half way through the good batch. */
static void malformed_before_an_end(void **state)
{
    for (size_t i = 0; i < ENDINGS; i++) {
        print_message("# %s\n", endings[i].name);
        open_pair();
        send_words(*state);
        poll_once(1);
        endings[i].end();
        poll_all(1);
        expect_end_by_protocol();
        close_victim();
        close_pair();
    }
}

/* The application closes it when it is over and parsed half way. */
static void malformed_before_a_close(void **state)
{
    for (size_t i = 0; i < ENDINGS * 6; i++) {
        uint32_t polls = i % 6;
        print_message("# %s, %zu polls\n", endings[i / 6].name, i % 6);
        open_pair();
        uint64_t handle = victim->link.handle;
        uint32_t endpoints = rpc_engine_endpoints(pair.engine[0]);
        send_words(*state);
        endings[i / 6].end();
        while (polls-- > 0) {
            poll_once(1);
        }
        uint32_t ends = seen.ends;
        link_close(&victim->link);
        pair.endpoint[0][0] = NULL;
        poll_all(1);
        expect_once();
        assert_int_equal(seen.ends, ends);
        expect_free(handle, endpoints);
        close_pair();
    }
}

/* ---- Where both took leave ------------------------------------------------------------------- */

/* Nothing is owed and both have said FIN: but what the peer says after it is no good end. */
static void a_word_after_both_took_leave(void **state)
{
    (void)state;
    for (size_t i = 0; i < CAPACITIES; i++) {
        open_idle_pair();
        assert_int_equal(link_disconnect(&victim->link, CRPC_FOREVER), CRPC_OK);
        struct batch fin = {
            .header = {.bytes = 32, .flags = WIRE_BATCH_FIN}, .immediate = 1, .bytes = 32};
        malformed_send(&pair, &fin, 0);
        fin.header.sequence = 1;
        malformed_send(&pair, &fin, 32);
        poll_all(capacities[i]);
        assert_int_equal(seen.ends, 1);
        assert_int_equal(seen.end_status, CRPC_E_PROTOCOL);
        assert_int_equal(victim->link.error.status, CRPC_E_PROTOCOL);
        close_victim();
        close_pair();
    }
}

/* ---- What is told of it ---------------------------------------------------------------------- */

/* The message tells of both. */
static void the_error_names_both_causes(void **state)
{
    (void)state;
    for (size_t i = 0; i < malformed_count; i++) {
        open_pair();
        send_batches(&malformed[i]);
        the_end_overtakes();
        poll_all(PAIR_COMPLETIONS);
        const char *message = victim->link.error.message;
        assert_non_null(strstr(message, "broke the protocol"));
        assert_non_null(strstr(message, hung_up.message));
        close_victim();
        close_pair();
    }
}

/* ---- Many ------------------------------------------------------------------------------------ */

/* An engine has as many endpoints as it may have, again and again. */
static void no_endpoint_is_used_up(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    open_pair();
    close_victim();
    link_close(&pair.endpoint[1][0]->link);
    pair_poll(&pair, 1);
    for (uint32_t i = 0; i < 3 * rpc_engine_endpoints_max(pair.engine[0]); i++) {
        memset(&seen, 0, sizeof(seen));
        pair.connections = 0;
        pair_connect(&pair, &options, &options);
        pair.connections = 2;
        victim = pair.endpoint[0][0];
        victim_handle = victim->link.handle;
        send_batches(&malformed[i % malformed_count]);
        endings[i % ENDINGS].end();
        poll_all(1 + i % 3);
        assert_int_equal(seen.ends, 1);
        close_victim();
        link_close(&pair.endpoint[1][0]->link);
        pair_poll(&pair, 1);
    }
    close_pair();
}

#define WORDS_MAX 128u

int main(void)
{
    static char names[3][WORDS_MAX][96];
    static struct words words[WORDS_MAX];
    static void (*const tests_of[3])(void **) = {malformed_behind_an_end, malformed_before_an_end,
                                                 malformed_before_a_close};
    static const char *const texts[3] = {"behind an end", "before an end", "before a close"};
    struct CMUnitTest tests[3 * WORDS_MAX + 3] = {0};
    size_t count = 0;
    assert(malformed_count + SEVERAL <= WORDS_MAX);
    for (size_t i = 0; i < malformed_count + SEVERAL; i++) {
        if (i < malformed_count) {
            words[i].malformed = &malformed[i];
        } else {
            words[i].several = &several[i - malformed_count];
        }
        const char *name = words[i].malformed ? words[i].malformed->name : words[i].several->name;
        for (size_t j = 0; j < 3; j++) {
            snprintf(names[j][i], sizeof(names[j][i]), "%s %s", name, texts[j]);
            tests[count++] = (struct CMUnitTest){names[j][i], tests_of[j], NULL, NULL, &words[i]};
        }
    }
#define ADD(test) tests[count++] = (struct CMUnitTest){#test, test, NULL, NULL, NULL}
    ADD(a_word_after_both_took_leave);
    ADD(the_error_names_both_causes);
    ADD(no_endpoint_is_used_up);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("hostile end", tests, count, NULL, NULL);
}

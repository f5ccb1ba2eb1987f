/* queue_change_test.c: crpc_queue_modify on the in-memory NIC: what it refuses, and what it changes. */
#include "fixture.h"

#define BYTES 4096u
#define READ CRPC_ACCESS_REMOTE_READ
#define ALL_REMOTE (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

static __attribute__((aligned(4096))) uint8_t here[BYTES], there[BYTES];
static crpc_region here_region, there_region;
static uint32_t remote_key;                                      /* of `there` */
static crpc_queue left, right, srq, tm_srq, datagrams, dci, dct; /* but for the first, of right */

static int open_queues(void **state)
{
    const crpc_queue_options options = {.struct_size = sizeof(options), .receives = 16};
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 100};
    const crpc_queue_options lossy = {
        .struct_size = sizeof(lossy), .kind = CRPC_QUEUE_KIND_UD, .receives = 4};
    const crpc_queue_options tagged = {
        .struct_size = sizeof(tagged), .kind = CRPC_QUEUE_KIND_TM_SRQ, .receives = 100};
    const crpc_queue_options initiator = {.struct_size = sizeof(initiator),
                                          .kind = CRPC_QUEUE_KIND_DCI};
    crpc_queue_options target = {.struct_size = sizeof(target), .kind = CRPC_QUEUE_KIND_DCT};
    crpc_region_info info = {.struct_size = sizeof(info)};
    int failed = fixture_open_with_queues(state);
    assert_int_equal(crpc_region_register(fixture.left, here, BYTES, CRPC_ACCESS_LOCAL_WRITE,
                                          &here_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, there, BYTES,
                                          CRPC_ACCESS_LOCAL_WRITE | ALL_REMOTE, &there_region,
                                          NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_get_info(fixture.right, there_region, &info), CRPC_OK);
    remote_key = info.remote_key;
    fixture_queues(&options, &left, &right);
    assert_int_equal(crpc_queue_open(fixture.right, &shared, &srq, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_open(fixture.right, &lossy, &datagrams, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_open(fixture.right, &tagged, &tm_srq, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_open(fixture.right, &initiator, &dci, NULL), CRPC_OK);
    target.receive_queue = srq;
    assert_int_equal(crpc_queue_open(fixture.right, &target, &dct, NULL), CRPC_OK);
    return failed;
}

static crpc_queue_info info_of(crpc_context *context, crpc_queue queue)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(context, queue, &info), CRPC_OK);
    return info;
}

static int32_t modify(crpc_context *context, crpc_queue queue, crpc_queue_change change)
{
    crpc_error error = {.struct_size = sizeof(error)};
    change.struct_size = sizeof(change);
    int32_t status = crpc_queue_modify(context, queue, &change, &error);
    assert_int_equal(status, error.status);
    return status;
}

struct wrong_change {
    crpc_queue_change change;
    const char *word;
    int32_t status;
};

static void must_refuse(crpc_context *context, crpc_queue queue, const struct wrong_change *cases,
                        size_t count)
{
    const crpc_queue_info before = info_of(context, queue);
    for (size_t i = 0; i < count; i++) {
        crpc_queue_change change = cases[i].change;
        crpc_error error = {.struct_size = sizeof(error)};
        change.struct_size = sizeof(change);
        int32_t status = crpc_queue_modify(context, queue, &change, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].word)) {
            fail_msg("case %zu, %s: %d, %s", i, cases[i].word, status, error.message);
        }
    }
    const crpc_queue_info after = info_of(context, queue);
    assert_memory_equal(&before, &after, sizeof(before));
}

#define MUST_REFUSE(context, queue, cases)                                                         \
    must_refuse(context, queue, cases, sizeof(cases) / sizeof((cases)[0]))

static void wrong_changes_are_refused_with_a_message(void **state)
{
    static const struct wrong_change cases[] = {
        {{.changes = 0}, "changes is 0", CRPC_E_INVALID},
        {{.changes = 0x80}, "0x80", CRPC_E_UNSUPPORTED},
        {{.changes = UINT32_MAX}, "this version does not know", CRPC_E_UNSUPPORTED},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .access = CRPC_ACCESS_LOCAL_WRITE},
         "access",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .access = 0x10}, "access", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT, .not_ready_wait_ns = 491520001},
         "not_ready_wait_ns",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT, .not_ready_wait_ns = UINT64_MAX},
         "not_ready_wait_ns",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_RETRY_TIMEOUT, .retry_timeout = 32},
         "retry_timeout",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_RETRY_COUNT, .retry_count = 8},
         "retry_count",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT, .not_ready_retry_count = 8},
         "not_ready_retry_count",
         CRPC_E_INVALID},
        /* A bit was forgotten. */
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .not_ready_wait_ns = 1},
         "not_ready_wait_ns is set, and changes lacks its bit, 0x1",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_RETRY_COUNT, .access = READ}, "0x2", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .retry_timeout = 1}, "0x4", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .retry_count = 1}, "0x8", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .not_ready_retry_count = 1}, "0x10", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .queue_key = 1}, "0x20", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS, .srq_limit = 1}, "0x40", CRPC_E_INVALID},
        /* Of another kind. */
        {{.changes = CRPC_QUEUE_CHANGE_QUEUE_KEY, .queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT}, "srq_limit", CRPC_E_INVALID},
        /* The device's turn: it names all that was asked for. */
        {{.changes = CRPC_QUEUE_CHANGE_RETRY_TIMEOUT}, "retry_timeout", CRPC_E_UNSUPPORTED},
        {{.changes = CRPC_QUEUE_CHANGE_RETRY_COUNT | CRPC_QUEUE_CHANGE_ACCESS, .retry_count = 3},
         "access, retry_count",
         CRPC_E_UNSUPPORTED},
        {{.changes = CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT, .not_ready_retry_count = 7},
         "not_ready_retry_count",
         CRPC_E_UNSUPPORTED},
    };
    (void)state;
    MUST_REFUSE(fixture.left, left, cases);
    assert_int_equal(crpc_queue_modify(fixture.left, left, NULL, NULL), CRPC_E_INVALID);
}

static void check_limit(crpc_queue shared)
{
    static const struct wrong_change cases[] = {
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS}, "only srq_limit", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT}, "only srq_limit", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_QUEUE_KEY}, "only srq_limit", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT | CRPC_QUEUE_CHANGE_RETRY_COUNT, .srq_limit = 1},
         "only srq_limit",
         CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = 101}, "100", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = UINT32_MAX}, "100", CRPC_E_INVALID},
    };
    MUST_REFUSE(fixture.right, shared, cases);
    assert_int_equal(
        modify(fixture.right, shared,
               (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT, .srq_limit = 100}),
        CRPC_OK);
    assert_int_equal(info_of(fixture.right, shared).srq_limit, 100);
    assert_int_equal(info_of(fixture.right, shared).access, 0);
    assert_int_equal(info_of(fixture.right, shared).not_ready_wait_ns, 0);
    assert_int_equal(
        modify(fixture.right, shared, (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT}),
        CRPC_OK);
    assert_int_equal(info_of(fixture.right, shared).srq_limit, 0);
}

static void an_srq_has_a_limit_and_nothing_else(void **state)
{
    (void)state;
    check_limit(srq);
    check_limit(tm_srq);
}

static void queues_of_dc_have_nothing_that_changes(void **state)
{
    static const uint32_t changes[] = {
        CRPC_QUEUE_CHANGE_NOT_READY_WAIT, CRPC_QUEUE_CHANGE_ACCESS,
        CRPC_QUEUE_CHANGE_RETRY_TIMEOUT,  CRPC_QUEUE_CHANGE_RETRY_COUNT,
        CRPC_QUEUE_CHANGE_QUEUE_KEY,      CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT,
        CRPC_QUEUE_CHANGE_SRQ_LIMIT};
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        const struct wrong_change of_dci[] = {
            {{.changes = changes[i]}, "of a DCI, nothing can change", CRPC_E_INVALID}};
        const struct wrong_change of_dct[] = {
            {{.changes = changes[i]}, "of a DCT, nothing can change", CRPC_E_INVALID}};
        MUST_REFUSE(fixture.right, dci, of_dci);
        MUST_REFUSE(fixture.right, dct, of_dct);
    }
}

static void a_queue_for_datagrams_has_a_key_and_nothing_else(void **state)
{
    static const struct wrong_change cases[] = {
        {{.changes = CRPC_QUEUE_CHANGE_ACCESS}, "only queue_key", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_SRQ_LIMIT}, "only queue_key", CRPC_E_INVALID},
        {{.changes = CRPC_QUEUE_CHANGE_QUEUE_KEY, .queue_key = 0x80000000},
         "0x7fffffff",
         CRPC_E_INVALID},
    };
    (void)state;
    assert_int_equal(info_of(fixture.right, datagrams).queue_key, CRPC_QUEUE_KEY_DEFAULT);
    MUST_REFUSE(fixture.right, datagrams, cases);
    assert_int_equal(modify(fixture.right, datagrams,
                            (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_QUEUE_KEY,
                                                .queue_key = 0x7fffffff}),
                     CRPC_OK);
    assert_int_equal(info_of(fixture.right, datagrams).queue_key, 0x7fffffff);
    assert_int_equal(modify(fixture.right, datagrams,
                            (crpc_queue_change){.changes = CRPC_QUEUE_CHANGE_QUEUE_KEY}),
                     CRPC_OK);
    assert_int_equal(info_of(fixture.right, datagrams).queue_key, CRPC_QUEUE_KEY_DEFAULT);
}

/* The next longer time that devices know. */
static void a_wait_is_rounded_up(void **state)
{
    static const uint64_t cases[][2] = {
        {0, 640000},
        {1, 10000},
        {10000, 10000},
        {10001, 20000},
        {50000, 60000},
        {640000, 640000},
        {640001, 960000},
        {100000000, 122880000},
        {327680001, 491520000},
        {491520000, 491520000},
    };
    (void)state;
    assert_int_equal(info_of(fixture.left, left).not_ready_wait_ns, 640000);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const crpc_queue_change change = {.changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT,
                                          .not_ready_wait_ns = cases[i][0]};
        assert_int_equal(modify(fixture.left, left, change), CRPC_OK);
        assert_int_equal(info_of(fixture.left, left).not_ready_wait_ns, cases[i][1]);
    }
}

static crpc_completion write_to(crpc_queue queue)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_WRITE,
                              .region = here_region,
                              .address = (uint64_t)(uintptr_t)here,
                              .bytes = 16,
                              .remote_key = remote_key,
                              .remote_address = (uint64_t)(uintptr_t)there};
    int32_t reason;
    assert_int_equal(crpc_queue_submit(fixture.left, queue, &op, 1, NULL, 0, &reason), 1);
    return fixture_await(fixture.left, CRPC_COMPLETION_WORK);
}

static void a_right_is_taken_and_given_back(void **state)
{
    const crpc_queue_change none = {.changes = CRPC_QUEUE_CHANGE_ACCESS};
    const crpc_queue_change writes = {.changes = CRPC_QUEUE_CHANGE_ACCESS,
                                      .access = CRPC_ACCESS_REMOTE_WRITE};
    (void)state;
    assert_int_equal(info_of(fixture.right, right).access, ALL_REMOTE);
    assert_int_equal(modify(fixture.right, right, none), CRPC_OK);
    assert_int_equal(info_of(fixture.right, right).access, 0);
    assert_int_equal(modify(fixture.right, right, writes), CRPC_OK);
    assert_int_equal(write_to(left).status, CRPC_OK);
    assert_int_equal(modify(fixture.right, right, none), CRPC_OK);
    assert_int_equal(write_to(left).status, CRPC_E_ACCESS);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_ACCESS);
    assert_int_equal(modify(fixture.left, left, none), CRPC_E_DISCONNECTED);
}

static void a_queue_of_a_blob_takes_all(void **state)
{
    const crpc_queue_change change = {
        .changes = CRPC_QUEUE_CHANGE_NOT_READY_WAIT | CRPC_QUEUE_CHANGE_ACCESS |
                   CRPC_QUEUE_CHANGE_RETRY_TIMEOUT | CRPC_QUEUE_CHANGE_RETRY_COUNT |
                   CRPC_QUEUE_CHANGE_NOT_READY_RETRY_COUNT,
        .not_ready_wait_ns = 20480000,
        .access = READ,
        .retry_timeout = 20,
        .retry_count = 2,
        .not_ready_retry_count = 3};
    crpc_queue_change defaults = {.changes = change.changes};
    (void)state;
    const crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    assert_int_equal(info_of(fixture.left, queue).retry_timeout, 14);
    assert_int_equal(modify(fixture.left, queue, change), CRPC_OK);
    crpc_queue_info info = info_of(fixture.left, queue);
    assert_int_equal(info.not_ready_wait_ns, 20480000);
    assert_int_equal(info.access, READ);
    assert_int_equal(info.retry_timeout, 20);
    assert_int_equal(info.retry_count, 2);
    assert_int_equal(info.not_ready_retry_count, 3);
    assert_int_equal(modify(fixture.left, queue, defaults), CRPC_OK);
    info = info_of(fixture.left, queue);
    assert_int_equal(info.not_ready_wait_ns, 640000);
    assert_int_equal(info.access, 0);
    assert_int_equal(info.retry_timeout, 14);
    assert_int_equal(info.retry_count, 6);
    assert_int_equal(info.not_ready_retry_count, 0);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    assert_int_equal(modify(fixture.left, queue, change), CRPC_E_STALE);
}

#define WITH_QUEUES(name) cmocka_unit_test_setup_teardown(name, open_queues, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_QUEUES(wrong_changes_are_refused_with_a_message),
        WITH_QUEUES(an_srq_has_a_limit_and_nothing_else),
        WITH_QUEUES(a_queue_for_datagrams_has_a_key_and_nothing_else),
        WITH_QUEUES(queues_of_dc_have_nothing_that_changes),
        WITH_QUEUES(a_wait_is_rounded_up),
        WITH_QUEUES(a_right_is_taken_and_given_back),
        WITH_QUEUES(a_queue_of_a_blob_takes_all),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

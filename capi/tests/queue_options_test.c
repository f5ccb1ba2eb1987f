/* queue_options_test.c: the options of queues, and what a context without queues says. */
#include "fixture.h"

static uint8_t memory[4096];
static crpc_queue queue, srq;
static crpc_region region;

static int open_queue(void **state)
{
    const crpc_queue_options shared = {.struct_size = sizeof(shared),
                                       .kind = CRPC_QUEUE_KIND_SRQ,
                                       .receives = 100,
                                       .receive_pieces = 1};
    int failed = fixture_open_with_queues(state);
    queue = fixture_lone_queue(fixture.left, NULL);
    assert_int_equal(crpc_queue_open(fixture.left, &shared, &srq, NULL), CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    return failed;
}

struct wrong_options {
    crpc_queue_options options;
    const char *word;
    int32_t status;
};

static void expect_message(const struct wrong_options *one, int32_t status, const crpc_error *error)
{
    if (status != one->status || !strstr(error->message, one->word)) {
        fail_msg("%s: %d, %s", one->word, status, error->message);
    }
}

static void expect_count(crpc_context *context, uint32_t max, uint32_t count)
{
    crpc_context_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
    assert_int_equal(info.queues_max, max);
    assert_int_equal(info.queues, count);
}

static void options_are_checked_with_a_message(void **state)
{
    (void)state;
    const crpc_queue other = fixture_lone_queue(fixture.left, NULL);
    const struct wrong_options cases[] = {
        {{.flags = 4}, "reserved", CRPC_E_INVALID},
        {{.tags = 1}, "only TM-SRQs", CRPC_E_INVALID},
        {{.queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.streams = 1}, "streams", CRPC_E_INVALID},
        {{.stream_failures_max = 1}, "streams", CRPC_E_INVALID},
        {{.access_key = 1}, "access_key", CRPC_E_INVALID},
        {{.access_key = UINT64_C(1) << 32}, "access_key", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_SRQ}, "crpc_queue_open", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_UD}, "crpc_queue_open", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_DCI}, "crpc_queue_open", CRPC_E_INVALID},
        {{.kind = CRPC_QUEUE_KIND_DCT}, "crpc_queue_open", CRPC_E_INVALID},
        {{.kind = 99}, "kind", CRPC_E_UNSUPPORTED},
        {{.kind = UINT32_MAX}, "kind", CRPC_E_UNSUPPORTED},
        {{.sends = 8193}, "sends", CRPC_E_INVALID},
        {{.receives = 8193}, "receives", CRPC_E_INVALID},
        {{.send_pieces = 17}, "send_pieces", CRPC_E_INVALID},
        {{.receives = 1, .receive_pieces = 17}, "receive_pieces", CRPC_E_INVALID},
        {{.receive_pieces = 1}, "receive_pieces", CRPC_E_INVALID},
        {{.inline_bytes = 513}, "inline_bytes", CRPC_E_INVALID},
        {{.receive_queue = {1}}, "receive_queue", CRPC_E_STALE},
        {{.receive_queue = {region.bits}}, "receive_queue", CRPC_E_STALE},
        {{.receive_queue = other}, "receive_queue", CRPC_E_INVALID},
        {{.receive_queue = srq, .receives = 1}, "receive_queue", CRPC_E_INVALID},
        {{.retry_timeout = 32}, "retry", CRPC_E_INVALID},
        {{.retry_count = 8}, "retry", CRPC_E_INVALID},
        {{.not_ready_retry_count = 8}, "not_ready", CRPC_E_INVALID},
        {{.reads_max = 17}, "reads_max", CRPC_E_INVALID},
        {{.private_bytes = 197}, "private_bytes", CRPC_E_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_queue made;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        options.struct_size = sizeof(options);
        expect_message(&cases[i],
                       crpc_queue_blob(fixture.left, &options, &made, blob, &bytes, &error),
                       &error);
        expect_message(&cases[i],
                       crpc_queue_connect(fixture.left, "127.0.0.1:1", &options, &made, &error),
                       &error);
        expect_message(&cases[i], crpc_queue_accept(fixture.left, queue, &options, &error), &error);
    }
}

static void private_data_has_a_limit_of_its_own_for_each_way(void **state)
{
    (void)state;
    crpc_queue_options options = {.struct_size = sizeof(options), .private_bytes = 57};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_queue_connect(fixture.left, "127.0.0.1:1", &options, &made, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "at most 56"));
    options.private_bytes = 1;
    assert_int_equal(crpc_queue_blob(fixture.left, &options, &made, blob, &bytes, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "at most 0"));
    options.private_bytes = 196;
    assert_int_equal(crpc_queue_accept(fixture.left, queue, &options, &error), CRPC_E_STATE);
    assert_int_equal(crpc_queue_reject(fixture.left, queue, NULL, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_reject(fixture.left, queue, blob, 149), CRPC_E_TOO_BIG);
    assert_int_equal(crpc_queue_reject(fixture.left, queue, blob, 148), CRPC_E_STATE);
}

static void the_first_sequence_number_can_be_zero(void **state)
{
    (void)state;
    const crpc_queue_options options = {.struct_size = sizeof(options),
                                        .flags = CRPC_QUEUE_SEQUENCE_ZERO};
    crpc_queue_address address = {.struct_size = sizeof(address), .packet_sequence_number = 1};
    crpc_queue made;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_queue_blob(fixture.left, &options, &made, blob, &bytes, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_get_address(fixture.left, made, &address), CRPC_OK);
    assert_int_equal(address.packet_sequence_number, 0);
    assert_int_equal(crpc_queue_close(fixture.left, made), CRPC_OK);
}

static void an_srq_has_receives_and_nothing_else(void **state)
{
    (void)state;
    const struct wrong_options cases[] = {
        {{.receives = 0}, "receives", CRPC_E_INVALID},
        {{.receives = 8193}, "receives", CRPC_E_INVALID},
        {{.receives = 1, .receive_pieces = 17}, "receive_pieces", CRPC_E_INVALID},
        {{.receives = 1, .flags = CRPC_QUEUE_SPARSE}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .flags = CRPC_QUEUE_SEQUENCE_ZERO}, "RC queues alone", CRPC_E_INVALID},
        {{.receives = 1, .sends = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .send_pieces = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .inline_bytes = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .receive_queue = srq}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .connect_timeout_ns = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .retry_timeout = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .retry_count = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .not_ready_retry_count = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .reads_max = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .private_bytes = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receives = 1, .queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.receives = 1, .streams = 1}, "streams", CRPC_E_INVALID},
        {{.receives = 1, .access_key = 1}, "access_key", CRPC_E_INVALID},
    };
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.kind = CRPC_QUEUE_KIND_SRQ;
        expect_message(&cases[i], crpc_queue_open(fixture.left, &options, &made, &error), &error);
    }
    assert_int_equal(crpc_queue_open(fixture.left, NULL, &made, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "crpc_queue_connect"));
}

static void a_queue_for_datagrams_has_a_key_and_no_connection(void **state)
{
    (void)state;
    const struct wrong_options cases[] = {
        {{.flags = 4}, "reserved", CRPC_E_INVALID},
        {{.queue_key = 0x80000000}, "queue_key", CRPC_E_INVALID},
        {{.queue_key = UINT32_MAX}, "queue_key", CRPC_E_INVALID},
        {{.sends = 8193}, "sends", CRPC_E_INVALID},
        {{.receive_pieces = 1}, "receive_pieces", CRPC_E_INVALID},
        {{.receive_queue = queue}, "receive_queue", CRPC_E_INVALID},
        {{.receive_queue = {1}}, "receive_queue", CRPC_E_STALE},
        {{.receive_queue = srq, .receives = 1}, "receive_queue", CRPC_E_INVALID},
        {{.connect_timeout_ns = UINT64_C(1) << 32}, "no connection", CRPC_E_INVALID},
        {{.retry_timeout = 1}, "no connection", CRPC_E_INVALID},
        {{.retry_count = 1}, "no connection", CRPC_E_INVALID},
        {{.not_ready_retry_count = 1}, "no connection", CRPC_E_INVALID},
        {{.reads_max = 1}, "no connection", CRPC_E_INVALID},
        {{.private_bytes = 1}, "no connection", CRPC_E_INVALID},
        {{.streams = 1}, "streams", CRPC_E_INVALID},
        {{.access_key = 1}, "access_key", CRPC_E_INVALID},
    };
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.kind = CRPC_QUEUE_KIND_UD;
        expect_message(&cases[i], crpc_queue_open(fixture.left, &options, &made, &error), &error);
    }
}

static void a_dci_sends_and_nothing_else(void **state)
{
    (void)state;
    const struct wrong_options cases[] = {
        {{.flags = 4}, "reserved", CRPC_E_INVALID},
        {{.tags = 1}, "only TM-SRQs", CRPC_E_INVALID},
        {{.queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.access_key = 1}, "access_key", CRPC_E_INVALID},
        {{.sends = 8193}, "sends", CRPC_E_INVALID},
        {{.receives = 1}, "receives nothing", CRPC_E_INVALID},
        {{.receive_pieces = 1}, "receives nothing", CRPC_E_INVALID},
        {{.receive_queue = srq}, "receives nothing", CRPC_E_INVALID},
        {{.receive_queue = {1}}, "receives nothing", CRPC_E_INVALID},
        {{.connect_timeout_ns = UINT64_C(1) << 32}, "by itself", CRPC_E_INVALID},
        {{.private_bytes = 1}, "by itself", CRPC_E_INVALID},
        {{.retry_timeout = 32}, "retry", CRPC_E_INVALID},
        {{.retry_count = 8}, "retry", CRPC_E_INVALID},
        {{.not_ready_retry_count = 8}, "not_ready", CRPC_E_INVALID},
        {{.reads_max = 17}, "reads_max", CRPC_E_INVALID},
        {{.streams = 65536}, "streams", CRPC_E_INVALID},
        {{.streams = UINT32_MAX}, "streams", CRPC_E_INVALID},
        {{.stream_failures_max = 1}, "stream_failures_max", CRPC_E_INVALID},
        {{.streams = 4, .stream_failures_max = 5}, "stream_failures_max", CRPC_E_INVALID},
        {{.streams = 4, .flags = CRPC_QUEUE_SPARSE}, "CRPC_QUEUE_SPARSE", CRPC_E_INVALID},
        {{.flags = CRPC_QUEUE_SEQUENCE_ZERO}, "RC queues alone", CRPC_E_INVALID},
    };
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.kind = CRPC_QUEUE_KIND_DCI;
        expect_message(&cases[i], crpc_queue_open(fixture.left, &options, &made, &error), &error);
    }
}

static void a_dct_has_an_srq_and_a_key(void **state)
{
    (void)state;
    const struct wrong_options cases[] = {
        {{.flags = 0}, "needs a receive_queue", CRPC_E_INVALID},
        {{.receives = 1}, "needs a receive_queue", CRPC_E_INVALID},
        {{.receive_queue = {1}}, "receive_queue", CRPC_E_STALE},
        {{.receive_queue = queue}, "not an SRQ", CRPC_E_INVALID},
        {{.receive_queue = srq, .flags = CRPC_QUEUE_SPARSE}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .sends = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .send_pieces = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .inline_bytes = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .receives = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .receive_pieces = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .connect_timeout_ns = UINT64_C(1) << 32},
         "leave the rest",
         CRPC_E_INVALID},
        {{.receive_queue = srq, .retry_timeout = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .retry_count = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .not_ready_retry_count = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .reads_max = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .private_bytes = 1}, "leave the rest", CRPC_E_INVALID},
        {{.receive_queue = srq, .queue_key = 1}, "queue_key", CRPC_E_INVALID},
        {{.receive_queue = srq, .streams = 1}, "streams", CRPC_E_INVALID},
        {{.receive_queue = srq, .stream_failures_max = 1}, "streams", CRPC_E_INVALID},
    };
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_queue_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.kind = CRPC_QUEUE_KIND_DCT;
        expect_message(&cases[i], crpc_queue_open(fixture.left, &options, &made, &error), &error);
    }
}

static void a_device_without_dc_says_so(void **state)
{
    (void)state;
    const crpc_context_options wanted = {
        .struct_size = sizeof(wanted), .device = "memory0", .flags = CRPC_CONTEXT_QUEUES};
    crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 1};
    crpc_queue_options options = {.struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_DCI};
    const crpc_target_options to = {.struct_size = sizeof(to), .kind = CRPC_QUEUE_KIND_DCI};
    crpc_queue_address address = {.struct_size = sizeof(address)};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    crpc_queue made;
    crpc_target target;
    assert_int_equal(crpc_queue_get_address(fixture.left, queue, &address), CRPC_OK);
    memory_fabric_options(memory_fabric_default())->no_dc = true;
    assert_int_equal(crpc_context_open(&wanted, &context, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_open(context, &options, &made, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    assert_int_equal(crpc_queue_open(context, &shared, &options.receive_queue, NULL), CRPC_OK);
    options.kind = CRPC_QUEUE_KIND_DCT;
    assert_int_equal(crpc_queue_open(context, &options, &made, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    assert_int_equal(crpc_target_open(context, &address, &to, &target, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "dynamically connected"));
    expect_count(context, 256, 1);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void more_streams_than_there_are(void **state)
{
    (void)state;
    crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_DCI, .streams = 40000};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue made;
    assert_int_equal(crpc_queue_open(fixture.left, &options, &made, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "streams is 40000"));
}

static void without_the_flag_there_are_no_queues(void **state)
{
    (void)state;
    crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 1};
    crpc_listener_options listens = {.struct_size = sizeof(listens), .flags = CRPC_LISTENER_QUEUES};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    crpc_queue made;
    crpc_queue_op op = {.opcode = CRPC_QUEUE_NOP};
    const crpc_queue_address address = {.struct_size = sizeof(address)};
    crpc_target target;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int32_t reason;
    assert_int_equal(crpc_queue_open(fixture.left, &shared, &made, &error), CRPC_E_STATE);
    assert_non_null(strstr(error.message, "CRPC_CONTEXT_QUEUES"));
    assert_int_equal(crpc_target_open(fixture.left, &address, NULL, &target, &error), CRPC_E_STATE);
    assert_non_null(strstr(error.message, "CRPC_CONTEXT_QUEUES"));
    assert_int_equal(crpc_queue_blob(fixture.left, NULL, &made, blob, &bytes, NULL), CRPC_E_STATE);
    assert_int_equal(crpc_queue_connect(fixture.left, "127.0.0.1:1", NULL, &made, NULL),
                     CRPC_E_STATE);
    assert_int_equal(crpc_listener_open(fixture.left, "127.0.0.1:1", &listens, &listener, &error),
                     CRPC_E_STATE);
    assert_non_null(strstr(error.message, "CRPC_CONTEXT_QUEUES"));
    assert_int_equal(crpc_queue_submit(fixture.left, (crpc_queue){0}, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_STALE);
    listens.flags = CRPC_LISTENER_QUEUES | CRPC_LISTENER_CHANNELS;
    assert_int_equal(crpc_listener_open(fixture.left, "127.0.0.1:1", &listens, &listener, NULL),
                     CRPC_E_INVALID);

    crpc_context_options options = {
        .struct_size = sizeof(options), .device = "memory0", .queues_max = 1};
    crpc_context *context;
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "CRPC_CONTEXT_QUEUES"));
    options.flags = CRPC_CONTEXT_QUEUES;
    options.queues_max = 65537;
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "queues_max"));
}

static int32_t make(uint32_t kind, crpc_queue *made, crpc_error *error)
{
    crpc_queue_options options = {.struct_size = sizeof(options), .kind = kind, .receives = 10};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    if (kind == CRPC_QUEUE_KIND_DCI) {
        options.receives = 0;
        options.streams = 3;
    } else if (kind == CRPC_QUEUE_KIND_DCT) {
        options.receives = 0;
        options.receive_queue = srq;
    }
    return kind == CRPC_QUEUE_KIND_RC
               ? crpc_queue_blob(fixture.left, &options, made, blob, &bytes, error)
               : crpc_queue_open(fixture.left, &options, made, error);
}

/* Whatever step fails, nothing is left of it, and there is a message. */
static void what_the_device_refuses_leaves_nothing(void **state)
{
    (void)state;
    struct memory_fabric *fabric = memory_fabric_default();
    const struct memory_fabric_counters *counters = memory_fabric_counters(fabric);
    const uint64_t regions = counters->regions, queue_pairs = counters->queue_pairs;
    const enum memory_failure kinds[] = {MEMORY_FAIL_REGISTER, MEMORY_FAIL_CREATE};
    uint32_t failed = 0;
    for (uint32_t i = 0; i < 2 * CRPC_QUEUE_KIND_DCT; i++) {
        bool pending = false;
        for (uint32_t nth = 1; !pending; nth++) {
            crpc_queue made;
            crpc_error error = {.struct_size = sizeof(error)};
            memory_fabric_set_failures(fabric, kinds[i % 2], nth, CRPC_E_NO_RESOURCE);
            int32_t status = make(CRPC_QUEUE_KIND_RC + i / 2, &made, &error);
            if (status == CRPC_OK) {
                assert_int_equal(crpc_queue_close(fixture.left, made), CRPC_OK);
            } else {
                assert_int_equal(status, CRPC_E_NO_RESOURCE);
                assert_true(strlen(error.message) > 10);
                failed++;
            }
            pending = memory_fabric_failure_pending(fabric, kinds[i % 2]);
            assert_int_equal(counters->regions, regions);
            assert_int_equal(counters->queue_pairs, queue_pairs);
        }
        memory_fabric_set_failures(fabric, kinds[i % 2], 0, 0);
    }
    assert_true(failed >= 2);
    assert_int_equal(crpc_queue_close(fixture.left, srq), CRPC_OK); /* nobody uses it */
}

/* A closed queue counts until the ops that it had open have completed. */
static void the_context_counts_its_queues(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 4};
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE};
    crpc_completion completion;
    crpc_context *plain;
    crpc_queue made;
    expect_count(fixture.left, 256, 2);
    assert_int_equal(crpc_queue_open(fixture.left, &shared, &made, NULL), CRPC_OK);
    expect_count(fixture.left, 256, 3);
    assert_int_equal(crpc_queue_submit(fixture.left, made, &op, 1, NULL, 0, NULL), 1);
    assert_int_equal(crpc_queue_close(fixture.left, made), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    expect_count(fixture.left, 256, 2);
    assert_int_equal(crpc_poll(fixture.left, &completion, 1), 1);
    while (crpc_poll(fixture.left, &completion, 1) > 0) {
    }
    expect_count(fixture.left, 256, 1);
    const crpc_context_options options = {.struct_size = sizeof(options), .device = "memory0"};
    assert_int_equal(crpc_context_open(&options, &plain, NULL), CRPC_OK);
    expect_count(plain, 0, 0);
    assert_int_equal(crpc_context_close(plain), CRPC_OK);
}

static void there_are_queues_max_queues(void **state)
{
    (void)state;
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .device = "memory0",
                                    .flags = CRPC_CONTEXT_QUEUES,
                                    .queues_max = 2};
    crpc_context *context;
    crpc_queue queues[2], third;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    crpc_completion completion;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        queues[i] = fixture_lone_queue(context, NULL);
    }
    expect_count(context, 2, 2);
    assert_int_equal(crpc_queue_blob(context, NULL, &third, blob, &bytes, NULL),
                     CRPC_E_NO_RESOURCE);
    assert_int_equal(crpc_queue_close(context, queues[0]), CRPC_OK);
    while (crpc_poll(context, &completion, 1) > 0) {
    }
    queues[0] = fixture_lone_queue(context, NULL);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(options_are_checked_with_a_message, open_queue,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(private_data_has_a_limit_of_its_own_for_each_way,
                                        open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(the_first_sequence_number_can_be_zero, open_queue,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(an_srq_has_receives_and_nothing_else, open_queue,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_queue_for_datagrams_has_a_key_and_no_connection,
                                        open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(a_dci_sends_and_nothing_else, open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(a_dct_has_an_srq_and_a_key, open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(a_device_without_dc_says_so, open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(more_streams_than_there_are, open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(without_the_flag_there_are_no_queues, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(what_the_device_refuses_leaves_nothing, open_queue,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(the_context_counts_its_queues, open_queue, fixture_close),
        cmocka_unit_test_setup_teardown(there_are_queues_max_queues, open_queue, fixture_close),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* struct_test.c: the rules of sized structs, for every one of them. A struct that is not in the
 * tables is found by abi_test.py, which compares them with the header.
 */
#include <stdlib.h>

#include "base/error.h"
#include "fixture.h"
#include "private/copyin.h"

#define LONGER 64 /* bytes more than ours */

/* ---- Structs that the caller fills ----------------------------------------------------------- */

/* Each calls a function with the struct and gives its status; `error` tells more. What succeeds
 * is undone. */
static int32_t use_context_options(const void *options, crpc_error *error)
{
    crpc_context *context;
    int32_t status = crpc_context_open(options, &context, error);
    if (status == CRPC_OK) {
        crpc_context_close(context);
    }
    return status;
}

static int32_t use_endpoint_options(const void *options, crpc_error *error)
{
    crpc_endpoint endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int32_t status = crpc_endpoint_blob(fixture.left, options, &endpoint, blob, &bytes, error);
    if (status == CRPC_OK) {
        crpc_endpoint_close(fixture.left, endpoint);
    }
    return status;
}

/* The in-memory NIC has no rdma_cm: a struct that is taken leads to a message that says so. */
static int32_t use_listener_options(const void *options, crpc_error *error)
{
    crpc_listener listener;
    int32_t status = crpc_listener_open(fixture.left, "127.0.0.1:1", options, &listener, error);
    return status == CRPC_E_UNSUPPORTED && strstr(error->message, "rdma_cm") ? CRPC_OK : status;
}

static int32_t use_channel_options(const void *options, crpc_error *error)
{
    crpc_channel channel;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int32_t status = crpc_channel_blob(fixture.left, options, &channel, blob, &bytes, error);
    if (status == CRPC_OK) {
        crpc_channel_close(fixture.left, channel);
    }
    return status;
}

static int32_t use_queue_options(const void *options, crpc_error *error)
{
    crpc_queue queue;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int32_t status = crpc_queue_blob(fixture.left, options, &queue, blob, &bytes, error);
    if (status == CRPC_OK) {
        crpc_queue_close(fixture.left, queue);
    }
    return status;
}

/* An address of zeros is none, whatever the size of the struct: what is taken leads to a message about
 * that. */
static int32_t use_queue_address(const void *address, crpc_error *error)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    crpc_queue_address ours;
    memcpy(&ours, address, sizeof(ours));
    int32_t status = crpc_queue_join_address(fixture.left, queue, address, error);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    if (status == CRPC_E_PROTOCOL && strstr(error->message, "mtu_bytes")) {
        status =
            ours.link == 0 ? CRPC_OK : CRPC_E_INVALID; /* as another struct's reserved member */
        error->status = status;
    }
    return status;
}

/* A change of nothing is none, whatever the size of the struct. */
static int32_t use_queue_change(const void *change, crpc_error *error)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    crpc_queue_change ours;
    memcpy(&ours, change, sizeof(ours));
    int32_t status = crpc_queue_modify(fixture.left, queue, change, error);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    if (status == CRPC_E_INVALID && strstr(error->message, "changes is 0")) {
        status = ours.access == 0 ? CRPC_OK : CRPC_E_INVALID;
        error->status = status;
    }
    return status;
}

static int32_t use_target_options(const void *options, crpc_error *error)
{
    const crpc_queue_address address = {.struct_size = sizeof(address),
                                        .queue_pair_number = 1,
                                        .link = CRPC_LINK_ETHERNET,
                                        .mtu_bytes = 1024};
    crpc_target target;
    int32_t status = crpc_target_open(fixture.left, &address, options, &target, error);
    if (status == CRPC_OK) {
        crpc_target_close(fixture.left, target);
    }
    return status;
}

struct in_struct {
    const char *name;
    size_t bytes;
    size_t version1_bytes;
    int32_t (*use)(const void *, crpc_error *);
    size_t reserved; /* offset of a field that must be zero */
};

static const struct in_struct in_structs[] = {
#define IN(type, field)                                                                            \
    {                                                                                              \
        "crpc_" #type, sizeof(crpc_##type), VERSION1_BYTES_##type, use_##type,                     \
            offsetof(crpc_##type, field)                                                           \
    }
    IN(context_options, features),             /* bit 0 may not be asked for */
    IN(endpoint_options, peer_ring_bytes_max), /* 1 is too small */
    IN(listener_options, reserved),
    IN(channel_options, flags),
    IN(queue_options, receive_pieces), /* there are no receives */
    IN(queue_address, link),
    IN(queue_change, access),
    IN(target_options, kind), /* 1 is RC */
};

#define IN_COUNT (sizeof(in_structs) / sizeof(in_structs[0]))

static int32_t use_with(const struct in_struct *one, uint8_t *bytes, uint32_t size,
                        crpc_error *error)
{
    *error = (crpc_error){.struct_size = sizeof(*error)};
    memcpy(bytes, &size, sizeof(size));
    return one->use(bytes, error);
}

static void structs_of_the_caller(void **state)
{
    (void)state;
    for (size_t i = 0; i < IN_COUNT; i++) {
        const struct in_struct *one = &in_structs[i];
        uint8_t *bytes = calloc(1, one->bytes + LONGER);
        uint32_t size = (uint32_t)one->bytes;
        crpc_error error;
        assert_non_null(bytes);
        assert_int_equal(use_with(one, bytes, size, &error), CRPC_OK);
        assert_int_equal(use_with(one, bytes, (uint32_t)one->version1_bytes, &error), CRPC_OK);
        assert_int_equal(use_with(one, bytes, (uint32_t)one->version1_bytes - 1, &error),
                         CRPC_E_INVALID);
        assert_non_null(strstr(error.message, one->name));
        assert_int_equal(use_with(one, bytes, 0, &error), CRPC_E_INVALID);
        assert_int_equal(use_with(one, bytes, size + LONGER, &error), CRPC_OK);
        bytes[one->bytes + LONGER - 1] = 1;
        assert_int_equal(use_with(one, bytes, size + LONGER, &error), CRPC_E_UNSUPPORTED);
        assert_non_null(strstr(error.message, one->name));
        assert_int_equal(use_with(one, bytes, size + LONGER - 1, &error), CRPC_OK);
        assert_int_equal(use_with(one, bytes, COPYIN_BYTES_MAX + 1, &error), CRPC_E_UNSUPPORTED);
        assert_int_equal(use_with(one, bytes, UINT32_MAX, &error), CRPC_E_UNSUPPORTED);
        bytes[one->reserved] = 1;
        assert_int_equal(use_with(one, bytes, size, &error), CRPC_E_INVALID);
        assert_int_equal(error.status, CRPC_E_INVALID);
        free(bytes);
    }
}

/* ---- Structs that the library fills ---------------------------------------------------------- */

static int32_t fill_error(void *out)
{
    return crpc_endpoint_get_error(fixture.left, fixture.left_endpoint, out);
}

static int32_t fill_device_info(void *out)
{
    return crpc_device_query(0, out, NULL);
}

static int32_t fill_context_info(void *out)
{
    return crpc_context_get_info(fixture.left, out);
}

static int32_t fill_stats(void *out)
{
    return crpc_context_get_stats(fixture.left, out);
}

static int32_t fill_endpoint_stats(void *out)
{
    return crpc_endpoint_get_stats(fixture.left, fixture.left_endpoint, out);
}

static int32_t fill_endpoint_info(void *out)
{
    return crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, out);
}

static int32_t fill_region_info(void *out)
{
    static uint8_t memory[4096];
    crpc_region region;
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory),
                                          CRPC_ACCESS_LOCAL_WRITE, &region, NULL),
                     CRPC_OK);
    int32_t status = crpc_region_get_info(fixture.left, region, out);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
    return status;
}

/* Without rdma_cm there is no listener to ask: sizes are checked before the handle. */
static int32_t fill_listener_info(void *out)
{
    int32_t status = crpc_listener_get_info(fixture.left, (crpc_listener){0}, out);
    return status;
}

static int32_t fill_cache_info(void *out)
{
    return crpc_cache_get_info(fixture.left, out);
}

static int32_t fill_rail_info(void *out)
{
    return crpc_rail_get_info(fixture.left, 0, out);
}

static crpc_channel lone_channel(void)
{
    crpc_channel channel;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_channel_blob(fixture.left, NULL, &channel, blob, &bytes, NULL), CRPC_OK);
    return channel;
}

static int32_t fill_channel_info(void *out)
{
    crpc_channel channel = lone_channel();
    int32_t status = crpc_channel_get_info(fixture.left, channel, out);
    assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
    return status;
}

static int32_t fill_channel_stats(void *out)
{
    crpc_channel channel = lone_channel();
    int32_t status = crpc_channel_get_stats(fixture.left, channel, out);
    assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
    return status;
}

static int32_t fill_channel_error(void *out)
{
    crpc_channel channel = lone_channel();
    int32_t status = crpc_channel_get_error(fixture.left, channel, out);
    assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
    return status;
}

static int32_t fill_queue_info(void *out)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    int32_t status = crpc_queue_get_info(fixture.left, queue, out);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    return status;
}

static int32_t fill_queue_stats(void *out)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    int32_t status = crpc_queue_get_stats(fixture.left, queue, out);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    return status;
}

static int32_t fill_method_metrics(void *out)
{
    return crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint,
                                            CRPC_METRICS_CLIENT, 0, out);
}

static int32_t fill_grant_info(void *out)
{
    static uint8_t memory[64];
    crpc_endpoint left, right;
    crpc_region region;
    fixture_lane(&left, &right);
    assert_int_equal(crpc_region_register(fixture.right, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    crpc_grant grant =
        fixture_grant(right, region, memory, sizeof(memory), CRPC_ACCESS_REMOTE_READ);
    int32_t status = crpc_grant_get_info(fixture.right, grant, out);
    assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
    assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.right, region), CRPC_OK);
    return status;
}

static int32_t fill_queue_address(void *out)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    int32_t status = crpc_queue_get_address(fixture.left, queue, out);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    return status;
}

static int32_t fill_queue_error(void *out)
{
    crpc_queue queue = fixture_lone_queue(fixture.left, NULL);
    int32_t status = crpc_queue_get_error(fixture.left, queue, out);
    assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
    return status;
}

struct out_struct {
    size_t bytes;
    size_t version1_bytes;
    int32_t (*fill)(void *);
    int32_t good; /* status when the size is right */
};

static const struct out_struct out_structs[] = {
#define OUT(type, function, good)                                                                  \
    {                                                                                              \
        sizeof(crpc_##type), VERSION1_BYTES_##type, function, good                                 \
    }
    OUT(error, fill_error, CRPC_OK),
    OUT(device_info, fill_device_info, CRPC_OK),
    OUT(context_info, fill_context_info, CRPC_OK),
    OUT(stats, fill_stats, CRPC_OK),
    OUT(stats, fill_endpoint_stats, CRPC_OK),
    OUT(endpoint_info, fill_endpoint_info, CRPC_OK),
    OUT(region_info, fill_region_info, CRPC_OK),
    OUT(listener_info, fill_listener_info, CRPC_E_STALE),
    OUT(cache_info, fill_cache_info, CRPC_OK),
    OUT(rail_info, fill_rail_info, CRPC_OK),
    OUT(channel_info, fill_channel_info, CRPC_OK),
    OUT(channel_stats, fill_channel_stats, CRPC_OK),
    OUT(error, fill_channel_error, CRPC_OK),
    OUT(queue_info, fill_queue_info, CRPC_OK),
    OUT(queue_stats, fill_queue_stats, CRPC_OK),
    OUT(queue_address, fill_queue_address, CRPC_OK),
    OUT(grant_info, fill_grant_info, CRPC_OK),
    OUT(method_metrics, fill_method_metrics, CRPC_OK),
    OUT(error, fill_queue_error, CRPC_OK),
};

#define OUT_COUNT (sizeof(out_structs) / sizeof(out_structs[0]))

static bool untouched(const uint8_t *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (bytes[i] != 0xcc) {
            return false;
        }
    }
    return true;
}

static void structs_of_the_library(void **state)
{
    (void)state;
    for (size_t i = 0; i < OUT_COUNT; i++) {
        const struct out_struct *one = &out_structs[i];
        const size_t room = one->bytes + LONGER;
        uint8_t *bytes = malloc(room);
        assert_non_null(bytes);
        const uint32_t sizes[] = {(uint32_t)one->version1_bytes, (uint32_t)one->bytes,
                                  (uint32_t)room};
        for (size_t j = 0; j < 3; j++) {
            uint32_t size = sizes[j], written;
            memset(bytes, 0xcc, room);
            memcpy(bytes, &size, sizeof(size));
            assert_int_equal(one->fill(bytes), one->good);
            if (one->good == CRPC_OK) {
                memcpy(&written, bytes, sizeof(written));
                assert_int_equal(written, size < one->bytes ? size : one->bytes);
                assert_true(untouched(bytes, written, room));
            }
        }
        const uint32_t bad[] = {0, 4, (uint32_t)one->version1_bytes - 1};
        for (size_t j = 0; j < 3; j++) {
            memset(bytes, 0xcc, room);
            memcpy(bytes, &bad[j], sizeof(bad[j]));
            assert_int_equal(one->fill(bytes), CRPC_E_INVALID);
            assert_true(untouched(bytes, sizeof(uint32_t), room));
        }
        assert_int_equal(one->fill(NULL), CRPC_E_INVALID);
        free(bytes);
    }
}

static void a_crpc_error_that_cannot_be_filled_fails_the_call(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = 8};
    crpc_context *context = NULL;
    crpc_context_options options = {.struct_size = 1};
    assert_int_equal(crpc_context_open(NULL, &context, &error), CRPC_E_INVALID);
    assert_null(context);
    error.struct_size = sizeof(error);
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
    assert_int_equal(error.status, CRPC_E_INVALID);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_INVALID);
}

/* ---- A struct that has grown ----------------------------------------------------------------- */

struct grown {
    uint32_t struct_size;
    uint32_t old;
    uint64_t new_field;
};

static void what_an_old_caller_does_not_have_reads_as_zero(void **state)
{
    (void)state;
    struct {
        uint32_t struct_size;
        uint32_t old;
        uint64_t not_part_of_it;
    } theirs = {.struct_size = 8, .old = 7, .not_part_of_it = UINT64_MAX};
    struct grown ours;
    assert_int_equal(copyin(&ours, sizeof(ours), 8, &theirs, "grown", NULL), CRPC_OK);
    assert_int_equal(ours.old, 7);
    assert_int_equal(ours.new_field, 0);
    assert_int_equal(copyin(&ours, sizeof(ours), 8, NULL, "grown", NULL), CRPC_OK);
    assert_int_equal(ours.old, 0);
    ours = (struct grown){.struct_size = sizeof(ours), .old = 9, .new_field = 10};
    theirs.struct_size = 8;
    copyout(&theirs, &ours, sizeof(ours));
    assert_int_equal(theirs.struct_size, 8);
    assert_int_equal(theirs.old, 9);
    assert_true(theirs.not_part_of_it == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(structs_of_the_caller, fixture_open_with_all,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(structs_of_the_library, fixture_open_with_all,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_crpc_error_that_cannot_be_filled_fails_the_call,
                                        fixture_open, fixture_close),
        cmocka_unit_test(what_an_old_caller_does_not_have_reads_as_zero),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* hostile_blob_test.c: blobs that docs/wire.md forbids, one thing wrong in each. They are refused, and another
 * channel of the same engine goes on.
 */
#include "pair_fixture.h"

static void seal(struct link_blob *blob)
{
    const uint8_t *bytes = (const uint8_t *)blob;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < offsetof(struct link_blob, checksum); i++) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    blob->checksum = hash;
}

static struct link_blob good_blob, blob;

static void expect_refusal(uint32_t bytes)
{
    crpc_channel_options options = pair_options();
    uint8_t ours[CRPC_BLOB_BYTES_MAX];
    struct channel *channel;
    crpc_error error = {0};
    assert_int_equal(channel_blob(pair.engine[0], &options, &channel, ours, &error), CRPC_OK);
    int32_t status = link_join(&channel->link, &blob, bytes, &error);
    assert_true(status == CRPC_E_PROTOCOL || status == CRPC_E_VERSION ||
                status == CRPC_E_UNREACHABLE);
    assert_true(strlen(error.message) > 10);
    link_close(&channel->link);
    blob = good_blob;
}

#define SPOIL(statement)                                                                           \
    do {                                                                                           \
        statement;                                                                                 \
        memcpy(blob.hello.body, &hello, sizeof(hello));                                            \
        seal(&blob);                                                                               \
        expect_refusal(sizeof(blob));                                                              \
        memcpy(&hello, blob.hello.body, sizeof(hello));                                            \
    } while (0)

static void malformed_blobs_are_refused(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    struct channel *channel;
    crpc_error error = {0};
    assert_int_equal(
        channel_blob(pair.engine[1], &options, &channel, (uint8_t *)&good_blob, &error), CRPC_OK);
    struct channel_hello hello;
    blob = good_blob;
    memcpy(&hello, blob.hello.body, sizeof(hello));
    expect_refusal(sizeof(blob) - 1);
    expect_refusal(0);
    for (size_t i = 0; i < offsetof(struct link_blob, checksum); i++) {
        ((uint8_t *)&blob)[i] ^= 0x80; /* not sealed */
        expect_refusal(sizeof(blob));
    }
    SPOIL(blob.magic++);
    SPOIL(blob.bytes--);
    SPOIL(blob.zero2 = 1);
    SPOIL(blob.address.queue_pair_number = 1u << 24);
    SPOIL(blob.address.queue_pair_number = 0);
    SPOIL(blob.address.packet_sequence_number = 1u << 24);
    SPOIL(blob.address.mtu_code = 0);
    SPOIL(blob.address.mtu_code = 6);
    SPOIL(blob.address.ece_options = 1);
    SPOIL(blob.address.link = CRPC_LINK_INFINIBAND);
    SPOIL(blob.address.link = 77);
    SPOIL(blob.hello.magic++);
    SPOIL(blob.hello.version_min = CHANNEL_VERSION_MAX + 1);
    SPOIL(blob.hello.version_max = CHANNEL_VERSION_MIN - 1);
    SPOIL(blob.hello.service = LINK_SERVICE_CALLS);
    SPOIL(hello.slots_log2 = 9);
    SPOIL(hello.slots_log2 = 40);
    SPOIL(hello.queue_pairs = 0);
    SPOIL(hello.queue_pairs = CHANNEL_QUEUE_PAIRS_MAX + 1);
    SPOIL(hello.area_address++);
    SPOIL(hello.area_address = UINT64_MAX & ~UINT64_C(63));
    SPOIL(hello.rails = 0);
    SPOIL(hello.rails = 2);
    SPOIL(hello.rails = 4);
    SPOIL(blob.hello.token_bytes = LINK_TOKEN_BYTES + 1);
    SPOIL(hello.zero = 1);
    SPOIL(hello.zero2 = 1);
    SPOIL(blob.hello.features_required = 2); /* that nobody knows */
    pair_message(&pair, 5000, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(malformed_blobs_are_refused, pair_setup, pair_teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

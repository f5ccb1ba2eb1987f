/* client.c: see client.h. */
#include "client.h"
#include "place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMPLETIONS 128
#define PAYLOAD_MAX (1u << 20)

static uint8_t payload[PAYLOAD_MAX];
static uint32_t payload_bytes[CLIENT_CALLS_MAX];
static uint16_t methods[CLIENT_CALLS_MAX];

static uint8_t byte_of(uint64_t call, uint32_t offset)
{
    return (uint8_t)(call * 131 + offset * 7 + (offset >> 8) + 1);
}

void client_open(struct client *client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    memset(client, 0, sizeof(*client));
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .features = PLACE_FEATURES,
                                          .initiators = place_initiators()};
    int32_t status = crpc_context_open(&options, &client->context, &error);
    if (status != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    crpc_context_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_context_get_info(client->context, &info), CRPC_OK);
    assert_int_equal(info.initiators, place_initiators());
}

static void check_echo(const crpc_completion *completion)
{
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)completion->payload;
    uint64_t call = completion->user_data;
    assert_int_equal(completion->payload_bytes, payload_bytes[call]);
    for (uint32_t i = 0; i < completion->payload_bytes; i++) {
        if (bytes[i] != byte_of(call, i)) {
            fail_msg("call %llu of %u bytes: byte %u is wrong", (unsigned long long)call,
                     completion->payload_bytes, i);
        }
    }
}

static void take_response(struct client *client, const crpc_completion *completion)
{
    uint64_t call = completion->user_data;
    assert_true(call < client->submitted);
    assert_int_equal(client->seen[call], 0);
    assert_int_equal(completion->method, methods[call]);
    client->seen[call] = 1;
    client->status[call] = completion->status;
    client->order[client->completed++] = call;
    if (completion->status == CRPC_OK) {
        check_echo(completion);
    }
}

void client_poll(struct client *client, uint64_t wait_ns)
{
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(client->context, completions, COMPLETIONS);
    assert_true(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        const crpc_completion *one = &completions[i];
        if (one->kind == CRPC_COMPLETION_RESPONSE) {
            take_response(client, one);
        } else if (one->kind == CRPC_COMPLETION_CONNECTED) {
            client->connected++;
            client->connected_status = one->status;
        } else if (one->kind == CRPC_COMPLETION_DISCONNECTED) {
            client->disconnected++;
            client->disconnected_status = one->status;
        } else {
            assert_int_equal(one->kind, CRPC_COMPLETION_ROOM);
        }
    }
    if (count == 0 && wait_ns) {
        crpc_wait(client->context, wait_ns);
    }
}

int32_t client_connect(struct client *client, const char *address,
                       const crpc_endpoint_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options ours = {.struct_size = sizeof(ours)};
    uint32_t before = client->connected;
    double end = now_seconds() + 90;
    if (options) {
        ours = *options;
    }
    if (ours.connect_timeout_ns == 0) {
        ours.connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS;
    }
    if (ours.retry_timeout == 0) {
        ours.retry_timeout = place_retry_timeout();
    }
    int32_t status = crpc_endpoint_connect(client->context, address, &ours,
                                           &client->endpoints[client->endpoint_count], &error);
    if (status != CRPC_OK) {
        fail_msg("connect %s: %s", address, error.message);
    }
    client->endpoint_count++;
    while (client->connected == before) {
        assert_true(now_seconds() < end);
        client_poll(client, 10000000);
    }
    if (client->connected_status != CRPC_OK &&
        crpc_endpoint_get_error(client->context, client->endpoints[client->endpoint_count - 1],
                                &error) == CRPC_OK) {
        print_message("# connect %s: %s\n", address, error.message);
    }
    return client->connected_status;
}

/* One submit; the reason why it was not taken, or CRPC_OK. */
static int32_t submit_call(struct client *client, uint32_t endpoint, uint16_t method,
                           uint32_t bytes, uint64_t timeout_ns)
{
    uint64_t call = client->submitted;
    int32_t reason;
    assert_true(call < CLIENT_CALLS_MAX && bytes <= PAYLOAD_MAX);
    for (uint32_t i = 0; i < bytes; i++) {
        payload[i] = byte_of(call, i);
    }
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .method = method,
                  .endpoint = client->endpoints[endpoint],
                  .user_data = call,
                  .payload_bytes = bytes,
                  .reply_bytes_max = bytes,
                  .timeout_ns = timeout_ns};
    payload_bytes[call] = bytes;
    methods[call] = method;
    client->submitted += (uint64_t)crpc_submit(client->context, &op, 1, payload, bytes, &reason);
    return reason;
}

void client_call(struct client *client, uint32_t endpoint, uint16_t method, uint32_t bytes,
                 uint64_t timeout_ns)
{
    int32_t reason;
    while ((reason = submit_call(client, endpoint, method, bytes, timeout_ns)) != CRPC_OK) {
        if (reason != CRPC_E_AGAIN) {
            fail_msg("call %llu of %u bytes: %s", (unsigned long long)client->submitted, bytes,
                     crpc_status_name(reason));
        }
        client_poll(client, 10000000);
    }
}

bool client_try_call(struct client *client, uint32_t endpoint, uint16_t method, uint32_t bytes)
{
    int32_t reason = submit_call(client, endpoint, method, bytes, 0);
    assert_true(reason == CRPC_OK || reason == CRPC_E_AGAIN || reason == CRPC_E_DISCONNECTED);
    return reason == CRPC_OK;
}

void client_finish(struct client *client, double seconds)
{
    double end = now_seconds() + seconds;
    while (client->completed < client->submitted) {
        if (now_seconds() > end) {
            fail_msg("%llu of %llu calls are still open after %.0f s",
                     (unsigned long long)(client->submitted - client->completed),
                     (unsigned long long)client->submitted, seconds);
        }
        client_poll(client, 10000000);
    }
}

void client_leave(struct client *client)
{
    double end = now_seconds() + 60;
    for (uint32_t i = 0; i < client->endpoint_count; i++) {
        assert_int_equal(
            crpc_endpoint_disconnect(client->context, client->endpoints[i], CRPC_FOREVER), CRPC_OK);
    }
    while (client->disconnected < client->endpoint_count) {
        assert_true(now_seconds() < end);
        client_poll(client, 10000000);
        assert_int_equal(client->disconnected_status, CRPC_OK);
    }
}

void client_close(struct client *client)
{
    assert_int_equal(crpc_context_close(client->context), CRPC_OK);
    client->context = NULL;
}

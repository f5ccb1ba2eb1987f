/* connect_test.c: connecting and losing the peer, over a real RDMA device: names and address
 * families, refusals, unreachable places, other versions, kill -9, too little memory to lock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_fixture.h"
#include "footprint.h"
#include "place.h"
#include "signals.h"
#include "stranger.h"

static void call_it_once(void)
{
    client_call(&client, 0, METHOD_ECHO, 100, 0);
    client_finish(&client, 60);
    assert_int_equal(client.status[0], CRPC_OK);
}

static void connect_to_host(const char *host)
{
    peer_start(&peer, host);
    client_open(&client);
    assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    call_it_once();
    client_leave(&client);
    client_close(&client);
    peer_stop(&peer);
}

static void by_ipv6(void **state)
{
    (void)state;
    connect_to_host(place_address6());
}

static void by_host_name(void **state)
{
    (void)state;
    char address[128];
    peer_start(&peer, NULL);
    snprintf(address, sizeof(address), "%s:%s", place_name(), strrchr(peer.address, ':') + 1);
    client_open(&client);
    assert_int_equal(client_connect(&client, address, NULL), CRPC_OK);
    call_it_once();
    client_leave(&client);
    client_close(&client);
    peer_stop(&peer);
}

static crpc_error failed_connect(const char *address, const crpc_endpoint_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    client_open(&client);
    int32_t status = client_connect(&client, address, options);
    assert_true(status < 0);
    assert_int_equal(crpc_endpoint_get_error(client.context, client.endpoints[0], &error), CRPC_OK);
    assert_int_equal(error.status, status);
    assert_true(strlen(error.message) > 10);
    print_message("# %s: %s\n", crpc_status_name(status), error.message);
    crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = client.endpoints[0]};
    int32_t reason;
    assert_int_equal(crpc_submit(client.context, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
    client_close(&client);
    return error;
}

static void the_application_refuses_by_token(void **state)
{
    (void)state;
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .token_bytes = sizeof(REFUSE_TOKEN) - 1};
    memcpy(options.token, REFUSE_TOKEN, options.token_bytes);
    peer_start(&peer, NULL);
    crpc_error error = failed_connect(peer.address, &options);
    assert_int_equal(error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(error.message, "42"));
    peer_stop(&peer);
}

static void nobody_listens(void **state)
{
    (void)state;
    char address[128];
    snprintf(address, sizeof(address), "%s:9", test_host());
    crpc_error error = failed_connect(address, NULL);
    assert_int_equal(error.status, CRPC_E_REFUSED);
}

static void no_route_and_no_such_name(void **state)
{
    (void)state;
    assert_int_equal(failed_connect("192.0.2.1:7471", NULL).status, CRPC_E_UNREACHABLE);
    assert_int_equal(failed_connect("no-such-name.invalid:7471", NULL).status, CRPC_E_UNREACHABLE);
}

static void the_connect_timeout_is_kept(void **state)
{
    (void)state;
    /* It listens and never answers: rdma_cm alone would retry for a long time. */
    struct stranger stranger;
    stranger_listen(&stranger, test_host(), STRANGER_SILENT, NULL, 0);
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .connect_timeout_ns = 700000000};
    double begun = now_seconds();
    assert_int_equal(failed_connect(stranger.address, &options).status, CRPC_E_TIMEOUT);
    assert_true(now_seconds() - begun >= 0.7);
    stranger_stop(&stranger);
}

/* The first bytes of a hello, from the document: magic, versions, service. */
static void fill_hello(uint8_t bytes[56], uint8_t version_min, uint8_t version_max)
{
    memset(bytes, 0, 56);
    memcpy(bytes, "CRPC", 4);
    bytes[4] = version_min;
    bytes[5] = version_max;
    bytes[6] = 1; /* calls */
}

static void a_client_of_another_version_is_rejected(void **state)
{
    (void)state;
    uint8_t request[56], answer[196];
    peer_start(&peer, NULL);
    fill_hello(request, 7, 9);
    uint32_t bytes = stranger_connect(peer.address, request, sizeof(request), answer);
    assert_true(bytes >= 12);
    const uint8_t expected[12] = {'C', 'R', 'P', 'C', 1, 1, 2, 0, 0, 0, 0, 0};
    assert_memory_equal(answer, expected, sizeof(expected));

    memset(request, 0xee, sizeof(request)); /* not copyrpc at all */
    bytes = stranger_connect(peer.address, request, sizeof(request), answer);
    assert_true(bytes >= 12);
    assert_int_equal(answer[6], 4);
    client_open(&client); /* the server has come to no harm */
    assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    call_it_once();
    client_close(&client);
    peer_stop(&peer);
}

static void a_server_of_another_version_is_told_apart(void **state)
{
    (void)state;
    struct stranger stranger;
    uint8_t answer[56] = {'C', 'R', 'P', 'C', 7, 9, 2, 0};
    stranger_listen(&stranger, test_host(), STRANGER_REJECTS, answer, 12);
    crpc_error error = failed_connect(stranger.address, NULL);
    assert_int_equal(error.status, CRPC_E_VERSION);
    assert_non_null(strstr(error.message, "7 to 9"));
    stranger_stop(&stranger);
}

/* ---- Losing the peer ------------------------------------------------------------------------- */

static void a_killed_server_ends_every_call(void **state)
{
    (void)state;
    peer_start(&peer, NULL);
    client_open(&client);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    }
    for (uint32_t i = 0; i < 300; i++) {
        client_call(&client, i % 3, METHOD_HOLD, 50, 0);
    }
    client_poll(&client, 0);
    double begun = now_seconds();
    peer_kill(&peer, SIGKILL);
    client_finish(&client, 60);
    while (client.disconnected < 3 && now_seconds() - begun < 60) {
        client_poll(&client, 10000000);
    }
    print_message("# kill -9 noticed after %.2f s\n", now_seconds() - begun);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(client.status[i], CRPC_E_DISCONNECTED);
    }
    assert_int_equal(client.disconnected, 3);
    assert_int_equal(client.disconnected_status, CRPC_E_DISCONNECTED);
    client_close(&client);
}

/* At whatever moment it is killed, each call completes once, as answered or as lost. */
static void a_server_killed_under_load_ends_every_call(void **state)
{
    (void)state;
    unsigned seed = 20261121;
    for (int round = 0; round < 10; round++) {
        peer_start(&peer, NULL);
        client_open(&client);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
        }
        double end = now_seconds() + (double)(rand_r(&seed) % 60000) / 1e6;
        bool killed = false;
        while (client.submitted < CLIENT_CALLS_MAX && client.disconnected == 0) {
            uint16_t method = client.submitted % 5 == 0 ? METHOD_LATE : METHOD_ECHO;
            if (!client_try_call(&client, client.submitted % 4, method, 200)) {
                client_poll(&client, 0);
            }
            if (!killed && now_seconds() >= end) {
                peer_kill(&peer, SIGKILL);
                killed = true;
            }
        }
        if (!killed) {
            peer_kill(&peer, SIGKILL);
        }
        client_finish(&client, 60);
        for (uint64_t call = 0; call < client.submitted; call++) {
            assert_int_equal(client.seen[call], 1);
            assert_true(client.status[call] == CRPC_OK ||
                        client.status[call] == CRPC_E_DISCONNECTED);
        }
        client_close(&client);
    }
}

/* Calls as fast as it can, without end, and writes a byte to `answered` when the first call is answered. It keeps no
 * books, since they would be full before its end, and says nothing, since its parent does. */
__attribute__((noreturn)) static void call_for_ever(int answered)
{
    static const uint8_t bytes[64];
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .retry_timeout = place_retry_timeout()};
    const crpc_context_options context_options = {.struct_size = sizeof(context_options),
                                                  .initiators = place_initiators()};
    crpc_completion completions[64];
    crpc_endpoint endpoint;
    if (crpc_context_open(&context_options, &client.context, NULL) != CRPC_OK ||
        crpc_endpoint_connect(client.context, peer.address, &options, &endpoint, NULL) != CRPC_OK) {
        _exit(EXIT_FAILURE);
    }
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .method = METHOD_ECHO,
                        .endpoint = endpoint,
                        .payload_bytes = sizeof(bytes),
                        .reply_bytes_max = sizeof(bytes)};
    for (bool told = false;;) {
        crpc_submit(client.context, &op, 1, bytes, sizeof(bytes), NULL);
        int32_t count = crpc_poll(client.context, completions, 64);
        for (int32_t i = 0; i < count && !told; i++) {
            told = completions[i].kind == CRPC_COMPLETION_RESPONSE &&
                   completions[i].status == CRPC_OK && write(answered, "", 1) == 1;
        }
    }
}

static void a_killed_client_harms_no_other(void **state)
{
    (void)state;
    int answered[2];
    char byte;
    peer_start(&peer, NULL);
    assert_int_equal(pipe(answered), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        call_for_ever(answered[1]);
    }
    close(answered[1]);
    assert_int_equal(read(answered[0], &byte, 1), 1);
    close(answered[0]);
    client_open(&client);
    assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    for (uint32_t i = 0; i < 2000; i++) {
        client_call(&client, 0, METHOD_ECHO, 64, 0);
        if (i == 500) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
    client_finish(&client, 60);
    client_leave(&client);
    client_close(&client);
    peer_stop(&peer);
}

/* ---- Resources ------------------------------------------------------------------------------- */

static void connecting_many_times_leaves_nothing_behind(void **state)
{
    (void)state;
    peer_start(&peer, NULL);
    client_open(&client);
    struct footprint before = {0};
    for (uint32_t i = 0; i < 60; i++) {
        client.endpoint_count = 0;
        client.disconnected = 0;
        assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
        client_call(&client, 0, METHOD_ECHO, 10, 0);
        client_finish(&client, 60);
        if (i % 2) {
            client_leave(&client);
        }
        assert_int_equal(crpc_endpoint_close(client.context, client.endpoints[0]), CRPC_OK);
        client_poll(&client, 0);
        if (i == 9) {
            before = footprint();
        }
    }
    assert_true(footprint_no_more_is_open(&before));
    client_close(&client);
    peer_stop(&peer);
}

static void open_without_enough_memory_to_lock(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_FULL_SIZE};
    crpc_endpoint endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534)) {
        _exit(10);
    }
    int32_t status = crpc_context_open(NULL, &context, &error);
    if (status == CRPC_OK) { /* Soft-RoCE pins rings, not queues */
        status = crpc_endpoint_blob(context, &options, &endpoint, blob, &blob_bytes, &error);
    }
    printf("# %s: %s\n", crpc_status_name(status), error.message);
    fflush(NULL);
    _exit(status == CRPC_E_MEMLOCK && strstr(error.message, "64 KiB") &&
                  strstr(error.message, "ulimit -l")
              ? 0
              : 11);
}

static void too_little_memory_to_lock_is_named(void **state)
{
    (void)state;
    int status;
    chmod("/dev/infiniband/uverbs0", 0666);
    chmod("/dev/infiniband/rdma_cm", 0666);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        open_without_enough_memory_to_lock();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_ipv6),
        cmocka_unit_test(by_host_name),
        cmocka_unit_test(the_application_refuses_by_token),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(no_route_and_no_such_name),
        cmocka_unit_test(the_connect_timeout_is_kept),
        cmocka_unit_test(a_client_of_another_version_is_rejected),
        cmocka_unit_test(a_server_of_another_version_is_told_apart),
        cmocka_unit_test(a_killed_server_ends_every_call),
        cmocka_unit_test(a_server_killed_under_load_ends_every_call),
        cmocka_unit_test(a_killed_client_harms_no_other),
        cmocka_unit_test(connecting_many_times_leaves_nothing_behind),
        cmocka_unit_test(too_little_memory_to_lock_is_named),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    /* The last is about memory that is pinned. */
    size_t count = sizeof(tests) / sizeof(tests[0]) - (place_pins_memory() ? 0 : 1);
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

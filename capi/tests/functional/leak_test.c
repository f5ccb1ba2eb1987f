/* leak_test.c: a process that calls and connects for long has no more memory, descriptors or threads
 * than before. */
#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"

#define CALLS 100000u
#define CONNECTIONS 1000u
#define WARM_UP_CONNECTIONS 50u
/* What an allocator keeps for itself, and a page here and there; a leak of 8 bytes a call, or of a
 * kilobyte a connection, is more. */
#define SLACK_KIB 700

static struct client client;
static struct peer peer;

static uint32_t entries(const char *path)
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

struct footprint {
    long resident_kib;
    uint32_t descriptors;
    uint32_t threads;
};

static struct footprint footprint(void)
{
    malloc_trim(0);
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
    fclose(file);
    return (struct footprint){.resident_kib = pages * (sysconf(_SC_PAGESIZE) / 1024),
                              .descriptors = entries("/proc/self/fd"),
                              .threads = entries("/proc/self/task")};
}

static void expect_back(const struct footprint *before)
{
    struct footprint after = footprint();
    /* simnic's thread has a file open for a moment now and then, as a driver may. */
    for (int tries = 0; tries < 20 && after.descriptors != before->descriptors; tries++) {
        usleep(50000);
        after = footprint();
    }
    print_message("# %ld and %ld KiB, %u and %u descriptors, %u and %u threads\n",
                  before->resident_kib, after.resident_kib, before->descriptors, after.descriptors,
                  before->threads, after.threads);
    assert_int_equal(after.descriptors, before->descriptors);
    assert_int_equal(after.threads, before->threads);
#ifndef __SANITIZE_ADDRESS__ /* whose quarantine keeps what was freed */
    assert_true(after.resident_kib <= before->resident_kib + SLACK_KIB);
#endif
}

static void call(uint32_t count)
{
    client.submitted = client.completed = 0;
    memset(client.seen, 0, sizeof(client.seen));
    for (uint32_t i = 0; i < count; i++) {
        client_call(&client, 0, METHOD_ECHO, i % 64, 1000000000);
    }
    client_finish(&client, 60);
}

static void connect_and_leave(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
        client_leave(&client);
        assert_int_equal(crpc_endpoint_close(client.context, client.endpoints[0]), CRPC_OK);
        client.endpoint_count = client.disconnected = 0;
    }
}

static int start(void **state)
{
    (void)state;
    peer_start(&peer, NULL);
    client_open(&client);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    client_close(&client);
    peer_stop(&peer);
    return 0;
}

static void calls_leave_nothing(void **state)
{
    (void)state;
    assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    call(CLIENT_CALLS_MAX);
    struct footprint before = footprint();
    for (uint32_t i = 0; i < CALLS / CLIENT_CALLS_MAX; i++) {
        call(CLIENT_CALLS_MAX);
    }
    expect_back(&before);
}

static void connections_leave_nothing(void **state)
{
    (void)state;
    connect_and_leave(WARM_UP_CONNECTIONS);
    struct footprint before = footprint();
    connect_and_leave(CONNECTIONS);
    expect_back(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_leave_nothing, start, stop),
        cmocka_unit_test_setup_teardown(connections_leave_nothing, start, stop),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

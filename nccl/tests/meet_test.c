/* meet_test.c: which devices NCCL is told of, how their packets travel, and how comms meet over TCP: strangers,
 * and listeners that are none. */
#include "harness.h"
#include "meet.h"
#include "place.h"
#include "signals.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 100000u
#define AT_ONCE_SECONDS 5.0 /* a call that does not block; a busy machine may stop it for a while */

/* ---- Devices --------------------------------------------------------------------------------- */

struct expected {
    const char *settings[2][2];
    const char *names[3];
};

static void expect_devices(struct side *side)
{
    const struct expected *expected = side->argument;
    int count = 0;
    for (; expected->names[count] != NULL; count++) {
        struct net_properties_v12 properties;
        CHECK_EQUAL(net_properties(&side->net, count, &properties), NET_SUCCESS);
        if (strcmp(properties.name, expected->names[count]) != 0) {
            fprintf(stderr, "# device %d is %s, should be %s\n", count, properties.name,
                    expected->names[count]);
            exit(1);
        }
    }
    CHECK_EQUAL(side->devices, count);
}

static void run_with(const char *const settings[2][2], side_work receive, side_work send,
                     const void *argument)
{
    for (int i = 0; i < 2 && settings[i][0] != NULL; i++) {
        setenv(settings[i][0], settings[i][1], 1);
    }
    pair_run(NET_VERSION_MAX, receive, send, argument, KILL_NOBODY, 240);
    for (int i = 0; i < 2 && settings[i][0] != NULL; i++) {
        unsetenv(settings[i][0]);
    }
}

static void test_devices(void **state)
{
    (void)state;
    const char *first = place_device(0), *second = place_device(1);
    char both[140], exactly[80], all_but[80], apart[140];
    snprintf(both, sizeof(both), "%s+%s", first, second);
    snprintf(exactly, sizeof(exactly), "=%s", second);
    snprintf(all_but, sizeof(all_but), "^%s:1", second);
    snprintf(apart, sizeof(apart), "%s;%s", second, first);
    const struct expected cases[] = {
        {.names = {both}}, /* all that there are, in pairs */
        {.settings = {{"NCCL_IB_HCA", exactly}}, .names = {second}},
        {.settings = {{"NCCL_IB_HCA", all_but}}, .names = {first}},
        {.settings = {{"COPYRPC_NCCL_RAILS", first}}, .names = {first}}, /* one is one */
        {.settings = {{"COPYRPC_NCCL_RAILS", apart}}, .names = {second, first}},
        {.settings = {{"COPYRPC_NCCL_RAILS", first}, {"NCCL_IB_HCA", exactly}}, .names = {first}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_with(cases[i].settings, expect_devices, expect_devices, &cases[i]);
    }
}

/* ---- How packets travel ---------------------------------------------------------------------- */

struct way {
    int version;
    const char *settings[2][2];
    int asked; /* by NCCL, of the sender; the receiver is not asked before version 11 */
    const char *logged;
};

/* Under simnic: how many queue pairs are connected that have, or have not, options of ECE in force. */
static void count_ece(int *with, int *without)
{
    char line[512];
    unsigned options;
    bool connected = false;
    *with = *without = 0;
    snprintf(line, sizeof(line), "'%s' ctl stats --json", getenv("TEST_SIMNIC"));
    FILE *output = popen(line, "r");
    CHECK(output);
    while (fgets(line, sizeof(line), output)) {
        if (strstr(line, "\"state\": ")) {
            connected = strstr(line, "\"RTS\"");
        }
        const char *at = strstr(line, "\"ece\": ");
        if (connected && at && sscanf(at, "\"ece\": %u", &options) == 1) {
            *(options ? with : without) += 1;
        }
    }
    CHECK_EQUAL(pclose(output), 0);
}

/* Of the queue pairs of both sides, which the log says. */
static void check_ece(const struct way *way)
{
    int with, without;
    if (strncmp(way->logged, "ECE ", 4) != 0 || !getenv("TEST_SIMNIC")) {
        return;
    }
    count_ece(&with, &without);
    CHECK(strcmp(way->logged, "ECE off") == 0 ? with == 0 && without >= 4
                                              : with >= 4 && without == 0);
}

static void receive_one(struct side *side)
{
    const struct way *way = side->argument;
    side_accept(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    size_t bytes = BYTES;
    int tag = 0;
    side_finish(side, side_receive(side, 1, (void **)&data, &bytes, &tag, &registration), NULL);
    CHECK(pattern_is(data, BYTES, 4));
    CHECK(net_logged(way->logged));
    check_ece(way);
    side_tell(side);
    side_close_receiver(side);
}

static void send_one(struct side *side)
{
    const struct way *way = side->argument;
    side->net.traffic_class = way->asked;
    if (side->net.version > 10) { /* what init was given counts; so once more */
        CHECK_EQUAL(net_finalize(&side->net), NET_SUCCESS);
        CHECK_EQUAL(net_init(&side->net), NET_SUCCESS);
    }
    side_connect(side);
    uint8_t *data = pages(BYTES);
    pattern_fill(data, BYTES, 4);
    side_finish(side, side_send(side, data, BYTES, 0, side_register(side, data, BYTES)), NULL);
    CHECK(net_logged(way->logged));
    side_hear(side);
    side_close_sender(side);
}

static void run_ways(const struct way *ways, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int j = 0; j < 2 && ways[i].settings[j][0] != NULL; j++) {
            setenv(ways[i].settings[j][0], ways[i].settings[j][1], 1);
        }
        pair_run(ways[i].version, receive_one, send_one, &ways[i], KILL_NOBODY, 240);
        for (int j = 0; j < 2 && ways[i].settings[j][0] != NULL; j++) {
            unsetenv(ways[i].settings[j][0]);
        }
    }
}

static void test_traffic_class(void **state)
{
    (void)state;
    const struct way cases[] = {
        {12, {{NULL}}, -1, "traffic class 0,"},
        {12, {{NULL}}, 106, "traffic class 106,"},
        {10, {{NULL}}, 96, "traffic class 96,"},
        {9, {{NULL}}, 96, "traffic class 0,"}, /* which has no such word */
        {12, {{"NCCL_IB_TC", "0x20"}}, 106, "traffic class 32,"},
        {12, {{"NCCL_IB_TC", "0"}}, 106, "traffic class 0,"},
        {12, {{"COPYRPC_TRAFFIC_CLASS", "64"}, {"NCCL_IB_TC", "32"}}, 106, "traffic class 64,"},
        {8,
         {{"NCCL_IB_TIMEOUT", "20"}, {"NCCL_IB_RETRY_CNT", "5"}},
         -1,
         "retry timeout 20, retry count 5"},
        {8, {{"COPYRPC_RETRY_TIMEOUT", "16"}, {"NCCL_IB_TIMEOUT", "20"}}, -1, "retry timeout 16"},
        {8, {{"NCCL_IB_SL", "5"}}, -1, "service level 5"},
        {8, {{NULL}}, -1, "relaxed ordering auto, adaptive routing auto"},
        {8,
         {{"NCCL_IB_PCI_RELAXED_ORDERING", "0"}, {"NCCL_IB_ADAPTIVE_ROUTING", "1"}},
         -1,
         "relaxed ordering off, adaptive routing on"},
        {8,
         {{"NCCL_IB_ADAPTIVE_ROUTING", "1"}, {"NCCL_IB_AR_THRESHOLD", "0"}},
         -1,
         "adaptive routing on"},
        {8, {{NULL}}, -1, "ECE auto"},
        {8, {{"NCCL_IB_ECE_ENABLE", "1"}}, -1, "ECE on"},
        {8, {{"NCCL_IB_ECE_ENABLE", "0"}}, -1, "ECE off"},
        {8, {{"COPYRPC_ECE", "on"}, {"NCCL_IB_ECE_ENABLE", "0"}}, -1, "ECE auto"},
    };
    run_ways(cases, sizeof(cases) / sizeof(cases[0]));
}

/* Needs the P_Keys that simnic's ports have on InfiniBand. The other rail has that key at another index. */
static void test_partition(void **state)
{
    (void)state;
    const struct way cases[] = {
        {12, {{NULL}}, -1, "P_Key 0xffff,"},
        {12, {{"NCCL_IB_PKEY", "1"}}, -1, "P_Key 0x8011,"},
        {8, {{"COPYRPC_PARTITION_KEY", "0x8022"}, {"NCCL_IB_PKEY", "1"}}, -1, "P_Key 0x8022,"},
    };
    run_ways(cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- Where to be met ------------------------------------------------------------------------- */

/* Family, port and address are bytes 24 to 47 of the handle. */
static struct sockaddr_in address_of(const uint8_t *handle)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    uint16_t family;
    memcpy(&family, handle + 24, sizeof(family));
    CHECK_EQUAL(family, AF_INET);
    memcpy(&address.sin_port, handle + 26, sizeof(address.sin_port));
    memcpy(&address.sin_addr, handle + 32, sizeof(address.sin_addr));
    return address;
}

static void set_address(uint8_t *handle, const struct sockaddr_in *address)
{
    memcpy(handle + 26, &address->sin_port, sizeof(address->sin_port));
    memcpy(handle + 32, &address->sin_addr, sizeof(address->sin_addr));
}

static void listen_on_loopback(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
    CHECK_EQUAL(ntohl(address_of(handle).sin_addr.s_addr), INADDR_LOOPBACK);
    CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
}

static void listen_elsewhere(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SYSTEM_ERROR);
    CHECK(net_logged("NCCL_SOCKET_IFNAME is nosuch"));
}

static void test_where_to_be_met(void **state)
{
    (void)state;
    const char *const settings[][2][2] = {
        {{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_SOCKET_FAMILY", "AF_INET"}},
        {{"NCCL_SOCKET_IFNAME", "=lo"}, {"NCCL_SOCKET_FAMILY", "AF_INET"}},
        {{"NCCL_COMM_ID", "127.0.0.1:4000"}},
        {{"COPYRPC_NCCL_ADDRESS", "127.0.0.1"}, {"NCCL_SOCKET_IFNAME", "nosuch"}},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        run_with(settings[i], listen_on_loopback, listen_on_loopback, NULL);
    }
    const char *const nowhere[2][2] = {{"NCCL_SOCKET_IFNAME", "nosuch"}};
    run_with(nowhere, listen_elsewhere, listen_elsewhere, NULL);
}

/* ---- Strangers ------------------------------------------------------------------------------- */

#define STRANGERS (2 * GUESTS_MAX)

static int stranger(const struct sockaddr_in *address, const void *says, size_t bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQUAL(connect(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
    CHECK_EQUAL(send(fd, says, bytes, MSG_NOSIGNAL), bytes);
    return fd;
}

/* Silent ones, more than there are places; ones who say half of it; and liars: whatever they do, the peer is accepted
 * and they get nothing. */
static void come_with_strangers(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES], byte;
    struct meet_greeting lie = {
        .magic = MEET_MAGIC, .version = MEET_VERSION, .blob_bytes = CRPC_BLOB_BYTES_MAX + 1};
    int fds[STRANGERS];
    side_take_handle(side, handle);
    struct sockaddr_in address = address_of(handle);
    for (int i = 0; i < STRANGERS; i++) {
        memcpy(lie.token, handle + 8, sizeof(lie.token));
        lie.token[i % 16] ^=
            (uint8_t)(i % 8 != 5 ? 1u << i % 7 : 0); /* one has the token, and too long a blob */
        fds[i] = stranger(&address, &lie, i % 4 == 0 ? 0 : i % 4 == 2 ? 100 : sizeof(lie));
    }
    side_tell(side);
    double end = now_seconds() + 60;
    while (side->comm == NULL) {
        double begin = now_seconds();
        CHECK_EQUAL(net_connect(&side->net, 0, handle, &side->comm), NET_SUCCESS);
        CHECK(now_seconds() - begin < AT_ONCE_SECONDS);
        CHECK(now_seconds() < end);
    }
    side_tell(side);
    for (int i = 0; i < STRANGERS; i++) {
        ssize_t got = recv(fds[i], &byte, 1, MSG_DONTWAIT);
        CHECK(got <= 0);                                  /* closed, or nothing yet */
        CHECK(i % 4 != 1 || got == 0 || errno != EAGAIN); /* liars are out */
        close(fds[i]);
    }
    uint8_t *data = pages(BYTES);
    pattern_fill(data, BYTES, 4);
    side_finish(side, side_send(side, data, BYTES, 0, side_register(side, data, BYTES)), NULL);
    side_hear(side);
    side_close_sender(side);
}

static void accept_among_strangers(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    void *device_comm = NULL;
    CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
    side_send_handle(side, handle);
    side_hear(side); /* they are there, and came first */
    double end = now_seconds() + 60;
    while (side->comm == NULL) {
        double begin = now_seconds();
        CHECK_EQUAL(side->net.accept(side->listen_comm, &side->comm, &device_comm), NET_SUCCESS);
        CHECK(now_seconds() - begin < AT_ONCE_SECONDS);
        CHECK(now_seconds() < end);
    }
    side_hear(side);
    uint8_t *data = pages(BYTES);
    void *registration = side_register(side, data, BYTES);
    size_t bytes = BYTES;
    int tag = 0;
    side_finish(side, side_receive(side, 1, (void **)&data, &bytes, &tag, &registration), NULL);
    CHECK(pattern_is(data, BYTES, 4));
    side_tell(side);
    side_close_receiver(side);
}

static void test_strangers(void **state)
{
    (void)state;
    pair_run(NET_VERSION_MAX, accept_among_strangers, come_with_strangers, NULL, KILL_NOBODY, 240);
}

/* ---- Listeners that are none ----------------------------------------------------------------- */

/* Somebody else has the port by now: closes at once, says something else, or nothing. */
static void connect_to_liars(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES], noise[sizeof(struct meet_greeting)];
    static const int expected[] = {NET_REMOTE_ERROR, NET_REMOTE_ERROR, NET_REMOTE_ERROR};
    memset(noise, 0x5a, sizeof(noise));
    for (int kind = 0; kind < 3; kind++) {
        void *comm = NULL;
        CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
        struct sockaddr_in address = address_of(handle);
        address.sin_port = 0;
        socklen_t bytes = sizeof(address);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), guest = -1;
        CHECK_EQUAL(bind(listener, (struct sockaddr *)&address, bytes), 0);
        CHECK_EQUAL(listen(listener, 1), 0);
        CHECK_EQUAL(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
        set_address(handle, &address);
        double end = now_seconds() + 60;
        int result = NET_SUCCESS;
        while (result == NET_SUCCESS) {
            double begin = now_seconds();
            result = net_connect(&side->net, 0, handle, &comm);
            CHECK(comm == NULL);
            CHECK(now_seconds() - begin < AT_ONCE_SECONDS);
            CHECK(now_seconds() < end);
            if (guest < 0 && kind < 2) {
                guest = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (guest >= 0 && kind == 0) {
                    close(guest);
                } else if (guest >= 0) {
                    CHECK_EQUAL(send(guest, noise, sizeof(noise), MSG_NOSIGNAL), sizeof(noise));
                }
                guest = guest < 0 && errno != EAGAIN ? 0 : guest;
            }
        }
        CHECK_EQUAL(result, expected[kind]);
        close(listener);
        CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
    }
}

static void do_nothing(struct side *side)
{
    (void)side;
}

static void test_liars(void **state)
{
    (void)state;
    const char *const settings[2][2] = {{"COPYRPC_NCCL_CONNECT_SECONDS", "2"}};
    run_with(settings, do_nothing, connect_to_liars, NULL);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),   cmocka_unit_test(test_traffic_class),
        cmocka_unit_test(test_partition), cmocka_unit_test(test_where_to_be_met),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_liars),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!getenv("HARNESS_PARTITIONS")) {
        cmocka_set_skip_filter("test_partition");
    }
    cmocka_set_test_filter(getenv("HARNESS_FILTER")); /* of one test: "test_liars" */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* harness.c: see harness.h. */
#include "harness.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define FOREVER_SECONDS 120.0

static int death_pipe[2];

double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void side_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "# %s:%d: not so: %s\n", file, line, what);
    _exit(1);
}

void side_fail_values(const char *file, int line, const char *what, long long is, long long should)
{
    fprintf(stderr, "# %s:%d: %s is %lld, should be %lld\n", file, line, what, is, should);
    _exit(1);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static pid_t start(int version, side_work work, const void *argument, int sockets[2], int mine,
                   unsigned seconds)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(seconds);
    close(sockets[1 - mine]);
    struct side side = {.socket = sockets[mine], .argument = argument, .memory = NET_MEMORY_HOST};
    int count = 0;
    CHECK(net_load(&side.net, version));
    CHECK_EQUAL(net_init(&side.net), NET_SUCCESS);
    CHECK_EQUAL(net_devices(&side.net, &count), NET_SUCCESS);
    CHECK(count > 0);
    side.devices = count;
    work(&side);
    CHECK_EQUAL(net_finalize(&side.net), NET_SUCCESS);
    net_unload(&side.net);
    exit(0);
}

static void kill_on_request(pid_t pid)
{
    char word;
    assert_int_equal(read(death_pipe[0], &word, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

void pair_run(int version, side_work receive, side_work send, const void *argument, int killed,
              unsigned seconds)
{
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    assert_int_equal(pipe(death_pipe), 0);
    pid_t receiver = start(version, receive, argument, sockets, 0, seconds);
    pid_t sender = start(version, send, argument, sockets, 1, seconds);
    close(sockets[0]);
    close(sockets[1]);
    close(death_pipe[1]); /* so that a child that ends too early is seen */
    if (killed != KILL_NOBODY) {
        kill_on_request(killed == KILL_RECEIVER ? receiver : sender);
    }
    int receiver_status = 0, sender_status = 0;
    if (killed != KILL_RECEIVER) {
        assert_int_equal(waitpid(receiver, &receiver_status, 0), receiver);
    }
    if (killed != KILL_SENDER) {
        assert_int_equal(waitpid(sender, &sender_status, 0), sender);
    }
    close(death_pipe[0]);
    if (receiver_status != 0 || sender_status != 0) {
        fail_msg("receiver ended with status %#x, sender with %#x (14 is a timeout)",
                 receiver_status, sender_status);
    }
}

void side_ask_for_death(struct side *side)
{
    (void)side;
    CHECK_EQUAL(write(death_pipe[1], "x", 1), 1);
    for (;;) {
        pause();
    }
}

static void write_all(int fd, const void *data, size_t bytes)
{
    CHECK_EQUAL(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
}

static void read_all(int fd, void *data, size_t bytes)
{
    CHECK_EQUAL(recv(fd, data, bytes, MSG_WAITALL), bytes);
}

void side_tell(struct side *side)
{
    write_all(side->socket, "x", 1);
}

void side_hear(struct side *side)
{
    char word;
    read_all(side->socket, &word, 1);
}

/* ---- Connections ----------------------------------------------------------------------------- */

void side_send_handle(struct side *side, const void *handle)
{
    write_all(side->socket, handle, NET_HANDLE_BYTES);
}

void side_take_handle(struct side *side, void *handle)
{
    read_all(side->socket, handle, NET_HANDLE_BYTES);
}

void side_accept(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    if (side->listen_comm == NULL) {
        CHECK_EQUAL(net_listen(&side->net, 0, handle, &side->listen_comm), NET_SUCCESS);
        CHECK(side->listen_comm != NULL);
        side_send_handle(side, handle);
    }
    double end = now_seconds() + FOREVER_SECONDS;
    void *device_comm = NULL;
    while (side->comm == NULL) {
        CHECK_EQUAL(side->net.accept(side->listen_comm, &side->comm, &device_comm), NET_SUCCESS);
        CHECK(now_seconds() < end);
    }
    CHECK(device_comm == NULL);
    side_hear(side); /* NCCL does not call again until there is something to receive */
}

void side_connect(struct side *side)
{
    uint8_t handle[NET_HANDLE_BYTES];
    side_take_handle(side, handle);
    double end = now_seconds() + FOREVER_SECONDS;
    while (side->comm == NULL) {
        CHECK_EQUAL(net_connect(&side->net, 0, handle, &side->comm), NET_SUCCESS);
        CHECK(now_seconds() < end);
    }
    side_tell(side);
}

/* NCCL gives back what it registered with a comm before it closes it. */
static void give_back(struct side *side)
{
    for (int i = 0; i < REGISTRATIONS_MAX; i++) {
        if (side->registered[i].comm == side->comm && side->registered[i].registration != NULL) {
            side_deregister(side, side->registered[i].registration);
        }
    }
}

void side_close_receiver(struct side *side)
{
    give_back(side);
    CHECK_EQUAL(side->net.close_receive(side->comm), NET_SUCCESS);
    CHECK_EQUAL(side->net.close_listen(side->listen_comm), NET_SUCCESS);
    side->comm = side->listen_comm = NULL;
}

void side_close_sender(struct side *side)
{
    give_back(side);
    CHECK_EQUAL(side->net.close_send(side->comm), NET_SUCCESS);
    side->comm = NULL;
}

/* ---- Transfers ------------------------------------------------------------------------------- */

void *side_send(struct side *side, void *data, size_t bytes, int tag, void *registration)
{
    double end = now_seconds() + FOREVER_SECONDS;
    void *request = NULL;
    while (request == NULL) {
        CHECK_EQUAL(side->net.send(side->comm, data, bytes, tag, registration, NULL, &request),
                    NET_SUCCESS);
        CHECK(now_seconds() < end);
    }
    return request;
}

void *side_receive(struct side *side, int count, void **data, size_t *bytes, int *tags,
                   void **registrations)
{
    double end = now_seconds() + FOREVER_SECONDS;
    void *request = NULL;
    while (request == NULL) {
        request = (void *)1; /* NCCL: the completion may be left out */
        CHECK_EQUAL(
            side->net.receive(side->comm, count, data, bytes, tags, registrations, NULL, &request),
            NET_SUCCESS);
        CHECK(now_seconds() < end);
    }
    return request;
}

int side_outcome(struct side *side, void *request, double seconds)
{
    double end = now_seconds() + seconds;
    for (;;) {
        int done = 0;
        int result = side->net.test(request, &done, NULL);
        if (result != NET_SUCCESS || done) {
            return result;
        }
        CHECK(now_seconds() < end);
    }
}

void side_finish(struct side *side, void *request, int *bytes)
{
    double end = now_seconds() + FOREVER_SECONDS;
    int done = 0;
    while (!done) {
        CHECK_EQUAL(side->net.test(request, &done, bytes), NET_SUCCESS);
        CHECK(now_seconds() < end);
    }
}

void *side_register(struct side *side, void *data, size_t bytes)
{
    void *registration = NULL;
    CHECK_EQUAL(side->net.register_memory(side->comm, data, bytes, side->memory, &registration),
                NET_SUCCESS);
    CHECK(registration != NULL);
    int i = 0;
    while (i < REGISTRATIONS_MAX && side->registered[i].registration != NULL) {
        i++;
    }
    CHECK(i < REGISTRATIONS_MAX);
    side->registered[i].comm = side->comm;
    side->registered[i].registration = registration;
    return registration;
}

void side_deregister(struct side *side, void *registration)
{
    CHECK_EQUAL(side->net.deregister(side->comm, registration), NET_SUCCESS);
    for (int i = 0; i < REGISTRATIONS_MAX; i++) {
        if (side->registered[i].registration == registration) {
            side->registered[i].registration = NULL;
        }
    }
}

void *pages(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    return data;
}

static uint64_t word_of(uint64_t seed, uint64_t number)
{
    uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + number * 0xbf58476d1ce4e5b9u;
    return word ^ word >> 29;
}

void pattern_fill(void *data, size_t bytes, uint64_t seed)
{
    uint8_t *at = data;
    for (uint64_t i = 0; i * 8 < bytes; i++) {
        uint64_t word = word_of(seed, i);
        memcpy(at + i * 8, &word, bytes - i * 8 < 8 ? bytes - i * 8 : 8);
    }
}

bool pattern_is(const void *data, size_t bytes, uint64_t seed)
{
    const uint8_t *at = data;
    for (uint64_t i = 0; i * 8 < bytes; i++) {
        uint64_t word = word_of(seed, i);
        if (memcmp(at + i * 8, &word, bytes - i * 8 < 8 ? bytes - i * 8 : 8) != 0) {
            fprintf(stderr, "# byte %llu of %zu is wrong\n", (unsigned long long)i * 8, bytes);
            return false;
        }
    }
    return true;
}

bool all_are(const uint8_t *data, size_t bytes, uint8_t value)
{
    return bytes == 0 || (data[0] == value && memcmp(data, data + 1, bytes - 1) == 0);
}

/* fabric_test.c: rings and slots when something is short: descriptors, room. The peer is a child,
 * as a process has one slot. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "simnic/fabric/fabric.h"
#include "simnic/fabric/format.h"

struct world {
    char path[64];
    struct fabric *fabric;
    pid_t peer;
    uint32_t peer_slot;
};

static pid_t start_peer(const char *path)
{
    int told[2];
    char byte = 0;
    assert_int_equal(pipe(told), 0);
    pid_t peer = fork();
    assert_true(peer >= 0);
    if (peer == 0) {
        struct fabric *fabric = calloc(1, sizeof(*fabric));
        byte = fabric && fabric_attach(fabric, path) == 0;
        if (write(told[1], &byte, 1) == 1) {
            pause();
        }
        _exit(1);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    close(told[0]);
    return peer;
}

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    world->fabric = calloc(1, sizeof(*world->fabric));
    snprintf(world->path, sizeof(world->path), "/tmp/simnic-fabric-test.%d", (int)getpid());
    unlink(world->path);
    assert_int_equal(fabric_format(world->path, 0), 0);
    world->peer = start_peer(world->path);
    assert_int_equal(fabric_attach(world->fabric, world->path), 0);
    world->peer_slot = 1 - world->fabric->slot;
    *state = world;
    return 0;
}

static void end_peer(struct world *world)
{
    kill(world->peer, SIGKILL);
    waitpid(world->peer, NULL, 0);
}

static int teardown(void **state)
{
    struct world *world = *state;
    end_peer(world);
    fabric_detach(world->fabric);
    unlink(world->path);
    free(world->fabric);
    free(world);
    return 0;
}

/* Returns the lowest descriptor that is free: with a limit of that many, open() fails. */
static int first_free(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

static void test_no_descriptors(void **state)
{
    struct world *world = *state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)first_free(), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    errno = 0;
    int fd = open("/dev/null", O_RDONLY);
    int error = errno;
    bool lives = fabric_slot_alive(world->fabric, world->peer_slot);
    end_peer(world);
    bool lives_on = fabric_slot_alive(world->fabric, world->peer_slot);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(error, EMFILE);
    assert_true(lives);
    assert_false(lives_on);
    assert_false(fabric_slot_alive(world->fabric, world->peer_slot));
}

static bool send_to_peer(struct world *world, uint8_t operation)
{
    struct packet packet = {.operation = operation,
                            .destination_qpn = world->peer_slot << QPN_SLOT_SHIFT,
                            .payload_bytes = 512};
    uint8_t *payload = fabric_reserve(world->fabric, world->peer_slot, &packet);
    if (!payload) {
        return false;
    }
    memset(payload, 0, packet.payload_bytes);
    fabric_commit(world->fabric, world->peer_slot, &packet);
    return true;
}

/* The peer reads nothing. Of the connection manager's messages each is in its ring, or its sender
 * was told that there is no room; whatever happens to packets. Those find no room either: they must
 * not be lost but by chance, as whoever sends last would lose all of them. */
static void test_full_ring(void **state)
{
    struct world *world = *state;
    char error[256];
    assert_int_equal(fabric_set_fault(world->path, "lose=0.5,duplicate=0.5,seed=1", error, 256), 0);
    assert_true(fabric_faults_changed(world->fabric));
    const struct fabric_ring *ring =
        &world->fabric->file->rings[world->peer_slot][world->fabric->slot];
    unsigned sent = 0;
    while (sent < 10000 && send_to_peer(world, PACKET_CM)) {
        sent++;
    }
    uint64_t head = atomic_load(&ring->head);
    assert_in_range(sent, 1, 9999);
    assert_int_equal(head, sent * (sizeof(struct packet) + 512));
    assert_false(send_to_peer(world, PACKET_SEND_ONLY));
    assert_int_equal(atomic_load(&ring->head), head);
}

/* What a process has read is still its to answer: it may get no processor in between. */
static void test_unread(void **state)
{
    struct world *world = *state;
    struct fabric *fabric = world->fabric;
    struct fabric_cursor cursor;
    struct packet packet = {.operation = PACKET_SEND_ONLY};
    const uint8_t *payload;
    assert_false(fabric_unread(fabric, fabric->slot));
    assert_non_null(fabric_reserve(fabric, fabric->slot, &packet));
    fabric_commit(fabric, fabric->slot, &packet);
    assert_true(fabric_unread(fabric, fabric->slot));
    fabric_receive_start(fabric, &cursor);
    assert_true(fabric_receive(fabric, &cursor, &packet, &payload));
    fabric_consume(fabric, &cursor);
    assert_false(fabric_receive(fabric, &cursor, &packet, &payload));
    assert_true(fabric_unread(fabric, fabric->slot));
    fabric_answered(fabric);
    assert_false(fabric_unread(fabric, fabric->slot));
}

/* A process that ends has sent what is on its way, and nothing more than the ring takes. */
static void test_end_of_wires(void **state)
{
    struct world *world = *state;
    char error[256];
    assert_int_equal(fabric_set_fault(world->path, "rail0=latency:1000000", error, 256), 0);
    assert_true(fabric_faults_changed(world->fabric));
    const struct fabric_ring *ring =
        &world->fabric->file->rings[world->peer_slot][world->fabric->slot];
    for (unsigned i = 0; i < 3; i++) {
        assert_true(send_to_peer(world, PACKET_SEND_ONLY));
    }
    assert_int_equal(atomic_load(&ring->head), 0);
    fabric_wire_end(world->fabric);
    assert_int_equal(atomic_load(&ring->head), 3 * (sizeof(struct packet) + 512));
    assert_int_equal(world->fabric->on_wires, 0);
    unsigned sent = 0;
    while (sent < 10000 && send_to_peer(world, PACKET_SEND_ONLY)) {
        sent++;
    }
    assert_in_range(sent, 500, 1000); /* on the wire, by room there */
    fabric_wire_end(world->fabric);
    assert_in_range(atomic_load(&ring->head), FABRIC_RING_BYTES - 1000, FABRIC_RING_BYTES);
}

#define NEWCOMERS 24
#define ROUNDS 60

/* Attaches when told to go, tells its slot, and is killed with it. */
static pid_t start_newcomer(const char *path, int go, int tell)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        struct fabric *fabric = calloc(1, sizeof(*fabric));
        uint32_t slot = UINT32_MAX;
        if (read(go, &byte, 1) == 1 && fabric && fabric_attach(fabric, path) == 0) {
            slot = fabric->slot;
        }
        if (write(tell, &slot, sizeof(slot)) == sizeof(slot)) {
            pause();
        }
        _exit(1);
    }
    return pid;
}

/* Many come at once, to slots whose owners were killed: no two get the same one. */
static void test_newcomers(void **state)
{
    struct world *world = *state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int go[2], tell[2];
        pid_t pids[NEWCOMERS];
        uint64_t taken = 1ull << world->fabric->slot | 1ull << world->peer_slot;
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(tell), 0);
        for (uint32_t i = 0; i < NEWCOMERS; i++) {
            pids[i] = start_newcomer(world->path, go[0], tell[1]);
        }
        close(go[0]);
        assert_int_equal(write(go[1], "................................", NEWCOMERS), NEWCOMERS);
        close(go[1]);
        for (uint32_t i = 0; i < NEWCOMERS; i++) {
            uint32_t slot;
            assert_int_equal(read(tell[0], &slot, sizeof(slot)), sizeof(slot));
            assert_true(slot < FABRIC_SLOTS);
            assert_false(taken >> slot & 1);
            taken |= 1ull << slot;
        }
        close(tell[0]);
        close(tell[1]);
        for (uint32_t i = 0; i < NEWCOMERS; i++) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
    }
}

static struct world *looked_at; /* somebody takes its peer's slot as soon as it was looked for */

/* The linker's --wrap has fabric.c call these. */
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600), error = errno;
    if (looked_at) {
        struct world *world = looked_at;
        looked_at = NULL;
        world->peer = start_peer(world->path);
    }
    errno = error;
    return fd;
}

int __wrap_open(const char *path, int flags, ...)
{
    return __wrap_open64(path, flags);
}

/* Nobody may take the newcomer for the dead one whose slot it has, or nothing would ever reach
 * it. */
static void test_newcomer_in_a_dead_ones_slot(void **state)
{
    struct world *world = *state;
    struct fabric_slot *slot = &world->fabric->file->slots[world->peer_slot];
    const struct fabric_ring *ring =
        &world->fabric->file->rings[world->peer_slot][world->fabric->slot];
    assert_true(send_to_peer(world, PACKET_CM)); /* which it does not read */
    end_peer(world);
    uint32_t generation = atomic_load(&slot->generation);
    looked_at = world;
    assert_false(fabric_unread(world->fabric, world->peer_slot));
    assert_int_equal(fabric_pid(world->fabric, world->peer_slot), world->peer);
    assert_int_equal(atomic_load(&slot->generation), generation + 1);
    uint64_t head = atomic_load(&ring->head);
    assert_true(send_to_peer(world, PACKET_CM));
    assert_true(atomic_load(&ring->head) > head);
}

/* Who wakes tells on which processor it runs, once; who does not sleep is not told. */
static void test_waker(void **state)
{
    struct world *world = *state;
    struct fabric_slot *slots = world->fabric->file->slots;
    struct fabric_slot *peer = &slots[world->peer_slot], *own = &slots[world->fabric->slot];
    cpu_set_t allowed, one;
    uint32_t processor = (uint32_t)sched_getcpu();
    assert_return_code(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    assert_return_code(sched_setaffinity(0, sizeof(one), &one), 0);
    fabric_wake(world->fabric, 1ull << world->peer_slot);
    assert_int_equal(peer->waker, 0);
    peer->asleep = 1;
    fabric_wake(world->fabric, 1ull << world->peer_slot);
    assert_int_equal(peer->waker, processor + 1);
    assert_int_equal(peer->asleep, 0);
    sched_setaffinity(0, sizeof(allowed), &allowed);

    own->waker = 4; /* as the peer would */
    assert_int_equal(fabric_take_waker(world->fabric), 3);
    assert_int_equal(fabric_take_waker(world->fabric), FABRIC_NO_WAKER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unread, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_of_wires, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newcomers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newcomer_in_a_dead_ones_slot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waker, setup, teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* thief_test.c: peers of a program's channels that know the key of another channel's control area, and
 * look for it: where the program maps memory, and around their own. One that is told its address
 * writes to it, and that is its own peer.
 *
 * The program is this test's child. The peers speak docs/wire.md by verbs and rdma_cm.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include <cmocka.h>

#include "channel/wire.h"
#include "copyrpc.h"
#include "link/wire.h"
#include "place.h"
#include "raw_peer.h"
#include "signals.h"

#define SLOTS_LOG2 3u
/* So far around its own area a thief looks. Linux maps downwards, so what was mapped earlier lies behind:
 * at their own places, the two would be 12 pages apart with verbs on simnic, and 78 with mlx5. */
#define PAGES_BEFORE 8
#define PAGES_BEHIND 100
#define PATIENCE_S 60.0

/* ---- The program ----------------------------------------------------------------------------- */

static struct {
    pid_t pid;
    int socket; /* its end of the child's life */
    char address[64];
} program;

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# the program: %s does not hold\n", #condition);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Accepts all that come. */
static void serve(crpc_context *context)
{
    const crpc_channel_options options = {.struct_size = sizeof(options),
                                          .slots = 1u << SLOTS_LOG2,
                                          .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                          .retry_timeout = place_retry_timeout()};
    crpc_completion completions[16];
    uint32_t count = crpc_poll(context, completions, 16);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *one = &completions[i];
        crpc_channel channel = {one->endpoint.bits};
        if (one->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
            crpc_channel_accept(context, channel, &options, NULL);
        } else if (one->kind == CRPC_COMPLETION_DISCONNECTED ||
                   (one->kind == CRPC_COMPLETION_CONNECTED && one->status != CRPC_OK)) {
            crpc_channel_close(context, channel);
        }
    }
    crpc_wait(context, 10000000);
}

static void program_main(int socket)
{
    crpc_context_options options = {.struct_size = sizeof(options), .flags = CRPC_CONTEXT_RAILS};
    const crpc_listener_options channels = {.struct_size = sizeof(channels),
                                            .flags = CRPC_LISTENER_CHANNELS};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    crpc_context *context;
    char byte;
    snprintf(options.rails[0], sizeof(options.rails[0]), "%s", place_device(0));
    snprintf(options.rails[1], sizeof(options.rails[1]), "%s", place_device(1));
    DEMAND(crpc_context_open(&options, &context, NULL) == CRPC_OK);
    DEMAND(crpc_listener_open(context, place_at(0, "0"), &channels, &listener, NULL) == CRPC_OK);
    DEMAND(crpc_listener_get_info(context, listener, &info) == CRPC_OK);
    DEMAND(write(socket, info.address, sizeof(info.address)) == sizeof(info.address));
    while (recv(socket, &byte, 1, MSG_DONTWAIT) < 0) {
        serve(context);
    }
    DEMAND(crpc_context_close(context) == CRPC_OK);
}

static int start_program(void **state)
{
    int sockets[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    fflush(NULL);
    program.pid = fork();
    assert_true(program.pid >= 0);
    if (program.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(sockets[0]);
        program_main(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    program.socket = sockets[0];
    assert_int_equal(read(program.socket, program.address, sizeof(program.address)),
                     sizeof(program.address));
    return 0;
}

static int stop_program(void **state)
{
    int status;
    (void)state;
    close(program.socket);
    assert_int_equal(waitpid(program.pid, &status, 0), program.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static bool program_maps(uint64_t address)
{
    char path[64], line[512];
    unsigned long long first, last;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", program.pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%llx-%llx", &first, &last) == 2) {
            found |= address >= first && address < last;
        }
    }
    fclose(file);
    return found;
}

/* ---- A peer ---------------------------------------------------------------------------------- */

struct peer {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_mr *memory;
    uint8_t bytes[64];
    struct channel_hello program; /* the body of its hello */
};

static void end_peer(struct peer *peer)
{
    rdma_disconnect(peer->id);
    rdma_destroy_qp(peer->id);
    ibv_dereg_mr(peer->memory);
    rdma_destroy_id(peer->id);
    rdma_destroy_event_channel(peer->channel);
}

static void make_queues(struct peer *peer)
{
    struct ibv_qp_init_attr options = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    assert_int_equal(rdma_create_qp(peer->id, NULL, &options), 0);
    peer->memory = ibv_reg_mr(peer->id->pd, peer->bytes, sizeof(peer->bytes),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(peer->memory);
}

/* False if the program refused: it has no room until it has cleared up after others. */
static bool try_to_connect(struct peer *peer)
{
    memset(peer, 0, sizeof(*peer));
    raw_resolve(program.address, &peer->channel, &peer->id);
    make_queues(peer);
    struct link_hello hello = {.magic = LINK_MAGIC,
                               .version_min = CHANNEL_VERSION_MIN,
                               .version_max = CHANNEL_VERSION_MAX,
                               .service = LINK_SERVICE_CHANNEL,
                               .nonce = 1};
    struct channel_hello body = {.slots_log2 = SLOTS_LOG2, .queue_pairs = 1, .rails = 1};
    memcpy(hello.body, &body, sizeof(body));
    if (!raw_connect(peer->channel, peer->id, &hello, &peer->program, sizeof(peer->program))) {
        end_peer(peer);
        return false;
    }
    return true;
}

static void connect_peer(struct peer *peer)
{
    double end = raw_seconds() + PATIENCE_S;
    while (!try_to_connect(peer)) {
        assert_true(raw_seconds() < end);
        usleep(10000);
    }
}

/* 64 bytes, which nobody is told of. */
static enum ibv_wc_status write_to(struct peer *peer, uint64_t address, uint32_t key)
{
    struct ibv_sge local = {.addr = (uint64_t)(uintptr_t)peer->bytes,
                            .length = sizeof(peer->bytes),
                            .lkey = peer->memory->lkey};
    struct ibv_send_wr send = {.opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_SIGNALED,
                               .sg_list = &local,
                               .num_sge = 1,
                               .wr.rdma = {.remote_addr = address, .rkey = key}};
    struct ibv_send_wr *bad;
    struct ibv_wc done;
    double end = raw_seconds() + PATIENCE_S;
    assert_int_equal(ibv_post_send(peer->id->qp, &send, &bad), 0);
    while (ibv_poll_cq(peer->id->send_cq, 1, &done) == 0) {
        assert_true(raw_seconds() < end);
    }
    return done.status;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void expect_own_area(struct peer *peer)
{
    uint64_t last = channel_area_bytes(1u << SLOTS_LOG2) - sizeof(peer->bytes);
    assert_int_equal(write_to(peer, peer->program.area_address, peer->program.area_key),
                     IBV_WC_SUCCESS);
    assert_int_equal(write_to(peer, peer->program.area_address + last, peer->program.area_key),
                     IBV_WC_SUCCESS);
}

static void nobody_finds_the_area_of_another_channel(void **state)
{
    struct peer honest;
    (void)state;
    connect_peer(&honest);
    assert_false(program_maps(honest.program.area_address));
    expect_own_area(&honest);
    for (int32_t page = -PAGES_BEFORE; page <= PAGES_BEHIND; page++) {
        struct peer thief;
        connect_peer(&thief);
        assert_false(program_maps(thief.program.area_address));
        uint64_t guess = thief.program.area_address + (uint64_t)page * 4096;
        enum ibv_wc_status status = write_to(&thief, guess, honest.program.area_key);
        if (status != IBV_WC_REM_ACCESS_ERR) {
            fail_msg("%d pages from its own: %s", page, ibv_wc_status_str(status));
        }
        end_peer(&thief);
    }
    expect_own_area(&honest);
    end_peer(&honest);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_finds_the_area_of_another_channel, start_program,
                                        stop_program),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

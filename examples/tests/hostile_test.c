/* hostile_test.c ECHO_SERVER: the echo server of the examples, as it is, and hostile peers.
 *
 * Some send it more requests than one poll takes, the last of them malformed, and hang up at once.
 * They are more than the server may have endpoints. Afterwards it serves a client, and sleeps when
 * that is gone. Others use the keys of another peer's memory.
 *
 * The peers speak docs/wire.md by verbs and rdma_cm.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"
#include "raw_peer.h"
#include "rpc/wire.h"
#include "signals.h"

#define PEERS 300u /* more than endpoints_max, which is 256 */
#define RING_LOG2 20u
#define RING_BYTES (1u << RING_LOG2)
#define REQUESTS_MAX 4096u
#define RECEIVES 256u
#define PATIENCE_S 60.0
#define SLEEPS 20u
/* What a poll and a wait cost at the most, with sanitizers, too. */
#define SLEEP_COST_NS UINT64_C(10000000)

static const char *server_program;

/* ---- The server ------------------------------------------------------------------------------ */

static struct {
    pid_t pid;
    FILE *output;
    char address[64];
} server;

static int start_server(void **state)
{
    (void)state;
    int pipes[2];
    char line[128];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl(server_program, server_program, place_at(0, "0"), (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    server.output = fdopen(pipes[0], "r");
    assert_non_null(server.output);
    assert_non_null(fgets(line, sizeof(line), server.output));
    assert_int_equal(sscanf(line, "listening on %63s", server.address), 1);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    int status;
    assert_int_equal(kill(server.pid, SIGTERM), 0);
    assert_int_equal(waitpid(server.pid, &status, 0), server.pid);
    fclose(server.output);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

/* ---- A hostile peer -------------------------------------------------------------------------- */

struct peer {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_mr *ring; /* and the mailbox after it */
    struct ibv_mr *batch;
    uint8_t *ring_bytes;
    uint8_t *batch_bytes;
    struct wire_endpoint server; /* the body of its hello */
};

static uint8_t *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void make_queues(struct peer *peer)
{
    struct ibv_qp_init_attr options = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    assert_int_equal(rdma_create_qp(peer->id, NULL, &options), 0);
    peer->ring_bytes = map(2 * RING_BYTES + sizeof(struct wire_mailbox));
    peer->batch_bytes = map(RING_BYTES);
    peer->ring =
        ibv_reg_mr(peer->id->pd, peer->ring_bytes, 2 * RING_BYTES + sizeof(struct wire_mailbox),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    peer->batch = ibv_reg_mr(peer->id->pd, peer->batch_bytes, RING_BYTES, IBV_ACCESS_LOCAL_WRITE);
    assert_true(peer->ring && peer->batch);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        struct ibv_recv_wr receive = {0}, *bad;
        assert_int_equal(ibv_post_recv(peer->id->qp, &receive, &bad), 0);
    }
}

static void end_peer(struct peer *peer)
{
    rdma_destroy_qp(peer->id);
    ibv_dereg_mr(peer->ring);
    ibv_dereg_mr(peer->batch);
    rdma_destroy_id(peer->id);
    rdma_destroy_event_channel(peer->channel);
    munmap(peer->ring_bytes, 2 * RING_BYTES + sizeof(struct wire_mailbox));
    munmap(peer->batch_bytes, RING_BYTES);
}

/* False if the server has no room. */
static bool try_to_connect(struct peer *peer)
{
    memset(peer, 0, sizeof(*peer));
    raw_resolve(server.address, &peer->channel, &peer->id);
    make_queues(peer);
    struct link_hello hello = {.magic = LINK_MAGIC,
                               .version_min = WIRE_VERSION_MIN,
                               .version_max = WIRE_VERSION_MAX,
                               .service = LINK_SERVICE_CALLS,
                               .nonce = 1};
    struct wire_endpoint body = {.ring_address = (uint64_t)(uintptr_t)peer->ring_bytes,
                                 .ring_key = peer->ring->rkey,
                                 .request_units = 2,
                                 .batch_window = RECEIVES,
                                 .batch_window_first = RECEIVES,
                                 .ring_log2 = RING_LOG2,
                                 .ring_log2_first = RING_LOG2,
                                 .calls_log2 = 12};
    memcpy(hello.body, &body, sizeof(body));
    if (!raw_connect(peer->channel, peer->id, &hello, &peer->server, sizeof(peer->server))) {
        end_peer(peer);
        return false;
    }
    return true;
}

/* A server that is slow may have endpoints_max peers to clear up after: then there is room later. */
static void connect_peer(struct peer *peer)
{
    double end = raw_seconds() + PATIENCE_S;
    while (!try_to_connect(peer)) {
        assert_true(raw_seconds() < end);
        usleep(10000);
    }
}

/* Empty requests, all that the server takes at once; the last is neither request nor response. */
static uint32_t fill_batch(struct peer *peer)
{
    const uint32_t message_bytes = (uint32_t)wire_message_bytes(0);
    uint64_t room = (uint64_t)peer->server.request_units * WIRE_UNIT_BYTES / wire_charge(0);
    uint32_t count = room < REQUESTS_MAX ? (uint32_t)room : REQUESTS_MAX;
    uint32_t bytes = WIRE_BATCH_HEADER_BYTES + count * message_bytes;
    struct wire_batch header = {.request_limit = 64,
                                .batch_limit = RECEIVES,
                                .sequence = 2,
                                .bytes = bytes,
                                .message_count = (uint16_t)count};
    assert_true(count > 1024); /* several polls of the server's */
    assert_true(bytes <= RING_BYTES && bytes <= 1u << peer->server.ring_log2);
    memcpy(peer->batch_bytes, &header, sizeof(header));
    for (uint32_t i = 0; i < count; i++) {
        struct wire_message message = {.call_id = i,
                                       .kind = i + 1 < count ? WIRE_REQUEST : WIRE_RESPONSE + 1};
        memcpy(peer->batch_bytes + WIRE_BATCH_HEADER_BYTES + i * message_bytes, &message,
               sizeof(message));
    }
    return bytes;
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
    struct ibv_wc done;
    double end = raw_seconds() + PATIENCE_S;
    while (ibv_poll_cq(cq, 1, &done) == 0) {
        assert_true(raw_seconds() < end);
    }
    return done;
}

/* WRITEs the first bytes of peer->batch to the start of a ring of the server's, or READs them.
 * Returns the status of the completion. */
static enum ibv_wc_status transfer(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t address,
                                   uint32_t key, uint32_t bytes, uint32_t mark)
{
    struct ibv_sge local = {
        .addr = (uint64_t)(uintptr_t)peer->batch_bytes, .length = bytes, .lkey = peer->batch->lkey};
    struct ibv_send_wr send = {.opcode = opcode,
                               .send_flags = IBV_SEND_SIGNALED,
                               .sg_list = &local,
                               .num_sge = 1,
                               .imm_data = htonl(bytes / WIRE_UNIT_BYTES | mark),
                               .wr.rdma = {.remote_addr = address, .rkey = key}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(peer->id->qp, &send, &bad), 0);
    return next_completion(peer->id->send_cq).status;
}

static void send_at(struct peer *peer, uint64_t position, uint32_t bytes, uint32_t mark)
{
    assert_int_equal(transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM,
                              peer->server.ring_address + position, peer->server.ring_key, bytes,
                              mark),
                     IBV_WC_SUCCESS);
}

static void send_batch(struct peer *peer, uint32_t bytes)
{
    send_at(peer, 0, bytes, 0);
}

#define WORD_BYTES (WIRE_BATCH_HEADER_BYTES + WIRE_UNIT_BYTES)

static void say(struct peer *peer, uint8_t kind, uint32_t sequence, uint32_t mark)
{
    const struct wire_batch header = {.request_limit = 64,
                                      .batch_limit = RECEIVES,
                                      .sequence = sequence,
                                      .bytes = WORD_BYTES,
                                      .message_count = 1};
    const struct wire_message word = {.kind = kind};
    memset(peer->batch_bytes, 0, WORD_BYTES);
    memcpy(peer->batch_bytes, &header, sizeof(header));
    memcpy(peer->batch_bytes + sizeof(header), &word, sizeof(word));
    send_at(peer, 0, WORD_BYTES, mark);
}

/* Has the server make its larger ring, and moves there. The next batch is number 2, and lies behind MOVED. */
static void move_to_larger_ring(struct peer *peer)
{
    struct wire_message message;
    struct wire_ring ring;
    say(peer, WIRE_WANT, 0, 0);
    assert_int_equal(next_completion(peer->id->recv_cq).status, IBV_WC_SUCCESS);
    memcpy(&message, peer->ring_bytes + WIRE_BATCH_HEADER_BYTES, sizeof(message));
    memcpy(&ring, peer->ring_bytes + WIRE_BATCH_HEADER_BYTES + sizeof(message), sizeof(ring));
    assert_int_equal(message.kind, WIRE_RING);
    assert_int_equal(message.payload_bytes, sizeof(ring));
    peer->server.ring_address = ring.address;
    peer->server.ring_key = ring.key;
    say(peer, WIRE_MOVED, 1, WIRE_IMMEDIATE_MOVED);
}

/* An honest peer's first request, and the server's answer, which is the request itself. */
static void expect_echo(struct peer *peer)
{
    static const char text[] = "honest";
    const uint32_t bytes = WIRE_BATCH_HEADER_BYTES + (uint32_t)wire_message_bytes(sizeof(text));
    struct wire_batch header = {
        .request_limit = 64, .batch_limit = RECEIVES, .bytes = bytes, .message_count = 1};
    struct wire_message message = {
        .payload_bytes = sizeof(text), .limit_or_status = sizeof(text), .kind = WIRE_REQUEST};
    uint8_t *to = peer->batch_bytes;
    memcpy(to, &header, sizeof(header));
    memcpy(to + sizeof(header), &message, sizeof(message));
    memcpy(to + sizeof(header) + sizeof(message), text, sizeof(text));
    send_batch(peer, bytes);
    assert_int_equal(next_completion(peer->id->recv_cq).status, IBV_WC_SUCCESS);
    memcpy(&message, peer->ring_bytes + sizeof(header), sizeof(message));
    assert_int_equal(message.kind, WIRE_RESPONSE);
    assert_int_equal(message.payload_bytes, sizeof(text));
    assert_memory_equal(peer->ring_bytes + sizeof(header) + sizeof(message), text, sizeof(text));
}

/* ---- A client -------------------------------------------------------------------------------- */

static crpc_completion wait_for(crpc_context *context, uint8_t kind)
{
    double end = raw_seconds() + PATIENCE_S;
    crpc_completion completion;
    for (;;) {
        assert_true(raw_seconds() < end);
        if (crpc_poll(context, &completion, 1) == 1 && completion.kind == kind) {
            return completion;
        }
        crpc_wait(context, 10000000);
    }
}

/* As soon as the server has room. */
static crpc_endpoint connect_client(crpc_context *context)
{
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = (uint64_t)(PATIENCE_S * 1e9)};
    double end = raw_seconds() + PATIENCE_S;
    for (;;) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_endpoint endpoint;
        assert_int_equal(
            crpc_endpoint_connect(context, server.address, &options, &endpoint, &error), CRPC_OK);
        if (wait_for(context, CRPC_COMPLETION_CONNECTED).status == CRPC_OK) {
            return endpoint;
        }
        crpc_endpoint_get_error(context, endpoint, &error);
        if (error.status != CRPC_E_REFUSED || raw_seconds() >= end) {
            fail_msg("the server does not serve any more: %s", error.message);
        }
        crpc_endpoint_close(context, endpoint);
        usleep(10000);
    }
}

static void expect_served(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    int32_t reason;
    assert_int_equal(crpc_context_open(NULL, &context, &error), CRPC_OK);
    crpc_endpoint endpoint = connect_client(context);
    crpc_op call = {
        .opcode = CRPC_OP_CALL, .endpoint = endpoint, .payload_bytes = 5, .reply_bytes_max = 5};
    assert_int_equal(crpc_submit(context, &call, 1, "hello", 5, &reason), 1);
    crpc_completion response = wait_for(context, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.status, 0);
    assert_int_equal(response.payload_bytes, 5);
    assert_memory_equal((const void *)(uintptr_t)response.payload, "hello", 5);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

/* ---- Does it sleep? -------------------------------------------------------------------------- */

struct use {
    uint64_t sleeps;
    uint64_t processor_ns;
};

/* Of the server's own thread: its device's are no business of ours. */
static struct use server_use(void)
{
    struct use use = {0};
    char path[64], line[256];
    unsigned long long value;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", server.pid, server.pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &value) == 1) {
            use.sleeps = value;
        }
    }
    fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", server.pid, server.pid);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &value), 1);
    use.processor_ns = value;
    fclose(file);
    return use;
}

/* Processor time in the time of so many sleeps, which must pass until `end`. */
static uint64_t cost_of_sleeps(double end)
{
    struct use first = server_use(), now = first;
    while (now.sleeps < first.sleeps + SLEEPS) {
        assert_true(raw_seconds() < end);
        usleep(10000);
        now = server_use();
    }
    return now.processor_ns - first.processor_ns;
}

/* Soon it hardly uses a processor, however busy the machine is: it may still clear up after its peers, and a pause of the
 * machine counts as its own time. */
static void expect_sleep(void)
{
    double end = raw_seconds() + PATIENCE_S;
    uint64_t cost_ns;
    do {
        cost_ns = cost_of_sleeps(end);
        print_message("# %llu us of processor time in %u sleeps\n",
                      (unsigned long long)cost_ns / 1000, SLEEPS);
    } while (cost_ns >= SLEEPS * SLEEP_COST_NS);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void peers_that_lie_and_hang_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct peer peer;
        connect_peer(&peer);
        move_to_larger_ring(&peer);
        send_at(&peer, WORD_BYTES, fill_batch(&peer), 0);
        rdma_disconnect(peer.id);
        end_peer(&peer);
    }
    expect_served();
    expect_sleep();
}

/* Each knows the honest peer's ring, its mailbox and their keys, whose neighbours are easy to
 * guess. */
static void peers_that_know_another_ones_keys(void **state)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ};
    struct peer honest;
    (void)state;
    connect_peer(&honest);
    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
        bool reads = opcodes[i] == IBV_WR_RDMA_READ;
        uint64_t ring = honest.server.ring_address;
        uint64_t mailbox = ring + (UINT64_C(2) << honest.server.ring_log2_first);
        struct peer thief;
        connect_peer(&thief);
        memset(thief.batch_bytes, 0xee, WIRE_UNIT_BYTES);
        assert_int_equal(transfer(&thief, opcodes[i], reads ? mailbox : ring,
                                  honest.server.ring_key, WIRE_UNIT_BYTES, 0),
                         IBV_WC_REM_ACCESS_ERR);
        assert_int_equal(thief.batch_bytes[0], 0xee);
        rdma_disconnect(thief.id);
        end_peer(&thief);
    }
    expect_echo(&honest);
    rdma_disconnect(honest.id);
    end_peer(&honest);
    expect_served();
}

int main(int argc, char **argv)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(peers_that_lie_and_hang_up, start_server, stop_server),
        cmocka_unit_test_setup_teardown(peers_that_know_another_ones_keys, start_server,
                                        stop_server),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: hostile_test ECHO_SERVER\n");
        return 2;
    }
    server_program = argv[1];
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* channel_peer.c: see channel_peer.h. */
#include "channel_peer.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>

#define RECEIVES 64u
#define SENDS 32u
#define RESOLVE_MS 60000

double peer_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void expect_event(struct channel_peer *peer, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(peer->events, &event), 0);
    if (event->event != type) {
        fail_msg("rdma_cm says %s, not %s", rdma_event_str(event->event), rdma_event_str(type));
    }
    rdma_ack_cm_event(event);
}

static uint8_t *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void make_queues(struct channel_peer *peer)
{
    struct rdma_cm_id *id = peer->identifier;
    struct ibv_qp_init_attr options = {
        .qp_type = IBV_QPT_RC,
        .cap = {
            .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    assert_int_equal(rdma_create_qp(id, NULL, &options), 0);
    peer->area = map(channel_area_bytes(PEER_SLOTS));
    peer->payload = map(PEER_PAYLOAD_BYTES);
    peer->area_region = ibv_reg_mr(id->pd, peer->area, channel_area_bytes(PEER_SLOTS),
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    peer->payload_region =
        ibv_reg_mr(id->pd, peer->payload, PEER_PAYLOAD_BYTES, IBV_ACCESS_LOCAL_WRITE);
    assert_true(peer->area_region && peer->payload_region);
    for (uint32_t i = 0; i < RECEIVES; i++) {
        struct ibv_recv_wr receive = {0}, *bad;
        assert_int_equal(ibv_post_recv(id->qp, &receive, &bad), 0);
    }
}

static void end(struct channel_peer *peer)
{
    rdma_destroy_qp(peer->identifier);
    ibv_dereg_mr(peer->area_region);
    ibv_dereg_mr(peer->payload_region);
    rdma_destroy_id(peer->identifier);
    rdma_destroy_event_channel(peer->events);
    munmap(peer->area, channel_area_bytes(PEER_SLOTS));
    munmap(peer->payload, PEER_PAYLOAD_BYTES);
}

/* False if it refused: nobody listens yet, or there is no room. */
static bool take_answer(struct channel_peer *peer)
{
    struct rdma_cm_event *event;
    assert_int_equal(rdma_get_cm_event(peer->events, &event), 0);
    const struct rdma_conn_param *answer = &event->param.conn;
    bool accepted = event->event == RDMA_CM_EVENT_ESTABLISHED;
    if (accepted) {
        struct link_hello hello;
        assert_true(answer->private_data_len >= sizeof(hello));
        memcpy(&hello, answer->private_data, sizeof(hello));
        assert_int_equal(hello.magic, LINK_MAGIC);
        memcpy(&peer->receiver, hello.body, sizeof(peer->receiver));
    } else if (event->event != RDMA_CM_EVENT_REJECTED) {
        fail_msg("rdma_cm says %s", rdma_event_str(event->event));
    }
    rdma_ack_cm_event(event);
    return accepted;
}

static struct sockaddr_in address_of(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64];
    unsigned port;
    assert_int_equal(sscanf(text, "%63[^:]:%u", host, &port), 2);
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    address.sin_port = htons((uint16_t)port);
    return address;
}

static bool try_to_connect(struct channel_peer *peer, const char *text)
{
    struct sockaddr_in address = address_of(text);
    peer->events = rdma_create_event_channel();
    assert_non_null(peer->events);
    assert_int_equal(rdma_create_id(peer->events, &peer->identifier, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        rdma_resolve_addr(peer->identifier, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    expect_event(peer, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(peer->identifier, RESOLVE_MS), 0);
    expect_event(peer, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queues(peer);
    struct link_hello hello = {.magic = LINK_MAGIC,
                               .version_min = CHANNEL_VERSION_MIN,
                               .version_max = CHANNEL_VERSION_MAX,
                               .service = LINK_SERVICE_CHANNEL,
                               .token_bytes = sizeof(peer->id),
                               .nonce = 1};
    struct channel_hello body = {.area_address = (uint64_t)(uintptr_t)peer->area,
                                 .area_key = peer->area_region->rkey,
                                 .slots_log2 = (uint8_t)__builtin_ctz(PEER_SLOTS),
                                 .queue_pairs = 1,
                                 .rails = 1};
    memcpy(hello.token, &peer->id, sizeof(peer->id));
    memcpy(hello.body, &body, sizeof(body));
    struct rdma_conn_param parameters = {.private_data = &hello,
                                         .private_data_len = sizeof(hello),
                                         .responder_resources = 1,
                                         .initiator_depth = 1,
                                         .retry_count = 7,
                                         .rnr_retry_count = 7};
    assert_int_equal(rdma_connect(peer->identifier, &parameters), 0);
    if (!take_answer(peer)) {
        end(peer);
        return false;
    }
    return true;
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
    struct ibv_wc done;
    double limit = peer_seconds() + PATIENCE_S;
    while (ibv_poll_cq(cq, 1, &done) == 0) {
        assert_true(peer_seconds() < limit);
    }
    return done;
}

static uint32_t next_immediate(struct channel_peer *peer)
{
    struct ibv_wc done = next_completion(peer->identifier->recv_cq);
    assert_int_equal(done.status, IBV_WC_SUCCESS);
    return ntohl(done.imm_data);
}

/* Offers it, and is answered; then each side probes it. */
static void bring_rail_up(struct channel_peer *peer)
{
    struct channel_control message = peer_control(peer, CHANNEL_CONTROL_OFFER);
    struct channel_offer offer = {.area_key = peer->area_region->rkey, .queue_pairs = 1};
    const uint32_t probe = CHANNEL_IMMEDIATE_PROBE | 1u << CHANNEL_GENERATION_SHIFT;
    memcpy(message.body, &offer, sizeof(offer));
    peer_say(peer, &message);
    assert_int_equal(next_immediate(peer), CHANNEL_IMMEDIATE_CONTROL);
    memcpy(&message, peer->area, sizeof(message));
    memcpy(&offer, message.body, sizeof(offer));
    assert_int_equal(message.kind, CHANNEL_CONTROL_ANSWER);
    assert_int_equal(offer.answer, CHANNEL_ANSWER_OK);
    peer_say_immediate(peer, probe);
    assert_int_equal(next_immediate(peer), probe);
}

void peer_connect(struct channel_peer *peer, const char *address, uint32_t id)
{
    double limit = peer_seconds() + PATIENCE_S;
    memset(peer, 0, sizeof(*peer));
    peer->id = id;
    while (!try_to_connect(peer, address)) {
        assert_true(peer_seconds() < limit);
        usleep(10000);
    }
    assert_int_equal(peer->receiver.queue_pairs, 1);
    bring_rail_up(peer);
}

void peer_hang_up(struct channel_peer *peer)
{
    rdma_disconnect(peer->identifier);
    end(peer);
}

/* ---- Writing --------------------------------------------------------------------------------- */

enum ibv_wc_status peer_transfer(struct channel_peer *peer, enum ibv_wr_opcode opcode,
                                 uint64_t address, uint32_t key, uint32_t bytes, uint32_t immediate)
{
    struct ibv_sge local = {.addr = (uint64_t)(uintptr_t)peer->payload,
                            .length = bytes,
                            .lkey = peer->payload_region->lkey};
    struct ibv_send_wr send = {.opcode = opcode,
                               .send_flags = IBV_SEND_SIGNALED,
                               .sg_list = &local,
                               .num_sge = bytes > 0,
                               .imm_data = htonl(immediate),
                               .wr.rdma = {.remote_addr = address, .rkey = key}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(peer->identifier->qp, &send, &bad), 0);
    return next_completion(peer->identifier->send_cq).status;
}

uint32_t peer_immediate(uint64_t number)
{
    return (uint32_t)(number % PEER_SLOTS) | 1u << CHANNEL_MASK_SHIFT |
           (uint32_t)(number / PEER_SLOTS) << CHANNEL_GENERATION_SHIFT;
}

void peer_send(struct channel_peer *peer, uint64_t number, uint32_t bytes)
{
    struct channel_cts buffer = peer_await_buffer(peer, number);
    assert_int_equal(peer_transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM, buffer.address,
                                   buffer.right.key, bytes, peer_immediate(number)),
                     IBV_WC_SUCCESS);
}

struct channel_cts peer_await_buffer(const struct channel_peer *peer, uint64_t number)
{
    const struct channel_cts *place =
        (const void *)(peer->area + channel_buffers_offset((uint32_t)(number % PEER_SLOTS), 0));
    double limit = peer_seconds() + PATIENCE_S;
    while (wire_load(&place->number) != number + 1 || wire_load(&place->right.epoch) != 1) {
        assert_true(peer_seconds() < limit);
    }
    assert_int_equal(place->count, 1);
    return *place;
}

/* ---- Control --------------------------------------------------------------------------------- */

struct channel_control peer_control(const struct channel_peer *peer, uint8_t kind)
{
    return (struct channel_control){.sequence = peer->control_sequence, .kind = kind, .epoch = 1};
}

void peer_say(struct channel_peer *peer, const struct channel_control *message)
{
    uint32_t sequence = peer->control_sequence++;
    memcpy(peer->payload, message, sizeof(*message));
    assert_int_equal(
        peer_transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM,
                      peer->receiver.area_address +
                          sequence % CHANNEL_INBOX_MESSAGES * CHANNEL_CONTROL_BYTES,
                      peer->receiver.area_key, sizeof(*message),
                      CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT),
        IBV_WC_SUCCESS);
}

void peer_say_immediate(struct channel_peer *peer, uint32_t immediate)
{
    assert_int_equal(peer_transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, immediate),
                     IBV_WC_SUCCESS);
}

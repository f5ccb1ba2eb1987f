/* channel_peer.c: see channel_peer.h. */
#include "channel_peer.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECEIVES 64u
#define SENDS 32u

/* ---- Connecting ------------------------------------------------------------------------------ */

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

static bool try_to_connect(struct channel_peer *peer, const char *text)
{
    raw_resolve(text, &peer->events, &peer->identifier);
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
    if (!raw_connect(peer->events, peer->identifier, &hello, &peer->receiver,
                     sizeof(peer->receiver))) {
        end(peer);
        return false;
    }
    return true;
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
    struct ibv_wc done;
    double limit = raw_seconds() + PATIENCE_S;
    while (ibv_poll_cq(cq, 1, &done) == 0) {
        assert_true(raw_seconds() < limit);
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
    double limit = raw_seconds() + PATIENCE_S;
    memset(peer, 0, sizeof(*peer));
    peer->id = id;
    while (!try_to_connect(peer, address)) {
        assert_true(raw_seconds() < limit);
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
    double limit = raw_seconds() + PATIENCE_S;
    while (wire_load(&place->number) != number + 1 || wire_load(&place->right.epoch) != 1) {
        assert_true(raw_seconds() < limit);
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

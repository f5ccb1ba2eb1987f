/* invalidate.c: SEND_INVALIDATE (nic/queue.h): a message that takes from its sender a key of the receiver's. The receiver is a plain
 * queue pair of libibverbs, which binds a window for each message: the drivers bind none on a queue. */
#include <string.h>

#include "base/clock.h"
#include "desk.h"
#include "nic/device/device.h"
#include "wqe_ring.h"

#define WINDOW_AT 65536u /* in the far memory, behind what messages fill */
#define WINDOW_BYTES 64u
#define PEER_DEPTH 16u

struct peer {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mw *window; /* of which the last key is in it */
};

struct half {
    struct desk desk;
    struct peer peer;
    struct wqe_ring ring;
};

static struct half theirs, ours;

/* ---- The peer -------------------------------------------------------------------------------- */

static bool create(struct half *half, struct outcome *outcome)
{
    struct nic *far = half->desk.station.far;
    struct ibv_pd *pd = device_pd(to_device_nic(far), NULL);
    struct peer *peer = &half->peer;
    peer->cq = ibv_create_cq(device_context(far), 4 * PEER_DEPTH, NULL, NULL, 0);
    peer->window = peer->cq ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : NULL;
    struct ibv_qp_init_attr attributes = {.send_cq = peer->cq,
                                          .recv_cq = peer->cq,
                                          .cap = {.max_send_wr = PEER_DEPTH,
                                                  .max_recv_wr = PEER_DEPTH,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1},
                                          .qp_type = IBV_QPT_RC,
                                          .sq_sig_all = 1};
    peer->qp = peer->window ? ibv_create_qp(pd, &attributes) : NULL;
    return peer->qp || refused(outcome, CRPC_E_NO_RESOURCE, "cannot make a peer by libibverbs");
}

static bool to_ready(const struct half *half, const struct nic_address *sender)
{
    const struct device_nic *far = to_device_nic(half->desk.station.far);
    const uint8_t mtu_code = sender->mtu_code < far->mtu_code ? sender->mtu_code : far->mtu_code;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = far->partition_index,
                               .port_num = (uint8_t)far->base.port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                  .path_mtu = (enum ibv_mtu)mtu_code,
                                  .dest_qp_num = sender->queue_pair_number,
                                  .rq_psn = sender->packet_sequence_number,
                                  .max_dest_rd_atomic = 1,
                                  .min_rnr_timer = NIC_MIN_RNR_TIMER,
                                  .ah_attr = device_way_to(far, sender)};
    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    return ibv_modify_qp(half->peer.qp, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
               0 &&
           ibv_modify_qp(half->peer.qp, &receive,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
               0 &&
           ibv_modify_qp(half->peer.qp, &send,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool connect_both(struct half *half, struct outcome *outcome)
{
    struct station *station = &half->desk.station;
    struct nic_queue_pair *pair = half->desk.sender->pair;
    struct nic_address sender, peer;
    crpc_error error = {.struct_size = sizeof(error)};
    pair->operations->queue_pair_address(pair, &sender);
    station->receiver->operations->queue_pair_address(station->receiver, &peer); /* of this port */
    peer.queue_pair_number = half->peer.qp->qp_num;
    peer.packet_sequence_number = 0;
    if (!to_ready(half, &sender)) {
        return fails(outcome, "cannot connect a queue pair of libibverbs");
    }
    int32_t status = pair->operations->queue_pair_connect(pair, &peer, &station->transport, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool half_open(struct half *half, const struct subject *subject, uint32_t driver,
                      const struct station *memory_of, struct outcome *outcome)
{
    const struct desk_setup setup = {
        .station = {.options = station_options(), .driver = driver, .memory_of = memory_of},
        .kind = NIC_QUEUE_RC,
        .alone = true};
    return desk_open(&half->desk, subject, &setup, outcome) &&
           (half->desk.station.far->windows ||
            not_here(outcome, "%s has no memory windows of type 2B",
                     half->desk.station.far->device)) &&
           create(half, outcome) && connect_both(half, outcome) &&
           (!subject->direct ||
            wqe_ring_watch(&half->ring, device_qp(half->desk.sender->pair), outcome));
}

static void half_close(struct half *half)
{
    if (half->peer.window) {
        ibv_dealloc_mw(half->peer.window);
    }
    if (half->peer.qp) {
        ibv_destroy_qp(half->peer.qp);
    }
    if (half->peer.cq) {
        ibv_destroy_cq(half->peer.cq);
    }
    desk_close(&half->desk);
    *half = (struct half){0};
}

static bool peer_await(struct half *half, struct ibv_wc *done, const char *what,
                       struct outcome *outcome)
{
    const uint32_t patience_ms = half->desk.station.subject->patience_ms;
    const uint64_t start_ns = clock_now_ns();
    while (ibv_poll_cq(half->peer.cq, 1, done) == 0) {
        if (clock_now_ns() - start_ns > patience_ms * 1000000ull) {
            return fails(outcome, "%s has not completed within %u ms", what, patience_ms);
        }
    }
    return done->status == IBV_WC_SUCCESS ||
           fails(outcome, "%s: %s", what, ibv_wc_status_str(done->status));
}

/* A window that is bound still cannot be bound again. */
static bool peer_bind(struct half *half, struct outcome *outcome)
{
    struct station *station = &half->desk.station;
    struct ibv_mw *window = half->peer.window;
    const uint32_t key = ibv_inc_rkey(window->rkey);
    struct ibv_wc done;
    struct ibv_send_wr *bad;
    struct ibv_send_wr bind = {
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = window,
                    .rkey = key,
                    .bind_info = {.mr = station->sink_keys.driver,
                                  .addr = (uint64_t)(uintptr_t)station->sink + WINDOW_AT,
                                  .length = WINDOW_BYTES,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
    int os_error = ibv_post_send(half->peer.qp, &bind, &bad);
    if (os_error) {
        return fails(outcome, "cannot bind a window: %s", strerror(os_error));
    }
    window->rkey = key;
    return peer_await(half, &done, "binding a window whose key was taken away", outcome);
}

static bool peer_receive(struct half *half, struct outcome *outcome)
{
    struct station *station = &half->desk.station;
    struct ibv_sge piece = {.addr = (uint64_t)(uintptr_t)station->sink,
                            .length = DESK_SLOT_BYTES,
                            .lkey = station->sink_keys.local_key};
    struct ibv_recv_wr *bad, receive = {.sg_list = &piece, .num_sge = 1};
    int os_error = ibv_post_recv(half->peer.qp, &receive, &bad);
    return os_error == 0 || fails(outcome, "cannot post a receive: %s", strerror(os_error));
}

/* ---- Messages -------------------------------------------------------------------------------- */

static bool write_by_key(struct half *half, uint32_t key, crpc_completion *done,
                         struct outcome *outcome)
{
    struct station *station = &half->desk.station;
    const struct nic_work work = {.opcode = NIC_WRITE,
                                  .flags = NIC_WORK_SIGNAL,
                                  .address = (uintptr_t)station->source,
                                  .bytes = WINDOW_BYTES,
                                  .remote_key = key,
                                  .remote_address = (uint64_t)(uintptr_t)station->sink + WINDOW_AT};
    return desk_send(&half->desk, &work, outcome) &&
           desk_next(&half->desk, station->near, done, outcome);
}

/* The key is there, is used, and is taken away. */
static bool take_away(struct half *half, const struct nic_work *message, struct outcome *outcome)
{
    struct station *station = &half->desk.station;
    struct nic_work work = *message;
    crpc_completion sent;
    struct ibv_wc received;
    if (!peer_receive(half, outcome) || !peer_bind(half, outcome)) {
        return false;
    }
    work.immediate = half->peer.window->rkey;
    if (!write_by_key(half, work.immediate, &sent, outcome)) {
        return false;
    }
    if (sent.status != CRPC_OK) {
        return fails(outcome, "a WRITE by a key that is bound has a %s error",
                     station_error_name((uint8_t)-sent.status));
    }
    if (!desk_send(&half->desk, &work, outcome) ||
        !desk_await(&half->desk, station->near, &sent, outcome) ||
        !peer_await(half, &received, "receiving", outcome)) {
        return false;
    }
    if (!(received.wc_flags & IBV_WC_WITH_INV)) {
        return fails(outcome, "a receive does not say that its SEND took a key away: flags 0x%x",
                     (unsigned int)received.wc_flags);
    }
    if (received.invalidated_rkey != work.immediate || received.byte_len != message->bytes) {
        return fails(outcome,
                     "a SEND of %u bytes that invalidates key 0x%08x came with %u and 0x%08x",
                     message->bytes, work.immediate, received.byte_len, received.invalidated_rkey);
    }
    return station_same(station, 0, 0, message->bytes, "a message that invalidates", outcome);
}

/* Behind the WRITE. */
static bool next_wqe(struct half *half, const struct nic_work *message, struct wqe *wqe,
                     struct outcome *outcome)
{
    const uint32_t rest = 16 + 4 + message->bytes;
    if (!wqe_ring_next(&half->ring, wqe, outcome) || !wqe_ring_next(&half->ring, wqe, outcome) ||
        !wqe_ring_clear_key(wqe, 12, half->peer.window->rkey, outcome)) {
        return false;
    }
    if (message->flags & NIC_WORK_INLINE) {
        memset(wqe->bytes + rest, 0, wqe->units * 16 > rest ? wqe->units * 16 - rest : 0);
        return true;
    }
    return message->bytes == 0 ||
           wqe_ring_clear_key(wqe, 20, half->desk.station.source_keys.local_key, outcome);
}

static struct nic_work some_message(struct station *station)
{
    const bool in_wqe = station_pick(station, 2);
    const struct nic_work work = {
        .opcode = NIC_SEND_INVALIDATE,
        .flags = (uint8_t)(NIC_WORK_SIGNAL | (in_wqe ? NIC_WORK_INLINE : 0)),
        .address = (uintptr_t)station->source,
        .bytes = station_pick(station, in_wqe ? DESK_INLINE_BYTES : 5000)};
    station_fill(station, station->source, DESK_SLOT_BYTES);
    return work;
}

static bool compare(struct outcome *outcome)
{
    struct station *station = &ours.desk.station;
    struct nic_work message = some_message(station);
    struct wqe their_wqe, our_wqe;
    memset(station->sink, 0, message.bytes);
    if (!take_away(&ours, &message, outcome)) {
        return false;
    }
    if (!station->subject->direct) {
        return true;
    }
    memset(station->sink, 0, message.bytes);
    return take_away(&theirs, &message, outcome) &&
           next_wqe(&theirs, &message, &their_wqe, outcome) &&
           next_wqe(&ours, &message, &our_wqe, outcome) &&
           wqe_ring_same(&their_wqe, &our_wqe, "SEND_INVALIDATE", outcome);
}

/* The last key is good for nothing. */
static bool key_is_gone(struct outcome *outcome)
{
    struct station *station = &ours.desk.station;
    uint8_t before[WINDOW_BYTES];
    crpc_completion done;
    memcpy(before, station->sink + WINDOW_AT, WINDOW_BYTES);
    station_fill(station, station->source, WINDOW_BYTES);
    if (!write_by_key(&ours, ours.peer.window->rkey, &done, outcome)) {
        return false;
    }
    if (done.status == CRPC_OK || memcmp(before, station->sink + WINDOW_AT, WINDOW_BYTES) != 0) {
        return fails(outcome, "a WRITE by a key that was taken away was done");
    }
    return done.status == -NIC_ERROR_REMOTE_ACCESS ||
           fails(outcome, "a WRITE by a key that was taken away has a %s error",
                 station_error_name((uint8_t)-done.status));
}

/* queue_post.c: SEND_INVALIDATE; and what it is for: the key is good until then, and not after. */
void check_invalidate(const struct subject *subject, struct outcome *outcome)
{
    const uint32_t rounds = subject->quick ? 100 : 2000;
    bool good = half_open(&ours, subject, 0, NULL, outcome) &&
                (!subject->direct ||
                 half_open(&theirs, subject, CRPC_DRIVER_VERBS, &ours.desk.station, outcome));
    for (uint32_t i = 0; good && i < rounds; i++) {
        good = compare(outcome);
    }
    if (good && key_is_gone(outcome)) {
        passes(outcome, "%u keys, each good until it was taken away%s", rounds,
               subject->direct ? ", by the same bytes as libmlx5's" : "");
    }
    half_close(&theirs);
    half_close(&ours);
}

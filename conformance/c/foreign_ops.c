/* foreign_ops.c: the ops of the foreign peer, and what comes of them. */
#include <arpa/inet.h>
#include <stdio.h>

#include "foreign.h"

#define CHUNK 64
#define BOUND UINT64_MAX /* wr_id of a bind, which is no op of a line */
#define HEADER_BYTES 40u /* before each datagram */

static int binding; /* one is under way */
static enum ibv_wc_status bound;

/* ---- Ops ---- */

static int is_for_datagrams(const struct thing *queue)
{
    return queue->attributes.qp_type == IBV_QPT_UD;
}

static const struct thing *target_of(const struct post *post)
{
    return (const struct thing *)(uintptr_t)post->target;
}

static int is_atomic(const struct post *post)
{
    return post->opcode == POST_COMPARE_SWAP || post->opcode == POST_FETCH_ADD;
}

/* No two that are under way have the same: there are fewer posts than 61, and a queue has fewer ops open than there are results. */
static uint64_t *result_of(const struct post *post, uint32_t index)
{
    return &results[(index * 61 + post_data(post, 0)) % RESULTS];
}

static uint32_t pieces_of(const struct post *post, uint32_t index, struct ibv_sge *pieces)
{
    const struct thing *region = post->region;
    const uint32_t count = post->piece_count ? post->piece_count : post->pieces[0].bytes > 0;
    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = (struct ibv_sge){.addr = (uintptr_t)post_memory(post, index, i),
                                     .length = post->pieces[i].bytes,
                                     .lkey = region ? region->region->lkey : 0};
    }
    if (is_atomic(post)) {
        pieces[0] = (struct ibv_sge){.addr = (uintptr_t)result_of(post, index),
                                     .length = sizeof(*results),
                                     .lkey = results_region->lkey};
        return 1;
    }
    return count;
}

static int post_receive(const struct post *post, uint32_t index)
{
    const struct thing *queue = post->queue;
    struct ibv_sge pieces[POST_PIECES_MAX];
    struct ibv_recv_wr receive = {.wr_id = post_data(post, index),
                                  .sg_list = pieces,
                                  .num_sge = (int)pieces_of(post, index, pieces)};
    struct ibv_recv_wr *bad;
    return ibv_post_recv(queue->qp, &receive, &bad);
}

static int post_send(const struct post *post, uint32_t index)
{
    static const enum ibv_wr_opcode opcodes[] = {
        [POST_SEND] = IBV_WR_SEND,
        [POST_SEND_IMMEDIATE] = IBV_WR_SEND_WITH_IMM,
        [POST_SEND_INVALIDATE] = IBV_WR_SEND_WITH_INV,
        [POST_WRITE] = IBV_WR_RDMA_WRITE,
        [POST_WRITE_IMMEDIATE] = IBV_WR_RDMA_WRITE_WITH_IMM,
        [POST_READ] = IBV_WR_RDMA_READ,
        [POST_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
        [POST_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    };
    const struct thing *queue = post->queue;
    struct ibv_sge pieces[POST_PIECES_MAX];
    struct ibv_send_wr send = {.wr_id = post_data(post, index),
                               .sg_list = pieces,
                               .num_sge = (int)pieces_of(post, index, pieces),
                               .opcode = opcodes[post->opcode],
                               .send_flags = IBV_SEND_SIGNALED |
                                             (post->is_inline ? IBV_SEND_INLINE : 0) |
                                             (post->fence ? IBV_SEND_FENCE : 0) |
                                             (post->solicited ? IBV_SEND_SOLICITED : 0)};
    struct ibv_send_wr *bad;
    if (is_for_datagrams(queue)) {
        send.wr.ud.ah = target_of(post)->target;
        send.wr.ud.remote_qpn = target_of(post)->number;
        send.wr.ud.remote_qkey = target_of(post)->queue_key;
    } else if (is_atomic(post)) {
        send.wr.atomic.remote_addr = post_remote(post, index);
        send.wr.atomic.rkey = post->remote_key;
        send.wr.atomic.compare_add = post->opcode == POST_FETCH_ADD ? post->operand : post->compare;
        send.wr.atomic.swap = post->operand;
    } else {
        send.wr.rdma.remote_addr = post_remote(post, index);
        send.wr.rdma.rkey = post->remote_key;
    }
    if (post->opcode == POST_SEND_INVALIDATE) {
        send.invalidate_rkey = post->immediate;
    } else {
        send.imm_data = htonl(post_immediate(post, index));
    }
    return ibv_post_send(queue->qp, &send, &bad);
}

/* Posts what there is room for, in order. What a queue that is over has waiting, fails. */
static void submit(struct post *post)
{
    struct thing *queue = post->queue;
    const int receives = post->opcode == POST_RECEIVE;
    uint32_t *open = receives ? &queue->receives_open : &queue->sends_open;
    const uint32_t room =
        receives ? queue->attributes.cap.max_recv_wr : queue->attributes.cap.max_send_wr;
    while (post->submitted < post->count && (*open < room || queue->over || !queue->qp)) {
        const uint32_t index = post->submitted++;
        const char *status = NULL;
        if (queue->over || !queue->qp) {
            status = "CRPC_E_DISCONNECTED";
        } else if (!receives && is_for_datagrams(queue) && !target_of(post)->target) {
            status = "CRPC_E_CLOSED";
        } else if (receives ? post_receive(post, index) : post_send(post, index)) {
            status = "CRPC_E_INVALID";
        }
        if (status) {
            post_tell(post, index, status, NULL, 0);
        } else {
            ++*open;
            ++*(receives ? &queue->receives : &queue->sends);
        }
    }
    post->waits = post->submitted < post->count;
    if (!post->waits) {
        post_spoil(post);
    }
}

void ops_submit(void)
{
    for (struct post *post = post_next(NULL); post; post = post_next(post)) {
        const struct post *before = post_next(NULL);
        while (before != post &&
               !(before->waits && before->queue == post->queue &&
                 (before->opcode == POST_RECEIVE) == (post->opcode == POST_RECEIVE))) {
            before = post_next(before);
        }
        if (post->waits && before == post) {
            submit(post);
        }
    }
}

/* ---- What became of them ---- */

static const char *name_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return "CRPC_OK";
    case IBV_WC_WR_FLUSH_ERR:
        return "CRPC_E_FLUSHED";
    case IBV_WC_REM_ACCESS_ERR:
        return "CRPC_E_ACCESS";
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "CRPC_E_NOT_READY";
    case IBV_WC_RETRY_EXC_ERR:
        return "CRPC_E_DISCONNECTED";
    case IBV_WC_LOC_LEN_ERR:
        return "CRPC_E_TRUNCATED";
    default:
        return "CRPC_E_DEVICE";
    }
}

static void take_completion(const struct ibv_wc *done)
{
    uint32_t index;
    if (done->wr_id == BOUND) {
        binding = 0;
        bound = done->status;
        return;
    }
    struct post *post = post_of(done->wr_id, &index);
    struct thing *queue = post->queue;
    const int receives = post->opcode == POST_RECEIVE;
    const int writes = receives && done->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    struct post_result result = {.bytes = writes ? 0 : done->byte_len,
                                 .written = writes ? done->byte_len : 0,
                                 .queue = queue->name};
    if (receives && is_for_datagrams(queue) && done->status == IBV_WC_SUCCESS) {
        result.header = HEADER_BYTES;
        result.source = done->src_qp;
        if (post->pieces[0].bytes >= HEADER_BYTES) {
            verbs_keep_letter(queue, done, post_memory(post, index, 0));
        }
    }
    if (is_atomic(post)) {
        result.before = *result_of(post, index);
    }
    if (done->wc_flags & IBV_WC_WITH_IMM) {
        result.number = "immediate";
        result.immediate = ntohl(done->imm_data);
    } else if (done->wc_flags & IBV_WC_WITH_INV) {
        result.number = "invalidated";
        result.immediate = done->invalidated_rkey;
    }
    --*(receives ? &queue->receives_open : &queue->sends_open);
    const int good = done->status == IBV_WC_SUCCESS;
    post_tell(post, index, name_of(done->status), good ? &result : NULL, 0);
    if (!good && done->status != IBV_WC_WR_FLUSH_ERR) {
        queue_end(queue, name_of(done->status));
    }
}

int ops_bind(const struct thing *queue, const struct thing *region, struct ibv_mw *window)
{
    struct ibv_send_wr *bad,
        bind = {.wr_id = BOUND,
                .opcode = IBV_WR_BIND_MW,
                .send_flags = IBV_SEND_SIGNALED,
                .bind_mw = {.mw = window,
                            .rkey = ibv_inc_rkey(window->rkey),
                            .bind_info = {.mr = region->region,
                                          .addr = (uintptr_t)region->memory,
                                          .length = region->region->length,
                                          .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
    bound = IBV_WC_GENERAL_ERR;
    if (ibv_post_send(queue->qp, &bind, &bad)) {
        return 0;
    }
    for (binding = 1; binding;) {
        ops_take();
    }
    window->rkey = bind.bind_mw.rkey;
    return bound == IBV_WC_SUCCESS;
}

int ops_take(void)
{
    struct ibv_wc done[CHUNK];
    int count = completions ? ibv_poll_cq(completions, CHUNK, done) : 0;
    for (int i = 0; i < count; i++) {
        take_completion(&done[i]);
    }
    return count;
}

/* streams.c: streams of a DCI (mlx5dv_create_qp(3), mlx5dv_wr_post(3),
 * mlx5dv_dci_stream_id_reset(3)). An error in one stream flushes the requests of that stream until
 * it is reset. The DCI fails with it only if as many streams have failed as the program said.
 *
 * Streams take turns, as destinations do (dc.c): a request of another stream waits until all before
 * it have completed. So when a stream fails, the peer has executed nothing of the others, and
 * nothing is sent twice. Completions come in the order of the send queue. Drivers need that:
 * libmlx5 takes the places of all requests before a completed one for free. */
#include "simnic/nic/internal.h"

#include <stdlib.h>
#include <string.h>

#define IDS 65536u

struct stream_set {
    uint32_t most; /* so many failed ones are too many */
    uint32_t count;
    uint16_t current; /* of the messages in flight */
    uint8_t failed[IDS / 8];
};

bool streams_create(struct queue_pair *dci, uint32_t log_failed)
{
    dci->streams = calloc(1, sizeof(*dci->streams));
    if (dci->streams) {
        dci->streams->most = 1u << log_failed;
    }
    return dci->streams;
}

void streams_destroy(struct queue_pair *dci)
{
    free(dci->streams);
    dci->streams = NULL;
}

void streams_clear(struct queue_pair *dci)
{
    if (!dci->streams) {
        return;
    }
    dci->streams->count = 0;
    memset(dci->streams->failed, 0, sizeof(dci->streams->failed));
}

static bool has_failed(const struct stream_set *set, uint16_t stream)
{
    return set->failed[stream / 8] >> stream % 8 & 1;
}

bool streams_admit(struct queue_pair *dci)
{
    struct stream_set *set = dci->streams;
    struct send_request *request = &dci->request;
    if (dci->in_flight_head != dci->in_flight_tail && request->stream != set->current) {
        return false;
    }
    set->current = request->stream;
    /* A request that cannot be read is worse than one of a stream that does not send. */
    if (!request->syndrome && has_failed(set, request->stream)) {
        request->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
    }
    return true;
}

bool streams_fail(struct nic *nic, struct queue_pair *dci, uint8_t syndrome)
{
    struct stream_set *set = dci->streams;
    /* A malformed request says nothing for sure, not even which stream it is of. */
    if (!set || syndrome == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR) {
        return false;
    }
    if (!has_failed(set, set->current)) {
        set->failed[set->current / 8] |= (uint8_t)(1u << set->current % 8);
        set->count++;
    }
    if (set->count >= set->most || nic_has_quirk(nic, QUIRK_WQE_DC)) {
        return false;
    }
    requester_flush_in_flight(nic, dci); /* all of this stream */
    dci->gap_told = false;
    dci->timer_ns = dci->wait_until_ns = 0;
    dci->rnr_left = dci->attributes.rnr_retry_count;
    dci->retries_left = dci->attributes.retry_count;
    qp_activate_anew(nic, dci);
    return dci->state != STATE_ERR; /* unless the CQ had no room */
}

bool streams_reset(struct queue_pair *dci, uint16_t stream)
{
    struct stream_set *set = dci->streams;
    if (!set || !has_failed(set, stream)) {
        return false;
    }
    set->failed[stream / 8] &= (uint8_t) ~(1u << stream % 8);
    set->count--;
    return true;
}

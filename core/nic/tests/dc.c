/* dc.c: see dc.h. */
#include "dc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct nic_queue_options dc_initiator(uint32_t streams)
{
    struct nic_queue_options options = queues_options();
    options.kind = NIC_QUEUE_DCI;
    options.receives = options.receive_pieces = 0;
    options.transport = (struct nic_transport){.retry_timeout = 10, .retry_count = 3};
    options.streams = streams;
    options.stream_failures_max = streams > 0 ? 1 : 0;
    options.table = streams > 0 ? NIC_TABLE_UNORDERED : NIC_TABLE_DENSE;
    return options;
}

struct nic_queue *dc_srq(struct nic *nic)
{
    struct nic_queue_options options = queues_options();
    options.kind = NIC_QUEUE_SRQ;
    options.sends = options.send_pieces = options.inline_bytes = 0;
    options.receives = 64;
    return queues_create(nic, &options);
}

struct nic_queue *dc_dct(struct nic *nic, struct nic_queue *srq, uint64_t access_key)
{
    struct nic_queue_options options = {.kind = NIC_QUEUE_DCT,
                                        .handle = DC_DCT_HANDLE,
                                        .user_data = 88,
                                        .receive_queue = srq,
                                        .access_key = access_key};
    struct nic_queue *dct = queues_create(nic, &options);
    assert_int_not_equal(dct->pair->number, 0);
    return dct;
}

struct nic_target *dc_target(struct nic *nic, const struct nic_queue *dct, uint64_t access_key)
{
    struct nic_target_options options = {.kind = NIC_QUEUE_DCI, .access_key = access_key};
    struct nic_target *target = NULL;
    dct->nic->operations->queue_pair_address(dct->pair, &options.address);
    assert_int_equal(nic->operations->queues->target_create(nic, NULL, &options, &target, NULL),
                     CRPC_OK);
    return target;
}

void dc_target_end(struct nic_target *target)
{
    target->nic->operations->queues->target_destroy(target);
}

struct dc dc_make(struct queues *queues, const struct nic_queue_options *initiator)
{
    struct dc dc = {.queues = queues, .srq = dc_srq(queues->far.nic)};
    queues->sender = queues_create(queues->near.nic, initiator);
    queues->receiver = dc_dct(queues->far.nic, dc.srq, DC_KEY);
    dc.target = dc_target(queues->near.nic, queues->receiver, DC_KEY);
    return dc;
}

void dc_end(struct dc *dc)
{
    queues_end(dc->queues->sender);
    queues_end(dc->queues->receiver);
    dc->queues->sender = dc->queues->receiver = NULL;
    queues_end(dc->srq);
    dc_target_end(dc->target);
}

void dc_receive(const struct dc *dc, uint64_t first, uint32_t count, uint32_t bytes)
{
    for (uint64_t slot = first; slot < first + count; slot++) {
        struct nic_piece piece = queues_far(dc->queues, slot * DC_SLOT_BYTES, bytes);
        assert_true(dc->srq->nic->operations->queues->receive(dc->srq, slot, &piece, 1));
    }
    queues_ring(dc->srq);
}

void dc_write(const struct dc *dc, struct nic_target *target, uint16_t stream, uint32_t flags,
              uint64_t user_data, uint32_t remote_key)
{
    struct nic_work work = queues_work(dc->queues, NIC_WRITE, flags, user_data);
    struct nic_piece piece = queues_near(dc->queues, 16 * user_data, 16);
    work.remote_address += 16 * user_data;
    work.remote_key = remote_key;
    work.stream = stream;
    assert_true(queues_post_to(dc->queues->sender, &work, target, &piece, 1));
}

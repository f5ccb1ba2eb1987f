/* malformed.c: see malformed.h. */
#include "malformed.h"

void malformed_open(struct pair *pair)
{
    crpc_endpoint_options options = pair_options();
    pair_open(pair, NULL);
    pair_connect(pair, &options, &options);
    pair_connect(pair, &options, &options);
    for (uint64_t call = 0; call < 3; call++) {
        assert_int_equal(pair_call(pair, 0, 0, 100 + call, 8, 1, 100), CRPC_OK);
    }
    pair_poll(pair, 0);
    assert_int_equal(pair_poll(pair, 1), 3);
}

struct batch malformed_good_requests(const struct pair *pair)
{
    const struct rpc_endpoint *target = pair->endpoint[0][0];
    return (struct batch){
        .header = {.request_limit = target->out.request_limit,
                   .batch_limit = target->out.batch_limit,
                   .sequence = 0,
                   .bytes = 96,
                   .message_count = 2},
        .first = {.payload_bytes = 16, .call_id = 3, .limit_or_status = 64, .kind = WIRE_REQUEST},
        .second = {.payload_bytes = 10, .call_id = 4, .limit_or_status = 0, .kind = WIRE_REQUEST},
        .immediate = 3,
        .bytes = 96};
}

struct batch malformed_good_responses(const struct pair *pair)
{
    struct batch batch = malformed_good_requests(pair);
    batch.first = (struct wire_message){.payload_bytes = 16,
                                        .call_id = pair->endpoint[0][0]->calls.slots[0].call_id,
                                        .kind = WIRE_RESPONSE};
    batch.second = (struct wire_message){.payload_bytes = 0,
                                         .call_id = pair->endpoint[0][0]->calls.slots[1].call_id,
                                         .limit_or_status = (uint32_t)CRPC_E_DROPPED,
                                         .kind = WIRE_RESPONSE};
    return batch;
}

struct batch malformed_fin(const struct pair *pair)
{
    struct batch fin = malformed_good_requests(pair);
    fin.header.message_count = 0;
    fin.header.flags = WIRE_BATCH_FIN;
    fin.header.bytes = WIRE_BATCH_HEADER_BYTES;
    fin.immediate = 1;
    fin.bytes = WIRE_BATCH_HEADER_BYTES;
    return fin;
}

void malformed_send(const struct pair *pair, const struct batch *batch, uint64_t position)
{
    const struct rpc_endpoint *target = pair->endpoint[0][0];
    assert_int_equal(memory_fabric_write_immediate(
                         pair->fabric, target->link.queue_pair->number,
                         (uint64_t)(uintptr_t)ring_at(&target->in.ring, position),
                         target->in.ring.memory.remote_key, batch->bytes, batch, batch->immediate),
                     NIC_ERROR_NONE);
}

void malformed_expect_end(struct pair *pair)
{
    for (uint32_t i = 0; i < 4; i++) {
        pair_poll(pair, 0);
        const crpc_completion *end = pair_find(pair, 0, CRPC_COMPLETION_DISCONNECTED);
        if (end) {
            assert_int_equal(end->status, CRPC_E_PROTOCOL);
            return;
        }
    }
    fail_msg("the connection has not ended");
}

/* ---- Spoiled ones ---------------------------------------------------------------------------- */

#define SPOIL(name, statement)                                                                     \
    static void name(struct batch *batch)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }

SPOIL(immediate_0, batch->immediate = 0)
SPOIL(immediate_beyond_the_ring, batch->immediate = 4096 / 32 + 1)
SPOIL(immediate_huge, batch->immediate = UINT32_MAX)
SPOIL(length_not_the_immediates, batch->header.bytes = 64)
SPOIL(length_longer_than_the_immediate, batch->header.bytes = 128)
SPOIL(sequence_repeated, batch->header.sequence = UINT32_MAX)
SPOIL(sequence_skipped, batch->header.sequence = 1)
SPOIL(header_zero_set, batch->header.returned = 1)
SPOIL(unknown_flag, batch->header.flags = 2)
SPOIL(no_messages, batch->header.message_count = 0)
SPOIL(no_messages_but_fin_and_bytes, batch->header.message_count = 0;
      batch->header.flags = WIRE_BATCH_FIN)
SPOIL(fewer_messages_than_bytes, batch->header.message_count = 1)
SPOIL(more_messages_than_bytes, batch->header.message_count = 3)
SPOIL(request_limit_beyond_its_share, batch->header.request_limit = 1u << 20)
SPOIL(batch_limit_beyond_its_window, batch->header.batch_limit = 1000)
SPOIL(limits_near_overflow, batch->header.request_limit = UINT64_MAX)
SPOIL(message_longer_than_the_batch, batch->first.payload_bytes = 64)
SPOIL(message_length_overflows, batch->first.payload_bytes = UINT32_MAX)
SPOIL(last_message_ends_early, batch->header.bytes = 128; batch->immediate = 4; batch->bytes = 128)
SPOIL(kind_0, batch->second.kind = 0)
SPOIL(kind_3, batch->second.kind = 3)
SPOIL(kind_15, batch->second.kind = 15)
SPOIL(kind_0_with_time, batch->second.kind = 0x10)
SPOIL(response_with_time, batch->first.zero = 1)
SPOIL(response_with_time_beside_the_kind, batch->first.kind = WIRE_RESPONSE | 0x10)
#define ABANDON(message, id)                                                                       \
    (message) = (struct wire_message)                                                              \
    {                                                                                              \
        .call_id = (id), .limit_or_status = (uint32_t)CRPC_E_TIMEOUT, .kind = WIRE_ABANDONED       \
    }
SPOIL(abandoned_without_a_reason, ABANDON(batch->second, 3); batch->second.limit_or_status = 0)
SPOIL(abandoned_for_another_reason, ABANDON(batch->second, 3);
      batch->second.limit_or_status = (uint32_t)CRPC_E_DROPPED)
SPOIL(abandoned_with_a_method, ABANDON(batch->second, 3); batch->second.method = 1)
SPOIL(abandoned_with_bytes, ABANDON(batch->second, 3); batch->second.payload_bytes = 8)
SPOIL(abandoned_with_time, ABANDON(batch->second, 3); batch->second.zero = 1)
SPOIL(abandoned_beyond_its_slots, ABANDON(batch->second, 16))
#define TRACE(id)                                                                                  \
    batch->second =                                                                                \
        (struct wire_message){.payload_bytes = 32, .call_id = (id), .kind = WIRE_TRACE};           \
    memset(batch->rest, 0, sizeof(batch->rest));                                                   \
    batch->header.bytes += 32;                                                                     \
    batch->bytes += 32;                                                                            \
    batch->immediate++
SPOIL(trace_too_short, TRACE(4); batch->second.payload_bytes = 31)
SPOIL(trace_with_a_status, TRACE(4); batch->second.limit_or_status = 1)
SPOIL(trace_with_a_method, TRACE(4); batch->second.method = 1)
SPOIL(trace_with_time, TRACE(4); batch->second.zero = 1)
SPOIL(trace_beyond_its_slots, TRACE(16))
SPOIL(trace_with_reserved_bytes, TRACE(4); batch->rest[15] = 1)
SPOIL(index_beyond_its_slots, batch->first.call_id = 16)
SPOIL(index_in_use, batch->second.call_id = batch->first.call_id | 5u << 20)
SPOIL(allowance_beyond_its_ring, batch->first.limit_or_status = 4000)
SPOIL(allowance_huge, batch->first.limit_or_status = UINT32_MAX)
SPOIL(response_index_beyond_our_slots, batch->first.call_id = 0xfffff)
SPOIL(response_of_another_generation, batch->first.call_id += 1u << 20)
SPOIL(response_to_no_call, batch->first.call_id = 9)
SPOIL(response_twice, batch->second.call_id = batch->first.call_id)
SPOIL(response_longer_than_allowed, batch->first.payload_bytes = 101; batch->header.bytes = 192;
      batch->header.message_count = 1; batch->immediate = 6)
SPOIL(response_with_a_reserved_status, batch->first.limit_or_status = (uint32_t)CRPC_E_TIMEOUT)
SPOIL(response_with_a_method, batch->first.method = 1)

const struct malformed malformed[] = {
#define REQUESTS(name)                                                                             \
    {                                                                                              \
#name, false, name                                                                         \
    }
#define RESPONSES(name)                                                                            \
    {                                                                                              \
#name, true, name                                                                          \
    }
    REQUESTS(immediate_0),
    REQUESTS(immediate_beyond_the_ring),
    REQUESTS(immediate_huge),
    REQUESTS(length_not_the_immediates),
    REQUESTS(length_longer_than_the_immediate),
    REQUESTS(sequence_repeated),
    REQUESTS(sequence_skipped),
    REQUESTS(header_zero_set),
    REQUESTS(unknown_flag),
    REQUESTS(no_messages),
    REQUESTS(no_messages_but_fin_and_bytes),
    REQUESTS(fewer_messages_than_bytes),
    REQUESTS(more_messages_than_bytes),
    REQUESTS(request_limit_beyond_its_share),
    REQUESTS(batch_limit_beyond_its_window),
    REQUESTS(limits_near_overflow),
    REQUESTS(message_longer_than_the_batch),
    REQUESTS(message_length_overflows),
    REQUESTS(last_message_ends_early),
    REQUESTS(kind_0),
    REQUESTS(kind_3),
    REQUESTS(kind_15),
    REQUESTS(kind_0_with_time),
    RESPONSES(response_with_time),
    RESPONSES(response_with_time_beside_the_kind),
    REQUESTS(abandoned_without_a_reason),
    REQUESTS(abandoned_for_another_reason),
    REQUESTS(abandoned_with_a_method),
    REQUESTS(abandoned_with_bytes),
    REQUESTS(abandoned_with_time),
    REQUESTS(abandoned_beyond_its_slots),
    REQUESTS(trace_too_short),
    REQUESTS(trace_with_a_status),
    REQUESTS(trace_with_a_method),
    REQUESTS(trace_with_time),
    REQUESTS(trace_beyond_its_slots),
    REQUESTS(trace_with_reserved_bytes),
    REQUESTS(index_beyond_its_slots),
    REQUESTS(index_in_use),
    REQUESTS(allowance_beyond_its_ring),
    REQUESTS(allowance_huge),
    RESPONSES(response_index_beyond_our_slots),
    RESPONSES(response_of_another_generation),
    RESPONSES(response_to_no_call),
    RESPONSES(response_twice),
    RESPONSES(response_longer_than_allowed),
    RESPONSES(response_with_a_reserved_status),
    RESPONSES(response_with_a_method),
};

const size_t malformed_count = sizeof(malformed) / sizeof(malformed[0]);

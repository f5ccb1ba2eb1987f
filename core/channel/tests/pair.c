/* pair.c: see pair.h. */
#include "pair.h"

#include <stdlib.h>

bool pair_without_windows;
uint32_t pair_ece[2][CHANNEL_RAILS_MAX];

crpc_channel_options pair_options(void)
{
    return (crpc_channel_options){.slots = 8,
                                  .sends_max = 32,
                                  .queue_pairs = 1,
                                  .split = CRPC_SPLIT_FIXED,
                                  .rail0_share = 512,
                                  .stripe_bytes_min = 1024,
                                  .rails = 3,
                                  .connect_timeout_ns = UINT64_C(1000000000),
                                  .keepalive_ns = CRPC_FOREVER,
                                  .rail_retry_ns = 1000000,
                                  .retry_timeout = 14,
                                  .retry_count = 7};
}

void pair_open(struct pair *pair, uint32_t left_rails, uint32_t right_rails)
{
    pair_open_with_limit(pair, left_rails, right_rails, UINT32_MAX);
}

void pair_open_with_limit(struct pair *pair, uint32_t left_rails, uint32_t right_rails,
                          uint32_t message_bytes_max)
{
    const uint32_t rails[2] = {left_rails, right_rails};
    crpc_error error = {0};
    memset(pair, 0, sizeof(*pair));
    pair->clock_ns = 1000000000;
    pair->fabric = memory_fabric_create(1);
    memory_fabric_options(pair->fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(pair->fabric)->retry_steps = 20;
    memory_fabric_options(pair->fabric)->message_bytes_max = message_bytes_max;
    memory_fabric_options(pair->fabric)->no_windows = pair_without_windows;
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t rail = 0; rail < rails[side]; rail++) {
            struct nic_options options = {.receive_depth = 256,
                                          .send_depth = 64,
                                          .send_completion_depth = 4096,
                                          .signal_interval = 8};
            memory_fabric_options(pair->fabric)->ece[rail] = pair_ece[side][rail];
            strcpy(options.device, rail == 0 ? "memory0" : "memory1");
            assert_int_equal(
                memory_nic_open(pair->fabric, &options, &pair->nic[side][rail], &error), CRPC_OK);
        }
        handles_init(&pair->handles[side]);
        assert_int_equal(channel_engine_create(pair->nic[side], rails[side], NULL, &pair->log,
                                               &pair->handles[side], 8, &pair->clock_ns,
                                               &pair->engine[side], &error),
                         CRPC_OK);
        pair->memory[side] = calloc(1, PAIR_BYTES);
        pair->registrar[side] = (struct registrar){.nics = {pair->nic[side][0], pair->nic[side][1]},
                                                   .nic_count = rails[side],
                                                   .windows = true,
                                                   .told = true,
                                                   .log = &pair->log};
        assert_int_equal(registration_make(&pair->registrar[side],
                                           (uint64_t)(uintptr_t)pair->memory[side], PAIR_BYTES,
                                           CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, -1,
                                           0, &pair->region[side], &error),
                         CRPC_OK);
    }
}

void pair_join(struct pair *pair, const crpc_channel_options *left,
               const crpc_channel_options *right)
{
    const crpc_channel_options *options[2] = {left, right};
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(channel_blob(pair->engine[side], options[side], &pair->channel[side],
                                      blob[side], &error),
                         CRPC_OK);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(channel_join(pair->channel[side], blob[!side], &error), CRPC_OK);
    }
}

void pair_connect(struct pair *pair, const crpc_channel_options *options)
{
    pair_join(pair, options, options);
    pair_wait(pair, 400000000); /* the passive side gives a rail that does not come some time */
    for (uint32_t side = 0; side < 2; side++) {
        const crpc_completion *connected = pair_find(pair, side, CRPC_COMPLETION_CONNECTED, 0);
        assert_non_null(connected);
        assert_int_equal(connected->status, CRPC_OK);
    }
    pair_forget(pair);
}

void pair_close(struct pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        struct channel_engine *engine = pair->engine[side];
        link_group_close(&engine->links);
        assert_int_equal(pair->region[side].users, 0);
        registration_end(&pair->registrar[side], &pair->region[side]);
        channel_engine_destroy(engine);
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            if (pair->nic[side][rail]) {
                pair->nic[side][rail]->operations->close(pair->nic[side][rail]);
            }
        }
        handles_free(&pair->handles[side]);
        free(pair->memory[side]);
    }
    const struct memory_fabric_counters *counters = memory_fabric_counters(pair->fabric);
    assert_int_equal(counters->left_open, 0);
    assert_int_equal(counters->send_overflows, 0);
    assert_int_equal(counters->receive_overflows, 0);
    assert_int_equal(counters->receiver_not_ready, 0);
    memory_fabric_destroy(pair->fabric);
}

static uint32_t poll_more(struct pair *pair, uint32_t side)
{
    struct pair_seen *seen = &pair->seen[side];
    assert_true(seen->count < PAIR_COMPLETIONS);
    uint32_t got = channel_poll(pair->engine[side], &seen->entries[seen->count],
                                PAIR_COMPLETIONS - seen->count);
    seen->count += got;
    return got;
}

uint32_t pair_poll(struct pair *pair, uint32_t side)
{
    pair->seen[side].count = 0;
    return poll_more(pair, side);
}

void pair_settle(struct pair *pair)
{
    for (uint32_t quiet = 0; quiet < 60; quiet++) { /* more than the fabric's retry_steps */
        if (poll_more(pair, 0) + poll_more(pair, 1) > 0) {
            quiet = 0;
        }
    }
}

void pair_wait(struct pair *pair, uint64_t ns)
{
    const uint64_t steps = 20;
    for (uint64_t i = 0; i < steps; i++) {
        pair_settle(pair);
        pair->clock_ns += ns / steps;
    }
    pair_settle(pair);
}

const crpc_completion *pair_find(const struct pair *pair, uint32_t side, uint8_t kind, uint32_t nth)
{
    for (uint32_t i = 0; i < pair->seen[side].count; i++) {
        if (pair->seen[side].entries[i].kind == kind && nth-- == 0) {
            return &pair->seen[side].entries[i];
        }
    }
    return NULL;
}

uint32_t pair_count(const struct pair *pair, uint32_t side, uint8_t kind)
{
    uint32_t count = 0;
    while (pair_find(pair, side, kind, count)) {
        count++;
    }
    return count;
}

void pair_forget(struct pair *pair)
{
    pair->seen[0].count = 0;
    pair->seen[1].count = 0;
}

static crpc_channel_op op_of(const struct pair *pair, uint32_t side, uint8_t opcode,
                             uint64_t offset, uint64_t bytes, uint32_t tag, uint64_t user_data)
{
    return (crpc_channel_op){.opcode = opcode,
                             .tag = tag,
                             .user_data = user_data,
                             .address = (uint64_t)(uintptr_t)pair->memory[side] + offset,
                             .bytes = bytes};
}

int32_t pair_receive(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes,
                     uint32_t tag, uint64_t user_data)
{
    crpc_channel_op op = op_of(pair, side, CRPC_CHANNEL_RECEIVE, offset, bytes, tag, user_data);
    struct registration *region = bytes > 0 ? &pair->region[side] : NULL;
    int32_t status = channel_receive(pair->channel[side], &op, &region, 1);
    channel_submit_end(pair->engine[side]);
    return status;
}

int32_t pair_send(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes, uint32_t tag,
                  uint64_t user_data)
{
    crpc_channel_op op = op_of(pair, side, CRPC_CHANNEL_SEND, offset, bytes, tag, user_data);
    int32_t status = channel_send(pair->channel[side], &op, bytes > 0 ? &pair->region[side] : NULL);
    channel_submit_end(pair->engine[side]);
    return status;
}

static uint8_t byte_at(uint64_t place, uint8_t key)
{
    return (uint8_t)(place * 167 + (place >> 8) * 13 + key);
}

void pair_fill(struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes, uint8_t key)
{
    for (uint64_t i = 0; i < bytes; i++) {
        pair->memory[side][offset + i] = byte_at(i, key);
    }
}

bool pair_matches(const struct pair *pair, uint32_t side, uint64_t offset, uint64_t bytes,
                  uint64_t source_offset, uint8_t key)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (pair->memory[side][offset + i] != byte_at(source_offset + i, key)) {
            return false;
        }
    }
    return true;
}

void pair_message(struct pair *pair, uint32_t bytes, uint8_t key)
{
    pair_fill(pair, 0, 4096, bytes, key);
    memset(pair->memory[1], 0xee, bytes + 8192);
    assert_int_equal(pair_receive(pair, 1, 4096, bytes + 100, 7, 70), CRPC_OK);
    assert_int_equal(pair_send(pair, 0, 4096, bytes, 7, 71), CRPC_OK);
    pair_settle(pair);
    const crpc_completion *sent = pair_find(pair, 0, CRPC_COMPLETION_SENT, 0);
    const crpc_completion *received = pair_find(pair, 1, CRPC_COMPLETION_RECEIVED, 0);
    assert_non_null(sent);
    assert_non_null(received);
    assert_int_equal(sent->status, CRPC_OK);
    assert_int_equal(sent->user_data, 71);
    assert_int_equal(received->status, CRPC_OK);
    assert_int_equal(received->user_data, 70);
    assert_int_equal(received->payload_bytes, bytes);
    assert_int_equal(received->flags, CRPC_COMPLETION_OF_CHANNEL);
    assert_true(pair_matches(pair, 1, 4096, bytes, 0, key));
    assert_int_equal(pair->memory[1][4096 + bytes], 0xee);
    assert_int_equal(pair->memory[1][4095], 0xee);
    pair_forget(pair);
}

void pair_write(struct pair *pair, uint32_t side, uint32_t rail, uint64_t offset, const void *data,
                uint32_t bytes, uint32_t immediate)
{
    const struct channel *channel = pair->channel[side];
    assert_int_equal(memory_fabric_write_immediate(
                         pair->fabric, channel->rails[rail].queues[0]->queue_pair->number,
                         channel->area.secret + offset, channel->area.keys[rail].remote_key, bytes,
                         data, immediate),
                     NIC_ERROR_NONE);
}

void pair_write_line(struct pair *pair, uint32_t side, const struct channel_control *line)
{
    pair_write(pair, side, 0, line->sequence % CHANNEL_INBOX_MESSAGES * sizeof(*line), line,
               sizeof(*line),
               CHANNEL_IMMEDIATE_CONTROL | line->sequence << CHANNEL_GENERATION_SHIFT);
}

crpc_channel_stats pair_stats(const struct pair *pair, uint32_t side)
{
    crpc_channel_stats stats;
    channel_stats(pair->channel[side], &stats);
    return stats;
}

crpc_channel_info pair_info(const struct pair *pair, uint32_t side)
{
    crpc_channel_info info;
    channel_info(pair->channel[side], &info);
    return info;
}

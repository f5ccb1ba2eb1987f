/* fuzz_words.c: the words of a channel's peer in raw bytes: immediates, control messages, records
 * and clear-to-sends, each where the victim reads it next. See fuzz_channels.h for what must hold.
 *
 * It is for libFuzzer (./dev fuzz words), or a test with fuzz_main.c.
 */
#include "fuzz_channels.h"

#define WORDS_MAX 64u

static void post_ops(struct end *victim)
{
    crpc_channel_op ops[2];
    struct registration *regions[2] = {&world.region[VICTIM], &world.region[VICTIM]};
    for (uint32_t i = 0; i < 3; i++) { /* messages 0 and 1 of one buffer, 2 of two */
        uint32_t count = i == 2 ? 2 : 1;
        for (uint32_t j = 0; j < count; j++) {
            struct op *op = &victim->ops[victim->op_count++];
            *op = (struct op){.state = OP_RECEIVE,
                              .bytes = 1000,
                              .address = (uint64_t)(uintptr_t)world.memory[VICTIM] +
                                         victim->op_count * 1024u};
            ops[j] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                       .user_data = victim->op_count - 1,
                                       .address = op->address,
                                       .bytes = op->bytes};
            victim->open++;
        }
        fuzz_check(channel_receive(victim->channel, ops, regions, count) == CRPC_OK, "no receive");
    }
    for (uint32_t i = 0; i < 3; i++) {
        victim->ops[victim->op_count++] = (struct op){.state = OP_SEND};
        ops[0] = (crpc_channel_op){.opcode = CRPC_CHANNEL_SEND,
                                   .user_data = victim->op_count - 1,
                                   .address = (uint64_t)(uintptr_t)world.memory[VICTIM],
                                   .bytes = 700 * i};
        victim->open++;
        fuzz_check(channel_send(victim->channel, &ops[0], i > 0 ? regions[0] : NULL) == CRPC_OK,
                   "no send");
    }
    channel_submit_end(world.engine[VICTIM]);
}

/* Raw bytes at an offset of the area, then an immediate, if there is one. */
static void say(const struct channel *victim, uint32_t rail, uint64_t offset, const void *bytes,
                uint32_t count, bool immediate, uint32_t value)
{
    const struct channel_queue *queue = victim->rails[rail].queues[0];
    if (!queue || !victim->area.base) {
        return;
    }
    uint64_t address = victim->area.secret + offset;
    uint32_t key = victim->area.keys[rail].remote_key, number = queue->queue_pair->number;
    if (immediate) {
        memory_fabric_write_immediate(world.fabric, number, address, key, count, bytes, value);
    } else {
        memory_fabric_write(world.fabric, number, address, key, count, bytes);
    }
}

static void say_word(struct fuzz_input *input, const struct channel *victim)
{
    uint8_t choice = fuzz_byte(input);
    uint32_t rail = choice >> 7;
    union {
        uint8_t bytes[CHANNEL_CONTROL_BYTES];
        struct channel_control control;
        struct channel_record record;
        struct channel_cts cts;
    } word;
    uint32_t value, sequence = victim->control.in_sequence, slot;
    switch (choice & 3) {
    case 0:
        say(victim, rail, 0, NULL, 0, true, fuzz_word(input));
        break;
    case 1:
        fuzz_bytes(input, word.bytes, 16 + (choice >> 2 & 15) * 4u);
        memset(word.bytes + 16 + (choice >> 2 & 15) * 4u, 0,
               sizeof(word.bytes) - 16 - (choice >> 2 & 15) * 4u);
        word.control.sequence ^= sequence;
        say(victim, rail, sequence % CHANNEL_INBOX_MESSAGES * (uint64_t)CHANNEL_CONTROL_BYTES,
            word.bytes, CHANNEL_CONTROL_BYTES, true,
            CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT);
        break;
    case 2:
        slot = choice >> 2 & 3;
        value = fuzz_half(input);
        fuzz_bytes(input, word.bytes, sizeof(struct channel_record));
        say(victim, rail, CHANNEL_RECORDS_OFFSET + slot * 64u, word.bytes,
            sizeof(struct channel_record), true,
            slot | (value & 0xf00u) | CHANNEL_IMMEDIATE_RECORD);
        break;
    default:
        slot = (uint32_t)victim->send.number & victim->slot_mask;
        fuzz_bytes(input, word.bytes, sizeof(struct channel_cts));
        word.cts.number ^= victim->send.number + 1;
        say(victim, rail, channel_buffers_offset(slot, rail) + (choice >> 2 & 7) * 64u, word.bytes,
            sizeof(struct channel_cts), false, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The victim has the options of zeros, and is the active side or the passive one. */
    const uint8_t options[3] = {0, 0, size > 0 ? data[0] & 1 : 0};
    struct fuzz_input input = {data, size}, chosen = {options, sizeof(options)};
    struct end *victim = &world.ends[0];
    world_open(&chosen);
    fuzz_byte(&input);
    fuzz_check(victim->connected, "not connected");
    post_ops(victim);
    for (uint32_t i = 0; i < WORDS_MAX && input.left > 0; i++) {
        say_word(&input, victim->channel);
        if (fuzz_byte(&input) < 200) {
            world_poll(VICTIM, POLL_MAX);
        }
    }
    world_close();
    return 0;
}
